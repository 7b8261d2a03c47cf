/* image_file.h - a trained classifier from a checkpoint, ready to run. */
#ifndef IMAGE_FILE_H
#define IMAGE_FILE_H

#include <tapegrad/train.h>

#include "classifier.h"
#include "image_settings.h"
#include "names/class_names.h"

typedef struct image_file {
    tp_trained t;
    classifier_cfg cfg;
    char *names;       /* names of the classes, one per line; NULL: none */
    double crop_ratio; /* of evaluation */
    tp_filter filter;
    int64_t max_pixels; /* of an image that is read; 0: 100 million */
    int64_t update;     /* of the run when it was written; -1: not a run's checkpoint */
    classifier *m;
} image_file;

/* The model of a file that does not describe it: that of the preset, with as many classes as the head in
 * F has. *eval, unless NULL, is the pipeline of the preset's evaluation. False with the reason in why. */
bool image_file_describe(const char *preset, tp_file *F, classifier_cfg *c, tp_augment *eval,
                         char *why, size_t size);
/* Loads the checkpoint or published weights that c names; if `size` is not 0, for images of that size.
 * False with the reason in t.why; close in either case. */
bool image_file_open(image_file *f, const image_common *c, int64_t size);
/* Opens the model and the names of its classes: those of the file at `path`, or else those that the model has.
 * False with the reason in t.why; close and free in either case. */
bool image_file_named(image_file *f, const image_common *c, int64_t size, const char *path,
                      class_names *names);
/* The model with its initial weights, drawn with c->seed. */
bool image_file_fresh(image_file *f, const classifier_cfg *cfg, const image_common *c);
void image_file_close(image_file *f);

/* The pipeline of evaluation that the model was trained for, with another crop_ratio unless that is 0. */
tp_augment image_file_pipeline(const image_file *f, double crop_ratio);

/* Flags of the commands that run a trained model; members of the settings type S. */
/* clang-format off */
#define OPTION_WEIGHTS(S) \
    TP_STRING("weights", S, c.weights, "FILE", 0, \
              "Published weights in place of a checkpoint: safetensors, PyTorch's .pth, .pt or " \
              ".bin, or the index of several files. --preset names their model.")
#define OPTION_PRESET(S) \
    TP_STRING_OF("preset", S, c.preset, "NAME", image_preset_known, 0, \
              "The model of --weights; 'imagenet train --help' lists them.")
#define OPTION_TRAINED_SIZE(S) \
    TP_INT("size", S, size, 0, 4096, 0, \
           "Size of the images, in pixels a side; 0: as in training. Position tables are resized.")
/* clang-format on */

#endif
