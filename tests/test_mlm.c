/* test_mlm.c - texts for masked language modelling: which documents they are divided into, that tokens depend neither on
 * pieces nor on threads nor on the cache, which tokens are held out, what is masked, and that a batch depends on its
 * epoch and step alone. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <tapegrad/mlm.h>
#include <tapegrad/random.h>

#include "support_bpe.h"
#include "support_device.h"
#include "support_folder.h"

static tp_bpe *X;
static char vocab[16384];

static void setup(void)
{
    make_folder();
    bpe_small(vocab, "th the \xc4\xa0t \xc4\xa0th \xc4\xa0the");
    X = tp_bpe_from("small", vocab, "t h\nth e\n\xc4\xa0 t\n\xc4\xa0t h\n\xc4\xa0th e\n", NULL);
    cr_assert(tp_bpe_ok(X), "%s", tp_bpe_why(X));
}

static void teardown(void)
{
    tp_bpe_close(X);
    remove_folder();
}

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "wb");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", name);
}

static void shell(const char *command)
{
    char full[2048];
    snprintf(full, sizeof full, "cd '%s' && %s", folder, command);
    cr_assert_eq(system(full), 0, "%s", command);
}

static tp_corpus *try(const char *name, tp_corpus_opts o)
{
    const char *path = name[0] ? in_folder(name) : folder;
    return tp_corpus_open(&path, 1, X, &o);
}

static tp_corpus *corpus(const char *name, tp_corpus_opts o)
{
    tp_corpus *C = try(name, o);
    cr_assert(tp_corpus_ok(C), "%s", tp_corpus_why(C));
    return C;
}

static void read_tokens(const tp_corpus *C, tp_part part, int64_t first, int64_t n, uint16_t *to)
{
    char why[1100];
    cr_assert(tp_corpus_read(C, part, first, n, to, why, sizeof why), "%s", why);
}

/* All tokens of a corpus without held-out ones, with </s> as a bar. */
static const char *text_of(const tp_corpus *C)
{
    static uint16_t ids[1024];
    static int32_t wide[1024];
    static char text[4096];
    const int64_t n = tp_corpus_tokens(C, TP_TRAIN);
    size_t used = 0;
    cr_assert_lt(n, 1024);
    read_tokens(C, TP_TRAIN, 0, n, ids);
    tp_bpe_coder *coder = tp_bpe_coder_new(X);
    for (int64_t i = 0, from = 0; i < n; i++) {
        wide[i] = ids[i];
        if (ids[i] != 2) continue;
        const char *part = tp_bpe_decode(coder, wide + from, i - from, TP_BPE_RAW, NULL);
        used += (size_t)sprintf(text + used, "%s|", part);
        from = i + 1;
    }
    tp_bpe_coder_free(coder);
    text[used] = '\0';
    return text;
}

/* Writes sentences of random words. */
static void write_sentences(const char *name, int words, uint64_t seed, const char *between)
{
    static const char *const word[] = { "the", "other", "Theo",
                                        "x",   "don't", "caf\xc3\xa9",
                                        "12",  "(a)",   "\xe4\xb8\xad\xe6\x96\x87" };
    tp_random r = tp_random_stream(seed, "test", 0, 0);
    FILE *f = fopen(in_folder(name), "wb");
    cr_assert(f);
    for (int i = 0; i < words; i++) {
        const int64_t k = tp_random_below(&r, 9 + 5);
        fprintf(f, "%s%s", k < 9 ? word[k] : "the", tp_random_below(&r, 9) ? " " : between);
    }
    fclose(f);
}

TestSuite(mlm, .init = setup, .fini = teardown);

/* ---- texts ---- */

