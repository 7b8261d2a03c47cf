/* score.h - evaluation images and a classifier's accuracy on them: loss, top-1, top-5, confusion
 * matrix. */
#ifndef SCORE_H
#define SCORE_H

#include <tapegrad/image_set.h>

#include "classifier.h"
#include "image_file.h"
#include "names/class_names.h"

typedef struct score {
    int64_t count, top1, top5, skipped;
    double loss;        /* summed cross entropy */
    int64_t *confusion; /* [classes,classes]: label, prediction */
    char why[1024];
} score;

typedef struct score_opts {
    const tp_augment *augment;
    int64_t batch;
    int workers;
    uint64_t seed; /* of a corruption */
    bool strict;
    void (*bad)(void *env, const char *name, const char *why);
    bool (*go_on)(void *env, const score *so_far); /* false: stop; may be NULL */
    /* The model's class for each of the images'; NULL: the same number. */
    const int32_t *label_of;
    /* Called for each image with its number in the set and the model's class; logits [classes]; may
     * be NULL. */
    void (*each)(void *env, int64_t image, int32_t label, const float *logits);
    void *env;
    /* The part of the images that this process scores; zero: all. score_total then adds up. */
    tp_share share;
} score_opts;

/* Runs the model over all images on T, which must not record; if none can be read, the score has a
 * count of 0. False with the reason in why; free in either case. */
bool score_run(score *s, tp_tape *T, const classifier *m, const tp_image_set *X,
               const score_opts *o);
void score_free(score *s);
/* Replaces s, of a model with that many classes, by the totals of all processes of R. */
void score_total(score *s, int64_t classes, tp_run *R);

/* A share in percent; NAN if of is 0. */
double score_percent(int64_t part, int64_t of);

/* The n likeliest classes, best first; padded with -1 if there are fewer. */
void score_top(const float *logits, int64_t classes, int n, int32_t *best);

/* ---- evaluation images ---- */

/* Their source: a folder, or drawn shapes if data is NULL. */
typedef struct eval_source {
    const char *command; /* for warnings */
    const char *data;
    tp_layout layout;
    tp_part part;
    int64_t shapes; /* number to draw */
    int64_t most;   /* evenly spread; 0: all */
} eval_source;

typedef struct eval_set {
    tp_image_set *X;
    int32_t *label; /* the model's class for each of X */
} eval_set;

/* Opens the images for model f with those names. Prints to stderr what the set leaves out. False
 * with the reason in f->t.why; close in either case. */
bool eval_set_open(eval_set *e, const eval_source *s, image_file *f, const class_names *names);
void eval_set_close(eval_set *e);

/* score_run with the model of f on X; also fails on a loss of NaN or infinity. False with the
 * reason in f->t.why; score_free in either case. */
bool eval_score(score *v, image_file *f, const tp_image_set *X, const score_opts *o);

/* Prints a warning to stderr, unless it is "". */
void eval_warn(const char *command, const char *warning);

/* Prints to stderr that an image was skipped. */
void eval_skipped(const char *command, const char *name, const char *why);

/* Flags of commands that score images, for settings type S: which images, and how. */
#define OPTIONS_SCORED(S)                                                                          \
    OPTIONS_IMAGES(S, c.data, 0, 0), OPTION_MAX_PIXELS(S, c.max_pixels, 0),                        \
        TP_INT("shapes", S, shapes, 1, 10000000, 0,                                                \
               "Number of shapes to draw if --data is not given."),                                \
        TP_CHOICE("split", S, split, "train|valid|test", 0,                                        \
                  "The part of the images that is scored.")
#define OPTIONS_SCORING(S)                                                                         \
    OPTION_TRAINED_SIZE(S),                                                                        \
        TP_NUM("crop-ratio", S, crop_ratio, 0, 1, 0,                                               \
               "Resize to size / crop-ratio, then crop the centre; 0: as in training."),           \
        TP_INT("batch", S, c.batch, 1, 65536, 0, "Batch size, in images."),                        \
        TP_FLAG("strict", S, strict, 0,                                                            \
                "Stop at an image that cannot be read; off: report it and skip it.")

#endif
