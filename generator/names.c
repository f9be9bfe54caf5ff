/* names.c: what generated things are called.
 *
 * A kernel instance is called after module and work (attn_qkv_mm, ln_1_rmsnorm), a value after what
 * makes it (qkv, lse, ln_2) or by the name that a pass gave it: the gradient of `qkv` is `dqkv`.
 * All names reach C through c_name.
 */
#include <string.h>

#include "megagen.h"

static bool op_is(const Graph *g, u32 node, const char *name)
{
    return !strcmp(sym_str(g, g->op.at[g->node.at[node].op].name), name);
}

/* C words that a module path could spell, and macros of compilers. */
static const char *const word[] = {
    "auto",   "break",    "case",   "char",     "const", "continue", "default", "do",     "double",
    "else",   "enum",     "extern", "float",    "for",   "goto",     "if",      "inline", "int",
    "long",   "register", "return", "restrict", "short", "signed",   "sizeof",  "static", "struct",
    "switch", "typedef",  "union",  "unsigned", "void",  "volatile", "while",   "main",   "asm",
    "typeof", "linux",    "unix",   "bf16",     "f16",   "e4m3",     "e5m2",    "errno",  "stdin",
    "stdout", "stderr",   "assert", "bool",     "true",  "false",
};

/* Taken at file scope only: functions of C, and what model.c calls its tables and chains. */
static const char *const global[] = {
    "c",     "k",      "i",    "j",     "fwd",    "bwd",   "upd",    "eval",  "logits",
    "var",   "io",     "key",  "model", "region", "l",     "abs",    "exp",   "log",
    "sqrt",  "sin",    "cos",  "tanh",  "erf",    "floor", "fma",    "index", "pow",
    "round", "signal", "read", "write", "time",   "free",  "malloc", "gamma", "y0",
    "y1",    "j0",     "j1",   "yn",    "jn",
};

static bool listed(const char *name, const char *const *list, u64 n)
{
    if (*name >= 'A' && *name <= 'Z')
        return true; /* capitals are for macros: NULL, AT, SCRATCH, ... */
    for (u64 i = 0; i < n; i++) {
        if (!strcmp(name, list[i]))
            return true;
    }
    return false;
}

