/* ref_recurrent.c - computes each gate of each step with plain products, sigmoids and so on; masks
 * steps outside each sequence. */
#include "ops/ref_recurrent.h"

#include "support/values.h"

typedef struct net {
    tp_tape *T;
    tp_tensor x;
    tp_rnn_weights w;
    int64_t B, C, H;
} net;

/* Rows [gate H, (gate + 1) H) of w a^T + b, as [B,H]. */
static tp_tensor affine(const net *n, tp_tensor a, tp_tensor w, tp_tensor b, int gate)
{
    const tp_tensor rows = tp_slice(n->T, w, 0, gate * n->H, n->H);
    const tp_tensor y = tp_matmul_t(n->T, a, false, rows, true);
    return tp_given(b) ? tp_add(n->T, y, tp_slice(n->T, b, 0, gate * n->H, n->H)) : y;
}

static tp_tensor gate(const net *n, tp_tensor x, tp_tensor h, int k)
{
    return tp_add(n->T, affine(n, x, n->w.w_ih, n->w.b_ih, k),
                  affine(n, h, n->w.w_hh, n->w.b_hh, k));
}

static tp_lstm_state lstm_step(const net *n, tp_tensor x, tp_lstm_state s)
{
    tp_tape *T = n->T;
    const tp_tensor i = tp_sigmoid(T, gate(n, x, s.h, 0)), f = tp_sigmoid(T, gate(n, x, s.h, 1));
    const tp_tensor g = tp_tanh(T, gate(n, x, s.h, 2)), o = tp_sigmoid(T, gate(n, x, s.h, 3));
    const tp_tensor c = tp_add(T, tp_mul(T, f, s.c), tp_mul(T, i, g));
    return (tp_lstm_state){ tp_mul(T, o, tp_tanh(T, c)), c };
}

static tp_lstm_state gru_step(const net *n, tp_tensor x, tp_lstm_state s)
{
    tp_tape *T = n->T;
    const tp_tensor r = tp_sigmoid(T, gate(n, x, s.h, 0)), z = tp_sigmoid(T, gate(n, x, s.h, 1));
    const tp_tensor hidden = affine(n, s.h, n->w.w_hh, n->w.b_hh, 2);
    const tp_tensor t =
        tp_tanh(T, tp_add(T, affine(n, x, n->w.w_ih, n->w.b_ih, 2), tp_mul(T, r, hidden)));
    return (tp_lstm_state){ tp_add(T, t, tp_mul(T, z, tp_sub(T, s.h, t))), s.c };
}

/* 1 in the rows of sequences longer than t, as [B,H]. */
static tp_tensor mask_at(const net *n, const int64_t *lengths, int64_t t)
{
    double m[4096] = { 0.0 };
    for (int64_t b = 0; b < n->B; b++)
        for (int64_t u = 0; u < n->H; u++) m[b * n->H + u] = !lengths || lengths[b] > t;
    return values_constant(n->T, tp_dtype_of(n->x), TP_SHAPE(n->B, n->H), m);
}

/* a where the mask is 1, else b. */
static tp_tensor choose(tp_tape *T, tp_tensor m, tp_tensor a, tp_tensor b)
{
    return tp_add(T, b, tp_mul(T, m, tp_sub(T, a, b)));
}

tp_tensor ref_recurrent(tp_tape *T, tp_tensor x, tp_rnn_weights w, tp_lstm_state s,
                        const ref_recurrent_cfg *cfg)
{
    const net n = { T, x, w, tp_dim(x, 0), tp_dim(x, 2), tp_dim(w.w_hh, 1) };
    const int64_t N = tp_dim(x, 1);
    const tp_shape state = TP_SHAPE(n.B, n.H), step = TP_SHAPE(n.B, 1, n.H);
    const tp_tensor zero = tp_full(T, tp_dtype_of(x), state, 0.0);
    if (!tp_given(s.h)) s.h = zero;
    if (!tp_given(s.c)) s.c = zero;
    tp_tensor y = TP_NONE;
    for (int64_t k = 0; k < N; k++) {
        const int64_t t = cfg->reverse ? N - 1 - k : k;
        const tp_tensor m = mask_at(&n, cfg->lengths, t);
        const tp_tensor in = tp_reshape(T, tp_slice(T, x, 1, t, 1), TP_SHAPE(n.B, n.C));
        const tp_lstm_state next = cfg->lstm ? lstm_step(&n, in, s) : gru_step(&n, in, s);
        const tp_tensor row = tp_reshape(T, tp_mul(T, m, next.h), step);
        s.h = choose(T, m, next.h, s.h);
        s.c = choose(T, m, next.c, s.c);
        y = k == 0 ? row : cfg->reverse ? tp_concat(T, 1, row, y) : tp_concat(T, 1, y, row);
    }
    const tp_tensor h = tp_reshape(T, s.h, step), c = tp_reshape(T, s.c, step);
    return cfg->lstm ? tp_concat(T, 1, y, h, c) : tp_concat(T, 1, y, h);
}
