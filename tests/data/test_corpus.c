/* test_corpus.c - texts for masked language modelling: their documents, tokens that depend neither
 * on pieces nor on threads nor on the cache, held-out tokens. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <tapegrad/mlm.h>

#include "support/corpus.h"
#include "support/folder.h"

TestSuite(corpus, .init = corpus_begin, .fini = corpus_end);

/* ---- texts ---- */

Test(corpus, documents_end_where_the_options_say)
{
    write_text("a", "\xef\xbb\xbf\n one\ntwo\n \t\n\n three \r\n\r\nfour");
    write_text("empty", "\n  \n");
    static const struct {
        tp_document_end end;
        const char *text;
    } cases[] = { { TP_DOCUMENT_FILE, "one\ntwo\n \t\n\n three \r\n\r\nfour|" },
                  { TP_DOCUMENT_BLANK, "one\ntwo|three|four|" },
                  { TP_DOCUMENT_LINE, "one|two|three|four|" } };
    for (int k = 0; k < 3; k++) {
        tp_corpus *C = corpus_of("a", (tp_corpus_opts){ .end = cases[k].end, .held_out = -1 });
        cr_expect_str_eq(corpus_text(C), cases[k].text, "%d: %s", k, corpus_text(C));
        cr_expect_eq(tp_corpus_documents(C), k == 0 ? 1 : k + 2);
        cr_expect_eq(tp_corpus_bytes(C), 32);
        tp_corpus_close(C);
        C = corpus_try("empty", (tp_corpus_opts){ .end = cases[k].end });
        cr_expect(strstr(tp_corpus_why(C), "empty contains no text"), "%s", tp_corpus_why(C));
        tp_corpus_close(C);
    }
    tp_corpus *C = corpus_of("a", (tp_corpus_opts){ .limit = 8, .held_out = -1 });
    cr_expect_str_eq(corpus_text(C), "one|");
    tp_corpus_close(C);
}

Test(corpus, a_file_that_is_no_text_is_refused)
{
    write_in_folder("wide.txt", "\xff\xfeo\0n\0e\0", 8);
    corpus_shell("tar cf wide.tar wide.txt && gzip -k wide.txt");
    static const char *const names[][2] = { { "wide.txt", "wide.txt is UTF-16" },
                                            { "wide.txt.gz", "wide.txt.gz is UTF-16" },
                                            { "wide.tar", "wide.tar: wide.txt is UTF-16" } };
    for (int k = 0; k < 3; k++) {
        tp_corpus *C = corpus_try(names[k][0], (tp_corpus_opts){ 0 });
        cr_expect(strstr(tp_corpus_why(C), names[k][1]), "%s", tp_corpus_why(C));
        tp_corpus_close(C);
    }
}

Test(corpus, files_come_from_folders_archives_and_packed_files)
{
    corpus_shell("mkdir -p d/b d/.hidden");
    write_text("d/b/2.txt", "second");
    write_text("d/a.txt", "first\n");
    write_text("d/c.txt", "third");
    write_text("d/c.csv", "other");
    write_text("d/.hidden/x.txt", "hidden");
    corpus_shell("gzip d/c.txt && tar cf d.tar d/a.txt d/b/2.txt && xz -k d.tar");
    tp_corpus *C = corpus_of("d", (tp_corpus_opts){ .held_out = -1 });
    cr_expect_str_eq(corpus_text(C), "first|second|third|");
    tp_corpus_close(C);
    C = corpus_of("d.tar.xz", (tp_corpus_opts){ .held_out = -1 });
    cr_expect_str_eq(corpus_text(C), "first|second|");
    tp_corpus_close(C);
    char path[2][600];
    const char *both[2] = { path[0], path[1] };
    snprintf(path[0], 600, "%s", in_folder("d/c.csv"));
    snprintf(path[1], 600, "%s", in_folder("d/c.txt.gz"));
    C = tp_corpus_open(both, 2, corpus_vocabulary, &(tp_corpus_opts){ .held_out = -1 });
    cr_expect_str_eq(corpus_text(C), "other|third|", "a path may have any name");
    tp_corpus_close(C);
}

