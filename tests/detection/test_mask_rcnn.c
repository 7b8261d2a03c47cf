/* test_mask_rcnn.c - Mask R-CNN: counts, images without objects, samples, profiles, detections,
 * refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/detection/mask_rcnn.h>
#include <tapegrad/detection/masks.h>
#include <tapegrad/resnet.h>
#include <tapegrad/tapegrad.h>

#include "support/detectors.h"
#include "support/device.h"
#include "support/models.h"

/* ---- counts ---- */

static tp_mask_rcnn_cfg published(const char *name, tp_detection_profile profile)
{
    return tp_mask_rcnn_config(detectors_backbone(name, profile), profile);
}

/* The papers also count the classifier's final norm and head, which is `unused` parameters. */
Test(mask_rcnn, published_counts)
{
    static const struct {
        const char *name;
        int64_t count, unused;
    } rows[] = {
        { "vil-tiny", 26812642, 385768 },
        { "vil-tiny-ape", 26850424, 385768 },
        { "vil-small", 44937952, 770536 },
        { "vil-small-ape", 45017176, 770536 },
        { "vil-medium", 60062920, 770536 },
        { "vil-medium-ape", 60102616, 770536 },
        { "vil-base", 76082008, 770536 },
        { "vil-base-ape", 76077784, 770536 },
        { "vil-small-sra64", 73328728, 770536 },
        { "vil-small-sra32", 51505240, 770536 },
        { "vil-small-partial-sra32", 46786648, 770536 },
        { "vil-small-global", 45237016, 770536 },
        { "vil-small-performer", 45017176, 770536 },
        { "resnet18", 31317936, 0 },
        { "resnet50", 44343216, 0 },
    };
    static tp_mask_rcnn m;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tp_mask_rcnn_cfg c = published(rows[i].name, TP_DETECTRON2);
        tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
        tp_params *P = tp_params_new(D, &(tp_params_opts){ .blank = true });
        tp_detector_mask_rcnn.init(P, &m, "", &c);
        cr_expect(tp_params_ok(P) && tp_params_count(P) == rows[i].count - rows[i].unused,
                  "%s: %lld parameters, %lld expected; %s", rows[i].name,
                  (long long)tp_params_count(P), (long long)(rows[i].count - rows[i].unused),
                  tp_params_why(P));
        tp_params_free(P);
        tp_device_close(D);
    }
}

/* ---- a small model ---- */

static tp_mask_rcnn_cfg small(tp_detection_profile profile)
{
    tp_mask_rcnn_cfg c = tp_mask_rcnn_config(detectors_small_backbone(), profile);
    c.box.hidden[0] = c.box.hidden[1] = 16;
    c.mask.dim = 8;
    c.samples = 32;
    c.rpn.samples = 32;
    c.rpn.most[0] = c.rpn.most[1] = 50;
    tp_mask_rcnn_sizes(&c, 8, 3);
    return c;
}

static void make(detectors_rig *r, const tp_mask_rcnn_cfg *c)
{
    detectors_make(r, &tp_detector_mask_rcnn, c, NULL);
}

/* Objects in both images, in one, in none: losses are finite, backward reaches everything, and
 * parts without targets get zeros. */
Test(mask_rcnn, images_without_objects)
{
    static detectors_rig r;
    for (int profile = TP_DETECTRON2; profile <= TP_MMDETECTION; profile++)
        for (int images = 0; images <= 2; images++) {
            const tp_mask_rcnn_cfg c = small((tp_detection_profile)profile);
            make(&r, &c);
            for (int b = 0; b < images; b++) r.objects[b] = detectors_scene;
            const tp_detection_losses l = tp_detector_losses(r.T, &r.m, &r.in);
            cr_assert(tp_ok(r.T) && l.n == 5, "%s", tp_why(r.T));
            for (int i = 0; i < l.n; i++) {
                const double x = tp_item(r.T, l.term[i]);
                const bool of_objects =
                    strcmp(l.name[i], "loss_rpn_cls") != 0 && strcmp(l.name[i], "loss_cls") != 0;
                cr_expect(isfinite(x) && (of_objects && !images ? x == 0.0 : x > 0.0), "%s: %g",
                          l.name[i], x);
            }
            tp_backward(r.T, l.total);
            cr_assert(tp_ok(r.T), "%s", tp_why(r.T));
            for (tp_param_info it = { 0 }; tp_next_param(r.P, &it);) {
                if (it.buffer || it.frozen) continue;
                const double norm = detectors_gradient(r.P, &it);
                const bool idle =
                    !images && (strstr(it.name, "mask_head") || strstr(it.name, "bbox_pred") ||
                                strstr(it.name, "anchor_deltas"));
                cr_expect(isfinite(norm) && (!idle || norm == 0.0), "%s: %g", it.name, norm);
            }
            detectors_release(&r);
        }
}

