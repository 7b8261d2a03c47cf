/* test_modules.c - modules against their ops, the names of parameters, and the tape's mode. */
#include <criterion/criterion.h>
#include <math.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/values.h"

enum { B = 2, N = 5, C = 8, HEADS = 2 };

/* The largest difference between two tensors of one size. */
static double difference(tp_tape *T, tp_tensor a, tp_tensor b)
{
    return tp_item(T, tp_max(T, tp_abs(T, tp_sub(T, a, b)), TP_ALL));
}

static tp_tensor values(tp_tape *T)
{
    double x[B * N * C];
    for (int i = 0; i < B * N * C; i++) x[i] = sin(0.7 * i + 0.2);
    return values_constant(T, device_real(), TP_SHAPE(B, N, C), x);
}

Test(modules, self_attention_is_its_projections_and_the_op)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 4, .dtype = device_real() });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
    const tp_attn_cfg cfg = { .heads = HEADS, .causal = true };
    const uint8_t seen[B * N] = { 1, 1, 1, 1, 1, 1, 1, 1, 0, 0 };
    tp_mha_m m;
    tp_mha_init(P, &m, "attn", C, true, (tp_mha_cfg){ .attn = cfg });
    cr_expect_eq(tp_params_count(P), 4 * (C * C + C));
    const char *names[] = { "attn.q_proj.weight", "attn.k_proj.bias", "attn.v_proj.weight",
                            "attn.out_proj.bias" };
    for (int i = 0; i < 4; i++) cr_expect(tp_given(tp_find(P, names[i])), "%s", names[i]);

    const tp_tensor x = values(T), mask = tp_from(T, TP_U8, TP_SHAPE(B, N), seen);
    const tp_tensor y = tp_mha_forward(T, &m, x, mask);
    const tp_tensor q = tp_linear(T, x, m.q.weight, m.q.bias, TP_ACT_NONE);
    const tp_tensor k = tp_linear(T, x, m.k.weight, m.k.bias, TP_ACT_NONE);
    const tp_tensor v = tp_linear(T, x, m.v.weight, m.v.bias, TP_ACT_NONE);
    const tp_tensor a = tp_attention(T, q, k, v, mask, TP_NONE, cfg);
    const tp_tensor z = tp_linear(T, a, m.out.weight, m.out.bias, TP_ACT_NONE);
    cr_expect_leq(difference(T, y, z), device_limit(1e-14, 1e-6), "%s", tp_why(T));

    tp_backward(T, tp_sum(T, tp_square(T, y), TP_ALL));
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);)
        cr_expect(it.has_grad, "%s has a gradient", it.name);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* Runs an encoder layer part by part, with norms before or after. */
static tp_tensor by_pieces(tp_tape *T, const tp_encoder_layer_m *m, tp_tensor x, tp_tensor mask)
{
    const bool after = m->cfg.norm_after;
    tp_tensor h = after ? x : tp_layernorm_forward(T, &m->norm1, x);
    x = tp_add(T, x, tp_mha_forward(T, &m->attention, h, mask));
    if (after) x = tp_layernorm_forward(T, &m->norm1, x);
    h = after ? x : tp_layernorm_forward(T, &m->norm2, x);
    h = tp_relu(T, tp_linear_forward(T, &m->mlp.fc1, h));
    x = tp_add(T, x, tp_linear_forward(T, &m->mlp.fc2, h));
    return after ? tp_layernorm_forward(T, &m->norm2, x) : x;
}

Test(modules, encoder_layer_is_its_pieces)
{
    static const char *const names[] = { "e.self_attn.q_proj.weight",
                                         "e.self_attn.out_proj.bias",
                                         "e.self_attn_layer_norm.weight",
                                         "e.fc1.weight",
                                         "e.fc2.bias",
                                         "e.final_layer_norm.bias" };
    const uint8_t seen[B * N] = { 1, 1, 1, 1, 1, 1, 1, 1, 0, 0 };
    for (int after = 0; after < 2; after++) {
        tp_device *D = device_open(NULL);
        tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 4, .dtype = device_real() });
        tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
        tp_encoder_layer_m m;
        tp_encoder_layer_init(P, &m, "e",
                              (tp_encoder_layer_cfg){ .dim = C,
                                                      .hidden = 3 * C,
                                                      .heads = HEADS,
                                                      .act = TP_ACT_RELU,
                                                      .dropout = 0.3,
                                                      .attn_dropout = 0.3,
                                                      .norm_after = after });
        for (int i = 0; i < 6; i++) cr_expect(tp_given(tp_find(P, names[i])), "%s", names[i]);
        cr_expect_eq(tp_params_count(P), 4 * (C * C + C) + 2 * 3 * C * C + 3 * C + C + 4 * C);
        const tp_tensor x = values(T), mask = tp_from(T, TP_U8, TP_SHAPE(B, N), seen);
        const tp_tensor y = tp_encoder_layer_forward(T, &m, x, mask);
        cr_expect_leq(difference(T, y, by_pieces(T, &m, x, mask)), device_limit(1e-14, 2e-6), "%s",
                      tp_why(T));
        tp_train(T, true);
        const tp_tensor z = tp_encoder_layer_forward(T, &m, x, mask);
        cr_expect_gt(difference(T, y, z), 0.05, "dropout");
        tp_backward(T, tp_sum(T, tp_square(T, z), TP_ALL));
        for (tp_param_info it = { 0 }; tp_next_param(P, &it);)
            cr_expect(it.has_grad, "%s has a gradient", it.name);
        cr_expect(tp_ok(T), "%s", tp_why(T));
        tp_tape_free(T);
        tp_params_free(P);
        tp_device_close(D);
    }
}

