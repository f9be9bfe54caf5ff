/* schedule.c: schedules as tables of functions. See schedule.h; the formulas are those of
 * Megatron-LM's optimizer parameter scheduler. */
#include "schedule.h"

#include <math.h>
#include <string.h>

typedef struct {
    const char *name;
    double (*share)(const mg_sched *s,
                    double n); /* of the way from least to lr, n after the warm-up */
} Style;

typedef struct {
    const char *name;
    double (*at)(double r); /* 1 at r = 0, 0 at r = 1 */
} Shape;

static double shape_linear(double r)
{
    return 1 - r;
}
static double shape_cosine(double r)
{
    return 0.5 * (1 + cos(M_PI * r));
}
static double shape_exponential(double r)
{
    return 2 * pow(0.5, r) - 1;
}
static double shape_minus_sqrt(double r)
{
    return 1 - sqrt(r);
}

static const Shape shapes[] = {{"linear", shape_linear},
                               {"cosine", shape_cosine},
                               {"exponential", shape_exponential},
                               {"minus_sqrt", shape_minus_sqrt}};

/* Share of the decay that lies behind n; W = D has none. */
static double passed(const mg_sched *s, double n)
{
    double r = s->decay > s->warmup ? (n - s->warmup) / (s->decay - s->warmup) : 1;
    return r > 1 ? 1 : r < 0 ? 0 : r;
}

static double style_constant(const mg_sched *s, double n)
{
    (void)s;
    (void)n;
    return 1;
}
static double style_linear(const mg_sched *s, double n)
{
    return n > s->decay ? 0 : 1 - passed(s, n);
}
static double style_cosine(const mg_sched *s, double n)
{
    return n > s->decay ? 0 : shape_cosine(passed(s, n));
}
static double style_inverse_sqrt(const mg_sched *s, double n)
{
    double w = s->warmup > 1 ? s->warmup : 1, lr = s->lr * sqrt(w) / sqrt(n > w ? n : w);
    return s->lr > s->least ? (lr - s->least) / (s->lr - s->least) : 1;
}
static double style_wsd(const mg_sched *s, double n)
{
    double from = s->decay - s->wsd;
    if (n <= from)
        return 1;
    return n > s->decay ? 0 : shapes[s->shape].at((n - from) / s->wsd);
}

static const Style styles[] = {{"constant", style_constant},
                               {"linear", style_linear},
                               {"cosine", style_cosine},
                               {"inverse_sqrt", style_inverse_sqrt},
                               {"wsd", style_wsd}};

static const Shape wd_styles[] = {
    {"constant", NULL}, {"linear", shape_linear}, {"cosine", shape_cosine}};

double mg_sched_lr(const mg_sched *s, double n)
{
    if (s->warmup > 0 && n <= s->warmup)
        return s->init + (s->lr - s->init) * n / s->warmup;
    double share = styles[s->style].share(s, n), lr = s->least + share * (s->lr - s->least);
    return share == 1 ? s->lr : lr < s->least ? s->least : lr;
}

double mg_sched_wd(const mg_sched *s, double n)
{
    if (wd_styles[s->wd_style].at == NULL || s->total <= 0)
        return s->wd;
    double r = n < s->total ? n / s->total : 1;
    return s->wd + (s->wd_end - s->wd) * (1 - wd_styles[s->wd_style].at(r));
}

/* Row of `value` in a table whose rows begin with their name. */
static int row_of(const char *key, const char *value, const void *table, size_t size, int n,
                  int *row)
{
    const char *names[8];
    for (*row = 0; *row < n; ++*row) {
        memcpy(&names[*row], (const char *)table + (size_t)*row * size, sizeof names[0]);
        if (strcmp(names[*row], value) == 0)
            return MG_OK;
    }
    const char *near = mg_nearest(value, names, n);
    return mg_fail(MG_USAGE, "%s: unknown value '%s'%s%s%s", key, value,
                   near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                   near != NULL ? "'?" : "");
}

static int sched_check(const mg_sched *s)
{
    if (s->lr < 0 || s->init < 0 || s->least < 0 || s->least > s->lr)
        return mg_fail(
            MG_USAGE,
            "train.lr = %g, train.warmup_init = %g, train.floor x lr = %g: must not be negative, "
            "and floor at most 1",
            s->lr, s->init, s->least);
    if (s->warmup < 0 || s->decay < 0)
        return mg_fail(MG_USAGE, "train.warmup and train.decay must not be negative");
    if (strcmp(styles[s->style].name, "wsd") == 0 && (s->wsd <= 0 || s->wsd > s->decay - s->warmup))
        return mg_fail(MG_USAGE,
                       "train.wsd_decay: %.0f samples, must be above 0 and fit after the warm-up",
                       s->wsd);
    return MG_OK;
}

#define ROW(key, fallback, table, row)                                                             \
    row_of(key, mg_conf_str(c, key, fallback), table, sizeof *(table),                             \
           (int)(sizeof(table) / sizeof *(table)), row)

int mg_sched_read(mg_sched *s, const mg_conf *c, int64_t global)
{
    double rows = (double)global, steps = (double)mg_conf_int(c, "train.steps", 1000);
    double decay = (double)mg_conf_int(c, "train.decay", 0);
    double wsd = (double)mg_conf_int(c, "train.wsd_decay", 0);
    *s = (mg_sched){.lr = mg_conf_num(c, "train.lr", 1e-3),
                    .init = mg_conf_num(c, "train.warmup_init", 0),
                    .warmup = (double)mg_conf_int(c, "train.warmup", 0) * rows,
                    .wd = mg_conf_num(c, "train.weight_decay", 0.1),
                    .total = steps * rows};
    s->least = mg_conf_num(c, "train.floor", 0.1) * s->lr;
    s->decay = (decay > 0 ? decay : steps) * rows;
    s->wsd = wsd > 0 ? wsd * rows : 0.2 * s->decay;
    double end = mg_conf_num(c, "train.weight_decay_end", -1);
    s->wd_end = end < 0 ? s->wd : end;
    MG_TRY(ROW("train.schedule", "cosine", styles, &s->style));
    MG_TRY(ROW("train.wsd_shape", "exponential", shapes, &s->shape));
    MG_TRY(ROW("train.weight_decay_schedule", "constant", wd_styles, &s->wd_style));
    return sched_check(s);
}
