/* fuse.c: body ops become `fused` nodes, neighbours merged into one.
 *
 * Two body nodes may share a kernel if they run over the same rows and no path between them leaves
 * the kernel. A node joins the group that makes one of its operands, else one that reads the same
 * tensor. What is used outside becomes a result; every value is rounded to its declared type on the
 * way, stored or not, so that fused and unfused programs compute equal bits. Column sums get a
 * partial buffer as a hidden result; totals stay alone, because their order of summation is that of
 * their own kernel.
 *
 * needs: real dtypes.
 * gives: fused nodes (node.body, operands and results in the order of the body's ports), resolved
 * views, copies where a window is impossible, results that may overwrite an operand
 * (BodyPort.inplace).
 */
#include "megagen.h"

#include <assert.h>
#include <string.h>

enum { PORTS_MAX = 12, NODES_MAX = 128, E_FUSE = 212 };

typedef struct {
    VEC(u32) node;                     /* members in order */
    u32 ndim, dim[2 * RANK_MAX], over; /* the row space; dims that are reduced */
    u32 size;                          /* body nodes */
    bool alone;
    u32 fused; /* the node it became */
} Group;

typedef struct {
    u32 from, to; /* node ids: from runs first */
} Edge;

typedef struct {
    Graph *g;
    u32 func;
    u32 nnode, nvalue; /* sizes of the arrays when the pass began with this Func */
    Body **body;       /* bound, by node */
    u32 *group;        /* by node: 1 + index */
    u32 *seen;         /* by node: round of the last search */
    u32 round;
    VEC(Group) groups;
    VEC(Edge) edge;
} Fuse;

static bool op_is(const Graph *g, u32 node, const char *name)
{
    return strcmp(sym_str(g, g->op.at[g->node.at[node].op].name), name) == 0;
}

static const Op *op_of(const Graph *g, u32 node)
{
    return &g->op.at[g->node.at[node].op];
}

/* ---- order of effects ------------------------------------------------------------------------ */

/* The variable whose memory a value is a window on: formal of a read, or 0. */
static u32 window_of(const Graph *g, u32 value)
{
    for (;;) {
        u32 n = g->value.at[value].node;
        if (!n) {
            return 0;
        }
        if (op_is(g, n, "read")) {
            return g->node.at[n].formal;
        }
        if (!(op_of(g, n)->flags & OF_VIEW) || !g->node.at[n].nin) {
            return 0;
        }
        value = g->arg.at[g->node.at[n].in];
    }
}

/* Effects on one variable keep their order, and whoever reads through a window runs before the next
 * write. */
