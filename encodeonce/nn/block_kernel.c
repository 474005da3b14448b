/* What stands between the matrix products of a post-norm transformer block, forward and backward: attention inside items
   by heads, dropout with residual and layer norm, GELU. Part of the library of step_kernel.c, with its conventions.

   Axes: P rows  B items  D width = H W  H heads  W head width, a multiple of 16  N rows of an item, as keys rounded up to
   S, a multiple of 16  F width of the feed-forward layer. bf16 where a name ends in 16; fp32 otherwise. */

#include "attention.h"

/* rows16 [N, `stride` apart] plus bias, W columns of it -> rows [N W], and the transpose [W S] where it is wanted */
static void unpack(const uint16_t *rows16, const float *bias, long n, long stride, long w, float *rows, float *across) {
    long s = rounded(n);
    for (long j = 0; j < n; j++, rows16 += stride)
        for (long c = 0; c < w; c += V) {
            vec x = load16(rows16 + c);
            if (bias) x += load(bias + c);
            store(rows + j * w + c, x);
        }
    if (!across) return;
    for (long c = 0; c < w; c++)
        for (long j = 0; j < s; j++) across[c * s + j] = j < n ? rows[j * w + c] : 0.0f;
}

/* fused query, key, value16 [P 3D] without their bias [3D] -> attended16 [P D]; probabilities [H N S] of one item after
   another, before dropout, whose bits `kept` stand in the same order. Where `first` is not NULL, items have two parts,
   first[b] rows and the rest: the first reads the second where bit 0 of `reads` is set, the second the first where bit 1
   is. Returns 1 where there is no memory. */
int heads16(const uint16_t *fused, const float *bias, const int64_t *lengths, long items, long h, long w, float slope,
            const bits *kept, float scale, const int64_t *first, long reads, float *probabilities, uint16_t *out) {
    long d = h * w, n = longest_of(lengths, items), s = rounded(n);
    float *query = malloc((n * w * 3 + w * s + ROWS * s) * sizeof(float));
    if (!query) return 1;
    float *key = query + n * w, *value = key + n * w, *across = value + n * w, *dropped = across + w * s;
    for (long b = 0; b < items; b++) {
        n = lengths[b], s = rounded(n);
        long border = first ? first[b] : n, end = reads & 1 ? n : border, begin = reads & 2 ? 0 : border;
        for (long g = 0; g < h; g++) {
            const uint16_t *own = fused + g * w;
            const float *shift = bias + g * w;
            unpack(own, shift, n, 3 * d, w, query, NULL);
            unpack(own + d, shift + d, n, 3 * d, w, key, across);
            unpack(own + 2 * d, shift + 2 * d, n, 3 * d, w, value, NULL);
            for (long i = 0, m; i < n; i += m, probabilities += m * s) {
                uint16_t *to = out + i * d + g * w;
                m = n - i < ROWS ? 1 : ROWS;
                if (m == ROWS) products(ROWS, query + i * w, w, across, w, s, slope, probabilities);
                else products(1, query + i * w, w, across, w, s, slope, probabilities);
                for (long r = 0; r < m; r++)
                    softmax_lanes(probabilities + r * s, i + r < border ? 0 : begin, i + r < border ? end : n, s);
                for (long c = 0; c < m * s; c += V) store(dropped + c, load(probabilities + c) * factor(*kept++, scale));
                if (m == ROWS) weighted_rows(ROWS, dropped, s, 1, value, n, w, d, NULL, to, NULL);
                else weighted_rows(1, dropped, s, 1, value, n, w, d, NULL, to, NULL);
            }
        }
        fused += n * 3 * d, out += n * d;
    }
    free(query);
    return 0;
}

