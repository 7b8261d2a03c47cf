/* text_run.h - the state that enwik8 adds to the engine's training run. */
#ifndef TEXT_RUN_H
#define TEXT_RUN_H

#include <tapegrad/data.h>

#include "lm_kind.h"
#include "unknown.h"

typedef struct text_run {
    tp_text *text;
    bool shared; /* the text belongs to another run */
    tp_bytes *reader;
    int32_t *x, *y; /* [B,M] */

    tp_model_cfg cfg;
    tp_net *m;
    void *cache;               /* of the training streams */
    tp_tensor in, target;      /* slots: [B,M] */
    int64_t segments, counted; /* since the last report: segments, and targets that are not -1 */
    int64_t lacking;           /* ... of these, targets that are <unk>                         */
    unknown_bytes unknown[2];  /* of the training text and of the validation text             */
} text_run;

/* text_measure.c: bits per character of the validation text. */
double text_measure(tp_run *R, char *text, size_t size);

/* The number of the n targets that are not -1, which marks a position without one. */
int64_t text_targets(const int32_t *y, int64_t n);

#endif
