/* set_folders.c - layouts whose folders name the classes, and CIFAR-10's binary files. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "set.h"

enum { HELD_OUT = 10 }; /* every tenth image is for validation if the set has no validation part */

typedef enum which { ALL, TRAINING, VALIDATION } which;

/* Adds the images of FOLDER/CLASS: all, or those for training or validation. */
static void read_class(tp_image_set *X, const char *folder, const char *name, which w)
{
    char path[PATH_MAX], file[PATH_MAX];
    char **names;
    const int32_t label = tp__image_set_label(X, name);
    const int n = tp__entries(X, tp__join(path, sizeof path, folder, name), false, &names);
    if (label < 0) {
        tp__image_set_fail(X, "%s: the training images have no class '%s'", path, name);
    } else if (n < 0) {
        tp__image_set_fail(X, "%s: the folder was removed while the set was read", path);
    } else {
        int64_t seen = 0;
        for (int i = 0; i < n; i++) {
            if (!tp__is_image(names[i])) continue;
            const bool held = seen++ % HELD_OUT == HELD_OUT - 1;
            if (w != ALL && held != (w == VALIDATION)) continue;
            tp__image_set_item(
                X, tp__image_set_text(X, tp__join(file, sizeof file, path, names[i])), 0, label);
        }
    }
    if (n >= 0) tp__entries_free(names, n);
}

/* Takes the classes from the folders in `classes`, the images from those in `folder`. */
static void read_tree(tp_image_set *X, const char *classes, const char *folder, which w)
{
    char **names;
    int n = tp__entries(X, classes, true, &names);
    for (int i = 0; i < n; i++) tp__image_set_class(X, names[i]);
    if (n >= 0) tp__entries_free(names, n);
    n = tp__entries(X, folder, true, &names);
    for (int i = 0; i < n && !X->why[0]; i++) read_class(X, folder, names[i], w);
    if (n >= 0) tp__entries_free(names, n);
}

/* Writes FOLDER/train and the folder for validation; false if there is no such pair. */
static bool parts_of(tp_image_set *X, const char *folder, char *train, char *valid)
{
    static const char *const names[] = { "val", "valid", "validation", "test" };
    if (!tp__is_folder(X, tp__join(train, PATH_MAX, folder, "train"))) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tp__is_folder(X, tp__join(valid, PATH_MAX, folder, names[i]))) return true;
    return false;
}

void tp__read_folder(tp_image_set *X, const char *folder, tp_part part)
{
    char train[PATH_MAX], valid[PATH_MAX];
    if (parts_of(X, folder, train, valid))
        read_tree(X, train, part == TP_TRAIN ? train : valid, ALL);
    else if (tp__is_folder(X, train))
        read_tree(X, train, train, part == TP_TRAIN ? TRAINING : VALIDATION);
    else
        read_tree(X, folder, folder, part == TP_TRAIN ? TRAINING : VALIDATION);
}

void tp__read_test(tp_image_set *X, const char *folder, tp_part part)
{
    if (part == TP_TRAIN)
        tp__image_set_fail(X, "%s: the layout 'test' has no images for training", folder);
    else
        read_tree(X, folder, folder, ALL);
}

/* ---- ImageNet ---- */

typedef struct flat {
    const char *folder;
    int64_t number; /* of the image, from 1 */
} flat;

static bool flat_class(tp_image_set *X, char *line, void *env)
{
    (void)env;
    return tp__image_set_class(X, line);
}

static bool flat_line(tp_image_set *X, char *line, void *env)
{
    flat *f = env;
    char name[64], path[PATH_MAX];
    const int32_t label = tp__image_set_label(X, line);
    f->number++;
    if (label < 0)
        return tp__image_set_fail(X,
                                  "imagenet_2012_validation_synset_labels.txt, line %lld: "
                                  "no class is called '%s'",
                                  (long long)f->number, line);
    snprintf(name, sizeof name, "ILSVRC2012_val_%08lld.JPEG", (long long)f->number);
    tp__join(path, sizeof path, f->folder, name);
    return !tp__is_file(X, path) || tp__image_set_item(X, tp__image_set_text(X, path), 0, label);
}

