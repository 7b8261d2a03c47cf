/* test_bpe.c - byte-pair encoding: the reference tables, and encoding and decoding beside a plain
 * implementation of the published algorithm. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/bpe.h>
#include <unistd.h>

#include "support/bpe.h"
#include "support/fixtures.h"

#include "parity.h"

static void run_table(const char *path, const char *vocab)
{
    parity_result r;
    cr_expect_eq(parity_run(&r, path, &(parity_opts){ .vocab = vocab }), 0, "%s: %s", path, r.why);
}

Test(bpe, reference_tables)
{
    char folder_path[900], path[1024];
    fixture_find("roberta", folder_path, sizeof folder_path);
    snprintf(path, sizeof path, "%s/bpe_cases.tsv", folder_path);
    run_table(path, NULL);
    snprintf(path, sizeof path, "%s/unicode_classes.tsv", folder_path);
    run_table(path, NULL);
}

static const char roberta[] = TP_SOURCE_DIR "/../shared/data/bpe";

/* The published vocabulary, or skips the test. */
static tp_bpe *published(void)
{
    if (access(roberta, R_OK) != 0) cr_skip_test("%s is not here", roberta);
    tp_bpe *X = tp_bpe_open(roberta);
    cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
    return X;
}

Test(bpe, published_vocabulary)
{
    char path[900];
    static const int32_t hello[] = { 31414, 232, 328 };
    int64_t n;
    tp_bpe *X = published();
    tp_bpe_coder *C = tp_bpe_coder_new(X);
    cr_expect_eq(tp_bpe_size(X), 50265);
    cr_expect_eq(tp_bpe_merges(X), 50000);
    cr_expect_eq(tp_bpe_special_id(X, TP_BPE_MASK), 50264);
    cr_expect_eq(tp_bpe_special_id(X, TP_BPE_UNKNOWN), 3);
    const int32_t *ids = tp_bpe_encode(C, "Hello world!", 12, &n);
    cr_expect(n == 3 && memcmp(ids, hello, sizeof hello) == 0);
    tp_bpe_coder_free(C);
    tp_bpe_close(X);
    fixture_find("roberta", path, sizeof path);
    strcat(path, "/bpe_cases_roberta_base.tsv");
    if (access(path, R_OK) == 0) run_table(path, roberta);
}

/* ---- small vocabularies ---- */

static void expect_tokens(tp_bpe_coder *C, const tp_bpe *X, const char *text, const char *wanted)
{
    char ours[512] = "";
    int64_t n;
    const int32_t *ids = tp_bpe_encode(C, text, strlen(text), &n);
    cr_assert(ids);
    for (int64_t i = 0; i < n; i++) sprintf(ours + strlen(ours), "%s|", tp_bpe_token(X, ids[i]));
    cr_expect_str_eq(ours, wanted, "'%s' is %s, not %s", text, ours, wanted);
}

Test(bpe, words)
{
    static char vocab[1 << 14];
    bpe_small(vocab, "ab aba He lo Helo \xc4\xa0He");
    tp_bpe *X = tp_bpe_from("test", vocab, "#version: 0.2\nH e\nl o\n\xc4\xa0 He\nHe lo\n", NULL);
    cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
    tp_bpe_coder *C = tp_bpe_coder_new(X);
    expect_tokens(C, X, "Helo Helo", "Helo|\xc4\xa0He|lo|");
    expect_tokens(C, X, "He's", "He|'|s|");
    expect_tokens(C, X, "<s>", "<|s|>|");
    expect_tokens(C, X, "", "");
    tp_bpe_coder_free(C);
    tp_bpe_close(X);
}

