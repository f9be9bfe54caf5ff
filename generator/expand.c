/* expand.c: from a spec's layers to forward Funcs and the chain that calls them.
 *
 * The trace (generator/lib/module.lua) runs each layer once and leaves a Func of its own for every
 * call. Layers with equal bodies are one function in the output: here the calls come to share
 * Funcs, the copies die, names become unique and formals are bound to Vars.
 *
 * needs: a loaded spec
 * gives: forward Funcs (dtype f), Vars of kind weight and table, chain "fwd"
 */
#include "megagen.h"

#include <assert.h>
#include <string.h>

/* Bodies with one hash may differ in what the hash leaves out and the calls depend on: the names of
 * their variables. */
static bool formals_equal(const Graph *g, u32 a, u32 b)
{
    const Func *x = &g->func.at[a], *y = &g->func.at[b];
    if (x->formal.n != y->formal.n || x->in.n != y->in.n || x->out.n != y->out.n) {
        return false;
    }
    for (u32 i = 0; i < x->formal.n; i++) {
        const Formal *p = &x->formal.at[i], *q = &y->formal.at[i];
        if (p->name != q->name || p->kind != q->kind || !type_equal(&p->type, &q->type)) {
            return false;
        }
    }
    return true;
}

/* A frozen weight has no accumulator, so its backward is another one. */
static bool frozen_alike(Graph *g, const Call *a, const Call *b)
{
    const Func *f = &g->func.at[a->func];
    for (u32 i = 0; i < f->formal.n; i++) {
        u32 x = var_resolve(g, a->prefix, f->formal.at[i].name);
        u32 y = var_resolve(g, b->prefix, f->formal.at[i].name);
        if (g->var.at[x].frozen != g->var.at[y].frozen) {
            return false;
        }
    }
    return true;
}

/* Bodies of loops die with the Func that ran them. */
static void func_kill(Graph *g, u32 func)
{
    Func *f = &g->func.at[func];
    f->dead = true;
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        if (n->body && (g->op.at[n->op].flags & OF_STRUCT) && n->trips) {
            func_kill(g, n->body);
        }
    }
}

/* Each call whose Func equals an earlier call's takes that one. */
static void share(Graph *g, Chain *c)
{
    u64 *hash = arena_alloc(g->arena, (c->call.n + 1) * sizeof *hash);
    for (u32 i = 0; i < c->call.n; i++) {
        Call *call = &c->call.at[i];
        hash[i] = func_hash(g, call->func);
        for (u32 k = 0; k < i; k++) {
            u32 first = c->call.at[k].func;
            if (hash[k] == hash[i] && call->layer >= 0 && c->call.at[k].layer >= 0 &&
                formals_equal(g, first, call->func) && frozen_alike(g, &c->call.at[k], call)) {
                func_kill(g, call->func);
                call->func = first;
                break;
            }
        }
    }
}

static bool name_taken(const Graph *g, Sym name, u32 except)
{
    for (u32 i = 1; i < g->func.n; i++) {
        if (i != except && !g->func.at[i].dead && g->func.at[i].name == name) {
            return true;
        }
    }
    return false;
}

/* "block", "block_2", ...; a loop's body is named after its Func. */
static void name_funcs(Graph *g)
{
    for (u32 i = 1; i < g->func.n; i++) {
        if (g->func.at[i].dead) {
            continue;
        }
        Sym base = g->func.at[i].name, name = base;
        for (u32 k = 2; name_taken(g, name, i) && k < 100000; k++) {
            bool earlier = false; /* the first one keeps the plain name */
            for (u32 j = 1; j < i; j++) {
                earlier |= !g->func.at[j].dead && g->func.at[j].name == name;
            }
            if (!earlier) {
                break;
            }
            name = sym_fmt(g, "%s_%u", sym_str(g, base), k);
        }
        g->func.at[i].name = name;
    }
}

static void name_loops(Graph *g)
{
    for (u32 i = 1; i < g->func.n; i++) {
        Func *f = &g->func.at[i];
        for (u32 k = 0; !f->dead && k < f->node.n; k++) {
            const Node *n = &g->node.at[f->node.at[k]];
            if (n->body && n->trips) {
                Func *b = &g->func.at[n->body];
                b->name = sym_fmt(g, "%s.%s", sym_str(g, f->name), sym_str(g, b->name));
                b->path = f->path;
                b->loc = n->loc;
            }
        }
    }
}

/* "layers.*" for a Func of several calls, the prefix itself for one. */
static void name_paths(Graph *g, const Chain *c)
{
    for (u32 i = 0; i < c->call.n; i++) {
        const Call *call = &c->call.at[i];
        Func *f = &g->func.at[call->func];
        const char *prefix = sym_str(g, call->prefix);
        const char *dot = strrchr(prefix, '.');
        bool many = false;
        for (u32 k = 0; k < c->call.n; k++) {
            many |= k != i && c->call.at[k].func == call->func;
        }
        f->path = many && dot ? sym_fmt(g, "%.*s.*", (int)(dot - prefix), prefix) : call->prefix;
    }
}

void pass_expand(Graph *g)
{
    lua_trace(g);
    assert(g->chain.n > 1 && "the trace makes chain fwd");
    u32 chain = g->chain.n - 1;
    share(g, &g->chain.at[chain]);
    name_funcs(g);
    name_loops(g);
    name_paths(g, &g->chain.at[chain]);
    calls_bind(g, chain);
}
