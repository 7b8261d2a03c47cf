/* test_coco_eval.c - COCO's figures equal pycocotools' to the last digit; unusual sets do no
 * harm. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tapegrad/coco_eval.h>

#include "parity.h"
#include "support/device.h"
#include "support/fixtures.h"
#include "support/limit.h"

/* An evaluation and its inputs. */
typedef struct world {
    tp_coco *X;
    tp_detections *R;
    tp_coco_eval *E;
} world;

static world evaluate(const char *gt, const char *dt, tp_coco_eval_opts o)
{
    world w = { .X = tp_coco_open(gt) };
    w.R = tp_detections_open(w.X, dt);
    w.E = tp_coco_eval_new(w.R, &o);
    cr_assert(tp_coco_eval_ok(w.E), "%s", tp_coco_eval_why(w.E));
    return w;
}

static void release(world *w)
{
    tp_coco_eval_free(w->E);
    tp_detections_close(w->R);
    tp_coco_close(w->X);
}

static void compare_set(const char *name)
{
    static const struct {
        const char *key;
        tp_coco_eval_opts o;
    } kinds[] = { { "bbox", { 0 } },
                  { "segm", { .kind = TP_COCO_MASKS } },
                  { "segm_boxarea", { .kind = TP_COCO_MASKS, .box_areas = true } } };
    char folder[1024], gt[1100], dt[1100], expected[1100], key[64];
    fixture_find(name, folder, sizeof folder);
    snprintf(gt, sizeof gt, "%s/gt.json", folder);
    snprintf(dt, sizeof dt, "%s/dt.json", folder);
    snprintf(expected, sizeof expected, "%s/expected.json", folder);
    json_t *all = json_load_file(expected, 0, NULL);
    cr_assert(all, "%s", expected);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const json_t *figures = json_object_get(all, kinds[i].key);
        if (!figures) continue;
        snprintf(key, sizeof key, "%s_AP_per_category", kinds[i].key);
        const json_t *aps = json_object_get(all, key),
                     *ids = json_object_get(all, "category_order");
        world w = evaluate(gt, dt, kinds[i].o);
        for (int k = 0; k < TP_COCO_FIGURES; k++)
            cr_expect_eq(tp_coco_eval_figure(w.E, k),
                         json_number_value(json_array_get(figures, (size_t)k)), "%s: %s %s", name,
                         kinds[i].key, tp_coco_figure_name(k));
        for (size_t c = 0; c < json_array_size(ids); c++) {
            const json_t *ap = json_array_get(aps, c);
            const int category =
                tp_coco_find_category(w.X, json_integer_value(json_array_get(ids, c)));
            cr_expect_eq(tp_coco_eval_class(w.E, category, 0),
                         json_is_null(ap) ? -1.0 : json_number_value(ap), "%s: %s of category %zu",
                         name, kinds[i].key, c);
        }
        release(&w);
    }
    json_decref(all);
}

Test(coco_eval, mixed)
{
    compare_set("detection/coco_eval_mixed");
}

Test(coco_eval, crowds)
{
    compare_set("detection/coco_eval_crowd");
}

Test(coco_eval, overlaps_and_areas_at_the_limits)
{
    compare_set("detection/coco_eval_thresholds");
}

Test(coco_eval, annotation_of_id_0)
{
    compare_set("detection/coco_eval_id0");
}

