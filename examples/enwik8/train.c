/* train.c - the training loop of `enwik8 train`: truncated back-propagation over contiguous
 * streams.
 *
 *     update = `accumulation` consecutive segments of every stream, gradients averaged
 *     every so often: a validation, a report, a checkpoint
 *
 * The checkpoint comes last: what a kill before it loses is done again by the resumed run, so log,
 * best and last checkpoint always tell the same story. A loss that is no number stops the run
 * before anything is overwritten. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "op_times.h"
#include "plan.h"
#include "trainer.h"

static double rate_of(const settings *s, int64_t u)
{
    const double lr = s->c.lr, end = s->lr_end;
    switch ((schedule)s->schedule) {
    case SCHEDULE_LINEAR: return tp_lr_linear(u, s->warmup, s->c.steps, lr, end);
    case SCHEDULE_COSINE: return tp_lr_cosine(u, s->warmup, s->c.steps, lr, end);
    case SCHEDULE_STEP: return tp_lr_step(u, s->warmup, s->lr_every, s->lr_factor, lr);
    case SCHEDULE_ONECYCLE: return tp_lr_onecycle(u, s->c.steps, lr, 0.3, 25, 1e4);
    case SCHEDULE_CONSTANT: break;
    }
    return tp_lr_constant(u, s->warmup, lr);
}

static int64_t count_targets(const int32_t *y, int64_t n)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < n; i++) counted += y[i] >= 0;
    return counted;
}

/* Training has come to a value that is no number in the course of an update. */
static bool lost(trainer *t, const char *what, double x, int64_t at)
{
    char why[200];
    snprintf(why, sizeof why, "the %s is %g at update %lld", what, x, (long long)at);
    return trainer_lost(t, why);
}

static bool tape_failed(trainer *t)
{
    const tp_tape *T = t->T;
    if (tp_code_of(T) == TP_E_NONFINITE) return !trainer_lost(t, tp_why(T));
    return !tp_ok(T) && !trainer_fail(t, "%s", tp_why(T));
}

/* The sum of pending losses, in the dtype of losses: zero in the beginning. */
static void clear_losses(trainer *t)
{
    static const double zero = 0.0; /* zero bytes in f32 too */
    tp_feed(t->T, &t->losses, t->s.c.dtype == TP_F64 ? TP_F64 : TP_F32, TP_SCALAR, &zero);
}

/* `at`: the update that the losses belong to. */
static bool collect(trainer *t, int64_t at)
{
    tally *sum = &t->sum;
    if (sum->pending == 0) return true;
    const double losses = tp_item(t->T, t->losses);
    clear_losses(t);
    if (tape_failed(t)) return false;
    if (!isfinite(losses)) return lost(t, "loss", losses, at);
    sum->loss += losses;
    sum->nll += losses * (double)(t->s.c.batch * t->s.tokens);
    sum->segments += sum->pending;
    sum->pending = 0;
    return true;
}

bool train_collect(trainer *t)
{
    return collect(t, t->update);
}

/* Forward and backward of a segment, and its mean loss added to the others'. */
static void step_segment(trainer *t)
{
    tp_tape *T = t->T;
    const int64_t k = t->s.accumulation;
    const tp_tensor logits = model_forward(T, t->m, &t->mem, t->in);
    const tp_tensor loss = tp_cross_entropy(T, logits, t->target, TP_MEAN_ALL);
    tp_backward(T, k > 1 ? tp_scale(T, loss, 1.0 / (double)k) : loss);
    tp_carry(T, &t->losses, tp_add(T, t->losses, tp_detach(T, loss)));
}

/* On the CPU the loss is read at once. A card would have to wait in each step until the host has
 * read it and queued the next, so there it is read when a report or a checkpoint is due. */
static bool run_segment(trainer *t)
{
    const settings *s = &t->s;
    const int64_t cells = s->c.batch * s->tokens;
    const tp_shape shape = TP_SHAPE(s->c.batch, s->tokens);
    tp_bytes_next_host(t->reader, t->x, t->y);
    tp_feed(t->T, &t->in, TP_I32, shape, t->x);
    tp_feed(t->T, &t->target, TP_I32, shape, t->y);
    if (!tp_given(t->losses)) clear_losses(t);
    if (!t->C) tp_reset(t->T);
    if (!t->C || tp_capture_begin(t->C)) {
        step_segment(t);
        if (t->C) tp_capture_end(t->C);
    }
    if (tape_failed(t)) return false;
    t->sum.counted += count_targets(t->y, cells);
    t->sum.tokens += cells;
    t->sum.pending++;
    return t->on_card || collect(t, t->update + 1);
}

