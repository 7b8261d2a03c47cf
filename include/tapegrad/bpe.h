/* bpe.h - byte-level byte-pair encoding, the tokenizer of GPT-2 and RoBERTa (data library).
 *
 *     "Hello world!" -> Hello | Ġworld | !  -> 31414 232 328
 *
 * A text is cut into words by the published pattern (contractions, letters, numbers, other characters, each
 * with a blank before it; white space). The bytes of a word are its first symbols. Again and again the pair
 * of neighbours that comes first in the list of merges is joined, wherever it occurs, from left to right. The
 * symbols that remain are the tokens. A file writes a byte as a printable character: 33-126, 161-172 and
 * 174-255 as the character of that number, the others as U+0100, U+0101, ... in order (blank: "Ġ").
 *
 * Source: Radford et al., Language Models are Unsupervised Multitask Learners (2019), and its code. */
#ifndef TAPEGRAD_BPE_H
#define TAPEGRAD_BPE_H

#include <tapegrad/tapegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- vocabularies ---- */

/* Tokens with their ids, and merges. It does not change after it was opened, so threads may share it. */
typedef struct tp_bpe tp_bpe;

/* Tokens that stand for no text. Only their names in a vocabulary make them special. */
typedef enum tp_bpe_special {
    TP_BPE_BEGIN,   /* <s>    */
    TP_BPE_PAD,     /* <pad>  */
    TP_BPE_END,     /* </s>   */
    TP_BPE_UNKNOWN, /* <unk>  */
    TP_BPE_MASK,    /* <mask> */
    TP_BPE_SPECIALS
} tp_bpe_special;

/* Opens a vocabulary: a folder or a file.
 *
 *     tokenizer.json            of the packages tokenizers and transformers: everything
 *     vocab.json, merges.txt    of transformers: tokens with ids; a merge on each line
 *     encoder.json, vocab.bpe   the same of GPT-2
 *     dict.txt                  of fairseq, beside encoder.json: RoBERTa's ids. Line k (from 0) names the
 *                               GPT-2 id of id 4 + k; 0-3 are <s> <pad> </s> <unk>, <mask> follows the last
 *
 * In a folder they are looked for in this order; a path to a .json file names the vocabulary itself, and its
 * merges are beside it. Files may be compressed and have at most 64 MiB. Ids must be 0 ... size-1, at most
 * 2^22 of them, and there are at most 2^22 merges. Each byte needs a token unless there is <unk>; both sides of a
 * merge and what they make need one, too, and have no line ends in them. Never NULL: tp_bpe_why says what is wrong,
 * with file and line or token. */
TP_API tp_bpe *tp_bpe_open(const char *path);

/* The same from texts in memory: the contents of a vocab.json and merges.txt; dict is a dict.txt or NULL.
 * Texts end with a zero byte. name stands for the files in messages. */
TP_API tp_bpe *tp_bpe_from(const char *name, const char *vocab, const char *merges,
                           const char *dict);
/* The same from the contents of a tokenizer.json. */
TP_API tp_bpe *tp_bpe_from_json(const char *name, const char *text);

TP_API void tp_bpe_close(tp_bpe *X);
TP_API bool tp_bpe_ok(const tp_bpe *X);
TP_API const char *tp_bpe_why(const tp_bpe *X);

TP_API int64_t tp_bpe_size(const tp_bpe *X);   /* number of ids; 0 if X has failed */
TP_API int64_t tp_bpe_merges(const tp_bpe *X); /* number of merges                 */
/* The id of a special token, or -1 if the vocabulary lacks it; its name. */
TP_API int32_t tp_bpe_special_id(const tp_bpe *X, tp_bpe_special which);
TP_API const char *tp_bpe_special_name(tp_bpe_special which);
/* A token as files write it ("Ġworld"), or NULL if there is no such id; the id of a token, or -1. */
TP_API const char *tp_bpe_token(const tp_bpe *X, int64_t id);
TP_API int32_t tp_bpe_id(const tp_bpe *X, const char *token);

/* The contents of a vocab.json and a merges.txt, as tp_bpe_from reads them, to be freed; NULL: out of memory,
 * or X has failed. Checkpoints store a vocabulary so. */
