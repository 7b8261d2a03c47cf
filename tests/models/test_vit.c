/* test_vit.c - ViT and DeiT: costs, initial values, other sizes, both heads, losses of
 * distillation, recomputation, weights of another size. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/vit.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/models.h"

static tp_vit_cfg *of(tp_model_cfg *c)
{
    return (tp_vit_cfg *)&c->at;
}

static tp_model_cfg small(bool distilled)
{
    tp_model_cfg c = models_preset("deit-mini");
    *of(&c) = (tp_vit_cfg){ .image = { 32, 48 },
                            .classes = 5,
                            .patch = 8,
                            .dim = 24,
                            .heads = 3,
                            .blocks = 3,
                            .mlp_ratio = 4,
                            .distilled = distilled };
    return c;
}

static const struct {
    const char *name;
    int64_t params;
    double macs;
} published[] = {
    { "deit-t", 5717416, 1253683200.0 },
    { "deit-s", 22050664, 4598882304.0 },
    { "deit-b", 86567656, 17563828224.0 },
    { "vit-b", 86567656, 17563828224.0 },
    { "vit-l", 304326632, 61554712576.0 },
    { "deit-t-distilled", 5910800, 1261003776.0 },
    { "deit-s-distilled", 22436432, 4624140288.0 },
    { "deit-b-distilled", 87338192, 17656811520.0 },
    { "deit-b-384", 86859496, 55484350464.0 },
    { "vit-l-384", 304715752, 191066300416.0 },
};

Test(vit, counts_and_costs)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const tp_model_cfg c = models_preset(published[i].name);
        const double macs = tp_model_cost(&c, 0, 0).macs;
        cr_expect(macs == published[i].macs, "%s: %.0f multiply-adds", published[i].name, macs);
        models_expect_count(&c, published[i].params);
    }
}

Test(vit, activation_memory)
{
    tp_model_cfg one = models_preset("deit-mini"), two = models_preset("deit-mini-distilled");
    of(&one)->classes = of(&two)->classes = 10;
    models_expect_memory("ViT", &one);
    models_expect_memory("distilled DeiT", &two);
    of(&one)->patch_norm = of(&one)->avg_pool = true;
    models_expect_memory("norm of patches, mean", &one);
}

Test(vit, initial_values)
{
    const tp_model_cfg c = models_preset("deit-mini-distilled");
    static const models_moments rows[] = {
        { "cls_token", 0, 0.02 },
        { "dist_token", 0, 0.02 },
        { "pos_embed", 0, 0.02 },
        { "patch_embed.proj.weight", 0, 0.041667 }, /* sqrt(1 / (3 * 192)) */
        { "patch_embed.proj.bias", 0, 0.041667 },
        { "blocks.3.attn.qkv.weight", 0, 0.02 },
        { "blocks.3.attn.qkv.bias", 0, 0 },
        { "blocks.8.mlp.fc2.weight", 0, 0.02 },
        { "blocks.8.norm2.weight", 1, 0 },
        { "head.weight", 0, 0.02 },
        { "head_dist.bias", 0, 0 },
        { 0 },
    };
    models_expect_initial(&c, rows);
}

Test(vit, drop_path_rates)
{
    static tp_vit m;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_model_cfg c = small(false);
    of(&c)->drop_path = 0.2;
    tp_model_vit.init(P, &m, "", of(&c));
    for (int i = 0; i < 3; i++) cr_expect_float_eq(m.block[i].drop_path, 0.1 * i, 1e-12);
    tp_params_free(P);
    tp_device_close(D);
}

Test(vit, any_size)
{
    static const int64_t sizes[][2] = { { 32, 48 }, { 48, 32 }, { 8, 8 }, { 71, 40 }, { 0 } };
    tp_model_cfg one = small(false), two = small(true);
    models_expect_sizes("ViT", &one, sizes);
    models_expect_sizes("distilled DeiT", &two, sizes);
    of(&one)->patch_norm = of(&one)->avg_pool = true;
    models_expect_sizes("norm of patches, mean", &one, sizes);
}

