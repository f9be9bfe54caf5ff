/* autodiff.c: reverse mode over Funcs.
 *
 * For each forward Func of chain "fwd" a backward Func is built by one walk over its nodes from the
 * last to the first. Cotangents are added in the order of that walk, so the sum is the same in
 * every build. What the backward needs of the forward becomes an input: a Reg where the value
 * crosses calls, a Save row where it does not. Weights are read again; views are taken again on
 * what was saved.
 *
 * The last Func returns only sums, so its cotangent is known (gscale): value and gradient stand in
 * one Func of role LOSS, and the two directions of its loop over token chunks share one body.
 *
 * needs: forward Funcs, chain "fwd", vjp rules
 * gives: BWD Funcs, the LOSS Func, accumulators, chains "bwd", "eval" and "logits", saves
 */
#include "megagen.h"

#include <assert.h>
#include <string.h>

/* A contribution to a cotangent: all of it (dim < 0), or a range of one dim. */
typedef struct {
    u32 value;
    i32 dim;
    i64 from, len;
} Part;
typedef VEC(Part) Parts;

/* One reverse walk. In a joint walk (loss) src and dst are the same Func. */
typedef struct {
    Graph *g;
    u32 src, dst;
    u32 *map;     /* value of src -> value of dst; 0 = not there yet */
    Parts *part;  /* by value of src */
    u32 n;        /* length of both */
    bool *active; /* by value: depends on a trained weight */
} Walk;

/* A backward Func for one set of cotangents that arrive. */
typedef struct {
    u32 fwd, bwd;
    u64 mask;      /* bit j: out j of fwd has a cotangent */
    VEC(i32) from; /* per input of bwd: FROM_COT + j, FROM_IN + i, FROM_OUT + j, FROM_SAVE */
    VEC(u32) grad; /* per output of bwd: index of the input of fwd that it belongs to */
} Variant;
enum { FROM_SAVE = 0, FROM_COT = 1000, FROM_IN = 2000, FROM_OUT = 3000 };

typedef struct {
    Graph *g;
    u32 chain;    /* "fwd" */
    bool *active; /* by value */
    u32 nactive;
    u32 *dreg; /* by reg: reg of its cotangent, 0 = none yet */
    VEC(Variant) variant;
} Pass;

/* ---- which values depend on a trained weight ------------------------------------------------- */

static bool is_float(const Graph *g, u32 v)
{
    u8 dt = g->value.at[v].type.dtype;
    return dt >= DT_F && dt <= DT_E5M2;
}

/* A formal is trained if any call binds it to a weight that is not frozen. */
static bool formal_trained(Graph *g, u32 func, u32 formal)
{
    const Func *f = &g->func.at[func];
    const Formal *fo = &f->formal.at[formal - 1];
    u32 twin = f->twin ? f->twin : func; /* the loss is a clone of what the chain calls */
    if (fo->kind != VAR_WEIGHT) {
        return false;
    }
    for (u32 c = 1; c < g->chain.n; c++) {
        for (u32 k = 0; k < g->chain.at[c].call.n; k++) {
            const Call *call = &g->chain.at[c].call.at[k];
            if (!func_reaches(g, call->func, twin)) {
                continue;
            }
            u32 var = var_resolve(g, call->prefix, fo->name);
            if (var && !g->var.at[var].frozen) {
                return true;
            }
        }
    }
    return false;
}

/* Marks what becomes active; true if anything changed. */
static bool activity_func(Graph *g, u32 func, bool *active)
{
    bool changed = false;
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 id = g->func.at[func].node.at[i];
        const Node *n = &g->node.at[id];
        const Op *op = &g->op.at[n->op];
        bool on = false;
        if (node_is(g, id, "read")) {
            on = !active[n->out] && formal_trained(g, func, n->formal);
        }
        for (u32 k = 0; k < n->nin && !on; k++) {
            on = active[g->arg.at[n->in + k]];
        }
        if (node_is(g, id, "loop")) {
            const Func *b = &g->func.at[n->body];
            for (u32 k = 0; k < n->nin; k++) {
                if (active[g->arg.at[n->in + k]] && !active[b->in.at[k]] &&
                    is_float(g, b->in.at[k])) {
                    active[b->in.at[k]] = changed = true;
                }
            }
            changed |= activity_func(g, n->body, active);
            for (u32 k = 0; k < n->nout; k++) {
                if (active[b->out.at[k]] && !active[n->out + k]) {
                    active[n->out + k] = changed = true;
                }
            }
            continue;
        }
        if (!on || (op->flags & OF_NOGRAD)) {
            continue;
        }
        for (u32 k = 0; k < n->nout; k++) {
            u32 v = n->out + k;
            if (!active[v] && is_float(g, v) && !(g->value.at[v].flags & VF_NOGRAD)) {
                active[v] = changed = true;
            }
        }
    }
    return changed;
}

