/* tune.c: bind every node that does work to a kernel instance.
 *
 * A kernel file's block says which op it serves, under which condition, and which constants an
 * instance needs; both are Lua expressions over the node's operands and attributes. Blocks are
 * tried in the order of their file names, the first that takes the node serves it. Equal constants
 * give one instance. A fused node has its text printed by loopgen; equal texts give one instance,
 * too.
 *
 * An instance is named after its first user: module path, then what it computes there (_fwd, _bwd;
 * for the matmuls _mm, _dx, _dw); one that several modules use, after its work alone.
 * Names are C identifiers and differ from each other.
 *
 * needs: fused nodes, resolved views.
 * gives: node.kern, g->kern, g->inst. No node changes.
 */
#include <assert.h>
#include <string.h>

#include "megagen.h"

/* ==== who writes where ======================================================================== */

static bool op_is(const Graph *g, u32 node, const char *name)
{
    return !strcmp(sym_str(g, g->op.at[g->node.at[node].op].name), name);
}

/* Does the producer of `value` print code of its own, so that its result pointer can be chosen? */
static bool printed(const Graph *g, u32 value)
{
    u32 n = g->value.at[value].node;
    if (!n || (g->op.at[g->node.at[n].op].flags & (OF_VIEW | OF_EFFECT)))
        return false;
    return g->value.at[value].base == value || !g->value.at[value].base;
}

static bool is_out(const Func *f, u32 value)
{
    for (u32 i = 0; i < f->out.n; i++) {
        if (f->out.at[i] == value)
            return true;
    }
    return false;
}

/* Does any value that is used behind position `from` of f lie in the variable `formal`, by a read?
 */
static bool read_later(const Graph *g, const Func *f, u32 formal, u32 from)
{
    for (u32 i = from; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        if (n->dead || (g->op.at[n->op].flags & OF_VIEW))
            continue;
        for (u32 k = 0; k < n->nin; k++) {
            u32 base = g->value.at[g->arg.at[n->in + k]].base;
            u32 node = base ? g->value.at[base].node : 0;
            if (node && op_is(g, node, "read") && g->node.at[node].formal == formal)
                return true;
        }
    }
    return false;
}

static u32 node_pos(const Func *f, u32 node)
{
    u32 i = 0;
    while (i < f->node.n && f->node.at[i] != node)
        i++;
    return i;
}

u32 value_sink(const Graph *g, u32 value)
{
    if (!printed(g, value))
        return 0;
    const Func *f = &g->func.at[g->value.at[value].func];
    if (is_out(f, value))
        return 0;
    u32 sink = 0;
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        for (u32 k = 0; k < n->nin && !n->dead; k++) {
            u32 v = g->arg.at[n->in + k];
            if (v != value && g->value.at[v].base != value)
                continue;
            if (v != value || sink || !n->formal)
                return 0;
            sink = f->node.at[i];
        }
    }
    if (!sink)
        return 0;
    u32 from = node_pos(f, g->value.at[value].node) + 1;
    return read_later(g, f, g->node.at[sink].formal, from) ? 0 : sink;
}

bool value_adds(const Graph *g, u32 value)
{
    u32 sink = value_sink(g, value);
    if (sink)
        return op_is(g, sink, "accum");
    const Func *f = &g->func.at[g->value.at[value].func];
    for (u32 i = 0; f->role == ROLE_LOOP && i < f->out.n; i++) {
        if (f->out.at[i] == value && f->out_kind.at[i] == RESULT_SUM)
            return true;
    }
    return false;
}

bool node_adds(const Graph *g, u32 node)
{
    const Node *n = &g->node.at[node];
    for (u32 i = 0; i < n->nout; i++) {
        if (value_adds(g, n->out + i))
            return true;
    }
    return false;
}

/* ==== kernel files ============================================================================ */