TP_API char *tp_bpe_vocab_text(const tp_bpe *X);
TP_API char *tp_bpe_merges_text(const tp_bpe *X);
/* Writes FOLDER/vocab.json and FOLDER/merges.txt, each as a whole; the folder is made if there is none.
 * False with the reason in why. */
TP_API bool tp_bpe_save(const tp_bpe *X, const char *folder, char *why, size_t size);

/* ---- encoding and decoding ---- */

/* Encodes and decodes with a vocabulary, which must outlive it. It remembers the words that it has met, at
 * most 10 MiB of them, and owns its results: one coder for each thread. */
typedef struct tp_bpe_coder tp_bpe_coder;
/* NULL only if memory is out. */
TP_API tp_bpe_coder *tp_bpe_coder_new(const tp_bpe *X);
TP_API void tp_bpe_coder_free(tp_bpe_coder *C);

/* The ids of n bytes of text. Nothing is added; names of special tokens in the text are ordinary text. What
 * is not UTF-8 is taken byte by byte, as characters of no class. Returns *count ids, which remain valid until
 * the next call with C; NULL if memory is out, the text has more than 2^30 bytes or the vocabulary has failed. */
TP_API const int32_t *tp_bpe_encode(tp_bpe_coder *C, const char *text, size_t n, int64_t *count);

/* What decoding does with special tokens, and with bytes that are no UTF-8. */
enum {
    TP_BPE_SKIP_SPECIALS = 1, /* they vanish; else their names are written                 */
    TP_BPE_RAW = 2            /* bytes as they are; else U+FFFD for what is not UTF-8       */
};
/* The text of n ids, which ends with a zero byte and remains valid until the next call with C; *bytes may be
 * NULL. NULL if memory is out or an id is not in the vocabulary. */
TP_API const char *tp_bpe_decode(tp_bpe_coder *C, const int32_t *ids, int64_t n, int flags,
                                 size_t *bytes);

/* Calls word(env, first byte, length) for each word of the text, in order, until it returns false, which is
 * then returned. */
TP_API bool tp_bpe_words(const char *text, size_t n,
                         bool (*word)(void *env, const char *at, size_t length), void *env);

/* ---- vocabularies of one's own ---- */

/* Counts the words of texts, then learns merges from them: again and again, the pair of neighbours that occurs
 * most often becomes a token. Of pairs that are equally frequent, the one with the smaller left id comes first,
 * then the smaller right id, as in the package tokenizers. Ids: <s> <pad> </s> <unk>, the 256 bytes in the
 * order of the characters that stand for them, the merges in order, <mask> last. */
typedef struct tp_bpe_trainer tp_bpe_trainer;
typedef struct tp_bpe_trainer_opts {
    int64_t size;  /* ids, specials included: 261 to 2^22. 0: 50265, RoBERTa's           */
    int64_t least; /* a pair that occurs less often is never joined. 0: 2                */
} tp_bpe_trainer_opts;

/* o may be NULL. NULL only if memory is out. */
TP_API tp_bpe_trainer *tp_bpe_trainer_new(const tp_bpe_trainer_opts *o);
TP_API void tp_bpe_trainer_free(tp_bpe_trainer *R);
/* Adds a text, which is cut into words by itself. False if the trainer has failed: tp_bpe_trainer_why. */
TP_API bool tp_bpe_trainer_add(tp_bpe_trainer *R, const char *text, size_t n);
/* The same with the contents of a file, plain or compressed, as one text. False with the reason in why; if the
 * file is at fault, the trainer may go on. */
TP_API bool tp_bpe_trainer_add_file(tp_bpe_trainer *R, const char *path, char *why, size_t size);
TP_API const char *tp_bpe_trainer_why(const tp_bpe_trainer *R);
/* The vocabulary, to be closed; the trainer has then ended. It is smaller than asked for if no pair is left
 * that occurs often enough. Never NULL. */
TP_API tp_bpe *tp_bpe_trainer_finish(tp_bpe_trainer *R);

#ifdef __cplusplus
}
#endif
#endif
