/* test_image_set.c - every layout of labelled image sets, on small generated sets, and messages for
 * damaged sets. test_loader.c tests batches. */
#include <archive.h>
#include <archive_entry.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tapegrad/image_set.h>

#include "support/folder.h"
#include "support/image_sets.h"

static void expect_set(const char *name, tp_layout layout, tp_part part, tp_layout seen,
                       int64_t count, int classes, const char *first, const char *last)
{
    tp_image_set *X = open_set(name, layout, part);
    cr_assert(tp_image_set_ok(X), "%s: %s", name, tp_image_set_why(X));
    cr_expect_eq(tp_image_set_layout(X), seen, "%s: %s", name,
                 tp_layout_name(tp_image_set_layout(X)));
    cr_expect_eq(tp_image_set_count(X), count, "%s: %lld images", name,
                 (long long)tp_image_set_count(X));
    cr_expect_eq(tp_image_set_classes(X), classes, "%s: %d classes", name, tp_image_set_classes(X));
    cr_expect_str_eq(tp_image_set_class(X, tp_image_set_label(X, 0)), first, "%s", name);
    cr_expect_str_eq(tp_image_set_class(X, tp_image_set_label(X, count - 1)), last, "%s", name);
    tp_image_set_close(X);
}

static void expect_why(const char *name, tp_layout layout, tp_part part, const char *why)
{
    tp_image_set *X = open_set(name, layout, part);
    cr_expect(strstr(tp_image_set_why(X), why), "%s: '%s' has no '%s'", name, tp_image_set_why(X),
              why);
    tp_image_set_close(X);
}

TestSuite(images, .init = make_folder, .fini = remove_folder);

/* ---- layouts ---- */

Test(images, folders)
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
    write_image("split/valid/horse/a.png", 3);
    expect_why("split", TP_LAYOUT_AUTO, TP_VALID, "have no class 'horse'");
}

Test(images, imagenet)
{
    make("in");
    make_classes("in/train", 2, 0);
    make("in/val");
    write_image("in/val/ILSVRC2012_val_00000001.JPEG", 1);
    write_image("in/val/ILSVRC2012_val_00000003.JPEG", 2);
    write_text("in/imagenet_2012_validation_synset_labels.txt", "dog\ncat\ncat\n");
    expect_set("in", TP_LAYOUT_AUTO, TP_VALID, TP_LAYOUT_IMAGENET, 2, 2, "dog", "cat");
    expect_set("in", TP_LAYOUT_IMAGENET, TP_TRAIN, TP_LAYOUT_IMAGENET, 4, 2, "cat", "dog");
    write_text("in/imagenet_2012_validation_synset_labels.txt", "dog\nwolf\n");
    expect_why("in", TP_LAYOUT_AUTO, TP_VALID, "line 2: no class is called 'wolf'");

    make("held"); /* only validation images */
    make_classes("held/val", 2, 0);
    expect_why("held", TP_LAYOUT_AUTO, TP_VALID, "in the layout 'folder'");
    cr_assert(rename(in_folder("held/val/cat"), in_folder("held/val/n02124075")) == 0 &&
              rename(in_folder("held/val/dog"), in_folder("held/val/n02099601")) == 0);
    expect_set("held", TP_LAYOUT_AUTO, TP_VALID, TP_LAYOUT_IMAGENET, 4, 2, "n02099601",
               "n02124075");
}

Test(images, ip102)
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
    write_text("ip/train.txt", "00001.jpg 1\n00002.jpg \n");
    expect_why("ip", TP_LAYOUT_AUTO, TP_TRAIN, "'00002.jpg ' is not a file and a label from 0");
}

/* A test set: every image, also of one class, and none for training. */
Test(images, test_only)
{
    make_classes("all", 12, 0);
    expect_set("all", TP_LAYOUT_TEST, TP_VALID, TP_LAYOUT_TEST, 24, 2, "cat", "dog");
    expect_set("all", TP_LAYOUT_TEST, TP_TEST, TP_LAYOUT_TEST, 24, 2, "cat", "dog");
    expect_set("all", TP_LAYOUT_AUTO, TP_VALID, TP_LAYOUT_FOLDER, 2, 2, "cat", "dog");
    make("one");
    make("one/cat");
    write_image("one/cat/1.png", 9);
    tp_image_set *X = open_set("one", TP_LAYOUT_TEST, TP_VALID);
    cr_expect(tp_image_set_ok(X) && tp_image_set_classes(X) == 1, "%s", tp_image_set_why(X));
    tp_image_set_close(X);
    X = open_set("one", TP_LAYOUT_TEST, TP_TRAIN);
    cr_expect(strstr(tp_image_set_why(X), "the layout 'test' has no images for training"), "%s",
              tp_image_set_why(X));
    tp_image_set_close(X);
}

