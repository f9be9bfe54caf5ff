/* unit_rows.c: fused nodes, their printed C, and its numbers.
 *
 * A program is a list of op nodes over inputs. It is fused and printed twice, with fusion on and
 * off, compiled (compiler in CC, warnings are errors), loaded and run on the same data: equal bits
 * are demanded of the two, and the values of the interpreter within rounding. Types f64, f32 and
 * bf16, row lengths odd and even, windows with strides, padded rows, in-place results,
 * accumulators. `unit_rows -v` prints the text with fusion on.
 */
#include "megagen.h"
#include "../runtime/mg.h"

#include <assert.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 64 };

/* Ops by name; the text of rules/ is not read here. */
static const struct {
    const char *name, *sig, *body;
} ops[] = {
    {"p_add", "x[..], y[..] -> z[..]", "z = x + y"},
    {"p_mul", "x[..], y[..] -> z[..]", "z = x*y"},
    {"p_silu", "x[..] -> y[..]", "y = x*sigmoid(x)"},
    {"p_bias", "x[.. d], b[d] -> y[.. d]", "y = x + b"},
    {"p_rms", "x[.. d], w[d] -> y[.. d], saved r[..]:f32",
     "r = rsqrt(mean(x*x, d) + 1e-5); y = x*r*w"},
    {"p_ln", "x[.. d], w[d], b[d] -> y[.. d], saved m[..]:f32, saved r[..]:f32",
     "m = mean(x, d); c = x - m; r = rsqrt(mean(c*c, d) + 1e-5); y = c*r*w + b"},
    {"p_softmax", "x[.. d] -> y[.. d]", "y = exp(x - lse(x, d))"},
    {"p_ce", "x[.. v], t[..]:i32 -> loss[..]:f32",
     "z = 3*tanh(x/3); l = lse(z, v); p = sum(where(index(v) == t, z, 0), v);"
     "loss = where(t >= 0, l - p + 0.01*l*l, 0)"},
    {"p_drop", "x[..] -> y[..]", "y = where(unit(rand(site)) < 0.3, 0, x*(1/0.7))"},
    {"p_noise", "x[..] -> y[..]", "y = x + normal(rand(site), rand(site, 1))"},
    {"p_rope", "x1[b s .. h], x2[b s .. h], c[s h], n[s h] -> y1[b s .. h], y2[b s .. h]",
     "y1 = x1*c - x2*n; y2 = x2*c + x1*n"},
    {"p_pos", "x[b s d], p[s d] -> y[b s d]", "y = x + p"},
    {"p_gelu", "x[..] -> y[..]", "y = 0.5*x*(1 + erf(0.7071067811865476*x))"},
    {"p_total", "x[..] -> s[]:f32", "s = total(x*x)"},
    {"p_clip", "s[]:f32 -> c[]:f32", "c = where(clip > 0, min(1, clip/(sqrt(s) + 1e-6)), 1)"},
    {"p_sgd", "w[n], g[n], c[]:f32 -> w2[n]", "w2 = w - lr*(g*c + wd*w*tanh(0.5*step))"},
    {"p_gscale", "-> y[]:f32", "y = gscale"},
    {"p_misc", "x[..] -> y[..]",
     "y = sin(x)*cos(x) + floor(x)*abs(x) + log(2 + abs(x)) - max(min(x, 1), -x)/sqrt(1 + x*x) + "
     "exp(-x)"},
};

