/* tokenizer.h - the vocabulary that belongs to a model: named by a flag, in the checkpoint, or beside it. */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include <tapegrad/bpe.h>
#include <tapegrad/file.h>
#include <tapegrad/options.h>

#include <stdbool.h>

/* clang-format off */
#define OPTION_TOKENIZER(S, at, tag) \
    TP_STRING("tokenizer", S, at, "FILE", tag, \
              "The vocabulary: tokenizer.json; vocab.json with merges.txt beside it; encoder.json with vocab.bpe and " \
              "dict.txt; or the folder that holds them. tp-bpe train makes one. If not given: the one in the " \
              "checkpoint, or the files beside it.")
/* clang-format on */

/* Opens the vocabulary at path or, if that is NULL, the one in F or beside it. It must have the ids that the models
 * expect: <s> 0, <pad> 1, </s> 2 and a <mask>. F may be NULL. NULL with the reason in why. */
tp_bpe *tokenizer_open(const char *path, const tp_file *F, char *why, size_t size);

/* Writes it as metadata of a checkpoint, so that nothing else is needed to use the model. */
void tokenizer_write(const tp_bpe *X, tp_writer *W);

#endif
