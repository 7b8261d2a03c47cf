/* image_file.h - a trained classifier out of a checkpoint, ready to run. */
#ifndef IMAGE_FILE_H
#define IMAGE_FILE_H

#include <tapegrad/train.h>

#include "classifier.h"
#include "image_settings.h"

typedef struct image_file {
    char path[4200];
    classifier_cfg cfg;
    char *names; /* of the classes, one a line; NULL: none */
    double crop_ratio;
    tp_device *D;
    tp_params *P;
    tp_tape *T; /* not recording */
    classifier *m;
    char why[4096];
} image_file;

/* Loads the checkpoint (the file; else best or last.safetensors of the run's folder), for pictures
 * of another size if `size` is not 0. False with the reason in why; close in either case. */
bool image_file_open(image_file *f, const char *checkpoint, const image_common *c, int64_t size);
/* The model as it is initialised, by c->seed. */
bool image_file_fresh(image_file *f, const classifier_cfg *cfg, const image_common *c);
bool image_file_fail(image_file *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void image_file_close(image_file *f);

/* Flags of the subcommands that run a trained model; members of the settings type S. */
/* clang-format off */
#define OPTIONS_TRAINED(S) \
    TP_STRING("checkpoint", S, checkpoint, "FILE", 0, \
              "The weights. Without it best.safetensors of --run-dir, or last.safetensors if there " \
              "is none."), \
    TP_STRING("run-dir", S, c.run_dir, "DIR", 0, "The folder of a run.")
#define OPTION_TRAINED_SIZE(S) \
    TP_INT("size", S, size, 0, 4096, 0, \
           "Images are size x size pixels; 0: as in training. Tables of the model are resized.")
/* clang-format on */

#endif