/* One line a node: op in in -> out out; letters are values; inputs come first with their dims. */
typedef struct {
    const char *name, *inputs, *nodes, *outs;
    int groups; /* fused nodes with fusion on */
} Program;
static const Program programs[] = {
    {"residual_norm", "x:bsd a:bsd w:d", "p_add x a -> z; p_rms z w -> y r", "z y r", 1},
    {"norm_bwd", "x:bsd w:d r:bs y:bsd z:bsd", "p_rms.bwd x w r y -> a b; p_add z a -> c", "b c",
     1},
    {"layernorm", "x:bsd w:d b:d", "p_ln x w b -> y m r", "y m r", 1},
    {"layernorm_bwd", "x:bsd w:d m:bs r:bs y:bsd", "p_ln.bwd x w m r y -> a b c", "a b c", 1},
    {"softmax", "x:bsd a:bsd", "p_softmax x -> y; p_mul y a -> z", "y z", 1},
    {"softmax_bwd", "x:bsd a:bsd", "p_softmax.bwd x a -> z", "z", 1},
    {"loss", "x:tv t:t# l:t", "p_ce x t -> a; p_ce.bwd x t l -> b", "a b", 1},
    {"swiglu", "x:bsd y:bsd", "p_silu x -> a; p_mul a y -> z", "z", 1},
    {"gelu_bwd", "x:bsd y:bsd", "p_gelu.bwd x y -> z", "z", 1},
    {"dropout", "x:bsd y:bsd w:d",
     "p_drop x -> a; p_add y a -> z; p_rms z w -> n r; p_noise n -> c", "z c r", 1},
    {"bias", "x:bsd w:d", "p_bias x w -> y; p_gelu y -> z", "z", 1},
    {"bias_bwd", "x:bsd", "p_gelu.bwd x x -> z; p_bias.bwd z -> a b", "z b", 1},
    {"rope", "x:bshe y:bshe c:se n:se", "p_rope x y c n -> a b", "a b", 1},
    {"pos_bwd", "x:bsd", "p_pos.bwd x -> a b", "b", 1},
    {"total", "x:bsd", "p_total x -> s; p_clip s -> c", "s c", 2},
    {"sgd", "w:n g:n", "p_total g -> s; p_clip s -> c; p_sgd w g c -> z", "s z", 3},
    {"functions", "x:bsd", "p_misc x -> y", "y", 1},
    {"gscale", "", "p_gscale -> y", "y", 1},
    {"diamond", "x:bsd w:d", "p_silu x -> a; p_bias.bwd a -> p b; p_bias x b -> c; p_add c a -> y",
     "y", 2},
};

typedef struct {
    u8 dtype;
    i64 b, s, d;
    bool strided;
} Variant;
static const Variant variants[] = {
    {DT_F64, 2, 3, 13, false},  {DT_F64, 3, 5, 32, true},  {DT_F32, 2, 3, 5, false},
    {DT_F32, 4, 17, 64, false}, {DT_F32, 2, 40, 83, true}, {DT_BF16, 2, 3, 37, false},
    {DT_BF16, 3, 7, 48, true},  {DT_F32, 1, 1, 7, false},
};

typedef struct {
    Graph *g;
    u32 func;
    u32 value[128]; /* by letter */
    u32 input[16], ninput, out[8], nout;
} Built;

static u32 dim_of(Graph *g, char c, const Variant *v)
{
    i64 size = c == 'b' ? v->b : c == 's' ? v->s : c == 'h' ? 3 : c == 'e' ? v->d : v->d;
    size = c == 't' ? v->b * v->s : c == 'n' ? 64 * v->d * v->s * (v->b > 3 ? 40 : 1) : size;
    const char name[2] = {c, 0};
    u32 dim = dim_add(g, name, size);
    if (c == 'v' && v->strided) {
        g->dim.at[dim].pad = (size + 7) / 8 * 8 + 8;
    }
    return dim;
}

static void build_inputs(Built *p, const char *s, const Variant *v)
{
    for (; *s; s++) {
        char letter = *s++;
        Type t = {.dtype = v->dtype};
        for (s++; *s && *s != ' '; s++) {
            if (*s == '#') {
                t.dtype = DT_I32;
            } else {
                t.dim[t.rank++] = dim_of(p->g, *s, v);
            }
        }
        bool stat = letter == 'r' || letter == 'm' || letter == 'l';
        t.dtype = stat && t.dtype == DT_BF16 ? DT_F32 : t.dtype;
        const char name[2] = {letter, 0};
        p->value[(int)letter] = func_input(p->g, p->func, t, sym(p->g, name));
        p->input[p->ninput++] = p->value[(int)letter];
        if (!*s) {
            return;
        }
    }
}