Test(modules, embedding_reads_rows_of_its_table)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 4, .dtype = device_real() });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
    tp_embedding_m m;
    tp_embedding_init(P, &m, "emb", 7, C);
    const int32_t ids[3] = { 6, 0, 6 };
    const tp_tensor y = tp_embedding_forward(T, &m, tp_from(T, TP_I32, TP_SHAPE(3), ids), 2.0);
    double table[7 * C], rows[3 * C];
    values_read(T, tp_find(P, "emb.weight"), table);
    values_read(T, y, rows);
    cr_assert(tp_ok(T), "%s", tp_why(T));
    for (int i = 0; i < 3 * C; i++) cr_expect_eq(rows[i], 2.0 * table[ids[i / C] * C + i % C]);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

Test(modules, convolution_and_batch_norm_are_their_ops)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 4, .dtype = device_real() });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real(), .train = true });
    const tp_conv_cfg cfg = { .stride = { 2, 1 }, .pad = { 1, 1 }, .groups = 2 };
    tp_conv2d_m conv;
    tp_batchnorm_m bn;
    tp_conv2d_init(P, &conv, "proj.conv", C, 6, 3, true, cfg);
    tp_batchnorm_init(P, &bn, "proj.bn", 6, 1e-5);
    cr_expect_eq(tp_params_count(P), 6 * (C / 2) * 9 + 6 + 6 + 6, "buffers are not counted");
    const char *names[] = { "proj.conv.weight",
                            "proj.conv.bias",
                            "proj.bn.weight",
                            "proj.bn.bias",
                            "proj.bn.running_mean",
                            "proj.bn.running_var",
                            "proj.bn.num_batches_tracked" };
    for (int i = 0; i < 7; i++) cr_expect(tp_given(tp_find(P, names[i])), "%s", names[i]);
    double w[6 * (C / 2) * 9], largest = 0.0;
    values_read(T, conv.weight, w);
    for (int i = 0; i < 6 * (C / 2) * 9; i++) largest = fmax(largest, fabs(w[i]));
    cr_expect(largest <= 1.0 / 6.0 && largest > 0.9 / 6.0, "%g: fan-in is 36", largest);

    const tp_tensor x = tp_reshape(T, values(T), TP_SHAPE(B, N, 1, C));
    const tp_tensor y = tp_batchnorm_forward(T, &bn, tp_conv2d_forward(T, &conv, x));
    const tp_tensor m = tp_full(T, device_real(), TP_SHAPE(6), 0.0);
    const tp_tensor v = tp_full(T, device_real(), TP_SHAPE(6), 1.0);
    const tp_tensor z = tp_conv2d(T, x, conv.weight, conv.bias, cfg);
    const tp_tensor t = tp_batchnorm(T, z, bn.weight, bn.bias, m, v, TP_NONE, 0.1, 1e-5);
    cr_expect_leq(difference(T, y, t), device_limit(1e-14, 1e-6), "%s", tp_why(T));
    cr_expect_leq(difference(T, bn.mean, m), device_limit(1e-14, 1e-6), "%s", tp_why(T));
    cr_expect_leq(difference(T, bn.var, v), device_limit(1e-14, 1e-6), "%s", tp_why(T));
    int64_t batches = 0;
    tp_read(T, bn.batches, &batches, sizeof batches);
    cr_expect_eq(batches, 1, "%s", tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

Test(modules, mode_and_synchronisation)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    cr_expect(!tp_is_training(T));
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(1000), 1.0);
    cr_expect_eq(tp_item(T, tp_mean(T, tp_dropout(T, x, 0.5), TP_ALL)), 1.0, "identity in eval");
    tp_train(T, true);
    cr_expect(tp_is_training(T));
    const double kept = tp_item(T, tp_mean(T, tp_dropout(T, x, 0.5), TP_ALL));
    cr_expect(kept != 1.0 && fabs(kept - 1.0) < 0.2, "%g", kept);
    const uint64_t before = tp_device_stats(D).syncs;
    tp_exp(T, x);
    cr_expect_eq(tp_device_stats(D).syncs, before, "ops do not synchronise");
    tp_device_sync(D);
    cr_expect_eq(tp_device_stats(D).syncs, before + 1);
    tp_tape_free(T);
    tp_device_close(D);
}

