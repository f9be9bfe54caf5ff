/* sig.c: the signature language and the type rules of the structural ops.
 *
 * A signature says what the dims of an op's operands have to do with each other; result types,
 * error texts and the factors of a node follow from it:
 *
 *     sig  = [ port { "," port } ] "->" [ port { "," port } ]
 *     port = [ "saved" ] name "[" { dim } "]" { "?" | ":" dtype }
 *     dim  = name | ".." | NAME ".." | "(" name { name } ")" | number
 *
 * Names are local to the signature. A name in operands stands for one dim everywhere. `..` is any
 * number of dims, the same ones wherever it stands. `K..` is a set of dims in the order of the
 * operand: K is given by the attribute `sum`, any other list is what is left. A name in results
 * only is given by an attribute of that name. A result has the dtype after its colon, else that of
 * the attribute `dtype`, else that of the first operand whose dtype is free. `:f32` means the type
 * sums are kept in: f64 where the operands are f64.
 */
#include "megagen.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { /* diagnostics: see diag.lua */
       E_COUNT = 301,
       E_RANK = 302,
       E_FACTOR = 303,
       E_DTYPE = 304,
       E_ATTR = 305,
       E_TWICE = 306,
       E_VIEW = 307,
       E_AXIS = 308,
       E_SIG = 310,
};

/* ---- parsing --------------------------------------------------------------------------------- */

typedef struct {
    Graph *g;
    Loc loc;
    const char *text, *at;
} Scan;

_Noreturn static void bad_sig(Scan *s, const char *what)
{
    Loc loc = s->loc;
    fail(s->g, loc, E_SIG, "signature: %s at character %d of `%s`", what,
         (int)(s->at - s->text) + 1, s->text);
}

static void space(Scan *s)
{
    while (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r') {
        s->at++;
    }
}

