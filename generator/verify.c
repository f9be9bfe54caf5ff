/* verify.c: what must hold after every pass. It names the pass, the Func and the node.
 *
 * This file looks into Funcs: order, types, effects, loops, fused nodes, windows, placements.
 * verify_run.c looks at what runs: calls, saves, bytes, commands of the stages.
 */
#include "megagen.h"
#include "verify.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- complaints ------------------------------------------------------------------------------ */

static u32 node_position(const Graph *g, u32 func, u32 node)
{
    const Func *f = &g->func.at[func];
    for (u32 i = 0; i < f->node.n; i++) {
        if (f->node.at[i] == node) {
            return i;
        }
    }
    return 0;
}

void verify_fail(const Check *c, u32 code, const char *fmt, ...)
{
    Graph *g = c->g;
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    char *what = arena_alloc(g->arena, (u64)n + 1);
    vsnprintf(what, (u64)n + 1, fmt, again);
    va_end(again);
    Text at = {0};
    text_fmt(g->arena, &at, "after %s", c->after);
    if (c->func && c->func < g->func.n) {
        text_fmt(g->arena, &at, ": Func %s", sym_str(g, g->func.at[c->func].name));
    }
    Loc loc = {0};
    if (c->node && c->node < g->node.n) {
        const Node *node = &g->node.at[c->node];
        text_fmt(g->arena, &at, ", node %u (%s%s%s)", node_position(g, c->func, c->node),
                 sym_str(g, g->op.at[node->op].name), node->path ? " " : "",
                 sym_str(g, node->path));
        loc = node->loc;
    }
    g->context = 0;
    fail(g, loc, code, "%s: %s", text_str(g->arena, &at), what);
}

const char *verify_value(const Check *c, u32 value)
{
    Graph *g = c->g;
    const Value *v = &g->value.at[value];
    const Func *f = &g->func.at[v->func];
    u32 num = 0;
    bool found = false;
    for (u32 i = 0; i < f->in.n && !found; i++) {
        num++;
        found = f->in.at[i] == value;
    }
    for (u32 i = 0; i < f->node.n && !found; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        found = value >= n->out && value < n->out + n->nout;
        num += found ? value - n->out + 1 : n->nout;
    }
    const char *path = sym_str(g, v->path);
    return arena_fmt(g->arena, "%%%u%s%s%s", found ? num : 0, *path ? " (" : "", path,
                     *path ? ")" : "");
}

static bool is_op(const Check *c, const char *name)
{
    return strcmp(sym_str(c->g, c->g->op.at[c->g->node.at[c->node].op].name), name) == 0;
}

/* ---- types ----------------------------------------------------------------------------------- */

static void check_type(const Check *c, const Type *t)
{
    if (t->rank > RANK_MAX || t->dtype == DT_NONE || t->dtype >= DT_COUNT) {
        verify_fail(c, E_TYPE, "a type without dtype or with too many dims");
    }
    for (u32 i = 0; i < t->rank; i++) {
        if (t->dim[i] == 0 || t->dim[i] >= c->g->dim.n) {
            verify_fail(c, E_TYPE, "a type with a dim that is none");
        }
        for (u32 k = 0; k < i; k++) {
            if (t->dim[i] == t->dim[k]) {
                verify_fail(c, E_TYPE, "%s has dim %s twice", type_str(c->g, t),
                            sym_str(c->g, c->g->dim.at[t->dim[i]].name));
            }
        }
    }
}

static bool same_dims(const Type *a, const Type *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0;
}

static bool is_float(u8 dt)
{
    return dt >= DT_F && dt <= DT_E5M2;
}

/* Precision may store a result of a kernel in another float type than the operands have; views,
 * copies and collectives change none. */
static bool same_result(const Check *c, const Type *want, const Type *have)
{
    u32 flags = c->g->op.at[c->g->node.at[c->node].op].flags;
    bool strict = flags & (OF_VIEW | OF_COMM) || is_op(c, "copy") || is_op(c, "cast");
    bool dtype =
        want->dtype == have->dtype || (!strict && is_float(want->dtype) && is_float(have->dtype));
    return dtype && same_dims(want, have);
}

static bool port_has(const SigPort *p, Sym name)
{
    for (u32 i = 0; i < p->n; i++) {
        for (u32 k = 0; k < p->dim[i].n; k++) {
            if (p->dim[i].part[k] == name) {
                return true;
            }
        }
    }
    return false;
}

/* A dim that only the results have, and no attribute gives: zeros, the derivative of a sum. Their
 * types are given, and nothing can be inferred. */
