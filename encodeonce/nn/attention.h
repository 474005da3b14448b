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
