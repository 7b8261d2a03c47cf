/* parity_retinanet.c - cases of RetinaNet: losses, heads, mmdetection's losses and detections,
 * whole models. */
#include <string.h>
#include <tapegrad/detection/retinanet.h>

#include "parity_detection.h"

/* ---- the focal loss ---- */

typedef struct focal {
    double alpha, gamma;
} focal;

static void declare_focal(parity *p, void *self)
{
    focal *m = self;
    m->alpha = par_num(p, "alpha", PAR_NEEDED);
    m->gamma = par_num(p, "gamma", PAR_NEEDED);
}

/* The classes of one-hot rows, K where a row is zero. NULL: rows are something else, or failed. */
static int32_t *classes_of(parity *p, const double *target, tp_shape s)
{
    const int64_t K = s.ndim == 2 ? s.dim[1] : 0, rows = K ? s.dim[0] : 0;
    int32_t *class = par_alloc(p, rows, sizeof *class);
    for (int64_t r = 0; class && r < rows; r++) {
        int ones = 0;
        class[r] = (int32_t)K;
        for (int64_t j = 0; j < K; j++) {
            const double t = target[r * K + j];
            if (t != 0.0 && t != 1.0) return NULL;
            if (t == 1.0) class[r] = (int32_t)j;
            ones += t == 1.0;
        }
        if (ones > 1) return NULL;
    }
    return K ? class : NULL;
}

static void run_focal(parity *p, void *self)
{
    const focal *m = self;
    tp_shape s = { 0 };
    const double *target = par_values(p, "input.targets", &s);
    const tp_tensor x = par_take(p, "logits"), t = par_tensor(p, "targets");
    if (!par_ok(p) || !target) return;
    par_output(p, "elementwise", tp_focal(p->T, x, t, m->alpha, m->gamma, TP_EACH));
    tp_tensor sum = tp_focal(p->T, x, t, m->alpha, m->gamma, TP_SUM);
    par_output(p, "sum", sum);
    const int32_t *class = classes_of(p, target, s);
    if (class && par_ok(p)) {
        const tp_tensor ids = tp_from(p->T, TP_I32, TP_SHAPE(s.dim[0]), class);
        sum = tp_focal(p->T, x, ids, m->alpha, m->gamma, TP_SUM);
        par_output(p, "sum", sum);
    }
    par_loss(p, sum);
}

/* ---- losses of boxes ---- */

typedef struct betas {
    const double *beta;
    int64_t n;
} betas;

static void declare_smooth_l1(parity *p, void *self)
{
    betas *m = self;
    m->beta = par_list(p, "betas", &m->n);
    for (int64_t i = 0; i < m->n; i++)
        if (!(m->beta[i] >= 0.0)) par_illegal(p, "metadata betas: %g is negative", m->beta[i]);
    if (m->n != par_series(p, "output.loss"))
        par_fail(p, "metadata betas: not one for each output");
}

/* The gradient of each loss, which is stored for an input of its own: x0, x1 ... */
static void run_smooth_l1(parity *p, void *self)
{
    const betas *m = self;
    tp_shape s = { 0 };
    const double *x = par_values(p, "input.x", &s), *y = par_values(p, "input.y", NULL);
    for (int64_t i = 0; x && y && i < m->n && par_ok(p); i++) {
        const double beta = m->beta[i] < 1e-5 ? 0.0 : m->beta[i];
        const tp_tensor a = par_take(p, "x"), b = par_tensor(p, "y");
        const tp_tensor loss = tp_smooth_l1(p->T, a, b, beta, TP_SUM);
        par_output(p, par_nth(p, "elementwise", i), tp_smooth_l1(p->T, a, b, beta, TP_EACH));
        par_output(p, par_nth(p, "loss", i), loss);
        if (!par_ok(p)) return;
        tp_backward(p->T, loss);
        const double *grad = par_read(p, tp_grad(p->T, a));
        if (grad)
            par_check(p, par_nth(p, "grad.input.x", i), grad, tp_numel(a),
                      par_limit(p, PAR_GRADIENT));
    }
}

static void declare_giou(parity *p, void *self)
{
    double *eps = self;
    *eps = par_num(p, "eps", PAR_NEEDED);
}

