/* recurrent.cu - LSTM and gated recurrent units over whole sequences, and their gradients.
 *
 * Products with w_ih and for the gradients of the weights take all steps at once. A step is a
 * product with w_hh by cuBLAS and one kernel for the rest: 2 N launches in each direction; a
 * recorded step (tp_capture) launches them without the host. Small batches are bound by these
 * launches, others by the products. Lengths stay on the GPU: rows that have ended keep their state
 * and get zero gradients. A length out of range gives NaN.
 *
 * The carried state (c, or h of a GRU) is f32 for every storage type. */
#include "cuda/kit/dense.cuh"
#include "cuda/kit/fold.cuh"
#include "tensor/geometry/recurrent.h"

/* Common kernel arguments. */
struct sequences {
    int64_t B, N, H;
    const void *lengths; /* or NULL */
    bool wide, reverse;  /* wide: i64 */

    /* The length of sequence b; -1: out of range. */
    __device__ int64_t length(int64_t b) const
    {
        if (!lengths) return N;
        const int64_t n = wide ? static_cast<const int64_t *>(lengths)[b]
                               : static_cast<const int32_t *>(lengths)[b];
        return n >= 0 && n <= N ? n : -1;
    }
    /* The step at index t of a sequence of n steps, or the index of step t. */
    __device__ int64_t turn(int64_t n, int64_t t) const { return reverse ? n - 1 - t : t; }
};

static sequences sequences_of(const tp_call *c)
{
    const tp_rnn_sizes z = tp__rnn_sizes(c);
    const tp_view *l = &c->x[TP_RNN_LENGTHS];
    return { z.B, z.N, z.H, tp_absent(l) ? NULL : l->data, l->dtype == TP_I64, z.reverse };
}

/* Element i of a tensor, 0 if it is absent. */
template <class S> static __device__ inline float value_at(const S *x, int64_t i)
{
    return x ? tp_float(x[i]) : 0.0f;
}

/* ---- forward ---- */

template <class S> struct forward_data {
    sequences q;
    const S *b_ih, *b_hh, *h0, *c0;
    S *y, *gates;   /* [B,N,H], [B,N,4H]: w_ih x before a step, the gates after */
    float *cells;   /* [B,N,H] */
    S *h;           /* [B,H], read by the product */
    float *state;   /* [B,H]: c, of GRU h */
    float *product; /* [B,G*H]: w_hh h */
};

template <class S, bool LSTM>
__global__ void __launch_bounds__(TP_THREADS) first_states(forward_data<S> d)
{
    TP_EACH (i, d.q.B * d.q.H) {
        const float h = value_at(d.h0, i);
        tp_put(d.h + i, h);
        d.state[i] = LSTM ? value_at(d.c0, i) : h;
    }
}

template <class S, bool LSTM>
__global__ void __launch_bounds__(TP_THREADS) forward_step(forward_data<S> d, int64_t s)
{
    constexpr int G = LSTM ? 4 : 3;
    const int64_t H = d.q.H;
    TP_EACH (i, d.q.B * H) {
        const int64_t b = tp_div(i, H), u = i - b * H, n = d.q.length(b);
        const int64_t row = b * d.q.N + (s < n ? d.q.turn(n, s) : s);
        S *g = d.gates + row * 4 * H + u;
        if (s >= n) {
            for (int k = 0; k < 4; k++) tp_put(g + k * H, 0.0f);
            if (LSTM) d.cells[row * H + u] = 0.0f;
            tp_put(d.y + row * H + u, n < 0 ? NAN : 0.0f);
            continue;
        }
        const float *hidden = d.product + b * G * H + u;
        float in[G], out[G], h;
        for (int k = 0; k < G; k++) {
            in[k] = tp_float(g[k * H]) + value_at(d.b_ih, k * H + u);
            out[k] = hidden[k * H] + value_at(d.b_hh, k * H + u);
        }
        if constexpr (LSTM) {
            const float gi = logistic(in[0] + out[0]), gf = logistic(in[1] + out[1]);
            const float gg = tanhf(in[2] + out[2]), go = logistic(in[3] + out[3]);
            const float c = gf * d.state[i] + gi * gg;
            h = go * tanhf(c);
            d.state[i] = d.cells[row * H + u] = c;
            tp_put(g, gi);
            tp_put(g + H, gf);
            tp_put(g + 2 * H, gg);
            tp_put(g + 3 * H, go);
        } else {
            const float r = logistic(in[0] + out[0]), z = logistic(in[1] + out[1]);
            const float t = tanhf(in[2] + r * out[2]);
            h = t + z * (d.state[i] - t);
            d.state[i] = h;
            tp_put(g, r);
            tp_put(g + H, z);
            tp_put(g + 2 * H, t);
            tp_put(g + 3 * H, out[2]);
        }
        tp_put(d.h + i, h);
        tp_put(d.y + row * H + u, h);
    }
}

