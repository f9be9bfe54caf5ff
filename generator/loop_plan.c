/* loop_plan.c: the loops of a fused node: which dims merge, what runs in vectors, sweeps, parts,
 * results.
 *
 * Everything here follows from shapes, strides and the body, never from the machine.
 */
#include "loopgen.h"

#include <assert.h>
#include <string.h>

enum { PARTS_ELEMS = 16384, PARTS_ROWS = 32, LINE_ELEMS = 65536 };

/* ---- values, strides ------------------------------------------------------------------------- */

static u32 port_value(const Gen *e, bool out, u32 i)
{
    return out ? e->nd->out + i : e->g->arg.at[e->nd->in + i];
}

const BodyPort *loop_port(const Gen *e, bool out, u32 i)
{
    return out ? &e->b->out.at[i] : &e->b->in.at[i];
}

/* Elements from one index of a body dim to the next; 0 if the value lacks it. */
i64 loop_stride(const Gen *e, bool out, u32 i, u32 dim)
{
    const BodyPort *p = loop_port(e, out, i);
    for (u32 k = 0; k < p->rank; k++) {
        if (p->axis[k] == dim) {
            return e->g->value.at[port_value(e, out, i)].stride[k];
        }
    }
    return 0;
}

static i64 dim_size(const Gen *e, u32 dim)
{
    return e->g->dim.at[e->b->dim[dim].dim].size;
}

/* Row-major over the logical dims of a node: the order of random numbers. */
i64 loop_rand_stride(const Gen *e, u32 dims, u32 dim)
{
    i64 s = 1;
    if (!(dims & (1u << dim))) {
        return 0;
    }
    for (u32 i = dim + 1; i < e->b->ndim; i++) {
        s *= dims & (1u << i) ? dim_size(e, i) : 1;
    }
    return s;
}

/* Trips of all loops around the node, 0 outside of loops. */
static i64 trips_around(const Gen *e)
{
    const Graph *g = e->g;
    i64 trips = 0;
    for (u32 f = e->nd->func, at = 0; g->func.at[f].role == ROLE_LOOP; f = g->node.at[at].func) {
        at = 1;
        while (at < g->node.n && (g->node.at[at].body != f || !node_is(g, at, "loop"))) {
            at++;
        }
        if (at == g->node.n) {
            break; /* a body that no loop runs, in tests */
        }
        trips = (trips ? trips : 1) * g->node.at[at].trips;
    }
    return trips;
}

bool loop_has_trip(const Gen *e)
{
    return body_has_rand(e->b) && e->g->func.at[e->nd->func].role == ROLE_LOOP;
}

/* Elements between the first rows of two samples, 0: the numbers are the same in every sample. A
 * micro batch has them row-major; in a loop its trips are the outermost dim. */
i64 loop_rand_sample(const Gen *e, const BodyNode *n)
{
    i64 trips = trips_around(e), all = trips, rows = e->g->cfg.micro > 0 ? e->g->cfg.micro : 1;
    bool batch = false;
    for (u32 i = 0; i < e->b->ndim; i++) {
        const char *name = sym_str(e->g, e->b->dim[i].name);
        bool b = strcmp(name, "b") == 0, t = strcmp(name, "t") == 0;
        if (!(n->dims & (1u << i))) {
            continue;
        }
        if (!trips && (b || t)) {
            return loop_rand_stride(e, n->dims, i) * (t ? e->g->cfg.seq : 1);
        }
        batch = batch || b || t || strcmp(name, "n") == 0;
        all *= e->g->dim.at[e->b->dim[i].dim].size;
    }
    return batch ? all / rows : 0;
}

i64 loop_rand_elems(const Gen *e, u32 dims)
{
    i64 n = 1;
    for (u32 i = 0; i < e->b->ndim; i++) {
        n *= dims & (1u << i) ? e->g->dim.at[e->b->dim[i].dim].size : 1;
    }
    return n;
}

bool loop_is_partial(const Body *b, u32 out)
{
    return b->out.at[out].node == 0;
}

