/* test_coat.c - CoaT-Lite through the public interface: published counts, costs, memory, initial
 * values, shared encodings and their second names, recomputation, image sizes, refusals. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/coat.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/models.h"

static tp_coat model;

static tp_coat_cfg small(void)
{
    return (tp_coat_cfg){ .image = { 64, 64 },
                          .classes = 10,
                          .dim = { 8, 16, 24, 32 },
                          .depths = { 1, 2, 1, 1 },
                          .mlp_ratio = { 2, 2, 2, 2 },
                          .heads = 8,
                          .kernels = TP_COAT_PUBLISHED };
}

Test(coat, counts)
{
    static const models_costs rows[] = {
        { "coat_lite-small", 102, 19378854, 3943103488, 3959768448 },
        { "coat_lite-small", 1000, 19839528, 3943563264, 3960228224 },
        { "coat_lite-tiny", 1000, 5722856, 1589037952, 1598306112 },
        { "coat_lite-mini", 1000, 11012584, 1987031552, 1996901632 },
        { NULL, 0, 0, 0, 0 },
    };
    models_expect_costs(rows);
    const tp_model_cfg c = models_preset("coat_lite-small");
    cr_expect_eq(models_tensors(&c), 254);
}

Test(coat, activation_memory)
{
    const tp_model_cfg c = models_dropping("coat-mini", 0.0);
    models_expect_memory("coat-mini", &c);
}

Test(coat, initial_values)
{
    static const models_moments rows[] = {
        { "patch_embed1.proj.weight", 0, 0.0833333 }, /* 1 / sqrt(48) / sqrt(3) */
        { "patch_embed4.proj.bias", 0, 0.0228218 },   /* 1 / sqrt(640) / sqrt(3) */
        { "patch_embed2.norm.weight", 1, 0 },
        { "cpe3.proj.weight", 0, 0.1924501 }, /* 1 / 3 / sqrt(3) */
        { "cpe4.proj.bias", 0, 0.1924501 },
        { "crpe4.conv_list.2.weight", 0, 0.0824786 }, /* 1 / 7 / sqrt(3) */
        { "serial_blocks3.1.factoratt_crpe.qkv.weight", 0, 0.02 },
        { "serial_blocks3.1.factoratt_crpe.proj.bias", 0, 0 },
        { "serial_blocks4.0.mlp.fc1.weight", 0, 0.02 },
        { "serial_blocks4.0.mlp.fc1.bias", 0, 0 },
        { "cls_token4", 0, 0.02 },
        { "norm1.weight", 1, 0 },
        { "head.weight", 0, 0.02 },
        { "head.bias", 0, 0 },
        { NULL, 0, 0 },
    };
    const tp_model_cfg c = models_preset("coat-mini");
    models_expect_initial(&c, rows);
}

Test(coat, recomputation_keeps_the_bits)
{
    const tp_model_cfg c = models_dropping("coat-mini", 0.5);
    models_expect_recomputation("coat-mini", &c, true);
}

Test(coat, image_sizes)
{
    static const int64_t sizes[][2] = { { 64, 64 }, { 32, 96 }, { 0 } };
    static const models_size refused[] = {
        { 96, 48, "must be multiples of 32, not 96 x 48" },
        { 0 },
    };
    const tp_model_cfg c = models_preset("coat-mini");
    models_expect_sizes("coat-mini", &c, sizes);
    models_expect_no_sizes("coat-mini", &c, refused);
}

/* Every block drops at the same rate; unused norms have no effect. */
Test(coat, drop_path_and_unused_norms)
{
    tp_device *D = device_open(&(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_coat_cfg c = small();
    c.drop_path = 0.3;
    tp_model_coat.init(P, &model, "", &c);
    for (int i = 0; i < 5; i++) cr_expect_float_eq(model.block[i].drop_path, 0.3, 1e-15);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);)
        cr_expect_eq(it.frozen,
                     strncmp(it.name, "norm1.", 6) == 0 || strncmp(it.name, "norm2.", 6) == 0 ||
                         strncmp(it.name, "norm3.", 6) == 0,
                     "%s", it.name);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- second names ---- */

/* Published files list shared encodings under the stage and under every block. */
static bool canonical(const char *name)
{
    return strncmp(name, "cpe", 3) == 0 || strncmp(name, "crpe", 4) == 0;
}

/* Writes the weights of P, shared ones under the canonical name, the second names, or both. */
static void write_published(tp_params *P, bool first, bool second, const char *path)
{
    tp_writer *W = tp_writer_new(path);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const size_t bytes = (size_t)tp_numel(it.tensor) * sizeof(float);
        float *x = malloc(bytes);
        if ((it.alias_of ? second : first || !canonical(it.name)) && x &&
            tp_param_get(P, it.tensor, TP_F32, x, bytes))
            tp_writer_add(W, it.name, TP_F32, it.shape, x, true);
        free(x);
    }
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
}

