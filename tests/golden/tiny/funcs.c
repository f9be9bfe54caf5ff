/* funcs.c: the layers of tiny, one function each, forward and backward.
 *
 * A line is one kernel call: results first, then operands. The margin says the spec line, the
 * module, and the work (FLOP of a matmul or attention, bytes moved by anything else). A shape
 * names the size of a dim where it occurs first in a function.
 */
#include "model.h"

/* embed, forward.   tests/golden/tiny.lua:14   4.1 kFLOP */
void embed_fwd(mg_ctx *c, const embed_fwd_k *k)
{
    const int32_t *tokens  = AT(c, k->tokens); /* [b=2 s=32] */
    float         *embed_y = AT(c, k->embed);  /* [b s d=64] */

    embed(c, embed_y, tokens, AT(c, k->embed_w));             /* :14 embed              4.1 kFLOP */
}

/* block, forward.   tests/golden/tiny.lua:6   layers 0..1   4.4 MFLOP */
void block_fwd(mg_ctx *c, const block_fwd_k *k)
{
    const float *x           = AT(c, k->x);                       /* [b=2 s=32 d=64] */
    float       *ln_1        = AT(c, SCRATCH + 0x8000);           /* [b s d] */
    float       *qkv         = AT(c, k->saved + BLOCK_QKV);       /* [b s g=2 q=4 e=16] */
    float       *rope        = AT(c, SCRATCH + 0x8000);           /* [b s g q.2=3 e] */
    float       *attention_o = AT(c, k->saved + BLOCK_ATTENTION); /* [b s g r=2 e] */
    float       *lse         = AT(c, k->saved + BLOCK_LSE);       /* [b s g r] */
    float       *attn_o      = AT(c, SCRATCH + 0x8000);           /* [b s d] */
    float       *attn_add    = AT(c, k->saved + BLOCK_ATTN_ADD);  /* [b s d] */
    float       *ln_2        = AT(c, SCRATCH + 0xc000);           /* [b s d] */
    float       *gate_up     = AT(c, k->saved + BLOCK_GATE_UP);   /* [b s p=2 f=96] */
    float       *swiglu      = AT(c, SCRATCH + 0x8000);           /* [b s f] */
    float       *down        = AT(c, SCRATCH + 0xe000);           /* [b s d] */
    float       *mlp_add     = AT(c, k->mlp_add);                 /* [b s d] */

    rmsnorm(c, ln_1, x, AT(c, k->ln_1_w));                    /* :6 ln_1                  33.0 kB */
    attn_qkv_mm(c, qkv, ln_1, AT(c, k->attn_wqkv));           /* :6 attn.wqkv           1.0 MFLOP */
    attn_rope(c, rope, rope + 8, qkv, qkv + 8,
              AT(c, k->rope_cos), AT(c, k->rope_sin));        /* :6 attn                  51.2 kB */
    attention(c, attention_o, lse, rope, rope + 32,
              qkv + 48);                                      /* :6 attn              262.1 kFLOP */
    attn_o_mm(c, attn_o, attention_o, AT(c, k->attn_wo));     /* :6 attn.wo           524.3 kFLOP */
    ln_2_add_rmsnorm(c, attn_add, ln_2, x, attn_o,
                     AT(c, k->ln_2_w));                       /* :7 ln_2                  65.8 kB */
    mlp_gate_up_mm(c, gate_up, ln_2, AT(c, k->mlp_gate_up));  /* :7 mlp.gate_up         1.6 MFLOP */
    mlp_swiglu(c, swiglu, gate_up, gate_up + 96);             /* :7 mlp                   73.7 kB */
    mlp_down_mm(c, down, swiglu, AT(c, k->mlp_down));         /* :7 mlp.down          786.4 kFLOP */
    mlp_add_fwd(c, mlp_add, attn_add, down);                  /* :7 mlp_add               49.2 kB */
}

