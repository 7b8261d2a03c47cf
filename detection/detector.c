/* detector.c - presets of detectors, and the choice between the two kinds. */
#include <tapegrad/detection/detector.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "anchor_list.h"

/* ---- presets ---- */

static const char *const kinds[] = { "retinanet-", "mask-rcnn-" };

/* Names, and what ViL's paper prints in Tables 6 (RetinaNet), 7 (Mask R-CNN) and 8 (attentions). Its parameters include
 * a classifier that is not used, and ViL's are those with absolute positions. Of ResNets it counts trained parameters
 * and those of norms, and the multiply-adds by a rule that is not known. */
/* clang-format off */
#define NONE(name) { name, 0, 0 }
#define VIL_OTHERS(name) \
    NONE(name "-sra64"), NONE(name "-sra32"), NONE(name "-global"), NONE(name "-performer"), NONE(name "-partial"), \
    NONE(name "-partial-sra32"), NONE(name "-partial-global"), NONE(name "-partial-performer")
#define MINI(kind) NONE(kind "vil-mini"), NONE(kind "resnet-mini"), NONE(kind "pvt-mini")
#define PVT(kind) \
    NONE(kind "pvt-tiny"), NONE(kind "pvt-small"), NONE(kind "pvt-medium"), NONE(kind "pvt-large"), \
    NONE(kind "pvt2-b0"), NONE(kind "pvt2-b1"), NONE(kind "pvt2-b2"), NONE(kind "pvt2-b3"), NONE(kind "pvt2-b4"), \
    NONE(kind "pvt2-b5"), NONE(kind "pvt2-b2-li")
static const tp_detector_row rows[] = {
    MINI("retinanet-"),
    { "retinanet-vil-tiny", 16.64, 182.7 },   NONE("retinanet-vil-tiny-ape"),   VIL_OTHERS("retinanet-vil-tiny"),
    { "retinanet-vil-small", 35.68, 254.8 },  NONE("retinanet-vil-small-ape"),  VIL_OTHERS("retinanet-vil-small"),
    { "retinanet-vil-medium", 50.77, 330.4 }, NONE("retinanet-vil-medium-ape"), VIL_OTHERS("retinanet-vil-medium"),
    { "retinanet-vil-base", 66.74, 420.9 },   NONE("retinanet-vil-base-ape"),   VIL_OTHERS("retinanet-vil-base"),
    NONE("retinanet-resnet18"), NONE("retinanet-resnet34"),
    { "retinanet-resnet50", 37.7, 239.3 },
    NONE("retinanet-resnet101"),
    PVT("retinanet-"),
    MINI("mask-rcnn-"),
    { "mask-rcnn-vil-tiny", 26.9, 145.6 },    NONE("mask-rcnn-vil-tiny-ape"),   VIL_OTHERS("mask-rcnn-vil-tiny"),
    { "mask-rcnn-vil-small", 45.0, 218.3 },
    { "mask-rcnn-vil-small-ape", 45.0, 218.3 },
    { "mask-rcnn-vil-small-sra64", 73.3, 224.1 },
    { "mask-rcnn-vil-small-sra32", 51.5, 268.3 },
    { "mask-rcnn-vil-small-global", 45.2, 226.4 },
    { "mask-rcnn-vil-small-performer", 45.0, 251.5 },
    { "mask-rcnn-vil-small-partial", 45.0, 326.8 },
    { "mask-rcnn-vil-small-partial-sra32", 46.8, 352.1 },
    { "mask-rcnn-vil-small-partial-global", 45.1, 326.5 },
    { "mask-rcnn-vil-small-partial-performer", 45.0, 343.7 },
    { "mask-rcnn-vil-medium", 60.1, 293.8 },  NONE("mask-rcnn-vil-medium-ape"), VIL_OTHERS("mask-rcnn-vil-medium"),
    { "mask-rcnn-vil-base", 76.1, 384.4 },    NONE("mask-rcnn-vil-base-ape"),   VIL_OTHERS("mask-rcnn-vil-base"),
    { "mask-rcnn-resnet18", 31.2, 0 },
    NONE("mask-rcnn-resnet34"),
    { "mask-rcnn-resnet50", 44.2, 0 },
    NONE("mask-rcnn-resnet101"),
    PVT("mask-rcnn-"),
};
/* clang-format on */

