/* tune.c: bind every node that does work to a kernel instance.
 *
 * A kernel file's block says which op it serves, under which condition, and which constants an
 * instance needs; both are Lua expressions over the node's operands and attributes. Blocks are
 * tried in the order of their file names, the first that takes the node serves it. Equal constants
 * give one instance. A fused node has its text printed by loopgen; equal texts give one instance,
 * too.
 *
 * An instance is named after its first user: module path, then what it computes there (_fwd, _bwd;
 * for the matmuls _mm, _dx, _dw). Names are C identifiers and differ from each other.
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

/* C words that a module path could spell, and the names that generated functions use for
 * themselves. */
static const char *const reserved[] = {
    "auto",   "break",    "case",   "char",     "const",  "continue", "default", "do",     "double",
    "else",   "enum",     "extern", "float",    "for",    "goto",     "if",      "inline", "int",
    "long",   "register", "return", "restrict", "short",  "signed",   "sizeof",  "static", "struct",
    "switch", "typedef",  "union",  "unsigned", "void",   "volatile", "while",   "main",   "asm",
    "typeof", "c",        "k",      "i",        "j",      "l",        "bf16",    "f16",    "e4m3",
    "e5m2",   "fwd",      "bwd",    "upd",      "eval",   "logits",   "var",     "io",     "key",
    "model",  "region",   "abs",    "exp",      "log",    "sqrt",     "sin",     "cos",    "tanh",
    "erf",    "floor",    "fma",    "index",    "pow",    "round",    "linux",   "unix",   "signal",
    "read",   "write",    "time",   "free",     "malloc", "gamma",    "y0",      "y1",     "j0",
    "j1",     "yn",       "jn",
};

Sym c_name(Graph *g, const char *s)
{
    Text t = {0};
    for (; *s; s++) {
        char c[2] = {*s, 0};
        bool word =
            (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9');
        if (!word)
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
    for (u32 i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (!strcmp(name, reserved[i]))
            return sym_fmt(g, "%s_", name);
    }
    return sym(g, name);
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
        u32 from = g->value.at[v->base].node;
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

/* What a node computes where: attn_qkv_mm, mlp_down_dw, attn_rope, ln_2_rmsnorm_bwd, attention. */
const char *node_name(Graph *g, u32 node)
{
    const Node *n = &g->node.at[node];
    const char *path = short_path(sym_str(g, n->path)), *ops = node_ops(g, node);
    if (op_is(g, node, "matmul")) {
        const char *weight = node_weight(g, node);
        return arena_fmt(g->arena, "%s%s",
                         weight  ? product_word(g, short_path(weight))
                         : *path ? path
                                 : "p",
                         product_suffix(g, node));
    }
    if ((g->op.at[n->op].flags & OF_KERNEL) || !*path)
        return ops;
    return ends_in(path, ops) ? arena_fmt(g->arena, "%s_fwd", path)
                              : arena_fmt(g->arena, "%s_%s", path, ops);
}

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

static Sym inst_name(Graph *g, u32 node)
{
    const char *want = node_name(g, node);
    const char *func = sym_str(g, g->func.at[g->node.at[node].func].name);
    Sym name = c_name(g, want);
    if (name_taken(g, name))
        name = c_name(g, arena_fmt(g->arena, "%s_%s", func, want));
    for (u32 i = 2; name_taken(g, name); i++)
        name = c_name(g, arena_fmt(g->arena, "%s_%u", want, i));
    return name;
}

/* ==== binding ================================================================================= */

/* The probe is finished: take an instance that equals it, or name it and keep it. Returns its id.
 */
static u32 inst_intern(Graph *g, u32 probe)
{
    for (u32 i = 1; i < probe; i++) {
        const Inst *a = &g->inst.at[i], *b = &g->inst.at[probe];
        if (a->hash == b->hash && a->kern == b->kern) {
            g->inst.n--;
            return i;
        }
    }
    Sym name = inst_name(g, g->inst.at[probe].node);
    g->inst.at[probe].name = name;
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
}
