/* trace.c - traces of a device: a list of slices, written as JSON when the trace ends.
 *
 * Texts (names, paths, shapes) repeat from layer to layer and from step to step; they are kept by
 * the device, each once (tp__left_text). */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <tapegrad/observe.h>

#include "tensor/left.h"

enum { THREADS = 64 };

typedef enum slice_kind { OP_FORWARD, OP_BACKWARD, MODULE, SPAN } slice_kind;

/* Times in seconds; `end` of an open span is NaN, `device` if the device was not asked. */
typedef struct slice {
    slice_kind kind;
    int thread;
    const char *name, *path, *inputs, *outputs; /* NULL: none */
    double began, ended, device, device_seconds;
} slice;

typedef struct tp_trace {
    double began;
    slice *at;
    size_t n, room, lost;
    pthread_t thread[THREADS]; /* in the order in which they appeared */
    int threads;
} tp_trace;

static _Thread_local size_t last; /* this thread's last op */

void tp__trace_free(tp_device *D)
{
    if (D->trace) free(D->trace->at);
    free(D->trace);
    D->trace = NULL;
}

/* ---- slices ---- */

/* With the lock held. Those beyond the last share a number. */
static int thread_number(tp_trace *t)
{
    const pthread_t self = pthread_self();
    for (int i = 0; i < t->threads; i++)
        if (pthread_equal(t->thread[i], self)) return i;
    if (t->threads == THREADS) return THREADS - 1;
    t->thread[t->threads] = self;
    return t->threads++;
}

/* Returns the number of the new slice; -1: out of memory. */
static int add(tp_device *D, slice s)
{
    tp_trace *t = D->trace;
    tp__lock(&D->left->lock);
    const bool fits = tp_reserve(&t->at, &t->room, t->n, 1, sizeof *t->at);
    const int number = fits ? (int)t->n++ : -1;
    s.thread = thread_number(t);
    s.device = (double)NAN;
    if (fits)
        t->at[number] = s;
    else
        t->lost++;
    tp__unlock(&D->left->lock);
    return number;
}

int tp__trace_op(tp_device *D, const char *op, bool backward, double began, double ended)
{
    const int number = add(D, (slice){ .kind = backward ? OP_BACKWARD : OP_FORWARD,
                                       .name = tp__left_text(D, op),
                                       .began = began,
                                       .ended = ended });
    last = (size_t)number;
    return number;
}

/* "f32[2,3] i32[]" */
static const char *shapes_of(tp_device *D, int n, const tp_view *v)
{
    char text[1000] = "";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof text - 300; i++) {
        char *at = text + used;
        int k = 0;
        if (tp_absent(&v[i])) continue;
        k += snprintf(at, 16, "%s%s[", used ? " " : "", tp_dtype_name(v[i].dtype));
        for (int d = 0; d < v[i].ndim; d++)
            k += snprintf(at + k, 24, "%s%lld", d ? "," : "", (long long)v[i].dim[d]);
        k += snprintf(at + k, 2, "]");
        used += (size_t)k;
    }
    return used ? tp__left_text(D, text) : NULL;
}

void tp__trace_call(tp_device *D, const char *path, const tp_call *c)
{
    const char *const name = path && *path ? tp__left_text(D, path) : NULL;
    const char *const inputs = shapes_of(D, c->nx, c->x), *outputs = shapes_of(D, c->ny, c->y);
    tp_trace *t = D->trace;
    tp__lock(&D->left->lock);
    if (last < t->n) {
        t->at[last].path = name;
        t->at[last].inputs = inputs;
        t->at[last].outputs = outputs;
    }
    tp__unlock(&D->left->lock);
}

void tp__trace_span(tp_device *D, const char *path, double began)
{
    if (began >= D->trace->began)
        add(D, (slice){ .kind = MODULE,
                        .name = tp__left_text(D, path && *path ? path : "scope"),
                        .began = began,
                        .ended = tp_seconds() });
}

/* With the lock held, by read_marks. */
void tp__trace_device(tp_device *D, int number, double began, double seconds)
{
    if (!D->trace || (size_t)number >= D->trace->n) return;
    D->trace->at[number].device = began;
    D->trace->at[number].device_seconds = seconds;
}

/* ---- for programs ---- */

void tp_trace_begin(tp_device *D)
{
    if (!D || !D->be) return;
    tp__trace_free(D);
    tp_device_sync(D);
    tp__read_marks(D);
    D->trace = calloc(1, sizeof *D->trace);
    if (!D->trace) return; /* tp_trace_end says so */
    D->trace->began = tp_seconds();
    if (D->profile.on && D->be->mark) D->be->mark(D, TP_TRACE_BEGINS, 0);
}

