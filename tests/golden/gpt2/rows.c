/* rows.c: kernels made for gpt2 from the bodies of its ops.
 *
 * They are maps over elements and passes over rows; the comment above each says what it computes.
 * Compiled without contraction: a value has the same bits whatever it was fused with.
 */
#include "cpu/mgk.h"
#include "model.h"

/* embed: add_col, 4 x 384 elements
 *     y = x + b;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    const float *x;
    const float *b;
} embed_add_col_arg;

static void embed_add_col_part(void *arg, int part)
{
    const embed_add_col_arg *a = arg;
    const float *b = a->b;
    (void)part;
    for (int64_t row = 0; row < 4; row++) {
        float *y = a->y + row * 384;
        const float *x = a->x + row * 384;
        for (int64_t i = 0; i < 384; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v b_i = f32_ld(b + i);
            const f32v y_i = x_i + b_i;
            f32_st(y + i, y_i);
        }
    }
}

MG_KERNEL void embed_add_col(mg_ctx *c, float *y, const float *x, const float *b)
{
    embed_add_col_arg a = {c, y, x, b};
    mg_par(c, 1, embed_add_col_part, &a);
}

/* ln_1: layernorm, 64 x 24 elements
 *     t1 = sum(x, d);
 *     m = t1/24;
 *     c = x - m;
 *     t2 = sum(c*c, d);
 *     r = rsqrt(t2/24 + 1e-05);
 *     y = c*r*w + b;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    const float *x;
    const float *w;
    const float *b;
} layernorm_arg;

static void layernorm_part(void *arg, int part)
{
    const layernorm_arg *a = arg;
    const float *w = a->w;
    const float *b = a->b;
    (void)part;
    for (int64_t row = 0; row < 64; row++) {
        float *y = a->y + row * 24;
        const float *x = a->x + row * 24;
        f32v t1_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            t1_v += x_i;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            t1_v += f32_sel(i32_first(8), x_i, f32_set(0));
        }
        const float t1 = f32_sum(t1_v);
        const float m = t1 / 24.0f;
        f32v t2_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v c_i = x_i - m;
            t2_v += c_i * c_i;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v c_i = x_i - m;
            t2_v += f32_sel(i32_first(8), c_i * c_i, f32_set(0));
        }
        const float t2 = f32_sum(t2_v);
        const float r = f32_rsqrt1(t2 / 24.0f + 1e-05f);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v b_i = f32_ld(b + i);
            const f32v c_i = x_i - m;
            const f32v y_i = c_i * r * w_i + b_i;
            f32_st(y + i, y_i);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v c_i = x_i - m;
            const f32v y_i = c_i * r * w_i + b_i;
            f32_st_n(y + i, y_i, 8);
        }
    }
}

MG_KERNEL void layernorm(mg_ctx *c, float *y, const float *x, const float *w, const float *b)
{
    layernorm_arg a = {c, y, x, w, b};
    mg_par(c, 1, layernorm_part, &a);
}

/* attn: add_col, 64 x 72 elements
 *     y = x + b;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    const float *x;
    const float *b;
} attn_add_col_arg;

static void attn_add_col_part(void *arg, int part)
{
    const attn_add_col_arg *a = arg;
    const float *b = a->b;
    (void)part;
    for (int64_t row = 0; row < 64; row++) {
        float *y = a->y + row * 72;
        const float *x = a->x + row * 72;
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v b_i = f32_ld(b + i);
            const f32v y_i = x_i + b_i;
            f32_st(y + i, y_i);
        }
        {
            const int64_t i = 64;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v y_i = x_i + b_i;
            f32_st_n(y + i, y_i, 8);
        }
    }
}

MG_KERNEL void attn_add_col(mg_ctx *c, float *y, const float *x, const float *b)
{
    attn_add_col_arg a = {c, y, x, b};
    mg_par(c, 1, attn_add_col_part, &a);
}

/* ln_2: add_col_dropout_layernorm, 64 x 24 elements
 *     y_1 = x + b;
 *     y_2 = where(unit(rand(attn/site)) < 0.1, 0, y_1*1.1111111111111112);
 *     z = x2 + y_2;
 *     t3 = sum(z, d);
 *     m = t3/24;
 *     c = z - m;
 *     t4 = sum(c*c, d);
 *     r = rsqrt(t4/24 + 1e-05);
 *     y = c*r*w + b2;
 */
typedef struct {
    mg_ctx *c;
    float *z;
    float *y;
    const float *x;
    const float *b;
    const float *x2;
    const float *w;
    const float *b2;
    uint32_t site;
} ln_2_add_col_dropout_layernorm_arg;

