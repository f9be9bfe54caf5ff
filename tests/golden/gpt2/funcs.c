/* funcs.c: the layers of gpt2, one function each, forward and backward.
 *
 * A line is one kernel call: results first, then operands. The margin says the spec line, the
 * module, and the work (FLOP of a matmul or attention, bytes moved by anything else). A shape
 * names the size of a dim where it occurs first in a function.
 */
#include "model.h"

/* embed, forward.   tests/golden/gpt2.lua:14   7.7 kFLOP */
void embed_fwd(mg_ctx *c, const embed_fwd_k *k)
{
    const int32_t *tokens  = AT(c, k->tokens);        /* [b=4 s=16] */
    float         *embed_y = AT(c, SCRATCH + 0x3000); /* [b s d=24] */
    float         *embed_2 = AT(c, k->embed);         /* [b s d] */

    embed(c, embed_y, tokens, AT(c, k->embed_w));             /* :14 embed              1.5 kFLOP */
    embed_add_col(c, embed_2, embed_y, AT(c, k->embed_pos));  /* :14 embed                13.8 kB */
}

/* block, forward.   tests/golden/gpt2.lua:6   layers 0..1   1.1 MFLOP */
void block_fwd(mg_ctx *c, const block_fwd_k *k)
{
    const float *x           = AT(c, k->x);                       /* [b=4 s=16 d=24] */
    float       *ln_1        = AT(c, SCRATCH + 0x3000);           /* [b s d] */
    float       *qkv         = AT(c, k->saved + BLOCK_QKV);       /* [b s g=3 q=3 e=8] */
    float       *qkv_biased  = AT(c, SCRATCH + 0x3000);           /* [b s m.1=72] */
    float       *attention_o = AT(c, k->saved + BLOCK_ATTENTION); /* [b s g r=1 e] */
    float       *lse         = AT(c, k->saved + BLOCK_LSE);       /* [b s g r] */
    float       *attn_o      = AT(c, SCRATCH + 0x3000);           /* [b s d] */
    float       *attn_add    = AT(c, k->saved + BLOCK_ATTN_ADD);  /* [b s d] */
    float       *ln_2        = AT(c, SCRATCH + 0x4800);           /* [b s d] */
    float       *up          = AT(c, k->saved + BLOCK_UP);        /* [b s f=96] */
    float       *gelu_tanh   = AT(c, SCRATCH + 0x3000);           /* [b s f] */
    float       *down        = AT(c, SCRATCH + 0x9000);           /* [b s d] */
    float       *mlp_add     = AT(c, k->mlp_add);                 /* [b s d] */

    layernorm(c, ln_1, x, AT(c, k->ln_1_w),
              AT(c, k->ln_1_b));                              /* :6 ln_1                  12.5 kB */
    attn_qkv_mm(c, qkv, ln_1, AT(c, k->attn_wqkv));           /* :6 attn.wqkv         221.2 kFLOP */
    attn_add_col(c, qkv_biased, qkv, AT(c, k->attn_bqkv));    /* :6 attn                  37.2 kB */
    attention(c, attention_o, lse, qkv_biased,
              qkv_biased + 8, qkv_biased + 16);               /* :6 attn               49.2 kFLOP */
    attn_o_mm(c, attn_o, attention_o, AT(c, k->attn_wo));     /* :6 attn.wo            73.7 kFLOP */
    ln_2_add_col_dropout_layernorm(c, attn_add, ln_2, attn_o,
                                   AT(c, k->attn_bo), x,
                                   AT(c, k->ln_2_w),
                                   AT(c, k->ln_2_b),
                                   (uint32_t)k->layer);       /* :7 ln_2                  24.9 kB */
    mlp_up_mm(c, up, ln_2, AT(c, k->mlp_up));                 /* :7 mlp.up            294.9 kFLOP */
    mlp_add_col_gelu_tanh(c, gelu_tanh, up,
                          AT(c, k->mlp_up_b));                /* :7 mlp                   49.5 kB */
    mlp_down_mm(c, down, gelu_tanh, AT(c, k->mlp_down));      /* :7 mlp.down          294.9 kFLOP */
    mlp_add_add_col(c, mlp_add, down, AT(c, k->mlp_down_b),
                    attn_add);                                /* :7 mlp_add               18.5 kB */
}

