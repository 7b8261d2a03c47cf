/* test_gpt.c - GPT-2 and the form of Llama: logits and gradients against a plain evaluation of the
 * formulas, decoding against forward passes, published layouts of files, refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/gpt.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/published.h"
#include "support/values.h"

enum { V = 19, D = 24, WIDE = 40, LAYERS = 2, HEADS = 4, MOST = 16, N = 11 };

static const tp_gpt_cfg small = { .vocab = V,
                                  .dim = D,
                                  .hidden = WIDE,
                                  .layers = LAYERS,
                                  .heads = HEADS,
                                  .positions = MOST,
                                  .base = 1000,
                                  .eps = 1e-5 };

/* Of Llama's rotary positions, all of which are slowed, or those that turn seldom. */
enum { LINEAR = 1, BY_TURNS = 2, FACTOR = 4, LOW = 1, HIGH = 3, BEFORE = 12 };
static int slowed; /* 0, LINEAR or BY_TURNS */

/* gpt2 or llama with that many heads of keys and values. */
static tp_model_cfg config(bool llama, int kv, bool tied)
{
    tp_gpt_cfg c = small;
    c.kv_heads = kv;
    if (llama && slowed) c.rope_factor = FACTOR;
    if (llama && slowed == BY_TURNS) {
        c.rope_low = LOW;
        c.rope_high = HIGH;
        c.rope_original = BEFORE;
    }
    c.tied = tied;
    return tp_model_cfg_of(llama ? &tp_model_llama : &tp_model_gpt2, &c);
}

static const struct {
    const char *name;
    bool llama;
    int kv;
    bool tied;
} forms[] = {
    { "gpt2", false, 0, false },
    { "llama", true, 0, false },
    { "llama, shared heads", true, 2, false },
    { "llama, one head of keys, tied", true, 1, true },
};
enum { FORMS = sizeof forms / sizeof *forms };

static const int32_t ids[2][N] = { { 3, 0, 18, 7, 7, 2, 11, 5, 16, 1, 9 },
                                   { 9, 1, 4, 18, 0, 0, 6, 13, 2, 8, 17 } };

TestSuite(gpt, .init = make_folder, .fini = remove_folder);

/* ---- the formulas, for one text ---- */

static double *of(tp_params *P, const char *name)
{
    static double values[64][WIDE * D];
    static int used;
    double *to = values[used++ % 64];
    const tp_tensor p = tp_find(P, name);
    cr_assert(tp_given(p), "%s", name);
    cr_assert(tp_param_get(P, p, TP_F64, to, (size_t)tp_numel(p) * sizeof *to), "%s",
              tp_params_why(P));
    return to;
}

/* The parameter of a layer. */
static double *in_layer(tp_params *P, const char *form, int layer, const char *name)
{
    char full[100];
    snprintf(full, sizeof full, form, layer);
    return of(P, strcat(full, name));
}

static void plain_norm(double *y, const double *x, const double *w, const double *b)
{
    double mean = 0, square = 0;
    for (int i = 0; i < D && b; i++) mean += x[i] / D;
    for (int i = 0; i < D; i++) square += (x[i] - mean) * (x[i] - mean) / D;
    for (int i = 0; i < D; i++)
        y[i] = (x[i] - mean) / sqrt(square + small.eps) * w[i] + (b ? b[i] : 0);
}

static void plain_linear(double *y, const double *x, const double *w, const double *b, int outputs,
                         int inputs)
{
    for (int o = 0; o < outputs; o++) {
        y[o] = b ? b[o] : 0;
        for (int i = 0; i < inputs; i++) y[o] += w[o * inputs + i] * x[i];
    }
}

/* Rotates the halves of a head of the token at `position`. */
static void plain_rotate(double *head, int position)
{
    enum { H = D / HEADS };
    for (int i = 0; i < H / 2; i++) {
        double turn = position * pow(small.base, -2.0 * i / H);
        const double all = pow(small.base, -2.0 * i / H) * BEFORE / (2 * acos(-1.0));
        const double mixed = (all - LOW) / (HIGH - LOW);
        if (slowed == LINEAR || (slowed && all < LOW))
            turn /= FACTOR;
        else if (slowed && all < HIGH)
            turn *= mixed + (1 - mixed) / FACTOR;
        const double a = head[i], b = head[i + H / 2];
        head[i] = a * cos(turn) - b * sin(turn);
        head[i + H / 2] = b * cos(turn) + a * sin(turn);
    }
}

