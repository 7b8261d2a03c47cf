/* data.h - readers of training data: text, tables, examples in memory (data library). */
#ifndef TAPEGRAD_DATA_H
#define TAPEGRAD_DATA_H

#include <tapegrad/tapegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- several processes that divide each batch ----
 *
 * With `share` in its options a reader takes the part of one process. `batch` is the number of rows
 * of each process, and ranks x batch rows are a global batch, of which process r has the rows from
 * r x batch on. Everything about a row (its example, random numbers, masks, padding) is the same as
 * for one process with that global batch, so the number of processes may change between runs;
 * exceptions stand at the readers. Positions, steps and epochs count global batches and are equal
 * in all processes. Where the last global batch is smaller, the last processes get fewer rows of it
 * or none: those end one batch earlier, perhaps without any. */

/* The number of processes that divide a batch; zero: 1. */
static inline int64_t tp_share_parts(tp_share s)
{
    return s.ranks > 1 ? s.ranks : 1;
}

/* ---- text as token ids: enwik8, text8 or any file ---- */

/* A dictionary, which belongs to a model: ids 0 <s>, 1 <pad>, 2 </s>, 3 <unk>, then symbols by
 * descending count, then fillers up to a multiple of 8; bytes and txl have symbols only. */
typedef enum tp_text_style {
    TP_TEXT_AUTO,   /* text8 if the text has only a-z and blanks, else enwik8 */
    TP_TEXT_ENWIK8, /* bytes; newline becomes </s> */
    TP_TEXT_TEXT8,  /* characters a-z and blank ("_"); one </s> at the end of a split */
    TP_TEXT_BYTES,  /* token id = byte value, V = 256; no specials */
    /* Transformer-XL's code: bytes of all splits, ties by first occurrence, no specials; newlines
     * and unknown bytes vanish from the text */
    TP_TEXT_TXL
} tp_text_style;
typedef struct tp_vocab {
    tp_text_style style;
    int64_t size;        /* V */
    int16_t symbol[512]; /* id -> byte, -1: special or filler (text8's "_" is byte 32) */
    int16_t id[256];     /* byte -> id; unknown bytes: 3, in txl -1 */
    int64_t count[512];  /* occurrences in the training split */
} tp_vocab;

/* Writes a dictionary without its counts as checkpoints store it, "enwik8:32,101,...", and parses
 * it. print: false if buf is too small (2048 bytes always suffice). parse: false if s is
 * malformed. */
TP_API bool tp_vocab_print(const tp_vocab *v, char *buf, size_t size);
TP_API bool tp_vocab_parse(tp_vocab *v, const char *s);
/* Builds the dictionary from a training split of n bytes; txl: from the whole text. */
TP_API void tp_vocab_build(tp_vocab *v, tp_text_style style, const uint8_t *train, int64_t n);
/* Reads the dictionary of a published model: a text with a line for each symbol in the order of the
 * ids, its name and, after a blank, its count, as fairseq writes it (dict.txt). A name is a byte's
 * decimal number or a character, "_" for the blank. style: TP_TEXT_AUTO, which takes numbers for
 * enwik8 and characters for text8, or TP_TEXT_TXL. False with the reason in why, which names file
 * and line. */
TP_API bool tp_vocab_load(tp_vocab *v, const char *path, tp_text_style style, char *why,
                          size_t size);

/* True if byte has its own token. In txl newlines, which vanish from every text, count as known. */
TP_API bool tp_vocab_knows(const tp_vocab *v, uint8_t byte);

/* A text in memory, split into train, valid and test. */
typedef enum tp_part { TP_TRAIN, TP_VALID, TP_TEST } tp_part;
typedef struct tp_text tp_text;
typedef struct tp_text_opts {
    tp_text_style style;
    const tp_vocab *vocab; /* a checkpoint's; NULL: built from the training split */
    /* fractions; the rest is for training. Both 0: 5 million bytes each of a file of 100 million
     * bytes, 0.05 each of any other */
    double valid, test;
    int64_t limit;     /* reads at most that many bytes; 0: all */
    const char *extra; /* a file to append to the training split, or NULL */
} tp_text_opts;

/* Reads a regular file, plain or compressed (.gz .xz .zip .zst .bz2, by libarchive). In styles
 * other than bytes a byte order mark of UTF-8 is passed over, and UTF-16, UTF-32 and zero bytes are
 * refused. Never NULL: tp_text_why says what is wrong (missing, empty, truncated archive, too short
 * ...). A packed file may unpack to 16 MiB plus 1100 times its size, which is also the bound of
 * memory. o may be NULL. */
TP_API tp_text *tp_text_open(const char *path, const tp_text_opts *o);
/* The same from bytes in memory, which are copied. */
TP_API tp_text *tp_text_from(const uint8_t *bytes, int64_t n, const tp_text_opts *o);
TP_API void tp_text_close(tp_text *X);
TP_API bool tp_text_ok(const tp_text *X);
TP_API const char *tp_text_why(const tp_text *X);
TP_API const tp_vocab *tp_text_vocab(const tp_text *X);
TP_API int64_t tp_text_bytes(const tp_text *X, tp_part part);
TP_API const int16_t *tp_text_ids(const tp_text *X, tp_part part, int64_t *n); /* token ids */
/* Bytes of a part that the dictionary lacks (tp_vocab_knows): <unk> tokens, or bytes that txl
 * drops. A model need not predict which bytes they are, so its score is too good. */
TP_API int64_t tp_text_unknown(const tp_text *X, tp_part part);

