/* detect.c - runs a detector over images in batches and evaluates its detections. */
#include "detect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one image ---- */

/* Pastes the mask into its box in the original image; empty if the box has no pixels. */
static bool paste(const tp_detected *d, int64_t i, tp_corners box, const int64_t original[2],
                  tp_rle *r)
{
    return tp_paste_rle(d->mask + i * d->side * d->side, d->side, box, 0.5, original[0],
                        original[1], r);
}

bool detect_add(tp_detections *R, const tp_detected *d, int64_t image, const int64_t to[2],
                const int64_t original[2])
{
    bool done = true;
    for (int64_t i = 0; i < d->n && done; i++) {
        tp_found found = d->found[i];
        tp_detection one = { .image = image,
                             .category = (int)found.category,
                             .score = found.score };
        /* singly: masks stay aligned */
        if (tp_found_to_original(&found, 1, to, original) == 0) continue;
        tp_corners_xywh(found.box, one.box);
        done = !d->mask || paste(d, i, found.box, original, &one.mask);
        if (done) tp_detections_add(R, &one);
        tp_rle_free(&one.mask);
    }
    return done;
}

/* ---- all images ---- */

static bool add_batch(const tp_object_batch *b, tp_detected *found, tp_detections *R)
{
    bool done = true;
    for (int64_t i = 0; i < b->n; i++) {
        done = done && detect_add(R, &found[i], b->image[i], b->size[i], b->original[i]);
        tp_detected_free(&found[i]);
    }
    return done;
}

static bool detect_batch(tp_tape *E, const tp_detector *m, const tp_object_batch *b,
                         tp_detections *R, char *why, size_t size)
{
    tp_detected *found = calloc((size_t)b->n, sizeof *found);
    tp_reset(E);
    const tp_tensor x = tp_from(E, TP_F32, TP_SHAPE(b->n, b->height, b->width, 3), b->x);
    const tp_detection_in in = { .images = tp_cast(E, x, tp_compute_dtype(E)), .size = b->size };
    bool done = found && tp_detector_detect(E, m, &in, found);
    if (!done) snprintf(why, size, "%s", found ? tp_why(E) : "out of memory");
    if (done && !add_batch(b, found, R)) {
        snprintf(why, size, "out of memory for masks");
        done = false;
    }
    if (done && !tp_detections_ok(R)) {
        snprintf(why, size, "%s", tp_detections_why(R));
        done = false;
    }
    free(found);
    return done;
}

int64_t detect_all(tp_tape *E, const tp_detector *m, const tp_object_source *source,
                   const detect_opts *o, tp_detections *R, char *why, size_t size)
{
    const tp_object_loader_opts loading = { .batch = o->batch,
                                            .size = { o->size },
                                            .most = o->longest,
                                            .profile = o->profile,
                                            .threads = o->threads,
                                            .bad = o->bad,
                                            .env = o->bad_env,
                                            .missing = o->left_out,
                                            .share = o->share };
    tp_loader *L = tp_object_loader_new(source, &loading);
    tp_object_batch b;
    int64_t images = 0;
    bool done = true;
    while (done && (o->limit == 0 || images < o->limit) && tp_object_loader_next(L, &b)) {
        if (o->limit > 0 && b.n > o->limit - images) b.n = o->limit - images;
        done = detect_batch(E, m, &b, R, why, size);
        images += b.n;
        if (done && o->go_on && !o->go_on(o->env, images)) break;
    }
    if (done && !tp_loader_ok(L)) {
        snprintf(why, size, "%s", tp_loader_why(L));
        done = false;
    }
    for (int64_t i = 0; done && o->left_out && i < tp_coco_images(source->coco); i++)
        o->left_out[i] = tp_object_loader_unread(L, i);
    tp_loader_free(L);
    return done ? images : -1;
}

/* ---- several processes ---- */

/* A detection as it travels, followed by the runs of its mask. */
typedef struct parcel {
    tp_detection d;
    size_t offset; /* in the bytes of all, when it has arrived */
} parcel;

static size_t bytes_of(const tp_detection *d)
{
    return sizeof(parcel) + (size_t)d->mask.runs * sizeof *d->mask.run;
}

