/* parse.c: the text form back to a Graph. Any input ends in a Graph or in fail() with a position.
 *
 * One statement a line, `;` starts a comment. A first scan collects the names of the Funcs, so that
 * loops, saves and twins may name a Func that comes later.
 */
#include "megagen.h"
#include "text.h"

#include <assert.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { E_SYNTAX = 701, E_NAME = 702, E_RANGE = 703 };
enum { NUM_MAX = 1 << 17, ARG_MAX = 4096, OUT_MAX = 64 };
#define SIZE_LIMIT ((i64)1 << 40)

typedef struct {
    u32 value, func; /* whose base (or live count) is still only a number                   */
    u32 num;
    Loc loc;
} Later;

typedef VEC(u32) Ids;

typedef struct {
    Graph *g;
    Sym file;
    const char *src, *at, *end, *line_at;
    i32 line;
    VEC(Ids) num;      /* per Func: number in the text -> value id                          */
    VEC(bool) defined; /* per Func: its statement has been read                             */
    VEC(Later) base;   /* windows on values that come later                                 */
    VEC(Later) count;  /* dims with a live count: value = dim id                            */
    Ids reg;           /* number of an unnamed reg -> id                                    */
} Parse;

/* Room for n numbers; new ones are 0. */
static void ids_room(Parse *p, Ids *ids, u32 n)
{
    if (ids->n < n) {
        vec_grow(p->g->arena, (void **)&ids->at, &ids->cap, n, sizeof *ids->at);
        ids->n = n;
    }
}

/* ---- characters and words ------------------------------------------------------------------- */

static Loc here(const Parse *p)
{
    return (Loc){p->file, p->line, (i32)(p->at - p->line_at) + 1};
}

#define BAD(p, code, ...) fail((p)->g, here(p), (code), __VA_ARGS__)

static void blanks(Parse *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\r')) {
        p->at++;
    }
    if (p->at < p->end && *p->at == ';') {
        while (p->at < p->end && *p->at != '\n') {
            p->at++;
        }
    }
}

static char peek(Parse *p)
{
    blanks(p);
    return p->at < p->end && *p->at ? *p->at : '\n';
}

static bool eol(Parse *p)
{
    blanks(p);
    if (p->at < p->end && *p->at == 0) {
        BAD(p, E_SYNTAX, "a NUL character");
    }
    return p->at == p->end || *p->at == '\n';
}

static void next_line(Parse *p)
{
    if (!eol(p)) {
        BAD(p, E_SYNTAX, "unexpected text at the end of the statement");
    }
    if (p->at < p->end) {
        p->at++;
        p->line++;
        p->line_at = p->at;
    }
}

/* To the next line with something in it; false at the end of the text. */
static bool next_statement(Parse *p)
{
    while (p->at < p->end && eol(p)) {
        next_line(p);
    }
    return p->at < p->end;
}

static bool accept(Parse *p, char c)
{
    if (c == '\n' || peek(p) != c) {
        return false;
    }
    p->at++;
    return true;
}

static void expect(Parse *p, char c)
{
    if (!accept(p, c)) {
        BAD(p, E_SYNTAX, "expected `%c`", c);
    }
}

static void expect_arrow(Parse *p)
{
    blanks(p);
    if (p->end - p->at < 2 || memcmp(p->at, "->", 2) != 0) {
        BAD(p, E_SYNTAX, "expected `->`");
    }
    p->at += 2;
}

/* End of the word that starts at s: "-" followed by ">" is an arrow, "+" only after an exponent. */
static const char *word_end(const Parse *p, const char *s)
{
    const char *from = s;
    bool num = s < p->end && ((*s >= '0' && *s <= '9') || *s == '-' || *s == '.');
    while (s < p->end) {
        bool arrow = *s == '-' && s + 1 < p->end && s[1] == '>';
        bool plus = *s == '+' && num && s > from && (s[-1] == 'e' || s[-1] == 'E');
        if ((!text_word_char(*s) && !plus) || arrow) {
            break;
        }
        s++;
    }
    return s;
}

static Sym quoted(Parse *p)
{
    Text t = {0};
    p->at++;
    for (;;) {
        if (p->at >= p->end || *p->at == '\n' || *p->at == 0) {
            BAD(p, E_SYNTAX, "a string without its closing quote");
        }
        char c = *p->at++;
        if (c == '"') {
            return sym(p->g, text_str(p->g->arena, &t));
        }
        if (c == '\\' && p->at < p->end && *p->at == 'x') {
            unsigned code = 0;
            if (p->end - p->at < 3 || sscanf(p->at + 1, "%2x", &code) != 1 || code == 0) {
                BAD(p, E_SYNTAX, "\\x needs two hexadecimal digits");
            }
            c = (char)code;
            p->at += 3;
        } else if (c == '\\' && p->at < p->end && (*p->at == '"' || *p->at == '\\')) {
            c = *p->at++;
        } else if (c == '\\') {
            BAD(p, E_SYNTAX, "unknown escape in a string");
        }
        text_fmt(p->g->arena, &t, "%c", c);
    }
}

/* A word or a string. */
static Sym word(Parse *p, const char *what)
{
    if (peek(p) == '"') {
        return quoted(p);
    }
    const char *from = p->at, *to = word_end(p, from);
    if (to == from) {
        BAD(p, E_SYNTAX, "expected %s", what);
    }
    p->at = to;
    return sym_n(p->g, from, (u64)(to - from));
}

static const char *word_str(Parse *p, const char *what)
{
    return sym_str(p->g, word(p, what));
}

/* Is the next word exactly s? Then it is taken. */
static bool accept_word(Parse *p, const char *s)
{
    blanks(p);
    const char *to = word_end(p, p->at);
    u64 n = strlen(s);
    if ((u64)(to - p->at) != n || memcmp(p->at, s, n) != 0) {
        return false;
    }
    p->at = to;
    return true;
}

/* key= in front of a value */
static bool accept_key(Parse *p, const char *key)
{
    blanks(p);
    const char *from = p->at, *to = word_end(p, from);
    u64 n = strlen(key);
    if ((u64)(to - from) != n || memcmp(from, key, n) != 0 || to >= p->end || *to != '=') {
        return false;
    }
    p->at = to + 1;
    return true;
}

static u32 choice(Parse *p, const char *const *names, const char *what)
{
    Loc at = (blanks(p), here(p));
    const char *s = word_str(p, what);
    for (u32 i = 0; names[i]; i++) {
        if (strcmp(names[i], s) == 0) {
            return i;
        }
    }
    Text t = {0};
    for (u32 i = 0; names[i]; i++) {
        text_fmt(p->g->arena, &t, "%s%s", i ? ", " : "", names[i]);
    }
    fail(p->g, at, E_NAME, "`%s` is no %s\nhelp: one of %s", s, what, text_str(p->g->arena, &t));
}

