/* test_labelled_texts.c - labelled texts from folders, archives, CSV and JSON lines: contents,
 * parts, cuts, and messages for damaged files. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/labelled_texts.h>
#include <tapegrad/mlm.h>

#include "support/bpe.h"
#include "support/folder.h"

static tp_bpe *X;
static tp_bpe_coder *coder;

static void setup(void)
{
    static char vocab[16384];
    make_folder();
    bpe_small(vocab, "ab abc");
    X = tp_bpe_from("small", vocab, "a b\nab c\n", NULL);
    cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
    coder = tp_bpe_coder_new(X);
}

static void teardown(void)
{
    tp_bpe_coder_free(coder);
    tp_bpe_close(X);
    remove_folder();
}

static void shell(const char *command)
{
    char full[2048];
    snprintf(full, sizeof full, "cd '%s' && %s", folder, command);
    cr_assert_eq(system(full), 0, "%s", command);
}

static tp_documents *open_part(const char *name, tp_part part, tp_labelled_opts o)
{
    tp_documents *S = tp_documents_labelled_texts(name[0] ? in_folder(name) : folder, part, X, &o);
    cr_assert(tp_documents_ok(S), "%s", tp_documents_why(S));
    return S;
}

/* The text of example i between <s> and </s>, until the next call. */
static const char *text_of(const tp_documents *S, int64_t i)
{
    static int32_t ids[4096];
    int64_t n;
    const uint16_t *of = tp_documents_ids(S, i, 0, &n);
    cr_assert(n >= 2 && of[0] == 0 && of[n - 1] == 2);
    for (int64_t k = 1; k < n - 1; k++) ids[k] = of[k];
    return tp_bpe_decode(coder, ids + 1, n - 2, TP_BPE_RAW, NULL);
}

static void expect(const tp_documents *S, int64_t i, const char *class, const char *text)
{
    cr_assert_lt(i, tp_documents_count(S));
    const char *name = tp_documents_class(S, tp_documents_label(S, i));
    cr_expect_str_eq(text_of(S, i), text, "example %lld is '%s'", (long long)i, text_of(S, i));
    cr_expect_str_eq(name ? name : "none", class, "example %lld", (long long)i);
}

/* ---- files ---- */

TestSuite(labelled_texts, .init = setup, .fini = teardown);

Test(labelled_texts, csv_has_quotes_commas_and_line_ends)
{
    write_text("a.csv", "\xef\xbb\xbfid,label,text\r\n"
                        "1,pos,plain\r\n"
                        "\r\n"
                        "2,neg,\"She said \"\"no\"\", twice.\r\nAnd again,\"\r\n"
                        "3,\"pos\",\"\"\r\n"
                        "4,neg,  abc \n"
                        "5,neg,");
    tp_documents *S = open_part("a.csv", TP_TRAIN, (tp_labelled_opts){ .hold_back_every = -1 });
    cr_expect_eq(tp_documents_count(S), 5);
    cr_expect_eq(tp_documents_classes(S), 2);
    expect(S, 0, "pos", "plain");
    expect(S, 1, "neg", "She said \"no\", twice.\r\nAnd again,");
    expect(S, 2, "pos", "");
    expect(S, 3, "neg", "abc");
    expect(S, 4, "neg", "");
    cr_expect_eq(tp_documents_label(S, 0), 1, "classes are sorted");
    static const int line[] = { 2, 4, 6, 7, 8 };
    for (int i = 0; i < 5; i++) {
        char end[16];
        snprintf(end, sizeof end, "a.csv:%d", line[i]);
        cr_expect_str_eq(tp_documents_name(S, i), end);
    }
    int64_t n;
    const uint16_t *ids = tp_documents_ids(S, 3, 0, &n);
    cr_expect(n == 3 && ids[1] == tp_bpe_id(X, "abc"), "merges are applied");
    tp_documents_close(S);
}

