/* test_decode.c - incremental decoding gives the same logits as running all tokens so far through
 * the model, at every step over several segments. Work and memory do not depend on the position. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/lm.h>

#include "support/device.h"
#include "support/values.h"

enum { V = 17, MOST = 128 };

/* A small model; open_bench replaces zeros by defaults. */
typedef struct decode_case {
    const char *name;
    int64_t segment, mem_len;
    tp_ls_cfg ls;
    bool post_ln, bias;
} decode_case;

/* clang-format off */
static const decode_case cases[] = {
    { "phantom cache", 8, 16,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 8 } }, false, false },
    { "cache longer than the segment", 8, 32,
      { .attn = { .heads = 2, .chunk = 4, .rank = 2, .window = 8 } }, false, true },
    { "cache shorter than the segment", 24, 8,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 8 } }, false, false },
    { "segment shorter than the window", 8, 24,
      { .attn = { .heads = 3, .chunk = 4, .rank = 1, .window = 16 } }, false, false },
    { "segment of several windows", 24, 24,
      { .attn = { .heads = 2, .chunk = 3, .rank = 1, .window = 8 } }, false, false },
    { "chunks longer than the window", 12, 12,
      { .attn = { .heads = 2, .chunk = 6, .rank = 1, .window = 4 } }, false, false },
    { "chunks of one token", 6, 12,
      { .attn = { .heads = 2, .chunk = 1, .rank = 2, .window = 6 } }, false, false },
    { "one chunk a segment", 8, 8,
      { .attn = { .heads = 2, .chunk = 8, .rank = 3, .window = 8 } }, false, false },
    { "clamped", 16, 16,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 8, .clamp = 3, .chunk_clamp = 2 } },
      false, false },
    { "post-LN", 8, 16,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 8 } }, true, true },
    { "project first", 8, 16,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 8 }, .project_first = true },
      false, false },
    { "local norm", 8, 16,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 8 }, .ln_local = true },
      false, false },
    { "segment window", 16, 16,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 8, .segment = true } },
      false, false },
    { "masked", 8, 16,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 8, .masked = true } },
      false, false },
    { "masked, cache shorter than the window", 8, 8,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 16, .masked = true } },
      false, false },
    { "masked, no cache", 8, 0,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 8, .masked = true } },
      false, false },
    { "masked, chunks of one token", 5, 10,
      { .attn = { .heads = 2, .chunk = 1, .rank = 1, .window = 5, .masked = true } },
      false, false },
    { "window only", 8, 16,
      { .attn = { .heads = 2, .chunk = 4, .rank = 0, .window = 8 } }, false, false },
    { "window only, masked, project first", 8, 8,
      { .attn = { .heads = 2, .chunk = 4, .rank = 0, .window = 8, .masked = true },
        .project_first = true }, false, true },
    { "projection only", 8, 16,
      { .attn = { .heads = 2, .chunk = 4, .rank = 2, .window = 0 } }, false, false },
    { "projection only, masked", 8, 8,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 0, .masked = true } }, false, true },
    { "projection only, local norm", 8, 8,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 0 }, .ln_local = true },
      false, false },
    { "separate heads", 8, 16,
      { .attn = { .heads = 3, .chunk = 4, .rank = 2, .window = 8 }, .window_heads = 1 },
      false, true },
    { "separate heads, masked, segment window", 16, 16,
      { .attn = { .heads = 4, .chunk = 4, .rank = 1, .window = 8, .masked = true, .segment = true },
        .window_heads = 3 }, false, false },
    { "no DualLN", 8, 16,
      { .attn = { .heads = 2, .chunk = 4, .rank = 1, .window = 8 }, .raw_kv = true },
      false, false },
    { "the paper's op", 16, 24,
      { .attn = { .heads = 3, .chunk = 4, .rank = 2, .window = 8, .masked = true, .segment = true },
        .ln_local = true, .project_first = true }, false, false },
};
/* clang-format on */

typedef struct bench {
    tp_device *D;
    tp_params *P;
    tp_tape *T; /* tape of the recomputation */
    tp_tape *decoding;
    tp_ls_lm lm;
} bench;