/* Calls share Funcs, so an input is active if it is in any call; repeat until nothing changes. */
static void activity(Pass *p)
{
    Graph *g = p->g;
    bool *reg = arena_alloc(g->arena, g->reg.n + 1);
    p->nactive = g->value.n;
    p->active = arena_alloc(g->arena, g->value.n + 1);
    for (bool changed = true; changed;) {
        changed = false;
        for (u32 k = 0; k < g->chain.at[p->chain].call.n; k++) {
            const Call *call = &g->chain.at[p->chain].call.at[k];
            const Func *f = &g->func.at[call->func];
            for (u32 i = 0; i < f->in.n; i++) {
                if (reg[call->in.at[i]] && !p->active[f->in.at[i]]) {
                    p->active[f->in.at[i]] = changed = true;
                }
            }
            changed |= activity_func(g, call->func, p->active);
            for (u32 i = 0; i < f->out.n; i++) {
                if (p->active[f->out.at[i]] && !reg[call->out.at[i]]) {
                    reg[call->out.at[i]] = changed = true;
                }
            }
        }
    }
}

/* ---- cotangents ------------------------------------------------------------------------------ */

static void give_part(Walk *w, u32 v, Part part)
{
    if (v < w->n && w->active[v] && part.value) {
        vec_push(w->g->arena, &w->part[v], part);
    }
}

static void give(Walk *w, u32 v, u32 cot)
{
    give_part(w, v, (Part){.value = cot, .dim = -1});
}

static u32 add(Walk *w, u32 a, u32 b)
{
    if (!a || !b) {
        return a ? a : b;
    }
    u32 in[2] = {a, b};
    u32 n = node_add(w->g, w->dst, op_need(w->g, "add"), in, 2, NULL, 0);
    return w->g->node.at[n].out;
}

static u32 zeros(Graph *g, u32 func, Type type)
{
    u32 n = node_add_typed(g, func, op_need(g, "zero"), NULL, 0, NULL, 0, &type, 1);
    return g->node.at[n].out;
}

/* A range of a cotangent that nobody contributes to. */
static u32 gap(Walk *w, u32 v, i32 dim, i64 len)
{
    Type t = w->g->value.at[v].type;
    t.dim[dim] = dim_like(w->g, t.dim[dim], len);
    return zeros(w->g, w->dst, t);
}

/* Take from parts a set of disjoint ranges of one dim, in ascending order, and lay them side by
 * side. */
static u32 join(Walk *w, u32 v, Parts *parts)
{
    Graph *g = w->g;
    i32 dim = -1;
    for (u32 i = 0; i < parts->n && dim < 0; i++) {
        dim = parts->at[i].dim;
    }
    if (dim < 0) {
        return 0;
    }
    Type t = g->value.at[v].type;
    i64 size = g->dim.at[t.dim[dim]].size, pos = 0;
    VEC(u32) in = {0};
    while (pos < size) {
        u32 best = parts->n;
        for (u32 i = 0; i < parts->n; i++) {
            const Part *q = &parts->at[i];
            if (q->dim == dim && q->value && q->from >= pos &&
                (best == parts->n || q->from < parts->at[best].from)) {
                best = i;
            }
        }
        i64 to = best < parts->n ? parts->at[best].from : size;
        if (to > pos) {
            u32 z = gap(w, v, dim, to - pos);
            vec_push(g->arena, &in, z);
        }
        pos = to;
        if (best < parts->n) {
            vec_push(g->arena, &in, parts->at[best].value);
            pos += parts->at[best].len;
            parts->at[best].value = 0;
            parts->at[best].dim = -1;
        }
    }
    if (in.n == 1) {
        return in.at[0];
    }
    return view_concat(g, w->dst, in.at, in.n, (u32)dim, t);
}

/* The finished cotangent of v: the contributions added in the order in which they came; 0 = none.
 * The nodes of the metrics come after the activity: their values have no place in the walk. */
static u32 cotangent(Walk *w, u32 v)
{
    Graph *g = w->g;
    if (v >= w->n) {
        return 0;
    }
    Parts *parts = &w->part[v];
    u32 sum = 0;
    for (u32 i = 0; i < parts->n; i++) {
        if (parts->at[i].dim < 0) {
            sum = add(w, sum, parts->at[i].value);
        }
    }
    for (u32 piece; (piece = join(w, v, parts)) != 0;) {
        sum = add(w, sum, piece);
    }
    parts->n = 0;
    u32 made = sum ? g->value.at[sum].node : 0;
    if (made && !g->value.at[sum].path && !node_is(g, made, "gscale"))
        g->value.at[sum].path = cotangent_name(g, v);
    return sum;
}

/* ---- forward values in the backward Func ----------------------------------------------------- */

/* The value of dst that stands for v: a new read, a view taken again, or a new input. */
static u32 value_in_dst(Walk *w, u32 v)
{
    Graph *g = w->g;
    if (w->map[v]) {
        return w->map[v];
    }
    u32 n = g->value.at[v].node, got;
    if (n && node_is(g, n, "read")) {
        Formal fo = g->func.at[w->src].formal.at[g->node.at[n].formal - 1];
        got = node_read(g, w->dst, formal_find(g, w->dst, fo.name, fo.type, fo.kind));
    } else if (n && (g->op.at[g->node.at[n].op].flags & OF_VIEW) && !node_is(g, n, "concat")) {
        value_in_dst(w, g->arg.at[g->node.at[n].in]);
        u32 c = node_clone(g, n, w->dst, w->map);
        got = g->node.at[c].out;
    } else {
        Value from = g->value.at[v];
        got = func_input(g, w->dst, from.type, from.path);
        g->value.at[got].flags = from.flags;
    }
    w->map[v] = got;
    return got;
}

