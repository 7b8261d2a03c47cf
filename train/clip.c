/* clip.c - clips gradients by the global norm and by value.
 *
 * Norm and comparison stay on the device, so nothing waits. The norm is a scalar of the parameter
 * set; each call overwrites it. A failure marks the gradients, not the set, and tp_step refuses
 * them. On the CPU, where reading the norm is free, a NaN or infinite norm is such a failure. */
#include <math.h>
#include <stdlib.h>

#include "train/blocks.h"

TP_KERNEL(grad_squares);
TP_KERNEL(grad_root);
TP_KERNEL(grad_clip);
TP_KERNEL(grad_clamp);
static const tp_block_kernel squares_kernel = { .name = "grad_norm",
                                                .kernel = TP_KERNELS(grad_squares) };
static const tp_block_kernel root_kernel = { .name = "grad_norm", .kernel = TP_KERNELS(grad_root) };
static const tp_block_kernel clamp_kernel = { .name = "grad_clamp",
                                              .kernel = TP_KERNELS(grad_clamp) };
static const tp_block_kernel clip_kernel = { .name = "grad_clip", .kernel = TP_KERNELS(grad_clip) };

/* Segments of all gradients, to be freed, or NULL. */
static tp_segment *with_grads(tp_params *P, tp_segments *s)
{
    s->at = malloc((size_t)(P->n + 1) * sizeof *s->at);
    for (int i = 0; s->at && i < P->n; i++)
        if (tp__in_block(&P->entries[i]) && P->entries[i].node->grad_buf)
            tp__segments_add_grad(s, P, &P->entries[i], 0, P->entries[i].node->view.numel);
    return s->at;
}

/* Creates a node for the norm, whose buffer the first call allocates, or NULL. */
static tp_node *norm_node(tp_params *P)
{
    if (!P->norm_buf) P->norm_buf = tp__buf_new(P->dev, tp_dtype_size(P->dtype));
    tp_node *n = P->norm_buf ? tp__param_node(P) : NULL;
    if (!n) return NULL;
    n->buffer = true;
    n->buf = tp__buf_ref(P->norm_buf);
    n->view = tp__view(P->dtype, &TP_SCALAR, P->norm_buf->data);
    tp__param_node_free(P, P->norm); /* the previous call's handle */
    return P->norm = n;
}

/* Index of the first NaN or infinite element, or -1. */
static int64_t first_nonfinite(const tp_view *v)
{
    for (int64_t i = 0; i < v->numel; i++)
        if (!isfinite(tp_ld(v, i))) return i;
    return -1;
}

static void explain(tp_params *P, double norm)
{
    static const char then[] = "tp_step refuses these gradients until tp_grad_clear";
    for (int i = 0; i < P->n; i++) {
        const tp_entry *e = &P->entries[i];
        if (!tp__in_block(e) || !e->node->grad_buf) continue;
        const int64_t at = first_nonfinite(&e->node->grad);
        if (at < 0) continue;
        tp__err(&P->grad_err, TP_E_NONFINITE,
                "tp_clip_grad_norm: element %lld of the gradient of '%.200s' is %s; %s, "
                "check_finite of the tape names the op",
                (long long)at, e->name, isnan(tp_ld(&e->node->grad, at)) ? "NaN" : "infinite",
                then);
        return;
    }
    tp__err(&P->grad_err, TP_E_NONFINITE,
            "tp_clip_grad_norm: the norm is %g, while all gradients are finite; %s", norm, then);
}

/* False only if the norm can be read without waiting and is NaN or infinite. */
static bool finite(tp_params *P, const tp_node *n)
{
    if (P->dev->be->kind != TP_CPU || P->dev->dry || isfinite(tp_ld(&n->view, 0))) return true;
    explain(P, tp_ld(&n->view, 0));
    return false;
}

tp_tensor tp_clip_grad_norm(tp_params *P, double max)
{
    if (!tp__params_complete(P)) return TP_FAILED;
    tp_segments_attr a = { .number = max };
    with_grads(P, &a.s);
    tp_buf *work = tp__buf_new(P->dev, (size_t)a.s.blocks * sizeof(double));
    tp_node *n = norm_node(P);
    bool ok = a.s.at && work && n;
    tp_err *e = &P->grad_err;
    if (!ok) tp__device_error(P->dev, e);
    if (!ok) tp__err(e, TP_E_MEMORY, "tp_clip_grad_norm: out of memory on %s", P->dev->name);
    if (ok) {
        ok = tp__blocks_run(P, &squares_kernel, &a, 0, NULL, 0, NULL, work->data, e) &&
             tp__blocks_run(P, &root_kernel, &a, 0, NULL, 1, &n->view, work->data, e);
        if (ok && finite(P, n) && max > 0.0)
            ok = tp__blocks_run(P, &clip_kernel, &a, 1, &n->view, 0, NULL, NULL, e);
    }
    tp__buf_unref(work);
    free(a.s.at);
    return ok ? tp__handle(n) : TP_FAILED;
}

bool tp_clip_grad_value(tp_params *P, double max)
{
    if (!tp_params_ok(P)) return false;
    tp_err *e = &P->grad_err;
    tp_segments_attr a = { .number = max };
    if (!(max >= 0.0)) {
        tp__err(e, TP_E_VALUE, "tp_clip_grad_value: max must be at least 0, not %g", max);
        return false;
    }
    bool ok = with_grads(P, &a.s) != NULL;
    if (!ok) tp__err(e, TP_E_MEMORY, "tp_clip_grad_value: out of host memory");
    ok = ok && tp__blocks_run(P, &clamp_kernel, &a, 0, NULL, 0, NULL, NULL, e);
    free(a.s.at);
    return ok;
}
