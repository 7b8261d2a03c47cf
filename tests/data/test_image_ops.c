/* test_image_ops.c - pixel operations match images made by Pillow 9.4 bit for bit, and follow their
 * rules on generated images. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <tapegrad/file.h>
#include <tapegrad/image.h>

#include "data/images/loops.h"
#include "support/fixtures.h"

static const uint8_t fill[3] = { 124, 116, 104 };
static const float mean[3] = { 0.485F, 0.456F, 0.406F }, std[3] = { 0.229F, 0.224F, 0.225F };

/* ---- reference cases ---- */

static void read_image(tp_file *F, const char *name, tp_image *p)
{
    const tp_file_tensor *t = tp_file_find(F, name);
    cr_assert(t && t->shape.ndim == 3 && t->shape.dim[2] == 3, "%s", name);
    cr_assert(tp_image_new(p, t->shape.dim[1], t->shape.dim[0]));
    cr_assert(tp_file_read(F, t, TP_U8, p->rgb), "%s", tp_file_why(F));
}

static void expect_same(const tp_image *got, const tp_image *want, const char *name)
{
    int64_t wrong = 0;
    cr_assert(got->width == want->width && got->height == want->height, "%s: %lld x %lld %s", name,
              (long long)got->width, (long long)got->height, got->why);
    for (int64_t i = 0; i < got->width * got->height * 3; i++) wrong += got->rgb[i] != want->rgb[i];
    cr_expect_eq(wrong, 0, "%s: %lld values differ", name, (long long)wrong);
}

/* Name prefixes in a file, and their operations. */
static const struct {
    const char *name;
    tp_pixel_op op;
} prefixes[] = {
    { "autocontrast", TP_PIXEL_AUTO_CONTRAST },
    { "equalize", TP_PIXEL_EQUALIZE },
    { "invert", TP_PIXEL_INVERT },
    { "rotate_bilinear", TP_NPIXEL_OPS },
    { "rotate", TP_PIXEL_ROTATE },
    { "posterize", TP_PIXEL_POSTERIZE },
    { "solarize_add", TP_PIXEL_SOLARIZE_ADD },
    { "solarizeadd", TP_PIXEL_SOLARIZE_ADD },
    { "solarize", TP_PIXEL_SOLARIZE },
    { "color", TP_PIXEL_COLOR },
    { "contrast", TP_PIXEL_CONTRAST },
    { "brightness", TP_PIXEL_BRIGHTNESS },
    { "sharpness", TP_PIXEL_SHARPNESS },
    { "shear_x", TP_PIXEL_SHEAR_X },
    { "shearx", TP_PIXEL_SHEAR_X },
    { "shear_y", TP_PIXEL_SHEAR_Y },
    { "sheary", TP_PIXEL_SHEAR_Y },
    { "translate_x", TP_PIXEL_TRANSLATE_X },
    { "translatex", TP_PIXEL_TRANSLATE_X },
    { "translate_y", TP_PIXEL_TRANSLATE_Y },
    { "translatey", TP_PIXEL_TRANSLATE_Y },
};

static tp_pixel_op meant(const char *name)
{
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncasecmp(name, prefixes[i].name, strlen(prefixes[i].name)) == 0)
            return prefixes[i].op;
    return TP_NPIXEL_OPS;
}

/* Checks every output in the file that one of the 15 operations produces. */
static int run_operations(tp_file *F)
{
    tp_image in = { 0 }, p = { 0 }, want = { 0 }, work = { 0 };
    int n = 0;
    const char *key, *argument;
    read_image(F, "input.image", &in);
    for (int i = 0; tp_file_meta_at(F, i, &key, &argument); i++) {
        char output[128];
        if (strncmp(key, "arg.", 4) != 0 || meant(key + 4) == TP_NPIXEL_OPS) continue;
        snprintf(output, sizeof output, "output.%s", key + 4);
        read_image(F, output, &want);
        cr_assert(tp_image_copy(&p, &in));
        cr_assert(tp_image_apply(&p, meant(key + 4), strtod(argument, NULL), fill, &work));
        expect_same(&p, &want, key);
        n++;
    }
    tp_image_free(&in);
    tp_image_free(&p);
    tp_image_free(&want);
    tp_image_free(&work);
    return n;
}

