/* test_roberta.c - RoBERTa, Longformer and long-short RoBERTa: counts, masks and global tokens,
 * predictions of chosen rows, recomputation, memory, refusals. test_roberta_files.c has conversions
 * and published files. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/roberta.h>

#include "support/models.h"
#include "support/roberta.h"

enum { B = ROBERTA_TEXTS, N = 24, WORDS = ROBERTA_WORDS, D = ROBERTA_DIM };

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

/* Computed independently: 12 layers of 512 tokens; of 4096 with windows of 512 and one global
 * token. */
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
        cr_expect_eq(tp_model_cost(&c, 0, 0).macs, cases[i].macs, "%s: %.0f", cases[i].name,
                     tp_model_cost(&c, 0, 0).macs);
    }
}

/* ---- masks, padding, global tokens ---- */

/* More padding changes nothing, whether or not lengths fit windows. */
Test(roberta, padding_changes_nothing)
{
    for (int kind = 0; kind < 3; kind++) {
        rig *r = roberta_open(roberta_small((tp_roberta_kind)kind, TP_ROBERTA_CLS), 1);
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
            roberta_values(r, tp_model_roberta.forward(r->T, r->m, NULL, x), n == real ? a : b,
                           B * 3);
            if (n > real) roberta_expect_near("logits", a, b, B * 3, 2e-6);
        }
        roberta_close(r);
    }
}

/* Global tokens given as codes equal the default, one each; samples may have none or all. */
Test(roberta, global_tokens)
{
    rig *r = roberta_open(roberta_small(TP_ROBERTA_LONGFORMER, TP_ROBERTA_CLS), 1);
    float a[B * 3], b[B * 3];
    uint8_t code[B * N];
    const tp_tensor ids = roberta_texts(r->T, N, 6);
    for (int i = 0; i < B * N; i++) code[i] = i >= B * N - 6 ? 0 : i % N == 0 ? 2 : 1;
    roberta_values(r, tp_model_roberta.forward(r->T, r->m, NULL, ids), a, B * 3);
    tp_roberta_in in = { .ids = ids, .global = tp_roberta_global_tokens(r->T, code, B, N) };
    roberta_values(r, tp_roberta_classify(r->T, r->m, tp_roberta_encode(r->T, r->m, in)), b, B * 3);
    roberta_expect_near("the first tokens", a, b, B * 3, 0.0);
    code[0] = 1; /* none in the first text, all real ones in the second */
    for (int i = N; i < B * N - 6; i++) code[i] = 2;
    in.global = tp_roberta_global_tokens(r->T, code, B, N);
    roberta_values(r, tp_roberta_classify(r->T, r->m, tp_roberta_encode(r->T, r->m, in)), b, B * 3);
    for (int i = 0; i < B * 3; i++) cr_expect(isfinite(b[i]));
    cr_expect(fabsf(a[0] - b[0]) > 1e-7f && fabsf(a[3] - b[3]) > 1e-7f);
    memset(code, 1, sizeof code);
    const tp_roberta_global none = tp_roberta_global_tokens(r->T, code, B, N);
    cr_expect(tp_given(none.local) && !tp_given(none.rows));
    roberta_close(r);
}

/* Texts that do not fill windows: global tokens stay in place. */
Test(roberta, global_tokens_of_padded_texts)
{
    rig *r = roberta_open(roberta_small(TP_ROBERTA_LONGFORMER, TP_ROBERTA_MLM), 1);
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
    roberta_values(r, tp_roberta_predict(r->T, r->m, tp_roberta_encode(r->T, r->m, whole), TP_NONE),
                   a, B * N * WORDS);
    roberta_values(r, tp_roberta_predict(r->T, r->m, tp_roberta_encode(r->T, r->m, part), TP_NONE),
                   b, B * 21 * WORDS);
    for (int t = 0; t < B; t++)
        roberta_expect_near("a text", a + t * N * WORDS, b + t * 21 * WORDS, 21 * WORDS, 1e-6);
    roberta_close(r);
}