/* The cells do not depend on where the reader's pieces end. */
Test(labelled_texts, csv_does_not_depend_on_pieces)
{
    FILE *f = fopen(in_folder("long.csv"), "wb");
    cr_assert(f);
    fprintf(f, "text,label\n");
    for (int i = 0; i < 30000; i++)
        fprintf(f, "\"%d\"\"%d,\n%d\",%s\r\n", i, i * 7, i % 13, i % 3 ? "x" : "y");
    fclose(f);
    shell("gzip -k long.csv");
    tp_documents *S = open_part("long.csv", TP_TRAIN, (tp_labelled_opts){ .hold_back_every = -1 });
    tp_documents *Z =
        open_part("long.csv.gz", TP_TRAIN, (tp_labelled_opts){ .hold_back_every = -1 });
    cr_assert_eq(tp_documents_count(S), 30000);
    for (int i = 0; i < 30000; i += i < 20 ? 1 : 37) {
        char text[64];
        snprintf(text, sizeof text, "%d\"%d,\n%d", i, i * 7, i % 13);
        expect(S, i, i % 3 ? "x" : "y", text);
    }
    cr_expect_eq(tp_documents_hash(S), tp_documents_hash(Z));
    tp_documents_close(S);
    tp_documents_close(Z);
}

Test(labelled_texts, json_lines_have_names_or_integers)
{
    write_text("a.jsonl",
               "{\"text\": \"one\\n\\u00e9\", \"label\": 10, \"more\": {\"text\": [1]}}\n"
               "\n  \r\n"
               "{\"label\": 9, \"text\": \"two\"}\r\n"
               "{\"label\": \"-1\", \"text\": \"\"}");
    tp_documents *S = open_part("a.jsonl", TP_TRAIN, (tp_labelled_opts){ .hold_back_every = -1 });
    cr_expect_eq(tp_documents_count(S), 3);
    expect(S, 0, "10", "one\n\xc3\xa9");
    expect(S, 1, "9", "two");
    expect(S, 2, "-1", "");
    cr_expect(tp_documents_label(S, 0) == 2 && tp_documents_label(S, 1) == 1 &&
                  tp_documents_label(S, 2) == 0,
              "integers are sorted by value");
    cr_expect(strstr(tp_documents_name(S, 1), "a.jsonl:4"), "%s", tp_documents_name(S, 1));
    tp_documents_close(S);
    write_text("b.ndjson",
               "{\"review\": \"x\", \"stars\": \"good\"}\n{\"review\": \"y\", \"stars\": 3}\n");
    S = open_part("b.ndjson", TP_TRAIN,
                  (tp_labelled_opts){ .text = "review", .label = "stars", .hold_back_every = -1 });
    expect(S, 0, "good", "x");
    expect(S, 1, "3", "y");
    cr_expect_eq(tp_documents_label(S, 1), 0, "mixed labels are sorted by bytes");
    tp_documents_close(S);
}

static void write_reviews(void)
{
    shell("mkdir -p train/neg train/pos train/unsup test/neg test/pos");
    for (int i = 0; i < 12; i++) {
        char name[64], text[64];
        snprintf(name, sizeof name, "train/%s/%d_1.txt", i % 2 ? "pos" : "neg", i);
        snprintf(text, sizeof text, "train %d\n", i);
        write_text(name, text);
        snprintf(name, sizeof name, "test/%s/%d_1.txt", i % 2 ? "pos" : "neg", i);
        if (i < 4) write_text(name, "test");
    }
    write_text("train/unsup/0_0.txt", "no label");
    write_text("README.txt", "not a review");
    write_text("train/urls_neg.txt", "http");
}

Test(labelled_texts, folders_and_archives_have_parts_and_classes)
{
    write_reviews();
    shell(
        "tar cf ../r.tar --transform 's,^,reviews/,' train test README.txt && mv ../r.tar . && xz "
        "-k r.tar");
    uint64_t hash[3];
    static const char *const path[] = { "", "r.tar", "r.tar.xz" };
    for (int k = 0; k < 3; k++) {
        tp_documents *S = open_part(path[k], TP_TRAIN, (tp_labelled_opts){ 0 });
        cr_expect_eq(tp_documents_count(S), 12, "%s", path[k]);
        expect(S, 0, "neg", "train 0");
        expect(S, 1, "neg", "train 10");
        expect(S, 6, "pos", "train 11");
        cr_expect(strstr(tp_documents_name(S, 6), "train/pos/11_1.txt"), "%s",
                  tp_documents_name(S, 6));
        hash[k] = tp_documents_hash(S);
        tp_documents_close(S);
        S = open_part(path[k], TP_VALID, (tp_labelled_opts){ 0 });
        cr_expect_eq(tp_documents_count(S), 4, "the test part serves for validation");
        expect(S, 3, "pos", "test");
        tp_documents_close(S);
    }
    cr_expect(hash[0] == hash[1] && hash[1] == hash[2]);
    tp_documents *S = open_part("", TP_TRAIN, (tp_labelled_opts){ .limit = 5 });
    cr_expect_eq(tp_documents_count(S), 5);
    expect(S, 2, "neg", "train 2");
    expect(S, 3, "pos", "train 11");
    tp_documents_close(S);
    S = open_part("train", TP_TEST, (tp_labelled_opts){ .hold_back_every = -1 });
    cr_expect_eq(tp_documents_count(S), 12, "a folder without parts");
    tp_documents_close(S);
}