/* The published detections on 43 images; figures are given with nine digits. */
Test(coco_eval, published_detections)
{
    static const char *const names[] = { "AP",  "AP50", "AP75",  "APsmall", "APmedium", "APlarge",
                                         "AR1", "AR10", "AR100", "ARsmall", "ARmedium", "ARlarge" };
    static const struct {
        const char *key, *file;
        tp_coco_eval_opts o;
    } kinds[] = { { "bbox", "fakebbox_43_results.json", { 0 } },
                  { "bbox_class_agnostic", "fakebbox_43_results.json", { .one_class = true } },
                  { "segm", "fakesegm_43_results.json", { .kind = TP_COCO_MASKS } },
                  { "segm_class_agnostic",
                    "fakesegm_43_results.json",
                    { .kind = TP_COCO_MASKS, .one_class = true } } };
    const char *root = getenv("TAPEGRAD_DATA");
    char folder[512], gt[600], dt[600], expected[600];
    int compared = 0;
    snprintf(folder, sizeof folder, "%s/coco/eval", root ? root : TP_SOURCE_DIR "/../shared/data");
    if (access(folder, R_OK) != 0)
        cr_skip_test("%s is absent: set TAPEGRAD_DATA to the folder above coco", folder);
    snprintf(gt, sizeof gt, "%s/instances_train2017_43.json", folder);
    snprintf(expected, sizeof expected, "%s/expected.json", folder);
    json_t *all = json_load_file(expected, 0, NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const json_t *figures = json_object_get(all, kinds[i].key);
        if (!figures) continue;
        snprintf(dt, sizeof dt, "%s/%s", folder, kinds[i].file);
        world w = evaluate(gt, dt, kinds[i].o);
        for (int k = 0; k < TP_COCO_FIGURES; k++, compared++)
            cr_expect_float_eq(tp_coco_eval_figure(w.E, k),
                               json_number_value(json_object_get(figures, names[k])), 6e-10,
                               "%s %s", kinds[i].key, names[k]);
        release(&w);
    }
    cr_expect_geq(compared, 36);
    json_decref(all);
}

/* ---- sets made here ---- */

static const char two_images[] =
    "{\"images\": [{\"id\": 2, \"height\": 50, \"width\": 50}, {\"id\": 1, \"height\": 50, "
    "\"width\": 50}],\"categories\": [{\"id\": 1, \"name\": \"a\"}, {\"id\": 2, "
    "\"name\": \"b\"}], \"annotations\": [{\"id\": 1, \"image_id\": 1, \"category_id\": 1, "
    "\"bbox\": [0, 0, 10, 10], \"area\": 100, \"segmentation\": [[0, 0, 10, 0, 10, 10, 0, 10]]},"
    "{\"id\": 2, \"image_id\": 2, \"category_id\": 1, \"bbox\": [0, 0, 40, 40], \"area\": 1600, "
    "\"segmentation\": [[0, 0, 40, 0, 40, 40, 0, 40]]}]}";

static tp_detection box_of(int64_t image, double side, double score)
{
    return (tp_detection){ .image = image, .box = { 0, 0, side, side }, .score = score };
}

Test(coco_eval, no_detections_give_0)
{
    tp_coco *X = tp_coco_from(two_images, sizeof two_images - 1, "two");
    tp_detections *R = tp_detections_new(X);
    for (int kind = 0; kind < 2; kind++) {
        tp_coco_eval *E = tp_coco_eval_new(R, &(tp_coco_eval_opts){ .kind = (tp_coco_kind)kind });
        cr_assert(tp_coco_eval_ok(E), "%s", tp_coco_eval_why(E));
        for (int i = 0; i < TP_COCO_FIGURES; i++)
            cr_expect_eq(tp_coco_eval_figure(E, i), i == 5 || i == 11 ? -1.0 : 0.0, "%s",
                         tp_coco_figure_name(i));
        cr_expect_eq(tp_coco_eval_class(E, 1, 0), -1.0, "a category without objects");
        tp_coco_eval_free(E);
    }
    cr_expect_null(tp_coco_figure_name(TP_COCO_FIGURES));
    tp_detections_close(R);
    tp_coco_close(X);
}