/* A file read twice would be in the training part and in the held-out part. */
Test(corpus, a_file_that_is_named_twice_is_refused)
{
    static const char *const names[][2] = { { "d", "d/a.txt" },
                                            { "d/a.txt", "d/a.txt" },
                                            { "d/a.txt", "link" },
                                            { "d.tar", "d.tar" },
                                            { "e", "e/../d/a.txt" } };
    corpus_shell("mkdir d e");
    write_text("d/a.txt", "one two three");
    corpus_shell("ln -s d/a.txt link && tar cf d.tar d/a.txt && ln -s ../d/a.txt e/b.txt");
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        for (int cached = 0; cached < 2; cached++) {
            char path[2][600];
            const char *both[2] = { path[0], path[1] };
            for (int i = 0; i < 2; i++) snprintf(path[i], 600, "%s/%s", folder, names[k][i]);
            tp_corpus *C =
                tp_corpus_open(both, 2, corpus_vocabulary,
                               &(tp_corpus_opts){ .cache = cached ? in_folder("cache") : NULL });
            cr_expect(strstr(tp_corpus_why(C), "is among the texts twice"), "%zu: %s", k,
                      tp_corpus_why(C));
            tp_corpus_close(C);
        }
}

Test(corpus, a_byte_order_mark_is_passed_over_and_zero_bytes_are_found_anywhere)
{
    FILE *f = fopen(in_folder("late.txt"), "wb");
    cr_assert(f);
    for (int i = 0; i < 300000; i++) putc(i == 290000 ? 0 : i % 5 ? 'a' : ' ', f);
    cr_assert_eq(fclose(f), 0);
    tp_corpus *C = corpus_try("late.txt", (tp_corpus_opts){ 0 });
    cr_expect(strstr(tp_corpus_why(C), "late.txt has a zero byte at offset 290000"), "%s",
              tp_corpus_why(C));
    tp_corpus_close(C);
    write_text("mark.txt", "\xef\xbb\xbfone two");
    C = corpus_of("mark.txt", (tp_corpus_opts){ .held_out = -1 });
    cr_expect_str_eq(corpus_text(C), "one two|");
    cr_expect_eq(tp_corpus_bytes(C), 10);
    tp_corpus_close(C);
}

/* A text of 3 MiB in one document: any number of threads gives the tokens of the full text. */
Test(corpus, pieces_and_threads_make_no_difference)
{
    corpus_sentences("long", 700000, 1, "\n");
    corpus_sentences("many", 300000, 2, "\n\n");
    corpus_shell("gzip -k long && xz -k -0 long");
    FILE *f = fopen(in_folder("long"), "rb");
    static char text[4 << 20];
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    cr_assert(n > 3 << 20 && n < sizeof text);
    while (strchr(" \n", text[n - 1])) n--;
    tp_bpe_coder *coder = tp_bpe_coder_new(corpus_vocabulary);
    int64_t count;
    const int32_t *ids = tp_bpe_encode(coder, text, n, &count);
    static const char *const name[] = { "long", "long.gz", "long.xz" };
    for (int k = 0; k < 3; k++) {
        tp_corpus *C = corpus_of(name[k], (tp_corpus_opts){ .threads = 1 + k, .held_out = -1 });
        cr_assert_eq(tp_corpus_tokens(C, TP_TRAIN), count + 1);
        int32_t *got = malloc((size_t)(count + 1) * sizeof *got);
        corpus_tokens(C, TP_TRAIN, 0, count + 1, got);
        int64_t i = 0;
        while (i < count && got[i] == ids[i]) i++;
        cr_expect(i == count && got[i] == 2, "%s: token %lld differs", name[k], (long long)i);
        free(got);
        tp_corpus_close(C);
    }
    tp_bpe_coder_free(coder);
    for (int end = TP_DOCUMENT_BLANK; end <= TP_DOCUMENT_LINE; end++) {
        uint64_t hash = 0;
        for (int threads = 1; threads <= 5; threads++) {
            tp_corpus *C = corpus_of(
                "many", (tp_corpus_opts){ .end = (tp_document_end)end, .threads = threads });
            cr_expect(threads == 1 || tp_corpus_hash(C) == hash, "%d threads", threads);
            hash = tp_corpus_hash(C);
            cr_expect_gt(tp_corpus_documents(C), 20000);
            tp_corpus_close(C);
        }
    }
}

/* Words without letters and spaces are cut between characters. */
Test(corpus, a_text_without_words_is_cut)
{
    FILE *f = fopen(in_folder("a"), "wb");
    for (int i = 0; i < 800000; i++) fputs("\xe4\xb8\xad", f);
    fclose(f);
    tp_corpus *C = corpus_of("a", (tp_corpus_opts){ .held_out = -1 });
    cr_expect_eq(tp_corpus_tokens(C, TP_TRAIN), 2400001);
    cr_expect_eq(tp_corpus_documents(C), 1);
    tp_corpus_close(C);
}

