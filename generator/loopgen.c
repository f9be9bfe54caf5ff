/* loopgen.c: the C text of one fused node: a worker over rows and its launcher.
 *
 * The dims of the body are merged as far as every operand's strides allow. The innermost one runs
 * in vectors of 64 bytes, the others are rows. A statement's level is the number of reductions
 * below it: level k is sweep k over the row, numbers of one row are plain C between the sweeps. A
 * row stays in the first cache levels, so that a later sweep loads again what an earlier one read
 * or stored.
 *
 * Bits: a row is folded in one vector accumulator, lane by lane; what lies beyond the row in the
 * last vector adds nothing. Rows go to parts by shape only. A column sum adds each part's rows into
 * its own line of a partial buffer (a hidden result of the node), then the launcher adds the lines
 * in order; a total does so in double. If only some of the leading dims are summed, those run
 * innermost of the rows and add in place.
 */
#include "loopgen.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PUT(G, ...) text_fmt((G)->g->arena, (G)->t, __VA_ARGS__)

/* ---- names and small text -------------------------------------------------------------------- */

static const char *T(const Gen *e)
{
    return e->wide ? "f64" : "f32";
}

static int lanes(const Gen *e)
{
    return e->wide ? 8 : 16;
}

/* "" for the lanes' own type, else the suffix of the load that converts. */
static const char *suffix(const Gen *e, u8 dtype)
{
    static const char *const names[DT_COUNT] = {[DT_F64] = "_f64",
                                                [DT_F32] = "_f32",
                                                [DT_BF16] = "_bf16",
                                                [DT_I64] = "_i64",
                                                [DT_I32] = "_i32"};
    bool own = dtype == (e->wide ? DT_F64 : DT_F32) || dtype == (e->wide ? DT_I64 : DT_I32);
    return own ? "" : names[dtype];
}

static const char *lane_type(const Gen *e, u8 type)
{
    static const char *const names[2][4] = {{"f32", "i32", "u32", "i32"},
                                            {"f64", "i64", "u64", "i64"}};
    return names[e->wide][type];
}

static const char *number_type(const Gen *e, u8 type)
{
    static const char *const names[2][4] = {{"float", "int32_t", "uint32_t", "int"},
                                            {"double", "int64_t", "uint32_t", "int"}};
    return names[e->wide][type];
}

/* A C name that no port and no node has yet: want, want + suffix, want_1 ... */
static Sym unique(Gen *e, const char *want, const char *or_suffix)
{
    static const char *const taken[] = {"a",    "c",  "arg", "part", "i",    "row", "seq",
                                        "from", "to", "end", "beta", "site", "trip"};
    Sym s = local_name(e->g, want);
    for (u32 n = 0;; n++) {
        bool clash = false;
        for (u32 i = 0; i < sizeof taken / sizeof *taken; i++) {
            clash = clash || strcmp(taken[i], sym_str(e->g, s)) == 0;
        }
        for (u32 i = 0; i < e->b->in.n + e->b->out.n; i++) {
            bool out = i >= e->b->in.n;
            clash = clash || loop_port(e, out, out ? i - e->b->in.n : i)->name == s;
        }
        for (u32 i = 1; i < e->b->node.n; i++) {
            clash = clash || e->id[i] == s;
        }
        if (!clash) {
            return s;
        }
        if (n == 0 && *or_suffix) {
            s = local_name(e->g, arena_fmt(e->g->arena, "%s%s", want, or_suffix));
        } else {
            s = sym_fmt(e->g, "%s_%u", sym_str(e->g, local_name(e->g, want)), n + !*or_suffix);
        }
    }
}

/* Statements of their own: what is used twice, named, loaded. */
static bool inlined(const Gen *e, u32 id)
{
    const BodyNode *n = &e->b->node.at[id];
    return n->fn > BF_RAND && !body_reduces(n->fn) && !n->name && e->uses[id] == 1 &&
           !e->stored[id];
}

/* Ports get distinct C names; nodes too. What a vector of port NAME is loaded into or stored from
 * is NAME_i, a number of the row NAME_0. */
static void choose_names(Gen *e)
{
    for (u32 i = 0; i < e->b->in.n + e->b->out.n; i++) {
        bool out = i >= e->b->in.n;
        BodyPort *p = out ? &e->b->out.at[i - e->b->in.n] : &e->b->in.at[i];
        const char *want = sym_str(e->g, p->name);
        p->name = 0;
        p->name = unique(e, want, "");
    }
    for (u32 i = 1; i < e->b->node.n; i++) {
        const BodyNode *n = &e->b->node.at[i];
        const char *lane = loop_is_vec(e, i) ? "_i" : "_0";
        const char *name = sym_str(e->g, n->name);
        if (n->fn == BF_INPUT) {
            const char *in = sym_str(e->g, e->b->in.at[n->port].name);
            e->id[i] = unique(e, arena_fmt(e->g->arena, "%s%s", in, lane), "");
        } else if (n->fn == BF_CONST || inlined(e, i)) {
            continue;
        } else if (n->fn <= BF_RAND) {
            e->id[i] = unique(e, n->fn == BF_SCALAR ? name : body_fn_name(n->fn), "");
        } else {
            e->id[i] = unique(e, *name ? name : loop_is_vec(e, i) ? "t" : "s", *name ? lane : "");
        }
    }
}

/* A row index: the loop's counter, or r0, r1 ... if it counts several dims. */
static const char *row_name(const Gen *e, u32 i)
{
    u32 same = 0;
    for (u32 k = 0; k < e->nrow; k++) {
        same += e->row[k].seq == e->row[i].seq;
    }
    return same > 1 ? sym_str(e->g, sym_fmt(e->g, "r%u", i)) : e->row[i].seq ? "seq" : "row";
}