/* slope16 [P D] of the attended rows -> to_fused16 [P 3D], to_bias [3D], the latter zero at first */
int heads16_slope(const uint16_t *slopes, const uint16_t *fused, const float *bias, const int64_t *lengths, long items, long h,
                  long w, float slope, const bits *kept, float scale, const float *probabilities, uint16_t *to_fused,
                  float *to_bias) {
    long d = h * w, n = longest_of(lengths, items), s = rounded(n);
    float *query = malloc((n * w * 4 + w * s + 2 * n * s) * sizeof(float));
    if (!query) return 1;
    float *key = query + n * w, *value = key + n * w, *above = value + n * w, *across = above + n * w;
    float *dropped = across + w * s, *inner = dropped + n * s;
    for (long b = 0; b < items; b++) {
        n = lengths[b], s = rounded(n);
        for (long g = 0; g < h; g++) {
            const uint16_t *own = fused + g * w;
            const float *shift = bias + g * w;
            unpack(own, shift, n, 3 * d, w, query, NULL);
            unpack(own + d, shift + d, n, 3 * d, w, key, NULL);
            unpack(own + 2 * d, shift + 2 * d, n, 3 * d, w, value, across);
            unpack(slopes + g * w, NULL, n, d, w, above, NULL);
            for (long i = 0, m; i < n; i += m) {
                m = n - i < ROWS ? 1 : ROWS;
                if (m == ROWS) products(ROWS, above + i * w, w, across, w, s, 1.0f, inner + i * s);
                else products(1, above + i * w, w, across, w, s, 1.0f, inner + i * s);
            }
            for (long i = 0; i < n; i++, probabilities += s) {
                float *to_score = inner + i * s, *through = dropped + i * s;
                vec total = {0};
                for (long c = 0; c < s; c += V) {
                    vec p = load(probabilities + c), f = factor(*kept++, scale), to_p = load(to_score + c) * f;
                    store(through + c, p * f);
                    store(to_score + c, to_p);
                    total += p * to_p;
                }
                float mean = sum(total);
                for (long c = 0; c < s; c += V)
                    store(to_score + c, load(probabilities + c) * (load(to_score + c) - mean) * slope);
            }
            for (long i = 0, m; i < n; i += m) {
                uint16_t *to = to_fused + i * 3 * d + g * w;
                float *to_shift = to_bias + g * w;
                m = n - i < ROWS ? 1 : ROWS;
                if (m == ROWS) {
                    weighted_rows(ROWS, inner + i * s, s, 1, key, n, w, 3 * d, NULL, to, to_shift);
                    weighted_rows(ROWS, inner + i, 1, s, query, n, w, 3 * d, NULL, to + d, to_shift + d);
                    weighted_rows(ROWS, dropped + i, 1, s, above, n, w, 3 * d, NULL, to + 2 * d, to_shift + 2 * d);
                } else {
                    weighted_rows(1, inner + i * s, s, 1, key, n, w, 3 * d, NULL, to, to_shift);
                    weighted_rows(1, inner + i, 1, s, query, n, w, 3 * d, NULL, to + d, to_shift + d);
                    weighted_rows(1, dropped + i, 1, s, above, n, w, 3 * d, NULL, to + 2 * d, to_shift + 2 * d);
                }
            }
        }
        fused += n * 3 * d, to_fused += n * 3 * d, slopes += n * d;
    }
    free(query);
    return 0;
}

/* norm(x + drop(z + bias)): product z16 [P D], x [P D] -> the sum [P D], its norm in fp32 and bf16 [P D], and statistics
   [P 2], mean and 1 / deviation */
