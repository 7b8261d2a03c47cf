/* recurrent.c - LSTM and gated recurrent units over whole sequences, and their gradients.
 *
 * Forward, per chunk of steps (recurrent_plan.h): one product with w_ih, whose result lies where the gates
 * will be saved; then, per step, the product with the packed w_hh (recurrent_tile.h). A tile has all gates of
 * its units, which become h and c while they are in L1. Backward goes the other way: a tile is dh, from which
 * the gradients of the gates follow; the gradients of x and of the weights are products over the chunk.
 *
 * Threads share the rows of the batch and run through a chunk without waiting for each other. If the batch
 * is too small for that, they share the units and meet after each step. Neither changes any bit. */
#include "tensor/cpu/kit/activation.h"
#include "tensor/cpu/kit/add_blocks.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/cpu/kit/recurrent_plan.h"

#define MIN_WORK                                                                                   \
    1.0e6 /* least multiply-adds of a thread's share of a step, if threads share units */

/* ---- the loops that both directions share ---- */

/* Rows first, first + stride, ... of the steps [s, end) and the panels [from, to). */
typedef struct part {
    const plan *p;
    int64_t s, end, base; /* base: the packed row at which the chunk begins */
    int64_t first, stride, from, to;
} part;

typedef void (*step_body)(const part *q, int64_t s);

typedef struct sharing {
    part q;
    step_body body;
    bool backward;
} sharing;

static void run_rows(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const sharing *h = ctx;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        part q = h->q;
        q.first = k;
        for (int64_t s = q.s; s < q.end; s++) h->body(&q, h->backward ? q.end - 1 - (s - q.s) : s);
    }
}

static void run_panels(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const sharing *h = ctx;
    part q = h->q;
    (void)thread;
    q.from = begin;
    q.to = end;
    h->body(&q, q.s);
}

/* Runs a chunk of steps on all threads. */
static void run_steps(const plan *p, int64_t s, int64_t end, int64_t panels, bool backward,
                      step_body body)
{
    const int threads = p->c->dev->threads;
    sharing h = { { p, s, end, p->begin[s], 0, 1, 0, panels }, body, backward };
    const double work = (double)p->z.B * (double)p->z.H * (double)(p->z.gates * p->z.H);
    const int64_t least = ROWS_OF(p->z.gates);
    if (p->z.B >= threads * least || work < MIN_WORK * 2) {
        h.q.stride = tp__most(1, tp__least(threads, p->z.B / least));
        tp__parallel(p->c->dev, h.q.stride, 1, run_rows, &h);
        return;
    }
    const int64_t grain = tp__ceil_div(panels, threads);
    for (int64_t k = s; k < end; k++) {
        h.q.s = backward ? end - 1 - (k - s) : k;
        tp__parallel(p->c->dev, panels, grain, run_panels, &h);
    }
}

/* The number of rows of q among the first n. */
static int64_t own_rows(const part *q, int64_t n)
{
    return q->first < n ? tp__ceil_div(n - q->first, q->stride) : 0;
}

/* ---- forward ---- */

