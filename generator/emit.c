/* emit.c: the planned Graph as a folder of C.
 *
 * Decides every name, address and number, puts them into the snapshot (plain Lua tables) and lets
 * the templates print it. No template computes anything. Files are written only if their bytes
 * change. Nothing in them depends on the machine, the clock, the folder or the locale; text of a
 * spec reaches C only through c_name (identifiers), c_string (literals) and comment_safe.
 *
 * needs: a Graph after plan: every offset, every kernel instance.
 * gives: model.h model.c funcs.c products.c kernels.c rows.c main.c build.sh report.md lines.map,
 * and copies of the runtime and of the kernel files used, so that the folder builds with a C
 * compiler alone.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "emit_int.h"

/* ==== small texts ============================================================================= */

/* s as a C string literal: nothing in it can end the literal or form a trigraph. */
const char *c_string(Graph *g, const char *s)
{
    Text t = {0};
    text_put(g->arena, &t, "\"");
    for (; *s; s++) {
        u8 c = (u8)*s;
        if (c == '"' || c == '\\' || c == '?')
            text_fmt(g->arena, &t, "\\%c", c);
        else if (c < 32 || c > 126)
            text_fmt(g->arena, &t, "\\%03o", c);
        else
            text_fmt(g->arena, &t, "%c", c);
    }
    text_put(g->arena, &t, "\"");
    return text_str(g->arena, &t);
}

/* The shortest decimal that reads back to v; a C literal of type double. */
static const char *number(Graph *g, f64 v)
{
    if (isnan(v))
        return "NAN";
    if (isinf(v))
        return v > 0 ? "INFINITY" : "-INFINITY";
    char *s = NULL;
    for (int digits = 6; digits <= 17; digits++) {
        s = arena_fmt(g->arena, "%.*g", digits, v);
        if (strtod(s, NULL) == v)
            break;
    }
    return strpbrk(s, ".e") ? s : arena_fmt(g->arena, "%s.0", s);
}

static const char *hex(Graph *g, u64 v)
{
    return arena_fmt(g->arena, "0x%llx", (unsigned long long)v);
}

/* MG_F32 of f32. */
static const char *upper(Graph *g, const char *prefix, const char *s)
{
    char *t = arena_fmt(g->arena, "%s%s", prefix, s);
    for (char *p = t; *p; p++)
        *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
    return t;
}

/* Items as lines of C, each item followed by a comma, broken before column WIDTH. */
static void snap_wrapped(Graph *g, const char *key, const char *const *item, u32 n, u32 indent)
{
    snap_open(g, key);
    Text t = {0};
    for (u32 i = 0; i < n; i++) {
        if (t.n && t.n + strlen(item[i]) + 2 + indent > WIDTH) {
            snap_str(g, NULL, text_str(g->arena, &t));
            t = (Text){0};
        }
        text_fmt(g->arena, &t, "%s%s,", t.n ? " " : "", item[i]);
    }
    if (t.n)
        snap_str(g, NULL, text_str(g->arena, &t));
    snap_close(g);
}

/* ==== regions, saves, functions =============================================================== */

static const char *const region_name[REGION_COUNT] = {"PARAMS", "GRADS",   "STATE",
                                                      "SAVED",  "SCRATCH", "IO"};
static const char *const region_note[REGION_COUNT] = {
    "weights",
    "gradient accumulators",
    "optimizer state, tables, metrics",
    "what the backward reads of the forward",
    "values inside one function",
    "batch inputs, results, values between calls",
};

static void snap_regions(Graph *g)
{
    snap_open(g, "regions");
    for (u32 r = 0; r < REGION_COUNT; r++) {
        snap_open(g, NULL);
        snap_str(g, "name", region_name[r]);
        snap_str(g, "off", hex(g, g->region[r].off));
        snap_str(g, "bytes", hex(g, g->region[r].bytes));
        snap_str(g, "amount", amount(g, (f64)g->region[r].bytes, "B"));
        snap_str(g, "note", region_note[r]);
        snap_close(g);
    }
    snap_close(g);
}

static void snap_saves(Emit *e)
{
    Graph *g = e->g;
    snap_open(g, "saves");
    for (u32 i = 0; i < e->save.n; i++) {
        snap_open(g, NULL);
        snap_str(g, "name", sym_str(g, e->save.at[i].name));
        snap_str(g, "off", hex(g, e->save.at[i].off));
        snap_str(g, "note", e->save.at[i].note);
        snap_close(g);
    }
    snap_close(g);
}

