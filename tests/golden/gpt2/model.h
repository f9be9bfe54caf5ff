/* model.h: gpt2, target cpu, level avx512.
 *
 * Made by megagen 0.1 from tests/golden/gpt2.lua, program HASH.
 * Edit freely: build.sh needs a C compiler and nothing else. All memory of the model is one block,
 * c->mem; what lies where was decided when this was made, and AT() finds it.
 */
#ifndef MODEL_H
#define MODEL_H

#define MG_CPU_AVX512           /* level of the micro kernels */
#define MG_KERNEL               /* visible: funcs.c calls them */
#include "mg.h"

#define AT(c, off) ((void *)((c)->mem + (off)))

/* Regions of the block: 0x76000 bytes in all. */
#define PARAMS    0x0           /* 69.6 kB    weights */
#define GRADS     0x11000       /* 69.6 kB    gradient accumulators */
#define STATE     0x22000       /* 139.3 kB   optimizer state, tables, metrics */
#define SAVED     0x44000       /* 127.0 kB   what the backward reads of the forward */
#define SCRATCH   0x63000       /* 73.7 kB    values inside one function */
#define IO        0x75000       /* 4.1 kB     batch inputs, results, values between calls */

/* Values that a backward function reads, from the start of its call's block of saves. */
#define BLOCK_QKV                     0x9300        /* [b=4 s=16 g=3 q=3 e=8] f32 */
#define BLOCK_ATTENTION               0x1800        /* [b=4 s=16 g=3 r=1 e=8] f32 */
#define BLOCK_LSE                     0x3000        /* [b=4 s=16 g=3 r=1] f32 */
#define BLOCK_ATTN_ADD                0x0           /* [b=4 s=16 d=24] f32 */
#define BLOCK_UP                      0x3300        /* [b=4 s=16 f=96] f32 */

/* What differs from call to call of a function: bytes from c->mem. */
typedef struct {
    uint64_t tokens;                        /* [b=4 s=16] i32 */
    uint64_t embed_w;                       /* [v=59 d=24] f32 */
    uint64_t embed_pos;                     /* [s=16 d=24] f32 */
    uint64_t embed;                         /* [b=4 s=16 d=24] f32 */
} embed_fwd_k;

typedef struct {
    uint64_t x;                             /* [b=4 s=16 d=24] f32 */
    uint64_t ln_1_w;                        /* [d=24] f32 */
    uint64_t ln_1_b;                        /* [d=24] f32 */
    uint64_t attn_wqkv;                     /* [d=24 g=3 q=3 e=8] f32 */
    uint64_t saved;                         /* its block of saves */
    uint64_t attn_bqkv;                     /* [g=3 q=3 e=8] f32 */
    uint64_t attn_wo;                       /* [g=3 r=1 e=8 d=24] f32 */
    uint64_t attn_bo;                       /* [d=24] f32 */
    uint64_t ln_2_w;                        /* [d=24] f32 */
    uint64_t ln_2_b;                        /* [d=24] f32 */
    int32_t layer;                          /* number in the stack, -1: none */
    uint64_t mlp_up;                        /* [d=24 f=96] f32 */
    uint64_t mlp_up_b;                      /* [f=96] f32 */
    uint64_t mlp_down;                      /* [f=96 d=24] f32 */
    uint64_t mlp_down_b;                    /* [d=24] f32 */
    uint64_t mlp_add;                       /* [b=4 s=16 d=24] f32 */
} block_fwd_k;

typedef struct {
    uint64_t x;                             /* [b=4 s=16 d=24] f32 */
    uint64_t ln_f_w;                        /* [d=24] f32 */
    uint64_t ln_f_b;                        /* [d=24] f32 */
    uint64_t embed_w;                       /* [v=59 d=24] f32 */
    uint64_t targets;                       /* [b=4 s=16] i32 */
    uint64_t loss_sum;                      /* [] f32 */
    uint64_t embed_w_grad;                  /* [v=59 d=24] f32 */
    uint64_t count;                         /* [] f32 */
    uint64_t dx;                            /* [b=4 s=16 d=24] f32 */
    uint64_t ln_f_w_grad;                   /* [d=24] f32 */
    uint64_t ln_f_b_grad;                   /* [d=24] f32 */
} head_loss_k;

