/* test_roberta_files.c - RoBERTa, Longformer and long-short RoBERTa weights from files: conversions
 * between them, published names, mismatched files. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/roberta.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/roberta.h"

enum { B = ROBERTA_TEXTS, N = 24, WORDS = ROBERTA_WORDS, D = ROBERTA_DIM };

/* ---- conversions ---- */

static void save(rig *r, const char *name)
{
    cr_assert(tp_save(r->P, in_folder(name)), "%s", tp_params_why(r->P));
}

static bool load(rig *r, const char *name)
{
    tp_file *F = tp_file_open(in_folder(name));
    const bool ok = tp_model_roberta.load(r->P, r->m, F);
    tp_file_close(F);
    return ok;
}

/* While its window covers the text and no token is global, a converted Longformer is RoBERTa. */
Test(roberta_files, converted_to_longformer, .init = make_folder, .fini = remove_folder)
{
    static float a[B * N * WORDS], b[B * N * WORDS], p[66 * D], q[34 * D], u[D * D], v[D * D];
    rig *r = roberta_open(roberta_small(TP_ROBERTA_FULL, TP_ROBERTA_MLM), 1);
    save(r, "roberta");
    roberta_values(r, tp_model_roberta.forward(r->T, r->m, NULL, roberta_texts(r->T, N, 0)), a,
                   B * N * WORDS);
    tp_roberta_cfg c = roberta_small(TP_ROBERTA_LONGFORMER, TP_ROBERTA_MLM);
    c.window = 2 * N;
    c.length = 64;
    rig *s = roberta_open(c, 5);
    cr_assert(load(s, "roberta"), "%s", tp_params_why(s->P));
    roberta_values(s, tp_model_roberta.forward(s->T, s->m, NULL, roberta_texts(s->T, N, 0)), b,
                   B * N * WORDS);
    roberta_expect_near("logits", a, b, B * N * WORDS, 2e-6);
    cr_assert(tp_param_get(r->P, roberta_of(r)->positions.weight, TP_F32, q, sizeof q));
    cr_assert(tp_param_get(s->P, roberta_of(s)->positions.weight, TP_F32, p, sizeof p));
    for (int i = 0; i < 66; i++) {
        const int from = i < 2 ? i : 2 + (i - 2) % 32;
        cr_expect(memcmp(p + i * D, q + from * D, D * sizeof *p) == 0, "position %d", i);
    }
    const tp_longformer_m *w = &roberta_of(s)->layer[1].window;
    cr_assert(tp_param_get(s->P, w->key.weight, TP_F32, u, sizeof u));
    cr_assert(tp_param_get(s->P, w->key_global.weight, TP_F32, v, sizeof v));
    cr_expect(memcmp(u, v, sizeof u) == 0);
    memset(u, 0, sizeof u);
    cr_assert(tp_param_set(s->P, w->key.weight, TP_F32, u, sizeof u));
    cr_assert(tp_roberta_copy_global(s->P, s->m));
    cr_assert(tp_param_get(s->P, w->key_global.weight, TP_F32, v, sizeof v));
    cr_expect(memcmp(u, v, sizeof u) == 0);
    roberta_close(r);
    roberta_close(s);
}

/* Everything that exists is copied; a classifier loads a model that predicts tokens. */
Test(roberta_files, converted_to_long_short, .init = make_folder, .fini = remove_folder)
{
    static float u[WORDS * D], v[WORDS * D];
    rig *r = roberta_open(roberta_small(TP_ROBERTA_FULL, TP_ROBERTA_MLM), 1);
    save(r, "roberta");
    rig *s = roberta_open(roberta_small(TP_ROBERTA_LS, TP_ROBERTA_CLS), 5);
    cr_assert(load(s, "roberta"), "%s", tp_params_why(s->P));
    int copied = 0;
    for (tp_param_info it = { 0 }; tp_next_param(s->P, &it);) {
        const tp_tensor from = tp_find(r->P, it.name);
        const size_t bytes = (size_t)tp_numel(it.tensor) * sizeof *u;
        if (!tp_given(from)) continue;
        cr_assert(tp_param_get(r->P, from, TP_F32, u, bytes) &&
                  tp_param_get(s->P, it.tensor, TP_F32, v, bytes));
        cr_expect(memcmp(u, v, bytes) == 0, "%s", it.name);
        copied++;
    }
    cr_expect_eq(copied, 5 + 2 * 16 + 2);
    roberta_close(r);
    roberta_close(s);
}

/* ---- published names ---- */

typedef struct renaming {
    const char *from, *to;
} renaming;

/* Writes the weights of P under other names: the first row whose `from` is part of a name replaces
 * it; "" in `to` at a full name omits the tensor. */
