/* tokenizers.h - the vocabulary of a model's file. */
#ifndef REPORTS_TOKENIZERS_H
#define REPORTS_TOKENIZERS_H

#include <tapegrad/bpe.h>
#include <tapegrad/file.h>

/* Opens the vocabulary at path; if that is NULL, the one in F or beside it. The caller checks
 * tp_bpe_ok. NULL with the reason in why: F has none. */
tp_bpe *tokenizer_find(const char *path, const tp_file *F, char *why, size_t size);

/* Stores the vocabulary in a checkpoint, so that the model needs nothing else. */
void tokenizer_write(const tp_bpe *X, tp_writer *W);

#endif
