/* dataset.h - data sets of your own: arrays in memory, files of tensors, CSV and JSON lines. Part
 * of the data library.
 *
 *     row        element i of every array, row i of a table, or line i of a file; it has fields
 *     make       your function reads fields of a row and writes an example's tensors
 *     loader     shuffles, batches, pads and prefetches the examples (loader.h)
 *
 * A row that cannot be read is a bad example: loaders report it once with file and line and pass
 * over it, or fail if they are strict. */
#ifndef TAPEGRAD_DATASET_H
#define TAPEGRAD_DATASET_H

#include <tapegrad/loader.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sets ---- */

/* Constructors never return NULL: tp_dataset_why says what is wrong. Errors are sticky. A set does
 * not change once it is made, except that tp_dataset_classes adds labels: any number of threads and
 * loaders may read it at the same time. */
typedef struct tp_dataset tp_dataset;

typedef struct tp_dataset_opts {
    /* A file of more (unpacked) bytes is not held in memory: of texts an index is, 12 bytes for a
     * row; packed ones are unpacked into an unnamed temporary file. 0: 64 MiB */
    size_t memory;
    /* files of tensors: the names of those to read, at most TP_MAX_FIELDS; NULL: all */
    const char *const *field;
    int fields;
    const char
        *missing; /* texts: a cell or string that is this counts as empty ("NA"); NULL: none */
    /* CSV */
    char separator; /* 0: comma */
    char comment;   /* lines that begin with it are passed over; 0: none */
    bool no_header; /* the first row is data, and columns are called "1", "2", ... */
    bool no_quotes; /* '"' is a character like any other */
} tp_dataset_opts;

enum { TP_MAX_FIELDS = 64 };

/* An array in host memory: shape[0] rows. */
typedef struct tp_row_array {
    const char *name;
    tp_dtype dtype;
    tp_shape shape;
    const void *data; /* must outlive the set */
} tp_row_array;

/* n arrays of as many rows each; nothing is copied. For tensors, read their values with tp_read
 * first. */
TP_API tp_dataset *tp_dataset_arrays(int n, const tp_row_array array[]);

/* The tensors of a file that tp_file_open reads: .npy (field "arr_0"), .npz, safetensors. All that
 * are chosen have as many rows. Larger files are read row by row, one thread at a time. o may be
 * NULL, here and below. */
TP_API tp_dataset *tp_dataset_file(const char *path, const tp_dataset_opts *o);

/* A CSV file, plain or packed (.gz .xz .zip .zst .bz2), in this dialect of RFC 4180:
 *
 *   - A row ends with LF or CRLF, and spans lines in quoted cells. Empty lines are passed over.
 *   - A cell that begins with '"' ends with the next '"' that is not doubled; `""` is a '"'. Text
 *     after the end, and a '"' within a cell that does not begin with one, are errors.
 *   - The first row names the columns. A column without a name is called by its number from 1.
 *   - Blanks belong to a cell; numbers may have some around them. Numbers have a decimal point, no
 *     separators of thousands, and are finite.
 *   - UTF-8 or another encoding that extends ASCII; a byte order mark of UTF-8 is passed over.
 *   - A row has at most 16 MiB and 16384 cells. One with more or fewer cells than the first is
 *     bad. */
TP_API tp_dataset *tp_dataset_csv(const char *path, const tp_dataset_opts *o);

/* JSON lines, plain or packed: an object on each line of at most 16 MiB, in UTF-8; its members are
 * the fields. Lines of white space are passed over. An object that has a name twice is a bad
 * row. */
TP_API tp_dataset *tp_dataset_json_lines(const char *path, const tp_dataset_opts *o);

/* The rows with these numbers, in this order; they may repeat. X must outlive the result. */
TP_API tp_dataset *tp_dataset_choose(const tp_dataset *X, const int64_t *number, int64_t n);

TP_API void tp_dataset_free(tp_dataset *X);
TP_API bool tp_dataset_ok(const tp_dataset *X);
TP_API tp_code tp_dataset_code(const tp_dataset *X); /* TP_OK while it is ok */
TP_API const char *tp_dataset_why(const tp_dataset *X);
TP_API int64_t tp_dataset_count(const tp_dataset *X); /* 0 if X has failed */

/* Field i in the order of the file; NULL: there are no more, or X is of JSON lines. */
TP_API const char *tp_dataset_field(const tp_dataset *X, int i);

/* ---- classes ---- */

/* Reads a field of all rows and numbers its distinct texts from 0: in the order of numbers if
 * all are integers, otherwise of bytes. Returns how many there are; 0: X has failed, by a row
 * that cannot be read, for example, or because it is a part whose whole has no such classes. Not
 * while other threads use X. */
