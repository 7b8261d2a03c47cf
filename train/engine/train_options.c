/* train_options.c - the engine's flags. --optimizer and the optimisers' flags are made from the
 * rows of the optimisers. */
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/optim_kind.h>
#include <tapegrad/train.h>

/* ---- optimisers ---- */

typedef tp_train_settings settings;

/* The rows of all optimisers known so far; new ones are appended. */
static struct {
    int kinds, n;
    const tp_optim_option *option[TP_TRAIN_VALUES]; /* [n] */
    char name[TP_TRAIN_VALUES][64];                 /* of the flag: dashes for underscores */
    char help[TP_TRAIN_VALUES][400];
    char names[1000], about[1400]; /* of --optimizer */
    tp_option row[1 + TP_TRAIN_VALUES + 1];
} made = { .about = "Update rule." };
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static void append(char *text, size_t size, const char *sign, const char *more)
{
    const size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", sign, more);
}

static const tp_optim_option *option_of(const tp_optim_kind *k, const char *name)
{
    for (int i = 0; i < TP_OPTIM_OPTIONS && k->options[i].name; i++)
        if (k->options[i].help && strcmp(k->options[i].name, name) == 0) return &k->options[i];
    return NULL;
}

static int number_of(const char *option)
{
    for (int i = 0; option && i < made.n; i++)
        if (strcmp(made.option[i]->name, option) == 0) return i;
    return -1;
}

/* "Momentum (sgd, qhm)."; without names if all optimisers have the option. */
static void make_help(int i)
{
    const tp_optim_option *o = made.option[i];
    char who[sizeof made.names] = "";
    int having = 0;
    for (int k = 0; k < made.kinds; k++) {
        if (!option_of(tp_optim_kind_at(k), o->name)) continue;
        append(who, sizeof who, having++ ? ", " : " (", tp_optim_kind_at(k)->name);
    }
    snprintf(made.help[i], sizeof made.help[i], "%s%.300s%s.", o->help,
             having < made.kinds ? who : "", having < made.kinds ? ")" : "");
}

/* A flag's largest value below an open end; infinity has no bound to print. */
static double greatest(const tp_optim_option *o)
{
    if (o->high >= TP_BIG) return TP_BIG;
    return o->closed ? o->high : o->high - 1e-7 * fmax(1.0, fabs(o->high));
}

static void make_row(int i)
{
    const tp_optim_option *o = made.option[i];
    char *name = made.name[i];
    snprintf(name, sizeof made.name[i], "%s", o->name);
    for (char *c = name; (c = strchr(c, '_'));) *c = '-';
    make_help(i);
    made.row[1 + i] =
        (tp_option){ .name = name,
                     .kind = o->flag ? TP_OPTION_BOOL : TP_OPTION_NUM,
                     .tags = TP_SAVED,
                     .at = offsetof(settings, option) + (size_t)i * sizeof(tp_train_value),
                     .min = o->flag_low > 0 ? o->flag_low : fmax(o->low, -TP_BIG),
                     .max = greatest(o),
                     .value = o->flag ? NULL : "X",
                     .help = made.help[i] };
}

static void take_kind(const tp_optim_kind *k)
{
    append(made.names, sizeof made.names, made.kinds++ ? "|" : "", k->name);
    if (k->about) {
        append(made.about, sizeof made.about, " ", k->name);
        append(made.about, sizeof made.about, ": ", k->about);
    }
    for (int i = 0; i < TP_OPTIM_OPTIONS && k->options[i].name; i++) {
        const tp_optim_option *o = &k->options[i];
        if (o->help && number_of(o->name) < 0 && made.n < TP_TRAIN_VALUES)
            made.option[made.n++] = o;
    }
}

/* --optimizer, and a flag for each optimiser option with a help. */
static const tp_option *tp__optimizer_rows(void)
{
    static const tp_option optimizer =
        TP_CHOICE("optimizer", settings, optimizer, made.names, TP_SAVED, made.about);
    pthread_mutex_lock(&making);
    const tp_optim_kind *k = tp_optim_kind_at(made.kinds);
    const bool more = k != NULL;
    for (; k; k = tp_optim_kind_at(made.kinds)) take_kind(k);
    if (more) made.row[0] = optimizer;
    for (int i = 0; more && i < made.n; i++) make_row(i);
    pthread_mutex_unlock(&making);
    return made.row;
}

/* ---- the settings ---- */

