/* test_data.c - dictionaries, splits and batches of texts, on texts small enough to check by eye.
 * test_text_files.c tests reading texts from files. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/data.h>

#include "support/folder.h"

/* ---- dictionaries ---- */

static const struct {
    const char *name, *train;
    tp_text_style style;
    const char *printed;
    int64_t size;
} vocabs[] = {
    /* 'a' (97) and 'c' (99) tie; ties are in string order, where "100" precedes "97" */
    { "ties in string order", "bbbaaccd\n\n", TP_TEXT_ENWIK8, "enwik8:98,97,99,100", 8 },
    { "decimal names, not numbers", "\x09\x0b\x64\x63", TP_TEXT_ENWIK8, "enwik8:100,11,9,99", 8 },
    { "four symbols fill eight", "abcd", TP_TEXT_ENWIK8, "enwik8:100,97,98,99", 8 },
    { "five need sixteen", "abcde", TP_TEXT_ENWIK8, "enwik8:100,101,97,98,99", 16 },
    { "auto: letters and blanks", "a bb", TP_TEXT_AUTO, "text8:98,32,97", 8 },
    { "auto: a capital", "a Bb", TP_TEXT_AUTO, "enwik8:32,66,97,98", 8 },
    { "auto: a newline", "ab\n", TP_TEXT_AUTO, "enwik8:97,98", 8 },
    { "blanks at the ends do not count", "  b aab  ", TP_TEXT_TEXT8, "text8:97,98,32", 8 },
    { "underscore is the blank", "a_b_a", TP_TEXT_TEXT8, "text8:32,97,98", 8 },
    { "only newlines", "\n\n", TP_TEXT_ENWIK8, "enwik8:", 8 },
    { "bytes", "ab", TP_TEXT_BYTES, "bytes:", 256 },
    { "Transformer-XL: no specials, first come first", "b\nca\nc", TP_TEXT_TXL, "txl:99,98,97", 3 },
};

Test(data, vocab_build_and_print)
{
    for (size_t i = 0; i < sizeof vocabs / sizeof vocabs[0]; i++) {
        tp_vocab v, w;
        char text[2048] = "";
        const char *name = vocabs[i].name;
        tp_vocab_build(&v, vocabs[i].style, (const uint8_t *)vocabs[i].train,
                       (int64_t)strlen(vocabs[i].train));
        cr_expect(tp_vocab_print(&v, text, sizeof text), "%s", name);
        cr_expect_str_eq(text, vocabs[i].printed, "%s: %s", name, text);
        cr_expect_eq(v.size, vocabs[i].size, "%s: %lld", name, (long long)v.size);
        cr_expect(tp_vocab_parse(&w, text), "%s", name);
        cr_expect(w.style == v.style && w.size == v.size, "%s", name);
        cr_expect_arr_eq(w.id, v.id, sizeof v.id, "%s", name);
        cr_expect_arr_eq(w.symbol, v.symbol, sizeof v.symbol, "%s", name);
        for (int b = 0; b < 256; b++)
            if (v.id[b] > 3 && !(v.style == TP_TEXT_TEXT8 && b == '_'))
                cr_expect_eq(v.symbol[v.id[b]], b, "%s: byte %d", name, b);
    }
}

Test(data, vocab_ids_and_counts)
{
    tp_vocab v;
    tp_vocab_build(&v, TP_TEXT_ENWIK8, (const uint8_t *)"bab\n", 4);
    cr_expect_eq(v.id['\n'], 2);
    cr_expect_eq(v.id['b'], 4);
    cr_expect_eq(v.id['a'], 5);
    cr_expect_eq(v.id['z'], 3);
    cr_expect(v.count[2] == 0 && v.count[4] == 2 && v.count[5] == 1);
    uint8_t all[256];
    for (int b = 0; b < 256; b++) all[b] = (uint8_t)b;
    tp_vocab_build(&v, TP_TEXT_ENWIK8, all, 256);
    cr_expect_eq(v.size, 264, "4 + 255 symbols");
    char text[2048], small[16];
    cr_expect(tp_vocab_print(&v, text, sizeof text));
    cr_expect(tp_vocab_parse(&v, text));
    cr_expect_not(tp_vocab_print(&v, small, sizeof small), "too small a buffer");
}