static void snap_lines(Graph *g, const char *key, const Lines *lines)
{
    snap_open(g, key);
    for (u32 i = 0; i < lines->n; i++) {
        snap_open(g, NULL);
        snap_str(g, "text", lines->at[i].text);
        if (lines->at[i].note[0])
            snap_str(g, "note", lines->at[i].note);
        snap_int(g, "node", lines->at[i].node);
        snap_close(g);
    }
    snap_close(g);
}

static void snap_fields(Graph *g, const CFunc *cf)
{
    snap_open(g, "fields");
    for (u32 i = 0; i < cf->field.n; i++) {
        const Field *f = &cf->field.at[i];
        snap_open(g, NULL);
        snap_str(g, "text",
                 arena_fmt(g->arena, "%s %s;", f->kind == FIELD_LAYER ? "int32_t" : "uint64_t",
                           sym_str(g, f->name)));
        snap_str(g, "note", f->note);
        snap_close(g);
    }
    snap_close(g);
}

/* ==== calls =================================================================================== */

static u32 flat_find(const Graph *g, const char *name)
{
    for (u32 i = 1; i < g->flat.n; i++) {
        if (!strcmp(sym_str(g, g->flat.at[i].name), name))
            return i;
    }
    return 0;
}

static u32 var_find(const Graph *g, const char *path)
{
    for (u32 i = 1; i < g->var.n; i++) {
        if (!strcmp(sym_str(g, g->var.at[i].path), path))
            return i;
    }
    return 0;
}

u32 var_of_formal(Graph *g, const Call *call, Sym formal)
{
    const Func *f = &g->func.at[call->func];
    for (u32 i = 0; i < f->formal.n && i < call->bind.n; i++) {
        if (f->formal.at[i].name == formal && call->bind.at[i])
            return call->bind.at[i];
    }
    const char *name = sym_str(g, formal), *prefix = sym_str(g, call->prefix);
    if (*name != '/')
        return var_find(g, *prefix ? arena_fmt(g->arena, "%s.%s", prefix, name) : name);
    u32 var = var_find(g, name + 1);
    if (!var)
        var = var_find(g, name);
    u32 flat = var ? 0 : flat_find(g, name + 1);
    return flat ? FLAT_BIND | flat : var;
}

static u64 bind_off(const Graph *g, u32 bind)
{
    assert(bind && "every formal is bound to a Var or a flat arena");
    return bind & FLAT_BIND ? g->flat.at[bind & ~FLAT_BIND].off : g->var.at[bind].off;
}

/* The block of saves: a backward call's is that of its twin in the forward chain. */
static u64 saved_off(const Graph *g, const Call *call)
{
    if (!call->twin)
        return call->saved_off;
    for (u32 c = 1; c < g->chain.n; c++) {
        if (g->chain.at[c].role == ROLE_FWD)
            return g->chain.at[c].call.at[call->twin - 1].saved_off;
    }
    assert(0 && "a twin stands in the forward chain");
    return 0;
}

static const char *field_value(Graph *g, const Field *f, const Call *call)
{
    switch (f->kind) {
    case FIELD_IN:
        return hex(g, g->reg.at[call->in.at[f->index]].off);
    case FIELD_OUT:
        return hex(g, g->reg.at[call->out.at[f->index]].off);
    case FIELD_FORMAL:
        return hex(g, bind_off(g, var_of_formal(g, call, f->formal)));
    case FIELD_SAVED:
        return hex(g, saved_off(g, call));
    default:
        return arena_fmt(g->arena, "%d", call->layer);
    }
}

/* Rows of the table of calls of cf, in the order in which the chains make them. */
static u32 snap_calls(Graph *g, const CFunc *cf)
{
    u32 n = 0;
    snap_open(g, "calls");
    for (u32 c = 1; c < g->chain.n; c++) {
        const Chain *ch = &g->chain.at[c];
        for (u32 k = 0; k < ch->call.n; k++) {
            const Call *call = &ch->call.at[k];
            if (call->func != cf->func)
                continue;
            VEC(const char *) item = {0};
            for (u32 i = 0; i < cf->field.n; i++)
                vec_push(g->arena, &item, field_value(g, &cf->field.at[i], call));
            snap_open(g, NULL);
            const char *prefix = sym_str(g, call->prefix);
            snap_str(g, "note", comment_safe(g, *prefix ? prefix : sym_str(g, ch->name)));
            snap_wrapped(g, "lines", item.at, item.n, 22);
            snap_close(g);
            n++;
        }
    }
    snap_close(g);
    return n;
}

