/* model.c: tiny as tables: calls, variables, inputs, keys; and what walks them.
 *
 * Made by megagen 0.1 from tests/golden/tiny.lua, program HASH.
 */
#include "model.h"

/* ==== calls: a row for each call, columns as in model.h ======================================= */

static const embed_fwd_k embed_fwd_call[1] = {
    {0x1aa000, 0x0, 0x160400},                                                      /* fwd */
};

static const block_fwd_k block_fwd_call[2] = {
    {0x160400, 0x32000, 0x14000, 0x144000, 0x142a00, 0x142e00, 0x1c000, 0x32100,    /* layers.0 */
     0x20000, 0x2c000, 0x180800},
    {0x180800, 0x50200, 0x32200, 0x164400, 0x142a00, 0x142e00, 0x3a200, 0x50300,    /* layers.1 */
     0x3e200, 0x4a200, 0x185000},
};

static const head_loss_k head_loss_call[1] = {
    {0x185000, 0x50400, 0x0, 0x1aa100, 0x143200, 0x51000, 0x143300, 0x189000,       /* bwd */
     0xa1400},
};

static const block_bwd_k block_bwd_call[2] = {
    {0x189000, 0x4a200, 0x164400, 0x9b200, 0x3e200, 0x50300, 0xa1300, 0x8f200,      /* layers.1 */
     0x3a200, 0x8b200, 0x142a00, 0x142e00, 0x32200, 0x180800, 0x50200, 0xa1200,
     0x185000, 0x83200},
    {0x185000, 0x2c000, 0x144000, 0x7d000, 0x20000, 0x32100, 0x83100, 0x71000,      /* layers.0 */
     0x1c000, 0x6d000, 0x142a00, 0x142e00, 0x14000, 0x160400, 0x32000, 0x83000,
     0x189000, 0x65000},
};

static const embed_bwd_k embed_bwd_call[1] = {
    {0x1aa000, 0x189000, 0x51000},                                                  /* bwd */
};

static const embed_eval_k embed_eval_call[2] = {
    {0x1aa000, 0x0, 0x185000},                                                      /* eval */
    {0x1aa000, 0x0, 0x185000},                                                      /* logits */
};

static const block_eval_k block_eval_call[4] = {
    {0x185000, 0x32000, 0x14000, 0x142a00, 0x142e00, 0x1c000, 0x32100, 0x20000,     /* layers.0 */
     0x2c000, 0x189000},
    {0x189000, 0x50200, 0x32200, 0x142a00, 0x142e00, 0x3a200, 0x50300, 0x3e200,     /* layers.1 */
     0x4a200, 0x185000},
    {0x185000, 0x32000, 0x14000, 0x142a00, 0x142e00, 0x1c000, 0x32100, 0x20000,     /* layers.0 */
     0x2c000, 0x189000},
    {0x189000, 0x50200, 0x32200, 0x142a00, 0x142e00, 0x3a200, 0x50300, 0x3e200,     /* layers.1 */
     0x4a200, 0x185000},
};

static const head_eval_k head_eval_call[1] = {
    {0x185000, 0x50400, 0x0, 0x1aa100, 0x143200, 0x143300},                         /* eval */
};

static const head_logits_k head_logits_call[1] = {
    {0x185000, 0x50400, 0x0, 0x1aa200},                                             /* logits */
};

static const update_k update_call[1] = {
    {0x51000, 0x143400, 0x0, 0xa2000, 0xf2500},                                     /* upd */
};

/* ==== what the runtime runs =================================================================== */

static void fwd(mg_ctx *c)
{
    embed_fwd(c, &embed_fwd_call[0]);
    for (int l = 0; l < 2; l++)
        block_fwd(c, &block_fwd_call[l]);
}

static void bwd(mg_ctx *c)
{
    head_loss(c, &head_loss_call[0]);
    for (int l = 0; l < 2; l++)
        block_bwd(c, &block_bwd_call[l]);
    embed_bwd(c, &embed_bwd_call[0]);
}

static void eval(mg_ctx *c)
{
    embed_eval(c, &embed_eval_call[0]);
    for (int l = 0; l < 2; l++)
        block_eval(c, &block_eval_call[l]);
    head_eval(c, &head_eval_call[0]);
}

