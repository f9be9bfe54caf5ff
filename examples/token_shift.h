/*@kernel
name  = "token_shift",
op    = "token_shift",
when  = "x.dense",
const = { T = "ctype(x)", B = "size.b", S = "size.s", D = "elems(x) // (size.b * size.s)", BACK = "0" },
@*/
/*@kernel
name  = "token_shift",
op    = "token_unshift",
when  = "x.dense",
const = { T = "ctype(x)", B = "size.b", S = "size.s", D = "elems(x) // (size.b * size.s)", BACK = "1" },
@*/
/* token_shift.h: each position gets the row of the position before it, the first one zeros; BACK: the other way round.
 *
 *     void NAME(mg_ctx *c, T *y, const T *x)          x, y: [B S D]
 */
#include <stdint.h>
#include <string.h>

#include "mg.h"

#ifndef token_shift
#define token_shift token_shift_default
#define T           float
#define B           2
#define S           5
#define D           7
#define BACK        0
#endif
#ifndef MG_KERNEL
#define MG_KERNEL
#endif

MG_KERNEL void token_shift(mg_ctx *c, T *y, const T *x)
{
    (void)c;
    for (int64_t b = 0; b < B; b++) {
        T *to = y + b * S * D;
        const T *from = x + b * S * D;
        memcpy(to + (BACK ? 0 : D), from + (BACK ? D : 0), sizeof(T) * (S - 1) * D);
        memset(to + (BACK ? (S - 1) * D : 0), 0, sizeof(T) * D);
    }
}

#undef token_shift
#undef T
#undef B
#undef S
#undef D
#undef BACK
