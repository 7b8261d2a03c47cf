/* test_pictures.c - every layout of labelled pictures on small sets made here, and what is wrong
 * with others; batches: the same whatever the number of threads, continued anywhere, broken
 * pictures. */
#include <archive.h>
#include <archive_entry.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tapegrad/pictures.h>

#include "support_folder.h"

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "wb");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", name);
}

/* A picture of one colour, which tells pictures apart. */
static void write_picture(const char *name, int colour)
{
    tp_image p = { 0 };
    cr_assert(tp_image_new(&p, 40, 36));
    memset(p.rgb, colour, (size_t)(40 * 36 * 3));
    cr_assert(tp_image_write(&p, in_folder(name)), "%s", p.why);
    tp_image_free(&p);
}

static void make(const char *name)
{
    cr_assert(mkdir(in_folder(name), 0755) == 0, "%s", name);
}

/* NAME/cat and NAME/dog with n pictures each. */
static void make_classes(const char *name, int n, int colour)
{
    static const char *const classes[] = { "cat", "dog" };
    char path[128];
    make(name);
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%s/%s", name, classes[k]);
        make(path);
        for (int i = 0; i < n; i++) {
            snprintf(path, sizeof path, "%s/%s/%02d.png", name, classes[k], i);
            write_picture(path, colour + 10 * i + k);
        }
    }
}

static tp_pictures *open_set(const char *name, tp_layout layout, tp_part part)
{
    return tp_pictures_open(in_folder(name), layout, part);
}

static void expect_set(const char *name, tp_layout layout, tp_part part, tp_layout seen,
                       int64_t count, int classes, const char *first, const char *last)
{
    tp_pictures *X = open_set(name, layout, part);
    cr_assert(tp_pictures_ok(X), "%s: %s", name, tp_pictures_why(X));
    cr_expect_eq(tp_pictures_layout(X), seen, "%s: %s", name,
                 tp_layout_name(tp_pictures_layout(X)));
    cr_expect_eq(tp_pictures_count(X), count, "%s: %lld pictures", name,
                 (long long)tp_pictures_count(X));
    cr_expect_eq(tp_pictures_classes(X), classes, "%s: %d classes", name, tp_pictures_classes(X));
    cr_expect_str_eq(tp_pictures_class(X, tp_pictures_label(X, 0)), first, "%s", name);
    cr_expect_str_eq(tp_pictures_class(X, tp_pictures_label(X, count - 1)), last, "%s", name);
    tp_pictures_close(X);
}

static void expect_why(const char *name, tp_layout layout, tp_part part, const char *why)
{
    tp_pictures *X = open_set(name, layout, part);
    cr_expect(strstr(tp_pictures_why(X), why), "%s: '%s' has no '%s'", name, tp_pictures_why(X),
              why);
    tp_pictures_close(X);
}

TestSuite(pictures, .init = make_folder, .fini = remove_folder);

/* ---- layouts ---- */

Test(pictures, folders)
{
    make_classes("plain", 12, 0);
    expect_set("plain", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_FOLDER, 22, 2, "cat", "dog");
    expect_set("plain", TP_LAYOUT_AUTO, TP_VALID, TP_LAYOUT_FOLDER, 2, 2, "cat", "dog");
    make("split");
    make_classes("split/train", 3, 0);
    make_classes("split/valid", 2, 100);
    expect_set("split", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_FOLDER, 6, 2, "cat", "dog");
    expect_set("split", TP_LAYOUT_AUTO, TP_TEST, TP_LAYOUT_FOLDER, 4, 2, "cat", "dog");
    make("split/valid/horse");
    write_picture("split/valid/horse/a.png", 3);
    expect_why("split", TP_LAYOUT_AUTO, TP_VALID, "have no class 'horse'");
}