typedef struct {
    uint64_t dmlp_add;                      /* [b=4 s=16 d=24] f32 */
    uint64_t mlp_down_b_grad;               /* [d=24] f32 */
    uint64_t mlp_down;                      /* [f=96 d=24] f32 */
    uint64_t saved;                         /* its block of saves */
    uint64_t mlp_up_b;                      /* [f=96] f32 */
    uint64_t mlp_up_b_grad;                 /* [f=96] f32 */
    uint64_t mlp_down_grad;                 /* [f=96 d=24] f32 */
    uint64_t mlp_up;                        /* [d=24 f=96] f32 */
    uint64_t ln_2_w;                        /* [d=24] f32 */
    uint64_t ln_2_b;                        /* [d=24] f32 */
    uint64_t ln_2_w_grad;                   /* [d=24] f32 */
    uint64_t ln_2_b_grad;                   /* [d=24] f32 */
    uint64_t attn_bo_grad;                  /* [d=24] f32 */
    int32_t layer;                          /* number in the stack, -1: none */
    uint64_t mlp_up_grad;                   /* [d=24 f=96] f32 */
    uint64_t attn_wo;                       /* [g=3 r=1 e=8 d=24] f32 */
    uint64_t attn_wo_grad;                  /* [g=3 r=1 e=8 d=24] f32 */
    uint64_t attn_bqkv;                     /* [g=3 q=3 e=8] f32 */
    uint64_t attn_bqkv_grad;                /* [g=3 q=3 e=8] f32 */
    uint64_t attn_wqkv;                     /* [d=24 g=3 q=3 e=8] f32 */
    uint64_t x;                             /* [b=4 s=16 d=24] f32 */
    uint64_t ln_1_w;                        /* [d=24] f32 */
    uint64_t ln_1_b;                        /* [d=24] f32 */
    uint64_t ln_1_w_grad;                   /* [d=24] f32 */
    uint64_t ln_1_b_grad;                   /* [d=24] f32 */
    uint64_t dx;                            /* [b=4 s=16 d=24] f32 */
    uint64_t attn_wqkv_grad;                /* [d=24 g=3 q=3 e=8] f32 */
} block_bwd_k;

typedef struct {
    uint64_t dembed;                        /* [b=4 s=16 d=24] f32 */
    uint64_t embed_pos_grad;                /* [s=16 d=24] f32 */
    uint64_t tokens;                        /* [b=4 s=16] i32 */
    uint64_t embed_w_grad;                  /* [v=59 d=24] f32 */
} embed_bwd_k;

typedef struct {
    uint64_t tokens;                        /* [b=4 s=16] i32 */
    uint64_t embed_w;                       /* [v=59 d=24] f32 */
    uint64_t embed_pos;                     /* [s=16 d=24] f32 */
    uint64_t embed;                         /* [b=4 s=16 d=24] f32 */
} embed_eval_k;

typedef struct {
    uint64_t x;                             /* [b=4 s=16 d=24] f32 */
    uint64_t ln_1_w;                        /* [d=24] f32 */
    uint64_t ln_1_b;                        /* [d=24] f32 */
    uint64_t attn_wqkv;                     /* [d=24 g=3 q=3 e=8] f32 */
    uint64_t attn_bqkv;                     /* [g=3 q=3 e=8] f32 */
    uint64_t attn_wo;                       /* [g=3 r=1 e=8 d=24] f32 */
    uint64_t attn_bo;                       /* [d=24] f32 */
    uint64_t ln_2_w;                        /* [d=24] f32 */
    uint64_t ln_2_b;                        /* [d=24] f32 */
    uint64_t mlp_up;                        /* [d=24 f=96] f32 */
    uint64_t mlp_up_b;                      /* [f=96] f32 */
    uint64_t mlp_down;                      /* [f=96 d=24] f32 */
    uint64_t mlp_down_b;                    /* [d=24] f32 */
    uint64_t mlp_add;                       /* [b=4 s=16 d=24] f32 */
} block_eval_k;

typedef struct {
    uint64_t x;                             /* [b=4 s=16 d=24] f32 */
    uint64_t ln_f_w;                        /* [d=24] f32 */
    uint64_t ln_f_b;                        /* [d=24] f32 */
    uint64_t embed_w;                       /* [v=59 d=24] f32 */
    uint64_t targets;                       /* [b=4 s=16] i32 */
    uint64_t loss_sum;                      /* [] f32 */
    uint64_t count;                         /* [] f32 */
} head_eval_k;

typedef struct {
    uint64_t x;                             /* [b=4 s=16 d=24] f32 */
    uint64_t ln_f_w;                        /* [d=24] f32 */
    uint64_t ln_f_b;                        /* [d=24] f32 */
    uint64_t embed_w;                       /* [v=59 d=24] f32 */
    uint64_t head;                          /* [b=4 v=59] f32 */
} head_logits_k;

typedef struct {
    uint64_t grad;                          /* [flat=17152] f32 */
    uint64_t gnorm;                         /* [] f32 */
    uint64_t weight;                        /* [flat=17152] f32 */
    uint64_t m;                             /* [flat=17152] f32 */
    uint64_t v;                             /* [flat=17152] f32 */
} update_k;

/* funcs.c */
void embed_fwd(mg_ctx *c, const embed_fwd_k *k);
void block_fwd(mg_ctx *c, const block_fwd_k *k);
void head_loss(mg_ctx *c, const head_loss_k *k);
void block_bwd(mg_ctx *c, const block_bwd_k *k);
void embed_bwd(mg_ctx *c, const embed_bwd_k *k);
void embed_eval(mg_ctx *c, const embed_eval_k *k);
void block_eval(mg_ctx *c, const block_eval_k *k);
void head_eval(mg_ctx *c, const head_eval_k *k);
void head_logits(mg_ctx *c, const head_logits_k *k);
void update(mg_ctx *c, const update_k *k);

