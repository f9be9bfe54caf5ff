/* verify_run.c: what runs. Calls get what their Funcs ask for; nothing live lies in the same bytes
 * as something else.
 *
 * The checks are naive on purpose: they know nothing of how plan came to its result.
 */
#include "megagen.h"
#include "verify.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const char *verify_reg(const Check *c, u32 reg)
{
    const char *s = sym_str(c->g, c->g->reg.at[reg].name);
    return *s ? s : arena_fmt(c->g->arena, "x%u", reg);
}

/* ---- variables and flat arenas --------------------------------------------------------------- */

/* Elements of a variable in its flat arena: ranges (F) cut the arena, not the variable. */
static u64 flat_elems(const Graph *g, const Var *v)
{
    Place at[ATOM_MAX];
    memcpy(at, v->at, sizeof at);
    for (u32 a = 0; a < ATOM_MAX; a++) {
        at[a] = at[a].kind == PL_F ? (Place){0} : at[a];
    }
    return type_local_elems(g, &v->type, at);
}

static void check_var(const Check *c, u32 id)
{
    Graph *g = c->g;
    const Var *v = &g->var.at[id];
    const char *path = sym_str(g, v->path);
    if (v->of >= g->var.n || (v->of && g->var.at[v->of].kind != VAR_WEIGHT)) {
        verify_fail(c, E_CALL, "variable %s belongs to no weight", path);
    }
    if (v->of) {
        const Var *w = &g->var.at[v->of];
        if (w->type.rank != v->type.rank ||
            memcmp(w->type.dim, v->type.dim, v->type.rank * sizeof v->type.dim[0]) != 0) {
            verify_fail(c, E_CALL, "variable %s is %s, its weight is %s", path,
                        type_str(g, &v->type), type_str(g, &w->type));
        }
    }
    for (u32 a = 0; a + 1 < g->atom.n; a++) {
        const Place *p = &v->at[a];
        if (p->kind == PL_S &&
            (p->dim >= v->type.rank || dim_mem(g, v->type.dim[p->dim]) % g->atom.at[a + 1].size)) {
            verify_fail(c, E_PLACE, "variable %s cannot be cut equally over %s", path,
                        sym_str(g, g->atom.at[a + 1].name));
        }
    }
    if (v->flat) {
        const Flat *f = &g->flat.at[v->flat];
        if (v->elem + flat_elems(g, v) > f->elems) {
            verify_fail(c, E_MEMORY, "variable %s reaches beyond flat arena %s", path,
                        sym_str(g, f->name));
        }
        if (f->dtype != v->type.dtype) {
            verify_fail(c, E_CALL, "variable %s is %s, its flat arena %s is %s", path,
                        dtype_name(v->type.dtype), sym_str(g, f->name), dtype_name(f->dtype));
        }
    }
}

static void check_vars(const Check *c)
{
    const Graph *g = c->g;
    for (u32 i = 1; i < g->var.n; i++) {
        check_var(c, i);
        const Var *v = &g->var.at[i];
        for (u32 k = 1; v->flat && k < i; k++) {
            const Var *w = &g->var.at[k];
            bool apart = v->stages && w->stages && !(v->stages & w->stages);
            if (w->flat == v->flat && !apart && v->elem < w->elem + flat_elems(g, w) &&
                w->elem < v->elem + flat_elems(g, v)) {
                verify_fail(c, E_MEMORY, "variables %s and %s overlap in flat arena %s",
                            sym_str(g, w->path), sym_str(g, v->path),
                            sym_str(g, g->flat.at[v->flat].name));
            }
        }
    }
}

/* ---- calls, regs, saves ---------------------------------------------------------------------- */

static bool fed_by_save(const Graph *g, u32 func, u32 value)
{
    for (u32 i = 1; i < g->save.n; i++) {
        if (g->save.at[i].to == func && g->save.at[i].to_value == value) {
            return true;
        }
    }
    return false;
}

