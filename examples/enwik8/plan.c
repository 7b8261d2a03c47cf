/* plan.c - what a run will take. Memory is forecast by counting; for the time a model of one layer
 * and the same sizes takes real steps, and the FLOPs of the closed form tell how many times its
 * work the whole model's is. */
#include "plan.h"

#include <memory_table.h>
#include <stdio.h>

#include "forecast.h"

enum { WARM_UP = 2 };
static const double PROBE_FLOPS = 4e10, PROBE_SECONDS = 0.5;

/* ---- memory ---- */

static double mb(size_t bytes)
{
    return (double)bytes / 1e6;
}

/* clang-format off */
#define ROW(name, part) { name, { (double)m[0].part, (double)m[1].part, (double)m[2].part } }
/* clang-format on */
static void print_memory(const forecast m[MEMORY_WAYS], int way)
{
    const memory_row rows[] = {
        ROW("weights", weights),     ROW("gradients", gradients),   ROW("optimizer", optimizer),
        ROW("averages", averages),   ROW("caches", caches),         ROW("activations", activations),
        ROW("peak of a step", peak), ROW("whole process", process),
    };
    memory_table_print(rows, (int)(sizeof rows / sizeof *rows), way);
}

/* ---- work and time ---- */

/* FLOPs of an update: backward is twice forward, recomputation is not counted. */
static double flops_of(const settings *s, int64_t vocab, int64_t rows)
{
    const model_cfg c = model_cfg_from(s, vocab);
    const tp_flops f = c.kind == MODEL_TXL ? tp_txl_flops(&c.txl, s->tokens, rows)
                                           : tp_lm_flops(&c.ls, s->tokens, rows);
    return 6.0 * f.macs * (double)(s->c.batch * s->accumulation);
}

/* Rows of the caches after the updates that warm a part up. */
static int64_t warm_rows(const settings *s)
{
    const bool grows = s->model == MODEL_TXL || s->masked;
    return grows && WARM_UP * s->tokens < s->mem_len ? WARM_UP * s->tokens : s->mem_len;
}

/* Seconds of an update of s. False with the reason in why. */
static bool time_update(const trainer *t, const settings *s, double *seconds, char *why,
                        size_t size)
{
    trainer r;
    bool done = part_begin(&r, t, s, false) && train_updates(&r, WARM_UP);
    done = done && tp_device_sync(r.D);
    const double start = seconds_now();
    done = done && train_updates(&r, 1) && tp_device_sync(r.D);
    *seconds = seconds_now() - start;
    snprintf(why, size, "%s", r.why);
    part_end(&r);
    return done;
}

/* Halves segment and cache while a single stream is too much work to try. */
static void shorten(settings *s, int64_t vocab)
{
    while (flops_of(s, vocab, s->mem_len) > PROBE_FLOPS) {
        char why[512];
        settings h = *s;
        h.tokens /= 2;
        h.mem_len /= 2;
        const model_cfg c = model_cfg_from(&h, vocab);
        if (h.tokens < 2 || !model_cfg_check(&c, why, sizeof why) ||
            !model_segment_check(&c, "--tokens", h.tokens, why, sizeof why))
            return;
        *s = h;
    }
}

/* FLOP/s of a model of one layer, of as many streams as fit into the time for it. */
static bool measure_rate(const trainer *t, double *rate, char *why, size_t size)
{
    const int64_t vocab = tp_text_vocab(t->text)->size;
    settings s = t->s;
    double seconds;
    s.layers = s.accumulation = s.c.batch = 1;
    s.c.lr = s.lr_end = 0; /* the same work, and no loss to go astray */
    shorten(&s, vocab);
    if (!time_update(t, &s, &seconds, why, size)) return false;
    const int64_t more = (int64_t)(PROBE_SECONDS / seconds);
    if (more > 1 && t->s.c.batch > 1) {
        s.c.batch = more < t->s.c.batch ? more : t->s.c.batch;
        if (!time_update(t, &s, &seconds, why, size)) return false;
    }
    *rate = flops_of(&s, vocab, warm_rows(&s)) / seconds;
    return true;
}

/* ---- the whole ---- */

static void print_work(const trainer *t)
{
    const settings *s = &t->s;
    const int64_t vocab = tp_text_vocab(t->text)->size;
    int64_t parameters = 0;
    trainer r;
    if (part_begin(&r, t, s, true)) parameters = tp_params_count(r.P);
    part_end(&r);
    printf("%s: %lld layers, width %lld; %lld parameters, %lld of them embeddings\n",
           s->model == MODEL_TXL ? "Transformer-XL" : "Transformer-LS", (long long)s->layers,
           (long long)s->dim, (long long)parameters, (long long)(vocab * s->dim));
    printf("An update: %lld x %lld streams of %lld tokens after %lld cached, %.4g GFLOP\n",
           (long long)s->accumulation, (long long)s->c.batch, (long long)s->tokens,
           (long long)s->mem_len, flops_of(s, vocab, s->mem_len) * 1e-9);
}

static void print_duration(const trainer *t, double rate)
{
    const settings *s = &t->s;
    const double flops = flops_of(s, tp_text_vocab(t->text)->size, s->mem_len);
    const double step = flops / rate, all = step * (double)s->c.steps;
    char whole[32];
    print_time(whole, sizeof whole, s->time > 0 && s->time < all ? s->time : all);
    printf("Time here: about %.3g s an update (%.1f GFLOP/s), %.0f tokens/s; %s for %.0f updates "
           "without their validations\n",
           step, rate * 1e-9, (double)(s->c.batch * s->tokens * s->accumulation) / step, whole,
           s->time > 0 && s->time < all ? s->time / step : (double)s->c.steps);
}

int plan_main(const trainer *t)
{
    forecast m[MEMORY_WAYS];
    char why[TRAINER_WHY] = "";
    double rate;
    bool done = true;
    for (int k = 0; done && k < MEMORY_WAYS; k++)
        done = forecast_memory(t, k, &m[k], why, sizeof why);
    if (done) {
        print_work(t);
        print_memory(m, t->s.recompute);
        printf("%-24s%12.1f\n", "available here", mb(memory_available()));
        fflush(stdout);
        done = measure_rate(t, &rate, why, sizeof why);
    }
    if (done) print_duration(t, rate);
    if (!done) fprintf(stderr, "enwik8 train --plan: %s\n", why);
    return !done;
}

void plan_announce(trainer *t)
{
    forecast m, less;
    char why[TRAINER_WHY];
    if (!forecast_memory(t, t->s.recompute, &m, why, sizeof why)) {
        progress_say(&t->bar, "warning: the memory of a step cannot be forecast: %s", why);
        return;
    }
    const size_t free_now = memory_available(), now = resident_now();
    if (t->on_card) {
        progress_say(&t->bar, "a step will take %.0f MB of the card at its peak", mb(m.peak));
        return;
    }
    progress_say(&t->bar, "a step will take %.0f MB at its peak, the process %.0f MB", mb(m.peak),
                 mb(m.process));
    if (!free_now || m.process <= free_now + now) return;
    if (!forecast_memory(t, TP_RECOMPUTE_BLOCK, &less, why, sizeof why)) less = m;
    progress_say(&t->bar,
                 "warning: this machine has %.0f MB left for it, so it will swap or be killed; "
                 "--recompute block takes %.0f MB, a smaller --batch with --accumulation less",
                 mb(free_now + now), mb(less.process));
}