const tp_detector_row *tp_detector_at(int i)
{
    return i >= 0 && i < (int)(sizeof rows / sizeof *rows) ? &rows[i] : NULL;
}

const char *tp_detector_known(int i)
{
    const tp_detector_row *row = tp_detector_at(i);
    return row ? row->name : NULL;
}

static void scale_anchors(tp_anchor_cfg *a, double by)
{
    for (int l = 0; l < a->levels; l++)
        for (int s = 0; s < a->sizes; s++) a->size[l][s] *= by;
}

enum { MINI_DIM = 64, MINI_HIDDEN = 256 };

static void make_mini_retinanet(tp_retinanet_cfg *c)
{
    c->dim = MINI_DIM;
    c->convs = 2;
    scale_anchors(&c->anchors, 0.5);
}

static void make_mini_mask_rcnn(tp_mask_rcnn_cfg *c)
{
    scale_anchors(&c->rpn.anchors, 0.5);
    c->canonical /= 4;
    c->rpn.samples = 64;
    c->samples = 32;
    for (int k = 0; k < 2; k++) c->rpn.candidates[k] = c->rpn.most[k] = 200;
    c->box.hidden[0] = c->box.hidden[1] = MINI_HIDDEN;
    c->mask.layers = 2;
    c->mask.dim = MINI_DIM;
}

bool tp_detector_preset(tp_detector_cfg *c, const char *name, int64_t classes,
                        tp_detection_profile profile, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "detector_preset: NULL was given in place of a configuration");
        return false;
    }
    const bool retina = strncmp(name, kinds[0], strlen(kinds[0])) == 0;
    *c = (tp_detector_cfg){ .kind = retina ? TP_RETINANET : TP_MASK_RCNN };
    if (!retina && strncmp(name, kinds[1], strlen(kinds[1])) != 0) {
        snprintf(why, size, "'%.60s' is neither retinanet-BACKBONE nor mask-rcnn-BACKBONE", name);
        return false;
    }
    tp_backbone_cfg backbone;
    const char *base = name + strlen(kinds[retina ? 0 : 1]);
    if (!tp_backbone_preset(&backbone, base, profile, why, size)) return false;
    const size_t n = strlen(base);
    const bool mini = n > 5 && strcmp(base + n - 5, "-mini") == 0;
    if (retina) {
        c->of.retinanet = tp_retinanet_default(&backbone, classes, profile);
        if (mini) make_mini_retinanet(&c->of.retinanet);
    } else {
        c->of.mask_rcnn = tp_mask_rcnn_config(backbone, profile);
        if (mini) make_mini_mask_rcnn(&c->of.mask_rcnn);
        tp_mask_rcnn_sizes(&c->of.mask_rcnn, mini ? MINI_DIM : 256, classes);
    }
    return tp_detector_check(c, why, size);
}

bool tp_detector_check(const tp_detector_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "detector_check: NULL was given in place of a configuration");
        return false;
    }
    return c->kind == TP_RETINANET ? tp_retinanet_check(&c->of.retinanet, why, size)
                                   : tp_mask_rcnn_check(&c->of.mask_rcnn, why, size);
}

tp_backbone_cfg *tp_detector_backbone(tp_detector_cfg *c)
{
    return c->kind == TP_RETINANET ? &c->of.retinanet.backbone : &c->of.mask_rcnn.backbone;
}

const tp_anchor_cfg *tp_detector_anchors(const tp_detector_cfg *c)
{
    return c->kind == TP_RETINANET ? &c->of.retinanet.anchors : &c->of.mask_rcnn.rpn.anchors;
}

const tp_matcher *tp_detector_matcher(const tp_detector_cfg *c)
{
    return c->kind == TP_RETINANET ? &c->of.retinanet.matcher : &c->of.mask_rcnn.rpn.matcher;
}

int64_t tp_detector_classes(const tp_detector_cfg *c)
{
    if (!c) return 0;
    return c->kind == TP_RETINANET ? c->of.retinanet.classes : c->of.mask_rcnn.box.classes;
}

bool tp_detector_has_masks(const tp_detector_cfg *c)
{
    if (!c) return false;
    return c->kind == TP_MASK_RCNN;
}

