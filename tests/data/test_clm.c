/* test_clm.c - batches for causal language modelling: each token once per epoch, batches that
 * depend only on epoch and step, shares of processes, separators, wide vocabularies, bytes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tapegrad/clm.h>
#include <tapegrad/random.h>

#include "support/corpus.h"
#include "support/device.h"
#include "support/folder.h"

TestSuite(clm, .init = corpus_begin, .fini = corpus_end);

enum { B = 4, N = 8 };

static tp_loader *windows_of(const tp_corpus *C, tp_clm_loader_opts o)
{
    if (!o.batch) o.batch = B;
    if (!o.length) o.length = N;
    tp_loader *L = tp_clm_loader_new(C, &o);
    cr_assert(tp_loader_ok(L), "%s", tp_loader_why(L));
    return L;
}

static tp_corpus *some_text(void)
{
    corpus_sentences("text", 3000, 1, ".\n");
    return corpus_of("text", (tp_corpus_opts){ .end = TP_DOCUMENT_LINE });
}

/* ---- windows ---- */

Test(clm, each_token_is_predicted_once_in_an_epoch)
{
    tp_corpus *C = some_text();
    const int64_t tokens = tp_corpus_tokens(C, TP_TRAIN), windows = (tokens - 1) / N;
    tp_loader *L = windows_of(C, (tp_clm_loader_opts){ .train = true, .seed = 3 });
    cr_assert_eq(tp_clm_loader_windows(L), windows);
    uint8_t *seen = calloc((size_t)windows, 1);
    int64_t order = 0, moved = 0;
    for (int64_t step = 0; step < tp_loader_steps(L); step++) {
        tp_clm_batch b;
        cr_assert(tp_clm_loader_next(L, &b), "%s", tp_loader_why(L));
        cr_assert(b.n == B && b.length == N && b.targets == B * N && b.step == step);
        for (int64_t i = 0; i < B; i++, order++) {
            int32_t want[N + 1];
            cr_expect_eq(seen[b.index[i]]++, 0);
            moved += b.index[i] != order;
            corpus_tokens(C, TP_TRAIN, b.index[i] * N, N + 1, want);
            cr_expect_arr_eq(b.ids + i * N, want, N * sizeof *want);
            cr_expect_arr_eq(b.target + i * N, want + 1, N * sizeof *want);
        }
    }
    cr_expect_gt(moved, order / 2, "epochs are shuffled");
    free(seen);
    tp_loader_free(L);
    tp_corpus_close(C);
}

Test(clm, a_pass_in_order_scores_every_token_but_the_first)
{
    tp_corpus *C = some_text();
    const int64_t tokens = tp_corpus_tokens(C, TP_VALID);
    tp_loader *L = windows_of(C, (tp_clm_loader_opts){ .part = TP_VALID });
    tp_clm_batch b;
    int64_t targets = 0, counted = 0, next = 0;
    while (tp_clm_loader_next(L, &b)) {
        targets += b.targets;
        for (int64_t i = 0; i < b.n; i++) cr_expect_eq(b.index[i], next++);
        for (int64_t i = 0; i < b.n * N; i++) counted += b.target[i] >= 0;
    }
    cr_expect(tp_loader_ok(L), "%s", tp_loader_why(L));
    cr_expect_neq((tokens - 1) % N, 0, "the last window is padded");
    cr_expect_eq(targets, tokens - 1);
    cr_expect_eq(counted, tokens - 1);
    tp_loader_free(L);
    tp_corpus_close(C);
}

