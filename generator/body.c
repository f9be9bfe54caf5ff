/* body.c: what a row or map op means. Text to a DAG, its derivative, its value, its text again.
 *
 *     body  = stat { ";" stat } .
 *     stat  = name "=" expr .
 *     expr  = sum [ ("<" | "<=" | ">" | ">=" | "==" | "~=") sum ] .
 *     sum   = term { ("+" | "-") term } .
 *     term  = unary { ("*" | "/") unary } .
 *     unary = [ "-" ] atom .
 *     atom  = number | name | "(" expr ")" | fn "(" expr { "," expr } ")"
 *           | ("sum" | "mean" | "rowmax" | "rowmin" | "lse") "(" expr "," dim { dim } ")"
 *           | ("total" | "amax") "(" expr ")"
 *           | "index" "(" dim ")" | "size" "(" dim ")"
 *           | "rand" "(" site [ "," lane ] ")" | "group" "(" name ")" .
 *
 * Reductions run over inner dims, total and amax over everything: they are the whole of a result.
 * Names are operands, earlier statements, run-time scalars (step lr wd clip gscale), else
 * attributes. A name that lacks a dim is broadcast along it; a result that lacks leading dims is a
 * column sum. Comments start with "#".
 *
 * Why symbolic: a backward that is a body again fuses with its neighbours like any other, and
 * recomputes what it needs from the forward inside its own kernel, so nothing pointwise is ever
 * saved. Derivatives are rows of fn_table, in this same language.
 */
#include "megagen.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { E_BODY = 210 };

/* One row a function: name in the text, arguments, and the cotangent of each argument in terms of
 * the arguments x z u, the result y and its cotangent dy. NULL: no cotangent. "!": no derivative,
 * stop() is needed. */
typedef struct {
    const char *name;
    u8 narg;
    const char *d[3];
} FnRow;
static const FnRow fn_table[BF_COUNT] = {
    [BF_NONE] = {"none", 0, {0}},
    [BF_CONST] = {"const", 0, {0}},
    [BF_INPUT] = {"input", 0, {0}},
    [BF_ATTR] = {"attr", 0, {0}},
    [BF_SCALAR] = {"scalar", 0, {0}},
    [BF_GROUP] = {"group", 0, {0}},
    [BF_INDEX] = {"index", 0, {0}},
    [BF_SIZE] = {"size", 0, {0}},
    [BF_RAND] = {"rand", 0, {0}},
    [BF_ADD] = {"+", 2, {"dy", "dy"}},
    [BF_SUB] = {"-", 2, {"dy", "-dy"}},
    [BF_MUL] = {"*", 2, {"dy*z", "dy*x"}},
    [BF_DIV] = {"/", 2, {"dy/z", "-dy*y/z"}},
    [BF_NEG] = {"neg", 1, {"-dy"}},
    [BF_LT] = {"<", 2, {0}},
    [BF_LE] = {"<=", 2, {0}},
    [BF_GT] = {">", 2, {0}},
    [BF_GE] = {">=", 2, {0}},
    [BF_EQ] = {"==", 2, {0}},
    [BF_NE] = {"~=", 2, {0}},
    [BF_WHERE] = {"where", 3, {NULL, "where(x, dy, 0)", "where(x, 0, dy)"}},
    [BF_EXP] = {"exp", 1, {"dy*y"}},
    [BF_LOG] = {"log", 1, {"dy/x"}},
    [BF_SQRT] = {"sqrt", 1, {"0.5*dy/y"}},
    [BF_RSQRT] = {"rsqrt", 1, {"-0.5*dy*y*y*y"}},
    [BF_TANH] = {"tanh", 1, {"dy*(1 - y*y)"}},
    [BF_SIGMOID] = {"sigmoid", 1, {"dy*(y*(1 - y))"}},
    [BF_ERF] = {"erf", 1, {"dy*(1.12837916709551257*exp(-x*x))"}},
    [BF_SIN] = {"sin", 1, {"dy*cos(x)"}},
    [BF_COS] = {"cos", 1, {"-dy*sin(x)"}},
    [BF_ABS] = {"abs", 1, {"where(x < 0, -dy, dy)"}},
    [BF_MIN] = {"min", 2, {"where(x < z, dy, 0)", "where(x < z, 0, dy)"}},
    [BF_MAX] = {"max", 2, {"where(x > z, dy, 0)", "where(x > z, 0, dy)"}},
    [BF_FLOOR] = {"floor", 1, {0}},
    [BF_UNIT] = {"unit", 1, {0}},
    [BF_NORMAL] = {"normal", 2, {0}},
    [BF_TO_F] = {"f32", 1, {"dy"}},
    [BF_TO_I] = {"i32", 1, {0}},
    [BF_ROUND] = {"round_bf16", 1, {"dy"}},
    [BF_SROUND] = {"sround_bf16", 2, {"dy"}},
    [BF_STOP] = {"stop", 1, {0}},
    [BF_SUM] = {"sum", 1, {"dy"}},
    [BF_ROWMAX] = {"rowmax", 1, {"!"}},
    [BF_ROWMIN] = {"rowmin", 1, {"!"}},
    [BF_LSE] = {"lse", 1, {"dy*exp(x - y)"}},
    [BF_AMAX] = {"amax", 1, {"!"}},
};
static const char *const scalar_names[] = {"step", "lr", "wd", "clip", "gscale"};

const char *body_fn_name(u8 fn)
{
    return fn_table[fn].name;
}

i32 body_fn_find(const char *name)
{
    for (i32 fn = 0; fn < BF_COUNT; fn++) {
        if (strcmp(fn_table[fn].name, name) == 0) {
            return fn;
        }
    }
    return -1;
}

bool body_reduces(u8 fn)
{
    return fn >= BF_SUM && fn <= BF_LSE;
}

