/* task_data.c - opens the data of a task. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/listops.h>

#include "lra.h"

/* ---- what checkpoints hold ---- */

/* Holds a task_data without a program's other settings, with the same rows. */
typedef struct only {
    task_data d;
} only;

static const tp_option rows[] = {
    TP_CHOICE("task", only, d.task, TASK_NAMES, TP_SAVED, ""),
    TP_INT("length", only, d.length, 1, 1 << 20, TP_SAVED, ""),
    OPTIONS_TASK_DATA(only, d),
    { 0 },
};

static const char *key_of(const tp_option *o, char key[80])
{
    snprintf(key, 80, "documents.%s", o->name);
    return key;
}

void task_data_write(const task_data *d, tp_writer *W)
{
    const tp_option *row[TP_MAX_OPTIONS];
    const only all = { *d };
    const int n = tp_options_list(rows, row);
    for (int i = 0; i < n; i++) {
        char key[80], value[4200];
        tp_option_get(row[i], &all, value, sizeof value);
        if (value[0]) tp_writer_meta(W, key_of(row[i], key), value);
    }
    tp_writer_meta_int(W, "documents.drawn", !d->path);
    if (d->table) tp_writer_meta_int(W, "documents.table", d->table);
}

bool task_data_read(task_data *d, tp_file *F, char *why, size_t size)
{
    const tp_option *row[TP_MAX_OPTIONS];
    only all = { { 0 } };
    const int n = tp_options_list(rows, row);
    int64_t drawn = -1;
    char reason[512] = "";
    for (int i = 0; i < n && !reason[0]; i++) {
        char key[80], wrong[300];
        const char *value = tp_file_meta(F, key_of(row[i], key));
        if (!value && row[i]->kind != TP_OPTION_TEXT)
            snprintf(reason, sizeof reason, "'%s' is missing", key);
        else if (value && !tp_option_set(row[i], &all, value, wrong, sizeof wrong))
            snprintf(reason, sizeof reason, "'%s': %s", key, wrong);
    }
    if (!reason[0] && (!tp_file_int(F, "documents.drawn", &drawn) || drawn < 0 || drawn > 1))
        snprintf(reason, sizeof reason, "'documents.drawn' is neither 0 nor 1");
    *d = all.d;
    if (!reason[0] && !tp_file_int(F, "documents.table", &d->table))
        snprintf(reason, sizeof reason, "'documents.table' is no number");
    if (!reason[0]) d->path = drawn ? NULL : strdup("");
    if (!reason[0] && !drawn && !d->path) snprintf(reason, sizeof reason, "out of memory");
    if (!reason[0]) return true;
    task_data_free(d);
    if (tp_file_ok(F))
        snprintf(why, size, "%s is no checkpoint of lra: %s", tp_file_path(F), reason);
    else
        snprintf(why, size, "%s", tp_file_why(F));
    return false;
}

void task_data_free(task_data *d)
{
    free(d->path);
    free(d->level);
    *d = (task_data){ 0 };
}

/* ---- opening ---- */

void task_data_defaults(task_data *d)
{
    d->length = task_of(d)->padded;
    d->shortest = 501;
    d->longest = 1999;
    d->depth = d->args = 10;
    d->seed = 1;
}

const tp_task *task_of(const task_data *d)
{
    return tp_task_at(d->task);
}

static bool is_listops(const task_data *d)
{
    return d->task == 0;
}

/* Tokens kept of a document: as published unless the model is shorter or longer. */
static int64_t cut_of(const task_data *d)
{
    const tp_task *t = task_of(d);
    return d->length < t->longest || d->length > t->padded ? d->length : t->longest;
}

int64_t task_table_of(const tp_documents *X)
{
    return (int64_t)(tp_documents_hash(X) >> 1) | 1;
}

