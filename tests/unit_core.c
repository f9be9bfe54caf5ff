/* unit_core.c: memory, strings, diagnostics, signatures and type rules, graph building and walking.
 * The text form and verify have their programs in tests/pass/paper, their garbage in fuzz.test.sh.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail /* ours has arguments */
#define fail_text(...)                                                                             \
    do {                                                                                           \
        print_error(__VA_ARGS__);                                                                  \
        _fail(__FILE__, __LINE__);                                                                 \
    } while (0)

#include "megagen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- memory and strings ---------------------------------------------------------------------- */

static void test_memory(void **state)
{
    (void)state;
    Arena *a = arena_new();
    for (u64 i = 0; i < 200; i++) {
        u64 n = i * i * 7;
        u8 *p = arena_alloc(a, n);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (u64 k = 0; k < n; k++) {
            assert_int_equal(p[k], 0);
        }
        memset(p, 0xFF, n);
    }
    VEC(u32) v = {0};
    for (u32 i = 0; i < 1000; i++) {
        vec_push(a, &v, i);
    }
    for (u32 i = 0; i < 1000; i++) {
        assert_int_equal(v.at[i], i);
    }
    Text t = {0};
    for (int i = 0; i < 300; i++) {
        text_fmt(a, &t, "%d,", i);
        text_put(a, &t, "x");
    }
    assert_int_equal(strncmp(text_str(a, &t), "0,x1,x2,x", 9), 0);
    assert_int_equal(strlen(text_str(a, &t)), t.n);
    assert_string_equal(arena_fmt(a, "%s-%d", "a", 7), "a-7");
    arena_free(a);
}

static void test_syms(void **state)
{
    (void)state;
    Graph *g = graph_new();
    assert_int_equal(sym(g, ""), 0);
    assert_string_equal(sym_str(g, 0), "");
    Sym id[3000];
    for (int i = 0; i < 3000; i++) {
        id[i] = sym_fmt(g, "name%d", i);
    }
    for (int i = 0; i < 3000; i++) {
        char s[20];
        snprintf(s, sizeof s, "name%d", i);
        assert_int_equal(sym(g, s), id[i]);
        assert_string_equal(sym_str(g, id[i]), s);
        assert_int_equal(sym_n(g, "name12345", 5), sym(g, "name1"));
    }
    /* stable across machines: the published value of XXH3 for no bytes */
    assert_true(hash_bytes("", 0, 0) == 0x2D06800538D394C2u);
    arena_free(g->arena);
}

static void test_files(void **state)
{
    (void)state;
    char path[] = "/tmp/megagen-core.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    Arena *a = arena_new();
    char *data;
    u64 n;
    assert_int_equal(file_write_changed(path, "a\0b", 3), 1);
    assert_int_equal(file_write_changed(path, "a\0b", 3), 0);
    assert_int_equal(file_write_changed(path, "a\0c", 3), 1);
    assert_int_equal(file_write_changed(path, "a", 1), 1);
    assert_int_equal(file_read(a, path, &data, &n), 0);
    assert_int_equal(n, 1);
    assert_string_equal(data, "a");
    remove(path);
    assert_true(file_read(a, path, &data, &n) > 0);
    assert_true(file_write_changed("/no/such/folder/x", "a", 1) < 0);
    arena_free(a);
}

static void test_dtypes(void **state)
{
    (void)state;
    for (u8 i = 1; i < DT_COUNT; i++) {
        assert_int_equal(dtype_parse(dtype_name(i)), i);
    }
    assert_int_equal(dtype_parse("float"), DT_NONE);
    assert_int_equal(dtype_size(DT_BF16), 2);
    assert_int_equal(dtype_size(DT_I64), 8);
}

/* ---- what fail() says ------------------------------------------------------------------------ */

