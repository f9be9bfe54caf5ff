/* text.c: the Graph as text. parse.c reads it back to the same Graph; grammar in
 * generator/README.md.
 *
 * What has its default value is not printed. Values are numbered per Func in the order in which
 * they appear, so that equal programs print alike whatever the passes did to the arrays.
 */
#include "megagen.h"
#include "text.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names of enums, shared with parse.c ----------------------------------------------------- */

const char *const text_roles[] = {"fwd", "bwd",     "bwdw",   "loss", "eval", "logits",
                                  "upd", "prefill", "decode", "loop", NULL};
const char *const text_var_kinds[] = {"weight", "accum", "master", "moment", "cache",
                                      "stat",   "table", "scalar", "metric", NULL};
const char *const text_lives[] = {"run", "step", "micro", "request", NULL};
const char *const text_inits[] = {"zero", "one", "const", "normal", "uniform", "table", NULL};
const char *const text_whens[] = {"always", "first_micro", "last_micro", NULL};
const char *const text_in_kinds[] = {"carry", "slice", "invariant", NULL};
const char *const text_out_kinds[] = {"carry", "stack", "sum", NULL};
const char *const text_saves[] = {"keep", "recompute", "offload", NULL};
const char *const text_regions[] = {"params", "grads", "state", "saved", "scratch", "io", NULL};
const char *const text_cmds[] = {"fwd",  "bwd",      "bwdw", "loss",   "upd", "send",
                                 "recv", "sendrecv", "wait", "signal", NULL};
const char *const text_flags[] = {"resid", "rowstat", "marked", "nograd", NULL};
const char *const text_op_flags[] = {"view",   "effect", "comm", "body",   "kernel",  "struct",
                                     "nograd", "mixes",  "text", "linear", "partial", NULL};

_Static_assert(sizeof text_roles / sizeof *text_roles == ROLE_COUNT + 1, "one name a role");
_Static_assert(sizeof text_var_kinds / sizeof *text_var_kinds == VAR_COUNT + 1, "one name a kind");
_Static_assert(sizeof text_regions / sizeof *text_regions == REGION_COUNT + 1, "one a region");
_Static_assert(sizeof text_cmds / sizeof *text_cmds == CMD_SIGNAL + 2, "one name a command");

bool text_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '/' || c == '*' || c == '-';
}

/* A name that needs no quotes: it reads as one word, not as a number, and does not end in "-". */
static bool is_plain(const char *s)
{
    if (!*s || (*s >= '0' && *s <= '9') || *s == '-' || strcmp(s, "_") == 0 ||
        strcmp(s, "inf") == 0 || strcmp(s, "nan") == 0) {
        return false;
    }
    for (const char *p = s; *p; p++) {
        if (!text_word_char(*p)) {
            return false;
        }
    }
    return s[strlen(s) - 1] != '-';
}

/* x12: how a reg without a name of its own is called */
bool text_reg_number(const char *s)
{
    return s[0] == 'x' && s[1] && strspn(s + 1, "0123456789") == strlen(s + 1);
}

/* ---- printing -------------------------------------------------------------------------------- */

typedef struct {
    Graph *g;
    Text *t;
    u32 *num;    /* value id -> number within its Func */
    bool *plain; /* reg id -> its name alone says which one it is */
} Print;

#define PUT(p, ...) text_fmt((p)->g->arena, (p)->t, __VA_ARGS__)

static void quoted(Print *p, Sym s)
{
    PUT(p, "\"");
    for (const char *c = sym_str(p->g, s); *c; c++) {
        if (*c == '"' || *c == '\\') {
            PUT(p, "\\%c", *c);
        } else if ((u8)*c < ' ' || *c == 0x7F) {
            PUT(p, "\\x%02x", (u8)*c);
        } else {
            PUT(p, "%c", *c);
        }
    }
    PUT(p, "\"");
}

static void name(Print *p, Sym s)
{
    if (is_plain(sym_str(p->g, s))) {
        PUT(p, "%s", sym_str(p->g, s));
    } else {
        quoted(p, s);
    }
}