/* ---- building: types, dims, simplification, equal nodes -------------------------------------- */

Body *body_new(Graph *g)
{
    Body *b = arena_alloc(g->arena, sizeof *b);
    vec_push(g->arena, &b->node, (BodyNode){0});
    return b;
}

static u32 add0(Graph *g, Body *b, f64 num)
{
    return body_node(g, b, (BodyNode){.fn = BF_CONST, .num = num});
}

static u32 add1(Graph *g, Body *b, u8 fn, u32 x)
{
    return body_node(g, b, (BodyNode){.fn = fn, .arg = {x}});
}

static u32 add2(Graph *g, Body *b, u8 fn, u32 x, u32 z)
{
    return body_node(g, b, (BodyNode){.fn = fn, .arg = {x, z}});
}

static u32 add_sum(Graph *g, Body *b, u32 x, u32 over)
{
    return body_node(g, b, (BodyNode){.fn = BF_SUM, .arg = {x}, .over = over});
}

static bool is_num(const Body *b, u32 id, f64 v)
{
    return b->node.at[id].fn == BF_CONST && b->node.at[id].num == v;
}

/* x*1, x+0, where(constant) and the like; 0: nothing to simplify. */
static u32 simpler(Graph *g, Body *b, const BodyNode *n)
{
    u32 x = n->arg[0], z = n->arg[1], u = n->arg[2];
    const BodyNode *at = b->node.at;
    u8 narg = fn_table[n->fn].narg;
    bool folds = narg && n->fn < BF_UNIT;
    for (u32 i = 0; i < narg; i++) {
        folds = folds && at[n->arg[i]].fn == BF_CONST;
    }
    if (folds) {
        return add0(g, b, body_fn_eval(n, at[x].num, at[z].num, at[u].num));
    }
    switch ((BodyFn)n->fn) {
    case BF_ADD:
        if (at[z].fn == BF_NEG) {
            return add2(g, b, BF_SUB, x, at[z].arg[0]);
        }
        return is_num(b, x, 0) ? z : is_num(b, z, 0) ? x : 0;
    case BF_SUB:
        if (at[z].fn == BF_NEG) {
            return add2(g, b, BF_ADD, x, at[z].arg[0]);
        }
        return is_num(b, z, 0) ? x : is_num(b, x, 0) ? add1(g, b, BF_NEG, z) : 0;
    case BF_MUL:
        if (is_num(b, x, 0) || is_num(b, z, 0)) {
            return add0(g, b, 0);
        }
        if (at[x].fn == BF_NEG || at[z].fn == BF_NEG) {
            bool first = at[x].fn == BF_NEG;
            return add1(g, b, BF_NEG,
                        add2(g, b, BF_MUL, first ? at[x].arg[0] : x, first ? z : at[z].arg[0]));
        }
        if (is_num(b, x, -1) || is_num(b, z, -1)) {
            return add1(g, b, BF_NEG, is_num(b, x, -1) ? z : x);
        }
        return is_num(b, x, 1) ? z : is_num(b, z, 1) ? x : 0;
    case BF_DIV:
        if (at[x].fn == BF_NEG) {
            return add1(g, b, BF_NEG, add2(g, b, BF_DIV, at[x].arg[0], z));
        }
        return is_num(b, z, 1) ? x : is_num(b, x, 0) ? add0(g, b, 0) : 0;
    case BF_NEG:
        return at[x].fn == BF_NEG ? at[x].arg[0] : 0;
    case BF_WHERE:
        if (at[x].fn == BF_CONST) {
            return at[x].num != 0 ? z : u;
        }
        return z == u ? z : 0;
    case BF_STOP:
        return at[x].fn == BF_STOP || at[x].fn == BF_CONST ? x : 0;
    case BF_TO_F:
        return at[x].type == BT_F ? x : 0;
    case BF_TO_I:
        return at[x].type == BT_I ? x : 0;
    default:
        return 0;
    }
}

/* The factors of a product, in order; quotients count their dividend only. */
static void factors(const Body *b, u32 id, u32 *list, u32 *n, u32 cap)
{
    if (b->node.at[id].fn == BF_MUL && *n + 2 < cap) {
        factors(b, b->node.at[id].arg[0], list, n, cap);
        factors(b, b->node.at[id].arg[1], list, n, cap);
        return;
    }
    list[(*n)++] = id;
}

/* sum(a*r) = r*sum(a) for row scalars r, sum(-a), sum(a/r), sum of what does not vary. 0: as it is.
 */
static u32 sum_pull(Graph *g, Body *b, const BodyNode *n)
{
    const BodyNode x = b->node.at[n->arg[0]];
    if (x.fn == BF_CONST && x.num == 0) {
        return n->arg[0];
    }
    if (x.fn == BF_NEG) {
        return add1(g, b, BF_NEG, add_sum(g, b, x.arg[0], n->over));
    }
    if (x.fn == BF_DIV && !(b->node.at[x.arg[1]].dims & n->over)) {
        return add2(g, b, BF_DIV, add_sum(g, b, x.arg[0], n->over), x.arg[1]);
    }
    if (!(x.dims & n->over)) {
        u32 size = body_node(g, b, (BodyNode){.fn = BF_SIZE, .over = n->over});
        return add2(g, b, BF_MUL, n->arg[0], size);
    }
    u32 list[16], count = 0, in = 0, out = 0;
    factors(b, n->arg[0], list, &count, 16);
    for (u32 i = 0; i < count; i++) {
        u32 *to = b->node.at[list[i]].dims & n->over ? &in : &out;
        *to = *to ? add2(g, b, BF_MUL, *to, list[i]) : list[i];
    }
    return out ? add2(g, b, BF_MUL, out, add_sum(g, b, in, n->over)) : 0;
}

