/* test_recurrent.c - tp_lstm and tp_gru against the same networks in plain ops, on every
 * instruction set and number of threads; lengths, errors, modules. tests/compare compares with
 * PyTorch. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "ops/ref_recurrent.h"
#include "support/device.h"
#include "support/trial.h"
#include "support/values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* x[0..7): x, w_ih, w_hh, b_ih, b_hh, h, c; the results as in ref_recurrent. */
static tp_tensor fused(tp_tape *T, const tp_tensor *x, const void *env)
{
    const ref_recurrent_cfg *cfg = env;
    const tp_rnn_weights w = { x[1], x[2], x[3], x[4] };
    const tp_shape s = TP_SHAPE(tp_dim(x[0], 0)), step = TP_SHAPE(s.dim[0], 1, tp_dim(x[2], 1));
    const tp_tensor lengths = cfg->lengths ? tp_from(T, TP_I64, s, cfg->lengths) : TP_NONE;
    tp_lstm_state last = { x[5], x[6] };
    const tp_tensor y = cfg->lstm ? tp_lstm(T, x[0], w, &last, lengths, cfg->reverse)
                                  : tp_gru(T, x[0], w, &last.h, lengths, cfg->reverse);
    const tp_tensor h = tp_reshape(T, last.h, step);
    return cfg->lstm ? tp_concat(T, 1, y, h, tp_reshape(T, last.c, step)) : tp_concat(T, 1, y, h);
}

static tp_tensor composed(tp_tape *T, const tp_tensor *x, const void *env)
{
    return ref_recurrent(T, x[0], (tp_rnn_weights){ x[1], x[2], x[3], x[4] },
                         (tp_lstm_state){ x[5], x[6] }, env);
}

static const int64_t mixed[] = { 3, 0, 7, 1, 7, 5, 2, 7, 4 }, falling[] = { 3, 2, 1 },
                     none[] = { 0, 0 };
static int64_t many[36]; /* filled below */

static const struct {
    const char *name;
    int64_t B, N, C, H;
    bool bias, state, reverse;
    const int64_t *lengths;
} cases[] = {
    { "bias and state", 4, 5, 3, 20, true, true, false, NULL },
    { "nothing but weights", 3, 4, 5, 17, false, false, false, NULL },
    { "reverse", 4, 5, 3, 8, true, true, true, NULL },
    { "lengths", 9, 7, 4, 33, true, true, false, mixed },
    { "lengths, reverse", 9, 7, 4, 33, true, true, true, mixed },
    { "lengths, no state", 3, 3, 2, 5, true, false, true, falling },
    { "no steps at all", 2, 3, 2, 3, true, true, false, none },
    { "two panels of gradients", 7, 3, 2, 70, true, true, false, NULL },
    { "two chunks", 36, 40, 2, 3, true, true, false, NULL },
    { "two chunks, lengths", 36, 40, 2, 3, true, true, true, many },
    { "one row", 1, 6, 1, 1, true, true, false, NULL },
};

static trial trial_of(size_t i, bool lstm, ref_recurrent_cfg *cfg)
{
    const int64_t B = cases[i].B, C = cases[i].C, H = cases[i].H, rows = (lstm ? 4 : 3) * H;
    for (int k = 0; k < 36; k++) many[k] = k % 5 ? (k * 7 + 3) % 41 : 40;
    *cfg = (ref_recurrent_cfg){ cases[i].lengths, lstm, cases[i].reverse };
    trial t = { .env = cfg,
                .in = { TP_SHAPE(B, cases[i].N, C), TP_SHAPE(rows, C), TP_SHAPE(rows, H) } };
    for (int k = 3; k < 5 && cases[i].bias; k++) t.in[k] = TP_SHAPE(rows);
    for (int k = 5; k < (lstm ? 7 : 6) && cases[i].state; k++) t.in[k] = TP_SHAPE(B, H);
    return t;
}