static void key_name(Print *p, const char *key, Sym s)
{
    if (s) {
        PUT(p, " %s=", key);
        name(p, s);
    }
}

static void number(Print *p, f64 v)
{
    char buf[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (strtod(buf, NULL) == v) {
            break;
        }
    }
    bool whole = strspn(buf, "-0123456789") == strlen(buf);
    PUT(p, "%s%s", buf, whole ? ".0" : "");
}

/* Unlike other names, "2" and "d.1" stand without quotes. */
static void dim(Print *p, u32 d)
{
    const char *s = sym_str(p->g, p->g->dim.at[d].name);
    bool plain = *s != 0;
    for (const char *c = s; *c; c++) {
        plain = plain && text_word_char(*c) && *c != '-';
    }
    if (plain) {
        PUT(p, "%s", s);
    } else {
        quoted(p, p->g->dim.at[d].name);
    }
}

static void loc(Print *p, Loc l)
{
    if (!l.file && !l.line) {
        return;
    }
    PUT(p, " loc=");
    name(p, sym_fmt(p->g, "%s", sym_str(p->g, l.file)));
    PUT(p, ":%d:%d", (int)l.line, (int)l.col);
}

static void offset(Print *p, u64 off)
{
    if (off) {
        PUT(p, " @%llu", (unsigned long long)off);
    }
}

/* at = NULL: a type alone */
static void type(Print *p, const Type *t, const Place *at)
{
    const Graph *g = p->g;
    u32 natom = g->atom.n - 1;
    PUT(p, "%s[", dtype_name(t->dtype));
    for (u32 i = 0; i < t->rank; i++) {
        PUT(p, "%s", i ? " " : "");
        dim(p, t->dim[i]);
        for (u32 a = 0; at && a < natom; a++) {
            if (at[a].kind == PL_S && at[a].dim == i) {
                PUT(p, "@%s%s", sym_str(g, g->atom.at[a + 1].name),
                    at[a].order == SPLIT_ZIGZAG ? "~zigzag" : "");
            }
        }
    }
    PUT(p, "]");
}

static void places(Print *p, const Place *at)
{
    static const char letter[] = {[PL_P] = 'P', [PL_M] = 'M', [PL_F] = 'F', [PL_W] = 'W'};
    const Graph *g = p->g;
    for (u32 a = 0; a + 1 < g->atom.n; a++) {
        if (at[a].kind == PL_R || at[a].kind == PL_S) {
            continue;
        }
        PUT(p, " %c(%s", letter[at[a].kind], sym_str(g, g->atom.at[a + 1].name));
        if (at[a].bucket) {
            PUT(p, ":%s", sym_str(g, g->flat.at[at[a].bucket].name));
        }
        PUT(p, ")");
    }
}

/* ---- head: config, mesh, ops, dims, arenas, variables ---------------------------------------- */

static void config(Print *p)
{
    const Config *c = &p->g->cfg;
    PUT(p, "config");
    key_name(p, "name", c->name);
    key_name(p, "spec", c->spec_file);
    key_name(p, "target", c->target);
    key_name(p, "cpu", c->cpu);
    static const char *const keys[] = {"compute", "master", "grads", "moments"};
    const u8 dt[] = {c->compute, c->master, c->grads, c->moments};
    for (u32 i = 0; i < 4; i++) {
        if (dt[i]) {
            PUT(p, " %s=%s", keys[i], dtype_name(dt[i]));
        }
    }
    static const char *const size_keys[] = {"micro", "seq", "global"};
    const i64 size[] = {c->micro, c->seq, c->global};
    for (u32 i = 0; i < 3; i++) {
        if (size[i]) {
            PUT(p, " %s=%lld", size_keys[i], (long long)size[i]);
        }
    }
    key_name(p, "remat", c->remat);
    key_name(p, "out", c->out_dir);
    PUT(p, " fuse=%s\n", c->fuse ? "on" : "off");
}

