/* test_augment.c - random number streams, image pipelines, and the mixing of batches against
 * reference cases. */
#include <criterion/criterion.h>
#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/augment.h>
#include <tapegrad/file.h>

#include "support/fixtures.h"

/* ---- random numbers ---- */

Test(augment, streams)
{
    tp_random a = tp_random_stream(5, "augment", 7, 3), b = a;
    static const struct {
        const char *name, *purpose;
        uint64_t seed, index, epoch;
    } others[] = {
        { "seed", "augment", 6, 7, 3 },
        { "purpose", "mix", 5, 7, 3 },
        { "index", "augment", 5, 8, 3 },
        { "epoch", "augment", 5, 7, 4 },
    };
    for (int i = 0; i < 20; i++)
        cr_expect_eq(tp_random_word(&a), tp_random_word(&b), "a copy draws the same");
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        tp_random c =
            tp_random_stream(others[k].seed, others[k].purpose, others[k].index, others[k].epoch);
        int same = 0;
        b = tp_random_stream(5, "augment", 7, 3);
        for (int i = 0; i < 20; i++) same += tp_random_word(&b) == tp_random_word(&c);
        cr_expect_eq(same, 0, "another %s draws others", others[k].name);
    }
}

enum { DRAWS = 40000 };

static double uniform(tp_random *r)
{
    return tp_random_uniform(r);
}
static double between(tp_random *r)
{
    return tp_random_between(r, -3, 5);
}
static double below(tp_random *r)
{
    return (double)tp_random_below(r, 7);
}
static double normal(tp_random *r)
{
    return tp_random_normal(r);
}
static double beta(tp_random *r)
{
    return tp_random_beta(r, 0.8, 0.8);
}
static double beta_small(tp_random *r)
{
    return tp_random_beta(r, 0.01, 0.01);
}
static double beta_odd(tp_random *r)
{
    return tp_random_beta(r, 2, 5);
}
static double normals(tp_random *r)
{
    float z[3];
    tp_random_normals(r, z, 3);
    return (double)z[2];
}

