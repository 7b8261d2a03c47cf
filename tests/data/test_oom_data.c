/* test_oom_data.c - memory runs out at the n-th allocation, for many n, while texts, vocabularies,
 * tables, documents or weights are read. Each time the error says so, nothing leaks, and the next
 * try gives the data of an undisturbed run. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/bpe.h>
#include <tapegrad/data.h>
#include <tapegrad/document_loader.h>
#include <tapegrad/image.h>
#include <tapegrad/labelled_texts.h>
#include <tapegrad/listops.h>
#include <tapegrad/mlm.h>
#include <tapegrad/random.h>

#include "support/bpe.h"
#include "support/folder.h"
#include "support/malloc.h"
#include "support/oom.h"

enum { B = 2, M = 8 };

/* ---- texts ---- */

static uint64_t hash_text(const tp_text *X)
{
    uint64_t h = TP_HASH;
    for (int s = TP_TRAIN; s <= TP_TEST; s++) {
        int64_t n;
        const int16_t *ids = tp_text_ids(X, (tp_part)s, &n);
        for (int64_t i = 0; i < n; i++) h = tp_hash(h, (uint64_t)ids[i]);
    }
    return h;
}

static void read_text(void *env, attempt *t)
{
    uint64_t hash[2];
    for (int k = 0; k < 2; k++) {
        int32_t x[B * M], y[B * M];
        if (k == 0) malloc_fail(t->n, t->count);
        tp_text *X = tp_text_open(env, NULL);
        tp_streams *S = tp_streams_new(X, TP_TRAIN, &(tp_streams_opts){ .batch = B, .tokens = M });
        const bool ok = tp_streams_next_host(S, x, y);
        if (k == 0)
            end_attempt(t, ok, tp_streams_why(S));
        else
            cr_expect(ok, "text after allocation %zu: %s", t->n, tp_streams_why(S));
        hash[k] = hash_text(X);
        tp_streams_free(S);
        tp_text_close(X);
    }
    if (t->ok) cr_expect_eq(hash[0], hash[1], "text, allocation %zu: other ids", t->n);
}

Test(oom_data, texts, .timeout = 900)
{
    make_folder();
    FILE *f = fopen(in_folder("text"), "w");
    char command[2048];
    cr_assert(f);
    for (int i = 0; i < 20000; i++) fprintf(f, "line %d of the text\n", i % 977);
    fclose(f);
    snprintf(command, sizeof command, "gzip -k '%s'", in_folder("text"));
    cr_assert_eq(system(command), 0);
    for_every_n("text", read_text, (void *)(uintptr_t)in_folder("text"), 5);
    for_every_n("packed text", read_text, (void *)(uintptr_t)in_folder("text.gz"), 6);
    remove_folder();
}

/* ---- byte-pair encoding ---- */

/* A vocabulary with a dictionary, and a text encoded with it. */
static void read_vocabulary(void *env, attempt *t)
{
    static const char vocab[] = "{\"a\": 0, \"b\": 1, \"ab\": 2}";
    static const char dict[] = "2 1\n0 1\n1 1\nmadeupword0 0\n";
    (void)env;
    for (int k = 0; k < 2; k++) {
        int64_t n = 0;
        if (k == 0) malloc_fail(t->n, t->count);
        tp_bpe *X = tp_bpe_from("test", vocab, "a b\n", dict);
        tp_bpe_coder *C = tp_bpe_coder_new(X);
        const int32_t *ids = C ? tp_bpe_encode(C, "abab", 4, &n) : NULL;
        const char *why = tp_bpe_ok(X) ? "out of memory" : tp_bpe_why(X);
        if (k == 0)
            end_attempt(t, ids, why);
        else
            cr_expect(ids, "vocabulary after allocation %zu: %s", t->n, why);
        if (ids) cr_expect(n == 2 && ids[0] == 4 && ids[1] == 4, "allocation %zu", t->n);
        tp_bpe_coder_free(C);
        tp_bpe_close(X);
    }
}

static void learn_vocabulary(void *env, attempt *t)
{
    static const char text[] = "the cat sat on the mat, that fat cat";
    for (int k = 0; k < 2; k++) {
        if (k == 0) malloc_fail(t->n, t->count);
        tp_bpe_trainer *R = tp_bpe_trainer_new(&(tp_bpe_trainer_opts){ .size = 265 });
        if (R) tp_bpe_trainer_add(R, text, sizeof text - 1);
        tp_bpe *X = R ? tp_bpe_trainer_finish(R) : NULL;
        const bool ok = X && tp_bpe_ok(X);
        if (k == 0)
            end_attempt(t, ok, X ? tp_bpe_why(X) : "out of memory");
        else
            cr_expect(ok, "training after allocation %zu", t->n);
        if (ok) cr_expect_eq(tp_bpe_merges(X), 4, "allocation %zu", t->n);
        tp_bpe_close(X);
        tp_bpe_trainer_free(R);
    }
    (void)env;
}

Test(oom_data, byte_pair_encoding, .timeout = 900)
{
    for_every_n("vocabulary", read_vocabulary, NULL, 20);
    for_every_n("training a vocabulary", learn_vocabulary, NULL, 50);
}