static void ln_2_add_col_dropout_layernorm_part(void *arg, int part)
{
    const ln_2_add_col_dropout_layernorm_arg *a = arg;
    const float *b = a->b;
    const float *w = a->w;
    const float *b2 = a->b2;
    (void)part;
    for (int64_t row = 0; row < 64; row++) {
        float *z = a->z + row * 24;
        float *y = a->y + row * 24;
        const float *x = a->x + row * 24;
        const float *x2 = a->x2 + row * 24;
        f32v t3_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v b_i = f32_ld(b + i);
            const f32v y_1 = x_i + b_i;
            const u32v rand = u32_rand(a->c->scalar.seed, a->site ^ 0xb51077eau, (uint64_t)(row *
                24 + a->c->scalar.sample * 384 + i), (uint32_t)a->c->scalar.step, 0);
            const f32v y_2 = f32_sel(f32_unit(rand) < 0.1f, f32_set(0.0f), y_1 * 1.11111111f);
            const f32v x2_i = f32_ld(x2 + i);
            const f32v z_i = x2_i + y_2;
            t3_v += z_i;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v y_1 = x_i + b_i;
            const u32v rand = u32_rand(a->c->scalar.seed, a->site ^ 0xb51077eau, (uint64_t)(row *
                24 + a->c->scalar.sample * 384 + i), (uint32_t)a->c->scalar.step, 0);
            const f32v y_2 = f32_sel(f32_unit(rand) < 0.1f, f32_set(0.0f), y_1 * 1.11111111f);
            const f32v x2_i = f32_ld_n(x2 + i, 8);
            const f32v z_i = x2_i + y_2;
            t3_v += f32_sel(i32_first(8), z_i, f32_set(0));
        }
        const float t3 = f32_sum(t3_v);
        const float m = t3 / 24.0f;
        f32v t4_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v b_i = f32_ld(b + i);
            const f32v y_1 = x_i + b_i;
            const u32v rand = u32_rand(a->c->scalar.seed, a->site ^ 0xb51077eau, (uint64_t)(row *
                24 + a->c->scalar.sample * 384 + i), (uint32_t)a->c->scalar.step, 0);
            const f32v y_2 = f32_sel(f32_unit(rand) < 0.1f, f32_set(0.0f), y_1 * 1.11111111f);
            const f32v x2_i = f32_ld(x2 + i);
            const f32v z_i = x2_i + y_2;
            const f32v c_i = z_i - m;
            t4_v += c_i * c_i;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v y_1 = x_i + b_i;
            const u32v rand = u32_rand(a->c->scalar.seed, a->site ^ 0xb51077eau, (uint64_t)(row *
                24 + a->c->scalar.sample * 384 + i), (uint32_t)a->c->scalar.step, 0);
            const f32v y_2 = f32_sel(f32_unit(rand) < 0.1f, f32_set(0.0f), y_1 * 1.11111111f);
            const f32v x2_i = f32_ld_n(x2 + i, 8);
            const f32v z_i = x2_i + y_2;
            const f32v c_i = z_i - m;
            t4_v += f32_sel(i32_first(8), c_i * c_i, f32_set(0));
        }
        const float t4 = f32_sum(t4_v);
        const float r = f32_rsqrt1(t4 / 24.0f + 1e-05f);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v b_i = f32_ld(b + i);
            const f32v y_1 = x_i + b_i;
            const u32v rand = u32_rand(a->c->scalar.seed, a->site ^ 0xb51077eau, (uint64_t)(row *
                24 + a->c->scalar.sample * 384 + i), (uint32_t)a->c->scalar.step, 0);
            const f32v y_2 = f32_sel(f32_unit(rand) < 0.1f, f32_set(0.0f), y_1 * 1.11111111f);
            const f32v x2_i = f32_ld(x2 + i);
            const f32v z_i = x2_i + y_2;
            const f32v w_i = f32_ld(w + i);
            const f32v b2_i = f32_ld(b2 + i);
            const f32v c_i = z_i - m;
            const f32v y_i = c_i * r * w_i + b2_i;
            f32_st(z + i, z_i);
            f32_st(y + i, y_i);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v y_1 = x_i + b_i;
            const u32v rand = u32_rand(a->c->scalar.seed, a->site ^ 0xb51077eau, (uint64_t)(row *
                24 + a->c->scalar.sample * 384 + i), (uint32_t)a->c->scalar.step, 0);
            const f32v y_2 = f32_sel(f32_unit(rand) < 0.1f, f32_set(0.0f), y_1 * 1.11111111f);
            const f32v x2_i = f32_ld_n(x2 + i, 8);
            const f32v z_i = x2_i + y_2;
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v b2_i = f32_ld_n(b2 + i, 8);
            const f32v c_i = z_i - m;
            const f32v y_i = c_i * r * w_i + b2_i;
            f32_st_n(z + i, z_i, 8);
            f32_st_n(y + i, y_i, 8);
        }
    }
}

MG_KERNEL void ln_2_add_col_dropout_layernorm(mg_ctx *c, float *z, float *y, const float *x,
                                              const float *b, const float *x2, const float *w,
                                              const float *b2, uint32_t site)
{
    ln_2_add_col_dropout_layernorm_arg a = {c, z, y, x, b, x2, w, b2, site};
    mg_par(c, 1, ln_2_add_col_dropout_layernorm_part, &a);
}

/* mlp: add_col_gelu_tanh, 64 x 96 elements
 *     y_1 = x + b;
 *     y = 0.5*y_1*(1 + tanh(0.7978845608028654*(y_1 + 0.044715*y_1*y_1*y_1)));
 */
typedef struct {
    mg_ctx *c;
    float *y;
    const float *x;
    const float *b;
} mlp_add_col_gelu_tanh_arg;

static void mlp_add_col_gelu_tanh_part(void *arg, int part)
{
    const mlp_add_col_gelu_tanh_arg *a = arg;
    const float *b = a->b;
    (void)part;
    for (int64_t row = 0; row < 64; row++) {
        float *y = a->y + row * 96;
        const float *x = a->x + row * 96;
        for (int64_t i = 0; i < 96; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v b_i = f32_ld(b + i);
            const f32v y_1 = x_i + b_i;
            const f32v y_i = 0.5f * y_1 * (1.0f + f32_tanh(0.797884561f * (y_1 + 0.044715f * y_1 *
                y_1 * y_1)));
            f32_st(y + i, y_i);
        }
    }
}

MG_KERNEL void mlp_add_col_gelu_tanh(mg_ctx *c, float *y, const float *x, const float *b)
{
    mlp_add_col_gelu_tanh_arg a = {c, y, x, b};
    mg_par(c, 1, mlp_add_col_gelu_tanh_part, &a);
}

/* mlp_add: add_col, 64 x 24 elements
 *     y = x + b;
 *     z = x2 + y;
 */
typedef struct {
    mg_ctx *c;
    float *z;
    const float *x;
    const float *b;
    const float *x2;
} mlp_add_add_col_arg;

static void mlp_add_add_col_part(void *arg, int part)
{
    const mlp_add_add_col_arg *a = arg;
    const float *b = a->b;
    (void)part;
    for (int64_t row = 0; row < 64; row++) {
        float *z = a->z + row * 24;
        const float *x = a->x + row * 24;
        const float *x2 = a->x2 + row * 24;
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v b_i = f32_ld(b + i);
            const f32v y = x_i + b_i;
            const f32v x2_i = f32_ld(x2 + i);
            const f32v z_i = x2_i + y;
            f32_st(z + i, z_i);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v y = x_i + b_i;
            const f32v x2_i = f32_ld_n(x2 + i, 8);
            const f32v z_i = x2_i + y;
            f32_st_n(z + i, z_i, 8);
        }
    }
}

MG_KERNEL void mlp_add_add_col(mg_ctx *c, float *z, const float *x, const float *b,
                               const float *x2)
{
    mlp_add_add_col_arg a = {c, z, x, b, x2};
    mg_par(c, 1, mlp_add_add_col_part, &a);
}

