/* protocol.h - `imagenet eval --protocol`: published test sets for ImageNet's classes, each scored
 * by its own rule (tapegrad/test_sets.h). */
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
    PROTOCOL_IN9, /* backgrounds */
    PROTOCOL_C    /* corruptions */
} protocol;

typedef struct protocol_opts {
    protocol which;
    const char *command, *data, *labels; /* labels: ReaL's file; NULL: data/real.json */
    double crop_ratio;                   /* 0: the protocol's */
    int64_t batch;
    int workers;
    bool strict;
    output_format format;
} protocol_opts;

/* A folder's images and right predictions. */
typedef struct protocol_part {
    const char *name;        /* ImageNet-9's variation */
    int64_t images, skipped; /* images: scored ones */
    int64_t unlabelled;      /* real: images without a label, not counted */
    int64_t top1, top5;      /* top5: real, v2, c only */
    int64_t plain, of_plain; /* real: right by the single label; images with one */
} protocol_part;

/* ImageNet-C's corruptions: the fifteen of the mCE and four more. */
enum { PROTOCOL_CORRUPTIONS = 19, PROTOCOL_SEVERITIES = 5, PROTOCOL_VARIATIONS = 8 };
enum { PROTOCOL_PARTS = PROTOCOL_CORRUPTIONS * PROTOCOL_SEVERITIES };
const char *protocol_corruption(int i);
const char *protocol_variation(int i);

/* The results. c: part[5 * corruption + severity - 1], without images if a folder is missing. */
typedef struct protocol_result {
    protocol which;
    int parts;
    protocol_part part[PROTOCOL_PARTS];
    int64_t classes; /* a, r: number of competing classes */
    bool imagenet;   /* c: CE and mCE are defined, as the model has ImageNet's classes */
    double seconds;
} protocol_result;

/* Prints text or a line of JSON. False: out of memory. */
bool protocol_print(FILE *out, output_format format, const protocol_result *r);

/* Measures the model and prints the result. False with the reason in f->t.why. */
bool protocol_run(const protocol_opts *o, image_file *f, const class_names *names);

#endif
