/* forecast.c - the memory of a run before it begins: the run's own code takes a few steps on a dry
 * device, which counts without computing. */
#include "forecast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_UPDATES = 16 };

/* ---- this process and its machine ---- */

/* The bytes behind a name in one of the kernel's tables, which has them in kB; 0: not there. */
static size_t bytes_in(const char *table, const char *name)
{
    char line[128];
    unsigned long long kib = 0;
    const size_t length = strlen(name);
    FILE *f = fopen(table, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, length) == 0 && sscanf(line + length, ": %llu kB", &kib) == 1)
            break;
    if (f) fclose(f);
    return (size_t)kib * 1024;
}

size_t resident_now(void)
{
    return bytes_in("/proc/self/status", "VmRSS");
}

/* Not that of getrusage, which counts what the program had that started this one. */
static size_t resident_peak(void)
{
    return bytes_in("/proc/self/status", "VmHWM");
}

size_t memory_available(void)
{
    return bytes_in("/proc/meminfo", "MemAvailable");
}

/* ---- parts of a run ---- */

bool part_begin(trainer *r, const trainer *t, const settings *s, bool dry)
{
    *r = (trainer){ .s = *s, .text = t->text, .saved = -1 };
    const size_t cells = (size_t)(s->c.batch * s->tokens);
    r->cfg = model_cfg_from(s, tp_text_vocab(t->text)->size);
    r->x = malloc(cells * sizeof *r->x);
    r->y = malloc(cells * sizeof *r->y);
    if (!r->x || !r->y) return trainer_fail(r, "out of memory");
    r->reader = tp_bytes_new(t->text, TP_TRAIN,
                             &(tp_bytes_opts){ .batch = s->c.batch,
                                               .tokens = s->tokens,
                                               .all_targets = s->targets == TARGETS_ALL });
    if (!tp_bytes_ok(r->reader)) return trainer_fail(r, "%s", tp_bytes_why(r->reader));
    return trainer_build(r, dry);
}

void part_end(trainer *r)
{
    tp_bytes_free(r->reader);
    tp_ema_free(r->ema);
    tp_optim_free(r->O);
    tp_capture_free(r->C);
    tp_tape_free(r->T);
    tp_tape_free(r->E);
    tp_params_free(r->P);
    tp_device_close(r->D);
    free(r->m);
    free(r->x);
    free(r->y);
}

/* ---- the forecast ---- */

static size_t moments_of(const settings *s)
{
    return s->optimizer != OPTIMIZER_SGD ? 2 : s->momentum > 0 ? 1 : 0;
}

/* Updates until caches are full, a validation, and another update. */
static bool rehearse(trainer *r)
{
    const settings *s = &r->s;
    const int64_t full = s->mem_len / s->tokens + 2;
    const int64_t updates = full < MOST_UPDATES ? full : MOST_UPDATES;
    const int64_t enough = updates * s->c.batch * s->tokens;
    double bpc;
    if (s->eval_tokens == 0 || s->eval_tokens > enough) r->s.eval_tokens = enough;
    if (!train_updates(r, updates)) return false;
    train_measure(r, &bpc);
    return !r->why[0] && train_updates(r, 1);
}

static void account(trainer *r, size_t built, forecast *m)
{
    const size_t averages = r->ema ? 1 : 0, moments = moments_of(&r->s);
    const size_t block = built / (1 + moments + averages);
    const size_t rounded = r->s.c.dtype == TP_BF16 ? block / 2 : 0; /* copy for the products */
    const tp_stats stats = tp_device_stats(r->D);
    tp_reset(r->T);
    const size_t kept = tp_device_stats(r->D).live_bytes;
    *m = (forecast){
        .weights = built - (moments + averages) * block + rounded,
        .gradients = block,
        .optimizer = moments * block,
        .averages = averages * block,
        .caches = kept - built - block - rounded,
        .activations = stats.peak_bytes - kept,
        .peak = stats.peak_bytes,
        .process = stats.held_peak_bytes,
    };
}

bool forecast_memory(const trainer *t, int recompute, forecast *m, char *why, size_t size)
{
    trainer r;
    settings s = t->s;
    s.recompute = recompute;
    bool done = part_begin(&r, t, &s, true);
    const size_t built = done ? tp_device_stats(r.D).live_bytes : 0;
    done = done && rehearse(&r);
    if (done) account(&r, built, m);
    snprintf(why, size, "%s", r.why);
    part_end(&r);
    if (!done) return false;

    /* A checkpoint copies the caches. The largest moment so far may have been reading the text. */
    const size_t used = t->D ? tp_device_stats(t->D).held_peak_bytes : 0, now = resident_now();
    const size_t process = m->process + m->caches + (now > used ? now - used : 0);
    const size_t before = resident_peak();
    m->process = process > before ? process : before;
    return true;
}