static void open_bench(bench *b, const decode_case *c)
{
    tp_ls_lm_cfg cfg = { .vocab = V,
                         .dim = 24,
                         .hidden = 32,
                         .layers = 2,
                         .mem_len = c->mem_len,
                         .ls = c->ls,
                         .bias = c->bias,
                         .pre_ln = !c->post_ln,
                         .gelu = true,
                         .dropout = 0.1 };
    b->D = device_open(&(tp_device_opts){ .threads = 1 });
    b->P = tp_params_new(b->D, &(tp_params_opts){ .seed = 11, .dtype = device_real() });
    b->T = tp_tape_new(b->D, &(tp_tape_opts){ .compute = device_real() });
    b->decoding = tp_tape_new(b->D, &(tp_tape_opts){ .compute = device_real() });
    tp_ls_lm_init(b->P, &b->lm, "", cfg);
    cr_assert(tp_params_ok(b->P), "%s: %s", c->name, tp_params_why(b->P));

    /* Weights above the initial 0.02, where attention is nearly uniform. */
    for (tp_param_info it = { 0 }; tp_next_param(b->P, &it);) {
        static double x[1 << 14];
        const size_t bytes = (size_t)tp_numel(it.tensor) * sizeof *x;
        if (it.buffer || it.alias_of) continue;
        cr_assert(bytes <= sizeof x && tp_param_get(b->P, it.tensor, TP_F64, x, bytes));
        for (int64_t i = 0; i < tp_numel(it.tensor); i++)
            x[i] = x[i] * 8.0 + 0.1 * sin((double)(i + it.index));
        cr_expect(tp_param_set(b->P, it.tensor, TP_F64, x, bytes));
    }
}

static void close_bench(bench *b)
{
    tp_tape_free(b->decoding);
    tp_tape_free(b->T);
    tp_params_free(b->P);
    tp_device_close(b->D);
}

/* Logits after tokens 0 .. n-1, from a fresh state, in full segments and a padded last one. */
static void recompute(bench *b, const int32_t *token, int64_t n, int64_t segment, double *logits)
{
    tp_tape *T = b->T;
    tp_ls_lm_state s = { 0 };
    tp_record(T, false);
    for (int64_t at = 0; at < n; at += segment) {
        int32_t x[MOST] = { 0 };
        const int64_t left = n - at < segment ? n - at : segment;
        memcpy(x, token + at, (size_t)left * sizeof *x);
        tp_reset(T);
        tp_tensor y = tp_ls_lm_forward(T, &b->lm, &s, tp_from(T, TP_I32, TP_SHAPE(1, segment), x));
        y = tp_slice(T, y, 1, left - 1, 1);
        values_read(T, y, logits);
    }
    tp_model_ls_lm.state_clear(T, &s);
    cr_assert(tp_ok(T), "%s", tp_why(T));
}

/* The tolerance of logits. Weights of this size amplify f32 rounding to errors of up to 1e-3, also
 * on the CPU. */
static double tolerance(void)
{
    return device_limit(2e-6, 4e-3);
}

/* An emulated GPU crosses two segment borders instead of three and recomputes only every sixteenth
 * token, as earlier errors persist in the state. */
static int stride(void)
{
    return device_is_emulated() ? 16 : 1;
}

static int64_t tokens_of(const decode_case *c)
{
    return device_is_emulated() ? 2 * c->segment + 2 : 3 * c->segment + c->segment / 2 + 1;
}

static void check_case(const decode_case *c)
{
    static bench b;
    int32_t token[MOST];
    const int64_t n = tokens_of(c);

    open_bench(&b, c);
    for (int i = 0; i < MOST; i++) token[i] = (i * i + 3 * i / 2) % V;
    tp_ls_lm_decoder *d = tp_ls_lm_decoder_new(b.decoding, &b.lm, c->segment);
    for (int64_t i = 0; i < n; i++) {
        float got[V];
        double want[V], error = 0.0;
        cr_assert(tp_ls_lm_decode(d, token[i], got), "%s: %s", c->name, tp_why(b.decoding));
        if (i % stride() && i + 1 < n) continue;
        recompute(&b, token, i + 1, c->segment, want);
        for (int k = 0; k < V; k++) error = fmax(error, fabs((double)got[k] - want[k]));
        cr_assert(error < tolerance(), "%s: token %lld is off by %.1e", c->name, (long long)i,
                  error);
    }
    tp_ls_lm_decoder_free(d);
    close_bench(&b);
}

/* Half of the cases, so that two tests can run in parallel. */
static void check_every_second(size_t first)
{
    for (size_t i = first; i < sizeof cases / sizeof *cases; i += 2) check_case(&cases[i]);
}