Test(mlm, documents_end_where_the_options_say)
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
        tp_corpus *C = corpus("a", (tp_corpus_opts){ .end = cases[k].end, .held_out = -1 });
        cr_expect_str_eq(text_of(C), cases[k].text, "%d: %s", k, text_of(C));
        cr_expect_eq(tp_corpus_documents(C), k == 0 ? 1 : k + 2);
        cr_expect_eq(tp_corpus_bytes(C), 32);
        tp_corpus_close(C);
        C = try("empty", (tp_corpus_opts){ .end = cases[k].end });
        cr_expect(strstr(tp_corpus_why(C), "empty contains no text"), "%s", tp_corpus_why(C));
        tp_corpus_close(C);
    }
    tp_corpus *C = corpus("a", (tp_corpus_opts){ .limit = 8, .held_out = -1 });
    cr_expect_str_eq(text_of(C), "one|");
    tp_corpus_close(C);
}

Test(mlm, files_come_from_folders_archives_and_packed_files)
{
    shell("mkdir -p d/b d/.hidden");
    write_text("d/b/2.txt", "second");
    write_text("d/a.txt", "first\n");
    write_text("d/c.txt", "third");
    write_text("d/c.csv", "other");
    write_text("d/.hidden/x.txt", "hidden");
    shell("gzip d/c.txt && tar cf d.tar d/a.txt d/b/2.txt && xz -k d.tar");
    tp_corpus *C = corpus("d", (tp_corpus_opts){ .held_out = -1 });
    cr_expect_str_eq(text_of(C), "first|second|third|");
    tp_corpus_close(C);
    C = corpus("d.tar.xz", (tp_corpus_opts){ .held_out = -1 });
    cr_expect_str_eq(text_of(C), "first|second|");
    tp_corpus_close(C);
    char path[2][600];
    const char *both[2] = { path[0], path[1] };
    snprintf(path[0], 600, "%s", in_folder("d/c.csv"));
    snprintf(path[1], 600, "%s", in_folder("d/c.txt.gz"));
    C = tp_corpus_open(both, 2, X, &(tp_corpus_opts){ .held_out = -1 });
    cr_expect_str_eq(text_of(C), "other|third|", "a path may have any name");
    tp_corpus_close(C);
}

/* A text of 3 MiB in one document: the tokens are those of the whole text, with any number of threads. */
Test(mlm, pieces_and_threads_make_no_difference)
{
    write_sentences("long", 700000, 1, "\n");
    write_sentences("many", 300000, 2, "\n\n");
    shell("gzip -k long && xz -k -0 long");
    FILE *f = fopen(in_folder("long"), "rb");
    static char text[4 << 20];
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    cr_assert(n > 3 << 20 && n < sizeof text);
    while (strchr(" \n", text[n - 1])) n--;
    tp_bpe_coder *coder = tp_bpe_coder_new(X);
    int64_t count;
    const int32_t *ids = tp_bpe_encode(coder, text, n, &count);
    static const char *const name[] = { "long", "long.gz", "long.xz" };
    for (int k = 0; k < 3; k++) {
        tp_corpus *C = corpus(name[k], (tp_corpus_opts){ .threads = 1 + k, .held_out = -1 });
        cr_assert_eq(tp_corpus_tokens(C, TP_TRAIN), count + 1);
        uint16_t *got = malloc((size_t)(count + 1) * sizeof *got);
        read_tokens(C, TP_TRAIN, 0, count + 1, got);
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
            tp_corpus *C =
                corpus("many", (tp_corpus_opts){ .end = (tp_document_end)end, .threads = threads });
            cr_expect(threads == 1 || tp_corpus_hash(C) == hash, "%d threads", threads);
            hash = tp_corpus_hash(C);
            cr_expect_gt(tp_corpus_documents(C), 20000);
            tp_corpus_close(C);
        }
    }
}

/* Words of no letters and no spaces are cut between characters. */
Test(mlm, a_text_without_words_is_cut)
{
    FILE *f = fopen(in_folder("a"), "wb");
    for (int i = 0; i < 800000; i++) fputs("\xe4\xb8\xad", f);
    fclose(f);
    tp_corpus *C = corpus("a", (tp_corpus_opts){ .held_out = -1 });
    cr_expect_eq(tp_corpus_tokens(C, TP_TRAIN), 2400001);
    cr_expect_eq(tp_corpus_documents(C), 1);
    tp_corpus_close(C);
}

