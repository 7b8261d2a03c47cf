/* test_bpe.c - byte-pair encoding: the reference tables, readers and their messages, and encoding and training
 * beside plain implementations of the published algorithms. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/bpe.h>
#include <tapegrad/data.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "support_fixtures.h"
#include "support_folder.h"

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

/* The published vocabulary, or the test is skipped. */
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

/* The 256 bytes from id `first` on, as JSON members; returns the next id. */
static int put_bytes(char *to, int first)
{
    for (int c = 0; c <= 0x143; c++) {
        const bool direct = (c >= 33 && c <= 126) || (c >= 161 && c <= 255 && c != 173);
        if (!direct && c < 256) continue;
        if (c == '"' || c == '\\')
            to += sprintf(to, "\"\\%c\": %d, ", c, first++);
        else
            to += sprintf(to, "\"\\u%04x\": %d, ", c, first++);
    }
    return first;
}

/* A vocabulary of the specials, all bytes and these tokens, separated by blanks. */
static void small(char *to, const char *tokens)
{
    char word[64];
    strcpy(to, "{\"<s>\": 0, \"<pad>\": 1, \"</s>\": 2, \"<unk>\": 3, ");
    int id = put_bytes(to + strlen(to), 4), n;
    for (; sscanf(tokens, "%63s%n", word, &n) == 1; tokens += n)
        sprintf(to + strlen(to), "\"%s\": %d, ", word, id++);
    sprintf(to + strlen(to), "\"<mask>\": %d}", id);
}

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
    small(vocab, "ab aba He lo Helo \xc4\xa0He");
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

