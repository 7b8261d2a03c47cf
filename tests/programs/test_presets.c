/* test_presets.c - every model of `imagenet train --preset` takes a training step, at full size on
 * a dry device, which checks shapes without computing, and with values on small images. On CUDA,
 * the small models' logits and gradients match the CPU's. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/optim_kind.h>

#include <classifier.h>
#include <image_settings.h>
#include <layer_decay.h>

#include "support/device.h"

enum { BATCH = 2 };

typedef struct rig {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    classifier m;
    tp_tensor logits, loss;
} rig;

static rig r[2];

/* The small models, and models of the papers. */
static const char *chosen(int i)
{
    static const char *const papers[] = { "cvt-13",      "cvt-21",    "cvt-w24",   "cvt-star-13",
                                          "cvt-star-21", "cvt-ls-13", "cvt-ls-17", "cvt-ls-21",
                                          "cvt-ls-21s",  "vit-lsla",  NULL };
    int small = 0;
    while (image_preset_name(small)) small++;
    return i < small ? image_preset_name(i) : papers[i - small];
}

/* Configures the preset for an image size (0: its own). False if impossible. */
static bool configure(const char *name, int64_t size, int64_t classes, classifier_cfg *c)
{
    char why[1024];
    image_settings s = { 0 };
    const bool known = image_preset(&s, name, -1, why, sizeof why);
    cr_assert(known, "%s: %s", name, why);
    if (size) s.size = size;
    s.drop_path = 0;
    const bool possible = image_model(&s, classes, c, why, sizeof why);
    cr_assert(possible || size, "%s: %s", name, why);
    free(s.preset);
    return possible;
}

static void open_rig(rig *g, tp_device *D, const classifier_cfg *c)
{
    *g = (rig){ .D = D };
    g->P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    g->T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
    classifier_init(g->P, &g->m, c);
    g->O = tp_sgd_new(g->P, NULL);
}

static void close_rig(rig *g)
{
    tp_net_free(g->m.net);
    tp_optim_free(g->O);
    tp_tape_free(g->T);
    tp_params_free(g->P);
    tp_device_close(g->D);
}

/* Runs forward and backward on fixed noise. */
static void run(rig *g)
{
    const int64_t side = g->m.cfg.size, n = BATCH * side * side * 3;
    float *x = malloc((size_t)n * sizeof *x);
    uint32_t state = 1;
    cr_assert(x);
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0F - 1.0F;
    }
    tp_reset(g->T);
    const tp_tensor images = tp_from(g->T, TP_F32, TP_SHAPE(BATCH, side, side, 3), x);
    const tp_tensor labels = tp_from(g->T, TP_I32, TP_SHAPE(BATCH), (int32_t[]){ 1, 3 });
    g->logits = classifier_forward(g->T, &g->m, images);
    g->loss = tp_cross_entropy(g->T, g->logits, labels, TP_MEAN);
    tp_backward(g->T, g->loss);
    free(x);
}

static void expect_fine(const rig *g, const char *name)
{
    cr_expect(tp_params_ok(g->P), "%s: %s", name, tp_params_why(g->P));
    cr_expect(tp_ok(g->T), "%s: %s", name, tp_why(g->T));
    cr_expect(tp_optim_ok(g->O), "%s: %s", name, tp_optim_why(g->O));
}

/* ---- at full size ---- */

/* parameters: the expected number for 1000 classes; 0: any. */
static void dry_step(const char *name, int64_t parameters)
{
    classifier_cfg c;
    configure(name, 0, 1000, &c);
    open_rig(r, tp_device_open("cpu", &(tp_device_opts){ .dry = true }), &c);
    run(r);
    tp_step(r->O, 0.1);
    expect_fine(r, name);
    cr_expect(!parameters || tp_params_count(r->P) == parameters, "%s: %lld parameters", name,
              (long long)tp_params_count(r->P));
    close_rig(r);
}

