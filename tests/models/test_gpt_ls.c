/* test_gpt_ls.c - long-short attention in GPT-2 and Llama: the module of the language model with
 * the same parameters, decoding against forward passes, recomputation, causality, refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/gpt.h>

#include "support/device.h"
#include "support/values.h"

enum { V = 17, D = 12, LAYERS = 2, HEADS = 2, MOST = 32, TEXTS = 2 };

static const struct {
    const char *name;
    bool llama;
    int chunk, rank, window;
} forms[] = {
    { "gpt2", false, 4, 1, 6 },
    { "gpt2, rank 2, short window", false, 2, 2, 1 },
    { "llama", true, 3, 2, 5 },
    { "llama, a window as long as the text", true, 4, 1, MOST },
};
enum { FORMS = sizeof forms / sizeof *forms };

static tp_gpt_cfg config(int f)
{
    return (tp_gpt_cfg){ .vocab = V,
                         .dim = D,
                         .hidden = 20,
                         .layers = LAYERS,
                         .heads = HEADS,
                         .positions = MOST,
                         .base = 1000,
                         .eps = 1e-5,
                         .tied = true,
                         .ls_chunk = forms[f].chunk,
                         .ls_rank = forms[f].rank,
                         .ls_window = forms[f].window };
}

typedef struct bench {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_net *net;
} bench;

static bench open_bench(int f, const tp_gpt_cfg *g)
{
    const tp_model_cfg c = tp_model_cfg_of(forms[f].llama ? &tp_model_llama : &tp_model_gpt2, g);
    bench b = { .D = device_open(NULL) };
    b.P = tp_params_new(b.D, &(tp_params_opts){ .dtype = device_real(), .seed = 4 });
    b.T = tp_tape_new(b.D, &(tp_tape_opts){ .compute = device_real() });
    b.net = tp_net_new(b.P, "", &c);
    for (tp_param_info it = { 0 }; tp_next_param(b.P, &it);) {
        double values[MOST * 20];
        const int64_t n = tp_numel(it.tensor);
        if (it.buffer || it.alias_of) continue;
        cr_assert(n <= MOST * 20, "%s", it.name);
        values_random(values, n, 7 + (uint64_t)it.index);
        for (int64_t i = 0; i < n; i++)
            values[i] = it.shape.ndim > 1 ? 0.4 * values[i]
                                          : 0.3 * values[i] + tp_ends_in(it.name, "weight");
        cr_assert(tp_param_set(b.P, it.tensor, TP_F64, values, (size_t)n * sizeof *values));
    }
    cr_assert(tp_params_ok(b.P), "%s: %s", forms[f].name, tp_params_why(b.P));
    return b;
}

static void close_bench(bench *b)
{
    tp_tape_free(b->T);
    tp_net_free(b->net);
    tp_params_free(b->P);
    tp_device_close(b->D);
}

static int32_t id_at(int text, int64_t i)
{
    return (int32_t)((7 * i + 5 * text * i * i + i * i * i + text) % V);
}

/* ids [TEXTS,n] of the tokens from `at` on. */
static tp_tensor ids(tp_tape *T, int64_t at, int64_t n)
{
    int32_t some[TEXTS * MOST];
    for (int t = 0; t < TEXTS; t++)
        for (int64_t i = 0; i < n; i++) some[t * n + i] = id_at(t, at + i);
    return tp_from(T, TP_I32, TP_SHAPE(TEXTS, n), some);
}

/* ---- against the module of nn.h ---- */

/* The first layer's attention equals tp_ls_attn_forward after an empty cache, where that takes the
 * length. */