static void snap_funcs(Emit *e)
{
    Graph *g = e->g;
    snap_open(g, "funcs");
    for (u32 i = 0; i < e->func.n; i++) {
        const CFunc *cf = &e->func.at[i];
        snap_open(g, NULL);
        snap_str(g, "name", sym_str(g, cf->name));
        snap_str(g, "type", sym_str(g, cf->type));
        snap_str(g, "title", cf->title);
        snap_str(g, "what", cf->what);
        snap_str(g, "layers", cf->layers);
        snap_str(g, "loc", comment_safe(g, loc_text(g, cf->loc)));
        snap_str(g, "cost", cf->flops > 0 ? amount(g, cf->flops, "FLOP") : "");
        snap_fields(g, cf);
        snap_lines(g, "decls", &cf->decl);
        u64 column = 40;
        for (u32 k = 0; k < cf->decl.n; k++)
            column =
                strlen(cf->decl.at[k].text) >= column ? strlen(cf->decl.at[k].text) + 1 : column;
        snap_int(g, "column", (i64)column);
        snap_lines(g, "lines", &cf->line);
        snap_int(g, "ncalls", snap_calls(g, cf));
        VEC(const char *) head = {0};
        for (u32 k = 0; k < cf->field.n; k++)
            vec_push(g->arena, &head, sym_str(g, cf->field.at[k].name));
        snap_wrapped(g, "columns", head.at, head.n, 12);
        snap_close(g);
    }
    snap_close(g);
}

/* One chain as a function: a run of calls of one Func is a loop over rows of its table. */
static void snap_chain(Emit *e, const Chain *ch)
{
    Graph *g = e->g;
    snap_open(g, NULL);
    snap_str(g, "name", sym_str(g, ch->name));
    snap_open(g, "lines");
    for (u32 k = 0, run; k < ch->call.n; k += run) {
        const Call *call = &ch->call.at[k];
        CFunc *cf = &e->func.at[e->cfunc[call->func] - 1];
        for (run = 1; k + run < ch->call.n && ch->call.at[k + run].func == call->func; run++) {
        }
        const char *name = sym_str(g, cf->name);
        if (run == 1) {
            snap_str(g, NULL, arena_fmt(g->arena, "%s(c, &%s_call[%u]);", name, name, cf->first));
        } else {
            snap_str(
                g, NULL,
                arena_fmt(g->arena, "for (int l = %u; l < %u; l++)", cf->first, cf->first + run));
            snap_str(g, NULL, arena_fmt(g->arena, "    %s(c, &%s_call[l]);", name, name));
        }
        cf->first += run;
    }
    snap_close(g);
    snap_close(g);
}

static void snap_chains(Emit *e)
{
    Graph *g = e->g;
    snap_open(g, "chains");
    for (u32 c = 1; c < g->chain.n; c++)
        snap_chain(e, &g->chain.at[c]);
    snap_close(g);
    static const char *const entry[] = {"fwd", "bwd", "upd", "eval", "logits"};
    snap_open(g, "entries");
    for (u32 i = 0; i < sizeof entry / sizeof *entry; i++) {
        bool there = false;
        for (u32 c = 1; c < g->chain.n; c++)
            there |= !strcmp(sym_str(g, g->chain.at[c].name), entry[i]);
        snap_open(g, NULL);
        snap_str(g, "name", entry[i]);
        snap_str(g, "value", there ? entry[i] : "NULL");
        snap_close(g);
    }
    snap_close(g);
}

/* ==== kernel instances ======================================================================== */

static void snap_prototypes(Emit *e)
{
    Graph *g = e->g;
    snap_open(g, "prototypes");
    for (u32 i = 1; i < g->inst.n; i++)
        snap_str(g, NULL, func_prototype(g, &g->inst.at[i]));
    snap_close(g);
}

/* One operand or result of a title, on a new line of the comment where it does not fit. */
static void put_shape(Graph *g, Text *t, u32 *line, u32 value)
{
    const char *shape = type_text(g, &g->value.at[value].type);
    bool fits = t->n - *line + strlen(shape) + 12 < WIDTH;
    text_put(g->arena, t, fits ? " " : "\n *  ");
    *line = fits ? *line : t->n - 4;
    text_put(g->arena, t, shape);
}

