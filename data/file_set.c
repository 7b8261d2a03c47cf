/* file_set.c - see the header: a hash table with open addressing. */
#include "file_set.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <tapegrad/random.h>

typedef struct tp_file_id id;

static size_t place_of(const tp_file_set *S, id x)
{
    size_t i = (size_t)tp_hash(tp_hash(TP_HASH, x.device), x.number) & (S->room - 1);
    while (S->slot[i].used && (S->slot[i].device != x.device || S->slot[i].number != x.number))
        i = (i + 1) & (S->room - 1);
    return i;
}

static bool grow(tp_file_set *S)
{
    tp_file_set more = { .count = S->count, .room = S->room ? 2 * S->room : 64 };
    more.slot = calloc(more.room, sizeof *more.slot);
    if (!more.slot) return false;
    for (size_t i = 0; i < S->room; i++)
        if (S->slot[i].used) more.slot[place_of(&more, S->slot[i])] = S->slot[i];
    free(S->slot);
    *S = more;
    return true;
}

bool tp__file_set_add(tp_file_set *S, const char *path, bool *fits)
{
    struct stat st;
    *fits = true;
    if (stat(path, &st) != 0) return true;
    *fits = 2 * (S->count + 1) <= S->room || grow(S);
    if (!*fits) return false;
    const id x = { (uint64_t)st.st_dev, (uint64_t)st.st_ino, true };
    const size_t i = place_of(S, x);
    if (S->slot[i].used) return false;
    S->slot[i] = x;
    S->count++;
    return true;
}

bool tp__same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
