/* test_cswin.c - CSWin through the public interface: published counts, costs, memory, initial
 * values, branches, recomputation, image sizes, refusals of impossible requests. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/cswin.h>

#include "support/device.h"
#include "support/models.h"

static tp_cswin model;

static tp_cswin_cfg small(void)
{
    return (tp_cswin_cfg){ .image = { 64, 64 },
                           .classes = 10,
                           .dim = 8,
                           .depths = { 1, 2, 1, 1 },
                           .heads = { 2, 2, 4, 4 },
                           .split = { 1, 2, 2, 2 },
                           .mlp_ratio = 2 };
}

Test(cswin, counts)
{
    static const models_costs rows[] = {
        { "cswin-t", 102, 21859878, 4323743232, 4340552192 },
        { "cswin-t", 1000, 22320552, 4324203008, 4341011968 },
        { NULL, 0, 0, 0, 0 },
    };
    models_expect_costs(rows);
    const tp_model_cfg c = models_preset("cswin-t");
    cr_expect_eq(models_tensors(&c), 418);
}

Test(cswin, activation_memory)
{
    const tp_model_cfg c = models_dropping("cswin-mini", 0.0);
    models_expect_memory("cswin-mini", &c);
}

Test(cswin, initial_values)
{
    static const models_moments rows[] = {
        { "stage1_conv_embed.0.weight", 0, 0.0476190 }, /* 1 / sqrt(147) / sqrt(3) */
        { "stage1_conv_embed.2.weight", 1, 0 },
        { "stage2.1.qkv.weight", 0, 0.02 },
        { "stage2.1.qkv.bias", 0, 0 },
        { "stage3.0.attns.1.get_v.weight", 0, 0.1924501 }, /* 1 / 3 / sqrt(3) */
        { "stage4.0.attns.0.get_v.bias", 0, 0.1924501 },
        { "merge1.conv.weight", 0, 0.0340207 }, /* 1 / sqrt(288) / sqrt(3) */
        { "merge3.conv.bias", 0, 0.0170103 },
        { "merge3.norm.bias", 0, 0 },
        { "stage4.0.mlp.fc2.weight", 0, 0.02 },
        { "stage4.0.mlp.fc2.bias", 0, 0 },
        { "head.weight", 0, 0.02 },
        { "head.bias", 0, 0 },
        { NULL, 0, 0 },
    };
    const tp_model_cfg c = models_preset("cswin-mini");
    models_expect_initial(&c, rows);
}

/* Stages whose map is one stripe have one branch, as has the last. */
Test(cswin, branches)
{
    tp_device *D = device_open(&(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL);
    tp_cswin_cfg c = small();
    c.drop_path = 0.4;
    tp_model_cswin.init(P, &model, "", &c);
    cr_expect(model.block[0].branches == 2 && model.block[3].branches == 2 &&
              model.block[4].branches == 1);
    for (int i = 0; i < 5; i++)
        cr_expect_float_eq(model.block[i].drop_path, 0.1 * i, 1e-15, "block %d", i);
    c.split[2] = 4; /* the side of stage 2's map */
    tp_model_cswin.init(Q, &model, "", &c);
    cr_expect(model.block[3].branches == 1 && model.block[2].branches == 2);
    const tp_tensor w = tp_find(Q, "stage3.0.attns.0.get_v.weight");
    cr_expect(tp_dim(w, 0) == 32 && !tp_given(tp_find(Q, "stage3.0.attns.1.get_v.weight")));
    tp_params_free(P);
    tp_params_free(Q);
    tp_device_close(D);
}

Test(cswin, recomputation_keeps_the_bits)
{
    const tp_model_cfg c = models_dropping("cswin-mini", 0.5);
    models_expect_recomputation("cswin-mini", &c, true);
}

Test(cswin, image_sizes)
{
    static const int64_t sizes[][2] = { { 64, 64 }, { 96, 96 }, { 0 } }; /* maps of 24, 12, 6, 3 */
    static const models_size refused[] = {
        { 100, 100, "a map of 13 x 13 does not divide into stripes of 2" },
        { 32, 32, "a map of 2 x 2 is one stripe, but the parameters are for two branches" },
        { 64, 96, "images must be squares, not 64 x 96" },
        { 0 },
    };
    const tp_model_cfg c = models_preset("cswin-mini");
    models_expect_sizes("cswin-mini", &c, sizes);
    models_expect_no_sizes("cswin-mini", &c, refused);
}

Test(cswin, impossible_models)
{
    static const models_member rows[] = {
#define AT(m) offsetof(tp_cswin_cfg, m)
        { "images are 32 x 64 pixels: they must be squares", AT(image), 32, false },
        { "the width 9 is not even", AT(dim), 9, false },
        { "classes = 0 must be 1 to 16777216", AT(classes), 0, false },
        { "depths = 0,2,1,1: each must be 1 to 64", AT(depths), 0, true },
        { "stage 0: the width 8 does not divide into 3 heads in 2 branches", AT(heads), 3, true },
        { "stage 0: the width 8 does not divide into 1 heads in 2 branches", AT(heads), 1, true },
        { "split = 0,2,2,2: each must be 1 to 65536", AT(split), 0, false },
        { "stage 0: a map of 16 x 16 does not divide into stripes of 3", AT(split), 3, false },
#undef AT
        { NULL, 0, 0, false },
    };
    const tp_cswin_cfg c = small();
    tp_cswin_cfg wide = small();
    char why[256];
    models_expect_impossible(&tp_model_cswin, &c, rows);
    wide.mlp_ratio = 1.03;
    cr_expect(!tp_model_cswin.check(&wide, why, sizeof why) && strstr(why, "an MLP ratio of 1.03"));
    wide = small();
    wide.drop_path = 1.0;
    cr_expect(!tp_model_cswin.check(&wide, why, sizeof why) && strstr(why, "drop_path must be in"));
}

Test(cswin, parts_that_refuse)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL);
    tp_cswin_lepe l;
    tp_cswin_block b;
    const tp_cswin_lepe_cfg thirds = {
        .dim = 8, .heads = 3, .stripes = TP_CSWIN_VERTICAL, .split = 2
    };
    tp_part_init(P, &tp_model_cswin, "lepe", &l, "attns.0", &thirds);
    cr_expect(strstr(tp_params_why(P), "a width of 8 in 3 heads"), "%s", tp_params_why(P));
    const tp_cswin_block_cfg one = { .side = 4, .dim = 8, .split = 2, .heads = 1, .mlp_ratio = 1 };
    tp_part_init(Q, &tp_model_cswin, "block", &b, "m", &one);
    cr_expect(strstr(tp_params_why(Q), "a width of 8 in 1 heads has no halves"), "%s",
              tp_params_why(Q));
    tp_params_free(P);
    tp_params_free(Q);
    tp_device_close(D);
}