Test(pictures, imagenet)
{
    make("in");
    make_classes("in/train", 2, 0);
    make("in/val");
    write_picture("in/val/ILSVRC2012_val_00000001.JPEG", 1);
    write_picture("in/val/ILSVRC2012_val_00000003.JPEG", 2);
    write_text("in/imagenet_2012_validation_synset_labels.txt", "dog\ncat\ncat\n");
    expect_set("in", TP_LAYOUT_AUTO, TP_VALID, TP_LAYOUT_IMAGENET, 2, 2, "dog", "cat");
    expect_set("in", TP_LAYOUT_IMAGENET, TP_TRAIN, TP_LAYOUT_IMAGENET, 4, 2, "cat", "dog");
    write_text("in/imagenet_2012_validation_synset_labels.txt", "dog\nwolf\n");
    expect_why("in", TP_LAYOUT_AUTO, TP_VALID, "line 2: no class is called 'wolf'");
}

Test(pictures, ip102)
{
    make("ip");
    make("ip/images");
    write_text("ip/train.txt", "00001.jpg 0\n00002.jpg 101\n");
    write_text("ip/test.txt", "00003.jpg 5\r\n");
    expect_set("ip", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_IP102, 2, 102, "class 0", "class 101");
    write_text("ip/classes.txt", "1     rice leaf roller   \n2 paddy stem maggot\n");
    expect_why("ip", TP_LAYOUT_AUTO, TP_TRAIN, "'00002.jpg 101' is not a file and a label from 0");
    write_text("ip/train.txt", "00001.jpg 0\n00002.jpg 1\n");
    expect_set("ip", TP_LAYOUT_IP102, TP_TRAIN, TP_LAYOUT_IP102, 2, 2, "rice leaf roller",
               "paddy stem maggot");
}

Test(pictures, food101)
{
    make("food");
    make("food/meta");
    make("food/images");
    write_text("food/meta/classes.txt", "cheesecake\ncheese_plate\nbeignets\n");
    write_text("food/meta/train.txt", "cheese_plate/7\nbeignets/1\n");
    write_text("food/meta/test.txt", "waffles/1\n");
    expect_set("food", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_FOOD101, 2, 3, "cheese_plate",
               "beignets");
    tp_pictures *X = open_set("food", TP_LAYOUT_FOOD101, TP_TRAIN);
    char buf[256];
    cr_expect_eq(tp_pictures_label(X, 0), 1, "labels are places among the sorted names");
    cr_expect(strstr(tp_pictures_name(X, 0, buf, sizeof buf), "images/cheese_plate/7.jpg"), "%s",
              buf);
    tp_pictures_close(X);
    expect_why("food", TP_LAYOUT_AUTO, TP_TEST, "'waffles/1.jpg' is not in a class");
    write_text("food/meta/classes.txt", "\r\n");
    expect_why("food", TP_LAYOUT_AUTO, TP_TRAIN, "'cheese_plate/7.jpg' is not in a class");
}

Test(pictures, mini_imagenet)
{
    char row[64], buf[256];
    make("mini");
    FILE *f = fopen(in_folder("mini/train.csv"), "wb");
    fputs("filename,label\n", f);
    for (int i = 0; i < 600; i++) {
        snprintf(row, sizeof row, "b%03d.jpg,n02\n", i);
        fputs(row, f);
    }
    fclose(f);
    f = fopen(in_folder("mini/val.csv"), "wb");
    fputs("filename,label\n", f);
    for (int i = 0; i < 600; i++) {
        snprintf(row, sizeof row, "a%03d.jpg,n01\n", i);
        fputs(row, f);
    }
    fclose(f);
    write_text("mini/test.csv", "filename,label\n");
    expect_set("mini", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_MINI_IMAGENET, 960, 2, "n01", "n02");
    expect_set("mini", TP_LAYOUT_AUTO, TP_TEST, TP_LAYOUT_MINI_IMAGENET, 240, 2, "n01", "n02");
    tp_pictures *X = open_set("mini", TP_LAYOUT_AUTO, TP_TRAIN);
    cr_expect(strstr(tp_pictures_name(X, 0, buf, sizeof buf), "images/a446.jpg"), "%s", buf);
    cr_expect(strstr(tp_pictures_name(X, 481, buf, sizeof buf), "images/b404.jpg"), "%s", buf);
    tp_pictures_close(X);
    write_text("mini/test.csv", "filename,label\nc.jpg,n01\n");
    expect_why("mini", TP_LAYOUT_AUTO, TP_TRAIN, "class n01 has 601 pictures");
    write_text("mini/new_train.csv", ",filename,label\n0,x.jpg,n07\n1,y.jpg,n03\n");
    expect_set("mini", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_MINI_IMAGENET, 2, 2, "n07", "n03");
}

