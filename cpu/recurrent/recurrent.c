/* recurrent.c - LSTM and gated recurrent units over whole sequences. Gradients: recurrent_back.c.
 *
 * Per chunk of steps (recurrent.h): one product with w_ih, written where the gates will be saved;
 * then, per step, the product with the packed w_hh. A tile has all gates of its units, which become
 * h and c while in L1. */
#include "cpu/recurrent/recurrent.h"
#include "cpu/kit/activation.h"
#include "cpu/kit/real.h"

/* n units from j on of one row in one step. */
typedef struct unit_row {
    real *restrict g;            /* [4,H]: w_ih x before, the gates after */
    const real *restrict sum;    /* the tile: w_hh h */
    const real *restrict bias;   /* [4,H] */
    const real *restrict before; /* c, GRU: h */
    real *restrict c;
    real *restrict h, *restrict y;
} unit_row;

TP_INLINE void lstm_units(unit_row u, int64_t H, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        const real i = logistic(u.g[k] + u.bias[k] + u.sum[k]);
        const real f = logistic(u.g[H + k] + u.bias[H + k] + u.sum[LANES + k]);
        const real g = r_tanh(u.g[2 * H + k] + u.bias[2 * H + k] + u.sum[2 * LANES + k]);
        const real o = logistic(u.g[3 * H + k] + u.bias[3 * H + k] + u.sum[3 * LANES + k]);
        const real c = f * u.before[k] + i * g, h = o * r_tanh(c);
        u.g[k] = i;
        u.g[H + k] = f;
        u.g[2 * H + k] = g;
        u.g[3 * H + k] = o;
        u.c[k] = c;
        u.h[k] = h;
        u.y[k] = h;
    }
}

TP_INLINE void gru_units(unit_row u, int64_t H, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        const real r = logistic(u.g[k] + u.bias[k] + u.sum[k]);
        const real z = logistic(u.g[H + k] + u.bias[H + k] + u.sum[LANES + k]);
        const real hidden = u.bias[3 * H + k] + u.sum[2 * LANES + k];
        const real t = r_tanh(u.g[2 * H + k] + u.bias[2 * H + k] + r * hidden);
        const real h = t + z * (u.before[k] - t);
        u.g[k] = r;
        u.g[H + k] = z;
        u.g[2 * H + k] = t;
        u.g[3 * H + k] = hidden;
        u.h[k] = h;
        u.y[k] = h;
    }
}

TP_INLINE void forward_row(const plan *p, int64_t s, int64_t i, int64_t j, const real *sum,
                           bool lstm)
{
    const int64_t H = p->z.H, n = tp__least(H - j, LANES), at = p->begin[s] + i;
    const tp_view *y = p->c->y;
    real *cells = lstm ? y[TP_RNN_CELLS].data : NULL;
    const unit_row u = {
        .g = (real *)y[lstm ? TP_RNN_LSTM_GATES : TP_RNN_GRU_GATES].data + at * p->wide + j,
        .sum = sum,
        .bias = p->bias + j,
        .before = !lstm   ? p->h[s & 1] + i * p->ld + j
                  : s > 0 ? cells + (p->begin[s - 1] + i) * H + j
                          : state_row(p, &p->c->x[TP_RNN_C0], i) + j,
        .c = lstm ? cells + at * H + j : NULL,
        .h = p->h[(s + 1) & 1] + i * p->ld + j,
        .y = (real *)y[TP_RNN_Y].data + place(p, i, s) * H + j,
    };
    if (lstm && n == LANES)
        lstm_units(u, H, LANES);
    else if (lstm)
        lstm_units(u, H, n);
    else if (n == LANES)
        gru_units(u, H, LANES);
    else
        gru_units(u, H, n);
}

TP_INLINE void forward_step(const part *q, int64_t s, bool lstm)
{
    const plan *p = q->p;
    const int64_t H = p->z.H, m = own_rows(q, active(p, s)), step = q->stride * p->ld;
    const int n = lstm ? 4 : 3;
    const real *h = p->h[s & 1] + q->first * p->ld;
    tile sum;
    for (int64_t j = q->from; j < q->to; j++)
        for (int64_t r = 0, rows; r < m; r += rows) {
            rows = tile_rows(m - r, n);
            product_tile(h + r * step, step, p->panels + j * n * LANES * H, H, &sum, rows, n);
            for (int64_t y = 0; y < rows; y++)
                forward_row(p, s, q->first + (r + y) * q->stride, j * LANES, sum.at + y * n * LANES,
                            lstm);
        }
}

static void lstm_step(const part *q, int64_t s)
{
    forward_step(q, s, true);
}

static void gru_step(const part *q, int64_t s)
{
    forward_step(q, s, false);
}

