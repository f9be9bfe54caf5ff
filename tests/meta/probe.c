/* probe.c: a generated model on a batch of a test's own making. Linked with the objects of a
 * generated folder. Its words are a program, obeyed from left to right:
 *
 *   seed=N              first values anew (N = 1 before the first word)
 *   fill=X              every weight uniform in [-X, X), by path and index: equal indices of two
 *                       models have equal values, whatever the sizes of their dims. Norms: 1 + that
 *   set=PATH:X          a weight is X everywhere; PATH may end in *
 *   scale=PATH:X        a weight is multiplied by X
 *   cut=DIM:N           from here on indices N and above of that dim are zero in `fill`, and absent
 *                       from dumps
 *   ids=N:X             tokens are X times a number below N
 *   rows=I,J,...        the global batch is made of these rows, over and over
 *   starts=I,J,...      its rows are windows of one stream that begin there
 *   mask=ROW:FROM:TO    no targets there, TO excluded; ROW may be *
 *   micros=N gscale=X lr=X wd=X clip=X step=N    (gscale 0: 1 / targets, as the trainer does)
 *   nan, ones           the regions that a step must write first, filled with NaN or with ones
 *   run, eval, upd      forward and backward of all micro batches; their loss only; the update
 *   say                 prints loss_sum, count, gnorm
 *   unit=X              dumps are multiplied by X
 *   grads=FILE weights=FILE    safetensors
 *   touched=PATH        prints which rows (first index) of a variable are not all zero
 *   padding             prints the largest number in memory behind the elements of a variable
 *   slope               prints the order at which differences in one direction reach the gradient,
 *   wrong=X             which is too large by that share
 *   adamw               `upd`, and the worst error of a weight against the formula, in ulp of f32
 *   rope=THETA:SCALING  prints the worst error of the tables rope.cos and rope.sin; none, llama3 or
 *                       yarn, by 8 from a context of 8192
 *   facts               prints parameters and FLOPs per token
 */
#include "base.h"
#include "mg.h"
#include "pool.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST = 64, MASKS = 64 };

typedef struct {
    int n;
    long at[LIST];
} List;

typedef struct {
    long row, from, to;
} Mask;

typedef struct {
    char dim[16];
    int64_t n;
} Cut;

typedef struct {
    mg_ctx c;
    List rows, starts;
    Mask mask[MASKS];
    Cut cut[8];
    int nmask, ncut, micros;
    long ids, times;
    double gscale, unit, wrong;
    double beta1, beta2, eps; /* of the formula in `adamw` */
} Probe;

static void die(const char *why, const char *what)
{
    fprintf(stderr, "probe: %s: %s\n", why, what);
    exit(2);
}

/* ---- variables ------------------------------------------------------------------------------- */

static bool matches(const char *path, const char *pattern)
{
    size_t n = strlen(pattern);
    path += *path == '/';
    return n && pattern[n - 1] == '*' ? !strncmp(path, pattern, n - 1) : !strcmp(path, pattern);
}

static const mg_var *find(const Probe *p, const char *path)
{
    for (int32_t i = 0; i < p->c.model->nvar; i++)
        if (matches(p->c.model->var[i].path, path))
            return &p->c.model->var[i];
    die("no variable", path);
    return NULL;
}

static double get(const Probe *p, const mg_var *v, uint64_t i)
{
    return mg_elem_get(v->dtype, p->c.mem + v->off, i);
}

static void set(Probe *p, const mg_var *v, uint64_t i, double x)
{
    mg_elem_set(v->dtype, p->c.mem + v->off, i, x);
}

static double metric(const Probe *p, const char *name)
{
    return get(p, find(p, name), 0);
}