/* A picture whose pixels count up. */
static void write_records(const char *name, const int *label, int n)
{
    uint8_t record[3073];
    FILE *f = fopen(in_folder(name), "wb");
    for (int i = 0; i < n; i++) {
        record[0] = (uint8_t)label[i];
        for (int k = 1; k < 3073; k++) record[k] = (uint8_t)((k - 1) / 1024 * 50 + i);
        cr_assert(fwrite(record, sizeof record, 1, f) == 1);
    }
    fclose(f);
}

Test(pictures, cifar10)
{
    tp_augment a;
    tp_augment_work w = { 0 };
    static float x[32 * 32 * 3];
    make("cifar");
    write_text("cifar/batches.meta.txt", "airplane\nbird\ncat\n\n");
    write_records("cifar/data_batch_1.bin", (int[]){ 2, 0 }, 2);
    write_records("cifar/test_batch.bin", (int[]){ 1 }, 1);
    expect_set("cifar", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_CIFAR10, 2, 3, "cat", "airplane");
    tp_pictures *X = open_set("cifar", TP_LAYOUT_AUTO, TP_TRAIN);
    cr_assert(tp_augment_recipe(&a, "none", 32));
    cr_assert(tp_pictures_prepare(X, 1, &a, &w, (tp_example){ 0 }, x), "%s", w.why);
    for (int c = 0; c < 3; c++)
        cr_expect_float_eq(
            x[c], ((double)(50 * c + 1) / 255 - (double)a.mean[c]) / (double)a.std[c], 1e-5);
    tp_pictures_close(X);
    write_records("cifar/test_batch.bin", (int[]){ 3 }, 1);
    expect_why("cifar", TP_LAYOUT_AUTO, TP_TEST, "record 0 has the label 3; there are 3 classes");
    tp_augment_work_free(&w);
}

static void add_entry(struct archive *a, const char *name, const void *bytes, size_t n)
{
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, name);
    archive_entry_set_size(e, (la_int64_t)n);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, 0644);
    cr_assert(archive_write_header(a, e) == ARCHIVE_OK);
    cr_assert(archive_write_data(a, bytes, n) == (la_ssize_t)n);
    archive_entry_free(e);
}

static size_t read_bytes(const char *name, uint8_t *to, size_t size)
{
    FILE *f = fopen(in_folder(name), "rb");
    const size_t n = fread(to, 1, size, f);
    fclose(f);
    return n;
}

