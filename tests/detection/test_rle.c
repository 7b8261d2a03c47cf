/* test_rle.c - run-length masks: the published code's reference cases, damaged texts, limits. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/rle.h>

#include "support/fixtures.h"
#include "support/limit.h"

enum { PIXELS = 1 << 12, TEXT = 1 << 16 };

static json_t *cases;

static json_t *cases_of(const char *part)
{
    char path[1024];
    json_error_t error;
    fixture_find("detection/coco_rle.json", path, sizeof path);
    cases = json_load_file(path, 0, &error);
    cr_assert(cases, "%s: %s", path, error.text);
    json_t *list = json_object_get(cases, part);
    cr_assert_gt(json_array_size(list), 0, "%s", part);
    return list;
}

static int64_t whole(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static double number_at(const json_t *list, size_t i)
{
    return json_number_value(json_array_get(list, i));
}

/* An h x w mask from a compressed text. */
static tp_rle of_text(const json_t *text, int64_t h, int64_t w)
{
    tp_rle r;
    char why[200] = "";
    cr_assert(tp_rle_from_string(&r, json_string_value(text), json_string_length(text), h, w, why,
                                 sizeof why),
              "%s", why);
    return r;
}

/* Compares a mask with all values of a case. */
static void compare(const tp_rle *r, const json_t *c, const char *what)
{
    static char text[TEXT];
    static uint8_t pixels[PIXELS];
    const json_t *counts = json_object_get(c, "counts"), *rows = json_object_get(c, "bitmap");
    const json_t *box = json_object_get(c, "bbox");
    double b[4];
    cr_assert_eq((size_t)r->runs, json_array_size(counts), "%s", what);
    for (int64_t i = 0; i < r->runs; i++)
        cr_assert_eq(r->run[i], number_at(counts, (size_t)i), "%s: run %d", what, (int)i);
    cr_expect_lt(tp_rle_string(r, text, sizeof text), sizeof text);
    cr_expect_str_eq(text, json_string_value(json_object_get(c, "string")), "%s", what);
    cr_expect_eq(tp_rle_area(r), whole(c, "area"), "%s", what);
    tp_rle_box(r, b);
    for (size_t i = 0; i < 4 && box; i++) cr_expect_eq(b[i], number_at(box, i), "%s: box", what);
    if (!rows) return;
    tp_rle_pixels(r, pixels);
    for (int64_t y = 0; y < r->height; y++)
        for (int64_t x = 0; x < r->width; x++)
            cr_assert_eq(pixels[y * r->width + x],
                         json_string_value(json_array_get(rows, (size_t)y))[x] - '0',
                         "%s: pixel %d, %d", what, (int)y, (int)x);
}

/* Compares a mask made from `what`, frees it, then does the same with the case's string. */
static void compare_both(tp_rle *r, const json_t *c, const char *what)
{
    compare(r, c, what);
    tp_rle_free(r);
    *r = of_text(json_object_get(c, "string"), whole(c, "h"), whole(c, "w"));
    compare(r, c, "string");
    tp_rle_free(r);
}

Test(rle, pixels)
{
    size_t i;
    json_t *c, *list;
    list = cases_of("encode");
    json_array_foreach(list, i, c)
    {
        uint8_t pixels[PIXELS];
        tp_rle r;
        const int64_t h = whole(c, "h"), w = whole(c, "w");
        for (int64_t y = 0; y < h; y++)
            for (int64_t x = 0; x < w; x++)
                pixels[y * w + x] = json_string_value(json_array_get(json_object_get(c, "bitmap"),
                                                                     (size_t)y))[x] == '1'
                                        ? 255
                                        : 0;
        cr_assert(tp_rle_from_pixels(&r, pixels, h, w));
        compare_both(&r, c, "pixels");
    }
    json_decref(cases);
}

Test(rle, polygons_and_boxes)
{
    size_t i;
    json_t *c, *list;
    list = cases_of("polygon");
    json_array_foreach(list, i, c)
    {
        const json_t *vertices = json_object_get(c, "poly");
        double xy[256];
        tp_rle r;
        const size_t n = json_array_size(vertices);
        for (size_t k = 0; k < n; k++) xy[k] = number_at(vertices, k);
        cr_assert(tp_rle_from_polygon(&r, xy, (int64_t)n / 2, whole(c, "h"), whole(c, "w")));
        compare(&r, c, "polygon");
        tp_rle_free(&r);
    }
    json_decref(cases);
    list = cases_of("bbox");
    json_array_foreach(list, i, c)
    {
        double box[4];
        tp_rle r;
        for (size_t k = 0; k < 4; k++) box[k] = number_at(json_object_get(c, "box_xywh"), k);
        cr_assert(tp_rle_from_box(&r, box, whole(c, "h"), whole(c, "w")));
        compare(&r, c, "box");
        tp_rle_free(&r);
    }
    json_decref(cases);
}