/* Means are within five standard errors, variances within 5 %, and all values in range. */
Test(augment, distributions)
{
    static const struct {
        const char *name;
        double (*draw)(tp_random *);
        double mean, variance, lo, hi;
    } cases[] = {
        { "uniform", uniform, 0.5, 1.0 / 12, 0, 1 },
        { "between", between, 1, 64.0 / 12, -3, 5 },
        { "below", below, 3, 4, 0, 6 },
        { "normal", normal, 0, 1, -7, 7 },
        { "normals", normals, 0, 1, -7, 7 },
        { "beta 0.8", beta, 0.5, 0.25 / 2.6, 0, 1 },
        { "beta 0.01", beta_small, 0.5, 0.25 / 1.02, 0, 1 },
        { "beta 2 5", beta_odd, 2.0 / 7, 10.0 / 392, 0, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_random r = tp_random_stream(1, cases[i].name, i, 0);
        double sum = 0, squares = 0, lo = INFINITY, hi = -INFINITY;
        for (int k = 0; k < DRAWS; k++) {
            const double x = cases[i].draw(&r), d = x - cases[i].mean;
            cr_assert(isfinite(x), "%s", cases[i].name);
            sum += d / DRAWS;
            squares += d * d / DRAWS;
            lo = fmin(lo, x);
            hi = fmax(hi, x);
        }
        cr_expect_lt(fabs(sum), 5 * sqrt(cases[i].variance / DRAWS), "%s: mean off by %g",
                     cases[i].name, sum);
        cr_expect_float_eq(squares / cases[i].variance, 1, 0.05, "%s: variance %g", cases[i].name,
                           squares);
        cr_expect(lo >= cases[i].lo && hi <= cases[i].hi, "%s: %g to %g", cases[i].name, lo, hi);
    }
}

/* ---- pipelines ---- */

static void make(tp_image *p, int64_t width, int64_t height)
{
    cr_assert(tp_image_new(p, width, height));
    for (int64_t i = 0; i < width * height * 3; i++)
        p->rgb[i] = (uint8_t)(i % 3 * 60 + i / 3 % width * 3 + i / 3 / width * 5);
}

static const char *const recipes[] = { "vil",   "vil-ls",   "cvt",  "lsla",
                                       "small", "finetune", "eval", "none" };
enum { RECIPES = sizeof recipes / sizeof *recipes };

static float *run(const tp_augment *a, tp_augment_work *w, const tp_image *in, tp_example e)
{
    float *out = malloc((size_t)(a->size * a->size * 3) * sizeof *out);
    cr_assert(tp_augment_image(a, w, in, e, out), "%s", w->why);
    return out;
}

/* An example's bits do not depend on the worker or its earlier work. Another epoch gives other bits
 * if the recipe is random. */
Test(augment, an_example_is_a_function_of_its_key)
{
    static const int64_t sizes[] = { 24, 40 };
    tp_image in = { 0 }, other = { 0 };
    make(&in, 61, 47);
    make(&other, 30, 90);
    for (int i = 0; i < RECIPES * 2; i++) {
        tp_augment a;
        tp_augment_work w = { 0 }, used = { 0 };
        const char *name = recipes[i / 2];
        const bool random = strcmp(name, "eval") != 0 && strcmp(name, "none") != 0;
        cr_assert(tp_augment_recipe(&a, name, sizes[i % 2]), "%s", name);
        const size_t bytes = (size_t)(a.size * a.size * 3) * sizeof(float);
        for (uint64_t k = 0; k < 20; k++) free(run(&a, &used, &other, (tp_example){ 1, 0, k }));
        int differ = 0;
        for (uint64_t k = 0; k < 20; k++) {
            float *x = run(&a, &w, &in, (tp_example){ 1, 2, k });
            float *y = run(&a, &used, &in, (tp_example){ 1, 2, k });
            float *z = run(&a, &used, &in, (tp_example){ 1, 3, k });
            cr_expect_arr_eq(x, y, bytes, "%s, %lld: example %d", name, (long long)a.size, (int)k);
            differ += memcmp(x, z, bytes) != 0;
            free(x);
            free(y);
            free(z);
        }
        cr_expect(random ? differ > 15 : differ == 0, "%s: %d examples differ", name, differ);
        tp_augment_work_free(&w);
        tp_augment_work_free(&used);
    }
    cr_expect_not(tp_augment_recipe(&(tp_augment){ 0 }, "swin", 224));
    tp_image_free(&in);
    tp_image_free(&other);
}

static float number(const tp_augment *a, int value, int c)
{
    return ((float)value / 255 - a->mean[c]) / a->std[c];
}

/* Single steps, with probability 1. */
Test(augment, flip_and_floats)
{
    tp_augment a;
    tp_augment_work w = { 0 };
    tp_image in = { 0 };
    make(&in, 33, 33);
    for (int flip = 0; flip < 2; flip++) {
        cr_assert(tp_augment_recipe(&a, "none", 33));
        a.flip = flip;
        float *out = run(&a, &w, &in, (tp_example){ 0 });
        for (int64_t i = 0; i < 33 * 33 * 3; i++) {
            const int64_t x = i / 3 % 33, row = i / 3 / 33, from = flip ? 32 - x : x;
            cr_assert_eq(out[i], number(&a, in.rgb[(row * 33 + from) * 3 + i % 3], (int)(i % 3)));
        }
        free(out);
    }
    tp_augment_work_free(&w);
    tp_image_free(&in);
}

/* Small images are cropped from the padded image, at all 81 positions in time. */
Test(augment, padded_crops)
{
    enum { S = 16 };
    tp_augment a;
    tp_augment_work w = { 0 };
    tp_image in = { 0 }, want = { 0 };
    int seen[81] = { 0 }, places = 0;
    make(&in, S, S);
    cr_assert(tp_augment_recipe(&a, "finetune", S));
    a.flip = 0;
    for (uint64_t k = 0; k < 600; k++) {
        free(run(&a, &w, &in, (tp_example){ .index = k }));
        int at = -1;
        for (int i = 0; i < 81 && at < 0; i++) {
            cr_assert(tp_image_crop(&want, &in, (tp_box){ i % 9 - 4, i / 9 - 4, S, S }, NULL));
            if (memcmp(want.rgb, w.image.rgb, sizeof(uint8_t[S * S * 3])) == 0) at = i;
        }
        cr_assert(at >= 0, "example %d is a crop", (int)k);
        places += !seen[at]++;
    }
    cr_expect_geq(places, 78, "%d of 81 places", places);
    tp_augment_work_free(&w);
    tp_image_free(&in);
    tp_image_free(&want);
}

/* The frequency, sizes and values of erased boxes. */
Test(augment, erasing)
{
    enum { S = 48, N = 400 };
    tp_augment a;
    tp_augment_work w = { 0 };
    tp_image in = { 0 };
    int erased = 0;
    double area = 0, sum = 0, squares = 0, values = 0;
    cr_assert(tp_image_new(&in, S, S));
    memset(in.rgb, 0, sizeof(uint8_t[S * S * 3]));
    cr_assert(tp_augment_recipe(&a, "none", S));
    a.erase = 0.25;
    for (uint64_t k = 0; k < N; k++) {
        float *out = run(&a, &w, &in, (tp_example){ .index = k });
        int changed = 0;
        for (int i = 0; i < S * S * 3; i++) {
            if (out[i] == number(&a, 0, i % 3)) continue;
            changed++;
            sum += out[i];
            squares += (double)out[i] * out[i];
        }
        values += changed;
        erased += changed > 0;
        area += (double)changed / (S * S * 3);
        if (changed > 0)
            cr_expect(changed > 0.015 * S * S * 3 && changed < 0.36 * S * S * 3, "%d", changed);
        free(out);
    }
    cr_expect(abs(erased - N / 4) < 45, "%d of %d examples", erased, N);
    cr_expect_float_eq(area / erased, 0.172, 0.035, "the mean share is %g", area / erased);
    cr_expect_float_eq(sum / values, 0, 0.02, "mean %g", sum / values);
    cr_expect_float_eq(squares / values, 1, 0.02, "variance %g", squares / values);
    tp_augment_work_free(&w);
    tp_image_free(&in);
}

/* Pixels hold their coordinates, so the corners of a crop show its box. */
Test(augment, random_boxes)
{
    enum { W = 200, H = 150, N = 500 };
    tp_augment a;
    tp_augment_work w = { 0 };
    tp_image in = { 0 };
    double area = 0;
    cr_assert(tp_image_new(&in, W, H));
    for (int i = 0; i < W * H; i++) {
        in.rgb[i * 3] = (uint8_t)(i % W);
        in.rgb[i * 3 + 1] = (uint8_t)(i / W);
        in.rgb[i * 3 + 2] = 9;
    }
    cr_assert(tp_augment_recipe(&a, "vil", 64));
    a.flip = a.erase = 0;
    a.ops = 0;
    a.brightness = a.contrast = a.saturation = 0;
    for (uint64_t k = 0; k < N; k++) {
        free(run(&a, &w, &in, (tp_example){ .index = k }));
        const uint8_t *p = w.image.rgb, *last = p + (64 * 64 - 1) * 3;
        area += (last[0] - p[0] + 1.0) * (last[1] - p[1] + 1.0) / (W * H);
        cr_expect(p[2] == 9 && last[2] == 9);
    }
    cr_expect_float_eq(area / N, 0.43, 0.035, "the mean share of the boxes is %g", area / N);
    tp_augment_work_free(&w);
    tp_image_free(&in);
}

/* The number of examples that operations and jitter change. */
Test(augment, operations_and_jitter_change_images)
{
    enum { S = 40, N = 300 };
    static const struct {
        const char *name;
        int ops;
        double probability, jitter;
        int least, most; /* number of images that differ from the original */
    } cases[] = {
        { "no operation", 0, 0.5, 0, 0, 0 },
        { "two that are left out", 2, 0, 0, 0, 0 },
        { "two, now and then", 2, 0.5, 0, 190, 250 },
        { "two", 2, 1, 0, 285, 300 },
        { "jitter", 0, 0, 0.4, 295, 300 },
        { "jitter beside operations", 1, 0, 0.4, 0, 0 },
    };
    tp_image in = { 0 };
    make(&in, S, S);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_augment a;
        tp_augment_work w = { 0 };
        int changed = 0;
        cr_assert(tp_augment_recipe(&a, "none", S));
        a.ops = cases[i].ops;
        a.op_probability = cases[i].probability;
        a.brightness = a.contrast = a.saturation = cases[i].jitter;
        for (uint64_t k = 0; k < N; k++) {
            free(run(&a, &w, &in, (tp_example){ .index = k }));
            changed += memcmp(w.image.rgb, in.rgb, sizeof(uint8_t[S * S * 3])) != 0;
        }
        cr_expect(changed >= cases[i].least && changed <= cases[i].most, "%s: %d of %d",
                  cases[i].name, changed, N);
        tp_augment_work_free(&w);
    }
    tp_image_free(&in);
}

