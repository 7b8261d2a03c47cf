/* set_lists.c - layouts with lists of files: IP102, Food-101, Mini-ImageNet. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "files.h"
#include "set.h"

/* ---- common to all lists ---- */

/* Normalises a name: removes "./" and repeated slashes. */
static char *one_form(char *name)
{
    char *to = name;
    for (const char *at = name; *at;) {
        const bool begins = to == name || to[-1] == '/';
        if (begins && at[0] == '.' && at[1] == '/')
            at += 1 + strspn(at + 1, "/");
        else if (begins && to > name && at[0] == '/')
            at++;
        else
            *to++ = *at++;
    }
    *to = '\0';
    return name;
}

/* A search for the set's files in another list. */
typedef struct search {
    const char *list;
    bool (*file_of)(char *line, void *env, char *path); /* false: no file in the line */
    void *env;
    const char **path; /* the set's files [count], sorted */
} search;

static bool is_other(tp_image_set *X, char *line, void *env)
{
    const search *s = env;
    char path[PATH_MAX];
    const char *at = path;
    if (!s->file_of(line, s->env, path)) return true;
    if (!bsearch(&at, s->path, (size_t)X->count, sizeof *s->path, tp__by_bytes)) return true;
    return tp__fail(X,
                    "%s: %s is in the list of the other part, too: training and "
                    "validation may not share images",
                    s->list, path);
}

/* Fails if a list, which may be missing, names a file of the set. */
static void keep_apart(tp_image_set *X, search s)
{
    if (X->why[0] || X->count == 0 || !tp__is_file(X, s.list)) return;
    s.path = malloc((size_t)X->count * sizeof *s.path);
    if (!s.path) tp__fail(X, "images: out of memory");
    for (int64_t i = 0; s.path && i < X->count; i++) s.path[i] = X->text + X->item[i].path;
    if (s.path) qsort(s.path, (size_t)X->count, sizeof *s.path, tp__by_bytes);
    if (s.path) tp__each_line(X, s.list, is_other, &s);
    free(s.path);
}

/* ---- IP102 ---- */

enum { IP102_CLASSES = 102 };

/* Reads a line "12   rice leaf roller"; numbers count from 1, in order. */
static bool ip102_class(tp_image_set *X, char *line, void *env)
{
    char *name;
    (void)env;
    const long number = strtol(line, &name, 10);
    while (*name == ' ' || *name == '\t') name++;
    for (size_t n = strlen(name); n && name[n - 1] == ' ';) name[--n] = '\0';
    if (number == X->classes + 1 && *name) return tp__image_set_class(X, name);
    return tp__fail(X, "classes.txt: the line '%s' does not name class %d", line, X->classes + 1);
}

/* The file of a line "00002.jpg 0". */
static bool ip102_file(char *line, void *env, char *path)
{
    char *blank = strrchr(line, ' ');
    if (!blank) return false;
    *blank = '\0';
    tp__join(path, PATH_MAX, env, one_form(line));
    return true;
}

/* Adds a line "00002.jpg 0". */
static bool ip102_line(tp_image_set *X, char *line, void *env)
{
    char path[PATH_MAX], *end;
    char *blank = strrchr(line, ' ');
    const long label = blank ? strtol(blank + 1, &end, 10) : -1;
    if (!blank || end == blank + 1 || *end || label < 0 || label >= X->classes)
        return tp__fail(X, "'%s' is not a file and a label from 0 to %d", line, X->classes - 1);
    ip102_file(line, env, path);
    if (tp__companion(line)) return true;
    return tp__image_set_item(X, tp__image_set_text(X, path), 0, (int32_t)label);
}

static void read_ip102(tp_image_set *X, const char *folder, tp_part part)
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
    for (int k = 0; k < 3; k++)
        if ((k == TP_TRAIN) != (part == TP_TRAIN))
            keep_apart(X, (search){ tp__join(path, sizeof path, folder, lists[k]), ip102_file,
                                    images, NULL });
}

static bool is_ip102(tp_image_set *X, const char *folder)
{
    return tp__has(X, folder, "train.txt") || tp__has(X, folder, "ip102_v1.1");
}

const tp_layout_kind tp__layout_ip102 = { .read = read_ip102, .seen = is_ip102, .rank = 3 };

/* ---- Food-101 ---- */