static void logits(mg_ctx *c)
{
    embed_eval(c, &embed_eval_call[1]);
    for (int l = 2; l < 4; l++)
        block_eval(c, &block_eval_call[l]);
    head_logits(c, &head_logits_call[0]);
}

static void upd(mg_ctx *c)
{
    update(c, &update_call[0]);
}

/* ==== variables, inputs, keys ================================================================= */

static void fill_cos(void *dst, const int64_t *dim)
{
    mg_table_cos(dst, dim, MG_F32, 1.0, 1.0, 0.31622776601683794, 0.1, 0.03162277660168379, 0.01,
        0.0031622776601683794, 0.001, 0.00031622776601683794);
}

static void fill_sin(void *dst, const int64_t *dim)
{
    mg_table_sin(dst, dim, MG_F32, 1.0, 1.0, 0.31622776601683794, 0.1, 0.03162277660168379, 0.01,
        0.0031622776601683794, 0.001, 0.00031622776601683794);
}

static const mg_var var[] = {
    {"embed.w", MG_WEIGHT, MG_F32, MG_INIT_NORMAL, 2, .saved = 1, .decay = 1, .of = -1,
     .dim = {257, 64}, .dims = "v d", .off = 0x0, .elems = 16448, .elems_mem = 20480, .b = 0.02},
    {"layers.0.ln_1.w", MG_WEIGHT, MG_F32, MG_INIT_ONE, 1, .saved = 1, .decay = 0, .of = -1,
     .dim = {64}, .dims = "d", .off = 0x32000, .elems = 64, .elems_mem = 64},
    {"layers.0.attn.wqkv", MG_WEIGHT, MG_F32, MG_INIT_NORMAL, 4, .saved = 1, .decay = 1,
     .of = -1, .dim = {64, 2, 4, 16}, .dims = "d g q e", .off = 0x14000, .elems = 8192,
     .elems_mem = 8192, .b = 0.02},
    {"rope.cos", MG_TABLE, MG_F32, MG_INIT_TABLE, 2, .saved = 0, .decay = 0, .of = -1,
     .dim = {32, 8}, .dims = "s h", .off = 0x142a00, .elems = 256, .elems_mem = 256,
     .table = fill_cos},
    {"rope.sin", MG_TABLE, MG_F32, MG_INIT_TABLE, 2, .saved = 0, .decay = 0, .of = -1,
     .dim = {32, 8}, .dims = "s h", .off = 0x142e00, .elems = 256, .elems_mem = 256,
     .table = fill_sin},
    {"layers.0.attn.wo", MG_WEIGHT, MG_F32, MG_INIT_NORMAL, 4, .saved = 1, .decay = 1, .of = -1,
     .dim = {2, 2, 16, 64}, .dims = "g r e d", .off = 0x1c000, .elems = 4096, .elems_mem = 4096,
     .b = 0.01},
    {"layers.0.ln_2.w", MG_WEIGHT, MG_F32, MG_INIT_ONE, 1, .saved = 1, .decay = 0, .of = -1,
     .dim = {64}, .dims = "d", .off = 0x32100, .elems = 64, .elems_mem = 64},
    {"layers.0.mlp.gate_up", MG_WEIGHT, MG_F32, MG_INIT_NORMAL, 3, .saved = 1, .decay = 1,
     .of = -1, .dim = {64, 2, 96}, .dims = "d p f", .off = 0x20000, .elems = 12288,
     .elems_mem = 12288, .b = 0.02},
    {"layers.0.mlp.down", MG_WEIGHT, MG_F32, MG_INIT_NORMAL, 2, .saved = 1, .decay = 1, .of = -1,
     .dim = {96, 64}, .dims = "f d", .off = 0x2c000, .elems = 6144, .elems_mem = 6144, .b = 0.01},
    {"layers.1.ln_1.w", MG_WEIGHT, MG_F32, MG_INIT_ONE, 1, .saved = 1, .decay = 0, .of = -1,
     .dim = {64}, .dims = "d", .off = 0x50200, .elems = 64, .elems_mem = 64},
    {"layers.1.attn.wqkv", MG_WEIGHT, MG_F32, MG_INIT_NORMAL, 4, .saved = 1, .decay = 1,
     .of = -1, .dim = {64, 2, 4, 16}, .dims = "d g q e", .off = 0x32200, .elems = 8192,
     .elems_mem = 8192, .b = 0.02},
    {"layers.1.attn.wo", MG_WEIGHT, MG_F32, MG_INIT_NORMAL, 4, .saved = 1, .decay = 1, .of = -1,
     .dim = {2, 2, 16, 64}, .dims = "g r e d", .off = 0x3a200, .elems = 4096, .elems_mem = 4096,
     .b = 0.01},
    {"layers.1.ln_2.w", MG_WEIGHT, MG_F32, MG_INIT_ONE, 1, .saved = 1, .decay = 0, .of = -1,
     .dim = {64}, .dims = "d", .off = 0x50300, .elems = 64, .elems_mem = 64},
    {"layers.1.mlp.gate_up", MG_WEIGHT, MG_F32, MG_INIT_NORMAL, 3, .saved = 1, .decay = 1,
     .of = -1, .dim = {64, 2, 96}, .dims = "d p f", .off = 0x3e200, .elems = 12288,
     .elems_mem = 12288, .b = 0.02},
    {"layers.1.mlp.down", MG_WEIGHT, MG_F32, MG_INIT_NORMAL, 2, .saved = 1, .decay = 1, .of = -1,
     .dim = {96, 64}, .dims = "f d", .off = 0x4a200, .elems = 6144, .elems_mem = 6144, .b = 0.01},
    {"ln_f.w", MG_WEIGHT, MG_F32, MG_INIT_ONE, 1, .saved = 1, .decay = 0, .of = -1, .dim = {64},
     .dims = "d", .off = 0x50400, .elems = 64, .elems_mem = 64},
    {"loss_sum", MG_METRIC, MG_F32, MG_INIT_ZERO, 0, .saved = 0, .decay = 0, .of = -1,
     .dim = {0}, .dims = "", .off = 0x143200, .elems = 1, .elems_mem = 1},
    {"count", MG_METRIC, MG_F32, MG_INIT_ZERO, 0, .saved = 0, .decay = 0, .of = -1, .dim = {0},
     .dims = "", .off = 0x143300, .elems = 1, .elems_mem = 1},
    {"embed.w.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 2, .saved = 0, .decay = 0, .of = 0,
     .dim = {257, 64}, .dims = "v d", .off = 0x51000, .elems = 16448, .elems_mem = 20480},
    {"layers.0.ln_1.w.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 1, .saved = 0, .decay = 0, .of = 1,
     .dim = {64}, .dims = "d", .off = 0x83000, .elems = 64, .elems_mem = 64},
    {"layers.0.attn.wqkv.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 4, .saved = 0, .decay = 0,
     .of = 2, .dim = {64, 2, 4, 16}, .dims = "d g q e", .off = 0x65000, .elems = 8192,
     .elems_mem = 8192},
    {"layers.0.attn.wo.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 4, .saved = 0, .decay = 0, .of = 5,
     .dim = {2, 2, 16, 64}, .dims = "g r e d", .off = 0x6d000, .elems = 4096, .elems_mem = 4096},
    {"layers.0.ln_2.w.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 1, .saved = 0, .decay = 0, .of = 6,
     .dim = {64}, .dims = "d", .off = 0x83100, .elems = 64, .elems_mem = 64},
    {"layers.0.mlp.gate_up.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 3, .saved = 0, .decay = 0,
     .of = 7, .dim = {64, 2, 96}, .dims = "d p f", .off = 0x71000, .elems = 12288,
     .elems_mem = 12288},
    {"layers.0.mlp.down.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 2, .saved = 0, .decay = 0,
     .of = 8, .dim = {96, 64}, .dims = "f d", .off = 0x7d000, .elems = 6144, .elems_mem = 6144},
    {"layers.1.ln_1.w.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 1, .saved = 0, .decay = 0, .of = 9,
     .dim = {64}, .dims = "d", .off = 0xa1200, .elems = 64, .elems_mem = 64},
    {"layers.1.attn.wqkv.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 4, .saved = 0, .decay = 0,
     .of = 10, .dim = {64, 2, 4, 16}, .dims = "d g q e", .off = 0x83200, .elems = 8192,
     .elems_mem = 8192},
    {"layers.1.attn.wo.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 4, .saved = 0, .decay = 0,
     .of = 11, .dim = {2, 2, 16, 64}, .dims = "g r e d", .off = 0x8b200, .elems = 4096,
     .elems_mem = 4096},
    {"layers.1.ln_2.w.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 1, .saved = 0, .decay = 0, .of = 12,
     .dim = {64}, .dims = "d", .off = 0xa1300, .elems = 64, .elems_mem = 64},
    {"layers.1.mlp.gate_up.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 3, .saved = 0, .decay = 0,
     .of = 13, .dim = {64, 2, 96}, .dims = "d p f", .off = 0x8f200, .elems = 12288,
     .elems_mem = 12288},
    {"layers.1.mlp.down.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 2, .saved = 0, .decay = 0,
     .of = 14, .dim = {96, 64}, .dims = "f d", .off = 0x9b200, .elems = 6144, .elems_mem = 6144},
    {"ln_f.w.grad", MG_ACCUM, MG_F32, MG_INIT_ZERO, 1, .saved = 0, .decay = 0, .of = 15,
     .dim = {64}, .dims = "d", .off = 0xa1400, .elems = 64, .elems_mem = 64},
    {"embed.w.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 2, .saved = 1, .decay = 1, .of = 0,
     .dim = {257, 64}, .dims = "v d", .off = 0xa2000, .elems = 16448, .elems_mem = 20480},
    {"embed.w.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 2, .saved = 1, .decay = 1, .of = 0,
     .dim = {257, 64}, .dims = "v d", .off = 0xf2500, .elems = 16448, .elems_mem = 20480},
    {"layers.0.attn.wqkv.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 4, .saved = 1, .decay = 1, .of = 2,
     .dim = {64, 2, 4, 16}, .dims = "d g q e", .off = 0xb6000, .elems = 8192, .elems_mem = 8192},
    {"layers.0.attn.wqkv.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 4, .saved = 1, .decay = 1, .of = 2,
     .dim = {64, 2, 4, 16}, .dims = "d g q e", .off = 0x106500, .elems = 8192, .elems_mem = 8192},
    {"layers.0.attn.wo.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 4, .saved = 1, .decay = 1, .of = 5,
     .dim = {2, 2, 16, 64}, .dims = "g r e d", .off = 0xbe000, .elems = 4096, .elems_mem = 4096},
    {"layers.0.attn.wo.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 4, .saved = 1, .decay = 1, .of = 5,
     .dim = {2, 2, 16, 64}, .dims = "g r e d", .off = 0x10e500, .elems = 4096, .elems_mem = 4096},
    {"layers.0.mlp.gate_up.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 3, .saved = 1, .decay = 1,
     .of = 7, .dim = {64, 2, 96}, .dims = "d p f", .off = 0xc2000, .elems = 12288,
     .elems_mem = 12288},
    {"layers.0.mlp.gate_up.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 3, .saved = 1, .decay = 1,
     .of = 7, .dim = {64, 2, 96}, .dims = "d p f", .off = 0x112500, .elems = 12288,
     .elems_mem = 12288},
    {"layers.0.mlp.down.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 2, .saved = 1, .decay = 1, .of = 8,
     .dim = {96, 64}, .dims = "f d", .off = 0xce000, .elems = 6144, .elems_mem = 6144},
    {"layers.0.mlp.down.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 2, .saved = 1, .decay = 1, .of = 8,
     .dim = {96, 64}, .dims = "f d", .off = 0x11e500, .elems = 6144, .elems_mem = 6144},
    {"layers.0.ln_1.w.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 1, .saved = 1, .decay = 0, .of = 1,
     .dim = {64}, .dims = "d", .off = 0xd4000, .elems = 64, .elems_mem = 64},
    {"layers.0.ln_1.w.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 1, .saved = 1, .decay = 0, .of = 1,
     .dim = {64}, .dims = "d", .off = 0x124500, .elems = 64, .elems_mem = 64},
    {"layers.0.ln_2.w.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 1, .saved = 1, .decay = 0, .of = 6,
     .dim = {64}, .dims = "d", .off = 0xd4100, .elems = 64, .elems_mem = 64},
    {"layers.0.ln_2.w.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 1, .saved = 1, .decay = 0, .of = 6,
     .dim = {64}, .dims = "d", .off = 0x124600, .elems = 64, .elems_mem = 64},
    {"layers.1.attn.wqkv.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 4, .saved = 1, .decay = 1,
     .of = 10, .dim = {64, 2, 4, 16}, .dims = "d g q e", .off = 0xd4200, .elems = 8192,
     .elems_mem = 8192},
    {"layers.1.attn.wqkv.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 4, .saved = 1, .decay = 1,
     .of = 10, .dim = {64, 2, 4, 16}, .dims = "d g q e", .off = 0x124700, .elems = 8192,
     .elems_mem = 8192},
    {"layers.1.attn.wo.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 4, .saved = 1, .decay = 1, .of = 11,
     .dim = {2, 2, 16, 64}, .dims = "g r e d", .off = 0xdc200, .elems = 4096, .elems_mem = 4096},
    {"layers.1.attn.wo.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 4, .saved = 1, .decay = 1, .of = 11,
     .dim = {2, 2, 16, 64}, .dims = "g r e d", .off = 0x12c700, .elems = 4096, .elems_mem = 4096},
    {"layers.1.mlp.gate_up.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 3, .saved = 1, .decay = 1,
     .of = 13, .dim = {64, 2, 96}, .dims = "d p f", .off = 0xe0200, .elems = 12288,
     .elems_mem = 12288},
    {"layers.1.mlp.gate_up.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 3, .saved = 1, .decay = 1,
     .of = 13, .dim = {64, 2, 96}, .dims = "d p f", .off = 0x130700, .elems = 12288,
     .elems_mem = 12288},
    {"layers.1.mlp.down.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 2, .saved = 1, .decay = 1, .of = 14,
     .dim = {96, 64}, .dims = "f d", .off = 0xec200, .elems = 6144, .elems_mem = 6144},
    {"layers.1.mlp.down.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 2, .saved = 1, .decay = 1, .of = 14,
     .dim = {96, 64}, .dims = "f d", .off = 0x13c700, .elems = 6144, .elems_mem = 6144},
    {"layers.1.ln_1.w.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 1, .saved = 1, .decay = 0, .of = 9,
     .dim = {64}, .dims = "d", .off = 0xf2200, .elems = 64, .elems_mem = 64},
    {"layers.1.ln_1.w.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 1, .saved = 1, .decay = 0, .of = 9,
     .dim = {64}, .dims = "d", .off = 0x142700, .elems = 64, .elems_mem = 64},
    {"layers.1.ln_2.w.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 1, .saved = 1, .decay = 0, .of = 12,
     .dim = {64}, .dims = "d", .off = 0xf2300, .elems = 64, .elems_mem = 64},
    {"layers.1.ln_2.w.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 1, .saved = 1, .decay = 0, .of = 12,
     .dim = {64}, .dims = "d", .off = 0x142800, .elems = 64, .elems_mem = 64},
    {"ln_f.w.m", MG_MOMENT, MG_F32, MG_INIT_ZERO, 1, .saved = 1, .decay = 0, .of = 15,
     .dim = {64}, .dims = "d", .off = 0xf2400, .elems = 64, .elems_mem = 64},
    {"ln_f.w.v", MG_MOMENT, MG_F32, MG_INIT_ZERO, 1, .saved = 1, .decay = 0, .of = 15,
     .dim = {64}, .dims = "d", .off = 0x142900, .elems = 64, .elems_mem = 64},
    {"gnorm", MG_METRIC, MG_F32, MG_INIT_ZERO, 0, .saved = 0, .decay = 0, .of = -1, .dim = {0},
     .dims = "", .off = 0x143400, .elems = 1, .elems_mem = 1},
};