/* Resizing a centre window equals resizing the whole image and cropping it. */
Test(augment, centre_crops_equal_resizing_and_cropping)
{
    static const int64_t shapes[][2] = {
        { 61, 47 }, { 47, 61 }, { 40, 40 }, { 45, 45 }, { 300, 7 }
    };
    tp_image in = { 0 }, all = { 0 }, want = { 0 };
    tp_augment a;
    tp_augment_work w = { 0 };
    cr_assert(tp_augment_recipe(&a, "eval", 40)); /* edge 45 */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t W = shapes[i][0], H = shapes[i][1];
        make(&in, W, H);
        free(run(&a, &w, &in, (tp_example){ 0 }));
        cr_assert(tp_image_resize(&all, &in, NULL, W < H ? 45 : 45 * W / H, W < H ? 45 * H / W : 45,
                                  TP_BICUBIC));
        cr_assert(tp_image_crop(&want, &all, tp_image_centre(&all, 40, 40), NULL));
        cr_expect_arr_eq(w.image.rgb, want.rgb, 40 * 40 * 3, "%lld x %lld", (long long)W,
                         (long long)H);
    }
    tp_augment_work_free(&w);
    tp_image_free(&in);
    tp_image_free(&all);
    tp_image_free(&want);
}

/* Encodes p as a PNG in memory. */
static size_t encode(const tp_image *p, uint8_t *to, size_t size)
{
    png_image image = { .version = PNG_IMAGE_VERSION,
                        .width = (png_uint_32)p->width,
                        .height = (png_uint_32)p->height,
                        .format = PNG_FORMAT_RGB };
    png_alloc_size_t n = size;
    cr_assert(png_image_write_to_memory(&image, to, &n, 0, p->rgb, 0, NULL), "%s", image.message);
    return n;
}

