/* remat.c: what is saved and what is computed again.
 *
 * autodiff saves every forward value that the backward uses. Here each of them is kept or computed
 * again inside the backward Func, by a clone of the forward node: same op, same attributes, same
 * random site, so the same bits.
 *
 *   none       results of kernels (matmul, attention), the residual stream and row statistics are
 *              kept; what body ops make of kept values is computed again where it is used, and
 * fused there. If that would need more bytes of kernel results than the value has, it is kept.
 *   selective  attention is computed again, too.
 *   full       only what enters the Func is kept.
 *
 * needs: saves; gives: the saves that remain, all of them kept; cloned nodes in BWD Funcs
 */
#include "megagen.h"

#include <assert.h>
#include <string.h>

typedef enum { REMAT_NONE, REMAT_SELECTIVE, REMAT_FULL } Mode;
static const char *const mode_names[] = {"none", "selective", "full"};

typedef struct {
    Graph *g;
    Mode mode;
    u32 fwd, bwd;
    u32 *map;   /* forward value -> value of bwd */
    bool *keep; /* forward value -> decided: it is saved, or comes by a reg */
} Remat;

/* ---- what comes by a reg --------------------------------------------------------------------- */

static i32 index_of(const u32 *at, u32 n, u32 v)
{
    for (u32 i = 0; i < n; i++) {
        if (at[i] == v) {
            return (i32)i;
        }
    }
    return -1;
}

static const Call *twin_of(const Graph *g, const Call *bwd)
{
    const Chain *fwd = &g->chain.at[chain_find(g, "fwd")];
    assert(bwd->twin && bwd->twin <= fwd->call.n);
    return &fwd->call.at[bwd->twin - 1];
}

/* The reg that brings forward value v to a backward call; 0 = none. */
static u32 reg_of(const Graph *g, const Call *bwd, u32 fwd, u32 v)
{
    const Call *twin = twin_of(g, bwd);
    i32 in = index_of(g->func.at[fwd].in.at, g->func.at[fwd].in.n, v);
    i32 out = index_of(g->func.at[fwd].out.at, g->func.at[fwd].out.n, v);
    return in >= 0 ? twin->in.at[in] : out >= 0 ? twin->out.at[out] : 0;
}

static void map_inputs(Remat *r)
{
    Graph *g = r->g;
    const Func *b = &g->func.at[r->bwd], *f = &g->func.at[r->fwd];
    for (u32 i = 1; i < g->save.n; i++) {
        if (g->save.at[i].to == r->bwd) {
            r->map[g->save.at[i].from_value] = g->save.at[i].to_value;
        }
    }
    const Chain *chain = &g->chain.at[chain_find(g, "bwd")];
    for (u32 k = 0; k < chain->call.n; k++) {
        const Call *call = &chain->call.at[k];
        if (call->func != r->bwd) {
            continue;
        }
        for (u32 i = 0; i < f->in.n + f->out.n; i++) {
            u32 v = i < f->in.n ? f->in.at[i] : f->out.at[i - f->in.n];
            i32 at = index_of(call->in.at, call->in.n, reg_of(g, call, r->fwd, v));
            if (at >= 0) {
                r->map[v] = b->in.at[at];
                r->keep[v] = true;
            }
        }
        return;
    }
}

/* A new input of the backward Func: by a reg where v crosses calls, else by a Save row. */
static u32 import(Remat *r, u32 v)
{
    Graph *g = r->g;
    Value from = g->value.at[v];
    u32 in = func_input(g, r->bwd, from.type, from.path);
    g->value.at[in].flags = from.flags;
    Chain *chain = &g->chain.at[chain_find(g, "bwd")];
    bool by_reg = false;
    for (u32 k = 0; k < chain->call.n; k++) {
        if (chain->call.at[k].func == r->bwd) {
            u32 reg = reg_of(g, &chain->call.at[k], r->fwd, v);
            vec_push(g->arena, &chain->call.at[k].in, reg);
            by_reg = reg != 0;
        }
    }
    if (!by_reg) {
        vec_push(g->arena, &g->save, (Save){r->fwd, v, r->bwd, in, SAVE_KEEP, 0});
    }
    r->map[v] = in;
    return in;
}

/* ---- keep or recompute ----------------------------------------------------------------------- */

