/* unit_move.c: kernels/cpu/move.h in its three forms: a strided copy, a dense write, an
 * accumulation.
 *
 * Sources are windows (a transpose, a slice) of larger arrays; what lies around a result must stay
 * as it is. The accumulation overwrites with beta 0 whatever was there, NaN included.
 */
#include <math.h>
#include <stdio.h>

#include "mg.h"

/* copy: y[3 5 7] = x[5 3 7..9] seen as [3 5 7]; y stands in rows of 8. */
#define move  copy_window
#define TX    float
#define TY    float
#define WIDEN 0
#define ADDS  0
#define BETA  0
#define N0    1
#define N1    1
#define N2    1
#define N3    1
#define N4    1
#define N5    3
#define N6    5
#define N7    7
#define X0    0
#define X1    0
#define X2    0
#define X3    0
#define X4    0
#define X5    9
#define X6    27
#define X7    1
#define Y0    0
#define Y1    0
#define Y2    0
#define Y3    0
#define Y4    0
#define Y5    40
#define Y6    8
#define Y7    1
#include "move.h"

/* copy of integers along a stride, one row: y[11] = x[0 3 6 ...]. */
#define move  copy_ints
#define TX    int32_t
#define TY    int32_t
#define WIDEN 0
#define ADDS  0
#define BETA  0
#define N0    1
#define N1    1
#define N2    1
#define N3    1
#define N4    1
#define N5    1
#define N6    1
#define N7    11
#define X0    0
#define X1    0
#define X2    0
#define X3    0
#define X4    0
#define X5    0
#define X6    0
#define X7    3
#define Y0    0
#define Y1    0
#define Y2    0
#define Y3    0
#define Y4    0
#define Y5    0
#define Y6    0
#define Y7    1
#include "move.h"

/* accum: 41 rows of 2, the columns of a [2 41] array: more rows than parts. */
#define move  add_columns
#define TX    float
#define TY    float
#define WIDEN 0
#define ADDS  1
#define BETA  1
#define N0    1
#define N1    1
#define N2    1
#define N3    1
#define N4    1
#define N5    1
#define N6    41
#define N7    2
#define X0    0
#define X1    0
#define X2    0
#define X3    0
#define X4    0
#define X5    0
#define X6    1
#define X7    41
#define Y0    0
#define Y1    0
#define Y2    0
#define Y3    0
#define Y4    0
#define Y5    0
#define Y6    2
#define Y7    1
#include "move.h"

/* accum: bf16 into f32. */
#define move  add_bf16
#define TX    bf16
#define TY    float
#define WIDEN 1
#define ADDS  1
#define BETA  1
#define N0    1
#define N1    1
#define N2    1
#define N3    1
#define N4    1
#define N5    1
#define N6    1
#define N7    5
#define X0    0
#define X1    0
#define X2    0
#define X3    0
#define X4    0
#define X5    0
#define X6    0
#define X7    1
#define Y0    0
#define Y1    0
#define Y2    0
#define Y3    0
#define Y4    0
#define Y5    0
#define Y6    0
#define Y7    1
#include "move.h"

static int failed;

static void check(int ok, const char *what, int at)
{
    if (!ok && failed++ < 20)
        printf("%s: element %d\n", what, at);
}

static void check_copy(mg_ctx *c)
{
    float x[5 * 3 * 9], y[3 * 5 * 8];
    for (int i = 0; i < 5 * 3 * 9; i++)
        x[i] = (float)i;
    for (int i = 0; i < 3 * 5 * 8; i++)
        y[i] = -1;
    copy_window(c, y, x);
    for (int i = 0; i < 3 * 5 * 8; i++) {
        int a = i / 40, b = i / 8 % 5, e = i % 8;
        check(y[i] == (e == 7 ? -1.0f : (float)(b * 27 + a * 9 + e)), "copy of a window", i);
    }
    int32_t ids[33], to[12] = {0};
    for (int i = 0; i < 33; i++)
        ids[i] = 100 + i;
    copy_ints(c, to, ids);
    for (int i = 0; i < 12; i++)
        check(to[i] == (i == 11 ? 0 : 100 + 3 * i), "copy of integers", i);
}

static void check_accum(mg_ctx *c)
{
    float x[2 * 41], y[41 * 2 + 1];
    for (int i = 0; i < 2 * 41; i++)
        x[i] = (float)i;
    for (int i = 0; i < 41 * 2 + 1; i++)
        y[i] = NAN;
    add_columns(c, y, x, 0);
    add_columns(c, y, x, 1);
    for (int i = 0; i < 41 * 2; i++)
        check(y[i] == 2 * (float)(i % 2 * 41 + i / 2), "accumulation of columns", i);
    check(isnan(y[82]), "behind the result", 82);

    const bf16 half[5] = {0x3f80, 0xc000, 0x3e80, 0x0000, 0x7f80}; /* 1 -2 0.25 0 inf */
    const float want[5] = {2, -4, 0.5f, 0, INFINITY};
    float sum[5] = {NAN, NAN, NAN, NAN, NAN};
    add_bf16(c, sum, half, 0);
    add_bf16(c, sum, half, 1);
    for (int i = 0; i < 5; i++)
        check(sum[i] == want[i], "accumulation of bf16", i);
}

int main(void)
{
    mg_ctx c = {0};
    check_copy(&c);
    check_accum(&c);
    printf("%d elements are wrong\n", failed);
    return failed != 0;
}