/* ---- parts ---- */

Test(corpus, parts_share_the_stream)
{
    static const double fraction[] = { -1, 0, 0.1, 0.49, 1e-9 };
    corpus_sentences("a", 5000, 3, "\n");
    tp_corpus *All = corpus_of("a", (tp_corpus_opts){ .held_out = -1 });
    const int64_t n = tp_corpus_tokens(All, TP_TRAIN);
    int32_t *all = malloc(2 * (size_t)n * sizeof *all), *part = all + n;
    corpus_tokens(All, TP_TRAIN, 0, n, all);
    for (int k = 0; k < 5; k++) {
        tp_corpus *C = corpus_of("a", (tp_corpus_opts){ .held_out = fraction[k] });
        const int64_t t = tp_corpus_tokens(C, TP_TRAIN), v = tp_corpus_tokens(C, TP_VALID);
        const double f = fraction[k] == 0 ? 0.05 : fmax(0, fraction[k]);
        cr_expect_eq(t + v, n);
        cr_expect(fabs((double)v - f * (double)n) <= 16, "%g: %lld of %lld", f, (long long)v,
                  (long long)n);
        corpus_tokens(C, TP_TRAIN, 0, t, part);
        for (int64_t i = 0; i < t; i += 7) { /* pieces equal the full text's */
            int32_t some[40];
            const int64_t m = t - i < 40 ? t - i : 40;
            corpus_tokens(C, TP_TRAIN, i, m, some);
            cr_assert_arr_eq(some, part + i, (size_t)m * sizeof *some);
        }
        int64_t valid = 0, train = 0; /* both parts in turn: the stream */
        int32_t *held = malloc((size_t)(v + 1) * sizeof *held);
        corpus_tokens(C, TP_VALID, 0, v, held);
        for (int64_t s = 0, at = 0; s < 16; s++) {
            const int64_t length = n / 16 + (s < n % 16), h = (int64_t)(f * (double)length);
            cr_assert_arr_eq(all + at, part + train, (size_t)(length - h) * sizeof *all);
            cr_assert_arr_eq(all + at + length - h, held + valid, (size_t)h * sizeof *held);
            at += length, train += length - h, valid += h;
        }
        char why[200];
        cr_expect_not(tp_corpus_read(C, TP_TRAIN, t - 3, 4, part, why, sizeof why));
        free(held);
        tp_corpus_close(C);
    }
    free(all);
    tp_corpus_close(All);
}

/* ---- the cache ---- */

Test(corpus, a_cache_holds_the_same_tokens)
{
    char cache[600];
    snprintf(cache, sizeof cache, "%s", in_folder("tokens"));
    corpus_sentences("a", 3000, 6, "\n\n");
    const tp_corpus_opts o = { .end = TP_DOCUMENT_BLANK, .cache = cache };
    tp_corpus *Memory = corpus_of("a", (tp_corpus_opts){ .end = TP_DOCUMENT_BLANK }),
              *First = corpus_of("a", o), *Again = corpus_of("a", o);
    const tp_corpus *const all[] = { Memory, First, Again };
    cr_expect(!tp_corpus_was_cached(Memory) && !tp_corpus_was_cached(First) &&
              tp_corpus_was_cached(Again));
    uint64_t hash[3];
    for (int k = 0; k < 3; k++) {
        tp_loader *L = corpus_batches(all[k], (tp_mlm_loader_opts){ .train = true, .seed = 3 });
        tp_mlm_batch b;
        corpus_next(L, &b);
        hash[k] = corpus_batch_hash(&b);
        tp_loader_free(L);
        cr_expect_eq(tp_corpus_hash(all[k]), tp_corpus_hash(Memory));
        cr_expect_eq(tp_corpus_documents(all[k]), tp_corpus_documents(Memory));
        cr_expect_eq(tp_corpus_bytes(all[k]), tp_corpus_bytes(Memory));
    }
    cr_expect(hash[0] == hash[1] && hash[1] == hash[2]);
    cr_expect_eq(files_in_folder(), 2, "nothing else is left");
    tp_corpus_close(Memory), tp_corpus_close(First), tp_corpus_close(Again);
}