/* A number in [-1, 1) that depends on nothing but its arguments. */
static double noise(uint32_t site, const int64_t *at, int rank)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ site;
    for (int d = 0; d < rank; d++) {
        h = (h ^ (uint64_t)at[d]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    h = (h ^ (h >> 29)) * 0xc4ceb9fe1a85ec53u;
    return (double)(h >> 40) / 8388608.0 - 1;
}

/* The index of element i, dim by dim; false if it lies behind a cut. */
static bool index_of(const Probe *p, const mg_var *v, uint64_t i, int64_t *at)
{
    bool in = true;
    const char *name[8] = {v->dims};
    for (int d = 1; d < v->rank; d++)
        name[d] = strchr(name[d - 1], ' ') + 1;
    for (int d = v->rank - 1; d >= 0; d--) {
        at[d] = (int64_t)(i % (uint64_t)v->dim[d]);
        i /= (uint64_t)v->dim[d];
        size_t n = strcspn(name[d], " ");
        for (int k = 0; k < p->ncut; k++)
            if (strlen(p->cut[k].dim) == n && !strncmp(p->cut[k].dim, name[d], n))
                in = in && at[d] < p->cut[k].n;
    }
    return in;
}

/* Types of lower precision see the same numbers: they are rounded to eleven bits. */
static void fill(Probe *p, double size)
{
    int64_t at[8];
    for (int32_t i = 0; i < p->c.model->nvar; i++) {
        const mg_var *v = &p->c.model->var[i];
        for (uint64_t e = 0; v->kind == MG_WEIGHT && e < v->elems; e++) {
            bool in = index_of(p, v, e, at);
            double x = rint(noise(mg_path_site(v->path), at, v->rank) * 128) / 128 * size;
            set(p, v, e, in ? x + (v->init == MG_INIT_ONE) : 0);
        }
    }
}

static void change(Probe *p, const char *word, bool scale)
{
    char path[256] = "";
    double x = 0;
    int n = 0;
    if (sscanf(word, "%255[^:]:%lf", path, &x) != 2)
        die("PATH:NUMBER is expected", word);
    for (int32_t i = 0; i < p->c.model->nvar; i++) {
        const mg_var *v = &p->c.model->var[i];
        if (v->kind != MG_WEIGHT || !matches(v->path, path))
            continue;
        n++;
        for (uint64_t e = 0; e < v->elems; e++)
            set(p, v, e, scale ? get(p, v, e) * x : x);
    }
    if (!n)
        die("no weight", path);
}

/* ---- the batch ------------------------------------------------------------------------------- */

static long token(const Probe *p, long row, long pos)
{
    int64_t at[2] = {row, pos};
    if (p->starts.n) {
        at[0] = 0;
        at[1] = pos + p->starts.at[row % p->starts.n];
    } else if (p->rows.n) {
        at[0] = p->rows.at[row % p->rows.n];
    }
    double x = (noise(17, at, 2) + 1) / 2;
    return (long)(x * (double)p->ids) * p->times;
}

static bool masked(const Probe *p, long row, long pos)
{
    for (int k = 0; k < p->nmask; k++) {
        const Mask *m = &p->mask[k];
        if ((m->row < 0 || m->row == row) && pos >= m->from && pos < m->to)
            return true;
    }
    return false;
}

static long count(const Probe *p)
{
    long n = 0;
    for (long row = 0; row < (long)p->micros * p->c.model->micro; row++)
        for (long t = 0; t < p->c.model->seq; t++)
            n += !masked(p, row, t);
    return n;
}

static void batch(Probe *p, int micro)
{
    const mg_model *m = p->c.model;
    for (int32_t i = 0; i < m->nio; i++) {
        int32_t *to = (int32_t *)(p->c.mem + m->io[i].off);
        bool tokens = !strcmp(m->io[i].name, "tokens");
        if (!tokens && strcmp(m->io[i].name, "targets"))
            continue;
        for (long r = 0; r < m->micro; r++) {
            for (long t = 0; t < m->seq; t++) {
                long row = (long)micro * m->micro + r, id = token(p, row, tokens ? t : t + 1);
                to[r * m->seq + t] = !tokens && masked(p, row, t) ? -1 : (int32_t)id;
            }
        }
    }
}

static void all(Probe *p, bool backward)
{
    mg_scalar *s = &p->c.scalar;
    long targets = count(p);
    s->gscale = p->gscale != 0 ? p->gscale : targets ? 1.0 / (double)targets : 0;
    s->micros = p->micros;
    set(p, find(p, "loss_sum"), 0, 0);
    set(p, find(p, "count"), 0, 0);
    for (int i = 0; i < p->micros; i++) {
        s->micro = i;
        s->sample = (int64_t)i * p->c.model->micro;
        batch(p, i);
        if (backward) {
            p->c.model->fwd(&p->c);
            p->c.model->bwd(&p->c);
        } else {
            p->c.model->eval(&p->c);
        }
    }
}

/* ---- what is written ------------------------------------------------------------------------- */

static int64_t kept(const Probe *p, const mg_var *v, int d)
{
    const char *name = v->dims;
    for (int k = 0; k < d; k++)
        name = strchr(name, ' ') + 1;
    size_t n = strcspn(name, " ");
    for (int k = 0; k < p->ncut; k++)
        if (strlen(p->cut[k].dim) == n && !strncmp(p->cut[k].dim, name, n))
            return p->cut[k].n < v->dim[d] ? p->cut[k].n : v->dim[d];
    return v->dim[d];
}

/* All variables of a kind, as F64. */
static void dump(const Probe *p, const char *path, mg_var_kind kind)
{
    const mg_model *m = p->c.model;
    mg_text head = {0}, data = {0};
    for (int32_t i = 0; i < m->nvar; i++) {
        const mg_var *v = &m->var[i];
        int64_t at[8];
        if (v->kind != kind)
            continue;
        mg_text_printf(&head, "%s\"%s\":{\"dtype\":\"F64\",\"shape\":[", head.n ? "," : "{",
                       v->path + (*v->path == '/'));
        for (int d = 0; d < v->rank; d++)
            mg_text_printf(&head, "%s%lld", d ? "," : "", (long long)kept(p, v, d));
        size_t from = data.n;
        for (uint64_t e = 0; e < v->elems; e++) {
            double x = get(p, v, e) * p->unit;
            if (index_of(p, v, e, at))
                mg_text_add(&data, &x, sizeof x);
        }
        mg_text_printf(&head, "],\"data_offsets\":[%zu,%zu]}", from, data.n);
    }
    mg_text_printf(&head, "}");
    uint64_t n = head.n;
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(&n, 8, 1, f) != 1 || fwrite(head.p, head.n, 1, f) != 1 ||
        fwrite(data.p, data.n, 1, f) != 1 || fclose(f))
        die("cannot be written", path);
    mg_text_free(&head);
    mg_text_free(&data);
}