static bool node_equal(const BodyNode *a, const BodyNode *b)
{
    bool leaf = a->fn >= BF_INPUT && a->fn <= BF_RAND;
    return a->fn == b->fn && a->to == b->to && a->over == b->over && a->type == b->type &&
           memcmp(&a->num, &b->num, 8) == 0 && memcmp(a->arg, b->arg, sizeof a->arg) == 0 &&
           (!leaf || (a->name == b->name && a->port == b->port));
}

static void convert(Graph *g, Body *b, BodyNode *n, u32 i, u8 type)
{
    const BodyNode *a = &b->node.at[n->arg[i]];
    if (a->type == type) {
        return;
    }
    if (a->fn == BF_CONST && (type == BT_F || a->num == trunc(a->num))) {
        n->arg[i] = body_node(g, b, (BodyNode){.fn = BF_CONST, .type = type, .num = a->num});
    } else if (type == BT_F && a->type == BT_I) {
        n->arg[i] = add1(g, b, BF_TO_F, n->arg[i]);
    }
}

/* Arguments of arithmetic get one type: integers with integers stay so, a constant follows. */
static void infer(Graph *g, Body *b, BodyNode *n)
{
    u32 first = n->fn == BF_WHERE;
    bool arith = (n->fn >= BF_ADD && n->fn <= BF_WHERE) || n->fn == BF_MIN || n->fn == BF_MAX;
    if (arith) {
        bool ints = false, floats = false;
        for (u32 i = first; i < n->narg; i++) {
            const BodyNode *a = &b->node.at[n->arg[i]];
            bool whole = a->fn == BF_CONST && a->num == trunc(a->num);
            ints = ints || (a->type == BT_I && a->fn != BF_CONST);
            floats = floats || (a->type == BT_F && !whole);
        }
        u8 type = ints && !floats && n->fn != BF_DIV ? BT_I : BT_F;
        for (u32 i = first; i < n->narg; i++) {
            convert(g, b, n, i, type);
        }
        n->type = n->fn >= BF_LT && n->fn <= BF_NE ? BT_B : type;
    } else if (n->fn >= BF_EXP) {
        for (u32 i = 0; i < n->narg && n->fn != BF_TO_F && n->fn != BF_UNIT && n->fn != BF_NORMAL;
             i++) {
            if (n->fn != BF_SROUND || i == 0) {
                convert(g, b, n, i, BT_F);
            }
        }
        n->type = n->fn == BF_TO_I ? BT_I : BT_F;
    }
}

u32 body_node(Graph *g, Body *b, BodyNode n)
{
    n.narg = fn_table[n.fn].narg;
    u32 simple = simpler(g, b, &n);
    if (!simple && n.fn == BF_SUM) {
        simple = sum_pull(g, b, &n);
    }
    if (simple) {
        return simple;
    }
    infer(g, b, &n);
    for (u32 i = 0; i < n.narg; i++) {
        n.dims |= b->node.at[n.arg[i]].dims;
    }
    if (body_reduces(n.fn)) {
        n.dims &= ~n.over;
    }
    for (u32 i = 1; i < b->node.n; i++) {
        if (node_equal(&b->node.at[i], &n)) {
            return i;
        }
    }
    vec_push(g->arena, &b->node, n);
    return b->node.n - 1;
}

void body_prune(Graph *g, Body *b)
{
    u32 n = b->node.n;
    u32 *to = arena_alloc(g->arena, n * sizeof *to);
    for (u32 i = 0; i < b->out.n; i++) {
        to[b->out.at[i].node] = 1;
    }
    for (u32 i = n; i-- > 1;) {
        for (u32 k = 0; to[i] && k < b->node.at[i].narg; k++) {
            to[b->node.at[i].arg[k]] = 1;
        }
    }
    to[0] = 0;
    u32 kept = 1;
    for (u32 i = 1; i < n; i++) {
        if (to[i]) {
            BodyNode node = b->node.at[i];
            for (u32 k = 0; k < node.narg; k++) {
                node.arg[k] = to[node.arg[k]];
            }
            to[i] = kept;
            b->node.at[kept++] = node;
        }
    }
    b->node.n = kept;
    for (u32 i = 0; i < b->in.n; i++) {
        b->in.at[i].node = to[b->in.at[i].node];
    }
    for (u32 i = 0; i < b->out.n; i++) {
        b->out.at[i].node = to[b->out.at[i].node];
    }
}

/* ---- parsing --------------------------------------------------------------------------------- */

typedef struct {
    Sym name;
    u32 node;
} Bound;
typedef struct {
    Graph *g;
    Body *b;
    Loc loc;
    const char *text, *p;
    VEC(Bound) bound; /* operands and earlier statements */
} Parse;

static u32 parse_expr(Parse *s);

_Noreturn static void parse_fail(Parse *s, const char *what, const char *arg)
{
    int col = (int)(s->p - s->text);
    fail(s->g, s->loc, E_BODY, "body: %s%s\nnote: %.*s <-- here", what, arg, col, s->text);
}

static void skip(Parse *s)
{
    for (;; s->p++) {
        while (*s->p == '#') {
            s->p += strcspn(s->p, "\n");
        }
        if (!*s->p || !strchr(" \t\r\n", *s->p)) {
            return;
        }
    }
}

static bool take(Parse *s, const char *t)
{
    skip(s);
    size_t n = strlen(t);
    if (strncmp(s->p, t, n) != 0) {
        return false;
    }
    s->p += n;
    return true;
}

static void need(Parse *s, const char *t)
{
    if (!take(s, t)) {
        parse_fail(s, "expected ", t);
    }
}

static bool name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

/* A name, or 0. */
static Sym take_name(Parse *s)
{
    skip(s);
    const char *from = s->p;
    while (name_char(*s->p, s->p == from)) {
        s->p++;
    }
    return s->p == from ? 0 : sym_n(s->g, from, (u64)(s->p - from));
}

