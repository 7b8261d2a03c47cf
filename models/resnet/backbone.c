/* backbone.c - ResNet as a backbone of detectors. */
#include <stdio.h>
#include <string.h>

#include "inner.h"

static const char *const names[] = { "resnet-mini", "resnet18",  "resnet34",
                                     "resnet50",    "resnet101", NULL };

/* "resnet50" is "resnet-50" in the table of models. The small one is trained as a whole, with batches that are large
 * enough for batch normalisation. */
static bool preset(void *cfg, int *frozen, const char *name, tp_detection_profile profile)
{
    tp_resnet_cfg *c = cfg;
    tp_model_cfg model;
    char full[64], why[256];
    if (strncmp(name, "resnet", 6) != 0) return false;
    const char *rest = name[6] == '-' ? name + 7 : name + 6;
    snprintf(full, sizeof full, "resnet-%.40s", rest);
    if (!tp_model_preset(&model, full, why, sizeof why) || model.model != &tp_model_resnet)
        return false;
    memcpy(c, &model.at, sizeof *c);
    if (strcmp(rest, "mini") == 0) return true;
    c->frozen_norm = profile == TP_MMDETECTION;
    c->detectron = profile == TP_DETECTRON2;
    *frozen = 2;
    return true;
}

static bool maps(const void *cfg, int64_t channels[TP_BACKBONE_STAGES], char *why, size_t size)
{
    int64_t inner;
    if (!tp_resnet_cfg_check(cfg, why, size)) return false;
    for (int k = 0; k < TP_BACKBONE_STAGES; k++) tp_resnet_widths(cfg, k, &inner, &channels[k]);
    return true;
}

static void features(tp_tape *T, const void *m, tp_tensor images, tp_tensor map[TP_BACKBONE_STAGES])
{
    tp_resnet_features(T, m, images, map);
}

static void freeze_part(tp_params *P, const char *path, const char *part)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s%s", path, *path ? "." : "", part);
    tp_freeze(P, name, true);
}

static void freeze(tp_params *P, const void *module, int stages)
{
    const tp_resnet *m = module;
    const bool detectron = m->cfg.detectron;
    freeze_part(P, m->path, detectron ? "stem" : "conv1");
    if (!detectron) freeze_part(P, m->path, "bn1");
    for (int s = 1; s < stages; s++) {
        char part[32];
        snprintf(part, sizeof part, "%s%d", detectron ? "res" : "layer", s + detectron);
        freeze_part(P, m->path, part);
    }
}

static bool fuse(tp_params *P, void *m)
{
    return tp_resnet_fuse(P, m);
}

static void classifier(void *cfg)
{
    ((tp_resnet_cfg *)cfg)->detectron = false;
}

const tp_backbone_kind tp__resnet_backbone = {
    .names = names,
    .preset = preset,
    .maps = maps,
    .features = features,
    .freeze = freeze,
    .fuse = fuse,
    .classifier = classifier,
};