static bool open_results(const Check *c, const Sig *sig)
{
    const Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    for (u32 o = 0; o < sig->out.n; o++) {
        for (u32 i = 0; i < sig->out.at[o].n; i++) {
            Sym name = sig->out.at[o].dim[i].part[0];
            const char *s = sym_str(g, name);
            bool bound = (s[0] >= '0' && s[0] <= '9') || node_attr(g, c->node, s);
            for (u32 k = 0; k < sig->in.n && k < n->nin && !bound; k++) {
                bound = g->arg.at[n->in + k] && port_has(&sig->in.at[k], name);
            }
            if (!bound) {
                return true;
            }
        }
    }
    return false;
}

enum { OUT_MAX = 64 };

static void check_inferred(const Check *c)
{
    Graph *g = c->g;
    Node n = g->node.at[c->node];
    Op op = g->op.at[n.op];
    if (is_op(c, "read") || is_op(c, "recv") || is_op(c, "loop") || is_op(c, "fused")) {
        return; /* given, checked elsewhere */
    }
    if (!op.rule && !op.sig) {
        verify_fail(c, E_TYPE, "the op has no signature");
    }
    if (op.sig && op.sig->out.n > OUT_MAX) {
        verify_fail(c, E_TYPE, "the op has too many results");
    }
    if (op.sig && !op.rule && open_results(c, op.sig)) {
        return;
    }
    Type out[OUT_MAX];
    g->context = sym_fmt(g, "verify after %s, Func %s, node %u", c->after,
                         sym_str(g, g->func.at[c->func].name), node_position(g, c->func, c->node));
    u32 nout = sig_infer(g, &op, n.loc, g->arg.at + n.in, n.nin, g->attr.at + n.attr, n.nattr, out);
    g->context = 0;
    if (nout != n.nout) {
        verify_fail(c, E_TYPE, "%u results, the op gives %u", n.nout, nout);
    }
    for (u32 i = 0; i < nout; i++) {
        const Type *have = &g->value.at[n.out + i].type;
        if (!same_result(c, &out[i], have)) {
            verify_fail(c, E_TYPE, "%s is %s, the op gives %s", verify_value(c, n.out + i),
                        type_str(g, have), type_str(g, &out[i]));
        }
    }
}

/* ---- order and ownership --------------------------------------------------------------------- */

static void check_operands(const Check *c, const bool *defined)
{
    const Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    const Op *op = &g->op.at[n->op];
    if (n->in + (u64)n->nin > g->arg.n || n->attr + (u64)n->nattr > g->attr.n) {
        verify_fail(c, E_SSA, "operands outside of the Graph");
    }
    for (u32 i = 0; i < n->nin; i++) {
        u32 v = g->arg.at[n->in + i];
        if (v == 0) {
            bool optional = op->sig && i < op->sig->in.n && op->sig->in.at[i].optional;
            if (!optional) {
                verify_fail(c, E_SSA, "operand %u is missing", i);
            }
            continue;
        }
        if (v >= g->value.n || g->value.at[v].func != c->func) {
            verify_fail(c, E_SSA, "operand %u belongs to another Func", i);
        }
        if (!defined[v]) {
            verify_fail(c, E_SSA, "operand %u, %s, is used before it is made", i,
                        verify_value(c, v));
        }
    }
}

static void check_results(const Check *c, bool *defined)
{
    const Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    if (n->out + (u64)n->nout > g->value.n) {
        verify_fail(c, E_SSA, "results outside of the Graph");
    }
    for (u32 i = 0; i < n->nout; i++) {
        const Value *v = &g->value.at[n->out + i];
        if (v->node != c->node || v->func != c->func || v->out != i) {
            verify_fail(c, E_SSA, "result %u does not know its node", i);
        }
        if (defined[n->out + i]) {
            verify_fail(c, E_SSA, "%s is made twice", verify_value(c, n->out + i));
        }
        defined[n->out + i] = true;
        check_type(c, &v->type);
    }
}

/* ---- effects, loops, fused nodes ------------------------------------------------------------- */

static void check_effect(const Check *c)
{
    Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    const Func *f = &g->func.at[c->func];
    if (n->formal == 0 || n->formal > f->formal.n) {
        verify_fail(c, E_EFFECT, "no variable");
    }
    const Formal *x = &f->formal.at[n->formal - 1];
    bool read = is_op(c, "read"), accum = is_op(c, "accum");
    if (n->nin != !read || n->nout != read) {
        verify_fail(c, E_EFFECT, "%u operands and %u results", n->nin, n->nout);
    }
    u32 v = read ? n->out : g->arg.at[n->in];
    const Type *t = &g->value.at[v].type;
    bool dtype =
        t->dtype == x->type.dtype || (accum && is_float(t->dtype) && is_float(x->type.dtype));
    if (!same_dims(t, &x->type) || !dtype) {
        verify_fail(c, E_EFFECT, "%s is %s, variable %s is %s", verify_value(c, v), type_str(g, t),
                    sym_str(g, x->name), type_str(g, &x->type));
    }
    bool sum = x->kind == VAR_ACCUM || x->kind == VAR_METRIC || x->kind == VAR_STAT;
    if (accum && !sum) {
        verify_fail(c, E_EFFECT, "variable %s is no accumulator, stat or metric",
                    sym_str(g, x->name));
    }
    if (!accum && n->beta) {
        verify_fail(c, E_EFFECT, "beta on a node that adds nothing");
    }
}