/* Objects without outlines train everything but masks. */
Test(mask_rcnn, boxes_without_masks)
{
    static detectors_rig r;
    const tp_mask_rcnn_cfg c = small(TP_DETECTRON2);
    make(&r, &c);
    r.objects[0] = r.objects[1] =
        (tp_objects){ .n = 3, .box = detectors_boxes, .category = detectors_categories };
    const tp_detection_losses l = tp_detector_losses(r.T, &r.m, &r.in);
    cr_assert(l.n == 5, "%s", tp_why(r.T));
    cr_expect(tp_item(r.T, l.term[4]) == 0.0 && tp_item(r.T, l.term[3]) > 0.0);
    detectors_release(&r);
}

/* Masks from runs equal those of the same polygons, except at borders; distant polygons; runs of a
 * wrong size. */
Test(mask_rcnn, masks_of_runs)
{
    static const int64_t none[4] = { 0 };
    double loss[2];
    tp_rle mask[3];
    for (int i = 0; i < 3; i++) {
        tp_rle part[2] = { { 0 } };
        const tp_objects *o = &detectors_scene;
        const int64_t first = o->part[i], n = o->part[i + 1] - first;
        cr_assert_leq(n, 2);
        for (int64_t k = 0; k < n; k++)
            cr_assert(tp_rle_from_polygon(&part[k], o->xy + 2 * o->point[first + k],
                                          o->point[first + k + 1] - o->point[first + k],
                                          detectors_sizes[0][0], detectors_sizes[0][1]));
        cr_assert(tp_rle_merge(&mask[i], part, n, false));
        for (int64_t k = 0; k < n; k++) tp_rle_free(&part[k]);
    }
    for (int pass = 0; pass < 3; pass++) {
        static detectors_rig r;
        const tp_mask_rcnn_cfg c = small(TP_DETECTRON2);
        make(&r, &c);
        r.objects[0] = detectors_scene;
        r.objects[1] = (tp_objects){ 0 };
        if (pass > 0) {
            r.objects[0].part = r.objects[0].point = none;
            r.objects[0].mask = mask;
        }
        if (pass == 2) mask[1].height /= 2;
        const tp_detection_losses l = tp_detector_losses(r.T, &r.m, &r.in);
        if (pass < 2)
            loss[pass] = tp_item(r.T, l.term[4]);
        else
            cr_expect(strstr(tp_why(r.T), "another size than the image"), "%s", tp_why(r.T));
        detectors_release(&r);
    }
    cr_expect(loss[0] > 0.0 && fabs(loss[1] - loss[0]) < 0.02 * loss[0], "%g %g", loss[0], loss[1]);
    for (int i = 0; i < 3; i++) tp_rle_free(&mask[i]);
}

/* At most a quarter of samples have objects, objects are proposals too, a stream repeats its
 * samples. */