template <class S, bool LSTM>
__global__ void __launch_bounds__(TP_THREADS) last_states(forward_data<S> d, S *h, S *c)
{
    TP_EACH (i, d.q.B * d.q.H) {
        const bool known = d.q.length(tp_div(i, d.q.H)) >= 0;
        tp_put(h + i, known ? tp_float(d.h[i]) : NAN);
        if (LSTM) tp_put(c + i, known ? d.state[i] : NAN);
    }
}

/* [m,n] = a [m,k] b [n,k]^T */
static tp_code times_weights(const tp_call *c, const void *a, int64_t m, int input, void *to,
                             tp_dtype type, int64_t ld)
{
    const tp_view *w = &c->x[input];
    tp_cuda_gemm g = tp_dense(w->dtype, m, w->dim[0], w->dim[1]);
    g.a = a;
    g.lda = g.ldb = w->dim[1];
    g.b = w->data;
    g.tb = true;
    g.c = to;
    g.type_c = type;
    g.ldc = ld;
    return tp__cuda_gemm(c, &g);
}

/* Pieces of c->work, each aligned to 256 bytes; work NULL: only counts them. */
struct pieces {
    char *at;
    size_t bytes;

    template <class T> T *take(int64_t n)
    {
        T *p = at ? reinterpret_cast<T *>(at + bytes) : NULL;
        bytes += ((size_t)n * sizeof(T) + 255) / 256 * 256;
        return p;
    }
};

template <class S> static pieces forward_room(const tp_call *c, char *work, forward_data<S> *d)
{
    const tp_rnn_sizes z = tp__rnn_sizes(c);
    pieces p = { work, 0 };
    d->h = p.take<S>(z.B * z.H);
    d->state = p.take<float>(z.B * z.H);
    d->product = p.take<float>(z.B * z.gates * z.H);
    return p;
}

template <class S, bool LSTM> static tp_code forward(const tp_call *c)
{
    const tp_rnn_sizes z = tp__rnn_sizes(c);
    const tp_view *x = c->x, *y = c->y, *gates = &y[LSTM ? TP_RNN_LSTM_GATES : TP_RNN_GRU_GATES];
    forward_data<S> d = {};
    forward_room(c, static_cast<char *>(c->work), &d);
    d.q = sequences_of(c);
    d.b_ih = tp_in<S>(&x[TP_RNN_B_IH]);
    d.b_hh = tp_in<S>(&x[TP_RNN_B_HH]);
    d.h0 = tp_in<S>(&x[TP_RNN_H0]);
    d.c0 = LSTM ? tp_in<S>(&x[TP_RNN_C0]) : NULL;
    d.y = tp_out<S>(&y[TP_RNN_Y]);
    d.gates = tp_out<S>(gates);
    d.cells = LSTM ? tp_out<float>(&y[TP_RNN_CELLS]) : NULL;
    const unsigned grid = tp_grid(c, z.B * z.H);
    tp_code code = tp_launch(c, first_states<S, LSTM>, grid, TP_THREADS, 0, d);
    if (code == TP_OK)
        code = times_weights(c, x[TP_RNN_X].data, z.B * z.N, TP_RNN_W_IH, d.gates, gates->dtype,
                             4 * z.H);
    for (int64_t s = 0; s < z.N && code == TP_OK; s++) {
        code = times_weights(c, d.h, z.B, TP_RNN_W_HH, d.product, TP_F32, z.gates * z.H);
        if (code == TP_OK) code = tp_launch(c, forward_step<S, LSTM>, grid, TP_THREADS, 0, d, s);
    }
    if (code != TP_OK) return code;
    return tp_launch(c, last_states<S, LSTM>, grid, TP_THREADS, 0, d, tp_out<S>(&y[TP_RNN_H]),
                     LSTM ? tp_out<S>(&y[TP_RNN_C]) : NULL);
}

