/* recurrent_back.c - the gradients of LSTM and gated recurrent units over whole sequences.
 *
 * The reverse of recurrent.c: a tile is dh, which gives the gradients of the gates; the gradients
 * of x and of the weights are products over a chunk of steps. */
#include "cpu/kit/real.h"
#include "cpu/recurrent/recurrent.h"

/* n units from j on of one row in one step. Gradients of gates, [4,H]: LSTM as the gates; GRU: of n
 * before the product with r, then of the terms added to w_hh h: r, z, n. */
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

/* The gradient of h before step s + 1, from that of its gates: panel j, for q's rows from r on. */
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
        for (int64_t r = later; r < m; r++) { /* rows ending here */
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

/* dx of a chunk: gradients of the gates times rows [gate, gate + count) H of w_ih. */
static void input_gradient(const plan *p, int64_t at, int64_t gate, int64_t count, int64_t rows,
                           bool add)
{
    const tp_rnn_sizes z = p->z;
    const real *w = p->c->x[TP_RNN_W_IH].data;
    tp__gemm_parallel(p->c->dev, &(tp_gemm){ .dtype = REAL,
                                             .m = rows,
                                             .n = z.C,
                                             .k = count * z.H,
                                             .batch = 1,
                                             .add = add,
                                             .a = p->dg + at * z.H,
                                             .lda = p->wide,
                                             .b = w + gate * z.H * z.C,
                                             .ldb = z.C,
                                             .c = p->x,
                                             .ldc = z.C,
                                             .work = p->products });
}

/* Adds to rows [gate, gate + count) H of a weight matrix's gradient with `width` columns. */
static void weight_gradient(const plan *p, int input, int64_t at, int64_t gate, int64_t count,
                            int64_t width, int64_t rows)
{
    const int64_t H = p->z.H;
    tp__gemm_parallel(p->c->dev, &(tp_gemm){ .dtype = REAL,
                                             .m = count * H,
                                             .n = width,
                                             .k = rows,
                                             .batch = 1,
                                             .add = true,
                                             .a = p->dg + at * H,
                                             .lda = p->wide,
                                             .ta = true,
                                             .b = p->x,
                                             .ldb = width,
                                             .c = (real *)p->c->dx[input].data + gate * H * width,
                                             .ldc = width,
                                             .work = p->products });
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

/* Computes what follows from the gradients of a chunk's gates. */
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

/* Bias gradients: LSTM: the same for both; GRU: db is of n, r, z, w_hn h. */
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

/* Clears sums, and dx past the last steps. */
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

TP_CPU_KERNEL(lstm_bwd)
TP_CPU_KERNEL(gru_bwd)
