/* image_train.c - the training loop of `imagenet train`.
 *
 *     update = `accumulation` batches, gradients averaged
 *     at the end of an epoch: a validation, a report, a checkpoint
 *
 * The checkpoint comes last: what a kill before it loses is done again by the resumed run, so log,
 * best and last checkpoint always tell the same story. A loss that is no number stops the run
 * before anything is overwritten. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "image_commands.h"
#include "image_plan.h"
#include "op_times.h"
#include "training.h"

/* Training has come to a value that is no number in the course of an update. */
static bool lost(training *t, const char *what, double x, int64_t at)
{
    char why[200];
    snprintf(why, sizeof why, "the %s is %g at update %lld", what, x, (long long)at);
    return training_lost(t, why);
}

static bool tape_failed(training *t)
{
    const tp_tape *T = t->T;
    if (tp_code_of(T) == TP_E_NONFINITE) return !training_lost(t, tp_why(T));
    return !tp_ok(T) && !training_fail(t, "%s", tp_why(T));
}

/* The sum of pending losses: zero in the beginning. */
static void clear_losses(training *t)
{
    static const double zero = 0.0; /* zero bytes in f32 too */
    tp_feed(t->T, &t->losses, t->s.c.dtype == TP_F64 ? TP_F64 : TP_F32, TP_SCALAR, &zero);
}

/* `at`: the update that the losses belong to. */
static bool collect(training *t, int64_t at)
{
    loss_sums *sum = &t->sum;
    if (sum->pending == 0) return true;
    const double losses = tp_item(t->T, t->losses);
    clear_losses(t);
    if (tape_failed(t)) return false;
    if (!isfinite(losses)) return lost(t, "loss", losses, at);
    sum->report += losses;
    sum->epoch += losses;
    sum->reported += sum->pending;
    sum->of_epoch += sum->pending;
    sum->pending = 0;
    return true;
}

bool training_collect(training *t)
{
    return collect(t, t->update);
}

/* Performer's features, drawn anew by the schedule of the official code. A draw is known by its
 * batch, so a resumed run repeats it. */
static bool renew_features(training *t, int64_t batch)
{
    const image_settings *s = &t->s;
    const int64_t epoch = t->update / t->per_epoch;
    if (s->redraw == 0 || t->served++ < s->redraw + s->redraw_growth * epoch) return true;
    t->served = 0;
    return classifier_redraw(t->P, t->m, (uint64_t)s->c.seed, (uint64_t)batch) ||
           training_fail(t, "%s", tp_params_why(t->P));
}

/* Forward and backward of a batch. On the CPU the loss is read at once; a card would have to wait
 * for the host, so there it is read when a report or a checkpoint is due. */
static bool run_batch(training *t, int64_t batch)
{
    const int64_t k = t->s.accumulation, side = t->s.size;
    tp_tape *T = t->T;
    tp_batch b;
    if (!tp_loader_next(t->L, &b)) return training_fail(t, "%s", tp_loader_why(t->L));
    tp_reset(T);
    if (!renew_features(t, batch)) return false;
    if (!tp_given(t->losses)) clear_losses(t);
    tp_tensor x = tp_from(T, TP_F32, TP_SHAPE(b.n, side, side, 3), b.x);
    tp_tensor y = tp_from(T, TP_F32, TP_SHAPE(b.n, t->cfg.classes), b.target);
    if (t->s.c.dtype == TP_F64) x = tp_cast(T, x, TP_F64);
    if (t->s.c.dtype == TP_F64) y = tp_cast(T, y, TP_F64);
    tp_tensor z = classifier_forward(T, t->m, x);
    if (t->s.c.dtype == TP_BF16) z = tp_cast(T, z, TP_F32); /* as the targets are */
    const tp_tensor loss = tp_cross_entropy(T, z, y, TP_MEAN);
    tp_backward(T, k > 1 ? tp_scale(T, loss, 1.0 / (double)k) : loss);
    tp_carry(T, &t->losses, tp_add(T, t->losses, tp_detach(T, loss)));
    if (tape_failed(t)) return false;
    t->watch.pictures += b.n;
    t->sum.pending++;
    return t->on_card || collect(t, t->update + 1);
}

/* The batches that are left over at the end of an epoch, too few for an update, are passed by. */
static void next_epoch(training *t)
{
    if (tp_loader_steps(t->L) % t->s.accumulation != 0)
        tp_loader_seek(t->L, t->update / t->per_epoch, 0);
}