static void add_edges(Fuse *f)
{
    Graph *g = f->g;
    const Func *fn = &g->func.at[f->func];
    for (u32 j = 0; j < fn->node.n; j++) {
        u32 to = fn->node.at[j], formal = g->node.at[to].formal;
        if (!(op_of(g, to)->flags & OF_EFFECT) || !formal) {
            continue;
        }
        bool writes = !op_is(g, to, "read");
        for (u32 i = 0; i < j; i++) {
            const Node *n = &g->node.at[fn->node.at[i]];
            bool before = (op_of(g, fn->node.at[i])->flags & OF_EFFECT) && n->formal == formal;
            for (u32 k = 0; writes && k < n->nin; k++) {
                u32 v = g->arg.at[n->in + k];
                before = before || (v && window_of(g, v) == formal);
            }
            if (before) {
                vec_push(g->arena, &f->edge, (Edge){fn->node.at[i], to});
            }
        }
    }
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Does node `id` run after a member of group `target` (1 + index), groups taken as units? */
static bool depends(Fuse *f, u32 id, u32 target)
{
    if (!id || f->seen[id] == f->round) {
        return false;
    }
    f->seen[id] = f->round;
    if (f->group[id] == target) {
        return true;
    }
    const Node *n = &f->g->node.at[id];
    for (u32 k = 0; k < n->nin; k++) {
        u32 v = f->g->arg.at[n->in + k];
        if (v && depends(f, f->g->value.at[v].node, target)) {
            return true;
        }
    }
    for (u32 i = 0; i < f->edge.n; i++) {
        if (f->edge.at[i].to == id && depends(f, f->edge.at[i].from, target)) {
            return true;
        }
    }
    for (u32 i = 0; f->group[id] && i < f->groups.at[f->group[id] - 1].node.n; i++) {
        if (depends(f, f->groups.at[f->group[id] - 1].node.at[i], target)) {
            return true;
        }
    }
    return false;
}

static u32 reduced(const Body *b)
{
    u32 over = 0;
    for (u32 i = 1; i < b->node.n; i++) {
        over |= body_reduces(b->node.at[i].fn) ? b->node.at[i].over : 0;
    }
    return over;
}

static bool sums_rows(const Body *b, u32 out)
{
    return (b->node.at[b->out.at[out].node].dims & ~b->out.at[out].dims) != 0;
}

/* The same, if more than one row is summed. */
static bool sums_many(const Graph *g, const Body *b, u32 out)
{
    u32 missing = b->node.at[b->out.at[out].node].dims & ~b->out.at[out].dims;
    for (u32 i = 0; i < b->ndim; i++) {
        if ((missing & (1u << i)) && g->dim.at[b->dim[i].dim].size > 1) {
            return true;
        }
    }
    return false;
}

/* Ops that never share a kernel: totals, sums over some of the leading dims, segments, single
 * numbers. */
static bool is_alone(const Graph *g, const Body *b)
{
    bool alone = b->ndim == 0;
    for (u32 k = 0; k < b->out.n; k++) {
        bool columns = sums_rows(b, k) && loopgen_lines(g, b, k) && b->out.at[k].dims;
        alone = alone || (sums_many(g, b, k) && !columns);
    }
    for (u32 i = 0; i < b->ndim; i++) {
        for (u32 k = 0; k < i; k++) {
            alone = alone || b->dim[i].dim == b->dim[k].dim;
        }
    }
    return alone;
}

/* Equal dims, or one body works on the rows of the other: its dims lead, the rest is reduced. */
static bool same_rows(const Group *s, const Body *b)
{
    u32 over = reduced(b), n = s->ndim < b->ndim ? s->ndim : b->ndim;
    for (u32 i = 0; i < n; i++) {
        if (s->dim[i] != b->dim[i].dim) {
            return false;
        }
    }
    if (s->over && over && s->over != over) {
        return false;
    }
    if (s->ndim == b->ndim) {
        return true;
    }
    u32 most = s->ndim < b->ndim ? b->ndim : s->ndim;
    u32 rest = ((1u << most) - 1) & ~((1u << n) - 1);
    return n > 0 && (s->ndim < b->ndim ? over : s->over) == rest &&
           !(s->ndim < b->ndim ? s->over : over);
}

static bool in_list(const u32 *at, u32 n, u32 v)
{
    for (u32 i = 0; i < n; i++) {
        if (at[i] == v) {
            return true;
        }
    }
    return false;
}

/* Operands from outside and results of a set of nodes: an upper bound. */
static u32 ports(Fuse *f, const u32 *set, u32 nset)
{
    u32 list[64], n = 0, outs = 0;
    for (u32 i = 0; i < nset; i++) {
        const Node *nd = &f->g->node.at[set[i]];
        for (u32 k = 0; k < nd->nin; k++) {
            u32 v = f->g->arg.at[nd->in + k], p = f->g->value.at[v].node;
            if (!(p && in_list(set, nset, p)) && !in_list(list, n, v) && n < 64) {
                list[n++] = v;
            }
        }
        for (u32 k = 0; k < nd->nout; k++) {
            u32 nuse = 0;
            const u32 *use = value_uses(f->g, f->func, nd->out + k, &nuse);
            const Func *fn = &f->g->func.at[f->func];
            bool outside = in_list(fn->out.at, fn->out.n, nd->out + k);
            for (u32 j = 0; j < nuse; j++) {
                outside = outside || !in_list(set, nset, use[j]);
            }
            outs += outside;
        }
    }
    return n + outs;
}

static u32 ports_of(Fuse *f, const Group *x, const Group *y)
{
    VEC(u32) set = {0};
    for (u32 i = 0; i < x->node.n; i++) {
        vec_push(f->g->arena, &set, x->node.at[i]);
    }
    for (u32 i = 0; i < y->node.n; i++) {
        vec_push(f->g->arena, &set, y->node.at[i]);
    }
    return ports(f, set.at, set.n);
}

/* 2: makes an operand of id; 1: reads the same tensor; 0: nothing in common, or it would be wrong.
 */
static u32 affinity(Fuse *f, u32 group, u32 id)
{
    const Group *s = &f->groups.at[group - 1];
    const Node *n = &f->g->node.at[id], *first = &f->g->node.at[s->node.at[0]];
    u32 best = 0;
    if (s->alone || !same_rows(s, f->body[id]) || n->when != first->when ||
        n->skew != first->skew || n->lane != first->lane ||
        s->size + f->body[id]->node.n > NODES_MAX) {
        return 0;
    }
    f->round++;
    for (u32 k = 0; k < n->nin; k++) {
        u32 v = f->g->arg.at[n->in + k], p = f->g->value.at[v].node;
        if (p && f->group[p] == group) {
            if (sums_rows(f->body[p], f->g->value.at[v].out)) {
                return 0; /* complete only when the kernel is done */
            }
            best = 2;
        } else if (depends(f, p, group)) {
            return 0;
        }
        for (u32 m = 0; m < s->node.n && f->g->value.at[v].type.rank >= s->ndim; m++) {
            const Node *o = &f->g->node.at[s->node.at[m]];
            best = !best && in_list(f->g->arg.at + o->in, o->nin, v) ? 1 : best;
        }
    }
    for (u32 i = 0; i < f->edge.n; i++) {
        if (f->edge.at[i].to == id && depends(f, f->edge.at[i].from, group)) {
            return 0;
        }
    }
    Group one = {0};
    vec_push(f->g->arena, &one.node, id);
    return best && ports_of(f, s, &one) <= PORTS_MAX ? best : 0;
}

static void join(Fuse *f, u32 group, u32 id)
{
    Group *s = &f->groups.at[group - 1];
    const Body *b = f->body[id];
    if (b->ndim > s->ndim || !s->node.n) {
        s->ndim = b->ndim;
        for (u32 i = 0; i < b->ndim; i++) {
            s->dim[i] = b->dim[i].dim;
        }
    }
    s->over |= reduced(b);
    s->size += b->node.n;
    vec_push(f->g->arena, &s->node, id);
    f->group[id] = group;
}

static void choose_groups(Fuse *f)
{
    const Func *fn = &f->g->func.at[f->func];
    for (u32 i = 0; i < fn->node.n; i++) {
        u32 id = fn->node.at[i];
        if (!f->body[id]) {
            continue;
        }
        u32 best = 0, worth = 0;
        bool alone = is_alone(f->g, f->body[id]) || !f->g->cfg.fuse;
        for (u32 s = f->groups.n; s > 0 && !alone && worth < 2; s--) {
            u32 w = affinity(f, s, id);
            best = w > worth ? s : best;
            worth = w > worth ? w : worth;
        }
        if (!best) {
            vec_push(f->g->arena, &f->groups, (Group){.alone = alone});
            best = f->groups.n;
        }
        join(f, best, id);
    }
}

/* Does something outside of both groups lie between them, from `from` to `to`? Or is a sum taken
 * before its time? */
static bool path_between(Fuse *f, u32 from, u32 to)
{
    const Group *t = &f->groups.at[to - 1];
    f->round++;
    for (u32 i = 0; i < t->node.n; i++) {
        const Node *n = &f->g->node.at[t->node.at[i]];
        for (u32 k = 0; k < n->nin; k++) {
            u32 v = f->g->arg.at[n->in + k], p = f->g->value.at[v].node;
            if (p && f->group[p] == from) {
                if (sums_rows(f->body[p], f->g->value.at[v].out)) {
                    return true;
                }
            } else if (p && f->group[p] != to && depends(f, p, from)) {
                return true;
            }
        }
    }
    return false;
}

/* A result of one is read by the other, or both read one tensor of the whole space. */
static bool related(const Fuse *f, const Group *a, u32 b, u32 ndim)
{
    const Graph *g = f->g;
    for (u32 i = 0; i < a->node.n; i++) {
        const Node *n = &g->node.at[a->node.at[i]];
        for (u32 k = 0; k < n->nin; k++) {
            u32 v = g->arg.at[n->in + k], p = g->value.at[v].node;
            if (p && f->group[p] == b) {
                return true;
            }
            const Group *o = &f->groups.at[b - 1];
            for (u32 j = 0; j < o->node.n && g->value.at[v].type.rank >= ndim; j++) {
                const Node *m = &g->node.at[o->node.at[j]];
                if (in_list(g->arg.at + m->in, m->nin, v)) {
                    return true;
                }
            }
        }
    }
    return false;
}

static bool same_space(const Group *a, const Group *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, a->ndim * sizeof a->dim[0]) == 0 &&
           (a->over == b->over || !a->over || !b->over);
}