static void check_slice(const Check *c, u32 v, u32 inner, const char *what)
{
    Graph *g = c->g;
    Type outer = g->value.at[v].type, body = g->value.at[inner].type;
    i32 trips = g->node.at[c->node].trips;
    Type rest = {.dtype = outer.dtype, .rank = (u8)(outer.rank ? outer.rank - 1 : 0)};
    memcpy(rest.dim, outer.dim + 1, rest.rank * sizeof rest.dim[0]);
    if (outer.rank == 0 || !type_equal(&rest, &body)) {
        verify_fail(c, E_LOOP, "%s %s is %s outside and %s in a trip", what, verify_value(c, v),
                    type_str(g, &outer), type_str(g, &body));
    }
    if (g->dim.at[outer.dim[0]].size != trips) {
        verify_fail(c, E_LOOP, "%s %s has %lld pieces for %d trips", what, verify_value(c, v),
                    (long long)g->dim.at[outer.dim[0]].size, (int)trips);
    }
}

static void check_same(const Check *c, u32 a, u32 b, const char *what)
{
    Graph *g = c->g;
    if (!type_equal(&g->value.at[a].type, &g->value.at[b].type)) {
        verify_fail(c, E_LOOP, "%s: %s outside, %s in a trip", what,
                    type_str(g, &g->value.at[a].type), type_str(g, &g->value.at[b].type));
    }
}

static void check_loop_formals(const Check *c, const Func *body)
{
    Graph *g = c->g;
    const Func *f = &g->func.at[c->func];
    for (u32 i = 0; i < body->formal.n; i++) {
        const Formal *x = &body->formal.at[i];
        bool found = false;
        for (u32 k = 0; k < f->formal.n; k++) {
            const Formal *y = &f->formal.at[k];
            found = found ||
                    (y->name == x->name && y->kind == x->kind && type_equal(&y->type, &x->type));
        }
        if (!found) {
            verify_fail(c, E_LOOP, "variable %s of the body is no variable of the Func around it",
                        sym_str(g, x->name));
        }
    }
}

static void check_carries(const Check *c, const Func *body)
{
    u32 in = 0, out = 0;
    for (;; in++, out++) {
        while (in < body->in.n && body->in_kind.at[in] != OPERAND_CARRY) {
            in++;
        }
        while (out < body->out.n && body->out_kind.at[out] != RESULT_CARRY) {
            out++;
        }
        if (in == body->in.n && out == body->out.n) {
            return;
        }
        if (in == body->in.n || out == body->out.n) {
            verify_fail(c, E_LOOP, "carried operands and carried results do not pair");
        }
        check_same(c, body->in.at[in], body->out.at[out], "a carried value");
    }
}

static void check_loop(const Check *c)
{
    const Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    if (n->body == 0 || n->body >= g->func.n || g->func.at[n->body].role != ROLE_LOOP ||
        g->func.at[n->body].dead) {
        verify_fail(c, E_LOOP, "the body is no Func of role loop");
    }
    const Func *b = &g->func.at[n->body];
    if (b->in.n != n->nin || b->in_kind.n != n->nin || b->out.n != n->nout ||
        b->out_kind.n != n->nout) {
        verify_fail(c, E_LOOP, "%u operands and %u results, its body %s has %u and %u", n->nin,
                    n->nout, sym_str(g, b->name), b->in.n, b->out.n);
    }
    if (n->trips < 1) {
        verify_fail(c, E_LOOP, "%d trips", (int)n->trips);
    }
    for (u32 i = 0; i < n->nin; i++) {
        u32 v = g->arg.at[n->in + i];
        if (b->in_kind.at[i] == OPERAND_SLICE) {
            check_slice(c, v, b->in.at[i], "sliced operand");
        } else {
            check_same(c, v, b->in.at[i], "an operand");
        }
    }
    for (u32 i = 0; i < n->nout; i++) {
        if (b->out_kind.at[i] == RESULT_STACK) {
            check_slice(c, n->out + i, b->out.at[i], "stacked result");
        } else {
            check_same(c, n->out + i, b->out.at[i], "a result");
        }
    }
    check_carries(c, b);
    check_loop_formals(c, b);
}

static void check_port(const Check *c, const Body *b, const BodyPort *x, u32 v)
{
    Graph *g = c->g;
    const Type *t = &g->value.at[v].type;
    bool ok = x->rank == t->rank && x->node < b->node.n;
    for (u32 i = 0; ok && i < t->rank; i++) {
        ok = x->axis[i] < b->ndim && b->dim[x->axis[i]].dim == t->dim[i];
    }
    if (!ok) {
        verify_fail(c, E_BODY, "port %s does not fit %s, which is %s", sym_str(g, x->name),
                    verify_value(c, v), type_str(g, t));
    }
}

