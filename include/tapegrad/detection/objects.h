/* objects.h - what detectors take and give: images with their objects, losses, detections
 * (detection library). */
#ifndef TAPEGRAD_DETECTION_OBJECTS_H
#define TAPEGRAD_DETECTION_OBJECTS_H

#include <tapegrad/detection/assign.h>
#include <tapegrad/detection/proposals.h>
#include <tapegrad/rle.h>
#include <tapegrad/tapegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The objects of an image, in host memory, in pixels of the image that the network sees. */
typedef struct tp_objects {
    int64_t n;
    const tp_corners *box; /* [n] */
    const int *category;   /* [n], from 0 */
    /* Outlines; all NULL: the objects have no masks. Object i has the polygons part[i] ... part[i +
     * 1] - 1. Polygon k has the vertices point[k] ... point[k + 1] - 1, each two numbers of xy. */
    const int64_t *part;  /* [n + 1] */
    const int64_t *point; /* [part[n] + 1] */
    const double *xy;
    /* [n]: the mask of object i, of the size of the image without padding, if it has runs; it then
     * has no polygons. NULL: none has. */
    const tp_rle *mask;
} tp_objects;

/* One of several processes, each with a part of the batch. Losses are normalised by counts over the
 * whole batch: of matched anchors, of sampled regions. */
typedef struct tp_detection_share {
    int ranks; /* 0: the batch is whole */
    /* Replaces a count by the sum over the processes; all call it equally often. */
    void (*total)(void *env, double *count);
    void *env;
} tp_detection_share;

/* A batch of images. They are at the top left, padded on the right and at the bottom with zeros to
 * a common size. */
typedef struct tp_detection_in {
    tp_tensor images;          /* [B,H,W,3], normalised; H and W are multiples of 32 */
    const int64_t (*size)[2];  /* [B], height and width without padding */
    const tp_objects *objects; /* [B]; not read by inference */
    /* Training: the sampling of anchors and proposals, and its random numbers. */
    tp_sampling sampling;
    tp_random *random; /* TP_SAMPLE_RANDOM; otherwise it may be NULL */
    /* Training: losses are such that their mean over the processes is that of the whole batch. */
    tp_detection_share share;
} tp_detection_in;

enum { TP_DETECTION_LOSSES = 5 };

/* The terms of a loss, scalars on the tape, and their sum. */
typedef struct tp_detection_losses {
    int n;
    const char *name[TP_DETECTION_LOSSES]; /* tp_detector_kind.terms */
    tp_tensor term[TP_DETECTION_LOSSES];
    tp_tensor total;
} tp_detection_losses;

/* The detections in an image, by descending score, in pixels of the image that the network sees.
 * tp_detected_to_original and tp_paste_rle turn them into boxes and masks of the original image. */
typedef struct tp_detected {
    int64_t n, side;
    tp_found *found; /* [n] */
    float *mask;     /* [n,side,side], probabilities within the boxes; NULL: without masks */
} tp_detected;
TP_API void tp_detected_free(tp_detected *d);
/* tp_found_to_original for detections with their masks. Sizes are height, width. */
TP_API void tp_detected_to_original(tp_detected *d, const int64_t resized[2],
                                    const int64_t original[2]);

#ifdef __cplusplus
}
#endif
#endif
