/* clip.c - the common norm of all gradients, and their scaling to a largest norm.
 *
 * Norm and comparison stay on the device: nothing waits. The norm is a scalar of the parameter set,
 * renewed by each call. A failure is the gradients', not the set's: tp_step refuses them. */
#include <stdlib.h>

#include "train/blocks.h"

TP_KERNEL(grad_norm);
TP_KERNEL(grad_clip);
static const tp_block_kernel norm_kernel = { "grad_norm", TP_KERNELS(grad_norm) };
static const tp_block_kernel clip_kernel = { "grad_clip", TP_KERNELS(grad_clip) };

/* The node of the norm, made by the first call; NULL without memory. */
static tp_node *norm_node(tp_params *P)
{
    if (!P->norm_buf) P->norm_buf = tp__buf_new(P->dev, tp_dtype_size(P->dtype));
    if (!P->norm) P->norm = calloc(1, sizeof *P->norm);
    if (!P->norm_buf || !P->norm) return NULL;
    *P->norm = (tp_node){ .gen = P->next_gen++,
                          .params = P,
                          .rec = TP_NO_REC,
                          .live = true,
                          .buffer = true,
                          .view = tp__view(P->dtype, &TP_SCALAR, P->norm_buf->data) };
    return P->norm;
}

tp_tensor tp_clip_grad_norm(tp_params *P, double max)
{
    if (!tp__params_complete(P)) return TP_FAILED;
    tp_segments_attr a = { .number = max };
    a.s.at = malloc((size_t)(P->n + 1) * sizeof *a.s.at);
    for (int i = 0; a.s.at && i < P->n; i++)
        if (tp__in_block(&P->entries[i]) && P->entries[i].node->has_grad)
            tp__segments_add(&a.s, P, &P->entries[i]);
    tp_buf *work = tp__buf_new(P->dev, (size_t)a.s.blocks * sizeof(double));
    tp_node *n = norm_node(P);
    bool ok = a.s.at && work && n;
    tp_err *e = &P->grad_err;
    if (!ok) tp__err(e, TP_E_MEMORY, "tp_clip_grad_norm: out of memory on %s", P->dev->name);
    if (ok) {
        tp_view g = tp__block_view(P, P->grads);
        ok = tp__blocks_run(P, &norm_kernel, &a, 1, &g, 1, &n->view, work->data, e) &&
             (!(max > 0.0) || tp__blocks_run(P, &clip_kernel, &a, 1, &n->view, 1, &g, NULL, e));
    }
    tp__buf_unref(work);
    free(a.s.at);
    return ok ? tp__handle(n) : TP_FAILED;
}