Test(mask_rcnn, samples)
{
    static detectors_rig r;
    const tp_mask_rcnn_cfg c = small(TP_DETECTRON2);
    double first = 0.0;
    for (int pass = 0; pass < 2; pass++) {
        tp_mask_rcnn_steps s = { 0 };
        int64_t own = 0, positive = 0;
        make(&r, &c);
        r.objects[0] = detectors_scene;
        const tp_detection_losses l = tp_mask_rcnn_losses(r.T, r.m.module, &r.in, &s);
        cr_assert(tp_ok(r.T), "%s", tp_why(r.T));
        cr_expect(s.pyramid.levels == 5 && s.rpn.n > 0 && s.proposals.start[2] == s.proposals.n);
        for (int64_t i = 0; i < s.sampled.start[1]; i++) {
            const int category = s.sampled.category[i];
            if (category == 3) continue;
            positive++;
            cr_expect(category == detectors_categories[s.sampled.object[i]]);
            for (int k = 0; k < 3; k++)
                own += memcmp(&s.sampled.box[i], &detectors_boxes[k], sizeof *detectors_boxes) == 0;
        }
        cr_expect(positive >= 1 && positive <= 8 && own >= 1, "%lld, %lld", (long long)positive,
                  (long long)own);
        for (int64_t i = s.sampled.start[1]; i < s.sampled.n; i++)
            cr_expect(s.sampled.category[i] == 3 && s.sampled.object[i] == -1);
        if (pass)
            cr_expect(tp_item(r.T, l.total) == first);
        else
            first = tp_item(r.T, l.total);
        tp_mask_rcnn_steps_free(&s);
        detectors_release(&r);
    }
}

/* A canonical region of twice the side on the next level is the same rule; another level, other
 * samples and legacy alignment change only the losses of regions. Initially, the masks' loss is too
 * near log(2) to show it. */
Test(mask_rcnn, pooling)
{
    static const struct {
        double canonical;
        int level, points;
        bool aligned, same;
    } ways[] = {
        { 32.0, 4, 0, true, true },  { 64.0, 5, 0, true, true },   { 32.0, 5, 0, true, false },
        { 32.0, 4, 3, true, false }, { 32.0, 4, 0, false, false },
    };
    static detectors_rig r;
    double first[5] = { 0.0 };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        tp_mask_rcnn_cfg c = small(TP_DETECTRON2);
        c.canonical = ways[i].canonical;
        c.level = ways[i].level;
        c.points = ways[i].points;
        c.aligned = ways[i].aligned;
        make(&r, &c);
        r.objects[0] = r.objects[1] = detectors_scene;
        const tp_detection_losses l = tp_detector_losses(r.T, &r.m, &r.in);
        cr_assert(tp_ok(r.T) && l.n == 5, "%s", tp_why(r.T));
        for (int k = 0; k < l.n; k++) {
            const double x = tp_item(r.T, l.term[k]);
            if (i == 0) first[k] = x;
            if (ways[i].same || strstr(l.name[k], "rpn"))
                cr_expect_eq(x, first[k], "%zu, %s: %g, %g", i, l.name[k], x, first[k]);
            else if (strcmp(l.name[k], "loss_cls") == 0)
                cr_expect_neq(x, first[k], "%zu: %g", i, x);
        }
        detectors_release(&r);
    }
}

/* Detections lie in their images by descending score, with masks of probabilities; nothing is
 * recorded. */
Test(mask_rcnn, detections)
{
    static detectors_rig r;
    tp_detected found[2];
    for (int profile = TP_DETECTRON2; profile <= TP_MMDETECTION; profile++) {
        tp_mask_rcnn_cfg c = small((tp_detection_profile)profile);
        c.most = 7;
        make(&r, &c);
        tp_train(r.T, false);
        cr_assert(tp_detector_detect(r.T, &r.m, &r.in, found), "%s", tp_why(r.T));
        for (int b = 0; b < 2; b++) {
            cr_expect(found[b].n == 7 && found[b].side == 28, "%lld", (long long)found[b].n);
            for (int64_t i = 0; i < found[b].n; i++) {
                const tp_corners a = found[b].found[i].box;
                cr_expect(a.x1 >= 0 && a.y1 >= 0 && a.x2 <= (double)detectors_sizes[b][1] &&
                          a.y2 <= (double)detectors_sizes[b][0]);
                cr_expect(i == 0 || found[b].found[i].score <= found[b].found[i - 1].score);
            }
            for (int64_t i = 0; i < found[b].n * 28 * 28; i++)
                cr_assert(found[b].mask[i] > 0.0f && found[b].mask[i] < 1.0f);
            tp_detected_free(&found[b]);
        }
        cr_expect(tp_record(r.T, true), "recording goes on afterwards");
        detectors_release(&r);
    }
}