/* Decoding a box of a file gives the same result as its decoded pixels. */
Test(augment, bytes_and_pixels)
{
    static uint8_t png[1 << 16];
    tp_image in = { 0 };
    make(&in, 90, 70);
    const size_t n = encode(&in, png, sizeof png);
    for (int i = 0; i < RECIPES; i++) {
        tp_augment a;
        tp_augment_work w = { 0 }, v = { 0 };
        cr_assert(tp_augment_recipe(&a, recipes[i], 48));
        a.shrink = true; /* PNG cannot */
        const size_t values = (size_t)(a.size * a.size * 3);
        float *got = malloc(values * sizeof *got);
        for (uint64_t k = 0; k < 30; k++) {
            const tp_example e = { 3, 1, k };
            cr_assert(tp_augment_bytes(&a, &v, png, n, e, got), "%s", v.why);
            float *want = run(&a, &w, &in, e);
            cr_expect_arr_eq(got, want, values * sizeof *got, "%s: example %d", recipes[i], (int)k);
            free(want);
        }
        free(got);
        tp_augment_work_free(&w);
        tp_augment_work_free(&v);
    }
    tp_image_free(&in);
}

Test(augment, errors)
{
    tp_augment a;
    tp_augment_work w = { 0 };
    tp_image in = { 0 };
    float out[3] = { 7, 7, 7 };
    for (int i = 0; i < RECIPES * 2; i++) {
        cr_assert(tp_augment_recipe(&a, recipes[i / 2], i % 2 ? 64 : 8));
        cr_expect_not(tp_augment_bytes(&a, &w, "text", 4, (tp_example){ 0 }, out));
        cr_expect_str_eq(w.why, "neither JPEG nor PNG: it begins with the byte 74", "%s: %s",
                         recipes[i / 2], w.why);
        cr_expect_not(tp_augment_image(&a, &w, &w.decoded, (tp_example){ 0 }, out));
        cr_expect_str_eq(w.why, "neither JPEG nor PNG: it begins with the byte 74", "%s: %s",
                         recipes[i / 2], w.why);
    }
    make(&in, 5, 5);
    cr_assert(tp_augment_recipe(&a, "eval", 64));
    a.crop_ratio = 1.5;
    cr_expect_not(tp_augment_image(&a, &w, &in, (tp_example){ 0 }, out));
    cr_expect_str_eq(w.why, "a crop of 64 x 64 pixels is impossible with crop_ratio 1.5");
    a = (tp_augment){ .size = 1, .crop = TP_CROP_NONE };
    cr_expect_not(tp_augment_image(&a, &w, &in, (tp_example){ 0 }, out));
    cr_expect_str_eq(w.why, "pixels cannot be scaled by mean 0 and std 0 of channel 0: std must be "
                            "above 0 (tp_augment_recipe fills both)");
    cr_expect(out[0] == 7 && out[2] == 7, "out is left alone");
    tp_augment_work_free(&w);
    tp_image_free(&in);
}