static void expect_resized(tp_file *F, const char *output, const tp_box *box, tp_filter filter)
{
    tp_image in = { 0 }, p = { 0 }, want = { 0 };
    read_image(F, "input.image", &in);
    read_image(F, output, &want);
    cr_assert(tp_image_resize(&p, &in, box, want.width, want.height, filter), "%s", p.why);
    expect_same(&p, &want, output);
    tp_image_free(&in);
    tp_image_free(&p);
    tp_image_free(&want);
}

Test(image_ops, lsla_cases)
{
    tp_file *F = fixture_open("lsla/aug_image_ops.safetensors");
    cr_expect_eq(run_operations(F), 26);
    expect_resized(F, "output.resize", NULL, TP_BICUBIC);
    expect_resized(F, "output.crop_resize", &(tp_box){ 5, 3, 20, 16 }, TP_BICUBIC);
    tp_file_close(F);
}

static void expect_rotated(tp_file *F, const char *output, double degrees)
{
    tp_image in = { 0 }, p = { 0 }, want = { 0 };
    double m[6];
    read_image(F, "input.image", &in);
    read_image(F, output, &want);
    tp_image_rotation(&in, degrees, m);
    cr_assert(tp_image_affine(&p, &in, m, TP_BILINEAR, fill), "%s", p.why);
    expect_same(&p, &want, output);
    tp_image_free(&in);
    tp_image_free(&p);
    tp_image_free(&want);
}

/* The shorter edge resized to 27, then centre 24 x 24, as floats. Stored channels first. */
static void expect_eval(tp_file *F)
{
    enum { S = 24 };
    static float want[3 * S * S], got[S * S * 3];
    tp_image in = { 0 }, p = { 0 }, part = { 0 };
    read_image(F, "input.image", &in);
    cr_assert(tp_file_read(F, tp_file_find(F, "output.eval_transform_24"), TP_F32, want));
    const int64_t width = 27 * in.width / in.height; /* 57 x 44 */
    cr_assert(tp_image_resize(&p, &in, NULL, width, 27, TP_BICUBIC), "%s", p.why);
    cr_assert(tp_image_crop(&part, &p, tp_image_centre(&p, S, S), NULL), "%s", part.why);
    tp_image_floats(&part, mean, std, got);
    int wrong = 0;
    for (int i = 0; i < S * S * 3; i++) wrong += got[i] != want[i % 3 * S * S + i / 3];
    cr_expect_eq(wrong, 0, "%d of the evaluation transform's values differ", wrong);
    tp_image_free(&in);
    tp_image_free(&p);
    tp_image_free(&part);
}

Test(image_ops, baseline_cases)
{
    static const struct {
        const char *output;
        tp_filter filter;
    } sizes[] = {
        { "output.resize_bilinear_29x22", TP_BILINEAR },
        { "output.resize_bilinear_66x48", TP_BILINEAR },
        { "output.resize_bilinear_57x39", TP_BILINEAR },
        { "output.resize_bicubic_29x22", TP_BICUBIC },
        { "output.resize_bicubic_66x48", TP_BICUBIC },
        { "output.resize_bicubic_57x39", TP_BICUBIC },
    };
    tp_file *F = fixture_open("image_baselines/augment_ops.safetensors");
    const int n = run_operations(F);
    cr_expect_eq(n, 48, "%d operations", n);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        expect_resized(F, sizes[i].output, NULL, sizes[i].filter);
    expect_resized(F, "output.resized_crop", &(tp_box){ 5, 3, 46, 35 }, TP_BICUBIC);
    expect_rotated(F, "output.rotate_bilinear", 21.5);
    expect_eval(F);
    tp_file_close(F);
}

