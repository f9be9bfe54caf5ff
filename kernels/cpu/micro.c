/* micro.c: the register tiles of micro.h, compiled once per feature level (MG_ISA = avx512, avx2 or
 * generic, with the flags of that level) with contraction on.
 *
 * The text is plain GNU vectors: the row count is a constant of each instance, the loops over rows
 * and vectors unroll completely, and the accumulators live in registers. Level avx512: 28 of 32
 * registers accumulate, 14 broadcasts and 2 loads feed 28 fma a step. Levels avx2 and generic: 12
 * of 16.
 */
#define MG_IS_avx512  2
#define MG_IS_avx2    1
#define MG_IS_generic 0
#define MG_IS1(x)     MG_IS_##x
#define MG_IS(x)      MG_IS1(x)
#ifndef MG_ISA
#define MG_ISA generic
#endif
#if MG_IS(MG_ISA) == 2
#define MG_CPU_AVX512
#elif MG_IS(MG_ISA) == 1
#define MG_CPU_AVX2
#else
#define MG_CPU_GENERIC
#endif
#include "micro.h"

#if defined(__GNUC__) && !defined(__clang__)
#define UNROLL _Pragma("GCC unroll 14")
#define ROLLED
#define WIDE
#else
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
/* clang would split 64-byte vectors for processors of the Skylake server line. */
#define WIDE   __attribute__((min_vector_width(8 * MG_VECTOR)))
#endif
/* Keeps the compiler from holding the addresses of C from the prefetch to the store, in spilled
 * registers. */
#define FORGET(x) __asm__("" : "+r"(x))
#define INLINE    static inline __attribute__((always_inline))

typedef float v_float __attribute__((vector_size(MG_VECTOR)));
typedef double v_double __attribute__((vector_size(MG_VECTOR)));
typedef float u_float __attribute__((vector_size(MG_VECTOR), aligned(4), may_alias));
typedef double u_double __attribute__((vector_size(MG_VECTOR), aligned(8), may_alias));

/* Tile of R rows. p[] are bases of groups of five rows for the form `row`: with the byte strides L
 * and 3L in registers, rows 0..4 of a group are p, p + L, p + 2L, p + 3L, p + 4L, all addressing
 * modes of x86. */
#define TILE(T)                                                                                    \
    INLINE void store_##T(int rows, v_##T acc[][2], T *c, int64_t cstep, int add)                  \
    {                                                                                              \
        const int lanes = MG_VECTOR / (int)sizeof(T);                                              \
        if (add) {                                                                                 \
            UNROLL for (int i = 0; i < rows; i++)                                                  \
            {                                                                                      \
                *(u_##T *)(c + i * cstep) += acc[i][0];                                            \
                *(u_##T *)(c + i * cstep + lanes) += acc[i][1];                                    \
            }                                                                                      \
        } else {                                                                                   \
            UNROLL for (int i = 0; i < rows; i++)                                                  \
            {                                                                                      \
                *(u_##T *)(c + i * cstep) = acc[i][0];                                             \
                *(u_##T *)(c + i * cstep + lanes) = acc[i][1];                                     \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    INLINE void fetch_##T(int rows, const T *c, int64_t cstep)                                     \
    {                                                                                              \
        UNROLL for (int i = 0; i < rows; i++)                                                      \
        {                                                                                          \
            __builtin_prefetch(c + i * cstep, 1);                                                  \
            __builtin_prefetch(c + i * cstep + 64 / sizeof(T), 1);                                 \
        }                                                                                          \
    }                                                                                              \
    INLINE void col_##T(int rows, int64_t k, const T *a, int64_t astep, const T *b, int64_t bstep, \
                        T *c, int64_t cstep, int add)                                              \
    {                                                                                              \
        v_##T acc[MG_MR][2] = {0};                                                                 \
        fetch_##T(rows, c, cstep);                                                                 \
        FORGET(cstep);                                                                             \
        ROLLED for (; k > 0; k--, a += astep, b += bstep)                                          \
        {                                                                                          \
            v_##T b0 = *(const u_##T *)b, b1 = *(const u_##T *)(b + MG_VECTOR / sizeof(T));        \
            UNROLL for (int i = 0; i < rows; i++)                                                  \
            {                                                                                      \
                acc[i][0] += a[i] * b0;                                                            \
                acc[i][1] += a[i] * b1;                                                            \
            }                                                                                      \
        }                                                                                          \
        store_##T(rows, acc, c, cstep, add);                                                       \
    }                                                                                              \
    INLINE void row_##T(int rows, int64_t k, const T *a, int64_t astep, const T *b, int64_t bstep, \
                        T *c, int64_t cstep, int add)                                              \
    {                                                                                              \
        v_##T acc[MG_MR][2] = {0};                                                                 \
        const char *p[3] = {(const char *)a, (const char *)(a + 5 * astep),                        \
                            (const char *)(a + 10 * astep)};                                       \
        int64_t l = astep * (int64_t)sizeof(T), l3 = 3 * l;                                        \
        fetch_##T(rows, c, cstep);                                                                 \
        FORGET(cstep);                                                                             \
        ROLLED for (; k > 0; k--, b += bstep)                                                      \
        {                                                                                          \
            v_##T b0 = *(const u_##T *)b, b1 = *(const u_##T *)(b + MG_VECTOR / sizeof(T));        \
            UNROLL for (int i = 0; i < rows; i++)                                                  \
            {                                                                                      \
                int64_t off = i % 5 == 3 ? l3 : i % 5 * l;                                         \
                T x = *(const T *)(p[i / 5] + off);                                                \
                acc[i][0] += x * b0;                                                               \
                acc[i][1] += x * b1;                                                               \
            }                                                                                      \
            UNROLL for (int g = 0; g < (rows + 4) / 5; g++)                                        \
            {                                                                                      \
                p[g] += sizeof(T);                                                                 \
            }                                                                                      \
        }                                                                                          \
        store_##T(rows, acc, c, cstep, add);                                                       \
    }
TILE(float)
TILE(double)

#define MM(form, T, R)                                                                             \
    WIDE static void form##_##T##_##R(int64_t k, const T *a, int64_t astep, const T *b,            \
                                      int64_t bstep, T *c, int64_t cstep, int add)                 \
    {                                                                                              \
        form##_##T(R, k, a, astep, b, bstep, c, cstep, add);                                       \
    }
#define NAME(form, T, R) form##_##T##_##R,
#define ROWS6(DO, form, T)                                                                         \
    DO(form, T, 1) DO(form, T, 2) DO(form, T, 3) DO(form, T, 4) DO(form, T, 5) DO(form, T, 6)
#if MG_MR == 14
#define ROWS(DO, form, T)                                                                          \
    ROWS6(DO, form, T)                                                                             \
    DO(form, T, 7)                                                                                 \
    DO(form, T, 8)                                                                                 \
    DO(form, T, 9)                                                                                 \
    DO(form, T, 10) DO(form, T, 11) DO(form, T, 12) DO(form, T, 13) DO(form, T, 14)
#else
#define ROWS ROWS6
#endif
ROWS(MM, col, float)
ROWS(MM, row, float)
ROWS(MM, col, double)
ROWS(MM, row, double)

mg_mm_float *const mg_mm_col_float[MG_MR] = {ROWS(NAME, col, float)};
mg_mm_float *const mg_mm_row_float[MG_MR] = {ROWS(NAME, row, float)};
mg_mm_double *const mg_mm_col_double[MG_MR] = {ROWS(NAME, col, double)};
mg_mm_double *const mg_mm_row_double[MG_MR] = {ROWS(NAME, row, double)};