/* ln_f: layernorm, 64 x 24 elements
 *     t1 = sum(x, d);
 *     m = t1/24;
 *     c = x - m;
 *     t2 = sum(c*c, d);
 *     r = rsqrt(t2/24 + 1e-05);
 *     y = c*r*w + b;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    float *m;
    float *r;
    const float *x;
    const float *w;
    const float *b;
} ln_f_layernorm_arg;

static void ln_f_layernorm_part(void *arg, int part)
{
    const ln_f_layernorm_arg *a = arg;
    const float *w = a->w;
    const float *b = a->b;
    (void)part;
    for (int64_t row = 0; row < 64; row++) {
        float *y = a->y + row * 24;
        float *m = a->m + row;
        float *r = a->r + row;
        const float *x = a->x + row * 24;
        f32v t1_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            t1_v += x_i;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            t1_v += f32_sel(i32_first(8), x_i, f32_set(0));
        }
        const float t1 = f32_sum(t1_v);
        const float m_0 = t1 / 24.0f;
        f32v t2_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v c_i = x_i - m_0;
            t2_v += c_i * c_i;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v c_i = x_i - m_0;
            t2_v += f32_sel(i32_first(8), c_i * c_i, f32_set(0));
        }
        const float t2 = f32_sum(t2_v);
        const float r_0 = f32_rsqrt1(t2 / 24.0f + 1e-05f);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v b_i = f32_ld(b + i);
            const f32v c_i = x_i - m_0;
            const f32v y_i = c_i * r_0 * w_i + b_i;
            f32_st(y + i, y_i);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v c_i = x_i - m_0;
            const f32v y_i = c_i * r_0 * w_i + b_i;
            f32_st_n(y + i, y_i, 8);
        }
        *m = m_0;
        *r = r_0;
    }
}

MG_KERNEL void ln_f_layernorm(mg_ctx *c, float *y, float *m, float *r, const float *x,
                              const float *w, const float *b)
{
    ln_f_layernorm_arg a = {c, y, m, r, x, w, b};
    mg_par(c, 1, ln_f_layernorm_part, &a);
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
    mg_par(c, 4, head_count_if_part, &a);
    double n_s = 0;
    for (int p = 0; p < 4; p++)
        n_s += n_lines[p];
    *n = (float)((beta ? *n : 0) + n_s);
}

/* ln_f: layernorm_bwd, 64 x 24 elements
 *     c = x - m;
 *     t1 = dy*w;
 *     dr = sum(t1*c, d);
 *     t2 = (-0.5)*dr*r*r*r/24*c;
 *     dc = t1*r + t2 + t2;
 *     t3 = sum(dc, d);
 *     dx = dc - t3/24;
 *     dw[d] = dy*(c*r);
 *     db[d] = dy;
 */
typedef struct {
    mg_ctx *c;
    float *dx;
    float *dw;
    float *db;
    float *dw_lines;
    float *db_lines;
    const float *x;
    const float *w;
    const float *m;
    const float *r;
    const float *dy;
    int beta;
} ln_f_layernorm_bwd_arg;

static void ln_f_layernorm_bwd_part(void *arg, int part)
{
    const ln_f_layernorm_bwd_arg *a = arg;
    float *dw_lines = a->dw_lines + part * 24;
    for (int64_t i = 0; i < 24; i++)
        dw_lines[i] = 0;
    float *db_lines = a->db_lines + part * 24;
    for (int64_t i = 0; i < 24; i++)
        db_lines[i] = 0;
    const float *w = a->w;
    const int64_t from = part * INT64_C(2), to = from + 2;
    for (int64_t row = from; row < to; row++) {
        float *dx = a->dx + row * 24;
        const float *x = a->x + row * 24;
        const float *m = a->m + row;
        const float *r = a->r + row;
        const float *dy = a->dy + row * 24;
        const float m_0 = *m;
        const float r_0 = *r;
        f32v dr_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v c_i = x_i - m_0;
            const f32v dy_i = f32_ld(dy + i);
            const f32v t1 = dy_i * w_i;
            const f32v t = dy_i * (c_i * r_0);
            dr_v += t1 * c_i;
            f32_st(dw_lines + i, f32_ld(dw_lines + i) + t);
            f32_st(db_lines + i, f32_ld(db_lines + i) + dy_i);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v c_i = x_i - m_0;
            const f32v dy_i = f32_ld_n(dy + i, 8);
            const f32v t1 = dy_i * w_i;
            const f32v t = dy_i * (c_i * r_0);
            dr_v += f32_sel(i32_first(8), t1 * c_i, f32_set(0));
            f32_st_n(dw_lines + i, f32_ld_n(dw_lines + i, 8) + t, 8);
            f32_st_n(db_lines + i, f32_ld_n(db_lines + i, 8) + dy_i, 8);
        }
        const float dr = f32_sum(dr_v);
        const float s = (-0.5f) * dr * r_0 * r_0 * r_0 / 24.0f;
        f32v t3_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v c_i = x_i - m_0;
            const f32v dy_i = f32_ld(dy + i);
            const f32v t1 = dy_i * w_i;
            const f32v t2 = s * c_i;
            const f32v dc = t1 * r_0 + t2 + t2;
            t3_v += dc;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v c_i = x_i - m_0;
            const f32v dy_i = f32_ld_n(dy + i, 8);
            const f32v t1 = dy_i * w_i;
            const f32v t2 = s * c_i;
            const f32v dc = t1 * r_0 + t2 + t2;
            t3_v += f32_sel(i32_first(8), dc, f32_set(0));
        }
        const float t3 = f32_sum(t3_v);
        const float s_1 = t3 / 24.0f;
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v c_i = x_i - m_0;
            const f32v dy_i = f32_ld(dy + i);
            const f32v t1 = dy_i * w_i;
            const f32v t2 = s * c_i;
            const f32v dc = t1 * r_0 + t2 + t2;
            const f32v dx_i = dc - s_1;
            f32_st(dx + i, dx_i);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v c_i = x_i - m_0;
            const f32v dy_i = f32_ld_n(dy + i, 8);
            const f32v t1 = dy_i * w_i;
            const f32v t2 = s * c_i;
            const f32v dc = t1 * r_0 + t2 + t2;
            const f32v dx_i = dc - s_1;
            f32_st_n(dx + i, dx_i, 8);
        }
    }
}