/* A reg and the value that a Func calls it. */
static void check_reg(const Check *c, u32 reg, u32 value, const char *what)
{
    Graph *g = c->g;
    if (reg >= g->reg.n) {
        verify_fail(c, E_CALL, "%s: no such reg", what);
    }
    const Reg *r = &g->reg.at[reg];
    const Value *v = &g->value.at[value];
    if (!type_equal(&r->type, &v->type)) {
        verify_fail(c, E_CALL, "%s: reg %s is %s, %s is %s", what, verify_reg(c, reg),
                    type_str(g, &r->type), verify_value(c, value), type_str(g, &v->type));
    }
    if (!verify_same_place(g, r->at, v->at)) {
        verify_fail(c, E_PLACE, "%s: reg %s and %s differ in placement", what, verify_reg(c, reg),
                    verify_value(c, value));
    }
}

/* Is there a chain whose call `twin` runs the Func that this one was made from? */
static bool has_twin(const Graph *g, const Call *k)
{
    u32 want = g->func.at[k->func].twin;
    for (u32 i = 1; i < g->chain.n; i++) {
        const Chain *c = &g->chain.at[i];
        if (k->twin <= c->call.n && (!want || c->call.at[k->twin - 1].func == want)) {
            return true;
        }
    }
    return false;
}

/* Reads and accums of the Func see the variable with the place that it has. */
static void check_formal_place(const Check *c, u32 formal, const Place *at, const char *name)
{
    Graph *g = c->g;
    const Func *f = &g->func.at[c->func];
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        if (n->formal != formal) {
            continue;
        }
        u32 v = n->nout ? n->out : g->arg.at[n->in];
        Place want[ATOM_MAX];
        memcpy(want, at, sizeof want);
        for (u32 a = 0; n->nin && a < ATOM_MAX; a++) { /* each stage adds to its own part */
            want[a] = verify_stage_atom(g, a) && want[a].kind == PL_P ? (Place){0} : want[a];
        }
        if (!verify_same_place(g, want, g->value.at[v].at)) {
            verify_fail(c, E_PLACE, "%s and variable %s differ in placement", verify_value(c, v),
                        name);
        }
    }
}

static void check_bind(const Check *c, const Call *k, u32 i)
{
    Graph *g = c->g;
    const Formal *x = &g->func.at[k->func].formal.at[i];
    const char *name = sym_str(g, x->name);
    u32 b = k->bind.at[i];
    if (b & FLAT_BIND) {
        u32 id = b & ~FLAT_BIND;
        if (id == 0 || id >= g->flat.n || g->flat.at[id].elems != type_elems(g, &x->type) ||
            g->flat.at[id].dtype != x->type.dtype) {
            verify_fail(c, E_CALL, "%s does not fit its flat arena", name);
        }
        check_formal_place(c, i + 1, g->flat.at[id].at, name);
        return;
    }
    if (b == 0 || b >= g->var.n) {
        verify_fail(c, E_CALL, "%s is bound to no variable", name);
    }
    const Var *v = &g->var.at[b];
    if (!type_equal(&v->type, &x->type) || v->kind != x->kind) {
        verify_fail(c, E_CALL, "%s is %s, variable %s is %s (or of another kind)", name,
                    type_str(g, &x->type), sym_str(g, v->path), type_str(g, &v->type));
    }
    if (v->stages && !(v->stages >> k->stage & 1)) {
        verify_fail(c, E_CALL, "variable %s does not live on stage %d", sym_str(g, v->path),
                    (int)k->stage);
    }
    check_formal_place(c, i + 1, v->at, name);
}

