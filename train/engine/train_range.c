/* train_range.c - --lr-range FROM:TO[:UPDATES]: which learning rates train a model? From update to
 * update the rate is multiplied by the same factor, until TO or until the loss diverges.
 *
 *     smooth[u] = (0.9 s[u-1] + 0.1 loss[u]) / (1 - 0.9^(u+1)),  s the sum without the division
 *
 * It diverges where it is NaN or infinite, or smoothed four times as high as at its lowest. Losses
 * go to lr-range.jsonl and lr-range.svg in the run's folder. There is no checkpoint, so nothing can
 * resume it, and a run may begin in the same folder.
 *
 * L. N. Smith, Cyclical Learning Rates for Training Neural Networks, 2017. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "range.h"
#include "trainer.h"

static const double KEEP = 0.9;

enum { REACH = 10 }; /* updates that smooth averages: 1 / (1 - KEEP) */

/* ---- the flag ---- */

/* Fails, naming them, if flags were given that the test has no use for. */
static bool has_only_useful(tp_trainer *r, const tp_given_flags *given)
{
    static const char *const useless[] = { "plan",        "overwrite",  "report",
                                           "tensorboard", "histograms", "profile",
                                           "keep-last",   "keep-best",  "patience" };
    char text[300] = "";
    size_t n = 0;
    for (size_t i = 0; i < sizeof useless / sizeof *useless; i++)
        if (tp_was_given(given, useless[i]))
            n += (size_t)snprintf(text + n, sizeof text - n, "%s--%s", n ? ", " : "", useless[i]);
    return n == 0 || tp__run_fail(r,
                                  "--lr-range writes only its losses and trains no model to keep: "
                                  "leave out %s",
                                  text);
}

bool tp__run_take_range(tp_trainer *r, const tp_given_flags *given)
{
    enum { USUAL = 100, MOST = 1000000 };
    tp_range *g = &r->range;
    const char *text = r->o->lr_range;
    char *end;
    double updates = USUAL;
    if (!text) return true;
    g->from = tp_number_read(text, &end);
    bool good = end != text && *end == ':';
    if (good) g->to = tp_number_read(text = end + 1, &end);
    good = good && end != text && g->from > 0 && g->to > g->from && isfinite(g->to);
    if (good && *end == ':') {
        updates = tp_number_read(text = end + 1, &end);
        good = end != text;
    }
    if (!good || *end || !(updates >= 2 && updates <= MOST) || floor(updates) != updates)
        return tp__run_fail(r,
                            "--lr-range: '%s' is not FROM:TO or FROM:TO:UPDATES, such as 1e-6:1, "
                            "with 0 < FROM < TO and 2 to %d updates",
                            r->o->lr_range, MOST);
    if (!has_only_useful(r, given)) return false;
    if (r->peers)
        return tp__run_fail(r, "--lr-range runs in one process: start it without a launcher");
    g->updates = (int64_t)updates;
    return true;
}

double tp__range_rate(const tp_range *g, int64_t update)
{
    const double part = (double)update / (double)(g->updates - 1);
    return g->from * pow(g->to / g->from, part);
}

/* ---- the test ---- */

static bool open_files(tp_trainer *r)
{
    tp_range *g = &r->range;
    char path[TP_PATH + 32];
    const size_t n = (size_t)g->updates;
    g->lr = malloc(3 * n * sizeof *g->lr);
    if (!g->lr) return tp__run_fail(r, "out of memory for the losses of --lr-range");
    g->loss = g->lr + n;
    g->smooth = g->loss + n;
    r->begun = true;
    tp_run_path(&r->run, "lr-range.jsonl", path, sizeof path);
    return tp__log_open(&r->log, path, 0) || tp__run_fail(r, "%s", r->log.why);
}

/* Appends the loss of the last update; NaN: it had none. */
static bool note(tp_trainer *r, double loss)
{
    tp_range *g = &r->range;
    const int64_t i = g->n++;
    g->lr[i] = tp__range_rate(g, i);
    g->loss[i] = loss;
    g->sum = KEEP * g->sum + (1 - KEEP) * loss;
    g->smooth[i] = g->sum / (1 - pow(KEEP, (double)(i + 1)));
    if (g->n == 1 || g->smooth[i] < g->smooth[g->lowest]) g->lowest = i;
    json_t *line = json_pack("{s:I}", "step", (json_int_t)(i + 1));
    json_object_set_new(line, "lr", tp__log_number(g->lr[i]));
    json_object_set_new(line, "loss", tp__log_number(loss));
    json_object_set_new(line, "smooth", tp__log_number(g->smooth[i]));
    return tp__log_write(&r->log, line) || tp__run_fail(r, "%s", r->log.why);
}

