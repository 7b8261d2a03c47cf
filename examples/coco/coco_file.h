/* coco_file.h - opens a trained detector with what its checkpoint tells about its images. */
#ifndef COCO_FILE_H
#define COCO_FILE_H

#include <tapegrad/detection/detector.h>
#include <tapegrad/train.h>

#include "coco_data.h"

/* What a checkpoint says besides weights, preset and categories. */
typedef struct coco_shape {
    int profile;
    int64_t size, longest; /* of images for evaluation */
    bool drawn;
    coco_data scenes; /* its numbers: the drawn scenes of the run */
} coco_shape;
bool coco_shape_write(const coco_shape *c, const char *preset, const char *set, const tp_coco *X,
                      tp_writer *W);

typedef struct coco_file {
    tp_trained t;
    coco_shape shape;
    char preset[80];
    char *categories; /* JSON; coco_categories_same */
    tp_coco *names;   /* the categories without images */
    tp_detector_cfg cfg;
    tp_detector m;
} coco_file;

/* Reads the checkpoint's metadata, then its weights, whose frozen norms are fused (tp_detector_fuse). f is zeroed; close
 * it in either case. False with the reason in f->t.why. */
bool coco_file_open(coco_file *f, const tp_trained_settings *o);
bool coco_file_load(coco_file *f, const tp_machine_settings *o);
void coco_file_close(coco_file *f);

/* Opens a part of the data: d's files, or, if it names none, the scenes that the run drew. Compares the categories. */
bool coco_file_data(coco_file *f, coco_data *d, tp_part part, coco_set *X);

#endif