static void write_renamed(rig *r, const char *file, const renaming *rows)
{
    static float x[WORDS * D];
    tp_writer *W = tp_writer_new(in_folder(file));
    for (tp_param_info it = { 0 }; tp_next_param(r->P, &it);) {
        char name[256];
        bool out = it.alias_of;
        snprintf(name, sizeof name, "%s", it.name);
        for (const renaming *k = rows; k->from; k++) {
            char *at = strstr(name, k->from), rest[256];
            if (!at) continue;
            snprintf(rest, sizeof rest, "%s", at + strlen(k->from));
            *at = '\0';
            out |= !k->to;
            if (k->to) snprintf(at, sizeof name - (size_t)(at - name), "%s%s", k->to, rest);
        }
        if (out) continue;
        cr_assert(
            tp_param_get(r->P, it.tensor, TP_F32, x, (size_t)tp_numel(it.tensor) * sizeof *x));
        tp_writer_add(W, name, TP_F32, it.shape, x, true);
    }
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
}

Test(roberta_files, published_names, .init = make_folder, .fini = remove_folder)
{
    static const renaming longformer[] = { { "roberta.", "longformer." }, { 0 } };
    static const renaming old[] = { { "LayerNorm.weight", "LayerNorm.gamma" },
                                    { "LayerNorm.bias", "LayerNorm.beta" },
                                    { 0 } };
    static const renaming fairseq[] = {
        { "roberta.pooler.dense.", NULL },
        { "roberta.embeddings.token_type_embeddings.", NULL },
        { "roberta.embeddings.word_embeddings.", "decoder.sentence_encoder.embed_tokens." },
        { "roberta.embeddings.position_embeddings.", "decoder.sentence_encoder.embed_positions." },
        { "roberta.embeddings.LayerNorm.", "decoder.sentence_encoder.emb_layer_norm." },
        { "roberta.encoder.layer.", "decoder.sentence_encoder.layers." },
        { ".attention.self.query.", ".self_attn.q_proj." },
        { ".attention.self.key.", ".self_attn.k_proj." },
        { ".attention.self.value.", ".self_attn.v_proj." },
        { ".attention.output.dense.", ".self_attn.out_proj." },
        { ".attention.output.LayerNorm.", ".self_attn_layer_norm." },
        { ".intermediate.dense.", ".fc1." },
        { ".output.dense.", ".fc2." },
        { ".output.LayerNorm.", ".final_layer_norm." },
        { "lm_head.", "decoder.lm_head." },
        { 0 }
    };
    static const struct {
        const char *name;
        const renaming *rows;
        tp_roberta_kind kind;
        bool types; /* in the file */
    } cases[] = { { "longformer", longformer, TP_ROBERTA_LONGFORMER, true },
                  { "gamma and beta", old, TP_ROBERTA_FULL, true },
                  { "fairseq", fairseq, TP_ROBERTA_FULL, false } };
    static float a[B * N * WORDS], b[B * N * WORDS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_model_cfg c = { .model = &tp_model_roberta };
        *(tp_roberta_cfg *)&c.at = roberta_small(cases[i].kind, TP_ROBERTA_MLM);
        rig *r = roberta_open(*(tp_roberta_cfg *)&c.at, 1);
        const float zero[D] = { 0 };
        if (!cases[i].types)
            cr_assert(tp_param_set(r->P, roberta_of(r)->types.weight, TP_F32, zero, sizeof zero));
        roberta_values(r, tp_model_roberta.forward(r->T, r->m, NULL, roberta_texts(r->T, N, 0)), a,
                       B * N * WORDS);
        write_renamed(r, "file", cases[i].rows);
        roberta_close(r);
        tp_file *F = tp_file_open(in_folder("file"));
        cr_assert(tp_model_adopt(&c, F, NULL, 0), "%s: %s", cases[i].name, tp_file_why(F));
        r = roberta_open(*(tp_roberta_cfg *)&c.at, 7);
        cr_expect(tp_model_roberta.load(r->P, r->m, F), "%s: %s", cases[i].name,
                  tp_params_why(r->P));
        tp_file_close(F);
        roberta_values(r, tp_model_roberta.forward(r->T, r->m, NULL, roberta_texts(r->T, N, 0)), b,
                       B * N * WORDS);
        roberta_expect_near(cases[i].name, a, b, B * N * WORDS, 0.0);
        roberta_close(r);
    }
}