static void mesh(Print *p)
{
    const Graph *g = p->g;
    if (g->atom.n > 1) {
        PUT(p, "mesh");
        for (u32 i = 1; i < g->atom.n; i++) {
            PUT(p, " %s=%d", sym_str(g, g->atom.at[i].name), (int)g->atom.at[i].size);
        }
        PUT(p, "\n");
    }
    for (u32 i = 1; i < g->axis.n; i++) {
        const Axis *x = &g->axis.at[i];
        PUT(p, "axis %s =", sym_str(g, x->name));
        for (u32 k = 0; k < x->natom; k++) {
            PUT(p, " %s", sym_str(g, g->atom.at[x->atom[k]].name));
        }
        PUT(p, "\n");
    }
}

static void ops(Print *p)
{
    for (u32 i = 1; i < p->g->op.n; i++) {
        const Op *op = &p->g->op.at[i];
        if (!(op->flags & OF_TEXT)) {
            continue;
        }
        PUT(p, "op ");
        name(p, op->name);
        PUT(p, " ");
        quoted(p, op->sig_text);
        for (u32 k = 0; text_op_flags[k]; k++) {
            if ((op->flags >> k & 1) && 1u << k != OF_TEXT) {
                PUT(p, " %s", text_op_flags[k]);
            }
        }
        for (u32 k = 0; k + 1 < op->inplace.n; k += 2) {
            PUT(p, " inplace=%s:%s", sym_str(p->g, op->inplace.at[k]),
                sym_str(p->g, op->inplace.at[k + 1]));
        }
        for (u32 k = 0; k < op->whole.n; k++) {
            PUT(p, " whole=%s", sym_str(p->g, op->whole.at[k]));
        }
        PUT(p, "\n");
    }
}

static void dims(Print *p)
{
    for (u32 i = 1; i < p->g->dim.n; i++) {
        const Dim *d = &p->g->dim.at[i];
        PUT(p, "dim ");
        dim(p, i);
        PUT(p, " = %lld", (long long)d->size);
        if (d->pad) {
            PUT(p, " pad %lld", (long long)d->pad);
        }
        if (d->max) {
            PUT(p, " max %lld", (long long)d->max);
        }
        if (d->count) {
            PUT(p, " count ");
            name(p, p->g->func.at[p->g->value.at[d->count].func].name);
            PUT(p, " %%%u", p->num[d->count]);
        }
        PUT(p, "\n");
    }
}

static void arenas(Print *p)
{
    const Graph *g = p->g;
    for (u32 i = 0; i < REGION_COUNT; i++) {
        if (g->region[i].bytes || g->region[i].off) {
            PUT(p, "region %s @%llu bytes=%llu\n", text_regions[i],
                (unsigned long long)g->region[i].off, (unsigned long long)g->region[i].bytes);
        }
    }
    if (g->arena_bytes) {
        PUT(p, "arena %llu\n", (unsigned long long)g->arena_bytes);
    }
    for (u32 i = 1; i < g->flat.n; i++) {
        const Flat *f = &g->flat.at[i];
        PUT(p, "flat ");
        name(p, f->name);
        PUT(p, " %s %s elems=%llu", dtype_name(f->dtype), text_var_kinds[f->kind],
            (unsigned long long)f->elems);
        offset(p, f->off);
        places(p, f->at);
        PUT(p, "\n");
    }
}

static void attr(Print *p, const Attr *a);

static void attrs(Print *p, u32 at, u32 n)
{
    if (n == 0) {
        return;
    }
    PUT(p, " {");
    for (u32 i = 0; i < n; i++) {
        PUT(p, "%s", i ? " " : "");
        attr(p, &p->g->attr.at[at + i]);
    }
    PUT(p, "}");
}

static void init(Print *p, const Init *in)
{
    if (in->kind == INIT_ZERO) {
        return;
    }
    PUT(p, " init=%s", text_inits[in->kind]);
    if (in->kind == INIT_TABLE) {
        PUT(p, "(");
        name(p, in->table);
        attrs(p, in->attr, in->nattr);
        PUT(p, ")");
    } else if (in->kind != INIT_ONE) {
        PUT(p, "(");
        number(p, in->a);
        if (in->kind != INIT_CONST) {
            PUT(p, ",");
            number(p, in->b);
        }
        PUT(p, ")");
    }
}

