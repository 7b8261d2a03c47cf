/* test_published.c - weights in other programs' checkpoints: finds their prefix, takes no other
 * tensors for them, resizes tables, and refuses files of other models. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/vision.h>

#include "support/folder.h"
#include "support/published.h"

TestSuite(published, .init = make_folder, .fini = remove_folder);

typedef struct trial {
    tp_device *D;
    tp_params *P;
    tp_net *N;
} trial;

static trial begin(uint64_t seed)
{
    char why[256];
    tp_model_cfg cfg;
    cr_assert(tp_model_preset(&cfg, "tiny", why, sizeof why), "%s", why);
    tp_common_cfg o = tp_model_get(&cfg);
    o.image[0] = o.image[1] = 16;
    o.outputs = 3;
    tp_model_set(&cfg, &o);
    trial t = { .D = tp_device_open("cpu", NULL) };
    t.P = tp_params_new(t.D, &(tp_params_opts){ .seed = seed });
    t.N = tp_net_new(t.P, "", &cfg);
    cr_assert(tp_params_ok(t.P), "%s", tp_params_why(t.P));
    return t;
}

static void end(trial *t)
{
    tp_net_free(t->N);
    tp_params_free(t->P);
    tp_device_close(t->D);
}

/* Adds all of P under a prefix, values times `scale`, except for the tensor `without`. */
static void add(tp_writer *W, tp_params *P, const char *prefix, double scale, const char *without)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const tp_dtype dt = it.dtype == TP_I64 ? TP_I64 : TP_F64;
        const size_t n = (size_t)tp_numel(it.tensor);
        char name[256];
        if (it.alias_of || (without && strcmp(it.name, without) == 0)) continue;
        double *x = malloc(n * sizeof *x); /* of doubles or of int64 */
        cr_assert(tp_param_get(P, it.tensor, dt, x, n * sizeof *x), "%s", tp_params_why(P));
        for (size_t i = 0; dt == TP_F64 && i < n; i++) x[i] *= scale;
        snprintf(name, sizeof name, "%s%s", prefix, it.name);
        tp_writer_add(W, name, dt, it.shape, x, true);
        free(x);
    }
}

static double first_weight(tp_params *P)
{
    double x[16 * 3 * 3 * 3];
    cr_assert(tp_param_get(P, tp_find(P, "conv.0.weight"), TP_F64, x, sizeof x), "%s",
              tp_params_why(P));
    return x[0];
}

/* Commits W and loads its file into a model with other values; returns the error or "". */
static char why[2048];
static double load(tp_writer *W)
{
    trial t = begin(2);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    const bool loaded = tp_net_load(t.P, t.N, F, false);
    snprintf(why, sizeof why, "%s", tp_params_why(t.P));
    cr_expect_eq(loaded, !*why);
    const double x = *why ? 0.0 : first_weight(t.P);
    tp_file_close(F);
    end(&t);
    return x;
}

Test(published, any_prefix_is_found)
{
    static const char *const prefixes[] = { "", "model.", "state_dict.module.", "net.", "x.y.z." };
    trial t = begin(1);
    const double is = first_weight(t.P);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        tp_writer *W = published_file();
        add(W, t.P, prefixes[i], 1.0, NULL);
        cr_expect_eq(load(W), is, "'%s': %s", prefixes[i], why);
    }
    end(&t);
}

Test(published, averages_are_taken_only_if_there_is_nothing_else)
{
    trial t = begin(1);
    const double is = first_weight(t.P);
    tp_writer *W = published_file();
    add(W, t.P, "model_ema.", 2.0, NULL);
    add(W, t.P, "model.module.", 1.0, NULL); /* a longer name */
    cr_expect_eq(load(W), is, "%s", why);
    W = published_file();
    add(W, t.P, "model_ema.", 2.0, NULL);
    cr_expect_eq(load(W), 2.0 * is, "%s", why);
    end(&t);
}

/* A missing weight is refused, though other tensors of those names are complete. */
Test(published, nothing_stands_in_for_a_missing_weight)
{
    trial t = begin(1);
    tp_writer *W = published_file();
    add(W, t.P, "", 1.0, "head.bias");
    add(W, t.P, "optim.m.", 3.0, NULL);
    add(W, t.P, "ema.", 2.0, NULL);
    load(W);
    cr_expect(strstr(why, "missing: head.bias"), "%s", why);
    W = published_file();
    add(W, t.P, "model.", 1.0, "head.bias");
    add(W, t.P, "model_ema.", 2.0, NULL);
    load(W);
    cr_expect(strstr(why, "missing: head.bias"), "%s", why);
    end(&t);
}

