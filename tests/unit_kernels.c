/* unit_kernels.c: pool and CPU kernels against plain loops in f64.
 *
 * Every case runs with 1, 2 and 3 workers, whose results must be equal in every bit, on outputs
 * filled with NaN. Sizes are odd on purpose: below, at and above every tile. kernels.test.sh runs
 * this file on each feature level, with both compilers and under ThreadSanitizer.
 */
#include "mg.h"
#include "mgk.h"
#include "pack.h"
#include "pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORKERS = 3 };

typedef struct {
    void (*call)(mg_ctx *c, void *y, const void *a, const void *b, int beta);
    int64_t m, n, k;
    int ta, tb;
    int64_t lda, ldb, ldc;
    size_t ea, eb, ec, em; /* bytes of an element of A, B, C and of the arithmetic */
} gemm_case;

typedef struct {
    void (*fwd)(mg_ctx *c, void *o, void *lse, const void *qkv, const int32_t *lo);
    void (*bwd)(mg_ctx *c, void *dqkv, const void *qkv, const void *o, const void *lse,
                const void *dy, const int32_t *lo);
    int64_t b, s, g, r, e, window;
    double softcap;
    int causal, lo;
    size_t et, em;
} attn_case;

#define CASE (one, 1, 1, 1, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (nn, 33, 47, 129, 0, 0, 3, float, float, float, float)
#include "case_gemm.h"
#define CASE (tn, 33, 47, 1290, 1, 0, 3, float, float, float, float)
#include "case_gemm.h"
#define CASE (nt, 133, 347, 129, 0, 1, 1, float, float, float, float)
#include "case_gemm.h"
#define CASE (tt, 45, 70, 303, 1, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (row, 1, 300, 70, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (column, 130, 1, 257, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (packed, 40, 300, 64, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (blocks, 530, 65, 515, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (deep, 3, 2, 9001, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (super, 1100, 33, 4200, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (b_tt, 13, 30, 517, 1, 1, 0, bf16, bf16, bf16, float)
#include "case_gemm.h"
#define CASE (b_main, 64, 130, 300, 1, 0, 0, bf16, bf16, float, float)
#include "case_gemm.h"
#define CASE (b_nn, 530, 45, 77, 0, 0, 1, bf16, bf16, bf16, float)
#include "case_gemm.h"
#define CASE (d_nt, 61, 99, 300, 0, 1, 2, double, double, double, double)
#include "case_gemm.h"
#define CASE (d_tn, 29, 33, 601, 1, 0, 0, double, double, double, double)
#include "case_gemm.h"

#define ATTN (a_one, 1, 1, 1, 1, 1, 0, 0.0, 1, 0, float, float)
#include "case_attn.h"
#define ATTN (a_gqa, 2, 64, 2, 2, 32, 0, 0.0, 1, 0, float, float)
#include "case_attn.h"
#define ATTN (a_full, 1, 33, 2, 3, 17, 0, 2.0, 0, 0, float, float)
#include "case_attn.h"
#define ATTN (a_window, 1, 301, 1, 2, 24, 37, 0.0, 1, 1, float, float)
#include "case_attn.h"
#define ATTN (a_wide, 1, 257, 1, 1, 128, 0, 0.0, 1, 0, float, float)
#include "case_attn.h"
#define ATTN (a_double, 2, 150, 1, 1, 64, 0, 1.5, 1, 1, double, double)
#include "case_attn.h"
#define ATTN (a_three, 1, 3, 1, 1, 1, 1, 0.0, 1, 1, double, double)
#include "case_attn.h"
#define ATTN (a_bf16, 1, 130, 2, 1, 40, 9, 0.0, 0, 1, bf16, float)
#include "case_attn.h"

