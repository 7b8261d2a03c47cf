/* test_roberta.c - RoBERTa, Longformer and long-short RoBERTa: counts, conversions between them, published names,
 * masks and global tokens, predictions of chosen rows, recomputation, refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/roberta.h>

#include "support_device.h"
#include "support_folder.h"
#include "support_models.h"

enum { B = 2, N = 24, WORDS = 50, D = 16 };

static tp_roberta_cfg small(tp_roberta_kind kind, tp_roberta_head head)
{
    return (tp_roberta_cfg){ .kind = kind,
                             .head = head,
                             .layers = 2,
                             .heads = 2,
                             .dim = D,
                             .hidden = 24,
                             .vocab = WORDS,
                             .length = 32,
                             .classes = 3,
                             .window = kind == TP_ROBERTA_FULL ? 0 : 8,
                             .rank = kind == TP_ROBERTA_LS ? 3 : 0 };
}

typedef struct rig {
    tp_device *dev;
    tp_params *P;
    tp_tape *T;
    tp_roberta m;
} rig;

static rig *open_rig(tp_roberta_cfg c, uint64_t seed)
{
    rig *r = calloc(1, sizeof *r);
    r->dev = device_open(NULL);
    r->P = tp_params_new(r->dev, &(tp_params_opts){ .seed = seed });
    r->T = tp_tape_new(r->dev, &(tp_tape_opts){ .seed = 2 });
    tp_roberta_init(r->P, &r->m, "", c);
    cr_assert(tp_params_ok(r->P), "%s", tp_params_why(r->P));
    return r;
}

static void close_rig(rig *r)
{
    tp_tape_free(r->T);
    tp_params_free(r->P);
    tp_device_close(r->dev);
    free(r);
}

/* Two texts, the second with `padding` of its n tokens at the end. */
static tp_tensor texts(tp_tape *T, int n, int padding)
{
    int32_t ids[B * 64];
    for (int i = 0; i < B * n; i++) ids[i] = i % n == 0 ? 0 : 4 + (i * 7 + i / n) % (WORDS - 5);
    for (int i = B * n - padding; i < B * n; i++) ids[i] = TP_ROBERTA_PAD;
    return tp_from(T, TP_I32, TP_SHAPE(B, n), ids);
}

static void expect_near(const char *what, const float *a, const float *b, int n, double most)
{
    double off = 0.0;
    for (int i = 0; i < n; i++) off = fmax(off, fabs((double)a[i] - b[i]));
    cr_expect(off <= most, "%s: %g", what, off);
}

static void read_values(rig *r, tp_tensor x, float *to, int n)
{
    cr_assert_eq(tp_numel(x), n, "%s", tp_why(r->T));
    cr_assert(tp_read(r->T, x, to, (size_t)n * sizeof *to), "%s", tp_why(r->T));
}

/* ---- counts ---- */