/* ---- tables ---- */

static void read_table(void *env, attempt *t)
{
    const tp_column columns[] = { { TP_I32, TP_SHAPE(8) }, { TP_I32, TP_SCALAR } };
    uint64_t hash[2];
    for (int k = 0; k < 2; k++) {
        if (k == 0) malloc_fail(t->n, t->count);
        tp_table *X = tp_table_open(env, &(tp_table_opts){ .columns = 2 });
        tp_examples *S = tp_examples_new(2, columns, &(tp_examples_opts){ .batch = 4 });
        for (int64_t i = 0; i < tp_table_rows(X); i++) {
            int32_t bytes[8] = { 0 }, label = tp_table_label(X, i, 0);
            const char *text = tp_table_cell(X, i, 1);
            for (int c = 0; c < 8 && text[c]; c++) bytes[c] = text[c];
            tp_examples_add(S, (const void *[]){ bytes, &label });
        }
        const bool ok = tp_table_ok(X) && tp_examples_ok(S);
        const char *why = tp_table_ok(X) ? tp_examples_why(S) : tp_table_why(X);
        if (k == 0)
            end_attempt(t, ok, why);
        else
            cr_expect(ok, "table after allocation %zu: %s", t->n, why);
        hash[k] = tp_examples_hash(S);
        tp_examples_free(S);
        tp_table_close(X);
    }
    if (t->ok) cr_expect_eq(hash[0], hash[1], "table, allocation %zu: other rows", t->n);
}

Test(oom_data, tables, .timeout = 900)
{
    make_folder();
    FILE *f = fopen(in_folder("rows"), "w");
    cr_assert(f);
    for (int i = 0; i < 1000; i++) fprintf(f, "%c\trow %d\n", 'a' + i % 5, i);
    fclose(f);
    for_every_n("table", read_table, (void *)(uintptr_t)in_folder("rows"), 12);
    remove_folder();
}

/* ---- documents ---- */

static tp_documents *open_drawn(const char *path, tp_part part, const tp_documents_opts *o)
{
    (void)path;
    (void)o;
    return tp_documents_listops_drawn(
        part, &(tp_listops_opts){ .shortest = 3, .longest = 20, .train = 600, .test = 1 });
}

static void read_documents(void *env, attempt *t)
{
    const tp_task *task = env;
    uint64_t hash[2] = { 0 };
    for (int k = 0; k < 2; k++) {
        const tp_documents_opts o = { .damage = task->ids == 257 && task->longest > 1024
                                                    ? TP_DAMAGE_INSERT
                                                    : TP_DAMAGE_NONE,
                                      .pixel_offset = 1 };
        tp_document_batch b = { 0 };
        if (k == 0) malloc_fail(t->n, t->count);
        tp_documents *X = task->open(folder, TP_TEST, &o);
        tp_loader *L = tp_document_loader_new(
            X, &(tp_document_loader_opts){ .batch = 1, .bucket = 2, .train = true });
        const bool ok = tp_document_loader_next(L, &b);
        if (k == 0)
            end_attempt(t, ok, tp_loader_why(L));
        else
            cr_expect(ok, "%s after allocation %zu: %s", task->name, t->n, tp_loader_why(L));
        hash[k] = tp_documents_hash(X);
        tp_loader_free(L);
        tp_documents_close(X);
    }
    if (t->ok) cr_expect_eq(hash[0], hash[1], "%s, allocation %zu", task->name, t->n);
}

static void write_documents(void)
{
    char command[4096], list[1024] = "";
    tp_image p = { 0 };
    snprintf(command, sizeof command,
             "cd '%s' && mkdir -p test/neg test/pos metadata imgs && echo bad >test/neg/1.txt && "
             "echo good >test/pos/1.txt && printf '1.0\\ta\\tb\\tc\\td\\n' "
             ">new_aan_pairs.test.tsv && printf 'Source\\tTarget\\n7\\t7\\n' >basic_test.tsv && "
             "head -c 6146 /dev/zero >test_batch.bin",
             folder);
    cr_assert_eq(system(command), 0);
    cr_assert(tp_image_new(&p, 4, 4));
    memset(p.rgb, 9, 48);
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "imgs/%d.png", i);
        snprintf(list + strlen(list), 32, "imgs %d.png 0 1\n", i);
        cr_assert(tp_image_write(&p, in_folder(name)), "%s", p.why);
    }
    tp_image_free(&p);
    FILE *f = fopen(in_folder("metadata/0.npy"), "w");
    cr_assert(f && fputs(list, f) >= 0 && fclose(f) == 0);
}

Test(oom_data, documents, .timeout = 900)
{
    tp_task drawn = { .name = "drawn listops", .open = open_drawn };
    make_folder();
    write_documents();
    for (int i = 0; tp_task_at(i); i++)
        for_every_n(tp_task_at(i)->name, read_documents, (void *)(uintptr_t)tp_task_at(i), 15);
    for_every_n(drawn.name, read_documents, &drawn, 10);
    remove_folder();
}

/* ---- texts for encoders ---- */

