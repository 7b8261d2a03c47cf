/* mask_rcnn.c - the configuration, parameters and constant of Mask R-CNN. */
#include <stdio.h>

#include "inner.h"

/* ---- configuration ---- */

tp_mask_rcnn_cfg tp_mask_rcnn_config(tp_backbone_cfg backbone, tp_detection_profile profile)
{
    const bool mm = profile == TP_MMDETECTION;
    tp_mask_rcnn_cfg c = {
        .profile = profile,
        .backbone = backbone,
        .rpn = { .profile = profile,
                 .anchors = tp_anchors_rpn(),
                 .matcher = tp_matcher_rpn(profile),
                 .samples = 256,
                 .positive = 0.5,
                 .candidates = { 2000, 1000 },
                 .most = { 1000, 1000 },
                 .overlap = 0.7 },
        .matcher = tp_matcher_roi(),
        .samples = 512,
        .positive = 0.25,
        .append = true,
        .canonical = 224.0,
        .level = 4,
        .aligned = true,
        .box = { .side = 7,
                 .layers = 2,
                 .hidden = { 1024, 1024 },
                 .coder = { .weight = { 10.0, 10.0, 5.0, 5.0 }, .both = mm } },
        .mask = { .side = 14, .layers = 4, .dim = 256 },
        .score = 0.05,
        .overlap = 0.5,
        .most = 100,
    };
    c.matcher.low_quality = c.matcher.overwrite = mm;
    c.matcher.least = 0.5;
    tp_mask_rcnn_sizes(&c, 256, 80);
    return c;
}

void tp_mask_rcnn_sizes(tp_mask_rcnn_cfg *c, int64_t dim, int64_t classes)
{
    if (!c) return;
    c->dim = c->rpn.dim = c->box.dim = c->mask.in = dim;
    c->box.classes = c->mask.classes = classes;
}

enum { MAX_WIDTH = 1 << 16, MAX_CLASSES = 1 << 16, MAX_SIDE = 128, MAX_COUNT = 1 << 20 };
enum { MAX_POINTS = 64, MAX_LEVEL = 30 };

static bool within(int64_t x, int64_t least, int64_t most)
{
    return x >= least && x <= most;
}

static bool is_share(double x)
{
    return x >= 0.0 && x <= 1.0;
}

/* Returns an error in the proposals' configuration, or NULL. */
static const char *rpn_fault(const tp_rpn_cfg *c)
{
    if (c->anchors.levels != 5) return "anchors have five levels";
    for (int i = 0; i < 2; i++)
        if (!within(c->candidates[i], 1, MAX_COUNT) || !within(c->most[i], 1, MAX_COUNT))
            return "the number of proposals is from 1 to 2^20";
    if (!within(c->samples, 1, MAX_COUNT)) return "the number of sampled anchors is from 1 to 2^20";
    if (!is_share(c->positive) || !is_share(c->overlap))
        return "fractions of anchors and overlaps of proposals are from 0 to 1";
    if (!(c->beta >= 0.0) || !(c->side >= 0.0)) return "beta and sides are not negative";
    return NULL;
}

static const char *box_fault(const tp_box_head_cfg *c)
{
    if (!within(c->side, 1, MAX_SIDE)) return "regions of the box head have 1 to 128 pixels a side";
    if (!within(c->layers, 1, TP_BOX_HEAD_LAYERS)) return "the box head has 1 to 8 layers";
    for (int i = 0; i < c->layers; i++)
        if (!within(c->hidden[i], 1, MAX_WIDTH)) return "layers of the box head are 1 to 2^16 wide";
    return c->beta >= 0.0 ? NULL : "beta is not negative";
}

static const char *mask_fault(const tp_mask_head_cfg *c)
{
    if (!within(c->side, 1, MAX_SIDE))
        return "regions of the mask head have 1 to 128 pixels a side";
    if (!within(c->layers, 0, TP_MASK_HEAD_LAYERS)) return "the mask head has 0 to 8 layers";
    return within(c->dim, 1, MAX_WIDTH) ? NULL : "the mask head is 1 to 2^16 wide";
}

