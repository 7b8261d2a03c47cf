/* data.h - readers of training data (own library). */
#ifndef TAPEGRAD_DATA_H
#define TAPEGRAD_DATA_H

#include <tapegrad/tapegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- text as token ids: enwik8, text8 or any file (specification, section 7) ---- */

/* The dictionary belongs to the model: ids 0 <s>, 1 <pad>, 2 </s>, 3 <unk>, then symbols by
 * descending count, then fillers up to a multiple of 8. */
typedef enum tp_text_style {
    TP_TEXT_AUTO,   /* text8 if only a-z and blanks occur, else enwik8                      */
    TP_TEXT_ENWIK8, /* bytes; newline becomes </s>                                          */
    TP_TEXT_TEXT8,  /* characters a-z and blank ("_"); one </s> at the end of a split       */
    TP_TEXT_BYTES   /* token id = byte value, V = 256; no specials                          */
} tp_text_style;
typedef struct tp_vocab {
    tp_text_style style;
    int64_t size;        /* V */
    int16_t symbol[512]; /* id -> byte, -1: special or filler (text8's "_" is byte 32) */
    int16_t id[256];     /* byte -> id (unknown bytes: 3)     */
    int64_t count[512];  /* occurrences in the training split */
} tp_vocab;

/* "enwik8:32,101,..." and back (without counts): how a checkpoint stores it. print: false if buf is
 * too small (2048 always do); parse: false if s is malformed. */
TP_API bool tp_vocab_print(const tp_vocab *v, char *buf, size_t size);
TP_API bool tp_vocab_parse(tp_vocab *v, const char *s);
/* Builds the dictionary from a training split of n bytes. */
TP_API void tp_vocab_build(tp_vocab *v, tp_text_style style, const uint8_t *train, int64_t n);

/* A text in memory, split in train, valid and test. */
typedef enum tp_part { TP_TRAIN, TP_VALID, TP_TEST } tp_part;
typedef struct tp_text tp_text;
typedef struct tp_text_opts {
    tp_text_style style;
    const tp_vocab *vocab; /* of a checkpoint; NULL: built from the training split */
    double valid, test; /* fractions; both 0: 5 million bytes each of a 100 million byte file, 0.05
                           each of any other (train is what remains)                              */
    int64_t limit;     /* read at most that many bytes; 0: all                                    */
    const char *extra; /* a file that is appended to the training split as it is, or NULL      */
} tp_text_opts;

/* Reads a plain file or .gz .xz .zip .zst .bz2 (libarchive), which must be a regular file: no pipe,
 * no device. Never NULL: tp_text_why says what is wrong (missing, empty, truncated archive, too
 * short ...). A few bytes can unpack to any length: give a limit where the file is not trusted. */
TP_API tp_text *tp_text_open(const char *path, const tp_text_opts *o);
/* The same over bytes in memory, which are copied. */
TP_API tp_text *tp_text_from(const uint8_t *bytes, int64_t n, const tp_text_opts *o);
TP_API void tp_text_close(tp_text *X);
TP_API bool tp_text_ok(const tp_text *X);
TP_API const char *tp_text_why(const tp_text *X);
TP_API const tp_vocab *tp_text_vocab(const tp_text *X);
TP_API int64_t tp_text_bytes(const tp_text *X, tp_part part);
TP_API const int16_t *tp_text_ids(const tp_text *X, tp_part part, int64_t *n); /* token ids */

/* Batches of contiguous streams (the official layout): the ids are cut in blocks of `tokens`, and
 * stream b of `batch` gets the b-th run of consecutive blocks; the rest is dropped. all_targets:
 * the target of a segment's last position is the next token, else -1 (not counted). Position wraps
 * around at the end (a new epoch). */
typedef struct tp_bytes_opts {
    int64_t batch, tokens;
    bool all_targets;
} tp_bytes_opts;
typedef struct tp_bytes tp_bytes;
TP_API tp_bytes *tp_bytes_new(const tp_text *X, tp_part part,
                              const tp_bytes_opts *o); /* never NULL */
