/* precision.c: real dtypes.
 *
 * Layers are written in `f`, the compute type. Here it becomes f32, f64 or bf16. What is declared
 * f32 (row statistics, sums, gradients) stays f32, except in the f64 build, which has one float
 * type. With bf16 weights the optimizer works on an f32 master and writes the weight through a
 * cast. The gradient of a weight is rounded once, to the type of its accumulator: what feeds an
 * accumulation alone is computed in that type.
 *
 * needs: dtype `f`, flat arenas, the UPD Func
 * gives: no `f` anywhere; masters; casts
 */
#include "megagen.h"

#include <assert.h>
#include <string.h>

typedef struct {
    Graph *g;
    u8 compute, sums; /* what `f` and what `f32` becomes */
} Precision;

static u8 real(const Precision *p, u8 dtype)
{
    return dtype == DT_F ? p->compute : dtype == DT_F32 ? p->sums : dtype;
}

/* ---- weight gradients in the type of their accumulator --------------------------------------- */

/* Does v end in an accumulation, directly or through views, and nowhere else? */
static bool only_accumulated(Graph *g, u32 func, u32 v)
{
    const Func *f = &g->func.at[func];
    for (u32 i = 0; i < f->out.n; i++) {
        if (f->out.at[i] == v) {
            return false;
        }
    }
    u32 n = 0;
    u32 *use = value_uses(g, func, v, &n);
    for (u32 i = 0; i < n; i++) {
        const Node *node = &g->node.at[use[i]];
        bool view = (g->op.at[node->op].flags & OF_VIEW) && node->nin == 1;
        if (!node_is(g, use[i], "accum") && !(view && only_accumulated(g, func, node->out))) {
            return false;
        }
    }
    return n > 0;
}

static void widen_grads(Graph *g, u32 func)
{
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 n = g->func.at[func].node.at[i];
        u32 flags = g->op.at[g->node.at[n].op].flags;
        bool input_view = (flags & OF_VIEW) && !g->value.at[g->arg.at[g->node.at[n].in]].node;
        if ((flags & OF_EFFECT) || input_view) {
            continue;
        }
        for (u32 k = 0; k < g->node.at[n].nout; k++) {
            u32 v = g->node.at[n].out + k;
            if (g->value.at[v].type.dtype == DT_F && only_accumulated(g, func, v)) {
                g->value.at[v].type.dtype = DT_F32;
            }
        }
    }
}

/* ---- dtypes ---------------------------------------------------------------------------------- */

static void set_attrs(Precision *p, const Node *n)
{
    Graph *g = p->g;
    for (u32 i = 0; i < n->nattr; i++) {
        Attr *a = &g->attr.at[n->attr + i];
        if (a->kind != AT_SYM || strcmp(sym_str(g, a->key), "dtype") != 0) {
            continue;
        }
        u8 dt = dtype_parse(sym_str(g, a->sym));
        a->sym = dt ? sym(g, dtype_name(real(p, dt))) : a->sym;
    }
}

static void set_dtypes(Precision *p)
{
    Graph *g = p->g;
    for (u32 i = 1; i < g->value.n; i++) {
        g->value.at[i].type.dtype = real(p, g->value.at[i].type.dtype);
    }
    for (u32 i = 1; i < g->node.n; i++) {
        set_attrs(p, &g->node.at[i]);
    }
    for (u32 i = 1; i < g->var.n; i++) {
        g->var.at[i].type.dtype = real(p, g->var.at[i].type.dtype);
    }
    for (u32 i = 1; i < g->flat.n; i++) {
        g->flat.at[i].dtype = real(p, g->flat.at[i].dtype);
    }
    for (u32 i = 1; i < g->reg.n; i++) {
        g->reg.at[i].type.dtype = real(p, g->reg.at[i].type.dtype);
    }
    for (u32 f = 1; f < g->func.n; f++) {
        for (u32 i = 0; i < g->func.at[f].formal.n; i++) {
            Type *t = &g->func.at[f].formal.at[i].type;
            t->dtype = real(p, t->dtype);
        }
    }
}

