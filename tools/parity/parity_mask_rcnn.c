/* parity_mask_rcnn.c - cases of whole Mask R-CNN: losses, all gradients, intermediate results, detections, masks. */
#include <string.h>

#include "parity_rcnn.h"

/* ---- the model ---- */

static void read_rpn(parity *p, tp_rpn_cfg *c)
{
    par_anchor_cfg(p, false, &c->anchors);
    par_matcher_of(p, "rpn_thresholds", "rpn_labels", "rpn_allow_low_quality", &c->matcher);
    c->coder = par_coder_of(p, "box_weights_rpn");
    c->samples = par_size(p, "rpn_batch", 256);
    c->positive = par_share(p, "positive_fraction_rpn");
    c->beta = par_num(p, "smooth_l1_beta", 0.0);
    c->candidates[0] = par_size(p, "pre_nms_topk_train", 2000);
    c->candidates[1] = par_size(p, "pre_nms_topk_test", 1000);
    c->most[0] = par_size(p, "post_nms_topk_train", 1000);
    c->most[1] = par_size(p, "post_nms_topk_test", 1000);
    c->overlap = par_share(p, "rpn_nms_thresh");
    c->side = par_num(p, "min_box_size", 0.0);
}

static void read_heads(parity *p, tp_mask_rcnn_cfg *c)
{
    const int64_t width = par_size(p, "fc_dim", 1024);
    c->box.side = par_size(p, "box_pool_size", 7);
    c->box.layers = (int)par_int(p, "num_fc", 2, 1, TP_BOX_HEAD_LAYERS);
    for (int i = 0; i < c->box.layers; i++) c->box.hidden[i] = width;
    c->box.one_box = par_flag(p, "cls_agnostic", false);
    c->box.beta = c->rpn.beta;
    c->box.coder = par_coder_of(p, "box_weights_roi");
    c->mask.side = par_size(p, "mask_pool_size", 14);
    c->mask.layers = (int)par_int(p, "num_mask_conv", 4, 0, TP_MASK_HEAD_LAYERS);
    c->mask.dim = par_size(p, "mask_conv_dim", 256);
    par_same(p, "mask_size", 2 * c->mask.side);
}

static bool read_model(parity *p, tp_mask_rcnn_cfg *c)
{
    tp_backbone_cfg backbone;
    char why[300];
    if (!par_backbone(p, &backbone)) return false;
    *c = tp_mask_rcnn_config(backbone, TP_DETECTRON2);
    read_rpn(p, &c->rpn);
    read_heads(p, c);
    tp_mask_rcnn_sizes(c, par_size(p, "fpn_channels", 256), par_size(p, "num_classes", PAR_NEEDED));
    c->average = par_fpn_average(p);
    if (par_fpn_top(p) != TP_FPN_SUBSAMPLE) par_fail(p, "metadata top_block_type: not maxpool");
    par_matcher_of(p, "roi_thresholds", "roi_labels", "roi_allow_low_quality", &c->matcher);
    c->samples = par_size(p, "roi_batch", 512);
    c->positive = par_share(p, "positive_fraction_roi");
    c->append = par_flag(p, "append_gt", true);
    c->canonical = par_num(p, "canonical_box_size", 224.0);
    c->level = (int)par_count(p, "canonical_level", 4);
    c->points = par_samples(p, "pooler_sampling_ratio");
    c->aligned = par_flag(p, "pooler_aligned", true);
    c->score = par_share(p, "score_thresh");
    c->overlap = par_share(p, "nms_thresh");
    c->most = par_size(p, "max_detections", 100);
    for (int k = 0; k < c->rpn.anchors.levels; k++)
        if (c->rpn.anchors.stride[k] != 4 << k)
            par_fail(p, "metadata strides: %g instead of %d", c->rpn.anchors.stride[k], 4 << k);
    if (!p->failed && !tp_detector_mask_rcnn.check(c, why, sizeof why))
        par_illegal(p, "metadata: %s", why);
    return !p->failed;
}

void rcnn_declare(parity *p, void *self)
{
    rcnn_model *x = self;
    tp_mask_rcnn_cfg c;
    x->threshold = par_num(p, "mask_threshold", 0.5);
    if (!(x->threshold > 0.0)) par_illegal(p, "metadata mask_threshold is not positive");
    if (!read_model(p, &c) || !par_scene_read(p, c.box.classes, &x->scene)) return;
    tp_detector_mask_rcnn.init(p->P, &x->m, "", &c);
    par_finish_backbone(p, &x->m.backbone, "backbone.bottom_up");
}

