/* test_coco.c - annotations and detections: COCO's files and VOC's folders, messages for damaged
 * ones, writing. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tapegrad/coco.h>

#include "support/folder.h"

static const char small[] =
    "{\"info\": {\"year\": 2017}, \"annotations\": [\n"
    " {\"id\": 7, \"image_id\": 20, \"category_id\": 5, \"bbox\": [1, 2, 3.5, 4], \"area\": 12.5, "
    "\"iscrowd\": 0,\n"
    "  \"segmentation\": [[1, 1, 5, 1, 5, 5, 1, 5], [0, 0, 1, 0, 1, 1]]},\n"
    " {\"id\": 3, \"image_id\": 10, \"category_id\": 2, \"bbox\": [0, 0, 1, 1], \"area\": 1},\n"
    " {\"id\": 9, \"image_id\": 20, \"category_id\": 2, \"bbox\": [0, 0, 8, 6], \"area\": 6, "
    "\"iscrowd\": 1,\n"
    "  \"segmentation\": {\"size\": [6, 8], \"counts\": [6, 6, 36]}},\n"
    " {\"id\": 4, \"image_id\": 99, \"category_id\": 2, \"bbox\": [0, 0, 1, 1], \"area\": 1},\n"
    " {\"id\": 5, \"image_id\": 10, \"category_id\": 99, \"bbox\": [0, 0, 1, 1], \"area\": 1}],\n"
    " \"images\": [{\"id\": 20, \"height\": 6, \"width\": 8, \"file_name\": \"a.jpg\"},\n"
    "  {\"id\": 10, \"height\": 5, \"width\": 5, \"file_name\": \"b.jpg\"}, {\"id\": 30}],\n"
    " \"categories\": [{\"id\": 5, \"name\": \"cat\"}, {\"id\": 2, \"name\": \"dog\"}], "
    "\"licenses\": []}\n";

Test(coco, annotations)
{
    tp_coco *X = tp_coco_from(small, sizeof small - 1, "small");
    cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
    cr_expect_eq(tp_coco_images(X), 3);
    cr_expect_eq(tp_coco_objects(X), 3);
    cr_expect_eq(tp_coco_dropped(X), 2);
    cr_expect_eq(tp_coco_categories(X), 2);
    cr_expect_str_eq(tp_coco_category_name(X, 0), "dog");
    cr_expect_eq(tp_coco_category_id(X, 1), 5);
    cr_expect_eq(tp_coco_find_category(X, 5), 1);
    cr_expect_eq(tp_coco_find_category(X, 3), -1);
    cr_expect_eq(tp_coco_find_image(X, 10), 1);
    cr_expect_eq(tp_coco_find_image(X, 11), -1);
    const tp_coco_image *a = tp_coco_image_at(X, 0), *c = tp_coco_image_at(X, 2);
    cr_expect(a->id == 20 && a->height == 6 && a->width == 8 && a->first == 0 && a->objects == 2);
    cr_expect_str_eq(a->file, "a.jpg");
    cr_expect(c->id == 30 && c->height == 0 && c->objects == 0 && c->file[0] == '\0');
    const tp_coco_object *o = tp_coco_object_at(X, 0), *crowd = tp_coco_object_at(X, 1),
                         *plain = tp_coco_object_at(X, 2);
    cr_expect(o->id == 7 && o->category == 1 && !o->crowd && o->area == 12.5 && o->box[2] == 3.5 &&
              o->parts == 2);
    cr_expect(crowd->id == 9 && crowd->crowd && crowd->form == TP_COCO_RUNS);
    cr_expect(plain->id == 3 && plain->image == 1 && plain->form == TP_COCO_NO_MASK);
    int64_t n;
    const double *xy = tp_coco_polygon(X, o, 1, &n);
    cr_expect(n == 6 && xy[2] == 1.0 && xy[5] == 1.0);
    tp_coco_close(X);
}

Test(coco, masks_of_objects)
{
    char why[300] = "";
    double box[4];
    tp_rle r;
    tp_coco *X = tp_coco_from(small, sizeof small - 1, "small");
    cr_assert(tp_coco_mask(X, tp_coco_object_at(X, 0), &r, why, sizeof why), "%s", why);
    tp_rle_box(&r, box);
    cr_expect(tp_rle_area(&r) >= 16 && r.height == 6 && r.width == 8 && box[2] >= 4.0);
    tp_rle_free(&r);
    cr_assert(tp_coco_mask(X, tp_coco_object_at(X, 1), &r, why, sizeof why), "%s", why);
    cr_expect_eq(tp_rle_area(&r), 6);
    tp_rle_free(&r);
    cr_expect(!tp_coco_mask(X, tp_coco_object_at(X, 2), &r, why, sizeof why) &&
                  strstr(why, "3 has no mask"),
              "%s", why);
    tp_coco_close(X);
}

/* A missing 'area' is that of the runs, or of the box; ids of 0 and dropped annotations are
 * noted. */
