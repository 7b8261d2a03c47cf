/* train_update.c - one update of a run.
 *
 *     update = `accumulation` batches, gradients averaged; clipping; optimiser; moving average
 *
 * The mean is over all targets of the update, not over the batches' means. The number of targets
 * is known only after the last batch, so gradients are summed as if each batch had --batch of
 * them, and the step multiplies them by the remaining factor, 1 if that was true. An update of
 * one batch of each process knows the number before its backward pass and needs no such factor.
 *
 * With --graph a whole update is one recorded step, or, where the gradients have another use before
 * the optimiser's (several processes, histograms), its forward and backward pass.
 *
 * A NaN or infinite loss ends the run before anything is overwritten. On the CPU each loss is
 * read at once. On a GPU that would stall every step, so losses are summed on the device and
 * read when a report or a checkpoint is due. */
#include <math.h>
#include <stdio.h>
#include <tapegrad/observe.h>

#include "trainer.h"

/* ---- losses ---- */

/* Sets a slot to x, in the dtype of losses. */
static void put(tp_trainer *r, tp_tensor *slot, double x)
{
    const float narrow = (float)x;
    if (r->o->machine.dtype == TP_F64)
        tp_feed(r->run.T, slot, TP_F64, TP_SCALAR, &x);
    else
        tp_feed(r->run.T, slot, TP_F32, TP_SCALAR, &narrow);
}

/* Sets a sum of pending losses to zero. */
static void clear(tp_trainer *r, tp_tensor *slot)
{
    put(r, slot, 0.0);
}

void tp_run_sum(tp_run *R, int n, const tp_tensor *x)
{
    if (!R) return;
    tp_trainer *r = tp__run_of(R);
    r->terms = n < TP_RUN_SUMS ? n : TP_RUN_SUMS;
    for (int k = 0; k < r->terms; k++) r->term[k] = tp_detach(R->T, x[k]);
    r->unread++;
}

static void collect_terms(tp_trainer *r)
{
    for (int k = 0; k < r->terms && r->unread > 0; k++) {
        r->run.sum[k] += tp_item(r->run.T, r->pending[k]) / r->run.ranks;
        clear(r, &r->pending[k]);
    }
    r->run.summed += r->unread;
    r->unread = 0;
}

bool tp__run_collect(tp_trainer *r, int64_t at)
{
    tp_tally *sum = &r->sum;
    if (sum->pending <= 0) return true;
    const double losses = tp_item(r->run.T, r->losses), ranks = r->run.ranks;
    clear(r, &r->losses);
    collect_terms(r);
    if (!tp__run_fine(r)) return false;
    if (!isfinite(losses)) {
        char why[200];
        snprintf(why, sizeof why, "the loss is %g at update %lld", losses, (long long)at);
        return tp__run_lost(r, why);
    }
    sum->report += losses / ranks; /* sums over processes are then those of one process */
    sum->epoch += losses / ranks;
    sum->reported += sum->pending / ranks;
    sum->of_epoch += sum->pending / ranks;
    sum->pending = 0;
    return true;
}

/* ---- batches ---- */

void tp__run_place(tp_trainer *r, int64_t batch)
{
    tp_run *R = &r->run;
    const int64_t epoch = R->per_epoch > 0 ? R->update / R->per_epoch : 0;
    R->epoch = epoch;
    R->batch = (R->update - epoch * R->per_epoch) * r->o->accumulation + batch;
}

/* Do the gradients of an update come from several batches? */
static bool adds_up(const tp_trainer *r)
{
    return r->o->accumulation > 1 || r->peers;
}

/* The batch's targets as a multiple of its examples. */
static double weight_of(const tp_trainer *r)
{
    return (double)r->run.targets / (double)r->o->batch;
}

static tp_tensor scaled(tp_tape *T, tp_tensor x, double k)
{
    return k == 1.0 ? x : tp_scale(T, x, k);
}

/* Multiplies a loss by its batch's weight. A recorded step keeps the factors of its first run, so
 * it reads the weight from a slot. */
static tp_tensor weighted(const tp_trainer *r, tp_tensor loss)
{
    return r->C ? tp_mul(r->run.T, loss, r->weight) : scaled(r->run.T, loss, weight_of(r));
}

/* Is the weight of all batches of the update known before the backward pass? */
static bool knows_weights(const tp_trainer *r)
{
    return r->o->accumulation == 1 && !r->C;
}

/* The part of an update's loss that this batch's is. */
static tp_tensor part_of(const tp_trainer *r, tp_tensor loss)
{
    const double batches = (double)(r->o->accumulation * r->run.ranks);
    if (!adds_up(r)) return loss;
    if (!knows_weights(r)) return scaled(r->run.T, weighted(r, loss), 1.0 / batches);
    return r->weight_sum > 0 ? scaled(r->run.T, loss, weight_of(r) / r->weight_sum) : loss;
}

/* Agrees with the others to exchange the gradients of the backward pass that follows. */
static bool agree(tp_trainer *r, bool ready)
{
    r->weights += weight_of(r);
    if (ready) r->agreed = tp__run_everywhere(r, tp__run_fine(r));
    return !ready || r->agreed;
}

/* Runs forward and backward, and adds the loss to the pending ones. ready: these gradients complete
 * the update's. */