/* A few steps on one scene halve the loss, and the best detection is an object. */
Test(mask_rcnn, learns)
{
    static detectors_rig r;
    if (device_is_emulated()) cr_skip_test("too slow");
    const tp_mask_rcnn_cfg c = small(TP_DETECTRON2);
    make(&r, &c);
    detectors_expect_learning(&r, 90, 2e-3);
    detectors_release(&r);
}

/* With products in bf16, losses stay in f32. A failed tape returns nothing that must be freed. */
Test(mask_rcnn, half_precision)
{
    static detectors_rig r;
    double total[2];
    tp_detected found[2];
    const tp_mask_rcnn_cfg c = small(TP_DETECTRON2);
    for (int half = 0; half < 2; half++) {
        make(&r, &c);
        tp_tape *T =
            tp_tape_new(r.D, &(tp_tape_opts){ .train = true, .compute = half ? TP_BF16 : TP_F32 });
        r.objects[0] = detectors_scene;
        r.in.images = models_images(T, 2, 64, 96);
        const tp_detection_losses l = tp_detector_losses(T, &r.m, &r.in);
        cr_assert(l.n == 5 && tp_dtype_of(l.total) == TP_F32, "%s", tp_why(T));
        total[half] = tp_item(T, l.total);
        tp_backward(T, l.total);
        cr_expect(tp_ok(T), "%s", tp_why(T));
        tp_train(T, false);
        cr_assert(tp_detector_detect(T, &r.m, &r.in, found), "%s", tp_why(T));
        for (int b = 0; b < 2; b++) tp_detected_free(&found[b]);
        tp_raise(T, TP_E_VALUE, "on purpose");
        cr_expect(!tp_detector_detect(T, &r.m, &r.in, found));
        cr_expect(!found[0].found && !found[1].found && !found[1].mask && found[1].n == 0);
        tp_tape_free(T);
        detectors_release(&r);
    }
    cr_expect(fabs(total[1] / total[0] - 1.0) < 0.05, "%g, %g", total[0], total[1]);
}

/* Without proposals above the score there are no detections and no masks. */
Test(mask_rcnn, no_detections)
{
    static detectors_rig r;
    tp_detected found[2];
    tp_mask_rcnn_cfg c = small(TP_DETECTRON2);
    c.score = 1.0;
    make(&r, &c);
    tp_train(r.T, false);
    cr_assert(tp_detector_detect(r.T, &r.m, &r.in, found), "%s", tp_why(r.T));
    for (int b = 0; b < 2; b++) {
        cr_expect_eq(found[b].n, 0);
        tp_detected_free(&found[b]);
    }
    detectors_release(&r);
}

/* A detection outside the original image is removed with its mask. */
Test(mask_rcnn, original_image)
{
    tp_detected d = { .n = 3, .side = 2 };
    d.found = calloc(3, sizeof *d.found);
    d.mask = calloc(12, sizeof *d.mask);
    cr_assert(d.found && d.mask);
    for (int i = 0; i < 3; i++) {
        d.found[i].box = (tp_corners){ i == 1 ? 30.0 : 0.0, 0, i == 1 ? 40.0 : 10.0, 10 };
        for (int k = 0; k < 4; k++) d.mask[4 * i + k] = (float)i;
    }
    tp_detected_to_original(&d, (const int64_t[2]){ 20, 20 }, (const int64_t[2]){ 40, 20 });
    cr_expect(d.n == 2 && d.mask[0] == 0.0f && d.mask[4] == 2.0f && d.mask[7] == 2.0f);
    cr_expect(d.found[1].box.y2 == 20.0 && d.found[1].box.x2 == 10.0);
    tp_detected_free(&d);
}

/* ---- refusals ---- */

