/* test_documents.c - sets of documents in memory, and damage to texts. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/documents.h>

static void expect_failure(tp_documents *X, const char *message)
{
    cr_expect_not(tp_documents_ok(X), "%s", message);
    cr_expect(strstr(tp_documents_why(X), message), "'%s' in: %s", message, tp_documents_why(X));
    cr_expect_eq(tp_documents_count(X), 0);
    tp_documents_close(X);
}

Test(documents, examples_in_memory)
{
    const uint16_t a[] = { 1, 2, 3 }, b[] = { 9 };
    const uint16_t *const ab[] = { a, b }, *const ba[] = { b, a };
    const int64_t of_ab[] = { 3, 1 }, of_ba[] = { 1, 3 };
    tp_documents *X = tp_documents_new(2, 4), *Y = tp_documents_new(2, 4);
    int64_t n;
    for (int i = 0; i < 1000; i++) {
        tp_documents_add(X, i % 4, i % 2 ? ba : ab, i % 2 ? of_ba : of_ab);
        if (i < 999) tp_documents_add(Y, i % 4, i % 2 ? ba : ab, i % 2 ? of_ba : of_ab);
    }
    cr_expect_eq(tp_documents_count(X), 1000, "%s", tp_documents_why(X));
    cr_expect_eq(tp_documents_longest(X), 3);
    cr_expect_eq(tp_documents_per_example(X), 2);
    cr_expect_eq(tp_documents_classes(X), 4);
    cr_expect_eq(tp_documents_label(X, 778), 2);
    cr_expect_arr_eq(tp_documents_ids(X, 777, 1, &n), a, sizeof a);
    cr_expect_eq(n, 3);
    cr_expect_arr_eq(tp_documents_ids(X, 777, 0, &n), b, sizeof b);
    cr_expect_eq(n, 1);
    cr_expect_neq(tp_documents_hash(X), tp_documents_hash(Y));
    tp_documents_add(Y, 3, ba, of_ba);
    cr_expect_eq(tp_documents_hash(X), tp_documents_hash(Y));
    tp_documents_close(X);
    tp_documents_close(Y);
    tp_documents_close(NULL);
}

Test(documents, mistakes_are_named)
{
    const uint16_t a[] = { 1, 2, 3 };
    const uint16_t *const ids[] = { a };
    expect_failure(tp_documents_new(3, 2), "3 per example are not 1 or 2");
    expect_failure(tp_documents_new(1, 0), "0 classes");
    tp_documents *X = tp_documents_new(1, 2);
    tp_documents_add(X, 1, ids, (int64_t[]){ 3 });
    tp_documents_add(X, 2, ids, (int64_t[]){ 3 });
    tp_documents_add(X, 1, ids, (int64_t[]){ 3 });
    expect_failure(X, "example 1 has the label 2, not 0 to 1");
    X = tp_documents_new(1, 2);
    tp_documents_add(X, 1, ids, (int64_t[]){ 0 });
    expect_failure(X, "example 0 has an empty document");
    X = tp_documents_new(1, 2);
    tp_documents_add(X, 1, ids, (int64_t[]){ INT64_MAX / 2 });
    expect_failure(X, "out of memory after 0 examples");
}

/* ---- damage ---- */

static bool is_mark(uint8_t c)
{
    return c > 32 && c < 127 && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z');
}

Test(documents, deletion_removes_what_ascii_calls_punctuation)
{
    uint8_t all[256], kept[256];
    size_t n = 0;
    for (int c = 0; c < 256; c++) all[c] = (uint8_t)c;
    for (int c = 0; c < 256; c++)
        if (!is_mark((uint8_t)c)) kept[n++] = (uint8_t)c;
    cr_expect_eq(n, 256 - 32);
    cr_expect_eq(tp_delete_marks(all, 256, all), n, "in place");
    cr_expect_arr_eq(all, kept, n);
    cr_expect_eq(tp_delete_marks((const uint8_t *)"?!...", 5, all), 0);
    cr_expect_eq(tp_delete_marks(NULL, 0, all), 0);
}

Test(documents, insertion_keeps_the_text_and_its_characters)
{
    static const uint8_t text[] =
        "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\xc3\xa9"; /* 1 2 3 4 1 2 */
    enum { N = sizeof text - 1 };
    uint8_t out[N + 10], back[N + 10];
    int inside = 0;
    for (int sample = 0; sample < 200; sample++)
        for (int whole = 0; whole < 2; whole++) {
            cr_assert_eq(tp_insert_marks(text, N, sample, 0, whole, out), N + 10);
            cr_assert_eq(tp_delete_marks(out, N + 10, back), N, "the text has no marks itself");
            cr_expect_arr_eq(back, text, N);
            for (int i = 0; i + 1 < N + 10; i++) {
                const bool cut = is_mark(out[i]) && (out[i + 1] & 0xc0) == 0x80;
                cr_expect_not(whole && cut, "sample %d cuts a character", sample);
                inside += cut;
            }
        }
    cr_expect_gt(inside, 500, "without the option characters are cut");
}

Test(documents, insertion_between_characters_equals_that_between_bytes_of_ascii)
{
    static const uint8_t text[] = "plain text";
    uint8_t a[20], b[20];
    for (int sample = 0; sample < 50; sample++) {
        tp_insert_marks(text, 10, sample, 1, false, a);
        tp_insert_marks(text, 10, sample, 1, true, b);
        cr_expect_arr_eq(a, b, 20, "sample %d", sample);
        tp_insert_marks(text, 10, sample, 0, true, b);
        cr_expect(memcmp(a, b, 20) != 0, "documents have streams of their own");
    }
}