/* The n units from j on of one row in one step. */
typedef struct unit_row {
    real *restrict g;            /* [4,H]: w_ih x before, the gates after */
    const real *restrict sum;    /* the tile: w_hh h                      */
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

/* Rows of p->x for the steps [s, end). */
typedef struct gathering {
    const plan *p;
    const real *from; /* [B*N,width]; NULL: h before each step */
    real *to;         /* scatter: receives the rows of p->x     */
    int64_t s, width;
    bool add;
} gathering;

static void gather_steps(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const gathering *g = ctx;
    const plan *p = g->p;
    const size_t bytes = (size_t)g->width * sizeof(real);
    (void)thread;
    for (int64_t s = g->s + begin; s < g->s + end; s++)
        for (int64_t i = 0; i < active(p, s); i++)
            memcpy(p->x + (p->begin[s] - p->begin[g->s] + i) * g->width,
                   g->from ? g->from + place(p, i, s) * g->width : h_before(p, i, s), bytes);
}

static void gather(const plan *p, const real *from, int64_t width, int64_t s, int64_t end)
{
    const gathering g = { .p = p, .from = from, .s = s, .width = width };
    tp__parallel(p->c->dev, end - s, tp__ceil_div(end - s, 8), gather_steps, &g);
}

/* The gates of a chunk without w_hh: x w_ih^T. */
static void input_product(const plan *p, real *gates, int64_t s, int64_t end)
{
    const tp_rnn_sizes z = p->z;
    gather(p, p->c->x[TP_RNN_X].data, z.C, s, end);
    /* clang-format off */
    tp__gemm_parallel(p->c->dev, &(tp_gemm){
        .dtype = REAL, .m = p->begin[end] - p->begin[s], .n = z.gates * z.H, .k = z.C, .batch = 1,
        .a = p->x, .lda = z.C,
        .b = p->c->x[TP_RNN_W_IH].data, .ldb = z.C, .tb = true,
        .c = gates + p->begin[s] * p->wide, .ldc = p->wide, .work = p->products });
    /* clang-format on */
}

/* The states after the last steps, and zeros beyond them. */
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

/* Saved numbers that no step has. */
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

/* ---- backward ---- */

/* The n units from j on of one row in one step. Gradients of gates, [4,H]: LSTM as the gates; GRU: of n
 * before the product with r, then of what w_hh h is added to: r, z, n. */
typedef struct grad_row {
    const real *restrict g, *restrict sum, *restrict dy;
    const real *restrict before; /* c, GRU: h */
    const real *restrict c;      /* LSTM */
    real *restrict carry, *restrict dg;
} grad_row;

TP_INLINE void lstm_grads(grad_row u, int64_t H, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        const real i = u.g[k], f = u.g[H + k], g = u.g[2 * H + k], o = u.g[3 * H + k];
        const real t = r_tanh(u.c[k]), dh = u.sum[k] + u.dy[k];
        const real dc = u.carry[k] + dh * o * (1 - t * t);
        u.dg[k] = dc * g * i * (1 - i);
        u.dg[H + k] = dc * u.before[k] * f * (1 - f);
        u.dg[2 * H + k] = dc * i * (1 - g * g);
        u.dg[3 * H + k] = dh * t * o * (1 - o);
        u.carry[k] = dc * f;
    }
}

TP_INLINE void gru_grads(grad_row u, int64_t H, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        const real r = u.g[k], z = u.g[H + k], t = u.g[2 * H + k], hidden = u.g[3 * H + k];
        const real dh = u.sum[k] + u.carry[k] + u.dy[k];
        const real dt = dh * (1 - z) * (1 - t * t);
        u.dg[k] = dt;
        u.dg[H + k] = dt * hidden * r * (1 - r);
        u.dg[2 * H + k] = dh * (u.before[k] - t) * z * (1 - z);
        u.dg[3 * H + k] = dt * r;
        u.carry[k] = dh * z;
    }
}

/* sum: the gradient of h from the next step, or of the last h. */
TP_INLINE void backward_row(const part *q, int64_t s, int64_t i, int64_t j, int64_t n,
                            const real *sum, bool lstm)
{
    const plan *p = q->p;
    const tp_call *c = p->c;
    const int64_t H = p->z.H, at = p->begin[s] + i;
    const real *cells = lstm ? c->y[TP_RNN_CELLS].data : NULL;
    const grad_row u = {
        .g =
            (const real *)c->y[lstm ? TP_RNN_LSTM_GATES : TP_RNN_GRU_GATES].data + at * p->wide + j,
        .sum = sum,
        .dy = (const real *)c->dy[TP_RNN_Y].data + place(p, i, s) * H + j,
        .before = !lstm   ? h_before(p, i, s) + j
                  : s > 0 ? cells + (p->begin[s - 1] + i) * H + j
                          : state_row(p, &c->x[TP_RNN_C0], i) + j,
        .c = lstm ? cells + at * H + j : NULL,
        .carry = p->carry + i * H + j,
        .dg = p->dg + (at - q->base) * p->wide + j,
    };
    if (lstm)
        lstm_grads(u, H, n);
    else
        gru_grads(u, H, n);
}

