/* train_optim.c - --optimizer and the flags of the optimisers' options, which are made from the rows of the
 * optimisers, and the optimiser that the settings select. */
#include "train_optim.h"

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/optim_kind.h>

typedef tp_train_settings settings;

/* The rows of all optimisers known so far. New ones come at the end. */
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

/* The largest value of a flag below an open end; infinity has no bound worth printing. */
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

const tp_option *tp__optimizer_rows(void)
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

void tp__optimizer_defaults(tp_train_settings *o)
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
    return tp_optim_new(P, k ? k->name : NULL, &(tp_optim_opts){ values, rule, env });
}
