/*@kernel
name  = "matmul",
op    = "matmul",
when  = "M and K > 0",
const = { M = "M", N = "N", K = "K", LDA = "LDA", LDB = "LDB", LDC = "LDC", TA = "TA", TB = "TB",
          TA_ = "ctype(x)", TB_ = "ctype(w)", TC = "ctype(y)",
          TM = "ctype(y) == 'double' and 'double' or 'float'", ACCUM = "accum" },
flops = "2 * M * N * K",
@*/
/* gemm.h: C[M N] (+)= op(A)[M K] op(B)[K N] of one shape.
 *
 *     void NAME(mg_ctx *c, TC *C, const TA_ *A, const TB_ *B [, void *extra] [, int beta])
 *
 * A is stored [M K] with row stride LDA, or with TA [K M]; B [K N], or with TB [N K]. Storage types
 * TA_, TB_, TC; products and sums in TM (float, or double for all-double). beta 1 adds to C.
 *
 *   cut      Rows in blocks of at most MG_MR (balanced, so no thin last block), columns in strips
 *            of NR, K in blocks of KC (balanced). A is packed once into the rank's scratch, all
 *            workers together. Then each part takes some row blocks and strips: for a block of K it
 *            packs a strip of B, which stays in L1, and runs its row blocks over it.
 *
 *                    K            N: strips
 *                 +------+     +--+--+--+
 *               M | pack |  x  |  |##|  | K, block by block
 *                 +------+     +--+--+--+
 *
 *   numerics An element is (beta ? C : 0) + block 0 + block 1 ..., a block one chain of fma in
 *            ascending k. So bits depend on K only, not on the cut, not on the workers, and AVX2
 *            gives those of AVX-512. Types narrower than TM are rounded once.
 *
 * EPILOGUE(ptr, row0, rows, col0, cols), if defined, is a statement that runs once on each finished
 * tile of C while it is in L1; ptr is a TC * to element (row0, col0), row stride LDC. With
 * EPILOGUE_EXTRA the kernel takes one more argument, `void *extra`, and the statement sees it under
 * that name. ACCUM 1: the kernel takes `int beta`. Like every constant these are undefined at the
 * end of the file.
 */
#include <stdint.h>

#include "mg.h"
#include "pack.h"

#ifndef matmul
#define matmul matmul_default
#endif
#ifndef M
#define M   33
#define N   47
#define K   129
#define LDA 129
#define LDB 47
#define LDC 47
#define TA  0
#define TB  0
#endif
#ifndef TC
#define TA_ float
#define TB_ float
#define TC  float
#define TM  float
#endif

/* beta is an argument only of instances that a gradient accumulates with. */
#if defined(ACCUM) && ACCUM
#define BETA_ARG , int beta
#define BETA     beta
#else
#define BETA_ARG
#define BETA 0
#endif
#ifdef EPILOGUE_EXTRA
#define EXTRA_ARG , void *extra
#define EXTRA     extra
#else
#define EXTRA_ARG
#define EXTRA NULL
#endif

#ifndef MG_GEMM_SHARED
#define MG_GEMM_SHARED
typedef struct {
    const void *a, *b;
    void *c, *panel; /* panel: packed A, of rows [row0, row0 + rows) and k [k0, k0 + k) */
    int64_t row0, rows, k0, k;
    int add, last;          /* C holds earlier sums; the last block of K is among these */
    int64_t rparts, gparts; /* parts: cuts of the row blocks times cuts of the strips */
    void *extra;
} mg_gemm;

/* One part a worker: the cut of `blocks` row blocks and `strips` for which the largest part is
 * smallest, where packing a strip costs about one row block. */
static inline MG_UNUSED void mg_gemm_cut(mg_gemm *g, int64_t blocks, int64_t strips,
                                         int64_t workers)
{
    int64_t best = INT64_MAX;
    for (int64_t rows = 1; rows <= MG_LEAST(workers, blocks); rows++) {
        int64_t cols = MG_LEAST(MG_UP(workers, rows), strips);
        int64_t cost = MG_UP(strips, cols) * (MG_UP(blocks, rows) + 1);
        if (cost >= best)
            continue;
        best = cost;
        g->rparts = rows;
        g->gparts = cols;
    }
}
/* A strip of B is KC x 128 bytes, 32 KiB of L1. The rows of a chunk make a block of A of MC x KC,
 * 512 KiB of L2. At most KS of K are packed at once, a whole number of blocks. */