static void build_nodes(Built *p, const char *s)
{
    while (*s) {
        char name[32];
        int len = 0;
        u32 in[16], nin = 0;
        sscanf(s, " %31[^ ;]%n", name, &len);
        char *dot = strstr(name, ".bwd");
        if (dot) {
            *dot = 0;
            body_derive(p->g, op_find(p->g, name));
            *dot = '.';
        }
        for (s += len; strncmp(s, " ->", 3); s += 2) {
            in[nin++] = p->value[(int)s[1]];
        }
        u32 n = node_add(p->g, p->func, op_find(p->g, name), in, nin, NULL, 0);
        p->g->node.at[n].path = sym(p->g, name);
        u32 k = 0;
        for (s += 3; *s && *s != ';'; s += 2) {
            p->value[(int)s[1]] = p->g->node.at[n].out + k++;
        }
        s += *s == ';';
    }
}

/* Types of row statistics in this build: bf16 programs keep them in f32, f64 ones in f64. */
static void build(Built *p, const Program *prog, const Variant *v, bool fuse)
{
    Graph *g = graph_new();
    *p = (Built){.g = g};
    g->cfg.fuse = fuse;
    g->cfg.compute = v->dtype;
    for (u32 i = 0; i < sizeof ops / sizeof *ops; i++) {
        Op op = {.name = sym(g, ops[i].name),
                 .flags = OF_BODY,
                 .sig = sig_parse(g, (Loc){0}, ops[i].sig)};
        op.body = body_parse(g, (Loc){0}, op.sig, ops[i].body);
        vec_push(g->arena, &g->op, op);
    }
    p->func = func_add(g, sym(g, prog->name), ROLE_FWD);
    build_inputs(p, prog->inputs, v);
    build_nodes(p, prog->nodes);
    for (const char *s = prog->outs; *s; s += s[1] ? 2 : 1) {
        vec_push(g->arena, &g->func.at[p->func].out, p->value[(int)*s]);
    }
    pass_fuse(g);
    /* Windows: every input but vectors and integers gets one element more between its rows. */
    for (u32 i = 0; i < p->ninput && v->strided; i++) {
        Value *x = &g->value.at[p->input[i]];
        for (u32 k = 0; x->type.rank > 1 && x->type.dtype != DT_I32 && k + 1 < x->type.rank; k++) {
            i64 n = k + 2 < x->type.rank ? 0 : 3;
            x->stride[k] = 0;
            for (u32 j = k + 1; j < x->type.rank; j++) {
                i64 m = g->dim.at[x->type.dim[j]].pad ? g->dim.at[x->type.dim[j]].pad
                                                      : g->dim.at[x->type.dim[j]].size;
                x->stride[k] = (x->stride[k] ? x->stride[k] : 1) * m;
            }
            x->stride[k] += n;
        }
        for (u32 k = x->type.rank - 1u; k-- > 0 && x->type.rank > 2 && x->type.dtype != DT_I32;) {
            if (k + 2u < x->type.rank) {
                x->stride[k] = x->stride[k + 1] * g->dim.at[x->type.dim[k + 1]].size;
            }
        }
    }
}

/* ---- the printed text ------------------------------------------------------------------------ */

static u32 text_of(Built *p, Text *t, const char *prefix)
{
    Graph *g = p->g;
    const Func *f = &g->func.at[p->func];
    u32 count = 0;
    for (u32 i = 0; i < f->node.n; i++) {
        u32 id = f->node.at[i];
        const Node *n = &g->node.at[id];
        const char *name = arena_fmt(g->arena, "%s_%u", prefix, count++);
        loopgen_node(g, id, name, t);
        text_fmt(
            g->arena, t,
            "\nvoid call_%s(mg_ctx *c, void **p);\nvoid call_%s(mg_ctx *c, void **p)\n{\n    %s(c",
            name, name, name);
        for (u32 k = 0; k < n->nout + n->nin; k++) {
            text_fmt(g->arena, t, ", p[%u]", k);
        }
        if (body_has_rand(g->body.at[n->body])) {
            text_put(g->arena, t, ", 7");
        }
        text_put(g->arena, t, ");\n}\n\n");
    }
    return count;
}

