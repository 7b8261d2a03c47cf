/* errors.h - what is wrong with detections: kinds of errors, as a detection and its objects decide them. */
#ifndef ERRORS_H
#define ERRORS_H

#include <tapegrad/coco.h>

/* The kind of a detection follows from its largest intersection over union (IoU) with an object of its category, v, and
 * of another category, w: right if v is at least 0.5 and the object is not taken by a better detection, duplicate if it
 * is; else class if w is at least 0.5, place if v is at least 0.1, else class and place if w is, else background.
 * Objects that no right detection takes are missed. Crowds, and detections that lie in one, do not count. */
typedef enum error_kind {
    ERROR_NONE,
    ERROR_DUPLICATE,
    ERROR_CLASS,
    ERROR_PLACE,
    ERROR_BOTH,
    ERROR_BACKGROUND,
    ERROR_KINDS
} error_kind;
const char *error_name(error_kind k);

typedef struct errors {
    int64_t count[ERROR_KINDS], missed, objects;
} errors;

/* Counts the errors of all detections with at least this score. left_out [images], or NULL: images that do not count.
 * False: out of memory. */
bool errors_count(const tp_detections *R, const bool *left_out, double score, errors *e);

#endif
