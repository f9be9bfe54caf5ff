/* funcs.c: the layers of qwen, one function each, forward and backward.
 *
 * A line is one kernel call: results first, then operands. The margin says the spec line, the
 * module, and the work (FLOP of a matmul or attention, bytes moved by anything else). A shape
 * names the size of a dim where it occurs first in a function.
 */
#include "model.h"

/* embed, forward.   tests/golden/qwen.lua:15   1.0 kFLOP */
void embed_fwd(mg_ctx *c, const embed_fwd_k *k)
{
    const int32_t *tokens  = AT(c, k->tokens); /* [b=2 s=16] */
    float         *embed_y = AT(c, k->embed);  /* [b s d=32] */

    embed(c, embed_y, tokens, AT(c, k->embed_w));             /* :15 embed              1.0 kFLOP */
}

/* block, forward.   tests/golden/qwen.lua:6   layers 0..1   783.6 kFLOP */
void block_fwd(mg_ctx *c, const block_fwd_k *k)
{
    const float *x           = AT(c, k->x);                       /* [b=2 s=16 d=32] */
    float       *ln_1        = AT(c, SCRATCH + 0x2000);           /* [b s d] */
    float       *qkv         = AT(c, k->saved + BLOCK_QKV);       /* [b s g=2 q=4 e=8] */
    float       *qkv_biased  = AT(c, SCRATCH + 0x2000);           /* [b s m=64] */
    float       *rope        = AT(c, k->saved + BLOCK_ROPE);      /* [b s g q.2=3 e] */
    float       *attention_o = AT(c, k->saved + BLOCK_ATTENTION); /* [b s g r=2 e] */
    float       *lse         = AT(c, k->saved + BLOCK_LSE);       /* [b s g r] */
    float       *attn_o      = AT(c, SCRATCH + 0x2000);           /* [b s d] */
    float       *attn_add    = AT(c, k->saved + BLOCK_ATTN_ADD);  /* [b s d] */
    float       *ln_2        = AT(c, SCRATCH + 0x3000);           /* [b s d] */
    float       *gate_up     = AT(c, k->saved + BLOCK_GATE_UP);   /* [b s p=2 f=80] */
    float       *swiglu      = AT(c, SCRATCH + 0x2000);           /* [b s f] */
    float       *down        = AT(c, SCRATCH + 0x4800);           /* [b s d] */
    float       *mlp_add     = AT(c, k->mlp_add);                 /* [b s d] */

    rmsnorm(c, ln_1, x, AT(c, k->ln_1_w));                    /* :6 ln_1                   8.3 kB */
    attn_qkv_mm(c, qkv, ln_1, AT(c, k->attn_wqkv));           /* :7 attn.wqkv         131.1 kFLOP */
    attn_add_col(c, qkv_biased, qkv, AT(c, k->attn_bqkv));    /* :7 attn                  16.6 kB */
    attn_rope(c, rope, rope + 4, qkv_biased, qkv_biased + 4,
              AT(c, k->rope_cos), AT(c, k->rope_sin));        /* :7 attn                  12.8 kB */
    attention(c, attention_o, lse, rope, rope + 16,
              qkv_biased + 24);                               /* :7 attn               32.8 kFLOP */
    attn_o_mm(c, attn_o, attention_o, AT(c, k->attn_wo));     /* :7 attn.wo            65.5 kFLOP */
    ln_2_add_rmsnorm(c, attn_add, ln_2, x, attn_o,
                     AT(c, k->ln_2_w));                       /* :8 ln_2                  16.5 kB */
    mlp_gate_up_mm(c, gate_up, ln_2, AT(c, k->mlp_gate_up));  /* :8 mlp.gate_up       327.7 kFLOP */
    mlp_swiglu(c, swiglu, gate_up, gate_up + 80);             /* :8 mlp                   30.7 kB */
    mlp_down_mm(c, down, swiglu, AT(c, k->mlp_down));         /* :8 mlp.down          163.8 kFLOP */
    mlp_add_fwd(c, mlp_add, attn_add, down);                  /* :8 mlp_add               12.3 kB */
}

