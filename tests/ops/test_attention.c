/* test_attention.c - tp_attention and tp_rel_attention against plain ops, values and gradients, in
 * f64 and on every instruction set in f32; blind queries, threads, memory, messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "ops/ref_attention.h"
#include "support/amx.h"
#include "support/values.h"

typedef ref_attention_case problem;

/* The result, then the gradients of the inputs. */
enum { MAX_INPUTS = REF_ATTENTION_INPUTS, MAX_PARTS = MAX_INPUTS + 1 };
typedef struct answer {
    int64_t numel[MAX_PARTS];
    double *part[MAX_PARTS]; /* NULL: the input is absent */
    size_t peak;             /* bytes of device memory */
} answer;

/* clang-format off */
static const problem table[] = {
    { "one tile", SIZES(2, 17, 23, 3, 8) },
    { "tiles of queries and keys", SIZES(1, 150, 1100, 2, 16) },
    { "one query", SIZES(2, 1, 70, 2, 4) },
    { "one key", SIZES(2, 5, 1, 2, 4) },
    { "odd heads", SIZES(2, 67, 35, 3, 5) },
    { "large heads", SIZES(1, 70, 130, 1, 64) },
    { "heads of one", SIZES(1, 9, 11, 3, 1) },
    { "a scale", SIZES(1, 33, 33, 2, 8), .cfg = { .scale = 0.1 } },
    { "huge logits", SIZES(1, 40, 70, 2, 8), .size = 30.0 },
    { "causal", SIZES(2, 130, 130, 2, 8), .cfg = { .causal = true } },
    { "causal, stripes", SIZES(1, 700, 700, 1, 4), .cfg = { .causal = true } },
    { "causal, more keys than queries", SIZES(1, 300, 777, 2, 4), .cfg = { .causal = true } },
    { "causal, fewer keys than queries", SIZES(2, 333, 150, 2, 4), .cfg = { .causal = true } },
    { "mask", SIZES(2, 70, 90, 2, 8), .mask = THIRDS },
    { "mask, a blind row", SIZES(2, 70, 90, 2, 8), .mask = BLIND },
    { "mask, causal", SIZES(2, 100, 600, 1, 4), .mask = THIRDS, .cfg = { .causal = true } },
    { "bias of all", SIZES(3, 66, 70, 2, 8), .bias = 3 },
    { "bias of all, stripes", SIZES(2, 300, 600, 1, 4), .bias = 3, .cfg = { .causal = true } },
    { "bias of each", SIZES(3, 66, 70, 2, 8), .bias = 4 },
    { "bias of each, mask", SIZES(2, 70, 540, 1, 8), .bias = 4, .mask = BLIND },
    { "dropout", SIZES(2, 70, 90, 2, 8), .cfg = { .dropout = 0.3 } },
    { "dropout, all options", SIZES(2, 129, 515, 2, 4), .bias = 3, .mask = THIRDS,
      .cfg = { .causal = true, .dropout = 0.5 } },
    { "no keys", SIZES(2, 5, 0, 2, 4) },
    { "no queries", SIZES(2, 0, 5, 2, 4) },
    { "no batch", SIZES(0, 3, 5, 2, 4), .bias = 3 },
    { "relative, no memory", SIZES(2, 70, 70, 2, 8), .relative = true },
    { "relative, memory", SIZES(2, 70, 150, 3, 5), .relative = true },
    { "relative, tiles and stripes", SIZES(2, 330, 700, 1, 4), .relative = true },
    { "relative, one query", SIZES(3, 1, 600, 2, 4), .relative = true },
    { "relative, a scale", SIZES(1, 20, 30, 2, 64), .relative = true, .cfg = { .scale = 0.05 } },
    { "relative, span", SIZES(2, 90, 150, 2, 4), .relative = true, .cfg = { .max_span = 60 } },
    { "relative, short span", SIZES(1, 300, 900, 1, 4), .relative = true,
      .cfg = { .max_span = 7 } },
    { "relative, span of one", SIZES(1, 9, 12, 2, 4), .relative = true, .cfg = { .max_span = 1 } },
    { "relative, span without limit", SIZES(1, 9, 12, 2, 4), .relative = true,
      .cfg = { .max_span = 12 } },
    { "relative, dropout", SIZES(2, 80, 600, 2, 4), .relative = true, .cfg = { .dropout = 0.2 } },
    { "relative, empty", SIZES(2, 0, 0, 2, 4), .relative = true },
};
/* clang-format on */
enum { PROBLEMS = sizeof table / sizeof *table };