/* Returns the parameter count in the table; 0: no such row. */
static int64_t published_count(const char *name)
{
    const tp_model_row *m = tp_model_find(name);
    tp_model_cfg c;
    char why[256];
    if (!m || strcmp(m->name, name) != 0) return 0;
    cr_assert(tp_model_preset(&c, name, why, sizeof why), "%s", why);
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_net *N = tp_net_new(P, "", &c);
    const int64_t n = tp_params_count(P);
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
    return n;
}

Test(presets, steps_at_their_own_size)
{
    const tp_model_row *m;
    if (device_is_cuda()) cr_skip_test("the CPU's");
    for (int i = 0; chosen(i); i++) dry_step(chosen(i), published_count(chosen(i)));
    for (int i = 0; (m = tp_model_at(i)); i++)
        if (strncmp(m->name, "vil-", 4) == 0) dry_step(m->name, published_count(m->name));
}

/* ---- with values ---- */

/* In two steps on one batch the loss falls, and the gradient is not zero. */
static void real_step(const char *name, const classifier_cfg *c)
{
    double loss[2], norm = 0;
    open_rig(r, tp_device_open("cpu", &(tp_device_opts){ .threads = 1 }), c);
    for (int k = 0; k < 2; k++) {
        run(r);
        loss[k] = tp_item(r->T, r->loss);
        norm = tp_item(r->T, tp_clip_grad_norm(r->P, 1));
        cr_expect(tp_step(r->O, 0.01), "%s: %s", name, tp_optim_why(r->O));
    }
    expect_fine(r, name);
    cr_expect(norm > 0 && isfinite(norm), "%s: gradient of norm %g", name, norm);
    cr_expect(loss[1] < loss[0], "%s: loss %g after %g", name, loss[1], loss[0]);
    close_rig(r);
}

/* MPViT and ResNet normalise over the batch, so their last map must not be a single pixel: of two
 * values, only the sign is left, and the gradient is a difference of rounding errors. */
static int64_t small_side(const char *preset)
{
    const bool batch = strncmp(preset, "mpvit", 5) == 0 || strncmp(preset, "resnet", 6) == 0;
    return batch ? 64 : 32;
}

/* Chooses the smallest images that the model accepts. */
static void configure_small(const char *name, classifier_cfg *c)
{
    const int64_t sizes[] = { small_side(name), 28, 64 };
    int i = 0;
    while (i < 3 && !configure(name, sizes[i], 10, c)) i++;
    cr_assert(i < 3, "%s: no size is possible", name);
}

/* Leaves out the largest models, which have smaller ones of the same kind. */
Test(presets, steps_in_numbers)
{
    if (device_is_cuda()) cr_skip_test("the CPU's");
    static const char *const attentions[] = {
        "ape",
        "rpb",
        "full",
        "linformer",
        "sra64",
        "sra32",
        "global",
        "performer",
        "partial-linformer",
        "partial-sra32",
        "partial-global",
        "partial-performer",
    };
    classifier_cfg c;
    char name[64];
    for (int i = 0; chosen(i); i++) {
        const char *preset = chosen(i);
        if (strstr(preset, "-21") || strstr(preset, "-w24")) continue;
        configure_small(preset, &c);
        real_step(preset, &c);
    }
    for (size_t i = 0; i < sizeof attentions / sizeof *attentions; i++) {
        snprintf(name, sizeof name, "vil-tiny-%s", attentions[i]);
        configure_small(name, &c);
        real_step(name, &c);
    }
}

/* ---- on CUDA ---- */

/* The norm of the difference of two vectors, and of the first. */
typedef struct gap {
    double difference, length;
} gap;

static gap gap_of(const double *a, const double *b, size_t n)
{
    gap g = { 0 };
    for (size_t i = 0; i < n; i++) {
        g.difference += (a[i] - b[i]) * (a[i] - b[i]);
        g.length += a[i] * a[i];
    }
    return (gap){ sqrt(g.difference), sqrt(g.length) };
}