static bool can_merge(Fuse *f, u32 a, u32 b)
{
    const Group *x = &f->groups.at[a - 1], *y = &f->groups.at[b - 1];
    if (!x->node.n || !y->node.n || x->alone || y->alone || !same_space(x, y) ||
        x->size + y->size > NODES_MAX) {
        return false;
    }
    const Node *n = &f->g->node.at[x->node.at[0]], *m = &f->g->node.at[y->node.at[0]];
    if (n->when != m->when || n->skew != m->skew || n->lane != m->lane) {
        return false;
    }
    if (!related(f, x, b, x->ndim) && !related(f, y, a, x->ndim)) {
        return false;
    }
    return !path_between(f, a, b) && !path_between(f, b, a) && ports_of(f, x, y) <= PORTS_MAX;
}

/* Groups that became neighbours only when they were whole: forward and gradient of a loss, for
 * example. */
static void merge_groups(Fuse *f)
{
    const Func *fn = &f->g->func.at[f->func];
    for (u32 a = 1; a <= f->groups.n; a++) {
        for (u32 b = a + 1; b <= f->groups.n; b++) {
            if (!can_merge(f, a, b)) {
                continue;
            }
            Group *x = &f->groups.at[a - 1], *y = &f->groups.at[b - 1];
            x->over |= y->over;
            x->size += y->size;
            for (u32 i = 0; i < y->node.n; i++) {
                f->group[y->node.at[i]] = a;
            }
            x->node.n = y->node.n = 0;
            for (u32 i = 0; i < fn->node.n; i++) { /* members stay in the order of the Func */
                if (f->group[fn->node.at[i]] == a) {
                    vec_push(f->g->arena, &x->node, fn->node.at[i]);
                }
            }
            b = a; /* what did not fit before may fit now */
        }
    }
}

