/* rows.c: kernels made for llama from the bodies of its ops.
 *
 * They are maps over elements and passes over rows; the comment above each says what it computes.
 * Compiled without contraction: a value has the same bits whatever it was fused with.
 */
#include "cpu/mgk.h"
#include "model.h"

/* ln_1: rmsnorm, 32 x 32 elements
 *     t1 = sum(x*x, d);
 *     r = rsqrt(t1/32 + 1e-05);
 *     y_2 = x*r*w;
 *     y = round_bf16(y_2);
 */
typedef struct {
    mg_ctx *c;
    bf16 *y;
    const bf16 *x;
    const bf16 *w;
} rmsnorm_arg;

static void rmsnorm_part(void *arg, int part)
{
    const rmsnorm_arg *a = arg;
    const bf16 *w = a->w;
    (void)part;
    for (int64_t row = 0; row < 32; row++) {
        bf16 *y = a->y + row * 32;
        const bf16 *x = a->x + row * 32;
        f32v t1_v = f32_set(0);
        for (int64_t i = 0; i < 32; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            t1_v += x_i * x_i;
        }
        const float t1 = f32_sum(t1_v);
        const float r = f32_rsqrt1(t1 / 32.0f + 1e-05f);
        for (int64_t i = 0; i < 32; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            const f32v w_i = f32_ld_bf16(w + i);
            const f32v y_2 = x_i * r * w_i;
            const f32v y_i = f32_round_bf16(y_2);
            f32_st_bf16(y + i, y_i);
        }
    }
}

MG_KERNEL void rmsnorm(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w)
{
    rmsnorm_arg a = {c, y, x, w};
    mg_par(c, 1, rmsnorm_part, &a);
}

/* attn: rope, 2 x 16 x 2 x 3 x 4 elements
 *     y1_1 = x1*cs - x2*sn;
 *     y2_2 = x2*cs + x1*sn;
 *     y1 = round_bf16(y1_1);
 *     y2 = round_bf16(y2_2);
 */
typedef struct {
    mg_ctx *c;
    bf16 *y1;
    bf16 *y2;
    const bf16 *x1;
    const bf16 *x2;
    const float *cs;
    const float *sn;
} attn_rope_arg;

static void attn_rope_part(void *arg, int part)
{
    const attn_rope_arg *a = arg;
    (void)part;
    for (int64_t row = 0; row < 192; row++) {
        const int64_t r3 = row % 3;
        const int64_t r2 = row / 3 % 2;
        const int64_t r1 = row / 6 % 16;
        const int64_t r0 = row / 96;
        bf16 *y1 = a->y1 + r0 * 768 + r1 * 48 + r2 * 24 + r3 * 8;
        bf16 *y2 = a->y2 + r0 * 768 + r1 * 48 + r2 * 24 + r3 * 8;
        const bf16 *x1 = a->x1 + r0 * 1024 + r1 * 64 + r2 * 32 + r3 * 8;
        const bf16 *x2 = a->x2 + r0 * 1024 + r1 * 64 + r2 * 32 + r3 * 8;
        const float *cs = a->cs + r1 * 4;
        const float *sn = a->sn + r1 * 4;
        {
            const int64_t i = 0;
            const f32v x1_i = f32_ld_bf16_n(x1 + i, 4);
            const f32v x2_i = f32_ld_bf16_n(x2 + i, 4);
            const f32v cs_i = f32_ld_n(cs + i, 4);
            const f32v sn_i = f32_ld_n(sn + i, 4);
            const f32v y1_1 = x1_i * cs_i - x2_i * sn_i;
            const f32v y2_2 = x2_i * cs_i + x1_i * sn_i;
            const f32v y1_i = f32_round_bf16(y1_1);
            const f32v y2_i = f32_round_bf16(y2_2);
            f32_st_bf16_n(y1 + i, y1_i, 4);
            f32_st_bf16_n(y2 + i, y2_i, 4);
        }
    }
}

MG_KERNEL void attn_rope(mg_ctx *c, bf16 *y1, bf16 *y2, const bf16 *x1, const bf16 *x2,
                         const float *cs, const float *sn)
{
    attn_rope_arg a = {c, y1, y2, x1, x2, cs, sn};
    mg_par(c, 1, attn_rope_part, &a);
}