Test(coco, what_is_noted)
{
    static const char text[] =
        "{\"images\": [{\"id\": 0, \"height\": 6, \"width\": 8}], \"categories\": [{\"id\": 1}], "
        "\"annotations\": [{\"id\": 0, \"image_id\": 0, \"category_id\": 1, "
        "\"bbox\": [0, 0, 3, 4], \"segmentation\": [[0, 0, 1, 0, 1, 1]]},"
        "{\"id\": 1, \"image_id\": 0, \"category_id\": 1, \"bbox\": [0, 0, 3, 4], \"area\": null, "
        "\"segmentation\": {\"size\": [6, 8], \"counts\": \"66T1\"}},"
        "{\"id\": 2, \"image_id\": 9, \"category_id\": 1, \"bbox\": [0, 0, 3, 4], \"area\": 5},"
        "{\"id\": 3, \"image_id\": 9, \"category_id\": 7, \"bbox\": [0, 0, 3, 4], \"area\": 5},"
        "{\"id\": 4, \"image_id\": 0, \"category_id\": 7, \"bbox\": [0, 0, 3, 4], \"area\": 5}]}";
    char said[400];
    tp_coco *X = tp_coco_from(text, sizeof text - 1, "text");
    cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
    const tp_coco_tally *t = tp_coco_noted(X);
    cr_expect(t->count[TP_COCO_WITHOUT_AREA] == 2 && t->count[TP_COCO_ID_0] == 1 &&
              t->count[TP_COCO_IMAGE_ID_0] == 1);
    cr_expect(tp_coco_object_at(X, 0)->area == 12.0 && tp_coco_object_at(X, 1)->area == 6.0);
    cr_expect_eq(tp_coco_tally_text(t, "annotation", said, sizeof said), 3);
    cr_expect_str_eq(said, "2 of an image that is not listed (the first: annotation 2), 1 of a "
                           "category that is not listed (the first: annotation 4)");
    cr_expect_eq(tp_coco_tally_text(t, "annotation", said, 9), 3);
    cr_expect_str_eq(said, "2 of an ");
    tp_coco_close(X);
}

/* ---- damage ---- */

/* `small` with the first `from` replaced by `to`. */
static tp_coco *changed(const char *from, const char *to)
{
    static char text[4096];
    const char *at = strstr(small, from);
    cr_assert(at, "%s", from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - small), small, to, at + strlen(from));
    return tp_coco_from(text, strlen(text), "small.json");
}

