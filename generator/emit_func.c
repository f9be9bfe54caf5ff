/* emit_func.c: one Func as the text of one C function.
 *
 * A node is a call of its kernel instance: NAME(c, results..., operands..., extras...). Pointers
 * are named after module paths and declared where they are first needed; what differs from call to
 * call comes from a row `k` of the Func's table of calls, all other offsets are constants. A loop
 * node prints as a for loop, its sliced operands and stacked results as pointers that move with i.
 */
#include <assert.h>
#include <string.h>

#include "emit_int.h"

/* A pointer: `float *qkv = AT(c, ...);`, shape for the margin. */
typedef struct {
    const char *type, *name, *text;
    u32 value;
} Decl;

/* A function body, or the body of a loop in it. */
typedef struct Scope Scope;
struct Scope {
    Scope *up;
    u32 func, loop;    /* loop: the node in up->func */
    const char *index; /* "i" */
    u32 depth;         /* 0 for the function */
    VEC(Decl) decl;
    Lines line;
};

typedef struct {
    Emit *e;
    Graph *g;
    CFunc *cf;
    const char **local; /* by value: C text of the pointer to its base's first element */
    bool *plain;        /* by value: local is a name of the right type, arithmetic is fine */
    VEC(Sym) used;      /* names in this function */
    const char *moves;  /* the pointer that the address just made is an element of, by trip */
} Fn;

bool is_op(const Graph *g, u32 node, const char *name)
{
    return !strcmp(sym_str(g, g->op.at[g->node.at[node].op].name), name);
}

/* ==== small texts ============================================================================= */

/* Merged dims are called _m, _m.1. */
static const char *dim_text(Graph *g, const Dim *d)
{
    const char *name = sym_str(g, d->name);
    return name + (*name == '_');
}

const char *type_text(Graph *g, const Type *t)
{
    Text s = {0};
    text_put(g->arena, &s, "[");
    for (u32 i = 0; i < t->rank; i++) {
        const Dim *d = &g->dim.at[t->dim[i]];
        text_fmt(g->arena, &s, "%s%s=%lld", i ? " " : "", dim_text(g, d), (long long)d->size);
    }
    text_put(g->arena, &s, "]");
    return text_str(g->arena, &s);
}

const char *file_text(Graph *g, Sym file)
{
    const char *path = sym_str(g, file);
    return *path == '/' ? strrchr(path, '/') + 1 : path;
}

const char *loc_text(Graph *g, Loc loc)
{
    return loc.line ? arena_fmt(g->arena, "%s:%d", file_text(g, loc.file), loc.line) : "";
}

const char *amount(Graph *g, f64 v, const char *unit)
{
    static const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E"};
    u32 p = 0;
    while (v >= 999.95 && p < 6) {
        v /= 1000;
        p++;
    }
    return arena_fmt(g->arena, p || v != (f64)(i64)v ? "%.1f %s%s" : "%.0f %s%s", v, prefix[p],
                     unit);
}

/* A comment must not end early or open another: no byte of a spec decides that. */
const char *comment_safe(Graph *g, const char *s)
{
    char *out = arena_fmt(g->arena, "%s", s);
    for (char *p = out; *p; p++) {
        if ((u8)*p < 32 || (u8)*p > 126 || *p == '\\' || *p == '?' ||
            (p > out && ((p[-1] == '*' && *p == '/') || (p[-1] == '/' && *p == '*'))))
            *p = '.';
    }
    return out;
}

/* ":12 attn.qkv      50.3 MFLOP": where it stands in the spec, the module, what it costs. */
static const char *node_note(Fn *fn, u32 node)
{
    Graph *g = fn->g;
    const Node *n = &g->node.at[node];
    const char *at = "", *file = sym_str(g, n->loc.file), *slash = strrchr(file, '/');
    if (n->loc.line && n->loc.file == fn->cf->loc.file)
        at = arena_fmt(g->arena, ":%d", n->loc.line);
    else if (n->loc.line)
        at = arena_fmt(g->arena, "%.10s:%d", slash ? slash + 1 : file, n->loc.line);
    f64 flops = node_flops(g, node);
    const char *cost = g->kern.at[g->inst.at[n->kern].kern].name && flops > 0
                           ? amount(g, flops, "FLOP")
                           : amount(g, (f64)node_traffic(g, node), "B");
    const char *path = node_place(g, node);
    int room = 19 - (int)strlen(at);
    u64 len = strlen(path);
    if ((i64)len > room)
        path += len - (u64)room;
    return comment_safe(g, arena_fmt(g->arena, "%s %-*s %11s", at, room, path, cost));
}

