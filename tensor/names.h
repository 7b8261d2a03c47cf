/* names.h - a hash table from names to numbers; the names belong to the caller. */
#ifndef TP_NAMES_H
#define TP_NAMES_H

#include <stdbool.h>
#include <stdint.h>

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
bool tp__names_add(tp_names *N, const char *name, int value); /* a new name; false: out of memory */

#endif
