/* train_settings.c - checks a program, completes its manual, fills in its default settings, decides
 * what a resumed run may change, and writes config.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "options_inner.h"
#include "trainer.h"

/* ---- the program ---- */

static bool is_in_log(const tp_training *t, const char *name)
{
    const char *const ours[] = { "step",  "epoch",      "seconds",          "loss",
                                 "lr",    "grad_norm",  "memory",           "process",
                                 "ops",   "train_loss", "exchange_exposed", "exchange_hidden",
                                 "ended", t->unit };
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strcmp(name, ours[i]) == 0) return true;
    return false;
}

bool tp__run_check_program(tp_trainer *r)
{
    const tp_training *t = r->t;
    const struct {
        bool there;
        const char *member;
    } needed[] = {
        { t->command.summary, "command.summary" },
        { t->command.about, "command.about" },
        { t->command.table, "command.table" },
        { t->unit, "unit" },
        { t->score, "score" },
        { t->score_text, "score_text" },
        { t->settings_size >= sizeof(tp_train_settings), "settings_size" },
        { t->open, "open" },
        { t->build, "build" },
        { t->next, "next" },
        { t->loss, "loss" },
        { t->validate, "validate" },
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!needed[i].there)
            return tp__run_fail(r, "the program's tp_training lacks %s", needed[i].member);
    if (!is_in_log(t, t->score)) return true;
    return tp__run_fail(r,
                        "the program's score is called '%s', like another value in the log: "
                        "choose another name, such as 'valid_%s'",
                        t->score, t->score);
}

/* ---- the manual ---- */

static const char every_run[] =
    "On SIGINT, SIGTERM, SIGHUP or SIGUSR1 the run finishes the current update, writes a "
    "checkpoint and exits. --resume continues it, bit for bit as if it had never stopped. Before "
    "training begins, while data and model are opened, they end the program at once. A checkpoint "
    "is written to a temporary file and renamed, so a killed run keeps its last complete one.\n\n"
    "If a loss, gradient or weight becomes NaN or infinite, the run exits with status 1 before it "
    "overwrites last.safetensors, which stays the last good checkpoint.";

static const char every_folder[] =
    "FILES\n"
    "    last.safetensors  checkpoint: everything the next update depends on\n"
    "    best.safetensors  the weights with the best validation score, and their configuration\n"
    "    last-UPDATE.safetensors, best-UPDATE.safetensors\n"
    "                      with --keep-last and --keep-best: more of both\n"
    "    log.jsonl         one JSON object per report: step, seconds (of training, without\n"
    "                      validations and checkpoints), loss, lr, grad_norm, memory and\n"
    "                      process (peak bytes of device and process); if the data has\n"
    "                      epochs, also epoch and, at the end of each, train_loss;\n"
    "                      after a validation also ops, if --profile times them, and\n"
    "                      ended, \"patience\", if --patience ends the run; with\n"
    "                      several processes exchange_exposed and exchange_hidden, seconds\n"
    "                      an update of exchanging gradients alone and during backward\n"
    "    config.json       all settings, what follows from them and the data (derived), those\n"
    "                      of the preset that differ (preset_values), machine, expected\n"
    "                      memory (memory_plan)\n"
    "    lr-range.jsonl, lr-range.svg\n"
    "                      with --lr-range, alone: step, lr, loss, smooth; their picture\n"
    "    report.html       with --report: a page with curves, settings, memory and time\n"
    "    events.out.*      with --tensorboard: what TensorBoard shows\n"
    "    lock              locked while a process uses the folder\n\n"
    "EXIT STATUS\n"
    "    0    the run is complete, --patience ended it, or --time is up\n"
    "    1    an error, such as an unknown preset or flags that contradict each other\n"
    "    2    a wrong command line\n"
    "    129, 130, 138, 143\n"
    "         stopped by SIGHUP, SIGINT, SIGUSR1, SIGTERM\n";

void tp__run_complete_manual(tp_trainer *r)
{
    const tp_command *c = &r->t->command;
    snprintf(r->synopsis, sizeof r->synopsis,
             "[flag ...]\n    %s --resume [--run-dir DIR] [flag ...]", c->name);
    snprintf(r->about, sizeof r->about, "%s\n\n%s", c->about, every_run);
    snprintf(r->more, sizeof r->more, "%s%s%s", every_folder, c->more ? "\n" : "",
             c->more ? c->more : "");
    r->command = *c;
    if (!c->synopsis) r->command.synopsis = r->synopsis;
    r->command.about = r->about;
    r->command.more = r->more;
}

