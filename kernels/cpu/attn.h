/*@kernel
name  = "attention",
op    = "attention",
const = { B = "q.size.b", S = "q.size.s", G = "q.size.g", R = "q.size.r", E = "q.size.e",
          QB = "q.stride.b", QS = "q.stride.s", QG = "q.stride.g", QR = "q.stride.r",
          KB = "k.stride.b", KS = "k.stride.s", KG = "k.stride.g",
          VB = "v.stride.b", VS = "v.stride.s", VG = "v.stride.g",
          OB = "o.stride.b", OS = "o.stride.s", OG = "o.stride.g", OR = "o.stride.r",
          LB = "lse.stride.b", LS = "lse.stride.s", LG = "lse.stride.g", LR = "lse.stride.r",
          LO = "lo and 1 or 0", LOB = "lo and lo.stride.b or 0", LOS = "lo and lo.stride.s or 0",
          SCALE = "scale", WINDOW = "window", SOFTCAP = "softcap", CAUSAL = "causal",
          T = "ctype(q)", TL = "ctype(lse)", TM = "ctype(q) == 'double' and 'double' or 'float'" },
when  = "q.stride.e == 1 and k.stride.e == 1 and v.stride.e == 1 and o.stride.e == 1",
@*/
/*@kernel
name  = "attention_bwd",
op    = "attention_bwd",
const = { B = "q.size.b", S = "q.size.s", G = "q.size.g", R = "q.size.r", E = "q.size.e",
          QB = "q.stride.b", QS = "q.stride.s", QG = "q.stride.g", QR = "q.stride.r",
          KB = "k.stride.b", KS = "k.stride.s", KG = "k.stride.g",
          VB = "v.stride.b", VS = "v.stride.s", VG = "v.stride.g",
          OB = "o.stride.b", OS = "o.stride.s", OG = "o.stride.g", OR = "o.stride.r",
          LB = "lse.stride.b", LS = "lse.stride.s", LG = "lse.stride.g", LR = "lse.stride.r",
          CB = "_ENV['do'].stride.b", CS = "_ENV['do'].stride.s", CG = "_ENV['do'].stride.g",
          CR = "_ENV['do'].stride.r",
          XB = "dq.stride.b", XS = "dq.stride.s", XG = "dq.stride.g", XR = "dq.stride.r",
          YB = "dk.stride.b", YS = "dk.stride.s", YG = "dk.stride.g",
          ZB = "dv.stride.b", ZS = "dv.stride.s", ZG = "dv.stride.g",
          LO = "lo and 1 or 0", LOB = "lo and lo.stride.b or 0", LOS = "lo and lo.stride.s or 0",
          SCALE = "scale", WINDOW = "window", SOFTCAP = "softcap", CAUSAL = "causal",
          T = "ctype(q)", TL = "ctype(lse)", TM = "ctype(q) == 'double' and 'double' or 'float'" },
when  = "q.stride.e == 1 and k.stride.e == 1 and v.stride.e == 1 and o.stride.e == 1 and "
     .. "_ENV['do'].stride.e == 1 and dq.stride.e == 1 and dk.stride.e == 1 and dv.stride.e == 1",
@*/
/* attn.h: attention of one shape, forward and backward, without the matrix of scores in memory.
 *
 *     void NAME(mg_ctx *c, T *o, TL *lse, const T *q, const T *k, const T *v [, const int32_t *lo])
 *     void NAME(mg_ctx *c, T *dq, T *dk, T *dv, const T *q, const T *k, const T *v, const T *o,
 *               const TL *lse, const T *do_ [, const int32_t *lo])
 *
 * q, o [B S G R E], k, v [B S G E], lse [B S G R], lo [B S]; any strides (elements), E contiguous.
 * The R query heads of a group share its k and v. Token t sees keys [max(lo[t], t - WINDOW + 1),
 * CAUSAL ? t + 1 : S); WINDOW 0 is no window. o = softmax(f(q k' * SCALE)) v with f(x) = SOFTCAP
 * tanh(x / SOFTCAP) if SOFTCAP > 0, lse = log(sum(exp(f))) of the row. A row that sees nothing: o =
 * 0, lse = -inf, no gradients.
 *
 *   cut      Forward: a part is one head and QT rows of queries; it walks the blocks of KT keys
 * that any of its rows sees, tile by tile of at most MG_MR rows, with a running maximum and sum.
 *            Backward: a part is one group; per block of keys it walks heads and query blocks,
 * keeps dk and dv of the block, adds to dq. Every sum has one owner and one order, so workers do
 * not matter.
 *
 *   numerics Scores, exponentials and sums in TM; products by the tiles of micro.h. P = exp(f -
 * lse) again in the backward, dS = P (dP - sum(do * o)).
 */