Test(pictures, shards)
{
    static uint8_t bytes[1 << 16];
    static float x[16 * 16 * 3];
    tp_augment a;
    tp_augment_work w = { 0 };
    make("shards");
    struct archive *t = archive_write_new();
    archive_write_set_format_pax_restricted(t);
    cr_assert(archive_write_open_filename(t, in_folder("shards/s-000.tar")) == ARCHIVE_OK);
    for (int i = 0; i < 3; i++) {
        char name[160];
        write_picture("one.png", 60 * i);
        const size_t n = read_bytes("one.png", bytes, sizeof bytes);
        snprintf(name, sizeof name, "%0*d.png", i == 1 ? 130 : 6, i); /* a long name: pax header */
        add_entry(t, name, bytes, n);
        snprintf(name + strlen(name) - 3, 4, "cls");
        add_entry(t, name, i ? "4" : "1", 1);
    }
    archive_write_free(t);
    expect_set("shards", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_SHARDS, 3, 5, "class 1", "class 4");
    tp_pictures *X = open_set("shards", TP_LAYOUT_AUTO, TP_TRAIN);
    cr_assert(tp_augment_recipe(&a, "none", 16));
    for (int i = 2; i >= 0; i--) {
        cr_assert(tp_pictures_prepare(X, i, &a, &w, (tp_example){ 0 }, x), "%s", w.why);
        cr_expect_float_eq(x[0], (60 * i / 255.0 - (double)a.mean[0]) / (double)a.std[0], 1e-5);
    }
    cr_assert(truncate(in_folder("shards/s-000.tar"), 4096) == 0);
    cr_expect_not(tp_pictures_prepare(X, 2, &a, &w, (tp_example){ 0 }, x));
    tp_pictures_close(X);
    tp_augment_work_free(&w);
}

/* A label that is missing, no number, or cut off with the file. */
Test(pictures, broken_shards)
{
    static const struct {
        const char *label, *why;
        long cut;
    } cases[] = {
        { NULL, "the picture '0' has no label: that is a number in a file 0.cls", 0 },
        { "dog", "the picture '0' has no label", 0 },
        { "1", "s.tar is damaged or cut off: ", 700 },
    };
    uint8_t bytes[1 << 12];
    make("shards");
    write_picture("one.png", 9);
    const size_t n = read_bytes("one.png", bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *label = cases[i].label;
        struct archive *t = archive_write_new();
        archive_write_set_format_pax_restricted(t);
        cr_assert(archive_write_open_filename(t, in_folder("shards/s.tar")) == ARCHIVE_OK);
        add_entry(t, "0.png", bytes, n);
        if (label) add_entry(t, "0.cls", label, strlen(label));
        add_entry(t, "1.png", bytes, n);
        add_entry(t, "1.cls", "1", 1);
        archive_write_free(t);
        if (cases[i].cut) cr_assert(truncate(in_folder("shards/s.tar"), cases[i].cut) == 0);
        expect_why("shards", TP_LAYOUT_AUTO, TP_TRAIN, cases[i].why);
    }
}

Test(pictures, says_what_is_wrong)
{
    make("empty");
    expect_why("empty", TP_LAYOUT_AUTO, TP_TRAIN, "no pictures (.jpg, .jpeg, .png) were found");
    make("one");
    make("one/cat");
    write_picture("one/cat/a.png", 1);
    expect_why("one", TP_LAYOUT_AUTO, TP_TRAIN, "all pictures are of one class, 'cat'");
    make_classes("plain", 2, 0);
    write_text("plain/train.txt", "x.jpg 0\n");
    expect_why("plain", TP_LAYOUT_CIFAR10, TP_TRAIN, "it looks like the layout 'ip102'");
    expect_why("nowhere", TP_LAYOUT_AUTO, TP_TRAIN, "No such file");
    expect_why("plain/train.txt", TP_LAYOUT_AUTO, TP_TRAIN, "is a file; a folder of pictures");
    make("flat");
    write_picture("flat/a.png", 1);
    expect_why("flat", TP_LAYOUT_AUTO, TP_TRAIN, "it has pictures itself, which belong in");
    make("deep");
    make("deep/set");
    make_classes("deep/set/train", 2, 0);
    expect_why("deep", TP_LAYOUT_AUTO, TP_TRAIN, "but 'set' in it looks like the layout 'folder'");
    tp_layout l;
    cr_expect(tp_layout_find("food101", &l) && l == TP_LAYOUT_FOOD101);
    cr_expect_not(tp_layout_find("food", &l));
}

/* ---- batches ---- */

enum { SIZE = 16, PIXELS = SIZE * SIZE * 3 };

typedef struct trace {
    int64_t n, epoch[40], step[40], index[200];
    double sum;
    int bad;
    char name[256];
} trace;

