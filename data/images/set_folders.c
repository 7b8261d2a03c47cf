/* set_folders.c - layouts whose folders name the classes. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "files.h"
#include "set.h"

typedef enum which { ALL, TRAINING, VALIDATION } which;

/* A folder of classes, and its name in messages. */
typedef struct tree {
    const char *classes; /* folder that names the classes */
    const char *folder;  /* folder of the images */
    const char *below;   /* "", or "val/": its place in the set */
    which which;
} tree;

/* Counts the folders inside the folder of a class. */
static void leave_files(tp_image_set *X, const tree *t, const char *path, const char *name)
{
    char **names;
    int n = tp__entries(X, path, true, &names);
    for (int i = 0; i < n; i++)
        tp__image_set_left(X, TP_LEFT_DEEP, "%s%s/%s", t->below, name, names[i]);
    if (n >= 0) tp__names_free(names, n);
}

/* Adds the images of FOLDER/CLASS: all, or those of training or validation. */
static void read_class(tp_image_set *X, const tree *t, const char *name)
{
    char path[PATH_MAX], file[PATH_MAX];
    char **names;
    int64_t seen = 0;
    const int32_t label = tp__image_set_label(X, name);
    const int n = tp__entries(X, tp__join(path, sizeof path, t->folder, name), false, &names);
    if (n < 0) {
        tp__fail(X, "%s: the folder was removed while the set was read", path);
        return;
    }
    for (int i = 0; i < n && !X->why[0]; i++) {
        if (!tp__is_image(names[i])) {
            tp__image_set_left(X, TP_LEFT_FILE, "%s%s/%s", t->below, name, names[i]);
            continue;
        }
        const bool held = seen++ % TP_HELD_OUT == TP_HELD_OUT - 1;
        if (label < 0)
            tp__fail(X, "%s: the training images have no class '%s'", path, name);
        else if (t->which == ALL || held == (t->which == VALIDATION))
            tp__image_set_item(
                X, tp__image_set_text(X, tp__join(file, sizeof file, path, names[i])), 0, label);
    }
    X->of_both += seen;
    if (seen == 0) tp__image_set_left(X, TP_LEFT_EMPTY, "%s%s", t->below, name);
    leave_files(X, t, path, name);
    tp__names_free(names, n);
}

/* Adds a class for each folder with images. */
static void read_classes(tp_image_set *X, const char *folder)
{
    char path[PATH_MAX];
    char **names;
    const int n = tp__entries(X, folder, true, &names);
    for (int i = 0; i < n && !X->why[0]; i++)
        if (!tp__leads_back(tp__join(path, sizeof path, folder, names[i])) &&
            tp__has_images(X, path))
            tp__image_set_class(X, names[i]);
    if (n >= 0) tp__names_free(names, n);
    if (!X->why[0]) tp__image_set_sort(X);
}

/* Parts must not share the folder of a class through a link. */
static bool is_apart(tp_image_set *X, const tree *t, const char *path, const char *name)
{
    char other[PATH_MAX];
    return strcmp(t->classes, t->folder) == 0 ||
           !tp__same_file(path, tp__join(other, sizeof other, t->classes, name)) ||
           tp__image_set_shared(X, other, path, "folder");
}

static void read_tree(tp_image_set *X, tree t)
{
    char path[PATH_MAX];
    char **names;
    X->held_back = t.which != ALL;
    if (strcmp(t.classes, t.folder) != 0 && tp__same_file(t.classes, t.folder)) {
        tp__image_set_shared(X, t.classes, t.folder, "folder");
        return;
    }
    read_classes(X, t.classes);
    int n = tp__entries(X, t.folder, false, &names);
    for (int i = 0; i < n; i++)
        tp__image_set_left(X, tp__is_image(names[i]) ? TP_LEFT_LOOSE : TP_LEFT_FILE, "%s%s",
                           t.below, names[i]);
    if (n >= 0) tp__names_free(names, n);
    n = tp__entries(X, t.folder, true, &names);
    for (int i = 0; i < n && !X->why[0]; i++) {
        if (tp__leads_back(tp__join(path, sizeof path, t.folder, names[i])))
            tp__image_set_left(X, TP_LEFT_LINK, "%s%s", t.below, names[i]);
        else if (is_apart(X, &t, path, names[i]))
            read_class(X, &t, names[i]);
    }
    if (n >= 0) tp__names_free(names, n);
}

/* The folders of the parts; "" if missing. */
typedef struct parts {
    char name[3][256];
} parts;

static bool has_folders(tp_image_set *X, const char *folder, const char *name)
{
    char path[PATH_MAX];
    char **names;
    const int n = tp__entries(X, tp__join(path, sizeof path, folder, name), true, &names);
    if (n >= 0) tp__names_free(names, n);
    return n > 0;
}

/* Finds folders named as parts. There are none without one for training; a folder of images called
 * "train" is a class unless another folder is named as a part. */
