/* funcs.c: the layers of llama, one function each, forward and backward.
 *
 * A line is one kernel call: results first, then operands. The margin says the spec line, the
 * module, and the work (FLOP of a matmul or attention, bytes moved by anything else). A shape
 * names the size of a dim where it occurs first in a function.
 */
#include "model.h"

/* embed, forward.   tests/golden/llama.lua:13   1.0 kFLOP */
void embed_fwd(mg_ctx *c, const embed_fwd_k *k)
{
    const int32_t *tokens  = AT(c, k->tokens); /* [b=2 s=16] */
    bf16          *embed_y = AT(c, k->embed);  /* [b s d=32] */

    embed(c, embed_y, tokens, AT(c, k->embed_w));             /* :13 embed              1.0 kFLOP */
}

/* block, forward.   tests/golden/llama.lua:7   layers 0..1   681.7 kFLOP */
void block_fwd(mg_ctx *c, const block_fwd_k *k)
{
    const bf16 *x           = AT(c, k->x);                      /* [b=2 s=16 d=32] */
    bf16       *ln_1        = AT(c, SCRATCH + 0x1000);          /* [b s d] */
    bf16       *qkv         = AT(c, k->saved + BLOCK_QKV);      /* [b s g=2 q=4 e=8] */
    bf16       *rope        = AT(c, SCRATCH + 0x1000);          /* [b s g q.2=3 e] */
    bf16       *attention_o = AT(c, SCRATCH + 0x1c00);          /* [b s g r=2 e] */
    float      *lse         = AT(c, SCRATCH + 0x2400);          /* [b s g r] */
    bf16       *attn_o      = AT(c, SCRATCH + 0x1000);          /* [b s d] */
    bf16       *attn_add    = AT(c, k->saved + BLOCK_ATTN_ADD); /* [b s d] */
    bf16       *ln_2        = AT(c, SCRATCH + 0x1800);          /* [b s d] */
    bf16       *gate_up     = AT(c, k->saved + BLOCK_GATE_UP);  /* [b s p=2 f=64] */
    bf16       *swiglu      = AT(c, SCRATCH + 0x1000);          /* [b s f] */
    bf16       *down        = AT(c, SCRATCH + 0x2000);          /* [b s d] */
    bf16       *mlp_add     = AT(c, k->mlp_add);                /* [b s d] */

    rmsnorm(c, ln_1, x, AT(c, k->ln_1_w));                    /* :7 ln_1                   4.2 kB */
    attn_qkv_mm(c, qkv, ln_1, AT(c, k->attn_wqkv));           /* :7 attn.wqkv         131.1 kFLOP */
    attn_rope(c, rope, rope + 4, qkv, qkv + 4,
              AT(c, k->rope_cos), AT(c, k->rope_sin));        /* :7 attn                   6.7 kB */
    attention(c, attention_o, lse, rope, rope + 16,
              qkv + 24);                                      /* :7 attn               32.8 kFLOP */
    attn_o_mm(c, attn_o, attention_o, AT(c, k->attn_wo));     /* :7 attn.wo            65.5 kFLOP */
    ln_2_add_rmsnorm(c, attn_add, ln_2, x, attn_o,
                     AT(c, k->ln_2_w));                       /* :8 ln_2                   8.3 kB */
    mlp_gate_up_mm(c, gate_up, ln_2, AT(c, k->mlp_gate_up));  /* :8 mlp.gate_up       262.1 kFLOP */
    mlp_swiglu(c, swiglu, gate_up, gate_up + 64);             /* :8 mlp                   12.3 kB */
    mlp_down_mm(c, down, swiglu, AT(c, k->mlp_down));         /* :8 mlp.down          131.1 kFLOP */
    mlp_add_fwd(c, mlp_add, attn_add, down);                  /* :8 mlp_add                6.1 kB */
}