static void compare(size_t i, bool lstm, tp_dtype dt, tp_isa isa)
{
    ref_recurrent_cfg cfg;
    trial t = trial_of(i, lstm, &cfg);
    t.dtype = t.compute = dt;
    t.isa = isa;
    t.f = fused;
    trial_result a = trial_run(&t);
    t.f = composed;
    trial_result b = trial_run(&t);
    const double tol = dt == TP_F64 ? 1e-12 : 2e-5;
    const char *name = cases[i].name, *op = lstm ? "lstm" : "gru";
    cr_expect_str_empty(a.why, "%s, %s: %s", op, name, a.why);
    cr_expect_str_empty(b.why, "%s, %s, composed: %s", op, name, b.why);
    cr_expect_eq(a.ny, b.ny);
    cr_expect_lt(values_error(a.y, b.y, b.ny, 0), tol, "%s, %s, %s, isa %d", op, name,
                 tp_dtype_name(dt), (int)isa);
    for (int k = 0; k < TRIAL_INPUTS && !*a.why && !*b.why; k++)
        if (t.in[k].ndim > 0)
            cr_expect_lt(values_error(a.dx[k], b.dx[k], trial_count(&t.in[k]), 0), tol,
                         "%s, %s, %s, isa %d: gradient %d", op, name, tp_dtype_name(dt), (int)isa,
                         k);
    trial_free(&a);
    trial_free(&b);
}

Test(recurrent, fused_equals_composed, .timeout = 300)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < 2 * COUNT(cases); i++) {
            if (trial_can(TP_F64, isa)) compare(i / 2, i % 2, TP_F64, isa);
            if (trial_can(TP_F32, isa)) compare(i / 2, i % 2, TP_F32, isa);
        }
}

/* Threads share rows, or units if the batch is small and a step is large. */
Test(recurrent, bits_do_not_depend_on_threads, .timeout = 300)
{
    static const int64_t sizes[][4] = { { 40, 30, 20, 24 }, { 5, 3, 8, 350 } };
    static int64_t lengths[40];
    for (int k = 0; k < 40; k++) lengths[k] = k % 4;
    for (int i = 0; i < 8; i++) {
        const int64_t *z = sizes[i / 4], rows = (i % 2 ? 4 : 3) * z[3];
        const ref_recurrent_cfg cfg = { i & 2 ? lengths : NULL, i % 2, i & 2 };
        const trial t = { .f = fused,
                          .env = &cfg,
                          .in = { TP_SHAPE(z[0], z[1], z[2]), TP_SHAPE(rows, z[2]),
                                  TP_SHAPE(rows, z[3]), TP_SHAPE(rows), TP_SHAPE(rows),
                                  TP_SHAPE(z[0], z[3]) } };
        cr_expect(trial_same_on_threads(&t), "case %d", i);
    }
}

/* ---- padding ---- */

/* Values beyond the lengths, even NaN, reach neither results nor gradients. */
Test(recurrent, padding_has_no_influence)
{
    enum { B = 3, N = 4, C = 2, H = 3 };
    const int64_t lengths[B] = { 2, 4, 0 };
    double in[B * N * C], w[4 * H * H], y[B * N * H], dx[B * N * C];
    values_random(w, 4 * H * H, 2);
    for (int i = 0; i < 4; i++) {
        const bool lstm = i & 1, reverse = i & 2;
        const int64_t rows = (lstm ? 4 : 3) * H;
        tp_device *D = device_open(NULL);
        tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
        values_random(in, B * N * C, 1);
        for (int b = 0; b < B; b++)
            for (int64_t e = lengths[b] * C; e < N * C; e++) in[b * N * C + e] = NAN;
        const tp_tensor x = values_input(T, device_real(), TP_SHAPE(B, N, C), in);
        const tp_rnn_weights weights = { values_input(T, device_real(), TP_SHAPE(rows, C), w),
                                         values_input(T, device_real(), TP_SHAPE(rows, H), w),
                                         TP_NONE, TP_NONE };
        const tp_tensor l = tp_from(T, TP_I64, TP_SHAPE(B), lengths);
        const tp_tensor r = lstm ? tp_lstm(T, x, weights, NULL, l, reverse)
                                 : tp_gru(T, x, weights, NULL, l, reverse);
        tp_backward(T, tp_sum(T, r, TP_ALL));
        values_read(T, r, y);
        values_read(T, tp_grad(T, x), dx);
        cr_expect(tp_ok(T), "%s", tp_why(T));
        for (int b = 0; b < B; b++)
            for (int t = 0; t < N; t++)
                for (int k = 0; k < H; k++) {
                    const double v = y[(b * N + t) * H + k];
                    cr_expect(t < lengths[b] ? v != 0.0 && isfinite(v) : v == 0.0);
                    const double g = dx[(b * N + t) * C + k % C];
                    cr_expect(t < lengths[b] ? g != 0.0 && isfinite(g) : g == 0.0);
                }
        tp_tape_free(T);
        tp_device_close(D);
    }
}