Test(labelled_texts, every_nth_is_held_back)
{
    write_reviews();
    static const tp_labelled_opts asked = { .hold_back_every = 4 }, tenth = { 0 };
    tp_documents *T = open_part("", TP_TRAIN, asked), *V = open_part("", TP_VALID, asked),
                 *E = open_part("", TP_TEST, asked);
    cr_expect(tp_documents_count(T) == 9 && tp_documents_count(V) == 3);
    cr_expect_eq(tp_documents_count(E), 4, "the test part remains");
    expect(V, 0, "neg", "train 4");
    expect(V, 2, "pos", "train 9");
    expect(T, 3, "neg", "train 6");
    tp_documents_close(T), tp_documents_close(V), tp_documents_close(E);
    FILE *f = fopen(in_folder("one.csv"), "w");
    cr_assert(f);
    fprintf(f, "label,text\n");
    for (int i = 0; i < 25; i++) fprintf(f, "%c,%d\n", i == 9 ? 'a' : 'b', i);
    fclose(f);
    T = open_part("one.csv", TP_TRAIN, tenth), V = open_part("one.csv", TP_VALID, tenth),
    E = open_part("one.csv", TP_TEST, tenth);
    cr_expect(tp_documents_count(T) == 23 && tp_documents_count(V) == 2 &&
              tp_documents_count(E) == 2);
    cr_expect_eq(tp_documents_hash(V), tp_documents_hash(E));
    cr_expect_eq(tp_documents_classes(T), 2, "classes are those of all examples");
    expect(V, 0, "a", "9");
    expect(V, 1, "b", "19");
    tp_documents_close(T), tp_documents_close(V), tp_documents_close(E);
}

Test(labelled_texts, classes_are_those_of_the_training_part)
{
    write_text("train.csv", "text,label\nx,b\ny,c\nz,a\n");
    write_text("test.jsonl", "{\"text\":\"w\",\"label\":\"c\"}\n");
    tp_documents *S = open_part("", TP_TEST, (tp_labelled_opts){ 0 });
    cr_expect_eq(tp_documents_classes(S), 3);
    cr_expect_eq(tp_documents_label(S, 0), 2);
    tp_documents_close(S);
    static const char *const name[] = { "c", "a" };
    S = open_part("", TP_TEST, (tp_labelled_opts){ .name = name, .classes = 2 });
    cr_expect_eq(tp_documents_label(S, 0), 0, "the order is the model's");
    cr_expect_str_eq(tp_documents_class(S, 1), "a");
    tp_documents_close(S);
    S = tp_documents_labelled_texts(folder, TP_TRAIN, X,
                                    &(tp_labelled_opts){ .name = name, .classes = 2 });
    cr_expect(
        strstr(tp_documents_why(S), "train.csv:2: the label 'b' is not a class of the model: a, c"),
        "%s", tp_documents_why(S));
    tp_documents_close(S);
    write_text("test.jsonl", "{\"text\":\"w\",\"label\":\"d\"}\n");
    S = tp_documents_labelled_texts(folder, TP_TEST, X, NULL);
    cr_expect(strstr(tp_documents_why(S), "'d' is not a class of the training part: a, b, c"), "%s",
              tp_documents_why(S));
    tp_documents_close(S);
}

