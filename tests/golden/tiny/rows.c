/* rows.c: kernels made for tiny from the bodies of its ops.
 *
 * They are maps over elements and passes over rows; the comment above each says what it computes.
 * Compiled without contraction: a value has the same bits whatever it was fused with.
 */
#include "cpu/mgk.h"
#include "model.h"

/* ln_1: rmsnorm, 64 x 64 elements
 *     t1 = sum(x*x, d);
 *     r = rsqrt(t1/64 + 1e-05);
 *     y = x*r*w;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    const float *x;
    const float *w;
} rmsnorm_arg;

static void rmsnorm_part(void *arg, int part)
{
    const rmsnorm_arg *a = arg;
    const float *w = a->w;
    (void)part;
    for (int64_t row = 0; row < 64; row++) {
        float *y = a->y + row * 64;
        const float *x = a->x + row * 64;
        f32v t1_v = f32_set(0);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            t1_v += x_i * x_i;
        }
        const float t1 = f32_sum(t1_v);
        const float r = f32_rsqrt1(t1 / 64.0f + 1e-05f);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v y_i = x_i * r * w_i;
            f32_st(y + i, y_i);
        }
    }
}

MG_KERNEL void rmsnorm(mg_ctx *c, float *y, const float *x, const float *w)
{
    rmsnorm_arg a = {c, y, x, w};
    mg_par(c, 1, rmsnorm_part, &a);
}

/* attn: rope, 2 x 32 x 2 x 3 x 8 elements
 *     y1 = x1*cs - x2*sn;
 *     y2 = x2*cs + x1*sn;
 */
typedef struct {
    mg_ctx *c;
    float *y1;
    float *y2;
    const float *x1;
    const float *x2;
    const float *cs;
    const float *sn;
} attn_rope_arg;

static void attn_rope_part(void *arg, int part)
{
    const attn_rope_arg *a = arg;
    (void)part;
    for (int64_t row = 0; row < 384; row++) {
        const int64_t r3 = row % 3;
        const int64_t r2 = row / 3 % 2;
        const int64_t r1 = row / 6 % 32;
        const int64_t r0 = row / 192;
        float *y1 = a->y1 + r0 * 3072 + r1 * 96 + r2 * 48 + r3 * 16;
        float *y2 = a->y2 + r0 * 3072 + r1 * 96 + r2 * 48 + r3 * 16;
        const float *x1 = a->x1 + r0 * 4096 + r1 * 128 + r2 * 64 + r3 * 16;
        const float *x2 = a->x2 + r0 * 4096 + r1 * 128 + r2 * 64 + r3 * 16;
        const float *cs = a->cs + r1 * 8;
        const float *sn = a->sn + r1 * 8;
        {
            const int64_t i = 0;
            const f32v x1_i = f32_ld_n(x1 + i, 8);
            const f32v x2_i = f32_ld_n(x2 + i, 8);
            const f32v cs_i = f32_ld_n(cs + i, 8);
            const f32v sn_i = f32_ld_n(sn + i, 8);
            const f32v y1_i = x1_i * cs_i - x2_i * sn_i;
            const f32v y2_i = x2_i * cs_i + x1_i * sn_i;
            f32_st_n(y1 + i, y1_i, 8);
            f32_st_n(y2 + i, y2_i, 8);
        }
    }
}

MG_KERNEL void attn_rope(mg_ctx *c, float *y1, float *y2, const float *x1, const float *x2,
                         const float *cs, const float *sn)
{
    attn_rope_arg a = {c, y1, y2, x1, x2, cs, sn};
    mg_par(c, 1, attn_rope_part, &a);
}

/* ln_2: add_rmsnorm, 64 x 64 elements
 *     z = x + y;
 *     t1 = sum(z*z, d);
 *     r = rsqrt(t1/64 + 1e-05);
 *     y2 = z*r*w;
 */
typedef struct {
    mg_ctx *c;
    float *z;
    float *y2;
    const float *x;
    const float *y;
    const float *w;
} ln_2_add_rmsnorm_arg;

