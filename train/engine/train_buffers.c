/* train_buffers.c - equal buffers in all processes of a run.
 *
 * A batch norm updates its running statistics from this process's rows. Their average over the
 * processes is what the average of the rows' statistics would have given, since the update is
 * linear. Which buffers differ is found by a hash of each, so that those that never change, such as
 * a frozen norm's, are not sent. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "trainer.h"

/* The buffers of numbers, and their values one after another. */
typedef struct buffers {
    int n;
    int64_t values;
    double *value;        /* [values] */
    uint64_t *hash, *all; /* [n + 1]: the last is 1 if this process failed; [ranks, n + 1] */
} buffers;

static bool is_number(const tp_param_info *it)
{
    return it->buffer && !it->alias_of && (it->dtype == TP_F32 || it->dtype == TP_F64);
}

static void measure(buffers *b, const tp_params *P)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        if (!is_number(&it)) continue;
        b->n++;
        b->values += tp_numel(it.tensor);
    }
}

static uint64_t hash_of(const double *x, int64_t n)
{
    uint64_t h = TP_HASH, word;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&word, &x[i], sizeof word);
        h = tp_hash(h, word);
    }
    return h;
}

static bool read_all(buffers *b, tp_params *P)
{
    double *to = b->value;
    int k = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const int64_t n = tp_numel(it.tensor);
        if (!is_number(&it)) continue;
        if (!tp_param_get(P, it.tensor, TP_F64, to, (size_t)n * sizeof *to)) return false;
        b->hash[k++] = hash_of(to, n);
        to += n;
    }
    return true;
}

/* Does buffer k differ between the processes? */
static bool differs(const buffers *b, int k, int ranks)
{
    for (int i = 1; i < ranks; i++)
        if (b->all[i * (b->n + 1) + k] != b->all[k]) return true;
    return false;
}

/* Moves the values of buffers that differ to the front, or writes them, averaged, to P. Returns
 * their number, or -1 if a value could not be written. */
static int64_t move(buffers *b, tp_params *P, int ranks, bool write)
{
    double *from = b->value;
    int64_t count = 0;
    int k = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const int64_t n = tp_numel(it.tensor);
        if (!is_number(&it)) continue;
        if (differs(b, k++, ranks)) {
            double *at = b->value + count;
            for (int64_t i = 0; i < n; i++) at[i] = write ? at[i] / ranks : from[i];
            if (write && !tp_param_set(P, it.tensor, TP_F64, at, (size_t)n * sizeof *at)) return -1;
            count += n;
        }
        from += n;
    }
    return count;
}

static bool exchange(tp_trainer *r, buffers *b)
{
    const int ranks = r->run.ranks;
    b->hash[b->n] = !read_all(b, r->run.P);
    if (!tp_peers_gather(r->peers, b->hash, (size_t)(b->n + 1) * sizeof *b->hash, b->all))
        return false;
    for (int i = 0; i < ranks; i++)
        if (b->all[i * (b->n + 1) + b->n] != 0) return false;
    const int64_t n = move(b, r->run.P, ranks, false);
    return n == 0 ||
           (tp_peers_sum(r->peers, b->value, (int)n) && move(b, r->run.P, ranks, true) == n);
}

bool tp__run_even_buffers(tp_trainer *r)
{
    buffers b = { 0 };
    if (!r->peers) return true;
    measure(&b, r->run.P);
    if (b.n == 0) return true;
    b.value = calloc((size_t)b.values, sizeof *b.value);
    b.hash = calloc((size_t)b.n + 1, sizeof *b.hash);
    b.all = calloc((size_t)(b.n + 1) * (size_t)r->run.ranks, sizeof *b.all);
    const bool room = b.value && b.hash && b.all;
    if (!room) tp__run_fail(r, "out of memory for the statistics of all processes");
    bool done = tp__run_everywhere(r, tp__run_fine(r) && room) && room;
    if (done && !exchange(r, &b)) {
        const char *why = tp_peers_ok(r->peers) ? tp_params_why(r->run.P) : tp_peers_why(r->peers);
        r->in_sums = !why[0]; /* another process has the reason */
        tp__run_fail(r, "running statistics could not be averaged: %s",
                     why[0] ? why : "another process failed");
        done = tp__run_everywhere(r, false);
    }
    free(b.value);
    free(b.hash);
    free(b.all);
    return done;
}
