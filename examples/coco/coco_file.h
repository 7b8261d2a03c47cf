/* coco_file.h - opens a trained detector and the settings of its images. */
#ifndef COCO_FILE_H
#define COCO_FILE_H

#include <tapegrad/detection/detector.h>
#include <tapegrad/train.h>

#include "coco_data.h"

/* What a checkpoint stores besides weights, preset and categories. */
typedef struct coco_shape {
    int profile;
    int64_t size, longest; /* of evaluation images */
    bool drawn;
    coco_data scenes; /* only its numbers, which define drawn scenes */
} coco_shape;
bool coco_shape_write(const coco_shape *c, const char *preset, const char *set, const tp_coco *X,
                      tp_writer *W);

typedef struct coco_file {
    tp_trained t;
    coco_shape shape;
    char preset[80];
    char *categories; /* JSON, for coco_categories_same */
    tp_coco *names;   /* the same, parsed, without images */
    tp_detector_cfg cfg;
    tp_detector m;
} coco_file;

/* open reads the metadata; load reads the weights and fuses frozen norms (tp_detector_fuse). f must
 * be zeroed; close it in either case. False with the reason in f->t.why. */
bool coco_file_open(coco_file *f, const tp_trained_settings *o);
bool coco_file_load(coco_file *f, const tp_machine_settings *o);
void coco_file_close(coco_file *f);

/* Opens d's files or, if it names none, the scenes that the run drew. Compares the categories. */
bool coco_file_data(coco_file *f, coco_data *d, tp_part part, coco_set *X);

#endif