/* The gradient of h before step s + 1, from that of its gates: panel j, for rows of q from r on. */
static void hidden_product(const part *q, int64_t s, int64_t j, int64_t r, int64_t rows, tile *to)
{
    const plan *p = q->p;
    const int64_t depth = p->z.gates * p->z.H, skip = p->wide - depth, step = q->stride * p->wide;
    const int64_t i = q->first + r * q->stride;
    const real *dg = p->dg + (p->begin[s + 1] - q->base + i) * p->wide + skip;
    product_tile(dg, step, p->panels + j * MOST_VECTORS * LANES * depth, depth, to, rows,
                 MOST_VECTORS);
}

TP_INLINE void backward_step(const part *q, int64_t s, bool lstm)
{
    const plan *p = q->p;
    const int64_t H = p->z.H, width = MOST_VECTORS * LANES;
    const int64_t m = own_rows(q, active(p, s)), later = own_rows(q, active(p, s + 1));
    tile sum = { 0 };
    for (int64_t k = q->from; k < q->to; k++) {
        const int64_t j = k * width, n = tp__least(H - j, width);
        for (int64_t r = 0, rows; r < later; r += rows) {
            rows = tile_rows(later - r, MOST_VECTORS);
            hidden_product(q, s, k, r, rows, &sum);
            for (int64_t y = 0; y < rows; y++)
                backward_row(q, s, q->first + (r + y) * q->stride, j, n, sum.at + y * width, lstm);
        }
        for (int64_t r = later; r < m; r++) { /* rows that end here */
            const int64_t i = q->first + r * q->stride;
            backward_row(q, s, i, j, n, state_row(p, &p->c->dy[TP_RNN_H], i) + j, lstm);
        }
    }
}

static void lstm_back(const part *q, int64_t s)
{
    backward_step(q, s, true);
}

static void gru_back(const part *q, int64_t s)
{
    backward_step(q, s, false);
}

/* The gradient of the first h; q->s is 0. */
static void first_state(const part *q, int64_t s)
{
    const plan *p = q->p;
    const int64_t H = p->z.H, width = MOST_VECTORS * LANES, B = own_rows(q, p->z.B);
    const int64_t m = own_rows(q, active(p, 0));
    real *dh = p->c->dx[TP_RNN_H0].data;
    const bool add = p->c->add >> TP_RNN_H0 & 1u;
    tile sum = { 0 };
    (void)s;
    for (int64_t k = q->from; k < q->to; k++) {
        const int64_t j = k * width, n = tp__least(H - j, width);
        for (int64_t r = 0, rows; r < B; r += rows) {
            rows = r < m ? tile_rows(m - r, MOST_VECTORS) : 1;
            if (r < m) hidden_product(q, -1, k, r, rows, &sum);
            for (int64_t y = 0; y < rows; y++) {
                const int64_t i = q->first + (r + y) * q->stride;
                const real *carry = p->z.lstm ? p->zeros : p->carry + i * H + j;
                const real *more =
                    r < m ? sum.at + y * width : state_row(p, &p->c->dy[TP_RNN_H], i) + j;
                real *to = dh + p->order[i] * H + j;
                for (int64_t e = 0; e < n; e++) to[e] = (add ? to[e] : 0) + more[e] + carry[e];
            }
        }
    }
}

static void pack_backward(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const plan *p = ctx;
    const int64_t depth = p->z.gates * p->z.H, width = MOST_VECTORS * LANES;
    (void)thread;
    for (int64_t j = begin; j < end; j++)
        pack_columns(p->c->x[TP_RNN_W_HH].data, p->z.H, depth, j * width,
                     p->panels + j * width * depth);
}

static void scatter_steps(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const gathering *g = ctx;
    const plan *p = g->p;
    (void)thread;
    for (int64_t s = g->s + begin; s < g->s + end; s++)
        for (int64_t i = 0; i < active(p, s); i++) {
            const real *from = p->x + (p->begin[s] - p->begin[g->s] + i) * g->width;
            real *to = g->to + place(p, i, s) * g->width;
            for (int64_t k = 0; k < g->width; k++) to[k] = g->add ? to[k] + from[k] : from[k];
        }
}