/* Packs all detections; free the result. NULL: out of memory. */
static char *pack(const tp_detections *R, size_t *bytes)
{
    *bytes = 0;
    for (int64_t i = 0; i < tp_detections_count(R); i++) *bytes += bytes_of(tp_detections_at(R, i));
    char *all = malloc(*bytes + 1), *to = all;
    for (int64_t i = 0; all && i < tp_detections_count(R); i++) {
        const parcel p = { .d = *tp_detections_at(R, i) };
        memcpy(to, &p, sizeof p);
        if (p.d.mask.runs > 0) memcpy(to + sizeof p, p.d.mask.run, bytes_of(&p.d) - sizeof p);
        to += bytes_of(&p.d);
    }
    return all;
}

static int by_image(const void *a, const void *b)
{
    const parcel *x = a, *y = b;
    if (x->d.image != y->d.image) return x->d.image < y->d.image ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Adds packed detections to R, image by image. False: out of memory. */
static bool unpack(char *all, size_t bytes, tp_detections *R)
{
    int64_t n = 0;
    parcel *p = malloc(bytes + sizeof *p); /* enough: each has at least its own size */
    for (size_t at = 0; p && at < bytes; at += bytes_of(&p[n++].d)) {
        memcpy(&p[n], all + at, sizeof *p);
        p[n].offset = at;
    }
    if (p) qsort(p, (size_t)n, sizeof *p, by_image);
    for (int64_t i = 0; p && i < n; i++) {
        p[i].d.mask.run = (void *)(all + p[i].offset + sizeof *p);
        tp_detections_add(R, &p[i].d);
    }
    free(p);
    return p != NULL;
}

/* Marks the images that any process has left out. */
static bool join_left_out(tp_run *run, bool *left_out, size_t images)
{
    void *all;
    size_t bytes;
    if (!tp_run_collect(run, left_out, images, &all, &bytes)) return false;
    for (size_t i = 0; i < bytes; i++) left_out[i % images] |= ((bool *)all)[i];
    free(all);
    return true;
}

tp_detections *detect_gather(tp_run *run, const tp_detections *own, bool *left_out)
{
    const tp_coco *X = tp_detections_coco(own);
    size_t bytes = 0;
    void *all = NULL;
    char *mine = pack(own, &bytes);
    if (!mine) tp_run_fail(run, "out of memory for detections");
    const bool done = join_left_out(run, left_out, (size_t)tp_coco_images(X)) &&
                      tp_run_collect(run, mine, bytes, &all, &bytes);
    free(mine);
    if (!done) return NULL;
    tp_detections *R = tp_detections_new(X);
    if (!unpack(all, bytes, R)) tp_run_fail(run, "out of memory for detections");
    free(all);
    return R;
}

int64_t detect_counted(const tp_coco *X, const bool *left_out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < tp_coco_images(X); i++) n += !left_out || !left_out[i];
    return n;
}

bool detect_tick(void *ticker, int64_t images)
{
    tp_ticker *t = ticker;
    if (tp_ticker_due(t))
        tp_ticker_draw(t, images, "%.1f images/s", (double)images / (tp_seconds() - t->began));
    return !tp_stop_signal();
}

/* ---- figures ---- */

static bool evaluate(const tp_detections *R, tp_coco_eval_opts o, tp_coco_eval **E, char *why,
                     size_t size)
{
    *E = tp_coco_eval_new(R, &o);
    if (tp_coco_eval_ok(*E)) return true;
    snprintf(why, size, "%s", tp_coco_eval_why(*E));
    return false;
}

bool detect_evaluate(const tp_detections *R, const bool *left_out, bool boxes, bool masks,
                     bool box_areas, detect_figures *f, char *why, size_t size)
{
    const tp_coco_eval_opts box = { .kind = TP_COCO_BOXES, .left_out = left_out }, mask = {
        .kind = TP_COCO_MASKS, .box_areas = box_areas, .left_out = left_out
    };
    *f = (detect_figures){ 0 };
    return (!boxes || evaluate(R, box, &f->box, why, size)) &&
           (!masks || evaluate(R, mask, &f->mask, why, size));
}

void detect_figures_free(detect_figures *f)
{
    tp_coco_eval_free(f->box);
    tp_coco_eval_free(f->mask);
    *f = (detect_figures){ 0 };
}