/* ---- one body for a group -------------------------------------------------------------------- */

typedef struct {
    Fuse *f;
    Group *s;
    Body *b;
    u32 *node;        /* by value: the node that holds it, rounded */
    VEC(u32) in, out; /* values of the ports */
    VEC(Type) type;   /* of results */
} Merge;

static Sym port_name(Merge *m, Sym want)
{
    Sym s = want;
    for (u32 n = 2;; n++) {
        bool clash = false;
        for (u32 i = 0; i < m->b->in.n; i++) {
            clash = clash || m->b->in.at[i].name == s;
        }
        for (u32 i = 0; i < m->b->out.n; i++) {
            clash = clash || m->b->out.at[i].name == s;
        }
        if (!clash) {
            return s;
        }
        s = sym_fmt(m->f->g, "%s%u", sym_str(m->f->g, want), n);
    }
}

/* Reads of one variable are one operand: no write stands between them, else the group would be a
 * cycle. */
static u32 read_before(const Merge *m, u32 value)
{
    const Graph *g = m->f->g;
    u32 n = g->value.at[value].node;
    for (u32 i = 0; n && op_is(g, n, "read") && i < m->in.n; i++) {
        u32 o = g->value.at[m->in.at[i]].node;
        if (o && op_is(g, o, "read") && g->node.at[o].formal == g->node.at[n].formal) {
            return m->in.at[i];
        }
    }
    return value;
}

static u32 operand(Merge *m, const BodyPort *p, const BodyNode *n, u32 value)
{
    value = read_before(m, value);
    if (!m->node[value]) {
        BodyPort q = *p;
        q.name = port_name(m, p->name);
        q.node = body_node(m->f->g, m->b,
                           (BodyNode){.fn = BF_INPUT,
                                      .type = n->type,
                                      .dims = p->dims,
                                      .name = q.name,
                                      .port = m->b->in.n});
        vec_push(m->f->g->arena, &m->b->in, q);
        vec_push(m->f->g->arena, &m->in, value);
        m->node[value] = q.node;
    }
    return m->node[value];
}

