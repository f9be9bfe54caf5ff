/* init.c: first values of variables.
 *
 * Element i of variable P draws from Philox with key (seed, hash of P) and counter i, so a value
 * depends on nothing but the seed, the name and its place in the whole tensor: not on layout,
 * threads or order. Normal numbers are made in f32 by the polynomials of mgk.h, the same bits on
 * every machine, then scaled in f64 and rounded once to the variable's type: an f64 build starts
 * from the same weights.
 */
#include "base.h"
#include "mgk.h"

#include <string.h>

enum { PIECE = 1 << 15 }; /* elements of a part */

typedef struct {
    const mg_var *var;
    char *mem;
    uint64_t seed;
    uint32_t site;
} Fill;

uint32_t mg_path_site(const char *path)
{
    uint32_t h = 2166136261u;
    for (; *path != 0; path++)
        h = (h ^ (unsigned char)*path) * 16777619u;
    return h;
}

/* Words 0 and 1 of the Philox blocks of elements i .. i + 15: u32_rand of mgk.h for both at once.
 */
MGK void two_words(const Fill *f, uint64_t i, u32v *x, u32v *y)
{
    u32v a = (u32v)i32_iota(0) + (uint32_t)i, b = (uint32_t)(i >> 32) - (u32v)(a < (uint32_t)i);
    u32v c = {0}, d = {0};
    uint32_t k0 = (uint32_t)f->seed ^ f->site, k1 = (uint32_t)(f->seed >> 32);
    for (int round = 0; round < 10; round++) {
        u32v t = u32_mul_hi(c, 0xcd9e8d57u) ^ b ^ k0, u = u32_mul_hi(a, 0xd2511f53u) ^ d ^ k1;
        b = c * 0xcd9e8d57u;
        d = a * 0xd2511f53u;
        a = t;
        c = u;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    *x = a;
    *y = b;
}

MGK void fill_range(const Fill *f, uint64_t from, uint64_t to)
{
    const mg_var *v = f->var;
    bool uniform = v->init == MG_INIT_UNIFORM;
    double a = v->a, b = uniform ? v->b - v->a : v->b;
    for (uint64_t i = from; i < to; i += 16) {
        u32v x, y;
        two_words(f, i, &x, &y);
        f32v z = uniform ? f32_unit(x) : f32_normal(x, y);
        uint64_t n = to - i < 16 ? to - i : 16;
        if (v->dtype == MG_F32)
            for (uint64_t k = 0; k < n; k++)
                ((float *)(void *)f->mem)[i + k] = (float)(a + b * (double)z[k]);
        else
            for (uint64_t k = 0; k < n; k++)
                mg_elem_set(v->dtype, f->mem, i + k, a + b * (double)z[k]);
    }
}

/* The same text for each feature level; the bits do not depend on it. */
static void fill_plain(const Fill *f, uint64_t from, uint64_t to)
{
    fill_range(f, from, to);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void fill_avx2(const Fill *f, uint64_t from, uint64_t to)
{
    fill_range(f, from, to);
}
__attribute__((target("avx512f,avx512dq"))) static void fill_avx512(const Fill *f, uint64_t from,
                                                                    uint64_t to)
{
    fill_range(f, from, to);
}
#endif

static void fill_random(void *arg, int part)
{
    const Fill *f = arg;
    uint64_t from = (uint64_t)part * PIECE,
             to = from + PIECE < f->var->elems ? from + PIECE : f->var->elems;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
        fill_avx512(f, from, to);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        fill_avx2(f, from, to);
        return;
    }
#endif
    fill_plain(f, from, to);
}

static void fill_const(void *arg, int part)
{
    const Fill *f = arg;
    const mg_var *v = f->var;
    double a = v->init == MG_INIT_ONE ? 1 : v->a;
    uint64_t from = (uint64_t)part * PIECE, to = from + PIECE < v->elems ? from + PIECE : v->elems;
    for (uint64_t i = from; i < to; i++)
        mg_elem_set(v->dtype, f->mem, i, a);
}

/* A master copy begins as its weight, drawn anew from the weight's name and rounded to its own
 * type. */
static void var_fill(mg_ctx *c, const mg_var *v, uint64_t seed)
{
    const mg_var *source = v;
    while (source->kind == MG_MASTER && source->of >= 0)
        source = &c->model->var[source->of];
    mg_var as = *v;
    as.init = source->init;
    as.a = source->a;
    as.b = source->b;
    Fill f = {.var = &as, .mem = c->mem + v->off, .seed = seed, .site = mg_path_site(source->path)};
    uint64_t bytes = (uint64_t)mg_dtype_of(v->dtype)->bytes;
    memset(f.mem, 0, v->elems_mem * bytes);
    int parts = (int)((v->elems + PIECE - 1) / PIECE);
    if (as.init == MG_INIT_TABLE)
        v->table(f.mem, v->dim);
    else if (as.init == MG_INIT_NORMAL || as.init == MG_INIT_UNIFORM)
        mg_par(c, parts, fill_random, &f);
    else if (as.init != MG_INIT_ZERO)
        mg_par(c, parts, fill_const, &f);
}

void mg_init(mg_ctx *c, uint64_t seed)
{
    for (int32_t i = 0; i < c->model->nvar; i++)
        var_fill(c, &c->model->var[i], seed);
}

void mg_init_tables(mg_ctx *c)
{
    for (int32_t i = 0; i < c->model->nvar; i++)
        if (c->model->var[i].init == MG_INIT_TABLE)
            var_fill(c, &c->model->var[i], 0);
}

/* ---- weights that are the rounding of a master copy ----------------------------------------- */

typedef struct {
    const mg_ctx *c;
    const mg_var *master, *weight;
} Rounding;

static void round_part(void *arg, int part)
{
    const Rounding *r = arg;
    const mg_var *from = r->master, *to = r->weight;
    uint64_t i = (uint64_t)part * PIECE, end = i + PIECE < to->elems ? i + PIECE : to->elems;
    for (; i < end; i++)
        mg_elem_set(to->dtype, r->c->mem + to->off, i,
                    mg_elem_get(from->dtype, r->c->mem + from->off, i));
}

void mg_init_rounded(mg_ctx *c)
{
    const mg_model *m = c->model;
    for (int32_t i = 0; i < m->nvar; i++) {
        Rounding r = {.c = c, .master = &m->var[i]};
        if (r.master->kind != MG_MASTER || r.master->of < 0)
            continue;
        r.weight = &m->var[r.master->of];
        mg_par(c, (int)((r.weight->elems + PIECE - 1) / PIECE), round_part, &r);
    }
}
