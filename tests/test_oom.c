/* test_oom.c - memory runs out at the n-th allocation, for many n, while a model is built or
 * trained, a checkpoint saved or loaded, a text decoded or read. Each time the error says so,
 * nothing leaks, no file is harmed, and the next try gives the same bits as an undisturbed run. The
 * shortage is temporary or lasts until the end of the try. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/bpe.h>
#include <tapegrad/data.h>
#include <tapegrad/document_loader.h>
#include <tapegrad/image.h>
#include <tapegrad/listops.h>
#include <tapegrad/models.h>
#include <tapegrad/random.h>
#include <unistd.h>

#include "support_folder.h"
#include "support_malloc.h"
#include "tensor/backend.h"

#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 5 }; /* every fifth n, since the test is slow */
#else
enum { STRIDE = 1 };
#endif
enum { V = 11, B = 2, M = 8 };
static const size_t shortages[] = { 1, SIZE_MAX / 2 }; /* how many allocations fail */

/* ---- a model in training, with all options on ---- */

typedef struct world {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_ema *E;
    tp_ls_lm lm;
    tp_ls_lm_state state;
} world;

static void world_open(world *w, uint64_t seed, tp_dtype compute, tp_recompute recompute)
{
    const tp_ls_lm_cfg cfg = { .vocab = V,
                               .dim = 8,
                               .hidden = 16,
                               .layers = 1,
                               .mem_len = 8,
                               .ls = { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 4 } },
                               .pre_ln = true,
                               .gelu = true,
                               .dropout = 0.1,
                               .emb_dropout = 0.1,
                               .recompute = recompute };
    *w = (world){ .D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 }) };
    w->P = tp_params_new(w->D, &(tp_params_opts){ .seed = seed });
    w->T =
        tp_tape_new(w->D, &(tp_tape_opts){ .seed = seed + 1, .compute = compute, .train = true });
    tp_ls_lm_init(w->P, &w->lm, "", cfg);
    w->O = tp_adamw_new(w->P, &(tp_adamw_opts){ .weight_decay = 0.01 });
    w->E = tp_ema_new(w->P, 0.9);
}

static void world_close(world *w)
{
    tp_ema_free(w->E);
    tp_optim_free(w->O);
    tp_tape_free(w->T);
    tp_params_free(w->P);
    cr_expect_eq(tp_device_stats(w->D).live_bytes, 0, "device memory leaks");
    tp_device_close(w->D);
}

/* The first error of any of its objects, or NULL. */
static const char *world_why(const world *w)
{
    const char *why[] = { tp_device_why(w->D), tp_params_why(w->P), tp_why(w->T),
                          tp_optim_why(w->O), tp_ema_why(w->E) };
    for (size_t i = 0; i < sizeof why / sizeof *why; i++)
        if (*why[i]) return why[i];
    return NULL;
}

/* True if the step succeeded. */
static bool step(world *w)
{
    static const int32_t ids[B * M] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 3, 5, 7, 9, 2 };
    tp_reset(w->T);
    const tp_tensor x = tp_from(w->T, TP_I32, TP_SHAPE(B, M), ids);
    const tp_tensor y = tp_ls_lm_forward(w->T, &w->lm, &w->state, x);
    tp_backward(w->T, tp_cross_entropy(w->T, y, x, TP_MEAN));
    tp_clip_grad_norm(w->P, 0.25);
    const bool ok = tp_step(w->O, 1e-2);
    if (ok) tp_ema_update(w->E);
    return ok && !world_why(w);
}