static bool food_file(char *line, void *env, char *path)
{
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s.jpg", one_form(line));
    tp__join(path, PATH_MAX, env, name);
    return true;
}

static bool food_line(tp_image_set *X, char *line, void *env)
{
    char path[PATH_MAX], name[PATH_MAX];
    food_file(line, env, path);
    if (tp__companion(line)) return true;
    char *slash = strchr(line, '/');
    snprintf(name, sizeof name, "%s.jpg", line);
    if (slash) *slash = '\0';
    const int32_t label = slash ? tp__image_set_label(X, line) : -1;
    if (label < 0) return tp__fail(X, "'%s' is not in a class of meta/classes.txt", name);
    return tp__image_set_item(X, tp__image_set_text(X, path), 0, label);
}

static void read_food101(tp_image_set *X, const char *folder, tp_part part)
{
    char path[PATH_MAX], images[PATH_MAX];
    tp__join(images, sizeof images, folder, "images");
    if (!tp__each_line(X, tp__join(path, sizeof path, folder, "meta/classes.txt"), tp__class_line,
                       NULL))
        return;
    tp__image_set_sort(X); /* labels follow the sorted names, not the lines of the list */
    tp__join(path, sizeof path, folder, part == TP_TRAIN ? "meta/train.txt" : "meta/test.txt");
    tp__each_line(X, path, food_line, images);
    tp__join(path, sizeof path, folder, part == TP_TRAIN ? "meta/test.txt" : "meta/train.txt");
    keep_apart(X, (search){ path, food_file, images, NULL });
}

static bool is_food101(tp_image_set *X, const char *folder)
{
    return tp__has(X, folder, "meta/classes.txt") && tp__has(X, folder, "images");
}

const tp_layout_kind tp__layout_food101 = { .read = read_food101, .seen = is_food101, .rank = 2 };

/* ---- Mini-ImageNet ---- */

enum { MINI_CLASS = 600, MINI_TRAIN = 480 };

/* The rows of the lists, before their classes are known. */
typedef struct rows {
    size_t *file, *wnid; /* offsets into the text of the set */
    int64_t n;
    size_t file_room, wnid_room;
    int skip;    /* columns before the file */
    bool header; /* the next line names the columns */
} rows;

/* Reads a line "FILE,WNID", or ",FILE,WNID" in newer lists. */
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
    if (!comma) return tp__fail(X, "'%s' is not a file and a class", line);
    *comma = '\0';
    if (tp__companion(one_form(file))) return true;
    if (!tp_reserve(&r->file, &r->file_room, (size_t)r->n, 1, sizeof *r->file) ||
        !tp_reserve(&r->wnid, &r->wnid_room, (size_t)r->n, 1, sizeof *r->wnid))
        return tp__fail(X, "images: out of memory");
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

/* Adds the classes of all rows, sorted. */
static void classes_of(tp_image_set *X, const rows *r)
{
    for (int64_t i = 0; i < r->n; i++) { /* lists are grouped by class */
        char name[512];
        snprintf(name, sizeof name, "%s", X->text + r->wnid[i]);
        if (X->classes && strcmp(tp_image_set_class(X, X->classes - 1), name) == 0) continue;
        if (!tp__image_set_class(X, name)) return;
    }
    tp__image_set_sort(X);
}

/* A file in two rows could be in both parts. */
static bool are_distinct(tp_image_set *X, const rows *r)
{
    const char **file = malloc(((size_t)r->n + 1) * sizeof *file);
    if (!file) return tp__fail(X, "images: out of memory");
    for (int64_t i = 0; i < r->n; i++) file[i] = X->text + r->file[i];
    qsort(file, (size_t)r->n, sizeof *file, tp__by_bytes);
    for (int64_t i = 1; i < r->n; i++)
        if (strcmp(file[i - 1], file[i]) == 0)
            tp__fail(X,
                     "the lists name %s twice: training and validation may not share "
                     "images",
                     file[i]);
    free(file);
    return !X->why[0];
}

static bool mini_item(tp_image_set *X, const rows *r, int64_t i, const char *images, int32_t label)
{
    char path[PATH_MAX];
    tp__join(path, sizeof path, images, X->text + r->file[i]);
    return tp__image_set_item(X, tp__image_set_text(X, path), 0, label);
}