#include <stdint.h>

#include "mg.h"
#include "mgk.h"
#include "pack.h"

#if !defined(attention) && !defined(attention_bwd)
#define attention     attention_default
#define attention_bwd attention_bwd_default
#endif
#ifndef B
#define B       1
#define S       33
#define G       2
#define R       2
#define E       24
#define QB      0
#define QS      192
#define QG      96
#define QR      24
#define KB      0
#define KS      192
#define KG      96
#define VB      0
#define VS      192
#define VG      96
#define OB      0
#define OS      96
#define OG      48
#define OR      24
#define LB      0
#define LS      4
#define LG      2
#define LR      1
#define LO      1
#define LOB     33
#define LOS     1
#define SCALE   0.25
#define WINDOW  0
#define SOFTCAP 0
#define CAUSAL  1
#define T       float
#define TL      float
#define TM      float
#endif
#if defined(attention_bwd) && !defined(CB)
#define CB OB
#define CS OS
#define CG OG
#define CR OR
#define XB QB
#define XS QS
#define XG QG
#define XR QR
#define YB KB
#define YS KS
#define YG KG
#define ZB VB
#define ZS VS
#define ZG VG
#endif

#ifndef MG_ATTN_SHARED
#define MG_ATTN_SHARED
/* Vector names by arithmetic type. */
#define MG_V_float(f)   f32_##f
#define MG_V_double(f)  f64_##f
#define MG_IV_float(f)  i32_##f
#define MG_IV_double(f) i64_##f
typedef f32v mg_v_float;
typedef f64v mg_v_double;
typedef int32_t mg_int_float;
typedef int64_t mg_int_double;
typedef i32v mg_iv_float;
typedef i64v mg_iv_double;

typedef struct {
    const void *q, *k, *v, *o, *dy, *lse;
    void *out, *stat, *dq, *dk, *dv; /* out, stat: o and lse of the forward */
    const int32_t *lo;
    void *sum; /* dq in TM where T is narrower, [slots][R][S][E] */
    int first; /* part of slot 0 */
} mg_attn;

/* Keys that a row or a tile sees: [from, to). */
typedef struct {
    int64_t from, to;
} mg_span;

static inline MG_UNUSED mg_span mg_span_cut(mg_span s, int64_t from, int64_t to)
{
    return (mg_span){MG_MOST(s.from, from), MG_LEAST(s.to, to)};
}
#endif

#define NR             MG_CAT(MG_NR_, TM)
#define LANES          ((int64_t)(64 / sizeof(TM)))
#define VEC            MG_CAT(mg_v_, TM)
#define IVEC           MG_CAT(mg_iv_, TM)
#define V(f)           MG_CAT(MG_V_, TM)(f)
#define IV(f)          MG_CAT(MG_IV_, TM)(f)
#define STEP           MG_MOST(NR, LANES) /* columns come in whole strips and whole vectors */
#define EP             (MG_UP(E, STEP) * STEP)
#define KT             MG_LEAST(128, MG_UP(S, STEP) * STEP)
#define QN             MG_UP(S, 112) /* query blocks, their rows */
#define QT             MG_UP(S, QN)
#define FN(f)          MG_CAT(NAME, _##f)
#define MM(form, rows) MG_CAT(mg_mm_##form##_, TM)[(rows)-1]
#define NONE           (-(TM)__builtin_inf())