/* One update; *norm is the gradient's, readable until the next. */
static bool update(training *t, tp_tensor *norm)
{
    const image_settings *s = &t->s;
    const int64_t epoch = t->update / t->per_epoch;
    classifier_random_shift(t->m, (double)epoch < s->random_shift * (double)s->epochs);
    for (int64_t k = 0; k < s->accumulation; k++)
        if (!run_batch(t, t->update * s->accumulation + k)) return false;
    *norm = tp_clip_grad_norm(t->P, s->clip);
    if (!tp_step(t->O, image_rate(s, t->update, t->per_epoch)))
        return training_fail(t, "%s", tp_optim_why(t->O));
    if (t->ema) tp_ema_update(t->ema);
    if (t->ema && !tp_ema_ok(t->ema)) return training_fail(t, "%s", tp_ema_why(t->ema));
    t->update++;
    if (t->update % t->per_epoch == 0) next_epoch(t);
    return true;
}

/* ---- validation ---- */

static bool go_on(void *env, const score *so_far)
{
    (void)env;
    (void)so_far;
    return !run_stop_signal();
}

/* Validates, with the averaged weights if there are any, and keeps the best, beside its confusion
 * matrix. False if a signal or an error ended it early. */
static bool validate(training *t, score *v)
{
    const tp_augment a = image_eval_pipeline(t->s.size, t->s.eval_crop_ratio);
    char path[RUN_PATH + 32];
    if (t->ema) tp_ema_swap(t->ema);
    bool done = score_run(v, t->E, t->m, t->V,
                          &(score_opts){ .augment = &a,
                                         .batch = t->s.c.batch,
                                         .workers = (int)t->s.workers,
                                         .strict = t->s.strict,
                                         .bad = training_bad_picture,
                                         .go_on = go_on,
                                         .env = t });
    if (!done) training_fail(t, "%s", v->why);
    done = done && !run_stop_signal();
    const double top1 = done ? 100.0 * (double)v->top1 / (double)v->count : 0;
    const bool best = done && top1 > t->best;
    if (best && training_save_best(t, top1)) t->best = top1;
    if (t->ema) tp_ema_swap(t->ema);
    snprintf(path, sizeof path, "%s/confusion.png", t->run.path);
    if (best && !score_draw(v, t->cfg.classes, path)) training_fail(t, "%s", v->why);
    if (done)
        progress_say(&t->bar, "epoch %g  validation loss %.4f  top-1 %.2f %%  top-5 %.2f %%%s",
                     (double)t->update / (double)t->per_epoch, v->loss / (double)v->count, top1,
                     100.0 * (double)v->top5 / (double)v->count, best ? "  (best)" : "");
    return done && !t->why[0];
}

/* ---- reports ---- */

typedef struct step_state {
    double loss, images_per_s, waiting; /* waiting: share of the time */
    size_t memory;                      /* bytes                      */
} step_state;

static step_state state_of(const training *t)
{
    const double passed = seconds_now() - t->watch.began;
    return (step_state){
        .loss = t->sum.report / (double)t->sum.reported,
        .images_per_s = (double)t->watch.pictures / passed,
        .waiting = (tp_loader_waited(t->L) - t->watch.waited) / passed,
        .memory = tp_device_stats(t->D).peak_bytes,
    };
}

static void show(training *t, const step_state *now, bool report)
{
    char what[200];
    snprintf(what, sizeof what, "epoch %.2f  loss %.4f  %.0f images/s  waited %.0f %%  %.0f MB",
             (double)t->update / (double)t->per_epoch, now->loss, now->images_per_s,
             100 * now->waiting, (double)now->memory / 1e6);
    progress_step(&t->bar, t->update, report, what);
}

/* epoch_end: with the mean loss of the epoch; v: with what the validation found, or NULL. */
static bool report(training *t, const step_state *now, double norm, bool epoch_end, const score *v)
{
    const double epoch = (double)t->update / (double)t->per_epoch;
    json_t *line = json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "step", (json_int_t)t->update,
        "epoch", log_number(epoch), "seconds", log_number(t->seconds), "loss",
        log_number(now->loss), "lr", log_number(image_rate(&t->s, t->update - 1, t->per_epoch)),
        "grad_norm", log_number(norm), "images_per_s", log_number(now->images_per_s), "waited",
        log_number(now->waiting), "memory", (json_int_t)now->memory, "skipped",
        (json_int_t)tp_loader_skipped(t->L));
    if (epoch_end)
        json_object_set_new(line, "train_loss", log_number(t->sum.epoch / (double)t->sum.of_epoch));
    if (v) {
        json_object_set_new(line, "test_loss", log_number(v->loss / (double)v->count));
        json_object_set_new(line, "top1", log_number(100.0 * (double)v->top1 / (double)v->count));
        json_object_set_new(line, "top5", log_number(100.0 * (double)v->top5 / (double)v->count));
    }
    return log_write(&t->log, line) || training_fail(t, "%s", t->log.why);
}