/* whole: the norm of all gradients; rounding errors are relative to it where a parameter's gradient
 * vanishes. */
static void compare_gradient(const char *preset, const tp_param_info *it, double whole)
{
    const size_t n = (size_t)tp_numel(it->tensor);
    double *x = malloc(2 * n * sizeof *x);
    cr_assert(x);
    for (int k = 0; k < 2; k++) {
        const tp_tensor p = tp_find(r[k].P, it->name);
        cr_assert(tp_param_get_grad(r[k].P, p, TP_F64, x + (size_t)k * n, n * sizeof *x), "%s: %s",
                  preset, tp_params_why(r[k].P));
    }
    const gap g = gap_of(x, x + n, n);
    cr_expect(g.difference < 1e-3 * g.length + 1e-5 * whole, "%s, %s: differs by %g of %g", preset,
              it->name, g.difference, g.length);
    free(x);
}

static void compare_devices(const char *preset)
{
    double logits[2][10 * BATCH];
    for (int k = 0; k < 2; k++) {
        classifier_cfg c;
        configure(preset, small_side(preset), 10, &c);
        open_rig(&r[k], k ? device_cuda() : tp_device_open("cpu", NULL), &c);
        run(&r[k]);
        float f[10 * BATCH];
        cr_assert(tp_read(r[k].T, r[k].logits, f, sizeof f), "%s: %s", preset, tp_why(r[k].T));
        for (int i = 0; i < 10 * BATCH; i++) logits[k][i] = (double)f[i];
    }
    const gap g = gap_of(logits[0], logits[1], 10 * BATCH);
    cr_expect(g.difference < 1e-4 * g.length, "%s: logits differ by %g of %g", preset, g.difference,
              g.length);
    const double whole = tp_item(r[0].T, tp_clip_grad_norm(r[0].P, 1e30));
    for (tp_param_info it = { 0 }; tp_next_param(r[0].P, &it);)
        if (it.has_grad && !it.alias_of) compare_gradient(preset, &it, whole);
    for (int k = 0; k < 2; k++) {
        cr_expect(tp_step(r[k].O, 0.1), "%s: %s", preset, tp_optim_why(r[k].O));
        close_rig(&r[k]);
    }
}

Test(presets, small_ones_on_cuda)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    for (int i = 0; chosen(i); i++) {
        classifier_cfg c;
        configure(chosen(i), 0, 10, &c);
        if (c.size < 224) compare_devices(chosen(i));
    }
}