Test(rle, unions_and_intersections)
{
    size_t i, k;
    json_t *c, *text, *list;
    list = cases_of("merge");
    json_array_foreach(list, i, c)
    {
        tp_rle in[16] = { 0 }, r;
        json_array_foreach(json_object_get(c, "inputs"), k, text) in[k] =
            of_text(text, whole(c, "h"), whole(c, "w"));
        const int64_t n = (int64_t)json_array_size(json_object_get(c, "inputs"));
        cr_assert(tp_rle_merge(&r, in, n, whole(c, "intersect") != 0));
        compare(&r, c, "merge");
        tp_rle_free(&r);
        for (k = 0; k < (size_t)n; k++) tp_rle_free(&in[k]);
    }
    json_decref(cases);
}

static void compare_iou(const json_t *c, const double *iou, size_t n, size_t m)
{
    const json_t *rows = json_object_get(c, "iou");
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++)
            cr_expect_eq(iou[i * m + j], number_at(json_array_get(rows, i), j),
                         "detection %zu, object %zu", i, j);
}

Test(rle, intersection_over_union)
{
    size_t i, k;
    json_t *c, *item, *list;
    double iou[256];
    list = cases_of("iou");
    json_array_foreach(list, i, c)
    {
        tp_rle dt[16] = { 0 }, gt[16] = { 0 };
        bool crowd[16];
        const size_t n = json_array_size(json_object_get(c, "dt")),
                     m = json_array_size(json_object_get(c, "gt"));
        json_array_foreach(json_object_get(c, "dt"), k, item) dt[k] =
            of_text(item, whole(c, "h"), whole(c, "w"));
        json_array_foreach(json_object_get(c, "gt"), k, item) gt[k] =
            of_text(item, whole(c, "h"), whole(c, "w"));
        for (k = 0; k < m; k++) crowd[k] = number_at(json_object_get(c, "iscrowd"), k) != 0.0;
        tp_rle_iou(dt, (int64_t)n, gt, (int64_t)m, crowd, iou);
        compare_iou(c, iou, n, m);
        for (k = 0; k < n; k++) tp_rle_free(&dt[k]);
        for (k = 0; k < m; k++) tp_rle_free(&gt[k]);
    }
    json_decref(cases);
    list = cases_of("box_iou");
    json_array_foreach(list, i, c)
    {
        double dt[16][4], gt[16][4];
        bool crowd[16];
        const json_t *d = json_object_get(c, "dt_xywh"), *g = json_object_get(c, "gt_xywh");
        const size_t n = json_array_size(d), m = json_array_size(g);
        for (k = 0; k < 4 * n; k++) dt[k / 4][k % 4] = number_at(json_array_get(d, k / 4), k % 4);
        for (k = 0; k < 4 * m; k++) gt[k / 4][k % 4] = number_at(json_array_get(g, k / 4), k % 4);
        for (k = 0; k < m; k++) crowd[k] = number_at(json_object_get(c, "iscrowd"), k) != 0.0;
        tp_box_iou_xywh((const double(*)[4])dt, (int64_t)n, (const double(*)[4])gt, (int64_t)m,
                        crowd, iou);
        compare_iou(c, iou, n, m);
    }
    json_decref(cases);
}

/* A crowd divides by the detection's area; masks of different sizes do not intersect. */
Test(rle, crowds_and_other_sizes)
{
    const double wide[4] = { 0, 0, 4, 2 }, left[4] = { 0, 0, 2, 2 };
    const bool crowd[2] = { true, false };
    double iou[2];
    tp_rle d, g[2];
    cr_assert(tp_rle_from_box(&d, left, 4, 8) && tp_rle_from_box(&g[0], wide, 4, 8) &&
              tp_rle_from_box(&g[1], wide, 5, 8));
    tp_rle_iou(&d, 1, g, 2, crowd, iou);
    cr_expect_eq(iou[0], 1.0);
    cr_expect_eq(iou[1], -1.0);
    tp_rle merged, both[2] = { d, g[1] };
    cr_expect_not(tp_rle_merge(&merged, both, 2, false));
    cr_expect_null(merged.run);
    tp_rle_free(&d);
    tp_rle_free(&g[0]);
    tp_rle_free(&g[1]);
}

