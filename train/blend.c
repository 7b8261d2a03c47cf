/* blend.c - moves one parameter set towards another of the same parameters, to = to + part (from -
 * to), on the device. Values of both have one layout, because they were declared alike, so one call
 * suffices for all. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/optim.h>

#include "autograd/recorded.h"
#include "train/blocks.h"

TP_KERNEL(ema_step);
static const tp_block_kernel blend_kernel = { .name = "blend", .kernel = TP_KERNELS(ema_step) };

static bool differ(const tp_entry *a, const tp_entry *b)
{
    const tp_view *x = &a->node->view, *y = &b->node->view;
    return strcmp(a->name, b->name) != 0 || x->dtype != y->dtype || !tp__same_shape(x, y) ||
           a->table != b->table || (a->alias_of != NULL) != (b->alias_of != NULL) ||
           a->node->buffer != b->node->buffer;
}

/* False with the refusal of `to` set. */
static bool are_alike(const tp_params *to, const tp_params *from, tp_err *e)
{
    for (int i = 0; i < to->n && i < from->n; i++)
        if (differ(&to->entries[i], &from->entries[i]))
            tp__err(e, TP_E_SHAPE,
                    "tp_params_blend: parameter %d is '%s' of one set and '%s' of the other, or "
                    "they differ in shape or dtype; declare both sets by the same function",
                    i, to->entries[i].name, from->entries[i].name);
    if (to->n != from->n)
        tp__err(e, TP_E_SHAPE,
                "tp_params_blend: one set has %d parameters and the other %d; declare both by the "
                "same function",
                to->n, from->n);
    if (to->dev != from->dev)
        tp__err(e, TP_E_DEVICE, "tp_params_blend: the sets are on different devices");
    return e->code == TP_OK;
}

/* False with the refusal of `to` set. */
static bool may_blend(tp_params *to, tp_params *from, double part)
{
    tp_err *e = &to->refusal;
    if (!tp__params_begin(to)) return false;
    if (!from) {
        tp__err(e, TP_E_STATE, "tp_params_blend: NULL was given in place of a parameter set");
        return false;
    }
    if (tp__in_step(to->dev))
        tp__err(e, TP_E_STATE,
                "tp_params_blend: must not be called between tp_capture_begin and tp_capture_end");
    if (!(part >= 0 && part <= 1))
        tp__err(e, TP_E_VALUE, "tp_params_blend: the part is %g, not from 0 to 1", part);
    if (e->code != TP_OK) return false;
    if (!tp__params_complete(to)) return false;
    if (!tp__params_complete(from)) tp__err(e, from->err.code, "%s", from->err.text);
    return e->code == TP_OK && tp__params_hold_values(to, "tp_params_blend", e) &&
           are_alike(to, from, e);
}

static bool blend_values(tp_params *to, tp_params *from, double part)
{
    tp_segments s = { .at = malloc((size_t)(to->n + 1) * sizeof *s.at) };
    if (!s.at) {
        tp__err(&to->refusal, TP_E_MEMORY, "tp_params_blend: out of host memory");
        return false;
    }
    for (int i = 0; i < to->n; i++)
        if (tp__in_block(&to->entries[i]))
            tp__segments_add(&s, to, &to->entries[i], 0, to->entries[i].node->view.numel);
    const tp_segments_attr a = { s, part };
    const tp_view p = tp__block_view(from, from->values);
    tp_view e = tp__block_view(to, to->values);
    const bool done = tp__blocks_run(to, &blend_kernel, &a, 1, &p, 1, &e, NULL, &to->refusal);
    free(s.at);
    return done;
}

bool tp_params_blend(tp_params *to, tp_params *from, double part)
{
    if (!to || !may_blend(to, from, part)) return false;
    const tp_backend *be = to->dev->be;
    if (part < 1) {
        if (!blend_values(to, from, part)) return false;
    } else if (to->values && to != from) {
        be->copy(to->dev, to->values->data, from->values->data, to->block_bytes);
    }
    for (int i = 0; i < to->n && to != from; i++) {
        const tp_node *n = to->entries[i].node;
        if (n->buffer && !to->entries[i].alias_of)
            be->copy(to->dev, n->view.data, from->entries[i].node->view.data,
                     (size_t)n->view.numel * tp_dtype_size(n->view.dtype));
    }
    tp__params_touch(to);
    return true;
}
