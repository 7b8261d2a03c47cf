/* train_compare.c - what must be equal in all processes of a run, and what must differ: the rows
 * that they train on. */
#include <stdio.h>
#include <stdlib.h>
#include <tapegrad/random.h>

#include "options_inner.h"
#include "trainer.h"

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
    const identity mine = { .part = { [BUILD] = hash_build(),
                                      [FLAGS] = hash_settings(r),
                                      [DATA] = R->data_hash,
                                      [STEPS] = tp_hash((uint64_t)R->batches, (uint64_t)r->last),
                                      [WEIGHTS] = tp_params_hash(R->P) } };
    identity *all = calloc((size_t)R->ranks, sizeof *all);
    bool same = all && tp_peers_gather(r->peers, &mine, sizeof mine, all);
    if (!same) tp__run_fail(r, "%s", all ? tp_peers_why(r->peers) : "out of memory");
    for (int k = 1; same && k < R->ranks; k++)
        for (int i = 0; same && i < PARTS; i++) {
            same = all[k].part[i] == all[0].part[i];
            if (same) continue;
            tp__run_fail(r, "rank %d on host %s differs from rank 0 on host %s in %s", k,
                         tp_peers_host(r->peers, k), tp_peers_host(r->peers, 0), part_name[i]);
        }
    free(all);
    return same;
}

/* ---- does the program read its own rows? ---- */

enum { WATCHED = 2 }; /* updates whose batches are compared */

void tp__run_watch_rows(tp_trainer *r, bool begins)
{
    if (!r->peers || r->made >= WATCHED) return;
    const uint64_t fed = begins ? 0 : tp_feeds_hash(r->run.T);
    if (fed != 0) r->rows = tp_hash(r->rows, fed);
    tp_hash_feeds(r->run.T, begins);
}

bool tp__run_check_rows(tp_trainer *r)
{
    const int ranks = r->run.ranks;
    if (!r->peers || r->made != WATCHED) return true;
    const uint64_t mine = r->rows;
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