/* One update; *norm is the gradient's, readable until the next. */
static bool update(trainer *t, tp_tensor *norm)
{
    for (int64_t k = 0; k < t->s.accumulation; k++)
        if (!run_segment(t)) return false;
    *norm = tp_clip_grad_norm(t->P, t->s.clip);
    if (!tp_step(t->O, rate_of(&t->s, t->update))) return trainer_fail(t, "%s", tp_optim_why(t->O));
    if (t->ema) tp_ema_update(t->ema);
    if (t->ema && !tp_ema_ok(t->ema)) return trainer_fail(t, "%s", tp_ema_why(t->ema));
    t->update++;
    return true;
}

bool train_updates(trainer *t, int64_t updates)
{
    tp_tensor norm;
    for (int64_t u = 0; u < updates; u++)
        if (!update(t, &norm)) return false;
    return true;
}

/* ---- validation ---- */

/* Over the validation text in as many streams as training has, every token scored. */
bool train_measure(trainer *t, double *bpc)
{
    const settings *s = &t->s;
    int64_t n, counted = 0;
    tp_text_ids(t->text, TP_VALID, &n);
    const int64_t M = s->tokens, blocks = n > 1 ? (n - 1) / M + 1 : 1;
    const int64_t B = s->c.batch < blocks ? s->c.batch : blocks;
    tp_bytes *V = tp_bytes_new(t->text, TP_VALID,
                               &(tp_bytes_opts){ .batch = B, .tokens = M, .all_targets = true });
    if (!tp_bytes_ok(V)) trainer_fail(t, "%s", tp_bytes_why(V));
    int64_t steps = t->why[0] ? 0 : tp_bytes_steps(V);
    if (s->eval_tokens > 0 && steps > (s->eval_tokens - 1) / (B * M) + 1)
        steps = (s->eval_tokens - 1) / (B * M) + 1;
    model_state state = { 0 };
    double nll = 0;
    for (int64_t i = 0; i < steps && !run_stop_signal() && tp_ok(t->E); i++) {
        tp_reset(t->E);
        tp_bytes_next_host(V, t->x, t->y);
        const tp_tensor x = tp_from(t->E, TP_I32, TP_SHAPE(B, M), t->x);
        const tp_tensor y = tp_from(t->E, TP_I32, TP_SHAPE(B, M), t->y);
        const tp_tensor logits = model_forward(t->E, t->m, &state, x);
        nll += tp_item(t->E, tp_cross_entropy(t->E, logits, y, TP_SUM));
        counted += count_targets(t->y, B * M);
    }
    model_state_clear(t->E, t->m, &state);
    tp_reset(t->E);
    tp_bytes_free(V);
    if (!tp_ok(t->E)) trainer_fail(t, "%s", tp_why(t->E));
    *bpc = nll / (double)counted / log(2.0);
    return !t->why[0] && !run_stop_signal();
}

/* Validates, with the averaged weights if there are any, and keeps the best. */
static bool validate(trainer *t, double *bpc)
{
    if (t->ema) tp_ema_swap(t->ema);
    const bool done = train_measure(t, bpc);
    const bool best = done && *bpc < t->best;
    if (best && trainer_save_best(t, *bpc)) t->best = *bpc;
    if (t->ema) tp_ema_swap(t->ema);
    if (done)
        progress_say(&t->bar, "step %lld  validation %.4f bpc%s", (long long)t->update, *bpc,
                     best ? "  (best)" : "");
    return done;
}

/* ---- reports ---- */

typedef struct step_state {
    int64_t step;
    double loss, bpc, tokens_per_s;
    size_t memory; /* bytes */
} step_state;

static step_state state_of(const trainer *t)
{
    const tally *sum = &t->sum;
    return (step_state){
        .step = t->update,
        .loss = sum->loss / (double)sum->segments,
        .bpc = sum->nll / (double)sum->counted / log(2.0),
        .tokens_per_s = (double)sum->tokens / (seconds_now() - sum->began),
        .memory = tp_device_stats(t->D).peak_bytes,
    };
}

static void show(trainer *t, const step_state *now, bool report)
{
    char what[160];
    snprintf(what, sizeof what, "loss %.4f  bpc %.4f  %.0f tokens/s  %.0f MB", now->loss, now->bpc,
             now->tokens_per_s, (double)now->memory / 1e6);
    progress_step(&t->bar, now->step, report, what);
}

