/* test_fixtures.c - the reference cases, run by the table of tp-parity on the device of the suite;
 * tp-parity refuses damaged cases.
 *
 * Full-size models take half a minute of processor time in an optimised build and run there unless
 * TAPEGRAD_FULL is 0. Other builds take ten times as long and run them if TAPEGRAD_FULL is 1. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/fixtures.h"
#include "support/folder.h"

#include "parity.h"

static bool is_case(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".safetensors") == 0;
}

static bool is_affordable(void)
{
    const char *full = getenv("TAPEGRAD_FULL");
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
    return !full || strcmp(full, "0") != 0;
#else
    return full && strcmp(full, "1") == 0;
#endif
}

static void run_area(const char *area, tp_dtype compute)
{
    char area_folder[512], path[1024];
    struct dirent **entries;
    int cases = 0;

    fixture_find(area, area_folder, sizeof area_folder);
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    const bool large = compute == TP_F32 && is_affordable() && !device_is_emulated();
    const int n = scandir(area_folder, &entries, NULL, alphasort);
    const parity_opts o = { .D = D, .compute = compute, .large = large };
    for (int i = 0; i < n; i++) {
        parity_result r;
        if (is_case(entries[i]->d_name)) {
            snprintf(path, sizeof path, "%s/%s", area_folder, entries[i]->d_name);
            const int result = parity_run(&r, path, &o);
            cr_expect(result <= 0, "%s in %s: %s", path, tp_dtype_name(compute), r.why);
            cases += result == 0;
        }
        free(entries[i]);
    }
    free(entries);
    tp_device_close(D);
    cr_expect(cases > 0, "%s holds no case that could be run", area_folder);
}

Test(fixtures, lm_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("lm", TP_F64);
}

Test(fixtures, lm_f32)
{
    run_area("lm", TP_F32);
}

Test(fixtures, lm_bf16)
{
    run_area("lm", TP_BF16);
}

Test(fixtures, lsla_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("lsla", TP_F64);
}

Test(fixtures, lsla_f32)
{
    run_area("lsla", TP_F32);
}

Test(fixtures, lsla_bf16)
{
    run_area("lsla", TP_BF16);
}

Test(fixtures, cvt_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("cvt", TP_F64);
}

Test(fixtures, cvt_f32)
{
    run_area("cvt", TP_F32);
}

Test(fixtures, cvt_bf16)
{
    run_area("cvt", TP_BF16);
}

Test(fixtures, vil_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("vil", TP_F64);
}

Test(fixtures, vil_f32)
{
    run_area("vil", TP_F32);
}

Test(fixtures, window_baselines_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("window_baselines", TP_F64);
}

Test(fixtures, window_baselines_f32)
{
    run_area("window_baselines", TP_F32);
}

Test(fixtures, lra_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("lra", TP_F64);
}

Test(fixtures, lra_f32)
{
    run_area("lra", TP_F32);
}

Test(fixtures, lra_bf16)
{
    run_area("lra", TP_BF16);
}

Test(fixtures, roberta_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("roberta", TP_F64);
}

Test(fixtures, roberta_f32)
{
    run_area("roberta", TP_F32);
}

Test(fixtures, roberta_bf16)
{
    run_area("roberta", TP_BF16);
}

Test(fixtures, image_baselines_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("image_baselines", TP_F64);
}

Test(fixtures, image_baselines_f32)
{
    run_area("image_baselines", TP_F32);
}

/* The area has models that are not built, too. */
Test(fixtures, image_more)
{
    static const char *const cases[] = { "deit_ln_reduced", "deit_ln_reduced_avg" };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    for (int i = 0; i < 4; i++) {
        const parity_opts o = { .D = D, .compute = i < 2 ? TP_F32 : TP_F64 };
        char name[128], path[1024];
        parity_result r;
        if (device_is_cuda() && o.compute == TP_F64) break;
        snprintf(name, sizeof name, "image_more/%s.safetensors", cases[i % 2]);
        fixture_find(name, path, sizeof path);
        cr_expect_eq(parity_run(&r, path, &o), 0, "%s: %s", name, r.why);
    }
    tp_device_close(D);
}

