/* model.c: a model written by hand in the form of generated code, to prove the contract of mg.h:
 * bytes to the next byte through an embedding and a head, softmax cross-entropy, AdamW with
 * clipping.
 *
 * The vocabulary of 257 lies in memory padded to 264 rows; the padding never leaks into a loss, a
 * gradient or a file.
 */
#include "mg.h"

#include <math.h>
#include <string.h>

enum { B = 4, S = 32, V = 257, VP = 264, D = 16, T = B * S, N = 2 * VP * D };

/* Offsets of the arena, bytes. Weights, gradients and moments have equal element offsets. */
enum {
    PARAMS = 0,
    GRADS = PARAMS + 4 * N,
    STATE = GRADS + 4 * N,
    METRICS = STATE + 8 * N,
    SAVED = METRICS + 64,
    SCRATCH = SAVED + 4 * T * D,
    IO = SCRATCH + 4 * VP,
    TOKENS = IO,
    TARGETS = TOKENS + 4 * T,
    LOGITS = TARGETS + 4 * T,
    ARENA = LOGITS + 4 * B * VP
};
#define AT(c, off)       ((float *)(void *)((c)->mem + (off)))
#define EMBED(c, region) AT(c, region)
#define HEAD(c, region)  AT(c, (region) + 4 * VP * D)

/* x[t] = embed[token of t] */
static void mini_fwd(mg_ctx *c)
{
    const int32_t *tokens = (const int32_t *)(void *)AT(c, TOKENS);
    for (int t = 0; t < T; t++)
        memcpy(AT(c, SAVED) + t * D, EMBED(c, PARAMS) + tokens[t] * D, sizeof(float) * D);
}

/* Logits of one row into p[V], turned into probabilities; returns log of their sum. */
static float row_softmax(const float *x, const float *w, float *p)
{
    float most = -INFINITY, sum = 0;
    for (int v = 0; v < V; v++) {
        p[v] = 0;
        for (int d = 0; d < D; d++)
            p[v] += x[d] * w[v * D + d];
        most = p[v] > most ? p[v] : most;
    }
    for (int v = 0; v < V; v++)
        sum += expf(p[v] - most);
    for (int v = 0; v < V; v++)
        p[v] = expf(p[v] - most) / sum;
    return logf(sum);
}

static void loss_add(mg_ctx *c, const float *p, int32_t target)
{
    AT(c, METRICS)[0] += -logf(p[target]);
    AT(c, METRICS)[1] += 1;
}

static void mini_bwd(mg_ctx *c)
{
    const int32_t *tokens = (const int32_t *)(void *)AT(c, TOKENS),
                  *aim = (const int32_t *)(void *)AT(c, TARGETS);
    float *p = AT(c, SCRATCH), scale = (float)c->scalar.gscale;
    const float *w = HEAD(c, PARAMS);
    if (c->scalar.micro == 0)
        memset(AT(c, GRADS), 0, 4 * N);
    for (int t = 0; t < T; t++) {
        const float *x = AT(c, SAVED) + t * D;
        float *dx = EMBED(c, GRADS) + tokens[t] * D;
        if (aim[t] < 0)
            continue;
        row_softmax(x, w, p);
        loss_add(c, p, aim[t]);
        p[aim[t]] -= 1;
        for (int v = 0; v < V; v++)
            for (int d = 0; d < D; d++) {
                dx[d] += p[v] * scale * w[v * D + d];
                HEAD(c, GRADS)[v * D + d] += p[v] * scale * x[d];
            }
    }
}

static void mini_eval(mg_ctx *c)
{
    const int32_t *tokens = (const int32_t *)(void *)AT(c, TOKENS),
                  *aim = (const int32_t *)(void *)AT(c, TARGETS);
    for (int t = 0; t < T; t++) {
        if (aim[t] < 0)
            continue;
        row_softmax(EMBED(c, PARAMS) + tokens[t] * D, HEAD(c, PARAMS), AT(c, SCRATCH));
        loss_add(c, AT(c, SCRATCH), aim[t]);
    }
}