Test(coco_eval, curves)
{
    double precision[TP_COCO_POINTS], score[TP_COCO_POINTS];
    tp_coco *X = tp_coco_from(two_images, sizeof two_images - 1, "two");
    tp_detections *R = tp_detections_new(X);
    const tp_detection all[] = { box_of(1, 10, 0.9), box_of(0, 10, 0.8), box_of(0, 40, 0.7) };
    for (int i = 0; i < 3; i++) tp_detections_add(R, &all[i]);
    tp_coco_eval *E = tp_coco_eval_new(R, NULL);
    cr_assert(tp_coco_eval_ok(E) && tp_coco_eval_classes(E) == 2);
    tp_coco_eval_curve(E, 0, 0, 0, 2, precision, score);
    cr_expect(precision[0] == 1.0 / (1.0 + 2.220446049250313e-16) && score[50] == 0.9);
    cr_expect(precision[51] == 2.0 / 3.0 && score[100] == 0.7, "%g %g", precision[51], score[100]);
    tp_coco_eval_curve(E, 0, 0, 0, 0, precision, NULL);
    cr_expect(precision[100] == 0.0, "one detection of each image counts: half is found");
    cr_expect_eq(tp_coco_eval_figure(E, 6), 0.5);
    cr_expect_eq(tp_coco_threshold(5), 0.75);
    cr_expect_eq(tp_coco_threshold(9), 0.95);
    tp_coco_eval_free(E);
    tp_detections_close(R);
    tp_coco_close(X);
}

/* Omitted images count as if the files did not list them. */
Test(coco_eval, images_that_are_left_out)
{
    static const bool left_out[] = { true, false };
    tp_coco *X = tp_coco_from(two_images, sizeof two_images - 1, "two");
    tp_detections *R = tp_detections_new(X);
    const tp_detection all[] = { box_of(0, 20, 0.9), box_of(1, 10, 0.8) };
    for (int i = 0; i < 2; i++) tp_detections_add(R, &all[i]);
    tp_coco_eval *E = tp_coco_eval_new(R, NULL);
    cr_expect(tp_coco_eval_ok(E) && tp_coco_eval_figure(E, 0) < 0.6);
    tp_coco_eval_free(E);
    E = tp_coco_eval_new(R, &(tp_coco_eval_opts){ .left_out = left_out });
    cr_expect(tp_coco_eval_ok(E));
    cr_expect_float_eq(tp_coco_eval_figure(E, 0), 1.0, 1e-15);
    cr_expect_eq(tp_coco_eval_figure(E, 8), 1.0);
    cr_expect_eq(tp_coco_eval_figure(E, 5), -1.0, "the large object was in the other image");
    tp_coco_eval_free(E);
    tp_detections_close(R);
    tp_coco_close(X);
}

/* As in pycocotools, the object with the id 0 counts as not found. */
Test(coco_eval, an_object_with_id_0)
{
    char text[1000];
    snprintf(text, sizeof text, "%s", two_images);
    *strstr(strstr(text, "\"annotations\""), "1") = '0';
    tp_coco *X = tp_coco_from(text, strlen(text), "two");
    cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
    cr_expect_eq(tp_coco_noted(X)->count[TP_COCO_ID_0], 1);
    tp_detections *R = tp_detections_new(X);
    const tp_detection all[] = { box_of(0, 40, 0.9), box_of(1, 10, 0.8) };
    for (int i = 0; i < 2; i++) tp_detections_add(R, &all[i]);
    tp_coco_eval *E = tp_coco_eval_new(R, NULL);
    cr_expect_eq(tp_coco_eval_figure(E, 8), 0.5);
    tp_coco_eval_free(E);
    tp_detections_close(R);
    tp_coco_close(X);
}

