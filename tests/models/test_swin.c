/* test_swin.c - Swin through the public interface: published counts, costs, memory, initial values,
 * recomputation, image sizes and weights for them, refusals of impossible requests. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/swin.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/models.h"

static tp_swin model, other;

static tp_swin_cfg small(void)
{
    return (tp_swin_cfg){ .image = { 32, 32 },
                          .classes = 10,
                          .dim = 16,
                          .stages = 3,
                          .depths = { 2, 2, 1 },
                          .heads = { 1, 2, 4 },
                          .window = 4,
                          .mlp_ratio = 2 };
}

Test(swin, counts)
{
    static const models_costs rows[] = {
        { "swin-t", 102, 27597792, 4489876992, 4508504832 },
        { "swin-t", 1000, 28288354, 4490566656, 4509194496 },
        { "swin-s", 1000, 49606258, 8740875264, 8768534784 },
        { "swin-b", 1000, 87768224, 15430946816, 15467826176 },
        { NULL, 0, 0, 0, 0 },
    };
    models_expect_costs(rows);
    const tp_model_cfg c = models_preset("swin-t");
    cr_expect_eq(models_tensors(&c), 173);
}

Test(swin, activation_memory)
{
    const tp_model_cfg c = models_dropping("swin-mini", 0.0);
    models_expect_memory("swin-mini", &c);
}

Test(swin, initial_values)
{
    static const models_moments rows[] = {
        { "patch_embed.proj.weight", 0, 0.0833333 }, /* 1 / sqrt(48) / sqrt(3) */
        { "patch_embed.proj.bias", 0, 0.0833333 },
        { "patch_embed.norm.weight", 1, 0 },
        { "layers.0.blocks.1.attn.qkv.weight", 0, 0.02 },
        { "layers.0.blocks.1.attn.qkv.bias", 0, 0 },
        { "layers.1.blocks.0.attn.relative_position_bias_table", 0, 0.02 },
        { "layers.1.blocks.0.mlp.fc2.weight", 0, 0.02 },
        { "layers.1.blocks.0.mlp.fc2.bias", 0, 0 },
        { "layers.0.downsample.reduction.weight", 0, 0.02 },
        { "layers.0.downsample.norm.bias", 0, 0 },
        { "head.weight", 0, 0.02 },
        { "head.bias", 0, 0 },
        { NULL, 0, 0 },
    };
    const tp_model_cfg c = models_preset("swin-mini");
    models_expect_initial(&c, rows);
}