Test(roberta, counts_of_the_papers)
{
    static const struct {
        const char *name;
        int64_t with, without;
    } cases[] = {
        { "roberta-base-mlm", 125288025, 124697433 },
        { "roberta-base", 125237762, 124647170 },
        { "roberta-large-mlm", 356461657, 355412057 },
        { "roberta-large", 356411394, 355361794 },
        { "longformer-base-mlm", 149301849, 148711257 },
        { "longformer-base", 149251586, 148660994 },
        { "longformer-large-mlm", 435702873, 434653273 },
        { "longformer-large", 435652610, 434603010 },
        { "roberta_ls-base-mlm", 135164505, 134573913 },
        { "roberta_ls-base", 135114242, 134523650 },
        { "roberta_ls-large-mlm", 385420377, 384370777 },
        { "roberta_ls-large", 385370114, 384320514 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_model_cfg c = models_preset(cases[i].name);
        models_expect_count(&c, cases[i].with);
        ((tp_roberta_cfg *)&c.at)->no_pooler = true;
        models_expect_count(&c, cases[i].without);
    }
}

/* Computed apart from the library: 12 layers of 512 tokens; of 4096 with windows of 512 and one global token. */
Test(roberta, multiply_adds)
{
    static const struct {
        const char *name;
        double macs;
    } cases[] = { { "roberta-base", 48318973440.0 },
                  { "roberta-base-mlm", 68385374208.0 },
                  { "longformer-base", 443550598656.0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tp_model_cfg c = models_preset(cases[i].name);
        cr_expect_eq(tp_model_flops(&c, 0, 0).macs, cases[i].macs, "%s: %.0f", cases[i].name,
                     tp_model_flops(&c, 0, 0).macs);
    }
}

/* ---- masks, padding, global tokens ---- */

/* More padding changes nothing, whether a length suits the windows or not. */
Test(roberta, padding_changes_nothing)
{
    for (int kind = 0; kind < 3; kind++) {
        rig *r = open_rig(small((tp_roberta_kind)kind, TP_ROBERTA_CLS), 1);
        float a[B * 3], b[B * 3];
        int32_t ids[B * 30];
        const int real = 19;
        for (int n = real; n <= 30; n++) {
            for (int i = 0; i < B * n; i++)
                ids[i] = i % n >= real ? TP_ROBERTA_PAD
                         : i % n == 0  ? 0
                                       : 4 + (i % n * 5 + i / n * 3) % 40;
            tp_reset(r->T);
            const tp_tensor x = tp_from(r->T, TP_I32, TP_SHAPE(B, n), ids);
            read_values(r, tp_roberta_forward(r->T, &r->m, x), n == real ? a : b, B * 3);
            if (n > real) expect_near("logits", a, b, B * 3, 2e-6);
        }
        close_rig(r);
    }
}

/* Global tokens given as codes are those of the default, one each; samples may have none or all. */
Test(roberta, global_tokens)
{
    rig *r = open_rig(small(TP_ROBERTA_LONGFORMER, TP_ROBERTA_CLS), 1);
    float a[B * 3], b[B * 3];
    uint8_t code[B * N];
    const tp_tensor ids = texts(r->T, N, 6);
    for (int i = 0; i < B * N; i++) code[i] = i >= B * N - 6 ? 0 : i % N == 0 ? 2 : 1;
    read_values(r, tp_roberta_forward(r->T, &r->m, ids), a, B * 3);
    tp_roberta_in in = { .ids = ids, .global = tp_roberta_global_tokens(r->T, code, B, N) };
    read_values(r, tp_roberta_classify(r->T, &r->m, tp_roberta_encode(r->T, &r->m, in)), b, B * 3);
    expect_near("the first tokens", a, b, B * 3, 0.0);
    code[0] = 1; /* none in the first text, all real ones in the second */
    for (int i = N; i < B * N - 6; i++) code[i] = 2;
    in.global = tp_roberta_global_tokens(r->T, code, B, N);
    read_values(r, tp_roberta_classify(r->T, &r->m, tp_roberta_encode(r->T, &r->m, in)), b, B * 3);
    for (int i = 0; i < B * 3; i++) cr_expect(isfinite(b[i]));
    cr_expect(fabsf(a[0] - b[0]) > 1e-7f && fabsf(a[3] - b[3]) > 1e-7f);
    memset(code, 1, sizeof code);
    const tp_roberta_global none = tp_roberta_global_tokens(r->T, code, B, N);
    cr_expect(tp_given(none.local) && !tp_given(none.rows));
    close_rig(r);
}

/* Texts that are no whole windows: global tokens stay where they are. */
Test(roberta, global_tokens_of_padded_texts)
{
    rig *r = open_rig(small(TP_ROBERTA_LONGFORMER, TP_ROBERTA_MLM), 1);
    static float a[B * N * WORDS], b[B * 21 * WORDS];
    int32_t ids[B * N], less[B * 21];
    uint8_t code[B * N], codes[B * 21];
    for (int i = 0; i < B * N; i++) {
        const int t = i / N, at = i % N;
        ids[i] = at < 21 ? 4 + (i * 7 + t) % (WORDS - 5) : TP_ROBERTA_PAD;
        code[i] = at < 21 ? 1 + ((at + 2 * t) % 9 == 2) : 0;
        if (at < 21) less[t * 21 + at] = ids[i];
        if (at < 21) codes[t * 21 + at] = code[i];
    }
    const tp_roberta_in whole = { .ids = tp_from(r->T, TP_I32, TP_SHAPE(B, N), ids),
                                  .global = tp_roberta_global_tokens(r->T, code, B, N) };
    const tp_roberta_in part = { .ids = tp_from(r->T, TP_I32, TP_SHAPE(B, 21), less),
                                 .global = tp_roberta_global_tokens(r->T, codes, B, 21) };
    read_values(r, tp_roberta_predict(r->T, &r->m, tp_roberta_encode(r->T, &r->m, whole), TP_NONE),
                a, B * N * WORDS);
    read_values(r, tp_roberta_predict(r->T, &r->m, tp_roberta_encode(r->T, &r->m, part), TP_NONE),
                b, B * 21 * WORDS);
    for (int t = 0; t < B; t++)
        expect_near("a text", a + t * N * WORDS, b + t * 21 * WORDS, 21 * WORDS, 1e-6);
    close_rig(r);
}

/* ---- predictions ---- */

Test(roberta, logits_of_chosen_rows)
{
    static float all[B * N * WORDS], some[3 * WORDS];
    static const int32_t rows[] = { 3, N + 1, 2 * N - 1 };
    for (int kind = 0; kind < 3; kind++) {
        rig *r = open_rig(small((tp_roberta_kind)kind, TP_ROBERTA_MLM), 1);
        const tp_roberta_in in = { .ids = texts(r->T, N, 0) };
        const tp_tensor x = tp_roberta_encode(r->T, &r->m, in);
        read_values(r, tp_roberta_predict(r->T, &r->m, x, TP_NONE), all, B * N * WORDS);
        const tp_tensor at = tp_from(r->T, TP_I32, TP_SHAPE(3), rows);
        read_values(r, tp_roberta_predict(r->T, &r->m, x, at), some, 3 * WORDS);
        for (int i = 0; i < 3; i++)
            expect_near("a row", all + rows[i] * WORDS, some + i * WORDS, WORDS, 1e-6);
        close_rig(r);
    }
}

/* Recomputation and dropout: the same loss and gradients. */
Test(roberta, recomputation)
{
    static float first[WORDS * D], again[WORDS * D];
    for (int kind = 0; kind < 3; kind++)
        for (int what = TP_RECOMPUTE_NONE; what <= TP_RECOMPUTE_BLOCK; what++) {
            tp_roberta_cfg c = small((tp_roberta_kind)kind, TP_ROBERTA_MLM);
            c.dropout = c.attention_dropout = 0.2;
            c.recompute = (tp_recompute)what;
            rig *r = open_rig(c, 1);
            tp_train(r->T, true);
            const tp_tensor z = tp_roberta_forward(r->T, &r->m, texts(r->T, N, 5));
            tp_backward(r->T, tp_mean(r->T, tp_mul(r->T, z, z), TP_ALL));
            cr_assert(tp_ok(r->T), "%s", tp_why(r->T));
            float *to = what ? again : first;
            cr_assert(tp_param_get_grad(r->P, r->m.words.weight, TP_F32, to, sizeof first), "%s",
                      tp_params_why(r->P));
            if (what) expect_near("gradients", first, again, WORDS * D, 0.0);
            close_rig(r);
        }
}

/* ---- memory ---- */

/* Bytes that a recorded step keeps. */
static double kept(const tp_model_cfg *c)
{
    tp_device *dev = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(dev, NULL);
    tp_tape *T = tp_tape_new(dev, &(tp_tape_opts){ .train = true });
    tp_net *net = tp_net_new(P, "", c);
    double bytes[2];
    for (int k = 0; k < 2; k++) { /* the first one also makes room for gradients */
        tp_reset(T);
        const tp_tensor ids = tp_full(T, TP_I32, tp_model_shape(c, 1, 0), 0.0);
        bytes[0] = (double)tp_device_stats(dev).live_bytes;
        const tp_tensor z = tp_net_forward(T, net, NULL, ids);
        bytes[1] = (double)tp_device_stats(dev).live_bytes;
        if (k == 0) tp_backward(T, tp_sum(T, z, TP_ALL));
    }
    cr_assert(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    tp_net_free(net);
    tp_params_free(P);
    tp_device_close(dev);
    return bytes[1] - bytes[0];
}

Test(roberta, memory_of_a_step)
{
    for (int i = 0; i < 12; i++) {
        tp_model_cfg c = { .model = &tp_model_roberta };
        tp_roberta_cfg *r = (tp_roberta_cfg *)&c.at;
        *r = small((tp_roberta_kind)(i % 3), TP_ROBERTA_CLS);
        r->length = r->kind == TP_ROBERTA_LS ? 513 : 512;
        r->dim = 128;
        r->hidden = 256;
        r->rank *= 2;
        r->dropout = r->attention_dropout = 0.1; /* none at all would keep a tensor more */
        r->raw_kv = i >= 9;
        r->recompute = (tp_recompute)(i / 3 % 3);
        const double ours = kept(&c), formula = tp_model_activations(&c, 0, 0);
        cr_expect(fabs(ours / formula - 1.0) < 0.01, "kind %d, recompute %d: %.0f bytes, not %.0f",
                  i % 3, i / 3 % 3, ours, formula);
    }
}

/* ---- conversions ---- */

static void save(rig *r, const char *name)
{
    cr_assert(tp_save(r->P, in_folder(name)), "%s", tp_params_why(r->P));
}

static bool load(rig *r, const char *name)
{
    tp_file *F = tp_file_open(in_folder(name));
    const bool ok = tp_roberta_load(r->P, &r->m, F);
    tp_file_close(F);
    return ok;
}

/* As long as its window covers the text and no token is global, a converted Longformer is RoBERTa. */
Test(roberta, converted_to_longformer, .init = make_folder, .fini = remove_folder)
{
    static float a[B * N * WORDS], b[B * N * WORDS], p[66 * D], q[34 * D], u[D * D], v[D * D];
    rig *r = open_rig(small(TP_ROBERTA_FULL, TP_ROBERTA_MLM), 1);
    save(r, "roberta");
    read_values(r, tp_roberta_forward(r->T, &r->m, texts(r->T, N, 0)), a, B * N * WORDS);
    tp_roberta_cfg c = small(TP_ROBERTA_LONGFORMER, TP_ROBERTA_MLM);
    c.window = 2 * N;
    c.length = 64;
    rig *s = open_rig(c, 5);
    cr_assert(load(s, "roberta"), "%s", tp_params_why(s->P));
    read_values(s, tp_roberta_forward(s->T, &s->m, texts(s->T, N, 0)), b, B * N * WORDS);
    expect_near("logits", a, b, B * N * WORDS, 2e-6);
    cr_assert(tp_param_get(r->P, r->m.positions.weight, TP_F32, q, sizeof q));
    cr_assert(tp_param_get(s->P, s->m.positions.weight, TP_F32, p, sizeof p));
    for (int i = 0; i < 66; i++) {
        const int from = i < 2 ? i : 2 + (i - 2) % 32;
        cr_expect(memcmp(p + i * D, q + from * D, D * sizeof *p) == 0, "position %d", i);
    }
    const tp_longformer_m *w = &s->m.layer[1].window;
    cr_assert(tp_param_get(s->P, w->key.weight, TP_F32, u, sizeof u));
    cr_assert(tp_param_get(s->P, w->key_global.weight, TP_F32, v, sizeof v));
    cr_expect(memcmp(u, v, sizeof u) == 0);
    memset(u, 0, sizeof u);
    cr_assert(tp_param_set(s->P, w->key.weight, TP_F32, u, sizeof u));
    cr_assert(tp_roberta_copy_global(s->P, &s->m));
    cr_assert(tp_param_get(s->P, w->key_global.weight, TP_F32, v, sizeof v));
    cr_expect(memcmp(u, v, sizeof u) == 0);
    close_rig(r);
    close_rig(s);
}

/* Everything but what is new is copied; a classifier loads a model that predicts tokens. */
Test(roberta, converted_to_long_short, .init = make_folder, .fini = remove_folder)
{
    static float u[WORDS * D], v[WORDS * D];
    rig *r = open_rig(small(TP_ROBERTA_FULL, TP_ROBERTA_MLM), 1);
    save(r, "roberta");
    rig *s = open_rig(small(TP_ROBERTA_LS, TP_ROBERTA_CLS), 5);
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
    close_rig(r);
    close_rig(s);
}

/* ---- published names ---- */

typedef struct renaming {
    const char *from, *to;
} renaming;

/* Writes the weights of P under other names: the first row whose `from` is a part of a name replaces it; "" in `to`
 * at a whole name leaves the tensor out. */
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

Test(roberta, published_names, .init = make_folder, .fini = remove_folder)
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
        *(tp_roberta_cfg *)&c.at = small(cases[i].kind, TP_ROBERTA_MLM);
        rig *r = open_rig(*(tp_roberta_cfg *)&c.at, 1);
        const float zero[D] = { 0 };
        if (!cases[i].types)
            cr_assert(tp_param_set(r->P, r->m.types.weight, TP_F32, zero, sizeof zero));
        read_values(r, tp_roberta_forward(r->T, &r->m, texts(r->T, N, 0)), a, B * N * WORDS);
        write_renamed(r, "file", cases[i].rows);
        close_rig(r);
        tp_file *F = tp_file_open(in_folder("file"));
        cr_assert(tp_model_adopt(&c, F, NULL, 0), "%s: %s", cases[i].name, tp_file_why(F));
        r = open_rig(*(tp_roberta_cfg *)&c.at, 7);
        cr_expect(tp_roberta_load(r->P, &r->m, F), "%s: %s", cases[i].name, tp_params_why(r->P));
        tp_file_close(F);
        read_values(r, tp_roberta_forward(r->T, &r->m, texts(r->T, N, 0)), b, B * N * WORDS);
        expect_near(cases[i].name, a, b, B * N * WORDS, 0.0);
        close_rig(r);
    }
}

/* One call loads a file of the same model, with or without what publishers leave out. */
Test(roberta, one_call_loads_a_file, .init = make_folder, .fini = remove_folder)
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
        *(tp_roberta_cfg *)&c.at = small((tp_roberta_kind)(i % 3), TP_ROBERTA_MLM);
        rig *r = open_rig(*(tp_roberta_cfg *)&c.at, 1);
        if (!cases[i].types)
            cr_assert(tp_param_set(r->P, r->m.types.weight, TP_F32, zero, sizeof zero));
        read_values(r, tp_roberta_forward(r->T, &r->m, texts(r->T, N, 0)), a, B * N * WORDS);
        write_renamed(r, "file", cases[i].rows);
        close_rig(r);
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
            const tp_tensor z = tp_net_forward(T, net, NULL, texts(T, N, 0));
            cr_assert(tp_read(T, z, b, sizeof b), "%s", tp_why(T));
            expect_near(cases[i].name, a, b, B * N * WORDS, 0.0);
            tp_tape_free(T);
        }
        tp_net_free(net);
        tp_params_free(P);
        tp_device_close(dev);
    }
}