/* ---- errors ---- */

static tp_tensor refused(tp_tape *T, int i)
{
    const tp_dtype dt = device_real();
    const tp_tensor x = tp_full(T, dt, TP_SHAPE(2, 3, 4), 1.0);
    tp_rnn_weights w = { tp_full(T, dt, TP_SHAPE(20, 4), 1.0), tp_full(T, dt, TP_SHAPE(20, 5), 1.0),
                         TP_NONE, TP_NONE };
    const tp_tensor ids = tp_from(T, TP_I64, TP_SHAPE(2), (int64_t[]){ 3, 4 });
    const tp_tensor negative = tp_from(T, TP_I32, TP_SHAPE(2), (int32_t[]){ -1, 0 });
    tp_lstm_state s = { TP_NONE, TP_NONE };
    tp_tensor h = TP_NONE;
    switch (i) {
    case 0: return tp_lstm(T, x, w, NULL, ids, false);
    case 1: return tp_lstm(T, x, w, NULL, negative, false);
    case 2: return tp_lstm(T, x, w, NULL, x, false);
    case 3: return tp_lstm(T, x, w, NULL, tp_from(T, TP_I64, TP_SCALAR, (int64_t[]){ 1 }), false);
    case 4: return tp_gru(T, x, w, NULL, TP_NONE, false);
    case 5: return tp_lstm(T, tp_reshape(T, x, TP_SHAPE(6, 4)), w, NULL, TP_NONE, false);
    case 6: return tp_lstm(T, tp_reshape(T, x, TP_SHAPE(2, 4, 3)), w, NULL, TP_NONE, false);
    case 7:
        w.b_hh = tp_full(T, dt, TP_SHAPE(5), 1.0);
        return tp_lstm(T, x, w, NULL, TP_NONE, false);
    case 8: s.c = tp_full(T, dt, TP_SHAPE(3, 5), 1.0); return tp_lstm(T, x, w, &s, TP_NONE, false);
    case 9:
        h = tp_full(T, dt, TP_SHAPE(2, 5, 1), 1.0);
        w = (tp_rnn_weights){ tp_full(T, dt, TP_SHAPE(15, 4), 1.0),
                              tp_full(T, dt, TP_SHAPE(15, 5), 1.0), TP_NONE, TP_NONE };
        return tp_gru(T, x, w, &h, TP_NONE, false);
    default: return tp_lstm(T, ids, w, NULL, TP_NONE, false);
    }
}

Test(recurrent, mistakes_are_named)
{
    static const char *const texts[] = {
        "lstm: length 4 of sequence 1 is outside [0, 3], the steps of x",
        "lstm: length -1 of sequence 0 is outside [0, 3], the steps of x",
        "lstm: lengths must be i32 or i64, not ",
        "lstm: lengths must be [B] = [2]",
        "gru: w_hh must be [3*H,H]",
        "lstm: x must be [B,N,C], batch first, not of 2 axes",
        "lstm: w_ih must be [4*H,C] = [20,3]",
        "lstm: b_hh must be [4*H] = [20]",
        "lstm: c must be [B,H] = [2,5]",
        "gru: h must be [B,H] = [2,5]",
        "lstm: x must be floating point",
    };
    for (int i = device_is_cuda() ? 2 : 0; i < (int)COUNT(texts); i++) {
        tp_device *D = device_open(NULL);
        tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
        refused(T, i);
        cr_expect(strstr(tp_why(T), texts[i]), "%d: %s", i, tp_why(T));
        tp_tape_free(T);
        tp_device_close(D);
    }
}

/* ---- modules ---- */

static double difference(tp_tape *T, tp_tensor a, tp_tensor b)
{
    return tp_item(T, tp_max(T, tp_abs(T, tp_sub(T, a, b)), TP_ALL));
}

