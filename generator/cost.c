/* cost.c: what `plan` and the first lines of a compile say: parameters, FLOPs, memory, time.
 *
 * The memory table is the allocation itself: regions as pass plan laid them out. FLOPs are those of
 * the forward and backward chains without what remat computes again; matmuls and attention count as
 * their op blocks say, other nodes by their statements. The time is an estimate from one figure a
 * CPU level, good to a factor of two; the trainer measures.
 */
#include "megagen.h"

#include <string.h>

u64 cost_params(const Graph *g)
{
    u64 n = 0;
    for (u32 i = 1; i < g->var.n; i++) {
        const Var *v = &g->var.at[i];
        if (v->kind != VAR_WEIGHT || v->frozen) {
            continue;
        }
        u64 elems = 1;
        for (u32 k = 0; k < v->type.rank; k++) {
            elems *= (u64)g->dim.at[v->type.dim[k]].size;
        }
        n += elems;
    }
    return n;
}

static bool again(const Graph *g, u32 node)
{
    return strcmp(sym_str(g, g->node.at[node].pass), "remat") == 0;
}

typedef struct {
    f64 flops, again, bytes; /* model FLOPs, FLOPs of remat, memory traffic */
} Cost;

static void func_cost(Graph *g, u32 func, f64 times, Cost *c)
{
    for (u32 i = 0; i < g->func.at[func].node.n; i++) {
        u32 n = g->func.at[func].node.at[i];
        if (node_is(g, n, "loop")) {
            func_cost(g, g->node.at[n].body, times * g->node.at[n].trips, c);
            continue;
        }
        u32 flags = g->op.at[g->node.at[n].op].flags;
        if (flags & (OF_VIEW | OF_EFFECT)) {
            continue;
        }
        *(again(g, n) ? &c->again : &c->flops) += times * node_flops(g, n);
        c->bytes += times * (f64)node_traffic(g, n);
    }
}

static void chain_cost(Graph *g, const char *name, Cost *c)
{
    u32 chain = chain_find(g, name);
    for (u32 k = 0; chain && k < g->chain.at[chain].call.n; k++) {
        func_cost(g, g->chain.at[chain].call.at[k].func, 1, c);
    }
}

/* Tokens of a micro batch: elements of the first i32 input. */
static f64 tokens(Graph *g)
{
    if (g->cfg.micro && g->cfg.seq) {
        return (f64)(g->cfg.micro * g->cfg.seq);
    }
    for (u32 i = 1; i < g->reg.n; i++) {
        if (g->reg.at[i].io && g->reg.at[i].type.dtype == DT_I32) {
            return (f64)type_elems(g, &g->reg.at[i].type);
        }
    }
    return 1;
}

f64 cost_flops_token(Graph *g)
{
    Cost c = {0};
    chain_cost(g, "fwd", &c);
    chain_cost(g, "bwd", &c);
    return c.flops / tokens(g);
}

/* ---- the report ------------------------------------------------------------------------------ */

static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};

static const char *scaled(Graph *g, f64 v, f64 step, const char *unit)
{
    u32 p = 0;
    while (v >= step && p + 1 < sizeof prefixes / sizeof *prefixes) {
        v /= step;
        p++;
    }
    const char *i = p && step == 1024 ? "i" : "";
    return arena_fmt(g->arena, p ? "%.2f %s%s%s" : "%.0f %s%s%s", v, prefixes[p], i, unit);
}

const char *bytes_str(Graph *g, u64 bytes)
{
    return scaled(g, (f64)bytes, 1024, "B");
}

/* FLOPs and bytes a second of two threads at each level: figures of ordinary machines. */
static const struct {
    const char *cpu;
    f64 flops, bytes;
} speeds[] = {
    {"avx512", 250e9, 30e9},
    {"avx2", 120e9, 25e9},
    {"generic", 15e9, 15e9},
};

static f64 seconds(Graph *g, const Cost *c)
{
    enum { N = sizeof speeds / sizeof speeds[0] };
    u32 i = 0;
    while (i + 1 < N && strcmp(speeds[i].cpu, sym_str(g, g->cfg.cpu)) != 0) {
        i++;
    }
    f64 compute = (c->flops + c->again) / speeds[i].flops, memory = c->bytes / speeds[i].bytes;
    return compute > memory ? compute : memory;
}

static void memory_table(Graph *g, Text *t)
{
    static const struct {
        const char *name, *what;
    } row[REGION_COUNT] = {
        {"params", "weights"},
        {"grads", "accumulators"},
        {"state", "moments, masters, tables, metrics"},
        {"saved", "of the forward, for the backward"},
        {"scratch", "values while a step runs"},
        {"io", "batch, logits"},
    };
    text_fmt(g->arena, t, "memory    %s\n", bytes_str(g, g->arena_bytes));
    for (u32 i = 0; i < REGION_COUNT; i++) {
        text_fmt(g->arena, t, "  %-8s%12s  %s\n", row[i].name, bytes_str(g, g->region[i].bytes),
                 row[i].what);
    }
}

static void changes_table(Graph *g, Text *t)
{
    for (u32 i = 0; i < g->fit.n; i++) {
        text_fmt(g->arena, t, "%s%12s  with %s\n", i ? "          " : "less      ",
                 bytes_str(g, g->fit.at[i].bytes), sym_str(g, g->fit.at[i].change));
    }
}

static u32 copies(const Graph *g)
{
    u32 n = 0;
    for (u32 f = 1; f < g->func.n; f++) {
        for (u32 i = 0; i < g->func.at[f].node.n && !g->func.at[f].dead; i++) {
            n += node_is(g, g->func.at[f].node.at[i], "copy");
        }
    }
    return n;
}

void cost_report(Graph *g, Text *t)
{
    Cost micro = {0}, upd = {0};
    chain_cost(g, "fwd", &micro);
    chain_cost(g, "bwd", &micro);
    chain_cost(g, "upd", &upd);
    f64 count = tokens(g);
    i64 rows = g->cfg.micro ? g->cfg.micro : 1;
    i64 micros = g->cfg.global > rows ? (g->cfg.global + rows - 1) / rows : 1;
    f64 step = seconds(g, &micro) * (f64)micros + seconds(g, &upd);
    text_fmt(g->arena, t, "params    %s\n", scaled(g, (f64)cost_params(g), 1000, ""));
    text_fmt(g->arena, t, "compute   %s a token", scaled(g, micro.flops / count, 1000, "FLOP"));
    if (micro.again > 0) {
        text_fmt(g->arena, t, " + %s computed again", scaled(g, micro.again / count, 1000, "FLOP"));
    }
    text_put(g->arena, t, "\n");
    memory_table(g, t);
    changes_table(g, t);
    if (copies(g)) {
        text_fmt(g->arena, t, "copies    %u nodes\n", copies(g));
    }
    text_fmt(g->arena, t, "step      about %.3g s for %.0f tokens (%lld micro batches)\n", step,
             count * (f64)micros, (long long)micros);
}
