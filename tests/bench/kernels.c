/* bench/kernels.c: rates of the CPU kernels as shares of what this machine can do.
 *
 * usage: MG_THREADS=N kernels [PART OF A NAME]
 * Measures the peak of fma on registers and the rate of a copy first, by the same workers, then
 * every shape: GFLOP/s and its share of the peak. Best of several repeats in one process. Arrays
 * lie in one mapping on huge pages, as in a trainer.
 */
#include "mg.h"
#include "pool.h"
#include "pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

typedef struct {
    void (*call)(mg_ctx *c, void *y, const void *a, const void *b, int beta);
    int64_t m, n, k;
    int ta, tb;
    int64_t lda, ldb, ldc;
    size_t ea, eb, ec, em; /* bytes of an element of A, B, C and of the arithmetic           */
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

#include "shapes.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef float vec __attribute__((vector_size(MG_VECTOR)));
enum { CHAINS = MG_VECTOR == 64 ? 24 : 12, PEAK_STEPS = 20000 };

static void peak_part(void *arg, int part)
{
    vec acc[CHAINS] = {0}, x = {0}, y = {0};
    x += 1.0000001f;
    y += 0.9999999f;
    __asm__ volatile("" : "+x"(x), "+x"(y));
    for (int i = 0; i < CHAINS; i++) {
        acc[i] += (float)i; /* equal chains would be merged */
        __asm__ volatile("" : "+m"(acc[i]));
    }
    for (int s = 0; s < PEAK_STEPS; s++) {
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 24
#endif
        for (int i = 0; i < CHAINS; i++)
            acc[i] = acc[i] * x + y;
    }
    for (int i = 1; i < CHAINS; i++)
        acc[0] += acc[i];
    ((float *)arg)[part * 16] = acc[0][0];
}

static double peak(mg_ctx *c, int workers)
{
    float *sink = aligned_alloc(64, (size_t)workers * 64);
    double best = 1e30;
    for (int r = 0; r < 400; r++) {
        double t = now();
        mg_par(c, workers, peak_part, sink);
        t = now() - t;
        best = t < best ? t : best;
    }
    free(sink);
    return 2.0 * CHAINS * (MG_VECTOR / 4) * PEAK_STEPS * workers / best * 1e-9;
}

typedef struct {
    char *to;
    const char *from;
    size_t bytes;
    int parts;
} copy_arg;

static void copy_part(void *arg, int part)
{
    const copy_arg *a = arg;
    size_t n = a->bytes / (size_t)a->parts;
    memcpy(a->to + n * (size_t)part, a->from + n * (size_t)part, n);
}

static double copy_rate(mg_ctx *c, char *mem, size_t bytes)
{
    copy_arg a = {mem, mem + bytes, bytes, 16};
    double best = 1e30;
    for (int r = 0; r < 8; r++) {
        double t = now();
        mg_par(c, a.parts, copy_part, &a);
        t = now() - t;
        best = t < best ? t : best;
    }
    return 2.0 * (double)bytes / best * 1e-9;
}

static void fill(void *p, size_t e, int64_t n)
{
    uint64_t s = 1;
    for (int64_t i = 0; i < n; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        double v = (double)(s >> 40) / 16777216.0 - 0.5;
        if (e == 2)
            ((bf16 *)p)[i] = mg_put_bf16_float((float)v);
        else if (e == 4)
            ((float *)p)[i] = (float)v;
        else
            ((double *)p)[i] = v;
    }
}

static double gemm_rate(mg_ctx *c, const gemm_case *g, char *mem)
{
    int64_t na = (g->ta ? g->k : g->m) * g->lda, nb = (g->tb ? g->n : g->k) * g->ldb;
    char *a = mem, *b = a + (((size_t)na * g->ea + 4095) & ~(size_t)4095);
    char *y = b + (((size_t)nb * g->eb + 4095) & ~(size_t)4095);
    fill(a, g->ea, na);
    fill(b, g->eb, nb);
    memset(y, 0, (size_t)(g->m * g->ldc) * g->ec);
    double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k, best = 1e30, spent = 0;
    for (int r = 0; r < 2000 && (r < 5 || spent < 0.3); r++) {
        double t = now();
        g->call(c, y, a, b, 0);
        t = now() - t;
        spent += t;
        best = t < best ? t : best;
    }
    return flops / best * 1e-9;
}

/* Rates of forward and backward, counting what a causal row sees: 4 and 10 operations a key and
 * element. */
static void attn_rate(mg_ctx *c, const attn_case *a, float *mem, double *fwd, double *bwd)
{
    int64_t no = a->b * a->s * a->g * a->r * a->e, nx = no / a->r * (a->r + 2);
    float *x = mem, *d = x + nx, *o = d + nx, *dy = o + no, *lse = dy + no;
    double seen = (double)no * (double)(a->s + 1) / 2, best[2] = {1e30, 1e30}, spent = 0;
    fill(x, 4, nx);
    fill(dy, 4, no);
    for (int r = 0; r < 2000 && (r < 5 || spent < 0.4); r++) {
        double t0 = now();
        a->fwd(c, o, lse, x, NULL);
        double t1 = now();
        a->bwd(c, d, x, o, lse, dy, NULL);
        double t2 = now();
        spent += t2 - t0;
        best[0] = t1 - t0 < best[0] ? t1 - t0 : best[0];
        best[1] = t2 - t1 < best[1] ? t2 - t1 : best[1];
    }
    *fwd = 4 * seen / best[0] * 1e-9;
    *bwd = 10 * seen / best[1] * 1e-9;
}

int main(int argc, char **argv)
{
    size_t bytes = (size_t)1 << 30, huge = 2 << 20;
    char *map =
        mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    char *mem = (char *)(((uintptr_t)map + huge - 1) & ~(uintptr_t)(huge - 1));
    madvise(mem, bytes, MADV_HUGEPAGE);
    int workers = mg_pool_size();
    mg_ctx c = {.mem = mem, .pool = mg_pool_new(workers)};
    if (c.pool == NULL) {
        perror("pool");
        return 1;
    }
    double top = peak(&c, workers);
    printf("%d workers   fma peak %.1f GFLOP/s   copy %.1f GB/s\n", workers, top,
           copy_rate(&c, mem, (size_t)256 << 20));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const gemm_case *g = shapes[i].gemm;
        if (argc > 1 && strstr(shapes[i].name, argv[1]) == NULL)
            continue;
        double rate = gemm_rate(&c, g, mem);
        printf("%-26s M %5d N %5d K %5d %c%c %7.1f GFLOP/s %5.1f %%\n", shapes[i].name, (int)g->m,
               (int)g->n, (int)g->k, g->ta ? 't' : '-', g->tb ? 't' : '-', rate,
               100 * rate / (g->em == 8 ? top / 2 : top));
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double fwd, bwd;
        if (argc > 1 && strstr(rows[i].name, argv[1]) == NULL)
            continue;
        attn_rate(&c, rows[i].attn, (float *)mem, &fwd, &bwd);
        printf("%-26s forward %7.1f GFLOP/s %5.1f %%   backward %7.1f GFLOP/s %5.1f %%\n",
               rows[i].name, fwd, 100 * fwd / top, bwd, 100 * bwd / top);
    }
    mg_pool_free(c.pool);
    munmap(map, bytes + huge);
    return 0;
}