/* ---- structural transposes ------------------------------------------------------------------- */

static void vjp_slice(Walk *w, u32 n, u32 dy)
{
    Graph *g = w->g;
    u32 x = g->arg.at[g->node.at[n].in];
    View view = view_of(g, n);
    Type tx = g->value.at[x].type, ty = g->value.at[dy].type;
    if (ty.rank < tx.rank) { /* the slice dropped its dim of size 1 */
        Type t = tx;
        t.dim[view.dim] = dim_like(g, tx.dim[view.dim], 1);
        t.dtype = ty.dtype;
        dy = view_reshape(g, w->dst, dy, t);
    }
    give_part(w, x, (Part){dy, (i32)view.dim, view.from, view.len});
}

static void vjp_concat(Walk *w, u32 n, u32 dy)
{
    Graph *g = w->g;
    Node node = g->node.at[n];
    View view = view_of(g, n);
    i64 from = 0;
    for (u32 k = 0; k < node.nin; k++) {
        u32 x = g->arg.at[node.in + k];
        u32 dim = g->value.at[x].type.dim[view.dim];
        if (x < w->n && w->active[x]) {
            give(w, x, view_slice(g, w->dst, dy, view.dim, from, dim));
        }
        from += g->dim.at[dim].size;
    }
}

static void vjp_view(Walk *w, u32 n, u32 dy)
{
    Graph *g = w->g;
    u32 x = g->arg.at[g->node.at[n].in];
    if (node_is(g, n, "slice")) {
        vjp_slice(w, n, dy);
    } else if (node_is(g, n, "concat")) {
        vjp_concat(w, n, dy);
    } else if (node_is(g, n, "broadcast")) {
        fail(g, g->node.at[n].loc, 320,
             "the gradient of `broadcast` is not supported here\n"
             "help: let a pointwise op broadcast its operand instead");
    } else if (node_is(g, n, "transpose")) {
        give(w, x, view_transpose(g, w->dst, dy, g->value.at[x].type));
    } else {
        give(w, x, view_reshape(g, w->dst, dy, g->value.at[x].type));
    }
}

/* y = contraction of a and b over `sum`. da contracts dy with b over b's other dims, so that its
 * dims come out as a's other dims, then the contracted ones. db puts the operand first whose dims
 * lead in b. */
static void vjp_matmul(Walk *w, u32 n, u32 dy)
{
    Graph *g = w->g;
    u32 a = g->arg.at[g->node.at[n].in], b = g->arg.at[g->node.at[n].in + 1];
    if (w->active[a]) {
        u32 vb = value_in_dst(w, b);
        give(w, a, contract_to(g, w->dst, dy, vb, g->value.at[a].type));
    }
    if (w->active[b]) {
        u32 va = value_in_dst(w, a);
        give(w, b, contract_to(g, w->dst, dy, va, g->value.at[b].type));
    }
}

/* ---- one node in reverse --------------------------------------------------------------------- */

/* The derived body's result k is the cotangent that comes in, as it is (an addition): its index;
 * -1. */
static i32 passes_through(const Graph *g, u32 bwd, u32 k)
{
    const Body *b = g->op.at[bwd].body;
    const BodyPort *out = &b->out.at[k];
    const BodyNode *n = &b->node.at[out->node];
    if (n->fn != BF_INPUT || b->in.at[n->port].rank != out->rank ||
        memcmp(b->in.at[n->port].axis, out->axis, out->rank) != 0) {
        return -1;
    }
    return (i32)n->port;
}

static u32 derived_operand(Walk *w, const Node *node, u32 from, const u32 *cot)
{
    Graph *g = w->g;
    if (from < node->nin) {
        u32 x = g->arg.at[node->in + from];
        return x ? value_in_dst(w, x) : 0;
    }
    if (from < node->nin + node->nout) {
        return value_in_dst(w, node->out + from - node->nin);
    }
    u32 out = from - node->nin - node->nout;
    return cot[out] ? cot[out] : zeros(g, w->dst, g->value.at[node->out + out].type);
}

static u32 wanted(const Walk *w, const Node *node, u64 *want)
{
    u32 n = 0;
    *want = 0;
    for (u32 k = 0; k < node->nin; k++) {
        u32 x = w->g->arg.at[node->in + k];
        if (x && x < w->n && w->active[x]) {
            *want |= 1ull << k;
            n++;
        }
    }
    return n;
}

