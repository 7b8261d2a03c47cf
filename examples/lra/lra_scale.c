/* lra_scale.c - `lra scale`: time and memory of a training step by attention and document
 * length. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lra.h"
#include "pictures/picture.h"

/* A training step on noise without padding: forward, backward, update. */
typedef struct scale_step {
    double seconds; /* the median; NaN: not measured */
    double bytes;   /* the device's peak */
} scale_step;

typedef struct scale_opts {
    const tp_machine_settings *machine;
    int task;
    int64_t batch;
    double seconds; /* to measure; 0: only memory, on a dry device */
    bool cpu_time;  /* processor time instead of time */
} scale_opts;

enum { STEPS = 1024, DRAWN = 7 /* lengths */, LENGTHS = 32 };

/* ---- a model with its data ---- */

typedef struct world {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    encoder m;
    doc_noise noise;
} world;

static bool open_world(world *w, const tp_lra_cfg *c, const scale_opts *o, bool dry, char *why,
                       size_t size)
{
    const tp_dtype dtype = (tp_dtype)o->machine->dtype;
    const doc_noise_opts noise = { .n = o->batch,
                                   .length = c->attn.length,
                                   .first = 1,
                                   .ids = 16,
                                   .classes = 1,
                                   .documents = c->pair ? 2 : 1 };
    *w = (world){ 0 };
    w->D = tp_device_open(o->machine->device,
                          &(tp_device_opts){ .threads = (int)o->machine->threads, .dry = dry });
    w->P = tp_params_new(w->D, &(tp_params_opts){ .dtype = dtype == TP_F64 ? TP_F64 : TP_F32 });
    w->T = tp_tape_new(w->D, &(tp_tape_opts){ .compute = dtype, .train = true });
    encoder_init(w->P, &w->m, c, 1);
    w->O = tp_adamw_new(w->P, &(tp_adam_opts){ .eps = 1e-6 });
    if (!doc_noise_make(&w->noise, &noise)) {
        snprintf(why, size, "out of memory");
        return false;
    }
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
    doc_noise_free(&w->noise);
}

static bool take_step(world *w)
{
    tp_tensor slot[DOC_SLOTS];
    tp_reset(w->T);
    doc_put(w->T, &w->noise.b, false, slot);
    tp_backward(w->T, encoder_loss(w->T, &w->m, slot));
    tp_step(w->O, 1e-6);
    tp_device_sync(w->D);
    return tp_ok(w->T) && tp_optim_ok(w->O);
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

/* The median without the first step. */
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
        for (int i = 0; i < 2 && done; i++) done = take_step(&w); /* the second allocates moments */
        y->bytes = (double)tp_device_stats(w.D).peak_bytes;
    } else if (done) {
        y->seconds = time_steps(&w, o);
        done = tp_ok(w.T) && tp_optim_ok(w.O);
    }
    if (!done && !why[0]) snprintf(why, size, "%s", tp_ok(w.T) ? tp_optim_why(w.O) : tp_why(w.T));
    close_world(&w);
    return done;
}

/* Measures one step. False with the reason in why. If the attention does not fit the length, both
 * results are NaN. */
static bool scale_measure(scale_step *y, const char *attention, int64_t length, const scale_opts *o,
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
    if (!tp_model_lra.check(&c, unfit, sizeof unfit)) return true;
    return measure(y, &c, o, true, why, size) &&
           (o->seconds == 0 || measure(y, &c, o, false, why, size));
}

/* ---- only memory ---- */

bool scale_draw_memory(int task, int n, const char *const *attention, const tp_machine_settings *m,
                       const char *path, char *why, size_t size)
{
    static double x[DRAWN], y[ATTENTIONS][DRAWN];
    curve c[ATTENTIONS];
    const scale_opts o = { .machine = m, .task = task, .batch = 1 };
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < DRAWN; k++) {
            scale_step s;
            x[k] = (double)(1024 << k);
            if (!scale_measure(&s, attention[i], 1024 << k, &o, why, size)) return false;
            y[i][k] = s.bytes / 1e6;
        }
        c[i] = (curve){ attention[i], DRAWN, x, y[i] };
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

/* ---- the command ---- */

typedef struct scale_settings {
    tp_machine_settings machine;
    task_data d; /* its task */
    char *attentions, *lengths, *picture;
    int64_t batch;
    double seconds, limit;
    bool cpu_time, dry;
    int format;
} scale_settings;