/* All occurrences of a pair are joined before what that makes possible, even if its rank is lower. */
Test(bpe, all_occurrences_come_first)
{
    static char vocab[1 << 14];
    small(vocab, "ab aba bb abb");
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
    small(vocab, "");
    tp_bpe *X = tp_bpe_from("test", vocab, "", NULL);
    tp_bpe_coder *C = tp_bpe_coder_new(X);
    cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
    expect_decoded(C, "a\xff\x80z", 0, "a" BAD BAD "z");
    expect_decoded(C, "a\xff\x80z", TP_BPE_RAW, "a\xff\x80z");
    expect_decoded(C, "\xe2\x82", 0, BAD); /* a character without its end: one mark */
    expect_decoded(C, "\xe2\x82x\xf0\x9f\x98", 0, BAD "x" BAD);
    expect_decoded(C, "\xed\xa0\x80", 0, BAD BAD BAD); /* a surrogate: three, as Python has it */
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
    small(vocab, "");
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

static void both(char *to, const char *a, const char *b)
{
    while (*a) *to++ = *a++;
    while (*b) *to++ = *b++;
    *to = '\0';
}

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

/* Random lists of merges in random order, over the letters a, b and c. */
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
            both(name[names], name[l], name[r]);
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
        small(vocab, tokens);
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

/* What was remembered is what would be computed: more different words than are kept, twice. */
Test(bpe, forgotten_words)
{
    static char vocab[1 << 14], text[1 << 21];
    small(vocab, "12 34 1234");
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

/* ---- messages ---- */

Test(bpe, bad_vocabularies_are_refused)
{
    static char whole[1 << 14], bytes[1 << 14];
    small(whole, "ab");
    strcpy(bytes, "{");
    const int next = put_bytes(bytes + 1, 0);
    strcpy(bytes + strlen(bytes) - 2, "}");
    cr_assert_eq(next, 256);
    const struct {
        const char *vocab, *merges, *dict, *why;
    } cases[] = {
        { "{\"a\": }", "", NULL, "vocabulary of test, line 1, column 7" },
        { "[]", "", NULL, "vocabulary of test is not a JSON object" },
        { "{\"a\": 0, \"a\": 1}", "", NULL, "duplicate" },
        { "{\"a\": 0.5}", "", NULL, "the id of the token 'a' is not a whole number" },
        { "{\"a\": 1}", "", NULL, "the id 1 of the token 'a' is not below the number of tokens" },
        { "{\"a\": -1}", "", NULL, "the id -1 of the token 'a' is not below" },
        { "{\"a\": 0, \"b\": 0}", "", NULL, "the id 0 of the token 'b' is another token's, too" },
        { "{\"a\": 0}", "", NULL,
          "no token stands for the byte 0 ('\xc4\x80'), and there is no <unk>" },
        { whole, "a b\nab\n", NULL,
          "merges of test, line 2 ('ab'): a merge is two tokens with a blank" },
        { whole, "a b c\n", NULL, "line 1 ('a b c'): a merge is two tokens" },
        { whole, "a  b\n", NULL, "line 1 ('a  b'): a merge is two tokens" },
        { whole, "#version: 1\na xx\n", NULL,
          "line 2 ('a xx'): a side of the merge is not in the vocabulary" },
        { whole, "a\rx b\n", NULL, "a merge has no line ends in it" },
        { whole, "b a\n", NULL, "line 1 ('b a'): its result is not in the vocabulary" },
        { whole, "a b\na b\n", NULL, "line 2 ('a b'): the pair has a merge already" },
        { whole, "<s> a\n", NULL, "its result is not in the vocabulary" },
        { bytes, "", "0 5\nx 1\n",
          "dictionary of test, line 2 ('x 1'): an id and a count are wanted" },
        { bytes, "", "0 5\n0 1\n",
          "dictionary of test, line 2: the id 0 is on an earlier line, too" },
        { bytes, "", "256 5\n", "line 1: the id 256 is not in the vocabulary" },
        { bytes, "", "0 5\n", "for which the dictionary has no line" },
        { bytes, "", "0 5\nmadeupword0000 0\nmadeupword0000 0\n",
          "the filler 'madeupword0000' is there twice" },
        { "{\"<s>\": 0}", "", "0 5\n",
          "vocabulary of test: the token '<s>' is special or a filler of the dictionary, too" },
        { "{\"madeupword0\": 0}", "", "0 5\nmadeupword0 0\n",
          "the token 'madeupword0' is special or a filler" },
        { "{\"a\": 0, \"b\": 0}", "", "0 5\n",
          "the id 0 of the token 'b' is another token's, too" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n;
        tp_bpe *X = tp_bpe_from("test", cases[i].vocab, cases[i].merges, cases[i].dict);
        cr_expect(!tp_bpe_ok(X) && strstr(tp_bpe_why(X), cases[i].why), "%s: %s", cases[i].why,
                  tp_bpe_why(X));
        cr_expect_eq(tp_bpe_size(X), 0);
        cr_expect_null(tp_bpe_token(X, 0));
        cr_expect_null(tp_bpe_vocab_text(X));
        tp_bpe_coder *C = tp_bpe_coder_new(X);
        cr_expect_null(tp_bpe_encode(C, "a", 1, &n));
        tp_bpe_coder_free(C);
        tp_bpe_close(X);
    }
}

Test(bpe, bad_tokenizers_are_refused)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "{", "test, line 1" },
        { "{}", "test: it has no model of byte-pair encoding" },
        { "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}, \"merges\": []}}",
          "it has no model of byte-pair" },
        { "{\"model\": {\"vocab\": {}, \"merges\": [], \"dropout\": 0.1}}",
          "its model has 'dropout'" },
        { "{\"model\": {\"vocab\": {}, \"merges\": []}, \"normalizer\": {}}",
          "it has a normalizer" },
        { "{\"model\": {\"vocab\": {}, \"merges\": []}}", "its pre_tokenizer is not ByteLevel" },
        { "{\"model\": {\"vocab\": {}, \"merges\": []}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
          "\"add_prefix_space\": true}}",
          "its pre_tokenizer adds a blank" },
        { "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}, "
          "\"added_tokens\": [{\"id\": 1, \"content\": \"a\"}]}",
          "added_tokens[0] ('a') has another id" },
        { "{\"model\": {\"vocab\": {\"a\": 0, \"<unk>\": 1}, \"merges\": [[\"a\"]]}, \"pre_tokenizer\": "
          "{\"type\": \"ByteLevel\"}}",
          "merges[0]: a merge is a text or two texts" },
        { "{\"model\": {\"vocab\": {\"a\\n\": 0, \"<unk>\": 1}, \"merges\": [[\"a\\n\", \"b\"]]}, \"pre_tokenizer\": "
          "{\"type\": \"ByteLevel\"}}",
          "merges[0]: a merge has no line ends in it" },
        { "{\"model\": {\"vocab\": {\"a\": 0, \"<unk>\": 1}, \"merges\": [\"a b\\r\"]}, \"pre_tokenizer\": "
          "{\"type\": \"ByteLevel\"}}",
          "merges[0]: a merge has no line ends in it" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_bpe *X = tp_bpe_from_json("test", cases[i].text);
        cr_expect(!tp_bpe_ok(X) && strstr(tp_bpe_why(X), cases[i].why), "%s: %s", cases[i].why,
                  tp_bpe_why(X));
        tp_bpe_close(X);
    }
}

/* Blank lines are no merges; more than 2^22 lines that may be some are refused. */
Test(bpe, number_of_merges)
{
    static char vocab[1 << 14];
    const size_t most = 1 << 22;
    char *merges = malloc(4 * (most + 1) + 1);
    small(vocab, "ab");
    memset(merges, '\n', 4 * (most + 1));
    strcpy(merges + 4 * (most + 1) - 3, "a b");
    tp_bpe *X = tp_bpe_from("test", vocab, merges, NULL);
    cr_expect(tp_bpe_merges(X) == 1, "%s", tp_bpe_why(X));
    tp_bpe_close(X);
    for (size_t i = 0; i <= most; i++) memcpy(merges + 4 * i, "a b\n", 4);
    X = tp_bpe_from("test", vocab, merges, NULL);
    cr_expect(strstr(tp_bpe_why(X), "merges of test has more than 4194304 merges"), "%s",
              tp_bpe_why(X));
    tp_bpe_close(X);
    merges[4 * most] = '\0'; /* as many as there may be: the second one is at fault */
    X = tp_bpe_from("test", vocab, merges, NULL);
    cr_expect(strstr(tp_bpe_why(X), "line 2 ('a b'): the pair has a merge already"), "%s",
              tp_bpe_why(X));
    tp_bpe_close(X);
    free(merges);
}

/* ---- files ---- */

static void write_text(const char *name, const char *text)
{
    char why[512];
    cr_assert(tp_file_replace(in_folder(name), text, strlen(text), why, sizeof why), "%s", why);
}

static void expect_same(const tp_bpe *a, const tp_bpe *b)
{
    cr_assert(tp_bpe_ok(a) && tp_bpe_ok(b), "%s%s", tp_bpe_why(a), tp_bpe_why(b));
    char *x = tp_bpe_vocab_text(a), *y = tp_bpe_vocab_text(b);
    cr_expect_str_eq(x, y);
    free(x), free(y);
    x = tp_bpe_merges_text(a), y = tp_bpe_merges_text(b);
    cr_expect_str_eq(x, y);
    free(x), free(y);
}

Test(bpe, files_of_all_kinds, .init = make_folder, .fini = remove_folder)
{
    static char vocab[1 << 14], json[1 << 15];
    char why[1024];
    small(vocab, "ab \xc4\xa0"
                 "ab");
    tp_bpe *X = tp_bpe_from("test", vocab, "a b\n\xc4\xa0 ab\n", NULL);
    cr_assert(tp_bpe_save(X, in_folder("saved"), why, sizeof why), "%s", why);
    tp_bpe *Y = tp_bpe_open(in_folder("saved"));
    expect_same(X, Y);
    tp_bpe_close(Y);
    Y = tp_bpe_open(in_folder("saved/vocab.json"));
    expect_same(X, Y);
    tp_bpe_close(Y);
    snprintf(
        json, sizeof json,
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"<s>\"}], \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": false}, \"model\": {\"type\": \"BPE\", \"dropout\": null, \"vocab\": %s, "
        "\"merges\": [\"a b\", [\"\xc4\xa0\", \"ab\"]]}}",
        vocab);
    write_text("saved/tokenizer.json", json);
    Y = tp_bpe_open(in_folder("saved")); /* it comes first */
    expect_same(X, Y);
    tp_bpe_close(Y);
    tp_bpe_close(X);
    Y = tp_bpe_open(in_folder("missing"));
    cr_expect(strstr(tp_bpe_why(Y), "missing: No such file"), "%s", tp_bpe_why(Y));
    tp_bpe_close(Y);
    Y = tp_bpe_open(folder);
    cr_expect(strstr(tp_bpe_why(Y), "the folder has no tokenizer.json"), "%s", tp_bpe_why(Y));
    tp_bpe_close(Y);
    write_text("vocab.json", vocab);
    Y = tp_bpe_open(folder);
    cr_expect(strstr(tp_bpe_why(Y), "merges.txt: cannot be opened"), "%s", tp_bpe_why(Y));
    tp_bpe_close(Y);
}