Test(vit, recomputed_blocks)
{
    tp_model_cfg c = small(true);
    of(&c)->drop_path = 0.5;
    of(&c)->dropout = 0.2;
    models_expect_recomputation("dropout", &c, true);
    of(&c)->drop_path = of(&c)->dropout = 0.0;
    models_expect_recomputation("plain", &c, true);
    of(&c)->distilled = false;
    of(&c)->patch_norm = of(&c)->avg_pool = true;
    models_expect_recomputation("norm of patches, mean", &c, true);
}

/* ---- both heads ---- */

static double *values(tp_tape *T, tp_tensor x)
{
    const int64_t n = tp_numel(x);
    float *f = malloc((size_t)n * sizeof *f);
    double *d = malloc((size_t)n * sizeof *d);
    cr_assert(f && d && tp_read(T, x, f, (size_t)n * sizeof *f), "%s", tp_why(T));
    for (int64_t i = 0; i < n; i++) d[i] = (double)f[i];
    free(f);
    return d;
}

/* The result is the mean of both heads; with one head it is given twice. */
Test(vit, heads)
{
    static const char *const names[] = { "deit-mini", "convnet" };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    for (int i = 0; i < 3; i++) {
        const tp_model_cfg c = i < 2 ? models_preset(names[i]) : small(true);
        tp_params *P = tp_params_new(D, NULL);
        tp_tape *T = tp_tape_new(D, NULL);
        tp_net *N = tp_net_new(P, "", &c);
        const tp_tensor x = models_images(T, 2, 64, 64);
        tp_tensor dist;
        const tp_tensor cls = tp_net_heads(T, N, x, &dist), mean = tp_net_forward(T, N, NULL, x);
        cr_assert(tp_ok(T), "%s", tp_why(T));
        double *a = values(T, cls), *b = values(T, dist), *z = values(T, mean), apart = 0.0;
        for (int64_t k = 0; k < tp_numel(cls); k++) {
            cr_expect_float_eq(z[k], 0.5 * (a[k] + b[k]), 1e-5, "model %d", i);
            apart = fmax(apart, fabs(a[k] - b[k]));
        }
        cr_expect((apart > 1e-3) == (i == 2), "model %d: the heads differ by %g", i, apart);
        free(a);
        free(b);
        free(z);
        tp_net_free(N);
        tp_tape_free(T);
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* ---- distillation ---- */

/* A student that agrees with its teacher has no soft loss; the teacher gets no gradient. */
Test(vit, distillation)
{
    const float logits[] = { 1, 2, 3, 0, -1, 4 }, other[] = { 3, 0, 1, 1, 1, 1 };
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor x = tp_input(T, TP_F32, TP_SHAPE(2, 3), logits);
    const tp_tensor teacher = tp_input(T, TP_F32, TP_SHAPE(2, 3), other);
    const tp_tensor base = tp_full(T, TP_F32, TP_SHAPE(0), 0.0);
    const tp_tensor zero = tp_sum(T, base, TP_ALL);
    const tp_distill_cfg soft = { true, 1.0, 2.0 }, hard = { false, 0.25, 0.0 };
    cr_expect_float_eq(tp_item(T, tp_distill_loss(T, zero, x, x, soft)), 0.0, 1e-6);
    const tp_tensor loss = tp_distill_loss(T, zero, x, teacher, hard);
    const double first = log(exp(1.0) + exp(2.0) + exp(3.0)) - 1.0;
    const double second = log(exp(0.0) + exp(-1.0) + exp(4.0));
    cr_expect_float_eq(tp_item(T, loss), 0.25 * (first + second) / 2.0, 1e-5);
    tp_backward(T, loss);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_grad(T, teacher);
    cr_expect_eq(tp_code_of(T), TP_E_STATE, "the teacher has a gradient");
    tp_tape_free(T);
    tp_device_close(D);
}

Test(vit, distillation_refuses)
{
    static const struct {
        tp_distill_cfg cfg;
        const char *text;
    } rows[] = {
        { { false, 1.5, 1.0 }, "alpha is 1.5" },
        { { true, 0.5, 0.0 }, "tau 0" },
        { { true, (double)NAN, 1.0 }, "alpha is nan" },
    };
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(2, 3), 1.0);
        tp_distill_loss(T, tp_sum(T, x, TP_ALL), x, x, rows[i].cfg);
        cr_expect(strstr(tp_why(T), rows[i].text), "row %zu: %s", i, tp_why(T));
        tp_clear(T);
    }
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- weights of another size ---- */

/* Loading at another size equals running the old model at that size. */
Test(vit, weights_of_another_size, .init = make_folder, .fini = remove_folder)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_params *Q = tp_params_new(D, &(tp_params_opts){ .seed = 2 });
    tp_tape *T = tp_tape_new(D, NULL);
    tp_model_cfg old = small(true), new = small(true);
    of(&old)->image[1] = 32;
    of(&new)->image[0] = 56;
    tp_net *N = tp_net_new(P, "", &old), *M = tp_net_new(Q, "", &new);
    cr_assert(tp_save(P, in_folder("w.safetensors")), "%s", tp_params_why(P));
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    cr_assert(tp_net_load(Q, M, F, true), "%s", tp_params_why(Q));
    const tp_tensor x = models_images(T, 2, 56, 48);
    double *a = values(T, tp_net_forward(T, N, NULL, x));
    double *b = values(T, tp_net_forward(T, M, NULL, x));
    for (int i = 0; i < 10; i++) cr_expect_float_eq(a[i], b[i], 1e-5, "%g, %g", a[i], b[i]);
    free(a);
    free(b);
    tp_file_close(F);
    tp_net_free(N);
    tp_net_free(M);
    tp_tape_free(T);
    tp_params_free(P);
    tp_params_free(Q);
    tp_device_close(D);
}

