/* lua.c: the sandboxed Lua state in which specs, layers and op blocks live, and its door to the
 * Graph.
 *
 * Lua files see the C side as one table, `core`; everything there is below, one small function
 * each, and all of them check their arguments, since a wrong call from our own Lua files must end
 * in a message and not in a broken Graph. A spec never sees `core`: generator/lib/prelude.lua gives
 * it a small world of its own. Limits: memory by the allocator, instructions by a hook. (What runs
 * in C without a hook, such as a pattern match without end, falls to the CPU limit of the child
 * process.)
 */
#include "lua_int.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

/* ==== the state =============================================================================== */

enum {
    MEMORY_MAX = 192 << 20, /* bytes of Lua objects */
    HOOK_COUNT = 100000,    /* instructions between two looks at the budget */
    GRAPH_MAX = 96 << 20,   /* bytes of nodes and values that a spec makes */
    BUDGET = 3000,          /* looks: 3e8 instructions, a few seconds */
    SPEC_BYTES_MAX = 1 << 20,
};
enum { CODE_LUA = 100, CODE_READ = 101, CODE_TIME = 104, CODE_MEMORY = 105, CODE_INTERNAL = 199 };

static const char time_message[] =
    "the spec does not come to an end: stopped after 3e8 instructions";
static const char graph_message[] = "the spec makes more than 96 MiB of nodes";
#define LIB "megagen.lib"

/* Instructions are counted by the hook, but a library call such as a pattern match is one
 * instruction. While code of a spec may run, a timer of processor time ends the process; there is
 * nothing to clean up in the child. What is left of it is kept from one stretch to the next. */
enum { LUA_SECONDS = 2 };

static void on_timer(int sig)
{
    static const char text[] =
        "megagen: error[E0104]: the spec does not come to an end: stopped after 2 s\n";
    (void)sig;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) {
        _exit(70);
    }
    _exit(1);
}

/* What belongs to a state beside its stack: where new nodes go, and the limits. */
typedef struct {
    Graph *g;
    lua_State *L;
    u64 used;
    i32 looks;
    u64 graph;             /* bytes of g->arena before the spec */
    struct itimerval left; /* processor time that its code may still use */
    u32 func;              /* Func that nodes are added to */
    Sym path;              /* module path of the code that runs */
    Loc loc;               /* its place in the spec */
    char file[512];        /* where the memory ran out */
    i32 line;
} Door;

static Door *door(lua_State *L)
{
    return *(Door **)lua_getextraspace(L);
}

/* The innermost line of a file, for a message when there is no memory left to make one. */
static void note_line(Door *d)
{
    lua_Debug ar;
    d->file[0] = 0;
    for (int level = 0; d->L && lua_getstack(d->L, level, &ar); level++) {
        lua_getinfo(d->L, "Sl", &ar);
        if (ar.source[0] == '@' && strncmp(ar.source, "@generator/", 11) != 0) {
            snprintf(d->file, sizeof d->file, "%s", ar.source + 1);
            d->line = ar.currentline;
            return;
        }
    }
}

static void *limited_alloc(void *ud, void *ptr, size_t old, size_t want)
{
    Door *d = ud;
    old = ptr ? old : 0;
    if (want == 0) {
        d->used -= old;
        free(ptr);
        return NULL;
    }
    if (want > old && d->used + (want - old) > MEMORY_MAX) {
        note_line(d);
        return NULL;
    }
    void *p = realloc(ptr, want);
    if (p) {
        d->used += want - old;
    }
    return p;
}

static void hook(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    Door *d = door(L);
    if (--d->looks <= 0) {
        luaL_error(L, "%s", time_message);
    }
    if (arena_bytes(d->g->arena) > d->graph + GRAPH_MAX) {
        luaL_error(L, "%s", graph_message);
    }
}

static void push_lib(lua_State *L, const char *name)
{
    lua_getfield(L, LUA_REGISTRYINDEX, LIB);
    assert(lua_istable(L, -1));
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
}

/* The fields of the table that diag.on_error made, as a fail(). */
static _Noreturn void fail_table(Graph *g, lua_State *L)
{
    Loc loc = {0};
    lua_getfield(L, -1, "loc");
    if (lua_istable(L, -1)) {
        lua_getfield(L, -1, "file");
        lua_getfield(L, -2, "line");
        lua_getfield(L, -3, "col");
        loc.file = lua_isstring(L, -3) ? sym(g, lua_tostring(L, -3)) : 0;
        loc.line = (i32)lua_tointeger(L, -2);
        loc.col = (i32)lua_tointeger(L, -1);
        lua_pop(L, 3);
    }
    lua_pop(L, 1);
    lua_getfield(L, -1, "code");
    u32 code = (u32)lua_tointeger(L, -1);
    lua_getfield(L, -2, "msg");
    fail(g, loc, code, "%s", lua_tostring(L, -1));
}

