/* pickle_inner.h - the machine's input, arena and stack (pickle_stack.c), and its instructions
 * (pickle.c). After an error all of these functions do nothing. */
#ifndef TP_PICKLE_INNER_H
#define TP_PICKLE_INNER_H

#include "tensor/file/pickle.h"

#define TP_PICKLE_DAMAGED "; the file is damaged: copy or download it again"

enum { TP_PICKLE_BUFFER = 1 << 14 };

typedef struct tp_pickle_chunk tp_pickle_chunk;
struct tp_pickle_chunk {
    tp_pickle_chunk *next;
    size_t used, room;
    _Alignas(16) unsigned char bytes[];
};

typedef struct tp_pickle_stack {
    tp_pickle_value **at;
    size_t n, room;
} tp_pickle_stack;

struct tp_pickle {
    tp_err err;
    int fd;
    size_t at, end;     /* in the file: the next byte to buffer, the end of the pickles */
    size_t first, last; /* the unused part of the buffer                                */
    unsigned char buffer[TP_PICKLE_BUFFER];
    bool (*allows)(const char *name);
    tp_pickle_chunk *chunks;
    size_t bytes, values;
    tp_pickle_stack stack, marks, memo; /* marks: stack positions, in `whole`; memo: by index */
    tp_pickle_stack ids;
    tp_pickle_value none; /* popped if an operand is missing */
    bool stopped;
};

bool tp__pickle_ok(const tp_pickle *p);

/* "TEXT, at offset N; the file is damaged ..." */
void tp__pickle_fail(tp_pickle *p, const char *text);

/* Read the next n bytes, or a little-endian number of at most 8 bytes; zeros after an error. */
void tp__pickle_take(tp_pickle *p, void *to, size_t n);
uint64_t tp__pickle_number(tp_pickle *p, size_t n);

/* Memory that lives as long as the machine. NULL after an error. */
void *tp__pickle_allocate(tp_pickle *p, size_t n);
tp_pickle_value *tp__pickle_new_value(tp_pickle *p, tp_pickle_kind kind);
tp_pickle_value *tp__pickle_new_text(tp_pickle *p, tp_pickle_kind kind, uint64_t size);

/* Push a value unless it is NULL. */
void tp__pickle_push_to(tp_pickle *p, tp_pickle_stack *s, tp_pickle_value *v);
void tp__pickle_push(tp_pickle *p, tp_pickle_value *v);

/* Never return NULL: after an error they return a value that nothing else refers to. */
tp_pickle_value *tp__pickle_pop(tp_pickle *p);
tp_pickle_value *tp__pickle_top(tp_pickle *p);

/* Removes the last mark and returns its position on the stack; the operands are above it. */
size_t tp__pickle_pop_mark(tp_pickle *p);
size_t tp__pickle_floor_of(const tp_pickle *p); /* the same, without removing it; 0: no mark */

/* Moves the n topmost values of the stack to the end of a container. */
void tp__pickle_gather(tp_pickle *p, tp_pickle_value *to, size_t n);

#endif