/* head, loss and its gradient.   tests/golden/gpt2.lua:15   695.9 kFLOP */
void head_loss(mg_ctx *c, const head_loss_k *k)
{
    const float   *x            = AT(c, k->x);             /* [b=4 s=16 d=24] */
    float         *ln_f         = AT(c, SCRATCH + 0x3000); /* [b s d] */
    float         *ln_f_m       = AT(c, SCRATCH + 0x7200); /* [b s] */
    float         *ln_f_r       = AT(c, SCRATCH + 0x7300); /* [b s] */
    const int32_t *targets      = AT(c, k->targets);       /* [b s] */
    float         *dln_f        = AT(c, SCRATCH + 0x4800); /* [c=4 n=16 d] */
    double        *count_lines  = AT(c, SCRATCH + 0x3000); /* [line=4] */
    float         *dx           = AT(c, k->dx);            /* [b s d] */
    float         *ln_f_w_lines = AT(c, SCRATCH + 0x3000); /* [line.1=32 d] */
    float         *ln_f_b_lines = AT(c, SCRATCH + 0x3c00); /* [line.1 d] */

    ln_f_layernorm(c, ln_f, ln_f_m, ln_f_r, x,
                   AT(c, k->ln_f_w), AT(c, k->ln_f_b));       /* :15 ln_f                 13.0 kB */
    for (int i = 0; i < 4; i++) {                             /* 4 x head */
        const float   *ln_f_i      = ln_f + i * 384;          /* [n d] */
        float         *logits      = AT(c, SCRATCH + 0x6000); /* [n v=59] */
        float         *gscale      = AT(c, SCRATCH + 0x7100); /* [] */
        const int32_t *targets_i   = targets + i * 16;        /* [n] */
        float         *loss        = AT(c, SCRATCH + 0x7000); /* [n] */
        float         *dlogits     = AT(c, SCRATCH + 0x6000); /* [n v] */
        double        *total_lines = AT(c, SCRATCH + 0x7100); /* [line.2=1] */
        float         *dln_f_i     = dln_f + i * 384;         /* [n d] */

        head_mm(c, logits, ln_f_i, AT(c, k->embed_w));        /* :12 head              45.3 kFLOP */
        head_gscale(c, gscale);                               /* :12 head                     4 B */
        head_cross_entropy_bwd(c, loss, dlogits, logits,
                               targets_i, gscale);            /* :12 head                  8.3 kB */
        head_total(c, AT(c, k->loss_sum), total_lines, loss,
                   1);                                        /* :12 head                    76 B */
        head_dx(c, dln_f_i, dlogits, AT(c, k->embed_w));      /* :12 head              45.3 kFLOP */
        head_dw(c, AT(c, k->embed_w_grad), dlogits, ln_f_i,
                c->scalar.micro > 0 || i > 0);                /* :12 head              45.3 kFLOP */
    }
    head_count_if(c, AT(c, k->count), count_lines, targets,
                  1);                                         /* :12 head                   292 B */
    ln_f_layernorm_bwd(c, dx, AT(c, k->ln_f_w_grad),
                       AT(c, k->ln_f_b_grad), ln_f_w_lines,
                       ln_f_b_lines, x, AT(c, k->ln_f_w),
                       ln_f_m, ln_f_r, dln_f,
                       c->scalar.micro > 0);                  /* :15 ln_f                 25.4 kB */
}