static void check_call(Check *c, const Call *k, bool *made)
{
    const Graph *g = c->g;
    if (k->func == 0 || k->func >= g->func.n || g->func.at[k->func].dead) {
        verify_fail(c, E_CALL, "a call of no Func");
    }
    const Func *f = &g->func.at[k->func];
    c->func = k->func;
    if (k->in.n != f->in.n || k->out.n != f->out.n || k->bind.n != f->formal.n) {
        verify_fail(
            c, E_CALL, "called at `%s` with %u regs, %u results, %u variables, not %u, %u, %u",
            sym_str(g, k->prefix), k->in.n, k->out.n, k->bind.n, f->in.n, f->out.n, f->formal.n);
    }
    for (u32 i = 0; i < k->in.n; i++) {
        u32 r = k->in.at[i];
        if (r == 0 && !fed_by_save(g, k->func, f->in.at[i])) {
            verify_fail(c, E_CALL, "input %s comes from no reg and no save",
                        verify_value(c, f->in.at[i]));
        }
        if (r) {
            check_reg(c, r, f->in.at[i], "an input");
            if (!made[r]) {
                verify_fail(c, E_CALL, "reg %s is used before it is made", verify_reg(c, r));
            }
        }
    }
    for (u32 i = 0; i < k->out.n; i++) {
        u32 r = k->out.at[i];
        if (r) {
            check_reg(c, r, f->out.at[i], "a result");
            if (made[r]) {
                verify_fail(c, E_CALL, "reg %s is made twice", verify_reg(c, r));
            }
            made[r] = true;
        }
    }
    for (u32 i = 0; i < k->bind.n; i++) {
        check_bind(c, k, i);
    }
    if (k->twin && !has_twin(g, k)) {
        verify_fail(c, E_CALL, "its twin %u runs another Func", k->twin);
    }
}

static bool made_elsewhere(const Graph *g, u32 chain, u32 reg)
{
    for (u32 i = 1; i < g->chain.n; i++) {
        const Chain *c = &g->chain.at[i];
        for (u32 k = 0; i != chain && k < c->call.n; k++) {
            for (u32 r = 0; r < c->call.at[k].out.n; r++) {
                if (c->call.at[k].out.at[r] == reg) {
                    return true;
                }
            }
        }
    }
    return false;
}

static void check_chain(Check *c, u32 id)
{
    const Graph *g = c->g;
    const Chain *ch = &g->chain.at[id];
    bool *made = arena_alloc(g->arena, g->reg.n);
    for (u32 i = 0; i < ch->in.n; i++) {
        u32 r = ch->in.at[i];
        if (r == 0 || r >= g->reg.n || (!g->reg.at[r].io && !made_elsewhere(g, id, r))) {
            verify_fail(c, E_CALL,
                        "chain %s: input %u is no batch input and no other chain makes it",
                        sym_str(g, ch->name), i);
        }
        made[r] = true;
    }
    for (u32 i = 0; i < ch->call.n; i++) {
        check_call(c, &ch->call.at[i], made);
    }
    c->func = 0;
    for (u32 i = 0; i < ch->out.n; i++) {
        u32 r = ch->out.at[i];
        if (r == 0 || r >= g->reg.n || !made[r]) {
            verify_fail(c, E_CALL, "chain %s: result %u is not made", sym_str(g, ch->name), i);
        }
    }
}

static bool is_input(const Graph *g, u32 func, u32 value)
{
    return value < g->value.n && g->value.at[value].func == func && g->value.at[value].node == 0;
}