/* Runs f(g, arg); returns what it printed before it failed, NULL if it did not fail. */
static char said[4096];
static const char *failure(Graph *g, void (*f)(Graph *, const void *), const void *arg)
{
    FILE *log = tmpfile();
    assert_non_null(log);
    fflush(stderr);
    int old = dup(2);
    dup2(fileno(log), 2);
    jmp_buf trap;
    g->on_fail = &trap;
    volatile bool failed = true;
    if (setjmp(trap) == 0) {
        f(g, arg);
        failed = false;
    }
    fflush(stderr);
    dup2(old, 2);
    close(old);
    rewind(log);
    said[fread(said, 1, sizeof said - 1, log)] = 0;
    fclose(log);
    return failed ? said : NULL;
}

static void fail_here(Graph *g, const void *arg)
{
    (void)arg;
    fail(g, (Loc){sym(g, __FILE__), 1, 4}, 312, "k differs, %d and %d\nhelp: make them equal", 3,
         4);
}

static void test_fail(void **state)
{
    (void)state;
    Graph *g = graph_new();
    const char *s = failure(g, fail_here, NULL);
    assert_non_null(s);
    assert_non_null(strstr(s, "unit_core.c:1:4: error[E0312]: k differs, 3 and 4\n"));
    assert_non_null(strstr(s, "    1 | /* unit_core.c: memory"));
    assert_non_null(strstr(s, "\n      |    ^\n  help: make them equal\n"));
    assert_int_equal(g->exit, 1);
    arena_free(g->arena);
}

/* ---- signatures ------------------------------------------------------------------------------ */

typedef struct {
    const char *sig, *in; /* operand types, separated by blanks; "_" an absent one */
    const char *attr;     /* one attribute key=dim, or sum=dims */
    const char *out;      /* result types, or "! what the message contains" */
} SigCase;

static const SigCase sig_cases[] = {
    {"x[.. d], w[d] -> y[.. d], saved r[..]:f32", "f[b,s,d] f[d]", "", "f[b s d] f32[b s]"},
    {"x[.. d], w[d] -> y[.. d], saved r[..]:f32", "f64[b,d] f64[d]", "", "f64[b d] f64[b]"},
    {"x[.. d], w[d] -> y[.. d]", "bf16[d] f32[d]", "", "bf16[d]"},
    {"x[.. d], w[d] -> y[.. d]", "f[b,s,d] f[f]", "", "! `d` differs, d=8 in x (%1) and f=16 in w"},
    {"x[.. d], w[d] -> y[.. d]", "f[b,e] f[d]", "", "! equal sizes, but different dims"},
    {"x[..], y[..] -> z[..]", "f[b,s] f[b,d]", "", "! `..` differs, s=4 in x"},
    {"x[..], y[..] -> z[..]", "f[b,s] f[b]", "", "! `..` stands for 2 dims in x"},
    {"x[b s] -> y[s b]", "f[b,s,d]", "", "! has 3 dims, 2 are expected"},
    {"x[M.. K..], w[K.. N..] -> y[M.. N..]", "f[b,s,d] f[d,f]", "sum=d", "f[b s f]"},
    {"x[M.. K..], w[K.. N..] -> y[M.. N..]", "f[b,s,d] f[b,s,f]", "sum=b,s", "f[d f]"},
    {"x[M.. K..], w[K.. N..] -> y[M.. N..]", "f[b,s,f] f[d,f]", "sum=f", "f[b s d]"},
    {"x[M.. K..], w[K.. N..] -> y[M.. N..]", "f[b,d] f[d]", "sum=d", "f[b]"},
    {"x[M.. K..], w[K.. N..] -> y[M.. N..]", "f[b,s] f[s,b]", "sum=s",
     "! would have dim b=2 twice"},
    {"x[M.. K..], w[K.. N..] -> y[M.. N..]", "f[b,s] f[d,f]", "sum=s", "! s=4 is not a dim of w"},
    {"ids[..]:i32, w[v d] -> y[.. d]", "i32[b,s] f[f,d]", "", "f[b s d]"},
    {"ids[..]:i32, w[v d] -> y[.. d]", "f[b,s] f[f,d]", "", "! is f, i32 is expected"},
    {"q[b s], lo[b]?:i32 -> y[b s]", "f[b,s]", "", "f[b s]"},
    {"q[b s], lo[b]?:i32 -> y[b s]", "f[b,s] _", "", "f[b s]"},
    {"q[b s], lo[b]?:i32 -> y[b s]", "f[b,s] i32[s]", "", "! `b` differs"},
    {"q[b s], lo[b]:i32 -> y[b s]", "f[b,s]", "", "! 1 operands, 2 are expected"},
    {"x[.. 2 f] -> y[.. f]", "f[b,2,f]", "", "f[b f]"},
    {"x[.. 2 f] -> y[.. f]", "f[b,s,f]", "", "! a dim of size 2 is expected"},
    {"x[b] -> y[b k]", "f[b]", "k=d", "f[b d]"},
    {"x[b] -> y[b k]", "f[b]", "", "! an attribute of that name must give it"},
    {"x[b s d] -> y[b (s d)]", "f[b,s,d]", "", "f[b sd]"},
    {"x[d -> y[d]", "", "", "! signature: expected a dim or `]`"},
    {"x[d]", "", "", "! expected `->`"},
    {"x[d], x[d] -> y[d]", "", "", "! a name twice"},
    {"x[.. d ..] -> y[d]", "", "", "! `..` twice"},
    {"x[k..] -> y[d]", "", "", "! upper-case"},
    {"x[d]:float -> y[d]", "", "", "! unknown dtype"},
    {"x[99999999999] -> y[d]", "", "", "! at most 9 digits"},
};