static void pack_forward(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const plan *p = ctx;
    const int64_t H = p->z.H;
    (void)thread;
    for (int64_t j = begin; j < end; j++)
        pack_gates(p->c->x[TP_RNN_W_HH].data, H, p->z.gates, j * LANES,
                   p->panels + j * p->z.gates * LANES * H);
}

/* LSTM: b_ih + b_hh. GRU: the same for r and z, then b_in, then b_hn. */
static void sum_biases(const plan *p)
{
    const real *a = p->c->x[TP_RNN_B_IH].data, *b = p->c->x[TP_RNN_B_HH].data;
    const int64_t H = p->z.H, both = p->z.lstm ? 4 * H : 2 * H;
    for (int64_t k = 0; k < both; k++) p->bias[k] = (a ? a[k] : 0) + (b ? b[k] : 0);
    for (int64_t k = both; k < 3 * H; k++) {
        p->bias[k] = a ? a[k] : 0;
        p->bias[H + k] = b ? b[k] : 0;
    }
}

/* The gates of a chunk without w_hh: x w_ih^T. */
static void input_product(const plan *p, real *gates, int64_t s, int64_t end)
{
    const tp_rnn_sizes z = p->z;
    gather(p, p->c->x[TP_RNN_X].data, z.C, s, end);
    tp__gemm_parallel(p->c->dev, &(tp_gemm){ .dtype = REAL,
                                             .m = p->begin[end] - p->begin[s],
                                             .n = z.gates * z.H,
                                             .k = z.C,
                                             .batch = 1,
                                             .a = p->x,
                                             .lda = z.C,
                                             .b = p->c->x[TP_RNN_W_IH].data,
                                             .ldb = z.C,
                                             .tb = true,
                                             .c = gates + p->begin[s] * p->wide,
                                             .ldc = p->wide,
                                             .work = p->products });
}

/* States after the last steps, and zeros past them. */
static void finish_rows(const plan *p)
{
    const tp_view *x = p->c->x, *y = p->c->y;
    const int64_t H = p->z.H, N = p->z.N;
    const size_t bytes = (size_t)H * sizeof(real);
    for (int64_t i = 0; i < p->z.B; i++) {
        const int64_t b = p->order[i], n = p->length[i];
        memcpy((real *)y[TP_RNN_H].data + b * H, h_before(p, i, n), bytes);
        if (p->z.lstm)
            memcpy((real *)y[TP_RNN_C].data + b * H,
                   n > 0 ? (real *)y[TP_RNN_CELLS].data + (p->begin[n - 1] + i) * H
                         : state_row(p, &x[TP_RNN_C0], i),
                   bytes);
        memset((real *)y[TP_RNN_Y].data + (b * N + n) * H, 0, (size_t)(N - n) * bytes);
    }
}

/* Clears saved rows of no step. */
static void clear_rest(const tp_view *v, int64_t rows, int64_t width)
{
    memset((real *)v->data + rows * width, 0, (size_t)(v->numel - rows * width) * sizeof(real));
}

static tp_code forward(const tp_call *c, int gates, step_body step)
{
    const tp_code code = check_lengths(c);
    if (code != TP_OK) return code;
    plan p = lay_out(c);
    if (!c->work) return TP_E_BUG; /* rnn_work always asks for memory */
    const int64_t panels = tp__ceil_div(p.z.H, LANES), N = p.z.N;
    sort_rows(&p);
    if (p.z.H > 0) memset(p.zeros, 0, (size_t)p.z.H * sizeof(real));
    tp__parallel(c->dev, panels, tp__ceil_div(panels, 8), pack_forward, &p);
    sum_biases(&p);
    for (int64_t i = 0; i < p.z.B; i++)
        memcpy(p.h[0] + i * p.ld, h_before(&p, i, 0), (size_t)p.z.H * sizeof(real));
    for (int64_t s = 0, end; s < N && active(&p, s) > 0; s = end) {
        end = chunk_end(&p, s);
        input_product(&p, c->y[gates].data, s, end);
        run_steps(&p, s, end, panels, false, step);
    }
    finish_rows(&p);
    clear_rest(&c->y[gates], p.begin[N], p.wide);
    if (p.z.lstm) clear_rest(&c->y[TP_RNN_CELLS], p.begin[N], p.z.H);
    return TP_OK;
}

static tp_code lstm_fwd(const tp_call *c)
{
    return forward(c, TP_RNN_LSTM_GATES, lstm_step);
}

static tp_code gru_fwd(const tp_call *c)
{
    return forward(c, TP_RNN_GRU_GATES, gru_step);
}

static size_t rnn_work(const tp_call *c)
{
    tp_call unknown = *c;
    unknown.work = NULL;
    return lay_out(&unknown).bytes;
}

TP_CPU_WORK(rnn_work)
TP_CPU_KERNEL(lstm_fwd)
TP_CPU_KERNEL(gru_fwd)