static tp_bpe *bytes_only;

static void open_vocabulary(void)
{
    static char vocab[16384];
    bpe_small(vocab, "ab");
    bytes_only = tp_bpe_from("small", vocab, "a b\n", NULL);
    cr_assert(tp_bpe_ok(bytes_only), "%s", tp_bpe_why(bytes_only));
}

/* jansson reports a token as wrong if memory is short. */
static const char *why_of(const char *why)
{
    return strstr(why, "expected near") ? "out of memory" : why;
}

static void read_labelled(void *env, attempt *t)
{
    uint64_t hash[2] = { 0 };
    for (int k = 0; k < 2; k++) {
        if (k == 0) malloc_fail(t->n, t->count);
        tp_documents *S = tp_documents_labelled_texts(env, TP_TRAIN, bytes_only,
                                                      &(tp_labelled_opts){ .hold_back_every = -1 });
        if (k == 0)
            end_attempt(t, tp_documents_ok(S), why_of(tp_documents_why(S)));
        else
            cr_expect(tp_documents_ok(S), "%s after allocation %zu: %s", (const char *)env, t->n,
                      tp_documents_why(S));
        hash[k] = tp_documents_hash(S);
        tp_documents_close(S);
    }
    if (t->ok) cr_expect_eq(hash[0], hash[1], "%s, allocation %zu", (const char *)env, t->n);
}

static void read_corpus(void *env, attempt *t)
{
    const tp_corpus_opts *o = env;
    const char *path = in_folder("train");
    uint64_t hash[2] = { 0 };
    for (int k = 0; k < 2; k++) {
        tp_mlm_batch b = { 0 };
        if (o->cache) remove(o->cache);
        if (k == 0) malloc_fail(t->n, t->count);
        tp_corpus *C = tp_corpus_open(&path, 1, bytes_only, o);
        tp_loader *L = tp_mlm_loader_new(
            C, &(tp_mlm_loader_opts){ .batch = 2, .length = 9, .train = true, .exact = true });
        const bool ok = tp_mlm_loader_next(L, &b);
        if (k == 0)
            end_attempt(t, ok, tp_loader_why(L));
        else
            cr_expect(ok, "corpus after allocation %zu: %s", t->n, tp_loader_why(L));
        hash[k] = tp_corpus_hash(C);
        tp_loader_free(L);
        tp_corpus_close(C);
    }
    if (t->ok) cr_expect_eq(hash[0], hash[1], "corpus, allocation %zu", t->n);
}

Test(oom_data, texts_for_encoders, .timeout = 900)
{
    char command[2048], cache[600];
    make_folder();
    open_vocabulary();
    snprintf(
        command, sizeof command,
        "cd '%s' && mkdir -p train/neg train/pos && echo bad >train/neg/1.txt && echo good, yes "
        ">train/pos/1.txt && printf 'text,label\n\"a,\nb\",x\nc,y\n' >a.csv && printf "
        "'{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": 2}\n' >a.jsonl && "
        "tar cf a.tar train && gzip -k train/pos/1.txt",
        folder);
    cr_assert_eq(system(command), 0);
    static const char *const names[] = { "train", "a.csv", "a.jsonl", "a.tar" };
    for (int i = 0; i < 4; i++)
        for_every_n(names[i], read_labelled, (void *)(uintptr_t)in_folder(names[i]), 15);
    snprintf(cache, sizeof cache, "%s", in_folder("tokens"));
    for_every_n("corpus", read_corpus, &(tp_corpus_opts){ .held_out = -1 }, 15);
    for_every_n("cache", read_corpus, &(tp_corpus_opts){ .held_out = -1, .cache = cache }, 15);
    tp_bpe_close(bytes_only);
    remove_folder();
}

/* ---- files of weights ---- */

static void read_weights(void *env, attempt *t)
{
    uint64_t hash[2] = { TP_HASH, TP_HASH };
    for (int k = 0; k < 2; k++) {
        if (k == 0) malloc_fail(t->n, t->count);
        tp_file *F = tp_file_open(env);
        for (int i = 0; i < tp_file_count(F); i++) {
            const tp_file_tensor *tensor = tp_file_at(F, i);
            const unsigned char *bytes = tp_file_data(F, tensor);
            for (size_t b = 0; bytes && b < tensor->bytes; b++)
                hash[k] = tp_hash(hash[k], bytes[b]);
        }
        if (k == 0)
            end_attempt(t, tp_file_ok(F), tp_file_why(F));
        else
            cr_expect(tp_file_ok(F), "weights after allocation %zu: %s", t->n, tp_file_why(F));
        tp_file_close(F);
    }
    if (t->ok) cr_expect_eq(hash[0], hash[1], "weights, allocation %zu: other bytes", t->n);
}

Test(oom_data, weights, .timeout = 900)
{
    static const char *const names[] = { "zip.pth", "legacy.pth", "compressed.pth",
                                         "shards.index.json" };
    char path[1024];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, TP_SOURCE_DIR "/tests/fixtures/torch/%s", names[i]);
        for_every_n(names[i], read_weights, path, 10);
    }
}
