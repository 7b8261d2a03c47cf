/* parity_audit.h - the tables of metadata changes that rightly make no difference. */
#ifndef PARITY_AUDIT_H
#define PARITY_AUDIT_H

#include "parity_case.h"

typedef struct par_exception {
    const char *kind; /* '*' matches any characters; NULL ends the table */
    const char *key;
    const char *reason;
    /* True if the other value leaves the case unchanged. NULL: every value does. */
    bool (*same)(parity *p, const char *from, const char *to);
} par_exception;
extern const par_exception par_exceptions[], par_lm_exceptions[], par_vil_exceptions[],
    par_cvt_exceptions[], par_lsla_exceptions[], par_lra_exceptions[], par_roberta_exceptions[],
    par_image_exceptions[], par_window_exceptions[], par_detection_exceptions[],
    par_rcnn_exceptions[], par_retinanet_exceptions[], par_pyramid_exceptions[];

#endif
