/* augment.c - augmentation pipelines of images, and the papers' pipelines by name.
 *
 *     bytes -> decoded box -> size x size pixels -> flip, RandAugment, corrupt -> floats -> erase
 *
 * Random numbers are drawn in that order, from one stream per example; the corruption has its own.
 * A random box decodes only its pixels, which equal those of the fully decoded image. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/augment.h>

#include "inner.h"

enum { TRIES = 10, PADDING = 4 };

/* ---- size x size pixels ---- */

/* Draws the size of a box: `area` bounds its share of `pixels`, `wide` its aspect ratio. */
static void draw_shape(tp_random *r, double pixels, const double area[2], const double wide[2],
                       int64_t *width, int64_t *height)
{
    const double a = tp_random_between(r, area[0], area[1]) * pixels;
    const double shape = exp(tp_random_between(r, log(wide[0]), log(wide[1])));
    *width = (int64_t)nearbyint(sqrt(a * shape));
    *height = (int64_t)nearbyint(sqrt(a / shape));
}

/* The largest centred box with an allowed aspect ratio. */
static tp_box middle(const double aspect[2], int64_t W, int64_t H)
{
    const double shape = (double)W / (double)H;
    int64_t width = W, height = H;
    if (shape < aspect[0]) height = (int64_t)nearbyint((double)W / aspect[0]);
    if (shape > aspect[1]) width = (int64_t)nearbyint((double)H * aspect[1]);
    if (height < 1) height = 1;
    if (width < 1) width = 1;
    return (tp_box){ (W - width) / 2, (H - height) / 2, width, height };
}

static tp_box draw_box(const tp_augment *a, tp_random *r, int64_t W, int64_t H)
{
    for (int i = 0; i < TRIES; i++) {
        tp_box b = { 0 };
        draw_shape(r, (double)W * (double)H, a->area, a->aspect, &b.width, &b.height);
        if (b.width < 1 || b.height < 1 || b.width > W || b.height > H) continue;
        b.y = tp_random_below(r, H - b.height + 1);
        b.x = tp_random_below(r, W - b.width + 1);
        return b;
    }
    return middle(a->aspect, W, H);
}

/* Resizes the shorter edge to size / crop_ratio and cuts a size x size window. Computes only the
 * window's pixels. */
static bool cut_edge(const tp_augment *a, tp_augment_work *w, const tp_image *in, tp_random *r)
{
    const int64_t S = a->size, edge = (int64_t)((double)S / a->crop_ratio);
    const bool tall = in->height > in->width;
    const int64_t longer = edge * (tall ? in->height : in->width) / (tall ? in->width : in->height);
    const tp_image all = { .width = tall ? edge : longer, .height = tall ? longer : edge };
    tp_box window = tp_image_centre(&all, S, S);
    if (S < 1 || edge < S)
        return tp__image_fail(&w->image,
                              "a crop of %lld x %lld pixels is impossible with crop_ratio %g",
                              (long long)S, (long long)S, a->crop_ratio);
    if (a->crop == TP_CROP_RANDOM) {
        window.y = tp_random_below(r, all.height - S + 1);
        window.x = tp_random_below(r, all.width - S + 1);
    }
    return tp__image_resize(&w->image, in, (tp_box){ 0, 0, in->width, in->height }, all.width,
                            all.height, window, a->filter);
}

/* Writes size x size pixels to w->image. */
static bool fit(const tp_augment *a, tp_augment_work *w, const tp_image *in, tp_random *r)
{
    const int64_t S = a->size;
    tp_box b;
    switch (tp_image_ok(in) ? a->crop : TP_CROP_NONE) {
    case TP_CROP_CENTRE:
    case TP_CROP_RANDOM: return cut_edge(a, w, in, r);
    case TP_CROP_RESIZED:
        b = draw_box(a, r, in->width, in->height);
        return tp_image_resize(&w->image, in, &b, S, S, a->filter);
    case TP_CROP_PADDED:
        b.y = tp_random_below(r, 2 * PADDING + 1) - PADDING;
        b.x = tp_random_below(r, 2 * PADDING + 1) - PADDING;
        b.width = b.height = S;
        tp_image_resize(&w->spare, in, NULL, S, S, a->filter);
        return tp_image_crop(&w->image, &w->spare, b, NULL);
    case TP_CROP_NONE: break;
    }
    return tp_image_resize(&w->image, in, NULL, S, S, a->filter);
}

/* ---- colours and shapes ---- */

static double either_sign(tp_random *r, double x)
{
    return tp_random_uniform(r) < 0.5 ? x : -x;
}