static void check_fused(const Check *c)
{
    const Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    if (n->body == 0 || n->body >= g->body.n || !g->body.at[n->body]) {
        verify_fail(c, E_BODY, "no body");
    }
    const Body *b = g->body.at[n->body];
    if (b->in.n != n->nin || b->out.n != n->nout) {
        verify_fail(c, E_BODY, "%u operands and %u results, its body has %u and %u", n->nin,
                    n->nout, b->in.n, b->out.n);
    }
    for (u32 i = 0; i < n->nin; i++) {
        if (g->arg.at[n->in + i]) {
            check_port(c, b, &b->in.at[i], g->arg.at[n->in + i]);
        }
    }
    for (u32 i = 0; i < n->nout; i++) {
        check_port(c, b, &b->out.at[i], n->out + i);
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

static void check_window(const Check *c, u32 id)
{
    const Graph *g = c->g;
    const Value *v = &g->value.at[id];
    if (v->base == 0 || v->base >= g->value.n || g->value.at[v->base].func != v->func ||
        g->value.at[v->base].base != v->base) {
        verify_fail(c, E_WINDOW, "%s has no base", verify_value(c, id));
    }
    const Value *b = &g->value.at[v->base];
    i64 lo = v->off, hi = v->off;
    bool bad = false;
    for (u32 i = 0; i < v->type.rank; i++) {
        i64 step = 0;
        bad = bad || __builtin_mul_overflow(dim_mem(g, v->type.dim[i]) - 1, v->stride[i], &step);
        i64 *end = step < 0 ? &lo : &hi;
        bad = bad || __builtin_add_overflow(*end, step, end);
    }
    if (bad || lo < 0 || (u64)hi >= type_elems(g, &b->type)) {
        verify_fail(c, E_WINDOW, "%s reaches from element %lld to %lld of %s, which has %llu",
                    verify_value(c, id), (long long)lo, (long long)hi, verify_value(c, v->base),
                    (unsigned long long)type_elems(g, &b->type));
    }
    if (b->type.dtype != v->type.dtype) {
        verify_fail(c, E_WINDOW, "%s and its base differ in dtype", verify_value(c, id));
    }
}

/* Which elements of the base a window covers; small bases only. */
static void cover(const Graph *g, u32 id, bool *at)
{
    const Value *v = &g->value.at[id];
    i64 index[RANK_MAX] = {0};
    for (;;) {
        i64 e = v->off;
        for (u32 i = 0; i < v->type.rank; i++) {
            e += index[i] * v->stride[i];
        }
        at[e] = true;
        u32 i = v->type.rank;
        while (i > 0 && ++index[i - 1] == dim_mem(g, v->type.dim[i - 1])) {
            index[--i] = 0;
        }
        if (i == 0) {
            return;
        }
    }
}

enum { WATCHED_ELEMS = 1 << 16 };

static bool windows_meet(const Graph *g, u32 a, u32 b)
{
    if (type_elems(g, &g->value.at[a].type) > WATCHED_ELEMS ||
        type_elems(g, &g->value.at[b].type) > WATCHED_ELEMS) {
        return false; /* broadcasts may be larger than their base */
    }
    u64 n = type_elems(g, &g->value.at[g->value.at[a].base].type);
    bool *x = arena_alloc(g->arena, n), *y = arena_alloc(g->arena, n);
    cover(g, a, x);
    cover(g, b, y);
    for (u64 i = 0; i < n; i++) {
        if (x[i] && y[i]) {
            return true;
        }
    }
    return false;
}

/* last[v]: position of the last node that uses value v; the end for results of the Func. */
static u32 *last_uses(const Check *c)
{
    const Graph *g = c->g;
    const Func *f = &g->func.at[c->func];
    u32 *last = arena_alloc(g->arena, g->value.n * sizeof *last);
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        for (u32 k = 0; k < n->nin; k++) {
            last[g->arg.at[n->in + k]] = i;
        }
    }
    for (u32 i = 0; i < f->out.n; i++) {
        last[f->out.at[i]] = f->node.n;
    }
    return last;
}

/* The node writes result r into the buffer of another value: nothing that was made before and lies
 * in the same elements may be used afterwards. */
static void check_overwrite(const Check *c, u32 r, u32 pos, const u32 *last)
{
    const Graph *g = c->g;
    u32 base = g->value.at[r].base;
    const Func *f = &g->func.at[c->func];
    if (type_elems(g, &g->value.at[base].type) > WATCHED_ELEMS) {
        return;
    }
    for (u32 i = 0; i < f->in.n; i++) {
        u32 v = f->in.at[i];
        if (g->value.at[v].base == base && last[v] > pos && windows_meet(g, v, r)) {
            verify_fail(c, E_WINDOW, "%s overwrites %s, which is used later", verify_value(c, r),
                        verify_value(c, v));
        }
    }
    for (u32 i = 0; i < pos; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        for (u32 v = n->out; v < n->out + n->nout; v++) {
            if (g->value.at[v].base == base && last[v] > pos && windows_meet(g, v, r)) {
                verify_fail(c, E_WINDOW, "%s overwrites %s, which is used later",
                            verify_value(c, r), verify_value(c, v));
            }
        }
    }
}

static void check_windows(Check *c)
{
    const Graph *g = c->g;
    const Func *f = &g->func.at[c->func];
    const u32 *last = last_uses(c);
    for (u32 i = 0; i < f->in.n; i++) {
        check_window(c, f->in.at[i]);
    }
    for (u32 i = 0; i < f->node.n; i++) {
        c->node = f->node.at[i];
        const Node *n = &g->node.at[c->node];
        for (u32 v = n->out; v < n->out + n->nout; v++) {
            check_window(c, v);
        }
    }
    for (u32 i = 0; i < f->node.n; i++) {
        c->node = f->node.at[i];
        const Node *n = &g->node.at[c->node];
        bool view = g->op.at[n->op].flags & OF_VIEW;
        for (u32 v = n->out; v < n->out + n->nout && !view; v++) {
            if (g->value.at[v].base != v) {
                check_overwrite(c, v, i, last);
            }
        }
    }
    c->node = 0;
}

/* ---- placement ------------------------------------------------------------------------------- */

static const char *const place_names[] = {
    "whole", "split", "a partial sum", "a partial maximum", "a flat range", "dealt out"};

bool verify_same_place(const Graph *g, const Place *a, const Place *b)
{
    for (u32 i = 0; i + 1 < g->atom.n; i++) {
        if (a[i].kind != b[i].kind || a[i].order != b[i].order || a[i].bucket != b[i].bucket ||
            (a[i].kind == PL_S && a[i].dim != b[i].dim)) {
            return false;
        }
    }
    return true;
}

/* A split dim must be divisible by the ranks it is split over; zigzag cuts twice as fine. */
static void check_divisible(const Check *c, u32 id)
{
    const Graph *g = c->g;
    const Value *v = &g->value.at[id];
    for (u32 i = 0; i < v->type.rank; i++) {
        i64 parts = 1;
        for (u32 a = 0; a + 1 < g->atom.n; a++) {
            if (v->at[a].kind == PL_S && v->at[a].dim == i) {
                parts *= g->atom.at[a + 1].size * (v->at[a].order == SPLIT_ZIGZAG ? 2 : 1);
            }
        }
        i64 size = dim_mem(g, v->type.dim[i]);
        if (parts > 1 && size % parts) {
            verify_fail(c, E_PLACE, "%s: dim %s, %lld, cannot be cut into %lld equal parts",
                        verify_value(c, id), sym_str(g, g->dim.at[v->type.dim[i]].name),
                        (long long)size, (long long)parts);
        }
    }
    for (u32 a = 0; a + 1 < g->atom.n; a++) {
        if (v->at[a].kind > PL_W || (v->at[a].kind == PL_S && v->at[a].dim >= v->type.rank)) {
            verify_fail(c, E_PLACE, "%s has a place that does not exist", verify_value(c, id));
        }
    }
}

/* The dim that v is split on over atom a; 0 = not split */
static u32 split_dim(const Graph *g, u32 v, u32 a)
{
    const Value *x = &g->value.at[v];
    return x->at[a].kind == PL_S ? x->type.dim[x->at[a].dim] : 0;
}

static bool has_dim(const Graph *g, u32 v, u32 dim)
{
    return type_pos(&g->value.at[v].type, dim) >= 0;
}

static const char *atom_str(const Check *c, u32 a)
{
    return sym_str(c->g, c->g->atom.at[a + 1].name);
}

/* Dim d, split over atom a in operand v, must be split likewise wherever else it appears. If no
 * result has it, the results are partial, or split on another dim (tokens dealt out again). */
static void check_factor(const Check *c, u32 v, u32 a, u32 d)
{
    const Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    const char *dim = sym_str(g, g->dim.at[d].name);
    for (u32 i = 0; i < n->nin; i++) {
        u32 w = g->arg.at[n->in + i];
        if (w && has_dim(g, w, d) &&
            (split_dim(g, w, a) != d || g->value.at[w].at[a].order != g->value.at[v].at[a].order)) {
            verify_fail(c, E_PLACE, "dim %s is split over %s in %s but not in %s", dim,
                        atom_str(c, a), verify_value(c, v), verify_value(c, w));
        }
    }
    for (u32 w = n->out; w < n->out + n->nout; w++) {
        u8 kind = g->value.at[w].at[a].kind;
        if (has_dim(g, w, d) && split_dim(g, w, a) != d) {
            verify_fail(c, E_PLACE, "dim %s is split over %s in %s but not in result %s", dim,
                        atom_str(c, a), verify_value(c, v), verify_value(c, w));
        }
        bool moved = kind == PL_S && split_dim(g, w, a) != d;
        if (!has_dim(g, w, d) && kind != PL_P && kind != PL_M && !moved) {
            verify_fail(c, E_PLACE, "%s sums over %s, which is split over %s: it must be partial",
                        verify_value(c, w), dim, atom_str(c, a));
        }
        if (!has_dim(g, w, d) && !(g->op.at[n->op].flags & OF_PARTIAL)) {
            verify_fail(c, E_PLACE, "dim %s must be whole over %s here", dim, atom_str(c, a));
        }
    }
}

bool verify_stage_atom(Graph *g, u32 a)
{
    u8 pp[ATOM_MAX];
    i32 n = axis_atoms(g, sym(g, "pp"), pp);
    for (i32 i = 0; i < n; i++) {
        if (pp[i] == a + 1) {
            return true;
        }
    }
    return false;
}

/* What comes in over atom a decides what may come out. */
static void check_atom(const Check *c, u32 a)
{
    Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    const Op *op = &g->op.at[n->op];
    u32 partial = 0, cut = 0, flat = 0, product = 0;
    for (u32 i = 0; i < n->nin; i++) {
        u32 v = g->arg.at[n->in + i];
        u8 kind = v ? g->value.at[v].at[a].kind : PL_R;
        if (kind == PL_P || kind == PL_M) {
            product += partial != 0;
            partial = v;
        }
        flat = kind == PL_F || kind == PL_W ? v : flat;
        if (kind == PL_S) {
            cut = v;
            check_factor(c, v, a, split_dim(g, v, a));
        }
    }
    if (partial && (!(op->flags & OF_LINEAR) || (product && is_op(c, "matmul")))) {
        verify_fail(
            c, E_PLACE, "%s is %s over %s: it must be reduced before an op that is not linear",
            verify_value(c, partial), place_names[g->value.at[partial].at[a].kind], atom_str(c, a));
    }
    bool mixed = partial && !(op->flags & OF_PARTIAL) && product + 1 != n->nin;
    if (mixed) {
        verify_fail(c, E_PLACE, "%s is %s over %s, the other operands are not",
                    verify_value(c, partial), place_names[g->value.at[partial].at[a].kind],
                    atom_str(c, a));
    }
    for (u32 w = n->out; w < n->out + n->nout; w++) {
        u8 kind = g->value.at[w].at[a].kind;
        u32 d = split_dim(g, w, a);
        if (partial && kind != g->value.at[partial].at[a].kind) {
            verify_fail(c, E_PLACE, "%s comes from %s, which is %s over %s, but is %s",
                        verify_value(c, w), verify_value(c, partial),
                        place_names[g->value.at[partial].at[a].kind], atom_str(c, a),
                        place_names[kind]);
        }
        bool sum = flat && (op->flags & OF_PARTIAL) && kind == PL_P;
        if (flat && !sum && kind != g->value.at[flat].at[a].kind) {
            verify_fail(c, E_PLACE, "%s comes from %s, which is %s over %s, but is %s",
                        verify_value(c, w), verify_value(c, flat),
                        place_names[g->value.at[flat].at[a].kind], atom_str(c, a),
                        place_names[kind]);
        }
        bool stage =
            (op->flags & OF_PARTIAL) && verify_stage_atom(g, a); /* each has its own part */
        if (!partial && !cut && !flat && !stage && (kind == PL_P || kind == PL_M)) {
            verify_fail(c, E_PLACE, "%s is %s over %s, but nothing before it is",
                        verify_value(c, w), place_names[kind], atom_str(c, a));
        }
        for (u32 i = 0; d && i < n->nin; i++) {
            u32 v = g->arg.at[n->in + i];
            if (v && has_dim(g, v, d) && split_dim(g, v, a) != d) {
                verify_fail(c, E_PLACE, "dim %s is split over %s in result %s but not in %s",
                            sym_str(g, g->dim.at[d].name), atom_str(c, a), verify_value(c, w),
                            verify_value(c, v));
            }
        }
    }
}

/* Views keep every place; a split dim may be renamed, or be the outermost part of a split or merge.
 */
static void check_view_atom(const Check *c, u32 a)
{
    const Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    const Value *y = &g->value.at[n->out];
    for (u32 i = 0; i < n->nin; i++) {
        const Value *x = &g->value.at[g->arg.at[n->in + i]];
        if (x->at[a].kind != y->at[a].kind) {
            verify_fail(c, E_PLACE, "a view of %s, which is %s over %s, is %s",
                        verify_value(c, g->arg.at[n->in + i]), place_names[x->at[a].kind],
                        atom_str(c, a), place_names[y->at[a].kind]);
        }
        u32 d = split_dim(g, g->arg.at[n->in + i], a), to = split_dim(g, n->out, a);
        if (d && d != to) {
            bool kept = has_dim(g, n->out, d);
            bool outer = is_op(c, "rename") || is_op(c, "split") || is_op(c, "merge");
            if (kept || !outer || x->at[a].dim != y->at[a].dim) {
                verify_fail(c, E_PLACE, "dim %s is split over %s: this view needs it whole",
                            sym_str(g, g->dim.at[d].name), atom_str(c, a));
            }
        }
    }
}

/* ---- placement of collectives ---------------------------------------------------------------- */

typedef struct {
    const char *op;
    bool from[PL_W + 1], to[PL_W + 1];
} Turn;

static const Turn turns[] = {
    {"all_reduce", {[PL_P] = true, [PL_M] = true}, {[PL_R] = true}},
    {"reduce_scatter", {[PL_P] = true}, {[PL_S] = true, [PL_F] = true}},
    {"all_gather", {[PL_S] = true, [PL_F] = true, [PL_W] = true}, {[PL_R] = true}},
    {"all_to_all", {[PL_S] = true}, {[PL_S] = true}},
    {"keep", {[PL_R] = true}, {[PL_P] = true}},
    {"shard", {[PL_R] = true}, {[PL_S] = true}},
};
enum { NTURN = sizeof turns / sizeof turns[0] };

static u32 dim_attr(const Check *c, const char *key)
{
    const Attr *a = node_attr(c->g, c->node, key);
    return a && a->kind == AT_DIM ? a->dim[0] : 0;
}

static void check_turn(const Check *c, const Turn *t, u32 a)
{
    const Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    u32 x = g->arg.at[n->in], y = n->out;
    u8 from = g->value.at[x].at[a].kind, to = g->value.at[y].at[a].kind;
    if (!t->from[from] || !t->to[to]) {
        verify_fail(c, E_PLACE, "%s cannot turn %s into %s over %s", t->op, place_names[from],
                    place_names[to], atom_str(c, a));
    }
    u32 dim = dim_attr(c, "dim"), want = dim_attr(c, "to");
    u32 in = split_dim(g, x, a), out = split_dim(g, y, a);
    bool all = strcmp(t->op, "all_to_all") == 0;
    if ((in && dim && in != dim) || (out && (all ? want : dim) != out)) {
        verify_fail(c, E_PLACE, "%s: the dim that is split over %s is not the one it names", t->op,
                    atom_str(c, a));
    }
}

static void check_comm(const Check *c)
{
    Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    const Attr *axis = node_attr(g, c->node, "axis");
    u8 atom[ATOM_MAX];
    i32 natom = axis && axis->kind == AT_SYM ? axis_atoms(g, axis->sym, atom) : 0;
    const Turn *turn = NULL;
    for (u32 i = 0; i < NTURN; i++) {
        turn = is_op(c, turns[i].op) ? &turns[i] : turn;
    }
    if (natom < 0) {
        verify_fail(c, E_PLACE, "no axis or atom `%s`", sym_str(g, axis->sym));
    }
    for (u32 a = 0; n->nin && n->nout && turn && a + 1 < g->atom.n; a++) {
        bool in = false;
        for (i32 i = 0; i < natom; i++) {
            in = in || atom[i] == a + 1;
        }
        const Place *x = &g->value.at[g->arg.at[n->in]].at[a], *y = &g->value.at[n->out].at[a];
        if (in) {
            check_turn(c, turn, a);
        } else if (x->kind != y->kind || x->order != y->order || x->dim != y->dim) {
            verify_fail(c, E_PLACE, "the place over %s changes, which is not on its axis",
                        atom_str(c, a));
        }
    }
}

static void check_places(const Check *c)
{
    const Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    u32 flags = g->op.at[n->op].flags;
    for (u32 v = n->out; v < n->out + n->nout; v++) {
        check_divisible(c, v);
    }
    if (flags & OF_COMM || is_op(c, "keep") || is_op(c, "shard")) {
        check_comm(c);
        return;
    }
    if (flags & OF_EFFECT || is_op(c, "loop")) {
        return; /* by the variable, see verify_run.c; by the body */
    }
    for (u32 a = 0; a + 1 < g->atom.n; a++) {
        if (flags & OF_VIEW) {
            check_view_atom(c, a);
        } else {
            check_atom(c, a);
        }
    }
}

/* One communication lane: collectives of a Func must have one total order. */
static void check_lanes(Check *c)
{
    const Graph *g = c->g;
    const Func *f = &g->func.at[c->func];
    u32 first = 0;
    for (u32 i = 0; i < f->node.n; i++) {
        c->node = f->node.at[i];
        const Node *n = &g->node.at[c->node];
        if (!(g->op.at[n->op].flags & OF_COMM) || is_op(c, "send") || is_op(c, "recv")) {
            continue;
        }
        if (first && g->node.at[first].lane != n->lane) {
            verify_fail(c, E_ORDER, "a collective on lane %u, another one is on lane %u", n->lane,
                        g->node.at[first].lane);
        }
        first = first ? first : c->node;
    }
    c->node = 0;
}

/* ---- Funcs ----------------------------------------------------------------------------------- */

static void check_node(Check *c, bool *defined)
{
    const Graph *g = c->g;
    const Node *n = &g->node.at[c->node];
    if (n->func != c->func || n->dead || n->op == 0 || n->op >= g->op.n) {
        verify_fail(c, E_SSA, "a node that is dead or of another Func");
    }
    u32 flags = g->op.at[n->op].flags;
    check_operands(c, defined);
    check_results(c, defined);
    if (flags & OF_EFFECT) {
        check_effect(c);
    } else if (is_op(c, "loop")) {
        check_loop(c);
    } else if (is_op(c, "fused")) {
        check_fused(c);
    }
    check_inferred(c);
}

static bool uses_formal(const Graph *g, u32 func, Sym name)
{
    const Func *f = &g->func.at[func];
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        bool loop = strcmp(sym_str(g, g->op.at[n->op].name), "loop") == 0;
        if ((n->formal && f->formal.at[n->formal - 1].name == name) ||
            (loop && uses_formal(g, n->body, name))) {
            return true;
        }
    }
    return false;
}