static bool accept_choice(Parse *p, const char *const *names, u32 *out)
{
    for (u32 i = 0; names[i]; i++) {
        if (accept_word(p, names[i])) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

static i64 integer(Parse *p, i64 lo, i64 hi)
{
    Loc at = (blanks(p), here(p));
    const char *s = word_str(p, "a whole number");
    char *stop;
    errno = 0;
    long long v = strtoll(s, &stop, 10);
    if (!*s || *stop) {
        fail(p->g, at, E_SYNTAX, "expected a whole number, not `%s`", s);
    }
    if (errno || v < lo || v > hi) {
        fail(p->g, at, E_RANGE, "%s is outside of %lld .. %lld", s, (long long)lo, (long long)hi);
    }
    return v;
}

static u32 small(Parse *p, u32 hi)
{
    return (u32)integer(p, 0, hi);
}

static u64 bytes(Parse *p)
{
    return (u64)integer(p, 0, (i64)1 << 48);
}

static bool is_number(const char *s)
{
    const char *digits = *s == '-' ? s + 1 : s;
    return (*digits >= '0' && *digits <= '9') || *digits == '.' || strcmp(digits, "inf") == 0 ||
           strcmp(digits, "nan") == 0;
}

static f64 real(Parse *p)
{
    Loc at = (blanks(p), here(p));
    const char *s = word_str(p, "a number");
    char *stop;
    f64 v = strtod(s, &stop);
    if (!is_number(s) || *stop) {
        fail(p->g, at, E_SYNTAX, "expected a number, not `%s`", s);
    }
    return v;
}

/* `@123`: where something lies */
static bool accept_offset(Parse *p, u64 *out)
{
    if (peek(p) != '@' || p->at + 1 >= p->end || p->at[1] < '0' || p->at[1] > '9') {
        return false;
    }
    p->at++;
    *out = bytes(p);
    return true;
}

static Loc location(Parse *p)
{
    Loc l = {.file = word(p, "a file")};
    expect(p, ':');
    l.line = (i32)integer(p, 0, INT32_MAX);
    expect(p, ':');
    l.col = (i32)integer(p, 0, INT32_MAX);
    return l;
}

/* ---- names of things that exist ----------------------------------------------------------------
 */

static u32 dim_name(Parse *p)
{
    Loc at = (blanks(p), here(p));
    Sym s = word(p, "a dim");
    for (u32 i = 1; i < p->g->dim.n; i++) {
        if (p->g->dim.at[i].name == s) {
            return i;
        }
    }
    fail(p->g, at, E_NAME, "no dim is called `%s`", sym_str(p->g, s));
}

static u32 atom_name(Parse *p)
{
    Loc at = (blanks(p), here(p));
    Sym s = word(p, "an atom of the mesh");
    for (u32 i = 1; i < p->g->atom.n; i++) {
        if (p->g->atom.at[i].name == s) {
            return i;
        }
    }
    fail(p->g, at, E_NAME, "no atom of the mesh is called `%s`", sym_str(p->g, s));
}

static u32 flat_find(const Graph *g, Sym s)
{
    for (u32 i = 1; i < g->flat.n; i++) {
        if (g->flat.at[i].name == s) {
            return i;
        }
    }
    return 0;
}

static u32 flat_name(Parse *p)
{
    Loc at = (blanks(p), here(p));
    Sym s = word(p, "a flat arena");
    u32 id = flat_find(p->g, s);
    if (!id) {
        fail(p->g, at, E_NAME, "no flat arena is called `%s`", sym_str(p->g, s));
    }
    return id;
}

static u32 var_find(const Graph *g, Sym s)
{
    for (u32 i = 1; i < g->var.n; i++) {
        if (g->var.at[i].path == s) {
            return i;
        }
    }
    return 0;
}

static u32 var_name(Parse *p)
{
    Loc at = (blanks(p), here(p));
    Sym s = word(p, "a variable");
    u32 id = var_find(p->g, s);
    if (!id) {
        fail(p->g, at, E_NAME, "no variable is called `%s`", sym_str(p->g, s));
    }
    return id;
}

static u32 func_find(const Graph *g, Sym s)
{
    for (u32 i = 1; i < g->func.n; i++) {
        if (g->func.at[i].name == s) {
            return i;
        }
    }
    return 0;
}

static u32 func_name(Parse *p)
{
    Loc at = (blanks(p), here(p));
    Sym s = word(p, "a Func");
    u32 id = func_find(p->g, s);
    if (!id) {
        fail(p->g, at, E_NAME, "no Func is called `%s`", sym_str(p->g, s));
    }
    return id;
}

static u32 inst_name(Parse *p)
{
    Loc at = (blanks(p), here(p));
    Sym s = word(p, "a kernel instance");
    for (u32 i = 1; i < p->g->inst.n; i++) {
        if (p->g->inst.at[i].name == s) {
            return i;
        }
    }
    fail(p->g, at, E_NAME, "no kernel instance is called `%s`", sym_str(p->g, s));
}

static void func_new(Parse *p, Sym name, Role role)
{
    func_add(p->g, name, role);
    while (p->num.n < p->g->func.n) {
        vec_push(p->g->arena, &p->num, (Ids){0});
        vec_push(p->g->arena, &p->defined, false);
    }
}

static u32 value_by_number(Parse *p, u32 func, u32 num, Loc at)
{
    const Ids *ids = &p->num.at[func];
    if (num >= ids->n || !ids->at[num]) {
        fail(p->g, at, E_NAME, "%%%u is not defined in Func %s%s", num,
             sym_str(p->g, p->g->func.at[func].name),
             p->defined.at[func] ? "" : ", which is not in the text");
    }
    return ids->at[num];
}

static u32 value_ref(Parse *p, u32 func)
{
    Loc at = (blanks(p), here(p));
    expect(p, '%');
    u32 num = small(p, NUM_MAX);
    return value_by_number(p, func, num, at);
}

/* ---- types and places ---------------------------------------------------------------------------
 */

static void check_elems(Parse *p, const Type *t, Loc at)
{
    i64 n = 1;
    for (u32 i = 0; i < t->rank; i++) {
        if (__builtin_mul_overflow(n, dim_mem(p->g, t->dim[i]), &n) || n > SIZE_LIMIT << 8) {
            fail(p->g, at, E_RANGE, "a type with too many elements");
        }
        for (u32 k = 0; k < i; k++) {
            if (t->dim[k] == t->dim[i]) {
                fail(p->g, at, E_RANGE, "dim %s twice in one type",
                     sym_str(p->g, p->g->dim.at[t->dim[i]].name));
            }
        }
    }
}

static Type type(Parse *p, Place *at)
{
    Loc start = (blanks(p), here(p));
    const char *s = word_str(p, "a dtype");
    Type t = {.dtype = dtype_parse(s)};
    if (t.dtype == DT_NONE) {
        fail(p->g, start, E_NAME, "`%s` is no dtype", s);
    }
    expect(p, '[');
    while (!accept(p, ']')) {
        if (t.rank == RANK_MAX) {
            BAD(p, E_RANGE, "a type has at most %d dims", RANK_MAX);
        }
        t.dim[t.rank] = dim_name(p);
        while (accept(p, '@')) {
            u32 a = atom_name(p);
            if (!at || at[a - 1].kind != PL_R) {
                BAD(p, E_SYNTAX,
                    at ? "the atom has a place already" : "a place is not allowed here");
            }
            at[a - 1] = (Place){.kind = PL_S, .dim = t.rank};
            if (accept(p, '~')) {
                if (!accept_word(p, "zigzag")) {
                    BAD(p, E_SYNTAX, "expected `zigzag`");
                }
                at[a - 1].order = SPLIT_ZIGZAG;
            }
        }
        t.rank++;
    }
    check_elems(p, &t, start);
    return t;
}

/* P(tp) M(tp) F(dp:weight) W(dp) */
static void places(Parse *p, Place *at)
{
    static const char letter[] = "PMFW";
    static const u8 kind[] = {PL_P, PL_M, PL_F, PL_W};
    for (;;) {
        const char *which = strchr(letter, peek(p));
        if (!which || p->at + 1 >= p->end || p->at[1] != '(') {
            return;
        }
        p->at += 2;
        u32 a = atom_name(p);
        if (at[a - 1].kind != PL_R) {
            BAD(p, E_SYNTAX, "the atom has a place already");
        }
        at[a - 1] = (Place){.kind = kind[which - letter]};
        if (accept(p, ':')) {
            at[a - 1].bucket = flat_name(p);
        }
        expect(p, ')');
    }
}

static u8 dtype(Parse *p)
{
    Loc at = (blanks(p), here(p));
    const char *s = word_str(p, "a dtype");
    u8 dt = dtype_parse(s);
    if (dt == DT_NONE) {
        fail(p->g, at, E_NAME, "`%s` is no dtype", s);
    }
    return dt;
}

/* ---- attributes
 * ----------------------------------------------------------------------------------- */

static Attr attr_value(Parse *p, Sym key)
{
    Attr a = {.key = key};
    char c = peek(p);
    if (c == '"') {
        return attr_sym(key, quoted(p));
    }
    if (accept(p, '#')) {
        return attr_dim(key, dim_name(p));
    }
    if (c == '[' || c == '(') {
        p->at++;
        a.kind = c == '[' ? AT_DIMS : AT_NUMS;
        while (!accept(p, c == '[' ? ']' : ')')) {
            if (a.n == RANK_MAX) {
                BAD(p, E_RANGE, "at most %d entries", RANK_MAX);
            }
            if (c == '[') {
                a.dim[a.n++] = dim_name(p);
            } else {
                a.nums[a.n++] = real(p);
            }
        }
        return a;
    }
    const char *from = p->at;
    const char *s = word_str(p, "a value");
    p->at = from;
    if (!is_number(s)) {
        return attr_dim(key, dim_name(p));
    }
    if (strpbrk(s, ".eEn")) {
        return attr_num(key, real(p));
    }
    return attr_int(key, integer(p, INT64_MIN, INT64_MAX));
}

/* {key=value ...}: appended to list */
typedef VEC(Attr) Attrs;

static void attrs(Parse *p, Attrs *list)
{
    while (!accept(p, '}')) {
        Sym key = word(p, "an attribute or `}`");
        expect(p, '=');
        Attr a = attr_value(p, key);
        vec_push(p->g->arena, list, a);
    }
}

/* ---- head
 * ------------------------------------------------------------------------------------------ */

static void st_config(Parse *p)
{
    Config *c = &p->g->cfg;
    while (!eol(p)) {
        if (accept_key(p, "name")) {
            c->name = word(p, "a name");
        } else if (accept_key(p, "spec")) {
            c->spec_file = word(p, "a file");
        } else if (accept_key(p, "target")) {
            c->target = word(p, "a target");
        } else if (accept_key(p, "cpu")) {
            c->cpu = word(p, "a feature level");
        } else if (accept_key(p, "compute")) {
            c->compute = dtype(p);
        } else if (accept_key(p, "master")) {
            c->master = dtype(p);
        } else if (accept_key(p, "grads")) {
            c->grads = dtype(p);
        } else if (accept_key(p, "moments")) {
            c->moments = dtype(p);
        } else if (accept_key(p, "micro")) {
            c->micro = integer(p, 0, SIZE_LIMIT);
        } else if (accept_key(p, "seq")) {
            c->seq = integer(p, 0, SIZE_LIMIT);
        } else if (accept_key(p, "global")) {
            c->global = integer(p, 0, SIZE_LIMIT);
        } else if (accept_key(p, "remat")) {
            c->remat = word(p, "a mode");
        } else if (accept_key(p, "out")) {
            c->out_dir = word(p, "a folder");
        } else if (accept_key(p, "fuse")) {
            static const char *const on[] = {"off", "on", NULL};
            c->fuse = choice(p, on, "switch");
        } else {
            BAD(p, E_NAME, "unknown key of config");
        }
    }
}

static void st_mesh(Parse *p)
{
    i64 ranks = 1;
    for (u32 i = 1; i < p->g->atom.n; i++) {
        ranks *= p->g->atom.at[i].size;
    }
    while (!eol(p)) {
        Atom a = {.name = word(p, "an atom")};
        expect(p, '=');
        a.size = (i32)integer(p, 1, 1 << 20);
        ranks *= a.size;
        if (ranks > 1 << 20) {
            BAD(p, E_RANGE, "a mesh has at most %d ranks", 1 << 20);
        }
        if (p->g->atom.n > ATOM_MAX) {
            BAD(p, E_RANGE, "a mesh has at most %d atoms", ATOM_MAX);
        }
        vec_push(p->g->arena, &p->g->atom, a);
    }
}

static void st_axis(Parse *p)
{
    Axis x = {.name = word(p, "an axis")};
    expect(p, '=');
    while (!eol(p)) {
        if (x.natom == ATOM_MAX) {
            BAD(p, E_RANGE, "an axis has at most %d atoms", ATOM_MAX);
        }
        x.atom[x.natom++] = (u8)atom_name(p);
    }
    vec_push(p->g->arena, &p->g->axis, x);
}

static void st_op(Parse *p)
{
    Loc at = here(p);
    Op op = {.name = word(p, "an op"), .flags = OF_TEXT, .loc = at};
    blanks(p);
    if (peek(p) != '"') {
        BAD(p, E_SYNTAX, "expected a signature in quotes");
    }
    op.sig_text = quoted(p);
    op.sig = sig_parse(p->g, at, sym_str(p->g, op.sig_text));
    while (!eol(p)) {
        u32 flag;
        if (accept_key(p, "inplace")) {
            vec_push(p->g->arena, &op.inplace, word(p, "a result"));
            expect(p, ':');
            vec_push(p->g->arena, &op.inplace, word(p, "an operand"));
        } else if (accept_key(p, "whole")) {
            vec_push(p->g->arena, &op.whole, word(p, "a dim"));
        } else if (accept_choice(p, text_op_flags, &flag)) {
            op.flags |= 1u << flag;
        } else {
            BAD(p, E_NAME, "unknown flag of op");
        }
    }
    for (u32 i = 0; i + 1 < op.inplace.n; i += 2) {
        if (sig_out(op.sig, op.inplace.at[i]) < 0 || sig_in(op.sig, op.inplace.at[i + 1]) < 0) {
            fail(p->g, at, E_NAME, "op %s: `inplace` names no result and operand",
                 sym_str(p->g, op.name));
        }
    }
    if (op.flags & (OF_VIEW | OF_EFFECT | OF_STRUCT | OF_BODY)) {
        fail(p->g, at, E_RANGE, "op %s: a text declares only kernels and collectives",
             sym_str(p->g, op.name));
    }
    vec_push(p->g->arena, &p->g->op, op);
}

static void st_dim(Parse *p)
{
    Loc at = (blanks(p), here(p));
    Dim d = {.name = word(p, "a dim")};
    for (u32 i = 1; i < p->g->dim.n; i++) {
        if (p->g->dim.at[i].name == d.name) {
            fail(p->g, at, E_NAME, "dim %s twice", sym_str(p->g, d.name));
        }
    }
    expect(p, '=');
    d.size = integer(p, 1, SIZE_LIMIT);
    if (accept_word(p, "pad")) {
        d.pad = integer(p, d.size, SIZE_LIMIT);
    }
    if (accept_word(p, "max")) {
        d.max = integer(p, d.size, SIZE_LIMIT);
    }
    if (accept_word(p, "count")) {
        Later l = {.value = p->g->dim.n, .func = func_name(p)};
        expect(p, '%');
        l.loc = here(p);
        l.num = small(p, NUM_MAX);
        vec_push(p->g->arena, &p->count, l);
    }
    vec_push(p->g->arena, &p->g->dim, d);
}

static void st_region(Parse *p)
{
    u32 r = choice(p, text_regions, "region");
    Region *to = &p->g->region[r];
    if (!accept_offset(p, &to->off) || !accept_key(p, "bytes")) {
        BAD(p, E_SYNTAX, "expected `@OFFSET bytes=N`");
    }
    to->bytes = bytes(p);
}

static void st_arena(Parse *p)
{
    p->g->arena_bytes = bytes(p);
}

static void st_flat(Parse *p)
{
    Flat f = {.name = word(p, "a name")};
    f.dtype = dtype(p);
    f.kind = (u8)choice(p, text_var_kinds, "kind of variable");
    if (!accept_key(p, "elems")) {
        BAD(p, E_SYNTAX, "expected `elems=N`");
    }
    f.elems = bytes(p);
    accept_offset(p, &f.off);
    places(p, f.at);
    if (flat_find(p->g, f.name)) {
        BAD(p, E_NAME, "flat arena %s twice", sym_str(p->g, f.name));
    }
    vec_push(p->g->arena, &p->g->flat, f);
}

static void init(Parse *p, Init *in)
{
    in->kind = (u8)choice(p, text_inits, "initialisation");
    if (in->kind == INIT_ZERO || in->kind == INIT_ONE) {
        return;
    }
    expect(p, '(');
    if (in->kind == INIT_TABLE) {
        in->table = word(p, "the name of a table");
        Attrs list = {0};
        if (accept(p, '{')) {
            attrs(p, &list);
        }
        in->attr = p->g->attr.n;
        in->nattr = list.n;
        for (u32 i = 0; i < list.n; i++) {
            vec_push(p->g->arena, &p->g->attr, list.at[i]);
        }
    } else {
        in->a = real(p);
        if (in->kind != INIT_CONST) {
            expect(p, ',');
            in->b = real(p);
        }
    }
    expect(p, ')');
}

static bool var_option(Parse *p, Var *v)
{
    if (accept_word(p, "saved")) {
        v->saved = true;
    } else if (accept_word(p, "frozen")) {
        v->frozen = true;
    } else if (accept_key(p, "init")) {
        init(p, &v->init);
    } else if (accept_key(p, "group")) {
        v->group = word(p, "a group");
    } else if (accept_key(p, "of")) {
        v->of = var_name(p);
    } else if (accept_key(p, "flat")) {
        v->flat = flat_name(p);
        expect(p, '+');
        v->elem = bytes(p);
    } else if (accept_key(p, "stages")) {
        do {
            v->stages |= (u64)1 << small(p, 63);
        } while (accept(p, ','));
    } else if (accept_key(p, "loc")) {
        v->loc = location(p);
    } else {
        return accept_offset(p, &v->off);
    }
    return true;
}

static void st_var(Parse *p)
{
    Loc at = (blanks(p), here(p));
    Var v = {.path = word(p, "a name")};
    if (var_find(p->g, v.path)) {
        fail(p->g, at, E_NAME, "variable %s twice", sym_str(p->g, v.path));
    }
    expect(p, ':');
    v.type = type(p, v.at);
    places(p, v.at);
    v.kind = (u8)choice(p, text_var_kinds, "kind of variable");
    v.life = (u8)choice(p, text_lives, "life");
    while (!eol(p)) {
        if (!var_option(p, &v)) {
            BAD(p, E_NAME, "unknown option of a variable");
        }
    }
    vec_push(p->g->arena, &p->g->var, v);
}

static void st_members(Parse *p)
{
    u32 f = flat_name(p);
    while (!eol(p)) {
        u32 v = var_name(p);
        vec_push(p->g->arena, &p->g->flat.at[f].var, v);
    }
}

/* ---- bodies, instances, buffers
 * --------------------------------------------------------------------- */

static u32 key_small(Parse *p, const char *key, u32 hi)
{
    if (!accept_key(p, key)) {
        BAD(p, E_SYNTAX, "expected `%s=`", key);
    }
    return small(p, hi);
}

static u32 body_ref(Parse *p, const Body *b)
{
    blanks(p);
    if (p->at >= p->end || *p->at != 'n') {
        BAD(p, E_SYNTAX, "expected a node of the body, like n3");
    }
    p->at++;
    return small(p, b->node.n ? b->node.n - 1 : 0);
}

static BodyPort read_body_port(Parse *p, const Body *b)
{
    BodyPort x = {.name = word(p, "a name")};
    expect(p, ':');
    const char *s = word_str(p, "a dtype");
    x.dtype = dtype_parse(s);
    if (x.dtype == DT_NONE && strcmp(s, "none") != 0) {
        BAD(p, E_NAME, "`%s` is no dtype", s);
    }
    expect(p, '[');
    while (!accept(p, ']')) {
        if (x.rank == RANK_MAX || b->ndim == 0) {
            BAD(p, E_RANGE, "too many dims");
        }
        x.axis[x.rank++] = (u8)small(p, b->ndim - 1u);
    }
    x.dims = key_small(p, "mask", (1u << b->ndim) - 1);
    x.node = key_small(p, "node", NUM_MAX);
    if (accept_key(p, "inplace")) {
        x.inplace = (i32)integer(p, 0, ARG_MAX);
    }
    x.saved = accept_word(p, "saved");
    x.accum = accept_word(p, "accum");
    return x;
}

static BodyNode read_body_node(Parse *p, const Body *b)
{
    u32 mask = (1u << b->ndim) - 1;
    Loc at = (blanks(p), here(p));
    const char *fn = word_str(p, "a function");
    i32 id = body_fn_find(fn);
    if (id < 0) {
        fail(p->g, at, E_NAME, "`%s` is no function of the body language", fn);
    }
    BodyNode n = {.fn = (u8)id, .type = (u8)key_small(p, "type", BT_B)};
    while (peek(p) == 'n' && p->at + 1 < p->end && p->at[1] >= '0' && p->at[1] <= '9') {
        if (n.narg == 3) {
            BAD(p, E_RANGE, "at most three arguments");
        }
        n.arg[n.narg++] = body_ref(p, b);
    }
    if (accept_key(p, "to")) {
        n.to = dtype(p);
    }
    n.dims = key_small(p, "mask", mask);
    n.over = accept_key(p, "over") ? small(p, UINT32_MAX) : 0;
    n.num = accept_key(p, "num") ? real(p) : 0;
    n.name = accept_key(p, "name") ? word(p, "a name") : 0;
    n.port = accept_key(p, "port") ? small(p, ARG_MAX) : 0;
    return n;
}

static void body_head(Parse *p, Body *b)
{
    while (!eol(p) && peek(p) != '"') {
        if (b->ndim == 2 * RANK_MAX) {
            BAD(p, E_RANGE, "too many dims");
        }
        b->dim[b->ndim].name = word(p, "a dim of the body");
        expect(p, ':');
        b->dim[b->ndim++].dim = dim_name(p);
    }
    if (peek(p) == '"') {
        b->text = quoted(p);
    }
    next_line(p);
}

static void body_check(Parse *p, const Body *b)
{
    for (u32 i = 0; i < b->in.n + b->out.n; i++) {
        const BodyPort *x = i < b->in.n ? &b->in.at[i] : &b->out.at[i - b->in.n];
        if (x->node >= b->node.n || x->inplace > (i32)b->in.n) {
            BAD(p, E_RANGE, "port %s names no node of its body", sym_str(p->g, x->name));
        }
    }
}

static void st_body(Parse *p)
{
    expect(p, '#');
    u32 num = small(p, NUM_MAX);
    if (num < p->g->body.n || num > p->g->body.n + 1024) {
        BAD(p, E_RANGE, "bodies are numbered upwards");
    }
    Body *b = arena_alloc(p->g->arena, sizeof *b);
    vec_push(p->g->arena, &b->node, (BodyNode){0});
    body_head(p, b);
    while (next_statement(p) && !accept_word(p, "end")) {
        if (accept_word(p, "in")) {
            BodyPort x = read_body_port(p, b);
            vec_push(p->g->arena, &b->in, x);
        } else if (accept_word(p, "out")) {
            BodyPort x = read_body_port(p, b);
            vec_push(p->g->arena, &b->out, x);
        } else {
            const char *s = word_str(p, "a node, like n3");
            if (s[0] != 'n' || strcmp(s + 1, arena_fmt(p->g->arena, "%u", b->node.n)) != 0) {
                BAD(p, E_SYNTAX, "expected node n%u", b->node.n);
            }
            expect(p, '=');
            BodyNode n = read_body_node(p, b);
            vec_push(p->g->arena, &b->node, n);
        }
        next_line(p);
    }
    body_check(p, b);
    while (p->g->body.n < num) {
        vec_push(p->g->arena, &p->g->body, NULL);
    }
    vec_push(p->g->arena, &p->g->body, b);
}

static u32 kern_by_name(Parse *p, Sym name)
{
    for (u32 i = 1; i < p->g->kern.n; i++) {
        if (p->g->kern.at[i].name == name) {
            return i;
        }
    }
    vec_push(p->g->arena, &p->g->kern, (Kern){.name = name});
    return p->g->kern.n - 1;
}

static void st_inst(Parse *p)
{
    Inst x = {.name = word(p, "a name")};
    if (accept_key(p, "kern")) {
        x.kern = kern_by_name(p, word(p, "a kernel"));
    }
    if (accept_key(p, "hash")) {
        const char *s = word_str(p, "a hash");
        char *stop;
        x.hash = strtoull(s, &stop, 16);
        if (*stop || s[0] == '-') {
            BAD(p, E_SYNTAX, "expected a hexadecimal number");
        }
    }
    while (!eol(p)) {
        vec_push(p->g->arena, &x.key, word(p, "a constant"));
        expect(p, '=');
        vec_push(p->g->arena, &x.value, word(p, "a value"));
    }
    vec_push(p->g->arena, &p->g->inst, x);
}

static void st_first(Parse *p)
{
    u32 x = inst_name(p);
    u32 f = func_name(p);
    const Func *func = &p->g->func.at[f];
    if (func->node.n == 0) {
        BAD(p, E_RANGE, "a Func without nodes");
    }
    p->g->inst.at[x].node = func->node.at[small(p, func->node.n - 1)];
}

static u32 buf_number(Parse *p)
{
    const char *s = word_str(p, "a buffer, like b3");
    char *stop;
    unsigned long v = *s == 'b' ? strtoul(s + 1, &stop, 10) : 0;
    if (v == 0 || v > NUM_MAX || *stop) {
        BAD(p, E_SYNTAX, "expected a buffer, like b3");
    }
    return (u32)v;
}

static void st_buf(Parse *p)
{
    if (buf_number(p) != p->g->buf.n) {
        BAD(p, E_RANGE, "expected buffer b%u", p->g->buf.n);
    }
    Buf b = {.region = (u8)choice(p, text_regions, "region")};
    if (accept_key(p, "func")) {
        b.func = func_name(p);
    }
    if (!accept_offset(p, &b.off) || !accept_key(p, "bytes")) {
        BAD(p, E_SYNTAX, "expected `@OFFSET bytes=N`");
    }
    b.bytes = bytes(p);
    if (!accept_key(p, "life")) {
        BAD(p, E_SYNTAX, "expected `life=FIRST..LAST`");
    }
    const char *s = word_str(p, "FIRST..LAST"); /* dots are part of a word */
    unsigned first = 0, last = 0;
    int used = 0;
    if (sscanf(s, "%9u..%9u%n", &first, &last, &used) != 2 || s[used]) {
        BAD(p, E_SYNTAX, "expected `life=FIRST..LAST`");
    }
    b.first = first;
    b.last = last;
    vec_push(p->g->arena, &p->g->buf, b);
}

/* ---- Funcs
 * ----------------------------------------------------------------------------------------- */

/* What stands before `= op`: number, type and the rest of a value that is not made yet. */
typedef struct {
    u32 num, on; /* on: number of the base; 0 = itself                                      */
    bool window;
    Value v;
    Loc loc;
} Result;

static void window(Parse *p, Result *r)
{
    r->window = true;
    r->v.off = integer(p, INT64_MIN, INT64_MAX);
    expect(p, '[');
    u32 n = 0;
    while (!accept(p, ']')) {
        i64 s = integer(p, INT64_MIN, INT64_MAX);
        if (n == r->v.type.rank) {
            BAD(p, E_RANGE, "more strides than dims");
        }
        r->v.stride[n++] = s;
    }
    if (n != r->v.type.rank) {
        BAD(p, E_RANGE, "%u strides for %u dims", n, r->v.type.rank);
    }
}

static Result result(Parse *p)
{
    Result r = {.loc = here(p)};
    expect(p, '%');
    r.num = small(p, NUM_MAX);
    expect(p, ':');
    r.v.type = type(p, r.v.at);
    places(p, r.v.at);
    if (accept_word(p, "on")) {
        expect(p, '%');
        r.on = small(p, NUM_MAX);
    }
    if (accept(p, '+')) {
        window(p, &r);
    }
    u32 flag;
    for (;;) {
        if (accept(p, '@')) {
            r.v.buf = buf_number(p);
            if (r.v.buf >= p->g->buf.n) {
                BAD(p, E_NAME, "no buffer b%u", r.v.buf);
            }
        } else if (accept_choice(p, text_flags, &flag)) {
            r.v.flags = (u16)(r.v.flags | 1u << flag);
        } else if (peek(p) == '"') {
            r.v.path = quoted(p);
        } else {
            break;
        }
    }
    return r;
}

/* The value exists now: give it its number and what the text says of it. */
static void finish(Parse *p, u32 func, const Result *r, u32 id)
{
    Ids *ids = &p->num.at[func];
    if (r->num < ids->n && ids->at[r->num]) {
        fail(p->g, r->loc, E_NAME, "%%%u is defined twice", r->num);
    }
    ids_room(p, ids, r->num + 1);
    ids->at[r->num] = id;
    Value *v = &p->g->value.at[id];
    v->flags = r->v.flags;
    v->path = r->v.path;
    v->buf = r->v.buf;
    memcpy(v->at, r->v.at, sizeof v->at);
    if (r->window) {
        v->off = r->v.off;
        memcpy(v->stride, r->v.stride, sizeof v->stride);
    }
    if (r->on) {
        vec_push(p->g->arena, &p->base, (Later){id, func, r->on, r->loc});
    }
}

static void formal(Parse *p, u32 func)
{
    Loc at = (blanks(p), here(p));
    Sym name = word(p, "a variable");
    expect(p, ':');
    Type t = type(p, NULL);
    u32 kind = choice(p, text_var_kinds, "kind of variable");
    u32 had = p->g->func.at[func].formal.n;
    if (formal_find(p->g, func, name, t, kind) <= had) {
        fail(p->g, at, E_NAME, "formal %s twice", sym_str(p->g, name));
    }
}

static void input(Parse *p, u32 func)
{
    if (peek(p) != '%') {
        BAD(p, E_SYNTAX, "expected a value, like %%3");
    }
    Result r = result(p);
    u32 id = func_input(p->g, func, r.v.type, 0);
    finish(p, func, &r, id);
    if (accept(p, ':')) {
        u32 kind = choice(p, text_in_kinds, "kind of operand");
        vec_push(p->g->arena, &p->g->func.at[func].in_kind, (u8)kind);
    }
}

static void outputs(Parse *p, u32 func)
{
    while (!eol(p)) {
        u32 v = value_ref(p, func);
        vec_push(p->g->arena, &p->g->func.at[func].out, v);
        if (accept(p, ':')) {
            u32 kind = choice(p, text_out_kinds, "kind of result");
            vec_push(p->g->arena, &p->g->func.at[func].out_kind, (u8)kind);
        }
    }
}

/* A node while its line is read. */
typedef struct {
    VEC(Result) out;
    Ids in;
    Attrs attr;
    Node n;
    Sym subject; /* variable of an effect, Func of a loop                                   */
    Loc subject_loc;
} Line;

static u32 op_name(Parse *p)
{
    Loc at = (blanks(p), here(p));
    const char *s = word_str(p, "an op");
    u32 op = op_find(p->g, s);
    op = op ? op : body_derived(p->g, s);
    if (!op) {
        fail(p->g, at, E_NAME, "no op is called `%s`", s);
    }
    return op;
}

static bool node_option(Parse *p, Line *l)
{
    Node *n = &l->n;
    if (accept_key(p, "trips")) {
        n->trips = (i32)integer(p, 1, INT32_MAX);
    } else if (accept_key(p, "when")) {
        n->when = (u8)choice(p, text_whens, "moment");
    } else if (accept_key(p, "skew")) {
        n->skew = (i8)integer(p, -128, 127);
    } else if (accept_key(p, "beta")) {
        n->beta = (u8)small(p, 1);
    } else if (accept_key(p, "lane")) {
        n->lane = (u8)small(p, 255);
    } else if (accept_key(p, "kern")) {
        n->kern = (u16)inst_name(p);
    } else if (accept_key(p, "path")) {
        n->path = word(p, "a path");
    } else if (accept_key(p, "pass")) {
        n->pass = word(p, "a pass");
    } else if (accept_key(p, "loc")) {
        n->loc = location(p);
    } else {
        return false;
    }
    return true;
}

static void node_rest(Parse *p, u32 func, Line *l)
{
    while (!eol(p)) {
        char c = peek(p);
        if (c == '%') {
            u32 v = value_ref(p, func);
            vec_push(p->g->arena, &l->in, v);
        } else if (accept_word(p, "_")) {
            vec_push(p->g->arena, &l->in, 0);
        } else if (accept(p, '{')) {
            attrs(p, &l->attr);
        } else if (accept(p, '#')) {
            l->n.body = small(p, NUM_MAX);
            if (l->n.body >= p->g->body.n || !p->g->body.at[l->n.body]) {
                BAD(p, E_NAME, "no body #%u", l->n.body);
            }
        } else if (!node_option(p, l)) {
            if (l->subject || l->in.n) {
                BAD(p, E_SYNTAX, "expected an operand, `{` or an option");
            }
            l->subject_loc = here(p);
            l->subject = word(p, "an operand");
        }
        if (l->in.n > ARG_MAX) {
            BAD(p, E_RANGE, "more than %d operands", ARG_MAX);
        }
    }
}

/* The name behind the op: a variable, or the Func of a loop. */
static void node_subject(Parse *p, u32 func, Line *l, const char *op)
{
    Graph *g = p->g;
    bool effect = g->op.at[l->n.op].flags & OF_EFFECT, loop = strcmp(op, "loop") == 0;
    bool fused = strcmp(op, "fused") == 0;
    if (fused != (l->n.body != 0) || (effect || loop) != (l->subject != 0)) {
        BAD(p, E_SYNTAX, "%s %s", op,
            fused            ? "needs a body, like #1"
            : effect         ? "needs a variable"
            : loop           ? "needs the name of a Func"
            : l->n.body != 0 ? "has no body"
                             : "takes values, attributes and options only");
    }
    if (loop) {
        l->n.body = func_find(g, l->subject);
        if (!l->n.body) {
            fail(g, l->subject_loc, E_NAME, "no Func is called `%s`", sym_str(g, l->subject));
        }
    }
    const Func *f = &g->func.at[func];
    for (u32 i = 0; effect && i < f->formal.n; i++) {
        if (f->formal.at[i].name == l->subject) {
            l->n.formal = i + 1;
        }
    }
    if (effect && !l->n.formal) {
        fail(g, l->subject_loc, E_NAME, "Func %s has no formal `%s`", sym_str(g, f->name),
             sym_str(g, l->subject));
    }
}

static void node(Parse *p, u32 func)
{
    Graph *g = p->g;
    Line l = {0};
    while (peek(p) == '%') {
        if (l.out.n == OUT_MAX) {
            BAD(p, E_RANGE, "more than %d results", OUT_MAX);
        }
        Result r = result(p);
        vec_push(g->arena, &l.out, r);
        accept(p, ',');
    }
    if (l.out.n) {
        expect(p, '=');
    }
    l.n.op = op_name(p);
    const char *op = sym_str(g, g->op.at[l.n.op].name);
    l.n.beta = strcmp(op, "accum") == 0;
    node_rest(p, func, &l);
    node_subject(p, func, &l, op);
    Type *types = arena_alloc(g->arena, (l.out.n + 1) * sizeof *types);
    for (u32 i = 0; i < l.out.n; i++) {
        types[i] = l.out.at[i].v.type;
    }
    u32 id = node_add_typed(g, func, l.n.op, l.in.at, l.in.n, l.attr.at, l.attr.n, types, l.out.n);
    Node *n = &g->node.at[id];
    n->formal = l.n.formal;
    n->body = l.n.body;
    n->trips = l.n.trips;
    n->when = l.n.when;
    n->skew = l.n.skew;
    n->beta = l.n.beta;
    n->lane = l.n.lane;
    n->kern = l.n.kern;
    n->path = l.n.path;
    n->pass = l.n.pass;
    n->loc = l.n.loc;
    for (u32 i = 0; i < l.out.n; i++) {
        finish(p, func, &l.out.at[i], g->node.at[id].out + i);
    }
}

static void resolve_bases(Parse *p)
{
    for (u32 i = 0; i < p->base.n; i++) {
        Later l = p->base.at[i];
        p->g->value.at[l.value].base = value_by_number(p, l.func, l.num, l.loc);
    }
    p->base.n = 0;
}

static void func_options(Parse *p, u32 func)
{
    while (!eol(p)) {
        if (accept_key(p, "twin")) {
            u32 twin = func_name(p);
            p->g->func.at[func].twin = twin;
        } else if (accept_key(p, "path")) {
            Sym s = word(p, "a path");
            p->g->func.at[func].path = s;
        } else if (accept_key(p, "loc")) {
            p->g->func.at[func].loc = location(p);
        } else {
            BAD(p, E_NAME, "unknown option of a Func");
        }
    }
    next_line(p);
}

static void st_func(Parse *p)
{
    Loc at = (blanks(p), here(p));
    Sym name = word(p, "a name");
    u32 role = choice(p, text_roles, "role");
    if (!func_find(p->g, name)) {
        func_new(p, name, role);
    }
    u32 func = func_find(p->g, name);
    if (p->defined.at[func]) {
        fail(p->g, at, E_NAME, "Func %s twice", sym_str(p->g, name));
    }
    p->defined.at[func] = true;
    p->g->func.at[func].role = (u8)role;
    func_options(p, func);
    for (;;) {
        if (!next_statement(p)) {
            fail(p->g, at, E_SYNTAX, "Func %s has no `end`", sym_str(p->g, name));
        }
        if (accept_word(p, "end")) {
            break;
        }
        if (accept_word(p, "formal")) {
            formal(p, func);
        } else if (accept_word(p, "in")) {
            input(p, func);
        } else if (accept_word(p, "out")) {
            outputs(p, func);
        } else {
            node(p, func);
        }
        next_line(p);
    }
    resolve_bases(p);
}

/* ---- regs, chains, saves, steps
 * ---------------------------------------------------------------------- */

/* id of the reg that the next word names; 0 if there is none */
static u32 reg_find(Parse *p, const char *s)
{
    Sym name = sym(p->g, s);
    if (text_reg_number(s)) {
        u64 num = strtoull(s + 1, NULL, 10);
        return num < p->reg.n ? p->reg.at[num] : 0;
    }
    for (u32 i = 1; i < p->g->reg.n; i++) {
        if (p->g->reg.at[i].name == name) {
            return i;
        }
    }
    return 0;
}

static u32 reg_name(Parse *p)
{
    Loc at = (blanks(p), here(p));
    const char *s = word_str(p, "a reg");
    if (strcmp(s, "_") == 0) {
        return 0;
    }
    u32 id = reg_find(p, s);
    if (!id) {
        fail(p->g, at, E_NAME, "no reg is called `%s`", s);
    }
    return id;
}

static void st_reg(Parse *p)
{
    Loc at = (blanks(p), here(p));
    const char *s = word_str(p, "a reg");
    if (reg_find(p, s) || strcmp(s, "_") == 0) {
        fail(p->g, at, E_NAME, "reg %s twice", s);
    }
    Reg r = {0};
    expect(p, ':');
    r.type = type(p, r.at);
    places(p, r.at);
    r.io = accept_word(p, "io");
    r.saved = accept_word(p, "saved");
    accept_offset(p, &r.off);
    if (!text_reg_number(s)) {
        r.name = sym(p->g, s);
    } else {
        u64 num = strtoull(s + 1, NULL, 10);
        if (num > NUM_MAX) {
            fail(p->g, at, E_RANGE, "regs are numbered up to %d", NUM_MAX);
        }
        ids_room(p, &p->reg, (u32)num + 1);
        p->reg.at[num] = p->g->reg.n;
        r.name = peek(p) == '"' ? quoted(p) : 0;
    }
    vec_push(p->g->arena, &p->g->reg, r);
}

static void reg_list(Parse *p, Ids *out)
{
    expect(p, '(');
    while (!accept(p, ')')) {
        u32 id = reg_name(p);
        vec_push(p->g->arena, out, id);
    }
}

static void binds(Parse *p, Ids *out)
{
    expect(p, '(');
    while (!accept(p, ')')) {
        if (accept_word(p, "flat")) {
            expect(p, ':');
            u32 id = flat_name(p);
            vec_push(p->g->arena, out, id | FLAT_BIND);
        } else if (accept_word(p, "_")) {
            vec_push(p->g->arena, out, 0);
        } else {
            u32 id = var_name(p);
            vec_push(p->g->arena, out, id);
        }
    }
}

static void default_binds(Parse *p, u32 func, Sym prefix, Ids *out)
{
    const Func *f = &p->g->func.at[func];
    for (u32 i = 0; i < f->formal.n; i++) {
        u32 id = text_default_bind(p->g, prefix, f->formal.at[i].name);
        if (!id) {
            BAD(p, E_NAME, "no variable is called `%s` below `%s`",
                sym_str(p->g, f->formal.at[i].name), sym_str(p->g, prefix));
        }
        vec_push(p->g->arena, out, id);
    }
}

static Call call(Parse *p)
{
    Call c = {.layer = -1};
    c.func = func_name(p);
    Ids in = {0}, out = {0}, bind = {0};
    reg_list(p, &in);
    expect_arrow(p);
    reg_list(p, &out);
    bool bound = false;
    while (!eol(p)) {
        if (accept_key(p, "at")) {
            c.prefix = word(p, "a prefix");
        } else if (accept_key(p, "layer")) {
            c.layer = (i32)integer(p, 0, 1 << 20);
        } else if (accept_key(p, "stage")) {
            c.stage = (i32)integer(p, 0, 63);
        } else if (accept_key(p, "chunk")) {
            c.chunk = (i32)integer(p, 0, 1 << 20);
        } else if (accept_key(p, "twin")) {
            c.twin = small(p, NUM_MAX);
        } else if (accept_key(p, "bind")) {
            binds(p, &bind);
            bound = true;
        } else if (!accept_offset(p, &c.saved_off)) {
            BAD(p, E_NAME, "unknown option of a call");
        }
    }
    if (!bound) {
        default_binds(p, c.func, c.prefix, &bind);
    }
    memcpy(&c.in, &in, sizeof c.in);
    memcpy(&c.out, &out, sizeof c.out);
    memcpy(&c.bind, &bind, sizeof c.bind);
    return c;
}

static void st_chain(Parse *p)
{
    Loc at = here(p);
    Chain c = {.name = word(p, "a name")};
    c.role = (u8)choice(p, text_roles, "role");
    Ids in = {0}, out = {0};
    reg_list(p, &in);
    expect_arrow(p);
    reg_list(p, &out);
    memcpy(&c.in, &in, sizeof c.in);
    memcpy(&c.out, &out, sizeof c.out);
    next_line(p);
    for (;;) {
        if (!next_statement(p)) {
            fail(p->g, at, E_SYNTAX, "chain %s has no `end`", sym_str(p->g, c.name));
        }
        if (accept_word(p, "end")) {
            break;
        }
        if (!accept_word(p, "call")) {
            BAD(p, E_SYNTAX, "expected `call` or `end`");
        }
        Call k = call(p);
        vec_push(p->g->arena, &c.call, k);
        next_line(p);
    }
    vec_push(p->g->arena, &p->g->chain, c);
}

static void st_save(Parse *p)
{
    Save s = {.from = func_name(p)};
    s.from_value = value_ref(p, s.from);
    expect_arrow(p);
    s.to = func_name(p);
    s.to_value = value_ref(p, s.to);
    s.mode = (u8)choice(p, text_saves, "kind of save");
    accept_offset(p, &s.off);
    vec_push(p->g->arena, &p->g->save, s);
}

static i32 peer(Parse *p, const char *what)
{
    if (!accept_word(p, what)) {
        BAD(p, E_SYNTAX, "expected `%s STAGE`", what);
    }
    return (i32)integer(p, 0, 63);
}

static Cmd cmd(Parse *p)
{
    Cmd c = {.kind = (u8)choice(p, text_cmds, "command")};
    if (c.kind == CMD_SEND || c.kind == CMD_SENDRECV) {
        c.reg = reg_name(p);
        c.peer = peer(p, "to");
    }
    if (c.kind == CMD_RECV) {
        c.reg = reg_name(p);
        c.peer = peer(p, "from");
    }
    if (c.kind == CMD_SENDRECV) {
        c.reg2 = reg_name(p);
        c.peer2 = peer(p, "from");
    }
    if (c.kind == CMD_WAIT || c.kind == CMD_SIGNAL) {
        c.event = small(p, NUM_MAX);
    }
    while (!eol(p)) {
        if (accept_key(p, "chunk")) {
            c.chunk = (i32)integer(p, 0, 1 << 20);
        } else if (accept_key(p, "micro")) {
            c.micro = (i32)integer(p, 0, 1 << 20);
        } else if (c.kind == CMD_SENDRECV && accept_key(p, "micro2")) {
            c.micro2 = (i32)integer(p, 0, 1 << 20);
        } else if (accept_key(p, "lane")) {
            c.lane = (u8)small(p, 15);
        } else {
            BAD(p, E_NAME, "unknown option of a command");
        }
    }
    return c;
}

static void st_step(Parse *p)
{
    Loc at = here(p);
    Step s = {.stage = (i32)integer(p, 0, 63)};
    next_line(p);
    for (;;) {
        if (!next_statement(p)) {
            fail(p->g, at, E_SYNTAX, "step %d has no `end`", (int)s.stage);
        }
        if (accept_word(p, "end")) {
            break;
        }
        Cmd c = cmd(p);
        vec_push(p->g->arena, &s.cmd, c);
        next_line(p);
    }
    vec_push(p->g->arena, &p->g->step, s);
}

/* ---- the whole
 * ------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*read)(Parse *p);
} statements[] = {
    {"config", st_config}, {"mesh", st_mesh},       {"axis", st_axis},   {"op", st_op},
    {"dim", st_dim},       {"region", st_region},   {"arena", st_arena}, {"flat", st_flat},
    {"var", st_var},       {"members", st_members}, {"body", st_body},   {"inst", st_inst},
    {"first", st_first},   {"buf", st_buf},         {"func", st_func},   {"reg", st_reg},
    {"chain", st_chain},   {"save", st_save},       {"step", st_step},
};
enum { NSTATEMENT = sizeof statements / sizeof statements[0] };

/* Names of Funcs, so that they may be used before their text. */
static void scan_funcs(Parse *p)
{
    while (next_statement(p)) {
        if (p->at == p->line_at && accept_word(p, "func")) {
            Sym name = word(p, "a name");
            u32 role = choice(p, text_roles, "role");
            if (!func_find(p->g, name)) {
                func_new(p, name, role);
            }
        }
        while (p->at < p->end && *p->at != '\n') {
            p->at++;
        }
    }
}

void text_parse(Graph *g, const char *file, const char *src, u64 n)
{
    Parse p = {.g = g, .file = sym(g, file), .src = src, .at = src, .end = src + n, .line = 1};
    p.line_at = src;
    while (p.num.n < g->func.n) {
        vec_push(g->arena, &p.num, (Ids){0});
        vec_push(g->arena, &p.defined, true);
    }
    scan_funcs(&p);
    p.at = p.line_at = src;
    p.line = 1;
    while (next_statement(&p)) {
        Loc at = here(&p);
        const char *s = word_str(&p, "a statement");
        u32 i = 0;
        while (i < NSTATEMENT && strcmp(statements[i].name, s) != 0) {
            i++;
        }
        if (i == NSTATEMENT) {
            fail(g, at, E_SYNTAX, "no statement starts with `%s`", s);
        }
        statements[i].read(&p);
        next_line(&p);
    }
    for (u32 i = 0; i < p.count.n; i++) {
        Later l = p.count.at[i];
        g->dim.at[l.value].count = value_by_number(&p, l.func, l.num, l.loc);
    }
}

/* ---- check of a file
 * -------------------------------------------------------------------------------- */

static int differ(const char *file, const char *a, const char *b)
{
    int line = 1;
    while (*a && *a == *b) {
        line += *a == '\n';
        a++;
        b++;
    }
    if (*a == *b) {
        return 0;
    }
    fprintf(stderr, "%s: printed text does not read back to itself, line %d\n  %.60s\n  %.60s\n",
            file, line, a, b);
    return 70;
}

static const char *read_print(Graph *g, const char *file, const char *src, u64 n)
{
    text_parse(g, file, src, n);
    verify(g, "parse");
    Text t = {0};
    text_print(g, &t);
    return text_str(g->arena, &t);
}

int text_check(const char *file)
{
    Graph *a = graph_new(), *b = graph_new();
    jmp_buf trap;
    a->on_fail = b->on_fail = &trap;
    volatile int code = 1;
    if (setjmp(trap) == 0) {
        char *src = NULL;
        u64 n = 0;
        int err = file_read(a->arena, file, &src, &n);
        if (err) {
            fail(a, (Loc){.file = sym(a, file)}, E_SYNTAX, "%s", strerror(err));
        }
        const char *first = read_print(a, file, src, n);
        const char *again = read_print(b, "printed", first, strlen(first));
        code = differ(file, first, again);
    }
    arena_free(a->arena);
    arena_free(b->arena);
    return code;
}