/* A hash of all values, averages and moments. */
static uint64_t digest(world *w)
{
    uint64_t h = TP_HASH;
    cr_assert(step(w), "%s", world_why(w)); /* the next values depend on the moments */
    for (int k = 0; k < 2; k++, tp_ema_swap(w->E))
        for (tp_param_info it = { 0 }; tp_next_param(w->P, &it);) {
            float x[512];
            const size_t n = (size_t)tp_numel(it.tensor);
            if (it.buffer) continue;
            cr_assert(n <= 512 && tp_param_get(w->P, it.tensor, TP_F32, x, n * sizeof *x), "%s: %s",
                      it.name, tp_params_why(w->P));
            for (size_t i = 0; i < n * sizeof *x; i++)
                h = tp_hash(h, ((const unsigned char *)x)[i]);
        }
    return h;
}

/* ---- the loop over n ---- */

typedef struct attempt {
    size_t n, count; /* allocations n .. n + count - 1 fail */
    size_t calls;    /* number of allocations made          */
    bool ok;
    char why[4096];
} attempt;

/* Ends the shortage and records its result. */
static void end_attempt(attempt *t, bool ok, const char *why)
{
    t->calls = malloc_heal();
    t->ok = ok;
    snprintf(t->why, sizeof t->why, "%s", why ? why : "no reason is given");
}

/* The last two in libpng's words. */
static bool tells_of_memory(const char *why)
{
    return strstr(why, "out of memory") || strstr(why, "out of host memory") ||
           strstr(why, "Out of memory") || strstr(why, "insufficient memory");
}

/* f makes one attempt, in which it calls malloc_fail(t->n, t->count) and end_attempt. */
static void for_every_n(const char *name, void (*f)(void *env, attempt *t), void *env, int least)
{
    malloc_fail(0, 0);
    for (size_t s = 0; s < sizeof shortages / sizeof *shortages; s++) {
        int failures = 0;
        attempt t = { .n = 1, .count = shortages[s] };
        for (;; t.n += STRIDE) {
            const int64_t live = malloc_live();
            f(env, &t);
            cr_expect_eq(malloc_live(), live, "%s, allocation %zu: %lld blocks leak", name, t.n,
                         (long long)(malloc_live() - live));
            cr_expect(t.ok || tells_of_memory(t.why), "%s, allocation %zu: %s", name, t.n, t.why);
            failures += !t.ok;
            if (t.calls < t.n) break;
        }
        cr_expect(t.ok, "%s fails undisturbed: %s", name, t.why);
        cr_expect(failures * STRIDE >= least, "%s: only %d allocations failed", name, failures);
    }
}

/* ---- making, training ---- */

typedef struct training {
    const char *name;
    tp_dtype compute;
    tp_recompute recompute;
    uint64_t undisturbed; /* the digest after one step */
} training;

static const training trainings[] = {
    { "f32", TP_F32, TP_RECOMPUTE_NONE, 0 },
    { "recomputed blocks", TP_F32, TP_RECOMPUTE_BLOCK, 0 },
    { "bf16, recomputed attention", TP_BF16, TP_RECOMPUTE_ATTENTION, 0 },
};
enum { TRAININGS = sizeof trainings / sizeof *trainings };

static training undisturbed(int i)
{
    static world w;
    training t = trainings[i];
    world_open(&w, 1, t.compute, t.recompute);
    cr_assert(step(&w), "%s: %s", t.name, world_why(&w));
    t.undisturbed = digest(&w);
    world_close(&w);
    return t;
}

static void make(void *env, attempt *t)
{
    const training *like = env;
    static world w;
    malloc_fail(t->n, t->count);
    world_open(&w, 1, like->compute, like->recompute);
    end_attempt(t, !world_why(&w), world_why(&w));
    if (t->ok) cr_expect(step(&w) && digest(&w) == like->undisturbed, "make, allocation %zu", t->n);
    world_close(&w);
}

