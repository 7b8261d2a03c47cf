/* set_lists.c - layouts with lists of files: IP102, Food-101, Mini-ImageNet. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "set.h"

/* ---- IP102 ---- */

enum { IP102_CLASSES = 102 };

/* A line "12   rice leaf roller"; numbers count from 1, in order. */
static bool ip102_class(tp_image_set *X, char *line, void *env)
{
    char *name;
    (void)env;
    const long number = strtol(line, &name, 10);
    while (*name == ' ' || *name == '\t') name++;
    for (size_t n = strlen(name); n && name[n - 1] == ' ';) name[--n] = '\0';
    if (number == X->classes + 1 && *name) return tp__image_set_class(X, name);
    return tp__image_set_fail(X, "classes.txt: the line '%s' does not name class %d", line,
                              X->classes + 1);
}

/* A line "00002.jpg 0". */
static bool ip102_line(tp_image_set *X, char *line, void *env)
{
    char path[PATH_MAX], *end;
    char *blank = strrchr(line, ' ');
    const long label = blank ? strtol(blank + 1, &end, 10) : -1;
    if (!blank || end == blank + 1 || *end || label < 0 || label >= X->classes)
        return tp__image_set_fail(X, "'%s' is not a file and a label from 0 to %d", line,
                                  X->classes - 1);
    *blank = '\0';
    tp__join(path, sizeof path, env, line);
    return tp__image_set_item(X, tp__image_set_text(X, path), 0, (int32_t)label);
}

void tp__read_ip102(tp_image_set *X, const char *folder, tp_part part)
{
    static const char *const lists[] = { "train.txt", "val.txt", "test.txt" };
    char below[PATH_MAX], path[PATH_MAX], images[PATH_MAX], name[16];
    const char *top = folder;
    tp__join(below, sizeof below, folder, "ip102_v1.1");
    if (tp__is_folder(X, below)) folder = below;
    if (tp__is_file(X, tp__join(path, sizeof path, folder, "classes.txt")) ||
        tp__is_file(X, tp__join(path, sizeof path, top, "classes.txt"))) {
        tp__each_line(X, path, ip102_class, NULL);
    } else {
        for (int i = 0; i < IP102_CLASSES; i++) {
            snprintf(name, sizeof name, "class %d", i);
            tp__image_set_class(X, name);
        }
    }
    tp__join(images, sizeof images, folder, "images");
    if (!X->why[0])
        tp__each_line(X, tp__join(path, sizeof path, folder, lists[part]), ip102_line, images);
}

/* ---- Food-101 ---- */

static bool add_class(tp_image_set *X, char *line, void *env)
{
    (void)env;
    return tp__image_set_class(X, line);
}

static bool food_line(tp_image_set *X, char *line, void *env)
{
    char path[PATH_MAX], name[PATH_MAX];
    char *slash = strchr(line, '/');
    snprintf(name, sizeof name, "%s.jpg", line);
    if (slash) *slash = '\0';
    const int32_t label = slash ? tp__image_set_label(X, line) : -1;
    if (label < 0) return tp__image_set_fail(X, "'%s' is not in a class of meta/classes.txt", name);
    tp__join(path, sizeof path, env, name);
    return tp__image_set_item(X, tp__image_set_text(X, path), 0, label);
}

void tp__read_food101(tp_image_set *X, const char *folder, tp_part part)
{
    char path[PATH_MAX], images[PATH_MAX];
    tp__join(images, sizeof images, folder, "images");
    if (!tp__each_line(X, tp__join(path, sizeof path, folder, "meta/classes.txt"), add_class, NULL))
        return;
    tp__image_set_sort(X); /* labels follow the sorted names, not the lines of the list */
    tp__join(path, sizeof path, folder, part == TP_TRAIN ? "meta/train.txt" : "meta/test.txt");
    tp__each_line(X, path, food_line, images);
}

/* ---- Mini-ImageNet ---- */

enum { MINI_CLASS = 600, MINI_TRAIN = 480 };

/* The rows of the lists, before their classes are known. */
typedef struct rows {
    size_t *file, *wnid; /* offsets into the text of the set */
    int64_t n, room;
    int skip;    /* columns before the file          */
    bool header; /* the next line names the columns */
} rows;