#ifdef attention
#define NAME attention
#include "attn_tile.h"
static void FN(softmax)(TM *p, mg_span row, int64_t c0, int64_t c1, TM *top, TM *sum, TM *o)
{

    VEC most = V(set)(NONE), part = {0};
    for (int64_t c = c0; c < c1; c += LANES) {
        VEC s = FN(score)(V(ld)(p + c), NULL);
        if (c < row.from || c + LANES > row.to)
            s = V(sel)(FN(inside)(c, row), s, V(set)(NONE));
        V(st)(p + c, s);
        most = V(max)(most, s);
    }
    TM now = V(hmax)(most);
    if (now < *top)
        now = *top;
    TM keep = *top == now || *top == NONE ? 1 : V(exp)(V(set)(*top - now))[0];
    for (int64_t c = c0; c < c1; c += LANES) {
        VEC x = V(exp)(V(ld)(p + c) - now);
        if (c < row.from || c + LANES > row.to) {
            IVEC in = FN(inside)(c, row);
            x = V(sel)(in, x, (VEC){0});
        }
        V(st)(p + c, x);
        part += x;
    }
    *sum = *sum * keep + V(sum)(part);
    *top = now;
    for (int64_t e = 0; e < EP && keep != 1; e += LANES)
        V(st)(o + e, V(ld)(o + e) * keep);
}

/* Rows [i0, i1) of a query block against one block of keys. */
static void FN(rows)(const mg_attn *a, int64_t b, int64_t q0, int64_t i0, int64_t i1, int64_t k0,
                     const TM *q, const TM *kt, const TM *v, TM *o, TM *top, TM *sum)
{
    _Alignas(64) TM p[MG_MR * KT];
    mg_span see = FN(see)(a, b, q0 + i0, q0 + i1);
    see = mg_span_cut(see, k0, k0 + KT);
    if (see.from >= see.to)
        return;
    int64_t c0 = (see.from - k0) / STEP * STEP, c1 = MG_UP(see.to - k0, STEP) * STEP;
    for (int64_t c = c0; c < c1; c += NR)
        MM(row, i1 - i0)(E, q + i0 * EP, EP, kt + c * E, NR, p + c, KT, 0);
    for (int64_t i = i0; i < i1; i++) {
        mg_span row = FN(see)(a, b, q0 + i, q0 + i + 1);
        row = (mg_span){MG_MOST(row.from - k0, c0), MG_LEAST(row.to - k0, c1)};
        if (row.from < row.to)
            FN(softmax)(p + (i - i0) * KT, row, c0, c1, top + i, sum + i, o + i * EP);
        else
            memset(p + (i - i0) * KT + c0, 0, (size_t)(c1 - c0) * sizeof(TM));
    }
    for (int64_t e = 0; e < EP; e += NR)
        MM(row, i1 - i0)(c1 - c0, p + c0, KT, v + c0 * EP + e, EP, o + i0 * EP + e, EP, 1);
}

/* Divides by the sums, stores rows [q0, q0 + n) of o and lse. */
static void FN(finish)(const mg_attn *a, int64_t b, int64_t g, int64_t r, int64_t q0, int64_t n,
                       TM *o, const TM *top, TM *sum)
{
    T *out = (T *)a->out + b * OB + q0 * OS + g * OG + r * OR;
    TL *lse = (TL *)a->stat + b * LB + q0 * LS + g * LG + r * LR;
    for (int64_t i = 0; i < n; i++) {
        TM w = sum[i] > 0 ? 1 / sum[i] : 0;
        for (int64_t e = 0; e < EP; e += LANES)
            V(st)(o + i * EP + e, V(ld)(o + i * EP + e) * w);
        FN(store)(out + i * OS, o + i * EP);
    }
    for (int64_t i = 0; i < n; i += LANES) {
        VEC l = V(log)(V(ld)(sum + i));
        for (int64_t k = i; k < MG_LEAST(n, i + LANES); k++)
            lse[k * LS] = (TL)(sum[k] > 0 ? top[k] + l[k - i] : NONE);
    }
}

