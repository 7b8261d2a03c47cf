/* training_state.c - the two files of a run, and what a checkpoint must hold so that stopping and
 * resuming gives the bits of never stopping:
 *
 *     weights and buffers, moments (optim.*), averages (ema.*)                as tensors
 *     settings (train.*), model, class names, update (which is the place in the data too), random
 *     state, age of Performer's features, sums since the last report and the
 *     beginning of the epoch                                                  as metadata */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "class_names.h"
#include "training.h"

/* What evaluation and prediction need. */
static void write_model(tp_writer *W, const training *t)
{
    classifier_write(&t->cfg, W);
    class_names_write(W, t->X);
    tp_writer_meta_num(W, "eval_crop_ratio", t->s.eval_crop_ratio);
    tp_writer_meta_int(W, "update", t->update);
    tp_params_write(t->P, W, "");
}

static void write_sums(tp_writer *W, const loss_sums *sum)
{
    tp_writer_meta_num(W, "sum.report", sum->report);
    tp_writer_meta_num(W, "sum.epoch", sum->epoch);
    tp_writer_meta_int(W, "sum.reported", sum->reported);
    tp_writer_meta_int(W, "sum.of_epoch", sum->of_epoch);
}

static bool read_sums(loss_sums *sum, tp_file *F)
{
    return tp_file_num(F, "sum.report", &sum->report) && tp_file_num(F, "sum.epoch", &sum->epoch) &&
           tp_file_int(F, "sum.reported", &sum->reported) &&
           tp_file_int(F, "sum.of_epoch", &sum->of_epoch);
}

static bool commit(training *t, tp_writer *W)
{
    if (!tp_params_ok(t->P)) training_fail(t, "%s", tp_params_why(t->P));
    if (!tp_ok(t->T)) training_fail(t, "%s", tp_why(t->T));
    if (!t->why[0] && !tp_writer_commit(W)) {
        if (tp_writer_code(W) == TP_E_NONFINITE)
            training_lost(t, tp_writer_why(W));
        else
            training_fail(t, "%s", tp_writer_why(W));
    }
    tp_writer_free(W);
    return !t->why[0];
}

bool training_save(training *t)
{
    uint64_t seed, offset;
    char hash[24];
    if (!training_collect(t)) return false;
    tp_writer *W = tp_writer_new(t->run.last);
    tp_writer_finite(W);
    write_model(W, t);
    options_write(image_options, &t->s, W);
    tp_random_state(t->T, &seed, &offset);
    tp_writer_meta_int(W, "random_seed", (int64_t)seed);
    tp_writer_meta_int(W, "random_offset", (int64_t)offset);
    snprintf(hash, sizeof hash, "%016" PRIx64, t->data_hash);
    tp_writer_meta(W, "data_hash", hash);
    tp_writer_meta_int(W, "features_served", t->served);
    write_sums(W, &t->sum);
    if (!tp_optim_write(t->O, W)) training_fail(t, "%s", tp_optim_why(t->O));
    if (t->ema && !tp_ema_write(t->ema, W)) training_fail(t, "%s", tp_ema_why(t->ema));
    if (!commit(t, W)) return false;
    t->saved = t->update;
    return true;
}

bool training_save_best(training *t, double top1)
{
    tp_writer *W = tp_writer_new(t->run.best);
    write_model(W, t);
    tp_writer_meta_num(W, "top1", top1);
    return commit(t, W);
}

double training_best_so_far(const char *path)
{
    double top1 = -1;
    tp_file *F = tp_file_open(path);
    if (tp_file_ok(F)) tp_file_num(F, "top1", &top1);
    tp_file_close(F);
    return top1;
}

static bool read_count(training *t, tp_file *F, const char *key, int64_t *x)
{
    *x = -1;
    if (!tp_file_int(F, key, x)) return training_fail(t, "%s", tp_file_why(F));
    return *x >= 0 || training_fail(t, "%s: '%s' is %s", t->run.last, key,
                                    tp_file_meta(F, key) ? "negative" : "missing");
}

bool training_load(training *t, tp_file *F)
{
    int64_t seed, offset, update;
    char hash[24];
    const char *found = tp_file_meta(F, "data_hash");
    snprintf(hash, sizeof hash, "%016" PRIx64, t->data_hash);
    if (!found || strcmp(found, hash) != 0)
        return training_fail(t,
                             "%s: %s does not hold the pictures that this run was trained on; give "
                             "those with --data",
                             t->run.last, t->s.c.data ? t->s.c.data : "the program");
    if (!read_count(t, F, "random_seed", &seed) || !read_count(t, F, "random_offset", &offset) ||
        !read_count(t, F, "update", &update))
        return false;
    if (!read_count(t, F, "features_served", &t->served)) return false;
    if (!read_sums(&t->sum, F)) return training_fail(t, "%s", tp_file_why(F));
    if (!classifier_weights(t->P, F)) return training_fail(t, "%s", tp_params_why(t->P));
    if (!tp_optim_read(t->O, F)) return training_fail(t, "%s", tp_optim_why(t->O));
    if (t->ema && !tp_ema_read(t->ema, F)) return training_fail(t, "%s", tp_ema_why(t->ema));
    tp_set_random_state(t->T, (uint64_t)seed, (uint64_t)offset);
    tp_loader_seek(t->L, update / t->per_epoch, update % t->per_epoch * t->s.accumulation);
    t->update = t->saved = update;
    return true;
}
