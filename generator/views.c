/* views.c: windows.
 *
 * A view node (slice split merge transpose concat rename broadcast) computes nothing: its result is
 * a window on the buffer of its operand. concat is the inverse view: its operands are written by
 * their producers into its own buffer. Everything here reads types, not attributes, where types
 * suffice: what a view does follows from the dims of its operand and its result.
 */
#include "megagen.h"

#include <assert.h>
#include <string.h>

bool node_is(const Graph *g, u32 node, const char *name)
{
    return node && strcmp(sym_str(g, g->op.at[g->node.at[node].op].name), name) == 0;
}

u32 op_need(Graph *g, const char *name)
{
    u32 op = op_find(g, name);
    if (!op) {
        fail(g, (Loc){0}, 720, "no op block `%s` in rules/, which pass %s needs", name,
             sym_str(g, g->phase));
    }
    return op;
}

u32 var_by_path(const Graph *g, Sym path)
{
    for (u32 i = 1; i < g->var.n; i++) {
        if (g->var.at[i].path == path) {
            return i;
        }
    }
    return 0;
}

u32 var_resolve(Graph *g, Sym prefix, Sym name)
{
    const char *s = sym_str(g, name), *p = sym_str(g, prefix);
    if (s[0] == '/') {
        return var_by_path(g, sym(g, s + 1));
    }
    return var_by_path(g, *p ? sym_fmt(g, "%s.%s", p, s) : name);
}

u32 chain_find(const Graph *g, const char *name)
{
    for (u32 i = 1; i < g->chain.n; i++) {
        if (strcmp(sym_str(g, g->chain.at[i].name), name) == 0) {
            return i;
        }
    }
    return 0;
}

u32 chain_add(Graph *g, const char *name, Role role)
{
    vec_push(g->arena, &g->chain, (Chain){.name = sym(g, name), .role = (u8)role});
    return g->chain.n - 1;
}

bool func_reaches(const Graph *g, u32 from, u32 to)
{
    if (from == to) {
        return true;
    }
    const Func *f = &g->func.at[from];
    for (u32 i = 0; i < f->node.n; i++) {
        if (node_is(g, f->node.at[i], "loop") &&
            func_reaches(g, g->node.at[f->node.at[i]].body, to)) {
            return true;
        }
    }
    return false;
}

/* A loop's body names its variables like the Func around it, which lists them, too. */
static void formals_lift(Graph *g, u32 func)
{
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 n = g->func.at[func].node.at[i];
        if (!node_is(g, n, "loop")) {
            continue;
        }
        u32 body = g->node.at[n].body;
        formals_lift(g, body);
        for (u32 k = 0; k < g->func.at[body].formal.n; k++) {
            Formal fo = g->func.at[body].formal.at[k];
            formal_find(g, func, fo.name, fo.type, fo.kind);
        }
    }
}

static u32 flat_resolve(const Graph *g, Sym name)
{
    for (u32 i = 1; i < g->flat.n; i++) {
        if (strcmp(sym_str(g, g->flat.at[i].name), sym_str(g, name) + 1) == 0) {
            return i;
        }
    }
    return 0;
}

void calls_bind(Graph *g, u32 chain)
{
    for (u32 k = 0; k < g->chain.at[chain].call.n; k++) {
        formals_lift(g, g->chain.at[chain].call.at[k].func);
    }
    for (u32 k = 0; k < g->chain.at[chain].call.n; k++) {
        Call *call = &g->chain.at[chain].call.at[k];
        const Func *f = &g->func.at[call->func];
        call->bind.n = 0;
        for (u32 i = 0; i < f->formal.n; i++) {
            u32 flat = f->role == ROLE_UPD ? flat_resolve(g, f->formal.at[i].name) : 0;
            u32 var = flat ? FLAT_BIND | flat : var_resolve(g, call->prefix, f->formal.at[i].name);
            assert(var && "a variable for every formal");
            vec_push(g->arena, &call->bind, var);
        }
    }
}

/* A copy of func with its loops' bodies; *map (value_n entries, may be NULL) receives old -> new.
 */