/* " + row * 128 + ..." of a port's pointer in the row loops. */
static void put_offset(Gen *e, bool out, u32 k)
{
    for (u32 i = 0; i < e->nrow; i++) {
        i64 s = loop_stride(e, out, k, e->row[i].last);
        if (s == 1) {
            PUT(e, " + %s", row_name(e, i));
        } else if (s) {
            PUT(e, " + %s * %lld", row_name(e, i), (long long)s);
        }
    }
}

static bool has_offset(const Gen *e, bool out, u32 k)
{
    for (u32 i = 0; i < e->nrow; i++) {
        if (loop_stride(e, out, k, e->row[i].last)) {
            return true;
        }
    }
    return false;
}

static i64 inner_stride(const Gen *e, bool out, u32 k)
{
    u32 last = 0;
    for (u32 i = 0; i < e->b->ndim; i++) {
        last = e->inner & (1u << i) ? i : last;
    }
    return e->inner ? loop_stride(e, out, k, last) : 0;
}

/* ---- expressions ----------------------------------------------------------------------------- */

static void put_arg(Gen *e, u32 id, u32 level);

static void put_const(Gen *e, const BodyNode *n)
{
    char s[48];
    f64 v = n->num;
    if (n->type == BT_I) {
        PUT(e, "%lld", (long long)v);
        return;
    }
    if (v != v || v == INFINITY || v == -INFINITY) {
        PUT(e, v != v ? "__builtin_nanf(\"\")" : v > 0 ? "__builtin_inff()" : "-__builtin_inff()");
        return;
    }
    snprintf(s, sizeof s, e->wide ? "%.17g" : "%.9g", v);
    bool dot = strpbrk(s, ".e") != NULL;
    PUT(e, "%s%s%s", s, dot ? "" : ".0", e->wide ? "" : "f");
}

/* An argument of a function on vectors: numbers are spread over the lanes. */
static void put_vector(Gen *e, u32 id)
{
    if (loop_is_vec(e, id)) {
        put_arg(e, id, 0);
        return;
    }
    const BodyNode *n = &e->b->node.at[id];
    PUT(e, "%s_set(", n->type == BT_I ? lane_type(e, BT_I) : T(e));
    put_arg(e, id, 0);
    PUT(e, ")");
}

static u32 level_of(u8 fn)
{
    return fn >= BF_LT && fn <= BF_NE     ? 1
           : fn == BF_ADD || fn == BF_SUB ? 2
           : fn == BF_MUL || fn == BF_DIV ? 3
           : fn == BF_NEG                 ? 4
                                          : 5;
}

static void put_rand(Gen *e, const BodyNode *n, bool vector)
{
    u32 site = (u32)hash_bytes(sym_str(e->g, n->name), strlen(sym_str(e->g, n->name)), 0);
    if (vector) {
        PUT(e, "%s_rand(", lane_type(e, BT_U));
    } else {
        PUT(e, "mgk_rand(");
    }
    PUT(e, "a->c->scalar.seed, a->site ^ 0x%08xu, (uint64_t)(", site);
    bool any = false;
    for (u32 i = 0; i < e->nrow; i++) {
        i64 s = loop_rand_stride(e, n->dims, e->row[i].last);
        if (s) {
            PUT(e, "%s%s * %lld", any ? " + " : "", row_name(e, i), (long long)s);
            any = true;
        }
    }
    if (loop_rand_sample(e, n)) {
        PUT(e, "%sa->c->scalar.sample * %lld", any ? " + " : "", (long long)loop_rand_sample(e, n));
        any = true;
    }
    if (loop_has_trip(e)) {
        PUT(e, "%s(int64_t)a->trip * %lld", any ? " + " : "",
            (long long)loop_rand_elems(e, n->dims));
        any = true;
    }
    PUT(e, "%s), (uint32_t)a->c->scalar.step, %u)",
        vector ? (any ? " + i" : "i")
        : any  ? ""
               : "0",
        n->port);
}

static void put_index(Gen *e, const BodyNode *n, bool vector)
{
    bool batch = false;
    for (u32 i = 0; i < e->b->ndim; i++) {
        batch =
            batch || ((n->over & (1u << i)) && strcmp(sym_str(e->g, e->b->dim[i].name), "b") == 0);
    }
    const char *base = batch ? "a->c->scalar.sample + " : "";
    if (vector) {
        PUT(e, "%s_iota((%s)(%si))", lane_type(e, BT_I), number_type(e, BT_I), base);
        return;
    }
    u32 k = 0;
    while (k < e->nrow && !(e->row[k].mask & n->over)) {
        k++;
    }
    if (k == e->nrow) {
        PUT(e, "(%s)(%s0)", number_type(e, BT_I), base); /* a dim of one element */
    } else {
        PUT(e, "(%s)(%s%s)", number_type(e, BT_I), base, row_name(e, k));
    }
}

/* A load; for row numbers through the conversions of one number. */
static void put_load(Gen *e, bool out, u32 k, bool vector, u8 type)
{
    const BodyPort *p = loop_port(e, out, k);
    const char *s = sym_str(e->g, p->name);
    if (!vector) {
        bool half = p->dtype == DT_BF16;
        PUT(e,
            half                                      ? "bf16_to_f32(*%s)"
            : p->dtype == (e->wide ? DT_F64 : DT_F32) ? "*%s"
                                                      : "(%s)*%s",
            half || p->dtype == (e->wide ? DT_F64 : DT_F32) ? s : number_type(e, type), s);
        return;
    }
    i64 step = inner_stride(e, out, k);
    PUT(e, "%s_ld%s", lane_type(e, type), suffix(e, p->dtype));
    if (step == 1) {
        PUT(e, e->tail ? "_n(%s + i, %lld)" : "(%s + i)", s, (long long)e->tail);
    } else {
        PUT(e, "_s(%s + i * %lld, %lld, %lld)", s, (long long)step, (long long)step,
            (long long)(e->tail ? e->tail : lanes(e)));
    }
}