static void var(Print *p, const Var *v)
{
    const Graph *g = p->g;
    PUT(p, "var ");
    name(p, v->path);
    PUT(p, " : ");
    type(p, &v->type, v->at);
    places(p, v->at);
    PUT(p, " %s %s%s%s", text_var_kinds[v->kind], text_lives[v->life], v->saved ? " saved" : "",
        v->frozen ? " frozen" : "");
    init(p, &v->init);
    key_name(p, "group", v->group);
    key_name(p, "of", v->of ? g->var.at[v->of].path : 0);
    if (v->flat) {
        key_name(p, "flat", g->flat.at[v->flat].name);
        PUT(p, "+%llu", (unsigned long long)v->elem);
    }
    const char *sep = " stages=";
    for (u32 s = 0; s < 64; s++) {
        if (v->stages >> s & 1) {
            PUT(p, "%s%u", sep, s);
            sep = ",";
        }
    }
    offset(p, v->off);
    loc(p, v->loc);
    PUT(p, "\n");
}

/* Members of an arena stand in it in their order of elements: only a different order is printed. */
static void flat_members(Print *p)
{
    const Graph *g = p->g;
    for (u32 i = 1; i < g->flat.n; i++) {
        const Flat *f = &g->flat.at[i];
        if (f->var.n == 0) {
            continue;
        }
        PUT(p, "members ");
        name(p, f->name);
        for (u32 k = 0; k < f->var.n; k++) {
            PUT(p, " ");
            name(p, g->var.at[f->var.at[k]].path);
        }
        PUT(p, "\n");
    }
}

/* ---- Funcs ----------------------------------------------------------------------------------- */

static void attr(Print *p, const Attr *a)
{
    const Graph *g = p->g;
    name(p, a->key);
    PUT(p, "=");
    const char *s = a->kind == AT_DIM ? sym_str(g, g->dim.at[a->dim[0]].name) : "";
    switch (a->kind) {
    case AT_INT:
        PUT(p, "%lld", (long long)a->i);
        break;
    case AT_NUM:
        number(p, a->num);
        break;
    case AT_SYM:
        quoted(p, a->sym);
        break;
    case AT_DIM:
        PUT(p, "%s", is_plain(s) ? "" : "#");
        dim(p, a->dim[0]);
        break;
    case AT_DIMS:
        for (u32 i = 0; i < a->n; i++) {
            PUT(p, "%s", i ? " " : "[");
            dim(p, a->dim[i]);
        }
        PUT(p, "%s", a->n ? "]" : "[]");
        break;
    default:
        for (u32 i = 0; i < a->n; i++) {
            PUT(p, "%s", i ? " " : "(");
            number(p, a->nums[i]);
        }
        PUT(p, "%s", a->n ? ")" : "()");
    }
}

static bool dense_strides(const Graph *g, const Value *v)
{
    i64 stride = 1;
    for (u32 i = v->type.rank; i-- > 0;) {
        if (v->stride[i] != stride) {
            return false;
        }
        stride *= dim_mem(g, v->type.dim[i]);
    }
    return true;
}

/* ": type place window flags name" of a value */
static void value(Print *p, u32 id)
{
    const Graph *g = p->g;
    const Value *v = &g->value.at[id];
    PUT(p, "%%%u : ", p->num[id]);
    type(p, &v->type, v->at);
    places(p, v->at);
    bool own = v->base == id;
    if (!own) {
        PUT(p, " on %%%u", p->num[v->base]);
    }
    if (!own || v->off || !dense_strides(g, v)) {
        PUT(p, " +%lld[", (long long)v->off);
        for (u32 i = 0; i < v->type.rank; i++) {
            PUT(p, "%s%lld", i ? " " : "", (long long)v->stride[i]);
        }
        PUT(p, "]");
    }
    if (v->buf) {
        PUT(p, " @b%u", v->buf);
    }
    for (u32 i = 0; text_flags[i]; i++) {
        if (v->flags >> i & 1) {
            PUT(p, " %s", text_flags[i]);
        }
    }
    if (v->path) {
        PUT(p, " ");
        quoted(p, v->path);
    }
}

