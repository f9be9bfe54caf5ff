/* parse.h: how parse.c and parse_word.c share the work. parse_word.c reads what stands in a line:
 * words, numbers, names of things that exist, types, places, attributes. parse.c knows the
 * statements.
 */
#ifndef PARSE_H
#define PARSE_H

#include "megagen.h"

enum { E_SYNTAX = 701, E_NAME = 702, E_RANGE = 703 };
enum { NUM_MAX = 1 << 17, ARG_MAX = 4096, OUT_MAX = 64 };
#define SIZE_LIMIT ((i64)1 << 40)

typedef struct {
    u32 value, func; /* whose base (or live count) is still only a number */
    u32 num;
    Loc loc;
} Later;

typedef VEC(u32) Ids;
typedef VEC(Attr) Attrs;

typedef struct {
    Graph *g;
    Sym file;
    const char *src, *at, *end, *line_at;
    i32 line;
    VEC(Ids) num;      /* per Func: number in the text -> value id */
    VEC(bool) defined; /* per Func: its statement has been read */
    VEC(Later) base;   /* windows on values that come later */
    VEC(Later) count;  /* dims with a live count: value = dim id */
    Ids reg;           /* number of an unnamed reg -> id */
} Parse;

#define BAD(p, code, ...) fail((p)->g, rd_here(p), (code), __VA_ARGS__)

/* Room for n numbers; new ones are 0. */
void rd_ids_room(Parse *p, Ids *ids, u32 n);
/* Where reading stands; steps between words, lines and statements. */
Loc rd_here(const Parse *p);
void rd_blanks(Parse *p);
char rd_peek(Parse *p);
bool rd_eol(Parse *p);
void rd_next_line(Parse *p);
bool rd_next_statement(Parse *p);
/* accept: go past it if it is next. expect: or fail(). */
bool rd_accept(Parse *p, char c);
void rd_expect(Parse *p, char c);
void rd_expect_arrow(Parse *p);
Sym rd_quoted(Parse *p);
Sym rd_word(Parse *p, const char *what);
const char *rd_word_str(Parse *p, const char *what);
bool rd_accept_word(Parse *p, const char *s);
bool rd_accept_key(Parse *p, const char *key);
/* Index of the word in names (ends with NULL). */
u32 rd_choice(Parse *p, const char *const *names, const char *what);
bool rd_accept_choice(Parse *p, const char *const *names, u32 *out);
/* Numbers within bounds; fail(E702) outside of them. */
i64 rd_integer(Parse *p, i64 lo, i64 hi);
u32 rd_small(Parse *p, u32 hi);
u64 rd_bytes(Parse *p);
f64 rd_real(Parse *p);
bool rd_accept_offset(Parse *p, u64 *out);
Loc rd_location(Parse *p);
/* Ids of things that exist; _find gives 0 where there is none, _name fails. */
u32 rd_dim_name(Parse *p);
u32 rd_atom_name(Parse *p);
u32 rd_flat_find(const Graph *g, Sym s);
u32 rd_flat_name(Parse *p);
u32 rd_var_find(const Graph *g, Sym s);
u32 rd_var_name(Parse *p);
u32 rd_func_find(const Graph *g, Sym s);
u32 rd_func_name(Parse *p);
u32 rd_inst_name(Parse *p);
void rd_func_new(Parse *p, Sym name, Role role);
/* %N of func. */
u32 rd_value_by_number(Parse *p, u32 func, u32 num, Loc at);
u32 rd_value_ref(Parse *p, u32 func);
Type rd_type(Parse *p, Place *at);
void rd_places(Parse *p, Place *at);
u8 rd_dtype(Parse *p);
void rd_attrs(Parse *p, Attrs *list);

#endif