Sym local_name(Graph *g, const char *s)
{
    Text t = {0};
    for (; *s; s++) {
        char c[2] = {*s, 0};
        bool fits =
            (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9');
        if (!fits)
            c[0] = '_';
        if (!t.n && *s >= '0' && *s <= '9')
            text_put(g->arena, &t, "n");
        if (c[0] != '_' || (t.n && t.at[t.n - 1] != '_')) /* no leading and no double _ */
            text_put(g->arena, &t, c);
    }
    while (t.n && t.at[t.n - 1] == '_')
        t.n--;
    const char *name = t.n ? text_str(g->arena, &t) : "v";
    if (!strncmp(name, "mg_", 3))
        name = arena_fmt(g->arena, "m%s", name);
    return listed(name, word, sizeof word / sizeof *word) ? sym_fmt(g, "%s_", name) : sym(g, name);
}

Sym c_name(Graph *g, const char *s)
{
    Sym name = local_name(g, s);
    bool taken = listed(sym_str(g, name), global, sizeof global / sizeof *global);
    return taken ? sym_fmt(g, "%s_", sym_str(g, name)) : name;
}

/* The last two parts of a path say enough: "layers.*.attn.qkv" -> attn_qkv. */
static const char *short_path(const char *path)
{
    const char *at = path + strlen(path);
    for (int dots = 0; at > path; at--) {
        if (at[-1] == '.' && ++dots == 2)
            break;
    }
    return at;
}

const char *node_ops(Graph *g, u32 node)
{
    const Attr *ops = node_attr(g, node, "ops");
    const char *name = sym_str(g, ops ? ops->sym : g->op.at[g->node.at[node].op].name);
    const char *back = strstr(name, ".bwd");
    return back ? arena_fmt(g->arena, "%.*s_bwd", (int)(back - name), name) : name;
}

const char *node_weight(Graph *g, u32 node)
{
    const Node *n = &g->node.at[node];
    u32 sink = op_is(g, node, "matmul") ? value_sink(g, n->out) : 0;
    for (u32 i = 0; i < n->nin && !sink && op_is(g, node, "matmul"); i++) {
        const Value *v = &g->value.at[g->arg.at[n->in + i]];
        u32 from = g->value.at[v->base ? v->base : g->arg.at[n->in + i]].node;
        sink = from && op_is(g, from, "read") ? from : 0;
    }
    if (!sink)
        return NULL;
    const char *name = sym_str(g, g->func.at[n->func].formal.at[g->node.at[sink].formal - 1].name);
    name += *name == '/';
    u64 len = strlen(name);
    bool grad = len > 5 && !strcmp(name + len - 5, ".grad");
    return arena_fmt(g->arena, "%.*s", (int)(len - (grad ? 5 : 0)), name);
}

/* attn.wqkv: attn_qkv; head.w: head. The letter w of a weight says nothing in the name of a
 * product. */
static const char *product_word(Graph *g, const char *weight)
{
    const char *dot = strrchr(weight, '.'), *last = dot ? dot + 1 : weight;
    int front = (int)(last - weight);
    if (*last != 'w')
        return weight;
    return last[1] ? arena_fmt(g->arena, "%.*s%s", front, weight, last + 1)
                   : arena_fmt(g->arena, "%.*s", front ? front - 1 : 1, weight);
}

static bool ends_in(const char *s, const char *suffix)
{
    u64 n = strlen(s), m = strlen(suffix);
    return n >= m && !strcmp(s + n - m, suffix);
}

/* Does value come from a backward op of its own Func? */
static bool is_cotangent(Graph *g, u32 value)
{
    for (;;) {
        u32 base = g->value.at[value].base, node = g->value.at[base ? base : value].node;
        if (!node || op_is(g, node, "read"))
            return false;
        if (ends_in(node_ops(g, node), "_bwd"))
            return true;
        if (!op_is(g, node, "matmul") && !(g->op.at[g->node.at[node].op].flags & OF_VIEW))
            return false;
        value = g->arg.at[g->node.at[node].in];
    }
}

static const char *product_suffix(Graph *g, u32 node)
{
    const Node *n = &g->node.at[node];
    u8 role = g->func.at[n->func].role;
    if (node_adds(g, node))
        return "_dw";
    bool back = (role == ROLE_BWD || role == ROLE_BWDW) && n->pass == sym(g, "autodiff");
    return back || is_cotangent(g, g->arg.at[n->in]) ? "_dx" : "_mm";
}

static bool starts_in(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

/* Where a node stands: a product at its weight, or in its module if the weight is another module's
 * (a tied head). */
const char *node_place(Graph *g, u32 node)
{
    const char *weight = node_weight(g, node), *path = sym_str(g, g->node.at[node].path);
    return weight && (!*path || starts_in(weight, path)) ? weight : path;
}

static const char *product_base(Graph *g, u32 node)
{
    const char *place = node_place(g, node), *weight = node_weight(g, node);
    if (weight && !strcmp(place, weight))
        return product_word(g, short_path(weight));
    return *place ? short_path(place) : "product";
}

/* What a node computes where: attn_qkv_mm, mlp_down_dw, attn_rope, ln_1_rmsnorm, attention. */
const char *node_name(Graph *g, u32 node)
{
    const Node *n = &g->node.at[node];
    const char *path = short_path(sym_str(g, n->path)), *ops = node_ops(g, node);
    if (op_is(g, node, "matmul"))
        return arena_fmt(g->arena, "%s%s", product_base(g, node), product_suffix(g, node));
    if ((g->op.at[n->op].flags & OF_KERNEL) && ends_in(ops, "_bwd") && node_adds(g, node))
        return arena_fmt(g->arena, "%.*s_dw", (int)(strlen(ops) - 4), ops);
    if ((g->op.at[n->op].flags & OF_KERNEL) || !*path)
        return ops;
    return ends_in(path, ops) ? arena_fmt(g->arena, "%s_fwd", path)
                              : arena_fmt(g->arena, "%s_%s", path, ops);
}

/* ==== values ================================================================================== */

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && dot[1] ? dot + 1 : path;
}

/* Is node the only one of its module in its Func that prints code? Then the module's name says it
 * all. The two directions of one op do not count as two. */
static bool alone(Graph *g, u32 node)
{
    const Func *f = &g->func.at[g->node.at[node].func];
    bool back = ends_in(node_ops(g, node), "_bwd");
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        bool prints = !n->dead && !(g->op.at[n->op].flags & (OF_VIEW | OF_EFFECT));
        if (f->node.at[i] == node || !prints || n->path != g->node.at[node].path)
            continue;
        if (op_is(g, f->node.at[i], "matmul") ||
            ends_in(node_ops(g, f->node.at[i]), "_bwd") == back)
            return false;
    }
    return true;
}