/* May the node that makes v be cloned? Else v is a root: kept. */
static bool cloneable(const Remat *r, u32 v)
{
    const Graph *g = r->g;
    const Value *x = &g->value.at[v];
    u32 n = x->node;
    if (!n || node_is(g, n, "loop")) {
        return false;
    }
    u32 flags = g->op.at[g->node.at[n].op].flags;
    if ((flags & OF_VIEW) || node_is(g, n, "read") || r->mode == REMAT_FULL) {
        return true;
    }
    if (r->mode == REMAT_SELECTIVE && node_is(g, n, "attention")) {
        return true;
    }
    bool body = (flags & OF_BODY) || node_is(g, n, "cast") || node_is(g, n, "copy");
    return body && !(x->flags & VF_RESID);
}

static bool worth_keeping(const Remat *r, u32 v)
{
    return !cloneable(r, v) || (r->mode == REMAT_NONE && (r->g->value.at[v].flags & VF_ROWSTAT));
}

typedef VEC(u32) Roots;

/* Values that must be kept so that v can be computed again, apart from those kept already. */
static void roots(const Remat *r, u32 v, Roots *out, bool *seen)
{
    const Graph *g = r->g;
    if (!v || seen[v] || r->keep[v]) {
        return;
    }
    seen[v] = true;
    if (!cloneable(r, v)) {
        vec_push(g->arena, out, v);
        return;
    }
    const Node *n = &g->node.at[g->value.at[v].node];
    for (u32 k = 0; k < n->nin; k++) {
        roots(r, g->arg.at[n->in + k], out, seen);
    }
}

static void decide(Remat *r, u32 v)
{
    Graph *g = r->g;
    Roots need = {0};
    bool *seen = arena_alloc(g->arena, g->value.n);
    roots(r, v, &need, seen);
    u64 bytes = 0;
    for (u32 i = 0; i < need.n; i++) {
        bytes += type_bytes(g, &g->value.at[need.at[i]].type);
    }
    if (r->mode != REMAT_FULL && bytes > type_bytes(g, &g->value.at[v].type)) {
        r->keep[v] = true;
        return;
    }
    for (u32 i = 0; i < need.n; i++) {
        r->keep[need.at[i]] = true;
    }
}

/* ---- cloning --------------------------------------------------------------------------------- */

/* v in bwd, computed in front of node `before` if it is not there yet. */
static u32 recompute(Remat *r, u32 v, u32 before)
{
    Graph *g = r->g;
    if (r->map[v]) {
        return r->map[v];
    }
    if (r->keep[v] || !g->value.at[v].node) {
        return import(r, v);
    }
    u32 n = g->value.at[v].node;
    for (u32 k = 0; k < g->node.at[n].nin; k++) {
        if (g->arg.at[g->node.at[n].in + k]) {
            recompute(r, g->arg.at[g->node.at[n].in + k], before);
        }
    }
    u32 c = node_clone(g, n, r->bwd, r->map);
    node_move(g, c, before);
    for (u32 k = 0; k < g->node.at[n].nout; k++) {
        u32 old = g->node.at[n].out + k;
        if (!r->keep[old] || !r->map[old]) {
            r->map[old] = g->node.at[c].out + k;
        }
    }
    return r->map[v];
}

static u32 first_use(const Graph *g, u32 func, u32 v)
{
    const Func *f = &g->func.at[func];
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        if (index_of(&g->arg.at[n->in], n->nin, v) >= 0) {
            return i;
        }
    }
    return f->node.n;
}

static void drop_input(Graph *g, u32 func, u32 v)
{
    Func *f = &g->func.at[func];
    u32 at = (u32)index_of(f->in.at, f->in.n, v);
    for (u32 i = at; i + 1 < f->in.n; i++) {
        f->in.at[i] = f->in.at[i + 1];
        g->value.at[f->in.at[i]].out = (u16)i;
    }
    f->in.n--;
    for (u32 c = 1; c < g->chain.n; c++) {
        for (u32 k = 0; k < g->chain.at[c].call.n; k++) {
            Call *call = &g->chain.at[c].call.at[k];
            if (call->func == func) {
                memmove(call->in.at + at, call->in.at + at + 1,
                        (call->in.n - at - 1) * sizeof(u32));
                call->in.n--;
            }
        }
    }
}

/* The saves of bwd in the order in which it uses them first: a clone made for one use then stands
 * in front of all later uses. */