/* head, loss and its gradient.   tests/golden/tiny.lua:15   6.9 MFLOP */
void head_loss(mg_ctx *c, const head_loss_k *k)
{
    const float   *x            = AT(c, k->x);              /* [b=2 s=32 d=64] */
    float         *ln_f         = AT(c, SCRATCH + 0x1c200); /* [b s d] */
    float         *ln_f_r       = AT(c, SCRATCH + 0x24200); /* [b s] */
    const int32_t *targets      = AT(c, k->targets);        /* [b s] */
    float         *dln_f        = AT(c, SCRATCH + 0x20200); /* [c=1 n=64 d] */
    double        *count_lines  = AT(c, SCRATCH + 0x8000);  /* [line=2] */
    float         *dx           = AT(c, k->dx);             /* [b s d] */
    float         *ln_f_w_lines = AT(c, SCRATCH + 0x8000);  /* [line.1=32 d] */

    ln_f_rmsnorm(c, ln_f, ln_f_r, x, AT(c, k->ln_f_w));       /* :15 ln_f                 33.3 kB */
    for (int i = 0; i < 1; i++) {                             /* 1 x head */
        const float   *ln_f_i      = ln_f + i * 4096;          /* [n d] */
        float         *logits      = AT(c, SCRATCH + 0x8000);  /* [n v=257] */
        float         *gscale      = AT(c, SCRATCH + 0x1c100); /* [] */
        const int32_t *targets_i   = targets + i * 64;         /* [n] */
        float         *loss        = AT(c, SCRATCH + 0x1c000); /* [n] */
        float         *dlogits     = AT(c, SCRATCH + 0x8000);  /* [n v] */
        double        *total_lines = AT(c, SCRATCH + 0x1c100); /* [line.2=1] */
        float         *dln_f_i     = dln_f + i * 4096;         /* [n d] */

        head_mm(c, logits, ln_f_i, AT(c, k->embed_w));        /* :12 head               2.1 MFLOP */
        head_gscale(c, gscale);                               /* :12 head                     4 B */
        head_cross_entropy_bwd(c, loss, dlogits, logits,
                               targets_i, gscale);            /* :12 head                164.4 kB */
        head_total(c, AT(c, k->loss_sum), total_lines, loss,
                   1);                                        /* :12 head                   268 B */
        head_dx(c, dln_f_i, dlogits, AT(c, k->embed_w));      /* :12 head               2.1 MFLOP */
        head_dw(c, AT(c, k->embed_w_grad), dlogits, ln_f_i,
                c->scalar.micro > 0 || i > 0);                /* :12 head               2.1 MFLOP */
    }
    head_count_if(c, AT(c, k->count), count_lines, targets,
                  1);                                         /* :12 head                   276 B */
    ln_f_rmsnorm_bwd(c, dx, AT(c, k->ln_f_w_grad),
                     ln_f_w_lines, x, AT(c, k->ln_f_w),
                     ln_f_r, dln_f, c->scalar.micro > 0);     /* :15 ln_f                 58.1 kB */
}