static tp_tensor input(const problem *p, tp_tape *T, tp_dtype dt, int i)
{
    const tp_shape s = ref_attention_input(p, i);
    int64_t n = 1;
    if (s.ndim == 0) return TP_NONE;
    for (int a = 0; a < s.ndim; a++) n *= s.dim[a];
    double *x = malloc((size_t)(n + 1) * sizeof *x);
    values_random(x, n, (uint64_t)i + 1);
    for (int64_t e = 0; i < 2 && p->size != 0.0 && e < n; e++) x[e] *= p->size;
    const tp_tensor t = values_input(T, dt, s, x);
    free(x);
    return t;
}

static tp_tensor apply(const problem *p, tp_tape *T, bool plain, const tp_tensor *x)
{
    tp_attn_cfg cfg = p->cfg;
    cfg.heads = (int)p->H;
    if (p->relative)
        return (plain ? ref_rel_attention : tp_rel_attention)(T, x[0], x[1], x[2], x[3], x[4], x[5],
                                                              cfg);
    uint8_t *mask = ref_attention_mask(p);
    tp_tensor y;
    if (plain) {
        y = ref_attention(T, x[0], x[1], x[2], mask, x[3], cfg);
    } else {
        const tp_tensor m = mask ? tp_from(T, TP_U8, TP_SHAPE(p->B, p->S), mask) : TP_NONE;
        y = tp_attention(T, x[0], x[1], x[2], m, x[3], cfg);
    }
    free(mask);
    return y;
}

static void take(answer *a, int part, tp_tape *T, tp_tensor x)
{
    a->numel[part] = tp_numel(x);
    a->part[part] = malloc((size_t)(a->numel[part] + 1) * sizeof(double));
    values_read(T, x, a->part[part]);
}

static answer solve(const problem *p, tp_device *D, tp_dtype dt, bool plain)
{
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 5, .compute = dt, .train = true });
    tp_tensor x[MAX_INPUTS];
    answer a = { 0 };
    for (int i = 0; i < MAX_INPUTS; i++) x[i] = input(p, T, dt, i);
    tp_device_reset_peak(D);
    const tp_tensor y = apply(p, T, plain, x);
    take(&a, 0, T, y);
    double *weight = malloc((size_t)(a.numel[0] + 1) * sizeof *weight);
    values_random(weight, a.numel[0], 99);
    const tp_tensor w = values_constant(T, dt, tp_shape_of(y), weight);
    tp_backward(T, tp_sum(T, tp_mul(T, y, w), TP_ALL));
    a.peak = tp_device_stats(D).peak_bytes;
    for (int i = 0; i < MAX_INPUTS; i++)
        if (tp_given(x[i])) take(&a, i + 1, T, tp_grad(T, x[i]));
    cr_expect(tp_ok(T), "%s: %s", p->name, tp_why(T));
    free(weight);
    tp_tape_free(T);
    return a;
}

static void release(answer *a)
{
    for (int i = 0; i < MAX_PARTS; i++) free(a->part[i]);
}

static void expect_close(const problem *p, const char *what, const answer *a, const answer *want,
                         double tolerance)
{
    for (int i = 0; i < MAX_PARTS; i++) {
        if (!want->part[i]) continue;
        const double off = values_error(a->part[i], want->part[i], want->numel[i], 1e-2);
        cr_expect(off <= tolerance, "%s, %s: %s %d is off by %g", p->name, what,
                  i ? "gradient" : "result", i, off);
    }
}

Test(attention, equals_plain_ops)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2 });
    for (const problem *p = table; p < table + PROBLEMS; p++) {
        answer want = solve(p, D, TP_F64, true), a = solve(p, D, TP_F64, false);
        expect_close(p, "f64", &a, &want, 1e-11);
        release(&want);
        release(&a);
    }
    tp_device_close(D);
}

/* f32 rounds logits, of magnitude size^2, before the exponential: hence the two tolerances. */
Test(attention, in_f32_on_every_instruction_set)
{
    const tp_isa isas[] = { TP_ISA_BASE, TP_ISA_AVX2, TP_ISA_AVX512 };
    tp_device *exact = tp_device_open("cpu", &(tp_device_opts){ .threads = 2 });
    for (const problem *p = table; p < table + PROBLEMS; p++) {
        answer want = solve(p, exact, TP_F64, false);
        for (int i = 0; i < 3; i++) {
            if (!tp_isa_runs(isas[i])) continue;
            tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2, .isa = isas[i] });
            answer a = solve(p, D, TP_F32, false);
            expect_close(p, tp_device_stats(D).isa, &a, &want, p->size > 1.0 ? 1e-3 : 1e-5);
            release(&a);
            tp_device_close(D);
        }
        release(&want);
    }
    tp_device_close(exact);
}

