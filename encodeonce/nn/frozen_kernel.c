/* What a frozen Transformer block is made of, on x86 processors with AVX-512: attention, layer norm and GELU in fp32, and
   where there is a bfloat16 matrix unit (AMX) also the products of fp32 rows with a frozen weight.

   A number is split as x = x1 + x2 + rest: x1 is x rounded to bfloat16, x2 is x - x1 rounded to bfloat16, and the rest is
   below 2^-17 of x. With parts = 2 the kernel sums x2 W1 + x1 W1 + x1 W2 in fp32 (the "bf16x3" product of Henry, Tang and
   Heinecke, ARITH 2019); with parts = 1 only x1 W1. A row's result does not depend on the other rows or on their number.

   Axes: M rows   I inputs   O outputs.   A tile is 16 rows of 64 bytes.
   Weight layout: [O/16][I/32][parts][16 pairs of inputs][16 outputs][2], zeros beyond I and O; see frozen_kernel.py. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VECTOR __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define ROUNDING __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))
#define MATRIX __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,amx-tile,amx-bf16")))
#define TILE 512 /* bfloat16 numbers in a tile */
#define PANEL_BYTES (384 * 1024) /* split rows held at a time: a part of a level-2 cache, which the weights pass through too */

/* Of the products. 0: usable; 1: the processor has no AMX bfloat16; 2: the operating system does not let us use it. */
int frozen_ready(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 1;
    if (!((d >> 22) & 1) || !((d >> 24) & 1) || !((b >> 16) & 1) || !((b >> 30) & 1) || !((b >> 31) & 1)) return 1;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !((a >> 5) & 1)) return 1;
    /* ARCH_REQ_XCOMP_PERM for the tile data, feature 18 */
    return syscall(SYS_arch_prctl, 0x1023, 18) ? 2 : 0;
}

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} Config;

/* Sixteen rows of x (fewer at the end: the others are zero) as tiles of x1 and, with parts = 2, x2. */
ROUNDING static void split_rows(const float *x, long rows, long inputs, long blocks, int parts, uint16_t *tiles) {
    for (long r = 0; r < 16; r++) {
        uint16_t *out = tiles + 32 * r;
        for (long k = 0; k < blocks; k++, out += parts * TILE) {
            long left = r < rows ? inputs - 32 * k : 0;
            __mmask16 m0 = left >= 16 ? 0xffff : (__mmask16)((1u << (left > 0 ? left : 0)) - 1);
            __mmask16 m1 = left >= 32 ? 0xffff : (__mmask16)((1u << (left > 16 ? left - 16 : 0)) - 1);
            const float *from = x + r * inputs + 32 * k;
            __m512 v0 = _mm512_maskz_loadu_ps(m0, from);
            __m512 v1 = _mm512_maskz_loadu_ps(m1, from + 16);
            __m512i high = (__m512i)_mm512_cvtne2ps_pbh(v1, v0);
            _mm512_storeu_si512(out, high);
            if (parts == 1) continue;
            __m512i h0 = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(high)), 16);
            __m512i h1 = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(high, 1)), 16);
            v0 = _mm512_sub_ps(v0, _mm512_castsi512_ps(h0));
            v1 = _mm512_sub_ps(v1, _mm512_castsi512_ps(h1));
            _mm512_storeu_si512(out + TILE, (__m512i)_mm512_cvtne2ps_pbh(v1, v0));
        }
    }
}

/* The tiles come from the level-2 cache; asking for the next ones early keeps the matrix unit fed. */
#define AHEAD(p) for (int l_ = 0; l_ < 1024; l_ += 64) _mm_prefetch((const char *)(p) + l_, _MM_HINT_T0)
#define FOUR_PRODUCTS          \
    _tile_dpbf16ps(0, 4, 6);   \
    _tile_dpbf16ps(1, 4, 7);   \
    _tile_dpbf16ps(2, 5, 6);   \
    _tile_dpbf16ps(3, 5, 7)