/* Only a square position grid can be resized; another width or class count is refused. */
Test(vit, weights_that_do_not_fit, .init = make_folder, .fini = remove_folder)
{
    static const struct {
        int64_t height, dim, classes;
        const char *text;
    } rows[] = { { 32, 24, 5, "25 rows" }, { 32, 48, 5, "another shape" }, { 48, 24, 7, "head" } };
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, NULL);
    tp_model_cfg c = small(false);
    tp_net *N = tp_net_new(P, "", &c);
    cr_assert(tp_save(P, in_folder("w.safetensors")), "%s", tp_params_why(P));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_model_cfg d = small(false);
        tp_params *Q = tp_params_new(D, NULL);
        of(&d)->image[1] = rows[i].height;
        of(&d)->dim = rows[i].dim;
        of(&d)->classes = rows[i].classes;
        tp_net *M = tp_net_new(Q, "", &d);
        tp_file *F = tp_file_open(in_folder("w.safetensors"));
        cr_expect(!tp_net_load(Q, M, F, true), "row %zu accepted", i);
        cr_expect(strstr(tp_params_why(Q), rows[i].text), "row %zu: %s", i, tp_params_why(Q));
        tp_file_close(F);
        tp_net_free(M);
        tp_params_free(Q);
    }
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
}

Test(vit, impossible_configurations)
{
    tp_model_cfg rows[9];
    static const char *const texts[] = {
        "dim = 0 must be 1 to 1048576",
        "24 does not divide into 5 heads",
        "heads = 0 must be 1 to 1048576",
        "depth = 0 must be 1 to 64",
        "mlp_ratio = 0 must be 1 to 64",
        "num_classes = 0 must be 1 to 1048576",
        "patches of side 33 leave nothing of 32 x 48 pixels",
        "dropout must be in [0,1), not 1",
        "avg_pool: both heads of a distilled model",
    };
    for (int i = 0; i < 9; i++) rows[i] = small(i == 8);
    of(&rows[0])->dim = 0;
    of(&rows[1])->heads = 5;
    of(&rows[2])->heads = 0;
    of(&rows[3])->blocks = 0;
    of(&rows[4])->mlp_ratio = 0;
    of(&rows[5])->classes = 0;
    of(&rows[6])->patch = 33;
    of(&rows[7])->dropout = 1.0;
    of(&rows[8])->avg_pool = true;
    for (int i = 0; i < 9; i++) models_expect_refused(&rows[i], texts[i]);
}