static void vjp_body(Walk *w, u32 n, const u32 *cot)
{
    Graph *g = w->g;
    Node node = g->node.at[n];
    u64 want;
    if (!wanted(w, &node, &want)) {
        return;
    }
    u32 bwd = body_derive_for(g, node.op, want);
    u32 nfrom = g->op.at[bwd].from.n, nto = g->op.at[bwd].to.n, through = 0;
    for (u32 k = 0; k < nto; k++) {
        i32 at = passes_through(g, bwd, k);
        u32 x = g->arg.at[node.in + g->op.at[bwd].to.at[k]];
        u32 c = at < 0 ? 0 : derived_operand(w, &node, g->op.at[bwd].from.at[at], cot);
        if (c && type_equal(&g->value.at[c].type, &g->value.at[x].type)) {
            give(w, x, c);
            want &= ~(1ull << g->op.at[bwd].to.at[k]);
            through++;
        }
    }
    if (through == nto) {
        return;
    }
    if (through) {
        bwd = body_derive_for(g, node.op, want);
        nfrom = g->op.at[bwd].from.n;
        nto = g->op.at[bwd].to.n;
    }
    u32 *in = arena_alloc(g->arena, (nfrom + 1) * sizeof *in);
    for (u32 k = 0; k < nfrom; k++) {
        in[k] = derived_operand(w, &node, g->op.at[bwd].from.at[k], cot);
    }
    Type *out = arena_alloc(g->arena, (nto + 1) * sizeof *out);
    for (u32 k = 0; k < nto; k++) { /* a cotangent has the type of its value */
        out[k] = g->value.at[g->arg.at[node.in + g->op.at[bwd].to.at[k]]].type;
    }
    u32 made =
        node_add_typed(g, w->dst, bwd, in, nfrom, &g->attr.at[node.attr], node.nattr, out, nto);
    for (u32 k = 0; k < nto; k++) {
        give(w, g->arg.at[node.in + g->op.at[bwd].to.at[k]], g->node.at[made].out + k);
    }
}

static void vjp_lua(Walk *w, u32 n, const u32 *cot)
{
    Graph *g = w->g;
    Node node = g->node.at[n];
    for (u32 k = 0; k < node.nin; k++) {
        if (g->arg.at[node.in + k]) {
            value_in_dst(w, g->arg.at[node.in + k]);
        }
    }
    for (u32 k = 0; k < node.nout; k++) {
        value_in_dst(w, node.out + k); /* an input that the rule does not use is dropped later */
    }
    u32 *grad = arena_alloc(g->arena, (node.nin + 1) * sizeof *grad);
    lua_rule_vjp(g, n, w->dst, w->map, cot, grad);
    for (u32 k = 0; k < node.nin; k++) {
        if (g->arg.at[node.in + k]) {
            give(w, g->arg.at[node.in + k], grad[k]);
        }
    }
}

/* The gradient of what was read is added to NAME.grad. */
static void vjp_read(Walk *w, u32 n, u32 dw)
{
    Graph *g = w->g;
    Formal fo = g->func.at[w->src].formal.at[g->node.at[n].formal - 1];
    fo.type.dtype = DT_F32;
    Sym name = sym_fmt(g, "%s.grad", sym_str(g, fo.name));
    node_accum(g, w->dst, formal_find(g, w->dst, name, fo.type, VAR_ACCUM), dw);
}

static u32 gscale(Graph *g, u32 func)
{
    Type t = {.dtype = DT_F32};
    u32 n = node_add_typed(g, func, op_need(g, "gscale"), NULL, 0, NULL, 0, &t, 1);
    return g->node.at[n].out;
}

static void vjp_loop(Walk *w, u32 n);

static void vjp_node(Walk *w, u32 n)
{
    Graph *g = w->g;
    Node node = g->node.at[n];
    Op op = g->op.at[node.op];
    if (node_is(g, n, "loop")) {
        vjp_loop(w, n);
        return;
    }
    u32 *cot = arena_alloc(g->arena, (node.nout + 1) * sizeof *cot), some = 0;
    for (u32 k = 0; k < node.nout; k++) {
        cot[k] = cotangent(w, node.out + k);
        some |= cot[k];
    }
    if (!some || (op.flags & OF_NOGRAD)) {
        return;
    }
    if (node_is(g, n, "read")) {
        vjp_read(w, n, cot[0]);
    } else if (op.flags & OF_VIEW) {
        vjp_view(w, n, cot[0]);
    } else if (op.vjp) {
        vjp_lua(w, n, cot);
    } else if (node_is(g, n, "matmul")) {
        vjp_matmul(w, n, cot[0]);
    } else if (op.body || op.body_text) {
        vjp_body(w, n, cot);
    } else {
        fail(g, node.loc, 322, "`%s` has no gradient\nhelp: give its op block a `body` or a `vjp`",
             sym_str(g, op.name));
    }
}

/* Walk src backwards. What is made for a node gets its path and position. */
static void reverse(Walk *w)
{
    Graph *g = w->g;
    u32 n = g->func.at[w->src].node.n;
    u32 *list = arena_alloc(g->arena, (n + 1) * sizeof *list);
    if (n) {
        memcpy(list, g->func.at[w->src].node.at, n * sizeof *list);
    }
    while (n-- > 0) {
        u32 first = g->node.n;
        vjp_node(w, list[n]);
        for (u32 i = first; i < g->node.n; i++) {
            Node *made = &g->node.at[i];
            if (!made->path && !made->loc.line) {
                made->path = g->node.at[list[n]].path;
                made->loc = g->node.at[list[n]].loc;
            }
        }
    }
}

/* ---- the loop of a loss: both directions in one body ----------------------------------------- */

static void add_out(Graph *g, u32 func, u32 value, ResultKind kind)
{
    vec_push(g->arena, &g->func.at[func].out, value);
    vec_push(g->arena, &g->func.at[func].out_kind, (u8)kind);
}

/* The cotangent of a loop's sum must be known inside the loop: it is gscale, or the walk cannot be
 * joint. */
