/* plan.c: every byte.
 *
 * One arena a rank, cut into six regions at multiples of 4 KiB:
 *
 *   params   the flat weights, then frozen ones
 *   grads    the flat accumulators
 *   state    moments, masters, tables, metrics
 *   saved    a block for each call of the forward chain: its saves, and the regs that it takes and
 * that its backward call reads again scratch  first the regs that cross calls and are not saved, by
 * their life in the order forward, backward; behind them what a Func needs while it runs, the same
 * bytes for all io       batch inputs and what the host reads
 *
 * Inside a Func a buffer lives from its first to its last access by node position; buffers are
 * placed by falling size at the lowest offset where no buffer of an overlapping life lies. A result
 * that its op may write over an operand that dies there shares the operand's buffer. The scratch of
 * a loop's body is one buffer of the Func around it.
 *
 * needs: windows, kernel instances; gives: all offsets, g->buf, g->region, g->arena_bytes
 */
#include "megagen.h"

#include <assert.h>
#include <string.h>

enum { REGION_ALIGN = 4096, BUF_ALIGN = 256 };

static u64 round_up(u64 n, u64 to)
{
    return (n + to - 1) / to * to;
}

/* ---- first fit ------------------------------------------------------------------------------- */

typedef struct {
    u64 bytes, off;
    u32 first, last; /* life, both ends included */
    u32 id;          /* Reg, or Buf; 0 = the scratch of a loop's body */
    u32 body;
} Span;
typedef VEC(Span) Spans;