/* y[t] is the attention's result for token t, before the last projection. */
static void plain_attention(double y[N][D], double q[N][D], double k[N][D], double v[N][D], int kv)
{
    enum { H = D / HEADS };
    memset(y, 0, sizeof(double[N][D]));
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < N; t++) {
            const int at = h / (HEADS / kv) * H;
            double p[N], sum = 0;
            for (int s = 0; s <= t; s++) {
                p[s] = 0;
                for (int i = 0; i < H; i++) p[s] += q[t][h * H + i] * k[s][at + i];
                sum += p[s] = exp(p[s] / sqrt(H));
            }
            for (int s = 0; s <= t; s++)
                for (int i = 0; i < H; i++) y[t][h * H + i] += p[s] / sum * v[s][at + i];
        }
}

static void plain_gpt2_layer(tp_params *P, int l, double x[N][D])
{
    const char *form = "h.%d.";
    double q[N][D], k[N][D], v[N][D], a[N][D], h[D], wide[WIDE];
    for (int t = 0; t < N; t++) {
        plain_norm(h, x[t], in_layer(P, form, l, "ln_1.weight"), in_layer(P, form, l, "ln_1.bias"));
        plain_linear(q[t], h, in_layer(P, form, l, "attn.q_proj.weight"),
                     in_layer(P, form, l, "attn.q_proj.bias"), D, D);
        plain_linear(k[t], h, in_layer(P, form, l, "attn.k_proj.weight"),
                     in_layer(P, form, l, "attn.k_proj.bias"), D, D);
        plain_linear(v[t], h, in_layer(P, form, l, "attn.v_proj.weight"),
                     in_layer(P, form, l, "attn.v_proj.bias"), D, D);
    }
    plain_attention(a, q, k, v, HEADS);
    for (int t = 0; t < N; t++) {
        plain_linear(h, a[t], in_layer(P, form, l, "attn.c_proj.weight"),
                     in_layer(P, form, l, "attn.c_proj.bias"), D, D);
        for (int i = 0; i < D; i++) x[t][i] += h[i];
        plain_norm(h, x[t], in_layer(P, form, l, "ln_2.weight"), in_layer(P, form, l, "ln_2.bias"));
        plain_linear(wide, h, in_layer(P, form, l, "mlp.c_fc.weight"),
                     in_layer(P, form, l, "mlp.c_fc.bias"), WIDE, D);
        for (int i = 0; i < WIDE; i++) {
            const double z = wide[i], u = sqrt(2 / acos(-1.0)) * (z + 0.044715 * z * z * z);
            wide[i] = 0.5 * z * (1 + tanh(u));
        }
        plain_linear(h, wide, in_layer(P, form, l, "mlp.c_proj.weight"),
                     in_layer(P, form, l, "mlp.c_proj.bias"), D, WIDE);
        for (int i = 0; i < D; i++) x[t][i] += h[i];
    }
}

static void plain_llama_layer(tp_params *P, int l, int kv, double x[N][D])
{
    enum { H = D / HEADS };
    const char *form = "model.layers.%d.";
    double q[N][D], k[N][D], v[N][D], a[N][D], h[D], gate[WIDE], up[WIDE];
    for (int t = 0; t < N; t++) {
        plain_norm(h, x[t], in_layer(P, form, l, "input_layernorm.weight"), NULL);
        plain_linear(q[t], h, in_layer(P, form, l, "self_attn.q_proj.weight"), NULL, D, D);
        plain_linear(k[t], h, in_layer(P, form, l, "self_attn.k_proj.weight"), NULL, kv * H, D);
        plain_linear(v[t], h, in_layer(P, form, l, "self_attn.v_proj.weight"), NULL, kv * H, D);
        for (int i = 0; i < HEADS; i++) plain_rotate(q[t] + i * H, t);
        for (int i = 0; i < kv; i++) plain_rotate(k[t] + i * H, t);
    }
    plain_attention(a, q, k, v, kv);
    for (int t = 0; t < N; t++) {
        plain_linear(h, a[t], in_layer(P, form, l, "self_attn.o_proj.weight"), NULL, D, D);
        for (int i = 0; i < D; i++) x[t][i] += h[i];
        plain_norm(h, x[t], in_layer(P, form, l, "post_attention_layernorm.weight"), NULL);
        plain_linear(gate, h, in_layer(P, form, l, "mlp.gate_proj.weight"), NULL, WIDE, D);
        plain_linear(up, h, in_layer(P, form, l, "mlp.up_proj.weight"), NULL, WIDE, D);
        for (int i = 0; i < WIDE; i++) up[i] *= gate[i] / (1 + exp(-gate[i]));
        plain_linear(h, up, in_layer(P, form, l, "mlp.down_proj.weight"), NULL, D, WIDE);
        for (int i = 0; i < D; i++) x[t][i] += h[i];
    }
}