/* head, loss and its gradient.   tests/golden/qwen.lua:16   470.0 kFLOP */
void head_loss(mg_ctx *c, const head_loss_k *k)
{
    const float   *x            = AT(c, k->x);             /* [b=2 s=16 d=32] */
    float         *ln_f         = AT(c, SCRATCH + 0x4200); /* [b s d] */
    float         *ln_f_r       = AT(c, SCRATCH + 0x6200); /* [b s] */
    const int32_t *targets      = AT(c, k->targets);       /* [b s] */
    float         *dln_f        = AT(c, SCRATCH + 0x5200); /* [c=1 n=32 d] */
    double        *count_lines  = AT(c, SCRATCH + 0x2000); /* [line=2] */
    float         *dx           = AT(c, k->dx);            /* [b s d] */
    float         *ln_f_w_lines = AT(c, SCRATCH + 0x2000); /* [line.1=32 d] */

    ln_f_rmsnorm(c, ln_f, ln_f_r, x, AT(c, k->ln_f_w));       /* :16 ln_f                  8.4 kB */
    for (int i = 0; i < 1; i++) {                             /* 1 x head */
        const float   *ln_f_i      = ln_f + i * 1024;         /* [n d] */
        float         *logits      = AT(c, SCRATCH + 0x2000); /* [n v=64] */
        float         *gscale      = AT(c, SCRATCH + 0x4100); /* [] */
        const int32_t *targets_i   = targets + i * 32;        /* [n] */
        float         *loss        = AT(c, SCRATCH + 0x4000); /* [n] */
        float         *dlogits     = AT(c, SCRATCH + 0x2000); /* [n v] */
        double        *total_lines = AT(c, SCRATCH + 0x4100); /* [line.2=1] */
        float         *dln_f_i     = dln_f + i * 1024;        /* [n d] */

        head_mm(c, logits, ln_f_i, AT(c, k->embed_w));        /* :13 head             131.1 kFLOP */
        head_gscale(c, gscale);                               /* :13 head                     4 B */
        head_cross_entropy_bwd(c, loss, dlogits, logits,
                               targets_i, gscale);            /* :13 head                 16.6 kB */
        head_total(c, AT(c, k->loss_sum), total_lines, loss,
                   1);                                        /* :13 head                   140 B */
        head_dx(c, dln_f_i, dlogits, AT(c, k->embed_w));      /* :13 head             131.1 kFLOP */
        head_dw(c, AT(c, k->embed_w_grad), dlogits, ln_f_i,
                c->scalar.micro > 0 || i > 0);                /* :13 head             131.1 kFLOP */
    }
    head_count_if(c, AT(c, k->count), count_lines, targets,
                  1);                                         /* :13 head                   148 B */
    ln_f_rmsnorm_bwd(c, dx, AT(c, k->ln_f_w_grad),
                     ln_f_w_lines, x, AT(c, k->ln_f_w),
                     ln_f_r, dln_f, c->scalar.micro > 0);     /* :16 ln_f                 16.8 kB */
}

