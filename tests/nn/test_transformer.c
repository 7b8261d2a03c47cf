/* test_transformer.c - decoding with cached keys and values equals the full forward pass; rotary
 * positions against plain loops, at large positions and in f32; errors. tests/compare compares the
 * ops and layers with PyTorch. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/values.h"

enum { B = 3, N = 9, S = 4, HEADS = 4, DIM = 16 };

typedef struct bench {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
} bench;

static bench open_bench(void)
{
    bench b = { .D = device_open(NULL) };
    b.P = tp_params_new(b.D, &(tp_params_opts){ .seed = 7, .dtype = device_real() });
    b.T = tp_tape_new(b.D, &(tp_tape_opts){ .compute = device_real() });
    tp_record(b.T, false);
    return b;
}

static void close_bench(bench *b)
{
    tp_tape_free(b->T);
    tp_params_free(b->P);
    tp_device_close(b->D);
}

/* Tokens first .. first + n of B texts. */
static tp_tensor tokens(tp_tape *T, int64_t first, int64_t n, int64_t total, double seed)
{
    double x[B * N * DIM];
    for (int64_t b = 0, at = 0; b < B; b++)
        for (int64_t e = first * DIM; e < (first + n) * DIM; e++)
            x[at++] = sin(0.7 * (double)(b * total * DIM + e) + seed);
    return values_constant(T, device_real(), TP_SHAPE(B, n, DIM), x);
}

/* Compares y [B,n,DIM] with tokens first .. of `want` [B,N,DIM]. */
static void expect_tokens(tp_tape *T, tp_tensor y, int64_t first, int64_t n, const double *want,
                          const char *name)
{
    double got[B * N * DIM], part[B * N * DIM];
    cr_assert(tp_ok(T), "%s: %s", name, tp_why(T));
    values_read(T, y, got);
    for (int64_t b = 0; b < B; b++)
        memcpy(part + b * n * DIM, want + (b * N + first) * DIM, (size_t)(n * DIM) * sizeof *part);
    const double error = values_error(got, part, B * n * DIM, 1.0);
    cr_expect_leq(error, device_limit(1e-12, 2e-5), "%s, token %d: the error is %g", name,
                  (int)first, error);
}

/* Tokens per call: a prompt, single tokens, several at once. */
static const int64_t steps[] = { 3, 1, 1, 2, 1, 1 };

typedef struct layer_case {
    const char *name;
    tp_encoder_layer_cfg cfg;
} layer_case;

#define CAUSAL .attention.attn.causal = true
static const layer_case layers[] = {
    { "plain", { DIM, 24, HEADS, TP_ACT_RELU, CAUSAL } },
    { "norms after", { DIM, 24, HEADS, TP_ACT_GELU, .norm_after = true, CAUSAL } },
    { "grouped heads", { DIM, 24, HEADS, TP_ACT_RELU, CAUSAL, .attention.attn.kv_heads = 2 } },
    { "one head for all, alibi",
      { DIM, 24, HEADS, TP_ACT_RELU, CAUSAL, .attention.attn.kv_heads = 1,
        .attention.attn.alibi = true } },
    { "rotary", { DIM, 24, HEADS, TP_ACT_RELU, CAUSAL, .attention.rotary = true } },
    { "Llama",
      { DIM, 24, HEADS, CAUSAL, .attention.attn.kv_heads = 2, .attention.rotary = true,
        .gated = true, .kind = TP_GLU_SILU, .rms = true, .bias_free = true } },
    { "norms of heads",
      { DIM, 24, HEADS, CAUSAL, .attention.rotary = true, .attention.qk_norm = true,
        .attention.position = { .interleaved = true, .size = 2 }, .gated = true } },
};

Test(transformer, decoding_equals_the_forward_pass)
{
    for (size_t k = 0; k < sizeof layers / sizeof *layers; k++) {
        bench b = open_bench();
        tp_encoder_layer_m m;
        tp_encoder_layer_init(b.P, &m, "m", layers[k].cfg);
        double want[B * N * DIM];
        values_read(b.T, tp_encoder_layer_forward(b.T, &m, tokens(b.T, 0, N, N, 0.2), TP_NONE),
                    want);
        tp_kv_cache cache = { .room = N + 2 };
        for (int again = 0; again < 2; again++) { /* the second texts reuse the memory */
            cache.filled = 0;
            for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
                tp_reset(b.T);
                const int64_t at = cache.filled;
                const tp_tensor x = tokens(b.T, at, steps[i], N, 0.2);
                const tp_tensor y = tp_encoder_layer_decode(b.T, &m, &cache, x, TP_NONE);
                expect_tokens(b.T, y, at, steps[i], want, layers[k].name);
            }
            cr_expect_eq(cache.filled, N);
        }
        tp_encoder_layer_decode(b.T, &m, &cache, tokens(b.T, 0, 3, N, 0.2), TP_NONE);
        cr_expect(strstr(tp_why(b.T),
                         "the cache has room for 11 tokens and 9 are in it; 3 more do not "
                         "fit"),
                  "%s", tp_why(b.T));
        cr_expect_eq(cache.filled, N, "a failed call adds nothing");
        tp_clear(b.T);
        tp_kv_cache_free(b.T, &cache);
        cr_expect(tp_ok(b.T) && !tp_given(cache.k) && cache.filled == 0);
        close_bench(&b);
    }
}

