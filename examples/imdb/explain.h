/* explain.h - which tokens moved a prediction: gradient times input, integrated from the masked text to the text, as
 * coloured text, as JSON, as a picture. Source: Sundararajan et al., Axiomatic Attribution for Deep Networks (2017). */
#ifndef EXPLAIN_H
#define EXPLAIN_H

#include <jansson.h>
#include <stdio.h>

#include <tapegrad/bpe.h>

#include "text_model.h"

/* A piece of the text: one token, or the tokens of a character that several share. weight: its share of the log odds of
 * the class, compared with the same text of <mask> alone; positive: it speaks for the class. */
typedef struct explained {
    char *text; /* UTF-8 or, in a damaged text, any bytes */
    double weight;
} explained;

typedef struct explanation {
    int n;
    explained *at;
    double most; /* the largest |weight| of a piece */
} explanation;

/* How a text is explained. mask: the id of <mask>. */
typedef struct explain_opts {
    tp_bpe_coder *coder;
    int32_t mask;
    int steps; /* 1: the gradient at the text itself                                       */
} explain_opts;

/* Explains the class `label` of the text with ids [n], which begins with <s> and ends with </s>: these are not among
 * the pieces. With embeddings x, and m that of <mask>, the weight of a token is (x - m) times the mean gradient of the
 * log odds at `steps` points between the text of <mask> alone and the text, so that all weights add up to the
 * difference of their log odds. The gradient at the text alone nearly vanishes where the model is sure.
 *
 * T does not record before and after; the word table is changed and restored; gradients of parameters are dropped.
 * False with the reason in why; free e in either case. */
bool explain_text(explanation *e, tp_tape *T, tp_params *P, const text_model *m,
                  const explain_opts *o, const int32_t *ids, int64_t n, int64_t label, char *why,
                  size_t size);
void explanation_free(explanation *e);

/* The text, with blue behind pieces in favour and red behind those against; without colours, a list of the strongest
 * pieces of both kinds. */
void explanation_print(FILE *out, const explanation *e, bool colours);
json_t *explanation_json(const explanation *e); /* [[TEXT, WEIGHT], ...]; NULL without memory */
/* Draws the pieces row by row. False with the reason in why. */
bool explanation_draw(const explanation *e, const char *title, const char *class_name,
                      const char *path, char *why, size_t size);

#endif
