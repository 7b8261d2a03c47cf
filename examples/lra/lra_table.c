/* lra_table.c - `lra table`: trains the attentions of Table 1 in separate processes and compares
 * them. */
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

typedef struct table_settings {
    tp_machine_settings machine;
    task_data d; /* its task and path */
    char *attentions, *run_dir, *flags;
    int64_t seeds, steps;
    double time;
    int format;
} table_settings;

#define S table_settings

static const tp_option options[] = {
    TP_HEADING("WHAT IS COMPARED"),
    TP_CHOICE("task", S, d.task, TASK_NAMES, 0, "The task."),
    OPTION_DATA(S, d, 0),
    TP_STRING("attentions", S, attentions, "LIST", 0,
              "Attentions, separated by commas; not given: those of the paper's Table 1."),
    TP_INT("seeds", S, seeds, 1, TABLE_SEEDS, 0,
           "Trainings of each attention, with the seeds 1, 2, ..."),
    TP_HEADING("BUDGET"),
    TP_INT("steps", S, steps, 0, TP_BIG, 0, "Updates of each training; 0: the recipe's."),
    TP_NUM(
        "time", S, time, 0, TP_BIG, 0,
        "Seconds of each training, without validations: a short trial of each attention gives the "
        "number of updates; 0: by --steps."),
    TP_STRING("flags", S, flags, "FLAGS", 0,
              "Further flags of 'lra train' for all trainings, in one word: --flags='--length 1024 "
              "--batch 16'."),
    TP_HEADING("RUN"),
    TP_STRING(
        "run-dir", S, run_dir, "DIR", 0,
        "The folder of the runs, ATTENTION-SEED, and of the results. Finished trainings are not "
        "repeated, unfinished ones resumed."),
    TP_CHOICE("format", S, format, "table|json", 0,
              "What is printed at the end: text for people, or a JSON object for each training."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "lra table",
    .summary = "trains the paper's attentions and compares them",
    .synopsis = "[--task NAME] [--data PATH] [--steps N | --time S] [--seeds N] [flag ...]",
    .about =
        "Trains each attention with each seed and prints test accuracy with its standard "
        "deviation over the seeds, multiply-adds as the paper counts them, parameters, updates, "
        "time and the peak memory of the device, beside the paper's figures.\n\n"
        "A signal stops the present training with a checkpoint; the same command continues the "
        "table.",
    .table = options,
    .more =
        "FILES\n"
        "    ATTENTION-SEED    the runs; probe-ATTENTION: the trials of --time\n"
        "    table.json        what is compared; another table needs another folder\n"
        "    table.jsonl       one JSON object per training\n"
        "    accuracy.png      validation accuracy over the time of training\n"
        "    memory.png        memory of a training step by the length of its documents\n\n"
        "EXIT STATUS\n"
        "    0 success; 1 an error; 2 a wrong command line; 128 + signal: stopped\n\n"
        "EXAMPLES\n"
        "    lra table --steps 1000 --seeds 3\n"
        "    lra table --task text --data aclImdb --time 1800 --attentions softmax,linformer,ls\n",
};

static bool fail(char *why, size_t size, const char *reason)
{
    snprintf(why, size, "%s", reason);
    return false;
}

/* ---- flags ---- */

enum { TABLE_WORDS = 200 };

/* Flags for `lra train`, copied into room. */
typedef struct train_flags {
    int n;
    char *word[TABLE_WORDS];
    size_t used;
    char room[16384];
    bool full; /* something did not fit */
} train_flags;

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

/* --name value */
static void train_flags_add(train_flags *f, const char *name, const char *value)
{
    char flag[80];
    const int n = snprintf(flag, sizeof flag, "--%s", name);
    add(f, flag, (size_t)n);
    add(f, value, strlen(value));
}

/* At blanks. */
static void train_flags_split(train_flags *f, const char *text)
{
    while (text && *text) {
        const size_t blank = strspn(text, " "), n = strcspn(text + blank, " ");
        if (n > 0) add(f, text + blank, n);
        text += blank + n;
    }
}

/* ---- processes ---- */

/* Waits for the child and forwards the first signal. Polls, since a signal does not end waitpid. */
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

/* Runs `lra train` in a child process, which prints to standard error, and waits. Forwards the
 * first signal. Returns the exit status, or -1 with the reason in why if the child could not be
 * started or was killed. */
static int train_apart(train_flags *f, char *why, size_t size)
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
        setpgid(0, 0); /* Ctrl-C reaches only the parent */
        dup2(STDERR_FILENO, STDOUT_FILENO);
        const int status = lra_train_main(f->n, f->word);
        fflush(NULL);
        _exit(status);
    }
    return await(child, why, size);
}

/* ---- the rows ---- */

/* Table 1's attentions, sized for a task. */
static const char *usual(const table_settings *s)
{
    return s->d.task < 3 ? "softmax,reformer,linformer,performer,nystrom,ls,dp,ls-best"
                         : "softmax,reformer,linformer,performer,nystrom,ls";
}

