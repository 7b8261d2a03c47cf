/* test_attention_bf16.c - attention of bf16 tensors against the same ops in f64, with odd and even
 * sizes, masks and dropout: errors of results and gradients, in norm, match rounding of inputs,
 * probabilities and results to bf16. Bits do not depend on threads. Both also by tiles of AMX. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "ops/ref_map.h"
#include "support/amx.h"
#include "support/trial.h"
#include "support/values.h"
#include "tensor/bf16.h"

/* Rounding to bf16 has a relative error of at most 2^-9, or 2^-10.2 in norm. dy, the result, the
 * probabilities, their gradients and the inputs' are rounded: 2^-9 for results, somewhat more for
 * gradients. */
#define ERROR 0x1p-8

enum { SEED = 3 };

typedef struct problem {
    const char *name;
    int64_t B, N, S, C; /* S: keys of full attention */
    int64_t low;
    bool table, mask;
    tp_window_attn_cfg map; /* heads 0: full attention */
    tp_attn_cfg full;
} problem;

/* clang-format off */
#define MAP(h, w) .height = h, .width = w
#define WINDOW(w, s) .window = { w, w }, .halo = { s, s }
static const problem problems[] = {
    { "chunks of a map", 2, 294, 0, 64, 0, true, false, { .heads = 2, MAP(14, 21), WINDOW(7, 7) },
      { 0 } },
    { "odd columns of keys", 1, 153, 0, 34, 3, true, false,
      { .heads = 2, MAP(9, 17), WINDOW(3, 2) }, { 0 } },
    { "global tokens", 1, 154, 0, 48, 1, true, false,
      { .heads = 1, MAP(9, 17), WINDOW(4, 4), .global = 1 }, { 0 } },
    { "cyclic", 2, 97, 0, 64, 0, true, false,
      { .heads = 2, MAP(12, 8), WINDOW(4, 4), .edge = TP_EDGE_CYCLIC, .global = 1 }, { 0 } },
    { "one block", 1, 81, 0, 40, 0, true, false,
      { .heads = 1, MAP(9, 9), WINDOW(4, 4), .block = 3 }, { 0 } },
    { "dropout", 1, 154, 0, 32, 2, true, true,
      { .heads = 2, MAP(9, 17), WINDOW(4, 4), .global = 1, .dropout = 0.2 }, { 0 } },
    { "an exact sequence", 1, 233, 0, 64, 3, false, true,
      { .heads = 1, MAP(1, 233), .window = { 1, 90 }, .halo = { 0, 81 }, .edge = TP_EDGE_EXACT,
        .dropout = 0.1 }, { 0 } },
    { "an exact sequence of odd parts", 2, 300, 0, 128, 1, false, true,
      { .heads = 2, MAP(1, 300), .window = { 1, 75 }, .halo = { 0, 75 }, .edge = TP_EDGE_EXACT },
      { 0 } },
    { "no window", 1, 70, 0, 32, 37, false, true, { .heads = 1, MAP(7, 10), .dropout = 0.1 },
      { 0 } },
    { "a scale", 1, 96, 0, 48, 0, false, false,
      { .heads = 2, MAP(8, 12), WINDOW(4, 2), .scale = 0.3 }, { 0 } },
    { "full", 1, 150, 1100, 64, 0, false, false, { 0 }, { .heads = 2 } },
    { "full, odd sizes", 2, 131, 77, 34, 0, false, true, { 0 }, { .heads = 2, .dropout = 0.2 } },
    { "full, causal", 1, 700, 777, 32, 0, false, true, { 0 },
      { .heads = 1, .causal = true, .dropout = 0.1 } },
    { "full, causal, fewer keys", 2, 333, 150, 48, 0, false, false, { 0 },
      { .heads = 1, .causal = true } },
    { "full, shared heads", 1, 260, 140, 128, 0, false, false, { 0 },
      { .heads = 4, .kv_heads = 2, .causal = true } },
    { "full, a bias", 2, 70, 90, 64, 0, true, true, { 0 }, { .heads = 4 } },
    { "full, ALiBi, a scale", 1, 150, 301, 64, 0, false, false, { 0 },
      { .heads = 2, .alibi = true, .causal = true, .scale = 0.3 } },
    { "full, one query", 3, 1, 70, 64, 0, false, false, { 0 }, { .heads = 2 } },
};
/* clang-format on */
enum { PROBLEMS = sizeof problems / sizeof *problems, NX = 7, MASK_PERIOD = 5 };

/* Every fifth token is hidden. */
static tp_tensor mask_of(tp_tape *T, int64_t B, int64_t n)
{
    uint8_t *mask = malloc((size_t)(B * n) + 1);
    for (int64_t i = 0; i < B * n; i++) mask[i] = i % MASK_PERIOD != 2;
    const tp_tensor y = tp_from(T, TP_U8, TP_SHAPE(B, n), mask);
    free(mask);
    return y;
}