Test(mask_rcnn, refusals)
{
    static detectors_rig r;
    static const int wrong[] = { 0, 3, 1 };
    static const tp_corners flat[] = { { 8, 8, 8, 40 } };
    const tp_mask_rcnn_cfg c = small(TP_DETECTRON2);
    make(&r, &c);
    r.objects[1] = detectors_scene;
    r.objects[1].category = wrong;
    tp_detector_losses(r.T, &r.m, &r.in);
    cr_expect(strstr(tp_why(r.T), "object 1 of image 1 has category 3 of 3"), "%s", tp_why(r.T));
    tp_clear(r.T);
    r.objects[1] = (tp_objects){ .n = 1, .box = flat, .category = detectors_categories };
    tp_detector_losses(r.T, &r.m, &r.in);
    cr_expect(strstr(tp_why(r.T), "no area"), "%s", tp_why(r.T));
    tp_clear(r.T);
    tp_mask_rcnn_steps given = { .given = true, .proposals = { .images = 1 } };
    r.objects[1] = detectors_scene;
    tp_mask_rcnn_losses(r.T, r.m.module, &r.in, &given);
    cr_expect(strstr(tp_why(r.T), "of 1 images, the batch of 2"), "%s", tp_why(r.T));
    tp_clear(r.T);
    r.in.random = NULL;
    tp_detector_losses(r.T, &r.m, &r.in);
    cr_expect(strstr(tp_why(r.T), "set `random` of the batch"), "%s", tp_why(r.T));
    tp_clear(r.T);
    r.in.images = models_images(r.T, 2, 64, 90);
    tp_detector_losses(r.T, &r.m, &r.in);
    cr_expect(strstr(tp_why(r.T), "multiples of 32"), "%s", tp_why(r.T));
    detectors_release(&r);
}

/* Each change to a valid configuration gives a reason that contains the text. */
Test(mask_rcnn, impossible)
{
    char why[300];
    for (int i = 0;; i++) {
        tp_mask_rcnn_cfg c = small(TP_DETECTRON2);
        const char *text = NULL;
        cr_assert(tp_detector_mask_rcnn.check(&c, why, sizeof why), "%s", why);
        switch (i) {
        case 0: c.rpn.dim++, text = "parts disagree"; break;
        case 1: c.mask.classes++, text = "parts disagree"; break;
        case 2: c.dim = 0, text = "channels"; break;
        case 3: c.box.layers = 9, text = "1 to 8 layers"; break;
        case 4: c.mask.layers = 9, text = "0 to 8 layers"; break;
        case 5: c.box.side = 0, text = "pixels a side"; break;
        case 6: c.rpn.most[1] = 0, text = "number of proposals"; break;
        case 7: c.rpn.positive = NAN, text = "fractions of anchors"; break;
        case 8: c.score = 2.0, text = "scores"; break;
        case 9: c.canonical = 0.0, text = "canonical side"; break;
        case 10: c.rpn.anchors.levels = 4, text = "five levels"; break;
        case 11: c.samples = 0, text = "numbers of samples"; break;
        case 12: c.rpn.beta = -1.0, text = "beta"; break;
        case 13: memset(&c.backbone.model.at, 0, sizeof(tp_resnet_cfg)), text = ""; break;
        case 14: c.matcher.thresholds = 5, text = "a matcher has"; break;
        case 15: c.rpn.matcher.threshold[0] = 0.8, text = "ascending thresholds"; break;
        case 16: c.points = -1, text = "samples along each axis"; break;
        case 17: c.level = 31, text = "its level"; break;
        default: return;
        }
        cr_expect(!tp_detector_mask_rcnn.check(&c, why, sizeof why) && strstr(why, text), "%d: %s",
                  i, why);
        static tp_mask_rcnn m;
        tp_device *D = tp_device_open("cpu", NULL);
        tp_params *P = tp_params_new(D, NULL);
        tp_detector_mask_rcnn.init(P, &m, "", &c);
        cr_expect(!tp_params_ok(P) && strstr(tp_params_why(P), why), "%s", tp_params_why(P));
        tp_params_free(P);
        tp_device_close(D);
    }
}
