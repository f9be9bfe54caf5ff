/* unit_body.c: bodies: parsed, derived, checked against hand formulas and finite differences,
 * printed.
 *
 * A case is an op block (signature and body), sizes, and the backward as one writes it by hand, in
 * the same language over the operands of the derived op. Derived and hand formula must agree to
 * 1e-10, derived and finite differences to 1e-6. `unit_body -v` prints every derived body; a broken
 * derivative rule fails a case by name (tests/mutate_body.test.sh breaks ten).
 */
#include "megagen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PORTS = 12, MAX_ELEMS = 512 };

typedef struct {
    const char *name, *sig, *body;
    const char *attr; /* "eps=1e-5 p=0.1" */
    const char *hand; /* NULL: not differentiated */
} Case;

static const Case cases[] = {
    {"layernorm", "x[.. d], w[d], b[d] -> y[.. d], saved mu[..]:f32, saved r[..]:f32",
     "mu = mean(x, d); c = x - mu; r = rsqrt(mean(c*c, d) + eps); y = c*r*w + b", "eps=1e-5",
     "h = (x - mu)*r; g = dy*w; dx = r*(g - mean(g, d) - h*mean(g*h, d)); dw = dy*h; db = dy"},
    {"rmsnorm", "x[.. d], w[d] -> y[.. d], saved r[..]:f32",
     "r = rsqrt(mean(x*x, d) + eps); y = x*r*w", "eps=1e-5",
     "g = dy*w; dx = r*g - x*(r*r*r*mean(g*x, d)); dw = dy*x*r"},
    {"rmsnorm_1p", "x[.. d], w[d] -> y[.. d], saved r[..]:f32",
     "r = rsqrt(mean(x*x, d) + eps); y = x*r*(1 + w)", "eps=1e-5",
     "g = dy*(1 + w); dx = r*g - x*(r*r*r*mean(g*x, d)); dw = dy*x*r"},
    {"softmax", "x[.. d] -> y[.. d], saved l[..]:f32", "l = lse(x, d); y = exp(x - l)", "",
     "p = exp(x - l); dx = p*(dy - sum(dy*p, d))"},
    {"cross_entropy", "x[.. v], t[..]:i32 -> loss[..]:f32, saved l[..]:f32",
     "l = lse(x, v); loss = where(t >= 0, l - sum(where(index(v) == t, x, 0), v), 0)", "",
     "dx = where(t >= 0, dloss*(exp(x - l) - where(index(v) == t, 1, 0)), 0)"},
    {"cross_entropy_all", "x[.. v], t[..]:i32 -> loss[..]:f32, saved l[..]:f32",
     "z = cap*tanh(x/cap); l = lse(z, v); zt = sum(where(index(v) == t, z, 0), v);"
     "loss = where(t >= 0, l - (1 - smooth)*zt - smooth*mean(z, v) + zloss*l*l, 0)",
     "cap=3 smooth=0.1 zloss=0.01",
     "h = tanh(x/cap); z = cap*h;"
     "g = where(t >= 0, dloss, 0)*((1 + 2*zloss*l)*exp(z - l) - where(index(v) == t, 1 - smooth, "
     "0) - smooth/size(v));"
     "dx = g*(1 - h*h)"},
    {"swiglu", "g[..], u[..] -> y[..]", "y = g*sigmoid(g)*u", "",
     "s = sigmoid(g); dg = dy*u*s*(1 + g*(1 - s)); du = dy*g*s"},
    {"gelu_tanh", "x[..] -> y[..]", "y = 0.5*x*(1 + tanh(0.7978845608028654*(x + 0.044715*x*x*x)))",
     "",
     "h = tanh(0.7978845608028654*(x + 0.044715*x*x*x));"
     "dx = dy*(0.5*(1 + h) + 0.5*x*(1 - h*h)*0.7978845608028654*(1 + 0.134145*x*x))"},
    {"gelu_erf", "x[..] -> y[..]", "y = 0.5*x*(1 + erf(0.70710678118654752*x))", "",
     "dx = dy*(0.5*(1 + erf(0.70710678118654752*x)) + x*exp(-0.5*x*x)*0.39894228040143268)"},
    {"relu2", "x[..] -> y[..]", "p = max(x, 0); y = p*p", "", "dx = dy*2*where(x > 0, x, 0)"},
    {"rope", "x1[b s h e], x2[b s h e], c[s e], n[s e] -> y1[b s h e], y2[b s h e]",
     "y1 = x1*c - x2*n; y2 = x2*c + x1*n", "",
     "dx1 = dy1*c + dy2*n; dx2 = dy2*c - dy1*n; dc = dy1*x1 + dy2*x2; dn = dy2*x1 - dy1*x2"},
    {"dropout", "x[..] -> y[..]", "y = where(unit(rand(drop)) < p, 0, x/(1 - p))", "p=0.3",
     "dx = where(unit(rand(drop)) < p, 0, dy/(1 - p))"},
    {"bias", "x[.. d], b[d] -> y[.. d]", "y = x + b", "", "dx = dy; db = dy"},
    {"functions", "x[..], z[..] -> y[..]",
     "a = 2 + abs(x); y = log(a)*sqrt(a) + sin(x)*cos(z) + min(x, z)*max(x, 0.1*z) - clamp(x, "
     "-0.5, 0.5)/a"
     " + stop(x)*z + where(x < z, exp(x)*z, rsqrt(a))",
     "",
     "a = 2 + abs(x); s = where(x < 0, -1, 1); i = where(x > -0.5, where(x < 0.5, 1, 0), 0);"
     "dx = dy*(s/a*sqrt(a) + log(a)*0.5/sqrt(a)*s + cos(x)*cos(z) + where(x < z, 1, 0)*max(x, "
     "0.1*z)"
     " + min(x, z)*where(x > 0.1*z, 1, 0) - i/a + clamp(x, -0.5, 0.5)/(a*a)*s"
     " + where(x < z, exp(x)*z, -0.5*s*rsqrt(a)/a));"
     "dz = dy*(-sin(x)*sin(z) + where(x < z, 0, 1)*max(x, 0.1*z) + min(x, z)*where(x > 0.1*z, 0, "
     "0.1) + x"
     " + where(x < z, exp(x), 0))"},
    {"adamw", "w[n], g[n], m[n], v[n] -> w2[n], m2[n], v2[n]",
     "m2 = m + (1 - beta1)*(g - m); v2 = v + (1 - beta2)*(g*g - v);"
     "w2 = w - lr*(m2/c1/(sqrt(v2/c2) + eps) + wd*group(decay)*w)",
     "beta1=0.9 beta2=0.95 eps=1e-8 c1=0.1 c2=0.05 decay=1", NULL},
};