/* block, backward.   tests/golden/tiny.lua:7   layers 0..1   8.9 MFLOP */
void block_bwd(mg_ctx *c, const block_bwd_k *k)
{
    const float *dmlp_add     = AT(c, k->dmlp_add);                /* [b=2 s=32 d=64] */
    float       *dswiglu      = AT(c, SCRATCH + 0x14000);          /* [b s f=96] */
    const float *gate_up      = AT(c, k->saved + BLOCK_GATE_UP);   /* [b s p=2 f] */
    float       *swiglu       = AT(c, SCRATCH + 0x14000);          /* [b s f] */
    float       *dgate_up     = AT(c, SCRATCH + 0x8000);           /* [b s p f] */
    float       *dln_2        = AT(c, SCRATCH + 0x14000);          /* [b s d] */
    const float *attn_add     = AT(c, k->saved + BLOCK_ATTN_ADD);  /* [b s d] */
    float       *ln_2         = AT(c, SCRATCH + 0x14000);          /* [b s d] */
    float       *dattn_add    = AT(c, SCRATCH + 0x1c000);          /* [b s d] */
    float       *ln_2_w_lines = AT(c, SCRATCH + 0x18000);          /* [line.1=32 d] */
    float       *dattention   = AT(c, SCRATCH + 0x20000);          /* [b s g=2 r=2 e=16] */
    const float *attention_o  = AT(c, k->saved + BLOCK_ATTENTION); /* [b s g r e] */
    const float *qkv          = AT(c, k->saved + BLOCK_QKV);       /* [b s g q=4 e] */
    float       *rope         = AT(c, SCRATCH + 0x10000);          /* [b s g q.2=3 e] */
    const float *lse          = AT(c, k->saved + BLOCK_LSE);       /* [b s g r] */
    float       *drope        = AT(c, SCRATCH + 0x16000);          /* [b s g q.2 e] */
    float       *dqkv         = AT(c, SCRATCH + 0x8000);           /* [b s g q e] */
    float       *dln_1        = AT(c, SCRATCH + 0x10000);          /* [b s d] */
    const float *x            = AT(c, k->x);                       /* [b s d] */
    float       *ln_1         = AT(c, SCRATCH + 0x10000);          /* [b s d] */
    float       *dx           = AT(c, k->dx);                      /* [b s d] */
    float       *ln_1_w_lines = AT(c, SCRATCH + 0x14000);          /* [line.1 d] */

    mlp_down_dx(c, dswiglu, dmlp_add, AT(c, k->mlp_down));    /* :7 mlp.down          786.4 kFLOP */
    mlp_swiglu_bwd(c, swiglu, dgate_up, dgate_up + 96,
                   gate_up, gate_up + 96, dswiglu);           /* :7 mlp                  147.5 kB */
    mlp_down_dw(c, AT(c, k->mlp_down_grad), swiglu, dmlp_add,
                c->scalar.micro > 0);                         /* :7 mlp.down          786.4 kFLOP */
    mlp_gate_up_dx(c, dln_2, dgate_up,
                   AT(c, k->mlp_gate_up));                    /* :7 mlp.gate_up         1.6 MFLOP */
    rmsnorm_bwd(c, ln_2, AT(c, k->ln_2_w_grad), dattn_add,
                ln_2_w_lines, attn_add, AT(c, k->ln_2_w),
                dln_2, dmlp_add, c->scalar.micro > 0);        /* :7 ln_2                  90.6 kB */
    mlp_gate_up_dw(c, AT(c, k->mlp_gate_up_grad), ln_2,
                   dgate_up, c->scalar.micro > 0);            /* :7 mlp.gate_up         1.6 MFLOP */
    attn_o_dx(c, dattention, dattn_add, AT(c, k->attn_wo));   /* :6 attn.wo           524.3 kFLOP */
    attn_o_dw(c, AT(c, k->attn_wo_grad), attention_o,
              dattn_add, c->scalar.micro > 0);                /* :6 attn.wo           524.3 kFLOP */
    attn_rope(c, rope, rope + 8, qkv, qkv + 8,
              AT(c, k->rope_cos), AT(c, k->rope_sin));        /* :6 attn                  51.2 kB */
    attention_bwd(c, drope, drope + 32, dqkv + 48, rope,
                  rope + 32, qkv + 48, attention_o, lse,
                  dattention);                                /* :6 attn              655.4 kFLOP */
    attn_rope_bwd(c, dqkv, dqkv + 8, AT(c, k->rope_cos),
                  AT(c, k->rope_sin), drope, drope + 8);      /* :6 attn                  51.2 kB */
    attn_qkv_dx(c, dln_1, dqkv, AT(c, k->attn_wqkv));         /* :6 attn.wqkv           1.0 MFLOP */
    rmsnorm_bwd(c, ln_1, AT(c, k->ln_1_w_grad), dx,
                ln_1_w_lines, x, AT(c, k->ln_1_w), dln_1,
                dattn_add, c->scalar.micro > 0);              /* :6 ln_1                  90.6 kB */
    attn_qkv_dw(c, AT(c, k->attn_wqkv_grad), ln_1, dqkv,
                c->scalar.micro > 0);                         /* :6 attn.wqkv           1.0 MFLOP */
}

