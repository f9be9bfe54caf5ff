/* shapes.h: what bench/kernels.c measures: the matmuls of GPT-2 124M at 256 tokens and of d = 128
 * models, and attention of the same and of longer rows. */
#define CASE (g_qkv_f, 256, 2304, 768, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_qkv_x, 256, 768, 2304, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_qkv_w, 768, 2304, 256, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_proj_f, 256, 768, 768, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_proj_x, 256, 768, 768, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_proj_w, 768, 768, 256, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_fc_f, 256, 3072, 768, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_fc_x, 256, 768, 3072, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_fc_w, 768, 3072, 256, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_fc2_f, 256, 768, 3072, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_fc2_x, 256, 3072, 768, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_fc2_w, 3072, 768, 256, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_head_f, 256, 50257, 768, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_head_x, 256, 768, 50257, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_head_w, 50257, 768, 256, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_chunk_f, 64, 50304, 768, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_chunk_x, 64, 768, 50304, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (g_chunk_w, 50304, 768, 64, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_proj_f, 1024, 128, 128, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_proj_x, 1024, 128, 128, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_proj_w, 128, 128, 1024, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_qkv_f, 1024, 256, 128, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_qkv_x, 1024, 128, 256, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_qkv_w, 128, 256, 1024, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_up_f, 1024, 384, 128, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_up_x, 1024, 128, 384, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_up_w, 128, 384, 1024, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_upgate_f, 1024, 768, 128, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_upgate_x, 1024, 128, 768, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_upgate_w, 128, 768, 1024, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_down_f, 1024, 128, 384, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_down_x, 1024, 384, 128, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d1024_down_w, 384, 128, 1024, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_proj_f, 2048, 128, 128, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_proj_x, 2048, 128, 128, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_proj_w, 128, 128, 2048, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_qkv_f, 2048, 256, 128, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_qkv_x, 2048, 128, 256, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_qkv_w, 128, 256, 2048, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_up_f, 2048, 384, 128, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_up_x, 2048, 128, 384, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_up_w, 128, 384, 2048, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_upgate_f, 2048, 768, 128, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_upgate_x, 2048, 128, 768, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_upgate_w, 128, 768, 2048, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_down_f, 2048, 128, 384, 0, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_down_x, 2048, 384, 128, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d2048_down_w, 384, 128, 2048, 1, 0, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (d_head_f, 1024, 264, 128, 0, 1, 0, float, float, float, float)
#include "case_gemm.h"
#define CASE (f64_512, 512, 512, 512, 0, 0, 0, double, double, double, double)
#include "case_gemm.h"
#define CASE (bf16_512, 512, 512, 512, 0, 0, 0, bf16, bf16, bf16, float)
#include "case_gemm.h"
#define ATTN (at_gpt2, 4, 64, 12, 1, 64, 0, 0.0, 1, 0, float, float)
#include "case_attn.h"
#define ATTN (at_gpt2l, 1, 1024, 12, 1, 64, 0, 0.0, 1, 0, float, float)
#include "case_attn.h"
#define ATTN (at_tiny, 8, 128, 2, 2, 32, 0, 0.0, 1, 0, float, float)
#include "case_attn.h"
#define ATTN (at_llama, 1, 512, 4, 4, 128, 0, 0.0, 1, 0, float, float)
#include "case_attn.h"

static const struct {
    const char *name;
    const gemm_case *gemm;
} shapes[] = {
    {"gpt2 qkv fwd", &g_qkv_f_case},
    {"gpt2 qkv dx", &g_qkv_x_case},
    {"gpt2 qkv dw", &g_qkv_w_case},
    {"gpt2 proj fwd", &g_proj_f_case},
    {"gpt2 proj dx", &g_proj_x_case},
    {"gpt2 proj dw", &g_proj_w_case},
    {"gpt2 fc fwd", &g_fc_f_case},
    {"gpt2 fc dx", &g_fc_x_case},
    {"gpt2 fc dw", &g_fc_w_case},
    {"gpt2 fc2 fwd", &g_fc2_f_case},
    {"gpt2 fc2 dx", &g_fc2_x_case},
    {"gpt2 fc2 dw", &g_fc2_w_case},
    {"gpt2 head fwd", &g_head_f_case},
    {"gpt2 head dx", &g_head_x_case},
    {"gpt2 head dw", &g_head_w_case},
    {"gpt2 chunk fwd", &g_chunk_f_case},
    {"gpt2 chunk dx", &g_chunk_x_case},
    {"gpt2 chunk dw", &g_chunk_w_case},
    {"d128 proj fwd 1024", &d1024_proj_f_case},
    {"d128 proj dx 1024", &d1024_proj_x_case},
    {"d128 proj dw 1024", &d1024_proj_w_case},
    {"d128 qkv fwd 1024", &d1024_qkv_f_case},
    {"d128 qkv dx 1024", &d1024_qkv_x_case},
    {"d128 qkv dw 1024", &d1024_qkv_w_case},
    {"d128 up fwd 1024", &d1024_up_f_case},
    {"d128 up dx 1024", &d1024_up_x_case},
    {"d128 up dw 1024", &d1024_up_w_case},
    {"d128 upgate fwd 1024", &d1024_upgate_f_case},
    {"d128 upgate dx 1024", &d1024_upgate_x_case},
    {"d128 upgate dw 1024", &d1024_upgate_w_case},
    {"d128 down fwd 1024", &d1024_down_f_case},
    {"d128 down dx 1024", &d1024_down_x_case},
    {"d128 down dw 1024", &d1024_down_w_case},
    {"d128 proj fwd 2048", &d2048_proj_f_case},
    {"d128 proj dx 2048", &d2048_proj_x_case},
    {"d128 proj dw 2048", &d2048_proj_w_case},
    {"d128 qkv fwd 2048", &d2048_qkv_f_case},
    {"d128 qkv dx 2048", &d2048_qkv_x_case},
    {"d128 qkv dw 2048", &d2048_qkv_w_case},
    {"d128 up fwd 2048", &d2048_up_f_case},
    {"d128 up dx 2048", &d2048_up_x_case},
    {"d128 up dw 2048", &d2048_up_w_case},
    {"d128 upgate fwd 2048", &d2048_upgate_f_case},
    {"d128 upgate dx 2048", &d2048_upgate_x_case},
    {"d128 upgate dw 2048", &d2048_upgate_w_case},
    {"d128 down fwd 2048", &d2048_down_f_case},
    {"d128 down dx 2048", &d2048_down_x_case},
    {"d128 down dw 2048", &d2048_down_w_case},
    {"d128 head fwd 1024", &d_head_f_case},
    {"f64 512", &f64_512_case},
    {"bf16 512", &bf16_512_case},
};

static const struct {
    const char *name;
    const attn_case *attn;
} rows[] = {
    {"gpt2 attention 64", &at_gpt2_case},
    {"gpt2 attention 1024", &at_gpt2l_case},
    {"tiny attention 128", &at_tiny_case},
    {"llama attention 512", &at_llama_case},
};
