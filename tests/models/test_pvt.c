/* test_pvt.c - PVT and PVTv2: costs, initial values, other sizes, features, recomputation, weights
 * of another size. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/pvt.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/models.h"

static tp_pvt_cfg *of(tp_model_cfg *c)
{
    return (tp_pvt_cfg *)&c->at;
}

static const char *const names[] = { "PVT", "PVTv2", "PVTv2-Li" };

static tp_model_cfg small(tp_pvt_kind kind)
{
    tp_model_cfg c = models_preset("pvt-mini");
    *of(&c) = (tp_pvt_cfg){ .image = { 64, 32 },
                            .classes = 5,
                            .kind = kind,
                            .dim = { 8, 16, 24, 32 },
                            .heads = { 1, 2, 3, 4 },
                            .blocks = { 1, 2, 1, 2 },
                            .reduction = { 4, 2, 2, 1 },
                            .mlp_ratio = { 4, 4, 2, 2 } };
    if (kind == TP_PVT2_LINEAR) {
        for (int s = 0; s < TP_PVT_STAGES; s++) of(&c)->reduction[s] = 1;
        of(&c)->pool = 3;
    }
    return c;
}

static const struct {
    const char *name;
    int64_t params;
    double macs;
} published[] = {
    { "pvt-tiny", 13229288, 1932911616.0 },
    { "pvt-small", 24485864, 3815701504.0 },
    { "pvt-medium", 44208104, 6659175424.0 },
    { "pvt-large", 61369320, 9813765632.0 },
    { "pvt2-b0", 3666760, 0 },
    { "pvt2-b1", 14009000, 0 },
    { "pvt2-b2", 25362856, 4026734592.0 },
    { "pvt2-b2-li", 22553512, 3888850944.0 },
    { "pvt2-b3", 45238696, 6897303552.0 },
    { "pvt2-b4", 62556072, 10101116416.0 },
    { "pvt2-b5", 81956008, 11717260288.0 },
};

Test(pvt, counts_and_costs)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const tp_model_cfg c = models_preset(published[i].name);
        const double macs = tp_model_cost(&c, 0, 0).macs;
        cr_expect(published[i].macs == 0 || macs == published[i].macs, "%s: %.0f multiply-adds",
                  published[i].name, macs);
        models_expect_count(&c, published[i].params);
    }
}

Test(pvt, activation_memory)
{
    for (int kind = TP_PVT; kind <= TP_PVT2_LINEAR; kind++) {
        tp_model_cfg c = small((tp_pvt_kind)kind);
        of(&c)->image[1] = 64;
        models_expect_memory(names[kind], &c);
    }
}

Test(pvt, initial_values)
{
    const tp_model_cfg one = models_preset("pvt-mini"), two = models_preset("pvt2-mini");
    static const models_moments first[] = {
        { "pos_embed1", 0, 0.02 },
        { "cls_token", 0, 0.02 },
        { "patch_embed2.proj.weight", 0, 0.051031 }, /* 1 / sqrt(3 * 32 * 4) */
        { "patch_embed2.proj.bias", 0, 0.051031 },
        { "block1.0.attn.sr.weight", 0, 0.025516 },
        { "block1.0.attn.sr.bias", 0, 0.025516 },
        { "block3.1.attn.kv.weight", 0, 0.02 },
        { "block3.1.mlp.fc1.bias", 0, 0 },
        { "norm.weight", 1, 0 },
        { "head.weight", 0, 0.02 },
        { 0 },
    };
    static const models_moments second[] = {
        { "patch_embed1.proj.weight", 0, 0.035715 }, /* sqrt(2 / (49 * 32)) */
        { "patch_embed1.proj.bias", 0, 0 },
        { "block1.1.attn.sr.weight", 0, 0.0625 },
        { "block1.1.attn.sr.bias", 0, 0 },
        { "block2.0.mlp.dwconv.dwconv.weight", 0, 0.471405 }, /* sqrt(2 / 9) */
        { "block2.0.mlp.dwconv.dwconv.bias", 0, 0 },
        { "block2.0.attn.q.weight", 0, 0.02 },
        { "norm3.weight", 1, 0 },
        { 0 },
    };
    models_expect_initial(&one, first);
    models_expect_initial(&two, second);
}

Test(pvt, drop_path_rates)
{
    static tp_pvt m;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_model_cfg c = small(TP_PVT2);
    of(&c)->drop_path = 0.5;
    tp_model_pvt.init(P, &m, "", of(&c));
    for (int i = 0; i < 6; i++) cr_expect_float_eq(m.block[i].drop_path, 0.1 * i, 1e-12);
    tp_params_free(P);
    tp_device_close(D);
}

/* Position tables are those of 64 x 32. An image with as many tokens but other sides is resized
 * too. */
Test(pvt, any_size)
{
    static const int64_t sizes[][2] = { { 64, 32 }, { 32, 64 }, { 128, 96 }, { 71, 101 }, { 0 } };
    for (int kind = TP_PVT; kind <= TP_PVT2_LINEAR; kind++) {
        tp_model_cfg c = small((tp_pvt_kind)kind);
        models_expect_sizes(names[kind], &c, sizes);
    }
}