/* The row of an option's flag, or NULL. */
static const tp_option *row_of(const char *option)
{
    const tp_option *rows = tp__optimizer_rows();
    const int i = number_of(option);
    return i < 0 ? NULL : &rows[1 + i];
}

bool tp_train_choose(tp_train_settings *o, const char *optimizer)
{
    const int i = tp_optim_find(optimizer);
    if (!o || i < 0) return false;
    o->optimizer = i;
    return true;
}

bool tp_train_set(tp_train_settings *o, const char *option, double value)
{
    const tp_option *row = row_of(option);
    if (!o || !row) return false;
    tp_train_value *at = &o->option[row - made.row - 1];
    if (row->kind == TP_OPTION_BOOL)
        at->flag = value != 0.0;
    else
        at->number = value;
    return true;
}

double tp_train_get(const tp_train_settings *o, const char *option)
{
    const tp_option *row = row_of(option);
    if (!o || !row) return (double)NAN;
    const tp_train_value *at = &o->option[row - made.row - 1];
    return row->kind == TP_OPTION_BOOL ? at->flag : at->number;
}

/* Sets the optimisers' options to values usual in training. */
static void tp__optimizer_defaults(tp_train_settings *o)
{
    tp__optimizer_rows();
    for (int i = 0; i < made.n; i++) tp_train_set(o, made.option[i]->name, made.option[i]->usual);
    tp_train_set(o, "momentum", 0.9); /* not 0, SGD's own */
}

tp_optim *tp_train_optimizer(tp_params *P, const tp_train_settings *o, bool raw_eps,
                             tp_factor_rule rule, void *env)
{
    if (!o) {
        tp_params_raise(P, TP_E_STATE, "train_optimizer: NULL was given in place of settings");
        return NULL;
    }
    const tp_optim_kind *k = tp_optim_kind_at(o->optimizer);
    tp_optim_value values[TP_OPTIM_OPTIONS + 1] = { { NULL, 0.0 } };
    for (int i = 0, n = 0; k && i < TP_OPTIM_OPTIONS && k->options[i].name; i++) {
        const char *name = k->options[i].name;
        if (k->options[i].help && row_of(name))
            values[n++] = (tp_optim_value){ name, tp_train_get(o, name) };
        else if (raw_eps && strcmp(name, "raw_eps") == 0)
            values[n++] = (tp_optim_value){ name, 1.0 };
    }
    return tp_optim_new(P, k ? k->name : NULL,
                        &(tp_optim_opts){ .values = values, .factors = rule, .env = env });
}

/* ---- all flags ---- */

#define O tp_train_settings

static const char *known_device(int i)
{
    static const char *const names[] = { "cpu", "cuda" };
    return i < 2 ? names[i] : NULL;
}

const tp_option tp_machine_options[] = {
    TP_STRING_OF("device", tp_machine_settings, device, "NAME", known_device, 0,
                 "cpu, cuda or cuda:1."),
    TP_CHOICE("dtype", tp_machine_settings, dtype, "f32|f64|bf16", TP_SAVED,
              "Element type of matrix products; f64 stores the weights in f64 too (CPU only)."),
    TP_INT(
        "threads", tp_machine_settings, threads, 0, 1024, 0,
        "CPU threads; 0: all cores, or as many as the CPU quota of a container allows. Results do "
        "not depend on it."),
    { 0 },
};

const tp_option tp_inspection_options[] = {
    TP_FLAG("check-finite", O, check_finite, 0,
            "Check every result and gradient for NaN and infinity, and name the op that produced "
            "the first one. Slow; does not change results."),
    TP_FLAG("profile", O, profile, 0, "Print the time spent in each op when the run ends."),
    TP_STRING("trace", O, trace, "FILE", 0,
              "Write when each op of this process's third update ran, as JSON for "
              "ui.perfetto.dev. On CUDA the whole run then takes the times of its ops, and --graph "
              "has no effect."),
    { 0 },
};

const tp_option tp_device_options[] = {
    TP_ROWS(tp_machine_options),
    TP_ROWS(tp_inspection_options),
    TP_FLAG("graph", O, graph, 0,
            "CUDA: launch each update as one captured graph (forward and backward alone, if "
            "several processes train or --histograms needs gradients). Faster for small models; "
            "does not change results. No effect with --accumulation."),
    { 0 },
};

