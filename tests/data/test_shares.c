/* test_shares.c - processes that share the batches: together they read the rows of one process with
 * the global batch, row by row, in training and in one pass, with any number of workers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/document_loader.h>
#include <tapegrad/image_set.h>
#include <tapegrad/random.h>

#include "support/corpus.h"
#include "support/device.h"
#include "support/folder.h"
#include "support/image_sets.h"

TestSuite(shares, .timeout = 300);

enum { MOST_RANKS = 12, MOST_ROWS = 1000 };

/* ---- what a process reads ---- */

/* A row of a batch, with a hash of everything in it. */
typedef struct row {
    int64_t epoch, step, number;
    uint64_t hash;
} row;

typedef struct rows {
    int64_t n, batches;
    row row[MOST_ROWS];
} rows;

static void add_row(rows *r, int64_t epoch, int64_t step, int64_t number, uint64_t hash)
{
    cr_assert_lt(r->n, MOST_ROWS);
    r->row[r->n++] = (row){ epoch, step, number, hash };
}

static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) h = tp_hash(h, ((const uint8_t *)bytes)[i]);
    return h;
}

/* A kind of loader, opened with some options. */
typedef struct reader {
    const char *name;
    tp_loader *(*open)(const void *how, int64_t batch, tp_share share);
    bool (*read)(tp_loader *L, rows *r); /* appends the next batch */
    const void *how;
    bool train;
} reader;

static tp_loader *open_part(const reader *x, int64_t batch, tp_share share)
{
    tp_loader *L = x->open(x->how, batch, share);
    cr_assert(tp_loader_ok(L), "%s: %s", x->name, tp_loader_why(L));
    return L;
}

/* Reads two epochs and a batch, or one pass. */
static void read_all(const reader *x, tp_loader *L, rows *r)
{
    r->n = r->batches = 0;
    while ((!x->train || r->batches < 2 * tp_loader_steps(L) + 1) && x->read(L, r)) r->batches++;
    cr_expect(tp_loader_ok(L), "%s: %s", x->name, tp_loader_why(L));
}

static void expect_union(const char *name, const rows *one, const rows part[], int ranks)
{
    int64_t at = 0, next[MOST_RANKS] = { 0 };
    while (at < one->n) {
        const int64_t epoch = one->row[at].epoch, step = one->row[at].step, before = at;
        for (int r = 0; r < ranks; r++)
            for (; next[r] < part[r].n; next[r]++, at++) {
                const row *p = &part[r].row[next[r]], *q = &one->row[at];
                if (p->epoch != epoch || p->step != step) break;
                cr_assert(at < one->n && p->number == q->number && p->hash == q->hash,
                          "%s: rank %d of %d, epoch %lld, batch %lld: %lld is not %lld", name, r,
                          ranks, (long long)epoch, (long long)step, (long long)p->number,
                          (long long)q->number);
            }
        cr_assert_gt(at, before, "%s: nobody of %d reads batch %lld", name, ranks, (long long)step);
    }
    for (int r = 0; r < ranks; r++) cr_expect_eq(next[r], part[r].n, "%s: rank %d", name, r);
}

/* The next batch is the one of `all` that a seek asks for. */
static void expect_seek(const reader *x, tp_loader *L, const rows *all)
{
    static rows some;
    const int64_t epoch = x->train, step = tp_loader_steps(L) / 2;
    int64_t first = 0;
    while (first < all->n && (all->row[first].epoch != epoch || all->row[first].step != step))
        first++;
    some.n = 0;
    tp_loader_seek(L, epoch, step);
    if (first == all->n || !x->read(L, &some)) return; /* no row of it */
    cr_expect_arr_eq(some.row, all->row + first, (size_t)some.n * sizeof *some.row, "%s", x->name);
}

/* Compares `ranks` processes, each with `batch` rows, to one. */
static void compare(const reader *x, int64_t batch, int ranks)
{
    static rows one, part[MOST_RANKS];
    tp_loader *L = open_part(x, batch * ranks, (tp_share){ 0 });
    const int64_t steps = tp_loader_steps(L);
    read_all(x, L, &one);
    tp_loader_free(L);
    for (int r = 0; r < ranks; r++) {
        L = open_part(x, batch, (tp_share){ r, ranks });
        cr_expect_eq(tp_loader_steps(L), steps, "%s: rank %d of %d", x->name, r, ranks);
        read_all(x, L, &part[r]);
        expect_seek(x, L, &part[r]);
        tp_loader_free(L);
    }
    expect_union(x->name, &one, part, ranks);
}

