/* One case of unit_kernels.c and bench/kernels.c: forward and backward instances of attn.h on a
 * packed qkv [B S G R+2 E], and a descriptor. ATTN is (name, B, S, G, R, E, window, softcap,
 * causal, lo, T, TM). */
#define ATTN_1(a, b, c, d, e, f, g, h, i, j, k, l)  a
#define ATTN_2(a, b, c, d, e, f, g, h, i, j, k, l)  b
#define ATTN_3(a, b, c, d, e, f, g, h, i, j, k, l)  c
#define ATTN_4(a, b, c, d, e, f, g, h, i, j, k, l)  d
#define ATTN_5(a, b, c, d, e, f, g, h, i, j, k, l)  e
#define ATTN_6(a, b, c, d, e, f, g, h, i, j, k, l)  f
#define ATTN_7(a, b, c, d, e, f, g, h, i, j, k, l)  g
#define ATTN_8(a, b, c, d, e, f, g, h, i, j, k, l)  h
#define ATTN_9(a, b, c, d, e, f, g, h, i, j, k, l)  i
#define ATTN_10(a, b, c, d, e, f, g, h, i, j, k, l) j
#define ATTN_11(a, b, c, d, e, f, g, h, i, j, k, l) k
#define ATTN_12(a, b, c, d, e, f, g, h, i, j, k, l) l
#define ATTN_OF3(f, list)                           f list
#define ATTN_OF2(f, list)                           ATTN_OF3(f, list)
#define ATTN_OF(n)                                  ATTN_OF2(ATTN_##n, ATTN)
#define ATTN_NAME(x)                                MG_CAT(ATTN_OF(1), x)
#define attention                                   ATTN_NAME(_fwd)
#include "case_attn_const.h"
#include "attn.h"
#define attention_bwd ATTN_NAME(_bwd)
#include "case_attn_const.h"
#include "attn.h"
static void ATTN_NAME(_run_fwd)(mg_ctx *c, void *o, void *lse, const void *qkv, const int32_t *lo)
{
    const ATTN_OF(11) *q = qkv;
    enum { R = ATTN_OF(5), E = ATTN_OF(6) };
#if ATTN_OF(10)
    ATTN_NAME(_fwd)(c, o, lse, q, q + R * E, q + (R + 1) * E, lo);
#else
    (void)lo;
    ATTN_NAME(_fwd)(c, o, lse, q, q + R * E, q + (R + 1) * E);
#endif
}
static void ATTN_NAME(_run_bwd)(mg_ctx *c, void *dqkv, const void *qkv, const void *o,
                                const void *lse, const void *dy, const int32_t *lo)
{
    const ATTN_OF(11) *q = qkv;
    ATTN_OF(11) *d = dqkv;
    enum { R = ATTN_OF(5), E = ATTN_OF(6) };
#if ATTN_OF(10)
    ATTN_NAME(_bwd)
    (c, d, d + R * E, d + (R + 1) * E, q, q + R * E, q + (R + 1) * E, o, lse, dy, lo);
#else
    (void)lo;
    ATTN_NAME(_bwd)(c, d, d + R * E, d + (R + 1) * E, q, q + R * E, q + (R + 1) * E, o, lse, dy);
#endif
}
static const attn_case ATTN_NAME(_case) = {
    .fwd = ATTN_NAME(_run_fwd),
    .bwd = ATTN_NAME(_run_bwd),
    .b = ATTN_OF(2),
    .s = ATTN_OF(3),
    .g = ATTN_OF(4),
    .r = ATTN_OF(5),
    .e = ATTN_OF(6),
    .window = ATTN_OF(7),
    .softcap = ATTN_OF(8),
    .causal = ATTN_OF(9),
    .lo = ATTN_OF(10),
    .et = sizeof(ATTN_OF(11)),
    .em = sizeof(ATTN_OF(12)),
};
#undef ATTN