static void train(void *env, attempt *t)
{
    const training *like = env;
    static world w;
    uint64_t seed, offset;
    world_open(&w, 1, like->compute, like->recompute);
    tp_random_state(w.T, &seed, &offset);
    malloc_fail(t->n, t->count);
    const bool ok = step(&w);
    end_attempt(t, ok, world_why(&w));
    if (!ok) {
        cr_expect(tp_params_ok(w.P) && tp_ema_ok(w.E), "%s, allocation %zu: %s", like->name, t->n,
                  t->why);
        tp_clear(w.T);
        tp_grad_clear(w.P);
        tp_ls_lm_state_clear(w.T, &w.state);
        tp_set_random_state(w.T, seed, offset);
        cr_expect(step(&w), "%s, after allocation %zu: %s", like->name, t->n, world_why(&w));
    }
    cr_expect_eq(digest(&w), like->undisturbed, "%s, allocation %zu: other bits", like->name, t->n);
    world_close(&w);
}

Test(oom, making_a_model, .timeout = 900)
{
    training like = undisturbed(0);
    for_every_n("make", make, &like, 100);
}

Test(oom, training_step, .timeout = 900)
{
    for (int i = 0; i < TRAININGS; i++) {
        training like = undisturbed(i);
        for_every_n(like.name, train, &like, 100);
    }
}

/* A failure due to a failed device gives the device's error, not a shortage of memory. */
Test(oom, failed_device)
{
    world w;
    world_open(&w, 1, TP_F32, 0);
    tp_grad_clear(w.P);
    cr_assert(tp_ema_ok(w.E), "%s", tp_ema_why(w.E));
    tp__err(&w.D->err, TP_E_CUDA, "cuda:0: the GPU fell off");
    malloc_fail(3, SIZE_MAX / 2);
    tp_ema *E = tp_ema_new(w.P, 0.5);
    tp_clip_grad_norm(w.P, 1.0);
    malloc_heal();
    cr_expect_str_eq(tp_ema_why(E), tp_device_why(w.D));
    tp_step(w.O, 0.1);
    cr_expect_str_eq(tp_optim_why(w.O), tp_device_why(w.D));
    tp_ema_free(E);
    world_close(&w);
}

/* ---- checkpoints ---- */

/* True if the file at path was written; else the reason is in why. */
static bool save(world *w, const char *path, char *why, size_t size)
{
    tp_writer *W = tp_writer_new(path);
    tp_writer_meta(W, "vocab", "enwik8:32,97");
    tp_writer_meta_int(W, "update", 1);
    tp_writer_meta_num(W, "score", 0.1);
    tp_model_write_cfg(&tp_model_ls_lm, &w->lm.cfg, W);
    tp_params_write(w->P, W, "");
    tp_optim_write(w->O, W);
    tp_ema_write(w->E, W);
    tp_ls_lm_state_write(w->T, &w->lm, &w->state, W);
    const bool ok = tp_ok(w->T) && tp_writer_commit(W);
    snprintf(why, size, "%s", tp_ok(w->T) ? tp_writer_why(W) : tp_why(w->T));
    tp_writer_free(W);
    return ok;
}

static bool load(world *w, const char *path, char *why, size_t size)
{
    tp_ls_lm_cfg cfg;
    double score = 0.0;
    tp_file *F = tp_file_open(path);
    why[0] = '\0';
    bool ok = tp_file_ok(F) && tp_file_num(F, "score", &score) && score == 0.1;
    ok = ok && tp_model_read_cfg(&tp_model_ls_lm, &cfg, F, why, size) &&
         tp_params_read(w->P, F, "", NULL) && tp_optim_read(w->O, F) && tp_ema_read(w->E, F) &&
         tp_ls_lm_state_read(w->T, &w->lm, &w->state, F);
    if (!ok && !*why) snprintf(why, size, "%s", tp_file_ok(F) ? world_why(w) : tp_file_why(F));
    tp_file_close(F);
    return ok;
}

/* The contents of the file, which the caller frees. */
static char *content(const char *path, size_t *size)
{
    FILE *f = fopen(path, "r");
    char *text = malloc(1 << 16);
    *size = f && text ? fread(text, 1, 1 << 16, f) : 0;
    if (f) fclose(f);
    return text;
}