static u32 take_dims(Parse *s)
{
    u32 mask = 0;
    for (;;) {
        skip(s);
        Sym name = *s->p >= '0' && *s->p <= '9' ? 0 : take_name(s);
        if (!name) {
            if (!mask) {
                parse_fail(s, "expected a dim", "");
            }
            return mask;
        }
        u32 i = 0;
        while (i < s->b->ndim && s->b->dim[i].name != name) {
            i++;
        }
        if (i == s->b->ndim) {
            parse_fail(s, "no operand has the dim ", sym_str(s->g, name));
        }
        mask |= 1u << i;
    }
}

/* Reductions run over inner dims: whatever varies inside of a reduced dim is reduced too. */
static u32 parse_reduce(Parse *s, u8 fn, bool mean)
{
    u32 x = parse_expr(s);
    need(s, ",");
    u32 over = take_dims(s), inner = s->b->node.at[x].dims;
    u32 low = over & (~over + 1);
    if ((inner & ~over) > low) {
        parse_fail(s, body_fn_name(fn), ": only inner dims can be reduced; transpose first");
    }
    if (s->b->node.at[x].type != BT_F) {
        x = add1(s->g, s->b, BF_TO_F, x);
    }
    u32 y = body_node(s->g, s->b, (BodyNode){.fn = fn, .arg = {x}, .over = over});
    u32 size = mean ? body_node(s->g, s->b, (BodyNode){.fn = BF_SIZE, .over = over}) : 0;
    return mean ? add2(s->g, s->b, BF_DIV, y, size) : y;
}

static u32 parse_leaf_call(Parse *s, const char *f)
{
    BodyNode n = {0};
    if (strcmp(f, "index") == 0 || strcmp(f, "size") == 0) {
        n.over = take_dims(s);
        n.fn = *f == 'i' ? BF_INDEX : BF_SIZE;
        n.type = *f == 'i' ? BT_I : BT_F;
        n.dims = *f == 'i' ? n.over : 0;
        return body_node(s->g, s->b, n);
    }
    n.dims = (1u << s->b->ndim) - 1;
    n.name = take_name(s);
    n.fn = BF_GROUP;
    if (*f == 'r') {
        n.fn = BF_RAND;
        n.type = BT_U;
        if (take(s, ",")) {
            skip(s);
            n.port = (u32)strtoul(s->p, (char **)(uintptr_t)&s->p, 10);
        }
        if (n.port > 3) {
            parse_fail(s, "a block has four words: rand(site, 0..3)", "");
        }
    }
    if (!n.name) {
        parse_fail(s, "expected a name", "");
    }
    return body_node(s->g, s->b, n);
}

static u32 parse_fn(Parse *s, u8 fn)
{
    BodyNode n = {.fn = fn, .to = fn == BF_ROUND ? DT_BF16 : 0};
    for (u32 i = 0; i < fn_table[fn].narg; i++) {
        if (i) {
            need(s, ",");
        }
        n.arg[i] = parse_expr(s);
    }
    const BodyNode *at = s->b->node.at;
    if (fn == BF_WHERE && at[n.arg[0]].type != BT_B && at[n.arg[0]].fn != BF_CONST) {
        parse_fail(s, "where: the first argument is a comparison", "");
    }
    if ((fn == BF_UNIT || fn == BF_NORMAL) && at[n.arg[0]].type != BT_U) {
        parse_fail(s, body_fn_name(fn), ": takes rand(site)");
    }
    return body_node(s->g, s->b, n);
}

static u32 parse_call(Parse *s, Sym name)
{
    const char *f = sym_str(s->g, name);
    u32 y = 0;
    if (strcmp(f, "index") == 0 || strcmp(f, "size") == 0 || strcmp(f, "rand") == 0 ||
        strcmp(f, "group") == 0) {
        y = parse_leaf_call(s, f);
    } else if (strcmp(f, "mean") == 0) {
        y = parse_reduce(s, BF_SUM, true);
    } else if (strcmp(f, "total") == 0) {
        y = parse_expr(s); /* the sum itself is the output that lacks all dims */
    } else if (strcmp(f, "clamp") == 0) {
        u32 x = parse_expr(s);
        need(s, ",");
        u32 lo = parse_expr(s);
        need(s, ",");
        y = add2(s->g, s->b, BF_MIN, add2(s->g, s->b, BF_MAX, x, lo), parse_expr(s));
    } else {
        u8 fn = BF_WHERE;
        while (fn < BF_COUNT && strcmp(fn_table[fn].name, f) != 0) {
            fn++;
        }
        if (fn == BF_COUNT) {
            parse_fail(s, "no function ", f);
        }
        y = body_reduces(fn) ? parse_reduce(s, fn, false) : parse_fn(s, fn);
    }
    need(s, ")");
    return y;
}

static u32 parse_name(Parse *s, Sym name)
{
    for (u32 i = s->bound.n; i-- > 0;) {
        if (s->bound.at[i].name == name) {
            return s->bound.at[i].node;
        }
    }
    BodyNode n = {.fn = BF_ATTR, .name = name};
    for (u32 i = 0; i < sizeof scalar_names / sizeof *scalar_names; i++) {
        if (strcmp(scalar_names[i], sym_str(s->g, name)) == 0) {
            n.fn = BF_SCALAR;
        }
    }
    return body_node(s->g, s->b, n);
}

static u32 parse_atom(Parse *s)
{
    skip(s);
    if ((*s->p >= '0' && *s->p <= '9') || *s->p == '.') {
        char *end = NULL;
        f64 v = strtod(s->p, &end);
        if (end == s->p) {
            parse_fail(s, "bad number", "");
        }
        s->p = end;
        return add0(s->g, s->b, v);
    }
    if (take(s, "(")) {
        u32 x = parse_expr(s);
        need(s, ")");
        return x;
    }
    Sym name = take_name(s);
    if (!name) {
        parse_fail(s, "expected a number, a name or (", "");
    }
    return take(s, "(") ? parse_call(s, name) : parse_name(s, name);
}