u32 func_clone(Graph *g, u32 func, Role role, const char *name, u32 *map)
{
    u32 to = func_add(g, sym(g, name), role);
    if (!map) {
        map = arena_alloc(g->arena, g->value.n * sizeof *map);
    }
    for (u32 i = 0; i < g->func.at[func].in.n; i++) {
        u32 v = g->func.at[func].in.at[i];
        Value old = g->value.at[v];
        u32 in = func_input(g, to, old.type, old.path);
        g->value.at[in].flags = old.flags;
        map[v] = in;
    }
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 n = g->func.at[func].node.at[i];
        u32 c = node_clone(g, n, to, map);
        if (node_is(g, n, "loop")) {
            const char *inner = arena_fmt(g->arena, "%s.loop", name);
            u32 body = func_clone(g, g->node.at[n].body, ROLE_LOOP, inner, map);
            g->node.at[c].body = body;
        }
        for (u32 k = 0; k < g->node.at[n].nout; k++) {
            map[g->node.at[n].out + k] = g->node.at[c].out + k;
        }
    }
    Func *f = &g->func.at[func], *t = &g->func.at[to];
    for (u32 i = 0; i < f->out.n; i++) {
        vec_push(g->arena, &t->out, map[f->out.at[i]]);
    }
    for (u32 i = 0; i < f->in_kind.n; i++) {
        vec_push(g->arena, &t->in_kind, f->in_kind.at[i]);
    }
    for (u32 i = 0; i < f->out_kind.n; i++) {
        vec_push(g->arena, &t->out_kind, f->out_kind.at[i]);
    }
    t->twin = func;
    t->path = f->path;
    t->loc = f->loc;
    return to;
}

/* ---- ports of chains ------------------------------------------------------------------------- */

static i32 list_index(const u32 *at, u32 n, u32 v)
{
    for (u32 i = 0; i < n; i++) {
        if (at[i] == v) {
            return (i32)i;
        }
    }
    return -1;
}

/* The regs that a chain uses and does not make are its inputs; what another chain uses of it, a
 * result. */
static void chain_ports(Graph *g, u32 chain)
{
    Chain *c = &g->chain.at[chain];
    c->in.n = 0;
    for (u32 k = 0; k < c->call.n; k++) {
        for (u32 i = 0; i < c->call.at[k].in.n; i++) {
            u32 reg = c->call.at[k].in.at[i];
            bool own = !reg || list_index(c->in.at, c->in.n, reg) >= 0;
            for (u32 j = 0; j < k && !own; j++) {
                own = list_index(c->call.at[j].out.at, c->call.at[j].out.n, reg) >= 0;
            }
            if (!own) {
                vec_push(g->arena, &c->in, reg);
            }
        }
    }
}

void chains_ports(Graph *g)
{
    for (u32 i = 1; i < g->chain.n; i++) {
        chain_ports(g, i);
    }
}

/* ---- making views ---------------------------------------------------------------------------- */

static i64 dim_size(const Graph *g, u32 dim)
{
    return g->dim.at[dim].size;
}

u32 dim_like(Graph *g, u32 dim, i64 size)
{
    if (dim_size(g, dim) == size) {
        return dim;
    }
    char *name = arena_fmt(g->arena, "%s", sym_str(g, g->dim.at[dim].name));
    char *dot = strchr(name, '.');
    if (dot) {
        *dot = 0;
    }
    return dim_add(g, name, size);
}

static u32 view_add(Graph *g, u32 func, const char *op, u32 x, const Attr *attr, u32 nattr,
                    Type out)
{
    u32 n = node_add_typed(g, func, op_need(g, op), &x, 1, attr, nattr, &out, 1);
    return g->node.at[n].out;
}