/* Each model has the values of its paper's table, for the batch of its recipe. */
Test(presets, recipes)
{
    static const struct {
        const char *preset;
        int recipe;
        int64_t epochs, batch, repeats;
        double lr, weight_decay, drop_path;
        double warmup, start, end, clip, ema; /* start: of the warm-up, as a rate */
        const char *optimizer;
        int decay, filter;
    } cases[] = {
#define VIL     "adamw-vil", DECAY_VIL, TP_BICUBIC
#define VIL_QHM "qhm", DECAY_VIL, TP_BICUBIC
#define DEIT    "adamw", DECAY_DEIT, TP_BICUBIC
#define CVT     "adamw", DECAY_MATRICES, TP_BICUBIC
#define SWIN    "adamw", DECAY_LSLA, TP_BICUBIC
#define NET     "sgd", DECAY_ALL, TP_BILINEAR
        { "vil-tiny-rpb", -1, 300, 1024, 1, 1e-3, 0.1, 0.1, 5, 2e-6, 1e-6, 0, 0, VIL },
        { "vil-small-full", -1, 300, 1024, 1, 1e-3, 0.1, 0.1, 5, 2e-6, 1e-6, 0, 0, VIL },
        { "vil-medium-rpb", -1, 300, 1024, 3, 8e-4, 0.1, 0.1, 5, 1.6e-6, 1e-6, 0, 0, VIL },
        { "vil-base-ape", -1, 150, 1024, 3, 8e-4, 0.1, 0.1, 5, 1.6e-6, 1e-6, 0, 0, VIL },
        { "vil-medium-ls", -1, 300, 1024, 1, 8e-4, 0.1, 0.3, 5, 1.6e-6, 1e-6, 0, 0, VIL },
        { "vil-base-ls", -1, 300, 1024, 1, 8e-4, 0.1, 0.5, 5, 1.6e-6, 1e-6, 0, 0, VIL },
        { "vil-medium-ls-384", -1, 300, 1024, 1, 8e-4, 0.1, 0.2, 5, 1.6e-6, 1e-6, 0, 0, VIL },
        { "vil-base-rpb", RECIPE_VIL_21K, 90, 1024, 1, 5e-4, 0.1, 0.1, 5, 1e-6, 1e-6, 0, 0, VIL },
        { "vil-base-rpb-384", -1, 10, 512, 1, 3e-2, 0, 0.1, 0.25, 6e-5, 1e-6, 0, 0, VIL_QHM },
        { "vil-base-rpb", RECIPE_FINETUNE, 10, 512, 1, 3e-2, 0, 0.1, 0.25, 6e-5, 1e-6, 0, 0,
          VIL_QHM },
        { "cvt-13", -1, 300, 2048, 1, 2e-3, 0.05, 0.1, 5, 1e-6, 1e-5, 0, 0, CVT },
        { "CvT-13", -1, 300, 2048, 1, 2e-3, 0.05, 0.1, 5, 1e-6, 1e-5, 0, 0, CVT },
        { "cvt-13-384", -1, 300, 2048, 1, 2e-3, 0.1, 0.1, 5, 1e-6, 1e-5, 0, 0, CVT },
        { "cvt-21", -1, 300, 2048, 1, 2e-3, 0.1, 0.1, 5, 1e-6, 1e-5, 0, 0, CVT },
        { "cvt-ls-13", -1, 300, 1024, 1, 5e-4, 0.05, 0.1, 5, 1e-6, 1e-5, 0, 0, CVT },
        { "vit-lsla", -1, 300, 256, 1, 2.5e-4, 0.05, 0.2, 20, 2.5e-7, 2.5e-6, 5, 0, SWIN },
        { "swin-t", RECIPE_LSLA, 300, 256, 1, 2.5e-4, 0.05, 0.2, 20, 2.5e-7, 2.5e-6, 5, 0, SWIN },
        { "coat_lite-small", RECIPE_LSLA, 300, 256, 1, 2.5e-4, 0.05, 0, 20, 2.5e-7, 2.5e-6, 5, 0,
          SWIN },
        { "mpvit-s-ip102", -1, 300, 192, 1, 1.875e-4, 0.05, 0.05, 20, 1.875e-7, 1.875e-6, 5, 0,
          SWIN },
        { "mpvit-s", RECIPE_LSLA, 300, 192, 1, 1.875e-4, 0.05, 0.05, 20, 1.875e-7, 1.875e-6, 5, 0,
          SWIN },
        { "deit-s", -1, 300, 1024, 3, 1e-3, 0.05, 0.1, 5, 1e-6, 1e-5, 0, 0.99996, DEIT },
        { "deit-t-distilled", -1, 300, 1024, 3, 1e-3, 0.05, 0.1, 5, 1e-6, 1e-5, 0, 0.99996, DEIT },
        { "deit-b-384", -1, 30, 512, 3, 5e-6, 1e-8, 0.1, 5, 1e-6, 5e-6, 0, 0.99996, DEIT },
        { "vit-b", -1, 300, 4096, 1, 3e-3, 0.3, 0, 0, 0, 0, 1, 0, "adamw", DECAY_ALL, TP_BICUBIC },
        { "vit-l-384", -1, 8, 512, 1, 3e-2, 0, 0, 0, 0, 0, 1, 0, "sgd", DECAY_ALL, TP_BICUBIC },
        { "pvt-small", -1, 300, 1024, 3, 1e-3, 0.05, 0.1, 5, 1e-6, 1e-5, 0, 0, CVT },
        { "pvt-large", -1, 300, 1024, 3, 1e-3, 0.05, 0.3, 5, 1e-6, 1e-5, 1, 0, CVT },
        { "pvt2-b2", -1, 300, 1024, 3, 1e-3, 0.05, 0.1, 5, 1e-6, 1e-5, 0, 0, CVT },
        { "pvt2-b2-li", -1, 300, 1024, 3, 1e-3, 0.05, 0.1, 5, 1e-6, 1e-5, 0, 0, CVT },
        { "pvt2-b3", -1, 300, 1024, 3, 1e-3, 0.05, 0.3, 5, 1e-6, 1e-5, 1, 0, CVT },
        { "pvt2-b5", -1, 300, 1024, 3, 1e-3, 0.05, 0.3, 5, 1e-6, 1e-5, 1, 0, CVT },
        { "swin-t", -1, 300, 1024, 1, 1e-3, 0.05, 0.2, 20, 1e-6, 1e-5, 5, 0, SWIN },
        { "swin-s", -1, 300, 1024, 1, 1e-3, 0.05, 0.3, 20, 1e-6, 1e-5, 5, 0, SWIN },
        { "swin-b", -1, 300, 1024, 1, 1e-3, 0.05, 0.5, 20, 1e-6, 1e-5, 5, 0, SWIN },
        { "cswin-t", -1, 300, 2048, 1, 2e-3, 0.05, 0.2, 20, 1e-6, 1e-5, 0, 0.99984, CVT },
        { "cswin-s", -1, 300, 2048, 1, 2e-3, 0.05, 0.4, 20, 1e-6, 1e-5, 0, 0.99984, CVT },
        { "cswin-b", -1, 300, 2048, 1, 2e-3, 0.05, 0.5, 20, 1e-6, 1e-5, 0, 0.99984, CVT },
        { "coat_lite-small", -1, 300, 2048, 3, 2e-3, 0.05, 0, 5, 1e-6, 1e-5, 0, 0.99996, CVT },
        { "mpvit-t", -1, 300, 1024, 3, 1e-3, 0.05, 0, 5, 1e-6, 1e-5, 0, 0.99996, CVT },
        { "mpvit-s", -1, 300, 1024, 3, 1e-3, 0.05, 0.05, 5, 1e-6, 1e-5, 0, 0.99996, CVT },
        { "mpvit-b", -1, 300, 1024, 3, 1e-3, 0.05, 0.3, 5, 1e-6, 1e-5, 0, 0.99996, CVT },
        { "resnet-50", -1, 90, 256, 1, 0.1, 1e-4, 0, 0, 0, 0, 0, 0, NET },
        { "resnext-101-32x4d", -1, 90, 256, 1, 0.1, 1e-4, 0, 0, 0, 0, 0, 0, NET },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = cases[i].preset;
        char why[1024];
        image_settings s = { .train = { .accumulation = 1 }, .repeats = 7 };
        cr_assert(image_preset(&s, name, cases[i].recipe, why, sizeof why), "%s: %s", name, why);
        const struct {
            const char *what;
            double is, wanted;
        } values[] = {
            { "epochs", (double)s.train.epochs, (double)cases[i].epochs },
            { "batch", (double)s.train.batch, (double)cases[i].batch },
            { "repeats", (double)s.repeats, (double)cases[i].repeats },
            { "lr", image_lr(&s), cases[i].lr },
            { "weight decay", tp_train_get(&s.train, "weight_decay"), cases[i].weight_decay },
            { "drop path", s.drop_path, cases[i].drop_path },
            { "warm-up", s.train.warmup, cases[i].warmup },
            { "start of the warm-up", s.warmup_factor * image_lr(&s), cases[i].start },
            { "last rate", s.train.lr_end, cases[i].end },
            { "clip", s.train.clip, cases[i].clip },
            { "ema", s.train.ema, cases[i].ema },
            { "optimizer", s.train.optimizer, tp_optim_find(cases[i].optimizer) },
            { "decay", s.decay, cases[i].decay },
            { "filter", s.filter, cases[i].filter },
        };
        for (size_t k = 0; k < sizeof values / sizeof *values; k++)
            cr_expect_float_eq(values[k].is, values[k].wanted, 1e-12, "%s: %s %g, not %g", name,
                               values[k].what, values[k].is, values[k].wanted);
        const tp_augment a = image_augment(&s);
        cr_expect(a.ops == 0 || a.saturation == 0.4, "%s: jitter %g", name, a.saturation);
        cr_expect_eq((int)a.filter, cases[i].filter, "%s", name);
        s.train.batch = 64;
        s.train.accumulation = 2;
        const double share = 128 / (double)cases[i].batch;
        const bool scales =
            s.recipe == RECIPE_LSLA || s.recipe == RECIPE_SWIN || s.recipe == RECIPE_DEIT_384;
        cr_expect_float_eq(image_lr(&s), cases[i].lr * share, 1e-12, "%s: lr %g of 2 x 64", name,
                           image_lr(&s));
        cr_expect_float_eq(image_lr_end(&s), cases[i].end * (scales ? share : 1), 1e-12,
                           "%s: lr-end %g of 2 x 64", name, image_lr_end(&s));
        free(s.preset);
    }
}

