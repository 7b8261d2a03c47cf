/* test_cvt.c - CvT, CvT* and CvT*-LS through the public interface: counts, costs, initial values,
 * drop path, resolutions, recomputation, configurations in files, weights of another resolution. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/cvt.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/models.h"

typedef enum cvt_name {
    CVT_13,
    CVT_21,
    CVT_W24,
    CVT_STAR_13,
    CVT_STAR_21,
    CVT_LS_13,
    CVT_LS_17,
    CVT_LS_21,
    CVT_LS_21S
} cvt_name;

/* The paper's model for images of size x size. */
static tp_cvt_cfg preset(cvt_name which, int64_t size)
{
    static const char *const names[] = { "cvt-13",      "cvt-21",      "cvt-w24",
                                         "cvt_star-13", "cvt_star-21", "cvt_ls-13",
                                         "cvt_ls-17",   "cvt_ls-21",   "cvt_ls-21s" };
    char name[32];
    snprintf(name, sizeof name, "%s-%lld", names[which], (long long)size);
    const tp_model_cfg c = models_preset(name);
    return *(const tp_cvt_cfg *)&c.at;
}

static void init(tp_params *P, tp_cvt *m, tp_cvt_cfg c)
{
    tp_model_cvt.init(P, m, "", &c);
}

/* ---- counts and costs ---- */

static const struct published {
    cvt_name name;
    int64_t size, params;
    double macs, whole; /* whole: G, with 5 per LayerNorm or BatchNorm element; 0: not stated */
} published[] = {
    { CVT_13, 224, 19997480, 4566089216.0, 0 },
    { CVT_13, 384, 19997480, 16269359616.0, 0 },
    { CVT_21, 224, 31622696, 7177985024.0, 0 },
    { CVT_21, 384, 31622696, 24849091584.0, 0 },
    { CVT_STAR_13, 224, 20006184, 6625805824.0, 6.659 },
    { CVT_STAR_13, 384, 20006184, 30988122624.0, 31.087 },
    { CVT_STAR_21, 224, 31639464, 10079509504.0, 10.132 },
    { CVT_STAR_21, 384, 31639464, 44820532224.0, 44.974 },
    { CVT_LS_13, 224, 20181304, 4909042176.0, 4.955 },
    { CVT_LS_17, 224, 23555544, 9706871296.0, 9.807 },
    { CVT_LS_21, 224, 31926184, 7827864576.0, 7.901 },
    { CVT_LS_21S, 224, 30767160, 11134936576.0, 11.246 },
    { CVT_LS_21, 384, 31926184, 23672982528.0, 23.886 },
    { CVT_LS_13, 384, 20181304, 14950365696.0, 15.086 },
    { CVT_LS_21, 448, 32115240, 34565049344.0, 34.856 },
    { CVT_LS_13, 448, 20296392, 0, 0 },
    { CVT_LS_17, 448, 23763272, 0, 0 },
    { CVT_LS_21S, 448, 31011848, 0, 0 },
};

Test(cvt, counts_and_costs)
{
    static tp_cvt m;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct published *w = &published[i];
        const tp_cvt_cfg cfg = preset(w->name, w->size);
        const tp_model_cfg c = tp_model_cfg_of(&tp_model_cvt, &cfg);
        const tp_cost f = tp_model_cost(&c, 0, 0);
        tp_params *P = tp_params_new(D, NULL);
        init(P, &m, cfg);
        cr_expect(tp_params_count(P) == w->params, "row %zu: %lld parameters %s", i,
                  (long long)tp_params_count(P), tp_params_why(P));
        if (w->macs > 0) cr_expect(f.paper == w->macs, "row %zu: %.0f multiply-adds", i, f.paper);
        const double whole = (f.paper + 5.0 * f.norm + 5.0 * f.batchnorm) / 1e9;
        if (w->whole > 0)
            cr_expect(fabs(whole - w->whole) < 6e-4, "row %zu: %.4f G operations", i, whole);
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* Bytes that a recorded forward pass keeps on a dry device. The image is small, since allocations
 * above 1 MiB round up to 2 MiB. */
static double kept(tp_cvt_cfg cfg, int64_t H, int64_t W)
{
    static tp_cvt m;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
    cfg.drop_path = 0.0;
    init(P, &m, cfg);
    tp_model_cvt.forward(T, &m, NULL, tp_full(T, TP_F32, TP_SHAPE(1, H, W, 3), 0.0));
    cr_assert(tp_ok(T), "%s", tp_why(T));
    const size_t first = tp_device_stats(D).live_bytes;
    tp_reset(T);
    const double bytes = (double)(first - tp_device_stats(D).live_bytes);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    return bytes;
}

Test(cvt, activation_memory)
{
    const cvt_name names[] = { CVT_13, CVT_STAR_13, CVT_LS_13, CVT_LS_21S };
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 5; k++) {
            tp_cvt_cfg c = preset(names[i], 224);
            c.recompute = k < 3 ? (tp_recompute)k : TP_RECOMPUTE_NONE;
            c.raw_kv = k == 3;
            c.mean_pool = k == 4;
            c.image[0] = 64;
            c.image[1] = 48;
            const tp_model_cfg of = tp_model_cfg_of(&tp_model_cvt, &c);
            const double want = tp_model_cost(&of, 0, 0).saved, got = kept(c, 64, 48);
            cr_expect(fabs(got / want - 1.0) < 0.03, "model %d, row %d: %g bytes, said %g", i, k,
                      got, want);
        }
}