static void put_call(Gen *e, u32 id, bool vector)
{
    const BodyNode *n = &e->b->node.at[id];
    const char *one = vector ? "" : "1";
    if (n->fn == BF_ROUND && n->to == DT_F32 && !e->wide) {
        put_arg(e, n->arg[0], 0);
        return;
    }
    if (n->fn == BF_TO_F && !vector) {
        PUT(e, "(%s)", number_type(e, BT_F));
        put_arg(e, n->arg[0], 5);
        return;
    }
    if (n->fn == BF_TO_I && !vector) {
        PUT(e, "(%s)", number_type(e, BT_I));
        put_arg(e, n->arg[0], 5);
        return;
    }
    const char *f = n->fn == BF_TO_F ? sym_str(e->g, sym_fmt(e->g, "of_%s", lane_type(e, BT_I)))
                    : n->fn == BF_ROUND && n->to == DT_F32 ? "round_f32"
                                                           : body_fn_name(n->fn);
    if (n->fn == BF_TO_I) {
        PUT(e, "%s_of_%s(", lane_type(e, BT_I), T(e));
    } else {
        PUT(e, "%s_%s%s(", T(e), f, one);
    }
    for (u32 i = 0; i < n->narg; i++) {
        PUT(e, "%s", i ? ", " : "");
        if (vector && e->b->node.at[n->arg[i]].type != BT_U) {
            put_vector(e, n->arg[i]);
        } else {
            put_arg(e, n->arg[i], 0);
        }
    }
    PUT(e, ")");
}

static void put_where(Gen *e, const BodyNode *n, bool vector)
{
    bool mask = loop_is_vec(e, n->arg[0]);
    if (!vector) {
        PUT(e, "(");
        put_arg(e, n->arg[0], 1);
        PUT(e, " ? ");
    } else {
        PUT(e, mask ? "%s_sel(" : "%s_sel(%s_set(-(", lane_type(e, n->type), lane_type(e, BT_I));
        put_arg(e, n->arg[0], 0);
        PUT(e, mask ? ", " : ")), ");
    }
    for (u32 k = 1; k < 3; k++) {
        if (vector) {
            put_vector(e, n->arg[k]);
        } else {
            put_arg(e, n->arg[k], 2);
        }
        PUT(e, k == 1 ? (vector ? ", " : " : ") : ")");
    }
}

static void put_node(Gen *e, u32 id, u32 level)
{
    const BodyNode *n = &e->b->node.at[id];
    bool vector = loop_is_vec(e, id);
    u32 own = level_of(n->fn);
    if (n->fn == BF_INPUT) {
        put_load(e, false, n->port, vector, n->type);
    } else if (n->fn == BF_INDEX) {
        put_index(e, n, vector);
    } else if (n->fn == BF_RAND) {
        put_rand(e, n, vector);
    } else if (n->fn == BF_SCALAR) {
        PUT(e, "(%s)a->c->scalar.%s", number_type(e, BT_F), sym_str(e->g, n->name));
    } else if (n->fn == BF_WHERE) {
        put_where(e, n, vector);
    } else if (own == 5) {
        put_call(e, id, vector);
    } else {
        PUT(e, "%s", own < level ? "(" : "");
        if (n->narg == 1) {
            PUT(e, "-");
            put_arg(e, n->arg[0], 5);
        } else {
            put_arg(e, n->arg[0], own);
            PUT(e, " %s ", n->fn == BF_NE ? "!=" : body_fn_name(n->fn));
            put_arg(e, n->arg[1], own + 1);
        }
        PUT(e, "%s", own < level ? ")" : "");
    }
}

static void put_arg(Gen *e, u32 id, u32 level)
{
    const BodyNode *n = &e->b->node.at[id];
    if (n->fn == BF_CONST) {
        bool negative = n->num < 0 && level > 1;
        PUT(e, "%s", negative ? "(" : "");
        put_const(e, n);
        PUT(e, "%s", negative ? ")" : "");
    } else if (inlined(e, id)) {
        put_node(e, id, level);
    } else {
        PUT(e, "%s", sym_str(e->g, e->id[id]));
    }
}

/* ---- row numbers ----------------------------------------------------------------------------- */

static void number_print(Gen *e, u32 id)
{
    const BodyNode *n = &e->b->node.at[id];
    if (loop_is_vec(e, id) || e->done[id] || n->fn == BF_CONST || body_reduces(n->fn) ||
        n->fn == BF_GROUP) {
        return;
    }
    for (u32 k = 0; k < n->narg; k++) {
        number_print(e, n->arg[k]);
    }
    e->done[id] = true;
    if (!inlined(e, id)) {
        PUT(e, "%sconst %s %s = ", e->pad, number_type(e, n->type), sym_str(e->g, e->id[id]));
        put_node(e, id, 0);
        PUT(e, ";\n");
    }
}

static void mark(Gen *e, u32 id)
{
    const BodyNode *n = &e->b->node.at[id];
    if (e->need[id]) {
        return;
    }
    e->need[id] = true;
    u32 o = e->stored[id];
    if (loop_is_vec(e, id) && o && e->out[o - 1].sweep < e->sweep) {
        return; /* loaded again from its result */
    }
    for (u32 k = 0; loop_is_vec(e, id) && k < n->narg; k++) {
        mark(e, n->arg[k]);
    }
}

/* Does a statement ask for the segment of a flat arena? */
static bool has_group(const Gen *e)
{
    for (u32 i = 1; i < e->b->node.n; i++) {
        if (e->b->node.at[i].fn == BF_GROUP) {
            return true;
        }
    }
    return false;
}

