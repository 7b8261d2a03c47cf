/* table_run.c - see the header. */
#include "table_run.h"

#include <errno.h>
#include <jansson.h>
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

#include "lra_commands.h"

/* ---- flags ---- */

static void add(train_flags *f, const char *text, size_t n)
{
    if (f->n + 1 >= TABLE_WORDS || f->used + n + 1 > sizeof f->room) {
        f->full = true;
        return;
    }
    char *to = f->room + f->used;
    memcpy(to, text, n);
    to[n] = '\0';
    f->used += n + 1;
    f->word[f->n++] = to;
    f->word[f->n] = NULL;
}

void train_flags_add(train_flags *f, const char *name, const char *value)
{
    char flag[80];
    const int n = snprintf(flag, sizeof flag, "--%s", name);
    add(f, flag, (size_t)n);
    add(f, value, strlen(value));
}

void train_flags_split(train_flags *f, const char *text)
{
    while (text && *text) {
        const size_t blank = strspn(text, " "), n = strcspn(text + blank, " ");
        if (n > 0) add(f, text + blank, n);
        text += blank + n;
    }
}

/* ---- processes ---- */

/* Waits for the child; the first signal that comes meanwhile is passed on. Looks from time to time, since a
 * signal does not end waitpid. */
static int await(pid_t child, char *why, size_t size)
{
    const struct timespec pause = { .tv_nsec = 20000000 };
    int status = 0;
    bool told = false;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) != child) {
        if (ended < 0 && errno != EINTR) {
            snprintf(why, size, "waiting for a process failed: %s", strerror(errno));
            return -1;
        }
        if (tp_stop_signal() && !told) kill(child, tp_stop_signal());
        told = tp_stop_signal() != 0;
        nanosleep(&pause, NULL);
    }
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    snprintf(why, size, "the training was ended by signal %d", WTERMSIG(status));
    return -1;
}

int train_apart(train_flags *f, char *why, size_t size)
{
    if (f->full) {
        snprintf(why, size, "too many flags for 'lra train'");
        return -1;
    }
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0) {
        snprintf(why, size, "no process can be started: %s", strerror(errno));
        return -1;
    }
    if (child == 0) {
        setpgid(0, 0); /* Ctrl-C reaches the parent alone */
        dup2(STDERR_FILENO, STDOUT_FILENO);
        const int status = lra_train_main(f->n, f->word);
        fflush(NULL);
        _exit(status);
    }
    return await(child, why, size);
}

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

/* Calls take for each line of log.jsonl, until it is false. False with the reason in why. */
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
    double first, from, last, to; /* updates, and the seconds until them */
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
