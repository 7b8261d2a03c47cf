/* test_coco_memory.c - memory runs out at the n-th allocation, for all n, while annotations and
 * detections are read, evaluated and written, while boxes are selected, and while images are
 * decoded and loaded: each time the error says so, nothing leaks, and the next try gives the usual
 * result. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/coco_eval.h>
#include <tapegrad/detection.h>

#include "support/folder.h"
#include "support/malloc.h"

static const char annotations[] =
    "{\"info\": {}, \"images\": [{\"id\": 1, \"height\": 40, \"width\": 50, \"file_name\": \"a\"}, "
    "{\"id\": 2}],"
    "\"categories\": [{\"id\": 1, \"name\": \"a\"}, {\"id\": 2, \"name\": \"b\"}],"
    " \"annotations\": ["
    "{\"id\": 1, \"image_id\": 1, \"category_id\": 1, \"bbox\": [0, 0, 9, 9], \"area\": 81, "
    "\"segmentation\": [[0, 0, 9, 0, 9, 9, 0, 9], [20, 1, 25, 1, 25, 5]]},"
    "{\"id\": 2, \"image_id\": 1, \"category_id\": 1, \"bbox\": [0, 0, 8, 5], \"area\": 6, "
    "\"iscrowd\": 1, \"segmentation\": {\"size\": [40, 50], \"counts\": [6, 6, 1988]}}]}";
static const char results[] =
    "[{\"image_id\": 1, \"category_id\": 1, \"bbox\": [0, 0, 9, 8], \"score\": 0.5, "
    "\"segmentation\": {\"size\": [40, 50], \"counts\": \"66Tn1\"}},"
    "{\"image_id\": 1, \"category_id\": 1, \"bbox\": [0, 0, 4, 8], \"score\": 0.25}]";

/* Reads, evaluates and writes; returns the sum of the figures. why stays empty on success. */
static double evaluate(char *why, size_t size)
{
    double sum = 0.0;
    tp_coco *X = tp_coco_from(annotations, sizeof annotations - 1, "annotations");
    tp_detections *R = tp_detections_from(X, results, sizeof results - 1, "results");
    snprintf(why, size, "%s", tp_detections_why(R));
    for (int kind = 0; kind < 2 && !why[0]; kind++) {
        tp_coco_eval *E = tp_coco_eval_new(R, &(tp_coco_eval_opts){ .kind = (tp_coco_kind)kind });
        for (int i = 0; i < TP_COCO_FIGURES; i++) sum += tp_coco_eval_figure(E, i);
        snprintf(why, size, "%s", tp_coco_eval_why(E));
        tp_coco_eval_free(E);
    }
    if (!why[0] && !tp_detections_write(R, in_folder("out.json"), why, size)) cr_expect(why[0]);
    tp_detections_close(R);
    tp_coco_close(X);
    return sum;
}

static void write_voc(void)
{
    char command[2048];
    snprintf(
        command, sizeof command,
        "mkdir -p '%s/Annotations' && echo '<annotation>"
        "<size><width>9</width><height>9</height></size><object><name>cat</name><bndbox>"
        "<xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox></object></annotation>'"
        " >'%s/Annotations/a.xml'",
        folder, folder);
    cr_assert_eq(system(command), 0);
}

static double read_voc(char *why, size_t size)
{
    tp_coco *X = tp_coco_voc(folder, TP_TRAIN);
    const double boxes = (double)tp_coco_objects(X);
    snprintf(why, size, "%s", tp_coco_why(X));
    tp_coco_close(X);
    return boxes;
}

/* Runs every selection once. */
static double select_boxes(char *why, size_t size)
{
    static const tp_corners anchor[] = { { 0, 0, 8, 8 }, { 1, 1, 9, 9 }, { 20, 20, 30, 30 } };
    static const float logit[] = { 1, 2, 0, 1, 2, 3 }, offset[24] = { 0 };
    static const double xy[] = { 1, 1, 7, 1, 7, 7 };
    const tp_level level = { anchor, logit, offset, 3 };
    const tp_select_cfg d2 = {
        .height = 40, .width = 40, .overlap = 0.5, .candidates = 3, .most = 3, .score = 0.05
    };
    tp_select_cfg mm = d2;
    tp_found found[3];
    uint8_t target[64];
    int64_t index[4], objects;
    tp_rle r;
    mm.profile = TP_MMDETECTION;
    const int64_t counts[] = {
        tp_select_proposals(&d2, &level, 1, found),
        tp_select_retinanet(&d2, &level, 1, 2, found),
        tp_select_retinanet(&mm, &level, 1, 2, found),
        tp_select_boxes(&d2, anchor, logit, offset, 3, 1, found),
        tp_sample_boxes(&(tp_box_sampler){ .samples = 4, .positive = 0.5, .how = TP_SAMPLE_EVEN },
                        (int[]){ 1, 0, 1, 0 }, 4, 0, NULL, index, &objects),
        tp_mask_target(xy, (int64_t[]){ 3 }, 1, anchor[0], 8, target) ? 1 : -1,
        tp_paste_rle(logit, 2, anchor[0], 0.5, 40, 40, &r) ? 1 : -1
    };
    double sum = 0.0;
    tp_rle_free(&r);
    why[0] = '\0';
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i] < 0) snprintf(why, size, "out of memory");
        sum += (double)counts[i];
    }
    return sum;
}

/* ---- images ---- */

