/* lua_emit.c: the back end's side of Lua: kernel blocks, the snapshot, templates.
 *
 * It has a Lua state of its own. A spec runs in the other one, so nothing that a spec does to its
 * libraries reaches a template or a kernel's condition. The snapshot is plain tables of strings and
 * integers: passes decide, templates print.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lua_int.h"

/* ==== the state =============================================================================== */

enum { CODE_TEMPLATE = 790, CODE_BLOCK = 791 };

static _Noreturn void fail_lua(Graph *g, lua_State *L, Loc loc, u32 code)
{
    const char *why = lua_tostring(L, -1);
    fail(g, loc, code, "%s", why ? why : "error without a message");
}

static lua_State *state(Graph *g)
{
    if (!g->emit_lua) {
        g->emit_lua = luaL_newstate();
        assert(g->emit_lua && "memory for a Lua state");
        luaL_openlibs(g->emit_lua);
    }
    return g->emit_lua;
}

/* Push the value that chunk `path` of our own Lua files returns. */
static void push_module(Graph *g, const char *path)
{
    lua_State *L = state(g);
    if (lua_getfield(L, LUA_REGISTRYINDEX, path) != LUA_TNIL)
        return;
    lua_pop(L, 1);
    u64 n = 0;
    const char *src = asset_read(g->arena, path, &n);
    if (!src)
        fail(g, (Loc){0}, CODE_TEMPLATE, "%s is missing", path);
    if (luaL_loadbufferx(L, src, n, arena_fmt(g->arena, "=%s", path), "t") || lua_pcall(L, 0, 1, 0))
        fail_lua(g, L, (Loc){0}, CODE_TEMPLATE);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, path);
}

/* ==== snapshot ================================================================================ */

#define SNAPSHOT "megagen.snapshot"

/* Set key of the table on top to the value above it; key NULL appends. */
static void put(lua_State *L, const char *key)
{
    if (key)
        lua_setfield(L, -2, key);
    else
        lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
}

void snap_begin(Graph *g)
{
    lua_State *L = state(g);
    lua_settop(L, 0);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, SNAPSHOT);
}

void snap_open(Graph *g, const char *key)
{
    lua_State *L = state(g);
    luaL_checkstack(L, 8, "snapshot");
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_insert(L, -3); /* t, parent, t */
    put(L, key);       /* t, parent */
    lua_insert(L, -2); /* parent, t */
}

void snap_close(Graph *g)
{
    lua_State *L = state(g);
    assert(lua_gettop(L) > 1 && "snap_close without snap_open");
    lua_pop(L, 1);
}

void snap_str(Graph *g, const char *key, const char *s)
{
    lua_State *L = state(g);
    lua_pushstring(L, s);
    put(L, key);
}

void snap_int(Graph *g, const char *key, i64 v)
{
    lua_State *L = state(g);
    lua_pushinteger(L, v);
    put(L, key);
}

void snap_keys(Graph *g)
{
    static const char *const field[] = {"name",  "type", "value", "origin",
                                        "binds", "help", "allows"};
    lua_push_keys(g);
    lua_State *from = g->lua;
    snap_open(g, "keys");
    for (lua_Integer i = 1, n = (lua_Integer)lua_rawlen(from, -1); i <= n; i++) {
        lua_rawgeti(from, -1, i);
        snap_open(g, NULL);
        for (u32 f = 0; f < sizeof field / sizeof *field; f++) {
            lua_getfield(from, -1, field[f]);
            const char *s = lua_tostring(from, -1);
            snap_str(g, field[f], c_string(g, s ? s : ""));
            lua_pop(from, 1);
        }
        snap_close(g);
        lua_pop(from, 1);
    }
    snap_close(g);
    lua_pop(from, 1);
}

/* ==== templates =============================================================================== */

static u32 int_at(lua_State *L, int table, lua_Integer i)
{
    lua_rawgeti(L, table, i);
    u32 v = (u32)lua_tointeger(L, -1);
    lua_pop(L, 1);
    return v;
}

void lua_render(Graph *g, const char *tmpl, Text *out, LineMap *map)
{
    lua_State *L = state(g);
    int top = lua_gettop(L);
    const char *path = arena_fmt(g->arena, "templates/%s.lt", tmpl);
    u64 n = 0;
    const char *src = asset_read(g->arena, path, &n);
    if (!src)
        fail(g, (Loc){0}, CODE_TEMPLATE, "%s is missing", path);
    push_module(g, "generator/lib/template.lua");
    lua_pushlstring(L, src, n);
    lua_pushstring(L, path);
    lua_getfield(L, LUA_REGISTRYINDEX, SNAPSHOT);
    if (lua_pcall(L, 3, 3, 0))
        fail_lua(g, L, (Loc){0}, CODE_TEMPLATE);
    text_put(g->arena, out, lua_tostring(L, top + 1));
    if (map) {
        for (lua_Integer i = 1, m = (lua_Integer)lua_rawlen(L, top + 2); i <= m; i++)
            vec_push(g->arena, map, (MapLine){int_at(L, top + 2, i), int_at(L, top + 3, i)});
    }
    lua_settop(L, top);
}