/* ---- one sweep ------------------------------------------------------------------------------- */

static bool sums_here(const Gen *e, u32 k)
{
    const OutInfo *o = &e->out[k];
    return o->kind != OUT_PLAIN && o->vec && e->level[e->b->out.at[k].node] == e->sweep;
}

static bool stores_here(const Gen *e, u32 k)
{
    return !loop_is_partial(e->b, k) && e->out[k].kind == OUT_PLAIN && e->out[k].vec &&
           e->out[k].sweep == e->sweep;
}

static bool folds_here(const Gen *e, u32 id)
{
    const BodyNode *n = &e->b->node.at[id];
    return body_reduces(n->fn) && e->level[id] == e->sweep + 1;
}

static bool sweep_marks(Gen *e)
{
    bool any = false;
    memset(e->need, 0, e->b->node.n * sizeof *e->need);
    for (u32 i = 1; i < e->b->node.n; i++) {
        if (folds_here(e, i)) {
            mark(e, e->b->node.at[i].arg[0]);
            any = true;
        }
    }
    for (u32 k = 0; k < e->b->out.n; k++) {
        if (!loop_is_partial(e->b, k) && (stores_here(e, k) || sums_here(e, k))) {
            mark(e, e->b->out.at[k].node);
            any = true;
        }
    }
    return any;
}

/* A vector with zeros (or the like) in the lanes beyond the row. */
static void put_masked(Gen *e, u32 id, const char *fill)
{
    if (!e->tail) {
        put_vector(e, id);
        return;
    }
    PUT(e, "%s_sel(%s_first(%lld), ", T(e), lane_type(e, BT_I), (long long)e->tail);
    put_vector(e, id);
    PUT(e, ", %s_set(%s))", T(e), fill);
}

static void fold_print(Gen *e, u32 id)
{
    const BodyNode *n = &e->b->node.at[id];
    const char *acc = sym_str(e->g, e->id[id]);
    if (n->fn == BF_SUM) {
        PUT(e, "%s%s_v += ", e->pad, acc);
        put_masked(e, n->arg[0], "0");
    } else {
        bool max = n->fn == BF_ROWMAX;
        PUT(e, "%s%s_v = %s_%s(%s_v, ", e->pad, acc, T(e), max ? "max" : "min", acc);
        put_masked(e, n->arg[0], max ? "-__builtin_inff()" : "__builtin_inff()");
        PUT(e, ")");
    }
    PUT(e, ";\n");
}

static void put_store(Gen *e, u32 k, const char *target)
{
    const BodyPort *p = &e->b->out.at[k];
    i64 step = inner_stride(e, true, k);
    u8 type = e->b->node.at[p->node].type;
    PUT(e, "%s%s_st%s", e->pad, lane_type(e, type), suffix(e, p->dtype));
    if (step == 1) {
        PUT(e, "%s(%s + i, ", e->tail ? "_n" : "", target);
    } else {
        PUT(e, "_s(%s + i * %lld, ", target, (long long)step);
    }
    if (e->out[k].adds || e->out[k].kind == OUT_SOME) {
        /* The first of the summed rows replaces what is there, unless the result adds. */
        PUT(e, "(%s ? ",
            !e->out[k].adds              ? "seq"
            : e->out[k].kind == OUT_SOME ? "(a->beta || seq)"
                                         : "a->beta");
        put_load(e, true, k, true, type);
        PUT(e, " : %s_set(0)) + ", T(e));
        put_arg(e, p->node, 3);
    } else {
        put_vector(e, p->node);
    }
    if (step != 1) {
        PUT(e, ", %lld, %lld", (long long)step, (long long)(e->tail ? e->tail : lanes(e)));
    } else if (e->tail) {
        PUT(e, ", %lld", (long long)e->tail);
    }
    PUT(e, ");\n");
}

static void sum_print(Gen *e, u32 k)
{
    const BodyPort *p = &e->b->out.at[k];
    const char *s = sym_str(e->g, p->name);
    if (e->out[k].kind == OUT_SOME) {
        put_store(e, k, s);
        return;
    }
    if (e->out[k].kind == OUT_TOTAL) {
        PUT(e, e->wide ? "%s%s_v += " : "%s%s_v += f64_widen_sum(", e->pad, s);
        put_masked(e, p->node, "0");
        PUT(e, e->wide ? ";\n" : ");\n");
        return;
    }
    const char *q = sym_str(e->g, e->b->out.at[e->out[k].part].name);
    PUT(e,
        e->tail ? "%s%s_st_n(%s + i, %s_ld_n(%s + i, %lld) + " : "%s%s_st(%s + i, %s_ld(%s + i) + ",
        e->pad, T(e), q, T(e), q, (long long)e->tail);
    put_arg(e, p->node, 3);
    if (e->tail) {
        PUT(e, ", %lld", (long long)e->tail);
    }
    PUT(e, ");\n");
}

static void vector_print(Gen *e)
{
    for (u32 i = 1; i < e->b->node.n; i++) {
        if (!e->need[i] || !loop_is_vec(e, i) || inlined(e, i) || e->b->node.at[i].fn == BF_GROUP) {
            continue;
        }
        u32 o = e->stored[i];
        PUT(e, "%sconst %sv %s = ", e->pad, lane_type(e, e->b->node.at[i].type),
            sym_str(e->g, e->id[i]));
        if (o && e->out[o - 1].sweep < e->sweep) {
            put_load(e, true, o - 1, true, e->b->node.at[i].type);
        } else {
            put_node(e, i, 0);
        }
        PUT(e, ";\n");
    }
    for (u32 i = 1; i < e->b->node.n; i++) {
        if (folds_here(e, i)) {
            fold_print(e, i);
        }
    }
    for (u32 k = 0; k < e->b->out.n; k++) {
        if (loop_is_partial(e->b, k)) {
            continue;
        }
        if (stores_here(e, k)) {
            put_store(e, k, sym_str(e->g, e->b->out.at[k].name));
        } else if (sums_here(e, k)) {
            sum_print(e, k);
        }
    }
}

