/* test_detection.c - boxes, anchors, matching, sampling, suppression, selection and masks: the
 * reference cases of tp-parity, mmdetection's selections, and what the cases omit. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/detection.h>
#include <tapegrad/tapegrad.h>

#include "parity.h"
#include "support/device.h"
#include "support/fixtures.h"

#define FOLDER TP_SOURCE_DIR "/tests/fixtures/detection"

/* Changes to metadata values of the repository's cases are noticed, except for keys that the case
 * lists. */
Test(detection, changed_cases_are_noticed)
{
    char path[1100];
    int cases = 0;
    device_cpu_only();
    DIR *d = opendir(FOLDER);
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    cr_assert(d, FOLDER);
    for (const struct dirent *e; (e = readdir(d));) {
        parity_audit a;
        if (!strstr(e->d_name, ".safetensors")) continue;
        snprintf(path, sizeof path, "%s/%s", FOLDER, e->d_name);
        cases++;
        cr_expect(parity_audit_run(&a, path, D, false, stderr) && a.wrong == 0, "%s: %s", path,
                  a.why);
    }
    closedir(d);
    tp_device_close(D);
    cr_expect_geq(cases, 10, FOLDER);
}

/* ---- values of a file ---- */

static double *values(tp_file *F, const char *name, int64_t *n)
{
    const tp_file_tensor *t = tp_file_find(F, name);
    const bool whole = t && strcmp(t->stored, "I64") == 0;
    double *x = t ? malloc(((size_t)t->numel + 1) * sizeof *x) : NULL;
    int64_t *integers = t ? malloc(((size_t)t->numel + 1) * sizeof *integers) : NULL;
    cr_assert(x && integers, "%s", name);
    cr_assert(tp_file_read(F, t, whole ? TP_I64 : TP_F64, whole ? (void *)integers : x), "%s",
              tp_file_why(F));
    for (int64_t i = 0; whole && i < t->numel; i++) x[i] = (double)integers[i];
    free(integers);
    *n = t->numel;
    return x;
}

static float *floats(tp_file *F, const char *name, int64_t *n)
{
    const tp_file_tensor *t = tp_file_find(F, name);
    float *x = t ? malloc(((size_t)t->numel + 1) * sizeof *x) : NULL;
    cr_assert(x && tp_file_read(F, t, TP_F32, x), "%s: %s", name, tp_file_why(F));
    *n = t->numel;
    return x;
}

static tp_corners corners(const double *x)
{
    return (tp_corners){ x[0], x[1], x[2], x[3] };
}

Test(detection, generalised_overlap)
{
    static const struct {
        tp_corners a, b;
        double giou;
    } pairs[] = {
        { { 0, 0, 2, 1 }, { 0, 0, 2, 1 }, 1.0 },
        { { 0, 0, 2, 2 }, { 0, 0, 1, 1 }, 1.0 / 4.0 },
        { { 0, 0, 2, 1 }, { 1, 0, 3, 1 }, 1.0 / 3.0 },
        { { 0, 0, 1, 1 }, { 2, 0, 3, 1 }, -1.0 / 3.0 }, /* the hull has 3, the boxes 2 */
        { { 0, 0, 2, 2 }, { 1, 1, 3, 3 }, 1.0 / 7.0 - 2.0 / 9.0 },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        cr_expect_float_eq(tp_corners_giou(pairs[i].a, pairs[i].b, 0.0), pairs[i].giou, 1e-12,
                           "pair %d", (int)i);
        cr_expect_float_eq(tp_corners_giou(pairs[i].b, pairs[i].a, 0.0), pairs[i].giou, 1e-12,
                           "pair %d, exchanged", (int)i);
    }
}

Test(detection, generalised_overlap_of_the_reference)
{
    int64_t n, m;
    tp_file *F = fixture_open("detection/giou_loss.safetensors");
    double *a = values(F, "input.pred", &n), *b = values(F, "input.gt", &n),
           *loss = values(F, "output.elementwise", &m);
    cr_assert(4 * m == n && m > 0);
    for (int64_t i = 0; i < m; i++)
        cr_expect_float_eq(1.0 - tp_corners_giou(corners(a + 4 * i), corners(b + 4 * i), 1e-7),
                           loss[i], 1e-6, "pair %d", (int)i);
    free(a);
    free(b);
    free(loss);
    tp_file_close(F);
}