MG_KERNEL void ln_f_layernorm_bwd(mg_ctx *c, float *dx, float *dw, float *db, float *dw_lines,
                                  float *db_lines, const float *x, const float *w, const float *m,
                                  const float *r, const float *dy, int beta)
{
    ln_f_layernorm_bwd_arg a = {c, dx, dw, db, dw_lines, db_lines, x, w, m, r, dy, beta};
    mg_par(c, 32, ln_f_layernorm_bwd_part, &a);
    for (int64_t i = 0; i < 24; i++) {
        float v = dw_lines[i];
        for (int p = 1; p < 32; p++)
            v += dw_lines[p * INT64_C(24) + i];
        dw[i] = (beta ? dw[i] : 0) + v;
    }
    for (int64_t i = 0; i < 24; i++) {
        float v = db_lines[i];
        for (int p = 1; p < 32; p++)
            v += db_lines[p * INT64_C(24) + i];
        db[i] = (beta ? db[i] : 0) + v;
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

/* head: cross_entropy_bwd, 16 x 59 elements
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
    (void)part;
    for (int64_t row = 0; row < 16; row++) {
        float *loss = a->loss + row;
        float *dx = a->dx + row * 64;
        const float *x = a->x + row * 64;
        const int32_t *t = a->t + row;
        const int32_t t_0 = (int32_t)*t;
        f32v l_max_v = f32_set(-__builtin_inff());
        f32v p_v = f32_set(0);
        for (int64_t i = 0; i < 48; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const i32v index = i32_iota((int32_t)(i));
            const i32v t1 = index == t_0;
            l_max_v = f32_max(l_max_v, x_i);
            p_v += f32_sel(t1, x_i, f32_set(0.0f));
        }
        {
            const int64_t i = 48;
            const f32v x_i = f32_ld_n(x + i, 11);
            const i32v index = i32_iota((int32_t)(i));
            const i32v t1 = index == t_0;
            l_max_v = f32_max(l_max_v, f32_sel(i32_first(11), x_i, f32_set(-__builtin_inff())));
            p_v += f32_sel(i32_first(11), f32_sel(t1, x_i, f32_set(0.0f)), f32_set(0));
        }
        const float l_max = f32_hmax(l_max_v);
        const float p = f32_sum(p_v);
        f32v l_sum_v = f32_set(0);
        for (int64_t i = 0; i < 48; i += 16) {
            const f32v x_i = f32_ld(x + i);
            l_sum_v += f32_exp(x_i - l_max);
        }
        {
            const int64_t i = 48;
            const f32v x_i = f32_ld_n(x + i, 11);
            l_sum_v += f32_sel(i32_first(11), f32_exp(x_i - l_max), f32_set(0));
        }
        const float l_sum = f32_sum(l_sum_v);
        const float l = f32_log1(l_sum) + l_max;
        const int t2 = t_0 >= 0;
        const float dy_0 = *dy;
        const float t3 = (t2 ? dy_0 : 0.0f);
        const float dp = -t3;
        for (int64_t i = 0; i < 48; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const i32v index = i32_iota((int32_t)(i));
            const i32v t1 = index == t_0;
            const f32v dx_i = f32_sel(t1, f32_set(dp), f32_set(0.0f)) + t3 * f32_exp(x_i - l);
            f32_st(dx + i, dx_i);
        }
        {
            const int64_t i = 48;
            const f32v x_i = f32_ld_n(x + i, 11);
            const i32v index = i32_iota((int32_t)(i));
            const i32v t1 = index == t_0;
            const f32v dx_i = f32_sel(t1, f32_set(dp), f32_set(0.0f)) + t3 * f32_exp(x_i - l);
            f32_st_n(dx + i, dx_i, 11);
        }
        const float loss_0 = (t2 ? l - p : 0.0f);
        *loss = loss_0;
        for (int64_t i = 59; i < 64; i++)
            dx[i] = 0; /* padding stays zero */
    }
}

MG_KERNEL void head_cross_entropy_bwd(mg_ctx *c, float *loss, float *dx, const float *x,
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

/* mlp: add_col_bwd, 64 x 24 elements
 *     db[d] = dy;
 */
typedef struct {
    mg_ctx *c;
    float *db;
    float *db_lines;
    const float *dy;
    int beta;
} mlp_add_col_bwd_arg;

static void mlp_add_col_bwd_part(void *arg, int part)
{
    const mlp_add_col_bwd_arg *a = arg;
    float *db_lines = a->db_lines + part * 24;
    for (int64_t i = 0; i < 24; i++)
        db_lines[i] = 0;
    const int64_t from = part * INT64_C(2), to = from + 2;
    for (int64_t row = from; row < to; row++) {
        const float *dy = a->dy + row * 24;
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v dy_i = f32_ld(dy + i);
            f32_st(db_lines + i, f32_ld(db_lines + i) + dy_i);
        }
        {
            const int64_t i = 16;
            const f32v dy_i = f32_ld_n(dy + i, 8);
            f32_st_n(db_lines + i, f32_ld_n(db_lines + i, 8) + dy_i, 8);
        }
    }
}

MG_KERNEL void mlp_add_col_bwd(mg_ctx *c, float *db, float *db_lines, const float *dy, int beta)
{
    mlp_add_col_bwd_arg a = {c, db, db_lines, dy, beta};
    mg_par(c, 32, mlp_add_col_bwd_part, &a);
    for (int64_t i = 0; i < 24; i++) {
        float v = db_lines[i];
        for (int p = 1; p < 32; p++)
            v += db_lines[p * INT64_C(24) + i];
        db[i] = (beta ? db[i] : 0) + v;
    }
}