static void differentiate(tp_trainer *r, bool ready)
{
    tp_tape *T = r->run.T;
    tp_trace_enter(r->run.D, "forward");
    const tp_tensor loss = r->t->loss(&r->run);
    tp_trace_leave(r->run.D);
    if (!r->C && !agree(r, ready)) return;
    if (ready && r->X && !r->C) tp_exchange_begin(r->X);
    tp_trace_enter(r->run.D, "backward");
    tp_backward(T, part_of(r, loss));
    tp_trace_leave(r->run.D);
    tp_carry(T, &r->losses, tp_add(T, r->losses, weighted(r, tp_detach(T, loss))));
    for (int i = 0; i < r->terms; i++) {
        if (!tp_given(r->pending[i])) clear(r, &r->pending[i]);
        tp_carry(T, &r->pending[i], tp_add(T, r->pending[i], r->term[i]));
    }
}

/* ---- the optimiser ---- */

double tp__run_rate(const tp_trainer *r, int64_t update)
{
    if (r->range.updates > 0) return tp__range_rate(&r->range, update);
    const double rate =
        r->t->rate ? r->t->rate(&r->run, update) : tp_train_rate(r->o, update, r->last);
    return rate * tp__course_factor(r);
}

/* Is the optimiser's step part of the recorded step? On the CPU the loss is read before it. */
static bool is_whole(const tp_trainer *r)
{
    return r->C && r->on_gpu && tp_optim_records(r->O) && !tp__events_want_gradients(r);
}

/* The factor that averages the gradients over all targets, in all processes. */
static double mean_of(const tp_trainer *r)
{
    const double batches = (double)(r->o->accumulation * r->run.ranks);
    const double weights = r->peers ? r->weight_sum : r->weights;
    return adds_up(r) && !knows_weights(r) && weights > 0 ? batches / weights : 1.0;
}

/* Gives the optimiser the numbers of its next step. */
static void prepare(tp_trainer *r)
{
    r->mean = mean_of(r);
    r->rate = tp__run_rate(r, r->run.update);
    tp_grad_scale(r->O, r->mean);
    tp_next_rate(r->O, r->rate);
}

/* Clips the gradients and changes the parameters. */
static bool change(tp_trainer *r)
{
    tp_trace_enter(r->run.D, "optimizer");
    r->clipped = tp_clip_grad_norm(r->run.P, r->o->clip / r->mean);
    const bool stepped = tp_step(r->O, r->rate);
    if (stepped && r->ema) tp_ema_update(r->ema);
    tp_trace_leave(r->run.D);
    return stepped;
}

/* ---- the step ---- */

static bool run_batch(tp_trainer *r, bool ready)
{
    tp_tape *T = r->run.T;
    const bool whole = is_whole(r);
    r->run.targets = r->o->batch;
    tp__run_watch_rows(r, true);
    tp_trace_enter(r->run.D, "next batch");
    r->t->next(&r->run);
    tp_trace_leave(r->run.D);
    tp__run_watch_rows(r, false);
    if (r->C) put(r, &r->weight, weight_of(r));
    if (r->o->sync_bn && !tp__run_everywhere(r, tp__run_fine(r))) return false; /* norms wait */
    if (!tp__run_fine(r) || (r->C && !agree(r, ready))) return false;
    if (!tp_given(r->losses)) clear(r, &r->losses);
    if (whole) prepare(r);
    if (!r->C) tp_reset(T);
    if (!r->C || tp_capture_begin(r->C)) {
        differentiate(r, ready);
        if (whole) change(r);
        if (r->C) tp_capture_end(r->C);
    }
    r->sum.pending += weight_of(r);
    return tp__run_fine(r) && (r->on_gpu || tp__run_collect(r, r->run.update + 1));
}

static bool run_batches(tp_trainer *r)
{
    r->weights = 0;
    for (int64_t k = 0; k < r->o->accumulation; k++) {
        tp__run_place(r, k);
        if (!run_batch(r, k + 1 == r->o->accumulation)) return false;
    }
    return true;
}

/* ---- several processes ---- */

/* Sums the gradients over the processes. One whose backward failed takes part, too. */
static bool exchange(tp_trainer *r)
{
    if (!r->X || r->parted || tp_exchange_finish(r->X)) return !r->parted;
    if (!r->why[0]) { /* another process has the reason */
        r->in_sums = true;
        tp__run_fail(r, "%s", tp_exchange_why(r->X));
    }
    return tp__run_everywhere(r, false);
}

/* ---- the update ---- */

/* The rest of an update whose batches have run. */
static bool step(tp_trainer *r)
{
    if (is_whole(r)) return tp__run_fine(r);
    prepare(r);
    tp__events_gradients(r);
    const bool stepped = change(r);
    return tp__run_fine(r) && stepped;
}

/* Runs the batches. A process that fails before it has agreed to exchange gradients says so in the
 * agreement that the others are at. */
static bool begin_update(tp_trainer *r)
{
    r->agreed = false;
    const bool done = tp__run_fine(r) && run_batches(r);
    if (done || !r->peers) return done;
    return (r->agreed && !r->parted) || tp__run_everywhere(r, false);
}

/* One process alone ends at once where it fails; one of several goes on to the next agreement. */
bool tp__run_update(tp_trainer *r, tp_tensor *norm)
{
    tp_run *R = &r->run;
    tp__run_now(r, "update", R->update + 1, r->made == 0 ? TP_PATIENCE : 1);
    tp__run_trace(r, true);
    if (!begin_update(r) || !exchange(r)) return false;
    const bool stepped = step(r);
    *norm = r->clipped;
    if (!stepped && !r->peers) return false;
    if (!tp__run_even_buffers(r)) return false;
    tp__run_trace(r, false);
    r->made++;
    R->update++;
    tp__run_place(r, 0);
    return tp__run_check_rows(r);
}