/* In all updates so far. */
static int64_t tokens_seen(const trainer *t)
{
    return t->update * t->s.accumulation * t->s.c.batch * t->s.tokens;
}

static bool report(trainer *t, const step_state *now, double norm, double valid)
{
    json_t *line =
        json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:I}", "step", (json_int_t)now->step,
                  "tokens", (json_int_t)tokens_seen(t), "seconds", log_number(t->seconds), "loss",
                  log_number(now->loss), "bpc", log_number(now->bpc), "lr",
                  log_number(rate_of(&t->s, t->update - 1)), "grad_norm", log_number(norm),
                  "tokens_per_s", log_number(now->tokens_per_s), "memory", (json_int_t)now->memory);
    if (!isnan(valid)) json_object_set_new(line, "valid_bpc", log_number(valid));
    return log_write(&t->log, line) || trainer_fail(t, "%s", t->log.why);
}

static bool due(int64_t every, int64_t update)
{
    return every > 0 && update % every == 0;
}

/* What an update leaves in the run's folder, in this order (see above). */
typedef struct duties {
    bool validate, report, save;
} duties;

static bool write_files(trainer *t, const step_state *now, double norm, duties todo)
{
    double valid = (double)NAN;
    if ((todo.report || todo.save) && run_vanished(&t->run)) return false;
    if (todo.validate) validate(t, &valid);
    if (todo.report && !t->why[0] && report(t, now, norm, valid)) t->sum = (tally){ 0 };
    return !t->why[0] && (!todo.save || trainer_save(t));
}

/* What follows an update; `last`: there is no next. */
static bool after_update(trainer *t, tp_tensor norm, bool last)
{
    const settings *s = &t->s;
    const bool validating = !run_stop_signal() && (due(s->c.eval_every, t->update) || last);
    const duties todo = { .validate = validating,
                          .report = due(s->c.log_every, t->update) || validating,
                          .save = due(s->c.checkpoint_every, t->update) || last };
    if ((todo.report || todo.save) && !train_collect(t)) return false;
    const step_state now = state_of(t);
    const double paused = seconds_now();
    double size = 0;
    t->seconds += paused - t->sum.going;
    if (todo.report || todo.save) {
        size = tp_item(t->T, norm);
        if (!tp_ok(t->T)) return trainer_fail(t, "%s", tp_why(t->T));
        if (!isfinite(size)) return lost(t, "gradient's norm", size, t->update);
    }
    show(t, &now, todo.report);
    const bool done = write_files(t, &now, size, todo);
    if (!done && run_vanished(&t->run)) trainer_rescue(t);
    const double going = seconds_now();
    t->sum.began = todo.report ? going : t->sum.began + going - paused;
    t->sum.going = going;
    return done;
}

/* ---- the program ---- */

static void introduce(trainer *t)
{
    const settings *s = &t->s;
    const tp_stats machine = tp_device_stats(t->D);
    progress_say(&t->bar, "%s: %lld layers, width %lld, %lld parameters",
                 s->model == MODEL_TXL ? "Transformer-XL" : "Transformer-LS", (long long)s->layers,
                 (long long)s->dim, (long long)tp_params_count(t->P));
    progress_say(
        &t->bar, "%s%s%s: %lld + %lld + %lld bytes for training, validation and test, %lld tokens",
        s->c.data, s->extra && *s->extra ? " and " : "", s->extra ? s->extra : "",
        (long long)tp_text_bytes(t->text, TP_TRAIN), (long long)tp_text_bytes(t->text, TP_VALID),
        (long long)tp_text_bytes(t->text, TP_TEST), (long long)tp_text_vocab(t->text)->size);
    progress_say(
        &t->bar,
        "%s, %d threads, %s kernels; %lld streams of %lld tokens, cache %lld; run folder %s",
        tp_device_name(t->D), machine.threads, machine.isa, (long long)s->c.batch,
        (long long)s->tokens, (long long)s->mem_len, t->run.path);
    if (t->update > 0) progress_say(&t->bar, "resumed after update %lld", (long long)t->update);
}