static void touched(const Probe *p, const char *path)
{
    const mg_var *v = find(p, path);
    uint64_t line = v->elems / (uint64_t)v->dim[0];
    for (uint64_t r = 0; r < (uint64_t)v->dim[0]; r++) {
        bool any = false;
        for (uint64_t e = 0; e < line; e++)
            any |= get(p, v, r * line + e) != 0;
        if (any)
            printf("%llu ", (unsigned long long)r);
    }
    putchar('\n');
}

static void padding(const Probe *p)
{
    double most = 0;
    uint64_t n = 0;
    for (int32_t i = 0; i < p->c.model->nvar; i++) {
        const mg_var *v = &p->c.model->var[i];
        for (uint64_t e = v->elems; e < v->elems_mem; e++, n++)
            most = fmax(most, get(p, v, e) == 0 ? 0 : INFINITY);
    }
    printf("%llu %g\n", (unsigned long long)n, most);
}

/* ---- oracles --------------------------------------------------------------------------------- */

static void move(Probe *p, double by)
{
    int64_t at[8];
    for (int32_t i = 0; i < p->c.model->nvar; i++) {
        const mg_var *v = &p->c.model->var[i];
        for (uint64_t e = 0; v->kind == MG_WEIGHT && e < v->elems; e++) {
            index_of(p, v, e, at);
            set(p, v, e, get(p, v, e) + by * noise(mg_path_site(v->path) + 1, at, v->rank));
        }
    }
}