/* Two calls over halves of a sequence, passing states on, equal one call over all of it. */
Test(recurrent, states_go_on)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3, .dtype = device_real() });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
    tp_lstm_m lstm;
    tp_gru_m gru;
    tp_lstm_init(P, &lstm, "lstm",
                 (tp_rnn_cfg){ .in = 3, .hidden = 6, .layers = 2, .dropout = 0.5 });
    tp_gru_init(P, &gru, "gru", (tp_rnn_cfg){ .in = 3, .hidden = 6, .layers = 2 });
    double in[2 * 8 * 3];
    values_random(in, 48, 1);
    const tp_tensor x = values_constant(T, device_real(), TP_SHAPE(2, 8, 3), in);
    for (int i = 0; i < 2; i++) {
        tp_lstm_state s = { TP_NONE, TP_NONE }, all = s;
        tp_tensor y[3];
        for (int k = 0; k < 3; k++) {
            const tp_tensor part = k < 2 ? tp_slice(T, x, 1, k * 3, k ? 5 : 3) : x;
            tp_lstm_state *to = k < 2 ? &s : &all;
            y[k] = i ? tp_lstm_forward(T, &lstm, part, to, TP_NONE)
                     : tp_gru_forward(T, &gru, part, &to->h, TP_NONE);
        }
        const double limit = device_limit(1e-14, 1e-6);
        cr_expect_leq(difference(T, tp_concat(T, 1, y[0], y[1]), y[2]), limit, "%s", tp_why(T));
        cr_expect_leq(difference(T, s.h, all.h), limit);
        cr_expect(tp_dim(s.h, 0) == 2 && tp_dim(s.h, 1) == 2 && tp_dim(s.h, 2) == 6);
        if (i) cr_expect_leq(difference(T, s.c, all.c), limit);
    }
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

Test(recurrent, parameters_are_those_of_pytorch)
{
    static const char *const names[] = {
        "rnn.weight_ih_l0",       "rnn.weight_hh_l0",         "rnn.bias_ih_l0",
        "rnn.bias_hh_l0",         "rnn.weight_ih_l0_reverse", "rnn.weight_hh_l0_reverse",
        "rnn.bias_ih_l0_reverse", "rnn.bias_hh_l0_reverse",   "rnn.weight_ih_l1",
    };
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3 });
    tp_gru_m m;
    tp_gru_init(P, &m, "rnn",
                (tp_rnn_cfg){ .in = 5, .hidden = 4, .layers = 2, .bidirectional = true });
    tp_param_info it = { 0 };
    for (size_t i = 0; i < COUNT(names); i++) {
        cr_assert(tp_next_param(P, &it));
        cr_expect_str_eq(it.name, names[i]);
        cr_expect_eq(it.shape.dim[0], 12);
        float v[12 * 8] = { 0 };
        const int64_t n = trial_count(&it.shape);
        cr_expect(tp_param_get(P, it.tensor, TP_F32, v, (size_t)n * sizeof *v));
        float most = 0.0f;
        for (int64_t k = 0; k < n; k++) most = fmaxf(most, fabsf(v[k]));
        cr_expect(most <= 0.5f && most > 0.3f, "%s: %g", it.name, (double)most);
    }
    cr_expect_eq(it.shape.dim[1], 8, "both directions");
    tp_params_free(P);
    tp_device_close(D);
}

Test(recurrent, configurations_are_checked)
{
    static const struct {
        tp_rnn_cfg cfg;
        const char *text;
    } bad[] = {
        { { .in = 1, .hidden = 0 }, "lstm 'm': hidden must be in [1, 2^29)" },
        { { .in = -1, .hidden = 1 }, "lstm 'm': in must be in [0, 2^31)" },
        { { .in = 1, .hidden = 1, .layers = 9 }, "lstm 'm': layers must be in [0, 8]" },
        { { .in = 1, .hidden = 1, .dropout = 1.0 }, "lstm 'm': dropout must be in [0, 1)" },
        { { .in = 1, .hidden = 1, .dropout = NAN }, "lstm 'm': dropout must be in [0, 1)" },
    };
    tp_device *D = device_open(NULL);
    for (size_t i = 0; i < COUNT(bad); i++) {
        tp_params *P = tp_params_new(D, NULL);
        tp_lstm_m m;
        tp_lstm_init(P, &m, "m", bad[i].cfg);
        cr_expect(strstr(tp_params_why(P), bad[i].text), "%s", tp_params_why(P));
        tp_params_free(P);
    }
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .dtype = device_real() });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
    tp_gru_m m;
    tp_gru_init(P, &m, "m", (tp_rnn_cfg){ .in = 2, .hidden = 3, .bidirectional = true });
    tp_tensor h = tp_full(T, device_real(), TP_SHAPE(1, 2, 3), 0.0);
    tp_gru_forward(T, &m, tp_full(T, device_real(), TP_SHAPE(2, 2, 2), 0.0), &h, TP_NONE);
    cr_expect(strstr(tp_why(T), "the state h must be [2,B,hidden]"), "%s", tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}