static void *load(const char *src)
{
    char dir[] = "./build/unit_rows.dXXXXXX", cmd[1024];
    if (!mkdtemp(dir)) {
        return NULL;
    }
    snprintf(cmd, sizeof cmd, "%s/rows.c", dir);
    FILE *f = fopen(cmd, "w");
    if (!f) {
        return NULL;
    }
    fputs(src, f);
    fclose(f);
    const char *cc = getenv("CC"), *flags = getenv("ROWS_CFLAGS");
    snprintf(cmd, sizeof cmd,
             "%s -O1 -std=gnu11 -march=native %s -ffp-contract=off -Wall -Wextra -Werror -fPIC "
             "-shared -I. -Iruntime "
             "-Ikernels/cpu -o %s/rows.so %s/rows.c",
             cc ? cc : "cc", flags ? flags : "", dir, dir);
    int rc = system(cmd);
    snprintf(cmd, sizeof cmd, "%s/rows.so", dir);
    void *so = rc ? NULL : dlopen(cmd, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        printf("does not compile or load: %s\n", dir);
        return NULL;
    }
    snprintf(cmd, sizeof cmd, "rm -r %s", dir);
    return system(cmd) ? NULL : so;
}

/* ---- data ------------------------------------------------------------------------------------ */

static u64 extent(const Graph *g, u32 v)
{
    const Value *x = &g->value.at[v];
    u64 n = 1;
    for (u32 k = 0; k < x->type.rank; k++) {
        n += (u64)(x->stride[k] * (dim_mem(g, x->type.dim[k]) - 1));
    }
    return n + 64;
}

static u64 logical(const Graph *g, const Type *t)
{
    u64 n = 1;
    for (u32 k = 0; k < t->rank; k++) {
        n *= (u64)g->dim.at[t->dim[k]].size;
    }
    return n;
}

static u64 place(const Graph *g, u32 v, u64 i)
{
    const Value *x = &g->value.at[v];
    u64 at = 0;
    for (u32 k = x->type.rank; k-- > 0;) {
        u64 n = (u64)g->dim.at[x->type.dim[k]].size;
        at += (i % n) * (u64)x->stride[k];
        i /= n;
    }
    return at;
}

static void put(void *p, u8 dtype, u64 at, f64 v)
{
    float f = (float)v;
    u32 u;
    memcpy(&u, &f, 4);
    if (dtype == DT_F64) {
        ((f64 *)p)[at] = v;
    } else if (dtype == DT_F32) {
        ((float *)p)[at] = f;
    } else if (dtype == DT_I32) {
        ((i32 *)p)[at] = (i32)v;
    } else {
        ((u16 *)p)[at] = (u16)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
    }
}

static f64 get(const void *p, u8 dtype, u64 at)
{
    float f;
    u32 u = dtype == DT_BF16 ? (u32)((const u16 *)p)[at] << 16 : 0;
    memcpy(&f, &u, 4);
    return dtype == DT_F64   ? ((const f64 *)p)[at]
           : dtype == DT_F32 ? (f64)((const float *)p)[at]
           : dtype == DT_I32 ? (f64)((const i32 *)p)[at]
                             : (f64)f;
}

static f64 input_value(u32 i, u64 at, u8 dtype, i64 vocab)
{
    u64 h = (at + 1) * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 29)) * 0x94d049bb133111ebu;
    h ^= h >> 32;
    if (dtype == DT_I32) {
        return (f64)(h % (u64)(vocab + 1)) - 1;
    }
    return (f64)(h >> 11) * 0x1p-53 * 4 - 2 + 0.05;
}

