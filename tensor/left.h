/* left.h - what outlives the objects on a device, so that a program that frees them in the wrong
 * order, or uses them after that, gets a message: host memory of freed objects, module paths, and
 * the number of objects that still need the device. */
#ifndef TP_LEFT_H
#define TP_LEFT_H

#include <stdbool.h>

#include "tensor/backend.h"

/* ---- a hash table from names to numbers; the names belong to the caller ---- */

typedef struct tp_name {
    const char *name; /* NULL: a free slot */
    uint64_t hash;
    int value;
} tp_name;

typedef struct tp_names {
    tp_name *slot;
    int n, cap; /* cap: 0 or a power of two, at least twice n */
} tp_names;

const tp_name *tp__names_find(const tp_names *N, const char *name); /* NULL: not found */
bool tp__names_add(tp_names *N, const char *name, int value); /* new name; false: out of memory */

/* ---- leftovers ---- */

enum { TP_LEFT_SIZES = 4 }; /* parameters' nodes, tapes' nodes, sets, tapes */

/* Pieces of one size, free for tp__left_take. */
typedef struct tp_left_pieces {
    size_t bytes;
    struct tp_left_piece *first;
} tp_left_pieces;

typedef struct tp_left {
    tp_lock lock;
    tp_left_pieces pieces[TP_LEFT_SIZES];
    tp_names texts; /* owned */
    int users;      /* objects that have not been freed */
    bool closed;    /* tp_device_close was called */
} tp_left;

bool tp__left_new(tp_device *D); /* false: out of memory */

/* Counts an object on D; after tp_device_close, D stays, as a failed device, until the last one
 * leaves. Ignores NULL and devices that could not be opened. */
void tp__device_enter(tp_device *D);
void tp__device_leave(tp_device *D);

/* Returns a copy of s that lives as long as D, or NULL. */
const char *tp__left_text(tp_device *D, const char *s);

/* device.c: frees a closed device. */
void tp__device_free(tp_device *D);

#endif