static bool due(int64_t every, int64_t n)
{
    return every > 0 && n % every == 0;
}

/* What an update leaves in the run's folder, in this order (see above). */
typedef struct duties {
    bool validate, report, save, epoch_end;
} duties;

static bool write_files(training *t, const step_state *now, double norm, duties todo)
{
    score v = { 0 };
    const bool scored = todo.validate && validate(t, &v);
    if (todo.report && !t->why[0] && report(t, now, norm, todo.epoch_end, scored ? &v : NULL)) {
        t->sum.report = 0;
        t->sum.reported = 0;
    }
    if (todo.epoch_end) {
        t->sum.epoch = 0;
        t->sum.of_epoch = 0;
    }
    score_free(&v);
    return !t->why[0] && (!todo.save || training_save(t));
}

static duties duties_of(const training *t, bool last)
{
    const image_settings *s = &t->s;
    const bool end = t->update % t->per_epoch == 0;
    const bool measure = end && due(s->c.eval_every, t->update / t->per_epoch);
    return (duties){ .validate = (measure || last) && !run_stop_signal(),
                     .report = due(s->c.log_every, t->update) || end || last,
                     .save = due(s->c.checkpoint_every, t->update) || end || last,
                     .epoch_end = end };
}

/* What follows an update; `last`: there is no next. */
static bool after_update(training *t, tp_tensor norm, bool last)
{
    const duties todo = duties_of(t, last);
    double size = 0;
    if ((todo.report || todo.save) && !training_collect(t)) return false;
    const step_state now = state_of(t);
    const double paused = seconds_now();
    t->seconds += paused - t->watch.going;
    if (todo.report || todo.save) {
        size = tp_item(t->T, norm);
        if (!tp_ok(t->T)) return training_fail(t, "%s", tp_why(t->T));
        if (!isfinite(size)) return lost(t, "gradient's norm", size, t->update);
    }
    show(t, &now, todo.report);
    const bool done = write_files(t, &now, size, todo);
    const double going = seconds_now();
    t->watch.began += going - paused;
    t->watch.going = going;
    if (todo.report)
        t->watch = (stopwatch){ .began = going, .going = going, .waited = tp_loader_waited(t->L) };
    return done;
}

/* ---- the program ---- */

int64_t training_last_update(const training *t)
{
    const int64_t all = t->s.epochs * t->per_epoch, steps = t->s.c.steps;
    return steps > 0 && steps < all ? steps : all;
}

static void introduce(training *t)
{
    const image_settings *s = &t->s;
    const tp_stats machine = tp_device_stats(t->D);
    progress_say(&t->bar, "%s (%s): %lld parameters, %lld classes, pictures of %lld x %lld",
                 s->preset, classifier_family(&t->cfg), (long long)tp_params_count(t->P),
                 (long long)t->cfg.classes, (long long)s->size, (long long)s->size);
    progress_say(&t->bar, "%s: %lld pictures for training, %lld for validation",
                 s->c.data ? s->c.data : "shapes drawn by the program",
                 (long long)tp_pictures_count(t->X), (long long)tp_pictures_count(t->V));
    progress_say(&t->bar,
                 "%s, %d threads, %s kernels; %lld epochs of %lld updates of %lld pictures; run "
                 "folder %s",
                 tp_device_name(t->D), machine.threads, machine.isa, (long long)s->epochs,
                 (long long)t->per_epoch, (long long)(s->c.batch * s->accumulation), t->run.path);
    if (t->update > 0) progress_say(&t->bar, "resumed after update %lld", (long long)t->update);
}

static void train(training *t)
{
    const double began = seconds_now();
    t->watch = (stopwatch){ .began = began, .going = began };
    tp_tensor norm = TP_NONE;
    bool last = false;
    tp_device_reset_profile(t->D); /* of what opening the run has cost */
    while (!last && update(t, &norm)) {
        const bool late = t->s.time > 0 && seconds_now() - began >= t->s.time;
        last = t->update >= training_last_update(t) || late || run_stop_signal() != 0;
        if (!after_update(t, norm, last)) return;
        if (!last && run_stop_signal()) /* it came during the validation */
            last = true, training_save(t);
    }
}

static void say_goodbye(training *t)
{
    progress_end(&t->bar);
    if (tp_loader_skipped(t->L) > 0)
        printf("%lld pictures could not be read and were left out\n",
               (long long)tp_loader_skipped(t->L));
    if (t->update >= t->s.epochs * t->per_epoch)
        printf("Done: %lld epochs; best top-1 %.2f %%: %s\n", (long long)t->s.epochs, t->best,
               t->run.best);
    else
        printf("%s after update %lld, checkpoint written. Continue with: imagenet train --resume "
               "--run-dir %s\n",
               run_stop_signal() ? strsignal(run_stop_signal()) : "Stopped", (long long)t->update,
               t->run.path);
}