/* Two tables: of 50 rows padded to a stride, and of 3 rows in bf16 with its gradient in float. */
#define embed wide_fwd
#define ROWS  77
#define D     24
#define V     50
#define LD    30
#define T     float
#include "embed.h"
#define embed_bwd wide_bwd
#define ROWS      77
#define D         24
#define V         50
#define LD        30
#define T         float
#define TM        float
#define TW        float
#define ACCUM     1
#include "embed.h"
#define embed small_fwd
#define ROWS  9
#define D     5
#define V     3
#define LD    5
#define T     bf16
#include "embed.h"
#define embed_bwd small_bwd
#define ROWS      9
#define D         5
#define V         3
#define LD        5
#define T         bf16
#define TM        float
#define TW        float
#include "embed.h"

static double get(const void *p, size_t e, int64_t i)
{
    if (e == 2)
        return (double)mg_get_bf16_float(((const bf16 *)p)[i]);
    return e == 4 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static void put(void *p, size_t e, int64_t i, double v)
{
    if (e == 2)
        ((bf16 *)p)[i] = mg_put_bf16_float((float)v);
    else if (e == 4)
        ((float *)p)[i] = (float)v;
    else
        ((double *)p)[i] = v;
}

static double draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 40) / 16777216.0 - 0.5;
}

/* n elements between -scale / 2 and scale / 2; with scale 0: NaN, every byte 255. */
static void *array(size_t e, int64_t n, double scale, uint64_t seed)
{
    void *p = malloc((size_t)n * e);
    if (p == NULL)
        abort();
    memset(p, 255, (size_t)n * e);
    for (int64_t i = 0; i < n && scale > 0; i++)
        put(p, e, i, scale * draw(&seed));
    return p;
}

static int report(const char *name, const char *what, double error, double limit, int same)
{
    int bad = !(error <= limit) || !same;
    if (bad)
        printf("FAILED %s %s: error %.3g (limit %.3g)%s\n", name, what, error, limit,
               same ? "" : ", workers change bits");
    return bad;
}

static double worse(double a, double b)
{
    return b <= a ? a : b; /* NaN wins */
}

/* ==== pool ==================================================================================== */

static void count_part(void *arg, int part)
{
    ((int *)arg)[part] += part + 1;
}

static int test_pool(void)
{
    int bad = 0;
    for (int workers = 1; workers <= 5; workers++) {
        int seen[40] = {0}, rounds = 50;
        mg_ctx c = {.pool = mg_pool_new(workers)};
        for (int i = 0; i < rounds * 40; i++)
            mg_par(&c, i % 40 + 1, count_part, seen);
        for (int i = 0; i < 40; i++)
            bad |= seen[i] != rounds * (40 - i) * (i + 1);
        bad |= mg_pool_workers(c.pool) != workers;
        bad |= (uintptr_t)mg_scratch(&c) % (2 << 20) != 0;
        mg_pool_free(c.pool);
    }
    bad |= mg_pool_new(0) != NULL;
    setenv("MG_THREADS", "7", 1);
    bad |= mg_pool_size() != 7;
    setenv("MG_THREADS", "7x", 1);
    bad |= mg_pool_size() < 1;
    unsetenv("MG_THREADS");
    bad |= mg_pool_size() < 1;
    if (bad)
        puts("FAILED pool");
    return bad;
}

/* ==== matmul ================================================================================== */

static double gemm_element(const gemm_case *g, const void *a, const void *b, int64_t i, int64_t j)
{
    double s = 0;
    for (int64_t k = 0; k < g->k; k++)
        s += get(a, g->ea, g->ta ? k * g->lda + i : i * g->lda + k) *
             get(b, g->eb, g->tb ? j * g->ldb + k : k * g->ldb + j);
    return s;
}

/* Largest error over sqrt(K); elements between the rows of C must not change. */
static double gemm_error(const gemm_case *g, const void *a, const void *b, const void *before,
                         const void *c, int beta)
{
    double most = 0;
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->ldc; j++) {
            int64_t at = i * g->ldc + j;
            double was = get(before, g->ec, at), now = get(c, g->ec, at);
            if (j >= g->n) {
                most = worse(most, now == was ? 0 : 9);
                continue;
            }
            double want = gemm_element(g, a, b, i, j) + (beta ? was : 0);
            double rounding = g->ec == 2 ? 0.004 * fabs(want) : 0;
            most = worse(most, (fabs(now - want) - rounding) / sqrt((double)g->k));
        }
    }
    return most;
}