static void mini_logits(mg_ctx *c)
{
    const int32_t *tokens = (const int32_t *)(void *)AT(c, TOKENS);
    for (int b = 0; b < B; b++)
        for (int v = 0; v < V; v++) {
            const float *x = EMBED(c, PARAMS) + tokens[b * S + c->scalar.pos] * D;
            float *out = AT(c, LOGITS) + b * V + v;
            *out = 0;
            for (int d = 0; d < D; d++)
                *out += x[d] * HEAD(c, PARAMS)[v * D + d];
        }
}

/* One part of the flat arenas; every element depends on itself alone. */
static void adamw_part(void *arg, int part)
{
    mg_ctx *c = arg;
    const mg_scalar *s = &c->scalar;
    float norm = AT(c, METRICS)[2], lr = (float)s->lr, wd = (float)s->wd;
    float scale = s->clip > 0 && norm > (float)s->clip ? (float)s->clip / (norm + 1e-6f) : 1;
    float c1 = (float)(1 - pow(0.9, s->step)), c2 = (float)(1 - pow(0.95, s->step));
    float *w = AT(c, PARAMS), *g = AT(c, GRADS), *m = AT(c, STATE), *v = AT(c, STATE + 4 * N);
    for (int i = part * (N / 4); i < (part + 1) * (N / 4); i++) {
        float grad = g[i] * scale;
        m[i] = 0.9f * m[i] + 0.1f * grad;
        v[i] = 0.95f * v[i] + 0.05f * grad * grad;
        w[i] -= lr * (m[i] / c1 / (sqrtf(v[i] / c2) + 1e-8f) + wd * w[i]);
    }
}

static void mini_upd(mg_ctx *c)
{
    float sum = 0;
    for (int i = 0; i < N; i++)
        sum += AT(c, GRADS)[i] * AT(c, GRADS)[i];
    AT(c, METRICS)[2] = sqrtf(sum);
    mg_par(c, 4, adamw_part, c);
}

#define PARAM(path_, kind_, init_, saved_, of_, off_)                                              \
    {                                                                                              \
        .path = path_, .kind = kind_, .dtype = MG_F32, .init = init_, .rank = 2, .saved = saved_,  \
        .decay = 1, .of = of_, .dim = {V, D}, .dims = "v d", .off = off_, .elems = V * D,          \
        .elems_mem = VP * D, .b = 0.05                                                             \
    }
#define METRIC(path_, i)                                                                           \
    {                                                                                              \
        .path = path_, .kind = MG_METRIC, .dtype = MG_F32, .of = -1, .dims = "",                   \
        .off = METRICS + 4 * (i), .elems = 1, .elems_mem = 1                                       \
    }

static const mg_var mini_vars[] = {
    PARAM("embed.w", MG_WEIGHT, MG_INIT_NORMAL, 1, -1, PARAMS),
    PARAM("head.w", MG_WEIGHT, MG_INIT_NORMAL, 1, -1, PARAMS + 4 * VP * D),
    PARAM("embed.w.grad", MG_ACCUM, MG_INIT_ZERO, 0, 0, GRADS),
    PARAM("head.w.grad", MG_ACCUM, MG_INIT_ZERO, 0, 1, GRADS + 4 * VP * D),
    PARAM("embed.w.m", MG_MOMENT, MG_INIT_ZERO, 1, 0, STATE),
    PARAM("head.w.m", MG_MOMENT, MG_INIT_ZERO, 1, 1, STATE + 4 * VP * D),
    PARAM("embed.w.v", MG_MOMENT, MG_INIT_ZERO, 1, 0, STATE + 4 * N),
    PARAM("head.w.v", MG_MOMENT, MG_INIT_ZERO, 1, 1, STATE + 4 * N + 4 * VP * D),
    METRIC("loss_sum", 0),
    METRIC("count", 1),
    METRIC("gnorm", 2),
};

