/* views.c: windows.
 *
 * A view node (slice split merge transpose concat rename broadcast) computes nothing: its result is a
 * window on the buffer of its operand. concat is the inverse view: its operands are written by their
 * producers into its own buffer. Everything here reads types, not attributes, where types suffice:
 * what a view does follows from the dims of its operand and its result.
 */
#include "megagen.h"

#include <assert.h>
#include <string.h>

bool op_is(const Graph *g, u32 node, const char *name)
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

u32 var_find(const Graph *g, Sym path)
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
        return var_find(g, sym(g, s + 1));
    }
    return var_find(g, *p ? sym_fmt(g, "%s.%s", p, s) : name);
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
        if (op_is(g, f->node.at[i], "loop") && func_reaches(g, g->node.at[f->node.at[i]].body, to)) {
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
        if (!op_is(g, n, "loop")) {
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
            u32 var = var_resolve(g, call->prefix, f->formal.at[i].name);
            assert(var && "a variable for every formal");
            vec_push(g->arena, &call->bind, var);
        }
    }
}

/* A copy of func with its loops' bodies; *map (value_n entries, may be NULL) receives old -> new. */
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
        if (op_is(g, n, "loop")) {
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

/* ---- making views -------------------------------------------------------------------------- */

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

static u32 view_add(Graph *g, u32 func, const char *op, u32 x, const Attr *attr, u32 nattr, Type out)
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
        attr[1] = attr_dims(sym(g, "to"), to, nb);
        return view_add(g, func, "split", x, attr, 2, out);
    }
    if (nb == 1) {
        attr[0] = attr_dims(sym(g, "dims"), t.dim + at, na);
        attr[1] = attr_dim(sym(g, "to"), to[0]);
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
    u32 i = 0; /* dims of x before i are those of `to`                                 */
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
        while (a < t.rank && dim_size(g, t.dim[a]) == 1 && (b >= to.rank || t.dim[a] != to.dim[b])) {
            a++;
        }
        while (b < to.rank && dim_size(g, to.dim[b]) == 1 && (a >= t.rank || t.dim[a] != to.dim[b])) {
            b++;
        }
        x = regroup(g, func, x, i, a - i, to.dim + i, b - i);
        i = b;
    }
}

u32 view_transpose(Graph *g, u32 func, u32 x, Type to)
{
    to.dtype = g->value.at[x].type.dtype;
    Attr attr = attr_dims(sym(g, "to"), to.dim, to.rank);
    return view_add(g, func, "transpose", x, &attr, 1, to);
}

u32 view_slice(Graph *g, u32 func, u32 x, u32 pos, i64 from, u32 dim)
{
    Type t = g->value.at[x].type;
    Attr attr[3] = {attr_dim(sym(g, "dim"), t.dim[pos]), attr_int(sym(g, "from"), from),
                    attr_dim(sym(g, "to"), dim)};
    t.dim[pos] = dim;
    return view_add(g, func, "slice", x, attr, 3, t);
}

u32 view_concat(Graph *g, u32 func, const u32 *in, u32 nin, u32 pos, Type to)
{
    Attr attr = attr_dim(sym(g, "to"), to.dim[pos]);
    to.dtype = g->value.at[in[0]].type.dtype;
    u32 n = node_add_typed(g, func, op_need(g, "concat"), in, nin, &attr, 1, &to, 1);
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
    if (dim && op_is(g, node, "slice")) { /* a slice of everything changes no dim */
        v.dim = 0;
        while (v.dim < x->rank && x->dim[v.dim] != dim->dim[0]) {
            v.dim++;
        }
    }
    const Attr *from = node_attr(g, node, "from");
    v.from = from ? from->i : 0;
    v.len = y->rank < x->rank ? 1 : v.dim < y->rank ? dim_size(g, y->dim[v.dim]) : 0;
    return v;
}

/* ---- contraction --------------------------------------------------------------------------- */

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

/* ---- moving and sweeping ------------------------------------------------------------------- */

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

void loops_sweep(Graph *g, u32 func)
{
    func_sweep(g, func);
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        if (op_is(g, g->func.at[func].node.at[i], "loop")) {
            loops_sweep(g, g->node.at[g->func.at[func].node.at[i]].body);
        }
    }
    formals_lift(g, func);
    func_sweep(g, func);
}