static void plain_logits(tp_params *P, int form, const int32_t *text, double z[N][V])
{
    const bool llama = forms[form].llama;
    const int kv = forms[form].kv ? forms[form].kv : HEADS;
    const char *table = llama ? "model.embed_tokens.weight" : "wte.weight";
    double x[N][D], h[D];
    for (int t = 0; t < N; t++)
        for (int i = 0; i < D; i++)
            x[t][i] = of(P, table)[text[t] * D + i] + (llama ? 0 : of(P, "wpe.weight")[t * D + i]);
    for (int l = 0; l < LAYERS; l++)
        if (llama)
            plain_llama_layer(P, l, kv, x);
        else
            plain_gpt2_layer(P, l, x);
    const char *head = llama && !forms[form].tied ? "lm_head.weight" : table;
    for (int t = 0; t < N; t++) {
        plain_norm(h, x[t], of(P, llama ? "model.norm.weight" : "ln_f.weight"),
                   llama ? NULL : of(P, "ln_f.bias"));
        plain_linear(z[t], h, of(P, head), NULL, V, D);
    }
}

/* ---- a model ---- */

typedef struct bench {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_net *net;
} bench;

/* All values are drawn, so that no bias or norm is at its default. */
static bench open_bench(const tp_model_cfg *cfg)
{
    bench b = { .D = device_open(NULL) };
    b.P = tp_params_new(b.D, &(tp_params_opts){ .dtype = device_real() });
    b.T = tp_tape_new(b.D, &(tp_tape_opts){ .compute = device_real() });
    b.net = tp_net_new(b.P, "", cfg);
    for (tp_param_info it = { 0 }; tp_next_param(b.P, &it);) {
        double values[WIDE * D];
        const tp_tensor p = tp_find(b.P, it.name);
        const int64_t n = tp_numel(p);
        values_random(values, n, 77 + (uint64_t)it.index);
        for (int64_t i = 0; i < n; i++)
            values[i] = it.shape.ndim > 1 ? 0.4 * values[i]
                                          : 0.3 * values[i] + tp_ends_in(it.name, "weight");
        cr_assert(tp_param_set(b.P, p, TP_F64, values, (size_t)n * sizeof *values));
    }
    cr_assert(tp_params_ok(b.P), "%s", tp_params_why(b.P));
    return b;
}

static void close_bench(bench *b)
{
    tp_tape_free(b->T);
    tp_net_free(b->net);
    tp_params_free(b->P);
    tp_device_close(b->D);
}

static tp_tensor forward(const bench *b, int texts, int64_t n)
{
    int32_t some[2 * N];
    for (int i = 0; i < texts; i++) memcpy(some + i * n, ids[i], (size_t)n * sizeof *some);
    return tp_net_forward(b->T, b->net, NULL, tp_from(b->T, TP_I32, TP_SHAPE(texts, n), some));
}

static void expect_logits(int f)
{
    const tp_model_cfg c = config(forms[f].llama, forms[f].kv, forms[f].tied);
    bench b = open_bench(&c);
    double want[2][N][V], got[2][N][V];
    for (int i = 0; i < 2; i++) plain_logits(b.P, f, ids[i], want[i]);
    values_read(b.T, forward(&b, 2, N), &got[0][0][0]);
    const double error = values_error(&got[0][0][0], &want[0][0][0], 2 * N * V, 0);
    cr_expect_lt(error, device_limit(1e-12, 2e-5), "%s, %d: %.2g", forms[f].name, slowed, error);
    close_bench(&b);
}

