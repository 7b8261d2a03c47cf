/* cuts.c - cuts a parameter set's block of values into buckets and pieces. */
#include "train/peers/cuts.h"

#include <stdlib.h>
#include <tapegrad/file.h>

/* A stretch that is never cut: a reduction block, or a whole parameter. */
typedef struct unit {
    int entry;
    int64_t first, numel;
} unit;

typedef struct units {
    unit *at;
    size_t n, room;
} units;

static bool add_units(units *u, const tp_params *P, int entry, bool whole)
{
    const int64_t numel = P->entries[entry].node->view.numel;
    const int64_t most = whole ? numel : TP_BLOCK;
    for (int64_t first = 0; first < numel; first += most) {
        if (!tp_reserve(&u->at, &u->room, u->n, 1, sizeof *u->at)) return false;
        u->at[u->n++] = (unit){ entry, first, numel - first < most ? numel - first : most };
    }
    return true;
}

/* All units in the order of the block, in which tables are last. */
static bool list_units(units *u, const tp_params *P, bool whole)
{
    for (int tables = 0; tables < 2; tables++)
        for (int i = 0; i < P->n; i++)
            if (tp__in_block(&P->entries[i]) && P->entries[i].table == tables &&
                !add_units(u, P, i, whole))
                return false;
    return true;
}

/* The end of the bucket that begins at unit `from`, and its elements. */
static size_t bucket_end(const units *u, size_t from, int64_t most, int64_t *numel)
{
    size_t end = from;
    for (*numel = 0; end < u->n && *numel < most; end++) *numel += u->at[end].numel;
    return end;
}

static int least_loaded(const int64_t *load, int ranks)
{
    int least = 0;
    for (int k = 1; k < ranks; k++)
        if (load[k] < load[least]) least = k;
    return least;
}

/* Adds a unit, to the last cut if it continues that. */
static bool add_cut(tp_cuts *c, size_t *room, const unit *u, int owner)
{
    tp_cut *last = c->n > 0 ? &c->at[c->n - 1] : NULL;
    if (last && last->entry == u->entry && last->bucket == c->buckets && last->owner == owner) {
        last->numel += u->numel;
        return true;
    }
    if (!tp_reserve(&c->at, room, (size_t)c->n, 1, sizeof *c->at)) return false;
    c->at[c->n++] = (tp_cut){ u->entry, u->first, u->numel, c->buckets, owner };
    return true;
}

/* Cuts the units into buckets. A piece of a bucket ends at the unit whose middle is nearest to its
 * share. Whole parameters may be larger than a bucket, so these go to the owner of the fewest
 * elements. load: zeros, one a rank. */
static bool cut(tp_cuts *c, size_t *room, const units *u, int64_t most, int64_t *load, bool whole)
{
    for (size_t from = 0, end; from < u->n; from = end, c->buckets++) {
        int64_t numel, before = 0;
        end = bucket_end(u, from, most, &numel);
        for (size_t i = from; i < end; before += u->at[i++].numel) {
            const double middle = (double)before + 0.5 * (double)u->at[i].numel;
            const int owner =
                whole ? least_loaded(load, c->ranks) : (int)(middle * c->ranks / (double)numel);
            load[owner] += u->at[i].numel;
            if (!add_cut(c, room, &u->at[i], owner)) return false;
        }
    }
    return true;
}

tp_cuts tp__cuts_new(const tp_params *P, int ranks, size_t bytes, bool whole)
{
    tp_cuts c = { .ranks = ranks };
    units u = { 0 };
    size_t room = 0;
    int64_t *load = calloc((size_t)ranks, sizeof *load);
    const int64_t most = (int64_t)(bytes / tp_dtype_size(P->dtype));
    const bool done = load && list_units(&u, P, whole) &&
                      tp_reserve(&c.at, &room, 0, 1, sizeof *c.at) && /* also of an empty block */
                      cut(&c, &room, &u, most > 0 ? most : 1, load, whole);
    if (!done) tp__cuts_free(&c);
    free(u.at);
    free(load);
    return c;
}

void tp__cuts_free(tp_cuts *c)
{
    free(c->at);
    *c = (tp_cuts){ 0 };
}
