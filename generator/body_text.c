/* body_text.c: a body as statements, and its value over small arrays: the oracle of the printed
 * kernels.
 *
 * The interpreter works in f64 on dense row-major arrays and draws the same random words as
 * generated code.
 */
#include "megagen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------ */

typedef struct {
    Graph *g;
    const Body *b;
    Text *t;
    u32 *uses;
    Sym *name; /* of nodes with a statement of their own */
} Print;

static void print_expr(Print *p, u32 id, u32 level);

static void print_dims(Print *p, u32 dims)
{
    const char *gap = "";
    for (u32 i = 0; i < p->b->ndim; i++) {
        if (dims & (1u << i)) {
            text_fmt(p->g->arena, p->t, "%s%s", gap, sym_str(p->g, p->b->dim[i].name));
            gap = " ";
        }
    }
}

static u32 level_of(u8 fn)
{
    return fn >= BF_LT && fn <= BF_NE     ? 1
           : fn == BF_ADD || fn == BF_SUB ? 2
           : fn == BF_MUL || fn == BF_DIV ? 3
           : fn == BF_NEG                 ? 4
                                          : 5;
}

/* The shortest decimal that reads back to v. */
static const char *shortest(Graph *g, f64 v)
{
    for (int digits = 1; digits < 17; digits++) {
        const char *s = arena_fmt(g->arena, "%.*g", digits, v);
        if (strtod(s, NULL) == v) {
            return s;
        }
    }
    return arena_fmt(g->arena, "%.17g", v);
}

static void print_leaf(Print *p, const BodyNode *n)
{
    Arena *a = p->g->arena;
    if (n->fn == BF_CONST) {
        text_fmt(a, p->t, n->num < 0 ? "(%s)" : "%s", shortest(p->g, n->num));
    } else if (n->fn == BF_INDEX || n->fn == BF_SIZE) {
        text_fmt(a, p->t, "%s(", body_fn_name(n->fn));
        print_dims(p, n->over);
        text_put(a, p->t, ")");
    } else if (n->fn == BF_RAND && n->port) {
        text_fmt(a, p->t, "rand(%s, %u)", sym_str(p->g, n->name), n->port);
    } else if (n->fn == BF_RAND || n->fn == BF_GROUP) {
        text_fmt(a, p->t, "%s(%s)", body_fn_name(n->fn), sym_str(p->g, n->name));
    } else {
        text_put(a, p->t, sym_str(p->g, n->name));
    }
}

static void print_node(Print *p, u32 id, u32 level)
{
    Arena *a = p->g->arena;
    const BodyNode *n = &p->b->node.at[id];
    u32 own = level_of(n->fn);
    if (n->fn <= BF_RAND) {
        print_leaf(p, n);
    } else if (own == 5) {
        text_fmt(a, p->t, "%s(",
                 n->fn == BF_ROUND && n->to == DT_F32 ? "round_f32" : body_fn_name(n->fn));
        for (u32 i = 0; i < n->narg; i++) {
            text_put(a, p->t, i ? ", " : "");
            print_expr(p, n->arg[i], 0);
        }
        if (n->over) {
            text_put(a, p->t, ", ");
            print_dims(p, n->over);
        }
        text_put(a, p->t, ")");
    } else {
        text_put(a, p->t, own < level ? "(" : "");
        if (n->narg == 1) {
            text_put(a, p->t, "-");
            print_expr(p, n->arg[0], 5);
        } else {
            print_expr(p, n->arg[0], own);
            text_fmt(a, p->t, own == 3 ? "%s" : " %s ", body_fn_name(n->fn));
            print_expr(p, n->arg[1], own + 1);
        }
        text_put(a, p->t, own < level ? ")" : "");
    }
}

static void print_expr(Print *p, u32 id, u32 level)
{
    if (p->name[id]) {
        text_put(p->g->arena, p->t, sym_str(p->g, p->name[id]));
    } else {
        print_node(p, id, level);
    }
}

static bool name_used(const Print *p, Sym name)
{
    for (u32 i = 0; i < p->b->in.n; i++) {
        if (p->b->in.at[i].name == name) {
            return true;
        }
    }
    for (u32 i = 0; i < p->b->out.n; i++) {
        if (p->b->out.at[i].name == name) {
            return true;
        }
    }
    for (u32 i = 1; i < p->b->node.n; i++) {
        if (p->name[i] == name) {
            return true;
        }
    }
    return false;
}

/* Statements: results, what the source named, what is used twice, reductions. */
static void choose_names(Print *p)
{
    u32 t = 0;
    for (u32 i = 0; i < p->b->out.n; i++) {
        const BodyPort *o = &p->b->out.at[i];
        bool sum = (p->b->node.at[o->node].dims & ~o->dims) != 0;
        if (!sum && p->b->node.at[o->node].fn > BF_RAND && !p->name[o->node]) {
            p->name[o->node] = o->name;
        }
    }
    for (u32 i = 1; i < p->b->node.n; i++) {
        const BodyNode *n = &p->b->node.at[i];
        bool own = n->name || p->uses[i] > 1 || body_reduces(n->fn);
        if (n->fn <= BF_RAND || p->name[i] || !own) {
            continue;
        }
        Sym s = n->name;
        while (!s || name_used(p, s)) {
            s = n->name ? sym_fmt(p->g, "%s_%u", sym_str(p->g, n->name), ++t)
                        : sym_fmt(p->g, "t%u", ++t);
        }
        p->name[i] = s;
    }
}