/* head, loss and its gradient.   tests/golden/llama.lua:13   474.1 kFLOP */
void head_loss(mg_ctx *c, const head_loss_k *k)
{
    const bf16    *x            = AT(c, k->x);             /* [b=2 s=16 d=32] */
    bf16          *ln_f         = AT(c, SCRATCH + 0x1a00); /* [b s d] */
    float         *ln_f_r       = AT(c, SCRATCH + 0x2a00); /* [b s] */
    const int32_t *targets      = AT(c, k->targets);       /* [b s] */
    bf16          *dln_f        = AT(c, SCRATCH + 0x2200); /* [c=2 n=16 d] */
    double        *count_lines  = AT(c, SCRATCH + 0x1000); /* [line=2] */
    bf16          *dx           = AT(c, k->dx);            /* [b s d] */
    float         *ln_f_w_lines = AT(c, SCRATCH + 0x1000); /* [line.1=32 d] */

    ln_f_rmsnorm(c, ln_f, ln_f_r, x, AT(c, k->ln_f_w));       /* :13 ln_f                  4.3 kB */
    for (int i = 0; i < 2; i++) {                             /* 2 x head */
        const bf16    *ln_f_i      = ln_f + i * 512;          /* [n d] */
        bf16          *logits      = AT(c, SCRATCH + 0x1000); /* [n v=64] */
        float         *gscale      = AT(c, SCRATCH + 0x1900); /* [] */
        const int32_t *targets_i   = targets + i * 16;        /* [n] */
        float         *loss        = AT(c, SCRATCH + 0x1800); /* [n] */
        bf16          *dlogits     = AT(c, SCRATCH + 0x1000); /* [n v] */
        double        *total_lines = AT(c, SCRATCH + 0x1900); /* [line.2=1] */
        bf16          *dln_f_i     = dln_f + i * 512;         /* [n d] */

        head_mm(c, logits, ln_f_i, AT(c, k->head_w));         /* :13 head.w            65.5 kFLOP */
        head_gscale(c, gscale);                               /* :13 head                     4 B */
        head_cross_entropy_bwd(c, loss, dlogits, logits,
                               targets_i, gscale);            /* :13 head                  4.2 kB */
        head_total(c, AT(c, k->loss_sum), total_lines, loss,
                   1);                                        /* :13 head                    76 B */
        head_dx(c, dln_f_i, dlogits, AT(c, k->head_w));       /* :13 head.w            65.5 kFLOP */
        head_dw(c, AT(c, k->head_w_grad), dlogits, ln_f_i,
                c->scalar.micro > 0 || i > 0);                /* :13 head.w            65.5 kFLOP */
    }
    head_count_if(c, AT(c, k->count), count_lines, targets,
                  1);                                         /* :13 head                   148 B */
    ln_f_rmsnorm_bwd(c, dx, AT(c, k->ln_f_w_grad),
                     ln_f_w_lines, x, AT(c, k->ln_f_w),
                     ln_f_r, dln_f, c->scalar.micro > 0);     /* :13 ln_f                 10.6 kB */
}