/* ---- dictionaries of published models ---- */

static const struct {
    const char *name, *file;
    tp_text_style style;
    const char *printed; /* or the reason for the refusal */
    int64_t size;        /* 0: refused */
} files[] = {
    { "fairseq's of enwik8", "32 90\n101 80\n9 1\nmadeupword0000 0\n", TP_TEXT_AUTO,
      "enwik8:32,101,9", 8 },
    { "of text8, lines of another system", "_ 90\r\ne 80\r\n", TP_TEXT_AUTO, "text8:32,101", 8 },
    { "without counts", "e\nt", TP_TEXT_AUTO, "text8:101,116", 8 },
    { "of Transformer-XL", "32\n101\n", TP_TEXT_TXL, "txl:32,101", 2 },
    { "twice", "32 9\n32 8\n", TP_TEXT_AUTO, "line 2 ('32 8'): the symbol has an id already", 0 },
    { "a newline", "10 9\n", TP_TEXT_AUTO, "line 1 ('10 9'): the symbol has an id already", 0 },
    { "no byte", "256 9\n", TP_TEXT_AUTO,
      "line 1 ('256 9'): the symbol is neither a byte's number nor one character", 0 },
    { "words", "the 9\n", TP_TEXT_AUTO,
      "line 1 ('the 9'): the symbol is neither a byte's number nor one character", 0 },
    { "no count", "32 x\n", TP_TEXT_AUTO, "line 1 ('32 x'): after the symbol there is no count",
      0 },
    { "flags", "32 9 #fairseq:overwrite\n", TP_TEXT_AUTO, "there is no count", 0 },
    { "fillers between", "32 9\nmadeupword0000 0\n33 1\n", TP_TEXT_AUTO,
      "line 3 ('33 1'): a symbol follows the fillers", 0 },
    { "nothing", "\n\n", TP_TEXT_AUTO, "it has no symbols", 0 },
};

Test(data, vocab_files, .init = make_folder, .fini = remove_folder)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char text[2048] = "", why[512] = "";
        tp_vocab v;
        const char *path = write_text("dict.txt", files[i].file);
        const bool read = tp_vocab_load(&v, path, files[i].style, why, sizeof why);
        cr_expect_eq(read, files[i].size > 0, "%s: %s", files[i].name, why);
        if (!read) {
            cr_expect(strstr(why, "dict.txt: ") && strstr(why, files[i].printed), "%s: %s",
                      files[i].name, why);
            continue;
        }
        cr_expect(tp_vocab_print(&v, text, sizeof text));
        cr_expect_str_eq(text, files[i].printed, "%s: %s", files[i].name, text);
        cr_expect_eq(v.size, files[i].size, "%s", files[i].name);
    }
    char why[512];
    tp_vocab v;
    cr_expect_not(tp_vocab_load(&v, in_folder("none"), TP_TEXT_AUTO, why, sizeof why));
    cr_expect(strstr(why, "none: "), "%s", why);
    FILE *f = fopen(in_folder("long"), "wb"); /* too long: refused */
    cr_assert(f && fputs("32 9\n", f) >= 0);
    for (int i = 0; i < 1 << 20; i++) fputc('\n', f);
    cr_assert_eq(fclose(f), 0);
    cr_expect_not(tp_vocab_load(&v, in_folder("long"), TP_TEXT_AUTO, why, sizeof why));
    cr_expect(strstr(why, "long: it has more than 1048576 bytes"), "%s", why);
}

Test(data, vocab_parse_refuses)
{
    static const char *const bad[] = {
        "",           "enwik8",        "latin1:32",
        "enwik8:256", "enwik8:-1",     "enwik8:32,",
        "enwik8:,32", "enwik8:32,,33", "enwik8:32,32",
        "enwik8:10",  "enwik8:x",      "enwik8:32 33",
        "bytes:32",   "text8:32,95",   "enwik8:99999999999999999999",
        "txl:10",     "txl:32,32",     "txl",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tp_vocab v;
        cr_expect_not(tp_vocab_parse(&v, bad[i]), "'%s'", bad[i]);
    }
}

/* ---- texts ---- */

