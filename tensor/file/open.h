/* open.h - an open file: what the reader of a format fills and tensors are read from. */
#ifndef TP_FILE_OPEN_H
#define TP_FILE_OPEN_H

#include <jansson.h>

#include "tensor/file/checksum.h"
#include "tensor/file/inner.h"

#define TP_FILE_AGAIN "; the file is damaged: copy, download or write it again"

typedef struct tp_file_entry { /* of the index by name */
    const char *name;
    const tp_file_tensor *tensor;
} tp_file_entry;

struct tp_file {
    tp_err err;
    char *path;
    int fd;
    size_t size, data_from, data_size; /* data: from the first byte after the header */
    json_t *root, *meta;               /* names and metadata are strings of these    */
    int n;
    tp_file_tensor *at; /* by offset */
    void **bytes;       /* [n]: what tp_file_data has given, or NULL */
    uint64_t *sums;     /* [n]: checksums by offset, or NULL         */
    bool *sound;        /* [n]: was the checksum compared?           */
    tp_sum *sum;
    tp_file_entry *by_name;
};

/* Makes room for n tensors, none of which is there yet. False with F failed. */
bool tp__file_reserve(tp_file *F, size_t n);

/* Sorts the index by name, once all tensors are in their final order. */
void tp__file_index(tp_file *F);

/* Reads n bytes from an offset of the file; they were there when it was opened. */
bool tp__file_at(tp_file *F, size_t from, void *to, size_t n);

/* Parses JSON. NULL with *e filled (unless e is NULL), or with F failed if memory is short. */
json_t *tp__file_json(tp_file *F, const char *text, size_t length, size_t flags, json_error_t *e);

/* Reads the header of a safetensors file into F: tensors, metadata, checksums. F fails if anything
 * of it is wrong. */
void tp__file_header(tp_file *F);

#endif