/* Place all; returns the bytes needed. */
static u64 first_fit(Graph *g, Spans *s)
{
    u32 *order = arena_alloc(g->arena, (s->n + 1) * sizeof *order);
    for (u32 i = 0; i < s->n; i++) { /* by falling size, equal ones in their order */
        u32 at = i;
        for (; at > 0 && s->at[order[at - 1]].bytes < s->at[i].bytes; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    u64 end = 0;
    for (u32 i = 0; i < s->n; i++) {
        Span *x = &s->at[order[i]];
        for (bool moved = true; moved;) { /* past every placed one that is alive and in the way */
            moved = false;
            for (u32 k = 0; k < i; k++) {
                const Span *y = &s->at[order[k]];
                bool alive = x->first <= y->last && y->first <= x->last;
                if (alive && x->off < y->off + y->bytes && y->off < x->off + x->bytes) {
                    x->off = round_up(y->off + y->bytes, BUF_ALIGN);
                    moved = true;
                }
            }
        }
        end = x->off + x->bytes > end ? x->off + x->bytes : end;
    }
    return round_up(end, BUF_ALIGN);
}

/* ---- the pass's state ------------------------------------------------------------------------ */

typedef struct {
    Graph *g;
    u64 used[REGION_COUNT]; /* bytes given out so far */
    u64 cross;              /* scratch: bytes of regs that cross calls */
    bool *planned;          /* by func */
} Plan;

static u64 take(Plan *p, RegionKind region, u64 bytes)
{
    u64 off = round_up(p->used[region], BUF_ALIGN);
    p->used[region] = off + bytes;
    return off;
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

/* ---- variables ------------------------------------------------------------------------------- */

static RegionKind var_region(u8 kind)
{
    return kind == VAR_WEIGHT ? REGION_PARAMS : kind == VAR_ACCUM ? REGION_GRADS : REGION_STATE;
}

/* Offsets are relative to their region until regions_place(). */
static void vars_place(Plan *p)
{
    Graph *g = p->g;
    for (u32 i = 1; i < g->flat.n; i++) {
        Flat *f = &g->flat.at[i];
        f->off = take(p, var_region(f->kind), f->elems * dtype_size(f->dtype));
    }
    for (u32 i = 1; i < g->var.n; i++) {
        Var *v = &g->var.at[i];
        if (v->flat) {
            v->off = g->flat.at[v->flat].off + v->elem * dtype_size(v->type.dtype);
        } else {
            v->off = take(p, var_region(v->kind), type_bytes(g, &v->type));
        }
    }
}

/* ---- saves and regs -------------------------------------------------------------------------- */

/* Saves of a Func: one place in the block for each value, whoever reads it. Returns the block's
 * bytes. */
static u64 saves_place(Graph *g, u32 func)
{
    u64 bytes = 0;
    for (u32 i = 1; i < g->save.n; i++) {
        Save *s = &g->save.at[i];
        if (s->from != func || s->mode != SAVE_KEEP) {
            continue;
        }
        bool known = false;
        for (u32 k = 1; k < i && !known; k++) {
            const Save *t = &g->save.at[k];
            known = t->from == func && t->mode == SAVE_KEEP && t->from_value == s->from_value;
            s->off = known ? t->off : s->off;
        }
        if (!known) {
            s->off = bytes;
            bytes = round_up(bytes + type_bytes(g, &g->value.at[s->from_value].type), BUF_ALIGN);
        }
    }
    return bytes;
}

/* Regs of the forward that a backward call with a twin reads. */
static void regs_saved(Graph *g, u32 bwd)
{
    for (u32 k = 0; k < g->chain.at[bwd].call.n; k++) {
        const Call *call = &g->chain.at[bwd].call.at[k];
        for (u32 i = 0; i < call->in.n && call->twin; i++) {
            u32 reg = call->in.at[i];
            bool made = false; /* by an earlier call of the same chain: a cotangent */
            for (u32 j = 0; j < k && !made; j++) {
                const Call *c = &g->chain.at[bwd].call.at[j];
                made = in_list(c->out.at, c->out.n, reg);
            }
            if (reg && !made && !g->reg.at[reg].io) {
                g->reg.at[reg].saved = true;
            }
        }
    }
}

/* A block for each forward call: saves, then the saved regs that it takes; what nobody takes lies
 * with the call that makes it. */
static void blocks_place(Plan *p, u32 fwd, u32 bwd, bool *placed)
{
    Graph *g = p->g;
    u64 *block = arena_alloc(g->arena, g->func.n * sizeof *block);
    for (u32 f = 1; f < g->func.n; f++) {
        block[f] = saves_place(g, f);
    }
    for (u32 pass = 0; pass < 2; pass++) {
        for (u32 k = 0; k < g->chain.at[fwd].call.n; k++) {
            Call *call = &g->chain.at[fwd].call.at[k];
            if (pass == 0) {
                call->saved_off = take(p, REGION_SAVED, block[call->func]);
            }
            u32 n = pass == 0 ? call->in.n : call->out.n;
            for (u32 i = 0; i < n; i++) {
                u32 reg = pass == 0 ? call->in.at[i] : call->out.at[i];
                if (reg && g->reg.at[reg].saved && !placed[reg]) {
                    g->reg.at[reg].off = take(p, REGION_SAVED, type_bytes(g, &g->reg.at[reg].type));
                    placed[reg] = true;
                }
            }
        }
    }
    for (u32 k = 0; bwd && k < g->chain.at[bwd].call.n; k++) {
        Call *call = &g->chain.at[bwd].call.at[k];
        call->saved_off = call->twin ? g->chain.at[fwd].call.at[call->twin - 1].saved_off : 0;
    }
}

static void regs_io(Plan *p, bool *placed)
{
    Graph *g = p->g;
    for (u32 i = 1; i < g->reg.n; i++) {
        Reg *r = &g->reg.at[i];
        if (r->io) {
            r->off = take(p, REGION_IO, type_bytes(g, &r->type));
            placed[i] = true;
        }
    }
}

/* Life of each reg in the calls of chains a and b, one after the other. */
static void regs_live(Graph *g, const u32 *chain, u32 nchain, Spans *out, const bool *placed)
{
    u32 *span = arena_alloc(g->arena, g->reg.n * sizeof *span);
    u32 pos = 0;
    for (u32 c = 0; c < nchain; c++) {
        const Chain *ch = &g->chain.at[chain[c]];
        for (u32 k = 0; k < ch->call.n; k++, pos++) {
            const Call *call = &ch->call.at[k];
            for (u32 i = 0; i < call->in.n + call->out.n; i++) {
                u32 reg = i < call->in.n ? call->in.at[i] : call->out.at[i - call->in.n];
                if (!reg || placed[reg]) {
                    continue;
                }
                if (!span[reg]) {
                    vec_push(g->arena, out,
                             (Span){type_bytes(g, &g->reg.at[reg].type), 0, pos, pos, reg, 0});
                    span[reg] = out->n;
                }
                out->at[span[reg] - 1].last = pos;
            }
        }
    }
}

/* Regs that cross calls. Chains that never run between each other share the bytes. */
static void regs_cross(Plan *p, const bool *placed)
{
    Graph *g = p->g;
    u32 fwd = chain_find(g, "fwd"), bwd = chain_find(g, "bwd");
    for (u32 c = 1; c < g->chain.n; c++) {
        u32 run[2] = {c, bwd};
        if (c == bwd && fwd) {
            continue; /* with fwd */
        }
        Spans s = {0};
        regs_live(g, run, c == fwd && bwd ? 2 : 1, &s, placed);
        u64 bytes = first_fit(g, &s);
        p->cross = bytes > p->cross ? bytes : p->cross;
        for (u32 i = 0; i < s.n; i++) {
            g->reg.at[s.at[i].id].off = s.at[i].off;
        }
    }
}

/* ---- buffers of one Func --------------------------------------------------------------------- */

typedef struct {
    Graph *g;
    u32 func;
    u32 *first, *last; /* by value (bases): life in node positions; first counts from 1 */
    Spans span;        /* id: Buf */
} Local;

static u32 base_of(const Graph *g, u32 v)
{
    return g->value.at[v].base ? g->value.at[v].base : v;
}

static void touch(Local *l, u32 v, u32 pos)
{
    u32 b = base_of(l->g, v);
    l->first[b] = l->first[b] && l->first[b] < pos ? l->first[b] : pos;
    l->last[b] = l->last[b] > pos ? l->last[b] : pos;
}

static bool is_view(const Graph *g, u32 n)
{
    return (g->op.at[g->node.at[n].op].flags & OF_VIEW) != 0;
}

/* Views access nothing; a concat's parts are accesses of its base. */
static void lives(Local *l)
{
    Graph *g = l->g;
    const Func *f = &g->func.at[l->func];
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        if (is_view(g, f->node.at[i])) {
            continue;
        }
        for (u32 k = 0; k < n->nin; k++) {
            if (g->arg.at[n->in + k]) {
                touch(l, g->arg.at[n->in + k], i + 1);
            }
        }
        for (u32 k = 0; k < n->nout; k++) {
            touch(l, n->out + k, i + 1);
        }
    }
}

/* Does the base need bytes in the Func's own scratch? Not what lies in a Reg, a variable, an outer
 * loop's result or a save. */
static bool wants_scratch(const Local *l, u32 v)
{
    const Graph *g = l->g;
    const Func *f = &g->func.at[l->func];
    u32 n = g->value.at[v].node;
    if (!n || g->value.at[v].base != v || node_is(g, n, "read") || !l->first[v]) {
        return false;
    }
    return !in_list(f->out.at, f->out.n, v) && !value_sink(g, v);
}

static u32 save_of(const Graph *g, u32 func, u32 v)
{
    for (u32 i = 1; i < g->save.n; i++) {
        const Save *s = &g->save.at[i];
        if (s->from == func && s->from_value == v && s->mode == SAVE_KEEP) {
            return i;
        }
    }
    return 0;
}

/* Result k of node n may lie where operand `in` lies (index + 1; 0 = nowhere), says its op. */
static u32 inplace_of(const Graph *g, u32 n, u32 k)
{
    const Node *node = &g->node.at[n];
    const Op *op = &g->op.at[node->op];
    const Body *body = node_is(g, n, "fused") ? g->body.at[node->body] : op->body;
    if (body && k < body->out.n && body->out.at[k].inplace > 0) {
        return (u32)body->out.at[k].inplace;
    }
    for (u32 i = 0; op->sig && i + 1 < op->inplace.n; i += 2) {
        i32 out = sig_out(op->sig, op->inplace.at[i]), in = sig_in(op->sig, op->inplace.at[i + 1]);
        if (out == (i32)k && in >= 0) {
            return (u32)in + 1;
        }
    }
    return 0;
}

/* Do results before k of node n already lie in this buffer? */
static bool taken(const Graph *g, const Node *n, u32 k, u32 buf)
{
    for (u32 i = 0; i < k; i++) {
        if (g->value.at[n->out + i].buf == buf) {
            return true;
        }
    }
    return false;
}

/* The buffer that result k of node n shares with an operand; 0 = a buffer of its own. */
static u32 shared_buf(const Local *l, u32 n, u32 k, u32 pos)
{
    const Graph *g = l->g;
    const Node *node = &g->node.at[n];
    u32 in = inplace_of(g, n, k), out = node->out + k;
    u32 x = in && in <= node->nin ? g->arg.at[node->in + in - 1] : 0;
    if (!x) {
        return 0;
    }
    u32 b = base_of(g, x), buf = g->value.at[b].buf;
    if (!buf || g->buf.at[buf].region != REGION_SCRATCH || l->last[b] != pos ||
        l->first[out] != pos || taken(g, node, k, buf)) {
        return 0;
    }
    const Value *vx = &g->value.at[x], *vy = &g->value.at[out];
    bool same = vx->off == vy->off && vx->type.rank == vy->type.rank &&
                vx->type.dtype == vy->type.dtype &&
                memcmp(vx->stride, vy->stride, vx->type.rank * sizeof *vx->stride) == 0 &&
                type_bytes(g, &vx->type) == type_bytes(g, &g->value.at[b].type);
    for (u32 i = 0; i < node->nin && same; i++) { /* nobody else reads it at this node */
        u32 v = g->arg.at[node->in + i];
        same = i == in - 1 || !v || base_of(g, v) != b;
    }
    return same ? buf : 0;
}

static u32 buf_add(Graph *g, u8 region, u32 func, u64 off, u64 bytes, u32 first, u32 last)
{
    vec_push(g->arena, &g->buf, (Buf){region, func, off, bytes, first, last});
    return g->buf.n - 1;
}

static void give_buf(Local *l, u32 v, u32 shared)
{
    Graph *g = l->g;
    u64 bytes = type_bytes(g, &g->value.at[v].type);
    u32 save = save_of(g, l->func, v);
    if (save) {
        g->value.at[v].buf = buf_add(g, REGION_SAVED, l->func, g->save.at[save].off, bytes,
                                     l->first[v] - 1, l->last[v] - 1);
        return;
    }
    if (shared) {
        g->value.at[v].buf = shared;
        g->buf.at[shared].last = l->last[v] - 1;
        for (u32 i = 0; i < l->span.n; i++) {
            if (l->span.at[i].id == shared) {
                l->span.at[i].last = l->last[v];
            }
        }
        return;
    }
    u32 buf = buf_add(g, REGION_SCRATCH, l->func, 0, bytes, l->first[v] - 1, l->last[v] - 1);
    g->value.at[v].buf = buf;
    vec_push(g->arena, &l->span, (Span){bytes, 0, l->first[v], l->last[v], buf, 0});
}

static u64 func_place(Plan *p, u32 func);

/* The body's scratch as one span at the loop's position: offsets of its Bufs count from there. */
static void loop_span(Plan *p, Local *l, u32 n, u32 pos)
{
    Graph *g = l->g;
    u32 body = g->node.at[n].body;
    u64 bytes = func_place(p, body);
    if (bytes) {
        vec_push(g->arena, &l->span, (Span){bytes, 0, pos, pos, 0, body});
    }
}

static void shift_bufs(Graph *g, u32 func, u64 by)
{
    for (u32 i = 1; i < g->buf.n; i++) {
        if (g->buf.at[i].func == func && g->buf.at[i].region == REGION_SCRATCH) {
            g->buf.at[i].off += by;
        }
    }
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 n = g->func.at[func].node.at[i];
        if (node_is(g, n, "loop")) {
            shift_bufs(g, g->node.at[n].body, by);
        }
    }
}

/* Give every base of func a buffer; returns the bytes of scratch, offsets from its start. */
static u64 func_place(Plan *p, u32 func)
{
    Graph *g = p->g;
    assert(!p->planned[func] && "the body of one loop only");
    p->planned[func] = true;
    Local l = {.g = g, .func = func};
    l.first = arena_alloc(g->arena, g->value.n * sizeof *l.first);
    l.last = arena_alloc(g->arena, g->value.n * sizeof *l.last);
    lives(&l);
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 n = g->func.at[func].node.at[i];
        for (u32 k = 0; k < g->node.at[n].nout; k++) {
            u32 v = g->node.at[n].out + k;
            if (wants_scratch(&l, v)) {
                give_buf(&l, v, is_view(g, n) ? 0 : shared_buf(&l, n, k, i + 1));
            }
        }
        if (node_is(g, n, "loop")) {
            loop_span(p, &l, n, i + 1);
        }
    }
    u64 bytes = first_fit(g, &l.span);
    for (u32 i = 0; i < l.span.n; i++) {
        const Span *s = &l.span.at[i];
        if (s->body) {
            shift_bufs(g, s->body, s->off);
        } else {
            g->buf.at[s->id].off = s->off;
        }
    }
    return bytes;
}