/* Ids are written as symbols: '|' for </s>, '?' for <unk>. */
static void expect_ids(const tp_text *X, tp_part s, const char *want, const char *name)
{
    int64_t n;
    const int16_t *ids = tp_text_ids(X, s, &n);
    const tp_vocab *v = tp_text_vocab(X);
    char got[256] = "";
    cr_assert(n < (int64_t)sizeof got);
    for (int64_t i = 0; i < n; i++)
        got[i] = v->symbol[ids[i]] >= 0 ? (char)v->symbol[ids[i]] : ids[i] == 2 ? '|' : '?';
    cr_expect_str_eq(got, want, "%s: part %d is '%s'", name, (int)s, got);
}

static const struct {
    const char *name, *text;
    tp_text_opts opts;
    const char *train, *valid, *test;
} texts[] = {
    { "newlines end lines",
      "ab\ncab\nbc",
      { .valid = 2. / 9, .test = 2. / 9 },
      "ab|ca|",
      "b|",
      "bc|" },
    { "unknown bytes", "abcaXabYba", { .valid = 0.4, .test = 0.1 }, "abcaX|", "ab?b|", "a|" },
    { "no test part", "abcabcabca", { .valid = 0.3 }, "abcabca|", "bca|", "" },
    { "text8 splits are stripped",
      " ab ba  ab ",
      { .valid = 4. / 11, .test = 3. / 11 },
      "ab|",
      "ba|",
      "ab|" },
    { "bytes end with nothing",
      "ab\nabababa",
      { .style = TP_TEXT_BYTES, .valid = 0.2, .test = 0.2 },
      "ab\naba",
      "ba",
      "ba" },
    { "Transformer-XL: newlines and unknown bytes vanish",
      "ab\nabc\nabac",
      { .style = TP_TEXT_TXL, .valid = 3. / 11, .test = 2. / 11 },
      "ababc",
      "ab",
      "ac" },
    { "limit",
      "abcdefghij????",
      { .valid = 0.2, .test = 0.2, .limit = 10 },
      "abcdef|",
      "??|",
      "??|" },
};

Test(data, text_splits)
{
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *name = texts[i].name;
        const int64_t n = (int64_t)strlen(texts[i].text);
        tp_text *X = tp_text_from((const uint8_t *)texts[i].text, n, &texts[i].opts);
        cr_expect(tp_text_ok(X), "%s: %s", name, tp_text_why(X));
        expect_ids(X, TP_TRAIN, texts[i].train, name);
        expect_ids(X, TP_VALID, texts[i].valid, name);
        expect_ids(X, TP_TEST, texts[i].test, name);
        tp_text_close(X);
    }
}

/* Default: 90 / 5 / 5 per cent: 90, 5 and 5 million bytes of a full-size file. */
Test(data, text_default_fractions)
{
    static const struct {
        int64_t all, train, part;
    } sizes[] = { { 100000000, 90000000, 5000000 }, { 1000, 900, 50 }, { 10, 8, 1 }, { 3, 3, 0 } };
    uint8_t *bytes = malloc((size_t)sizes[0].all);
    cr_assert(bytes);
    memset(bytes, 'a', (size_t)sizes[0].all);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        tp_text *X = tp_text_from(bytes, sizes[i].all, NULL);
        cr_expect_eq(tp_text_bytes(X, TP_TRAIN), sizes[i].train);
        cr_expect_eq(tp_text_bytes(X, TP_VALID), sizes[i].part);
        cr_expect_eq(tp_text_bytes(X, TP_TEST), sizes[i].part);
        tp_text_close(X);
    }
    free(bytes);
}

/* A checkpoint's dictionary is used unchanged, whatever the text. */
Test(data, text_given_vocab)
{
    tp_vocab v;
    cr_assert(tp_vocab_parse(&v, "enwik8:98,97"));
    tp_text *X = tp_text_from((const uint8_t *)"aaaaaaabcc", 10,
                              &(tp_text_opts){ .vocab = &v, .valid = 0.3 });
    expect_ids(X, TP_TRAIN, "aaaaaaa|", "given dictionary");
    expect_ids(X, TP_VALID, "b??|", "given dictionary");
    cr_expect_eq(tp_text_vocab(X)->id['b'], 4);
    tp_text_close(X);
}

