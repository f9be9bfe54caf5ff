/* eval.c: the chains that only look: "eval" (forward and loss) and "logits" (one position, to
 * sample).
 *
 * Their Funcs are clones of the forward's: nothing is saved, nothing is dropped, no gradient.
 * Called by pass autodiff while the forward still ends with the loss.
 *
 * needs: chain "fwd" with the loss; gives: chains "eval" and "logits", metric Vars
 */
#include "megagen.h"

#include <assert.h>
#include <string.h>

static i32 index_of(const u32 *at, u32 n, u32 v)
{
    for (u32 i = 0; i < n; i++) {
        if (at[i] == v) {
            return (i32)i;
        }
    }
    return -1;
}

/* Results of a loss Func become accumulations into metric Vars named like the Regs. */
void loss_metrics(Graph *g, u32 func, const Call *call)
{
    u32 n = g->func.at[func].out.n;
    for (u32 k = 0; k < n; k++) {
        u32 v = g->func.at[func].out.at[k];
        Type t = g->value.at[v].type;
        Sym name = sym_fmt(g, "/%s", sym_str(g, g->reg.at[call->out.at[k]].name));
        node_accum(g, func, formal_find(g, func, name, t, VAR_METRIC), v);
        Sym path = sym_fmt(g, "%s", sym_str(g, name) + 1);
        if (!var_by_path(g, path)) {
            vec_push(g->arena, &g->var,
                     (Var){.path = path, .type = t, .kind = VAR_METRIC, .life = LIFE_RUN});
        }
    }
    g->func.at[func].out.n = 0;
}

u32 reg_add(Graph *g, Sym name, Type type)
{
    vec_push(g->arena, &g->reg, (Reg){.name = name, .type = type});
    return g->reg.n - 1;
}

Call call_like(Graph *g, const Call *fwd, u32 func)
{
    Call call = {.func = func,
                 .layer = fwd->layer,
                 .prefix = fwd->prefix,
                 .stage = fwd->stage,
                 .chunk = fwd->chunk};
    for (u32 i = 0; i < fwd->in.n; i++) {
        vec_push(g->arena, &call.in, fwd->in.at[i]);
    }
    return call;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static void drop_dropout(Graph *g, u32 func)
{
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 n = g->func.at[func].node.at[i];
        if (node_is(g, n, "dropout")) {
            value_replace(g, func, g->node.at[n].out, g->arg.at[g->node.at[n].in]);
        } else if (node_is(g, n, "loop")) {
            drop_dropout(g, g->node.at[n].body);
        }
    }
    loops_sweep(g, func);
}

static u32 eval_func(Graph *g, u32 func, u32 *done)
{
    if (!done[func]) {
        const char *name = sym_str(g, g->func.at[func].name);
        u32 to = func_clone(g, func, ROLE_EVAL, arena_fmt(g->arena, "%s.eval", name), NULL);
        done[func] = to;
    }
    return done[func];
}

/* Calls of the forward from 0 to last, with Funcs that save nothing and drop nothing. */
static u32 chain_eval(Graph *g, const char *name, u32 last, u32 *done, u32 *regs)
{
    u32 chain = chain_add(g, name, ROLE_EVAL);
    for (u32 k = 0; k <= last; k++) {
        Call fwd = g->chain.at[chain_find(g, "fwd")].call.at[k];
        Call call = call_like(g, &fwd, eval_func(g, fwd.func, done));
        for (u32 i = 0; i < call.in.n; i++) {
            call.in.at[i] = regs[call.in.at[i]] ? regs[call.in.at[i]] : call.in.at[i];
        }
        for (u32 i = 0; i < fwd.out.n; i++) {
            Reg r = g->reg.at[fwd.out.at[i]];
            regs[fwd.out.at[i]] = reg_add(g, sym_fmt(g, "%s.%s", name, sym_str(g, r.name)), r.type);
            vec_push(g->arena, &call.out, regs[fwd.out.at[i]]);
        }
        vec_push(g->arena, &g->chain.at[chain].call, call);
    }
    return chain;
}

/* ---- logits of one position ------------------------------------------------------------------ */

/* The value that is the logits: marked so, or the first operand of cross_entropy. */
static u32 logits_value(const Graph *g, u32 func)
{
    const Func *f = &g->func.at[func];
    for (u32 i = 0; i < f->node.n; i++) {
        u32 n = f->node.at[i];
        if (node_is(g, n, "cross_entropy")) {
            return g->arg.at[g->node.at[n].in];
        }
        u32 inner = node_is(g, n, "loop") ? logits_value(g, g->node.at[n].body) : 0;
        if (inner) {
            return inner;
        }
        for (u32 k = 0; k < g->node.at[n].nout; k++) {
            const Value *v = &g->value.at[g->node.at[n].out + k];
            if ((v->flags & VF_MARKED) && strcmp(sym_str(g, v->path), "logits") == 0) {
                return g->node.at[n].out + k;
            }
        }
    }
    return 0;
}

/* The loop of func (a node) whose body is `body`; 0 = none. */
static u32 loop_of(const Graph *g, u32 func, u32 body)
{
    const Func *f = &g->func.at[func];
    for (u32 i = 0; i < f->node.n; i++) {
        if (node_is(g, f->node.at[i], "loop") && g->node.at[f->node.at[i]].body == body) {
            return f->node.at[i];
        }
    }
    return 0;
}