static void run_giou(parity *p, void *self)
{
    const double eps = *(const double *)self;
    const tp_tensor x = par_take(p, "pred"), t = par_tensor(p, "gt");
    par_output(p, "elementwise", tp_giou(p->T, x, t, eps, TP_EACH));
    par_loss(p, tp_giou(p->T, x, t, eps, TP_SUM));
}

/* ---- heads ---- */

static void declare_head(parity *p, void *self)
{
    const tp_shape s = par_shape(p, "param.cls_score.weight");
    tp_retinanet_cfg c = { .dim = s.ndim == 4 ? s.dim[1] : 1,
                           .classes = par_size(p, "num_classes", PAR_NEEDED),
                           .convs = (int)par_int(p, "num_convs", 4, 0, TP_RETINANET_CONVS),
                           .prior = 0.01,
                           .anchors = { .sizes = 1 } };
    c.anchors.ratios = (int)par_int(p, "num_anchors", PAR_NEEDED, 1, 64);
    if (par_series(p, "input.f") < 1 || par_series(p, "input.f") > TP_PYRAMID_LEVELS)
        par_fail(p, "the case has %lld maps", (long long)par_series(p, "input.f"));
    if (!p->failed) tp_retinanet_head_init(p->P, self, "", &c);
}

/* x [B,n,K] of a level as [B,A*K,h,w]. */
static tp_tensor as_map(parity *p, const tp_retinanet_out *out, int level, tp_tensor x)
{
    const int64_t *side = out->size[level];
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), side[0], side[1], -1);
    return par_channels_first(p->T, tp_reshape(p->T, x, s));
}

static void run_head(parity *p, void *self)
{
    tp_pyramid maps = { .levels = (int)par_series(p, "input.f") };
    for (int k = 0; k < maps.levels; k++)
        maps.map[k] = par_channels_last(p->T, par_take(p, par_nth(p, "f", k)));
    if (!par_ok(p)) return;
    const tp_retinanet_out out = tp_retinanet_head_forward(p->T, self, &maps);
    for (int k = 0; k < out.levels && par_ok(p); k++) {
        par_output(p, par_nth(p, "logits_flat", k), out.logit[k]);
        par_output(p, par_nth(p, "deltas_flat", k), out.offset[k]);
        par_output(p, par_nth(p, "logits", k), as_map(p, &out, k, out.logit[k]));
        par_output(p, par_nth(p, "deltas", k), as_map(p, &out, k, out.offset[k]));
    }
}

/* ---- shared by configurations of whole models and mmdetection's losses ---- */

static void read_losses(parity *p, tp_retinanet_cfg *c)
{
    c->alpha = par_num(p, "focal_alpha", 0.25);
    c->gamma = par_num(p, "focal_gamma", 2.0);
    c->beta = par_num(p, "smooth_l1_beta", 0.0);
    if (!(c->beta >= 0.0)) par_illegal(p, "metadata smooth_l1_beta is negative");
    c->coder = par_coder(p);
    c->select.score = par_share(p, "score_thresh");
    c->select.overlap = par_share(p, "nms_thresh");
}

/* ---- mmdetection's losses and detections, from outputs of heads ---- */

/* self: a tp_retinanet; only its configuration is used. */
static void declare_mm(parity *p, void *self)
{
    tp_retinanet *m = self;
    m->cfg = (tp_retinanet_cfg){ .profile = TP_MMDETECTION,
                                 .classes = par_size(p, "num_classes", PAR_NEEDED) };
    m->normalizer = TP_NONE;
    par_matcher(p, true, &m->cfg.matcher);
    read_losses(p, &m->cfg);
    m->cfg.coder.both = true;
    m->cfg.select.candidates = par_size(p, "nms_pre", PAR_NEEDED);
    m->cfg.select.most = par_size(p, "max_per_img", PAR_NEEDED);
}

/* The predictions of the case as those of the network. */
static bool read_out(parity *p, tp_retinanet *m, tp_retinanet_out *out)
{
    const int64_t *grid = par_anchors(p, true, &m->cfg.anchors),
                  A = m->cfg.anchors.sizes * m->cfg.anchors.ratios;
    *out = (tp_retinanet_out){ .levels = grid ? m->cfg.anchors.levels : 0 };
    for (int k = 0; !p->failed && k < out->levels; k++) {
        tp_tensor x, y;
        par_mm_level(p, grid, k, m->cfg.classes, A, out->size[k], &x, &y);
        if (!par_ok(p)) break;
        out->logit[k] = tp_reshape(p->T, x, TP_SHAPE(tp_dim(x, 0), -1, m->cfg.classes));
        out->offset[k] = tp_reshape(p->T, y, TP_SHAPE(tp_dim(y, 0), -1, 4));
    }
    return !p->failed && out->levels > 0;
}