/* ---- mixing ---- */

enum { BATCH = 4, CLASSES = 7, LARGEST = 4 * 3 * 11 * 14 };

typedef struct mix_case {
    const char *file, *labels;
    const char *lambda, *drawn; /* keys of scalars */
    int64_t x, y;               /* centre of the box */
} mix_case;

static void read_f32(tp_file *F, const char *name, float *to)
{
    const tp_file_tensor *t = tp_file_find(F, name);
    cr_assert(t && t->numel <= LARGEST, "%s", name);
    cr_assert(tp_file_read(F, t, TP_F32, to), "%s", tp_file_why(F));
}

/* Converts a reference batch from [B,C,H,W] to [B,H,W,C]. */
static tp_shape read_batch(tp_file *F, const char *name, float *to)
{
    static float raw[LARGEST];
    read_f32(F, name, raw);
    const tp_shape s = tp_file_find(F, name)->shape;
    const int64_t C = s.dim[1], H = s.dim[2], W = s.dim[3];
    for (int64_t i = 0; i < s.dim[0] * C * H * W; i++) {
        const int64_t x = i % W, y = i / W % H, c = i / W / H % C, b = i / W / H / C;
        to[((b * H + y) * W + x) * C + c] = raw[i];
    }
    return s;
}

static void expect_near(const float *got, const float *want, int64_t n, const char *name)
{
    for (int64_t i = 0; i < n; i++)
        cr_expect_float_eq(got[i], want[i], 1.2e-7F * fmaxf(1, fabsf(want[i])),
                           "%s: element %lld: %.9g, not %.9g", name, (long long)i, (double)got[i],
                           (double)want[i]);
}

