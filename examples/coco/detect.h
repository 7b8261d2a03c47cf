/* detect.h - runs a detector over images, collects its detections and evaluates them. */
#ifndef DETECT_H
#define DETECT_H

#include <tapegrad/coco_eval.h>
#include <tapegrad/detection/detector.h>
#include <tapegrad/detection/loader.h>
#include <tapegrad/detection/masks.h>
#include <tapegrad/train.h>

typedef struct detect_opts {
    int64_t batch, size, longest; /* images; shorter, longer side */
    int64_t limit;                /* at most; 0: all */
    tp_detection_profile profile; /* how images are resized */
    int threads;
    bool (*go_on)(void *env, int64_t images); /* called after each batch; false stops; may be
                                               * NULL */
    /* Reports an image that cannot be read and is left out; NULL: it is an error. */
    void (*bad)(void *env, const char *name, const char *why);
    void *env, *bad_env;
    /* [images], or NULL. In: images to leave out without reading. Out: also those that cannot be
     * read. */
    bool *left_out;
    tp_share share; /* the part of the images that this process looks at; zero: all */
} detect_opts;

/* Adds the detections in all images of a source to R, with masks if the detector has them. E must
 * not record. Returns the number of images; -1 with the reason in why. */
int64_t detect_all(tp_tape *E, const tp_detector *m, const tp_object_source *source,
                   const detect_opts *o, tp_detections *R, char *why, size_t size);

/* Gives every process of a run the detections of all, image by image, as one process would have
 * found them, and marks in left_out [images] what any has left out. All processes call it. NULL:
 * the run has failed. */
tp_detections *detect_gather(tp_run *run, const tp_detections *own, bool *left_out);

/* The number of images that are not left out. */
int64_t detect_counted(const tp_coco *X, const bool *left_out);

/* A go_on that draws a tp_ticker and stops at a signal. */
bool detect_tick(void *ticker, int64_t images);

/* Maps the detections of one image from the network's size `to` to the original's and adds them to
 * R as those of `image`. False: out of memory. */
bool detect_add(tp_detections *R, const tp_detected *d, int64_t image, const int64_t to[2],
                const int64_t original[2]);

/* Evaluates boxes and masks; a figure not asked for is NULL. left_out [images], or NULL: images
 * that do not count. box_areas: a mask has the size of its box. Free f in either case. False with
 * the reason in why. */
typedef struct detect_figures {
    tp_coco_eval *box, *mask;
} detect_figures;
bool detect_evaluate(const tp_detections *R, const bool *left_out, bool boxes, bool masks,
                     bool box_areas, detect_figures *f, char *why, size_t size);
void detect_figures_free(detect_figures *f);

#endif