static Print print_new(Graph *g, const Body *b, Text *out)
{
    Print p = {.g = g, .b = b, .t = out};
    p.uses = arena_alloc(g->arena, b->node.n * sizeof *p.uses);
    p.name = arena_alloc(g->arena, b->node.n * sizeof *p.name);
    for (u32 i = 1; i < b->node.n; i++) {
        for (u32 k = 0; k < b->node.at[i].narg; k++) {
            p.uses[b->node.at[i].arg[k]]++;
        }
    }
    choose_names(&p);
    return p;
}

const Sym *body_names(Graph *g, const Body *b)
{
    return print_new(g, b, NULL).name;
}

void body_print(Graph *g, const Body *b, Text *out)
{
    Print p = print_new(g, b, out);
    for (u32 i = 1; i < b->node.n; i++) {
        if (p.name[i]) {
            text_fmt(g->arena, out, "%s = ", sym_str(g, p.name[i]));
            print_node(&p, i, 0);
            text_put(g->arena, out, ";\n");
        }
    }
    for (u32 i = 0; i < b->out.n; i++) {
        const BodyPort *o = &b->out.at[i];
        bool sum = (b->node.at[o->node].dims & ~o->dims) != 0;
        if ((p.name[o->node] == o->name && !sum) || !o->node) {
            continue; /* has its line, or is a partial buffer */
        }
        text_put(g->arena, out, sym_str(g, o->name));
        if (sum) {
            text_put(g->arena, out, "[");
            print_dims(&p, o->dims);
            text_put(g->arena, out, "]");
        }
        text_put(g->arena, out, " = ");
        print_expr(&p, o->node, 0);
        text_put(g->arena, out, ";\n");
    }
}

/* ---- interpreter ----------------------------------------------------------------------------- */

static f64 round_to(f64 v, u8 dtype)
{
    float f = (float)v;
    u32 u;
    if (dtype == DT_F32) {
        return (f64)f;
    }
    if (dtype != DT_BF16 || v != v) {
        return v;
    }
    memcpy(&u, &f, 4);
    u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000;
    memcpy(&f, &u, 4);
    return (f64)f;
}

f64 body_fn_eval(const BodyNode *n, f64 x, f64 z, f64 u)
{
    switch ((BodyFn)n->fn) {
    case BF_ADD:
        return x + z;
    case BF_SUB:
        return x - z;
    case BF_MUL:
        return x * z;
    case BF_DIV:
        return x / z;
    case BF_NEG:
        return -x;
    case BF_LT:
        return x < z;
    case BF_LE:
        return x <= z;
    case BF_GT:
        return x > z;
    case BF_GE:
        return x >= z;
    case BF_EQ:
        return x == z;
    case BF_NE:
        return x != z;
    case BF_WHERE:
        return x != 0 ? z : u;
    case BF_EXP:
        return exp(x);
    case BF_LOG:
        return log(x);
    case BF_SQRT:
        return sqrt(x);
    case BF_RSQRT:
        return 1 / sqrt(x);
    case BF_TANH:
        return tanh(x);
    case BF_SIGMOID:
        return 1 / (1 + exp(-x));
    case BF_ERF:
        return erf(x);
    case BF_SIN:
        return sin(x);
    case BF_COS:
        return cos(x);
    case BF_ABS:
        return fabs(x);
    case BF_MIN:
        return x < z ? x : z;
    case BF_MAX:
        return x > z ? x : z;
    case BF_FLOOR:
        return floor(x);
    case BF_UNIT:
        return floor(x / 256) * 0x1p-24;
    case BF_NORMAL:
        return sqrt(-2 * log(floor(x / 256) * 0x1p-24 + 0x1p-24)) *
               cos(2 * M_PI * (floor(z / 256) * 0x1p-24));
    case BF_TO_I:
        return trunc(x);
    case BF_ROUND:
        return round_to(x, n->to);
    default:
        return x;
    }
}

typedef struct {
    const Body *b;
    const i64 *size;
    f64 **val; /* of each node, dense over its own dims */
} Eval;

static i64 count(const Eval *e, u32 dims)
{
    i64 n = 1;
    for (u32 i = 0; i < e->b->ndim; i++) {
        n *= dims & (1u << i) ? e->size[i] : 1;
    }
    return n;
}

/* Place of element `at` of the space `dims` in an array over `own`. */
static i64 place(const Eval *e, i64 at, u32 dims, u32 own)
{
    i64 place = 0, step = 1;
    for (u32 i = e->b->ndim; i-- > 0;) {
        if (dims & (1u << i)) {
            i64 k = at % e->size[i];
            at /= e->size[i];
            if (own & (1u << i)) {
                place += k * step;
                step *= e->size[i];
            }
        }
    }
    return place;
}