TP_API void tp_bytes_free(tp_bytes *S);
TP_API bool tp_bytes_ok(const tp_bytes *S);
TP_API const char *tp_bytes_why(const tp_bytes *S);
TP_API int64_t tp_bytes_steps(const tp_bytes *S);         /* steps an epoch                    */
TP_API int64_t tp_bytes_position(const tp_bytes *S);      /* steps taken; saved in checkpoints */
TP_API void tp_bytes_seek(tp_bytes *S, int64_t position); /* 0 to 2^60; others: the nearest */
/* Next batch on T: x [B,M] ids, y [B,M] targets, both TP_I32. A failed reader fails T. */
TP_API void tp_bytes_next(tp_bytes *S, tp_tape *T, tp_tensor *x, tp_tensor *y);
/* Host form of the same: ids and targets [B*M]; false at a failed reader. */
TP_API bool tp_bytes_next_host(tp_bytes *S, int32_t *x, int32_t *y);

/* ---- tables: text files with a row a line, cells being separated by tabs or another byte ---- */

typedef struct tp_table tp_table;
typedef struct tp_table_opts {
    int columns;    /* of every row: the last cell takes what remains of its line. 0: exactly as
                       many as the first row has                                               */
    char separator; /* 0: tab                                                                  */
    bool header;    /* the first row names the columns and is none of the data                 */
    int64_t limit;  /* read at most that many bytes; 0: all                                    */
} tp_table_opts;

/* Reads a plain file or a compressed one as tp_text_open does. There is no quoting; line ends may
 * be CRLF, empty lines are left out. Never NULL: tp_table_why names file and line of what is wrong
 * (too few cells, a zero byte, no rows ...). o may be NULL. */
TP_API tp_table *tp_table_open(const char *path, const tp_table_opts *o);
/* The same over bytes in memory, which are copied. */
TP_API tp_table *tp_table_from(const char *bytes, size_t n, const tp_table_opts *o);
TP_API void tp_table_close(tp_table *X);
TP_API bool tp_table_ok(const tp_table *X);
TP_API const char *tp_table_why(const tp_table *X);
TP_API int64_t tp_table_rows(const tp_table *X); /* 0 of a failed one */
TP_API int tp_table_columns(const tp_table *X);
TP_API const char *tp_table_cell(const tp_table *X, int64_t row, int column); /* ends with a zero */
TP_API const char *tp_table_heading(const tp_table *X, int column); /* NULL without a header */

/* A column as labels: its distinct cells, in the order of their bytes, are numbered from 0. How
 * many there are, that of a row, and its text. The first call of them numbers the column; without
 * memory for it X fails, and these are 0 and "". */
TP_API int tp_table_labels(tp_table *X, int column);
TP_API int32_t tp_table_label(tp_table *X, int64_t row, int column);
TP_API const char *tp_table_label_name(tp_table *X, int column, int label);

/* ---- examples in memory, and batches of them ---- */

/* One value of every example: { TP_I32, TP_SCALAR } is a label. */
typedef struct tp_column {
    tp_dtype dtype;
    tp_shape shape;
} tp_column;

enum { TP_MAX_COLUMNS = 16 };
typedef struct tp_samples_opts {
    int64_t batch;
    uint64_t seed;
    int64_t hold_back; /* every so many-th example is for validation, 2 or more; 0: none */
} tp_samples_opts;

/* Each object owns a copy of its examples. Never NULL; errors stay with the object, and feeding
 * from a failed one fails the tape. */
typedef struct tp_samples tp_samples;
TP_API tp_samples *tp_samples_new(int columns, const tp_column *column, const tp_samples_opts *o);
TP_API void tp_samples_free(tp_samples *X);
TP_API bool tp_samples_ok(const tp_samples *X);
TP_API const char *tp_samples_why(const tp_samples *X);

/* One example: value[c] are the bytes of column c. */
TP_API void tp_samples_add(tp_samples *X, const void *const value[]);

TP_API int64_t tp_samples_count(const tp_samples *X, tp_part part); /* TP_TEST: as TP_VALID */
TP_API uint64_t tp_samples_hash(const tp_samples *X);               /* of all values so far */

/* Batches of an epoch: TP_TRAIN has whole ones only, fewer examples than a batch fail X. */
TP_API int64_t tp_samples_steps(tp_samples *X, tp_part part);

/* A batch into slots of T (tp_feed), one a column, [n,...] each; returns n, 0 if there is no such
 * step or T has failed. TP_TRAIN: shuffled anew for each epoch (below 2^31); else in order, the
 * last batch being smaller. Depends on nothing that was fed before: a resumed run needs no more. */
TP_API int64_t tp_samples_feed(tp_samples *X, tp_tape *T, tp_part part, int64_t epoch, int64_t step,
                               tp_tensor slot[]);

#ifdef __cplusplus
}
#endif
#endif