Test(gpt_ls, the_attention_of_the_language_model)
{
    static const int64_t lengths[FORMS] = { 12, 8, 15, 16 };
    for (int f = 0; f < FORMS; f++) {
        const tp_gpt_cfg g = config(f);
        bench b = open_bench(f, &g);
        const tp_gpt *m = tp_net_module(b.net);
        const int64_t n = lengths[f], far = n / g.ls_chunk * g.ls_rank;
        double freq[D / 2], near_table[MOST * D], far_table[MOST * D], x[TEXTS * MOST * D];
        double got[TEXTS * MOST * D], want[TEXTS * MOST * D];
        tp_frequencies(D / 2, freq);
        tp_sinusoid(g.ls_window, D / 2, freq, 0, near_table);
        tp_sinusoid(far, D / 2, freq, 0, far_table);
        values_random(x, TEXTS * n * D, 12);
        const tp_dtype dt = device_real();
        const tp_tensor h = values_constant(b.T, dt, TP_SHAPE(TEXTS, n, D), x);
        const tp_ls_context ctx = { values_constant(b.T, dt, TP_SHAPE(g.ls_window, D), near_table),
                                    values_constant(b.T, dt, TP_SHAPE(far, D), far_table), 0 };
        tp_ls_attn_m ls = m->layer[0].ls;
        const tp_tensor none = tp_full(b.T, dt, TP_SHAPE(TEXTS, 0, D), 0.0);
        if (n <= g.ls_window || n % g.ls_window == 0) { /* the module takes no other length */
            values_read(b.T, tp_ls_attn_forward(b.T, &ls, h, none, ctx), want);
            tp_kv window;
            const tp_kv rows = tp_ls_attn_rows(b.T, &ls, h, &window);
            const tp_kv cmp = tp_ls_attn_compress(b.T, &ls, h, &rows);
            const tp_ls_in in = {
                .q = tp_linear_forward(b.T, &ls.proj_query, h),
                .k_win = window.k,
                .v_win = window.v,
                .k_cmp = cmp.k,
                .v_cmp = cmp.v,
                .pos_win = tp_linear_forward(b.T, &ls.r_net, m->tables.near),
                .pos_cmp = tp_linear_forward(b.T, &ls.r_net_chunk, m->tables.far),
            };
            const tp_tensor y = tp_ls_attn_attend(b.T, &ls, in, ls.cfg.attn);
            values_read(b.T, tp_linear_forward(b.T, &ls.proj_out, y), got);
            const double error = values_error(got, want, TEXTS * n * D, 0);
            cr_expect_lt(error, device_limit(1e-12, 2e-5), "%s: %.2g", forms[f].name, error);
        }
        cr_expect(tp_ok(b.T), "%s", tp_why(b.T));
        close_bench(&b);
    }
}

/* ---- decoding ---- */

/* Other projections of the tables of positions in the first layer. */
static void turn_positions(bench *b)
{
    const tp_ls_attn_m *ls = &((const tp_gpt *)tp_net_module(b->net))->layer[0].ls;
    double w[D * D];
    values_random(w, (int64_t)D * D, 31);
    cr_assert(tp_param_set(b->P, ls->r_net.weight, TP_F64, w, sizeof w));
    cr_assert(tp_param_set(b->P, ls->r_net_chunk.weight, TP_F64, w, sizeof w));
}

/* A prompt that ends within a chunk, some tokens across its end, single ones; other weights of
 * positions in the same buffers afterwards. */
Test(gpt_ls, decoding)
{
    static const int64_t pieces[][8] = { { 7, 3, 1, 1, 1, 5, 1, 4 },
                                         { 1, 1, 1, 1, 1, 1, 1, 16 },
                                         { 23 } };
    for (int f = 0; f < FORMS; f++) {
        const tp_gpt_cfg g = config(f);
        bench b = open_bench(f, &g);
        const tp_gpt *m = tp_net_module(b.net);
        enum { N = 23 };
        static double want[TEXTS][N][V], got[TEXTS * N * V];
        tp_gpt_cache cache = { .room = N };
        values_read(b.T, tp_gpt_forward(b.T, m, ids(b.T, 0, N)), &want[0][0][0]);
        cr_assert(tp_ok(b.T), "%s: %s", forms[f].name, tp_why(b.T));
        tp_record(b.T, false);
        for (int round = 0; round < 3; round++) {
            cache.filled = 0;
            if (round == 2) turn_positions(&b);
            if (round == 2)
                values_read(b.T, tp_gpt_forward(b.T, m, ids(b.T, 0, N)), &want[0][0][0]);
            int64_t at = 0;
            for (int k = 0; k < 8 && at < N; at += pieces[round][k++]) {
                const int64_t n = pieces[round][k];
                tp_reset(b.T);
                values_read(b.T, tp_gpt_decode(b.T, m, &cache, ids(b.T, at, n)), got);
                cr_assert(tp_ok(b.T), "%s: %s", forms[f].name, tp_why(b.T));
                for (int t = 0; t < TEXTS; t++) {
                    const double error = values_error(got + t * n * V, want[t][at], n * V, 0);
                    cr_expect_lt(error, device_limit(1e-12, 3e-5), "%s, round %d, token %d: %.2g",
                                 forms[f].name, round, (int)at, error);
                }
            }
            cr_expect_eq(cache.filled, N);
        }
        tp_gpt_cache_free(b.T, &cache);
        close_bench(&b);
    }
}

/* ---- forward ---- */

/* A later token changes no earlier logit, and one beyond the window changes later ones. */
Test(gpt_ls, causality)
{
    enum { N = 21 };
    for (int f = 0; f < FORMS; f++) {
        const tp_gpt_cfg g = config(f);
        bench b = open_bench(f, &g);
        static double y[2][TEXTS][N][V];
        for (int k = 0; k < 2; k++) {
            int32_t some[TEXTS * N];
            for (int i = 0; i < TEXTS * N; i++) some[i] = k && i % N == 9 ? 3 : id_at(i / N, i % N);
            const tp_tensor x = tp_from(b.T, TP_I32, TP_SHAPE(TEXTS, N), some);
            values_read(b.T, tp_net_forward(b.T, b.net, NULL, x), &y[k][0][0][0]);
        }
        cr_expect_eq(values_error(y[0][0][0], y[1][0][0], 9 * V, 0), 0, "%s", forms[f].name);
        cr_expect_gt(values_error(y[0][0][N - 1], y[1][0][N - 1], V, 0), 1e-9, "%s", forms[f].name);
        close_bench(&b);
    }
}

