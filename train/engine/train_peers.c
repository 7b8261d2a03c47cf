/* train_peers.c - a run in several processes: what all of them must agree on, and each one's rows of
 * the batch.
 *
 * Agreement comes in two sizes. An update needs one message of each process (tp__run_agree), which
 * carries everything that may end it differently. What happens only now and then (files, a
 * validation) asks tp__run_everywhere as often as it likes. Either way a process that has failed
 * still takes part until all know, so that none waits in vain, and rank 0 prints the first reason
 * with the rank and host that it comes from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "options_inner.h"
#include "trainer.h"

/* ---- agreement ---- */

bool tp__run_anywhere(const tp_trainer *r, bool here)
{
    return r->peers ? tp_peers_any(r->peers, here) : here;
}

typedef struct reason {
    char host[64], why[sizeof((tp_trainer *)0)->why];
} reason;

/* Fails this process with the first reason of any. */
static void share_reason(tp_trainer *r)
{
    const int ranks = r->run.ranks;
    reason mine = { 0 }, *all = calloc((size_t)ranks, sizeof *all);
    snprintf(mine.host, sizeof mine.host, "%s", tp_peers_transport(r->peers)->host);
    snprintf(mine.why, sizeof mine.why, "%s", r->why);
    const bool told = all && tp_peers_gather(r->peers, &mine, sizeof mine, all);
    int k = 0;
    while (told && k < ranks && !all[k].why[0]) k++;
    if (told && k < ranks)
        tp__run_fail(r, "rank %d on host %s: %s", k, all[k].host, all[k].why);
    else
        tp__run_fail(r, "another process of this run failed%s%s", tp_peers_ok(r->peers) ? "" : ": ",
                     tp_peers_why(r->peers));
    free(all);
}

bool tp__run_everywhere(tp_trainer *r, bool fine)
{
    if (!r->peers || !tp_peers_any(r->peers, !fine)) return fine;
    if (!fine) tp__run_fail(r, "failed without a reason");
    share_reason(r);
    return false;
}

bool tp__run_agree(tp_trainer *r, bool fine)
{
    enum { FAILED, SIGNAL, LATE, WEIGHTS, WORDS };
    const int ranks = r->run.ranks;
    r->signal = tp_stop_signal();
    r->late = r->o->time > 0 && tp_seconds() - r->started >= r->o->time;
    const double mine[WORDS] = {
        [FAILED] = !fine, [SIGNAL] = r->signal, [LATE] = r->late, [WEIGHTS] = r->weights
    };
    if (!r->peers) return fine;
    double(*all)[WORDS] = calloc((size_t)ranks, sizeof *all);
    const bool told = all && tp_peers_gather(r->peers, mine, sizeof mine, all);
    bool failed = !told;
    double weights = 0;
    for (int k = 0; told && k < ranks; k++) {
        failed = failed || all[k][FAILED] != 0;
        weights += all[k][WEIGHTS];
        if ((int)all[k][SIGNAL] > r->signal) r->signal = (int)all[k][SIGNAL];
    }
    r->weights = weights;
    r->late = told && all[0][LATE] != 0; /* one clock for all */
    free(all);
    if (failed) share_reason(r);
    return !failed;
}

/* Rank 0's. */
double tp__run_first(tp_trainer *r, double x)
{
    if (r->peers && !tp_peers_broadcast(r->peers, &x, sizeof x))
        tp__run_fail(r, "%s", tp_peers_why(r->peers));
    return x;
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

/* ---- do all processes train the same model? ---- */

enum { BUILD, FLAGS, DATA, STEPS, WEIGHTS, PARTS };

static const char *const part_name[PARTS] = {
    [BUILD] = "the version or the kind of processor",
    [FLAGS] = "the settings, such as --batch, --lr or --seed",
    [DATA] = "the data",
    [STEPS] = "the number of batches",
    [WEIGHTS] = "the model or its weights",
};

typedef struct identity {
    uint64_t part[PARTS];
    char host[64];
} identity;

/* A hash of the settings that shape the run: those that a checkpoint holds. */
static uint64_t hash_settings(const tp_trainer *r)
{
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(r->t->command.table, row);
    uint64_t h = TP_HASH;
    for (int i = 0; i < n; i++) {
        char value[TP_OPTION_ROOM];
        if (!(row[i]->tags & TP_SAVED)) continue;
        tp_option_get(row[i], r->run.settings, value, sizeof value);
        h = tp_hash_text(tp_hash_text(h, row[i]->name), value);
    }
    return h;
}

static uint64_t hash_build(void)
{
    const uint16_t order = 1; /* which byte comes first */
    return tp_hash(tp_hash_text(TP_HASH, tp_version()), *(const unsigned char *)&order);
}

bool tp__run_compare_peers(tp_trainer *r)
{
    const tp_run *R = &r->run;
    if (!r->peers) return true;
    identity mine = { .part = { [BUILD] = hash_build(),
                                [FLAGS] = hash_settings(r),
                                [DATA] = R->data_hash,
                                [STEPS] = tp_hash((uint64_t)R->batches, (uint64_t)r->last),
                                [WEIGHTS] = tp_params_hash(R->P) } };
    identity *all = calloc((size_t)R->ranks, sizeof *all);
    snprintf(mine.host, sizeof mine.host, "%s", tp_peers_transport(r->peers)->host);
    bool same = all && tp_peers_gather(r->peers, &mine, sizeof mine, all);
    if (!same) tp__run_fail(r, "%s", all ? tp_peers_why(r->peers) : "out of memory");
    for (int k = 1; same && k < R->ranks; k++)
        for (int i = 0; same && i < PARTS; i++) {
            same = all[k].part[i] == all[0].part[i];
            if (same) continue;
            tp__run_fail(r, "rank %d on host %s differs from rank 0 on host %s in %s", k,
                         all[k].host, all[0].host, part_name[i]);
        }
    free(all);
    return same;
}

/* ---- does the program read its own rows? ---- */

enum { WATCHED = 2 }; /* updates whose batches are compared */

void tp__run_watch_rows(tp_trainer *r, int64_t updates)
{
    if (!r->peers) return;
    if (updates == 0) tp_hash_feeds(r->run.T, true);
    if (updates == WATCHED) tp_hash_feeds(r->run.T, false);
}

bool tp__run_check_rows(tp_trainer *r, int64_t updates)
{
    const int ranks = r->run.ranks;
    if (!r->peers || updates != WATCHED) return true;
    const uint64_t mine = tp_feeds_hash(r->run.T);
    uint64_t *all = calloc((size_t)ranks, sizeof *all);
    bool told = all && tp_peers_gather(r->peers, &mine, sizeof mine, all);
    if (!told) tp__run_fail(r, "%s", all ? tp_peers_why(r->peers) : "out of memory");
    for (int a = 0; told && a < ranks; a++)
        for (int b = 0; told && b < a; b++)
            if (all[a] == all[b] && all[a] != 0)
                told = tp__run_fail(r,
                                    "ranks %d and %d got the same batches: this program's reader "
                                    "ignores tp_run.rank. Give it .share = tp_run_share(R), or run "
                                    "the program in one process",
                                    b, a);
    free(all);
    return told;
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
