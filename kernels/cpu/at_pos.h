/*@kernel
name  = "at_pos",
op    = "at_pos",
when  = "x.dense",
const = { T = "ctype(x)", B = "size.b", S = "size.s", D = "elems(y) // size.b" },
@*/
/* at_pos.h: of each of the B sequences the row at the run-time position: y[B D] = x[B, pos, D].
 *
 *     void NAME(mg_ctx *c, T *y, const T *x)
 *
 * c->scalar.pos lies in 0 .. S - 1; what is outside is moved to the nearer end.
 */
#include <stdint.h>
#include <string.h>

#include "mg.h"

typedef uint16_t bf16; /* as in pack.h */

#ifndef at_pos
#define at_pos at_pos_default
#define T      float
#define B      2
#define S      5
#define D      7
#endif

MG_KERNEL void at_pos(mg_ctx *c, T *y, const T *x)
{
    int64_t pos = c->scalar.pos < 0 ? 0 : c->scalar.pos >= S ? S - 1 : c->scalar.pos;
    for (int64_t b = 0; b < B; b++)
        memcpy(y + b * D, x + (b * S + pos) * D, sizeof(T) * D);
}

#undef at_pos
#undef T
#undef B
#undef S
#undef D