void tp_trace_enter(tp_device *D, const char *name)
{
    if (!D || !D->trace) return;
    add(D, (slice){ .kind = SPAN,
                    .name = tp__left_text(D, name ? name : "NULL"),
                    .began = tp_seconds(),
                    .ended = (double)NAN });
}

void tp_trace_leave(tp_device *D)
{
    if (!D || !D->trace) return;
    const double now = tp_seconds();
    tp_trace *t = D->trace;
    tp__lock(&D->left->lock);
    const int thread = thread_number(t);
    for (size_t i = t->n; i-- > 0;) {
        slice *s = &t->at[i];
        if (s->kind != SPAN || s->thread != thread || !isnan(s->ended)) continue;
        s->ended = now;
        break;
    }
    tp__unlock(&D->left->lock);
}

/* ---- JSON ---- */

enum { HOST = 1, DEVICE }; /* processes of the trace */

/* A text as JSON, whatever bytes it has; cut off where it is long. */
static json_t *text(const char *bytes)
{
    char plain[4000];
    return json_string(tp_plain(bytes ? bytes : "", plain, sizeof plain));
}

static json_t *micros(double seconds)
{
    return json_real(round(1e9 * seconds) / 1e3);
}

/* Names a process or one of its threads. */
static json_t *title(const char *what, int process, int thread, const char *name)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:{s:o}}", "name", what, "ph", "M", "pid", process,
                     "tid", thread, "args", "name", text(name));
}

static json_t *complete(const slice *s, int process, double began, double seconds)
{
    static const char *const kinds[] = { "forward", "backward", "module", "span" };
    json_t *args = json_object();
    const struct {
        const char *key, *value;
    } rows[] = { { "module", s->path }, { "inputs", s->inputs }, { "outputs", s->outputs } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].value) json_object_set_new(args, rows[i].key, text(rows[i].value));
    return json_pack("{s:o, s:s, s:s, s:o, s:o, s:i, s:i, s:o}", "name", text(s->name), "cat",
                     kinds[s->kind], "ph", "X", "ts", micros(began), "dur", micros(seconds), "pid",
                     process, "tid", process == HOST ? s->thread + 1 : 1, "args", args);
}

static json_t *document(const tp_device *D)
{
    const tp_trace *t = D->trace;
    json_t *list = json_array();
    const bool queue = D->be->mark != NULL;
    char name[32];
    json_array_append_new(list, title("process_name", HOST, 0, queue ? "host" : D->name));
    if (queue) json_array_append_new(list, title("process_name", DEVICE, 0, D->name));
    if (queue) json_array_append_new(list, title("thread_name", DEVICE, 1, "stream"));
    for (int i = 0; i < t->threads; i++) {
        snprintf(name, sizeof name, "thread %d", i + 1);
        json_array_append_new(list, title("thread_name", HOST, i + 1, name));
    }
    const double now = tp_seconds();
    for (size_t i = 0; i < t->n; i++) {
        const slice *s = &t->at[i];
        const double ended = isnan(s->ended) ? now : s->ended;
        json_array_append_new(list, complete(s, HOST, s->began - t->began, ended - s->began));
        if (!isnan(s->device))
            json_array_append_new(list, complete(s, DEVICE, s->device, s->device_seconds));
    }
    return json_pack("{s:s, s:o}", "displayTimeUnit", "ms", "traceEvents", list);
}

static bool write_trace(const tp_device *D, const char *path, char *why, size_t size)
{
    if (D->trace->lost > 0) {
        snprintf(why, size, "trace %.900s was not written: out of memory while it was made", path);
        return false;
    }
    void *locale = tp_c_locale_begin();
    json_t *root = document(D);
    char *json = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(12));
    json_decref(root);
    tp_c_locale_end(locale);
    const bool done = json && tp_file_replace(path, json, strlen(json), why, size);
    if (!json) snprintf(why, size, "trace %.900s was not written: out of memory", path);
    free(json);
    return done;
}

bool tp_trace_end(tp_device *D, const char *path, char *why, size_t size)
{
    char none[1];
    if (!why || size == 0) {
        why = none;
        size = sizeof none;
    }
    why[0] = '\0';
    if (!D || !D->be || !D->trace) {
        snprintf(why, size,
                 "there is no trace to end: call tp_trace_begin first, on an open device");
        return false;
    }
    tp_device_sync(D);
    tp__read_marks(D);
    const bool done = !path || write_trace(D, path, why, size);
    tp__trace_free(D);
    return done;
}
