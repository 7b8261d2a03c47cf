/* mask_rcnn_loss.c - the losses of Mask R-CNN: of the proposals, and of the heads of sampled regions. */
#include <stdlib.h>

#include "inner.h"

void tp_mask_rcnn_steps_free(tp_mask_rcnn_steps *s)
{
    if (!s) return;
    tp_rpn_targets_free(&s->rpn);
    tp_regions_free(&s->proposals);
    tp_regions_free(&s->sampled);
    *s = (tp_mask_rcnn_steps){ 0 };
}

/* Terms are added in the order of their names. */
static void add_term(tp_tape *T, tp_detection_losses *l, tp_tensor term)
{
    l->total = l->n ? tp_add(T, l->total, term) : term;
    l->name[l->n] = tp_detector_mask_rcnn.terms[l->n];
    l->term[l->n++] = term;
}

/* False, with T failed, if given proposals are not of as many images as the batch. */
static bool check_given(tp_tape *T, const tp_mask_rcnn_steps *s, int64_t B)
{
    if (!s->given || s->proposals.images == B) return true;
    tp_raise(T, TP_E_VALUE, "Mask R-CNN: the given proposals are of %lld images, the batch of %lld",
             (long long)s->proposals.images, (long long)B);
    return false;
}

/* Of the RPN; finds the proposals, too. */
static bool rpn_losses(tp_tape *T, const tp_mask_rcnn *m, const tp_detection_in *in,
                       tp_mask_rcnn_steps *s, tp_detection_losses *l)
{
    tp_tensor loss[2];
    const tp_rpn_out out = tp_rpn_forward(T, &m->rpn, &s->pyramid);
    if (!tp_ok(T) || !tp_rpn_match(T, &m->rpn, &out, in, &s->rpn)) return false;
    tp_rpn_losses(T, &m->rpn, &out, in, &s->rpn, loss);
    add_term(T, l, loss[0]);
    add_term(T, l, loss[1]);
    return s->given || tp_rpn_propose(T, &m->rpn, &out, in->size, true, &s->proposals);
}

static bool box_losses(tp_tape *T, const tp_mask_rcnn *m, const tp_detection_in *in,
                       const tp_mask_rcnn_steps *s, tp_detection_losses *l)
{
    const tp_regions *r = &s->sampled;
    tp_tensor logit, offset, loss[2] = { TP_NONE, TP_NONE };
    tp_corners *target = tp__detection_alloc(T, r->n, sizeof *target);
    for (int64_t b = 0; target && b < r->images; b++)
        for (int64_t i = r->start[b]; i < r->start[b + 1]; i++)
            if (r->object[i] >= 0) target[i] = in->objects[b].box[r->object[i]];
    if (target) {
        tp_box_head_forward(T, &m->box, tp__mask_rcnn_pool(T, m, &s->pyramid, r, m->cfg.box.side),
                            &logit, &offset);
        tp_box_head_losses(T, &m->box, logit, offset, r->box, target, r->category, loss);
        add_term(T, l, loss[0]);
        add_term(T, l, loss[1]);
    }
    free(target);
    return tp_ok(T);
}

static void mask_losses(tp_tape *T, const tp_mask_rcnn *m, const tp_detection_in *in,
                        const tp_mask_rcnn_steps *s, tp_detection_losses *l)
{
    tp_regions r;
    uint8_t *target;
    if (!tp__mask_targets(T, &m->cfg, in, &s->sampled, &r, &target)) return;
    tp_tensor x = tp__mask_rcnn_pool(T, m, &s->pyramid, &r, m->cfg.mask.side);
    x = tp_mask_head_features(T, &m->mask, x);
    x = tp_mask_head_select(T, &m->mask, x, r.category);
    add_term(T, l, tp_mask_head_loss(T, x, target));
    free(target);
    tp_regions_free(&r);
}

tp_detection_losses tp_mask_rcnn_losses(tp_tape *T, const tp_mask_rcnn *m,
                                        const tp_detection_in *in, tp_mask_rcnn_steps *steps)
{
    tp_mask_rcnn_steps own = { 0 }, *s = steps ? steps : &own;
    tp_detection_losses l = { 0 };
    s->pyramid = tp__mask_rcnn_pyramid(T, m, in);
    if (tp_ok(T) &&
        tp__detection_check_objects(T, "Mask R-CNN", in->objects, tp_dim(in->images, 0),
                                    m->cfg.box.classes) &&
        check_given(T, s, tp_dim(in->images, 0)) && rpn_losses(T, m, in, s, &l) &&
        tp__regions_sample(T, &m->cfg, in, &s->proposals, &s->sampled) &&
        box_losses(T, m, in, s, &l))
        mask_losses(T, m, in, s, &l);
    if (!steps) tp_mask_rcnn_steps_free(&own);
    return tp_ok(T) ? l : (tp_detection_losses){ 0 };
}
