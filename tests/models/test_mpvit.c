/* test_mpvit.c - MPViT through the public interface: published counts, costs, memory, initial
 * values, stochastic depth, second names, recomputation, image sizes, refusals. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/mpvit.h>

#include "support/device.h"
#include "support/models.h"

static tp_mpvit model;

static tp_mpvit_cfg small(void)
{
    return (tp_mpvit_cfg){ .image = { 32, 32 },
                           .classes = 10,
                           .dim = { 8, 16, 16, 24 },
                           .paths = { 1, 2, 3, 2 },
                           .layers = { 1, 2, 1, 1 },
                           .mlp_ratio = { 2, 2, 2, 2 },
                           .heads = 8,
                           .kernels = TP_COAT_PUBLISHED };
}

Test(mpvit, counts)
{
    static const models_costs rows[] = {
        { "mpvit-s", 102, 22632878, 4771072352, 4799398272 },
        { "mpvit-s", 1000, 22892400, 4771330976, 4799656896 },
        { "mpvit-t", 1000, 5843736, 1635527496, 1654164352 },
        { "mpvit-xs", 1000, 10573448, 2950215936, 2971402752 },
        { "mpvit-b", 1000, 74845976, 16390139552, 16445319040 },
        { NULL, 0, 0, 0, 0 },
    };
    models_expect_costs(rows);
    const tp_model_cfg c = models_preset("mpvit-s");
    cr_expect_eq(models_tensors(&c), 644);
}

/* A published file lists every name: 644 tensors, their second names, three buffers per batch
 * norm. */