static void seed_loop(Walk *w, Walk *in, u32 n)
{
    Graph *g = w->g;
    Node node = g->node.at[n];
    for (u32 k = 0; k < node.nout; k++) {
        u32 cot = cotangent(w, node.out + k);
        if (!cot) {
            continue;
        }
        if (!node_is(g, g->value.at[cot].node, "gscale")) {
            fail(g, node.loc, 321,
                 "a loss loop's result must be returned as it is: its gradient is needed inside\n"
                 "help: move what follows the loop into it");
        }
        give(in, g->func.at[node.body].out.at[k], gscale(g, node.body));
    }
}

static void vjp_loop(Walk *w, u32 n)
{
    Graph *g = w->g;
    Node node = g->node.at[n];
    if (w->src != w->dst) {
        fail(g, node.loc, 323, "a loop is differentiated only in the loss so far");
    }
    Walk in = *w;
    in.src = in.dst = node.body;
    seed_loop(w, &in, n);
    reverse(&in);
    u32 nin = node.nin, nout = node.nout;
    Type *out = arena_alloc(g->arena, (nout + nin) * sizeof *out);
    u32 *of = arena_alloc(g->arena, (nout + nin) * sizeof *of);
    for (u32 k = 0; k < nout; k++) {
        out[k] = g->value.at[node.out + k].type;
    }
    for (u32 k = 0; k < nin; k++) {
        u32 cot = cotangent(&in, g->func.at[node.body].in.at[k]);
        if (!cot) {
            continue;
        }
        bool slice = g->func.at[node.body].in_kind.at[k] == OPERAND_SLICE;
        g->value.at[cot].path = cotangent_name(g, g->arg.at[node.in + k]);
        add_out(g, node.body, cot, slice ? RESULT_STACK : RESULT_SUM);
        of[nout] = g->arg.at[node.in + k];
        out[nout] = g->value.at[of[nout]].type;
        nout++;
    }
    u32 made = node_add_typed(g, w->dst, node.op, &g->arg.at[node.in], nin, &g->attr.at[node.attr],
                              node.nattr, out, nout);
    Node *to = &g->node.at[made];
    to->body = node.body;
    to->trips = node.trips;
    to->path = node.path;
    to->loc = node.loc;
    node_move(g, made, n);
    node_drop(g, n);
    for (u32 k = 0; k < nout; k++) {
        if (k < node.nout) {
            g->value.at[to->out + k].flags = g->value.at[node.out + k].flags;
            value_replace(g, w->dst, node.out + k, g->node.at[made].out + k);
        } else {
            give(w, of[k], g->node.at[made].out + k);
        }
    }
}

/* ---- backward Funcs -------------------------------------------------------------------------- */

static Walk walk_new(Pass *p, u32 src, u32 dst)
{
    Graph *g = p->g;
    Walk w = {.g = g, .src = src, .dst = dst, .n = p->nactive, .active = p->active};
    w.map = arena_alloc(g->arena, w.n * sizeof *w.map);
    w.part = arena_alloc(g->arena, w.n * sizeof *w.part);
    return w;
}

static bool value_used(const Graph *g, u32 func, u32 v)
{
    const Func *f = &g->func.at[func];
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        for (u32 k = 0; k < n->nin; k++) {
            if (g->arg.at[n->in + k] == v) {
                return true;
            }
        }
    }
    for (u32 i = 0; i < f->out.n; i++) {
        if (f->out.at[i] == v) {
            return true;
        }
    }
    return false;
}

static i32 index_of(const u32 *at, u32 n, u32 v)
{
    for (u32 i = 0; i < n; i++) {
        if (at[i] == v) {
            return (i32)i;
        }
    }
    return -1;
}

/* Drop unused inputs; say where each of the others comes from; add Save rows. */
static void variant_inputs(Pass *p, Variant *var, const u32 *map, const u32 *cot_of, u32 ncot)
{
    Graph *g = p->g;
    u32 keep = 0, nin = g->func.at[var->bwd].in.n;
    for (u32 i = 0; i < nin; i++) {
        u32 v = g->func.at[var->bwd].in.at[i];
        bool cot = i < ncot;
        if (!cot && !value_used(g, var->bwd, v)) {
            continue;
        }
        g->func.at[var->bwd].in.at[keep] = v;
        g->value.at[v].out = (u16)keep++;
        i32 from = cot ? FROM_COT + (i32)cot_of[i] : FROM_SAVE;
        if (!cot) {
            const Func *f = &g->func.at[var->fwd];
            u32 src = (u32)index_of(map, p->nactive, v);
            i32 in = index_of(f->in.at, f->in.n, src), out = index_of(f->out.at, f->out.n, src);
            from = in >= 0 ? FROM_IN + in : out >= 0 ? FROM_OUT + out : FROM_SAVE;
            if (from == FROM_SAVE) {
                vec_push(g->arena, &g->save, (Save){var->fwd, src, var->bwd, v, SAVE_KEEP, 0});
            }
        }
        vec_push(g->arena, &var->from, from);
    }
    g->func.at[var->bwd].in.n = keep;
}

