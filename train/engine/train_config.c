/* train_config.c - --config FILE: a run begins with the settings of a file. Flags win over the
 * file, and the file wins over presets. But a run's own config.json has every setting, most of
 * which its preset gave; if the command line chooses another preset, those follow it. */
#include <stdlib.h>
#include <string.h>

#include "options_inner.h"
#include "trainer.h"

/* The file's settings, over the defaults. */
static bool read_file(tp_trainer *r, const char *path)
{
    tp_config_file *f = &r->config;
    char why[4600 + 2000];
    if (!tp__run_new_settings(r, &f->settings, NULL, NULL)) return false;
    return tp__settings_read(r->t->command.table, tp__run_program(r->t), path, f->settings, &f->has,
                             &f->by_hand, why, sizeof why) ||
           tp__run_fail(r, "%s", why);
}

/* What the presets of the file and of the command line say. */
typedef struct presets {
    const void *file, *line;
} presets;

/* Did the setting come from the file's preset, and is it another one in the command line's? */
static bool follows_preset(const tp_option *o, const void *settings, const presets *p)
{
    char now[TP_OPTION_ROOM], file[TP_OPTION_ROOM], line[TP_OPTION_ROOM];
    tp_option_get(o, settings, now, sizeof now);
    tp_option_get(o, p->file, file, sizeof file);
    tp_option_get(o, p->line, line, sizeof line);
    return strcmp(now, file) == 0 && strcmp(file, line) != 0;
}

/* Copies the rows that the file has, except those that follow presets; p NULL: all. */
static bool copy_rows(tp_trainer *r, void *to, const presets *p)
{
    const tp_config_file *f = &r->config;
    for (int i = 0; i < f->has.n; i++) {
        const tp_option *o = tp_option_find(r->t->command.table, f->has.name[i]);
        char value[TP_OPTION_ROOM], why[600];
        tp_option_get(o, f->settings, value, sizeof value);
        if (p && follows_preset(o, f->settings, p)) continue;
        if (!tp__option_restore(o, to, value, why, sizeof why))
            return tp__run_fail(r, "--%s: %s", o->name, why);
    }
    return true;
}

bool tp__run_take_config(tp_trainer *r, int argc, char **argv, void *asked)
{
    const tp_train_settings *wanted = asked;
    if (!wanted->config) return true;
    if (wanted->resume)
        return tp__run_fail(r,
                            "--resume continues a run with its own settings: leave out --config");
    return read_file(r, wanted->config) && copy_rows(r, asked, NULL) &&
           (tp_options_parse(&r->command, argc, argv, asked, NULL) == TP_PARSED ||
            tp__run_fail(r, "the flags cannot be read again")); /* they were read before */
}

/* The flags that chose the presets: in a file that a person wrote, each setting is one. */
static tp_given_flags flags_of(const tp_trainer *r, const tp_given_flags *given)
{
    tp_given_flags all = *given;
    for (int i = 0; r->config.by_hand && i < r->config.has.n; i++)
        if (!tp_was_given(given, r->config.has.name[i])) all.name[all.n++] = r->config.has.name[i];
    return all;
}

bool tp__run_settle(tp_trainer *r, const void *asked, const tp_given_flags *given)
{
    const tp_config_file *f = &r->config;
    if (!f->settings) return tp__run_new_settings(r, &r->run.settings, asked, given);
    const tp_given_flags all = flags_of(r, given), none = { 0 };
    void *preset = NULL;
    bool done = tp__run_new_settings(r, &r->run.settings, asked, &all) &&
                (f->by_hand || tp__run_new_settings(r, &preset, f->settings, &none));
    const presets p = { preset, r->run.settings };
    done = done && copy_rows(r, r->run.settings, f->by_hand ? NULL : &p);
    if (preset) tp_options_free(r->t->command.table, preset);
    free(preset);
    return done;
}

void tp__run_free_config(tp_trainer *r)
{
    if (r->config.settings) tp_options_free(r->t->command.table, r->config.settings);
    free(r->config.settings);
    r->config.settings = NULL;
}