static double loss_at(Probe *p, double by)
{
    move(p, by);
    all(p, true); /* what is trained: dropout draws the same each time */
    move(p, -by);
    return metric(p, "loss_sum") * p->c.scalar.gscale;
}

/* A norm of few elements bends within the root of its eps, 3e-3: steps stay far below. */
static void slope(Probe *p)
{
    double along = 0, h = 2e-5, error[5];
    int64_t at[8];
    all(p, true);
    for (int32_t i = 0; i < p->c.model->nvar; i++) {
        const mg_var *g = &p->c.model->var[i];
        const mg_var *w = g->kind == MG_ACCUM ? &p->c.model->var[g->of] : NULL;
        for (uint64_t e = 0; w && e < g->elems; e++) {
            index_of(p, w, e, at);
            along += get(p, g, e) * noise(mg_path_site(w->path) + 1, at, w->rank);
        }
    }
    along *= 1 + p->wrong;
    for (int i = 0; i < 5; i++, h *= 2)
        error[i] = fabs((loss_at(p, h) - loss_at(p, -h)) / (2 * h) - along);
    for (int i = 1; i < 5; i++)
        printf("%.3f ", log2(error[i] / error[i - 1]));
    printf("of %g\n", along);
}

static const mg_var *belonging(const Probe *p, const mg_var *w, const char *suffix)
{
    char path[512];
    snprintf(path, sizeof path, "%s.%s", w->path + (*w->path == '/'), suffix);
    return find(p, path);
}

static double adam(const Probe *p, double w, double g, double m, double v, double wd)
{
    const mg_scalar *s = &p->c.scalar;
    const double b1 = p->beta1, b2 = p->beta2;
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    double mhat = m / (1 - pow(b1, s->step)), vhat = v / (1 - pow(b2, s->step));
    return w - s->lr * (mhat / (sqrt(vhat) + p->eps) + wd * w);
}

/* The weights as the formula of AdamW has them, computed here in f64 from what is in memory,
 * against those after `upd`. An ulp is that of the largest of old weight, new weight and step. */
static void adamw(Probe *p)
{
    const mg_model *m = p->c.model;
    double norm = 0, worst = 0, **want = calloc((size_t)m->nvar, sizeof *want);
    for (int32_t i = 0; i < m->nvar; i++)
        for (uint64_t e = 0; m->var[i].kind == MG_ACCUM && e < m->var[i].elems; e++)
            norm += pow(get(p, &m->var[i], e), 2);
    norm = sqrt(norm);
    double clip = p->c.scalar.clip, coef = clip > 0 ? fmin(1, clip / (norm + 1e-6)) : 1;
    for (int32_t i = 0; i < m->nvar; i++) {
        const mg_var *w = &m->var[i];
        if (w->kind != MG_WEIGHT)
            continue;
        const mg_var *g = belonging(p, w, "grad"), *m1 = belonging(p, w, "m"),
                     *m2 = belonging(p, w, "v");
        want[i] = malloc(w->elems * sizeof **want);
        for (uint64_t e = 0; e < w->elems; e++)
            want[i][e] = adam(p, get(p, w, e), get(p, g, e) * coef, get(p, m1, e), get(p, m2, e),
                              w->decay ? p->c.scalar.wd : 0);
    }
    m->upd(&p->c);
    for (int32_t i = 0; i < m->nvar; i++) {
        const mg_var *w = &m->var[i];
        for (uint64_t e = 0; want[i] && e < w->elems; e++) {
            double ulp = fmax(fabs(want[i][e]), p->c.scalar.lr) * 0x1p-23;
            worst = fmax(worst, fabs(get(p, w, e) - want[i][e]) / ulp);
        }
        free(want[i]);
    }
    free(want);
    printf("%.3g ulp, norm %.17g ~ %.17g, factor %.3g\n", worst, metric(p, "gnorm"), norm, coef);
}