static void ln_2_add_rmsnorm_part(void *arg, int part)
{
    const ln_2_add_rmsnorm_arg *a = arg;
    const float *w = a->w;
    (void)part;
    for (int64_t row = 0; row < 64; row++) {
        float *z = a->z + row * 64;
        float *y2 = a->y2 + row * 64;
        const float *x = a->x + row * 64;
        const float *y = a->y + row * 64;
        f32v t1_v = f32_set(0);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v y_i = f32_ld(y + i);
            const f32v z_i = x_i + y_i;
            t1_v += z_i * z_i;
        }
        const float t1 = f32_sum(t1_v);
        const float r = f32_rsqrt1(t1 / 64.0f + 1e-05f);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v y_i = f32_ld(y + i);
            const f32v z_i = x_i + y_i;
            const f32v w_i = f32_ld(w + i);
            const f32v y2_i = z_i * r * w_i;
            f32_st(z + i, z_i);
            f32_st(y2 + i, y2_i);
        }
    }
}

MG_KERNEL void ln_2_add_rmsnorm(mg_ctx *c, float *z, float *y2, const float *x, const float *y,
                                const float *w)
{
    ln_2_add_rmsnorm_arg a = {c, z, y2, x, y, w};
    mg_par(c, 1, ln_2_add_rmsnorm_part, &a);
}

/* mlp: swiglu, 64 x 96 elements
 *     y = g*sigmoid(g)*u;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    const float *g;
    const float *u;
} mlp_swiglu_arg;

static void mlp_swiglu_part(void *arg, int part)
{
    const mlp_swiglu_arg *a = arg;
    (void)part;
    for (int64_t row = 0; row < 64; row++) {
        float *y = a->y + row * 96;
        const float *g = a->g + row * 192;
        const float *u = a->u + row * 192;
        for (int64_t i = 0; i < 96; i += 16) {
            const f32v g_i = f32_ld(g + i);
            const f32v u_i = f32_ld(u + i);
            const f32v y_i = g_i * f32_sigmoid(g_i) * u_i;
            f32_st(y + i, y_i);
        }
    }
}

MG_KERNEL void mlp_swiglu(mg_ctx *c, float *y, const float *g, const float *u)
{
    mlp_swiglu_arg a = {c, y, g, u};
    mg_par(c, 1, mlp_swiglu_part, &a);
}

/* mlp_add: add, 4096 elements
 *     z = x + y;
 */
typedef struct {
    mg_ctx *c;
    float *z;
    const float *x;
    const float *y;
} mlp_add_fwd_arg;

static void mlp_add_fwd_part(void *arg, int part)
{
    const mlp_add_fwd_arg *a = arg;
    (void)part;
    const int64_t to = 4096;
    int64_t i = 0;
    float *z = a->z;
    const float *x = a->x;
    const float *y = a->y;
    for (; i + 16 <= to; i += 16) {
        const f32v x_i = f32_ld(x + i);
        const f32v y_i = f32_ld(y + i);
        const f32v z_i = x_i + y_i;
        f32_st(z + i, z_i);
    }
}

MG_KERNEL void mlp_add_fwd(mg_ctx *c, float *z, const float *x, const float *y)
{
    mlp_add_fwd_arg a = {c, z, x, y};
    mg_par(c, 1, mlp_add_fwd_part, &a);
}

/* ln_f: rmsnorm, 64 x 64 elements
 *     t1 = sum(x*x, d);
 *     r = rsqrt(t1/64 + 1e-05);
 *     y = x*r*w;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    float *r;
    const float *x;
    const float *w;
} ln_f_rmsnorm_arg;

static void ln_f_rmsnorm_part(void *arg, int part)
{
    const ln_f_rmsnorm_arg *a = arg;
    const float *w = a->w;
    (void)part;
    for (int64_t row = 0; row < 64; row++) {
        float *y = a->y + row * 64;
        float *r = a->r + row;
        const float *x = a->x + row * 64;
        f32v t1_v = f32_set(0);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            t1_v += x_i * x_i;
        }
        const float t1 = f32_sum(t1_v);
        const float r_0 = f32_rsqrt1(t1 / 64.0f + 1e-05f);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v y_i = x_i * r_0 * w_i;
            f32_st(y + i, y_i);
        }
        *r = r_0;
    }
}

MG_KERNEL void ln_f_rmsnorm(mg_ctx *c, float *y, float *r, const float *x, const float *w)
{
    ln_f_rmsnorm_arg a = {c, y, r, x, w};
    mg_par(c, 1, ln_f_rmsnorm_part, &a);
}

/* head: count_if, 64 elements
 *     n_1 = where(t >= 0, 1, 0);
 *     n[] = n_1;
 */
typedef struct {
    mg_ctx *c;
    float *n;
    double *n_lines;
    const int32_t *t;
    int beta;
} head_count_if_arg;