Test(mpvit, names_of_a_published_file)
{
    tp_device *D = device_open(&(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_model_cfg c;
    char why[256];
    int names = 0;
    cr_assert(tp_model_preset(&c, "mpvit-s", why, sizeof why), "%s", why);
    tp_net *N = tp_net_new(P, "", &c);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) names++;
    cr_expect_eq(names, 1263, "%d", names);
    cr_expect(
        tp_given(tp_find(P, "mhca_stages.1.mhca_blks.2.MHCA_layers.1.crpe.conv_list.2.bias")));
    cr_expect(tp_given(tp_find(P, "mhca_stages.1.mhca_blks.2.MHCA_layers.1.cpe.proj.bias")));
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
}

Test(mpvit, activation_memory)
{
    const tp_model_cfg c = models_dropping("mpvit-mini", 0.0);
    models_expect_memory("mpvit-mini", &c);
}

Test(mpvit, initial_values)
{
    static const models_moments rows[] = {
        { "stem.0.conv.weight", 0, 0.1178511 }, /* sqrt(2 / (9 * 16)) */
        { "stem.1.conv.weight", 0, 0.0833333 },
        { "stem.1.bn.weight", 1, 0 },
        { "patch_embed_stages.2.patch_embeds.1.patch_conv.dwconv.weight", 0, 0.0445435 },
        { "patch_embed_stages.2.patch_embeds.1.patch_conv.pwconv.weight", 0, 0.1336306 },
        { "mhca_stages.2.InvRes.conv1.conv.weight", 0, 0.1336306 }, /* sqrt(2 / 112) */
        { "mhca_stages.2.InvRes.dwconv.weight", 0, 0.4714045 },     /* sqrt(2 / 9)   */
        { "mhca_stages.2.InvRes.conv2.bn.bias", 0, 0 },
        { "mhca_stages.2.aggregate.conv.weight", 0, 0.1118034 }, /* sqrt(2 / 160) */
        { "mhca_stages.3.mhca_blks.2.cpe.proj.weight", 0, 0.1924501 },
        { "mhca_stages.3.mhca_blks.2.crpe.conv_list.2.weight", 0, 0.0824786 },
        { "mhca_stages.3.mhca_blks.0.MHCA_layers.0.mlp.fc1.weight", 0, 0.02 },
        { "mhca_stages.3.mhca_blks.0.MHCA_layers.0.factoratt_crpe.qkv.bias", 0, 0 },
        { "mhca_stages.3.mhca_blks.0.MHCA_layers.0.norm1.weight", 1, 0 },
        { "cls_head.cls.weight", 0, 0.02 },
        { "cls_head.cls.bias", 0, 0 },
        { NULL, 0, 0 },
    };
    const tp_model_cfg c = models_preset("mpvit-mini");
    models_expect_initial(&c, rows);
}

/* Rates are linear in the layers of all stages; all paths of a stage share them. */
Test(mpvit, drop_path)
{
    static const double rates[TP_MPVIT_STAGES][2] = { { 0 }, { 0.1, 0.2 }, { 0.3 }, { 0.4 } };
    tp_device *D = device_open(&(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_mpvit_cfg c = small();
    c.drop_path = 0.4;
    tp_model_mpvit.init(P, &model, "", &c);
    for (int s = 0; s < TP_MPVIT_STAGES; s++)
        for (int i = 0; i < c.paths[s]; i++)
            for (int j = 0; j < c.layers[s]; j++)
                cr_expect_float_eq(model.stage[s].encoder[i].block[j].drop_path, rates[s][j], 1e-15,
                                   "stage %d, path %d, layer %d", s, i, j);
    tp_params_free(P);
    tp_device_close(D);
}

Test(mpvit, recomputation_keeps_the_bits)
{
    const tp_model_cfg c = models_dropping("mpvit-mini", 0.5);
    models_expect_recomputation("mpvit-mini", &c, true);
}

Test(mpvit, image_sizes)
{
    static const int64_t sizes[][2] = { { 64, 64 }, { 33, 70 }, { 1, 5 }, { 0 } };
    static const models_size refused[] = {
        { 0 },
    };
    const tp_model_cfg c = models_preset("mpvit-mini");
    models_expect_sizes("mpvit-mini", &c, sizes);
    models_expect_no_sizes("mpvit-mini", &c, refused);
}

Test(mpvit, impossible_models)
{
    static const models_member rows[] = {
#define AT(m) offsetof(tp_mpvit_cfg, m)
        { "image = 0,32: each must be 1 to 65536", AT(image), 0, false },
        { "classes = 0 must be 1 to 16777216", AT(classes), 0, false },
        { "the width 9 of stage 0 is odd", AT(dim), 9, false },
        { "stage 0: the width 12 does not divide into 8 heads", AT(dim), 12, false },
        { "paths = 5,2,3,2: each must be 1 to 4", AT(paths), 5, true },
        { "layers = 17,2,1,1: each must be 1 to 16", AT(layers), 17, true },
        { "mlp_ratios = 0,2,2,2: each must be 1 to 64", AT(mlp_ratio), 0, true },
        { "the kernels of relative positions are for 8 heads, not 4", AT(heads), 4, true },
        { "a kernel of relative positions is 4, not an odd number", AT(kernels.kernel), 4, true },
#undef AT
        { NULL, 0, 0, false },
    };
    const tp_mpvit_cfg c = small();
    models_expect_impossible(&tp_model_mpvit, &c, rows);
}

Test(mpvit, parts_that_refuse)
{
    tp_device *D = device_open(&(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL), *R = tp_params_new(D, NULL);
    static tp_mpvit_embed e;
    static tp_mpvit_encoder n;
    static tp_mpvit_stage s;
    const tp_model *m = &tp_model_mpvit;
    const tp_mpvit_embed_cfg five = { .dim = 8, .paths = 5, .stride = 1 };
    const tp_mpvit_encoder_cfg none = { .dim = 8 };
    const tp_mpvit_stage_cfg empty = { .out = 8, .encoder = none };
    tp_part_init(P, m, "embed", &e, "m", &five);
    cr_expect(strstr(tp_params_why(P), "patches m: 5 paths, not 1 to 4"), "%s", tp_params_why(P));
    tp_part_init(Q, m, "encoder", &n, "m", &none);
    cr_expect(strstr(tp_params_why(Q), "encoder m: 0 layers, not 1 to 16"), "%s", tp_params_why(Q));
    tp_part_init(R, m, "stage", &s, "m", &empty);
    cr_expect(strstr(tp_params_why(R), "stage m: 0 paths, not 1 to 4"), "%s", tp_params_why(R));
    tp_params_free(P);
    tp_params_free(Q);
    tp_params_free(R);
    tp_device_close(D);
}
