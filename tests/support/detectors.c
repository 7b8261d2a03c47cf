/* detectors.c - helpers for tests of RetinaNet and Mask R-CNN. */
#include "support/detectors.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/optim.h>
#include <tapegrad/resnet.h>

#include "support/device.h"
#include "support/models.h"

tp_backbone_cfg detectors_backbone(const char *name, tp_detection_profile profile)
{
    tp_backbone_cfg c;
    char why[300] = "";
    cr_assert(tp_backbone_preset(&c, name, profile, why, sizeof why), "%s: %s", name, why);
    cr_assert(tp_backbone_check(&c, why, sizeof why), "%s: %s", name, why);
    return c;
}

tp_backbone_cfg detectors_small_backbone(void)
{
    tp_backbone_cfg b = { .model.model = &tp_model_resnet };
    const tp_resnet_cfg c = { .image = { 64, 64 },
                              .base = 8,
                              .blocks = { 1, 1, 1, 1 },
                              .groups = 1,
                              .group_width = 64,
                              .frozen_norm = true };
    memcpy(&b.model.at, &c, sizeof c);
    return b;
}

const int64_t detectors_sizes[2][2] = { { 64, 90 }, { 60, 96 } };
const tp_corners detectors_boxes[3] = { { 8, 8, 40, 40 }, { 50, 2, 82, 34 }, { 1, 30, 33, 60 } };
const int detectors_categories[3] = { 0, 2, 1 };
static const double xy[] = { 8,  8,  40, 8,  40, 40, 8,  40, 50, 34, 66, 2,  82, 34, 1,
                             30, 15, 30, 15, 60, 1,  60, 20, 30, 33, 30, 33, 60, 20, 60 };
static const int64_t part[] = { 0, 1, 2, 4 }, point[] = { 0, 4, 7, 11, 15 };
const tp_objects detectors_scene = { .n = 3,
                                     .box = detectors_boxes,
                                     .category = detectors_categories,
                                     .part = part,
                                     .point = point,
                                     .xy = xy };

double detectors_gradient(tp_params *P, const tp_param_info *it)
{
    const int64_t n = tp_numel(it->tensor);
    double *g = malloc((size_t)n * sizeof *g), squares = 0.0;
    cr_assert(it->has_grad, "%s was not reached", it->name);
    cr_assert(g && tp_param_get_grad(P, it->tensor, TP_F64, g, (size_t)n * sizeof *g));
    for (int64_t i = 0; i < n; i++) squares += g[i] * g[i];
    free(g);
    return sqrt(squares);
}

void detectors_make(detectors_rig *r, const tp_detector_kind *kind, const void *cfg, tp_device *D)
{
    tp_detector_cfg c = { .kind = kind };
    memcpy(&c.at, cfg, kind->cfg_size);
    memset(r, 0, sizeof *r);
    r->D = D ? D : device_open(&(tp_device_opts){ .threads = 2 });
    r->P = tp_params_new(r->D, &(tp_params_opts){ .seed = 7 });
    r->T = tp_tape_new(r->D, &(tp_tape_opts){ .train = true });
    tp_detector_init(r->P, &r->m, "", &c);
    r->random = tp_random_stream(1, "regions", 0, 0);
    r->in = (tp_detection_in){ .images = models_images(r->T, 2, 64, 96),
                               .size = detectors_sizes,
                               .objects = r->objects,
                               .sampling = TP_SAMPLE_RANDOM,
                               .random = &r->random };
}

void detectors_release(detectors_rig *r)
{
    tp_tape_free(r->T);
    tp_params_free(r->P);
    tp_device_close(r->D);
}

void detectors_expect_learning(detectors_rig *r, int steps, double rate)
{
    double first = 0.0, last = 0.0;
    tp_detected found[2];
    tp_optim *O = tp_adamw_new(r->P, &(tp_adamw_opts){ .weight_decay = 0.0 });
    for (int step = 0; step < steps; step++) {
        tp_reset(r->T);
        r->in.images = models_images(r->T, 2, 64, 96);
        r->objects[0] = r->objects[1] = detectors_scene;
        const tp_detection_losses l = tp_detector_losses(r->T, &r->m, &r->in);
        tp_backward(r->T, l.total);
        last = tp_item(r->T, l.total);
        if (!step) first = last;
        tp_step(O, rate);
    }
    cr_expect(tp_ok(r->T) && last < 0.5 * first, "%g to %g; %s", first, last, tp_why(r->T));
    tp_train(r->T, false);
    cr_assert(tp_detector_detect(r->T, &r->m, &r->in, found), "%s", tp_why(r->T));
    for (int b = 0; b < 2; b++) {
        const tp_found *f = found[b].found;
        double iou = 0.0;
        for (int k = 0; k < 3 && found[b].n; k++)
            if (f->category == detectors_categories[k])
                iou = fmax(iou, tp_corners_iou(f->box, detectors_boxes[k]));
        cr_expect(iou > 0.5, "image %d: %g", b, iou);
        for (int64_t i = 1; i < found[b].n; i++) cr_expect(f[i].score <= f[i - 1].score);
        tp_detected_free(&found[b]);
    }
    cr_expect(tp_record(r->T, true), "recording goes on afterwards");
    tp_optim_free(O);
}