typedef struct {
    const Case *c;
    u64 seed;
} Run;

/* Attributes of the case, then run-time scalars and sites. */
static f64 lookup(void *arg, const char *name)
{
    const char *p = ((Run *)arg)->c->attr;
    size_t n = strlen(name);
    for (; p && *p; p = strchr(p, ' ') ? strchr(p, ' ') + 1 : "") {
        if (strncmp(p, name, n) == 0 && p[n] == '=') {
            return strtod(p + n + 1, NULL);
        }
    }
    return strcmp(name, "step") == 0 ? 3 : strcmp(name, "lr") == 0 ? 0.01 : 0.1;
}

static const i64 sizes[] = {2, 3, 2, 5, 4, 3, 37};

static const i64 *sizes_of(const Body *b)
{
    return sizes + (b->ndim == 1 ? 6 : b->ndim == 2 ? 2 : 0);
}

/* ".." and leading dims are small, the row is odd. */
static i64 elems(const Body *b, const BodyPort *p)
{
    i64 n = 1;
    for (u32 i = 0; i < p->rank; i++) {
        n *= sizes_of(b)[p->axis[i]];
    }
    return n;
}

static f64 rnd(Run *r)
{
    r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
    return (f64)(r->seed >> 11) * 0x1p-53 * 3 - 1.5;
}

typedef struct {
    f64 v[MAX_PORTS][MAX_ELEMS];
    f64 *at[MAX_PORTS];
} Arrays;

static void eval(Graph *g, const Body *b, Arrays *in, Arrays *out, Run *r)
{
    for (u32 i = 0; i < MAX_PORTS; i++) {
        in->at[i] = in->v[i];
        out->at[i] = out->v[i];
    }
    body_eval(g, b, sizes_of(b), (const f64 *const *)in->at, out->at, lookup, r);
}