/* What two processes read is what one reads, and a seek needs no other state. */
Test(clm, shares_and_seeks)
{
    tp_corpus *C = some_text();
    tp_loader *all =
        windows_of(C, (tp_clm_loader_opts){ .batch = 2 * B, .train = true, .seed = 3 });
    tp_loader *half[2];
    for (int r = 0; r < 2; r++)
        half[r] = windows_of(C, (tp_clm_loader_opts){
                                    .train = true, .seed = 3, .share = { .rank = r, .ranks = 2 } });
    static const int64_t at[][2] = { { 0, 0 }, { 0, 1 }, { 2, 5 }, { 1, 3 } };
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
        tp_clm_batch whole, part;
        tp_loader_seek(all, at[k][0], at[k][1]);
        cr_assert(tp_clm_loader_next(all, &whole));
        for (int r = 0; r < 2; r++) {
            tp_loader_seek(half[r], at[k][0], at[k][1]);
            cr_assert(tp_clm_loader_next(half[r], &part));
            cr_expect_eq(part.n, B);
            cr_expect_arr_eq(part.ids, whole.ids + r * B * N, B * N * sizeof(int32_t));
            cr_expect_arr_eq(part.target, whole.target + r * B * N, B * N * sizeof(int32_t));
        }
    }
    for (int r = 0; r < 2; r++) tp_loader_free(half[r]);
    tp_loader_free(all);
    tp_corpus_close(C);
}

Test(clm, feeding)
{
    tp_corpus *C = some_text();
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_loader *L = windows_of(C, (tp_clm_loader_opts){ .train = true, .seed = 3 });
    tp_tensor slot[TP_CLM_SLOTS] = { TP_NONE, TP_NONE };
    int32_t ids[B * N], target[B * N];
    tp_clm_batch b;
    cr_assert_eq(tp_loader_feed(L, T, 1, 2, slot), B);
    cr_assert(tp_read(T, slot[0], ids, sizeof ids) && tp_read(T, slot[1], target, sizeof target));
    tp_loader_seek(L, 1, 2);
    cr_assert(tp_clm_loader_next(L, &b));
    cr_expect_arr_eq(ids, b.ids, sizeof ids);
    cr_expect_arr_eq(target, b.target, sizeof target);
    tp_loader_free(L);
    tp_tape_free(T);
    tp_device_close(D);
    tp_corpus_close(C);
}

/* ---- vocabularies ---- */

Test(clm, documents_of_bytes_end_with_the_separator)
{
    write_text("a", "\nab\n\ncaf\xc3\xa9\n");
    const char *path = in_folder("a");
    tp_bpe *X = tp_bpe_bytes();
    cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
    cr_expect_eq(tp_bpe_size(X), 257);
    static const int32_t want[] = { 'a', 'b', 256, 'c', 'a', 'f', 0xc3, 0xa9, 256 };
    static const char *const separators[] = { TP_BPE_END_OF_TEXT, "" };
    for (int k = 0; k < 2; k++) {
        int32_t ids[9], n = 0;
        char why[1100];
        tp_corpus *C = tp_corpus_open(&path, 1, X,
                                      &(tp_corpus_opts){ .end = TP_DOCUMENT_BLANK,
                                                         .held_out = -1,
                                                         .separator = separators[k] });
        cr_assert(tp_corpus_ok(C), "%s", tp_corpus_why(C));
        cr_expect_eq(tp_corpus_documents(C), 2);
        cr_assert_eq(tp_corpus_tokens(C, TP_TRAIN), k ? 7 : 9);
        cr_assert(tp_corpus_read(C, TP_TRAIN, 0, k ? 7 : 9, ids, why, sizeof why), "%s", why);
        for (int i = 0; i < 9; i++)
            if (!k || want[i] < 256) cr_expect_eq(ids[n++], want[i]);
        tp_corpus_close(C);
    }
    tp_bpe_close(X);
}

Test(clm, bytes_of_tokens)
{
    tp_bpe *X = tp_bpe_bytes();
    for (int b = 0; b < 256; b++) cr_expect_eq(tp_bpe_token_bytes(X, b), 1, "%d", b);
    cr_expect_eq(tp_bpe_token_bytes(X, 256), 0);
    cr_expect_eq(tp_bpe_token_bytes(X, 257), 0);
    cr_expect_eq(tp_bpe_token_bytes(X, -1), 0);
    cr_expect_eq(tp_bpe_token_bytes(NULL, 0), 0);
    tp_bpe_close(X);
    cr_expect_eq(tp_bpe_token_bytes(corpus_vocabulary, 0), 0, "<s>");
    const int32_t the = tp_bpe_id(corpus_vocabulary, "\xc4\xa0the");
    cr_expect_eq(tp_bpe_token_bytes(corpus_vocabulary, the), 4);
}

