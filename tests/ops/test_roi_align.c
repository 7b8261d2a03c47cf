/* test_roi_align.c - RoIAlign against its definition in plain ops, on every instruction set;
 * several maps, unusual boxes, threads, messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/ref_roi_align.h"
#include "support/device.h"
#include "support/trial.h"
#include "support/values.h"

enum { BOXES = 14 };

/* For images of 48 x 40 pixels: inside, across each edge, around everything, outside, tiny, empty,
 * inverted, with bins exactly on pixels. */
static const double boxes[BOXES][4] = {
    { 3.7, 5.2, 21.3, 33.9 },   { -4.2, -6.1, 12.5, 9.3 },  { 30.1, 36.4, 47.2, 55.8 },
    { -11.0, 14.6, 3.1, 22.2 }, { 17.9, -9.4, 29.6, 2.7 },  { -100.0, -90.0, 170.0, 160.0 },
    { 90.3, 12.0, 99.1, 20.0 }, { 8.25, 8.5, 8.75, 8.875 }, { 8.0, 5.0, 8.0, 15.0 },
    { 22.0, 31.0, 13.0, 19.0 }, { 0.0, 0.0, 40.0, 48.0 },   { 4.0, 4.0, 20.0, 20.0 },
    { -7.5, -7.5, -1.5, -1.5 }, { 1.1, 40.3, 39.2, 46.9 },
};

typedef struct problem {
    const char *name;
    int maps;
    int64_t C;
    tp_roi_align_cfg cfg;
} problem;

/* clang-format off */
static const problem problems[] = {
    { "box head", 1, 19, { .size = { 7, 7 }, .scale = { 0.25 }, .aligned = true } },
    { "mask head", 2, 40, { .size = { 14, 14 }, .scale = { 0.25, 0.125 }, .aligned = true } },
    { "four maps", 4, 5,
      { .size = { 3, 2 }, .scale = { 0.5, 0.25, 0.125, 0.0625 }, .aligned = true } },
    { "as at first", 2, 3, { .size = { 4, 5 }, .scale = { 0.5, 0.25 } } },
    { "two samples", 2, 8,
      { .size = { 2, 3 }, .scale = { 0.5, 0.125 }, .samples = 2, .aligned = true } },
    { "five samples, as at first", 1, 3, { .size = { 1, 2 }, .scale = { 0.25 }, .samples = 5 } },
    { "masks at image size", 1, 1, { .size = { 28, 28 }, .scale = { 1.0 }, .aligned = true } },
};
/* clang-format on */
enum { PROBLEMS = sizeof problems / sizeof *problems };

static void places(const problem *k, int32_t (*place)[2])
{
    for (int r = 0; r < BOXES; r++) {
        place[r][0] = r / 2 % 2;
        place[r][1] = r % k->maps;
    }
}

/* x: the maps of two images. */
static tp_tensor fused(tp_tape *T, const tp_tensor *x, const void *env)
{
    const problem *k = env;
    int32_t place[BOXES][2];
    float box[BOXES][4];
    places(k, place);
    for (int e = 0; e < 4 * BOXES; e++) box[e / 4][e % 4] = (float)boxes[e / 4][e % 4];
    return tp_roi_align(T, k->maps, x, tp_from(T, TP_F32, TP_SHAPE(BOXES, 4), box),
                        tp_from(T, TP_I32, TP_SHAPE(BOXES, 2), place), k->cfg);
}

static tp_tensor composed(tp_tape *T, const tp_tensor *x, const void *env)
{
    const problem *k = env;
    int32_t place[BOXES][2];
    double box[BOXES][4];
    places(k, place);
    for (int e = 0; e < 4 * BOXES; e++) box[e / 4][e % 4] = (float)boxes[e / 4][e % 4];
    return ref_roi_align(T, x, BOXES, box, place, k->cfg);
}

static trial trial_of(const problem *k, tp_dtype dt, tp_isa isa)
{
    trial t = { .f = fused, .env = k, .dtype = dt, .compute = dt, .isa = isa };
    for (int l = 0; l < k->maps; l++)
        t.in[l] = TP_SHAPE(2, (int64_t)ceil(48.0 * k->cfg.scale[l]),
                           (int64_t)ceil(40.0 * k->cfg.scale[l]), k->C);
    return t;
}

static void compare(const problem *k, tp_dtype dt, tp_isa isa)
{
    trial t = trial_of(k, dt, isa);
    const double tol = dt == TP_F64 ? 1e-12 : 1e-5;
    trial_result a = trial_run(&t);
    t.f = composed;
    trial_result b = trial_run(&t);
    cr_expect_str_empty(a.why, "%s: %s", k->name, a.why);
    cr_expect_str_empty(b.why, "%s, composed: %s", k->name, b.why);
    cr_assert_eq(a.ny, b.ny, "%s", k->name);
    cr_expect_lt(values_error(a.y, b.y, b.ny, 0), tol, "%s, %s, isa %d", k->name, tp_dtype_name(dt),
                 (int)isa);
    for (int l = 0; l < k->maps; l++)
        cr_expect_lt(values_error(a.dx[l], b.dx[l], trial_count(&t.in[l]), 0), tol,
                     "%s, %s, isa %d: gradient of map %d", k->name, tp_dtype_name(dt), (int)isa, l);
    trial_free(&a);
    trial_free(&b);
}