/* ln_2: add_rmsnorm, 32 x 32 elements
 *     z_1 = x + y;
 *     z = round_bf16(z_1);
 *     t2 = sum(z*z, d);
 *     r = rsqrt(t2/32 + 1e-05);
 *     y_3 = z*r*w;
 *     y2 = round_bf16(y_3);
 */
typedef struct {
    mg_ctx *c;
    bf16 *z;
    bf16 *y2;
    const bf16 *x;
    const bf16 *y;
    const bf16 *w;
} ln_2_add_rmsnorm_arg;

static void ln_2_add_rmsnorm_part(void *arg, int part)
{
    const ln_2_add_rmsnorm_arg *a = arg;
    const bf16 *w = a->w;
    (void)part;
    for (int64_t row = 0; row < 32; row++) {
        bf16 *z = a->z + row * 32;
        bf16 *y2 = a->y2 + row * 32;
        const bf16 *x = a->x + row * 32;
        const bf16 *y = a->y + row * 32;
        f32v t2_v = f32_set(0);
        for (int64_t i = 0; i < 32; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            const f32v y_i = f32_ld_bf16(y + i);
            const f32v z_1 = x_i + y_i;
            const f32v z_i = f32_round_bf16(z_1);
            t2_v += z_i * z_i;
        }
        const float t2 = f32_sum(t2_v);
        const float r = f32_rsqrt1(t2 / 32.0f + 1e-05f);
        for (int64_t i = 0; i < 32; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            const f32v y_i = f32_ld_bf16(y + i);
            const f32v z_1 = x_i + y_i;
            const f32v z_i = f32_round_bf16(z_1);
            const f32v w_i = f32_ld_bf16(w + i);
            const f32v y_3 = z_i * r * w_i;
            const f32v y2_i = f32_round_bf16(y_3);
            f32_st_bf16(z + i, z_i);
            f32_st_bf16(y2 + i, y2_i);
        }
    }
}

MG_KERNEL void ln_2_add_rmsnorm(mg_ctx *c, bf16 *z, bf16 *y2, const bf16 *x, const bf16 *y,
                                const bf16 *w)
{
    ln_2_add_rmsnorm_arg a = {c, z, y2, x, y, w};
    mg_par(c, 1, ln_2_add_rmsnorm_part, &a);
}

/* mlp: swiglu, 32 x 64 elements
 *     y_1 = g*sigmoid(g)*u;
 *     y = round_bf16(y_1);
 */
typedef struct {
    mg_ctx *c;
    bf16 *y;
    const bf16 *g;
    const bf16 *u;
} mlp_swiglu_arg;

static void mlp_swiglu_part(void *arg, int part)
{
    const mlp_swiglu_arg *a = arg;
    (void)part;
    for (int64_t row = 0; row < 32; row++) {
        bf16 *y = a->y + row * 64;
        const bf16 *g = a->g + row * 128;
        const bf16 *u = a->u + row * 128;
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v g_i = f32_ld_bf16(g + i);
            const f32v u_i = f32_ld_bf16(u + i);
            const f32v y_1 = g_i * f32_sigmoid(g_i) * u_i;
            const f32v y_i = f32_round_bf16(y_1);
            f32_st_bf16(y + i, y_i);
        }
    }
}

MG_KERNEL void mlp_swiglu(mg_ctx *c, bf16 *y, const bf16 *g, const bf16 *u)
{
    mlp_swiglu_arg a = {c, y, g, u};
    mg_par(c, 1, mlp_swiglu_part, &a);
}

/* mlp_add: add, 1024 elements
 *     z_1 = x + y;
 *     z = round_bf16(z_1);
 */
typedef struct {
    mg_ctx *c;
    bf16 *z;
    const bf16 *x;
    const bf16 *y;
} mlp_add_fwd_arg;