static bool accept(Scan *s, const char *word)
{
    space(s);
    u64 n = strlen(word);
    if (strncmp(s->at, word, n) != 0) {
        return false;
    }
    s->at += n;
    return true;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static Sym word(Scan *s, const char *what)
{
    space(s);
    const char *from = s->at;
    while (is_word(*s->at)) {
        s->at++;
    }
    if (s->at == from) {
        bad_sig(s, what);
    }
    return sym_n(s->g, from, (u64)(s->at - from));
}

static bool is_rest(const Graph *g, const SigPort *p, u32 i)
{
    return p->dim[i].n == 1 && strcmp(sym_str(g, p->dim[i].part[0]), "..") == 0;
}

/* "K.." -> "K"; 0 if it is no list. */
static Sym list_name(Graph *g, const SigPort *p, u32 i)
{
    const char *s = sym_str(g, p->dim[i].part[0]);
    u64 n = strlen(s);
    bool list = p->dim[i].n == 1 && n > 2 && strcmp(s + n - 2, "..") == 0;
    return list ? sym_n(g, s, n - 2) : 0;
}

static void parse_dim(Scan *s, SigPort *p)
{
    if (p->n == RANK_MAX) {
        bad_sig(s, "more than 8 dims");
    }
    u32 i = p->n++;
    if (accept(s, "..")) {
        p->dim[i].part[p->dim[i].n++] = sym(s->g, "..");
        for (u32 k = 0; k < i; k++) {
            if (is_rest(s->g, p, k)) {
                bad_sig(s, "`..` twice in one operand");
            }
        }
        return;
    }
    if (accept(s, "(")) {
        while (!accept(s, ")")) {
            if (p->dim[i].n == 4) {
                bad_sig(s, "more than 4 parts in a merged dim");
            }
            p->dim[i].part[p->dim[i].n++] = word(s, "expected a dim or `)`");
        }
        if (p->dim[i].n < 2) {
            bad_sig(s, "a merged dim has at least two parts");
        }
        return;
    }
    Sym name = word(s, "expected a dim or `]`");
    const char *str = sym_str(s->g, name);
    bool digits = strspn(str, "0123456789") == strlen(str);
    if ((*str >= '0' && *str <= '9' && !digits) || (digits && (strlen(str) > 9 || *str == '0'))) {
        bad_sig(s, "a dim is a name or a size of at most 9 digits");
    }
    if (s->at[0] == '.' && s->at[1] == '.') {
        if (str[0] < 'A' || str[0] > 'Z') {
            bad_sig(s, "a list of dims has an upper-case name");
        }
        s->at += 2;
        name = sym_fmt(s->g, "%s..", str);
    }
    p->dim[i].part[p->dim[i].n++] = name;
}

static void parse_port(Scan *s, SigPort *p)
{
    p->name = word(s, "expected a name");
    if (strcmp(sym_str(s->g, p->name), "saved") == 0 && (space(s), is_word(*s->at))) {
        p->saved = true;
        p->name = word(s, "expected a name");
    }
    if (!accept(s, "[")) {
        bad_sig(s, "expected `[`");
    }
    while (!accept(s, "]")) {
        parse_dim(s, p);
    }
    for (;;) {
        if (accept(s, "?")) {
            p->optional = true;
        } else if (accept(s, ":")) {
            p->dtype = dtype_parse(sym_str(s->g, word(s, "expected a dtype")));
            if (p->dtype == DT_NONE) {
                bad_sig(s, "unknown dtype");
            }
        } else {
            return;
        }
    }
}

Sig *sig_parse(Graph *g, Loc loc, const char *text)
{
    Scan s = {g, loc, text, text};
    Sig *sig = arena_alloc(g->arena, sizeof *sig);
    bool results = false;
    for (;;) {
        if (!results && accept(&s, "->")) {
            results = true;
        }
        space(&s);
        if (!*s.at) {
            break;
        }
        SigPort p = {0};
        parse_port(&s, &p);
        if (sig_in(sig, p.name) >= 0 || sig_out(sig, p.name) >= 0) {
            bad_sig(&s, "a name twice");
        }
        if (results && p.optional) {
            bad_sig(&s, "a result cannot be optional");
        }
        if (results) {
            vec_push(g->arena, &sig->out, p);
        } else {
            vec_push(g->arena, &sig->in, p);
        }
        space(&s);
        if (!accept(&s, ",") && *s.at && (results || strncmp(s.at, "->", 2) != 0)) {
            bad_sig(&s, "expected `,`");
        }
    }
    if (!results) {
        bad_sig(&s, "expected `->`");
    }
    return sig;
}

i32 sig_in(const Sig *s, Sym name)
{
    for (u32 i = 0; i < s->in.n; i++) {
        if (s->in.at[i].name == name) {
            return (i32)i;
        }
    }
    return -1;
}

i32 sig_out(const Sig *s, Sym name)
{
    for (u32 i = 0; i < s->out.n; i++) {
        if (s->out.at[i].name == name) {
            return (i32)i;
        }
    }
    return -1;
}

/* ---- binding names to dims ------------------------------------------------------------------- */

typedef struct {
    Sym name;
    u32 n, dim[RANK_MAX];
    u32 value; /* the operand it comes from; 0 = an attribute */
    Sym port;
} Factor;

typedef struct {
    Graph *g;
    const Op *op;
    Loc loc;
    const u32 *in;
    u32 nin;
    const Attr *attr;
    u32 nattr;
    VEC(Factor) factor;
} Infer;

const char *type_str(Graph *g, const Type *t)
{
    Text s = {0};
    text_fmt(g->arena, &s, "%s[", dtype_name(t->dtype));
    for (u32 i = 0; i < t->rank; i++) {
        text_fmt(g->arena, &s, "%s%s", i ? " " : "", sym_str(g, g->dim.at[t->dim[i]].name));
    }
    text_put(g->arena, &s, "]");
    return text_str(g->arena, &s);
}

static const char *name_of(const Infer *c)
{
    return sym_str(c->g, c->op->name);
}

static const Attr *find_attr(const Infer *c, const char *key)
{
    for (u32 i = 0; i < c->nattr; i++) {
        if (strcmp(sym_str(c->g, c->attr[i].key), key) == 0) {
            return &c->attr[i];
        }
    }
    return NULL;
}

static const Type *type_in(const Infer *c, u32 i)
{
    return &c->g->value.at[c->in[i]].type;
}

/* "x (layers.*.attn)" or "x (%12)": what the operand is called and where its value comes from. */
static const char *source(Graph *g, Sym port, u32 value)
{
    if (!value) {
        return arena_fmt(g->arena, "attribute `%s`", sym_str(g, port));
    }
    const Value *v = &g->value.at[value];
    Sym path = v->path ? v->path : v->node ? g->node.at[v->node].path : 0;
    if (path) {
        return arena_fmt(g->arena, "%s (%s)", sym_str(g, port), sym_str(g, path));
    }
    return arena_fmt(g->arena, "%s (%%%u)", sym_str(g, port), value);
}

static const char *dim_str(Graph *g, u32 dim)
{
    const Dim *d = &g->dim.at[dim];
    return arena_fmt(g->arena, "%s=%lld", sym_str(g, d->name), (long long)d->size);
}

static Factor *factor_find(Infer *c, Sym name)
{
    for (u32 i = 0; i < c->factor.n; i++) {
        if (c->factor.at[i].name == name) {
            return &c->factor.at[i];
        }
    }
    return NULL;
}

static void bind(Infer *c, Sym name, const u32 *dim, u32 n, u32 value, Sym port)
{
    Graph *g = c->g;
    Factor *f = factor_find(c, name);
    if (!f) {
        Factor add = {.name = name, .n = n, .value = value, .port = port};
        if (n) {
            memcpy(add.dim, dim, n * sizeof *dim);
        }
        vec_push(g->arena, &c->factor, add);
        return;
    }
    if (f->n != n) {
        fail(g, c->loc, E_RANK, "%s: `%s` stands for %u dims in %s and %u in %s", name_of(c),
             sym_str(g, name), f->n, source(g, f->port, f->value), n, source(g, port, value));
    }
    for (u32 i = 0; i < n; i++) {
        if (f->dim[i] == dim[i]) {
            continue;
        }
        bool same_size = g->dim.at[f->dim[i]].size == g->dim.at[dim[i]].size;
        fail(g, c->loc, E_FACTOR, "%s: `%s` differs, %s in %s and %s in %s%s", name_of(c),
             sym_str(g, name), dim_str(g, f->dim[i]), source(g, f->port, f->value),
             dim_str(g, dim[i]), source(g, port, value),
             same_size ? "\nhelp: equal sizes, but different dims: `rename` one of them" : "");
    }
}

/* The key of dim i of a port: its name, or "(h e)" for a merged dim. */
static Sym dim_key(Graph *g, const SigPort *p, u32 i)
{
    if (p->dim[i].n == 1) {
        return p->dim[i].part[0];
    }
    Text t = {0};
    for (u32 k = 0; k < p->dim[i].n; k++) {
        text_fmt(g->arena, &t, "%s%s", k ? " " : "(", sym_str(g, p->dim[i].part[k]));
    }
    text_put(g->arena, &t, ")");
    return sym(g, text_str(g->arena, &t));
}

static void check_size(Infer *c, const SigPort *p, u32 i, u32 dim, u32 value)
{
    const char *s = sym_str(c->g, p->dim[i].part[0]);
    if (p->dim[i].n == 1 && s[0] >= '0' && s[0] <= '9' &&
        c->g->dim.at[dim].size != strtoll(s, NULL, 10)) {
        fail(c->g, c->loc, E_FACTOR, "%s: a dim of size %s is expected, %s in %s", name_of(c), s,
             dim_str(c->g, dim), source(c->g, p->name, value));
    }
}

static void bind_port(Infer *c, const SigPort *p, u32 value)
{
    Graph *g = c->g;
    Type t = g->value.at[value].type;
    u32 rest = p->n;
    for (u32 i = 0; i < p->n; i++) {
        rest = is_rest(g, p, i) ? i : rest;
    }
    u32 fixed = rest < p->n ? p->n - 1u : p->n;
    if (t.rank < fixed || (rest == p->n && t.rank != fixed)) {
        fail(g, c->loc, E_RANK, "%s: %s has %u dims, %s%u are expected\nnote: it is %s", name_of(c),
             source(g, p->name, value), t.rank, rest < p->n ? "at least " : "", fixed,
             type_str(g, &t));
    }
    u32 at = 0;
    for (u32 i = 0; i < p->n; i++) {
        u32 n = i == rest ? t.rank - fixed : 1;
        if (i != rest) {
            check_size(c, p, i, t.dim[at], value);
        }
        Sym key = dim_key(g, p, i);
        char first = sym_str(g, key)[0];
        if (first < '0' || first > '9') { /* a number binds no name */
            bind(c, key, t.dim + at, n, value, p->name);
        }
        at += n;
    }
}

/* A port made of lists: known ones (the attribute, or bound before) must be in the operand; what is
 * left is the one that is not known yet. */
static void bind_lists(Infer *c, const SigPort *p, u32 value)
{
    Graph *g = c->g;
    Type t = g->value.at[value].type;
    bool taken[RANK_MAX] = {0};
    Sym open = 0;
    for (u32 i = 0; i < p->n; i++) {
        Sym list = list_name(g, p, i);
        Factor *f = factor_find(c, list);
        if (!f) {
            open = list;
            continue;
        }
        for (u32 k = 0; k < f->n; k++) {
            i32 pos = type_pos(&t, f->dim[k]);
            if (pos < 0) {
                fail(g, c->loc, E_FACTOR, "%s: %s is not a dim of %s\nnote: it is %s", name_of(c),
                     dim_str(g, f->dim[k]), source(g, p->name, value), type_str(g, &t));
            }
            taken[pos] = true;
        }
    }
    u32 left[RANK_MAX], n = 0;
    for (u32 i = 0; i < t.rank; i++) {
        if (!taken[i]) {
            left[n++] = t.dim[i];
        }
    }
    if (open) {
        bind(c, open, left, n, value, p->name);
    } else if (n) {
        fail(g, c->loc, E_FACTOR, "%s: %s of %s is in no list of the signature", name_of(c),
             dim_str(g, left[0]), source(g, p->name, value));
    }
}

static bool has_lists(Graph *g, const SigPort *p)
{
    bool list = false;
    for (u32 i = 0; i < p->n; i++) {
        list = list || list_name(g, p, i);
    }
    return list;
}

static void bind_sum(Infer *c)
{
    const Attr *sum = find_attr(c, "sum");
    if (!sum) {
        return;
    }
    if (sum->kind != AT_DIMS && sum->kind != AT_DIM) {
        fail(c->g, c->loc, E_ATTR, "%s: `sum` is a list of dims", name_of(c));
    }
    u32 n = sum->kind == AT_DIM ? 1 : sum->n;
    bind(c, sym(c->g, "K"), sum->dim, n, 0, sym(c->g, "sum"));
}

static bool dtype_fits(u8 want, u8 have)
{
    bool sums = want == DT_F32 && (have == DT_F64 || have == DT_F);
    return want == DT_NONE || want == have || sums;
}

static void bind_operands(Infer *c)
{
    Graph *g = c->g;
    const Sig *s = c->op->sig;
    u32 need_n = 0;
    for (u32 i = 0; i < s->in.n; i++) {
        need_n = s->in.at[i].optional ? need_n : i + 1;
    }
    if (c->nin < need_n || c->nin > s->in.n) {
        fail(g, c->loc, E_COUNT, "%s: %u operands, %u%s are expected\nnote: %s", name_of(c), c->nin,
             need_n, s->in.n > need_n ? " or more" : "", sym_str(g, c->op->sig_text));
    }
    bind_sum(c);
    for (u32 i = 0; i < c->nin; i++) {
        const SigPort *p = &s->in.at[i];
        u32 v = c->in[i];
        if (!v) {
            if (!p->optional) {
                fail(g, c->loc, E_COUNT, "%s: operand `%s` is missing", name_of(c),
                     sym_str(g, p->name));
            }
            continue;
        }
        u8 have = g->value.at[v].type.dtype;
        if (!dtype_fits(p->dtype, have)) {
            fail(g, c->loc, E_DTYPE, "%s: %s is %s, %s is expected", name_of(c),
                 source(g, p->name, v), dtype_name(have), dtype_name(p->dtype));
        }
        if (has_lists(g, p)) {
            bind_lists(c, p, v);
        } else {
            bind_port(c, p, v);
        }
    }
}

/* ---- results --------------------------------------------------------------------------------- */

static u32 attr_as_dim(Infer *c, const Attr *a)
{
    if (a->kind == AT_INT && a->i > 0) {
        return dim_add(c->g, sym_str(c->g, a->key), a->i);
    }
    if (a->kind != AT_DIM || a->dim[0] == 0) {
        fail(c->g, c->loc, E_ATTR, "%s: attribute `%s` must be a dim", name_of(c),
             sym_str(c->g, a->key));
    }
    return a->dim[0];
}

/* Sizes come from users: a product that overflows is as large as can be, and so equal to nothing.
 */
static i64 mul_size(i64 a, i64 b)
{
    i64 r;
    return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

static u32 dim_by_name(Infer *c, Sym name)
{
    Graph *g = c->g;
    const char *s = sym_str(g, name);
    if (s[0] >= '0' && s[0] <= '9') {
        return dim_add(g, s, strtoll(s, NULL, 10));
    }
    const Factor *f = factor_find(c, name);
    if (f) {
        return f->dim[0];
    }
    const Attr *a = find_attr(c, s);
    if (!a) {
        fail(g, c->loc, E_ATTR, "%s: `%s` is in no operand: an attribute of that name must give it",
             name_of(c), s);
    }
    return attr_as_dim(c, a);
}

static u32 merged_dim(Infer *c, const SigPort *p, u32 i)
{
    Graph *g = c->g;
    const Factor *f = factor_find(c, dim_key(g, p, i));
    if (f) {
        return f->dim[0];
    }
    i64 size = 1;
    Text name = {0};
    for (u32 k = 0; k < p->dim[i].n; k++) {
        u32 d = dim_by_name(c, p->dim[i].part[k]);
        size = mul_size(size, g->dim.at[d].size);
        text_put(g->arena, &name, sym_str(g, g->dim.at[d].name));
    }
    return dim_add(g, text_str(g->arena, &name), size);
}

static void push_dims(Infer *c, Type *t, const u32 *dim, u32 n)
{
    for (u32 i = 0; i < n; i++) {
        if (t->rank == RANK_MAX) {
            fail(c->g, c->loc, E_RANK, "%s: the result has more than %d dims", name_of(c),
                 RANK_MAX);
        }
        if (type_pos(t, dim[i]) >= 0) {
            fail(c->g, c->loc, E_TWICE,
                 "%s: the result would have dim %s twice\nhelp: `rename` it in one operand",
                 name_of(c), dim_str(c->g, dim[i]));
        }
        t->dim[t->rank++] = dim[i];
    }
}

/* The dtype of results that do not say one. */
static u8 default_dtype(Infer *c)
{
    const Sig *s = c->op->sig;
    const Attr *a = find_attr(c, "dtype");
    if (a) {
        u8 dt = a->kind == AT_SYM ? dtype_parse(sym_str(c->g, a->sym)) : DT_NONE;
        if (dt == DT_NONE) {
            fail(c->g, c->loc, E_ATTR, "%s: attribute `dtype` names no dtype", name_of(c));
        }
        return dt;
    }
    for (u32 i = 0; i < c->nin; i++) {
        if (c->in[i] && s->in.at[i].dtype == DT_NONE) {
            return type_in(c, i)->dtype;
        }
    }
    return c->nin && c->in[0] ? type_in(c, 0)->dtype : DT_F;
}

static Type result(Infer *c, const SigPort *p)
{
    Graph *g = c->g;
    u8 dt = default_dtype(c);
    Type t = {.dtype = p->dtype ? p->dtype : dt};
    if (p->dtype == DT_F32 && dt == DT_F64) {
        t.dtype = DT_F64;
    }
    for (u32 i = 0; i < p->n; i++) {
        Sym list = list_name(g, p, i);
        if (list || is_rest(g, p, i)) {
            const Factor *f = factor_find(c, list ? list : p->dim[i].part[0]);
            if (!f) {
                fail(g, c->loc, E_ATTR, "%s: nothing says what `%s` is", name_of(c),
                     sym_str(g, p->dim[i].part[0]));
            }
            push_dims(c, &t, f->dim, f->n);
            continue;
        }
        u32 d = p->dim[i].n > 1 ? merged_dim(c, p, i) : dim_by_name(c, p->dim[i].part[0]);
        push_dims(c, &t, &d, 1);
    }
    return t;
}

/* The parts of a merged operand that are known must multiply to it. */
static void check_merged(Infer *c, const SigPort *p, u32 value)
{
    Graph *g = c->g;
    for (u32 i = 0; i < p->n; i++) {
        if (p->dim[i].n < 2) {
            continue;
        }
        u32 whole = factor_find(c, dim_key(g, p, i))->dim[0];
        i64 size = 1;
        for (u32 k = 0; k < p->dim[i].n; k++) {
            const Factor *f = factor_find(c, p->dim[i].part[k]);
            const Attr *a = f ? NULL : find_attr(c, sym_str(g, p->dim[i].part[k]));
            if (!f && !a) {
                return;
            }
            size = mul_size(size, g->dim.at[f ? f->dim[0] : attr_as_dim(c, a)].size);
        }
        if (size != g->dim.at[whole].size) {
            fail(g, c->loc, E_FACTOR, "%s: %s in %s is not %s, %lld", name_of(c), dim_str(g, whole),
                 source(g, p->name, value), sym_str(g, dim_key(g, p, i)), (long long)size);
        }
    }
}

static u32 infer_sig(Infer *c, Type *out)
{
    const Sig *s = c->op->sig;
    bind_operands(c);
    for (u32 i = 0; i < c->nin; i++) {
        if (c->in[i] && !has_lists(c->g, &s->in.at[i])) {
            check_merged(c, &s->in.at[i], c->in[i]);
        }
    }
    for (u32 i = 0; i < s->out.n; i++) {
        out[i] = result(c, &s->out.at[i]);
    }
    return s->out.n;
}

/* ---- type rules of structural ops ------------------------------------------------------------ */

static u32 need_dim(Infer *c, const char *key)
{
    const Attr *a = find_attr(c, key);
    if (!a) {
        fail(c->g, c->loc, E_ATTR, "%s: attribute `%s` is missing", name_of(c), key);
    }
    if (a->kind != AT_DIM || !a->dim[0]) {
        fail(c->g, c->loc, E_ATTR, "%s: attribute `%s` must be a dim", name_of(c), key);
    }
    return a->dim[0];
}

static const Attr *need_dims(Infer *c, const char *key)
{
    const Attr *a = find_attr(c, key);
    if (!a || a->kind != AT_DIMS) {
        fail(c->g, c->loc, E_ATTR, "%s: attribute `%s` must be a list of dims", name_of(c), key);
    }
    return a;
}

static Type need_operands(Infer *c, u32 n)
{
    if (c->nin != n || !c->in[0]) {
        fail(c->g, c->loc, E_COUNT, "%s: %u operands, %u is expected", name_of(c), c->nin, n);
    }
    return *type_in(c, 0);
}

static u32 need_pos(Infer *c, const Type *t, u32 dim)
{
    i32 pos = type_pos(t, dim);
    if (pos < 0) {
        fail(c->g, c->loc, E_VIEW, "%s: %s is not a dim of the operand\nnote: it is %s", name_of(c),
             dim_str(c->g, dim), type_str(c->g, t));
    }
    return (u32)pos;
}

/* t with dims [pos, pos + del) replaced by n new ones */
static Type replace_dims(Infer *c, const Type *t, u32 pos, u32 del, const u32 *dim, u32 n)
{
    Type r = {.dtype = t->dtype};
    push_dims(c, &r, t->dim, pos);
    push_dims(c, &r, dim, n);
    push_dims(c, &r, t->dim + pos + del, t->rank - pos - del);
    return r;
}

static i64 size_of(const Infer *c, const u32 *dim, u32 n)
{
    i64 size = 1;
    for (u32 i = 0; i < n; i++) {
        size = mul_size(size, c->g->dim.at[dim[i]].size);
    }
    return size;
}

static u32 rule_slice(Infer *c, Type *out)
{
    Type t = need_operands(c, 1);
    u32 dim = need_dim(c, "dim"), len = need_dim(c, "len");
    const Attr *at = find_attr(c, "at");
    if (!at || at->kind != AT_INT) {
        fail(c->g, c->loc, E_ATTR, "slice: attribute `at` must be a whole number");
    }
    u32 pos = need_pos(c, &t, dim);
    i64 have = c->g->dim.at[dim].size, n = c->g->dim.at[len].size;
    if (at->i < 0 || at->i > have - n) {
        fail(c->g, c->loc, E_VIEW, "slice: %lld elements from %lld on are outside of %s",
             (long long)n, (long long)at->i, dim_str(c->g, dim));
    }
    *out = replace_dims(c, &t, pos, 1, &len, 1);
    return 1;
}

static u32 rule_split(Infer *c, Type *out)
{
    Type t = need_operands(c, 1);
    u32 dim = need_dim(c, "dim");
    const Attr *to = need_dims(c, "dims");
    u32 pos = need_pos(c, &t, dim);
    if (size_of(c, to->dim, to->n) != c->g->dim.at[dim].size) {
        fail(c->g, c->loc, E_VIEW, "split: %s into parts of %lld", dim_str(c->g, dim),
             (long long)size_of(c, to->dim, to->n));
    }
    *out = replace_dims(c, &t, pos, 1, to->dim, to->n);
    return 1;
}

static u32 rule_merge(Infer *c, Type *out)
{
    Type t = need_operands(c, 1);
    u32 dim = need_dim(c, "dim");
    const Attr *from = need_dims(c, "dims");
    u32 pos = from->n ? need_pos(c, &t, from->dim[0]) : 0;
    for (u32 i = 0; i < from->n; i++) {
        if (need_pos(c, &t, from->dim[i]) != pos + i) {
            fail(c->g, c->loc, E_VIEW, "merge: the dims are not next to each other in %s",
                 type_str(c->g, &t));
        }
    }
    if (size_of(c, from->dim, from->n) != c->g->dim.at[dim].size) {
        fail(c->g, c->loc, E_VIEW, "merge: %lld elements into %s",
             (long long)size_of(c, from->dim, from->n), dim_str(c->g, dim));
    }
    *out = replace_dims(c, &t, pos, from->n, &dim, 1);
    return 1;
}

static u32 rule_transpose(Infer *c, Type *out)
{
    Type t = need_operands(c, 1);
    const Attr *to = need_dims(c, "dims");
    *out = (Type){.dtype = t.dtype};
    push_dims(c, out, to->dim, to->n);
    for (u32 i = 0; i < to->n; i++) {
        need_pos(c, &t, to->dim[i]);
    }
    if (to->n != t.rank) {
        fail(c->g, c->loc, E_VIEW, "transpose: %u dims are named, the operand is %s", to->n,
             type_str(c->g, &t));
    }
    return 1;
}

/* All operands equal except at position pos, where the sizes add up to the size of `to`. */
static bool concat_at(const Infer *c, u32 pos, u32 to)
{
    const Type *a = type_in(c, 0);
    i64 sum = 0;
    for (u32 i = 0; i < c->nin; i++) {
        const Type *b = type_in(c, i);
        if (b->rank != a->rank || b->dtype != a->dtype) {
            return false;
        }
        for (u32 k = 0; k < a->rank; k++) {
            if (k != pos && a->dim[k] != b->dim[k]) {
                return false;
            }
        }
        sum += c->g->dim.at[b->dim[pos]].size;
    }
    return sum == c->g->dim.at[to].size;
}

static u32 rule_concat(Infer *c, Type *out)
{
    u32 dim = need_dim(c, "dim");
    const Attr *to_attr = find_attr(c, "to");
    u32 to = to_attr ? need_dim(c, "to") : dim;
    for (u32 i = 0; i < c->nin; i++) {
        if (!c->in[i]) {
            fail(c->g, c->loc, E_COUNT, "concat: operand %u is missing", i);
        }
    }
    if (!c->nin) {
        fail(c->g, c->loc, E_COUNT, "concat: no operands");
    }
    Type t = *type_in(c, 0);
    u32 pos = to_attr ? need_pos(c, &t, dim) : 0;
    while (!to_attr && pos < t.rank && !concat_at(c, pos, to)) {
        pos++;
    }
    if (pos == t.rank || !concat_at(c, pos, to)) {
        fail(c->g, c->loc, E_VIEW,
             "concat: the operands do not make up %s\nnote: the first one is %s", dim_str(c->g, to),
             type_str(c->g, &t));
    }
    *out = replace_dims(c, &t, pos, 1, &to, 1);
    return 1;
}

static u32 rule_rename(Infer *c, Type *out)
{
    Type t = need_operands(c, 1);
    u32 dim = need_dim(c, "dim"), to = need_dim(c, "to");
    u32 pos = need_pos(c, &t, dim);
    if (dim_mem(c->g, dim) != dim_mem(c->g, to)) {
        fail(c->g, c->loc, E_VIEW, "rename: %s and %s differ in size", dim_str(c->g, dim),
             dim_str(c->g, to));
    }
    *out = replace_dims(c, &t, pos, 1, &to, 1);
    return 1;
}

static u32 rule_broadcast(Infer *c, Type *out)
{
    Type t = need_operands(c, 1);
    const Attr *to = need_dims(c, "dims");
    *out = (Type){.dtype = t.dtype};
    push_dims(c, out, to->dim, to->n);
    u32 k = 0;
    for (u32 i = 0; i < to->n && k < t.rank; i++) {
        k += to->dim[i] == t.dim[k];
    }
    if (k < t.rank) {
        fail(c->g, c->loc, E_VIEW, "broadcast: %s does not go into %s in order", type_str(c->g, &t),
             type_str(c->g, out));
    }
    return 1;
}

static u32 rule_same(Infer *c, Type *out)
{
    *out = need_operands(c, 1);
    return 1;
}

static u32 rule_cast(Infer *c, Type *out)
{
    *out = need_operands(c, 1);
    const Attr *a = find_attr(c, "dtype");
    out->dtype = a && a->kind == AT_SYM ? dtype_parse(sym_str(c->g, a->sym)) : DT_NONE;
    if (out->dtype == DT_NONE) {
        fail(c->g, c->loc, E_ATTR, "cast: attribute `dtype` must name a dtype");
    }
    return 1;
}

static u32 rule_none(Infer *c, Type *out)
{
    (void)out;
    need_operands(c, 1);
    return 0;
}

static u32 rule_given(Infer *c, Type *out)
{
    (void)out;
    fail(c->g, c->loc, E_SIG, "%s: its result types must be given", name_of(c));
}

/* Collectives work on the global type: only placements change, see verify.c. */
static u32 rule_comm(Infer *c, Type *out)
{
    *out = need_operands(c, 1);
    const Attr *axis = find_attr(c, "axis");
    u8 atom[ATOM_MAX];
    if (!axis || axis->kind != AT_SYM || axis_atoms(c->g, axis->sym, atom) < 0) {
        fail(c->g, c->loc, E_AXIS, "%s: attribute `axis` must name an axis or an atom of the mesh",
             name_of(c));
    }
    if (find_attr(c, "dim")) {
        need_pos(c, out, need_dim(c, "dim"));
    }
    if (find_attr(c, "to")) {
        need_pos(c, out, need_dim(c, "to"));
    }
    return 1;
}

enum { VIEW = OF_VIEW | OF_STRUCT | OF_LINEAR, COMM = OF_COMM | OF_STRUCT | OF_LINEAR };

static const struct {
    const char *name, *sig;
    u32 flags;
    u32 (*rule)(Infer *c, Type *out);
    const char *doc;
} structural[] = {
    {"none", NULL, 0, NULL, ""},
    {"slice", NULL, VIEW, rule_slice,
     "{dim at len}: elements [at, at + len) of dim, now called len"},
    {"split", NULL, VIEW, rule_split, "{dim dims}: one dim as several"},
    {"merge", NULL, VIEW, rule_merge, "{dims dim}: neighbours as one dim"},
    {"transpose", NULL, VIEW, rule_transpose, "{dims}: the dims in this order"},
    {"concat", NULL, VIEW, rule_concat, "{dim to}: operands behind each other along dim, now to"},
    {"rename", NULL, VIEW, rule_rename, "{dim to}"},
    {"broadcast", NULL, VIEW, rule_broadcast, "{dims}: repeat along the dims it lacks"},
    {"read", NULL, OF_EFFECT | OF_STRUCT | OF_LINEAR, rule_given, "the value of a variable"},
    {"write", NULL, OF_EFFECT | OF_STRUCT | OF_LINEAR, rule_none, "set a variable"},
    {"accum", NULL, OF_EFFECT | OF_STRUCT | OF_LINEAR, rule_none, "add to a variable"},
    {"loop", NULL, OF_STRUCT, rule_given, "run a body Func `trips` times"},
    {"fused", NULL, OF_STRUCT, rule_given, "one generated map or row kernel"},
    {"copy", NULL, OF_STRUCT | OF_KERNEL | OF_LINEAR, rule_same, "into a buffer of its own"},
    {"cast", NULL, OF_STRUCT | OF_LINEAR, rule_cast, "{dtype}"},
    {"matmul", "x[M.. K..], w[K.. N..] -> y[M.. N..]",
     OF_STRUCT | OF_KERNEL | OF_LINEAR | OF_PARTIAL, NULL,
     "{sum}: contraction over the dims `sum`"},
    {"all_reduce", NULL, COMM, rule_comm, "{axis}: P -> R (or M -> R)"},
    {"reduce_scatter", NULL, COMM, rule_comm, "{axis dim}: P -> S(dim), or F without dim"},
    {"all_gather", NULL, COMM, rule_comm, "{axis dim}: S(dim) or F -> R"},
    {"all_to_all", NULL, COMM, rule_comm, "{axis dim to}: S(dim) -> S(to)"},
    {"keep", NULL, OF_STRUCT | OF_LINEAR, rule_comm,
     "{axis}: R -> P, rank 0 keeps it, others have 0"},
    {"shard", NULL, OF_STRUCT | OF_LINEAR, rule_comm,
     "{axis dim}: R -> S(dim), each takes its part"},
    {"shift", NULL, COMM, rule_comm, "{axis by}: from the rank `by` before, in a ring"},
    {"send", NULL, OF_COMM | OF_STRUCT, rule_none, "{to}: to another stage"},
    {"recv", NULL, OF_COMM | OF_STRUCT, rule_given, "{from}: from another stage"},
};
enum { NSTRUCTURAL = sizeof structural / sizeof structural[0] };

void sig_register(Graph *g)
{
    for (u32 i = 1; i < NSTRUCTURAL; i++) {
        Op op = {.name = sym(g, structural[i].name), .flags = structural[i].flags};
        op.doc = sym(g, structural[i].doc);
        op.rule = structural[i].rule ? i : 0;
        if (structural[i].sig) {
            op.sig_text = sym(g, structural[i].sig);
            op.sig = sig_parse(g, (Loc){0}, structural[i].sig);
        }
        vec_push(g->arena, &g->op, op);
    }
}

u32 sig_infer(Graph *g, const Op *op, Loc loc, const u32 *in, u32 nin, const Attr *attr, u32 nattr,
              Type *out)
{
    Infer c = {.g = g, .op = op, .loc = loc, .in = in, .nin = nin, .attr = attr, .nattr = nattr};
    if (op->rule) {
        assert(op->rule < NSTRUCTURAL);
        return structural[op->rule].rule(&c, out);
    }
    assert(op->sig && "an op has a rule or a signature");
    return infer_sig(&c, out);
}

i32 sig_factor(Graph *g, u32 node, Sym name, u32 dim[RANK_MAX])
{
    const Node *n = &g->node.at[node];
    Op op = g->op.at[n->op];
    if (!op.sig) {
        return -1;
    }
    Infer c = {.g = g, .op = &op, .loc = n->loc, .in = g->arg.at + n->in, .nin = n->nin};
    c.attr = g->attr.at + n->attr;
    c.nattr = n->nattr;
    bind_operands(&c);
    for (u32 i = 0; i < op.sig->out.n && i < n->nout; i++) {
        if (!has_lists(g, &op.sig->out.at[i])) {
            bind_port(&c, &op.sig->out.at[i], n->out + i);
        }
    }
    const Factor *f = factor_find(&c, name);
    if (!f) {
        return -1;
    }
    memcpy(dim, f->dim, f->n * sizeof *dim);
    return (i32)f->n;
}

/* ---- cost and shape of nodes ----------------------------------------------------------------- */

static bool is_op(const Graph *g, const Node *n, const char *name)
{
    return strcmp(sym_str(g, g->op.at[n->op].name), name) == 0;
}

static f64 matmul_flops(const Graph *g, const Node *n, const Attr *sum)
{
    f64 flops = 2;
    const Type *y = &g->value.at[n->out].type;
    for (u32 i = 0; i < y->rank; i++) {
        flops *= (f64)g->dim.at[y->dim[i]].size;
    }
    for (u32 i = 0; sum && i < sum->n; i++) {
        flops *= (f64)g->dim.at[sum->dim[i]].size;
    }
    return flops;
}

f64 node_flops(Graph *g, u32 node)
{
    const Node *n = &g->node.at[node];
    const Op *op = &g->op.at[n->op];
    if (is_op(g, n, "matmul")) {
        return matmul_flops(g, n, node_attr(g, node, "sum"));
    }
    if (is_op(g, n, "loop")) {
        f64 flops = 0;
        const Func *body = &g->func.at[n->body];
        for (u32 i = 0; i < body->node.n; i++) {
            flops += node_flops(g, body->node.at[i]);
        }
        return flops * n->trips;
    }
    if (op->flops) {
        return lua_flops(g, node);
    }
    if (op->flags & (OF_VIEW | OF_EFFECT | OF_COMM) || !n->nout) {
        return 0;
    }
    const Body *body = is_op(g, n, "fused") ? g->body.at[n->body] : op->body;
    f64 elems = 0;
    for (u32 i = 0; i < n->nout; i++) {
        f64 e = (f64)type_elems(g, &g->value.at[n->out + i].type);
        elems = e > elems ? e : elems;
    }
    return elems * (body ? body->node.n : 1);
}

u64 node_traffic(Graph *g, u32 node)
{
    const Node *n = &g->node.at[node];
    if (g->op.at[n->op].flags & OF_VIEW) {
        return 0;
    }
    u64 bytes = 0;
    for (u32 i = 0; i < n->nin; i++) {
        u32 v = g->arg.at[n->in + i];
        bytes += v ? type_bytes(g, &g->value.at[v].type) : 0;
    }
    for (u32 i = 0; i < n->nout; i++) {
        bytes += type_bytes(g, &g->value.at[n->out + i].type);
    }
    return bytes * (n->trips > 0 ? (u64)n->trips : 1);
}

typedef struct {
    i64 size, stride;
} Flatten;

/* The dims as one: extent and stride of the innermost; false if they are not evenly spaced. */
static bool flatten(const Graph *g, const Value *v, const u32 *dim, u32 n, Flatten *out)
{
    *out = (Flatten){1, 1};
    i64 outer = 0; /* stride that the next dim outwards must have; 0 = any */
    for (u32 i = n; i-- > 0;) {
        i32 pos = type_pos(&v->type, dim[i]);
        i64 size = dim_mem(g, dim[i]);
        if (pos < 0) {
            return false;
        }
        if (size == 1) {
            continue;
        }
        i64 stride = v->stride[pos];
        if (outer == 0) {
            out->stride = stride;
        } else if (stride != outer) {
            return false;
        }
        outer = stride * size;
        out->size *= size;
    }
    return true;
}

static u32 dims_of(const Value *v, const Attr *sum, bool summed, u32 *dim)
{
    u32 n = 0;
    for (u32 i = 0; i < v->type.rank; i++) {
        bool in = false;
        for (u32 k = 0; k < sum->n; k++) {
            in = in || sum->dim[k] == v->type.dim[i];
        }
        if (in == summed) {
            dim[n++] = v->type.dim[i];
        }
    }
    return n;
}

/* inner must be contiguous; its partner's stride becomes the leading one */
static bool leading(Flatten outer, Flatten inner, i64 *ld)
{
    *ld = outer.size > 1 ? outer.stride : inner.size;
    return inner.size == 1 || inner.stride == 1;
}

bool gemm_shape(const Graph *g, u32 node, Gemm *out)
{
    const Node *n = &g->node.at[node];
    const Attr *sum = node_attr(g, node, "sum");
    if (!sum || sum->kind != AT_DIMS || n->nin < 2) {
        return false;
    }
    const Value *a = &g->value.at[g->arg.at[n->in]], *b = &g->value.at[g->arg.at[n->in + 1]];
    const Value *c = &g->value.at[n->out];
    u32 m[RANK_MAX], k[RANK_MAX], w[RANK_MAX];
    u32 nm = dims_of(a, sum, false, m), nk = dims_of(a, sum, true, k);
    u32 nw = dims_of(b, sum, false, w);
    Flatten am, ak, bk, bn, cm, cn;
    if (!flatten(g, a, m, nm, &am) || !flatten(g, a, k, nk, &ak) || !flatten(g, b, k, nk, &bk) ||
        !flatten(g, b, w, nw, &bn) || !flatten(g, c, m, nm, &cm) || !flatten(g, c, w, nw, &cn)) {
        return false;
    }
    Gemm r = {.m = am.size, .n = bn.size, .k = ak.size};
    if (!leading(am, ak, &r.lda)) {
        r.ta = true;
        if (!leading(ak, am, &r.lda)) {
            return false;
        }
    }
    if (!leading(bk, bn, &r.ldb)) {
        r.tb = true;
        if (!leading(bn, bk, &r.ldb)) {
            return false;
        }
    }
    if (!leading(cm, cn, &r.ldc)) {
        return false;
    }
    *out = r;
    return true;
}
