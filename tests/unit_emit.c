/* unit_emit.c: the doors between a spec's text and C text; kernel blocks; who writes a variable
 * itself.
 *
 * No byte of a spec may end a literal, a comment or an identifier; what a block's expressions give
 * must be the #defines of the instance; an accum is merged with its producer exactly where that
 * changes nothing.
 */
#include "emit_int.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static int failed;

#define check(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            failed++;                                                                              \
            printf("line %d: ", __LINE__);                                                         \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

/* Every string of up to three bytes of these, and what a spec writer might try. */
static const char hostile[] = "a\"\\?*/\n'%$\xc3(0";

/* Reads a C literal back as a compiler does, after phase 1 (trigraphs) and 2 (lines); NULL if it is
 * broken. */
static const char *read_literal(Graph *g, const char *s)
{
    Text t = {0};
    if (*s++ != '"' || strstr(s, "\?\?") || strchr(s, '\n'))
        return NULL;
    for (; *s != '"'; s++) {
        int c = (u8)*s;
        if (!c || c > 126)
            return NULL;
        if (c == '\\') {
            c = *++s;
            if (c >= '0' && c <= '7') {
                c = (c - '0') * 64 + (s[1] - '0') * 8 + s[2] - '0';
                s += 2;
            } else if (c != '"' && c != '\\' && c != '?') {
                return NULL;
            }
        }
        text_fmt(g->arena, &t, "%c", c);
    }
    return s[1] ? NULL : text_str(g->arena, &t);
}

static bool is_identifier(const char *s)
{
    if (!isalpha((u8)*s) && *s != '_')
        return false;
    while (isalnum((u8)*s) || *s == '_')
        s++;
    return !*s;
}

static void check_text(Graph *g, const char *s)
{
    const char *back = read_literal(g, c_string(g, s));
    check(back && !strcmp(back, s), "literal of <%s> reads back as <%s>", s,
          back ? back : "nothing");
    const char *c = comment_safe(g, s);
    check(!strstr(c, "*/") && !strstr(c, "/*") && !strpbrk(c, "\n\\?"), "comment <%s>", c);
    check(is_identifier(sym_str(g, c_name(g, s))), "identifier <%s>", sym_str(g, c_name(g, s)));
}

static void check_texts(Graph *g)
{
    u32 n = sizeof hostile - 1;
    for (u32 i = 0; i < n * n * n; i++) {
        char s[4] = {hostile[i % n], hostile[i / n % n], hostile[i / n / n], 0};
        check_text(g, s);
    }
    check_text(g, "");
    check_text(g, "*/ int main(void) { return system(\"id\"); } /*");
    static const char *const word[] = {"int", "c", "k", "i", "exp", "mg_par", "register"};
    for (u32 i = 0; i < sizeof word / sizeof *word; i++)
        check(strcmp(sym_str(g, c_name(g, word[i])), word[i]), "%s is not free for a name",
              word[i]);
}

/* ---- a small Func ---------------------------------------------------------------------------- */

static u32 add(Graph *g, u32 func, const char *op, u32 a, u32 b, const char *dim, Type type)
{
    u32 in[2] = {a, b};
    Attr sum = {.key = sym(g, "sum"), .kind = AT_DIMS, .n = 1};
    sum.dim[0] = dim ? dim_add(g, dim, *dim == 't' ? 6 : 10) : 0;
    u32 n = node_add_typed(g, func, op_find(g, op), in, b ? 2 : 1, &sum, dim ? 1 : 0, &type, 1);
    return g->node.at[n].out;
}

typedef struct {
    u32 func, dw, formal;
    Type td, tf, df;
} Small;

/* dw[d f] = x[t d]' dy[t f], the gradient of a weight. */
static Small small(Graph *g)
{
    u32 t = dim_add(g, "t", 6), d = dim_add(g, "d", 10), f = dim_add(g, "f", 14);
    Small s = {.func = func_add(g, sym(g, "block.bwd"), ROLE_BWD)};
    s.td = (Type){.dtype = DT_F32, .rank = 2, .dim = {t, d}};
    s.tf = (Type){.dtype = DT_F32, .rank = 2, .dim = {t, f}};
    s.df = (Type){.dtype = DT_F32, .rank = 2, .dim = {d, f}};
    u32 x = func_input(g, s.func, s.td, sym(g, "x")),
        dy = func_input(g, s.func, s.tf, sym(g, "dy"));
    s.dw = add(g, s.func, "matmul", x, dy, "t", s.df);
    s.formal = formal_find(g, s.func, sym(g, "w.grad"), s.df, VAR_ACCUM);
    return s;
}

