/* table.c: constant tables that a model is filled with at start (MG_INIT_TABLE).
 *
 * Generated code calls these with the numbers that the spec's layers worked out. They are computed
 * in double and rounded once, so that every machine fills the same bits that its libm gives.
 */
#include "mg.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>

static void put(void *dst, mg_dtype dtype, int64_t i, double v)
{
    switch (dtype) {
    case MG_F64:
        ((double *)dst)[i] = v;
        break;
    case MG_F32:
        ((float *)dst)[i] = (float)v;
        break;
    case MG_I32:
        ((int32_t *)dst)[i] = (int32_t)v;
        break;
    default:
        assert(0 && "tables are f32, f64 or i32");
    }
}

/* dst[s h]: scale * f(position * freq[h]). */
static void waves(void *dst, const int64_t *dim, mg_dtype dtype, double (*f)(double), double scale,
                  va_list freq)
{
    for (int64_t h = 0; h < dim[1]; h++) {
        double w = va_arg(freq, double);
        for (int64_t s = 0; s < dim[0]; s++) {
            put(dst, dtype, s * dim[1] + h, scale * f((double)s * w));
        }
    }
}

void mg_table_cos(void *dst, const int64_t *dim, mg_dtype dtype, double scale, ...)
{
    va_list freq;
    va_start(freq, scale);
    waves(dst, dim, dtype, cos, scale, freq);
    va_end(freq);
}

void mg_table_sin(void *dst, const int64_t *dim, mg_dtype dtype, double scale, ...)
{
    va_list freq;
    va_start(freq, scale);
    waves(dst, dim, dtype, sin, scale, freq);
    va_end(freq);
}

void mg_table_iota(void *dst, const int64_t *dim, mg_dtype dtype)
{
    for (int64_t i = 0; i < dim[0]; i++) {
        put(dst, dtype, i, (double)i);
    }
}
