/* zip.h - locates the entries of a ZIP archive, so that they can be read as parts of a file. */
#ifndef TP_ZIP_H
#define TP_ZIP_H

#include <stdio.h>

#include "tensor/error.h"

typedef struct tp_zip_entry {
    char *name;
    size_t size;
    int64_t from; /* offset in the file, or in the stream of tp__zip_unpack; -1: compressed */
    bool wanted, unpacked; /* wanted by the caller; unpacked into the stream */
    size_t order;          /* its number in the archive */
    uint32_t sum;          /* CRC-32 */
    bool has_sum;
} tp_zip_entry;

typedef struct tp_zip {
    tp_err err;
    int fd;
    tp_zip_entry *at; /* sorted by name */
    size_t n, room;
} tp_zip;

/* Reads the archive's directory. False: z->err says why. Free z in both cases. */
bool tp__zip_open(tp_zip *z, int fd);
void tp__zip_free(tp_zip *z);

tp_zip_entry *tp__zip_find(const tp_zip *z, const char *name); /* NULL: none */

/* Reads the CRC-32 of stored entries from the directory; those that it does not list, which
 * libarchive has found otherwise, have none. */
void tp__zip_sums(tp_zip *z);

/* Sorts the entries as they are in the archive, after the last tp__zip_find. */
void tp__zip_in_order(tp_zip *z);

/* Appends all wanted compressed entries, unpacked, to a stream, in one pass. */
bool tp__zip_unpack(tp_zip *z, FILE *to);

#endif
