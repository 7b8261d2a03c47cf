/* test_presets.c - every model of `imagenet train --preset` takes a training step, at full size on
 * a dry device, which checks shapes without computing, and with values on small images. On CUDA,
 * the small models' logits and gradients match the CPU's. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <classifier.h>
#include <image_settings.h>

#include "support_device.h"

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

/* The preset for this image size (0: its own). False if the size is impossible. */
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

/* The number of parameters of the table's row; 0: no such row. */
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
    for (int i = 0; image_preset_name(i); i++)
        dry_step(image_preset_name(i), published_count(image_preset_name(i)));
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

/* MPViT normalises over the batch, so its last map must not be a single pixel. */
static int64_t small_side(const char *preset)
{
    return strncmp(preset, "mpvit", 5) == 0 ? 64 : 32;
}

/* Chooses the smallest images that the model accepts. */
static void configure_small(const char *name, classifier_cfg *c)
{
    const int64_t sizes[] = { small_side(name), 28, 64 };
    int i = 0;
    while (i < 3 && !configure(name, sizes[i], 10, c)) i++;
    cr_assert(i < 3, "%s: no size is possible", name);
}

/* The largest models are left out, as there are smaller ones of the same kind. */
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
    for (int i = 0; image_preset_name(i); i++) {
        const char *preset = image_preset_name(i);
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

/* whole: the norm of all gradients, to which rounding errors are relative where a parameter's own
 * gradient vanishes. */
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
    for (int i = 0; image_preset_name(i); i++) {
        classifier_cfg c;
        configure(image_preset_name(i), 0, 10, &c);
        if (c.size < 224) compare_devices(image_preset_name(i));
    }
}

/* Each model has the values of its paper's table. Rates are for a batch of 1024 (cvt-13: 2048). */
Test(presets, recipes)
{
    static const struct {
        const char *preset;
        int recipe;
        int64_t epochs, batch, repeats;
        double lr, weight_decay, drop_path;
    } cases[] = {
        { "vil-tiny-rpb", -1, 300, 1024, 1, 1e-3, 0.1, 0.1 },
        { "vil-small-full", -1, 300, 1024, 1, 1e-3, 0.1, 0.1 },
        { "vil-medium-rpb", -1, 300, 1024, 3, 8e-4, 0.1, 0.1 },
        { "vil-base-ape", -1, 150, 1024, 3, 8e-4, 0.1, 0.1 },
        { "vil-medium-ls", -1, 300, 1024, 1, 8e-4, 0.1, 0.3 },
        { "vil-base-ls", -1, 300, 1024, 1, 8e-4, 0.1, 0.5 },
        { "vil-medium-ls-384", -1, 300, 1024, 1, 8e-4, 0.1, 0.2 },
        { "vil-base-rpb", RECIPE_VIL_21K, 90, 1024, 1, 5e-4, 0.1, 0.1 },
        { "vil-base-rpb", RECIPE_FINETUNE, 10, 512, 1, 3e-2, 0, 0.1 },
        { "cvt-13", -1, 300, 2048, 1, 2e-3, 0.05, 0.1 },
        { "cvt-21", -1, 300, 2048, 1, 2e-3, 0.1, 0.1 },
        { "cvt-ls-13", -1, 300, 1024, 1, 5e-4, 0.05, 0.1 },
        { "vit-lsla", -1, 300, 256, 1, 2.5e-4, 0.05, 0.2 },
        { "deit-s", -1, 300, 1024, 3, 1e-3, 0.05, 0.1 },
        { "pvt-small", -1, 300, 1024, 3, 1e-3, 0.05, 0.1 },
        { "pvt-large", -1, 300, 1024, 3, 1e-3, 0.05, 0.3 },
        { "pvt2-b5", -1, 300, 1024, 3, 1e-3, 0.05, 0.3 },
        { "resnet-50", -1, 90, 256, 1, 0.1, 1e-4, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = cases[i].preset;
        char why[1024];
        image_settings s = { .train = { .accumulation = 1 }, .repeats = 7 };
        cr_assert(image_preset(&s, name, cases[i].recipe, why, sizeof why), "%s: %s", name, why);
        cr_expect_eq(s.train.epochs, cases[i].epochs, "%s: %lld epochs", name,
                     (long long)s.train.epochs);
        cr_expect_eq(s.train.batch, cases[i].batch, "%s: batch %lld", name,
                     (long long)s.train.batch);
        cr_expect_eq(s.repeats, cases[i].repeats, "%s: %lld repeats", name, (long long)s.repeats);
        cr_expect_float_eq(image_lr(&s), cases[i].lr, 1e-12, "%s: lr %g", name, image_lr(&s));
        cr_expect_float_eq(s.train.weight_decay, cases[i].weight_decay, 1e-12, "%s: decay %g", name,
                           s.train.weight_decay);
        cr_expect_float_eq(s.drop_path, cases[i].drop_path, 1e-12, "%s: drop path %g", name,
                           s.drop_path);
        const tp_augment a = image_augment(&s);
        cr_expect(a.ops == 0 || a.saturation == 0.4, "%s: jitter %g", name, a.saturation);
        s.train.batch = 64;
        s.train.accumulation = 2;
        cr_expect_float_eq(image_lr(&s), cases[i].lr * 128 / (double)cases[i].batch, 1e-12,
                           "%s: lr %g of 2 x 64", name, image_lr(&s));
        free(s.preset);
    }
}