/* What detections are divided by, x and y: one number, two, or mmdetection's w, h, w, h. */
static void read_factors(parity *p, double factor[2])
{
    int64_t n;
    const double *x = par_list(p, "scale_factor", &n);
    const bool fits = n == 0 || n == 1 || n == 2 || (n == 4 && x[2] == x[0] && x[3] == x[1]);
    if (!fits) par_fail(p, "metadata scale_factor: one number, two, or w,h,w,h");
    for (int i = 0; i < 2; i++) {
        factor[i] = n == 0 || !fits ? 1.0 : x[n == 1 ? 0 : i];
        if (!(factor[i] > 0.0)) par_illegal(p, "metadata scale_factor is not positive");
    }
}

/* Compares the detections of image b, divided by the factors, with output.detsB and labelsB. */
static void check_dets(parity *p, int64_t b, const tp_detected *d, const double factor[2])
{
    tp_corners *box = par_alloc(p, d->n, sizeof *box);
    double *score = par_alloc(p, d->n, sizeof *score);
    int64_t *category = par_alloc(p, d->n, sizeof *category);
    if (!box || !score || !category) return;
    for (int64_t i = 0; i < d->n; i++) {
        box[i] = tp_corners_scale(d->found[i].box, 1.0 / factor[0], 1.0 / factor[1]);
        score[i] = d->found[i].score;
        category[i] = d->found[i].category;
    }
    par_check_scored(p, par_nth(p, "output.dets", b), box, score, d->n);
    par_check_integers(p, par_nth(p, "output.labels", b), category, d->n);
}

static void run_mm(parity *p, void *self)
{
    tp_retinanet *m = self;
    tp_retinanet_out out;
    double factor[2];
    read_factors(p, factor);
    if (!read_out(p, m, &out)) return;
    const int64_t B = tp_dim(out.logit[0], 0);
    const tp_detection_in in = par_mm_in(p, B);
    tp_detected *found = par_alloc(p, B, sizeof *found);
    if (!par_ok(p)) return;
    const tp_detection_losses l = tp_retinanet_losses_of(p->T, m, &out, &in, NULL);
    if (!par_ok(p)) return;
    par_output(p, "loss_cls", l.term[0]);
    par_output(p, "loss_bbox", l.term[1]);
    par_loss(p, l.total);
    if (!tp_retinanet_detect_of(p->T, &m->cfg, &out, in.size, found)) return;
    for (int64_t b = 0; b < B; b++) {
        check_dets(p, b, &found[b], factor);
        tp_detected_free(&found[b]);
    }
}

/* ---- whole models ---- */

typedef struct retinanet_model {
    tp_retinanet m;
    par_scene scene;
} retinanet_model;

static bool read_model(parity *p, tp_retinanet_cfg *c)
{
    tp_backbone_cfg backbone;
    char why[300];
    if (!par_backbone(p, &backbone)) return false;
    *c = tp_retinanet_default(&backbone, par_size(p, "num_classes", PAR_NEEDED), TP_DETECTRON2);
    c->dim = par_size(p, "fpn_channels", 256);
    c->average = par_fpn_average(p);
    const tp_fpn_top top = par_fpn_top(p);
    c->plain = top == TP_FPN_PLAIN;
    if (top == TP_FPN_SUBSAMPLE) par_fail(p, "metadata top_block_type: not that of RetinaNet");
    c->convs = (int)par_int(p, "num_convs", 4, 0, TP_RETINANET_CONVS);
    par_anchor_cfg(p, false, &c->anchors);
    for (int k = 0; k < c->anchors.levels; k++)
        if (c->anchors.stride[k] != 8 << k)
            par_fail(p, "metadata strides: %g instead of %d", c->anchors.stride[k], 8 << k);
    par_matcher(p, false, &c->matcher);
    read_losses(p, c);
    c->start = par_num(p, "loss_normalizer_start", 100.0);
    c->decay = par_num(p, "loss_normalizer_momentum", 0.9);
    c->select.candidates = par_size(p, "topk_candidates", 1000);
    c->select.most = par_size(p, "max_detections", 100);
    if (!p->failed && !tp_detector_retinanet.check(c, why, sizeof why))
        par_illegal(p, "metadata: %s", why);
    return !p->failed;
}

