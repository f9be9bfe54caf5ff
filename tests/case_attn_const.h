/* The constants of attn.h for the case ATTN of case_attn.h. */
#define B       ATTN_OF(2)
#define S       ATTN_OF(3)
#define G       ATTN_OF(4)
#define R       ATTN_OF(5)
#define E       ATTN_OF(6)
#define QR      E
#define QG      ((R + 2) * E)
#define QS      (G * QG)
#define QB      (S * QS)
#define KB      QB
#define KS      QS
#define KG      QG
#define VB      QB
#define VS      QS
#define VG      QG
#define OR      E
#define OG      (R * E)
#define OS      (G * OG)
#define OB      (S * OS)
#define LR      1
#define LG      R
#define LS      (G * R)
#define LB      (S * LS)
#define LO      ATTN_OF(10)
#define LOB     S
#define LOS     1
#define SCALE   (0.7 / E)
#define WINDOW  ATTN_OF(7)
#define SOFTCAP ATTN_OF(8)
#define CAUSAL  ATTN_OF(9)
#define T       ATTN_OF(11)
#define TL      ATTN_OF(12)
#define TM      ATTN_OF(12)