Test(attention, in_bf16)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AMX; isa++) {
        if (!amx_isa_runs(isa)) continue;
        tp_device *D = amx_open(&(tp_device_opts){ .threads = 2, .isa = isa });
        for (const problem *p = table; p < table + PROBLEMS; p++) {
            if (p->size > 1.0) continue;
            answer want = solve(p, D, TP_F32, false), a = solve(p, D, TP_BF16, false);
            expect_close(p, tp_device_stats(D).isa, &a, &want, 4e-2);
            release(&want);
            release(&a);
        }
        tp_device_close(D);
    }
}

Test(attention, has_the_same_bits_on_any_number_of_threads)
{
    for (const problem *p = table; p < table + PROBLEMS; p++) {
        answer first = { 0 };
        for (int threads = 1; threads < 9; threads += threads + 1) { /* 1, 3, 7 */
            tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = threads });
            answer a = solve(p, D, TP_F32, false);
            for (int i = 0; i < MAX_PARTS && threads > 1; i++)
                cr_expect(!a.part[i] || memcmp(a.part[i], first.part[i],
                                               (size_t)a.numel[i] * sizeof(double)) == 0,
                          "%s: part %d differs on %d threads", p->name, i, threads);
            if (threads > 1)
                release(&a);
            else
                first = a;
            tp_device_close(D);
        }
        release(&first);
    }
}

/* Expects rows [from, to) of this part (result or gradient) to be exactly zero. */
static void expect_zeros(const problem *p, const answer *a, int part, int64_t from, int64_t to)
{
    const int64_t width = p->H * p->D;
    for (int64_t e = from * width; e < to * width; e++)
        if (a->part[part][e] != 0.0) {
            cr_expect(false, "%s: element %lld of part %d is %g", p->name, (long long)e, part,
                      a->part[part][e]);
            return;
        }
}

Test(attention, of_a_query_that_sees_nothing_is_zero)
{
    const problem masked = { "masked", SIZES(2, 70, 90, 2, 8), .mask = BLIND };
    const problem early = { "early", SIZES(1, 333, 150, 2, 4), .cfg = { .causal = true } };
    tp_device *D = tp_device_open("cpu", NULL);

    answer a = solve(&masked, D, TP_F32, false);
    expect_zeros(&masked, &a, 0, masked.N, 2 * masked.N); /* the second sample */
    expect_zeros(&masked, &a, 1, masked.N, 2 * masked.N);
    expect_zeros(&masked, &a, 2, masked.S, 2 * masked.S);
    expect_zeros(&masked, &a, 3, masked.S, 2 * masked.S);
    release(&a);

    a = solve(&early, D, TP_F32, false);
    expect_zeros(&early, &a, 0, 0, early.N - early.S);
    expect_zeros(&early, &a, 1, 0, early.N - early.S);
    cr_expect(a.part[0][(early.N - early.S) * early.H * early.D] != 0.0, "the next one sees a key");
    release(&a);
    tp_device_close(D);
}

/* Training memory, inputs aside, grows with N, not N * S. */
Test(attention, takes_memory_linear_in_the_tokens)
{
    const problem problems[] = {
        { "full", SIZES(1, 512, 512, 4, 16) },
        { "dropout", SIZES(1, 512, 512, 4, 16), .cfg = { .causal = true, .dropout = 0.1 } },
        { "relative", SIZES(1, 512, 512, 4, 16), .relative = true },
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        problem p = problems[i];
        size_t peak[2];
        for (int k = 0; k < 2; k++) {
            tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
            answer a = solve(&p, D, TP_F32, false);
            peak[k] = a.peak;
            release(&a);
            tp_device_close(D);
            p.N = p.S = 4 * p.N;
        }
        cr_expect(peak[1] <= 4 * peak[0] + (1 << 21), "%s: %zu bytes, of 4 times the tokens %zu",
                  p.name, peak[0], peak[1]);
        cr_expect(peak[1] < 2048 * 2048 * 4 * sizeof(float) / 4, "%s: %zu bytes", p.name, peak[1]);
    }
}

/* ---- messages ---- */