#define S scale_settings

static const tp_option options[] = {
    TP_HEADING("MODELS"),
    TP_CHOICE("task", S, d.task, TASK_NAMES, 0, "The task whose presets are measured."),
    TP_STRING("attentions", S, attentions, "LIST", 0, "Attentions, separated by commas."),
    TP_STRING("lengths", S, lengths, "LIST", 0, "Tokens of a document, separated by commas."),
    TP_INT("batch", S, batch, 1, 65536, 0, "Batch size, in examples."),
    TP_HEADING("MEASURING"),
    TP_NUM("seconds", S, seconds, 0.001, 3600, 0, "Time of measuring one length, after one step."),
    TP_NUM("limit", S, limit, 0, TP_BIG, 0,
           "A step that is expected to take more seconds than that is not timed."),
    TP_FLAG("cpu-time", S, cpu_time, 0,
            "Measure processor time, for machines that do other work, too; with --threads 1."),
    TP_FLAG("dry", S, dry, 0, "Only count the memory, which takes milliseconds."),
    TP_HEADING("RESULTS"),
    TP_STRING("picture", S, picture, "FILE", 0, "Draw time and memory as FILE.png or FILE.svg."),
    TP_CHOICE("format", S, format, "table|json", 0,
              "Text for people, or a JSON object for each attention and length."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "lra scale",
    .summary = "measures time and memory by the length of documents",
    .synopsis = "[--task NAME] [--attentions LIST] [--lengths LIST] [flag ...]",
    .about =
        "Takes training steps (forward, backward, update) of untrained models on noise without "
        "padding and prints the median time of a step and its peak memory. The memory is counted "
        "on a device that does not compute, exactly and also where a step would take too long.",
    .table = options,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    lra scale --picture scale.png\n"
            "    lra scale --dry --lengths 65536,1048576 --attentions softmax,ls\n",
};

typedef struct measured {
    const char *attention;
    int n;
    double length[LENGTHS], bytes[LENGTHS], ms[LENGTHS];
} measured;

static bool fail(char *why, size_t size, const char *reason)
{
    snprintf(why, size, "%s", reason);
    return false;
}

/* ---- lists ---- */

static bool read_lengths(const char *list, int64_t length[LENGTHS], int *n, char *why, size_t size)
{
    for (*n = 0; *list; ++*n) {
        char *end;
        errno = 0;
        const long long x = strtoll(list, &end, 10);
        if (*n == LENGTHS || end == list || errno || x < 1 || x > TP_LRA_MAX_SIZE ||
            (*end && *end != ',')) {
            snprintf(why, size,
                     "--lengths: '%.40s' does not begin with a length from 1 to %d, or is "
                     "beyond %d of them",
                     list, TP_LRA_MAX_SIZE, LENGTHS);
            return false;
        }
        length[*n] = x;
        list = end + (*end == ',');
    }
    return *n > 0 || fail(why, size, "--lengths: the list is empty");
}

static bool read_attentions(const char *list, measured m[ATTENTIONS], int *n, char *why,
                            size_t size)
{
    for (*n = 0; *list; ++*n) {
        const char *at = list;
        const int k = *n < ATTENTIONS ? attention_of(&list) : -1, length = (int)strcspn(at, ",");
        if (k < 0) {
            snprintf(why, size, "--attentions: '%.*s' is none of %s", length > 60 ? 60 : length, at,
                     ATTENTION_NAMES);
            return false;
        }
        m[*n] = (measured){ .attention = attention_name(k) };
    }
    return *n > 0 || fail(why, size, "--attentions: the list is empty");
}

/* ---- measuring an attention ---- */

/* May the next length be timed? Assumes at most quadratic growth. */
static bool affordable(const scale_settings *s, const measured *m, int64_t length, double bytes)
{
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (s->dry || (strncmp(s->machine.device, "cpu", 3) == 0 && bytes > memory / 2)) return false;
    if (m->n == 0) return true;
    const double more = (double)length / m->length[m->n - 1];
    return m->ms[m->n - 1] * 1e-3 * fmax(1, more * more) <= s->limit; /* false for NaN */
}

static bool print(const scale_settings *s, const measured *m, int i)
{
    if (s->format == 0) {
        printf("%-13s %8.0f", m->attention, m->length[i]);
        if (isfinite(m->ms[i]))
            printf(" %12.1f", m->ms[i]);
        else
            printf(" %12s", "-");
        printf(" %12.1f\n", m->bytes[i] / 1e6);
    } else {
        json_t *ms = isfinite(m->ms[i]) ? json_real(m->ms[i]) : json_null();
        json_t *row = json_pack("{s:s,s:s,s:f,s:I,s:o,s:f}", "task", tp_task_at(s->d.task)->name,
                                "attention", m->attention, "tokens", m->length[i], "batch",
                                (json_int_t)s->batch, "ms", ms, "bytes", m->bytes[i]);
        if (row) json_dumpf(row, stdout, JSON_REAL_PRECISION(9));
        json_decref(row);
        putchar('\n');
    }
    return fflush(stdout) == 0;
}

static bool measure_one(const scale_settings *s, measured *m, int64_t length, char *why,
                        size_t size)
{
    scale_opts o = {
        .machine = &s->machine, .task = s->d.task, .batch = s->batch, .cpu_time = s->cpu_time
    };
    scale_step y;
    if (!scale_measure(&y, m->attention, length, &o, why, size)) return false;
    if (isnan(y.bytes)) return true; /* the attention does not fit */
    const double bytes = y.bytes;
    if (affordable(s, m, length, bytes)) {
        o.seconds = s->seconds;
        if (!scale_measure(&y, m->attention, length, &o, why, size)) return false;
    }
    if (tp_stop_signal()) return true;
    m->length[m->n] = (double)length;
    m->bytes[m->n] = bytes;
    m->ms[m->n] = 1e3 * y.seconds;
    return print(s, m, m->n++) || fail(why, size, strerror(errno));
}

/* ---- the picture ---- */

static bool draw(const scale_settings *s, const measured *m, int n, char *why, size_t size)
{
    static double mb[ATTENTIONS][LENGTHS];
    curve time[ATTENTIONS], memory[ATTENTIONS];
    char note[300];
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < m[i].n; k++) mb[i][k] = m[i].bytes[k] / 1e6;
        time[i] = (curve){ m[i].attention, m[i].n, m[i].length, m[i].ms };
        memory[i] = (curve){ m[i].attention, m[i].n, m[i].length, mb[i] };
    }
    const panel p[] = { { .kind = PANEL_CURVES,
                          .title = "Time",
                          .across = "tokens",
                          .up = s->cpu_time ? "processor time, ms" : "time, ms",
                          .width = 440,
                          .height = 400,
                          .curves = { .n = n, .at = time, .logarithmic = true } },
                        { .kind = PANEL_CURVES,
                          .title = "Memory",
                          .across = "tokens",
                          .up = "memory, MB",
                          .width = 440,
                          .height = 400,
                          .curves = { .n = n, .at = memory, .logarithmic = true } } };
    snprintf(note, sizeof note,
             "Untrained models of %s on noise, %s, batch of %lld. All axes are "
             "logarithmic.",
             tp_task_at(s->d.task)->name, s->machine.device, (long long)s->batch);
    const picture all = { "Training step by the length of documents", note, 1, s->dry ? 1 : 2,
                          s->dry ? p + 1 : p };
    return picture_draw(NULL, &all, s->picture, why, size);
}

static bool run(void *settings, char *why, size_t size)
{
    const scale_settings *s = settings;
    static measured m[ATTENTIONS];
    int64_t length[LENGTHS];
    int n, lengths;
    if (!read_attentions(s->attentions, m, &n, why, size) ||
        !read_lengths(s->lengths, length, &lengths, why, size))
        return false;
    tp_catch_signals();
    if (s->format == 0)
        printf("%-13s %8s %12s %12s\n", tp_task_at(s->d.task)->name, "tokens", "ms a step",
               "memory, MB");
    for (int i = 0; i < n; i++)
        for (int k = 0; k < lengths && !tp_stop_signal(); k++)
            if (!measure_one(s, &m[i], length[k], why, size)) return false;
    return !s->picture || tp_stop_signal() || draw(s, m, n, why, size);
}

int lra_scale_main(int argc, char **argv)
{
    scale_settings s = {
        .machine = { .device = strdup("cpu") },
        .d = { .task = 1 },
        .attentions = strdup("softmax,reformer,linformer,performer,nystrom,linear,none,ls,dp"),
        .lengths = strdup("1024,2048,4096,8192,16384,32768,65536"),
        .batch = 1,
        .seconds = 2,
        .limit = 20,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
