/* graph.c: build, walk and replace. Passes use these functions instead of touching the arrays'
 * order.
 *
 * Nodes of a Func stand in execution order in Func.node; a node's results are consecutive values;
 * its operands and attributes are consecutive entries of g->arg and g->attr. Dead nodes stay in
 * g->node, marked, and leave the Func's list.
 */
#include "megagen.h"

#include <assert.h>
#include <string.h>

/* ---- types and dims -------------------------------------------------------------------------- */

Graph *graph_new(void)
{
    Arena *a = arena_new();
    Graph *g = arena_alloc(a, sizeof *g);
    g->arena = a;
    vec_push(a, &g->dim, (Dim){0});
    vec_push(a, &g->atom, (Atom){0});
    vec_push(a, &g->axis, (Axis){0});
    vec_push(a, &g->arg, 0);
    vec_push(a, &g->attr, (Attr){0});
    vec_push(a, &g->op, (Op){0});
    vec_push(a, &g->value, (Value){0});
    vec_push(a, &g->node, (Node){0});
    vec_push(a, &g->func, (Func){0});
    vec_push(a, &g->var, (Var){0});
    vec_push(a, &g->flat, (Flat){0});
    vec_push(a, &g->reg, (Reg){0});
    vec_push(a, &g->chain, (Chain){0});
    vec_push(a, &g->save, (Save){0});
    vec_push(a, &g->step, (Step){0});
    vec_push(a, &g->buf, (Buf){0});
    vec_push(a, &g->body, NULL);
    vec_push(a, &g->kern, (Kern){0});
    vec_push(a, &g->inst, (Inst){0});
    sig_register(g);
    return g;
}

u32 dim_add(Graph *g, const char *name, i64 size)
{
    Sym base = sym(g, name);
    Sym as = base;
    for (u32 k = 0;; k++, as = sym_fmt(g, "%s.%u", name, k)) {
        u32 i = 1;
        while (i < g->dim.n && g->dim.at[i].name != as) {
            i++;
        }
        if (i == g->dim.n) {
            vec_push(g->arena, &g->dim, (Dim){.name = as, .size = size});
            return i;
        }
        if (g->dim.at[i].size == size) {
            return i;
        }
    }
}

i64 dim_mem(const Graph *g, u32 dim)
{
    assert(dim < g->dim.n);
    const Dim *d = &g->dim.at[dim];
    return d->pad ? d->pad : d->size;
}

u64 type_elems(const Graph *g, const Type *t)
{
    u64 n = 1;
    for (u32 i = 0; i < t->rank; i++) {
        n *= (u64)dim_mem(g, t->dim[i]);
    }
    return n;
}

u64 type_bytes(const Graph *g, const Type *t)
{
    return type_elems(g, t) * dtype_size(t->dtype);
}

u64 type_local_elems(const Graph *g, const Type *t, const Place *at)
{
    u64 n = type_elems(g, t);
    for (u32 a = 1; a < g->atom.n && a <= ATOM_MAX; a++) {
        u8 kind = at[a - 1].kind;
        u64 parts = (u64)g->atom.at[a].size;
        if (kind == PL_S || kind == PL_F) {
            n = (n + parts - 1) / parts;
        }
    }
    return n;
}

i32 type_pos(const Type *t, u32 dim)
{
    for (i32 i = 0; i < t->rank; i++) {
        if (t->dim[i] == dim) {
            return i;
        }
    }
    return -1;
}

bool type_equal(const Type *a, const Type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0;
}

i32 axis_atoms(const Graph *g, Sym name, u8 atom[ATOM_MAX])
{
    for (u32 i = 1; i < g->axis.n; i++) {
        if (g->axis.at[i].name == name) {
            memcpy(atom, g->axis.at[i].atom, g->axis.at[i].natom);
            return g->axis.at[i].natom;
        }
    }
    for (u32 i = 1; i < g->atom.n; i++) {
        if (g->atom.at[i].name == name) {
            atom[0] = (u8)i;
            return 1;
        }
    }
    return -1;
}

/* ---- ops, attributes ------------------------------------------------------------------------- */

/* From the end: what a text declares hides a rule of the same name. */
u32 op_find(const Graph *g, const char *name)
{
    for (u32 i = g->op.n; i-- > 1;) {
        if (strcmp(sym_str(g, g->op.at[i].name), name) == 0) {
            return i;
        }
    }
    return 0;
}

