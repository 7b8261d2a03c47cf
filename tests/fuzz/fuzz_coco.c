/* fuzz_coco.c - the input is one byte that names a kind of file, and the file: annotations,
 * results, an annotation of Pascal VOC, a compressed mask, a polygon.
 *
 * Besides memory safety the following must hold: images share all objects, whose categories exist;
 * masks have the size of their image and survive being written; figures lie between 0 and 1, or are
 * -1. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/coco_eval.h>
#include <unistd.h>

enum { MASKS = 8 };

/* ---- masks ---- */

static void check_mask(const tp_rle *r)
{
    char why[200];
    double box[4];
    tp_rle again, both;
    int64_t pixels = 0;
    for (int64_t i = 0; i < r->runs; i++) pixels += r->run[i];
    fuzz_demand(pixels == r->height * r->width, "the runs fill the mask");
    const size_t n = tp_rle_string(r, NULL, 0);
    char *text = malloc(n + 1);
    fuzz_demand(text != NULL && tp_rle_string(r, text, n + 1) == n && strlen(text) == n,
                "a mask has a text");
    fuzz_demand(tp_rle_from_string(&again, text, n, r->height, r->width, why, sizeof why),
                "which is read");
    fuzz_demand(again.runs == r->runs &&
                    memcmp(again.run, r->run, (size_t)r->runs * sizeof *r->run) == 0,
                "as it was");
    fuzz_demand(tp_rle_merge(&both, (tp_rle[]){ *r, again }, 2, true), "masks intersect");
    fuzz_demand(tp_rle_area(&both) == tp_rle_area(r), "a mask and itself");
    tp_rle_box(r, box);
    fuzz_demand(box[0] + box[2] <= (double)r->width && box[1] + box[3] <= (double)r->height,
                "boxes lie inside");
    fuzz_demand((double)tp_rle_area(r) <= box[2] * box[3], "pixels lie in the box");
    tp_rle_free(&again);
    tp_rle_free(&both);
    free(text);
}

static void compressed_mask(const uint8_t *input, size_t n)
{
    char why[200] = "";
    tp_rle r;
    if (n < 2) return;
    const bool ok =
        tp_rle_from_string(&r, (const char *)input + 2, n - 2, input[0], input[1], why, sizeof why);
    fuzz_demand_reason(ok, why);
    if (ok) check_mask(&r);
    tp_rle_free(&r);
}

/* Vertices in eighths of a pixel, or any doubles. */
static void polygon(const uint8_t *input, size_t n)
{
    double xy[128];
    int64_t points = 0;
    tp_rle r;
    if (n < 2) return;
    const size_t step = input[0] & 1 ? 16 : 2;
    for (size_t at = 2; at + step <= n && points < 64; at += step, points++) {
        if (step == 16)
            memcpy(&xy[2 * points], input + at, 16);
        else
            for (int k = 0; k < 2; k++)
                xy[2 * points + k] = ((double)input[at + (size_t)k] - 20.0) / 8.0;
    }
    if (tp_rle_from_polygon(&r, xy, points, 1 + input[0] / 8, 1 + input[1] / 8)) check_mask(&r);
    tp_rle_free(&r);
}

/* ---- annotations ---- */

static void check_objects(const tp_coco *X)
{
    char why[300];
    int64_t objects = 0, masks = 0;
    for (int64_t i = 0; i < tp_coco_images(X); i++) {
        const tp_coco_image *image = tp_coco_image_at(X, i);
        fuzz_demand(image->first == objects && tp_coco_find_image(X, image->id) == i,
                    "images are in order");
        objects += image->objects;
        for (int64_t k = image->first; k < objects; k++) {
            const tp_coco_object *o = tp_coco_object_at(X, k);
            tp_rle r;
            fuzz_demand(o->image == i && o->category >= 0 && o->category < tp_coco_categories(X),
                        "objects belong");
            if (o->form == TP_COCO_NO_MASK || masks++ >= MASKS ||
                !tp_coco_mask(X, o, &r, why, sizeof why))
                continue;
            fuzz_demand(!image->height || (r.height == image->height && r.width == image->width),
                        "masks fit");
            check_mask(&r);
            tp_rle_free(&r);
        }
    }
    fuzz_demand(objects == tp_coco_objects(X), "every object has an image");
}