/* block, backward.   tests/golden/gpt2.lua:7   layers 0..1   2.3 MFLOP */
void block_bwd(mg_ctx *c, const block_bwd_k *k)
{
    const float *dmlp_add         = AT(c, k->dmlp_add);                /* [b=4 s=16 d=24] */
    float       *mlp_down_b_lines = AT(c, SCRATCH + 0x3000);           /* [line.1=32 d] */
    float       *dgelu_tanh       = AT(c, SCRATCH + 0x3000);           /* [b s f=96] */
    const float *up               = AT(c, k->saved + BLOCK_UP);        /* [b s f] */
    float       *gelu_tanh        = AT(c, SCRATCH + 0x3000);           /* [b s f] */
    float       *dup              = AT(c, SCRATCH + 0x9000);           /* [b s f] */
    float       *mlp_up_b_lines   = AT(c, SCRATCH + 0xf000);           /* [line.1 f] */
    float       *dln_2            = AT(c, SCRATCH + 0x3000);           /* [b s d] */
    const float *attn_add         = AT(c, k->saved + BLOCK_ATTN_ADD);  /* [b s d] */
    float       *ln_2             = AT(c, SCRATCH + 0x3000);           /* [b s d] */
    float       *dattn_add        = AT(c, SCRATCH + 0xf000);           /* [b s d] */
    float       *dattn_o          = AT(c, SCRATCH + 0x4800);           /* [b s d] */
    float       *ln_2_w_lines     = AT(c, SCRATCH + 0x6000);           /* [line.1 d] */
    float       *ln_2_b_lines     = AT(c, SCRATCH + 0x6c00);           /* [line.1 d] */
    float       *attn_bo_lines    = AT(c, SCRATCH + 0x7800);           /* [line.1 d] */
    float       *dattention       = AT(c, SCRATCH + 0xc000);           /* [b s g=3 r=1 e=8] */
    const float *attention_o      = AT(c, k->saved + BLOCK_ATTENTION); /* [b s g r e] */
    const float *qkv              = AT(c, k->saved + BLOCK_QKV);       /* [b s g q=3 e] */
    float       *qkv_biased       = AT(c, SCRATCH + 0x3000);           /* [b s m.1=72] */
    const float *lse              = AT(c, k->saved + BLOCK_LSE);       /* [b s g r] */
    float       *dqkv             = AT(c, SCRATCH + 0x7800);           /* [b s g q e] */
    float       *dbqkv            = AT(c, SCRATCH + 0x5400);           /* [m.1] */
    float       *dbqkv_lines      = AT(c, SCRATCH + 0x3000);           /* [line.1 m.1] */
    float       *dln_1            = AT(c, SCRATCH + 0x3000);           /* [b s d] */
    const float *x                = AT(c, k->x);                       /* [b s d] */
    float       *ln_1             = AT(c, SCRATCH + 0x3000);           /* [b s d] */
    float       *dx               = AT(c, k->dx);                      /* [b s d] */
    float       *ln_1_w_lines     = AT(c, SCRATCH + 0x4800);           /* [line.1 d] */
    float       *ln_1_b_lines     = AT(c, SCRATCH + 0x5400);           /* [line.1 d] */

    mlp_add_col_bwd(c, AT(c, k->mlp_down_b_grad),
                    mlp_down_b_lines, dmlp_add,
                    c->scalar.micro > 0);                     /* :7 mlp                    9.3 kB */
    mlp_down_dx(c, dgelu_tanh, dmlp_add, AT(c, k->mlp_down)); /* :7 mlp.down          294.9 kFLOP */
    mlp_gelu_tanh_bwd(c, gelu_tanh, dup,
                      AT(c, k->mlp_up_b_grad),
                      mlp_up_b_lines, up, AT(c, k->mlp_up_b),
                      dgelu_tanh, c->scalar.micro > 0);       /* :7 mlp                  111.4 kB */
    mlp_down_dw(c, AT(c, k->mlp_down_grad), gelu_tanh,
                dmlp_add, c->scalar.micro > 0);               /* :7 mlp.down          294.9 kFLOP */
    mlp_up_dx(c, dln_2, dup, AT(c, k->mlp_up));               /* :7 mlp.up            294.9 kFLOP */
    ln_2_layernorm_bwd(c, ln_2, AT(c, k->ln_2_w_grad),
                       AT(c, k->ln_2_b_grad), dattn_add,
                       dattn_o, AT(c, k->attn_bo_grad),
                       ln_2_w_lines, ln_2_b_lines,
                       attn_bo_lines, attn_add,
                       AT(c, k->ln_2_w), AT(c, k->ln_2_b),
                       dln_2, dmlp_add, c->scalar.micro > 0,
                       (uint32_t)k->layer);                   /* :7 ln_2                  46.6 kB */
    mlp_up_dw(c, AT(c, k->mlp_up_grad), ln_2, dup,
              c->scalar.micro > 0);                           /* :7 mlp.up            294.9 kFLOP */
    attn_o_dx(c, dattention, dattn_o, AT(c, k->attn_wo));     /* :6 attn.wo            73.7 kFLOP */
    attn_o_dw(c, AT(c, k->attn_wo_grad), attention_o,
              dattn_o, c->scalar.micro > 0);                  /* :6 attn.wo            73.7 kFLOP */
    attn_add_col(c, qkv_biased, qkv, AT(c, k->attn_bqkv));    /* :6 attn                  37.2 kB */
    attention_bwd(c, dqkv, dqkv + 8, dqkv + 16, qkv_biased,
                  qkv_biased + 8, qkv_biased + 16,
                  attention_o, lse, dattention);              /* :6 attn              122.9 kFLOP */
    attn_add_col_bwd(c, dbqkv, dbqkv_lines, dqkv);            /* :6 attn                  27.9 kB */
    attn_accum(c, AT(c, k->attn_bqkv_grad), dbqkv,
               c->scalar.micro > 0);                          /* :6 attn                    288 B */
    attn_qkv_dx(c, dln_1, dqkv, AT(c, k->attn_wqkv));         /* :6 attn.wqkv         221.2 kFLOP */
    ln_1_layernorm_bwd(c, ln_1, AT(c, k->ln_1_w_grad),
                       AT(c, k->ln_1_b_grad), dx,
                       ln_1_w_lines, ln_1_b_lines, x,
                       AT(c, k->ln_1_w), AT(c, k->ln_1_b),
                       dln_1, dattn_add,
                       c->scalar.micro > 0);                  /* :6 ln_1                  37.2 kB */
    attn_qkv_dw(c, AT(c, k->attn_wqkv_grad), ln_1, dqkv,
                c->scalar.micro > 0);                         /* :6 attn.wqkv         221.2 kFLOP */
}