/* Returns the argument of an operation of strength m, 0 to 1. */
static double argument_of(tp_pixel_op op, double m, tp_random *r)
{
    switch (op) {
    case TP_PIXEL_ROTATE: return either_sign(r, 30 * m);
    case TP_PIXEL_POSTERIZE: return 4 - trunc(4 * m);
    case TP_PIXEL_SOLARIZE: return 256 - trunc(256 * m);
    case TP_PIXEL_SOLARIZE_ADD: return fmin(128, trunc(110 * m));
    case TP_PIXEL_COLOR:
    case TP_PIXEL_CONTRAST:
    case TP_PIXEL_BRIGHTNESS:
    case TP_PIXEL_SHARPNESS: return fmax(0.1, 1 + either_sign(r, 0.9 * m));
    case TP_PIXEL_SHEAR_X:
    case TP_PIXEL_SHEAR_Y: return either_sign(r, 0.3 * m);
    case TP_PIXEL_TRANSLATE_X:
    case TP_PIXEL_TRANSLATE_Y: return either_sign(r, 0.45 * m);
    default: return 0;
    }
}

static bool rand_augment(const tp_augment *a, tp_augment_work *w, tp_random *r)
{
    for (int i = 0; i < a->ops; i++) {
        const tp_pixel_op op = (tp_pixel_op)tp_random_below(r, TP_NPIXEL_OPS);
        if (tp_random_uniform(r) >= a->op_probability) continue;
        const double level = a->magnitude + a->spread * tp_random_normal(r);
        const double argument = argument_of(op, fmin(fmax(level, 0), 10) / 10, r);
        if (!tp_image_apply(&w->image, op, argument, a->fill, &w->spare)) return false;
    }
    return true;
}