Test(published, index_tables_are_skipped_and_other_extras_named)
{
    static const int64_t index[4];
    trial t = begin(1);
    const double is = first_weight(t.P);
    tp_writer *W = published_file();
    add(W, t.P, "model.", 1.0, NULL);
    tp_writer_add(W, "model.a.relative_position_index", TP_I64, TP_SHAPE(2, 2), index, false);
    cr_expect_eq(load(W), is, "%s", why);
    W = published_file();
    add(W, t.P, "model.", 1.0, NULL);
    tp_writer_add(W, "model.a.other", TP_I64, TP_SHAPE(2, 2), index, false);
    load(W);
    cr_expect(strstr(why, "unknown: a.other"), "%s", why);
    end(&t);
}

Test(published, entering_a_prefix)
{
    trial t = begin(1);
    tp_writer *W = published_file();
    add(W, t.P, "model.", 1.0, NULL);
    add(W, t.P, "other.", 2.0, NULL);
    cr_assert(tp_writer_commit(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    const int all = tp_file_count(F);
    cr_expect(tp_file_enter(F, "other."), "%s", tp_file_why(F));
    cr_expect_eq(tp_file_count(F), all / 2);
    cr_expect(tp_file_find(F, "head.bias") && !tp_file_find(F, "model.head.bias"));
    cr_expect(tp_file_verify(F), "%s", tp_file_why(F));
    cr_expect_not(tp_file_enter(F, "none."));
    cr_expect(strstr(tp_file_why(F), "begins with 'none.'"), "%s", tp_file_why(F));
    cr_expect_eq(tp_file_count(F), 0);
    cr_expect_not(tp_file_enter(NULL, "none."));
    tp_file_close(F);
    end(&t);
}

static const char *same_name(const tp_file_tensor *t, void *env)
{
    return strcmp(t->name, "b") == 0 ? env : t->name;
}

Test(published, renaming_tensors)
{
    static const float x[2] = { 1, 2 };
    char name[8] = "c";
    tp_writer *W = published_file();
    tp_writer_add(W, "a", TP_F32, TP_SHAPE(1), x, false);
    tp_writer_add(W, "b", TP_F32, TP_SHAPE(1), x + 1, false);
    cr_assert(tp_writer_commit(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    cr_assert(tp_file_rename(F, same_name, name), "%s", tp_file_why(F));
    float y = 0;
    cr_expect(tp_file_find(F, "c") && !tp_file_find(F, "b"));
    cr_expect(tp_file_read(F, tp_file_find(F, "c"), TP_F32, &y) && y == 2.0f);
    cr_expect_not(tp_file_rename(NULL, same_name, name));
    tp_file_close(F);
    F = tp_file_open(in_folder("w.safetensors"));
    strcpy(name, "a");
    cr_expect_not(tp_file_rename(F, same_name, name));
    cr_expect(strstr(tp_file_why(F), "has two tensors 'a': so 'a' and 'b' are called"), "%s",
              tp_file_why(F));
    tp_file_close(F);
}

/* ---- other resolutions ---- */

/* Tables are resized, but every other difference is refused and named. */
Test(published, resizing_refuses_other_differences)
{
    char text[4096];
    tp_device *D = tp_device_open("cpu", NULL);
    tp_model_cfg cfg, other;
    tp_net *N, *M;
    cr_assert(tp_model_preset(&cfg, "vil-small", why, sizeof why), "%s", why);
    other = cfg;
    tp_common_cfg o = tp_model_get(&other);
    o.image[0] = 96;
    tp_model_set(&other, &o);
    ((tp_vil_cfg *)&other.at)->image[1] = 96;
    tp_params *P = published_params(&cfg, D, &N);
    cr_assert(tp_save(P, in_folder("w.safetensors")), "%s", tp_params_why(P));

    tp_params *Q = published_params(&other, D, &M);
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    cr_expect(tp_net_load(Q, M, F, true), "%s", tp_params_why(Q));
    tp_file_close(F);
    tp_net_free(M);
    tp_params_free(Q);

    ((tp_vil_cfg *)&other.at)->stage[0].dim *= 2;
    Q = published_params(&other, D, &M);
    F = tp_file_open(in_folder("w.safetensors"));
    cr_expect_not(tp_net_load(Q, M, F, true));
    snprintf(text, sizeof text, "%s", tp_params_why(Q));
    cr_expect(strstr(text, "shape: layer1.0.proj.weight is ") &&
                  strstr(text, "shape: layer1.0.norm_embed.weight is ") && strstr(text, " more"),
              "%s", text);
    tp_file_close(F);
    tp_net_free(M);
    tp_net_free(N);
    tp_params_free(Q);
    tp_params_free(P);
    tp_device_close(D);
}

/* Options that are off leave empty tensors, as Vision Longformer's cls_pos_embed. */
Test(published, empty_tensors_are_left_out)
{
    trial t = begin(1);
    const double is = first_weight(t.P);
    tp_writer *W = published_file();
    add(W, t.P, "net.", 1.0, NULL);
    tp_writer_add(W, "net.layer4.0.cls_pos_embed", TP_F32, TP_SHAPE(1, 0, 4), NULL, false);
    cr_expect_eq(load(W), is, "%s", why);
    end(&t);
}

/* ---- files of other models ---- */

/* The library's own names of a model in a file, except for tensors whose names begin with
 * `without`. */
static void write_model(const char *name, const char *without)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_model_cfg cfg;
    tp_net *N;
    cr_assert(tp_model_preset(&cfg, name, why, sizeof why), "%s", why);
    tp_params *P = published_params(&cfg, D, &N);
    tp_writer *W = published_file();
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const size_t bytes = (size_t)tp_numel(it.tensor) * tp_dtype_size(it.dtype);
        if (it.alias_of || (without && strncmp(it.name, without, strlen(without)) == 0)) continue;
        char *x = malloc(bytes + 1);
        cr_assert(x && tp_param_get(P, it.tensor, it.dtype, x, bytes), "%s", it.name);
        tp_writer_add(W, it.name, it.dtype, it.shape, x, true);
        free(x);
    }
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
}

/* Loads the file into a model of that name; why receives the error or "". */
static void load_into(const char *name)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_model_cfg cfg;
    tp_net *N;
    cr_assert(tp_model_preset(&cfg, name, why, sizeof why), "%s", why);
    tp_params *P = published_params(&cfg, D, &N);
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    const bool ok = tp_model_adopt(&cfg, F, NULL, 0) && tp_net_load(P, N, F, false);
    snprintf(why, sizeof why, "%s", tp_params_why(P));
    cr_expect_eq(ok, !*why, "%s", why);
    tp_file_close(F);
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
}

/* A file without one of the names is refused in one message that shows tensors of both sides. */
Test(published, other_models_are_refused)
{
    static const char *const pairs[][4] = {
        { "resnet-mini", "deit-mini", "missing: cls_token", "unknown: bn1.num_batches" },
        { "deit-mini", "swin-mini", "missing: layers.0.blocks.0", "unknown: cls_token" },
        { "swin-mini", "cswin-mini", "missing: stage1_conv_embed.0.weight", "unknown: layers.0." },
        { "pvt-mini", "pvt2-mini", "missing: block1.0.mlp.dwconv.", "unknown: " },
        { "coat-mini", "mpvit-mini", "missing: stem.0.conv.weight", "unknown: cls_token1" },
        { "deit-mini", "deit-mini-distilled", "missing: dist_token", "shape: pos_embed is [1,65," },
        { "deit-mini-distilled", "deit-mini", "unknown: dist_token", "shape: pos_embed is [1,66," },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        write_model(pairs[i][0], NULL);
        load_into(pairs[i][1]);
        cr_expect(strstr(why, "does not fit these parameters: ") && strstr(why, pairs[i][2]) &&
                      strstr(why, pairs[i][3]),
                  "%s for %s: %s", pairs[i][0], pairs[i][1], why);
    }
    tp_writer *W = published_file();
    cr_assert(tp_writer_commit(W));
    tp_writer_free(W);
    load_into("tiny");
    cr_expect(strstr(why, "w.safetensors contains no tensors"), "%s", why);
}

/* Files may omit only what no forward pass reads. */
Test(published, weights_that_files_may_lack)
{
    static const char *const without[][2] = {
        { "norm1.", "" },
        { "norm3.weight", "" },
        { "norm4.", "missing: norm4.weight" },
        { "serial_blocks1.0.norm1.", "missing: serial_blocks1.0.norm1.weight" },
    };
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        write_model("coat-mini", without[i][0]);
        load_into("coat-mini");
        cr_expect(without[i][1][0] ? strstr(why, without[i][1]) != NULL : !*why, "%s: %s",
                  without[i][0], why);
    }
}