void lua_call_checked(Graph *g, int nargs, int nresults, u32 code)
{
    lua_State *L = g->lua;
    int at = lua_gettop(L) - nargs;
    push_lib(L, "on_error");
    lua_insert(L, at);
    int status = lua_pcall(L, nargs, nresults, at);
    if (status == LUA_OK) {
        lua_remove(L, at);
        return;
    }
    if (lua_istable(L, -1)) {
        fail_table(g, L);
    }
    if (status == LUA_ERRMEM) {
        Door *d = door(L);
        Loc loc = {d->file[0] ? sym(g, d->file) : 0, d->line, 0};
        fail(g, loc, CODE_MEMORY, "the spec needs more than %d MiB of memory", MEMORY_MAX >> 20);
    }
    fail(g, (Loc){0}, code, "%s",
         lua_isstring(L, -1) ? lua_tostring(L, -1) : "error without a message");
}

/* The same where code of a spec may run. */
static void call_spec(Graph *g, int nargs, int nresults, u32 code)
{
    Door *d = door(g->lua);
    struct itimerval none = {.it_value = {0}};
    struct sigaction act = {.sa_handler = on_timer};
    sigaction(SIGPROF, &act, NULL);
    setitimer(ITIMER_PROF, &d->left, NULL);
    lua_call_checked(g, nargs, nresults, code);
    setitimer(ITIMER_PROF, &none, &d->left);
}

/* ==== arguments =============================================================================== */

static u32 arg_id(lua_State *L, int i, u32 limit, const char *what)
{
    lua_Integer v = luaL_checkinteger(L, i);
    if (v <= 0 || v >= (lua_Integer)limit) {
        luaL_error(L, "no such %s: %d", what, (int)v);
    }
    return (u32)v;
}

static Sym arg_sym(lua_State *L, int i)
{
    size_t n = 0;
    const char *s = luaL_optlstring(L, i, "", &n);
    return sym_n(door(L)->g, s, n);
}

/* The ids of the array at stack index i. */
static u32 arg_ids(lua_State *L, int i, u32 *out, u32 max, u32 limit, const char *what)
{
    luaL_checktype(L, i, LUA_TTABLE);
    u32 n = (u32)lua_rawlen(L, i);
    if (n > max) {
        luaL_error(L, "more than %d of %s", (int)max, what);
    }
    for (u32 k = 0; k < n; k++) {
        lua_rawgeti(L, i, (lua_Integer)k + 1);
        lua_Integer v = lua_tointeger(L, -1);
        if (v < 0 || v >= (lua_Integer)limit) {
            luaL_error(L, "no such %s: %d", what, (int)v);
        }
        out[k] = (u32)v;
        lua_pop(L, 1);
    }
    return n;
}

static Type arg_type(lua_State *L, int dtype, int dims)
{
    Door *d = door(L);
    Type t = {.dtype = dtype_parse(luaL_checkstring(L, dtype))};
    if (t.dtype == DT_NONE) {
        luaL_error(L, "no such dtype: %s", lua_tostring(L, dtype));
    }
    t.rank = (u8)arg_ids(L, dims, t.dim, RANK_MAX, d->g->dim.n, "dim");
    return t;
}

/* One attribute from the value on top of the stack: integer, number, string, { dim = id }, { dims =
 * ids }. */
static Attr arg_attr(lua_State *L, Sym key)
{
    Graph *g = door(L)->g;
    int top = lua_gettop(L);
    if (lua_isinteger(L, top)) {
        return attr_int(key, lua_tointeger(L, top));
    }
    if (lua_type(L, top) == LUA_TNUMBER) {
        return attr_num(key, lua_tonumber(L, top));
    }
    if (lua_type(L, top) == LUA_TBOOLEAN) {
        return attr_int(key, lua_toboolean(L, top));
    }
    if (lua_type(L, top) == LUA_TSTRING) {
        return attr_sym(key, sym(g, lua_tostring(L, top)));
    }
    if (lua_type(L, top) != LUA_TTABLE) {
        luaL_error(L, "attribute %s: a number, a string or dims are expected", sym_str(g, key));
    }
    if (lua_getfield(L, top, "dim") == LUA_TNUMBER) {
        u32 dim = arg_id(L, -1, g->dim.n, "dim");
        lua_settop(L, top);
        return attr_dim(key, dim);
    }
    u32 dims[RANK_MAX];
    lua_getfield(L, top, "dims");
    u32 n = arg_ids(L, top + 2, dims, RANK_MAX, g->dim.n, "dim");
    lua_settop(L, top);
    return attr_dims(key, dims, n);
}

enum { ATTR_ARG_MAX = 256 };

