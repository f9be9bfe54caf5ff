/*@kernel
name  = "move",
op    = "copy",
const = { TX = "ctype(in0)", TY = "ctype(out0)", WIDEN = "0", ADDS = "0", BETA = "0",
          N0 = "in0.size[in0.rank - 7] or 1", N1 = "in0.size[in0.rank - 6] or 1",
          N2 = "in0.size[in0.rank - 5] or 1", N3 = "in0.size[in0.rank - 4] or 1",
          N4 = "in0.size[in0.rank - 3] or 1", N5 = "in0.size[in0.rank - 2] or 1",
          N6 = "in0.size[in0.rank - 1] or 1", N7 = "in0.size[in0.rank] or 1",
          X0 = "in0.stride[in0.rank - 7] or 0", X1 = "in0.stride[in0.rank - 6] or 0",
          X2 = "in0.stride[in0.rank - 5] or 0", X3 = "in0.stride[in0.rank - 4] or 0",
          X4 = "in0.stride[in0.rank - 3] or 0", X5 = "in0.stride[in0.rank - 2] or 0",
          X6 = "in0.stride[in0.rank - 1] or 0", X7 = "in0.stride[in0.rank] or 0",
          Y0 = "out0.stride[in0.rank - 7] or 0", Y1 = "out0.stride[in0.rank - 6] or 0",
          Y2 = "out0.stride[in0.rank - 5] or 0", Y3 = "out0.stride[in0.rank - 4] or 0",
          Y4 = "out0.stride[in0.rank - 3] or 0", Y5 = "out0.stride[in0.rank - 2] or 0",
          Y6 = "out0.stride[in0.rank - 1] or 0", Y7 = "out0.stride[in0.rank] or 0" },
@*/
/*@kernel
name  = "move",
op    = "write",
when  = "in0.dtype == var.dtype",
const = { TX = "ctype(in0)", TY = "ctype(var)", WIDEN = "0", ADDS = "0", BETA = "0",
          N0 = "1", N1 = "1", N2 = "1", N3 = "1", N4 = "1", N5 = "1", N6 = "1", N7 = "elems(in0)",
          X0 = "0", X1 = "0", X2 = "0", X3 = "0", X4 = "0", X5 = "0", X6 = "0", X7 = "1",
          Y0 = "0", Y1 = "0", Y2 = "0", Y3 = "0", Y4 = "0", Y5 = "0", Y6 = "0", Y7 = "1" },
@*/
/*@kernel
name  = "move",
op    = "accum",
when  = "in0.dtype == var.dtype or in0.dtype == 'bf16' and var.dtype == 'f32'",
const = { TX = "ctype(in0)", TY = "ctype(var)",
          WIDEN = "in0.dtype == 'bf16' and var.dtype == 'f32'",
          ADDS = "1", BETA = "1",
          N0 = "in0.size[in0.rank - 7] or 1", N1 = "in0.size[in0.rank - 6] or 1",
          N2 = "in0.size[in0.rank - 5] or 1", N3 = "in0.size[in0.rank - 4] or 1",
          N4 = "in0.size[in0.rank - 3] or 1", N5 = "in0.size[in0.rank - 2] or 1",
          N6 = "in0.size[in0.rank - 1] or 1", N7 = "in0.size[in0.rank] or 1",
          X0 = "in0.stride[in0.rank - 7] or 0", X1 = "in0.stride[in0.rank - 6] or 0",
          X2 = "in0.stride[in0.rank - 5] or 0", X3 = "in0.stride[in0.rank - 4] or 0",
          X4 = "in0.stride[in0.rank - 3] or 0", X5 = "in0.stride[in0.rank - 2] or 0",
          X6 = "in0.stride[in0.rank - 1] or 0", X7 = "in0.stride[in0.rank] or 0",
          Y0 = "dense(in0, 0)", Y1 = "dense(in0, 1)", Y2 = "dense(in0, 2)", Y3 = "dense(in0, 3)",
          Y4 = "dense(in0, 4)", Y5 = "dense(in0, 5)", Y6 = "dense(in0, 6)", Y7 = "1" },
@*/
/* move.h: an array into another place: a copy where no window is possible, a variable written or
 * added to by a value whose producer could not do it itself.
 *
 *     void NAME(mg_ctx *c, TY *y, const TX *x)               copy, write: y = x
 *     void NAME(mg_ctx *c, TY *y, const TX *x, int beta)     accum: y = beta ? y + x : x
 *
 * Up to eight dims, N0 the outermost, with strides X0.. and Y0.. in elements. WIDEN: x holds bf16
 * bits. The rows (all dims but the last) are cut into at most 32 parts.
 */
