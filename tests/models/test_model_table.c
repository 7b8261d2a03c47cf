/* test_model_table.c - every row of the table of models, using tp_model and tp_net only: names,
 * configurations in files, parameter counts, steps on a dry device, costs, comparison of models,
 * checkpoints of earlier versions. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/lm.h>
#include <tapegrad/lra.h>
#include <tapegrad/vision.h>

#include "support/folder.h"

static tp_model_cfg preset(const char *name)
{
    tp_model_cfg c;
    char why[512] = "";
    cr_assert(tp_model_preset(&c, name, why, sizeof why), "%s: %s", name, why);
    cr_assert(c.model, "%s", name);
    return c;
}

/* ---- names ---- */

Test(model_table, names)
{
    const tp_model_row *row;
    for (int i = 0; (row = tp_model_at(i)); i++) {
        char names[256], *word, *rest = names;
        snprintf(names, sizeof names, "%s %s", row->name, row->also ? row->also : "");
        while ((word = strtok_r(rest, " ", &rest)))
            cr_expect_eq(tp_model_find(word), row, "'%s' is a name of two rows", word);
        cr_expect(row->family && row->family[0], "%s has no family", row->name);
    }
    cr_expect_null(tp_model_at(-1));
    cr_expect_null(tp_model_find(""));
    cr_expect_null(tp_model_find("cvt-13 CvT-13"));
}

