/* costs.c - measures steps on two devices: memory on one that does not compute, time on one that
 * does. */
#include "costs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pictures/picture.h"
#include "reports/json_lines.h"

/* ---- a world ---- */

static void open_world(cost_world *w, const tp_machine_settings *m, const cost_settings *o,
                       bool dry)
{
    const tp_dtype dtype = (tp_dtype)m->dtype;
    *w = (cost_world){ 0 };
    w->D = tp_device_open(m->device, &(tp_device_opts){ .threads = (int)m->threads, .dry = dry });
    w->P = tp_params_new(w->D, &(tp_params_opts){ .dtype = dtype == TP_F64 ? TP_F64 : TP_F32 });
    w->T = tp_tape_new(w->D, &(tp_tape_opts){ .compute = dtype, .train = !o->forward });
    tp_record(w->T, !o->forward);
}

static void close_world(cost_world *w)
{
    tp_optim_free(w->O);
    tp_tape_free(w->T);
    tp_params_free(w->P);
    tp_device_close(w->D);
}

static bool take(const cost_step *step, cost_world *w, const cost_settings *o)
{
    static const double RATE = 1e-6; /* keeps the weights nearly as they are */
    tp_reset(w->T);
    const tp_tensor loss = step->take(step->of, w);
    if (!o->forward) tp_backward(w->T, loss);
    if (!o->forward && w->O) tp_step(w->O, RATE);
    tp_device_sync(w->D);
    return tp_ok(w->T) && (!w->O || tp_optim_ok(w->O));
}

static const char *reason(const cost_world *w)
{
    if (!tp_params_ok(w->P)) return tp_params_why(w->P);
    return tp_ok(w->T) && w->O ? tp_optim_why(w->O) : tp_why(w->T);
}

/* ---- measuring a step ---- */

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

/* The median in ms; NAN after a failed step. */
static double time_steps(const cost_step *step, cost_world *w, const cost_settings *o)
{
    enum { STEPS = 1024 };
    static double time[STEPS];
    int n = 0;
    bool done = true;
    for (int i = 0; i < step->warm && done && !tp_stop_signal(); i++) done = take(step, w, o);
    for (double passed = 0; done && n < STEPS && passed < o->seconds && !tp_stop_signal(); n++) {
        const double began = now(o->cpu_time);
        done = take(step, w, o);
        passed += time[n] = now(o->cpu_time) - began;
    }
    if (!done || n == 0) return (double)NAN;
    qsort(time, (size_t)n, sizeof *time, compare);
    return 1e3 * time[n / 2];
}

/* Sets *bytes on a dry device, else *ms, which stays NAN where memory ends. */
static bool measure(const cost_step *step, const tp_machine_settings *m, const cost_settings *o,
                    double *bytes, double *ms, char *why, size_t size)
{
    cost_world w;
    open_world(&w, m, o, bytes != NULL);
    bool done = step->build(step->of, &w, why, size);
    if (done && bytes) {
        for (int i = 0; i <= step->warm && done; i++) done = take(step, &w, o);
        *bytes = (double)tp_device_stats(w.D).peak_bytes;
    } else if (done) {
        *ms = time_steps(step, &w, o);
        done = (tp_ok(w.T) && (!w.O || tp_optim_ok(w.O))) || tp_code_of(w.T) == TP_E_MEMORY;
    }
    if (!done && !why[0]) snprintf(why, size, "%s", reason(&w));
    step->drop(step->of, &w);
    close_world(&w);
    return done;
}

/* May the next size be timed? Assumes that time grows at most with the series' power. */
static bool affordable(const cost_series *s, double x, double bytes, const tp_machine_settings *m,
                       const cost_settings *o)
{
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (o->dry || (strncmp(m->device, "cpu", 3) == 0 && bytes > memory / 2)) return false;
    if (s->n == 0) return true;
    const double more = pow(x / s->x[s->n - 1], s->power ? s->power : 2);
    return s->ms[s->n - 1] * 1e-3 * fmax(1, more) <= o->limit; /* false for NAN */
}