/* Batches of contiguous streams in the official layout: the ids are cut into blocks of `tokens`,
 * stream b of `batch` gets the b-th run of consecutive blocks, and the rest is dropped.
 * all_targets: the target of a segment's last position is the next token; otherwise it is -1 (not
 * counted). The position wraps around at the end of an epoch. Processes that share the batches cut
 * the text into streams for all of them, and process r has those from r x batch on. */
typedef struct tp_streams_opts {
    int64_t batch, tokens;
    bool all_targets;
    tp_share share; /* the part of each batch that this process reads; zero: all of it */
} tp_streams_opts;
typedef struct tp_streams tp_streams;
/* never NULL */
TP_API tp_streams *tp_streams_new(const tp_text *X, tp_part part, const tp_streams_opts *o);
TP_API void tp_streams_free(tp_streams *S);
TP_API bool tp_streams_ok(const tp_streams *S);
TP_API const char *tp_streams_why(const tp_streams *S);
TP_API int64_t tp_streams_steps(const tp_streams *S);    /* steps per epoch */
TP_API int64_t tp_streams_position(const tp_streams *S); /* steps taken; saved in checkpoints */
TP_API void tp_streams_seek(tp_streams *S, int64_t position); /* clamped to 0 ... 2^60 */
/* The next batch on T: ids x [B,M] and targets y [B,M], both TP_I32. A failed reader fails T. */
TP_API void tp_streams_next(tp_streams *S, tp_tape *T, tp_tensor *x, tp_tensor *y);
/* The same in host memory: ids and targets [B*M]. False if the reader has failed. */
TP_API bool tp_streams_next_host(tp_streams *S, int32_t *x, int32_t *y);

/* ---- tables: text files with one row per line, cells separated by tabs or another byte ---- */

typedef struct tp_table tp_table;
typedef struct tp_table_opts {
    /* per row; the last cell takes the rest of its line. 0: exactly as many as the first row has */
    int columns;
    char separator; /* 0: tab */
    bool header;    /* the first row holds the names of the columns, not data */
    int64_t limit;  /* reads at most that many bytes; 0: all */
} tp_table_opts;

/* Reads a plain or compressed file like tp_text_open. There is no quoting; line ends may be CRLF;
 * empty lines are skipped, and so is a byte order mark of UTF-8. Never NULL: tp_table_why names the
 * file, the line and the error (too few cells, a zero byte, no rows ...). o may be NULL. */
TP_API tp_table *tp_table_open(const char *path, const tp_table_opts *o);
/* The same from bytes in memory, which are copied. */
TP_API tp_table *tp_table_from(const char *bytes, size_t n, const tp_table_opts *o);
TP_API void tp_table_close(tp_table *X);
TP_API bool tp_table_ok(const tp_table *X);
TP_API const char *tp_table_why(const tp_table *X);
TP_API int64_t tp_table_rows(const tp_table *X); /* 0 if X has failed */
TP_API int tp_table_columns(const tp_table *X);
TP_API const char *tp_table_cell(const tp_table *X, int64_t row, int column); /* zero-terminated */
TP_API const char *tp_table_heading(const tp_table *X, int column); /* NULL without a header */

/* A column as labels: its distinct cells, sorted by their bytes, are numbered from 0. These return
 * the number of labels, the label of a row, and the text of a label. The first call numbers the
 * column; if memory runs out, X fails, and they return 0 and "". */
TP_API int tp_table_labels(tp_table *X, int column);
TP_API int32_t tp_table_label(tp_table *X, int64_t row, int column);
TP_API const char *tp_table_label_name(tp_table *X, int column, int label);

/* ---- examples in memory, and batches of them ---- */

/* One value of each example: { TP_I32, TP_SCALAR } is a label. */
typedef struct tp_column {
    tp_dtype dtype;
    tp_shape shape;
} tp_column;

enum { TP_MAX_COLUMNS = 16 };
typedef struct tp_examples_opts {
    int64_t batch;
    uint64_t seed;
    int64_t hold_back_every; /* n >= 2: every n-th example is held back for validation; 0: none */
    tp_share share;          /* the part of each batch that this process reads; zero: all of it */
} tp_examples_opts;

/* Examples in memory; the object owns copies of them. Never NULL. Errors are sticky, and feeding
 * from a failed object fails the tape. */
typedef struct tp_examples tp_examples;
TP_API tp_examples *tp_examples_new(int columns, const tp_column *column,
                                    const tp_examples_opts *o);
TP_API void tp_examples_free(tp_examples *X);
TP_API bool tp_examples_ok(const tp_examples *X);
TP_API const char *tp_examples_why(const tp_examples *X);

/* Adds an example: value[c] points to the data of column c. */
TP_API void tp_examples_add(tp_examples *X, const void *const value[]);

TP_API int64_t tp_examples_count(const tp_examples *X,
                                 tp_part part);         /* TP_TEST: same as TP_VALID */
TP_API uint64_t tp_examples_hash(const tp_examples *X); /* of all values so far */

/* Batches per epoch, global ones if processes share them. TP_TRAIN has whole batches only; fewer
 * examples than a batch fail X. */
TP_API int64_t tp_examples_steps(tp_examples *X, tp_part part);

/* Feeds a batch into slots of T (tp_feed), one per column, [n,...] each. Returns n, or 0 if there
 * is no such step, if this process has no row of it, or if T has failed. TP_TRAIN is shuffled for
 * each epoch (0 to below 2^31); other parts are in order, and their last batch may be smaller. The
 * result does not depend on earlier calls, so a resumed run needs no other state. */
TP_API int64_t tp_examples_feed(tp_examples *X, tp_tape *T, tp_part part, int64_t epoch,
                                int64_t step, tp_tensor slot[]);

#ifdef __cplusplus
}
#endif
#endif