/* ---- intermediate results ---- */

static void check_regions(parity *p, const char *name, const tp_corners *box, int64_t n)
{
    par_check(p, name, (const double *)box, 4 * n, par_limit(p, PAR_OUTPUT));
}

static void check_labels(parity *p, const tp_rpn_targets *t, int64_t b)
{
    int64_t *label = par_alloc(p, t->n, sizeof *label);
    for (int64_t i = 0; label && i < t->n; i++) label[i] = t->label[b * t->n + i];
    if (label)
        par_check_integers(p, par_name(p, "output.rpn_labels%lld", (long long)b), label, t->n);
}

/* Sampled regions, their categories, and the objects that they overlap most. */
static void check_samples(parity *p, const tp_regions *r, const tp_objects *o, int64_t b)
{
    const int64_t first = r->start[b], n = r->start[b + 1] - first;
    int64_t *category = par_alloc(p, n, sizeof *category);
    tp_corners *object = par_alloc(p, n, sizeof *object);
    if (!category || !object) return;
    for (int64_t i = 0; i < n; i++) {
        category[i] = r->category[first + i];
        if (r->object[first + i] >= 0) object[i] = o->box[r->object[first + i]];
    }
    check_regions(p, par_name(p, "output.sampled_boxes%lld", (long long)b), r->box + first, n);
    par_check_integers(p, par_name(p, "output.sampled_classes%lld", (long long)b), category, n);
    check_regions(p, par_name(p, "output.sampled_gt_boxes%lld", (long long)b), object, n);
}

static void check_steps(parity *p, const rcnn_model *x, const tp_mask_rcnn_steps *s)
{
    for (int k = 0; k < s->pyramid.levels && par_ok(p); k++)
        par_output(p, par_name(p, "p%d", k + 2), par_channels_first(p->T, s->pyramid.map[k]));
    for (int64_t b = 0; b < x->scene.images && par_ok(p); b++) {
        const int64_t first = s->proposals.start[b], n = s->proposals.start[b + 1] - first;
        check_labels(p, &s->rpn, b);
        check_regions(p, par_name(p, "output.proposals%lld", (long long)b),
                      s->proposals.box + first, n);
        par_check(p, par_name(p, "output.proposal_logits%lld", (long long)b),
                  s->proposals.score + first, n, par_limit(p, PAR_OUTPUT));
        check_samples(p, &s->sampled, &x->scene.objects[b], b);
    }
}

/* ---- running ---- */

/* input.proposals in place of those of the RPN, in the case's memory, if proposals_given. */
static void give_proposals(parity *p, tp_mask_rcnn_steps *s)
{
    tp_regions *r = &s->proposals;
    s->given = par_flag(p, "proposals_given", false);
    if (!s->given) return;
    r->images = 1;
    r->box = par_corners(p, "input.proposals", &r->n);
    r->score = par_alloc(p, r->n, sizeof *r->score);
    r->start = par_alloc(p, 2, sizeof *r->start);
    if (r->start) r->start[1] = r->n;
}

static void detect(parity *p, const rcnn_model *x, const tp_detection_in *in)
{
    tp_detected *found = par_alloc(p, x->scene.images, sizeof *found);
    if (!found || !x->scene.original) return;
    tp_train(p->T, false);
    if (tp_detector_mask_rcnn.detect(p->T, &x->m, in, found))
        par_scene_check(p, &x->scene, found, x->threshold);
    tp_train(p->T, p->train);
}

void rcnn_run(parity *p, void *self)
{
    const rcnn_model *x = self;
    const tp_detection_in in = par_scene_in(p, &x->scene);
    tp_mask_rcnn_steps steps = { 0 };
    give_proposals(p, &steps);
    if (!par_ok(p)) return;
    const tp_detection_losses l = tp_mask_rcnn_losses(p->T, &x->m, &in, &steps);
    if (par_ok(p)) check_steps(p, x, &steps);
    for (int i = 0; i < l.n; i++) par_output(p, l.name[i], l.term[i]);
    if (l.n) par_loss(p, l.total);
    if (steps.given) steps.proposals = (tp_regions){ 0 };
    tp_mask_rcnn_steps_free(&steps);
    if (par_ok(p)) detect(p, x, &in);
}
