/* protocol.h - protocols that measure bits per character. */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include "lm_kind.h"
#include "unknown.h"

typedef enum protocol_kind {
    PROTOCOL_STREAM,   /* one pass in segments, every token is scored                   */
    PROTOCOL_OFFICIAL, /* the same, but the first token of each segment is not scored   */
    PROTOCOL_WINDOWS   /* the last `step` tokens of overlapping windows, each with an empty cache */
} protocol_kind;

typedef struct protocol {
    protocol_kind kind;
    int64_t segment;       /* tokens per forward pass                                      */
    int64_t context, step; /* PROTOCOL_WINDOWS: tokens of a window, and how far it advances */
    unknown_bytes unknown; /* of the text */
} protocol;

typedef struct score {
    double nll;      /* nats, the sum over tokens */
    int64_t tokens;  /* tokens scored             */
    int64_t unknown; /* ... that are <unk>       */
} score;

/* With what unknown bytes cost; NaN while nothing is scored. */
double score_bpc(const score *s, const unknown_bytes *u);

/* Called after each segment; false stops the evaluation. */
typedef bool (*score_fn)(void *env, const score *s);

/* Scores ids[0..n-1] with m, whose cache determines how far it looks back. Sets T to evaluation
 * mode and resets it. Returns the score up to the end, a stop, or an error on T. */
score protocol_run(const protocol *p, tp_tape *T, const tp_net *m, const int16_t *ids, int64_t n,
                   score_fn seen, void *env);

#endif
