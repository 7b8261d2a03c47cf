/* test_vit_lsla.c - ViT-LSLA through the public interface: the paper's counts, costs, initial
 * values, configurations in files, recomputation, image sizes, refusals of impossible requests. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/vit_lsla.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/models.h"

static tp_vit_lsla model, other;

/* For images of 32 x 32 in 10 classes. */
static tp_vit_lsla_cfg tiny(void)
{
    return (tp_vit_lsla_cfg){ .image = { 32, 32 },
                              .classes = 10,
                              .dim = 64,
                              .stages = 3,
                              .depths = { 2, 2, 1 },
                              .heads = { 2, 4, 8 },
                              .window = 4,
                              .mlp_ratio = 2.0 };
}

static void init(tp_params *P, tp_vit_lsla *m, tp_vit_lsla_cfg c)
{
    tp_model_vit_lsla.init(P, m, "", &c);
}

/* ---- counts and costs ---- */

Test(vit_lsla, counts)
{
    static const struct {
        const char *name;
        int64_t params;
        double macs, table; /* 0: not tabulated */
    } rows[] = {
        { "vit_lsla-ip102", 18909154, 3495489024, 3517616640 },
        { "vit_lsla-food101", 18908385, 0, 0 },
        { "vit_lsla-mini", 18907616, 0, 0 },
        { "vit_lsla-qxx_np", 16378402, 3033067008, 3055194624 },
        { "vit_lsla-qxv", 18909154, 3495489024, 3517616640 },
        { "vit_lsla-qkv", 23970658, 4420333056, 4442460672 },
        { "vit_lsla-fixed_none", 18811926, 0, 0 },
        { "vit_lsla-fixed_inner", 18841332, 0, 0 },
        { "vit_lsla-fixed_outer", 18841332, 0, 0 },
        { "vit_lsla-fixed", 18870738, 0, 0 },
        { "vit_lsla-inner", 18879748, 0, 0 },
        { "vit_lsla-outer", 18879748, 0, 0 },
        { "lsla-mini", 2288096, 0, 0 },
    };
    tp_device *D = device_open(&(tp_device_opts){ .dry = true });
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[256];
        tp_model_cfg c;
        const tp_model_row *m = tp_model_find(rows[i].name);
        cr_assert(m && tp_model_preset(&c, m->name, why, sizeof why), "%s", rows[i].name);
        tp_params *P = tp_params_new(D, NULL);
        tp_net *N = tp_net_new(P, "", &c);
        cr_expect(tp_params_count(P) == rows[i].params, "%s: %lld %s", m->name,
                  (long long)tp_params_count(P), tp_params_why(P));
        tp_net_free(N);
        tp_params_free(P);
        const tp_cost f = tp_model_cost(&c, 0, 0);
        const double table = f.macs + m->norm_cost * f.norm + 2.0 * f.batchnorm;
        if (rows[i].macs > 0.0)
            cr_expect(f.macs == rows[i].macs && table == rows[i].table, "%s: %.0f, %.0f", m->name,
                      f.macs, table);
        if (m->flops > 0.0)
            cr_expect(fabs(table - m->flops) < 0.05e9 &&
                          fabs((double)rows[i].params - m->params) < 0.05e6,
                      "%s: not what the paper prints", m->name);
    }
    tp_device_close(D);
}

Test(vit_lsla, parts_of_the_counts)
{
    const tp_model_cfg of = models_preset("vit_lsla-ip102");
    const tp_vit_lsla_cfg c = *(const tp_vit_lsla_cfg *)&of.at;
    const tp_cost f = tp_model_cost(&of, 0, 0);
    cr_expect(f.norm == 4064256.0 && f.batchnorm == 903168.0, "%.0f, %.0f", f.norm, f.batchnorm);

    tp_vit_lsla_cfg plain = c;
    plain.attn = (tp_lsla_cfg){ .fixed_scale = true, .raw_scores = true, .raw_weights = true };
    tp_device *D = device_open(&(tp_device_opts){ .dry = true });
    const tp_vit_lsla_cfg both[] = { c, plain };
    const int64_t params[] = { 18909154, 18811926 };
    const int tensors[] = { 262, 262 - 3 * 16 };
    for (int i = 0; i < 2; i++) {
        int n = 0;
        tp_params *P = tp_params_new(D, NULL);
        init(P, &model, both[i]);
        for (tp_param_info it = { 0 }; tp_next_param(P, &it);) n += !it.buffer;
        cr_expect(n == tensors[i] && tp_params_count(P) == params[i], "%d: %d tensors, %lld", i, n,
                  (long long)tp_params_count(P));
        for (int k = 0; k < 16; k++)
            cr_expect_float_eq(model.block[k].drop_path, 0.2 * k / 15.0, 1e-15, "block %d", k);
        tp_params_free(P);
    }
    tp_device_close(D);
}

