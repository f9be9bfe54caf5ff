/* mgk.h: vectors for generated row and map kernels, in GNU C, without intrinsics and without libm.
 *
 * A vector is 64 bytes: 16 float lanes or 8 double lanes, on every machine. AVX2 and SSE builds
 * split it into pieces, lane order and so every bit stays the same. Compile with -ffp-contract=off:
 * with it gcc and clang give equal bits on AVX-512, AVX2 and plain x86-64.
 *
 *   f32v i32v u32v          16 lanes, what kernels of float, bf16 and i32 data compute in
 *   f64v i64v u64v          8 lanes, the verification build
 *   NAME_ld[_TYPE](p)       load and convert     NAME_ld..._n(p, n): n lanes, the rest are 0
 *   NAME_st[_TYPE](p, v)    convert and store    NAME_st..._n(p, v, n)
 *   f32_sum f32_hmax ...    fold the lanes: 8 and 8, 4 and 4, 2 and 2, 1 and 1
 *   f32_exp f32_log ...     polynomials; f32: relative error about 1e-7, f64: about 1e-15
 *   f32_exp1 ...            the same bits for one number
 *   mgk_philox, mgk_rand32  counter-based random words; unit() and normal() make numbers of them
 */
#ifndef MGK_H
#define MGK_H

#include <stdint.h>

#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed between inlined functions only */
#endif

#define MGK static inline __attribute__((always_inline, unused))

typedef uint16_t bf16; /* as in pack.h: the upper half of a float */
typedef float f32v __attribute__((vector_size(64), may_alias));
typedef int32_t i32v __attribute__((vector_size(64), may_alias));
typedef uint32_t u32v __attribute__((vector_size(64), may_alias));
typedef double f64v __attribute__((vector_size(64), may_alias));
typedef int64_t i64v __attribute__((vector_size(64), may_alias));
typedef uint64_t u64v __attribute__((vector_size(64), may_alias));

/* Unaligned forms in memory, and halves and quarters for conversions and folds. */
typedef float f32m __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t i32m __attribute__((vector_size(64), aligned(4), may_alias));
typedef double f64m __attribute__((vector_size(64), aligned(8), may_alias));
typedef int64_t i64m __attribute__((vector_size(64), aligned(8), may_alias));
typedef float f32x8 __attribute__((vector_size(32), may_alias));
typedef float f32x4 __attribute__((vector_size(16), may_alias));
typedef float f32m8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef double f64x4 __attribute__((vector_size(32), may_alias));
typedef double f64x2 __attribute__((vector_size(16), may_alias));
typedef int32_t i32x8 __attribute__((vector_size(32), may_alias));
typedef int32_t i32m8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t u32x8 __attribute__((vector_size(32), may_alias));
typedef uint16_t u16x16 __attribute__((vector_size(32), may_alias));
typedef uint16_t u16m16 __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint16_t u16x8 __attribute__((vector_size(16), may_alias));
typedef uint16_t u16m8 __attribute__((vector_size(16), aligned(2), may_alias));

/* ---- constants, lanes, selection ------------------------------------------------------------- */

MGK f32v f32_set(float a)
{
    return a - (f32v){0};
}
MGK f64v f64_set(double a)
{
    return a - (f64v){0};
}
MGK i32v i32_set(int32_t a)
{
    return a - (i32v){0};
}
MGK i64v i64_set(int64_t a)
{
    return a - (i64v){0};
}