/* The vector loop of a sweep: whole vectors, then the rest. Its range is the row, or the part of a
 * flat map. */
static void sweep_loop(Gen *e)
{
    i64 rest = e->n % lanes(e);
    const char *pad = e->pad, *in = sym_str(e->g, sym_fmt(e->g, "%s    ", pad));
    if (e->n < lanes(e)) {
        PUT(e, "%s{\n", pad);
        PUT(e, "%sconst int64_t i = 0;\n", in);
    } else if (e->flat) {
        PUT(e, "%sfor (; i + %d <= %s; i += %d) {\n", pad, lanes(e), has_group(e) ? "end" : "to",
            lanes(e));
    } else {
        PUT(e, "%sfor (int64_t i = 0; i < %lld; i += %d) {\n", pad, (long long)(e->n - rest),
            lanes(e));
    }
    e->pad = in;
    e->tail = e->n < lanes(e) ? e->n : 0;
    vector_print(e);
    PUT(e, "%s}\n", pad);
    if (rest && e->n >= lanes(e)) {
        e->tail = rest;
        if (e->flat) {
            PUT(e, "%sif (i < %s) {\n", pad, has_group(e) ? "end" : "to");
        } else {
            PUT(e, "%s{\n%sconst int64_t i = %lld;\n", pad, in, (long long)(e->n - rest));
        }
        vector_print(e);
        PUT(e, "%s}\n", pad);
    }
    e->tail = 0;
    e->pad = pad;
}

/* ---- segments of a flat arena ---------------------------------------------------------------- */

/* Where the value of group(wd) changes: 1 in tensors that decay, 0 in the others. Tensors start at
 * multiples of 64 elements, so that a vector has one value. */
static void segments_print(Gen *e)
{
    const Graph *g = e->g;
    const Flat *f = NULL;
    for (u32 i = 1; i < g->flat.n && !f; i++) {
        f = g->flat.at[i].kind == VAR_WEIGHT && (i64)g->flat.at[i].elems == e->n ? &g->flat.at[i]
                                                                                 : NULL;
    }
    if (!f || !e->flat) {
        fail(e->g, e->nd->loc, E_LOOP, "%s: group() stands in a map over a flat arena only",
             sym_str(g, e->nd->path));
    }
    Text end = {0}, value = {0};
    for (u32 i = 0; i < f->var.n; i++) {
        const Var *v = &g->var.at[f->var.at[i]];
        bool decays = strcmp(sym_str(g, v->group), "decay") == 0, last = i + 1 == f->var.n;
        const Var *w = last ? NULL : &g->var.at[f->var.at[i + 1]];
        assert(v->elem % 64 == 0);
        if (w && (strcmp(sym_str(g, w->group), "decay") == 0) == decays) {
            continue;
        }
        text_fmt(g->arena, &end, "%s%lld", end.n ? ", " : "", (long long)(w ? (i64)w->elem : e->n));
        text_fmt(g->arena, &value, "%s%d", value.n ? ", " : "", decays);
    }
    PUT(e, "static const int64_t %s_end[] = {%s};\n", e->name, text_str(g->arena, &end));
    PUT(e, "static const %s %s_decay[] = {%s};\n\n", number_type(e, BT_F), e->name,
        text_str(g->arena, &value));
}

/* ---- worker ---------------------------------------------------------------------------------- */

static bool has_site(const Gen *e)
{
    return body_has_rand(e->b);
}

static bool has_beta(const Gen *e)
{
    for (u32 k = 0; k < e->b->out.n; k++) {
        if (e->out[k].adds) {
            return true;
        }
    }
    return false;
}

static void params_print(Gen *e, const char *sep, bool end)
{
    for (u32 i = 0; i < e->b->out.n + e->b->in.n; i++) {
        bool out = i < e->b->out.n;
        const BodyPort *p = loop_port(e, out, out ? i : i - e->b->out.n);
        PUT(e, "%s%s%s *%s", i || !end ? sep : "", out ? "" : "const ", loop_ctype(p->dtype),
            sym_str(e->g, p->name));
        PUT(e, "%s", end ? ";" : "");
    }
}

static void args_print(Gen *e)
{
    PUT(e, "typedef struct {\n    mg_ctx *c;");
    for (u32 i = 0; i < e->b->out.n + e->b->in.n; i++) {
        bool out = i < e->b->out.n;
        const BodyPort *p = loop_port(e, out, out ? i : i - e->b->out.n);
        PUT(e, "\n    %s%s *%s;", out ? "" : "const ", loop_ctype(p->dtype),
            sym_str(e->g, p->name));
    }
    PUT(e, "%s%s\n} %s_arg;\n\n", has_beta(e) ? "\n    int beta;" : "",
        has_site(e)
            ? loop_has_trip(e) ? "\n    uint32_t site;\n    int trip;" : "\n    uint32_t site;"
            : "",
        e->name);
}

/* Row indices r0, r1 ... from one counter, innermost first. */
static void indices_print(Gen *e, bool seq)
{
    u32 first = e->nrow, count = 0;
    for (u32 i = 0; i < e->nrow; i++) {
        if (e->row[i].seq == seq) {
            first = i < first ? i : first;
            count++;
        }
    }
    const char *from = seq ? "seq" : "row";
    i64 below = 1;
    for (u32 i = first + count; count > 1 && i-- > first;) {
        PUT(e, "%sconst int64_t r%u = ", e->pad, i);
        if (i == first) {
            PUT(e, "%s / %lld;\n", from, (long long)below);
        } else if (below == 1) {
            PUT(e, "%s %% %lld;\n", from, (long long)e->row[i].size);
        } else {
            PUT(e, "%s / %lld %% %lld;\n", from, (long long)below, (long long)e->row[i].size);
        }
        below *= e->row[i].size;
    }
}