Test(labelled_texts, texts_for_a_prediction_need_no_labels)
{
    write_reviews();
    write_text("a.csv", "text\none\ntwo\n");
    static const tp_labelled_opts o = { .unlabelled = true };
    tp_documents *S = open_part("a.csv", TP_TEST, o);
    cr_expect_eq(tp_documents_count(S), 2);
    expect(S, 1, "none", "two");
    cr_expect_eq(tp_documents_label(S, 1), -1);
    tp_documents_close(S);
    S = open_part("", TP_TRAIN, o);
    cr_expect_eq(tp_documents_count(S), 14, "unsup and urls too: %lld",
                 (long long)tp_documents_count(S));
    tp_documents_close(S);
    S = open_part("train/pos", TP_TEST, o);
    cr_expect_eq(tp_documents_count(S), 6);
    expect(S, 0, "none", "train 11");
    tp_documents_close(S);
    S = open_part("README.txt", TP_TEST, o);
    cr_expect_eq(tp_documents_count(S), 1);
    expect(S, 0, "none", "not a review");
    cr_expect_str_eq(tp_documents_name(S, 0), "README.txt");
    tp_documents_close(S);
}

Test(labelled_texts, long_texts_keep_their_beginning_and_end)
{
    write_text("a.csv", "text,label\nabdefghijk,x\nabdef,x\n");
    tp_documents *S =
        open_part("a.csv", TP_TRAIN, (tp_labelled_opts){ .longest = 7, .hold_back_every = -1 });
    expect(S, 0, "x", "abdefg"); /* ab is one token */
    expect(S, 1, "x", "abdef");
    cr_expect_str_eq(tp_documents_note(S), "1 of 2 texts have more than 7 ids and were cut");
    tp_documents_close(S);
    S = open_part("a.csv", TP_TRAIN,
                  (tp_labelled_opts){ .longest = 7, .tail = 2, .hold_back_every = -1 });
    expect(S, 0, "x", "abdejk");
    expect(S, 1, "x", "abdef");
    tp_documents_close(S);
    S = tp_documents_new(1, 2);
    tp_documents_add_text(S, coder, 1, "stdin:1", " abc\n", 5, NULL);
    tp_documents_add_text(S, coder, -1, NULL, "abdefghijk", 10,
                          &(tp_labelled_opts){ .longest = 7, .tail = 5 });
    cr_assert_eq(tp_documents_count(S), 2, "%s", tp_documents_why(S));
    cr_expect_str_eq(text_of(S, 0), "abc");
    cr_expect_str_eq(text_of(S, 1), "ghijk");
    cr_expect(!strcmp(tp_documents_name(S, 0), "stdin:1") && !tp_documents_name(S, 1));
    tp_documents_add_text(S, coder, 2, NULL, "x", 1, NULL);
    cr_expect(strstr(tp_documents_why(S), "label 2, not 0 to 1"), "%s", tp_documents_why(S));
    tp_documents_close(S);
    S = tp_documents_new(2, 2);
    tp_documents_add_text(S, coder, 1, NULL, "abc", 3, NULL);
    cr_expect(strstr(tp_documents_why(S), "has 1 of 2 documents"), "%s", tp_documents_why(S));
    tp_documents_close(S);
}

/* A limit keeps the classes of the full training part, in which one class follows another. */
Test(labelled_texts, a_limit_of_texts_keeps_all_classes)
{
    write_text("train.csv", "text,label\na,x\nb,x\nc,y\n");
    write_text("test.csv", "text,label\nd,y\ne,x\n");
    for (int part = TP_TRAIN; part <= TP_TEST; part += TP_TEST - TP_TRAIN) {
        tp_documents *S = open_part("", (tp_part)part, (tp_labelled_opts){ .limit = 1 });
        cr_expect_eq(tp_documents_count(S), 1);
        cr_expect_eq(tp_documents_classes(S), 2);
        expect(S, 0, part == TP_TRAIN ? "x" : "y", part == TP_TRAIN ? "a" : "d");
        tp_documents_close(S);
    }
}