/* The same words as the generated code draws: see mgk_rand in kernels/cpu/mgk.h. */
static u32 philox_word(u64 seed, u32 site, u64 elem, u32 step, u32 lane)
{
    u32 c[4] = {(u32)elem, (u32)(elem >> 32), step, 0};
    u32 k0 = (u32)seed ^ site, k1 = (u32)(seed >> 32);
    for (int i = 0; i < 10; i++) {
        u64 p = (u64)c[0] * 0xd2511f53u, q = (u64)c[2] * 0xcd9e8d57u;
        u32 t = (u32)(q >> 32) ^ c[1] ^ k0, u = (u32)(p >> 32) ^ c[3] ^ k1;
        c[0] = t;
        c[1] = (u32)q;
        c[2] = u;
        c[3] = (u32)p;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c[lane];
}

static void eval_reduce(Graph *g, const Eval *e, u32 id)
{
    const BodyNode *n = &e->b->node.at[id];
    const BodyNode *x = &e->b->node.at[n->arg[0]];
    f64 *y = e->val[id];
    u32 dims = x->dims | n->over;
    i64 all = count(e, dims), rows = count(e, n->dims);
    bool sum = n->fn == BF_SUM, low = n->fn == BF_ROWMIN;
    for (i64 i = 0; i < rows; i++) {
        y[i] = sum ? 0 : low ? INFINITY : -INFINITY;
    }
    for (i64 i = 0; i < all; i++) {
        f64 v = e->val[n->arg[0]][place(e, i, dims, x->dims)];
        f64 *to = &y[place(e, i, dims, n->dims)];
        *to = sum ? *to + v : low ? fmin(*to, v) : fmax(*to, v);
    }
    if (n->fn != BF_LSE) {
        return;
    }
    f64 *s = arena_alloc(g->arena, (u64)rows * sizeof *s);
    for (i64 i = 0; i < all; i++) {
        i64 to = place(e, i, dims, n->dims);
        s[to] += exp(e->val[n->arg[0]][place(e, i, dims, x->dims)] - y[to]);
    }
    for (i64 i = 0; i < rows; i++) {
        y[i] += log(s[i]);
    }
}

static void eval_leaf(const Eval *e, Graph *g, u32 id, const f64 *const *in,
                      f64 (*lookup)(void *, const char *), void *arg)
{
    const BodyNode *n = &e->b->node.at[id];
    for (i64 i = 0, all = count(e, n->dims); i < all; i++) {
        f64 v = n->num;
        if (n->fn == BF_INPUT) {
            v = in[n->port][i];
        } else if (n->fn == BF_INDEX) {
            v = (f64)i;
        } else if (n->fn == BF_SIZE) {
            v = (f64)count(e, n->over);
        } else if (n->fn == BF_RAND) {
            Sym site = sym_fmt(g, "site:%s", sym_str(g, n->name));
            v = philox_word((u64)lookup(arg, "seed"), (u32)lookup(arg, sym_str(g, site)), (u64)i,
                            (u32)lookup(arg, "step"), n->port);
        } else if (n->fn != BF_CONST) {
            v = lookup(arg, sym_str(g, n->name));
        }
        e->val[id][i] = v;
    }
}

void body_eval(Graph *g, const Body *b, const i64 *size, const f64 *const *in, f64 *const *out,
               f64 (*lookup)(void *arg, const char *name), void *arg)
{
    Eval e = {.b = b, .size = size};
    e.val = arena_alloc(g->arena, b->node.n * sizeof *e.val);
    for (u32 id = 1; id < b->node.n; id++) {
        const BodyNode *n = &b->node.at[id];
        i64 all = count(&e, n->dims);
        e.val[id] = arena_alloc(g->arena, (u64)all * sizeof(f64));
        if (n->fn <= BF_RAND) {
            eval_leaf(&e, g, id, in, lookup, arg);
        } else if (body_reduces(n->fn)) {
            eval_reduce(g, &e, id);
        } else {
            for (i64 i = 0; i < all; i++) {
                f64 x[3] = {0};
                for (u32 k = 0; k < n->narg; k++) {
                    x[k] = e.val[n->arg[k]][place(&e, i, n->dims, b->node.at[n->arg[k]].dims)];
                }
                e.val[id][i] = body_fn_eval(n, x[0], x[1], x[2]);
            }
        }
    }
    for (u32 k = 0; k < b->out.n; k++) {
        const BodyPort *o = &b->out.at[k];
        const BodyNode *n = &b->node.at[o->node];
        u32 dims = n->dims | o->dims;
        bool max = n->fn == BF_AMAX;
        for (i64 i = 0, all = count(&e, o->dims); i < all; i++) {
            out[k][i] = 0;
        }
        for (i64 i = 0, all = count(&e, dims); i < all; i++) {
            f64 v = e.val[o->node][place(&e, i, dims, n->dims)];
            f64 *to = &out[k][place(&e, i, dims, o->dims)];
            *to = max ? fmax(*to, fabs(v)) : *to + v;
        }
    }
}
