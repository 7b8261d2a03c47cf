/* explain.h - which tokens moved a prediction: gradient times input, as coloured text, as JSON, as a picture. */
#ifndef EXPLAIN_H
#define EXPLAIN_H

#include <jansson.h>
#include <stdio.h>

#include <tapegrad/bpe.h>

#include "text_model.h"

/* A piece of the text: one token, or the tokens of a character that several share. weight: how much the log odds of
 * the class would change if the embedding grew from nothing, in first order; positive: in favour of the class. */
typedef struct explained {
    char *text; /* UTF-8 or, in a damaged text, any bytes */
    double weight;
} explained;

typedef struct explanation {
    int n;
    explained *at;
    double most; /* the largest |weight| of a piece */
} explanation;

/* Explains the class `label` of the text with ids [n], which begins with <s> and ends with </s>: these are not among the
 * pieces. T does not record before and after; gradients of parameters are dropped. False with the reason in why; free e
 * in either case. */
bool explain_text(explanation *e, tp_tape *T, tp_params *P, const text_model *m,
                  tp_bpe_coder *coder, const int32_t *ids, int64_t n, int64_t label, char *why,
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
