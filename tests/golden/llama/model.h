/* model.h: llama, target cpu, level avx512.
 *
 * Made by megagen 0.1 from tests/golden/llama.lua, program HASH.
 * Edit freely: build.sh needs a C compiler and nothing else. All memory of the model is one block,
 * c->mem; what lies where was decided when this was made, and AT() finds it.
 */
#ifndef MODEL_H
#define MODEL_H

#define MG_CPU_AVX512           /* level of the micro kernels */
#define MG_KERNEL               /* visible: funcs.c calls them */
#include "mg.h"

typedef uint16_t bf16; /* the upper half of a float */

#define AT(c, off) ((void *)((c)->mem + (off)))

/* Regions of the block: 0x76000 bytes in all. */
#define PARAMS    0x0           /* 49.2 kB    weights */
#define GRADS     0xc000        /* 94.2 kB    gradient accumulators */
#define STATE     0x23000       /* 278.5 kB   optimizer state, tables, metrics */
#define SAVED     0x67000       /* 32.8 kB    what the backward reads of the forward */
#define SCRATCH   0x6f000       /* 24.6 kB    values inside one function */
#define IO        0x75000       /* 4.1 kB     batch inputs, results, values between calls */

/* Values that a backward function reads, from the start of its call's block of saves. */
#define BLOCK_QKV                     0x2800        /* [b=2 s=16 g=2 q=4 e=8] bf16 */
#define BLOCK_ATTN_ADD                0x2000        /* [b=2 s=16 d=32] bf16 */
#define BLOCK_GATE_UP                 0x0           /* [b=2 s=16 p=2 f=64] bf16 */

/* What differs from call to call of a function: bytes from c->mem. */
typedef struct {
    uint64_t tokens;                        /* [b=2 s=16] i32 */
    uint64_t embed_w;                       /* [v=64 d=32] bf16 */
    uint64_t embed;                         /* [b=2 s=16 d=32] bf16 */
} embed_fwd_k;

typedef struct {
    uint64_t x;                             /* [b=2 s=16 d=32] bf16 */
    uint64_t ln_1_w;                        /* [d=32] bf16 */
    uint64_t attn_wqkv;                     /* [d=32 g=2 q=4 e=8] bf16 */
    uint64_t saved;                         /* its block of saves */
    uint64_t rope_cos;                      /* [s=16 h=4] f32 */
    uint64_t rope_sin;                      /* [s=16 h=4] f32 */
    uint64_t attn_wo;                       /* [g=2 r=2 e=8 d=32] bf16 */
    uint64_t ln_2_w;                        /* [d=32] bf16 */
    uint64_t mlp_gate_up;                   /* [d=32 p=2 f=64] bf16 */
    uint64_t mlp_down;                      /* [f=64 d=32] bf16 */
    uint64_t mlp_add;                       /* [b=2 s=16 d=32] bf16 */
} block_fwd_k;

typedef struct {
    uint64_t x;                             /* [b=2 s=16 d=32] bf16 */
    uint64_t ln_f_w;                        /* [d=32] bf16 */
    uint64_t head_w;                        /* [v=64 d=32] bf16 */
    uint64_t targets;                       /* [b=2 s=16] i32 */
    uint64_t loss_sum;                      /* [] f32 */
    uint64_t head_w_grad;                   /* [v=64 d=32] f32 */
    uint64_t count;                         /* [] f32 */
    uint64_t dx;                            /* [b=2 s=16 d=32] bf16 */
    uint64_t ln_f_w_grad;                   /* [d=32] f32 */
} head_loss_k;