/* ---- analysis -------------------------------------------------------------------------------- */

u32 loop_reduced(const Body *b)
{
    u32 over = 0;
    for (u32 i = 1; i < b->node.n; i++) {
        over |= body_reduces(b->node.at[i].fn) ? b->node.at[i].over : 0;
    }
    return over;
}

/* The node's body with lse written out and without stop, in a copy; its statements have the names
 * that the comment above the kernel gives them. */
static Body *lowered(Graph *g, const Body *b)
{
    Body *r = body_new(g);
    r->text = b->text;
    r->ndim = b->ndim;
    memcpy(r->dim, b->dim, sizeof b->dim);
    u32 *to = arena_alloc(g->arena, b->node.n * sizeof *to);
    const Sym *names = body_names(g, b);
    for (u32 i = 1; i < b->node.n; i++) {
        BodyNode n = b->node.at[i];
        n.name = n.fn > BF_RAND ? names[i] : n.name;
        const char *name = sym_str(g, n.name);
        for (u32 k = 0; k < n.narg; k++) {
            n.arg[k] = to[n.arg[k]];
        }
        n.dims = n.narg ? 0 : n.dims;
        if (n.fn == BF_STOP) {
            to[i] = n.arg[0];
        } else if (n.fn == BF_LSE) {
            u32 x = n.arg[0];
            u32 m = body_node(g, r,
                              (BodyNode){.fn = BF_ROWMAX,
                                         .arg = {x},
                                         .over = n.over,
                                         .name = sym_fmt(g, "%s_max", name)});
            u32 d = body_node(g, r, (BodyNode){.fn = BF_SUB, .arg = {x, m}});
            u32 e = body_node(g, r, (BodyNode){.fn = BF_EXP, .arg = {d}});
            u32 s = body_node(
                g, r,
                (BodyNode){
                    .fn = BF_SUM, .arg = {e}, .over = n.over, .name = sym_fmt(g, "%s_sum", name)});
            u32 l = body_node(g, r, (BodyNode){.fn = BF_LOG, .arg = {s}});
            to[i] = body_node(g, r, (BodyNode){.fn = BF_ADD, .arg = {l, m}, .name = n.name});
        } else {
            to[i] = body_node(g, r, n);
        }
    }
    for (u32 i = 0; i < b->in.n; i++) {
        vec_push(g->arena, &r->in, b->in.at[i]);
        r->in.at[i].node = to[b->in.at[i].node];
    }
    for (u32 i = 0; i < b->out.n; i++) {
        vec_push(g->arena, &r->out, b->out.at[i]);
        r->out.at[i].node = to[b->out.at[i].node];
    }
    for (u32 i = 1; i < r->node.n; i++) {
        assert(r->node.at[i].fn != BF_AMAX && "fuse refuses amax");
    }
    body_prune(g, r);
    return r;
}

/* Does every access step through dims i and j as through one? */
static bool merges(const Gen *e, u32 i, u32 j)
{
    i64 n = dim_size(e, j);
    for (u32 io = 0; io < 2; io++) {
        for (u32 k = 0; k < (io ? e->b->out.n : e->b->in.n); k++) {
            if (!(io && loop_is_partial(e->b, k)) &&
                loop_stride(e, io, k, i) != loop_stride(e, io, k, j) * n) {
                return false;
            }
        }
    }
    for (u32 k = 1; k < e->b->node.n; k++) {
        const BodyNode *nd = &e->b->node.at[k];
        if (nd->fn == BF_INDEX && (nd->over & (1u << i | 1u << j))) {
            return false;
        }
        if (nd->fn == BF_RAND &&
            loop_rand_stride(e, nd->dims, i) != loop_rand_stride(e, nd->dims, j) * n) {
            return false;
        }
    }
    return true;
}

/* Dims of more than one element that body b runs over in rows: all but the innermost of a map, all
 * but the reduced ones of a row kernel. */