/* Used by a node outside, or a result of the Func. */
static bool is_result(const Merge *m, u32 value)
{
    const Func *fn = &m->f->g->func.at[m->f->func];
    u32 n = 0;
    const u32 *use = value_uses(m->f->g, m->f->func, value, &n);
    bool out = in_list(fn->out.at, fn->out.n, value);
    for (u32 i = 0; i < n; i++) {
        out = out || !in_list(m->s->node.at, m->s->node.n, use[i]);
    }
    for (u32 i = 1; i < m->f->g->save.n; i++) {
        out = out ||
              (m->f->g->save.at[i].from == m->f->func && m->f->g->save.at[i].from_value == value);
    }
    return out;
}

static void result(Merge *m, const BodyPort *p, u32 node, u32 value)
{
    Graph *g = m->f->g;
    bool sum = (m->b->node.at[node].dims & ~p->dims) != 0;
    bool narrow = p->dtype == DT_BF16 || (p->dtype == DT_F32 && g->cfg.compute == DT_F64);
    if (narrow && !sum) { /* a sum is rounded once, when it is complete */
        node = body_node(g, m->b, (BodyNode){.fn = BF_ROUND, .to = p->dtype, .arg = {node}});
    }
    if (!sum) {
        m->node[value] = node;
    }
    if (is_result(m, value)) {
        BodyPort q = *p;
        q.node = node;
        q.name = port_name(m, p->name);
        q.inplace = 0;
        vec_push(g->arena, &m->b->out, q);
        vec_push(g->arena, &m->out, value);
        vec_push(g->arena, &m->type, g->value.at[value].type);
    }
}

static void add_member(Merge *m, u32 id)
{
    Graph *g = m->f->g;
    const Body *b = m->f->body[id];
    const Node *n = &g->node.at[id];
    u32 *map = arena_alloc(g->arena, b->node.n * sizeof *map);
    for (u32 i = 1; i < b->node.n; i++) {
        BodyNode x = b->node.at[i];
        if (x.fn == BF_INPUT) {
            map[i] = operand(m, &b->in.at[x.port], &x, g->arg.at[n->in + x.port]);
            continue;
        }
        if (x.fn == BF_AMAX) {
            fail(g, n->loc, E_FUSE, "%s: amax has no CPU kernel yet", sym_str(g, n->path));
        }
        for (u32 k = 0; k < x.narg; k++) {
            x.arg[k] = map[x.arg[k]];
        }
        x.dims = x.narg ? 0 : x.dims;
        map[i] = body_node(g, m->b, x);
    }
    for (u32 k = 0; k < b->out.n; k++) {
        result(m, &b->out.at[k], map[b->out.at[k].node], n->out + k);
    }
}

/* Operands that simplification left without use go. */
static void drop_unused(Merge *m)
{
    body_prune(m->f->g, m->b);
    u32 kept = 0;
    for (u32 i = 0; i < m->b->in.n; i++) {
        if (m->b->in.at[i].node) {
            m->b->in.at[kept] = m->b->in.at[i];
            m->in.at[kept] = m->in.at[i];
            m->b->node.at[m->b->in.at[kept].node].port = kept;
            kept++;
        }
    }
    m->b->in.n = m->in.n = kept;
}

static void add_partials(Merge *m)
{
    Graph *g = m->f->g;
    u32 n = m->b->out.n;
    for (u32 k = 0; k < n; k++) {
        i64 lines = loopgen_lines(g, m->b, k);
        if (!lines) {
            continue;
        }
        const BodyPort p = m->b->out.at[k];
        bool total = p.dims == 0;
        assert(m->b->ndim < 2 * RANK_MAX && p.rank < RANK_MAX);
        u32 dim = dim_add(g, "line", lines), axis = 0;
        while (axis < m->b->ndim && m->b->dim[axis].dim != dim) {
            axis++;
        }
        m->b->dim[axis].dim = dim;
        m->b->dim[axis].name = g->dim.at[dim].name;
        m->b->ndim = (u8)(m->b->ndim + (axis == m->b->ndim));
        BodyPort q = {.name = port_name(m, sym_fmt(g, "%s_lines", sym_str(g, p.name))),
                      .dtype = total || g->cfg.compute == DT_F64 ? DT_F64 : DT_F32,
                      .rank = (u8)(p.rank + 1)};
        Type t = {.dtype = q.dtype, .rank = q.rank, .dim = {dim}};
        q.axis[0] = (u8)axis;
        for (u32 i = 0; i < p.rank; i++) {
            q.axis[i + 1] = p.axis[i];
            t.dim[i + 1] = m->type.at[k].dim[i];
        }
        vec_push(g->arena, &m->b->out, q);
        vec_push(g->arena, &m->type, t);
    }
}