Test(coco, damaged_annotations_are_named)
{
    static const struct {
        const char *from, *to, *why;
    } bad[] = {
        { "\"bbox\": [1, 2, 3.5, 4]", "\"bbox\": [1, 2, 3.5]",
          "annotation 1 (id 7), at byte 43 (line 2): 'bbox' is not a list of 4 numbers" },
        { "\"bbox\": [1, 2, 3.5, 4]", "\"bbox\": [1, 2, \"3\", 4]", "number 3 of 'bbox'" },
        { "\"bbox\": [1, 2, 3.5, 4], ", "", "'bbox' is missing" },
        { "\"area\": 12.5", "\"area\": \"12\"", "'area' is not a number" },
        { "\"id\": 7, ", "", "annotation 1, at byte 43 (line 2): 'id' is missing" },
        { "\"image_id\": 20", "\"image_id\": 20.5", "'image_id' is not an integer" },
        { "\"iscrowd\": 0", "\"iscrowd\": 2", "'iscrowd' is neither 0 nor 1" },
        { "[0, 0, 1, 0, 1, 1]", "[0, 0, null, 0, 1, 1]",
          "polygon 2 of 'segmentation' has values other than numbers" },
        { "[[1, 1, 5, 1, 5, 5, 1, 5], [", "[1, [", "polygon 1 of 'segmentation' is not a list" },
        { "{\"size\": [6, 8], \"counts\": [6, 6, 36]}", "\"x\"", "neither polygons nor runs" },
        { "[6, 6, 36]", "[6, 6, 35]",
          "annotation 3 (id 9), at byte 286 (line 5): 'segmentation': the runs have 47 pixels, but "
          "the mask 6 x 8" },
        { "[6, 6, 36]", "[6, -6, 48]", "impossible length" },
        { "[6, 6, 36]", "[6, 6.5, 36]", "values other than integers" },
        { "[6, 6, 36]", "7", "neither a text nor a list" },
        { "\"size\": [6, 8], \"counts\": [6, 6, 36]", "\"size\": [8, 6], \"counts\": [6, 6, 36]",
          "annotation 3 (id 9): its mask has another size than its image" },
        { "\"size\": [6, 8]", "\"size\": [6]", "not a height and a width" },
        { "\"id\": 3,", "\"id\": 7,", "annotation 2 (id 7): an earlier annotation has this id" },
        { "{\"id\": 10,", "{\"id\": 20,", "two images have the id 20" },
        { "\"id\": 5, \"name\"", "\"id\": 2, \"name\"", "two categories have the id 2" },
        { "\"height\": 6, ", "", "image 1 (id 20), at byte " },
        { "\"height\": 6", "\"height\": 1000000000", "pixels is not possible" },
        { "{\"id\": 30}", "30", "image 3, at byte 728 (line 10): it is not an object" },
        { "\"licenses\": []}", "\"licenses\": [", "the file ends where a value should be" },
        { "\"licenses\": []}", "\"licenses\": []", "the file ends where '}' should be" },
        { "\"licenses\": []}", "\"images\": []}", "'images' occurs twice" },
        { "\"licenses\": []}", "\"licenses\": []} x", "there is more after the end" },
        { "\"categories\"", "\"cats\"", "'categories' is missing" },
        { "{\"info\"", "[\"info\"", "at byte 0 (line 1): '{' is expected" },
        { "\"info\": {\"year\": 2017}", "\"info\": {\"year\": 20 17}", "at byte 2" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tp_coco *X = changed(bad[i].from, bad[i].to);
        cr_expect(!tp_coco_ok(X) && strstr(tp_coco_why(X), bad[i].why), "%s: %s", bad[i].to,
                  tp_coco_why(X));
        cr_expect(strncmp(tp_coco_why(X), "small.json: ", 12) == 0, "%s", tp_coco_why(X));
        cr_expect(tp_coco_images(X) == 0 && tp_coco_objects(X) == 0 && tp_coco_categories(X) == 0);
        tp_coco_close(X);
    }
    tp_coco *X = tp_coco_open("/nowhere/instances.json");
    cr_expect(!tp_coco_ok(X) && strstr(tp_coco_why(X), "/nowhere/instances.json: cannot be opened"),
              "%s", tp_coco_why(X));
    tp_coco_close(X);
}

/* No truncated file is accepted. */
Test(coco, truncated_files)
{
    for (size_t n = 0; n + 2 < sizeof small; n++) {
        tp_coco *X = tp_coco_from(small, n, "cut");
        cr_expect(!tp_coco_ok(X), "%zu bytes", n);
        tp_coco_close(X);
    }
}

/* ---- detections ---- */

static tp_detections *results(const tp_coco *X, const char *text)
{
    return tp_detections_from(X, text, strlen(text), "dt.json");
}

Test(coco, detections_with_boxes_or_masks)
{
    tp_coco *X = tp_coco_from(small, sizeof small - 1, "small");
    tp_detections *R = results(
        X, "[{\"image_id\": 20, \"category_id\": 5, \"bbox\": [1, 1, 2, 3], \"score\": 0.5, "
           "\"segmentation\": {\"size\": [6, 8], \"counts\": \"66T1\"}},"
           "{\"image_id\": 10, \"category_id\": 77, \"bbox\": [1, 1, 2, 3], \"score\": 0.25},"
           "{\"image_id\": 10, \"category_id\": 2, \"bbox\": [1, 1, 2, 4], \"score\": 1}]");
    cr_assert(tp_detections_ok(R), "%s", tp_detections_why(R));
    cr_expect(tp_detections_count(R) == 2 && tp_detections_dropped(R) == 1);
    const tp_detection *d = tp_detections_at(R, 0), *e = tp_detections_at(R, 1);
    cr_expect(d->image == 0 && d->category == 1 && d->area == 6.0 && tp_rle_area(&d->mask) == 6 &&
              d->score == 0.5);
    cr_expect(e->image == 1 && e->category == 0 && e->area == 8.0 && e->mask.runs == 0);
    tp_detections_close(R);
    R = results(
        X, "[{\"image_id\": 20, \"category_id\": 5, \"score\": 0.5, \"segmentation\": {\"size\": "
           "[6, 8], \"counts\": \"63W1\"}}]");
    cr_assert(tp_detections_ok(R), "%s", tp_detections_why(R));
    d = tp_detections_at(R, 0);
    cr_expect(d->area == 3.0 && d->box[0] == 1.0 && d->box[1] == 0.0 && d->box[2] == 1.0 &&
              d->box[3] == 3.0);
    tp_detections_close(R);
    R = results(X,
                "[{\"image_id\": 20, \"category_id\": 5, \"bbox\": [1, 1, 2, 3], \"score\": 0.5, "
                "\"segmentation\": null},"
                "{\"image_id\": 20, \"category_id\": 5, \"bbox\": [1, 1, 2, 3], \"score\": 0.5, "
                "\"segmentation\": []}]");
    cr_expect(tp_detections_ok(R) && tp_detections_count(R) == 2, "%s", tp_detections_why(R));
    tp_detections_close(R);
    R = results(X, " [ ] ");
    cr_expect(tp_detections_ok(R) && tp_detections_count(R) == 0);
    tp_detections_close(R);
    tp_coco_close(X);
}

Test(coco, damaged_results_are_named)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "[{\"image_id\": 21, \"category_id\": 5, \"bbox\": [1, 1, 2, 3], \"score\": 1}]",
          "result 1, at byte 1 (line 1): the annotations have no image with the id 21" },
        { "[{\"image_id\": 20, \"category_id\": 5, \"bbox\": [1, 1, 2, 3]}]",
          "'score' is missing" },
        { "[{\"image_id\": 20, \"category_id\": 5, \"bbox\": [1, 1, 2, 3], \"score\": 1e999}]",
          "dt.json: at byte " },
        { "[{\"image_id\": 20, \"category_id\": 5, \"bbox\": [1, 1, 2, 3], \"score\": NaN}]",
          "dt.json: at byte " },
        { "[{\"image_id\": 20, \"category_id\": 5, \"score\": 1}]", "neither 'bbox' nor runs" },
        { "[{\"image_id\": 20, \"category_id\": 5, \"bbox\": [1, 1, 2, 3], \"score\": 1},\n"
          "{\"image_id\": 20, \"category_id\": 5, \"score\": 1}]",
          "result 2, at byte 71 (line 2): 'bbox' is missing" },
        { "[{\"image_id\": 10, \"category_id\": 5, \"score\": 1, \"segmentation\": {\"size\": "
          "[6, 8], \"counts\": \"66T1\"}}]",
          "another size" },
        { "[{\"image_id\": 20, \"category_id\": 5, \"score\": 1, \"segmentation\": {\"size\": "
          "[6, 8], \"counts\": \"66T\"}}]",
          "not a compressed mask" },
        { "[{\"image_id\": 20, \"category_id\": 5, \"bbox\": [1, 1, 2, 3], \"score\": 1, "
          "\"segmentation\": [[1, 1, 3, 1, 3, 3]]}]",
          "result 1, at byte 1 (line 1): 'segmentation' of a result must be runs" },
        { "[{\"image_id\": 20, \"category_id\": 5, \"bbox\": [1, 1, 2, 3], \"score\": 1, "
          "\"segmentation\": \"66T1\"}]",
          "'segmentation' of a result must be runs" },
        { "[{\"image_id\": 20, \"category_id\": 5, \"score\": 1, \"segmentation\": "
          "[[1, 1, 3, 1, 3, 3]]}]",
          "'segmentation' of a result must be runs" },
        { "{}", "'[' is expected" },
    };
    tp_coco *X = tp_coco_from(small, sizeof small - 1, "small");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tp_detections *R = results(X, bad[i].text);
        cr_expect(!tp_detections_ok(R) && strstr(tp_detections_why(R), bad[i].why), "%s: %s",
                  bad[i].text, tp_detections_why(R));
        cr_expect_eq(tp_detections_count(R), 0);
        tp_detections_close(R);
    }
    tp_coco_close(X);
}