/* dx of a chunk: the gradients of the gates times rows [gate, gate + count) H of w_ih. */
static void input_gradient(const plan *p, int64_t at, int64_t gate, int64_t count, int64_t rows,
                           bool add)
{
    const tp_rnn_sizes z = p->z;
    const real *w = p->c->x[TP_RNN_W_IH].data;
    /* clang-format off */
    tp__gemm_parallel(p->c->dev, &(tp_gemm){
        .dtype = REAL, .m = rows, .n = z.C, .k = count * z.H, .batch = 1, .add = add,
        .a = p->dg + at * z.H, .lda = p->wide,
        .b = w + gate * z.H * z.C, .ldb = z.C,
        .c = p->x, .ldc = z.C, .work = p->products });
    /* clang-format on */
}

/* Adds to rows [gate, gate + count) H of the gradient of a weight matrix of `width` columns. */
static void weight_gradient(const plan *p, int input, int64_t at, int64_t gate, int64_t count,
                            int64_t width, int64_t rows)
{
    const int64_t H = p->z.H;
    /* clang-format off */
    tp__gemm_parallel(p->c->dev, &(tp_gemm){
        .dtype = REAL, .m = count * H, .n = width, .k = rows, .batch = 1, .add = true,
        .a = p->dg + at * H, .lda = p->wide, .ta = true,
        .b = p->x, .ldb = width,
        .c = (real *)p->c->dx[input].data + gate * H * width, .ldc = width, .work = p->products });
    /* clang-format on */
}

typedef struct column_sums {
    const plan *p;
    int64_t rows;
} column_sums;

static void sum_columns(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const column_sums *s = ctx;
    const plan *p = s->p;
    real *restrict to = p->db + p->wide;
    (void)thread;
    for (int64_t k = begin; k < end; k++) to[k] = 0;
    for (int64_t r = 0; r < s->rows; r++) {
        const real *restrict dg = p->dg + r * p->wide;
        for (int64_t k = begin; k < end; k++) to[k] += dg[k];
    }
    for (int64_t k = begin; k < end; k++) p->db[k] += to[k];
}

/* Everything that follows from the gradients of a chunk's gates. */
static void chunk_gradients(const plan *p, int64_t s, int64_t end)
{
    const tp_call *c = p->c;
    const tp_rnn_sizes z = p->z;
    const int64_t rows = p->begin[end] - p->begin[s];
    const bool lstm = z.lstm;
    if (c->dx[TP_RNN_X].data) {
        input_gradient(p, lstm ? 0 : 1, 0, lstm ? 4 : 2, rows, false);
        if (!lstm) input_gradient(p, 0, 2, 1, rows, true);
        const gathering g = { p, NULL, c->dx[TP_RNN_X].data, s, z.C, c->add >> TP_RNN_X & 1u };
        tp__parallel(c->dev, end - s, tp__ceil_div(end - s, 8), scatter_steps, &g);
    }
    if (c->dx[TP_RNN_W_IH].data) {
        gather(p, c->x[TP_RNN_X].data, z.C, s, end);
        weight_gradient(p, TP_RNN_W_IH, lstm ? 0 : 1, 0, lstm ? 4 : 2, z.C, rows);
        if (!lstm) weight_gradient(p, TP_RNN_W_IH, 0, 2, 1, z.C, rows);
    }
    if (c->dx[TP_RNN_W_HH].data) {
        gather(p, NULL, z.H, s, end);
        weight_gradient(p, TP_RNN_W_HH, lstm ? 0 : 1, 0, z.gates, z.H, rows);
    }
    if (c->dx[TP_RNN_B_IH].data || c->dx[TP_RNN_B_HH].data)
        tp__parallel(c->dev, p->wide, tp__most(64, tp__ceil_div(p->wide, 8)), sum_columns,
                     &(column_sums){ p, rows });
}

