/* update.c: flat arenas and the optimizer step.
 *
 * Weights, gradients and moments lie in flat arenas with equal element offsets: tensors in the
 * order in which the chain first reads them, decayed ones first within a call, each padded to 64
 * elements. So the whole update is one gradient norm and one map over the arenas; the constants
 * that differ from tensor to tensor (`group(name)`) come from the members of the Flat. Schedules
 * are run-time scalars. A step with a gradient that is not finite writes every state back
 * unchanged.
 *
 * needs: accumulators, chains "fwd" and "bwd"
 * gives: Flats weight, grad, m, v; moment Vars; the UPD Func; chain "upd"
 */
#include "megagen.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { FLAT_PAD = 64 };

typedef struct {
    Graph *g;
    u32 weight, grad; /* ids of g->flat */
    u32 state[2];     /* moments: adamw m and v, sgd with momentum m */
    u32 nstate;
    u64 elems;
} Update;

static u32 flat_add(Graph *g, const char *name, u8 dtype, VarKind kind)
{
    vec_push(g->arena, &g->flat, (Flat){.name = sym(g, name), .dtype = dtype, .kind = (u8)kind});
    return g->flat.n - 1;
}

static void flat_member(Graph *g, u32 flat, u32 var, u64 elem)
{
    g->var.at[var].flat = flat;
    g->var.at[var].elem = elem;
    vec_push(g->arena, &g->flat.at[flat].var, var);
}

static u32 grad_of(const Graph *g, u32 weight)
{
    for (u32 i = 1; i < g->var.n; i++) {
        if (g->var.at[i].kind == VAR_ACCUM && g->var.at[i].of == weight) {
            return i;
        }
    }
    return 0;
}

static void moment_add(Update *u, u32 k, u32 weight, u64 elem)
{
    Graph *g = u->g;
    Var w = g->var.at[weight];
    const char *name = sym_str(g, g->flat.at[u->state[k]].name);
    Var m = {.path = sym_fmt(g, "%s.%s", sym_str(g, w.path), name),
             .type = w.type,
             .kind = VAR_MOMENT,
             .life = LIFE_RUN,
             .saved = true,
             .of = weight,
             .group = w.group,
             .stages = w.stages,
             .loc = w.loc};
    m.type.dtype = g->flat.at[u->state[k]].dtype;
    memcpy(m.at, w.at, sizeof m.at);
    vec_push(g->arena, &g->var, m);
    flat_member(g, u->state[k], g->var.n - 1, elem);
}

/* Give weight a place at the end of every arena. */
static void place(Update *u, u32 weight)
{
    Graph *g = u->g;
    if (g->var.at[weight].flat || g->var.at[weight].frozen) {
        return;
    }
    u64 elem = u->elems;
    flat_member(g, u->weight, weight, elem);
    u32 grad = grad_of(g, weight);
    assert(grad && "a trained weight has an accumulator");
    flat_member(g, u->grad, grad, elem);
    for (u32 k = 0; k < u->nstate; k++) {
        moment_add(u, k, weight, elem);
    }
    u64 n = type_elems(g, &g->var.at[weight].type);
    u->elems = elem + (n + FLAT_PAD - 1) / FLAT_PAD * FLAT_PAD;
}

/* 1-D parameters do not decay; expand names the groups. */
static bool decays(const Graph *g, u32 var)
{
    return strcmp(sym_str(g, g->var.at[var].group), "decay") == 0;
}

static void place_call(Update *u, const Call *call)
{
    Graph *g = u->g;
    for (int plain = 0; plain < 2; plain++) {
        for (u32 i = 0; i < call->bind.n; i++) {
            u32 var = call->bind.at[i];
            if (g->var.at[var].kind == VAR_WEIGHT && decays(g, var) == !plain) {
                place(u, var);
            }
        }
    }
}

/* Chain order: embedding, layers, then what the loss reads. */
static void place_all(Update *u)
{
    Graph *g = u->g;
    u32 fwd = chain_find(g, "fwd"), bwd = chain_find(g, "bwd");
    for (u32 k = 0; k < g->chain.at[fwd].call.n; k++) {
        place_call(u, &g->chain.at[fwd].call.at[k]);
    }
    if (g->chain.at[bwd].call.n) {
        place_call(u, &g->chain.at[bwd].call.at[0]);
    }
    u32 n = g->var.n;
    for (u32 i = 1; i < n; i++) {
        if (g->var.at[i].kind == VAR_WEIGHT) {
            place(u, i);
        }
    }
    g->flat.at[u->weight].elems = g->flat.at[u->grad].elems = u->elems;
    for (u32 k = 0; k < u->nstate; k++) {
        g->flat.at[u->state[k]].elems = u->elems;
    }
}

/* ---- the UPD Func ---------------------------------------------------------------------------- */

static u32 flat_formal(Update *u, u32 func, u32 flat)
{
    Graph *g = u->g;
    const Flat *f = &g->flat.at[flat];
    u32 dim = dim_add(g, "flat", (i64)u->elems);
    Type t = {.dtype = f->dtype, .rank = 1, .dim = {dim}};
    return formal_find(g, func, sym_fmt(g, "/%s", sym_str(g, f->name)), t, f->kind);
}

