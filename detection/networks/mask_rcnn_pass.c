/* mask_rcnn_pass.c - Mask R-CNN's forward pass: pyramid, pooled regions, losses of proposals and of
 * the heads of sampled regions, and detections: boxes of proposals, masks in the final boxes.
 *
 *     pyramid -> RPN -> proposals -> samples -> box head
 *                                            -> mask head (samples with objects) */
#include <stdlib.h>
#include <string.h>

#include "inner.h"

enum { MAPS = 4, FINEST = 2 }; /* regions are pooled from P2 ... P5 */

/* ---- pyramid and regions ---- */

static tp_pyramid pyramid_of(tp_tape *T, const tp_mask_rcnn *m, const tp_detection_in *in)
{
    tp_tensor map[TP_BACKBONE_STAGES];
    if (!tp_want_module(T, m, "Mask R-CNN") ||
        !tp__detection_check_images(T, "Mask R-CNN", m->params, in->images))
        return (tp_pyramid){ 0 };
    tp_backbone_forward(T, &m->backbone, in->images, map);
    return tp_fpn_forward(T, &m->fpn, map);
}

static tp_tensor pool(tp_tape *T, const tp_mask_rcnn *m, const tp_pyramid *p, const tp_regions *r,
                      int64_t side)
{
    double *box = tp__detection_alloc(T, 4 * r->n, sizeof *box);
    int32_t *place = tp__detection_alloc(T, 2 * r->n, sizeof *place);
    tp_tensor y = TP_NONE;
    for (int64_t b = 0; box && place && b < r->images; b++)
        for (int64_t i = r->start[b]; i < r->start[b + 1]; i++) {
            const tp_corners a = r->box[i];
            const double x[4] = { a.x1, a.y1, a.x2, a.y2 };
            memcpy(box + 4 * i, x, sizeof x);
            place[2 * i] = (int32_t)b;
            place[2 * i + 1] = tp_region_level(a, m->cfg.canonical, m->cfg.level, FINEST,
                                               FINEST + MAPS - 1, m->cfg.profile) -
                               FINEST;
        }
    if (tp_ok(T)) {
        tp_roi_align_cfg c = { .size = { side, side },
                               .samples = m->cfg.points,
                               .aligned = m->cfg.aligned };
        for (int k = 0; k < MAPS; k++) c.scale[k] = 1.0 / (double)(1 << (FINEST + k));
        y = tp_roi_align(T, MAPS, p->map,
                         tp__detection_constant(T, p->map[0], TP_SHAPE(r->n, 4), box),
                         tp_from(T, TP_I32, TP_SHAPE(r->n, 2), place), c);
        y = tp_transient(T, y); /* pooling again is cheaper than keeping the memory */
    }
    free(box);
    free(place);
    return y;
}

/* The positions of the regions are irrelevant. */
void tp__mask_rcnn_forward(tp_tape *T, const void *module, tp_tensor images)
{
    const tp_mask_rcnn *m = module;
    const int64_t n = m->cfg.rpn.most[1];
    const tp_pyramid p = pyramid_of(T, m, &(tp_detection_in){ .images = images });
    tp_tensor logit, offset;
    tp_regions r;
    tp_rpn_forward(T, &m->rpn, &p);
    if (!tp_ok(T) || !tp__regions_new(T, &r, 1, n)) return;
    r.n = r.start[1] = n;
    tp_box_head_forward(T, &m->box, pool(T, m, &p, &r, m->cfg.box.side), &logit, &offset);
    tp_regions_free(&r);
}

/* ---- losses ---- */

void tp_mask_rcnn_steps_free(tp_mask_rcnn_steps *s)
{
    if (!s) return;
    tp_rpn_targets_free(&s->rpn);
    tp_regions_free(&s->proposals);
    tp_regions_free(&s->sampled);
    *s = (tp_mask_rcnn_steps){ 0 };
}

/* Adds a term; terms come in the order of their names. */
static void add_term(tp_tape *T, tp_detection_losses *l, tp_tensor term)
{
    l->total = l->n ? tp_add(T, l->total, term) : term;
    l->name[l->n] = tp_detector_mask_rcnn.terms[l->n];
    l->term[l->n++] = term;
}

static tp_tensor weighed(tp_tape *T, const tp_detection_in *in, tp_tensor term, double weight)
{
    return in->share.ranks > 1 ? tp_scale(T, term, weight) : term;
}

/* Returns false and fails T if given proposals and batch differ in their number of images. */
static bool check_given(tp_tape *T, const tp_mask_rcnn_steps *s, int64_t B)
{
    if (!s->given || s->proposals.images == B) return true;
    tp_raise(T, TP_E_VALUE, "Mask R-CNN: the given proposals are of %lld images, the batch of %lld",
             (long long)s->proposals.images, (long long)B);
    return false;
}

/* Adds the RPN's losses; finds the proposals. */
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
        tp_box_head_forward(T, &m->box, pool(T, m, &s->pyramid, r, m->cfg.box.side), &logit,
                            &offset);
        tp_box_head_losses(T, &m->box, logit, offset, r->box, target, r->category, loss);
        const double weight = tp__detection_weight(in, (double)r->n);
        add_term(T, l, weighed(T, in, loss[0], weight));
        add_term(T, l, weighed(T, in, loss[1], weight));
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
    tp_tensor x = pool(T, m, &s->pyramid, &r, m->cfg.mask.side);
    x = tp_mask_head_features(T, &m->mask, x);
    x = tp_mask_head_select(T, &m->mask, x, r.category);
    const double weight = tp__detection_weight(in, (double)r.n);
    add_term(T, l, weighed(T, in, tp_mask_head_loss(T, x, target), weight));
    free(target);
    tp_regions_free(&r);
}