/* One step of a reshape: na dims of x from position at become nb dims `to`. */
static u32 regroup(Graph *g, u32 func, u32 x, u32 at, u32 na, const u32 *to, u32 nb)
{
    Type t = g->value.at[x].type, out = t;
    out.rank = (u8)(t.rank - na + nb);
    memcpy(out.dim + at, to, nb * sizeof *to);
    memcpy(out.dim + at + nb, t.dim + at + na, (t.rank - at - na) * sizeof *to);
    Attr attr[2];
    if (na == 1 && nb == 1) {
        attr[0] = attr_dim(sym(g, "dim"), t.dim[at]);
        attr[1] = attr_dim(sym(g, "to"), to[0]);
        return view_add(g, func, "rename", x, attr, 2, out);
    }
    if (na == 1) {
        attr[0] = attr_dim(sym(g, "dim"), t.dim[at]);
        attr[1] = attr_dims(sym(g, "dims"), to, nb);
        return view_add(g, func, "split", x, attr, 2, out);
    }
    if (nb == 1) {
        attr[0] = attr_dims(sym(g, "dims"), t.dim + at, na);
        attr[1] = attr_dim(sym(g, "dim"), to[0]);
        return view_add(g, func, "merge", x, attr, 2, out);
    }
    i64 size = 1;
    for (u32 i = 0; i < na; i++) {
        size *= dim_size(g, t.dim[at + i]);
    }
    u32 flat = dim_like(g, t.dim[at], size);
    return regroup(g, func, regroup(g, func, x, at, na, &flat, 1), at, 1, to, nb);
}

u32 view_reshape(Graph *g, u32 func, u32 x, Type to)
{
    u32 i = 0; /* dims of x before i are those of `to` */
    for (;;) {
        Type t = g->value.at[x].type;
        while (i < t.rank && i < to.rank && t.dim[i] == to.dim[i]) {
            i++;
        }
        if (i == t.rank && i == to.rank) {
            return x;
        }
        u32 a = i, b = i;
        i64 pa = 1, pb = 1;
        do {
            if (b >= to.rank || (a < t.rank && pa <= pb)) {
                assert(a < t.rank && "a reshape keeps the number of elements");
                pa *= dim_size(g, t.dim[a++]);
            } else {
                pb *= dim_size(g, to.dim[b++]);
            }
        } while (pa != pb || a == i || b == i);
        /* dims of size 1 that only one side has go along */
        while (a < t.rank && dim_size(g, t.dim[a]) == 1 &&
               (b >= to.rank || t.dim[a] != to.dim[b])) {
            a++;
        }
        while (b < to.rank && dim_size(g, to.dim[b]) == 1 &&
               (a >= t.rank || t.dim[a] != to.dim[b])) {
            b++;
        }
        x = regroup(g, func, x, i, a - i, to.dim + i, b - i);
        i = b;
    }
}

u32 view_transpose(Graph *g, u32 func, u32 x, Type to)
{
    to.dtype = g->value.at[x].type.dtype;
    Attr attr = attr_dims(sym(g, "dims"), to.dim, to.rank);
    return view_add(g, func, "transpose", x, &attr, 1, to);
}

u32 view_slice(Graph *g, u32 func, u32 x, u32 pos, i64 from, u32 dim)
{
    Type t = g->value.at[x].type;
    Attr attr[3] = {attr_dim(sym(g, "dim"), t.dim[pos]), attr_int(sym(g, "at"), from),
                    attr_dim(sym(g, "len"), dim)};
    t.dim[pos] = dim;
    return view_add(g, func, "slice", x, attr, 3, t);
}

u32 view_concat(Graph *g, u32 func, const u32 *in, u32 nin, u32 pos, Type to)
{
    u32 dim = g->value.at[in[0]].type.dim[pos];
    Attr attr[2] = {attr_dim(sym(g, "dim"), dim), attr_dim(sym(g, "to"), to.dim[pos])};
    to.dtype = g->value.at[in[0]].type.dtype;
    u32 n = node_add_typed(g, func, op_need(g, "concat"), in, nin, attr, 2, &to, 1);
    return g->node.at[n].out;
}