/* ==== kernel blocks =========================================================================== */

static Sym field_sym(Graph *g, lua_State *L, Loc loc, const char *key)
{
    if (lua_getfield(L, -1, key) != LUA_TSTRING)
        fail(g, loc, CODE_BLOCK, "kernel block: `%s` must be a string", key);
    Sym s = sym(g, lua_tostring(L, -1));
    lua_pop(L, 1);
    return s;
}

/* text: the inside of a block. It is a list of fields, evaluated without any library. */
void lua_kern_add(Graph *g, Loc loc, const char *target, const char *text, u64 n)
{
    lua_State *L = state(g);
    const char *src = arena_fmt(g->arena, "return {%.*s}", (int)n, text);
    const char *name = arena_fmt(g->arena, "=%s", sym_str(g, loc.file));
    if (luaL_loadbufferx(L, src, strlen(src), name, "t"))
        fail_lua(g, L, loc, CODE_BLOCK);
    lua_newtable(L);
    lua_setupvalue(L, -2, 1);
    if (lua_pcall(L, 0, 1, 0))
        fail_lua(g, L, loc, CODE_BLOCK);
    Kern k = {.file = loc.file, .target = sym(g, target)};
    k.name = field_sym(g, L, loc, "name");
    k.op = field_sym(g, L, loc, "op");
    k.lua = luaL_ref(L, LUA_REGISTRYINDEX);
    vec_push(g->arena, &g->kern, k);
}

/* ---- names of operands and dims, from the signature ------------------------------------------ */

static bool is_dots(const Graph *g, const SigPort *p, u32 i)
{
    return p->dim[i].n == 1 && !strcmp(sym_str(g, p->dim[i].part[0]), "..");
}

/* The signature's name of dim i of an operand of this rank; NULL if it has none. Dims in front of
 * ".." count from the left, dims behind it from the right. */
static const char *sig_dim_name(const Graph *g, const SigPort *p, u32 rank, u32 i)
{
    u32 dots = 0;
    while (p && dots < p->n && !is_dots(g, p, dots))
        dots++;
    if (!p || (dots == p->n && rank != p->n) || rank + 1 < p->n)
        return NULL;
    u32 behind = dots < p->n ? p->n - dots - 1 : 0;
    u32 at = i < dots ? i : i >= rank - behind ? i + p->n - rank : UINT32_MAX;
    return at < p->n && p->dim[at].n == 1 ? sym_str(g, p->dim[at].part[0]) : NULL;
}

static const SigPort *sig_port(const Op *op, bool in, u32 i)
{
    if (!op->sig)
        return NULL;
    if (in)
        return i < op->sig->in.n ? &op->sig->in.at[i] : NULL;
    return i < op->sig->out.n ? &op->sig->out.at[i] : NULL;
}

/* ---- what an expression of a block sees ------------------------------------------------------ */

static int fn_field(lua_State *L) /* elems(x), bytes(x), ctype(x): stored in the operand's table */
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, lua_tostring(L, lua_upvalueindex(1)));
    return 1;
}

/* dense(x, i): the stride of dim i of 8, counted from the outermost, if x were dense. */
static int fn_dense(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer at = luaL_checkinteger(L, 2), stride = 1;
    lua_getfield(L, 1, "rank");
    lua_Integer rank = lua_tointeger(L, -1);
    lua_getfield(L, 1, "size");
    for (lua_Integer i = 7; i > at; i--) {
        if (lua_rawgeti(L, -1, rank - 7 + i) == LUA_TNUMBER)
            stride *= lua_tointeger(L, -1);
        lua_pop(L, 1);
    }
    lua_pushinteger(L, stride);
    return 1;
}

static const char *const ctypes[DT_COUNT] = {
    [DT_F64] = "double",   [DT_F32] = "float",    [DT_BF16] = "bf16",   [DT_F16] = "uint16_t",
    [DT_E4M3] = "uint8_t", [DT_E5M2] = "uint8_t", [DT_I64] = "int64_t", [DT_I32] = "int32_t",
    [DT_U32] = "uint32_t", [DT_U16] = "uint16_t", [DT_U8] = "uint8_t",  [DT_BOOL] = "uint8_t",
};

const char *dtype_ctype(u8 dt)
{
    assert(dt < DT_COUNT && ctypes[dt] && "a dtype that C text can name");
    return ctypes[dt];
}

/* Kernel files paste the type into names of their functions: bf16 has its own there. */
static const char *kernel_ctype(u8 dt)
{
    return dt == DT_BF16 ? "bf16" : dtype_ctype(dt);
}

