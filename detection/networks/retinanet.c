/* retinanet.c - RetinaNet: configuration, heads shared by all levels of the pyramid, the network,
 * inference, its constant. Detection reads back the outputs of one image at a time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

/* ---- configuration ---- */

tp_retinanet_cfg tp_retinanet_default(const tp_backbone_cfg *backbone, int64_t classes,
                                      tp_detection_profile profile)
{
    if (!backbone) return (tp_retinanet_cfg){ 0 };
    return (tp_retinanet_cfg){
        .profile = profile,
        .backbone = *backbone,
        .classes = classes,
        .dim = 256,
        .plain = profile == TP_MMDETECTION,
        .convs = 4,
        .prior = 0.01,
        .anchors = tp_anchors_retinanet(profile),
        .matcher = tp_matcher_retinanet(profile),
        .alpha = 0.25,
        .gamma = 2.0,
        .start = 100.0,
        .decay = 0.9,
        .select = { .score = 0.05, .overlap = 0.5, .candidates = 1000, .most = 100 },
    };
}

static bool refuse(char *why, size_t size, const char *what)
{
    return tp__refuse(why, size, "RetinaNet: %s", what);
}

enum { MAX_WIDTH = 1 << 16, MAX_CANDIDATES = INT32_MAX, MAX_DETECTIONS = 1000000 };

static bool check(const void *cfg, char *why, size_t size)
{
    const tp_retinanet_cfg *c = cfg;
    const int64_t cells = (int64_t)c->anchors.sizes * c->anchors.ratios;
    if (!tp_backbone_check(&c->backbone, why, size)) return false;
    if (!tp_anchor_check(&c->anchors, why, size)) return false;
    if (c->anchors.levels != TP_RETINANET_LEVELS)
        return refuse(why, size, "anchors must have five levels, one for each map of the pyramid");
    if (c->classes < 1 || c->classes > 100000)
        return refuse(why, size, "classes must be from 1 to 100000");
    if (c->dim < 1 || c->dim > MAX_WIDTH || c->classes * cells > INT32_MAX)
        return refuse(why, size, "dim must be from 1 to 65536, and classes x anchors below 2^31");
    if (c->convs < 0 || c->convs > TP_RETINANET_CONVS)
        return refuse(why, size, "convs, the length of a tower, must be from 0 to 8");
    if (!(c->prior > 0.0 && c->prior < 1.0))
        return refuse(why, size, "prior must be between 0 and 1");
    if (!(c->start > 0.0 && c->decay >= 0.0 && c->decay <= 1.0))
        return refuse(why, size, "start must be positive, and decay from 0 to 1");
    if (!(c->gamma >= 0.0 && c->gamma <= 100.0 && c->alpha <= 1.0 && c->beta >= 0.0))
        return refuse(why, size, "alpha must be at most 1, gamma from 0 to 100, beta not negative");
    if (!(c->select.score >= 0.0 && c->select.score <= 1.0 && c->select.overlap >= 0.0 &&
          c->select.overlap <= 1.0))
        return refuse(why, size, "score and overlap must be from 0 to 1");
    if (!tp__matcher_ok(&c->matcher))
        return refuse(
            why, size,
            "a matcher has 1 to 4 ascending thresholds from 0 to 1, and labels -1, 0 and 1");
    if (c->select.candidates < 1 || c->select.candidates > MAX_CANDIDATES || c->select.most < 1 ||
        c->select.most > MAX_DETECTIONS)
        return refuse(why, size,
                      "there must be at least one candidate and one detection, at most 2^31 - 1 "
                      "candidates and 1000000 detections");
    return true;
}

/* ---- heads ---- */

/* Bias such that objects have the probability *env. */
static tp_init score_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    const double prior = *(const double *)env;
    (void)name, (void)dflt;
    return s.ndim > 1 ? (tp_init){ TP_INIT_NORMAL, 0.01, 0.0 }
                      : (tp_init){ TP_INIT_CONST, -log((1.0 - prior) / prior), 0.0 };
}

static const tp_conv_cfg same = { .pad = { 1, 1 } };

static void init_tower(tp_params *P, tp_conv2d_m *m, const char *name, int64_t dim, int convs)
{
    tp_push(P, name);
    for (int i = 0; i < convs; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", 2 * i);
        tp_conv2d_init(P, &m[i], text, dim, dim, 3, true, same);
    }
    tp_pop(P);
}

