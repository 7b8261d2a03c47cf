/* train_peers.c - a run in several processes: agreement, sums, and each one's rows of the batch.
 *
 * Each agreement is one message of each process with all that may end an update differently: a
 * failure, a signal, the time, and the weight of its batches. It comes once an update, just before
 * the backward pass whose gradients are exchanged, and around files. A process that fails later
 * takes part in the exchange and says so in the next agreement, before anything is written. Since
 * all agreements have one form, it may be at another one than the others: it has left out what a
 * program sums in between. Once all know of a failure, they exchange nothing more, and rank 0
 * prints the first reason, with the rank and host that it comes from. */
#include <stdio.h>
#include <string.h>

#include "trainer.h"

/* ---- agreement ---- */

typedef struct reason {
    bool in_sums; /* it may come from any process */
    char why[sizeof((tp_trainer *)0)->why];
} reason;

/* Do all processes have the same reason, such as a flag? */
static bool is_common(const reason *all, int ranks)
{
    for (int k = 1; k < ranks; k++)
        if (strcmp(all[k].why, all[0].why) != 0) return false;
    return true;
}

/* The first process with a reason of its own, or else with any; ranks: none. */
static int find_reason(const reason *all, int ranks)
{
    int any = 0, own = 0;
    while (any < ranks && !all[any].why[0]) any++;
    while (own < ranks && (!all[own].why[0] || all[own].in_sums)) own++;
    return own < ranks ? own : any;
}

/* Fails this process with that reason. */
static void share_reason(tp_trainer *r)
{
    const int ranks = r->run.ranks;
    reason mine = { .in_sums = r->in_sums }, *all = calloc((size_t)ranks, sizeof *all);
    snprintf(mine.why, sizeof mine.why, "%s", r->why);
    const bool told = all && tp_peers_gather(r->peers, &mine, sizeof mine, all);
    const int k = told ? find_reason(all, ranks) : ranks;
    if (k < ranks && !is_common(all, ranks)) {
        r->why[0] = '\0';
        tp__run_fail(r, "rank %d on host %s: %s", k, tp_peers_host(r->peers, k), all[k].why);
    } else
        tp__run_fail(r, "another process of this run failed%s%s", tp_peers_ok(r->peers) ? "" : ": ",
                     tp_peers_why(r->peers));
    free(all);
}

typedef struct word {
    double failed, flag, signal, late, weights;
} word;

/* Exchanges what this process has to say; *any: is the flag true in any? False: a process
 * failed. */
static bool agree(tp_trainer *r, bool fine, bool flag, bool *any)
{
    const int ranks = r->run.ranks;
    const bool late = r->o && r->o->time > 0 && tp_seconds() - r->started >= r->o->time;
    const word mine = { !fine, flag, tp_stop_signal(), late, r->weights };
    word *all = calloc((size_t)ranks, sizeof *all);
    const bool told = all && tp_peers_gather(r->peers, &mine, sizeof mine, all);
    bool failed = !told;
    *any = false;
    r->weight_sum = 0;
    for (int k = 0; told && k < ranks; k++) {
        failed = failed || all[k].failed != 0;
        *any = *any || all[k].flag != 0;
        r->weight_sum += all[k].weights;
        if ((int)all[k].signal > r->signal) r->signal = (int)all[k].signal;
    }
    r->late = told && all[0].late != 0; /* one clock for all */
    free(all);
    if (!failed) return true;
    if (!fine) tp__run_fail(r, "failed without a reason");
    share_reason(r);
    r->parted = true;
    return false;
}

bool tp__run_everywhere(tp_trainer *r, bool fine)
{
    bool any;
    if (!r->peers || r->parted) return fine && !r->parted;
    return agree(r, fine, false, &any);
}

bool tp__run_anywhere(tp_trainer *r, bool here)
{
    bool any;
    if (!r->peers || r->parted) return here || r->parted;
    return !agree(r, true, here, &any) || any;
}