static void FN(part)(void *arg, int part)
{
    const mg_attn *a = arg;
    int64_t block = part % QN, r = part / QN % R, g = part / (QN * R) % G, b = part / (QN * R * G);
    int64_t q0 = block * S / QN, n = (block + 1) * S / QN - q0, tiles = MG_UP(n, MG_MR);
    _Alignas(64) TM q[QT * EP], o[QT * EP], kt[KT * E], v[KT * EP];
    TM top[QT], sum[MG_UP(QT, LANES) * LANES];
    FN(load)(q, (const T *)a->q + b * QB + q0 * QS + g * QG + r * QR, QS, n, n, SCALE);
    memset(o, 0, sizeof o);
    memset(sum, 0, sizeof sum);
    for (int64_t i = 0; i < n; i++)
        top[i] = NONE;
    mg_span all = FN(see)(a, b, q0, q0 + n);
    for (int64_t k0 = all.from / KT * KT; k0 < all.to; k0 += KT) {
        FN(turn)(kt, (const T *)a->k + b * KB + g * KG + k0 * KS, KS, S - k0);
        FN(load)
        (v, (const T *)a->v + b * VB + g * VG + k0 * VS, VS, MG_LEAST(KT, S - k0), KT, 1);
        for (int64_t i = 0; i < tiles; i++)
            FN(rows)
        (a, b, q0, i * n / tiles, (i + 1) * n / tiles, k0, q, kt, v, o, top, sum);
    }
    FN(finish)(a, b, g, r, q0, n, o, top, sum);
}

#if LO
MG_KERNEL void NAME(mg_ctx *c, T *o, TL *lse, const T *q, const T *k, const T *v, const int32_t *lo)
#else
MG_KERNEL void NAME(mg_ctx *c, T *o, TL *lse, const T *q, const T *k, const T *v)
#endif
{
    mg_attn a = {.q = q, .k = k, .v = v, .out = o, .stat = lse};
#if LO
    a.lo = lo;
#endif
    mg_par(c, B * G * R * QN, FN(part), &a);
}
#undef NAME
#endif

#ifdef attention_bwd
#define NAME attention_bwd
#include "attn_tile.h"

/* What a part holds while it works on a block of keys; */
typedef struct {
    TM kt[KT * E], vt[KT * E], k[KT * EP]; /* keys and values turned; keys as they are */
    TM dk[KT * EP], dv[KT * EP];
    TM q[QT * EP], dy[QT * EP]; /* scaled queries; cotangents of o */
    TM p[QT * KT], ds[QT * KT];
    TM lse[QT], dot[QT]; /* dot: sum(do * o) */
} FN(work);

/* p and ds of one row, from its scores and dp. */
static void FN(row)(TM *p, TM *ds, mg_span row, int64_t c0, int64_t c1, TM lse, TM dot)
{
    for (int64_t c = c0; c < c1; c += LANES) {
        VEC slope;
        VEC s = FN(score)(V(ld)(p + c), &slope);
        VEC x = V(exp)(s - lse);
        VEC d = x * (V(ld)(ds + c) - dot) * slope;
        if (c < row.from || c + LANES > row.to) {
            IVEC in = FN(inside)(c, row);
            x = V(sel)(in, x, (VEC){0});
            d = V(sel)(in, d, (VEC){0});
        }
        V(st)(p + c, x);
        V(st)(ds + c, d);
    }
}

/* dq of one row: to += from * SCALE. */
static inline void FN(add)(TM *to, const TM *from)
{
    for (int64_t e = 0; e < E / LANES * LANES; e += LANES)
        V(st)(to + e, V(ld)(to + e) + V(ld)(from + e) * (TM)SCALE);
    for (int64_t e = E / LANES * LANES; e < E; e++)
        to[e] += from[e] * (TM)SCALE;
}

/* Rows [i0, i1) of a query block: p, ds, and what the block of keys adds to dq. */
static void FN(rows)(const mg_attn *a, FN(work) * w, int64_t b, int64_t q0, int64_t i0, int64_t i1,
                     int64_t k0, TM *dq, int64_t dqs)
{
    _Alignas(64) TM sum[MG_MR * EP];
    int64_t n = i1 - i0;
    TM *p = w->p + i0 * KT, *ds = w->ds + i0 * KT;
    mg_span see = mg_span_cut(FN(see)(a, b, q0 + i0, q0 + i1), k0, k0 + KT);
    if (see.from >= see.to) {
        memset(p, 0, (size_t)(n * KT) * sizeof(TM));
        memset(ds, 0, (size_t)(n * KT) * sizeof(TM));
        return;
    }
    int64_t c0 = (see.from - k0) / STEP * STEP, c1 = MG_UP(see.to - k0, STEP) * STEP;
    for (int64_t c = c0; c < c1; c += NR) {
        MM(row, n)(E, w->q + i0 * EP, EP, w->kt + c * E, NR, p + c, KT, 0);
        MM(row, n)(E, w->dy + i0 * EP, EP, w->vt + c * E, NR, ds + c, KT, 0);
    }
    for (int64_t i = 0; i < n; i++) {
        mg_span row = FN(see)(a, b, q0 + i0 + i, q0 + i0 + i + 1);
        TM *pi = p + i * KT, *di = ds + i * KT;
        row = (mg_span){row.from - k0, row.to - k0};
        memset(pi, 0, (size_t)c0 * sizeof(TM));
        memset(di, 0, (size_t)c0 * sizeof(TM));
        memset(pi + c1, 0, (size_t)(KT - c1) * sizeof(TM));
        memset(di + c1, 0, (size_t)(KT - c1) * sizeof(TM));
        FN(row)(pi, di, row, c0, c1, w->lse[i0 + i], w->dot[i0 + i]);
    }
    for (int64_t e = 0; e < EP; e += NR)
        MM(row, n)(c1 - c0, ds + c0, KT, w->k + c0 * EP + e, EP, sum + e, EP, 0);
    for (int64_t i = 0; i < n; i++)
        FN(add)(dq + (i0 + i) * dqs, sum + i * EP);
}