static void head_count_if_part(void *arg, int part)
{
    const head_count_if_arg *a = arg;
    f64v n_v = f64_set(0);
    int64_t i = part * INT64_C(32);
    const int64_t to = i + 32;
    const int32_t *t = a->t;
    for (; i + 16 <= to; i += 16) {
        const i32v t_i = i32_ld(t + i);
        const f32v n_1 = f32_sel(t_i >= 0, f32_set(1.0f), f32_set(0.0f));
        n_v += f64_widen_sum(n_1);
    }
    a->n_lines[part] = f64_sum(n_v);
}

MG_KERNEL void head_count_if(mg_ctx *c, float *n, double *n_lines, const int32_t *t, int beta)
{
    head_count_if_arg a = {c, n, n_lines, t, beta};
    mg_par(c, 2, head_count_if_part, &a);
    double n_s = 0;
    for (int p = 0; p < 2; p++)
        n_s += n_lines[p];
    *n = (float)((beta ? *n : 0) + n_s);
}

/* ln_f: rmsnorm_bwd, 64 x 64 elements
 *     t1 = dy*w;
 *     dr = sum(t1*x, d);
 *     t2 = (-0.5)*dr*r*r*r/64*x;
 *     dx = t1*r + t2 + t2;
 *     dw[d] = dy*(x*r);
 */
typedef struct {
    mg_ctx *c;
    float *dx;
    float *dw;
    float *dw_lines;
    const float *x;
    const float *w;
    const float *r;
    const float *dy;
    int beta;
} ln_f_rmsnorm_bwd_arg;

static void ln_f_rmsnorm_bwd_part(void *arg, int part)
{
    const ln_f_rmsnorm_bwd_arg *a = arg;
    float *dw_lines = a->dw_lines + part * 64;
    for (int64_t i = 0; i < 64; i++)
        dw_lines[i] = 0;
    const float *w = a->w;
    const int64_t from = part * INT64_C(2), to = from + 2;
    for (int64_t row = from; row < to; row++) {
        float *dx = a->dx + row * 64;
        const float *x = a->x + row * 64;
        const float *r = a->r + row;
        const float *dy = a->dy + row * 64;
        const float r_0 = *r;
        f32v dr_v = f32_set(0);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v dy_i = f32_ld(dy + i);
            const f32v t1 = dy_i * w_i;
            const f32v t = dy_i * (x_i * r_0);
            dr_v += t1 * x_i;
            f32_st(dw_lines + i, f32_ld(dw_lines + i) + t);
        }
        const float dr = f32_sum(dr_v);
        const float s = (-0.5f) * dr * r_0 * r_0 * r_0 / 64.0f;
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v dy_i = f32_ld(dy + i);
            const f32v t1 = dy_i * w_i;
            const f32v t2 = s * x_i;
            const f32v dx_i = t1 * r_0 + t2 + t2;
            f32_st(dx + i, dx_i);
        }
    }
}

MG_KERNEL void ln_f_rmsnorm_bwd(mg_ctx *c, float *dx, float *dw, float *dw_lines, const float *x,
                                const float *w, const float *r, const float *dy, int beta)
{
    ln_f_rmsnorm_bwd_arg a = {c, dx, dw, dw_lines, x, w, r, dy, beta};
    mg_par(c, 32, ln_f_rmsnorm_bwd_part, &a);
    for (int64_t i = 0; i < 64; i++) {
        float v = dw_lines[i];
        for (int p = 1; p < 32; p++)
            v += dw_lines[p * INT64_C(64) + i];
        dw[i] = (beta ? dw[i] : 0) + v;
    }
}

/* head: gscale
 *     y = gscale;
 */
typedef struct {
    mg_ctx *c;
    float *y;
} head_gscale_arg;

static void head_gscale_part(void *arg, int part)
{
    const head_gscale_arg *a = arg;
    if (part == 0) {
        float *y = a->y;
        const float gscale = (float)a->c->scalar.gscale;
        *y = gscale;
    }
}

MG_KERNEL void head_gscale(mg_ctx *c, float *y)
{
    head_gscale_arg a = {c, y};
    mg_par(c, 1, head_gscale_part, &a);
}

/* head: cross_entropy_bwd, 64 x 257 elements
 *     l = lse(x, v);
 *     t1 = index(v) == t;
 *     p = sum(where(t1, x, 0), v);
 *     t2 = t >= 0;
 *     loss = where(t2, l - p, 0);
 *     t3 = where(t2, dy, 0);
 *     dp = -t3;
 *     dx = where(t1, dp, 0) + t3*exp(x - l);
 */