/* A thinned set keeps images at equal distances. */
Test(images, thinned)
{
    make("many");
    make_classes("many/train", 5, 0);
    make_classes("many/val", 10, 0);
    tp_image_set *X = open_set("many", TP_LAYOUT_AUTO, TP_VALID), *Y;
    char kept[256], whole[256];
    tp_image_set_thin(X, 0);
    tp_image_set_thin(X, 20);
    tp_image_set_thin(X, 21);
    cr_expect_eq(tp_image_set_count(X), 20);
    tp_image_set_thin(X, 8);
    Y = open_set("many", TP_LAYOUT_AUTO, TP_VALID);
    cr_expect_eq(tp_image_set_count(X), 8);
    for (int i = 0; i < 8; i++) {
        cr_expect_str_eq(tp_image_set_name(X, i, kept, sizeof kept),
                         tp_image_set_name(Y, i * 20 / 8, whole, sizeof whole));
        cr_expect_eq(tp_image_set_label(X, i), i / 4);
    }
    tp_image_set_close(X);
    tp_image_set_close(Y);
    X = tp_image_set_shapes(10, 8, TP_VALID);
    tp_image_set_thin(X, 4);
    cr_expect_eq(tp_image_set_count(X), 10, "drawn images stay");
    tp_image_set_close(X);
}

Test(images, food101)
{
    make("food");
    make("food/meta");
    make("food/images");
    write_text("food/meta/classes.txt", "cheesecake\ncheese_plate\nbeignets\n");
    write_text("food/meta/train.txt", "cheese_plate/7\nbeignets/1\n");
    write_text("food/meta/test.txt", "waffles/1\n");
    expect_set("food", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_FOOD101, 2, 3, "cheese_plate",
               "beignets");
    tp_image_set *X = open_set("food", TP_LAYOUT_FOOD101, TP_TRAIN);
    char buf[256];
    cr_expect_eq(tp_image_set_label(X, 0), 1, "labels are places among the sorted names");
    cr_expect(strstr(tp_image_set_name(X, 0, buf, sizeof buf), "images/cheese_plate/7.jpg"), "%s",
              buf);
    tp_image_set_close(X);
    expect_why("food", TP_LAYOUT_AUTO, TP_TEST, "'waffles/1.jpg' is not in a class");
    write_text("food/meta/classes.txt", "\r\n");
    expect_why("food", TP_LAYOUT_AUTO, TP_TRAIN, "'cheese_plate/7.jpg' is not in a class");
}

Test(images, mini_imagenet)
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
    expect_set("mini", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_MINIIMAGENET, 960, 2, "n01", "n02");
    expect_set("mini", TP_LAYOUT_AUTO, TP_TEST, TP_LAYOUT_MINIIMAGENET, 240, 2, "n01", "n02");
    tp_image_set *X = open_set("mini", TP_LAYOUT_AUTO, TP_TRAIN);
    cr_expect(strstr(tp_image_set_name(X, 0, buf, sizeof buf), "images/a446.jpg"), "%s", buf);
    cr_expect(strstr(tp_image_set_name(X, 481, buf, sizeof buf), "images/b404.jpg"), "%s", buf);
    tp_image_set_close(X);
    write_text("mini/test.csv", "filename,label\nc.jpg,n01\n");
    expect_why("mini", TP_LAYOUT_AUTO, TP_TRAIN, "class n01 has 601 images");
    write_text("mini/new_train.csv", ",filename,label\n0,x.jpg,n07\n1,y.jpg,n03\n");
    write_text("mini/new_val.csv", ",filename,label\n0,z.jpg,n07\n");
    expect_set("mini", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_MINIIMAGENET, 2, 2, "n07", "n03");
}

/* Writes records of images whose pixels count up. */
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

