/* coco_found.h - the detections for a report, from a trained detector or from a file. */
#ifndef COCO_FOUND_H
#define COCO_FOUND_H

#include "coco_file.h"
#include "detect.h"

/* Base of the settings of every such command; its table includes these rows. */
typedef struct found_settings {
    tp_trained_settings t;
    coco_data d; /* only its paths */
    char *results;
    int part;
    int64_t batch, limit, size, longest, workers;
    bool strict;
} found_settings;
extern const tp_option coco_found_options[];

found_settings coco_found_defaults(void);
/* False with the reason in why if flags contradict each other. */
bool coco_found_check(const found_settings *s, char *why, size_t size);

typedef struct coco_found {
    const coco_set *X;
    const tp_detections *R;
    const bool *left_out;         /* [images] that could not be read and do not count; NULL: none */
    const char *name;             /* model and number of images, for titles */
    bool masks;                   /* with masks? */
    const tp_detector_kind *kind; /* the detector's kind; NULL: read from a file */
} coco_found;
typedef bool (*coco_report)(void *env, const coco_found *found, char *why, size_t size);

/* Does the report evaluate masks? If so, objects without masks are refused before the model runs;
 * MASKS_NEEDED also refuses models without masks. */
typedef enum coco_masks { MASKS_UNUSED, MASKS_IF_FOUND, MASKS_NEEDED } coco_masks;

/* Reports, one sentence at a time, what the figures cover and exclude. */
void coco_found_remarks(const coco_found *f, void (*say)(void *env, const char *text), void *env);

/* Opens the images, obtains the detections and passes them to report. False with the reason in
 * why. */
bool coco_found_run(found_settings *s, coco_masks masks, coco_report report, void *env, char *why,
                    size_t size);

/* Call after the last output. False with the reason in why if writing failed. */
bool coco_flush(char *why, size_t size);

#endif