typedef struct mistake {
    tp_shape q, k, v, mask, bias;
    tp_attn_cfg cfg;
    const char *text;
    tp_code code;
    tp_dtype mask_type; /* TP_F32, the default 0, means TP_U8 */
} mistake;

#define X3(B, N, C)                                                                                \
    {                                                                                              \
        3,                                                                                         \
        {                                                                                          \
            B, N, C                                                                                \
        }                                                                                          \
    }
#define QKV(B, N, S, C) X3(B, N, C), X3(B, S, C), X3(B, S, C)

static void expect_text(const char *name, tp_tape *T, tp_code code, const char *text)
{
    char want[256];
    snprintf(want, sizeof want, "%s: %s\n", name, text);
    cr_expect(strncmp(tp_why(T), want, strlen(want)) == 0, "'%s' instead of '%s'", tp_why(T), want);
    cr_expect_eq(tp_code_of(T), code, "%s", text);
    tp_clear(T);
}

static tp_tensor empty(tp_tape *T, tp_dtype dt, tp_shape s)
{
    return s.ndim ? tp_full(T, dt, s, 0.0) : TP_NONE;
}

Test(attention, names_mistakes)
{
    /* clang-format off */
    const mistake mistakes[] = {
        { { 2, { 3, 8 } }, X3(2, 3, 8), X3(2, 3, 8), .cfg = { .heads = 2 }, .code = TP_E_SHAPE,
          .text = "q must be [B,N,H*D], k and v [B,S,H*D]" },
        { X3(2, 3, 8), X3(3, 3, 8), X3(3, 3, 8), .cfg = { .heads = 2 }, .code = TP_E_SHAPE,
          .text = "batch sizes of q and k differ: 2 and 3" },
        { X3(2, 3, 8), X3(2, 3, 6), X3(2, 3, 6), .cfg = { .heads = 2 }, .code = TP_E_SHAPE,
          .text = "widths of q and k differ: 8 and 6" },
        { X3(2, 3, 8), X3(2, 4, 8), X3(2, 5, 8), .cfg = { .heads = 2 }, .code = TP_E_SHAPE,
          .text = "k and v must be of one shape" },
        { QKV(2, 3, 4, 8), .cfg = { .heads = 0 }, .code = TP_E_VALUE,
          .text = "heads must be positive, not 0" },
        { QKV(2, 3, 4, 8), .cfg = { .heads = 3 }, .code = TP_E_SHAPE,
          .text = "a width of 8 does not divide into 3 heads" },
        { QKV(2, 3, 4, 8), .cfg = { .heads = 2, .dropout = 1.0 }, .code = TP_E_VALUE,
          .text = "dropout must be in [0, 1), not 1" },
        { QKV(2, 3, 4, 8), .cfg = { .heads = 2, .dropout = NAN }, .code = TP_E_VALUE,
          .text = "dropout must be in [0, 1), not nan" },
        { QKV(2, 3, 4, 8), .cfg = { .heads = 2, .scale = INFINITY }, .code = TP_E_VALUE,
          .text = "scale must be finite" },
        { QKV(2, 3, 4, 8), .cfg = { .heads = 2, .max_span = 3 }, .code = TP_E_VALUE,
          .text = "max_span is an option of tp_rel_attention" },
        { QKV(2, 3, 4, 8), .mask = { 2, { 2, 3 } }, .cfg = { .heads = 2 }, .code = TP_E_SHAPE,
          .text = "mask must be u8[B,S] = u8[2,4]" },
        { QKV(2, 3, 4, 8), .mask = { 2, { 2, 4 } }, .mask_type = TP_I32, .cfg = { .heads = 2 },
          .code = TP_E_DTYPE, .text = "mask must be u8, not i32; tp_cast converts" },
        { QKV(2, 3, 4, 8), .bias = { 3, { 2, 3, 5 } }, .cfg = { .heads = 2 }, .code = TP_E_SHAPE,
          .text = "bias must be [H,N,S] or [B,H,N,S] = [2,2,3,4], or slopes [H]" },
        { QKV(2, 3, 4, 8), .bias = { 4, { 1, 2, 3, 4 } }, .cfg = { .heads = 2 }, .code = TP_E_SHAPE,
          .text = "bias must be [H,N,S] or [B,H,N,S] = [2,2,3,4], or slopes [H]" },
        { X3(2, 3, 8), X3(2, 3, 2), X3(2, 3, 2), .cfg = { .heads = 2, .kv_heads = 1 },
          .code = TP_E_SHAPE,
          .text = "k and v must be [B,S,4], 1 heads of 4" },
        { QKV(2, 3, 4, 8), .cfg = { .heads = 2, .kv_heads = 3 }, .code = TP_E_VALUE,
          .text = "kv_heads must divide the 2 heads; 3 does not" },
        { QKV(2, 3, 4, 8), .cfg = { .heads = 2, .kv_heads = -1 }, .code = TP_E_VALUE,
          .text = "kv_heads must divide the 2 heads; -1 does not" },
        { QKV(2, 3, 4, 8), .cfg = { .heads = 2, .keys = 5 }, .code = TP_E_VALUE,
          .text = "keys must be in [0,4], not 5" },
        { QKV(2, 3, 4, 8), .cfg = { .heads = 2, .keys = -1 }, .code = TP_E_VALUE,
          .text = "keys must be in [0,4], not -1" },
        { QKV(2, 3, 4, 8), .mask = { 2, { 2, 4 } }, .cfg = { .heads = 2, .keys = 3 },
          .code = TP_E_SHAPE,
          .text = "mask must be u8[B,S] = u8[2,3]" },
        { QKV(2, 3, 4, 8), .bias = { 1, { 2 } }, .cfg = { .heads = 2, .alibi = true },
          .code = TP_E_VALUE,
          .text = "give the slopes [H] or set alibi, not both" },
        { QKV(2, 3, 4, 8), .bias = { 2, { 3, 4 } }, .cfg = { .heads = 2 }, .code = TP_E_SHAPE,
          .text = "bias must be [H,N,S] or [B,H,N,S] = [2,2,3,4], or slopes [H]" },
    };
    /* clang-format on */
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const mistake *m = &mistakes[i];
        tp_attention(T, empty(T, TP_F32, m->q), empty(T, TP_F32, m->k), empty(T, TP_F32, m->v),
                     empty(T, m->mask_type ? m->mask_type : TP_U8, m->mask),
                     empty(T, TP_F32, m->bias), m->cfg);
        expect_text("attention", T, m->code, m->text);
    }
    const tp_tensor ids = tp_full(T, TP_I32, TP_SHAPE(2, 3, 8), 0.0);
    tp_attention(T, ids, ids, ids, TP_NONE, TP_NONE, (tp_attn_cfg){ .heads = 2 });
    expect_text("attention", T, TP_E_DTYPE, "q must be floating point, not i32; tp_cast converts");
    tp_tape_free(T);
    tp_device_close(D);
}