/* 32 rows by 32 outputs. a0, a1: tiles of two groups of 16 rows; b0, b1: of two groups of 16 outputs. */
MATRIX static void block(const uint16_t *a0, const uint16_t *a1, const uint16_t *b0, const uint16_t *b1, long blocks,
                         int parts, float *sums) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (long k = 0; k < blocks; k++) {
        long at = k * parts * TILE;
        if (parts == 2) {
            _tile_loadd(4, a0 + at + TILE, 64);
            _tile_loadd(6, b0 + at, 64);
            _tile_loadd(7, b1 + at, 64);
            _tile_loadd(5, a1 + at + TILE, 64);
            AHEAD(a0 + at + 3 * TILE);
            AHEAD(a1 + at + 3 * TILE);
            FOUR_PRODUCTS;
            _tile_loadd(4, a0 + at, 64);
            _tile_loadd(5, a1 + at, 64);
            AHEAD(a0 + at + 2 * TILE);
            AHEAD(a1 + at + 2 * TILE);
            FOUR_PRODUCTS;
            _tile_loadd(6, b0 + at + TILE, 64);
            _tile_loadd(7, b1 + at + TILE, 64);
            AHEAD(b0 + at + 2 * TILE);
            AHEAD(b1 + at + 2 * TILE);
            FOUR_PRODUCTS;
            AHEAD(b0 + at + 3 * TILE);
            AHEAD(b1 + at + 3 * TILE);
        } else {
            _tile_loadd(4, a0 + at, 64);
            _tile_loadd(6, b0 + at, 64);
            _tile_loadd(7, b1 + at, 64);
            _tile_loadd(5, a1 + at, 64);
            FOUR_PRODUCTS;
        }
    }
    _tile_stored(0, sums, 128);
    _tile_stored(1, sums + 16, 128);
    _tile_stored(2, sums + 16 * 32, 128);
    _tile_stored(3, sums + 16 * 32 + 16, 128);
}

/* e^a for a <= 0, relative error below 1e-7; very small results go to 0. */
VECTOR static inline __m512 exponential(__m512 a) {
    a = _mm512_max_ps(a, _mm512_set1_ps(-200.0f));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(a, _mm512_set1_ps(1.44269504f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), a);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 720);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* x Phi(x) = x/2 erfc(-x / sqrt 2), erfc by Abramowitz and Stegun 7.1.26 (absolute error below 1.5e-7). */
VECTOR static inline __m512 gelu(__m512 x) {
    __m512 one = _mm512_set1_ps(1.0f);
    __m512 z = _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(0.70710678f));
    z = _mm512_min_ps(z, _mm512_set1_ps(20.0f)); /* erfc is 0 there; keeps infinity out of the Newton step */
    __m512 d = _mm512_fmadd_ps(z, _mm512_set1_ps(0.3275911f), one);
    __m512 t = _mm512_rcp14_ps(d); /* with one Newton step: cheaper than a division */
    t = _mm512_mul_ps(t, _mm512_fnmadd_ps(d, t, _mm512_set1_ps(2.0f)));
    __m512 p = _mm512_set1_ps(1.061405429f);
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-1.453152027f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(1.421413741f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0.284496736f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.254829592f));
    __m512 tail = _mm512_mul_ps(_mm512_mul_ps(p, t), exponential(_mm512_fnmadd_ps(z, z, _mm512_setzero_ps())));
    tail = _mm512_mul_ps(tail, _mm512_set1_ps(0.5f));
    __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ);
    return _mm512_mul_ps(x, _mm512_mask_sub_ps(tail, positive, one, tail));
}

/* y = sums + bias for the rows and outputs that exist, through GELU where that is asked for. */
VECTOR static void write_block(const float *sums, const float *bias, long rows, long outputs, int activate, float *y,
                               long stride) {
    for (int half = 0; half < 32 && half < outputs; half += 16) {
        __mmask16 mask = outputs - half >= 16 ? 0xffff : (__mmask16)((1u << (outputs - half)) - 1);
        __m512 b = bias ? _mm512_maskz_loadu_ps(mask, bias + half) : _mm512_setzero_ps();
        for (long r = 0; r < rows; r++) {
            __m512 v = _mm512_add_ps(_mm512_loadu_ps(sums + 32 * r + half), b);
            _mm512_mask_storeu_ps(y + r * stride + half, mask, activate ? gelu(v) : v);
        }
    }
}