static int test_gemm(const char *name, const gemm_case *g)
{
    int64_t na = (g->ta ? g->k : g->m) * g->lda, nb = (g->tb ? g->n : g->k) * g->ldb;
    int64_t nc = g->m * g->ldc;
    int bad = 0;
    void *a = array(g->ea, na, 1, 1), *b = array(g->eb, nb, 1, 2), *before = array(g->ec, nc, 1, 3);
    for (int beta = 0; beta < 2; beta++) {
        void *c[WORKERS];
        int same = 1;
        for (int w = 0; w < WORKERS; w++) {
            mg_ctx x = {.pool = mg_pool_new(w + 1)};
            c[w] = array(g->ec, nc, 1, 3);
            for (int64_t i = 0; i < g->m * g->n && !beta; i++) /* beta 0 must not read C */
                memset((char *)c[w] + (size_t)(i / g->n * g->ldc + i % g->n) * g->ec, 255, g->ec);
            g->call(&x, c[w], a, b, beta);
            mg_pool_free(x.pool);
            same &= !memcmp(c[0], c[w], (size_t)nc * g->ec);
        }
        double error = gemm_error(g, a, b, before, c[0], beta);
        bad |= report(name, beta ? "beta 1" : "beta 0", error, g->em == 8 ? 1e-15 : 2e-7, same);
        for (int w = 0; w < WORKERS; w++)
            free(c[w]);
    }
    free(a);
    free(b);
    free(before);
    return bad;
}

/* ==== attention =============================================================================== */

/* Plain attention in f64 on qkv [b s g r+2 e]; o [b s g r e], lse [b s g r], d like qkv. */
typedef struct {
    const attn_case *a;
    const void *x, *dy;
    const int32_t *lo;
    double *o, *lse, *d;
} Plain;

static int64_t qkv_at(const attn_case *a, int64_t b, int64_t t, int64_t g, int64_t i)
{
    return (((b * a->s + t) * a->g + g) * (a->r + 2) + i) * a->e;
}

static double dot(const attn_case *a, const void *x, int64_t i, const void *y, int64_t j)
{
    double s = 0;
    for (int64_t e = 0; e < a->e; e++)
        s += get(x, a->et, i + e) * get(y, a->et, j + e);
    return s;
}

static void plain_row(const Plain *p, int64_t b, int64_t t, int64_t g, int64_t r)
{
    const attn_case *a = p->a;
    int64_t from = 0, to = a->causal ? t + 1 : a->s, row = ((b * a->s + t) * a->g + g) * a->r + r;
    int64_t q = qkv_at(a, b, t, g, r);
    double scale = 0.7 / (double)a->e, sum = 0, total = 0, f[512], slope[512];
    if (a->window > 0 && t - a->window + 1 > from)
        from = t - a->window + 1;
    if (a->lo && p->lo[b * a->s + t] > from)
        from = p->lo[b * a->s + t];
    for (int64_t j = from; j < to; j++) {
        double s = scale * dot(a, p->x, q, p->x, qkv_at(a, b, j, g, a->r)),
               y = tanh(s / a->softcap);
        f[j] = a->softcap > 0 ? a->softcap * y : s;
        slope[j] = a->softcap > 0 ? 1 - y * y : 1;
        sum += exp(f[j]);
    }
    p->lse[row] = log(sum);
    for (int64_t j = from; j < to; j++) {
        int64_t v = qkv_at(a, b, j, g, a->r + 1);
        for (int64_t e = 0; e < a->e; e++)
            p->o[row * a->e + e] += exp(f[j]) / sum * get(p->x, a->et, v + e);
    }
    for (int64_t e = 0; e < a->e; e++)
        total += p->o[row * a->e + e] * get(p->dy, a->et, row * a->e + e);
    for (int64_t j = from; j < to; j++) {
        int64_t k = qkv_at(a, b, j, g, a->r), v = k + a->e;
        double w = exp(f[j]) / sum, dp = dot(a, p->dy, row * a->e, p->x, v);
        double ds = w * (dp - total) * slope[j] * scale;
        for (int64_t e = 0; e < a->e; e++) {
            p->d[q + e] += ds * get(p->x, a->et, k + e);
            p->d[k + e] += ds * get(p->x, a->et, q + e);
            p->d[v + e] += w * get(p->dy, a->et, row * a->e + e);
        }
    }
}