/* ---- a small model of each family ---- */

static const cvt_name families[] = { CVT_13, CVT_STAR_13, CVT_LS_13 };
static const char *const family_names[] = { "CvT", "CvT*", "CvT*-LS" };

static tp_cvt_cfg small(cvt_name name)
{
    tp_cvt_cfg c = preset(name, 224);
    for (int s = 0; s < TP_CVT_STAGES; s++) {
        c.heads[s] = 1 + s;
        c.dim[s] = 8 * c.heads[s];
        c.blocks[s] = 2;
        c.rank[s] = 3;
        c.window[s] = 4 >> s;
    }
    c.classes = 5;
    return c;
}

/* Host values of images: ramps and a wave, so that no two pixels are alike. */
static float *pixels(int64_t count)
{
    float *x = malloc((size_t)count * sizeof *x);
    cr_assert(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)sin(0.37 * (double)i + 1e-4 * (double)(i * i % 977));
    return x;
}

static tp_tensor images(tp_tape *T, int64_t n, int64_t H, int64_t W)
{
    float *x = pixels(n * H * W * 3);
    const tp_tensor y = tp_from(T, TP_F32, TP_SHAPE(n, H, W, 3), x);
    free(x);
    return y;
}

/* Moments of a parameter's values; *n = 0 if there is no such parameter. */
static void moments(tp_params *P, const char *name, double *mean, double *deviation, int64_t *n)
{
    const tp_tensor t = tp_find(P, name);
    *n = tp_given(t) ? tp_numel(t) : 0;
    *mean = *deviation = 0.0;
    if (!*n) return;
    double *x = malloc((size_t)*n * sizeof *x);
    cr_assert(x && tp_param_get(P, t, TP_F64, x, (size_t)*n * sizeof *x), "%s", tp_params_why(P));
    for (int64_t i = 0; i < *n; i++) *mean += x[i] / (double)*n;
    for (int64_t i = 0; i < *n; i++) *deviation += (x[i] - *mean) * (x[i] - *mean) / (double)*n;
    *deviation = sqrt(*deviation);
    free(x);
}

