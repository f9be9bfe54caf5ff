/* unit_ops.c: every op of generator/rules against its own `ref` (generator/lib/interp.lua).
 *
 * The checks are tests/ops.lua; this file gives it what they need of the generator: a Func of one
 * op goes through fuse and tune, the text of its kernels is compiled, loaded and run. Names of ops
 * as arguments: only those. MEGAGEN_HOME chooses another tree with other rules
 * (tests/mutate_ops.test.sh).
 */
#include "megagen.h"
#include "../runtime/mg.h"

#include <dlfcn.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mgk.h"

enum { PORTS = 24, PROGRAMS = 512 };

typedef struct {
    u32 func, in[PORTS], nin;
    bool accum; /* results are added to variables */
} Program;

static Graph *g;
static Program prog[PROGRAMS];
static u32 nprog;
static void *so;
static jmp_buf trap;

static const mg_scalar scalars = {
    .step = 3, .lr = 0.1, .wd = 0.3, .clip = 0.7, .gscale = 0.25, .seed = 99, .pos = 2};

/* ---- programs -------------------------------------------------------------------------------- */

/* A flat arena of weights for group(): 1, 0 and 1 again. */
static void add_flat(i64 n)
{
    static const i64 start[] = {0, 64, 192};
    Flat f = {.name = sym(g, "weight"), .kind = VAR_WEIGHT, .elems = (u64)n};
    for (u32 i = 0; i < 3; i++) {
        Var v = {.path = sym_fmt(g, "w%u", i), .kind = VAR_WEIGHT, .elem = (u64)start[i]};
        v.group = sym(g, i == 1 ? "plain" : "decay");
        vec_push(g->arena, &g->var, v);
        vec_push(g->arena, &f.var, g->var.n - 1);
    }
    vec_push(g->arena, &g->flat, f);
}

/* open(dtype, elements of the flat arena) */
static int l_open(lua_State *L)
{
    g = graph_new();
    g->on_fail = &trap;
    lua_open(g);
    g->cfg.fuse = true;
    g->cfg.compute = strcmp(luaL_checkstring(L, 1), "f64") ? DT_F32 : DT_F64;
    g->cfg.seq = 5;
    add_flat(luaL_checkinteger(L, 2));
    nprog = 0;
    return 0;
}

static u8 dtype_of(const char *s)
{
    return !strcmp(s, "i32") ? DT_I32 : !strcmp(s, "f64") ? DT_F64 : DT_F32;
}

/* { dtype = "f32", { "b", 2 }, ... } on top of the stack */
static Type type_arg(lua_State *L)
{
    Type t = {0};
    lua_getfield(L, -1, "dtype");
    t.dtype = dtype_of(luaL_checkstring(L, -1));
    lua_pop(L, 1);
    t.rank = (u8)lua_rawlen(L, -1);
    for (u32 i = 0; i < t.rank; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i + 1);
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        t.dim[i] = dim_add(g, lua_tostring(L, -2), luaL_checkinteger(L, -1));
        lua_pop(L, 3);
    }
    return t;
}

/* Attributes: { { key, number, dim's size or nil }, ... } at index i of the stack. */
static u32 attrs_arg(lua_State *L, int at, Attr *attr)
{
    u32 n = (u32)lua_rawlen(L, at);
    for (u32 i = 0; i < n; i++) {
        lua_rawgeti(L, at, (lua_Integer)i + 1);
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        Sym key = sym(g, lua_tostring(L, -2));
        bool dim = lua_rawlen(L, -3) == 3;
        attr[i] = dim ? attr_dim(key, dim_add(g, sym_str(g, key), lua_tointeger(L, -1)))
                  : lua_isinteger(L, -1) ? attr_int(key, lua_tointeger(L, -1))
                                         : attr_num(key, lua_tonumber(L, -1));
        lua_pop(L, 3);
    }
    return n;
}