Test(images, cifar10)
{
    tp_augment a;
    tp_augment_work w = { 0 };
    static float x[32 * 32 * 3];
    make("cifar");
    write_text("cifar/batches.meta.txt", "airplane\nbird\ncat\n\n");
    write_records("cifar/data_batch_1.bin", (int[]){ 2, 0 }, 2);
    write_records("cifar/test_batch.bin", (int[]){ 1 }, 1);
    expect_set("cifar", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_CIFAR10, 2, 3, "cat", "airplane");
    tp_image_set *X = open_set("cifar", TP_LAYOUT_AUTO, TP_TRAIN);
    cr_assert(tp_augment_recipe(&a, "none", 32));
    cr_assert(tp_image_set_prepare(X, 1, &a, &w, (tp_example){ 0 }, x), "%s", w.why);
    for (int c = 0; c < 3; c++)
        cr_expect_float_eq(
            x[c], ((double)(50 * c + 1) / 255 - (double)a.mean[c]) / (double)a.std[c], 1e-5);
    tp_image_set_close(X);
    write_records("cifar/test_batch.bin", (int[]){ 3 }, 1);
    expect_why("cifar", TP_LAYOUT_AUTO, TP_TEST, "record 0 has the label 3; there are 3 classes");
    cr_assert(unlink(in_folder("cifar/test_batch.bin")) == 0);
    cr_assert(mkfifo(in_folder("cifar/test_batch.bin"), 0600) == 0);
    expect_why("cifar", TP_LAYOUT_AUTO, TP_TEST, "test_batch.bin is a pipe; a regular file is");
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

Test(images, shards)
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
        write_image("one.png", 60 * i);
        const size_t n = read_bytes("one.png", bytes, sizeof bytes);
        snprintf(name, sizeof name, "%0*d.png", i == 1 ? 130 : 6, i); /* pax header: a long name */
        add_entry(t, name, bytes, n);
        snprintf(name + strlen(name) - 3, 4, "cls");
        add_entry(t, name, i ? "4" : "1", 1);
    }
    archive_write_free(t);
    expect_set("shards", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_SHARDS, 3, 5, "class 1", "class 4");
    tp_image_set *X = open_set("shards", TP_LAYOUT_AUTO, TP_TRAIN);
    cr_assert(tp_augment_recipe(&a, "none", 16));
    for (int i = 2; i >= 0; i--) {
        cr_assert(tp_image_set_prepare(X, i, &a, &w, (tp_example){ 0 }, x), "%s", w.why);
        cr_expect_float_eq(x[0], (60 * i / 255.0 - (double)a.mean[0]) / (double)a.std[0], 1e-5);
    }
    cr_assert(truncate(in_folder("shards/s-000.tar"), 4096) == 0);
    cr_expect_not(tp_image_set_prepare(X, 2, &a, &w, (tp_example){ 0 }, x));
    tp_image_set_close(X);
    tp_augment_work_free(&w);
}