/* y [M, O] = x [M, I] W^T + bias, through GELU where `activate` is 1. Returns 0, or 1 where memory is short. */
MATRIX int frozen_product(const float *x, const uint16_t *weight, const float *bias, float *y, long rows, long inputs,
                          long outputs, int parts, int activate) {
    long blocks = (inputs + 31) / 32, group = blocks * parts * TILE; /* numbers in the tiles of 16 rows or outputs */
    long at_once = PANEL_BYTES / (64 * blocks * parts) / 32 * 32;
    if (at_once < 32) at_once = 32;
    if (at_once > (rows + 31) / 32 * 32) at_once = (rows + 31) / 32 * 32;
    uint16_t *panel = aligned_alloc(64, at_once / 16 * group * sizeof(uint16_t));
    if (!panel) return 1;
    Config before, ours = {.palette = 1};
    for (int t = 0; t < 8; t++) ours.bytes[t] = 64, ours.rows[t] = 16;
    _tile_storeconfig(&before); /* other libraries may count on the tiles staying as they set them */
    _tile_loadconfig(&ours);
    float sums[32 * 32] __attribute__((aligned(64)));
    for (long first = 0; first < rows; first += at_once) {
        long here = rows - first < at_once ? rows - first : at_once;
        long full = (here + 31) / 32 * 32;
        for (long r = 0; r < full; r += 16)
            split_rows(x + (first + r) * inputs, here - r, inputs, blocks, parts, panel + r / 16 * group);
        for (long o = 0; o < outputs; o += 32) {
            const uint16_t *b0 = weight + o / 16 * group;
            for (long r = 0; r < here; r += 32) {
                const uint16_t *a0 = panel + r / 16 * group;
                block(a0, a0 + group, b0, b0 + group, blocks, parts, sums);
                write_block(sums, bias ? bias + o : 0, here - r < 32 ? here - r : 32, outputs - o, activate,
                            y + (first + r) * outputs + o, outputs);
            }
        }
    }
    if (before.palette)
        _tile_loadconfig(&before);
    else
        _tile_release();
    free(panel);
    return 0;
}

VECTOR void frozen_gelu(const float *x, float *y, long size) {
    for (long i = 0; i < size; i += 16) {
        __mmask16 mask = size - i >= 16 ? 0xffff : (__mmask16)((1u << (size - i)) - 1);
        _mm512_mask_storeu_ps(y + i, mask, gelu(_mm512_maskz_loadu_ps(mask, x + i)));
    }
}

/* Layer norm over the last axis: (x - mean) / sqrt(variance + epsilon) * scale + shift; scale or shift may be null. */
VECTOR void frozen_norm(const float *x, const float *scale, const float *shift, float epsilon, float *y, long rows,
                        long width) {
    for (long r = 0; r < rows; r++, x += width, y += width) {
        __m512 sum = _mm512_setzero_ps(), square = sum;
        for (long i = 0; i < width; i += 16) {
            __mmask16 mask = width - i >= 16 ? 0xffff : (__mmask16)((1u << (width - i)) - 1);
            sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, x + i));
        }
        __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / width);
        for (long i = 0; i < width; i += 16) {
            __mmask16 mask = width - i >= 16 ? 0xffff : (__mmask16)((1u << (width - i)) - 1);
            __m512 v = _mm512_maskz_sub_ps(mask, _mm512_maskz_loadu_ps(mask, x + i), mean);
            square = _mm512_fmadd_ps(v, v, square);
        }
        float variance = _mm512_reduce_add_ps(square) / width;
        __m512 factor = _mm512_set1_ps(1.0f / __builtin_sqrtf(variance + epsilon));
        for (long i = 0; i < width; i += 16) {
            __mmask16 mask = width - i >= 16 ? 0xffff : (__mmask16)((1u << (width - i)) - 1);
            __m512 v = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), mean), factor);
            if (scale) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask, scale + i));
            if (shift) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, shift + i));
            _mm512_mask_storeu_ps(y + i, mask, v);
        }
    }
}

/* Four rows of scores (n keys, filled up to a multiple of 16) become probabilities times their row's total; totals out. */
VECTOR static void soften(float *scores, long keys, long filled, const float *const *mask, float *totals) {
    for (int i = 0; i < 4; i++) {
        float *row = scores + i * filled;
        __m512 highest = _mm512_set1_ps(-__builtin_inff()), total = _mm512_setzero_ps();
        for (long j = 0; j < filled; j += 16) {
            __mmask16 real = keys - j >= 16 ? 0xffff : (__mmask16)((1u << (keys - j)) - 1);
            __m512 v = _mm512_mask_mov_ps(_mm512_set1_ps(-__builtin_inff()), real, _mm512_loadu_ps(row + j));
            if (mask[i]) v = _mm512_mask_add_ps(v, real, v, _mm512_maskz_loadu_ps(real, mask[i] + j));
            _mm512_storeu_ps(row + j, v);
            highest = _mm512_max_ps(highest, v);
        }
        highest = _mm512_set1_ps(_mm512_reduce_max_ps(highest));
        for (long j = 0; j < filled; j += 16) {
            __m512 v = exponential(_mm512_sub_ps(_mm512_loadu_ps(row + j), highest));
            _mm512_storeu_ps(row + j, v);
            total = _mm512_add_ps(total, v);
        }
        totals[i] = _mm512_reduce_add_ps(total);
    }
}