static u32 variant_add(Pass *p, u32 fwd, u64 mask)
{
    Graph *g = p->g;
    Variant var = {.fwd = fwd, .mask = mask};
    u32 same = 0;
    for (u32 i = 0; i < p->variant.n; i++) {
        same += p->variant.at[i].fwd == fwd;
    }
    const char *fname = sym_str(g, g->func.at[fwd].name);
    Sym name = same ? sym_fmt(g, "%s.bwd.%u", fname, same) : sym_fmt(g, "%s.bwd", fname);
    var.bwd = func_add(g, name, ROLE_BWD);
    g->func.at[var.bwd].twin = fwd;
    g->func.at[var.bwd].path = g->func.at[fwd].path;
    g->func.at[var.bwd].loc = g->func.at[fwd].loc;
    Walk w = walk_new(p, fwd, var.bwd);
    u32 cot_of[64], ncot = 0;
    for (u32 j = 0; j < g->func.at[fwd].out.n; j++) {
        if (mask >> j & 1) {
            u32 out = g->func.at[fwd].out.at[j];
            Sym path = sym_fmt(g, "d%s", sym_str(g, g->value.at[out].path));
            u32 d = func_input(g, var.bwd, g->value.at[out].type, path);
            g->value.at[d].flags = g->value.at[out].flags & VF_RESID;
            cot_of[ncot++] = j;
            give(&w, out, d);
        }
    }
    reverse(&w);
    for (u32 i = 0; i < g->func.at[fwd].in.n; i++) {
        u32 cot = cotangent(&w, g->func.at[fwd].in.at[i]);
        if (cot) {
            vec_push(g->arena, &g->func.at[var.bwd].out, cot);
            vec_push(g->arena, &var.grad, i);
        }
    }
    func_sweep(g, var.bwd);
    variant_inputs(p, &var, w.map, cot_of, ncot);
    vec_push(g->arena, &p->variant, var);
    return p->variant.n - 1;
}

static u32 variant_find(Pass *p, u32 fwd, u64 mask)
{
    for (u32 i = 0; i < p->variant.n; i++) {
        if (p->variant.at[i].fwd == fwd && p->variant.at[i].mask == mask) {
            return i;
        }
    }
    return variant_add(p, fwd, mask);
}

/* ---- the loss -------------------------------------------------------------------------------- */

/* A weight that comes to a loop as an invariant is read inside: its gradient is then added there.
 */
static void reads_into_loops(Graph *g, u32 func)
{
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 n = g->func.at[func].node.at[i];
        if (!node_is(g, n, "loop")) {
            continue;
        }
        u32 body = g->node.at[n].body, keep = 0;
        for (u32 k = 0; k < g->node.at[n].nin; k++) {
            u32 v = g->arg.at[g->node.at[n].in + k], in = g->func.at[body].in.at[k];
            if (node_is(g, g->value.at[v].node, "read")) {
                Formal fo = g->func.at[func].formal.at[g->node.at[g->value.at[v].node].formal - 1];
                u32 r = node_read(g, body, formal_find(g, body, fo.name, fo.type, fo.kind));
                node_move(g, g->value.at[r].node, g->func.at[body].node.at[0]);
                value_replace(g, body, in, r);
                continue;
            }
            g->arg.at[g->node.at[n].in + keep] = v;
            g->func.at[body].in.at[keep] = in;
            g->value.at[in].out = (u16)keep;
            g->func.at[body].in_kind.at[keep] = g->func.at[body].in_kind.at[k];
            keep++;
        }
        g->node.at[n].nin = g->func.at[body].in.n = g->func.at[body].in_kind.n = keep;
    }
}

/* Activity of a clone: that of its original, and of reads that moved. */
static void activity_clone(Pass *p, u32 func, const u32 *map, u32 nmap)
{
    Graph *g = p->g;
    bool *active = arena_alloc(g->arena, g->value.n + 1);
    memcpy(active, p->active, p->nactive);
    for (u32 v = 1; v < nmap && v < p->nactive; v++) {
        if (map[v] && p->active[v]) {
            active[map[v]] = true;
        }
    }
    p->active = active;
    p->nactive = g->value.n;
    while (activity_func(g, func, active)) {
    }
}

static u32 loss_func(Pass *p, const Call *call, Variant *var)
{
    Graph *g = p->g;
    u32 nmap = g->value.n;
    u32 *map = arena_alloc(g->arena, nmap * sizeof *map);
    const char *name = sym_str(g, g->func.at[call->func].name);
    u32 func = func_clone(g, call->func, ROLE_LOSS, arena_fmt(g->arena, "%s.loss", name), map);
    reads_into_loops(g, func);
    activity_clone(p, func, map, nmap);
    u32 nout = g->func.at[func].out.n;
    u32 *out = arena_alloc(g->arena, (nout + 1) * sizeof *out);
    if (nout) {
        memcpy(out, g->func.at[func].out.at, nout * sizeof *out);
    }
    loss_metrics(g, func, call);
    Walk w = walk_new(p, func, func);
    for (u32 v = 0; v < w.n; v++) {
        w.map[v] = v;
    }
    for (u32 k = 0; k < nout; k++) {
        if (p->active[out[k]]) {
            give(&w, out[k], gscale(g, func));
        }
    }
    reverse(&w);
    for (u32 i = 0; i < g->func.at[func].in.n; i++) {
        u32 cot = cotangent(&w, g->func.at[func].in.at[i]);
        if (cot) {
            vec_push(g->arena, &g->func.at[func].out, cot);
            vec_push(g->arena, &var->grad, i);
        }
    }
    loops_sweep(g, func);
    return func;
}