static tp_tensor attend(tp_tape *T, const tp_tensor *x, const void *env)
{
    const problem *p = env;
    tp_set_random_state(T, SEED, 0);
    if (p->map.heads == 0) {
        const tp_tensor mask = p->mask ? mask_of(T, p->B, p->S) : TP_NONE;
        return tp_attention(T, x[0], x[1], x[2], mask, x[5], p->full);
    }
    tp_window_in in = window_inputs(x);
    if (p->mask) in.mask = mask_of(T, p->B, p->N);
    return tp_window_attention_2d(T, in, p->map);
}

static double *exact_in_bf16(int64_t n, uint64_t seed)
{
    double *x = calloc((size_t)n + 1, sizeof *x);
    values_random(x, n, seed);
    for (int64_t i = 0; i < n; i++) x[i] = (double)tp__from_bf16(tp__to_bf16((float)x[i]));
    return x;
}

static trial trial_of(const problem *p)
{
    const tp_window_attn_cfg *c = &p->map;
    trial t = { .f = attend, .env = p, .dtype = TP_BF16, .compute = TP_BF16 };
    t.in[0] = TP_SHAPE(p->B, p->N, p->C);
    if (c->heads == 0) {
        const int64_t width = p->full.kv_heads ? p->C / p->full.heads * p->full.kv_heads : p->C;
        t.in[1] = t.in[2] = TP_SHAPE(p->B, p->S, width);
        if (p->table) t.in[5] = TP_SHAPE(p->full.heads, p->N, p->S);
        return t;
    }
    const int64_t y = c->window[0] + c->halo[0] - 1, x = c->window[1] + c->halo[1] - 1;
    t.in[1] = t.in[2] = t.in[0];
    for (int i = 3; i < 5 && p->low; i++) t.in[i] = TP_SHAPE(p->B, p->low, p->C);
    if (p->table) t.in[5] = TP_SHAPE((2 * y + 1) * (2 * x + 1), c->heads);
    if (c->global) t.in[6] = TP_SHAPE(c->heads, c->global);
    return t;
}

/* |a - b| / |b|, or |a| if b is zero */
static double error_of(const double *a, const double *b, int64_t n)
{
    double off = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
        off += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(size > 0.0 ? off / size : off);
}

static void check_errors(tp_isa isa)
{
    for (const problem *p = problems; p < problems + PROBLEMS; p++) {
        trial t = trial_of(p);
        t.isa = isa;
        double *x[NX] = { NULL };
        for (int i = 0; i < NX; i++)
            if (t.in[i].ndim)
                t.x[i] = x[i] = exact_in_bf16(trial_count(&t.in[i]), 10 + (uint64_t)i);
        trial exact = t;
        exact.dtype = exact.compute = TP_F64;
        exact.isa = TP_ISA_AUTO;
        trial_result a = trial_run(&t), b = trial_run(&exact);
        cr_assert_str_empty(a.why, "%s: %s", p->name, a.why);
        cr_assert_str_empty(b.why, "%s: %s", p->name, b.why);
        cr_expect_lt(error_of(a.y, b.y, b.ny), ERROR, "%s: %g", p->name, error_of(a.y, b.y, b.ny));
        for (int i = 0; i < NX; i++) {
            if (!b.dx[i]) continue;
            const double e = error_of(a.dx[i], b.dx[i], trial_count(&t.in[i]));
            cr_expect_lt(e, ERROR, "%s: gradient %d: %g", p->name, i, e);
        }
        trial_free(&a);
        trial_free(&b);
        for (int i = 0; i < NX; i++) free(x[i]);
    }
}

static void check_threads(tp_isa isa)
{
    for (const problem *p = problems; p < problems + PROBLEMS; p++) {
        trial t = trial_of(p);
        t.isa = isa;
        cr_expect(trial_same_on_threads(&t), "%s, isa %d", p->name, (int)isa);
    }
}

Test(attention_bf16, errors_are_those_of_rounding)
{
    check_errors(TP_ISA_AUTO);
}

Test(attention_bf16, bits_do_not_depend_on_threads)
{
    check_threads(TP_ISA_AUTO);
}

Test(attention_bf16, errors_by_tiles_of_amx)
{
    if (!amx_isa_runs(TP_ISA_AMX)) cr_skip_test("neither AMX nor AVX-512 with bf16");
    const int64_t before = amx_products();
    check_errors(TP_ISA_AMX);
    cr_expect(amx_products() > before || !amx_stood_for(), "no tiles were multiplied");
    cr_expect_eq(amx_holders(), 0, "threads keep tiles");
}

Test(attention_bf16, bits_by_tiles_of_amx)
{
    if (!amx_isa_runs(TP_ISA_AMX)) cr_skip_test("neither AMX nor AVX-512 with bf16");
    check_threads(TP_ISA_AMX);
}