/* A cast that changes nothing any more goes away. */
static void drop_casts(Graph *g, u32 func)
{
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        const Node *n = &g->node.at[g->func.at[func].node.at[i]];
        if (!node_is(g, g->func.at[func].node.at[i], "cast")) {
            continue;
        }
        u32 x = g->arg.at[n->in], y = n->out;
        bool result = false;
        for (u32 k = 0; k < g->func.at[func].out.n; k++) {
            result |= g->func.at[func].out.at[k] == y;
        }
        if (g->value.at[x].type.dtype == g->value.at[y].type.dtype &&
            (!result || g->value.at[x].node)) {
            g->value.at[x].flags |= g->value.at[y].flags;
            value_replace(g, func, y, x);
        }
    }
}

/* ---- masters --------------------------------------------------------------------------------- */

static u32 flat_by_name(const Graph *g, const char *name)
{
    for (u32 i = 1; i < g->flat.n; i++) {
        if (strcmp(sym_str(g, g->flat.at[i].name), name) == 0) {
            return i;
        }
    }
    return 0;
}

static void add_masters(Graph *g, u32 weight, u8 dtype)
{
    Flat flat = {.name = sym(g, "master"), .dtype = dtype, .kind = VAR_MASTER};
    flat.elems = g->flat.at[weight].elems;
    vec_push(g->arena, &g->flat, flat);
    u32 master = g->flat.n - 1;
    for (u32 i = 0; i < g->flat.at[weight].var.n; i++) {
        u32 of = g->flat.at[weight].var.at[i];
        Var m = g->var.at[of];
        m.path = sym_fmt(g, "%s.master", sym_str(g, m.path));
        m.type.dtype = dtype;
        m.kind = VAR_MASTER;
        m.of = of;
        m.flat = master;
        m.saved = true;
        vec_push(g->arena, &g->var, m);
        vec_push(g->arena, &g->flat.at[master].var, g->var.n - 1);
        g->var.at[of].saved =
            false; /* the checkpoint holds the master; the weight is its rounding */
    }
}

/* The update reads and writes the master; the weight is the master, rounded. */
static void update_master(Graph *g, u32 func, u8 dtype, u8 compute)
{
    u32 weight = 0;
    for (u32 i = 0; i < g->func.at[func].formal.n; i++) {
        if (strcmp(sym_str(g, g->func.at[func].formal.at[i].name), "/weight") == 0) {
            weight = i + 1;
        }
    }
    assert(weight && "the update has the flat weights");
    Type t = g->func.at[func].formal.at[weight - 1].type;
    t.dtype = dtype;
    u32 master = formal_find(g, func, sym(g, "/master"), t, VAR_MASTER);
    u32 n = g->func.at[func].node.n;
    for (u32 i = 0; i < n; i++) {
        u32 id = g->func.at[func].node.at[i];
        if (g->node.at[id].formal != weight) {
            continue;
        }
        g->node.at[id].formal = master;
        if (node_is(g, id, "read")) {
            g->value.at[g->node.at[id].out].type.dtype = dtype;
            continue;
        }
        u32 v = g->arg.at[g->node.at[id].in];
        g->value.at[v].type.dtype = dtype;
        Attr to = attr_sym(sym(g, "dtype"), sym(g, dtype_name(compute)));
        u32 cast = node_add(g, func, op_need(g, "cast"), &v, 1, &to, 1);
        node_write(g, func, weight, g->node.at[cast].out);
    }
}

/* Weights of a compute type narrower than the master get one. */
static void masters(Graph *g)
{
    u32 weight = flat_by_name(g, "weight"), chain = chain_find(g, "upd");
    u8 dtype = g->cfg.master ? g->cfg.master : DT_F32;
    u8 compute = g->flat.at[weight].dtype;
    if (!weight || !chain || dtype_size(compute) >= dtype_size(dtype)) {
        return;
    }
    add_masters(g, weight, dtype);
    update_master(g, g->chain.at[chain].call.at[0].func, dtype, compute);
    calls_bind(g, chain);
}

void pass_precision(Graph *g)
{
    Precision p = {.g = g, .compute = g->cfg.compute};
    p.compute = p.compute && p.compute != DT_F ? p.compute : DT_F32;
    p.sums = p.compute == DT_F64 ? DT_F64 : DT_F32;
    for (u32 f = 1; f < g->func.n; f++) {
        if (!g->func.at[f].dead) {
            widen_grads(g, f);
        }
    }
    set_dtypes(&p);
    masters(g);
    for (u32 f = 1; f < g->func.n; f++) {
        if (!g->func.at[f].dead) {
            drop_casts(g, f);
            func_sweep(g, f);
        }
    }
}