/* ---- mmdetection's selections, from the cases of its losses ---- */

/* A head's output [images,anchors * k,h,w] as [h,w,anchors,k] of one image. */
static float *rearranged(const float *x, int64_t anchors, int64_t k, int64_t h, int64_t w)
{
    float *y = malloc((size_t)(anchors * k * h * w) * sizeof *y);
    cr_assert(y);
    for (int64_t i = 0; i < h * w; i++)
        for (int64_t a = 0; a < anchors; a++)
            for (int64_t c = 0; c < k; c++)
                y[(i * anchors + a) * k + c] = x[(a * k + c) * h * w + i];
    return y;
}

typedef struct head {
    tp_level level[TP_ANCHOR_LEVELS];
    tp_corners *anchor[TP_ANCHOR_LEVELS];
    float *logit[TP_ANCHOR_LEVELS], *offset[TP_ANCHOR_LEVELS];
    int levels;
} head;

/* Image `image` of the outputs in a file. */
static head read_head(tp_file *F, const tp_anchor_cfg *a, int64_t classes, int64_t image)
{
    head x = { .levels = 3 };
    int64_t n;
    double *grid = values(F, "input.grid_sizes", &n);
    const int64_t per = a->sizes * a->ratios;
    for (int k = 0; k < x.levels; k++) {
        char name[64];
        const int64_t h = (int64_t)grid[2 * k], w = (int64_t)grid[2 * k + 1], all = h * w * per;
        snprintf(name, sizeof name, "input.cls_score%d", k);
        float *logit = floats(F, name, &n);
        snprintf(name, sizeof name, "input.bbox_pred%d", k);
        float *offset = floats(F, name, &n);
        x.logit[k] = rearranged(logit + image * all * classes, per, classes, h, w);
        x.offset[k] = rearranged(offset + image * all * 4, per, 4, h, w);
        x.anchor[k] = malloc((size_t)all * sizeof(tp_corners));
        tp_anchors(a, k, h, w, x.anchor[k]);
        x.level[k] = (tp_level){ x.anchor[k], x.logit[k], x.offset[k], all };
        free(logit);
        free(offset);
    }
    free(grid);
    return x;
}

static void free_head(head *x)
{
    for (int k = 0; k < x->levels; k++) {
        free(x->anchor[k]);
        free(x->logit[k]);
        free(x->offset[k]);
    }
}

/* Compares with rows of x1, y1, x2, y2, score, and labels unless they are NULL. */
static void compare_found(tp_file *F, const char *rows, const char *labels, const tp_found *found,
                          int64_t n, double scale)
{
    int64_t m, k = 0;
    double *want = values(F, rows, &m), *label = labels ? values(F, labels, &k) : NULL;
    cr_assert_eq(m, 5 * n, "%s: %d found", rows, (int)n);
    for (int64_t i = 0; i < n; i++) {
        const double got[] = { found[i].box.x1 / scale, found[i].box.y1 / scale,
                               found[i].box.x2 / scale, found[i].box.y2 / scale, found[i].score };
        for (int j = 0; j < 5; j++)
            cr_expect_float_eq(got[j], want[5 * i + j], 2e-5, "%s: row %d", rows, (int)i);
        if (label) cr_expect_eq((double)found[i].category, label[i], "%s: row %d", rows, (int)i);
    }
    free(want);
    free(label);
}

