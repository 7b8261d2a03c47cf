/* parity_rcnn.c - cases of Mask R-CNN: its heads and whole models, with losses, gradients,
 * intermediate results, detections and masks. */
#include <string.h>
#include <tapegrad/detection/mask_rcnn.h>

#include "parity_detection.h"

/* ---- region proposals ---- */

static void declare_rpn(parity *p, void *self)
{
    tp_rpn_cfg c = { .dim = par_shape(p, "param.conv.weight").dim[0],
                     .anchors = { .levels = (int)par_series(p, "input.f"), .sizes = 1 } };
    c.anchors.ratios = (int)par_int(p, "num_anchors", PAR_NEEDED, 1, 64);
    if (c.anchors.levels < 1 || c.anchors.levels > TP_PYRAMID_LEVELS)
        par_fail(p, "the case has %d maps", c.anchors.levels);
    if (!p->failed) tp_rpn_init(p->P, self, "", &c);
}

static void run_rpn(parity *p, void *self)
{
    const tp_rpn *m = self;
    tp_pyramid maps = { .levels = m->cfg.anchors.levels };
    for (int k = 0; k < maps.levels; k++) maps.map[k] = par_images(p, par_nth(p, "f", k));
    const tp_rpn_out out = tp_rpn_forward(p->T, m, &maps);
    for (int k = 0; k < out.levels; k++) {
        par_output(p, par_nth(p, "logits", k), par_channels_first(p->T, out.logit[k]));
        par_output(p, par_nth(p, "deltas", k), par_channels_first(p->T, out.offset[k]));
    }
}

/* ---- box head ---- */

static void declare_box_head(parity *p, void *self)
{
    int64_t n;
    const int64_t *hidden = par_sizes(p, "fc_dims", 1, &n);
    const tp_shape s = par_shape(p, "input.x");
    tp_box_head_cfg c = { .classes = par_size(p, "num_classes", PAR_NEEDED),
                          .layers = (int)n,
                          .one_box = par_flag(p, "cls_agnostic", false),
                          .beta = par_num(p, "smooth_l1_beta", 0.0),
                          .coder = par_coder(p) };
    if (s.ndim != 4 || s.dim[2] != s.dim[3] || n < 1 || n > TP_BOX_HEAD_LAYERS || !(c.beta >= 0.0))
        par_fail(p,
                 "input.x must be [regions,channels,side,side]; metadata fc_dims, smooth_l1_beta "
                 "are 1 to %d widths and a number from 0 on",
                 TP_BOX_HEAD_LAYERS);
    if (p->failed) return;
    c.dim = s.dim[1];
    c.side = s.dim[2];
    memcpy(c.hidden, hidden, (size_t)n * sizeof *hidden);
    tp_box_head_init(p->P, self, "", &c);
}

static void run_box_head(parity *p, void *self)
{
    const tp_box_head *m = self;
    int64_t n, k;
    tp_tensor logit, offset, loss[2];
    const tp_tensor x = par_images(p, "x");
    const tp_corners *box = par_corners(p, "input.proposal_boxes", &n),
                     *target = par_corners(p, "input.gt_boxes", &k);
    if (!par_ok(p)) return;
    const int *category = par_categories(p, "input.gt_classes", tp_dim(x, 0), m->cfg.classes);
    if (n != tp_dim(x, 0) || k != n) par_fail(p, "input.x and boxes differ in number");
    if (!category || p->failed) return;
    tp_box_head_forward(p->T, m, x, &logit, &offset);
    tp_box_head_losses(p->T, m, logit, offset, box, target, category, loss);
    par_output(p, "scores", logit);
    par_output(p, "deltas", offset);
    par_output(p, "loss_cls", loss[0]);
    par_output(p, "loss_box_reg", loss[1]);
    par_loss(p, tp_add(p->T, loss[0], loss[1]));
}

/* ---- mask head ---- */