Test(labelled_texts, batches_are_padded_to_what_models_take)
{
    FILE *f = fopen(in_folder("a.csv"), "w");
    cr_assert(f);
    fprintf(f, "text,label\n");
    for (int i = 0; i < 40; i++)
        fprintf(f, "%.*s,%d\n", i, "dddddddddddddddddddddddddddddddddddddddddddd", i % 2);
    fclose(f);
    tp_documents *S = open_part("a.csv", TP_TRAIN, (tp_labelled_opts){ .hold_back_every = -1 });
    for (int beyond = 0; beyond < 2; beyond++) {
        tp_loader *L = tp_document_loader_new(
            S, &(tp_document_loader_opts){
                   .batch = 4, .bucket = 3, .multiple = 8, .beyond = beyond, .pad = 1 });
        tp_document_batch b;
        int batches = 0;
        for (; tp_document_loader_next(L, &b); batches++) {
            cr_expect(b.length[0] % 8 == beyond && b.length[0] >= b.longest[0] &&
                          b.length[0] < b.longest[0] + 8,
                      "%lld for %lld", (long long)b.length[0], (long long)b.longest[0]);
            for (int64_t i = 0; i < b.n; i++) {
                const int64_t n = b.index[i] + 2;
                const int32_t *ids = b.ids[0] + i * b.length[0];
                const uint8_t *mask = b.mask[0] + i * b.length[0];
                for (int64_t j = 0; j < b.length[0]; j++)
                    cr_assert((ids[j] != 1) == (j < n) && mask[j] == (j < n));
                cr_expect(ids[0] == 0 && ids[n - 1] == 2);
            }
        }
        cr_expect_eq(batches, 10);
        tp_loader_free(L);
    }
    tp_loader *L = tp_document_loader_new(
        S, &(tp_document_loader_opts){ .batch = 4, .packed = true, .pad = 1 });
    tp_document_batch b;
    cr_assert(tp_document_loader_next(L, &b), "%s", tp_loader_why(L));
    cr_expect(b.length[0] == 2 + 3 + 4 + 5 && b.offset[0][4] == 14 && b.ids[0][2] == 0);
    tp_loader_free(L);
    tp_documents_close(S);
}

/* ---- damaged files ---- */