Test(gpt, logits)
{
    for (int f = 0; f < FORMS; f++) expect_logits(f);
    for (slowed = LINEAR; slowed <= BY_TURNS; slowed++) expect_logits(1);
    slowed = 0;
}

/* Recomputing layers changes no bit of logits and gradients. */
Test(gpt, recomputation)
{
    for (int f = 0; f < FORMS; f++) {
        uint64_t bits[2];
        for (int k = 0; k < 2; k++) {
            tp_model_cfg c = config(forms[f].llama, forms[f].kv, forms[f].tied);
            tp_common_cfg o = tp_model_get(&c);
            o.recompute = k ? TP_RECOMPUTE_BLOCK : TP_RECOMPUTE_NONE;
            tp_model_set(&c, &o);
            bench b = open_bench(&c);
            tp_train(b.T, true);
            tp_backward(b.T, tp_sum(b.T, tp_square(b.T, forward(&b, 2, N)), TP_ALL));
            cr_assert(tp_ok(b.T), "%s", tp_why(b.T));
            tp_optim *O = tp_optim_new(b.P, "sgd", NULL);
            cr_assert(tp_step(O, 0.01), "%s", tp_params_why(b.P));
            bits[k] = tp_params_hash(b.P);
            tp_optim_free(O);
            close_bench(&b);
        }
        cr_expect_eq(bits[0], bits[1], "%s", forms[f].name);
    }
}

/* ---- decoding ---- */

/* A prompt, a few tokens, then one at a time; afterwards other texts in the same buffers. */
Test(gpt, decoding)
{
    static const int64_t pieces[] = { 4, 3, 1, 1, 1, 1 };
    for (int f = 0; f < FORMS; f++) {
        const tp_model_cfg c = config(forms[f].llama, forms[f].kv, forms[f].tied);
        bench b = open_bench(&c);
        double want[2][N][V], got[2 * N * V];
        tp_gpt_cache cache = { .room = N };
        values_read(b.T, forward(&b, 2, N), &want[0][0][0]);
        tp_record(b.T, false);
        for (int round = 0; round < 2; round++) {
            cache.filled = 0;
            int64_t at = 0;
            for (size_t k = 0; k < sizeof pieces / sizeof *pieces; at += pieces[k++]) {
                const int64_t n = pieces[k];
                int32_t some[2 * N];
                for (int i = 0; i < 2; i++)
                    memcpy(some + i * n, ids[i] + at, (size_t)n * sizeof *some);
                tp_reset(b.T);
                const tp_tensor x = tp_from(b.T, TP_I32, TP_SHAPE(2, n), some);
                values_read(b.T, tp_gpt_decode(b.T, tp_net_module(b.net), &cache, x), got);
                for (int i = 0; i < 2; i++) {
                    const double error = values_error(got + i * n * V, want[i][at], n * V, 0);
                    cr_expect_lt(error, device_limit(1e-12, 2e-5), "%s, text %d, token %d: %.2g",
                                 forms[f].name, i, (int)at, error);
                }
            }
        }
        cr_expect_eq(cache.filled, N);
        tp_gpt_cache_free(b.T, &cache);
        close_bench(&b);
    }
}

