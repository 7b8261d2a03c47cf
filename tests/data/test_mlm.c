/* test_mlm.c - batches for masked language modelling: masks, each sequence once per epoch, batches
 * that depend only on epoch and step. test_corpus.c tests their texts. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/mlm.h>

#include "support/corpus.h"
#include "support/device.h"
#include "support/folder.h"

TestSuite(mlm, .init = corpus_begin, .fini = corpus_end);

/* ---- masks ---- */

enum { B = CORPUS_BATCH, N = CORPUS_LENGTH, M = N - 2 };

/* Numbers of tokens by outcome. */
typedef struct counts {
    int64_t tokens, targets, masked, same, other;
    int64_t seen[600];
} counts;

/* Compares a batch with the tokens of its sequences. */
static void check(const tp_corpus *C, const tp_mlm_batch *b, tp_part part, counts *c)
{
    int64_t at = 0;
    const int32_t mask = tp_bpe_special_id(corpus_vocabulary, TP_BPE_MASK);
    for (int64_t i = 0; i < b->n; i++) {
        int32_t want[M];
        const int32_t *ids = b->ids + i * N;
        corpus_tokens(C, part, b->index[i] * M, M, want);
        cr_assert(ids[0] == 0 && ids[N - 1] == 2);
        for (int64_t j = 0; j < M; j++) {
            const bool target = at < b->targets && b->row[at] == i * N + 1 + j;
            if (!target) cr_assert_eq(ids[1 + j], want[j]);
            c->tokens += want[j] > 3;
            if (!target) continue;
            cr_assert(b->target[at] == want[j] && want[j] > 3, "special tokens are no targets");
            c->masked += ids[1 + j] == mask;
            c->same += ids[1 + j] == want[j];
            if (ids[1 + j] != mask && ids[1 + j] != want[j]) {
                cr_assert(ids[1 + j] > 3 && ids[1 + j] < mask, "random tokens are ordinary");
                c->seen[ids[1 + j]]++;
                c->other++;
            }
            at++;
        }
    }
    cr_assert_eq(at, b->targets, "rows increase");
    c->targets += at;
}

static void expect_share(const char *what, int64_t k, int64_t n, double p)
{
    const double sigma = sqrt(p * (1 - p) / (double)n), share = (double)k / (double)n;
    cr_expect(fabs(share - p) < 4 * sigma, "%s: %g of %lld is not %g", what, share, (long long)n,
              p);
}

Test(mlm, masks_have_the_published_shares)
{
    corpus_sentences("a", 60000, 4, "\n");
    for (int exact = 0; exact < 2; exact++) {
        tp_corpus *C = corpus_of("a", (tp_corpus_opts){ .end = TP_DOCUMENT_LINE });
        tp_loader *L =
            corpus_batches(C, (tp_mlm_loader_opts){ .train = true, .seed = 5, .exact = exact });
        static counts c;
        c = (counts){ 0 };
        for (int64_t s = 0; s < 2 * tp_loader_steps(L); s++) {
            tp_mlm_batch b;
            corpus_next(L, &b);
            check(C, &b, TP_TRAIN, &c);
            cr_expect(b.rows == b.targets && b.rows > 0);
        }
        expect_share("targets", c.targets, c.tokens, 0.15);
        const double ordinary = (double)tp_bpe_size(corpus_vocabulary) - 5;
        expect_share("<mask>", c.masked, c.targets, 0.8);
        expect_share("unchanged", c.same, c.targets, 0.1 + 0.1 / ordinary);
        expect_share("random", c.other, c.targets, 0.1 - 0.1 / ordinary);
        int64_t missing = 0;
        for (int id = 4; id < tp_bpe_size(corpus_vocabulary) - 1; id++) missing += c.seen[id] == 0;
        cr_expect_lt(missing, 5, "random tokens are any of the vocabulary");
        tp_loader_free(L);
        tp_corpus_close(C);
    }
}