/* block, backward.   tests/golden/llama.lua:8   layers 0..1   1.4 MFLOP */
void block_bwd(mg_ctx *c, const block_bwd_k *k)
{
    const bf16 *dmlp_add     = AT(c, k->dmlp_add);               /* [b=2 s=16 d=32] */
    bf16       *dswiglu      = AT(c, SCRATCH + 0x3000);          /* [b s f=64] */
    const bf16 *gate_up      = AT(c, k->saved + BLOCK_GATE_UP);  /* [b s p=2 f] */
    bf16       *swiglu       = AT(c, SCRATCH + 0x3000);          /* [b s f] */
    bf16       *dgate_up     = AT(c, SCRATCH + 0x1000);          /* [b s p f] */
    bf16       *dln_2        = AT(c, SCRATCH + 0x4000);          /* [b s d] */
    const bf16 *attn_add     = AT(c, k->saved + BLOCK_ATTN_ADD); /* [b s d] */
    bf16       *ln_2         = AT(c, SCRATCH + 0x4000);          /* [b s d] */
    bf16       *dattn_add    = AT(c, SCRATCH + 0x4800);          /* [b s d] */
    float      *ln_2_w_lines = AT(c, SCRATCH + 0x3000);          /* [line.1=32 d] */
    bf16       *dattention   = AT(c, SCRATCH + 0x3800);          /* [b s g=2 r=2 e=8] */
    const bf16 *qkv          = AT(c, k->saved + BLOCK_QKV);      /* [b s g q=4 e] */
    bf16       *rope         = AT(c, SCRATCH + 0x2000);          /* [b s g q.2=3 e] */
    bf16       *attention_o  = AT(c, SCRATCH + 0x4000);          /* [b s g r e] */
    float      *lse          = AT(c, SCRATCH + 0x5000);          /* [b s g r] */
    bf16       *drope        = AT(c, SCRATCH + 0x2c00);          /* [b s g q.2 e] */
    bf16       *dqkv         = AT(c, SCRATCH + 0x1000);          /* [b s g q e] */
    bf16       *dln_1        = AT(c, SCRATCH + 0x3000);          /* [b s d] */
    const bf16 *x            = AT(c, k->x);                      /* [b s d] */
    bf16       *ln_1         = AT(c, SCRATCH + 0x3000);          /* [b s d] */
    bf16       *dx           = AT(c, k->dx);                     /* [b s d] */
    float      *ln_1_w_lines = AT(c, SCRATCH + 0x2000);          /* [line.1 d] */

    mlp_down_dx(c, dswiglu, dmlp_add, AT(c, k->mlp_down));    /* :8 mlp.down          131.1 kFLOP */
    mlp_swiglu_bwd(c, swiglu, dgate_up, dgate_up + 64,
                   gate_up, gate_up + 64, dswiglu);           /* :8 mlp                   24.6 kB */
    mlp_down_dw(c, AT(c, k->mlp_down_grad), swiglu, dmlp_add,
                c->scalar.micro > 0);                         /* :8 mlp.down          131.1 kFLOP */
    mlp_gate_up_dx(c, dln_2, dgate_up,
                   AT(c, k->mlp_gate_up));                    /* :8 mlp.gate_up       262.1 kFLOP */
    rmsnorm_bwd(c, ln_2, AT(c, k->ln_2_w_grad), dattn_add,
                ln_2_w_lines, attn_add, AT(c, k->ln_2_w),
                dln_2, dmlp_add, c->scalar.micro > 0);        /* :8 ln_2                  14.5 kB */
    mlp_gate_up_dw(c, AT(c, k->mlp_gate_up_grad), ln_2,
                   dgate_up, c->scalar.micro > 0);            /* :8 mlp.gate_up       262.1 kFLOP */
    attn_o_dx(c, dattention, dattn_add, AT(c, k->attn_wo));   /* :7 attn.wo            65.5 kFLOP */
    attn_rope(c, rope, rope + 4, qkv, qkv + 4,
              AT(c, k->rope_cos), AT(c, k->rope_sin));        /* :7 attn                   6.7 kB */
    attention(c, attention_o, lse, rope, rope + 16,
              qkv + 24);                                      /* :7 attn               32.8 kFLOP */
    attn_o_dw(c, AT(c, k->attn_wo_grad), attention_o,
              dattn_add, c->scalar.micro > 0);                /* :7 attn.wo            65.5 kFLOP */
    attention_bwd(c, drope, drope + 16, dqkv + 24, rope,
                  rope + 16, qkv + 24, attention_o, lse,
                  dattention);                                /* :7 attn               81.9 kFLOP */
    attn_rope_bwd(c, dqkv, dqkv + 4, AT(c, k->rope_cos),
                  AT(c, k->rope_sin), drope, drope + 4);      /* :7 attn                   6.7 kB */
    attn_qkv_dx(c, dln_1, dqkv, AT(c, k->attn_wqkv));         /* :7 attn.wqkv         131.1 kFLOP */
    rmsnorm_bwd(c, ln_1, AT(c, k->ln_1_w_grad), dx,
                ln_1_w_lines, x, AT(c, k->ln_1_w), dln_1,
                dattn_add, c->scalar.micro > 0);              /* :7 ln_1                  14.5 kB */
    attn_qkv_dw(c, AT(c, k->attn_wqkv_grad), ln_1, dqkv,
                c->scalar.micro > 0);                         /* :7 attn.wqkv         131.1 kFLOP */
}