static int differs(Run *r, const char *what, const char *port, i64 n, const f64 *x, const f64 *y,
                   f64 tol)
{
    f64 worst = 0, scale = 1e-3;
    for (i64 i = 0; i < n; i++) {
        worst = fmax(worst, fabs(x[i] - y[i]));
        worst = x[i] - y[i] != x[i] - y[i] ? INFINITY : worst;
        scale = fmax(scale, fabs(y[i]));
    }
    if (worst <= tol * scale) {
        return 0;
    }
    printf("%s: %s: %s differs by %.3g of %.3g\n", r->c->name, what, port, worst, scale);
    return 1;
}

static f64 loss(Graph *g, const Body *f, Arrays *in, const Arrays *cot, Run *r)
{
    static Arrays out;
    f64 sum = 0;
    eval(g, f, in, &out, r);
    for (u32 k = 0; k < f->out.n; k++) {
        for (i64 i = 0; !f->out.at[k].saved && i < elems(f, &f->out.at[k]); i++) {
            sum += out.v[k][i] * cot->v[k][i];
        }
    }
    return sum;
}

static int check_differences(Graph *g, const Op *op, const Op *bwd, Arrays *in, const Arrays *cot,
                             const Arrays *grad, Run *r)
{
    int bad = 0;
    for (u32 k = 0; k < bwd->to.n; k++) {
        u32 p = bwd->to.at[k];
        f64 fd[MAX_ELEMS];
        i64 n = elems(op->body, &op->body->in.at[p]);
        for (i64 i = 0; i < n; i++) {
            f64 x = in->v[p][i], h = 1e-5;
            in->v[p][i] = x + h;
            fd[i] = loss(g, op->body, in, cot, r);
            in->v[p][i] = x - h;
            fd[i] = (fd[i] - loss(g, op->body, in, cot, r)) / (2 * h);
            in->v[p][i] = x;
        }
        const char *name = sym_str(g, bwd->body->out.at[k].name);
        if (strcmp(r->c->name, "functions") != 0) { /* stop() is not seen by differences */
            bad += differs(r, "differences", name, n, grad->v[k], fd, 1e-6);
        }
    }
    return bad;
}