static void push_value(Graph *g, lua_State *L, u32 value, const SigPort *port)
{
    const Value *v = &g->value.at[value];
    lua_newtable(L);
    lua_pushstring(L, dtype_name(v->type.dtype));
    lua_setfield(L, -2, "dtype");
    lua_pushstring(L, kernel_ctype(v->type.dtype));
    lua_setfield(L, -2, "ctype");
    lua_pushinteger(L, (lua_Integer)type_elems(g, &v->type));
    lua_setfield(L, -2, "elems");
    lua_pushinteger(L, (lua_Integer)type_bytes(g, &v->type));
    lua_setfield(L, -2, "bytes");
    lua_pushinteger(L, v->type.rank);
    lua_setfield(L, -2, "rank");
    lua_pushboolean(L, value_dense(g, value));
    lua_setfield(L, -2, "dense");
    lua_newtable(L); /* size, stride */
    lua_newtable(L);
    for (u32 i = 0; i < v->type.rank; i++) {
        u32 dim = v->type.dim[i];
        const char *key[2] = {sym_str(g, g->dim.at[dim].name),
                              sig_dim_name(g, port, v->type.rank, i)};
        for (u32 k = 0; k < 2; k++) {
            if (!key[k])
                continue;
            lua_pushinteger(L, dim_mem(g, dim));
            lua_setfield(L, -3, key[k]);
            lua_pushinteger(L, v->stride[i]);
            lua_setfield(L, -2, key[k]);
        }
        lua_pushinteger(L, dim_mem(g, dim));
        lua_rawseti(L, -3, i + 1);
        lua_pushinteger(L, v->stride[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -3, "stride");
    lua_setfield(L, -2, "size");
}

static void push_attr(Graph *g, lua_State *L, const Attr *a)
{
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
        lua_pushstring(L, sym_str(g, g->dim.at[a->dim[0]].name));
        break;
    default:
        lua_newtable(L);
        for (u32 i = 0; i < a->n; i++) {
            if (a->kind == AT_DIMS)
                lua_pushstring(L, sym_str(g, g->dim.at[a->dim[i]].name));
            else
                lua_pushnumber(L, a->nums[i]);
            lua_rawseti(L, -2, i + 1);
        }
    }
}

/* What a matmul block sees besides: C[M N] = op(A)[M K] op(B)[K N], its operands also as a and b.
 */
static void push_gemm(Graph *g, lua_State *L, u32 node)
{
    Gemm m;
    if (!gemm_shape(g, node, &m))
        return;
    const struct {
        const char *key;
        i64 v;
    } field[] = {{"M", m.m},     {"N", m.n},     {"K", m.k},   {"LDA", m.lda},
                 {"LDB", m.ldb}, {"LDC", m.ldc}, {"TA", m.ta}, {"TB", m.tb}};
    for (u32 i = 0; i < sizeof field / sizeof *field; i++) {
        lua_pushinteger(L, field[i].v);
        lua_setfield(L, -2, field[i].key);
    }
    lua_getfield(L, -1, "x");
    lua_setfield(L, -2, "a");
    lua_getfield(L, -1, "w");
    lua_setfield(L, -2, "b");
}

/* The names that `when` and `const` of a block may use, as a table on top of the stack. */
static void push_scope(Graph *g, lua_State *L, u32 node)
{
    static const char *const fn[] = {"elems", "bytes", "ctype", "rank"};
    const Node *n = &g->node.at[node];
    const Op *op = &g->op.at[n->op];
    lua_newtable(L);
    for (u32 i = 0; i < sizeof fn / sizeof *fn; i++) {
        lua_pushstring(L, fn[i]);
        lua_pushcclosure(L, fn_field, 1);
        lua_setfield(L, -2, fn[i]);
    }
    lua_pushcfunction(L, fn_dense);
    lua_setfield(L, -2, "dense");
    if (n->formal) { /* read, write, accum: the variable */
        u8 dt = g->func.at[n->func].formal.at[n->formal - 1].type.dtype;
        lua_newtable(L);
        lua_pushstring(L, dtype_name(dt));
        lua_setfield(L, -2, "dtype");
        lua_pushstring(L, kernel_ctype(dt));
        lua_setfield(L, -2, "ctype");
        lua_setfield(L, -2, "var");
    }
    for (u32 i = 0; i < n->nattr; i++) {
        const Attr *a = &g->attr.at[n->attr + i];
        push_attr(g, L, a);
        lua_setfield(L, -2, sym_str(g, a->key));
    }
    lua_newtable(L); /* size.d: of the first operand that has d */
    for (u32 i = 0; i < n->nin + n->nout; i++) {
        bool in = i < n->nin;
        const SigPort *port = sig_port(op, in, in ? i : i - n->nin);
        u32 v = in ? g->arg.at[n->in + i] : n->out + i - n->nin;
        const Type *t = &g->value.at[v].type;
        for (u32 d = 0; d < t->rank; d++) {
            const char *key[2] = {sym_str(g, g->dim.at[t->dim[d]].name),
                                  sig_dim_name(g, port, t->rank, d)};
            for (u32 k = 0; k < 2; k++) {
                if (key[k] && lua_getfield(L, -1, key[k]) == LUA_TNIL) {
                    lua_pushinteger(L, dim_mem(g, t->dim[d]));
                    lua_setfield(L, -3, key[k]);
                }
                if (key[k])
                    lua_pop(L, 1);
            }
        }
        push_value(g, L, v, port);
        lua_setfield(L, -3,
                     port ? sym_str(g, port->name)
                          : arena_fmt(g->arena, "%s%u", in ? "in" : "out", in ? i : i - n->nin));
    }
    lua_setfield(L, -2, "size");
    if (!strcmp(sym_str(g, op->name), "matmul"))
        push_gemm(g, L, node);
    lua_pushstring(L, sym_str(g, g->cfg.cpu));
    lua_setfield(L, -2, "cpu");
    lua_pushboolean(L, node_adds(g, node));
    lua_setfield(L, -2, "accum");
}

/* Evaluate text over the scope at stack index `scope`; the value is pushed. */
static void eval(Graph *g, lua_State *L, const Kern *k, Loc loc, const char *text, int scope)
{
    const char *src = arena_fmt(g->arena, "return %s", text);
    const char *name = arena_fmt(g->arena, "=%s", sym_str(g, k->file));
    if (luaL_loadbufferx(L, src, strlen(src), name, "t"))
        fail_lua(g, L, loc, CODE_BLOCK);
    lua_pushvalue(L, scope);
    lua_setupvalue(L, -2, 1);
    if (lua_pcall(L, 0, 1, 0))
        fail_lua(g, L, loc, CODE_BLOCK);
}

/* A #define's text: integers as they are, other numbers as hex floats, truth as 1 and 0. */
static Sym constant(Graph *g, lua_State *L, const Kern *k, Loc loc, const char *key)
{
    switch (lua_type(L, -1)) {
    case LUA_TNUMBER:
        if (lua_isinteger(L, -1))
            return sym_fmt(g, "%lld", (long long)lua_tointeger(L, -1));
        return sym_fmt(g, "%a", lua_tonumber(L, -1));
    case LUA_TBOOLEAN:
        return sym(g, lua_toboolean(L, -1) ? "1" : "0");
    case LUA_TSTRING:
        return sym(g, lua_tostring(L, -1));
    default:
        fail(g, loc, CODE_BLOCK, "kernel %s: constant %s is a %s", sym_str(g, k->name), key,
             luaL_typename(L, -1));
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Fill inst with the constants of the block on top of the stack, in the order of their names. */
static void bind(Graph *g, lua_State *L, const Kern *k, Loc loc, int scope, u32 inst)
{
    VEC(const char *) key = {0};
    if (lua_getfield(L, -1, "const") != LUA_TTABLE)
        fail(g, loc, CODE_BLOCK, "kernel %s: `const` must be a table", sym_str(g, k->name));
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            fail(g, loc, CODE_BLOCK, "kernel %s: `const` needs names", sym_str(g, k->name));
        vec_push(g->arena, &key, sym_str(g, sym(g, lua_tostring(L, -2))));
    }
    if (key.n)
        qsort(key.at, key.n, sizeof *key.at, by_name);
    for (u32 i = 0; i < key.n; i++) {
        lua_getfield(L, -1, key.at[i]);
        if (lua_type(L, -1) == LUA_TSTRING) {
            eval(g, L, k, loc, lua_tostring(L, -1), scope);
            lua_remove(L, -2);
        }
        Sym value = constant(g, L, k, loc, key.at[i]);
        lua_pop(L, 1);
        vec_push(g->arena, &g->inst.at[inst].key, sym(g, key.at[i]));
        vec_push(g->arena, &g->inst.at[inst].value, value);
    }
    lua_pop(L, 1);
}

bool lua_kern_match(Graph *g, u32 kern, u32 node, u32 inst)
{
    lua_State *L = state(g);
    int top = lua_gettop(L);
    Kern k = g->kern.at[kern];
    Loc loc = {.file = k.file, .line = 1};
    push_scope(g, L, node);
    lua_rawgeti(L, LUA_REGISTRYINDEX, k.lua);
    bool yes = true;
    if (lua_getfield(L, -1, "when") == LUA_TSTRING) {
        eval(g, L, &k, loc, lua_tostring(L, -1), top + 1);
        yes = lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    if (yes)
        bind(g, L, &k, loc, top + 1, inst);
    lua_settop(L, top);
    return yes;
}