static void operands(Print *p, const Node *n)
{
    for (u32 i = 0; i < n->nin; i++) {
        u32 v = p->g->arg.at[n->in + i];
        if (v) {
            PUT(p, " %%%u", p->num[v]);
        } else {
            PUT(p, " _");
        }
    }
}

static void node(Print *p, const Node *n)
{
    const Graph *g = p->g;
    const Op *op = &g->op.at[n->op];
    PUT(p, "  ");
    for (u32 i = 0; i < n->nout; i++) {
        PUT(p, "%s", i ? ", " : "");
        value(p, n->out + i);
    }
    PUT(p, "%s", n->nout ? " = " : "");
    name(p, op->name);
    if (n->formal) {
        PUT(p, " ");
        name(p, g->func.at[n->func].formal.at[n->formal - 1].name);
    }
    const char *opname = sym_str(g, op->name);
    if (n->body && strcmp(opname, "loop") == 0) {
        PUT(p, " ");
        name(p, g->func.at[n->body].name);
    } else if (n->body) {
        PUT(p, " #%u", n->body);
    }
    operands(p, n);
    attrs(p, n->attr, n->nattr);
    if (n->trips) {
        PUT(p, " trips=%d", (int)n->trips);
    }
    if (n->when) {
        PUT(p, " when=%s", text_whens[n->when]);
    }
    if (n->skew) {
        PUT(p, " skew=%d", (int)n->skew);
    }
    if (n->beta != (strcmp(opname, "accum") == 0)) {
        PUT(p, " beta=%u", n->beta);
    }
    if (n->lane) {
        PUT(p, " lane=%u", n->lane);
    }
    key_name(p, "kern", n->kern ? g->inst.at[n->kern].name : 0);
    key_name(p, "path", n->path);
    key_name(p, "pass", n->pass);
    loc(p, n->loc);
    PUT(p, "\n");
}

static void func(Print *p, const Func *f)
{
    const Graph *g = p->g;
    PUT(p, "\nfunc ");
    name(p, f->name);
    PUT(p, " %s", text_roles[f->role]);
    key_name(p, "twin", f->twin ? g->func.at[f->twin].name : 0);
    key_name(p, "path", f->path);
    loc(p, f->loc);
    PUT(p, "\n");
    for (u32 i = 0; i < f->formal.n; i++) {
        PUT(p, "  formal ");
        name(p, f->formal.at[i].name);
        PUT(p, " : ");
        type(p, &f->formal.at[i].type, NULL);
        PUT(p, " %s\n", text_var_kinds[f->formal.at[i].kind]);
    }
    for (u32 i = 0; i < f->in.n; i++) {
        PUT(p, "  in ");
        value(p, f->in.at[i]);
        if (i < f->in_kind.n) {
            PUT(p, " : %s", text_in_kinds[f->in_kind.at[i]]);
        }
        PUT(p, "\n");
    }
    for (u32 i = 0; i < f->node.n; i++) {
        node(p, &g->node.at[f->node.at[i]]);
    }
    if (f->out.n) {
        PUT(p, "  out");
    }
    for (u32 i = 0; i < f->out.n; i++) {
        PUT(p, " %%%u", p->num[f->out.at[i]]);
        if (i < f->out_kind.n) {
            PUT(p, ":%s", text_out_kinds[f->out_kind.at[i]]);
        }
    }
    PUT(p, "%send\n", f->out.n ? "\n" : "");
}

static void bufs(Print *p)
{
    const Graph *g = p->g;
    for (u32 i = 1; i < g->buf.n; i++) {
        const Buf *b = &g->buf.at[i];
        PUT(p, "buf b%u %s", i, text_regions[b->region]);
        key_name(p, "func", b->func ? g->func.at[b->func].name : 0);
        PUT(p, " @%llu bytes=%llu life=%u..%u\n", (unsigned long long)b->off,
            (unsigned long long)b->bytes, b->first, b->last);
    }
}