static void mlp_add_fwd_part(void *arg, int part)
{
    const mlp_add_fwd_arg *a = arg;
    (void)part;
    const int64_t to = 1024;
    int64_t i = 0;
    bf16 *z = a->z;
    const bf16 *x = a->x;
    const bf16 *y = a->y;
    for (; i + 16 <= to; i += 16) {
        const f32v x_i = f32_ld_bf16(x + i);
        const f32v y_i = f32_ld_bf16(y + i);
        const f32v z_1 = x_i + y_i;
        const f32v z_i = f32_round_bf16(z_1);
        f32_st_bf16(z + i, z_i);
    }
}

MG_KERNEL void mlp_add_fwd(mg_ctx *c, bf16 *z, const bf16 *x, const bf16 *y)
{
    mlp_add_fwd_arg a = {c, z, x, y};
    mg_par(c, 1, mlp_add_fwd_part, &a);
}

/* ln_f: rmsnorm, 32 x 32 elements
 *     t1 = sum(x*x, d);
 *     r = rsqrt(t1/32 + 1e-05);
 *     y_2 = x*r*w;
 *     y = round_bf16(y_2);
 */
typedef struct {
    mg_ctx *c;
    bf16 *y;
    float *r;
    const bf16 *x;
    const bf16 *w;
} ln_f_rmsnorm_arg;

static void ln_f_rmsnorm_part(void *arg, int part)
{
    const ln_f_rmsnorm_arg *a = arg;
    const bf16 *w = a->w;
    (void)part;
    for (int64_t row = 0; row < 32; row++) {
        bf16 *y = a->y + row * 32;
        float *r = a->r + row;
        const bf16 *x = a->x + row * 32;
        f32v t1_v = f32_set(0);
        for (int64_t i = 0; i < 32; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            t1_v += x_i * x_i;
        }
        const float t1 = f32_sum(t1_v);
        const float r_0 = f32_rsqrt1(t1 / 32.0f + 1e-05f);
        for (int64_t i = 0; i < 32; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            const f32v w_i = f32_ld_bf16(w + i);
            const f32v y_2 = x_i * r_0 * w_i;
            const f32v y_i = f32_round_bf16(y_2);
            f32_st_bf16(y + i, y_i);
        }
        *r = r_0;
    }
}

MG_KERNEL void ln_f_rmsnorm(mg_ctx *c, bf16 *y, float *r, const bf16 *x, const bf16 *w)
{
    ln_f_rmsnorm_arg a = {c, y, r, x, w};
    mg_par(c, 1, ln_f_rmsnorm_part, &a);
}

/* head: count_if, 32 elements
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
    int64_t i = part * INT64_C(16);
    const int64_t to = i + 16;
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

/* ln_f: rmsnorm_bwd, 32 x 32 elements
 *     t1 = dy*w;
 *     dr = sum(t1*x, d);
 *     t2 = (-0.5)*dr*r*r*r/32*x;
 *     dx = round_bf16(t1*r + t2 + t2);
 *     dw[d] = dy*(x*r);
 */
typedef struct {
    mg_ctx *c;
    bf16 *dx;
    float *dw;
    float *dw_lines;
    const bf16 *x;
    const bf16 *w;
    const float *r;
    const bf16 *dy;
    int beta;
} ln_f_rmsnorm_bwd_arg;

static void ln_f_rmsnorm_bwd_part(void *arg, int part)
{
    const ln_f_rmsnorm_bwd_arg *a = arg;
    float *dw_lines = a->dw_lines + part * 32;
    for (int64_t i = 0; i < 32; i++)
        dw_lines[i] = 0;
    const bf16 *w = a->w;
    const int64_t from = part * INT64_C(1), to = from + 1;
    for (int64_t row = from; row < to; row++) {
        bf16 *dx = a->dx + row * 32;
        const bf16 *x = a->x + row * 32;
        const float *r = a->r + row;
        const bf16 *dy = a->dy + row * 32;
        const float r_0 = *r;
        f32v dr_v = f32_set(0);
        for (int64_t i = 0; i < 32; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            const f32v w_i = f32_ld_bf16(w + i);
            const f32v dy_i = f32_ld_bf16(dy + i);
            const f32v t1 = dy_i * w_i;
            const f32v t = dy_i * (x_i * r_0);
            dr_v += t1 * x_i;
            f32_st(dw_lines + i, f32_ld(dw_lines + i) + t);
        }
        const float dr = f32_sum(dr_v);
        const float s = (-0.5f) * dr * r_0 * r_0 * r_0 / 32.0f;
        for (int64_t i = 0; i < 32; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            const f32v w_i = f32_ld_bf16(w + i);
            const f32v dy_i = f32_ld_bf16(dy + i);
            const f32v t1 = dy_i * w_i;
            const f32v t2 = s * x_i;
            const f32v dx_i = f32_round_bf16(t1 * r_0 + t2 + t2);
            f32_st_bf16(dx + i, dx_i);
        }
    }
}