static void compare_all(const reader *x)
{
    for (int ranks = 1; ranks <= 4; ranks++) compare(x, 12 / ranks, ranks);
    if (!x->train) compare(x, 3, MOST_RANKS); /* some read nothing */
}

/* ---- examples that a function makes ---- */

enum { COUNT = 29 };

typedef struct samples_how {
    tp_loader_opts o;
    bool bad; /* some examples are */
} samples_how;

static tp_example_state make_example(void *env, const tp_loader_example *e, void *const value[],
                                     char *why)
{
    tp_random r = tp_random_stream(e->seed, "test", (uint64_t)e->place, (uint64_t)e->epoch);
    int32_t *v = value[0];
    if (((const samples_how *)env)->bad && (e->number % 7 == 3 || e->number % 7 == 4)) {
        snprintf(why, TP_EXAMPLE_WHY, "it is empty");
        return TP_EXAMPLE_BAD;
    }
    v[0] = (int32_t)e->number;
    v[1] = (int32_t)(tp_random_word(&r) >> 1);
    return TP_EXAMPLE_MADE;
}

static tp_loader *open_samples(const void *env, int64_t batch, tp_share share)
{
    const tp_column column = { TP_I32, TP_SHAPE(2) };
    const samples_how *how = env;
    const tp_example_source s = { .count = COUNT,
                                  .columns = 1,
                                  .column = &column,
                                  .make = make_example,
                                  .env = (void *)(uintptr_t)how };
    tp_loader_opts o = how->o;
    o.batch = batch, o.share = share;
    return tp_example_loader_new(&s, &o);
}

static bool read_samples(tp_loader *L, rows *r)
{
    tp_example_batch b;
    if (!tp_example_loader_next(L, &b)) return false;
    for (int64_t i = 0; i < b.n; i++) {
        const int32_t *v = (const int32_t *)b.value[0] + 2 * i;
        cr_expect_eq(v[0], b.index[i]);
        add_row(r, b.epoch, b.step, b.index[i], hash_bytes(TP_HASH, v, 2 * sizeof *v));
    }
    return true;
}

Test(shares, of_examples_from_a_function)
{
    for (int threads = 0; threads < 3; threads++)
        for (int bad = 0; bad < 2; bad++)
            for (int kind = 0; kind < 3; kind++) {
                const samples_how how = { { .seed = 5,
                                            .train = kind == 0,
                                            .whole = kind == 2,
                                            .threads = threads,
                                            .ahead = 1 + 2 * threads },
                                          bad };
                const reader x = { "samples", open_samples, read_samples, &how, kind == 0 };
                if (kind < 2) compare_all(&x);
                if (kind == 2) compare(&x, 4, 3);
            }
}

/* Where the last batch is cut, and what each process counts. */
Test(shares, rows_of_the_last_batch)
{
    static const int64_t want[MOST_RANKS] = { 5, 4, 4, 4, 4, 4, 4 }; /* of 29: 7 x 4 + 1 */
    const samples_how how = { { .seed = 1 }, false };
    static rows r;
    const reader x = { "samples", open_samples, read_samples, &how, false };
    for (int k = 0; k < 7; k++) {
        tp_loader *L = open_part(&x, 1, (tp_share){ k, 7 });
        cr_expect_eq(tp_loader_steps(L), 5);
        read_all(&x, L, &r);
        cr_expect_eq(r.n, want[k], "rank %d: %lld rows", k, (long long)r.n);
        cr_expect_not(read_samples(L, &r), "it has ended");
        tp_loader_free(L);
    }
    tp_loader *L = open_part(&x, 10, (tp_share){ 3, 4 });
    cr_expect_eq(tp_loader_steps(L), 1);
    cr_expect(!read_samples(L, &r) && tp_loader_ok(L), "rows 30 to 39 of 29");
    tp_loader_free(L);
}