static void write_images(void)
{
    static const char text[] =
        "{\"images\": [{\"id\": 1, \"height\": 40, \"width\": 50, \"file_name\": \"1.png\"},"
        "{\"id\": 2, \"height\": 36, \"width\": 33, \"file_name\": \"2.png\"}],"
        "\"categories\": [{\"id\": 1, \"name\": \"a\"}], \"annotations\": ["
        "{\"id\": 1, \"image_id\": 1, \"category_id\": 1, \"bbox\": [0, 0, 9, 9], \"area\": 81},"
        "{\"id\": 2, \"image_id\": 2, \"category_id\": 1, \"bbox\": [2, 3, 9, 9], \"area\": 81}]}";
    FILE *f = fopen(in_folder("images.json"), "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
    for (int i = 1; i <= 2; i++) {
        tp_image p = { 0 };
        char name[32];
        cr_assert(tp_image_new(&p, i == 1 ? 50 : 33, i == 1 ? 40 : 36));
        for (int64_t k = 0; k < p.width * p.height * 3; k++) p.rgb[k] = (uint8_t)(k * k >> 3);
        snprintf(name, sizeof name, "%d.png", i);
        cr_assert(tp_image_write(&p, in_folder(name)), "%s", p.why);
        tp_image_free(&p);
    }
}

static void never_bad(void *env, const char *name, const char *why)
{
    (void)env;
    cr_expect_fail("%s counts as a bad image: %s", name, why);
}

/* A shortage of memory ends training; only a bad image is skipped. */
static double load_batches(tp_detection_profile profile, char *why, size_t size)
{
    tp_coco *X = tp_coco_open(in_folder("images.json"));
    char path[1024];
    snprintf(path, sizeof path, "%s", folder);
    tp_loader *L = tp_object_loader_new(&(tp_object_source){ .coco = X, .folder = path },
                                        &(tp_object_loader_opts){ .batch = 2,
                                                                  .train = true,
                                                                  .size = { 32 },
                                                                  .most = 64,
                                                                  .profile = profile,
                                                                  .bad = never_bad });
    tp_object_batch b;
    double sum = 0.0;
    if (tp_object_loader_next(L, &b))
        for (int64_t i = 0; i < b.n * b.height * b.width * 3; i++) sum += (double)b.x[i];
    snprintf(why, size, "%s", tp_loader_why(L));
    tp_loader_free(L);
    tp_coco_close(X);
    return sum;
}

static double load_by_pillow(char *why, size_t size)
{
    return load_batches(TP_DETECTRON2, why, size);
}

static double load_by_opencv(char *why, size_t size)
{
    return load_batches(TP_MMDETECTION, why, size);
}

/* Decodes and enlarges with both filters; every failure is a shortage. */
static double decode(char *why, size_t size)
{
    tp_image p = { 0 }, q = { 0 };
    double sum = 0.0;
    const bool done = tp_image_read(&p, in_folder("1.png"), &(tp_image_opts){ .strict = false }) &&
                      tp_image_resize(&q, &p, NULL, 70, 60, TP_BILINEAR) &&
                      tp_image_resize_linear(&p, &q, 45, 80);
    for (int64_t i = 0; done && i < p.width * p.height * 3; i++) sum += (double)p.rgb[i];
    const tp_image *failed = q.why[0] ? &q : &p;
    snprintf(why, size, "%s", done ? "" : failed->why);
    cr_expect(done || failed->shortage, "%s", why);
    tp_image_free(&p);
    tp_image_free(&q);
    return sum;
}

static void for_every_n(const char *name, double (*f)(char *why, size_t size), size_t least)
{
    char why[1200], none[1200] = "";
    const double wanted = f(none, sizeof none);
    cr_assert_str_empty(none, "%s: %s", name, none);
    for (int lasting = 0; lasting < 2; lasting++) {
        size_t failures = 0;
        for (size_t n = 1, calls = 1; n == 1 || calls >= n - 1; n++) {
            const int64_t live = malloc_live();
            malloc_fail(n, lasting ? SIZE_MAX / 2 : 1);
            const double got = f(why, sizeof why);
            calls = malloc_heal();
            cr_expect_eq(malloc_live(), live, "%s, allocation %zu leaks", name, n);
            cr_expect(!why[0] || strstr(why, "out of memory") || strstr(why, "out of host memory"),
                      "%s, allocation %zu: %s", name, n, why);
            cr_expect(why[0] || got == wanted, "%s, allocation %zu: %g, not %g", name, n, got,
                      wanted);
            failures += why[0] != '\0';
        }
        cr_expect_geq(failures, least, "%s: only %zu of the allocations matter", name, failures);
    }
    cr_expect(f(none, sizeof none) == wanted && !none[0], "%s afterwards: %s", name, none);
}

Test(coco_memory, evaluation, .init = make_folder, .fini = remove_folder, .timeout = 900)
{
    for_every_n("evaluation", evaluate, 100);
}

Test(coco_memory, voc, .init = make_folder, .fini = remove_folder, .timeout = 900)
{
    write_voc();
    for_every_n("VOC", read_voc, 20);
}

Test(coco_memory, selection, .timeout = 900)
{
    for_every_n("selection", select_boxes, 30);
}

Test(coco_memory, images, .init = make_folder, .fini = remove_folder, .timeout = 900)
{
    write_images();
    for_every_n("decoding", decode, 10);
    for_every_n("batches of detectron2", load_by_pillow, 20);
    for_every_n("batches of mmdetection", load_by_opencv, 20);
}