/* ---- regions --------------------------------------------------------------------------------- */

static void scratch_place(Plan *p)
{
    Graph *g = p->g;
    u64 most = 0;
    for (u32 c = 1; c < g->chain.n; c++) {
        for (u32 k = 0; k < g->chain.at[c].call.n; k++) {
            u32 func = g->chain.at[c].call.at[k].func;
            if (p->planned[func]) {
                continue;
            }
            u64 bytes = func_place(p, func);
            shift_bufs(g, func, p->cross);
            most = bytes > most ? bytes : most;
        }
    }
    p->used[REGION_SCRATCH] = p->cross + most;
}

static void regions_place(Plan *p)
{
    Graph *g = p->g;
    u64 off = 0;
    for (u32 i = 0; i < REGION_COUNT; i++) {
        g->region[i] = (Region){off, round_up(p->used[i], REGION_ALIGN)};
        off += g->region[i].bytes;
    }
    g->arena_bytes = off;
    for (u32 i = 1; i < g->flat.n; i++) {
        g->flat.at[i].off += g->region[var_region(g->flat.at[i].kind)].off;
    }
    for (u32 i = 1; i < g->var.n; i++) {
        g->var.at[i].off += g->region[var_region(g->var.at[i].kind)].off;
    }
    for (u32 i = 1; i < g->reg.n; i++) {
        Reg *r = &g->reg.at[i];
        u32 region = r->io ? REGION_IO : r->saved ? REGION_SAVED : REGION_SCRATCH;
        r->off += g->region[region].off;
    }
    for (u32 c = 1; c < g->chain.n; c++) {
        for (u32 k = 0; k < g->chain.at[c].call.n; k++) {
            g->chain.at[c].call.at[k].saved_off += g->region[REGION_SAVED].off;
        }
    }
}

void pass_plan(Graph *g)
{
    Plan p = {.g = g, .planned = arena_alloc(g->arena, g->func.n)};
    u32 fwd = chain_find(g, "fwd"), bwd = chain_find(g, "bwd");
    for (u32 c = 1; c < g->chain.n; c++) {
        for (u32 k = 0; k < g->chain.at[c].call.n; k++) {
            u32 func = g->chain.at[c].call.at[k].func;
            if (!p.planned[func]) {
                view_resolve(g, func);
                p.planned[func] = true;
            }
        }
    }
    memset(p.planned, 0, g->func.n);
    vars_place(&p);
    bool *placed = arena_alloc(g->arena, g->reg.n);
    regs_io(&p, placed);
    if (bwd) {
        regs_saved(g, bwd);
    }
    if (fwd) {
        blocks_place(&p, fwd, bwd, placed);
    }
    regs_cross(&p, placed);
    scratch_place(&p);
    regions_place(&p);
}