static i32 line_of(const char *text, const char *at)
{
    i32 line = 1;
    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

static void scan_file(Graph *g, const char *path)
{
    static const char open[] = "/*@kernel", close[] = "@*/";
    u64 n = 0;
    const char *text = kernel_read(g, path, &n);
    for (const char *at = text; at && (at = strstr(at, open));) {
        const char *from = at + sizeof open - 1, *end = strstr(from, close);
        Loc loc = {.file = sym(g, path), .line = line_of(text, at)};
        if (!end)
            fail(g, loc, 792, "kernel block without its end, %s", close);
        lua_kern_add(g, loc, "cpu", from, (u64)(end - from));
        at = end;
    }
}

static void scan_kernels(Graph *g)
{
    const char **path = NULL;
    u32 n = asset_list(g->arena, "kernels/cpu", ".h", &path);
    if (!g->kern.n)
        vec_push(g->arena, &g->kern, (Kern){0});
    for (u32 i = 0; i < n; i++)
        scan_file(g, path[i]);
    for (u32 i = 0; i < g->kernel_file.n; i++)
        scan_file(g, g->kernel_file.at[i].path);
}

/* ==== names =================================================================================== */

static bool name_taken(Graph *g, Sym name)
{
    for (u32 i = 1; i < g->func.n; i++) {
        if (!g->func.at[i].dead && func_c_name(g, i) == name)
            return true;
    }
    for (u32 i = 1; i < g->inst.n; i++) {
        if (g->inst.at[i].name == name)
            return true;
    }
    return false;
}

static Sym unique_name(Graph *g, u32 node, const char *want)
{
    const char *func = sym_str(g, g->func.at[g->node.at[node].func].name);
    Sym name = c_name(g, want);
    if (name_taken(g, name))
        name = c_name(g, arena_fmt(g->arena, "%s_%s", func, want));
    for (u32 i = 2; name_taken(g, name); i++)
        name = c_name(g, arena_fmt(g->arena, "%s_%u", want, i));
    return name;
}

/* Do nodes with other names use the instance, too? */
static bool shared(Graph *g, u32 inst)
{
    const char *name = node_name(g, g->inst.at[inst].node);
    for (u32 i = 1; i < g->node.n; i++) {
        const Node *n = &g->node.at[i];
        if (n->kern == inst && !n->dead && strcmp(node_name(g, i), name) != 0)
            return true;
    }
    return false;
}

static const char *constant(Graph *g, const Inst *inst, const char *key)
{
    for (u32 i = 0; i < inst->key.n; i++) {
        if (!strcmp(sym_str(g, inst->key.at[i]), key))
            return sym_str(g, inst->value.at[i]);
    }
    return "n";
}

/* A shared instance is called after its work alone: rmsnorm, matmul_1024x384x128 (M N K). */
static const char *work_name(Graph *g, u32 inst)
{
    const Inst *p = &g->inst.at[inst];
    if (!op_is(g, p->node, "matmul"))
        return node_ops(g, p->node);
    return arena_fmt(g->arena, "matmul_%sx%sx%s", constant(g, p, "M"), constant(g, p, "N"),
                     constant(g, p, "K"));
}

static void name_instances(Graph *g)
{
    for (u32 i = 1; i < g->inst.n; i++) {
        u32 node = g->inst.at[i].node;
        Sym name = unique_name(g, node, shared(g, i) ? work_name(g, i) : node_name(g, node));
        g->inst.at[i].name = name;
    }
}

/* ==== binding ================================================================================= */

/* The probe is finished: take an instance that equals it, or keep it. Returns its id. */
static u32 inst_intern(Graph *g, u32 probe)
{
    for (u32 i = 1; i < probe; i++) {
        const Inst *a = &g->inst.at[i], *b = &g->inst.at[probe];
        if (a->hash == b->hash && a->kern == b->kern) {
            g->inst.n--;
            return i;
        }
    }
    return probe;
}

static u32 inst_probe(Graph *g, u32 kern, u32 node)
{
    if (!g->inst.n)
        vec_push(g->arena, &g->inst, (Inst){0});
    vec_push(g->arena, &g->inst, (Inst){.kern = kern, .node = node});
    return g->inst.n - 1;
}

static u64 hash_sym(const Graph *g, Sym s, u64 seed)
{
    const char *p = sym_str(g, s);
    return hash_bytes(p, strlen(p) + 1, seed);
}

static u32 bind_kernel(Graph *g, u32 node)
{
    for (u32 k = 1; k < g->kern.n; k++) {
        if (g->kern.at[k].op != g->op.at[g->node.at[node].op].name)
            continue;
        u32 probe = inst_probe(g, k, node);
        if (!lua_kern_match(g, k, node, probe)) {
            g->inst.n--;
            continue;
        }
        Inst *p = &g->inst.at[probe];
        p->hash = k;
        for (u32 i = 0; i < p->key.n; i++)
            p->hash = hash_sym(g, p->value.at[i], hash_sym(g, p->key.at[i], p->hash));
        return inst_intern(g, probe);
    }
    return 0;
}

/* Comments name the node's place in the spec; without them equal work has equal text. */
static u64 hash_code(const Text *t)
{
    u64 hash = 0;
    const char *p = t->at, *end = t->at + t->n;
    while (p < end) {
        const char *open = strstr(p, "/*");
        const char *stop = open && open < end ? open : end;
        hash = hash_bytes(p, (u64)(stop - p), hash);
        const char *close = stop < end ? strstr(stop, "*/") : NULL;
        p = close ? close + 2 : end;
    }
    return hash;
}

static u32 bind_generated(Graph *g, u32 node)
{
    Text t = {0};
    loopgen_node(g, node, "fused_text_of", &t);
    text_str(g->arena, &t);
    u32 probe = inst_probe(g, 0, node);
    g->inst.at[probe].hash = hash_code(&t);
    return inst_intern(g, probe);
}

static void operand_types(Graph *g, u32 node, Text *t)
{
    const Node *n = &g->node.at[node];
    for (u32 i = 0; i < n->nin; i++) {
        const Type *y = &g->value.at[g->arg.at[n->in + i]].type;
        text_fmt(g->arena, t, "%s%s[", i ? ", " : "", dtype_name(y->dtype));
        for (u32 d = 0; d < y->rank; d++)
            text_fmt(g->arena, t, "%s%s=%lld", d ? " " : "", sym_str(g, g->dim.at[y->dim[d]].name),
                     (long long)g->dim.at[y->dim[d]].size);
        text_put(g->arena, t, "]");
    }
}

static void tune_node(Graph *g, u32 node)
{
    const Node *n = &g->node.at[node];
    u32 flags = g->op.at[n->op].flags;
    if (n->dead || (flags & OF_VIEW) || op_is(g, node, "read") || op_is(g, node, "loop"))
        return;
    if (op_is(g, node, "accum") || op_is(g, node, "write")) {
        u32 value = g->arg.at[n->in];
        if (value_sink(g, value) == node)
            return; /* its producer writes the variable itself */
    }
    bool generated = op_is(g, node, "fused") || (flags & OF_BODY);
    u32 inst = generated ? bind_generated(g, node) : bind_kernel(g, node);
    if (!inst) {
        Text t = {0};
        operand_types(g, node, &t);
        fail(g, g->node.at[node].loc, 501, "%s: no kernel of target cpu takes (%s)",
             sym_str(g, g->op.at[g->node.at[node].op].name), text_str(g->arena, &t));
    }
    assert(inst <= UINT16_MAX && "more kernel instances than node.kern can name");
    g->node.at[node].kern = (u16)inst;
}

void pass_tune(Graph *g)
{
    scan_kernels(g);
    for (u32 f = 1; f < g->func.n; f++) {
        for (u32 i = 0; i < g->func.at[f].node.n && !g->func.at[f].dead; i++)
            tune_node(g, g->func.at[f].node.at[i]);
    }
    name_instances(g);
}