/* Attributes from an array of { key, value } at stack index i. */
static u32 arg_attrs(lua_State *L, int i, Attr *out)
{
    if (lua_isnoneornil(L, i)) {
        return 0;
    }
    luaL_checktype(L, i, LUA_TTABLE);
    u32 n = (u32)lua_rawlen(L, i);
    if (n > ATTR_ARG_MAX) {
        luaL_error(L, "too many attributes");
    }
    for (u32 k = 0; k < n; k++) {
        lua_rawgeti(L, i, (lua_Integer)k + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        lua_rawgeti(L, -1, 1);
        Sym key = arg_sym(L, -1);
        lua_rawgeti(L, -2, 2);
        out[k] = arg_attr(L, key);
        lua_pop(L, 3);
    }
    return n;
}

/* ==== core: files, messages =================================================================== */

static int core_asset(lua_State *L)
{
    u64 n = 0;
    const char *text = asset_read(door(L)->g->arena, luaL_checkstring(L, 1), &n);
    if (!text) {
        return 0;
    }
    lua_pushlstring(L, text, n);
    return 1;
}

static int core_assets(lua_State *L)
{
    const char **path = NULL;
    u32 n = asset_list(door(L)->g->arena, luaL_checkstring(L, 1), luaL_checkstring(L, 2), &path);
    lua_newtable(L);
    for (u32 i = 0; i < n; i++) {
        lua_pushstring(L, path[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

static int refuse(lua_State *L, const char *why)
{
    lua_pushnil(L);
    lua_pushstring(L, why);
    return 2;
}

/* read_spec(path) -> text | nil, why. Regular files only: a pipe or a device could hang. */
static int core_read_spec(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct stat st;
    if (stat(path, &st)) {
        return refuse(L, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return refuse(L, "not a regular file");
    }
    if (st.st_size > SPEC_BYTES_MAX) {
        return refuse(L, "larger than 1 MiB: not a spec");
    }
    char *data = NULL;
    u64 n = 0;
    int err = file_read(door(L)->g->arena, path, &data, &n);
    if (err) {
        return refuse(L, strerror(err));
    }
    lua_pushlstring(L, data, n);
    return 1;
}

static Loc arg_loc(lua_State *L, int i)
{
    return (Loc){arg_sym(L, i), (i32)luaL_optinteger(L, i + 1, 0),
                 (i32)luaL_optinteger(L, i + 2, 0)};
}

static int core_fail(lua_State *L) /* (file, line, col, code, message) */
{
    fail(door(L)->g, arg_loc(L, 1), (u32)luaL_checkinteger(L, 4), "%s", luaL_checkstring(L, 5));
}

static int core_error(lua_State *L) /* the same, but the compile goes on to find more */
{
    note_error(door(L)->g, arg_loc(L, 1), (u32)luaL_checkinteger(L, 4), "%s",
               luaL_checkstring(L, 5));
    return 0;
}

static int core_warn(lua_State *L)
{
    warn(door(L)->g, arg_loc(L, 1), (u32)luaL_checkinteger(L, 4), "%s", luaL_checkstring(L, 5));
    return 0;
}

static int core_print(lua_State *L)
{
    fprintf(stderr, "%s\n", luaL_checkstring(L, 1));
    return 0;
}

/* ==== core: ops =============================================================================== */

static Sym field_sym(lua_State *L, int table, const char *key)
{
    lua_getfield(L, table, key);
    Sym s = lua_isstring(L, -1) ? sym(door(L)->g, lua_tostring(L, -1)) : 0;
    lua_pop(L, 1);
    return s;
}

static int field_ref(lua_State *L, int table, const char *key)
{
    if (lua_getfield(L, table, key) == LUA_TNIL) {
        lua_pop(L, 1);
        return 0;
    }
    return luaL_ref(L, LUA_REGISTRYINDEX);
}

static void field_list(lua_State *L, int table, const char *key, Op *op)
{
    Graph *g = door(L)->g;
    lua_getfield(L, table, key);
    for (lua_Integer i = 1, n = lua_istable(L, -1) ? (lua_Integer)lua_rawlen(L, -1) : 0; i <= n;
         i++) {
        lua_rawgeti(L, -1, i);
        Sym s = sym(g, luaL_checkstring(L, -1));
        if (strcmp(key, "inplace") == 0) {
            vec_push(g->arena, &op->inplace, s);
        } else {
            vec_push(g->arena, &op->whole, s);
        }
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static Loc field_loc(lua_State *L, int table)
{
    Loc loc = {field_sym(L, table, "file"), 0, 0};
    lua_getfield(L, table, "line");
    loc.line = (i32)lua_tointeger(L, -1);
    lua_pop(L, 1);
    return loc;
}

/* op_add{ name, sig, body, flags, doc, vjp, ref, flops, split, inplace, whole, file, line } -> id
 */
static int core_op_add(lua_State *L)
{
    Graph *g = door(L)->g;
    luaL_checktype(L, 1, LUA_TTABLE);
    Op op = {.name = field_sym(L, 1, "name"),
             .sig_text = field_sym(L, 1, "sig"),
             .body_text = field_sym(L, 1, "body"),
             .doc = field_sym(L, 1, "doc"),
             .loc = field_loc(L, 1)};
    lua_getfield(L, 1, "flags");
    op.flags = (u32)lua_tointeger(L, -1);
    op.vjp = field_ref(L, 1, "vjp");
    op.ref = field_ref(L, 1, "ref");
    op.flops = field_ref(L, 1, "flops");
    op.split = field_ref(L, 1, "split");
    field_list(L, 1, "inplace", &op);
    field_list(L, 1, "whole", &op);
    u32 known = op_find(g, sym_str(g, op.name));
    if (known &&
        (g->op.at[known].flags & OF_STRUCT)) { /* C knows the op; its rule adds the calculus */
        Op *o = &g->op.at[known];
        o->doc = op.doc, o->loc = op.loc, o->vjp = op.vjp, o->ref = op.ref, o->flops = op.flops;
        if (op.body_text) {
            o->sig_text = op.sig_text, o->body_text = op.body_text;
            o->sig = sig_parse(g, op.loc, sym_str(g, op.sig_text));
            o->body = body_parse(g, op.loc, o->sig, sym_str(g, op.body_text));
            o->flags |= OF_BODY;
        }
        lua_pushinteger(L, known);
        return 1;
    }
    if (op.sig_text) {
        op.sig = sig_parse(g, op.loc, sym_str(g, op.sig_text));
    }
    if (op.body_text) {
        op.flags |= OF_BODY;
        op.body = body_parse(g, op.loc, op.sig, sym_str(g, op.body_text));
    }
    vec_push(g->arena, &g->op, op);
    lua_pushinteger(L, (lua_Integer)g->op.n - 1);
    return 1;
}

static int core_kernel_file(lua_State *L) /* (name, text): a kernel file of the spec's own */
{
    Graph *g = door(L)->g;
    size_t n = 0;
    const char *text = luaL_checklstring(L, 2, &n);
    Asset a = {.path = arena_fmt(g->arena, "kernels/cpu/%s", luaL_checkstring(L, 1)), .n = n};
    char *copy = arena_alloc(g->arena, n + 1);
    memcpy(copy, text, n);
    a.data = copy;
    vec_push(g->arena, &g->kernel_file, a);
    return 0;
}

static int core_op_find(lua_State *L)
{
    lua_pushinteger(L, op_find(door(L)->g, luaL_checkstring(L, 1)));
    return 1;
}

/* ==== core: dims, values, nodes =============================================================== */

static int core_dim(lua_State *L) /* (name, size) -> id */
{
    lua_pushinteger(L, dim_add(door(L)->g, luaL_checkstring(L, 1), luaL_checkinteger(L, 2)));
    return 1;
}

static int core_dim_info(lua_State *L) /* (id) -> name, size, pad */
{
    Graph *g = door(L)->g;
    const Dim *d = &g->dim.at[arg_id(L, 1, g->dim.n, "dim")];
    lua_pushstring(L, sym_str(g, d->name));
    lua_pushinteger(L, d->size);
    lua_pushinteger(L, d->pad ? d->pad : d->size);
    return 3;
}

static int core_dim_pad(lua_State *L) /* (id, extent in memory) */
{
    Graph *g = door(L)->g;
    u32 id = arg_id(L, 1, g->dim.n, "dim");
    g->dim.at[id].pad = luaL_checkinteger(L, 2);
    return 0;
}

static int core_value(lua_State *L) /* (id) -> dtype, dims, func, flags */
{
    Graph *g = door(L)->g;
    const Value *v = &g->value.at[arg_id(L, 1, g->value.n, "value")];
    lua_pushstring(L, dtype_name(v->type.dtype));
    lua_newtable(L);
    for (u32 i = 0; i < v->type.rank; i++) {
        lua_pushinteger(L, v->type.dim[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_pushinteger(L, v->func);
    lua_pushinteger(L, v->flags);
    return 4;
}

static int core_value_mark(lua_State *L) /* (id, flags, path) */
{
    Graph *g = door(L)->g;
    Value *v = &g->value.at[arg_id(L, 1, g->value.n, "value")];
    v->flags |= (u16)luaL_checkinteger(L, 2);
    Sym path = arg_sym(L, 3);
    if (path) {
        v->path = path;
    }
    return 0;
}

static int core_at(lua_State *L) /* (path, file, line): where the code that runs now stands */
{
    Door *d = door(L);
    d->path = arg_sym(L, 1);
    d->loc = (Loc){arg_sym(L, 2), (i32)luaL_optinteger(L, 3, 0), 0};
    return 0;
}

static u32 func_now(lua_State *L)
{
    u32 f = door(L)->func;
    if (!f) {
        luaL_error(L, "ops work only inside a layer or a forward function");
    }
    return f;
}

static void stamp(Door *d, u32 node)
{
    Node *n = &d->g->node.at[node];
    n->path = d->path;
    n->loc = d->loc;
    for (u32 i = 0; i < n->nout; i++) {
        if (!d->g->value.at[n->out + i].path) {
            d->g->value.at[n->out + i].path = d->path;
        }
    }
}

static int push_results(lua_State *L, u32 node)
{
    const Node *n = &door(L)->g->node.at[node];
    lua_pushinteger(L, n->out);
    lua_pushinteger(L, n->nout);
    lua_pushinteger(L, node);
    return 3;
}

enum { OPERAND_MAX = 32 };

/* node(op, operands, attrs [, { {dtype, dims}, ... }]) -> first result, count, node */
static int core_node(lua_State *L)
{
    Door *d = door(L);
    u32 func = func_now(L), op = arg_id(L, 1, d->g->op.n, "op");
    u32 in[OPERAND_MAX];
    Attr attr[ATTR_ARG_MAX];
    u32 nin = arg_ids(L, 2, in, OPERAND_MAX, d->g->value.n, "value");
    for (u32 i = 0; i < nin; i++) {
        if (in[i] && d->g->value.at[in[i]].func != func) {
            luaL_error(L, "operand %d belongs to another Func", (int)i + 1);
        }
    }
    u32 nattr = arg_attrs(L, 3, attr);
    u32 node = 0;
    if (lua_isnoneornil(L, 4)) {
        Type out[OPERAND_MAX * 2];
        Op copy = d->g->op.at[op]; /* its messages name the place in the spec */
        u32 nout = sig_infer(d->g, &copy, d->loc, in, nin, attr, nattr, out);
        node = node_add_typed(d->g, func, op, in, nin, attr, nattr, out, nout);
    } else {
        Type out[OPERAND_MAX];
        u32 nout = (u32)lua_rawlen(L, 4);
        luaL_argcheck(L, nout <= OPERAND_MAX, 4, "too many results");
        for (u32 i = 0; i < nout; i++) {
            lua_rawgeti(L, 4, (lua_Integer)i + 1);
            lua_rawgeti(L, -1, 1);
            lua_rawgeti(L, -2, 2);
            out[i] = arg_type(L, lua_gettop(L) - 1, lua_gettop(L));
            lua_pop(L, 3);
        }
        node = node_add_typed(d->g, func, op, in, nin, attr, nattr, out, nout);
    }
    stamp(d, node);
    return push_results(L, node);
}

/* ==== core: Funcs, variables, the chain ======================================================= */

static int core_func(lua_State *L) /* (name, role) -> id; nodes go there from now on */
{
    Door *d = door(L);
    static const char *const roles[] = {"fwd", "loop", NULL};
    static const Role role[] = {ROLE_FWD, ROLE_LOOP};
    d->func = func_add(d->g, arg_sym(L, 1), role[luaL_checkoption(L, 2, "fwd", roles)]);
    d->g->func.at[d->func].loc = d->loc;
    d->g->func.at[d->func].path = d->path;
    lua_pushinteger(L, d->func);
    return 1;
}

static int core_func_name(lua_State *L) /* (id, name) */
{
    Graph *g = door(L)->g;
    g->func.at[arg_id(L, 1, g->func.n, "Func")].name = arg_sym(L, 2);
    return 0;
}

static int core_set_func(lua_State *L) /* (id) -> the one before */
{
    Door *d = door(L);
    lua_Integer f = luaL_checkinteger(L, 1);
    luaL_argcheck(L, f >= 0 && f < (lua_Integer)d->g->func.n, 1, "no such Func");
    lua_pushinteger(L, d->func);
    d->func = (u32)f;
    return 1;
}

static int core_input(lua_State *L) /* (dtype, dims, path, flags) -> value */
{
    Door *d = door(L);
    Type t = arg_type(L, 1, 2);
    u32 v = func_input(d->g, func_now(L), t, arg_sym(L, 3));
    d->g->value.at[v].flags |= (u16)luaL_optinteger(L, 4, 0);
    lua_pushinteger(L, v);
    return 1;
}

static int core_output(lua_State *L) /* (value) -> position, 1-based; the same value once */
{
    Door *d = door(L);
    Graph *g = d->g;
    u32 v = arg_id(L, 1, g->value.n, "value");
    Func *f = &g->func.at[g->value.at[v].func];
    u32 i = 0;
    while (i < f->out.n && f->out.at[i] != v) {
        i++;
    }
    if (i == f->out.n) {
        vec_push(g->arena, &f->out, v);
    }
    lua_pushinteger(L, (lua_Integer)i + 1);
    return 1;
}

static u8 arg_kind(lua_State *L, int i)
{
    static const char *const kinds[] = {"weight", "table",  "metric", "cache",
                                        "stat",   "scalar", NULL};
    static const u8 kind[] = {VAR_WEIGHT, VAR_TABLE, VAR_METRIC, VAR_CACHE, VAR_STAT, VAR_SCALAR};
    return kind[luaL_checkoption(L, i, "weight", kinds)];
}

static int core_read(lua_State *L) /* (formal, dtype, dims, kind) -> value */
{
    Door *d = door(L);
    u32 func = func_now(L);
    u32 formal = formal_find(d->g, func, arg_sym(L, 1), arg_type(L, 2, 3), arg_kind(L, 4));
    u32 v = node_read(d->g, func, formal);
    stamp(d, d->g->value.at[v].node);
    lua_pushinteger(L, v);
    return 1;
}

static int core_accum(lua_State *L) /* (formal, value, kind) */
{
    Door *d = door(L);
    u32 func = func_now(L), v = arg_id(L, 2, d->g->value.n, "value");
    u32 formal = formal_find(d->g, func, arg_sym(L, 1), d->g->value.at[v].type, arg_kind(L, 3));
    node_accum(d->g, func, formal, v);
    return 0;
}

/* loop(body, operands, operand kinds, results { {dtype, dims}, ... }, result kinds, trips) -> like
 * node */
static int core_loop(lua_State *L)
{
    Door *d = door(L);
    Graph *g = d->g;
    static const char *const in_kinds[] = {"carry", "slice", "invariant", NULL};
    static const char *const out_kinds[] = {"carry", "stack", "sum", NULL};
    u32 func = func_now(L), body = arg_id(L, 1, g->func.n, "Func"), in[OPERAND_MAX];
    u32 nin = arg_ids(L, 2, in, OPERAND_MAX, g->value.n, "value");
    Type out[OPERAND_MAX];
    u32 nout = (u32)lua_rawlen(L, 4);
    luaL_argcheck(L, nout <= OPERAND_MAX, 4, "too many results");
    for (u32 i = 0; i < nin; i++) {
        lua_rawgeti(L, 3, (lua_Integer)i + 1);
        u8 kind = (u8)luaL_checkoption(L, lua_gettop(L), NULL, in_kinds);
        vec_push(g->arena, &g->func.at[body].in_kind, kind);
        lua_pop(L, 1);
    }
    for (u32 i = 0; i < nout; i++) {
        lua_rawgeti(L, 5, (lua_Integer)i + 1);
        u8 kind = (u8)luaL_checkoption(L, lua_gettop(L), NULL, out_kinds);
        vec_push(g->arena, &g->func.at[body].out_kind, kind);
        lua_rawgeti(L, 4, (lua_Integer)i + 1);
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        out[i] = arg_type(L, lua_gettop(L) - 1, lua_gettop(L));
        lua_pop(L, 4);
    }
    u32 node = node_add_typed(g, func, op_find(g, "loop"), in, nin, NULL, 0, out, nout);
    g->node.at[node].body = body;
    g->node.at[node].trips = (i32)luaL_checkinteger(L, 6);
    stamp(d, node);
    return push_results(L, node);
}

static int core_var(lua_State *L) /* (path, dtype, dims, kind, init{}) */
{
    Door *d = door(L);
    Graph *g = d->g;
    static const char *const inits[] = {"zero", "one", "const", "normal", "uniform", "table", NULL};
    Var v = {
        .path = arg_sym(L, 1), .type = arg_type(L, 2, 3), .kind = arg_kind(L, 4), .loc = d->loc};
    luaL_checktype(L, 5, LUA_TTABLE);
    lua_getfield(L, 5, "kind");
    v.init.kind = (u8)luaL_checkoption(L, -1, "zero", inits);
    lua_getfield(L, 5, "a");
    v.init.a = luaL_optnumber(L, -1, 0);
    lua_getfield(L, 5, "b");
    v.init.b = luaL_optnumber(L, -1, 0);
    v.init.table = field_sym(L, 5, "table");
    v.group = field_sym(L, 5, "group");
    lua_getfield(L, 5, "frozen");
    v.frozen = lua_toboolean(L, -1);
    v.saved = v.kind == VAR_WEIGHT;
    v.life = v.kind == VAR_METRIC ? LIFE_STEP : LIFE_RUN;
    lua_getfield(L, 5, "attrs");
    Attr attr[ATTR_ARG_MAX];
    v.init.nattr = arg_attrs(L, lua_gettop(L), attr);
    v.init.attr = g->attr.n;
    for (u32 i = 0; i < v.init.nattr; i++) {
        vec_push(g->arena, &g->attr, attr[i]);
    }
    v.stages = 1;
    vec_push(g->arena, &g->var, v);
    lua_pushinteger(L, (lua_Integer)g->var.n - 1);
    return 1;
}

static int core_reg(lua_State *L) /* (name, dtype, dims, io) -> id */
{
    Graph *g = door(L)->g;
    Reg r = {.name = arg_sym(L, 1), .type = arg_type(L, 2, 3), .io = lua_toboolean(L, 4)};
    vec_push(g->arena, &g->reg, r);
    lua_pushinteger(L, (lua_Integer)g->reg.n - 1);
    return 1;
}

static int core_chain(lua_State *L) /* (name, input regs) -> id */
{
    Graph *g = door(L)->g;
    u32 in[OPERAND_MAX];
    u32 n = arg_ids(L, 2, in, OPERAND_MAX, g->reg.n, "reg");
    Chain c = {.name = arg_sym(L, 1), .role = ROLE_FWD};
    for (u32 i = 0; i < n; i++) {
        vec_push(g->arena, &c.in, in[i]);
    }
    vec_push(g->arena, &g->chain, c);
    lua_pushinteger(L, (lua_Integer)g->chain.n - 1);
    return 1;
}

static int core_call(lua_State *L) /* (chain, func, layer, prefix, in regs, out regs) */
{
    Graph *g = door(L)->g;
    u32 chain = arg_id(L, 1, g->chain.n, "chain"), ids[64];
    Call c = {.func = arg_id(L, 2, g->func.n, "Func"),
              .layer = (i32)luaL_checkinteger(L, 3),
              .prefix = arg_sym(L, 4)};
    u32 n = arg_ids(L, 5, ids, 64, g->reg.n, "reg");
    for (u32 i = 0; i < n; i++) {
        vec_push(g->arena, &c.in, ids[i]);
    }
    n = arg_ids(L, 6, ids, 64, g->reg.n, "reg");
    for (u32 i = 0; i < n; i++) {
        vec_push(g->arena, &c.out, ids[i]);
    }
    vec_push(g->arena, &g->chain.at[chain].call, c);
    return 0;
}

/* ==== core: configuration ===================================================================== */

static u8 field_dtype(lua_State *L, const char *key)
{
    lua_getfield(L, 1, key);
    u8 dt = dtype_parse(luaL_checkstring(L, -1));
    lua_pop(L, 1);
    return dt;
}

static i64 field_int(lua_State *L, const char *key)
{
    lua_getfield(L, 1, key);
    i64 v = luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    return v;
}

static int core_config(lua_State *L)
{
    Graph *g = door(L)->g;
    luaL_checktype(L, 1, LUA_TTABLE);
    Config *c = &g->cfg;
    c->name = field_sym(L, 1, "name");
    c->spec_file = field_sym(L, 1, "spec_file");
    c->target = field_sym(L, 1, "target");
    Sym cpu = field_sym(L, 1, "cpu");
    if (cpu) {
        c->cpu = cpu;
    }
    c->compute = field_dtype(L, "compute");
    c->master = field_dtype(L, "master");
    c->grads = field_dtype(L, "grads");
    c->moments = field_dtype(L, "moments");
    c->micro = field_int(L, "micro");
    c->seq = field_int(L, "seq");
    c->global = field_int(L, "global");
    c->remat = field_sym(L, 1, "remat");
    c->optimizer = field_sym(L, 1, "optimizer");
    lua_getfield(L, 1, "beta1");
    lua_getfield(L, 1, "beta2");
    lua_getfield(L, 1, "eps");
    c->beta1 = luaL_checknumber(L, -3);
    c->beta2 = luaL_checknumber(L, -2);
    c->eps = luaL_checknumber(L, -1);
    lua_getfield(L, 1, "fuse");
    c->fuse = lua_toboolean(L, -1);
    return 0;
}

static const luaL_Reg core_funcs[] = {
    {"asset", core_asset},
    {"assets", core_assets},
    {"read_spec", core_read_spec},
    {"fail", core_fail},
    {"error", core_error},
    {"warn", core_warn},
    {"print", core_print},
    {"op_add", core_op_add},
    {"op_find", core_op_find},
    {"kernel_file", core_kernel_file},
    {"dim", core_dim},
    {"dim_info", core_dim_info},
    {"dim_pad", core_dim_pad},
    {"value", core_value},
    {"value_mark", core_value_mark},
    {"at", core_at},
    {"node", core_node},
    {"func", core_func},
    {"set_func", core_set_func},
    {"func_name", core_func_name},
    {"input", core_input},
    {"output", core_output},
    {"read", core_read},
    {"accum", core_accum},
    {"loop", core_loop},
    {"var", core_var},
    {"reg", core_reg},
    {"chain", core_chain},
    {"call", core_call},
    {"config", core_config},
    {NULL, NULL},
};

/* ==== the doors =============================================================================== */

static int open_libs(lua_State *L)
{
    static const luaL_Reg libs[] = {
        {LUA_GNAME, luaopen_base},        {LUA_TABLIBNAME, luaopen_table},
        {LUA_STRLIBNAME, luaopen_string}, {LUA_MATHLIBNAME, luaopen_math},
        {LUA_UTF8LIBNAME, luaopen_utf8},  {LUA_DBLIBNAME, luaopen_debug}};
    for (u32 i = 0; i < sizeof libs / sizeof *libs; i++) {
        luaL_requiref(L, libs[i].name, libs[i].func, 1);
        lua_pop(L, 1);
    }
    luaL_newlib(L, core_funcs);
    lua_pushstring(L, time_message);
    lua_setfield(L, -2, "time_message");
    lua_pushstring(L, graph_message);
    lua_setfield(L, -2, "graph_message");
    lua_setfield(L, LUA_REGISTRYINDEX, "megagen.core");
    return 0;
}

/* Run generator/lib/FILE with `core`; keep its result as the lib table. */
static void open_prelude(Graph *g)
{
    static const char path[] = "generator/lib/prelude.lua";
    lua_State *L = g->lua;
    u64 n = 0;
    const char *src = asset_read(g->arena, path, &n);
    if (!src) {
        fail(g, (Loc){0}, CODE_INTERNAL, "%s is missing", path);
    }
    if (luaL_loadbufferx(L, src, n, arena_fmt(g->arena, "@%s", path), "t")) {
        fail(g, (Loc){0}, CODE_INTERNAL, "%s", lua_tostring(L, -1));
    }
    lua_getfield(L, LUA_REGISTRYINDEX, "megagen.core");
    if (lua_pcall(L, 1, 1, 0)) {
        fail(g, (Loc){0}, CODE_INTERNAL, "%s", lua_tostring(L, -1));
    }
    lua_setfield(L, LUA_REGISTRYINDEX, LIB);
}

void lua_open(Graph *g)
{
    Door *d = arena_alloc(g->arena, sizeof *d);
    d->g = g;
    d->looks = BUDGET;
    lua_State *L = lua_newstate(limited_alloc, d);
    if (!L) {
        fail(g, (Loc){0}, CODE_MEMORY, "no memory for a Lua state");
    }
    d->L = L;
    *(Door **)lua_getextraspace(L) = d;
    g->lua = L;
    lua_pushcfunction(L, open_libs);
    if (lua_pcall(L, 0, 0, 0)) {
        fail(g, (Loc){0}, CODE_INTERNAL, "%s", lua_tostring(L, -1));
    }
    open_prelude(g);
    lua_sethook(L, hook, LUA_MASKCOUNT, HOOK_COUNT);
    push_lib(L, "open");
    lua_call_checked(g, 0, 0, CODE_INTERNAL);
    d->graph = arena_bytes(g->arena);
    d->left.it_value.tv_sec = LUA_SECONDS;
}

void lua_load_spec(Graph *g, const char *spec, int noverride, char **override)
{
    lua_State *L = g->lua;
    push_lib(L, "load_spec");
    lua_pushstring(L, spec);
    lua_newtable(L);
    for (int i = 0; i < noverride; i++) {
        lua_pushstring(L, override[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    call_spec(g, 2, 0, CODE_LUA);
}

/* Chain "fwd" with one Func a call; pass_expand shares the equal ones. */
void lua_trace(Graph *g)
{
    push_lib(g->lua, "trace");
    call_spec(g, 0, 0, CODE_LUA);
    door(g->lua)->func = 0;
}

static void push_values(lua_State *L, const u32 *v, u32 n)
{
    lua_createtable(L, (int)n, 0);
    for (u32 i = 0; i < n; i++) {
        lua_pushinteger(L, v[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

static void push_attrs(Graph *g, lua_State *L, const Node *n)
{
    lua_newtable(L);
    for (u32 i = 0; i < n->nattr; i++) {
        const Attr *a = &g->attr.at[n->attr + i];
        switch (a->kind) {
        case AT_INT:
            lua_pushinteger(L, a->i);
            break;
        case AT_NUM:
            lua_pushnumber(L, a->num);
            break;
        case AT_SYM:
            lua_pushstring(L, sym_str(g, a->sym));
            break;
        case AT_DIM:
            push_values(L, a->dim, 1);
            break;
        case AT_DIMS:
            push_values(L, a->dim, a->n);
            break;
        default:
            lua_pushnil(L);
        }
        lua_setfield(L, -2, sym_str(g, a->key));
    }
}

/* The op's rule, with operands, results and cotangents as values of func; 0 in grad = no cotangent.
 */
void lua_rule_vjp(Graph *g, u32 node, u32 func, const u32 *value_map, const u32 *cotangent,
                  u32 *grad)
{
    lua_State *L = g->lua;
    Door *d = door(L);
    const Node n = g->node.at[node];
    const Op *op = &g->op.at[n.op];
    assert(op->vjp && "an op without a derived backward has a vjp");
    Arena *a = g->arena;
    u32 *in = arena_alloc(a, (n.nin + 1) * sizeof *in);
    u32 *out = arena_alloc(a, (n.nout + 1) * sizeof *out);
    for (u32 i = 0; i < n.nin; i++) {
        in[i] = value_map[g->arg.at[n.in + i]];
    }
    for (u32 i = 0; i < n.nout; i++) {
        out[i] = value_map[n.out + i];
    }
    u32 old = d->func;
    d->func = func, d->path = n.path, d->loc = n.loc;
    push_lib(L, "run_vjp");
    lua_rawgeti(L, LUA_REGISTRYINDEX, op->vjp);
    push_values(L, in, n.nin);
    push_values(L, out, n.nout);
    push_values(L, cotangent, n.nout);
    push_attrs(g, L, &n);
    call_spec(g, 5, 1, CODE_LUA);
    for (u32 i = 0; i < n.nin; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i + 1);
        lua_Integer v = lua_tointeger(L, -1);
        assert(v >= 0 && v < (lua_Integer)g->value.n);
        grad[i] = (u32)v;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    d->func = old;
}

/* FLOPs of an op with a `flops` rule: a function of the sizes of its signature's dims. */
f64 lua_flops(Graph *g, u32 node)
{
    const Node *n = &g->node.at[node];
    const Op *op = &g->op.at[n->op];
    if (!op->flops || !g->lua) {
        return 0;
    }
    lua_State *L = g->lua;
    push_lib(L, "run_flops");
    lua_rawgeti(L, LUA_REGISTRYINDEX, op->flops);
    lua_pushstring(L, sym_str(g, op->sig_text));
    lua_newtable(L);
    for (u32 i = 0; i < n->nin; i++) {
        u32 v = g->arg.at[n->in + i];
        lua_newtable(L);
        for (u32 k = 0; k < g->value.at[v].type.rank; k++) {
            lua_pushinteger(L, g->dim.at[g->value.at[v].type.dim[k]].size);
            lua_rawseti(L, -2, (lua_Integer)k + 1);
        }
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    push_attrs(g, L, n);
    call_spec(g, 4, 1, CODE_LUA);
    f64 flops = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return flops;
}

void lua_push_keys(Graph *g)
{
    push_lib(g->lua, "keys");
    lua_call_checked(g, 0, 1, CODE_INTERNAL);
}

const char *lua_text(Graph *g, const char *fn, int narg, const char *const *arg)
{
    lua_State *L = g->lua;
    push_lib(L, fn);
    for (int i = 0; i < narg; i++) {
        lua_pushstring(L, arg[i]);
    }
    lua_call_checked(g, narg, 1, CODE_INTERNAL);
    const char *text = arena_fmt(g->arena, "%s", lua_tostring(L, -1));
    lua_pop(L, 1);
    return text;
}