static u32 dim_of(Graph *g, const char *name)
{
    static const struct {
        const char *name;
        i64 size;
    } sizes[] = {{"b", 2}, {"s", 4}, {"d", 8}, {"e", 8}, {"f", 16}, {"2", 2}};
    for (u32 i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (strcmp(sizes[i].name, name) == 0) {
            return dim_add(g, name, sizes[i].size);
        }
    }
    abort();
}

/* "f[b,s,d]" */
static Type type_of(Graph *g, char *s)
{
    char *dims = strchr(s, '[');
    *dims++ = 0;
    *strchr(dims, ']') = 0;
    Type t = {.dtype = dtype_parse(s)};
    for (char *d = strtok(dims, ","); d; d = strtok(NULL, ",")) {
        t.dim[t.rank++] = dim_of(g, d);
    }
    return t;
}

static char results[256];
static void infer(Graph *g, const void *arg)
{
    const SigCase *c = arg;
    u32 func = func_add(g, sym(g, "f"), ROLE_FWD), in[8], nin = 0, nattr = 0;
    Op op = {.name = sym(g, "op"), .sig_text = sym(g, c->sig)};
    op.sig = sig_parse(g, (Loc){0}, c->sig);
    char text[200], *next = text;
    snprintf(text, sizeof text, "%s", c->in);
    for (char *w; (w = strsep(&next, " ")) && *w;) {
        in[nin++] = *w == '_' ? 0 : func_input(g, func, type_of(g, w), 0);
    }
    Attr attr = {0};
    char key[40];
    snprintf(key, sizeof key, "%s", c->attr);
    char *value = strchr(key, '=');
    if (value) {
        *value++ = 0;
        u32 dim[4], n = 0;
        for (char *d = strtok(value, ","); d; d = strtok(NULL, ",")) {
            dim[n++] = dim_of(g, d);
        }
        bool sum = strcmp(key, "sum") == 0;
        attr = sum ? attr_dims(sym(g, key), dim, n) : attr_dim(sym(g, key), dim[0]);
        nattr = 1;
    }
    Type out[8];
    u32 nout = sig_infer(g, &op, (Loc){0}, in, nin, &attr, nattr, out);
    results[0] = 0;
    for (u32 i = 0; i < nout; i++) {
        u64 at = strlen(results);
        snprintf(results + at, sizeof results - at, "%s%s", i ? " " : "", type_str(g, &out[i]));
    }
}

static void test_signatures(void **state)
{
    (void)state;
    for (u32 i = 0; i < sizeof sig_cases / sizeof sig_cases[0]; i++) {
        const SigCase *c = &sig_cases[i];
        Graph *g = graph_new();
        const char *s = failure(g, infer, c);
        if (c->out[0] == '!') {
            if (!s || !strstr(s, c->out + 2)) {
                fail_text("%s with %s: expected a message with `%s`, got %s\n", c->sig, c->in,
                          c->out + 2, s ? s : results);
            }
        } else if (s || strcmp(results, c->out) != 0) {
            fail_text("%s with %s: expected %s, got %s\n", c->sig, c->in, c->out, s ? s : results);
        }
        arena_free(g->arena);
    }
}