/* The label is missing, not a number, or truncated with the file. */
Test(images, broken_shards)
{
    static const struct {
        const char *label, *why;
        long cut;
    } cases[] = {
        { NULL, "the image '0' has no label: add a file 0.cls", 0 },
        { "", "the label of the key '0' in 0.cls is no number and no name", 0 },
        { "dog", "s.tar: '1' has a number as label, ", 0 },
        { "65536", "the key '0' has the label 65536; labels are numbers from 0 to 65535", 0 },
        { "1", "s.tar is damaged or cut off: ", 700 },
    };
    uint8_t bytes[1 << 12];
    make("shards");
    write_image("one.png", 9);
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

/* The number in KEY.cls counts before or after the image. Numeric labels and labels by folder do
 * not mix. */
Test(images, labels_of_shards)
{
    static const struct {
        const char *names[8], *why; /* a .cls holds the digit before its dot */
        int64_t count;
        int classes;
        const char *first, *last;
    } cases[] = {
        { { "num/q0.png", "num/q0.cls", "num/q2.png", "num/q2.cls" },
          NULL,
          2,
          3,
          "class 0",
          "class 2" },
        { { "num/q1.cls", "num/q1.png", "num/q0.png", "num/q0.cls" },
          NULL,
          2,
          2,
          "class 1",
          "class 0" },
        { { "q1.png", "q1.jpg", "q1.cls" }, NULL, 1, 2, "class 1", "class 1" },
        { { "cat/q0.png", "cat/q1.jpg", "bee/q0.png" }, NULL, 3, 2, "cat", "bee" },
        { { "cat/q0.png", "dog/q1.png", "num/q9.png", "num/q9.cls" },
          "s.tar: 'cat/q0' its folder: use one way",
          0,
          0,
          "",
          "" },
        { { "q9.png", "q9.cls", "dog/q1.png" }, "s.tar: 'dog/q1' its folder: use", 0, 0, "", "" },
        { { "cat/q0.png", "dog/q1.png", "q0.cls" }, NULL, 2, 2, "cat", "dog" },
        { { "cat/q.png", "cat/q.cls", "dog/q1.png" },
          "s.tar: 'cat/q' has a name as label, ",
          0,
          0,
          "",
          "" },
    };
    uint8_t bytes[1 << 12];
    make("shards");
    write_image("one.png", 9);
    const size_t n = read_bytes("one.png", bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct archive *t = archive_write_new();
        archive_write_set_format_pax_restricted(t);
        cr_assert(archive_write_open_filename(t, in_folder("shards/s.tar")) == ARCHIVE_OK);
        for (int k = 0; cases[i].names[k]; k++) {
            const char *name = cases[i].names[k], *dot = strchr(name, '.');
            if (strcmp(dot, ".cls") == 0)
                add_entry(t, name, dot - 1, 1);
            else
                add_entry(t, name, bytes, n);
        }
        archive_write_free(t);
        if (cases[i].why)
            expect_why("shards", TP_LAYOUT_AUTO, TP_TRAIN, cases[i].why);
        else
            expect_set("shards", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_SHARDS, cases[i].count,
                       cases[i].classes, cases[i].first, cases[i].last);
    }
}

/* Names that a checkpoint could not store are refused. */
Test(images, names_of_classes)
{
    static const struct {
        const char *name, *why;
    } cases[] = {
        { "s/caf\xe9", "the name of the class 'caf\\xe9' is not a line of UTF-8 text" },
        { "s/two\nlines", "the name of the class 'two\\x0alines'" },
        { "s/\xed\xa0\x80", "the name of the class '\\xed\\xa0\\x80'" },
        { "s/caf\xc3\xa9 \xf0\x9f\x98\x80", NULL },
    };
    char image[64];
    make_classes("s", 1, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make(cases[i].name);
        snprintf(image, sizeof image, "%s/a.png", cases[i].name);
        write_image(image, 1);
        if (cases[i].why)
            expect_why("s", TP_LAYOUT_AUTO, TP_TRAIN, cases[i].why);
        else
            expect_set("s", TP_LAYOUT_AUTO, TP_TRAIN, TP_LAYOUT_FOLDER, 3, 3, cases[i].name + 2,
                       "dog");
        cr_assert(unlink(in_folder(image)) == 0);
        cr_assert(rmdir(in_folder(cases[i].name)) == 0);
    }
}

Test(images, messages_for_bad_sets)
{
    make("empty");
    expect_why("empty", TP_LAYOUT_AUTO, TP_TRAIN, "no images (.jpg, .jpeg, .png) were found");
    make("one");
    make("one/cat");
    write_image("one/cat/a.png", 1);
    expect_why("one", TP_LAYOUT_AUTO, TP_TRAIN, "all images are of the class 'cat'");
    make_classes("plain", 2, 0);
    write_text("plain/train.txt", "x.jpg 0\n");
    expect_why("plain", TP_LAYOUT_CIFAR10, TP_TRAIN, "it looks like the layout 'ip102'");
    expect_why("nowhere", TP_LAYOUT_AUTO, TP_TRAIN,
               "nowhere: the folder cannot be opened (No such file or directory); check the path");
    cr_assert(symlink("/dev/null", in_folder("device")) == 0);
    expect_why("device", TP_LAYOUT_AUTO, TP_TRAIN,
               "device: the folder cannot be opened (Not a directory); check the path");
    expect_why("plain/train.txt", TP_LAYOUT_AUTO, TP_TRAIN, "is a file, not a folder of images");
    make("flat");
    write_image("flat/a.png", 1);
    expect_why("flat", TP_LAYOUT_AUTO, TP_TRAIN, "it has images itself: move them");
    make("deep");
    make("deep/set");
    make_classes("deep/set/train", 2, 0);
    expect_why("deep", TP_LAYOUT_AUTO, TP_TRAIN,
               "but its folder 'set' looks like the layout 'folder'");
    tp_layout l;
    cr_expect(tp_layout_find("food101", &l) && l == TP_LAYOUT_FOOD101);
    cr_expect_not(tp_layout_find("food", &l));
}

enum { SIZE = 16, PIXELS = SIZE * SIZE * 3 };

Test(images, hashes_of_sets_differ)
{
    make_classes("plain", 11, 0);
    make_classes("same", 11, 50);
    tp_image_set *X = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
    tp_image_set *Y = open_set("same", TP_LAYOUT_AUTO, TP_TRAIN);
    tp_image_set *Z = open_set("plain", TP_LAYOUT_AUTO, TP_VALID);
    cr_expect_eq(tp_image_set_hash(X), tp_image_set_hash(Y),
                 "the hash ignores the name of the folder");
    cr_expect_neq(tp_image_set_hash(X), tp_image_set_hash(Z));
    tp_image_set_close(X);
    tp_image_set_close(Y);
    tp_image_set_close(Z);
}

Test(images, shapes_are_always_the_same)
{
    float a[3][PIXELS], b[PIXELS];
    tp_augment none;
    tp_augment_work w = { 0 };
    cr_assert(tp_augment_recipe(&none, "none", SIZE));
    tp_image_set *X = tp_image_set_shapes(25, SIZE, TP_TRAIN);
    tp_image_set *Y = tp_image_set_shapes(30, SIZE, TP_TRAIN);
    tp_image_set *Z = tp_image_set_shapes(25, SIZE, TP_VALID);
    cr_assert(tp_image_set_count(X) == 25 && tp_image_set_classes(X) == 10);
    cr_expect_eq(tp_image_set_label(X, 13), 3);
    cr_expect_str_eq(tp_image_set_class(X, 3), "triangle");
    cr_assert(tp_image_set_prepare(X, 13, &none, &w, (tp_example){ 0 }, a[0]), "%s", w.why);
    cr_assert(tp_image_set_prepare(X, 3, &none, &w, (tp_example){ 0 }, a[1]), "%s", w.why);
    cr_assert(tp_image_set_prepare(Z, 13, &none, &w, (tp_example){ 0 }, a[2]), "%s", w.why);
    cr_assert(tp_image_set_prepare(Y, 13, &none, &w, (tp_example){ 0 }, b), "%s", w.why);
    cr_expect(memcmp(a[0], b, sizeof b) == 0);
    cr_expect(memcmp(a[0], a[1], sizeof b) != 0 && memcmp(a[0], a[2], sizeof b) != 0);
    tp_augment_work_free(&w);
    tp_image_set_close(X);
    tp_image_set_close(Y);
    tp_image_set_close(Z);
    X = tp_image_set_shapes(0, SIZE, TP_TRAIN);
    cr_expect_not(tp_image_set_ok(X));
    tp_image_set_close(X);
}

static void count_bad(void *env, const char *name, const char *why)
{
    (void)name, (void)why;
    ++*(int *)env;
}

/* With too many open files, no image counts as unreadable in any layout. */
Test(images, too_many_open_files)
{
    uint8_t bytes[1 << 12];
    struct rlimit limit;
    tp_augment a;
    tp_image_batch b;
    make_classes("plain", 3, 0);
    make("cifar");
    write_text("cifar/batches.meta.txt", "airplane\nbird\n");
    write_records("cifar/data_batch_1.bin", (int[]){ 1, 0, 1, 0 }, 4);
    make("shards");
    const size_t n = read_bytes("plain/cat/00.png", bytes, sizeof bytes);
    struct archive *t = archive_write_new();
    archive_write_set_format_pax_restricted(t);
    cr_assert(archive_write_open_filename(t, in_folder("shards/s.tar")) == ARCHIVE_OK);
    add_entry(t, "cat/0.png", bytes, n);
    add_entry(t, "dog/1.png", bytes, n);
    archive_write_free(t);
    static const char *const sets[] = { "plain", "cifar", "shards" };
    tp_image_set *X[3];
    for (int i = 0; i < 3; i++) {
        X[i] = open_set(sets[i], TP_LAYOUT_AUTO, TP_TRAIN);
        cr_assert(tp_image_set_ok(X[i]), "%s", tp_image_set_why(X[i]));
    }
    cr_assert(tp_augment_recipe(&a, "eval", SIZE));
    cr_assert(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const struct rlimit none = { 3, limit.rlim_max };
    cr_assert(setrlimit(RLIMIT_NOFILE, &none) == 0);
    for (int i = 0; i < 3; i++) {
        int bad = 0;
        tp_loader *L = tp_image_loader_new(
            X[i], &(tp_image_loader_opts){
                      .augment = &a, .batch = 2, .train = true, .bad = count_bad, .env = &bad });
        cr_expect_not(tp_image_loader_next(L, &b), "%s", sets[i]);
        cr_expect(strstr(tp_loader_why(L), "Too many open files"), "%s", tp_loader_why(L));
        cr_expect_eq(bad, 0, "%s", sets[i]);
        tp_loader_free(L);
    }
    expect_why("plain", TP_LAYOUT_FOLDER, TP_TRAIN, "cannot be read (Too many open files)");
    cr_assert(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int i = 0; i < 3; i++) tp_image_set_close(X[i]);
}