static const mg_io io[] = {
    {"tokens", MG_I32, 2, {2, 32}, 0x1aa000},
    {"targets", MG_I32, 2, {2, 32}, 0x1aa100},
    {"logits", MG_F32, 2, {2, 257}, 0x1aa200},
};

static const mg_key key[] = {
    {"name", "str", "tiny", "tiny.lua:11", "compile",
     "name of the model and of its folder in out/",
     ""},
    {"family", "str", "none", "default", "compile",
     "names of tensors on disk",
     "none|gpt2|llama|qwen2"},
    {"batch.micro", "int", "2", "tiny.lua:18", "compile",
     "rows of one micro batch",
     "1..1048576"},
    {"batch.global", "int", "4", "tiny.lua:18", "run",
     "rows of one step; a multiple of batch.micro",
     "1..1073741824"},
    {"batch.seq", "int", "32", "derived", "compile",
     "tokens of a row",
     "1..16777216"},
    {"batch.chunk", "int", "0", "default", "compile",
     "tokens of one chunk of head and loss; 0 = chosen by the size of the logits",
     "0.."},
    {"parallel.dp", "int", "1", "default", "compile",
     "data-parallel replicas",
     "1.."},
    {"parallel.tp", "int", "1", "default", "compile",
     "ranks that share each layer's matrices",
     "1.."},
    {"parallel.cp", "int", "1", "default", "compile",
     "ranks that share a sequence",
     "1.."},
    {"parallel.pp", "int", "1", "default", "compile",
     "pipeline stages",
     "1.."},
    {"parallel.ep", "int", "1", "default", "compile",
     "ranks that share the experts",
     "1.."},
    {"parallel.virtual", "int", "1", "default", "compile",
     "chunks of layers a pipeline stage",
     "1.."},
    {"parallel.zero", "int", "0", "default", "compile",
     "sharding of optimizer state, gradients and weights over dp",
     "0..3"},
    {"parallel.sp", "bool", "false", "default", "compile",
     "sequence parallelism beside tp",
     ""},
    {"precision.compute", "str", "f32", "default", "compile",
     "type of weights and activations",
     "f32|bf16|f64"},
    {"precision.master", "str", "f32", "derived", "compile",
     "type of the optimizer's own weights",
     "f32|f64"},
    {"precision.grads", "str", "f32", "derived", "compile",
     "type gradients are summed in",
     "f32|f64"},
    {"precision.moments", "str", "f32", "derived", "compile",
     "type of the optimizer's moments",
     "f32|f64"},
    {"remat", "str", "none", "default", "compile",
     "activations computed again in the backward pass",
     "none|selective|full"},
    {"fuse", "bool", "true", "default", "compile",
     "merge pointwise and row ops into one kernel; the numbers are the same without",
     ""},
    {"target", "str", "cpu", "default", "compile",
     "machine to write code for",
     "cpu"},
    {"cpu", "str", "avx512", "tiny.lua:17", "compile",
     "feature level of the processor",
     "native|avx512|avx2|generic"},
    {"data.train", "list", "", "default", "run",
     "prefixes of .bin/.idx files; path or path:weight",
     ""},
    {"data.valid", "list", "", "default", "run",
     "the same for evaluation",
     ""},
    {"data.tokenizer", "str", "bytes", "tiny.lua:19", "run",
     "what the ids stand for",
     "bytes"},
    {"data.seed", "int", "1", "default", "run",
     "order of the samples",
     "0.."},
    {"data.eod_mask_loss", "bool", "false", "default", "run",
     "no loss where the input is a document's last token",
     ""},
    {"data.packed", "bool", "false", "default", "compile",
     "attention stays within a document; positions count from the start of the row",
     ""},
    {"train.optimizer", "str", "adamw", "tiny.lua:21", "compile",
     "update rule",
     "adamw|sgd"},
    {"train.beta1", "num", "0.9", "tiny.lua:21", "compile",
     "decay of the first moment",
     "0..<1"},
    {"train.beta2", "num", "0.98", "tiny.lua:21", "compile",
     "decay of the second moment",
     "0..<1"},
    {"train.eps", "num", "1e-08", "default", "compile",
     "added to the root of the second moment",
     "1e-30.."},
    {"train.momentum", "num", "0", "default", "compile",
     "of sgd",
     "0..<1"},
    {"train.lr", "num", "0.001", "tiny.lua:22", "run",
     "largest learning rate",
     "0.."},
    {"train.schedule", "str", "cosine", "tiny.lua:22", "run",
     "course of the learning rate",
     "constant|linear|cosine|inverse_sqrt|wsd"},
    {"train.warmup", "int", "10", "tiny.lua:22", "run",
     "steps from warmup_init to lr",
     "0.."},
    {"train.warmup_init", "num", "0", "default", "run",
     "learning rate at the start of the warm-up",
     "0.."},
    {"train.floor", "num", "0.1", "tiny.lua:22", "run",
     "smallest learning rate, as a share of lr",
     "0..1"},
    {"train.decay", "int", "0", "default", "run",
     "step at which the floor is reached; 0 = steps",
     "0.."},
    {"train.wsd_decay", "int", "0", "default", "run",
     "steps of the decay at the end of wsd; 0 = a fifth of decay",
     "0.."},
    {"train.wsd_shape", "str", "exponential", "default", "run",
     "shape of that decay",
     "linear|cosine|exponential|minus_sqrt"},
    {"train.weight_decay", "num", "0.1", "tiny.lua:21", "run",
     "decay of weights with two or more dims",
     "0.."},
    {"train.weight_decay_end", "num", "-1", "default", "run",
     "decay at the last step; -1 = the same",
     ""},
    {"train.weight_decay_schedule", "str", "constant", "default", "run",
     "course of the decay",
     "constant|linear|cosine"},
    {"train.clip", "num", "1", "tiny.lua:22", "run",
     "largest norm of the gradient; 0 = no clipping",
     "0.."},
    {"train.steps", "int", "100", "tiny.lua:22", "run",
     "updates",
     "0.."},
    {"train.loss_mean", "str", "token", "default", "compile",
     "token: sum over the global batch by its targets; microbatch: mean of means",
     "token|microbatch"},
    {"train.freeze", "list", "", "default", "compile",
     "paths of weights that are not trained; * stands for any part",
     ""},
    {"train.init", "str", "random", "default", "run",
     "random, or ckpt:DIR for weights only",
     ""},
    {"train.seed", "int", "1", "default", "run",
     "initialisation and dropout",
     "0.."},
    {"eval.every", "int", "0", "default", "run",
     "steps between evaluations; 0 = only by the word eval",
     "0.."},
    {"eval.batches", "int", "20", "default", "run",
     "micro batches of one evaluation; 0 = all",
     "0.."},
    {"save.every", "int", "0", "default", "run",
     "steps between checkpoints; 0 = only at the end",
     "0.."},
    {"save.keep", "int", "3", "default", "run",
     "checkpoints that stay",
     "1.."},
    {"save.interval", "time", "0", "default", "run",
     "time between checkpoints; 0 = none",
     ""},
    {"save.shard", "size", "4GiB", "default", "run",
     "largest file of a checkpoint",
     ""},
    {"log.every", "int", "1", "default", "run",
     "steps between lines and metrics",
     "1.."},
    {"sample.every", "int", "0", "default", "run",
     "steps between samples during training; 0 = none",
     "0.."},
    {"sample.prompt", "str", "", "default", "run",
     "what a sample starts with",
     ""},
    {"sample.tokens", "int", "200", "default", "run",
     "length of a sample in tokens",
     "1.."},
    {"sample.temperature", "num", "0.8", "default", "run",
     "0 = always the likeliest token",
     "0.."},
    {"sample.top_k", "int", "0", "default", "run",
     "draw from the k likeliest tokens; 0 = all",
     "0.."},
};