/* All occurrences of a pair are joined before the pairs that this creates, even of lower rank. */
Test(bpe, all_occurrences_come_first)
{
    static char vocab[1 << 14];
    bpe_small(vocab, "ab aba bb abb");
    tp_bpe *X = tp_bpe_from("test", vocab, "ab a\na b\n", NULL);
    cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
    tp_bpe_coder *C = tp_bpe_coder_new(X);
    expect_tokens(C, X, "abab", "ab|ab|");
    expect_tokens(C, X, "ababa", "ab|aba|");
    tp_bpe_coder_free(C);
    tp_bpe_close(X);
}

/* ---- decoding ---- */

static void expect_decoded(tp_bpe_coder *C, const char *bytes, int flags, const char *wanted)
{
    int64_t n;
    size_t size;
    const int32_t *ids = tp_bpe_encode(C, bytes, strlen(bytes), &n);
    int32_t copy[64];
    memcpy(copy, ids, (size_t)n * sizeof *copy);
    const char *text = tp_bpe_decode(C, copy, n, flags, &size);
    cr_assert(text);
    cr_expect_str_eq(text, wanted);
    cr_expect_eq(size, strlen(wanted));
}

#define BAD "\xef\xbf\xbd"

Test(bpe, what_is_not_utf8)
{
    static char vocab[1 << 14];
    bpe_small(vocab, "");
    tp_bpe *X = tp_bpe_from("test", vocab, "", NULL);
    tp_bpe_coder *C = tp_bpe_coder_new(X);
    cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
    expect_decoded(C, "a\xff\x80z", 0, "a" BAD BAD "z");
    expect_decoded(C, "a\xff\x80z", TP_BPE_RAW, "a\xff\x80z");
    expect_decoded(C, "\xe2\x82", 0, BAD); /* a character without its end: one mark */
    expect_decoded(C, "\xe2\x82x\xf0\x9f\x98", 0, BAD "x" BAD);
    expect_decoded(C, "\xed\xa0\x80", 0, BAD BAD BAD); /* a surrogate: three, as in Python */
    expect_decoded(C, "\xc0\xaf", 0, BAD BAD);
    expect_decoded(C, "\xf0\x80\x80\x80", 0, BAD BAD BAD BAD);
    expect_decoded(C, "\xf4\x90\x80\x80", 0, BAD BAD BAD BAD);
    expect_decoded(C, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 0,
                   "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    tp_bpe_coder_free(C);
    tp_bpe_close(X);
}

Test(bpe, special_tokens)
{
    static char vocab[1 << 14];
    bpe_small(vocab, "");
    tp_bpe *X = tp_bpe_from("test", vocab, "", NULL);
    tp_bpe_coder *C = tp_bpe_coder_new(X);
    const int32_t a = tp_bpe_id(X, "a"), mask = tp_bpe_special_id(X, TP_BPE_MASK);
    const int32_t ids[] = { 0, a, mask, 2, 1 }, outside[] = { (int32_t)tp_bpe_size(X) },
                  minus[] = { -1 };
    cr_expect_str_eq(tp_bpe_decode(C, ids, 5, 0, NULL), "<s>a<mask></s><pad>");
    cr_expect_str_eq(tp_bpe_decode(C, ids, 5, TP_BPE_SKIP_SPECIALS, NULL), "a");
    cr_expect_null(tp_bpe_decode(C, outside, 1, 0, NULL));
    cr_expect_null(tp_bpe_decode(C, minus, 1, 0, NULL));
    cr_expect_str_eq(tp_bpe_decode(C, ids, 0, 0, NULL), "");
    tp_bpe_coder_free(C);
    tp_bpe_close(X);
}

/* ---- a plain implementation of the published algorithm ---- */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Joins the ids of one word by the list of merges; returns how many remain. */
static int plain_merge(int32_t *ids, int n, const int32_t (*merge)[3], int merges)
{
    for (;;) {
        int best = merges;
        for (int i = 0; i + 1 < n; i++)
            for (int k = 0; k < best; k++)
                if (merge[k][0] == ids[i] && merge[k][1] == ids[i + 1]) best = k;
        if (best == merges) return n;
        int m = 0;
        for (int i = 0; i < n; m++) {
            const bool here = i + 1 < n && ids[i] == merge[best][0] && ids[i + 1] == merge[best][1];
            ids[m] = here ? merge[best][2] : ids[i];
            i += here ? 2 : 1;
        }
        n = m;
    }
}

/* Random merge lists in random order, over the letters a, b and c. */
Test(bpe, equals_the_plain_algorithm)
{
    static char vocab[1 << 14], merges[1 << 12], tokens[1 << 12];
    uint32_t random = 1;
    for (int round = 0; round < 200; round++) {
        char name[24][16] = { "a", "b", "c" };
        int names = 3, count = 0;
        int32_t merge[24][3];
        *tokens = *merges = '\0';
        for (int k = 0; k < 20; k++) {
            const int l = (int)next_random(&random) % names, r = (int)next_random(&random) % names;
            bool known = strlen(name[l]) + strlen(name[r]) > 12;
            for (int i = 0; i < count; i++) known |= merge[i][0] == l && merge[i][1] == r;
            if (known) continue;
            bpe_join(name[names], name[l], name[r]);
            int made = 0;
            while (strcmp(name[made], name[names]) != 0) made++;
            if (made == names) sprintf(tokens + strlen(tokens), "%s ", name[names++]);
            const int at = (int)next_random(&random) % (count + 1);
            memmove(merge + at + 1, merge + at, (size_t)(count - at) * sizeof *merge);
            merge[at][0] = l, merge[at][1] = r, merge[at][2] = made;
            count++;
        }
        for (int i = 0; i < count; i++)
            sprintf(merges + strlen(merges), "%s %s\n", name[merge[i][0]], name[merge[i][1]]);
        bpe_small(vocab, tokens);
        tp_bpe *X = tp_bpe_from("test", vocab, merges, NULL);
        cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
        tp_bpe_coder *C = tp_bpe_coder_new(X);
        for (int i = 0; i < 20; i++) {
            char text[64];
            int32_t ids[64];
            int64_t n;
            const int length = 1 + (int)next_random(&random) % 60;
            for (int c = 0; c < length; c++)
                text[c] = (char)('a' + (ids[c] = (int32_t)next_random(&random) % 3));
            const int wanted = plain_merge(ids, length, (const int32_t(*)[3])merge, count);
            const int32_t *ours = tp_bpe_encode(C, text, (size_t)length, &n);
            cr_assert_eq(n, wanted, "round %d: %.*s", round, length, text);
            for (int c = 0; c < wanted; c++)
                cr_assert_str_eq(tp_bpe_token(X, ours[c]), name[ids[c]]);
        }
        tp_bpe_coder_free(C);
        tp_bpe_close(X);
    }
}

/* Remembered words equal computed ones: more words than are kept, twice. */
Test(bpe, forgotten_words)
{
    static char vocab[1 << 14], text[1 << 21];
    bpe_small(vocab, "12 34 1234");
    tp_bpe *X = tp_bpe_from("test", vocab, "1 2\n3 4\n12 34\n", NULL);
    tp_bpe_coder *C = tp_bpe_coder_new(X);
    size_t size;
    int64_t n, again;
    char *to = text;
    for (int i = 0; i < 200000; i++) to += sprintf(to, " %d", i);
    const int32_t *ids = tp_bpe_encode(C, text, (size_t)(to - text), &n);
    int32_t *copy = malloc((size_t)n * sizeof *copy);
    memcpy(copy, ids, (size_t)n * sizeof *copy);
    ids = tp_bpe_encode(C, text, (size_t)(to - text), &again);
    cr_expect(n == again && memcmp(ids, copy, (size_t)n * sizeof *copy) == 0);
    const char *back = tp_bpe_decode(C, copy, n, 0, &size);
    cr_expect(size == (size_t)(to - text) && memcmp(back, text, size) == 0);
    free(copy);
    tp_bpe_coder_free(C);
    tp_bpe_close(X);
}
