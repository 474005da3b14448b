/* The parts of a training step that are bound by memory, each in one pass where tensor operations need several:
   means of the views, attention over views and the mix, attention between the rows of an item, and what stands between
   the matrix products of the tailor and of the head. Gradients beside them. Plain C; fp32, bf16 where a name ends in 16.

   Axes: L views  P rows  B items  R chosen rows  D width, a multiple of 16  H heads  W head width  N keys of an item
   M chosen rows of an item. Arrays are contiguous, in the order of the axes named beside them. */

#include "attention.h"

static inline float dot(const float *a, const float *b, long d) {
    vec s = {0}, t = {0};
    long c = 0;
    for (; c + 2 * V <= d; c += 2 * V) {
        s += load(a + c) * load(b + c);
        t += load(a + c + V) * load(b + c + V);
    }
    if (c < d) s += load(a + c) * load(b + c);
    return sum(s + t);
}
static inline float small_dot(const float *a, const float *b, long n) {
    float s = 0;
    for (long j = 0; j < n; j++) s += a[j] * b[j];
    return s;
}
/* y += a x over a few values */
static inline void small_add(float *y, float a, const float *x, long n) {
    for (long j = 0; j < n; j++) y[j] += a * x[j];
}
/* out[D] = sum_i a[i] rows[i], rows `stride` apart */
static void weighted(const float *a, const float *rows, long n, long stride, long d, float *out) {
    long c = 0;
    for (; c + 4 * V <= d; c += 4 * V) {
        vec s = {0}, t = {0}, u = {0}, v = {0};
        for (long i = 0; i < n; i++) {
            const float *row = rows + i * stride + c;
            s += a[i] * load(row);
            t += a[i] * load(row + V);
            u += a[i] * load(row + 2 * V);
            v += a[i] * load(row + 3 * V);
        }
        store(out + c, s);
        store(out + c + V, t);
        store(out + c + 2 * V, u);
        store(out + c + 3 * V, v);
    }
    for (; c < d; c += V) {
        vec s = {0};
        for (long i = 0; i < n; i++) s += a[i] * load(rows + i * stride + c);
        store(out + c, s);
    }
}
/* out[r * apart + j] = rows[r] . others[j] for m of r, two of j at a time */
static inline __attribute__((always_inline)) void dots(int m, const float *rows, const float *others, long n, long d,
                                                       float *out, long apart) {
    for (long j = 0; j < n; j += 2) {
        const float *left = others + j * d, *right = j + 1 < n ? left + d : left;
        vec s[2] = {{0}}, t[2] = {{0}};
        for (long c = 0; c < d; c += V) {
            vec x = load(left + c), y = load(right + c);
            for (int r = 0; r < m; r++) {
                vec row = load(rows + r * d + c);
                s[r] += row * x, t[r] += row * y;
            }
        }
        for (int r = 0; r < m; r++) {
            out[r * apart + j] = sum(s[r]);
            if (j + 1 < n) out[r * apart + j + 1] = sum(t[r]);
        }
    }
}
static void softmax(float *x, long n) {
    float most = x[0], total = 0;
    for (long j = 1; j < n; j++) most = x[j] > most ? x[j] : most;
    for (long j = 0; j < n; j++) x[j] = exponential(x[j] - most);
    for (long j = 0; j < n; j++) total += x[j];
    for (long j = 0; j < n; j++) x[j] /= total;
}
/* slope of the scores from the slope of the mean map: p (d - <p, d>) share */
static void softmax_slope(const float *p, const float *d, long n, float share, float *out) {
    float inner = small_dot(p, d, n);
    for (long j = 0; j < n; j++) out[j] = p[j] * (d[j] - inner) * share;
}

/* views [L P D] -> layer_mean [P D], token_means [B L D], in one reading */
void view_means(const float *views, const int64_t *lengths, long items, long l, long p, long d, float *layer_mean,
                float *token_means) {
    for (long b = 0, start = 0; b < items; start += lengths[b++])
        for (long i = 0; i < l; i++) {
            float *token = token_means + (b * l + i) * d;
            memset(token, 0, d * sizeof(float));
            for (long row = start; row < start + lengths[b]; row++) {
                const float *x = views + (i * p + row) * d;
                float *mean = layer_mean + row * d;
                float share = i == l - 1 ? 1.0f / l : 1.0f;
                for (long c = 0; c < d; c += V) {
                    vec value = load(x + c), so_far = {0};
                    if (i) so_far = load(mean + c);
                    store(mean + c, (so_far + value) * share);
                    store(token + c, load(token + c) + value);
                }
            }
            for (long c = 0; c < d; c += V) store(token + c, load(token + c) * (1.0f / lengths[b]));
        }
}