MG_KERNEL void ln_f_rmsnorm_bwd(mg_ctx *c, bf16 *dx, float *dw, float *dw_lines, const bf16 *x,
                                const bf16 *w, const float *r, const bf16 *dy, int beta)
{
    ln_f_rmsnorm_bwd_arg a = {c, dx, dw, dw_lines, x, w, r, dy, beta};
    mg_par(c, 32, ln_f_rmsnorm_bwd_part, &a);
    for (int64_t i = 0; i < 32; i++) {
        float v = dw_lines[i];
        for (int p = 1; p < 32; p++)
            v += dw_lines[p * INT64_C(32) + i];
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

/* head: cross_entropy_bwd, 16 x 64 elements
 *     l = lse(x, v);
 *     t1 = index(v) == t;
 *     p = sum(where(t1, x, 0), v);
 *     t2 = t >= 0;
 *     loss = where(t2, l - p, 0);
 *     t3 = where(t2, dy, 0);
 *     dp = -t3;
 *     dx = round_bf16(where(t1, dp, 0) + t3*exp(x - l));
 */
typedef struct {
    mg_ctx *c;
    float *loss;
    bf16 *dx;
    const bf16 *x;
    const int32_t *t;
    const float *dy;
} head_cross_entropy_bwd_arg;

static void head_cross_entropy_bwd_part(void *arg, int part)
{
    const head_cross_entropy_bwd_arg *a = arg;
    const float *dy = a->dy;
    (void)part;
    for (int64_t row = 0; row < 16; row++) {
        float *loss = a->loss + row;
        bf16 *dx = a->dx + row * 64;
        const bf16 *x = a->x + row * 64;
        const int32_t *t = a->t + row;
        const int32_t t_0 = (int32_t)*t;
        f32v l_max_v = f32_set(-__builtin_inff());
        f32v p_v = f32_set(0);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            const i32v index = i32_iota((int32_t)(i));
            const i32v t1 = index == t_0;
            l_max_v = f32_max(l_max_v, x_i);
            p_v += f32_sel(t1, x_i, f32_set(0.0f));
        }
        const float l_max = f32_hmax(l_max_v);
        const float p = f32_sum(p_v);
        f32v l_sum_v = f32_set(0);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            l_sum_v += f32_exp(x_i - l_max);
        }
        const float l_sum = f32_sum(l_sum_v);
        const float l = f32_log1(l_sum) + l_max;
        const int t2 = t_0 >= 0;
        const float dy_0 = *dy;
        const float t3 = (t2 ? dy_0 : 0.0f);
        const float dp = -t3;
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            const i32v index = i32_iota((int32_t)(i));
            const i32v t1 = index == t_0;
            const f32v dx_i = f32_round_bf16(f32_sel(t1, f32_set(dp), f32_set(0.0f)) + t3 *
                f32_exp(x_i - l));
            f32_st_bf16(dx + i, dx_i);
        }
        const float loss_0 = (t2 ? l - p : 0.0f);
        *loss = loss_0;
    }
}

MG_KERNEL void head_cross_entropy_bwd(mg_ctx *c, float *loss, bf16 *dx, const bf16 *x,
                                      const int32_t *t, const float *dy)
{
    head_cross_entropy_bwd_arg a = {c, loss, dx, x, t, dy};
    mg_par(c, 1, head_cross_entropy_bwd_part, &a);
}