static u32 parse_unary(Parse *s)
{
    return take(s, "-") ? add1(s->g, s->b, BF_NEG, parse_atom(s)) : parse_atom(s);
}

static u32 parse_term(Parse *s)
{
    u32 x = parse_unary(s);
    for (;;) {
        u8 fn = take(s, "*") ? BF_MUL : take(s, "/") ? BF_DIV : BF_NONE;
        if (!fn) {
            return x;
        }
        x = add2(s->g, s->b, fn, x, parse_unary(s));
    }
}

static u32 parse_sum(Parse *s)
{
    u32 x = parse_term(s);
    for (;;) {
        u8 fn = take(s, "+") ? BF_ADD : take(s, "-") ? BF_SUB : BF_NONE;
        if (!fn) {
            return x;
        }
        x = add2(s->g, s->b, fn, x, parse_term(s));
    }
}

static u32 parse_expr(Parse *s)
{
    static const u8 order[] = {BF_LE, BF_GE, BF_EQ, BF_NE, BF_LT, BF_GT}; /* long ones first */
    u32 x = parse_sum(s);
    for (u32 i = 0; i < sizeof order; i++) {
        if (take(s, fn_table[order[i]].name)) {
            return add2(s->g, s->b, order[i], x, parse_sum(s));
        }
    }
    return x;
}

/* Dims of the row space, outermost first: "..", then each operand's in turn, a new one after its
 * neighbour. */
static void collect_dims(Graph *g, Loc loc, Body *b, const SigPort *p)
{
    u32 at = 0;
    for (u32 k = 0; k < p->n; k++) {
        Sym name = p->dim[k].part[0];
        if (p->dim[k].n != 1) {
            fail(g, loc, E_BODY, "body: %s has a merged dim; a body needs its parts",
                 sym_str(g, p->name));
        }
        u32 i = 0;
        while (i < b->ndim && b->dim[i].name != name) {
            i++;
        }
        if (i == b->ndim) {
            if (b->ndim == 2 * RANK_MAX) {
                fail(g, loc, E_BODY, "body: more than %d dims", 2 * RANK_MAX);
            }
            memmove(&b->dim[at + 1], &b->dim[at], (b->ndim - at) * sizeof b->dim[0]);
            b->dim[at].name = name;
            b->ndim++;
            i = at;
        }
        at = i + 1;
    }
}

static BodyPort port_of(const Body *b, const SigPort *p)
{
    BodyPort port = {.name = p->name, .dtype = p->dtype, .saved = p->saved, .rank = p->n};
    for (u32 k = 0; k < p->n; k++) {
        u32 i = 0;
        while (b->dim[i].name != p->dim[k].part[0]) {
            i++;
        }
        port.axis[k] = (u8)i;
        port.dims |= 1u << i;
    }
    return port;
}

static u8 type_of(u8 dtype)
{
    return dtype >= DT_I64 && dtype <= DT_BOOL ? BT_I : BT_F;
}

static void parse_stat(Parse *s)
{
    Sym name = take_name(s);
    if (!name) {
        parse_fail(s, "expected name = expression", "");
    }
    for (u32 i = 0; i < s->bound.n; i++) {
        if (s->bound.at[i].name == name) {
            parse_fail(s, "assigned twice or an operand: ", sym_str(s->g, name));
        }
    }
    if (take(s, "[")) { /* column sums are printed with their dims */
        s->p += strcspn(s->p, "]");
        need(s, "]");
    }
    need(s, "=");
    u32 y = parse_expr(s);
    BodyNode *n = &s->b->node.at[y];
    if (!n->name && n->fn > BF_RAND) {
        n->name = name;
    }
    vec_push(s->g->arena, &s->bound, (Bound){name, y});
}

Body *body_parse(Graph *g, Loc loc, const Sig *sig, const char *text)
{
    Body *b = body_new(g);
    Parse s = {.g = g, .b = b, .loc = loc, .text = text, .p = text};
    b->text = sym(g, text);
    for (u32 i = 0; i < sig->in.n; i++) {
        collect_dims(g, loc, b, &sig->in.at[i]);
    }
    for (u32 i = 0; i < sig->out.n; i++) {
        collect_dims(g, loc, b, &sig->out.at[i]);
    }
    for (u32 i = 0; i < sig->in.n; i++) {
        BodyPort port = port_of(b, &sig->in.at[i]);
        port.node = body_node(g, b,
                              (BodyNode){.fn = BF_INPUT,
                                         .type = type_of(port.dtype),
                                         .dims = port.dims,
                                         .name = port.name,
                                         .port = i});
        vec_push(g->arena, &s.bound, (Bound){port.name, port.node});
        vec_push(g->arena, &b->in, port);
    }
    do {
        skip(&s);
        if (*s.p) {
            parse_stat(&s);
        }
    } while (take(&s, ";"));
    skip(&s);
    if (*s.p) {
        parse_fail(&s, "expected ; or the end", "");
    }
    for (u32 i = 0; i < sig->out.n; i++) {
        BodyPort port = port_of(b, &sig->out.at[i]);
        for (u32 k = sig->in.n; k < s.bound.n; k++) {
            port.node = s.bound.at[k].name == port.name ? s.bound.at[k].node : port.node;
        }
        if (!port.node) {
            parse_fail(&s, "no statement gives the result ", sym_str(g, port.name));
        }
        vec_push(g->arena, &b->out, port);
    }
    body_prune(g, b);
    return b;
}

/* ---- derivation ------------------------------------------------------------------------------ */

typedef struct {
    Graph *g;
    Body *b;    /* forward slice + adjoints */
    u32 *adj;   /* of each node of the forward slice; 0: nothing yet */
    bool outer; /* dim 0 is never reduced: sums over it are left to the result */
} Derive;