/* ---- bodies and kernel instances ------------------------------------------------------------- */

static void put_body_port(Print *p, const Body *b, const BodyPort *x, const char *what)
{
    PUT(p, "  %s ", what);
    name(p, x->name);
    PUT(p, " : %s[", dtype_name(x->dtype));
    for (u32 i = 0; i < x->rank; i++) {
        PUT(p, "%s%u", i ? " " : "", x->axis[i]);
    }
    PUT(p, "] mask=%u node=%u", x->dims, x->node);
    if (x->inplace) {
        PUT(p, " inplace=%d", (int)x->inplace);
    }
    PUT(p, "%s%s\n", x->saved ? " saved" : "", x->accum ? " accum" : "");
    (void)b;
}

static void put_body_node(Print *p, u32 i, const BodyNode *n)
{
    PUT(p, "  n%u = ", i);
    name(p, sym(p->g, body_fn_name(n->fn)));
    PUT(p, " type=%u", n->type);
    for (u32 k = 0; k < n->narg; k++) {
        PUT(p, " n%u", n->arg[k]);
    }
    if (n->to) {
        PUT(p, " to=%s", dtype_name(n->to));
    }
    PUT(p, " mask=%u", n->dims);
    if (n->over) {
        PUT(p, " over=%u", n->over);
    }
    if (n->num != 0 || signbit(n->num)) {
        PUT(p, " num=");
        number(p, n->num);
    }
    key_name(p, "name", n->name);
    if (n->port) {
        PUT(p, " port=%u", n->port);
    }
    PUT(p, "\n");
}

static void bodies(Print *p)
{
    for (u32 i = 1; i < p->g->body.n; i++) {
        const Body *b = p->g->body.at[i];
        if (!b) {
            continue;
        }
        PUT(p, "body #%u", i);
        for (u32 k = 0; k < b->ndim; k++) {
            PUT(p, " ");
            name(p, b->dim[k].name);
            PUT(p, ":");
            dim(p, b->dim[k].dim);
        }
        if (b->text) {
            PUT(p, " ");
            quoted(p, b->text);
        }
        PUT(p, "\n");
        for (u32 k = 0; k < b->in.n; k++) {
            put_body_port(p, b, &b->in.at[k], "in");
        }
        for (u32 k = 1; k < b->node.n; k++) {
            put_body_node(p, k, &b->node.at[k]);
        }
        for (u32 k = 0; k < b->out.n; k++) {
            put_body_port(p, b, &b->out.at[k], "out");
        }
        PUT(p, "end\n");
    }
}

static void instances(Print *p)
{
    const Graph *g = p->g;
    for (u32 i = 1; i < g->inst.n; i++) {
        const Inst *x = &g->inst.at[i];
        PUT(p, "inst ");
        name(p, x->name);
        key_name(p, "kern", x->kern ? g->kern.at[x->kern].name : 0);
        PUT(p, " hash=%016llx", (unsigned long long)x->hash);
        for (u32 k = 0; k < x->key.n; k++) {
            PUT(p, " ");
            name(p, x->key.at[k]);
            PUT(p, "=");
            quoted(p, x->value.at[k]);
        }
        PUT(p, "\n");
    }
}

/* The first user of each instance: it is a node, so this comes after the Funcs. */
static void instance_users(Print *p)
{
    const Graph *g = p->g;
    for (u32 i = 1; i < g->inst.n; i++) {
        u32 n = g->inst.at[i].node;
        if (!n || g->node.at[n].dead) {
            continue;
        }
        const Func *f = &g->func.at[g->node.at[n].func];
        for (u32 k = 0; k < f->node.n; k++) {
            if (f->node.at[k] == n) {
                PUT(p, "first ");
                name(p, g->inst.at[i].name);
                PUT(p, " ");
                name(p, f->name);
                PUT(p, " %u\n", k);
            }
        }
    }
}