Test(model_table, other_names)
{
    static const struct {
        const char *name, *row;
    } cases[] = {
        { "ls_lm-small", "ls_lm-small-enwik8" }, { "cvt-13", "cvt-13-224" },
        { "cvt-star-21", "cvt_star-21-224" },    { "CvT*-LS-13", "cvt_ls-13-224" },
        { "vit-lsla", "vit_lsla-ip102" },        { "vil-tiny", "vil-tiny-rpb" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tp_model_row *row = tp_model_find(cases[i].name);
        cr_expect(row && strcmp(row->name, cases[i].row) == 0, "%s is %s", cases[i].name,
                  row ? row->name : "unknown");
    }
}

/* Names of models without a row. */
Test(model_table, composed_names)
{
    tp_model_cfg c = preset("cvt-ls-13-448");
    const tp_cvt_cfg *cvt = (const tp_cvt_cfg *)&c.at;
    cr_expect(cvt->rank[0] == 128 && cvt->window[0] == 16 && cvt->image[1] == 448);
    c = preset("deit-s-distilled-384");
    cr_expect(((const tp_vit_cfg *)&c.at)->distilled && tp_model_get(&c).image[1] == 384);
    c = preset("vil-small-1-1-9-1-sra32-384");
    cr_expect(((const tp_vil_cfg *)&c.at)->kind == TP_VIL_SRA && tp_model_get(&c).image[0] == 384);
}

Test(model_table, unknown_names)
{
    static const struct {
        const char *name, *nearest;
    } cases[] = {
        { "cvt-14", "'cvt-13'" },          { "VIL-TINY-RPB", "'vil-tiny-rpb'" },
        { "vil-tiny-fell", "'vil-tiny-" }, { "ls-lm-large", "'ls_lm-large'" },
        { "cvt-13-", "'cvt-13" },          { "cvt-13-224x", "'cvt-13-224'" },
        { "cvt-13-99999999", "'cvt-13-" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_model_cfg c;
        char why[512] = "", begin[128];
        snprintf(begin, sizeof begin, "no model is called '%s'; did you mean '", cases[i].name);
        cr_expect(!tp_model_preset(&c, cases[i].name, why, sizeof why) && !c.model, "%s",
                  cases[i].name);
        cr_expect(strncmp(why, begin, strlen(begin)) == 0 && strstr(why, cases[i].nearest),
                  "%s: %s", cases[i].name, why);
    }
}

/* ---- configurations in files ---- */

/* Writes c's metadata to a file, leaving out keys in `without` and adding `more`, and opens it. */
static tp_file *through_file(const tp_model_cfg *c, const char *without, const char *const *more)
{
    const char *key, *value;
    tp_writer *W = tp_writer_new(in_folder("a.safetensors"));
    tp_writer *V = tp_writer_new(in_folder("b.safetensors"));
    tp_model_write(c, W);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_file *F = tp_file_open(in_folder("a.safetensors"));
    for (int i = 0; tp_file_meta_at(F, i, &key, &value); i++) {
        char word[64];
        snprintf(word, sizeof word, " %s ", key);
        if (!strstr(without, word)) tp_writer_meta(V, key, value);
    }
    for (; *more; more += 2) tp_writer_meta(V, more[0], more[1]);
    cr_assert(tp_writer_commit(V), "%s", tp_writer_why(V));
    tp_file_close(F);
    tp_writer_free(W);
    tp_writer_free(V);
    return tp_file_open(in_folder("b.safetensors"));
}

static const char *const nothing[] = { NULL };

/* Compares as text, since the structs' padding may differ. */
static void expect_equal(const char *name, const tp_model_cfg *a, const tp_model_cfg *b)
{
    const char *key, *value;
    tp_file *F = through_file(a, "", nothing);
    char all[4096] = "";
    size_t n = 0;
    for (int i = 0; tp_file_meta_at(F, i, &key, &value); i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s=%s\n", key, value);
    tp_file_close(F);
    F = through_file(b, "", nothing);
    for (int i = 0, at = 0; tp_file_meta_at(F, i, &key, &value); i++) {
        char line[512];
        const int length = snprintf(line, sizeof line, "%s=%s\n", key, value);
        cr_expect(strncmp(all + at, line, (size_t)length) == 0, "%s: %s", name, line);
        at += length;
    }
    tp_file_close(F);
}

Test(model_table, configurations_in_files, .init = make_folder, .fini = remove_folder)
{
    const tp_model_row *row;
    for (int i = 0; (row = tp_model_at(i)); i++) {
        char why[512] = "";
        tp_model_cfg c = preset(row->name), back;
        cr_expect(c.model == tp_model_of(row) && tp_model_of(row)->cfg_size <= TP_MODEL_CFG_BYTES,
                  "%s", row->name);
        cr_expect(tp_model_check(&c, why, sizeof why), "%s: %s", row->name, why);
        tp_file *F = through_file(&c, "", nothing);
        cr_expect(tp_model_read(&back, F, why, sizeof why), "%s: %s", row->name, why);
        cr_expect(back.model == c.model && tp_model_same(&c, &back), "%s", row->name);
        expect_equal(row->name, &c, &back);
        tp_file_close(F);
    }
}

/* tp_model_get returns the shared options that tp_model_set sets, for every model. */
Test(model_table, shared_options)
{
    const tp_model_row *row;
    for (int i = 0; (row = tp_model_at(i)); i++) {
        tp_model_cfg c = preset(row->name);
        tp_common_cfg o = tp_model_get(&c), back;
        const tp_model_input input = tp_model_of(row)->input;
        const bool carries = tp_model_of(row)->state_size > 0;
        cr_expect(o.outputs > 0, "%s", row->name);
        cr_expect((o.image[0] > 0) == (input == TP_IMAGES) &&
                      (o.image[1] > 0) == (input == TP_IMAGES) && (o.cache > 0) == carries &&
                      (o.length > 0) == (input != TP_IMAGES && !carries) &&
                      (o.vocab > 0) == (input == TP_DOCUMENTS),
                  "%s", row->name);
        cr_expect_eq(o.recompute, TP_RECOMPUTE_NONE, "%s", row->name);
        o.outputs = 17;
        o.dropout = 0.25;
        o.image[0] = o.image[1] = 448;
        o.cache = o.length = 2048;
        o.vocab = 300;
        o.pair = !o.pair;
        tp_model_set(&c, &o);
        back = tp_model_get(&c);
        cr_expect_eq(back.outputs, 17, "%s", row->name);
        cr_expect_eq(back.dropout, tp_model_of(row) == &tp_model_vit ? 0.25 : 0, "%s", row->name);
        if (input == TP_IMAGES) cr_expect_eq(back.image[1], 448, "%s", row->name);
        if (carries) cr_expect_eq(back.cache, 2048, "%s", row->name);
        if (input != TP_IMAGES && !carries) cr_expect_eq(back.length, 2048, "%s", row->name);
        if (input == TP_DOCUMENTS) cr_expect_eq(back.vocab, 300, "%s", row->name);
        if (tp_model_of(row) == &tp_model_lra) cr_expect_eq(back.pair, o.pair, "%s", row->name);
    }
}

static void expect_shape(const char *name, int64_t tokens, tp_shape want)
{
    const tp_model_cfg c = preset(name);
    const tp_shape got = tp_model_input_shape(&c, 3, tokens);
    cr_expect(got.ndim == want.ndim && memcmp(got.dim, want.dim, sizeof got.dim) == 0, "%s", name);
}

Test(model_table, shapes_of_inputs)
{
    expect_shape("cvt-13-384", 0, TP_SHAPE(3, 384, 384, 3));
    expect_shape("txl-base", 0, TP_SHAPE(3, 512));
    expect_shape("txl-base", 128, TP_SHAPE(3, 128));
    expect_shape("lra-listops-ls", 0, TP_SHAPE(3, 2048));
    expect_shape("lra-retrieval-ls", 0, TP_SHAPE(3, 2, 4096));
    expect_shape("lra-retrieval-ls", 1024, TP_SHAPE(3, 2, 1024));
}

/* In checkpoints of version 0.1, imagenet and not CvT wrote the image size, and the convolutional
 * baseline wrote no model. */
Test(model_table, earlier_checkpoints, .init = make_folder, .fini = remove_folder)
{
    static const char *const old_cvt[] = {
        "classifier", "cvt", "classifier_size", "384", "classifier_classes", "10", NULL
    };
    static const char *const old_convnet[] = {
        "classifier", "convnet", "classifier_size", "64", "classifier_classes", "10", NULL
    };
    tp_model_cfg c = preset("cvt-ls-13"), d;
    char why[512] = "";
    tp_file *F = through_file(&c, " image ", nothing);
    cr_expect(tp_model_read(&d, F, why, sizeof why), "%s", why);
    cr_expect(d.model == &tp_model_cvt && tp_model_get(&d).image[1] == 224);
    tp_file_close(F);

    F = through_file(&c, " image ", old_cvt);
    cr_expect(tp_model_read(&d, F, why, sizeof why), "%s", why);
    cr_expect(d.model == &tp_model_cvt && tp_model_get(&d).image[1] == 384);
    tp_file_close(F);

    c = preset("convnet");
    F = through_file(&c, " model image classes ", old_convnet);
    cr_expect(tp_model_read(&d, F, why, sizeof why), "%s", why);
    cr_expect(d.model == &tp_model_convnet && tp_model_get(&d).image[0] == 64 &&
              tp_model_get(&d).outputs == 10);
    tp_file_close(F);
}

Test(model_table, files_without_a_model, .init = make_folder, .fini = remove_folder)
{
    static const char *const other[] = { "model", "resnet-50", NULL };
    tp_model_cfg c = preset("cvt-13"), d;
    char why[512] = "";
    tp_file *F = through_file(&c, " model ", nothing);
    cr_expect(!tp_model_read(&d, F, why, sizeof why) && !d.model);
    cr_expect(strstr(why, "b.safetensors: it contains no model configuration"), "%s", why);
    tp_file_close(F);

    F = through_file(&c, " model ", other);
    cr_expect(!tp_model_read(&d, F, why, sizeof why));
    cr_expect(strstr(why, "its model is a 'resnet-50', which this version does not know"), "%s",
              why);
    tp_file_close(F);

    F = through_file(&c, " dims ", nothing);
    cr_expect(!tp_model_read(&d, F, why, sizeof why));
    cr_expect(strstr(why, "b.safetensors: the configuration lacks 'dims'"), "%s", why);
    tp_file_close(F);

    F = tp_file_open(in_folder("none.safetensors"));
    cr_expect(!tp_model_read(&d, F, why, sizeof why));
    cr_expect(strcmp(why, tp_file_why(F)) == 0, "%s", why);
    tp_file_close(F);
}

/* ---- parameters ---- */

/* The tolerance of a count against the paper's: half a unit of its last digit (for most papers a
 * tenth of a million), or the model's own. */
static double tolerance(const tp_model_row *row)
{
    static const struct {
        const char *part;
        double off;
    } other[] = {
        { "cvt_ls-", 0.7e6 },     /* counts of the published code, not the table's       */
        { "performer", 0.25e6 },  /* the paper counts the random features            */
        { "cswin-", 0.7e6 },      /* printed in whole millions, rounded up           */
        { "swin-", 0.5e6 },       /* printed in whole millions, here and below       */
        { "-rpb", 0.35e6 },       /* printed without the bias tables                 */
        { "vit-l", 2.8e6 },       /* printed for another head */
        { "small-flat", 0.12e6 }, /* DeiT's count is printed */
        { "resnet-1", 0.2e6 },    /* printed counts differ from the model's          */
        { "coat_lite-", 0.2e6 },  { "mpvit-", 0.1e6 }, { "base-wide", 0.5e6 },
        { "cvt-", 0.5e6 },        { "ls_lm-", 0.6e6 }, { "txl-", 0.6e6 },
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (strstr(row->name, other[i].part)) return other[i].off;
    return 0.0501e6;
}

Test(model_table, parameters)
{
    const tp_model_row *row;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    for (int i = 0; (row = tp_model_at(i)); i++) {
        const tp_model_cfg c = preset(row->name);
        tp_params *P = tp_params_new(D, NULL);
        tp_net *N = tp_net_new(P, "", &c);
        const double n = (double)tp_params_count(P);
        cr_expect(tp_params_ok(P) && n > 0, "%s: %s", row->name, tp_params_why(P));
        cr_expect(row->params == 0.0 || fabs(n - row->params) <= tolerance(row),
                  "%s: %.0f parameters, the paper prints %g", row->name, n, row->params);
        cr_expect(tp_net_cfg(N)->model == tp_model_of(row) && tp_net_module(N), "%s", row->name);
        tp_net_free(N);
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* ---- steps on a dry device ---- */

enum { BATCH = 2, TOKENS = 64 };

static tp_tensor zeros(tp_tape *T, const tp_model_cfg *c)
{
    const tp_dtype dt = c->model->input == TP_IMAGES ? TP_F32 : TP_I32;
    const int64_t tokens = c->model->input == TP_TOKENS ? TOKENS : 0;
    return tp_full(T, dt, tp_model_input_shape(c, BATCH, tokens), 0.0);
}

static tp_shape results(const tp_model_cfg *c)
{
    const int64_t outputs = tp_model_get(c).outputs;
    return c->model->input == TP_TOKENS ? TP_SHAPE(BATCH, TOKENS, outputs)
                                        : TP_SHAPE(BATCH, outputs);
}

/* Reformer has keys and biases that it does not read; the model without attention reads none. */
static bool is_unread(const tp_model_cfg *c, const char *name)
{
    const tp_lra_kind kind =
        c->model == &tp_model_lra ? ((const tp_lra_cfg *)&c->at)->attn.kind : TP_LRA_LS;
    if (kind == TP_LRA_NONE) return strstr(name, ".W_q.") || strstr(name, ".W_k.");
    return kind == TP_LRA_REFORMER &&
           (strstr(name, ".W_k.") || strstr(name, ".W_q.bias") || strstr(name, ".W_v.bias"));
}

static void dry_step(const char *name, const tp_model_cfg *c, tp_device *D)
{
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
    tp_net *N = tp_net_new(P, "", c);
    void *state = tp_net_state_new(N);
    cr_expect_eq(state != NULL, c->model->state_size > 0, "%s", name);
    for (int k = 0; k < 2; k++) {
        tp_reset(T);
        const tp_tensor z = tp_net_forward(T, N, state, zeros(T, c));
        const tp_shape want = results(c), got = tp_shape_of(z);
        cr_expect(got.ndim == want.ndim && memcmp(got.dim, want.dim, sizeof got.dim) == 0,
                  "%s: logits of another shape", name);
        tp_backward(T, tp_sum(T, z, TP_ALL));
        cr_expect(tp_ok(T), "%s: %s", name, tp_why(T));
    }
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);)
        cr_expect(it.buffer || it.alias_of || it.frozen || it.has_grad != is_unread(c, it.name),
                  "%s: %s has %s gradient", name, it.name, it.has_grad ? "a" : "no");
    tp_net_state_free(N, T, state);
    tp_net_free(N);
    tp_tape_free(T);
    tp_params_free(P);
}

Test(model_table, steps_on_a_dry_device)
{
    const tp_model_row *row;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    for (int i = 0; (row = tp_model_at(i)); i++) {
        const tp_model_cfg c = preset(row->name);
        dry_step(row->name, &c, D);
    }
    tp_device_close(D);
}

/* ---- descriptions ---- */

Test(model_table, descriptions)
{
    const tp_model_row *row;
    for (int i = 0; (row = tp_model_at(i)); i++) {
        const tp_model *m = tp_model_of(row);
        const bool carries = m->state_size > 0;
        cr_expect(m->name && m->size && m->cfg_size, "%s", row->name);
        cr_expect(m->presets && m->check && m->members && m->init && m->forward,
                  "%s lacks a function", row->name);
        cr_expect((m->state_clear != NULL) == carries && (m->state_write != NULL) == carries &&
                      (m->state_read != NULL) == carries,
                  "%s: the functions of a state come together", row->name);
        cr_expect(!carries || m->carried, "%s: what is carried has a name", row->name);
        cr_expect((m->load != NULL) == (m->resizes != NULL), "%s: load says what it resizes",
                  row->name);
        cr_expect(m->load || !m->all_resized, "%s", row->name);
    }
}

/* Token mixing has a fixed length. */
static bool takes_one_length(const tp_model_cfg *c)
{
    const tp_lra_cfg *l = (const tp_lra_cfg *)&c->at;
    return c->model == &tp_model_lra && (l->attn.kind == TP_LRA_LINFORMER || l->attn.fixed);
}

Test(model_table, costs)
{
    const tp_model_row *row;
    for (int i = 0; (row = tp_model_at(i)); i++) {
        tp_model_cfg c = preset(row->name);
        tp_common_cfg o = tp_model_get(&c);
        const tp_cost f = tp_model_cost(&c, 0, 0);
        cr_expect(f.macs > 0.0 && f.paper > 0.0 && f.norm >= 0.0 && f.batchnorm >= 0.0, "%s",
                  row->name);
        const double flops = f.paper + row->norm_cost * f.norm;
        cr_expect(row->flops == 0.0 || fabs(flops / row->flops - 1.0) < 0.06,
                  "%s: %g FLOPs, the paper prints %g", row->name, flops, row->flops);
        o.recompute = TP_RECOMPUTE_BLOCK;
        tp_model_set(&c, &o);
        const double all = f.saved, least = tp_model_cost(&c, 0, 0).saved;
        cr_expect(all > 0.0 && least > 0.0 && least <= all, "%s: %g bytes, %g with recomputation",
                  row->name, all, least);
        if (tp_model_of(row)->input == TP_IMAGES) continue;
        const double fewer = tp_model_cost(&c, o.length / 2 + o.cache / 2, 0).macs,
                     shorter = tp_model_cost(&c, 0, o.cache / 2).macs;
        cr_expect(fewer < f.macs && (fewer > 0.0 || takes_one_length(&c)),
                  "%s: fewer tokens cost less", row->name);
        cr_expect(!tp_model_of(row)->state_size || (shorter > 0.0 && shorter < f.macs),
                  "%s: a shorter cache costs less", row->name);
    }
}

/* ---- comparison of models ---- */

Test(model_table, same_model)
{
    const tp_model_row *row;
    tp_model_cfg before = preset(tp_model_at(0)->name);
    for (int i = 0; (row = tp_model_at(i)); i++) {
        const tp_model_cfg c = preset(row->name);
        tp_model_cfg other = c;
        tp_common_cfg o = tp_model_get(&c);
        o.outputs = 10;
        o.image[0] *= 2;
        o.image[1] *= 2;
        o.cache *= 2;
        o.recompute = TP_RECOMPUTE_BLOCK;
        tp_model_set(&other, &o);
        cr_expect(tp_model_same(&c, &other) && tp_model_same(&other, &c), "%s at another size",
                  row->name);
        if (before.model != c.model) cr_expect(!tp_model_same(&c, &before), "%s", row->name);
        before = c;
    }
}

Test(model_table, equal_and_different_weights)
{
    static const struct {
        const char *one, *other;
        bool same;
    } cases[] = {
        { "cvt_ls-13-224", "cvt-ls-13-448", true }, /* the rank may grow */
        { "cvt_ls-13-224", "cvt_star-13-224", false },
        { "cvt-13", "cvt-21", false },
        { "cvt-13", "vil-tiny-rpb", false },
        { "vil-medium-rpb", "vil-medium-rpb-384", true },
        { "vil-medium-rpb", "vil-medium-ape", false },
        { "vil-medium-rpb", "vil-medium-ls", false },
        { "vit_lsla-ip102", "vit_lsla-food101", true },
        { "vit_lsla-ip102", "vit_lsla-qkv", false },
        { "swin-b", "swin-b-384", true }, /* tables of windows are resized */
        { "swin-t", "swin-s", false },
        { "ls_lm-small-enwik8", "ls_lm-small-text8", true },
        { "ls_lm-small-enwik8", "ls_lm-large-enwik8", false },
        { "txl-base-enwik8", "txl-base-text8", true },
        { "txl-tiny-enwik8", "txl-mini-enwik8", false },
        { "tiny", "convnet", false },
        { "lra-listops-ls", "lra-listops-ls", true },
        { "lra-text-ls", "lra-retrieval-ls", false },
        { "lra-text-ls", "lra-text-ls-best", false },
        { "lra-text-softmax", "lra-text-reformer", false },
        { "deit-b", "vit-b-384", true },
        { "deit-s", "deit-s-distilled", false },
        { "resnet-50", "resnext-101-32x4d", false },
        { "pvt-small-384", "pvt-small", true },
        { "pvt2-b2", "pvt2-b2-li", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tp_model_cfg a = preset(cases[i].one), b = preset(cases[i].other);
        cr_expect_eq(tp_model_same(&a, &b), cases[i].same, "%s, %s", cases[i].one, cases[i].other);
    }
}

/* ---- a model in use ---- */

static void expect_equal_weights(const char *name, tp_params *P, tp_params *Q)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const size_t bytes = (size_t)tp_numel(it.tensor) * sizeof(double);
        if (!tp_is_float(it.dtype)) continue;
        double *x = malloc(bytes), *y = malloc(bytes);
        cr_assert(x && y && tp_param_get(P, it.tensor, TP_F64, x, bytes) &&
                      tp_param_get(Q, tp_find(Q, it.name), TP_F64, y, bytes),
                  "%s: %s", name, it.name);
        cr_expect(memcmp(x, y, bytes) == 0, "%s: %s", name, it.name);
        free(x);
        free(y);
    }
}

Test(model_table, weights_in_files, .init = make_folder, .fini = remove_folder)
{
    static const char *const names[] = {
        "tiny",      "ls_lm-tiny", "txl-tiny",         "vil-small",
        "cvt-small", "lsla-small", "deit-mini",        "resnet-mini",
        "pvt-mini",  "pvt2-mini",  "swin-mini",        "cswin-mini",
        "coat-mini", "mpvit-mini", "lra-retrieval-ls", "lra-image-performer"
    };
    tp_device *D = tp_device_open("cpu", NULL);
    for (int i = 0; i < 2 * (int)(sizeof names / sizeof *names); i++) {
        const char *name = names[i / 2];
        const tp_model_cfg c = preset(name);
        tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
        tp_params *Q = tp_params_new(D, &(tp_params_opts){ .seed = 2 });
        tp_net *N = tp_net_new(P, "", &c), *M = tp_net_new(Q, "", &c);
        cr_assert(tp_save(P, in_folder("w.safetensors")), "%s", tp_params_why(P));
        tp_file *F = tp_file_open(in_folder("w.safetensors"));
        cr_expect(tp_net_load(Q, M, F, i % 2), "%s: %s", name, tp_params_why(Q));
        expect_equal_weights(name, P, Q);
        tp_file_close(F);
        tp_net_free(N);
        tp_net_free(M);
        tp_params_free(P);
        tp_params_free(Q);
    }
    tp_device_close(D);
}

Test(model_table, requests_that_fail)
{
    char why[256];
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL), *R = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_model_cfg c = { 0 };
    cr_expect(!tp_model_check(&c, why, sizeof why));
    cr_expect_str_eq(why, "no model has been chosen");
    cr_expect(tp_model_get(&c).outputs == 0 && tp_model_cost(&c, 0, 0).macs == 0.0);
    tp_net *N = tp_net_new(P, "", &c);
    cr_expect_str_eq(tp_params_why(P), "no model has been chosen");
    tp_net_forward(T, N, NULL, TP_NONE);
    cr_expect(strstr(tp_why(T), "could not be created"), "%s", tp_why(T));
    cr_expect_null(tp_net_state_new(N));
    tp_net_state_free(N, T, NULL);

    c = preset("cvt-13");
    ((tp_cvt_cfg *)&c.at)->dim[1] = 0;
    tp_net *M = tp_net_new(Q, "", &c);
    cr_expect(strstr(tp_params_why(Q), "dims = 64,0,384: each must be 1 to 1048576"), "%s",
              tp_params_why(Q));
    tp_clear(T);
    tp_net_forward(T, M, NULL, TP_NONE);
    cr_expect(strstr(tp_why(T), "dims = 64,0,384: each must be 1 to 1048576"), "%s", tp_why(T));

    c = preset("ls_lm-tiny");
    tp_net *L = tp_net_new(R, "", &c);
    tp_clear(T);
    tp_net_forward(T, L, NULL, zeros(T, &c));
    cr_expect(strstr(tp_why(T), "see tp_net_state_new"), "%s", tp_why(T));
    tp_net_free(N);
    tp_net_free(M);
    tp_net_free(L);
    tp_net_free(NULL);
    tp_tape_free(T);
    tp_params_free(P);
    tp_params_free(Q);
    tp_params_free(R);
    tp_device_close(D);
}