void tp_detector_limit(tp_detector_cfg *c, double score, int64_t most)
{
    if (!c) return;
    if (c->kind == TP_RETINANET) {
        c->of.retinanet.select.score = score;
        c->of.retinanet.select.most = most;
    } else {
        c->of.mask_rcnn.score = score;
        c->of.mask_rcnn.most = most;
    }
}

/* ---- the model ---- */

void tp_detector_init(tp_params *P, tp_detector *m, const char *name, const tp_detector_cfg *c)
{
    if (!m) {
        tp_params_raise(P, TP_E_STATE, "detector_init: NULL was given in place of a detector");
        return;
    }
    *m = (tp_detector){ .kind = c->kind };
    if (c->kind == TP_RETINANET)
        tp_retinanet_init(P, &m->of.retinanet, name, &c->of.retinanet);
    else
        tp_mask_rcnn_init(P, &m->of.mask_rcnn, name, &c->of.mask_rcnn);
}

bool tp_detector_load_backbone(tp_params *P, const tp_detector *m, const char *path, char *why,
                               size_t size)
{
    if (!m) {
        if (why)
            snprintf(why, size, "detector_load_backbone: NULL was given in place of a detector");
        return false;
    }
    const tp_backbone *b =
        m->kind == TP_RETINANET ? &m->of.retinanet.backbone : &m->of.mask_rcnn.backbone;
    tp_file *F = tp_file_open(path);
    const bool done = tp_file_ok(F) && tp_backbone_load(P, b, F);
    if (!done) snprintf(why, size, "%s", tp_file_ok(F) ? tp_params_why(P) : tp_file_why(F));
    tp_file_close(F);
    return done;
}

bool tp_detector_fuse(tp_params *P, tp_detector *m)
{
    if (!tp_params_want_module(P, m, "detector")) return false;
    return tp_backbone_fuse(P, m->kind == TP_RETINANET ? &m->of.retinanet.backbone
                                                       : &m->of.mask_rcnn.backbone);
}

tp_detection_losses tp_detector_losses(tp_tape *T, tp_detector *m, const tp_detection_in *in)
{
    if (!tp_want_module(T, m, "detector")) return (tp_detection_losses){ 0 };
    if (m->kind == TP_RETINANET) return tp_retinanet_losses(T, &m->of.retinanet, in);
    return tp_mask_rcnn_losses(T, &m->of.mask_rcnn, in, NULL);
}

bool tp_detector_detect(tp_tape *T, const tp_detector *m, const tp_detection_in *in,
                        tp_detected *out)
{
    if (!tp_want_module(T, m, "detector")) return false;
    if (m->kind == TP_RETINANET) return tp_retinanet_detect(T, &m->of.retinanet, in, out);
    return tp_mask_rcnn_detect(T, &m->of.mask_rcnn, in, out);
}

/* ---- anchors ---- */

double tp_detector_matched(const tp_detector_cfg *c, int64_t height, int64_t width,
                           const tp_objects *objects, int64_t images)
{
    if (!c) return 0;
    const tp_anchor_cfg *a = tp_detector_anchors(c);
    int64_t size[TP_ANCHOR_LEVELS][2], n = 0, matched = 0;
    for (int l = 0; l < a->levels; l++) {
        size[l][0] = (int64_t)ceil((double)height / a->stride[l]);
        size[l][1] = (int64_t)ceil((double)width / a->stride[l]);
    }
    tp_anchor_list list;
    bool done = tp__anchor_list(&list, a, a->levels, (const int64_t(*)[2])size);
    int64_t *match = malloc((size_t)(list.n + 1) * sizeof *match);
    int *label = malloc((size_t)(list.n + 1) * sizeof *label);
    done = done && match && label;
    for (int64_t i = 0; i < images && done; i++) {
        done = tp_match_boxes(tp_detector_matcher(c), objects[i].box, objects[i].n, list.box,
                              list.n, match, label);
        for (int64_t k = 0; done && k < list.n; k++) matched += label[k] == 1;
        n += objects[i].n;
    }
    free(list.box);
    free(match);
    free(label);
    return done && n > 0 ? (double)matched / (double)n : (double)NAN;
}