/* ---- chains, saves, steps -------------------------------------------------------------------- */

static void reg(Print *p, u32 id)
{
    if (id && p->plain[id]) {
        PUT(p, "%s", sym_str(p->g, p->g->reg.at[id].name));
    } else if (id) {
        PUT(p, "x%u", id);
    } else {
        PUT(p, "_");
    }
}

static void reg_list(Print *p, const u32 *at, u32 n)
{
    PUT(p, "(");
    for (u32 i = 0; i < n; i++) {
        PUT(p, "%s", i ? " " : "");
        reg(p, at[i]);
    }
    PUT(p, ")");
}

static void regs(Print *p)
{
    const Graph *g = p->g;
    for (u32 i = 1; i < g->reg.n; i++) {
        const Reg *r = &g->reg.at[i];
        PUT(p, "reg ");
        reg(p, i);
        PUT(p, " : ");
        type(p, &r->type, r->at);
        places(p, r->at);
        PUT(p, "%s%s", r->io ? " io" : "", r->saved ? " saved" : "");
        offset(p, r->off);
        if (!p->plain[i] && r->name) {
            PUT(p, " ");
            quoted(p, r->name);
        }
        PUT(p, "\n");
    }
}

u32 text_default_bind(Graph *g, Sym prefix, Sym formal)
{
    const char *s = sym_str(g, formal), *pre = sym_str(g, prefix);
    Sym path = *s == '/' ? sym(g, s + 1) : *pre ? sym_fmt(g, "%s.%s", pre, s) : formal;
    for (u32 i = 1; i < g->var.n; i++) {
        if (g->var.at[i].path == path) {
            return i;
        }
    }
    return 0;
}

/* Nothing is printed where every formal is bound to the variable of its name. */
static void binds(Print *p, const Call *c)
{
    Graph *g = p->g;
    const Func *f = &g->func.at[c->func];
    bool usual = c->bind.n == f->formal.n;
    for (u32 i = 0; usual && i < f->formal.n; i++) {
        usual =
            c->bind.at[i] && c->bind.at[i] == text_default_bind(g, c->prefix, f->formal.at[i].name);
    }
    if (usual) {
        return;
    }
    PUT(p, " bind=(");
    for (u32 i = 0; i < c->bind.n; i++) {
        u32 b = c->bind.at[i];
        PUT(p, "%s%s", i ? " " : "", b & FLAT_BIND ? "flat:" : "");
        if (b) {
            name(p, b & FLAT_BIND ? g->flat.at[b & ~FLAT_BIND].name : g->var.at[b].path);
        } else {
            PUT(p, "_");
        }
    }
    PUT(p, ")");
}

static void call(Print *p, const Call *c)
{
    PUT(p, "  call ");
    name(p, p->g->func.at[c->func].name);
    PUT(p, " ");
    reg_list(p, c->in.at, c->in.n);
    PUT(p, " -> ");
    reg_list(p, c->out.at, c->out.n);
    key_name(p, "at", c->prefix);
    if (c->layer != -1) {
        PUT(p, " layer=%d", (int)c->layer);
    }
    if (c->stage) {
        PUT(p, " stage=%d", (int)c->stage);
    }
    if (c->chunk) {
        PUT(p, " chunk=%d", (int)c->chunk);
    }
    if (c->twin) {
        PUT(p, " twin=%u", c->twin);
    }
    binds(p, c);
    offset(p, c->saved_off);
    PUT(p, "\n");
}

static void chains(Print *p)
{
    const Graph *g = p->g;
    for (u32 i = 1; i < g->chain.n; i++) {
        const Chain *c = &g->chain.at[i];
        PUT(p, "\nchain ");
        name(p, c->name);
        PUT(p, " %s ", text_roles[c->role]);
        reg_list(p, c->in.at, c->in.n);
        PUT(p, " -> ");
        reg_list(p, c->out.at, c->out.n);
        PUT(p, "\n");
        for (u32 k = 0; k < c->call.n; k++) {
            call(p, &c->call.at[k]);
        }
        PUT(p, "end\n");
    }
}

