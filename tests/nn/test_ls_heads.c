/* test_ls_heads.c - the language model's long-short attention, with and without separate heads for
 * window and projections, against plain ops that compute one head after the other: values and
 * gradients of inputs and parameters; shapes of parameters; messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "ops/ref_ls.h"
#include "support/device.h"
#include "support/values.h"

enum { DIM = 12, PARAMS = 32 };

typedef struct heads_case {
    const char *name;
    int64_t B, M, L; /* L: rows of the cache */
    tp_ls_cfg cfg;
} heads_case;

#define OP(H, l, r, w) .attn.heads = H, .attn.chunk = l, .attn.rank = r, .attn.window = w

static const heads_case cases[] = {
    { "every head sees both", 1, 16, 16, { OP(3, 4, 1, 8) } },
    { "one head for the window", 1, 16, 16, { OP(3, 4, 1, 8), .window_heads = 1 } },
    { "one head for the vectors", 2, 8, 16, { OP(4, 4, 2, 8), .window_heads = 3 } },
    { "half of them, segment",
      1,
      16,
      12,
      { OP(4, 2, 1, 8), .attn.segment = true, .window_heads = 2 } },
    { "masked, short cache", 1, 8, 4, { OP(2, 4, 2, 8), .attn.masked = true, .window_heads = 1 } },
    { "masked, no cache", 2, 8, 0, { OP(2, 4, 1, 8), .attn.masked = true, .window_heads = 1 } },
    { "local norm first", 1, 16, 8, { OP(6, 4, 1, 4), .ln_local = true, .window_heads = 4 } },
    { "project first", 1, 12, 24, { OP(3, 3, 2, 6), .project_first = true, .window_heads = 2 } },
    { "no DualLN", 1, 16, 16, { OP(2, 4, 1, 8), .raw_kv = true, .window_heads = 1 } },
    { "the paper's form",
      2,
      16,
      8,
      { OP(3, 4, 2, 8), .attn.masked = true, .attn.segment = true, .ln_local = true,
        .project_first = true, .window_heads = 1 } },
};

enum { CASES = sizeof cases / sizeof *cases };

/* ---- one head after the other ---- */

static tp_tensor norm(tp_tape *T, const tp_layernorm_m *m, tp_tensor x)
{
    return tp_given(m->weight) ? tp_layernorm_forward(T, m, x) : x;
}

/* Rows [B,L+M,DIM] of keys or values -> those of the window, *vectors those of the projections. */
static tp_tensor rows_of(tp_tape *T, const tp_ls_attn_m *m, const tp_linear_m *project,
                         tp_tensor cache, tp_tensor h, tp_tensor *vectors)
{
    const tp_ls_attn_cfg *c = &m->cfg.attn;
    const int64_t L = tp_dim(cache, 1), M = tp_dim(h, 1), near = L < c->window ? L : c->window;
    const tp_tensor x = tp_concat(T, 1, cache, h), raw = tp_linear_forward(T, project, x);
    const tp_tensor local = norm(T, &m->dual_ln.local, raw);
    const tp_tensor rows = m->cfg.ln_local ? local : raw;
    const tp_tensor z = tp_linear_forward(T, &m->dconv_1, x);
    tp_tensor y;
    if (m->cfg.project_first || L == 0) {
        y = ref_chunk_project(T, rows, z, c->heads, c->chunk, c->rank);
    } else {
        const tp_tensor old =
            ref_chunk_project(T, cache, tp_slice(T, z, 1, 0, L), c->heads, c->chunk, c->rank);
        const tp_tensor now = ref_chunk_project(
            T, tp_slice(T, rows, 1, L, M), tp_slice(T, z, 1, L, M), c->heads, c->chunk, c->rank);
        y = tp_concat(T, 1, tp_linear_forward(T, project, old), now);
    }
    *vectors = norm(T, &m->dual_ln.global, y);
    return tp_slice(T, local, 1, L - near, near + M);
}

/* Head i of x, whose last axis has heads of D channels. */
static tp_tensor head(tp_tape *T, tp_tensor x, int64_t D, int i)
{
    return tp_slice(T, x, -1, i * D, D);
}