static bool index_used(const Gen *e, u32 i)
{
    for (u32 io = 0; io < 2; io++) {
        for (u32 k = 0; k < (io ? e->b->out.n : e->b->in.n); k++) {
            if (!(io && loop_is_partial(e->b, k)) && loop_stride(e, io, k, e->row[i].last)) {
                return true;
            }
        }
    }
    for (u32 k = 1; k < e->b->node.n; k++) {
        const BodyNode *n = &e->b->node.at[k];
        if ((n->fn == BF_RAND || n->fn == BF_INDEX) && (n->dims & e->row[i].mask)) {
            return true;
        }
    }
    return false;
}

static void pointers_print(Gen *e, bool rows)
{
    for (u32 i = 0; i < e->b->out.n + e->b->in.n; i++) {
        bool out = i < e->b->out.n;
        u32 k = out ? i : i - e->b->out.n;
        const BodyPort *p = loop_port(e, out, k);
        if (out && (loop_is_partial(e->b, k) || e->out[k].kind == OUT_COLUMNS ||
                    e->out[k].kind == OUT_TOTAL)) {
            continue;
        }
        if (has_offset(e, out, k) == rows && p->node) {
            const char *s = sym_str(e->g, p->name);
            PUT(e, "%s%s%s *%s = a->%s", e->pad, out ? "" : "const ", loop_ctype(p->dtype), s, s);
            put_offset(e, out, k);
            PUT(e, ";\n");
        }
    }
}

/* Is what a number of the row is stored as the type it is computed in? */
static bool same_type(const Gen *e, const BodyPort *p)
{
    return !strcmp(loop_ctype(p->dtype), number_type(e, e->b->node.at[p->node].type));
}

static void numbers_store(Gen *e)
{
    for (u32 k = 0; k < e->b->out.n; k++) {
        const BodyPort *p = &e->b->out.at[k];
        OutInfo *o = &e->out[k];
        if (loop_is_partial(e->b, k) || o->vec) {
            continue;
        }
        number_print(e, p->node);
        const char *s = sym_str(e->g, p->name);
        if (o->kind == OUT_TOTAL) {
            PUT(e, "%s%s_s += ", e->pad, s);
        } else {
            PUT(e, "%s*%s = ", e->pad, s);
            if (o->adds || o->kind == OUT_SOME) {
                PUT(e, "(%s ? *%s : 0) + ",
                    !o->adds              ? "seq"
                    : o->kind == OUT_SOME ? "(a->beta || seq)"
                                          : "a->beta",
                    s);
                assert(p->dtype != DT_BF16 && "sums are f32 or f64");
            }
        }
        bool half = p->dtype == DT_BF16 && o->kind != OUT_TOTAL;
        bool plain = o->kind == OUT_TOTAL || same_type(e, p);
        if (half) {
            PUT(e, "bf16_of_%s(", T(e));
        } else if (!plain) {
            PUT(e, "(%s)(", loop_ctype(p->dtype));
        }
        put_arg(e, p->node, 0);
        PUT(e, "%s;\n", plain ? "" : ")");
    }
}

static void fold_start(Gen *e)
{
    for (u32 i = 1; i < e->b->node.n; i++) {
        if (folds_here(e, i)) {
            u8 fn = e->b->node.at[i].fn;
            PUT(e, "%s%sv %s_v = %s_set(%s);\n", e->pad, T(e), sym_str(e->g, e->id[i]), T(e),
                fn == BF_SUM      ? "0"
                : fn == BF_ROWMAX ? "-__builtin_inff()"
                                  : "__builtin_inff()");
        }
    }
}

static void fold_end(Gen *e)
{
    for (u32 i = 1; i < e->b->node.n; i++) {
        if (folds_here(e, i)) {
            u8 fn = e->b->node.at[i].fn;
            PUT(e, "%sconst %s %s = %s_%s(%s_v);\n", e->pad, number_type(e, BT_F),
                sym_str(e->g, e->id[i]), T(e),
                fn == BF_SUM      ? "sum"
                : fn == BF_ROWMAX ? "hmax"
                                  : "hmin",
                sym_str(e->g, e->id[i]));
        }
    }
}

/* Numbers that the vectors of this sweep and of the next row numbers need. */
static void numbers_before(Gen *e)
{
    for (u32 i = 1; i < e->b->node.n; i++) {
        if (!loop_is_vec(e, i) && e->level[i] <= e->sweep && e->need[i]) {
            number_print(e, i);
        }
    }
}

static void pad_print(Gen *e)
{
    for (u32 k = 0; k < e->b->out.n; k++) {
        const BodyPort *p = &e->b->out.at[k];
        if (loop_is_partial(e->b, k) || e->out[k].kind != OUT_PLAIN || !e->out[k].vec || !p->rank) {
            continue;
        }
        u32 dim = e->b->dim[p->axis[p->rank - 1]].dim;
        i64 size = e->g->dim.at[dim].size, mem = dim_mem(e->g, dim);
        bool alone = e->inner == 1u << p->axis[p->rank - 1];
        if (mem > size && alone && !e->out[k].adds) {
            PUT(e,
                "%sfor (int64_t i = %lld; i < %lld; i++)\n%s    %s[i] = 0; /* padding stays zero "
                "*/\n",
                e->pad, (long long)size, (long long)mem, e->pad, sym_str(e->g, p->name));
        }
    }
}