/* fairseq's dictionary gives GPT-2's tokens RoBERTa's ids. */
Test(bpe, dictionary)
{
    static char vocab[1 << 14], dict[1 << 14];
    strcpy(vocab, "{");
    put_bytes(vocab + 1, 0);
    strcat(vocab, "\"ab\": 256}");
    *dict = '\0';
    for (int i = 256; i >= 0; i--) sprintf(dict + strlen(dict), "%d %d\n", i, i);
    strcat(dict, "madeupword0000 0\n");
    tp_bpe *X = tp_bpe_from("test", vocab, "a b\n", dict);
    cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
    cr_expect_eq(tp_bpe_size(X), 4 + 258 + 1);
    cr_expect_eq(tp_bpe_id(X, "ab"), 4);
    cr_expect_eq(tp_bpe_id(X, "!"), 4 + 256);
    cr_expect_eq(tp_bpe_id(X, "madeupword0000"), 4 + 257);
    cr_expect_eq(tp_bpe_id(X, "<mask>"), 4 + 258);
    cr_expect_eq(tp_bpe_id(X, "<unk>"), 3);
    tp_bpe_close(X);
}

/* ---- training ---- */

/* The words of a text, as lists of names; the most frequent pair is found by counting all of them. */
typedef struct plain {
    int32_t *ids;
    int *length;
    int words;
    char name[600][64];
    int names, merges;
    int32_t merge[600][2];
} plain;

