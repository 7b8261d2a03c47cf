/* scale.c - see the header. */
#include "scale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>
#include <time.h>

#include "pictures/picture.h"

enum { STEPS = 1024, LENGTHS = 7 };

/* ---- a model with its data ---- */

typedef struct world {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    encoder m;
    int64_t batch, length;
    int32_t *ids, *label;
    uint8_t *ones;
} world;

static bool open_world(world *w, const tp_lra_cfg *c, const scale_opts *o, bool dry, char *why,
                       size_t size)
{
    const tp_dtype dtype = (tp_dtype)o->machine->dtype;
    const int64_t cells = o->batch * c->attn.length;
    tp_random r = tp_random_stream(1, "scale", 0, 0);
    *w = (world){ .batch = o->batch, .length = c->attn.length };
    w->D = tp_device_open(o->machine->device,
                          &(tp_device_opts){ .threads = (int)o->machine->threads, .dry = dry });
    w->P = tp_params_new(w->D, &(tp_params_opts){ .dtype = dtype == TP_F64 ? TP_F64 : TP_F32 });
    w->T = tp_tape_new(w->D, &(tp_tape_opts){ .compute = dtype, .train = true });
    encoder_init(w->P, &w->m, c, 1);
    w->O = tp_adamw_new(w->P, &(tp_adam_opts){ .eps = 1e-6 });
    w->ids = malloc((size_t)cells * sizeof *w->ids);
    w->ones = malloc((size_t)cells);
    w->label = calloc((size_t)o->batch, sizeof *w->label);
    if (!w->ids || !w->ones || !w->label) {
        snprintf(why, size, "out of memory");
        return false;
    }
    for (int64_t i = 0; i < cells; i++) w->ids[i] = 1 + (int32_t)tp_random_below(&r, 15);
    memset(w->ones, 1, (size_t)cells);
    snprintf(why, size, "%s", !tp_params_ok(w->P) ? tp_params_why(w->P) : tp_optim_why(w->O));
    return tp_params_ok(w->P) && tp_optim_ok(w->O);
}

static void close_world(world *w)
{
    tp_optim_free(w->O);
    tp_tape_free(w->T);
    encoder_free(&w->m);
    tp_params_free(w->P);
    tp_device_close(w->D);
    free(w->ids);
    free(w->ones);
    free(w->label);
}

static bool take_step(world *w)
{
    const tp_document_batch b = { .n = w->batch,
                                  .label = w->label,
                                  .length = { w->length, w->length },
                                  .ids = { w->ids, w->ids },
                                  .mask = { w->ones, w->ones } };
    tp_tensor slot[ENCODER_SLOTS];
    tp_reset(w->T);
    encoder_put(w->T, &w->m, &b, false, slot);
    tp_backward(w->T, encoder_loss(w->T, &w->m, slot));
    tp_step(w->O, 1e-6);
    tp_device_sync(w->D);
    return tp_ok(w->T) && tp_optim_ok(w->O);
}

/* ---- measuring ---- */

static double now(bool cpu_time)
{
    struct timespec t;
    if (!cpu_time) return tp_seconds();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the steps after the first. */
static double time_steps(world *w, const scale_opts *o)
{
    static double time[STEPS];
    int n = 0;
    bool done = take_step(w);
    for (double passed = 0; done && n < STEPS && passed < o->seconds; n++) {
        const double began = now(o->cpu_time);
        done = take_step(w);
        passed += time[n] = now(o->cpu_time) - began;
        if (tp_stop_signal()) break;
    }
    if (!done || n == 0) return (double)NAN;
    qsort(time, (size_t)n, sizeof *time, compare);
    return time[n / 2];
}

/* dry: bytes, else seconds. */
static bool measure(scale_step *y, const tp_lra_cfg *c, const scale_opts *o, bool dry, char *why,
                    size_t size)
{
    world w;
    bool done = open_world(&w, c, o, dry, why, size);
    if (done && dry) {
        for (int i = 0; i < 2 && done; i++)
            done = take_step(&w); /* moments exist from the second */
        y->bytes = (double)tp_device_stats(w.D).peak_bytes;
    } else if (done) {
        y->seconds = time_steps(&w, o);
        done = tp_ok(w.T) && tp_optim_ok(w.O);
    }
    if (!done && !why[0]) snprintf(why, size, "%s", tp_ok(w.T) ? tp_optim_why(w.O) : tp_why(w.T));
    close_world(&w);
    return done;
}

bool scale_measure(scale_step *y, const char *attention, int64_t length, const scale_opts *o,
                   char *why, size_t size)
{
    char name[80], unfit[512];
    tp_model_cfg m;
    tp_lra_cfg c;
    *y = (scale_step){ (double)NAN, (double)NAN };
    why[0] = '\0';
    snprintf(name, sizeof name, "lra-%s-%s", tp_task_at(o->task)->name, attention);
    if (!tp_model_preset(&m, name, why, size)) return false;
    memcpy(&c, &m.at, sizeof c);
    c.attn.length = length;
    if (!tp_lra_cfg_check(&c, unfit, sizeof unfit)) return true;
    return measure(y, &c, o, true, why, size) &&
           (o->seconds == 0 || measure(y, &c, o, false, why, size));
}

/* ---- memory alone ---- */

bool scale_draw_memory(int task, int n, const char *const *attention, const tp_machine_settings *m,
                       const char *path, char *why, size_t size)
{
    static double x[LENGTHS], y[ATTENTIONS][LENGTHS];
    curve c[ATTENTIONS];
    const scale_opts o = { .machine = m, .task = task, .batch = 1 };
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < LENGTHS; k++) {
            scale_step s;
            x[k] = (double)(1024 << k);
            if (!scale_measure(&s, attention[i], 1024 << k, &o, why, size)) return false;
            y[i][k] = s.bytes / 1e6;
        }
        c[i] = (curve){ attention[i], LENGTHS, x, y[i] };
    }
    const panel p = { .kind = PANEL_CURVES,
                      .across = "tokens",
                      .up = "memory, MB",
                      .width = 640,
                      .height = 400,
                      .curves = { .n = n, .at = c, .logarithmic = true } };
    const picture all = { "Peak memory of a training step by the length of a document",
                          "Batch of 1, weights and moments included. Both axes are logarithmic.", 1,
                          1, &p };
    return picture_draw(NULL, &all, path, why, size);
}