static u32 lead_dims(const Graph *g, const Body *b, u32 *wide)
{
    u32 used = 0, over = loop_reduced(b), last = 0;
    for (u32 i = 1; i < b->node.n; i++) {
        used |= b->node.at[i].dims;
    }
    for (u32 k = 0; k < b->out.n; k++) {
        used |= loop_is_partial(b, k) ? 0 : b->out.at[k].dims;
    }
    for (u32 i = 0; i < b->ndim; i++) {
        used &= g->dim.at[b->dim[i].dim].size > 1 ? ~0u : ~(1u << i);
        last = used & (1u << i) ? 1u << i : last;
    }
    *wide = used;
    return used & ~(over ? over : last);
}

static u8 out_kind(const Graph *g, const Body *b, u32 k)
{
    u32 used, lead = lead_dims(g, b, &used);
    const BodyPort *p = &b->out.at[k];
    u32 missing = b->node.at[p->node].dims & ~p->dims & used;
    return !missing            ? OUT_PLAIN
           : !(p->dims & used) ? OUT_TOTAL
           : p->dims & lead    ? OUT_SOME
                               : OUT_COLUMNS;
}

i64 loopgen_lines(const Graph *g, const Body *b, u32 out)
{
    u8 kind = out_kind(g, b, out);
    if (kind != OUT_COLUMNS && kind != OUT_TOTAL) {
        return 0;
    }
    u32 used, lead = lead_dims(g, b, &used);
    i64 rows = 1, all = 1;
    for (u32 i = 0; i < b->ndim; i++) {
        i64 size = used & (1u << i) ? g->dim.at[b->dim[i].dim].size : 1;
        rows *= lead & (1u << i) ? size : 1;
        all *= size;
    }
    if (rows == 1) {
        return loop_reduced(b) ? 1 : (all + LINE_ELEMS - 1) / LINE_ELEMS;
    }
    return rows < PARTS_ROWS ? rows : PARTS_ROWS;
}

/* The row dims that a result lacks while it keeps others: 0, or the dims that must run innermost.
 */
static u32 sequential(const Gen *e)
{
    u32 seq = 0, used, lead = lead_dims(e->g, e->b, &used);
    for (u32 k = 0; k < e->b->out.n; k++) {
        const BodyPort *p = &e->b->out.at[k];
        if (!loop_is_partial(e->b, k) && out_kind(e->g, e->b, k) == OUT_SOME) {
            seq |= e->b->node.at[p->node].dims & ~p->dims & lead;
        }
    }
    return seq;
}

static void choose_loops(Gen *e)
{
    u32 over = loop_reduced(e->b), used = 0;
    Loop all[LOOPS];
    u32 n = 0;
    for (u32 i = 1; i < e->b->node.n; i++) {
        used |= e->b->node.at[i].dims;
    }
    for (u32 k = 0; k < e->b->out.n; k++) {
        used |= loop_is_partial(e->b, k) ? 0 : e->b->out.at[k].dims;
    }
    u32 seq = sequential(e);
    for (u32 i = 0; i < e->b->ndim; i++) {
        u32 bit = 1u << i;
        if (!((used | over) & bit) || (dim_size(e, i) == 1 && !(over & bit))) {
            continue;
        }
        Loop *p = n ? &all[n - 1] : NULL;
        bool same = p && !(p->mask & over) == !(over & bit) && p->seq == !!(seq & bit);
        if (same && merges(e, p->last, i)) {
            p->mask |= bit;
            p->last = i;
            p->size *= dim_size(e, i);
        } else {
            all[n++] = (Loop){.mask = bit, .last = i, .size = dim_size(e, i), .seq = seq & bit};
        }
    }
    bool vector = n && (over || !all[n - 1].seq);
    e->n = vector ? all[n - 1].size : 1;
    e->inner = vector ? all[n - 1].mask : 0;
    e->nrow = vector ? n - 1 : n;
    if (over & ~e->inner) {
        fail(e->g, e->nd->loc, E_LOOP, "%s: a sum over dims that do not lie together in memory",
             sym_str(e->g, e->nd->path));
    }
    e->rows = e->seqs = 1;
    for (u32 s = 0, at = 0; s < 2; s++) { /* sequential rows innermost */
        for (u32 i = 0; i < e->nrow; i++) {
            if (all[i].seq == (s == 1)) {
                e->row[at++] = all[i];
                *(s ? &e->seqs : &e->rows) *= all[i].size;
            }
        }
    }
    e->flat = e->rows == 1 && e->seqs == 1;
}