/* ViT counts updates: 10,000 of warm-up, with dropout; fine-tuning takes 20,000. */
Test(presets, recipes_of_vit)
{
    char why[1024];
    classifier_cfg c;
    image_settings s = { .train = { .accumulation = 1 } };
    cr_assert(image_preset(&s, "vit-b", -1, why, sizeof why), "%s", why);
    cr_expect(s.warmup_steps == 10000 && s.dropout == 0.1 && s.schedule_steps == 0);
    cr_assert(image_model(&s, 10, &c, why, sizeof why), "%s", why);
    cr_expect_eq(((const tp_vit_cfg *)classifier_cfg_as(&c, &tp_model_vit))->dropout, 0.1);
    s.train.lr = 3e-3;
    cr_expect_float_eq(image_rate(&s, 5000, 312), 1.5e-3, 1e-9);
    cr_expect_float_eq(image_rate(&s, 10000, 312), 3e-3, 1e-9);
    cr_expect_float_eq(image_rate(&s, 300 * 312, 312), 0, 1e-9);
    cr_assert(image_preset(&s, "vit-b-384", -1, why, sizeof why), "%s", why);
    cr_expect(s.schedule_steps == 20000 && s.dropout == 0 && s.size == 384);
    s.train.lr = 0.01;
    cr_expect_float_eq(image_rate(&s, 19999, 2502), 0, 1e-9);
    cr_expect(image_rate(&s, 10000, 2502) > 0.004);
    free(s.preset);
}