static void take_over(Merge *m, u32 node)
{
    Graph *g = m->f->g;
    for (u32 k = 0; k < m->out.n; k++) {
        u32 old = m->out.at[k], new = g->node.at[node].out + k;
        const Value v = g->value.at[old];
        g->value.at[new].path = v.path;
        g->value.at[new].flags = v.flags;
        memcpy(g->value.at[new].at, v.at, sizeof v.at);
        value_replace(g, m->f->func, old, new);
        for (u32 i = 1; i < g->save.n; i++) {
            Save *s = &g->save.at[i];
            s->from_value = s->from == m->f->func && s->from_value == old ? new : s->from_value;
        }
    }
}

/* Named after the member that reduces, else the last one. */
static u32 main_member(const Fuse *f, const Group *s)
{
    u32 best = s->node.at[s->node.n - 1];
    for (u32 i = s->node.n; i-- > 0;) {
        best = reduced(f->body[s->node.at[i]]) ? s->node.at[i] : best;
    }
    return best;
}

/* The backward op with the longest body; NULL: the group is none. */
static const char *main_bwd(const Fuse *f, const Group *s)
{
    const char *best = NULL;
    u32 size = 0;
    for (u32 i = 0; i < s->node.n; i++) {
        u32 node = s->node.at[i];
        const char *op = sym_str(f->g, op_of(f->g, node)->name);
        if (strstr(op, ".bwd") && f->body[node]->node.n > size) {
            best = op;
            size = f->body[node]->node.n;
        }
    }
    return best;
}

/* "add_rmsnorm", "rope_bwd": the ops of a group, for the names of kernels. A backward is named
 * after its main op. */
static Attr ops_attr(const Fuse *f, const Group *s)
{
    Graph *g = f->g;
    Text t = {0};
    const char *back = main_bwd(f, s);
    if (back) {
        text_fmt(g->arena, &t, "%.*s_bwd", (int)(strstr(back, ".bwd") - back), back);
    }
    for (u32 i = 0, n = 0; i < s->node.n && !back && n < 3; i++) {
        const char *op = sym_str(g, op_of(g, s->node.at[i])->name);
        if (!t.n || !strstr(text_str(g->arena, &t), op)) {
            text_fmt(g->arena, &t, "%s%s", n++ ? "_" : "", op);
        }
    }
    return (Attr){.key = sym(g, "ops"), .kind = AT_SYM, .sym = sym(g, text_str(g->arena, &t))};
}

static void fuse_group(Fuse *f, u32 group)
{
    Graph *g = f->g;
    Group *s = &f->groups.at[group];
    Merge m = {.f = f, .s = s, .b = body_new(g)};
    m.node = arena_alloc(g->arena, g->value.n * sizeof *m.node);
    m.b->ndim = (u8)s->ndim;
    for (u32 i = 0; i < s->ndim; i++) {
        m.b->dim[i].dim = s->dim[i];
        m.b->dim[i].name = g->dim.at[s->dim[i]].name;
    }
    for (u32 i = 0; i < s->node.n; i++) {
        add_member(&m, s->node.at[i]);
    }
    drop_unused(&m);
    if (s->node.n && m.out.n) {
        add_partials(&m);
        u32 main = main_member(f, s), fused = op_find(g, "fused");
        assert(fused);
        vec_push(g->arena, &g->body, m.b);
        Attr ops = ops_attr(f, s);
        u32 id = node_add_typed(g, f->func, fused, m.in.at, m.in.n, &ops, 1, m.type.at, m.type.n);
        Node *n = &g->node.at[id];
        const Node *o = &g->node.at[main];
        n->body = g->body.n - 1;
        n->path = o->path;
        n->loc = o->loc;
        n->when = o->when;
        n->skew = o->skew;
        n->lane = o->lane;
        s->fused = id;
        take_over(&m, id);
    }
    for (u32 i = 0; i < s->node.n; i++) {
        g->node.at[s->node.at[i]].dead = true;
    }
}

/* ---- order of nodes -------------------------------------------------------------------------- */

