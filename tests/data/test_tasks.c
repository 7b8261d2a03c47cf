/* test_tasks.c - files of Long Range Arena's tasks except ListOps: reviews, pairs, grey images,
 * Pathfinder; and images drawn in its style. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tapegrad/document_loader.h>
#include <tapegrad/documents.h>
#include <tapegrad/image.h>

#include "support/folder.h"

static void shell(const char *command)
{
    char full[2048];
    snprintf(full, sizeof full, "cd '%s' && %s", folder, command);
    cr_assert_eq(system(full), 0, "%s", command);
}

/* `text`: the bytes of document k of example i: its ids minus one. */
static void expect_text(const tp_documents *X, int64_t i, int k, int32_t label, const char *text)
{
    int64_t n;
    cr_assert_lt(i, tp_documents_count(X), "%s", tp_documents_why(X));
    const uint16_t *ids = tp_documents_ids(X, i, k, &n);
    cr_assert_eq(n, (int64_t)strlen(text), "example %lld", (long long)i);
    for (int64_t j = 0; j < n; j++) cr_expect_eq(ids[j], (uint8_t)text[j] + 1);
    cr_expect_eq(tp_documents_label(X, i), label);
}

static void expect_failure(tp_documents *X, const char *message)
{
    cr_expect_not(tp_documents_ok(X), "%s", message);
    cr_expect(strstr(tp_documents_why(X), message), "'%s' in: %s", message, tp_documents_why(X));
    cr_expect_eq(tp_documents_count(X), 0);
    tp_documents_close(X);
}

Test(tasks, are_found_by_name)
{
    int n = 0;
    for (; tp_task_at(n); n++) cr_expect_eq(tp_task_find(tp_task_at(n)->name), tp_task_at(n));
    cr_expect_eq(n, 5);
    cr_expect_null(tp_task_find("path-x"));
    cr_expect_null(tp_task_at(-1));
    cr_expect_eq(tp_task_find("retrieval")->documents, 2);
    cr_expect_eq(tp_task_find("listops")->padded, 2048);
    cr_expect_eq(tp_task_find("text")->open, tp_documents_reviews);
}

/* ---- reviews ---- */

static void make_reviews(void)
{
    make_folder();
    shell("mkdir -p aclImdb/train/neg aclImdb/train/pos aclImdb/train/unsup aclImdb/test/neg "
          "aclImdb/test/pos");
    write_text("aclImdb/README", "text");
    write_text("aclImdb/train/neg/1_2.txt", "bad, very bad!");
    write_text("aclImdb/train/neg/0_1.txt", "caf\xc3\xa9<br />");
    write_text("aclImdb/train/pos/10_9.txt", "good");
    write_text("aclImdb/train/pos/x.feat", "1:2");
    write_text("aclImdb/train/unsup/0_0.txt", "none");
    write_text("aclImdb/test/neg/0_3.txt", "...");
    write_text("aclImdb/test/pos/0_7.txt", "a");
}

static void expect_reviews(const char *path)
{
    tp_documents *X = tp_documents_reviews(path, TP_TRAIN, NULL);
    cr_expect_eq(tp_documents_count(X), 3, "%s", tp_documents_why(X));
    expect_text(X, 0, 0, 0, "caf\xc3\xa9<br />");
    expect_text(X, 1, 0, 0, "bad, very bad!");
    expect_text(X, 2, 0, 1, "good");
    tp_documents_close(X);
    for (int part = TP_VALID; part <= TP_TEST; part++) {
        X = tp_documents_reviews(path, (tp_part)part, NULL);
        cr_expect_eq(tp_documents_count(X), 2, "%s", tp_documents_why(X));
        expect_text(X, 0, 0, 0, "...");
        expect_text(X, 1, 0, 1, "a");
        tp_documents_close(X);
    }
}