/* ---- parameters ---- */

/* The parameters of each family without weight decay. */
Test(presets, weight_decay)
{
    static const struct {
        const char *preset, *name;
        bool decays;
    } cases[] = {
        { "deit-s", "blocks.0.attn.qkv.weight", true },
        { "deit-s", "blocks.0.attn.qkv.bias", false },
        { "deit-s", "blocks.0.norm1.weight", false },
        { "deit-s", "pos_embed", false },
        { "deit-s", "cls_token", false },
        { "deit-s-distilled", "dist_token", false },
        { "deit-s-distilled", "head_dist.weight", true },
        { "vit-b", "pos_embed", true },
        { "vit-b", "head.bias", true },
        { "pvt-small", "pos_embed1", true },
        { "pvt-small", "cls_token", false },
        { "pvt-small", "block1.0.attn.sr.bias", false },
        { "pvt2-b2", "block1.0.mlp.dwconv.dwconv.weight", true },
        { "swin-t", "layers.0.blocks.0.attn.relative_position_bias_table", false },
        { "swin-t", "layers.0.downsample.reduction.weight", true },
        { "swin-t", "absolute_pos_embed", false },
        { "swin-t", "norm.weight", false },
        { "cswin-t", "stage1.0.attns.0.get_v.weight", true },
        { "cswin-t", "stage1.0.attns.0.get_v.bias", false },
        { "coat_lite-small", "cls_token1", false },
        { "coat_lite-small", "cpe1.proj.weight", true },
        { "mpvit-s", "stem.0.conv.weight", true },
        { "mpvit-s", "stem.0.bn.weight", false },
        { "resnet-50", "bn1.weight", true },
        { "resnet-50", "fc.bias", true },
        { "cvt-13", "stage2.cls_token", false },
        { "vil-tiny-rpb", "head.bias", false },
        { "vil-tiny-rpb", "layer1.1.attn.query.bias", true },
        { "vit-lsla", "layers.0.blocks.0.attn.dynamic_scale", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[1024];
        image_settings s = { .train = { .accumulation = 1 } };
        cr_assert(image_preset(&s, cases[i].preset, -1, why, sizeof why), "%s", why);
        const bool vector = strstr(cases[i].name, "norm") || strstr(cases[i].name, "bn") ||
                            tp_ends_in(cases[i].name, "bias");
        const tp_shape shape = vector ? TP_SHAPE(8) : TP_SHAPE(8, 8);
        cr_expect_eq(image_factors(cases[i].name, shape, &s).decay, cases[i].decays, "%s: %s",
                     cases[i].preset, cases[i].name);
        free(s.preset);
    }
}

/* --layer-decay: the number of blocks between a parameter and the head. */
Test(presets, levels)
{
    static const struct {
        const char *preset, *name;
        int all, level;
    } cases[] = {
        { "deit-s", "patch_embed.proj.weight", 12, 0 },
        { "deit-s", "pos_embed", 12, 0 },
        { "deit-s", "cls_token", 12, 0 },
        { "deit-s", "blocks.0.norm1.weight", 12, 1 },
        { "deit-s", "blocks.11.mlp.fc2.bias", 12, 12 },
        { "deit-s", "norm.weight", 12, 13 },
        { "deit-s", "head.weight", 12, 13 },
        { "resnet-50", "conv1.weight", 16, 0 },
        { "resnet-50", "layer1.2.conv1.weight", 16, 3 },
        { "resnet-50", "layer4.0.downsample.0.weight", 16, 14 },
        { "resnet-50", "fc.weight", 16, 17 },
        { "pvt-small", "patch_embed1.proj.weight", 16, 0 },
        { "pvt-small", "patch_embed2.proj.weight", 16, 4 },
        { "pvt-small", "pos_embed4", 16, 14 },
        { "pvt-small", "cls_token", 16, 14 },
        { "pvt-small", "block4.2.attn.q.weight", 16, 16 },
        { "pvt-small", "norm.weight", 16, 17 },
        { "pvt2-b2", "norm1.weight", 16, 3 },
        { "pvt2-b2", "norm4.weight", 16, 17 },
        { "swin-t", "patch_embed.proj.weight", 12, 0 },
        { "swin-t", "layers.0.downsample.reduction.weight", 12, 2 },
        { "swin-t", "layers.1.blocks.0.attn.qkv.weight", 12, 3 },
        { "swin-t", "layers.2.downsample.norm.weight", 12, 10 },
        { "swin-t", "layers.3.blocks.1.mlp.fc1.weight", 12, 12 },
        { "cswin-t", "stage1_conv_embed.0.weight", 25, 0 },
        { "cswin-t", "merge1.conv.weight", 25, 1 },
        { "cswin-t", "stage3.20.qkv.weight", 25, 24 },
        { "cswin-t", "merge3.norm.weight", 25, 24 },
        { "coat_lite-small", "patch_embed1.proj.weight", 16, 0 },
        { "coat_lite-small", "cls_token1", 16, 0 },
        { "coat_lite-small", "cpe1.proj.weight", 16, 1 },
        { "coat_lite-small", "norm1.weight", 16, 3 },
        { "coat_lite-small", "cpe2.proj.weight", 16, 4 },
        { "coat_lite-small", "serial_blocks4.2.mlp.fc1.weight", 16, 16 },
        { "coat_lite-small", "norm4.weight", 16, 17 },
        { "mpvit-s", "stem.1.conv.weight", 13, 0 },
        { "mpvit-s", "patch_embed_stages.0.patch_embeds.0.patch_conv.dwconv.weight", 13, 0 },
        { "mpvit-s", "patch_embed_stages.1.patch_embeds.0.patch_conv.dwconv.weight", 13, 2 },
        { "mpvit-s", "mhca_stages.1.mhca_blks.2.MHCA_layers.2.mlp.fc1.weight", 13, 4 },
        { "mpvit-s", "mhca_stages.1.aggregate.conv.weight", 13, 4 },
        { "mpvit-s", "cls_head.cls.weight", 13, 14 },
        { "vil-tiny-rpb", "layer1.0.proj.weight", 12, 0 },
        { "vil-tiny-rpb", "layer1.0.cls_token", 12, 0 },
        { "vil-tiny-rpb", "layer1.1.attn.query.weight", 12, 1 },
        { "vil-tiny-rpb", "layer1.2.mlp.fc1.weight", 12, 1 },
        { "vil-tiny-rpb", "layer2.0.proj.weight", 12, 2 },
        { "vil-tiny-rpb", "layer3.3.attn.qkv.weight", 12, 4 },
        { "vil-tiny-rpb", "layer4.2.mlp.fc1.weight", 12, 12 },
        { "vil-tiny-rpb", "norm.weight", 12, 13 },
        { "cvt-13", "stage0.patch_embed.proj.weight", 13, 0 },
        { "cvt-13", "stage2.cls_token", 13, 4 },
        { "cvt-13", "stage2.blocks.9.mlp.fc1.weight", 13, 13 },
        { "vit-lsla", "layers.0.blocks.1.mlp.fc1.weight", 16, 2 },
        { "vit-lsla", "layers.0.downsample.conv.weight", 16, 2 },
        { "vit-lsla", "layers.1.downsample.conv.weight", 16, 6 },
        { "tiny", "norm.4.weight", 5, 5 },
        { "tiny", "conv.0.weight", 5, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        classifier_cfg c;
        tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1, .dry = true });
        configure(cases[i].preset, 0, 10, &c);
        open_rig(&r[0], D, &c);
        const levels l = levels_of(r[0].P);
        const int level = level_of(&l, cases[i].name), all = cases[i].all;
        cr_expect(tp_given(tp_find(r[0].P, cases[i].name)), "%s: %s", cases[i].preset,
                  cases[i].name);
        cr_expect(l.all == all, "%s: %d blocks", cases[i].preset, l.all);
        cr_expect_eq(level, cases[i].level, "%s: level %d of %s", cases[i].preset, level,
                     cases[i].name);
        cr_expect_float_eq(level_factor(&l, cases[i].name, 0.5), pow(0.5, l.all + 1 - level), 0);
        close_rig(&r[0]);
    }
    const levels deep = { .blocks = { 80 }, .all = 80 };
    cr_expect_eq(level_of(&deep, "blocks.79.mlp.fc1.weight"), 80);
}