Test(pvt, recomputed_blocks)
{
    for (int kind = TP_PVT; kind <= TP_PVT2_LINEAR; kind++) {
        tp_model_cfg c = small((tp_pvt_kind)kind);
        models_expect_recomputation(names[kind], &c, true);
        of(&c)->drop_path = 0.5;
        models_expect_recomputation(names[kind], &c, true);
    }
}

/* Features are those of a backbone, with or without a head, and a backbone has no head. */
Test(pvt, features)
{
    static tp_pvt m;
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    for (int kind = TP_PVT; kind <= TP_PVT2_LINEAR; kind++) {
        double sum[2];
        for (int head = 0; head < 2; head++) {
            tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 4 });
            tp_tape *T = tp_tape_new(D, NULL);
            tp_model_cfg c = small((tp_pvt_kind)kind);
            tp_tensor maps[TP_PVT_STAGES];
            of(&c)->classes = head ? 5 : 0;
            tp_model_pvt.init(P, &m, "", of(&c));
            tp_model_pvt.backbone->features(T, &m, models_images(T, 1, 72, 100), maps);
            cr_assert(tp_ok(T), "%s: %s", names[kind], tp_why(T));
            for (int s = 0; s < TP_PVT_STAGES; s++) {
                const int64_t part = INT64_C(4) << s, up = kind == TP_PVT ? 0 : part - 1;
                cr_expect(tp_dim(maps[s], 1) == (72 + up) / part &&
                              tp_dim(maps[s], 2) == (100 + up) / part &&
                              tp_dim(maps[s], 3) == of(&c)->dim[s],
                          "%s: map %d", names[kind], s);
            }
            sum[head] = tp_item(T, tp_sum(T, maps[3], TP_ALL));
            if (!head) {
                tp_model_pvt.forward(T, &m, NULL, models_images(T, 1, 64, 64));
                cr_expect(strstr(tp_why(T), "a backbone without a head"), "%s", tp_why(T));
            }
            tp_tape_free(T);
            tp_params_free(P);
        }
        cr_expect_eq(sum[0], sum[1], "%s", names[kind]);
    }
    tp_device_close(D);
}

/* Loading at another size equals running the old model at that size. */
Test(pvt, weights_of_another_size, .init = make_folder, .fini = remove_folder)
{
    float a[10], b[10];
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_params *Q = tp_params_new(D, &(tp_params_opts){ .seed = 2 });
    tp_tape *T = tp_tape_new(D, NULL);
    tp_model_cfg old = small(TP_PVT), new = small(TP_PVT);
    of(&old)->image[1] = 64;
    of(&new)->image[0] = of(&new)->image[1] = 96;
    tp_net *N = tp_net_new(P, "", &old), *M = tp_net_new(Q, "", &new);
    cr_assert(tp_save(P, in_folder("w.safetensors")), "%s", tp_params_why(P));
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    cr_assert(tp_net_load(Q, M, F, true), "%s", tp_params_why(Q));
    const tp_tensor x = models_images(T, 2, 96, 96);
    cr_assert(tp_read(T, tp_net_forward(T, N, NULL, x), a, sizeof a), "%s", tp_why(T));
    cr_assert(tp_read(T, tp_net_forward(T, M, NULL, x), b, sizeof b), "%s", tp_why(T));
    for (int i = 0; i < 10; i++)
        cr_expect(fabsf(a[i] - b[i]) < 1e-5f, "%g, %g", (double)a[i], (double)b[i]);
    tp_file_close(F);
    tp_net_free(N);
    tp_net_free(M);
    tp_tape_free(T);
    tp_params_free(P);
    tp_params_free(Q);
    tp_device_close(D);
}

Test(pvt, impossible_configurations)
{
    tp_model_cfg rows[10];
    static const char *const texts[] = {
        "pvt_kind has no value number 7",
        "dims = 8,0,24,32: each must be 1 to 1048576",
        "16 of stage 1 does not divide into 3 heads",
        "depths = 1,2,0,2: each must be 1 to 64",
        "mlp_ratios = 0,4,2,2: each must be 1 to 64",
        "sr_ratios = 0,2,2,1: each must be 1 to 256",
        "class token and the reduction 2",
        "a map of 1 x 2, below 2",
        "pooled to a side of 7",
        "has none",
    };
    for (int i = 0; i < 10; i++) rows[i] = small(i == 9 ? TP_PVT2_LINEAR : TP_PVT);
    of(&rows[0])->kind = (tp_pvt_kind)7;
    of(&rows[1])->dim[1] = 0;
    of(&rows[2])->heads[1] = 3;
    of(&rows[3])->blocks[2] = 0;
    of(&rows[4])->mlp_ratio[0] = 0;
    of(&rows[5])->reduction[0] = 0;
    of(&rows[6])->reduction[3] = 2;
    of(&rows[7])->image[0] = 31;
    of(&rows[8])->pool = 7;
    of(&rows[9])->reduction[2] = 2;
    for (int i = 0; i < 10; i++) models_expect_refused(&rows[i], texts[i]);
}