tp_detection_losses tp_mask_rcnn_losses(tp_tape *T, const tp_mask_rcnn *m,
                                        const tp_detection_in *in, tp_mask_rcnn_steps *steps)
{
    tp_mask_rcnn_steps own = { 0 }, *s = steps ? steps : &own;
    tp_detection_losses l = { 0 };
    s->pyramid = pyramid_of(T, m, in);
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

/* ---- detections ---- */

/* Selects detections in image b from the box head's outputs for all regions. False: T failed. */
static bool select_image(tp_tape *T, const tp_mask_rcnn_cfg *c, const tp_detection_in *in,
                         const tp_regions *r, const float *logit, const float *offset, int64_t b,
                         tp_detected *out)
{
    const int64_t K = c->box.classes, first = r->start[b], columns = c->box.one_box ? 4 : 4 * K;
    const tp_select_cfg s = { .profile = c->profile,
                              .coder = c->box.coder,
                              .height = in->size[b][0],
                              .width = in->size[b][1],
                              .score = c->score,
                              .overlap = c->overlap,
                              .most = c->most,
                              .one_box = c->box.one_box };
    out->found = tp__detection_alloc(T, c->most, sizeof *out->found);
    const int64_t n = out->found ? tp_select_boxes(&s, r->box + first, logit + first * (K + 1),
                                                   offset + first * columns,
                                                   r->start[b + 1] - first, K, out->found)
                                 : -1;
    if (n < 0) tp_raise(T, TP_E_MEMORY, "Mask R-CNN: no memory to select detections");
    out->n = n < 0 ? 0 : n;
    return n >= 0;
}

static bool find_boxes(tp_tape *T, const tp_mask_rcnn *m, const tp_detection_in *in,
                       const tp_pyramid *p, tp_detected *out)
{
    const tp_rpn_out rpn = tp_rpn_forward(T, &m->rpn, p);
    tp_regions r;
    tp_tensor logit, offset;
    if (!tp_ok(T) || !tp_rpn_propose(T, &m->rpn, &rpn, in->size, false, &r)) return false;
    tp_box_head_forward(T, &m->box, pool(T, m, p, &r, m->cfg.box.side), &logit, &offset);
    float *logits = tp__detection_read(T, logit),
          *offsets = logits ? tp__detection_read(T, offset) : NULL;
    bool done = offsets != NULL;
    for (int64_t b = 0; done && b < r.images; b++)
        done = select_image(T, &m->cfg, in, &r, logits, offsets, b, &out[b]);
    free(logits);
    free(offsets);
    tp_regions_free(&r);
    return done;
}

/* Gathers the detections of all images as regions. */
static bool gather(tp_tape *T, const tp_detected *out, int64_t B, tp_regions *r)
{
    int64_t n = 0;
    for (int64_t b = 0; b < B; b++) n += out[b].n;
    if (!tp__regions_new(T, r, B, n)) return false;
    for (int64_t b = 0; b < B; b++) {
        for (int64_t i = 0; i < out[b].n; i++, r->n++) {
            r->box[r->n] = out[b].found[i].box;
            r->category[r->n] = (int)out[b].found[i].category;
        }
        r->start[b + 1] = r->n;
    }
    return true;
}

static bool find_masks(tp_tape *T, const tp_mask_rcnn *m, const tp_pyramid *p, int64_t B,
                       tp_detected *out)
{
    const int64_t side = 2 * m->cfg.mask.side, pixels = side * side;
    tp_regions r;
    if (!gather(T, out, B, &r)) return false;
    tp_tensor x = pool(T, m, p, &r, m->cfg.mask.side);
    x = tp_mask_head_select(T, &m->mask, tp_mask_head_features(T, &m->mask, x), r.category);
    float *all = tp__detection_read(T, tp_sigmoid(T, x));
    bool done = all != NULL;
    for (int64_t b = 0; done && b < B; b++) {
        out[b].side = side;
        out[b].mask = tp__detection_alloc(T, out[b].n * pixels, sizeof *out[b].mask);
        done = out[b].mask != NULL;
        if (done && out[b].n)
            memcpy(out[b].mask, all + r.start[b] * pixels,
                   (size_t)(out[b].n * pixels) * sizeof *all);
    }
    free(all);
    tp_regions_free(&r);
    return done;
}

bool tp__mask_rcnn_detect(tp_tape *T, const void *module, const tp_detection_in *in,
                          tp_detected *out)
{
    const tp_mask_rcnn *m = module;
    const int64_t B = tp_dim(in->images, 0);
    memset(out, 0, (size_t)B * sizeof *out);
    const bool recorded = tp_record(T, false);
    tp_enter(T, "Mask R-CNN");
    const tp_pyramid p = pyramid_of(T, m, in);
    const bool done = tp_ok(T) && find_boxes(T, m, in, &p, out) && find_masks(T, m, &p, B, out);
    tp_leave_n(T, 0, NULL);
    tp_record(T, recorded);
    for (int64_t b = 0; !done && b < B; b++) tp_detected_free(&out[b]);
    return done;
}