Test(transformer, decoder_layers_remember_their_memory)
{
    for (int after = 0; after < 2; after++) {
        bench b = open_bench();
        tp_decoder_layer_m m;
        tp_decoder_layer_init(b.P, &m, "m",
                              (tp_decoder_layer_cfg){ .dim = DIM,
                                                      .hidden = 24,
                                                      .heads = HEADS,
                                                      .act = TP_ACT_RELU,
                                                      .norm_after = after });
        const char *names[] = { "m.self_attn.q_proj.weight", "m.encoder_attn.k_proj.bias",
                                "m.encoder_attn_layer_norm.weight", "m.fc1.weight",
                                "m.final_layer_norm.bias" };
        for (int i = 0; i < 5; i++) cr_expect(tp_given(tp_find(b.P, names[i])), "%s", names[i]);
        const uint8_t seen[B * S] = { 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0 };
        double want[B * N * DIM];
        values_read(b.T,
                    tp_decoder_layer_forward(b.T, &m, tokens(b.T, 0, N, N, 0.2),
                                             tokens(b.T, 0, S, S, 0.9), TP_NONE,
                                             tp_from(b.T, TP_U8, TP_SHAPE(B, S), seen)),
                    want);
        tp_decoder_cache cache = { .own = { .room = N } };
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            tp_reset(b.T);
            const int64_t at = cache.own.filled;
            const tp_tensor memory = i ? TP_NONE : tokens(b.T, 0, S, S, 0.9);
            const tp_tensor mask = tp_from(b.T, TP_U8, TP_SHAPE(B, S), seen);
            const tp_tensor x = tokens(b.T, at, steps[i], N, 0.2);
            expect_tokens(b.T, tp_decoder_layer_decode(b.T, &m, &cache, x, memory, mask), at,
                          steps[i], want, "decoder layer");
        }
        close_bench(&b);
    }
}

/* The layer's result for tokens and memory of these seeds, without a cache. */
static void whole(tp_tape *T, const tp_decoder_layer_m *m, double seed, double memory, double *want)
{
    values_read(T,
                tp_decoder_layer_forward(T, m, tokens(T, 0, N, N, seed), tokens(T, 0, S, S, memory),
                                         TP_NONE, TP_NONE),
                want);
}

/* Other texts with another memory in the same cache: own.filled = 0 is enough. A memory passed
 * again, or a new one in the middle of the texts, is the one read. */
Test(transformer, another_memory_in_the_same_cache)
{
    bench b = open_bench();
    tp_decoder_layer_m m;
    tp_decoder_layer_init(b.P, &m, "m",
                          (tp_decoder_layer_cfg){ .dim = DIM, .hidden = 24, .heads = HEADS });
    double want[3][B * N * DIM];
    for (int i = 0; i < 3; i++) whole(b.T, &m, 0.2, 0.9 + i, want[i]);
    tp_decoder_cache cache = { .own = { .room = N } };
    for (int text = 0; text < 3; text++) {
        cache.own.filled = 0;
        for (int64_t at = 0; at < N; at++) {
            if (text < 2) tp_reset(b.T);
            const bool given = at == 0 || text == 2;
            const tp_tensor memory = given ? tokens(b.T, 0, S, S, 0.9 + text) : TP_NONE;
            const tp_tensor y = tp_decoder_layer_decode(b.T, &m, &cache, tokens(b.T, at, 1, N, 0.2),
                                                        memory, TP_NONE);
            expect_tokens(b.T, y, at, 1, want[text], "another memory");
        }
    }
    cache.own.filled = 0;
    tp_decoder_layer_decode(b.T, &m, &cache, tokens(b.T, 0, 1, N, 0.2), TP_NONE, TP_NONE);
    cr_expect(strstr(tp_why(b.T), "is missing (TP_NONE)"), "%s", tp_why(b.T));
    tp_clear(b.T);

    /* cross-attention only */
    tp_kv_cache own = { 0 };
    const tp_tensor x = tokens(b.T, 0, 2, N, 0.2);
    for (int i = 0; i < 3; i++) {
        const tp_tensor memory = tokens(b.T, 0, S, S, i ? 0.5 : 0.9);
        double full[B * N * DIM], got[B * N * DIM];
        values_read(b.T, tp_mha_cross(b.T, &m.cross, x, memory, TP_NONE), full);
        values_read(b.T, tp_mha_cross_decode(b.T, &m.cross, &own, x, memory, TP_NONE), got);
        cr_expect_leq(values_error(got, full, B * 2 * DIM, 1.0), device_limit(1e-12, 2e-5), "%d",
                      i);
    }
    tp_mha_cross_decode(b.T, &m.cross, &own, tp_slice(b.T, x, 0, 0, 1), TP_NONE, TP_NONE);
    cr_expect(strstr(tp_why(b.T), "mha: the memory has 3 texts, x has 1"), "%s", tp_why(b.T));
    close_bench(&b);
}

