/* test_image_parts.c - the training and validation images of a set, those left out of both, and the
 * numbers of the classes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tapegrad/image_set.h>

#include "data/files.h"
#include "support/folder.h"
#include "support/image_sets.h"

TestSuite(image_parts, .init = make_folder, .fini = remove_folder);

static void link_to(const char *target, const char *name)
{
    cr_assert(symlink(target, in_folder(name)) == 0, "%s", name);
}

/* Opens both parts and checks that they have these sizes, no common image, equal classes. */
static void expect_apart(const char *name, int64_t train, int64_t valid)
{
    char a[600], b[600];
    tp_image_set *X = open_set(name, TP_LAYOUT_AUTO, TP_TRAIN);
    tp_image_set *V = open_set(name, TP_LAYOUT_AUTO, TP_VALID);
    cr_assert(tp_image_set_ok(X), "%s", tp_image_set_why(X));
    cr_assert(tp_image_set_ok(V), "%s", tp_image_set_why(V));
    cr_expect(tp_image_set_count(X) == train && tp_image_set_count(V) == valid,
              "%s: %lld and %lld images", name, (long long)tp_image_set_count(X),
              (long long)tp_image_set_count(V));
    for (int64_t i = 0; i < tp_image_set_count(X); i++)
        for (int64_t k = 0; k < tp_image_set_count(V); k++)
            cr_expect(strcmp(tp_image_set_name(X, i, a, sizeof a),
                             tp_image_set_name(V, k, b, sizeof b)) != 0,
                      "%s: both parts have %s", name, a);
    for (int k = 0; k < tp_image_set_classes(V); k++)
        cr_expect_str_eq(tp_image_set_class(X, k), tp_image_set_class(V, k), "%s", name);
    tp_image_set_close(X);
    tp_image_set_close(V);
}

static void expect_why(const char *name, tp_part part, const char *why)
{
    tp_image_set *X = open_set(name, TP_LAYOUT_AUTO, part);
    cr_expect(strstr(tp_image_set_why(X), why), "%s: '%s' has no '%s'", name, tp_image_set_why(X),
              why);
    tp_image_set_close(X);
}

static void expect_note(const char *name, tp_part part, const char *note)
{
    tp_image_set *X = open_set(name, TP_LAYOUT_AUTO, part);
    cr_assert(tp_image_set_ok(X), "%s: %s", name, tp_image_set_why(X));
    cr_expect_str_eq(tp_image_set_note(X), note, "%s: %s", name, tp_image_set_note(X));
    tp_image_set_close(X);
}

static void expect_classes(const char *name, tp_part part, const char *classes)
{
    char seen[1000] = "";
    tp_image_set *X = open_set(name, TP_LAYOUT_AUTO, part);
    cr_assert(tp_image_set_ok(X), "%s: %s", name, tp_image_set_why(X));
    for (int k = 0; k < tp_image_set_classes(X); k++)
        strcat(strcat(seen, k ? " " : ""), tp_image_set_class(X, k));
    cr_expect_str_eq(seen, classes, "%s: %s", name, seen);
    tp_image_set_close(X);
}

/* ---- names of parts ---- */

