/* attn_tile.h: what forward and backward of attn.h share, for the kernel NAME; only attn.h includes
 * it. */
#ifndef NAME
#include <stdint.h> /* alone there is nothing to compile */
#else

/* Keys that rows [t0, t1) see, any of them. */
static mg_span FN(see)(const mg_attn *a, int64_t b, int64_t t0, int64_t t1)
{
    mg_span see = {0, CAUSAL ? t1 : S};
    if (WINDOW > 0)
        see.from = MG_MOST(0, t0 - WINDOW + 1);
#if LO
    int64_t lo = S;
    for (int64_t t = t0; t < t1; t++)
        lo = MG_LEAST(lo, (int64_t)a->lo[b * LOB + t * LOS]);
    see.from = MG_MOST(see.from, lo);
#else
    (void)a, (void)b;
#endif
    return see;
}

/* Lanes of the columns [c, c + LANES) that the row sees. */
static inline IVEC FN(inside)(int64_t c, mg_span row)
{
    IVEC at = IV(iota)(0);
    return (at >= IV(set)((MG_CAT(mg_int_, TM))(row.from - c))) &
           (at < IV(set)((MG_CAT(mg_int_, TM))(row.to - c)));
}

/* f of a score, and its slope where asked for. */
static inline VEC FN(score)(VEC s, VEC *slope)
{
    if (SOFTCAP > 0) {
        VEC y = V(tanh)(s * (1 / (TM)(SOFTCAP)));
        if (slope)
            *slope = 1 - y * y;
        return y * (TM)(SOFTCAP);
    }
    if (slope)
        *slope = V(set)(1);
    return s;
}

/* n rows of E to rows of EP, times `by`; rows [n, rows) are 0. */
static void FN(load)(TM *to, const T *from, int64_t stride, int64_t n, int64_t rows, double by)
{
    MG_FN(mg_pack_rows, T, TM)(to, EP, from, stride, E, n);
    memset(to + n * EP, 0, (size_t)((rows - n) * EP) * sizeof(TM));
    for (int64_t i = 0; i < n * EP && by != 1; i += LANES)
        V(st)(to + i, V(ld)(to + i) * (TM)by);
}

/* One row of E to storage. */
static void FN(store)(T *to, const TM *from)
{
    if (sizeof(T) == sizeof(TM)) {
        memcpy(to, from, E * sizeof(TM));
        return;
    }
    for (int64_t e = 0; e < E; e++)
        to[e] = MG_FN(mg_put, T, TM)(from[e]);
}

/* n keys (or values) of E to strips of NR: to[strip][E][NR]; keys [n, KT) are 0. */
static void FN(turn)(TM *to, const T *from, int64_t stride, int64_t n)
{
    for (int64_t c = 0; c < KT; c += NR)
        MG_FN(mg_pack_turn, T, TM)
    (to + c * E, NR, from + c * stride, stride, MG_MOST(0, MG_LEAST(NR, n - c)), E);
}
#endif