const tp_option tp_run_options[] = {
    TP_STRING("run-dir", O, run_dir, "DIR", 0,
              "The run's folder: last.safetensors, best.safetensors, log.jsonl, config.json."),
    TP_FLAG("resume", O, resume, 0,
            "Resume the run in the folder from last.safetensors, bit for bit as if it had never "
            "stopped. Flags that would change its course are refused."),
    TP_FLAG("overwrite", O, overwrite, 0, "Start over in a folder that already holds a run."),
    TP_STRING("config", O, config, "FILE", 0,
              "Begin with the settings in this file, such as the config.json of another run; flags "
              "win over it. Give --run-dir too: the file has that of its run."),
    TP_FLAG("plan", O, plan, 0,
            "Do not train: print the number of parameters, the memory of a step (for each value "
            "of --recompute, if the program has it) and the time that the run would take here."),
    TP_STRING("lr-range", O, lr_range, "FROM:TO", 0,
              "Do not train a model to keep: multiply the learning rate by the same factor after "
              "each of 100 updates (FROM:TO:N: of N), from FROM to TO or until the loss diverges, "
              "and write the losses to lr-range.jsonl and lr-range.svg in the run's folder."),
    TP_STRING("init", O, init, "FILE", 0,
              "Start from the weights of this checkpoint of the same model. Optimiser, schedule "
              "and data position start from the beginning."),
    TP_NUM("peer-timeout", O, peer_timeout, 1, TP_BIG, 0,
           "Under mpirun: end this process when another one has been silent for so many seconds, "
           "because it hangs or its network is cut."),
    { 0 },
};

const tp_option tp_length_options[] = {
    TP_INT("epochs", O, epochs, 0, 1000000, TP_SAVED,
           "Passes over the data; 0: --steps ends the run."),
    TP_INT("steps", O, steps, 0, TP_BIG, TP_FREE, "Total updates; 0: --epochs ends the run."),
    TP_NUM("time", O, time, 0, TP_BIG, 0,
           "Stop after this many seconds, with a validation and a checkpoint; 0: no limit."),
    TP_INT("batch", O, batch, 1, 65536, TP_SAVED, "Batch size, in examples."),
    TP_INT("accumulation", O, accumulation, 1, 65536, TP_SAVED,
           "Batches whose gradients are averaged over their targets for one update."),
    TP_INT("seed", O, seed, 0, TP_BIG, TP_SAVED,
           "Seed of initial weights, order of examples and dropout."),
    { 0 },
};

const tp_option tp_recompute_options[] = {
    TP_CHOICE("recompute", O, recompute, "none|attention|block", TP_SAVED,
              "What the backward pass recomputes instead of storing: less memory, more time."),
    { 0 },
};

const tp_option tp_rate_options[] = {
    TP_NUM("lr", O, lr, 0, 1000, TP_SAVED, "Learning rate."),
    TP_NUM("warmup", O, warmup, 0, TP_BIG, TP_SAVED,
           "Updates over which the learning rate rises linearly from 0."),
    TP_CHOICE("schedule", O, schedule, "constant|linear|cosine|step|onecycle|plateau", TP_SAVED,
              "Learning rate after the warm-up; linear and cosine reach --lr-end at the last "
              "update, plateau drops where validations find nothing better."),
    TP_NUM("lr-end", O, lr_end, 0, 1000, TP_SAVED,
           "Final learning rate of linear and cosine, the lowest of plateau."),
    TP_INT("lr-every", O, lr_every, 1, TP_BIG, TP_SAVED,
           "Updates between the drops of --schedule step."),
    TP_NUM(
        "lr-factor", O, lr_factor, 0, 1, TP_SAVED,
        "Factor by which each drop of --schedule step and plateau multiplies the learning rate."),
    TP_INT("lr-patience", O, lr_patience, 1, TP_BIG, TP_SAVED,
           "Validations in a row without a better score after which --schedule plateau drops the "
           "learning rate. Only those that --eval-every asks for count."),
    { 0 },
};