Test(tasks, reviews, .init = make_reviews, .fini = remove_folder)
{
    expect_reviews(folder);
    expect_reviews(in_folder("aclImdb"));
    shell("tar cf t.tar aclImdb && tar czf t.tar.gz aclImdb && tar cJf t.tar.xz ./aclImdb && "
          "tar cf turned.tar aclImdb/test/pos aclImdb/test/neg aclImdb/train/pos "
          "aclImdb/train/neg/1_2.txt aclImdb/train/neg/0_1.txt");
    expect_reviews(in_folder("t.tar"));
    expect_reviews(in_folder("t.tar.gz"));
    expect_reviews(in_folder("t.tar.xz"));
    expect_reviews(in_folder("turned.tar"));
}

Test(tasks, reviews_are_cut_chosen_and_damaged, .init = make_reviews, .fini = remove_folder)
{
    tp_documents *X =
        tp_documents_reviews(folder, TP_TRAIN, &(tp_documents_opts){ .longest = 3, .limit = 2 });
    cr_expect_eq(tp_documents_count(X), 2);
    expect_text(X, 0, 0, 0, "caf");
    expect_text(X, 1, 0, 1, "goo");
    tp_documents_close(X);
    X = tp_documents_reviews(folder, TP_TEST, &(tp_documents_opts){ .damage = TP_DAMAGE_DELETE });
    expect_text(X, 0, 0, 0, " ");
    expect_text(X, 1, 0, 1, "a");
    tp_documents_close(X);
    uint8_t out[16] = "";
    tp_insert_marks((const uint8_t *)"a", 1, 1, 0, false, out);
    X = tp_documents_reviews(folder, TP_TEST, &(tp_documents_opts){ .damage = TP_DAMAGE_INSERT });
    expect_text(X, 1, 0, 1, (const char *)out);
    tp_documents_close(X);
    expect_failure(
        tp_documents_reviews(folder, TP_TRAIN, &(tp_documents_opts){ .damage = TP_DAMAGE_INSERT }),
        "damage is for test sets");
}

Test(tasks, bad_reviews, .init = make_reviews, .fini = remove_folder)
{
    shell("rm aclImdb/train/pos/*.txt && mkdir empty && tar cf t.tar aclImdb && "
          "head -c 3000 t.tar >cut.tar && truncate -s 2000000 aclImdb/test/pos/0_7.txt");
    expect_failure(tp_documents_reviews(folder, TP_TRAIN, NULL), "no reviews train/pos/NAME.txt");
    expect_failure(tp_documents_reviews(in_folder("empty"), TP_TEST, NULL),
                   "no reviews test/neg/NAME.txt");
    expect_failure(tp_documents_reviews(in_folder("cut.tar"), TP_TRAIN, NULL), "cut.tar");
    expect_failure(tp_documents_reviews(in_folder("aclImdb"), TP_TEST, NULL),
                   "aclImdb/test/pos/0_7.txt has 2000000 bytes, more than the 1048576 allowed");
    expect_failure(tp_documents_reviews(in_folder("none"), TP_TEST, NULL), "No such file");
}

Test(tasks, published_reviews)
{
    const char *path = TP_SOURCE_DIR "/../shared/data/imdb/aclImdb-subset.tar.xz";
    if (access(path, R_OK) != 0) cr_skip_test("no %s", path);
    for (int p = TP_TRAIN; p <= TP_TEST; p += 2) {
        tp_documents *X = tp_documents_reviews(path, (tp_part)p, NULL);
        const int64_t n = p == TP_TRAIN ? 10000 : 5000;
        int64_t positive = 0;
        cr_assert_eq(tp_documents_count(X), n, "%s", tp_documents_why(X));
        for (int64_t i = 0; i < n; i++) positive += tp_documents_label(X, i);
        cr_expect_eq(positive, n / 2);
        cr_expect_eq(tp_documents_longest(X), 4000);
        tp_documents_close(X);
    }
}

/* ---- pairs ---- */

