/* bpe.h - byte-level byte-pair encoding, the tokenizer of GPT-2 and RoBERTa (data library).
 *
 *     "Hello world!" -> Hello | Ġworld | !  -> 31414 232 328
 *
 * A text is split into words by the published pattern: contractions; runs of letters, of numbers or
 * of other characters, each with a preceding space, if any; white space. At first, the symbols of a
 * word are its bytes. Then, repeatedly, the pair of neighbouring symbols that comes first in the
 * list of merges is merged, wherever it occurs, from left to right. The symbols that remain are the
 * tokens. Files write each byte as a printable character: 33-126, 161-172 and 174-255 as the
 * character of that number, the others as U+0100, U+0101, ... in order (the space: "Ġ").
 *
 * Source: Radford et al., Language Models are Unsupervised Multitask Learners (2019), and its
 * code. */
#ifndef TAPEGRAD_BPE_H
#define TAPEGRAD_BPE_H

#include <tapegrad/tapegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- vocabularies ---- */

/* A vocabulary: tokens with their ids, and merges. It is immutable once open, so threads may share
 * it. */
typedef struct tp_bpe tp_bpe;

/* Special tokens, which represent no text. A vocabulary marks them by name only. */
typedef enum tp_bpe_special {
    TP_BPE_BEGIN,   /* <s> */
    TP_BPE_PAD,     /* <pad> */
    TP_BPE_END,     /* </s> */
    TP_BPE_UNKNOWN, /* <unk> */
    TP_BPE_MASK,    /* <mask> */
    TP_BPE_SPECIALS
} tp_bpe_special;

/* The token that separates documents in GPT-2's vocabulary. Nothing but its name marks it. */
#define TP_BPE_END_OF_TEXT "<|endoftext|>"

/* Opens a vocabulary: a folder or a file.
 *
 *     tokenizer.json            of the packages tokenizers and transformers: everything
 *     vocab.json, merges.txt    of transformers: tokens with ids; a merge on each line
 *     encoder.json, vocab.bpe   the same of GPT-2
 *     dict.txt                  of fairseq, beside encoder.json: RoBERTa's ids. Line k (from 0)
 *                               names the GPT-2 id of id 4 + k; 0-3 are <s> <pad> </s> <unk>,
 *                               the last is <mask>
 *
 * In a folder, tokenizer.json comes first, then encoder.json, then vocab.json. A path to a .json
 * file names the vocabulary itself; its merges are beside it. Files may be compressed and have at
 * most 64 MiB. Ids must be 0 ... size - 1, at most 2^22 of them, and there are at most 2^22 merges.
 * Each byte needs a token unless there is <unk>. Both sides of a merge and their concatenation need
 * tokens, too, and contain no line ends. Never NULL: tp_bpe_why says what is wrong, with the file
 * and the line or token. */
TP_API tp_bpe *tp_bpe_open(const char *path);

/* The same from texts in memory: the contents of a vocab.json and merges.txt; dict is a dict.txt or
 * NULL. Texts end with a zero byte. name stands for the files in messages. */
TP_API tp_bpe *tp_bpe_from(const char *name, const char *vocab, const char *merges,
                           const char *dict);
/* The same from the contents of a tokenizer.json. */
TP_API tp_bpe *tp_bpe_from_json(const char *name, const char *text);

/* A vocabulary without merges: the 256 bytes with their values as ids, and TP_BPE_END_OF_TEXT, id
 * 256. */
TP_API tp_bpe *tp_bpe_bytes(void);

TP_API void tp_bpe_close(tp_bpe *X);
TP_API bool tp_bpe_ok(const tp_bpe *X);
TP_API const char *tp_bpe_why(const tp_bpe *X);

TP_API int64_t tp_bpe_size(const tp_bpe *X);   /* number of ids; 0 if X has failed */
TP_API int64_t tp_bpe_merges(const tp_bpe *X); /* number of merges */
/* The id of a special token, or -1 if there is none; its name. */
TP_API int32_t tp_bpe_special_id(const tp_bpe *X, tp_bpe_special which);
TP_API const char *tp_bpe_special_name(tp_bpe_special which);
/* A token as files write it ("Ġworld"), or NULL if there is no such id; the id of a token, or
 * -1. */
TP_API const char *tp_bpe_token(const tp_bpe *X, int64_t id);
TP_API int32_t tp_bpe_id(const tp_bpe *X, const char *token);
/* The bytes of text that a token stands for: 0 for special tokens, for TP_BPE_END_OF_TEXT, and if
 * there is no such id. */