/* block, backward.   tests/golden/qwen.lua:8   layers 0..1   1.6 MFLOP */
void block_bwd(mg_ctx *c, const block_bwd_k *k)
{
    const float *dmlp_add     = AT(c, k->dmlp_add);                /* [b=2 s=16 d=32] */
    float       *dswiglu      = AT(c, SCRATCH + 0x7000);           /* [b s f=80] */
    const float *gate_up      = AT(c, k->saved + BLOCK_GATE_UP);   /* [b s p=2 f] */
    float       *swiglu       = AT(c, SCRATCH + 0x7000);           /* [b s f] */
    float       *dgate_up     = AT(c, SCRATCH + 0x2000);           /* [b s p f] */
    float       *dln_2        = AT(c, SCRATCH + 0x7000);           /* [b s d] */
    const float *attn_add     = AT(c, k->saved + BLOCK_ATTN_ADD);  /* [b s d] */
    float       *ln_2         = AT(c, SCRATCH + 0x7000);           /* [b s d] */
    float       *dattn_add    = AT(c, SCRATCH + 0x8000);           /* [b s d] */
    float       *ln_2_w_lines = AT(c, SCRATCH + 0x9000);           /* [line.1=32 d] */
    float       *dattention   = AT(c, SCRATCH + 0x9000);           /* [b s g=2 r=2 e=8] */
    const float *attention_o  = AT(c, k->saved + BLOCK_ATTENTION); /* [b s g r e] */
    const float *qkv          = AT(c, k->saved + BLOCK_QKV);       /* [b s g q=4 e] */
    float       *qkv_biased   = AT(c, SCRATCH + 0x2000);           /* [b s m=64] */
    const float *rope         = AT(c, k->saved + BLOCK_ROPE);      /* [b s g q.2=3 e] */
    const float *lse          = AT(c, k->saved + BLOCK_LSE);       /* [b s g r] */
    float       *drope        = AT(c, SCRATCH + 0x6000);           /* [b s g q.2 e] */
    float       *dqkv         = AT(c, SCRATCH + 0x4000);           /* [b s g q e] */
    float       *dbqkv        = AT(c, SCRATCH + 0x6000);           /* [m] */
    float       *dbqkv_lines  = AT(c, SCRATCH + 0x2000);           /* [line.1 m] */
    float       *dln_1        = AT(c, SCRATCH + 0x2000);           /* [b s d] */
    const float *x            = AT(c, k->x);                       /* [b s d] */
    float       *ln_1         = AT(c, SCRATCH + 0x2000);           /* [b s d] */
    float       *dx           = AT(c, k->dx);                      /* [b s d] */
    float       *ln_1_w_lines = AT(c, SCRATCH + 0x3000);           /* [line.1 d] */

    mlp_down_dx(c, dswiglu, dmlp_add, AT(c, k->mlp_down));    /* :8 mlp.down          163.8 kFLOP */
    mlp_swiglu_bwd(c, swiglu, dgate_up, dgate_up + 80,
                   gate_up, gate_up + 80, dswiglu);           /* :8 mlp                   61.4 kB */
    mlp_down_dw(c, AT(c, k->mlp_down_grad), swiglu, dmlp_add,
                c->scalar.micro > 0);                         /* :8 mlp.down          163.8 kFLOP */
    mlp_gate_up_dx(c, dln_2, dgate_up,
                   AT(c, k->mlp_gate_up));                    /* :8 mlp.gate_up       327.7 kFLOP */
    rmsnorm_bwd(c, ln_2, AT(c, k->ln_2_w_grad), dattn_add,
                ln_2_w_lines, attn_add, AT(c, k->ln_2_w),
                dln_2, dmlp_add, c->scalar.micro > 0);        /* :8 ln_2                  24.8 kB */
    mlp_gate_up_dw(c, AT(c, k->mlp_gate_up_grad), ln_2,
                   dgate_up, c->scalar.micro > 0);            /* :8 mlp.gate_up       327.7 kFLOP */
    attn_o_dx(c, dattention, dattn_add, AT(c, k->attn_wo));   /* :7 attn.wo            65.5 kFLOP */
    attn_o_dw(c, AT(c, k->attn_wo_grad), attention_o,
              dattn_add, c->scalar.micro > 0);                /* :7 attn.wo            65.5 kFLOP */
    attn_add_col(c, qkv_biased, qkv, AT(c, k->attn_bqkv));    /* :7 attn                  16.6 kB */
    attention_bwd(c, drope, drope + 16, dqkv + 24, rope,
                  rope + 16, qkv_biased + 24, attention_o,
                  lse, dattention);                           /* :7 attn               81.9 kFLOP */
    attn_rope_bwd(c, dqkv, dqkv + 4, AT(c, k->rope_cos),
                  AT(c, k->rope_sin), drope, drope + 4);      /* :7 attn                  12.8 kB */
    attn_add_col_bwd(c, dbqkv, dbqkv_lines, dqkv);            /* :7 attn                  16.6 kB */
    attn_accum(c, AT(c, k->attn_bqkv_grad), dbqkv,
               c->scalar.micro > 0);                          /* :7 attn                    256 B */
    attn_qkv_dx(c, dln_1, dqkv, AT(c, k->attn_wqkv));         /* :7 attn.wqkv         131.1 kFLOP */
    rmsnorm_bwd(c, ln_1, AT(c, k->ln_1_w_grad), dx,
                ln_1_w_lines, x, AT(c, k->ln_1_w), dln_1,
                dattn_add, c->scalar.micro > 0);              /* :6 ln_1                  24.8 kB */
    attn_qkv_dw(c, AT(c, k->attn_wqkv_grad), ln_1, dqkv,
                c->scalar.micro > 0);                         /* :7 attn.wqkv         131.1 kFLOP */
}