Test(gpt, refusals)
{
    const tp_model_cfg c = config(true, 2, false);
    bench b = open_bench(&c);
    tp_gpt_cache cache = { .room = 2 * MOST };
    const int32_t many[MOST + 1] = { 0 };
    tp_net_forward(b.T, b.net, NULL, tp_from(b.T, TP_I32, TP_SHAPE(1, MOST + 1), many));
    cr_expect(strstr(tp_why(b.T), "a text has 17 tokens, but the model has 16 positions"), "%s",
              tp_why(b.T));
    tp_clear(b.T);
    tp_record(b.T, false);
    tp_gpt_decode(b.T, tp_net_module(b.net), &cache, tp_from(b.T, TP_I32, TP_SHAPE(1, MOST), many));
    cr_expect(tp_ok(b.T), "%s", tp_why(b.T));
    tp_gpt_decode(b.T, tp_net_module(b.net), &cache, tp_from(b.T, TP_I32, TP_SHAPE(1, 1), many));
    cr_expect(strstr(tp_why(b.T), "a text has 17 tokens"), "%s", tp_why(b.T));
    cr_expect_eq(cache.filled, MOST, "a refused token is not in the cache");
    tp_clear(b.T);
    tp_train(b.T, true);
    tp_gpt_decode(b.T, tp_net_module(b.net), &cache, tp_from(b.T, TP_I32, TP_SHAPE(1, 1), many));
    cr_expect(strstr(tp_why(b.T), "decoding would drop"), "%s", tp_why(b.T));
    tp_clear(b.T);
    tp_train(b.T, false);
    tp_gpt_decode(b.T, NULL, &cache, TP_NONE);
    cr_expect(!tp_ok(b.T));
    tp_clear(b.T);
    tp_gpt_decode(b.T, tp_net_module(b.net), NULL, TP_NONE);
    cr_expect(!tp_ok(b.T));
    tp_clear(b.T);
    tp_gpt_cache_free(b.T, &cache);
    close_bench(&b);
}

/* With a rate the branches are dropped and added in passes of their own. A rate that drops nothing
 * gives the same logits. */
Test(gpt, dropout_of_residual_branches)
{
    for (int f = 0; f < FORMS; f++) {
        double all[2][2 * N * V];
        for (int k = 0; k < 2; k++) {
            tp_gpt_cfg c = small;
            c.kv_heads = forms[f].kv;
            c.tied = forms[f].tied;
            c.dropout = k ? 1e-12 : 0;
            const tp_model_cfg cfg =
                tp_model_cfg_of(forms[f].llama ? &tp_model_llama : &tp_model_gpt2, &c);
            bench b = open_bench(&cfg);
            tp_train(b.T, true);
            values_read(b.T, forward(&b, 2, N), all[k]);
            close_bench(&b);
        }
        cr_expect_lt(values_error(all[0], all[1], 2 * N * V, 0), device_limit(1e-8, 2e-5), "%s",
                     forms[f].name);
    }
}

static void expect_impossible(bool llama, tp_gpt_cfg c, const char *text)
{
    char why[300] = "";
    const tp_model_cfg cfg = tp_model_cfg_of(llama ? &tp_model_llama : &tp_model_gpt2, &c);
    cr_expect(!tp_model_check(&cfg, why, sizeof why) && strstr(why, text), "%s: %s", text, why);
}

Test(gpt, impossible_models)
{
    tp_gpt_cfg c = small;
    c.heads = 5;
    expect_impossible(false, c, "the width 24 does not divide into 5 heads");
    c = small, c.heads = 8;
    expect_impossible(true, c, "heads of width 3 cannot be rotated");
    c = small, c.kv_heads = 3;
    expect_impossible(true, c, "4 heads cannot share 3 heads");
    c = small, c.base = 0;
    expect_impossible(true, c, "theta of the rotary positions is 0");
    c = small, c.eps = 0;
    expect_impossible(false, c, "eps of the norms is 0");
}

/* ---- parameters and files ---- */

/* The numbers of Hugging Face's models. */
Test(gpt, sizes)
{
    static const struct {
        const char *name;
        int64_t count;
    } rows[] = { { "gpt2", 124439808 },        { "gpt2-medium", 354823168 },
                 { "gpt2-large", 774030080 },  { "gpt2-xl", 1557611200 },
                 { "smollm-135m", 134515008 }, { "tinyllama-1.1b", 1100048384 },
                 { "llama-2-7b", 6738415616 } };
    tp_device *dry = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_model_cfg c;
        char why[200];
        cr_assert(tp_model_preset(&c, rows[i].name, why, sizeof why), "%s", why);
        tp_params *P = tp_params_new(dry, &(tp_params_opts){ .blank = true });
        tp_net *net = tp_net_new(P, "", &c);
        cr_expect_eq(tp_params_count(P), rows[i].count, "%s: %lld", rows[i].name,
                     (long long)tp_params_count(P));
        tp_net_free(net);
        tp_params_free(P);
    }
    tp_device_close(dry);
}