/* dk and dv of the block of keys, by groups of keys; rows before the first that sees a group add
 * nothing. */
static void FN(keys)(FN(work) * w, int64_t q0, int64_t n, int64_t k0, int64_t keys)
{
    int64_t groups = MG_UP(keys, MG_MR);
    for (int64_t i = 0; i < groups; i++) {
        int64_t j = i * keys / groups, m = (i + 1) * keys / groups - j;
        int64_t f = CAUSAL ? MG_MOST(0, k0 + j - q0) : 0;
        if (f >= n)
            continue;
        for (int64_t e = 0; e < EP; e += NR) {
            MM(col, m)
            (n - f, w->ds + f * KT + j, KT, w->q + f * EP + e, EP, w->dk + j * EP + e, EP, 1);
            MM(col, m)
            (n - f, w->p + f * KT + j, KT, w->dy + f * EP + e, EP, w->dv + j * EP + e, EP, 1);
        }
    }
}

/* One query block of one head against the block of keys in w. */
static void FN(block)(const mg_attn *a, FN(work) * w, int64_t b, int64_t g, int64_t r, int64_t q0,
                      int64_t n, int64_t k0, TM *dq, int64_t dqs)
{
    const T *dy = (const T *)a->dy + b * CB + q0 * CS + g * CG + r * CR;
    const T *o = (const T *)a->o + b * OB + q0 * OS + g * OG + r * OR;
    const TL *lse = (const TL *)a->lse + b * LB + q0 * LS + g * LG + r * LR;
    FN(load)
    (w->q, (const T *)a->q + b * QB + q0 * QS + g * QG + r * QR, QS, n, n, SCALE);
    FN(load)(w->dy, dy, CS, n, n, 1);
    _Alignas(64) TM line[EP] = {0};
    for (int64_t i = 0; i < n; i++) {
        VEC dot = {0};
        MG_FN(mg_copy, T, TM)(line, o + i * OS, E);
        for (int64_t e = 0; e < EP; e += LANES)
            dot += V(ld)(w->dy + i * EP + e) * V(ld)(line + e);
        w->dot[i] = V(sum)(dot);
        w->lse[i] = (TM)lse[i * LS];
    }
    for (int64_t i = 0, tiles = MG_UP(n, MG_MR); i < tiles; i++)
        FN(rows)(a, w, b, q0, i * n / tiles, (i + 1) * n / tiles, k0, dq, dqs);
    FN(keys)(w, q0, n, k0, MG_LEAST(KT, S - k0));
}

#define NARROW (sizeof(T) != sizeof(TM))
/* Where dq of head r, row t is summed, and the stride of its rows. */
static TM *FN(dq)(const mg_attn *a, int part, int64_t r, int64_t t)
{
    int64_t g = part % G, b = part / G;
    if (NARROW)
        return (TM *)a->sum + (((part - a->first) * R + r) * S + t) * E;
    return (TM *)((T *)a->dq + b * XB + t * XS + g * XG + r * XR);
}