/* ---- generated images ---- */

static void make(tp_image *p, int64_t width, int64_t height)
{
    cr_assert(tp_image_new(p, width, height));
    for (int64_t i = 0; i < width * height * 3; i++) p->rgb[i] = (uint8_t)(i * i * 31 + i * 7);
}

/* 1, and sizes around vector lengths. */
static const int64_t sides[] = { 1, 2, 3, 5, 15, 16, 17, 33 };
enum { SIDES = sizeof sides / sizeof *sides };

Test(image_ops, arguments_that_change_nothing)
{
    static const struct {
        tp_pixel_op op;
        double argument;
    } still[] = {
        { TP_PIXEL_ROTATE, 0 },      { TP_PIXEL_ROTATE, 360 },     { TP_PIXEL_POSTERIZE, 8 },
        { TP_PIXEL_SOLARIZE, 256 },  { TP_PIXEL_SOLARIZE_ADD, 0 }, { TP_PIXEL_COLOR, 1 },
        { TP_PIXEL_CONTRAST, 1 },    { TP_PIXEL_BRIGHTNESS, 1 },   { TP_PIXEL_SHARPNESS, 1 },
        { TP_PIXEL_SHEAR_X, 0 },     { TP_PIXEL_SHEAR_Y, 0 },      { TP_PIXEL_TRANSLATE_X, 0 },
        { TP_PIXEL_TRANSLATE_Y, 0 },
    };
    tp_image in = { 0 }, p = { 0 }, work = { 0 };
    for (int i = 0; i < SIDES * SIDES; i++) {
        make(&in, sides[i / SIDES], sides[i % SIDES]);
        for (size_t k = 0; k < sizeof still / sizeof *still; k++) {
            cr_assert(tp_image_copy(&p, &in));
            cr_assert(tp_image_apply(&p, still[k].op, still[k].argument, fill, &work));
            expect_same(&p, &in, tp_pixel_op_name(still[k].op));
        }
    }
    tp_image_free(&in);
    tp_image_free(&p);
    tp_image_free(&work);
}

/* A constant image stays constant at every size, and resized values stay within the range of the
 * input. */
Test(image_ops, resizing_keeps_a_constant)
{
    tp_image in = { 0 }, p = { 0 };
    for (int i = 0; i < SIDES * SIDES * SIDES; i++) {
        const int64_t width = sides[i % SIDES], height = sides[i / SIDES % SIDES];
        cr_assert(tp_image_new(&in, sides[i / SIDES / SIDES], 19));
        memset(in.rgb, 200, (size_t)(in.width * 19 * 3));
        for (int f = TP_BICUBIC; f <= TP_BILINEAR; f++) {
            cr_assert(tp_image_resize(&p, &in, NULL, width, height, (tp_filter)f));
            for (int64_t k = 0; k < width * height * 3; k++)
                cr_assert_eq(p.rgb[k], 200, "%lld x 19 to %lld x %lld", (long long)in.width,
                             (long long)width, (long long)height);
        }
    }
    tp_image_free(&in);
    tp_image_free(&p);
}

/* ---- OpenCV's bilinear filter ---- */

/* Pixel (x, y) has 37 x + 91 y + 53 c + 29 x y in channel c, modulo 256. */
static void make_slopes(tp_image *p, int64_t width, int64_t height)
{
    cr_assert(tp_image_new(p, width, height));
    for (int64_t i = 0; i < width * height * 3; i++) {
        const int64_t c = i % 3, x = i / 3 % width, y = i / 3 / width;
        p->rgb[i] = (uint8_t)(37 * x + 91 * y + 53 * c + 29 * x * y);
    }
}