/* One call loads a file of the same model, with or without what publishers omit. */
Test(roberta_files, one_call_loads_a_file, .init = make_folder, .fini = remove_folder)
{
    static const renaming all[] = { { 0 } }, lean[] = { { "roberta.pooler.dense.", NULL }, { 0 } },
                          prefixed[] = { { "roberta.pooler", "model.roberta.pooler" },
                                         { "lm_head.", "model.lm_head." },
                                         { "roberta.e", "model.roberta.e" },
                                         { 0 } },
                          untyped[] = { { "roberta.embeddings.token_type_embeddings.", NULL },
                                        { 0 } },
                          headless[] = { { "lm_head.dense.", NULL }, { 0 } };
    static const struct {
        const char *name;
        const renaming *rows;
        bool no_pooler, types;
        const char *why;
    } cases[] = { { "everything", all, false, true, NULL },
                  { "no pooler in the file", lean, false, true, NULL },
                  { "no pooler in the model", all, true, true, NULL },
                  { "no pooler in the model, a prefix", prefixed, true, true, NULL },
                  { "no types of tokens", untyped, false, false, NULL },
                  { "no head", headless, false, true,
                    "missing: lm_head.dense.weight f32[16,16]" } };
    static float a[B * N * WORDS], b[B * N * WORDS];
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const float zero[D] = { 0 };
        tp_model_cfg c = { .model = &tp_model_roberta };
        *(tp_roberta_cfg *)&c.at = roberta_small((tp_roberta_kind)(i % 3), TP_ROBERTA_MLM);
        rig *r = roberta_open(*(tp_roberta_cfg *)&c.at, 1);
        if (!cases[i].types)
            cr_assert(tp_param_set(r->P, roberta_of(r)->types.weight, TP_F32, zero, sizeof zero));
        roberta_values(r, tp_model_roberta.forward(r->T, r->m, NULL, roberta_texts(r->T, N, 0)), a,
                       B * N * WORDS);
        write_renamed(r, "file", cases[i].rows);
        roberta_close(r);
        ((tp_roberta_cfg *)&c.at)->no_pooler = cases[i].no_pooler;
        tp_device *dev = device_open(NULL);
        tp_params *P = tp_params_new(dev, &(tp_params_opts){ .seed = 7 });
        tp_net *net = tp_net_new(P, "", &c);
        tp_file *F = tp_file_open(in_folder("file"));
        const bool ok = tp_net_load(P, net, F, false);
        cr_expect_eq(ok, !cases[i].why, "%s: %s", cases[i].name, tp_params_why(P));
        if (cases[i].why) cr_expect(strstr(tp_params_why(P), cases[i].why), "%s", tp_params_why(P));
        tp_file_close(F);
        if (ok) {
            tp_tape *T = tp_tape_new(dev, NULL);
            const tp_tensor z = tp_net_forward(T, net, NULL, roberta_texts(T, N, 0));
            cr_assert(tp_read(T, z, b, sizeof b), "%s", tp_why(T));
            roberta_expect_near(cases[i].name, a, b, B * N * WORDS, 0.0);
            tp_tape_free(T);
        }
        tp_net_free(net);
        tp_params_free(P);
        tp_device_close(dev);
    }
}

/* ---- what does not fit ---- */

Test(roberta_files, files_that_do_not_fit, .init = make_folder, .fini = remove_folder)
{
    rig *r = roberta_open(roberta_small(TP_ROBERTA_FULL, TP_ROBERTA_MLM), 1);
    static const renaming lacking[] = { { "roberta.encoder.layer.1.output.dense.", NULL }, { 0 } };
    write_renamed(r, "lacking", lacking);
    rig *s = roberta_open(roberta_small(TP_ROBERTA_LS, TP_ROBERTA_MLM), 1);
    cr_expect_not(load(s, "lacking"));
    cr_expect(strstr(tp_params_why(s->P), "roberta.encoder.layer.1.output.dense.weight is missing"),
              "%s", tp_params_why(s->P));
    roberta_close(s);
    save(r, "narrow");
    tp_roberta_cfg c = roberta_small(TP_ROBERTA_FULL, TP_ROBERTA_MLM);
    c.hidden = 32;
    s = roberta_open(c, 1);
    cr_expect_not(load(s, "narrow"));
    cr_expect(strstr(tp_params_why(s->P),
                     "roberta.encoder.layer.0.intermediate.dense.weight has the shape [24,16], not "
                     "[32,16]; is it a model of this size?"),
              "%s", tp_params_why(s->P));
    roberta_close(s);
    c = roberta_small(TP_ROBERTA_LONGFORMER, TP_ROBERTA_MLM);
    c.layers = 1;
    s = roberta_open(c, 1);
    cr_expect_not(load(s, "narrow"));
    cr_expect(
        strstr(tp_params_why(s->P), "has more than the model's 1 layers: roberta.encoder.layer.1."),
        "%s", tp_params_why(s->P));
    roberta_close(s);
    roberta_close(r);
}

/* Global projections are copied if a file has none; a file with some of them is refused. */
Test(roberta_files, some_global_projections, .init = make_folder, .fini = remove_folder)
{
    static const char *const lacking[] = { "roberta.encoder.layer.1.attention.self.value_global.",
                                           "roberta.encoder.layer.0.attention.self.query_global.",
                                           "_global." };
    const tp_roberta_cfg c = roberta_small(TP_ROBERTA_LONGFORMER, TP_ROBERTA_MLM);
    rig *r = roberta_open(c, 1);
    for (int i = 0; i < 3; i++) {
        char name[100];
        write_renamed(r, "some", (const renaming[]){ { lacking[i], NULL }, { 0 } });
        rig *s = roberta_open(c, 5);
        cr_expect_eq(load(s, "some"), i == 2, "%s", tp_params_why(s->P));
        snprintf(name, sizeof name, "%sweight is missing, though other global", lacking[i]);
        if (i < 2) cr_expect(strstr(tp_params_why(s->P), name), "%s", tp_params_why(s->P));
        roberta_close(s);
    }
    roberta_close(r);
}