Test(fixtures, detection_f64)
{
    if (device_is_cuda()) cr_skip_test("CUDA devices have no f64");
    run_area("detection", TP_F64);
}

Test(fixtures, detection_f32)
{
    run_area("detection", TP_F32);
}

/* ---- refusals ---- */

typedef struct planted {
    const char *file;
    parity_change change; /* a change of the metadata */
    const char *why;      /* part of the message */
} planted;

/* One mistake for each way to read and to compare a value. */
static const planted mistakes[] = {
    { "lm/attn_r1_basic",
      { "novelty", "1" },
      "metadata novelty = '1': this kind does not read it" },
    { "lm/attn_r1_basic", { "kind", "lm.attentions" }, "unknown kind of case 'lm.attentions'" },
    { "lm/attn_r1_basic", { "kind", NULL }, "the metadata lack 'kind'" },
    { "lm/attn_r1_basic", { "B", "3" }, "metadata B = '3': the case's tensors say 2" },
    { "lm/attn_r1_basic", { "M", "sixteen" }, "metadata M = 'sixteen' is not a whole number" },
    { "lm/attn_r1_basic", { "n_head", "5" }, "does not divide into 5 heads" },
    { "lm/attn_r1_basic", { "n_head", "2" }, "has a different shape in the model" },
    { "lm/attn_r1_basic", { "use_bias", "2" }, "metadata use_bias = '2' is neither 0 nor 1" },
    { "lm/attn_r1_basic", { "use_bias", "1" }, "output.out: relative error" },
    { "lm/attn_r1_basic", { "clamp_len", "3" }, "input.pos_window: relative error" },
    { "lm/attn_r1_basic",
      { "dropout", "0.1" },
      "metadata dropout = 0.1: the library only supports 0" },
    { "lm/attn_r1_basic",
      { "zero_grads", "dconv_1.bias r_net.weight" },
      "zero_grads names grad.r_net.weight, which reaches" },
    { "lm/attn_r1_basic",
      { "zero_grads", "dconv_2.bias" },
      "names dconv_2.bias, which is not a parameter" },
    { "lm/attn_r1_basic",
      { "unused_params", "r_net.weight" },
      "r_net.weight, which has a gradient" },
    { "lm/attn_r1_basic", { "mode", "test" }, "metadata mode = 'test' is not one of train, eval" },
    { "lm/model_padded_last", { "segment_lengths", "16,16" }, "the case has 3 segments" },
    { "lm/model_padded_last", { "segment_lengths", "16,16,12" }, "segment 2 has 10 tokens" },
    { "lm/model_padded_last", { "loss_segment", "1" }, "output.loss: relative error" },
    { "lm/trace_ls_adam", { "betas", "0.9" }, "betas must be two numbers from 0 to 1" },
    { "lm/trace_ls_adam", { "eps", "1e-7" }, "output.loss: absolute error" },
    { "lm/data_text8_style", { "train_steps", "12" }, "the case's tensors say 13" },
    { "cvt/cvt_attn_cls_train", { "dim", NULL }, "the metadata lack 'dim'" },
    { "cvt/cvt_attn_cls_train", { "cls", "0" }, "metadata cls = '0': the case's tensors say 1" },
    { "cvt/cvt_attn_cls_train", { "scale", "head_dim**-0.5" }, "output.y: relative error" },
    { "cvt/cvt_attn_cls_train", { "stride_q", "2" }, "the library only supports 1" },
    { "cvt/cvt_attn_cls_train", { "bn_eps", "1e-4" }, "the library only supports 1e-05" },
    { "cvt/cvt_attn_cls_train", { "heads", NULL }, "the metadata lack 'heads'" },
    { "cvt/full_cvt13_224", { "param_count", "19997481" }, "the case's tensors say 19997480" },
    { "cvt/full_cvt13_224", { "model", "CvT-14" }, "the library has no cvt with that name" },
    { "vil/optim_qhm_nu1", { "lr_per_step", "0.1,0.08,x" }, "is not a list of numbers" },
    { "vil/optim_qhm_nu1", { "lr_per_step", "0.1,0.08,0.05" }, "3 rates for 4 steps" },
    { "vil/optim_qhm_nu1", { "options", "{" }, "metadata options" },
    { "vil/optim_qhm_nu1",
      { "options", "{\"nu\": 1}" },
      "metadata options: this kind does not read 'nu'" },
    { "vil/optim_qhm_nu1",
      { "options", "{\"momentum\": 0.8}" },
      "output.step0.0.0: relative error" },
    { "vil/vilattn_shift6_cyclic_pad_rpb_g2",
      { "drawn_modes", NULL },
      "0 shifts for 1 attentions" },
    { "vil/ls_w2_r2_g0_rpb", { "window_w", "2147483647" }, "is not a whole number from 0 to" },
    { "lm/txl_model_eval_samelen_clamp",
      { "n_layer", "2147483647" },
      "n_layer = 2147483647 must be 1 to 128" },
    { "vil/performer_b2", { "tokens", "14" }, "metadata tokens = '14': the case's tensors say" },
    { "lsla/aug_image_ops", { "arg.rotate", NULL }, "rotate takes 1 numbers" },
    { "lsla/aug_image_ops", { "arg.posterize_3", "3" }, "this kind does not read it" },
    { "lsla/aug_image_ops", { "arg.invert", "1" }, "arg.invert = '1': there are no arguments" },
    { "lsla/aug_image_ops", { "arg.solarize_add", "99,120" }, "output.solarize_add: element" },
    { "lm/model_padded_last", { "segment_lengths", "" }, "is not a list of numbers" },
    { "image_baselines/vit_block", { "heads", "4" }, "output.y: relative error" },
    { "image_baselines/vit_attention", { "tokens", "8" }, "the case's tensors say 7" },
    { "image_baselines/pvt_block", { "sr_ratio", "1" }, "the model has no such parameter" },
    { "image_baselines/resnet_bottleneck_eval", { "downsample", "1" }, "tensors say 0" },
    { "image_baselines/full_deit_s_224",
      { "preset", "deit_m" },
      "preset = 'deit_m': the library has no model with that name" },
    { "image_baselines/full_deit_s_224",
      { "preset", "ls_lm-tiny-enwik8" },
      "the library has no model with that name" },
    { "image_baselines/resnet_bottleneck_eval",
      { "block", "BasicBlock" },
      "the library only supports Bottleneck" },
    { "window_baselines/swin_merge", { "dim", NULL }, "the metadata lack 'dim'" },
    { "window_baselines/swin_merge", { "dim", "0" }, "is not a whole number from 1" },
    { "window_baselines/swin_patch_embed", { "patch", "8" }, "the library only supports 4" },
    { "window_baselines/coat_patch_embed", { "param_prefix", "pe" }, "does not end with a dot" },
    { "image_baselines/mixup_cutmix", { "cutmix_box", "0,6,4,13" }, "the box is 0,6,4,14" },
    { "lsla/recipe_mix", { "cutmix_box", "0,4,5,11" }, "the box is 0,4,5,10" },
    { "lra/attn_ls_w4_r3_cls", { "window_size", "8" }, "output.y: relative error" },
    { "lra/attn_ls_w4_r3_cls",
      { "window_size", "5" },
      "24 tokens are no multiple of the window 5" },
    { "lra/attn_ls_w4_r3_cls", { "lengths", "24,12,5" }, "sequence 1 has 13 tokens, not 12" },
    { "lra/attn_softmax", { "attention", "softmaxx" }, "the library has no such attention" },
    { "lra/enc_ls_clstoken", { "cls_last_layer", "1" }, "a model has at most one CLS" },
    { "roberta/roberta_cls",
      { "max_position_embeddings", "21" },
      "has a different shape in the model" },
    { "roberta/roberta_cls", { "lengths", "18,11,6" }, "sequence 2 has 5 tokens, not 6" },
    { "roberta/roberta_longformer_cls", { "longformer_window", "8" }, "relative error" },
    { "roberta/roberta_longformer_cls", { "globals", "[[0], [0]]" }, "for each of 3 sequences" },
    { "roberta/longformer_attn",
      { "globals", "[[0], [0, 6], [0, 1, 2]]" },
      "input.attention differs" },
    { "roberta/roberta_ls_mlm", { "dual_ln", "0" }, "the model has no such parameter" },
    { "lra/enc_softmax_clspool", { "max_seq_len", "18" }, "has a different shape in the model" },
};

