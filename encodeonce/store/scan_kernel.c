/* Inner products of rows of bytes with queries of two bytes a coordinate: whole numbers, so exact, at half the memory of
   bfloat16. A tile of rows is read once for all queries.

   Axes: n rows  q queries  d width, a multiple of 16. The caller sees to it that a sum fits 32 bits. */

#include <stdint.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#define STEP 16  /* coordinates at a time */
#define ROWS 2   /* rows and queries whose sums stay in registers */
#define ASKED 4
#define TILE 32  /* rows that stay in the first cache */

#ifdef __AVX2__
typedef __m256i sums;
static inline sums add(sums s, const int8_t *x, const int16_t *y) {
    __m256i row = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)x));
    return _mm256_add_epi32(s, _mm256_madd_epi16(row, _mm256_loadu_si256((const __m256i *)y)));
}
static inline int32_t sum(sums s) {
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}
#else
typedef int32_t sums;
static inline sums add(sums s, const int8_t *x, const int16_t *y) {
    for (int c = 0; c < STEP; c++) s += (int32_t)x[c] * y[c];
    return s;
}
static inline int32_t sum(sums s) { return s; }
#endif

static inline void tile(const int8_t *x, const int16_t *y, long d, int rows, int asked, int32_t out[ROWS][ASKED]) {
    sums s[ROWS][ASKED] = {0};
    for (long c = 0; c < d; c += STEP)
        for (int j = 0; j < asked; j++)
            for (int i = 0; i < rows; i++) s[i][j] = add(s[i][j], x + i * d + c, y + j * d + c);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < asked; j++) out[i][j] = sum(s[i][j]);
}

/* out[q,n] = rows . queries, in units of unit[n] and asked_unit[q]; the rows of out are `apart` numbers apart */
void scan_products(const int8_t *rows, const int16_t *queries, const float *unit, const float *asked_unit, long n, long q,
                   long d, float *out, long apart) {
    for (long first = 0; first < n; first += TILE) {
        long last = first + TILE < n ? first + TILE : n;
        for (long k = 0; k < q; k += ASKED)
            for (long r = first; r < last; r += ROWS) {
                int many = last - r < ROWS ? last - r : ROWS, asked = q - k < ASKED ? q - k : ASKED;
                const int8_t *x = rows + r * d;
                const int16_t *y = queries + k * d;
                int32_t s[ROWS][ASKED];
                /* sizes that the compiler sees keep the sums in registers */
                if (many == ROWS && asked == ASKED) tile(x, y, d, ROWS, ASKED, s);
                else if (many == ROWS && asked == 1) tile(x, y, d, ROWS, 1, s);
                else tile(x, y, d, many, asked, s);
                for (int i = 0; i < many; i++)
                    for (int j = 0; j < asked; j++)
                        out[(k + j) * apart + r + i] = (float)s[i][j] * unit[r + i] * asked_unit[k + j];
            }
    }
}