/* query [R H W], key [B L H W], views [L P D]; chosen row r is row rows[r] (0: row r) of item owner[r] -> probabilities
   [R H L], and their mean over heads times the views [R D] */
void mix_views(const float *query, const float *key, const float *views, const int64_t *rows, const int64_t *owner, long n,
               long l, long p, long d, long h, long w, float scale, float *probabilities, float *mixed) {
    float map[l];
    for (long r = 0; r < n; r++) {
        float *own = probabilities + r * h * l;
        memset(map, 0, sizeof map);
        for (long g = 0; g < h; g++, own += l) {
            for (long i = 0; i < l; i++)
                own[i] = scale * small_dot(query + (r * h + g) * w, key + ((owner[r] * l + i) * h + g) * w, w);
            softmax(own, l);
            small_add(map, 1.0f / h, own, l);
        }
        weighted(map, views + (rows ? rows[r] : r) * d, l, p * d, d, mixed + r * d);
    }
}

/* slope [R D] -> to_query [R H W], to_key [B L H W], both zero at first */
void mix_views_slope(const float *slope, const float *query, const float *key, const float *views, const int64_t *rows,
                     const int64_t *owner, long n, long l, long p, long d, long h, long w, float scale,
                     const float *probabilities, float *to_query, float *to_key) {
    float to_map[l], to_score[l];
    for (long r = 0; r < n; r++) {
        const float *first = views + (rows ? rows[r] : r) * d;
        for (long i = 0; i < l; i++) to_map[i] = dot(slope + r * d, first + i * p * d, d);
        for (long g = 0; g < h; g++) {
            softmax_slope(probabilities + (r * h + g) * l, to_map, l, scale / h, to_score);
            for (long i = 0; i < l; i++) {
                long q = (r * h + g) * w, k = ((owner[r] * l + i) * h + g) * w;
                small_add(to_query + q, to_score[i], key + k, w);
                small_add(to_key + k, to_score[i], query + q, w);
            }
        }
    }
}

/* rows [N, H W] -> [H W, S], zeros beyond N */
static void turned(const float *rows, long n, long hw, float *across) {
    long s = rounded(n);
    for (long c = 0; c < hw; c++)
        for (long j = 0; j < s; j++) across[c * s + j] = j < n ? rows[j * hw + c] : 0.0f;
}

/* query [R H W], key [P H W], values [P D] -> an item's probabilities [H M N] after another, and the mean map times the
   item's values [R D]. Returns 1 where there is no memory. */
int attend(const float *query, const float *key, const float *values, const int64_t *lengths, const int64_t *chosen, long items,
           long d, long h, long w, float scale, float *probabilities, float *out) {
    long n = longest_of(lengths, items), s = rounded(n), hw = h * w;
    float *across = malloc((hw + 2 * ROWS) * s * sizeof(float));
    if (!across) return 1;
    for (long b = 0; b < items; b++) {
        long m = chosen[b];
        n = lengths[b], s = rounded(n);
        float *maps = across + hw * s, *scores = maps + ROWS * s;
        turned(key, n, hw, across);
        for (long first = 0, here; first < m; first += here) {
            here = m - first < ROWS ? 1 : ROWS;
            memset(maps, 0, here * s * sizeof(float));
            for (long g = 0; g < h; g++) {
                const float *own = query + first * hw + g * w;
                if (here == ROWS) products(ROWS, own, hw, across + g * w * s, w, s, scale, scores);
                else products(1, own, hw, across + g * w * s, w, s, scale, scores);
                for (long r = 0; r < here; r++) {
                    softmax_lanes(scores + r * s, 0, n, s);
                    memcpy(probabilities + (g * m + first + r) * n, scores + r * s, n * sizeof(float));
                }
                for (long c = 0; c < here * s; c += V) store(maps + c, load(maps + c) + load(scores + c) * (1.0f / h));
            }
            if (here == ROWS) weighted_rows(ROWS, maps, s, 1, values, n, d, d, out + first * d, NULL, NULL);
            else weighted_rows(1, maps, s, 1, values, n, d, d, out + first * d, NULL, NULL);
        }
        query += m * hw, key += n * hw, values += n * d, out += m * d, probabilities += h * m * n;
    }
    free(across);
    return 0;
}