static tp_tensor plain(tp_tape *T, const tp_ls_attn_m *m, tp_tensor h, tp_tensor cache,
                       tp_ls_context ctx)
{
    const tp_ls_attn_cfg *c = &m->cfg.attn;
    const int64_t D = DIM / c->heads;
    const int near = m->cfg.window_heads; /* 0: every head sees both */
    tp_tensor cmp[2], all[16];
    const tp_tensor q = tp_linear_forward(T, &m->proj_query, h);
    const tp_tensor k = rows_of(T, m, &m->proj_key, cache, h, &cmp[0]);
    const tp_tensor v = rows_of(T, m, &m->proj_val, cache, h, &cmp[1]);
    const tp_tensor pos_win = tp_linear_forward(T, &m->r_net, ctx.pos_win);
    const tp_tensor pos_cmp = tp_linear_forward(T, &m->r_net_chunk, ctx.pos_cmp);
    const tp_tensor r_w = tp_reshape(T, m->r_w_bias, TP_SHAPE(-1));
    const tp_tensor r_r = tp_reshape(T, m->r_r_bias, TP_SHAPE(-1));
    for (int i = 0; i < c->heads; i++) {
        const bool window = near == 0 || i < near, vectors = near == 0 || i >= near;
        tp_ls_attn_cfg one = *c;
        tp_ls_in in = { .q = head(T, q, D, i), .cache = tp_dim(cache, 1), .valid = ctx.valid };
        one.heads = 1;
        if (window) {
            in.k_win = head(T, k, D, i);
            in.v_win = head(T, v, D, i);
            in.pos_win = head(T, pos_win, D, i);
            in.r_w = head(T, r_w, D, i);
            in.r_r = head(T, r_r, D, i);
        } else {
            one.window = 0;
        }
        if (vectors) {
            in.k_cmp = head(T, cmp[0], D, i);
            in.v_cmp = head(T, cmp[1], D, i);
            in.pos_cmp = head(T, pos_cmp, D, i - near);
        } else {
            one.rank = 0;
        }
        all[i] = ref_ls_attention(T, in, one);
    }
    return tp_linear_forward(T, &m->proj_out, tp_concat_n(T, 2, c->heads, all));
}

/* ---- comparison ---- */

typedef tp_tensor (*attention)(tp_tape *T, const tp_ls_attn_m *m, tp_tensor h, tp_tensor cache,
                               tp_ls_context ctx);

static tp_tensor module(tp_tape *T, const tp_ls_attn_m *m, tp_tensor h, tp_tensor cache,
                        tp_ls_context ctx)
{
    return tp_ls_attn_forward(T, m, h, cache, ctx);
}

static tp_tensor random_rows(tp_tape *T, tp_shape s, uint64_t seed)
{
    double x[1024];
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    cr_assert(n <= 1024);
    values_random(x, n, seed);
    return values_input(T, device_real(), s, x);
}

/* Weights above the initial 0.02, where attention is nearly uniform. */
static void spread(tp_params *P)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        double x[1024];
        const size_t bytes = (size_t)tp_numel(it.tensor) * sizeof *x;
        cr_assert(bytes <= sizeof x);
        values_random(x, tp_numel(it.tensor), 100 + (uint64_t)it.index);
        cr_assert(tp_param_set(P, it.tensor, TP_F64, x, bytes));
    }
}

/* The result, then gradients of h, the cache and each parameter, one after the other. */
static int64_t run(tp_tape *T, tp_params *P, const tp_ls_attn_m *m, const heads_case *k,
                   attention f, double *out)
{
    const tp_ls_attn_cfg *c = &k->cfg.attn;
    const int64_t span = c->segment ? 2 * (int64_t)c->window : c->window;
    const int64_t vectors = (k->L + k->M) / c->chunk * c->rank;
    int64_t n = k->B * k->M * DIM;
    tp_reset(T);
    tp_grad_clear(P);
    const tp_tensor h = random_rows(T, TP_SHAPE(k->B, k->M, DIM), 1);
    const tp_tensor cache = random_rows(T, TP_SHAPE(k->B, k->L, DIM), 2);
    const tp_ls_context ctx = { random_rows(T, TP_SHAPE(span, DIM), 3),
                                random_rows(T, TP_SHAPE(vectors, DIM), 4), k->L };
    const tp_tensor y = f(T, m, h, cache, ctx);
    values_read(T, y, out);
    const tp_tensor probe = random_rows(T, TP_SHAPE(k->B, k->M, DIM), 5);
    tp_backward(T, tp_sum(T, tp_mul(T, y, probe), TP_ALL));
    cr_assert(tp_ok(T), "%s: %s", k->name, tp_why(T));
    const tp_tensor in[] = { h, cache };
    for (int i = 0; i < (k->L ? 2 : 1); n += tp_numel(in[i++]))
        values_read(T, tp_grad(T, in[i]), out + n);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it); n += tp_numel(it.tensor)) {
        cr_assert(it.has_grad, "%s: %s has no gradient", k->name, it.name);
        cr_assert(tp_param_get_grad(P, it.tensor, TP_F64, out + n,
                                    (size_t)tp_numel(it.tensor) * sizeof *out));
    }
    cr_assert(tp_ok(T), "%s: %s", k->name, tp_why(T));
    return n;
}