static void metric_write(Graph *g, u32 func, const char *name, u32 value)
{
    Type t = g->value.at[value].type;
    if (!var_by_path(g, sym(g, name))) {
        vec_push(g->arena, &g->var,
                 (Var){.path = sym(g, name), .type = t, .kind = VAR_METRIC, .life = LIFE_STEP});
    }
    node_write(g, func, formal_find(g, func, sym_fmt(g, "/%s", name), t, VAR_METRIC), value);
}

/* Constants that need more digits than f32 has. */
static u32 adamw_attrs(Graph *g, Attr *attr)
{
    const Config *c = &g->cfg;
    bool given = c->optimizer != 0; /* a text has no config */
    f64 beta1 = given ? c->beta1 : 0.9, beta2 = given ? c->beta2 : 0.999;
    attr[0] = attr_num(sym(g, "beta1"), beta1);
    attr[1] = attr_num(sym(g, "beta2"), beta2);
    attr[2] = attr_num(sym(g, "eps"), given ? c->eps : 1e-8);
    attr[3] = attr_num(sym(g, "take1"), 1 - beta1);
    attr[4] = attr_num(sym(g, "take2"), 1 - beta2);
    attr[5] = attr_num(sym(g, "log_beta1"), beta1 > 0 ? log(beta1) : -1e30);
    attr[6] = attr_num(sym(g, "log_beta2"), beta2 > 0 ? log(beta2) : -1e30);
    return 7;
}

static u32 sgd_attrs(Graph *g, Attr *attr)
{
    attr[0] = attr_num(sym(g, "momentum"), g->cfg.beta1);
    return 1;
}

static const struct {
    const char *name;     /* the op, and the value of train.optimizer */
    const char *state[2]; /* its moments */
    u32 (*attrs)(Graph *g, Attr *attr);
} optimizers[] = {
    {"adamw", {"m", "v"}, adamw_attrs},
    {"sgd", {"m", NULL}, sgd_attrs},
};
enum { NOPTIMIZER = sizeof optimizers / sizeof optimizers[0] };

static u32 optimizer_find(Graph *g)
{
    const char *want = g->cfg.optimizer ? sym_str(g, g->cfg.optimizer) : optimizers[0].name;
    for (u32 i = 0; i < NOPTIMIZER; i++) {
        if (strcmp(optimizers[i].name, want) == 0) {
            return i;
        }
    }
    fail(g, (Loc){0}, 330, "no optimizer `%s`; there are adamw and sgd", want);
}

/* gradient norm -> clip coefficient -> optimizer -> states, each written where the norm is finite.
 */
static u32 update_func(Update *u, u32 opt)
{
    Graph *g = u->g;
    u32 func = func_add(g, sym(g, "update"), ROLE_UPD);
    u32 grad = node_read(g, func, flat_formal(u, func, u->grad));
    u32 sumsq = node_add(g, func, op_need(g, "sumsq"), &grad, 1, NULL, 0);
    u32 s = g->node.at[sumsq].out;
    u32 clip = node_add(g, func, op_need(g, "clip_coef"), &s, 1, NULL, 0);
    u32 coef = g->node.at[clip].out, norm = coef + 1, ok = coef + 2;
    metric_write(g, func, "gnorm", norm);

    u32 in[8], nin = 0, formal[4], nformal = 0;
    formal[nformal++] = flat_formal(u, func, u->weight);
    in[nin++] = node_read(g, func, formal[0]);
    in[nin++] = grad;
    for (u32 k = 0; k < u->nstate; k++) {
        formal[nformal] = flat_formal(u, func, u->state[k]);
        in[nin++] = node_read(g, func, formal[nformal++]);
    }
    in[nin++] = coef;
    in[nin++] = ok;
    Attr attr[8];
    u32 nattr = optimizers[opt].attrs(g, attr);
    u32 n = node_add(g, func, op_need(g, optimizers[opt].name), in, nin, attr, nattr);
    assert(g->node.at[n].nout == nformal && "an optimizer returns the weight and its states");
    for (u32 k = 0; k < nformal; k++) {
        u8 dtype = g->func.at[func].formal.at[formal[k] - 1].type.dtype;
        g->value.at[g->node.at[n].out + k].type.dtype = dtype; /* rounded to what it is stored as */
        node_write(g, func, formal[k], g->node.at[n].out + k);
    }
    return func;
}

void pass_update(Graph *g)
{
    if (!chain_find(g, "bwd")) {
        fail(g, (Loc){0}, 331, "the update needs the backward: run autodiff first");
    }
    Update u = {.g = g};
    u32 opt = optimizer_find(g);
    u8 moments = g->cfg.moments ? g->cfg.moments : DT_F32;
    u.weight = flat_add(g, "weight", DT_F, VAR_WEIGHT);
    u.grad = flat_add(g, "grad", DT_F32, VAR_ACCUM);
    for (u32 k = 0; k < 2 && optimizers[opt].state[k]; k++) {
        u.state[u.nstate++] = flat_add(g, optimizers[opt].state[k], moments, VAR_MOMENT);
    }
    place_all(&u);
    if (!u.elems) {
        fail(g, (Loc){0}, 332, "every weight is frozen: there is nothing to train");
    }
    u32 chain = chain_add(g, "upd", ROLE_UPD);
    Call call = {.func = update_func(&u, opt), .layer = -1};
    vec_push(g->arena, &g->chain.at[chain].call, call);
    calls_bind(g, chain);
}
