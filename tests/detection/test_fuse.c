/* test_fuse.c - frozen norms folded into the weights of preceding convolutions: ResNets,
 * detectors. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include <tapegrad/detection/detector.h>
#include <tapegrad/optim.h>
#include <tapegrad/resnet.h>

#include "support/device.h"
#include "support/models.h"

static tp_resnet_cfg *of(tp_model_cfg *c)
{
    return (tp_resnet_cfg *)&c->at;
}

/* A bottleneck net of 8 channels with groups. */
static tp_model_cfg small(void)
{
    tp_model_cfg c = models_preset("resnet-mini");
    *of(&c) = (tp_resnet_cfg){ .image = { 33, 48 },
                               .base = 8,
                               .blocks = { 1, 2, 1, 1 },
                               .bottleneck = true,
                               .groups = 2,
                               .group_width = 32 };
    return c;
}

/* Gives norms arbitrary values other than the initial ones, in buffers and in parameters. */
static void disturb_norms(tp_params *P)
{
    static double x[4096];
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        if (it.shape.ndim != 1) continue;
        tp_random r = tp_random_stream(3, it.name, 0, 0);
        const bool positive = tp_ends_in(it.name, "weight") || tp_ends_in(it.name, "var");
        for (int64_t i = 0; i < it.shape.dim[0]; i++)
            x[i] = positive ? 0.5 + tp_random_uniform(&r) : tp_random_uniform(&r) - 0.5;
        cr_assert(tp_param_set(P, it.tensor, TP_F64, x, (size_t)it.shape.dim[0] * sizeof *x), "%s",
                  tp_params_why(P));
    }
}

enum { MOST_VALUES = 400000, MOST_FOUND = 20 };

/* Reads the last map; returns its size. */
static int64_t last_map(tp_device *D, const tp_resnet *m, tp_dtype compute, double *to)
{
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = compute });
    tp_tensor maps[TP_RESNET_STAGES];
    tp_record(T, false);
    tp_tensor x = models_images(T, 2, 40, 33);
    if (compute == TP_F64) x = tp_cast(T, x, TP_F64);
    tp_model_resnet.backbone->features(T, m, x, maps);
    const tp_tensor y = tp_cast(T, maps[3], device_real());
    const int64_t n = tp_numel(y);
    float single[8192];
    cr_assert(n > 0 && n <= 8192);
    const bool is_double = device_real() == TP_F64;
    cr_assert(
        tp_read(T, y, is_double ? (void *)to : single, (size_t)n * tp_dtype_size(device_real())),
        "%s", tp_why(T));
    for (int64_t i = 0; i < n && !is_double; i++) to[i] = (double)single[i];
    tp_tape_free(T);
    return n;
}

/* The largest difference of maps, relative to the largest value. */
static double distance(const double *x, const double *y, int64_t n)
{
    double most = 0.0, value = 0.0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(x[i] - y[i]));
        value = fmax(value, fabs(x[i]));
    }
    cr_assert(value > 0.01 && value < INFINITY, "%g", value);
    return most / value;
}

/* Reads all values of P; returns the count. */
static int64_t values_of(tp_params *P, double *to)
{
    int64_t n = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        if (it.dtype == TP_I64) continue; /* batches counted by norms */
        cr_assert(n + tp_numel(it.tensor) <= MOST_VALUES);
        cr_assert(
            tp_param_get(P, it.tensor, TP_F64, to + n, (size_t)tp_numel(it.tensor) * sizeof *to),
            "%s", tp_params_why(P));
        n += tp_numel(it.tensor);
    }
    return n;
}

static bool equal(const double *x, const double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != y[i]) return false;
    return true;
}

typedef struct fused_case {
    const char *name;
    bool detectron, bottleneck, single; /* single: f32 */
    tp_dtype compute;
    double limit;
} fused_case;

/* A fused net computes the same maps, as does an unfused module with its parameters; fusing twice
 * changes no bit. */
static void expect_fused(const fused_case *k)
{
    static double before[8192], after[8192], plain[8192], once[MOST_VALUES], twice[MOST_VALUES];
    static tp_resnet m, other;
    tp_model_cfg c = small();
    of(&c)->frozen_norm = !k->detectron;
    of(&c)->detectron = k->detectron;
    of(&c)->bottleneck = k->bottleneck;
    if (!k->bottleneck) of(&c)->groups = 1, of(&c)->group_width = 64;
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .dtype = k->single ? TP_F32 : TP_F64 });
    tp_model_resnet.init(P, &m, "", of(&c));
    disturb_norms(P);
    other = m;
    const int64_t n = last_map(D, &m, k->compute, before);
    cr_assert(tp_model_resnet.backbone->fuse(P, &m), "%s: %s", k->name, tp_params_why(P));
    last_map(D, &m, k->compute, after);
    last_map(D, &other, k->compute, plain);
    cr_expect(distance(before, after, n) < k->limit, "%s: %g", k->name, distance(before, after, n));
    cr_expect(distance(before, plain, n) < k->limit, "%s: %g", k->name, distance(before, plain, n));
    const int64_t values = values_of(P, once);
    cr_assert(tp_model_resnet.backbone->fuse(P, &m), "%s: %s", k->name, tp_params_why(P));
    cr_expect(values_of(P, twice) == values);
    cr_expect(equal(once, twice, values), "%s: values change again", k->name);
    tp_params_free(P);
    tp_device_close(D);
}