View view_of(const Graph *g, u32 node)
{
    const Node *n = &g->node.at[node];
    const Type *x = &g->value.at[g->arg.at[n->in]].type, *y = &g->value.at[n->out].type;
    View v = {0};
    while (v.dim < x->rank && v.dim < y->rank && x->dim[v.dim] == y->dim[v.dim]) {
        v.dim++;
    }
    const Attr *dim = node_attr(g, node, "dim");
    if (dim && node_is(g, node, "slice")) { /* a slice of everything changes no dim */
        v.dim = 0;
        while (v.dim < x->rank && x->dim[v.dim] != dim->dim[0]) {
            v.dim++;
        }
    }
    const Attr *from = node_attr(g, node, "at");
    v.from = from ? from->i : 0;
    v.len = y->rank < x->rank ? 1 : v.dim < y->rank ? dim_size(g, y->dim[v.dim]) : 0;
    return v;
}

/* ---- contraction ----------------------------------------------------------------------------- */

static bool type_has(const Type *t, u32 dim)
{
    for (u32 i = 0; i < t->rank; i++) {
        if (t->dim[i] == dim) {
            return true;
        }
    }
    return false;
}

/* Contract x and y over all dims that both have; the result has the dims of `to`, in that order. */
u32 contract_to(Graph *g, u32 func, u32 x, u32 y, Type to)
{
    Type tx = g->value.at[x].type, ty = g->value.at[y].type;
    u32 sum[RANK_MAX], nsum = 0;
    for (u32 i = 0; i < tx.rank; i++) {
        if (type_has(&ty, tx.dim[i])) {
            sum[nsum++] = tx.dim[i];
        }
    }
    bool x_first = to.rank == 0 || type_has(&tx, to.dim[0]);
    u32 in[2] = {x_first ? x : y, x_first ? y : x};
    Attr attr = attr_dims(sym(g, "sum"), sum, nsum);
    u32 n = node_add(g, func, op_need(g, "matmul"), in, 2, &attr, 1);
    u32 out = g->node.at[n].out;
    const Type *got = &g->value.at[out].type;
    if (memcmp(got->dim, to.dim, to.rank * sizeof *to.dim) == 0) {
        return out;
    }
    return view_transpose(g, func, out, to);
}

/* ---- moving and sweeping --------------------------------------------------------------------- */

/* Put node in front of `before`, a node of the same Func. */
void node_move(Graph *g, u32 node, u32 before)
{
    Func *f = &g->func.at[g->node.at[node].func];
    u32 from = 0, to = 0;
    while (f->node.at[from] != node) {
        from++;
    }
    while (f->node.at[to] != before) {
        to++;
    }
    if (from > to) {
        memmove(f->node.at + to + 1, f->node.at + to, (from - to) * sizeof node);
        f->node.at[to] = node;
    } else if (from + 1 < to) {
        memmove(f->node.at + from, f->node.at + from + 1, (to - from - 1) * sizeof node);
        f->node.at[to - 1] = node;
    }
}

void node_drop(Graph *g, u32 node)
{
    Func *f = &g->func.at[g->node.at[node].func];
    u32 keep = 0;
    for (u32 i = 0; i < f->node.n; i++) {
        if (f->node.at[i] != node) {
            f->node.at[keep++] = f->node.at[i];
        }
    }
    f->node.n = keep;
    g->node.at[node].dead = true;
}

void loops_sweep(Graph *g, u32 func)
{
    func_sweep(g, func);
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        if (node_is(g, g->func.at[func].node.at[i], "loop")) {
            loops_sweep(g, g->node.at[g->func.at[func].node.at[i]].body);
        }
    }
    formals_lift(g, func);
    func_sweep(g, func);
}

/* ---- resolving windows ----------------------------------------------------------------------- */

/* A window: where each element of a value lies in the buffer of `base`. */
typedef struct {
    u32 base;
    i64 off, stride[RANK_MAX];
} Window;

static Window window_of(const Graph *g, u32 v)
{
    Window w = {g->value.at[v].base, g->value.at[v].off, {0}};
    memcpy(w.stride, g->value.at[v].stride, sizeof w.stride);
    return w;
}

static void window_set(Graph *g, u32 v, const Window *w)
{
    g->value.at[v].base = w->base;
    g->value.at[v].off = w->off;
    memcpy(g->value.at[v].stride, w->stride, sizeof w->stride);
}

/* Dims [i, i + a) of x and [j, j + b) of y that hold the same elements; false at the end. */
typedef struct {
    u32 i, a, j, b;
} Run;

