/* listops.h - expressions of ListOps: reading, evaluating and drawing them. Part of the data
 * library.
 *
 *     expression = digit | operator expression{1..} "]"        operator: [MIN [MAX [MED [SM
 *
 * [MED is the median, for an even count the truncated mean of the middle two; [SM is the sum modulo
 * 10. Ids: 0 padding, 1 to 10 the digits 0 to 9, then the operators in this order, then "]". */
#ifndef TAPEGRAD_LISTOPS_H
#define TAPEGRAD_LISTOPS_H

#include <tapegrad/documents.h>
#include <tapegrad/random.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TP_LISTOPS_DIGIT = 1, /* the id of 0 */
    TP_LISTOPS_MIN = 11,
    TP_LISTOPS_MAX,
    TP_LISTOPS_MED,
    TP_LISTOPS_SM,
    TP_LISTOPS_CLOSE,
    TP_LISTOPS_IDS /* one more than the largest id */
};

/* Reads n bytes of text into ids, which has room for n / 2 + 1 of them. Parentheses are skipped, so
 * that the released bracketing gives the same ids as the plain one. Returns their number; -1 with
 * the reason in why if a word is not a token. */
TP_API int64_t tp_listops_read(const char *text, size_t n, uint16_t *ids, char *why, size_t size);

typedef struct tp_listops_value {
    int answer; /* 0 ... 9 */
    int depth;  /* operators around the innermost digit */
} tp_listops_value;

/* Evaluates an expression with closing brackets, however deep. False with the reason in why, which
 * counts tokens from 1. */
TP_API bool tp_listops_evaluate(const uint16_t *ids, int64_t n, tp_listops_value *value, char *why,
                                size_t size);

/* The random process of Long Range Arena: an expression is an operator of 2 to `args` expressions
 * with probability 1/4, if it is less than `depth` deep, else a digit. */
typedef struct tp_listops_opts {
    uint64_t seed;
    int64_t shortest, longest;  /* tokens with closing brackets; both 0: 501 to 1999 */
    int depth, args;            /* 0: 10; depth at most 64, args at least 2 */
    int64_t train, valid, test; /* expressions of each part; all 0: 96000, 2000 and 2000 */
    tp_brackets brackets;
    int64_t cut; /* ids kept of an expression; 0: 2000 */
} tp_listops_opts;

/* Draws one expression from r into ids, which has room for o->longest (0: 1999) of them. Returns
 * its length with closing brackets, even outside the wanted range; -1 if it exceeds o->longest. */
TP_API int64_t tp_listops_draw(tp_random *r, const tp_listops_opts *o, uint16_t *ids, int *answer);

/* Draws expressions until all parts are full, and keeps those of one part. Each draw has its own
 * stream. Lengths outside the limits and repeated expressions are dropped; the parts are in the
 * order of drawing: train, valid, test. Fails if a million draws in a row give nothing new. o may
 * be NULL. */
TP_API tp_documents *tp_documents_listops_drawn(tp_part part, const tp_listops_opts *o);

#ifdef __cplusplus
}
#endif
#endif