typedef struct {
    mg_ctx *c;
    float *loss;
    float *dx;
    const float *x;
    const int32_t *t;
    const float *dy;
} head_cross_entropy_bwd_arg;

static void head_cross_entropy_bwd_part(void *arg, int part)
{
    const head_cross_entropy_bwd_arg *a = arg;
    const float *dy = a->dy;
    const int64_t from = part * INT64_C(64) / 3, to = (part + 1) * INT64_C(64) / 3;
    for (int64_t row = from; row < to; row++) {
        float *loss = a->loss + row;
        float *dx = a->dx + row * 320;
        const float *x = a->x + row * 320;
        const int32_t *t = a->t + row;
        const int32_t t_0 = (int32_t)*t;
        f32v l_max_v = f32_set(-__builtin_inff());
        f32v p_v = f32_set(0);
        for (int64_t i = 0; i < 256; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const i32v index = i32_iota((int32_t)(i));
            const i32v t1 = index == t_0;
            l_max_v = f32_max(l_max_v, x_i);
            p_v += f32_sel(t1, x_i, f32_set(0.0f));
        }
        {
            const int64_t i = 256;
            const f32v x_i = f32_ld_n(x + i, 1);
            const i32v index = i32_iota((int32_t)(i));
            const i32v t1 = index == t_0;
            l_max_v = f32_max(l_max_v, f32_sel(i32_first(1), x_i, f32_set(-__builtin_inff())));
            p_v += f32_sel(i32_first(1), f32_sel(t1, x_i, f32_set(0.0f)), f32_set(0));
        }
        const float l_max = f32_hmax(l_max_v);
        const float p = f32_sum(p_v);
        f32v l_sum_v = f32_set(0);
        for (int64_t i = 0; i < 256; i += 16) {
            const f32v x_i = f32_ld(x + i);
            l_sum_v += f32_exp(x_i - l_max);
        }
        {
            const int64_t i = 256;
            const f32v x_i = f32_ld_n(x + i, 1);
            l_sum_v += f32_sel(i32_first(1), f32_exp(x_i - l_max), f32_set(0));
        }
        const float l_sum = f32_sum(l_sum_v);
        const float l = f32_log1(l_sum) + l_max;
        const int t2 = t_0 >= 0;
        const float dy_0 = *dy;
        const float t3 = (t2 ? dy_0 : 0.0f);
        const float dp = -t3;
        for (int64_t i = 0; i < 256; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const i32v index = i32_iota((int32_t)(i));
            const i32v t1 = index == t_0;
            const f32v dx_i = f32_sel(t1, f32_set(dp), f32_set(0.0f)) + t3 * f32_exp(x_i - l);
            f32_st(dx + i, dx_i);
        }
        {
            const int64_t i = 256;
            const f32v x_i = f32_ld_n(x + i, 1);
            const i32v index = i32_iota((int32_t)(i));
            const i32v t1 = index == t_0;
            const f32v dx_i = f32_sel(t1, f32_set(dp), f32_set(0.0f)) + t3 * f32_exp(x_i - l);
            f32_st_n(dx + i, dx_i, 1);
        }
        const float loss_0 = (t2 ? l - p : 0.0f);
        *loss = loss_0;
        for (int64_t i = 257; i < 320; i++)
            dx[i] = 0; /* padding stays zero */
    }
}

MG_KERNEL void head_cross_entropy_bwd(mg_ctx *c, float *loss, float *dx, const float *x,
                                      const int32_t *t, const float *dy)
{
    head_cross_entropy_bwd_arg a = {c, loss, dx, x, t, dy};
    mg_par(c, 3, head_cross_entropy_bwd_part, &a);
}

/* head: total, 64 elements
 *     y[] = x;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    double *y_lines;
    const float *x;
    int beta;
} head_total_arg;

static void head_total_part(void *arg, int part)
{
    const head_total_arg *a = arg;
    f64v y_v = f64_set(0);
    (void)part;
    const int64_t to = 64;
    int64_t i = 0;
    const float *x = a->x;
    for (; i + 16 <= to; i += 16) {
        const f32v x_i = f32_ld(x + i);
        y_v += f64_widen_sum(x_i);
    }
    a->y_lines[part] = f64_sum(y_v);
}

MG_KERNEL void head_total(mg_ctx *c, float *y, double *y_lines, const float *x, int beta)
{
    head_total_arg a = {c, y, y_lines, x, beta};
    mg_par(c, 1, head_total_part, &a);
    double y_s = 0;
    for (int p = 0; p < 1; p++)
        y_s += y_lines[p];
    *y = (float)((beta ? *y : 0) + y_s);
}

/* mlp: swiglu_bwd, 64 x 96 elements
 *     t1 = sigmoid(g);
 *     t2 = g*t1;
 *     y = t2*u;
 *     t3 = dy*u;
 *     du = dy*t2;
 *     dg = t3*t1 + t3*g*(t1*(1 - t1));
 */