static f64 lookup(void *arg, const char *name)
{
    (void)arg;
    static const struct {
        const char *name;
        f64 v;
    } known[] = {{"step", 3}, {"lr", 0.1},      {"wd", 0.1},
                 {"clip", 1}, {"gscale", 0.25}, {"seed", 99}};
    for (u32 i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) == 0) {
            return known[i].v;
        }
    }
    assert(strncmp(name, "site:", 5) == 0);
    return (f64)(7 ^ (u32)hash_bytes(name + 5, strlen(name + 5), 0));
}

typedef struct {
    void *mem[MAX_VALUES * 4]; /* by value */
    f64 *ref[MAX_VALUES * 4];
} Memory;

static void fill(Built *p, Memory *m, i64 vocab)
{
    Graph *g = p->g;
    assert(g->value.n < MAX_VALUES * 4);
    for (u32 v = 1; v < g->value.n; v++) {
        u64 n = extent(g, v);
        u8 dtype = g->value.at[v].type.dtype;
        m->mem[v] = malloc(n * 8);
        memset(m->mem[v], 0xff, n * 8); /* NaN: what is not written shows */
        m->ref[v] = calloc(logical(g, &g->value.at[v].type), sizeof(f64));
        for (u32 i = 0; i < p->ninput; i++) {
            for (u64 k = 0; p->input[i] == v && k < logical(g, &g->value.at[v].type); k++) {
                put(m->mem[v], dtype, place(g, v, k), input_value(i, k, dtype, vocab));
                m->ref[v][k] = get(m->mem[v], dtype, place(g, v, k));
            }
        }
    }
}

static void run(Built *p, Memory *m, void *so, const char *prefix)
{
    Graph *g = p->g;
    mg_ctx c = {.scalar = {.step = 3, .lr = 0.1, .wd = 0.1, .clip = 1, .gscale = 0.25, .seed = 99}};
    const Func *f = &g->func.at[p->func];
    for (u32 i = 0; i < f->node.n; i++) {
        const Node *n = &g->node.at[f->node.at[i]];
        const Body *b = g->body.at[n->body];
        char name[64];
        void *ptr[32];
        const f64 *in[32];
        f64 *out[32];
        i64 size[2 * RANK_MAX];
        for (u32 k = 0; k < n->nout; k++) {
            ptr[k] = m->mem[n->out + k];
            out[k] = m->ref[n->out + k];
            if (b->out.at[k].inplace) { /* take the offer */
                u32 v = g->arg.at[n->in + (u32)b->out.at[k].inplace - 1];
                ptr[k] = m->mem[n->out + k] = m->mem[v];
            }
        }
        for (u32 k = 0; k < n->nin; k++) {
            ptr[n->nout + k] = m->mem[g->arg.at[n->in + k]];
            in[k] = m->ref[g->arg.at[n->in + k]];
        }
        snprintf(name, sizeof name, "call_%s_%u", prefix, i);
        void (*call)(mg_ctx *, void **);
        *(void **)&call = dlsym(so, name);
        call(&c, ptr);
        for (u32 k = 0; k < b->ndim; k++) {
            size[k] = g->dim.at[b->dim[k].dim].size;
        }
        Body plain = *b; /* without partial buffers */
        while (plain.out.n && !plain.out.at[plain.out.n - 1].node) {
            plain.out.n--;
        }
        body_eval(g, &plain, size, in, out, lookup, NULL);
    }
}

/* Printed code against the interpreter. */
static int check_values(Built *p, const Memory *m, const Program *prog, const Variant *v)
{
    Graph *g = p->g;
    const Func *f = &g->func.at[p->func];
    int bad = 0;
    f64 tol = v->dtype == DT_F64 ? 1e-12 : v->dtype == DT_F32 ? 2e-5 : 2e-2;
    for (u32 k = 0; k < f->out.n; k++) {
        u32 o = f->out.at[k];
        f64 worst = 0, scale = 1e-3;
        for (u64 i = 0; i < logical(g, &g->value.at[o].type); i++) {
            f64 x = get(m->mem[o], g->value.at[o].type.dtype, place(g, o, i)), r = m->ref[o][i];
            f64 d = fabs(x - r);
            worst = d > worst || d != d ? (d != d ? INFINITY : d) : worst;
            scale = fmax(scale, fabs(r));
        }
        if (!(worst <= tol * scale)) {
            printf("%s %s d=%lld: result %u differs by %.3g of %.3g\n", prog->name,
                   dtype_name(v->dtype), (long long)v->d, k, worst, scale);
            bad++;
        }
    }
    return bad;
}