/* Padded prompts: masked cached tokens have no influence. */
/* Beams that grow from one prompt: after a reorder, text b goes on as text index[b] would have. */
Test(transformer, caches_are_reordered)
{
    enum { BEAMS = 4 };
    static const int32_t index[BEAMS] = { 2, 0, 2, 1 };
    const tp_encoder_layer_cfg cfg = { DIM, 24, HEADS, TP_ACT_RELU, CAUSAL };
    double want[B * N * DIM], next[B * DIM], beams[BEAMS * DIM], got[BEAMS * DIM];
    bench b = open_bench();
    tp_encoder_layer_m m;
    tp_encoder_layer_init(b.P, &m, "layer", cfg);
    tp_kv_cache cache = { .room = N };
    const tp_tensor all = tokens(b.T, 0, N, N, 0.5);
    values_read(b.T, tp_encoder_layer_forward(b.T, &m, all, TP_NONE), want);
    values_read(b.T, tp_slice(b.T, all, 1, 4, 1), next);
    tp_encoder_layer_decode(b.T, &m, &cache, tokens(b.T, 0, 4, N, 0.5), TP_NONE);
    const tp_tensor i = tp_from(b.T, TP_I32, TP_SHAPE(BEAMS), index);
    tp_kv_cache_reorder(b.T, &cache, i);
    cr_assert(tp_ok(b.T) && cache.texts == BEAMS, "%s", tp_why(b.T));
    for (int k = 0; k < BEAMS; k++)
        memcpy(beams + k * DIM, next + index[k] * DIM, DIM * sizeof *beams);
    const tp_tensor x = values_constant(b.T, device_real(), TP_SHAPE(BEAMS, 1, DIM), beams);
    values_read(b.T, tp_encoder_layer_decode(b.T, &m, &cache, x, TP_NONE), got);
    cr_assert(tp_ok(b.T), "%s", tp_why(b.T));
    for (int k = 0; k < BEAMS; k++) {
        const double error = values_error(got + k * DIM, want + (index[k] * N + 4) * DIM, DIM, 1.0);
        cr_expect_leq(error, device_limit(1e-12, 2e-5), "beam %d: the error is %g", k, error);
    }
    tp_kv_cache none = { .room = 3 };
    tp_kv_cache_reorder(b.T, &none, i);
    cr_expect(strstr(tp_why(b.T), "kv_cache_reorder: the cache holds nothing yet; decode first"),
              "%s", tp_why(b.T));
    tp_clear(b.T);
    tp_kv_cache_reorder(b.T, NULL, i);
    cr_expect(strstr(tp_why(b.T), "kv_cache_reorder: NULL was given in place of a cache"), "%s",
              tp_why(b.T));
    tp_clear(b.T);
    tp_record(b.T, true);
    tp_kv_cache_reorder(b.T, &cache, i);
    cr_expect(strstr(tp_why(b.T), "cannot be recorded"), "%s", tp_why(b.T));
    tp_clear(b.T);
    tp_kv_cache_free(b.T, &cache);
    close_bench(&b);
}