/* "[b=8 s=128 d=128] [d=128 f=384] -> [b=8 s=128 f=384]" on one line. */
static const char *inst_shapes(Graph *g, const Inst *inst)
{
    const Node *n = &g->node.at[inst->node];
    Text t = {0};
    for (u32 i = 0; i < n->nin; i++)
        text_fmt(g->arena, &t, "%s ", type_text(g, &g->value.at[g->arg.at[n->in + i]].type));
    text_put(g->arena, &t, "->");
    for (u32 i = 0; i < n->nout; i++)
        text_fmt(g->arena, &t, " %s", type_text(g, &g->value.at[n->out + i].type));
    if (is_op(g, inst->node, "accum") || is_op(g, inst->node, "write"))
        text_fmt(g->arena, &t, " %s",
                 type_text(g, &g->func.at[n->func].formal.at[n->formal - 1].type));
    return text_str(g->arena, &t);
}

/* What report.md says of an instance. */
static void snap_report(Graph *g, const Inst *inst)
{
    snap_str(g, "place", comment_safe(g, node_place(g, inst->node)));
    snap_str(g, "work", comment_safe(g, node_ops(g, inst->node)));
    snap_str(g, "shapes", comment_safe(g, inst_shapes(g, inst)));
}

/* "attn: matmul [b=8 s=128 d=128] [d=128 f=384] -> [b=8 s=128 f=384]" */
static const char *inst_title(Graph *g, const Inst *inst)
{
    const Node *n = &g->node.at[inst->node];
    Text t = {0};
    u32 line = 0;
    const char *path = sym_str(g, n->path);
    text_fmt(g->arena, &t, "%s%s%s", comment_safe(g, path), *path ? ": " : "",
             comment_safe(g, node_ops(g, inst->node)));
    for (u32 i = 0; i < n->nin; i++)
        put_shape(g, &t, &line, g->arg.at[n->in + i]);
    text_put(g->arena, &t, " ->");
    for (u32 i = 0; i < n->nout; i++)
        put_shape(g, &t, &line, n->out + i);
    return text_str(g->arena, &t);
}

static void snap_instance(Graph *g, const Inst *inst)
{
    const Kern *k = &g->kern.at[inst->kern];
    snap_open(g, NULL);
    snap_str(g, "title", inst_title(g, inst));
    snap_report(g, inst);
    snap_str(g, "loc", comment_safe(g, loc_text(g, g->node.at[inst->node].loc)));
    snap_str(g, "name", sym_str(g, inst->name));
    snap_str(g, "kernel", sym_str(g, k->name));
    const char *file = sym_str(g, k->file);
    snap_str(g, "file", strncmp(file, "kernels/", 8) ? file : file + 8);
    snap_open(g, "defines");
    for (u32 d = 0; d < inst->key.n; d++) {
        snap_open(g, NULL);
        snap_str(g, "key", sym_str(g, inst->key.at[d]));
        snap_str(g, "value", sym_str(g, inst->value.at[d]));
        snap_close(g);
    }
    snap_close(g);
    snap_int(g, "node", inst->node + 1);
    snap_close(g);
}

/* Instances of kernel files. Products of matrices stand in a file of their own: they are half of
 * what there is to compile, and two files compile side by side. */
static void snap_instances(Emit *e, const char *key, bool products)
{
    Graph *g = e->g;
    snap_open(g, key);
    for (u32 i = 1; i < g->inst.n; i++) {
        const Inst *inst = &g->inst.at[i];
        if (inst->kern && is_op(g, inst->node, "matmul") == products)
            snap_instance(g, inst);
    }
    snap_close(g);
}

/* Texts of generated kernels. */
static void snap_rows(Emit *e)
{
    Graph *g = e->g;
    snap_open(g, "rows");
    for (u32 i = 1; i < g->inst.n; i++) {
        if (g->inst.at[i].kern)
            continue;
        Text t = {0};
        u32 node = g->inst.at[i].node;
        loopgen_node(g, node, sym_str(g, g->inst.at[i].name), &t);
        const char *text = text_str(g->arena, &t);
        u64 n = strlen(text);
        while (n && text[n - 1] == '\n')
            n--;
        snap_open(g, NULL);
        snap_str(g, "text", arena_fmt(g->arena, "%.*s", (int)n, text));
        snap_str(g, "name", sym_str(g, g->inst.at[i].name));
        snap_report(g, &g->inst.at[i]);
        snap_int(g, "node", node + 1);
        snap_close(g);
    }
    snap_close(g);
}

/* ==== tables of the model ===================================================================== */

static const char *const var_kind[VAR_COUNT] = {"MG_WEIGHT", "MG_ACCUM",  "MG_MASTER",
                                                "MG_MOMENT", "MG_CACHE",  "MG_STAT",
                                                "MG_TABLE",  "MG_SCALAR", "MG_METRIC"};