typedef struct {
    uint64_t dmlp_add;                      /* [b=2 s=16 d=32] bf16 */
    uint64_t mlp_down;                      /* [f=64 d=32] bf16 */
    uint64_t saved;                         /* its block of saves */
    uint64_t mlp_down_grad;                 /* [f=64 d=32] f32 */
    uint64_t mlp_gate_up;                   /* [d=32 p=2 f=64] bf16 */
    uint64_t ln_2_w;                        /* [d=32] bf16 */
    uint64_t ln_2_w_grad;                   /* [d=32] f32 */
    uint64_t mlp_gate_up_grad;              /* [d=32 p=2 f=64] f32 */
    uint64_t attn_wo;                       /* [g=2 r=2 e=8 d=32] bf16 */
    uint64_t rope_cos;                      /* [s=16 h=4] f32 */
    uint64_t rope_sin;                      /* [s=16 h=4] f32 */
    uint64_t attn_wo_grad;                  /* [g=2 r=2 e=8 d=32] f32 */
    uint64_t attn_wqkv;                     /* [d=32 g=2 q=4 e=8] bf16 */
    uint64_t x;                             /* [b=2 s=16 d=32] bf16 */
    uint64_t ln_1_w;                        /* [d=32] bf16 */
    uint64_t ln_1_w_grad;                   /* [d=32] f32 */
    uint64_t dx;                            /* [b=2 s=16 d=32] bf16 */
    uint64_t attn_wqkv_grad;                /* [d=32 g=2 q=4 e=8] f32 */
} block_bwd_k;

typedef struct {
    uint64_t tokens;                        /* [b=2 s=16] i32 */
    uint64_t dembed;                        /* [b=2 s=16 d=32] bf16 */
    uint64_t embed_w_grad;                  /* [v=64 d=32] f32 */
} embed_bwd_k;

typedef struct {
    uint64_t tokens;                        /* [b=2 s=16] i32 */
    uint64_t embed_w;                       /* [v=64 d=32] bf16 */
    uint64_t embed;                         /* [b=2 s=16 d=32] bf16 */
} embed_eval_k;

typedef struct {
    uint64_t x;                             /* [b=2 s=16 d=32] bf16 */
    uint64_t ln_1_w;                        /* [d=32] bf16 */
    uint64_t attn_wqkv;                     /* [d=32 g=2 q=4 e=8] bf16 */
    uint64_t rope_cos;                      /* [s=16 h=4] f32 */
    uint64_t rope_sin;                      /* [s=16 h=4] f32 */
    uint64_t attn_wo;                       /* [g=2 r=2 e=8 d=32] bf16 */
    uint64_t ln_2_w;                        /* [d=32] bf16 */
    uint64_t mlp_gate_up;                   /* [d=32 p=2 f=64] bf16 */
    uint64_t mlp_down;                      /* [f=64 d=32] bf16 */
    uint64_t mlp_add;                       /* [b=2 s=16 d=32] bf16 */
} block_eval_k;

typedef struct {
    uint64_t x;                             /* [b=2 s=16 d=32] bf16 */
    uint64_t ln_f_w;                        /* [d=32] bf16 */
    uint64_t head_w;                        /* [v=64 d=32] bf16 */
    uint64_t targets;                       /* [b=2 s=16] i32 */
    uint64_t loss_sum;                      /* [] f32 */
    uint64_t count;                         /* [] f32 */
} head_eval_k;

typedef struct {
    uint64_t x;                             /* [b=2 s=16 d=32] bf16 */
    uint64_t ln_f_w;                        /* [d=32] bf16 */
    uint64_t head_w;                        /* [v=64 d=32] bf16 */
    uint64_t cast;                          /* [b=2 v=64] f32 */
} head_logits_k;