/* A list holds no number that JSON cannot hold, so none is written. */
Test(coco, detections_that_are_not_finite, .init = make_folder, .fini = remove_folder)
{
    char why[300] = "";
    tp_coco *X = tp_coco_from(small, sizeof small - 1, "small");
    for (int i = 0; i < 12; i++) {
        tp_detection d = { .category = 1, .box = { 1, 2, 3, 4 }, .score = 0.5, .area = 12 };
        double *const number[] = { &d.box[0], &d.box[1], &d.box[2], &d.box[3], &d.score, &d.area };
        tp_detections *R = tp_detections_new(X);
        tp_detections_add(R, &d);
        cr_expect(tp_detections_ok(R));
        *number[i / 2] = i % 2 ? -INFINITY : NAN;
        tp_detections_add(R, &d);
        cr_expect(!tp_detections_ok(R) && strstr(tp_detections_why(R), "not finite") &&
                      strstr(tp_detections_why(R), i % 2 ? "-inf" : "nan"),
                  "%d: %s", i, tp_detections_why(R));
        cr_expect(!tp_detections_write(R, in_folder("out.json"), why, sizeof why) &&
                  strstr(why, "not finite"));
        cr_expect_neq(access(in_folder("out.json"), F_OK), 0);
        tp_detections_close(R);
    }
    tp_coco_close(X);
}