/* ---- predictions ---- */

Test(roberta, logits_of_chosen_rows)
{
    static float all[B * N * WORDS], some[3 * WORDS];
    static const int32_t rows[] = { 3, N + 1, 2 * N - 1 };
    for (int kind = 0; kind < 3; kind++) {
        rig *r = roberta_open(roberta_small((tp_roberta_kind)kind, TP_ROBERTA_MLM), 1);
        const tp_roberta_in in = { .ids = roberta_texts(r->T, N, 0) };
        const tp_tensor x = tp_roberta_encode(r->T, r->m, in);
        roberta_values(r, tp_roberta_predict(r->T, r->m, x, TP_NONE), all, B * N * WORDS);
        const tp_tensor at = tp_from(r->T, TP_I32, TP_SHAPE(3), rows);
        roberta_values(r, tp_roberta_predict(r->T, r->m, x, at), some, 3 * WORDS);
        for (int i = 0; i < 3; i++)
            roberta_expect_near("a row", all + rows[i] * WORDS, some + i * WORDS, WORDS, 1e-6);
        roberta_close(r);
    }
}

/* Recomputation and dropout: the same loss and gradients. */
Test(roberta, recomputation)
{
    static float first[WORDS * D], again[WORDS * D];
    for (int kind = 0; kind < 3; kind++)
        for (int what = TP_RECOMPUTE_NONE; what <= TP_RECOMPUTE_BLOCK; what++) {
            tp_roberta_cfg c = roberta_small((tp_roberta_kind)kind, TP_ROBERTA_MLM);
            c.dropout = c.attention_dropout = 0.2;
            c.recompute = (tp_recompute)what;
            rig *r = roberta_open(c, 1);
            tp_train(r->T, true);
            const tp_tensor z =
                tp_model_roberta.forward(r->T, r->m, NULL, roberta_texts(r->T, N, 5));
            tp_backward(r->T, tp_mean(r->T, tp_mul(r->T, z, z), TP_ALL));
            cr_assert(tp_ok(r->T), "%s", tp_why(r->T));
            float *to = what ? again : first;
            cr_assert(
                tp_param_get_grad(r->P, roberta_of(r)->words.weight, TP_F32, to, sizeof first),
                "%s", tp_params_why(r->P));
            if (what) roberta_expect_near("gradients", first, again, WORDS * D, 0.0);
            roberta_close(r);
        }
}

/* ---- memory ---- */

/* Bytes that a recorded step keeps, without the waste of block allocation. */
static double kept(const tp_model_cfg *c)
{
    tp_device *dev = tp_device_open("cpu", &(tp_device_opts){ .dry = true, .exact = true });
    tp_params *P = tp_params_new(dev, NULL);
    tp_tape *T = tp_tape_new(dev, &(tp_tape_opts){ .train = true });
    tp_net *net = tp_net_new(P, "", c);
    double bytes[2];
    for (int k = 0; k < 2; k++) { /* the first run also allocates gradients */
        tp_reset(T);
        const tp_tensor ids = tp_full(T, TP_I32, tp_model_input_shape(c, 1, 0), 0.0);
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
        *r = roberta_small((tp_roberta_kind)(i % 3), TP_ROBERTA_CLS);
        r->length = r->kind == TP_ROBERTA_LS ? 513 : 512;
        r->dim = 128;
        r->hidden = 256;
        r->rank *= 2;
        r->dropout = r->attention_dropout = 0.1; /* zero would keep one more tensor */
        r->raw_kv = i >= 9;
        r->recompute = (tp_recompute)(i / 3 % 3);
        const double ours = kept(&c), formula = tp_model_cost(&c, 0, 0).saved;
        cr_expect(fabs(ours / formula - 1.0) < 0.003, "kind %d, recompute %d: %.0f bytes, not %.0f",
                  i % 3, i / 3 % 3, ours, formula);
    }
}

/* ---- refusals ---- */