/* Adds a parameter, or rows of it beside those of others, as [inputs,outputs] if `turn`. */
static void add(tp_writer *W, const char *name, const double *const *parts, int n, int rows,
                int columns, bool turn)
{
    static float out[3 * WIDE * D];
    for (int p = 0; p < n; p++)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++)
                out[turn ? j * n * rows + p * rows + i : (p * rows + i) * columns + j] =
                    (float)parts[p][i * columns + j];
    const tp_shape s = turn           ? TP_SHAPE(columns, n * rows)
                       : columns == 1 ? TP_SHAPE(n * rows)
                                      : TP_SHAPE(n * rows, columns);
    tp_writer_add(W, name, TP_F32, s, out, true);
}

static const char *in_file(const char *prefix, int layer, const char *name)
{
    static char text[100];
    if (layer < 0)
        snprintf(text, sizeof text, "%s%s", prefix, name);
    else
        snprintf(text, sizeof text, "%sh.%d.%s", prefix, layer, name);
    return text;
}

static void add_gpt2_layer(tp_writer *W, tp_params *P, const char *prefix, int l, bool turn)
{
    static const char *const vectors[] = { "ln_1.weight", "ln_1.bias",        "ln_2.weight",
                                           "ln_2.bias",   "attn.c_proj.bias", "mlp.c_proj.bias" };
    static const uint8_t mask[MOST * MOST];
    const char *form = "h.%d.";
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        add(W, in_file(prefix, l, vectors[i]),
            (const double *[]){ in_layer(P, form, l, vectors[i]) }, 1, D, 1, false);
    add(W, in_file(prefix, l, "attn.c_attn.weight"),
        (const double *[]){ in_layer(P, form, l, "attn.q_proj.weight"),
                            in_layer(P, form, l, "attn.k_proj.weight"),
                            in_layer(P, form, l, "attn.v_proj.weight") },
        3, D, D, turn);
    add(W, in_file(prefix, l, "attn.c_attn.bias"),
        (const double *[]){ in_layer(P, form, l, "attn.q_proj.bias"),
                            in_layer(P, form, l, "attn.k_proj.bias"),
                            in_layer(P, form, l, "attn.v_proj.bias") },
        3, D, 1, false);
    add(W, in_file(prefix, l, "attn.c_proj.weight"),
        (const double *[]){ in_layer(P, form, l, "attn.c_proj.weight") }, 1, D, D, turn);
    add(W, in_file(prefix, l, "mlp.c_fc.weight"),
        (const double *[]){ in_layer(P, form, l, "mlp.c_fc.weight") }, 1, WIDE, D, turn);
    add(W, in_file(prefix, l, "mlp.c_fc.bias"),
        (const double *[]){ in_layer(P, form, l, "mlp.c_fc.bias") }, 1, WIDE, 1, false);
    add(W, in_file(prefix, l, "mlp.c_proj.weight"),
        (const double *[]){ in_layer(P, form, l, "mlp.c_proj.weight") }, 1, D, WIDE, turn);
    tp_writer_add(W, in_file(prefix, l, "attn.bias"), TP_U8, TP_SHAPE(1, 1, MOST, MOST), mask,
                  true);
}

/* Loads w.safetensors into a fresh model and compares all values with those of P. */
static void expect_loads(const char *what, const tp_model_cfg *cfg, tp_params *P)
{
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_net *net;
    tp_params *Q = published_params(cfg, cpu, &net);
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    cr_assert(tp_net_load(Q, net, F, false), "%s: %s", what, tp_params_why(Q));
    for (tp_param_info it = { 0 }; tp_next_param(Q, &it);) {
        const double *a = of(P, it.name), *b = of(Q, it.name);
        for (int64_t i = 0; i < tp_numel(tp_find(Q, it.name)); i++)
            cr_assert_eq((float)a[i], (float)b[i], "%s: %s", what, it.name);
    }
    tp_file_close(F);
    tp_net_free(net);
    tp_params_free(Q);
    tp_device_close(cpu);
}