/* ==== names =================================================================================== */

static bool in_use(const Fn *fn, Sym name)
{
    static const char *const own[] = {"c", "k", "i", "j", "i2", "j2"};
    for (u32 i = 0; i < sizeof own / sizeof *own; i++) {
        if (!strcmp(own[i], sym_str(fn->g, name)))
            return true;
    }
    for (u32 i = 0; i < fn->used.n; i++) {
        if (fn->used.at[i] == name)
            return true;
    }
    for (u32 i = 0; i < fn->e->taken.n; i++) {
        if (fn->e->taken.at[i] == name)
            return true;
    }
    return false;
}

static Sym local_unique(Fn *fn, const char *want, const char *port)
{
    Graph *g = fn->g;
    Sym base = local_name(g, want), name = base;
    if (in_use(fn, name) && *port)
        name = base = local_name(g, arena_fmt(g->arena, "%s_%s", want, port));
    for (u32 i = 2; in_use(fn, name); i++)
        name = sym_fmt(g, "%s%s%u", sym_str(g, base), "_", i);
    vec_push(g->arena, &fn->used, name);
    return name;
}

Sym name_unique(Emit *e, Sym want)
{
    Graph *g = e->g;
    Sym name = want;
    for (u32 i = 2;; i++) {
        bool taken = false;
        for (u32 k = 0; k < e->taken.n; k++)
            taken |= e->taken.at[k] == name;
        if (!taken)
            break;
        name = sym_fmt(g, "%s_%u", sym_str(g, want), i);
    }
    vec_push(g->arena, &e->taken, name);
    return name;
}

/* ==== fields of the table of calls ============================================================ */

static const char *field(Fn *fn, u8 kind, Sym formal, u32 index, const char *want, const char *note)
{
    CFunc *cf = fn->cf;
    for (u32 i = 0; i < cf->field.n; i++) {
        const Field *f = &cf->field.at[i];
        if (f->kind == kind && f->formal == formal && f->index == index)
            return sym_str(fn->g, f->name);
    }
    Sym base = c_name(fn->g, want), name = base;
    for (u32 i = 2, again = 1; again; i++) {
        again = 0;
        for (u32 k = 0; k < cf->field.n; k++)
            again |= cf->field.at[k].name == name;
        if (again)
            name = sym_fmt(fn->g, "%s_%u", sym_str(fn->g, base), i);
    }
    vec_push(fn->g->arena, &cf->field, (Field){kind, name, formal, index, note});
    return sym_str(fn->g, name);
}

static const char *value_note(Graph *g, u32 value)
{
    const Type *t = &g->value.at[value].type;
    return arena_fmt(g->arena, "%s %s", type_text(g, t), dtype_name(t->dtype));
}

static const char *formal_field(Fn *fn, u32 func, u32 formal)
{
    const Formal *f = &fn->g->func.at[func].formal.at[formal - 1];
    const char *name = sym_str(fn->g, f->name);
    const char *note =
        arena_fmt(fn->g->arena, "%s %s", type_text(fn->g, &f->type), dtype_name(f->type.dtype));
    return field(fn, FIELD_FORMAL, f->name, 0, *name == '/' ? name + 1 : name, note);
}

/* ==== where a value lies ====================================================================== */

static i32 find(const u32 *at, u32 n, u32 value)
{
    for (u32 i = 0; i < n; i++) {
        if (at[i] == value)
            return (i32)i;
    }
    return -1;
}

static u32 base_of(const Graph *g, u32 value)
{
    u32 b = g->value.at[value].base;
    return b ? b : value;
}

static const char *address(Fn *fn, Scope *sc, u32 value);