/* embed, backward.   tests/golden/qwen.lua:15   2.0 kFLOP */
void embed_bwd(mg_ctx *c, const embed_bwd_k *k)
{
    const int32_t *tokens = AT(c, k->tokens); /* [b=2 s=16] */
    const float   *dembed = AT(c, k->dembed); /* [b s d=32] */

    embed_dw(c, AT(c, k->embed_w_grad), tokens, dembed, 1);   /* :15 embed              2.0 kFLOP */
}

/* embed, evaluation.   tests/golden/qwen.lua:15   1.0 kFLOP */
void embed_eval(mg_ctx *c, const embed_eval_k *k)
{
    const int32_t *tokens  = AT(c, k->tokens); /* [b=2 s=16] */
    float         *embed_y = AT(c, k->embed);  /* [b s d=32] */

    embed(c, embed_y, tokens, AT(c, k->embed_w));             /* :15 embed              1.0 kFLOP */
}

/* block, evaluation.   tests/golden/qwen.lua:6   layers 0..1   783.6 kFLOP */
void block_eval(mg_ctx *c, const block_eval_k *k)
{
    const float *x           = AT(c, k->x);             /* [b=2 s=16 d=32] */
    float       *ln_1        = AT(c, SCRATCH + 0x4000); /* [b s d] */
    float       *qkv         = AT(c, SCRATCH + 0x2000); /* [b s g=2 q=4 e=8] */
    float       *qkv_biased  = AT(c, SCRATCH + 0x4000); /* [b s m=64] */
    float       *rope        = AT(c, SCRATCH + 0x2000); /* [b s g q.2=3 e] */
    float       *attention_o = AT(c, SCRATCH + 0x6000); /* [b s g r=2 e] */
    float       *lse         = AT(c, SCRATCH + 0x3800); /* [b s g r] */
    float       *attn_o      = AT(c, SCRATCH + 0x9800); /* [b s d] */
    float       *attn_add    = AT(c, SCRATCH + 0x9800); /* [b s d] */
    float       *ln_2        = AT(c, SCRATCH + 0x7000); /* [b s d] */
    float       *gate_up     = AT(c, SCRATCH + 0x2000); /* [b s p=2 f=80] */
    float       *swiglu      = AT(c, SCRATCH + 0x7000); /* [b s f] */
    float       *down        = AT(c, SCRATCH + 0x2000); /* [b s d] */
    float       *mlp_add     = AT(c, k->mlp_add);       /* [b s d] */

    rmsnorm(c, ln_1, x, AT(c, k->ln_1_w));                    /* :6 ln_1                   8.3 kB */
    attn_qkv_mm(c, qkv, ln_1, AT(c, k->attn_wqkv));           /* :7 attn.wqkv         131.1 kFLOP */
    attn_add_col(c, qkv_biased, qkv, AT(c, k->attn_bqkv));    /* :7 attn                  16.6 kB */
    attn_rope(c, rope, rope + 4, qkv_biased, qkv_biased + 4,
              AT(c, k->rope_cos), AT(c, k->rope_sin));        /* :7 attn                  12.8 kB */
    attention(c, attention_o, lse, rope, rope + 16,
              qkv_biased + 24);                               /* :7 attn               32.8 kFLOP */
    attn_o_mm(c, attn_o, attention_o, AT(c, k->attn_wo));     /* :7 attn.wo            65.5 kFLOP */
    ln_2_add_rmsnorm(c, attn_add, ln_2, x, attn_o,
                     AT(c, k->ln_2_w));                       /* :8 ln_2                  16.5 kB */
    mlp_gate_up_mm(c, gate_up, ln_2, AT(c, k->mlp_gate_up));  /* :8 mlp.gate_up       327.7 kFLOP */
    mlp_swiglu(c, swiglu, gate_up, gate_up + 80);             /* :8 mlp                   30.7 kB */
    mlp_down_mm(c, down, swiglu, AT(c, k->mlp_down));         /* :8 mlp.down          163.8 kFLOP */
    mlp_add_fwd(c, mlp_add, attn_add, down);                  /* :8 mlp_add               12.3 kB */
}