/* ---- building and walking -------------------------------------------------------------------- */

typedef struct {
    Graph *g;
    u32 func, b, s, d, f, x, w;
} Net;

static Net net_new(Graph *g, const char *name, i64 d)
{
    Net n = {.g = g, .func = func_add(g, sym(g, name), ROLE_FWD)};
    n.b = dim_add(g, "b", 2);
    n.s = dim_add(g, "s", 4);
    n.d = dim_add(g, "d", d);
    n.f = dim_add(g, "f", 16);
    n.x = func_input(g, n.func, (Type){DT_F32, 3, {n.b, n.s, n.d}}, sym(g, name));
    Type t = {DT_F32, 2, {n.d, n.f}};
    n.w = node_read(g, n.func, formal_find(g, n.func, sym_fmt(g, "%s.w", name), t, VAR_WEIGHT));
    return n;
}

static u32 matmul(const Net *n, u32 a, u32 b, const u32 *sum, u32 nsum)
{
    Attr attr = attr_dims(sym(n->g, "sum"), sum, nsum);
    return node_add(n->g, n->func, op_find(n->g, "matmul"), (u32[]){a, b}, 2, &attr, 1);
}

static u32 result_of(const Net *n, u32 node)
{
    return n->g->node.at[node].out;
}

static void test_dims(void **state)
{
    (void)state;
    Graph *g = graph_new();
    u32 d = dim_add(g, "d", 64), e = dim_add(g, "d", 96);
    assert_true(d != e);
    assert_string_equal(sym_str(g, g->dim.at[e].name), "d.1");
    assert_int_equal(dim_add(g, "d", 64), d);
    assert_int_equal(dim_add(g, "d", 96), e);
    u32 v = dim_add(g, "v", 257);
    g->dim.at[v].pad = 264;
    assert_int_equal(type_elems(g, &(Type){DT_F32, 2, {v, d}}), 264 * 64);
    assert_int_equal(type_bytes(g, &(Type){DT_BF16, 1, {v}}), 528);
    arena_free(g->arena);
}

static void test_gemm(void **state)
{
    (void)state;
    Graph *g = graph_new();
    Net n = net_new(g, "block", 8);
    u32 y = matmul(&n, n.x, n.w, &n.d, 1), dy = result_of(&n, y);
    u32 dw = matmul(&n, n.x, dy, (u32[]){n.b, n.s}, 2), dx = matmul(&n, dy, n.w, &n.f, 1);
    Gemm m;
    assert_true(gemm_shape(g, y, &m));
    assert_true(m.m == 8 && m.n == 16 && m.k == 8 && m.lda == 8 && m.ldb == 16 && m.ldc == 16);
    assert_true(!m.ta && !m.tb);
    assert_true(gemm_shape(g, dw, &m));
    assert_true(m.m == 8 && m.n == 16 && m.k == 8 && m.ta && !m.tb && m.lda == 8 && m.ldb == 16);
    assert_true(gemm_shape(g, dx, &m));
    assert_true(m.m == 8 && m.n == 8 && m.k == 16 && !m.ta && m.tb && m.lda == 16 && m.ldb == 16);
    assert_true(node_flops(g, y) == 2.0 * 8 * 16 * 8);
    /* half of a packed row: the leading stride is that of the whole */
    Value *x = &g->value.at[n.x];
    x->stride[0] = 4 * 24;
    x->stride[1] = 24;
    assert_true(gemm_shape(g, y, &m) && m.lda == 24);
    g->value.at[n.x].stride[0] = 200; /* b and s do not flatten */
    assert_false(gemm_shape(g, y, &m));
    assert_false(value_dense(g, n.x));
    assert_true(value_dense(g, dy));
    u32 dim[RANK_MAX];
    assert_int_equal(sig_factor(g, dw, sym(g, "M"), dim), 1);
    assert_int_equal(dim[0], n.d);
    arena_free(g->arena);
}

