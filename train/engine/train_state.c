/* train_state.c - the two checkpoints of a run. The last one has all that a resumed run needs to
 * compute the same bits as one that never stopped:
 *
 *     weights and buffers, moments (optim.*), averages (ema.*), the program's state
 *     (state.*, which hold rows of the batch)                                        as tensors
 *     settings (train.*), what evaluation needs, update, random state, the hash of
 *     the data, sums since the last report and the beginning of the epoch (sum.*),
 *     what validations found (course.*), whether the run ended here by itself
 *     (ended)                                                                        as metadata
 *
 * Several processes write the last one together (tp_peers_commit), so each makes a writer with the
 * same tensors; the metadata are those of rank 0, the only one that touches the run folder. The
 * best model is the same in all, and rank 0 writes it alone. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trainer.h"

#define ROWS "state." /* tensors that hold rows of the batch */

/* ---- writing ---- */

static void write_model(tp_trainer *r, tp_writer *W)
{
    if (r->t->write_model) r->t->write_model(&r->run, W);
    tp_writer_meta_int(W, "update", r->run.update);
    tp_params_write(r->run.P, W, "");
}

/* With these sums the next report covers the same updates as in a run that never stopped. */
static void write_sums(const tp_trainer *r, tp_writer *W)
{
    tp_writer_meta_num(W, "sum.report", r->sum.report);
    tp_writer_meta_num(W, "sum.epoch", r->sum.epoch);
    tp_writer_meta_num(W, "sum.reported", r->sum.reported);
    tp_writer_meta_num(W, "sum.of_epoch", r->sum.of_epoch);
    if (!r->unvalidated) return;
    tp_writer_meta_int(W, "unvalidated", 1);
    tp_writer_meta_num(W, "grad_norm", r->norm);
}

/* A seed of its own would give rank 1 of a run with seed 1 the numbers of rank 0 with seed 2. No
 * run has 2^48 random ops. */
uint64_t tp__run_stream(const tp_run *R)
{
    return (uint64_t)R->rank << 48;
}

/* The offset is the same in all processes but for the beginning of their streams, so any number of
 * them can continue. */
static void write_place(const tp_trainer *r, tp_writer *W)
{
    uint64_t seed, offset;
    char hash[24];
    tp_random_state(r->run.T, &seed, &offset);
    tp_writer_meta_int(W, "random_seed", (int64_t)seed);
    tp_writer_meta_int(W, "random_offset", (int64_t)(offset - tp__run_stream(&r->run)));
    snprintf(hash, sizeof hash, "%016" PRIx64, r->run.data_hash);
    tp_writer_meta(W, "data_hash", hash);
}

static bool is_there(tp_trainer *r)
{
    return r->run.rank > 0 || !tp__folder_vanished(&r->folder) ||
           tp__run_fail(r, "run folder %s was removed while in use", r->folder.path);
}

static bool complain(tp_trainer *r, const tp_writer *W)
{
    if (tp_writer_code(W) == TP_E_NONFINITE) return tp__run_lost(r, tp_writer_why(W));
    return tp__run_fail(r, "%s", tp_writer_why(W));
}

/* Commits in all processes. Rechecks the folder, because collecting the data took time. If it has
 * vanished, the caller notices too and, in one process, rescues the run. */
static bool commit(tp_trainer *r, tp_writer *W)
{
    if (!tp__run_everywhere(r, tp__run_fine(r) && is_there(r))) return false;
    const bool done = tp_peers_commit(r->peers, W, ROWS);
    /* Of several processes, those without a reason of their own get this code. */
    const bool own = !done && (!r->peers || tp_writer_code(W) != TP_E_STATE);
    if (own) complain(r, W);
    return tp__run_everywhere(r, !own) && done;
}

bool tp__run_save(tp_trainer *r)
{
    if (!tp__run_everywhere(r, tp__run_collect(r, r->run.update))) return false;
    tp_writer *W = tp_writer_new(r->folder.last);
    tp_writer_finite(W);
    tp_writer_meta(W, "program", tp__run_program(r->t));
    write_model(r, W);
    tp__run_show_batch(r, true);
    tp_options_write(r->t->command.table, r->run.settings, W);
    tp__run_show_batch(r, false);
    write_place(r, W);
    write_sums(r, W);
    tp__course_write(r, W);
    if (r->ends && !r->unvalidated) tp_writer_meta_int(W, "ended", 1); /* run-elastic.sh reads it */
    if (r->t->write) r->t->write(&r->run, W);
    tp_optim_write(r->O, W, NULL);
    if (r->ema) tp_ema_write(r->ema, W, NULL);
    const bool done = commit(r, W);
    tp_writer_free(W);
    if (done) r->saved = r->run.update;
    return done && tp__run_keep_last(r);
}

bool tp__run_save_best(tp_trainer *r, const char *path, double score)
{
    if (r->run.rank > 0) return true;
    tp_writer *W = tp_writer_new(path);
    tp_writer_finite(W); /* an accuracy of NaN logits is a number */
    write_model(r, W);
    tp_writer_meta_num(W, r->t->score, score);
    const bool done = tp__run_fine(r) && is_there(r) && (tp_writer_commit(W) || complain(r, W));
    tp_writer_free(W);
    return done;
}