/* Written files read back the same, also a backslash in compressed text. */
Test(coco, written_detections, .init = make_folder, .fini = remove_folder)
{
    char why[300] = "";
    const int64_t counts[] = { 44, 4, 0 };
    tp_coco *X = tp_coco_from(small, sizeof small - 1, "small");
    tp_detections *R = tp_detections_new(X);
    tp_detection d = {
        .image = 0, .category = 1, .box = { 1.0 / 3.0, 1e-9, 2.5, 3 }, .score = 0.1
    };
    tp_detections_add(R, &d);
    cr_assert(tp_rle_from_counts(&d.mask, counts, 2, 6, 8, why, sizeof why), "%s", why);
    d.score = 0.7000000000000001;
    tp_detections_add(R, &d);
    cr_assert(tp_detections_ok(R) && tp_detections_count(R) == 2);
    cr_assert(tp_detections_write(R, in_folder("out.json"), why, sizeof why), "%s", why);
    tp_detections *S = tp_detections_open(X, in_folder("out.json"));
    cr_assert(tp_detections_ok(S), "%s", tp_detections_why(S));
    for (int64_t i = 0; i < 2; i++) {
        const tp_detection *a = tp_detections_at(R, i), *b = tp_detections_at(S, i);
        cr_expect_arr_eq(a->box, b->box, sizeof a->box);
        cr_expect(a->score == b->score && a->area == b->area && a->mask.runs == b->mask.runs &&
                  a->category == b->category);
    }
    d.image = 3;
    tp_detections_add(R, &d);
    cr_expect(!tp_detections_ok(R) && strstr(tp_detections_why(R), "no image 3"), "%s",
              tp_detections_why(R));
    cr_expect_not(tp_detections_write(R, in_folder("out.json"), why, sizeof why));
    tp_rle_free(&d.mask);
    tp_detections_close(R);
    tp_detections_close(S);
    tp_coco_close(X);
}

/* ---- the images at hand, and the original code's masks of the annotations ---- */