/* embed, backward.   tests/golden/tiny.lua:14   20.5 kFLOP */
void embed_bwd(mg_ctx *c, const embed_bwd_k *k)
{
    const int32_t *tokens = AT(c, k->tokens); /* [b=2 s=32] */
    const float   *dembed = AT(c, k->dembed); /* [b s d=64] */

    embed_dw(c, AT(c, k->embed_w_grad), tokens, dembed, 1);   /* :14 embed             20.5 kFLOP */
}

/* embed, evaluation.   tests/golden/tiny.lua:14   4.1 kFLOP */
void embed_eval(mg_ctx *c, const embed_eval_k *k)
{
    const int32_t *tokens  = AT(c, k->tokens); /* [b=2 s=32] */
    float         *embed_y = AT(c, k->embed);  /* [b s d=64] */

    embed(c, embed_y, tokens, AT(c, k->embed_w));             /* :14 embed              4.1 kFLOP */
}

/* block, evaluation.   tests/golden/tiny.lua:6   layers 0..1   4.4 MFLOP */
void block_eval(mg_ctx *c, const block_eval_k *k)
{
    const float *x           = AT(c, k->x);              /* [b=2 s=32 d=64] */
    float       *ln_1        = AT(c, SCRATCH + 0x10000); /* [b s d] */
    float       *qkv         = AT(c, SCRATCH + 0x8000);  /* [b s g=2 q=4 e=16] */
    float       *rope        = AT(c, SCRATCH + 0x10000); /* [b s g q.2=3 e] */
    float       *attention_o = AT(c, SCRATCH + 0x16000); /* [b s g r=2 e] */
    float       *lse         = AT(c, SCRATCH + 0x1a000); /* [b s g r] */
    float       *attn_o      = AT(c, SCRATCH + 0x1a000); /* [b s d] */
    float       *attn_add    = AT(c, SCRATCH + 0x1a000); /* [b s d] */
    float       *ln_2        = AT(c, SCRATCH + 0x14000); /* [b s d] */
    float       *gate_up     = AT(c, SCRATCH + 0x8000);  /* [b s p=2 f=96] */
    float       *swiglu      = AT(c, SCRATCH + 0x14000); /* [b s f] */
    float       *down        = AT(c, SCRATCH + 0x8000);  /* [b s d] */
    float       *mlp_add     = AT(c, k->mlp_add);        /* [b s d] */

    rmsnorm(c, ln_1, x, AT(c, k->ln_1_w));                    /* :6 ln_1                  33.0 kB */
    attn_qkv_mm(c, qkv, ln_1, AT(c, k->attn_wqkv));           /* :6 attn.wqkv           1.0 MFLOP */
    attn_rope(c, rope, rope + 8, qkv, qkv + 8,
              AT(c, k->rope_cos), AT(c, k->rope_sin));        /* :6 attn                  51.2 kB */
    attention(c, attention_o, lse, rope, rope + 32,
              qkv + 48);                                      /* :6 attn              262.1 kFLOP */
    attn_o_mm(c, attn_o, attention_o, AT(c, k->attn_wo));     /* :6 attn.wo           524.3 kFLOP */
    ln_2_add_rmsnorm(c, attn_add, ln_2, x, attn_o,
                     AT(c, k->ln_2_w));                       /* :7 ln_2                  65.8 kB */
    mlp_gate_up_mm(c, gate_up, ln_2, AT(c, k->mlp_gate_up));  /* :7 mlp.gate_up         1.6 MFLOP */
    mlp_swiglu(c, swiglu, gate_up, gate_up + 96);             /* :7 mlp                   73.7 kB */
    mlp_down_mm(c, down, swiglu, AT(c, k->mlp_down));         /* :7 mlp.down          786.4 kFLOP */
    mlp_add_fwd(c, mlp_add, attn_add, down);                  /* :7 mlp_add               49.2 kB */
}