TP_API int tp_bpe_token_bytes(const tp_bpe *X, int64_t id);

/* The contents of a vocab.json and a merges.txt, as tp_bpe_from reads them; the caller frees them.
 * NULL: out of memory, or X has failed. Checkpoints store a vocabulary in this form. */
TP_API char *tp_bpe_vocab_text(const tp_bpe *X);
TP_API char *tp_bpe_merges_text(const tp_bpe *X);
/* Writes FOLDER/vocab.json and FOLDER/merges.txt, replacing each when it is complete; creates the
 * folder if there is none. False with the reason in why. */
TP_API bool tp_bpe_save(const tp_bpe *X, const char *folder, char *why, size_t size);

/* ---- encoding and decoding ---- */

/* A coder encodes and decodes with a vocabulary, which must outlive it. It caches up to 10 MiB of
 * the words that it has seen and owns its results, so each thread needs its own. */
typedef struct tp_bpe_coder tp_bpe_coder;
/* Returns NULL only if out of memory. */
TP_API tp_bpe_coder *tp_bpe_coder_new(const tp_bpe *X);
TP_API void tp_bpe_coder_free(tp_bpe_coder *C);
TP_API const tp_bpe *tp_bpe_coder_vocabulary(const tp_bpe_coder *C);

/* The ids of n bytes of text. No special tokens are added, and their names in the text are ordinary
 * text. Each byte that is not valid UTF-8 is a character of no class. Returns *count ids, which
 * remain valid until the next call with C; NULL if memory runs out, the text exceeds 2^30 bytes or
 * the vocabulary has failed. */
TP_API const int32_t *tp_bpe_encode(tp_bpe_coder *C, const char *text, size_t n, int64_t *count);

/* How decoding treats special tokens and bytes that are not valid UTF-8. */
enum {
    TP_BPE_SKIP_SPECIALS = 1, /* omits special tokens; otherwise writes their names */
    TP_BPE_RAW = 2            /* keeps invalid bytes; otherwise replaces them by U+FFFD */
};
/* The text of n ids, which ends with a zero byte and remains valid until the next call with C;
 * *bytes may be NULL. NULL if memory runs out or an id is unknown. */
TP_API const char *tp_bpe_decode(tp_bpe_coder *C, const int32_t *ids, int64_t n, int flags,
                                 size_t *bytes);

/* Calls word(env, first byte, length) for each word of the text, in order. Stops and returns false
 * as soon as word returns false. */
TP_API bool tp_bpe_words(const char *text, size_t n,
                         bool (*word)(void *env, const char *at, size_t length), void *env);

/* ---- learning a vocabulary ---- */

/* A trainer counts the words of texts, then learns merges from them: repeatedly, the pair of
 * neighbouring symbols that occurs most often becomes a token. Of equally frequent pairs, the one
 * with the smaller left id comes first, then the one with the smaller right id, as in the package
 * tokenizers. Ids: <s> <pad> </s> <unk>, the 256 bytes in the order of the characters that stand
 * for them, the merges in order, <mask> last. */
typedef struct tp_bpe_trainer tp_bpe_trainer;
typedef struct tp_bpe_trainer_opts {
    int64_t size;  /* ids, specials included: 261 to 2^22. 0: 50265, RoBERTa's */
    int64_t least; /* a pair that occurs less often is never merged. 0: 2 */
} tp_bpe_trainer_opts;

/* o may be NULL. Returns NULL only if out of memory. */
TP_API tp_bpe_trainer *tp_bpe_trainer_new(const tp_bpe_trainer_opts *o);
TP_API void tp_bpe_trainer_free(tp_bpe_trainer *R);
/* Adds a text; no word spans two texts. False if the trainer has failed: see tp_bpe_trainer_why. */
TP_API bool tp_bpe_trainer_add(tp_bpe_trainer *R, const char *text, size_t n);
/* The same with the contents of a file, plain or compressed, as one text. False with the reason in
 * why; if the file is at fault, the trainer remains usable. */
TP_API bool tp_bpe_trainer_add_file(tp_bpe_trainer *R, const char *path, char *why, size_t size);
TP_API const char *tp_bpe_trainer_why(const tp_bpe_trainer *R);
/* The learnt vocabulary, which the caller closes; the trainer then takes no more texts. It is
 * smaller than `size` if no pair is left that occurs often enough. Never NULL. */
TP_API tp_bpe *tp_bpe_trainer_finish(tp_bpe_trainer *R);

#ifdef __cplusplus
}
#endif
#endif
