/* folders.c - reads the folders of trainings, and notes in the table's folder what it compares. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "reports/json_lines.h"
#include "trainings.h"

static bool fail(char *why, size_t size, const char *reason)
{
    snprintf(why, size, "%s", reason);
    return false;
}

static const char *in(char path[TRAININGS_PATH], const char *folder, const char *name)
{
    snprintf(path, TRAININGS_PATH, "%.4300s/%s", folder, name);
    return path;
}

bool training_finished(const char *folder)
{
    char path[TRAININGS_PATH];
    return access(in(path, folder, "test.json"), F_OK) == 0;
}

bool training_begun(const char *folder)
{
    char path[TRAININGS_PATH];
    return access(in(path, folder, "last.safetensors"), F_OK) == 0;
}

/* ---- a training ---- */

/* NULL with the reason in why. */
static json_t *load(const char *folder, const char *name, char *why, size_t size)
{
    char path[TRAININGS_PATH];
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
    char path[TRAININGS_PATH], *text = NULL;
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

typedef struct reader {
    training *r;
    const char *score;
} reader;

static bool take_report(void *env, const json_t *line)
{
    const reader *x = env;
    training *r = x->r;
    r->seconds = number(line, "seconds");
    r->updates = number(line, "step");
    r->memory = fmax(r->memory, number(line, "memory"));
    r->process = fmax(r->process, number(line, "process"));
    if (!json_is_number(json_object_get(line, x->score))) return true;
    training_point *more = realloc(r->point, (size_t)(r->points + 1) * sizeof *more);
    if (!more) return false;
    r->point = more;
    r->last = number(line, x->score);
    r->valid = r->points == 0 ? r->last : fmax(r->valid, r->last);
    r->point[r->points++] = (training_point){ number(line, "epoch"), r->seconds, r->last };
    return true;
}

static void training_free(training *r)
{
    free(r->point);
    *r = (training){ 0 };
}

static bool training_read(training *r, const trainings *t, const char *folder, char *why,
                          size_t size)
{
    *r = (training){ 0 };
    json_t *config = load(folder, "config.json", why, size);
    json_t *test = config ? load(folder, "test.json", why, size) : NULL;
    r->parameters = number(config, "parameters");
    r->gflops = number(config, "gflops");
    for (int i = 0; i < TRAININGS_FIGURES && t->keys[i]; i++) r->test[i] = number(test, t->keys[i]);
    const bool done = test && each_line(folder, take_report, &(reader){ r, t->score }, why, size);
    json_decref(config);
    json_decref(test);
    return done;
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

bool training_speed(const char *folder, double *seconds, char *why, size_t size)
{
    span s = { 0 };
    if (!each_line(folder, take_time, &s, why, size)) return false;
    *seconds = s.last > s.first ? (s.to - s.from) / (s.last - s.first) : s.to;
    if (s.last > 0 && *seconds > 0) return true;
    snprintf(why, size, "%s/log.jsonl has no reports", folder);
    return false;
}

/* ---- the table's folder ---- */

static bool refuse(const char *folder, const json_t *theirs, char *why, size_t size)
{
    char *text = json_dumps(theirs, JSON_SORT_KEYS);
    snprintf(why, size,
             "%s holds a table of other settings, %.1000s: give these, or choose another --run-dir",
             folder, text ? text : "");
    free(text);
    return false;
}

/* Has a training begun there? One that failed at once leaves no folder. */
static bool has_folders(const char *path)
{
    const struct dirent *e;
    struct stat about;
    DIR *d = opendir(path);
    bool found = false;
    while (d && !found && (e = readdir(d)))
        found = e->d_name[0] != '.' && fstatat(dirfd(d), e->d_name, &about, 0) == 0 &&
                S_ISDIR(about.st_mode);
    if (d) closedir(d);
    return found;
}

bool trainings_open(const char *folder, json_t *ours, char *why, size_t size)
{
    char path[TRAININGS_PATH];
    json_error_t error;
    json_t *theirs = NULL;
    bool done = ours || fail(why, size, "out of memory");
    done = done && tp_make_folders(folder, why, size);
    if (done) theirs = json_load_file(in(path, folder, "table.json"), 0, &error);
    const bool same = done && theirs && json_equal(ours, theirs);
    if (done && theirs && !same && has_folders(folder)) {
        done = refuse(folder, theirs, why, size);
    } else if (done && !theirs && json_error_code(&error) != json_error_cannot_open_file) {
        snprintf(why, size, "%s: line %d: %s; remove it to begin anew", path, error.line,
                 tp_json_reason(error.text));
        done = false;
    } else if (done && !same) {
        done = json_replace(path, json_incref(ours), JSON_INDENT(2), why, size);
    }
    json_decref(ours);
    json_decref(theirs);
    return done;
}

/* ---- all trainings ---- */

void trainings_folder(const training_row *r, int64_t seed, const char *run_dir,
                      char path[TRAININGS_PATH])
{
    char name[TRAININGS_NAME];
    snprintf(name, sizeof name, "%s", r->name);
    for (char *s = name; *s; s++)
        if (*s == ' ' || *s == '/') *s = '+';
    snprintf(path, TRAININGS_PATH, "%.4000s/%s-%lld", run_dir, name, (long long)seed);
}

static bool fill(trainings *t, int row, int64_t seed, const char *run_dir, char *why, size_t size)
{
    char folder[TRAININGS_PATH];
    training_row *r = &t->row[row];
    trainings_folder(r, seed, run_dir, folder);
    if (!training_finished(folder)) {
        tp_command_complain(t->command, folder);
        if (!t->train(t->env, row, seed, folder, why, size)) return false;
    }
    return training_read(&r->run[r->runs++], t, folder, why, size);
}

bool trainings_run(trainings *t, const char *run_dir, int64_t seeds, char *why, size_t size)
{
    tp_catch_signals();
    bool done = true;
    for (int64_t seed = 1; seed <= seeds && done; seed++)
        for (int i = 0; i < t->rows && done; i++) done = fill(t, i, seed, run_dir, why, size);
    return done || tp_stop_signal();
}

void trainings_free(trainings *t)
{
    for (int i = 0; i < t->rows; i++)
        for (int k = 0; k < t->row[i].runs; k++) training_free(&t->row[i].run[k]);
}