static int check_bits(Built *a, const Memory *ma, Built *b, const Memory *mb, const Program *prog,
                      const Variant *v)
{
    const Func *fa = &a->g->func.at[a->func], *fb = &b->g->func.at[b->func];
    int bad = 0;
    for (u32 k = 0; k < fa->out.n; k++) {
        u32 x = fa->out.at[k], y = fb->out.at[k];
        u8 dtype = a->g->value.at[x].type.dtype;
        for (u64 i = 0; i < logical(a->g, &a->g->value.at[x].type); i++) {
            f64 u = get(ma->mem[x], dtype, place(a->g, x, i)),
                w = get(mb->mem[y], dtype, place(b->g, y, i));
            if (memcmp(&u, &w, 8)) {
                printf("%s %s d=%lld: result %u[%llu]: fused %.17g, alone %.17g\n", prog->name,
                       dtype_name(v->dtype), (long long)v->d, k, (unsigned long long)i, u, w);
                bad++;
                break;
            }
        }
    }
    return bad;
}

int main(int argc, char **argv)
{
    enum { NP = sizeof programs / sizeof *programs, NV = sizeof variants / sizeof *variants };
    static Built on[NP], off[NP];
    const char *only = argc > 2 ? argv[2] : NULL;
    bool print = argc > 1 && strcmp(argv[1], "-v") == 0;
    int bad = 0;
    for (u32 v = 0; v < NV; v++) {
        Arena *a = arena_new();
        Text t = {0};
        text_put(a, &t,
                 "#include \"mg.h\"\n#include \"mgk.h\"\n"
                 "void mg_par(mg_ctx *c, int parts, void (*fn)(void *arg, int part), void *arg)\n"
                 "{\n    (void)c;\n    while (parts--)\n        fn(arg, parts); /* any order must "
                 "do */\n}\n\n");
        for (u32 i = 0; i < NP; i++) {
            Text own = {0};
            build(&on[i], &programs[i], &variants[v], true);
            build(&off[i], &programs[i], &variants[v], false);
            u32 n = text_of(&on[i], &own, arena_fmt(a, "%s_on", programs[i].name));
            if (n != (u32)programs[i].groups) {
                printf("%s: %u fused nodes, expected %d\n", programs[i].name, n,
                       programs[i].groups);
                bad++;
            }
            if (print && (!only || strcmp(only, programs[i].name) == 0)) {
                puts(text_str(on[i].g->arena, &own));
            }
            text_of(&off[i], &own, arena_fmt(a, "%s_off", programs[i].name));
            text_put(a, &t, text_str(on[i].g->arena, &own));
        }
        void *so = load(text_str(a, &t));
        if (!so) {
            return 1;
        }
        for (u32 i = 0; i < NP; i++) {
            static Memory x, y;
            char prefix[64];
            fill(&on[i], &x, variants[v].d);
            fill(&off[i], &y, variants[v].d);
            snprintf(prefix, sizeof prefix, "%s_on", programs[i].name);
            run(&on[i], &x, so, prefix);
            snprintf(prefix, sizeof prefix, "%s_off", programs[i].name);
            run(&off[i], &y, so, prefix);
            bad += check_values(&on[i], &x, &programs[i], &variants[v]);
            bad += check_bits(&on[i], &x, &off[i], &y, &programs[i], &variants[v]);
        }
        printf("%s b=%lld s=%lld d=%lld%s: %d wrong so far\n", dtype_name(variants[v].dtype),
               (long long)variants[v].b, (long long)variants[v].s, (long long)variants[v].d,
               variants[v].strided ? " windows" : "", bad);
    }
    return bad != 0;
}