static const mg_fit fit[] = {
    {"remat=selective", 0x1a6000},
    {"remat=full", 0x192000},
    {"batch.micro=1", 0x179000},
    {"batch.micro=1 remat=full", 0x16c000},
    {"precision.compute=bf16", 0x1a1000},
};

static const mg_model model = {
    .abi = MG_ABI,
    .name = "tiny",
    .version = "0.1",
    .hash = "HASH",
    .target = "cpu",
    .cpu = "avx512",
    .arena_bytes = 0x1ab000,
    .region = {
        {PARAMS, 0x51000},
        {GRADS, 0x51000},
        {STATE, 0xa2000},
        {SAVED, 0x41000},
        {SCRATCH, 0x25000},
        {IO, 0x1000},
    },
    .var = var,
    .nvar = 61,
    .io = io,
    .nio = 3,
    .key = key,
    .nkey = 62,
    .fit = fit,
    .nfit = 5,
    .micro = 2,
    .seq = 32,
    .vocab = 257,
    .flops_token = 523872.28125,
    .params = 78208,
    .fwd = fwd,
    .bwd = bwd,
    .upd = upd,
    .eval = eval,
    .logits = logits,
};

__attribute__((visibility("default"))) const mg_model *mg_model_get(void)
{
    return &model;
}
