/* train_update.c - one update of a run.
 *
 *     update = `accumulation` batches, gradients averaged; clipping; optimiser; moving average
 *
 * The mean is over all targets of the update, not over the batches' means. The number of targets is
 * known only after the last batch, so gradients are summed as if each batch had --batch of them,
 * and the step multiplies them by the remaining factor, 1 if that was true.
 *
 * A NaN or infinite loss ends the run before anything is overwritten. On the CPU each loss is read
 * at once. On a GPU that would stall every step, so losses are summed on the device and read when a
 * report or a checkpoint is due. */
#include <math.h>
#include <stdio.h>

#include "trainer.h"

/* ---- losses ---- */

/* Sets a sum of pending losses, in their dtype, to zero. */
static void clear(tp_trainer *r, tp_tensor *slot)
{
    static const double zero = 0.0; /* zero bytes in f32 too */
    tp_feed(r->run.T, slot, r->o->machine.dtype == TP_F64 ? TP_F64 : TP_F32, TP_SCALAR, &zero);
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
        r->run.sum[k] += tp_item(r->run.T, r->pending[k]);
        clear(r, &r->pending[k]);
    }
    r->run.summed += r->unread;
    r->unread = 0;
}

bool tp__run_collect(tp_trainer *r, int64_t at)
{
    tp_tally *sum = &r->sum;
    if (sum->pending <= 0) return true;
    const double losses = tp_item(r->run.T, r->losses);
    clear(r, &r->losses);
    collect_terms(r);
    if (!tp__run_fine(r)) return false;
    if (!isfinite(losses)) {
        char why[200];
        snprintf(why, sizeof why, "the loss is %g at update %lld", losses, (long long)at);
        return tp__run_lost(r, why);
    }
    sum->report += losses;
    sum->epoch += losses;
    sum->reported += sum->pending;
    sum->of_epoch += sum->pending;
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

/* The batch's targets as a multiple of --batch. A recorded step keeps the factors of its first run,
 * so its batches have equal weights. */
static double weight_of(const tp_trainer *r)
{
    return r->C ? 1.0 : (double)r->run.targets / (double)r->o->batch;
}

static tp_tensor scaled(tp_tape *T, tp_tensor x, double k)
{
    return k == 1.0 ? x : tp_scale(T, x, k);
}

/* Runs forward and backward, and adds the loss to the pending ones. */
static void differentiate(tp_trainer *r)
{
    tp_tape *T = r->run.T;
    const tp_tensor loss = r->t->loss(&r->run);
    const double k = (double)(r->o->accumulation * r->run.ranks), weight = weight_of(r);
    tp_backward(T, scaled(T, loss, adds_up(r) ? weight / k : 1.0));
    tp_carry(T, &r->losses, tp_add(T, r->losses, scaled(T, tp_detach(T, loss), weight)));
    for (int i = 0; i < r->terms; i++) {
        if (!tp_given(r->pending[i])) clear(r, &r->pending[i]);
        tp_carry(T, &r->pending[i], tp_add(T, r->pending[i], r->term[i]));
    }
}

static bool run_batch(tp_trainer *r)
{
    tp_tape *T = r->run.T;
    r->run.targets = r->o->batch;
    r->t->next(&r->run);
    if (!tp__run_fine(r)) return false;
    if (!tp_given(r->losses)) clear(r, &r->losses);
    if (!r->C) tp_reset(T);
    if (!r->C || tp_capture_begin(r->C)) {
        differentiate(r);
        if (r->C) tp_capture_end(r->C);
    }
    r->weights += weight_of(r);
    r->sum.pending += weight_of(r);
    return tp__run_fine(r) && (r->on_gpu || tp__run_collect(r, r->run.update + 1));
}

static bool run_batches(tp_trainer *r)
{
    r->weights = 0;
    for (int64_t k = 0; k < r->o->accumulation; k++) {
        tp__run_place(r, k);
        if (!run_batch(r)) return false;
    }
    return true;
}

/* ---- several processes ---- */

/* Averages the gradients over all processes. */
static bool reduce(tp_trainer *r)
{
    if (!r->X || tp_exchange_finish(r->X)) return true;
    return tp__run_fail(r, "%s", tp_exchange_why(r->X));
}

/* The factor that averages the gradients over all targets, in all processes. */
static double mean_of(tp_trainer *r)
{
    const double batches = (double)(r->o->accumulation * r->run.ranks);
    if (!adds_up(r)) return 1.0;
    tp_run_total(&r->run, &r->weights, 1);
    return r->weights > 0 ? batches / r->weights : 1.0;
}

/* ---- the update ---- */

double tp__run_rate(const tp_trainer *r, int64_t update)
{
    return r->t->rate ? r->t->rate(&r->run, update) : tp_train_rate(r->o, update, r->last);
}

bool tp__run_update(tp_trainer *r, tp_tensor *norm)
{
    tp_run *R = &r->run;
    if (!tp__run_everywhere(r, run_batches(r))) return false;
    const bool reduced = reduce(r);
    r->mean = mean_of(r);
    *norm = tp_clip_grad_norm(R->P, r->o->clip / r->mean);
    tp_grad_scale(r->O, r->mean);
    const bool stepped = reduced && tp_step(r->O, tp__run_rate(r, R->update));
    if (stepped && r->ema) tp_ema_update(r->ema);
    if (!tp__run_everywhere(r, tp__run_fine(r) && stepped)) return false;
    R->update++;
    tp__run_place(r, 0);
    return true;
}
