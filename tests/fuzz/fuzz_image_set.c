/* fuzz_image_set.c - the input is one byte that names a layout, and the file that defines a set of
 * that layout: a tar shard, a list, a batch of CIFAR-10; or ReaL's labels.
 *
 * Besides memory safety the following must hold: a set that opens has images of at least two
 * classes, each with a label and a name, and the pixels that can be read are finite. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <tapegrad/image_set.h>
#include <tapegrad/test_sets.h>
#include <unistd.h>

enum { SIZE = 8, READ = 4, PIXELS = 1 << 14 };

static const struct {
    tp_layout layout;
    const char *file, *beside, *text; /* another file that the layout needs */
} layouts[] = {
    { TP_LAYOUT_SHARDS, "s.tar", NULL, NULL },
    { TP_LAYOUT_CIFAR10, "data_batch_1.bin", "batches.meta.txt", "a\nb\nc\n" },
    { TP_LAYOUT_IP102, "train.txt", "classes.txt", "1 a\n2 b\n3 c\n" },
    { TP_LAYOUT_IP102, "classes.txt", "train.txt", "x.jpg 0\ny.jpg 1\n" },
    { TP_LAYOUT_FOOD101, "meta/train.txt", "meta/classes.txt", "a\nb\nc\n" },
    { TP_LAYOUT_FOOD101, "meta/classes.txt", "meta/train.txt", "a/1\nb/2\n" },
    { TP_LAYOUT_MINIIMAGENET, "new_train.csv", NULL, NULL },
    { TP_LAYOUT_IMAGENET, "imagenet_2012_validation_synset_labels.txt", NULL, NULL },
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static char folder[64] = "";

static const char *in_folder(const char *name)
{
    return fuzz_in(folder, name);
}

static void empty_folder(void)
{
    for (int i = 0; i < LAYOUTS; i++) {
        unlink(in_folder(layouts[i].file));
        if (layouts[i].beside) unlink(in_folder(layouts[i].beside));
    }
}

static void remove_folder(void)
{
    empty_folder();
    rmdir(in_folder("images"));
    rmdir(in_folder("meta"));
    rmdir(in_folder("val"));
    rmdir(folder);
}

static void make_folder(void)
{
    if (folder[0]) return;
    fuzz_make_folder(folder);
    fuzz_demand(mkdir(in_folder("images"), 0700) == 0 && mkdir(in_folder("meta"), 0700) == 0 &&
                    mkdir(in_folder("val"), 0700) == 0,
                "folders can be made");
    atexit(remove_folder);
}

static void read_some(const tp_image_set *X)
{
    static float out[SIZE * SIZE * 3];
    char name[512];
    tp_augment a;
    tp_augment_work w = { 0 };
    fuzz_demand(tp_augment_recipe(&a, "none", SIZE), "a recipe");
    a.decode.max_pixels = PIXELS;
    for (int64_t i = 0; i < tp_image_set_count(X); i++) {
        const int32_t label = tp_image_set_label(X, i);
        fuzz_demand(label >= 0 && label < tp_image_set_classes(X), "labels are classes");
        fuzz_demand(tp_image_set_name(X, i, name, sizeof name)[0], "images have names");
        if (i >= READ) continue;
        const bool ok = tp_image_set_prepare(X, i, &a, &w, (tp_example){ 0 }, out);
        fuzz_demand(ok || w.why[0], "an image that cannot be read says why");
        for (int e = 0; ok && e < SIZE * SIZE * 3; e++)
            fuzz_demand(isfinite(out[e]), "pixels are numbers");
    }
    tp_augment_work_free(&w);
}

/* Every image has a range of labels, all valid classes. */
static void read_labels(const uint8_t *text, size_t n)
{
    tp_label_lists l = { 0 };
    const bool ok = tp_label_lists_parse(&l, "labels", (const char *)text, n, TP_IMAGENET_CLASSES);
    fuzz_demand_reason(ok, l.why);
    fuzz_demand(l.count == 0 || ok, "labels that cannot be read are none");
    for (int64_t i = 0; i < l.count; i++) {
        fuzz_demand(l.from[i] >= 0 && l.from[i] <= l.from[i + 1], "ranges are in order");
        for (int64_t k = l.from[i]; k < l.from[i + 1]; k++)
            fuzz_demand(l.label[k] >= 0 && l.label[k] < TP_IMAGENET_CLASSES, "labels are classes");
    }
    tp_label_lists_free(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size < 1) return 0;
    const int i = input[0] % (LAYOUTS + 1);
    if (i == LAYOUTS) {
        read_labels(input + 1, size - 1);
        return 0;
    }
    make_folder();
    if (layouts[i].beside) {
        size_t n = 0;
        while (layouts[i].text[n]) n++;
        fuzz_write(in_folder(layouts[i].beside), layouts[i].text, n);
    }
    fuzz_write(in_folder(layouts[i].file), input + 1, size - 1);
    const tp_part part = layouts[i].layout == TP_LAYOUT_IMAGENET ? TP_VALID : TP_TRAIN;
    tp_image_set *X = tp_image_set_open(folder, layouts[i].layout, part);
    fuzz_demand_reason(tp_image_set_ok(X), tp_image_set_why(X));
    if (tp_image_set_ok(X)) {
        fuzz_demand(tp_image_set_count(X) > 0 && tp_image_set_classes(X) > 1,
                    "a set holds something");
        read_some(X);
    }
    tp_image_set_close(X);
    empty_folder();
    return 0;
}