static void expect_mixed(tp_file *F, const tp_mixing *d, const int32_t *label, const char *x,
                         const char *target)
{
    static float got[LARGEST], want[LARGEST];
    const tp_shape s = read_batch(F, "input.x", got);
    read_batch(F, x, want);
    tp_mix_apply(d, got, s.dim[0], s.dim[2], s.dim[3], s.dim[1]);
    expect_near(got, want, s.dim[0] * s.dim[1] * s.dim[2] * s.dim[3], x);
    tp_mix_targets(d, 0.1, label, BATCH, CLASSES, got);
    read_f32(F, target, want);
    expect_near(got, want, (int64_t)BATCH * CLASSES, target);
}

Test(augment, mixing_cases)
{
    static const mix_case cases[] = {
        { "lsla/recipe_mix.safetensors", "input.label", "mixup_lambda", "cutmix_lambda_drawn", 8,
          2 },
        { "image_baselines/mixup_cutmix.safetensors", "input.labels", "lam", "cutmix_lambda_drawn",
          9, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t label[BATCH];
        double lambda = 0, drawn = 0;
        float corrected;
        if (i > 0 && !getenv("TAPEGRAD_FIXTURES")) break; /* the repository has only the first */
        tp_file *F = fixture_open(cases[i].file);
        cr_assert(tp_file_num(F, cases[i].lambda, &lambda) &&
                      tp_file_num(F, cases[i].drawn, &drawn),
                  "%s", tp_file_why(F));
        cr_assert(tp_file_read(F, tp_file_find(F, cases[i].labels), TP_I32, label), "%s",
                  tp_file_why(F));
        const tp_mixing blend = { .lambda = lambda };
        expect_mixed(F, &blend, label, "output.mixup_x", "output.mixup_target");
        const tp_shape s = tp_file_find(F, "input.x")->shape;
        const tp_mixing cut = tp_mix_cut(drawn, cases[i].x, cases[i].y, s.dim[2], s.dim[3]);
        expect_mixed(F, &cut, label, "output.cutmix_x", "output.cutmix_target");
        read_f32(F, "output.cutmix_lambda", &corrected);
        cr_expect_float_eq(cut.lambda, corrected, 1e-7, "%s: %g", cases[i].file, cut.lambda);
        tp_file_close(F);
    }
}

/* The frequency of both kinds; boxes stay within the image. */
Test(augment, mixing_draws)
{
    static const struct {
        const char *name;
        tp_mix mix;
        int cut, blend; /* of 1000, +- 60 */
    } cases[] = {
        { "both", { 1, 0.8, 1, 0.5, 0.1 }, 500, 500 },
        { "both, now and then", { 0.6, 0.8, 1, 0.25, 0.1 }, 150, 450 },
        { "mixup", { 1, 0.8, 0, 0.5, 0 }, 0, 1000 },
        { "cutmix", { 1, 0, 1, 0.5, 0 }, 1000, 0 },
        { "neither", { 1, 0, 0, 0.5, 0.1 }, 0, 0 },
        { "never", { 0, 0.8, 1, 0.5, 0.1 }, 0, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int cut = 0, blend = 0;
        for (uint64_t k = 0; k < 1000; k++) {
            const tp_example e = { 9, 0, k };
            const tp_mixing d = tp_mix_draw(&cases[i].mix, e, 30, 20);
            const tp_mixing again = tp_mix_draw(&cases[i].mix, e, 30, 20);
            cr_expect(d.lambda == again.lambda && d.cut == again.cut && d.box.x == again.box.x,
                      "%s", cases[i].name);
            cr_expect(d.lambda >= 0 && d.lambda <= 1, "%s: %g", cases[i].name, d.lambda);
            cr_expect(d.box.x >= 0 && d.box.y >= 0 && d.box.x + d.box.width <= 20 &&
                          d.box.y + d.box.height <= 30,
                      "%s", cases[i].name);
            cut += d.cut;
            blend += !d.cut && d.lambda != 1;
        }
        cr_expect(abs(cut - cases[i].cut) < 60 && abs(blend - cases[i].blend) < 60,
                  "%s: %d cut, %d blended", cases[i].name, cut, blend);
    }
}