/* Memory and time follow the files, not categories times thresholds or detections times objects. */
Test(coco_eval, many_categories_and_crowded_images, .timeout = 120)
{
    enum { CATEGORIES = 100000, CROWD = 20000, OF_FILE = 24 << 20 };
    char *gt = malloc(OF_FILE), *dt = malloc(OF_FILE);
    struct rlimit before;
    cr_assert(gt && dt);
    char *g = gt, *d = dt;
    g += sprintf(g, "{\"images\":[{\"id\":1,\"height\":9,\"width\":9}],\"categories\":[{\"id\":0}");
    for (int i = 1; i < CATEGORIES; i++) g += sprintf(g, ",{\"id\":%d}", i);
    g += sprintf(g, "],\"annotations\":[");
    *d++ = '[';
    for (int i = 1; i < CATEGORIES + CROWD; i++) {
        const int category = i < CATEGORIES ? i : 0, side = 1 + i % 7;
        g += sprintf(
            g, "%s{\"id\":%d,\"image_id\":1,\"category_id\":%d,\"bbox\":[0,0,9,%d],\"area\":9}",
            i > 1 ? "," : "", i, category, side);
        d += sprintf(d, "%s{\"image_id\":1,\"category_id\":%d,\"bbox\":[0,0,9,%d],\"score\":0.5}",
                     i > 1 ? "," : "", category, side);
    }
    g += sprintf(g, "]}");
    *d++ = ']';
    limit_memory(1 << 30, &before);
    tp_coco *X = tp_coco_from(gt, (size_t)(g - gt), "gt");
    tp_detections *R = tp_detections_from(X, dt, (size_t)(d - dt), "dt");
    tp_coco_eval *E = tp_coco_eval_new(R, NULL);
    setrlimit(RLIMIT_AS, &before);
    cr_assert(tp_coco_eval_ok(E), "%s", tp_coco_eval_why(E));
    cr_expect_eq(tp_coco_eval_classes(E), CATEGORIES);
    cr_expect_float_eq(tp_coco_eval_class(E, CATEGORIES - 1, 0), 1.0, 1e-15);
    cr_expect_float_eq(tp_coco_eval_figure(E, 8), 1.0, 1e-4);
    tp_coco_eval_free(E);
    tp_detections_close(R);
    tp_coco_close(X);
    free(gt);
    free(dt);
}

/* Evaluates masks for a text with one detection, a box on its first image. */
static world box_as_mask(const char *text)
{
    const tp_detection d = box_of(0, 9, 0.5);
    world w = { .X = tp_coco_from(text, strlen(text), "text") };
    w.R = tp_detections_new(w.X);
    tp_detections_add(w.R, &d);
    w.E = tp_coco_eval_new(w.R, &(tp_coco_eval_opts){ .kind = TP_COCO_MASKS });
    return w;
}

/* The runs of an object have their own size; a box has none. */
Test(coco_eval, a_box_on_an_image_of_unknown_size)
{
    static const char runs[] =
        "{\"images\": [{\"id\": 7}], \"categories\": [{\"id\": 1, \"name\": \"a\"}], "
        "\"annotations\": [{\"id\": 1, \"image_id\": 7, \"category_id\": 1, \"bbox\": "
        "[1, 0, 1, 6], \"area\": 6, \"segmentation\": {\"size\": [6, 8], \"counts\": "
        "[6, 6, 36]}}]}";
    world w = box_as_mask(runs);
    cr_expect_str_eq(tp_coco_eval_why(w.E),
                     "evaluation: a detection without a mask: the size of image 7 is not known");
    release(&w);
}

/* Boxes serve as masks where detections have none; limits must ascend. */
Test(coco_eval, what_is_refused)
{
    static const char unknown[] =
        "{\"images\": [{\"id\": 1}], \"categories\": [{\"id\": 1, \"name\": \"a\"}], "
        "\"annotations\": [{\"id\": 1, \"image_id\": 1, \"category_id\": 1, \"bbox\": "
        "[0, 0, 9, 9], \"area\": 81, \"segmentation\": [[0, 0, 9, 0, 9, 9]]}]}";
    world w = box_as_mask(unknown);
    cr_expect(!tp_coco_eval_ok(w.E) &&
                  strstr(tp_coco_eval_why(w.E), "the size of image 1 is not known"),
              "%s", tp_coco_eval_why(w.E));
    cr_expect(tp_coco_eval_figure(w.E, 0) == -1.0 && tp_coco_eval_classes(w.E) == 0);
    tp_coco_eval_free(w.E);
    w.E = tp_coco_eval_new(w.R, &(tp_coco_eval_opts){ .most = { 10, 1, 100 } });
    cr_expect(!tp_coco_eval_ok(w.E) && strstr(tp_coco_eval_why(w.E), "10, 1, 100"), "%s",
              tp_coco_eval_why(w.E));
    release(&w);
    w = box_as_mask(two_images);
    cr_expect(tp_coco_eval_ok(w.E), "%s", tp_coco_eval_why(w.E));
    release(&w);
}