static void check_save(Check *c, u32 id)
{
    Graph *g = c->g;
    const Save *s = &g->save.at[id];
    c->func = s->to;
    if (s->from == 0 || s->from >= g->func.n || s->to == 0 || s->to >= g->func.n ||
        s->from_value >= g->value.n || g->value.at[s->from_value].func != s->from) {
        verify_fail(c, E_SAVE, "save %u names no value of its Func", id);
    }
    if (s->mode == SAVE_RECOMPUTE) {
        return; /* the input is gone once remat has cloned what makes it */
    }
    if (!is_input(g, s->to, s->to_value)) {
        verify_fail(c, E_SAVE, "save %u feeds no input", id);
    }
    const Value *x = &g->value.at[s->from_value], *y = &g->value.at[s->to_value];
    if (!type_equal(&x->type, &y->type) || !verify_same_place(g, x->at, y->at)) {
        verify_fail(c, E_SAVE,
                    "%s is %s where it is made and %s where it is used (or placed otherwise)",
                    verify_value(c, s->to_value), type_str(g, &x->type), type_str(g, &y->type));
    }
    u32 a = g->func.at[s->from].twin, b = g->func.at[s->to].twin;
    if (b != s->from && !(a && a == b)) {
        verify_fail(c, E_SAVE, "it was not made from Func %s",
                    sym_str(g, g->func.at[s->from].name));
    }
    for (u32 i = 1; i < id; i++) {
        if (g->save.at[i].to_value == s->to_value && g->save.at[i].mode != SAVE_RECOMPUTE) {
            verify_fail(c, E_SAVE, "%s is fed twice", verify_value(c, s->to_value));
        }
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

typedef struct {
    u64 lo, hi; /* bytes [lo, hi) of the arena */
    u32 t0, t1; /* live from call t0 to call t1 of the program, both included */
    u32 reg;    /* 0: no reg */
    const char *name;
} Object;

/* Calls that run one after another: one step, or one evaluation. */
typedef struct {
    Check *c;
    VEC(const Call *) call;
    VEC(u32) chain; /* of each call */
    VEC(Object) object;
    i32 stage;
} Program;

static u64 local_bytes(const Graph *g, const Type *t, const Place *at)
{
    return type_local_elems(g, t, at) * dtype_size(t->dtype);
}

static void add_object(Program *p, Object o)
{
    vec_push(p->c->g->arena, &p->object, o);
}

static bool holds(const Program *p, const Call *k, u32 reg, bool in)
{
    (void)p;
    u32 n = in ? k->in.n : k->out.n;
    const u32 *at = in ? k->in.at : k->out.at;
    for (u32 i = 0; i < n; i++) {
        if (at[i] == reg) {
            return true;
        }
    }
    return false;
}

static void add_reg(Program *p, u32 id)
{
    Graph *g = p->c->g;
    const Reg *r = &g->reg.at[id];
    Object o = {.lo = r->off, .reg = id, .t0 = UINT32_MAX, .name = verify_reg(p->c, id)};
    o.hi = o.lo + local_bytes(g, &r->type, r->at);
    bool here = false;
    for (u32 t = 0; t < p->call.n; t++) {
        bool out = holds(p, p->call.at[t], id, false), in = holds(p, p->call.at[t], id, true);
        if (out || in) {
            o.t0 = o.t0 == UINT32_MAX ? (out ? t : 0) : o.t0;
            o.t1 = t;
            here = here || p->call.at[t]->stage == p->stage;
        }
    }
    for (u32 i = 1; i < g->chain.n; i++) {
        for (u32 k = 0; k < g->chain.at[i].out.n; k++) {
            o.t1 = g->chain.at[i].out.at[k] == id ? p->call.n : o.t1;
        }
    }
    if (r->io) {
        o.t0 = 0;
        o.t1 = p->call.n;
    }
    if (here) {
        add_object(p, o);
    }
}

/* The saves of one forward call live until the last call that reads them. */
static void add_saves(Program *p, u32 t, u32 index)
{
    Graph *g = p->c->g;
    const Call *k = p->call.at[t];
    for (u32 i = 1; i < g->save.n; i++) {
        const Save *s = &g->save.at[i];
        const Value *v = &g->value.at[s->from_value];
        if (s->from != k->func || s->mode != SAVE_KEEP || v->node == 0 ||
            is_input(g, s->from, v->base)) {
            continue;
        }
        bool passed = false; /* results of the Func lie in their regs */
        const Func *f = &g->func.at[s->from];
        for (u32 o = 0; o < f->out.n; o++) {
            passed = passed || f->out.at[o] == s->from_value;
        }
        Object o = {.lo = k->saved_off + s->off, .t0 = t, .t1 = t};
        o.hi = o.lo + local_bytes(g, &v->type, v->at);
        for (u32 u = t + 1; u < p->call.n; u++) {
            bool reads = p->call.at[u]->func == s->to && p->call.at[u]->twin == index + 1;
            o.t1 = reads ? u : o.t1;
        }
        o.name =
            arena_fmt(g->arena, "%s of Func %s, saved at `%s`", verify_value(p->c, s->from_value),
                      sym_str(g, f->name), sym_str(g, k->prefix));
        if (!passed && o.t1 > t) {
            add_object(p, o);
        }
    }
}

static bool on_stage(const Program *p, u64 stages)
{
    return stages == 0 || stages >> p->stage & 1;
}

static void add_state(Program *p)
{
    Graph *g = p->c->g;
    for (u32 i = 1; i < g->flat.n; i++) {
        const Flat *f = &g->flat.at[i];
        u64 n = f->elems;
        for (u32 a = 0; a + 1 < g->atom.n; a++) {
            u64 parts = (u64)g->atom.at[a + 1].size;
            n = f->at[a].kind == PL_F ? (n + parts - 1) / parts : n;
        }
        add_object(p, (Object){f->off, f->off + n * dtype_size(f->dtype), 0, p->call.n, 0,
                               sym_str(g, f->name)});
    }
    for (u32 i = 1; i < g->var.n; i++) {
        const Var *v = &g->var.at[i];
        if (!v->flat && on_stage(p, v->stages)) {
            add_object(p, (Object){v->off, v->off + local_bytes(g, &v->type, v->at), 0, p->call.n,
                                   0, sym_str(g, v->path)});
        }
    }
}

/* A result of the call may lie on an operand of it: the Func writes in place or passes it on. */
static bool in_place(const Program *p, const Object *a, const Object *b)
{
    const Graph *g = p->c->g;
    if (!a->reg || !b->reg || a->lo != b->lo || a->t1 != b->t0 || a->t1 >= p->call.n) {
        return false;
    }
    const Call *k = p->call.at[a->t1];
    const Func *f = &g->func.at[k->func];
    for (u32 o = 0; o < k->out.n; o++) {
        for (u32 i = 0; i < k->in.n; i++) {
            if (k->out.at[o] == b->reg && k->in.at[i] == a->reg &&
                g->value.at[f->out.at[o]].base == f->in.at[i]) {
                return true;
            }
        }
    }
    return false;
}

static void check_objects(const Program *p)
{
    const Graph *g = p->c->g;
    for (u32 i = 0; i < p->object.n; i++) {
        const Object *a = &p->object.at[i];
        if (a->hi > g->arena_bytes) {
            verify_fail(p->c, E_MEMORY, "%s ends at byte %llu of an arena of %llu", a->name,
                        (unsigned long long)a->hi, (unsigned long long)g->arena_bytes);
        }
        for (u32 k = 0; k < i; k++) {
            const Object *b = &p->object.at[k];
            bool meet = a->lo < b->hi && b->lo < a->hi && a->t0 <= b->t1 && b->t0 <= a->t1;
            if (meet && !in_place(p, a, b) && !in_place(p, b, a)) {
                verify_fail(p->c, E_MEMORY, "%s and %s are live in the same bytes, from %llu on",
                            b->name, a->name, (unsigned long long)(a->lo > b->lo ? a->lo : b->lo));
            }
        }
    }
}

static u64 scratch_at(const Graph *g)
{
    return g->region[REGION_SCRATCH].off;
}

static bool bufs_meet(const Buf *a, const Buf *b)
{
    return a->off < b->off + b->bytes && b->off < a->off + a->bytes;
}

/* Buffers of a loop's body against those of the Func around it that are live at the loop. */
static void check_body_bufs(const Check *c, u32 func, u32 body, u32 pos)
{
    const Graph *g = c->g;
    for (u32 i = 1; i < g->buf.n; i++) {
        const Buf *a = &g->buf.at[i];
        for (u32 k = 1; a->region == REGION_SCRATCH && a->func == func && a->first <= pos &&
                        pos <= a->last && k < g->buf.n;
             k++) {
            const Buf *b = &g->buf.at[k];
            if (b->region == REGION_SCRATCH && b->func == body && bufs_meet(a, b)) {
                verify_fail(c, E_MEMORY,
                            "buffer b%u is live while the loop uses the same bytes for b%u", i, k);
            }
        }
    }
    const Func *f = &g->func.at[body];
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        if (strcmp(sym_str(g, g->op.at[n->op].name), "loop") == 0) {
            check_body_bufs(c, func, n->body, pos);
        }
    }
}

static void check_bufs(Check *c)
{
    const Graph *g = c->g;
    for (u32 i = 1; i < g->buf.n; i++) {
        const Buf *a = &g->buf.at[i];
        c->func = a->func;
        if (a->region == REGION_SCRATCH && a->off + a->bytes > g->region[REGION_SCRATCH].bytes) {
            verify_fail(c, E_MEMORY, "buffer b%u reaches beyond the scratch region", i);
        }
        for (u32 k = 1; k < i; k++) {
            const Buf *b = &g->buf.at[k];
            if (a->region == REGION_SCRATCH && b->region == a->region && a->func == b->func &&
                a->first <= b->last && b->first <= a->last && bufs_meet(a, b)) {
                verify_fail(c, E_MEMORY, "buffers b%u and b%u are live in the same bytes", k, i);
            }
        }
    }
    for (u32 f = 1; f < g->func.n; f++) {
        const Func *x = &g->func.at[f];
        c->func = f;
        for (u32 i = 0; i < x->node.n && !x->dead; i++) {
            const Node *n = &g->node.at[x->node.at[i]];
            if (strcmp(sym_str(g, g->op.at[n->op].name), "loop") == 0) {
                check_body_bufs(c, f, n->body, i);
            }
        }
    }
    c->func = 0;
}

/* A value and its buffer: large enough, live from where it is made to its last use. */
static void check_value_bufs(Check *c, u32 func)
{
    const Graph *g = c->g;
    const Func *f = &g->func.at[func];
    c->func = func;
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        c->node = f->node.at[i];
        for (u32 k = 0; k < n->nin + n->nout; k++) {
            u32 v = k < n->nin ? g->arg.at[n->in + k] : n->out + k - n->nin;
            const Value *b = &g->value.at[g->value.at[v].base];
            if (v == 0 || b->buf == 0 || g->op.at[n->op].flags & OF_VIEW) {
                continue;
            }
            if (b->buf >= g->buf.n || g->buf.at[b->buf].func != func) {
                verify_fail(c, E_MEMORY, "%s lies in a buffer of another Func", verify_value(c, v));
            }
            const Buf *x = &g->buf.at[b->buf];
            if (x->bytes < local_bytes(g, &b->type, b->at)) {
                verify_fail(c, E_MEMORY, "%s does not fit into buffer b%u", verify_value(c, v),
                            b->buf);
            }
            if (i < x->first || i > x->last) {
                verify_fail(c, E_MEMORY, "%s is used at position %u, its buffer b%u lives %u..%u",
                            verify_value(c, v), i, b->buf, x->first, x->last);
            }
        }
    }
    c->func = c->node = 0;
}

