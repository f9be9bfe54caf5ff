/* micro.h: the register tiles under matmul and attention.
 *
 * A tile call computes C[R][NR] = or += A[R][k] B[k][NR] with R <= MR rows and exactly NR columns,
 * all of C in registers, one fma an element and step of k in ascending order; so an element's bits
 * depend on k, A and B only, never on the tile it falls in. The functions are compiled once per
 * feature level into the runtime archive (micro.c, contraction on), so that generated code needs no
 * flags for them.
 *
 *          k ->                 NR = 2 vectors
 *     +-----------+   +----------+        +-----------+
 *   R | a  rows   | x | b        | k  =>  | c[R][NR]  |   R * 2 accumulators, 2 vectors of b,
 *     +-----------+   +----------+        +-----------+   1 broadcast of a
 *
 * Two forms by the layout of A: `col` has the rows of one k side by side (packed panels, transposed
 * operands), `row` has the k of one row side by side. Strides count elements. B and C need no
 * alignment.
 *
 * Defines, for the level of MG_CPU_AVX512, MG_CPU_AVX2 or MG_CPU_GENERIC (none of them: what the
 * compiler may use): MG_MR                          rows of the largest tile MG_NR_float,
 * MG_NR_double      columns mg_mm_col_float[R - 1] ...     the functions
 */
#ifndef MG_MICRO_H
#define MG_MICRO_H

#include <stdint.h>

#if !defined(MG_CPU_AVX512) && !defined(MG_CPU_AVX2) && !defined(MG_CPU_GENERIC)
#if defined(__AVX512F__)
#define MG_CPU_AVX512
#elif defined(__AVX2__) && defined(__FMA__)
#define MG_CPU_AVX2
#endif
#endif

#if defined(MG_CPU_AVX512)
#define MG_LEVEL  avx512
#define MG_MR     14
#define MG_VECTOR 64
#elif defined(MG_CPU_AVX2)
#define MG_LEVEL  avx2
#define MG_MR     6
#define MG_VECTOR 32
#else
#define MG_LEVEL  generic
#define MG_MR     6
#define MG_VECTOR 16
#endif
#define MG_NR_float  (2 * MG_VECTOR / 4)
#define MG_NR_double (2 * MG_VECTOR / 8)

/* astep: distance of neighbours in k (col) or of neighbouring rows (row). add: 1 adds to C, 0
 * stores. */
typedef void mg_mm_float(int64_t k, const float *a, int64_t astep, const float *b, int64_t bstep,
                         float *c, int64_t cstep, int add);
typedef void mg_mm_double(int64_t k, const double *a, int64_t astep, const double *b, int64_t bstep,
                          double *c, int64_t cstep, int add);

#define MG_GLUE3(a, b, c) a##b##_##c
#define MG_GLUE2(a, b, c) MG_GLUE3(a, b, c)
#define MG_MM(form, T)    MG_GLUE2(mg_mm_##form##_, T, MG_LEVEL)
#define mg_mm_col_float   MG_GLUE2(mg_mm_col_, float, MG_LEVEL)
#define mg_mm_row_float   MG_GLUE2(mg_mm_row_, float, MG_LEVEL)
#define mg_mm_col_double  MG_GLUE2(mg_mm_col_, double, MG_LEVEL)
#define mg_mm_row_double  MG_GLUE2(mg_mm_row_, double, MG_LEVEL)

extern mg_mm_float *const mg_mm_col_float[MG_MR], *const mg_mm_row_float[MG_MR];
extern mg_mm_double *const mg_mm_col_double[MG_MR], *const mg_mm_row_double[MG_MR];

#endif