Test(image_parts, words)
{
    static const struct {
        const char *name;
        int part;
    } rows[] = { { "train.tar", TP_TRAIN },
                 { "set-train-0000.tar", TP_TRAIN },
                 { "imagenet1k_TRAIN_07.tar", TP_TRAIN },
                 { "train07.tar", TP_TRAIN },
                 { "imagenet-val-000001.tar", TP_VALID },
                 { "set-validation-0000.tar", TP_VALID },
                 { "Valid.tar", TP_VALID },
                 { "test-set-train-1.tar", TP_TRAIN },
                 { "cub.test.003.tar", TP_TEST },
                 { "train/0001.tar", TP_NO_PART },
                 { "constraint-0.tar", TP_NO_PART },
                 { "evaluated.tar", TP_NO_PART },
                 { "0001.tar", TP_NO_PART },
                 { "", TP_NO_PART } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(tp__part_of_file(rows[i].name), rows[i].part, "%s: %d", rows[i].name,
                     tp__part_of_file(rows[i].name));
}

/* ---- shards ---- */

enum { KEYS = 24 };

/* A shard with n keys of two classes, numbered by its .cls files. */
static void numbered(const char *name, int n)
{
    static char text[2 * KEYS][24];
    const char *entry[2 * KEYS];
    for (int i = 0; i < n; i++) {
        snprintf(text[2 * i], sizeof *text, "%03d.png", i);
        snprintf(text[2 * i + 1], sizeof *text, "%03d.cls=%d", i, i % 2);
    }
    for (int i = 0; i < 2 * n; i++) entry[i] = text[i];
    write_shard(name, entry, 2 * n);
}

Test(image_parts, shards_in_one_folder_are_told_by_their_names)
{
    static const struct {
        const char *set, *train, *valid;
    } rows[] = { { "a", "set-train-0000.tar", "set-validation-0000.tar" },
                 { "b", "imagenet-train-000.tar", "imagenet-val-000.tar" },
                 { "c", "train.tar", "test.tar" },
                 { "d", "Train_0.TAR", "VAL_0.TAR" },
                 { "e", "000000.tar", "val-000000.tar" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[100];
        make(rows[i].set);
        snprintf(path, sizeof path, "%s/%s", rows[i].set, rows[i].train);
        numbered(path, 6);
        snprintf(path, sizeof path, "%s/%s", rows[i].set, rows[i].valid);
        numbered(path, 4);
        expect_apart(rows[i].set, 6, 4);
    }
    make("three");
    numbered("three/train-0.tar", 6);
    numbered("three/val-0.tar", 4);
    numbered("three/test-0.tar", 2);
    numbered("three/more.tar", 2);
    expect_apart("three", 6, 4);
    expect_note("three", TP_TEST, "left out: 1 shard not named as a part (more.tar)");
    tp_image_set *X = open_set("three", TP_LAYOUT_AUTO, TP_TEST);
    cr_expect_eq(tp_image_set_count(X), 2);
    tp_image_set_close(X);
}

Test(image_parts, shards_in_folders_of_parts)
{
    make("a");
    make("a/train");
    make("a/validation");
    numbered("a/train/0.tar", 6);
    numbered("a/validation/0.tar", 4);
    expect_apart("a", 6, 4);
    make("held");
    make("held/valid");
    numbered("held/valid/0.tar", 4);
    expect_why("held", TP_TRAIN, "all shards are named as validation or test, none for training");
}

Test(image_parts, shards_without_parts_are_held_back_from)
{
    make("one");
    numbered("one/0.tar", KEYS);
    expect_apart("one", KEYS - 2, 2);
    make("named");
    numbered("named/train.tar", KEYS);
    expect_apart("named", KEYS - 2, 2);
    numbered("named/other.tar", 4);
    expect_apart("named", KEYS - 2, 2);
    expect_note("named", TP_VALID, "left out: 1 shard not named as a part (other.tar)");
    make("small");
    numbered("small/0.tar", 8);
    expect_why("small", TP_VALID, "of 8 images none is for this part: nothing separates training");
    make("keys"); /* two images of a key belong together */
    static const char *const names[] = { "a/0.png", "a/0.jpg", "a/1.png", "a/2.png", "a/3.png",
                                         "a/4.png", "a/5.png", "a/6.png", "a/7.png", "a/8.png",
                                         "a/9.png", "a/9.jpg", "b/0.png" };
    write_shard("keys/0.tar", names, 13);
    expect_apart("keys", 11, 2);
}

Test(image_parts, a_shard_may_hold_folders_of_parts)
{
    static const char *const names[] = { "set/train/cat/0.png", "set/train/dog/0.png",
                                         "set/train/eel/0.png", "set/val/dog/0.png",
                                         "set/val/dog/1.png" };
    make("one");
    write_shard("one/set.tar", names, 5);
    expect_apart("one", 3, 2);
    expect_classes("one", TP_VALID, "cat dog eel");
    static const char *const labelled[] = { "train/0.png",   "train/0.cls=0", "train/1.png",
                                            "train/1.cls=1", "val/0.png",     "val/0.cls=1" };
    make("two");
    write_shard("two/set.tar", labelled, 6);
    expect_apart("two", 2, 1);
}

/* Validation labels are positions among the training classes. */
Test(image_parts, classes_of_shards_are_those_of_training)
{
    static const char *const train[] = { "ape/0.png", "bee/0.png", "cow/0.png" };
    static const char *const valid[] = { "cow/0.png", "bee/1.png" };
    static const char *const other[] = { "cow/0.png", "yak/1.png" };
    make("a");
    write_shard("a/train.tar", train, 3);
    write_shard("a/val.tar", valid, 2);
    expect_apart("a", 3, 2);
    tp_image_set *V = open_set("a", TP_LAYOUT_AUTO, TP_VALID);
    cr_expect(tp_image_set_label(V, 0) == 2 && tp_image_set_label(V, 1) == 1);
    tp_image_set_close(V);
    write_shard("a/val.tar", other, 2);
    expect_why("a", TP_VALID, "the training images have no class 'yak'");
}

Test(image_parts, keys_are_those_of_webdataset)
{
    static const struct {
        const char *entry[8], *why, *note, *classes;
        int64_t images;
    } rows[] = {
        { { "./a.PNG", "./a.CLS=1\n", "./b.Jpg", "./b.cls= 0\r\n" },
          NULL,
          "",
          "class 0 class 1",
          2 },
        { { "a.png", "a.cls=dog", "b.png", "b.cls=cat\n" }, NULL, "", "cat dog", 2 },
        { { "a.png", "a.json={\"label\": 1}", "b.png", "b.json={\"cls\": 0.0, \"x\": 7}" },
          NULL,
          "",
          "class 0 class 1",
          2 },
        { { "a.png", "a.json={\"class\": \"dog\"}", "a.cls=cat", "b.png", "b.cls=dog" },
          NULL,
          "",
          "cat dog",
          2 },
        { { "._a.png", "a.png", "._a.cls=\x05\x16", "a.cls=0", "__MACOSX/x/._b.png", ".b.cls=7",
            "b.png", "b.cls=1" },
          NULL,
          "",
          "class 0 class 1",
          2 },
        { { "a.png", "a.seg.png", "a.jpg", "a.cls=0", "b.png", "b.cls=1" },
          NULL,
          "left out: 2 images that are not the first KEY.jpg, KEY.jpeg or KEY.png of their keys "
          "(a, a)",
          "class 0 class 1",
          2 },
        { { "a.png", "a.cls=0", "b.webp=RIFF", "b.cls=1", "c.png", "c.cls=1" },
          NULL,
          "left out: 1 key of a shard without an image KEY.jpg, KEY.jpeg or KEY.png (b in "
          "SET/s.tar)",
          "class 0 class 1",
          2 },
        { { "a.png", "a.cls=0", "b.png" },
          "s.tar: the image 'b' has no label: add a file b.cls",
          NULL,
          NULL,
          0 },
        { { "dir/a.b.png", "dir/a.b.cls=0" },
          "s.tar: the key 'dir/a' has no label dir/a.cls: a key ends at the first dot of a name, "
          "so 'b.cls' is another part of it",
          NULL,
          NULL,
          0 },
        { { "a.png", "a.cls=0", "b.png", "b.cls=cat" },
          "s.tar: 'a' has a number as label, ",
          NULL,
          NULL,
          0 },
        { { "a.png", "a.cls=-1" },
          "the key 'a' has the label -1; labels are numbers",
          NULL,
          NULL,
          0 },
        { { "cat/a.png", "cat/b.webp=RIFF", "dog/a.png", "README=x" },
          NULL,
          "left out: 2 files that are neither .jpg, .jpeg nor .png (cat/b.webp, README)",
          "cat dog",
          2 },
        { { "a.png", "a.cls=99999999999999999999" },
          "has the label 99999999999999999999",
          NULL,
          NULL,
          0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char set[16], note[300] = "";
        int n = 0;
        snprintf(set, sizeof set, "s%zu", i);
        make(set);
        while (n < 8 && rows[i].entry[n]) n++;
        snprintf(note, sizeof note, "%s/s.tar", set);
        write_shard(note, rows[i].entry, n);
        if (rows[i].why) {
            expect_why(set, TP_TRAIN, rows[i].why);
            continue;
        }
        tp_image_set *X = open_set(set, TP_LAYOUT_AUTO, TP_TRAIN);
        cr_assert(tp_image_set_ok(X), "%zu: %s", i, tp_image_set_why(X));
        cr_expect_eq(tp_image_set_count(X), rows[i].images, "%zu: %lld", i,
                     (long long)tp_image_set_count(X));
        const char *at = strstr(rows[i].note, "SET");
        if (at)
            snprintf(note, sizeof note, "%.*s%s%s", (int)(at - rows[i].note), rows[i].note,
                     in_folder(set), at + 3);
        cr_expect_str_eq(tp_image_set_note(X), at ? note : rows[i].note, "%zu: %s", i,
                         tp_image_set_note(X));
        tp_image_set_close(X);
        expect_classes(set, TP_TRAIN, rows[i].classes);
    }
}

/* ---- folders ---- */

Test(image_parts, folders_of_parts_have_many_names)
{
    static const char *const names[][2] = { { "train", "val" },
                                            { "Train", "Test" },
                                            { "training", "testing" },
                                            { "TRAIN", "VALIDATION" },
                                            { "train", "dev" } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char set[8], path[100];
        snprintf(set, sizeof set, "s%zu", i);
        make(set);
        snprintf(path, sizeof path, "%s/%s", set, names[i][0]);
        make_classes(path, 12, 0);
        snprintf(path, sizeof path, "%s/%s", set, names[i][1]);
        make_classes(path, 2, 0);
        expect_apart(set, 24, 4);
    }
    make_classes("s0/test", 3, 0);
    tp_image_set *X = open_set("s0", TP_LAYOUT_AUTO, TP_TEST);
    cr_expect_eq(tp_image_set_count(X), 6, "the part that is asked for");
    tp_image_set_close(X);
    make("s0/extra");
    expect_note("s0", TP_TRAIN, "left out: 1 folder beside those of the parts (extra)");
    make("only");
    make_classes("only/train", 10, 0);
    expect_apart("only", 18, 2);
}

Test(image_parts, a_class_may_be_called_as_a_part)
{
    make_classes("set", 2, 0);
    make("set/train");
    write_image("set/train/0.png", 7);
    expect_classes("set", TP_TRAIN, "cat dog train");
}

Test(image_parts, links_do_not_lead_to_shared_images)
{
    make("a");
    make_classes("a/train", 2, 0);
    link_to("train", "a/val");
    expect_why("a", TP_VALID, "are the same folder: training and validation may not share images");
    make("b");
    make_classes("b/train", 2, 0);
    make("b/val");
    link_to("../train/cat", "b/val/cat");
    expect_why("b", TP_VALID, "are the same folder: training and validation may not share images");
    make("c");
    numbered("c/train.tar", 4);
    link_to("train.tar", "c/val.tar");
    expect_why("c", TP_TRAIN, "are the same file: training and validation may not share images");
    make_classes("d", 2, 0);
    link_to("..", "d/up");
    link_to(".", "d/here");
    write_image("stray.png", 3);
    expect_classes("d", TP_TRAIN, "cat dog");
    expect_note("d", TP_TRAIN, "left out: 2 links to folders that contain them (here, up)");
}

Test(image_parts, what_is_no_image_and_no_class_is_named_once)
{
    make_classes("set", 2, 0);
    make("set/notes");
    write_text("set/notes/readme.txt", "no images here\n");
    make("set/fox");
    write_text("set/fox/1.webp", "RIFF");
    write_text("set/fox/2.bmp", "BM");
    write_text("set/cat/3.GIF", "GIF89a");
    make("set/cat/deeper");
    write_image("set/loose.png", 1);
    expect_classes("set", TP_TRAIN, "cat dog");
    expect_note(
        "set", TP_TRAIN,
        "left out: 4 files that are neither .jpg, .jpeg nor .png (cat/3.GIF, fox/1.webp, "
        "fox/2.bmp, ...); 2 folders without images, which are no classes (fox, notes); 1 image "
        "outside the folders of classes (loose.png); 1 folder inside a class (cat/deeper)");
    make("webp");
    make("webp/cat");
    write_text("webp/cat/1.webp", "RIFF");
    expect_why("webp", TP_TRAIN,
               "left out: 1 file that is neither .jpg, .jpeg nor .png (cat/1.webp)");
    make("packed");
    write_text("packed/train.tar.gz", "x");
    expect_why("packed", TP_TRAIN, "unpack train.tar.gz, shards to .tar");
}

Test(image_parts, companions_are_passed_over_in_silence)
{
    make_classes("set", 2, 0);
    make("set/__MACOSX");
    write_text("set/__MACOSX/._0.png", "x");
    make("set/.ipynb_checkpoints");
    write_image("set/.ipynb_checkpoints/0.png", 1);
    make("set/@eaDir");
    write_image("set/@eaDir/0.png", 1);
    make("set/lost+found");
    write_image("set/lost+found/0.png", 1);
    write_text("set/cat/._00.png", "x");
    write_text("set/cat/Thumbs.db", "x");
    write_text("set/desktop.ini", "x");
    make("set/dog/@eaDir");
    expect_classes("set", TP_TRAIN, "cat dog");
    expect_note("set", TP_TRAIN, "");
    make("ip");
    write_text("ip/train.txt", "._0.jpg 0\n0.jpg 0\n__MACOSX/0.jpg 1\n1.jpg 1\n");
    write_text("ip/val.txt", "2.jpg 0\n");
    expect_apart("ip", 2, 1);
}

/* ---- numbers ---- */

Test(image_parts, numbers_are_classes_in_their_order)
{
    static const char *const numbers[] = { "0", "1", "2", "10", "11", "100" };
    make("set");
    for (int i = 0; i < 6; i++) {
        char path[40];
        snprintf(path, sizeof path, "set/%s", numbers[i]);
        make(path);
        snprintf(path, sizeof path, "set/%s/0.png", numbers[i]);
        write_image(path, i);
    }
    expect_classes("set", TP_TRAIN, "0 1 2 10 11 100");
    make("set/007");
    write_image("set/007/0.png", 9);
    expect_classes("set", TP_TRAIN, "0 1 2 007 10 11 100");
    make("set/x");
    write_image("set/x/0.png", 9);
    expect_classes("set", TP_TRAIN, "0 007 1 10 100 11 2 x");
}

/* ---- lists ---- */

Test(image_parts, lists_may_not_name_a_file_for_both_parts)
{
    make("ip");
    write_text("ip/train.txt", "\xef\xbb\xbf"
                               "0.jpg 0\n1.jpg 1\n");
    write_text("ip/val.txt", "2.jpg 0\n");
    expect_apart("ip", 2, 1);
    write_text("ip/val.txt", "2.jpg 0\n.//1.jpg 1\n");
    expect_why("ip", TP_TRAIN, "images/1.jpg is in the list of the other part, too");
    expect_why("ip", TP_VALID, "images/1.jpg is in the list of the other part, too");
    make("food");
    make("food/meta");
    make("food/images");
    write_text("food/meta/classes.txt", "a\nb\n");
    write_text("food/meta/train.txt", "a/1\nb/1\n");
    write_text("food/meta/test.txt", "a/2\nb/1\n");
    expect_why("food", TP_TRAIN, "images/b/1.jpg is in the list of the other part, too");
    make("mini");
    write_text("mini/new_train.csv", "filename,label\nx.jpg,n07\ny.jpg,n03\nz.jpg,n05\n");
    write_text("mini/new_val.csv", "filename,label\nw.jpg,n05\n");
    expect_apart("mini", 3, 1);
    tp_image_set *V = open_set("mini", TP_LAYOUT_AUTO, TP_VALID);
    cr_expect_eq(tp_image_set_label(V, 0), 1, "the classes are those of training");
    tp_image_set_close(V);
    write_text("mini/new_val.csv", "filename,label\nx.jpg,n07\n");
    expect_why("mini", TP_TRAIN, "the lists name x.jpg twice");
}

Test(image_parts, lists_are_text)
{
    make("ip");
    FILE *f = fopen(in_folder("ip/train.txt"), "wb");
    fwrite("\xff\xfe"
           "0\0.\0j\0p\0g\0 \0000\0\n\0",
           1, 18, f);
    fclose(f);
    expect_why("ip", TP_TRAIN, "train.txt is UTF-16");
    f = fopen(in_folder("ip/train.txt"), "wb");
    fwrite("0.jpg 0\n1\0.jpg 1\n", 1, 17, f);
    fclose(f);
    expect_why("ip", TP_TRAIN, "train.txt has a zero byte");
    f = fopen(in_folder("ip/train.txt"), "wb");
    fprintf(f, "0.jpg 0\n%05000d.jpg 1\n", 0);
    fclose(f);
    expect_why("ip", TP_TRAIN, "line 2 has more than 4095 bytes");
}