Test(roi_align, by_definition)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (int i = 0; i < PROBLEMS; i++) {
            if (trial_can(TP_F64, isa)) compare(&problems[i], TP_F64, isa);
            if (trial_can(TP_F32, isa)) compare(&problems[i], TP_F32, isa);
        }
}

Test(roi_align, threads)
{
    for (int i = 0; i < PROBLEMS; i++) {
        const trial t = trial_of(&problems[i], TP_F32, TP_ISA_AUTO);
        cr_expect(trial_same_on_threads(&t), "%s", problems[i].name);
    }
}

/* ---- unusual boxes ---- */

/* Pools regions of one map [1,6,5,2] of ones into 2 x 2 bins; y [n,2,2,2]. */
static void pool(tp_tape *T, int64_t n, const float *box, tp_roi_align_cfg cfg, double *y,
                 double *dx)
{
    int32_t place[16][2] = { { 0 } };
    double ones[60];
    for (int i = 0; i < 60; i++) ones[i] = 1.0;
    const tp_tensor x = values_input(T, TP_F32, TP_SHAPE(1, 6, 5, 2), ones);
    cfg.size[0] = cfg.size[1] = 2;
    const tp_tensor r = tp_roi_align(T, 1, &x, tp_from(T, TP_F32, TP_SHAPE(n, 4), box),
                                     tp_from(T, TP_I32, TP_SHAPE(n, 2), place), cfg);
    values_read(T, r, y);
    tp_backward(T, tp_sum(T, r, TP_ALL));
    values_read(T, tp_grad(T, x), dx);
    cr_expect(tp_ok(T), "%s", tp_why(T));
}

/* Empty and non-finite regions give zeros and no gradient; huge ones finish quickly. */
Test(roi_align, boxes_without_samples)
{
    static const float box[][4] = {
        { 1, 1, 1, 4 },         { 3, 3, 2, 2 },       { NAN, 0, 3, 3 }, { 0, 0, INFINITY, 3 },
        { -INFINITY, 0, 3, 3 }, { 0, 0, 1e30f, 3 },   { 9, 9, 14, 12 }, { -9, -9, -3, -4 },
        { 0, 0, NAN, NAN },     { 1e9f, 1, 2e9f, 2 },
    };
    enum { N = sizeof box / sizeof *box };
    double y[N * 8], dx[60], sum = 0.0;
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    pool(T, N, box[0], (tp_roi_align_cfg){ .aligned = true }, y, dx);
    for (int i = 0; i < N * 8; i++) cr_expect_eq(y[i], 0.0, "box %d: %g", i / 8, y[i]);
    for (int i = 0; i < 60; i++) sum += fabs(dx[i]);
    cr_expect_eq(sum, 0.0);
    tp_tape_free(T);
    tp_device_close(D);
}

/* On a map of ones, an inner region has mean 1; a bin half outside gives 1/2; a box of a billion
 * pixels has few samples on the map. */
Test(roi_align, means)
{
    static const float box[][4] = {
        { 0.5f, 0.5f, 4.0f, 5.0f },
        { 1.0f, 2.0f, 1.25f, 2.5f },
        { -8.5f, 1.5f, 0.5f, 2.5f },
        { -1e9f, -1e9f, 1e9f, 1e9f },
    };
    double y[4 * 8], dx[60];
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    pool(T, 4, box[0], (tp_roi_align_cfg){ .aligned = true }, y, dx);
    for (int i = 0; i < 16; i++) cr_expect_float_eq(y[i], 1.0, 1e-6, "%d: %g", i, y[i]);
    /* the second bin has samples at -4.05, -3.15, -2.25, -1.35, -0.45: one of five is near the
     * map */
    cr_expect_eq(y[16], 0.0);
    cr_expect_float_eq(y[18], 0.2, 1e-6, "%g", y[18]);
    for (int i = 24; i < 32; i++) cr_expect(y[i] >= 0.0 && y[i] < 1e-15, "%g", y[i]);
    tp_tape_free(T);
    tp_device_close(D);
}

