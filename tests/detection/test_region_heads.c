/* test_region_heads.c - region proposals, box head and mask head of Mask R-CNN: parameters, initial
 * values, targets, images without targets, non-finite predictions. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/detection/mask_rcnn.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/values.h"

/* ---- parameters ---- */

static tp_rpn_cfg published_rpn(int64_t dim)
{
    return (tp_rpn_cfg){ .dim = dim,
                         .anchors = tp_anchors_rpn(),
                         .matcher = tp_matcher_rpn(TP_DETECTRON2),
                         .samples = 256,
                         .positive = 0.5,
                         .candidates = { 2000, 1000 },
                         .most = { 1000, 1000 },
                         .overlap = 0.7 };
}

static const tp_box_head_cfg published_box = { .dim = 256,
                                               .side = 7,
                                               .classes = 80,
                                               .layers = 2,
                                               .hidden = { 1024, 1024 },
                                               .coder = { .weight = { 10, 10, 5, 5 } } };
static const tp_mask_head_cfg published_mask = { 256, 14, 80, 4, 256 };

/* The deviation and the largest magnitude of a parameter. */
static void measure(tp_params *P, const char *name, double *deviation, double *largest)
{
    const tp_tensor x = tp_find(P, name);
    const int64_t n = tp_numel(x);
    double *v = malloc((size_t)n * sizeof *v), squares = 0.0;
    cr_assert(tp_given(x) && v && tp_param_get(P, x, TP_F64, v, (size_t)n * sizeof *v), "%s", name);
    *largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
        squares += v[i] * v[i];
        *largest = fmax(*largest, fabs(v[i]));
    }
    *deviation = sqrt(squares / (double)n);
    free(v);
}

/* Counts of the published model, and initial values of detectron2. largest 0: normal. */
Test(region_heads, published_parameters)
{
    static const struct {
        const char *name;
        double deviation, largest;
    } rows[] = {
        { "rpn.conv.weight", 0.01, 0 },
        { "rpn.objectness_logits.weight", 0.01, 0 },
        { "rpn.anchor_deltas.weight", 0.01, 0 },
        { "roi_heads.box_head.fc1.weight", 0, 0.015466 }, /* sqrt(3 / (256 * 49))           */
        { "roi_heads.box_head.fc2.weight", 0, 0.054127 }, /* sqrt(3 / 1024)                 */
        { "roi_heads.box_predictor.cls_score.weight", 0.01, 0 },
        { "roi_heads.box_predictor.bbox_pred.weight", 0.001, 0 },
        { "mask.mask_fcn4.weight", 0.029463, 0 }, /* sqrt(2 / (256 * 9))                    */
        { "mask.deconv.weight", 0.044194, 0 },    /* sqrt(2 / (256 * 4))                    */
        { "mask.predictor.weight", 0.001, 0 },
    };
    static const char *const biases[] = { "rpn.conv.bias", "roi_heads.box_head.fc1.bias",
                                          "roi_heads.box_predictor.cls_score.bias",
                                          "mask.deconv.bias" };
    const tp_rpn_cfg rpn = published_rpn(256);
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3 });
    tp_rpn a;
    tp_box_head b;
    tp_mask_head c;
    tp_rpn_init(P, &a, "rpn", &rpn);
    cr_expect_eq(tp_params_count(P), 593935);
    tp_box_head_init(P, &b, "roi_heads", &published_box);
    cr_expect_eq(tp_params_count(P), 593935 + 13895680 + 411025);
    tp_mask_head_init(P, &c, "mask", &published_mask);
    cr_expect_eq(tp_params_count(P), 593935 + 13895680 + 411025 + 2643280);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double deviation, largest;
        measure(P, rows[i].name, &deviation, &largest);
        if (rows[i].largest > 0.0)
            cr_expect(largest <= rows[i].largest && largest > 0.999 * rows[i].largest, "%s: %g",
                      rows[i].name, largest);
        else
            cr_expect(fabs(deviation / rows[i].deviation - 1.0) < 0.1, "%s: %g", rows[i].name,
                      deviation);
    }
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++) {
        double deviation, largest;
        measure(P, biases[i], &deviation, &largest);
        cr_expect(largest == 0.0, "%s", biases[i]);
    }
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- no targets ---- */

/* Expects that backward reached all parameters and gave zeros to those whose names contain `part`;
 * NULL: to all. */
static void expect_zeros(tp_params *P, const char *part)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const int64_t n = tp_numel(it.tensor);
        double *g = malloc((size_t)n * sizeof *g);
        cr_assert(it.has_grad && g &&
                      tp_param_get_grad(P, it.tensor, TP_F64, g, (size_t)n * sizeof *g),
                  "%s has no gradient", it.name);
        for (int64_t i = 0; i < n && (!part || strstr(it.name, part)); i++)
            cr_assert(g[i] == 0.0, "%s: %g", it.name, g[i]);
        free(g);
    }
}