/* Writes the model as transformers does, or, unless `turn`, as nanoGPT; head: NULL: none. */
static void write_gpt2(tp_params *P, const char *prefix, bool turn, const char *head_name,
                       const double *head)
{
    tp_writer *W = published_file();
    const char *const vectors[] = { "ln_f.weight", "ln_f.bias" };
    if (head) add(W, head_name, &head, 1, V, D, false);
    add(W, in_file(prefix, -1, "wte.weight"), (const double *[]){ of(P, "wte.weight") }, 1, V, D,
        false);
    add(W, in_file(prefix, -1, "wpe.weight"), (const double *[]){ of(P, "wpe.weight") }, 1, MOST, D,
        false);
    for (int i = 0; i < 2; i++)
        add(W, in_file(prefix, -1, vectors[i]), (const double *[]){ of(P, vectors[i]) }, 1, D, 1,
            false);
    for (int l = 0; l < LAYERS; l++) add_gpt2_layer(W, P, prefix, l, turn);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
}

Test(gpt, files_of_gpt2)
{
    static const struct {
        const char *name, *prefix;
        bool turn;
        const char *head;
    } cases[] = { { "the first files", "", true, NULL },
                  { "transformers", "transformer.", true, "lm_head.weight" },
                  { "data parallel", "module.transformer.", true, "module.lm_head.weight" },
                  { "nanoGPT", "_orig_mod.transformer.", false, "_orig_mod.lm_head.weight" } };
    const tp_model_cfg c = config(false, 0, false);
    bench b = open_bench(&c);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        write_gpt2(b.P, cases[k].prefix, cases[k].turn, cases[k].head,
                   cases[k].head ? of(b.P, "wte.weight") : NULL);
        expect_loads(cases[k].name, &c, b.P);
    }
    close_bench(&b);
}

/* The head of a tied model is its embedding. */
Test(gpt, another_head)
{
    const tp_model_cfg c = config(false, 0, false);
    bench b = open_bench(&c);
    double head[V * D];
    tp_net *net;
    memcpy(head, of(b.P, "wte.weight"), sizeof head);
    head[V * D - 1] += 1;
    write_gpt2(b.P, "transformer.", true, "lm_head.weight", head);
    tp_params *Q = published_params(&c, b.D, &net);
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    cr_expect(!tp_net_load(Q, net, F, false));
    cr_expect(strstr(tp_params_why(Q), "lm_head.weight"), "%s", tp_params_why(Q));
    tp_file_close(F);
    tp_net_free(net);
    tp_params_free(Q);
    close_bench(&b);
}

/* A model with a head takes that of the file, or the embedding of a tied model's file. */
Test(gpt, files_of_llama)
{
    for (int tied = 0; tied < 2; tied++) {
        const tp_model_cfg c = config(true, 2, tied), own = config(true, 2, false);
        bench b = open_bench(&c);
        tp_writer *W = published_file();
        for (tp_param_info it = { 0 }; tp_next_param(b.P, &it);)
            if (!it.alias_of)
                add(W, it.name, (const double *[]){ of(b.P, it.name) }, 1, (int)it.shape.dim[0],
                    it.shape.ndim > 1 ? (int)it.shape.dim[1] : 1, false);
        const float frequencies[D / HEADS / 2] = { 1 };
        tp_writer_add(W, "model.layers.0.self_attn.rotary_emb.inv_freq", TP_F32,
                      TP_SHAPE(D / HEADS / 2), frequencies, true);
        cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
        tp_writer_free(W);
        expect_loads(tied ? "tied" : "own head", &c, b.P);
        if (tied) {
            tp_net *net;
            tp_params *Q = published_params(&own, b.D, &net);
            tp_file *F = tp_file_open(in_folder("w.safetensors"));
            cr_assert(tp_net_load(Q, net, F, false), "%s", tp_params_why(Q));
            const double *head = of(Q, "lm_head.weight"),
                         *table = of(b.P, "model.embed_tokens.weight");
            for (int i = 0; i < V * D; i++) cr_assert_eq((float)head[i], (float)table[i]);
            tp_file_close(F);
            tp_net_free(net);
            tp_params_free(Q);
        }
        close_bench(&b);
    }
}