Test(transformer, masked_tokens_of_a_cache)
{
    bench b = open_bench();
    tp_encoder_layer_m m;
    tp_encoder_layer_init(b.P, &m, "m", layers[2].cfg);
    uint8_t seen[B * N];
    for (int i = 0; i < B * N; i++) seen[i] = i % N >= i / N; /* text t starts with t pads */
    double want[B * N * DIM], got[B * DIM];
    values_read(b.T,
                tp_encoder_layer_forward(b.T, &m, tokens(b.T, 0, N, N, 0.2),
                                         tp_from(b.T, TP_U8, TP_SHAPE(B, N), seen)),
                want);
    tp_kv_cache cache = { .room = 2 * N };
    uint8_t prompt[B * (N - 1)];
    for (int i = 0; i < B * (N - 1); i++) prompt[i] = i % (N - 1) >= i / (N - 1);
    tp_encoder_layer_decode(b.T, &m, &cache, tokens(b.T, 0, N - 1, N, 0.2),
                            tp_from(b.T, TP_U8, TP_SHAPE(B, N - 1), prompt));
    values_read(b.T,
                tp_encoder_layer_decode(b.T, &m, &cache, tokens(b.T, N - 1, 1, N, 0.2),
                                        tp_from(b.T, TP_U8, TP_SHAPE(B, N), seen)),
                got);
    cr_assert(tp_ok(b.T), "%s", tp_why(b.T));
    for (int i = 0; i < B; i++)
        cr_expect_leq(values_error(got + i * DIM, want + (i * N + N - 1) * DIM, DIM, 1.0),
                      device_limit(1e-12, 2e-5));
    close_bench(&b);
}

/* ---- rotary positions ---- */

enum { RN = 5, RH = 2, RD = 12, RSIZE = 8 };

static void plain_rotary(const double *x, const int64_t *p, bool interleaved, double *y)
{
    memcpy(y, x, RN * RH * RD * sizeof *y);
    for (int t = 0; t < RN * RH; t++)
        for (int i = 0; i < RSIZE / 2; i++) {
            const double angle = (double)p[t / RH] * pow(10000.0, -2.0 * i / RSIZE);
            const int a = t * RD + (interleaved ? 2 * i : i),
                      c = interleaved ? a + 1 : a + RSIZE / 2;
            y[a] = x[a] * cos(angle) - x[c] * sin(angle);
            y[c] = x[c] * cos(angle) + x[a] * sin(angle);
        }
}

Test(transformer, rotary_positions_of_a_million)
{
    const int64_t p[RN] = { 0, 1, 999983, 1000000, -7 };
    for (int k = 0; k < 4; k++) {
        tp_device *D = device_open(NULL);
        tp_tape *T = tp_tape_new(D, NULL);
        const tp_dtype dt = k & 1 ? TP_F32 : device_real();
        double x[RN * RH * RD], want[RN * RH * RD], got[RN * RH * RD];
        for (int i = 0; i < RN * RH * RD; i++) x[i] = (double)(float)sin(0.7 * i + 0.2);
        plain_rotary(x, p, k & 2, want);
        const tp_tensor t = values_constant(T, dt, TP_SHAPE(1, RN, RH * RD), x);
        const tp_rotary_cfg cfg = { .heads = RH, .size = RSIZE, .interleaved = k & 2 };
        values_read(T, tp_rotary(T, t, tp_from(T, TP_I64, TP_SHAPE(RN), p), cfg), got);
        cr_assert(tp_ok(T), "%s", tp_why(T));
        const double error = values_error(got, want, RN * RH * RD, 1.0);
        cr_expect_leq(error, dt == TP_F64 ? 1e-9 : 2e-7, "%d: %g", k, error);
        tp_tape_free(T);
        tp_device_close(D);
    }
}

/* ---- errors ---- */

static void expect_why(tp_tape *T, const char *text)
{
    cr_expect(strstr(tp_why(T), text), "%s\nnot: %s", tp_why(T), text);
    tp_clear(T);
}

/* Messages name op, place and path. */
static void expect_why_of_caches(tp_tape *T, tp_mha_m *m, tp_tensor x)
{
    tp_kv_cache cache = { .room = 4 };
    const tp_tensor one = tp_slice(T, x, 0, 0, 1);
    m->cfg.attn.causal = true;
    tp_record(T, true);
    tp_mha_decode(T, m, &cache, x, TP_NONE);
    expect_why(T,
               "mha: decoding changes its cache and cannot be recorded; call tp_record(T, false)");
    tp_mha_cross_decode(T, m, &cache, x, x, TP_NONE);
    expect_why(T, "mha: decoding changes its cache and cannot be recorded");
    tp_record(T, false);
    tp_mha_decode(T, m, NULL, x, TP_NONE);
    expect_why(T, "mha: NULL was given in place of a cache\n  at ");
    tp_mha_decode(T, m, &cache, x, TP_NONE);
    cr_expect(tp_ok(T) && cache.filled == 3, "%s", tp_why(T));
    tp_mha_decode(T, m, &cache, one, TP_NONE);
    expect_why(T, "mha: the cache has room for 4 tokens and 3 are in it; 3 more do not fit");
    cache.filled = 0;
#line 88 "decode.c"
    tp_mha_decode(T, m, &cache, one, TP_NONE);
#line 305 "tests/nn/test_transformer.c"
    expect_why(T, "mha: the cache is for 2 texts and has 8 rows, not 1 texts of 4 tokens; "
                  "tp_kv_cache_free empties it\n  at decode.c:88, in m.self_attn, op ");
    cache.room = 8; /* rows would no longer match the texts */
    tp_mha_decode(T, m, &cache, x, TP_NONE);
    expect_why(T, "the cache is for 2 texts and has 8 rows, not 2 texts of 8 tokens");
}