/* Recomputing layers changes no bit; gradients are those of differences. */
Test(gpt_ls, gradients)
{
    enum { N = 9 };
    for (int f = 0; f < FORMS; f++) {
        double grad[2][D * D];
        for (int k = 0; k < 2; k++) {
            tp_gpt_cfg g = config(f);
            g.recompute = k ? TP_RECOMPUTE_BLOCK : TP_RECOMPUTE_NONE;
            bench b = open_bench(f, &g);
            const tp_ls_attn_m *ls = &((const tp_gpt *)tp_net_module(b.net))->layer[0].ls;
            const tp_tensor w = ls->proj_key.weight;
            tp_train(b.T, true);
            const tp_tensor y = tp_net_forward(b.T, b.net, NULL, ids(b.T, 0, N));
            tp_backward(b.T, tp_sum(b.T, tp_square(b.T, y), TP_ALL));
            cr_assert(tp_ok(b.T), "%s", tp_why(b.T));
            cr_assert(tp_param_get_grad(b.P, w, TP_F64, grad[k], sizeof grad[k]));
            for (int i = 0; !k && device_real() == TP_F64 && i < D * D; i += 29) {
                double value[D * D], loss[2];
                cr_assert(tp_param_get(b.P, w, TP_F64, value, sizeof value));
                for (int s = 0; s < 2; s++) {
                    value[i] += s ? 2e-6 : -1e-6;
                    cr_assert(tp_param_set(b.P, w, TP_F64, value, sizeof value));
                    tp_reset(b.T);
                    const tp_tensor z = tp_net_forward(b.T, b.net, NULL, ids(b.T, 0, N));
                    loss[s] = tp_item(b.T, tp_sum(b.T, tp_square(b.T, z), TP_ALL));
                }
                value[i] -= 1e-6;
                cr_assert(tp_param_set(b.P, w, TP_F64, value, sizeof value));
                const double slope = (loss[1] - loss[0]) / 2e-6;
                cr_expect_float_eq(grad[0][i], slope, 1e-4 * (1 + fabs(slope)), "%s: %g, not %g",
                                   forms[f].name, grad[0][i], slope);
            }
            close_bench(&b);
        }
        cr_expect_arr_eq(grad[0], grad[1], sizeof grad[0], "%s", forms[f].name);
    }
}

/* ---- refusals ---- */

Test(gpt_ls, refusals)
{
    static const struct {
        const char *change, *why;
    } bad[] = {
        { "ls_window=8", "needs ls_chunk" },
        { "ls_chunk=1,ls_rank=1,ls_window=8", "chunks of at least 2 tokens" },
        { "ls_chunk=4,ls_window=8", "not 4, 0 and 8" },
        { "ls_chunk=4,ls_rank=1", "not 4, 1 and 0" },
        { "ls_chunk=4,ls_rank=1,ls_window=8,num_key_value_heads=2", "each of the 4 heads, not 2" },
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        char why[512] = "";
        tp_model_cfg c;
        cr_assert(tp_model_preset(&c, "llama-mini", why, sizeof why));
        cr_expect_not(tp_model_change(&c, bad[k].change, NULL, why, sizeof why));
        cr_expect(strstr(why, bad[k].why), "%s", why);
    }
    const tp_gpt_cfg g = config(0);
    bench b = open_bench(0, &g);
    const tp_gpt *m = tp_net_module(b.net);
    tp_gpt_cache cache = { .room = 4 };
    tp_gpt_decode(b.T, m, &cache, ids(b.T, 0, 2));
    cr_expect(strstr(tp_why(b.T), "cannot be recorded"), "%s", tp_why(b.T));
    tp_clear(b.T);
    tp_record(b.T, false);
    tp_gpt_decode(b.T, m, &cache, ids(b.T, 0, 3));
    cr_assert(tp_ok(b.T), "%s", tp_why(b.T));
    tp_gpt_decode(b.T, m, &cache, ids(b.T, 3, 2));
    cr_expect(strstr(tp_why(b.T), "has room for 4 tokens and 3 are in it; 2 more"), "%s",
              tp_why(b.T));
    tp_clear(b.T);
    const int32_t one[] = { 1 };
    tp_gpt_decode(b.T, m, &cache, tp_from(b.T, TP_I32, TP_SHAPE(1, 1), one));
    cr_expect(strstr(tp_why(b.T), "the cache has 8 rows, not 1 texts of 4"), "%s", tp_why(b.T));
    tp_clear(b.T);
    tp_gpt_cache_free(b.T, &cache);
    close_bench(&b);
}
