/* clip.c - clips gradients by the global norm and by value.
 *
 * Norm and comparison stay on the device, so nothing waits. The norm is a scalar of the parameter
 * set; each call overwrites it. A failure marks the gradients, not the set, and tp_step refuses
 * them. On the CPU, where reading the norm is free, a NaN or infinite norm is such a failure. */
#include <math.h>
#include <stdlib.h>

#include "autograd/recorded.h"
#include "train/peers/exchange.h"
#include "train/peers/shards.h"

#define REFUSED "tp_step refuses these gradients until tp_grad_clear"

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

static bool has_grad(const tp_entry *e)
{
    return tp__in_block(e) && e->node->grad_buf;
}

/* Is the cut this process's, and has its parameter a gradient? */
static bool is_own(const tp_params *P, const tp_cut *t)
{
    return t->owner == tp_peers_rank(tp__exchange_peers(P)) && has_grad(&P->entries[t->entry]);
}

/* Segments of all gradients, or of this process's stretches of them; to be freed, or NULL. */
static tp_segment *with_grads(tp_params *P, tp_segments *s)
{
    const tp_cuts *c = tp__exchange_shards(P);
    s->at = malloc((size_t)((c ? c->n : P->n) + 1) * sizeof *s->at);
    for (int i = 0; s->at && c && i < c->n; i++)
        if (is_own(P, &c->at[i]))
            tp__segments_add_grad(s, P, &P->entries[c->at[i].entry], c->at[i].first,
                                  c->at[i].numel);
    for (int i = 0; s->at && !c && i < P->n; i++)
        if (has_grad(&P->entries[i]))
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

/* Names the first NaN or infinite one of numel elements. False: there is none. */
static bool explain_part(tp_params *P, const tp_entry *e, int64_t first, int64_t numel)
{
    int64_t at = first;
    while (at < first + numel && isfinite(tp_ld(&e->node->grad, at))) at++;
    if (at == first + numel) return false;
    tp__err(&P->grad_err, TP_E_NONFINITE,
            "tp_clip_grad_norm: element %lld of the gradient of '%.200s' is %s; " REFUSED ", "
            "check_finite of the tape names the op",
            (long long)at, e->name, isnan(tp_ld(&e->node->grad, at)) ? "NaN" : "infinite");
    return true;
}

static void explain(tp_params *P, double norm)
{
    const tp_cuts *c = tp__exchange_shards(P);
    bool found = false;
    for (int i = 0; c && !found && i < c->n; i++)
        found = is_own(P, &c->at[i]) &&
                explain_part(P, &P->entries[c->at[i].entry], c->at[i].first, c->at[i].numel);
    for (int i = 0; !c && !found && i < P->n; i++)
        found = has_grad(&P->entries[i]) &&
                explain_part(P, &P->entries[i], 0, P->entries[i].node->view.numel);
    if (!found)
        tp__err(&P->grad_err, TP_E_NONFINITE,
                "tp_clip_grad_norm: the norm is %g, while all gradients%s are finite; " REFUSED,
                norm, c ? " that this process sums" : "");
}

/* False only if the norm can be read without waiting and is NaN or infinite. */
static bool finite(tp_params *P, const tp_node *n)
{
    if (P->dev->be->kind != TP_CPU || P->dev->dry || isfinite(tp_ld(&n->view, 0))) return true;
    explain(P, tp_ld(&n->view, 0));
    return false;
}

static bool no_memory(const tp_params *P, tp_err *e)
{
    tp__device_error(P->dev, e);
    tp__err(e, TP_E_MEMORY, "tp_clip_grad_norm: out of memory on %s", P->dev->name);
    return false;
}

/* Replaces this process's sums of squares by those of all, in the order in which one process has
 * them. Where computing them has failed, the others get NaN instead of waiting. */
static bool gather(tp_params *P, const tp_cuts *c, bool computed, tp_segments *s, tp_buf **work,
                   tp_err *e)
{
    tp_device *D = P->dev;
    double *mine = malloc(((size_t)s->blocks + 1) * sizeof *mine);
    if (!mine) return no_memory(P, e);
    for (int64_t i = 0; !computed && i < s->blocks; i++) mine[i] = (double)NAN;
    if (computed) D->be->download(D, mine, (*work)->data, (size_t)s->blocks * sizeof *mine);
    double *all = tp__shards_squares(tp__exchange_peers(P), c, P, mine, &s->blocks, e);
    const size_t bytes = (size_t)s->blocks * sizeof *all;
    free(mine);
    tp__buf_unref(*work);
    *work = all ? tp__buf_new(D, bytes) : NULL;
    if (*work) D->be->upload(D, (*work)->data, all, bytes);
    if (all && !*work) no_memory(P, e);
    free(all);
    return computed && *work;
}

/* Computes the norm. */
static bool measure(tp_params *P, const tp_segments_attr *a, tp_node *n, tp_err *e)
{
    const tp_cuts *c = P->dev->dry ? NULL : tp__exchange_shards(P);
    tp_buf *work = tp__buf_new(P->dev, (size_t)a->s.blocks * sizeof(double));
    tp_segments_attr all = *a;
    bool ok = work && n ? tp__blocks_run(P, &squares_kernel, a, 0, NULL, 0, NULL, work->data, e)
                        : no_memory(P, e);
    if (c) ok = gather(P, c, ok, &all.s, &work, e);
    ok = ok && tp__blocks_run(P, &root_kernel, &all, 0, NULL, 1, &n->view, work->data, e);
    tp__buf_unref(work);
    return ok;
}

/* A step of tp_capture does not contain the sums of several processes' gradients. */
static bool before_sums(const tp_params *P, const char *what, tp_err *e)
{
    if (!P->exchange || !tp__in_step(P->dev)) return false;
    tp__err(e, TP_E_STATE,
            "%s: must be called after tp_capture_end where processes exchange gradients; " REFUSED,
            what);
    return true;
}

tp_tensor tp_clip_grad_norm(tp_params *P, double max)
{
    if (!tp__params_complete(P)) return TP_FAILED;
    tp_segments_attr a = { .number = max };
    tp_err *e = &P->grad_err;
    if (before_sums(P, "tp_clip_grad_norm", e)) return TP_FAILED;
    tp_node *n = norm_node(P);
    bool ok = with_grads(P, &a.s) ? measure(P, &a, n, e) : no_memory(P, e);
    if (ok && finite(P, n) && max > 0.0)
        ok = tp__blocks_run(P, &clip_kernel, &a, 1, &n->view, 0, NULL, NULL, e);
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
    if (before_sums(P, "tp_clip_grad_value", e)) return false;
    bool ok = with_grads(P, &a.s) != NULL;
    if (!ok) tp__err(e, TP_E_MEMORY, "tp_clip_grad_value: out of host memory");
    ok = ok && tp__blocks_run(P, &clamp_kernel, &a, 0, NULL, 0, NULL, NULL, e);
    free(a.s.at);
    return ok;
}