/* ---- backward ---- */

/* Gradients of gates. LSTM: in gate order. GRU: of n before its sum with r (w_hn h + b_hn), then of
 * r, z and w_hn h + b_hn, as in the product with w_hh. */
template <class S> struct backward_data {
    sequences q;
    const S *h0, *c0, *y, *gates;
    const float *cells;
    const S *dy, *dh, *dc; /* of y and, or NULL, of the last states */
    S *dg;                 /* [B,N,4H] */
    S *step;               /* [B,G*H]: of one step, for the product */
    float *product;        /* [B,H]: of h by the later step */
    float *carry;          /* [B,H]: of c, or GRU h past the gates */
    S *before;             /* [B,N,H]: h before each step */
    S *inside;             /* with lengths, [B,N,C]: x, but 0 beyond them */
    float *sums;           /* [4H] */
    void *fold;
};

/* h before the step at index t of sequence b. */
template <class S>
static __device__ inline float h_before(const backward_data<S> &d, int64_t b, int64_t n, int64_t t,
                                        int64_t u)
{
    const int64_t H = d.q.H;
    if (d.q.turn(n, t) == 0) return value_at(d.h0, b * H + u);
    return tp_float(d.y[(b * d.q.N + (d.q.reverse ? t + 1 : t - 1)) * H + u]);
}

