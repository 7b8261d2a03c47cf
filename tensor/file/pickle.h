/* pickle.h - values of a Python pickle, without Python.
 *
 * A pickle is a program for a stack machine, and Python's machine lets it call any function. This
 * machine has only the instructions that build values (protocols 2 to 5). A class or function is a
 * name, and a call is a value that holds the name and its arguments. Names not allowed by the
 * caller are refused, and so are all other instructions.
 *
 * The input is untrusted, and sizes are limited. */
#ifndef TP_PICKLE_H
#define TP_PICKLE_H

#include "tensor/error.h"

typedef enum tp_pickle_kind {
    TP_PICKLE_NONE,
    TP_PICKLE_BOOL,
    TP_PICKLE_INT,
    TP_PICKLE_FLOAT,
    TP_PICKLE_TEXT, /* str and bytes; also integers of more than 64 bits, as bytes */
    TP_PICKLE_TUPLE,
    TP_PICKLE_LIST, /* lists and sets */
    TP_PICKLE_DICT,
    TP_PICKLE_NAME, /* a class or function: "module.name" */
    TP_PICKLE_CALL, /* callee(args), with its items and state */
    TP_PICKLE_ID,   /* a persistent id of data stored elsewhere */
    TP_PICKLE_NKINDS
} tp_pickle_kind;

/* Values may be shared and may contain themselves. */
typedef struct tp_pickle_value tp_pickle_value;
struct tp_pickle_value {
    tp_pickle_kind kind;
    union {
        int64_t whole; /* BOOL, INT */
        double real;
        struct { /* TEXT, NAME: `size` bytes, which may contain 0, followed by a 0 */
            const char *text;
            size_t size;
        };
        struct { /* TUPLE, LIST; DICT and CALL: alternating keys and values */
            tp_pickle_value **at;
            size_t n, room;
        };
    };
    const tp_pickle_value *callee, *state; /* CALL: a NAME; the state set by BUILD, or NULL */
    tp_pickle_value *args;                 /* CALL: a TUPLE. ID: any value */
};

typedef struct tp_pickle tp_pickle;

/* Creates a machine for the pickles between two offsets of a file. `allows` decides which names a
 * pickle may use. Never returns NULL. */
tp_pickle *tp__pickle_new(int fd, size_t from, size_t to, bool (*allows)(const char *name));
void tp__pickle_free(tp_pickle *p);

/* The value of the next pickle, valid until the machine is freed. NULL after an error. */
const tp_pickle_value *tp__pickle_next(tp_pickle *p);

/* All persistent ids so far, in order of creation. */
tp_pickle_value *const *tp__pickle_ids(const tp_pickle *p, size_t *n);

const tp_err *tp__pickle_error(const tp_pickle *p); /* TP_OK: none */
size_t tp__pickle_offset(const tp_pickle *p);       /* offset of the first unused byte */

/* Whether v is a TEXT or NAME with this text; false if v is NULL. */
bool tp__pickle_is(const tp_pickle_value *v, tp_pickle_kind kind, const char *text);

/* The value of a TEXT key in a DICT or CALL; NULL if the key is absent. */
const tp_pickle_value *tp__pickle_find(const tp_pickle_value *v, const char *key);

#endif
