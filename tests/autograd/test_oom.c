/* test_oom.c - memory runs out at the n-th allocation, for many n, while a model is built, trained
 * or decodes, or a checkpoint is saved or loaded. Each time the error says so, nothing leaks, no
 * file is damaged, and a retry gives the bits of an undisturbed run. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/lm.h>
#include <tapegrad/random.h>
#include <unistd.h>

#include "support/folder.h"
#include "support/malloc.h"
#include "support/oom.h"
#include "tensor/backend.h"

enum { V = 11, B = 2, M = 8 };

/* ---- a model in training, all options on ---- */

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

/* The first error of its objects, or NULL. */
static const char *world_why(const world *w)
{
    const char *why[] = { tp_device_why(w->D), tp_params_why(w->P), tp_why(w->T),
                          tp_optim_why(w->O), tp_ema_why(w->E) };
    for (size_t i = 0; i < sizeof why / sizeof *why; i++)
        if (*why[i]) return why[i];
    return NULL;
}

/* Returns true on success. */
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

/* ---- setup, training ---- */

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
        tp_model_ls_lm.state_clear(w.T, &w.state);
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

/* A failed device reports its own error, not a shortage of memory. */
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

/* Writes the file at path. On failure stores the reason in why. */
static bool save(world *w, const char *path, char *why, size_t size)
{
    tp_writer *W = tp_writer_new(path);
    tp_writer_meta(W, "vocab", "enwik8:32,97");
    tp_writer_meta_int(W, "update", 1);
    tp_writer_meta_num(W, "score", 0.1);
    tp_model_write_cfg(&tp_model_ls_lm, &w->lm.cfg, W);
    tp_params_write(w->P, W, "");
    tp_optim_write(w->O, W, NULL);
    tp_ema_write(w->E, W, NULL);
    tp_model_ls_lm.state_write(w->T, &w->lm, &w->state, W);
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
         tp_params_read(w->P, F, "", NULL) && tp_optim_read(w->O, F, NULL) &&
         tp_ema_read(w->E, F, NULL) && tp_model_ls_lm.state_read(w->T, &w->lm, &w->state, F);
    if (!ok && !*why) snprintf(why, size, "%s", tp_file_ok(F) ? world_why(w) : tp_file_why(F));
    tp_file_close(F);
    return ok;
}

/* The file's contents; the caller frees them. */
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
    if (!ok) { /* a failed load leaves objects failed; new ones can load */
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
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1); /* syncs are free there */
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
    decode(&w, &(attempt){ .n = 0 }); /* the device keeps a freed tape's memory for the next */
    for_every_n("decode", decode, &w, 50);
    world_close(&w);
}
