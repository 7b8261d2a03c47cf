/* protocol.h - `imagenet eval --protocol`: test sets for ImageNet's classes in their published layouts, each
 * scored by its own rule (tapegrad/test_sets.h). */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include "image_file.h"
#include "names/class_names.h"
#include "predictions.h"

/* Values of --protocol, in the order of its choices. */
typedef enum protocol {
    PROTOCOL_NONE,
    PROTOCOL_REAL, /* ImageNet's validation images with ReaL's labels */
    PROTOCOL_V2,
    PROTOCOL_A,
    PROTOCOL_R,
    PROTOCOL_IN9, /* backgrounds  */
    PROTOCOL_C    /* corruptions  */
} protocol;

typedef struct protocol_opts {
    protocol which;
    const char *command, *data, *labels; /* labels: ReaL's file; NULL: real.json in data */
    double crop_ratio;                   /* 0: as the protocol says                      */
    int64_t batch;
    int workers;
    bool strict;
    output_format format;
} protocol_opts;

/* The images of a folder and how many of them were predicted right. */
typedef struct protocol_part {
    const char *name;        /* of a variation of ImageNet-9                                   */
    int64_t images, skipped; /* images: that were scored                                       */
    int64_t unlabelled;      /* real: images without a label, which do not count               */
    int64_t top1, top5;      /* top5: only real, v2 and c                                      */
    int64_t plain, of_plain; /* real: right by the single label, and how many images have one  */
} protocol_part;

/* Corruptions of ImageNet-C: the fifteen of the mCE and four more. */
enum { PROTOCOL_CORRUPTIONS = 19, PROTOCOL_SEVERITIES = 5, PROTOCOL_VARIATIONS = 8 };
enum { PROTOCOL_PARTS = PROTOCOL_CORRUPTIONS * PROTOCOL_SEVERITIES };
const char *protocol_corruption(int i);
const char *protocol_variation(int i);

/* What was measured. c: part[5 * corruption + severity - 1], without images where a folder is missing. */
typedef struct protocol_result {
    protocol which;
    int parts;
    protocol_part part[PROTOCOL_PARTS];
    int64_t classes; /* a, r: among how many classes the likeliest is taken  */
    bool imagenet;   /* c: the model has ImageNet's classes, so that CE and mCE are defined */
    double seconds;
} protocol_result;

/* Prints it as text or as a line of JSON. False without memory. */
bool protocol_print(FILE *out, output_format format, const protocol_result *r);

/* Measures the model and prints the result. False with the reason in f->t.why. */
bool protocol_run(const protocol_opts *o, image_file *f, const class_names *names);

#endif