static void note_bad(void *env, const char *name, const char *why)
{
    trace *t = env;
    (void)why;
    t->bad++;
    snprintf(t->name, sizeof t->name, "%s", name);
}

/* Runs `steps` batches (0: to the end) from (epoch, step). */
static trace run(const tp_pictures *X, tp_loader_opts o, int64_t epoch, int64_t step, int steps)
{
    trace t = { 0 };
    tp_augment a;
    tp_batch b;
    cr_assert(tp_augment_recipe(&a, o.train ? "lsla" : "eval", SIZE));
    o.augment = &a;
    o.bad = note_bad;
    o.env = &t;
    tp_loader *L = tp_loader_new(X, &o);
    cr_assert(tp_loader_ok(L), "%s", tp_loader_why(L));
    if (epoch || step) tp_loader_seek(L, epoch, step);
    for (int i = 0; (steps == 0 || i < steps) && tp_loader_next(L, &b); i++) {
        t.epoch[i] = b.epoch;
        t.step[i] = b.step;
        for (int64_t k = 0; k < b.n; k++) {
            t.index[t.n++] = b.index[k];
            for (int64_t e = 0; e < PIXELS; e++)
                t.sum += (double)(1 + (t.n + e) % 7) * (double)b.x[k * PIXELS + e];
            for (int c = 0; c < tp_pictures_classes(X); c++)
                t.sum += c * (double)b.target[k * tp_pictures_classes(X) + c];
        }
    }
    cr_expect(tp_loader_ok(L) || o.strict, "%s", tp_loader_why(L));
    cr_expect_eq(tp_loader_skipped(L), t.bad);
    tp_loader_free(L);
    return t;
}

Test(pictures, batches_do_not_depend_on_threads)
{
    make_classes("plain", 11, 0);
    tp_pictures *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    tp_loader_opts o = { .batch = 4, .train = true, .seed = 3, .threads = 1, .ahead = 1 };
    const trace a = run(X, o, 0, 0, 13);
    o.threads = 3;
    o.ahead = 5;
    const trace b = run(X, o, 0, 0, 13);
    cr_expect_eq(a.n, 52);
    cr_expect_eq(a.epoch[12], 2, "five batches an epoch, the rest is dropped");
    cr_expect(memcmp(a.index, b.index, sizeof a.index) == 0);
    cr_expect_eq(a.sum, b.sum);
    const trace c = run(X, o, 1, 2, 6); /* batch 7 of all */
    cr_expect(memcmp(c.index, a.index + 28, 24 * sizeof *c.index) == 0);
    cr_expect(memcmp(a.index, a.index + 20, 20 * sizeof *a.index) != 0, "shuffled anew");
    tp_pictures_close(X);
}

