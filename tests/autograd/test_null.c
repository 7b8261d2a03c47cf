/* test_null.c - NULL in place of an object gives one message, if another object can hold it, and
 * never a crash. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/capture.h>
#include <tapegrad/convnet.h>
#include <tapegrad/cvt.h>
#include <tapegrad/detection/detector.h>
#include <tapegrad/lm.h>
#include <tapegrad/lra.h>
#include <tapegrad/nearest.h>
#include <tapegrad/observe.h>
#include <tapegrad/op.h>
#include <tapegrad/optim_kind.h>
#include <tapegrad/pvt.h>
#include <tapegrad/random.h>
#include <tapegrad/resnet.h>
#include <tapegrad/roberta.h>
#include <tapegrad/tapegrad.h>
#include <tapegrad/vil.h>
#include <tapegrad/vit.h>
#include <tapegrad/vit_lsla.h>

/* Initialises or fuses the i-th module at NULL. Returns its name in messages, or NULL after the
 * last. */
static const char *init(int i, tp_params *P)
{
    switch (i) {
    case 0: tp_linear_init(P, NULL, "m", 1, 1, true); return "linear";
    case 1: tp_embedding_init(P, NULL, "m", 1, 1); return "embedding";
    case 2: tp_layernorm_init(P, NULL, "m", 1, 0.1); return "layernorm";
    case 3: tp_dualln_init(P, NULL, "m", "n", 1, 0.1); return "dualln";
    case 4: tp_batchnorm_init(P, NULL, "m", 1, 0.1); return "batchnorm";
    case 5: tp_conv2d_init(P, NULL, "m", 1, 1, 1, true, (tp_conv_cfg){ 0 }); return "conv2d";
    case 6: tp_mlp_init(P, NULL, "m", "n", 1, 1, TP_ACT_NONE, 0.0); return "mlp";
    case 7:
        tp_mha_init(P, NULL, "m", 1, true, (tp_mha_cfg){ .attn = { .heads = 1 } });
        return "mha";
    case 8:
        tp_encoder_layer_init(P, NULL, "m", (tp_encoder_layer_cfg){ 0 });
        return "encoder_layer";
    case 9: tp_ls_attn_init(P, NULL, "m", 2, true, tp_ls_lm_tiny(4).ls); return "ls_attn";
    case 10: tp_ls_lm_init(P, NULL, "m", tp_ls_lm_tiny(4)); return "ls_lm";
    case 11: cr_expect_not(tp_net_load(P, NULL, NULL, true)); return "net";
    case 12: tp_lstm_init(P, NULL, "m", (tp_rnn_cfg){ .in = 1, .hidden = 1 }); return "lstm";
    case 13: tp_gru_init(P, NULL, "m", (tp_rnn_cfg){ .in = 1, .hidden = 1 }); return "gru";
    case 14: tp_glu_mlp_init(P, NULL, NULL, 1, 1, true, TP_GLU_SILU, 0.0); return "glu_mlp";
    case 15:
        tp_decoder_layer_init(P, NULL, "m", (tp_decoder_layer_cfg){ 0 });
        return "decoder_layer";
    case 16: tp_rmsnorm_init(P, NULL, "m", 1, 0.1); return "rmsnorm";
    case 17: tp_groupnorm_init(P, NULL, "m", 2, 1, 0.1); return "groupnorm";
    case 18: tp_instancenorm_init(P, NULL, "m", 1, true, 0.1); return "instancenorm";
    case 19: tp_conv1d_init(P, NULL, "m", 1, 1, 1, true, (tp_conv_cfg){ 0 }); return "conv1d";
    case 20:
        tp_conv_transpose1d_init(P, NULL, "m", 1, 1, 1, true, (tp_conv_transpose_cfg){ 0 });
        return "conv_transpose1d";
    case 21:
        tp_conv_transpose2d_init(P, NULL, "m", 1, 1, 1, true, (tp_conv_transpose_cfg){ 0 });
        return "conv_transpose2d";
    case 22:
        tp_conv2d_rect_init(P, NULL, "m", 1, 1, (int64_t[2]){ 1, 2 }, true, (tp_conv_cfg){ 0 });
        return "conv2d";
    case 23: tp_backbone_fuse(P, NULL); return "backbone";
    case 24: tp_detector_fuse(P, NULL); return "detector";
    default: return NULL;
    }
}