bool loop_is_vec(const Gen *e, u32 id)
{
    return (e->b->node.at[id].dims & e->inner) != 0;
}

static void choose_levels(Gen *e)
{
    for (u32 i = 1; i < e->b->node.n; i++) {
        const BodyNode *n = &e->b->node.at[i];
        for (u32 k = 0; k < n->narg; k++) {
            u32 l = e->level[n->arg[k]] + (body_reduces(n->fn) ? 1 : 0);
            e->level[i] = l > e->level[i] ? l : e->level[i];
        }
    }
}

static void choose_outs(Gen *e)
{
    u32 part = 0, last = 0;
    for (u32 i = 1; i < e->b->node.n; i++) {
        bool red = body_reduces(e->b->node.at[i].fn);
        u32 l = e->level[i] - (red ? 1u : 0u);
        last = (red || loop_is_vec(e, i)) && l > last ? l : last;
    }
    while (part < e->b->out.n && !loop_is_partial(e->b, part)) {
        part++;
    }
    for (u32 k = 0; k < e->b->out.n; k++) {
        const BodyPort *p = &e->b->out.at[k];
        OutInfo *o = &e->out[k];
        if (loop_is_partial(e->b, k)) {
            continue;
        }
        o->adds = value_adds(e->g, e->nd->out + k);
        o->vec = ((e->b->node.at[p->node].dims | p->dims) & e->inner) != 0;
        o->kind = out_kind(e->g, e->b, k);
        u32 missing = e->b->node.at[p->node].dims & ~p->dims;
        if ((missing & e->inner) && (o->kind == OUT_COLUMNS || o->kind == OUT_SOME)) {
            fail(e->g, e->nd->loc, E_LOOP, "%s: result %s is a sum over inner dims: write sum()",
                 sym_str(e->g, e->nd->path), sym_str(e->g, p->name));
        }
        if (o->kind == OUT_COLUMNS || o->kind == OUT_TOTAL) {
            assert(part < e->b->out.n && "fuse gives each column sum a partial buffer");
            o->part = part++;
        }
        o->sweep = p->inplace ? last : e->level[p->node];
        bool keeps = o->kind == OUT_PLAIN && o->vec && !o->adds && !p->inplace &&
                     loop_is_vec(e, p->node) && e->b->node.at[p->node].fn > BF_RAND &&
                     !e->stored[p->node];
        bool exact =
            p->dtype == (e->wide ? DT_F64 : DT_F32) || e->b->node.at[p->node].fn == BF_ROUND;
        if (keeps && exact) {
            e->stored[p->node] = k + 1;
        }
    }
}

/* Every column sum of a node has as many lines in its partial buffer as the node has parts. */
static void choose_parts(Gen *e)
{
    for (u32 k = 0; k < e->b->out.n; k++) {
        if (loop_is_partial(e->b, k)) {
            e->parts = dim_size(e, e->b->out.at[k].axis[0]);
            return;
        }
    }
    if (e->flat) {
        e->parts = (e->n + PARTS_ELEMS - 1) / PARTS_ELEMS;
        return;
    }
    i64 most = (e->rows * e->seqs * e->n + PARTS_ELEMS / 2 - 1) / (PARTS_ELEMS / 2);
    e->parts = e->rows < PARTS_ROWS ? e->rows : PARTS_ROWS;
    e->parts = most < e->parts ? most : e->parts;
}

const char *loop_ctype(u8 dtype)
{
    static const char *const names[DT_COUNT] = {[DT_F64] = "double",
                                                [DT_F32] = "float",
                                                [DT_BF16] = "bf16",
                                                [DT_I64] = "int64_t",
                                                [DT_I32] = "int32_t"};
    return dtype < DT_COUNT ? names[dtype] : NULL;
}