Test(fixtures, mistakes_in_metadata_are_refused)
{
    device_cpu_only();
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const planted *m = &mistakes[i];
        const bool full = strstr(m->file, "/full_") != NULL;
        const parity_opts o = {
            .D = D, .compute = full ? TP_F32 : TP_F64, .large = true, .change = &m->change
        };
        char path[1024];
        parity_result r;
        snprintf(path, sizeof path, TP_SOURCE_DIR "/tests/fixtures/%s.safetensors", m->file);
        const int result = parity_run(&r, path, &o);
        const char *to = m->change.value ? m->change.value : "none";
        cr_expect(result == 1, "%s: %s = %s is accepted", m->file, m->change.key, to);
        cr_expect(strstr(r.why, m->why), "%s: %s = %s: %s", m->file, m->change.key, to, r.why);
    }
    tp_device_close(D);
}

/* An uncompared tensor is a failure, and so is a missing one. */
Test(fixtures, tensors_too_many_or_too_few_are_refused, .init = make_folder, .fini = remove_folder)
{
    static const struct {
        const char *left_out, *twice, *name, *why;
    } cases[] = {
        { "", "output.out", "output.scores", "output.scores was not compared" },
        { "", "grad.r_net.weight", "grad.r_net.bias",
          "grad.r_net.bias: the model has no such parameter" },
        { "", "input.probe", "input.other", "input.other was not compared" },
        { "input.h", "", "", "the file has no tensor input.h" },
        { "output grad input.p", "", "", "the case has nothing to compare" },
        { "input.probe", "", "", "was not compared with anything" },
        { "param.r_net.weight", "", "", "the file has no tensor param.r_net.weight" },
        { "param.dconv_1.bias", "", "", "the file has no tensor param.dconv_1.bias" },
        { "param.r_net.weight grad", "", "", "relative error" },
        { "input.pos", "", "", "" },
        { "grad input.probe", "", "", "" },
    };
    const char *path = TP_SOURCE_DIR "/tests/fixtures/lm/attn_r1_basic.safetensors";
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const parity_opts o = { .D = D, .compute = TP_F32 };
        parity_result r;
        const char *copy = in_folder("case.safetensors");
        tp_file *F = tp_file_open(path);
        const tp_file_tensor *twice = tp_file_find(F, cases[i].twice);
        tp_writer *W = fixture_copy(F, copy, NULL, NULL, cases[i].left_out);
        if (twice) fixture_copy_tensor(F, W, twice, cases[i].name);
        fixture_commit(F, W);
        const int result = parity_run(&r, copy, &o);
        cr_expect(result == (*cases[i].why != '\0') && strstr(r.why, cases[i].why),
                  "without '%s', with '%s': %s", cases[i].left_out, cases[i].name, r.why);
    }
    tp_device_close(D);
}