static const char *fault(const tp_mask_rcnn_cfg *c)
{
    const char *part;
    if (!within(c->dim, 1, MAX_WIDTH)) return "the pyramid has 1 to 2^16 channels";
    if (!within(c->box.classes, 1, MAX_CLASSES)) return "there are 1 to 2^16 categories";
    if (c->rpn.dim != c->dim || c->box.dim != c->dim || c->mask.in != c->dim ||
        c->mask.classes != c->box.classes || c->rpn.profile != c->profile)
        return "parts disagree on the profile, the channels or the number of categories "
               "(tp_mask_rcnn_sizes sets them)";
    if ((part = rpn_fault(&c->rpn)) || (part = box_fault(&c->box)) || (part = mask_fault(&c->mask)))
        return part;
    if (!within(c->samples, 1, MAX_COUNT) || !within(c->most, 1, MAX_COUNT))
        return "the numbers of samples and detections are from 1 to 2^20";
    if (!tp__matcher_ok(&c->matcher) || !tp__matcher_ok(&c->rpn.matcher))
        return "a matcher has 1 to 4 ascending thresholds from 0 to 1, and labels -1, 0 and 1";
    if (!is_share(c->positive) || !is_share(c->score) || !is_share(c->overlap))
        return "fractions of samples, scores and overlaps are from 0 to 1";
    if (!within(c->points, 0, MAX_POINTS))
        return "bins of regions have 0 to 64 samples along each axis";
    return c->canonical > 0.0 && within(c->level, 0, MAX_LEVEL)
               ? NULL
               : "the canonical side of a region is positive, and its level from 0 to 30";
}

static bool check(const void *cfg, char *why, size_t size)
{
    const tp_mask_rcnn_cfg *c = cfg;
    if (!tp_backbone_check(&c->backbone, why, size) || !tp_anchor_check(&c->rpn.anchors, why, size))
        return false;
    const char *text = fault(c);
    if (text) snprintf(why, size, "%s", text);
    return !text;
}

/* ---- parameters ---- */

static void init(tp_params *P, void *module, const char *name, const void *own)
{
    const tp_mask_rcnn_cfg *cfg = own;
    tp_mask_rcnn *m = module;
    char why[300];
    *m = (tp_mask_rcnn){ .params = P, .cfg = *cfg };
    if (!check(cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "Mask R-CNN: %s", why);
        return;
    }
    tp_fpn_cfg fpn = tp_fpn_of(&cfg->backbone, cfg->dim, TP_FPN_SUBSAMPLE);
    fpn.average = cfg->average;
    tp_push(P, name);
    tp_backbone_init(P, &m->backbone, "backbone.bottom_up", &cfg->backbone);
    tp_fpn_init(P, &m->fpn, "backbone", fpn);
    tp_rpn_init(P, &m->rpn, "proposal_generator.rpn_head", &cfg->rpn);
    tp_box_head_init(P, &m->box, "roi_heads", &cfg->box);
    tp_mask_head_init(P, &m->mask, "roi_heads.mask_head", &cfg->mask);
    tp_pop(P);
}

/* ---- the constant ---- */

static void preset(void *cfg, const tp_backbone_cfg *backbone, int64_t classes,
                   tp_detection_profile profile, bool mini)
{
    enum { MINI_DIM = 64, MINI_HIDDEN = 256 };
    tp_mask_rcnn_cfg *c = cfg;
    *c = tp_mask_rcnn_config(*backbone, profile);
    if (mini) {
        tp__anchors_halve(&c->rpn.anchors);
        c->canonical /= 4;
        c->rpn.samples = 64;
        c->samples = 32;
        for (int k = 0; k < 2; k++) c->rpn.candidates[k] = c->rpn.most[k] = 200;
        c->box.hidden[0] = c->box.hidden[1] = MINI_HIDDEN;
        c->mask.layers = 2;
        c->mask.dim = MINI_DIM;
    }
    tp_mask_rcnn_sizes(c, mini ? MINI_DIM : 256, classes);
}