static const program manual = {
    .name = "imagenet train",
    .summary = "trains an image classifier",
    .synopsis = "[--data DIR] [--preset NAME] [--recipe NAME] [flag ...]\n"
                "    imagenet train --resume [--run-dir DIR] [flag ...]",
    .about =
        "Trains a model to tell the classes of pictures apart: those of a folder in one of the "
        "published layouts, or without --data shapes of ten kinds that the program draws.\n\n"
        "A preset sets the model, its picture size and a recipe; a recipe sets optimiser, schedule "
        "and augmentation; flags override both. Defaults shown below are those of the preset "
        "tiny.\n\n"
        "SIGINT, SIGTERM and SIGHUP end the run after the current update with a checkpoint; "
        "--resume continues it, in the middle of an epoch too, with the same bits as if it had "
        "never stopped. Every checkpoint is written beside the last one and renamed, so a killed "
        "run keeps the last complete one.\n\n"
        "A loss, gradient or weight that is NaN or infinite ends the run with status 1 before it "
        "overwrites last.safetensors: that file stays the last good one.",
    .table = image_options,
    .more =
        "MODELS\n"
        "    tiny           a convolution net of 16 to 128 channels for 32 x 32 pictures\n"
        "    convnet        five convolutions of 32 to 256 channels, 64 x 64\n"
        "    cvt-small      CvT* with full attention; cvt-ls-small: with long-short attention\n"
        "    vil-small      Vision Longformer with relative positions; vil-ls-small: with "
        "long-short\n"
        "                   attention; vil-full-small: with full attention\n"
        "    lsla-small     ViT-LSLA; lsla-qkv-small: with keys and values of their own;\n"
        "                   lsla-inner-small: without the outer bias; lsla-full-small: softmax\n"
        "                   attention over the whole map; all 64 x 64, smaller ones with --size "
        "32\n"
        "    cvt-13, cvt-21, cvt-w24, cvt-star-13, cvt-star-21, cvt-ls-13, cvt-ls-17, cvt-ls-21,\n"
        "    cvt-ls-21s, vit-lsla: the papers' models, 224 x 224, with their recipes; "
        "vil-tiny-rpb\n"
        "    and every other published model of Vision Longformer: vil-SHAPE-ATTENTION\n\n"
        "FILES\n"
        "    last.safetensors  everything the next update depends on\n"
        "    best.safetensors  weights with the best validation, model and class names\n"
        "    confusion.png     of that validation: rows are classes, columns what was said\n"
        "    log.jsonl         a JSON object a report: step, epoch, seconds (of training, without\n"
        "                      validations and checkpoints), loss (nats), lr, grad_norm,\n"
        "                      images_per_s, waited (share of the time that the device waited for\n"
        "                      pictures), memory (peak bytes), skipped; at the end of an epoch\n"
        "                      train_loss (its mean) and, after a validation, test_loss, top1, "
        "top5\n"
        "    config.json       all settings\n"
        "    lock              held while a process works in the folder\n\n"
        "EXIT STATUS\n"
        "    0 done, or time is up; 1 an error; 2 a bad flag; 129, 130, 143 stopped by SIGHUP,\n"
        "    SIGINT, SIGTERM\n\n"
        "EXAMPLES\n"
        "    imagenet train\n"
        "    imagenet train --data imagenette2 --preset convnet --run-dir runs/convnet\n"
        "    imagenet train --data imagenet --preset vil-tiny-rpb --plan\n",
};

int image_train_main(int argc, char **argv)
{
    static training t;
    int status = training_open(&t, &manual, argc, argv);
    if (status == OPTIONS_RUN && t.s.plan) {
        status = image_plan_main(&t);
    } else if (status == OPTIONS_RUN) {
        run_catch_signals();
        const double began = seconds_now();
        progress_start(&t.bar, t.update, training_last_update(&t), t.s.time);
        introduce(&t);
        if (t.update < training_last_update(&t)) train(&t);
        if (t.why[0]) {
            progress_end(&t.bar);
            fprintf(stderr, "%s: %s\n", manual.name, t.why);
        } else {
            say_goodbye(&t);
        }
        if (t.s.profile) op_times_print(t.D, seconds_now() - began);
        status = t.why[0] ? 1 : run_stop_signal() ? 128 + run_stop_signal() : 0;
    }
    training_close(&t);
    return status;
}