static const char *const init_kind[] = {"MG_INIT_ZERO",   "MG_INIT_ONE",     "MG_INIT_CONST",
                                        "MG_INIT_NORMAL", "MG_INIT_UNIFORM", "MG_INIT_TABLE"};

static u64 logical_elems(const Graph *g, const Type *t)
{
    u64 n = 1;
    for (u32 i = 0; i < t->rank; i++)
        n *= (u64)g->dim.at[t->dim[i]].size;
    return n;
}

static const char *dim_list(Graph *g, const Type *t)
{
    Text s = {0};
    text_put(g->arena, &s, "{");
    for (u32 i = 0; i < t->rank; i++)
        text_fmt(g->arena, &s, "%s%lld", i ? ", " : "", (long long)g->dim.at[t->dim[i]].size);
    text_put(g->arena, &s, t->rank ? "}" : "0}");
    return text_str(g->arena, &s);
}

static const char *dim_names(Graph *g, const Type *t)
{
    Text s = {0};
    for (u32 i = 0; i < t->rank; i++)
        text_fmt(g->arena, &s, "%s%s", i ? " " : "", sym_str(g, g->dim.at[t->dim[i]].name));
    return text_str(g->arena, &s);
}

/* A table's filler, by its C name: one for each (table, type, attributes). */
static const char *table_call(Graph *g, const Init *in, u8 dtype)
{
    Text t = {0};
    const char *name = sym_str(g, in->table);
    text_fmt(g->arena, &t, "mg_%s(dst, dim, %s",
             sym_str(g, c_name(g, arena_fmt(g->arena, "table_%s", name))),
             upper(g, "MG_", dtype_name(dtype)));
    u32 line = 0; /* where the last line starts */
    for (u32 i = 0; i < in->nattr; i++) {
        const Attr *a = &g->attr.at[in->attr + i];
        assert((a->kind == AT_INT || a->kind == AT_NUM) && "a table is a function of numbers");
        const char *v = number(g, a->kind == AT_INT ? (f64)a->i : a->num);
        bool fits = t.n - line + strlen(v) + 4 < WIDTH - 4;
        text_put(g->arena, &t, fits ? ", " : ",\n");
        line = fits ? line : t.n;
        text_fmt(g->arena, &t, "%s%s", fits ? "" : "        ", v);
    }
    text_put(g->arena, &t, ");");
    return text_str(g->arena, &t);
}

typedef struct {
    VEC(const char *) call;
    VEC(Sym) name;
} Tables;

static const char *table_name(Emit *e, Tables *tables, const Init *in, u8 dtype)
{
    Graph *g = e->g;
    const char *call = table_call(g, in, dtype);
    for (u32 i = 0; i < tables->call.n; i++) {
        if (!strcmp(tables->call.at[i], call))
            return sym_str(g, tables->name.at[i]);
    }
    Sym name = name_unique(e, c_name(g, arena_fmt(g->arena, "fill_%s", sym_str(g, in->table))));
    vec_push(g->arena, &tables->call, call);
    vec_push(g->arena, &tables->name, name);
    return sym_str(g, name);
}

static void snap_var(Emit *e, Tables *tables, const Var *v)
{
    Graph *g = e->g;
    VEC(const char *) item = {0};
    Arena *a = g->arena;
    bool table = v->init.kind == INIT_TABLE;
    const char *path = sym_str(g, v->path); /* a metric's path is absolute: "/loss_sum" */
    vec_push(a, &item, c_string(g, path));
    vec_push(a, &item, var_kind[v->kind]);
    vec_push(a, &item, upper(g, "MG_", dtype_name(v->type.dtype)));
    vec_push(a, &item, init_kind[v->init.kind]);
    vec_push(a, &item, arena_fmt(a, "%d", v->type.rank));
    vec_push(a, &item, arena_fmt(a, ".saved = %d", v->saved));
    vec_push(a, &item, arena_fmt(a, ".decay = %d", !strcmp(sym_str(g, v->group), "decay")));
    vec_push(a, &item, arena_fmt(a, ".of = %d", (int)v->of - 1));
    vec_push(a, &item, arena_fmt(a, ".dim = %s", dim_list(g, &v->type)));
    vec_push(a, &item, arena_fmt(a, ".dims = %s", c_string(g, dim_names(g, &v->type))));
    vec_push(a, &item, arena_fmt(a, ".off = %s", hex(g, v->off)));
    vec_push(a, &item,
             arena_fmt(a, ".elems = %llu", (unsigned long long)logical_elems(g, &v->type)));
    vec_push(a, &item,
             arena_fmt(a, ".elems_mem = %llu", (unsigned long long)type_elems(g, &v->type)));
    if (v->init.a != 0)
        vec_push(a, &item, arena_fmt(a, ".a = %s", number(g, v->init.a)));
    if (v->init.b != 0)
        vec_push(a, &item, arena_fmt(a, ".b = %s", number(g, v->init.b)));
    if (table)
        vec_push(a, &item,
                 arena_fmt(a, ".table = %s", table_name(e, tables, &v->init, v->type.dtype)));
    snap_open(g, NULL);
    snap_wrapped(g, "lines", item.at, item.n, 8);
    snap_close(g);
}