/* head: total, 16 elements
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
    const int64_t to = 16;
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

/* mlp: swiglu_bwd, 32 x 64 elements
 *     t1 = sigmoid(g);
 *     t2 = g*t1;
 *     y_3 = t2*u;
 *     y = round_bf16(y_3);
 *     t4 = dy*u;
 *     dg = round_bf16(t4*t1 + t4*g*(t1*(1 - t1)));
 *     du = round_bf16(dy*t2);
 */
typedef struct {
    mg_ctx *c;
    bf16 *y;
    bf16 *dg;
    bf16 *du;
    const bf16 *g;
    const bf16 *u;
    const bf16 *dy;
} mlp_swiglu_bwd_arg;

static void mlp_swiglu_bwd_part(void *arg, int part)
{
    const mlp_swiglu_bwd_arg *a = arg;
    (void)part;
    for (int64_t row = 0; row < 32; row++) {
        bf16 *y = a->y + row * 64;
        bf16 *dg = a->dg + row * 128;
        bf16 *du = a->du + row * 128;
        const bf16 *g = a->g + row * 128;
        const bf16 *u = a->u + row * 128;
        const bf16 *dy = a->dy + row * 64;
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v g_i = f32_ld_bf16(g + i);
            const f32v u_i = f32_ld_bf16(u + i);
            const f32v t1 = f32_sigmoid(g_i);
            const f32v t2 = g_i * t1;
            const f32v y_3 = t2 * u_i;
            const f32v y_i = f32_round_bf16(y_3);
            const f32v dy_i = f32_ld_bf16(dy + i);
            const f32v t4 = dy_i * u_i;
            const f32v dg_i = f32_round_bf16(t4 * t1 + t4 * g_i * (t1 * (1.0f - t1)));
            const f32v du_i = f32_round_bf16(dy_i * t2);
            f32_st_bf16(y + i, y_i);
            f32_st_bf16(dg + i, dg_i);
            f32_st_bf16(du + i, du_i);
        }
    }
}

MG_KERNEL void mlp_swiglu_bwd(mg_ctx *c, bf16 *y, bf16 *dg, bf16 *du, const bf16 *g,
                              const bf16 *u, const bf16 *dy)
{
    mlp_swiglu_bwd_arg a = {c, y, dg, du, g, u, dy};
    mg_par(c, 1, mlp_swiglu_bwd_part, &a);
}

/* ln_2: rmsnorm_bwd, 32 x 32 elements
 *     t1 = sum(x*x, d);
 *     r = rsqrt(t1/32 + 1e-05);
 *     t2 = x*r;
 *     y_3 = t2*w;
 *     y = round_bf16(y_3);
 *     t4 = dy*w;
 *     dr = sum(t4*x, d);
 *     t5 = (-0.5)*dr*r*r*r/32*x;
 *     z_6 = x2 + round_bf16(t4*r + t5 + t5);
 *     z = round_bf16(z_6);
 *     dw[d] = dy*t2;
 */
typedef struct {
    mg_ctx *c;
    bf16 *y;
    float *dw;
    bf16 *z;
    float *dw_lines;
    const bf16 *x;
    const bf16 *w;
    const bf16 *dy;
    const bf16 *x2;
    int beta;
} rmsnorm_bwd_arg;