static void train(trainer *t)
{
    const settings *s = &t->s;
    const double began = seconds_now();
    t->sum.began = t->sum.going = began;
    tp_tensor norm = TP_NONE;
    bool last = false;
    tp_device_reset_profile(t->D); /* of what opening the run has cost */
    while (!last && update(t, &norm)) {
        const bool late = s->time > 0 && seconds_now() - began >= s->time;
        last = t->update >= s->c.steps || late || run_stop_signal() != 0;
        if (!after_update(t, norm, last)) return;
        if (!last && run_stop_signal()) /* it came during the validation */
            last = true, trainer_save(t);
    }
}

static void say_goodbye(trainer *t)
{
    const char *stopped = run_stop_signal() == SIGINT    ? "stopped by SIGINT"
                          : run_stop_signal() == SIGTERM ? "stopped by SIGTERM"
                          : run_stop_signal() == SIGHUP  ? "stopped by SIGHUP"
                                                         : "time is up";
    progress_end(&t->bar);
    if (t->update >= t->s.c.steps)
        printf("Done: %lld updates; best validation %.4f bpc: %s\n", (long long)t->update, t->best,
               t->run.best);
    else
        printf("%s after update %lld, checkpoint written. Continue with: enwik8 train --resume "
               "--run-dir %s\n",
               stopped, (long long)t->update, t->run.path);
}

static const program manual = {
    .name = "enwik8 train",
    .summary = "trains a language model on bytes of text",
    .synopsis = "--data FILE [--preset tiny|mini|small|large] [--phase 1|2|3] [flag ...]\n"
                "    enwik8 train --resume [--run-dir DIR] [--steps N] [flag ...]",
    .about =
        "Trains Transformer-LS (or Transformer-XL) to predict the next byte, on enwik8, text8 or "
        "any "
        "other text: 90 % of the file for training, 5 % each for validation and test. Streams of "
        "text advance side by side, segment by segment, with a cache of what came before.\n\n"
        "A preset sets every hyper-parameter, flags override it. The presets small and large have "
        "the paper's three phases; each begins with the weights of the one before (--init) and "
        "twice "
        "the segment length. Defaults shown below are those of the preset tiny.\n\n"
        "SIGINT, SIGTERM and SIGHUP end the run after the current update with a checkpoint; "
        "--resume "
        "continues it with the same bits as if it had never stopped. Every checkpoint is written "
        "beside the last one and renamed, so a killed run keeps the last complete one.\n\n"
        "A loss, gradient or weight that is NaN or infinite ends the run with status 1 before it "
        "overwrites last.safetensors: that file stays the last good one.",
    .table = train_options,
    .more =
        "FILES\n"
        "    last.safetensors  everything the next update depends on\n"
        "    best.safetensors  weights with the best validation, model and dictionary\n"
        "    log.jsonl         a JSON object a report: step, tokens (seen so far), seconds (of\n"
        "                      training, without validations and checkpoints), loss (nats), bpc,\n"
        "                      lr, grad_norm, tokens_per_s, memory (peak bytes), valid_bpc after\n"
        "                      a validation\n"
        "    config.json       all settings\n"
        "    lock              held while a process works in the folder\n\n"
        "EXIT STATUS\n"
        "    0 done, or time is up; 1 an error; 2 a bad flag; 129, 130, 143 stopped by "
        "SIGHUP, SIGINT, SIGTERM\n\n"
        "EXAMPLES\n"
        "    enwik8 train --data enwik8.zip --preset small --run-dir runs/phase1\n"
        "    enwik8 train --data enwik8.zip --preset small --phase 2 --run-dir runs/phase2 \\\n"
        "        --init runs/phase1/last.safetensors\n"
        "    enwik8 train --data novel.txt --time 600 --run-dir runs/novel\n",
};

int train_main(int argc, char **argv)
{
    static trainer t;
    int status = trainer_open(&t, &manual, argc, argv);
    if (status == OPTIONS_RUN && t.s.plan) {
        status = plan_main(&t);
    } else if (status == OPTIONS_RUN) {
        run_catch_signals();
        const double began = seconds_now();
        progress_start(&t.bar, t.update, t.s.c.steps, t.s.time);
        introduce(&t);
        plan_announce(&t);
        if (t.update < t.s.c.steps) train(&t);
        if (t.why[0]) {
            progress_end(&t.bar);
            fprintf(stderr, "%s: %s\n", manual.name, t.why);
        } else {
            say_goodbye(&t);
        }
        if (t.s.profile && t.D) op_times_print(t.D, seconds_now() - began);
        status = t.why[0] ? 1 : run_stop_signal() ? 128 + run_stop_signal() : 0;
    }
    trainer_close(&t);
    return status;
}