MGK i32v i32_iota(int32_t from)
{
    return from + (i32v){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
}
MGK i64v i64_iota(int64_t from)
{
    return from + (i64v){0, 1, 2, 3, 4, 5, 6, 7};
}

/* Lanes below n: the mask of a tail. */
MGK i32v i32_first(int64_t n)
{
    return i32_iota(0) < (int32_t)n;
}
MGK i64v i64_first(int64_t n)
{
    return i64_iota(0) < n;
}

MGK f32v f32_sel(i32v m, f32v a, f32v b)
{
    return (f32v)((m & (i32v)a) | (~m & (i32v)b));
}
MGK f64v f64_sel(i64v m, f64v a, f64v b)
{
    return (f64v)((m & (i64v)a) | (~m & (i64v)b));
}
MGK i32v i32_sel(i32v m, i32v a, i32v b)
{
    return (m & a) | (~m & b);
}
MGK i64v i64_sel(i64v m, i64v a, i64v b)
{
    return (m & a) | (~m & b);
}

/* The second operand where neither is smaller (so also where the first is NaN). */
MGK f32v f32_min(f32v a, f32v b)
{
    return f32_sel(a < b, a, b);
}
MGK f32v f32_max(f32v a, f32v b)
{
    return f32_sel(a > b, a, b);
}
MGK f64v f64_min(f64v a, f64v b)
{
    return f64_sel(a < b, a, b);
}
MGK f64v f64_max(f64v a, f64v b)
{
    return f64_sel(a > b, a, b);
}
MGK f32v f32_abs(f32v a)
{
    return (f32v)((i32v)a & INT32_MAX);
}
MGK f64v f64_abs(f64v a)
{
    return (f64v)((i64v)a & INT64_MAX);
}

MGK f32v f32_of_i32(i32v a)
{
    return __builtin_convertvector(a, f32v);
}
MGK i32v i32_of_f32(f32v a)
{
    return __builtin_convertvector(a, i32v);
}
MGK f64v f64_of_i64(i64v a)
{
    return __builtin_convertvector(a, f64v);
}
MGK i64v i64_of_f64(f64v a)
{
    return __builtin_convertvector(a, i64v);
}

MGK f32v f32_floor(f32v x)
{
    f32v t = f32_of_i32(i32_of_f32(x)); /* exact below 2^23; larger numbers are integers already */
    t -= (f32v)((i32v)(t > x) & (i32v)f32_set(1.0f));
    return f32_sel(f32_abs(x) < 8388608.0f, t, x);
}

MGK f64v f64_floor(f64v x)
{
    f64v t = (x + 6755399441055744.0) - 6755399441055744.0;
    t -= (f64v)((i64v)(t > x) & (i64v)f64_set(1.0));
    return f64_sel(f64_abs(x) < 2251799813685248.0, t, x);
}

/* ---- rounding to storage types --------------------------------------------------------------- */

/* To bf16, nearest, ties to even; NaN stays NaN. The result is a float with a short mantissa. */
MGK f32v f32_round_bf16(f32v x)
{
    u32v u = (u32v)x;
    u32v r = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
    return f32_sel(x == x, (f32v)r, (f32v)((u | 0x400000u) & 0xffff0000u));
}

/* Stochastic: the low 16 bits of `rand` decide, up with probability = the part cut off. */
MGK f32v f32_sround_bf16(f32v x, u32v rand)
{
    u32v r = ((u32v)x + (rand & 0xffffu)) & 0xffff0000u;
    return f32_sel(f32_abs(x) <= 3.3e38f, (f32v)r, f32_round_bf16(x));
}

MGK f32x8 f32_narrow(f64v a)
{
    return __builtin_convertvector(a, f32x8);
}
MGK f64v f64_widen(f32x8 a)
{
    return __builtin_convertvector(a, f64v);
}
MGK f64v f64_round_f32(f64v x)
{
    return f64_widen(f32_narrow(x));
}

MGK f32x8 f32_lo(f32v a)
{
    f32x8 h[2];
    __builtin_memcpy(h, &a, 64);
    return h[0];
}

MGK f32x8 f32_hi(f32v a)
{
    f32x8 h[2];
    __builtin_memcpy(h, &a, 64);
    return h[1];
}

MGK f32v f32_join(f32x8 lo, f32x8 hi)
{
    f32x8 h[2] = {lo, hi};
    f32v v;
    __builtin_memcpy(&v, h, 64);
    return v;
}

MGK f64v f64_round_bf16(f64v x)
{
    f32x8 f = f32_narrow(x);
    return f64_widen(f32_lo(f32_round_bf16(f32_join(f, f))));
}

MGK f64v f64_sround_bf16(f64v x, u64v rand)
{
    f32x8 f = f32_narrow(x);
    u32v r = {0};
    for (int i = 0; i < 8; i++)
        r[i] = (uint32_t)rand[i];
    return f64_widen(f32_lo(f32_sround_bf16(f32_join(f, f), r)));
}

/* ---- loads and stores ------------------------------------------------------------------------ */

MGK f32v f32_ld(const float *p)
{
    return *(const f32m *)p;
}
MGK void f32_st(float *p, f32v v)
{
    *(f32m *)p = v;
}
MGK i32v i32_ld(const int32_t *p)
{
    return *(const i32m *)p;
}
MGK void i32_st(int32_t *p, i32v v)
{
    *(i32m *)p = v;
}
MGK f64v f64_ld(const double *p)
{
    return *(const f64m *)p;
}
MGK void f64_st(double *p, f64v v)
{
    *(f64m *)p = v;
}
MGK i64v i64_ld(const int64_t *p)
{
    return *(const i64m *)p;
}
MGK void i64_st(int64_t *p, i64v v)
{
    *(i64m *)p = v;
}

MGK f32v f32_ld_bf16(const uint16_t *p)
{
    return (f32v)(__builtin_convertvector((u16x16) * (const u16m16 *)p, u32v) << 16);
}

MGK void f32_st_bf16(uint16_t *p, f32v v)
{
    *(u16m16 *)p = __builtin_convertvector((u32v)f32_round_bf16(v) >> 16, u16x16);
}

MGK f32v f32_ld_f64(const double *p)
{
    return f32_join(f32_narrow(f64_ld(p)), f32_narrow(f64_ld(p + 8)));
}

MGK void f32_st_f64(double *p, f32v v)
{
    f64_st(p, f64_widen(f32_lo(v)));
    f64_st(p + 8, f64_widen(f32_hi(v)));
}

MGK f64v f64_ld_f32(const float *p)
{
    return f64_widen((f32x8) * (const f32m8 *)p);
}
MGK void f64_st_f32(float *p, f64v v)
{
    *(f32m8 *)p = f32_narrow(v);
}

MGK f64v f64_ld_bf16(const uint16_t *p)
{
    u32x8 u = __builtin_convertvector((u16x8) * (const u16m8 *)p, u32x8) << 16;
    return f64_widen((f32x8)u);
}

MGK void f64_st_bf16(uint16_t *p, f64v v)
{
    f32x8 f = f32_narrow(f64_round_bf16(v));
    *(u16m8 *)p = __builtin_convertvector((u32x8)f >> 16, u16x8);
}

MGK i64v i64_ld_i32(const int32_t *p)
{
    return __builtin_convertvector((i32x8) * (const i32m8 *)p, i64v);
}
MGK void i64_st_i32(int32_t *p, i64v v)
{
    *(i32m8 *)p = __builtin_convertvector(v, i32x8);
}

MGK i32v i32_ld_i64(const int64_t *p)
{
    i32v v = {0};
    for (int i = 0; i < 16; i++)
        v[i] = (int32_t)p[i];
    return v;
}

MGK void i32_st_i64(int64_t *p, i32v v)
{
    for (int i = 0; i < 16; i++)
        p[i] = v[i];
}

/* Tails go through a full vector on the stack, so that a tail lane has the bits of a full lane. The
 * _s forms read lanes at a stride. */
#define MGK_TAIL(V, NAME, T, LANES)                                                                \
    MGK V NAME##_n(const T *p, int64_t n)                                                          \
    {                                                                                              \
        T t[LANES] = {0};                                                                          \
        for (int64_t i = 0; i < n; i++)                                                            \
            t[i] = p[i];                                                                           \
        return NAME(t);                                                                            \
    }                                                                                              \
    MGK V NAME##_s(const T *p, int64_t stride, int64_t n)                                          \
    {                                                                                              \
        T t[LANES] = {0};                                                                          \
        for (int64_t i = 0; i < n; i++)                                                            \
            t[i] = p[i * stride];                                                                  \
        return NAME(t);                                                                            \
    }
#define MGK_TAIL_ST(V, NAME, T, LANES)                                                             \
    MGK void NAME##_n(T *p, V v, int64_t n)                                                        \
    {                                                                                              \
        T t[LANES];                                                                                \
        NAME(t, v);                                                                                \
        for (int64_t i = 0; i < n; i++)                                                            \
            p[i] = t[i];                                                                           \
    }                                                                                              \
    MGK void NAME##_s(T *p, V v, int64_t stride, int64_t n)                                        \
    {                                                                                              \
        T t[LANES];                                                                                \
        NAME(t, v);                                                                                \
        for (int64_t i = 0; i < n; i++)                                                            \
            p[i * stride] = t[i];                                                                  \
    }
MGK_TAIL(f32v, f32_ld, float, 16)
MGK_TAIL(f32v, f32_ld_bf16, uint16_t, 16)
MGK_TAIL(f32v, f32_ld_f64, double, 16)
MGK_TAIL(i32v, i32_ld, int32_t, 16)
MGK_TAIL(i32v, i32_ld_i64, int64_t, 16)
MGK_TAIL(f64v, f64_ld, double, 8)
MGK_TAIL(f64v, f64_ld_f32, float, 8)
MGK_TAIL(f64v, f64_ld_bf16, uint16_t, 8)
MGK_TAIL(i64v, i64_ld, int64_t, 8)
MGK_TAIL(i64v, i64_ld_i32, int32_t, 8)
MGK_TAIL_ST(f32v, f32_st, float, 16)
MGK_TAIL_ST(f32v, f32_st_bf16, uint16_t, 16)
MGK_TAIL_ST(f32v, f32_st_f64, double, 16)
MGK_TAIL_ST(i32v, i32_st, int32_t, 16)
MGK_TAIL_ST(i32v, i32_st_i64, int64_t, 16)
MGK_TAIL_ST(f64v, f64_st, double, 8)
MGK_TAIL_ST(f64v, f64_st_f32, float, 8)
MGK_TAIL_ST(f64v, f64_st_bf16, uint16_t, 8)
MGK_TAIL_ST(i64v, i64_st, int64_t, 8)
MGK_TAIL_ST(i64v, i64_st_i32, int32_t, 8)

/* One number: loads for row scalars. */
MGK float bf16_to_f32(uint16_t a)
{
    uint32_t u = (uint32_t)a << 16;
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
}
MGK float f32_round_bf161(float a)
{
    return f32_round_bf16(f32_set(a))[0];
}
MGK double f64_round_bf161(double a)
{
    return f64_round_bf16(f64_set(a))[0];
}
MGK double f64_round_f321(double a)
{
    return (double)(float)a;
}
MGK uint16_t bf16_of_f32(float a)
{
    float r = f32_round_bf161(a);
    uint32_t u;
    __builtin_memcpy(&u, &r, 4);
    return (uint16_t)(u >> 16);
}
MGK uint16_t bf16_of_f64(double a)
{
    return bf16_of_f32((float)a);
}

/* ---- folds of the lanes, in one fixed order -------------------------------------------------- */

MGK float f32_sum(f32v v)
{
    f32x8 a = f32_lo(v) + f32_hi(v);
    f32x4 h[2];
    __builtin_memcpy(h, &a, 32);
    f32x4 b = h[0] + h[1];
    return (b[0] + b[2]) + (b[1] + b[3]);
}

MGK double f64_sum(f64v v)
{
    f64x4 h[2];
    __builtin_memcpy(h, &v, 64);
    f64x4 a = h[0] + h[1];
    return (a[0] + a[2]) + (a[1] + a[3]);
}

MGK float f32_hmax(f32v v)
{
    float m = v[0];
    for (int i = 1; i < 16; i++)
        m = v[i] > m ? v[i] : m;
    return m;
}

MGK float f32_hmin(f32v v)
{
    float m = v[0];
    for (int i = 1; i < 16; i++)
        m = v[i] < m ? v[i] : m;
    return m;
}

MGK double f64_hmax(f64v v)
{
    double m = v[0];
    for (int i = 1; i < 8; i++)
        m = v[i] > m ? v[i] : m;
    return m;
}

MGK double f64_hmin(f64v v)
{
    double m = v[0];
    for (int i = 1; i < 8; i++)
        m = v[i] < m ? v[i] : m;
    return m;
}

/* Of 16 floats as doubles: totals over a whole tensor are kept in double. */
MGK f64v f64_widen_sum(f32v v)
{
    return f64_widen(f32_lo(v)) + f64_widen(f32_hi(v));
}

/* ---- math, float ------------------------------------------------------------------------------
 * exp: x = k ln 2 + r, |r| <= ln 2 / 2; e^r by its series; 2^k through the exponent bits, in two
 * factors so that results near the ends of the range are right. Rounding to the nearest integer is
 * adding and subtracting 1.5 * 2^23, whose low bits then hold the integer. */

MGK f32v f32_exp(f32v x)
{
    x = f32_sel(x < -104.0f, f32_set(-104.0f), f32_sel(x > 89.0f, f32_set(89.0f), x));
    f32v t = x * 1.442695041f + 12582912.0f;
    i32v k = (i32v)t - 0x4b400000;
    f32v n = t - 12582912.0f;
    f32v r = (x - n * 0.693145751953125f) - n * 1.42860682031e-6f;
    f32v p = f32_set(1.984126984e-4f);
    p = p * r + 1.388888889e-3f;
    p = p * r + 8.333333333e-3f;
    p = p * r + 0.04166666667f;
    p = p * r + 0.1666666667f;
    p = p * r + 0.5f;
    f32v y = (r * r * p + r) + 1.0f;
    i32v half = k >> 1;
    return y * (f32v)((half + 127) << 23) * (f32v)((k - half + 127) << 23);
}

/* log: x = 2^k m, m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(f / (2 + f)), f = m - 1. */
MGK f32v f32_log(f32v x)
{
    i32v tiny = x < 1.17549435e-38f;
    i32v ix = (i32v)f32_sel(tiny, x * 16777216.0f, x);
    i32v k = (ix - 0x3f3504f3) >> 23;
    f32v f = (f32v)(ix - (k << 23)) - 1.0f;
    f32v n = f32_of_i32(k - (tiny & 24));
    f32v s = f / (f + 2.0f), z = s * s, h = f * f * 0.5f;
    f32v p = f32_set(0.1818181818f);
    p = p * z + 0.2222222222f;
    p = p * z + 0.2857142857f;
    p = p * z + 0.4f;
    p = p * z + 0.6666666667f;
    f32v y = n * 0.693145751953125f + (f - (h - (s * (h + z * p) + n * 1.42860682031e-6f)));
    y = f32_sel(x > 3.4028234e38f, x, y);
    y = f32_sel(x == 0.0f, f32_set(-__builtin_inff()), y);
    return f32_sel(x >= 0.0f, y, f32_set(__builtin_nanf("")));
}

/* sqrt: the exponent halved by a shift, two Newton steps for 1/sqrt, one Heron step (one rounding
 * left). */
MGK f32v f32_sqrt(f32v x)
{
    f32v y = (f32v)(0x5f3759df - ((i32v)x >> 1));
    y = y * (1.5f - (0.5f * x * y) * y);
    y = y * (1.5f - (0.5f * x * y) * y);
    f32v s = x * y;
    s = 0.5f * (s + x / s);
    s = f32_sel((x == 0.0f) | (x > 3.4028234e38f), x, s);
    return f32_sel(x >= 0.0f, s, f32_set(__builtin_nanf("")));
}

MGK f32v f32_rsqrt(f32v x)
{
    return 1.0f / f32_sqrt(x);
}
MGK f32v f32_sigmoid(f32v x)
{
    return 1.0f / (f32_exp(-x) + 1.0f);
}

/* tanh x = e / (e + 2) with e = exp(2 |x|) - 1, which is kept exact near 0. */
MGK f32v f32_tanh(f32v x)
{
    f32v a = f32_abs(x);
    a = f32_sel(a > 10.0f, f32_set(10.0f), a) * 2.0f;
    f32v t = a * 1.442695041f + 12582912.0f;
    f32v n = t - 12582912.0f;
    f32v r = (a - n * 0.693145751953125f) - n * 1.42860682031e-6f;
    f32v s = (f32v)(((i32v)t - 0x4b400000 + 127) << 23);
    f32v p = f32_set(1.984126984e-4f);
    p = p * r + 1.388888889e-3f;
    p = p * r + 8.333333333e-3f;
    p = p * r + 0.04166666667f;
    p = p * r + 0.1666666667f;
    p = p * r + 0.5f;
    f32v e = s * (r * r * p + r) + (s - 1.0f);
    f32v y = e / (e + 2.0f);
    return (f32v)((i32v)y | ((i32v)x & INT32_MIN));
}

/* erf: its series below 1; above, 1 - exp(-x^2) g((x - 2) / (x + 2)) with a polynomial g (fitted to
 * 7e-10). */
MGK f32v f32_erfcx(f32v t)
{
    f32v p = f32_set(-9.39547726e-4f);
    p = p * t + -8.365721271e-4f;
    p = p * t + 6.993958075e-3f;
    p = p * t + 3.732138369e-3f;
    p = p * t + -0.07897847337f;
    p = p * t + 0.2416582112f;
    p = p * t + -0.4271858483f;
    p = p * t + 0.2553956763f;
    return p;
}

MGK f32v f32_erf(f32v x)
{
    f32v z = x * x, a = f32_abs(x);
    f32v p = f32_set(1.480719282e-8f);
    p = p * z + -1.636584469e-7f;
    p = p * z + 1.646211437e-6f;
    p = p * z + -1.492565036e-5f;
    p = p * z + 1.205533298e-4f;
    p = p * z + -8.548327023e-4f;
    p = p * z + 5.223977625e-3f;
    p = p * z + -0.02686617065f;
    p = p * z + 0.1128379167f;
    p = p * z + -0.376126389f;
    p = p * z + 1.128379167f;
    f32v small = x * p;
    a = f32_sel(a > 4.0f, f32_set(4.0f), a);
    f32v y = 1.0f - f32_exp(-(a * a)) * f32_erfcx((a - 2.0f) / (a + 2.0f));
    y = (f32v)((i32v)y | ((i32v)x & INT32_MIN));
    return f32_sel(a < 1.0f, small, f32_sel(x == x, y, x));
}

/* sin and cos of r in [-pi/4, pi/4] + k pi/2. */
MGK f32v f32_sin_k(f32v r, i32v k)
{
    f32v z = r * r, s, c;
    {
        f32v p = f32_set(2.755731922e-6f);
        p = p * z + -1.984126984e-4f;
        p = p * z + 8.333333333e-3f;
        p = p * z + -0.1666666667f;
        s = r * z * p + r;
    }
    {
        f32v p = f32_set(-2.755731922e-7f);
        p = p * z + 2.48015873e-5f;
        p = p * z + -1.388888889e-3f;
        p = p * z + 0.04166666667f;
        c = (z * z * p - z * 0.5f) + 1.0f;
    }
    f32v y = f32_sel((k & 1) != 0, c, s);
    return (f32v)((i32v)y ^ ((k & 2) << 30));
}

/* Good to |x| about 1e4. */
MGK f32v f32_trig(f32v x, int32_t quarter)
{
    f32v t = x * 0.6366197724f + 12582912.0f;
    f32v n = t - 12582912.0f;
    f32v r = ((x - n * 1.5703125f) - n * 4.837512969970703125e-4f) - n * 7.54978995489e-8f;
    return f32_sin_k(r, (i32v)t - 0x4b400000 + quarter);
}

MGK f32v f32_sin(f32v x)
{
    return f32_trig(x, 0);
}
MGK f32v f32_cos(f32v x)
{
    return f32_trig(x, 1);
}

/* 32 random bits to [0, 1): 24 of them, so that float and double builds draw the same numbers. */
MGK f32v f32_unit(u32v u)
{
    return f32_of_i32((i32v)(u >> 8)) * 5.9604644775390625e-8f;
}

/* Two words to a standard normal number (Box and Muller). */
MGK f32v f32_normal(u32v a, u32v b)
{
    f32v r = f32_sqrt(f32_log(f32_unit(a) + 5.9604644775390625e-8f) * -2.0f);
    f32v t = f32_unit(b) * 4.0f + 12582912.0f;
    f32v f = (f32_unit(b) * 4.0f - (t - 12582912.0f)) * 1.570796327f;
    return r * f32_sin_k(f, (i32v)t - 0x4b400000 + 1);
}

/* ---- math, double: the same algorithms with longer polynomials ------------------------------- */

MGK f64v f64_exp(f64v x)
{
    x = f64_sel(x < -746.0, f64_set(-746.0), f64_sel(x > 710.0, f64_set(710.0), x));
    f64v t = x * 1.442695040888963407 + 6755399441055744.0;
    i64v k = (i64v)t - 0x4338000000000000;
    f64v n = t - 6755399441055744.0;
    f64v r = (x - n * 0.6931471803691238164901733) - n * 1.908214929270587816144e-10;
    f64v p = f64_set(1.60590438368216146e-10);
    p = p * r + 2.087675698786809898e-9;
    p = p * r + 2.505210838544171878e-8;
    p = p * r + 2.755731922398589065e-7;
    p = p * r + 2.755731922398589065e-6;
    p = p * r + 2.480158730158730159e-5;
    p = p * r + 1.984126984126984127e-4;
    p = p * r + 1.388888888888888889e-3;
    p = p * r + 8.333333333333333333e-3;
    p = p * r + 0.04166666666666666667;
    p = p * r + 0.1666666666666666667;
    p = p * r + 0.5;
    f64v y = (r * r * p + r) + 1.0;
    i64v half = k >> 1;
    return y * (f64v)((half + 1023) << 52) * (f64v)((k - half + 1023) << 52);
}

MGK f64v f64_log(f64v x)
{
    i64v tiny = x < 2.2250738585072014e-308;
    i64v ix = (i64v)f64_sel(tiny, x * 18014398509481984.0, x);
    i64v k = (ix - 0x3fe6a09e667f3bcd) >> 52;
    f64v f = (f64v)(ix - (k << 52)) - 1.0;
    f64v n = f64_of_i64(k - (tiny & 54));
    f64v s = f / (f + 2.0), z = s * s, h = f * f * 0.5;
    f64v p = f64_set(0.0952380952380952381);
    p = p * z + 0.1052631578947368421;
    p = p * z + 0.1176470588235294118;
    p = p * z + 0.1333333333333333333;
    p = p * z + 0.1538461538461538462;
    p = p * z + 0.1818181818181818182;
    p = p * z + 0.2222222222222222222;
    p = p * z + 0.2857142857142857143;
    p = p * z + 0.4;
    p = p * z + 0.6666666666666666667;
    f64v y = n * 0.6931471803691238164901733 +
             (f - (h - (s * (h + z * p) + n * 1.908214929270587816144e-10)));
    y = f64_sel(x > 1.7976931348623157e308, x, y);
    y = f64_sel(x == 0.0, f64_set(-__builtin_inf()), y);
    return f64_sel(x >= 0.0, y, f64_set(__builtin_nan("")));
}

MGK f64v f64_sqrt(f64v x)
{
    f64v y = (f64v)(0x5fe6eb50c7b537a9 - ((i64v)x >> 1));
    y = y * (1.5 - (0.5 * x * y) * y);
    y = y * (1.5 - (0.5 * x * y) * y);
    y = y * (1.5 - (0.5 * x * y) * y);
    f64v s = x * y;
    s = 0.5 * (s + x / s);
    s = f64_sel((x == 0.0) | (x > 1.7976931348623157e308), x, s);
    return f64_sel(x >= 0.0, s, f64_set(__builtin_nan("")));
}

MGK f64v f64_rsqrt(f64v x)
{
    return 1.0 / f64_sqrt(x);
}
MGK f64v f64_sigmoid(f64v x)
{
    return 1.0 / (f64_exp(-x) + 1.0);
}

MGK f64v f64_tanh(f64v x)
{
    f64v a = f64_abs(x);
    a = f64_sel(a > 22.0, f64_set(22.0), a) * 2.0;
    f64v t = a * 1.442695040888963407 + 6755399441055744.0;
    f64v n = t - 6755399441055744.0;
    f64v r = (a - n * 0.6931471803691238164901733) - n * 1.908214929270587816144e-10;
    f64v s = (f64v)(((i64v)t - 0x4338000000000000 + 1023) << 52);
    f64v p = f64_set(1.60590438368216146e-10);
    p = p * r + 2.087675698786809898e-9;
    p = p * r + 2.505210838544171878e-8;
    p = p * r + 2.755731922398589065e-7;
    p = p * r + 2.755731922398589065e-6;
    p = p * r + 2.480158730158730159e-5;
    p = p * r + 1.984126984126984127e-4;
    p = p * r + 1.388888888888888889e-3;
    p = p * r + 8.333333333333333333e-3;
    p = p * r + 0.04166666666666666667;
    p = p * r + 0.1666666666666666667;
    p = p * r + 0.5;
    f64v e = s * (r * r * p + r) + (s - 1.0);
    f64v y = e / (e + 2.0);
    return (f64v)((i64v)y | ((i64v)x & INT64_MIN));
}

MGK f64v f64_erfcx(f64v t)
{
    f64v p = f64_set(-2.40754456633049159e-7);
    p = p * t + 4.16898603933431068e-6;
    p = p * t + 1.85774126310275738e-6;
    p = p * t + -1.41742791539015384e-5;
    p = p * t + -2.7638522202479395e-5;
    p = p * t + 2.75614078851672174e-5;
    p = p * t + 1.74364372764012585e-4;
    p = p * t + 4.35525873998226226e-5;
    p = p * t + -9.81977080273936344e-4;
    p = p * t + -8.47143120952197276e-4;
    p = p * t + 6.99746173804791856e-3;
    p = p * t + 3.73289240163030752e-3;
    p = p * t + -0.0789785810156945281;
    p = p * t + 0.241658194242487753;
    p = p * t + -0.427185847413958574;
    p = p * t + 0.255395676310505716;
    return p;
}

MGK f64v f64_erf(f64v x)
{
    f64v z = x * x, a = f64_abs(x);
    f64v p = f64_set(-2.378459885277429425e-19);
    p = p * z + 4.76334804051506812e-18;
    p = p * z + -9.063970842808672479e-17;
    p = p * z + 1.634261409536715189e-15;
    p = p * z + -2.783516207210921355e-14;
    p = p * z + 4.463224263286477345e-13;
    p = p * z + -6.711366855164110378e-12;
    p = p * z + 9.422759064650410971e-11;
    p = p * z + -1.229055530171792735e-9;
    p = p * z + 1.480719281587921724e-8;
    p = p * z + -1.636584469123492432e-7;
    p = p * z + 1.64621143658892474e-6;
    p = p * z + -1.492565035840625098e-5;
    p = p * z + 1.205533298178966425e-4;
    p = p * z + -8.548327023450852833e-4;
    p = p * z + 5.223977625442187842e-3;
    p = p * z + -0.02686617064513125176;
    p = p * z + 0.1128379167095512574;
    p = p * z + -0.3761263890318375246;
    p = p * z + 1.128379167095512574;
    f64v small = x * p;
    a = f64_sel(a > 6.0, f64_set(6.0), a);
    f64v y = 1.0 - f64_exp(-(a * a)) * f64_erfcx((a - 2.0) / (a + 2.0));
    y = (f64v)((i64v)y | ((i64v)x & INT64_MIN));
    return f64_sel(a < 1.0, small, f64_sel(x == x, y, x));
}

MGK f64v f64_sin_k(f64v r, i64v k)
{
    f64v z = r * r, s, c;
    {
        f64v p = f64_set(2.811457254345520763e-15);
        p = p * z + -7.647163731819816476e-13;
        p = p * z + 1.60590438368216146e-10;
        p = p * z + -2.505210838544171878e-8;
        p = p * z + 2.755731922398589065e-6;
        p = p * z + -1.984126984126984127e-4;
        p = p * z + 8.333333333333333333e-3;
        p = p * z + -0.1666666666666666667;
        s = r * z * p + r;
    }
    {
        f64v p = f64_set(-1.561920696858622646e-16);
        p = p * z + 4.779477332387385297e-14;
        p = p * z + -1.147074559772972471e-11;
        p = p * z + 2.087675698786809898e-9;
        p = p * z + -2.755731922398589065e-7;
        p = p * z + 2.480158730158730159e-5;
        p = p * z + -1.388888888888888889e-3;
        p = p * z + 0.04166666666666666667;
        c = (z * z * p - z * 0.5) + 1.0;
    }
    f64v y = f64_sel((k & 1) != 0, c, s);
    return (f64v)((i64v)y ^ ((k & 2) << 62));
}

MGK f64v f64_trig(f64v x, int64_t quarter)
{
    f64v t = x * 0.6366197723675813431 + 6755399441055744.0;
    f64v n = t - 6755399441055744.0;
    f64v r = ((x - n * 1.570796325802803039550781) - n * 9.920935791635221434603409e-10) -
             n * 5.170182981794105568859e-19;
    return f64_sin_k(r, (i64v)t - 0x4338000000000000 + quarter);
}

MGK f64v f64_sin(f64v x)
{
    return f64_trig(x, 0);
}
MGK f64v f64_cos(f64v x)
{
    return f64_trig(x, 1);
}

/* Lanes of u64v that hold 32 random bits each; the numbers are those of the float build. */
MGK f64v f64_unit(u64v u)
{
    return f64_of_i64((i64v)((u & 0xffffffffu) >> 8)) * 5.9604644775390625e-8;
}

MGK f64v f64_normal(u64v a, u64v b)
{
    f64v r = f64_sqrt(f64_log(f64_unit(a) + 5.9604644775390625e-8) * -2.0);
    f64v t = f64_unit(b) * 4.0 + 6755399441055744.0;
    f64v f = (f64_unit(b) * 4.0 - (t - 6755399441055744.0)) * 1.570796326794896619;
    return r * f64_sin_k(f, (i64v)t - 0x4338000000000000 + 1);
}

/* One number with the bits of a lane, for row scalars. */
#define MGK_ONE(F)                                                                                 \
    MGK float f32_##F##1(float a)                                                                  \
    {                                                                                              \
        return f32_##F(f32_set(a))[0];                                                             \
    }                                                                                              \
    MGK double f64_##F##1(double a)                                                                \
    {                                                                                              \
        return f64_##F(f64_set(a))[0];                                                             \
    }
MGK_ONE(exp)
MGK_ONE(log)
MGK_ONE(sqrt)
MGK_ONE(rsqrt)
MGK_ONE(sigmoid)
MGK_ONE(tanh)
MGK_ONE(erf)
MGK_ONE(sin)
MGK_ONE(cos)
MGK_ONE(floor)
MGK_ONE(abs)
MGK float f32_min1(float a, float b)
{
    return a < b ? a : b;
}
MGK float f32_max1(float a, float b)
{
    return a > b ? a : b;
}
MGK double f64_min1(double a, double b)
{
    return a < b ? a : b;
}
MGK double f64_max1(double a, double b)
{
    return a > b ? a : b;
}

/* ---- random numbers: Philox4x32-10 ----------------------------------------------------------- */

MGK void mgk_philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t a = ctr[0], b = ctr[1], c = ctr[2], d = ctr[3], k0 = key[0], k1 = key[1];
    for (int i = 0; i < 10; i++) {
        uint64_t p = (uint64_t)a * 0xd2511f53u, q = (uint64_t)c * 0xcd9e8d57u;
        uint32_t t = (uint32_t)(q >> 32) ^ b ^ k0, u = (uint32_t)(p >> 32) ^ d ^ k1;
        b = (uint32_t)q;
        d = (uint32_t)p;
        a = t;
        c = u;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

/* Word `lane` (0..3) of the block of (seed, site, step, element). Every random number of a model is
 * one of these: key = (seed low ^ site, seed high), counter = (element low, element high, step, 0).
 */
MGK uint32_t mgk_rand(uint64_t seed, uint32_t site, uint64_t elem, uint32_t step, int lane)
{
    const uint32_t ctr[4] = {(uint32_t)elem, (uint32_t)(elem >> 32), step, 0};
    const uint32_t key[2] = {(uint32_t)seed ^ site, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    mgk_philox(ctr, key, out);
    return out[lane & 3];
}

/* High and low halves of 16 products of 32 bits, through the even and the odd lanes. */
MGK u32v u32_mul_hi(u32v a, uint32_t m)
{
    u64v even = ((u64v)a & 0xffffffffu) * m, odd = ((u64v)a >> 32) * m;
    return (u32v)((even >> 32) | (odd & 0xffffffff00000000u));
}

/* 16 elements from `elem` on. */
MGK u32v u32_rand(uint64_t seed, uint32_t site, uint64_t elem, uint32_t step, int lane)
{
    u32v a = (u32v)i32_iota(0) + (uint32_t)elem;
    u32v b = (uint32_t)(elem >> 32) - (u32v)(a < (uint32_t)elem); /* carry: true is -1 */
    u32v c = step - (u32v){0}, d = {0};
    uint32_t k0 = (uint32_t)seed ^ site, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < 10; i++) {
        u32v t = u32_mul_hi(c, 0xcd9e8d57u) ^ b ^ k0, u = u32_mul_hi(a, 0xd2511f53u) ^ d ^ k1;
        b = c * 0xcd9e8d57u;
        d = a * 0xd2511f53u;
        a = t;
        c = u;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return lane == 0 ? a : lane == 1 ? b : lane == 2 ? c : d;
}

MGK u64v u64_rand(uint64_t seed, uint32_t site, uint64_t elem, uint32_t step, int lane)
{
    u64v v = {0};
    for (unsigned i = 0; i < 8; i++)
        v[i] = mgk_rand(seed, site, elem + i, step, lane);
    return v;
}

MGK float f32_unit1(uint32_t u)
{
    return (float)(u >> 8) * 5.9604644775390625e-8f;
}
MGK double f64_unit1(uint32_t u)
{
    return (double)(u >> 8) * 5.9604644775390625e-8;
}
MGK float f32_normal1(uint32_t a, uint32_t b)
{
    return f32_normal((u32v){a}, (u32v){b})[0];
}
MGK double f64_normal1(uint32_t a, uint32_t b)
{
    return f64_normal((u64v){a}, (u64v){b})[0];
}

#endif