Test(labelled_texts, damaged_files_say_where)
{
    static const struct {
        const char *name, *text, *why;
    } cases[] = {
        { "a.csv", "", "the heading is missing" },
        { "a.csv", "x,y\nz,y\n", "line 1: the heading has no column 'text'" },
        { "a.csv", "text;label\nx;y\n", "cells separated by semicolons" },
        { "a.csv", "text\tlabel\nx\ty\n", "separated by tabs; name such a file .tsv" },
        { "a.tsv", "text,label\nx,y\n", "separated by commas" },
        { "a.csv", "text,label,text\nx,y,z\n",
          "the heading has 2 columns 'text'; rename all but one" },
        { "a.csv", "label,text,label\nx,y,z\n", "the heading has 2 columns 'label'" },
        { "a.tsv", "text\tlabel\nx\ty\tz\n",
          "line 2: the row has 3 cells, the heading 2; put cells with tabs" },
        { "a.jsonl", "{\"text\": \"x\\u0000y\", \"label\": 1}\n",
          "the character \\u0000, which no text may have" },
        { "a.jsonl", "{\"text\": \"x\", \"label\": null}\n", "'label' is missing" },
        { "a.jsonl", "{\"text\": \"x\", \"label\": [1]}\n", "neither a string, a whole number" },
        { "a.csv", "text\nx\n", "line 1: the heading has no column 'label'" },
        { "a.csv", "text,label\n", "contains no texts" },
        { "a.csv", "text,label\nx,y,z\n", "line 2: the row has 3 cells, the heading 2" },
        { "a.csv", "text,label\n\"x\n\ny\",1\nz\n", "line 5: the row has 1 cells" },
        { "a.csv", "text,label\nx\"y,z\n", "line 2: a quote inside an unquoted cell" },
        { "a.csv", "text,label\n\"x\ny\"z,1\n", "line 3: text behind a closing quote" },
        { "a.csv", "text,label\na,b\n\"x\ny,1\n", "line 3: a quote of this row is never closed" },
        { "a.csv", "text,label\nx\ry,1\n", "line 2: a carriage return without" },
        { "a.csv", "text,label\nx,\n", "a.csv:2: a label is 1 to 255 bytes of UTF-8" },
        { "a.csv", "text,label\nx,\xff\n", "a.csv:2: a label is 1 to 255 bytes of UTF-8" },
        { "a.csv.gz", "text,label\nx,y\n", "is named .gz but is not a gzip file" },
        { "a.jsonl", "[{\"text\": \"x\"}]", "line 1: a list" },
        { "a.jsonl", "{\"text\": \"x\", \"label\": 1}\n{\"text\": \"x\",\n", "line 2" },
        { "a.jsonl", "\n{\"text\": 3, \"label\": 1}\n", "(line 2): 'text' is not a string" },
        { "a.jsonl", "{\"label\": 1}\n", "'text' is missing" },
        { "a.jsonl", "{\"text\": \"x\"}\n", "'label' is missing" },
        { "a.jsonl", "{\"text\": \"x\", \"label\": 1.5}\n",
          "neither a string, a whole number, true nor" },
        { "a.jsonl", "{\"text\": \"x\", \"text\": \"y\"}\n", "'text' occurs twice" },
        { "a.jsonl", "{\"text\": \"x\", \"label\": 1} 2\n", "more after the end" },
        { "a.jsonl", "\n\n", "contains no texts" },
        { "a.txt", "x", "has no labels; give a folder of classes" },
        { "a.tar", "not a tar file", "neither a folder nor a tar file" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(cases[i].name, cases[i].text);
        tp_documents *S = tp_documents_labelled_texts(in_folder(cases[i].name), TP_TRAIN, X, NULL);
        cr_expect(strstr(tp_documents_why(S), cases[i].why), "case %zu: %s", i,
                  tp_documents_why(S));
        cr_expect(strstr(tp_documents_why(S), cases[i].name), "case %zu names the file: %s", i,
                  tp_documents_why(S));
        cr_expect_eq(tp_documents_count(S), 0);
        tp_documents_close(S);
        remove(in_folder(cases[i].name));
    }
    static char deep[9 << 20] = "text,label\n\"";
    memset(deep + 12, 'x', sizeof deep - 12);
    write_in_folder("a.csv", deep, sizeof deep);
    tp_documents *S = tp_documents_labelled_texts(in_folder("a.csv"), TP_TRAIN, X, NULL);
    cr_expect(strstr(tp_documents_why(S), "line 2: a record of more than 8 MiB"), "%s",
              tp_documents_why(S));
    tp_documents_close(S);
}

static void expect_why(const char *path, tp_part part, tp_labelled_opts o, const char *why)
{
    tp_documents *S = tp_documents_labelled_texts(path, part, X, &o);
    cr_expect(strstr(tp_documents_why(S), why), "'%s' in: %s", why, tp_documents_why(S));
    tp_documents_close(S);
}

Test(labelled_texts, what_is_impossible_says_why)
{
    static const char *const twice[] = { "a", "a" };
    expect_why(folder, TP_TRAIN, (tp_labelled_opts){ 0 }, "contains no texts for the part 'train'");
    expect_why(folder, TP_TEST, (tp_labelled_opts){ .unlabelled = true },
               "there should be files .txt, .csv or .jsonl");
    expect_why(in_folder("none"), TP_TRAIN, (tp_labelled_opts){ 0 }, "none");
    expect_why(folder, TP_TRAIN, (tp_labelled_opts){ .longest = 2 }, "a length of 2 ids");
    expect_why(folder, TP_TRAIN, (tp_labelled_opts){ .longest = 9, .tail = 8 },
               "8 ids from the end of a text are not 0 to 7");
    expect_why(folder, TP_TRAIN, (tp_labelled_opts){ .hold_back_every = 1 },
               "leaves nothing to train");
    expect_why(folder, TP_TRAIN, (tp_labelled_opts){ .name = twice, .classes = 2 },
               "two classes have the name 'a'");
    write_text("few.csv", "text,label\nx,y\nz,y\n");
    expect_why(in_folder("few.csv"), TP_VALID, (tp_labelled_opts){ 0 },
               "of 2 texts none is left for the part 'valid' if every 10th is held back");
    write_text("test.csv", "text,label\nx,y\n");
    expect_why(folder, TP_TRAIN, (tp_labelled_opts){ 0 }, "has no part 'train'");
    write_text("test.jsonl", "");
    expect_why(folder, TP_TEST, (tp_labelled_opts){ 0 }, "has two files for the part test");
    write_text("train.csv", "text,label\nx,y\n");
    shell("tar cf ../t.tar --transform 's,^,set/,' train.csv && mv ../t.tar .");
    expect_why(in_folder("t.tar"), TP_TRAIN, (tp_labelled_opts){ 0 },
               "t.tar holds set/train.csv: CSV and JSON lines are not read from archives; unpack");
    tp_bpe *plain = tp_bpe_from("plain", "{\"<unk>\": 0, \"a\": 1}", "", NULL);
    tp_documents *S = tp_documents_labelled_texts(folder, TP_TRAIN, plain, NULL);
    cr_expect(strstr(tp_documents_why(S), "has no token <s>"), "%s", tp_documents_why(S));
    tp_documents_close(S);
    tp_bpe_close(plain);
}

/* ---- how files are written ---- */

static void run_shell(const char *command)
{
    char line[1000];
    snprintf(line, sizeof line, "cd '%s' && %s", folder, command);
    cr_assert_eq(system(line), 0, "%s", command); /* NOLINT(cert-env33-c): shell */
}

static void expect_texts(const char *name, const char *classes, const char *labels)
{
    char found[100] = "", seen[100] = "";
    tp_documents *S = open_part(name, TP_TRAIN, (tp_labelled_opts){ .hold_back_every = -1 });
    cr_assert(tp_documents_ok(S), "%s: %s", name, tp_documents_why(S));
    for (int k = 0; k < tp_documents_classes(S); k++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s", k ? " " : "",
                 tp_documents_class(S, k));
    for (int64_t i = 0; i < tp_documents_count(S); i++)
        snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%d",
                 (int)tp_documents_label(S, i));
    cr_expect_str_eq(found, classes, "%s", name);
    cr_expect_str_eq(seen, labels, "%s", name);
    tp_documents_close(S);
}

