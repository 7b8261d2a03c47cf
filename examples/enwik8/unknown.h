/* unknown.h - what a score owes to bytes that the model's dictionary lacks.
 *
 * A dictionary of <unk> gives all of them one token, which a model predicts easily; that of Transformer-XL drops them.
 * Either would make a score too good. So a token <unk> also pays for which of the K lacking bytes it stands, log2 K
 * bits, and a byte that was dropped counts as one of 8 bits: any byte is then paid for, and a text of lacking bytes
 * alone costs about 8 bits each. */
#ifndef UNKNOWN_H
#define UNKNOWN_H

#include <tapegrad/data.h>

typedef struct unknown_bytes {
    int32_t id;   /* the token <unk>; -2: there is none            */
    int bytes;    /* K, the byte values that the dictionary lacks  */
    double nats;  /* log K                                         */
    double share; /* bytes that were dropped for each token of the part */
} unknown_bytes;

unknown_bytes unknown_of(const tp_text *X, tp_part part);

/* How many of n tokens are <unk>. */
int64_t unknown_in(const unknown_bytes *u, const int32_t *tokens, int64_t n);

/* Bits for each of `tokens` scored tokens, of which `unknown` are <unk>, from their sum of nats. */
double unknown_bpc(const unknown_bytes *u, double nats, int64_t tokens, int64_t unknown);

/* Writes what the score counts of them, as a sentence, if there are any: bytes of `what`. */
void unknown_say(const unknown_bytes *u, int64_t count, const char *what, char *buf, size_t size);

#endif