/* A reg in the scratch region must not meet a buffer of a call that runs while it is live. */
static void check_scratch(const Program *p)
{
    const Graph *g = p->c->g;
    for (u32 i = 0; i < p->object.n; i++) {
        const Object *o = &p->object.at[i];
        const Region *r = &g->region[REGION_SCRATCH];
        if (o->hi <= r->off || o->lo >= r->off + r->bytes) {
            continue;
        }
        for (u32 t = o->t0; t <= o->t1 && t < p->call.n; t++) {
            for (u32 k = 1; k < g->buf.n; k++) {
                const Buf *b = &g->buf.at[k];
                u64 lo = scratch_at(g) + b->off;
                if (b->region == REGION_SCRATCH && b->func == p->call.at[t]->func &&
                    o->lo < lo + b->bytes && lo < o->hi) {
                    verify_fail(p->c, E_MEMORY,
                                "%s lies in the bytes of buffer b%u, which Func %s uses", o->name,
                                k, sym_str(g, g->func.at[b->func].name));
                }
            }
        }
    }
}

static void check_program(Check *c, const u32 *chain, u32 n, i32 stage)
{
    const Graph *g = c->g;
    Program p = {.c = c, .stage = stage};
    for (u32 i = 0; i < n; i++) {
        const Chain *ch = &g->chain.at[chain[i]];
        for (u32 k = 0; k < ch->call.n; k++) {
            vec_push(g->arena, &p.call, &ch->call.at[k]);
            vec_push(g->arena, &p.chain, chain[i]);
        }
    }
    add_state(&p);
    for (u32 i = 1; i < g->reg.n; i++) {
        add_reg(&p, i);
    }
    u32 index = 0;
    for (u32 t = 0; t < p.call.n; t++) {
        index = t && p.chain.at[t] == p.chain.at[t - 1] ? index + 1 : 0;
        if (p.call.at[t]->stage == stage) {
            add_saves(&p, t, index);
        }
    }
    check_objects(&p);
    check_scratch(&p);
}