/* to[d][j] = scale from[j][d] for 16 numbers of each of 16 rows, of which `rows` exist and the others count as 0. Pairs,
   fours, eights and halves of the rows change places in turn. */
VECTOR static inline void turn(const float *from, long from_row, long rows, float scale, float *to, long to_row) {
    __m512 a[16], b[16], s = _mm512_set1_ps(scale);
    for (int j = 0; j < 16; j++) a[j] = j < rows ? _mm512_mul_ps(_mm512_loadu_ps(from + j * from_row), s) : _mm512_setzero_ps();
    for (int j = 0; j < 16; j += 2) {
        b[j] = _mm512_unpacklo_ps(a[j], a[j + 1]);
        b[j + 1] = _mm512_unpackhi_ps(a[j], a[j + 1]);
    }
    for (int j = 0; j < 16; j += 4) {
        a[j] = (__m512)_mm512_unpacklo_pd((__m512d)b[j], (__m512d)b[j + 2]);
        a[j + 1] = (__m512)_mm512_unpackhi_pd((__m512d)b[j], (__m512d)b[j + 2]);
        a[j + 2] = (__m512)_mm512_unpacklo_pd((__m512d)b[j + 1], (__m512d)b[j + 3]);
        a[j + 3] = (__m512)_mm512_unpackhi_pd((__m512d)b[j + 1], (__m512d)b[j + 3]);
    }
    for (int j = 0; j < 4; j++) {
        b[j] = _mm512_shuffle_f32x4(a[j], a[j + 4], 0x88);
        b[j + 4] = _mm512_shuffle_f32x4(a[j], a[j + 4], 0xdd);
        b[j + 8] = _mm512_shuffle_f32x4(a[j + 8], a[j + 12], 0x88);
        b[j + 12] = _mm512_shuffle_f32x4(a[j + 8], a[j + 12], 0xdd);
    }
    for (int j = 0; j < 8; j++) {
        _mm512_storeu_ps(to + j * to_row, _mm512_shuffle_f32x4(b[j], b[j + 8], 0x88));
        _mm512_storeu_ps(to + (j + 8) * to_row, _mm512_shuffle_f32x4(b[j], b[j + 8], 0xdd));
    }
}

/* One head of one item: y = softmax(scale q k^T + mask) v. q, y: queries by depth; k, v: keys by depth; turned: room for
   depth * filled numbers, scores for 4 * filled. Depth is a multiple of 16. */