static tp_detector_parts parts(void *cfg)
{
    tp_mask_rcnn_cfg *c = cfg;
    return (tp_detector_parts){ &c->backbone,   &c->rpn.anchors, &c->rpn.matcher,
                                c->box.classes, &c->score,       &c->most };
}

static tp_backbone *backbone_of(void *m)
{
    return &((tp_mask_rcnn *)m)->backbone;
}

static tp_detection_losses losses(tp_tape *T, void *m, const tp_detection_in *in)
{
    return tp_mask_rcnn_losses(T, m, in, NULL);
}

static void fit(void *cfg)
{
    tp_mask_rcnn_cfg *c = cfg;
    tp_mask_rcnn_sizes(c, c->dim, c->box.classes);
}

static void print_sizes(const void *cfg, char *text, size_t size)
{
    tp__anchor_sizes_print(&((const tp_mask_rcnn_cfg *)cfg)->rpn.anchors, text, size);
}

static bool parse_sizes(void *cfg, const char *text, char *why, size_t size)
{
    return tp__anchor_sizes_parse(&((tp_mask_rcnn_cfg *)cfg)->rpn.anchors, text, why, size);
}

#define AT(member) offsetof(tp_mask_rcnn_cfg, member)
static const tp_model_member members[] = {
    { "frozen", TP_MEMBER_INT, .at = AT(backbone.frozen) },
    { "dim", TP_MEMBER_INT64, .at = AT(dim), .least = 1, .most = MAX_WIDTH },
    { "average", TP_MEMBER_FLAG, .at = AT(average) },
    { "rpn.anchors.size", TP_MEMBER_TEXT, .print = print_sizes, .parse = parse_sizes },
    { "rpn.anchors.ratio", TP_MEMBER_REALS, .at = AT(rpn.anchors.ratio), .count = TP_ANCHOR_SIZES,
      .length = AT(rpn.anchors.ratios) },
    { "rpn.anchors.offset", TP_MEMBER_REAL, .at = AT(rpn.anchors.offset) },
    { "rpn.matcher.threshold", TP_MEMBER_REALS, .at = AT(rpn.matcher.threshold), .count = 2 },
    { "rpn.matcher.low_quality", TP_MEMBER_FLAG, .at = AT(rpn.matcher.low_quality) },
    { "rpn.samples", TP_MEMBER_INT64, .at = AT(rpn.samples), .least = 1, .most = MAX_COUNT },
    { "rpn.positive", TP_MEMBER_REAL, .at = AT(rpn.positive) },
    { "rpn.beta", TP_MEMBER_REAL, .at = AT(rpn.beta) },
    { "rpn.coder.weight", TP_MEMBER_REALS, .at = AT(rpn.coder.weight), .count = 4 },
    { "rpn.candidates", TP_MEMBER_INT64S, .at = AT(rpn.candidates), .count = 2, .least = 1,
      .most = MAX_COUNT },
    { "rpn.most", TP_MEMBER_INT64S, .at = AT(rpn.most), .count = 2, .least = 1, .most = MAX_COUNT },
    { "rpn.overlap", TP_MEMBER_REAL, .at = AT(rpn.overlap) },
    { "rpn.side", TP_MEMBER_REAL, .at = AT(rpn.side) },
    { "matcher.threshold", TP_MEMBER_REAL, .at = AT(matcher.threshold) },
    { "matcher.low_quality", TP_MEMBER_FLAG, .at = AT(matcher.low_quality) },
    { "matcher.least", TP_MEMBER_REAL, .at = AT(matcher.least) },
    { "samples", TP_MEMBER_INT64, .at = AT(samples), .least = 1, .most = MAX_COUNT },
    { "positive", TP_MEMBER_REAL, .at = AT(positive) },
    { "append", TP_MEMBER_FLAG, .at = AT(append) },
    { "canonical", TP_MEMBER_REAL, .at = AT(canonical) },
    { "level", TP_MEMBER_INT, .at = AT(level), .most = MAX_LEVEL },
    { "points", TP_MEMBER_INT, .at = AT(points), .most = MAX_POINTS },
    { "aligned", TP_MEMBER_FLAG, .at = AT(aligned) },
    { "box.side", TP_MEMBER_INT64, .at = AT(box.side), .least = 1, .most = MAX_SIDE },
    { "box.hidden", TP_MEMBER_INT64S, .at = AT(box.hidden), .count = TP_BOX_HEAD_LAYERS,
      .length = AT(box.layers), .least = 1, .most = MAX_WIDTH },
    { "box.one_box", TP_MEMBER_FLAG, .at = AT(box.one_box) },
    { "box.beta", TP_MEMBER_REAL, .at = AT(box.beta) },
    { "box.coder.weight", TP_MEMBER_REALS, .at = AT(box.coder.weight), .count = 4 },
    { "mask.side", TP_MEMBER_INT64, .at = AT(mask.side), .least = 1, .most = MAX_SIDE },
    { "mask.layers", TP_MEMBER_INT, .at = AT(mask.layers), .most = TP_MASK_HEAD_LAYERS },
    { "mask.dim", TP_MEMBER_INT64, .at = AT(mask.dim), .least = 1, .most = MAX_WIDTH },
    { "score", TP_MEMBER_REAL, .at = AT(score) },
    { "overlap", TP_MEMBER_REAL, .at = AT(overlap) },
    { "most", TP_MEMBER_INT64, .at = AT(most), .least = 1, .most = MAX_COUNT },
    { 0 },
};

