/* backbone.c - PVT and PVTv2 as backbones of detectors, by their names in the table of models. */
#include <string.h>

#include "inner.h"

static const char *const names[] = { "pvt-mini",  "pvt-tiny", "pvt-small", "pvt-medium",
                                     "pvt-large", "pvt2-b0",  "pvt2-b1",   "pvt2-b2",
                                     "pvt2-b3",   "pvt2-b4",  "pvt2-b5",   "pvt2-b2-li",
                                     NULL };

static bool preset(void *cfg, int *frozen, const char *name, tp_detection_profile profile)
{
    tp_model_cfg model;
    char why[256];
    (void)frozen;
    (void)profile;
    if (strncmp(name, "pvt", 3) != 0 || !tp_model_preset(&model, name, why, sizeof why) ||
        model.model != &tp_model_pvt)
        return false;
    memcpy(cfg, &model.at, sizeof(tp_pvt_cfg));
    return true;
}

static bool maps(const void *cfg, int64_t channels[TP_BACKBONE_STAGES], char *why, size_t size)
{
    const tp_pvt_cfg *c = cfg;
    if (!tp_pvt_cfg_check(c, why, size)) return false;
    memcpy(channels, c->dim, sizeof c->dim);
    return true;
}

static void features(tp_tape *T, const void *m, tp_tensor images, tp_tensor map[TP_BACKBONE_STAGES])
{
    tp_pvt_features(T, m, images, map);
}

const tp_backbone_kind tp__pvt_backbone = {
    .names = names, .preset = preset, .maps = maps, .features = features
};
