/* image_file.h - a trained classifier from a checkpoint, ready to run. */
#ifndef IMAGE_FILE_H
#define IMAGE_FILE_H

#include <tapegrad/train.h>

#include "classifier.h"
#include "image_settings.h"

typedef struct image_file {
    tp_trained t;
    classifier_cfg cfg;
    char *names; /* names of the classes, one per line; NULL: none */
    double crop_ratio;
    classifier *m;
} image_file;

/* Loads the checkpoint; if `size` is not 0, for images of that size. False with the reason in t.why;
 * close in either case. */
bool image_file_open(image_file *f, const image_common *c, int64_t size);
/* The model with its initial weights, drawn with c->seed. */
bool image_file_fresh(image_file *f, const classifier_cfg *cfg, const image_common *c);
void image_file_close(image_file *f);

/* A flag of the commands that run a trained model; a member of the settings type S. */
/* clang-format off */
#define OPTION_TRAINED_SIZE(S) \
    TP_INT("size", S, size, 0, 4096, 0, \
           "Size of the images, in pixels a side; 0: as in training. Position tables are resized.")
/* clang-format on */

#endif