static void declare_mask_head(parity *p, void *self)
{
    const tp_shape s = par_shape(p, "input.x");
    tp_mask_head_cfg c = { .classes = par_size(p, "num_classes", PAR_NEEDED),
                           .layers =
                               (int)par_int(p, "num_conv", PAR_NEEDED, 0, TP_MASK_HEAD_LAYERS),
                           .dim = par_size(p, "conv_dim", PAR_NEEDED) };
    if (s.ndim != 4 || s.dim[2] != s.dim[3])
        par_fail(p, "input.x must be [regions,channels,side,side]");
    if (p->failed) return;
    c.in = s.dim[1];
    c.side = s.dim[2];
    tp_mask_head_init(p->P, self, "", &c);
}

static void run_mask_head(parity *p, void *self)
{
    const tp_mask_head *m = self;
    tp_shape s = { 0 };
    const tp_tensor x = par_images(p, "x");
    const int64_t *stored = par_integers(p, "input.targets", &s), n = stored ? par_numel(s) : 0;
    uint8_t *target = par_alloc(p, n, 1);
    if (!par_ok(p) || !target) return;
    const int *category = par_categories(p, "input.gt_classes", tp_dim(x, 0), m->cfg.classes - 1);
    if (!category) return;
    for (int64_t i = 0; i < n; i++) target[i] = stored[i] != 0;
    const tp_tensor features = tp_mask_head_features(p->T, m, x);
    const tp_tensor logit = tp_mask_head_select(p->T, m, features, category);
    if (par_ok(p) && tp_numel(logit) != n) par_fail(p, "input.targets have another size");
    if (!par_ok(p)) return;
    par_output(p, "logits", par_channels_first(p->T, tp_mask_head_logits(p->T, m, features)));
    par_output(p, "probs_of_class", tp_sigmoid(p->T, logit));
    const tp_tensor loss = tp_mask_head_loss(p->T, logit, target);
    par_output(p, "loss_mask", loss);
    par_loss(p, loss);
}

/* ---- losses of region proposals in mmdetection ---- */

static void declare_mm_rpn(parity *p, void *self)
{
    static const char *const rules[] = { "even", NULL };
    tp_rpn *m = self;
    m->cfg = (tp_rpn_cfg){ .profile = TP_MMDETECTION,
                           .coder = par_coder(p),
                           .samples = par_size(p, "num", PAR_NEEDED),
                           .positive = par_share(p, "pos_fraction"),
                           .beta = par_num(p, "smooth_l1_beta", 0.0),
                           .overlap = par_share(p, "nms_thresh"),
                           .side = par_num(p, "min_box_size", 0.0) };
    m->cfg.candidates[1] = par_size(p, "nms_pre", PAR_NEEDED);
    m->cfg.most[1] = par_size(p, "max_per_img", PAR_NEEDED);
    m->cfg.coder.both = true;
    par_matcher(p, true, &m->cfg.matcher);
    par_word(p, "sampling_rule", 0, rules);
    if (!(m->cfg.beta >= 0.0) || !(m->cfg.side >= 0.0))
        par_illegal(p, "metadata smooth_l1_beta, min_box_size are negative");
}

/* The predictions of the case as those of the network. */
static bool read_out(parity *p, tp_rpn *m, tp_rpn_out *out)
{
    const int64_t *grid = par_anchors(p, true, &m->cfg.anchors),
                  A = m->cfg.anchors.sizes * m->cfg.anchors.ratios;
    *out = (tp_rpn_out){ .levels = grid ? m->cfg.anchors.levels : 0 };
    if (out->levels > TP_PYRAMID_LEVELS) par_fail(p, "the case has %d maps", out->levels);
    for (int k = 0; !p->failed && k < out->levels; k++)
        par_mm_level(p, grid, k, 1, A, out->size[k], &out->logit[k], &out->offset[k]);
    return !p->failed && out->levels > 0;
}