static void rmsnorm_bwd_part(void *arg, int part)
{
    const rmsnorm_bwd_arg *a = arg;
    float *dw_lines = a->dw_lines + part * 32;
    for (int64_t i = 0; i < 32; i++)
        dw_lines[i] = 0;
    const bf16 *w = a->w;
    const int64_t from = part * INT64_C(1), to = from + 1;
    for (int64_t row = from; row < to; row++) {
        bf16 *y = a->y + row * 32;
        bf16 *z = a->z + row * 32;
        const bf16 *x = a->x + row * 32;
        const bf16 *dy = a->dy + row * 32;
        const bf16 *x2 = a->x2 + row * 32;
        f32v t1_v = f32_set(0);
        f32v dr_v = f32_set(0);
        for (int64_t i = 0; i < 32; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            const f32v w_i = f32_ld_bf16(w + i);
            const f32v dy_i = f32_ld_bf16(dy + i);
            const f32v t4 = dy_i * w_i;
            t1_v += x_i * x_i;
            dr_v += t4 * x_i;
        }
        const float t1 = f32_sum(t1_v);
        const float dr = f32_sum(dr_v);
        const float r = f32_rsqrt1(t1 / 32.0f + 1e-05f);
        const float s = (-0.5f) * dr * r * r * r / 32.0f;
        for (int64_t i = 0; i < 32; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            const f32v w_i = f32_ld_bf16(w + i);
            const f32v t2 = x_i * r;
            const f32v y_3 = t2 * w_i;
            const f32v y_i = f32_round_bf16(y_3);
            const f32v dy_i = f32_ld_bf16(dy + i);
            const f32v t4 = dy_i * w_i;
            const f32v t = dy_i * t2;
            const f32v t5 = s * x_i;
            const f32v x2_i = f32_ld_bf16(x2 + i);
            const f32v z_6 = x2_i + f32_round_bf16(t4 * r + t5 + t5);
            const f32v z_i = f32_round_bf16(z_6);
            f32_st_bf16(y + i, y_i);
            f32_st(dw_lines + i, f32_ld(dw_lines + i) + t);
            f32_st_bf16(z + i, z_i);
        }
    }
}

MG_KERNEL void rmsnorm_bwd(mg_ctx *c, bf16 *y, float *dw, bf16 *z, float *dw_lines, const bf16 *x,
                           const bf16 *w, const bf16 *dy, const bf16 *x2, int beta)
{
    rmsnorm_bwd_arg a = {c, y, dw, z, dw_lines, x, w, dy, x2, beta};
    mg_par(c, 32, rmsnorm_bwd_part, &a);
    for (int64_t i = 0; i < 32; i++) {
        float v = dw_lines[i];
        for (int p = 1; p < 32; p++)
            v += dw_lines[p * INT64_C(32) + i];
        dw[i] = (beta ? dw[i] : 0) + v;
    }
}

/* attn: rope_bwd, 2 x 16 x 2 x 3 x 4 elements
 *     dx1 = round_bf16(dy2*sn + dy1*cs);
 *     dx2 = round_bf16(dy2*cs - dy1*sn);
 */
typedef struct {
    mg_ctx *c;
    bf16 *dx1;
    bf16 *dx2;
    const float *cs;
    const float *sn;
    const bf16 *dy1;
    const bf16 *dy2;
} attn_rope_bwd_arg;

static void attn_rope_bwd_part(void *arg, int part)
{
    const attn_rope_bwd_arg *a = arg;
    (void)part;
    for (int64_t row = 0; row < 192; row++) {
        const int64_t r3 = row % 3;
        const int64_t r2 = row / 3 % 2;
        const int64_t r1 = row / 6 % 16;
        const int64_t r0 = row / 96;
        bf16 *dx1 = a->dx1 + r0 * 1024 + r1 * 64 + r2 * 32 + r3 * 8;
        bf16 *dx2 = a->dx2 + r0 * 1024 + r1 * 64 + r2 * 32 + r3 * 8;
        const float *cs = a->cs + r1 * 4;
        const float *sn = a->sn + r1 * 4;
        const bf16 *dy1 = a->dy1 + r0 * 768 + r1 * 48 + r2 * 24 + r3 * 8;
        const bf16 *dy2 = a->dy2 + r0 * 768 + r1 * 48 + r2 * 24 + r3 * 8;
        {
            const int64_t i = 0;
            const f32v cs_i = f32_ld_n(cs + i, 4);
            const f32v sn_i = f32_ld_n(sn + i, 4);
            const f32v dy1_i = f32_ld_bf16_n(dy1 + i, 4);
            const f32v dy2_i = f32_ld_bf16_n(dy2 + i, 4);
            const f32v dx1_i = f32_round_bf16(dy2_i * sn_i + dy1_i * cs_i);
            const f32v dx2_i = f32_round_bf16(dy2_i * cs_i - dy1_i * sn_i);
            f32_st_bf16_n(dx1 + i, dx1_i, 4);
            f32_st_bf16_n(dx2 + i, dx2_i, 4);
        }
    }
}