static int run(Graph *g, const Case *c, bool print)
{
    static Arrays in, out, cot, bin, grad, hand;
    Run r = {c, 12345};
    vec_push(g->arena, &g->op, (Op){.name = sym(g, c->name), .flags = OF_BODY});
    u32 id = g->op.n - 1;
    g->op.at[id].sig = sig_parse(g, (Loc){0}, c->sig);
    g->op.at[id].body = body_parse(g, (Loc){0}, g->op.at[id].sig, c->body);
    u32 bid = c->hand ? body_derive(g, id) : 0;
    const Op op = g->op.at[id], bwd = g->op.at[bid];
    Text t = {0};
    body_print(g, c->hand ? bwd.body : op.body, &t);
    if (print) {
        printf("%s%s\n%s\n", c->name, c->hand ? ".bwd" : "", text_str(g->arena, &t));
    }
    for (u32 k = 0; k < op.body->in.n; k++) {
        bool ints = op.sig->in.at[k].dtype == DT_I32;
        for (i64 i = 0; i < elems(op.body, &op.body->in.at[k]); i++) {
            in.v[k][i] = ints ? (f64)(i % 3 - 1) * (f64)(1 + i % 2) : rnd(&r);
            in.v[k][i] = ints && in.v[k][i] < 0 ? -1 : in.v[k][i];
        }
    }
    if (!c->hand) {
        return 0;
    }
    for (u32 k = 0; k < op.body->out.n; k++) {
        for (i64 i = 0; i < elems(op.body, &op.body->out.at[k]); i++) {
            cot.v[k][i] = rnd(&r);
        }
    }
    eval(g, op.body, &in, &out, &r);
    u32 nin = op.body->in.n, nout = op.body->out.n;
    for (u32 k = 0; k < bwd.from.n; k++) {
        u32 from = bwd.from.at[k];
        const f64 *v = from < nin          ? in.v[from]
                       : from < nin + nout ? out.v[from - nin]
                                           : cot.v[from - nin - nout];
        memcpy(bin.v[k], v, sizeof bin.v[k]);
    }
    eval(g, bwd.body, &bin, &grad, &r);
    /* The hand formula may name whatever it likes of operands, saved results and cotangents. */
    Sig sig = {.out = {bwd.sig->out.at, bwd.sig->out.n, bwd.sig->out.cap}};
    static Arrays hin;
    for (u32 k = 0; k < nin + 2 * nout; k++) {
        bool saved = k >= nin && op.sig->out.at[(k - nin) % nout].saved;
        if (k >= nin && saved != (k < nin + nout)) {
            continue;
        }
        SigPort p = k < nin ? op.sig->in.at[k] : op.sig->out.at[(k - nin) % nout];
        p.name = k < nin + nout ? p.name : sym_fmt(g, "d%s", sym_str(g, p.name));
        p.saved = false;
        const f64 *v = k < nin ? in.v[k] : k < nin + nout ? out.v[k - nin] : cot.v[k - nin - nout];
        memcpy(hin.v[sig.in.n], v, sizeof hin.v[0]);
        vec_push(g->arena, &sig.in, p);
    }
    eval(g, body_parse(g, (Loc){0}, &sig, c->hand), &hin, &hand, &r);
    int bad = 0;
    for (u32 k = 0; k < bwd.to.n; k++) {
        bad += differs(&r, "hand formula", sym_str(g, bwd.body->out.at[k].name),
                       elems(bwd.body, &bwd.body->out.at[k]), grad.v[k], hand.v[k], 1e-10);
    }
    bad += check_differences(g, &op, &bwd, &in, &cot, &grad, &r);
    /* What is printed parses back to the same numbers. */
    eval(g, body_parse(g, (Loc){0}, bwd.sig, text_str(g->arena, &t)), &bin, &hand, &r);
    for (u32 k = 0; k < bwd.to.n; k++) {
        bad += differs(&r, "printed and parsed", sym_str(g, bwd.body->out.at[k].name),
                       elems(bwd.body, &bwd.body->out.at[k]), hand.v[k], grad.v[k], 1e-13);
    }
    return bad;
}

static bool refused(const char *sig, const char *body)
{
    Graph *const g = graph_new();
    jmp_buf trap;
    g->on_fail = &trap;
    if (setjmp(trap)) {
        return true;
    }
    body_parse(g, (Loc){0}, sig_parse(g, (Loc){0}, sig), body);
    return false;
}

/* Text that must be refused, and the reason. */
static int check_refusals(void)
{
    static const struct {
        const char *sig, *body;
    } bad[] = {
        {"x[.. d] -> y[.. d]", "y = sum(x, d"},    {"x[.. d] -> y[.. d]", "y = x; y = x*x"},
        {"x[.. d] -> y[.. d]", "z = x"},           {"x[.. d] -> y[.. d]", "y = frob(x)"},
        {"x[b d] -> y[d]", "y = sum(x, b)"},       {"x[.. d] -> y[.. d]", "y = where(x, 1, 0)"},
        {"x[.. d] -> y[.. d]", "y = sum(x, e)"},   {"x[.. d] -> y[.. d]", "y = unit(x)"},
        {"x[.. d] -> y[.. d]", "y = x + ; z = 1"}, {"x[.. d] -> y[.. d]", "y = rand(s, 4)"},
    };
    int accepted = 0;
    for (u32 i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (!refused(bad[i].sig, bad[i].body)) {
            printf("accepted: %s\n", bad[i].body);
            accepted++;
        }
    }
    return accepted;
}

/* One case; what is refused counts as broken. */
static int trapped(const Case *c, bool print)
{
    Graph *const g = graph_new();
    jmp_buf trap;
    g->on_fail = &trap;
    return setjmp(trap) ? 1 : run(g, c, print);
}

int main(int argc, char **argv)
{
    bool print = argc > 1 && strcmp(argv[1], "-v") == 0;
    int bad = 0;
    for (u32 i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = trapped(&cases[i], print);
        bad += n;
        printf("%-18s %s\n", cases[i].name, n ? "FAILED" : "ok");
    }
    return bad + check_refusals() != 0;
}