Test(tasks, pairs, .init = make_folder, .fini = remove_folder)
{
    shell("mkdir lra");
    write_text("lra/new_aan_pairs.train.tsv", "0.0\tA1\tB1\t\"one\" 'quote\ttwo\n"
                                              "1.0\tA2\tB2\t\tfour\n\n1\tA\tB\tx\ty");
    write_text("lra/new_aan_pairs.eval.tsv", "1.0\tA\tB\tthree, four\t.!\r\n");
    tp_documents *X = tp_documents_pairs(folder, TP_TRAIN, NULL);
    cr_expect_eq(tp_documents_count(X), 3, "%s", tp_documents_why(X));
    cr_expect_eq(tp_documents_per_example(X), 2);
    expect_text(X, 0, 0, 0, "\"one\" 'quote");
    expect_text(X, 0, 1, 0, "two");
    expect_text(X, 1, 0, 1, " ");
    expect_text(X, 1, 1, 1, "four");
    expect_text(X, 2, 1, 1, "y");
    tp_documents_close(X);
    X = tp_documents_pairs(folder, TP_VALID,
                           &(tp_documents_opts){ .longest = 9, .damage = TP_DAMAGE_DELETE });
    expect_text(X, 0, 0, 1, "three fou");
    expect_text(X, 0, 1, 1, " ");
    tp_documents_close(X);
    X = tp_documents_pairs(in_folder("lra/new_aan_pairs.train.tsv"), TP_TEST,
                           &(tp_documents_opts){ .limit = 1, .damage = TP_DAMAGE_INSERT });
    uint8_t out[2][32] = { "", "" };
    tp_insert_marks((const uint8_t *)"\"one\" 'quote", 12, 0, 0, false, out[0]);
    tp_insert_marks((const uint8_t *)"two", 3, 0, 1, false, out[1]);
    cr_expect_eq(tp_documents_count(X), 1);
    for (int k = 0; k < 2; k++) expect_text(X, 0, k, 0, (const char *)out[k]);
    tp_documents_close(X);
}

/* The message names the source of the examples. */
Test(tasks, too_few_for_a_batch, .init = make_folder, .fini = remove_folder)
{
    write_text("p.tsv", "1.0\ta\tb\tc\td\n");
    tp_documents *X = tp_documents_pairs(in_folder("p.tsv"), TP_TRAIN, NULL);
    tp_loader *L =
        tp_document_loader_new(X, &(tp_document_loader_opts){ .batch = 8, .train = true });
    cr_expect(strstr(tp_loader_why(L), "/p.tsv: 1 example is too few for a batch of 8"), "%s",
              tp_loader_why(L));
    tp_loader_free(L);
    tp_documents_close(X);
}

Test(tasks, pairs_are_cut, .init = make_folder, .fini = remove_folder)
{
    char line[24100] = "1.0\ta\tb\t";
    memset(line + strlen(line), 'x', 12000);
    strcat(line, "\t");
    memset(line + strlen(line), 'y', 12000);
    write_text("p.tsv", line);
    static const int64_t cases[][2] = { { 0, 4096 }, { 4000, 4000 }, { 20000, 10000 } };
    for (int i = 0; i < 3; i++) {
        tp_documents *X = tp_documents_pairs(in_folder("p.tsv"), TP_TRAIN,
                                             &(tp_documents_opts){ .longest = cases[i][0] });
        cr_expect_eq(tp_documents_count(X), 1, "%s", tp_documents_why(X));
        cr_expect_eq(tp_documents_longest(X), cases[i][1]);
        tp_documents_close(X);
    }
}