/* embed, backward.   tests/golden/llama.lua:13   2.0 kFLOP */
void embed_bwd(mg_ctx *c, const embed_bwd_k *k)
{
    const int32_t *tokens = AT(c, k->tokens); /* [b=2 s=16] */
    const bf16    *dembed = AT(c, k->dembed); /* [b s d=32] */

    embed_dw(c, AT(c, k->embed_w_grad), tokens, dembed,
             c->scalar.micro > 0);                            /* :13 embed              2.0 kFLOP */
}

/* embed, evaluation.   tests/golden/llama.lua:13   1.0 kFLOP */
void embed_eval(mg_ctx *c, const embed_eval_k *k)
{
    const int32_t *tokens  = AT(c, k->tokens); /* [b=2 s=16] */
    bf16          *embed_y = AT(c, k->embed);  /* [b s d=32] */

    embed(c, embed_y, tokens, AT(c, k->embed_w));             /* :13 embed              1.0 kFLOP */
}

/* block, evaluation.   tests/golden/llama.lua:7   layers 0..1   681.7 kFLOP */
void block_eval(mg_ctx *c, const block_eval_k *k)
{
    const bf16 *x           = AT(c, k->x);             /* [b=2 s=16 d=32] */
    bf16       *ln_1        = AT(c, SCRATCH + 0x2000); /* [b s d] */
    bf16       *qkv         = AT(c, SCRATCH + 0x1000); /* [b s g=2 q=4 e=8] */
    bf16       *rope        = AT(c, SCRATCH + 0x2000); /* [b s g q.2=3 e] */
    bf16       *attention_o = AT(c, SCRATCH + 0x2c00); /* [b s g r=2 e] */
    float      *lse         = AT(c, SCRATCH + 0x3400); /* [b s g r] */
    bf16       *attn_o      = AT(c, SCRATCH + 0x4000); /* [b s d] */
    bf16       *attn_add    = AT(c, SCRATCH + 0x4000); /* [b s d] */
    bf16       *ln_2        = AT(c, SCRATCH + 0x3000); /* [b s d] */
    bf16       *gate_up     = AT(c, SCRATCH + 0x1000); /* [b s p=2 f=64] */
    bf16       *swiglu      = AT(c, SCRATCH + 0x3000); /* [b s f] */
    bf16       *down        = AT(c, SCRATCH + 0x1000); /* [b s d] */
    bf16       *mlp_add     = AT(c, k->mlp_add);       /* [b s d] */

    rmsnorm(c, ln_1, x, AT(c, k->ln_1_w));                    /* :7 ln_1                   4.2 kB */
    attn_qkv_mm(c, qkv, ln_1, AT(c, k->attn_wqkv));           /* :7 attn.wqkv         131.1 kFLOP */
    attn_rope(c, rope, rope + 4, qkv, qkv + 4,
              AT(c, k->rope_cos), AT(c, k->rope_sin));        /* :7 attn                   6.7 kB */
    attention(c, attention_o, lse, rope, rope + 16,
              qkv + 24);                                      /* :7 attn               32.8 kFLOP */
    attn_o_mm(c, attn_o, attention_o, AT(c, k->attn_wo));     /* :7 attn.wo            65.5 kFLOP */
    ln_2_add_rmsnorm(c, attn_add, ln_2, x, attn_o,
                     AT(c, k->ln_2_w));                       /* :8 ln_2                   8.3 kB */
    mlp_gate_up_mm(c, gate_up, ln_2, AT(c, k->mlp_gate_up));  /* :8 mlp.gate_up       262.1 kFLOP */
    mlp_swiglu(c, swiglu, gate_up, gate_up + 64);             /* :8 mlp                   12.3 kB */
    mlp_down_mm(c, down, swiglu, AT(c, k->mlp_down));         /* :8 mlp.down          131.1 kFLOP */
    mlp_add_fwd(c, mlp_add, attn_add, down);                  /* :8 mlp_add                6.1 kB */
}

