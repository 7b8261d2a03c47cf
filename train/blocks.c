/* blocks.c - state laid out like a parameter set's values, and kernels over it. */
#include "train/blocks.h"

void tp__device_error(const tp_device *D, tp_err *e)
{
    if (D->err.code != TP_OK) tp__err(e, D->err.code, "%s", D->err.text);
}

tp_buf *tp__block_new(const tp_params *P, size_t bytes, const char *what, tp_err *e)
{
    tp_buf *b = tp__buf_new(P->dev, bytes);
    if (b) {
        P->dev->be->zero(P->dev, b->data, bytes);
        return b;
    }
    char text[512] = "";
    tp__device_error(P->dev, e);
    tp__heap_text(P->dev, bytes, text, sizeof text);
    tp__err(e, TP_E_MEMORY, "%s: out of memory on %s: %s", what, P->dev->name, text);
    return NULL;
}

tp_view tp__block_view(const tp_params *P, const tp_buf *b)
{
    const int64_t n = (int64_t)(P->block_bytes / tp_dtype_size(P->dtype));
    return tp__view(P->dtype, &TP_SHAPE(n), b ? b->data : NULL);
}

tp_view tp__block_part(const tp_buf *b, const tp_entry *e)
{
    tp_view v = e->node->view;
    v.data = b->data ? (char *)b->data + e->at : NULL;
    return v;
}

tp_segment *tp__segments_add(tp_segments *s, const tp_params *P, const tp_entry *e, int64_t first,
                             int64_t numel)
{
    if (numel == 0) return NULL;
    tp_segment *g = &s->at[s->n++];
    *g = (tp_segment){ .at = (int64_t)(e->at / tp_dtype_size(P->dtype)) + first,
                       .numel = numel,
                       .block = s->blocks };
    s->blocks += tp__blocks_of(numel);
    return g;
}

tp_segment *tp__segments_add_grad(tp_segments *s, const tp_params *P, const tp_entry *e,
                                  int64_t first, int64_t numel)
{
    tp_segment *g = tp__segments_add(s, P, e, first, numel);
    if (g) g->grad = (char *)e->node->grad.data + (size_t)first * tp_dtype_size(P->dtype);
    return g;
}

bool tp__blocks_run(const tp_params *P, const tp_block_kernel *op, const void *attr, int nx,
                    const tp_view *x, int ny, tp_view *y, void *work, tp_err *e)
{
    char why[TP_WHY] = "";
    const tp_kernel k = op->kernel[P->dev->be->kind];
    const tp_work size = op->work[P->dev->be->kind];
    tp_call c = { .dev = P->dev,
                  .attr = attr,
                  .nx = nx,
                  .ny = ny,
                  .real = P->dtype,
                  .x = x,
                  .y = y,
                  .work = work,
                  .why = why };
    tp_buf *own = NULL;
    if (size) {
        own = tp__block_new(P, size(&c), op->name, e);
        if (!own) return false;
        c.work = own->data;
    }
    tp__op_begins(P->dev);
    tp_code code = !k ? TP_E_NOKERNEL : P->dev->dry ? TP_OK : tp__call(k, &c);
    if (code == TP_OK) code = tp__op_ends(P->dev, op->name, false);
    tp__buf_unref(own);
    if (code == TP_OK && P->dev->err.code != TP_OK) {
        tp__device_error(P->dev, e);
        return false;
    }
    if (code != TP_OK) tp__err(e, code, "%s on %s", *why ? why : tp_code_text(code), P->dev->name);
    return code == TP_OK;
}

void tp__block_slots(tp_slots *S, const tp_params *P, const char *prefix, const tp_buf *b)
{
    for (int i = 0; i < P->n; i++) {
        const tp_entry *e = &P->entries[i];
        if (!tp__in_block(e)) continue;
        const tp_view v = tp__block_part(b, e);
        tp__slots_add(S, P->dev, prefix, e->name, &v, -1);
    }
}