/* slope [R D] -> to_query [R H W], to_key [P H W] and to_values [P D] */
int attend_slope(const float *slope, const float *query, const float *key, const float *values, const int64_t *lengths,
                 const int64_t *chosen, long items, long d, long h, long w, float scale, const float *probabilities,
                 float *to_query, float *to_key, float *to_values) {
    long n = longest_of(lengths, items), s = rounded(n), hw = h * w, most = longest_of(chosen, items);
    float *across = malloc((2 * hw + 2 * most + 2) * s * sizeof(float));
    if (!across) return 1;
    for (long b = 0; b < items; b++) {
        long m = chosen[b];
        n = lengths[b], s = rounded(n);
        float *to_across = across + hw * s, *maps = to_across + hw * s, *to_maps = maps + m * s;
        float *own = to_maps + m * s, *to_score = own + s;
        turned(key, n, hw, across);
        memset(to_across, 0, (hw + 2 * m) * s * sizeof(float)); /* and both maps, which end in zeros */
        memset(own, 0, s * sizeof(float));
        for (long r = 0; r < m; r += 2) {
            if (r + 1 < m) dots(2, slope + r * d, values, n, d, to_maps + r * s, s);
            else dots(1, slope + r * d, values, n, d, to_maps + r * s, s);
        }
        for (long r = 0; r < m; r++)
            for (long g = 0; g < h; g++) {
                float *map = maps + r * s, *to_map = to_maps + r * s;
                const float *q = query + r * hw + g * w;
                memcpy(own, probabilities + (g * m + r) * n, n * sizeof(float));
                float inner = dot(own, to_map, s);
                for (long c = 0; c < s; c += V) {
                    vec p = load(own + c);
                    store(to_score + c, p * (load(to_map + c) - inner) * (scale / h));
                    store(map + c, load(map + c) + p * (1.0f / h));
                }
                for (long k = 0; k < w; k++) {
                    const float *line = across + (g * w + k) * s;
                    float *to_line = to_across + (g * w + k) * s;
                    to_query[r * hw + g * w + k] = dot(to_score, line, s);
                    for (long c = 0; c < s; c += V) store(to_line + c, load(to_line + c) + load(to_score + c) * q[k]);
                }
            }
        for (long j = 0; j < n; j++)
            for (long c = 0; c < hw; c++) to_key[j * hw + c] = to_across[c * s + j];
        for (long j = 0, here; j < n; j += here) {
            here = n - j < ROWS ? 1 : ROWS;
            if (here == ROWS) weighted_rows(ROWS, maps + j, 1, s, slope, m, d, d, to_values + j * d, NULL, NULL);
            else weighted_rows(1, maps + j, 1, s, slope, m, d, d, to_values + j * d, NULL, NULL);
        }
        query += m * hw, to_query += m * hw, slope += m * d;
        key += n * hw, to_key += n * hw, values += n * d, to_values += n * d, probabilities += h * m * n;
    }
    free(across);
    return 0;
}

/* Layer norm of x [P D] as bf16 [P D]; statistics [P 2] are mean and 1 / deviation */
void norm16(const float *x, const float *gain, const float *shift, float epsilon, long p, long d, uint16_t *out,
            float *statistics) {
    for (long row = 0; row < p; row++, x += d, out += d) {
        vec total = {0}, squares = {0};
        for (long c = 0; c < d; c += V) total += load(x + c);
        float mean = sum(total) / d;
        for (long c = 0; c < d; c += V) {
            vec centred = load(x + c) - mean;
            squares += centred * centred;
        }
        float inverse = 1.0f / sqrtf(sum(squares) / d + epsilon);
        for (long c = 0; c < d; c += V)
            store16(out + c, (load(x + c) - mean) * inverse * load(gain + c) + load(shift + c));
        statistics[2 * row] = mean, statistics[2 * row + 1] = inverse;
    }
}

