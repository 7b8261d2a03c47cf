/* parity_rcnn.c - cases of the heads of Mask R-CNN: predictions, losses, gradients. */
#include <string.h>

#include "parity_rcnn.h"

/* ---- region proposals ---- */

void rcnn_declare_rpn(parity *p, void *self)
{
    tp_rpn_cfg c = { .dim = par_shape(p, "param.conv.weight").dim[0],
                     .anchors = { .levels = (int)par_series(p, "input.f"), .sizes = 1 } };
    c.anchors.ratios = (int)par_int(p, "num_anchors", PAR_NEEDED, 1, 64);
    if (c.anchors.levels < 1 || c.anchors.levels > TP_PYRAMID_LEVELS)
        par_fail(p, "the case has %d maps", c.anchors.levels);
    if (!p->failed) tp_rpn_init(p->P, self, "", &c);
}

void rcnn_run_rpn(parity *p, void *self)
{
    const tp_rpn *m = self;
    tp_pyramid maps = { .levels = m->cfg.anchors.levels };
    for (int k = 0; k < maps.levels; k++) maps.map[k] = par_images(p, par_name(p, "f%d", k));
    const tp_rpn_out out = tp_rpn_forward(p->T, m, &maps);
    for (int k = 0; k < out.levels; k++) {
        par_output(p, par_name(p, "logits%d", k), par_channels_first(p->T, out.logit[k]));
        par_output(p, par_name(p, "deltas%d", k), par_channels_first(p->T, out.offset[k]));
    }
}

/* ---- box head ---- */

void rcnn_declare_box_head(parity *p, void *self)
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

/* The categories [n] of regions, from 0 to most. NULL: failed. */
static int *categories(parity *p, int64_t n, int64_t most)
{
    tp_shape s = { 0 };
    const int64_t *x = par_integers(p, "input.gt_classes", &s);
    int *category = par_alloc(p, n, sizeof *category);
    if (!x || !category) return NULL;
    if (par_numel(s) != n) par_fail(p, "input.gt_classes: %lld regions are needed", (long long)n);
    for (int64_t i = 0; !p->failed && i < n; i++) {
        if (x[i] < 0 || x[i] > most) par_fail(p, "input.gt_classes: %lld", (long long)x[i]);
        category[i] = (int)x[i];
    }
    return p->failed ? NULL : category;
}

void rcnn_run_box_head(parity *p, void *self)
{
    const tp_box_head *m = self;
    int64_t n, k;
    tp_tensor logit, offset, loss[2];
    const tp_tensor x = par_images(p, "x");
    const tp_corners *box = par_corners(p, "input.proposal_boxes", &n),
                     *target = par_corners(p, "input.gt_boxes", &k);
    if (!par_ok(p)) return;
    const int *category = categories(p, tp_dim(x, 0), m->cfg.classes);
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

void rcnn_declare_mask_head(parity *p, void *self)
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

void rcnn_run_mask_head(parity *p, void *self)
{
    const tp_mask_head *m = self;
    tp_shape s = { 0 };
    const tp_tensor x = par_images(p, "x");
    const int64_t *stored = par_integers(p, "input.targets", &s), n = stored ? par_numel(s) : 0;
    uint8_t *target = par_alloc(p, n, 1);
    if (!par_ok(p) || !target) return;
    const int *category = categories(p, tp_dim(x, 0), m->cfg.classes - 1);
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

void rcnn_declare_mm_rpn(parity *p, void *self)
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

static void check_proposals(parity *p, const tp_regions *r)
{
    for (int64_t b = 0; b < r->images; b++) {
        const char *name = par_name(p, "output.proposals%lld", (long long)b);
        const int64_t first = r->start[b], n = r->start[b + 1] - first;
        double *x = par_alloc(p, 5 * n, sizeof *x);
        for (int64_t i = 0; x && i < n; i++) {
            memcpy(x + 5 * i, &r->box[first + i], 4 * sizeof *x);
            x[5 * i + 4] = r->score[first + i];
        }
        if (x) par_check(p, name, x, 5 * n, par_limit(p, PAR_OUTPUT));
    }
}

void rcnn_run_mm_rpn(parity *p, void *self)
{
    tp_rpn *m = self;
    tp_rpn_out out;
    tp_tensor loss[2];
    tp_rpn_targets t;
    tp_regions r;
    int64_t hw[2];
    par_sides(p, "image_hw", hw);
    if (!read_out(p, m, &out)) return;
    const int64_t B = tp_dim(out.logit[0], 0);
    tp_objects *o = par_alloc(p, B, sizeof *o);
    int64_t(*size)[2] = par_alloc(p, B, sizeof *size);
    for (int64_t b = 0; o && size && b < B; b++) {
        o[b].box = par_corners(p, par_name(p, "input.gt_boxes%lld", (long long)b), &o[b].n);
        memcpy(size[b], hw, sizeof hw);
    }
    const tp_detection_in in = { .size = (const int64_t(*)[2])size,
                                 .objects = o,
                                 .sampling = TP_SAMPLE_EVEN };
    if (!par_ok(p) || !tp_rpn_match(p->T, m, &out, &in, &t)) return;
    tp_rpn_losses(p->T, m, &out, &in, &t, loss);
    tp_rpn_targets_free(&t);
    par_output(p, "loss_cls", loss[0]);
    par_output(p, "loss_bbox", loss[1]);
    par_loss(p, tp_add(p->T, loss[0], loss[1]));
    if (!par_ok(p) || !tp_rpn_propose(p->T, m, &out, in.size, false, &r)) return;
    check_proposals(p, &r);
    tp_regions_free(&r);
}