/* In training bad examples leave batches full. Each process counts those it found. */
Test(shares, of_bad_examples)
{
    const samples_how how = { { .seed = 5, .train = true, .threads = 2 }, true };
    const reader x = { "samples", open_samples, read_samples, &how, true };
    static rows r;
    int64_t skipped = 0;
    for (int k = 0; k < 2; k++) {
        tp_loader *L = open_part(&x, 2, (tp_share){ k, 2 });
        read_all(&x, L, &r);
        cr_expect_eq(r.n, 2 * r.batches);
        for (int64_t i = 0; i < r.n; i++)
            cr_expect(r.row[i].number % 7 != 3 && r.row[i].number % 7 != 4);
        skipped += tp_loader_skipped(L);
        tp_loader_free(L);
    }
    cr_expect_gt(skipped, 0);
}

/* A pass fed step by step has each good example once, though batches of one row are empty. */
Test(shares, feeding_passes_over_empty_batches)
{
    const samples_how how = { { .threads = 1 }, true };
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor slot[1] = { TP_NONE };
    int seen[COUNT] = { 0 };
    for (int k = 0; k < 3; k++) {
        tp_loader *L = open_samples(&how, 1, (tp_share){ k, 3 });
        for (int64_t step = 0; tp_loader_feed(L, T, 0, step, slot) > 0; step++) {
            int32_t v[2];
            cr_assert(tp_read(T, slot[0], v, sizeof v), "%s", tp_why(T));
            cr_assert(v[0] % 3 == k && v[0] / 3 >= step);
            seen[v[0]]++;
        }
        cr_expect(tp_ok(T), "%s", tp_why(T));
        cr_expect_eq(tp_loader_feed(L, T, 0, 0, slot), 1, "a seek goes back");
        tp_loader_free(L);
    }
    for (int i = 0; i < COUNT; i++)
        cr_expect_eq(seen[i], i % 7 != 3 && i % 7 != 4, "example %d: %d", i, seen[i]);
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- images ---- */

static tp_image_set *pictures;

static void make_pictures(void)
{
    make_folder();
    make_classes("plain", 17, 0);
    write_text("plain/cat/03.png", "no image");
    write_text("plain/dog/12.png", "no image");
    pictures = open_set("plain", TP_LAYOUT_AUTO, TP_TRAIN);
}

static void remove_pictures(void)
{
    tp_image_set_close(pictures);
    remove_folder();
}

enum { SIZE = 16, PIXELS = SIZE * SIZE * 3 };

static tp_loader *open_images(const void *how, int64_t batch, tp_share share)
{
    tp_augment a;
    tp_image_loader_opts o = *(const tp_image_loader_opts *)how;
    cr_assert(tp_augment_recipe(&a, o.train ? "lsla" : "eval", SIZE));
    a.mix.probability = 0;
    o.augment = &a, o.batch = batch, o.share = share;
    return tp_image_loader_new(pictures, &o);
}

static bool read_images(tp_loader *L, rows *r)
{
    tp_image_batch b;
    if (!tp_image_loader_next(L, &b)) return false;
    for (int64_t i = 0; i < b.n; i++) {
        uint64_t h = hash_bytes(TP_HASH, b.x + i * PIXELS, PIXELS * sizeof *b.x);
        h = hash_bytes(h, b.target + 2 * i, 2 * sizeof *b.target);
        add_row(r, b.epoch, b.step, b.index[i], h);
    }
    return true;
}

Test(shares, of_images, .init = make_pictures, .fini = remove_pictures)
{
    static const tp_image_loader_opts cases[] = {
        { .train = true, .seed = 3, .threads = 1 },
        { .train = true, .seed = 3, .threads = 3, .ahead = 5 },
        { .train = true, .seed = 4, .repeats = 3 },
        { .threads = 1 },
        { .threads = 3 },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        compare_all(&(reader){ "images", open_images, read_images, &cases[c], cases[c].train });
}

/* ---- documents ---- */

static tp_documents *documents;

static void make_documents(int each)
{
    tp_random r = tp_random_stream(1, "test", 0, 0);
    documents = tp_documents_new(each, 5);
    for (int i = 0; i < 103; i++) {
        uint16_t ids[2][60];
        const uint16_t *const both[] = { ids[0], ids[1] };
        int64_t n[2];
        for (int k = 0; k < 2; k++) {
            n[k] = 1 + tp_random_below(&r, 60);
            for (int64_t j = 0; j < n[k]; j++) ids[k][j] = (uint16_t)(i + 1 + j + 1000 * k);
        }
        tp_documents_add(documents, i % 5, both, n);
    }
    cr_assert(tp_documents_ok(documents), "%s", tp_documents_why(documents));
}

static tp_loader *open_documents(const void *how, int64_t batch, tp_share share)
{
    tp_document_loader_opts o = *(const tp_document_loader_opts *)how;
    o.batch = batch, o.share = share;
    return tp_document_loader_new(documents, &o);
}

/* Padding belongs to a row: it has the same length in all processes. */
static bool read_documents(tp_loader *L, rows *r)
{
    tp_document_batch b;
    if (!tp_document_loader_next(L, &b)) return false;
    for (int64_t i = 0; i < b.n; i++) {
        uint64_t h = tp_hash(TP_HASH, (uint64_t)b.label[i]);
        for (int k = 0; k < tp_documents_per_example(documents); k++) {
            const int64_t N = b.length[k], from = b.offset[k] ? b.offset[k][i] : i * N,
                          n = b.offset[k] ? b.offset[k][i + 1] - from : N;
            h = hash_bytes(h, b.ids[k] + from, (size_t)n * sizeof **b.ids);
            if (b.mask[k]) h = hash_bytes(h, b.mask[k] + from, (size_t)n);
            if (b.position[k])
                h = hash_bytes(h, b.position[k] + from, (size_t)n * sizeof **b.position);
        }
        add_row(r, b.epoch, b.step, b.index[i], h);
    }
    return true;
}

Test(shares, of_documents)
{
    static const tp_document_loader_opts cases[] = {
        { .train = true, .seed = 3 },
        { .train = true, .seed = 3, .bucket = 3 },
        { .train = true, .seed = 3, .bucket = 1000, .multiple = 8, .beyond = 1 },
        { .train = true, .seed = 3, .bucket = 3, .packed = true },
        { .length = 64 },
        { .bucket = 3 },
        { .bucket = 1000, .packed = true },
        { .bucket = 2, .whole = true },
    };
    for (int each = 1; each <= 2; each++) {
        make_documents(each);
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            compare_all(&(reader){ "documents", open_documents, read_documents, &cases[c],
                                   cases[c].train });
        tp_documents_close(documents);
    }
}

/* ---- masked texts ---- */

static tp_corpus *corpus;

static tp_loader *open_masked(const void *how, int64_t batch, tp_share share)
{
    tp_mlm_loader_opts o = *(const tp_mlm_loader_opts *)how;
    o.batch = batch, o.length = 20, o.share = share;
    return tp_mlm_loader_new(corpus, &o);
}

static bool read_masked(tp_loader *L, rows *r)
{
    tp_mlm_batch b;
    int64_t at = 0;
    if (!tp_mlm_loader_next(L, &b)) return false;
    cr_expect(b.rows >= b.targets && b.targets > 0);
    for (int64_t i = 0; i < b.n; i++) {
        uint64_t h = hash_bytes(TP_HASH, b.ids + i * b.length, (size_t)b.length * sizeof *b.ids);
        for (; at < b.targets && b.row[at] < (i + 1) * b.length; at++)
            h = tp_hash(tp_hash(h, (uint64_t)(b.row[at] - i * b.length)), (uint64_t)b.target[at]);
        add_row(r, b.epoch, b.step, b.index[i], h);
    }
    cr_expect_eq(at, b.targets);
    return true;
}

Test(shares, of_masked_texts, .init = corpus_begin, .fini = corpus_end)
{
    static const tp_mlm_loader_opts cases[] = {
        { .train = true, .seed = 3, .rate = 0.3, .exact = true },
        { .train = true, .seed = 3, .rate = 0.3, .exact = true, .padded = true },
        { .part = TP_VALID, .rate = 0.3, .exact = true },
        { .part = TP_VALID, .rate = 0.3, .exact = true, .padded = true },
    };
    corpus_sentences("a", 1500, 6, " ");
    corpus = corpus_of("a", (tp_corpus_opts){ .held_out = 0.3 });
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        compare_all(&(reader){ "mlm", open_masked, read_masked, &cases[c], cases[c].train });
    tp_corpus_close(corpus);
}

/* All batches of all processes have equally many rows for the loss, also in the last batch. */
Test(shares, of_padded_targets, .init = corpus_begin, .fini = corpus_end)
{
    const tp_mlm_loader_opts how = { .part = TP_VALID, .exact = true, .padded = true };
    corpus_sentences("a", 700, 6, " ");
    corpus = corpus_of("a", (tp_corpus_opts){ .held_out = 0.3 });
    for (int k = 0; k < 3; k++) {
        tp_loader *L = open_masked(&how, 4, (tp_share){ k, 3 });
        for (tp_mlm_batch b; tp_mlm_loader_next(L, &b);)
            cr_expect_eq(b.rows, 4 * 3, "ceil(0.15 x 18)");
        cr_expect(tp_loader_ok(L), "%s", tp_loader_why(L));
        tp_loader_free(L);
    }
    tp_loader *L = open_masked(&how, 1000, (tp_share){ 0, 2 });
    tp_mlm_batch b;
    cr_assert(tp_mlm_loader_next(L, &b), "%s", tp_loader_why(L));
    cr_expect(b.n == tp_mlm_loader_sequences(L) && b.rows == b.n * 3, "there are no more");
    tp_loader_free(L);
    tp_corpus_close(corpus);
}

/* ---- examples in memory ---- */

static tp_examples *in_memory(int64_t batch, tp_share share)
{
    const tp_column column = { TP_I32, TP_SCALAR };
    tp_examples *X = tp_examples_new(
        1, &column, &(tp_examples_opts){ batch, 5, .hold_back_every = 3, .share = share });
    for (int32_t i = 0; i < 47; i++) tp_examples_add(X, (const void *[]){ &i });
    cr_assert(tp_examples_ok(X), "%s", tp_examples_why(X));
    return X;
}

/* Reads a batch; returns its rows. */
static int64_t fed(tp_examples *X, tp_tape *T, tp_part part, int64_t step, int32_t *to)
{
    tp_tensor slot[1] = { TP_NONE };
    const int64_t n = tp_examples_feed(X, T, part, 1, step, slot);
    cr_assert(tp_ok(T), "%s", tp_why(T));
    if (n > 0) cr_assert(tp_read(T, slot[0], to, (size_t)n * sizeof *to), "%s", tp_why(T));
    tp_reset(T);
    return n;
}

Test(shares, of_samples)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    static const tp_part parts[] = { TP_TRAIN, TP_VALID };
    for (int p = 0; p < 2; p++)
        for (int ranks = 1; ranks < 8; ranks++) {
            const int64_t batch = 3;
            tp_examples *one = in_memory(batch * ranks, (tp_share){ 0 });
            for (int64_t step = 0; step < tp_examples_steps(one, parts[p]); step++) {
                int32_t want[24], to[24] = { 0 };
                const int64_t n = fed(one, T, parts[p], step, want);
                int64_t at = 0;
                for (int r = 0; r < ranks; r++) {
                    tp_examples *X = in_memory(batch, (tp_share){ r, ranks });
                    cr_expect_eq(tp_examples_steps(X, parts[p]), tp_examples_steps(one, parts[p]));
                    at += fed(X, T, parts[p], step, to + at);
                    tp_examples_free(X);
                }
                cr_assert_eq(at, n);
                cr_expect_arr_eq(to, want, (size_t)n * sizeof *to, "%d ranks", ranks);
            }
            tp_examples_free(one);
        }
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- streams of a text ---- */

/* The position is the same for any number of processes, so each can go on where others were. */
Test(shares, of_streams)
{
    enum { STREAMS = 12, M = 5 };
    uint8_t text[700];
    for (int i = 0; i < 700; i++) text[i] = (uint8_t)('a' + i * 7919 / 13 % 26);
    tp_text *X = tp_text_from(text, sizeof text, &(tp_text_opts){ .style = TP_TEXT_BYTES });
    int32_t want[2][STREAMS * M], got[2][STREAMS * M];
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int all = 0; all < 2; all++) {
            const int64_t batch = STREAMS / ranks;
            tp_streams *one =
                tp_streams_new(X, TP_TRAIN, &(tp_streams_opts){ STREAMS, M, all, { 0 } });
            const int64_t steps = tp_streams_steps(one);
            cr_assert(steps > 5, "%s", tp_streams_why(one));
            for (int r = 0; r < ranks; r++) {
                tp_streams *S =
                    tp_streams_new(X, TP_TRAIN, &(tp_streams_opts){ batch, M, all, { r, ranks } });
                cr_assert_eq(tp_streams_steps(S), steps, "%s", tp_streams_why(S));
                tp_streams_seek(one, 0);
                for (int64_t s = 0; s < 2 * steps + 1; s++) {
                    if (s == steps + 3) {
                        tp_streams_seek(one, 2 * steps - 1);
                        tp_streams_seek(S, tp_streams_position(one));
                    }
                    cr_assert(tp_streams_next_host(one, want[0], want[1]));
                    cr_assert(tp_streams_next_host(S, got[0], got[1]));
                    for (int k = 0; k < 2; k++)
                        cr_expect_arr_eq(got[k], want[k] + r * batch * M,
                                         (size_t)(batch * M) * sizeof **got, "rank %d of %d", r,
                                         ranks);
                }
                cr_expect_eq(tp_streams_position(S), tp_streams_position(one));
                tp_streams_free(S);
            }
            tp_streams_free(one);
        }
    tp_text_close(X);
}

/* ---- refusals ---- */

static void expect_refusal(const char *name, const char *why, int rank, int ranks)
{
    char want[128];
    snprintf(want, sizeof want, "the share is that of rank %d of %d; ranks are numbered from 0",
             rank, ranks);
    cr_expect(strstr(why, want), "%s: %s", name, why);
}

Test(shares, impossible_ones, .init = corpus_begin, .fini = corpus_end)
{
    static const tp_share bad[] = { { 2, 2 }, { -1, 2 }, { 1, 0 }, { 0, -1 }, { 1, 1 } };
    static const samples_how samples;
    static const tp_document_loader_opts how_documents;
    static const tp_mlm_loader_opts how_masked;
    const reader readers[] = { { "samples", open_samples, NULL, &samples, false },
                               { "documents", open_documents, NULL, &how_documents, false },
                               { "mlm", open_masked, NULL, &how_masked, false } };
    const tp_column column = { TP_I32, TP_SCALAR };
    make_documents(1);
    corpus_sentences("a", 700, 6, " ");
    corpus = corpus_of("a", (tp_corpus_opts){ 0 });
    tp_text *X = tp_text_from((const uint8_t *)"abcdefghijklmnopqrstuvwxyz", 26, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (size_t k = 0; k < sizeof readers / sizeof *readers; k++) {
            tp_loader *L = readers[k].open(readers[k].how, 1, bad[i]);
            cr_expect(!tp_loader_ok(L) && tp_loader_steps(L) == 0);
            expect_refusal(readers[k].name, tp_loader_why(L), bad[i].rank, bad[i].ranks);
            tp_loader_free(L);
        }
        tp_examples *S = tp_examples_new(1, &column, &(tp_examples_opts){ 1, .share = bad[i] });
        expect_refusal("in memory", tp_examples_why(S), bad[i].rank, bad[i].ranks);
        tp_examples_free(S);
        tp_streams *B = tp_streams_new(X, TP_TRAIN, &(tp_streams_opts){ 1, 2, .share = bad[i] });
        expect_refusal("streams", tp_streams_why(B), bad[i].rank, bad[i].ranks);
        tp_streams_free(B);
    }
    tp_text_close(X);
    tp_corpus_close(corpus);
    tp_documents_close(documents);
}

/* Examples must fill the batch of all. */
Test(shares, too_few_for_all)
{
    const samples_how how = { { .train = true }, false };
    tp_loader *L = open_samples(&how, 15, (tp_share){ 0, 2 });
    cr_expect_str_eq(tp_loader_why(L), "29 examples do not fill a batch of 30: lower the batch");
    tp_loader_free(L);
    tp_examples *X = in_memory(16, (tp_share){ 1, 2 });
    cr_expect_eq(tp_examples_steps(X, TP_VALID), 1);
    tp_examples_free(X);
    X = in_memory(16, (tp_share){ 1, 3 });
    cr_expect_eq(tp_examples_steps(X, TP_TRAIN), 0);
    cr_expect(strstr(tp_examples_why(X), "too few for a batch of 48"), "%s", tp_examples_why(X));
    tp_examples_free(X);
    tp_text *T = tp_text_from((const uint8_t *)"abcdefghijklmnopqrstuvwxyz", 26, NULL);
    tp_streams *S = tp_streams_new(T, TP_TRAIN, &(tp_streams_opts){ 4, 2, .share = { 3, 4 } });
    cr_expect(strstr(tp_streams_why(S), "too few for 16 streams of 2"), "%s", tp_streams_why(S));
    tp_streams_free(S);
    tp_text_close(T);
}