/* Frequency i of a head of 2 * half by the published formulas, in the terms of the Llama-3.1 and
 * YaRN configurations; the context was `orig` before, `factor` times that now. */
static long double frequency(const char *kind, long double theta, long double i, long double half)
{
    const long double orig = 8192, factor = 8, turn = 2 * acosl(-1);
    long double f = powl(theta, -i / half), wave = turn / f;
    if (!strcmp(kind, "llama3")) {
        if (wave < orig / 4)
            return f;
        if (wave > orig)
            return f / factor;
        long double smooth = (orig / wave - 1) / 3;
        return (1 - smooth) * f / factor + smooth * f;
    }
    if (!strcmp(kind, "yarn")) {
        long double low = fmaxl(0, floorl(half * logl(orig / (32 * turn)) / logl(theta)));
        long double high = fminl(2 * half - 1, ceill(half * logl(orig / turn) / logl(theta)));
        long double ramp = fminl(1, fmaxl(0, (i - low) / (high - low)));
        return f / factor * ramp + f * (1 - ramp);
    }
    return f;
}

/* Prints the worst error, and whether no two neighbours of the fastest pair are the same. */
static void rope(const Probe *p, const char *what)
{
    char kind[16] = "none";
    double theta = 0, worst = 0;
    if (sscanf(what, "%lf:%15s", &theta, kind) < 1)
        die("THETA or THETA:SCALING is expected", what);
    long double scale = strcmp(kind, "yarn") ? 1 : 0.1L * logl(8) + 1;
    bool distinct = true;
    const mg_var *v[2] = {find(p, "rope.cos"), find(p, "rope.sin")};
    int64_t half = v[0]->dim[1];
    for (int64_t h = 0; h < half; h++) {
        long double f = frequency(kind, theta, h, half);
        for (int64_t t = 0; t < v[0]->dim[0]; t++) {
            uint64_t e = (uint64_t)(t * half + h), last = e - (uint64_t)half;
            worst = fmax(worst, fabs(get(p, v[0], e) - (double)(scale * cosl((long double)t * f))));
            worst = fmax(worst, fabs(get(p, v[1], e) - (double)(scale * sinl((long double)t * f))));
            distinct &= h || !t || get(p, v[0], e) != get(p, v[0], last) ||
                        get(p, v[1], e) != get(p, v[1], last);
        }
    }
    printf("%.3g %s\n", worst, distinct ? "distinct" : "repeated");
}

/* ---- words ----------------------------------------------------------------------------------- */

static List list(const char *s)
{
    List l = {0};
    for (char *end; *s && l.n < LIST; s = *end ? end + 1 : end)
        l.at[l.n++] = strtol(s, &end, 10);
    return l;
}

static void add_mask(Probe *p, const char *s)
{
    Mask m = {-1, 0, 0};
    if (p->nmask == MASKS || (*s == '*' ? sscanf(s, "*:%ld:%ld", &m.from, &m.to) + 1
                                        : sscanf(s, "%ld:%ld:%ld", &m.row, &m.from, &m.to)) != 3)
        die("ROW:FROM:TO is expected", s);
    p->mask[p->nmask++] = m;
}

static void flood(Probe *p, bool nan)
{
    for (int r = MG_SAVED; r <= MG_SCRATCH; r++) {
        mg_region region = p->c.model->region[r];
        if (nan)
            mg_poison(&p->c, (mg_region_kind)r);
        else
            memset(p->c.mem + region.off, 1, region.bytes);
    }
    for (int32_t i = 0; i < p->c.model->nvar; i++) {
        const mg_var *v = &p->c.model->var[i];
        for (uint64_t e = 0; v->kind == MG_ACCUM && e < v->elems; e++)
            set(p, v, e, nan ? NAN : 1);
    }
}