Test(tasks, bad_pairs, .init = make_folder, .fini = remove_folder)
{
    static const char *const cases[][2] = {
        { "", "is empty" },
        { "\n\n", "has no pairs" },
        { "1.0\ta\tb\tc\td\n0.0\ta\tb\n", "line 2 has fewer than the five cells" },
        { "0.0\ta\tb\n", "names alone need the texts of the corpus" },
        { "1.0\ta\tb\tc\td\te\n", "line 1 has more than the five cells" },
        { "0.5\ta\tb\tc\td\n", "line 1 has the label '0.5', not 0.0 or 1.0" },
        { "1.0x\ta\tb\tc\td\n", "label '1.0x'" },
        { "\ta\tb\tc\td\n", "label ''" },
        { "nan\ta\tb\tc\td\n", "label 'nan'" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("p.tsv", cases[i][0]);
        expect_failure(tp_documents_pairs(in_folder("p.tsv"), TP_TRAIN, NULL), cases[i][1]);
    }
    expect_failure(tp_documents_pairs(folder, TP_TEST, NULL), "no file new_aan_pairs.test.tsv");
}

/* ---- grey images ---- */

enum { RECORD = 3073, PLANE = 1024 };

static void write_records(const char *name, int n, int first)
{
    static uint8_t bytes[20 * RECORD];
    for (int i = 0; i < n; i++) {
        bytes[i * RECORD] = (uint8_t)((first + i) % 10);
        for (int p = 0; p < 3 * PLANE; p++)
            bytes[i * RECORD + 1 + p] = (uint8_t)((first + i) * 7 + p % PLANE + 50 * (p / PLANE));
    }
    write_in_folder(name, bytes, (size_t)(n * RECORD));
}

Test(tasks, grey_images, .init = make_folder, .fini = remove_folder)
{
    shell("mkdir c");
    write_records("c/data_batch_2.bin", 8, 12);
    write_records("c/data_batch_1.bin", 12, 0);
    write_records("c/test_batch.bin", 3, 20);
    shell("tar czf c.tar.gz c/data_batch_2.bin c/data_batch_1.bin c/test_batch.bin");
    const char *const names[] = { "c", "c.tar.gz" };
    static const int first[] = { 0, 18, 20 }, count[] = { 18, 2, 3 };
    for (int f = 0; f < 2; f++)
        for (int part = 0; part < 3; part++) {
            tp_documents *X = tp_documents_cifar10(in_folder(names[f]), (tp_part)part, NULL);
            cr_assert_eq(tp_documents_count(X), count[part], "%s", tp_documents_why(X));
            for (int i = 0; i < count[part]; i++) {
                int64_t n;
                const uint16_t *ids = tp_documents_ids(X, i, 0, &n);
                cr_assert_eq(n, PLANE);
                cr_expect_eq(tp_documents_label(X, i), (first[part] + i) % 10);
                for (int p = 0; p < PLANE; p++) {
                    const uint8_t r = (uint8_t)((first[part] + i) * 7 + p);
                    const uint8_t g = (uint8_t)(r + 50), b = (uint8_t)(r + 100);
                    const double grey = (0.2989 * r + 0.5870 * g + 0.1140 * b) / 255 * 255.5;
                    cr_expect(grey - ids[p] > -1e-4 && grey - ids[p] < 1 + 1e-4, "%g %d", grey,
                              ids[p]);
                }
            }
            tp_documents_close(X);
        }
}

Test(tasks, grey_values_and_offsets, .init = make_folder, .fini = remove_folder)
{
    /* From TensorFlow's arithmetic in float32, evaluated with PyTorch. */
    static const struct {
        uint8_t rgb[3], grey;
    } cases[] = { { { 0, 0, 0 }, 0 },         { { 255, 255, 255 }, 255 }, { { 255, 0, 0 }, 76 },
                  { { 0, 255, 0 }, 149 },     { { 0, 0, 255 }, 29 },      { { 1, 1, 1 }, 1 },
                  { { 128, 128, 128 }, 128 }, { { 200, 100, 50 }, 124 },  { { 2, 2, 2 }, 2 } };
    static uint8_t bytes[10 * RECORD];
    for (int i = 0; i < 9; i++)
        for (int c = 0; c < 3; c++)
            for (int p = 0; p < PLANE; p++) bytes[i * RECORD + 1 + c * PLANE + p] = cases[i].rgb[c];
    write_in_folder("test_batch.bin", bytes, 9 * RECORD);
    for (int offset = 0; offset < 2; offset++) {
        tp_documents *X =
            tp_documents_cifar10(folder, TP_TEST, &(tp_documents_opts){ .pixel_offset = offset });
        for (int i = 0; i < 9; i++) {
            int64_t n;
            cr_expect_eq(tp_documents_ids(X, i, 0, &n)[PLANE - 1], cases[i].grey + offset,
                         "case %d: %d", i, tp_documents_ids(X, i, 0, &n)[0]);
        }
        tp_documents_close(X);
    }
}

Test(tasks, bad_grey_images, .init = make_folder, .fini = remove_folder)
{
    expect_failure(tp_documents_cifar10(folder, TP_TRAIN, NULL), "data_batch_1.bin ...");
    expect_failure(tp_documents_cifar10(folder, TP_TEST, NULL), "test_batch.bin is wanted");
    write_in_folder("test_batch.bin", "0123456789", 10);
    expect_failure(tp_documents_cifar10(folder, TP_TEST, NULL),
                   "has 10 bytes, not records of 3073");
    uint8_t bytes[2 * RECORD] = { 0 };
    bytes[RECORD] = 10;
    write_in_folder("data_batch_1.bin", bytes, sizeof bytes);
    expect_failure(tp_documents_cifar10(folder, TP_TRAIN, NULL), "the label 10 at byte 3073");
    write_records("data_batch_1.bin", 2, 0);
    expect_failure(
        tp_documents_cifar10(folder, TP_TRAIN, &(tp_documents_opts){ .damage = TP_DAMAGE_DELETE }),
        "images cannot be damaged");
    expect_failure(
        tp_documents_cifar10(folder, TP_TRAIN, &(tp_documents_opts){ .pixel_offset = -1 }),
        "the pixel offset -1");
}

Test(tasks, published_grey_images)
{
    static const int64_t count[] = { 360, 40, 100 };
    const char *path = TP_SOURCE_DIR "/../shared/data/cifar10/cifar-10-batches-bin-sample.tar.xz";
    if (access(path, R_OK) != 0) cr_skip_test("no %s", path);
    for (int p = 0; p < 3; p++) {
        tp_documents *X = tp_documents_cifar10(path, (tp_part)p, NULL);
        cr_expect_eq(tp_documents_count(X), count[p], "%s", tp_documents_why(X));
        tp_documents_close(X);
    }
}

/* ---- Pathfinder ---- */

enum { LISTED = 40 };

static void write_grey(const char *name, int64_t side, int value)
{
    tp_image p = { 0 };
    cr_assert(tp_image_new(&p, side, side));
    memset(p.rgb, value, (size_t)(3 * side * side));
    cr_assert(tp_image_write(&p, in_folder(name)), "%s", p.why);
    tp_image_free(&p);
}

/* Image i has the grey value i + 1 and the label i % 2; lists 2 and 10 have half of them each. */
static void make_paths(void)
{
    char name[128], list[2][4096] = { "", "" };
    make_folder();
    shell("mkdir -p p/curv_contour_length_14/imgs/2 p/curv_contour_length_14/imgs/10 "
          "p/curv_contour_length_14/metadata p/curv_baseline/imgs/2 p/curv_baseline/metadata");
    for (int i = 0; i < LISTED; i++) {
        const int k = i < LISTED / 2 ? 2 : 10;
        snprintf(name, sizeof name, "p/curv_contour_length_14/imgs/%d/sample_%d.png", k, i);
        write_grey(name, 32, i + 1);
        snprintf(list[k / 10] + strlen(list[k / 10]), 128,
                 "imgs/%d sample_%d.png %d %d 1.0 14 4.6 2 0.5 1 2.0\n", k, i, i, i % 2);
    }
    write_text("p/curv_contour_length_14/metadata/2.npy", list[0]);
    write_text("p/curv_contour_length_14/metadata/10.npy", list[1]);
    write_text("p/curv_baseline/metadata/2.npy", "imgs/2 sample_0.png 0 1\n");
    write_grey("p/curv_baseline/imgs/2/sample_0.png", 32, 99);
}

/* Marks the images of a part; returns their number. */
static int64_t mark_part(const char *path, tp_part part, const tp_documents_opts *o, int seen[])
{
    tp_documents *X = tp_documents_pathfinder(path, part, o);
    const int64_t count = tp_documents_count(X);
    cr_assert(tp_documents_ok(X), "%s", tp_documents_why(X));
    for (int64_t i = 0; i < count; i++) {
        int64_t n;
        const uint16_t *ids = tp_documents_ids(X, i, 0, &n);
        cr_assert_eq(n, 1024);
        seen[ids[0] - 1]++;
        cr_expect_eq(ids[1023], ids[0]);
        cr_expect_eq(tp_documents_label(X, i), (ids[0] - 1) % 2);
    }
    tp_documents_close(X);
    return count;
}

Test(tasks, pathfinder, .init = make_paths, .fini = remove_folder)
{
    shell("tar cf images_first.tar p/curv_contour_length_14/imgs p/curv_contour_length_14/metadata "
          "p/curv_baseline && tar cJf p.tar.xz p");
    const char *const names[] = { "p", "p/curv_contour_length_14", "images_first.tar", "p.tar.xz" };
    static const int64_t count[] = { 32, 4, 4 };
    uint64_t hash[4];
    for (int f = 0; f < 4; f++) {
        int seen[LISTED + 1] = { 0 };
        for (int part = 0; part < 3; part++)
            cr_expect_eq(mark_part(in_folder(names[f]), (tp_part)part, NULL, seen), count[part]);
        for (int i = 0; i < LISTED; i++) cr_expect_eq(seen[i], 1, "image %d", i);
        tp_documents *X = tp_documents_pathfinder(in_folder(names[f]), TP_TRAIN, NULL);
        hash[f] = tp_documents_hash(X);
        cr_expect_eq(hash[f], hash[0], "the split does not depend on how files are stored");
        tp_documents_close(X);
    }
    tp_documents *X =
        tp_documents_pathfinder(in_folder("p"), TP_TRAIN, &(tp_documents_opts){ .split = 1 });
    cr_expect_neq(tp_documents_hash(X), hash[0]);
    tp_documents_close(X);
    int seen[LISTED + 1] = { 0 };
    cr_expect_eq(mark_part(in_folder("p"), TP_TRAIN, &(tp_documents_opts){ .limit = 5 }, seen), 5);
}

Test(tasks, pathfinder_skips_empty_files, .init = make_paths, .fini = remove_folder)
{
    int seen[LISTED + 1] = { 0 };
    int64_t count = 0, notes = 0;
    write_in_folder("p/curv_contour_length_14/imgs/2/sample_3.png", "", 0);
    for (int part = 0; part < 3; part++) {
        count += mark_part(in_folder("p"), (tp_part)part, NULL, seen);
        tp_documents *X = tp_documents_pathfinder(in_folder("p"), (tp_part)part, NULL);
        if (tp_documents_note(X)[0]) {
            cr_expect_str_eq(tp_documents_note(X), "skipped 1 empty file: "
                                                   "curv_contour_length_14/imgs/2/sample_3.png");
            notes++;
        }
        tp_documents_close(X);
    }
    cr_expect_eq(count, LISTED - 1);
    cr_expect_eq(notes, 1);
}

static void expect_paths_fail(const char *list, const char *message)
{
    write_text("p/curv_contour_length_14/metadata/2.npy", list);
    expect_failure(tp_documents_pathfinder(in_folder("p"), TP_TRAIN, NULL), message);
}

Test(tasks, bad_pathfinder, .init = make_paths, .fini = remove_folder)
{
    tp_documents_opts o = { .level = "curv_contour_length_9" };
    expect_failure(tp_documents_pathfinder(in_folder("p"), TP_TRAIN, &o),
                   "no lists curv_contour_length_9/metadata/NUMBER.npy");
    shell("rm p/curv_contour_length_14/metadata/10.npy");
    expect_paths_fail("imgs/2 sample_0.png 0\n", "2.npy: line 1 is not a folder, a file");
    expect_paths_fail("imgs/2 sample_0.png 0 1\nimgs/2 sample_1.png 0 2\n", "line 2 is not");
    expect_paths_fail("../imgs/2 sample_0.png 0 1\n", "line 1 is not");
    expect_paths_fail("/etc passwd 0 1\n", "line 1 is not");
    expect_paths_fail("\x93NUMPY\x01", "is an array of NumPy");
    char many[2048] = "", *at = many;
    for (int i = 0; i < 10; i++) at += sprintf(at, "imgs/2 sample_%d.png 0 1\n", i == 5 ? 77 : i);
    expect_paths_fail(many, "sample_77.png is listed but not there");
    *strstr(many, "77") = '0'; /* _07 */
    memmove(strstr(many, "_07") + 1, strstr(many, "_07") + 2, strlen(strstr(many, "_07") + 2) + 1);
    for (int part = 0; part < 3; part++) /* it could be in two parts */
        expect_failure((write_text("p/curv_contour_length_14/metadata/2.npy", many),
                        tp_documents_pathfinder(in_folder("p"), (tp_part)part, NULL)),
                       "sample_7.png is listed twice");
    shell("cp p/curv_contour_length_14/imgs/2/sample_8.png "
          "p/curv_contour_length_14/imgs/2/sample_5.png");
    write_in_folder("p/curv_contour_length_14/imgs/2/sample_5.png", "GIF89a", 6);
    many[0] = '\0';
    for (int i = 0; i < 10; i++) sprintf(many + strlen(many), "imgs/2 sample_%d.png 0 1\n", i);
    expect_paths_fail(many, "sample_5.png: ");
    write_grey("p/curv_contour_length_14/imgs/2/sample_5.png", 33, 4);
    expect_paths_fail(many, "pixels, others");
    write_grey("p/curv_contour_length_14/imgs/2/sample_5.png", 129, 4);
    expect_paths_fail(many, "sample_5.png has 129 x 129 pixels; at most 16384 are read");
}

Test(tasks, drawn_paths)
{
    enum { N = 400 };
    tp_documents *X = tp_documents_drawn_paths(N, TP_TRAIN, 7, NULL);
    tp_documents *Y = tp_documents_drawn_paths(N / 2, TP_TRAIN, 7, NULL);
    tp_documents *Z = tp_documents_drawn_paths(N / 2, TP_TEST, 7, NULL);
    int64_t ones = 0, n;
    cr_assert_eq(tp_documents_count(X), N, "%s", tp_documents_why(X));
    for (int64_t i = 0; i < N; i++) {
        const uint16_t *ids = tp_documents_ids(X, i, 0, &n);
        int lit = 0, discs = 0;
        for (int p = 0; p < 1024; p++) lit += ids[p] > 0;
        for (int p = 0; p < 1024; p++) discs += ids[p] > 200;
        cr_expect(lit > 100 && lit < 600 && discs >= 6 && discs <= 26,
                  "image %lld: %d lit, %d discs", (long long)i, lit, discs);
        if (i < N / 2) cr_expect_arr_eq(ids, tp_documents_ids(Y, i, 0, &n), 2048);
        ones += tp_documents_label(X, i);
    }
    cr_expect(ones > 160 && ones < 240, "%lld ones", (long long)ones);
    cr_expect_neq(tp_documents_hash(Y), tp_documents_hash(Z));
    tp_documents_close(X);
    tp_documents_close(Y);
    tp_documents_close(Z);
    expect_failure(tp_documents_drawn_paths(0, TP_TRAIN, 7, NULL), "0 images");
}