/* head, evaluation.   tests/golden/llama.lua:13   144.8 kFLOP */
void head_eval(mg_ctx *c, const head_eval_k *k)
{
    const bf16    *x           = AT(c, k->x);             /* [b=2 s=16 d=32] */
    bf16          *ln_f        = AT(c, SCRATCH + 0x1900); /* [b s d] */
    const int32_t *targets     = AT(c, k->targets);       /* [b s] */
    double        *count_lines = AT(c, SCRATCH + 0x1000); /* [line=2] */

    rmsnorm(c, ln_f, x, AT(c, k->ln_f_w));                    /* :13 ln_f                  4.2 kB */
    for (int i = 0; i < 2; i++) {                             /* 2 x head */
        const bf16    *ln_f_i      = ln_f + i * 512;          /* [n=16 d] */
        bf16          *logits      = AT(c, SCRATCH + 0x1000); /* [n v=64] */
        const int32_t *targets_i   = targets + i * 16;        /* [n] */
        float         *loss        = AT(c, SCRATCH + 0x1800); /* [n] */
        double        *total_lines = AT(c, SCRATCH + 0x1000); /* [line.2=1] */

        head_mm(c, logits, ln_f_i, AT(c, k->head_w));         /* :13 head              65.5 kFLOP */
        head_cross_entropy(c, loss, logits, targets_i);       /* :13 head                  2.2 kB */
        head_total(c, AT(c, k->loss_sum), total_lines, loss,
                   1);                                        /* :13 head                    76 B */
    }
    head_count_if(c, AT(c, k->count), count_lines, targets,
                  1);                                         /* :13 head                   148 B */
}

/* head, logits of one position.   tests/golden/llama.lua:13   9.3 kFLOP */
void head_logits(mg_ctx *c, const head_logits_k *k)
{
    const bf16 *x        = AT(c, k->x);             /* [b=2 s=16 d=32] */
    bf16       *at_pos_y = AT(c, SCRATCH + 0x1100); /* [b d] */
    bf16       *ln_f     = AT(c, SCRATCH + 0x1100); /* [b d] */
    bf16       *head     = AT(c, SCRATCH + 0x1000); /* [b v=64] */
    float      *cast_y   = AT(c, k->cast);          /* [b v] */

    at_pos(c, at_pos_y, x);                                   /*                          64 FLOP */
    head_logits_ln_f_rmsnorm(c, ln_f, at_pos_y,
                             AT(c, k->ln_f_w));               /* :13 ln_f                   320 B */
    head_logits_head_mm(c, head, ln_f, AT(c, k->head_w));     /* :13 head.w             8.2 kFLOP */
    cast(c, cast_y, head);                                    /*                            768 B */
}

/* update, the optimizer's step.   1.3 MFLOP */
void update(mg_ctx *c, const update_k *k)
{
    float  *sumsq_s      = AT(c, SCRATCH + 0x1100); /* [] */
    double *sumsq_lines  = AT(c, SCRATCH + 0x1000); /* [line.2=1] */
    float  *coef         = AT(c, SCRATCH + 0x1000); /* [] */
    float  *clip_coef_ok = AT(c, SCRATCH + 0x1200); /* [] */

    sumsq(c, sumsq_s, sumsq_lines, AT(c, k->grad));           /*                          91.4 kB */
    clip_coef(c, coef, AT(c, k->gnorm), clip_coef_ok,
              sumsq_s);                                       /*                             16 B */
    adamw_cast(c, AT(c, k->master), AT(c, k->m), AT(c, k->v),
               AT(c, k->weight), AT(c, k->master),
               AT(c, k->grad), AT(c, k->m), AT(c, k->v),
               coef, clip_coef_ok);                           /*                         685.4 kB */
}