/* v of src (or of its loop's body), computed in dst for one position of each row. Views that only
 * regroup tokens vanish; all else is taken again, its types inferred anew. */
static u32 at_position(Graph *g, u32 src, u32 dst, u32 v, u32 *map)
{
    if (map[v]) {
        return map[v];
    }
    u32 n = g->value.at[v].node;
    if (!n) { /* an input of the loop's body: its operand */
        u32 body = g->value.at[v].func, loop = loop_of(g, src, body);
        assert(loop && "inputs of src are mapped before");
        i32 k = index_of(g->func.at[body].in.at, g->func.at[body].in.n, v);
        return map[v] = at_position(g, src, dst, g->arg.at[g->node.at[loop].in + (u32)k], map);
    }
    Node node = g->node.at[n];
    if (node_is(g, n, "read")) {
        Formal fo = g->func.at[node.func].formal.at[node.formal - 1];
        return map[v] = node_read(g, dst, formal_find(g, dst, fo.name, fo.type, fo.kind));
    }
    u32 *in = arena_alloc(g->arena, (node.nin + 1) * sizeof *in);
    for (u32 k = 0; k < node.nin; k++) {
        u32 x = g->arg.at[node.in + k];
        in[k] = x ? at_position(g, src, dst, x, map) : 0;
    }
    if (node_is(g, n, "split") || node_is(g, n, "merge")) {
        return map[v] = in[0];
    }
    u32 made = node_add(g, dst, node.op, in, node.nin, &g->attr.at[node.attr], node.nattr);
    g->node.at[made].path = node.path;
    g->node.at[made].loc = node.loc;
    for (u32 k = 0; k < node.nout; k++) {
        map[node.out + k] = g->node.at[made].out + k;
        g->value.at[map[node.out + k]].flags = g->value.at[node.out + k].flags;
    }
    return map[v];
}

/* x[b s ..] -> [b ..] at run-time scalar pos. */
static u32 pick(Graph *g, u32 func, u32 x)
{
    u32 n = node_add(g, func, op_need(g, "at_pos"), &x, 1, NULL, 0);
    return g->node.at[n].out;
}

static void chain_logits(Graph *g, u32 *done)
{
    u32 last = g->chain.at[chain_find(g, "fwd")].call.n - 1;
    Call fwd = g->chain.at[chain_find(g, "fwd")].call.at[last];
    u32 v = logits_value(g, fwd.func);
    if (!v || last == 0) {
        return; /* a custom loss without logits: no sampling */
    }
    u32 *regs = arena_alloc(g->arena, (g->reg.n + 1) * sizeof *regs);
    u32 chain = chain_eval(g, "logits", last - 1, done, regs);
    g->chain.at[chain].role = ROLE_LOGITS;
    const char *name = sym_str(g, g->func.at[fwd.func].name);
    u32 func = func_add(g, sym_fmt(g, "%s.logits", name), ROLE_LOGITS);
    g->func.at[func].twin = fwd.func;
    g->func.at[func].path = g->func.at[fwd.func].path;
    g->func.at[func].loc = g->func.at[fwd.func].loc;
    u32 *map = arena_alloc(g->arena, g->value.n * sizeof *map);
    Call call = {.func = func, .layer = -1, .prefix = fwd.prefix};
    for (u32 i = 0; i < fwd.in.n; i++) {
        u32 x = g->func.at[fwd.func].in.at[i];
        u32 reg = regs[fwd.in.at[i]];
        if (reg) { /* batch inputs such as targets are not needed */
            map[x] = pick(g, func, func_input(g, func, g->value.at[x].type, g->value.at[x].path));
            vec_push(g->arena, &call.in, reg);
        }
    }
    u32 out = at_position(g, fwd.func, func, v, map);
    Type t = g->value.at[out].type;
    t.dtype = DT_F32;
    Attr to = attr_sym(sym(g, "dtype"), sym(g, "f32"));
    u32 n = node_add_typed(g, func, op_need(g, "cast"), &out, 1, &to, 1, &t, 1);
    vec_push(g->arena, &g->func.at[func].out, g->node.at[n].out);
    u32 reg = reg_add(g, sym(g, "logits"), t);
    g->reg.at[reg].io = true;
    vec_push(g->arena, &call.out, reg);
    vec_push(g->arena, &g->chain.at[chain].call, call);
    vec_push(g->arena, &g->chain.at[chain].out, reg);
}

/* ---- both chains ----------------------------------------------------------------------------- */

void eval_chains(Graph *g)
{
    const Chain *fwd = &g->chain.at[chain_find(g, "fwd")];
    u32 last = fwd->call.n - 1;
    Call loss = fwd->call.at[last];
    u32 *done = arena_alloc(g->arena, g->func.n * sizeof *done);
    u32 *regs = arena_alloc(g->arena, g->reg.n * sizeof *regs);
    u32 eval = chain_eval(g, "eval", last, done, regs);
    Call *eval_loss = &g->chain.at[eval].call.at[last];
    loss_metrics(g, eval_loss->func, &loss);
    eval_loss->out.n = 0;
    chain_logits(g, done);
    for (u32 f = 1; f < g->func.n; f++) {
        if (g->func.at[f].role == ROLE_EVAL) {
            drop_dropout(g, f);
        }
    }
}