const char *value_port(Graph *g, u32 value)
{
    const Value *v = &g->value.at[value];
    const Node *n = &g->node.at[v->node];
    if (v->node && op_is(g, v->node, "fused"))
        return v->out < g->body.at[n->body]->out.n
                   ? sym_str(g, g->body.at[n->body]->out.at[v->out].name)
                   : "";
    const Op *op = v->node ? &g->op.at[n->op] : NULL;
    return op && op->sig && v->out < op->sig->out.n ? sym_str(g, op->sig->out.at[v->out].name) : "";
}

/* "down" of mlp.down, "attn_o" of attn.wo: one letter alone says nothing. */
static const char *product_value(Graph *g, u32 node)
{
    const char *name = product_base(g, node), *weight = node_weight(g, node);
    const char *last = weight ? last_part(weight) : name;
    last += weight && *last == 'w' && last[1];
    return strlen(last) > 1 && ends_in(name, last) ? last : sym_str(g, local_name(g, name));
}

/* Inside a backward Func a save is called what the forward calls it. */
static const char *saved_word(Graph *g, u32 value, const char *other)
{
    for (u32 i = 0; i < g->save.n; i++) {
        const Save *s = &g->save.at[i];
        if (s->to_value == value && s->to == g->value.at[value].func && s->mode == SAVE_KEEP)
            return value_word(g, s->from_value);
    }
    return other;
}

/* Partial lines are called after the sum they are added to: ln_1_w_lines, count_lines. */
static const char *lines_word(Graph *g, u32 value, const char *port)
{
    const Node *n = &g->node.at[g->value.at[value].node];
    u64 len = strlen(port) - strlen("_lines");
    for (u32 k = 0; k < n->nout; k++) {
        const char *other = value_port(g, n->out + k);
        if (strlen(other) != len || strncmp(other, port, len) != 0)
            continue;
        u32 sink = value_sink(g, n->out + k);
        const char *sum = value_word(g, n->out + k);
        if (sink)
            sum = sym_str(g, g->func.at[n->func].formal.at[g->node.at[sink].formal - 1].name);
        u64 m = strlen(sum) - (ends_in(sum, ".grad") ? strlen(".grad") : 0);
        return sym_str(g, local_name(g, arena_fmt(g->arena, "%.*s_lines", (int)m, sum)));
    }
    return port;
}

const char *value_word(Graph *g, u32 value)
{
    const Value *v = &g->value.at[value];
    const char *path = last_part(sym_str(g, v->path));
    if (!v->node)
        return saved_word(g, value, *path ? path : "x");
    const Node *n = &g->node.at[v->node];
    if ((v->path != n->path || (v->flags & (VF_MARKED | VF_RESID))) && *path)
        return path;
    if (g->op.at[n->op].flags & OF_VIEW) /* a concat is named after its first part */
        return value_word(g, g->arg.at[n->in]);
    if (op_is(g, v->node, "read"))
        return last_part(sym_str(g, g->func.at[n->func].formal.at[n->formal - 1].name));
    if (op_is(g, v->node, "matmul"))
        return product_value(g, v->node);
    const char *verb = node_ops(g, v->node), *port = value_port(g, value);
    if (ends_in(port, "_lines"))
        return lines_word(g, value, port);
    if (strlen(port) > 2)
        return port;
    if (!strcmp(verb, "add_col")) /* a bias: the value stays what it was */
        return arena_fmt(g->arena, "%s_biased", value_word(g, g->arg.at[n->in]));
    if (starts_in(verb, "add_col_") && strcmp(verb, "add_col_bwd") != 0)
        verb += strlen("add_col_");
    const char *back = strstr(verb, "_bwd");
    if (back)
        verb = arena_fmt(g->arena, "%.*s", (int)(back - verb), verb);
    path = last_part(sym_str(g, n->path));
    if (*path && alone(g, v->node))
        verb = path;
    return back && !v->path ? arena_fmt(g->arena, "%s_%s", verb, port) : verb;
}

/* The gradient of a sum is that of its operands: dqkv, with or without bias. */
Sym cotangent_name(Graph *g, u32 value)
{
    const char *of = value_word(g, value);
    u64 n = strlen(of) - (ends_in(of, "_biased") ? strlen("_biased") : 0);
    return sym_fmt(g, "d%.*s", (int)n, of);
}
