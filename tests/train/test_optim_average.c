/* test_optim_average.c - values that an optimiser evaluates with: schedulefree's averages against
 * the published recurrence, swapping without a trace; and which parameters muon takes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/checkpoint.h"
#include "support/device.h"
#include "support/folder.h"
#include "support/optim_world.h"

TestSuite(optim_average, .init = make_folder, .fini = remove_folder);

static const double lr = 0.05;

/* x = (1-c) x + c z beside the plain y and z of one parameter. */
static void plain_average(const optim_form *f, optim_plain *s, int i, double *x)
{
    static double g[OPTIM_LARGEST], h[OPTIM_LARGEST];
    memcpy(x, s->p, sizeof g);
    for (int step = 0; step < OPTIM_STEPS; step++) {
        optim_gradient(step, i, g);
        if (step == 4) {
            optim_gradient(step + 50, i, h);
            for (int64_t k = 0; k < s->numel; k++) g[k] = 0.5 * (g[k] + h[k]);
        }
        optim_plain_step(f, s, g, lr);
        for (int64_t k = 0; k < s->numel; k++) x[k] = (1.0 - s->c) * x[k] + s->c * s->u[k];
    }
}

Test(optim_average, swapped_values_are_the_published_averages)
{
    static optim_plain s;
    static double x[OPTIM_LARGEST], now[OPTIM_LARGEST], again[OPTIM_LARGEST];
    for (int c = 0; c < 4; c++) {
        const optim_form *f = optim_form_of(c % 2 ? "schedulefree all" : "schedulefree");
        const tp_dtype dt = c / 2 ? TP_F64 : TP_F32;
        if (dt == TP_F64 && device_is_cuda()) continue;
        optim_world w = optim_world_new(dt, 2);
        tp_optim *O = optim_make(w.P, f);
        memset(&s, 0, sizeof s);
        s.name = optim_params[0].name;
        s.shape = optim_params[0].shape;
        s.numel = optim_params[0].numel;
        optim_get(&w, 0, s.p);
        cr_expect(tp_optim_has_averages(O) && tp_optim_swap(O) && tp_optim_swap(O), "before steps");
        plain_average(f, &s, 0, x);
        for (int step = 0; step < OPTIM_STEPS; step++) {
            optim_run_step(&w, O, step, lr);
            optim_get(&w, 0, now);
            cr_assert(tp_optim_swap(O), "%s", tp_optim_why(O));
            if (step == OPTIM_STEPS - 1) break;
            cr_assert(tp_optim_swap(O), "%s", tp_optim_why(O));
            optim_get(&w, 0, again);
            cr_assert_arr_eq(now, again, (size_t)s.numel * sizeof *now, "bits are restored");
        }
        double worst = 0.0;
        optim_get(&w, 0, now);
        for (int64_t k = 0; k < s.numel; k++) worst = fmax(worst, fabs(now[k] - x[k]));
        cr_expect(worst <= (dt == TP_F64 ? 1e-13 : 2e-6), "%s: off by %g", f->name, worst);
        tp_optim_free(O); /* while swapped: the averages stay */
        optim_get(&w, 0, again);
        cr_expect_arr_eq(now, again, (size_t)s.numel * sizeof *now);
        tp_optim *next = optim_make(w.P, f);
        optim_run_step(&w, next, 0, lr);
        cr_expect(tp_optim_ok(next), "%s", tp_optim_why(next));
        tp_optim_free(next);
        optim_world_free(&w);
    }
}