static void run_mm_rpn(parity *p, void *self)
{
    tp_rpn *m = self;
    tp_rpn_out out;
    tp_tensor loss[2];
    tp_rpn_targets t;
    tp_regions r;
    if (!read_out(p, m, &out)) return;
    tp_detection_in in = par_mm_in(p, tp_dim(out.logit[0], 0));
    in.sampling = TP_SAMPLE_EVEN;
    if (!par_ok(p) || !tp_rpn_match(p->T, m, &out, &in, &t)) return;
    tp_rpn_losses(p->T, m, &out, &in, &t, loss);
    tp_rpn_targets_free(&t);
    par_output(p, "loss_cls", loss[0]);
    par_output(p, "loss_bbox", loss[1]);
    par_loss(p, tp_add(p->T, loss[0], loss[1]));
    if (!par_ok(p) || !tp_rpn_propose(p->T, m, &out, in.size, false, &r)) return;
    for (int64_t b = 0; b < r.images; b++)
        par_check_scored(p, par_nth(p, "output.proposals", b), r.box + r.start[b],
                         r.score + r.start[b], r.start[b + 1] - r.start[b]);
    tp_regions_free(&r);
}

/* ---- whole models ---- */

typedef struct rcnn_model {
    tp_mask_rcnn m;
    par_scene scene;
    double threshold; /* of masks */
} rcnn_model;

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

static void declare(parity *p, void *self)
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

/* Sampled regions, their categories, and the objects that they overlap most. */
static void check_samples(parity *p, const tp_regions *r, const tp_objects *o, int64_t b)
{
    const int64_t first = r->start[b], n = r->start[b + 1] - first;
    tp_corners *object = par_alloc(p, n, sizeof *object);
    if (!object) return;
    for (int64_t i = 0; i < n; i++)
        if (r->object[first + i] >= 0) object[i] = o->box[r->object[first + i]];
    check_regions(p, par_nth(p, "output.sampled_boxes", b), r->box + first, n);
    par_check_ints(p, par_nth(p, "output.sampled_classes", b), r->category + first, n);
    check_regions(p, par_nth(p, "output.sampled_gt_boxes", b), object, n);
}

static void check_steps(parity *p, const rcnn_model *x, const tp_mask_rcnn_steps *s)
{
    for (int k = 0; k < s->pyramid.levels && par_ok(p); k++)
        par_output(p, par_nth(p, "p", k + 2), par_channels_first(p->T, s->pyramid.map[k]));
    for (int64_t b = 0; b < x->scene.images && par_ok(p); b++) {
        const int64_t first = s->proposals.start[b], n = s->proposals.start[b + 1] - first;
        par_check_ints(p, par_nth(p, "output.rpn_labels", b), s->rpn.label + b * s->rpn.n,
                       s->rpn.n);
        check_regions(p, par_nth(p, "output.proposals", b), s->proposals.box + first, n);
        par_check(p, par_nth(p, "output.proposal_logits", b), s->proposals.score + first, n,
                  par_limit(p, PAR_OUTPUT));
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

static void run(parity *p, void *self)
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
    if (par_ok(p)) par_scene_detect(p, &x->scene, &tp_detector_mask_rcnn, &x->m, &in, x->threshold);
}

const par_kind par_rcnn_kinds[] = {
    { PAR_MODULE("detection.rpn_head", tp_rpn, declare_rpn, run_rpn) },
    { PAR_MODULE("detection.box_head_loss", tp_box_head, declare_box_head, run_box_head) },
    { PAR_MODULE("detection.mask_head_loss", tp_mask_head, declare_mask_head, run_mask_head) },
    { PAR_MODULE("detection.mm_rpn_loss", tp_rpn, declare_mm_rpn, run_mm_rpn) },
    { PAR_MODULE("detection.maskrcnn", rcnn_model, declare, run), .no_bf16 = true },
    { PAR_MODULE("detection.maskrcnn_full", rcnn_model, declare, run), .large = true,
      .no_bf16 = true },
    { .kind = NULL },
};