/* The mean loss of the update that was made, or failed because of a NaN. */
static double loss_of(tp_trainer *r, bool made)
{
    tp_tally *sum = &r->sum;
    const double loss = made && sum->reported > 0 ? sum->report / sum->reported : (double)NAN;
    *sum = (tp_tally){ .pending = sum->pending };
    return loss;
}

static void show(tp_trainer *r)
{
    const tp_range *g = &r->range;
    char text[100];
    snprintf(text, sizeof text, "lr %.3g  loss %.4f", g->lr[g->n - 1], g->loss[g->n - 1]);
    tp__progress_step(&r->bar, g->n, g->n % r->o->log_every == 0, text);
}

static bool diverges(const tp_range *g)
{
    const double now = g->smooth[g->n - 1], least = g->smooth[g->lowest];
    return !isfinite(now) || (least > 0 && now > 4 * least);
}

static bool is_late(const tp_trainer *r)
{
    return r->o->time > 0 && tp_seconds() - r->started >= r->o->time;
}

/* False if the run fails. As in training, --time ends it after the update that exceeds it. */
static bool test(tp_trainer *r)
{
    tp_range *g = &r->range;
    tp_tensor norm;
    r->started = tp_seconds();
    while (g->n < g->updates && !g->diverged && !tp_stop_signal() && !(g->n > 0 && is_late(r))) {
        const bool made =
            tp__run_update(r, &norm) && tp__run_collect(r, r->run.update) && tp__run_fine(r);
        if (!made && (!r->lost || g->n == 0)) return false;
        r->why[0] = '\0';
        if (!note(r, loss_of(r, made))) return false;
        show(r);
        g->diverged = diverges(g);
    }
    return true;
}

/* ---- what it says ---- */

/* The middle of the ten updates over which the smoothed loss falls most, in equal factors of the
 * rate. From one update to the next, chance decides, and so it does in the first ones, whose
 * smoothed losses average only a few. */
static int64_t steepest(const tp_range *g)
{
    const int64_t half = REACH / 2;
    int64_t at = 0;
    double most = 0;
    for (int64_t i = REACH + half; i + half <= g->lowest; i++) {
        const double fall = g->smooth[i - half] - g->smooth[i + half];
        if (!(fall > most)) continue;
        most = fall;
        at = i;
    }
    return at;
}

static void say(tp_trainer *r, const char *picture)
{
    const tp_range *g = &r->range;
    char end[100] = "";
    if (g->diverged)
        snprintf(end, sizeof end, "; at %.3g it diverges", g->lr[g->n - 1]);
    else if (tp_stop_signal())
        snprintf(end, sizeof end, "; a signal ended the test after %lld of %lld updates",
                 (long long)g->n, (long long)g->updates);
    else if (g->n < g->updates)
        snprintf(end, sizeof end, "; --time ended the test after %lld of %lld updates",
                 (long long)g->n, (long long)g->updates);
    if (g->steepest > 0)
        tp_run_say(&r->run,
                   "the loss falls fastest at a learning rate of %.3g, and is lowest at %.3g%s",
                   g->lr[g->steepest], g->lr[g->lowest], end);
    else
        tp_run_say(&r->run, "the loss is lowest at a learning rate of %.3g%s", g->lr[g->lowest],
                   end);
    tp_run_say(&r->run, "%s and %s have the losses; no model was kept", r->log.path, picture);
}

int tp__run_range(tp_trainer *r)
{
    tp_range *g = &r->range;
    char path[TP_PATH + 32], why[TP_PATH + 600];
    tp__progress_start(&r->bar, 0, g->updates, 0, false);
    tp__run_describe(r);
    bool done = tp__run_fine(r) && open_files(r) && test(r);
    tp_run_path(&r->run, "lr-range.svg", path, sizeof path);
    if (done && g->n >= 2) {
        g->steepest = steepest(g);
        done = tp__range_draw(g, tp__run_program(r->t), path, why, sizeof why) ||
               tp__run_fail(r, "%s", why);
        if (done) say(r, path);
    }
    tp__progress_end(&r->bar);
    free(g->lr);
    if (!done) tp_command_complain(r->command.name, r->why);
    return !done ? 1 : tp_stop_signal() ? 128 + tp_stop_signal() : 0;
}