Test(detection, selections_of_the_second_profile)
{
    tp_found found[100];
    tp_file *F = fixture_open("detection/mm_retinanet_loss.safetensors");
    tp_anchor_cfg a = tp_anchors_retinanet(TP_MMDETECTION);
    tp_select_cfg c = { .profile = TP_MMDETECTION,
                        .height = 78,
                        .width = 110,
                        .score = 0.05,
                        .overlap = 0.5,
                        .candidates = 60,
                        .most = 20 };
    for (int image = 0; image < 2; image++) {
        char rows[32], labels[32];
        head x = read_head(F, &a, 3, image);
        snprintf(rows, sizeof rows, "output.dets%d", image);
        snprintf(labels, sizeof labels, "output.labels%d", image);
        compare_found(F, rows, labels, found, tp_select_retinanet(&c, x.level, x.levels, 3, found),
                      1.25);
        free_head(&x);
    }
    tp_file_close(F);
    F = fixture_open("detection/mm_rpn_loss.safetensors");
    a = (tp_anchor_cfg){ .levels = 3,
                         .sizes = 1,
                         .ratios = 3,
                         .stride = { 4, 8, 16 },
                         .size = { { 32 }, { 64 }, { 128 } },
                         .ratio = { 0.5, 1, 2 },
                         .ratio_major = true };
    c.overlap = 0.7;
    c.candidates = 100;
    c.most = 50;
    for (int image = 0; image < 2; image++) {
        char rows[32];
        head x = read_head(F, &a, 1, image);
        snprintf(rows, sizeof rows, "output.proposals%d", image);
        compare_found(F, rows, NULL, found, tp_select_proposals(&c, x.level, x.levels, found), 1.0);
        free_head(&x);
    }
    tp_file_close(F);
}

/* ---- beyond the cases ---- */

Test(detection, nothing_to_do)
{
    int64_t objects = -1, index[4];
    tp_found found[4];
    const tp_corners box = { 0, 0, 4, 4 };
    const tp_level empty = { &box, NULL, NULL, 0 };
    const tp_select_cfg c = { .height = 8, .width = 8, .overlap = 0.5, .candidates = 4, .most = 4 };
    tp_match(&(tp_matcher){ .low_quality = true }, NULL, 0, 0, NULL, NULL);
    cr_expect_eq(tp_nms(&box, NULL, NULL, 0, 0.5, TP_DETECTRON2, index), 0);
    cr_expect_eq(tp_top_scores(NULL, 0, 3, index), 0);
    cr_expect_eq(
        tp_sample_boxes(&(tp_box_sampler){ .samples = 4, .positive = 0.5, .how = TP_SAMPLE_EVEN },
                        NULL, 0, 1, NULL, index, &objects),
        0);
    cr_expect_eq(objects, 0);
    cr_expect_eq(tp_select_proposals(&c, &empty, 1, found), 0);
    cr_expect_eq(tp_select_retinanet(&c, &empty, 1, 3, found), 0);
    cr_expect_eq(tp_select_boxes(&c, &box, NULL, NULL, 0, 3, found), 0);
    cr_expect_eq(tp_found_to_original(found, 0, (int64_t[]){ 1, 1 }, (int64_t[]){ 2, 2 }), 0);
}

/* Only the second profile drops a box whose overlap equals the threshold; neither drops empty
 * boxes. */
Test(detection, suppression_at_equality)
{
    const tp_corners box[] = { { 0, 0, 4, 2 }, { 0, 0, 2, 2 }, { 1, 1, 1, 1 }, { 1, 1, 1, 1 } };
    const double score[] = { 0.9, 0.8, 0.7, 0.7 };
    int64_t keep[4];
    cr_expect_eq(tp_nms(box, score, NULL, 4, 0.5, TP_DETECTRON2, keep), 4);
    cr_expect(keep[2] == 2 && keep[3] == 3, "of equal scores the lower index is first");
    cr_expect_eq(tp_nms(box, score, NULL, 4, 0.5, TP_MMDETECTION, keep), 3);
    cr_expect_eq(tp_nms(box, score, (int64_t[]){ 5, -1, 5, 5 }, 4, 0.4, TP_DETECTRON2, keep), 4,
                 "other groups drop nothing");
}

