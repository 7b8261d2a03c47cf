/* corpus.h - texts in a temporary folder, and corpora of them with a small vocabulary. */
#ifndef SUPPORT_CORPUS_H
#define SUPPORT_CORPUS_H

#include <tapegrad/mlm.h>

/* The vocabulary of all corpora: bytes, special tokens and a few merges around "the". */
extern tp_bpe *corpus_vocabulary;

/* Make and remove the folder (support/folder.h) and the vocabulary. */
void corpus_begin(void);
void corpus_end(void);

/* Replaces the vocabulary by one with two merges and the same ids. */
void corpus_drop_merges(void);

/* Writes a file of random sentences with `between` after some of them. */
void corpus_sentences(const char *name, int words, uint64_t seed, const char *between);

/* Runs a command in the folder, which must succeed. */
void corpus_shell(const char *command);

/* Open the file or folder of that name, "" for the folder itself; corpus_of expects success. */
tp_corpus *corpus_try(const char *name, tp_corpus_opts o);
tp_corpus *corpus_of(const char *name, tp_corpus_opts o);

/* Reads n tokens of a part. */
void corpus_tokens(const tp_corpus *C, tp_part part, int64_t first, int64_t n, int32_t *to);

/* All tokens of a corpus but held-out ones, at most 1023, with </s> as a bar. Valid until the next
 * call. */
const char *corpus_text(const tp_corpus *C);

/* Opens batches, by default of 8 sequences of 34 ids; expects success. */
enum { CORPUS_BATCH = 8, CORPUS_LENGTH = 34 };
tp_loader *corpus_batches(const tp_corpus *C, tp_mlm_loader_opts o);
void corpus_next(tp_loader *L, tp_mlm_batch *b);
uint64_t corpus_batch_hash(const tp_mlm_batch *b); /* of its ids, rows and targets */

#endif