static bool is_cached(tp_corpus_opts o)
{
    tp_corpus *C = corpus_of("a", o);
    const bool cached = tp_corpus_was_cached(C);
    tp_corpus_close(C);
    return cached;
}

Test(corpus, a_cache_is_written_anew_when_anything_changes)
{
    char cache[600];
    snprintf(cache, sizeof cache, "%s", in_folder("tokens"));
    tp_corpus_opts o = { .cache = cache };
    corpus_sentences("a", 3000, 6, "\n");
    cr_expect(!is_cached(o) && is_cached(o));
    o.threads = 3;
    o.held_out = 0.1;
    cr_expect(is_cached(o), "neither threads nor parts matter");
    o.end = TP_DOCUMENT_LINE;
    cr_expect(!is_cached(o) && is_cached(o));
    o.limit = 5000;
    cr_expect(!is_cached(o) && is_cached(o));
    corpus_shell("touch -d 2001-01-01 a");
    cr_expect(!is_cached(o) && is_cached(o));
    corpus_drop_merges();
    cr_expect(!is_cached(o) && is_cached(o));
    corpus_shell("truncate -s -2 tokens");
    cr_expect(!is_cached(o) && is_cached(o));
    corpus_shell("printf x | dd of=tokens bs=1 seek=40 conv=notrunc 2>/dev/null");
    cr_expect(!is_cached(o) && is_cached(o));
    corpus_shell("printf '\\377\\377' | dd of=tokens bs=1 seek=200 conv=notrunc 2>/dev/null");
    tp_corpus *C = corpus_of("a", o);
    int32_t ids[200];
    char why[1100];
    cr_expect_not(tp_corpus_read(C, TP_TRAIN, 0, 200, ids, why, sizeof why));
    cr_expect(strstr(why, "tokens is damaged: it has the id 65535; remove it"), "%s", why);
    tp_loader *L =
        corpus_batches(C, (tp_mlm_loader_opts){ .batch = 20, .length = 20, .train = true });
    tp_mlm_batch b;
    int64_t s = 0;
    while (s < tp_loader_steps(L) && tp_mlm_loader_next(L, &b)) s++;
    cr_expect(strstr(tp_loader_why(L), "is damaged"), "%s", tp_loader_why(L));
    tp_loader_free(L);
    tp_corpus_close(C);
}

Test(corpus, another_file_is_not_replaced)
{
    char cache[600];
    write_text("a", "a text");
    write_text("precious", "my notes, longer than the mark of a cache");
    snprintf(cache, sizeof cache, "%s", in_folder("precious"));
    tp_corpus *C = corpus_try("a", (tp_corpus_opts){ .cache = cache });
    cr_expect(strstr(tp_corpus_why(C), "is not a cache of tokens, so it is not replaced"), "%s",
              tp_corpus_why(C));
    tp_corpus_close(C);
    corpus_shell("grep -q notes precious");
    C = corpus_try("a", (tp_corpus_opts){ .cache = folder });
    cr_expect(strstr(tp_corpus_why(C), "the cache"), "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    snprintf(cache, sizeof cache, "%s", in_folder("none/tokens"));
    C = corpus_try("a", (tp_corpus_opts){ .cache = cache });
    cr_expect(strstr(tp_corpus_why(C), "cannot be created: No such file"), "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    snprintf(cache, sizeof cache, "%s", in_folder("tokens"));
    C = corpus_try("b", (tp_corpus_opts){ .cache = cache });
    cr_expect(strstr(tp_corpus_why(C), "b cannot be opened"), "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    cr_expect_eq(files_in_folder(), 2, "nothing is left of what failed");
}

Test(corpus, a_full_disk_leaves_no_cache)
{
    char cache[600];
    struct rlimit before, most;
    snprintf(cache, sizeof cache, "%s", in_folder("tokens"));
    corpus_sentences("a", 3000, 6, " ");
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    most = (struct rlimit){ 1000, before.rlim_max };
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &most), 0);
    tp_corpus *C = corpus_try("a", (tp_corpus_opts){ .cache = cache });
    setrlimit(RLIMIT_FSIZE, &before);
    cr_expect(strstr(tp_corpus_why(C), "cannot be written: File too large"), "%s",
              tp_corpus_why(C));
    cr_expect_eq(tp_corpus_tokens(C, TP_TRAIN), 0);
    tp_corpus_close(C);
    cr_expect_eq(files_in_folder(), 1);
}
