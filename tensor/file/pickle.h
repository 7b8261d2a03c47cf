/* pickle.h - values of a Python pickle, without Python.
 *
 * A pickle is a program for a stack machine, and Python's lets it call any function. This one has
 * the instructions that build values (protocols 2 to 5) and nothing else: a class or function is a
 * name, and a call is a value that holds the name and its arguments. Names that the caller does not
 * allow are refused, so is everything that is left.
 *
 * Sizes are limited; the input may be anything. */
#ifndef TP_PICKLE_H
#define TP_PICKLE_H

#include "tensor/error.h"

typedef enum tp_pickle_kind {
    TP_PICKLE_NONE,
    TP_PICKLE_BOOL,
    TP_PICKLE_INT,
    TP_PICKLE_FLOAT,
    TP_PICKLE_TEXT, /* str and bytes; also whole numbers that need more than 64 bits, as bytes */
    TP_PICKLE_TUPLE,
    TP_PICKLE_LIST, /* and sets */
    TP_PICKLE_DICT,
    TP_PICKLE_NAME, /* a class or function: "module.name"           */
    TP_PICKLE_CALL, /* callee(args), with its items and state       */
    TP_PICKLE_ID,   /* a persistent id: what is stored elsewhere    */
    TP_PICKLE_NKINDS
} tp_pickle_kind;

/* Values may be shared, and may contain themselves. */
typedef struct tp_pickle_value tp_pickle_value;
struct tp_pickle_value {
    tp_pickle_kind kind;
    union {
        int64_t whole; /* BOOL, INT */
        double real;
        struct { /* TEXT, NAME: `size` bytes, which may contain 0, and a 0 behind them */
            const char *text;
            size_t size;
        };
        struct { /* TUPLE, LIST; DICT and CALL: keys and values in turn */
            tp_pickle_value **at;
            size_t n, room;
        };
    };
    const tp_pickle_value *callee, *state; /* CALL: a NAME; what BUILD has given, or NULL */
    tp_pickle_value *args;                 /* CALL: a TUPLE. ID: any value                */
};

typedef struct tp_pickle tp_pickle;

/* A machine for pickles between two offsets of a file. allows: may a pickle have this name? Never
 * NULL. */
tp_pickle *tp__pickle_new(int fd, size_t from, size_t to, bool (*allows)(const char *name));
void tp__pickle_free(tp_pickle *p);

/* The value of the next pickle, alive until the machine is freed. NULL after an error. */
const tp_pickle_value *tp__pickle_next(tp_pickle *p);

/* All persistent ids so far, in the order in which they were made. */
tp_pickle_value *const *tp__pickle_ids(const tp_pickle *p, size_t *n);

const tp_err *tp__pickle_error(const tp_pickle *p); /* TP_OK: none */
size_t tp__pickle_offset(const tp_pickle *p);       /* of the first byte that was not used */

/* Is v a TEXT or NAME that reads so? NULL never is. */
bool tp__pickle_is(const tp_pickle_value *v, tp_pickle_kind kind, const char *text);

/* The value of a key, which is a TEXT, of a DICT or CALL; NULL if it has none. */
const tp_pickle_value *tp__pickle_find(const tp_pickle_value *v, const char *key);

#endif