Test(transformer, names_mistakes)
{
    bench b = open_bench();
    tp_tape *T = b.T;
    const tp_dtype dt = device_real();
    const tp_tensor x = tp_full(T, dt, TP_SHAPE(2, 3, 12), 1.0),
                    w = tp_full(T, dt, TP_SHAPE(5, 12), 1.0);
    const tp_tensor ids = tp_full(T, TP_I32, TP_SHAPE(4), 0.0);
    const struct {
        tp_rotary_cfg cfg;
        const char *text;
    } rotary[] = {
        { { .heads = 0 }, "heads must be positive, not 0" },
        { { .heads = 5 }, "a width of 12 does not divide into 5 heads" },
        { { .heads = 4 }, "size must be even and at most the head's 3, not 3" },
        { { .heads = 2, .size = 8 }, "size must be even and at most the head's 6, not 8" },
        { { .heads = 2, .size = -2 }, "size must be even and at most the head's 6, not -2" },
        { { .heads = 2, .base = -1.0 }, "base must be positive and finite, not -1" },
        { { .heads = 2, .base = NAN }, "base must be positive and finite, not nan" },
    };
    for (size_t i = 0; i < sizeof rotary / sizeof *rotary; i++) {
        tp_rotary(T, x, TP_NONE, rotary[i].cfg);
        expect_why(T, rotary[i].text);
    }
    tp_rotary(T, x, ids, (tp_rotary_cfg){ .heads = 2 });
    expect_why(T, "positions must be [N] or [B,N] = [2,3]");
    tp_rotary(T, x, w, (tp_rotary_cfg){ .heads = 2 });
    expect_why(T, "positions must be i32 or i64");
    tp_rotary(T, w, TP_NONE, (tp_rotary_cfg){ .heads = 2 });
    expect_why(T, "x must be [B,N,H*D]");
    tp_glu(T, x, 1);
    expect_why(T, "axis 1 must have an even size to be halved, not 3");
    tp_glu_linear(T, x, w, TP_NONE, TP_NONE, TP_NONE, TP_GLU_SILU);
    expect_why(T, "its 5 rows must be even in number");
    tp_glu_linear(T, x, w, TP_NONE, tp_slice(T, w, 0, 0, 4), TP_NONE, TP_GLU_SILU);
    expect_why(T, "w and w_up must be of one shape");
    tp_glu_linear(T, x, tp_slice(T, w, 0, 0, 4), TP_NONE, TP_NONE, tp_full(T, dt, TP_SHAPE(4), 1.0),
                  TP_GLU_SILU);
    expect_why(T, "b_up belongs to w_up");
    tp_glu_linear(T, x, w, tp_full(T, dt, TP_SHAPE(4), 1.0), w, TP_NONE, TP_GLU_SILU);
    expect_why(T, "b must be [5]");
    tp_glu_linear(T, x, w, TP_NONE, w, TP_NONE, (tp_glu_kind)4);
    expect_why(T, "unknown kind 4");

    tp_encoder_layer_m m;
    tp_encoder_layer_init(b.P, &m, "m",
                          (tp_encoder_layer_cfg){ .dim = 12, .hidden = 4, .heads = 2 });
    tp_kv_cache cache = { .room = 4 };
    tp_encoder_layer_decode(T, &m, &cache, x, TP_NONE);
    expect_why(T, "only a causal layer can decode");
    tp_mha_decode(T, &m.attention, &cache, x, TP_NONE);
    expect_why(T, "mha: only a causal module can decode; set attn.causal\n  at ");
    expect_why_of_caches(T, &m.attention, x);
    close_bench(&b);

    b = open_bench();
    tp_mha_m a;
    tp_mha_init(b.P, &a, "a", 12, true, (tp_mha_cfg){ .attn = { .heads = 5 } });
    cr_expect(strstr(tp_params_why(b.P), "a width of 12 does not divide into 5 heads"), "%s",
              tp_params_why(b.P));
    close_bench(&b);
}