Test(mlm, exact_numbers_of_targets_and_equal_numbers_of_rows)
{
    corpus_sentences("a", 4000, 4, " ");
    tp_corpus *C = corpus_of("a", (tp_corpus_opts){ 0 });
    tp_loader *L =
        corpus_batches(C, (tp_mlm_loader_opts){ .train = true, .exact = true, .padded = true });
    int64_t four = 0, five = 0;
    for (int64_t s = 0; s < 40; s++) {
        tp_mlm_batch b;
        int64_t per[B] = { 0 };
        corpus_next(L, &b);
        cr_assert_eq(b.rows, B * 5, "ceil(0.15 x 32) = 5");
        for (int64_t k = 0; k < b.targets; k++) per[b.row[k] / N]++;
        for (int64_t k = b.targets; k < b.rows; k++) cr_assert(b.row[k] == 0 && b.target[k] == -1);
        for (int i = 0; i < B; i++) {
            cr_assert(per[i] == 4 || per[i] == 5, "0.15 x 32 = 4.8");
            four += per[i] == 4;
            five += per[i] == 5;
        }
    }
    expect_share("five", five, four + five, 0.8);
    tp_loader_free(L);
    tp_corpus_close(C);
}

Test(mlm, an_epoch_has_each_sequence_once)
{
    static const int words[] = { 60, 100, 130, 1000, 9000 };
    for (int k = 0; k < 5; k++) {
        corpus_sentences("a", words[k], 6, " ");
        tp_corpus *C = corpus_of("a", (tp_corpus_opts){ 0 });
        tp_loader *L = corpus_batches(C, (tp_mlm_loader_opts){ .batch = 1, .train = true });
        const int64_t n = tp_mlm_loader_sequences(L);
        int64_t *first = calloc((size_t)n, sizeof *first), moved = 0;
        cr_assert(n == tp_loader_steps(L) && n == tp_corpus_tokens(C, TP_TRAIN) / M);
        for (int e = 0; e < 3; e++) {
            char *seen = calloc((size_t)n, 1);
            for (int64_t i = 0; i < n; i++) {
                tp_mlm_batch b;
                corpus_next(L, &b);
                cr_assert(b.epoch == e && b.step == i && b.index[0] >= 0 && b.index[0] < n);
                cr_expect_eq(seen[b.index[0]]++, 0, "%lld of %lld twice", (long long)b.index[0],
                             (long long)n);
                moved += e > 0 && b.index[0] != first[i];
                first[i] = b.index[0];
            }
            free(seen);
        }
        cr_expect(n < 30 || moved > 2 * n * 9 / 10, "%lld of %lld changed places", (long long)moved,
                  (long long)(2 * n));
        free(first);
        tp_loader_free(L);
        tp_corpus_close(C);
    }
}

Test(mlm, a_batch_does_not_depend_on_those_before)
{
    corpus_sentences("a", 4000, 6, "\n");
    tp_corpus *C = corpus_of("a", (tp_corpus_opts){ .end = TP_DOCUMENT_LINE });
    tp_loader *L = corpus_batches(C, (tp_mlm_loader_opts){ .train = true, .seed = 3 }),
              *R = corpus_batches(C, (tp_mlm_loader_opts){ .train = true, .seed = 3 }),
              *S = corpus_batches(C, (tp_mlm_loader_opts){ .train = true, .seed = 4 });
    const int64_t steps = tp_loader_steps(L);
    cr_assert_gt(steps, 10);
    tp_mlm_batch b;
    for (int64_t i = 0; i < 3 * steps; i++) {
        corpus_next(L, &b);
        const uint64_t h = corpus_batch_hash(&b);
        tp_loader_seek(R, i / steps, i % steps);
        corpus_next(R, &b);
        cr_expect_eq(corpus_batch_hash(&b), h, "batch %lld", (long long)i);
        tp_loader_seek(R, (i / steps + 1) % 3, i % steps);
        corpus_next(R, &b);
        cr_expect_neq(corpus_batch_hash(&b), h, "epochs differ");
        corpus_next(S, &b);
        cr_expect_neq(corpus_batch_hash(&b), h, "seeds differ");
    }
    tp_loader_seek(L, 0x7fffffff, steps);
    cr_expect_not(tp_mlm_loader_next(L, &b), "the last epoch ends");
    tp_loader_free(L), tp_loader_free(R), tp_loader_free(S);
    tp_corpus_close(C);
}