/* ---- defaults ---- */

const char *tp__run_program(const tp_training *t)
{
    return t->program ? t->program : t->command.name;
}

/* For programs without settings_of. */
static bool default_settings(tp_trainer *r, void *settings)
{
    enum { MOST = 64 };
    char folder[256], flags[1024], *word[MOST], *rest = NULL;
    int n = 0;
    snprintf(folder, sizeof folder, "runs/%s", tp__run_program(r->t));
    snprintf(flags, sizeof flags, "%s", r->t->defaults ? r->t->defaults : "");
    *(tp_train_settings *)settings = tp_train_defaults(folder);
    for (char *w = strtok_r(flags, " ", &rest); w && n < MOST; w = strtok_r(NULL, " ", &rest))
        word[n++] = w;
    return tp_options_parse(&r->command, n, word, settings, NULL) == TP_PARSED ||
           tp__run_fail(r, "the program's own defaults are wrong: %s", r->t->defaults);
}

bool tp__run_new_settings(tp_trainer *r, void **settings, const void *asked,
                          const tp_given_flags *given)
{
    char why[1200] = "";
    *settings = calloc(1, r->t->settings_size);
    if (!*settings) return tp__run_fail(r, "out of memory");
    if (!r->t->settings_of) return default_settings(r, *settings);
    return r->t->settings_of(*settings, asked, given, why, sizeof why) ||
           tp__run_fail(r, "%s", why);
}

/* ---- resuming ---- */

bool tp__run_steps_shape(const tp_trainer *r)
{
    const int schedule = r->o->schedule;
    return !r->t->rate && (schedule == TP_RATE_LINEAR || schedule == TP_RATE_COSINE ||
                           schedule == TP_RATE_ONECYCLE);
}

bool tp__run_merge(tp_trainer *r, const void *asked, const tp_given_flags *given)
{
    const tp_option *table = r->t->command.table;
    char text[2048], why[512];
    if (tp_options_differ(table, asked, r->run.settings, TP_SAVED | TP_WEIGHTS, given, text,
                          sizeof text))
        return tp__run_fail(r,
                            "%s was trained with other settings: %s; "
                            "leave these flags out, or start another run",
                            r->folder.last, text);
    for (int i = 0; i < given->n; i++) {
        const tp_option *o = tp_option_find(table, given->name[i]);
        char value[TP_OPTION_ROOM];
        tp_option_get(o, asked, value, sizeof value);
        if (!tp_option_set(o, r->run.settings, value, why, sizeof why))
            return tp__run_fail(r, "--%s: %s", o->name, why);
    }
    return true;
}

/* ---- the machine ---- */

