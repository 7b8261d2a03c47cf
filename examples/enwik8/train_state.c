/* train_state.c - the two files of a run, and what a checkpoint must hold so that stopping and
 * resuming gives the bits of never stopping:
 *
 *     weights, moments (optim.*), averages (ema.*), caches (state.*)          as tensors
 *     settings (train.*), model, dictionary, update, random state, position,
 *     sums since the last report (sum.*)                                      as metadata */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

/* What evaluation and generation need besides the weights. */
static void write_model(tp_writer *W, const trainer *t)
{
    char vocab[2048];
    tp_vocab_print(tp_text_vocab(t->text), vocab, sizeof vocab);
    model_cfg_write(&t->cfg, W);
    tp_writer_meta(W, "vocab", vocab);
    tp_writer_meta_int(W, "segment", t->s.tokens);
    tp_writer_meta_int(W, "update", t->update);
    tp_params_write(t->P, W, "");
}

/* So that the next report covers what it would have covered without a stop. */
static void write_tally(tp_writer *W, const tally *sum)
{
    tp_writer_meta_num(W, "sum.loss", sum->loss);
    tp_writer_meta_num(W, "sum.nll", sum->nll);
    tp_writer_meta_int(W, "sum.segments", sum->segments);
    tp_writer_meta_int(W, "sum.counted", sum->counted);
}

static bool read_tally(tally *sum, tp_file *F)
{
    return tp_file_num(F, "sum.loss", &sum->loss) && tp_file_num(F, "sum.nll", &sum->nll) &&
           tp_file_int(F, "sum.segments", &sum->segments) &&
           tp_file_int(F, "sum.counted", &sum->counted);
}

static bool commit(trainer *t, tp_writer *W)
{
    if (!tp_params_ok(t->P)) trainer_fail(t, "%s", tp_params_why(t->P));
    if (!tp_ok(t->T)) trainer_fail(t, "%s", tp_why(t->T));
    if (!t->why[0] && !tp_writer_commit(W)) {
        if (tp_writer_code(W) == TP_E_NONFINITE)
            trainer_lost(t, tp_writer_why(W));
        else
            trainer_fail(t, "%s", tp_writer_why(W));
    }
    tp_writer_free(W);
    return !t->why[0];
}

bool trainer_save(trainer *t)
{
    if (!train_collect(t)) return false;
    tp_writer *W = tp_writer_new(t->run.last);
    tp_writer_finite(W);
    uint64_t seed, offset;
    char hash[24];
    write_model(W, t);
    options_write(train_options, &t->s, W);
    tp_random_state(t->T, &seed, &offset);
    tp_writer_meta_int(W, "random_seed", (int64_t)seed);
    tp_writer_meta_int(W, "random_offset", (int64_t)offset);
    tp_writer_meta_int(W, "position", tp_bytes_position(t->reader));
    snprintf(hash, sizeof hash, "%016" PRIx64, t->text_hash);
    tp_writer_meta(W, "text_hash", hash);
    write_tally(W, &t->sum);
    if (!tp_optim_write(t->O, W)) trainer_fail(t, "%s", tp_optim_why(t->O));
    if (t->ema && !tp_ema_write(t->ema, W)) trainer_fail(t, "%s", tp_ema_why(t->ema));
    model_state_write(t->T, t->m, &t->mem, W);
    if (!commit(t, W)) return false;
    t->saved = t->update;
    return true;
}

bool trainer_save_best(trainer *t, double bpc)
{
    tp_writer *W = tp_writer_new(t->run.best);
    write_model(W, t);
    tp_writer_meta_num(W, "valid_bpc", bpc);
    return commit(t, W);
}

double trainer_best_so_far(const char *path)
{
    double bpc = (double)INFINITY;
    tp_file *F = tp_file_open(path);
    if (tp_file_ok(F)) tp_file_num(F, "valid_bpc", &bpc);
    tp_file_close(F);
    return bpc;
}

static bool read_count(trainer *t, tp_file *F, const char *key, int64_t *x)
{
    *x = -1;
    if (!tp_file_int(F, key, x)) return trainer_fail(t, "%s", tp_file_why(F));
    return *x >= 0 || trainer_fail(t, "%s: '%s' is %s", t->run.last, key,
                                   tp_file_meta(F, key) ? "negative" : "missing");
}

bool trainer_load(trainer *t, tp_file *F)
{
    int64_t seed, offset, position, update;
    char hash[24];
    const char *found = tp_file_meta(F, "text_hash");
    snprintf(hash, sizeof hash, "%016" PRIx64, t->text_hash);
    if (!found || strcmp(found, hash) != 0)
        return trainer_fail(
            t,
            "%s: the text %s is not the one that this run was trained on; give that "
            "one with --data (and --extra)",
            t->run.last, t->s.c.data);
    if (!read_count(t, F, "random_seed", &seed) || !read_count(t, F, "random_offset", &offset) ||
        !read_count(t, F, "position", &position) || !read_count(t, F, "update", &update))
        return false;
    if (!read_tally(&t->sum, F)) return trainer_fail(t, "%s", tp_file_why(F));
    if (!model_read_weights(t->P, F)) return trainer_fail(t, "%s", tp_params_why(t->P));
    if (!tp_optim_read(t->O, F)) return trainer_fail(t, "%s", tp_optim_why(t->O));
    if (t->ema && !tp_ema_read(t->ema, F)) return trainer_fail(t, "%s", tp_ema_why(t->ema));
    if (!model_state_read(t->T, t->m, &t->mem, F)) return trainer_fail(t, "%s", tp_why(t->T));
    tp_set_random_state(t->T, (uint64_t)seed, (uint64_t)offset);
    tp_bytes_seek(t->reader, position);
    t->update = t->saved = update;
    return true;
}