static bool same_content(const char *path, const char *text, size_t size)
{
    size_t n;
    char *here = content(path, &n);
    const bool same = n == size && memcmp(here, text, n) == 0;
    free(here);
    return same;
}

typedef struct saving {
    world w;
    char *before, *after; /* the existing file and the one to replace it */
    size_t nbefore, nafter;
} saving;

static void save_again(void *env, attempt *t)
{
    saving *s = env;
    char why[2048];
    const char *path = in_folder("last.safetensors");
    FILE *f = fopen(path, "w");
    cr_assert(f && fwrite(s->before, 1, s->nbefore, f) == s->nbefore && fclose(f) == 0);
    malloc_fail(t->n, t->count);
    const bool ok = save(&s->w, path, why, sizeof why);
    end_attempt(t, ok, why);
    if (!ok) {
        cr_expect(same_content(path, s->before, s->nbefore),
                  "save, allocation %zu: the former file", t->n);
        tp_clear(s->w.T);
        if (t->count > 1 && t->n % 16) return; /* to save time */
        cr_expect(!world_why(&s->w), "save, allocation %zu: %s", t->n, world_why(&s->w));
        cr_expect(save(&s->w, path, why, sizeof why), "save after allocation %zu: %s", t->n, why);
    }
    cr_expect(same_content(path, s->after, s->nafter), "save, allocation %zu: the new file", t->n);
    cr_expect_eq(files_in_folder(), 1, "save, allocation %zu: something is left over", t->n);
}

static void load_fresh(void *env, attempt *t)
{
    const uint64_t *undisturbed = env;
    static world w;
    char why[2048];
    const char *path = in_folder("last.safetensors");
    world_open(&w, 7, TP_F32, TP_RECOMPUTE_NONE);
    malloc_fail(t->n, t->count);
    const bool ok = load(&w, path, why, sizeof why);
    end_attempt(t, ok, why);
    if (!ok) { /* objects stay failed after a failed load; new ones can load */
        world_close(&w);
        if (t->count > 1 && t->n % 16) return; /* to save time */
        world_open(&w, 7, TP_F32, TP_RECOMPUTE_NONE);
        cr_expect(load(&w, path, why, sizeof why), "load after allocation %zu: %s", t->n, why);
    }
    tp_set_random_state(w.T, 3, 5);
    cr_expect_eq(digest(&w), *undisturbed, "load, allocation %zu: other bits", t->n);
    world_close(&w);
}

Test(oom, checkpoints, .timeout = 900)
{
    static saving s;
    char why[2048];
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1); /* syncing is free there */
    make_folder();
    malloc_fail(0, 0);
    const char *path = in_folder("last.safetensors");
    world_open(&s.w, 1, TP_F32, TP_RECOMPUTE_NONE);
    cr_assert(save(&s.w, path, why, sizeof why), "%s", why);
    s.before = content(path, &s.nbefore);
    cr_assert(step(&s.w));
    cr_assert(save(&s.w, path, why, sizeof why), "%s", why);
    s.after = content(path, &s.nafter);
    for_every_n("save", save_again, &s, 200);

    tp_set_random_state(s.w.T, 3, 5);
    uint64_t undisturbed = digest(&s.w);
    for_every_n("load", load_fresh, &undisturbed, 100);
    world_close(&s.w);
    free(s.before);
    free(s.after);
    remove_folder();
}

/* ---- decoding ---- */