/* A line "FILE,WNID", or ",FILE,WNID" in newer lists. */
static bool mini_line(tp_image_set *X, char *line, void *env)
{
    rows *r = env;
    if (r->header) {
        r->header = false;
        r->skip = line[0] == ',';
        return true;
    }
    char *file = r->skip ? strchr(line, ',') : line;
    file = file && r->skip ? file + 1 : file;
    char *comma = file ? strchr(file, ',') : NULL;
    if (!comma) return tp__image_set_fail(X, "'%s' is not a file and a class", line);
    *comma = '\0';
    if (r->n == r->room) {
        const int64_t room = r->room ? 2 * r->room : 4096;
        size_t *f = realloc(r->file, (size_t)room * sizeof *f);
        if (f) r->file = f;
        size_t *w = f ? realloc(r->wnid, (size_t)room * sizeof *w) : NULL;
        if (w) r->wnid = w;
        if (!f || !w) return tp__image_set_fail(X, "images: out of memory");
        r->room = room;
    }
    r->file[r->n] = tp__image_set_text(X, file);
    r->wnid[r->n++] = tp__image_set_text(X, comma + 1);
    return X->why[0] == '\0';
}

static bool read_list(tp_image_set *X, rows *r, const char *folder, const char *name)
{
    char path[PATH_MAX], packed[PATH_MAX + 4];
    r->header = true;
    tp__join(path, sizeof path, folder, name);
    snprintf(packed, sizeof packed, "%s.xz", path);
    return tp__each_line(X, tp__is_file(X, path) ? path : packed, mini_line, r);
}

/* Adds the classes of all rows to the set, sorted. */
static void classes_of(tp_image_set *X, const rows *r)
{
    for (int64_t i = 0; i < r->n; i++) { /* lists are grouped by class, so the search is short */
        bool known = false;
        for (int k = X->classes - 1; k >= 0 && !known; k--)
            known = strcmp(X->text + X->class_at[k], X->text + r->wnid[i]) == 0;
        if (known) continue;
        char name[512];
        snprintf(name, sizeof name, "%s", X->text + r->wnid[i]);
        if (!tp__image_set_class(X, name)) return;
    }
    tp__image_set_sort(X);
}

static bool mini_item(tp_image_set *X, const rows *r, int64_t i, const char *images, int32_t label)
{
    char path[PATH_MAX];
    tp__join(path, sizeof path, images, X->text + r->file[i]);
    return tp__image_set_item(X, tp__image_set_text(X, path), 0, label);
}

/* Splits the few-shot lists as published supervised results do: within each class the images are
 * permuted (pandas' sample, seed 1), then the first 480 are for training. */
static void resplit(tp_image_set *X, const rows *r, const char *images, tp_part part)
{
    int64_t shuffled[MINI_CLASS];
    tp_numpy_permutation(1, MINI_CLASS, shuffled);
    for (int32_t k = 0; k < X->classes && !X->why[0]; k++) {
        int64_t of_class[MINI_CLASS];
        int n = 0;
        for (int64_t i = 0; i < r->n; i++)
            if (strcmp(X->text + r->wnid[i], tp_image_set_class(X, k)) == 0 && n++ < MINI_CLASS)
                of_class[n - 1] = i;
        if (n != MINI_CLASS) {
            tp__image_set_fail(X, "class %s has %d images in the lists; Mini-ImageNet has %d",
                               tp_image_set_class(X, k), n, MINI_CLASS);
            return;
        }
        const int begin = part == TP_TRAIN ? 0 : MINI_TRAIN;
        const int end = part == TP_TRAIN ? MINI_TRAIN : MINI_CLASS;
        for (int p = begin; p < end; p++) mini_item(X, r, of_class[shuffled[p]], images, k);
    }
}

void tp__read_mini_imagenet(tp_image_set *X, const char *folder, tp_part part)
{
    char path[PATH_MAX], images[PATH_MAX];
    rows r = { 0 };
    tp__join(images, sizeof images, folder, "images");
    if (tp__is_file(X, tp__join(path, sizeof path, folder, "new_train.csv"))) {
        read_list(X, &r, folder, part == TP_TRAIN ? "new_train.csv" : "new_val.csv");
        classes_of(X, &r);
        for (int64_t i = 0; i < r.n && !X->why[0]; i++)
            mini_item(X, &r, i, images, tp__image_set_label(X, X->text + r.wnid[i]));
    } else if (read_list(X, &r, folder, "train.csv") && read_list(X, &r, folder, "val.csv") &&
               read_list(X, &r, folder, "test.csv")) {
        classes_of(X, &r);
        resplit(X, &r, images, part);
    }
    free(r.file);
    free(r.wnid);
}