Test(ls_heads, equals_heads_computed_one_by_one)
{
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    for (int i = 0; i < CASES; i++) {
        static double got[8192], want[8192];
        tp_params *P = tp_params_new(D, &(tp_params_opts){ .dtype = device_real() });
        tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real(), .train = true });
        tp_ls_attn_m m;
        tp_ls_attn_init(P, &m, "attn", DIM, i % 2 == 1, cases[i].cfg);
        cr_assert(tp_params_ok(P), "%s: %s", cases[i].name, tp_params_why(P));
        spread(P);
        const int64_t n = run(T, P, &m, &cases[i], module, got);
        cr_assert(n <= 8192 && run(T, P, &m, &cases[i], plain, want) == n);
        const double error = values_error(got, want, n, 1.0);
        cr_expect_leq(error, device_limit(1e-11, 2e-4), "%s: the error is %g", cases[i].name,
                      error);
        tp_tape_free(T);
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* Tables of positions and their biases have the heads that read them. */
Test(ls_heads, shapes_of_parameters)
{
    static const struct {
        const char *name;
        int64_t rows, numel;
    } rows[] = {
        { "attn.r_net.weight", 3, 3 * DIM },
        { "attn.r_net_chunk.weight", 9, 9 * DIM },
        { "attn.r_net_chunk.bias", 9, 9 },
        { "attn.r_w_bias", 1, 3 },
        { "attn.r_r_bias", 1, 3 },
        { "attn.dconv_1.weight", 8, 8 * DIM },
        { "attn.dual_ln_win.weight", DIM, DIM },
        { "attn.dual_ln_dproj.weight", DIM, DIM },
        { "attn.proj_key.weight", DIM, DIM * DIM },
    };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1, .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_ls_attn_m m;
    tp_ls_attn_init(P, &m, "attn", DIM, false, (tp_ls_cfg){ OP(4, 4, 2, 8), .window_heads = 1 });
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tp_tensor p = tp_find(P, rows[i].name);
        cr_assert(tp_given(p), "%s", rows[i].name);
        cr_expect(tp_dim(p, 0) == rows[i].rows && tp_numel(p) == rows[i].numel, "%s: %lld of %lld",
                  rows[i].name, (long long)tp_dim(p, 0), (long long)tp_numel(p));
    }
    tp_params_free(P);
    tp_device_close(D);
}

Test(ls_heads, refusals)
{
    static const struct {
        tp_ls_cfg cfg;
        const char *why;
    } rows[] = {
        { { OP(4, 4, 1, 8), .window_heads = 4 }, "4 of 4 heads see only the window" },
        { { OP(4, 4, 1, 8), .window_heads = -1 }, "-1 of 4 heads see only the window" },
        { { OP(4, 4, 0, 8), .window_heads = 2 }, "need both a window and projected vectors" },
        { { OP(4, 4, 1, 0), .window_heads = 2 }, "need both a window and projected vectors" },
    };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1, .dry = true });
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tp_params *P = tp_params_new(D, NULL);
        tp_ls_attn_m m;
        char why[128];
        cr_expect(!tp_ls_cfg_check(&rows[i].cfg, DIM, why, sizeof why) && strstr(why, rows[i].why),
                  "row %zu: %s", i, why);
        tp_ls_attn_init(P, &m, "attn", DIM, false, rows[i].cfg);
        cr_expect(!tp_params_ok(P) && strstr(tp_params_why(P), rows[i].why), "row %zu: %s", i,
                  tp_params_why(P));
        tp_params_free(P);
    }
    tp_device_close(D);
}