static tp_vit_lsla_cfg small(void)
{
    tp_vit_lsla_cfg c = tiny();
    c.dim = 16;
    return c;
}

static tp_tensor images(tp_tape *T, int64_t B, int64_t height, int64_t width)
{
    const int64_t n = B * height * width * 3;
    float *x = malloc((size_t)n * sizeof *x);
    cr_assert(x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i * 37 % 101) / 50.0F - 1.0F;
    const tp_tensor y = tp_from(T, TP_F32, TP_SHAPE(B, height, width, 3), x);
    free(x);
    return y;
}

Test(vit_lsla, activation_memory)
{
    static const struct {
        tp_lsla_variant variant;
        tp_recompute recompute;
    } rows[] = {
        { TP_LSLA_QXX, TP_RECOMPUTE_NONE },      { TP_LSLA_QXV, TP_RECOMPUTE_NONE },
        { TP_LSLA_QKV, TP_RECOMPUTE_NONE },      { TP_LSLA_QXX_NP, TP_RECOMPUTE_NONE },
        { TP_LSLA_QXX, TP_RECOMPUTE_BLOCK },     { TP_LSLA_QXX, TP_RECOMPUTE_ATTENTION },
        { TP_LSLA_QKV, TP_RECOMPUTE_ATTENTION },
    };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1, .dry = true });
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_vit_lsla_cfg c = tiny();
        c.image[0] = c.image[1] = 64;
        c.attn.variant = rows[i].variant;
        c.recompute = rows[i].recompute;
        tp_params *P = tp_params_new(D, NULL);
        tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
        init(P, &model, c);
        tp_model_vit_lsla.forward(T, &model, NULL, images(T, 1, 64, 64));
        tp_reset(T);
        const size_t before = tp_device_stats(D).live_bytes;
        tp_model_vit_lsla.forward(T, &model, NULL, images(T, 1, 64, 64));
        cr_assert(tp_ok(T), "%s", tp_why(T));
        const double held = (double)(tp_device_stats(D).live_bytes - before);
        const tp_model_cfg of = tp_model_cfg_of(&tp_model_vit_lsla, &c);
        const double want = tp_model_cost(&of, 0, 0).saved;
        cr_expect(fabs(held / want - 1.0) < 0.02, "row %zu: %g bytes, said %g", i, held, want);
        tp_tape_free(T);
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* ---- initial values ---- */

/* Mean and standard deviation of a parameter. */
static void moments(tp_params *P, const char *name, double *mean, double *deviation)
{
    const tp_tensor t = tp_find(P, name);
    const int64_t n = tp_numel(t);
    double *x = malloc((size_t)(n + 1) * sizeof *x), sum = 0.0, squares = 0.0;
    cr_assert(x && n > 0, "%s", name);
    cr_assert(tp_param_get(P, t, TP_F64, x, (size_t)n * sizeof *x), "%s", name);
    for (int64_t i = 0; i < n; i++) sum += x[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *deviation = sqrt(squares / (double)n);
    free(x);
}

Test(vit_lsla, initial_values)
{
    static const struct {
        const char *name;
        double mean, deviation;
    } rows[] = {
        { "stem.0.conv.weight", 0, 0.0833333 }, /* sqrt(2 / (9 * 32)) */
        { "stem.1.conv.weight", 0, 0.0589256 },
        { "stem.1.bn.weight", 1, 0 },
        { "layers.0.blocks.1.attn.dynamic_scale", 0.1767767, 0 },
        { "layers.0.blocks.1.attn.fc_q.weight", 0, 0.02 },
        { "layers.0.blocks.1.attn.fc_q.bias", 0, 0 },
        { "layers.1.blocks.0.attn.inner_relative_position_bias_table", 0, 0.02 },
        { "layers.1.blocks.0.attn.outer_relative_position_bias_table", 0, 0.02 },
        { "layers.1.blocks.0.mlp.fc2.weight", 0, 0.02 },
        { "layers.1.blocks.0.mlp.fc2.bias", 0, 0 },
        { "layers.0.downsample.conv.weight", 0, 0.0240563 }, /* 1 / sqrt(9 * 64) / sqrt(3) */
        { "layers.0.downsample.conv.bias", 0, 0.0240563 },
        { "layers.0.downsample.norm.bias", 0, 0 },
        { "norm.weight", 1, 0 },
        { "head.weight", 0, 0.02 },
        { "head.bias", 0, 0 },
    };
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3 });
    init(P, &model, tiny());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double mean, deviation;
        moments(P, rows[i].name, &mean, &deviation);
        cr_expect(fabs(mean - rows[i].mean) < 1e-6 + 0.25 * rows[i].deviation &&
                      fabs(deviation - rows[i].deviation) < 1e-6 + 0.2 * rows[i].deviation,
                  "%s: mean %g, deviation %g", rows[i].name, mean, deviation);
    }
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
    const int32_t label[] = { 3, 7 };
    const tp_tensor logits = tp_model_vit_lsla.forward(T, &model, NULL, images(T, 2, 32, 32));
    const tp_tensor y = tp_from(T, TP_I32, TP_SHAPE(2), label);
    cr_expect_float_eq(tp_item(T, tp_cross_entropy(T, logits, y, TP_MEAN)), log(10.0), 0.4);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- training ---- */

