/* grad_check.c: the gradient of a generated model against central differences of its own loss.
 *
 *     grad_check [-p] [-d FILE] [-n PROBES]
 *
 * Weights are the initial ones plus noise, tokens random, one target masked. For each weight a few
 * elements are moved; the change of the evaluated loss must be the gradient, relative to the
 * largest one of its tensor (f64 builds: 1e-5). -p fills the arena with NaN first: the bytes of -d
 * must not change. -d writes loss and gradients. Linked with the objects of out/NAME.
 */
#include "base.h"
#include "mg.h"
#include "pool.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    mg_ctx c;
    uint64_t random;
} Check;

static double uniform(Check *k) /* xorshift: the same on every machine */
{
    k->random ^= k->random << 13;
    k->random ^= k->random >> 7;
    k->random ^= k->random << 17;
    return (double)(k->random >> 11) / 9007199254740992.0;
}

static const mg_var *find(const Check *k, const char *path)
{
    for (int32_t i = 0; i < k->c.model->nvar; i++) {
        const char *p = k->c.model->var[i].path;
        if (!strcmp(p + (*p == '/'), path)) {
            return &k->c.model->var[i];
        }
    }
    fprintf(stderr, "no variable %s\n", path);
    exit(1);
}

static double get(const Check *k, const mg_var *v, uint64_t i)
{
    const char *p = k->c.mem + v->off;
    return v->dtype == MG_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static void set(Check *k, const mg_var *v, uint64_t i, double x)
{
    char *p = k->c.mem + v->off;
    if (v->dtype == MG_F64) {
        ((double *)p)[i] = x;
    } else {
        ((float *)p)[i] = (float)x;
    }
}

static double loss_at(Check *k)
{
    const mg_var *loss = find(k, "loss_sum");
    set(k, loss, 0, 0);
    k->c.model->eval(&k->c);
    return get(k, loss, 0);
}

static void fill(Check *k)
{
    const mg_model *m = k->c.model;
    for (int32_t i = 0; i < m->nvar; i++) {
        const mg_var *v = &m->var[i];
        for (uint64_t e = 0; v->kind == MG_WEIGHT && e < v->elems; e++) {
            set(k, v, e, get(k, v, e) + 0.2 * (uniform(k) - 0.5));
        }
    }
    for (int32_t i = 0; i < m->nio; i++) {
        int32_t *p = (int32_t *)(k->c.mem + m->io[i].off);
        for (int32_t t = 0; m->io[i].dtype == MG_I32 && t < m->micro * m->seq; t++) {
            p[t] = (int32_t)(uniform(k) * m->vocab);
        }
        if (!strcmp(m->io[i].name, "targets")) {
            p[3] = -1;
        }
    }
}

/* Largest error over the largest difference seen. */
static double probe(Check *k, const mg_var *w, int probes)
{
    char path[512];
    snprintf(path, sizeof path, "%s.grad", w->path);
    const mg_var *grad = find(k, path);
    const double h = 1e-5;
    double error = 0, most = 1e-9;
    for (int n = 0; n < probes; n++) {
        uint64_t e = (uint64_t)(uniform(k) * (double)w->elems);
        double x = get(k, w, e);
        set(k, w, e, x + h);
        double up = loss_at(k);
        set(k, w, e, x - h);
        double slope = (up - loss_at(k)) / (2 * h);
        set(k, w, e, x);
        error = fmax(error, fabs(slope - get(k, grad, e)));
        most = fmax(most, fabs(slope));
    }
    /* a gradient that is zero in theory, such as that of a key bias, is noise on both sides */
    return error < 1e-7 ? 0 : error / most;
}

static void dump(Check *k, const char *path, double loss)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(&loss, sizeof loss, 1, f) != 1) {
        exit(7);
    }
    for (int32_t i = 0; i < k->c.model->nvar; i++) {
        const mg_var *v = &k->c.model->var[i];
        uint64_t bytes = v->elems * (v->dtype == MG_F64 ? 8 : 4);
        if (v->kind == MG_ACCUM && fwrite(k->c.mem + v->off, 1, bytes, f) != bytes) {
            exit(7);
        }
    }
    fclose(f);
}

int main(int argc, char **argv)
{
    Check k = {.random = 88172645463325252ull, .c.model = mg_model_get()};
    const char *out = NULL;
    int probes = 0;
    bool poison = false;
    for (int i = 1; i < argc; i++) {
        poison |= !strcmp(argv[i], "-p");
        out = !strcmp(argv[i], "-d") && i + 1 < argc ? argv[++i] : out;
        probes = !strcmp(argv[i], "-n") && i + 1 < argc ? atoi(argv[++i]) : probes;
    }
    if (mg_arena_map(k.c.model->arena_bytes, &k.c.mem)) {
        return 6;
    }
    for (int r = 0; r < MG_NREGION && poison; r++) {
        mg_poison(&k.c, (mg_region_kind)r);
    }
    k.c.pool = mg_pool_new(2);
    k.c.scalar = (mg_scalar){.step = 1, .gscale = 1, .lr = 1e-3, .seed = 5};
    mg_init(&k.c, 1);
    mg_init_tables(&k.c);
    fill(&k);
    set(&k, find(&k, "loss_sum"), 0, 0);
    set(&k, find(&k, "count"), 0, 0);
    k.c.model->fwd(&k.c);
    k.c.model->bwd(&k.c);
    double loss = get(&k, find(&k, "loss_sum"), 0);
    printf("loss %.17g count %g\n", loss, get(&k, find(&k, "count"), 0));
    if (out) {
        dump(&k, out, loss);
    }
    int bad = 0;
    for (int32_t i = 0; i < k.c.model->nvar && probes; i++) {
        const mg_var *w = &k.c.model->var[i];
        double rel = w->kind == MG_WEIGHT ? probe(&k, w, probes) : 0;
        if (!(rel <= 1e-5)) {
            printf("%s: the gradient differs by %.1e from the slope of the loss\n", w->path, rel);
            bad++;
        }
    }
    mg_pool_free(k.c.pool);
    mg_arena_unmap(k.c.mem, k.c.model->arena_bytes);
    return bad > 0;
}