/* Pixels as cv2.resize of OpenCV 5.0.0 returns them. */
Test(image_ops, linear_pixels)
{
    static const struct {
        int64_t from[2], to[2];
        uint8_t rgb[144];
    } cases[] = {
        { { 4, 3 },
          { 3, 2 },
          { 30, 83, 125, 89, 110, 131, 95, 137, 190, 142, 195, 77, 99, 120, 141, 162, 45, 98 } },
        { { 4, 3 }, { 5, 4 }, { 0,   53,  106, 26,  79,  132, 55,  108, 161, 85,  138, 191,
                                111, 164, 217, 57,  110, 163, 95,  148, 89,  140, 112, 86,
                                136, 77,  129, 62,  115, 168, 125, 178, 135, 112, 165, 77,
                                144, 117, 90,  158, 70,  123, 100, 57,  110, 182, 235, 32,
                                69,  122, 98,  68,  121, 174, 144, 121, 174, 211, 8,   61 } },
        { { 4, 3 },
          { 8, 6 },
          { 0,   53,  106, 9,   62,  115, 28,  81,  134, 46,  99,  152, 65,  118, 171, 83,
            136, 189, 102, 155, 208, 111, 164, 217, 23,  76,  129, 34,  87,  124, 56,  109,
            114, 78,  115, 120, 100, 105, 142, 106, 111, 164, 96,  133, 186, 92,  145, 198,
            68,  121, 174, 83,  136, 141, 112, 165, 74,  142, 147, 56,  171, 80,  85,  152,
            61,  114, 86,  91,  144, 53,  106, 159, 114, 167, 156, 116, 169, 126, 121, 174,
            67,  141, 146, 55,  178, 87,  92,  166, 59,  112, 107, 64,  117, 78,  67,  120,
            159, 212, 73,  133, 186, 79,  81,  134, 91,  77,  114, 119, 121, 126, 163, 149,
            106, 159, 160, 53,  106, 167, 28,  81,  182, 235, 32,  142, 195, 56,  61,  114,
            103, 45,  98,  151, 92,  145, 198, 140, 129, 182, 187, 48,  101, 211, 8,   61 } },
        { { 4, 3 },
          { 2, 3 },
          { 19, 72, 125, 93, 146, 199, 124, 177, 102, 128, 53, 106, 102, 155, 80, 164, 89, 142 } },
        { { 4, 3 }, { 4, 5 }, { 0,   53,  106, 37,  90,  143, 74,  127, 180, 111, 164, 217,
                                36,  89,  142, 85,  138, 89,  133, 84,  137, 80,  133, 186,
                                91,  144, 197, 157, 210, 7,   223, 20,  73,  33,  86,  139,
                                145, 199, 98,  75,  128, 79,  159, 109, 162, 140, 39,  92,
                                182, 235, 32,  21,  74,  127, 116, 169, 222, 211, 8,   61 } },
        { { 4, 3 }, { 1, 1 }, { 190, 115, 40 } },
        { { 6, 4 },
          { 3, 2 },
          { 71, 124, 113, 110, 99, 152, 149, 202, 127, 90, 143, 132, 117, 106, 159, 80, 133,
            186 } },
    };
    tp_image in = { 0 }, p = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t *to = cases[i].to;
        make_slopes(&in, cases[i].from[0], cases[i].from[1]);
        cr_assert(tp_image_resize_linear(&p, &in, to[0], to[1]), "%s", p.why);
        for (int64_t k = 0; k < to[0] * to[1] * 3; k++)
            cr_expect_eq(p.rgb[k], cases[i].rgb[k], "%lld x %lld: number %lld is %d, not %d",
                         (long long)to[0], (long long)to[1], (long long)k, p.rgb[k],
                         cases[i].rgb[k]);
    }
    tp_image_free(&in);
    tp_image_free(&p);
}