static bool keep_word(void *env, const char *at, size_t n)
{
    plain *p = env;
    int32_t *ids = p->ids;
    for (int k = 0; k < p->words; k++) ids += p->length[k];
    for (size_t i = 0; i < n; i++) ids[i] = (uint8_t)at[i];
    p->length[p->words++] = (int)n;
    return true;
}

/* order[id]: what decides ties, the place of the token among all */
static void plain_train(plain *p, int size, int least, const int *order)
{
    static int count[600][600];
    while (p->merges < size) {
        memset(count, 0, sizeof count);
        const int32_t *ids = p->ids;
        int best = 0, left = 0, right = 0;
        for (int k = 0; k < p->words; ids += p->length[k++])
            for (int i = 0; i + 1 < p->length[k]; i++) count[ids[i]][ids[i + 1]]++;
        for (int l = 0; l < p->names; l++)
            for (int r = 0; r < p->names; r++) {
                const bool first =
                    order[l] != order[left] ? order[l] < order[left] : order[r] < order[right];
                if (count[l][r] > best || (count[l][r] == best && best > 0 && first))
                    best = count[l][r], left = l, right = r;
            }
        if (best < least) return;
        const int made = p->names++;
        both(p->name[made], p->name[left], p->name[right]);
        p->merge[p->merges][0] = left, p->merge[p->merges++][1] = right;
        int32_t *from = p->ids, *to = p->ids;
        for (int k = 0; k < p->words; k++) {
            const int32_t *end = from + p->length[k];
            int n = 0;
            for (; from < end; n++) {
                const bool here = from + 1 < end && from[0] == left && from[1] == right;
                *to++ = here ? made : from[0];
                from += here ? 2 : 1;
            }
            p->length[k] = n;
        }
    }
}

static const char lines_of_verse[] =
    "The cat sat on the mat, the cat's mat; that fat cat sat and that was that.\n"
    "aaaa aaa aa aaaaaaa banana bananas ananas nananana 1122 11221122 2211\n"
    "They're here, we've seen it, she'll see it, I'm sure she'd see it.\n"
    "\xc3\xa9t\xc3\xa9 \xc3\xa9t\xc3\xa9s th\xc3\xa9 th\xc3\xa9s   the   then there other mother brother\n";

/* The order of the characters that stand for bytes. */
static int place_of(int byte)
{
    const bool direct = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    if (direct) return byte;
    return 256 + byte;
}

