/* support_weigh.c - gradients on demand. */
#include "support_weigh.h"

#include <stdlib.h>
#include <tapegrad/op.h>

static tp_code weigh_shape(tp_infer *q)
{
    for (int i = 0; i < q->nx; i += 2)
        if (q->x[i].numel != q->x[i + 1].numel)
            return tp_fail(q, TP_E_SHAPE, "tensors and weights must have equal sizes");
    q->y[0] = (tp_view){ .dtype = q->x[0].dtype };
    return TP_OK;
}

static tp_code weigh_forward(const tp_call *c)
{
    double sum = 0.0;
    for (int i = 0; i < c->nx; i += 2)
        for (int64_t k = 0; k < c->x[i].numel; k++)
            sum += tp_ld(&c->x[i], k) * tp_ld(&c->x[i + 1], k);
    tp_st(&c->y[0], 0, sum);
    return TP_OK;
}

static tp_code weigh_backward(const tp_call *c)
{
    for (int i = 0; i < c->nx; i += 2)
        for (int64_t k = 0; c->dx[i].data && k < c->x[i].numel; k++)
            tp_st(&c->dx[i], k, tp_ld(&c->dy[0], 0) * tp_ld(&c->x[i + 1], k));
    return TP_OK;
}

static const tp_op weigh = {
    .name = "weigh",
    .doc = "sum of tensors times weights",
    .nx = -1,
    .ny = 1,
    .saves = TP_SAVE_X(1) | TP_SAVE_X(3) | TP_SAVE_X(5) | TP_SAVE_X(7) | TP_SAVE_X(9),
    .shape = weigh_shape,
    .forward = { [TP_CPU] = weigh_forward },
    .backward = { [TP_CPU] = weigh_backward },
};

void give_grads(tp_tape *T, int n, const tp_tensor *p, double *const *g)
{
    tp_tensor x[TP_MAX_INPUTS];
    tp_reset(T);
    for (int i = 0; i < n; i++) {
        const tp_view v = { .dtype = tp_dtype_of(p[i]), .numel = tp_numel(p[i]) };
        tp_view w = v;
        w.data = malloc((size_t)v.numel * sizeof(double) + 1);
        for (int64_t k = 0; k < v.numel; k++) tp_st(&w, k, g[i][k]);
        x[2 * i] = p[i];
        x[2 * i + 1] = tp_from(T, v.dtype, tp_shape_of(p[i]), w.data);
        free(w.data);
    }
    tp_backward(T, tp_apply_n(T, &weigh, NULL, 2 * n, x, 1, NULL));
}