/* Going where it stands keeps what was prepared; feeding finds any batch. */
Test(pictures, batches_are_fed_in_any_order)
{
    tp_augment a;
    make_classes("plain", 11, 0);
    cr_assert(tp_augment_recipe(&a, "small", SIZE));
    tp_pictures *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    const tp_loader_opts o = { .augment = &a, .batch = 4, .train = true, .seed = 3 };
    tp_loader *L = tp_loader_new(X, &o), *M = tp_loader_new(X, &o);
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor slot[2] = { TP_NONE, TP_NONE };
    static const int order[] = { 0, 1, 2, 3, 4, 5, 6, 11, 12, 3, 4, 0 };
    for (int i = 0; i < 12; i++) {
        float x[4 * PIXELS], y[4 * 2];
        tp_batch b;
        const int64_t epoch = order[i] / 5, step = order[i] % 5;
        tp_loader_seek(M, epoch, step);
        cr_assert(tp_loader_next(M, &b) && b.epoch == epoch && b.step == step, "%d", i);
        cr_assert_eq(tp_loader_feed(L, T, epoch, step, slot), 4, "%s", tp_why(T));
        cr_assert(tp_read(T, slot[0], x, sizeof x) && tp_read(T, slot[1], y, sizeof y));
        cr_expect(memcmp(x, b.x, sizeof x) == 0 && memcmp(y, b.target, sizeof y) == 0, "%d", i);
    }
    tp_loader_free(L);
    tp_loader_free(M);
    L = tp_loader_new(X, &(tp_loader_opts){ .augment = &a, .batch = 16 });
    cr_expect_eq(tp_loader_feed(L, T, 0, 0, slot), 16);
    cr_expect_eq(tp_loader_feed(L, T, 0, 1, slot), 4);
    cr_expect_eq(tp_loader_feed(L, T, 0, 2, slot), 0);
    cr_expect(tp_ok(T), "the end is no error");
    tp_loader_free(L);
    L = tp_loader_new(X, &(tp_loader_opts){ .augment = &a, .batch = 64, .train = true });
    cr_expect_eq(tp_loader_feed(L, T, 0, 0, slot), 0);
    cr_expect(strstr(tp_why(T), "do not fill a batch of 64"), "%s", tp_why(T));
    tp_loader_free(L);
    tp_tape_free(T);
    tp_device_close(D);
    tp_pictures_close(X);
}

Test(pictures, the_hash_tells_sets_apart)
{
    make_classes("plain", 11, 0);
    make_classes("same", 11, 50);
    tp_pictures *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    tp_pictures *Y = open_set("same", TP_LAYOUT_AUTO, TP_TRAIN);
    tp_pictures *Z = open_set("plain", TP_LAYOUT_AUTO, TP_VALID);
    cr_expect_eq(tp_pictures_hash(X), tp_pictures_hash(Y), "whatever the folder is called");
    cr_expect_neq(tp_pictures_hash(X), tp_pictures_hash(Z));
    tp_pictures_close(X);
    tp_pictures_close(Y);
    tp_pictures_close(Z);
}

Test(pictures, shapes_are_always_the_same)
{
    float a[3][PIXELS], b[PIXELS];
    tp_augment none;
    tp_augment_work w = { 0 };
    cr_assert(tp_augment_recipe(&none, "none", SIZE));
    tp_pictures *X = tp_pictures_shapes(25, SIZE, TP_TRAIN);
    tp_pictures *Y = tp_pictures_shapes(30, SIZE, TP_TRAIN);
    tp_pictures *Z = tp_pictures_shapes(25, SIZE, TP_VALID);
    cr_assert(tp_pictures_count(X) == 25 && tp_pictures_classes(X) == 10);
    cr_expect_eq(tp_pictures_label(X, 13), 3);
    cr_expect_str_eq(tp_pictures_class(X, 3), "triangle");
    cr_assert(tp_pictures_prepare(X, 13, &none, &w, (tp_example){ 0 }, a[0]), "%s", w.why);
    cr_assert(tp_pictures_prepare(X, 3, &none, &w, (tp_example){ 0 }, a[1]), "%s", w.why);
    cr_assert(tp_pictures_prepare(Z, 13, &none, &w, (tp_example){ 0 }, a[2]), "%s", w.why);
    cr_assert(tp_pictures_prepare(Y, 13, &none, &w, (tp_example){ 0 }, b), "%s", w.why);
    cr_expect(memcmp(a[0], b, sizeof b) == 0);
    cr_expect(memcmp(a[0], a[1], sizeof b) != 0 && memcmp(a[0], a[2], sizeof b) != 0);
    tp_augment_work_free(&w);
    tp_pictures_close(X);
    tp_pictures_close(Y);
    tp_pictures_close(Z);
    X = tp_pictures_shapes(0, SIZE, TP_TRAIN);
    cr_expect_not(tp_pictures_ok(X));
    tp_pictures_close(X);
}