/* Pixel value i counts i mod 65521 + 1 times in a sum; the sums are OpenCV's. */
Test(image_ops, linear_sums)
{
    static const struct {
        int64_t from[2], to[2];
        uint64_t sum;
    } cases[] = {
        { { 640, 480 }, { 1067, 800 }, 0x9b62e582478 },
        { { 500, 333 }, { 1201, 800 }, 0xaf3d19c372f },
        { { 300, 200 }, { 67, 45 }, 0x137355104 },
        { { 97, 131 }, { 131, 97 }, 0x158ae8af58 },
    };
    tp_image in = { 0 }, p = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t *to = cases[i].to, n = to[0] * to[1] * 3;
        uint64_t sum = 0;
        make_slopes(&in, cases[i].from[0], cases[i].from[1]);
        cr_assert(tp_image_resize_linear(&p, &in, to[0], to[1]), "%s", p.why);
        for (int64_t k = 0; k < n; k++) sum += p.rgb[k] * (uint64_t)(k % 65521 + 1);
        cr_expect_eq(sum, cases[i].sum, "%lld x %lld", (long long)to[0], (long long)to[1]);
    }
    make_slopes(&in, 5, 4);
    cr_expect(tp_image_resize_linear(&p, &in, 5, 4) && memcmp(p.rgb, in.rgb, 60) == 0);
    cr_expect_not(tp_image_resize_linear(&p, &in, 3, 0));
    cr_expect_str_eq(p.why, "an image cannot have 3 x 0 pixels");
    tp_image_free(&in);
    cr_expect_not(tp_image_resize_linear(&p, &in, 3, 3));
    tp_image_free(&p);
}

/* The AVX2 loops and the baseline loops give the same pixels. */
Test(image_ops, loops_of_both_kinds)
{
    enum { SIDE = 37, N = SIDE * 3 };
    static uint8_t one[N + TP_SLACK], two[N + TP_SLACK];
    int32_t first[SIDE], n[SIDE], weight[SIDE * 9];
    const tp_loops *a = &tp__loops_base, *b = tp__loops();
    if (a == b) cr_skip_test("this processor has only the baseline");
    tp_image in = { 0 }, p = { 0 }, q = { 0 };
    make(&in, SIDE, SIDE);
    for (int i = 0; i < SIDE; i++) {
        first[i] = i < 28 ? i : 28;
        n[i] = i % 10;
        for (int k = 0; k < 9; k++) weight[i * 9 + k] = (k * 7919 + i * 104729) % 800000 - 200000;
    }
    const tp_axis axis = { SIDE, 9, 0, SIDE, first, n, weight };
    for (int y = 1; y < SIDE - 1; y++) {
        a->columns(one, in.rgb + y * N, &axis);
        b->columns(two, in.rgb + y * N, &axis);
        cr_expect_arr_eq(one, two, N, "columns of row %d", y);
        a->row(one, in.rgb, N, N, &axis, y);
        b->row(two, in.rgb, N, N, &axis, y);
        cr_expect_arr_eq(one, two, N, "row %d", y);
        a->sharpen(one, in.rgb + y * N + 3, N, N - 6, 0.3F * (float)y);
        b->sharpen(two, in.rgb + y * N + 3, N, N - 6, 0.3F * (float)y);
        cr_expect_arr_eq(one, two, N - 6, "sharpening row %d", y);
    }
    cr_assert(tp_image_copy(&p, &in) && tp_image_copy(&q, &in));
    a->colour(p.rgb, SIDE * SIDE, 1.7F);
    b->colour(q.rgb, SIDE * SIDE, 1.7F);
    expect_same(&q, &p, "colour");
    for (int f = TP_BICUBIC; f <= TP_BILINEAR; f++) {
        const double m[6] = { 0.9, 0.3, -4, -0.2, 1.1, 2 };
        a->affine(&p, &in, m, (tp_filter)f, fill);
        b->affine(&q, &in, m, (tp_filter)f, fill);
        expect_same(&q, &p, "affine");
    }
    tp_image_free(&in);
    tp_image_free(&p);
    tp_image_free(&q);
}