/* embed, backward.   tests/golden/gpt2.lua:14   4.6 kFLOP */
void embed_bwd(mg_ctx *c, const embed_bwd_k *k)
{
    const float   *dembed     = AT(c, k->dembed);        /* [b=4 s=16 d=24] */
    float         *dpos       = AT(c, SCRATCH + 0x4800); /* [m=384] */
    float         *dpos_lines = AT(c, SCRATCH + 0x3000); /* [line=4 m] */
    const int32_t *tokens     = AT(c, k->tokens);        /* [b s] */

    embed_add_col_bwd(c, dpos, dpos_lines, dembed);           /* :14 embed                13.8 kB */
    embed_accum(c, AT(c, k->embed_pos_grad), dpos,
                c->scalar.micro > 0);                         /* :14 embed                 1.5 kB */
    embed_dw(c, AT(c, k->embed_w_grad), tokens, dembed, 1);   /* :14 embed              1.5 kFLOP */
}

/* embed, evaluation.   tests/golden/gpt2.lua:14   7.7 kFLOP */
void embed_eval(mg_ctx *c, const embed_eval_k *k)
{
    const int32_t *tokens  = AT(c, k->tokens);        /* [b=4 s=16] */
    float         *embed_y = AT(c, SCRATCH + 0x3000); /* [b s d=24] */
    float         *embed_2 = AT(c, k->embed);         /* [b s d] */

    embed(c, embed_y, tokens, AT(c, k->embed_w));             /* :14 embed              1.5 kFLOP */
    embed_add_col(c, embed_2, embed_y, AT(c, k->embed_pos));  /* :14 embed                13.8 kB */
}

/* block, evaluation.   tests/golden/gpt2.lua:6   layers 0..1   1.1 MFLOP */
void block_eval(mg_ctx *c, const block_eval_k *k)
{
    const float *x           = AT(c, k->x);             /* [b=4 s=16 d=24] */
    float       *ln_1        = AT(c, SCRATCH + 0x7800); /* [b s d] */
    float       *qkv         = AT(c, SCRATCH + 0x3000); /* [b s g=3 q=3 e=8] */
    float       *qkv_biased  = AT(c, SCRATCH + 0x7800); /* [b s m.1=72] */
    float       *attention_o = AT(c, SCRATCH + 0x3000); /* [b s g r=1 e] */
    float       *lse         = AT(c, SCRATCH + 0x4800); /* [b s g r] */
    float       *attn_o      = AT(c, SCRATCH + 0x9000); /* [b s d] */
    float       *attn_add    = AT(c, SCRATCH + 0x9000); /* [b s d] */
    float       *ln_2        = AT(c, SCRATCH + 0xa800); /* [b s d] */
    float       *up          = AT(c, SCRATCH + 0x3000); /* [b s f=96] */
    float       *gelu_tanh   = AT(c, SCRATCH + 0x3000); /* [b s f] */
    float       *down        = AT(c, SCRATCH + 0xa800); /* [b s d] */
    float       *mlp_add     = AT(c, k->mlp_add);       /* [b s d] */

    layernorm(c, ln_1, x, AT(c, k->ln_1_w),
              AT(c, k->ln_1_b));                              /* :6 ln_1                  12.5 kB */
    attn_qkv_mm(c, qkv, ln_1, AT(c, k->attn_wqkv));           /* :6 attn.wqkv         221.2 kFLOP */
    attn_add_col(c, qkv_biased, qkv, AT(c, k->attn_bqkv));    /* :6 attn                  37.2 kB */
    attention(c, attention_o, lse, qkv_biased,
              qkv_biased + 8, qkv_biased + 16);               /* :6 attn               49.2 kFLOP */
    attn_o_mm(c, attn_o, attention_o, AT(c, k->attn_wo));     /* :6 attn.wo            73.7 kFLOP */
    ln_2_add_col_layernorm(c, attn_add, ln_2, attn_o,
                           AT(c, k->attn_bo), x,
                           AT(c, k->ln_2_w),
                           AT(c, k->ln_2_b));                 /* :7 ln_2                  24.9 kB */
    mlp_up_mm(c, up, ln_2, AT(c, k->mlp_up));                 /* :7 mlp.up            294.9 kFLOP */
    mlp_add_col_gelu_tanh(c, gelu_tanh, up,
                          AT(c, k->mlp_up_b));                /* :7 mlp                   49.5 kB */
    mlp_down_mm(c, down, gelu_tanh, AT(c, k->mlp_down));      /* :7 mlp.down          294.9 kFLOP */
    mlp_add_add_col(c, mlp_add, down, AT(c, k->mlp_down_b),
                    attn_add);                                /* :7 mlp_add               18.5 kB */
}