/* The processor's name; x86 and ARM have different keys. */
static void processor_name(char *name, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(name, size, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (!value || (strncmp(line, "model name", 10) != 0 && strncmp(line, "Model", 5) != 0))
            continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(name, size, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (f) fclose(f);
}

static json_t *machine(const tp_trainer *r)
{
    const tp_device *D = r->run.D;
    char processor[256], system[400] = "unknown";
    struct utsname u;
    const tp_stats s = tp_device_stats(D);
    processor_name(processor, sizeof processor);
    if (uname(&u) == 0)
        snprintf(system, sizeof system, "%s %s %s", u.sysname, u.release, u.machine);
    json_t *m = json_object();
    json_object_set_new(m, "processor", json_string(processor));
    json_object_set_new(m, "cores", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    if (r->peers) json_object_set_new(m, "processes", json_integer(r->run.ranks));
    json_object_set_new(m, "threads", json_integer(s.threads));
    json_object_set_new(m, "kernels", json_string(s.isa));
    json_object_set_new(m, "device", json_string(tp_device_name(D)));
    json_object_set_new(m, "memory", json_integer((json_int_t)tp__run_memory_installed()));
    json_object_set_new(m, "system", json_string(system));
    return m;
}

/* ---- the forecast ---- */

static json_t *memory_plan(const tp_forecast *m)
{
    const struct {
        const char *name;
        double bytes;
    } rows[] = {
        { "weights", m->weights },
        { "gradients", m->gradients },
        { "optimizer", m->optimizer },
        { "averages", m->averages },
        { "other", m->other },
        { "state", m->state },
        { "activations", m->activations },
        { "peak", m->peak },
        { "ahead", m->ahead },
        { "process", m->process },
    };
    json_t *plan = json_object();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        json_object_set_new(plan, rows[i].name, json_integer((json_int_t)rows[i].bytes));
    return plan;
}

/* ---- the preset ---- */

static bool is_zero(const json_t *x)
{
    return json_is_null(x) || (json_is_number(x) && json_number_value(x) == 0);
}

/* A checkpoint's settings include values filled in by the program, such as a learning rate of 0.
 * These are no differences: the original config.json does not have them. */
static void leave_out_filled_in(const tp_trainer *r, json_t *values)
{
    const char *key;
    void *next;
    json_t *value, *former = tp__config_read(r->folder.config, NULL, 0);
    const json_t *first = json_object_get(former, "preset_values");
    json_object_foreach_safe(values, next, key, value)
    {
        if (first && is_zero(value) && !json_object_get(first, key)) json_object_del(values, key);
    }
    json_decref(former);
}

void tp__run_compare(tp_trainer *r)
{
    const tp_given_flags none = { 0 };
    const tp_option *const table = r->t->command.table;
    const char *key;
    void *preset = NULL, *next;
    json_t *value;
    if (tp__run_new_settings(r, &preset, r->run.settings, &none)) {
        json_t *ours = tp__options_json(table, r->run.settings);
        r->preset = tp__options_json(table, preset);
        json_object_foreach_safe(r->preset, next, key, value)
        {
            if (json_equal(value, json_object_get(ours, key))) json_object_del(r->preset, key);
        }
        json_decref(ours);
        if (r->o->resume) leave_out_filled_in(r, r->preset);
    } else {
        r->why[0] = '\0'; /* another version's preset */
    }
    if (preset) tp_options_free(table, preset);
    free(preset);
}

/* ---- settings and what follows from them ---- */

/* Is it the same path, which open has made absolute so that it holds in any folder? */
static bool is_same_path(const json_t *given, const json_t *now)
{
    if (!json_is_string(given) || !json_is_string(now)) return false;
    char *path = strdup(json_string_value(given));
    tp_absolute_path(&path);
    const bool same = path && strcmp(path, json_string_value(now)) == 0;
    free(path);
    return same;
}

/* A checkpoint has what open made of the settings. Those that are as open left them in the run that
 * is resumed were not given: this puts back what was. */
static void take_former(const tp_trainer *r, json_t *given)
{
    const char *key;
    json_t *value, *former = tp__config_read(r->folder.config, NULL, 0);
    const json_t *first = json_object_get(former, "settings");
    json_object_foreach(json_object_get(former, "derived"), key, value)
    {
        json_t *was = json_object_get(first, key);
        if (was && json_equal(value, json_object_get(given, key))) json_object_set(given, key, was);
    }
    json_decref(former);
}

/* Adds the settings that were given, or are of a preset, and those that open derived from them and
 * from the data: in another run (--config), the latter follow from its own. */
static void add_settings(tp_trainer *r, json_t *c)
{
    const char *key;
    json_t *value, *derived = json_object();
    tp__run_show_batch(r, true);
    json_t *now = tp__options_json(r->t->command.table, r->run.settings);
    tp__run_show_batch(r, false);
    if (r->o->resume) take_former(r, r->given);
    json_object_foreach(now, key, value)
    {
        const json_t *given = json_object_get(r->given, key);
        if (json_equal(given, value)) continue;
        json_object_set(is_same_path(given, value) ? r->given : derived, key, value);
    }
    json_object_set(c, "settings", r->given);
    json_object_set_new(c, "derived", derived);
    json_decref(now);
}

json_t *tp__run_config(tp_trainer *r)
{
    const tp_training *t = r->t;
    json_t *c = json_object();
    json_object_set_new(c, "program", json_string(tp__run_program(t)));
    json_object_set_new(c, "version", json_string(tp_version()));
    json_object_set_new(c, "parameters", json_integer(tp_params_count(r->run.P)));
    json_object_update(c, r->notes);
    json_object_set_new(c, "unit", json_string(t->unit));
    json_object_set_new(c, "score", json_string(t->score));
    json_object_set_new(c, "higher", json_boolean(t->higher));
    json_object_set_new(c, "updates", json_integer(r->last));
    add_settings(r, c);
    if (r->preset) json_object_set(c, "preset_values", r->preset);
    json_object_set_new(c, "machine", machine(r));
    if (r->plan.peak > 0) json_object_set_new(c, "memory_plan", memory_plan(&r->plan));
    return c;
}
