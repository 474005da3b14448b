/* Attention inside items, in rows of lanes: what both files of kernels need of it. Included by the C files.

   Axes: m rows side by side  W head width  N keys of an item, S rounded up to a multiple of 16 */

#ifndef ATTENTION_H
#define ATTENTION_H

#include "lanes.h"

#define ROWS 4 /* that are computed side by side */

static inline long rounded(long n) { return (n + 15) / 16 * 16; }

static inline long longest_of(const int64_t *lengths, long items) {
    long most = 1;
    for (long b = 0; b < items; b++) most = lengths[b] > most ? lengths[b] : most;
    return most;
}

/* out[m S] = scale * rows[m W] across[W S], rows `apart` apart. Always inlined, so that m is a constant: what is read of
   `across` serves m rows, and 2 m sums run side by side. Every sum has one order, whatever m is */
static inline __attribute__((always_inline)) void products(int m, const float *rows, long apart, const float *across, long w,
                                                           long s, float scale, float *out) {
    long c = 0;
    for (; c + 2 * V <= s; c += 2 * V) {
        vec a[ROWS] = {{0}}, b[ROWS] = {{0}};
        for (long k = 0; k < w; k++) {
            vec left = load(across + k * s + c), right = load(across + k * s + c + V);
            for (int r = 0; r < m; r++) a[r] += rows[r * apart + k] * left, b[r] += rows[r * apart + k] * right;
        }
        for (int r = 0; r < m; r++) store(out + r * s + c, a[r] * scale), store(out + r * s + c + V, b[r] * scale);
    }
    for (; c < s; c += V) {
        vec a[ROWS] = {{0}};
        for (long k = 0; k < w; k++) {
            vec left = load(across + k * s + c);
            for (int r = 0; r < m; r++) a[r] += rows[r * apart + k] * left;
        }
        for (int r = 0; r < m; r++) store(out + r * s + c, a[r] * scale);
    }
}

static inline __attribute__((always_inline)) void put(vec x, long at, long column, float *out, uint16_t *out16, float *sums) {
    if (out16) store16(out16 + at, x);
    else store(out + at, x);
    if (sums) store(sums + column, load(sums + column) + x);
}

/* out[r D apart, W], or out16 where it is given, = sum_j a[r * apart + j * step] rows[j], for m of r; sums[W] += the same,
   where it is given. Always inlined, so that m and what is given are constants: what is read of `rows` serves m sums */
static inline __attribute__((always_inline)) void weighted_rows(int m, const float *a, long apart, long step, const float *rows,
                                                                long n, long w, long d, float *out, uint16_t *out16,
                                                                float *sums) {
    long c = 0;
    for (; c + 2 * V <= w; c += 2 * V) {
        vec s[ROWS] = {{0}}, t[ROWS] = {{0}};
        for (long j = 0; j < n; j++) {
            vec left = load(rows + j * w + c), right = load(rows + j * w + c + V);
            for (int r = 0; r < m; r++) {
                float share = a[r * apart + j * step];
                s[r] += share * left, t[r] += share * right;
            }
        }
        for (int r = 0; r < m; r++) put(s[r], r * d + c, c, out, out16, sums), put(t[r], r * d + c + V, c + V, out, out16, sums);
    }
    for (; c < w; c += V) {
        vec s[ROWS] = {{0}};
        for (long j = 0; j < n; j++) {
            vec row = load(rows + j * w + c);
            for (int r = 0; r < m; r++) s[r] += a[r * apart + j * step] * row;
        }
        for (int r = 0; r < m; r++) put(s[r], r * d + c, c, out, out16, sums);
    }
}

/* softmax of the values `from` to `to` of S in place; the others become 0 */
static inline void softmax_lanes(float *x, long from, long to, long s) {
    for (long j = 0; j < from; j++) x[j] = -3.0e38f;
    for (long j = to; j < s; j++) x[j] = -3.0e38f;
    vec most = load(x), total = {0};
    for (long c = V; c < s; c += V) {
        vec value = load(x + c);
        word more = (word)(value > most);
        most = (vec)(((word)value & more) | ((word)most & ~more));
    }
    float top = most[0];
    for (int j = 1; j < V; j++) top = most[j] > top ? most[j] : top;
    for (long c = 0; c < s; c += V) store(x + c, exponentials(load(x + c) - top));
    for (long j = 0; j < from; j++) x[j] = 0;
    for (long j = to; j < s; j++) x[j] = 0;
    for (long c = 0; c < s; c += V) total += load(x + c);
    float share = 1.0f / sum(total);
    for (long c = 0; c < s; c += V) store(x + c, load(x + c) * share);
}

#endif