Test(optim_average, refusals)
{
    const char *path = in_folder("last.safetensors");
    optim_world w = optim_world_new(TP_F32, 1);
    tp_optim *O = tp_optim_new(w.P, "schedulefree", NULL), *adam = tp_adamw_new(w.P, NULL);
    tp_ema *E = tp_ema_new(w.P, 0.5);
    cr_expect_not(tp_optim_has_averages(adam));
    cr_expect_not(tp_optim_has_averages(NULL));
    cr_expect_not(tp_optim_swap(NULL));
    cr_expect_not(tp_optim_swap(adam));
    cr_expect_str_eq(tp_optim_why(adam), "tp_optim_swap: adamw keeps no averages; those of "
                                         "tp_ema_new work with every optimiser");
    cr_assert(tp_ema_swap(E));
    cr_expect_not(tp_optim_swap(O));
    cr_expect_str_eq(tp_optim_why(O), "tp_optim_swap: the parameters hold the averages; call "
                                      "tp_ema_swap first to restore the values");
    cr_assert(tp_ema_swap(E));
    cr_assert(tp_optim_swap(O), "%s", tp_optim_why(O));
    const double g = 0.0;
    cr_assert(tp_param_set_grad(w.P, w.p[2], TP_F64, &g, sizeof g), "%s", tp_params_why(w.P));
    cr_expect_not(tp_step(O, 0.1));
    cr_expect_str_eq(tp_optim_why(O), "tp_step: the parameters hold the averages; call "
                                      "tp_optim_swap first to restore the values");
    cr_expect_not(tp_ema_swap(E));
    cr_expect_str_eq(tp_ema_why(E), "tp_ema_swap: the parameters hold the averages; call "
                                    "tp_optim_swap first to restore the values");
    tp_writer *W = tp_writer_new(path);
    cr_expect_not(tp_optim_write(O, W, NULL));
    cr_expect(strstr(tp_writer_why(W), "tp_optim_write: the parameters hold the averages; call "
                                       "tp_optim_swap first to restore the values"),
              "%s", tp_writer_why(W));
    tp_writer_free(W);
    cr_assert(tp_optim_swap(O), "%s", tp_optim_why(O));
    cr_expect_not(tp_optim_set(O, "beta1", 0.5));
    cr_expect_str_eq(tp_optim_why(O),
                     "tp_optim_set: beta1 is read only when the optimiser is created");
    tp_ema_free(E);
    tp_optim_free(adam);
    tp_optim_free(O);
    optim_world_free(&w);
}