/* More ids than two bytes hold: a token of each, through memory and the cache. */
Test(clm, wide_vocabularies)
{
    enum { SIZE = 70000 };
    char *vocab = malloc(SIZE * 24), *to = vocab, cache[600];
    int id = 0;
    *to++ = '{';
    tp_bpe *bytes = tp_bpe_bytes();
    for (; id < 256; id++) {
        const char *name = tp_bpe_token(bytes, id);
        const char *mark = *name == '"' || *name == '\\' ? "\\" : "";
        to += sprintf(to, "\"%s%s\": %d, ", mark, name, id);
    }
    tp_bpe_close(bytes);
    for (; id < SIZE - 1; id++) to += sprintf(to, "\"#%d#\": %d, ", id, id);
    sprintf(to, "\"th\": %d}", id);
    tp_bpe *X = tp_bpe_from("wide", vocab, "t h\n", NULL);
    free(vocab);
    cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
    write_text("a", "thath");
    const char *path = in_folder("a");
    char *named = strdup(path);
    snprintf(cache, sizeof cache, "%s", in_folder("tokens"));
    uint64_t hash[3];
    for (int k = 0; k < 3; k++) {
        int32_t ids[4];
        char why[1100];
        tp_corpus *C = tp_corpus_open(
            (const char *const[]){ named }, 1, X,
            &(tp_corpus_opts){ .held_out = -1, .separator = "#66000#", .cache = k ? cache : NULL });
        cr_assert(tp_corpus_ok(C), "%s", tp_corpus_why(C));
        cr_expect_eq(tp_corpus_was_cached(C), k == 2);
        cr_assert_eq(tp_corpus_tokens(C, TP_TRAIN), 4);
        cr_assert(tp_corpus_read(C, TP_TRAIN, 0, 4, ids, why, sizeof why), "%s", why);
        const int32_t want[] = { SIZE - 1, 'a', SIZE - 1, 66000 };
        cr_expect_arr_eq(ids, want, sizeof want, "%d", k);
        hash[k] = tp_corpus_hash(C);
        tp_corpus_close(C);
    }
    cr_expect(hash[0] == hash[1] && hash[1] == hash[2]);
    free(named);
    tp_bpe_close(X);
}

/* ---- refusals ---- */

Test(clm, refusals)
{
    write_text("a", "the other");
    tp_corpus *C = corpus_of("a", (tp_corpus_opts){ .held_out = -1 });
    static const struct {
        tp_clm_loader_opts o;
        const char *why;
    } cases[] = {
        { { .batch = 1, .length = 0 }, "1 windows of 0 tokens are not at least 1" },
        { { .batch = 1 << 20, .length = 1 << 20 }, "together below 2^31" },
        { { .batch = 2, .length = 8, .train = true }, "too few for 2 windows of 8 and the token" },
        { { .batch = 1, .length = 1, .part = TP_VALID }, "the held-out part has 0 tokens" },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tp_loader *L = tp_clm_loader_new(C, &cases[k].o);
        cr_expect(strstr(tp_loader_why(L), cases[k].why), "%s", tp_loader_why(L));
        tp_loader_free(L);
    }
    tp_corpus_close(C);
    C = corpus_try("a", (tp_corpus_opts){ .separator = "<none>" });
    cr_expect(strstr(tp_corpus_why(C), "the vocabulary has no token <none>"), "%s",
              tp_corpus_why(C));
    tp_corpus_close(C);
    C = corpus_of("a", (tp_corpus_opts){ .separator = "", .held_out = -1 });
    tp_loader *L = tp_mlm_loader_new(C, &(tp_mlm_loader_opts){ .batch = 1, .length = 3 });
    cr_expect(strstr(tp_loader_why(L), "a separator of its own"), "%s", tp_loader_why(L));
    tp_loader_free(L);
    tp_corpus_close(C);
    cr_expect_null(tp_clm_loader_new(NULL, NULL));
    cr_expect_eq(tp_clm_loader_windows(NULL), 0);
    tp_clm_batch b;
    cr_expect(!tp_clm_loader_next(NULL, &b));
}