Test(coat, second_names_of_shared_encodings, .init = make_folder, .fini = remove_folder)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    int aliases = 0;
    const tp_coat_cfg c = small();
    tp_model_coat.init(P, &model, "", &c);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) aliases += it.alias_of != NULL;
    cr_expect_eq(aliases, 5 * 8);
    cr_expect(tp_given(tp_find(P, "serial_blocks2.0.cpe.proj.weight")));
    cr_expect(tp_given(tp_find(P, "serial_blocks2.0.factoratt_crpe.crpe.conv_list.1.bias")));
    for (int k = 1; k < 4; k++) {
        tp_params *Q = tp_params_new(D, &(tp_params_opts){ .seed = 2 });
        tp_coat other;
        tp_model_coat.init(Q, &other, "", &c);
        write_published(P, k & 1, k & 2, in_folder("w.safetensors"));
        cr_expect(tp_load(Q, in_folder("w.safetensors"), NULL), "%d: %s", k, tp_params_why(Q));
        float x[24], y[24];
        const tp_tensor a = tp_find(P, "cpe3.proj.bias"), b = tp_find(Q, "cpe3.proj.bias");
        cr_assert(tp_param_get(P, a, TP_F32, x, sizeof x) &&
                  tp_param_get(Q, b, TP_F32, y, sizeof y));
        cr_expect(memcmp(x, y, sizeof x) == 0, "%d", k);
        tp_params_free(Q);
    }
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- refusals ---- */

Test(coat, impossible_models)
{
    static const models_member rows[] = {
#define AT(m) offsetof(tp_coat_cfg, m)
        { "images are 48 x 64 pixels: sides must be multiples of 32", AT(image), 48, false },
        { "classes = 0 must be 1 to 16777216", AT(classes), 0, false },
        { "the kernels of relative positions are for 8 heads, not 4", AT(heads), 4, true },
        { "kernels has 5 numbers, not 1 to 4", AT(kernels.n), 5, true },
        { "a kernel of relative positions is 4, not an odd number", AT(kernels.kernel), 4, true },
        { "the kernel 3 is for 0 heads", AT(kernels.heads), 0, true },
        { "depths = 0,2,1,1: each must be 1 to 64", AT(depths), 0, true },
        { "stage 0: the width 12 does not divide into 8 heads", AT(dim), 12, false },
        { "mlp_ratios = 0,2,2,2: each must be 1 to 64", AT(mlp_ratio), 0, true },
#undef AT
        { NULL, 0, 0, false },
    };
    const tp_coat_cfg c = small();
    models_expect_impossible(&tp_model_coat, &c, rows);
}

Test(coat, parts_that_refuse)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL), *R = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_coat_shared s;
    tp_coat_attn a;
    const tp_model *m = &tp_model_coat;
    tp_coat_shared_cfg c = { "cpe", "crpe", 8, TP_COAT_PUBLISHED };
    tp_coat_attn_cfg all = { .dim = 8, .heads = 8, .shared = &s };
    tp_part_init(P, m, "shared", &s, "", &c);
    tp_part_init(P, m, "attn", &a, "attn", &all);
    tp_tensor grid = tp_full(T, TP_F32, TP_SHAPE(2, 3, 0), 0.0);
    tp_part_forward(T, m, "attn", &a, &grid, tp_full(T, TP_F32, TP_SHAPE(1, 8, 8), 1.0));
    cr_expect(strstr(tp_why(T), "8 tokens do not match a map of 2 x 3"), "%s", tp_why(T));
    tp_clear(T);
    tp_part_forward(T, m, "shared", &s, &grid, tp_full(T, TP_F32, TP_SHAPE(1, 5, 8), 1.0));
    cr_expect(strstr(tp_why(T), "5 tokens do not match a map of 2 x 3"), "%s", tp_why(T));
    c.dim = 12;
    tp_part_init(Q, m, "shared", &s, "", &c);
    cr_expect(strstr(tp_params_why(Q), "a width of 12 in 8 heads"), "%s", tp_params_why(Q));
    c.dim = 8;
    all.heads = 4;
    tp_part_init(R, m, "shared", &s, "", &c);
    tp_part_init(R, m, "attn", &a, "attn", &all);
    cr_expect(strstr(tp_params_why(R), "in 4 heads, 8 of them with encodings"), "%s",
              tp_params_why(R));
    tp_tape_free(T);
    tp_params_free(P);
    tp_params_free(Q);
    tp_params_free(R);
    tp_device_close(D);
}