static void saves(Print *p)
{
    const Graph *g = p->g;
    for (u32 i = 1; i < g->save.n; i++) {
        const Save *s = &g->save.at[i];
        PUT(p, "save ");
        name(p, g->func.at[s->from].name);
        PUT(p, " %%%u -> ", p->num[s->from_value]);
        name(p, g->func.at[s->to].name);
        PUT(p, " %%%u %s", p->num[s->to_value], text_saves[s->mode]);
        offset(p, s->off);
        PUT(p, "\n");
    }
}

static void cmd(Print *p, const Cmd *c)
{
    PUT(p, "  %s", text_cmds[c->kind]);
    if (c->kind == CMD_SEND || c->kind == CMD_SENDRECV) {
        PUT(p, " ");
        reg(p, c->reg);
        PUT(p, " to %d", (int)c->peer);
    }
    if (c->kind == CMD_RECV || c->kind == CMD_SENDRECV) {
        PUT(p, " ");
        reg(p, c->kind == CMD_RECV ? c->reg : c->reg2);
        PUT(p, " from %d", (int)(c->kind == CMD_RECV ? c->peer : c->peer2));
    }
    if (c->kind == CMD_WAIT || c->kind == CMD_SIGNAL) {
        PUT(p, " %u", c->event);
    }
    if (c->chunk) {
        PUT(p, " chunk=%d", (int)c->chunk);
    }
    if (c->micro) {
        PUT(p, " micro=%d", (int)c->micro);
    }
    if (c->micro2) {
        PUT(p, " micro2=%d", (int)c->micro2);
    }
    if (c->lane) {
        PUT(p, " lane=%u", c->lane);
    }
    PUT(p, "\n");
}

static void steps(Print *p)
{
    for (u32 i = 1; i < p->g->step.n; i++) {
        const Step *s = &p->g->step.at[i];
        PUT(p, "\nstep %d\n", (int)s->stage);
        for (u32 k = 0; k < s->cmd.n; k++) {
            cmd(p, &s->cmd.at[k]);
        }
        PUT(p, "end\n");
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void number_values(Print *p)
{
    const Graph *g = p->g;
    p->num = arena_alloc(g->arena, g->value.n * sizeof *p->num);
    for (u32 i = 1; i < g->func.n; i++) {
        const Func *f = &g->func.at[i];
        u32 n = 0;
        for (u32 k = 0; k < f->in.n; k++) {
            p->num[f->in.at[k]] = ++n;
        }
        for (u32 k = 0; k < f->node.n; k++) {
            const Node *x = &g->node.at[f->node.at[k]];
            for (u32 r = 0; r < x->nout; r++) {
                p->num[x->out + r] = ++n;
            }
        }
    }
}

static void name_regs(Print *p)
{
    const Graph *g = p->g;
    p->plain = arena_alloc(g->arena, g->reg.n);
    for (u32 i = 1; i < g->reg.n; i++) {
        const char *s = sym_str(g, g->reg.at[i].name);
        bool plain = is_plain(s) && !text_reg_number(s);
        for (u32 k = 1; plain && k < g->reg.n; k++) {
            plain = k == i || g->reg.at[k].name != g->reg.at[i].name;
        }
        p->plain[i] = plain;
    }
}

void text_print(Graph *g, Text *t)
{
    Print p = {.g = g, .t = t};
    number_values(&p);
    name_regs(&p);
    config(&p);
    mesh(&p);
    ops(&p);
    dims(&p);
    arenas(&p);
    for (u32 i = 1; i < g->var.n; i++) {
        var(&p, &g->var.at[i]);
    }
    flat_members(&p);
    bodies(&p);
    instances(&p);
    bufs(&p);
    for (u32 i = 1; i < g->func.n; i++) {
        if (!g->func.at[i].dead) {
            func(&p, &g->func.at[i]);
        }
    }
    instance_users(&p);
    regs(&p);
    chains(&p);
    saves(&p);
    steps(&p);
}