Test(pictures, evaluation_ends)
{
    make_classes("plain", 11, 0);
    tp_pictures *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    const trace t = run(X, (tp_loader_opts){ .batch = 8 }, 0, 0, 0);
    cr_expect_eq(t.n, 20);
    for (int i = 0; i < 20; i++) cr_expect_eq(t.index[i], i);
    tp_pictures_close(X);
}

Test(pictures, repeated_augmentation)
{
    make_classes("plain", 11, 0);
    tp_pictures *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    const trace t = run(X, (tp_loader_opts){ .batch = 20, .train = true, .repeats = 3 }, 0, 0, 1);
    for (int i = 0; i < 20; i++) cr_expect_eq(t.index[i], t.index[i / 3 * 3], "place %d", i);
    tp_pictures_close(X);
}

Test(pictures, broken_pictures_are_named_once)
{
    make_classes("plain", 11, 0);
    write_text("plain/cat/03.png", "no picture");
    tp_pictures *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    trace t = run(X, (tp_loader_opts){ .batch = 4, .train = true }, 0, 0, 15);
    cr_expect_eq(t.n, 60, "another picture takes its place");
    cr_expect_eq(t.bad, 1);
    cr_expect(strstr(t.name, "plain/cat/03.png"), "%s", t.name);
    t = run(X, (tp_loader_opts){ .batch = 8 }, 0, 0, 0);
    cr_expect_eq(t.n, 19, "it is left out");
    tp_augment a;
    tp_batch b;
    cr_assert(tp_augment_recipe(&a, "eval", SIZE));
    tp_loader *L =
        tp_loader_new(X, &(tp_loader_opts){ .augment = &a, .batch = 20, .strict = true });
    cr_expect_not(tp_loader_next(L, &b));
    cr_expect(strstr(tp_loader_why(L), "plain/cat/03.png: "), "%s", tp_loader_why(L));
    tp_loader_free(L);
    L = tp_loader_new(X, &(tp_loader_opts){ .augment = &a, .batch = 64, .train = true });
    cr_expect(strstr(tp_loader_why(L), "do not fill a batch of 64"), "%s", tp_loader_why(L));
    tp_loader_free(L);
    tp_pictures_close(X);
}

/* Training ends with a message instead of looking for a picture for ever. */
Test(pictures, all_are_broken)
{
    char path[64];
    make_classes("plain", 3, 0);
    for (int k = 0; k < 6; k++) {
        snprintf(path, sizeof path, "plain/%s/%02d.png", k % 2 ? "cat" : "dog", k / 2);
        write_text(path, "no picture");
    }
    tp_pictures *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    trace t = { 0 };
    tp_augment a;
    tp_batch b;
    cr_assert(tp_augment_recipe(&a, "eval", SIZE));
    tp_loader *L = tp_loader_new(
        X,
        &(tp_loader_opts){ .augment = &a, .batch = 2, .train = true, .bad = note_bad, .env = &t });
    cr_expect_not(tp_loader_next(L, &b));
    cr_expect_str_eq(tp_loader_why(L), "none of the 6 pictures could be read");
    cr_expect_eq(t.bad, 6);
    cr_expect_not(tp_loader_next(L, &b), "nor ever after");
    tp_loader_free(L);
    tp_pictures_close(X);
}

static void draw(void *env, int64_t i, tp_image *p)
{
    (void)env;
    if (tp_image_new(p, 20, 20)) memset(p->rgb, (int)(10 * i), 20 * 20 * 3);
}

Test(pictures, drawn)
{
    static const char *const names[] = { "dark", "light" };
    static const int32_t label[] = { 0, 0, 1, 1 };
    tp_pictures *X = tp_pictures_from(&(tp_picture_source){
        .count = 4, .classes = 2, .names = names, .label = label, .draw = draw });
    const trace t = run(X, (tp_loader_opts){ .batch = 2, .train = true }, 0, 0, 4);
    cr_expect_eq(t.n, 8);
    cr_expect_str_eq(tp_pictures_class(X, 1), "light");
    tp_pictures_close(X);
}