Attr attr_int(Sym key, i64 v)
{
    return (Attr){.key = key, .kind = AT_INT, .i = v};
}

Attr attr_num(Sym key, f64 v)
{
    return (Attr){.key = key, .kind = AT_NUM, .num = v};
}

Attr attr_sym(Sym key, Sym v)
{
    return (Attr){.key = key, .kind = AT_SYM, .sym = v};
}

Attr attr_dim(Sym key, u32 dim)
{
    return (Attr){.key = key, .kind = AT_DIM, .dim = {dim}};
}

Attr attr_dims(Sym key, const u32 *dim, u32 n)
{
    assert(n <= RANK_MAX);
    Attr a = {.key = key, .kind = AT_DIMS, .n = (u8)n};
    memcpy(a.dim, dim, n * sizeof *dim);
    return a;
}

const Attr *node_attr(const Graph *g, u32 node, const char *key)
{
    const Node *n = &g->node.at[node];
    for (u32 i = 0; i < n->nattr; i++) {
        const Attr *a = &g->attr.at[n->attr + i];
        if (strcmp(sym_str(g, a->key), key) == 0) {
            return a;
        }
    }
    return NULL;
}

/* ---- Funcs, inputs, formals ------------------------------------------------------------------ */

u32 func_add(Graph *g, Sym name, Role role)
{
    vec_push(g->arena, &g->func, (Func){.name = name, .role = (u8)role});
    return g->func.n - 1;
}

void value_set_dense(Graph *g, u32 value)
{
    Value *v = &g->value.at[value];
    v->base = value;
    v->off = 0;
    i64 stride = 1;
    for (u32 i = v->type.rank; i-- > 0;) {
        v->stride[i] = stride;
        stride *= dim_mem(g, v->type.dim[i]);
    }
}

static u32 value_add(Graph *g, u32 func, u32 node, u32 out, Type type, Sym path)
{
    u32 id = g->value.n;
    vec_push(g->arena, &g->value,
             (Value){.type = type, .func = func, .node = node, .out = (u16)out, .path = path});
    value_set_dense(g, id);
    return id;
}

u32 func_input(Graph *g, u32 func, Type type, Sym path)
{
    assert(func > 0 && func < g->func.n);
    u32 id = value_add(g, func, 0, g->func.at[func].in.n, type, path);
    vec_push(g->arena, &g->func.at[func].in, id);
    return id;
}