/* head, evaluation.   tests/golden/gpt2.lua:15   208.2 kFLOP */
void head_eval(mg_ctx *c, const head_eval_k *k)
{
    const float   *x           = AT(c, k->x);             /* [b=4 s=16 d=24] */
    float         *ln_f        = AT(c, SCRATCH + 0x3000); /* [b s d] */
    const int32_t *targets     = AT(c, k->targets);       /* [b s] */
    double        *count_lines = AT(c, SCRATCH + 0x3000); /* [line=4] */

    layernorm(c, ln_f, x, AT(c, k->ln_f_w),
              AT(c, k->ln_f_b));                              /* :15 ln_f                 12.5 kB */
    for (int i = 0; i < 4; i++) {                             /* 4 x head */
        const float   *ln_f_i      = ln_f + i * 384;          /* [n=16 d] */
        float         *logits      = AT(c, SCRATCH + 0x4800); /* [n v=59] */
        const int32_t *targets_i   = targets + i * 16;        /* [n] */
        float         *loss        = AT(c, SCRATCH + 0x5800); /* [n] */
        double        *total_lines = AT(c, SCRATCH + 0x4800); /* [line.2=1] */

        head_mm(c, logits, ln_f_i, AT(c, k->embed_w));        /* :12 head              45.3 kFLOP */
        head_cross_entropy(c, loss, logits, targets_i);       /* :12 head                  4.2 kB */
        head_total(c, AT(c, k->loss_sum), total_lines, loss,
                   1);                                        /* :12 head                    76 B */
    }
    head_count_if(c, AT(c, k->count), count_lines, targets,
                  1);                                         /* :12 head                   292 B */
}

/* head, logits of one position.   tests/golden/gpt2.lua:15   13.1 kFLOP */
void head_logits(mg_ctx *c, const head_logits_k *k)
{
    const float *x        = AT(c, k->x);             /* [b=4 s=16 d=24] */
    float       *at_pos_y = AT(c, SCRATCH + 0x3000); /* [b d] */
    float       *ln_f     = AT(c, SCRATCH + 0x3000); /* [b d] */
    float       *head     = AT(c, k->head);          /* [b v=59] */

    at_pos(c, at_pos_y, x);                                   /*                          96 FLOP */
    head_logits_ln_f_layernorm(c, ln_f, at_pos_y,
                               AT(c, k->ln_f_w),
                               AT(c, k->ln_f_b));             /* :15 ln_f                   960 B */
    head_logits_head_mm(c, head, ln_f, AT(c, k->embed_w));    /* :12 head              11.3 kFLOP */
}

/* update, the optimizer's step.   926.2 kFLOP */
void update(mg_ctx *c, const update_k *k)
{
    float  *sumsq_s      = AT(c, SCRATCH + 0x3100); /* [] */
    double *sumsq_lines  = AT(c, SCRATCH + 0x3000); /* [line.2=1] */
    float  *coef         = AT(c, SCRATCH + 0x3000); /* [] */
    float  *clip_coef_ok = AT(c, SCRATCH + 0x3200); /* [] */

    sumsq(c, sumsq_s, sumsq_lines, AT(c, k->grad));           /*                          68.6 kB */
    clip_coef(c, coef, AT(c, k->gnorm), clip_coef_ok,
              sumsq_s);                                       /*                             16 B */
    adamw(c, AT(c, k->weight), AT(c, k->m), AT(c, k->v),
          AT(c, k->weight), AT(c, k->grad), AT(c, k->m),
          AT(c, k->v), coef, clip_coef_ok);                   /*                         480.3 kB */
}