/* zero_grads may be absent: the specification names the values that f32 cannot reproduce. */
Test(fixtures, trace_without_zero_grads)
{
    const parity_change none = { "zero_grads", NULL };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    const parity_opts o = { .D = D, .compute = TP_F32, .change = &none };
    parity_result r;
    const char *path = TP_SOURCE_DIR "/tests/fixtures/lm/trace_ls_adam.safetensors";
    cr_expect(parity_run(&r, path, &o) == 0, "%s", r.why);
    tp_device_close(D);
}

/* Empty tensors are accepted only as parameters of absent global tokens. */
Test(fixtures, empty_tensors, .init = make_folder, .fini = remove_folder)
{
    static const char *const names[] = { "param.cls_pos_embed", "grad.cls_pos_embed",
                                         "output.scores" };
    const char *path = TP_SOURCE_DIR "/tests/fixtures/lm/attn_r1_basic.safetensors";
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    for (int k = 0; k < 3; k++) {
        const char *copy = in_folder("case.safetensors");
        tp_file *F = tp_file_open(path);
        tp_writer *W = fixture_copy(F, copy, NULL, NULL, "");
        parity_result r;
        tp_writer_add(W, names[k], TP_F32, TP_SHAPE(1, 0, 32), &(float){ 0 }, true);
        fixture_commit(F, W);
        const int result = parity_run(&r, copy, &(parity_opts){ .D = D, .compute = TP_F32 });
        cr_expect(result == (k == 2), "%s: %s", names[k], r.why);
    }
    tp_device_close(D);
}

