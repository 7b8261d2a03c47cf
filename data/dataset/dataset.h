/* dataset.h - what the files of data sets share: a set, the row that a caller reads, and what each
 * kind of set does for it. */
#ifndef TP_DATASET_H
#define TP_DATASET_H

#include <pthread.h>
#include <tapegrad/dataset.h>

#include "dataset/text_index.h"
#include "kit.h"

/* The classes of a field. */
typedef struct tp_classes {
    char *field;
    int32_t n, *label; /* [count] */
    char **name;       /* [n] */
} tp_classes;

/* An array, in memory or in a file. */
typedef struct tp_array {
    char *name;
    tp_dtype dtype;
    int64_t each; /* values of a row */
    int64_t first_axis;
    const unsigned char *data; /* of the caller, or: */
    void *own;                 /* all of it, or: */
    const tp_file_tensor *in_file;
} tp_array;

/* What a kind of set does. Those that return false or NULL have failed the row. */
typedef struct tp_dataset_kind {
    const char *row; /* "line": rows are named by the line of a file; NULL: by their numbers */
    bool (*load)(tp_row *r);
    void (*unload)(tp_row *r);
    bool (*read)(tp_row *r, const char *field, int64_t n, tp_dtype dt, void *to);
    int64_t (*length)(tp_row *r, const char *field); /* -1: failed */
    const char *(*text)(tp_row *r, const char *field);
    bool (*is_empty)(tp_row *r, const char *field);
} tp_dataset_kind;

struct tp_dataset {
    const tp_dataset_kind *kind;
    char name[480]; /* of the file */
    int64_t count;
    tp_code code;
    char why[TP_WHY];
    tp_classes *classes;
    size_t nclasses, classes_room;
    /* a chosen part */
    const tp_dataset *whole; /* never a part itself; NULL: this is no part */
    int64_t *number;         /* [count]: of the whole */
    /* texts */
    tp_text_index *text;
    int64_t first;                  /* rows of it before the first of the set: a header */
    char separator, comment, quote; /* quote 0: none */
    char *missing, *header;
    char **field; /* [fields], in header */
    int fields;
    /* arrays */
    tp_array array[TP_MAX_FIELDS];
    int arrays;
    tp_file *file;
    pthread_mutex_t lock; /* of the file */
};

struct tp_row {
    const tp_dataset *X; /* the whole */
    int64_t number;      /* in it */
    tp_example_state state;
    char why[TP_EXAMPLE_WHY];
    char *bytes, **cell; /* of texts; cells of CSV */
    size_t room, cells_room;
    struct json_t *json;
    char shown[32]; /* the text of a number */
};

/* Fails a new set. Returns false. */
bool tp__dataset_fail(tp_dataset *X, tp_code code, const char *format, ...) TP_PRINTF(3, 4);

/* An empty set of a kind. NULL: out of memory; return &tp__no_dataset. */
tp_dataset *tp__dataset_new(const tp_dataset_kind *kind, const char *name);
extern tp_dataset tp__no_dataset;

/* The place of a field among names; -1: none. */
int tp__field_at(const tp_dataset *X, const char *field);

/* Begins to read row `number` of X; end it in either case. False: it has failed. */
bool tp__row_begin(tp_row *r, const tp_dataset *X, int64_t number);
void tp__row_end(tp_row *r);
/* Names a row in messages: "data.csv, line 7". */
const char *tp__row_name(const tp_dataset *X, int64_t number, char *buf, size_t size);
/* Fails a row in another way than tp_row_fail: not the row's fault. Returns false. */
bool tp__row_broken(tp_row *r, tp_example_state state, const char *format, ...) TP_PRINTF(3, 4);

/* Is x an integer of 64 bits? */
static inline bool tp__is_int64(double x)
{
    return x >= -0x1p63 && x < 0x1p63 && x == (double)(int64_t)x;
}

/* Stores a value as element i; `what` names it in the reason for a failure. */
bool tp__row_store(tp_row *r, const char *what, tp_dtype dt, void *to, int64_t i, double x);
bool tp__row_store_int(tp_row *r, const char *what, tp_dtype dt, void *to, int64_t i, int64_t x);

#endif