static const char *const terms[] = { "loss_rpn_cls", "loss_rpn_loc", "loss_cls",
                                     "loss_box_reg", "loss_mask",    NULL };

/* ViL's paper, Tables 7 and 8 (attentions), by the rules of RetinaNet's figures. */
static const tp_detector_figures figures[] = {
    { "vil-tiny", 26.9, 145.6 },
    { "vil-small", 45.0, 218.3 },
    { "vil-small-ape", 45.0, 218.3 },
    { "vil-small-sra64", 73.3, 224.1 },
    { "vil-small-sra32", 51.5, 268.3 },
    { "vil-small-global", 45.2, 226.4 },
    { "vil-small-performer", 45.0, 251.5 },
    { "vil-small-partial", 45.0, 326.8 },
    { "vil-small-partial-sra32", 46.8, 352.1 },
    { "vil-small-partial-global", 45.1, 326.5 },
    { "vil-small-partial-performer", 45.0, 343.7 },
    { "vil-medium", 60.1, 293.8 },
    { "vil-base", 76.1, 384.4 },
    { "resnet18", 31.2, 0 },
    { "resnet50", 44.2, 0 },
    { "resnet101", 63.2, 0 },
    { "pvt-tiny", 32.9, 0 },
    { "pvt-small", 44.1, 0 },
    { "pvt-medium", 63.9, 0 },
    { "pvt-large", 81.0, 0 },
    { 0 },
};

const tp_detector_kind tp_detector_mask_rcnn = {
    .name = "mask-rcnn",
    .title = "Mask R-CNN",
    .cfg_size = sizeof(tp_mask_rcnn_cfg),
    .size = sizeof(tp_mask_rcnn),
    .masks = true,
    .terms = terms,
    .figures = figures,
    .preset = preset,
    .check = check,
    .parts = parts,
    .members = members,
    .fit = fit,
    .init = init,
    .backbone = backbone_of,
    .losses = losses,
    .detect = tp__mask_rcnn_detect,
    .forward = tp__mask_rcnn_forward,
};