/* head, evaluation.   tests/golden/tiny.lua:15   2.2 MFLOP */
void head_eval(mg_ctx *c, const head_eval_k *k)
{
    const float   *x           = AT(c, k->x);              /* [b=2 s=32 d=64] */
    float         *ln_f        = AT(c, SCRATCH + 0x1c100); /* [b s d] */
    const int32_t *targets     = AT(c, k->targets);        /* [b s] */
    double        *count_lines = AT(c, SCRATCH + 0x8000);  /* [line=2] */

    rmsnorm(c, ln_f, x, AT(c, k->ln_f_w));                    /* :15 ln_f                 33.0 kB */
    for (int i = 0; i < 1; i++) {                             /* 1 x head */
        const float   *ln_f_i      = ln_f + i * 4096;          /* [n=64 d] */
        float         *logits      = AT(c, SCRATCH + 0x8000);  /* [n v=257] */
        const int32_t *targets_i   = targets + i * 64;         /* [n] */
        float         *loss        = AT(c, SCRATCH + 0x1c000); /* [n] */
        double        *total_lines = AT(c, SCRATCH + 0x8000);  /* [line.2=1] */

        head_mm(c, logits, ln_f_i, AT(c, k->embed_w));        /* :12 head               2.1 MFLOP */
        head_cross_entropy(c, loss, logits, targets_i);       /* :12 head                 82.4 kB */
        head_total(c, AT(c, k->loss_sum), total_lines, loss,
                   1);                                        /* :12 head                   268 B */
    }
    head_count_if(c, AT(c, k->count), count_lines, targets,
                  1);                                         /* :12 head                   276 B */
}

/* head, logits of one position.   tests/golden/tiny.lua:15   67.5 kFLOP */
void head_logits(mg_ctx *c, const head_logits_k *k)
{
    const float *x        = AT(c, k->x);             /* [b=2 s=32 d=64] */
    float       *at_pos_y = AT(c, SCRATCH + 0x8000); /* [b d] */
    float       *ln_f     = AT(c, SCRATCH + 0x8000); /* [b d] */
    float       *head     = AT(c, k->head);          /* [b v=257] */

    at_pos(c, at_pos_y, x);                                   /*                         128 FLOP */
    head_logits_ln_f_rmsnorm(c, ln_f, at_pos_y,
                             AT(c, k->ln_f_w));               /* :15 ln_f                  1.3 kB */
    head_logits_head_mm(c, head, ln_f, AT(c, k->embed_w));    /* :12 head              65.8 kFLOP */
}

/* update, the optimizer's step.   4.4 MFLOP */
void update(mg_ctx *c, const update_k *k)
{
    float  *sumsq_s      = AT(c, SCRATCH + 0x8100); /* [] */
    double *sumsq_lines  = AT(c, SCRATCH + 0x8000); /* [line=2] */
    float  *coef         = AT(c, SCRATCH + 0x8000); /* [] */
    float  *clip_coef_ok = AT(c, SCRATCH + 0x8200); /* [] */

    sumsq(c, sumsq_s, sumsq_lines, AT(c, k->grad));           /*                         329.0 kB */
    clip_coef(c, coef, AT(c, k->gnorm), clip_coef_ok,
              sumsq_s);                                       /*                             16 B */
    adamw(c, AT(c, k->weight), AT(c, k->m), AT(c, k->v),
          AT(c, k->weight), AT(c, k->grad), AT(c, k->m),
          AT(c, k->v), coef, clip_coef_ok);                   /*                           2.3 MB */
}