/* mlp: gelu_tanh_bwd, 64 x 96 elements
 *     y_1 = x + b;
 *     t2 = 0.5*y_1;
 *     t3 = 0.044715*y_1;
 *     t4 = t3*y_1;
 *     t5 = tanh(0.7978845608028654*(y_1 + t4*y_1));
 *     t6 = 1 + t5;
 *     y = t2*t6;
 *     t7 = dy*t2*(1 - t5*t5)*0.7978845608028654;
 *     t8 = t7*y_1;
 *     dx = t7 + t7*t4 + t8*t3 + t8*y_1*0.044715 + dy*t6*0.5;
 *     db[f] = dx;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    float *dx;
    float *db;
    float *db_lines;
    const float *x;
    const float *b;
    const float *dy;
    int beta;
} mlp_gelu_tanh_bwd_arg;

static void mlp_gelu_tanh_bwd_part(void *arg, int part)
{
    const mlp_gelu_tanh_bwd_arg *a = arg;
    float *db_lines = a->db_lines + part * 96;
    for (int64_t i = 0; i < 96; i++)
        db_lines[i] = 0;
    const float *b = a->b;
    const int64_t from = part * INT64_C(2), to = from + 2;
    for (int64_t row = from; row < to; row++) {
        float *y = a->y + row * 96;
        float *dx = a->dx + row * 96;
        const float *x = a->x + row * 96;
        const float *dy = a->dy + row * 96;
        for (int64_t i = 0; i < 96; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v b_i = f32_ld(b + i);
            const f32v y_1 = x_i + b_i;
            const f32v t2 = 0.5f * y_1;
            const f32v t3 = 0.044715f * y_1;
            const f32v t4 = t3 * y_1;
            const f32v t5 = f32_tanh(0.797884561f * (y_1 + t4 * y_1));
            const f32v t6 = 1.0f + t5;
            const f32v y_i = t2 * t6;
            const f32v dy_i = f32_ld(dy + i);
            const f32v t7 = dy_i * t2 * (1.0f - t5 * t5) * 0.797884561f;
            const f32v t8 = t7 * y_1;
            const f32v dx_i = t7 + t7 * t4 + t8 * t3 + t8 * y_1 * 0.044715f + dy_i * t6 * 0.5f;
            f32_st(y + i, y_i);
            f32_st(dx + i, dx_i);
            f32_st(db_lines + i, f32_ld(db_lines + i) + dx_i);
        }
    }
}

MG_KERNEL void mlp_gelu_tanh_bwd(mg_ctx *c, float *y, float *dx, float *db, float *db_lines,
                                 const float *x, const float *b, const float *dy, int beta)
{
    mlp_gelu_tanh_bwd_arg a = {c, y, dx, db, db_lines, x, b, dy, beta};
    mg_par(c, 32, mlp_gelu_tanh_bwd_part, &a);
    for (int64_t i = 0; i < 96; i++) {
        float v = db_lines[i];
        for (int p = 1; p < 32; p++)
            v += db_lines[p * INT64_C(96) + i];
        db[i] = (beta ? db[i] : 0) + v;
    }
}

/* ln_2: layernorm_bwd, 64 x 24 elements
 *     t1 = sum(x, d);
 *     m = t1/24;
 *     c = x - m;
 *     t2 = sum(c*c, d);
 *     r = rsqrt(t2/24 + 1e-05);
 *     t3 = c*r;
 *     y = t3*w + b;
 *     t4 = dy*w;
 *     dr = sum(t4*c, d);
 *     t5 = (-0.5)*dr*r*r*r/24*c;
 *     dc = t4*r + t5 + t5;
 *     t6 = sum(dc, d);
 *     z = x2 + (dc - t6/24);
 *     dx = where(unit(rand(attn/site)) < 0.1, 0, z)*1.1111111111111112;
 *     dw[d] = dy*t3;
 *     db[d] = dy;
 *     db2[d] = dx;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    float *dw;
    float *db;
    float *z;
    float *dx;
    float *db2;
    float *dw_lines;
    float *db_lines;
    float *db2_lines;
    const float *x;
    const float *w;
    const float *b;
    const float *dy;
    const float *x2;
    int beta;
    uint32_t site;
} ln_2_layernorm_bwd_arg;

static void ln_2_layernorm_bwd_part(void *arg, int part)
{
    const ln_2_layernorm_bwd_arg *a = arg;
    float *dw_lines = a->dw_lines + part * 24;
    for (int64_t i = 0; i < 24; i++)
        dw_lines[i] = 0;
    float *db_lines = a->db_lines + part * 24;
    for (int64_t i = 0; i < 24; i++)
        db_lines[i] = 0;
    float *db2_lines = a->db2_lines + part * 24;
    for (int64_t i = 0; i < 24; i++)
        db2_lines[i] = 0;
    const float *w = a->w;
    const float *b = a->b;
    const int64_t from = part * INT64_C(2), to = from + 2;
    for (int64_t row = from; row < to; row++) {
        float *y = a->y + row * 24;
        float *z = a->z + row * 24;
        float *dx = a->dx + row * 24;
        const float *x = a->x + row * 24;
        const float *dy = a->dy + row * 24;
        const float *x2 = a->x2 + row * 24;
        f32v t1_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v dy_i = f32_ld(dy + i);
            t1_v += x_i;
            f32_st(db_lines + i, f32_ld(db_lines + i) + dy_i);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v dy_i = f32_ld_n(dy + i, 8);
            t1_v += f32_sel(i32_first(8), x_i, f32_set(0));
            f32_st_n(db_lines + i, f32_ld_n(db_lines + i, 8) + dy_i, 8);
        }
        const float t1 = f32_sum(t1_v);
        const float m = t1 / 24.0f;
        f32v t2_v = f32_set(0);
        f32v dr_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v c_i = x_i - m;
            const f32v dy_i = f32_ld(dy + i);
            const f32v t4 = dy_i * w_i;
            t2_v += c_i * c_i;
            dr_v += t4 * c_i;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v c_i = x_i - m;
            const f32v dy_i = f32_ld_n(dy + i, 8);
            const f32v t4 = dy_i * w_i;
            t2_v += f32_sel(i32_first(8), c_i * c_i, f32_set(0));
            dr_v += f32_sel(i32_first(8), t4 * c_i, f32_set(0));
        }
        const float t2 = f32_sum(t2_v);
        const float dr = f32_sum(dr_v);
        const float r = f32_rsqrt1(t2 / 24.0f + 1e-05f);
        const float s = (-0.5f) * dr * r * r * r / 24.0f;
        f32v t6_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v c_i = x_i - m;
            const f32v t3 = c_i * r;
            const f32v dy_i = f32_ld(dy + i);
            const f32v t4 = dy_i * w_i;
            const f32v t = dy_i * t3;
            const f32v t5 = s * c_i;
            const f32v dc = t4 * r + t5 + t5;
            t6_v += dc;
            f32_st(dw_lines + i, f32_ld(dw_lines + i) + t);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v c_i = x_i - m;
            const f32v t3 = c_i * r;
            const f32v dy_i = f32_ld_n(dy + i, 8);
            const f32v t4 = dy_i * w_i;
            const f32v t = dy_i * t3;
            const f32v t5 = s * c_i;
            const f32v dc = t4 * r + t5 + t5;
            t6_v += f32_sel(i32_first(8), dc, f32_set(0));
            f32_st_n(dw_lines + i, f32_ld_n(dw_lines + i, 8) + t, 8);
        }
        const float t6 = f32_sum(t6_v);
        const float s_1 = t6 / 24.0f;
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v b_i = f32_ld(b + i);
            const f32v c_i = x_i - m;
            const f32v t3 = c_i * r;
            const f32v y_i = t3 * w_i + b_i;
            const f32v dy_i = f32_ld(dy + i);
            const f32v t4 = dy_i * w_i;
            const f32v t5 = s * c_i;
            const f32v dc = t4 * r + t5 + t5;
            const f32v x2_i = f32_ld(x2 + i);
            const f32v z_i = x2_i + (dc - s_1);
            const u32v rand = u32_rand(a->c->scalar.seed, a->site ^ 0xb51077eau, (uint64_t)(row *
                24 + a->c->scalar.sample * 384 + i), (uint32_t)a->c->scalar.step, 0);
            const f32v dx_i = f32_sel(f32_unit(rand) < 0.1f, f32_set(0.0f), z_i) * 1.11111111f;
            f32_st(y + i, y_i);
            f32_st(z + i, z_i);
            f32_st(dx + i, dx_i);
            f32_st(db2_lines + i, f32_ld(db2_lines + i) + dx_i);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v c_i = x_i - m;
            const f32v t3 = c_i * r;
            const f32v y_i = t3 * w_i + b_i;
            const f32v dy_i = f32_ld_n(dy + i, 8);
            const f32v t4 = dy_i * w_i;
            const f32v t5 = s * c_i;
            const f32v dc = t4 * r + t5 + t5;
            const f32v x2_i = f32_ld_n(x2 + i, 8);
            const f32v z_i = x2_i + (dc - s_1);
            const u32v rand = u32_rand(a->c->scalar.seed, a->site ^ 0xb51077eau, (uint64_t)(row *
                24 + a->c->scalar.sample * 384 + i), (uint32_t)a->c->scalar.step, 0);
            const f32v dx_i = f32_sel(f32_unit(rand) < 0.1f, f32_set(0.0f), z_i) * 1.11111111f;
            f32_st_n(y + i, y_i, 8);
            f32_st_n(z + i, z_i, 8);
            f32_st_n(dx + i, dx_i, 8);
            f32_st_n(db2_lines + i, f32_ld_n(db2_lines + i, 8) + dx_i, 8);
        }
    }
}

MG_KERNEL void ln_2_layernorm_bwd(mg_ctx *c, float *y, float *dw, float *db, float *z, float *dx,
                                  float *db2, float *dw_lines, float *db_lines, float *db2_lines,
                                  const float *x, const float *w, const float *b, const float *dy,
                                  const float *x2, int beta, uint32_t site)
{
    ln_2_layernorm_bwd_arg a = {c, y, dw, db, z, dx, db2, dw_lines, db_lines, db2_lines, x, w, b,
        dy, x2, beta, site};
    mg_par(c, 32, ln_2_layernorm_bwd_part, &a);
    for (int64_t i = 0; i < 24; i++) {
        float v = dw_lines[i];
        for (int p = 1; p < 32; p++)
            v += dw_lines[p * INT64_C(24) + i];
        dw[i] = (beta ? dw[i] : 0) + v;
    }
    for (int64_t i = 0; i < 24; i++) {
        float v = db_lines[i];
        for (int p = 1; p < 32; p++)
            v += db_lines[p * INT64_C(24) + i];
        db[i] = (beta ? db[i] : 0) + v;
    }
    for (int64_t i = 0; i < 24; i++) {
        float v = db2_lines[i];
        for (int p = 1; p < 32; p++)
            v += db2_lines[p * INT64_C(24) + i];
        db2[i] = (beta ? db2[i] : 0) + v;
    }
}

/* attn: add_col_bwd, 64 x 72 elements
 *     db[_m.1] = dy;
 */
