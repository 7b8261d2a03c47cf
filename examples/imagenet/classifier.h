/* classifier.h - the program's model: any image model of the model table (tapegrad/model.h), on
 * square images. */
#ifndef CLASSIFIER_H
#define CLASSIFIER_H

#include <tapegrad/vision.h>

typedef struct classifier_cfg {
    tp_model_cfg of;
    int64_t size, classes; /* from `of`; images are size x size */
} classifier_cfg;

typedef struct classifier {
    classifier_cfg cfg;
    tp_net *net;
} classifier;

const char *classifier_family(const classifier_cfg *c); /* "convnet", "cvt", ... */

/* The model's own configuration and module; NULL for another model. */
const void *classifier_cfg_as(const classifier_cfg *c, const tp_model *model);
const void *classifier_as(const classifier *m, const tp_model *model);

/* Sets the image size and the number of classes. */
void classifier_fit(classifier_cfg *c, int64_t size, int64_t classes);
void classifier_train_as(classifier_cfg *c, double dropout, double drop_path,
                         tp_recompute recompute);
bool classifier_check(const classifier_cfg *c, char *why, size_t size);

/* The configuration as checkpoint metadata. read: false with the reason in why. */
void classifier_write(const classifier_cfg *c, tp_writer *W);
bool classifier_read(classifier_cfg *c, tp_file *F, char *why, size_t size);

/* init fills *m, which must be empty. free also frees m itself, which may be NULL. */
void classifier_init(tp_params *P, classifier *m, const classifier_cfg *c);
void classifier_free(classifier *m);

/* n images x [n,size,size,3] in the dtype of computation: f32, or f64 with --dtype f64. */
tp_tensor classifier_input(tp_tape *T, const classifier *m, const float *x, int64_t n);
tp_tensor classifier_forward(tp_tape *T, const classifier *m, tp_tensor images); /* [B,classes] */

/* Multiply-adds of the forward pass, per image. */
double classifier_macs(const classifier_cfg *c);

/* ViL: in training, windows see their chunk and one random neighbour. */
void classifier_random_shift(classifier *m, bool on);

/* Performer: draws random features number `draw`; no effect on other models. False: see
 * tp_params_why. */
bool classifier_redraw(tp_params *P, const classifier *m, uint64_t seed, uint64_t draw);

/* Do both have the same weights, apart from image size and classes? */
bool classifier_same(const classifier_cfg *a, const classifier_cfg *b);

/* Prepares a published file of this model (tp_model_adopt) and takes its number of classes. False:
 * F has failed. */
bool classifier_adopt(classifier_cfg *c, tp_file *F);

/* Loads the weights of a checkpoint of the same model; false: see tp_params_why. */
TP_CHECKED bool classifier_weights(tp_params *P, const classifier *m, tp_file *F);

/* Describes what loading weights for another image size changes; NULL: nothing. */
const char *classifier_resizing(const classifier_cfg *c);
/* Are all weights resized? Otherwise some are reinitialised and need training. */
bool classifier_resizes_all(const classifier_cfg *c);
/* Loads and resizes the weights of a checkpoint that differs only in image size. */
TP_CHECKED bool classifier_load_resized(tp_params *P, const classifier *m, tp_file *F);

#endif
