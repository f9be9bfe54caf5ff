/* parse.c: the text form back to a Graph. Any input ends in a Graph or in fail() with a position.
 *
 * One statement a line, `;` starts a comment. A first scan collects the names of the Funcs, so that
 * loops, saves and twins may name a Func that comes later.
 */
#include "parse.h"
#include "text.h"

#include <assert.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- head ------------------------------------------------------------------------------------ */

static void st_config(Parse *p)
{
    Config *c = &p->g->cfg;
    while (!rd_eol(p)) {
        if (rd_accept_key(p, "name")) {
            c->name = rd_word(p, "a name");
        } else if (rd_accept_key(p, "spec")) {
            c->spec_file = rd_word(p, "a file");
        } else if (rd_accept_key(p, "target")) {
            c->target = rd_word(p, "a target");
        } else if (rd_accept_key(p, "cpu")) {
            c->cpu = rd_word(p, "a feature level");
        } else if (rd_accept_key(p, "compute")) {
            c->compute = rd_dtype(p);
        } else if (rd_accept_key(p, "master")) {
            c->master = rd_dtype(p);
        } else if (rd_accept_key(p, "grads")) {
            c->grads = rd_dtype(p);
        } else if (rd_accept_key(p, "moments")) {
            c->moments = rd_dtype(p);
        } else if (rd_accept_key(p, "micro")) {
            c->micro = rd_integer(p, 0, SIZE_LIMIT);
        } else if (rd_accept_key(p, "seq")) {
            c->seq = rd_integer(p, 0, SIZE_LIMIT);
        } else if (rd_accept_key(p, "global")) {
            c->global = rd_integer(p, 0, SIZE_LIMIT);
        } else if (rd_accept_key(p, "remat")) {
            c->remat = rd_word(p, "a mode");
        } else if (rd_accept_key(p, "out")) {
            c->out_dir = rd_word(p, "a folder");
        } else if (rd_accept_key(p, "fuse")) {
            static const char *const on[] = {"off", "on", NULL};
            c->fuse = rd_choice(p, on, "switch");
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
    while (!rd_eol(p)) {
        Atom a = {.name = rd_word(p, "an atom")};
        rd_expect(p, '=');
        a.size = (i32)rd_integer(p, 1, 1 << 20);
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
    Axis x = {.name = rd_word(p, "an axis")};
    rd_expect(p, '=');
    while (!rd_eol(p)) {
        if (x.natom == ATOM_MAX) {
            BAD(p, E_RANGE, "an axis has at most %d atoms", ATOM_MAX);
        }
        x.atom[x.natom++] = (u8)rd_atom_name(p);
    }
    vec_push(p->g->arena, &p->g->axis, x);
}

static void st_op(Parse *p)
{
    Loc at = rd_here(p);
    Op op = {.name = rd_word(p, "an op"), .flags = OF_TEXT, .loc = at};
    rd_blanks(p);
    if (rd_peek(p) != '"') {
        BAD(p, E_SYNTAX, "expected a signature in quotes");
    }
    op.sig_text = rd_quoted(p);
    op.sig = sig_parse(p->g, at, sym_str(p->g, op.sig_text));
    while (!rd_eol(p)) {
        u32 flag;
        if (rd_accept_key(p, "inplace")) {
            vec_push(p->g->arena, &op.inplace, rd_word(p, "a result"));
            rd_expect(p, ':');
            vec_push(p->g->arena, &op.inplace, rd_word(p, "an operand"));
        } else if (rd_accept_key(p, "whole")) {
            vec_push(p->g->arena, &op.whole, rd_word(p, "a dim"));
        } else if (rd_accept_choice(p, text_op_flags, &flag)) {
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
    Loc at = (rd_blanks(p), rd_here(p));
    Dim d = {.name = rd_word(p, "a dim")};
    for (u32 i = 1; i < p->g->dim.n; i++) {
        if (p->g->dim.at[i].name == d.name) {
            fail(p->g, at, E_NAME, "dim %s twice", sym_str(p->g, d.name));
        }
    }
    rd_expect(p, '=');
    d.size = rd_integer(p, 1, SIZE_LIMIT);
    if (rd_accept_word(p, "pad")) {
        d.pad = rd_integer(p, d.size, SIZE_LIMIT);
    }
    if (rd_accept_word(p, "max")) {
        d.max = rd_integer(p, d.size, SIZE_LIMIT);
    }
    if (rd_accept_word(p, "count")) {
        Later l = {.value = p->g->dim.n, .func = rd_func_name(p)};
        rd_expect(p, '%');
        l.loc = rd_here(p);
        l.num = rd_small(p, NUM_MAX);
        vec_push(p->g->arena, &p->count, l);
    }
    vec_push(p->g->arena, &p->g->dim, d);
}

static void st_region(Parse *p)
{
    u32 r = rd_choice(p, text_regions, "region");
    Region *to = &p->g->region[r];
    if (!rd_accept_offset(p, &to->off) || !rd_accept_key(p, "bytes")) {
        BAD(p, E_SYNTAX, "expected `@OFFSET bytes=N`");
    }
    to->bytes = rd_bytes(p);
}

static void st_arena(Parse *p)
{
    p->g->arena_bytes = rd_bytes(p);
}

static void st_flat(Parse *p)
{
    Flat f = {.name = rd_word(p, "a name")};
    f.dtype = rd_dtype(p);
    f.kind = (u8)rd_choice(p, text_var_kinds, "kind of variable");
    if (!rd_accept_key(p, "elems")) {
        BAD(p, E_SYNTAX, "expected `elems=N`");
    }
    f.elems = rd_bytes(p);
    rd_accept_offset(p, &f.off);
    rd_places(p, f.at);
    if (rd_flat_find(p->g, f.name)) {
        BAD(p, E_NAME, "flat arena %s twice", sym_str(p->g, f.name));
    }
    vec_push(p->g->arena, &p->g->flat, f);
}

static void init(Parse *p, Init *in)
{
    in->kind = (u8)rd_choice(p, text_inits, "initialisation");
    if (in->kind == INIT_ZERO || in->kind == INIT_ONE) {
        return;
    }
    rd_expect(p, '(');
    if (in->kind == INIT_TABLE) {
        in->table = rd_word(p, "the name of a table");
        Attrs list = {0};
        if (rd_accept(p, '{')) {
            rd_attrs(p, &list);
        }
        in->attr = p->g->attr.n;
        in->nattr = list.n;
        for (u32 i = 0; i < list.n; i++) {
            vec_push(p->g->arena, &p->g->attr, list.at[i]);
        }
    } else {
        in->a = rd_real(p);
        if (in->kind != INIT_CONST) {
            rd_expect(p, ',');
            in->b = rd_real(p);
        }
    }
    rd_expect(p, ')');
}

static bool var_option(Parse *p, Var *v)
{
    if (rd_accept_word(p, "saved")) {
        v->saved = true;
    } else if (rd_accept_word(p, "frozen")) {
        v->frozen = true;
    } else if (rd_accept_key(p, "init")) {
        init(p, &v->init);
    } else if (rd_accept_key(p, "group")) {
        v->group = rd_word(p, "a group");
    } else if (rd_accept_key(p, "of")) {
        v->of = rd_var_name(p);
    } else if (rd_accept_key(p, "flat")) {
        v->flat = rd_flat_name(p);
        rd_expect(p, '+');
        v->elem = rd_bytes(p);
    } else if (rd_accept_key(p, "stages")) {
        do {
            v->stages |= (u64)1 << rd_small(p, 63);
        } while (rd_accept(p, ','));
    } else if (rd_accept_key(p, "loc")) {
        v->loc = rd_location(p);
    } else {
        return rd_accept_offset(p, &v->off);
    }
    return true;
}

static void st_var(Parse *p)
{
    Loc at = (rd_blanks(p), rd_here(p));
    Var v = {.path = rd_word(p, "a name")};
    if (rd_var_find(p->g, v.path)) {
        fail(p->g, at, E_NAME, "variable %s twice", sym_str(p->g, v.path));
    }
    rd_expect(p, ':');
    v.type = rd_type(p, v.at);
    rd_places(p, v.at);
    v.kind = (u8)rd_choice(p, text_var_kinds, "kind of variable");
    v.life = (u8)rd_choice(p, text_lives, "life");
    while (!rd_eol(p)) {
        if (!var_option(p, &v)) {
            BAD(p, E_NAME, "unknown option of a variable");
        }
    }
    vec_push(p->g->arena, &p->g->var, v);
}

static void st_members(Parse *p)
{
    u32 f = rd_flat_name(p);
    while (!rd_eol(p)) {
        u32 v = rd_var_name(p);
        vec_push(p->g->arena, &p->g->flat.at[f].var, v);
    }
}

/* ---- bodies, instances, buffers -------------------------------------------------------------- */

static u32 key_small(Parse *p, const char *key, u32 hi)
{
    if (!rd_accept_key(p, key)) {
        BAD(p, E_SYNTAX, "expected `%s=`", key);
    }
    return rd_small(p, hi);
}

static u32 body_ref(Parse *p, const Body *b)
{
    rd_blanks(p);
    if (p->at >= p->end || *p->at != 'n') {
        BAD(p, E_SYNTAX, "expected a node of the body, like n3");
    }
    p->at++;
    return rd_small(p, b->node.n ? b->node.n - 1 : 0);
}

static BodyPort read_body_port(Parse *p, const Body *b)
{
    BodyPort x = {.name = rd_word(p, "a name")};
    rd_expect(p, ':');
    const char *s = rd_word_str(p, "a dtype");
    x.dtype = dtype_parse(s);
    if (x.dtype == DT_NONE && strcmp(s, "none") != 0) {
        BAD(p, E_NAME, "`%s` is no dtype", s);
    }
    rd_expect(p, '[');
    while (!rd_accept(p, ']')) {
        if (x.rank == RANK_MAX || b->ndim == 0) {
            BAD(p, E_RANGE, "too many dims");
        }
        x.axis[x.rank++] = (u8)rd_small(p, b->ndim - 1u);
    }
    x.dims = key_small(p, "mask", (1u << b->ndim) - 1);
    x.node = key_small(p, "node", NUM_MAX);
    if (rd_accept_key(p, "inplace")) {
        x.inplace = (i32)rd_integer(p, 0, ARG_MAX);
    }
    x.saved = rd_accept_word(p, "saved");
    x.accum = rd_accept_word(p, "accum");
    return x;
}

static BodyNode read_body_node(Parse *p, const Body *b)
{
    u32 mask = (1u << b->ndim) - 1;
    Loc at = (rd_blanks(p), rd_here(p));
    const char *fn = rd_word_str(p, "a function");
    i32 id = body_fn_find(fn);
    if (id < 0) {
        fail(p->g, at, E_NAME, "`%s` is no function of the body language", fn);
    }
    BodyNode n = {.fn = (u8)id, .type = (u8)key_small(p, "type", BT_B)};
    while (rd_peek(p) == 'n' && p->at + 1 < p->end && p->at[1] >= '0' && p->at[1] <= '9') {
        if (n.narg == 3) {
            BAD(p, E_RANGE, "at most three arguments");
        }
        n.arg[n.narg++] = body_ref(p, b);
    }
    if (rd_accept_key(p, "to")) {
        n.to = rd_dtype(p);
    }
    n.dims = key_small(p, "mask", mask);
    n.over = rd_accept_key(p, "over") ? rd_small(p, UINT32_MAX) : 0;
    n.num = rd_accept_key(p, "num") ? rd_real(p) : 0;
    n.name = rd_accept_key(p, "name") ? rd_word(p, "a name") : 0;
    n.port = rd_accept_key(p, "port") ? rd_small(p, ARG_MAX) : 0;
    return n;
}

static void body_head(Parse *p, Body *b)
{
    while (!rd_eol(p) && rd_peek(p) != '"') {
        if (b->ndim == 2 * RANK_MAX) {
            BAD(p, E_RANGE, "too many dims");
        }
        b->dim[b->ndim].name = rd_word(p, "a dim of the body");
        rd_expect(p, ':');
        b->dim[b->ndim++].dim = rd_dim_name(p);
    }
    if (rd_peek(p) == '"') {
        b->text = rd_quoted(p);
    }
    rd_next_line(p);
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
    rd_expect(p, '#');
    u32 num = rd_small(p, NUM_MAX);
    if (num < p->g->body.n || num > p->g->body.n + 1024) {
        BAD(p, E_RANGE, "bodies are numbered upwards");
    }
    Body *b = arena_alloc(p->g->arena, sizeof *b);
    vec_push(p->g->arena, &b->node, (BodyNode){0});
    body_head(p, b);
    while (rd_next_statement(p) && !rd_accept_word(p, "end")) {
        if (rd_accept_word(p, "in")) {
            BodyPort x = read_body_port(p, b);
            vec_push(p->g->arena, &b->in, x);
        } else if (rd_accept_word(p, "out")) {
            BodyPort x = read_body_port(p, b);
            vec_push(p->g->arena, &b->out, x);
        } else {
            const char *s = rd_word_str(p, "a node, like n3");
            if (s[0] != 'n' || strcmp(s + 1, arena_fmt(p->g->arena, "%u", b->node.n)) != 0) {
                BAD(p, E_SYNTAX, "expected node n%u", b->node.n);
            }
            rd_expect(p, '=');
            BodyNode n = read_body_node(p, b);
            vec_push(p->g->arena, &b->node, n);
        }
        rd_next_line(p);
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
    Inst x = {.name = rd_word(p, "a name")};
    if (rd_accept_key(p, "kern")) {
        x.kern = kern_by_name(p, rd_word(p, "a kernel"));
    }
    if (rd_accept_key(p, "hash")) {
        const char *s = rd_word_str(p, "a hash");
        char *stop;
        x.hash = strtoull(s, &stop, 16);
        if (*stop || s[0] == '-') {
            BAD(p, E_SYNTAX, "expected a hexadecimal number");
        }
    }
    while (!rd_eol(p)) {
        vec_push(p->g->arena, &x.key, rd_word(p, "a constant"));
        rd_expect(p, '=');
        vec_push(p->g->arena, &x.value, rd_word(p, "a value"));
    }
    vec_push(p->g->arena, &p->g->inst, x);
}

static void st_first(Parse *p)
{
    u32 x = rd_inst_name(p);
    u32 f = rd_func_name(p);
    const Func *func = &p->g->func.at[f];
    if (func->node.n == 0) {
        BAD(p, E_RANGE, "a Func without nodes");
    }
    p->g->inst.at[x].node = func->node.at[rd_small(p, func->node.n - 1)];
}

static u32 buf_number(Parse *p)
{
    const char *s = rd_word_str(p, "a buffer, like b3");
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
    Buf b = {.region = (u8)rd_choice(p, text_regions, "region")};
    if (rd_accept_key(p, "func")) {
        b.func = rd_func_name(p);
    }
    if (!rd_accept_offset(p, &b.off) || !rd_accept_key(p, "bytes")) {
        BAD(p, E_SYNTAX, "expected `@OFFSET bytes=N`");
    }
    b.bytes = rd_bytes(p);
    if (!rd_accept_key(p, "life")) {
        BAD(p, E_SYNTAX, "expected `life=FIRST..LAST`");
    }
    const char *s = rd_word_str(p, "FIRST..LAST"); /* dots are part of a word */
    unsigned first = 0, last = 0;
    int used = 0;
    if (sscanf(s, "%9u..%9u%n", &first, &last, &used) != 2 || s[used]) {
        BAD(p, E_SYNTAX, "expected `life=FIRST..LAST`");
    }
    b.first = first;
    b.last = last;
    vec_push(p->g->arena, &p->g->buf, b);
}

/* ---- Funcs ----------------------------------------------------------------------------------- */

/* What stands before `= op`: number, type and the rest of a value that is not made yet. */
typedef struct {
    u32 num, on; /* on: number of the base; 0 = itself */
    bool window;
    Value v;
    Loc loc;
} Result;

static void window(Parse *p, Result *r)
{
    r->window = true;
    r->v.off = rd_integer(p, INT64_MIN, INT64_MAX);
    rd_expect(p, '[');
    u32 n = 0;
    while (!rd_accept(p, ']')) {
        i64 s = rd_integer(p, INT64_MIN, INT64_MAX);
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
    Result r = {.loc = rd_here(p)};
    rd_expect(p, '%');
    r.num = rd_small(p, NUM_MAX);
    rd_expect(p, ':');
    r.v.type = rd_type(p, r.v.at);
    rd_places(p, r.v.at);
    if (rd_accept_word(p, "on")) {
        rd_expect(p, '%');
        r.on = rd_small(p, NUM_MAX);
    }
    if (rd_accept(p, '+')) {
        window(p, &r);
    }
    u32 flag;
    for (;;) {
        if (rd_accept(p, '@')) {
            r.v.buf = buf_number(p);
            if (r.v.buf >= p->g->buf.n) {
                BAD(p, E_NAME, "no buffer b%u", r.v.buf);
            }
        } else if (rd_accept_choice(p, text_flags, &flag)) {
            r.v.flags = (u16)(r.v.flags | 1u << flag);
        } else if (rd_peek(p) == '"') {
            r.v.path = rd_quoted(p);
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
    rd_ids_room(p, ids, r->num + 1);
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
    Loc at = (rd_blanks(p), rd_here(p));
    Sym name = rd_word(p, "a variable");
    rd_expect(p, ':');
    Type t = rd_type(p, NULL);
    u32 kind = rd_choice(p, text_var_kinds, "kind of variable");
    u32 had = p->g->func.at[func].formal.n;
    if (formal_find(p->g, func, name, t, kind) <= had) {
        fail(p->g, at, E_NAME, "formal %s twice", sym_str(p->g, name));
    }
}

static void input(Parse *p, u32 func)
{
    if (rd_peek(p) != '%') {
        BAD(p, E_SYNTAX, "expected a value, like %%3");
    }
    Result r = result(p);
    u32 id = func_input(p->g, func, r.v.type, 0);
    finish(p, func, &r, id);
    if (rd_accept(p, ':')) {
        u32 kind = rd_choice(p, text_in_kinds, "kind of operand");
        vec_push(p->g->arena, &p->g->func.at[func].in_kind, (u8)kind);
    }
}

static void outputs(Parse *p, u32 func)
{
    while (!rd_eol(p)) {
        u32 v = rd_value_ref(p, func);
        vec_push(p->g->arena, &p->g->func.at[func].out, v);
        if (rd_accept(p, ':')) {
            u32 kind = rd_choice(p, text_out_kinds, "kind of result");
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
    Sym subject; /* variable of an effect, Func of a loop */
    Loc subject_loc;
} Line;

static u32 op_name(Parse *p)
{
    Loc at = (rd_blanks(p), rd_here(p));
    const char *s = rd_word_str(p, "an op");
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
    if (rd_accept_key(p, "trips")) {
        n->trips = (i32)rd_integer(p, 1, INT32_MAX);
    } else if (rd_accept_key(p, "when")) {
        n->when = (u8)rd_choice(p, text_whens, "moment");
    } else if (rd_accept_key(p, "skew")) {
        n->skew = (i8)rd_integer(p, -128, 127);
    } else if (rd_accept_key(p, "beta")) {
        n->beta = (u8)rd_small(p, 1);
    } else if (rd_accept_key(p, "lane")) {
        n->lane = (u8)rd_small(p, 255);
    } else if (rd_accept_key(p, "kern")) {
        n->kern = (u16)rd_inst_name(p);
    } else if (rd_accept_key(p, "path")) {
        n->path = rd_word(p, "a path");
    } else if (rd_accept_key(p, "pass")) {
        n->pass = rd_word(p, "a pass");
    } else if (rd_accept_key(p, "loc")) {
        n->loc = rd_location(p);
    } else {
        return false;
    }
    return true;
}

static void node_rest(Parse *p, u32 func, Line *l)
{
    while (!rd_eol(p)) {
        char c = rd_peek(p);
        if (c == '%') {
            u32 v = rd_value_ref(p, func);
            vec_push(p->g->arena, &l->in, v);
        } else if (rd_accept_word(p, "_")) {
            vec_push(p->g->arena, &l->in, 0);
        } else if (rd_accept(p, '{')) {
            rd_attrs(p, &l->attr);
        } else if (rd_accept(p, '#')) {
            l->n.body = rd_small(p, NUM_MAX);
            if (l->n.body >= p->g->body.n || !p->g->body.at[l->n.body]) {
                BAD(p, E_NAME, "no body #%u", l->n.body);
            }
        } else if (!node_option(p, l)) {
            if (l->subject || l->in.n) {
                BAD(p, E_SYNTAX, "expected an operand, `{` or an option");
            }
            l->subject_loc = rd_here(p);
            l->subject = rd_word(p, "an operand");
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
        l->n.body = rd_func_find(g, l->subject);
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
    while (rd_peek(p) == '%') {
        if (l.out.n == OUT_MAX) {
            BAD(p, E_RANGE, "more than %d results", OUT_MAX);
        }
        Result r = result(p);
        vec_push(g->arena, &l.out, r);
        rd_accept(p, ',');
    }
    if (l.out.n) {
        rd_expect(p, '=');
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
        p->g->value.at[l.value].base = rd_value_by_number(p, l.func, l.num, l.loc);
    }
    p->base.n = 0;
}

static void func_options(Parse *p, u32 func)
{
    while (!rd_eol(p)) {
        if (rd_accept_key(p, "twin")) {
            u32 twin = rd_func_name(p);
            p->g->func.at[func].twin = twin;
        } else if (rd_accept_key(p, "path")) {
            Sym s = rd_word(p, "a path");
            p->g->func.at[func].path = s;
        } else if (rd_accept_key(p, "loc")) {
            p->g->func.at[func].loc = rd_location(p);
        } else {
            BAD(p, E_NAME, "unknown option of a Func");
        }
    }
    rd_next_line(p);
}

static void st_func(Parse *p)
{
    Loc at = (rd_blanks(p), rd_here(p));
    Sym name = rd_word(p, "a name");
    u32 role = rd_choice(p, text_roles, "role");
    if (!rd_func_find(p->g, name)) {
        rd_func_new(p, name, role);
    }
    u32 func = rd_func_find(p->g, name);
    if (p->defined.at[func]) {
        fail(p->g, at, E_NAME, "Func %s twice", sym_str(p->g, name));
    }
    p->defined.at[func] = true;
    p->g->func.at[func].role = (u8)role;
    func_options(p, func);
    for (;;) {
        if (!rd_next_statement(p)) {
            fail(p->g, at, E_SYNTAX, "Func %s has no `end`", sym_str(p->g, name));
        }
        if (rd_accept_word(p, "end")) {
            break;
        }
        if (rd_accept_word(p, "formal")) {
            formal(p, func);
        } else if (rd_accept_word(p, "in")) {
            input(p, func);
        } else if (rd_accept_word(p, "out")) {
            outputs(p, func);
        } else {
            node(p, func);
        }
        rd_next_line(p);
    }
    resolve_bases(p);
}

/* ---- regs, chains, saves, steps -------------------------------------------------------------- */

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
    Loc at = (rd_blanks(p), rd_here(p));
    const char *s = rd_word_str(p, "a reg");
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
    Loc at = (rd_blanks(p), rd_here(p));
    const char *s = rd_word_str(p, "a reg");
    if (reg_find(p, s) || strcmp(s, "_") == 0) {
        fail(p->g, at, E_NAME, "reg %s twice", s);
    }
    Reg r = {0};
    rd_expect(p, ':');
    r.type = rd_type(p, r.at);
    rd_places(p, r.at);
    r.io = rd_accept_word(p, "io");
    r.saved = rd_accept_word(p, "saved");
    rd_accept_offset(p, &r.off);
    if (!text_reg_number(s)) {
        r.name = sym(p->g, s);
    } else {
        u64 num = strtoull(s + 1, NULL, 10);
        if (num > NUM_MAX) {
            fail(p->g, at, E_RANGE, "regs are numbered up to %d", NUM_MAX);
        }
        rd_ids_room(p, &p->reg, (u32)num + 1);
        p->reg.at[num] = p->g->reg.n;
        r.name = rd_peek(p) == '"' ? rd_quoted(p) : 0;
    }
    vec_push(p->g->arena, &p->g->reg, r);
}

static void reg_list(Parse *p, Ids *out)
{
    rd_expect(p, '(');
    while (!rd_accept(p, ')')) {
        u32 id = reg_name(p);
        vec_push(p->g->arena, out, id);
    }
}

static void binds(Parse *p, Ids *out)
{
    rd_expect(p, '(');
    while (!rd_accept(p, ')')) {
        if (rd_accept_word(p, "flat")) {
            rd_expect(p, ':');
            u32 id = rd_flat_name(p);
            vec_push(p->g->arena, out, id | FLAT_BIND);
        } else if (rd_accept_word(p, "_")) {
            vec_push(p->g->arena, out, 0);
        } else {
            u32 id = rd_var_name(p);
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
    c.func = rd_func_name(p);
    Ids in = {0}, out = {0}, bind = {0};
    reg_list(p, &in);
    rd_expect_arrow(p);
    reg_list(p, &out);
    bool bound = false;
    while (!rd_eol(p)) {
        if (rd_accept_key(p, "at")) {
            c.prefix = rd_word(p, "a prefix");
        } else if (rd_accept_key(p, "layer")) {
            c.layer = (i32)rd_integer(p, 0, 1 << 20);
        } else if (rd_accept_key(p, "stage")) {
            c.stage = (i32)rd_integer(p, 0, 63);
        } else if (rd_accept_key(p, "chunk")) {
            c.chunk = (i32)rd_integer(p, 0, 1 << 20);
        } else if (rd_accept_key(p, "twin")) {
            c.twin = rd_small(p, NUM_MAX);
        } else if (rd_accept_key(p, "bind")) {
            binds(p, &bind);
            bound = true;
        } else if (!rd_accept_offset(p, &c.saved_off)) {
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
    Loc at = rd_here(p);
    Chain c = {.name = rd_word(p, "a name")};
    c.role = (u8)rd_choice(p, text_roles, "role");
    Ids in = {0}, out = {0};
    reg_list(p, &in);
    rd_expect_arrow(p);
    reg_list(p, &out);
    memcpy(&c.in, &in, sizeof c.in);
    memcpy(&c.out, &out, sizeof c.out);
    rd_next_line(p);
    for (;;) {
        if (!rd_next_statement(p)) {
            fail(p->g, at, E_SYNTAX, "chain %s has no `end`", sym_str(p->g, c.name));
        }
        if (rd_accept_word(p, "end")) {
            break;
        }
        if (!rd_accept_word(p, "call")) {
            BAD(p, E_SYNTAX, "expected `call` or `end`");
        }
        Call k = call(p);
        vec_push(p->g->arena, &c.call, k);
        rd_next_line(p);
    }
    vec_push(p->g->arena, &p->g->chain, c);
}

static void st_save(Parse *p)
{
    Save s = {.from = rd_func_name(p)};
    s.from_value = rd_value_ref(p, s.from);
    rd_expect_arrow(p);
    s.to = rd_func_name(p);
    s.to_value = rd_value_ref(p, s.to);
    s.mode = (u8)rd_choice(p, text_saves, "kind of save");
    rd_accept_offset(p, &s.off);
    vec_push(p->g->arena, &p->g->save, s);
}

static i32 peer(Parse *p, const char *what)
{
    if (!rd_accept_word(p, what)) {
        BAD(p, E_SYNTAX, "expected `%s STAGE`", what);
    }
    return (i32)rd_integer(p, 0, 63);
}

static Cmd cmd(Parse *p)
{
    Cmd c = {.kind = (u8)rd_choice(p, text_cmds, "command")};
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
        c.event = rd_small(p, NUM_MAX);
    }
    while (!rd_eol(p)) {
        if (rd_accept_key(p, "chunk")) {
            c.chunk = (i32)rd_integer(p, 0, 1 << 20);
        } else if (rd_accept_key(p, "micro")) {
            c.micro = (i32)rd_integer(p, 0, 1 << 20);
        } else if (c.kind == CMD_SENDRECV && rd_accept_key(p, "micro2")) {
            c.micro2 = (i32)rd_integer(p, 0, 1 << 20);
        } else if (rd_accept_key(p, "lane")) {
            c.lane = (u8)rd_small(p, 15);
        } else {
            BAD(p, E_NAME, "unknown option of a command");
        }
    }
    return c;
}

static void st_step(Parse *p)
{
    Loc at = rd_here(p);
    Step s = {.stage = (i32)rd_integer(p, 0, 63)};
    rd_next_line(p);
    for (;;) {
        if (!rd_next_statement(p)) {
            fail(p->g, at, E_SYNTAX, "step %d has no `end`", (int)s.stage);
        }
        if (rd_accept_word(p, "end")) {
            break;
        }
        Cmd c = cmd(p);
        vec_push(p->g->arena, &s.cmd, c);
        rd_next_line(p);
    }
    vec_push(p->g->arena, &p->g->step, s);
}

/* ---- the whole ------------------------------------------------------------------------------- */

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
    while (rd_next_statement(p)) {
        if (p->at == p->line_at && rd_accept_word(p, "func")) {
            Sym name = rd_word(p, "a name");
            u32 role = rd_choice(p, text_roles, "role");
            if (!rd_func_find(p->g, name)) {
                rd_func_new(p, name, role);
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
    while (rd_next_statement(&p)) {
        Loc at = rd_here(&p);
        const char *s = rd_word_str(&p, "a statement");
        u32 i = 0;
        while (i < NSTATEMENT && strcmp(statements[i].name, s) != 0) {
            i++;
        }
        if (i == NSTATEMENT) {
            fail(g, at, E_SYNTAX, "no statement starts with `%s`", s);
        }
        statements[i].read(&p);
        rd_next_line(&p);
    }
    for (u32 i = 0; i < p.count.n; i++) {
        Later l = p.count.at[i];
        g->dim.at[l.value].count = rd_value_by_number(&p, l.func, l.num, l.loc);
    }
}

/* ---- check of a file ------------------------------------------------------------------------- */

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
