/* test_document_loader.c - batches of documents: contents, order, padding and packing, independent
 * of when they are requested. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/document_loader.h>
#include <tapegrad/random.h>

#include "support/device.h"

enum { N = 103, BATCH = 8, LONGEST = 60 };

/* Document k of example i: ids that begin with i + 1, of a random length. */
static tp_documents *make(int documents)
{
    tp_random r = tp_random_stream(1, "test", 0, 0);
    tp_documents *X = tp_documents_new(documents, 5);
    for (int i = 0; i < N; i++) {
        uint16_t ids[2][LONGEST];
        const uint16_t *const both[] = { ids[0], ids[1] };
        int64_t n[2];
        for (int k = 0; k < 2; k++) {
            n[k] = 1 + tp_random_below(&r, LONGEST);
            for (int64_t j = 0; j < n[k]; j++) ids[k][j] = (uint16_t)(i + 1 + j + 1000 * k);
        }
        tp_documents_add(X, i % 5, both, n);
    }
    cr_assert(tp_documents_ok(X), "%s", tp_documents_why(X));
    return X;
}

static tp_loader *loader(const tp_documents *X, tp_document_loader_opts o)
{
    tp_loader *L = tp_document_loader_new(X, &o);
    cr_assert(tp_loader_ok(L), "%s", tp_loader_why(L));
    return L;
}

/* Compares a batch with the set, id by id. */
static void check(const tp_documents *X, const tp_document_batch *b, bool packed)
{
    for (int k = 0; k < tp_documents_per_example(X); k++) {
        int64_t at = 0, longest = 0;
        for (int64_t i = 0; i < b->n; i++) {
            int64_t n;
            const uint16_t *ids = tp_documents_ids(X, b->index[i], k, &n);
            cr_expect_eq(b->label[i], tp_documents_label(X, b->index[i]));
            if (n > longest) longest = n;
            if (packed) cr_assert_eq(b->offset[k][i], at);
            if (!packed) at = i * b->length[k];
            for (int64_t j = 0; j < n; j++) {
                cr_assert_eq(b->ids[k][at + j], ids[j]);
                cr_assert(packed ? b->position[k][at + j] == j
                                 : b->mask[k][at + j] == (ids[j] != 0));
            }
            for (int64_t j = n; !packed && j < b->length[k]; j++)
                cr_assert(b->ids[k][at + j] == 0 && b->mask[k][at + j] == 0);
            at += n;
        }
        if (packed) cr_expect(b->offset[k][b->n] == at && b->length[k] == at);
        cr_expect_eq(b->longest[k], longest);
    }
}

Test(document_loader, an_epoch_has_each_example_once)
{
    static const tp_document_loader_opts cases[] = {
        { .batch = BATCH },
        { .batch = BATCH, .whole = true },
        { .batch = BATCH, .train = true, .seed = 3 },
        { .batch = BATCH, .train = true, .seed = 3, .bucket = 4 },
        { .batch = BATCH, .train = true, .seed = 3, .bucket = 1000, .packed = true },
        { .batch = BATCH, .bucket = 3, .packed = true },
        { .batch = BATCH, .bucket = 1000, .multiple = 16 },
        { .batch = BATCH, .length = 64 },
        { .batch = 1000 },
    };
    for (int documents = 1; documents <= 2; documents++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            const tp_document_loader_opts o = cases[c];
            tp_documents *X = make(documents);
            tp_loader *L = loader(X, o);
            const bool short_last = !o.train && !o.whole;
            const int64_t steps = short_last ? (N + o.batch - 1) / o.batch : N / o.batch;
            cr_expect_eq(tp_loader_steps(L), steps, "case %zu", c);
            for (int e = 0; e < (o.train ? 3 : 1); e++) {
                int seen[N] = { 0 };
                for (int64_t s = 0; s < steps; s++) {
                    tp_document_batch b;
                    cr_assert(tp_document_loader_next(L, &b), "%s", tp_loader_why(L));
                    cr_expect(b.epoch == e && b.step == s, "case %zu", c);
                    cr_expect(b.n == o.batch || (short_last && s == steps - 1));
                    if (o.length) cr_expect_eq(b.length[0], o.length);
                    if (o.multiple)
                        cr_expect(b.length[0] % 16 == 0 && b.length[0] < b.longest[0] + 16);
                    if (!o.length && !o.multiple && !o.packed)
                        cr_expect_eq(b.length[0], b.longest[0]);
                    check(X, &b, o.packed);
                    for (int64_t i = 0; i < b.n; i++) seen[b.index[i]]++;
                }
                int total = 0;
                for (int i = 0; i < N; i++) {
                    cr_expect(seen[i] <= 1, "case %zu: example %d %d times", c, i, seen[i]);
                    total += seen[i];
                }
                cr_expect_eq(total, short_last ? N : steps * o.batch);
            }
            tp_document_batch b;
            cr_expect_eq(tp_document_loader_next(L, &b), o.train, "case %zu", c);
            tp_loader_free(L);
            tp_documents_close(X);
        }
}