typedef struct {
    uint64_t grad;                          /* [flat=22848] f32 */
    uint64_t gnorm;                         /* [] f32 */
    uint64_t master;                        /* [flat=22848] f32 */
    uint64_t m;                             /* [flat=22848] f32 */
    uint64_t v;                             /* [flat=22848] f32 */
    uint64_t weight;                        /* [flat=22848] bf16 */
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
void embed(mg_ctx *c, bf16 *y, const int32_t *ids, const bf16 *w);
void rmsnorm(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void attn_qkv_mm(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void attn_rope(mg_ctx *c, bf16 *y1, bf16 *y2, const bf16 *x1, const bf16 *x2, const float *cs,
    const float *sn);
void attention(mg_ctx *c, bf16 *o, float *lse, const bf16 *q, const bf16 *k, const bf16 *v);
void attn_o_mm(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void ln_2_add_rmsnorm(mg_ctx *c, bf16 *z, bf16 *y2, const bf16 *x, const bf16 *y, const bf16 *w);
void mlp_gate_up_mm(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void mlp_swiglu(mg_ctx *c, bf16 *y, const bf16 *g, const bf16 *u);
void mlp_down_mm(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void mlp_add_fwd(mg_ctx *c, bf16 *z, const bf16 *x, const bf16 *y);
void ln_f_rmsnorm(mg_ctx *c, bf16 *y, float *r, const bf16 *x, const bf16 *w);
void head_count_if(mg_ctx *c, float *n, double *n_lines, const int32_t *t, int beta);
void ln_f_rmsnorm_bwd(mg_ctx *c, bf16 *dx, float *dw, float *dw_lines, const bf16 *x,
    const bf16 *w, const float *r, const bf16 *dy, int beta);
void head_mm(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void head_gscale(mg_ctx *c, float *y);
void head_cross_entropy_bwd(mg_ctx *c, float *loss, bf16 *dx, const bf16 *x, const int32_t *t,
    const float *dy);
void head_total(mg_ctx *c, float *y, double *y_lines, const float *x, int beta);
void head_dx(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void head_dw(mg_ctx *c, float *y, const bf16 *x, const bf16 *w, int beta);
void mlp_down_dx(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void mlp_swiglu_bwd(mg_ctx *c, bf16 *y, bf16 *dg, bf16 *du, const bf16 *g, const bf16 *u,
    const bf16 *dy);
void mlp_down_dw(mg_ctx *c, float *y, const bf16 *x, const bf16 *w, int beta);
void mlp_gate_up_dx(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void rmsnorm_bwd(mg_ctx *c, bf16 *y, float *dw, bf16 *z, float *dw_lines, const bf16 *x,
    const bf16 *w, const bf16 *dy, const bf16 *x2, int beta);
void mlp_gate_up_dw(mg_ctx *c, float *y, const bf16 *x, const bf16 *w, int beta);
void attn_o_dx(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void attn_o_dw(mg_ctx *c, float *y, const bf16 *x, const bf16 *w, int beta);
void attention_bwd(mg_ctx *c, bf16 *dq, bf16 *dk, bf16 *dv, const bf16 *q, const bf16 *k,
    const bf16 *v, const bf16 *o, const float *lse, const bf16 *do_);
void attn_rope_bwd(mg_ctx *c, bf16 *dx1, bf16 *dx2, const float *cs, const float *sn,
    const bf16 *dy1, const bf16 *dy2);
void attn_qkv_dx(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void attn_qkv_dw(mg_ctx *c, float *y, const bf16 *x, const bf16 *w, int beta);
void embed_dw(mg_ctx *c, float *dw, const int32_t *ids, const bf16 *dy, int beta);
void head_cross_entropy(mg_ctx *c, float *loss, const bf16 *x, const int32_t *t);
void at_pos(mg_ctx *c, bf16 *y, const bf16 *x);
void head_logits_ln_f_rmsnorm(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void head_logits_head_mm(mg_ctx *c, bf16 *y, const bf16 *x, const bf16 *w);
void cast(mg_ctx *c, float *y, const bf16 *x);
void sumsq(mg_ctx *c, float *s, double *s_lines, const float *x);
void clip_coef(mg_ctx *c, float *coef, float *norm, float *ok, const float *s);
void adamw_cast(mg_ctx *c, float *w2, float *m2, float *v2, bf16 *y, const float *w,
    const float *g, const float *m, const float *v, const float *coef, const float *ok);

#endif