/* The weights of past steps are part of a checkpoint, as impossible ones are of none. */
Test(optim_average, sums_in_files)
{
    const char *path = in_folder("last.safetensors");
    char why[1300];
    optim_world w = optim_world_new(TP_F32, 1);
    tp_optim *O = tp_optim_new(w.P, "schedulefree", NULL);
    for (int step = 0; step < 3; step++) optim_run_step(&w, O, step, step ? 0.1 : 0.2);
    tp_writer *W = tp_writer_new(path);
    cr_assert(tp_optim_write(O, W, NULL) && tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(path);
    double largest = 0.0, weights = 0.0;
    cr_expect(tp_file_num(F, "optim.largest_lr", &largest));
    cr_expect(tp_file_num(F, "optim.weights", &weights));
    cr_expect_eq(largest, 0.2);
    cr_expect_float_eq(weights, 3 * 0.04, 1e-15);
    cr_expect(tp_optim_read(O, F, NULL), "%s", tp_optim_why(O));
    tp_file_close(F);
    change_number(path, "optim.weights", -1);
    F = tp_file_open(path);
    cr_expect_not(tp_optim_read(O, F, NULL));
    snprintf(why, sizeof why,
             "%s: the metadata 'optim.weights' must be a finite number, at least 0", path);
    cr_expect_str_eq(tp_optim_why(O), why);
    tp_file_close(F);
    tp_optim_free(O);
    optim_world_free(&w);
}

/* ---- muon ---- */

Test(optim_average, muon_takes_hidden_matrices)
{
    static const struct {
        const char *name;
        tp_shape shape;
        bool takes;
    } cases[] = {
        { "layers.0.attn.q.weight", { 2, { 8, 8 } }, true },
        { "fc.weight", { 2, { 2, 300 } }, true },
        { "fc.bias", { 1, { 8 } }, false },
        { "row.weight", { 2, { 1, 8 } }, false },
        { "column.weight", { 2, { 8, 1 } }, false },
        { "conv.weight", { 4, { 8, 3, 3, 8 } }, false },
        { "embed.weight", { 2, { 100, 8 } }, false },
        { "transformer.wte.weight", { 2, { 100, 8 } }, false },
        { "transformer.wpe.weight", { 2, { 100, 8 } }, false },
        { "pos", { 2, { 100, 8 } }, false },
        { "lm_head.weight", { 2, { 100, 8 } }, false },
        { "classifier.weight", { 2, { 10, 8 } }, false },
    };
    static const char *const hidden[] = {
        "encoder.layers.0.self_attn.in_proj_weight", /* torch */
        "decoder.layers.0.multihead_attn.q_proj.weight",
        "decoder.layers.0.linear1.weight",
        "blocks.0.attn.qkv.weight", /* timm */
        "layers.0.blocks.0.mlp.fc1.weight",
        "transformer.h.0.attn.c_attn.weight", /* GPT-2 */
        "transformer.h.0.mlp.c_fc.weight",
        "model.layers.0.self_attn.q_proj.weight", /* Llama */
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.post_attention.proj.weight",
        "roberta.encoder.layer.0.attention.self.query.weight",
        "layers.0.attn.proj_query.weight", /* long-short attention */
        "layers.0.attn.r_net.weight",
        "compose.weight",
        "member.weight",
        "remember_gate.weight",
    };
    static const char *const outer[] = {
        "embedding.weight", /* torch */
        "heads.head.weight",
        "encoder.pos_embedding",
        "head.fc.weight", /* timm */
        "head_dist.weight",
        "layers.0.blocks.0.attn.relative_position_bias_table",
        "blocks.0.attn.rel_pos_h",
        "absolute_pos_embed",
        "lm_head.weight", /* GPT-2, Llama */
        "model.embed_tokens.weight",
        "tok_embeddings.weight",
        "roberta.embeddings.word_embeddings.weight",
        "roberta.embeddings.position_embeddings.weight",
        "classifier.out_proj.weight",
        "positional_embedding", /* CLIP */
        "posemb.weight",
        "word_emb.emb_layers.0.weight", /* Transformer-XL */
    };
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        cr_expect(tp_muon_takes(hidden[i], TP_SHAPE(8, 8)), "%s", hidden[i]);
    for (size_t i = 0; i < sizeof outer / sizeof *outer; i++)
        cr_expect_not(tp_muon_takes(outer[i], TP_SHAPE(8, 8)), "%s", outer[i]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(tp_muon_takes(cases[i].name, cases[i].shape), cases[i].takes, "%s",
                     cases[i].name);
    cr_expect_not(tp_muon_takes(NULL, TP_SHAPE(4, 4)));
}

static bool takes(const char *name, tp_shape s, void *env)
{
    (void)s;
    return strcmp(name, env) == 0;
}

/* A rule of the caller decides; only what it takes needs one moment. */
Test(optim_average, muon_by_a_rule)
{
    optim_world w = optim_world_new(TP_F32, 1);
    tp_optim *usual = tp_optim_new(w.P, "muon", NULL);
    tp_optim *none =
        tp_optim_new(w.P, "muon", &(tp_optim_opts){ .takes = takes, .env = (void *)"nobody" });
    cr_expect_eq(tp_optim_bytes(none) - tp_optim_bytes(usual), 70 * 130 * sizeof(float));
    tp_optim *bad = tp_optim_new(w.P, "muon",
                                 &(tp_optim_opts){ .takes = takes, .env = (void *)"stack.weight" });
    cr_expect_str_eq(tp_optim_why(bad), "muon: 'stack.weight' has 3 axes; the rule "
                                        "tp_optim_opts.takes may take only matrices");
    tp_optim_free(bad);
    tp_optim_free(none);
    tp_optim_free(usual);
    optim_world_free(&w);
}

/* An update turns all singular values into about 1: its size does not depend on the gradient's. */
Test(optim_average, muon_of_any_scale)
{
    static double g[OPTIM_LARGEST], was[OPTIM_LARGEST], now[OPTIM_LARGEST];
    for (int scale = -12; scale <= 12; scale += 12) {
        optim_world w = optim_world_new(TP_F32, 2);
        tp_optim *O = tp_optim_new(w.P, "muon", NULL);
        const size_t n = (size_t)optim_params[0].numel;
        optim_gradient(0, 0, g);
        for (size_t k = 0; k < n; k++) g[k] = ldexp(g[k], scale);
        optim_get(&w, 0, was);
        cr_assert(tp_param_set_grad(w.P, w.p[0], TP_F64, g, n * sizeof *g));
        cr_assert(tp_step(O, 0.1), "%s", tp_optim_why(O));
        optim_get(&w, 0, now);
        double sum = 0.0;
        for (size_t k = 0; k < n; k++) sum += (now[k] - was[k]) * (now[k] - was[k]);
        /* |s X|^2 = 0.04 max(R,C) min(R,C) if all singular values are 1 */
        cr_expect_float_eq(sqrt(sum / (double)n), 0.1 * 0.2, 0.006, "2^%d: %g", scale,
                           sqrt(sum / (double)n));
        tp_optim_free(O);
        optim_world_free(&w);
    }
}