/* Sum what a contribution varies along beyond its node, as far as those dims are innermost. Leading
 * dims are left alone: the rest of the chain is constant along them, so that one column sum at the
 * operand does. */
static u32 sum_inner(Derive *d, u32 x, u32 dims)
{
    u32 extra = d->b->node.at[x].dims & ~dims, over = 0;
    for (u32 i = d->b->ndim; i-- > (d->outer ? 1u : 0u);) {
        u32 bit = 1u << i;
        if (d->b->node.at[x].dims & bit & ~extra) {
            break;
        }
        over |= extra & bit;
    }
    return over ? add_sum(d->g, d->b, x, over) : x;
}

static u32 rule(Derive *d, u32 id, u32 i, u32 dy)
{
    const BodyNode n = d->b->node.at[id];
    const char *text = fn_table[n.fn].d[i];
    if (!text) {
        return 0;
    }
    if (*text == '!') {
        fail(d->g, (Loc){0}, E_BODY, "body: %s has no derivative; write stop(%s(...))\nnote: in %s",
             body_fn_name(n.fn), body_fn_name(n.fn), sym_str(d->g, d->b->text));
    }
    Parse s = {.g = d->g, .b = d->b, .text = text, .p = text};
    static const char *const names[] = {"x", "z", "u"};
    for (u32 k = 0; k < n.narg; k++) {
        vec_push(d->g->arena, &s.bound, (Bound){sym(d->g, names[k]), n.arg[k]});
    }
    vec_push(d->g->arena, &s.bound, (Bound){sym(d->g, "y"), id});
    vec_push(d->g->arena, &s.bound, (Bound){sym(d->g, "dy"), dy});
    return parse_expr(&s);
}

/* The forward statements in a new body. map: old node -> new. */
static void forward_slice(Derive *d, const Body *f, u32 *map)
{
    for (u32 i = 1; i < f->node.n; i++) {
        BodyNode n = f->node.at[i];
        for (u32 k = 0; k < n.narg; k++) {
            n.arg[k] = map[n.arg[k]];
        }
        n.dims = n.narg ? 0 : n.dims;
        map[i] = body_node(d->g, d->b, n);
    }
}

/* The same body, saved results of the forward read instead of computed. map: forward node -> node
 * of b. */
static Body *read_saved(Graph *g, const Body *b, const Body *f, const u32 *map)
{
    Body *r = body_new(g);
    r->text = b->text;
    r->ndim = b->ndim;
    memcpy(r->dim, b->dim, sizeof b->dim);
    u32 *to = arena_alloc(g->arena, b->node.n * sizeof *to);
    for (u32 i = 1; i < b->node.n; i++) {
        BodyNode n = b->node.at[i];
        for (u32 k = 0; k < f->out.n; k++) {
            const BodyPort *p = &f->out.at[k];
            if (p->saved && map[p->node] == i) {
                n = (BodyNode){.fn = BF_INPUT,
                               .type = n.type,
                               .dims = p->dims,
                               .name = p->name,
                               .port = f->in.n + k};
            }
        }
        for (u32 k = 0; k < n.narg; k++) {
            n.arg[k] = to[n.arg[k]];
        }
        n.dims = n.narg ? 0 : n.dims;
        to[i] = body_node(g, r, n);
    }
    for (u32 i = 0; i < b->out.n; i++) {
        vec_push(g->arena, &r->out, b->out.at[i]);
        r->out.at[i].node = to[b->out.at[i].node];
    }
    return r;
}

static Sym d_name(Graph *g, const Body *f, Sym name)
{
    Sym s = sym_fmt(g, "d%s", sym_str(g, name));
    for (u32 i = 0; i < f->in.n; i++) {
        s = f->in.at[i].name == s ? sym_fmt(g, "d_%s", sym_str(g, name)) : s;
    }
    return s;
}

static void seed(Derive *d, const Body *f, const u32 *map)
{
    for (u32 k = 0; k < f->out.n; k++) {
        const BodyPort *p = &f->out.at[k];
        if (p->saved || f->node.at[p->node].type != BT_F) {
            continue;
        }
        u32 dy = body_node(d->g, d->b,
                           (BodyNode){.fn = BF_INPUT,
                                      .dims = p->dims,
                                      .name = d_name(d->g, f, p->name),
                                      .port = f->in.n + f->out.n + k});
        u32 *a = &d->adj[map[p->node]];
        *a = *a ? add2(d->g, d->b, BF_ADD, *a, dy) : dy;
    }
}

static void reverse(Derive *d, u32 n)
{
    for (u32 i = n; i-- > 1;) {
        u32 dy = d->adj[i];
        if (!dy) {
            continue;
        }
        for (u32 k = 0; k < d->b->node.at[i].narg; k++) {
            u32 arg = d->b->node.at[i].arg[k];
            u32 c = d->b->node.at[arg].fn == BF_CONST ? 0 : rule(d, i, k, dy);
            if (c) {
                c = sum_inner(d, c, d->b->node.at[arg].dims);
                d->adj[arg] = d->adj[arg] ? add2(d->g, d->b, BF_ADD, d->adj[arg], c) : c;
            }
        }
    }
}

static Sig *sig_of(Graph *g, const Body *b)
{
    Sig *sig = arena_alloc(g->arena, sizeof *sig);
    for (u32 io = 0; io < 2; io++) {
        const BodyPort *at = io ? b->out.at : b->in.at;
        for (u32 i = 0; i < (io ? b->out.n : b->in.n); i++) {
            SigPort p = {.name = at[i].name, .dtype = at[i].dtype, .n = at[i].rank};
            for (u32 k = 0; k < at[i].rank; k++) {
                p.dim[k].part[0] = b->dim[at[i].axis[k]].name;
                p.dim[k].n = 1;
            }
            if (io) {
                vec_push(g->arena, &sig->out, p);
            } else {
                vec_push(g->arena, &sig->in, p);
            }
        }
    }
    return sig;
}