static bool in_step(u8 role)
{
    return role == ROLE_FWD || role == ROLE_BWD || role == ROLE_BWDW || role == ROLE_LOSS ||
           role == ROLE_UPD;
}

static void check_regions(const Check *c)
{
    const Graph *g = c->g;
    for (u32 i = 0; i < REGION_COUNT; i++) {
        const Region *a = &g->region[i];
        if (a->bytes && a->off + a->bytes > g->arena_bytes) {
            verify_fail(c, E_MEMORY, "region %u ends beyond the arena", i);
        }
        for (u32 k = 0; k < i; k++) {
            const Region *b = &g->region[k];
            if (a->off < b->off + b->bytes && b->off < a->off + a->bytes) {
                verify_fail(c, E_MEMORY, "regions %u and %u overlap", k, i);
            }
        }
    }
}

static void check_memory(Check *c)
{
    const Graph *g = c->g;
    i32 last = 0;
    u32 *step = arena_alloc(g->arena, g->chain.n * sizeof *step), n = 0;
    for (u32 i = 1; i < g->chain.n; i++) {
        if (in_step(g->chain.at[i].role)) {
            step[n++] = i;
        }
        for (u32 k = 0; k < g->chain.at[i].call.n; k++) {
            i32 s = g->chain.at[i].call.at[k].stage;
            last = s > last ? s : last;
        }
    }
    check_regions(c);
    check_bufs(c);
    for (u32 i = 1; i < g->func.n; i++) {
        if (!g->func.at[i].dead) {
            check_value_bufs(c, i);
        }
    }
    for (i32 s = 0; s <= last; s++) {
        check_program(c, step, n, s);
        for (u32 i = 1; i < g->chain.n; i++) {
            if (!in_step(g->chain.at[i].role)) {
                check_program(c, &i, 1, s);
            }
        }
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

void verify_run(Check *c)
{
    const Graph *g = c->g;
    check_vars(c);
    for (u32 i = 1; i < g->chain.n; i++) {
        check_chain(c, i);
    }
    for (u32 i = 1; i < g->save.n; i++) {
        check_save(c, i);
    }
    c->func = c->node = 0;
    verify_steps(c);
    if (g->arena_bytes) {
        check_memory(c);
    }
}
