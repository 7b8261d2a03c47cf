/* table_results.c - reads the trainings' folders and shows the table of attentions as text, JSON
 * and a picture, beside the paper's figures. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <tapegrad/file.h>
#include <tapegrad/train.h>
#include <time.h>
#include <unistd.h>

#include "lra_table.h"
#include "pictures/picture.h"

/* ---- folders ---- */

static const char *in(char path[TABLE_PATH], const char *folder, const char *name)
{
    snprintf(path, TABLE_PATH, "%.4300s/%s", folder, name);
    return path;
}

bool table_run_finished(const char *folder)
{
    char path[TABLE_PATH];
    return access(in(path, folder, "test.json"), F_OK) == 0;
}

bool table_run_begun(const char *folder)
{
    char path[TABLE_PATH];
    return access(in(path, folder, "last.safetensors"), F_OK) == 0;
}

/* NULL with the reason in why. */
static json_t *load(const char *folder, const char *name, char *why, size_t size)
{
    char path[TABLE_PATH];
    json_error_t error;
    json_t *all = json_load_file(in(path, folder, name), 0, &error);
    if (!all) snprintf(why, size, "%s: line %d: %s", path, error.line, tp_json_reason(error.text));
    return all;
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Calls take on each line of log.jsonl until it fails. False with the reason in why. */
static bool each_line(const char *folder, bool (*take)(void *env, const json_t *line), void *env,
                      char *why, size_t size)
{
    char path[TABLE_PATH], *text = NULL;
    size_t room = 0;
    FILE *f = fopen(in(path, folder, "log.jsonl"), "r");
    if (!f) {
        snprintf(why, size, "%s: %s", path, strerror(errno));
        return false;
    }
    bool done = true;
    for (int64_t i = 1; done && getline(&text, &room, f) > 0; i++) {
        json_error_t error;
        json_t *line = json_loads(text, 0, &error);
        done = line && take(env, line);
        if (!done)
            snprintf(why, size, "%s: line %lld: %s", path, (long long)i,
                     line ? "out of memory" : tp_json_reason(error.text));
        json_decref(line);
    }
    free(text);
    fclose(f);
    return done;
}

static bool take_report(void *env, const json_t *line)
{
    table_run *r = env;
    r->seconds = number(line, "seconds");
    r->updates = number(line, "step");
    if (number(line, "memory") > r->memory) r->memory = number(line, "memory");
    if (number(line, "process") > r->process) r->process = number(line, "process");
    if (!json_is_number(json_object_get(line, "accuracy"))) return true;
    table_point *more = realloc(r->point, (size_t)(r->points + 1) * sizeof *more);
    if (!more) return false;
    r->point = more;
    r->point[r->points] = (table_point){ r->seconds, number(line, "accuracy") };
    if (r->points == 0 || r->point[r->points].accuracy > r->valid)
        r->valid = r->point[r->points].accuracy;
    r->points++;
    return true;
}

bool table_run_read(table_run *r, const char *folder, char *why, size_t size)
{
    *r = (table_run){ 0 };
    json_t *config = load(folder, "config.json", why, size);
    json_t *test = config ? load(folder, "test.json", why, size) : NULL;
    r->parameters = number(config, "parameters");
    r->gflops = number(config, "gflops");
    r->accuracy = number(test, "accuracy");
    r->official_accuracy = number(test, "official_accuracy");
    const bool done = test && each_line(folder, take_report, r, why, size);
    json_decref(config);
    json_decref(test);
    return done;
}

void table_run_free(table_run *r)
{
    free(r->point);
    *r = (table_run){ 0 };
}

/* ---- speed ---- */

typedef struct span {
    double first, from, last, to; /* updates and their times in seconds */
} span;

static bool take_time(void *env, const json_t *line)
{
    span *s = env;
    s->last = number(line, "step");
    s->to = number(line, "seconds");
    if (s->first > 0) return true;
    s->first = s->last;
    s->from = s->to;
    return true;
}

bool table_run_speed(const char *folder, double *seconds, char *why, size_t size)
{
    span s = { 0 };
    if (!each_line(folder, take_time, &s, why, size)) return false;
    *seconds = s.last > s.first ? (s.to - s.from) / (s.last - s.first) : s.to;
    if (s.last > 0 && *seconds > 0) return true;
    snprintf(why, size, "%s/log.jsonl has no reports", folder);
    return false;
}

/* Tables 1 and 9 of the paper: accuracy and GFLOPs for listops, text and retrieval. */
static const struct published {
    const char *attention;
    double accuracy[3], gflops[3];
} published[] = {
    { "softmax", { 37.1, 65.4, 82.3 }, { 1.21, 4.57, 9.14 } },
    { "reformer", { 36.4, 64.9, 78.6 }, { 0.27, 0.58, 1.15 } },
    { "linformer", { 37.4, 56.1, 79.4 }, { 0.41, 0.81, 1.62 } },
    { "performer", { 32.8, 65.2, 81.7 }, { 0.41, 0.82, 1.63 } },
    { "nystrom", { 37.3, 65.8, 81.3 }, { 0.61, 1.02, 2.03 } },
    { "ls", { 37.5, 66.0, 81.8 }, { 0.20, 0.40, 0.80 } },
    { "dp", { 37.8, 66.3, 81.9 }, { 0.15, 0.69, 2.17 } },
    { "ls-best", { 38.4, 68.4, 82.0 }, { 0.16, 0.29, 2.17 } },
};

static const struct published *published_of(const char *attention)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        if (strcmp(published[i].attention, attention) == 0) return &published[i];
    return NULL;
}

