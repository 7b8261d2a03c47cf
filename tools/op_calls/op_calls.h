/* op_calls.h - calls any function of tapegrad/ops/ by its name, with inputs in an array and options
 * by name. The table of functions is made from their prototypes (cmake/signatures.cmake). */
#ifndef OP_CALLS_H
#define OP_CALLS_H

#include <tapegrad/tapegrad.h>

enum { OP_CALL_PARAMETERS = 12, OP_CALL_NUMBERS = 8 }; /* the most of a function, of a list */

/* What a parameter or a member of a configuration is. OP_OPERAND: a tensor or a number. OP_TENSORS:
 * an array, whose length is the parameter before. OP_RESULT: receives a further result. OP_POINTER:
 * receives something else, and may be NULL. OP_CHOICE: an enumeration. */
typedef enum op_kind {
    OP_TENSOR,
    OP_OPERAND,
    OP_TENSORS,
    OP_RESULT,
    OP_POINTER,
    OP_INT,
    OP_INT64,
    OP_DOUBLE,
    OP_BOOL,
    OP_DTYPE,
    OP_SHAPE,
    OP_TEXT,
    OP_CHOICE,
    OP_STRUCT
} op_kind;

typedef struct op_field op_field;
struct op_field {
    const char *name; /* NULL ends the table */
    op_kind kind;
    size_t at;                  /* of a member: its place in the struct     */
    int count;                  /* of a member: elements, 1 unless an array; of a parameter 0 */
    const op_field *members;    /* OP_STRUCT                                */
    const char *const *choices; /* OP_CHOICE: the names of the enumeration  */
};

/* The value of a parameter. */
typedef union op_value {
    tp_tensor of_tensor;
    tp_operand of_operand;
    void *of_pointer; /* also of text */
    int of_int;
    int64_t of_int64;
    double of_double;
    bool of_bool;
    tp_dtype of_dtype;
    tp_shape of_shape;
#include "op_values.h"
} op_value;

typedef struct op_signature {
    const char *name;           /* "tp_add"; NULL ends the table */
    const char *header;         /* "ops/elementwise.h" */
    const op_field *parameters; /* without the tape */
    int (*call)(tp_tape *T, const op_value *v,
                tp_tensor *y); /* returns the number of results in y */
} op_signature;

extern const op_signature op_signatures[];

/* The function tp_NAME, or tp_NAME_n; NULL if there is none. */
const op_signature *op_signature_of(const char *name);

/* Where the options of a call come from. numbers writes up to `max` numbers of the option `name`
 * and returns how many it has, -1 if it is missing; text returns a word, or NULL; name returns the
 * name of option i, NULL past the last one. */
typedef struct op_options {
    const void *env;
    int (*numbers)(const void *env, const char *name, int max, double *out);
    const char *(*text)(const void *env, const char *name);
    const char *(*name)(const void *env, int i);
} op_options;

/* Calls a function. x[0..nx) are its tensors in the order of its parameters and of their members,
 * TP_NONE where absent; an absent operand is the number `k`. Its other parameters and their members
 * are options of their names, 0 where they are missing: but of `dt`, which is TP_F64, and of
 * `axes`, which are all. A choice is named by what distinguishes it ("mean_all" for TP_MEAN_ALL),
 * axes are a list, which `keep` keeps. Returns the number of results, which are written to y. An
 * option that the function does not have, and a word that is none of an option's, are errors of the
 * tape. */
int op_call(tp_tape *T, const op_signature *s, int nx, const tp_tensor *x, op_options o,
            tp_tensor *y);

#endif