Test(labelled_texts, labels_are_read_however_they_are_written)
{
    write_text("bool.jsonl",
               "{\"text\": \"x\", \"label\": true}\n{\"text\": \"y\", \"label\": false}\n");
    expect_texts("bool.jsonl", "false true", "10");
    write_text("real.jsonl",
               "{\"text\": \"x\", \"label\": 10.0}\n{\"text\": \"y\", \"label\": 2}\n"
               "{\"text\": \"z\", \"label\": \"2.0\"}\n{\"text\": \"z\", \"label\": 1e1}\n");
    expect_texts("real.jsonl", "2 10", "1001");
    write_text("real.csv", "text,label\nx,1.0\ny,0.0\nz,1\nu,-1.00\nv,1.5\nw,-0.0\n");
    expect_texts("real.csv", "-1 0 1 1.5", "212031");
    write_text("odd.csv", "text,label\nx,.0\ny,1.\nz,1.0.0\nu,\"\"\"1\"\"\"\n");
    expect_texts("odd.csv", "\"1\" .0 1. 1.0.0", "1230");
}

Test(labelled_texts, a_model_whose_class_is_called_1_0_keeps_it)
{
    static const char *const names[] = { "0.0", "1.0" };
    write_text("a.csv", "text,label\nx,1.0\n");
    tp_documents *S = tp_documents_labelled_texts(
        in_folder("a.csv"), TP_TRAIN, X,
        &(tp_labelled_opts){ .hold_back_every = -1, .name = names, .classes = 2 });
    cr_assert(tp_documents_ok(S), "%s", tp_documents_why(S));
    cr_expect_eq(tp_documents_label(S, 0), 1);
    tp_documents_close(S);
}

Test(labelled_texts, tabs_separate_cells)
{
    write_text("a.tsv",
               "text\tlabel\r\nsay \"no\", twice\t1\r\n\"a\ttab\n\"\"and\"\" lines\"\t0\r\n");
    expect_texts("a.tsv", "0 1", "10");
    run_shell("mkdir d && cp a.tsv d/train.tsv && cp a.tsv d/test.tsv");
    expect_texts("d", "0 1", "10");
}

Test(labelled_texts, a_byte_order_mark_is_passed_over)
{
    static const struct {
        const char *name, *text;
    } files[] = { { "a.csv", "\xef\xbb\xbf"
                             "text,label\nx,1\n" },
                  { "a.tsv", "\xef\xbb\xbf"
                             "\"text\"\tlabel\nx\t1\n" },
                  { "a.jsonl", "\xef\xbb\xbf{\"text\": \"x\", \"label\": 1}\n" },
                  { "d/1/a.txt", "\xef\xbb\xbfx" } };
    run_shell("mkdir -p d/1");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int64_t n = 0;
        write_text(files[i].name, files[i].text);
        tp_documents *S = open_part(i == 3 ? "d" : files[i].name, TP_TRAIN,
                                    (tp_labelled_opts){ .hold_back_every = -1 });
        cr_assert(tp_documents_ok(S), "%s", tp_documents_why(S));
        tp_documents_ids(S, 0, 0, &n);
        cr_expect_eq(n, 3, "%s: %lld", files[i].name, (long long)n);
        tp_documents_close(S);
    }
}

