/* unit_mgk.c: the vector math of kernels/cpu/mgk.h against libm, and its bits across builds.
 *
 * `unit_mgk` checks errors in units of the last place and prints one hash of every result: the same
 * for gcc and clang on AVX-512, AVX2 and plain x86-64 (tests/run.sh compares). */
#include "../kernels/cpu/mgk.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int failed;
static uint64_t hash = 1469598103934665603u;

static void mix(const void *p, size_t n)
{
    for (const unsigned char *b = p; n--; b++)
        hash = (hash ^ *b) * 1099511628211u;
}

typedef f32v fn32(f32v);
typedef f64v fn64(f64v);
typedef double fnref(double);
typedef struct {
    const char *name;
    fn32 *f32;
    fn64 *f64;
    fnref *ref;
    double lo, hi, tol32, tol64; /* range; relative tolerance */
    double abs;                  /* results smaller than this are compared with it */
} Case;

static double ref_rsqrt(double x)
{
    return 1 / sqrt(x);
}
static double ref_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

#define W(F)                                                                                       \
    static f32v w32_##F(f32v x)                                                                    \
    {                                                                                              \
        return f32_##F(x);                                                                         \
    }                                                                                              \
    static f64v w64_##F(f64v x)                                                                    \
    {                                                                                              \
        return f64_##F(x);                                                                         \
    }
W(exp)
W(log)
W(sqrt)
W(rsqrt)
W(sigmoid)
W(tanh)
W(erf)
W(sin)
W(cos)
W(floor)
#undef W

#define C(F) w32_##F, w64_##F
static const Case cases[] = {
    {"exp", C(exp), exp, -87, 88, 2.0e-7, 6e-16, 0},
    {"log", C(log), log, 1e-30, 3, 2.0e-7, 4e-16, 0},
    {"log far", C(log), log, 3, 1e30, 1.2e-7, 3e-16, 0},
    {"sqrt", C(sqrt), sqrt, 0, 1e6, 1.2e-7, 2.3e-16, 0},
    {"rsqrt", C(rsqrt), ref_rsqrt, 1e-8, 1e4, 1.8e-7, 4e-16, 0},
    {"sigmoid", C(sigmoid), ref_sigmoid, -80, 80, 2.5e-7, 7e-16, 0},
    {"tanh", C(tanh), tanh, -12, 12, 3.5e-7, 9e-16, 0},
    {"tanh near", C(tanh), tanh, -1e-3, 1e-3, 3.5e-7, 9e-16, 0},
    {"erf", C(erf), erf, -6.5, 6.5, 3e-7, 9e-16, 0},
    {"erf near", C(erf), erf, -1e-3, 1e-3, 2e-7, 5e-16, 0},
    {"sin", C(sin), sin, -50, 50, 2e-7, 6e-16, 0.3},
    {"cos", C(cos), cos, -50, 50, 2e-7, 6e-16, 0.3},
    {"floor", C(floor), floor, -1000, 1000, 0, 0, 0},
};

/* Largest relative error over points that walk the range; both types. */
static void check(const Case *c)
{
    double worst[2] = {0, 0};
    for (int i = 0; i < 4000; i++) {
        f32v x = f32_set(0), y;
        f64v u = f64_set(0), w;
        for (int l = 0; l < 16; l++) {
            double t = ((double)i * 16 + l + 0.37) / 64000;
            double v = c->lo > 0 && c->hi / c->lo > 1e6 ? c->lo * pow(c->hi / c->lo, t)
                                                        : c->lo + (c->hi - c->lo) * t;
            x[l] = (float)v;
            u[l / 2] = v;
        }
        y = c->f32(x);
        w = c->f64(u);
        mix(&y, 64);
        mix(&w, 64);
        for (int l = 0; l < 16; l++) {
            double r = c->ref((double)x[l]), e = fabs((double)y[l] - r) / fmax(fabs(r), c->abs);
            worst[0] = e > worst[0] ? e : worst[0];
            r = c->ref(u[l / 2]);
            e = fabs(w[l / 2] - r) / fmax(fabs(r), c->abs);
            worst[1] = e > worst[1] ? e : worst[1];
        }
    }
    int bad = !(worst[0] <= c->tol32) || !(worst[1] <= c->tol64);
    failed += bad;
    printf("%-10s f32 %.2e  f64 %.2e%s\n", c->name, worst[0], worst[1], bad ? "  FAILED" : "");
}