u32 formal_find(Graph *g, u32 func, Sym name, Type type, VarKind kind)
{
    Func *f = &g->func.at[func];
    for (u32 i = 0; i < f->formal.n; i++) {
        if (f->formal.at[i].name == name) {
            return i + 1;
        }
    }
    vec_push(g->arena, &f->formal, (Formal){name, type, (u8)kind});
    return f->formal.n;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

enum { OUT_MAX = 64 };

u32 node_add_typed(Graph *g, u32 func, u32 op, const u32 *in, u32 nin, const Attr *attr, u32 nattr,
                   const Type *out, u32 nout)
{
    assert(func > 0 && func < g->func.n && op > 0 && op < g->op.n);
    Arena *a = g->arena;
    /* in and attr may point into the arrays that grow here */
    u32 *own_in = arena_alloc(a, nin * sizeof *in + 1);
    Attr *own_attr = arena_alloc(a, nattr * sizeof *attr + 1);
    if (nin) {
        memcpy(own_in, in, nin * sizeof *in);
    }
    if (nattr) {
        memcpy(own_attr, attr, nattr * sizeof *attr);
    }
    Node n = {.op = op, .in = g->arg.n, .nin = nin, .attr = g->attr.n, .nattr = nattr};
    for (u32 i = 0; i < nin; i++) {
        assert(own_in[i] < g->value.n && "an operand of this Graph");
        assert((own_in[i] == 0 || g->value.at[own_in[i]].func == func) &&
               "an operand of this Func");
        vec_push(a, &g->arg, own_in[i]);
    }
    for (u32 i = 0; i < nattr; i++) {
        vec_push(a, &g->attr, own_attr[i]);
    }
    u32 id = g->node.n;
    n.func = func;
    n.out = g->value.n;
    n.nout = nout;
    n.pass = g->phase;
    Type *types = arena_alloc(a, nout * sizeof *out + 1);
    if (nout) {
        memcpy(types, out, nout * sizeof *out);
    }
    vec_push(a, &g->node, n);
    for (u32 i = 0; i < nout; i++) {
        value_add(g, func, id, i, types[i], 0);
    }
    vec_push(a, &g->func.at[func].node, id);
    return id;
}

u32 node_add(Graph *g, u32 func, u32 op, const u32 *in, u32 nin, const Attr *attr, u32 nattr)
{
    Type out[OUT_MAX];
    assert(op > 0 && op < g->op.n);
    Op copy = g->op.at[op];
    u32 nout = sig_infer(g, &copy, (Loc){0}, in, nin, attr, nattr, out);
    return node_add_typed(g, func, op, in, nin, attr, nattr, out, nout);
}

static u32 effect(Graph *g, u32 func, const char *op, u32 formal, const u32 *in, u32 nin, u32 nout)
{
    assert(formal > 0 && formal <= g->func.at[func].formal.n);
    Type t = g->func.at[func].formal.at[formal - 1].type;
    u32 n = node_add_typed(g, func, op_find(g, op), in, nin, NULL, 0, &t, nout);
    g->node.at[n].formal = formal;
    return n;
}

u32 node_read(Graph *g, u32 func, u32 formal)
{
    u32 n = effect(g, func, "read", formal, NULL, 0, 1);
    return g->node.at[n].out;
}

void node_accum(Graph *g, u32 func, u32 formal, u32 value)
{
    u32 n = effect(g, func, "accum", formal, &value, 1, 0);
    g->node.at[n].beta = 1;
}

void node_write(Graph *g, u32 func, u32 formal, u32 value)
{
    effect(g, func, "write", formal, &value, 1, 0);
}

u32 node_clone(Graph *g, u32 node, u32 func, const u32 *value_map)
{
    Node old = g->node.at[node];
    u32 *in = arena_alloc(g->arena, old.nin * sizeof *in + 1);
    for (u32 i = 0; i < old.nin; i++) {
        u32 v = g->arg.at[old.in + i];
        in[i] = v && value_map && value_map[v] ? value_map[v] : v;
    }
    Type *out = arena_alloc(g->arena, old.nout * sizeof *out + 1);
    for (u32 i = 0; i < old.nout; i++) {
        out[i] = g->value.at[old.out + i].type;
    }
    u32 formal = old.formal;
    if (formal && func != old.func) {
        Formal f = g->func.at[old.func].formal.at[formal - 1];
        formal = formal_find(g, func, f.name, f.type, f.kind);
    }
    u32 id = node_add_typed(g, func, old.op, in, old.nin, g->attr.at + old.attr, old.nattr, out,
                            old.nout);
    Node *n = &g->node.at[id];
    n->formal = formal;
    n->body = old.body;
    n->trips = old.trips;
    n->when = old.when;
    n->skew = old.skew;
    n->beta = old.beta;
    n->lane = old.lane;
    n->path = old.path;
    n->loc = old.loc;
    for (u32 i = 0; i < old.nout; i++) {
        Value *to = &g->value.at[n->out + i];
        const Value *from = &g->value.at[old.out + i];
        to->flags = from->flags;
        to->path = from->path;
        memcpy(to->at, from->at, sizeof to->at);
    }
    return id;
}

void value_replace(Graph *g, u32 func, u32 old, u32 new_)
{
    Func *f = &g->func.at[func];
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        for (u32 k = 0; k < n->nin; k++) {
            u32 *v = &g->arg.at[n->in + k];
            *v = *v == old ? new_ : *v;
        }
    }
    for (u32 i = 0; i < f->out.n; i++) {
        f->out.at[i] = f->out.at[i] == old ? new_ : f->out.at[i];
    }
}

u32 *value_uses(Graph *g, u32 func, u32 value, u32 *n)
{
    const Func *f = &g->func.at[func];
    VEC(u32) use = {0};
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *node = &g->node.at[f->node.at[i]];
        for (u32 k = 0; k < node->nin; k++) {
            if (g->arg.at[node->in + k] == value) {
                vec_push(g->arena, &use, f->node.at[i]);
                break;
            }
        }
    }
    *n = use.n;
    return use.at;
}

bool value_dense(const Graph *g, u32 value)
{
    const Value *v = &g->value.at[value];
    i64 stride = 1;
    for (u32 i = v->type.rank; i-- > 0;) {
        i64 size = dim_mem(g, v->type.dim[i]);
        if (size != 1 && v->stride[i] != stride) {
            return false;
        }
        stride *= size;
    }
    return v->off == 0 && type_elems(g, &v->type) == type_elems(g, &g->value.at[v->base].type);
}