static void jitter(const tp_augment *a, tp_augment_work *w, tp_random *r)
{
    static const tp_pixel_op ops[] = { TP_PIXEL_BRIGHTNESS, TP_PIXEL_CONTRAST, TP_PIXEL_COLOR };
    const double amount[] = { a->brightness, a->contrast, a->saturation };
    int order[] = { 0, 1, 2 };
    for (int i = 2; i > 0; i--) {
        const int64_t j = tp_random_below(r, i + 1);
        const int t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (int i = 0; i < 3; i++) {
        const double x = amount[order[i]];
        const double factor = tp_random_between(r, fmax(0, 1 - x), 1 + x);
        if (x > 0) tp_image_apply(&w->image, ops[order[i]], factor, a->fill, &w->spare);
    }
}

static void erase(const tp_augment *a, tp_random *r, float *out)
{
    const int64_t S = a->size;
    for (int i = 0; i < TRIES; i++) {
        int64_t width, height;
        draw_shape(r, (double)S * (double)S, a->erase_area, a->erase_aspect, &height, &width);
        if (width >= S || height >= S) continue;
        const int64_t y = tp_random_below(r, S - height + 1), x = tp_random_below(r, S - width + 1);
        for (int64_t row = y; row < y + height; row++)
            tp_random_normals(r, out + (row * S + x) * TP_RGB, width * TP_RGB);
        return;
    }
}

/* ---- an example ---- */

/* A standard deviation of 0, as in an unset field, would make every pixel infinite. */
static bool can_scale(const tp_augment *a, tp_augment_work *w)
{
    for (int c = 0; c < TP_RGB; c++) {
        if (a->std[c] > 0 && isfinite(a->std[c]) && isfinite(a->mean[c])) continue;
        snprintf(w->why, sizeof w->why,
                 "pixels cannot be scaled by mean %g and std %g of channel %d: std must be above 0 "
                 "(tp_augment_recipe fills both)",
                 (double)a->mean[c], (double)a->std[c], c);
        return false;
    }
    return true;
}

static bool corrupt(const tp_augment *a, tp_augment_work *w, tp_example e)
{
    tp_random r = tp_random_stream(e.seed, "corrupt", e.index, e.epoch);
    return tp_image_corrupt(&w->image, a->corrupt, tp_corrupt_argument(a->corrupt, a->severity), &r,
                            &w->spare);
}

static bool finish(const tp_augment *a, tp_augment_work *w, tp_example e, tp_random *r, float *out)
{
    bool ok = tp_image_ok(&w->image);
    if (ok && tp_random_uniform(r) < a->flip) tp_image_flip(&w->image);
    if (ok && a->ops > 0)
        ok = rand_augment(a, w, r);
    else if (ok && a->brightness + a->contrast + a->saturation > 0)
        jitter(a, w, r);
    ok = ok && corrupt(a, w, e);
    snprintf(w->why, sizeof w->why, "%s", w->image.why);
    w->shortage = w->image.shortage;
    if (!ok || !can_scale(a, w)) return false;
    tp_image_floats(&w->image, a->mean, a->std, out);
    if (tp_random_uniform(r) < a->erase) erase(a, r, out);
    return true;
}

static tp_random stream_of(tp_example e)
{
    return tp_random_stream(e.seed, "augment", e.index, e.epoch);
}

bool tp_augment_image(const tp_augment *a, tp_augment_work *w, const tp_image *in, tp_example e,
                      float *out)
{
    if (!a) return false;
    tp_random r = stream_of(e);
    fit(a, w, in, &r);
    return finish(a, w, e, &r, out);
}

/* Returns the largest factor that shrinks width x height to no less than `least`. */
static int shrink_to(int64_t width, int64_t height, int64_t least)
{
    int by = 8;
    while (by > 1 && (width / by < least || height / by < least)) by /= 2;
    return by;
}

/* Decodes only the pixels that the crop needs. */
static bool fit_bytes(const tp_augment *a, tp_augment_work *w, const void *bytes, size_t n,
                      tp_random *r)
{
    tp_image_opts o = a->decode;
    int64_t W, H;
    const bool known = !o.orient && tp_image_size(bytes, n, &W, &H);
    const bool boxed = known && a->crop == TP_CROP_RESIZED;
    const double ratio = a->crop == TP_CROP_NONE ? 1 : a->crop_ratio;
    o.box = boxed ? draw_box(a, r, W, H) : (tp_box){ 0 };
    o.shrink = 1;
    if (a->shrink && boxed) o.shrink = shrink_to(o.box.width, o.box.height, a->size);
    if (a->shrink && known && !boxed)
        o.shrink = shrink_to(W, H, (int64_t)((double)a->size / ratio));
    tp_image_decode(&w->decoded, bytes, n, &o);
    return boxed ? tp_image_resize(&w->image, &w->decoded, NULL, a->size, a->size, a->filter)
                 : fit(a, w, &w->decoded, r);
}

bool tp_augment_bytes(const tp_augment *a, tp_augment_work *w, const void *bytes, size_t n,
                      tp_example e, float *out)
{
    if (!a) return false;
    tp_random r = stream_of(e);
    fit_bytes(a, w, bytes, n, &r);
    return finish(a, w, e, &r, out);
}

void tp_augment_work_free(tp_augment_work *w)
{
    if (!w) return;
    tp_image_free(&w->image);
    tp_image_free(&w->spare);
    tp_image_free(&w->decoded);
    free(w->file);
    w->file = NULL;
    w->file_room = 0;
    w->why[0] = '\0';
}

/* ---- recipes ---- */

/* The papers' pipelines by name. All papers train with DeiT's, which sets colour jitter but uses
 * RandAugment instead. */
enum { SMALL = 32 };

static const tp_augment plain = {
    .crop = TP_CROP_NONE,
    .crop_ratio = 0.875,
    .area = { 0.08, 1 },
    .aspect = { 3.0 / 4, 4.0 / 3 },
    .filter = TP_BICUBIC,
    .op_probability = 0.5,
    .magnitude = 9,
    .spread = 0.5,
    .erase_area = { 0.02, 1.0 / 3 },
    .erase_aspect = { 0.3, 1 / 0.3 },
    .mean = { 0.485F, 0.456F, 0.406F },
    .std = { 0.229F, 0.224F, 0.225F },
    .fill = { 124, 116, 104 },
};

static void training(tp_augment *a)
{
    a->crop = a->size > SMALL ? TP_CROP_RESIZED : TP_CROP_PADDED;
    a->flip = 0.5;
    a->ops = 2;
    a->brightness = a->contrast = a->saturation = 0.4;
    a->erase = 0.25;
    a->mix = (tp_mix){ .probability = 1, .mixup = 0.8, .cutmix = 1, .cut = 0.5, .smoothing = 0.1 };
}

static void crops(tp_augment *a)
{
    a->crop = a->size > SMALL ? TP_CROP_RESIZED : TP_CROP_PADDED;
    a->flip = 0.5;
}

static void bilinear_crops(tp_augment *a)
{
    crops(a);
    a->filter = TP_BILINEAR;
}

/* For small sets: crops keep most of the image; colours stay unchanged. */
static void small(tp_augment *a)
{
    a->crop = a->size > SMALL ? TP_CROP_RESIZED : TP_CROP_PADDED;
    a->area[0] = 0.35;
    a->flip = 0.5;
    a->mix.smoothing = 0.1;
}

static void finetune(tp_augment *a)
{
    a->crop = a->size > SMALL ? TP_CROP_RANDOM : TP_CROP_PADDED;
    a->crop_ratio = 0.922;
    a->flip = 0.5;
    a->mix.smoothing = 0.1;
}

static void eval(tp_augment *a)
{
    if (a->size > SMALL) a->crop = TP_CROP_CENTRE;
}

static void none(tp_augment *a)
{
    (void)a;
}

bool tp_augment_recipe(tp_augment *a, const char *name, int64_t size)
{
    if (!a) return false;
    static const struct {
        const char *name;
        void (*set)(tp_augment *);
    } recipes[] = {
        { "vil", training }, { "vil-ls", training },
        { "cvt", training }, { "lsla", training },
        { "small", small },  { "finetune", finetune },
        { "eval", eval },    { "none", none },
        { "vit", crops },    { "resnet", bilinear_crops },
    };
    *a = plain;
    a->size = size;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (strcmp(name, recipes[i].name) == 0) {
            recipes[i].set(a);
            return true;
        }
    return false;
}
