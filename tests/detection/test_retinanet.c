/* test_retinanet.c - RetinaNet: counts, matching without the matrix, losses of batches with and
 * without objects, the moving normaliser, generalised IoU, detections, refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/detection.h>
#include <tapegrad/resnet.h>
#include <tapegrad/tapegrad.h>

#include "support/detectors.h"
#include "support/device.h"
#include "support/folder.h"
#include "support/models.h"

/* ---- counts ---- */

static tp_retinanet_cfg published(const char *name, tp_detection_profile profile)
{
    const tp_backbone_cfg b = detectors_backbone(name, profile);
    return tp_retinanet_default(&b, 80, profile);
}

/* The papers also count the classifier's final norm and head, which is `unused` parameters. */
Test(retinanet, published_counts)
{
    static const struct {
        const char *name;
        int64_t count, unused;
    } rows[] = {
        { "vil-tiny", 16604390, 385768 },   { "vil-tiny-ape", 16642172, 385768 },
        { "vil-small", 35602148, 770536 },  { "vil-small-ape", 35681372, 770536 },
        { "vil-medium", 50727116, 770536 }, { "vil-medium-ape", 50766812, 770536 },
        { "vil-base", 66746204, 770536 },   { "vil-base-ape", 66741980, 770536 },
        { "resnet50", 37915572, 0 },
    };
    static tp_retinanet m;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tp_retinanet_cfg c = published(rows[i].name, TP_DETECTRON2);
        tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
        tp_params *P = tp_params_new(D, &(tp_params_opts){ .blank = true });
        tp_detector_retinanet.init(P, &m, "", &c);
        cr_expect(tp_params_ok(P) && tp_params_count(P) == rows[i].count - rows[i].unused,
                  "%s: %lld parameters; %s", rows[i].name, (long long)tp_params_count(P),
                  tp_params_why(P));
        tp_params_free(P);
        tp_device_close(D);
    }
}

/* ---- matching without the matrix ---- */

static double draw(uint32_t *seed, double most)
{
    *seed = *seed * 1664525u + 1013904223u;
    return most * (double)(*seed >> 8) / 16777216.0;
}

/* Boxes on a grid of 16, so that many overlaps are equal; some are far from all others. */
static void draw_boxes(tp_corners *box, int64_t n, double far, uint32_t *seed)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = floor(draw(seed, 20.0)) * 16.0, y = floor(draw(seed, 20.0)) * 16.0;
        const double shift = i % 7 == 6 ? far : 0.0;
        box[i] = (tp_corners){ x + shift, y, x + shift + 16.0 * (1.0 + floor(draw(seed, 6.0))),
                               y + 16.0 * (1.0 + floor(draw(seed, 6.0))) };
    }
}

Test(retinanet, matching_without_the_matrix)
{
    enum { N = 1500, OBJECTS = 20 };
    static tp_corners box[N], object[OBJECTS];
    static double iou[N * OBJECTS];
    static int64_t match[2][N];
    static int label[2][N];
    const tp_matcher matchers[] = { tp_matcher_retinanet(TP_DETECTRON2),
                                    tp_matcher_retinanet(TP_MMDETECTION),
                                    tp_matcher_rpn(TP_DETECTRON2), tp_matcher_rpn(TP_MMDETECTION),
                                    tp_matcher_roi() };
    uint32_t seed = 3;
    for (int i = 0; i < 60; i++) {
        const tp_matcher *m = &matchers[i % 5];
        const int64_t n = i < 5    ? 0
                          : i < 10 ? 1
                                   : 1 + (int64_t)draw(&seed, N),
                      objects = i % 12 == 11 ? 0 : (int64_t)draw(&seed, OBJECTS);
        draw_boxes(box, n, 0.0, &seed);
        draw_boxes(object, objects, i % 2 ? 1000.0 : 0.0, &seed);
        tp_corners_iou_all(object, objects, box, n, iou);
        tp_match(m, iou, objects, n, match[0], label[0]);
        cr_assert(tp_match_boxes(m, object, objects, box, n, match[1], label[1]));
        for (int64_t j = 0; j < n; j++)
            cr_assert(match[0][j] == match[1][j] && label[0][j] == label[1][j], "%d: box %lld", i,
                      (long long)j);
    }
}

/* ---- a small model ---- */

static tp_retinanet_cfg small(tp_detection_profile profile)
{
    const tp_backbone_cfg b = detectors_small_backbone();
    tp_retinanet_cfg c = tp_retinanet_default(&b, 3, profile);
    c.dim = 8;
    c.convs = 1;
    return c;
}

static void make(detectors_rig *r, const tp_retinanet_cfg *c)
{
    detectors_make(r, &tp_detector_retinanet, c, NULL);
}