static bool run_next(const Graph *g, const Type *x, const Type *y, Run *r)
{
    u32 i = r->i + r->a, j = r->j + r->b;
    if (i == x->rank && j == y->rank) {
        return false;
    }
    *r = (Run){i, 0, j, 0};
    i64 px = 1, py = 1;
    do {
        if (r->j + r->b >= y->rank || (r->i + r->a < x->rank && px <= py)) {
            px *= dim_mem(g, x->dim[r->i + r->a++]);
        } else {
            py *= dim_mem(g, y->dim[r->j + r->b++]);
        }
    } while (px != py);
    while (r->i + r->a == x->rank && r->j + r->b < y->rank) { /* trailing dims of size 1 */
        r->b++;
    }
    return true;
}

/* Strides of y, which regroups the dims of x without moving an element; false if none fit. */
static bool regroup_strides(const Graph *g, const Type *x, const i64 *sx, const Type *y, i64 *sy)
{
    for (Run r = {0}; run_next(g, x, y, &r);) {
        i64 inner = 0,
            next = 0; /* innermost stride of the run; what the next dim outwards must have */
        for (u32 k = r.i + r.a; k-- > r.i;) {
            i64 size = dim_mem(g, x->dim[k]);
            if (size == 1) {
                continue;
            }
            if (!inner) {
                inner = sx[k];
            } else if (sx[k] != next) {
                return false;
            }
            next = sx[k] * size;
        }
        i64 stride = inner ? inner : 1;
        for (u32 k = r.j + r.b; k-- > r.j;) {
            sy[k] = stride;
            stride *= dim_mem(g, y->dim[k]);
        }
    }
    return true;
}

static bool is_regroup(const Graph *g, u32 n)
{
    return node_is(g, n, "split") || node_is(g, n, "merge") || node_is(g, n, "rename");
}

/* Operand k of a concat starts here. */
static i64 concat_at(const Graph *g, u32 n, u32 k)
{
    i64 at = 0;
    u32 pos = view_of(g, n).dim;
    for (u32 i = 0; i < k; i++) {
        at += dim_size(g, g->value.at[g->arg.at[g->node.at[n].in + i]].type.dim[pos]);
    }
    return at;
}

enum { FREE, FIXED, ROOT };
typedef struct {
    Graph *g;
    u32 func;
    u8 *fixed; /* by value: FREE, FIXED, or ROOT: a view whose operand lies in its buffer */
} Resolve;

/* May the producer of v write into a window of another buffer? */
static bool movable(const Resolve *r, u32 v)
{
    const Graph *g = r->g;
    u32 n = g->value.at[v].node;
    return n && !r->fixed[v] && !(g->op.at[g->node.at[n].op].flags & OF_EFFECT);
}

static bool window_packed(const Graph *g, const Type *t, const Window *w)
{
    i64 stride = 1;
    for (u32 i = t->rank; i-- > 0;) {
        i64 size = dim_mem(g, t->dim[i]);
        if (size != 1 && w->stride[i] != stride) {
            return false;
        }
        stride *= size;
    }
    return true;
}

/* The window that the operand of view n must have so that the result has w; false if there is none.
 */
static bool view_inverse(const Graph *g, u32 n, const Window *w, Window *out)
{
    const Type *tx = &g->value.at[g->arg.at[g->node.at[n].in]].type;
    const Type *tv = &g->value.at[g->node.at[n].out].type;
    *out = *w;
    if (is_regroup(g, n)) {
        return regroup_strides(g, tv, w->stride, tx, out->stride);
    }
    for (u32 i = 0; i < tx->rank; i++) {
        out->stride[i] = w->stride[type_pos(tv, tx->dim[i])];
    }
    return true;
}

static bool invertible(const Graph *g, u32 n)
{
    return is_regroup(g, n) || node_is(g, n, "transpose");
}

/* Lay v out as w, going back through views to the node that computes it; false if that cannot be.
 */