void tp_retinanet_head_init(tp_params *P, tp_retinanet_head *m, const char *name,
                            const tp_retinanet_cfg *c)
{
    if (!tp_params_want_module(P, m, "RetinaNet head")) return;
    const int64_t cells = (int64_t)c->anchors.sizes * c->anchors.ratios;
    double prior = c->prior;
    *m = (tp_retinanet_head){ .path = tp_push(P, name), .convs = c->convs, .classes = c->classes };
    tp_params_init_rule(P, tp__init_weights, &(tp_init){ TP_INIT_NORMAL, 0.01, 0.0 });
    init_tower(P, m->cls, "cls_subnet", c->dim, c->convs);
    init_tower(P, m->box, "bbox_subnet", c->dim, c->convs);
    tp_conv2d_init(P, &m->offset, "bbox_pred", c->dim, 4 * cells, 3, true, same);
    tp_params_init_rule(P, score_rule, &prior);
    tp_conv2d_init(P, &m->score, "cls_score", c->dim, c->classes * cells, 3, true, same);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* Applies a tower and its last convolution to x [B,h,w,dim]: [B,anchors,each]. */
static tp_tensor tower(tp_tape *T, const tp_conv2d_m *m, int convs, const tp_conv2d_m *last,
                       tp_tensor x, int64_t each)
{
    for (int i = 0; i < convs; i++) x = tp_conv2d_forward_relu(T, &m[i], x, TP_NONE);
    return tp_reshape(T, tp_conv2d_forward(T, last, x), TP_SHAPE(tp_dim(x, 0), -1, each));
}

tp_retinanet_out tp_retinanet_head_forward(tp_tape *T, const tp_retinanet_head *m,
                                           const tp_pyramid *p)
{
    tp_tensor result[2 * TP_ANCHOR_LEVELS];
    if (!tp_want_module(T, m, "RetinaNet head") || !tp_want(T, p, "RetinaNet head", "a pyramid"))
        return (tp_retinanet_out){ 0 };
    tp_retinanet_out out = { .levels = p->levels };
    tp_enter(T, m->path);
    for (int k = 0; k < p->levels; k++) {
        const tp_tensor x = p->map[k];
        result[2 * k] = tower(T, m->cls, m->convs, &m->score, x, m->classes);
        result[2 * k + 1] = tower(T, m->box, m->convs, &m->offset, x, 4);
    }
    tp_leave_n(T, 2 * p->levels, result);
    for (int k = 0; k < p->levels; k++) {
        out.size[k][0] = tp_dim(p->map[k], 1);
        out.size[k][1] = tp_dim(p->map[k], 2);
        out.logit[k] = result[2 * k];
        out.offset[k] = result[2 * k + 1];
    }
    return out;
}

/* ---- the network ---- */

static void init(tp_params *P, void *module, const char *name, const void *own)
{
    const tp_retinanet_cfg *cfg = own;
    tp_retinanet *m = module;
    char why[300];
    *m = (tp_retinanet){ .params = P, .cfg = *cfg, .normalizer = TP_NONE };
    if (!check(cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "%s", why);
        return;
    }
    tp_fpn_cfg fpn = tp_fpn_of(&cfg->backbone, cfg->dim, cfg->plain ? TP_FPN_PLAIN : TP_FPN_RELU);
    fpn.average = cfg->average;
    m->path = tp_push(P, name);
    tp_backbone_init(P, &m->backbone, "backbone.bottom_up", &cfg->backbone);
    tp_fpn_init(P, &m->fpn, "backbone", fpn);
    tp_retinanet_head_init(P, &m->head, "head", cfg);
    if (cfg->profile == TP_DETECTRON2)
        m->normalizer = tp_buffer(P, "loss_normalizer", TP_F64, TP_SCALAR, &cfg->start);
    tp_pop(P);
}

tp_pyramid tp_retinanet_pyramid(tp_tape *T, const tp_retinanet *m, tp_tensor images)
{
    tp_tensor map[TP_BACKBONE_STAGES];
    if (!tp_want_module(T, m, "RetinaNet") ||
        !tp__detection_check_images(T, "RetinaNet", m->params, images))
        return (tp_pyramid){ 0 };
    tp_backbone_forward(T, &m->backbone, images, map);
    return tp_fpn_forward(T, &m->fpn, map + 1);
}

/* ---- inference ---- */

/* Copies image b of x [B,n,K] to host. */
static bool read_image(tp_tape *T, tp_tensor x, int64_t b, float *host)
{
    tp_tensor y = tp_slice(T, x, 0, b, 1);
    if (tp_dtype_of(y) != TP_F32) y = tp_cast(T, y, TP_F32);
    return tp_read(T, y, host, (size_t)tp_numel(y) * sizeof *host);
}

/* logit, offset: room for one image's outputs. */
static bool detect_image(tp_tape *T, const tp_retinanet_cfg *c, const tp_retinanet_out *out,
                         const tp_anchor_list *a, int64_t b, const int64_t size[2], float *logit,
                         float *offset, tp_detected *found)
{
    tp_level level[TP_ANCHOR_LEVELS];
    tp_select_cfg select = c->select;
    select.profile = c->profile;
    select.coder = c->coder;
    select.height = size[0];
    select.width = size[1];
    for (int k = 0; k < out->levels; k++) {
        const int64_t first = a->first[k];
        level[k] = (tp_level){ a->box + first, logit + first * c->classes, offset + 4 * first,
                               a->first[k + 1] - first };
        if (!read_image(T, out->logit[k], b, logit + first * c->classes)) return false;
        if (!read_image(T, out->offset[k], b, offset + 4 * first)) return false;
    }
    found->found = malloc((size_t)select.most * sizeof *found->found);
    if (found->found)
        found->n = tp_select_retinanet(&select, level, out->levels, c->classes, found->found);
    if (found->found && found->n >= 0) return true;
    tp_raise(T, TP_E_MEMORY, "no memory for the detections of image %lld", (long long)b);
    return false;
}

bool tp_retinanet_detect_of(tp_tape *T, const tp_retinanet_cfg *c, const tp_retinanet_out *out,
                            const int64_t (*size)[2], tp_detected *found)
{
    if (!c) {
        tp_raise_here(T, TP_E_STATE,
                      "retinanet_detect_of: NULL was given in place of a configuration");
        return false;
    }
    if (!tp_ok(T)) return false;
    const int64_t B = tp_dim(out->logit[0], 0);
    const bool recorded = tp_record(T, false);
    tp_anchor_list a;
    memset(found, 0, (size_t)B * sizeof *found);
    bool ok = tp__anchor_list(&a, &c->anchors, out->levels, out->size);
    float *logit = malloc((size_t)(a.n * c->classes + 1) * sizeof *logit);
    float *offset = malloc((size_t)(4 * a.n + 1) * sizeof *offset);
    if (!ok || !logit || !offset) {
        tp_raise(T, TP_E_MEMORY, "no memory for the outputs of %lld anchors", (long long)a.n);
        ok = false;
    }
    for (int64_t b = 0; ok && b < B; b++)
        ok = detect_image(T, c, out, &a, b, size[b], logit, offset, &found[b]);
    for (int64_t b = 0; !ok && b < B; b++) tp_detected_free(&found[b]);
    free(a.box);
    free(logit);
    free(offset);
    tp_record(T, recorded);
    return ok;
}

static bool detect(tp_tape *T, const void *module, const tp_detection_in *in, tp_detected *found)
{
    const tp_retinanet *m = module;
    const bool recorded = tp_record(T, false);
    memset(found, 0, (size_t)tp_dim(in->images, 0) * sizeof *found);
    const tp_pyramid p = tp_retinanet_pyramid(T, m, in->images);
    const tp_retinanet_out out = tp_retinanet_head_forward(T, &m->head, &p);
    const bool ok = tp_retinanet_detect_of(T, &m->cfg, &out, in->size, found);
    tp_record(T, recorded);
    return ok;
}

/* ---- the constant ---- */

static void preset(void *cfg, const tp_backbone_cfg *backbone, int64_t classes,
                   tp_detection_profile profile, bool mini)
{
    tp_retinanet_cfg *c = cfg;
    *c = tp_retinanet_default(backbone, classes, profile);
    if (!mini) return;
    c->dim = 64;
    c->convs = 2;
    tp__anchors_halve(&c->anchors);
}

static tp_detector_parts parts(void *cfg)
{
    tp_retinanet_cfg *c = cfg;
    return (tp_detector_parts){ &c->backbone, &c->anchors,      &c->matcher,
                                c->classes,   &c->select.score, &c->select.most };
}

static tp_backbone *backbone_of(void *m)
{
    return &((tp_retinanet *)m)->backbone;
}

static void forward(tp_tape *T, const void *module, tp_tensor images)
{
    const tp_retinanet *m = module;
    const tp_pyramid p = tp_retinanet_pyramid(T, m, images);
    tp_retinanet_head_forward(T, &m->head, &p);
}

static void print_sizes(const void *cfg, char *text, size_t size)
{
    tp__anchor_sizes_print(&((const tp_retinanet_cfg *)cfg)->anchors, text, size);
}

static bool parse_sizes(void *cfg, const char *text, char *why, size_t size)
{
    return tp__anchor_sizes_parse(&((tp_retinanet_cfg *)cfg)->anchors, text, why, size);
}

#define AT(member) offsetof(tp_retinanet_cfg, member)
static const tp_model_member members[] = {
    { "frozen", TP_MEMBER_INT, .at = AT(backbone.frozen) },
    { "dim", TP_MEMBER_INT64, .at = AT(dim), .least = 1, .most = MAX_WIDTH },
    { "average", TP_MEMBER_FLAG, .at = AT(average) },
    { "plain", TP_MEMBER_FLAG, .at = AT(plain) },
    { "convs", TP_MEMBER_INT, .at = AT(convs), .most = TP_RETINANET_CONVS },
    { "prior", TP_MEMBER_REAL, .at = AT(prior) },
    { "anchors.size", TP_MEMBER_TEXT, .print = print_sizes, .parse = parse_sizes },
    { "anchors.ratio", TP_MEMBER_REALS, .at = AT(anchors.ratio), .count = TP_ANCHOR_SIZES,
      .length = AT(anchors.ratios) },
    { "anchors.offset", TP_MEMBER_REAL, .at = AT(anchors.offset) },
    { "matcher.threshold", TP_MEMBER_REALS, .at = AT(matcher.threshold), .count = 2 },
    { "matcher.low_quality", TP_MEMBER_FLAG, .at = AT(matcher.low_quality) },
    { "alpha", TP_MEMBER_REAL, .at = AT(alpha) },
    { "gamma", TP_MEMBER_REAL, .at = AT(gamma) },
    { "beta", TP_MEMBER_REAL, .at = AT(beta) },
    { "giou", TP_MEMBER_FLAG, .at = AT(giou) },
    { "coder.weight", TP_MEMBER_REALS, .at = AT(coder.weight), .count = 4 },
    { "start", TP_MEMBER_REAL, .at = AT(start) },
    { "decay", TP_MEMBER_REAL, .at = AT(decay) },
    { "select.score", TP_MEMBER_REAL, .at = AT(select.score) },
    { "select.overlap", TP_MEMBER_REAL, .at = AT(select.overlap) },
    { "select.candidates", TP_MEMBER_INT64, .at = AT(select.candidates), .least = 1,
      .most = MAX_CANDIDATES },
    { "select.most", TP_MEMBER_INT64, .at = AT(select.most), .least = 1, .most = MAX_DETECTIONS },
    { 0 },
};

static const char *const terms[] = { "loss_cls", "loss_box_reg", NULL };

/* ViL's paper, Table 6: its parameters include an unused classifier, and ViL has absolute
 * positions. For ResNets it counts trained parameters and those of norms, and multiply-adds by an
 * unknown rule: of these only ResNet50's are here. */
static const tp_detector_figures figures[] = {
    { "vil-tiny", 16.64, 182.7 }, { "vil-small", 35.68, 254.8 }, { "vil-medium", 50.77, 330.4 },
    { "vil-base", 66.74, 420.9 }, { "resnet18", 21.3, 0 },       { "resnet50", 37.7, 239.3 },
    { "resnet101", 56.7, 0 },     { "pvt-tiny", 23.0, 0 },       { "pvt-small", 34.2, 0 },
    { "pvt-medium", 53.9, 0 },    { "pvt-large", 71.1, 0 },      { 0 },
};

const tp_detector_kind tp_detector_retinanet = {
    .name = "retinanet",
    .title = "RetinaNet",
    .cfg_size = sizeof(tp_retinanet_cfg),
    .size = sizeof(tp_retinanet),
    .relus = true,
    .terms = terms,
    .figures = figures,
    .preset = preset,
    .check = check,
    .parts = parts,
    .members = members,
    .init = init,
    .backbone = backbone_of,
    .losses = tp__retinanet_losses,
    .detect = detect,
    .forward = forward,
};
