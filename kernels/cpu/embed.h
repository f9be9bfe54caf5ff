/*@kernel
name  = "embed",
op    = "embed",
when  = "w.stride.d == 1 and y.dense and ids.dense",
const = { ROWS = "elems(ids)", D = "w.size.d", V = "w.size.v", LD = "w.stride.v", T = "ctype(w)" },
bytes = "2 * bytes(y)", flops = "0",
@*/
/*@kernel
name  = "embed_bwd",
op    = "embed_bwd",
when  = "dy.dense and dw.stride.d == 1 and ids.dense",
const = { ROWS = "elems(ids)", D = "dw.size.d", V = "dw.size.v", LD = "dw.stride.v",
          T = "ctype(dy)", TM = "ctype(dy) == 'double' and 'double' or 'float'",
          TW = "ctype(dw)", ACCUM = "accum" },
bytes = "2 * bytes(dy)", flops = "elems(dy)",
@*/
/* embed.h: rows of a table by token, and the gradient of the table.
 *
 *     void embed(mg_ctx *c, T *y, const int32_t *ids, const T *w)
 *     void embed_bwd(mg_ctx *c, TW *dw, const int32_t *ids, const T *dy [, int beta])
 *
 * ids [ROWS], w, dw [V] rows of D with row stride LD, y, dy [ROWS D]. An id outside [0, V) gives a
 * row of zeros and no gradient. dw = (beta ? dw : 0) + sum of the rows of dy by id, in ascending
 * position in TW.
 *
 * The backward cuts the table into PARTS ranges of ids. A part clears its rows unless beta, walks
 * all ids in ascending position and adds the rows of dy whose id is its own: one owner and one
 * order for each row of dw, so the bits do not depend on the workers, without atomics and without
 * sorting.
 */
#include <stdint.h>
#include <string.h>

#include "mg.h"
#include "pack.h"

#if !defined(embed) && !defined(embed_bwd)
#define embed     embed_default
#define embed_bwd embed_bwd_default
#endif
#ifndef ROWS
#define ROWS 64
#define D    24
#define V    100
#define LD   24
#define T    float
#endif
#ifndef TW
#define TW float
#define TM float
#endif
#if defined(ACCUM) && ACCUM
#define BETA_ARG , int beta
#define BETA     beta
#else
#define BETA_ARG
#define BETA 0
#endif

#ifndef MG_EMBED_SHARED
#define MG_EMBED_SHARED
typedef struct {
    const int32_t *ids;
    const void *from; /* w; dy */
    void *to;         /* y; dw */
    int beta;
} mg_embed;
#endif

#ifdef embed
#define NAME  embed
#define PARTS MG_LEAST(ROWS, 16)
static void MG_CAT(NAME, _part)(void *arg, int part)
{
    const mg_embed *a = arg;
    for (int64_t i = (int64_t)part * ROWS / PARTS, end = (part + 1LL) * ROWS / PARTS; i < end;
         i++) {
        int32_t id = a->ids[i];
        T *y = (T *)a->to + i * D;
        if (id >= 0 && id < V)
            memcpy(y, (const T *)a->from + (int64_t)id * LD, D * sizeof(T));
        else
            memset(y, 0, D * sizeof(T));
    }
}

MG_KERNEL void NAME(mg_ctx *c, T *y, const int32_t *ids, const T *w)
{
    mg_embed a = {.ids = ids, .from = w, .to = y};
    mg_par(c, PARTS, MG_CAT(NAME, _part), &a);
}
#undef NAME
#undef PARTS
#endif

#ifdef embed_bwd
#define NAME  embed_bwd
#define PARTS MG_LEAST(V, 16)
static void MG_CAT(NAME, _part)(void *arg, int part)
{
    const mg_embed *a = arg;
    int64_t from = (int64_t)part * V / PARTS, to = (part + 1LL) * V / PARTS;
    for (int64_t id = from; id < to && !a->beta; id++)
        memset((TW *)a->to + id * LD, 0, D * sizeof(TW));
    for (int64_t i = 0; i < ROWS; i++) {
        int64_t id = a->ids[i];
        if (id < from || id >= to)
            continue;
        const T *dy = (const T *)a->from + i * D;
        TW *dw = (TW *)a->to + id * LD;
        for (int64_t d = 0; d < D; d++)
            dw[d] += (TW)MG_FN(mg_get, T, TM)(dy[d]);
    }
}

MG_KERNEL void NAME(mg_ctx *c, TW *dw, const int32_t *ids, const T *dy BETA_ARG)
{
    mg_embed a = {.ids = ids, .from = dy, .to = dw, .beta = BETA};
    mg_par(c, PARTS, MG_CAT(NAME, _part), &a);
}
#undef NAME
#undef PARTS
#endif

#undef embed
#undef embed_bwd
#undef ROWS
#undef D
#undef V
#undef LD
#undef T
#undef TW
#undef TM
#undef ACCUM
#undef BETA
#undef BETA_ARG