Test(document_loader, without_training_examples_stay_in_order)
{
    tp_documents *X = make(1);
    tp_loader *L = loader(X, (tp_document_loader_opts){ .batch = BATCH, .seed = 9 });
    tp_document_batch b;
    for (int64_t at = 0; tp_document_loader_next(L, &b);)
        for (int64_t i = 0; i < b.n; i++, at++) cr_expect_eq(b.index[i], at);
    tp_loader_seek(L, 0, 2);
    cr_expect(tp_document_loader_next(L, &b) && b.index[0] == 2 * BATCH);
    tp_loader_free(L);
    tp_documents_close(X);
}

static void numbers(tp_loader *L, int64_t epoch, int64_t step, int64_t index[BATCH])
{
    tp_document_batch b;
    tp_loader_seek(L, epoch, step);
    cr_assert(tp_document_loader_next(L, &b), "%s", tp_loader_why(L));
    cr_assert(b.epoch == epoch && b.step == step);
    memcpy(index, b.index, BATCH * sizeof *index);
}

Test(document_loader, a_batch_does_not_depend_on_those_before)
{
    for (int64_t bucket = 0; bucket < 6; bucket += 5) {
        tp_documents *X = make(1);
        const tp_document_loader_opts o = {
            .batch = BATCH, .train = true, .seed = 4, .bucket = bucket
        };
        tp_loader *L = loader(X, o), *M = loader(X, o);
        const int64_t steps = tp_loader_steps(L);
        int64_t a[BATCH], b[BATCH];
        int differ = 0;
        tp_document_batch t;
        for (int64_t i = 0; i < 3 * steps; i++) {
            cr_assert(tp_document_loader_next(L, &t));
            memcpy(a, t.index, sizeof a);
            numbers(M, i / steps, i % steps, b);
            cr_expect_arr_eq(a, b, sizeof a, "batch %lld", (long long)i);
            numbers(M, (i / steps + 1) % 3, i % steps, b);
            differ += memcmp(a, b, sizeof a) != 0;
        }
        cr_expect_eq(differ, 3 * steps, "epochs differ");
        numbers(L, 0x7fffffff, steps - 1, a);
        cr_expect_not(tp_document_loader_next(L, &t), "the last epoch ends");
        tp_loader_free(L);
        tp_loader_free(M);
        M = loader(X, (tp_document_loader_opts){
                          .batch = BATCH, .train = true, .seed = 5, .bucket = bucket });
        numbers(M, 0x7fffffff, steps - 1, b);
        cr_expect(memcmp(a, b, sizeof a) != 0, "seeds differ");
        tp_loader_free(M);
        tp_documents_close(X);
    }
}

/* Sampled epochs longer or shorter than the set, in batches of all of one. */
Test(document_loader, a_sampler_sets_the_length_of_an_epoch)
{
    enum { LONG = 4 * N };
    static int64_t listed[LONG];
    tp_documents *X = make(2);
    for (int i = 0; i < LONG; i++) listed[i] = 5 * i % N;
    for (int64_t n = 5; n <= LONG; n += LONG - 5)
        for (int k = 0; k < 4; k++) {
            const tp_listed list = { listed, n };
            const tp_example_sampler s = { .order = tp_order_listed, .env = &list, .length = n };
            const tp_document_loader_opts o = {
                .batch = n, .train = k & 1, .packed = k & 2, .sampler = &s
            };
            tp_loader *L = loader(X, o);
            tp_document_batch b;
            cr_assert(tp_document_loader_next(L, &b), "%s", tp_loader_why(L));
            cr_expect_eq(b.n, n);
            check(X, &b, o.packed);
            if (!o.train) cr_expect_arr_eq(b.index, listed, (size_t)n * sizeof *listed);
            tp_loader_free(L);
        }
    for (int64_t i = 0; i < N; i++)
        cr_expect_eq(tp_documents_labels(X)[i], tp_documents_label(X, i), "for balanced samplers");
    tp_documents_close(X);
}

/* Ids of an epoch, padded. */
static int64_t padded_ids(const tp_documents *X, int64_t bucket, bool train)
{
    tp_loader *L =
        loader(X, (tp_document_loader_opts){ .batch = BATCH, .train = train, .bucket = bucket });
    tp_document_batch b;
    int64_t total = 0;
    for (int64_t s = 0; s < N / BATCH; s++) {
        cr_assert(tp_document_loader_next(L, &b));
        total += b.n * b.length[0];
    }
    tp_loader_free(L);
    return total;
}

Test(document_loader, buckets_save_padding)
{
    tp_documents *X = make(1);
    for (int train = 0; train < 2; train++) {
        const int64_t none = padded_ids(X, 0, train), some = padded_ids(X, 4, train),
                      all = padded_ids(X, 100, train);
        cr_expect_eq(padded_ids(X, 1, train), none);
        cr_expect(all < some && some < none, "%lld %lld %lld", (long long)all, (long long)some,
                  (long long)none);
        cr_expect_lt((double)all, 0.65 * (double)none);
    }
    tp_documents_close(X);
}