Test(rle, counts_and_strings)
{
    size_t i;
    json_t *c, *list;
    list = cases_of("string");
    json_array_foreach(list, i, c)
    {
        int64_t counts[64];
        tp_rle r;
        const json_t *runs = json_object_get(c, "counts");
        const int64_t n = (int64_t)json_array_size(runs), h = whole(c, "h"), w = whole(c, "w");
        char why[200] = "";
        for (int64_t k = 0; k < n; k++) counts[k] = (int64_t)number_at(runs, (size_t)k);
        cr_assert(tp_rle_from_counts(&r, counts, n, h, w, why, sizeof why), "%s", why);
        compare_both(&r, c, "counts");
    }
    json_decref(cases);
}

Test(rle, damaged_masks_are_refused)
{
    static const struct {
        const char *text, *why;
        int64_t height, width;
    } bad[] = {
        { "", "no runs", 2, 2 },
        { "4", "not possible", 0, 4 },
        { "4", "not possible", 1 << 20, 1 << 20 },
        { "5", "5 pixels, but the mask 2 x 2", 2, 2 },
        { "3", "3 pixels, but the mask 2 x 2", 2, 2 },
        { "T", "not a compressed mask", 2, 2 },
        { "4 ", "not a compressed mask", 2, 2 },
        { "\xff", "not a compressed mask", 2, 2 },
        { "PPPPPPPPPPP1", "not a compressed mask", 2, 2 },
        { "O", "impossible length", 2, 2 },
        { "ooooooo0", "impossible length", 2, 2 },
        { "111O", "3 pixels, but the mask 2 x 2", 2, 2 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[200] = "";
        tp_rle r;
        const bool made = tp_rle_from_string(&r, bad[i].text, strlen(bad[i].text), bad[i].height,
                                             bad[i].width, why, sizeof why);
        cr_expect(!made && strstr(why, bad[i].why), "'%s': %s", bad[i].text, why);
        cr_expect_null(r.run);
    }
    char why[200] = "";
    tp_rle r;
    cr_expect(!tp_rle_from_counts(&r, (int64_t[]){ 5, -1 }, 2, 2, 2, why, sizeof why) &&
              strstr(why, "impossible"));
}

/* Only the part of a far polygon inside the image is drawn, in the time that this part takes. */
Test(rle, far_polygons, .timeout = 60)
{
    const double far[] = { 0, 0, 1e300, 0, 0, 5 }, nan_[] = { 0, 0, 0.0 / 0.0, 0, 0, 5 };
    double *zigzag = malloc(20000 * sizeof *zigzag);
    tp_rle r;
    cr_assert(zigzag);
    for (int i = 0; i < 20000; i++) zigzag[i] = i % 4 < 2 ? -1e6 : 1e6;
    cr_assert(tp_rle_from_polygon(&r, far, 3, 8, 8));
    cr_expect_eq(tp_rle_area(&r), 8 * 5);
    tp_rle_free(&r);
    cr_assert(tp_rle_from_polygon(&r, zigzag, 10000, 8, 8));
    cr_expect_eq(tp_rle_area(&r), 0, "an outline that comes back covers nothing");
    tp_rle_free(&r);
    cr_expect_not(tp_rle_from_polygon(&r, nan_, 3, 8, 8));
    cr_expect_not(tp_rle_from_polygon(&r, far, 2, 0, 8));
    cr_expect(tp_rle_from_polygon(&r, (double[]){ 1, 1, 5, 5 }, 2, 8, 8) && tp_rle_area(&r) == 0,
              "two points have no pixels");
    tp_rle_free(&r);
    free(zigzag);
    /* the part in the image equals that of a polygon clipped there */
    for (int k = 3; k < 44; k++) {
        const double reach = ldexp(1.0, k), corner[] = { 2, 1, 2 + reach, 1 + reach, 2, 1 + reach };
        cr_assert(tp_rle_from_polygon(&r, corner, 3, 9, 9));
        cr_expect_eq(tp_rle_area(&r), 35, "2^%d: %lld", k, (long long)tp_rle_area(&r));
        tp_rle_free(&r);
    }
}

/* Memory follows the pixels, not an outline's length. */
Test(rle, long_outlines, .timeout = 60)
{
    enum { POINTS = 20001 };
    double *xy = malloc(2 * POINTS * sizeof *xy);
    struct rlimit before;
    tp_rle r;
    cr_assert(xy);
    for (int i = 0; i < POINTS; i++) {
        xy[2 * i] = i % 2 ? 1000 : 0;
        xy[2 * i + 1] = i;
    }
    limit_memory(1 << 30, &before);
    const bool done = tp_rle_from_polygon(&r, xy, POINTS, 100, 1000);
    setrlimit(RLIMIT_AS, &before);
    cr_expect(done);
    tp_rle_free(&r);
    free(xy);
}