/* products.c, kernels.c, rows.c: results, then operands; beta: 1 adds, 0 overwrites. */
void embed(mg_ctx *c, float *y, const int32_t *ids, const float *w);
void embed_add_col(mg_ctx *c, float *y, const float *x, const float *b);
void layernorm(mg_ctx *c, float *y, const float *x, const float *w, const float *b);
void attn_qkv_mm(mg_ctx *c, float *y, const float *x, const float *w);
void attn_add_col(mg_ctx *c, float *y, const float *x, const float *b);
void attention(mg_ctx *c, float *o, float *lse, const float *q, const float *k, const float *v);
void attn_o_mm(mg_ctx *c, float *y, const float *x, const float *w);
void ln_2_add_col_dropout_layernorm(mg_ctx *c, float *z, float *y, const float *x, const float *b,
    const float *x2, const float *w, const float *b2, uint32_t site);
void mlp_up_mm(mg_ctx *c, float *y, const float *x, const float *w);
void mlp_add_col_gelu_tanh(mg_ctx *c, float *y, const float *x, const float *b);
void mlp_down_mm(mg_ctx *c, float *y, const float *x, const float *w);
void mlp_add_add_col(mg_ctx *c, float *z, const float *x, const float *b, const float *x2);
void ln_f_layernorm(mg_ctx *c, float *y, float *m, float *r, const float *x, const float *w,
    const float *b);
void head_count_if(mg_ctx *c, float *n, double *n_lines, const int32_t *t, int beta);
void ln_f_layernorm_bwd(mg_ctx *c, float *dx, float *dw, float *db, float *dw_lines,
    float *db_lines, const float *x, const float *w, const float *m, const float *r,
    const float *dy, int beta);
void head_mm(mg_ctx *c, float *y, const float *x, const float *w);
void head_gscale(mg_ctx *c, float *y);
void head_cross_entropy_bwd(mg_ctx *c, float *loss, float *dx, const float *x, const int32_t *t,
    const float *dy);
void head_total(mg_ctx *c, float *y, double *y_lines, const float *x, int beta);
void head_dx(mg_ctx *c, float *y, const float *x, const float *w);
void head_dw(mg_ctx *c, float *y, const float *x, const float *w, int beta);
void mlp_add_col_bwd(mg_ctx *c, float *db, float *db_lines, const float *dy, int beta);
void mlp_down_dx(mg_ctx *c, float *y, const float *x, const float *w);
void mlp_gelu_tanh_bwd(mg_ctx *c, float *y, float *dx, float *db, float *db_lines, const float *x,
    const float *b, const float *dy, int beta);
void mlp_down_dw(mg_ctx *c, float *y, const float *x, const float *w, int beta);
void mlp_up_dx(mg_ctx *c, float *y, const float *x, const float *w);
void ln_2_layernorm_bwd(mg_ctx *c, float *y, float *dw, float *db, float *z, float *dx,
    float *db2, float *dw_lines, float *db_lines, float *db2_lines, const float *x,
    const float *w, const float *b, const float *dy, const float *x2, int beta, uint32_t site);
void mlp_up_dw(mg_ctx *c, float *y, const float *x, const float *w, int beta);
void attn_o_dx(mg_ctx *c, float *y, const float *x, const float *w);
void attn_o_dw(mg_ctx *c, float *y, const float *x, const float *w, int beta);
void attention_bwd(mg_ctx *c, float *dq, float *dk, float *dv, const float *q, const float *k,
    const float *v, const float *o, const float *lse, const float *do_);
void attn_add_col_bwd(mg_ctx *c, float *db, float *db_lines, const float *dy);
void attn_accum(mg_ctx *c, float *to, const float *x, int beta);
void attn_qkv_dx(mg_ctx *c, float *y, const float *x, const float *w);
void ln_1_layernorm_bwd(mg_ctx *c, float *y, float *dw, float *db, float *z, float *dw_lines,
    float *db_lines, const float *x, const float *w, const float *b, const float *dy,
    const float *x2, int beta);
void attn_qkv_dw(mg_ctx *c, float *y, const float *x, const float *w, int beta);
void embed_add_col_bwd(mg_ctx *c, float *db, float *db_lines, const float *dy);
void embed_accum(mg_ctx *c, float *to, const float *x, int beta);
void embed_dw(mg_ctx *c, float *dw, const int32_t *ids, const float *dy, int beta);
void ln_2_add_col_layernorm(mg_ctx *c, float *z, float *y, const float *x, const float *b,
    const float *x2, const float *w, const float *b2);
void head_cross_entropy(mg_ctx *c, float *loss, const float *x, const int32_t *t);
void at_pos(mg_ctx *c, float *y, const float *x);
void head_logits_ln_f_layernorm(mg_ctx *c, float *y, const float *x, const float *w,
    const float *b);
void head_logits_head_mm(mg_ctx *c, float *y, const float *x, const float *w);
void sumsq(mg_ctx *c, float *s, double *s_lines, const float *x);
void clip_coef(mg_ctx *c, float *coef, float *norm, float *ok, const float *s);
void adamw(mg_ctx *c, float *w2, float *m2, float *v2, const float *w, const float *g,
    const float *m, const float *v, const float *coef, const float *ok);

#endif