/* Without regions the result is empty and the maps' gradients are zero. */
Test(roi_align, no_regions)
{
    double dx[60], sum = 0.0;
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const double zeros[60] = { 0.0 };
    const tp_tensor x = values_input(T, TP_F32, TP_SHAPE(1, 6, 5, 2), zeros);
    const tp_tensor y = tp_roi_align(T, 1, &x, tp_full(T, TP_F32, TP_SHAPE(0, 4), 0.0),
                                     tp_full(T, TP_I64, TP_SHAPE(0, 2), 0.0),
                                     (tp_roi_align_cfg){ .size = { 7, 7 }, .aligned = true });
    cr_expect(tp_ndim(y) == 4 && tp_dim(y, 0) == 0 && tp_dim(y, 1) == 7 && tp_dim(y, 3) == 2);
    tp_backward(T, tp_sum(T, y, TP_ALL));
    values_read(T, tp_grad(T, x), dx);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    for (int i = 0; i < 60; i++) sum += fabs(dx[i]);
    cr_expect_eq(sum, 0.0);
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- messages ---- */

typedef struct refusal {
    const char *text;
    int levels;
    tp_shape second, boxes, place;
    tp_dtype places;
    int image, map;
    tp_roi_align_cfg cfg;
} refusal;

#define FINE { 4, { 2, 3, 3, 4 } }, { 2, { 3, 4 } }, { 2, { 3, 2 } }, TP_I32
#define CFG  .size = { 2, 2 }, .scale = { 1.0, 0.5 }, .aligned = true
/* clang-format off */
static const refusal refusals[] = {
    { "there are 0 maps, not 1 to 6", 0, FINE, 0, 0, { CFG } },
    { "there are 7 maps, not 1 to 6", 7, FINE, 0, 0, { CFG } },
    { "maps must have as many images and channels as the first; map 1 differs", 2,
      { 4, { 2, 3, 3, 5 } }, { 2, { 3, 4 } }, { 2, { 3, 2 } }, TP_I32, 0, 0, { CFG } },
    { "maps must have as many images and channels as the first; map 1 differs", 2,
      { 4, { 1, 3, 3, 4 } }, { 2, { 3, 4 } }, { 2, { 3, 2 } }, TP_I32, 0, 0, { CFG } },
    { "maps must have 1 or more rows and columns", 2, { 4, { 2, 0, 3, 4 } }, { 2, { 3, 4 } },
      { 2, { 3, 2 } }, TP_I32, 0, 0, { CFG } },
    { "maps must be [B,H,W,C]; map 1 has 3 axes", 2, { 3, { 2, 3, 4 } }, { 2, { 3, 4 } },
      { 2, { 3, 2 } }, TP_I32, 0, 0, { CFG } },
    { "boxes must be [R,4]", 2, { 4, { 2, 3, 3, 4 } }, { 2, { 3, 5 } }, { 2, { 3, 2 } }, TP_I32, 0,
      0, { CFG } },
    { "places must be [3,2]: the image and the map of each box", 2, { 4, { 2, 3, 3, 4 } },
      { 2, { 3, 4 } }, { 2, { 2, 2 } }, TP_I32, 0, 0, { CFG } },
    { "place must be i32 or i64, not f32", 2, { 4, { 2, 3, 3, 4 } }, { 2, { 3, 4 } },
      { 2, { 3, 2 } }, TP_F32, 0, 0, { CFG } },
    { "regions cannot have 0 bins along an axis, only 1 to 256", 2, FINE, 0, 0,
      { .size = { 2, 0 } } },
    { "regions cannot have 257 bins along an axis, only 1 to 256", 2, FINE, 0, 0,
      { .size = { 257, 2 } } },
    { "bins cannot have 65 samples along an axis, only 0 to 64", 2, FINE, 0, 0,
      { CFG, .samples = 65 } },
    { "bins cannot have -1 samples along an axis", 2, FINE, 0, 0, { CFG, .samples = -1 } },
    { "the scale of map 1 cannot be -2", 2, FINE, 0, 0,
      { .size = { 2, 2 }, .scale = { 1.0, -2.0 } } },
    { "the scale of map 0 cannot be nan", 2, FINE, 0, 0, { .size = { 2, 2 }, .scale = { NAN } } },
    { "region 0 is of image 2 and map 0, but there are 2 and 2", 2, FINE, 2, 0, { CFG } },
    { "region 0 is of image -1 and map 0, but there are 2 and 2", 2, FINE, -1, 0, { CFG } },
    { "region 0 is of image 1 and map 2, but there are 2 and 2", 2, FINE, 1, 2, { CFG } },
};
/* clang-format on */

Test(roi_align, messages)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *k = &refusals[i];
        tp_tensor map[7], place = TP_NONE;
        const int32_t at[3][2] = { { k->image, k->map }, { 0, 1 }, { 1, 0 } };
        tp_reset(T);
        for (int l = 0; l < 7; l++)
            map[l] = tp_full(T, TP_F32, l == 1 ? k->second : TP_SHAPE(2, 6, 5, 4), 1.0);
        if (k->places == TP_I32 && k->place.dim[0] == 3)
            place = tp_from(T, TP_I32, k->place, at);
        else
            place = tp_full(T, k->places, k->place, 0.0);
        tp_roi_align(T, k->levels, map, tp_full(T, TP_F32, k->boxes, 1.0), place, k->cfg);
        cr_expect(strstr(tp_why(T), k->text), "%zu: '%s' instead of '%s'", i, tp_why(T), k->text);
        cr_expect(strstr(tp_why(T), "test_roi_align.c"), "'%s' names no line", tp_why(T));
        tp_clear(T);
    }
    tp_tape_free(T);
    tp_device_close(D);
}