bool task_is_one_table(const task_data *d)
{
    const char *path = d->path;
    const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;
    const char *end = name ? strstr(name, ".tsv") : NULL;
    struct stat st;
    return end && (end[4] == '\0' || end[4] == '.') && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool task_data_check(const task_data *d, char *why, size_t size)
{
    const tp_task *t = task_of(d);
    if (!d->path && strcmp(t->name, "listops") != 0 && strcmp(t->name, "pathfinder") != 0)
        snprintf(why, size,
                 "--data PATH is required: only documents of listops and pathfinder "
                 "can be drawn, not of %s",
                 t->name);
    else if (!d->path && is_listops(d) && d->shortest > d->longest)
        snprintf(why, size, "--shortest %lld is above --longest %lld", (long long)d->shortest,
                 (long long)d->longest);
    else
        return true;
    return false;
}

static int64_t drawn_of(const task_data *d, int part)
{
    const int64_t n = part == TP_TRAIN ? d->train : part == TP_VALID ? d->valid : d->test;
    return n ? n : part == TP_TRAIN ? 96000 : 2000;
}

/* Draws all parts as one set, in the order train, valid, test, so that a part's size changes the
 * documents of later parts. */
static tp_documents *draw_expressions(const task_data *d)
{
    const tp_listops_opts o = { .seed = (uint64_t)d->seed,
                                .shortest = d->shortest,
                                .longest = d->longest,
                                .depth = (int)d->depth,
                                .args = (int)d->args,
                                .train = drawn_of(d, TP_TRAIN) + drawn_of(d, TP_VALID) +
                                         drawn_of(d, TP_TEST),
                                .brackets = (tp_brackets)d->brackets,
                                .cut = cut_of(d) };
    return tp_documents_listops_drawn(TP_TRAIN, &o);
}

/* Adds example i of another set. */
static void copy(tp_documents *X, const tp_documents *from, int64_t i)
{
    const uint16_t *ids[2];
    int64_t length[2];
    for (int k = 0; k < tp_documents_per_example(from); k++)
        ids[k] = tp_documents_ids(from, i, k, &length[k]);
    tp_documents_add(X, tp_documents_label(from, i), ids, length);
}

/* Copies at most `limit` examples of a part of it; limit 0: all. */
static tp_documents *part_of(const task_data *d, const tp_documents *all, int part, int64_t limit)
{
    int64_t first = 0, n = drawn_of(d, part);
    tp_documents *X = tp_documents_new(1, task_of(d)->classes);
    for (int k = 0; k < part; k++) first += drawn_of(d, k);
    if (limit > 0 && limit < n) n = limit;
    for (int64_t i = first; i < first + n && tp_documents_ok(X); i++) copy(X, all, i);
    return X;
}

enum { EVERY = 10 };

/* A part's share of a single table: validation and test get every tenth example, training the
 * rest. */
static tp_documents *share_of(const task_data *d, const tp_documents *all, int part)
{
    const int64_t count = tp_documents_count(all), every = count < EVERY ? count : EVERY;
    const int64_t most = part == TP_TRAIN ? d->train : part == TP_VALID ? d->valid : d->test;
    tp_documents *X = tp_documents_new(tp_documents_per_example(all), task_of(d)->classes);
    for (int64_t i = 0; i < count && tp_documents_ok(X); i++)
        if ((i % every == every - 1) == (part != TP_TRAIN) &&
            (most == 0 || tp_documents_count(X) < most))
            copy(X, all, i);
    return X;
}

/* Opens a whole table. */
static tp_documents *open_whole(const task_data *d, task_view v)
{
    task_data whole = *d;
    whole.train = whole.valid = whole.test = 0;
    whole.table = 0;
    v.limit = 0;
    return task_open(&whole, v);
}

static void open_table(const task_data *d, tp_documents *X[3])
{
    tp_documents *all = open_whole(d, (task_view){ .part = TP_TRAIN });
    X[TP_TRAIN] = all;
    if (!tp_documents_ok(all)) return;
    for (int k = TP_TRAIN; k <= TP_TEST; k++) X[k] = share_of(d, all, k);
    tp_documents_close(all);
}

/* Opens the part's share of the model's training table, or all examples of any other table. */
static tp_documents *open_share(const task_data *d, task_view v)
{
    tp_documents *X[3] = { NULL };
    task_data other = *d, limited = *d;
    open_table(d, X);
    if (!tp_documents_ok(X[TP_TRAIN])) return X[TP_TRAIN];
    const bool trained = task_table_of(X[TP_TRAIN]) == d->table;
    for (int k = TP_TRAIN; k <= TP_TEST; k++) tp_documents_close(X[k]);
    other.table = 0;
    if (!trained) return task_open(&other, v);
    tp_documents *all = open_whole(d, v);
    int64_t *most = v.part == TP_TRAIN   ? &limited.train
                    : v.part == TP_VALID ? &limited.valid
                                         : &limited.test;
    if (v.limit > 0 && (*most == 0 || v.limit < *most)) *most = v.limit;
    if (!tp_documents_ok(all)) return all;
    X[v.part] = share_of(&limited, all, (int)v.part);
    tp_documents_close(all);
    return X[v.part];
}

static tp_documents *draw_part(const task_data *d, int part, int64_t limit)
{
    tp_documents *all = draw_expressions(d);
    if (!tp_documents_ok(all)) return all;
    tp_documents *X = part_of(d, all, part, limit);
    tp_documents_close(all);
    return X;
}

void task_open_training(const task_data *d, tp_documents *X[3])
{
    X[TP_TRAIN] = X[TP_VALID] = X[TP_TEST] = NULL;
    if (task_is_one_table(d)) {
        open_table(d, X);
        return;
    }
    if (d->path || !is_listops(d)) {
        for (int k = TP_TRAIN; k <= TP_VALID; k++)
            X[k] = task_open(d, (task_view){ .part = (tp_part)k });
        return;
    }
    tp_documents *all = draw_expressions(d);
    X[TP_TRAIN] = all;
    if (!tp_documents_ok(all)) return;
    for (int k = TP_TRAIN; k <= TP_TEST; k++) X[k] = part_of(d, all, k, 0);
    tp_documents_close(all);
}

tp_documents *task_open(const task_data *d, task_view v)
{
    const int64_t usual = v.part == TP_TRAIN ? 20000 : 2000;
    const int64_t most = v.part == TP_TRAIN ? d->train : v.part == TP_VALID ? d->valid : d->test;
    const tp_documents_opts o = { .longest = cut_of(d),
                                  .limit =
                                      v.limit > 0 && (most == 0 || v.limit < most) ? v.limit : most,
                                  .brackets = (tp_brackets)d->brackets,
                                  .damage = v.part == TP_TRAIN ? TP_DAMAGE_NONE : v.damage,
                                  .whole = v.whole,
                                  .pixel_offset = (int)d->pixel_offset,
                                  .level = d->level,
                                  .split = (uint64_t)d->seed };
    if (d->table && task_is_one_table(d)) return open_share(d, v);
    if (d->path) return task_of(d)->open(d->path, v.part, &o);
    if (is_listops(d)) return draw_part(d, (int)v.part, v.limit);
    return tp_documents_drawn_paths(o.limit ? o.limit : usual, v.part, (uint64_t)d->seed, &o);
}

const char *task_source(const task_data *d, char *buf, size_t size)
{
    if (d->path)
        snprintf(buf, size, "%s", d->path);
    else if (is_listops(d))
        snprintf(buf, size, "drawn expressions of %lld to %lld tokens", (long long)d->shortest,
                 (long long)d->longest);
    else
        snprintf(buf, size, "images drawn in the manner of Pathfinder");
    return buf;
}