Test(detection, random_samples)
{
    enum { N = 40, TIMES = 400 };
    int label[N], seen[N] = { 0 };
    int64_t index[16], objects;
    tp_random r = tp_random_stream(3, "samples", 0, 0);
    const tp_box_sampler s = { .samples = 16, .positive = 0.5 };
    for (int i = 0; i < N; i++)
        label[i] = i % 4 == 0 ? 2 : i % 4 == 1 ? -1 : 7; /* 10 objects, 20 of background */
    for (int k = 0; k < TIMES; k++) {
        cr_assert(tp_sample_boxes(&s, label, N, 7, &r, index, &objects) == 16 && objects == 8);
        for (int i = 0; i < 16; i++) {
            cr_expect_eq(label[index[i]], i < 8 ? 2 : 7);
            for (int j = 0; j < i; j++) cr_expect_neq(index[i], index[j], "without replacement");
            seen[index[i]]++;
        }
    }
    for (int i = 0; i < N; i++) { /* 0.8 and 0.4 of the draws, within five deviations */
        const double p = label[i] == 2 ? 0.8 : label[i] == 7 ? 0.4 : 0.0;
        cr_expect_float_eq(seen[i], p * TIMES, 5.0 * sqrt(TIMES * p * (1.0 - p)) + 1e-9,
                           "element %d: %d times", i, seen[i]);
    }
}

Test(detection, coding_is_inverse)
{
    const tp_box_coder c = { .weight = { 10, 10, 5, 5 } }, both = { .both = true };
    const tp_corners box = { 3, 4, 13, 24 }, target = { 1.5, 2, 20, 9.25 };
    double offset[4];
    tp_box_encode(&c, box, target, offset);
    const tp_corners got = tp_box_decode(&c, box, offset);
    cr_expect_float_eq(got.x1, target.x1, 1e-12);
    cr_expect_float_eq(got.y2, target.y2, 1e-12);
    const double small[] = { 0, 0, -10, 10 };
    const tp_corners d2 = tp_box_decode(&(tp_box_coder){ 0 }, box, small),
                     mm = tp_box_decode(&both, box, small);
    cr_expect_float_eq(d2.x2 - d2.x1, 10 * exp(-10.0), 1e-12, "not cut from below");
    cr_expect_float_eq(mm.x2 - mm.x1, 10 * 16.0 / 1000.0, 1e-12);
    cr_expect_float_eq(d2.y2 - d2.y1, 20 * 1000.0 / 16.0, 1e-9);
    cr_expect_float_eq(mm.y2 - mm.y1, d2.y2 - d2.y1, 1e-9);
}

/* The gradient of decoding against finite differences. */
Test(detection, gradient_of_decoding)
{
    const tp_box_coder c = { .weight = { 10, 10, 5, 5 }, .both = true };
    const tp_corners box = { 3, 4, 13, 24 }, probe = { 0.3, -1, 2, 0.7 };
    double offset[] = { 0.4, -0.7, 1.1, 30.0 }, grad[4];
    tp_box_decode_grad(&c, box, offset, probe, grad);
    for (int i = 0; i < 4; i++) {
        const double h = 1e-6, x = offset[i];
        offset[i] = x + h;
        const tp_corners a = tp_box_decode(&c, box, offset);
        offset[i] = x - h;
        const tp_corners b = tp_box_decode(&c, box, offset);
        offset[i] = x;
        const double slope = (probe.x1 * (a.x1 - b.x1) + probe.y1 * (a.y1 - b.y1) +
                              probe.x2 * (a.x2 - b.x2) + probe.y2 * (a.y2 - b.y2)) /
                             (2 * h);
        cr_expect_float_eq(grad[i], slope, 1e-6, "offset %d: %g, not %g", i, grad[i], slope);
    }
    cr_expect_eq(grad[3], 0.0, "beyond the limit");
}

