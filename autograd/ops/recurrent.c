/* recurrent.c - one layer and direction of an LSTM or GRU, over whole sequences.
 *
 * The prototypes give the equations. Backward through time reads each step's gates, stored by
 * forward; only tanh(c) is recomputed. */
#include "tensor/geometry/recurrent.h"
#include "autograd/ops/op_inner.h"

TP_KERNEL(lstm_fwd);
TP_KERNEL(lstm_bwd);
TP_KERNEL(gru_fwd);
TP_KERNEL(gru_bwd);
TP_WORK(rnn_work);

static const char *const names[] = { "x", "w_ih", "w_hh", "b_ih", "b_hh", "lengths", "h", "c" };

/* Input i must be [m,n], or [m] if n is negative. */
static tp_code expect(tp_infer *q, int i, int64_t m, int64_t n, const char *what)
{
    const tp_view *v = &q->x[i];
    if (tp_absent(v)) return TP_OK;
    if (v->ndim == (n < 0 ? 1 : 2) && v->dim[0] == m && (n < 0 || v->dim[1] == n)) return TP_OK;
    if (n < 0)
        return tp_fail(q, TP_E_SHAPE, "%s must be %s = [%lld]", names[i], what, (long long)m);
    return tp_fail(q, TP_E_SHAPE, "%s must be %s = [%lld,%lld]", names[i], what, (long long)m,
                   (long long)n);
}

static tp_code check_lengths(tp_infer *q)
{
    const tp_view *l = &q->x[TP_RNN_LENGTHS];
    if (tp_absent(l)) return TP_OK;
    if (l->ndim != 1 || l->dim[0] != q->x[0].dim[0])
        return tp_fail(q, TP_E_SHAPE, "lengths must be [B] = [%lld]", (long long)q->x[0].dim[0]);
    return TP_OK;
}

/* These products, which size memory, must not overflow. */
static tp_code check_sizes(tp_infer *q, int64_t G)
{
    const int64_t *x = q->x[0].dim;
    const double H = (double)q->x[TP_RNN_W_HH].dim[1], most = 0x1p48;
    const double B = (double)x[0], C = (double)x[2], wide = (double)G * H;
    for (int i = 0; i < 3; i++)
        if (x[i] > INT32_MAX) return tp_fail(q, TP_E_SHAPE, "sizes must be below 2^31");
    if (wide > INT32_MAX || (B + 1024) * (wide + H + C) > most || wide * (H + C + 64) > most)
        return tp_fail(q, TP_E_SHAPE, "the sizes are too large");
    return TP_OK;
}

/* G: gate count. */
static tp_code check(tp_infer *q, int64_t G)
{
    const tp_view *x = &q->x[TP_RNN_X], *w = &q->x[TP_RNN_W_HH];
    if (x->ndim != 3)
        return tp_fail(q, TP_E_SHAPE, "x must be [B,N,C], batch first, not of %d axes", x->ndim);
    if (w->ndim != 2 || w->dim[1] > INT32_MAX || w->dim[0] != G * w->dim[1])
        return tp_fail(q, TP_E_SHAPE, "w_hh must be [%d*H,H]", (int)G);
    const int64_t B = x->dim[0], C = x->dim[2], H = w->dim[1];
    tp_code code = check_sizes(q, G);
    if (code == TP_OK) code = expect(q, TP_RNN_W_IH, G * H, C, G == 4 ? "[4*H,C]" : "[3*H,C]");
    for (int i = TP_RNN_B_IH; i <= TP_RNN_B_HH && code == TP_OK; i++)
        code = expect(q, i, G * H, -1, G == 4 ? "[4*H]" : "[3*H]");
    if (code == TP_OK) code = check_lengths(q);
    for (int i = TP_RNN_H0; i <= TP_RNN_C0 && i < q->nx && code == TP_OK; i++)
        code = expect(q, i, B, H, "[B,H]");
    return code;
}

static tp_view view(tp_dtype dt, int ndim, int64_t a, int64_t b, int64_t c)
{
    return (tp_view){ .dtype = dt, .ndim = ndim, .dim = { a, b, c } };
}

/* Describes y, the last states and the hidden gates, output `gates`. */
static tp_code describe(tp_infer *q, int gates)
{
    const tp_view *x = &q->x[TP_RNN_X];
    const int64_t B = x->dim[0], N = x->dim[1], H = q->x[TP_RNN_W_HH].dim[1];
    q->y[TP_RNN_Y] = view(x->dtype, 3, B, N, H);
    for (int i = TP_RNN_H; i < gates; i++) q->y[i] = view(x->dtype, 2, B, H, 0);
    q->y[gates] = view(x->dtype, 3, B, N, 4 * H);
    return TP_OK;
}

static tp_code lstm_shape(tp_infer *q)
{
    const tp_code code = check(q, 4);
    if (code != TP_OK) return code;
    describe(q, TP_RNN_LSTM_GATES);
    q->y[TP_RNN_CELLS] = q->y[TP_RNN_Y];
    q->y[TP_RNN_CELLS].dtype = tp__sum_dtype(q->x[0].dtype);
    return TP_OK;
}