void add_norm(const uint16_t *z, const float *bias, const bits *kept, float scale, const float *x, const float *gain,
              const float *shift, float epsilon, long p, long d, float *sums, float *out, uint16_t *out16, float *statistics) {
    for (long row = 0; row < p; row++, z += d, x += d, sums += d, out += d, out16 += d) {
        vec total = {0}, squares = {0};
        for (long c = 0; c < d; c += V) {
            vec value = load(x + c) + (load16(z + c) + load(bias + c)) * factor(*kept++, scale);
            store(sums + c, value);
            total += value;
        }
        float mean = sum(total) / d;
        for (long c = 0; c < d; c += V) {
            vec centred = load(sums + c) - mean;
            squares += centred * centred;
        }
        float inverse = 1.0f / sqrtf(sum(squares) / d + epsilon);
        for (long c = 0; c < d; c += V) {
            vec value = (load(sums + c) - mean) * inverse * load(gain + c) + load(shift + c);
            store(out + c, value);
            store16(out16 + c, value);
        }
        statistics[2 * row] = mean, statistics[2 * row + 1] = inverse;
    }
}

/* slope [P D] of the norm, plus more16 [P D] where it is not NULL -> to_x [P D], to_z16 [P D]; to_bias, to_gain and
   to_shift [D] are zero at first */
void add_norm_slope(const float *slope, const uint16_t *more, const float *sums, const float *gain, const float *statistics,
                    const bits *kept, float scale, long p, long d, float *to_x, uint16_t *to_z, float *to_bias,
                    float *to_gain, float *to_shift) {
    for (long row = 0; row < p; row++, slope += d, sums += d, to_x += d, to_z += d) {
        float mean = statistics[2 * row], inverse = statistics[2 * row + 1];
        vec first = {0}, second = {0};
        for (long c = 0; c < d; c += V) {
            vec s = load(slope + c), normed = (load(sums + c) - mean) * inverse;
            if (more) s += load16(more + c);
            store(to_gain + c, load(to_gain + c) + s * normed);
            store(to_shift + c, load(to_shift + c) + s);
            s *= load(gain + c);
            store(to_x + c, s);
            first += s;
            second += s * normed;
        }
        float a = sum(first) / d, b = sum(second) / d;
        for (long c = 0; c < d; c += V) {
            vec value = (load(to_x + c) - a - (load(sums + c) - mean) * inverse * b) * inverse;
            vec deeper = value * factor(*kept++, scale);
            store(to_x + c, value);
            store16(to_z + c, deeper);
            store(to_bias + c, load(to_bias + c) + deeper);
        }
        if (more) more += d;
    }
}

/* Phi of the lanes and e^(-x^2 / 2); Phi by Abramowitz and Stegun 7.1.26, absolute error below 1e-7 */
static inline vec normal(vec x, vec *bell) {
    word below = (word)(x < 0.0f);
    vec z = (vec)((word)x & 0x7fffffff) * 0.70710678f, t = 1.0f / (1.0f + 0.3275911f * z), half_erfc;
    *bell = exponentials(-z * z);
    half_erfc = 0.5f * *bell * t
        * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    return (vec)(((word)half_erfc & below) | ((word)(1.0f - half_erfc) & ~below));
}

/* x Phi(x) with x = z + bias: product z16 [P F] -> bf16 [P F] */
void gelu16(const uint16_t *z, const float *bias, long p, long f, uint16_t *out) {
    vec bell;
    for (long row = 0; row < p; row++, z += f, out += f)
        for (long c = 0; c < f; c += V) {
            vec x = load16(z + c) + load(bias + c);
            store16(out + c, x * normal(x, &bell));
        }
}

/* slope16 [P F] of gelu16's output -> to_z16 [P F], which may be the slope itself; to_bias [F] is zero at first */
void gelu16_slope(const uint16_t *slope, const uint16_t *z, const float *bias, long p, long f, uint16_t *to_z, float *to_bias) {
    vec bell;
    for (long row = 0; row < p; row++, slope += f, z += f, to_z += f)
        for (long c = 0; c < f; c += V) {
            vec x = load16(z + c) + load(bias + c), share = normal(x, &bell);
            vec deeper = load16(slope + c) * (share + x * bell * 0.39894228f);
            store16(to_z + c, deeper);
            store(to_bias + c, load(to_bias + c) + deeper);
        }
}