/* ---- reading ---- */

/* Only a missing file means that there is no best model yet; an unreadable one is an error. */
bool tp__run_find_best(tp_trainer *r)
{
    if (tp__missing(r->folder.best)) return true;
    tp_file *F = tp_file_open(r->folder.best);
    if (tp_file_ok(F)) tp_file_num(F, r->t->score, &r->best);
    if (tp_file_ok(F)) tp_file_int(F, "update", &r->best_at);
    const bool done =
        tp_file_ok(F) ||
        tp__run_fail(r, "the best model so far cannot be read: %s; move it away to start a new one",
                     tp_file_why(F));
    tp_file_close(F);
    return done;
}

/* Larger counts are refused, so that sums of counts stay within 64 bits. */
static const int64_t most = INT64_C(1) << 60;

static bool in_range(tp_trainer *r, const char *key, int64_t x)
{
    return (x >= 0 && x <= most) ||
           tp__run_fail(r, "%s: '%s' is out of range: %" PRId64, r->folder.last, key, x);
}

static bool read_count(tp_trainer *r, tp_file *F, const char *key, int64_t *x)
{
    if (!tp_file_meta(F, key)) return tp__run_fail(r, "%s: '%s' is missing", r->folder.last, key);
    if (!tp_file_int(F, key, x)) return tp__run_fail(r, "%s", tp_file_why(F));
    return in_range(r, key, *x);
}

/* Checkpoints of enwik8 from before this engine name the sums differently. */
static bool read_sums(tp_trainer *r, tp_file *F)
{
    tp_tally *sum = &r->sum;
    int64_t unvalidated = 0;
    const bool done = tp_file_num(F, "sum.loss", &sum->report) &&
                      tp_file_num(F, "sum.segments", &sum->reported) &&
                      tp_file_num(F, "sum.report", &sum->report) &&
                      tp_file_num(F, "sum.reported", &sum->reported) &&
                      tp_file_num(F, "sum.epoch", &sum->epoch) &&
                      tp_file_num(F, "sum.of_epoch", &sum->of_epoch) &&
                      tp_file_int(F, "unvalidated", &unvalidated) &&
                      tp_file_num(F, "grad_norm", &r->norm);
    if (!done) return tp__run_fail(r, "%s", tp_file_why(F));
    if (sum->reported < 0 || sum->of_epoch < 0)
        return tp__run_fail(r, "%s: a sum of weights is negative", r->folder.last);
    r->unvalidated = unvalidated != 0;
    if (r->run.rank > 0) *sum = (tp_tally){ 0 }; /* process 0 has all sums */
    return true;
}

/* Older checkpoints of enwik8 call the hash text_hash. */
static bool check_data(tp_trainer *r, const tp_file *F)
{
    char hash[24];
    const char *found = tp_file_meta(F, "data_hash");
    if (!found) found = tp_file_meta(F, "text_hash");
    snprintf(hash, sizeof hash, "%016" PRIx64, r->run.data_hash);
    if (r->run.data_hash == 0 || (found && strcmp(found, hash) == 0)) return true;
    return tp__run_fail(r, "%s: %s", r->folder.last,
                        r->t->other_data ? r->t->other_data
                                         : "the data differ from those of this run");
}

bool tp__run_load(tp_trainer *r, tp_file *F)
{
    tp_run *R = &r->run;
    int64_t seed = 0, offset = 0, update = 0, ended = 0;
    if (!check_data(r, F)) return false;
    if (!tp_file_int(F, "ended", &ended)) return tp__run_fail(r, "%s", tp_file_why(F));
    r->ends = ended != 0;
    if (!read_count(r, F, "random_seed", &seed) || !read_count(r, F, "random_offset", &offset) ||
        !read_count(r, F, "update", &update) || !read_sums(r, F) || !tp__course_read(r, F))
        return false;
    if (!tp_params_read(R->P, F, "", &(tp_load_opts){ .convert = true }))
        return tp__run_fail(r, "%s", tp_params_why(R->P));
    if (!tp_optim_read(r->O, F, NULL)) return tp__run_fail(r, "%s", tp_optim_why(r->O));
    if (r->ema && !tp_ema_read(r->ema, F, NULL)) return tp__run_fail(r, "%s", tp_ema_why(r->ema));
    R->update = r->saved = update;
    tp_set_random_state(R->T, (uint64_t)seed, tp__run_stream(R) + (uint64_t)offset);
    tp__run_place(r, 0);
    if (!tp_file_share(F, ROWS, tp_run_share(R))) return tp__run_fail(r, "%s", tp_file_why(F));
    if (r->t->read) r->t->read(R, F);
    tp__run_forget_sums(R);
    if (!tp_file_ok(F)) tp__run_fail(r, "%s", tp_file_why(F));
    return tp__run_fine(r);
}