static bool setting(Probe *p, const char *word, const char *x)
{
    mg_scalar *s = &p->c.scalar;
    const struct {
        const char *name;
        double *to;
    } number[] = {{"gscale=", &p->gscale}, {"unit=", &p->unit},   {"lr=", &s->lr},
                  {"wrong=", &p->wrong},   {"wd=", &s->wd},       {"clip=", &s->clip},
                  {"step=", &s->step},     {"beta1=", &p->beta1}, {"beta2=", &p->beta2},
                  {"eps=", &p->eps}};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        if (!strncmp(word, number[i].name, strlen(number[i].name))) {
            *number[i].to = strtod(x, NULL);
            return true;
        }
    }
    if (!strncmp(word, "micros=", 7))
        p->micros = atoi(x);
    else if (!strncmp(word, "rows=", 5))
        p->rows = list(x);
    else if (!strncmp(word, "starts=", 7))
        p->starts = list(x);
    else if (!strncmp(word, "mask=", 5))
        add_mask(p, x);
    else if (!strncmp(word, "cut=", 4))
        sscanf(x, "%15[^:]:%ld", p->cut[p->ncut].dim, &p->cut[p->ncut].n), p->ncut++;
    else if (!strncmp(word, "ids=", 4))
        sscanf(x, "%ld:%ld", &p->ids, &p->times);
    else
        return false;
    return true;
}

static void act(Probe *p, const char *word, const char *x)
{
    if (!strncmp(word, "seed=", 5))
        mg_init(&p->c, strtoull(x, NULL, 10));
    else if (!strncmp(word, "fill=", 5))
        fill(p, strtod(x, NULL));
    else if (!strncmp(word, "set=", 4) || !strncmp(word, "scale=", 6))
        change(p, x, word[1] == 'c');
    else if (!strcmp(word, "nan") || !strcmp(word, "ones"))
        flood(p, *word == 'n');
    else if (!strcmp(word, "run") || !strcmp(word, "eval"))
        all(p, *word == 'r');
    else if (!strcmp(word, "upd"))
        p->c.model->upd(&p->c);
    else if (!strcmp(word, "say"))
        printf("%.17g %.17g %.17g\n", metric(p, "loss_sum"), metric(p, "count"),
               metric(p, "gnorm"));
    else if (!strncmp(word, "grads=", 6) || !strncmp(word, "weights=", 8))
        dump(p, x, *word == 'g' ? MG_ACCUM : MG_WEIGHT);
    else if (!strncmp(word, "touched=", 8))
        touched(p, x);
    else if (!strcmp(word, "padding"))
        padding(p);
    else if (!strcmp(word, "slope"))
        slope(p);
    else if (!strcmp(word, "adamw"))
        adamw(p);
    else if (!strncmp(word, "rope=", 5))
        rope(p, x);
    else if (!strcmp(word, "facts"))
        printf("%llu %.17g\n", (unsigned long long)p->c.model->params, p->c.model->flops_token);
    else
        die("an unknown word", word);
}

int main(int argc, char **argv)
{
    Probe p = {.c.model = mg_model_get(),
               .micros = 1,
               .times = 1,
               .unit = 1,
               .beta1 = 0.9,
               .beta2 = 0.95,
               .eps = 1e-8};
    p.ids = p.c.model->vocab;
    if (mg_arena_map(p.c.model->arena_bytes, &p.c.mem))
        return 6;
    p.c.pool = mg_pool_new(mg_pool_size());
    p.c.scalar = (mg_scalar){.step = 1, .lr = 1e-3, .seed = 5};
    mg_init(&p.c, 1);
    mg_init_tables(&p.c);
    for (int i = 1; i < argc; i++) {
        const char *x = strchr(argv[i], '=');
        x = x ? x + 1 : "";
        if (!setting(&p, argv[i], x))
            act(&p, argv[i], x);
    }
    mg_pool_free(p.c.pool);
    mg_arena_unmap(p.c.mem, p.c.model->arena_bytes);
    return 0;
}