static tp_code gru_shape(tp_infer *q)
{
    const tp_code code = check(q, 3);
    return code == TP_OK ? describe(q, TP_RNN_GRU_GATES) : code;
}

/* Products with w_ih and w_hh. */
static double macs(const tp_infer *q)
{
    const int64_t *x = q->x[TP_RNN_X].dim, *w = q->x[TP_RNN_W_HH].dim;
    return (double)x[0] * (double)x[1] * (double)w[0] * (double)(x[2] + w[1]);
}

/* ---- cases ---- */

#define FORWARD          TP_ATTR(tp__rnn_attr, false)
#define REVERSE          TP_ATTR(tp__rnn_attr, true)
#define ABSENT           TP_LIST(0)
#define W(G, C, H)       TP_DIMS((G) * (H), C), TP_DIMS((G) * (H), H)
#define BIAS(G, H)       TP_DIMS((G) * (H)), TP_DIMS((G) * (H))
#define LSTM(B, N, C, H) TP_DIMS(B, N, C), W(4, C, H)
#define GRU(B, N, C, H)  TP_DIMS(B, N, C), W(3, C, H)
#define LENGTHS(B, N)    .below = { 0, 0, 0, 0, 0, (N) + 1 }, .fill = ends

/* Lengths 0, N, 1, N - 1, ..., including empty and full sequences. */
static void ends(int i, tp_view *x)
{
    if (i != TP_RNN_LENGTHS) return;
    for (int64_t e = 0; e < x->numel; e++)
        tp_st(x, e, e % 2 ? (double)(5 - e / 2) : (double)(e / 2));
}

static const tp_gradcase lstm_cases[] = {
    { "all inputs", .in = { LSTM(2, 3, 2, 3), BIAS(4, 3), ABSENT, TP_DIMS(2, 3), TP_DIMS(2, 3) },
      .attr = FORWARD, .ny = 3 },
    { "no bias, no state", .in = { LSTM(2, 4, 3, 2) }, .attr = FORWARD, .ny = 3 },
    { "reverse", .in = { LSTM(2, 3, 2, 2), BIAS(4, 2), ABSENT, TP_DIMS(2, 2), TP_DIMS(2, 2) },
      .attr = REVERSE, .ny = 3 },
    { "lengths", .in = { LSTM(4, 5, 2, 2), BIAS(4, 2), TP_DIMS(4), TP_DIMS(4, 2), TP_DIMS(4, 2) },
      .attr = FORWARD, .ny = 3, LENGTHS(4, 5) },
    { "lengths, reverse", .in = { LSTM(4, 5, 2, 2), BIAS(4, 2), TP_DIMS(4), TP_DIMS(4, 2) },
      .attr = REVERSE, .ny = 3, LENGTHS(4, 5) },
    { "y only", .in = { LSTM(1, 3, 2, 2), BIAS(4, 2) }, .attr = FORWARD },
    { "only b_hh and c",
      .in = { LSTM(2, 2, 1, 2), ABSENT, TP_DIMS(8), ABSENT, ABSENT, TP_DIMS(2, 2) },
      .attr = FORWARD, .ny = 3 },
    { "several panels of units", .in = { LSTM(2, 2, 1, 19), BIAS(4, 19) }, .attr = FORWARD,
      .ny = 3 },
    { "many rows", .in = { LSTM(15, 2, 1, 1), BIAS(4, 1), ABSENT, TP_DIMS(15, 1), TP_DIMS(15, 1) },
      .attr = FORWARD, .ny = 3 },
    { "no steps", .in = { LSTM(2, 0, 2, 2), BIAS(4, 2), ABSENT, TP_DIMS(2, 2), TP_DIMS(2, 2) },
      .attr = FORWARD, .ny = 3 },
    { "no rows", .in = { LSTM(0, 3, 2, 2), BIAS(4, 2) }, .attr = FORWARD, .ny = 3 },
    { "no channels", .in = { LSTM(2, 2, 0, 2), BIAS(4, 2) }, .attr = FORWARD, .ny = 3 },
    { 0 },
};

static const tp_gradcase gru_cases[] = {
    { "all inputs", .in = { GRU(2, 3, 2, 3), BIAS(3, 3), ABSENT, TP_DIMS(2, 3) }, .attr = FORWARD,
      .ny = 2 },
    { "no bias, no state", .in = { GRU(2, 4, 3, 2) }, .attr = FORWARD, .ny = 2 },
    { "reverse", .in = { GRU(2, 3, 2, 2), BIAS(3, 2), ABSENT, TP_DIMS(2, 2) }, .attr = REVERSE,
      .ny = 2 },
    { "lengths", .in = { GRU(4, 5, 2, 2), BIAS(3, 2), TP_DIMS(4), TP_DIMS(4, 2) }, .attr = FORWARD,
      .ny = 2, LENGTHS(4, 5) },
    { "lengths, reverse", .in = { GRU(4, 5, 2, 2), BIAS(3, 2), TP_DIMS(4) }, .attr = REVERSE,
      .ny = 2, LENGTHS(4, 5) },
    { "y only", .in = { GRU(1, 3, 2, 2), BIAS(3, 2) }, .attr = FORWARD },
    { "only b_hh", .in = { GRU(2, 2, 1, 2), ABSENT, TP_DIMS(6) }, .attr = FORWARD, .ny = 2 },
    { "several panels of units", .in = { GRU(2, 2, 1, 19), BIAS(3, 19) }, .attr = FORWARD,
      .ny = 2 },
    { "many rows", .in = { GRU(19, 2, 1, 1), BIAS(3, 1), ABSENT, TP_DIMS(19, 1) }, .attr = FORWARD,
      .ny = 2 },
    { "no steps", .in = { GRU(2, 0, 2, 2), BIAS(3, 2), ABSENT, TP_DIMS(2, 2) }, .attr = FORWARD,
      .ny = 2 },
    { "no rows", .in = { GRU(0, 3, 2, 2), BIAS(3, 2) }, .attr = FORWARD, .ny = 2 },
    { "no channels", .in = { GRU(2, 2, 0, 2), BIAS(3, 2) }, .attr = FORWARD, .ny = 2 },
    { 0 },
};