Test(mlm, held_out_masks_never_change)
{
    corpus_sentences("a", 4300, 6, " ");
    tp_corpus *C = corpus_of("a", (tp_corpus_opts){ 0 });
    tp_loader *L = corpus_batches(C, (tp_mlm_loader_opts){ .part = TP_VALID, .batch = 5 });
    const int64_t tokens = tp_corpus_tokens(C, TP_VALID), steps = tp_loader_steps(L),
                  sequences = (tokens + M - 1) / M;
    uint64_t hash[64];
    cr_assert(tp_mlm_loader_sequences(L) == sequences && steps == (sequences + 4) / 5 &&
              steps < 64 && tokens % M && sequences % 5);
    for (int epoch = 0; epoch < 3; epoch++) {
        int64_t at = 0, real = 0;
        tp_mlm_batch b;
        tp_loader_seek(L, epoch, 0);
        for (int64_t s = 0; tp_mlm_loader_next(L, &b); s++) {
            for (int64_t i = 0; i < b.n; i++) cr_expect_eq(b.index[i], at++);
            for (int64_t i = 0; i < b.n * N; i++) real += b.ids[i] != 1;
            cr_expect(epoch == 0 || hash[s] == corpus_batch_hash(&b));
            hash[s] = corpus_batch_hash(&b);
            for (int64_t k = 0; k < b.rows; k++) cr_assert_neq(b.ids[b.row[k]], 1);
        }
        cr_expect_eq(at, sequences);
        cr_expect_eq(real, tokens + 2 * sequences, "the last sequence is padded");
    }
    tp_loader_free(L);
    tp_corpus_close(C);
}