/* Sorts the classes and drops duplicates: a list of labels names each class many times. */
static void unique_classes(tp_image_set *X)
{
    int n = 0;
    for (int i = 0; i < X->classes; i++) { /* insertion: at most a thousand remain */
        const size_t at = X->class_at[i];
        int k = n;
        while (k > 0 && strcmp(X->text + X->class_at[k - 1], X->text + at) > 0) k--;
        if (k > 0 && strcmp(X->text + X->class_at[k - 1], X->text + at) == 0) continue;
        memmove(X->class_at + k + 1, X->class_at + k, (size_t)(n - k) * sizeof *X->class_at);
        X->class_at[k] = at;
        n++;
    }
    X->classes = n;
}

static void read_flat(tp_image_set *X, const char *train, const char *valid, const char *list)
{
    flat f = { .folder = valid };
    char **names;
    const int n = tp__entries(X, train, true, &names);
    for (int i = 0; i < n; i++) tp__image_set_class(X, names[i]);
    if (n >= 0) tp__entries_free(names, n);
    if (X->classes == 0 && tp__each_line(X, list, flat_class, NULL)) unique_classes(X);
    tp__each_line(X, list, flat_line, &f);
}

void tp__read_imagenet(tp_image_set *X, const char *folder, tp_part part)
{
    static const char list_name[] = "imagenet_2012_validation_synset_labels.txt";
    char train[PATH_MAX], valid[PATH_MAX], list[PATH_MAX];
    char **names;
    tp__join(train, sizeof train, folder, "train");
    tp__join(valid, sizeof valid, folder, "val");
    tp__join(list, sizeof list, folder, list_name);
    if (part == TP_TRAIN) {
        read_tree(X, train, train, ALL);
        return;
    }
    const int n = tp__entries(X, valid, true, &names); /* is there a folder for each class? */
    if (n >= 0) tp__entries_free(names, n);
    if (n > 0)
        read_tree(X, tp__is_folder(X, train) ? train : valid, valid, ALL);
    else if (tp__is_file(X, list))
        read_flat(X, train, valid, list);
    else
        tp__image_set_fail(X, "%s has no folders of classes, and %s is missing beside it", valid,
                           list_name);
}

/* ---- CIFAR-10 ---- */

static bool cifar_class(tp_image_set *X, char *line, void *env)
{
    (void)env;
    return tp__image_set_class(X, line);
}

static void read_batch(tp_image_set *X, const char *path)
{
    enum { RECORD = 1 + 3 * 32 * 32 };
    int64_t bytes;
    char why[256];
    const int fd = tp__open_file(path, &bytes, why, sizeof why);
    if (fd < 0)
        tp__image_set_fail(X, "%s %s", path, why);
    else if (bytes % RECORD != 0)
        tp__image_set_fail(X, "%s is not made of records of %d bytes", path, RECORD);
    const size_t at = tp__image_set_text(X, path);
    for (int64_t i = 0; i < bytes / RECORD && !X->why[0]; i++) {
        uint8_t label;
        if (tp_file_bytes(fd, i * RECORD, &label, 1) != 1)
            tp__image_set_fail(X, "%s: record %lld cannot be read", path, (long long)i);
        else if (label >= X->classes)
            tp__image_set_fail(X, "%s: record %lld has the label %d; there are %d classes", path,
                               (long long)i, label, X->classes);
        else
            tp__image_set_item(X, at, i * RECORD, label);
    }
    if (fd >= 0) close(fd);
}

void tp__read_cifar10(tp_image_set *X, const char *folder, tp_part part)
{
    char below[PATH_MAX], path[PATH_MAX], name[32];
    tp__join(below, sizeof below, folder, "cifar-10-batches-bin");
    if (tp__is_folder(X, below)) folder = below;
    tp__each_line(X, tp__join(path, sizeof path, folder, "batches.meta.txt"), cifar_class, NULL);
    if (part != TP_TRAIN) read_batch(X, tp__join(path, sizeof path, folder, "test_batch.bin"));
    for (int i = 1; part == TP_TRAIN && i <= 5; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        if (tp__is_file(X, tp__join(path, sizeof path, folder, name))) read_batch(X, path);
    }
}