/* The gradient norm and the loss of a step with stochastic depth. */
static void step_with(tp_recompute recompute, tp_lsla_cfg attn, double out[2])
{
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 5 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 6, .train = true });
    tp_vit_lsla_cfg c = small();
    const int32_t label[] = { 1, 2, 3 };
    c.drop_path = 0.5;
    c.recompute = recompute;
    c.attn = attn;
    init(P, &model, c);
    const tp_tensor logits = tp_model_vit_lsla.forward(T, &model, NULL, images(T, 3, 32, 32));
    const tp_tensor loss =
        tp_cross_entropy(T, logits, tp_from(T, TP_I32, TP_SHAPE(3), label), TP_MEAN);
    tp_backward(T, loss);
    out[0] = tp_item(T, loss);
    out[1] = tp_item(T, tp_clip_grad_norm(P, 0.0));
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

Test(vit_lsla, recomputation_keeps_the_bits)
{
    for (int v = TP_LSLA_QXX; v <= TP_LSLA_QXX_NP; v++) {
        const tp_lsla_cfg o = { .variant = (tp_lsla_variant)v, .mask_outer = v % 2 == 1 };
        double plain[2], attention[2], block[2];
        step_with(TP_RECOMPUTE_NONE, o, plain);
        step_with(TP_RECOMPUTE_ATTENTION, o, attention);
        step_with(TP_RECOMPUTE_BLOCK, o, block);
        for (int i = 0; i < 2; i++)
            cr_expect(plain[i] == attention[i] && plain[i] == block[i],
                      "variant %d, number %d: %.9g, %.9g, %.9g", v, i, plain[i], attention[i],
                      block[i]);
    }
}

/* ---- configurations ---- */

Test(vit_lsla, configuration_in_a_file)
{
    make_folder();
    tp_vit_lsla_cfg c = small(), back;
    char why[256] = "";
    c.image[1] = 64;
    c.mlp_ratio = 1.5;
    c.drop_path = 0.1;
    c.attn = (tp_lsla_cfg){
        .variant = TP_LSLA_QXX_NP, .fixed_scale = true, .raw_weights = true, .mask_outer = true
    };
    tp_writer *W = tp_writer_new(in_folder("a.safetensors"));
    tp_model_write_cfg(&tp_model_vit_lsla, &c, W);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(in_folder("a.safetensors"));
    cr_expect(tp_model_read_cfg(&tp_model_vit_lsla, &back, F, why, sizeof why), "%s", why);
    cr_expect(back.image[0] == 32 && back.image[1] == 64 && back.classes == 10 && back.dim == 16 &&
              back.stages == 3 && back.window == 4 && back.mlp_ratio == 1.5 &&
              back.drop_path == 0.1);
    cr_expect(memcmp(back.depths, c.depths, sizeof c.depths) == 0 &&
              memcmp(back.heads, c.heads, sizeof c.heads) == 0);
    cr_expect(back.attn.variant == TP_LSLA_QXX_NP && back.attn.fixed_scale &&
              !back.attn.raw_scores && back.attn.raw_weights && back.attn.mask_outer);
    tp_file_close(F);
    remove_folder();
}

