/* train_config.c - config.json: what a run is, and on which machine, for people, scripts and the page of
 * tp-report. A resumed run reads only which settings its beginning compared with the preset. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "options_inner.h"
#include "trainer.h"

/* ---- the machine ---- */

/* Its name of the processor; x86 and ARM differ in the key. */
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

static json_t *machine(const tp_device *D)
{
    char processor[256], system[400] = "unknown";
    struct utsname u;
    const tp_stats s = tp_device_stats(D);
    processor_name(processor, sizeof processor);
    if (uname(&u) == 0)
        snprintf(system, sizeof system, "%s %s %s", u.sysname, u.release, u.machine);
    json_t *m = json_object();
    json_object_set_new(m, "processor", json_string(processor));
    json_object_set_new(m, "cores", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
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

/* The settings of a checkpoint include what the program filled in, such as a learning rate of 0. These
 * are no differences: config.json from the beginning of the run lacks them. */
static void leave_out_filled_in(const tp_trainer *r, json_t *values)
{
    const char *key;
    void *next;
    json_t *value, *former = tp__config_read(r->folder.config);
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
        r->why[0] = '\0'; /* the preset of another version */
    }
    if (preset) tp_options_free(table, preset);
    free(preset);
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
    json_object_set_new(c, "settings", tp__options_json(t->command.table, r->run.settings));
    if (r->preset) json_object_set(c, "preset_values", r->preset);
    json_object_set_new(c, "machine", machine(r->run.D));
    if (r->plan.peak > 0) json_object_set_new(c, "memory_plan", memory_plan(&r->plan));
    return c;
}