static u32 stands_for(const Fuse *f, u32 node)
{
    return node < f->nnode && f->group[node] ? f->groups.at[f->group[node] - 1].fused : node;
}

/* Has everything that `id` waits for been placed? */
static bool ready(const Fuse *f, u32 id, const bool *placed)
{
    const Node *n = &f->g->node.at[id];
    for (u32 k = 0; k < n->nin; k++) {
        u32 v = f->g->arg.at[n->in + k], p = v ? f->g->value.at[v].node : 0;
        if (p && !placed[p]) {
            return false;
        }
    }
    for (u32 i = 0; i < f->edge.n; i++) {
        u32 from = stands_for(f, f->edge.at[i].from);
        if (stands_for(f, f->edge.at[i].to) == id && from && from != id && !placed[from]) {
            return false;
        }
    }
    return true;
}

/* A fused node stands where its last member stood, or as soon after as its operands allow. */
static void reorder(Fuse *f, const u32 *old, u32 nold)
{
    Graph *g = f->g;
    VEC(u32) todo = {0};
    for (u32 i = 0; i < nold; i++) {
        u32 id = old[i], s = f->group[id];
        if (!s) {
            vec_push(g->arena, &todo, id);
        } else if (f->groups.at[s - 1].fused &&
                   f->groups.at[s - 1].node.at[f->groups.at[s - 1].node.n - 1] == id) {
            vec_push(g->arena, &todo, f->groups.at[s - 1].fused);
        }
    }
    bool *placed = arena_alloc(g->arena, g->node.n * sizeof *placed);
    g->func.at[f->func].node.n = 0;
    for (u32 left = todo.n; left > 0; left--) {
        u32 i = 0;
        while (i < todo.n && (!todo.at[i] || !ready(f, todo.at[i], placed))) {
            i++;
        }
        assert(i < todo.n && "groups have no cycles");
        placed[todo.at[i]] = true;
        vec_push(g->arena, &g->func.at[f->func].node, todo.at[i]);
        todo.at[i] = 0;
    }
}

/* ---- in place -------------------------------------------------------------------------------- */

/* A buffer of a node of this Func that nobody uses behind `node`. */
static bool is_last_use(const Graph *g, u32 func, u32 value, u32 node)
{
    const Func *fn = &g->func.at[func];
    u32 p = g->value.at[value].node, uses = 0;
    if (!p || (op_of(g, p)->flags & (OF_VIEW | OF_EFFECT)) ||
        in_list(fn->out.at, fn->out.n, value)) {
        return false;
    }
    bool behind = false;
    for (u32 i = 0; i < fn->node.n; i++) {
        const Node *n = &g->node.at[fn->node.at[i]];
        bool view = (op_of(g, fn->node.at[i])->flags & OF_VIEW) != 0; /* read later, who knows */
        behind = behind || fn->node.at[i] == node;
        uses +=
            fn->node.at[i] != node && (behind || view) && in_list(g->arg.at + n->in, n->nin, value);
    }
    for (u32 i = 1; i < g->save.n; i++) {
        uses += g->save.at[i].from == func && g->save.at[i].from_value == value;
    }
    return uses == 0;
}

static void choose_inplace(Graph *g, u32 func, u32 node)
{
    const Node *n = &g->node.at[node];
    Body *b = g->body.at[n->body];
    u32 taken = 0;
    for (u32 k = 0; k < b->out.n; k++) {
        BodyPort *o = &b->out.at[k];
        for (u32 i = 0; i < b->in.n && i < 32 && o->node && !o->inplace; i++) {
            const Type *t = &g->value.at[g->arg.at[n->in + i]].type,
                       *u = &g->value.at[n->out + k].type;
            bool same = t->dtype == u->dtype && t->rank == u->rank && o->dims == b->in.at[i].dims &&
                        memcmp(t->dim, u->dim, t->rank * sizeof t->dim[0]) == 0;
            bool plain = (b->node.at[o->node].dims & ~o->dims) == 0;
            if (same && plain && u->rank && !(taken & (1u << i)) &&
                is_last_use(g, func, g->arg.at[n->in + i], node)) {
                o->inplace = (i32)i + 1;
                taken |= 1u << i;
            }
        }
    }
}

/* ---- the pass -------------------------------------------------------------------------------- */