/* Changes one key of a valid file and expects this message. */
static void expect_unread(const char *key, const char *value, const char *message)
{
    static const char *const good[][2] = {
        { "model", "vit-lsla" }, { "image", "32,32" },   { "depths", "2,2" },
        { "heads", "1,2" },      { "classes", "10" },    { "dim", "16" },
        { "window", "4" },       { "mlp_ratio", "2.0" }, { "drop_path", "0.1" },
        { "variant", "qxx" },    { "scale", "fixed" },   { "inner", "1" },
        { "outer", "1" },        { "mask_outer", "0" },
    };
    tp_vit_lsla_cfg c;
    char why[256] = "";
    tp_writer *W = tp_writer_new(in_folder("b.safetensors"));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        tp_writer_meta(W, good[i][0], strcmp(good[i][0], key) == 0 ? value : good[i][1]);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(in_folder("b.safetensors"));
    const bool read = tp_model_read_cfg(&tp_model_vit_lsla, &c, F, why, sizeof why);
    cr_expect(read == !message, "%s = %s is %s", key, value, why);
    if (message) cr_expect(strstr(why, message), "%s = %s: %s", key, value, why);
    tp_file_close(F);
}

Test(vit_lsla, configurations_that_files_cannot_have)
{
    make_folder();
    expect_unread("", "", NULL);
    expect_unread("model", "transformer-xl", "another model: 'transformer-xl', not 'vit-lsla'");
    expect_unread("image", "32", "image has one side");
    expect_unread("image", "32,32,32", "not a list of at most 2 sizes");
    expect_unread("depths", "2,x", "depths = '2,x' is not a list");
    expect_unread("depths", "", "depths = '' is not a list");
    expect_unread("heads", "1,2,4", "heads has 3 numbers for 2 stages");
    expect_unread("classes", "many", "classes");
    expect_unread("variant", "qx", "variant = 'qx' is not known");
    expect_unread("scale", "none", "scale = 'none' is not known");
    expect_unread("mlp_ratio", "wide", "mlp_ratio");
    expect_unread("window", "3", "does not divide into windows of 3");
    remove_folder();
}