typedef struct {
    mg_ctx *c;
    float *y;
    float *dg;
    float *du;
    const float *g;
    const float *u;
    const float *dy;
} mlp_swiglu_bwd_arg;

static void mlp_swiglu_bwd_part(void *arg, int part)
{
    const mlp_swiglu_bwd_arg *a = arg;
    (void)part;
    for (int64_t row = 0; row < 64; row++) {
        float *y = a->y + row * 96;
        float *dg = a->dg + row * 192;
        float *du = a->du + row * 192;
        const float *g = a->g + row * 192;
        const float *u = a->u + row * 192;
        const float *dy = a->dy + row * 96;
        for (int64_t i = 0; i < 96; i += 16) {
            const f32v g_i = f32_ld(g + i);
            const f32v u_i = f32_ld(u + i);
            const f32v t1 = f32_sigmoid(g_i);
            const f32v t2 = g_i * t1;
            const f32v y_i = t2 * u_i;
            const f32v dy_i = f32_ld(dy + i);
            const f32v t3 = dy_i * u_i;
            const f32v du_i = dy_i * t2;
            const f32v dg_i = t3 * t1 + t3 * g_i * (t1 * (1.0f - t1));
            f32_st(y + i, y_i);
            f32_st(dg + i, dg_i);
            f32_st(du + i, du_i);
        }
    }
}

MG_KERNEL void mlp_swiglu_bwd(mg_ctx *c, float *y, float *dg, float *du, const float *g,
                              const float *u, const float *dy)
{
    mlp_swiglu_bwd_arg a = {c, y, dg, du, g, u, dy};
    mg_par(c, 1, mlp_swiglu_bwd_part, &a);
}

/* ln_2: rmsnorm_bwd, 64 x 64 elements
 *     t1 = sum(x*x, d);
 *     r = rsqrt(t1/64 + 1e-05);
 *     t2 = x*r;
 *     y = t2*w;
 *     t3 = dy*w;
 *     dr = sum(t3*x, d);
 *     t4 = (-0.5)*dr*r*r*r/64*x;
 *     z = x2 + (t3*r + t4 + t4);
 *     dw[d] = dy*t2;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    float *dw;
    float *z;
    float *dw_lines;
    const float *x;
    const float *w;
    const float *dy;
    const float *x2;
    int beta;
} rmsnorm_bwd_arg;

static void rmsnorm_bwd_part(void *arg, int part)
{
    const rmsnorm_bwd_arg *a = arg;
    float *dw_lines = a->dw_lines + part * 64;
    for (int64_t i = 0; i < 64; i++)
        dw_lines[i] = 0;
    const float *w = a->w;
    const int64_t from = part * INT64_C(2), to = from + 2;
    for (int64_t row = from; row < to; row++) {
        float *y = a->y + row * 64;
        float *z = a->z + row * 64;
        const float *x = a->x + row * 64;
        const float *dy = a->dy + row * 64;
        const float *x2 = a->x2 + row * 64;
        f32v t1_v = f32_set(0);
        f32v dr_v = f32_set(0);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v dy_i = f32_ld(dy + i);
            const f32v t3 = dy_i * w_i;
            t1_v += x_i * x_i;
            dr_v += t3 * x_i;
        }
        const float t1 = f32_sum(t1_v);
        const float dr = f32_sum(dr_v);
        const float r = f32_rsqrt1(t1 / 64.0f + 1e-05f);
        const float s = (-0.5f) * dr * r * r * r / 64.0f;
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v t2 = x_i * r;
            const f32v y_i = t2 * w_i;
            const f32v dy_i = f32_ld(dy + i);
            const f32v t3 = dy_i * w_i;
            const f32v t = dy_i * t2;
            const f32v t4 = s * x_i;
            const f32v x2_i = f32_ld(x2 + i);
            const f32v z_i = x2_i + (t3 * r + t4 + t4);
            f32_st(y + i, y_i);
            f32_st(dw_lines + i, f32_ld(dw_lines + i) + t);
            f32_st(z + i, z_i);
        }
    }
}

MG_KERNEL void rmsnorm_bwd(mg_ctx *c, float *y, float *dw, float *z, float *dw_lines,
                           const float *x, const float *w, const float *dy, const float *x2,
                           int beta)
{
    rmsnorm_bwd_arg a = {c, y, dw, z, dw_lines, x, w, dy, x2, beta};
    mg_par(c, 32, rmsnorm_bwd_part, &a);
    for (int64_t i = 0; i < 64; i++) {
        float v = dw_lines[i];
        for (int p = 1; p < 32; p++)
            v += dw_lines[p * INT64_C(64) + i];
        dw[i] = (beta ? dw[i] : 0) + v;
    }
}

/* attn: rope_bwd, 2 x 32 x 2 x 3 x 8 elements
 *     dx2 = dy2*cs - dy1*sn;
 *     dx1 = dy2*sn + dy1*cs;
 */
