/* classifier.h - the program's model: any image model of the table (tapegrad/model.h), for square
 * images. */
#ifndef CLASSIFIER_H
#define CLASSIFIER_H

#include <tapegrad/vision.h>

typedef struct classifier_cfg {
    tp_model_cfg of;
    int64_t size, classes; /* of `of`: images of size x size */
} classifier_cfg;

typedef struct classifier {
    classifier_cfg cfg;
    tp_net *net;
} classifier;

const char *classifier_family(const classifier_cfg *c); /* "convnet", "cvt", ... */

/* The model's own configuration, and its module, if it is that model; else NULL. */
const void *classifier_cfg_as(const classifier_cfg *c, const tp_model *model);
const void *classifier_as(const classifier *m, const tp_model *model);

/* Sets the size of images and the number of classes. */
void classifier_fit(classifier_cfg *c, int64_t size, int64_t classes);
void classifier_train_as(classifier_cfg *c, double drop_path, tp_recompute recompute);
bool classifier_check(const classifier_cfg *c, char *why, size_t size);

/* As metadata of a checkpoint and back; false with the reason in why. */
void classifier_write(const classifier_cfg *c, tp_writer *W);
bool classifier_read(classifier_cfg *c, tp_file *F, char *why, size_t size);

/* Into *m, which holds no model; free ends it, the memory of m too. m may be NULL. */
void classifier_init(tp_params *P, classifier *m, const classifier_cfg *c);
void classifier_free(classifier *m);
tp_tensor classifier_forward(tp_tape *T, const classifier *m, tp_tensor images); /* [B,classes] */

/* Multiply-adds of an image, forward. */
double classifier_macs(const classifier_cfg *c);

/* ViL: windows see their own chunk and one neighbour, drawn at random, while training. */
void classifier_random_shift(classifier *m, bool on);

/* Performer: new random features, those of that draw; nothing in other models. False: see
 * tp_params_why. */
bool classifier_redraw(tp_params *P, const classifier *m, uint64_t seed, uint64_t draw);

/* Do two configurations mean the same weights, whatever sizes and classes? */
bool classifier_same(const classifier_cfg *a, const classifier_cfg *b);

/* The weights of a checkpoint of the same model; false: see tp_params_why. */
bool classifier_weights(tp_params *P, tp_file *F);

/* What loading a model for images of another size changes, in words; NULL: nothing. load does it;
 * all but the size must agree. */
const char *classifier_resizing(const classifier_cfg *c);
/* Are all of its weights resized? If not, some begin anew: training has to follow. */
bool classifier_resizes_all(const classifier_cfg *c);
bool classifier_load_resized(tp_params *P, const classifier *m, tp_file *F);

#endif