Test(decode, equals_recomputation_at_every_step)
{
    check_every_second(0);
}

Test(decode, equals_recomputation_at_every_step_too)
{
    check_every_second(1);
}

/* Prompts are fed without requesting logits and may end anywhere in a chunk or segment. */
Test(decode, prompts_of_any_length)
{
    static bench b;
    const decode_case *c = &cases[0];
    float got[V];
    double want[V];
    int32_t token[MOST];

    open_bench(&b, c);
    for (int i = 0; i < MOST; i++) token[i] = i * 7 % V;
    for (int64_t prompt = 1; prompt <= 2 * c->segment + 1; prompt += stride()) {
        tp_ls_lm_decoder *d = tp_ls_lm_decoder_new(b.decoding, &b.lm, c->segment);
        for (int64_t i = 0; i < prompt; i++) tp_ls_lm_decode(d, token[i], NULL);
        cr_assert(tp_ls_lm_decode(d, token[prompt], got), "%s", tp_why(b.decoding));
        recompute(&b, token, prompt + 1, c->segment, want);
        for (int k = 0; k < V; k++)
            cr_expect_float_eq((double)got[k], want[k], tolerance(), "prompt of %lld",
                               (long long)prompt);
        tp_ls_lm_decoder_free(d);
    }
    close_bench(&b);
}

/* Tokens at the same position in a chunk take the same number of launches in every segment, and a
 * few more at a border. Memory after each segment does not grow. */
Test(decode, work_and_memory_do_not_grow)
{
    static bench b;
    const decode_case *c = &cases[1];
    const int64_t S = c->segment, l = c->ls.attn.chunk;
    uint64_t inside = 0, most = 0;
    size_t live = 0;

    open_bench(&b, c);
    tp_ls_lm_decoder *d = tp_ls_lm_decoder_new(b.decoding, &b.lm, S);
    for (int64_t i = 0; i < 12 * S; i++) {
        const uint64_t before = tp_device_stats(b.D).launches;
        cr_assert(tp_ls_lm_decode(d, i % V, NULL), "%s", tp_why(b.decoding));
        const uint64_t work = tp_device_stats(b.D).launches - before;
        if (i == 0) inside = work;
        if (work > most) most = work;
        if ((i + 1) % l)
            cr_expect(work == inside, "token %lld: %llu launches, the first had %llu", (long long)i,
                      (unsigned long long)work, (unsigned long long)inside);
        if ((i + 1) % S == 0) {
            const size_t now = tp_device_stats(b.D).live_bytes;
            cr_expect(live == 0 || now == live, "segment %lld: %zu bytes live, %zu before",
                      (long long)(i / S), now, live);
            live = now;
        }
    }
    cr_expect(most < 3 * inside, "%llu launches at most, %llu inside a chunk",
              (unsigned long long)most, (unsigned long long)inside);
    tp_ls_lm_decoder_free(d);
    close_bench(&b);
}

Test(decode, bad_requests)
{
    static bench b;
    float logits[V];

    open_bench(&b, &cases[0]);
    tp_ls_lm_decoder *d = tp_ls_lm_decoder_new(b.decoding, &b.lm, 6);
    cr_expect(strstr(tp_why(b.decoding), "segments of 6 tokens"), "%s", tp_why(b.decoding));
    cr_expect(!tp_ls_lm_decode(d, 1, logits));
    tp_ls_lm_decoder_free(d);
    tp_clear(b.decoding);

    d = tp_ls_lm_decoder_new(b.decoding, &b.lm, 8);
    cr_expect(tp_ls_lm_decode(d, 1, logits), "%s", tp_why(b.decoding));
    cr_expect(!tp_ls_lm_decode(d, V, logits), "a token beyond the vocabulary");
    cr_expect(strstr(tp_why(b.decoding), "token 17 is not in the vocabulary of 17"), "%s",
              tp_why(b.decoding));
    tp_clear(b.decoding);
    cr_expect(!tp_ls_lm_decode(d, -1, logits), "a negative token");
    tp_clear(b.decoding);
    cr_expect(tp_ls_lm_decode(d, 2, logits) && isfinite(logits[0]), "goes on: %s",
              tp_why(b.decoding));
    tp_ls_lm_decoder_free(d);
    close_bench(&b);
}