typedef struct {
    mg_ctx *c;
    float *dx1;
    float *dx2;
    const float *cs;
    const float *sn;
    const float *dy1;
    const float *dy2;
} attn_rope_bwd_arg;

static void attn_rope_bwd_part(void *arg, int part)
{
    const attn_rope_bwd_arg *a = arg;
    (void)part;
    for (int64_t row = 0; row < 384; row++) {
        const int64_t r3 = row % 3;
        const int64_t r2 = row / 3 % 2;
        const int64_t r1 = row / 6 % 32;
        const int64_t r0 = row / 192;
        float *dx1 = a->dx1 + r0 * 4096 + r1 * 128 + r2 * 64 + r3 * 16;
        float *dx2 = a->dx2 + r0 * 4096 + r1 * 128 + r2 * 64 + r3 * 16;
        const float *cs = a->cs + r1 * 8;
        const float *sn = a->sn + r1 * 8;
        const float *dy1 = a->dy1 + r0 * 3072 + r1 * 96 + r2 * 48 + r3 * 16;
        const float *dy2 = a->dy2 + r0 * 3072 + r1 * 96 + r2 * 48 + r3 * 16;
        {
            const int64_t i = 0;
            const f32v cs_i = f32_ld_n(cs + i, 8);
            const f32v sn_i = f32_ld_n(sn + i, 8);
            const f32v dy1_i = f32_ld_n(dy1 + i, 8);
            const f32v dy2_i = f32_ld_n(dy2 + i, 8);
            const f32v dx2_i = dy2_i * cs_i - dy1_i * sn_i;
            const f32v dx1_i = dy2_i * sn_i + dy1_i * cs_i;
            f32_st_n(dx1 + i, dx1_i, 8);
            f32_st_n(dx2 + i, dx2_i, 8);
        }
    }
}

MG_KERNEL void attn_rope_bwd(mg_ctx *c, float *dx1, float *dx2, const float *cs, const float *sn,
                             const float *dy1, const float *dy2)
{
    attn_rope_bwd_arg a = {c, dx1, dx2, cs, sn, dy1, dy2};
    mg_par(c, 1, attn_rope_bwd_part, &a);
}

/* head: cross_entropy, 64 x 257 elements
 *     l = lse(x, v);
 *     p = sum(where(index(v) == t, x, 0), v);
 *     loss = where(t >= 0, l - p, 0);
 */
typedef struct {
    mg_ctx *c;
    float *loss;
    const float *x;
    const int32_t *t;
} head_cross_entropy_arg;