/* The #define of a save's place in the block of a call. */
static const char *save_name(Fn *fn, u32 value, u64 off)
{
    Emit *e = fn->e;
    for (u32 i = 0; i < e->save.n; i++) {
        if (e->save.at[i].value == value)
            return sym_str(fn->g, e->save.at[i].name);
    }
    const Func *f = &fn->g->func.at[fn->g->value.at[value].func];
    char *want =
        arena_fmt(fn->g->arena, "%s_%s", sym_str(fn->g, f->name), value_word(fn->g, value));
    Sym mangled = c_name(fn->g, want);
    char *upper = arena_fmt(fn->g->arena, "%s", sym_str(fn->g, mangled));
    for (char *p = upper; *p; p++)
        *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
    Sym name = name_unique(e, sym(fn->g, upper));
    SaveName s = {name, value, off, value_note(fn->g, value)};
    vec_push(fn->g->arena, &e->save, s);
    return sym_str(fn->g, name);
}

static const char *saved_at(Fn *fn, u32 value, u64 off)
{
    const char *k = field(fn, FIELD_SAVED, 0, 0, "saved", "its block of saves");
    return arena_fmt(fn->g->arena, "AT(c, k->%s + %s)", k, save_name(fn, value, off));
}

/* An input of a backward Func that no Reg brings: a row of the table of saves. */
static const Save *save_to(const Graph *g, u32 func, u32 value)
{
    for (u32 i = 0; i < g->save.n; i++) {
        const Save *s = &g->save.at[i];
        if (s->to == func && s->to_value == value && s->mode == SAVE_KEEP)
            return s;
    }
    return NULL;
}

/* The one result of a backward Func is dx. */
static const char *local_word(Fn *fn, u32 value)
{
    Graph *g = fn->g;
    const Func *f = &g->func.at[g->value.at[value].func];
    if (f->role == ROLE_BWD && f->out.n == 1 && f->out.at[0] == value)
        return "dx";
    return value_word(g, value);
}

static bool reg_brings(const Graph *g, u32 func, u32 index)
{
    for (u32 c = 1; c < g->chain.n; c++) {
        for (u32 k = 0; k < g->chain.at[c].call.n; k++) {
            const Call *call = &g->chain.at[c].call.at[k];
            if (call->func == func)
                return index < call->in.n && call->in.at[index];
        }
    }
    return false;
}

/* "p + i * 1024": the pointer of trip i. */
static const char *trip_address(Fn *fn, const Scope *sc, const char *p, u32 outer)
{
    Graph *g = fn->g;
    i64 step = g->value.at[outer].stride[0];
    bool wide = step * g->node.at[sc->loop].trips > INT32_MAX;
    fn->moves = p;
    return arena_fmt(g->arena, wide ? "%s + %s * INT64_C(%lld)" : "%s + %s * %lld", p, sc->index,
                     (long long)step);
}

static const char *input_address(Fn *fn, Scope *sc, u32 value)
{
    Graph *g = fn->g;
    const Func *f = &g->func.at[sc->func];
    i32 at = find(f->in.at, f->in.n, value);
    assert(at >= 0 && "a value without producer is an input of its Func");
    if (!sc->up) {
        const Save *s = reg_brings(g, sc->func, (u32)at) ? NULL : save_to(g, sc->func, value);
        if (s)
            return saved_at(fn, s->from_value, s->off);
        const char *k = field(fn, FIELD_IN, 0, (u32)at, value_word(g, value), value_note(g, value));
        return arena_fmt(g->arena, "AT(c, k->%s)", k);
    }
    u32 outer = g->arg.at[g->node.at[sc->loop].in + (u32)at];
    const char *p = address(fn, sc->up, outer);
    if (f->in_kind.at[at] == OPERAND_SLICE)
        return trip_address(fn, sc, p, outer);
    if (f->in_kind.at[at] == OPERAND_CARRY) {
        const char *result = address(fn, sc->up, g->node.at[sc->loop].out + (u32)at);
        return arena_fmt(g->arena, "%s ? %s : %s", sc->index, result, p);
    }
    return p;
}

/* An out of a loop body lies in the loop's result. */
static const char *stacked_address(Fn *fn, Scope *sc, u32 index)
{
    Graph *g = fn->g;
    u32 outer = g->node.at[sc->loop].out + index;
    const char *p = address(fn, sc->up, outer);
    if (g->func.at[sc->func].out_kind.at[index] != RESULT_STACK)
        return p;
    return trip_address(fn, sc, p, outer);
}

static const char *buffer_address(Fn *fn, u32 value)
{
    Graph *g = fn->g;
    u32 id = g->value.at[value].buf;
    if (!id)
        return NULL;
    const Buf *b = &g->buf.at[id];
    if (b->region == REGION_SAVED)
        return saved_at(fn, value, b->off);
    assert(b->region == REGION_SCRATCH && "a Func's own buffer is saved or scratch");
    return arena_fmt(g->arena, "AT(c, SCRATCH + 0x%llx)", (unsigned long long)b->off);
}

