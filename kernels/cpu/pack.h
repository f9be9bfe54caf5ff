/* pack.h: panels for the register tiles of micro.h, and tiles that do not fit C.
 *
 * A panel holds `w` rows (of A) or columns (of B) side by side for each k: dst[k * w + i]. Its
 * source has either the same order with a larger stride (mg_pack_rows) or the k of one row side by
 * side (mg_pack_turn, a transposition in 4 x 4 blocks). Conversion to the arithmetic type happens
 * here:
 *
 *   mg_pack_rows_S_T(dst, w, src, ld, n, k)   dst[kk * w + i] = src[kk * ld + i]
 *   mg_pack_turn_S_T(dst, w, src, ld, n, k)   dst[kk * w + i] = src[i * ld + kk]
 *   mg_tile_in_S_T, mg_tile_out_S_T           a tile of C: from and to storage, `cols` of NR
 * columns
 *
 * for i < n; i in [n, w) gives zeros. S -> T: float, bf16 -> float and double -> double.
 */
#ifndef MG_PACK_H
#define MG_PACK_H

#include <stdint.h>
#include <string.h>

#include "mgk.h"
#include "micro.h"

typedef uint16_t bf16;

#define MG_UNUSED __attribute__((unused))

static inline MG_UNUSED float mg_get_float_float(float x)
{
    return x;
}
static inline MG_UNUSED double mg_get_double_double(double x)
{
    return x;
}
static inline MG_UNUSED float mg_get_bf16_float(bf16 x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline MG_UNUSED float mg_put_float_float(float x)
{
    return x;
}
static inline MG_UNUSED double mg_put_double_double(double x)
{
    return x;
}
/* Nearest, ties to even; NaN stays NaN. */
static inline MG_UNUSED bf16 mg_put_bf16_float(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    if (x != x)
        return (bf16)((u | 0x400000u) >> 16);
    return (bf16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

typedef float mg_f4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t mg_i4 __attribute__((vector_size(16)));
#ifdef __clang__
#define MG_SHUF(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define MG_SHUF(a, b, i, j, k, l) __builtin_shuffle(a, b, (mg_i4){i, j, k, l})
#endif

/* 4 rows of 4 floats at distance ld to 4 columns at distance w. */
static inline MG_UNUSED void mg_turn4_float_float(float *dst, int64_t w, const float *src,
                                                  int64_t ld)
{
    mg_f4 r0 = *(const mg_f4 *)src, r1 = *(const mg_f4 *)(src + ld);
    mg_f4 r2 = *(const mg_f4 *)(src + 2 * ld), r3 = *(const mg_f4 *)(src + 3 * ld);
    mg_f4 a = MG_SHUF(r0, r1, 0, 4, 1, 5), b = MG_SHUF(r2, r3, 0, 4, 1, 5);
    mg_f4 c = MG_SHUF(r0, r1, 2, 6, 3, 7), d = MG_SHUF(r2, r3, 2, 6, 3, 7);
    *(mg_f4 *)dst = MG_SHUF(a, b, 0, 1, 4, 5);
    *(mg_f4 *)(dst + w) = MG_SHUF(a, b, 2, 3, 6, 7);
    *(mg_f4 *)(dst + 2 * w) = MG_SHUF(c, d, 0, 1, 4, 5);
    *(mg_f4 *)(dst + 3 * w) = MG_SHUF(c, d, 2, 3, 6, 7);
}

#define MG_TURN4(S, T)                                                                             \
    static inline MG_UNUSED void mg_turn4_##S##_##T(T *dst, int64_t w, const S *src, int64_t ld)   \
    {                                                                                              \
        for (int i = 0; i < 4; i++) {                                                              \
            for (int k = 0; k < 4; k++)                                                            \
                dst[k * w + i] = mg_get_##S##_##T(src[i * ld + k]);                                \
        }                                                                                          \
    }
MG_TURN4(double, double)
MG_TURN4(bf16, float)

/* n elements in vectors, the last of which overlaps the one before; WIDE and FEW lanes. */
#define MG_COPY(S, T, WIDE, FEW)                                                                   \
    static inline MG_UNUSED void mg_copy_##S##_##T(T *dst, const S *src, int64_t n)                \
    {                                                                                              \
        if (n >= WIDE) {                                                                           \
            for (int64_t i = 0; i < n - WIDE; i += WIDE)                                           \
                mg_move##WIDE##_##S##_##T(dst + i, src + i);                                       \
            mg_move##WIDE##_##S##_##T(dst + n - WIDE, src + n - WIDE);                             \
        } else if (n >= FEW) {                                                                     \
            for (int64_t i = 0; i < n - FEW; i += FEW)                                             \
                mg_move##FEW##_##S##_##T(dst + i, src + i);                                        \
            mg_move##FEW##_##S##_##T(dst + n - FEW, src + n - FEW);                                \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                        \
                dst[i] = mg_get_##S##_##T(src[i]);                                                 \
        }                                                                                          \
    }
static inline MG_UNUSED void mg_move16_float_float(float *dst, const float *src)
{
    f32_st(dst, f32_ld(src));
}
static inline MG_UNUSED void mg_move4_float_float(float *dst, const float *src)
{
    *(mg_f4 *)dst = *(const mg_f4 *)src;
}
static inline MG_UNUSED void mg_move8_double_double(double *dst, const double *src)
{
    f64_st(dst, f64_ld(src));
}
static inline MG_UNUSED void mg_move2_double_double(double *dst, const double *src)
{
    memcpy(dst, src, 16);
}
static inline MG_UNUSED void mg_move16_bf16_float(float *dst, const bf16 *src)
{
    f32_st(dst, f32_ld_bf16(src));
}
static inline MG_UNUSED void mg_move4_bf16_float(float *dst, const bf16 *src)
{
    for (int i = 0; i < 4; i++)
        dst[i] = mg_get_bf16_float(src[i]);
}
MG_COPY(float, float, 16, 4)
MG_COPY(double, double, 8, 2)
MG_COPY(bf16, float, 16, 4)

/* The last block of four rows overlaps the one before instead of a scalar remainder. */
#define MG_PACK(S, T)                                                                              \
    static MG_UNUSED void mg_pack_rows_##S##_##T(T *dst, int64_t w, const S *src, int64_t ld,      \
                                                 int64_t n, int64_t k)                             \
    {                                                                                              \
        for (int64_t kk = 0; kk < k; kk++, dst += w, src += ld) {                                  \
            mg_copy_##S##_##T(dst, src, n);                                                        \
            for (int64_t i = n; i < w; i++)                                                        \
                dst[i] = 0;                                                                        \
        }                                                                                          \
    }                                                                                              \
    static MG_UNUSED void mg_pack_turn_##S##_##T(T *dst, int64_t w, const S *src, int64_t ld,      \
                                                 int64_t n, int64_t k)                             \
    {                                                                                              \
        int64_t k4 = n < 4 ? 0 : k & ~(int64_t)3;                                                  \
        for (int64_t at = 0; at < n && k4 > 0; at += 4) {                                          \
            int64_t i = at + 4 <= n ? at : n - 4;                                                  \
            for (int64_t kk = 0; kk < k4; kk += 4)                                                 \
                mg_turn4_##S##_##T(dst + kk * w + i, w, src + i * ld + kk, ld);                    \
        }                                                                                          \
        for (int64_t kk = k4; kk < k; kk++) {                                                      \
            for (int64_t i = 0; i < n; i++)                                                        \
                dst[kk * w + i] = mg_get_##S##_##T(src[i * ld + kk]);                              \
        }                                                                                          \
        for (int64_t kk = 0; kk < k && n < w; kk++)                                                \
            memset(dst + kk * w + n, 0, (size_t)(w - n) * sizeof(T));                              \
    }                                                                                              \
    static MG_UNUSED void mg_tile_in_##S##_##T(T *tile, const S *c, int64_t ld, int64_t rows,      \
                                               int64_t cols)                                       \
    {                                                                                              \
        for (int64_t i = 0; i < rows; i++) {                                                       \
            for (int64_t j = 0; j < MG_NR_##T; j++)                                                \
                tile[i * MG_NR_##T + j] = j < cols ? mg_get_##S##_##T(c[i * ld + j]) : 0;          \
        }                                                                                          \
    }                                                                                              \
    static MG_UNUSED void mg_tile_out_##S##_##T(const T *tile, S *c, int64_t ld, int64_t rows,     \
                                                int64_t cols)                                      \
    {                                                                                              \
        for (int64_t i = 0; i < rows; i++) {                                                       \
            for (int64_t j = 0; j < cols; j++)                                                     \
                c[i * ld + j] = mg_put_##S##_##T(tile[i * MG_NR_##T + j]);                         \
        }                                                                                          \
    }
MG_PACK(float, float)
MG_PACK(double, double)
MG_PACK(bf16, float)

/* Names from macro arguments: MG_FN(mg_pack_rows, TA_, TM). */
#define MG_FN3(f, S, T) f##_##S##_##T
#define MG_FN(f, S, T)  MG_FN3(f, S, T)
#define MG_CAT2(a, b)   a##b
#define MG_CAT(a, b)    MG_CAT2(a, b)
#define MG_LEAST(a, b)  ((a) < (b) ? (a) : (b))
#define MG_MOST(a, b)   ((a) > (b) ? (a) : (b))
#define MG_UP(a, b)     (((a) + (b)-1) / (b))

#endif
