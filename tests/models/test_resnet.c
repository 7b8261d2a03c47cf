/* test_resnet.c - ResNet and ResNeXt: costs, initial values, sizes, frozen norms, recomputation. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/resnet.h>

#include "support/device.h"
#include "support/models.h"

static tp_resnet_cfg *of(tp_model_cfg *c)
{
    return (tp_resnet_cfg *)&c->at;
}

/* A bottleneck net of 8 channels with groups. */
static tp_model_cfg small(void)
{
    tp_model_cfg c = models_preset("resnet-mini");
    *of(&c) = (tp_resnet_cfg){ .image = { 33, 48 },
                               .classes = 5,
                               .base = 8,
                               .blocks = { 1, 2, 1, 1 },
                               .bottleneck = true,
                               .groups = 2,
                               .group_width = 32 };
    return c;
}

static const struct {
    const char *name;
    int64_t params;
    double macs;
} published[] = {
    { "resnet-18", 11689512, 1814073344.0 },
    { "resnet-50", 25557032, 4089184256.0 },
    { "resnet-101", 44549160, 7801405440.0 },
    { "resnet-152", 60192808, 11513626624.0 },
    { "resnext-101-32x4d", 44177704, 7969996800.0 },
    { "resnext-101-64x4d", 83455272, 15460270080.0 },
};

Test(resnet, counts_and_costs)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const tp_model_cfg c = models_preset(published[i].name);
        const double macs = tp_model_cost(&c, 0, 0).macs;
        cr_expect(macs == published[i].macs, "%s: %.0f multiply-adds", published[i].name, macs);
        models_expect_count(&c, published[i].params);
    }
}

Test(resnet, activation_memory)
{
    tp_model_cfg c = models_preset("resnet-mini"), d = small();
    of(&d)->base = 16;
    of(&d)->image[0] = 64;
    models_expect_memory("basic blocks", &c);
    models_expect_memory("bottlenecks", &d);
}

/* sqrt(2 / fan out), where the fan out does not shrink with the number of groups. */
Test(resnet, initial_values)
{
    const tp_model_cfg c = models_preset("resnet-50"), next = models_preset("resnext-101-32x4d");
    static const models_moments rows[] = {
        { "conv1.weight", 0, 0.025254 },
        { "layer1.0.conv3.weight", 0, 0.088388 },
        { "layer2.0.downsample.0.weight", 0, 0.0625 },
        { "layer2.0.bn1.weight", 1, 0 },
        { "layer2.0.bn3.weight", 1, 0 },
        { "layer2.0.bn3.running_var", 1, 0 },
        { "layer2.0.downsample.1.bias", 0, 0 },
        { "fc.weight", 0, 0.012758 },
        { 0 },
    };
    static const models_moments grouped[] = { { "layer1.0.conv2.weight", 0, 0.041667 }, { 0 } };
    models_expect_initial(&c, rows);
    models_expect_initial(&next, grouped);
}

Test(resnet, any_size)
{
    static const int64_t sizes[][2] = { { 64, 64 }, { 33, 70 }, { 1, 1 }, { 100, 37 }, { 0 } };
    tp_model_cfg c = small();
    models_expect_sizes("ResNeXt", &c, sizes);
}

Test(resnet, recomputed_blocks)
{
    tp_model_cfg c = small(), basic = models_preset("resnet-mini");
    models_expect_recomputation("bottlenecks", &c, false);
    of(&basic)->base = 8;
    models_expect_recomputation("basic blocks", &basic, false);
}

/* Frozen norms use and keep their running statistics in training, also when blocks are
 * recomputed. */
Test(resnet, frozen_norms)
{
    static tp_resnet m;
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_tape *T = tp_tape_new(D, NULL);
    for (int mode = 0; mode < 2; mode++) {
        tp_model_cfg c = small();
        double loss[2], sum = 0.0;
        of(&c)->classes = 0;
        of(&c)->frozen_norm = true;
        of(&c)->recompute = mode ? TP_RECOMPUTE_BLOCK : TP_RECOMPUTE_NONE;
        tp_params *P = tp_params_new(D, NULL);
        tp_model_resnet.init(P, &m, "", of(&c));
        for (int training = 0; training < 2; training++) {
            tp_tensor maps[TP_RESNET_STAGES];
            tp_reset(T);
            tp_train(T, training == 1);
            tp_model_resnet.backbone->features(T, &m, models_images(T, 2, 40, 33), maps);
            const tp_tensor all = tp_sum(T, tp_mul(T, maps[3], maps[3]), TP_ALL);
            loss[training] = tp_item(T, all);
            tp_backward(T, all);
            cr_expect(tp_ok(T), "%s", tp_why(T));
            cr_expect(tp_is_training(T) == (training == 1));
            cr_expect(tp_dim(maps[0], 1) == 10 && tp_dim(maps[3], 2) == 2 &&
                      tp_dim(maps[3], 3) == 256);
        }
        double mean[32];
        cr_assert(tp_param_get(P, m.block[0].bn[2].mean, TP_F64, mean, sizeof mean), "%s",
                  tp_params_why(P));
        for (int i = 0; i < 32; i++) sum += fabs(mean[i]);
        cr_expect(loss[0] == loss[1] && loss[0] > 0.0, "%g, %g", loss[0], loss[1]);
        cr_expect_eq(sum, 0.0, "the running means have moved");
        tp_params_free(P);
    }
    tp_tape_free(T);
    tp_device_close(D);
}

Test(resnet, backbones_have_no_head)
{
    static tp_resnet m;
    tp_model_cfg c = small();
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    of(&c)->classes = 0;
    tp_model_resnet.init(P, &m, "", of(&c));
    tp_model_resnet.forward(T, &m, NULL, tp_full(T, TP_F32, TP_SHAPE(1, 32, 32, 3), 0.0));
    cr_expect(strstr(tp_why(T), "a backbone without a head"), "%s", tp_why(T));
    cr_expect(!tp_given(tp_find(P, "fc.weight")));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

Test(resnet, impossible_configurations)
{
    tp_model_cfg rows[8];
    static const char *const texts[] = {
        "layers = 1,0,1,1: each must be 1 to 64",
        "layers = 1,2,1,65: each must be 1 to 64",
        "67 blocks, not at most 64",
        "base = 0 must be 1 to 4096",
        "image = 0,48: each must be 1 to 1048576",
        "groups = 0 must be 1 to 4096",
        "only bottlenecks have",
        "groups of width 7 are empty at a base of 8",
    };
    for (int i = 0; i < 8; i++) rows[i] = small();
    of(&rows[0])->blocks[1] = 0;
    of(&rows[1])->blocks[3] = 65;
    of(&rows[2])->blocks[2] = 63;
    of(&rows[3])->base = 0;
    of(&rows[4])->image[0] = 0;
    of(&rows[5])->groups = 0;
    of(&rows[6])->bottleneck = false;
    of(&rows[7])->group_width = 7;
    for (int i = 0; i < 8; i++) models_expect_refused(&rows[i], texts[i]);
}