Test(bpe, training_equals_the_plain_algorithm)
{
    static plain p;
    static int32_t ids[8192];
    static int length[4096], order[600];
    for (int least = 1; least <= 3; least++) {
        p = (plain){ .ids = ids, .length = length, .names = 256 };
        for (int i = 0; i < 600; i++) order[i] = i < 256 ? place_of(i) : 256 + i;
        tp_bpe_words(lines_of_verse, strlen(lines_of_verse), keep_word, &p);
        for (int b = 0; b < 256; b++) snprintf(p.name[b], sizeof p.name[0], "%c", b);
        tp_bpe_trainer *R =
            tp_bpe_trainer_new(&(tp_bpe_trainer_opts){ .size = 261 + 200, .least = least });
        cr_assert(tp_bpe_trainer_add(R, lines_of_verse, strlen(lines_of_verse)), "%s",
                  tp_bpe_trainer_why(R));
        tp_bpe *X = tp_bpe_trainer_finish(R);
        cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
        plain_train(&p, 200, least, order);
        cr_expect_eq(tp_bpe_merges(X), p.merges, "%lld merges, not %d", (long long)tp_bpe_merges(X),
                     p.merges);
        cr_expect_eq(tp_bpe_size(X), 261 + p.merges);
        tp_bpe_coder *C = tp_bpe_coder_new(X);
        for (int k = 0; k < p.merges; k++) {
            const int32_t id = 260 + k;
            cr_assert_str_eq(tp_bpe_decode(C, &id, 1, TP_BPE_RAW, NULL), p.name[256 + k],
                             "merge %d", k);
        }
        int64_t n;
        cr_assert(tp_bpe_encode(C, lines_of_verse, strlen(lines_of_verse), &n));
        int64_t symbols = 0;
        for (int k = 0; k < p.words; k++) symbols += p.length[k];
        cr_expect_eq(n, symbols, "encoding merges what training has merged");
        tp_bpe_coder_free(C);
        tp_bpe_close(X);
        cr_expect_not(tp_bpe_trainer_add(R, "a", 1));
        X = tp_bpe_trainer_finish(R);
        cr_expect(strstr(tp_bpe_why(X), "it has ended"), "%s", tp_bpe_why(X));
        tp_bpe_close(X);
        tp_bpe_trainer_free(R);
    }
}

/* Parts of a text count like the whole, and special names are never made. */
Test(bpe, training_in_parts, .init = make_folder, .fini = remove_folder)
{
    const tp_bpe_trainer_opts o = { .size = 300 };
    static const char text[] = "<mask> <mask> <mask> <s> <s> <s> <s>";
    tp_bpe_trainer *R = tp_bpe_trainer_new(&o), *S = tp_bpe_trainer_new(&o);
    for (int i = 0; i < 4; i++) tp_bpe_trainer_add(R, text, sizeof text - 1);
    for (int i = 0; i < 2; i++) tp_bpe_trainer_add(S, text, sizeof text - 1);
    for (int i = 0; i < 2; i++) tp_bpe_trainer_add(S, text, sizeof text - 1);
    tp_bpe *X = tp_bpe_trainer_finish(R), *Y = tp_bpe_trainer_finish(S);
    expect_same(X, Y);
    cr_expect_eq(tp_bpe_special_id(X, TP_BPE_MASK), tp_bpe_size(X) - 1);
    tp_bpe_close(X), tp_bpe_close(Y);
    tp_bpe_trainer_free(R), tp_bpe_trainer_free(S);
    R = tp_bpe_trainer_new(NULL);
    X = tp_bpe_trainer_finish(R); /* no text at all: bytes */
    cr_expect_eq(tp_bpe_size(X), 261);
    tp_bpe_close(X);
    tp_bpe_trainer_free(R);
    R = tp_bpe_trainer_new(&(tp_bpe_trainer_opts){ .size = 100 });
    cr_expect_not(tp_bpe_trainer_add(R, "a", 1));
    X = tp_bpe_trainer_finish(R);
    cr_expect(strstr(tp_bpe_why(X), "261 to 4194304"), "%s", tp_bpe_why(X));
    tp_bpe_close(X);
    tp_bpe_trainer_free(R);
}