template <class S, bool LSTM>
__global__ void __launch_bounds__(TP_THREADS) backward_step(backward_data<S> d, int64_t s)
{
    constexpr int G = LSTM ? 4 : 3;
    const int64_t H = d.q.H;
    TP_EACH (i, d.q.B * H) {
        const int64_t b = tp_div(i, H), u = i - b * H, n = d.q.length(b);
        const int64_t t = s < n ? d.q.turn(n, s) : s, row = b * d.q.N + t;
        const S *g = d.gates + row * 4 * H + u;
        float v[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
        if (s < n) {
            const bool last = s == n - 1;
            const float dh =
                tp_float(d.dy[row * H + u]) + (last ? value_at(d.dh, i) : d.product[i]);
            const float g0 = tp_float(g[0]), g1 = tp_float(g[H]), g2 = tp_float(g[2 * H]);
            const float g3 = tp_float(g[3 * H]);
            if constexpr (LSTM) {
                const int64_t earlier = row + (d.q.reverse ? 1 : -1);
                const float c = d.cells[row * H + u], th = tanhf(c);
                const float before = s > 0 ? d.cells[earlier * H + u] : value_at(d.c0, i);
                const float dc =
                    (last ? value_at(d.dc, i) : d.carry[i]) + dh * g3 * (1.0f - th * th);
                v[0] = dc * g2 * g0 * (1.0f - g0);
                v[1] = dc * before * g1 * (1.0f - g1);
                v[2] = dc * g0 * (1.0f - g2 * g2);
                v[3] = dh * th * g3 * (1.0f - g3);
                d.carry[i] = dc * g1;
            } else {
                const float all = dh + (last ? 0.0f : d.carry[i]);
                const float dt = all * (1.0f - g1) * (1.0f - g2 * g2);
                v[0] = dt;
                v[1] = dt * g3 * g0 * (1.0f - g0);
                v[2] = all * (h_before(d, b, n, t, u) - g2) * g1 * (1.0f - g1);
                v[3] = dt * g0;
                d.carry[i] = all * g1;
            }
        }
        for (int k = 0; k < 4; k++) tp_put(d.dg + row * 4 * H + k * H + u, v[k]);
        for (int k = 0; k < G; k++) tp_put(d.step + (b * G + k) * H + u, v[4 - G + k]);
    }
}

/* Gradients of the first states; NULL: not wanted. */
template <class S, bool LSTM, class To>
__global__ void __launch_bounds__(TP_THREADS)
    first_grads(backward_data<S> d, To *dh, To *dc, bool add_h, bool add_c)
{
    TP_EACH (i, d.q.B * d.q.H) {
        const bool any = d.q.length(tp_div(i, d.q.H)) > 0;
        const float of_h = any ? d.product[i] + (LSTM ? 0.0f : d.carry[i]) : value_at(d.dh, i);
        if (dh) tp_put(dh + i, of_h + (add_h ? tp_float(dh[i]) : 0.0f));
        if (LSTM && dc)
            tp_put(dc + i,
                   (any ? d.carry[i] : value_at(d.dc, i)) + (add_c ? tp_float(dc[i]) : 0.0f));
    }
}

template <class S> __global__ void __launch_bounds__(TP_THREADS) states_before(backward_data<S> d)
{
    const int64_t H = d.q.H;
    TP_EACH (i, d.q.B * d.q.N * H) {
        const int64_t row = tp_div(i, H), b = tp_div(row, d.q.N), t = row - b * d.q.N;
        const int64_t n = d.q.length(b);
        tp_put(d.before + i, t < n ? h_before(d, b, n, t, i - row * H) : 0.0f);
    }
}

/* Beyond the lengths x may be NaN, which a zero gradient would not cancel. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    copy_inside(sequences q, int64_t n, int64_t C, const S *x, S *to)
{
    TP_EACH (i, n) {
        const int64_t row = tp_div(i, C), b = tp_div(row, q.N);
        tp_put(to + i, row - b * q.N < q.length(b) ? tp_float(x[i]) : 0.0f);
    }
}

/* db[k] = or += sums[k + first], or [k + shift] for k >= rest. */
template <class To>
__global__ void __launch_bounds__(TP_THREADS)
    bias_grads(int64_t n, int64_t rest, int64_t first, int64_t shift, const float *sums, bool add,
               To *db)
{
    TP_EACH (k, n) {
        const float v = sums[k < rest ? k + first : k + shift];
        tp_put(db + k, v + (add ? tp_float(db[k]) : 0.0f));
    }
}

template <class S> static pieces backward_room(const tp_call *c, char *work, backward_data<S> *d)
{
    const tp_rnn_sizes z = tp__rnn_sizes(c);
    const int64_t H4 = 4 * z.H;
    const tp_view dg = { NULL, c->x[0].dtype, 2, { z.B * z.N, H4 }, z.B * z.N * H4 };
    const tp_view sums = { NULL, TP_F32, 1, { H4 }, H4 };
    pieces p = { work, 0 };
    d->dg = p.take<S>(z.B * z.N * H4);
    d->step = p.take<S>(z.B * z.gates * z.H);
    d->product = p.take<float>(z.B * z.H);
    d->carry = p.take<float>(z.B * z.H);
    d->before = p.take<S>(z.B * z.N * z.H);
    d->inside = p.take<S>(tp_absent(&c->x[TP_RNN_LENGTHS]) ? 0 : c->x[0].numel);
    d->sums = p.take<float>(H4);
    d->fold = p.take<char>((int64_t)tp__fold_work(&dg, &sums, dg.dtype));
    return p;
}

/* The offset of the gradients of gates from `gate` in a row of dg. */
static int64_t grads_at(const tp_rnn_sizes &z, int64_t gate)
{
    return z.lstm ? gate * z.H : gate == 2 ? 0 : (gate + 1) * z.H;
}

/* Rows [gate, gate + count) H of a weight's gradient, from operand `with` [B*N,width]. For w_hh of
 * a GRU all three gates are adjacent. */
template <class S>
static tp_code weight_grad(const tp_call *c, const backward_data<S> &d, int input, int64_t gate,
                           int64_t count, const void *with)
{
    const tp_rnn_sizes z = tp__rnn_sizes(c);
    const tp_view *to = &c->dx[input];
    const int64_t width = to->dim[1];
    tp_cuda_gemm g = tp_dense(c->x[0].dtype, count * z.H, width, z.B * z.N);
    g.a = d.dg + grads_at(z, gate);
    g.lda = 4 * z.H;
    g.ta = true;
    g.b = with;
    g.ldb = width;
    g.c = static_cast<char *>(to->data) + (size_t)(gate * z.H * width) * tp_dtype_size(to->dtype);
    g.type_c = to->dtype;
    g.add = c->add >> input & 1u;
    return tp__cuda_gemm(c, &g);
}

/* dx = or += gradients of gates [gate, gate + count) times their rows of w_ih. */
template <class S>
static tp_code input_grad(const tp_call *c, const backward_data<S> &d, int64_t gate, int64_t count,
                          bool add)
{
    const tp_rnn_sizes z = tp__rnn_sizes(c);
    tp_cuda_gemm g = tp_dense(c->x[0].dtype, z.B * z.N, z.C, count * z.H);
    g.a = d.dg + grads_at(z, gate);
    g.lda = 4 * z.H;
    g.b = tp_in<S>(&c->x[TP_RNN_W_IH]) + gate * z.H * z.C;
    g.ldb = z.C;
    g.c = c->dx[TP_RNN_X].data;
    g.type_c = c->dx[TP_RNN_X].dtype;
    g.add = add;
    return tp__cuda_gemm(c, &g);
}

template <class S> static tp_code bias_sums(const tp_call *c, const backward_data<S> &d)
{
    const tp_rnn_sizes z = tp__rnn_sizes(c);
    const int64_t H = z.H;
    const tp_view dg = { d.dg, c->x[0].dtype, 2, { z.B * z.N, 4 * H }, z.B * z.N * 4 * H };
    const tp_view sums = { d.sums, TP_F32, 1, { 4 * H }, 4 * H };
    if (!c->dx[TP_RNN_B_IH].data && !c->dx[TP_RNN_B_HH].data) return TP_OK;
    tp_code code = tp_fold_sum(c, &dg, &sums, d.dg, d.sums, d.fold, tp_as_it_is());
    for (int i = TP_RNN_B_IH; i <= TP_RNN_B_HH && code == TP_OK; i++) {
        const tp_view *to = &c->dx[i];
        const int64_t n = z.gates * H, rest = !z.lstm && i == TP_RNN_B_IH ? 2 * H : n;
        if (!to->data) continue;
        code = tp_with_type(c, to->dtype, [&](auto t) {
            typedef decltype(t) To;
            return tp_launch(c, bias_grads<To>, tp_grid(c, n), TP_THREADS, 0, n, rest,
                             z.lstm ? 0 : H, -2 * H, d.sums, (c->add >> i & 1u) != 0,
                             tp_out<To>(to));
        });
    }
    return code;
}

/* Computes gradients of x and weights from those of the gates. */
template <class S> static tp_code whole_grads(const tp_call *c, const backward_data<S> &d)
{
    const tp_rnn_sizes z = tp__rnn_sizes(c);
    const int64_t together = z.lstm ? 4 : 2;
    const void *x = c->x[TP_RNN_X].data;
    tp_code code = TP_OK;
    if (c->dx[TP_RNN_X].data) {
        code = input_grad(c, d, 0, together, c->add >> TP_RNN_X & 1u);
        if (code == TP_OK && !z.lstm) code = input_grad(c, d, 2, 1, true);
    }
    if (code == TP_OK && c->dx[TP_RNN_W_IH].data && !tp_absent(&c->x[TP_RNN_LENGTHS])) {
        const int64_t n = c->x[0].numel;
        code = tp_launch(c, copy_inside<S>, tp_grid(c, n), TP_THREADS, 0, d.q, n, z.C,
                         static_cast<const S *>(x), d.inside);
        x = d.inside;
    }
    if (code == TP_OK && c->dx[TP_RNN_W_IH].data) {
        code = weight_grad(c, d, TP_RNN_W_IH, 0, together, x);
        if (code == TP_OK && !z.lstm) code = weight_grad(c, d, TP_RNN_W_IH, 2, 1, x);
    }
    if (code == TP_OK && c->dx[TP_RNN_W_HH].data) {
        code = tp_launch(c, states_before<S>, tp_grid(c, z.B * z.N * z.H), TP_THREADS, 0, d);
        if (code == TP_OK) code = weight_grad(c, d, TP_RNN_W_HH, 0, z.gates, d.before);
    }
    return code == TP_OK ? bias_sums(c, d) : code;
}

/* d.product = d.step w_hh. */
template <class S> static tp_code hidden_product(const tp_call *c, const backward_data<S> &d)
{
    const tp_rnn_sizes z = tp__rnn_sizes(c);
    tp_cuda_gemm g = tp_dense(c->x[0].dtype, z.B, z.H, z.gates * z.H);
    g.a = d.step;
    g.lda = z.gates * z.H;
    g.b = c->x[TP_RNN_W_HH].data;
    g.ldb = z.H;
    g.c = d.product;
    g.type_c = TP_F32;
    return tp__cuda_gemm(c, &g);
}

template <class S, bool LSTM> static tp_code backward(const tp_call *c)
{
    const tp_rnn_sizes z = tp__rnn_sizes(c);
    const unsigned grid = tp_grid(c, z.B * z.H);
    backward_data<S> d = {};
    backward_room(c, static_cast<char *>(c->work), &d);
    d.q = sequences_of(c);
    d.h0 = tp_in<S>(&c->x[TP_RNN_H0]);
    d.c0 = LSTM ? tp_in<S>(&c->x[TP_RNN_C0]) : NULL;
    d.y = tp_in<S>(&c->y[TP_RNN_Y]);
    d.gates = tp_in<S>(&c->y[LSTM ? TP_RNN_LSTM_GATES : TP_RNN_GRU_GATES]);
    d.cells = LSTM ? tp_in<float>(&c->y[TP_RNN_CELLS]) : NULL;
    d.dy = tp_in<S>(&c->dy[TP_RNN_Y]);
    d.dh = tp_in<S>(&c->dy[TP_RNN_H]);
    d.dc = LSTM ? tp_in<S>(&c->dy[TP_RNN_C]) : NULL;
    tp_code code = TP_OK;
    for (int64_t s = z.N - 1; s >= 0 && code == TP_OK; s--) {
        code = tp_launch(c, backward_step<S, LSTM>, grid, TP_THREADS, 0, d, s);
        if (code == TP_OK && (s > 0 || c->dx[TP_RNN_H0].data)) code = hidden_product(c, d);
    }
    const tp_view *dh = &c->dx[TP_RNN_H0], *dc = LSTM ? &c->dx[TP_RNN_C0] : NULL;
    if (code == TP_OK && (dh->data || (LSTM && dc->data)))
        code = tp_with_type(c, dh->data ? dh->dtype : dc->dtype, [&](auto t) {
            typedef decltype(t) To;
            return tp_launch(c, first_grads<S, LSTM, To>, grid, TP_THREADS, 0, d, tp_out<To>(dh),
                             LSTM ? tp_out<To>(dc) : NULL, (c->add >> TP_RNN_H0 & 1u) != 0,
                             (c->add >> TP_RNN_C0 & 1u) != 0);
        });
    return code == TP_OK ? whole_grads(c, d) : code;
}

template <class S> static size_t room_of(const tp_call *c)
{
    forward_data<S> f = {};
    backward_data<S> b = {};
    return tp_is_backward(c) ? backward_room(c, NULL, &b).bytes : forward_room(c, NULL, &f).bytes;
}

static size_t rnn_work(const tp_call *c)
{
    return tp_storage(c) == TP_BF16 ? room_of<bf16>(c) : room_of<float>(c);
}

template <class S> static tp_code lstm_fwd(const tp_call *c)
{
    return forward<S, true>(c);
}
template <class S> static tp_code lstm_bwd(const tp_call *c)
{
    return backward<S, true>(c);
}
template <class S> static tp_code gru_fwd(const tp_call *c)
{
    return forward<S, false>(c);
}
template <class S> static tp_code gru_bwd(const tp_call *c)
{
    return backward<S, false>(c);
}

TP_CUDA_WORK(rnn_work)
TP_CUDA_KERNEL(lstm_fwd)
TP_CUDA_KERNEL(lstm_bwd)
TP_CUDA_KERNEL(gru_fwd)
TP_CUDA_KERNEL(gru_bwd)