Test(document_loader, feeding)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    for (int packed = 0; packed < 2; packed++) {
        tp_documents *X = make(2);
        tp_loader *L = loader(X, (tp_document_loader_opts){ .batch = BATCH, .packed = packed });
        tp_tensor slot[7] = { TP_NONE, TP_NONE, TP_NONE, TP_NONE, TP_NONE, TP_NONE, TP_NONE };
        const int each = packed ? 3 : 2;
        cr_expect_eq(tp_document_loader_slots(L), 2 * each + 1);
        cr_assert_eq(tp_loader_feed(L, T, 0, 12, slot), N % BATCH, "%s", tp_why(T));
        tp_document_batch b;
        tp_loader_seek(L, 0, 12);
        cr_assert(tp_document_loader_next(L, &b));
        for (int k = 0; k < 2; k++) {
            static int32_t ids[BATCH * LONGEST], offset[BATCH + 1];
            static uint8_t mask[BATCH * LONGEST];
            const size_t n = (size_t)(packed ? b.length[k] : b.n * b.length[k]);
            cr_expect(tp_read(T, slot[each * k], ids, n * sizeof *ids), "%s", tp_why(T));
            cr_expect_arr_eq(ids, b.ids[k], n * sizeof *ids);
            if (packed) {
                cr_expect(tp_read(T, slot[3 * k + 1], ids, n * sizeof *ids), "%s", tp_why(T));
                cr_expect_arr_eq(ids, b.position[k], n * sizeof *ids);
                cr_expect(tp_read(T, slot[3 * k + 2], offset, ((size_t)b.n + 1) * sizeof *offset));
                cr_expect_arr_eq(offset, b.offset[k], ((size_t)b.n + 1) * sizeof *offset);
            } else {
                cr_expect(tp_read(T, slot[2 * k + 1], mask, n), "%s", tp_why(T));
                cr_expect_arr_eq(mask, b.mask[k], n);
                cr_expect_eq(tp_dim(slot[2 * k], 1), b.length[k]);
            }
        }
        int32_t label[BATCH];
        cr_expect(tp_read(T, slot[2 * each], label, (size_t)b.n * sizeof *label), "%s", tp_why(T));
        cr_expect_arr_eq(label, b.label, (size_t)b.n * sizeof *label);
        cr_expect_eq(tp_loader_feed(L, T, 0, 13, slot), 0, "the end");
        cr_expect(tp_ok(T), "%s", tp_why(T));
        tp_loader_free(L);
        tp_documents_close(X);
    }
    tp_tape_free(T);
    tp_device_close(D);
}

static void expect_failure(const tp_documents *X, tp_document_loader_opts o, const char *message)
{
    tp_loader *L = tp_document_loader_new(X, &o);
    tp_document_batch b;
    cr_expect_not(tp_loader_ok(L), "%s", message);
    cr_expect(strstr(tp_loader_why(L), message), "'%s' in: %s", message, tp_loader_why(L));
    cr_expect_not(tp_document_loader_next(L, &b));
    cr_expect_eq(tp_loader_steps(L), 0);
    tp_loader_free(L);
}

Test(document_loader, refusals)
{
    tp_documents *X = make(1);
    const tp_document_loader_opts o = { .batch = 4 };
    expect_failure(X, (tp_document_loader_opts){ 0 }, "the batch is 0");
    expect_failure(X, (tp_document_loader_opts){ .batch = 1, .multiple = INT64_MAX, .beyond = 1 },
                   "too large");
    expect_failure(X, (tp_document_loader_opts){ .batch = N + 1, .train = true },
                   "103 examples are too few for a batch of 104");
    const tp_example_sampler few = { .order = tp_order_balanced, .length = 7 };
    expect_failure(X, (tp_document_loader_opts){ .batch = 8, .train = true, .sampler = &few },
                   "7 examples are too few for a batch of 8");
    expect_failure(X, (tp_document_loader_opts){ .batch = 4, .length = 10 },
                   "more than the length 10");
    expect_failure(X, (tp_document_loader_opts){ .batch = 4, .bucket = -1 }, "bucket -1");
    expect_failure(X, (tp_document_loader_opts){ .batch = 4, .packed = true, .length = 64 },
                   "packed batches have no padding");
    const uint16_t black[] = { 0, 0 }, grey[] = { 0, 7 };
    const uint16_t *const ids[] = { grey, black };
    tp_documents_add(X, 0, ids, (int64_t[]){ 2 });
    tp_loader *L = loader(X, o);
    tp_document_batch b;
    tp_loader_seek(L, 0, N / 4);
    cr_assert(tp_document_loader_next(L, &b));
    check(X, &b, false);
    tp_loader_free(L);
    expect_failure(X, (tp_document_loader_opts){ .batch = 4, .packed = true },
                   "document 0 of example 103 cannot be packed: it has the id 0");
    tp_documents_add(X, 0, ids + 1, (int64_t[]){ 2 });
    expect_failure(X, o, "document 0 of example 104 has no id but 0");
    tp_documents_add(X, 9, ids, (int64_t[]){ 2 });
    expect_failure(X, o, "example 105 has the label 9");
    expect_failure(NULL, o, "there is no set");
    tp_documents_close(X);
}