static void check_figures(const tp_detections *R)
{
    for (int kind = 0; kind < 2; kind++) {
        tp_coco_eval *E = tp_coco_eval_new(R, &(tp_coco_eval_opts){ .kind = (tp_coco_kind)kind });
        fuzz_demand_reason(tp_coco_eval_ok(E), tp_coco_eval_why(E));
        for (int i = 0; i < TP_COCO_FIGURES; i++) {
            const double x = tp_coco_eval_figure(E, i);
            fuzz_demand(x == -1.0 || (x >= 0.0 && x <= 1.0), "figures are fractions");
        }
        tp_coco_eval_free(E);
    }
}

static void annotations(const uint8_t *input, size_t n)
{
    tp_coco *X = tp_coco_from((const char *)input, n, "input");
    fuzz_demand_reason(tp_coco_ok(X), tp_coco_why(X));
    check_objects(X);
    tp_coco_close(X);
}

static void results(const uint8_t *input, size_t n)
{
    static const char text[] =
        "{\"images\":[{\"id\":1,\"height\":6,\"width\":8},"
        "{\"id\":2}],\"categories\":[{\"id\":1},"
        "{\"id\":3}],\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":1,"
        "\"bbox\":[1,1,4,4],\"area\":16,\"segmentation\":[[1,1,5,1,5,5,1,5]]},"
        "{\"id\":2,\"image_id\":1,\"category_id\":3,\"bbox\":[0,0,8,6],\"area\":6,\"iscrowd\":1,"
        "\"segmentation\":{\"size\":[6,8],\"counts\":[6,6,36]}}]}";
    tp_coco *X = tp_coco_from(text, sizeof text - 1, "fixed");
    tp_detections *R = tp_detections_from(X, (const char *)input, n, "input");
    fuzz_demand_reason(tp_detections_ok(R), tp_detections_why(R));
    for (int64_t i = 0; i < tp_detections_count(R); i++) {
        const tp_detection *d = tp_detections_at(R, i);
        fuzz_demand(d->image >= 0 && d->image < 2 && d->category >= 0 && d->category < 2,
                    "detections belong");
        if (d->mask.runs) check_mask(&d->mask);
    }
    if (tp_detections_ok(R) && tp_detections_count(R) < 64) check_figures(R);
    tp_detections_close(R);
    tp_coco_close(X);
}

/* ---- Pascal VOC ---- */

static char folder[64] = "";

static const char *in_folder(const char *name)
{
    return fuzz_in(folder, name);
}

static void remove_folder(void)
{
    rmdir(in_folder("Annotations"));
    rmdir(folder);
}

static void make_folder(void)
{
    fuzz_make_folder(folder);
    fuzz_demand(mkdir(in_folder("Annotations"), 0700) == 0, "a folder can be made");
    atexit(remove_folder);
}

static void voc(const uint8_t *input, size_t n)
{
    if (!folder[0]) make_folder();
    fuzz_write(in_folder("Annotations/a.xml"), input, n);
    tp_coco *X = tp_coco_voc(folder, TP_TRAIN);
    fuzz_demand_reason(tp_coco_ok(X), tp_coco_why(X));
    check_objects(X);
    tp_coco_close(X);
    unlink(in_folder("Annotations/a.xml"));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static void (*const kinds[])(const uint8_t *, size_t) = { annotations, results, voc,
                                                              compressed_mask, polygon };
    if (size < 1) return 0;
    kinds[input[0] % 5](input + 1, size - 1);
    return 0;
}
