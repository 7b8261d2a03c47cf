/* bpe.h - small byte-pair vocabularies. */
#ifndef TP_SUPPORT_BPE_H
#define TP_SUPPORT_BPE_H

#include <tapegrad/bpe.h>

/* Writes the 256 bytes from id `first` on, as JSON members; returns the next id. */
int bpe_put_bytes(char *to, int first);

/* Writes a vocabulary of the specials, all bytes and the space-separated tokens. */
void bpe_small(char *to, const char *tokens);

/* Writes a, then b. */
void bpe_join(char *to, const char *a, const char *b);

/* Expects that both write the same vocabulary and merges. */
void bpe_expect_same(const tp_bpe *a, const tp_bpe *b);

#endif