Test(image_ops, crop_and_centre)
{
    static const struct {
        int64_t width, height, want_width, want_height;
        tp_box box;
    } centres[] = {
        { 10, 8, 4, 4, { 3, 2, 4, 4 } },
        { 11, 9, 4, 4, { 4, 2, 4, 4 } }, /* 3.5 and 2.5 are rounded to even */
        { 4, 4, 4, 4, { 0, 0, 4, 4 } },
        { 4, 3, 8, 8, { -2, -2, 8, 8 } },
    };
    tp_image in = { 0 }, p = { 0 };
    for (size_t i = 0; i < sizeof centres / sizeof *centres; i++) {
        make(&in, centres[i].width, centres[i].height);
        const tp_box b = tp_image_centre(&in, centres[i].want_width, centres[i].want_height);
        cr_expect(memcmp(&b, &centres[i].box, sizeof b) == 0, "case %zu: (%lld, %lld)", i,
                  (long long)b.x, (long long)b.y);
    }
    static const tp_box boxes[] = { { 0, 0, 7, 5 },  { 2, 1, 3, 2 },    { -3, -2, 20, 16 },
                                    { 5, 3, 9, 1 },  { -4, 0, 4, 4 },   { 7, 5, 2, 2 },
                                    { 0, -9, 7, 5 }, { -100, 2, 95, 1 } };
    make(&in, 7, 5);
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
        const tp_box b = boxes[i];
        cr_assert(tp_image_crop(&p, &in, b, fill));
        for (int64_t k = 0; k < b.width * b.height * 3; k++) {
            const int64_t x = b.x + k / 3 % b.width, y = b.y + k / 3 / b.width;
            const bool inside = x >= 0 && x < 7 && y >= 0 && y < 5;
            cr_assert_eq(p.rgb[k], inside ? in.rgb[(y * 7 + x) * 3 + k % 3] : fill[k % 3],
                         "box %zu, value %lld", i, (long long)k);
        }
    }
    tp_image_free(&in);
    tp_image_free(&p);
}

Test(image_ops, flip)
{
    tp_image in = { 0 }, p = { 0 };
    for (int i = 0; i < SIDES; i++) {
        make(&in, sides[i], 3);
        cr_assert(tp_image_copy(&p, &in));
        tp_image_flip(&p);
        for (int64_t k = 0; k < 9 * sides[i]; k++) {
            const int64_t x = k / 3 % sides[i], row = k / 3 / sides[i];
            cr_assert_eq(p.rgb[k], in.rgb[(row * sides[i] + sides[i] - 1 - x) * 3 + k % 3]);
        }
    }
    tp_image_free(&in);
    tp_image_free(&p);
}

Test(image_ops, errors)
{
    tp_image none = { 0 }, p = { 0 }, in = { 0 }, work = { 0 };
    make(&in, 6, 4);
    cr_expect_not(tp_image_decode(&none, "?", 1, NULL));
    cr_expect_not(tp_image_resize(&p, &none, NULL, 3, 3, TP_BICUBIC));
    cr_expect_str_eq(p.why, none.why);
    cr_expect_not(tp_image_apply(&none, TP_PIXEL_INVERT, 0, fill, &work));
    cr_expect_not(tp_image_resize(&p, &in, &(tp_box){ 2, 0, 5, 4 }, 3, 3, TP_BICUBIC));
    cr_expect_str_eq(p.why, "the box of 5 x 4 pixels at (2, 0) is not inside the image of 6 x 4");
    cr_expect_not(tp_image_resize(&p, &in, NULL, 0, 3, TP_BICUBIC));
    cr_expect_str_eq(p.why, "an image cannot have 0 x 3 pixels");
    cr_expect_not(tp_image_crop(&p, &in, (tp_box){ 0, 0, 0, 2 }, fill));
    tp_image_free(&in);
    tp_image_free(&p);
    tp_image_free(&work);
}