static tp_coco *shared_file(const char *name, char path[512])
{
    const char *root = getenv("TAPEGRAD_DATA");
    snprintf(path, 512, "%s/coco/%s", root ? root : TP_SOURCE_DIR "/../shared/data", name);
    if (access(path, R_OK) != 0)
        cr_skip_test("%s is absent: set TAPEGRAD_DATA to the folder above coco", path);
    tp_coco *X = tp_coco_open(path);
    cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
    return X;
}

Test(coco, published_annotations)
{
    char path[512];
    tp_coco *X = shared_file("annotations/instances_train2017.json", path);
    int64_t crowds = 0, several = 0, empty = 0;
    for (int64_t i = 0; i < tp_coco_objects(X); i++) {
        crowds += tp_coco_object_at(X, i)->crowd;
        several += tp_coco_object_at(X, i)->parts > 1;
    }
    for (int64_t i = 0; i < tp_coco_images(X); i++) empty += tp_coco_image_at(X, i)->objects == 0;
    cr_expect(tp_coco_images(X) == 27 && tp_coco_objects(X) == 203 && tp_coco_categories(X) == 80);
    cr_expect(crowds >= 3 && several >= 10 && empty == 1, "%d, %d, %d", (int)crowds, (int)several,
              (int)empty);
    tp_coco_close(X);
}

Test(coco, masks_equal_the_published_code)
{
    static char text[1 << 16];
    char path[512], why[300] = "", expected[512];
    tp_coco *X = shared_file("eval/instances_train2017_43.json", path);
    snprintf(expected, sizeof expected, "%.*s/masks_expected.json",
             (int)(strrchr(path, '/') - path), path);
    json_t *all = json_load_file(expected, 0, NULL), *masks = json_object_get(all, "annotations");
    cr_assert_eq(json_object_size(masks), (size_t)tp_coco_objects(X));
    for (int64_t i = 0; i < tp_coco_objects(X); i++) {
        const tp_coco_object *o = tp_coco_object_at(X, i);
        char key[32];
        double box[4];
        tp_rle r;
        snprintf(key, sizeof key, "%lld", (long long)o->id);
        const json_t *m = json_object_get(masks, key), *b = json_object_get(m, "bbox");
        cr_assert(m && tp_coco_mask(X, o, &r, why, sizeof why), "%s: %s", key, why);
        cr_expect_lt(tp_rle_string(&r, text, sizeof text), sizeof text);
        cr_expect_str_eq(text, json_string_value(json_object_get(m, "counts")), "annotation %s",
                         key);
        cr_expect_eq(tp_rle_area(&r), json_integer_value(json_object_get(m, "area")),
                     "annotation %s", key);
        tp_rle_box(&r, box);
        for (size_t k = 0; k < 4; k++)
            cr_expect_eq(box[k], json_number_value(json_array_get(b, k)), "annotation %s", key);
        tp_rle_free(&r);
    }
    json_decref(all);
    tp_coco_close(X);
}

/* ---- Pascal VOC ---- */

static const char voc_first[] =
    "<annotation>\n <filename>1.jpg</filename>\n <size><width>8</width><height>6</height>"
    "<depth>3</depth></size>\n"
    " <object>\n  <name>dog</name> <difficult>1</difficult>\n"
    "  <bndbox><xmin>1</xmin><ymin>2</ymin><xmax>8</xmax><ymax>6</ymax></bndbox>\n"
    "  <part><name>head</name><bndbox><xmin>3</xmin><ymin>3</ymin><xmax>4</xmax><ymax>4</ymax>"
    "</bndbox></part>\n"
    " </object>\n</annotation>\n";

static void make_voc(const char *first)
{
    make_folder();
    cr_assert(mkdir(in_folder("Annotations"), 0777) == 0 &&
              mkdir(in_folder("ImageSets"), 0777) == 0 &&
              mkdir(in_folder("ImageSets/Main"), 0777) == 0);
    write_text("Annotations/1.xml", first);
    write_text(
        "Annotations/2.xml",
        "<annotation><size><width>5</width><height>5</height></size><object><name>cat</name>"
        "<bndbox><xmax>2.5</xmax><xmin>1.5</xmin><ymin>1</ymin><ymax>1</ymax></bndbox></object>"
        "</annotation>");
    write_text("Annotations/3.xml",
               "<annotation><size><width>5</width><height>5</height></size></annotation>");
    write_text("ImageSets/Main/train.txt", "1\n3\n");
    write_text("ImageSets/Main/val.txt", "2\r\n");
}