VECTOR static void attend(const float *q, long q_row, const float *k, long k_row, const float *v, long v_row,
                          const float *mask, long mask_row, float *y, long y_row, long queries, long keys, long depth,
                          float scale, float *turned, float *scores) {
    long filled = (keys + 15) / 16 * 16;
    for (long j = 0; j < filled; j += 16)
        for (long d = 0; d < depth; d += 16) turn(k + j * k_row + d, k_row, keys - j, scale, turned + d * filled + j, filled);
    for (long i = 0; i < queries; i += 4) {
        const float *rows[4], *masks[4];
        for (int n = 0; n < 4; n++) {
            long at = i + n < queries ? i + n : queries - 1; /* the last row again where there are fewer than four */
            rows[n] = q + at * q_row;
            masks[n] = mask ? mask + at * mask_row : 0;
        }
        for (long j = 0; j < filled; j += 16) {
            __m512 s0 = _mm512_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
            for (long d = 0; d < depth; d++) {
                __m512 key = _mm512_loadu_ps(turned + d * filled + j);
                s0 = _mm512_fmadd_ps(_mm512_set1_ps(rows[0][d]), key, s0);
                s1 = _mm512_fmadd_ps(_mm512_set1_ps(rows[1][d]), key, s1);
                s2 = _mm512_fmadd_ps(_mm512_set1_ps(rows[2][d]), key, s2);
                s3 = _mm512_fmadd_ps(_mm512_set1_ps(rows[3][d]), key, s3);
            }
            _mm512_storeu_ps(scores + j, s0);
            _mm512_storeu_ps(scores + filled + j, s1);
            _mm512_storeu_ps(scores + 2 * filled + j, s2);
            _mm512_storeu_ps(scores + 3 * filled + j, s3);
        }
        float totals[4];
        soften(scores, keys, filled, masks, totals);
        long here = queries - i < 4 ? queries - i : 4;
        for (long d = 0; d < depth; d += 16) {
            __m512 sums[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
            for (long j = 0; j < keys; j++) {
                __m512 value = _mm512_loadu_ps(v + j * v_row + d);
                for (int n = 0; n < 4; n++)
                    sums[n] = _mm512_fmadd_ps(_mm512_set1_ps(scores[n * filled + j]), value, sums[n]);
            }
            for (long n = 0; n < here; n++)
                _mm512_storeu_ps(y + (i + n) * y_row + d, _mm512_mul_ps(sums[n], _mm512_set1_ps(1.0f / totals[n])));
        }
    }
}

/* Rows of bfloat16 as fp32, and back, rounded to the nearest; depth is a multiple of 16. */
VECTOR static void widen(const uint16_t *from, long from_row, long rows, long depth, float *to) {
    for (long r = 0; r < rows; r++)
        for (long d = 0; d < depth; d += 16) {
            __m256i narrow = _mm256_loadu_si256((const __m256i *)(from + r * from_row + d));
            _mm512_storeu_si512(to + r * depth + d, _mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
        }
}

VECTOR static void narrow(const float *from, long rows, long depth, uint16_t *to, long to_row) {
    for (long r = 0; r < rows; r++)
        for (long d = 0; d < depth; d += 16) {
            __m512i wide = _mm512_loadu_si512(from + r * depth + d);
            __m512i even = _mm512_and_si512(_mm512_srli_epi32(wide, 16), _mm512_set1_epi32(1));
            wide = _mm512_add_epi32(wide, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
            __m256i cut = _mm512_cvtepi32_epi16(_mm512_srli_epi32(wide, 16));
            _mm256_storeu_si256((__m256i *)(to + r * to_row + d), cut);
        }
}

/* All heads of `items` items. `shape`: heads, queries, keys, depth. `strides`: of item, head and row for q, k, v and mask,
   the mask's may be 0; y [items, queries, heads, depth] is contiguous. With `half` q, k, v and y are bfloat16, the mask and
   all that is computed fp32. Returns 0, or 1 where memory is short. */
VECTOR int frozen_attention(const void *q, const void *k, const void *v, const float *mask, void *y, long items,
                            const long *shape, const long *strides, float scale, int half) {
    long heads = shape[0], queries = shape[1], keys = shape[2], depth = shape[3], filled = (keys + 15) / 16 * 16;
    const long *to_q = strides, *to_k = strides + 3, *to_v = strides + 6, *to_mask = strides + 9;
    long room = (depth + 4) * filled + (half ? (2 * queries + 2 * keys) * depth : 0);
    float *turned = aligned_alloc(64, (room + 15) / 16 * 16 * sizeof(float));
    if (!turned) return 1;
    float *scores = turned + depth * filled, *wide_q = scores + 4 * filled, *wide_k = wide_q + queries * depth;
    float *wide_v = wide_k + keys * depth, *wide_y = wide_v + keys * depth;
    for (long b = 0; b < items; b++)
        for (long h = 0; h < heads; h++) {
            long at_q = b * to_q[0] + h * to_q[1], at_k = b * to_k[0] + h * to_k[1], at_v = b * to_v[0] + h * to_v[1];
            long at_y = (b * queries * heads + h) * depth;
            const float *own = mask ? mask + b * to_mask[0] + h * to_mask[1] : 0;
            if (half) {
                widen((const uint16_t *)q + at_q, to_q[2], queries, depth, wide_q);
                widen((const uint16_t *)k + at_k, to_k[2], keys, depth, wide_k);
                widen((const uint16_t *)v + at_v, to_v[2], keys, depth, wide_v);
                attend(wide_q, depth, wide_k, depth, wide_v, depth, own, to_mask[2], wide_y, depth, queries, keys, depth, scale,
                       turned, scores);
                narrow(wide_y, queries, depth, (uint16_t *)y + at_y, heads * depth);
            } else
                attend((const float *)q + at_q, to_q[2], (const float *)k + at_k, to_k[2], (const float *)v + at_v, to_v[2], own,
                       to_mask[2], (float *)y + at_y, heads * depth, queries, keys, depth, scale, turned, scores);
        }
    free(turned);
    return 0;
}

#else

int frozen_ready(void) { return 1; }

#endif