static tp_retinanet *net(const detectors_rig *r)
{
    return r->m.module;
}

/* Names and initial values of the head, and of the buffer. */
Test(retinanet, initial_values)
{
    static detectors_rig r;
    double bias[27], z = 0.0;
    const tp_retinanet_cfg c = small(TP_DETECTRON2);
    make(&r, &c);
    const tp_tensor b = tp_find(r.P, "head.cls_score.bias");
    cr_assert(tp_param_get(r.P, b, TP_F64, bias, sizeof bias), "%s", tp_params_why(r.P));
    for (int i = 0; i < 27; i++) cr_expect_float_eq(bias[i], -log(99.0), 1e-6);
    cr_expect(tp_given(tp_find(r.P, "head.bbox_subnet.0.weight")) &&
              tp_given(tp_find(r.P, "backbone.top_block.p7.weight")) &&
              tp_given(tp_find(r.P, "backbone.bottom_up.stem.conv1.weight")) ==
                  tp_given(tp_find(r.P, "backbone.bottom_up.stem.conv1.norm.weight")));
    cr_expect(tp_param_get(r.P, tp_find(r.P, "loss_normalizer"), TP_F64, &z, sizeof z) && z == 100);
    detectors_release(&r);
}

/* Objects in both images, in one, in none: losses are finite, backward reaches everything, and the
 * gradients of boxes without objects are zero. */
Test(retinanet, images_without_objects)
{
    static detectors_rig r;
    for (int i = 0; i < 12; i++) {
        const int images = i % 3;
        tp_retinanet_cfg c = small(i % 2 ? TP_MMDETECTION : TP_DETECTRON2);
        c.giou = i >= 6;
        make(&r, &c);
        for (int b = 0; b < images; b++) r.objects[b] = detectors_scene;
        const tp_detection_losses l = tp_detector_losses(r.T, &r.m, &r.in);
        cr_assert(tp_ok(r.T) && l.n == 2, "%s", tp_why(r.T));
        const double cls = tp_item(r.T, l.term[0]), box = tp_item(r.T, l.term[1]);
        cr_expect(isfinite(cls) && cls > 0.0 && isfinite(box) && (images ? box > 0.0 : box == 0.0),
                  "%d: %g, %g", i, cls, box);
        cr_expect_float_eq(tp_item(r.T, l.total), cls + box, 1e-4 * (cls + box));
        tp_backward(r.T, l.total);
        cr_assert(tp_ok(r.T), "%s", tp_why(r.T));
        for (tp_param_info it = { 0 }; tp_next_param(r.P, &it);) {
            if (it.buffer || it.frozen) continue;
            const double norm = detectors_gradient(r.P, &it);
            const bool idle = !images && strstr(it.name, "bbox_");
            cr_expect(isfinite(norm) && (!idle || norm == 0.0), "%s: %g", it.name, norm);
        }
        detectors_release(&r);
    }
}

/* ---- the normaliser ---- */

static double normalizer_of(detectors_rig *r)
{
    double z = 0.0;
    cr_assert(tp_param_get(r->P, net(r)->normalizer, TP_F64, &z, sizeof z));
    return z;
}

/* The number of anchors with objects, counted from labels. */
static int64_t matched(detectors_rig *r)
{
    const tp_pyramid p = tp_retinanet_pyramid(r->T, net(r), r->in.images);
    const tp_retinanet_out out = tp_retinanet_head_forward(r->T, &net(r)->head, &p);
    int64_t n = 0, count = 0;
    for (int k = 0; k < out.levels; k++) n += 2 * tp_dim(out.logit[k], 1);
    int *label = malloc((size_t)n * sizeof *label);
    cr_assert(label);
    tp_retinanet_losses_of(r->T, net(r), &out, &r->in, label);
    for (int64_t i = 0; i < n; i++) count += label[i] >= 0 && label[i] < 3;
    free(label);
    return count;
}

/* It moves once per loss in training, not in evaluation, and is stored with the parameters. */
Test(retinanet, normaliser, .init = make_folder, .fini = remove_folder)
{
    static detectors_rig r;
    const tp_retinanet_cfg c = small(TP_DETECTRON2);
    const char *path = in_folder("model.safetensors");
    make(&r, &c);
    tp_train(r.T, false);
    r.objects[0] = detectors_scene;
    const int64_t count = matched(&r);
    cr_expect(count > 0 && normalizer_of(&r) == 100.0, "%lld", (long long)count);
    tp_train(r.T, true);
    double z = 100.0, loss[2];
    for (int step = 0; step < 3; step++) {
        const tp_detection_losses l = tp_detector_losses(r.T, &r.m, &r.in);
        if (step < 2) loss[step] = tp_item(r.T, l.term[0]);
        z = 0.9 * z + 0.1 * (double)count;
        cr_expect_float_eq(normalizer_of(&r), z, 1e-12 * z);
    }
    cr_expect_float_eq(loss[1] / loss[0],
                       (90.0 + 0.1 * (double)count) / (81.0 + 0.19 * (double)count), 1e-4);
    r.objects[0].n = 0;
    tp_detector_losses(r.T, &r.m, &r.in);
    z = 0.9 * z + 0.1;
    cr_expect_float_eq(normalizer_of(&r), z, 1e-12 * z, "at least 1");
    cr_assert(tp_ok(r.T) && tp_save(r.P, path), "%s %s", tp_why(r.T), tp_params_why(r.P));
    detectors_release(&r);
    make(&r, &c);
    cr_assert(tp_load(r.P, path, NULL), "%s", tp_params_why(r.P));
    cr_expect_eq(normalizer_of(&r), z);
    detectors_release(&r);
}