static void row_print(Gen *e)
{
    u32 last = 0;
    for (u32 i = 1; i < e->b->node.n; i++) {
        last = e->level[i] > last ? e->level[i] : last;
    }
    for (e->sweep = 0; e->inner && e->sweep <= last; e->sweep++) {
        if (!sweep_marks(e)) {
            continue;
        }
        numbers_before(e);
        fold_start(e);
        sweep_loop(e);
        fold_end(e);
    }
    numbers_store(e);
    pad_print(e);
}

static void partials_start(Gen *e)
{
    for (u32 k = 0; k < e->b->out.n; k++) {
        const char *s = sym_str(e->g, e->b->out.at[k].name);
        if (loop_is_partial(e->b, k)) {
            continue;
        }
        if (e->out[k].kind == OUT_TOTAL) {
            PUT(e, e->out[k].vec ? "%sf64v %s_v = f64_set(0);\n" : "%sdouble %s_s = 0;\n", e->pad,
                s);
        } else if (e->out[k].kind == OUT_COLUMNS) {
            const char *q = sym_str(e->g, e->b->out.at[e->out[k].part].name);
            PUT(e, "%s%s *%s = a->%s + part * %lld;\n", e->pad, number_type(e, BT_F), q, q,
                (long long)(e->out[k].vec ? e->n : 1));
            PUT(e, "%sfor (int64_t i = 0; i < %lld; i++)\n%s    %s[i] = 0;\n", e->pad,
                (long long)(e->out[k].vec ? e->n : 1), e->pad, q);
        }
    }
}

static void partials_end(Gen *e)
{
    for (u32 k = 0; k < e->b->out.n; k++) {
        if (!loop_is_partial(e->b, k) && e->out[k].kind == OUT_TOTAL) {
            const char *s = sym_str(e->g, e->b->out.at[k].name);
            const char *q = sym_str(e->g, e->b->out.at[e->out[k].part].name);
            PUT(e, e->out[k].vec ? "%sa->%s[part] = f64_sum(%s_v);\n" : "%sa->%s[part] = %s_s;\n",
                e->pad, q, s);
        }
    }
}

static void flat_print(Gen *e)
{
    i64 l = lanes(e) > 16 ? lanes(e) : 16, blocks = (e->n + l - 1) / l;
    bool group = has_group(e);
    if (e->parts == 1) {
        PUT(e, "    (void)part;\n    const int64_t to = %lld;\n    int64_t i = 0;\n",
            (long long)e->n);
    } else if (e->n % (e->parts * l) == 0) {
        PUT(e, "    int64_t i = part * INT64_C(%lld);\n    const int64_t to = i + %lld;\n",
            (long long)(e->n / e->parts), (long long)(e->n / e->parts));
    } else {
        PUT(e,
            "    const int64_t to = part == %lld ? %lld : (part + 1) * INT64_C(%lld) / %lld * "
            "%lld;\n",
            (long long)(e->parts - 1), (long long)e->n, (long long)blocks, (long long)e->parts,
            (long long)l);
        PUT(e, "    int64_t i = part * INT64_C(%lld) / %lld * %lld;\n", (long long)blocks,
            (long long)e->parts, (long long)l);
    }
    e->sweep = 0;
    sweep_marks(e);
    pointers_print(e, false);
    numbers_before(e);
    if (group) {
        PUT(e,
            "    int seg = 0;\n    while (i < to) {\n        while (%s_end[seg] <= i)\n            "
            "seg++;\n",
            e->name);
        PUT(e, "        const int64_t end = %s_end[seg] < to ? %s_end[seg] : to;\n", e->name,
            e->name);
        for (u32 i = 1; i < e->b->node.n; i++) {
            if (e->b->node.at[i].fn == BF_GROUP) {
                PUT(e, "        const %sv %s = %s_set(%s_decay[seg]);\n", T(e),
                    sym_str(e->g, e->id[i]), T(e), e->name);
            }
        }
        e->pad = "        ";
        sweep_loop(e);
        e->pad = "    ";
        PUT(e, "    }\n");
    } else {
        sweep_loop(e);
    }
}

static void rows_print(Gen *e)
{
    bool seq = e->seqs > 1;
    pointers_print(e, false);
    if (e->parts == 1) {
        PUT(e, "    (void)part;\n    for (int64_t row = 0; row < %lld; row++) {\n",
            (long long)e->rows);
    } else if (e->rows % e->parts == 0) {
        PUT(e, "    const int64_t from = part * INT64_C(%lld), to = from + %lld;\n",
            (long long)(e->rows / e->parts), (long long)(e->rows / e->parts));
        PUT(e, "    for (int64_t row = from; row < to; row++) {\n");
    } else {
        PUT(e,
            "    const int64_t from = part * INT64_C(%lld) / %lld, to = (part + 1) * INT64_C(%lld) "
            "/ %lld;\n",
            (long long)e->rows, (long long)e->parts, (long long)e->rows, (long long)e->parts);
        PUT(e, "    for (int64_t row = from; row < to; row++) {\n");
    }
    e->pad = "        ";
    indices_print(e, false);
    if (seq) {
        PUT(e, "        for (int64_t seq = 0; seq < %lld; seq++) {\n", (long long)e->seqs);
        e->pad = "            ";
        indices_print(e, true);
    }
    for (u32 i = 0; i < e->nrow; i++) {
        if (*row_name(e, i) == 'r' && row_name(e, i)[1] != 'o' && !index_used(e, i)) {
            PUT(e, "%s(void)r%u;\n", e->pad, i);
        }
    }
    pointers_print(e, true);
    row_print(e);
    PUT(e, "%s    }\n", seq ? "        }\n" : "");
    e->pad = "    ";
}