Test(vit_lsla, impossible_models)
{
    static const struct {
        const char *message;
        size_t at;
        int64_t value;
        bool is_int;
    } rows[] = {
#define LONG(m) offsetof(tp_vit_lsla_cfg, m)
        { "image = 0,32: each must be 1 to 65536", LONG(image), 0, false },
        { "depths has 9 numbers, not 1 to 8", LONG(stages), 9, true },
        { "the width 15 is not even", LONG(dim), 15, false },
        { "classes = 0 must be 1 to 16777216", LONG(classes), 0, false },
        { "window = 500 must be 1 to 128", LONG(window), 500, false },
        { "variant has no value number 7", LONG(attn.variant), 7, true },
        { "depths = 0,2,1: each must be 1 to 128", LONG(depths), 0, true },
        { "the width 16 does not divide into 3 heads", LONG(heads), 3, true },
        { "stage 0: a map of 8 x 8 does not divide into windows of 3", LONG(window), 3, false },
#undef LONG
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_vit_lsla_cfg c = small();
        char why[256];
        if (rows[i].is_int)
            *(int *)((char *)&c + rows[i].at) = (int)rows[i].value;
        else
            *(int64_t *)((char *)&c + rows[i].at) = rows[i].value;
        cr_expect(!tp_model_vit_lsla.check(&c, why, sizeof why), "%s", rows[i].message);
        cr_expect(strstr(why, rows[i].message), "%s: %s", rows[i].message, why);
    }
    tp_vit_lsla_cfg c = small();
    char why[256];
    c.mlp_ratio = 1.03;
    cr_expect(!tp_model_vit_lsla.check(&c, why, sizeof why) && strstr(why, "an MLP ratio of 1.03"));
    c = small();
    c.drop_path = 1.0;
    cr_expect(!tp_model_vit_lsla.check(&c, why, sizeof why) && strstr(why, "drop_path must be in"));

    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL);
    init(P, &model, c);
    cr_expect(strstr(tp_params_why(P), "ViT-LSLA: drop_path"), "%s", tp_params_why(P));
    tp_tape *T = tp_tape_new(D, NULL);
    tp_model_vit_lsla.forward(T, &model, NULL, images(T, 1, 32, 32));
    cr_expect(strstr(tp_why(T), "ViT-LSLA: drop_path"), "%s", tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- image sizes ---- */

Test(vit_lsla, image_sizes)
{
    static const struct {
        int64_t height, width;
        const char *message;
    } rows[] = {
        { 64, 64, NULL },
        { 128, 64, NULL },
        { 61, 127, NULL }, /* 16 x 32 after the stem */
        { 32, 32, "has windows of 2, but the parameters are for windows of 4" },
        { 64, 96, "a map of 4 x 6 does not divide into windows of 4" },
    };
    tp_vit_lsla_cfg c = small();
    c.image[0] = c.image[1] = 64;
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    init(P, &model, c);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_tape *T = tp_tape_new(D, NULL);
        const tp_tensor y =
            tp_model_vit_lsla.forward(T, &model, NULL, images(T, 1, rows[i].height, rows[i].width));
        if (rows[i].message)
            cr_expect(strstr(tp_why(T), rows[i].message), "%s", tp_why(T));
        else
            cr_expect(tp_ok(T) && tp_dim(y, 1) == 10, "%s", tp_why(T));
        tp_tape_free(T);
    }
    tp_tape *T = tp_tape_new(D, NULL);
    tp_model_vit_lsla.forward(T, &model, NULL, tp_full(T, TP_F32, TP_SHAPE(1, 3, 64, 64), 0.0));
    cr_expect(strstr(tp_why(T), "images must be [batch,height,width,3]"), "%s", tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* Compares a parameter of `to` with the interpolated values of `from`. */
static void expect_resized(tp_device *D, tp_params *from, tp_params *to, const char *name,
                           tp_shape map, int64_t side)
{
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor x = tp_reshape(T, tp_find(from, name), map);
    const tp_tensor y = tp_interpolate(T, x, side, side, TP_INTERPOLATE_BICUBIC, false);
    const tp_tensor got = tp_reshape(T, tp_find(to, name), tp_shape_of(y));
    const double worst = tp_item(T, tp_max(T, tp_abs(T, tp_sub(T, y, got)), TP_ALL));
    cr_expect(tp_ok(T) && worst < 1e-6, "%s: %g %s", name, worst, tp_why(T));
    tp_tape_free(T);
}

Test(vit_lsla, weights_for_another_image_size)
{
    static const char inner[] = "layers.2.blocks.0.attn.inner_relative_position_bias_table";
    static const char first[] = "layers.0.blocks.1.attn.outer_relative_position_bias_table";
    make_folder();
    tp_vit_lsla_cfg c = small();
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_params *Q = tp_params_new(D, &(tp_params_opts){ .seed = 2 });
    init(P, &model, c); /* stage 2 has windows of 2 */
    cr_assert(tp_save(P, in_folder("small.safetensors")), "%s", tp_params_why(P));
    c.image[0] = c.image[1] = 64; /* stage 2 has windows of 4 */
    init(Q, &other, c);
    cr_assert(models_load(&tp_model_vit_lsla, Q, &other, in_folder("small.safetensors")), "%s",
              tp_params_why(Q));

    expect_resized(D, P, Q, inner, TP_SHAPE(1, 3, 3, 8), 7);
    expect_resized(D, P, Q, first, TP_SHAPE(1, 7, 7, 2), 7);
    double before, after, deviation;
    moments(P, "layers.2.blocks.0.attn.dynamic_scale", &before, &deviation);
    moments(Q, "layers.2.blocks.0.attn.dynamic_scale", &after, &deviation);
    cr_expect(fabs(before - after) < 1e-6 && deviation < 1e-6, "a constant stays: %g, %g, %g",
              before, after, deviation);

    c.classes = 11;
    tp_params *R = tp_params_new(D, NULL);
    init(R, &model, c);
    cr_expect(!models_load(&tp_model_vit_lsla, R, &model, in_folder("small.safetensors")));
    cr_expect(strstr(tp_params_why(R), "shape: head.weight is "), "%s", tp_params_why(R));
    tp_params *S = tp_params_new(D, NULL);
    c.attn.variant = TP_LSLA_QKV;
    init(S, &model, c);
    cr_expect(!models_load(&tp_model_vit_lsla, S, &model, in_folder("small.safetensors")));
    cr_expect(strstr(tp_params_why(S), "missing: layers.0.blocks.0.attn.fc_k.weight"), "%s",
              tp_params_why(S));
    tp_params *const sets[] = { P, Q, R, S };
    for (int i = 0; i < 4; i++) tp_params_free(sets[i]);
    tp_device_close(D);
    remove_folder();
}