static void head_cross_entropy_part(void *arg, int part)
{
    const head_cross_entropy_arg *a = arg;
    const int64_t from = part * INT64_C(64) / 3, to = (part + 1) * INT64_C(64) / 3;
    for (int64_t row = from; row < to; row++) {
        float *loss = a->loss + row;
        const float *x = a->x + row * 320;
        const int32_t *t = a->t + row;
        const int32_t t_0 = (int32_t)*t;
        f32v l_max_v = f32_set(-__builtin_inff());
        f32v p_v = f32_set(0);
        for (int64_t i = 0; i < 256; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const i32v index = i32_iota((int32_t)(i));
            l_max_v = f32_max(l_max_v, x_i);
            p_v += f32_sel(index == t_0, x_i, f32_set(0.0f));
        }
        {
            const int64_t i = 256;
            const f32v x_i = f32_ld_n(x + i, 1);
            const i32v index = i32_iota((int32_t)(i));
            l_max_v = f32_max(l_max_v, f32_sel(i32_first(1), x_i, f32_set(-__builtin_inff())));
            p_v += f32_sel(i32_first(1), f32_sel(index == t_0, x_i, f32_set(0.0f)), f32_set(0));
        }
        const float l_max = f32_hmax(l_max_v);
        const float p = f32_sum(p_v);
        f32v l_sum_v = f32_set(0);
        for (int64_t i = 0; i < 256; i += 16) {
            const f32v x_i = f32_ld(x + i);
            l_sum_v += f32_exp(x_i - l_max);
        }
        {
            const int64_t i = 256;
            const f32v x_i = f32_ld_n(x + i, 1);
            l_sum_v += f32_sel(i32_first(1), f32_exp(x_i - l_max), f32_set(0));
        }
        const float l_sum = f32_sum(l_sum_v);
        const float l = f32_log1(l_sum) + l_max;
        const float loss_0 = (t_0 >= 0 ? l - p : 0.0f);
        *loss = loss_0;
    }
}

MG_KERNEL void head_cross_entropy(mg_ctx *c, float *loss, const float *x, const int32_t *t)
{
    head_cross_entropy_arg a = {c, loss, x, t};
    mg_par(c, 3, head_cross_entropy_part, &a);
}

/* ln_f: rmsnorm, 2 x 64 elements
 *     t1 = sum(x*x, d);
 *     r = rsqrt(t1/64 + 1e-05);
 *     y = x*r*w;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    const float *x;
    const float *w;
} head_logits_ln_f_rmsnorm_arg;

static void head_logits_ln_f_rmsnorm_part(void *arg, int part)
{
    const head_logits_ln_f_rmsnorm_arg *a = arg;
    const float *w = a->w;
    (void)part;
    for (int64_t row = 0; row < 2; row++) {
        float *y = a->y + row * 64;
        const float *x = a->x + row * 64;
        f32v t1_v = f32_set(0);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            t1_v += x_i * x_i;
        }
        const float t1 = f32_sum(t1_v);
        const float r = f32_rsqrt1(t1 / 64.0f + 1e-05f);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v y_i = x_i * r * w_i;
            f32_st(y + i, y_i);
        }
    }
}

MG_KERNEL void head_logits_ln_f_rmsnorm(mg_ctx *c, float *y, const float *x, const float *w)
{
    head_logits_ln_f_rmsnorm_arg a = {c, y, x, w};
    mg_par(c, 1, head_logits_ln_f_rmsnorm_part, &a);
}

/* sumsq, 82240 elements
 *     s_1 = x*x;
 *     s[] = s_1;
 */
typedef struct {
    mg_ctx *c;
    float *s;
    double *s_lines;
    const float *x;
} sumsq_arg;

static void sumsq_part(void *arg, int part)
{
    const sumsq_arg *a = arg;
    f64v s_v = f64_set(0);
    int64_t i = part * INT64_C(41120);
    const int64_t to = i + 41120;
    const float *x = a->x;
    for (; i + 16 <= to; i += 16) {
        const f32v x_i = f32_ld(x + i);
        const f32v s_1 = x_i * x_i;
        s_v += f64_widen_sum(s_1);
    }
    a->s_lines[part] = f64_sum(s_v);
}

MG_KERNEL void sumsq(mg_ctx *c, float *s, double *s_lines, const float *x)
{
    sumsq_arg a = {c, s, s_lines, x};
    mg_par(c, 2, sumsq_part, &a);
    double s_s = 0;
    for (int p = 0; p < 2; p++)
        s_s += s_lines[p];
    *s = (float)s_s;
}

/* clip_coef
 *     norm = sqrt(s);
 *     coef = where(clip > 0, min(1, clip/(norm + 1e-06)), 1);
 *     ok = where(norm < 1e+30, 1, 0);
 */
typedef struct {
    mg_ctx *c;
    float *coef;
    float *norm;
    float *ok;
    const float *s;
} clip_coef_arg;

static void clip_coef_part(void *arg, int part)
{
    const clip_coef_arg *a = arg;
    if (part == 0) {
        float *coef = a->coef;
        float *norm = a->norm;
        float *ok = a->ok;
        const float *s = a->s;
        const float clip = (float)a->c->scalar.clip;
        const float s_0 = *s;
        const float norm_0 = f32_sqrt1(s_0);
        const float coef_0 = (clip > 0.0f ? f32_min1(1.0f, clip / (norm_0 + 1e-06f)) : 1.0f);
        *coef = coef_0;
        *norm = norm_0;
        const float ok_0 = (norm_0 < 1e+30f ? 1.0f : 0.0f);
        *ok = ok_0;
    }
}