static double error_of(const double *want, const void *got, size_t e, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = get(got, e, i);
        most = worse(most, want[i] == x ? 0 : fabs(want[i] - x) / (1 + fabs(want[i])));
    }
    return most;
}

/* Documents of 5, 35 and 160 tokens; token 40 sees nothing. */
static int32_t first_key(int64_t t)
{
    return t < 5 ? 0 : t < 40 ? 5 : t < 41 ? 60 : t < 200 ? 41 : 200;
}

static int test_attn(const char *name, const attn_case *a)
{
    int64_t nl = a->b * a->s * a->g * a->r, no = nl * a->e,
            nx = a->b * a->s * a->g * (a->r + 2) * a->e;
    int same = 1, bad = 0;
    void *x = array(a->et, nx, 4, 1), *dy = array(a->et, no, 4, 2), *o[WORKERS], *lse[WORKERS];
    void *d[WORKERS];
    int32_t *lo = malloc((size_t)(a->b * a->s) * sizeof *lo);
    for (int64_t i = 0; i < a->b * a->s; i++)
        lo[i] = first_key(i % a->s);
    for (int w = 0; w < WORKERS; w++) {
        mg_ctx c = {.pool = mg_pool_new(w + 1)};
        o[w] = array(a->et, no, 0, 0);
        lse[w] = array(a->em, nl, 0, 0);
        d[w] = array(a->et, nx, 0, 0);
        a->fwd(&c, o[w], lse[w], x, lo);
        a->bwd(&c, d[w], x, o[w], lse[w], dy, lo);
        mg_pool_free(c.pool);
        same &= !memcmp(o[0], o[w], (size_t)no * a->et) && !memcmp(d[0], d[w], (size_t)nx * a->et);
        same &= !memcmp(lse[0], lse[w], (size_t)nl * a->em);
    }
    Plain p = {a, x, dy, lo, calloc((size_t)no, 8), calloc((size_t)nl, 8), calloc((size_t)nx, 8)};
    for (int64_t i = 0; i < nl; i++)
        plain_row(&p, i / (a->r * a->g * a->s), i / (a->r * a->g) % a->s, i / a->r % a->g,
                  i % a->r);
    double limit = a->et == 2 ? 2e-2 : a->et == 4 ? 2e-6 : 1e-14;
    bad |= report(name, "o", error_of(p.o, o[0], a->et, no), limit, same);
    bad |= report(name, "lse", error_of(p.lse, lse[0], a->em, nl), a->em == 4 ? 1e-6 : 1e-14, same);
    bad |= report(name, "dqkv", error_of(p.d, d[0], a->et, nx), limit, same);
    for (int w = 0; w < WORKERS; w++) {
        free(o[w]);
        free(lse[w]);
        free(d[w]);
    }
    free(p.o);
    free(p.lse);
    free(p.d);
    free(x);
    free(dy);
    free(lo);
    return bad;
}

/* ==== embedding =============================================================================== */