Test(coco, voc_folders, .fini = remove_folder)
{
    make_voc(voc_first);
    tp_coco *X = tp_coco_voc(folder, TP_TRAIN);
    cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
    cr_expect(tp_coco_images(X) == 2 && tp_coco_objects(X) == 1 && tp_coco_categories(X) == 2);
    cr_expect_str_eq(tp_coco_category_name(X, 0), "cat");
    const tp_coco_object *o = tp_coco_object_at(X, 0);
    cr_expect(o->category == 1 && o->ignore && !o->crowd && o->image == 0);
    cr_expect(o->box[0] == 0.0 && o->box[1] == 1.0 && o->box[2] == 8.0 && o->box[3] == 5.0 &&
              o->area == 40.0);
    cr_expect_str_eq(tp_coco_image_at(X, 0)->file, "1.jpg");
    cr_expect_str_eq(tp_coco_image_at(X, 1)->file, "3.jpg");
    tp_coco_close(X);
    X = tp_coco_voc(folder, TP_VALID);
    cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
    cr_expect(tp_coco_images(X) == 1 && tp_coco_object_at(X, 0)->box[2] == 2.0 &&
              tp_coco_categories(X) == 2);
    tp_coco_close(X);
    X = tp_coco_voc(folder, TP_TEST);
    cr_expect(!tp_coco_ok(X) && strstr(tp_coco_why(X), "has no Main/test.txt"), "%s",
              tp_coco_why(X));
    tp_coco_close(X);
}

/* Comments hide tags before, between and after texts; empty tags open nothing. */
Test(coco, voc_comments_and_empty_tags, .fini = remove_folder)
{
    make_voc(
        "<?xml version=\"1.0\"?><!-- > <object> --><annotation><!----><!-- <size><width>99</width> "
        "-- > -->\n"
        "<filename/><size><width> <!-- > 7 --> 8<!-- 9 --></width><height>6</height></size>\n"
        "<object><part/><name><!-- <name>cat</name> -->dog</name><part />\n"
        "<!-- <part> <difficult>1</difficult> --><difficult/>\n"
        "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>8</xmax><ymax>6</ymax></bndbox>\n"
        "<part><name>head</name></part></object></annotation><!-- <object> ");
    tp_coco *X = tp_coco_voc(folder, TP_TRAIN);
    cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
    cr_assert(tp_coco_images(X) == 2 && tp_coco_objects(X) == 1 && tp_coco_categories(X) == 2);
    const tp_coco_image *image = tp_coco_image_at(X, 0);
    const tp_coco_object *o = tp_coco_object_at(X, 0);
    cr_expect(image->width == 8 && image->height == 6);
    cr_expect_str_eq(image->file, "1.jpg");
    cr_expect_str_eq(tp_coco_category_name(X, o->category), "dog");
    cr_expect(!o->ignore && o->box[0] == 0.0 && o->box[1] == 1.0 && o->box[2] == 8.0 &&
              o->box[3] == 5.0);
    tp_coco_close(X);
}

Test(coco, damaged_voc_folders)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "<annotation><object><name>x</name>",
          "Annotations/1.xml: line 1: <object> is not closed" },
        { "<annotation>\n<object>\n</object>", "line 3: <object> has no <name>" },
        { "<annotation>\n<size><width>8</width><height>6</height></size><object><name>x</name>"
          "</object></annotation>",
          "line 2: the <bndbox> of <object> lacks one of <xmin>" },
        { "<annotation><object><name>x</name><bndbox><xmin>a</xmin></bndbox></object></annotation>",
          "a number is expected" },
        { "<annotation><object><name>x</name></object>", "<annotation> is not closed" },
        { "<annotation><object><name>x</object></annotation>", "<name> is not closed" },
        { "<annotation></annotation></annotation>", "closes nothing" },
        { "<annotation><object><name>salt & pepper</name></object></annotation>", "write &amp;" },
        { "<annotation><object><name>&#xD800;</name></object></annotation>", "no entity of XML" },
        { "\xff\xfe<", "1.xml: is UTF-16" },
        { "<annotation>\n<object/>", "line 2: <object> has no <name>" },
        { "<annotation><object><name>x</name><!-- </object>", "<object> is not closed" },
        { "<!-- <annotation></annotation>", "no <annotation>" },
        { "<!-", "no <annotation>" },
        { "<annotation><size><width>-8</width></size></annotation>", "<size> has an impossible" },
        { "", "no <annotation>" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        make_voc(bad[i].text);
        tp_coco *X = tp_coco_voc(folder, TP_TRAIN);
        cr_expect(!tp_coco_ok(X) && strstr(tp_coco_why(X), bad[i].why), "%s: %s", bad[i].text,
                  tp_coco_why(X));
        tp_coco_close(X);
        remove_folder();
    }
}