/* In mmdetection, an image counts as at least 1; there is no buffer. */
Test(retinanet, normaliser_of_mmdetection)
{
    static detectors_rig r;
    const tp_retinanet_cfg c = small(TP_MMDETECTION);
    make(&r, &c);
    r.objects[0] = detectors_scene;
    const int64_t count = matched(&r);
    cr_expect(!tp_given(net(&r)->normalizer) && count > 1);
    const tp_pyramid p = tp_retinanet_pyramid(r.T, net(&r), r.in.images);
    const tp_retinanet_out out = tp_retinanet_head_forward(r.T, &net(&r)->head, &p);
    const double one =
        tp_item(r.T, tp_retinanet_losses_of(r.T, net(&r), &out, &r.in, NULL).term[1]);
    r.objects[1] = detectors_scene;
    const double two =
        tp_item(r.T, tp_retinanet_losses_of(r.T, net(&r), &out, &r.in, NULL).term[1]);
    r.objects[0].n = 0;
    const double other =
        tp_item(r.T, tp_retinanet_losses_of(r.T, net(&r), &out, &r.in, NULL).term[1]);
    const double n = (double)count;
    cr_expect_float_eq(two, (one + other) * (n + 1.0) / (2.0 * n), 1e-4 * two);
    detectors_release(&r);
}

/* ---- generalised IoU ---- */

/* The loss is the sum over matched anchors of 1 - the generalised IoU of decoded boxes. */
Test(retinanet, generalised_iou)
{
    static detectors_rig r;
    tp_retinanet_cfg c = small(TP_MMDETECTION);
    c.giou = true;
    c.coder.weight[0] = c.coder.weight[1] = 2.0;
    c.coder.weight[2] = c.coder.weight[3] = 0.5;
    make(&r, &c);
    r.objects[0] = r.objects[1] = detectors_scene;
    const tp_pyramid p = tp_retinanet_pyramid(r.T, net(&r), r.in.images);
    const tp_retinanet_out out = tp_retinanet_head_forward(r.T, &net(&r)->head, &p);
    const double got =
        tp_item(r.T, tp_retinanet_losses_of(r.T, net(&r), &out, &r.in, NULL).term[1]);
    double sum = 0.0, count = 0.0;
    for (int k = 0; k < out.levels; k++) {
        const int64_t n = tp_dim(out.logit[k], 1);
        tp_corners *anchor = malloc((size_t)n * sizeof *anchor);
        float *offset = malloc((size_t)n * 8 * sizeof *offset);
        cr_assert(anchor && offset &&
                  tp_read(r.T, out.offset[k], offset, (size_t)n * 8 * sizeof *offset));
        tp_anchors(&c.anchors, k, out.size[k][0], out.size[k][1], anchor);
        for (int64_t i = 0; i < 2 * n; i++) {
            /* Objects do not overlap, so an anchor of at least 0.5 belongs to one of them; so do
             * their best ones, all at least 0.5 here. */
            double best = 0.0;
            int which = 0;
            for (int o = 0; o < 3; o++)
                if (tp_corners_iou(detectors_boxes[o], anchor[i % n]) > best)
                    best = tp_corners_iou(detectors_boxes[o], anchor[i % n]), which = o;
            if (best < 0.5) continue;
            const double d[4] = { offset[4 * i], offset[4 * i + 1], offset[4 * i + 2],
                                  offset[4 * i + 3] };
            sum += 1.0 - tp_corners_giou(tp_box_decode(&c.coder, anchor[i % n], d),
                                         detectors_boxes[which], 1e-7);
            count += 1.0;
        }
        free(anchor);
        free(offset);
    }
    cr_expect(count > 3.0);
    cr_expect_float_eq(got, sum / count, 1e-4 * got, "%g, %g of %g anchors", got, sum / count,
                       count);
    detectors_release(&r);
}

/* ---- detections ---- */