/* ---- refusals ---- */

Test(roberta, files_that_do_not_fit, .init = make_folder, .fini = remove_folder)
{
    rig *r = open_rig(small(TP_ROBERTA_FULL, TP_ROBERTA_MLM), 1);
    static const renaming lacking[] = { { "roberta.encoder.layer.1.output.dense.", NULL }, { 0 } };
    write_renamed(r, "lacking", lacking);
    rig *s = open_rig(small(TP_ROBERTA_LS, TP_ROBERTA_MLM), 1);
    cr_expect_not(load(s, "lacking"));
    cr_expect(strstr(tp_params_why(s->P), "roberta.encoder.layer.1.output.dense.weight is missing"),
              "%s", tp_params_why(s->P));
    close_rig(s);
    save(r, "narrow");
    tp_roberta_cfg c = small(TP_ROBERTA_FULL, TP_ROBERTA_MLM);
    c.hidden = 32;
    s = open_rig(c, 1);
    cr_expect_not(load(s, "narrow"));
    cr_expect(strstr(tp_params_why(s->P),
                     "roberta.encoder.layer.0.intermediate.dense.weight has the shape [24,16], not "
                     "[32,16]; is it a model of this size?"),
              "%s", tp_params_why(s->P));
    close_rig(s);
    c = small(TP_ROBERTA_LONGFORMER, TP_ROBERTA_MLM);
    c.layers = 1;
    s = open_rig(c, 1);
    cr_expect_not(load(s, "narrow"));
    cr_expect(
        strstr(tp_params_why(s->P), "has more than the model's 1 layers: roberta.encoder.layer.1."),
        "%s", tp_params_why(s->P));
    close_rig(s);
    close_rig(r);
}