/* head, evaluation.   tests/golden/qwen.lua:16   143.8 kFLOP */
void head_eval(mg_ctx *c, const head_eval_k *k)
{
    const float   *x           = AT(c, k->x);             /* [b=2 s=16 d=32] */
    float         *ln_f        = AT(c, SCRATCH + 0x4100); /* [b s d] */
    const int32_t *targets     = AT(c, k->targets);       /* [b s] */
    double        *count_lines = AT(c, SCRATCH + 0x2000); /* [line=2] */

    rmsnorm(c, ln_f, x, AT(c, k->ln_f_w));                    /* :16 ln_f                  8.3 kB */
    for (int i = 0; i < 1; i++) {                             /* 1 x head */
        const float   *ln_f_i      = ln_f + i * 1024;         /* [n=32 d] */
        float         *logits      = AT(c, SCRATCH + 0x2000); /* [n v=64] */
        const int32_t *targets_i   = targets + i * 32;        /* [n] */
        float         *loss        = AT(c, SCRATCH + 0x4000); /* [n] */
        double        *total_lines = AT(c, SCRATCH + 0x2000); /* [line.2=1] */

        head_mm(c, logits, ln_f_i, AT(c, k->embed_w));        /* :13 head             131.1 kFLOP */
        head_cross_entropy(c, loss, logits, targets_i);       /* :13 head                  8.4 kB */
        head_total(c, AT(c, k->loss_sum), total_lines, loss,
                   1);                                        /* :13 head                   140 B */
    }
    head_count_if(c, AT(c, k->count), count_lines, targets,
                  1);                                         /* :13 head                   148 B */
}

/* head, logits of one position.   tests/golden/qwen.lua:16   9.0 kFLOP */
void head_logits(mg_ctx *c, const head_logits_k *k)
{
    const float *x        = AT(c, k->x);             /* [b=2 s=16 d=32] */
    float       *at_pos_y = AT(c, SCRATCH + 0x2000); /* [b d] */
    float       *ln_f     = AT(c, SCRATCH + 0x2000); /* [b d] */
    float       *head     = AT(c, k->head);          /* [b v=64] */

    at_pos(c, at_pos_y, x);                                   /*                          64 FLOP */
    head_logits_ln_f_rmsnorm(c, ln_f, at_pos_y,
                             AT(c, k->ln_f_w));               /* :16 ln_f                   640 B */
    head_logits_head_mm(c, head, ln_f, AT(c, k->embed_w));    /* :13 head               8.2 kFLOP */
}

/* update, the optimizer's step.   528.0 kFLOP */
void update(mg_ctx *c, const update_k *k)
{
    float  *sumsq_s      = AT(c, SCRATCH + 0x2100); /* [] */
    double *sumsq_lines  = AT(c, SCRATCH + 0x2000); /* [line.2=1] */
    float  *coef         = AT(c, SCRATCH + 0x2000); /* [] */
    float  *clip_coef_ok = AT(c, SCRATCH + 0x2200); /* [] */

    sumsq(c, sumsq_s, sumsq_lines, AT(c, k->grad));           /*                          96.0 kB */
    clip_coef(c, coef, AT(c, k->gnorm), clip_coef_ok,
              sumsq_s);                                       /*                             16 B */
    sgd(c, AT(c, k->weight), AT(c, k->m), AT(c, k->weight),
        AT(c, k->grad), AT(c, k->m), coef, clip_coef_ok);     /*                         480.0 kB */
}