static void snap_vars(Emit *e)
{
    Graph *g = e->g;
    Tables tables = {0};
    snap_open(g, "vars");
    for (u32 i = 1; i < g->var.n; i++)
        snap_var(e, &tables, &g->var.at[i]);
    snap_close(g);
    snap_open(g, "tables");
    for (u32 i = 0; i < tables.name.n; i++) {
        snap_open(g, NULL);
        snap_str(g, "name", sym_str(g, tables.name.at[i]));
        snap_str(g, "call", tables.call.at[i]);
        snap_close(g);
    }
    snap_close(g);
}

static void snap_io(Graph *g, u32 reg)
{
    const Reg *r = &g->reg.at[reg];
    snap_str(g, NULL,
             arena_fmt(g->arena, "{%s, %s, %d, %s, %s},", c_string(g, sym_str(g, r->name)),
                       upper(g, "MG_", dtype_name(r->type.dtype)), r->type.rank,
                       dim_list(g, &r->type), hex(g, r->off)));
}

/* Batch inputs, then what the chains keep for the host. */
static void snap_ios(Graph *g)
{
    bool *out = arena_alloc(g->arena, g->reg.n + 1);
    for (u32 c = 1; c < g->chain.n; c++) {
        const Chain *ch = &g->chain.at[c];
        for (u32 i = 0; i < ch->out.n && ch->role == ROLE_LOGITS; i++)
            out[ch->out.at[i]] = true;
    }
    snap_open(g, "ios");
    for (u32 i = 1; i < g->reg.n; i++) {
        if (g->reg.at[i].io || out[i])
            snap_io(g, i);
    }
    snap_close(g);
}

static void snap_fits(Graph *g)
{
    snap_open(g, "fits");
    for (u32 i = 0; i < g->fit.n; i++) {
        snap_open(g, NULL);
        snap_str(g, "change", c_string(g, sym_str(g, g->fit.at[i].change)));
        snap_str(g, "bytes", hex(g, g->fit.at[i].bytes));
        snap_close(g);
    }
    snap_close(g);
}

static i64 vocab_size(const Graph *g)
{
    for (u32 i = 1; i < g->dim.n; i++) {
        if (!strcmp(sym_str(g, g->dim.at[i].name), "v"))
            return g->dim.at[i].size;
    }
    return 0;
}

/* Of the program's text, whatever folder it is read from and written to. */
static const char *graph_hash(Graph *g)
{
    Text t = {0};
    Sym out = g->cfg.out_dir;
    g->cfg.out_dir = 0;
    text_print(g, &t);
    g->cfg.out_dir = out;
    const char *text = text_str(g->arena, &t), *path = sym_str(g, g->cfg.spec_file);
    const char *slash = strrchr(path, '/');
    u64 len = *path == '/' ? (u64)(slash - path) + 1 : 0, hash = 0;
    for (const char *at = len ? strstr(text, arena_fmt(g->arena, "%.*s", (int)len, path)) : NULL;
         at;) {
        hash = hash_bytes(text, (u64)(at - text), hash);
        text = at + len;
        at = strstr(text, arena_fmt(g->arena, "%.*s", (int)len, path));
    }
    return arena_fmt(g->arena, "%016llx", (unsigned long long)hash_bytes(text, strlen(text), hash));
}

static bool has_dtype(const Graph *g, u8 dtype)
{
    for (u32 i = 1; i < g->value.n; i++) {
        if (g->value.at[i].type.dtype == dtype)
            return true;
    }
    return false;
}