/* Runs the i-th module at NULL. */
static const char *forward(int i, tp_tape *T, tp_tensor x)
{
    tp_kv kv;
    switch (i) {
    case 0: tp_linear_forward(T, NULL, x); return "linear";
    case 1: tp_linear_act(T, NULL, x, TP_ACT_RELU); return "linear";
    case 2: tp_embedding_forward(T, NULL, x, 1.0); return "embedding";
    case 3: tp_layernorm_forward(T, NULL, x); return "layernorm";
    case 4: tp_batchnorm_forward(T, NULL, x); return "batchnorm";
    case 5: tp_conv2d_forward(T, NULL, x); return "conv2d";
    case 6: tp_mlp_forward(T, NULL, x, TP_NONE); return "mlp";
    case 7: tp_mha_forward(T, NULL, x, TP_NONE); return "mha";
    case 8: tp_encoder_layer_forward(T, NULL, x, TP_NONE); return "encoder_layer";
    case 9: tp_ls_attn_forward(T, NULL, x, x, (tp_ls_context){ 0 }); return "ls_attn";
    case 10: tp_ls_attn_rows(T, NULL, x, &kv); return "ls_attn";
    case 11: tp_ls_attn_compress(T, NULL, x, NULL); return "ls_attn";
    case 12: tp_ls_lm_forward(T, NULL, NULL, x); return "ls_lm";
    case 13: tp_ls_lm_decoder_free(tp_ls_lm_decoder_new(T, NULL, 1)); return "decoder";
    case 14: tp_lsla_attn_maps(T, NULL, x, 0); return "lsla_attn";
    case 15: tp_net_forward(T, NULL, NULL, x); return "net";
    case 16: tp_lstm_forward(T, NULL, x, NULL, TP_NONE); return "lstm";
    case 17: tp_gru_forward(T, NULL, x, NULL, TP_NONE); return "gru";
    case 18: tp_glu_mlp_forward(T, NULL, x, TP_NONE); return "glu_mlp";
    case 19: tp_mha_cross(T, NULL, x, x, TP_NONE); return "mha";
    case 20: tp_mha_decode(T, NULL, NULL, x, TP_NONE); return "mha";
    case 21: tp_mha_cross_decode(T, NULL, NULL, x, x, TP_NONE); return "mha";
    case 22: tp_encoder_layer_decode(T, NULL, NULL, x, TP_NONE); return "encoder_layer";
    case 23: tp_decoder_layer_forward(T, NULL, x, x, TP_NONE, TP_NONE); return "decoder_layer";
    case 24: tp_decoder_layer_decode(T, NULL, NULL, x, x, TP_NONE); return "decoder_layer";
    case 25: tp_rmsnorm_forward(T, NULL, x); return "rmsnorm";
    case 26: tp_groupnorm_forward(T, NULL, x); return "groupnorm";
    case 27: tp_instancenorm_forward(T, NULL, x); return "instancenorm";
    case 28: tp_conv1d_forward(T, NULL, x); return "conv1d";
    case 29: tp_conv_transpose1d_forward(T, NULL, x); return "conv_transpose1d";
    case 30: tp_conv_transpose2d_forward(T, NULL, x); return "conv_transpose2d";
    case 31: tp_lra_encode(T, NULL, x, TP_NONE); return "lra";
    case 32: tp_lra_pool(T, NULL, x); return "lra";
    case 33: tp_lra_classify(T, NULL, x, TP_NONE); return "lra";
    case 34: tp_net_heads(T, NULL, x, &kv.k); return "net";
    case 35: tp_roberta_encode(T, NULL, (tp_roberta_in){ .ids = x }); return "roberta";
    case 36: tp_roberta_classify(T, NULL, x); return "roberta";
    case 37: tp_roberta_predict(T, NULL, x, TP_NONE); return "roberta";
    case 38: tp_conv2d_forward_relu(T, NULL, x, TP_NONE); return "conv2d";
    default: return NULL;
    }
}