Test(attention, names_mistakes_with_positions)
{
    /* clang-format off */
    const struct {
        int64_t N, S, span;
        tp_shape pos, r_w, r_r;
        tp_code code;
        const char *text;
    } mistakes[] = {
        { 4, 3, 0, { 2, { 3, 8 } }, { 2, { 2, 4 } }, { 2, { 2, 4 } }, TP_E_SHAPE,
          "there must be at least as many keys as queries, not 3 and 4" },
        { 3, 4, -1, { 2, { 4, 8 } }, { 2, { 2, 4 } }, { 2, { 2, 4 } }, TP_E_VALUE,
          "max_span must not be negative" },
        { 3, 4, 0, { 2, { 3, 8 } }, { 2, { 2, 4 } }, { 2, { 2, 4 } }, TP_E_SHAPE,
          "pos must be [S,H*D] = [4,8]" },
        { 3, 4, 0, { 2, { 4, 8 } }, { 2, { 4, 2 } }, { 2, { 2, 4 } }, TP_E_SHAPE,
          "r_w and r_r must be [H,D] = [2,4]" },
        { 3, 4, 0, { 2, { 4, 8 } }, { 2, { 2, 4 } }, { 1, { 8 } }, TP_E_SHAPE,
          "r_w and r_r must be [H,D] = [2,4]" },
    };
    /* clang-format on */
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const tp_tensor q = tp_full(T, TP_F32, TP_SHAPE(2, mistakes[i].N, 8), 0.0);
        const tp_tensor k = tp_full(T, TP_F32, TP_SHAPE(2, mistakes[i].S, 8), 0.0);
        tp_rel_attention(T, q, k, k, empty(T, TP_F32, mistakes[i].pos),
                         empty(T, TP_F32, mistakes[i].r_w), empty(T, TP_F32, mistakes[i].r_r),
                         (tp_attn_cfg){ .heads = 2, .max_span = mistakes[i].span });
        expect_text("rel_attention", T, mistakes[i].code, mistakes[i].text);
    }
    tp_tape_free(T);
    tp_device_close(D);
}