/* Lanes are double if a tensor is; of single numbers, which may be sums kept in double, only if
 * there is no tensor. */
static void check_types(Gen *e)
{
    int wide = 0;
    bool tensors = false;
    for (u32 i = 0; i < e->b->out.n + e->b->in.n; i++) {
        bool out = i < e->b->out.n;
        const BodyPort *p = loop_port(e, out, out ? i : i - e->b->out.n);
        if (!loop_ctype(p->dtype)) {
            fail(e->g, e->nd->loc, E_LOOP,
                 "%s: %s has the type %s, which CPU rows do not store yet",
                 sym_str(e->g, e->nd->path), sym_str(e->g, p->name), dtype_name(p->dtype));
        }
        bool partial = out && loop_is_partial(e->b, i);
        wide |= p->dtype == DT_F64 && !partial ? (p->rank ? 2 : 1) : 0;
        tensors = tensors || p->rank;
    }
    e->wide = wide & 2 || (wide && !tensors);
}

void loop_plan(Gen *e)
{
    Graph *g = e->g;
    e->b = lowered(g, g->body.at[e->nd->body]);
    u64 n = e->b->node.n;
    e->out = arena_alloc(g->arena, e->b->out.n * sizeof *e->out);
    e->level = arena_alloc(g->arena, n * sizeof *e->level);
    e->uses = arena_alloc(g->arena, n * sizeof *e->uses);
    e->stored = arena_alloc(g->arena, n * sizeof *e->stored);
    e->need = arena_alloc(g->arena, n * sizeof *e->need);
    e->done = arena_alloc(g->arena, n * sizeof *e->done);
    e->id = arena_alloc(g->arena, n * sizeof *e->id);
    check_types(e);
    choose_loops(e);
    choose_levels(e);
    choose_outs(e);
    choose_parts(e);
    for (u32 i = 1; i < n; i++) {
        for (u32 k = 0; k < e->b->node.at[i].narg; k++) {
            e->uses[e->b->node.at[i].arg[k]]++;
        }
    }
    for (u32 i = 1; i < n; i++) { /* row numbers stay out of the vector loop */
        for (u32 k = 0; loop_is_vec(e, i) && k < e->b->node.at[i].narg; k++) {
            e->uses[e->b->node.at[i].arg[k]] += !loop_is_vec(e, e->b->node.at[i].arg[k]);
        }
    }
    for (u32 k = 0; k < e->b->out.n; k++) {
        e->uses[e->b->out.at[k].node] += e->out[k].adds || e->out[k].kind == OUT_SOME ? 2 : 1;
    }
}

/* What the kernel computes, above its text. */
void loop_comment(Gen *e)
{
    Text t = {0};
    body_print(e->g, e->g->body.at[e->nd->body], &t);
    const char *path = sym_str(e->g, e->nd->path), *gap = ", ";
    text_fmt(e->g->arena, e->t, "/* %s%s%s", comment_safe(e->g, path), *path ? ": " : "",
             comment_safe(e->g, node_ops(e->g, e->node)));
    for (u32 i = 0; i < e->nrow; i++) {
        text_fmt(e->g->arena, e->t, "%s%lld", gap, (long long)e->row[i].size);
        gap = " x ";
    }
    if (e->n > 1 || e->nrow) {
        text_fmt(e->g->arena, e->t, "%s%lld elements", gap, (long long)e->n);
    }
    text_fmt(e->g->arena, e->t, "\n");
    for (const char *s = text_str(e->g->arena, &t); *s;) {
        int n = (int)strcspn(s, "\n");
        text_fmt(e->g->arena, e->t, " *     %s\n",
                 comment_safe(e->g, arena_fmt(e->g->arena, "%.*s", n, s)));
        s += n + (s[n] == '\n');
    }
    text_fmt(e->g->arena, e->t, " */\n");
}