static void expect_message(const char *why, const char *name)
{
    char text[128];
    snprintf(text, sizeof text, "%s: NULL was given in place of a module", name);
    cr_expect(strncmp(why, text, strlen(text)) == 0, "%s: %s", name, why);
}

Test(null, modules)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const float v = 1.0f;
    const char *name = "";
    for (int i = 0; name; i++) {
        tp_params *P = tp_params_new(D, NULL);
        name = init(i, P);
        if (name) expect_message(tp_params_why(P), name);
        tp_params_free(P);
    }
    name = "";
    for (int i = 0; name; i++) {
        tp_clear(T);
        name = forward(i, T, tp_input(T, TP_F32, TP_SHAPE(1, 1, 1, 1), &v));
        if (name) expect_message(tp_why(T), name);
        cr_expect(!name || strstr(tp_why(T), "\n  at "), "%s has no place: %s", name, tp_why(T));
    }
    cr_expect_not(tp_ls_lm_decode(NULL, 0, NULL));
    cr_expect_null(tp_net_module(NULL));
    cr_expect_null(tp_net_cfg(NULL)->model);
    cr_expect_null(tp_net_state_new(NULL));
    tp_net_state_free(NULL, T, NULL);
    tp_tape_free(T);
    tp_device_close(D);
}