static void FN(group)(const mg_attn *a, FN(work) * w, int part)
{
    int64_t g = part % G, b = part / G;
    for (int64_t k0 = 0; k0 < S; k0 += KT) {
        int64_t keys = MG_LEAST(KT, S - k0);
        const T *k = (const T *)a->k + b * KB + g * KG + k0 * KS;
        FN(turn)(w->kt, k, KS, keys);
        FN(turn)(w->vt, (const T *)a->v + b * VB + g * VG + k0 * VS, VS, keys);
        FN(load)(w->k, k, KS, keys, KT, 1);
        memset(w->dk, 0, sizeof w->dk);
        memset(w->dv, 0, sizeof w->dv);
        for (int64_t i = 0; i < R * QN; i++) {
            int64_t r = i / QN, q0 = i % QN * S / QN, n = (i % QN + 1) * S / QN - q0;
            mg_span see = FN(see)(a, b, q0, q0 + n);
            if (see.from < k0 + KT && see.to > k0)
                FN(block)
            (a, w, b, g, r, q0, n, k0, FN(dq)(a, part, r, q0), NARROW ? E : XS);
        }
        for (int64_t j = 0; j < keys; j++) {
            T *dk = (T *)a->dk + b * YB + g * YG + (k0 + j) * YS;
            T *dv = (T *)a->dv + b * ZB + g * ZG + (k0 + j) * ZS;
            FN(store)(dk, w->dk + j * EP);
            FN(store)(dv, w->dv + j * EP);
        }
    }
}

static void FN(part)(void *arg, int part)
{
    const mg_attn *a = arg;
    _Alignas(64) FN(work) w;
    int64_t g = (part + a->first) % G, b = (part + a->first) / G;
    part += a->first;
    for (int64_t i = 0; i < R * S; i++)
        memset(FN(dq)(a, part, i / S, i % S), 0, E * sizeof(TM));
    FN(group)(a, &w, part);
    for (int64_t i = 0; i < R * S && NARROW; i++) {
        const TM *from = FN(dq)(a, part, i / S, i % S);
        T *to = (T *)a->dq + b * XB + i % S * XS + g * XG + i / S * XR;
        FN(store)(to, from);
    }
}

/* Where T is narrow, dq of the parts that run at once must fit the scratch: the parts come in
 * waves. */
#define SLOTS (NARROW ? MG_SCRATCH_BYTES / ((uint64_t)R * S * E * sizeof(TM)) : (uint64_t)B * G)
_Static_assert(SLOTS > 0, "dq of one group in arithmetic type fits the scratch");

#if LO
MG_KERNEL void NAME(mg_ctx *c, T *dq, T *dk, T *dv, const T *q, const T *k, const T *v, const T *o,
                    const TL *lse, const T *dy, const int32_t *lo)
#else
MG_KERNEL void NAME(mg_ctx *c, T *dq, T *dk, T *dv, const T *q, const T *k, const T *v, const T *o,
                    const TL *lse, const T *dy)
#endif
{
    mg_attn a = {
        .q = q, .k = k, .v = v, .o = o, .lse = lse, .dy = dy, .dq = dq, .dk = dk, .dv = dv};
#if LO
    a.lo = lo;
#endif
    a.sum = NARROW ? mg_scratch(c) : NULL;
    for (int wave; a.first < B * G; a.first += wave) {
        wave = (int)MG_LEAST(SLOTS, (uint64_t)(B * G - a.first));
        mg_par(c, wave, FN(part), &a);
    }
}
#undef NAME
#undef NARROW
#undef SLOTS
#undef CB
#undef CS
#undef CG
#undef CR
#undef XB
#undef XS
#undef XG
#undef XR
#undef YB
#undef YS
#undef YG
#undef ZB
#undef ZS
#undef ZG
#endif

#undef attention
#undef attention_bwd
#undef B
#undef S
#undef G
#undef R
#undef E
#undef QB
#undef QS
#undef QG
#undef QR
#undef KB
#undef KS
#undef KG
#undef VB
#undef VS
#undef VG
#undef OB
#undef OS
#undef OG
#undef OR
#undef LB
#undef LS
#undef LG
#undef LR
#undef LO
#undef LOB
#undef LOS
#undef SCALE
#undef WINDOW
#undef SOFTCAP
#undef CAUSAL
#undef T
#undef TL
#undef TM
#undef NR
#undef LANES
#undef VEC
#undef IVEC
#undef V
#undef IV
#undef STEP
#undef EP
#undef KT
#undef QN
#undef FN
#undef MM
#undef QT
#undef NONE