Test(detection, levels_of_regions)
{
    static const struct {
        double side;
        int level;
    } cases[] = { { 1, 2 },   { 111.9, 2 }, { 112, 3 },  { 223.9, 3 }, { 224, 4 },
                  { 447, 4 }, { 448, 5 },   { 5000, 5 }, { 0, 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tp_corners region = { 10, 10, 10 + cases[i].side, 10 + cases[i].side };
        cr_expect_eq(tp_region_level(region, 224, 4, 2, 5, TP_DETECTRON2), cases[i].level, "%g",
                     cases[i].side);
        cr_expect_eq(tp_region_level(region, 224, 4, 2, 5, TP_MMDETECTION), cases[i].level, "%g",
                     cases[i].side);
    }
}

Test(detection, values_that_are_not_finite)
{
    const tp_corners anchor[] = { { 0, 0, 4, 4 }, { 2, 2, 6, 6 } };
    const float logit[] = { 5, 4 }, offset[] = { NAN, 0, 0, 0, 0, 0, 0, 0 },
                infinite[] = { INFINITY, 4 };
    const tp_select_cfg c = { .height = 8, .width = 8, .overlap = 0.7, .candidates = 4, .most = 4 };
    tp_found found[4];
    cr_expect(tp_select_proposals(&c, &(tp_level){ anchor, logit, offset, 2 }, 1, found) == 1 &&
              found[0].row == 1);
    cr_expect(tp_select_proposals(&c, &(tp_level){ anchor, infinite, offset + 1, 1 }, 1, found) ==
              0);
    const float rows[] = { 1, 2, NAN, 3 };
    cr_expect(tp_select_boxes(&c, anchor, rows, offset + 4, 1, 1, found) == 1);
    cr_expect(tp_select_boxes(&c, anchor, rows + 2, offset + 4, 1, 1, found) == 0);
}

/* NaN ranks first, as in torch.topk, and takes a candidate's place before it is dropped. */
Test(detection, scores_that_are_no_numbers)
{
    enum { N = 3000, LOST = 3 };
    static tp_corners anchor[N];
    static double score[N];
    static float logit[N], offset[4 * N];
    static int64_t index[N];
    tp_found found[8];
    tp_random r = tp_random_stream(5, "scores", 0, 0);
    for (int i = 0; i < N; i++) {
        anchor[i] = (tp_corners){ 2 * i, 0, 2 * i + 1, 1 };
        score[i] = logit[i] = (float)(i % 1000 == 700 ? NAN : tp_random_uniform(&r));
    }
    score[17] = logit[17] = INFINITY;
    cr_assert_eq(tp_top_scores(score, N, N, index), N);
    for (int i = 0; i < LOST; i++) cr_expect_eq(index[i], 1000 * i + 700);
    cr_expect_eq(index[LOST], 17);
    for (int i = LOST + 1; i < N; i++) {
        const double a = score[index[i - 1]], b = score[index[i]];
        cr_expect(a > b || (a == b && index[i - 1] < index[i]), "place %d: %g, %g", i, a, b);
    }
    int64_t *keep = malloc(N * sizeof *keep);
    cr_assert(keep);
    cr_expect_eq(tp_nms(anchor, score, NULL, N, 0.5, TP_DETECTRON2, keep), N);
    cr_expect_arr_eq(keep, index, N * sizeof *keep);
    const tp_select_cfg c = {
        .height = 1, .width = 2 * N, .overlap = 0.7, .candidates = 8, .most = 8
    };
    const tp_level level = { anchor, logit, offset, N };
    cr_assert_eq(tp_select_proposals(&c, &level, 1, found), 8 - LOST - 1);
    for (int i = 0; i < 8 - LOST - 1; i++) cr_expect_eq(found[i].row, index[LOST + 1 + i]);
    free(keep);
}

Test(detection, anchors_out_of_range)
{
    char why[300] = "";
    tp_anchor_cfg c = tp_anchors_rpn();
    cr_expect(tp_anchor_check(&c, why, sizeof why), "%s", why);
    c.ratio[1] = 0.0;
    cr_expect(!tp_anchor_check(&c, why, sizeof why) && strstr(why, "ratio 0"), "%s", why);
    static const double offsets[] = { NAN, INFINITY, -INFINITY, 1e9 };
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        c = tp_anchors_rpn();
        c.offset = offsets[i];
        cr_expect(!tp_anchor_check(&c, why, sizeof why) && strstr(why, "offset"), "%s", why);
    }
    c = tp_anchors_retinanet(TP_DETECTRON2);
    c.levels = TP_ANCHOR_LEVELS + 1;
    cr_expect(!tp_anchor_check(&c, why, sizeof why) && strstr(why, "9 levels"), "%s", why);
    c.levels = 2;
    c.stride[1] = NAN;
    cr_expect(!tp_anchor_check(&c, why, sizeof why) && strstr(why, "level 1"), "%s", why);
}