Test(region_heads, no_regions)
{
    const tp_box_head_cfg box = { .dim = 3, .side = 2, .classes = 4, .layers = 1, .hidden = { 5 } };
    const tp_mask_head_cfg mask = { 3, 4, 4, 2, 5 };
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
    tp_box_head b;
    tp_mask_head m;
    tp_tensor logit, offset, loss[2];
    tp_box_head_init(P, &b, "", &box);
    tp_mask_head_init(P, &m, "mask", &mask);
    const tp_tensor small = tp_from(T, TP_F32, TP_SHAPE(0, 2, 2, 3), NULL),
                    large = tp_from(T, TP_F32, TP_SHAPE(0, 4, 4, 3), NULL);
    tp_box_head_forward(T, &b, small, &logit, &offset);
    tp_box_head_losses(T, &b, logit, offset, NULL, NULL, NULL, loss);
    tp_tensor y = tp_mask_head_select(T, &m, tp_mask_head_features(T, &m, large), NULL);
    cr_expect(tp_ndim(y) == 3 && tp_dim(y, 1) == 8, "%s", tp_why(T));
    y = tp_mask_head_loss(T, y, NULL);
    y = tp_add(T, tp_add(T, loss[0], loss[1]), y);
    cr_expect_eq(tp_item(T, y), 0.0, "%s", tp_why(T));
    tp_backward(T, y);
    cr_assert(tp_ok(T), "%s", tp_why(T));
    expect_zeros(P, NULL);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- region proposals ---- */

typedef struct rig {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_rpn m;
    tp_pyramid maps;
} rig;

/* A network of 4 channels on maps for two images of 64 x 64 pixels. */
static rig make(const tp_rpn_cfg *c)
{
    rig r = { .D = device_open(NULL) };
    double x[2 * 16 * 16 * 4];
    r.P = tp_params_new(r.D, &(tp_params_opts){ .seed = 5 });
    r.T = tp_tape_new(r.D, &(tp_tape_opts){ .train = true });
    tp_rpn_init(r.P, &r.m, "", c);
    r.maps.levels = 5;
    for (int k = 0; k < 5; k++) {
        const int64_t side = 16 >> k;
        values_random(x, 2 * side * side * 4, (uint64_t)k);
        r.maps.map[k] = values_constant(r.T, TP_F32, TP_SHAPE(2, side, side, 4), x);
    }
    return r;
}

static void release(rig *r)
{
    tp_tape_free(r->T);
    tp_params_free(r->P);
    tp_device_close(r->D);
}

static const int64_t sizes[][2] = { { 64, 64 }, { 50, 40 } };
static const tp_corners boxes[] = { { 8, 8, 40, 40 }, { 20, 2, 52, 34 }, { 1, 30, 33, 62 } };
static const int categories[] = { 0, 1, 0 };

/* Counts each label of an image. */
static void count(const tp_rpn_targets *t, int64_t b, int64_t labels[3])
{
    labels[0] = labels[1] = labels[2] = 0;
    for (int64_t i = 0; i < t->n; i++) labels[t->label[b * t->n + i] + 1]++;
}

/* 16 anchors of each of two images count. Initially, logits are near 0, and each costs about log 2.
 * mmdetection divides by the number of anchors, counting at least one with an object per image. */
static void check_losses(tp_detection_profile profile, bool some, double divided)
{
    tp_rpn_cfg c = published_rpn(4);
    c.profile = profile;
    c.samples = 16;
    rig r = make(&c);
    tp_objects objects[2] = { { 0 }, { 0 } };
    tp_detection_in in = { .size = sizes, .objects = objects, .sampling = TP_SAMPLE_EVEN };
    tp_rpn_targets t;
    tp_tensor loss[2];
    int64_t labels[2][3];
    if (some) objects[0] = (tp_objects){ .n = 3, .box = boxes, .category = categories };
    const tp_rpn_out out = tp_rpn_forward(r.T, &r.m, &r.maps);
    cr_assert(tp_rpn_match(r.T, &r.m, &out, &in, &t), "%s", tp_why(r.T));
    cr_expect_eq(t.n, (256 + 64 + 16 + 4 + 1) * 3);
    for (int b = 0; b < 2; b++) count(&t, b, labels[b]);
    cr_expect(some ? labels[0][2] > 0 && labels[0][2] <= 8 : labels[0][2] == 0, "%lld",
              (long long)labels[0][2]);
    cr_expect(labels[0][1] + labels[0][2] == 16 && labels[1][1] == 16 && labels[1][2] == 0);
    tp_rpn_losses(r.T, &r.m, &out, &in, &t, loss);
    const double cls = tp_item(r.T, loss[0]), loc = tp_item(r.T, loss[1]);
    cr_expect(fabs(cls - 32.0 * log(2.0) / divided) < 1e-2, "%g, not 32 log 2 / %g", cls, divided);
    cr_expect(some ? loc > 0.0 : loc == 0.0, "%g", loc);
    tp_backward(r.T, tp_add(r.T, loss[0], loss[1]));
    cr_expect(tp_ok(r.T), "%s", tp_why(r.T));
    if (!some) expect_zeros(r.P, "anchor_deltas");
    tp_rpn_targets_free(&t);
    release(&r);
}

Test(region_heads, normalisers)
{
    check_losses(TP_DETECTRON2, false, 32.0);
    check_losses(TP_DETECTRON2, true, 32.0);
    check_losses(TP_MMDETECTION, false, 34.0);
    check_losses(TP_MMDETECTION, true, 33.0);
}

/* One stream samples the same anchors, another others. */
Test(region_heads, random_samples)
{
    tp_rpn_cfg c = published_rpn(4);
    c.samples = 16;
    rig r = make(&c);
    int64_t different = 0;
    tp_rpn_targets t[3];
    const tp_objects objects[2] = { { .n = 3, .box = boxes, .category = categories }, { 0 } };
    const tp_rpn_out out = tp_rpn_forward(r.T, &r.m, &r.maps);
    for (int i = 0; i < 3; i++) {
        tp_random random = tp_random_stream(i == 2, "anchors", 0, 0);
        const tp_detection_in in = { .objects = objects, .random = &random };
        cr_assert(tp_rpn_match(r.T, &r.m, &out, &in, &t[i]), "%s", tp_why(r.T));
    }
    cr_expect(memcmp(t[0].label, t[1].label, (size_t)(2 * t[0].n) * sizeof(int)) == 0);
    for (int64_t i = 0; i < 2 * t[0].n; i++) different += t[0].label[i] != t[2].label[i];
    cr_expect(different > 16, "%lld", (long long)different);
    for (int i = 0; i < 3; i++) tp_rpn_targets_free(&t[i]);
    release(&r);
}

/* Proposals lie in the unpadded image, by descending score. */
Test(region_heads, proposals)
{
    tp_rpn_cfg c = published_rpn(4);
    rig r = make(&c);
    tp_regions p;
    c.most[1] = 40;
    r.m.cfg = c;
    const tp_rpn_out out = tp_rpn_forward(r.T, &r.m, &r.maps);
    cr_assert(tp_rpn_propose(r.T, &r.m, &out, sizes, false, &p), "%s", tp_why(r.T));
    cr_expect(p.images == 2 && p.start[0] == 0 && p.start[2] == p.n && p.n > 40 && p.n <= 80);
    for (int64_t b = 0; b < 2; b++)
        for (int64_t i = p.start[b]; i < p.start[b + 1]; i++) {
            const tp_corners a = p.box[i];
            cr_expect(a.x1 >= 0 && a.y1 >= 0 && a.x2 <= (double)sizes[b][1] &&
                      a.y2 <= (double)sizes[b][0] && tp_corners_exceed(a, 0.0));
            cr_expect(i == p.start[b] || p.score[i] <= p.score[i - 1]);
        }
    tp_regions_free(&p);
    release(&r);
}

/* Training stops; inference continues without the prediction. */
Test(region_heads, predictions_that_are_not_finite)
{
    tp_rpn_cfg c = published_rpn(4);
    rig r = make(&c);
    tp_regions p;
    double x[2 * 4 * 4 * 4];
    values_random(x, 128, 9);
    x[17] = NAN;
    r.maps.map[2] = values_constant(r.T, TP_F32, TP_SHAPE(2, 4, 4, 4), x);
    const tp_rpn_out out = tp_rpn_forward(r.T, &r.m, &r.maps);
    cr_expect(tp_rpn_propose(r.T, &r.m, &out, sizes, false, &p), "%s", tp_why(r.T));
    for (int64_t i = 0; i < p.n; i++) cr_expect(isfinite(p.score[i]) && isfinite(p.box[i].x1));
    tp_regions_free(&p);
    cr_expect_not(tp_rpn_propose(r.T, &r.m, &out, sizes, true, &p));
    cr_expect(tp_code_of(r.T) == TP_E_NONFINITE && strstr(tp_why(r.T), "level 2"), "%s",
              tp_why(r.T));
    release(&r);
}

/* A pyramid with other levels is refused. */
Test(region_heads, levels)
{
    const tp_rpn_cfg c = published_rpn(4);
    rig r = make(&c);
    r.maps.levels = 4;
    tp_rpn_forward(r.T, &r.m, &r.maps);
    cr_expect(strstr(tp_why(r.T), "4 maps, but anchors of 5 levels"), "%s", tp_why(r.T));
    release(&r);
}