MG_KERNEL void attn_rope_bwd(mg_ctx *c, bf16 *dx1, bf16 *dx2, const float *cs, const float *sn,
                             const bf16 *dy1, const bf16 *dy2)
{
    attn_rope_bwd_arg a = {c, dx1, dx2, cs, sn, dy1, dy2};
    mg_par(c, 1, attn_rope_bwd_part, &a);
}

/* head: cross_entropy, 16 x 64 elements
 *     l = lse(x, v);
 *     p = sum(where(index(v) == t, x, 0), v);
 *     loss = where(t >= 0, l - p, 0);
 */
typedef struct {
    mg_ctx *c;
    float *loss;
    const bf16 *x;
    const int32_t *t;
} head_cross_entropy_arg;

static void head_cross_entropy_part(void *arg, int part)
{
    const head_cross_entropy_arg *a = arg;
    (void)part;
    for (int64_t row = 0; row < 16; row++) {
        float *loss = a->loss + row;
        const bf16 *x = a->x + row * 64;
        const int32_t *t = a->t + row;
        const int32_t t_0 = (int32_t)*t;
        f32v l_max_v = f32_set(-__builtin_inff());
        f32v p_v = f32_set(0);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            const i32v index = i32_iota((int32_t)(i));
            l_max_v = f32_max(l_max_v, x_i);
            p_v += f32_sel(index == t_0, x_i, f32_set(0.0f));
        }
        const float l_max = f32_hmax(l_max_v);
        const float p = f32_sum(p_v);
        f32v l_sum_v = f32_set(0);
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            l_sum_v += f32_exp(x_i - l_max);
        }
        const float l_sum = f32_sum(l_sum_v);
        const float l = f32_log1(l_sum) + l_max;
        const float loss_0 = (t_0 >= 0 ? l - p : 0.0f);
        *loss = loss_0;
    }
}

MG_KERNEL void head_cross_entropy(mg_ctx *c, float *loss, const bf16 *x, const int32_t *t)
{
    head_cross_entropy_arg a = {c, loss, x, t};
    mg_par(c, 1, head_cross_entropy_part, &a);
}

/* ln_f: rmsnorm, 2 x 32 elements
 *     t1 = sum(x*x, d);
 *     r = rsqrt(t1/32 + 1e-05);
 *     y_2 = x*r*w;
 *     y = round_bf16(y_2);
 */
typedef struct {
    mg_ctx *c;
    bf16 *y;
    const bf16 *x;
    const bf16 *w;
} head_logits_ln_f_rmsnorm_arg;

static void head_logits_ln_f_rmsnorm_part(void *arg, int part)
{
    const head_logits_ln_f_rmsnorm_arg *a = arg;
    const bf16 *w = a->w;
    (void)part;
    for (int64_t row = 0; row < 2; row++) {
        bf16 *y = a->y + row * 32;
        const bf16 *x = a->x + row * 32;
        f32v t1_v = f32_set(0);
        for (int64_t i = 0; i < 32; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            t1_v += x_i * x_i;
        }
        const float t1 = f32_sum(t1_v);
        const float r = f32_rsqrt1(t1 / 32.0f + 1e-05f);
        for (int64_t i = 0; i < 32; i += 16) {
            const f32v x_i = f32_ld_bf16(x + i);
            const f32v w_i = f32_ld_bf16(w + i);
            const f32v y_2 = x_i * r * w_i;
            const f32v y_i = f32_round_bf16(y_2);
            f32_st_bf16(y + i, y_i);
        }
    }
}

MG_KERNEL void head_logits_ln_f_rmsnorm(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w)
{
    head_logits_ln_f_rmsnorm_arg a = {c, y, x, w};
    mg_par(c, 1, head_logits_ln_f_rmsnorm_part, &a);
}