Test(swin, drop_path_is_linear)
{
    tp_device *D = device_open(&(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_swin_cfg c = small();
    c.drop_path = 0.2;
    tp_model_swin.init(P, &model, "", &c);
    for (int i = 0; i < 5; i++)
        cr_expect_float_eq(model.block[i].drop_path, 0.05 * i, 1e-15, "block %d", i);
    cr_expect(model.block[1].shift == 2 && model.block[0].shift == 0);
    tp_params_free(P);
    tp_device_close(D);
}

Test(swin, recomputation_keeps_the_bits)
{
    const tp_model_cfg c = models_dropping("swin-mini", 0.5);
    models_expect_recomputation("swin-mini", &c, true);
}

/* ---- image sizes ---- */

Test(swin, image_sizes)
{
    static const int64_t sizes[][2] = { { 64, 64 }, { 128, 64 }, { 0 } };
    static const models_size refused[] = {
        { 32, 32, "has windows of 2, but the parameters are for windows of 4" },
        { 64, 96, "a map of 4 x 6 does not divide into windows of 4" },
        { 0 },
    };
    const tp_model_cfg c = models_preset("swin-mini");
    models_expect_sizes("swin-mini", &c, sizes);
    models_expect_no_sizes("swin-mini", &c, refused);
}

/* Compares a parameter of `to` with the interpolated values of `from`. */
static void expect_resized(tp_device *D, tp_params *from, tp_params *to, const char *name,
                           tp_shape map, const int64_t size[2])
{
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor x = tp_reshape(T, tp_find(from, name), map);
    const tp_tensor y = tp_interpolate(T, x, size[0], size[1], TP_INTERPOLATE_BICUBIC, false);
    const tp_tensor got = tp_reshape(T, tp_find(to, name), tp_shape_of(y));
    const double worst = tp_item(T, tp_max(T, tp_abs(T, tp_sub(T, y, got)), TP_ALL));
    cr_expect(tp_ok(T) && worst < 1e-6, "%s: %g %s", name, worst, tp_why(T));
    tp_tape_free(T);
}

Test(swin, weights_for_another_image_size, .init = make_folder, .fini = remove_folder)
{
    static const char table[] = "layers.2.blocks.0.attn.relative_position_bias_table";
    static const char ape[] = "absolute_pos_embed";
    tp_swin_cfg c = small();
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_params *Q = tp_params_new(D, &(tp_params_opts){ .seed = 2 });
    tp_params *R = tp_params_new(D, NULL), *S = tp_params_new(D, NULL);
    c.ape = true;
    tp_model_swin.init(P, &model, "", &c); /* stage 2 has windows of 2 */
    cr_assert(tp_save(P, in_folder("small.safetensors")), "%s", tp_params_why(P));
    c.image[0] = 64; /* stage 2 has windows of 4 */
    c.image[1] = 128;
    tp_model_swin.init(Q, &other, "", &c);
    cr_assert(models_load(&tp_model_swin, Q, &other, in_folder("small.safetensors")), "%s",
              tp_params_why(Q));
    expect_resized(D, P, Q, table, TP_SHAPE(1, 3, 3, 4), (int64_t[]){ 7, 7 });
    expect_resized(D, P, Q, ape, TP_SHAPE(1, 8, 8, 16), (int64_t[]){ 16, 32 });

    /* 16 x 32 patches are not square but keep the proportions. */
    cr_assert(tp_save(Q, in_folder("wide.safetensors")), "%s", tp_params_why(Q));
    c.image[0] = 32;
    c.image[1] = 64;
    tp_model_swin.init(R, &other, "", &c);
    cr_assert(models_load(&tp_model_swin, R, &other, in_folder("wide.safetensors")), "%s",
              tp_params_why(R));
    expect_resized(D, Q, R, ape, TP_SHAPE(1, 16, 32, 16), (int64_t[]){ 8, 16 });
    c.image[1] = 32;
    tp_model_swin.init(S, &other, "", &c);
    cr_expect(!models_load(&tp_model_swin, S, &other, in_folder("wide.safetensors")));
    cr_expect(strstr(tp_params_why(S), "has positions of 512 patches, which are neither"), "%s",
              tp_params_why(S));
    tp_params *const sets[] = { P, Q, R, S };
    for (int i = 0; i < 4; i++) tp_params_free(sets[i]);
    tp_device_close(D);
}

/* A position embedding fits only one size. */
Test(swin, positions_of_another_size)
{
    tp_swin_cfg c = small();
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    c.ape = true;
    tp_model_swin.init(P, &model, "", &c);
    tp_model_swin.forward(T, &model, NULL, tp_full(T, TP_F32, TP_SHAPE(1, 64, 64, 3), 0.0));
    cr_expect(strstr(tp_why(T), "there are 16 x 16 patches, but positions for 64"), "%s",
              tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- refusals ---- */

Test(swin, impossible_models)
{
    static const models_member rows[] = {
#define AT(m) offsetof(tp_swin_cfg, m)
        { "images are 30 x 32 pixels: sides must be multiples of 4", AT(image), 30, false },
        { "depths has 9 numbers, not 1 to 8", AT(stages), 9, true },
        { "dim = 0 must be 1 to 16777216", AT(dim), 0, false },
        { "classes = 0 must be 1 to 16777216", AT(classes), 0, false },
        { "window = 500 must be 1 to 128", AT(window), 500, false },
        { "depths = 0,2,1: each must be 1 to 128", AT(depths), 0, true },
        { "the width 16 does not divide into 3 heads", AT(heads), 3, true },
        { "stage 0: a map of 8 x 8 does not divide into windows of 3", AT(window), 3, false },
        { "stage 0: a map of 9 x 8 does not divide into windows of 4", AT(image), 36, false },
#undef AT
        { NULL, 0, 0, false },
    };
    const tp_swin_cfg c = small();
    models_expect_impossible(&tp_model_swin, &c, rows);

    tp_swin_cfg odd = small();
    char why[256];
    odd.image[0] = odd.image[1] = 36;
    odd.window = 3;
    cr_expect(!tp_model_swin.check(&odd, why, sizeof why));
    cr_expect(strstr(why, "stage 0: a map of 9 x 9 does not divide into cells of 2 x 2"), "%s",
              why);
    odd = small();
    odd.mlp_ratio = 1.03;
    cr_expect(!tp_model_swin.check(&odd, why, sizeof why) && strstr(why, "an MLP ratio of 1.03"));
}

Test(swin, parts_that_refuse)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_swin_attn a;
    tp_swin_merge g;
    tp_swin_attn_cfg c = { .dim = 8, .heads = 2, .window = { 2, 3 } };
    int64_t straight = 0, shifted = 1;
    const tp_model *m = &tp_model_swin;
    tp_part_init(P, m, "attn", &a, "attn", &c);
    tp_part_init(P, m, "merge", &g, "merge", &c.dim);
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(1, 4, 6, 8), 1.0);
    const tp_tensor odd = tp_full(T, TP_F32, TP_SHAPE(1, 3, 6, 8), 1.0);
    cr_expect(tp_dim(tp_part_forward(T, m, "attn", &a, &straight, x), 2) == 6 && tp_ok(T), "%s",
              tp_why(T));
    tp_part_forward(T, m, "attn", &a, &shifted, x);
    cr_expect(strstr(tp_why(T), "windows of 2 x 3 cannot be shifted"), "%s", tp_why(T));
    tp_clear(T);
    tp_part_forward(T, m, "attn", &a, &straight, odd);
    cr_expect(strstr(tp_why(T), "does not divide into windows of 2 x 3"), "%s", tp_why(T));
    tp_clear(T);
    tp_part_forward(T, m, "merge", &g, NULL, odd);
    cr_expect(strstr(tp_why(T), "does not divide into cells of 2 x 2"), "%s", tp_why(T));
    tp_clear(T);
    tp_part_forward(T, m, "mergers", &g, NULL, odd);
    cr_expect(strstr(tp_why(T), "model swin has no part called 'mergers'"), "%s", tp_why(T));
    c.heads = 3;
    tp_part_init(Q, m, "attn", &a, "attn", &c);
    cr_expect(strstr(tp_params_why(Q), "a width of 8 in 3 heads"), "%s", tp_params_why(Q));
    tp_tape_free(T);
    tp_params_free(P);
    tp_params_free(Q);
    tp_device_close(D);
}

static const char *init(int i, tp_params *P)
{
    if (i > 0) return NULL;
    tp_conv_norm_init(P, NULL, "m", (tp_conv_norm_cfg){ 0 });
    return "conv_norm";
}

static const char *forward(int i, tp_tape *T, tp_tensor x)
{
    if (i > 0) return NULL;
    tp_conv_norm_forward(T, NULL, x);
    return "conv_norm";
}

Test(swin, null_modules)
{
    models_expect_null_refused(init, forward);
}
