/* kernels.c: instances of kernel files that are no products: constants, then the file.
 *
 * Compiled with contraction (a*b+c may become one fma); rows.c is not.
 */
#include "model.h"

/* embed: embed [b=2 s=32] [v=257 d=64] -> [b=2 s=32 d=64] */
#define embed embed
#define D 64
#define LD 64
#define ROWS 64
#define T float
#define V 320
#include "cpu/embed.h"

/* attn: attention [b=2 s=32 g=2 r=2 e=16] [b=2 s=32 g=2 e=16] [b=2 s=32 g=2 e=16] ->
 *  [b=2 s=32 g=2 r=2 e=16] [b=2 s=32 g=2 r=2] */
#define attention attention
#define B 2
#define CAUSAL 1
#define E 16
#define G 2
#define KB 3072
#define KG 48
#define KS 96
#define LB 128
#define LG 2
#define LO 0
#define LOB 0
#define LOS 0
#define LR 1
#define LS 4
#define OB 2048
#define OG 32
#define OR 16
#define OS 64
#define QB 3072
#define QG 48
#define QR 16
#define QS 96
#define R 2
#define S 32
#define SCALE 0x1p-2
#define SOFTCAP 0x0p+0
#define T float
#define TL float
#define TM float
#define VB 4096
#define VG 64
#define VS 128
#define WINDOW 0
#include "cpu/attn.h"

/* attn: attention_bwd [b=2 s=32 g=2 r=2 e=16] [b=2 s=32 g=2 e=16] [b=2 s=32 g=2 e=16]
 *  [b=2 s=32 g=2 r=2 e=16] [b=2 s=32 g=2 r=2] [b=2 s=32 g=2 r=2 e=16] ->
 *  [b=2 s=32 g=2 r=2 e=16] [b=2 s=32 g=2 e=16] [b=2 s=32 g=2 e=16] */
#define attention_bwd attention_bwd
#define B 2
#define CAUSAL 1
#define CB 2048
#define CG 32
#define CR 16
#define CS 64
#define E 16
#define G 2
#define KB 3072
#define KG 48
#define KS 96
#define LB 128
#define LG 2
#define LO 0
#define LOB 0
#define LOS 0
#define LR 1
#define LS 4
#define OB 2048
#define OG 32
#define OR 16
#define OS 64
#define QB 3072
#define QG 48
#define QR 16
#define QS 96
#define R 2
#define S 32
#define SCALE 0x1p-2
#define SOFTCAP 0x0p+0
#define T float
#define TL float
#define TM float
#define VB 4096
#define VG 64
#define VS 128
#define WINDOW 0
#define XB 3072
#define XG 48
#define XR 16
#define XS 96
#define YB 3072
#define YG 48
#define YS 96
#define ZB 4096
#define ZG 64
#define ZS 128
#include "cpu/attn.h"

/* embed: embed_bwd [b=2 s=32] [b=2 s=32 d=64] -> [v=257 d=64] */
#define embed_bwd embed_dw
#define ACCUM 1
#define D 64
#define LD 64
#define ROWS 64
#define T float
#define TM float
#define TW float
#define V 320
#include "cpu/embed.h"

/* at_pos [b=2 s=32 d=64] -> [b=2 d=64] */
#define at_pos at_pos
#define B 2
#define D 64
#define S 32
#define T float
#include "cpu/at_pos.h"