static bool read_rows(const table_settings *s, lra_table *t, char *why, size_t size)
{
    const char *list = s->attentions ? s->attentions : usual(s);
    while (*list) {
        const char *at = list;
        int k = attention_of(&list);
        const int n = (int)strcspn(at, ",");
        for (int i = 0; i < t->rows && k >= 0; i++)
            if (t->row[i].attention == attention_name(k)) k = -1;
        if (k < 0) {
            snprintf(why, size,
                     "--attentions: '%.*s' is no attention, or is there twice; they are %s",
                     n > 60 ? 60 : n, at, ATTENTION_NAMES);
            return false;
        }
        t->row[t->rows++].attention = attention_name(k);
    }
    return t->rows > 0 || fail(why, size, "--attentions: the list is empty");
}

/* ---- the folder ---- */

static json_t *description(const table_settings *s)
{
    char dtype[32];
    tp_option_get(tp_option_find(options, "dtype"), s, dtype, sizeof dtype);
    return json_pack("{s:s,s:s?,s:I,s:f,s:s?,s:s,s:s}", "task", task_of(&s->d)->name, "data",
                     s->d.path, "steps", (json_int_t)s->steps, "time", s->time, "flags", s->flags,
                     "device", s->machine.device, "dtype", dtype);
}

/* Stores the folder's purpose. */
static bool write_note(const json_t *ours, const char *path, char *why, size_t size)
{
    char *text = json_dumps(ours, JSON_INDENT(2));
    const bool done = text && tp_file_replace(path, text, strlen(text), why, size);
    if (!text) fail(why, size, "out of memory");
    free(text);
    return done;
}

static bool refuse(const char *folder, const json_t *theirs, char *why, size_t size)
{
    char *text = json_dumps(theirs, JSON_SORT_KEYS);
    snprintf(why, size,
             "%s holds a table of other settings, %.1000s: give these, or choose another --run-dir",
             folder, text ? text : "");
    free(text);
    return false;
}

/* Creates the folder with a note, or checks its note. */
static bool open_folder(const table_settings *s, char *why, size_t size)
{
    char path[TABLE_PATH];
    json_error_t error;
    if (!tp_make_folders(s->run_dir, why, size)) return false;
    snprintf(path, sizeof path, "%.4300s/table.json", s->run_dir);
    json_t *ours = description(s), *theirs = json_load_file(path, 0, &error);
    bool done = ours || fail(why, size, "out of memory");
    if (done && theirs && !json_equal(ours, theirs)) {
        done = refuse(s->run_dir, theirs, why, size);
    } else if (done && !theirs && json_error_code(&error) != json_error_cannot_open_file) {
        snprintf(why, size, "%s: line %d: %s; remove it to begin anew", path, error.line,
                 tp_json_reason(error.text));
        done = false;
    } else if (done && !theirs) {
        done = write_note(ours, path, why, size);
    }
    json_decref(ours);
    json_decref(theirs);
    return done;
}

/* ---- trainings ---- */

/* Flags common to all trainings, for a run's folder. */
static void begin_flags(train_flags *f, const table_settings *s, const char *attention,
                        const char *folder)
{
    char text[64];
    train_flags_add(f, "task", task_of(&s->d)->name);
    train_flags_add(f, "attention", attention);
    train_flags_add(f, "run-dir", folder);
    if (s->d.path) train_flags_add(f, "data", s->d.path);
    train_flags_add(f, "device", s->machine.device);
    tp_option_get(tp_option_find(options, "dtype"), s, text, sizeof text);
    train_flags_add(f, "dtype", text);
    tp_option_get(tp_option_find(options, "threads"), s, text, sizeof text);
    train_flags_add(f, "threads", text);
    train_flags_split(f, s->flags);
}

static void add_number(train_flags *f, const char *name, double x)
{
    char text[40];
    snprintf(text, sizeof text, "%.10g", x);
    train_flags_add(f, name, text);
}

static bool check_status(int status, const char *folder, char *why, size_t size)
{
    if (status > 0 && !tp_stop_signal())
        snprintf(why, size, "the training in %s failed with status %d, see above", folder, status);
    return status == 0;
}

/* Finds how many updates fit the time in a trial run. */
static bool find_steps(const table_settings *s, const char *attention, int64_t *steps, char *why,
                       size_t size)
{
    char folder[TABLE_PATH];
    double seconds;
    snprintf(folder, sizeof folder, "%.4300s/probe-%s", s->run_dir, attention);
    if (!table_run_finished(folder)) {
        train_flags *f = calloc(1, sizeof *f);
        if (!f) return fail(why, size, "out of memory");
        begin_flags(f, s, attention, folder);
        train_flags_split(f,
                          "--overwrite --steps 1000000000 --warmup 1 --eval-every 0 --log-every 1 "
                          "--checkpoint-every 0 --valid-examples 32 --test-examples 32");
        add_number(f, "time", fmin(60, fmax(1, s->time / 20)));
        const int status = train_apart(f, why, size);
        free(f);
        if (!check_status(status, folder, why, size)) return false;
    }
    if (!table_run_speed(folder, &seconds, why, size)) return false;
    *steps = (int64_t)fmax(1, round(s->time / seconds));
    return true;
}

