/* writer.h - a writer's tensors, shared by the file that collects them (write.c) and the one that
 * writes them (commit.c). */
#ifndef TP_WRITER_H
#define TP_WRITER_H

#include <jansson.h>

#include "tensor/file/inner.h"

typedef struct tp_item {
    char *name;
    tp_view view; /* dtype and shape */
    size_t bytes, begin;
    int order;       /* index in order of addition */
    void *own;       /* a copy of the data, or NULL */
    tp_owned whole;  /* the data of this process, */
    tp_owned *parts; /* or, unless NULL, n stretches of several processes */
    int n;
} tp_item;

struct tp_writer {
    tp_err err;
    char *path;
    json_t *meta;
    tp_item *items;
    int n;
    size_t cap;
    bool numpy;                     /* NumPy's formats instead of safetensors */
    bool committed, no_nan, finite; /* no_nan refuses NaN, finite also infinity */
};

/* W, or a failed writer if W is NULL. */
tp_writer *tp__writer_some(const tp_writer *W);

/* Fails W unless it has failed already; the text begins with "PATH cannot be written: ". */
void tp__writer_failf(tp_writer *W, tp_code code, const char *fmt, ...) TP_PRINTF(3, 4);
void tp__writer_no_memory(tp_writer *W);

/* Checks what a writer of NumPy's formats has collected. False with W failed. */
bool tp__writer_arrays(tp_writer *W);

/* Assigns the offsets: wide elements first, so that all tensors are aligned without gaps. */
void tp__writer_place(tp_writer *W);
/* The JSON text with zeros as checksums, or NULL with W failed. The caller frees it. */
char *tp__writer_header(tp_writer *W);

#endif