/* Numbers of a flat map: its first part stores them. */
static void numbers_alone(Gen *e)
{
    for (u32 k = 0; k < e->b->out.n; k++) {
        if (!loop_is_partial(e->b, k) && !e->out[k].vec) {
            PUT(e, "    if (part == 0) {\n");
            e->pad = "        ";
            numbers_store(e);
            PUT(e, "    }\n");
            e->pad = "    ";
            return;
        }
    }
}

static bool flat_loop(const Gen *e)
{
    return e->flat && e->n >= lanes(e) && !loop_reduced(e->b);
}

static void worker_print(Gen *e)
{
    PUT(e, "static void %s_part(void *arg, int part)\n{\n    const %s_arg *a = arg;\n", e->name,
        e->name);
    e->pad = "    ";
    partials_start(e);
    if (flat_loop(e)) {
        flat_print(e);
        numbers_alone(e);
    } else if (e->flat) {
        e->flat = false; /* one row, or a few elements: the first part does it all */
        PUT(e, "    if (part == 0) {\n");
        e->pad = "        ";
        pointers_print(e, false);
        row_print(e);
        PUT(e, "    }\n");
        e->pad = "    ";
    } else {
        rows_print(e);
    }
    partials_end(e);
    PUT(e, "}\n\n");
}

/* ---- launcher -------------------------------------------------------------------------------- */

/* Adds the parts' lines in order into a column sum or a total. */
static void lines_print(Gen *e, u32 k)
{
    const BodyPort *p = &e->b->out.at[k];
    const char *s = sym_str(e->g, p->name), *q = sym_str(e->g, e->b->out.at[e->out[k].part].name);
    bool half = p->dtype == DT_BF16;
    if (e->out[k].kind == OUT_TOTAL) {
        PUT(e, "    double %s_s = 0;\n    for (int p = 0; p < %lld; p++)\n        %s_s += %s[p];\n",
            s, (long long)e->parts, s, q);
        PUT(e,
            half             ? "    *%s = bf16_of_f64(%s_s);\n"
            : e->out[k].adds ? "    *%s = (%s)((beta ? *%s : 0) + %s_s);\n"
                             : "    *%s = (%s)%s_s;\n",
            s, half ? s : loop_ctype(p->dtype), s, s);
        return;
    }
    i64 n = e->out[k].vec ? e->n : 1, step = e->out[k].vec ? inner_stride(e, true, k) : 1;
    PUT(e, "    for (int64_t i = 0; i < %lld; i++) {\n        %s v = %s[i];\n", (long long)n,
        number_type(e, BT_F), q);
    PUT(e, "        for (int p = 1; p < %lld; p++)\n            v += %s[p * INT64_C(%lld) + i];\n",
        (long long)e->parts, q, (long long)n);
    const char *at = step == 1 ? "i" : sym_str(e->g, sym_fmt(e->g, "i * %lld", (long long)step));
    if (half) {
        PUT(e, "        %s[%s] = bf16_of_%s(v);\n    }\n", s, at, T(e));
    } else if (e->out[k].adds && same_type(e, p)) {
        PUT(e, "        %s[%s] = (beta ? %s[%s] : 0) + v;\n    }\n", s, at, s, at);
    } else if (e->out[k].adds) {
        PUT(e, "        %s[%s] = (%s)((beta ? %s[%s] : 0) + v);\n    }\n", s, at,
            loop_ctype(p->dtype), s, at);
    } else if (same_type(e, p)) {
        PUT(e, "        %s[%s] = v;\n    }\n", s, at);
    } else {
        PUT(e, "        %s[%s] = (%s)v;\n    }\n", s, at, loop_ctype(p->dtype));
    }
}

static void launcher_print(Gen *e)
{
    Text *out = e->t, head = {0}, init = {0};
    u32 indent = (u32)strlen("MG_KERNEL void (") + (u32)strlen(e->name);
    e->t = &head;
    PUT(e, "MG_KERNEL void %s(mg_ctx *c", e->name);
    params_print(e, ", ", false);
    PUT(e, "%s%s%s)", has_beta(e) ? ", int beta" : "", has_site(e) ? ", uint32_t site" : "",
        loop_has_trip(e) ? ", int trip" : "");
    e->t = &init;
    PUT(e, "    %s_arg a = {c", e->name);
    for (u32 i = 0; i < e->b->out.n + e->b->in.n; i++) {
        bool last = i >= e->b->out.n;
        PUT(e, ", %s", sym_str(e->g, loop_port(e, !last, last ? i - e->b->out.n : i)->name));
    }
    PUT(e, "%s%s%s};", has_beta(e) ? ", beta" : "", has_site(e) ? ", site" : "",
        loop_has_trip(e) ? ", trip" : "");
    e->t = out;
    c_wrap_commas(e->g, e->t, text_str(e->g->arena, &head), indent < 60 ? indent : 8);
    PUT(e, "\n{\n");
    c_wrap_commas(e->g, e->t, text_str(e->g->arena, &init), 8);
    PUT(e, "\n");
    PUT(e, "    mg_par(c, %lld, %s_part, &a);\n", (long long)e->parts, e->name);
    for (u32 k = 0; k < e->b->out.n; k++) {
        if (!loop_is_partial(e->b, k) &&
            (e->out[k].kind == OUT_COLUMNS || e->out[k].kind == OUT_TOTAL)) {
            lines_print(e, k);
        }
    }
    PUT(e, "}\n");
}

void loopgen_node(Graph *g, u32 node, const char *name, Text *out)
{
    const Node *nd = &g->node.at[node];
    Text text = {0};
    Gen e = {.g = g, .node = node, .nd = nd, .name = name, .t = &text};
    loop_plan(&e);
    choose_names(&e);
    loop_comment(&e);
    args_print(&e);
    if (has_group(&e)) {
        segments_print(&e);
    }
    worker_print(&e);
    launcher_print(&e);
    c_wrap(g, text_str(g->arena, &text), out);
}