static bool find_parts(tp_image_set *X, const char *folder, parts *p)
{
    static const char *const usual[] = { "train", "val", "test" };
    char **names;
    const int n = tp__entries(X, folder, true, &names);
    *p = (parts){ 0 };
    for (int i = 0; i < n; i++) {
        const int part = tp__part_of_word(names[i], strlen(names[i]));
        if (part >= 0 && (!p->name[part][0] || strcmp(names[i], usual[part]) == 0))
            snprintf(p->name[part], sizeof p->name[part], "%s", names[i]);
    }
    const bool found = p->name[TP_TRAIN][0] && (p->name[TP_VALID][0] || p->name[TP_TEST][0] ||
                                                has_folders(X, folder, p->name[TP_TRAIN]));
    for (int i = 0; found && i < n; i++) {
        bool used = false;
        for (int k = 0; k < 3; k++) used = used || strcmp(names[i], p->name[k]) == 0;
        if (!used) tp__image_set_left(X, TP_LEFT_BESIDE, "%s", names[i]);
    }
    if (n >= 0) tp__names_free(names, n);
    return found;
}

static void read_folder(tp_image_set *X, const char *folder, tp_part part)
{
    parts p;
    char train[PATH_MAX], held[PATH_MAX], below[PATH_MAX];
    const which w = part == TP_TRAIN ? TRAINING : VALIDATION;
    if (!find_parts(X, folder, &p)) {
        read_tree(X, (tree){ folder, folder, "", w });
        return;
    }
    const char *valid = p.name[part == TP_TEST && p.name[TP_TEST][0] ? TP_TEST : TP_VALID];
    if (!valid[0]) valid = p.name[TP_TEST];
    const char *from = part == TP_TRAIN || !valid[0] ? p.name[TP_TRAIN] : valid;
    tp__join(train, sizeof train, folder, p.name[TP_TRAIN]);
    snprintf(below, sizeof below, "%s/", from);
    read_tree(
        X, (tree){ train, tp__join(held, sizeof held, folder, from), below, valid[0] ? ALL : w });
}

static void read_test(tp_image_set *X, const char *folder, tp_part part)
{
    if (part == TP_TRAIN)
        tp__fail(X, "%s: the layout 'test' has no images for training", folder);
    else
        read_tree(X, (tree){ folder, folder, "", ALL });
}

const tp_layout_kind tp__layout_folder = { .read = read_folder };
const tp_layout_kind tp__layout_test = { .read = read_test };

/* ---- ImageNet ---- */

#define LIST_NAME "imagenet_2012_validation_synset_labels.txt"

typedef struct flat {
    const char *folder;
    int64_t number; /* of the image, from 1 */
} flat;

static bool flat_line(tp_image_set *X, char *line, void *env)
{
    flat *f = env;
    char name[64], path[PATH_MAX];
    const int32_t label = tp__image_set_label(X, line);
    f->number++;
    if (label < 0)
        return tp__fail(X,
                        LIST_NAME ", line %lld: "
                                  "no class is called '%s'",
                        (long long)f->number, line);
    snprintf(name, sizeof name, "ILSVRC2012_val_%08lld.JPEG", (long long)f->number);
    tp__join(path, sizeof path, f->folder, name);
    return !tp__is_file(X, path) || tp__image_set_item(X, tp__image_set_text(X, path), 0, label);
}

static void read_flat(tp_image_set *X, const char *train, const char *valid, const char *list)
{
    flat f = { .folder = valid };
    if (tp__is_folder(X, train)) read_classes(X, train);
    if (X->classes == 0 && tp__each_line(X, list, tp__class_line, NULL)) tp__image_set_sort(X);
    tp__each_line(X, list, flat_line, &f);
}

static void read_imagenet(tp_image_set *X, const char *folder, tp_part part)
{
    char train[PATH_MAX], valid[PATH_MAX], list[PATH_MAX];
    char **names;
    tp__join(train, sizeof train, folder, "train");
    tp__join(valid, sizeof valid, folder, "val");
    tp__join(list, sizeof list, folder, LIST_NAME);
    if (part == TP_TRAIN) {
        read_tree(X, (tree){ train, train, "train/", ALL });
        return;
    }
    const int n = tp__entries(X, valid, true, &names); /* a folder for each class? */
    if (n >= 0) tp__names_free(names, n);
    if (n > 0)
        read_tree(X, (tree){ tp__is_folder(X, train) ? train : valid, valid, "val/", ALL });
    else if (tp__is_file(X, list))
        read_flat(X, train, valid, list);
    else
        tp__fail(X, "%s has no folders of classes, and %s is missing beside it", valid, LIST_NAME);
}

/* Are there folders, all named like ImageNet's classes (n01440764)? */
static bool has_wnids(tp_image_set *X, const char *folder)
{
    char **names;
    const int n = tp__entries(X, folder, true, &names);
    bool all = n > 0;
    for (int i = 0; i < n; i++)
        all = all && strlen(names[i]) == 9 && names[i][0] == 'n' &&
              strspn(names[i] + 1, "0123456789") == 8;
    if (n >= 0) tp__names_free(names, n);
    return all;
}

static bool is_imagenet(tp_image_set *X, const char *folder)
{
    char valid[PATH_MAX];
    if (tp__has(X, folder, LIST_NAME)) return true;
    return !tp__has(X, folder, "train") &&
           has_wnids(X, tp__join(valid, sizeof valid, folder, "val"));
}

const tp_layout_kind tp__layout_imagenet = { .read = read_imagenet,
                                             .seen = is_imagenet,
                                             .rank = 6 };