Test(data, text_option_errors)
{
    static const struct {
        double valid, test;
        const char *why;
    } bad[] = {
        { 0.5, 0.5,
          "text in memory: validation and test fractions 0.5 and 0.5 leave no training text" },
        { -0.1, 0,
          "text in memory: validation and test fractions -0.1 and 0 leave no training text" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tp_text *X = tp_text_from((const uint8_t *)"abc", 3,
                                  &(tp_text_opts){ .valid = bad[i].valid, .test = bad[i].test });
        cr_expect_str_eq(tp_text_why(X), bad[i].why);
        tp_text_close(X);
    }
    tp_text *X = tp_text_from(NULL, 0, NULL);
    cr_expect_str_eq(tp_text_why(X), "the text in memory is empty");
    tp_text_close(X);
}

/* ---- batches of a text whose ids are its bytes 0 1 2 ... ---- */

static tp_text *digits(int n)
{
    uint8_t bytes[64];
    for (int i = 0; i < n; i++) bytes[i] = (uint8_t)i;
    return tp_text_from(bytes, n, &(tp_text_opts){ .style = TP_TEXT_BYTES, .valid = 1e-9 });
}

static const struct {
    const char *name;
    int n, batch, tokens, all, steps;
    int32_t x[3][6], y[3][6]; /* the first steps, then the step after the wrap */
} batches[] = {
    { "two streams, one block dropped",
      20,
      2,
      3,
      0,
      3,
      { { 0, 1, 2, 9, 10, 11 }, { 3, 4, 5, 12, 13, 14 }, { 6, 7, 8, 15, 16, 17 } },
      { { 1, 2, -1, 10, 11, -1 }, { 4, 5, -1, 13, 14, -1 }, { 7, 8, -1, 16, 17, -1 } } },
    { "all targets",
      20,
      2,
      3,
      1,
      3,
      { { 0, 1, 2, 9, 10, 11 }, { 3, 4, 5, 12, 13, 14 }, { 6, 7, 8, 15, 16, 17 } },
      { { 1, 2, 3, 10, 11, 12 }, { 4, 5, 6, 13, 14, 15 }, { 7, 8, 9, 16, 17, 18 } } },
    { "the last block is short",
      17,
      2,
      3,
      1,
      3,
      { { 0, 1, 2, 9, 10, 11 }, { 3, 4, 5, 12, 13, 14 }, { 6, 7, 8, 15, 16, 1 } },
      { { 1, 2, 3, 10, 11, 12 }, { 4, 5, 6, 13, 14, 15 }, { 7, 8, 9, 16, -1, -1 } } },
    { "wraps around",
      4,
      1,
      2,
      1,
      2,
      { { 0, 1 }, { 2, 3 }, { 0, 1 } },
      { { 1, 2 }, { 3, -1 }, { 1, 2 } } },
};

Test(data, batches_of_streams)
{
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        const char *name = batches[i].name;
        const size_t size = (size_t)(batches[i].batch * batches[i].tokens) * sizeof(int32_t);
        int32_t x[6], y[6];
        tp_text *X = digits(batches[i].n);
        tp_streams *S = tp_streams_new(X, TP_TRAIN,
                                       &(tp_streams_opts){ .batch = batches[i].batch,
                                                           .tokens = batches[i].tokens,
                                                           .all_targets = batches[i].all });
        cr_assert(tp_streams_ok(S), "%s: %s", name, tp_streams_why(S));
        cr_expect_eq(tp_streams_steps(S), batches[i].steps, "%s", name);
        for (int step = 0; step < 3; step++) {
            cr_expect_eq(tp_streams_position(S), step, "%s", name);
            cr_expect(tp_streams_next_host(S, x, y), "%s", name);
            cr_expect_arr_eq(x, batches[i].x[step], size, "%s: step %d", name, step);
            cr_expect_arr_eq(y, batches[i].y[step], size, "%s: targets of step %d", name, step);
        }
        tp_streams_seek(S, 1);
        tp_streams_next_host(S, x, y);
        cr_expect_arr_eq(x, batches[i].x[1], size, "%s: after a seek", name);
        tp_streams_seek(S, batches[i].steps * 1000000007LL);
        tp_streams_next_host(S, x, y);
        cr_expect_arr_eq(x, batches[i].x[0], size, "%s: after a long seek", name);
        tp_streams_seek(S, INT64_MAX);
        for (int step = 0; step < 2; step++) {
            tp_streams_next_host(S, x, y);
            const int64_t at = ((INT64_C(1) << 60) + step) % batches[i].steps;
            if (at < 3) cr_expect_arr_eq(x, batches[i].x[at], size, "%s: of the last", name);
        }
        tp_streams_free(S);
        tp_text_close(X);
    }
}