Test(modules, norms_are_their_ops)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 4, .dtype = device_real() });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
    tp_rmsnorm_m rms;
    tp_groupnorm_m group;
    tp_instancenorm_m plain, affine;
    tp_rmsnorm_init(P, &rms, "rms", C, 1e-5);
    tp_groupnorm_init(P, &group, "group", C, 4, 1e-5);
    tp_instancenorm_init(P, &plain, "plain", C, false, 1e-5);
    tp_instancenorm_init(P, &affine, "affine", C, true, 1e-5);
    const char *const names[] = { "rms.weight", "group.weight", "group.bias", "affine.weight",
                                  "affine.bias" };
    cr_expect_eq(tp_params_count(P), 5 * C);
    for (int i = 0; i < 5; i++) {
        const tp_tensor p = tp_find(P, names[i]);
        cr_expect(tp_given(p), "%s", names[i]);
        const tp_tensor start =
            tp_full(T, device_real(), TP_SHAPE(C), i == 2 || i == 4 ? 0.0 : 1.0);
        cr_expect_eq(difference(T, p, start), 0.0, "%s", names[i]);
    }
    const tp_tensor x = values(T);
    const tp_tensor got[] = { tp_rmsnorm_forward(T, &rms, x), tp_groupnorm_forward(T, &group, x),
                              tp_instancenorm_forward(T, &plain, x),
                              tp_instancenorm_forward(T, &affine, x) };
    const tp_tensor want[] = { tp_rmsnorm(T, x, TP_NONE, 1e-5),
                               tp_groupnorm(T, x, 4, TP_NONE, TP_NONE, 1e-5),
                               tp_instancenorm(T, x, TP_NONE, TP_NONE, 1e-5),
                               tp_instancenorm(T, x, TP_NONE, TP_NONE, 1e-5) };
    for (int i = 0; i < 4; i++)
        cr_expect_leq(difference(T, got[i], want[i]), device_limit(1e-14, 1e-6), "%d: %s", i,
                      tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* Expects parameter [s], uniform in +-1/sqrt(fan). */
static void expect_uniform(tp_tape *T, tp_params *P, const char *name, tp_shape s, double fan)
{
    static double v[1024];
    const tp_tensor p = tp_find(P, name);
    const tp_shape got = tp_shape_of(p);
    int64_t n = 1;
    double most = 0.0;
    cr_assert(tp_given(p) && got.ndim == s.ndim, "%s", name);
    for (int i = 0; i < s.ndim; n *= s.dim[i++]) cr_assert_eq(got.dim[i], s.dim[i], "%s", name);
    values_read(T, p, v);
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(v[i]));
    cr_expect(most <= 1.0 / sqrt(fan) && (n < 50 || most > 0.9 / sqrt(fan)), "%s: %g", name, most);
}

Test(modules, convolutions_are_their_ops)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 4, .dtype = device_real() });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
    const tp_conv_cfg same = { .pad = { 1 }, .groups = 2 }, wide = { .pad = { 0, 2 } };
    const tp_conv_transpose_cfg two = { .stride = { 2, 2 }, .groups = 2 },
                                one = { .stride = { 3 } };
    tp_conv1d_m line;
    tp_conv2d_m rect;
    tp_conv_transpose1d_m up;
    tp_conv_transpose2d_m up2;
    tp_conv1d_init(P, &line, "line", C, 6, 3, true, same);
    tp_conv2d_rect_init(P, &rect, "rect", C, 4, (int64_t[2]){ 1, 5 }, false, wide);
    tp_conv_transpose1d_init(P, &up, "up", C, 6, 3, true, one);
    tp_conv_transpose2d_init(P, &up2, "up2", C, 6, 2, true, two);
    expect_uniform(T, P, "line.weight", TP_SHAPE(6, 4, 3), 12);
    expect_uniform(T, P, "line.bias", TP_SHAPE(6), 12);
    expect_uniform(T, P, "rect.weight", TP_SHAPE(4, 8, 1, 5), 40);
    cr_expect(!tp_given(rect.bias));
    expect_uniform(T, P, "up.weight", TP_SHAPE(8, 6, 3), 18);
    expect_uniform(T, P, "up2.weight", TP_SHAPE(8, 3, 2, 2), 12);
    expect_uniform(T, P, "up2.bias", TP_SHAPE(6), 12);

    const tp_tensor x = values(T), map = tp_reshape(T, x, TP_SHAPE(B, 1, N, C));
    const tp_tensor got[] = { tp_conv1d_forward(T, &line, x), tp_conv2d_forward(T, &rect, map),
                              tp_conv_transpose1d_forward(T, &up, x),
                              tp_conv_transpose2d_forward(T, &up2, map) };
    const tp_tensor want[] = { tp_conv1d(T, x, line.weight, line.bias, same),
                               tp_conv2d(T, map, rect.weight, TP_NONE, wide),
                               tp_conv_transpose1d(T, x, up.weight, up.bias, one),
                               tp_conv_transpose2d(T, map, up2.weight, up2.bias, two) };
    for (int i = 0; i < 4; i++)
        cr_expect_eq(difference(T, got[i], want[i]), 0.0, "%d: %s", i, tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}