/* C text of the address of a base. *inline_: no declaration needed, the text is used as it is. */
static const char *base_address(Fn *fn, Scope *sc, u32 base, bool *inline_)
{
    Graph *g = fn->g;
    const Value *v = &g->value.at[base];
    const Func *f = &g->func.at[sc->func];
    *inline_ = false;
    if (!v->node)
        return input_address(fn, sc, base);
    u32 variable = is_op(g, v->node, "read") ? v->node : value_sink(g, base);
    if (variable) {
        *inline_ = true;
        return arena_fmt(g->arena, "AT(c, k->%s)",
                         formal_field(fn, sc->func, g->node.at[variable].formal));
    }
    i32 out = find(f->out.at, f->out.n, base);
    if (out >= 0 && sc->up)
        return stacked_address(fn, sc, (u32)out);
    if (out >= 0 && !(v->buf && g->buf.at[v->buf].region == REGION_SAVED)) {
        const char *k =
            field(fn, FIELD_OUT, 0, (u32)out, local_word(fn, base), value_note(g, base));
        return arena_fmt(g->arena, "AT(c, k->%s)", k);
    }
    return buffer_address(fn, base);
}

static bool is_const(const Graph *g, u32 base)
{
    u32 n = g->value.at[base].node;
    return !n || is_op(g, n, "read");
}

static void declare(Fn *fn, Scope *sc, u32 base, const char *text)
{
    Graph *g = fn->g;
    const Save *s = save_to(g, g->value.at[base].func, base);
    u32 made = s && !g->value.at[base].node ? s->from_value : base;
    const char *port = g->value.at[made].node ? value_port(g, made) : "";
    const char *want =
        fn->moves ? arena_fmt(g->arena, "%s_%s", fn->moves, sc->index) : local_word(fn, base);
    fn->moves = NULL;
    const char *name = sym_str(g, local_unique(fn, want, port));
    char *type = arena_fmt(g->arena, "%s%s", is_const(g, base) ? "const " : "",
                           dtype_ctype(g->value.at[base].type.dtype));
    vec_push(g->arena, &sc->decl, (Decl){type, name, text, base});
    fn->local[base] = name;
    fn->plain[base] = true;
}

/* [b=8 s=128 d]: a size stands where its dim occurs first in a function. */
static const char *shape_text(Graph *g, const Type *t, bool *seen)
{
    Text s = {0};
    text_put(g->arena, &s, "[");
    for (u32 i = 0; i < t->rank; i++) {
        const Dim *d = &g->dim.at[t->dim[i]];
        text_fmt(g->arena, &s, "%s%s", i ? " " : "", dim_text(g, d));
        if (!seen[t->dim[i]])
            text_fmt(g->arena, &s, "=%lld", (long long)d->size);
        seen[t->dim[i]] = true;
    }
    text_put(g->arena, &s, "]");
    return text_str(g->arena, &s);
}

static int longer(int than, const char *s)
{
    return (int)strlen(s) > than ? (int)strlen(s) : than;
}

/* The declarations of a scope, in columns of their own. */
static void print_decls(Fn *fn, const Scope *sc, Lines *out)
{
    Graph *g = fn->g;
    int type = 0, name = 0, text = 0, indent = (int)(4 + 4 * sc->depth);
    bool *seen = arena_alloc(g->arena, g->dim.n * sizeof *seen);
    for (const Scope *up = sc->up; up; up = up->up) {
        for (u32 i = 0; i < up->decl.n; i++)
            shape_text(g, &g->value.at[up->decl.at[i].value].type, seen);
    }
    for (u32 i = 0; i < sc->decl.n; i++) {
        type = longer(type, sc->decl.at[i].type);
        name = longer(name, sc->decl.at[i].name);
        text = longer(text, sc->decl.at[i].text);
    }
    for (u32 i = 0; i < sc->decl.n; i++) {
        const Decl *d = &sc->decl.at[i];
        const Value *v = &g->value.at[d->value];
        const char *shape = shape_text(g, &v->type, seen);
        char *line = arena_fmt(g->arena, "%*s%-*s *%-*s = %s;", indent, "", type, d->type, name,
                               d->name, d->text);
        if (sc->depth) /* the template's margin, or behind it for all of them */
            line = arena_fmt(g->arena, "%-*s", indent + type + 2 + name + 3 + text + 1, line);
        vec_push(g->arena, out, (Line){line, comment_safe(g, shape), v->node ? v->node + 1 : 0});
    }
}