/* The standard deviation of uniform(-a, a) is a / sqrt 3. */
Test(cvt, initial_values)
{
    const struct {
        const char *name;
        cvt_name model;
        double mean, deviation;
    } rows[] = {
        { "stage2.blocks.0.attn.proj_q.weight", CVT_LS_13, 0, 0.02 },
        { "stage2.blocks.0.attn.proj_q.bias", CVT_LS_13, 0, 0 },
        { "stage2.blocks.0.attn.proj_p.weight", CVT_LS_13, 0, 0.02 },
        { "stage2.blocks.0.attn.proj.bias", CVT_LS_13, 0, 0 },
        { "stage2.blocks.0.mlp.fc1.weight", CVT_13, 0, 0.02 },
        { "stage2.blocks.0.mlp.fc1.bias", CVT_13, 0, 0 },
        { "stage2.blocks.0.attn.conv_proj_q.conv.weight", CVT_13, 0, 0.19245 },
        { "stage2.blocks.0.attn.conv_proj_q.conv.bias", CVT_LS_13, 0, 0.19245 },
        { "stage2.blocks.0.attn.conv_proj_k.bn.weight", CVT_13, 1, 0 },
        { "stage2.blocks.0.attn.conv_proj_k.bn.running_var", CVT_13, 1, 0 },
        { "stage2.patch_embed.proj.weight", CVT_13, 0, 0.013889 },
        { "stage2.patch_embed.proj.bias", CVT_13, 0, 0.013889 },
        { "stage2.cls_token", CVT_13, 0, 0.02 },
        { "stage2.cls_token", CVT_STAR_13, 0, 1.0 },
        { "head.weight", CVT_13, 0, 0.02 },
        { "head.bias", CVT_13, 0, 0.029463 },
        { "norm.weight", CVT_13, 1, 0 },
    };
    static tp_cvt m;
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *of[CVT_LS_21S + 1] = { NULL };
    for (int f = 0; f < 3; f++) {
        tp_cvt_cfg cfg = preset(families[f], 224);
        cfg.blocks[2] = 1;
        of[families[f]] = tp_params_new(D, &(tp_params_opts){ .seed = 7 });
        init(of[families[f]], &m, cfg);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double mean, deviation;
        int64_t n;
        moments(of[rows[i].model], rows[i].name, &mean, &deviation, &n);
        const double d = rows[i].deviation, near = 4.0 * d / sqrt((double)n + 1e-9) + 1e-12;
        cr_expect(n > 0 && fabs(mean - rows[i].mean) <= near && fabs(deviation - d) <= near,
                  "%s: %lld values of mean %g, deviation %g", rows[i].name, (long long)n, mean,
                  deviation);
    }
    for (int f = 0; f < 3; f++) tp_params_free(of[families[f]]);
    tp_device_close(D);
}

Test(cvt, drop_path_rates)
{
    static tp_cvt m;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    const struct {
        cvt_name model;
        int block;
        double rate;
    } rows[] = {
        { CVT_13, 0, 0 },         { CVT_13, 2, 0 },        { CVT_13, 3, 0 },
        { CVT_13, 6, 0.3 / 9.0 }, { CVT_13, 12, 0.1 },     { CVT_W24, 23, 0.3 },
        { CVT_STAR_13, 12, 0 },   { CVT_LS_13, 0, 0 },     { CVT_LS_13, 3, 0.025 },
        { CVT_LS_13, 12, 0.1 },   { CVT_LS_21S, 20, 0.1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_params *P = tp_params_new(D, NULL);
        init(P, &m, preset(rows[i].model, 224));
        cr_expect_float_eq(m.block[rows[i].block].drop_path, rows[i].rate, 1e-12, "row %zu", i);
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* ---- resolutions ---- */

Test(cvt, any_resolution)
{
    const int64_t sizes[][2] = { { 64, 64 }, { 33, 70 }, { 8, 3 }, { 100, 37 } };
    static tp_cvt m;
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    for (int f = 0; f < 3; f++)
        for (int pool = 0; pool < 2; pool++) {
            tp_cvt_cfg cfg = small(families[f]);
            cfg.mean_pool = pool == 1;
            tp_params *P = tp_params_new(D, NULL);
            tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .check_finite = true });
            init(P, &m, cfg);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                tp_reset(T);
                const tp_tensor y =
                    tp_model_cvt.forward(T, &m, NULL, images(T, 1, sizes[i][0], sizes[i][1]));
                tp_backward(T, tp_sum(T, y, TP_ALL));
                cr_expect(tp_ok(T) && tp_dim(y, 0) == 1 && tp_dim(y, 1) == 5,
                          "%s, pool %d, size %zu: %s", family_names[f], pool, i, tp_why(T));
            }
            tp_tape_free(T);
            tp_params_free(P);
        }
    tp_device_close(D);
}

Test(cvt, wrong_images)
{
    static tp_cvt m;
    const struct {
        tp_shape shape;
        const char *text;
    } rows[] = {
        { TP_SHAPE(1, 3, 32, 32), "channels last" },
        { TP_SHAPE(32, 32, 3), "channels last" },
        { TP_SHAPE(1, 2, 2, 3), "conv2d" },
    };
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    init(P, &m, small(CVT_LS_13));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_clear(T);
        tp_reset(T);
        tp_model_cvt.forward(T, &m, NULL, tp_full(T, TP_F32, rows[i].shape, 0.5));
        cr_expect(strstr(tp_why(T), rows[i].text), "row %zu: %s", i, tp_why(T));
    }
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- recomputation ---- */

typedef struct run {
    float *grad, *buffer;
    double loss;
    size_t n, buffers, peak;
} run;

