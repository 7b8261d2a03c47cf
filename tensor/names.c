/* names.c - a hash table from names to numbers, with open addressing. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "tensor/names.h"

/* The slot of a name, or the free slot where it belongs. */
static tp_name *slot_of(const tp_names *N, uint64_t hash, const char *name)
{
    const size_t mask = (size_t)N->cap - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        tp_name *s = &N->slot[i];
        if (!s->name || (s->hash == hash && strcmp(s->name, name) == 0)) return s;
    }
}

static bool grow(tp_names *N)
{
    tp_names wide = { .n = N->n, .cap = N->cap ? 2 * N->cap : 128 };
    wide.slot = calloc((size_t)wide.cap, sizeof *wide.slot);
    if (!wide.slot) return false;
    for (int i = 0; i < N->cap; i++)
        if (N->slot[i].name) *slot_of(&wide, N->slot[i].hash, N->slot[i].name) = N->slot[i];
    free(N->slot);
    *N = wide;
    return true;
}

const tp_name *tp__names_find(const tp_names *N, const char *name)
{
    if (N->n == 0) return NULL;
    const tp_name *s = slot_of(N, tp_hash_text(TP_HASH, name), name);
    return s->name ? s : NULL;
}

bool tp__names_add(tp_names *N, const char *name, int value)
{
    if (N->n >= N->cap / 2 && !grow(N)) return false;
    const uint64_t hash = tp_hash_text(TP_HASH, name);
    *slot_of(N, hash, name) = (tp_name){ name, hash, value };
    N->n++;
    return true;
}