/* Boxes that are not finite or have no area give zeros; huge boxes end soon and cover the whole
 * image. */
Test(detection, targets_of_impossible_boxes, .timeout = 60)
{
    enum { H = 300, W = 400, S = 28 };
    static const tp_corners none[] = { { NAN, 0, 9, 9 },        { 0, 0, 9, NAN },
                                       { 0, 0, INFINITY, 9 },   { -INFINITY, 0, INFINITY, 9 },
                                       { -1e308, 0, 1e308, 9 }, { 5, 5, 5, 9 },
                                       { 9, 5, 3, 9 },          { INFINITY, 0, INFINITY, 9 } };
    static const tp_corners huge[] = { { -1e9, -1e9, 1e9, 1e9 },
                                       { 0, 0, 1e300, 1e300 },
                                       { -1e300, -1e300, 1e300, 1e300 } };
    static uint8_t pixels[H * W];
    double part[S * S];
    memset(pixels, 1, sizeof pixels);
    for (size_t k = 0; k < sizeof none / sizeof *none; k++) {
        part[0] = part[S * S - 1] = 7.0;
        tp_mask_target_from_pixels(pixels, H, W, none[k], S, part);
        for (int i = 0; i < S * S; i++) cr_expect_eq(part[i], 0.0, "box %zu", k);
    }
    for (size_t k = 0; k < sizeof huge / sizeof *huge; k++) {
        tp_mask_target_from_pixels(pixels, H, W, huge[k], S, part);
        for (int i = 0; i < S * S; i++)
            cr_expect(part[i] >= 0.0 && part[i] < 0.01, "box %zu: %g", k, part[i]);
    }
    tp_mask_target_from_pixels(pixels, H, W, (tp_corners){ 10, 10, 200, 250 }, S, part);
    for (int i = 0; i < S * S; i++) cr_expect_float_eq(part[i], 1.0, 1e-12);
    /* The image is the middle third of a bin on each side: about a ninth of the samples are
     * inside. */
    tp_mask_target_from_pixels(pixels, H, W, (tp_corners){ -W, -H, 2 * W, 2 * H }, 1, part);
    cr_expect_float_eq(part[0], 1.0 / 9.0, 0.003);
}

/* Pasted masks are the same as pixels and as runs, also outside the image and in boxes without
 * area. */
Test(detection, pasted_masks)
{
    enum { H = 21, W = 17, S = 7 };
    static const tp_corners boxes[] = { { 3, 2, 11, 18 },   { -5, -6, 4, 3 },
                                        { 10, 15, 40, 50 }, { -9, -9, 60, 60 },
                                        { 4, 4, 4, 9 },     { 5.5, 5.5, 5.9, 5.9 },
                                        { 50, 50, 60, 60 }, { -60, 2, -50, 9 } };
    tp_random r = tp_random_stream(1, "masks", 0, 0);
    for (size_t k = 0; k < 8 * sizeof boxes / sizeof *boxes; k++) {
        const tp_corners box = boxes[k / 8];
        float p[S * S];
        uint8_t a[H * W], b[H * W];
        tp_rle runs;
        for (int i = 0; i < S * S; i++) p[i] = k % 8 == 7 ? 1.0f : (float)tp_random_uniform(&r);
        tp_paste_mask(p, S, box, 0.5, H, W, a);
        cr_assert(tp_paste_rle(p, S, box, 0.5, H, W, &runs));
        tp_rle_pixels(&runs, b);
        cr_expect_arr_eq(a, b, sizeof a, "box %zu", k / 8);
        for (int64_t i = 1; i < runs.runs; i++)
            cr_expect_gt(runs.run[i], 0, "runs are as short as possible");
        if (k / 8 >= 4 && k / 8 != 5) cr_expect_eq(tp_rle_area(&runs), 0, "box %zu", k / 8);
        if (k == 3 * 8 + 7) cr_expect_eq(tp_rle_area(&runs), H * W);
        tp_rle_free(&runs);
    }
}
