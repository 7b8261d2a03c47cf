/* image_file.h - a trained classifier, ready to run. */
#ifndef IMAGE_FILE_H
#define IMAGE_FILE_H

#include <tapegrad/train.h>

#include "classifier.h"
#include "image_settings.h"
#include "names/class_names.h"

typedef struct image_file {
    tp_trained t;
    classifier_cfg cfg;
    char *names;       /* class names, one per line; NULL: none */
    double crop_ratio; /* in evaluation */
    bool squeeze;      /* images are resized to the model's size, not cropped */
    tp_filter filter;
    int64_t max_pixels; /* read no larger images; 0: 100 million */
    int64_t update;     /* of the run when written; -1: not a run's checkpoint */
    classifier *m;
} image_file;

/* Describes the model of a file that does not: the preset's, with as many classes as F's head.
 * *eval, unless NULL, receives the preset's evaluation pipeline. False with the reason in why. */
bool image_file_describe(const char *preset, tp_file *F, classifier_cfg *c, tp_augment *eval,
                         char *why, size_t size);
/* Loads the checkpoint or published weights that c names; size, unless 0, is a new image size.
 * False with the reason in t.why; close in either case. */
bool image_file_open(image_file *f, const image_common *c, int64_t size);
/* Opens the model and its class names: those of the file at `path`, or else the model's own. False
 * with the reason in t.why; close and free in either case. */
bool image_file_named(image_file *f, const image_common *c, int64_t size, const char *path,
                      class_names *names);
/* The model with initial weights drawn from c->seed. */
bool image_file_fresh(image_file *f, const classifier_cfg *cfg, const image_common *c);
void image_file_close(image_file *f);

/* The evaluation pipeline of training, with another crop_ratio unless it is 0, or squeezing. */
tp_augment image_file_pipeline(const image_file *f, double crop_ratio);

/* Flags of commands that run a trained model, for settings type S. */
#define OPTION_WEIGHTS(S)                                                                          \
    TP_STRING("weights", S, c.weights, "FILE", 0,                                                  \
              "Published weights in place of a checkpoint: safetensors, PyTorch's .pth, .pt or "   \
              ".bin, or the index of several files. --preset names their model.")
#define OPTION_PRESET(S)                                                                           \
    TP_STRING_OF("preset", S, c.preset, "NAME", image_preset_known, 0,                             \
                 "The model of --weights; 'imagenet train --help' lists them.")
#define OPTION_TRAINED_SIZE(S)                                                                     \
    TP_INT(                                                                                        \
        "size", S, size, 0, 4096, 0,                                                               \
        "Size of the images, in pixels a side; 0: as in training. Position tables are resized.")

#endif