Test(roberta, impossible_configurations)
{
    static const models_member rows[] = {
        { "layers", offsetof(tp_roberta_cfg, layers), 0, true },
        { "layers", offsetof(tp_roberta_cfg, layers), 65, true },
        { "3 heads do not divide the width 16", offsetof(tp_roberta_cfg, heads), 3, true },
        { "vocab_size = 4 must be 5 to 16777216", offsetof(tp_roberta_cfg, vocab), 4, false },
        { "max_tokens = 0 must be 1 to 1048576", offsetof(tp_roberta_cfg, length), 0, false },
        { "there are no classes", offsetof(tp_roberta_cfg, classes), 0, false },
        { "intermediate_size = 0 must be 1 to 1048576", offsetof(tp_roberta_cfg, hidden), 0,
          false },
        { "not even", offsetof(tp_roberta_cfg, window), 7, false },
        { "Longformer's window of 0 tokens is not even and at least 2",
          offsetof(tp_roberta_cfg, window), 0, false },
        { 0 },
    };
    const tp_roberta_cfg c = roberta_small(TP_ROBERTA_LONGFORMER, TP_ROBERTA_CLS);
    models_expect_impossible(&tp_model_roberta, &c, rows);
}

/* The limit includes padding to full windows; full attention has no window, whatever cfg says. */
Test(roberta, longest_texts)
{
    static const int most[] = {
        [TP_ROBERTA_FULL] = 32, [TP_ROBERTA_LONGFORMER] = 32, [TP_ROBERTA_LS] = 33
    };
    for (int kind = 0; kind < 3; kind++) {
        tp_roberta_cfg c = roberta_small((tp_roberta_kind)kind, TP_ROBERTA_CLS);
        c.window = 8;
        rig *r = roberta_open(c, 1);
        float x[B * 3];
        int32_t ids[B * 40];
        for (int i = 0; i < B * 40; i++) ids[i] = i % most[kind] < 32 ? 4 : TP_ROBERTA_PAD;
        const tp_tensor fits = tp_from(r->T, TP_I32, TP_SHAPE(B, most[kind]), ids);
        roberta_values(r, tp_model_roberta.forward(r->T, r->m, NULL, fits), x, B * 3);
        for (int i = 0; i < B * 3; i++) cr_expect(isfinite(x[i]));
        tp_model_roberta.forward(r->T, r->m, NULL,
                                 tp_from(r->T, TP_I32, TP_SHAPE(B, most[kind] + 1), ids));
        cr_expect(strstr(tp_why(r->T), "are longer than the 32 of this model: cut them"), "%s",
                  tp_why(r->T));
        if (kind == TP_ROBERTA_LS) { /* the window's last token is also real */
            tp_clear(r->T);
            tp_reset(r->T);
            ids[33 + 32] = 4;
            tp_model_roberta.forward(r->T, r->m, NULL, tp_from(r->T, TP_I32, TP_SHAPE(B, 33), ids));
            cr_expect(strstr(tp_why(r->T), "text 1 has 33 tokens, more than the 32 of this model"),
                      "%s", tp_why(r->T));
        }
        roberta_close(r);
    }
}

Test(roberta, inputs_that_are_refused)
{
    rig *r = roberta_open(roberta_small(TP_ROBERTA_FULL, TP_ROBERTA_CLS), 1);
    tp_model_roberta.forward(r->T, r->m, NULL, roberta_texts(r->T, 40, 0));
    cr_expect(strstr(tp_why(r->T), "texts of 40 tokens are longer than the 32 of this model"), "%s",
              tp_why(r->T));
    tp_clear(r->T);
    tp_reset(r->T);
    const tp_tensor x = tp_full(r->T, TP_F32, TP_SHAPE(B, N, D), 0.0);
    tp_roberta_predict(r->T, r->m, x, TP_NONE);
    cr_expect(strstr(tp_why(r->T), "no head that predicts tokens"), "%s", tp_why(r->T));
    roberta_close(r);
}