/* Global projections are copied if a file has none of them; a file with some of them is refused. */
Test(roberta, some_global_projections, .init = make_folder, .fini = remove_folder)
{
    static const char *const lacking[] = { "roberta.encoder.layer.1.attention.self.value_global.",
                                           "roberta.encoder.layer.0.attention.self.query_global.",
                                           "_global." };
    const tp_roberta_cfg c = small(TP_ROBERTA_LONGFORMER, TP_ROBERTA_MLM);
    rig *r = open_rig(c, 1);
    for (int i = 0; i < 3; i++) {
        char name[100];
        write_renamed(r, "some", (const renaming[]){ { lacking[i], NULL }, { 0 } });
        rig *s = open_rig(c, 5);
        cr_expect_eq(load(s, "some"), i == 2, "%s", tp_params_why(s->P));
        snprintf(name, sizeof name, "%sweight is missing, though other global", lacking[i]);
        if (i < 2) cr_expect(strstr(tp_params_why(s->P), name), "%s", tp_params_why(s->P));
        close_rig(s);
    }
    close_rig(r);
}

Test(roberta, impossible_configurations)
{
    static const models_member rows[] = {
        { "layers", offsetof(tp_roberta_cfg, layers), 0, true },
        { "layers", offsetof(tp_roberta_cfg, layers), 65, true },
        { "3 heads do not divide the width 16", offsetof(tp_roberta_cfg, heads), 3, true },
        { "vocabulary", offsetof(tp_roberta_cfg, vocab), 4, false },
        { "texts have", offsetof(tp_roberta_cfg, length), 0, false },
        { "0 classes", offsetof(tp_roberta_cfg, classes), 0, false },
        { "hidden width", offsetof(tp_roberta_cfg, hidden), 0, false },
        { "not even", offsetof(tp_roberta_cfg, window), 7, false },
        { "the window has 0", offsetof(tp_roberta_cfg, window), 0, false },
        { 0 },
    };
    const tp_roberta_cfg c = small(TP_ROBERTA_LONGFORMER, TP_ROBERTA_CLS);
    models_expect_impossible(&tp_model_roberta, &c, rows);
}