/* The scope, this one or an outer one, that the value's Func is printed in. */
static Scope *scope_of(const Graph *g, Scope *sc, u32 value)
{
    while (sc->func != g->value.at[value].func) {
        sc = sc->up;
        assert(sc && "a value of this function");
    }
    return sc;
}

/* C text of a pointer to the first element of the value's window. */
static const char *address(Fn *fn, Scope *sc, u32 value)
{
    Graph *g = fn->g;
    u32 base = base_of(g, value);
    i64 off = g->value.at[value].off;
    if (!fn->local[base]) {
        Scope *home = scope_of(g, sc, base);
        bool inline_ = false;
        const char *text = base_address(fn, home, base, &inline_);
        if (!text)
            return "NULL";
        /* An invariant of a loop keeps its outer name, or its place in the call's row. */
        bool known = home->up && !strpbrk(text, " (");
        inline_ |= home->up && !strncmp(text, "AT(c, k->", 9) && !strchr(text, '+');
        if (inline_ || known) {
            fn->local[base] = text;
            fn->plain[base] = known;
        } else {
            declare(fn, home, base, text);
        }
    }
    if (!off && (fn->plain[base] || sc->func == g->value.at[base].func))
        return fn->local[base];
    if (!fn->plain[base])
        declare(fn, scope_of(g, sc, base), base, fn->local[base]);
    if (!off)
        return fn->local[base];
    return arena_fmt(g->arena, "%s + %lld", fn->local[base], (long long)off);
}

/* ==== calls =================================================================================== */

static const char *indent(Graph *g, const Scope *sc)
{
    return arena_fmt(g->arena, "%*s", (int)(4 + 4 * sc->depth), "");
}

static const char *sink_beta(Fn *fn, const Scope *sc, u32 accum)
{
    Arena *a = fn->g->arena;
    if (fn->g->node.at[accum].beta)
        return "1";
    Text t = {0};
    text_put(a, &t, "c->scalar.micro > 0");
    for (; sc->up; sc = sc->up)
        text_fmt(a, &t, " || %s > 0", sc->index);
    return text_str(a, &t);
}

/* Does this text add in this trip of this micro batch? The first writer of a step overwrites. */
static const char *beta_text(Fn *fn, Scope *sc, u32 value)
{
    Graph *g = fn->g;
    u32 sink = value_sink(g, value);
    if (sink)
        return sink_beta(fn, sc, sink);
    i32 at = find(g->func.at[sc->func].out.at, g->func.at[sc->func].out.n, value);
    assert(sc->up && at >= 0 && "a sum result of a loop body");
    u32 outer = g->node.at[sc->loop].out + (u32)at;
    const char *first = value_adds(g, outer) ? beta_text(fn, sc->up, outer) : "";
    if (!strcmp(first, "1"))
        return first;
    return arena_fmt(g->arena, "%s%s%s > 0", first, *first ? " || " : "", sc->index);
}

/* What the call's results that add have in common; they must agree, one call has one beta. */
static const char *node_beta(Fn *fn, Scope *sc, u32 node)
{
    const Node *n = &fn->g->node.at[node];
    const char *beta = NULL;
    for (u32 i = 0; i < n->nout; i++) {
        if (!value_adds(fn->g, n->out + i))
            continue;
        const char *b = beta_text(fn, sc, n->out + i);
        assert((!beta || !strcmp(beta, b)) && "one call, one beta");
        beta = b;
    }
    return beta;
}

static bool draws(const Graph *g, u32 node)
{
    const Node *n = &g->node.at[node];
    const Body *b = is_op(g, node, "fused") ? g->body.at[n->body] : g->op.at[n->op].body;
    return b && body_has_rand(b);
}

/* Where its random numbers belong: the layer; the module path is a constant of the kernel's text.
 */
static const char *site_text(Fn *fn)
{
    const char *k = field(fn, FIELD_LAYER, 0, 0, "layer", "number in the stack, -1: none");
    return arena_fmt(fn->g->arena, "(uint32_t)k->%s", k);
}