Test(mlm, a_batch_always_has_a_target)
{
    write_text("a", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj");
    tp_corpus *C = corpus_of("a", (tp_corpus_opts){ .end = TP_DOCUMENT_LINE, .held_out = -1 });
    tp_loader *L = corpus_batches(
        C, (tp_mlm_loader_opts){ .batch = 1, .length = 4, .train = true, .rate = 1e-6 });
    for (int i = 0; i < 40; i++) {
        tp_mlm_batch b;
        corpus_next(L, &b);
        cr_expect(b.rows == 1 && b.row[0] == 1 && b.target[0] > 3 && b.ids[2] == 2);
    }
    tp_loader_free(L);
    L = corpus_batches(
        C, (tp_mlm_loader_opts){ .batch = 1, .length = 3, .rate = 0.5 }); /* only </s> */
    tp_mlm_batch b;
    corpus_next(L, &b);
    cr_expect_not(tp_mlm_loader_next(L, &b));
    cr_expect(strstr(tp_loader_why(L), "special tokens only"), "%s", tp_loader_why(L));
    tp_loader_free(L);
    tp_corpus_close(C);
}

Test(mlm, batches_are_fed)
{
    corpus_sentences("a", 4000, 6, " ");
    tp_corpus *C = corpus_of("a", (tp_corpus_opts){ 0 });
    tp_loader *L = corpus_batches(C, (tp_mlm_loader_opts){ .train = true });
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor slot[TP_MLM_SLOTS] = { TP_NONE, TP_NONE, TP_NONE };
    tp_mlm_batch b;
    int32_t ids[B * N];
    cr_assert_eq(tp_loader_feed(L, T, 1, 2, slot), B);
    const int64_t fed = tp_mlm_loader_targets(L);
    tp_read(T, slot[0], ids, sizeof ids);
    cr_assert(tp_ok(T), "%s", tp_why(T));
    tp_loader_seek(L, 1, 2);
    corpus_next(L, &b);
    cr_expect_arr_eq(ids, b.ids, sizeof ids);
    cr_expect(fed == b.targets && tp_dim(slot[1], 0) == b.rows && tp_dim(slot[2], 0) == b.rows);
    tp_tape_free(T);
    tp_device_close(D);
    tp_loader_free(L);
    tp_corpus_close(C);
}

/* ---- what is impossible ---- */

static void expect_why(const tp_corpus *C, tp_mlm_loader_opts o, const char *why)
{
    tp_loader *L = tp_mlm_loader_new(C, &o);
    tp_mlm_batch b;
    cr_expect(!tp_loader_ok(L) && strstr(tp_loader_why(L), why), "'%s' in: %s", why,
              tp_loader_why(L));
    cr_expect(!tp_mlm_loader_next(L, &b) && tp_loader_steps(L) == 0);
    tp_loader_free(L);
}

Test(mlm, what_is_impossible_says_why)
{
    write_text("a", "the cat sat on the mat");
    tp_corpus *C = corpus_of("a", (tp_corpus_opts){ 0 });
    expect_why(C, (tp_mlm_loader_opts){ .batch = 1, .length = 2 }, "1 sequences of 2 ids");
    expect_why(C, (tp_mlm_loader_opts){ .batch = 0, .length = 9 }, "0 sequences");
    expect_why(C, (tp_mlm_loader_opts){ .batch = 1 << 20, .length = 1 << 20 }, "below 2^31");
    expect_why(C, (tp_mlm_loader_opts){ .batch = 1, .length = 9, .rate = 1 },
               "the rate of targets, 1,");
    expect_why(C, (tp_mlm_loader_opts){ .batch = 1, .length = 9, .padded = true }, "set exact");
    expect_why(C, (tp_mlm_loader_opts){ .batch = 4, .length = 9, .train = true },
               "the training part has 19 tokens, too few for 4 sequences of 9");
    expect_why(C, (tp_mlm_loader_opts){ .batch = 1, .length = 9, .part = TP_VALID },
               "the held-out part has 0 tokens");
    tp_corpus_close(C);
    C = corpus_try("none", (tp_corpus_opts){ 0 });
    expect_why(C, (tp_mlm_loader_opts){ .batch = 1, .length = 9 }, "none cannot be opened");
    tp_corpus_close(C);
    C = corpus_try("a", (tp_corpus_opts){ .held_out = 0.5 });
    cr_expect(strstr(tp_corpus_why(C), "0.5 is not below 0.5"), "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    C = tp_corpus_open(NULL, 0, corpus_vocabulary, NULL);
    cr_expect(strstr(tp_corpus_why(C), "there is no text"), "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    tp_bpe *plain = tp_bpe_from("plain", "{\"<s>\": 0, \"<unk>\": 1, \"a\": 2}", "", NULL);
    const char *path = in_folder("a");
    C = tp_corpus_open(&path, 1, plain, NULL);
    cr_expect(strstr(tp_corpus_why(C), "has no token <pad>"), "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    tp_bpe_close(plain);
    plain = tp_bpe_from(
        "no pad", "{\"<s>\": 0, \"</s>\": 1, \"<unk>\": 2, \"<mask>\": 3, \"a\": 4, \"t\": 5}", "",
        NULL);
    C = tp_corpus_open(&path, 1, plain, &(tp_corpus_opts){ .separator = "</s>" });
    cr_expect(tp_corpus_ok(C), "%s", tp_corpus_why(C));
    expect_why(C, (tp_mlm_loader_opts){ .batch = 1, .length = 9 },
               "open it without one, with a vocabulary that has <s>, <pad>, </s> and <mask>");
    tp_corpus_close(C);
    tp_bpe_close(plain);
    write_text("b.gz", "not packed");
    C = corpus_try("b.gz", (tp_corpus_opts){ 0 });
    cr_expect(strstr(tp_corpus_why(C), "b.gz is named .gz but is not a gzip file"), "%s",
              tp_corpus_why(C));
    tp_corpus_close(C);
}