static u32 types_arg(lua_State *L, int at, Type *type, bool *absent)
{
    u32 n = lua_istable(L, at) ? (u32)lua_rawlen(L, at) : 0;
    for (u32 i = 0; i < n; i++) {
        lua_rawgeti(L, at, (lua_Integer)i + 1);
        absent[i] = !lua_istable(L, -1);
        type[i] = absent[i] ? (Type){0} : type_arg(L);
        lua_pop(L, 1);
    }
    return n;
}

static void add_results(Program *p, u32 node)
{
    for (u32 i = 0; i < g->node.at[node].nout; i++) {
        u32 v = g->node.at[node].out + i;
        if (p->accum) {
            Sym name = sym_fmt(g, "w%u.grad", i);
            node_accum(g, p->func, formal_find(g, p->func, name, g->value.at[v].type, VAR_ACCUM),
                       v);
        } else {
            vec_push(g->arena, &g->func.at[p->func].out, v);
        }
    }
}

/* add(op, operand types, attributes, result types or nil, accumulate) -> program */
static int l_add(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    Program *p = &prog[nprog];
    Type type[PORTS], out[PORTS];
    bool absent[PORTS];
    Attr attr[PORTS];
    u32 arg[PORTS], op = op_find(g, name);
    if (!op || nprog + 1 == PROGRAMS)
        return luaL_error(L, "no op %s", name);
    p->func = func_add(g, sym_fmt(g, "f%u", nprog), ROLE_FWD);
    u32 nin = types_arg(L, 2, type, absent);
    p->nin = 0;
    for (u32 i = 0; i < nin; i++) {
        arg[i] = absent[i] ? 0 : func_input(g, p->func, type[i], sym_fmt(g, "x%u", i));
        if (arg[i])
            p->in[p->nin++] = arg[i];
    }
    u32 nattr = attrs_arg(L, 3, attr), nout = types_arg(L, 4, out, absent);
    u32 node = nout ? node_add_typed(g, p->func, op, arg, nin, attr, nattr, out, nout)
                    : node_add(g, p->func, op, arg, nin, attr, nattr);
    g->node.at[node].path = sym(g, "m");
    p->accum = lua_toboolean(L, 5);
    add_results(p, node);
    lua_pushinteger(L, (lua_Integer)nprog++);
    return 1;
}