MG_KERNEL void clip_coef(mg_ctx *c, float *coef, float *norm, float *ok, const float *s)
{
    clip_coef_arg a = {c, coef, norm, ok, s};
    mg_par(c, 1, clip_coef_part, &a);
}

/* adamw, 82240 elements
 *     t1 = 0.5*step;
 *     t1_2 = tanh(t1*(-0.10536051565782628));
 *     t2 = tanh(t1*(-0.020202707317519466));
 *     c1 = (-2)*t1_2/(1 - t1_2);
 *     c2 = (-2)*t2/(1 - t2);
 *     h = g*coef;
 *     mn = 0.9*m + 0.09999999999999998*h;
 *     vn = 0.98*v + 0.020000000000000018*h*h;
 *     u = mn/c1/(sqrt(vn/c2) + 1e-08);
 *     t3 = ok > 0.5;
 *     w2 = where(t3, w - lr*(u + wd*group(wd)*w), w);
 *     m2 = where(t3, mn, m);
 *     v2 = where(t3, vn, v);
 */
typedef struct {
    mg_ctx *c;
    float *w2;
    float *m2;
    float *v2;
    const float *w;
    const float *g;
    const float *m;
    const float *v;
    const float *coef;
    const float *ok;
} adamw_arg;

static const int64_t adamw_end[] = {51200, 51328, 82048, 82240};
static const float adamw_decay[] = {1, 0, 1, 0};

static void adamw_part(void *arg, int part)
{
    const adamw_arg *a = arg;
    const int64_t to = part == 5 ? 82240 : (part + 1) * INT64_C(5140) / 6 * 16;
    int64_t i = part * INT64_C(5140) / 6 * 16;
    float *w2 = a->w2;
    float *m2 = a->m2;
    float *v2 = a->v2;
    const float *w = a->w;
    const float *g = a->g;
    const float *m = a->m;
    const float *v = a->v;
    const float *coef = a->coef;
    const float *ok = a->ok;
    const float coef_0 = *coef;
    const float step = (float)a->c->scalar.step;
    const float t1 = 0.5f * step;
    const float t1_2 = f32_tanh1(t1 * (-0.105360516f));
    const float c1 = (-2.0f) * t1_2 / (1.0f - t1_2);
    const float t2 = f32_tanh1(t1 * (-0.0202027073f));
    const float c2 = (-2.0f) * t2 / (1.0f - t2);
    const float ok_0 = *ok;
    const int t3 = ok_0 > 0.5f;
    const float lr = (float)a->c->scalar.lr;
    const float wd = (float)a->c->scalar.wd;
    int seg = 0;
    while (i < to) {
        while (adamw_end[seg] <= i)
            seg++;
        const int64_t end = adamw_end[seg] < to ? adamw_end[seg] : to;
        const f32v group = f32_set(adamw_decay[seg]);
        for (; i + 16 <= end; i += 16) {
            const f32v w_i = f32_ld(w + i);
            const f32v g_i = f32_ld(g + i);
            const f32v m_i = f32_ld(m + i);
            const f32v v_i = f32_ld(v + i);
            const f32v h = g_i * coef_0;
            const f32v mn = 0.9f * m_i + 0.1f * h;
            const f32v vn = 0.98f * v_i + 0.02f * h * h;
            const f32v u = mn / c1 / (f32_sqrt(vn / c2) + 1e-08f);
            const f32v w2_i = f32_sel(i32_set(-(t3)), w_i - lr * (u + wd * group * w_i), w_i);
            const f32v m2_i = f32_sel(i32_set(-(t3)), mn, m_i);
            const f32v v2_i = f32_sel(i32_set(-(t3)), vn, v_i);
            f32_st(w2 + i, w2_i);
            f32_st(m2 + i, m2_i);
            f32_st(v2 + i, v2_i);
        }
    }
}

MG_KERNEL void adamw(mg_ctx *c, float *w2, float *m2, float *v2, const float *w, const float *g,
                     const float *m, const float *v, const float *coef, const float *ok)
{
    adamw_arg a = {c, w2, m2, v2, w, g, m, v, coef, ok};
    mg_par(c, 6, adamw_part, &a);
}
