/* What stands between the sums and the output of a table of pairs, a rectangle of cells at a time: layer norm, mask, ELU,
   and their gradients, each in one pass over a cell. Plain C, fp32.

   Axes: I row words  J column words  N = I J cells  U width. Arrays are contiguous, in the order of the axes named. */

#include "lanes.h"

static inline void bend(float *y, const float *keep, long u) {
#pragma omp simd
    for (long c = 0; c < u; c++) {
        float x = keep ? y[c] * keep[c] : y[c];
        y[c] = x > 0.0f ? x : exponential(x > 0.0f ? 0.0f : x) - 1.0f;
    }
}

/* out[N,U] = ELU(mask * LN(left_i + right_j)), its mean[N] and 1/deviation[N]; a mask of 0 keeps all */
void pair_features(const float *left, const float *right, const float *gain, const float *shift, const float *mask,
                   float epsilon, long rows, long columns, long u, float *out, float *mean, float *spread) {
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) {
            long n = i * columns + j;
            const float *a = left + i * u, *b = right + j * u;
            float *y = out + n * u, s = 0, q = 0;
#pragma omp simd reduction(+ : s)
            for (long c = 0; c < u; c++) {
                y[c] = a[c] + b[c];
                s += y[c];
            }
            float m = s / u;
#pragma omp simd reduction(+ : q)
            for (long c = 0; c < u; c++) {
                y[c] -= m;
                q += y[c] * y[c];
            }
            float p = 1.0f / sqrtf(q / u + epsilon);
#pragma omp simd
            for (long c = 0; c < u; c++) y[c] = y[c] * p * gain[c] + shift[c];
            if (mask) bend(y, mask + n * u, u);
            else bend(y, 0, u);
            mean[n] = m;
            spread[n] = p;
        }
}

/* adds to the gradients of left, right, gain and shift, from slope[N,U] (spoilt), that of out */
void pair_slopes(float *slope, const float *left, const float *right, const float *gain, const float *mask,
                 const float *out, const float *mean, const float *spread, long rows, long columns, long u,
                 float *to_left, float *to_right, float *to_gain, float *to_shift) {
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) {
            long n = i * columns + j;
            const float *a = left + i * u, *b = right + j * u, *y = out + n * u;
            float *d = slope + n * u, *to_a = to_left + i * u, *to_b = to_right + j * u;
            float m = mean[n], p = spread[n], s = 0, q = 0;
            if (mask) {
                const float *keep = mask + n * u;
#pragma omp simd
                for (long c = 0; c < u; c++) d[c] *= (y[c] > 0.0f ? 1.0f : y[c] + 1.0f) * keep[c];
            } else {
#pragma omp simd
                for (long c = 0; c < u; c++) d[c] *= y[c] > 0.0f ? 1.0f : y[c] + 1.0f;
            }
#pragma omp simd reduction(+ : s, q)
            for (long c = 0; c < u; c++) {
                float x = (a[c] + b[c] - m) * p, g = d[c] * gain[c];
                to_gain[c] += d[c] * x;
                to_shift[c] += d[c];
                s += g;
                q += g * x;
            }
            s /= u;
            q /= u;
#pragma omp simd
            for (long c = 0; c < u; c++) {
                float x = (a[c] + b[c] - m) * p, z = p * (d[c] * gain[c] - s - x * q);
                to_a[c] += z;
                to_b[c] += z;
            }
        }
}