/* ---- chains ---------------------------------------------------------------------------------- */

/* A further contribution to the cotangent of a reg: an addition between two calls. */
static u32 sum_regs(Pass *p, u32 chain, u32 a, u32 b)
{
    Graph *g = p->g;
    Type t = g->reg.at[a].type;
    u32 func = func_add(g, sym_fmt(g, "grad.sum.%u", g->func.n), ROLE_BWD);
    u32 in[2] = {func_input(g, func, t, 0), 0};
    in[1] = func_input(g, func, t, 0);
    u32 n = node_add(g, func, op_need(g, "add"), in, 2, NULL, 0);
    vec_push(g->arena, &g->func.at[func].out, g->node.at[n].out);
    u32 out = reg_add(g, sym_fmt(g, "%s.sum", sym_str(g, g->reg.at[b].name)), t);
    Call call = {.func = func, .layer = -1};
    vec_push(g->arena, &call.in, a);
    vec_push(g->arena, &call.in, b);
    vec_push(g->arena, &call.out, out);
    vec_push(g->arena, &g->chain.at[chain].call, call);
    return out;
}

/* Regs for the cotangents that a call makes; contributions to one reg are added at once. */
static void call_grads(Pass *p, u32 chain, Call *call, const Call *fwd, const u32 *grad, u32 ngrad)
{
    Graph *g = p->g;
    u32 first = g->reg.n;
    for (u32 k = 0; k < ngrad; k++) {
        Reg x = g->reg.at[fwd->in.at[grad[k]]];
        u32 d = reg_add(g, sym_fmt(g, "d%s", sym_str(g, x.name)), x.type);
        if (p->dreg[fwd->in.at[grad[k]]]) {
            g->reg.at[d].name = sym_fmt(g, "d%s.%u", sym_str(g, x.name), d);
        }
        vec_push(g->arena, &call->out, d);
    }
    vec_push(g->arena, &g->chain.at[chain].call, *call);
    for (u32 k = 0; k < ngrad; k++) {
        u32 *d = &p->dreg[fwd->in.at[grad[k]]];
        *d = *d ? sum_regs(p, chain, *d, first + k) : first + k;
    }
}

static void call_bwd(Pass *p, u32 chain, u32 k)
{
    Graph *g = p->g;
    Call fwd = g->chain.at[p->chain].call.at[k];
    u64 mask = 0;
    for (u32 j = 0; j < fwd.out.n; j++) {
        mask |= p->dreg[fwd.out.at[j]] && p->active[g->func.at[fwd.func].out.at[j]] ? 1ull << j : 0;
    }
    if (!mask) {
        return;
    }
    u32 which = variant_find(p, fwd.func, mask); /* adds to p->variant */
    Variant var = p->variant.at[which];
    Call call = {.func = var.bwd,
                 .layer = fwd.layer,
                 .prefix = fwd.prefix,
                 .stage = fwd.stage,
                 .chunk = fwd.chunk,
                 .twin = k + 1};
    for (u32 i = 0; i < var.from.n; i++) {
        i32 from = var.from.at[i];
        u32 reg = from >= FROM_OUT   ? fwd.out.at[from - FROM_OUT]
                  : from >= FROM_IN  ? fwd.in.at[from - FROM_IN]
                  : from >= FROM_COT ? p->dreg[fwd.out.at[from - FROM_COT]]
                                     : 0;
        vec_push(g->arena, &call.in, reg);
    }
    call_grads(p, chain, &call, &fwd, var.grad.at, var.grad.n);
}

static u32 chain_bwd(Pass *p)
{
    Graph *g = p->g;
    u32 chain = chain_add(g, "bwd", ROLE_BWD);
    u32 last = g->chain.at[p->chain].call.n - 1;
    Call fwd = g->chain.at[p->chain].call.at[last];
    Variant var = {0};
    Call loss = call_like(g, &fwd, loss_func(p, &fwd, &var));
    call_grads(p, chain, &loss, &fwd, var.grad.at, var.grad.n);
    for (u32 k = last; k-- > 0;) {
        call_bwd(p, chain, k);
    }
    return chain;
}

/* ---- accumulators ---------------------------------------------------------------------------- */

static void accumulators(Pass *p)
{
    Graph *g = p->g;
    u32 n = g->var.n;
    for (u32 i = 1; i < n; i++) {
        Var w = g->var.at[i];
        if (w.kind != VAR_WEIGHT) {
            continue;
        }
        Var a = {.type = w.type, .kind = VAR_ACCUM, .life = LIFE_STEP, .of = i, .stages = w.stages};
        a.path = sym_fmt(g, "%s.grad", sym_str(g, w.path));
        a.type.dtype = DT_F32;
        memcpy(a.at, w.at, sizeof a.at);
        a.loc = w.loc;
        if (!w.frozen) {
            vec_push(g->arena, &g->var, a);
        }
    }
}

/* first[node] says what the calls seen so far want of an accum: it is the first writer, or not. */
enum { BETA_NONE, BETA_FIRST, BETA_ADDS };
typedef struct {
    Graph *g;
    u8 *first; /* by node: BETA_* */
    u8 *wrote; /* by var: written before; 2 = must be cleared, since calls disagree */
} Beta;

