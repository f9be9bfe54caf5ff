/* parse_word.c: what stands in a line of the text form: words, numbers, names of things that exist,
 * types and places, attributes. Each reads forward from p->at or ends in fail() with the position.
 */
#include "parse.h"
#include "text.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for n numbers; new ones are 0. */
void rd_ids_room(Parse *p, Ids *ids, u32 n)
{
    if (ids->n < n) {
        vec_grow(p->g->arena, (void **)&ids->at, &ids->cap, n, sizeof *ids->at);
        ids->n = n;
    }
}

/* ---- characters and words -------------------------------------------------------------------- */

Loc rd_here(const Parse *p)
{
    return (Loc){p->file, p->line, (i32)(p->at - p->line_at) + 1};
}

void rd_blanks(Parse *p)
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

char rd_peek(Parse *p)
{
    rd_blanks(p);
    return p->at < p->end && *p->at ? *p->at : '\n';
}

bool rd_eol(Parse *p)
{
    rd_blanks(p);
    if (p->at < p->end && *p->at == 0) {
        BAD(p, E_SYNTAX, "a NUL character");
    }
    return p->at == p->end || *p->at == '\n';
}

void rd_next_line(Parse *p)
{
    if (!rd_eol(p)) {
        BAD(p, E_SYNTAX, "unexpected text at the end of the statement");
    }
    if (p->at < p->end) {
        p->at++;
        p->line++;
        p->line_at = p->at;
    }
}

/* To the next line with something in it; false at the end of the text. */
bool rd_next_statement(Parse *p)
{
    while (p->at < p->end && rd_eol(p)) {
        rd_next_line(p);
    }
    return p->at < p->end;
}

bool rd_accept(Parse *p, char c)
{
    if (c == '\n' || rd_peek(p) != c) {
        return false;
    }
    p->at++;
    return true;
}

void rd_expect(Parse *p, char c)
{
    if (!rd_accept(p, c)) {
        BAD(p, E_SYNTAX, "expected `%c`", c);
    }
}