static u32 saves_in_order(const Graph *g, u32 bwd, u32 *save)
{
    u32 n = 0;
    for (u32 i = 1; i < g->save.n; i++) {
        if (g->save.at[i].to == bwd) {
            u32 at = n++;
            u32 use = first_use(g, bwd, g->save.at[i].to_value);
            for (; at > 0 && first_use(g, bwd, g->save.at[save[at - 1]].to_value) > use; at--) {
                save[at] = save[at - 1];
            }
            save[at] = i;
        }
    }
    return n;
}

/* A row statistic that a clone makes anyway need not be kept. */
static bool cloned_anyway(const Remat *r, const u32 *save, u32 n, u32 v)
{
    const Graph *g = r->g;
    const Node *node = &g->node.at[g->value.at[v].node];
    for (u32 i = 0; i < n; i++) {
        u32 w = g->save.at[save[i]].from_value;
        if (w != v && w >= node->out && w < node->out + node->nout && !r->keep[w] &&
            !(g->value.at[w].flags & VF_ROWSTAT)) {
            return true;
        }
    }
    return false;
}

static void remat_func(Remat *r)
{
    Graph *g = r->g;
    u32 *save = arena_alloc(g->arena, g->save.n * sizeof *save);
    u32 n = saves_in_order(g, r->bwd, save);
    map_inputs(r);
    for (u32 i = 0; i < n; i++) { /* kernels and the residual stream first: others build on them */
        u32 v = g->save.at[save[i]].from_value;
        r->keep[v] |= !cloneable(r, v);
    }
    for (u32 i = 0; i < n; i++) {
        u32 v = g->save.at[save[i]].from_value;
        if (!r->keep[v] && !worth_keeping(r, v)) {
            decide(r, v);
        }
    }
    for (u32 i = 0; i < n; i++) {
        u32 v = g->save.at[save[i]].from_value;
        r->keep[v] |= worth_keeping(r, v) && !cloned_anyway(r, save, n, v);
    }
    u32 *input = arena_alloc(g->arena, (n + 1) * sizeof *input);
    for (u32 i = 0; i < n; i++) {
        u32 v = g->save.at[save[i]].from_value;
        input[i] = r->keep[v] ? 0 : g->save.at[save[i]].to_value;
        r->map[v] = r->keep[v] ? r->map[v] : 0;
    }
    for (u32 i = 0; i < n; i++) {
        if (!input[i]) {
            continue;
        }
        u32 v = g->save.at[save[i]].from_value, use = first_use(g, r->bwd, input[i]);
        assert(use < g->func.at[r->bwd].node.n && "an input that is used");
        u32 now = recompute(r, v, g->func.at[r->bwd].node.at[use]);
        value_replace(g, r->bwd, input[i], now);
        drop_input(g, r->bwd, input[i]);
        g->save.at[save[i]].mode = SAVE_RECOMPUTE;
    }
}

static void drop_rows(Graph *g)
{
    u32 keep = 1;
    for (u32 i = 1; i < g->save.n; i++) {
        if (g->save.at[i].mode != SAVE_RECOMPUTE) {
            g->save.at[keep++] = g->save.at[i];
        }
    }
    g->save.n = keep;
}

void pass_remat(Graph *g)
{
    Remat r = {.g = g};
    const char *want = g->cfg.remat ? sym_str(g, g->cfg.remat) : mode_names[0];
    while (r.mode < REMAT_FULL && strcmp(mode_names[r.mode], want) != 0) {
        r.mode++;
    }
    if (strcmp(mode_names[r.mode], want) != 0) {
        fail(g, (Loc){0}, 333, "remat = \"%s\": there are none, selective and full", want);
    }
    u32 n = g->func.n;
    for (u32 f = 1; f < n; f++) {
        if (g->func.at[f].role != ROLE_BWD || g->func.at[f].dead || !g->func.at[f].twin) {
            continue;
        }
        r.bwd = f;
        r.fwd = g->func.at[f].twin;
        /* values of bwd grow, those of fwd do not */
        r.map = arena_alloc(g->arena, g->value.n * sizeof *r.map);
        r.keep = arena_alloc(g->arena, g->value.n);
        remat_func(&r);
        loops_sweep(g, f);
    }
    drop_rows(g);
    if (chain_find(g, "bwd")) {
        calls_bind(g, chain_find(g, "bwd"));
    }
    chains_ports(g);
}