static void beta_func(Beta *b, u32 func, Sym prefix)
{
    Graph *g = b->g;
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 id = g->func.at[func].node.at[i];
        if (node_is(g, id, "loop")) {
            beta_func(b, g->node.at[id].body, prefix);
        }
        if (!node_is(g, id, "accum")) {
            continue;
        }
        const Formal *fo = &g->func.at[func].formal.at[g->node.at[id].formal - 1];
        u32 var = fo->kind == VAR_ACCUM ? var_resolve(g, prefix, fo->name) : 0;
        if (!var) {
            continue;
        }
        u8 want = b->wrote[var] ? BETA_ADDS : BETA_FIRST;
        if (b->first[id] && b->first[id] != want) {
            b->wrote[var] = 2; /* this call adds where an earlier one cleared, or the reverse */
            want = BETA_ADDS;
        }
        b->first[id] = want;
        b->wrote[var] = b->wrote[var] ? b->wrote[var] : 1;
    }
}

/* The accumulator is cleared at the start of the loss, by an accum with beta 0 of zeros. */
static void clear_var(Graph *g, u32 func, u32 var)
{
    Var v = g->var.at[var];
    u32 before = g->func.at[func].node.at[0];
    Sym name = sym_fmt(g, "/%s", sym_str(g, v.path));
    u32 z = zeros(g, func, v.type);
    node_move(g, g->value.at[z].node, before);
    node_accum(g, func, formal_find(g, func, name, v.type, VAR_ACCUM), z);
    g->node.at[g->node.n - 1].beta = 0;
    node_move(g, g->node.n - 1, before);
}

static void betas(Pass *p, u32 chain)
{
    Graph *g = p->g;
    Beta b = {g, arena_alloc(g->arena, g->node.n + 1), arena_alloc(g->arena, g->var.n + 1)};
    /* a call may take back what an earlier one was promised: repeat until all agree */
    u32 cleared = 0;
    for (u32 again = 1; again;) {
        memset(b.first, 0, g->node.n);
        for (u32 v = 1; v < g->var.n; v++) {
            b.wrote[v] = b.wrote[v] == 2 ? 2 : 0;
        }
        for (u32 k = 0; k < g->chain.at[chain].call.n; k++) {
            const Call *call = &g->chain.at[chain].call.at[k];
            beta_func(&b, call->func, call->prefix);
        }
        u32 now = 0;
        for (u32 v = 1; v < g->var.n; v++) {
            now += b.wrote[v] == 2;
        }
        again = now > cleared;
        cleared = now;
    }
    u32 n = g->node.n;
    for (u32 i = 1; i < n; i++) {
        if (b.first[i]) {
            g->node.at[i].beta = b.first[i] == BETA_ADDS;
        }
    }
    for (u32 v = 1; v < g->var.n; v++) {
        if (g->var.at[v].kind == VAR_ACCUM && b.wrote[v] != 1) {
            clear_var(g, g->chain.at[chain].call.at[0].func, v);
        }
    }
}

/* ---- the pass -------------------------------------------------------------------------------- */

static void check_forward(Graph *g, u32 chain)
{
    if (!chain || !g->chain.at[chain].call.n) {
        fail(g, (Loc){0}, 324, "the model has no forward step");
    }
    const Chain *c = &g->chain.at[chain];
    const Func *loss = &g->func.at[c->call.at[c->call.n - 1].func];
    for (u32 i = 0; i < loss->out.n; i++) {
        if (g->value.at[loss->out.at[i]].type.rank) {
            fail(g, loss->loc, 325,
                 "the last step of the model must return sums only: %s returns a tensor\n"
                 "help: end the model with a loss, or return { loss_sum = ..., count = ... }",
                 sym_str(g, loss->name));
        }
    }
}

/* The forward form of the loss is in no chain any more, and nobody's twin. */
static void forget(Graph *g, u32 func)
{
    g->func.at[func].dead = true;
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        if (node_is(g, g->func.at[func].node.at[i], "loop")) {
            forget(g, g->node.at[g->func.at[func].node.at[i]].body);
        }
    }
    for (u32 f = 1; f < g->func.n; f++) {
        g->func.at[f].twin = g->func.at[f].twin == func ? 0 : g->func.at[f].twin;
    }
}

void pass_autodiff(Graph *g)
{
    Pass p = {.g = g, .chain = chain_find(g, "fwd")};
    check_forward(g, p.chain);
    activity(&p);
    p.dreg = arena_alloc(g->arena, (g->reg.n + 1) * sizeof *p.dreg);
    u32 last = g->chain.at[p.chain].call.n - 1;
    Call loss = g->chain.at[p.chain].call.at[last];

    u32 bwd = chain_bwd(&p);
    eval_chains(g);
    g->chain.at[p.chain].call.n = last;
    accumulators(&p);
    betas(&p, bwd);
    forget(g, loss.func);
    static const char *const name[] = {"fwd", "bwd", "eval", "logits"};
    for (u32 i = 0; i < sizeof name / sizeof *name; i++) {
        u32 chain = chain_find(g, name[i]);
        if (chain) {
            calls_bind(g, chain);
        }
    }
    g->chain.at[p.chain].out.n = 0; /* the loss is a metric now */
    chains_ports(g);
}