Test(null, states)
{
    static tp_ls_lm m;
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_ls_lm_forward(T, &m, NULL, TP_NONE);
    cr_expect(strstr(tp_why(T), "ls_lm: NULL was given in place of a state\n  at "), "%s",
              tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

/* Every module with NULL parameters or a NULL tape. */
Test(null, modules_without_parameters_and_tape)
{
    for (int i = 0; init(i, NULL); i++)
        ;
    for (int i = 0; forward(i, NULL, TP_NONE); i++)
        ;
    tp_linear_m m;
    tp_linear_init(NULL, &m, "m", 1, 1, true);
    tp_linear_forward(NULL, &m, TP_NONE);
    cr_expect_str_eq(m.path, "");
}

Test(null, parameters)
{
    const tp_init zero = { TP_INIT_ZERO, 0, 0 };
    float v = 0.0f;
    cr_expect_str_eq(tp_push(NULL, "layer"), "");
    cr_expect_null(tp_params_alloc(NULL, 8));
    tp_pop(NULL);
    tp_params_init_rule(NULL, NULL, NULL);
    const tp_tensor w = tp_param(NULL, "w", TP_SHAPE(1), zero, 0);
    tp_buffer(NULL, "b", TP_F32, TP_SHAPE(1), &v);
    tp_tie(NULL, "t", w);
    cr_expect_eq(tp_freeze(NULL, "w", true), 0);
    cr_expect_not(tp_next_param(NULL, &(tp_param_info){ 0 }));
    cr_expect_not(tp_given(tp_find(NULL, "w")));
    cr_expect_eq(tp_params_count(NULL), 0);
    cr_expect_not(tp_param_get(NULL, w, TP_F32, &v, sizeof v));
    cr_expect_not(tp_param_set(NULL, w, TP_F32, &v, sizeof v));
    cr_expect_not(tp_param_get_grad(NULL, w, TP_F32, &v, sizeof v));
    tp_grad_clear(NULL);
    cr_expect_not(tp_given(tp_clip_grad_norm(NULL, 1.0)));
    cr_expect_not(tp_clip_grad_value(NULL, 1.0));
    cr_expect_not(tp_param_set_grad(NULL, w, TP_F32, &v, sizeof v));
    tp_init_by_name(NULL, NULL);
    tp_on_grad(NULL, NULL, NULL);
    tp_params_raise(NULL, TP_E_IO, "nowhere");
    cr_expect_not(tp_save(NULL, "never.safetensors") || tp_load(NULL, "never.safetensors", NULL));
    cr_expect_not(tp_params_read(NULL, NULL, "", NULL) || tp_params_write(NULL, NULL, ""));
    cr_expect_str_eq(tp_params_why(NULL), "params: NULL was given in place of a parameter set");
}

Test(null, optimisers_and_averages)
{
    cr_expect_eq(tp_optim_updates(NULL), 0);
    cr_expect_eq(tp_optim_bytes(NULL), 0);
    tp_grad_scale(NULL, 1.0);
    tp_next_rate(NULL, 1.0);
    cr_expect_not(tp_optim_records(NULL));
    cr_expect_not(tp_optim_register(NULL) || tp_optim_register(&(tp_optim_kind){ 0 }));
    cr_expect(tp_optim_find(NULL) == -1 && !tp_optim_kind_at(-1) && !tp_optim_kind_at(1000));
    cr_expect_not(tp_optim_set(NULL, "eps", 1.0));
    cr_expect(isnan(tp_optim_get(NULL, "eps")));
    cr_expect_not(tp_optim_write(NULL, NULL, NULL) || tp_optim_read(NULL, NULL, NULL));
    cr_expect_eq(tp_optim_code(NULL), TP_E_STATE);
    cr_expect_str_eq(tp_optim_why(NULL), "optimiser: NULL was given in place of an optimiser");
    tp_ema_update(NULL);
    tp_ema_swap(NULL);
    cr_expect_not(tp_ema_write(NULL, NULL, NULL) || tp_ema_read(NULL, NULL, NULL));
    cr_expect_str_eq(tp_ema_why(NULL), "ema: NULL was given in place of an average");
}

/* Makes the i-th call with NULL on a valid tape; returns its message. */
static const char *argument(int i, tp_tape *T, tp_tensor x)
{
    static const tp_op no_shape = { .name = "mine", .nx = 1, .ny = 1 }, no_name = { .nx = 1 };
    switch (i) {
    case 0: tp_apply(T, NULL, NULL, x); return "tp_apply: NULL was given in place of an op";
    case 1: tp_apply(T, &no_shape, NULL, x); return "tp_apply: the op has no shape rule (.shape)";
    case 2: tp_apply(T, &no_name, NULL, x); return "tp_apply: the op has no name";
    case 3:
        tp_apply_n(T, NULL, NULL, 1, NULL, 1, NULL);
        return "tp_apply: NULL was given in place of an op";
    case 4: tp_concat_n(T, 0, 2, NULL); return "concat: NULL was given in place of 2 inputs";
    case 5: tp_stack_n(T, 0, 2, NULL); return "stack: NULL was given in place of 2 inputs";
    case 6: tp_split(T, x, 0, 2, NULL); return "split: NULL was given in place of room for 2";
    case 7: tp_split(T, x, 0, 1, NULL); return "split: NULL was given in place of room for 1";
    case 8:
        tp_split_sizes(T, x, 0, 2, (int64_t[]){ 1, 1 }, NULL);
        return "split_sizes: NULL was given in place of room for 2";
    case 9:
        tp_split_sizes(T, x, 0, 1, NULL, &x);
        return "split_sizes: NULL was given in place of sizes";
    case 10: tp_chunk(T, x, 0, 2, NULL); return "chunk: NULL was given in place of room for 2";
    case 11: tp_carry(T, NULL, x); return "tp_carry: NULL was given in place of a slot";
    case 12:
        tp_feed(T, NULL, TP_F32, TP_SCALAR, &(float){ 1 });
        return "tp_feed: NULL was given in place of a slot";
    case 13: tp_einsum_n(T, NULL, 1, &x); return "einsum: NULL was given in place of the specific";
    case 14:
        tp_einsum_n(T, "ab->b", 1, NULL);
        return "einsum: NULL was given in place of the tensors";
    case 15:
        tp_roi_align(T, 2, NULL, x, x, (tp_roi_align_cfg){ .size = { 1, 1 } });
        return "roi_align: NULL was given in place of 2 maps";
    case 16:
        tp_checkpoint(T, NULL, NULL, x);
        return "tp_checkpoint: NULL was given in place of a function";
    case 17:
        tp_checkpoint_n(T, NULL, NULL, 1, &x);
        return "tp_checkpoint: NULL was given in place of a function";
    case 18: tp_read(T, x, NULL, 8); return "tp_read: NULL was given in place of a buffer";
    case 19: tp_from(T, TP_F32, TP_SHAPE(1), NULL); return "tp_from: host data is NULL";
    case 20:
        tp_enter(T, NULL);
        tp_leave_n(T, 2, NULL);
        return "tp_leave_n: NULL was given in place of 2 results";
    case 21: tp_leave(T, x); return "tp_leave: no scope is open; tp_enter begins one";
    default: return NULL;
    }
}

Test(null, arguments)
{
    const float v[2] = { 1, 2 };
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const char *part = "";
    for (int i = 0; part; i++) {
        tp_reset(T);
        tp_clear(T);
        const tp_tensor x = tp_input(T, TP_F32, TP_SHAPE(2), v);
        part = argument(i, T, x);
        if (part) cr_expect(strstr(tp_why(T), part), "%d lacks %s: %s", i, part, tp_why(T));
        argument(i, NULL, x);
    }
    tp_tape_free(T);
    tp_device_close(D);
}

/* Functions without an object to hold a message. */
Test(null, plain_functions)
{
    char text[200] = "";
    uint64_t seed = 7;
    int64_t n = 7;
    const char *kind = "";
    cr_expect_not(tp_gradcheck(NULL, NULL, text, sizeof text));
    cr_expect_str_eq(text, "tp_gradcheck: NULL was given in place of an op");
    cr_expect_not(tp_gradcheck(&(tp_op){ .name = "mine" }, NULL, NULL, 0));
    cr_expect_not(tp_file_replace(NULL, "x", 1, text, sizeof text));
    cr_expect_str_eq(text, "file: NULL was given in place of a path");
    cr_expect_not(tp_file_replace("never", NULL, 1, NULL, 0));
    cr_expect_not(tp_make_folders(NULL, NULL, 0));
    cr_expect_eq(tp_open_regular(NULL, &n, &kind), -1);
    cr_expect(n == 0 && !kind);
    cr_expect_not(tp_write_bytes(-1, NULL, 8));
    cr_expect_not(tp_reserve(NULL, NULL, 0, 1, 1));
    cr_expect(!tp_json_parse(NULL, 4, 0, NULL, NULL));
    cr_expect_not(tp_is_utf8(NULL) || tp_ends_in(NULL, "x") || tp_ends_in("x", NULL));
    cr_expect_eq(tp_utf8_at(NULL, NULL) + tp_plain_at(NULL, NULL), 0);
    cr_expect_not(tp_ls_cfg_check(NULL, 8, text, sizeof text));
    cr_expect_str_eq(text, "NULL was given in place of a configuration");
    tp_random_state(NULL, &seed, NULL);
    tp_random_state(NULL, NULL, NULL);
    cr_expect_eq(seed, 0);
    cr_expect_eq(tp_random_word(NULL), 0);
    cr_expect_eq(tp_random_beta(NULL, 0.5, 0.5) + tp_random_uniform(NULL), 0.0);
    tp_random_normals(NULL, NULL, 4);
    tp_random_normal(NULL);
    tp_random_stream(1, NULL, 0, 0);
    tp_numpy_permutation(1, 4, NULL);
    tp_frequencies(4, NULL);
    tp_sinusoid(2, 2, NULL, 0, NULL);
    tp_lsh_buckets(8, 8, 2, NULL);
    cr_expect(isnan(tp_lr_milestones(0, 0, 0.1, NULL, 1, 0.1, 0.1)));
    cr_expect(isnan(tp_plateau_step(NULL, 1.0)));
    cr_expect_eq(tp_seen_macs(NULL), 0.0);
    tp_writer *W = tp_writer_new("never.safetensors");
    tp_plateau_write(NULL, W, NULL);
    cr_expect(strstr(tp_writer_why(W), "NULL was given in place of a plateau"), "%s",
              tp_writer_why(W));
    tp_writer_free(W);
    tp_device *D = tp_device_open(NULL, NULL);
    cr_expect(strstr(tp_device_why(D), "device: NULL was given in place of a name; "), "%s",
              tp_device_why(D));
    tp_device_close(D);
    cr_expect_not(tp_next_param(NULL, NULL) || tp_params_refuse(NULL, TP_E_IO, "nowhere"));
}

Test(null, devices_and_captures)
{
    tp_op_time line;
    cr_expect_not(tp_device_sync(NULL) || tp_device_ok(NULL));
    tp_device_trim(NULL);
    tp_device_reset_peak(NULL);
    tp_trace_begin(NULL);
    tp_trace_enter(NULL, NULL);
    tp_trace_leave(NULL);
    cr_expect_not(tp_trace_end(NULL, NULL, NULL, 9));
    tp_device_reset_profile(NULL);
    cr_expect_eq(tp_device_profile(NULL, &line, 1), 0);
    cr_expect_eq(tp_device_stats(NULL).peak_bytes, 0);
    cr_expect_str_eq(tp_device_name(NULL), "none");
    cr_expect_str_eq(tp_device_why(NULL), "device: NULL was given in place of a device");
    tp_capture *C = tp_capture_new(NULL);
    for (int i = 0; i < 2; i++, tp_capture_free(C), C = NULL) {
        cr_expect(tp_capture_begin(C), "the step runs, without a recording");
        tp_capture_end(C);
        cr_expect_eq(tp_capture_launches(C), 0);
    }
    tp_observe(NULL, NULL, NULL);
}

Test(null, files)
{
    const char *key, *value;
    int64_t n = 7;
    double x = 7.0;
    cr_expect_not(tp_file_ok(NULL) || tp_file_count(NULL) || tp_file_at(NULL, 0));
    cr_expect_not(tp_file_find(NULL, "w") || tp_file_data(NULL, NULL));
    cr_expect_not(tp_file_has_checksums(NULL) || tp_file_verify(NULL));
    cr_expect_not(tp_file_meta(NULL, "k") || tp_file_meta_at(NULL, 0, &key, &value));
    cr_expect_not(tp_file_int(NULL, "k", &n) || tp_file_num(NULL, "k", &x));
    cr_expect_not(tp_file_read(NULL, NULL, TP_F32, &x));
    cr_expect_str_eq(tp_file_path(NULL), "");
    cr_expect_str_eq(tp_file_why(NULL),
                     "file: NULL was given in place of a file; open one with tp_file_open");
    tp_file_close(NULL);
    tp_file *F = tp_file_open("tests/there_is_no_such_file");
    cr_expect_null(tp_file_data(F, NULL));
    tp_file_close(F);
}

Test(null, writers)
{
    const float v = 1.0f;
    tp_writer_meta(NULL, "k", "v");
    tp_writer_meta_int(NULL, "k", 1);
    tp_writer_meta_num(NULL, "k", 1.0);
    tp_writer_add(NULL, "w", TP_F32, TP_SCALAR, &v, true);
    tp_writer_finite(NULL);
    cr_expect_not(tp_writer_commit(NULL) || tp_writer_ok(NULL));
    cr_expect_eq(tp_writer_code(NULL), TP_E_STATE);
    cr_expect_str_eq(tp_writer_why(NULL),
                     "file: NULL was given in place of a writer; make one with tp_writer_new");
    tp_writer_free(NULL);
    for (int i = 0; i < 3; i++) {
        tp_writer *W = tp_writer_new("never.safetensors");
        if (i == 0) tp_writer_meta(W, NULL, "v");
        if (i == 1) tp_writer_meta_int(W, NULL, 1);
        if (i == 2) tp_writer_meta_num(W, NULL, 1.0);
        cr_expect_eq(tp_writer_code(W), TP_E_VALUE);
        cr_expect(strstr(tp_writer_why(W), "NULL was given in place of the key of metadata"), "%s",
                  tp_writer_why(W));
        tp_writer_free(W);
    }
}