/* The gradients of the biases: LSTM: of both alike; GRU: db is of n, r, z, w_hn h. */
static void bias_gradients(const plan *p)
{
    const int64_t H = p->z.H, n = p->z.gates * H;
    for (int i = TP_RNN_B_IH; i <= TP_RNN_B_HH; i++) {
        real *to = p->c->dx[i].data;
        const bool add = p->c->add >> i & 1u, inner = i == TP_RNN_B_IH && !p->z.lstm;
        for (int64_t k = 0; to && k < n; k++) {
            const int64_t from = p->z.lstm ? k : inner && k >= 2 * H ? k - 2 * H : k + H;
            to[k] = (add ? to[k] : 0) + p->db[from];
        }
    }
}

/* Sums begin at 0; dx is 0 beyond the last steps. */
static void clear_gradients(const plan *p)
{
    const tp_call *c = p->c;
    const int64_t N = p->z.N, C = p->z.C;
    for (int i = TP_RNN_W_IH; i <= TP_RNN_W_HH; i++)
        if (c->dx[i].data && !(c->add >> i & 1u))
            memset(c->dx[i].data, 0, (size_t)c->dx[i].numel * sizeof(real));
    memset(p->db, 0, (size_t)p->wide * sizeof(real));
    if (!c->dx[TP_RNN_X].data || (c->add >> TP_RNN_X & 1u)) return;
    for (int64_t i = 0; i < p->z.B; i++)
        memset((real *)c->dx[TP_RNN_X].data + (p->order[i] * N + p->length[i]) * C, 0,
               (size_t)((N - p->length[i]) * C) * sizeof(real));
}

static void begin_carry(const plan *p)
{
    const size_t bytes = (size_t)p->z.H * sizeof(real);
    for (int64_t i = 0; i < p->z.B; i++)
        memcpy(p->carry + i * p->z.H, p->z.lstm ? state_row(p, &p->c->dy[TP_RNN_C], i) : p->zeros,
               bytes);
}

static void first_cells(const plan *p)
{
    const int64_t H = p->z.H;
    real *dc = p->c->dx[TP_RNN_C0].data;
    const bool add = p->c->add >> TP_RNN_C0 & 1u;
    for (int64_t i = 0; i < p->z.B; i++)
        for (int64_t k = 0; k < H; k++) {
            real *to = dc + p->order[i] * H + k;
            *to = (add ? *to : 0) + p->carry[i * H + k];
        }
}

static tp_code backward(const tp_call *c, step_body step)
{
    plan p = lay_out(c);
    if (!c->work) return TP_E_BUG; /* rnn_work always asks for memory */
    const int64_t panels = tp__ceil_div(p.z.H, MOST_VECTORS * LANES), H = p.z.H;
    sort_rows(&p);
    memset(p.zeros, 0, (size_t)H * sizeof(real));
    tp__parallel(c->dev, panels, 1, pack_backward, &p);
    clear_gradients(&p);
    begin_carry(&p);
    int64_t end = p.z.N;
    while (end > 0 && active(&p, end - 1) == 0) end--;
    for (int64_t s; end > 0; end = s) {
        s = chunk_begin(&p, end);
        const int64_t rows = p.begin[end] - p.begin[s];
        memmove(p.dg + rows * p.wide, p.dg,
                (size_t)(active(&p, end) * p.wide) * sizeof(real)); /* step `end` */
        run_steps(&p, s, end, panels, true, step);
        chunk_gradients(&p, s, end);
    }
    if (c->dx[TP_RNN_H0].data && H > 0) {
        const part all = { &p, 0, 0, 0, 0, 1, 0, panels };
        first_state(&all, 0);
    }
    if (p.z.lstm && c->dx[TP_RNN_C0].data) first_cells(&p);
    bias_gradients(&p);
    return TP_OK;
}

static tp_code lstm_bwd(const tp_call *c)
{
    return backward(c, lstm_back);
}

static tp_code gru_bwd(const tp_call *c)
{
    return backward(c, gru_back);
}

static size_t rnn_work(const tp_call *c)
{
    tp_call unknown = *c;
    unknown.work = NULL;
    return lay_out(&unknown).bytes;
}

TP_CPU_WORK(rnn_work)
TP_CPU_KERNEL(lstm_fwd)
TP_CPU_KERNEL(lstm_bwd)
TP_CPU_KERNEL(gru_fwd)
TP_CPU_KERNEL(gru_bwd)