static bool place(Resolve *r, u32 v, Window w)
{
    Graph *g = r->g;
    u32 n = g->value.at[v].node;
    if (!movable(r, v)) {
        return false;
    }
    if (invertible(g, n)) {
        Window wx;
        return view_inverse(g, n, &w, &wx) && place(r, g->arg.at[g->node.at[n].in], wx);
    }
    if ((g->op.at[g->node.at[n].op].flags & OF_VIEW) && !node_is(g, n, "concat")) {
        return false;
    }
    u32 rank = g->value.at[v].type.rank;
    if (rank && dim_mem(g, g->value.at[v].type.dim[rank - 1]) > 1 && w.stride[rank - 1] != 1) {
        return false; /* kernels write rows */
    }
    if (node_is(g, n, "loop") && !window_packed(g, &g->value.at[v].type, &w)) {
        return false; /* its body writes whole trips */
    }
    window_set(g, v, &w);
    r->fixed[v] = FIXED;
    return true;
}

static u32 copy_before(Resolve *r, u32 v, u32 before)
{
    Graph *g = r->g;
    u32 n = node_add(g, r->func, op_need(g, "copy"), &v, 1, NULL, 0);
    g->node.at[n].path = g->node.at[before].path;
    g->node.at[n].loc = g->node.at[before].loc;
    node_move(g, n, before);
    return g->node.at[n].out;
}

static void grow_fixed(Resolve *r, u32 had)
{
    u8 *now = arena_alloc(r->g->arena, r->g->value.n);
    memcpy(now, r->fixed, had);
    r->fixed = now;
}

/* Place operand k of n in w; what cannot be is copied there. */
static void place_operand(Resolve *r, u32 n, u32 k, Window w)
{
    Graph *g = r->g;
    if (place(r, g->arg.at[g->node.at[n].in + k], w)) {
        return;
    }
    u32 had = g->value.n;
    u32 copy = copy_before(r, g->arg.at[g->node.at[n].in + k], n);
    grow_fixed(r, had);
    g->arg.at[g->node.at[n].in + k] = copy;
    window_set(g, copy, &w);
    r->fixed[copy] = FIXED;
}

static void place_operands(Resolve *r, u32 n)
{
    Graph *g = r->g;
    Window all = window_of(g, g->node.at[n].out);
    if (r->fixed[g->node.at[n].out] == ROOT) {
        Window w;
        bool fits = view_inverse(g, n, &all, &w);
        assert(fits && "a dense result has an inverse");
        (void)fits;
        place_operand(r, n, 0, w);
        return;
    }
    u32 pos = view_of(g, n).dim;
    for (u32 k = 0; k < g->node.at[n].nin; k++) {
        Window w = all;
        w.off += concat_at(g, n, k) * all.stride[pos];
        place_operand(r, n, k, w);
    }
}

/* The window of a view's result from that of its operand; false if there is none. */
static bool view_window(Graph *g, u32 n)
{
    u32 x = g->arg.at[g->node.at[n].in], y = g->node.at[n].out;
    const Type *tx = &g->value.at[x].type, *ty = &g->value.at[y].type;
    Window w = window_of(g, x);
    if (is_regroup(g, n)) {
        if (!regroup_strides(g, tx, g->value.at[x].stride, ty, w.stride)) {
            return false;
        }
    } else if (node_is(g, n, "slice")) {
        View v = view_of(g, n);
        w.off += v.from * w.stride[v.dim];
    } else { /* transpose, broadcast: by name; a dim that x lacks has stride 0 */
        for (u32 i = 0; i < ty->rank; i++) {
            i32 k = type_pos(tx, ty->dim[i]);
            w.stride[i] = k < 0 ? 0 : g->value.at[x].stride[k];
        }
    }
    window_set(g, y, &w);
    return true;
}

/* What must own its buffer: results, saves, inputs. */
static void fix_owned(Resolve *r)
{
    Graph *g = r->g;
    const Func *f = &g->func.at[r->func];
    for (u32 i = 0; i < f->in.n; i++) {
        r->fixed[f->in.at[i]] = FIXED;
    }
    for (u32 i = 0; i < f->out.n; i++) {
        u32 n = g->value.at[f->out.at[i]].node;
        r->fixed[f->out.at[i]] = n && invertible(g, n) ? ROOT : FIXED;
    }
    for (u32 i = 1; i < g->save.n; i++) {
        if (g->save.at[i].from == r->func && g->save.at[i].mode == SAVE_KEEP) {
            r->fixed[g->save.at[i].from_value] = FIXED;
        }
    }
}