/* ---- ops ---- */

#define OPTIONAL                                                                                   \
    (1u << TP_RNN_B_IH | 1u << TP_RNN_B_HH | 1u << TP_RNN_LENGTHS | 1u << TP_RNN_H0 |              \
     1u << TP_RNN_C0)
#define SAVED_INPUTS                                                                               \
    (TP_SAVE_X(TP_RNN_X) | TP_SAVE_X(TP_RNN_W_IH) | TP_SAVE_X(TP_RNN_W_HH) |                       \
     TP_SAVE_X(TP_RNN_LENGTHS) | TP_SAVE_X(TP_RNN_H0))

const tp_op tp_op_lstm = {
    .name = "lstm",
    .doc = "one layer and direction of an LSTM over sequences, with lengths",
    .nx = TP_RNN_INPUTS,
    .inputs = "x, w_ih, w_hh, b_ih, b_hh, lengths, h, c",
    .takes = { [TP_RNN_LENGTHS] = TP_INDICES },
    .ny = TP_RNN_LSTM_OUTPUTS,
    .attr_size = sizeof(tp__rnn_attr),
    .saves = SAVED_INPUTS | TP_SAVE_X(TP_RNN_C0) | TP_SAVE_Y(TP_RNN_Y) |
             TP_SAVE_Y(TP_RNN_LSTM_GATES) | TP_SAVE_Y(TP_RNN_CELLS),
    .optional = OPTIONAL,
    .flags = TP_COMPUTES | TP_ACCUMULATES,
    .shape = lstm_shape,
    .macs = macs,
    .forward = TP_KERNELS(lstm_fwd),
    .backward = TP_KERNELS(lstm_bwd),
    .work = TP_WORKS(rnn_work),
    .cases = lstm_cases,
};

const tp_op tp_op_gru = {
    .name = "gru",
    .doc = "one layer and direction of gated recurrent units over sequences, with lengths",
    .nx = TP_RNN_C0,
    .inputs = "x, w_ih, w_hh, b_ih, b_hh, lengths, h",
    .takes = { [TP_RNN_LENGTHS] = TP_INDICES },
    .ny = TP_RNN_GRU_OUTPUTS,
    .attr_size = sizeof(tp__rnn_attr),
    .saves = SAVED_INPUTS | TP_SAVE_Y(TP_RNN_Y) | TP_SAVE_Y(TP_RNN_GRU_GATES),
    .optional = OPTIONAL,
    .flags = TP_COMPUTES | TP_ACCUMULATES,
    .shape = gru_shape,
    .macs = macs,
    .forward = TP_KERNELS(gru_fwd),
    .backward = TP_KERNELS(gru_bwd),
    .work = TP_WORKS(rnn_work),
    .cases = gru_cases,
};

tp_tensor tp_lstm(tp_tape *T, tp_tensor x, tp_rnn_weights w, tp_lstm_state *state,
                  tp_tensor lengths, bool reverse)
{
    const tp_lstm_state first = state ? *state : (tp_lstm_state){ TP_NONE, TP_NONE };
    const tp_tensor in[] = { x, w.w_ih, w.w_hh, w.b_ih, w.b_hh, lengths, first.h, first.c };
    tp_tensor y[3];
    tp_apply_n(T, &tp_op_lstm, &(tp__rnn_attr){ reverse }, TP_RNN_INPUTS, in, 3, y);
    if (state) *state = (tp_lstm_state){ y[TP_RNN_H], y[TP_RNN_C] };
    return y[TP_RNN_Y];
}

tp_tensor tp_gru(tp_tape *T, tp_tensor x, tp_rnn_weights w, tp_tensor *h, tp_tensor lengths,
                 bool reverse)
{
    const tp_tensor in[] = { x, w.w_ih, w.w_hh, w.b_ih, w.b_hh, lengths, h ? *h : TP_NONE };
    tp_tensor y[2];
    tp_apply_n(T, &tp_op_gru, &(tp__rnn_attr){ reverse }, TP_RNN_C0, in, 2, y);
    if (h) *h = y[TP_RNN_H];
    return y[TP_RNN_Y];
}