/* An image is the file with its annotation's stem, whatever <filename> says. */
Test(coco, voc_images_of_a_stem, .fini = remove_folder)
{
    static const struct {
        const char *pictures[3], *filename, *file;
    } cases[] = {
        { { "1.png" }, "old_name.jpg", "1.png" },
        { { "1.JPG", "2.jpg" }, "1", "1.JPG" },
        { { "1.jpeg", "1.jpg" }, "1.jpeg", "1.jpg" },
        { { "1.png", "._1.jpg" }, "1.png", "1.png" },
        { { "2.jpg" }, "2.jpg", "1.jpg" }, /* belongs to another annotation */
        { { "street.jpg" }, "street.jpg", "street.jpg" },
        { { NULL }, "", "1.jpg" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char xml[400];
        snprintf(xml, sizeof xml, "<annotation><filename>%s</filename></annotation>",
                 cases[i].filename);
        make_voc(xml);
        cr_assert_eq(mkdir(in_folder("JPEGImages"), 0777), 0);
        for (int k = 0; k < 3 && cases[i].pictures[k]; k++) {
            char name[100];
            snprintf(name, sizeof name, "JPEGImages/%s", cases[i].pictures[k]);
            write_text(name, "");
        }
        tp_coco *X = tp_coco_voc(folder, TP_TRAIN);
        cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
        cr_expect_str_eq(tp_coco_image_at(X, 0)->file, cases[i].file, "%zu: %s", i,
                         tp_coco_image_at(X, 0)->file);
        cr_expect_eq(tp_coco_image_at(X, 0)->height, 0, "no <size>: unknown");
        tp_coco_close(X);
        remove_folder();
    }
    make_folder();
}

/* Annotation tools write entities, a byte order mark, nested names, companions, capital endings. */
Test(coco, voc_as_tools_write_it, .fini = remove_folder)
{
    make_voc(
        "\xef\xbb\xbf<?xml version=\"1.0\"?>\n<annotation verified=\"a>b\"><source><width>3</width>"
        "</source><size><width>8</width><height>6</height></size><object><name>salt &amp; "
        "p&#101;pp&#x65;r <![CDATA[<x>&amp;]]></name><attributes><attribute><name>occluded</name>"
        "</attribute></attributes><bndbox><xmin>2.5</xmin><ymin>3</ymin><xmax>30</xmax><ymax>1"
        "</ymax></bndbox></object></annotation>");
    write_text("Annotations/._1.xml", "no XML");
    write_text("Annotations/4.XML",
               "<annotation><object><name>\xc3\xa9</name></object></annotation>");
    tp_coco *X = tp_coco_voc(folder, TP_TRAIN);
    cr_assert(tp_coco_ok(X), "%s", tp_coco_why(X));
    cr_assert(tp_coco_categories(X) == 3 && tp_coco_objects(X) == 1);
    cr_expect_str_eq(tp_coco_category_name(X, 1), "salt & pepper <x>&amp;");
    cr_expect_str_eq(tp_coco_category_name(X, 2), "\xc3\xa9");
    const tp_coco_object *o = tp_coco_object_at(X, 0);
    cr_expect(o->category == 1 && o->box[0] == 1.5 && o->box[2] == 28.5 && o->box[3] == -1.0);
    cr_expect(tp_coco_image_at(X, 0)->width == 8);
    tp_coco_close(X);
}