Test(fuse, resnets)
{
    static const fused_case cases[] = {
        { "f32", false, true, true, TP_F32, 1e-5 },
        { "bf16", false, true, true, TP_BF16, 0.05 },
        { "bf16, detectron", true, true, true, TP_BF16, 0.05 },
        { "f64", false, true, false, TP_F64, 1e-12 },
        { "f64, basic blocks", false, false, false, TP_F64, 1e-12 },
        { "f64, detectron", true, true, false, TP_F64, 1e-12 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (cases[i].single || device_real() == TP_F64) expect_fused(&cases[i]);
}

/* Another call fuses weights that are loaded later. */
Test(fuse, again)
{
    static double before[8192], after[8192];
    static tp_resnet m, other;
    tp_model_cfg c = small();
    of(&c)->frozen_norm = true;
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, NULL);
    tp_model_resnet.init(P, &m, "", of(&c));
    other = m;
    cr_assert(tp_model_resnet.backbone->fuse(P, &m));
    disturb_norms(P);
    const int64_t n = last_map(D, &other, TP_F32, before);
    cr_assert(tp_model_resnet.backbone->fuse(P, &m));
    last_map(D, &m, TP_F32, after);
    cr_expect(distance(before, after, n) < 1e-5, "%g", distance(before, after, n));
    tp_params_free(P);
    tp_device_close(D);
}

/* Unfrozen norms stay as they are; failed parameters, and averages in place of parameters, are
 * refused. */
Test(fuse, refuses)
{
    static double before[MOST_VALUES], after[MOST_VALUES];
    static tp_resnet m;
    tp_model_cfg c = small();
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL);
    tp_model_resnet.init(P, &m, "", of(&c));
    disturb_norms(P);
    const int64_t n = values_of(P, before);
    cr_expect(tp_model_resnet.backbone->fuse(P, &m));
    cr_expect(values_of(P, after) == n && equal(before, after, n));
    cr_expect_eq(m.norm, TP_RESNET_BATCH_NORM);
    of(&c)->frozen_norm = true;
    tp_model_resnet.init(Q, &m, "", of(&c));
    tp_ema *E = tp_ema_new(Q, 0.5);
    tp_ema_swap(E);
    cr_expect(!tp_model_resnet.backbone->fuse(Q, &m));
    cr_expect(strstr(tp_params_why(Q), "swap"), "%s", tp_params_why(Q));
    cr_expect_eq(m.norm, TP_RESNET_FROZEN);
    cr_expect(!tp_model_resnet.backbone->fuse(Q, &m), "parameters that have failed");
    tp_ema_free(E);
    tp_params_free(P);
    tp_params_free(Q);
    tp_device_close(D);
}

/* ---- detectors ---- */

/* The detections in an image, whatever their scores. */
static tp_detected found_by(tp_device *D, const tp_detector *m)
{
    static const int64_t size[1][2] = { { 64, 96 } };
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
    tp_detected d;
    tp_tensor x = models_images(T, 1, 64, 96);
    if (device_real() == TP_F64) x = tp_cast(T, x, TP_F64);
    cr_assert(tp_detector_detect(T, m, &(tp_detection_in){ .images = x, .size = size }, &d), "%s",
              tp_why(T));
    tp_tape_free(T);
    return d;
}

static void expect_same(const char *name, const tp_detected *a, const tp_detected *b, double limit)
{
    cr_assert(a->n > 0 && a->n == b->n, "%s: %lld and %lld", name, (long long)a->n,
              (long long)b->n);
    for (int64_t i = 0; i < a->n; i++) {
        const tp_found *x = &a->found[i], *y = &b->found[i];
        cr_expect(x->category == y->category && fabs(x->score - y->score) < limit &&
                      fabs(x->box.x1 - y->box.x1) < 100 * limit &&
                      fabs(x->box.y2 - y->box.y2) < 100 * limit,
                  "%s: detection %lld", name, (long long)i);
    }
    cr_assert_eq(a->mask != NULL, b->mask != NULL);
    for (int64_t i = 0; a->mask && i < a->n * a->side * a->side; i++)
        cr_assert(fabsf(a->mask[i] - b->mask[i]) < (float)limit, "%s: masks", name);
}

static void expect_fused_detector(const char *name, tp_detection_profile profile)
{
    static tp_detector m;
    tp_detector_cfg c;
    char why[300];
    cr_assert(tp_detector_preset(&c, name, 3, profile, why, sizeof why), "%s", why);
    tp_detector_limit(&c, 0.0, MOST_FOUND);
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 4, .dtype = device_real() });
    tp_detector_init(P, &m, "", &c);
    disturb_norms(P);
    tp_detected before = found_by(D, &m);
    cr_assert(tp_detector_fuse(P, &m), "%s: %s", name, tp_params_why(P));
    tp_detected after = found_by(D, &m);
    expect_same(name, &before, &after, device_limit(1e-6, 1e-3));
    tp_detected_free(&before);
    tp_detected_free(&after);
    tp_params_free(P);
    tp_device_close(D);
}

Test(fuse, detectors)
{
    expect_fused_detector("retinanet-resnet-mini", TP_DETECTRON2);
    expect_fused_detector("retinanet-resnet-mini", TP_MMDETECTION);
    expect_fused_detector("mask-rcnn-resnet-mini", TP_DETECTRON2);
    expect_fused_detector("retinanet-vil-mini", TP_DETECTRON2); /* has nothing to fuse */
}