static void decode(void *env, attempt *t)
{
    world *w = env;
    float first[V], again[V];
    static const int64_t tokens[] = { 3, 1, 4, 1, 5, 9, 2, 6, 5 };
    for (int k = 0; k < 2; k++) {
        float *logits = k ? again : first;
        tp_tape *T = tp_tape_new(w->D, NULL);
        if (k == 0) malloc_fail(t->n, t->count);
        tp_ls_lm_decoder *d = tp_ls_lm_decoder_new(T, &w->lm, 8);
        bool ok = true;
        for (size_t i = 0; ok && i < sizeof tokens / sizeof *tokens; i++)
            ok = tp_ls_lm_decode(d, tokens[i], logits);
        if (k == 0)
            end_attempt(t, ok, tp_why(T));
        else
            cr_expect(ok, "decode after allocation %zu: %s", t->n, tp_why(T));
        tp_ls_lm_decoder_free(d);
        tp_tape_free(T);
    }
    if (t->ok) cr_expect_arr_eq(first, again, sizeof first, "decode, allocation %zu", t->n);
}

Test(oom, decoding, .timeout = 900)
{
    static world w;
    malloc_fail(0, 0);
    world_open(&w, 1, TP_F32, TP_RECOMPUTE_NONE);
    cr_assert(step(&w));
    for_every_n("decode", decode, &w, 50);
    world_close(&w);
}

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
        tp_bytes *S = tp_bytes_new(X, TP_TRAIN, &(tp_bytes_opts){ .batch = B, .tokens = M });
        const bool ok = tp_bytes_next_host(S, x, y);
        if (k == 0)
            end_attempt(t, ok, tp_bytes_why(S));
        else
            cr_expect(ok, "text after allocation %zu: %s", t->n, tp_bytes_why(S));
        hash[k] = hash_text(X);
        tp_bytes_free(S);
        tp_text_close(X);
    }
    if (t->ok) cr_expect_eq(hash[0], hash[1], "text, allocation %zu: other ids", t->n);
}

Test(oom, texts, .timeout = 900)
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
        /* jansson calls a token for which it has no memory wrong */
        if (strstr(why, "expected near")) why = "out of memory";
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

Test(oom, byte_pair_encoding, .timeout = 900)
{
    for_every_n("vocabulary", read_vocabulary, NULL, 20);
    for_every_n("training a vocabulary", learn_vocabulary, NULL, 50);
}

static void read_table(void *env, attempt *t)
{
    const tp_column columns[] = { { TP_I32, TP_SHAPE(8) }, { TP_I32, TP_SCALAR } };
    uint64_t hash[2];
    for (int k = 0; k < 2; k++) {
        if (k == 0) malloc_fail(t->n, t->count);
        tp_table *X = tp_table_open(env, &(tp_table_opts){ .columns = 2 });
        tp_samples *S = tp_samples_new(2, columns, &(tp_samples_opts){ .batch = 4 });
        for (int64_t i = 0; i < tp_table_rows(X); i++) {
            int32_t bytes[8] = { 0 }, label = tp_table_label(X, i, 0);
            const char *text = tp_table_cell(X, i, 1);
            for (int c = 0; c < 8 && text[c]; c++) bytes[c] = text[c];
            tp_samples_add(S, (const void *[]){ bytes, &label });
        }
        const bool ok = tp_table_ok(X) && tp_samples_ok(S);
        const char *why = tp_table_ok(X) ? tp_samples_why(S) : tp_table_why(X);
        if (k == 0)
            end_attempt(t, ok, why);
        else
            cr_expect(ok, "table after allocation %zu: %s", t->n, why);
        hash[k] = tp_samples_hash(S);
        tp_samples_free(S);
        tp_table_close(X);
    }
    if (t->ok) cr_expect_eq(hash[0], hash[1], "table, allocation %zu: other rows", t->n);
}

Test(oom, tables, .timeout = 900)
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
        tp_document_loader *L = tp_document_loader_new(
            X, &(tp_document_loader_opts){ .batch = 1, .bucket = 2, .train = true });
        const bool ok = tp_document_loader_next(L, &b);
        if (k == 0)
            end_attempt(t, ok, tp_document_loader_why(L));
        else
            cr_expect(ok, "%s after allocation %zu: %s", task->name, t->n,
                      tp_document_loader_why(L));
        hash[k] = tp_documents_hash(X);
        tp_document_loader_free(L);
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