TP_API int32_t tp_dataset_classes(tp_dataset *X, const char *field);
/* The text of a class, and the classes of all rows [count]. NULL: none, or X has failed, or
 * tp_dataset_classes(X, field) was not called. A chosen part has the classes of its whole, which
 * must have been numbered before it was made. */
TP_API const char *tp_dataset_class(const tp_dataset *X, const char *field, int32_t class_number);
TP_API const int32_t *tp_dataset_labels(const tp_dataset *X, const char *field);

/* ---- a row ---- */

/* What your function is given, valid until it returns; one thread uses it. Fields are found by
 * name. A function that cannot answer returns 0, "" or false, and the row is bad, for the first
 * reason: a cell is missing or is not a number, for example. A field that no row of CSV or of
 * arrays has is an error of the program, which fails the loader. */
typedef struct tp_row tp_row;

TP_API double tp_row_real(tp_row *r, const char *field);
TP_API int64_t tp_row_int(tp_row *r, const char *field);
/* The text of a cell, a string or a number, valid as long as r or until the next call for a
 * number's. */
TP_API const char *tp_row_text(tp_row *r, const char *field);
/* The class of the field's text (tp_dataset_classes). */
TP_API int32_t tp_row_label(tp_row *r, const char *field);
/* True for an empty cell, one of blanks or opts.missing, for null, and for a missing member. */
TP_API bool tp_row_is_empty(tp_row *r, const char *field);
/* How many values tp_row_read finds: those of the row's part of an array; those of a JSON
 * list, nested or not; the cells of a row from that column on. 1 for single values. */
TP_API int64_t tp_row_length(tp_row *r, const char *field);
/* Reads n values to `to`, as dt, not bf16. Fewer of them are an error, and so are more in arrays
 * and lists, integers that do not fit, and fractions for integers; 2.0 is an integer. JSON's true
 * and false are 1 and 0. */
TP_API bool tp_row_read(tp_row *r, const char *field, int64_t n, tp_dtype dt, void *to);
/* The object of a JSON line, to be read with jansson (jansson.h); NULL for other sets. */
TP_API struct json_t *tp_row_json(tp_row *r);
/* Makes the row bad, unless it is already, for a reason of your own. Returns false. */
TP_API bool tp_row_fail(tp_row *r, const char *format, ...) TP_PRINTF(2, 3);

/* Calls f for every row in order on this thread, to find means and deviations, for example. False
 * with the reason, which names file and line, in why: f returned false, or a row is bad. */
TP_API TP_CHECKED bool tp_dataset_each(const tp_dataset *X, bool (*f)(void *env, tp_row *r),
                                       void *env, char *why, size_t size);

/* ---- loaders ---- */

typedef struct tp_row_source {
    int columns; /* of an example, at most TP_MAX_COLUMNS */
    const tp_column *column;
    /* Writes column c of the example to value[c]. False: the row is bad. Workers call it at the
     * same time, so it may change nothing that calls share (env included); the result must depend
     * on its arguments alone. Random numbers: tp_random_stream(e->seed, "name", e->place,
     * e->epoch). */
    bool (*make)(void *env, tp_row *r, const tp_loader_example *e, void *const value[]);
    /* Pads batches: see tp_example_source. Called once for every row by the constructor, on its
     * thread. A bad row has no length. */
    int64_t (*length)(void *env, tp_row *r, int column);
    const double *pad; /* [columns] */
    void *env;
} tp_row_source;

/* A loader of examples that s->make makes of rows, to be used like one of tp_example_loader_new.
 * X must outlive it, s need not. */
TP_API tp_loader *tp_row_loader_new(const tp_dataset *X, const tp_row_source *s,
                                    const tp_loader_opts *o);

/* ---- parts for training and validation ---- */

typedef struct tp_split_opts {
    uint64_t seed;
    double held_back; /* the fraction, above 0 and below 1; or, instead, */
    int folds;        /* at least 2: part `fold`, from 0, of so many is held back */
    int fold;
    /* [n]: every class is divided in the same proportion, to within one example; NULL: at random */
    const int32_t *label;
} tp_split_opts;

/* Divides the numbers 0 to n-1. Those of a part go to number [n] in ascending order: TP_TRAIN, or
 * those that are held back for any other part. The held-back parts of all folds are disjoint, have
 * equal sizes to within one, and together are everything. The result depends on the arguments
 * alone, on any machine. Returns how many there are; 0, with the reason in why: an option is out of
 * range, or a part would be empty. */
TP_API int64_t tp_split_numbers(int64_t n, tp_part part, const tp_split_opts *o, int64_t *number,
                                char *why, size_t size);
/* That part of a set: tp_dataset_choose. */
TP_API tp_dataset *tp_dataset_split(const tp_dataset *X, tp_part part, const tp_split_opts *o);

#ifdef __cplusplus
}
#endif
#endif