const tp_option tp_optimizer_options[] = {
    TP_ROWS_BY(tp__optimizer_rows),
    TP_NUM("clip", O, clip, 0, TP_BIG, TP_SAVED,
           "Largest norm of the gradient, which is scaled down to it; 0: no limit."),
    TP_NUM("ema", O, ema, 0, 0.9999999, TP_SAVED,
           "Decay of the moving average of the weights, which validation and best.safetensors "
           "then use; 0: no average."),
    TP_FLAG("ema-aside", O, ema_aside, TP_SAVED,
            "Keep the average in last.safetensors only: validation and best.safetensors use the "
            "weights themselves."),
    TP_FLAG("shard-optimizer", O, shard_optimizer, 0,
            "Divide the optimiser's moments among the processes of a run, so that each needs only "
            "its share of their memory. Does not change results; no effect in a single process."),
    TP_FLAG("sync-bn", O, sync_bn, TP_SAVED,
            "Normalise in batch norms with the statistics of all processes' rows, as one process "
            "with the whole batch would. Each batch norm then waits for the others."),
    TP_FLAG("exchange-bf16", O, exchange_bf16, TP_SAVED,
            "Send gradients between processes as bf16, with what rounding takes from one added to "
            "the next: half of the bytes, for slow networks. Changes results slightly."),
    { 0 },
};

const tp_option tp_report_options[] = {
    TP_INT("log-every", O, log_every, 1, TP_BIG, TP_FREE, "Updates between reports."),
    TP_INT("eval-every", O, eval_every, 0, TP_BIG, TP_FREE,
           "Epochs between validations, or updates if the data has no epochs; 0: only at the end "
           "of the run."),
    TP_INT("checkpoint-every", O, checkpoint_every, 0, TP_BIG, TP_FREE,
           "Updates between checkpoints, in addition to those at the end of each epoch and of the "
           "run; 0: only those."),
    TP_INT("patience", O, patience, 0, TP_BIG, TP_FREE,
           "End the run after so many validations in a row without a better score; 0: never. Only "
           "those that --eval-every asks for count. A resumed run may change it."),
    TP_INT("keep-last", O, keep_last, 0, 1000000, TP_FREE,
           "Keep so many checkpoints, the newest, as last-UPDATE.safetensors beside "
           "last.safetensors; 0: none."),
    TP_INT("keep-best", O, keep_best, 0, 1000000, TP_FREE,
           "Keep the weights of so many validations, those with the best scores, as "
           "best-UPDATE.safetensors beside best.safetensors; 0: none."),
    TP_FLAG("report", O, report, 0,
            "Write report.html into the run's folder after each validation: a page with curves, "
            "settings, memory and time, as tp-report does."),
    TP_FLAG("tensorboard", O, tensorboard, 0,
            "Write event files for TensorBoard into the run's folder: every number of log.jsonl, "
            "and the pictures that validations write."),
    TP_STRING("tensorboard-dir", O, tensorboard_dir, "DIR", 0,
              "With --tensorboard: write the event files into this folder instead."),
    TP_CHOICE("histograms", O, histograms, "none|weights|gradients|both", 0,
              "With --tensorboard: write a histogram of each parameter at every validation: of its "
              "values, of its gradient in the last update, or of both."),
    { 0 },
};

const tp_option tp_train_options[] = {
    TP_HEADING("RUN"),
    TP_ROWS(tp_run_options),
    TP_HEADING("TRAINING"),
    TP_ROWS(tp_length_options),
    TP_ROWS(tp_rate_options),
    TP_ROWS(tp_optimizer_options),
    TP_HEADING("REPORTS AND CHECKPOINTS"),
    TP_ROWS(tp_report_options),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_device_options),
    { 0 },
};

tp_train_settings tp_train_defaults(const char *run_dir)
{
    tp_train_settings s = { .machine = { .device = run_dir ? strdup("cpu") : NULL },
                            .run_dir = run_dir ? strdup(run_dir) : NULL,
                            .peer_timeout = 30,
                            .batch = 32,
                            .accumulation = 1,
                            .seed = 1,
                            .lr = 1e-3,
                            .lr_every = 1000,
                            .lr_factor = 0.5,
                            .lr_patience = 3,
                            .log_every = 50,
                            .eval_every = 1 };
    tp__optimizer_defaults(&s);
    return s;
}

double tp_train_rate(const tp_train_settings *o, int64_t u, int64_t total)
{
    if (!o) return 0;
    const int64_t warmup = (int64_t)o->warmup;
    switch (o->schedule) {
    case TP_RATE_LINEAR: return tp_lr_linear(u, warmup, total, o->lr, o->lr_end);
    case TP_RATE_COSINE: return tp_lr_cosine(u, warmup, total, o->lr, o->lr_end);
    case TP_RATE_STEP: return tp_lr_step(u, warmup, o->lr_every, o->lr_factor, o->lr);
    case TP_RATE_ONECYCLE: return tp_lr_onecycle(u, total, o->lr, 0.3, 25, 1e4);
    default: return tp_lr_constant(u, warmup, o->lr);
    }
}