Test(labelled_texts, other_encodings_are_named)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *why;
    } cases[] = { { "\xff\xfet\0,\0l\0\n\0", 10, "is UTF-16; convert it to UTF-8" },
                  { "t\0e\0x\0t\0,\0l\0\n\0", 14, "is UTF-16LE;" },
                  { "\0\0\0t\0\0\0e", 8, "is UTF-32BE;" },
                  { "text,label\nx\0,1\n", 16, "has a zero byte at offset 12:" } };
    static const char *const names[] = { "a.csv", "a.tsv", "a.jsonl", "d/1/a.txt" };
    run_shell("mkdir -p d/1");
    for (size_t i = 0; i < 16; i++) {
        const char *name = names[i / 4];
        write_in_folder(name, cases[i % 4].bytes, cases[i % 4].n);
        tp_documents *S =
            tp_documents_labelled_texts(in_folder(i / 4 == 3 ? "d" : name), TP_TRAIN, X, NULL);
        cr_expect(strstr(tp_documents_why(S), cases[i % 4].why) &&
                      strstr(tp_documents_why(S), name),
                  "%s, %zu: %s", name, i % 4, tp_documents_why(S));
        tp_documents_close(S);
    }
    static char late[400000];
    memset(late, 'x', sizeof late);
    memcpy(late, "text,label\n", 11);
    late[300000] = '\0';
    write_in_folder("late.csv", late, sizeof late);
    tp_documents *S = tp_documents_labelled_texts(in_folder("late.csv"), TP_TRAIN, X, NULL);
    cr_expect(strstr(tp_documents_why(S), "has a zero byte at offset 300000:"), "%s",
              tp_documents_why(S));
    tp_documents_close(S);
}

Test(labelled_texts, parts_are_different_files)
{
    write_text("a.csv", "text,label\nx,1\n");
    run_shell("mkdir d && cp a.csv d/train.csv && ln -s train.csv d/test.csv");
    tp_documents *S = tp_documents_labelled_texts(in_folder("d"), TP_TRAIN, X, NULL);
    cr_expect(strstr(tp_documents_why(S), "d/train.csv and"), "%s", tp_documents_why(S));
    cr_expect(strstr(tp_documents_why(S), "are one file"), "%s", tp_documents_why(S));
    tp_documents_close(S);
    run_shell("mkdir -p e/train/1 && echo x > e/train/1/a.txt && ln -s train e/test");
    S = tp_documents_labelled_texts(in_folder("e"), TP_TRAIN, X, NULL);
    cr_expect(strstr(tp_documents_why(S), "e/train and"), "%s", tp_documents_why(S));
    tp_documents_close(S);
}

Test(labelled_texts, unknown_bytes_are_said)
{
    tp_bpe *few = tp_bpe_from(
        "few", "{\"<s>\": 0, \"<pad>\": 1, \"</s>\": 2, \"<unk>\": 3, \"a\": 4, \"<mask>\": 5}", "",
        NULL);
    cr_assert(tp_bpe_ok(few), "%s", tp_bpe_why(few));
    write_text("a.csv", "text,label\naab,1\naaaaa,0\n");
    tp_documents *S =
        tp_documents_labelled_texts(in_folder("a.csv"), TP_TRAIN, few,
                                    &(tp_labelled_opts){ .hold_back_every = -1, .longest = 6 });
    cr_expect_str_eq(tp_documents_note(S),
                     "1 of 2 texts have more than 6 ids and were cut; "
                     "1 of 11 ids are <unk>, bytes that the vocabulary lacks");
    tp_documents_close(S);
    const char *path = in_folder("a.csv");
    for (int cached = 0; cached < 3; cached++) {
        char cache[600];
        snprintf(cache, sizeof cache, "%s/cache", folder);
        tp_corpus *C =
            tp_corpus_open(&path, 1, few, &(tp_corpus_opts){ .cache = cached ? cache : NULL });
        cr_assert(tp_corpus_ok(C), "%s", tp_corpus_why(C));
        cr_expect_eq(tp_corpus_was_cached(C), cached == 2);
        cr_expect_eq(tp_corpus_unknown(C), 16, "%lld", (long long)tp_corpus_unknown(C));
        tp_corpus_close(C);
    }
    tp_bpe_close(few);
}
