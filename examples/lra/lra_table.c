/* lra_table.c - `lra table`: trains the attentions of Table 1 in separate processes and compares
 * them. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/train.h>

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
    TP_INT("seeds", S, seeds, 1, TRAININGS_SEEDS, 0,
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
            if (strcmp(t->row[i].name, attention_name(k)) == 0) k = -1;
        if (k < 0) {
            snprintf(why, size,
                     "--attentions: '%.*s' is no attention, or is there twice; they are %s",
                     n > 60 ? 60 : n, at, ATTENTION_NAMES);
            return false;
        }
        snprintf(t->row[t->rows++].name, TRAININGS_NAME, "%s", attention_name(k));
    }
    return t->rows > 0 || fail(why, size, "--attentions: the list is empty");
}

/* ---- trainings ---- */

typedef struct table_of {
    lra_table table; /* first: table_json gets its address */
    const table_settings *s;
} table_of;

static json_t *description(const table_settings *s)
{
    char dtype[32];
    tp_option_get(tp_option_find(options, "dtype"), s, dtype, sizeof dtype);
    return json_pack("{s:s,s:s?,s:I,s:f,s:s?,s:s,s:s}", "task", task_of(&s->d)->name, "data",
                     s->d.path, "steps", (json_int_t)s->steps, "time", s->time, "flags", s->flags,
                     "device", s->machine.device, "dtype", dtype);
}

/* Flags common to all trainings, for a run's folder. */
static void begin_flags(command_flags *f, const table_settings *s, const char *attention,
                        const char *folder)
{
    command_flag(f, "task", task_of(&s->d)->name);
    command_flag(f, "attention", attention);
    command_flag(f, "run-dir", folder);
    if (s->d.path) command_flag(f, "data", s->d.path);
    command_flag(f, "device", s->machine.device);
    command_copy(f, options, "dtype", s);
    command_copy(f, options, "threads", s);
    command_words(f, s->flags);
}

static bool train_apart(command_flags *f, const char *folder, char *why, size_t size)
{
    const int status = command_apart(f, lra_train_main, NULL, why, size);
    if (status > 0 && !tp_stop_signal())
        snprintf(why, size, "the training in %s failed with status %d, see above", folder, status);
    return status == 0;
}

/* Finds how many updates fit the time in a trial run. */
static bool find_steps(const table_settings *s, const char *attention, int64_t *steps, char *why,
                       size_t size)
{
    char folder[TRAININGS_PATH];
    double seconds;
    snprintf(folder, sizeof folder, "%.4300s/probe-%s", s->run_dir, attention);
    if (!training_finished(folder)) {
        command_flags *f = calloc(1, sizeof *f);
        if (!f) return fail(why, size, "out of memory");
        begin_flags(f, s, attention, folder);
        command_words(f, "--overwrite --steps 1000000000 --warmup 1 --eval-every 0 --log-every 1 "
                         "--checkpoint-every 0 --valid-examples 32 --test-examples 32");
        command_number(f, "time", fmin(60, fmax(1, s->time / 20)));
        const bool done = train_apart(f, folder, why, size);
        free(f);
        if (!done) return false;
    }
    if (!training_speed(folder, &seconds, why, size)) return false;
    *steps = (int64_t)fmax(1, round(s->time / seconds));
    return true;
}

static bool train(void *env, int row, int64_t seed, const char *folder, char *why, size_t size)
{
    const table_of *o = env;
    const table_settings *s = o->s;
    const char *attention = o->table.row[row].name;
    int64_t steps = s->steps;
    command_flags *f = calloc(1, sizeof *f);
    bool done = f || fail(why, size, "out of memory");
    if (done && training_begun(folder)) {
        command_words(f, "--resume");
        command_flag(f, "run-dir", folder);
        if (s->d.path) command_flag(f, "data", s->d.path);
        command_flag(f, "device", s->machine.device);
    } else if (done) {
        done = s->time == 0 || find_steps(s, attention, &steps, why, size);
        begin_flags(f, s, attention, folder);
        command_number(f, "seed", (double)seed);
        if (steps > 0) command_number(f, "steps", (double)steps);
    }
    done = done && train_apart(f, folder, why, size);
    free(f);
    return done;
}

/* ---- results ---- */

/* Without gnuplot the table has no pictures, which is only reported. */
static void draw(const table_settings *s, const trainings *t, const char *note)
{
    char path[TRAININGS_PATH], why[5000], title[200];
    const char *attention[ATTENTIONS];
    for (int i = 0; i < t->rows; i++) attention[i] = t->row[i].name;
    snprintf(title, sizeof title, "Attentions on %s: validation accuracy over the time of training",
             task_of(&s->d)->name);
    snprintf(path, sizeof path, "%.4300s/accuracy.png", s->run_dir);
    bool done = trainings_draw(
        t,
        &(trainings_picture){ title, note, "seconds of training, without validations",
                              "accuracy, %", offsetof(training_point, seconds) },
        path, why, sizeof why);
    snprintf(path, sizeof path, "%.4300s/memory.png", s->run_dir);
    done = done &&
           scale_draw_memory(s->d.task, t->rows, attention, &s->machine, path, why, sizeof why);
    if (!done) tp_command_complain(manual.name, why);
}

/* The data's name without its folder: pictures may be shown on other machines. */
static const char *data_name(const table_settings *s)
{
    const char *slash = s->d.path ? strrchr(s->d.path, '/') : NULL;
    return slash && slash[1] ? slash + 1 : s->d.path ? s->d.path : "Drawn documents";
}

static bool make(table_of *o, trainings *t, char *why, size_t size)
{
    const table_settings *s = o->s;
    char note[600];
    if (!read_rows(s, &o->table, why, size) ||
        !trainings_open(s->run_dir, description(s), why, size))
        return false;
    o->table.task = task_of(&s->d)->name;
    t->rows = o->table.rows;
    snprintf(note, sizeof note, "%.300s%s%.250s", data_name(s), s->flags ? "; flags: " : "",
             s->flags ? s->flags : "");
    if (!trainings_run(t, s->run_dir, s->seeds, why, size)) return false;
    if (tp_stop_signal()) return true;
    if (!trainings_write(t, s->run_dir, s->format == 1 ? stdout : NULL, why, size)) return false;
    if (s->format == 0) table_print(&o->table, stdout);
    if (fflush(stdout) != 0) {
        snprintf(why, size, "standard output: %s", strerror(errno));
        return false;
    }
    draw(s, t, note);
    return true;
}

static bool run(void *settings, char *why, size_t size)
{
    table_settings *s = settings;
    table_of *o = calloc(1, sizeof *o);
    tp_absolute_path(&s->d.path);
    if (!o) return fail(why, size, "out of memory");
    o->s = s;
    trainings t = { .command = manual.name,
                    .score = "accuracy",
                    .keys = { "accuracy", "official_accuracy" },
                    .train = train,
                    .json = table_json,
                    .env = o,
                    .row = o->table.row };
    const bool done = make(o, &t, why, size);
    trainings_free(&t);
    free(o);
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