/* derive(op) -> name, from, to: Op.from and Op.to */
static int l_derive(lua_State *L)
{
    u32 id = body_derive(g, op_find(g, luaL_checkstring(L, 1)));
    const Op *op = &g->op.at[id];
    lua_pushstring(L, sym_str(g, op->name));
    lua_newtable(L);
    for (u32 i = 0; i < op->from.n; i++) {
        lua_pushinteger(L, op->from.at[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_newtable(L);
    for (u32 i = 0; i < op->to.n; i++) {
        lua_pushinteger(L, op->to.at[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 3;
}

/* whole(op) -> set of the dims that its body sums or numbers along; nil without a body */
static int l_whole(lua_State *L)
{
    const Body *b = g->op.at[op_find(g, luaL_checkstring(L, 1))].body;
    if (!b)
        return 0;
    lua_newtable(L);
    for (u32 i = 1; i < b->node.n; i++) {
        const BodyNode *n = &b->node.at[i];
        u32 over = body_reduces(n->fn) || n->fn == BF_INDEX || n->fn == BF_SIZE ? n->over : 0;
        for (u32 k = 0; k < b->ndim; k++) {
            if (over & (1u << k)) {
                lua_pushboolean(L, 1);
                lua_setfield(L, -2, sym_str(g, b->dim[k].name));
            }
        }
    }
    return 1;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void kernel_text(Text *t, u32 node, const char *name)
{
    const Inst *x = &g->inst.at[g->node.at[node].kern];
    if (!x->kern) {
        loopgen_node(g, node, name, t);
        return;
    }
    const Kern *k = &g->kern.at[x->kern];
    text_fmt(g->arena, t, "#define %s %s\n", sym_str(g, k->name), name);
    for (u32 i = 0; i < x->key.n; i++)
        text_fmt(g->arena, t, "#define %s %s\n", sym_str(g, x->key.at[i]),
                 sym_str(g, x->value.at[i]));
    text_fmt(g->arena, t, "#include \"%s\"\n", sym_str(g, k->file) + strlen("kernels/"));
}

static void program_text(Text *t, u32 k)
{
    const Func *f = &g->func.at[prog[k].func];
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        const char *name = arena_fmt(g->arena, "p%u_%u", k, i);
        if (!n->kern || node_is(g, f->node.at[i], "accum"))
            continue;
        kernel_text(t, f->node.at[i], name);
        text_fmt(g->arena, t,
                 "\nvoid call_%s(mg_ctx *c, void **p);\nvoid call_%s(mg_ctx *c, void **p)\n{\n"
                 "    (void)p;\n    %s(c",
                 name, name, name);
        for (u32 a = 0; a < n->nout; a++)
            text_fmt(g->arena, t, ", p[%u]", a);
        for (u32 a = 0; a < n->nin; a++) {
            if (g->arg.at[n->in + a])
                text_fmt(g->arena, t, ", p[%u]", n->nout + a);
        }
        bool rand = n->body && body_has_rand(g->body.at[n->body]);
        const char *beta = node_adds(g, f->node.at[i]) ? ", c->scalar.micro" : "";
        text_fmt(g->arena, t, "%s%s);\n}\n\n", beta, rand ? ", 7" : "");
    }
}

static const char head[] =
    "#define MG_KERNEL static __attribute__((unused))\n"
    "#include \"mg.h\"\n#include \"mgk.h\"\n"
    "#define mg_par own_par\n#define mg_workers own_workers\n#define mg_scratch own_scratch\n"
    "static inline void own_par(mg_ctx *c, int parts, void (*fn)(void *arg, int part), void *arg)\n"
    "{\n    (void)c;\n    while (parts--)\n        fn(arg, parts);\n}\n"
    "static inline int own_workers(const mg_ctx *c)\n{\n    (void)c;\n    return 1;\n}\n"
    "static inline void *own_scratch(mg_ctx *c)\n{\n    (void)c;\n"
    "    static char at[MG_SCRATCH_BYTES] __attribute__((aligned(4096)));\n    return at;\n}\n\n";

/* compile(): everything that was added, as one shared object */
static int l_compile(lua_State *L)
{
    char dir[] = "./build/unit_ops.dXXXXXX", cmd[1024];
    Text t = {0};
    pass_fuse(g);
    pass_tune(g);
    text_put(g->arena, &t, head);
    for (u32 k = 0; k < nprog; k++)
        program_text(&t, k);
    if (!mkdtemp(dir))
        return luaL_error(L, "no folder");
    snprintf(cmd, sizeof cmd, "%s/ops.c", dir);
    file_write_changed(cmd, text_str(g->arena, &t), t.n);
    const char *cc = getenv("CC"), *home = getenv("MEGAGEN_HOME");
    snprintf(cmd, sizeof cmd,
             "%s -O1 -std=gnu11 -D_GNU_SOURCE -march=native -ffp-contract=off -Wno-psabi -fPIC "
             "-shared -I. -Iruntime -I%s/kernels -I%s/kernels/cpu -o %s/ops.so %s/ops.c "
             "-DMG_ISA=%s kernels/cpu/micro.c",
             cc ? cc : "cc", home ? home : ".", home ? home : ".", dir, dir, cpu_detect());
    int rc = system(cmd);
    snprintf(cmd, sizeof cmd, "%s/ops.so", dir);
    so = rc ? NULL : dlopen(cmd, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return luaL_error(L, "does not compile or load: %s %s", dir, rc ? "" : dlerror());
    snprintf(cmd, sizeof cmd, "rm -r %s", dir);
    return system(cmd) ? luaL_error(L, "cannot remove %s", dir) : 0;
}

/* ---- run ------------------------------------------------------------------------------------- */

static u64 elems(u32 v)
{
    const Type *t = &g->value.at[v].type;
    u64 n = 1;
    for (u32 k = 0; k < t->rank; k++)
        n *= (u64)g->dim.at[t->dim[k]].size;
    return n;
}

static f64 get(const void *p, u8 dtype, u64 i)
{
    return dtype == DT_F64   ? ((const f64 *)p)[i]
           : dtype == DT_I32 ? (f64)((const i32 *)p)[i]
                             : (f64)((const float *)p)[i];
}

static void set(void *p, u8 dtype, u64 i, f64 x)
{
    if (dtype == DT_F64)
        ((f64 *)p)[i] = x;
    else if (dtype == DT_I32)
        ((i32 *)p)[i] = (i32)x;
    else
        ((float *)p)[i] = (float)x;
}

static void call(const Program *p, u32 k, void **mem, bool beta)
{
    const Func *f = &g->func.at[p->func];
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        const Body *b = n->body ? g->body.at[n->body] : NULL;
        char name[64];
        void *ptr[2 * PORTS] = {0};
        for (u32 a = 0; a < n->nin; a++)
            ptr[n->nout + a] = mem[g->arg.at[n->in + a]];
        for (u32 a = 0; a < n->nout; a++) {
            if (b && b->out.at[a].inplace) /* take the offer */
                mem[n->out + a] = ptr[n->nout + (u32)b->out.at[a].inplace - 1];
            ptr[a] = mem[n->out + a];
        }
        snprintf(name, sizeof name, "call_p%u_%u", k, i);
        void (*fn)(mg_ctx *, void **);
        *(void **)&fn = dlsym(so, name);
        mg_ctx c = {.scalar = scalars};
        c.scalar.micro = beta;
        if (fn)
            fn(&c, ptr);
    }
}

/* The values whose content is the results of p: outs, or what its producer adds to a variable. */
static u32 results(const Program *p, u32 *value)
{
    const Func *f = &g->func.at[p->func];
    u32 n = 0;
    for (u32 i = 0; !p->accum && i < f->out.n; i++)
        value[n++] = f->out.at[i];
    for (u32 i = 0; p->accum && i < f->node.n; i++) {
        u32 node = f->node.at[i], v = g->arg.at[g->node.at[node].in];
        if (node_is(g, node, "accum"))
            value[n++] = value_sink(g, v) == node ? v : 0; /* 0: a copy adds, another kernel */
    }
    return n;
}

static void put_list(lua_State *L, void *mem, u32 v)
{
    for (u64 e = 0; e < elems(v); e++) {
        lua_rawgeti(L, -1, (lua_Integer)e + 1);
        set(mem, g->value.at[v].type.dtype, e, lua_tonumber(L, -1));
        lua_pop(L, 1);
    }
}

/* run(program, flat lists of the operands that are there, lists to add to or nil) -> flat lists of
 * the results, false for those that no kernel of the program adds itself */
static int l_run(lua_State *L)
{
    u32 k = (u32)luaL_checkinteger(L, 1), first = g->value.n, last = 0;
    const Program *p = &prog[k];
    void **mem = calloc(g->value.n, sizeof *mem), **own = calloc(g->value.n, sizeof *own);
    for (u32 v = 1; v < g->value.n; v++) {
        if (g->value.at[v].func != p->func)
            continue;
        first = v < first ? v : first;
        last = v;
        own[v] = mem[v] = aligned_alloc(64, (elems(v) * 8 + 1024) / 64 * 64);
        memset(mem[v], 0xff, (elems(v) * 8 + 1024) / 64 * 64); /* NaN: what is not written shows */
    }
    for (u32 i = 0; i < p->nin; i++) {
        lua_rawgeti(L, 2, (lua_Integer)i + 1);
        put_list(L, mem[p->in[i]], p->in[i]);
        lua_pop(L, 1);
    }
    u32 out[PORTS], nout = results(p, out);
    for (u32 i = 0; lua_istable(L, 3) && i < nout; i++) {
        lua_rawgeti(L, 3, (lua_Integer)i + 1);
        if (out[i])
            put_list(L, mem[out[i]], out[i]);
        lua_pop(L, 1);
    }
    call(p, k, mem, lua_istable(L, 3));
    lua_newtable(L);
    for (u32 i = 0; i < nout; i++) {
        u32 v = out[i];
        if (!v) {
            lua_pushboolean(L, 0);
            lua_rawseti(L, -2, (lua_Integer)i + 1);
            continue;
        }
        lua_newtable(L);
        for (u64 e = 0; e < elems(v); e++) {
            lua_pushnumber(L, get(mem[v], g->value.at[v].type.dtype, e));
            lua_rawseti(L, -2, (lua_Integer)e + 1);
        }
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    for (u32 v = first; v <= last && last; v++)
        free(own[v]);
    free(own);
    free(mem);
    return 1;
}

/* bits(element): what rand(site) of op node "m" draws, by the definition */
static int l_bits(lua_State *L)
{
    static const char site[] = "m/site";
    u32 s = 7 ^ (u32)hash_bytes(site, strlen(site), 0);
    lua_pushinteger(L,
                    mgk_rand(scalars.seed, s, (u64)luaL_checkinteger(L, 1), (u32)scalars.step, 0));
    return 1;
}

static int l_asset(lua_State *L)
{
    Arena *a = arena_new();
    u64 n = 0;
    const char *text = asset_read(a, luaL_checkstring(L, 1), &n);
    if (!text)
        return luaL_error(L, "no file %s", lua_tostring(L, 1));
    lua_pushlstring(L, text, n);
    arena_free(a);
    return 1;
}

/* rules(): the paths of all files of op blocks */
static int l_rules(lua_State *L)
{
    Arena *a = arena_new();
    const char **path;
    u32 n = asset_list(a, "generator/rules", ".lua", &path);
    lua_newtable(L);
    for (u32 i = 0; i < n; i++) {
        lua_pushstring(L, path[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    arena_free(a);
    return 1;
}

static const luaL_Reg door[] = {{"open", l_open},   {"add", l_add},     {"derive", l_derive},
                                {"whole", l_whole}, {"run", l_run},     {"compile", l_compile},
                                {"bits", l_bits},   {"asset", l_asset}, {"rules", l_rules},
                                {NULL, NULL}};

static void push_scalars(lua_State *L)
{
    lua_newtable(L);
    lua_pushnumber(L, scalars.step), lua_setfield(L, -2, "step");
    lua_pushnumber(L, scalars.lr), lua_setfield(L, -2, "lr");
    lua_pushnumber(L, scalars.wd), lua_setfield(L, -2, "wd");
    lua_pushnumber(L, scalars.clip), lua_setfield(L, -2, "clip");
    lua_pushnumber(L, scalars.gscale), lua_setfield(L, -2, "gscale");
    lua_pushinteger(L, scalars.pos), lua_setfield(L, -2, "pos");
}

int main(int argc, char **argv)
{
    lua_State *const L = luaL_newstate();
    luaL_openlibs(L);
    luaL_newlib(L, door);
    push_scalars(L);
    lua_setfield(L, -2, "scalar");
    lua_setglobal(L, "gen");
    lua_newtable(L);
    for (int i = 1; i < argc; i++) {
        lua_pushboolean(L, 1);
        lua_setfield(L, -2, argv[i]);
    }
    lua_setglobal(L, "only");
    if (setjmp(trap))
        return 1; /* the generator refused and said why */
    if (luaL_dofile(L, "tests/ops.lua")) {
        printf("%s\n", lua_tostring(L, -1));
        return 1;
    }
    int bad = (int)lua_tointeger(L, -1);
    lua_close(L);
    return bad != 0;
}