/* slope16 [P D] of the norm's output; to_x [P D] += its slope; to_gain, to_shift [D] are zero at first */
void norm16_slope(const uint16_t *slope, const float *x, const float *gain, const float *statistics, long p, long d,
                  float *to_x, float *to_gain, float *to_shift) {
    for (long row = 0; row < p; row++, x += d, slope += d, to_x += d) {
        float mean = statistics[2 * row], inverse = statistics[2 * row + 1];
        vec first = {0}, second = {0};
        for (long c = 0; c < d; c += V) {
            vec s = load16(slope + c), normed = (load(x + c) - mean) * inverse;
            store(to_gain + c, load(to_gain + c) + s * normed);
            store(to_shift + c, load(to_shift + c) + s);
            s *= load(gain + c);
            first += s;
            second += s * normed;
        }
        float a = sum(first) / d, b = sum(second) / d;
        for (long c = 0; c < d; c += V) {
            vec normed = (load(x + c) - mean) * inverse;
            store(to_x + c, load(to_x + c) + (load16(slope + c) * load(gain + c) - a - normed * b) * inverse);
        }
    }
}

/* drop(x + relu(drop(z + bias))): product z16 [P D], x [P D], words of bits [P D/16] of both drops -> out [P D] */
void feed(const uint16_t *z, const float *bias, const float *x, const bits *inner, const bits *outer, float scale,
          long p, long d, float *out) {
    for (long row = 0; row < p; row++, z += d, x += d, out += d)
        for (long c = 0; c < d; c += V) {
            vec value = load16(z + c) + load(bias + c);
            vec above = (vec)((word)value & (word)(value > 0));
            store(out + c, (load(x + c) + above * factor(*inner++, scale)) * factor(*outer++, scale));
        }
}

/* slope [P D] of feed's output -> to_x [P D], to_z16 [P D], to_bias [D], the last zero at first */
void feed_slope(const float *slope, const uint16_t *z, const float *bias, const bits *inner, const bits *outer,
                float scale, long p, long d, float *to_x, uint16_t *to_z, float *to_bias) {
    for (long row = 0; row < p; row++, slope += d, z += d, to_x += d, to_z += d)
        for (long c = 0; c < d; c += V) {
            vec value = load16(z + c) + load(bias + c);
            vec through = load(slope + c) * factor(*outer++, scale);
            vec deeper = (vec)((word)(through * factor(*inner++, scale)) & (word)(value > 0));
            store(to_x + c, through);
            store16(to_z + c, deeper);
            store(to_bias + c, load(to_bias + c) + deeper);
        }
}

/* x [n] and words of bits [n/16] -> bf16 [n]; and the other way for slopes */
void drop16(const float *x, const bits *kept, float scale, long n, uint16_t *out) {
    for (long c = 0; c < n; c += V) store16(out + c, load(x + c) * factor(*kept++, scale));
}
void drop16_slope(const uint16_t *slope, const bits *kept, float scale, long n, float *to_x) {
    for (long c = 0; c < n; c += V) store(to_x + c, load16(slope + c) * factor(*kept++, scale));
}

/* drop(tanh(z + bias)): z16 [R D] -> tanh in bf16 in place of z, dropped in bf16 */
void tanh16(uint16_t *z, const float *bias, const bits *kept, float scale, long r, long d, uint16_t *out) {
    for (long row = 0; row < r; row++, z += d, out += d)
        for (long c = 0; c < d; c += V) {
            vec x = 2.0f * (load16(z + c) + load(bias + c)), y;
            for (int j = 0; j < V; j++) y[j] = exponential(x[j]);
            y = 1.0f - 2.0f / (y + 1.0f);
            store16(z + c, y);
            store16(out + c, y * factor(*kept++, scale));
        }
}

/* slope16 [R D] of the dropped tanh, tanh in bf16 -> to_z16 [R D], to_bias [D], the latter zero at first */
void tanh16_slope(const uint16_t *slope, const uint16_t *y, const bits *kept, float scale, long r, long d,
                  uint16_t *to_z, float *to_bias) {
    for (long row = 0; row < r; row++, slope += d, y += d, to_z += d)
        for (long c = 0; c < d; c += V) {
            vec value = load16(y + c);
            vec deeper = load16(slope + c) * factor(*kept++, scale) * (1.0f - value * value);
            store16(to_z + c, deeper);
            store(to_bias + c, load(to_bias + c) + deeper);
        }
}