/* Rank 0's. */
double tp__run_first(tp_trainer *r, double x)
{
    if (r->peers && !r->parted && !tp_peers_broadcast(r->peers, &x, sizeof x))
        tp__run_fail(r, "%s", tp_peers_why(r->peers));
    return x;
}

void tp__run_now(const tp_trainer *r, const char *what, int64_t update, double times)
{
    char text[120];
    const int n = snprintf(text, sizeof text, "%s %lld", what, (long long)update);
    if (!r->peers) return;
    if (r->saved >= 0)
        snprintf(text + n, sizeof text - (size_t)n, " (last checkpoint: update %lld)",
                 (long long)r->saved);
    tp_peers_during(r->peers, text, times);
}

/* ---- the command line ---- */

int tp__run_parse(tp_trainer *r, int argc, char **argv, void *settings, tp_given_flags *given)
{
    const bool first = r->run.rank == 0;
    int status = first ? tp_options_parse(&r->command, argc, argv, settings, given) : TP_PARSED;
    if (!r->peers) return status;
    tp_peers_during(r->peers, "the start", TP_PATIENCE);
    const bool told = tp_peers_broadcast(r->peers, &status, sizeof status);
    if (told && status == TP_PARSED && !first)
        status = tp_options_parse(&r->command, argc, argv, settings, given);
    const bool any = tp_peers_any(r->peers, status != TP_PARSED);
    if (!tp_peers_ok(r->peers)) tp__run_fail(r, "%s", tp_peers_why(r->peers));
    if (any) return status == TP_PARSED ? 2 : status;
    tp_peers_set_timeout(r->peers, ((const tp_train_settings *)settings)->peer_timeout);
    return TP_PARSED;
}

bool tp__run_together(tp_trainer *r)
{
    return r->peers && !r->run.trial && tp__run_everywhere(r, tp__run_fine(r));
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
    return tp__run_fail(
        r,
        "--batch %lld cannot be divided evenly among %lld processes: the nearest are %lld and %lld",
        (long long)batch, (long long)ranks, (long long)less, (long long)(less + ranks));
}

void tp__run_show_batch(tp_trainer *r, bool whole)
{
    if (r->batch > 0) *batch_of(r) = whole ? r->batch : r->batch / r->run.ranks;
}

/* ---- sums since the last report ---- */

void tp__run_forget_sums(tp_run *R)
{
    if (R->rank == 0) return;
    memset(R->sum, 0, sizeof R->sum);
    R->summed = 0;
}

double tp__run_gather(tp_trainer *r)
{
    enum { OF_ENGINE = 4 };
    tp_run *R = &r->run;
    tp_tally *sum = &r->sum;
    double x[OF_ENGINE + TP_RUN_SUMS] = { sum->report, sum->epoch, sum->reported, sum->of_epoch };
    if (!r->peers) return sum->report / sum->reported;
    memcpy(x + OF_ENGINE, R->sum, sizeof R->sum);
    tp_run_total(R, x, OF_ENGINE + TP_RUN_SUMS);
    const double pending = sum->pending;
    *sum = R->rank == 0 ? (tp_tally){ x[0], x[1], x[2], x[3], pending }
                        : (tp_tally){ .pending = pending };
    memcpy(R->sum, x + OF_ENGINE, sizeof R->sum);
    tp__run_forget_sums(R);
    return x[0] / x[2];
}

/* ---- for programs ---- */

tp_share tp_run_share(const tp_run *R)
{
    return R ? (tp_share){ R->rank, R->ranks } : (tp_share){ 0 };
}

void tp_run_total(tp_run *R, double *x, int n)
{
    tp_trainer *r = R ? tp__run_of(R) : NULL;
    if (!r || !tp__run_together(r) || tp_peers_sum(r->peers, x, n)) return;
    tp__run_fail(r, "%s", tp_peers_why(r->peers));
}