static const mg_io mini_io[] = {
    {.name = "tokens", .dtype = MG_I32, .rank = 2, .dim = {B, S}, .off = TOKENS},
    {.name = "targets", .dtype = MG_I32, .rank = 2, .dim = {B, S}, .off = TARGETS},
    {.name = "logits", .dtype = MG_F32, .rank = 2, .dim = {B, V}, .off = LOGITS},
    {.name = "x", .dtype = MG_F32, .rank = 3, .dim = {B, S, D}, .off = SAVED},
};

static const mg_key mini_keys[] = {
    {"batch.micro", "int", "4", "mini.lua:3", "compile", "rows of a micro batch", ""},
    {"batch.seq", "int", "32", "mini.lua:3", "compile", "tokens of a row", ""},
    {"batch.global", "int", "8", "mini.lua:3", "run", "rows of a step", ""},
    {"data.train", "list", "", "default", "run", "files to train on", ""},
    {"data.valid", "list", "", "default", "run", "files to evaluate on", ""},
    {"data.seed", "int", "1", "default", "run", "order of samples", ""},
    {"data.eod_mask_loss", "bool", "false", "default", "run",
     "no loss behind the end of a document", ""},
    {"train.steps", "int", "20", "mini.lua:5", "run", "updates", "0.."},
    {"train.seed", "int", "1", "default", "run", "initialisation and dropout", ""},
    {"train.lr", "num", "0.01", "mini.lua:5", "run", "largest learning rate", ""},
    {"train.schedule", "str", "cosine", "default", "run", "course of the learning rate",
     "constant|linear|cosine|inverse_sqrt|wsd"},
    {"train.warmup", "int", "2", "mini.lua:6", "run", "steps of the warm-up", "0.."},
    {"train.clip", "num", "1", "default", "run", "largest norm of the gradient", ""},
    {"train.weight_decay", "num", "0.01", "default", "run", "decay of the weights", ""},
    {"train.init", "str", "random", "default", "run", "first weights", ""},
    {"eval.every", "int", "0", "default", "run", "steps between evaluations", ""},
    {"eval.batches", "int", "20", "default", "run", "micro batches of an evaluation", ""},
    {"save.every", "int", "0", "default", "run", "steps between checkpoints", ""},
    {"save.keep", "int", "3", "default", "run", "checkpoints that stay", ""},
    {"save.shard", "size", "4GiB", "default", "run", "largest file of a checkpoint", ""},
    {"log.every", "int", "1", "default", "run", "steps between lines", ""},
    {"sample.every", "int", "0", "default", "run", "steps between samples", ""},
    {"sample.tokens", "int", "60", "default", "run", "length of a sample", ""},
};

static const mg_model mini_model = {
    .abi = MG_ABI,
    .name = "mini",
    .version = "0",
    .hash = "00000000",
    .target = "cpu",
    .cpu = "generic",
    .arena_bytes = ARENA,
    .region = {{PARAMS, 4 * N},
               {GRADS, 4 * N},
               {STATE, 8 * N + 64},
               {SAVED, 4 * T *D},
               {SCRATCH, 4 * VP},
               {IO, ARENA - IO}},
    .var = mini_vars,
    .nvar = sizeof mini_vars / sizeof *mini_vars,
    .io = mini_io,
    .nio = sizeof mini_io / sizeof *mini_io,
    .key = mini_keys,
    .nkey = sizeof mini_keys / sizeof *mini_keys,
    .micro = B,
    .seq = S,
    .vocab = V,
    .flops_token = 12.0 * V * D,
    .params = 2 * V * D,
    .fwd = mini_fwd,
    .bwd = mini_bwd,
    .upd = mini_upd,
    .eval = mini_eval,
    .logits = mini_logits,
};

const mg_model *mg_model_get(void)
{
    return &mini_model;
}

int main(int argc, char **argv)
{
    return mg_trainer(argc, argv, mg_model_get());
}