static void expect(int ok, const char *what)
{
    if (!ok) {
        printf("%s  FAILED\n", what);
        failed++;
    }
}

static void ends(void)
{
    float inf = __builtin_inff();
    expect(f32_exp1(1000) == inf && f32_exp1(-1000) == 0 && f32_exp1(-inf) == 0, "exp ends");
    expect(isnan(f32_exp1(NAN)) && isnan(f32_log1(-1)) && isnan(f32_tanh1(NAN)) &&
               isnan(f32_erf1(NAN)),
           "NaN");
    expect(f32_log1(0) == -inf && f32_log1(inf) == inf && f32_sqrt1(0) == 0 &&
               f32_sqrt1(inf) == inf,
           "log, sqrt ends");
    expect(f64_exp1(1000) == inf && f64_exp1(-1000) == 0 && f64_log1(0) == -inf &&
               f64_sqrt1(0) == 0,
           "f64 ends");
    expect(f32_tanh1(50) == 1 && f32_tanh1(-50) == -1 && f32_erf1(-9) == -1, "tanh, erf ends");
    float x[3] = {1.00390625f, 1.01171875f, -1.005859375f}, r[3] = {1.0f, 1.015625f, -1.0078125f};
    for (int i = 0; i < 3; i++)
        expect(f32_round_bf161(x[i]) == r[i], "bf16 ties to even");
    expect(isnan(f32_round_bf161(NAN)) && f32_round_bf161(inf) == inf &&
               f32_round_bf161(3.4e38f) == inf,
           "bf16 ends");
}

/* Known answers of Philox4x32-10 (Salmon et al. 2011, Random123 kat_vectors); vector = scalar. */
static void random_words(void)
{
    uint32_t out[4], zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    mgk_philox(zero, zero, out);
    expect(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d && out[2] == 0xbc57ac4c &&
               out[3] == 0x9b00dbd8,
           "philox of zeros");
    mgk_philox(ones, ones, out);
    expect(out[0] == 0x408f276d && out[1] == 0x41c83b0e && out[2] == 0xa20bc7c6 &&
               out[3] == 0x6d5451fd,
           "philox of ones");
    uint64_t at[2] = {12345, 0xfffffff8u}; /* the second crosses 2^32 */
    for (int k = 0; k < 2; k++)
        for (int lane = 0; lane < 4; lane++) {
            u32v v = u32_rand(0x123456789abcdefu, 77, at[k], 5, lane);
            for (unsigned i = 0; i < 16; i++)
                expect(v[i] == mgk_rand(0x123456789abcdefu, 77, at[k] + i, 5, lane),
                       "vector philox");
            mix(&v, 64);
        }
    double m = 0, s = 0;
    for (uint64_t i = 0; i < 65536; i += 16) {
        f32v z = f32_normal(u32_rand(1, 2, i, 3, 0), u32_rand(1, 2, i, 3, 1));
        mix(&z, 64);
        for (int l = 0; l < 16; l++) {
            m += (double)z[l] / 65536;
            s += (double)z[l] * (double)z[l] / 65536;
        }
    }
    expect(fabs(m) < 0.012 && fabs(s - 1) < 0.02, "moments of normal");
}

static void memory(void)
{
    float x[17], y[17];
    uint16_t h[17];
    for (int i = 0; i < 17; i++)
        x[i] = (float)(i * i) * 0.25f - 3.0f, y[i] = -1.0f;
    f32_st_n(y + 1, f32_ld_n(x + 1, 5) * 2.0f, 5);
    for (int i = 0; i < 17; i++)
        expect(y[i] == (i >= 1 && i < 6 ? 2 * x[i] : -1.0f), "tail store");
    f32_st_bf16(h, f32_ld(x));
    f32v v = f32_ld_bf16(h), w = f32_round_bf16(f32_ld(x));
    expect(!memcmp(&v, &w, 64), "bf16 round trip");
    expect(f32_sum(f32_ld_n(x, 4)) == x[0] + x[1] + x[2] + x[3], "sum");
    expect(f32_hmax(f32_ld(x)) == x[15] && f32_hmin(f32_ld(x)) == x[0], "folds");
}

int main(void)
{
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        check(&cases[i]);
    ends();
    random_words();
    memory();
    printf("hash %016llx\n%d failed\n", (unsigned long long)hash, failed);
    return failed != 0;
}
