/* mask_rcnn_detect.c - Mask R-CNN in inference: proposals, boxes of their categories, masks within the final boxes. */
#include <stdlib.h>
#include <string.h>

#include "inner.h"

/* Detections in image b from the outputs of the box head for all regions. False: T has failed. */
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
    tp_box_head_forward(T, &m->box, tp__mask_rcnn_pool(T, m, p, &r, m->cfg.box.side), &logit,
                        &offset);
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

/* The detections of all images as regions. */
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
    tp_tensor x = tp__mask_rcnn_pool(T, m, p, &r, m->cfg.mask.side);
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
    const tp_pyramid p = tp__mask_rcnn_pyramid(T, m, in);
    const bool done = tp_ok(T) && find_boxes(T, m, in, &p, out) && find_masks(T, m, &p, B, out);
    tp_leave_n(T, 0, NULL);
    tp_record(T, recorded);
    for (int64_t b = 0; !done && b < B; b++) tp_detected_free(&out[b]);
    return done;
}