static u32 last_node(const Graph *g, u32 func)
{
    return g->func.at[func].node.at[g->func.at[func].node.n - 1];
}

static void check_sinks(Graph *g)
{
    Small s = small(g);
    check(!value_sink(g, s.dw), "no accum yet");
    node_accum(g, s.func, s.formal, s.dw);
    u32 accum = last_node(g, s.func);
    view_resolve(g, s.func);
    check(value_sink(g, s.dw) == accum && value_adds(g, s.dw), "the only use is an accum: merged");
    vec_push(g->arena, &g->func.at[s.func].out, s.dw);
    check(!value_sink(g, s.dw), "a result of the Func has a place of its own");
    g->func.at[s.func].out.n = 0;
    add(g, s.func, "copy", s.dw, 0, NULL, s.df);
    view_resolve(g, s.func);
    check(!value_sink(g, s.dw), "two uses: not merged");

    Small r = small(g); /* the old content is read behind the producer */
    u32 old = node_read(g, r.func, r.formal);
    node_write(g, r.func, r.formal, r.dw);
    view_resolve(g, r.func);
    check(value_sink(g, r.dw) && !value_adds(g, r.dw), "a write is merged, and does not add");
    add(g, r.func, "copy", old, 0, NULL, r.df);
    view_resolve(g, r.func);
    check(!value_sink(g, r.dw), "merged, the later read would see the new content");
}

static const char *constant(Graph *g, u32 inst, const char *key)
{
    for (u32 i = 0; i < g->inst.at[inst].key.n; i++) {
        if (!strcmp(sym_str(g, g->inst.at[inst].key.at[i]), key))
            return sym_str(g, g->inst.at[inst].value.at[i]);
    }
    return "";
}

static void check_blocks(Graph *g)
{
    static const char block[] =
        "name = 'mm', op = 'matmul', when = \"M > 5 and w.dtype == 'f32'\",\n"
        "const = { M = 'M', N = 'N', K = 'K', LDA = 'LDA', TA = 'TA', T = 'ctype(w)',\n"
        "ACC = 'accum', S = 'w.stride.t', Z = 'elems(y) / 3' }";
    static const char never[] = "name = 'no', op = 'matmul', when = \"false\", const = {}";
    static const char *const want[][2] = {
        {"M", "10"},   {"N", "14"}, {"K", "6"},
        {"LDA", "10"}, {"TA", "1"}, {"T", "float"},
        {"ACC", "1"},  {"S", "14"}, {"Z", "0x1.7555555555555p+5"}};
    Small s = small(g);
    node_accum(g, s.func, s.formal, s.dw);
    view_resolve(g, s.func);
    u32 node = g->value.at[s.dw].node, first = g->kern.n;
    Loc loc = {.file = sym(g, "mm.h"), .line = 1};
    lua_kern_add(g, loc, "cpu", never, strlen(never));
    lua_kern_add(g, loc, "cpu", block, strlen(block));
    vec_push(g->arena, &g->inst, (Inst){.node = node});
    u32 inst = g->inst.n - 1;
    check(!lua_kern_match(g, first, node, inst), "a false condition takes nothing");
    check(lua_kern_match(g, first + 1, node, inst), "a true condition takes the node");
    for (u32 i = 0; i < sizeof want / sizeof *want; i++)
        check(!strcmp(constant(g, inst, want[i][0]), want[i][1]), "%s is %s, not %s", want[i][0],
              constant(g, inst, want[i][0]), want[i][1]);
}

/* A block may be wrong: code and line, not a crash. */
static void check_refused(Graph *g, const char *block)
{
    jmp_buf trap, *before = g->on_fail;
    volatile bool refused = true;
    g->on_fail = &trap;
    if (!setjmp(trap)) {
        lua_kern_add(g, (Loc){.file = sym(g, "bad.h"), .line = 1}, "cpu", block, strlen(block));
        refused = false;
    }
    g->on_fail = before;
    check(refused, "accepted: %s", block);
}

int main(void)
{
    Graph *const g = graph_new();
    jmp_buf trap;
    g->on_fail = &trap;
    if (setjmp(trap))
        return 1;
    check_texts(g);
    check_sinks(g);
    check_blocks(g);
    check_refused(g, "name = 'x', op = ");
    check_refused(g, "op = 'matmul'");
    check_refused(g, "name = os.exit(0), op = 'matmul'");
    printf("%d failed\n", failed);
    return failed != 0;
}