void rd_expect_arrow(Parse *p)
{
    rd_blanks(p);
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

Sym rd_quoted(Parse *p)
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
Sym rd_word(Parse *p, const char *what)
{
    if (rd_peek(p) == '"') {
        return rd_quoted(p);
    }
    const char *from = p->at, *to = word_end(p, from);
    if (to == from) {
        BAD(p, E_SYNTAX, "expected %s", what);
    }
    p->at = to;
    return sym_n(p->g, from, (u64)(to - from));
}

const char *rd_word_str(Parse *p, const char *what)
{
    return sym_str(p->g, rd_word(p, what));
}

/* Is the next word exactly s? Then it is taken. */
bool rd_accept_word(Parse *p, const char *s)
{
    rd_blanks(p);
    const char *to = word_end(p, p->at);
    u64 n = strlen(s);
    if ((u64)(to - p->at) != n || memcmp(p->at, s, n) != 0) {
        return false;
    }
    p->at = to;
    return true;
}

/* key= in front of a value */
bool rd_accept_key(Parse *p, const char *key)
{
    rd_blanks(p);
    const char *from = p->at, *to = word_end(p, from);
    u64 n = strlen(key);
    if ((u64)(to - from) != n || memcmp(from, key, n) != 0 || to >= p->end || *to != '=') {
        return false;
    }
    p->at = to + 1;
    return true;
}

u32 rd_choice(Parse *p, const char *const *names, const char *what)
{
    Loc at = (rd_blanks(p), rd_here(p));
    const char *s = rd_word_str(p, what);
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

bool rd_accept_choice(Parse *p, const char *const *names, u32 *out)
{
    for (u32 i = 0; names[i]; i++) {
        if (rd_accept_word(p, names[i])) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* ---- numbers --------------------------------------------------------------------------------- */

i64 rd_integer(Parse *p, i64 lo, i64 hi)
{
    Loc at = (rd_blanks(p), rd_here(p));
    const char *s = rd_word_str(p, "a whole number");
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

u32 rd_small(Parse *p, u32 hi)
{
    return (u32)rd_integer(p, 0, hi);
}

u64 rd_bytes(Parse *p)
{
    return (u64)rd_integer(p, 0, (i64)1 << 48);
}

static bool is_number(const char *s)
{
    const char *digits = *s == '-' ? s + 1 : s;
    return (*digits >= '0' && *digits <= '9') || *digits == '.' || strcmp(digits, "inf") == 0 ||
           strcmp(digits, "nan") == 0;
}

f64 rd_real(Parse *p)
{
    Loc at = (rd_blanks(p), rd_here(p));
    const char *s = rd_word_str(p, "a number");
    char *stop;
    f64 v = strtod(s, &stop);
    if (!is_number(s) || *stop) {
        fail(p->g, at, E_SYNTAX, "expected a number, not `%s`", s);
    }
    return v;
}

/* `@123`: where something lies */
bool rd_accept_offset(Parse *p, u64 *out)
{
    if (rd_peek(p) != '@' || p->at + 1 >= p->end || p->at[1] < '0' || p->at[1] > '9') {
        return false;
    }
    p->at++;
    *out = rd_bytes(p);
    return true;
}

Loc rd_location(Parse *p)
{
    Loc l = {.file = rd_word(p, "a file")};
    rd_expect(p, ':');
    l.line = (i32)rd_integer(p, 0, INT32_MAX);
    rd_expect(p, ':');
    l.col = (i32)rd_integer(p, 0, INT32_MAX);
    return l;
}

/* ---- names of things that exist -------------------------------------------------------------- */

u32 rd_dim_name(Parse *p)
{
    Loc at = (rd_blanks(p), rd_here(p));
    Sym s = rd_word(p, "a dim");
    for (u32 i = 1; i < p->g->dim.n; i++) {
        if (p->g->dim.at[i].name == s) {
            return i;
        }
    }
    fail(p->g, at, E_NAME, "no dim is called `%s`", sym_str(p->g, s));
}

u32 rd_atom_name(Parse *p)
{
    Loc at = (rd_blanks(p), rd_here(p));
    Sym s = rd_word(p, "an atom of the mesh");
    for (u32 i = 1; i < p->g->atom.n; i++) {
        if (p->g->atom.at[i].name == s) {
            return i;
        }
    }
    fail(p->g, at, E_NAME, "no atom of the mesh is called `%s`", sym_str(p->g, s));
}

u32 rd_flat_find(const Graph *g, Sym s)
{
    for (u32 i = 1; i < g->flat.n; i++) {
        if (g->flat.at[i].name == s) {
            return i;
        }
    }
    return 0;
}

u32 rd_flat_name(Parse *p)
{
    Loc at = (rd_blanks(p), rd_here(p));
    Sym s = rd_word(p, "a flat arena");
    u32 id = rd_flat_find(p->g, s);
    if (!id) {
        fail(p->g, at, E_NAME, "no flat arena is called `%s`", sym_str(p->g, s));
    }
    return id;
}

u32 rd_var_find(const Graph *g, Sym s)
{
    for (u32 i = 1; i < g->var.n; i++) {
        if (g->var.at[i].path == s) {
            return i;
        }
    }
    return 0;
}

u32 rd_var_name(Parse *p)
{
    Loc at = (rd_blanks(p), rd_here(p));
    Sym s = rd_word(p, "a variable");
    u32 id = rd_var_find(p->g, s);
    if (!id) {
        fail(p->g, at, E_NAME, "no variable is called `%s`", sym_str(p->g, s));
    }
    return id;
}

u32 rd_func_find(const Graph *g, Sym s)
{
    for (u32 i = 1; i < g->func.n; i++) {
        if (g->func.at[i].name == s) {
            return i;
        }
    }
    return 0;
}

u32 rd_func_name(Parse *p)
{
    Loc at = (rd_blanks(p), rd_here(p));
    Sym s = rd_word(p, "a Func");
    u32 id = rd_func_find(p->g, s);
    if (!id) {
        fail(p->g, at, E_NAME, "no Func is called `%s`", sym_str(p->g, s));
    }
    return id;
}

u32 rd_inst_name(Parse *p)
{
    Loc at = (rd_blanks(p), rd_here(p));
    Sym s = rd_word(p, "a kernel instance");
    for (u32 i = 1; i < p->g->inst.n; i++) {
        if (p->g->inst.at[i].name == s) {
            return i;
        }
    }
    fail(p->g, at, E_NAME, "no kernel instance is called `%s`", sym_str(p->g, s));
}

void rd_func_new(Parse *p, Sym name, Role role)
{
    func_add(p->g, name, role);
    while (p->num.n < p->g->func.n) {
        vec_push(p->g->arena, &p->num, (Ids){0});
        vec_push(p->g->arena, &p->defined, false);
    }
}

u32 rd_value_by_number(Parse *p, u32 func, u32 num, Loc at)
{
    const Ids *ids = &p->num.at[func];
    if (num >= ids->n || !ids->at[num]) {
        fail(p->g, at, E_NAME, "%%%u is not defined in Func %s%s", num,
             sym_str(p->g, p->g->func.at[func].name),
             p->defined.at[func] ? "" : ", which is not in the text");
    }
    return ids->at[num];
}

u32 rd_value_ref(Parse *p, u32 func)
{
    Loc at = (rd_blanks(p), rd_here(p));
    rd_expect(p, '%');
    u32 num = rd_small(p, NUM_MAX);
    return rd_value_by_number(p, func, num, at);
}

/* ---- types and places ------------------------------------------------------------------------ */

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

Type rd_type(Parse *p, Place *at)
{
    Loc start = (rd_blanks(p), rd_here(p));
    const char *s = rd_word_str(p, "a dtype");
    Type t = {.dtype = dtype_parse(s)};
    if (t.dtype == DT_NONE) {
        fail(p->g, start, E_NAME, "`%s` is no dtype", s);
    }
    rd_expect(p, '[');
    while (!rd_accept(p, ']')) {
        if (t.rank == RANK_MAX) {
            BAD(p, E_RANGE, "a type has at most %d dims", RANK_MAX);
        }
        t.dim[t.rank] = rd_dim_name(p);
        while (rd_accept(p, '@')) {
            u32 a = rd_atom_name(p);
            if (!at || at[a - 1].kind != PL_R) {
                BAD(p, E_SYNTAX,
                    at ? "the atom has a place already" : "a place is not allowed here");
            }
            at[a - 1] = (Place){.kind = PL_S, .dim = t.rank};
            if (rd_accept(p, '~')) {
                if (!rd_accept_word(p, "zigzag")) {
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
void rd_places(Parse *p, Place *at)
{
    static const char letter[] = "PMFW";
    static const u8 kind[] = {PL_P, PL_M, PL_F, PL_W};
    for (;;) {
        const char *which = strchr(letter, rd_peek(p));
        if (!which || p->at + 1 >= p->end || p->at[1] != '(') {
            return;
        }
        p->at += 2;
        u32 a = rd_atom_name(p);
        if (at[a - 1].kind != PL_R) {
            BAD(p, E_SYNTAX, "the atom has a place already");
        }
        at[a - 1] = (Place){.kind = kind[which - letter]};
        if (rd_accept(p, ':')) {
            at[a - 1].bucket = rd_flat_name(p);
        }
        rd_expect(p, ')');
    }
}

u8 rd_dtype(Parse *p)
{
    Loc at = (rd_blanks(p), rd_here(p));
    const char *s = rd_word_str(p, "a dtype");
    u8 dt = dtype_parse(s);
    if (dt == DT_NONE) {
        fail(p->g, at, E_NAME, "`%s` is no dtype", s);
    }
    return dt;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static Attr attr_value(Parse *p, Sym key)
{
    Attr a = {.key = key};
    char c = rd_peek(p);
    if (c == '"') {
        return attr_sym(key, rd_quoted(p));
    }
    if (rd_accept(p, '#')) {
        return attr_dim(key, rd_dim_name(p));
    }
    if (c == '[' || c == '(') {
        p->at++;
        a.kind = c == '[' ? AT_DIMS : AT_NUMS;
        while (!rd_accept(p, c == '[' ? ']' : ')')) {
            if (a.n == RANK_MAX) {
                BAD(p, E_RANGE, "at most %d entries", RANK_MAX);
            }
            if (c == '[') {
                a.dim[a.n++] = rd_dim_name(p);
            } else {
                a.nums[a.n++] = rd_real(p);
            }
        }
        return a;
    }
    const char *from = p->at;
    const char *s = rd_word_str(p, "a value");
    p->at = from;
    if (!is_number(s)) {
        return attr_dim(key, rd_dim_name(p));
    }
    if (strpbrk(s, ".eEn")) {
        return attr_num(key, rd_real(p));
    }
    return attr_int(key, rd_integer(p, INT64_MIN, INT64_MAX));
}

/* {key=value ...}: appended to list */
void rd_attrs(Parse *p, Attrs *list)
{
    while (!rd_accept(p, '}')) {
        Sym key = rd_word(p, "an attribute or `}`");
        rd_expect(p, '=');
        Attr a = attr_value(p, key);
        vec_push(p->g->arena, list, a);
    }
}