static void snap_model(Graph *g)
{
    snap_int(g, "bf16", has_dtype(g, DT_BF16));
    snap_str(g, "spec_name", comment_safe(g, sym_str(g, g->cfg.name)));
    snap_str(g, "name_literal", c_string(g, sym_str(g, g->cfg.name)));
    snap_str(g, "spec_file", comment_safe(g, file_text(g, g->cfg.spec_file)));
    snap_str(g, "version", MEGAGEN_VERSION);
    snap_str(g, "hash", graph_hash(g));
    snap_str(g, "target", "cpu");
    snap_str(g, "cpu", sym_str(g, g->cfg.cpu));
    snap_str(g, "arena", hex(g, g->arena_bytes));
    snap_int(g, "micro", g->cfg.micro);
    snap_int(g, "seq", g->cfg.seq);
    snap_int(g, "vocab", vocab_size(g));
    snap_str(g, "flops_token", number(g, cost_flops_token(g)));
    snap_str(g, "params", arena_fmt(g->arena, "%llu", (unsigned long long)cost_params(g)));
    Text t = {0};
    cost_report(g, &t);
    snap_str(g, "cost", text_str(g->arena, &t));
}

/* ==== files =================================================================================== */

static void make_dirs(Graph *g, const char *path)
{
    char *p = arena_fmt(g->arena, "%s", path);
    for (char *s = p + 1;; s++) {
        if (*s && *s != '/')
            continue;
        char end = *s;
        *s = 0;
        if (mkdir(p, 0777) && errno != EEXIST)
            fail(g, (Loc){0}, 793, "cannot make folder %s: %s", p, strerror(errno));
        *s = end;
        if (!end)
            return;
    }
}

static void write_file(Graph *g, const char *name, const char *data, u64 n)
{
    const char *path = arena_fmt(g->arena, "%s/%s", sym_str(g, g->cfg.out_dir), name);
    int err = file_write_changed(path, data, n);
    if (err < 0)
        fail(g, (Loc){0}, 793, "cannot write %s: %s", path, strerror(-err));
}

/* FILE:LINE, template line, spec position, module path, pass, Func; one line of the file a line. */
static void map_lines(Graph *g, Text *map, const char *file, const LineMap *lm)
{
    for (u32 i = 0; i < lm->n; i++) {
        text_fmt(g->arena, map, "%s:%u\ttemplates/%s.lt:%u", file, i + 1, file, lm->at[i].line);
        if (lm->at[i].node) {
            const Node *n = &g->node.at[lm->at[i].node - 1];
            text_fmt(g->arena, map, "\t%s\t%s\t%s\t%s", loc_text(g, n->loc),
                     comment_safe(g, sym_str(g, n->path)), sym_str(g, n->pass),
                     comment_safe(g, sym_str(g, g->func.at[n->func].name)));
        }
        text_put(g->arena, map, "\n");
    }
}

typedef VEC(const char *) Paths;

/* The file and what it includes, directly or not; each once. */
static void add_file(Graph *g, const char *path, Paths *out)
{
    for (u32 i = 0; i < out->n; i++) {
        if (!strcmp(out->at[i], path))
            return;
    }
    u64 n = 0;
    const char *text = kernel_read(g, path, &n);
    if (!text)
        return;
    vec_push(g->arena, out, path);
    const char *slash = strrchr(path, '/');
    for (const char *at = text; (at = strstr(at, "#include \""));) {
        at += 10;
        const char *end = strchr(at, '"');
        if (!end)
            break;
        int len = (int)(end - at);
        add_file(g, arena_fmt(g->arena, "%.*s/%.*s", (int)(slash - path), path, len, at), out);
        add_file(g, arena_fmt(g->arena, "kernels/%.*s", len, at), out);
        add_file(g, arena_fmt(g->arena, "runtime/%.*s", len, at), out);
        add_file(g, arena_fmt(g->arena, "build/%.*s", len, at), out); /* the system's xxhash.h */
    }
}

/* Parts of the runtime that need more than libc are not for the trainer. */
static bool needs_library(const char *text)
{
    static const char *const lib[] = {"<jansson.h>", "<zlib.h>", "<utf8proc.h>", "<pcre2.h>"};
    for (u32 i = 0; i < sizeof lib / sizeof *lib; i++) {
        if (strstr(text, lib[i]))
            return true;
    }
    return false;
}

static void runtime_files(Graph *g, Paths *out)
{
    const char **path = NULL;
    u32 n = asset_list(g->arena, "runtime", ".c", &path);
    for (u32 i = 0; i < n; i++) {
        u64 size = 0;
        if (!needs_library(asset_read(g->arena, path[i], &size)))
            add_file(g, path[i], out);
    }
}