static bool train(const table_settings *s, const char *attention, int64_t seed, const char *folder,
                  char *why, size_t size)
{
    int64_t steps = s->steps;
    train_flags *f = calloc(1, sizeof *f);
    bool done = f || fail(why, size, "out of memory");
    if (done && table_run_begun(folder)) {
        train_flags_split(f, "--resume");
        train_flags_add(f, "run-dir", folder);
        if (s->d.path) train_flags_add(f, "data", s->d.path);
        train_flags_add(f, "device", s->machine.device);
    } else if (done) {
        done = s->time == 0 || find_steps(s, attention, &steps, why, size);
        begin_flags(f, s, attention, folder);
        add_number(f, "seed", (double)seed);
        if (steps > 0) add_number(f, "steps", (double)steps);
    }
    if (done) done = check_status(train_apart(f, why, size), folder, why, size);
    free(f);
    return done;
}

static bool fill(const table_settings *s, table_row *r, int64_t seed, char *why, size_t size)
{
    char folder[TABLE_PATH];
    snprintf(folder, sizeof folder, "%.4300s/%s-%lld", s->run_dir, r->attention, (long long)seed);
    if (!table_run_finished(folder)) {
        tp_command_complain(manual.name, folder);
        if (!train(s, r->attention, seed, folder, why, size)) return false;
    }
    return table_run_read(&r->run[r->runs++], folder, why, size);
}

/* ---- results ---- */

/* Without gnuplot the table has no pictures, which is only reported. */
static void draw(const table_settings *s, const lra_table *t)
{
    char path[TABLE_PATH], why[5000];
    snprintf(path, sizeof path, "%.4300s/accuracy.png", s->run_dir);
    bool done = table_draw(t, path, why, sizeof why);
    snprintf(path, sizeof path, "%.4300s/memory.png", s->run_dir);
    const char *attention[ATTENTIONS];
    for (int i = 0; i < t->rows; i++) attention[i] = t->row[i].attention;
    done = done &&
           scale_draw_memory(s->d.task, t->rows, attention, &s->machine, path, why, sizeof why);
    if (!done) tp_command_complain(manual.name, why);
}

static bool show(const table_settings *s, const lra_table *t, char *why, size_t size)
{
    char path[TABLE_PATH], *lines = table_lines(t);
    if (!lines) return fail(why, size, "out of memory");
    snprintf(path, sizeof path, "%.4300s/table.jsonl", s->run_dir);
    const bool done = tp_file_replace(path, lines, strlen(lines), why, size);
    if (done && s->format == 0) table_print(t, stdout);
    if (done && s->format == 1) fputs(lines, stdout);
    free(lines);
    return done && (fflush(stdout) == 0 || fail(why, size, strerror(errno)));
}

/* The data's name without its folder: pictures may be shown on other machines. */
static const char *data_name(const table_settings *s)
{
    const char *slash = s->d.path ? strrchr(s->d.path, '/') : NULL;
    return slash && slash[1] ? slash + 1 : s->d.path ? s->d.path : "Drawn documents";
}

static bool make(const table_settings *s, lra_table *t, char *why, size_t size)
{
    if (!read_rows(s, t, why, size) || !open_folder(s, why, size)) return false;
    t->task = task_of(&s->d)->name;
    snprintf(t->note, sizeof t->note, "%.300s%s%.250s", data_name(s), s->flags ? "; flags: " : "",
             s->flags ? s->flags : "");
    tp_catch_signals();
    bool done = true;
    for (int64_t seed = 1; seed <= s->seeds && done; seed++)
        for (int i = 0; i < t->rows && done; i++) done = fill(s, &t->row[i], seed, why, size);
    if (tp_stop_signal()) return true;
    if (!done || !show(s, t, why, size)) return false;
    draw(s, t);
    return true;
}

static bool run(void *settings, char *why, size_t size)
{
    table_settings *s = settings;
    lra_table *t = calloc(1, sizeof *t);
    tp_absolute_path(&s->d.path);
    if (!t) return fail(why, size, "out of memory");
    const bool done = make(s, t, why, size);
    for (int i = 0; i < t->rows; i++)
        for (int k = 0; k < t->row[i].runs; k++) table_run_free(&t->row[i].run[k]);
    free(t);
    return done;
}

static bool check(const void *settings, char *why, size_t size)
{
    const table_settings *s = settings;
    if (s->steps == 0 || s->time == 0) return true;
    return fail(why, size, "--steps and --time are two budgets: give one of them");
}

int lra_table_main(int argc, char **argv)
{
    tp_command command = manual;
    table_settings s = { .machine = { .device = strdup("cpu") },
                         .run_dir = strdup("runs/lra-table"),
                         .seeds = 1 };
    task_data_defaults(&s.d);
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run);
}