static void declare(parity *p, void *self)
{
    retinanet_model *x = self;
    tp_retinanet_cfg c;
    if (!read_model(p, &c) || !par_scene_read(p, c.classes, &x->scene)) return;
    tp_detector_retinanet.init(p->P, &x->m, "", &c);
    par_finish_backbone(p, &x->m.backbone, "backbone.bottom_up");
}

/* Sets the bias that a full-size case does not fill. */
static void set_bias(parity *p, const tp_retinanet *m)
{
    const tp_tensor bias = m->head.score.bias;
    const int64_t n = tp_numel(bias);
    double *x = par_alloc(p, n, sizeof *x);
    if (!par_given(p, "cls_score_bias") || !x) return;
    for (int64_t i = 0; i < n; i++) x[i] = par_num(p, "cls_score_bias", 0.0);
    par_set(p, bias, x);
}

static void check_labels(parity *p, const int *label, int64_t B, int64_t n, int64_t classes)
{
    int64_t positive = 0;
    for (int64_t i = 0; i < B * n; i++) positive += label[i] >= 0 && label[i] < classes;
    for (int64_t b = 0; b < B; b++)
        par_check_ints(p, par_nth(p, "output.anchor_labels", b), label + b * n, n);
    par_same(p, "num_pos_anchors", positive);
}

static void check_normalizer(parity *p, tp_retinanet *m)
{
    const double *z = par_get(p, m->normalizer);
    if (z) par_check_one(p, "output.loss_normalizer", *z, par_limit(p, PAR_OUTPUT));
}

static void run(parity *p, void *self)
{
    retinanet_model *x = self;
    const tp_detection_in in = par_scene_in(p, &x->scene);
    set_bias(p, &x->m);
    if (!par_ok(p)) return;
    const tp_pyramid maps = tp_retinanet_pyramid(p->T, &x->m, in.images);
    const tp_retinanet_out out = tp_retinanet_head_forward(p->T, &x->m.head, &maps);
    int64_t n = 0;
    for (int k = 0; par_ok(p) && k < out.levels; k++) {
        n += tp_dim(out.logit[k], 1);
        par_output(p, par_nth(p, "p", k + 3), par_channels_first(p->T, maps.map[k]));
        par_output(p, par_nth(p, "logits_p", k + 3), as_map(p, &out, k, out.logit[k]));
        par_output(p, par_nth(p, "deltas_p", k + 3), as_map(p, &out, k, out.offset[k]));
    }
    int *label = par_alloc(p, n * x->scene.images, sizeof *label);
    if (!par_ok(p) || !label) return;
    const tp_detection_losses l = tp_retinanet_losses_of(p->T, &x->m, &out, &in, label);
    for (int i = 0; i < l.n && par_ok(p); i++) par_output(p, l.name[i], l.term[i]);
    if (!par_ok(p)) return;
    par_loss(p, l.total);
    check_labels(p, label, x->scene.images, n, x->m.cfg.classes);
    check_normalizer(p, &x->m);
    par_scene_detect(p, &x->scene, &tp_detector_retinanet, &x->m, &in, 0.5);
}

const par_kind par_retinanet_kinds[] = {
    { PAR_MODULE("detection.focal_loss", focal, declare_focal, run_focal) },
    { PAR_MODULE("detection.smooth_l1", betas, declare_smooth_l1, run_smooth_l1) },
    { PAR_MODULE("detection.giou_loss", double, declare_giou, run_giou), .no_bf16 = true },
    { PAR_MODULE("detection.retinanet_head", tp_retinanet_head, declare_head, run_head),
      .no_bf16 = true },
    { PAR_MODULE("detection.mm_retinanet_loss", tp_retinanet, declare_mm, run_mm),
      .no_bf16 = true },
    { PAR_MODULE("detection.retinanet", retinanet_model, declare, run), .no_bf16 = true },
    { PAR_MODULE("detection.retinanet_full", retinanet_model, declare, run), .large = true,
      .no_bf16 = true },
    { .kind = NULL },
};