/* ---- sweep ----------------------------------------------------------------------------------- */

/* A node that must stay although nobody uses a result: it changes a variable, another rank or, in a
 * loop's body, one of these. */
static bool node_acts(const Graph *g, const Node *n)
{
    const Op *op = &g->op.at[n->op];
    if (n->nout == 0) {
        return true;
    }
    if (n->body && strcmp(sym_str(g, op->name), "loop") == 0) {
        const Func *f = &g->func.at[n->body];
        for (u32 i = 0; i < f->node.n; i++) {
            if (node_acts(g, &g->node.at[f->node.at[i]])) {
                return true;
            }
        }
    }
    return false;
}

/* live[value] for what the Func gives away: results and kept saves. */
static bool *live_roots(Graph *g, u32 func)
{
    bool *live = arena_alloc(g->arena, g->value.n);
    const Func *f = &g->func.at[func];
    for (u32 i = 0; i < f->out.n; i++) {
        live[f->out.at[i]] = true;
    }
    for (u32 i = 1; i < g->save.n; i++) {
        if (g->save.at[i].from == func && g->save.at[i].mode != SAVE_RECOMPUTE) {
            live[g->save.at[i].from_value] = true;
        }
    }
    return live;
}

/* Formals of func that a loop's body (or its own loops) uses: they are found by name. */
static void mark_by_name(Graph *g, u32 func, u32 body, bool *used)
{
    const Func *f = &g->func.at[func], *b = &g->func.at[body];
    for (u32 i = 0; i < b->formal.n; i++) {
        for (u32 k = 0; k < f->formal.n; k++) {
            used[k] = used[k] || f->formal.at[k].name == b->formal.at[i].name;
        }
    }
}

static void formals_sweep(Graph *g, u32 func)
{
    Func *f = &g->func.at[func];
    bool *used = arena_alloc(g->arena, f->formal.n + 1);
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        if (n->formal) {
            used[n->formal - 1] = true;
        }
        if (n->body && strcmp(sym_str(g, g->op.at[n->op].name), "loop") == 0) {
            mark_by_name(g, func, n->body, used);
        }
    }
    u32 *to = arena_alloc(g->arena, (f->formal.n + 1) * sizeof *to);
    u32 keep = 0, had = f->formal.n;
    for (u32 i = 0; i < had; i++) {
        if (used[i]) {
            to[i] = keep + 1;
            f->formal.at[keep++] = f->formal.at[i];
        }
    }
    f->formal.n = keep;
    for (u32 i = 0; i < f->node.n; i++) {
        Node *n = &g->node.at[f->node.at[i]];
        n->formal = n->formal ? to[n->formal - 1] : 0;
    }
    for (u32 c = 1; c < g->chain.n; c++) {
        for (u32 k = 0; k < g->chain.at[c].call.n; k++) {
            Call *call = &g->chain.at[c].call.at[k];
            if (call->func != func || call->bind.n != had) {
                continue;
            }
            for (u32 i = 0; i < had; i++) {
                if (used[i]) {
                    call->bind.at[to[i] - 1] = call->bind.at[i];
                }
            }
            call->bind.n = keep;
        }
    }
}

void func_sweep(Graph *g, u32 func)
{
    bool *live = live_roots(g, func);
    Func *f = &g->func.at[func];
    for (u32 i = f->node.n; i-- > 0;) {
        Node *n = &g->node.at[f->node.at[i]];
        bool keep = node_acts(g, n);
        for (u32 k = 0; k < n->nout; k++) {
            keep = keep || live[n->out + k];
        }
        n->dead = !keep;
        for (u32 k = 0; keep && k < n->nin; k++) {
            live[g->arg.at[n->in + k]] = true;
        }
    }
    u32 keep = 0;
    for (u32 i = 0; i < f->node.n; i++) {
        if (!g->node.at[f->node.at[i]].dead) {
            f->node.at[keep++] = f->node.at[i];
        }
    }
    f->node.n = keep;
    formals_sweep(g, func);
}

/* ---- structural hash ------------------------------------------------------------------------- */

typedef struct {
    const Graph *g;
    Text data;  /* what is hashed: words in order */
    u32 *dim;   /* dims by first occurrence, so that names do not matter */
    u32 *local; /* value id -> 1 + number within the Func */
    u32 ndim, n;
} Hash;