/* Adds rows from `from` to `to`; their classes must be in the set. */
static void add_rows(tp_image_set *X, const rows *r, int64_t from, int64_t to, const char *images)
{
    for (int64_t i = from; i < to && !X->why[0]; i++) {
        const int32_t label = tp__image_set_label(X, X->text + r->wnid[i]);
        if (label < 0)
            tp__fail(X, "%s/%s: the training images have no class '%s'", images,
                     X->text + r->file[i], X->text + r->wnid[i]);
        else
            mini_item(X, r, i, images, label);
    }
}

/* Writes the row numbers of each class to of_class [classes,MINI_CLASS]. */
static bool group(tp_image_set *X, const rows *r, int64_t *of_class, int64_t *count)
{
    for (int64_t i = 0; i < r->n; i++) {
        const int32_t k = tp__image_set_label(X, X->text + r->wnid[i]);
        if (count[k] < MINI_CLASS) of_class[k * MINI_CLASS + count[k]] = i;
        count[k]++;
    }
    for (int k = 0; k < X->classes; k++)
        if (count[k] != MINI_CLASS)
            return tp__fail(X, "class %s has %lld images in the lists; Mini-ImageNet has %d",
                            tp_image_set_class(X, k), (long long)count[k], MINI_CLASS);
    return true;
}

/* Splits the few-shot lists as published supervised results do: permutes the images of each class
 * (pandas' sample, seed 1), then takes the first 480 for training. */
static void resplit(tp_image_set *X, const rows *r, const char *images, tp_part part)
{
    int64_t shuffled[MINI_CLASS];
    const int64_t classes = X->classes, most = r->n / MINI_CLASS + 1;
    int64_t *of_class = NULL, *count = calloc((size_t)classes + 1, sizeof *count);
    const int begin = part == TP_TRAIN ? 0 : MINI_TRAIN;
    const int end = part == TP_TRAIN ? MINI_TRAIN : MINI_CLASS;
    if (classes > most) /* then one has too few */
        tp__fail(X, "the lists have %lld images of %lld classes; Mini-ImageNet has %d of each",
                 (long long)r->n, (long long)classes, MINI_CLASS);
    else if (!count || !(of_class = malloc((size_t)(classes + 1) * MINI_CLASS * sizeof *of_class)))
        tp__fail(X, "images: out of memory");
    tp_numpy_permutation(1, MINI_CLASS, shuffled);
    if (count && of_class && group(X, r, of_class, count))
        for (int32_t k = 0; k < classes; k++)
            for (int p = begin; p < end && !X->why[0]; p++)
                mini_item(X, r, of_class[k * MINI_CLASS + shuffled[p]], images, k);
    free(of_class);
    free(count);
}

/* Reads new_train.csv, which has the classes, and new_val.csv. */
static void read_new(tp_image_set *X, rows *r, const char *folder, const char *images, tp_part part)
{
    if (!read_list(X, r, folder, "new_train.csv")) return;
    const int64_t cut = r->n;
    classes_of(X, r);
    if (!read_list(X, r, folder, "new_val.csv") || !are_distinct(X, r)) return;
    add_rows(X, r, part == TP_TRAIN ? 0 : cut, part == TP_TRAIN ? cut : r->n, images);
}

static void read_mini_imagenet(tp_image_set *X, const char *folder, tp_part part)
{
    char path[PATH_MAX], images[PATH_MAX];
    rows r = { 0 };
    tp__join(images, sizeof images, folder, "images");
    if (tp__is_file(X, tp__join(path, sizeof path, folder, "new_train.csv"))) {
        read_new(X, &r, folder, images, part);
    } else if (read_list(X, &r, folder, "train.csv") && read_list(X, &r, folder, "val.csv") &&
               read_list(X, &r, folder, "test.csv") && are_distinct(X, &r)) {
        classes_of(X, &r);
        if (!X->why[0]) resplit(X, &r, images, part);
    }
    free(r.file);
    free(r.wnid);
}

static bool is_mini_imagenet(tp_image_set *X, const char *folder)
{
    return tp__has(X, folder, "new_train.csv") || tp__has(X, folder, "train.csv") ||
           tp__has(X, folder, "train.csv.xz");
}

const tp_layout_kind tp__layout_miniimagenet = { .read = read_mini_imagenet,
                                                 .seen = is_mini_imagenet,
                                                 .rank = 4 };