/* A few steps on one scene: the loss falls, and the best detection is an object. */
Test(retinanet, learns)
{
    static detectors_rig r;
    if (device_is_emulated()) cr_skip_test("too slow");
    for (int profile = TP_DETECTRON2; profile <= TP_MMDETECTION; profile++) {
        tp_retinanet_cfg c = small((tp_detection_profile)profile);
        c.prior = 0.1;
        c.dim = 16;
        make(&r, &c);
        detectors_expect_learning(&r, 80, 1e-2);
        detectors_release(&r);
    }
}

/* A dry device counts the memory of a step. */
Test(retinanet, dry)
{
    static detectors_rig r;
    const tp_retinanet_cfg c = small(TP_DETECTRON2);
    detectors_make(&r, &tp_detector_retinanet, &c,
                   tp_device_open("cpu", &(tp_device_opts){ .dry = true }));
    r.objects[0] = r.objects[1] = detectors_scene;
    const tp_detection_losses l = tp_detector_losses(r.T, &r.m, &r.in);
    tp_backward(r.T, l.total);
    cr_expect(tp_ok(r.T), "%s", tp_why(r.T));
    detectors_release(&r);
}

/* The profile decides what is between P6 and P7, unless it is set. */
Test(retinanet, top)
{
    static detectors_rig r;
    for (int i = 0; i < 4; i++) {
        const tp_detection_profile profile = i & 1 ? TP_MMDETECTION : TP_DETECTRON2;
        tp_retinanet_cfg c = small(profile);
        if (i & 2) c.plain = !c.plain;
        make(&r, &c);
        cr_expect_eq(net(&r)->fpn.cfg.top, i == 1 || i == 2 ? TP_FPN_PLAIN : TP_FPN_RELU);
        detectors_release(&r);
    }
}

/* ---- refusals ---- */

Test(retinanet, refusals)
{
    static detectors_rig r;
    static const int wrong[] = { 0, 3, 1 };
    static const tp_corners flat[] = { { 8, 8, 8, 40 } };
    const tp_retinanet_cfg c = small(TP_DETECTRON2);
    tp_detected found[2];
    make(&r, &c);
    r.objects[1] = detectors_scene;
    r.objects[1].category = wrong;
    tp_detector_losses(r.T, &r.m, &r.in);
    cr_expect(strstr(tp_why(r.T), "RetinaNet: object 1 of image 1 has category 3 of 3"), "%s",
              tp_why(r.T));
    tp_clear(r.T);
    r.objects[1] = (tp_objects){ .n = 1, .box = flat, .category = detectors_categories };
    tp_detector_losses(r.T, &r.m, &r.in);
    cr_expect(strstr(tp_why(r.T), "no area"), "%s", tp_why(r.T));
    tp_clear(r.T);
    r.in.images = models_images(r.T, 2, 64, 90);
    cr_expect(!tp_detector_detect(r.T, &r.m, &r.in, found));
    cr_expect(strstr(tp_why(r.T), "multiples of 32"), "%s", tp_why(r.T));
    detectors_release(&r);
}

/* Each change to a valid configuration gives a reason that contains the text. */
Test(retinanet, impossible)
{
    char why[300];
    for (int i = 0;; i++) {
        tp_retinanet_cfg c = small(TP_DETECTRON2);
        const char *text = NULL;
        cr_assert(tp_detector_retinanet.check(&c, why, sizeof why), "%s", why);
        switch (i) {
        case 0: c.classes = 0, text = "classes"; break;
        case 1: c.dim = 0, text = "dim"; break;
        case 2: c.convs = 9, text = "convs"; break;
        case 3: c.prior = 1.0, text = "prior"; break;
        case 4: c.anchors.levels = 4, text = "five levels"; break;
        case 5: c.anchors.ratios = 0, text = ""; break;
        case 6: c.start = 0.0, text = "start"; break;
        case 7: c.decay = NAN, text = "decay"; break;
        case 8: c.select.candidates = 0, text = "candidate"; break;
        case 9: c.gamma = -1.0, text = "gamma"; break;
        case 10: c.select.score = 1.5, text = "score"; break;
        case 11: memset(&c.backbone.model.at, 0, sizeof(tp_resnet_cfg)), text = ""; break;
        default: return;
        }
        cr_expect(!tp_detector_retinanet.check(&c, why, sizeof why) && strstr(why, text), "%d: %s",
                  i, why);
        static tp_retinanet m;
        tp_device *D = tp_device_open("cpu", NULL);
        tp_params *P = tp_params_new(D, NULL);
        tp_detector_retinanet.init(P, &m, "", &c);
        cr_expect(!tp_params_ok(P) && strstr(tp_params_why(P), why), "%s", tp_params_why(P));
        tp_params_free(P);
        tp_device_close(D);
    }
}
