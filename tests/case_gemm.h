/* One case of unit_kernels.c and bench/kernels.c: an instance of gemm.h, and a descriptor of it.
 * CASE is (name, M, N, K, TA, TB, pad, A type, B type, C type, arithmetic type). */
#define CASE_1(a, b, c, d, e, f, g, h, i, j, k)  a
#define CASE_2(a, b, c, d, e, f, g, h, i, j, k)  b
#define CASE_3(a, b, c, d, e, f, g, h, i, j, k)  c
#define CASE_4(a, b, c, d, e, f, g, h, i, j, k)  d
#define CASE_5(a, b, c, d, e, f, g, h, i, j, k)  e
#define CASE_6(a, b, c, d, e, f, g, h, i, j, k)  f
#define CASE_7(a, b, c, d, e, f, g, h, i, j, k)  g
#define CASE_8(a, b, c, d, e, f, g, h, i, j, k)  h
#define CASE_9(a, b, c, d, e, f, g, h, i, j, k)  i
#define CASE_10(a, b, c, d, e, f, g, h, i, j, k) j
#define CASE_11(a, b, c, d, e, f, g, h, i, j, k) k
#define CASE_OF3(f, list)                        f list
#define CASE_OF2(f, list)                        CASE_OF3(f, list)
#define CASE_OF(n)                               CASE_OF2(CASE_##n, CASE)
#define matmul                                   CASE_OF(1)
#define M                                        CASE_OF(2)
#define N                                        CASE_OF(3)
#define K                                        CASE_OF(4)
#define TA                                       CASE_OF(5)
#define TB                                       CASE_OF(6)
#define LDA                                      ((TA ? M : K) + CASE_OF(7))
#define LDB                                      ((TB ? K : N) + CASE_OF(7))
#define LDC                                      (N + CASE_OF(7))
#define TA_                                      CASE_OF(8)
#define TB_                                      CASE_OF(9)
#define TC                                       CASE_OF(10)
#define TM                                       CASE_OF(11)
#define ACCUM                                    1
static const gemm_case MG_CAT(CASE_OF(1), _case);
static void MG_CAT(CASE_OF(1), _call)(mg_ctx *c, void *y, const void *a, const void *b, int beta);
enum {
    MG_CAT(CASE_OF(1), _lda) = LDA,
    MG_CAT(CASE_OF(1), _ldb) = LDB,
    MG_CAT(CASE_OF(1), _ldc) = LDC
};
#include "gemm.h"
static void MG_CAT(CASE_OF(1), _call)(mg_ctx *c, void *y, const void *a, const void *b, int beta)
{
    CASE_OF(1)(c, y, a, b, beta);
}
static const gemm_case MG_CAT(CASE_OF(1), _case) = {
    .call = MG_CAT(CASE_OF(1), _call),
    .m = CASE_OF(2),
    .n = CASE_OF(3),
    .k = CASE_OF(4),
    .ta = CASE_OF(5),
    .tb = CASE_OF(6),
    .lda = MG_CAT(CASE_OF(1), _lda),
    .ldb = MG_CAT(CASE_OF(1), _ldb),
    .ldc = MG_CAT(CASE_OF(1), _ldc),
    .ea = sizeof(CASE_OF(8)),
    .eb = sizeof(CASE_OF(9)),
    .ec = sizeof(CASE_OF(10)),
    .em = sizeof(CASE_OF(11)),
};
#undef CASE
