/* host.c - checks of detectors, and transfers between tape and host: predictions, targets, rows. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "inner.h"

bool tp__refuse(char *why, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (why) vsnprintf(why, size, fmt, ap);
    va_end(ap);
    return false;
}

tp_init tp__init_weights(const char *name, tp_shape s, tp_init dflt, void *env)
{
    (void)name, (void)dflt;
    return s.ndim > 1 ? *(const tp_init *)env : (tp_init){ .kind = TP_INIT_ZERO };
}

bool tp__detection_check_images(tp_tape *T, const char *model, const tp_params *P, tp_tensor images)
{
    if (!tp_params_ok(P))
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(P));
    else if (tp_ok(T) && (tp_ndim(images) != 4 || tp_dim(images, 3) != 3 ||
                          tp_dim(images, 1) % 32 != 0 || tp_dim(images, 2) % 32 != 0))
        tp_raise(T, TP_E_SHAPE,
                 "%s: images must be [batch,height,width,3], height and width multiples of 32",
                 model);
    return tp_ok(T);
}

bool tp__detection_check_objects(tp_tape *T, const char *model, const tp_objects *o, int64_t B,
                                 int64_t classes)
{
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0; i < o[b].n; i++) {
            const int category = o[b].category[i];
            if (category >= 0 && category < classes && tp_corners_exceed(o[b].box[i], 0.0))
                continue;
            tp_raise(T, TP_E_VALUE,
                     "%s: object %lld of image %lld has category %d of %lld, or no area", model,
                     (long long)i, (long long)b, category, (long long)classes);
            return false;
        }
    return true;
}

void *tp__detection_alloc(tp_tape *T, int64_t n, size_t size)
{
    void *p = n < 0 ? NULL : calloc((size_t)n + 1, size);
    if (!p) tp_raise(T, TP_E_MEMORY, "detection: no memory for %lld elements", (long long)n);
    return p;
}

float *tp__detection_read(tp_tape *T, tp_tensor x)
{
    float *host = tp_ok(T) ? tp__detection_alloc(T, tp_numel(x), sizeof *host) : NULL;
    if (host && tp_read(T, tp_cast(T, x, TP_F32), host, (size_t)tp_numel(x) * sizeof *host))
        return host;
    free(host);
    return NULL;
}

tp_tensor tp__detection_precise(tp_tape *T, tp_tensor x)
{
    return tp_dtype_of(x) == TP_BF16 ? tp_cast(T, x, TP_F32) : x;
}

tp_tensor tp__detection_constant(tp_tape *T, tp_tensor like, tp_shape s, const double *x)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    if (tp_dtype_of(like) == TP_F64) return tp_from(T, TP_F64, s, x);
    float *single = tp__detection_alloc(T, n, sizeof *single);
    for (int64_t i = 0; single && i < n; i++) single[i] = (float)x[i];
    const tp_tensor y = single ? tp_from(T, TP_F32, s, single) : TP_NONE;
    free(single);
    return y;
}

tp_tensor tp__detection_box_loss(tp_tape *T, tp_tensor offset, tp_tensor target, double beta)
{
    return tp_smooth_l1(T, offset, target, beta < 1e-5 ? 0.0 : beta, TP_SUM);
}

double tp__detection_total(const tp_detection_in *in, double count)
{
    if (in->share.total) in->share.total(in->share.env, &count);
    return count;
}

double tp__detection_ranks(const tp_detection_in *in)
{
    return in->share.ranks > 1 ? in->share.ranks : 1;
}

double tp__detection_weight(const tp_detection_in *in, double count)
{
    const double all = tp__detection_total(in, count);
    return all > 0 ? count * tp__detection_ranks(in) / all : 0;
}

tp_tensor tp__detection_rows(tp_tape *T, tp_tensor x, int64_t columns, const int64_t *index,
                             int64_t n)
{
    x = tp_reshape(T, x, TP_SHAPE(-1, columns));
    return tp_index_select(T, x, 0, tp_from(T, TP_I64, TP_SHAPE(n), index));
}