static int test_embed(void)
{
    enum { N = 77, WIDTH = 24, ROW = 30, ALL = 50 };
    int32_t ids[N], few[9] = {2, 0, 2, 2, -1, 0, 3, 1, 2};
    float *w = array(4, ALL * ROW, 1, 1), *dy = array(4, N * WIDTH, 1, 2),
          *y = array(4, N * WIDTH, 0, 0);
    float dw[WORKERS][ALL * ROW], sum[3 * 5];
    bf16 *wb = array(2, 15, 1, 3), *dyb = array(2, 45, 1, 4), yb[45];
    double most = 0;
    int bad = 0, same = 1;
    for (int i = 0; i < N; i++)
        ids[i] = i % 10 == 3 ? -1 : i % 10 == 7 ? 50 : i * i % 23; /* many twice, some outside */
    for (int k = 0; k < 2 * WORKERS; k++) {
        int beta = k % 2, n = k / 2;
        mg_ctx c = {.pool = mg_pool_new(n + 1)};
        if (!beta)
            memset(dw[n], 255, sizeof dw[n]);
        wide_fwd(&c, y, ids, w);
        wide_bwd(&c, dw[n], ids, dy, beta);
        small_fwd(&c, yb, few, wb);
        small_bwd(&c, sum, few, dyb);
        mg_pool_free(c.pool);
        same &= !beta || !memcmp(dw[0], dw[n], sizeof dw[n]);
    }
    for (int i = 0; i < N * WIDTH; i++) {
        int id = ids[i / WIDTH];
        most =
            worse(most, fabs((double)y[i] - (id < 0 || id >= ALL ? 0 : w[id * ROW + i % WIDTH])));
    }
    for (int id = 0; id < ALL; id++) {
        for (int j = 0; j < WIDTH; j++) {
            double s = 0;
            for (int i = 0; i < N; i++)
                s += ids[i] == id ? 2 * dy[i * WIDTH + j] : 0;
            most = worse(most, fabs(s - dw[0][id * ROW + j]));
        }
    }
    bad |= report("embed", "float", most, 1e-5, same);
    most = 0;
    for (int i = 0; i < 45; i++) {
        int id = few[i / 5];
        most =
            worse(most, fabs(get(yb, 2, i) - (id < 0 || id > 2 ? 0 : get(wb, 2, id * 5 + i % 5))));
    }
    for (int id = 0; id < 3; id++) {
        for (int j = 0; j < 5; j++) {
            double s = 0;
            for (int i = 0; i < 9; i++)
                s += few[i] == id ? get(dyb, 2, i * 5 + j) : 0;
            most = worse(most, fabs(s - sum[id * 5 + j]));
        }
    }
    bad |= report("embed", "bf16", most, 1e-6, 1);
    free(w);
    free(dy);
    free(y);
    free(wb);
    free(dyb);
    return bad;
}

int main(void)
{
#define GEMM(name)                                                                                 \
    {                                                                                              \
#name, &name##_case                                                                        \
    }
    static const struct {
        const char *name;
        const gemm_case *gemm;
    } gemm[] = {GEMM(one),    GEMM(nn),     GEMM(tn),     GEMM(nt),   GEMM(tt),    GEMM(row),
                GEMM(column), GEMM(packed), GEMM(blocks), GEMM(deep), GEMM(super), GEMM(b_tt),
                GEMM(b_main), GEMM(b_nn),   GEMM(d_nt),   GEMM(d_tn)};
    static const struct {
        const char *name;
        const attn_case *attn;
    } attn[] = {GEMM(a_one),  GEMM(a_gqa),    GEMM(a_full),  GEMM(a_window),
                GEMM(a_wide), GEMM(a_double), GEMM(a_three), GEMM(a_bf16)};
    int bad = test_pool(), n = 2;
    for (size_t i = 0; i < sizeof gemm / sizeof *gemm; i++, n++)
        bad += test_gemm(gemm[i].name, gemm[i].gemm);
    for (size_t i = 0; i < sizeof attn / sizeof *attn; i++, n++)
        bad += test_attn(attn[i].name, attn[i].attn);
    bad += test_embed();
    printf("kernels, tiles of %d rows: %d cases, %d failed\n", MG_MR, n, bad);
    return bad != 0;
}