#define MG_KC_MAX 256
#define MG_MC_MAX 512
#define MG_KS_MAX 4096
#endif

#define NR             MG_CAT(MG_NR_, TM)
#define FN(f)          MG_CAT(matmul, _##f)
#define MM(form, rows) MG_CAT(mg_mm_##form##_, TM)[(rows)-1]
#define STRIPS         MG_UP(N, NR)
#define KB             MG_UP(K, MG_KC_MAX) /* blocks of K, their length, and the k that are packed together */
#define KC             MG_UP(K, KB)
#define WIDE_C         (sizeof(TC) == sizeof(TM))
#define KS             (WIDE_C ? MG_LEAST((int64_t)K, (int64_t)MG_KS_MAX / KC * KC) : (int64_t)K)
#define MS             MG_LEAST((int64_t)M, (int64_t)(MG_SCRATCH_BYTES / sizeof(TM)) / KS)
/* Row blocks of [0, rows): block i is [i * rows / n, (i + 1) * rows / n). */
#define BLOCKS(rows)   MG_UP(rows, MG_MR)

/* A with few strips to use it is read in place; not at a stride that maps its rows to one set of
 * L1. */
#define DIRECT_A       (sizeof(TA_) == sizeof(TM) && STRIPS <= 8 && LDA * sizeof(TM) % 4096 != 0)

static void FN(pack)(void *arg, int part)
{
    const mg_gemm *g = arg;
    int64_t n = BLOCKS(g->rows), i0 = part * g->rows / n, i1 = (part + 1) * g->rows / n;
    TM *dst = (TM *)g->panel + i0 * g->k;
    const TA_ *a = g->a;
    if (TA)
        MG_FN(mg_pack_rows, TA_, TM)
    (dst, i1 - i0, a + g->k0 * LDA + g->row0 + i0, LDA, i1 - i0, g->k);
    else MG_FN(mg_pack_turn, TA_, TM)(dst, i1 - i0, a + (g->row0 + i0) * LDA + g->k0, LDA, i1 - i0,
                                      g->k);
}

/* The strip of B with columns [col0, col0 + cols) and k [k0, k0 + k). */
static void FN(strip)(TM *strip, const TB_ *b, int64_t k0, int64_t k, int64_t col0, int64_t cols)
{
    if (TB)
        MG_FN(mg_pack_turn, TB_, TM)(strip, NR, b + col0 * LDB + k0, LDB, cols, k);
    else if (cols == NR)
        MG_FN(mg_pack_rows, TB_, TM)(strip, NR, b + k0 * LDB + col0, LDB, NR, k);
    else
        MG_FN(mg_pack_rows, TB_, TM)(strip, NR, b + k0 * LDB + col0, LDB, cols, k);
}

/* One tile: row block [i0, i1) of the packed rows, k [k0, k0 + k) counted from g->k0. */
static void FN(tile)(const mg_gemm *g, int64_t i0, int64_t i1, int64_t k0, int64_t k,
                     const TM *strip, TM *c, int64_t cstep, int add)
{
    int64_t rows = i1 - i0;
    const TM *a = (const TM *)g->a;
    if (!DIRECT_A) {
        a = (const TM *)g->panel + i0 * g->k + k0 * rows;
        MM(col, rows)(k, a, rows, strip, NR, c, cstep, add);
    } else if (TA) {
        a += (g->k0 + k0) * LDA + g->row0 + i0;
        MM(col, rows)(k, a, LDA, strip, NR, c, cstep, add);
    } else {
        a += (g->row0 + i0) * LDA + g->k0 + k0;
        MM(row, rows)(k, a, LDA, strip, NR, c, cstep, add);
    }
}

/* Row blocks [b0, b1), one strip, all of g's K, by way of a buffer: C is too narrow or of another
 * type. */
static void FN(edge)(const mg_gemm *g, int64_t b0, int64_t b1, int64_t col0, int64_t cols)
{
    _Alignas(64) TM strip[KC * NR], sum[MG_MC_MAX * NR];
    int64_t n = BLOCKS(g->rows), first = b0 * g->rows / n, rows = b1 * g->rows / n - first;
    TC *c = (TC *)g->c + (g->row0 + first) * LDC + col0;
    if (g->add)
        MG_FN(mg_tile_in, TC, TM)(sum, c, LDC, rows, cols);
    for (int64_t k0 = 0; k0 < g->k; k0 += KC) {
        int64_t k = MG_LEAST(KC, g->k - k0);
        FN(strip)(strip, g->b, g->k0 + k0, k, col0, cols);
        for (int64_t b = b0; b < b1; b++) {
            int64_t i0 = b * g->rows / n, i1 = (b + 1) * g->rows / n;
            FN(tile)
            (g, i0, i1, k0, k, strip, sum + (i0 - first) * NR, NR, g->add || k0 > 0);
        }
    }
    MG_FN(mg_tile_out, TC, TM)(sum, c, LDC, rows, cols);
#ifdef EPILOGUE
    void *extra MG_UNUSED = g->extra;
    if (g->last)
        EPILOGUE(c, g->row0 + first, rows, col0, cols);
#endif
}