static void snap_source(Graph *g, const char *file, const char *level)
{
    const char *slash = strrchr(file, '/') + 1;
    snap_open(g, NULL);
    snap_str(g, "file", file);
    snap_str(
        g, "object",
        arena_fmt(g->arena, "%.*s%s%s", (int)(strlen(slash) - 2), slash, *level ? "_" : "", level));
    if (*level)
        snap_str(g, "flags",
                 arena_fmt(g->arena, "-DMG_ISA=%s%s%s", level, *cpu_flags(level) ? " " : "",
                           cpu_flags(level)));
    snap_close(g);
}

/* The copied C files as build.sh lists them: the runtime, and micro kernels once for each level. */
static void snap_sources(Graph *g, const Paths *files)
{
    static const char *const level[] = {"generic", "avx2", "avx512"};
    for (u32 kernels = 0; kernels < 2; kernels++) {
        snap_open(g, kernels ? "micro_files" : "runtime_files");
        for (u32 i = 0; i < files->n; i++) {
            const char *file = files->at[i];
            u64 len = strlen(file);
            if (strcmp(file + len - 2, ".c") || (u32)(strncmp(file, "kernels/", 8) != 0) == kernels)
                continue;
            for (u32 k = 0; k < (kernels ? 3 : 1); k++)
                snap_source(g, file, kernels ? level[k] : "");
        }
        snap_close(g);
    }
    snap_str(g, "march", cpu_flags(sym_str(g, g->cfg.cpu)));
}

static void copy_sources(Graph *g)
{
    Paths files = {0};
    for (u32 i = 1; i < g->inst.n; i++) {
        if (g->inst.at[i].kern)
            add_file(g, sym_str(g, g->kern.at[g->inst.at[i].kern].file), &files);
    }
    add_file(g, "kernels/cpu/mgk.h", &files);
    const char **micro = NULL;
    u32 n = asset_list(g->arena, "kernels/cpu", ".c", &micro);
    for (u32 i = 0; i < n; i++)
        add_file(g, micro[i], &files);
    runtime_files(g, &files);
    for (u32 i = 0; i < files.n; i++) {
        u64 size = 0;
        const char *text = kernel_read(g, files.at[i], &size);
        const char *name = strncmp(files.at[i], "build/", 6) ? files.at[i] : files.at[i] + 6;
        write_file(g, name == files.at[i] ? name : arena_fmt(g->arena, "runtime/%s", name), text,
                   size);
    }
    snap_sources(g, &files);
}

static void render(Graph *g, const char *name, Text *map)
{
    Text t = {0};
    LineMap lm = {0};
    lua_render(g, name, &t, &lm);
    text_str(g->arena, &t);
    write_file(g, name, t.at, t.n);
    map_lines(g, map, name, &lm);
}

/* ==== the pass ================================================================================ */

static bool called(const Graph *g, u32 func)
{
    for (u32 c = 1; c < g->chain.n; c++) {
        for (u32 k = 0; k < g->chain.at[c].call.n; k++) {
            if (g->chain.at[c].call.at[k].func == func)
                return true;
        }
    }
    return false;
}

static void snapshot(Emit *e)
{
    Graph *g = e->g;
    snap_begin(g);
    snap_model(g);
    snap_regions(g);
    snap_saves(e);
    snap_funcs(e);
    snap_chains(e);
    snap_prototypes(e);
    snap_instances(e, "products", true);
    snap_instances(e, "kernels", false);
    snap_rows(e);
    snap_vars(e);
    snap_ios(g);
    snap_keys(g);
    snap_fits(g);
}

void pass_emit(Graph *g)
{
    static const char *const file[] = {"model.h", "model.c", "funcs.c",  "products.c", "kernels.c",
                                       "rows.c",  "main.c",  "build.sh", "report.md"};
    Emit e = {.g = g};
    e.cfunc = arena_alloc(g->arena, (g->func.n + 1) * sizeof *e.cfunc);
    for (u32 i = 1; i < g->inst.n; i++)
        vec_push(g->arena, &e.taken, g->inst.at[i].name);
    for (u32 i = 1; i < g->func.n; i++) {
        if (!g->func.at[i].dead && called(g, i))
            emit_func(&e, i);
    }
    snapshot(&e);
    const char *dir = sym_str(g, g->cfg.out_dir);
    make_dirs(g, arena_fmt(g->arena, "%s/kernels/cpu", dir));
    make_dirs(g, arena_fmt(g->arena, "%s/runtime", dir));
    copy_sources(g);
    Text map = {0};
    for (u32 i = 0; i < sizeof file / sizeof *file; i++)
        render(g, file[i], &map);
    text_str(g->arena, &map);
    write_file(g, "lines.map", map.at, map.n);
    chmod(arena_fmt(g->arena, "%s/build.sh", dir), 0755);
}
