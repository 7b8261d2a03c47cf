/* classifier.h - the models of the program behind one interface. */
#ifndef CLASSIFIER_H
#define CLASSIFIER_H

#include <tapegrad/vision.h>

typedef enum family { FAMILY_CONVNET, FAMILY_CVT, FAMILY_LSLA, FAMILY_VIL } family;

typedef struct classifier_cfg {
    family kind;
    int64_t size, classes;  /* pictures of size x size */
    tp_convnet_cfg convnet; /* of these, the kind's own */
    tp_cvt_cfg cvt;
    tp_vit_lsla_cfg lsla;
    tp_vil_cfg vil;
} classifier_cfg;

typedef struct classifier {
    classifier_cfg cfg;
    tp_convnet convnet;
    tp_cvt cvt;
    tp_vit_lsla lsla;
    tp_vil vil;
} classifier;

const char *classifier_family(const classifier_cfg *c); /* "convnet", "cvt", ... */

/* Sets the size of pictures and the number of classes in all that depends on them. */
void classifier_fit(classifier_cfg *c, int64_t size, int64_t classes);
void classifier_train_as(classifier_cfg *c, double drop_path, tp_recompute recompute);
bool classifier_check(const classifier_cfg *c, char *why, size_t size);

/* As metadata of a checkpoint and back; false with the reason in why. */
void classifier_write(const classifier_cfg *c, tp_writer *W);
bool classifier_read(classifier_cfg *c, tp_file *F, char *why, size_t size);

void classifier_init(tp_params *P, classifier *m, const classifier_cfg *c);
tp_tensor classifier_forward(tp_tape *T, const classifier *m, tp_tensor images); /* [B,classes] */

/* Multiply-adds of a picture, forward. */
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

/* What loading a model for pictures of another size changes, in words; NULL: nothing. load does it;
 * all but the size must agree. */
const char *classifier_resizing(const classifier_cfg *c);
/* Are all of its weights resized? If not, some begin anew: training has to follow. */
bool classifier_resizes_all(const classifier_cfg *c);
bool classifier_load_resized(tp_params *P, const classifier *m, tp_file *F);

#endif
