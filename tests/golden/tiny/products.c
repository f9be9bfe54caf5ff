/* products.c: products of matrices, C[M N] (+)= op(A)[M K] op(B)[K N]: constants, then the file.
 *
 * Compiled with contraction (a*b+c may become one fma); rows.c is not.
 */
#include "model.h"

/* attn: matmul [b=2 s=32 d=64] [d=64 g=2 q=4 e=16] -> [b=2 s=32 g=2 q=4 e=16] */
#define matmul attn_qkv_mm
#define ACCUM 0
#define K 64
#define LDA 64
#define LDB 128
#define LDC 128
#define M 64
#define N 128
#define TA 0
#define TA_ float
#define TB 0
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* attn: matmul [b=2 s=32 g=2 r=2 e=16] [g=2 r=2 e=16 d=64] -> [b=2 s=32 d=64] */
#define matmul attn_o_mm
#define ACCUM 0
#define K 64
#define LDA 64
#define LDB 64
#define LDC 64
#define M 64
#define N 64
#define TA 0
#define TA_ float
#define TB 0
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* mlp: matmul [b=2 s=32 d=64] [d=64 p=2 f=96] -> [b=2 s=32 p=2 f=96] */
#define matmul mlp_gate_up_mm
#define ACCUM 0
#define K 64
#define LDA 64
#define LDB 192
#define LDC 192
#define M 64
#define N 192
#define TA 0
#define TA_ float
#define TB 0
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* mlp: matmul [b=2 s=32 f=96] [f=96 d=64] -> [b=2 s=32 d=64] */
#define matmul mlp_down_mm
#define ACCUM 0
#define K 96
#define LDA 96
#define LDB 64
#define LDC 64
#define M 64
#define N 64
#define TA 0
#define TA_ float
#define TB 0
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* head: matmul [n=64 d=64] [v=257 d=64] -> [n=64 v=257] */
#define matmul head_mm
#define ACCUM 0
#define K 64
#define LDA 64
#define LDB 64
#define LDC 320
#define M 64
#define N 320
#define TA 0
#define TA_ float
#define TB 1
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* head: matmul [n=64 v=257] [v=257 d=64] -> [n=64 d=64] */
#define matmul head_dx
#define ACCUM 0
#define K 320
#define LDA 320
#define LDB 64
#define LDC 64
#define M 64
#define N 64
#define TA 0
#define TA_ float
#define TB 0
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* head: matmul [n=64 v=257] [n=64 d=64] -> [v=257 d=64] */
#define matmul head_dw
#define ACCUM 1
#define K 64
#define LDA 320
#define LDB 64
#define LDC 64
#define M 320
#define N 64
#define TA 1
#define TA_ float
#define TB 0
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* mlp: matmul [b=2 s=32 d=64] [f=96 d=64] -> [b=2 s=32 f=96] */
#define matmul mlp_down_dx
#define ACCUM 0
#define K 64
#define LDA 64
#define LDB 64
#define LDC 96
#define M 64
#define N 96
#define TA 0
#define TA_ float
#define TB 1
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* mlp: matmul [b=2 s=32 f=96] [b=2 s=32 d=64] -> [f=96 d=64] */
#define matmul mlp_down_dw
#define ACCUM 1
#define K 64
#define LDA 96
#define LDB 64
#define LDC 64
#define M 96
#define N 64
#define TA 1
#define TA_ float
#define TB 0
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* mlp: matmul [b=2 s=32 p=2 f=96] [d=64 p=2 f=96] -> [b=2 s=32 d=64] */
#define matmul mlp_gate_up_dx
#define ACCUM 0
#define K 192
#define LDA 192
#define LDB 192
#define LDC 64
#define M 64
#define N 64
#define TA 0
#define TA_ float
#define TB 1
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* mlp: matmul [b=2 s=32 d=64] [b=2 s=32 p=2 f=96] -> [d=64 p=2 f=96] */
#define matmul mlp_gate_up_dw
#define ACCUM 1
#define K 64
#define LDA 64
#define LDB 192
#define LDC 192
#define M 64
#define N 192
#define TA 1
#define TA_ float
#define TB 0
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* attn: matmul [b=2 s=32 d=64] [g=2 r=2 e=16 d=64] -> [b=2 s=32 g=2 r=2 e=16] */
#define matmul attn_o_dx
#define ACCUM 0
#define K 64
#define LDA 64
#define LDB 64
#define LDC 64
#define M 64
#define N 64
#define TA 0
#define TA_ float
#define TB 1
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* attn: matmul [b=2 s=32 g=2 r=2 e=16] [b=2 s=32 d=64] -> [g=2 r=2 e=16 d=64] */
#define matmul attn_o_dw
#define ACCUM 1
#define K 64
#define LDA 64
#define LDB 64
#define LDC 64
#define M 64
#define N 64
#define TA 1
#define TA_ float
#define TB 0
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* attn: matmul [b=2 s=32 g=2 q=4 e=16] [d=64 g=2 q=4 e=16] -> [b=2 s=32 d=64] */
#define matmul attn_qkv_dx
#define ACCUM 0
#define K 128
#define LDA 128
#define LDB 128
#define LDC 64
#define M 64
#define N 64
#define TA 0
#define TA_ float
#define TB 1
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* attn: matmul [b=2 s=32 d=64] [b=2 s=32 g=2 q=4 e=16] -> [d=64 g=2 q=4 e=16] */
#define matmul attn_qkv_dw
#define ACCUM 1
#define K 64
#define LDA 64
#define LDB 128
#define LDC 128
#define M 64
#define N 128
#define TA 1
#define TA_ float
#define TB 0
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"

/* head: matmul [b=2 d=64] [v=257 d=64] -> [b=2 v=257] */
#define matmul head_logits_head_mm
#define ACCUM 0
#define K 64
#define LDA 64
#define LDB 64
#define LDC 320
#define M 2
#define N 320
#define TA 0
#define TA_ float
#define TB 1
#define TB_ float
#define TC float
#define TM float
#include "cpu/gemm.h"