Test(oom, documents, .timeout = 900)
{
    tp_task drawn = { .name = "drawn listops", .open = open_drawn };
    make_folder();
    write_documents();
    for (int i = 0; tp_task_at(i); i++)
        for_every_n(tp_task_at(i)->name, read_documents, (void *)(uintptr_t)tp_task_at(i), 15);
    for_every_n(drawn.name, read_documents, &drawn, 10);
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

Test(oom, weights, .timeout = 900)
{
    static const char *const names[] = { "zip.pth", "legacy.pth", "compressed.pth",
                                         "shards.index.json" };
    char path[1024];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, TP_SOURCE_DIR "/tests/fixtures/torch/%s", names[i]);
        for_every_n(names[i], read_weights, path, 10);
    }
}

/* ---- device memory, limited by the device ---- */

/* Large enough that most tensors need their own slab. */
enum { ROWS = 64, IN = 300, HIDDEN = 2000 };

typedef struct net {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_linear_m in, out;
} net;

static void net_open(net *m, size_t fail_at)
{
    m->D = tp_device_open("cpu",
                          &(tp_device_opts){ .threads = 2, .fail_at = fail_at, .fail_count = 2 });
    m->P = tp_params_new(m->D, &(tp_params_opts){ .seed = 1 });
    m->T = tp_tape_new(m->D, &(tp_tape_opts){ .seed = 1, .train = true });
    tp_linear_init(m->P, &m->in, "in", IN, HIDDEN, true);
    tp_linear_init(m->P, &m->out, "out", HIDDEN, 1, true);
    m->O = tp_adamw_new(m->P, NULL);
}

static void net_close(net *m)
{
    tp_optim_free(m->O);
    tp_tape_free(m->T);
    tp_params_free(m->P);
    cr_expect_eq(tp_device_stats(m->D).live_bytes, 0, "device memory leaks");
    tp_device_close(m->D);
}

static tp_tensor hidden(tp_tape *T, const void *self, tp_tensor x)
{
    const net *m = self;
    return tp_dropout(T, tp_linear_act(T, &m->in, x, TP_ACT_GELU), 0.1);
}

/* One step; true if it succeeded. */
static bool net_step(net *m)
{
    tp_reset(m->T);
    const tp_tensor x = tp_full(m->T, TP_F32, TP_SHAPE(ROWS, IN), 0.3);
    const tp_tensor h = tp_checkpoint(m->T, hidden, m, x);
    const tp_tensor y = tp_linear_forward(m->T, &m->out, h);
    tp_backward(m->T, tp_mean(m->T, tp_square(m->T, y), TP_ALL));
    tp_clip_grad_norm(m->P, 1.0);
    return tp_step(m->O, 1e-3) && tp_ok(m->T);
}

Test(oom, device_memory, .timeout = 900)
{
    int failures = 0;
    for (size_t n = 1; n < 200; n++) {
        net m;
        net_open(&m, n);
        const bool made = tp_params_ok(m.P) && tp_optim_ok(m.O), ok = net_step(&m);
        if (!ok) {
            failures++;
            const char *why = !tp_params_ok(m.P) ? tp_params_why(m.P)
                              : !tp_ok(m.T)      ? tp_why(m.T)
                                                 : tp_optim_why(m.O);
            cr_expect(strstr(why, "out of memory"), "allocation %zu: %s", n, why);
        }
        if (!ok && made) {
            tp_clear(m.T);
            tp_grad_clear(m.P);
            cr_expect(net_step(&m), "the step after allocation %zu failed: %s %s", n, tp_why(m.T),
                      tp_optim_why(m.O));
        }
        net_close(&m);
        if (ok) {
            cr_expect(failures >= 5, "only %d allocations failed", failures);
            return;
        }
    }
    cr_expect(0, "the step never went through");
}