/* Keep the inputs that the derivative reads, in the order operands, saved results, cotangents. */
static void keep_inputs(Graph *g, Body *b, const Body *f, Op *op)
{
    body_prune(g, b);
    for (u32 at = 0; at < f->in.n + 2 * f->out.n; at++) {
        for (u32 i = 1; i < b->node.n; i++) {
            BodyNode *n = &b->node.at[i];
            if (n->fn != BF_INPUT || n->port != at) {
                continue;
            }
            u32 j = at - f->in.n;
            BodyPort p = at < f->in.n ? f->in.at[at] : f->out.at[j % f->out.n];
            p.name = n->name;
            p.saved = false;
            p.node = i;
            vec_push(g->arena, &b->in, p);
            vec_push(g->arena, &op->from, (u16)at);
        }
    }
    for (u32 i = 0; i < b->in.n; i++) {
        b->node.at[b->in.at[i].node].port = i;
    }
}

static void name_adjoints(Derive *d, const Body *f, const u32 *map)
{
    for (u32 i = 1; i < f->node.n; i++) {
        u32 a = f->node.at[i].name && f->node.at[i].fn > BF_RAND ? d->adj[map[i]] : 0;
        if (a && d->b->node.at[a].fn > BF_RAND && !d->b->node.at[a].name) {
            d->b->node.at[a].name = sym_fmt(d->g, "d%s", sym_str(d->g, f->node.at[i].name));
        }
    }
}

/* NAME.bwd, or NAME.bwd.x.y if only the cotangents of x and y are wanted. */
static Sym derived_name(Graph *g, u32 op, u64 want, bool *all)
{
    const Body *f = g->op.at[op].body;
    Text t = {0};
    text_fmt(g->arena, &t, "%s.bwd", sym_str(g, g->op.at[op].name));
    Sym full = sym(g, text_str(g->arena, &t));
    *all = true;
    for (u32 i = 0; i < f->in.n; i++) {
        if (type_of(f->in.at[i].dtype) != BT_F) {
            continue;
        }
        if (want >> i & 1) {
            text_fmt(g->arena, &t, ".%s", sym_str(g, f->in.at[i].name));
        } else {
            *all = false;
        }
    }
    return *all ? full : sym(g, text_str(g->arena, &t));
}

u32 body_derive(Graph *g, u32 op)
{
    return body_derive_for(g, op, ~0ull);
}

u32 body_derive_for(Graph *g, u32 op, u64 want)
{
    const Body *f = g->op.at[op].body;
    assert(f && "only ops with a body are derived");
    bool all;
    Sym name = derived_name(g, op, want, &all);
    u32 known = all ? g->op.at[op].bwd : op_find(g, sym_str(g, name));
    if (known) {
        return known;
    }
    Derive d = {.g = g, .b = body_new(g), .outer = true};
    d.b->text = f->text;
    d.b->ndim = f->ndim;
    memcpy(d.b->dim, f->dim, sizeof f->dim);
    for (u32 i = 1; i < f->node.n; i++) {
        d.outer = d.outer && !(body_reduces(f->node.at[i].fn) && (f->node.at[i].over & 1));
    }
    u32 *map = arena_alloc(g->arena, f->node.n * sizeof *map);
    forward_slice(&d, f, map);
    u32 n = d.b->node.n;
    d.adj = arena_alloc(g->arena, n * sizeof *d.adj);
    seed(&d, f, map);
    reverse(&d, n);
    name_adjoints(&d, f, map);
    Op bwd = {.name = name,
              .loc = g->op.at[op].loc,
              .flags = OF_BODY | OF_NOGRAD,
              .doc = g->op.at[op].doc};
    for (u32 i = 0; i < f->in.n; i++) {
        if (type_of(f->in.at[i].dtype) != BT_F || !(want >> i & 1)) {
            continue;
        }
        BodyPort p = f->in.at[i];
        u32 a = d.adj[map[f->in.at[i].node]];
        p.name = d_name(g, f, p.name);
        p.node = a ? a : add0(g, d.b, 0);
        vec_push(g->arena, &d.b->out, p);
        vec_push(g->arena, &bwd.to, (u16)i);
    }
    d.b = read_saved(g, d.b, f, map);
    keep_inputs(g, d.b, f, &bwd);
    Text t = {0};
    body_print(g, d.b, &t);
    d.b->text = sym(g, text_str(g->arena, &t));
    bwd.body = d.b;
    bwd.body_text = d.b->text;
    bwd.sig = sig_of(g, d.b);
    vec_push(g->arena, &g->op, bwd);
    g->op.at[op].bwd = all ? g->op.n - 1 : g->op.at[op].bwd;
    return g->op.n - 1;
}

/* The derived op of this name, "rope.bwd" or "rope.bwd.x1.x2", made if it is not there; 0 = no
 * such. */
u32 body_derived(Graph *g, const char *name)
{
    const char *at = strstr(name, ".bwd");
    u32 op = at ? op_find(g, sym_str(g, sym_n(g, name, (u64)(at - name)))) : 0;
    if (!op || !g->op.at[op].body || (at[4] && at[4] != '.')) {
        return 0;
    }
    u64 want = at[4] ? 0 : ~0ull;
    for (const char *p = at + 4; *p;) {
        const char *end = strchr(p + 1, '.');
        u64 n = end ? (u64)(end - p) - 1 : strlen(p + 1);
        i32 i = sig_in(g->op.at[op].sig, sym_n(g, p + 1, n));
        if (i < 0) {
            return 0;
        }
        want |= 1ull << i;
        p += n + 1;
    }
    u32 made = body_derive_for(g, op, want);
    return strcmp(sym_str(g, g->op.at[made].name), name) == 0 ? made : 0;
}