/* A task's column; -1: none published. */
static int column_of(const char *task)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(tp_task_at(i)->name, task) == 0) return i;
    return -1;
}

/* ---- numbers ---- */

static double value(const table_row *r, int i, size_t at)
{
    return *(const double *)(const void *)((const char *)&r->run[i] + at);
}

static double table_mean(const table_row *r, size_t at)
{
    double sum = 0;
    for (int i = 0; i < r->runs; i++) sum += value(r, i, at);
    return sum / r->runs;
}

/* The sample standard deviation; NaN for fewer than 2. */
static double table_deviation(const table_row *r, size_t at)
{
    const double mean = table_mean(r, at);
    double squares = 0;
    for (int i = 0; i < r->runs; i++)
        squares += (value(r, i, at) - mean) * (value(r, i, at) - mean);
    return r->runs > 1 ? sqrt(squares / (r->runs - 1)) : (double)NAN;
}

#define MEAN(r, member)      table_mean(r, offsetof(table_run, member))
#define DEVIATION(r, member) table_deviation(r, offsetof(table_run, member))

/* ---- text ---- */

/* A published number, or a dash. */
static void print_published(FILE *out, const double *x, int width, int digits)
{
    if (x)
        fprintf(out, " %*.*f", width, digits, *x);
    else
        fprintf(out, " %*s", width, "-");
}

static void print_row(FILE *out, const table_row *r, int column)
{
    const struct published *p = column < 0 ? NULL : published_of(r->attention);
    fprintf(out, "%-13s %8.2f", r->attention, MEAN(r, accuracy));
    if (r->runs > 1)
        fprintf(out, " %6.2f", DEVIATION(r, accuracy));
    else
        fprintf(out, " %6s", "-");
    print_published(out, p ? &p->accuracy[column] : NULL, 6, 1);
    fprintf(out, " %8.4f", MEAN(r, gflops));
    print_published(out, p ? &p->gflops[column] : NULL, 6, 2);
    fprintf(out, " %10.0f %5d %8.0f %9.1f %9.1f\n", MEAN(r, parameters), r->runs, MEAN(r, updates),
            MEAN(r, seconds), MEAN(r, memory) / 1e6);
}

void table_print(const lra_table *t, FILE *out)
{
    const int column = column_of(t->task);
    fprintf(out, "%-13s %8s %6s %6s %8s %6s %10s %5s %8s %9s %9s\n", t->task, "accuracy", "+-",
            "paper", "GFLOP", "paper", "parameters", "seeds", "updates", "seconds", "MB");
    for (int i = 0; i < t->rows; i++)
        if (t->row[i].runs > 0) print_row(out, &t->row[i], column);
}

/* ---- JSON ---- */

static json_t *run_json(const lra_table *t, const table_row *r, int i)
{
    const table_run *x = &r->run[i];
    return json_pack("{s:s,s:s,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "task", t->task,
                     "attention", r->attention, "seed", i + 1, "accuracy", x->accuracy,
                     "official_accuracy", x->official_accuracy, "valid_accuracy", x->valid,
                     "updates", x->updates, "seconds", x->seconds, "memory", x->memory, "process",
                     x->process, "parameters", x->parameters, "gflops", x->gflops);
}

char *table_lines(const lra_table *t)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    bool done = f != NULL;
    for (int i = 0; i < t->rows; i++)
        for (int k = 0; k < t->row[i].runs && done; k++) {
            json_t *line = run_json(t, &t->row[i], k);
            done =
                line && json_dumpf(line, f, JSON_REAL_PRECISION(9)) == 0 && fputc('\n', f) != EOF;
            json_decref(line);
        }
    if (f) done = fclose(f) == 0 && done;
    if (done) return text;
    free(text);
    return NULL;
}

/* ---- the picture ---- */

/* Averages the seeds' common first validations. NULL x: out of memory. */
static curve curve_of(const table_row *r)
{
    int n = r->run[0].points;
    for (int i = 1; i < r->runs; i++)
        if (r->run[i].points < n) n = r->run[i].points;
    double *x = calloc(2 * (size_t)n + 1, sizeof *x), *y = x ? x + n : NULL;
    for (int k = 0; x && k < n; k++)
        for (int i = 0; i < r->runs; i++) {
            x[k] += r->run[i].point[k].seconds / r->runs;
            y[k] += r->run[i].point[k].accuracy / r->runs;
        }
    return (curve){ r->attention, n, x, y };
}

bool table_draw(const lra_table *t, const char *path, char *why, size_t size)
{
    curve c[ATTENTIONS];
    char title[600];
    int n = 0;
    bool done = true;
    for (int i = 0; i < t->rows && done; i++) {
        if (t->row[i].runs == 0) continue;
        c[n] = curve_of(&t->row[i]);
        done = c[n++].x != NULL;
    }
    snprintf(title, sizeof title, "Attentions on %s: validation accuracy over the time of training",
             t->task);
    const panel p = { .kind = PANEL_CURVES,
                      .across = "seconds of training, without validations",
                      .up = "accuracy, %",
                      .width = 640,
                      .height = 400,
                      .curves = { .n = n, .at = c } };
    const picture all = { title, t->note, 1, 1, &p };
    if (!done)
        snprintf(why, size, "out of memory");
    else
        done = picture_draw(NULL, &all, path, why, size);
    for (int i = 0; i < n; i++) free((void *)(uintptr_t)c[i].x);
    return done;
}