/* Which trip this is, over all loops around: "i", "(i * 4 + j)". */
static const char *trip_text(Fn *fn, const Scope *sc)
{
    if (!sc->up->up)
        return sc->index;
    return arena_fmt(fn->g->arena, "(%s * %d + %s)", trip_text(fn, sc->up),
                     fn->g->node.at[sc->loop].trips, sc->index);
}

/* "NAME(a, b, c);" over as many lines as it takes to end before the margin; the note stands on the
 * last. */
static void put_call(Fn *fn, Scope *sc, const char *name, const char *const *arg, u32 narg,
                     u32 node)
{
    Graph *g = fn->g;
    Text t = {0};
    text_fmt(g->arena, &t, "%s%s(", indent(g, sc), name);
    u32 open = t.n;
    for (u32 i = 0; i < narg; i++) {
        const char *end = i + 1 < narg ? "," : ");";
        u32 need = (u32)(strlen(arg[i]) + strlen(end));
        if (i && t.n + 1 + need > MARGIN - 1 && t.n > open) {
            vec_push(g->arena, &sc->line, (Line){text_str(g->arena, &t), "", node + 1});
            t = (Text){0};
            text_fmt(g->arena, &t, "%*s", (int)open, "");
        } else if (i) {
            text_put(g->arena, &t, " ");
        }
        text_fmt(g->arena, &t, "%s%s", arg[i], end);
    }
    vec_push(g->arena, &sc->line, (Line){text_str(g->arena, &t), node_note(fn, node), node + 1});
}

static void print_call(Fn *fn, Scope *sc, u32 node)
{
    Graph *g = fn->g;
    Node n = g->node.at[node];
    VEC(const char *) arg = {0};
    vec_push(g->arena, &arg, "c");
    bool sink = is_op(g, node, "accum") || is_op(g, node, "write");
    if (sink) {
        const char *p = formal_field(fn, n.func, n.formal);
        vec_push(g->arena, &arg, arena_fmt(g->arena, "AT(c, k->%s)", p));
    }
    for (u32 i = 0; i < n.nin; i++) /* operands first: they are declared in the order of use */
        address(fn, sc, g->arg.at[n.in + i]);
    for (u32 i = 0; i < n.nout; i++)
        vec_push(g->arena, &arg, address(fn, sc, n.out + i));
    for (u32 i = 0; i < n.nin; i++)
        vec_push(g->arena, &arg, address(fn, sc, g->arg.at[n.in + i]));
    const char *beta = node_beta(fn, sc, node);
    if (is_op(g, node, "accum"))
        beta = sink_beta(fn, sc, node);
    if (beta)
        vec_push(g->arena, &arg, beta);
    if (draws(g, node))
        vec_push(g->arena, &arg, site_text(fn));
    if (draws(g, node) && sc->up)
        vec_push(g->arena, &arg, trip_text(fn, sc));
    put_call(fn, sc, sym_str(g, g->inst.at[n.kern].name), arg.at, arg.n, node);
    fn->cf->flops += node_flops(g, node);
}

static void print_nodes(Fn *fn, Scope *sc);

static void print_loop(Fn *fn, Scope *sc, u32 node)
{
    static const char *const index[] = {"i", "j", "i2", "j2"};
    Graph *g = fn->g;
    const Node *n = &g->node.at[node];
    assert(sc->depth < 4 && "loops nest at most four deep");
    Scope in = {
        .up = sc, .func = n->body, .loop = node, .index = index[sc->depth], .depth = sc->depth + 1};
    const char *head = arena_fmt(g->arena, "%sfor (int %s = 0; %s < %d; %s++) {", indent(g, sc),
                                 in.index, in.index, n->trips, in.index);
    f64 before = fn->cf->flops;
    print_nodes(fn, &in);
    fn->cf->flops = before + (fn->cf->flops - before) * n->trips;
    n = &g->node.at[node];
    const char *note =
        comment_safe(g, arena_fmt(g->arena, "%d x %s", n->trips, sym_str(g, n->path)));
    vec_push(g->arena, &sc->line, (Line){head, note, node + 1});
    print_decls(fn, &in, &sc->line);
    if (in.decl.n)
        vec_push(g->arena, &sc->line, (Line){"", "", 0});
    for (u32 i = 0; i < in.line.n; i++)
        vec_push(g->arena, &sc->line, in.line.at[i]);
    vec_push(g->arena, &sc->line, (Line){arena_fmt(g->arena, "%s}", indent(g, sc)), "", node + 1});
}