/* cast, 128 elements
 *     y = x;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    const bf16 *x;
} cast_arg;

static void cast_part(void *arg, int part)
{
    const cast_arg *a = arg;
    (void)part;
    const int64_t to = 128;
    int64_t i = 0;
    float *y = a->y;
    const bf16 *x = a->x;
    for (; i + 16 <= to; i += 16) {
        const f32v x_i = f32_ld_bf16(x + i);
        f32_st(y + i, x_i);
    }
}

MG_KERNEL void cast(mg_ctx *c, float *y, const bf16 *x)
{
    cast_arg a = {c, y, x};
    mg_par(c, 1, cast_part, &a);
}

/* sumsq, 22848 elements
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
    (void)part;
    const int64_t to = 22848;
    int64_t i = 0;
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
    mg_par(c, 1, sumsq_part, &a);
    double s_s = 0;
    for (int p = 0; p < 1; p++)
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

/* adamw_cast, 22848 elements
 *     t1 = 0.5*step;
 *     t1_2 = tanh(t1*(-0.10536051565782628));
 *     t2 = tanh(t1*(-0.05129329438755058));
 *     c1 = (-2)*t1_2/(1 - t1_2);
 *     c2 = (-2)*t2/(1 - t2);
 *     h = g*coef;
 *     mn = 0.9*m + 0.09999999999999998*h;
 *     vn = 0.95*v + 0.050000000000000044*h*h;
 *     u = mn/c1/(sqrt(vn/c2) + 1e-08);
 *     t3 = ok > 0.5;
 *     w2 = where(t3, w - lr*(u + wd*group(wd)*w), w);
 *     m2 = where(t3, mn, m);
 *     v2 = where(t3, vn, v);
 *     y = round_bf16(w2);
 */
typedef struct {
    mg_ctx *c;
    float *w2;
    float *m2;
    float *v2;
    bf16 *y;
    const float *w;
    const float *g;
    const float *m;
    const float *v;
    const float *coef;
    const float *ok;
} adamw_cast_arg;

static const int64_t adamw_cast_end[] = {11264, 11392, 20608, 20736, 22784, 22848};
static const float adamw_cast_decay[] = {1, 0, 1, 0, 1, 0};

static void adamw_cast_part(void *arg, int part)
{
    const adamw_cast_arg *a = arg;
    int64_t i = part * INT64_C(11424);
    const int64_t to = i + 11424;
    float *w2 = a->w2;
    float *m2 = a->m2;
    float *v2 = a->v2;
    bf16 *y = a->y;
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
    const float t2 = f32_tanh1(t1 * (-0.0512932944f));
    const float c2 = (-2.0f) * t2 / (1.0f - t2);
    const float ok_0 = *ok;
    const int t3 = ok_0 > 0.5f;
    const float lr = (float)a->c->scalar.lr;
    const float wd = (float)a->c->scalar.wd;
    int seg = 0;
    while (i < to) {
        while (adamw_cast_end[seg] <= i)
            seg++;
        const int64_t end = adamw_cast_end[seg] < to ? adamw_cast_end[seg] : to;
        const f32v group = f32_set(adamw_cast_decay[seg]);
        for (; i + 16 <= end; i += 16) {
            const f32v w_i = f32_ld(w + i);
            const f32v g_i = f32_ld(g + i);
            const f32v m_i = f32_ld(m + i);
            const f32v v_i = f32_ld(v + i);
            const f32v h = g_i * coef_0;
            const f32v mn = 0.9f * m_i + 0.1f * h;
            const f32v vn = 0.95f * v_i + 0.05f * h * h;
            const f32v u = mn / c1 / (f32_sqrt(vn / c2) + 1e-08f);
            const f32v w2_i = f32_sel(i32_set(-(t3)), w_i - lr * (u + wd * group * w_i), w_i);
            const f32v m2_i = f32_sel(i32_set(-(t3)), mn, m_i);
            const f32v v2_i = f32_sel(i32_set(-(t3)), vn, v_i);
            const f32v y_i = f32_round_bf16(w2_i);
            f32_st(w2 + i, w2_i);
            f32_st(m2 + i, m2_i);
            f32_st(v2 + i, v2_i);
            f32_st_bf16(y + i, y_i);
        }
    }
}

MG_KERNEL void adamw_cast(mg_ctx *c, float *w2, float *m2, float *v2, bf16 *y, const float *w,
                          const float *g, const float *m, const float *v, const float *coef,
                          const float *ok)
{
    adamw_cast_arg a = {c, w2, m2, v2, y, w, g, m, v, coef, ok};
    mg_par(c, 2, adamw_cast_part, &a);
}