static void put(Hash *h, u64 v)
{
    vec_grow(h->g->arena, (void **)&h->data.at, &h->data.cap, h->data.n + 8, 1);
    memcpy(h->data.at + h->data.n, &v, 8);
    h->data.n += 8;
}

static void put_dim(Hash *h, u32 dim)
{
    const Dim *d = &h->g->dim.at[dim];
    if (!h->dim[dim]) {
        h->dim[dim] = ++h->ndim;
    }
    put(h, h->dim[dim]);
    put(h, (u64)d->size);
    put(h, (u64)d->pad);
    put(h, (u64)d->max);
}

static void put_type(Hash *h, const Type *t)
{
    put(h, t->dtype);
    put(h, t->rank);
    for (u32 i = 0; i < t->rank; i++) {
        put_dim(h, t->dim[i]);
    }
}

static void put_sym(Hash *h, Sym s)
{
    const char *str = sym_str(h->g, s);
    put(h, hash_bytes(str, strlen(str), 0));
}

static void put_value(Hash *h, u32 v)
{
    const Value *x = &h->g->value.at[v];
    h->local[v] = ++h->n;
    put_type(h, &x->type);
    put(h, x->flags & (u32)~VF_MARKED);
    for (u32 a = 0; a + 1 < h->g->atom.n && a < ATOM_MAX; a++) {
        put(h, x->at[a].kind | (u64)x->at[a].order << 8 | (u64)x->at[a].dim << 16);
        put(h, x->at[a].bucket);
    }
}

static void put_attr(Hash *h, const Attr *a)
{
    put_sym(h, a->key);
    put(h, a->kind);
    put(h, a->n);
    if (a->kind == AT_SYM) {
        put_sym(h, a->sym);
    } else if (a->kind == AT_DIM) {
        put_dim(h, a->dim[0]);
    } else if (a->kind == AT_DIMS) {
        for (u32 i = 0; i < a->n; i++) {
            put_dim(h, a->dim[i]);
        }
    } else if (a->kind == AT_NUMS) {
        for (u32 i = 0; i < a->n; i++) {
            put(h, hash_bytes(&a->nums[i], 8, 0));
        }
    } else {
        put(h, (u64)a->i);
    }
}

static void put_node(Hash *h, const Node *n)
{
    const Graph *g = h->g;
    put_sym(h, g->op.at[n->op].name);
    put(h, n->nin);
    for (u32 i = 0; i < n->nin; i++) {
        put(h, h->local[g->arg.at[n->in + i]]);
    }
    put(h, n->nattr);
    for (u32 i = 0; i < n->nattr; i++) {
        put_attr(h, &g->attr.at[n->attr + i]);
    }
    put(h, n->formal);
    put(h, (u64)n->trips << 32 | (u64)n->when << 24 | (u64)(u8)n->skew << 16 | n->beta);
    if (n->body) {
        bool loop = strcmp(sym_str(g, g->op.at[n->op].name), "loop") == 0;
        put(h, loop ? func_hash(g, n->body) : n->body);
    }
    put(h, n->nout);
    for (u32 i = 0; i < n->nout; i++) {
        put_value(h, n->out + i);
    }
}

u64 func_hash(const Graph *g, u32 func)
{
    const Func *f = &g->func.at[func];
    Hash h = {.g = g};
    h.dim = arena_alloc(g->arena, g->dim.n * sizeof *h.dim);
    h.local = arena_alloc(g->arena, g->value.n * sizeof *h.local);
    put(&h, f->role);
    for (u32 i = 0; i < f->in.n; i++) {
        put_value(&h, f->in.at[i]);
        put(&h, i < f->in_kind.n ? f->in_kind.at[i] : 0);
    }
    put(&h, f->formal.n);
    for (u32 i = 0; i < f->formal.n; i++) {
        put_type(&h, &f->formal.at[i].type);
        put(&h, f->formal.at[i].kind);
    }
    for (u32 i = 0; i < f->node.n; i++) {
        put_node(&h, &g->node.at[f->node.at[i]]);
    }
    put(&h, f->out.n);
    for (u32 i = 0; i < f->out.n; i++) {
        put(&h, h.local[f->out.at[i]]);
        put(&h, i < f->out_kind.n ? f->out_kind.at[i] : 0);
    }
    return hash_bytes(h.data.at, h.data.n, 0);
}