typedef struct {
    mg_ctx *c;
    float *db;
    float *db_lines;
    const float *dy;
} attn_add_col_bwd_arg;

static void attn_add_col_bwd_part(void *arg, int part)
{
    const attn_add_col_bwd_arg *a = arg;
    float *db_lines = a->db_lines + part * 72;
    for (int64_t i = 0; i < 72; i++)
        db_lines[i] = 0;
    const int64_t from = part * INT64_C(2), to = from + 2;
    for (int64_t row = from; row < to; row++) {
        const float *dy = a->dy + row * 72;
        for (int64_t i = 0; i < 64; i += 16) {
            const f32v dy_i = f32_ld(dy + i);
            f32_st(db_lines + i, f32_ld(db_lines + i) + dy_i);
        }
        {
            const int64_t i = 64;
            const f32v dy_i = f32_ld_n(dy + i, 8);
            f32_st_n(db_lines + i, f32_ld_n(db_lines + i, 8) + dy_i, 8);
        }
    }
}

MG_KERNEL void attn_add_col_bwd(mg_ctx *c, float *db, float *db_lines, const float *dy)
{
    attn_add_col_bwd_arg a = {c, db, db_lines, dy};
    mg_par(c, 32, attn_add_col_bwd_part, &a);
    for (int64_t i = 0; i < 72; i++) {
        float v = db_lines[i];
        for (int p = 1; p < 32; p++)
            v += db_lines[p * INT64_C(72) + i];
        db[i] = v;
    }
}