/* Row blocks [b0, b1), one full strip, one block of K, straight into C. */
static void FN(full)(const mg_gemm *g, int64_t b0, int64_t b1, int64_t col0, int64_t k0)
{
    _Alignas(64) TM strip[KC * NR];
    int64_t n = BLOCKS(g->rows), k = MG_LEAST(KC, g->k - k0);
    FN(strip)(strip, g->b, g->k0 + k0, k, col0, NR);
    for (int64_t b = b0; b < b1; b++) {
        int64_t i0 = b * g->rows / n, i1 = (b + 1) * g->rows / n;
        TC *c = (TC *)g->c + (g->row0 + i0) * LDC + col0;
        FN(tile)(g, i0, i1, k0, k, strip, (TM *)c, LDC, g->add || k0 > 0);
#ifdef EPILOGUE
        void *extra MG_UNUSED = g->extra;
        if (g->last && k0 + k == g->k)
            EPILOGUE(c, g->row0 + i0, i1 - i0, col0, NR);
#endif
    }
}

/* Row blocks in chunks whose block of A stays in L2; for each a block of K, for each of these the
 * strips. */
static void FN(part)(void *arg, int part)
{
    const mg_gemm *g = arg;
    int64_t n = BLOCKS(g->rows), rp = part % g->rparts, gp = part / g->rparts;
    int64_t from = rp * n / g->rparts, to = (rp + 1) * n / g->rparts;
    int64_t s0 = gp * STRIPS / g->gparts, s1 = (gp + 1) * STRIPS / g->gparts;
    int64_t full = WIDE_C ? MG_LEAST(s1, N / NR) : s0;
    for (int64_t chunks = MG_UP(to - from, MG_MC_MAX / MG_MR), i = 0; i < chunks; i++) {
        int64_t b0 = from + i * (to - from) / chunks, b1 = from + (i + 1) * (to - from) / chunks;
        for (int64_t k0 = 0; k0 < g->k && s0 < full; k0 += KC) {
            for (int64_t s = s0; s < full; s++)
                FN(full)(g, b0, b1, s * NR, k0);
        }
        for (int64_t s = full; s < s1; s++)
            FN(edge)(g, b0, b1, s * NR, MG_LEAST(NR, N - s * NR));
    }
}

MG_KERNEL void matmul(mg_ctx *c, TC *out, const TA_ *a, const TB_ *b EXTRA_ARG BETA_ARG)
{
    mg_gemm g = {
        .a = a, .b = b, .c = out, .extra = EXTRA, .panel = DIRECT_A ? NULL : mg_scratch(c)};
    for (g.row0 = 0; g.row0 < M; g.row0 += MS) {
        g.rows = MG_LEAST(MS, M - g.row0);
        for (g.k0 = 0; g.k0 < K; g.k0 += KS) {
            g.k = MG_LEAST(KS, K - g.k0);
            g.add = BETA || g.k0 > 0;
            g.last = g.k0 + g.k == K;
            if (!DIRECT_A)
                mg_par(c, (int)BLOCKS(g.rows), FN(pack), &g);
            mg_gemm_cut(&g, BLOCKS(g.rows), STRIPS, mg_workers(c));
            mg_par(c, (int)(g.rparts * g.gparts), FN(part), &g);
        }
    }
}

#undef matmul
#undef M
#undef N
#undef K
#undef LDA
#undef LDB
#undef LDC
#undef TA
#undef TB
#undef TA_
#undef TB_
#undef TC
#undef TM
#undef ACCUM
#undef BETA
#undef BETA_ARG
#undef EPILOGUE
#undef EPILOGUE_EXTRA
#undef EXTRA
#undef EXTRA_ARG
#undef NR
#undef STRIPS
#undef FN
#undef MM
#undef KB
#undef KC
#undef WIDE_C
#undef KS
#undef MS
#undef BLOCKS
#undef DIRECT_A