static void print_node(Fn *fn, Scope *sc, u32 node)
{
    Graph *g = fn->g;
    const Node *n = &g->node.at[node];
    if (n->dead || (g->op.at[n->op].flags & OF_VIEW) || (!n->kern && !is_op(g, node, "loop")))
        return;
    static const char *const when[] = {
        [WHEN_FIRST_MICRO] = "c->scalar.micro == 0",
        [WHEN_LAST_MICRO] = "c->scalar.micro + 1 == c->scalar.micros",
    };
    bool guarded = n->when != WHEN_ALWAYS;
    if (guarded) {
        char *head = arena_fmt(g->arena, "%sif (%s) {", indent(g, sc), when[n->when]);
        vec_push(g->arena, &sc->line, (Line){head, "", node + 1});
        sc->depth++;
    }
    if (is_op(g, node, "loop"))
        print_loop(fn, sc, node);
    else
        print_call(fn, sc, node);
    if (guarded) {
        sc->depth--;
        vec_push(g->arena, &sc->line,
                 (Line){arena_fmt(g->arena, "%s}", indent(g, sc)), "", node + 1});
    }
}

static void print_nodes(Fn *fn, Scope *sc)
{
    for (u32 i = 0; i < fn->g->func.at[sc->func].node.n; i++)
        print_node(fn, sc, fn->g->func.at[sc->func].node.at[i]);
}

/* ==== one Func ================================================================================ */

static const struct {
    const char *suffix, *word;
} roles[ROLE_COUNT] = {
    [ROLE_FWD] = {"fwd", "forward"},
    [ROLE_BWD] = {"bwd", "backward"},
    [ROLE_BWDW] = {"bwdw", "backward of the weights"},
    [ROLE_LOSS] = {"loss", "loss and its gradient"},
    [ROLE_EVAL] = {"eval", "evaluation"},
    [ROLE_LOGITS] = {"logits", "logits of one position"},
    [ROLE_UPD] = {"upd", "the optimizer's step"},
    [ROLE_PREFILL] = {"prefill", "prefill"},
    [ROLE_DECODE] = {"decode", "decode"},
    [ROLE_LOOP] = {"trip", "one trip"},
};

/* "block.bwd" and role backward: 3 + 1, else 0. */
static u64 role_len(Graph *g, u32 func)
{
    const Func *f = &g->func.at[func];
    const char *name = sym_str(g, f->name), *suffix = roles[f->role].suffix;
    u64 n = strlen(name), m = strlen(suffix);
    return n > m + 1 && name[n - m - 1] == '.' && !strcmp(name + n - m, suffix) ? m + 1 : 0;
}

/* "block.bwd": block_bwd; "block": block_fwd. */
Sym func_c_name(Graph *g, u32 func)
{
    const Func *f = &g->func.at[func];
    const char *name = sym_str(g, f->name);
    if (role_len(g, func) || f->role == ROLE_UPD)
        return c_name(g, name);
    return c_name(g, arena_fmt(g->arena, "%s_%s", name, roles[f->role].suffix));
}

/* "layers 0..3", of the calls in all chains. */
static const char *layers_text(Graph *g, u32 func)
{
    i32 lo = INT32_MAX, hi = -1;
    for (u32 c = 1; c < g->chain.n; c++) {
        for (u32 k = 0; k < g->chain.at[c].call.n; k++) {
            const Call *call = &g->chain.at[c].call.at[k];
            if (call->func != func || call->layer < 0)
                continue;
            lo = call->layer < lo ? call->layer : lo;
            hi = call->layer > hi ? call->layer : hi;
        }
    }
    if (hi < 0)
        return "";
    return lo == hi ? arena_fmt(g->arena, "layer %d", lo)
                    : arena_fmt(g->arena, "layers %d..%d", lo, hi);
}