/* ln_1: layernorm_bwd, 64 x 24 elements
 *     t1 = sum(x, d);
 *     m = t1/24;
 *     c = x - m;
 *     t2 = sum(c*c, d);
 *     r = rsqrt(t2/24 + 1e-05);
 *     t3 = c*r;
 *     y = t3*w + b;
 *     t4 = dy*w;
 *     dr = sum(t4*c, d);
 *     t5 = (-0.5)*dr*r*r*r/24*c;
 *     dc = t4*r + t5 + t5;
 *     t6 = sum(dc, d);
 *     z = x2 + (dc - t6/24);
 *     dw[d] = dy*t3;
 *     db[d] = dy;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    float *dw;
    float *db;
    float *z;
    float *dw_lines;
    float *db_lines;
    const float *x;
    const float *w;
    const float *b;
    const float *dy;
    const float *x2;
    int beta;
} ln_1_layernorm_bwd_arg;

static void ln_1_layernorm_bwd_part(void *arg, int part)
{
    const ln_1_layernorm_bwd_arg *a = arg;
    float *dw_lines = a->dw_lines + part * 24;
    for (int64_t i = 0; i < 24; i++)
        dw_lines[i] = 0;
    float *db_lines = a->db_lines + part * 24;
    for (int64_t i = 0; i < 24; i++)
        db_lines[i] = 0;
    const float *w = a->w;
    const float *b = a->b;
    const int64_t from = part * INT64_C(2), to = from + 2;
    for (int64_t row = from; row < to; row++) {
        float *y = a->y + row * 24;
        float *z = a->z + row * 24;
        const float *x = a->x + row * 24;
        const float *dy = a->dy + row * 24;
        const float *x2 = a->x2 + row * 24;
        f32v t1_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v dy_i = f32_ld(dy + i);
            t1_v += x_i;
            f32_st(db_lines + i, f32_ld(db_lines + i) + dy_i);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v dy_i = f32_ld_n(dy + i, 8);
            t1_v += f32_sel(i32_first(8), x_i, f32_set(0));
            f32_st_n(db_lines + i, f32_ld_n(db_lines + i, 8) + dy_i, 8);
        }
        const float t1 = f32_sum(t1_v);
        const float m = t1 / 24.0f;
        f32v t2_v = f32_set(0);
        f32v dr_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v c_i = x_i - m;
            const f32v dy_i = f32_ld(dy + i);
            const f32v t4 = dy_i * w_i;
            t2_v += c_i * c_i;
            dr_v += t4 * c_i;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v c_i = x_i - m;
            const f32v dy_i = f32_ld_n(dy + i, 8);
            const f32v t4 = dy_i * w_i;
            t2_v += f32_sel(i32_first(8), c_i * c_i, f32_set(0));
            dr_v += f32_sel(i32_first(8), t4 * c_i, f32_set(0));
        }
        const float t2 = f32_sum(t2_v);
        const float dr = f32_sum(dr_v);
        const float r = f32_rsqrt1(t2 / 24.0f + 1e-05f);
        const float s = (-0.5f) * dr * r * r * r / 24.0f;
        f32v t6_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v c_i = x_i - m;
            const f32v t3 = c_i * r;
            const f32v dy_i = f32_ld(dy + i);
            const f32v t4 = dy_i * w_i;
            const f32v t = dy_i * t3;
            const f32v t5 = s * c_i;
            const f32v dc = t4 * r + t5 + t5;
            t6_v += dc;
            f32_st(dw_lines + i, f32_ld(dw_lines + i) + t);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v c_i = x_i - m;
            const f32v t3 = c_i * r;
            const f32v dy_i = f32_ld_n(dy + i, 8);
            const f32v t4 = dy_i * w_i;
            const f32v t = dy_i * t3;
            const f32v t5 = s * c_i;
            const f32v dc = t4 * r + t5 + t5;
            t6_v += f32_sel(i32_first(8), dc, f32_set(0));
            f32_st_n(dw_lines + i, f32_ld_n(dw_lines + i, 8) + t, 8);
        }
        const float t6 = f32_sum(t6_v);
        const float s_1 = t6 / 24.0f;
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v b_i = f32_ld(b + i);
            const f32v c_i = x_i - m;
            const f32v t3 = c_i * r;
            const f32v y_i = t3 * w_i + b_i;
            const f32v dy_i = f32_ld(dy + i);
            const f32v t4 = dy_i * w_i;
            const f32v t5 = s * c_i;
            const f32v dc = t4 * r + t5 + t5;
            const f32v x2_i = f32_ld(x2 + i);
            const f32v z_i = x2_i + (dc - s_1);
            f32_st(y + i, y_i);
            f32_st(z + i, z_i);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v c_i = x_i - m;
            const f32v t3 = c_i * r;
            const f32v y_i = t3 * w_i + b_i;
            const f32v dy_i = f32_ld_n(dy + i, 8);
            const f32v t4 = dy_i * w_i;
            const f32v t5 = s * c_i;
            const f32v dc = t4 * r + t5 + t5;
            const f32v x2_i = f32_ld_n(x2 + i, 8);
            const f32v z_i = x2_i + (dc - s_1);
            f32_st_n(y + i, y_i, 8);
            f32_st_n(z + i, z_i, 8);
        }
    }
}

MG_KERNEL void ln_1_layernorm_bwd(mg_ctx *c, float *y, float *dw, float *db, float *z,
                                  float *dw_lines, float *db_lines, const float *x,
                                  const float *w, const float *b, const float *dy,
                                  const float *x2, int beta)
{
    ln_1_layernorm_bwd_arg a = {c, y, dw, db, z, dw_lines, db_lines, x, w, b, dy, x2, beta};
    mg_par(c, 32, ln_1_layernorm_bwd_part, &a);
    for (int64_t i = 0; i < 24; i++) {
        float v = dw_lines[i];
        for (int p = 1; p < 32; p++)
            v += dw_lines[p * INT64_C(24) + i];
        dw[i] = (beta ? dw[i] : 0) + v;
    }
    for (int64_t i = 0; i < 24; i++) {
        float v = db_lines[i];
        for (int p = 1; p < 32; p++)
            v += db_lines[p * INT64_C(24) + i];
        db[i] = (beta ? db[i] : 0) + v;
    }
}

/* embed: add_col_bwd, 4 x 384 elements
 *     db[_m] = dy;
 */
typedef struct {
    mg_ctx *c;
    float *db;
    float *db_lines;
    const float *dy;
} embed_add_col_bwd_arg;

static void embed_add_col_bwd_part(void *arg, int part)
{
    const embed_add_col_bwd_arg *a = arg;
    float *db_lines = a->db_lines + part * 384;
    for (int64_t i = 0; i < 384; i++)
        db_lines[i] = 0;
    const int64_t from = part * INT64_C(1), to = from + 1;
    for (int64_t row = from; row < to; row++) {
        const float *dy = a->dy + row * 384;
        for (int64_t i = 0; i < 384; i += 16) {
            const f32v dy_i = f32_ld(dy + i);
            f32_st(db_lines + i, f32_ld(db_lines + i) + dy_i);
        }
    }
}

MG_KERNEL void embed_add_col_bwd(mg_ctx *c, float *db, float *db_lines, const float *dy)
{
    embed_add_col_bwd_arg a = {c, db, db_lines, dy};
    mg_par(c, 4, embed_add_col_bwd_part, &a);
    for (int64_t i = 0; i < 384; i++) {
        float v = db_lines[i];
        for (int p = 1; p < 4; p++)
            v += db_lines[p * INT64_C(384) + i];
        db[i] = v;
    }
}

/* ln_2: add_col_layernorm, 64 x 24 elements
 *     y_1 = x + b;
 *     z = x2 + y_1;
 *     t2 = sum(z, d);
 *     m = t2/24;
 *     c = z - m;
 *     t3 = sum(c*c, d);
 *     r = rsqrt(t3/24 + 1e-05);
 *     y = c*r*w + b2;
 */
typedef struct {
    mg_ctx *c;
    float *z;
    float *y;
    const float *x;
    const float *b;
    const float *x2;
    const float *w;
    const float *b2;
} ln_2_add_col_layernorm_arg;

