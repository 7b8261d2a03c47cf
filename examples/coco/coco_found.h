/* coco_found.h - detections that a command reports on: those of a trained detector, or those in a file. */
#ifndef COCO_FOUND_H
#define COCO_FOUND_H

#include "coco_file.h"
#include "detect.h"

/* The settings of such a command begin with these; its table has their rows. */
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
/* False with the reason in why if the flags contradict each other. */
bool coco_found_check(const found_settings *s, char *why, size_t size);

typedef struct coco_found {
    const coco_set *X;
    const tp_detections *R;
    const bool *left_out; /* [images]: could not be read, so they do not count; NULL: none */
    const char *name;     /* whose they are and of how many images, for titles */
    bool masks;           /* do they have masks? */
    const tp_detector_kind *kind; /* of the detector that found them; NULL: they are from a file */
} coco_found;
typedef bool (*coco_report)(void *env, const coco_found *found, char *why, size_t size);

/* Does the report evaluate masks? If it does, objects without masks, and with MASKS_NEEDED models without masks, are
 * refused before the model runs. */
typedef enum coco_masks { MASKS_UNUSED, MASKS_IF_FOUND, MASKS_NEEDED } coco_masks;

/* Says what the figures are of and what they do not count, a sentence at a time. */
void coco_found_remarks(const coco_found *f, void (*say)(void *env, const char *text), void *env);

/* Opens the images, finds the detections and passes them to report. False with the reason in why. */
bool coco_found_run(found_settings *s, coco_masks masks, coco_report report, void *env, char *why,
                    size_t size);

/* After the last output: false with the reason in why if it could not be written. */
bool coco_flush(char *why, size_t size);

#endif