static void test_sweep(void **state)
{
    (void)state;
    Graph *g = graph_new();
    Net n = net_new(g, "block", 8);
    Type t = {DT_F32, 2, {n.d, n.f}};
    formal_find(g, n.func, sym(g, "unused"), t, VAR_WEIGHT);
    u32 grad = formal_find(g, n.func, sym(g, "w.grad"), t, VAR_ACCUM);
    u32 y = matmul(&n, n.x, n.w, &n.d, 1);
    u32 dead = matmul(&n, result_of(&n, y), n.w, &n.f, 1);
    u32 dw = matmul(&n, n.x, result_of(&n, y), (u32[]){n.b, n.s}, 2);
    node_accum(g, n.func, grad, result_of(&n, dw));
    func_sweep(g, n.func);
    assert_true(g->node.at[dead].dead);
    assert_int_equal(g->func.at[n.func].node.n, 4); /* read, matmul, matmul, accum */
    assert_int_equal(g->func.at[n.func].formal.n, 2);
    verify(g, "test");
    u32 uses, *use = value_uses(g, n.func, n.x, &uses);
    assert_int_equal(uses, 2);
    assert_true(use[0] == y && use[1] == dw);
    u32 x2 = func_input(g, n.func, g->value.at[n.x].type, 0);
    value_replace(g, n.func, n.x, x2);
    value_uses(g, n.func, n.x, &uses);
    assert_int_equal(uses, 0);
    verify(g, "test");
    arena_free(g->arena);
}

static void test_clone_and_hash(void **state)
{
    (void)state;
    Graph *g = graph_new();
    Net a = net_new(g, "one", 8), b = net_new(g, "two", 8), c = net_new(g, "three", 12);
    const Net *nets[] = {&a, &b, &c};
    for (u32 i = 0; i < 3; i++) {
        u32 y = matmul(nets[i], nets[i]->x, nets[i]->w, &nets[i]->d, 1);
        vec_push(g->arena, &g->func.at[nets[i]->func].out, result_of(nets[i], y));
    }
    assert_true(func_hash(g, a.func) == func_hash(g, b.func)); /* names do not count */
    assert_true(func_hash(g, a.func) != func_hash(g, c.func)); /* sizes do */
    u32 copy = func_add(g, sym(g, "copy"), ROLE_FWD);
    u32 *map = arena_alloc(g->arena, g->value.n * sizeof *map);
    map[a.x] = func_input(g, copy, g->value.at[a.x].type, 0);
    const Func *f = &g->func.at[a.func];
    for (u32 i = 0, count = f->node.n; i < count; i++) {
        u32 old = g->func.at[a.func].node.at[i];
        u32 node = node_clone(g, old, copy, map);
        map[g->node.at[old].out] = g->node.at[node].out;
    }
    vec_push(g->arena, &g->func.at[copy].out, map[g->func.at[a.func].out.at[0]]);
    assert_true(func_hash(g, copy) == func_hash(g, a.func));
    assert_int_equal(g->func.at[copy].formal.n, 1);
    verify(g, "test");
    arena_free(g->arena);
}

static void use_before(Graph *g, const void *arg)
{
    (void)arg;
    Func *f = &g->func.at[1];
    u32 first = f->node.at[0];
    f->node.at[0] = f->node.at[1];
    f->node.at[1] = first;
    verify(g, "shuffle");
}

static void test_verify_names_culprit(void **state)
{
    (void)state;
    Graph *g = graph_new();
    Net n = net_new(g, "block", 8);
    matmul(&n, n.x, n.w, &n.d, 1);
    const char *s = failure(g, use_before, NULL);
    assert_non_null(s);
    assert_non_null(strstr(s, "after shuffle: Func block, node 0 (matmul)"));
    assert_non_null(strstr(s, "is used before it is made"));
    arena_free(g->arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_syms),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_fail),
        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_dims),
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_clone_and_hash),
        cmocka_unit_test(test_verify_names_culprit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
