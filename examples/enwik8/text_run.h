/* text_run.h - what a training run of enwik8 holds beside the engine's. */
#ifndef TEXT_RUN_H
#define TEXT_RUN_H

#include <tapegrad/data.h>

#include "lm_kind.h"

typedef struct text_run {
    tp_text *text;
    bool shared; /* the text is another run's */
    tp_bytes *reader;
    int32_t *x, *y; /* [B,M] */

    tp_model_cfg cfg;
    tp_net *m;
    void *cache;               /* of the streams that are trained on */
    tp_tensor in, target;      /* slots: [B,M] */
    int64_t segments, counted; /* since the last report: segments, targets that count */
} text_run;

/* text_measure.c: bits per character of the validation text. */
double text_measure(tp_run *R, char *text, size_t size);

/* How many of n targets count: -1 is none. */
int64_t text_targets(const int32_t *y, int64_t n);

#endif