bool cost_measure(cost_series *s, double x, const cost_step *step, const tp_machine_settings *m,
                  const cost_settings *o, char *why, size_t size)
{
    double bytes = 0, ms = (double)NAN;
    why[0] = '\0';
    if (!measure(step, m, o, &bytes, NULL, why, size)) return false;
    if (affordable(s, x, bytes, m, o) && !measure(step, m, o, NULL, &ms, why, size)) return false;
    if (tp_stop_signal()) return true;
    s->x[s->n] = x;
    s->bytes[s->n] = bytes;
    s->ms[s->n++] = ms;
    return true;
}

/* ---- results ---- */

void cost_print_heading(const cost_settings *o, const char *left)
{
    if (o->format == 0)
        printf("%s %12s %12s\n", left, o->forward ? "ms a pass" : "ms a step", "memory, MB");
}

bool cost_print(const cost_series *s, const cost_settings *o, const char *left, json_t *key,
                char *why, size_t size)
{
    const double ms = s->ms[s->n - 1], bytes = s->bytes[s->n - 1];
    bool done = key != NULL;
    if (o->format == 1 && done) {
        done =
            json_object_set_new(key, "pass", json_string(o->forward ? "forward" : "step")) == 0 &&
            json_object_set_new(key, "ms", number_as_json(ms)) == 0 &&
            json_object_set_new(key, "bytes", number_as_json(bytes)) == 0;
        if (done) done = print_json_line(stdout, json_incref(key));
    } else if (isfinite(ms)) {
        printf("%s %12.1f %12.1f\n", left, ms, bytes / 1e6);
    } else {
        printf("%s %12s %12.1f\n", left, "-", bytes / 1e6);
    }
    json_decref(key);
    if (!done) snprintf(why, size, "out of memory");
    if (done && fflush(stdout) != 0) {
        snprintf(why, size, "standard output: %s", strerror(errno));
        return false;
    }
    return done;
}

bool cost_draw(const cost_series *s, int n, const cost_settings *o, cost_picture p, char *why,
               size_t size)
{
    static const char *const names[2][2] = {
        { "Peak memory of a training step", "Peak memory of a forward pass" },
        { "Training step", "Forward pass" },
    };
    static double mb[COST_SERIES][COST_SIZES];
    curve time[COST_SERIES], memory[COST_SERIES];
    int line[COST_SERIES];
    char note[600], title[200];
    bool timed = false; /* any */
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < s[i].n; k++) {
            mb[i][k] = s[i].bytes[k] / 1e6;
            timed |= isfinite(s[i].ms[k]);
        }
        time[i] = (curve){ s[i].name, s[i].n, s[i].x, s[i].ms };
        memory[i] = (curve){ s[i].name, s[i].n, s[i].x, mb[i] };
        line[i] = s[i].line > 0 ? s[i].line : i + 1;
    }
    const panel at[] = { { .kind = PANEL_CURVES,
                           .title = "Time",
                           .across = p.across,
                           .up = o->cpu_time ? "processor time, ms" : "time, ms",
                           .width = 440,
                           .height = 400,
                           .curves = { .n = n, .at = time, .lines = line, .logarithmic = true } },
                         { .kind = PANEL_CURVES,
                           .title = "Memory",
                           .across = p.across,
                           .up = "memory, MB",
                           .width = timed ? 440 : 640,
                           .height = 400,
                           .curves = {
                               .n = n, .at = memory, .lines = line, .logarithmic = true } } };
    snprintf(note, sizeof note, "%s %s axes are logarithmic.", p.note, timed ? "All" : "Both");
    snprintf(title, sizeof title, "%s by %s", names[timed][o->forward], p.by);
    const picture all = { title, note, 1, timed ? 2 : 1, timed ? at : at + 1 };
    return picture_draw(NULL, &all, o->picture, why, size);
}
