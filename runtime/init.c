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

enum {
    PIECE = 1 << 15
}; /* elements of a part                                                     */

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

/* 16 numbers of the standard form of `init` from element i on. */
static f32v draw(const Fill *f, uint64_t i)
{
    u32v a = u32_rand(f->seed, f->site, i, 0, 0);
    if (f->var->init == MG_INIT_UNIFORM)
        return f32_unit(a);
    return f32_normal(a, u32_rand(f->seed, f->site, i, 0, 1));
}

static void fill_random(void *arg, int part)
{
    const Fill *f = arg;
    const mg_var *v = f->var;
    double a = v->a, b = v->init == MG_INIT_UNIFORM ? v->b - v->a : v->b;
    uint64_t from = (uint64_t)part * PIECE, to = from + PIECE < v->elems ? from + PIECE : v->elems;
    for (uint64_t i = from; i < to; i += 16) {
        f32v x = draw(f, i);
        for (uint64_t k = 0; k < 16 && i + k < to; k++)
            mg_elem_set(v->dtype, f->mem, i + k, a + b * (double)x[k]);
    }
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