static bool has_body(const Graph *g, u32 node)
{
    const Op *op = op_of(g, node);
    return !g->node.at[node].dead && (op->flags & OF_BODY) && op->body && !op_is(g, node, "fused");
}

static bool is_saved(const Graph *g, u32 func, u32 value)
{
    for (u32 i = 1; i < g->save.n; i++) {
        if (g->save.at[i].from == func && g->save.at[i].from_value == value) {
            return true;
        }
    }
    return false;
}

static bool same_view(const Graph *g, u32 a, u32 b)
{
    const Node *x = &g->node.at[a], *y = &g->node.at[b];
    bool same =
        x->op == y->op && x->nin == y->nin && x->nattr == y->nattr && x->nout == 1 && y->nout == 1;
    for (u32 i = 0; same && i < x->nin; i++) {
        same = g->arg.at[x->in + i] == g->arg.at[y->in + i];
    }
    for (u32 i = 0; same && i < x->nattr; i++) {
        const Attr *p = &g->attr.at[x->attr + i], *q = &g->attr.at[y->attr + i];
        same = p->key == q->key && p->kind == q->kind && p->n == q->n &&
               memcmp(p->nums, q->nums, sizeof p->nums) == 0;
    }
    return same && memcmp(&g->value.at[x->out].type, &g->value.at[y->out].type, sizeof(Type)) == 0;
}

/* Equal windows are one value: kernels that read the same tensor then show it. Concat is no window
 * of its operands. */
static void join_views(Graph *g, u32 func)
{
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 n = g->func.at[func].node.at[i];
        if (!(op_of(g, n)->flags & OF_VIEW) || op_is(g, n, "concat")) {
            continue;
        }
        for (u32 j = 0; j < i; j++) {
            u32 o = g->func.at[func].node.at[j];
            if (!g->node.at[o].dead && !is_saved(g, func, g->node.at[n].out) &&
                same_view(g, o, n)) {
                value_replace(g, func, g->node.at[n].out, g->node.at[o].out);
                g->node.at[n].dead = true;
                break;
            }
        }
    }
    func_sweep(g, func);
}

static void fuse_func(Graph *g, u32 func)
{
    if (g->cfg.fuse) {
        join_views(g, func);
    }
    Fuse f = {.g = g, .func = func, .nnode = g->node.n, .nvalue = g->value.n};
    f.body = arena_alloc(g->arena, g->node.n * sizeof(Body *));
    f.group = arena_alloc(g->arena, g->node.n * sizeof *f.group);
    f.seen = arena_alloc(g->arena, g->node.n * sizeof *f.seen);
    u32 n = g->func.at[func].node.n;
    u32 *old = arena_alloc(g->arena, n * sizeof *old + 1);
    for (u32 i = 0; i < n; i++) {
        old[i] = g->func.at[func].node.at[i];
        f.body[old[i]] = has_body(g, old[i]) ? body_bind(g, old[i]) : NULL;
    }
    add_edges(&f);
    choose_groups(&f);
    if (g->cfg.fuse) {
        merge_groups(&f);
    }
    for (u32 i = 0; i < f.groups.n; i++) {
        fuse_group(&f, i);
    }
    reorder(&f, old, n);
    for (u32 i = 0; i < f.groups.n; i++) {
        if (f.groups.at[i].fused) {
            choose_inplace(g, func, f.groups.at[i].fused);
        }
    }
}

/* A copy that view_resolve put in turns into a fused node where it stands, with its values and
 * windows. */
static void fuse_copies(Graph *g, u32 func)
{
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 id = g->func.at[func].node.at[i];
        if (has_body(g, id)) {
            Body *b = body_bind(g, id);
            vec_push(g->arena, &g->body, b);
            g->node.at[id].body = g->body.n - 1;
            g->node.at[id].op = op_find(g, "fused");
        }
    }
}

void pass_fuse(Graph *g)
{
    u32 n = g->func.n;
    for (u32 f = 1; f < n; f++) {
        if (!g->func.at[f].dead) {
            fuse_func(g, f);
        }
    }
    for (u32 f = 1; f < n; f++) {
        if (!g->func.at[f].dead && g->func.at[f].role != ROLE_LOOP) {
            view_resolve(g, f);
        }
    }
    for (u32 f = 1; f < n; f++) {
        if (!g->func.at[f].dead) {
            fuse_copies(g, f);
        }
    }
}
