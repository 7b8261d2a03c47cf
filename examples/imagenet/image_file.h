/* image_file.h - a trained classifier out of a checkpoint, ready to run. */
#ifndef IMAGE_FILE_H
#define IMAGE_FILE_H

#include <tapegrad/train.h>

#include "classifier.h"
#include "image_settings.h"

typedef struct image_file {
    tp_trained t;
    classifier_cfg cfg;
    char *names; /* of the classes, one a line; NULL: none */
    double crop_ratio;
    classifier *m;
} image_file;

/* Loads the checkpoint, for images of another size if `size` is not 0. False with the reason in
 * t.why; close in either case. */
bool image_file_open(image_file *f, const image_common *c, int64_t size);
/* The model as it is initialised, by c->seed. */
bool image_file_fresh(image_file *f, const classifier_cfg *cfg, const image_common *c);
void image_file_close(image_file *f);

/* A flag of the commands that run a trained model; a member of the settings type S. */
/* clang-format off */
#define OPTION_TRAINED_SIZE(S) \
    TP_INT("size", S, size, 0, 4096, 0, \
           "Images are size x size pixels; 0: as in training. Tables of the model are resized.")
/* clang-format on */

#endif