Test(data, batches_on_a_tape)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2 });
    tp_tape *T = tp_tape_new(D, NULL);
    tp_text *X = digits(20);
    tp_streams *S = tp_streams_new(
        X, TP_TRAIN, &(tp_streams_opts){ .batch = 2, .tokens = 3, .all_targets = true });
    tp_tensor x, y;
    int32_t got[6];
    tp_streams_next(S, T, &x, &y);
    cr_expect(tp_dim(x, 0) == 2 && tp_dim(x, 1) == 3 && tp_dtype_of(y) == TP_I32);
    cr_expect(tp_read(T, x, got, sizeof got), "%s", tp_why(T));
    cr_expect_arr_eq(got, batches[1].x[0], sizeof got);
    cr_expect(tp_read(T, y, got, sizeof got), "%s", tp_why(T));
    cr_expect_arr_eq(got, batches[1].y[0], sizeof got);
    tp_streams_free(S);
    S = tp_streams_new(X, TP_TRAIN, &(tp_streams_opts){ .batch = 0, .tokens = 3 });
    tp_streams_next(S, T, &x, &y);
    cr_expect(strstr(tp_why(T), "batches: 0 streams of 3 tokens are out of range"), "%s",
              tp_why(T));
    tp_streams_free(S);
    tp_text_close(X);
    tp_tape_free(T);
    tp_device_close(D);
}

/* Transformer-XL's dictionary of one symbol has no id 1, elsewhere <pad>. */
Test(data, padding_with_one_symbol)
{
    const tp_text_opts o = { .style = TP_TEXT_TXL, .valid = 0.1, .test = 0.1 };
    tp_text *X = tp_text_from((const uint8_t *)"aaaaaaaaaaaa", 12, &o);
    tp_streams *S = tp_streams_new(X, TP_TRAIN, &(tp_streams_opts){ .batch = 1, .tokens = 7 });
    int32_t x[7], y[7];
    cr_assert(tp_text_vocab(X)->size == 1 && tp_streams_steps(S) == 2, "%s", tp_streams_why(S));
    for (int step = 0; step < 2; step++) {
        cr_expect(tp_streams_next_host(S, x, y));
        for (int i = 0; i < 7; i++) cr_expect(x[i] == 0 && y[i] <= 0, "step %d: %d", step, x[i]);
    }
    tp_streams_free(S);
    tp_text_close(X);
}

Test(data, batch_errors)
{
    static const struct {
        int n;
        int64_t batch, tokens;
        const char *why;
    } bad[] = {
        { 20, 0, 3, "batches: 0 streams of 3 tokens are out of range" },
        { 20, 1, 0, "batches: 1 streams of 0 tokens are out of range" },
        { 20, INT64_MAX, 2, "batches: 9223372036854775807 streams of 2 tokens are out of range" },
        { 20, 3, 10,
          "batches: the training text has 20 tokens, too few for 3 streams of 10: give a longer "
          "text, fewer streams or shorter segments" },
        { 1, 1, 1,
          "batches: the training text has 1 tokens, too few for 1 streams of 1: give a longer "
          "text, fewer streams or shorter segments" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int32_t x[4], y[4];
        tp_text *X = digits(bad[i].n);
        tp_streams *S = tp_streams_new(
            X, TP_TRAIN, &(tp_streams_opts){ .batch = bad[i].batch, .tokens = bad[i].tokens });
        cr_expect_str_eq(tp_streams_why(S), bad[i].why);
        cr_expect_not(tp_streams_next_host(S, x, y));
        tp_streams_free(S);
        tp_text_close(X);
    }
    tp_text *X = tp_text_from(NULL, 0, NULL);
    tp_streams *S = tp_streams_new(X, TP_TRAIN, &(tp_streams_opts){ .batch = 1, .tokens = 1 });
    cr_expect_str_eq(tp_streams_why(S), "the text in memory is empty",
                     "a failed text's reason is kept");
    tp_streams_free(S);
    tp_text_close(X);
}