/* An accumulator that a Func names but never touches is a gradient that got lost. */
static void check_sums(const Check *c)
{
    const Graph *g = c->g;
    const Func *f = &g->func.at[c->func];
    for (u32 i = 0; i < f->formal.n; i++) {
        const Formal *x = &f->formal.at[i];
        bool sum = x->kind == VAR_ACCUM || x->kind == VAR_METRIC;
        if (sum && !uses_formal(g, c->func, x->name)) {
            verify_fail(c, E_EFFECT, "nothing is added to variable %s", sym_str(g, x->name));
        }
    }
}

static void check_func(Check *c)
{
    const Graph *g = c->g;
    const Func *f = &g->func.at[c->func];
    bool *defined = arena_alloc(g->arena, g->value.n);
    for (u32 i = 0; i < f->in.n; i++) {
        u32 v = f->in.at[i];
        if (v == 0 || v >= g->value.n || g->value.at[v].func != c->func ||
            g->value.at[v].node != 0 || defined[v]) {
            verify_fail(c, E_SSA, "input %u is none of its own", i);
        }
        defined[v] = true;
        check_type(c, &g->value.at[v].type);
        check_divisible(c, v);
    }
    for (u32 i = 0; i < f->formal.n; i++) {
        check_type(c, &f->formal.at[i].type);
    }
    for (u32 i = 0; i < f->node.n; i++) {
        c->node = f->node.at[i];
        check_node(c, defined);
    }
    c->node = 0;
    for (u32 i = 0; i < f->out.n; i++) {
        if (f->out.at[i] == 0 || f->out.at[i] >= g->value.n || !defined[f->out.at[i]]) {
            verify_fail(c, E_SSA, "result %u is not made here", i);
        }
    }
    for (u32 i = 0; i < f->node.n; i++) {
        c->node = f->node.at[i];
        check_places(c);
    }
    c->node = 0;
    check_lanes(c);
    check_sums(c);
    check_windows(c);
}

