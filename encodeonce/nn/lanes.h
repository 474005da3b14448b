/* A register full of lanes of fp32, and how bf16 gets in and out. Included by the C files, whose arrays have widths that are
   multiples of 16, the most lanes there are. */

#ifndef LANES_H
#define LANES_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef V /* lanes: of vectors that are wider than a register compilers make loads and stores at every step */
#ifdef __AVX512F__
#define V 16
#else
#define V 8
#endif
#endif
#if V == 16
#define EACH {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
typedef uint16_t bits; /* one a lane, the lowest first */
#else
#define EACH {0, 1, 2, 3, 4, 5, 6, 7}
typedef uint8_t bits;
#endif
typedef float vec __attribute__((vector_size(4 * V), aligned(4), may_alias));
typedef uint32_t word __attribute__((vector_size(4 * V), aligned(4), may_alias));
typedef int32_t whole __attribute__((vector_size(4 * V), aligned(4), may_alias));
typedef uint16_t half __attribute__((vector_size(2 * V), aligned(2), may_alias));

static inline vec load(const float *p) { return *(const vec *)p; }
static inline void store(float *p, vec x) { *(vec *)p = x; }
static inline vec load16(const uint16_t *p) {
    word bits = __builtin_convertvector(*(const half *)p, word) << 16;
    return (vec)bits;
}
static inline void store16(uint16_t *p, vec x) { /* to nearest, ties to even */
    word bits = (word)x;
    bits += 0x7fff + ((bits >> 16) & 1);
    *(half *)p = __builtin_convertvector(bits >> 16, half);
}
static inline vec factor(bits kept, float scale) { /* lane j: scale where bit j is set, else 0 */
    const word lane = EACH;
    word set = (((word){0} + kept) >> lane) & 1;
    return __builtin_convertvector((whole)set, vec) * scale;
}
static inline float sum(vec x) {
    float s = 0;
    for (int j = 0; j < V; j++) s += x[j];
    return s;
}
/* e^x: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2], 2e-7 relative; 0 below e^LEAST = 1e-30. A smaller number would
   change no sum with a 1 in it, and its products lie below the smallest normal number, where some processors take a
   hundred times as long: a softmax of wide gaps is nothing but such numbers. */
#define LEAST (-69.0f)
static inline float exponential(float x) {
    int32_t none = x < LEAST;
    x = x < LEAST ? LEAST : (x > 88.0f ? 88.0f : x);
    float n = rintf(x * 1.44269504f);
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    union { int32_t bits; float value; } power = {none ? 0 : ((int32_t)n + 127) << 23};
    return (p * r * r + r + 1.0f) * power.value;
}
/* the same in every lane, for x up to 88; NaN stays NaN */
static inline vec exponentials(vec x) {
    word none = (word)(x < LEAST);
    x = (vec)(((word)x & ~none) | ((word)((vec){0} + LEAST) & none));
    vec n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* to the nearest whole number, for |n| < 2^22 */
    vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    vec p = (vec){0} + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    word power = (word)((__builtin_convertvector(n, whole) + 127) << 23) & ~none;
    return (p * r * r + r + 1.0f) * (vec)power;
}

#endif