static float *read_floats(tp_file *F, const char *name)
{
    const tp_file_tensor *t = tp_file_find(F, name);
    float *x = t ? malloc((size_t)t->numel * sizeof *x) : NULL;
    cr_assert(x && tp_file_read(F, t, TP_F32, x), "%s", tp_file_why(F));
    return x;
}

/* Copies a case without its gradients. The new probe is orthogonal to the output up to rounding;
 * output.loss is off by `off` times its terms' norm. */
static void copy_orthogonal(const char *from, const char *to, double off)
{
    tp_file *F = tp_file_open(from);
    tp_writer *W = fixture_copy(F, to, NULL, NULL, "grad output.loss input.probe");
    const tp_shape shape = tp_file_find(F, "output.out")->shape;
    const int64_t n = tp_file_find(F, "output.out")->numel;
    float *y = read_floats(F, "output.out"), *probe = read_floats(F, "input.probe");
    double product = 0, square = 0, loss = 0, terms = 0;

    for (int64_t i = 0; i < n; i++) {
        product += (double)y[i] * (double)probe[i];
        square += (double)y[i] * (double)y[i];
    }
    for (int64_t i = 0; i < n; i++) {
        probe[i] -= (float)(product / square * (double)y[i]);
        const double term = (double)y[i] * (double)probe[i];
        loss += term;
        terms += term * term;
    }
    const float stored = (float)(loss + off * sqrt(terms));
    tp_writer_add(W, "input.probe", TP_F32, shape, probe, true);
    tp_writer_add(W, "output.loss", TP_F32, TP_SHAPE(1), &stored, true);
    fixture_commit(F, W);
    free(y);
    free(probe);
}

/* When the terms of a sum cancel, the tolerance is relative to the terms. */
Test(fixtures, loss_of_terms_that_cancel, .init = make_folder, .fini = remove_folder)
{
    const char *path = TP_SOURCE_DIR "/tests/fixtures/lm/attn_r1_basic.safetensors";
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    for (int k = 0; k < 2; k++) {
        const char *copy = in_folder("case.safetensors");
        parity_result r;
        copy_orthogonal(path, copy, k ? 1e-3 : 0.0);
        const int result = parity_run(&r, copy, &(parity_opts){ .D = D, .compute = TP_F32 });
        cr_expect(result == k, "%d: %s", k, r.why);
        cr_expect(k == 0 || strstr(r.why, "output.loss: absolute error"), "%s", r.why);
    }
    tp_device_close(D);
}