static void ln_2_add_col_layernorm_part(void *arg, int part)
{
    const ln_2_add_col_layernorm_arg *a = arg;
    const float *b = a->b;
    const float *w = a->w;
    const float *b2 = a->b2;
    (void)part;
    for (int64_t row = 0; row < 64; row++) {
        float *z = a->z + row * 24;
        float *y = a->y + row * 24;
        const float *x = a->x + row * 24;
        const float *x2 = a->x2 + row * 24;
        f32v t2_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v b_i = f32_ld(b + i);
            const f32v y_1 = x_i + b_i;
            const f32v x2_i = f32_ld(x2 + i);
            const f32v z_i = x2_i + y_1;
            t2_v += z_i;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v y_1 = x_i + b_i;
            const f32v x2_i = f32_ld_n(x2 + i, 8);
            const f32v z_i = x2_i + y_1;
            t2_v += f32_sel(i32_first(8), z_i, f32_set(0));
        }
        const float t2 = f32_sum(t2_v);
        const float m = t2 / 24.0f;
        f32v t3_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v b_i = f32_ld(b + i);
            const f32v y_1 = x_i + b_i;
            const f32v x2_i = f32_ld(x2 + i);
            const f32v z_i = x2_i + y_1;
            const f32v c_i = z_i - m;
            t3_v += c_i * c_i;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v y_1 = x_i + b_i;
            const f32v x2_i = f32_ld_n(x2 + i, 8);
            const f32v z_i = x2_i + y_1;
            const f32v c_i = z_i - m;
            t3_v += f32_sel(i32_first(8), c_i * c_i, f32_set(0));
        }
        const float t3 = f32_sum(t3_v);
        const float r = f32_rsqrt1(t3 / 24.0f + 1e-05f);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v b_i = f32_ld(b + i);
            const f32v y_1 = x_i + b_i;
            const f32v x2_i = f32_ld(x2 + i);
            const f32v z_i = x2_i + y_1;
            const f32v w_i = f32_ld(w + i);
            const f32v b2_i = f32_ld(b2 + i);
            const f32v c_i = z_i - m;
            const f32v y_i = c_i * r * w_i + b2_i;
            f32_st(z + i, z_i);
            f32_st(y + i, y_i);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v y_1 = x_i + b_i;
            const f32v x2_i = f32_ld_n(x2 + i, 8);
            const f32v z_i = x2_i + y_1;
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v b2_i = f32_ld_n(b2 + i, 8);
            const f32v c_i = z_i - m;
            const f32v y_i = c_i * r * w_i + b2_i;
            f32_st_n(z + i, z_i, 8);
            f32_st_n(y + i, y_i, 8);
        }
    }
}

MG_KERNEL void ln_2_add_col_layernorm(mg_ctx *c, float *z, float *y, const float *x,
                                      const float *b, const float *x2, const float *w,
                                      const float *b2)
{
    ln_2_add_col_layernorm_arg a = {c, z, y, x, b, x2, w, b2};
    mg_par(c, 1, ln_2_add_col_layernorm_part, &a);
}

/* head: cross_entropy, 16 x 59 elements
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
    (void)part;
    for (int64_t row = 0; row < 16; row++) {
        float *loss = a->loss + row;
        const float *x = a->x + row * 64;
        const int32_t *t = a->t + row;
        const int32_t t_0 = (int32_t)*t;
        f32v l_max_v = f32_set(-__builtin_inff());
        f32v p_v = f32_set(0);
        for (int64_t i = 0; i < 48; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const i32v index = i32_iota((int32_t)(i));
            l_max_v = f32_max(l_max_v, x_i);
            p_v += f32_sel(index == t_0, x_i, f32_set(0.0f));
        }
        {
            const int64_t i = 48;
            const f32v x_i = f32_ld_n(x + i, 11);
            const i32v index = i32_iota((int32_t)(i));
            l_max_v = f32_max(l_max_v, f32_sel(i32_first(11), x_i, f32_set(-__builtin_inff())));
            p_v += f32_sel(i32_first(11), f32_sel(index == t_0, x_i, f32_set(0.0f)), f32_set(0));
        }
        const float l_max = f32_hmax(l_max_v);
        const float p = f32_sum(p_v);
        f32v l_sum_v = f32_set(0);
        for (int64_t i = 0; i < 48; i += 16) {
            const f32v x_i = f32_ld(x + i);
            l_sum_v += f32_exp(x_i - l_max);
        }
        {
            const int64_t i = 48;
            const f32v x_i = f32_ld_n(x + i, 11);
            l_sum_v += f32_sel(i32_first(11), f32_exp(x_i - l_max), f32_set(0));
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
    mg_par(c, 1, head_cross_entropy_part, &a);
}

/* ln_f: layernorm, 4 x 24 elements
 *     t1 = sum(x, d);
 *     m = t1/24;
 *     c = x - m;
 *     t2 = sum(c*c, d);
 *     r = rsqrt(t2/24 + 1e-05);
 *     y = c*r*w + b;
 */
typedef struct {
    mg_ctx *c;
    float *y;
    const float *x;
    const float *w;
    const float *b;
} head_logits_ln_f_layernorm_arg;

static void head_logits_ln_f_layernorm_part(void *arg, int part)
{
    const head_logits_ln_f_layernorm_arg *a = arg;
    const float *w = a->w;
    const float *b = a->b;
    (void)part;
    for (int64_t row = 0; row < 4; row++) {
        float *y = a->y + row * 24;
        const float *x = a->x + row * 24;
        f32v t1_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            t1_v += x_i;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            t1_v += f32_sel(i32_first(8), x_i, f32_set(0));
        }
        const float t1 = f32_sum(t1_v);
        const float m = t1 / 24.0f;
        f32v t2_v = f32_set(0);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v c_i = x_i - m;
            t2_v += c_i * c_i;
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v c_i = x_i - m;
            t2_v += f32_sel(i32_first(8), c_i * c_i, f32_set(0));
        }
        const float t2 = f32_sum(t2_v);
        const float r = f32_rsqrt1(t2 / 24.0f + 1e-05f);
        for (int64_t i = 0; i < 16; i += 16) {
            const f32v x_i = f32_ld(x + i);
            const f32v w_i = f32_ld(w + i);
            const f32v b_i = f32_ld(b + i);
            const f32v c_i = x_i - m;
            const f32v y_i = c_i * r * w_i + b_i;
            f32_st(y + i, y_i);
        }
        {
            const int64_t i = 16;
            const f32v x_i = f32_ld_n(x + i, 8);
            const f32v w_i = f32_ld_n(w + i, 8);
            const f32v b_i = f32_ld_n(b + i, 8);
            const f32v c_i = x_i - m;
            const f32v y_i = c_i * r * w_i + b_i;
            f32_st_n(y + i, y_i, 8);
        }
    }
}

MG_KERNEL void head_logits_ln_f_layernorm(mg_ctx *c, float *y, const float *x, const float *w,
                                          const float *b)
{
    head_logits_ln_f_layernorm_arg a = {c, y, x, w, b};
    mg_par(c, 1, head_logits_ln_f_layernorm_part, &a);
}

/* sumsq, 17152 elements
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
    const int64_t to = 17152;
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

/* adamw, 17152 elements
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

static const int64_t adamw_end[] = {8832, 9472, 16384, 17152};
static const float adamw_decay[] = {1, 0, 1, 0};

static void adamw_part(void *arg, int part)
{
    const adamw_arg *a = arg;
    int64_t i = part * INT64_C(8576);
    const int64_t to = i + 8576;
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
    const float t2 = f32_tanh1(t1 * (-0.0512932944f));
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
            const f32v vn = 0.95f * v_i + 0.05f * h * h;
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
    mg_par(c, 2, adamw_part, &a);
}