static void copy_state(tp_params *P, run *r)
{
    const size_t room = (size_t)tp_params_count(P) + 100000;
    r->grad = calloc(room, sizeof(float));
    r->buffer = calloc(room, sizeof(float));
    cr_assert(r->grad && r->buffer);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const size_t n = (size_t)tp_numel(it.tensor), bytes = n * sizeof(float);
        if (it.dtype != TP_F32) continue;
        if (it.buffer) {
            cr_assert(tp_param_get(P, it.tensor, TP_F32, r->buffer + r->buffers, bytes));
            r->buffers += n;
        } else {
            cr_assert(tp_param_get_grad(P, it.tensor, TP_F32, r->grad + r->n, bytes), "%s: %s",
                      it.name, tp_params_why(P));
            r->n += n;
        }
    }
}

static run train(tp_cvt_cfg cfg, tp_recompute mode, tp_dtype compute)
{
    static tp_cvt m;
    run r = { 0 };
    const int64_t labels[] = { 3, 1 };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 5, .train = true, .compute = compute });

    cfg.recompute = mode;
    init(P, &m, cfg);
    const tp_tensor logits = tp_model_cvt.forward(T, &m, NULL, images(T, 2, 64, 48));
    const tp_tensor y = tp_from(T, TP_I64, TP_SHAPE(2), labels);
    const tp_tensor loss = tp_cross_entropy(T, logits, y, TP_MEAN);
    r.loss = tp_item(T, loss);
    tp_backward(T, loss);
    cr_assert(tp_ok(T), "%s", tp_why(T));
    r.peak = tp_device_stats(D).peak_bytes;
    copy_state(P, &r);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    return r;
}

static void free_run(run *r)
{
    free(r->grad);
    free(r->buffer);
}

/* Recomputation gives the same bits in loss, gradients and running statistics in less memory. */
Test(cvt, recomputed_blocks)
{
    for (int f = 0; f < 3; f++) {
        tp_cvt_cfg cfg = small(families[f]);
        cfg.drop_path = 0.5;
        run plain = train(cfg, TP_RECOMPUTE_NONE, TP_F32);
        for (int mode = TP_RECOMPUTE_ATTENTION; mode <= TP_RECOMPUTE_BLOCK; mode++) {
            run r = train(cfg, (tp_recompute)mode, TP_F32);
            cr_expect(r.loss == plain.loss, "%s, mode %d: loss", family_names[f], mode);
            cr_expect(memcmp(r.grad, plain.grad, plain.n * sizeof(float)) == 0,
                      "%s, mode %d: gradients", family_names[f], mode);
            cr_expect(memcmp(r.buffer, plain.buffer, plain.buffers * sizeof(float)) == 0,
                      "%s, mode %d: running statistics", family_names[f], mode);
            cr_expect(r.peak < plain.peak, "%s, mode %d: %zu bytes, %zu without", family_names[f],
                      mode, r.peak, plain.peak);
            free_run(&r);
        }
        free_run(&plain);
    }
}

static double norm_of(const float *x, size_t n)
{
    double s = 0.0;
    for (size_t i = 0; i < n; i++) s += (double)x[i] * (double)x[i];
    return sqrt(s);
}

Test(cvt, bf16_follows_f32)
{
    for (int f = 0; f < 3; f++) {
        run full = train(small(families[f]), TP_RECOMPUTE_NONE, TP_F32);
        run half = train(small(families[f]), TP_RECOMPUTE_NONE, TP_BF16);
        const double a = norm_of(full.grad, full.n), b = norm_of(half.grad, half.n);
        cr_expect(fabs(half.loss - full.loss) < 0.03 * full.loss && half.loss != full.loss,
                  "%s: loss %g in bf16, %g in f32", family_names[f], half.loss, full.loss);
        cr_expect(fabs(b - a) < 0.05 * a, "%s: norm %g in bf16, %g in f32", family_names[f], b, a);
        free_run(&full);
        free_run(&half);
    }
}

/* ---- configurations ---- */