/* Rows that padding to whole windows makes are the limit; full attention has no window, whatever cfg says. */
Test(roberta, longest_texts)
{
    static const int most[] = {
        [TP_ROBERTA_FULL] = 32, [TP_ROBERTA_LONGFORMER] = 32, [TP_ROBERTA_LS] = 33
    };
    for (int kind = 0; kind < 3; kind++) {
        tp_roberta_cfg c = small((tp_roberta_kind)kind, TP_ROBERTA_CLS);
        c.window = 8;
        rig *r = open_rig(c, 1);
        float x[B * 3];
        int32_t ids[B * 40];
        for (int i = 0; i < B * 40; i++) ids[i] = i % most[kind] < 32 ? 4 : TP_ROBERTA_PAD;
        const tp_tensor fits = tp_from(r->T, TP_I32, TP_SHAPE(B, most[kind]), ids);
        read_values(r, tp_roberta_forward(r->T, &r->m, fits), x, B * 3);
        for (int i = 0; i < B * 3; i++) cr_expect(isfinite(x[i]));
        tp_roberta_forward(r->T, &r->m, tp_from(r->T, TP_I32, TP_SHAPE(B, most[kind] + 1), ids));
        cr_expect(strstr(tp_why(r->T), "are longer than the 32 of this model: cut them"), "%s",
                  tp_why(r->T));
        if (kind == TP_ROBERTA_LS) { /* the window's last token is real, too */
            tp_clear(r->T);
            tp_reset(r->T);
            ids[33 + 32] = 4;
            tp_roberta_forward(r->T, &r->m, tp_from(r->T, TP_I32, TP_SHAPE(B, 33), ids));
            cr_expect(strstr(tp_why(r->T), "text 1 has 33 tokens, more than the 32 of this model"),
                      "%s", tp_why(r->T));
        }
        close_rig(r);
    }
}

Test(roberta, inputs_that_are_refused)
{
    rig *r = open_rig(small(TP_ROBERTA_FULL, TP_ROBERTA_CLS), 1);
    tp_roberta_forward(r->T, &r->m, texts(r->T, 40, 0));
    cr_expect(strstr(tp_why(r->T), "texts of 40 tokens are longer than the 32 of this model"), "%s",
              tp_why(r->T));
    tp_clear(r->T);
    tp_reset(r->T);
    const tp_tensor x = tp_full(r->T, TP_F32, TP_SHAPE(B, N, D), 0.0);
    tp_roberta_predict(r->T, &r->m, x, TP_NONE);
    cr_expect(strstr(tp_why(r->T), "no head that predicts tokens"), "%s", tp_why(r->T));
    close_rig(r);
}