#include <stdint.h>
typedef uint16_t bf16; /* as in pack.h */
#include <string.h>

#include "mg.h"

#ifndef move
#define move  move_default
#define TX    float
#define TY    float
#define WIDEN 0
#define ADDS  0
#define BETA  0
#define N0    1
#define N1    1
#define N2    1
#define N3    1
#define N4    1
#define N5    1
#define N6    3
#define N7    5
#define X0    0
#define X1    0
#define X2    0
#define X3    0
#define X4    0
#define X5    0
#define X6    1
#define X7    3
#define Y0    0
#define Y1    0
#define Y2    0
#define Y3    0
#define Y4    0
#define Y5    0
#define Y6    5
#define Y7    1
#endif

#ifndef MG_MOVE_SHARED
#define MG_MOVE_SHARED
#define MG_MOVE_GLUE2(a, b) a##b
#define MG_MOVE_GLUE(a, b)  MG_MOVE_GLUE2(a, b)
typedef struct {
    void *y;
    const void *x;
    int beta;
} mg_move;

__attribute__((unused)) static inline float mg_move_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof f);
    return f;
}
#endif

#define ROWS  ((int64_t)N0 * N1 * N2 * N3 * N4 * N5 * N6)
#define PARTS (ROWS < 32 ? ROWS : 32)
/* Row r's first element: its digits in base N6, N5, ... times the strides. */
#define AT_ROW(r, S0, S1, S2, S3, S4, S5, S6)                                                      \
    ((r) % N6 * S6 + (r) / N6 % N5 * S5 + (r) / N6 / N5 % N4 * S4 + (r) / N6 / N5 / N4 % N3 * S3 + \
     (r) / N6 / N5 / N4 / N3 % N2 * S2 + (r) / N6 / N5 / N4 / N3 / N2 % N1 * S1 +                  \
     (r) / N6 / N5 / N4 / N3 / N2 / N1 * S0)
#if WIDEN
#define LOAD(v) mg_move_bf16(v)
#else
#define LOAD(v) (v)
#endif

static void MG_MOVE_GLUE(move, _part)(void *arg, int part)
{
    const mg_move *m = arg;
    int64_t end = (part + 1) * ROWS / PARTS;
    for (int64_t r = part * ROWS / PARTS; r < end; r++) {
        const TX *x = (const TX *)m->x + AT_ROW(r, X0, X1, X2, X3, X4, X5, X6);
        TY *y = (TY *)m->y + AT_ROW(r, Y0, Y1, Y2, Y3, Y4, Y5, Y6);
        for (int64_t i = 0; i < N7; i++) {
            if (ADDS && m->beta)
                y[i * Y7] += LOAD(x[i * X7]);
            else
                y[i * Y7] = LOAD(x[i * X7]);
        }
    }
}

#if BETA
MG_KERNEL void move(mg_ctx *c, TY *y, const TX *x, int beta)
{
    mg_move m = {y, x, beta};
#else
MG_KERNEL void move(mg_ctx *c, TY *y, const TX *x)
{
    mg_move m = {y, x, 0};
#endif
    mg_par(c, (int)PARTS, MG_MOVE_GLUE(move, _part), &m);
}

#undef move
#undef TX
#undef TY
#undef WIDEN
#undef ADDS
#undef BETA
#undef N0
#undef N1
#undef N2
#undef N3
#undef N4
#undef N5
#undef N6
#undef N7
#undef X0
#undef X1
#undef X2
#undef X3
#undef X4
#undef X5
#undef X6
#undef X7
#undef Y0
#undef Y1
#undef Y2
#undef Y3
#undef Y4
#undef Y5
#undef Y6
#undef Y7
#undef ROWS
#undef PARTS
#undef AT_ROW
#undef LOAD