Test(cvt, impossible_configurations)
{
    static tp_cvt m;
    tp_cvt_cfg rows[12];
    static const char *const texts[] = { "dims = 8,0,24: each must be 1 to 1048576",
                                         "16 of stage 1 does not divide into 3 heads",
                                         "heads = 1,2,0: each must be 1",
                                         "depth = -1,2,2: each must be 0 to 64",
                                         "66 blocks",
                                         "a window of 0",
                                         "heads of rank 0",
                                         "rank 1099511627776",
                                         "num_classes = 0 must be 1 to 1048576",
                                         "needs all of them",
                                         "drop_path must be in [0,1), not 1",
                                         "standard deviation nan" };
    for (int i = 0; i < 12; i++) rows[i] = small(CVT_LS_13);
    rows[0].dim[1] = 0;
    rows[1].heads[1] = 3;
    rows[2].heads[2] = 0;
    rows[3].blocks[0] = -1;
    rows[4].blocks[2] = 62;
    rows[5].window[2] = 0;
    rows[6].rank[0] = 0;
    rows[7].rank[0] = INT64_C(1) << 40;
    rows[8].classes = 0;
    rows[9].kv_stride = 2;
    rows[10].drop_path = 1.0;
    rows[11].class_std = (double)NAN;
    tp_device *D = tp_device_open("cpu", NULL);
    for (int i = 0; i < 12; i++) {
        tp_params *P = tp_params_new(D, NULL);
        init(P, &m, rows[i]);
        cr_expect(strstr(tp_params_why(P), texts[i]), "row %d: %s", i, tp_params_why(P));
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* Writes cfg to a file and reads it back. `value` replaces key's; NULL omits the key. */
static bool through_file(const tp_cvt_cfg *cfg, const char *key, const char *value,
                         tp_cvt_cfg *back, char *why, size_t size)
{
    const char *k, *v;
    tp_writer *W = tp_writer_new(in_folder("a.safetensors"));
    tp_writer *V = tp_writer_new(in_folder("b.safetensors"));
    tp_model_write_cfg(&tp_model_cvt, cfg, W);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(in_folder("a.safetensors"));
    for (int i = 0; tp_file_meta_at(F, i, &k, &v); i++) {
        const bool changed = key && strcmp(k, key) == 0;
        if (!changed || value) tp_writer_meta(V, k, changed ? value : v);
    }
    cr_assert(tp_writer_commit(V), "%s", tp_writer_why(V));
    tp_writer_free(V);
    tp_file_close(F);
    F = tp_file_open(in_folder("b.safetensors"));
    const bool ok = tp_model_read_cfg(&tp_model_cvt, back, F, why, size);
    tp_file_close(F);
    return ok;
}

Test(cvt, configurations_in_files, .init = make_folder, .fini = remove_folder)
{
    for (int name = CVT_13; name <= CVT_LS_21S; name++) {
        char why[256] = "";
        tp_cvt_cfg c = preset((cvt_name)name, 448), d;
        c.drop_path = 0.1 + 0.2;
        c.classes = 10 + name;
        c.raw_kv = c.mean_pool = name % 2 == 0;
        c.biased_ws = !c.raw_kv;
        cr_expect(through_file(&c, NULL, NULL, &d, why, sizeof why), "preset %d: %s", name, why);
        cr_expect(memcmp(c.dim, d.dim, sizeof c.dim) == 0 &&
                      memcmp(c.heads, d.heads, sizeof c.heads) == 0 &&
                      memcmp(c.blocks, d.blocks, sizeof c.blocks) == 0 &&
                      memcmp(c.rank, d.rank, sizeof c.rank) == 0 &&
                      memcmp(c.window, d.window, sizeof c.window) == 0,
                  "preset %d: a list", name);
        cr_expect(c.classes == d.classes && c.kv_stride == d.kv_stride &&
                      c.class_std == d.class_std && c.drop_path == d.drop_path,
                  "preset %d: a number", name);
        cr_expect(c.long_short == d.long_short && c.conv_bias == d.conv_bias &&
                      c.wide_scale == d.wide_scale && c.quick_gelu == d.quick_gelu &&
                      c.raw_class == d.raw_class && c.single_proj == d.single_proj &&
                      c.raw_kv == d.raw_kv && c.biased_ws == d.biased_ws &&
                      c.mean_pool == d.mean_pool && c.drop_last_stage == d.drop_last_stage,
                  "preset %d: a switch", name);
    }
}

Test(cvt, broken_configurations_in_files, .init = make_folder, .fini = remove_folder)
{
    const struct {
        const char *key, *value, *text;
    } rows[] = {
        { "model", NULL, "no model configuration" },
        { "model", "vit", "another model" },
        { "dims", NULL, "lacks 'dims'" },
        { "dims", "64,192", "out of range" },
        { "dims", "64,192,384,1", "out of range" },
        { "dims", "64,192,99999999999999999999", "out of range" },
        { "depth", "1,-2,3", "out of range" },
        { "raw_class", "2", "out of range" },
        { "num_classes", "x", "num_classes" },
        { "drop_path", "nan", "drop_path" },
        { "heads", "1,5,6", "does not divide" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[256] = "";
        tp_cvt_cfg c = preset(CVT_LS_13, 224), d;
        cr_expect(!through_file(&c, rows[i].key, rows[i].value, &d, why, sizeof why),
                  "row %zu accepted", i);
        cr_expect(strstr(why, rows[i].text), "row %zu: '%s' has no '%s'", i, why, rows[i].text);
    }
}

/* ---- weights of another resolution ---- */

static double *values(tp_params *P, const char *name, int64_t *n)
{
    const tp_tensor t = tp_find(P, name);
    *n = tp_numel(t);
    double *x = malloc((size_t)*n * sizeof *x);
    cr_assert(x && tp_given(t) && tp_param_get(P, t, TP_F64, x, (size_t)*n * sizeof *x), "%s",
              name);
    return x;
}

static const char p_weight[] = "stage1.blocks.1.attn.proj_p.weight";
static const char p_bias[] = "stage1.blocks.1.attn.proj_p.bias";

/* Row (head, i) of rank 2r is its initial value plus row (head, i / 2) of rank r. */
Test(cvt, weights_for_a_larger_rank, .init = make_folder, .fini = remove_folder)
{
    static tp_cvt a, b;
    const char *const names[] = { p_weight, p_bias, "stage0.blocks.0.attn.proj_q.weight",
                                  "stage2.blocks.1.attn.conv_proj_k.bn.running_var" };
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_params *Q = tp_params_new(D, &(tp_params_opts){ .seed = 2 });
    tp_cvt_cfg cfg = small(CVT_LS_13);
    init(P, &a, cfg);
    for (int s = 0; s < TP_CVT_STAGES; s++) cfg.rank[s] *= 2;
    init(Q, &b, cfg);
    cr_assert(tp_save(P, in_folder("w.safetensors")), "%s", tp_params_why(P));
    double *old[4], *born[4], *now[4];
    int64_t n[4], m[4];
    for (int i = 0; i < 4; i++) born[i] = values(Q, names[i], &m[i]);
    cr_assert(models_load(&tp_model_cvt, Q, &b, in_folder("w.safetensors")), "%s",
              tp_params_why(Q));
    for (int i = 0; i < 4; i++) {
        old[i] = values(P, names[i], &n[i]);
        now[i] = values(Q, names[i], &m[i]);
        const int64_t columns = i == 0 ? cfg.dim[1] : 1;
        cr_expect(m[i] == n[i] * (i < 2 ? 2 : 1), "%s", names[i]);
        for (int64_t k = 0; k < m[i]; k++) {
            const int64_t from = i < 2 ? k / columns / 2 * columns + k % columns : k;
            const double want = i < 2 ? old[i][from] + born[i][k] : old[i][k];
            cr_assert(fabs(now[i][k] - want) < 1e-7, "%s: value %lld is %g, not %g", names[i],
                      (long long)k, now[i][k], want);
        }
        free(old[i]);
        free(born[i]);
        free(now[i]);
    }
    tp_params_free(P);
    tp_params_free(Q);
    tp_device_close(D);
}

/* A rank that is not a multiple, or any other difference, is refused without changing values. */
Test(cvt, weights_that_do_not_fit, .init = make_folder, .fini = remove_folder)
{
    static tp_cvt a, b;
    const struct {
        int64_t rank, classes;
        const char *text;
    } rows[] = { { 4, 5, "proj_p.weight" },
                 { 2, 5, "proj_p.weight" },
                 { 6, 7, "of another shape" },
                 { 3, 7, "head.weight" } };
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, NULL);
    init(P, &a, small(CVT_LS_13));
    cr_assert(tp_save(P, in_folder("w.safetensors")), "%s", tp_params_why(P));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_cvt_cfg cfg = small(CVT_LS_13);
        for (int s = 0; s < TP_CVT_STAGES; s++) cfg.rank[s] = rows[i].rank;
        cfg.classes = rows[i].classes;
        tp_params *Q = tp_params_new(D, NULL);
        init(Q, &b, cfg);
        cr_expect(!models_load(&tp_model_cvt, Q, &b, in_folder("w.safetensors")),
                  "row %zu accepted", i);
        cr_expect(strstr(tp_params_why(Q), rows[i].text), "row %zu: %s", i, tp_params_why(Q));
        tp_params_free(Q);
    }
    tp_params_free(P);
    tp_device_close(D);
}