/* A result or save is a whole buffer of its own; one that is a window, an input or a variable is
 * copied. */
static u32 own(Resolve *r, u32 v, bool taken)
{
    Graph *g = r->g;
    u32 n = g->value.at[v].node;
    bool is_view = n && (g->op.at[g->node.at[n].op].flags & OF_VIEW) && !node_is(g, n, "concat");
    if (n && (!is_view || invertible(g, n)) && !taken &&
        !(g->op.at[g->node.at[n].op].flags & OF_EFFECT)) {
        return v;
    }
    u32 c = node_add(g, r->func, op_need(g, "copy"), &v, 1, NULL, 0);
    g->node.at[c].path = n ? g->node.at[n].path : 0;
    g->value.at[g->node.at[c].out].flags = g->value.at[v].flags;
    return g->node.at[c].out;
}

static void own_results(Resolve *r)
{
    Graph *g = r->g;
    for (u32 i = 0; i < g->func.at[r->func].out.n; i++) {
        u32 v = g->func.at[r->func].out.at[i];
        bool taken = false;
        for (u32 k = 0; k < i; k++) {
            taken |= g->func.at[r->func].out.at[k] == v;
        }
        u32 mine = own(r, v, taken);
        g->func.at[r->func].out.at[i] = mine;
    }
}

/* The strides that a loop's body sees of its operands. */
static void body_inputs(Graph *g, u32 n)
{
    u32 body = g->node.at[n].body;
    for (u32 k = 0; k < g->node.at[n].nin; k++) {
        u32 in = g->func.at[body].in.at[k], x = g->arg.at[g->node.at[n].in + k];
        u32 skip = g->func.at[body].in_kind.at[k] == OPERAND_SLICE ? 1 : 0;
        g->value.at[in].base = in;
        g->value.at[in].off = 0;
        for (u32 i = 0; i < g->value.at[in].type.rank; i++) {
            g->value.at[in].stride[i] = g->value.at[x].stride[i + skip];
        }
    }
}

/* Windows of the values that node n makes. */
static void resolve_node(Resolve *r, u32 n)
{
    Graph *g = r->g;
    u32 flags = g->op.at[g->node.at[n].op].flags;
    bool root = g->node.at[n].nout && r->fixed[g->node.at[n].out] == ROOT;
    if ((flags & OF_VIEW) && !root && !node_is(g, n, "concat") && !view_window(g, n)) {
        u32 had = g->value.n;
        u32 copy = copy_before(r, g->arg.at[g->node.at[n].in], n);
        grow_fixed(r, had);
        g->arg.at[g->node.at[n].in] = copy;
        bool fits = view_window(g, n);
        assert(fits && "a dense operand has every view");
        (void)fits;
    }
}

void view_resolve(Graph *g, u32 func)
{
    Resolve r = {.g = g, .func = func};
    own_results(&r);
    r.fixed = arena_alloc(g->arena, g->value.n);
    fix_owned(&r);
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        const Node *n = &g->node.at[g->func.at[func].node.at[i]];
        for (u32 k = 0; k < n->nout; k++) {
            value_set_dense(g, n->out + k);
        }
    }
    for (u32 i = g->func.at[func].node.n; i-- > 0;) {
        u32 n = g->func.at[func].node.at[i], had = g->func.at[func].node.n;
        if (node_is(g, n, "concat") || (g->node.at[n].nout && r.fixed[g->node.at[n].out] == ROOT)) {
            place_operands(&r, n);
            i += g->func.at[func].node.n - had;
        }
    }
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 n = g->func.at[func].node.at[i];
        resolve_node(&r, n);
        while (g->func.at[func].node.at[i] != n) {
            i++;
        }
        if (node_is(g, n, "loop")) {
            body_inputs(g, n);
            view_resolve(g, g->node.at[n].body);
        }
    }
}