/* ---- parts ---- */

Test(mlm, parts_share_the_stream)
{
    static const double fraction[] = { -1, 0, 0.1, 0.49, 1e-9 };
    write_sentences("a", 5000, 3, "\n");
    tp_corpus *All = corpus("a", (tp_corpus_opts){ .held_out = -1 });
    const int64_t n = tp_corpus_tokens(All, TP_TRAIN);
    uint16_t *all = malloc((size_t)n * 4), *part = all + n;
    read_tokens(All, TP_TRAIN, 0, n, all);
    for (int k = 0; k < 5; k++) {
        tp_corpus *C = corpus("a", (tp_corpus_opts){ .held_out = fraction[k] });
        const int64_t t = tp_corpus_tokens(C, TP_TRAIN), v = tp_corpus_tokens(C, TP_VALID);
        const double f = fraction[k] == 0 ? 0.05 : fmax(0, fraction[k]);
        cr_expect_eq(t + v, n);
        cr_expect(fabs((double)v - f * (double)n) <= 16, "%g: %lld of %lld", f, (long long)v,
                  (long long)n);
        read_tokens(C, TP_TRAIN, 0, t, part);
        for (int64_t i = 0; i < t; i += 7) { /* pieces are those of the whole */
            uint16_t some[40];
            const int64_t m = t - i < 40 ? t - i : 40;
            read_tokens(C, TP_TRAIN, i, m, some);
            cr_assert_arr_eq(some, part + i, (size_t)m * 2);
        }
        int64_t valid = 0, train = 0; /* both parts in turn are the stream */
        uint16_t *held = malloc((size_t)v * 2 + 2);
        read_tokens(C, TP_VALID, 0, v, held);
        for (int64_t s = 0, at = 0; s < 16; s++) {
            const int64_t length = n / 16 + (s < n % 16), h = (int64_t)(f * (double)length);
            cr_assert_arr_eq(all + at, part + train, (size_t)(length - h) * 2);
            cr_assert_arr_eq(all + at + length - h, held + valid, (size_t)h * 2);
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

/* ---- masks ---- */

enum { B = 8, N = 34, M = N - 2 };

static tp_mlm *batches(const tp_corpus *C, tp_mlm_opts o)
{
    if (!o.batch) o.batch = B;
    if (!o.length) o.length = N;
    tp_mlm *L = tp_mlm_new(C, &o);
    cr_assert(tp_mlm_ok(L), "%s", tp_mlm_why(L));
    return L;
}

static void next(tp_mlm *L, tp_mlm_batch *b)
{
    cr_assert(tp_mlm_next(L, b), "%s", tp_mlm_why(L));
}

/* How many tokens became what. */
typedef struct counts {
    int64_t tokens, targets, masked, same, other;
    int64_t seen[600];
} counts;

/* Compares a batch with the tokens of its sequences. */
static void check(const tp_corpus *C, const tp_mlm_batch *b, tp_part part, counts *c)
{
    int64_t at = 0;
    const int32_t mask = tp_bpe_special_id(X, TP_BPE_MASK);
    for (int64_t i = 0; i < b->n; i++) {
        uint16_t want[M];
        const int32_t *ids = b->ids + i * N;
        read_tokens(C, part, b->index[i] * M, M, want);
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
    write_sentences("a", 60000, 4, "\n");
    for (int exact = 0; exact < 2; exact++) {
        tp_corpus *C = corpus("a", (tp_corpus_opts){ .end = TP_DOCUMENT_LINE });
        tp_mlm *L = batches(C, (tp_mlm_opts){ .train = true, .seed = 5, .exact = exact });
        static counts c;
        c = (counts){ 0 };
        for (int64_t s = 0; s < 2 * tp_mlm_steps(L); s++) {
            tp_mlm_batch b;
            next(L, &b);
            check(C, &b, TP_TRAIN, &c);
            cr_expect(b.rows == b.targets && b.rows > 0);
        }
        expect_share("targets", c.targets, c.tokens, 0.15);
        const double ordinary = (double)tp_bpe_size(X) - 5;
        expect_share("<mask>", c.masked, c.targets, 0.8);
        expect_share("unchanged", c.same, c.targets, 0.1 + 0.1 / ordinary);
        expect_share("random", c.other, c.targets, 0.1 - 0.1 / ordinary);
        int64_t missing = 0;
        for (int id = 4; id < tp_bpe_size(X) - 1; id++) missing += c.seen[id] == 0;
        cr_expect_lt(missing, 5, "random tokens are any of the vocabulary");
        tp_mlm_free(L);
        tp_corpus_close(C);
    }
}

Test(mlm, exact_numbers_of_targets_and_equal_numbers_of_rows)
{
    write_sentences("a", 4000, 4, " ");
    tp_corpus *C = corpus("a", (tp_corpus_opts){ 0 });
    tp_mlm *L = batches(C, (tp_mlm_opts){ .train = true, .exact = true, .padded = true });
    int64_t four = 0, five = 0;
    for (int64_t s = 0; s < 40; s++) {
        tp_mlm_batch b;
        int64_t per[B] = { 0 };
        next(L, &b);
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
    tp_mlm_free(L);
    tp_corpus_close(C);
}

Test(mlm, an_epoch_has_each_sequence_once)
{
    static const int words[] = { 60, 100, 130, 1000, 9000 };
    for (int k = 0; k < 5; k++) {
        write_sentences("a", words[k], 6, " ");
        tp_corpus *C = corpus("a", (tp_corpus_opts){ 0 });
        tp_mlm *L = batches(C, (tp_mlm_opts){ .batch = 1, .train = true });
        const int64_t n = tp_mlm_sequences(L);
        int64_t *first = calloc((size_t)n, sizeof *first), moved = 0;
        cr_assert(n == tp_mlm_steps(L) && n == tp_corpus_tokens(C, TP_TRAIN) / M);
        for (int e = 0; e < 3; e++) {
            char *seen = calloc((size_t)n, 1);
            for (int64_t i = 0; i < n; i++) {
                tp_mlm_batch b;
                next(L, &b);
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
        tp_mlm_free(L);
        tp_corpus_close(C);
    }
}

static uint64_t hash_of(const tp_mlm_batch *b)
{
    uint64_t h = TP_HASH;
    for (int64_t i = 0; i < b->n * b->length; i++) h = tp_hash(h, (uint64_t)b->ids[i]);
    for (int64_t i = 0; i < b->rows; i++)
        h = tp_hash(tp_hash(h, (uint64_t)b->row[i]), (uint64_t)b->target[i]);
    return h;
}

Test(mlm, a_batch_does_not_depend_on_those_before)
{
    write_sentences("a", 4000, 6, "\n");
    tp_corpus *C = corpus("a", (tp_corpus_opts){ .end = TP_DOCUMENT_LINE });
    tp_mlm *L = batches(C, (tp_mlm_opts){ .train = true, .seed = 3 }),
           *R = batches(C, (tp_mlm_opts){ .train = true, .seed = 3 }),
           *S = batches(C, (tp_mlm_opts){ .train = true, .seed = 4 });
    const int64_t steps = tp_mlm_steps(L);
    cr_assert_gt(steps, 10);
    tp_mlm_batch b;
    for (int64_t i = 0; i < 3 * steps; i++) {
        next(L, &b);
        const uint64_t h = hash_of(&b);
        tp_mlm_seek(R, i / steps, i % steps);
        next(R, &b);
        cr_expect_eq(hash_of(&b), h, "batch %lld", (long long)i);
        tp_mlm_seek(R, (i / steps + 1) % 3, i % steps);
        next(R, &b);
        cr_expect_neq(hash_of(&b), h, "epochs differ");
        next(S, &b);
        cr_expect_neq(hash_of(&b), h, "seeds differ");
    }
    tp_mlm_seek(L, 0x7fffffff, steps);
    cr_expect_not(tp_mlm_next(L, &b), "the last epoch ends");
    tp_mlm_free(L), tp_mlm_free(R), tp_mlm_free(S);
    tp_corpus_close(C);
}

Test(mlm, held_out_masks_never_change)
{
    write_sentences("a", 4300, 6, " ");
    tp_corpus *C = corpus("a", (tp_corpus_opts){ 0 });
    tp_mlm *L = batches(C, (tp_mlm_opts){ .part = TP_VALID, .batch = 5 });
    const int64_t tokens = tp_corpus_tokens(C, TP_VALID), steps = tp_mlm_steps(L),
                  sequences = (tokens + M - 1) / M;
    uint64_t hash[64];
    cr_assert(tp_mlm_sequences(L) == sequences && steps == (sequences + 4) / 5 && steps < 64 &&
              tokens % M && sequences % 5);
    for (int epoch = 0; epoch < 3; epoch++) {
        int64_t at = 0, real = 0;
        tp_mlm_batch b;
        tp_mlm_seek(L, epoch, 0);
        for (int64_t s = 0; tp_mlm_next(L, &b); s++) {
            for (int64_t i = 0; i < b.n; i++) cr_expect_eq(b.index[i], at++);
            for (int64_t i = 0; i < b.n * N; i++) real += b.ids[i] != 1;
            cr_expect(epoch == 0 || hash[s] == hash_of(&b));
            hash[s] = hash_of(&b);
            for (int64_t k = 0; k < b.rows; k++) cr_assert_neq(b.ids[b.row[k]], 1);
        }
        cr_expect_eq(at, sequences);
        cr_expect_eq(real, tokens + 2 * sequences, "the last sequence is padded");
    }
    tp_mlm_free(L);
    tp_corpus_close(C);
}

Test(mlm, a_batch_always_has_a_target)
{
    write_text("a", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj");
    tp_corpus *C = corpus("a", (tp_corpus_opts){ .end = TP_DOCUMENT_LINE, .held_out = -1 });
    tp_mlm *L = batches(C, (tp_mlm_opts){ .batch = 1, .length = 4, .train = true, .rate = 1e-6 });
    for (int i = 0; i < 40; i++) {
        tp_mlm_batch b;
        next(L, &b);
        cr_expect(b.rows == 1 && b.row[0] == 1 && b.target[0] > 3 && b.ids[2] == 2);
    }
    tp_mlm_free(L);
    L = batches(C, (tp_mlm_opts){ .batch = 1, .length = 3, .rate = 0.5 }); /* </s> alone */
    tp_mlm_batch b;
    next(L, &b);
    cr_expect_not(tp_mlm_next(L, &b));
    cr_expect(strstr(tp_mlm_why(L), "special tokens only"), "%s", tp_mlm_why(L));
    tp_mlm_free(L);
    tp_corpus_close(C);
}

Test(mlm, batches_are_fed)
{
    write_sentences("a", 4000, 6, " ");
    tp_corpus *C = corpus("a", (tp_corpus_opts){ 0 });
    tp_mlm *L = batches(C, (tp_mlm_opts){ .train = true });
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor slot[TP_MLM_SLOTS] = { TP_NONE, TP_NONE, TP_NONE };
    tp_mlm_batch b;
    int64_t targets;
    int32_t ids[B * N];
    cr_assert_eq(tp_mlm_feed(L, T, 1, 2, slot, &targets), B);
    tp_read(T, slot[0], ids, sizeof ids);
    cr_assert(tp_ok(T), "%s", tp_why(T));
    tp_mlm_seek(L, 1, 2);
    next(L, &b);
    cr_expect_arr_eq(ids, b.ids, sizeof ids);
    cr_expect(targets == b.targets && tp_dim(slot[1], 0) == b.rows && tp_dim(slot[2], 0) == b.rows);
    tp_tape_free(T);
    tp_device_close(D);
    tp_mlm_free(L);
    tp_corpus_close(C);
}

/* ---- the cache ---- */

Test(mlm, a_cache_holds_the_same_tokens)
{
    char cache[600];
    snprintf(cache, sizeof cache, "%s", in_folder("tokens"));
    write_sentences("a", 3000, 6, "\n\n");
    const tp_corpus_opts o = { .end = TP_DOCUMENT_BLANK, .cache = cache };
    tp_corpus *Memory = corpus("a", (tp_corpus_opts){ .end = TP_DOCUMENT_BLANK }),
              *First = corpus("a", o), *Again = corpus("a", o);
    const tp_corpus *const all[] = { Memory, First, Again };
    cr_expect(!tp_corpus_was_cached(Memory) && !tp_corpus_was_cached(First) &&
              tp_corpus_was_cached(Again));
    uint64_t hash[3];
    for (int k = 0; k < 3; k++) {
        tp_mlm *L = batches(all[k], (tp_mlm_opts){ .train = true, .seed = 3 });
        tp_mlm_batch b;
        next(L, &b);
        hash[k] = hash_of(&b);
        tp_mlm_free(L);
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
    tp_corpus *C = corpus("a", o);
    const bool cached = tp_corpus_was_cached(C);
    tp_corpus_close(C);
    return cached;
}

Test(mlm, a_cache_is_written_anew_when_anything_changes)
{
    char cache[600];
    snprintf(cache, sizeof cache, "%s", in_folder("tokens"));
    tp_corpus_opts o = { .cache = cache };
    write_sentences("a", 3000, 6, "\n");
    cr_expect(!is_cached(o) && is_cached(o));
    o.threads = 3;
    o.held_out = 0.1;
    cr_expect(is_cached(o), "neither threads nor parts matter");
    o.end = TP_DOCUMENT_LINE;
    cr_expect(!is_cached(o) && is_cached(o));
    o.limit = 5000;
    cr_expect(!is_cached(o) && is_cached(o));
    shell("touch -d 2001-01-01 a");
    cr_expect(!is_cached(o) && is_cached(o));
    tp_bpe_close(X);
    X = tp_bpe_from("small", vocab, "t h\nth e\n", NULL);
    cr_expect(!is_cached(o) && is_cached(o));
    shell("truncate -s -2 tokens");
    cr_expect(!is_cached(o) && is_cached(o));
    shell("printf x | dd of=tokens bs=1 seek=40 conv=notrunc 2>/dev/null");
    cr_expect(!is_cached(o) && is_cached(o));
    shell("printf '\\377\\377' | dd of=tokens bs=1 seek=200 conv=notrunc 2>/dev/null");
    tp_corpus *C = corpus("a", o);
    uint16_t ids[200];
    char why[1100];
    cr_expect_not(tp_corpus_read(C, TP_TRAIN, 0, 200, ids, why, sizeof why));
    cr_expect(strstr(why, "tokens is damaged: it has the id 65535; remove it"), "%s", why);
    tp_mlm *L = batches(C, (tp_mlm_opts){ .batch = 20, .length = 20, .train = true });
    tp_mlm_batch b;
    int64_t s = 0;
    while (s < tp_mlm_steps(L) && tp_mlm_next(L, &b)) s++;
    cr_expect(strstr(tp_mlm_why(L), "is damaged"), "%s", tp_mlm_why(L));
    tp_mlm_free(L);
    tp_corpus_close(C);
}

Test(mlm, another_file_is_not_replaced)
{
    char cache[600];
    write_text("a", "a text");
    write_text("precious", "my notes, longer than the mark of a cache");
    snprintf(cache, sizeof cache, "%s", in_folder("precious"));
    tp_corpus *C = try("a", (tp_corpus_opts){ .cache = cache });
    cr_expect(strstr(tp_corpus_why(C), "is not a cache of tokens, so it is not replaced"), "%s",
              tp_corpus_why(C));
    tp_corpus_close(C);
    shell("grep -q notes precious");
    C = try("a", (tp_corpus_opts){ .cache = folder });
    cr_expect(strstr(tp_corpus_why(C), "the cache"), "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    snprintf(cache, sizeof cache, "%s", in_folder("none/tokens"));
    C = try("a", (tp_corpus_opts){ .cache = cache });
    cr_expect(strstr(tp_corpus_why(C), "cannot be created: No such file"), "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    snprintf(cache, sizeof cache, "%s", in_folder("tokens"));
    C = try("b", (tp_corpus_opts){ .cache = cache });
    cr_expect(strstr(tp_corpus_why(C), "b cannot be opened"), "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    cr_expect_eq(files_in_folder(), 2, "nothing is left of what failed");
}

Test(mlm, a_full_disk_leaves_no_cache)
{
    char cache[600];
    struct rlimit before, most;
    snprintf(cache, sizeof cache, "%s", in_folder("tokens"));
    write_sentences("a", 3000, 6, " ");
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    most = (struct rlimit){ 1000, before.rlim_max };
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &most), 0);
    tp_corpus *C = try("a", (tp_corpus_opts){ .cache = cache });
    setrlimit(RLIMIT_FSIZE, &before);
    cr_expect(strstr(tp_corpus_why(C), "cannot be written: File too large"), "%s",
              tp_corpus_why(C));
    cr_expect_eq(tp_corpus_tokens(C, TP_TRAIN), 0);
    tp_corpus_close(C);
    cr_expect_eq(files_in_folder(), 1);
}

/* ---- what is impossible ---- */

static void expect_why(const tp_corpus *C, tp_mlm_opts o, const char *why)
{
    tp_mlm *L = tp_mlm_new(C, &o);
    tp_mlm_batch b;
    cr_expect(!tp_mlm_ok(L) && strstr(tp_mlm_why(L), why), "'%s' in: %s", why, tp_mlm_why(L));
    cr_expect(!tp_mlm_next(L, &b) && tp_mlm_steps(L) == 0);
    tp_mlm_free(L);
}

Test(mlm, what_is_impossible_says_why)
{
    write_text("a", "the cat sat on the mat");
    tp_corpus *C = corpus("a", (tp_corpus_opts){ 0 });
    expect_why(C, (tp_mlm_opts){ .batch = 1, .length = 2 }, "1 sequences of 2 ids");
    expect_why(C, (tp_mlm_opts){ .batch = 0, .length = 9 }, "0 sequences");
    expect_why(C, (tp_mlm_opts){ .batch = 1 << 20, .length = 1 << 20 }, "below 2^31");
    expect_why(C, (tp_mlm_opts){ .batch = 1, .length = 9, .rate = 1 }, "the rate of targets, 1,");
    expect_why(C, (tp_mlm_opts){ .batch = 1, .length = 9, .padded = true }, "set exact");
    expect_why(C, (tp_mlm_opts){ .batch = 4, .length = 9, .train = true },
               "the training part has 19 tokens, too few for 4 sequences of 9");
    expect_why(C, (tp_mlm_opts){ .batch = 1, .length = 9, .part = TP_VALID },
               "the held-out part has 0 tokens");
    tp_corpus_close(C);
    C = try("none", (tp_corpus_opts){ 0 });
    expect_why(C, (tp_mlm_opts){ .batch = 1, .length = 9 }, "none cannot be opened");
    tp_corpus_close(C);
    C = try("a", (tp_corpus_opts){ .held_out = 0.5 });
    cr_expect(strstr(tp_corpus_why(C), "0.5 is not below 0.5"), "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    C = tp_corpus_open(NULL, 0, X, NULL);
    cr_expect(strstr(tp_corpus_why(C), "there is no text"), "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    tp_bpe *plain = tp_bpe_from("plain", "{\"<s>\": 0, \"<unk>\": 1, \"a\": 2}", "", NULL);
    const char *path = in_folder("a");
    C = tp_corpus_open(&path, 1, plain, NULL);
    cr_expect(strstr(tp_corpus_why(C), "has no token <pad>"), "%s", tp_corpus_why(C));
    tp_corpus_close(C);
    tp_bpe_close(plain);
    write_text("b.gz", "not packed");
    C = try("b.gz", (tp_corpus_opts){ 0 });
    cr_expect(strstr(tp_corpus_why(C), "b.gz is named .gz but is not a gzip file"), "%s",
              tp_corpus_why(C));
    tp_corpus_close(C);
}