void emit_func(Emit *e, u32 func)
{
    Graph *g = e->g;
    const Func *f = &g->func.at[func];
    CFunc cf = {.func = func, .loc = f->loc};
    for (u32 i = 0; i < f->node.n && !cf.loc.line; i++)
        cf.loc = g->node.at[f->node.at[i]].loc;
    cf.name = name_unique(e, func_c_name(g, func));
    cf.type = name_unique(e, sym_fmt(g, "%s_k", sym_str(g, cf.name)));
    Fn fn = {.e = e, .g = g, .cf = &cf};
    fn.local = arena_alloc(g->arena, g->value.n * sizeof *fn.local);
    fn.plain = arena_alloc(g->arena, g->value.n * sizeof *fn.plain);
    Scope top = {.func = func};
    print_nodes(&fn, &top);
    print_decls(&fn, &top, &cf.decl);
    cf.line = top.line;
    const char *loc = loc_text(g, cf.loc), *name = sym_str(g, f->name);
    cf.what =
        comment_safe(g, arena_fmt(g->arena, "%.*s, %s", (int)(strlen(name) - role_len(g, func)),
                                  name, roles[f->role].word));
    cf.layers = layers_text(g, func);
    cf.title = comment_safe(
        g,
        arena_fmt(g->arena, "%s.%s%s%s%s%s", cf.what, *loc ? "   " : "", loc,
                  *cf.layers ? "   " : "", cf.layers,
                  cf.flops > 0 ? arena_fmt(g->arena, "   %s", amount(g, cf.flops, "FLOP")) : ""));
    vec_push(g->arena, &e->func, cf);
    e->cfunc[func] = e->func.n;
}

typedef struct {
    Graph *g;
    Text text;
    u32 line; /* where the last line starts */
    VEC(Sym) used;
} Proto;

static void put_param(Proto *p, const char *constness, u8 dtype, const char *want)
{
    Graph *g = p->g;
    Sym base = local_name(g, want), name = base;
    for (u32 i = 0, n = 2; i < p->used.n; i++) {
        if (p->used.at[i] == name) {
            name = sym_fmt(g, "%s_%u", sym_str(g, base), n++);
            i = (u32)-1;
        }
    }
    vec_push(g->arena, &p->used, name);
    const char *param =
        arena_fmt(g->arena, "%s%s *%s", constness, dtype_ctype(dtype), sym_str(g, name));
    bool fits = p->text.n - p->line + strlen(param) + 4 < WIDTH;
    text_put(g->arena, &p->text, fits ? ", " : ",\n");
    p->line = fits ? p->line : p->text.n;
    text_fmt(g->arena, &p->text, "%s%s", fits ? "" : "    ", param);
}

/* What operand or result i is called: in the body of a generated kernel, in the signature of
 * another. */
static const char *param_name(Graph *g, u32 node, bool out, u32 i)
{
    const Node *n = &g->node.at[node];
    if (is_op(g, node, "fused")) {
        const Body *b = g->body.at[n->body];
        return sym_str(g, out ? b->out.at[i].name : b->in.at[i].name);
    }
    const Sig *sig = g->op.at[n->op].sig;
    if (sig && i < (out ? sig->out.n : sig->in.n))
        return sym_str(g, out ? sig->out.at[i].name : sig->in.at[i].name);
    return out ? "y" : "x";
}

/* "void attn_qkv_mm(mg_ctx *c, float *C, const float *A, const float *B, int beta)" */
const char *func_prototype(Graph *g, const Inst *inst)
{
    const Node *n = &g->node.at[inst->node];
    bool accum = is_op(g, inst->node, "accum");
    Proto p = {.g = g};
    vec_push(g->arena, &p.used, sym(g, "c"));
    text_fmt(g->arena, &p.text, "void %s(mg_ctx *c", sym_str(g, inst->name));
    if (accum || is_op(g, inst->node, "write"))
        put_param(&p, "", g->func.at[n->func].formal.at[n->formal - 1].type.dtype, "to");
    for (u32 i = 0; i < n->nout; i++)
        put_param(&p, "", g->value.at[n->out + i].type.dtype, param_name(g, inst->node, true, i));
    for (u32 i = 0; i < n->nin; i++)
        put_param(&p, "const ", g->value.at[g->arg.at[n->in + i]].type.dtype,
                  param_name(g, inst->node, false, i));
    if (node_adds(g, inst->node) || accum)
        text_put(g->arena, &p.text, ", int beta");
    if (draws(g, inst->node))
        text_put(g->arena, &p.text, ", uint32_t site");
    if (draws(g, inst->node) && g->func.at[n->func].role == ROLE_LOOP)
        text_put(g->arena, &p.text, ", int trip");
    text_put(g->arena, &p.text, ")");
    return text_str(g->arena, &p.text);
}