/* ---- binding to a node ----------------------------------------------------------------------- */

typedef struct {
    u32 count, first[2 * RANK_MAX], n[2 * RANK_MAX]; /* op dim -> bound dims */
} Spread;

static u32 spread_mask(const Spread *s, u32 dims)
{
    u32 m = 0;
    for (u32 i = 0; i < s->count; i++) {
        if (dims & (1u << i)) {
            m |= ((1u << s->n[i]) - 1) << s->first[i];
        }
    }
    return m;
}

/* The real dims behind each dim of the op, from the operands and results that have it; ".." is what
 * is left. */
static void bind_dims(Graph *g, u32 node, const Body *f, Body *b, Spread *s)
{
    const Node *nd = &g->node.at[node];
    u32 real[2 * RANK_MAX][RANK_MAX];
    bool seen[2 * RANK_MAX] = {0};
    s->count = f->ndim;
    for (u32 k = 0; k < f->in.n + f->out.n; k++) {
        bool in = k < f->in.n;
        const BodyPort *p = in ? &f->in.at[k] : &f->out.at[k - f->in.n];
        const Type *t = &g->value.at[in ? g->arg.at[nd->in + k] : nd->out + k - f->in.n].type;
        u32 at = 0;
        for (u32 i = 0; i < p->rank; i++) {
            u32 dim = p->axis[i];
            bool any = strcmp(sym_str(g, f->dim[dim].name), "..") == 0;
            u32 n = any ? (u32)t->rank - (p->rank - 1u) : 1;
            assert(t->rank + 1u >= p->rank && at + n <= t->rank && "sig_infer has checked ranks");
            if (!seen[dim]) {
                memcpy(real[dim], &t->dim[at], n * sizeof t->dim[0]);
                s->n[dim] = n;
                seen[dim] = true;
            }
            at += n;
        }
    }
    for (u32 i = 0; i < f->ndim; i++) {
        s->first[i] = b->ndim;
        for (u32 k = 0; k < s->n[i]; k++) {
            assert(b->ndim < 2 * RANK_MAX);
            b->dim[b->ndim].dim = real[i][k];
            b->dim[b->ndim++].name = g->dim.at[real[i][k]].name;
        }
    }
}

static BodyPort bind_port(Graph *g, const Spread *s, const BodyPort *p, u32 value)
{
    BodyPort q = *p;
    q.dtype = g->value.at[value].type.dtype;
    q.dims = spread_mask(s, p->dims);
    q.rank = 0;
    for (u32 i = 0; i < p->rank; i++) {
        for (u32 k = 0; k < s->n[p->axis[i]]; k++) {
            q.axis[q.rank++] = (u8)(s->first[p->axis[i]] + k);
        }
    }
    return q;
}

/* An attribute's number; the site of a rand node by module path, so that forward and backward
 * agree. */
static BodyNode bind_leaf(Graph *g, u32 node, const Spread *s, const Body *b, BodyNode n)
{
    if (n.fn == BF_ATTR) {
        const Attr *a = node_attr(g, node, sym_str(g, n.name));
        if (!a || (a->kind != AT_INT && a->kind != AT_NUM)) {
            fail(g, g->node.at[node].loc, E_BODY,
                 "%s: no number given for `%s`, which its body names",
                 sym_str(g, g->op.at[g->node.at[node].op].name), sym_str(g, n.name));
        }
        return (BodyNode){.fn = BF_CONST, .num = a->kind == AT_INT ? (f64)a->i : a->num};
    }
    if (n.fn == BF_SIZE) {
        f64 size = 1;
        u32 over = spread_mask(s, n.over);
        for (u32 i = 0; i < b->ndim; i++) {
            size *= over & (1u << i) ? (f64)g->dim.at[b->dim[i].dim].size : 1;
        }
        return (BodyNode){.fn = BF_CONST, .num = size};
    }
    if (n.fn == BF_RAND) {
        const Attr *a = node_attr(g, node, "site");
        Sym path = a && a->kind == AT_SYM ? a->sym : g->node.at[node].path;
        n.name = sym_fmt(g, "%s/%s", sym_str(g, path), sym_str(g, n.name));
    }
    n.dims = spread_mask(s, n.dims);
    n.over = spread_mask(s, n.over);
    return n;
}

bool body_has_rand(const Body *b)
{
    for (u32 i = 1; i < b->node.n; i++) {
        if (b->node.at[i].fn == BF_RAND)
            return true;
    }
    return false;
}

Body *body_bind(Graph *g, u32 node)
{
    const Body *f = g->op.at[g->node.at[node].op].body;
    assert(f && f->in.n == g->node.at[node].nin);
    Body *b = body_new(g);
    Spread s = {0};
    b->text = f->text;
    bind_dims(g, node, f, b, &s);
    u32 *map = arena_alloc(g->arena, f->node.n * sizeof *map);
    for (u32 i = 1; i < f->node.n; i++) {
        BodyNode n = bind_leaf(g, node, &s, b, f->node.at[i]);
        for (u32 k = 0; k < n.narg; k++) {
            n.arg[k] = map[n.arg[k]];
        }
        n.dims = n.narg ? 0 : n.dims;
        map[i] = body_node(g, b, n);
    }
    for (u32 i = 0; i < f->in.n; i++) {
        BodyPort p = bind_port(g, &s, &f->in.at[i], g->arg.at[g->node.at[node].in + i]);
        p.node = map[p.node];
        vec_push(g->arena, &b->in, p);
    }
    for (u32 i = 0; i < f->out.n; i++) {
        BodyPort p = bind_port(g, &s, &f->out.at[i], g->node.at[node].out + i);
        p.node = map[p.node];
        vec_push(g->arena, &b->out, p);
    }
    return b;
}
