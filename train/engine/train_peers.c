/* train_peers.c - a run in several processes: what all of them must agree on, and each one's rows of
 * the batch. */
#include <stdio.h>
#include <string.h>

#include "trainer.h"

/* ---- agreement ---- */

bool tp__run_anywhere(const tp_trainer *r, bool here)
{
    return r->peers ? tp_peers_any(r->peers, here) : here;
}

bool tp__run_everywhere(tp_trainer *r, bool fine)
{
    if (!r->peers || !tp_peers_any(r->peers, !fine)) return fine;
    return fine && tp__run_fail(r, "another process of this run failed");
}

/* ---- rows ---- */

/* The settings' batch, which programs read. */
static int64_t *batch_of(const tp_trainer *r)
{
    return &((tp_train_settings *)r->run.settings)->batch;
}

bool tp__run_take_rows(tp_trainer *r)
{
    const int64_t batch = *batch_of(r), ranks = r->run.ranks, less = batch / ranks * ranks;
    r->batch = batch;
    if (batch % ranks == 0) {
        *batch_of(r) = batch / ranks;
        return true;
    }
    if (less == 0)
        return tp__run_fail(r,
                            "--batch %lld has no example for some of the %lld processes: give at "
                            "least %lld",
                            (long long)batch, (long long)ranks, (long long)ranks);
    return tp__run_fail(r,
                        "--batch %lld cannot be divided evenly among %lld processes: the nearest "
                        "are %lld and %lld",
                        (long long)batch, (long long)ranks, (long long)less,
                        (long long)(less + ranks));
}

void tp__run_show_batch(tp_trainer *r, bool whole)
{
    if (r->batch > 0) *batch_of(r) = whole ? r->batch : r->batch / r->run.ranks;
}

/* ---- for programs ---- */

tp_share tp_run_share(const tp_run *R)
{
    return R ? (tp_share){ R->rank, R->ranks } : (tp_share){ 0 };
}

void tp_run_total(tp_run *R, double *x, int n)
{
    tp_trainer *r = R ? tp__run_of(R) : NULL;
    if (!r || !r->peers || R->trial || tp_peers_sum(r->peers, x, n)) return;
    tp__run_fail(r, "%s", tp_peers_why(r->peers));
}