/* A loop whose body runs itself would never end. state: 0 new, 1 on the way, 2 done. */
static void check_nesting(Check *c, u32 func, u8 *state)
{
    const Graph *g = c->g;
    const Func *f = &g->func.at[func];
    c->func = func;
    if (state[func] == 1) {
        verify_fail(c, E_LOOP, "the Func runs itself");
    }
    if (state[func]) {
        return;
    }
    state[func] = 1;
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        if (strcmp(sym_str(g, g->op.at[n->op].name), "loop") == 0 && n->body < g->func.n) {
            check_nesting(c, n->body, state);
        }
    }
    state[func] = 2;
}

void verify(Graph *g, const char *after)
{
    Check c = {.g = g, .after = after};
    u8 *state = arena_alloc(g->arena, g->func.n);
    for (u32 i = 1; i < g->func.n; i++) {
        c.func = i;
        for (u32 k = 1; k < i; k++) {
            if (g->func.at[k].name == g->func.at[i].name && !g->func.at[k].dead &&
                !g->func.at[i].dead) {
                verify_fail(&c, E_SSA, "two Funcs of that name");
            }
        }
        if (!g->func.at[i].dead) {
            check_nesting(&c, i, state);
            c.func = i;
            check_func(&c);
        }
    }
    c.func = 0;
    verify_run(&c);
}
