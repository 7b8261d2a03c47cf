/* recurrent.h - shared by both directions of tp_lstm and tp_gru: the order of steps, the product of
 * a step, and how threads run through steps.
 *
 * Sequences are sorted by length, longest first, so the rows active in a step are the first
 * active(s) ones. The rows of all steps are packed, step by step: no product has padding. Steps are
 * processed in chunks of about 1024 packed rows. Products with w_ih, which need no earlier step,
 * and those for the weight gradients take a whole chunk at a time, while it is in cache, so only
 * the saved gates have the size of all steps. */
#ifndef TP_CPU_RECURRENT_H
#define TP_CPU_RECURRENT_H

#include <stdio.h>
#include <string.h>

#include "cpu/kit/gemm.h"
#include "cpu/kit/real.h"
#include "cpu/kit/transpose.h"
#include "cpu/kit/vector.h"
#include "tensor/geometry/index.h"
#include "tensor/geometry/recurrent.h"
#include "tensor/geometry/whole.h"
#include "tensor/kernel.h"

/* ---- the product of a step ----
 *
 * A few rows of h, or of gradients, times a weight matrix packed once for all steps, in panels of
 * up to 4 vectors of columns, [depth][vectors]. A tile, at most ROWS_OF(vectors) rows by one panel,
 * is summed in registers, over the whole depth in order, so its bits do not depend on the other
 * rows. A panel is read from the outer caches once per step and then used for all rows. Rows are
 * divided into tiles of nearly equal height: 8 rows are 4 and 4, not 6 and 2, because the short
 * tile would wait for the panel. */

/* 24 sums in 32 registers, 12 in 16. */
#define SUMS             (TP_VECTOR == 64 ? 24 : 12)
#define ROWS_OF(vectors) (SUMS / (vectors))
enum { MOST_ROWS = 8, MOST_VECTORS = 4 };

/* The sums of a tile, [row][vector][lane]. */
typedef struct tile {
    real at[MOST_ROWS * MOST_VECTORS * TP_VECTOR / sizeof(real)] __attribute__((aligned(64)));
} tile;

/* to = a b for `rows` rows, `step` apart, and n vectors; both are constants. */
TP_INLINE void sum_tile(const real *a, int64_t step, const real *b, int64_t depth, tile *to,
                        int rows, int n)
{
    const real *row[MOST_ROWS];
    vec sum[MOST_ROWS][MOST_VECTORS];
    TP_UNROLL
    for (int y = 0; y < MOST_ROWS; y++) {
        row[y] = a + (y < rows ? y : 0) * step;
        TP_UNROLL
        for (int x = 0; x < MOST_VECTORS; x++) sum[y][x] = (vec){ 0 };
    }
    for (int64_t k = 0; k < depth; k++, b += n * LANES) {
        vec line[MOST_VECTORS];
        TP_UNROLL
        for (int x = 0; x < MOST_VECTORS; x++) {
            if (x >= n) continue;
            line[x] = *(const vec *)(b + x * LANES);
            TP_HOLD(line[x]);
        }
        TP_UNROLL
        for (int y = 0; y < MOST_ROWS; y++) {
            TP_UNROLL
            for (int x = 0; x < MOST_VECTORS; x++)
                if (y < rows && x < n) sum[y][x] += row[y][k] * line[x];
        }
    }
    TP_UNROLL
    for (int y = 0; y < MOST_ROWS; y++) {
        TP_UNROLL
        for (int x = 0; x < MOST_VECTORS; x++)
            if (y < rows && x < n) *(vec *)(to->at + (y * n + x) * LANES) = sum[y][x];
    }
}

/* n is a constant, 3 or 4; 1 <= rows <= ROWS_OF(n). */
TP_INLINE void product_tile(const real *a, int64_t step, const real *b, int64_t depth, tile *to,
                            int64_t rows, int n)
{
    switch (rows) {
    case 1: sum_tile(a, step, b, depth, to, 1, n); break;
    case 2: sum_tile(a, step, b, depth, to, 2, n); break;
    case 3: sum_tile(a, step, b, depth, to, 3, n); break;
#if TP_VECTOR == 64
    case 4: sum_tile(a, step, b, depth, to, 4, n); break;
    case 5: sum_tile(a, step, b, depth, to, 5, n); break;
    case 6: sum_tile(a, step, b, depth, to, 6, n); break;
    case 7:
        if (n == 3) sum_tile(a, step, b, depth, to, 7, n);
        break;
    default:
        if (n == 3) sum_tile(a, step, b, depth, to, 8, n);
#else
    default:
        if (n == 3) sum_tile(a, step, b, depth, to, 4, n);
#endif
    }
}

/* The height of the next tile, with `rows` rows left. */
TP_INLINE int64_t tile_rows(int64_t rows, int n)
{
    return tp__ceil_div(rows, tp__ceil_div(rows, ROWS_OF(n)));
}

/* ---- packing ---- */

/* Elements of panels of n vectors over `cols` columns. */
static inline int64_t panels_size(int64_t depth, int64_t cols, int64_t n)
{
    return tp__ceil_div(cols, n * LANES) * n * LANES * depth;
}

/* Packs units j .. j + LANES of w [gates*H,H]: [k][gate][unit] = w[gate * H + unit][k]. */
static inline void pack_gates(const real *w, int64_t H, int64_t gates, int64_t j, real *to)
{
    const int64_t n = tp__least(H - j, LANES);
    if (n < LANES) memset(to, 0, (size_t)(H * gates * LANES) * sizeof *to);
    for (int64_t g = 0; g < gates; g++)
        transpose(w + (g * H + j) * H, H, n, H, to + g * LANES, gates * LANES);
}

/* Packs columns j .. j + 4 LANES of w [depth,H]. */
static inline void pack_columns(const real *w, int64_t H, int64_t depth, int64_t j, real *to)
{
    const int64_t width = MOST_VECTORS * LANES, n = tp__least(H - j, width);
    for (int64_t k = 0; k < depth; k++) {
        memcpy(to + k * width, w + k * H + j, (size_t)n * sizeof *to);
        if (n < width) memset(to + k * width + n, 0, (size_t)(width - n) * sizeof *to);
    }
}

/* ---- a call and its workspace ---- */

enum { CHUNK_ROWS = 1024 };

typedef struct plan {
    const tp_call *c;
    tp_rnn_sizes z;
    int64_t wide;                    /* 4 H: a row of saved gates or of their gradients */
    int64_t rows;                    /* most packed rows of a chunk */
    int64_t ld;                      /* of h */
    int64_t *order, *length, *begin; /* [B], [B], [N+1]: of sorted row i; first row of step s */
    real *zeros;                     /* [H] */
    real *panels;                    /* w_hh */
    real *x;                         /* [rows,max(C,H)] gathered rows of x, h or dx */
    void *products;                  /* scratch of tp__gemm_parallel */
    real *bias;                      /* forward: [4,H], or zeros */
    real *h[2];                      /* forward: [B,ld], of the last step and this one */
    real *dg;                        /* backward: [rows+B,wide] gradients of gates */
    real *carry; /* backward: [B,H] sorted: of c (LSTM), of h past the gates (GRU) */
    real *db;    /* backward: [wide], [wide] of a chunk */
    size_t bytes;
} plan;

static inline void *take_room(plan *p, int64_t n, size_t size)
{
    void *at = p->c->work ? (char *)p->c->work + p->bytes : NULL;
    p->bytes += ((size_t)n * size + 63) / 64 * 64;
    return at;
}

/* The workspace of a call; its memory need not exist yet. */
static inline plan lay_out(const tp_call *c)
{
    plan p = { .c = c, .z = tp__rnn_sizes(c) };
    const tp_rnn_sizes z = p.z;
    const size_t size = sizeof(real);
    const bool backward = tp_is_backward(c);
    p.wide = 4 * z.H;
    p.rows = tp__least(tp__most(z.B, CHUNK_ROWS), z.B * z.N);
    p.ld = tp__round_up(z.H, LANES) + LANES;
    const int64_t longest = tp__most(tp__most(p.rows, z.C), p.wide);
    p.order = take_room(&p, z.B, sizeof *p.order);
    p.length = take_room(&p, z.B, sizeof *p.length);
    p.begin = take_room(&p, z.N + 2, sizeof *p.begin);
    p.zeros = take_room(&p, z.H, size);
    p.panels = take_room(&p,
                         backward ? panels_size(z.gates * z.H, z.H, MOST_VECTORS)
                                  : panels_size(z.H, z.gates * tp__round_up(z.H, LANES), z.gates),
                         size);
    p.x = take_room(&p, p.rows * tp__most(z.C, z.H), size);
    p.products = take_room(&p, c->dev->threads, tp__gemm_scratch(REAL, longest));
    if (!backward) {
        p.bias = take_room(&p, p.wide, size);
        for (int i = 0; i < 2; i++) p.h[i] = take_room(&p, z.B * p.ld, size);
        return p;
    }
    p.dg = take_room(&p, (p.rows + z.B) * p.wide, size);
    p.carry = take_room(&p, z.B * z.H, size);
    p.db = take_room(&p, 2 * p.wide, size);
    return p;
}

/* ---- steps and rows ---- */

/* The number of rows in step s. */
static inline int64_t active(const plan *p, int64_t s)
{
    return s < p->z.N ? p->begin[s + 1] - p->begin[s] : 0;
}

/* The row of [B,N] that step s of sorted row i reads and writes. */
static inline int64_t place(const plan *p, int64_t i, int64_t s)
{
    return p->order[i] * p->z.N + (p->z.reverse ? p->length[i] - 1 - s : s);
}

/* Row i of a state [B,H], or zeros. */
static inline const real *state_row(const plan *p, const tp_view *v, int64_t i)
{
    return v->data ? (const real *)v->data + p->order[i] * p->z.H : p->zeros;
}

/* h before step s of sorted row i. */
static inline const real *h_before(const plan *p, int64_t i, int64_t s)
{
    if (s == 0) return state_row(p, &p->c->x[TP_RNN_H0], i);
    return (const real *)p->c->y[TP_RNN_Y].data + place(p, i, s - 1) * p->z.H;
}

/* The end of the chunk that begins with step s. */
static inline int64_t chunk_end(const plan *p, int64_t s)
{
    int64_t e = s + 1;
    while (e < p->z.N && p->begin[e + 1] - p->begin[s] <= p->rows) e++;
    return e;
}

/* The first step of the chunk that ends before step e. */
static inline int64_t chunk_begin(const plan *p, int64_t e)
{
    int64_t s = e - 1;
    while (s > 0 && p->begin[e] - p->begin[s - 1] <= p->rows) s--;
    return s;
}

/* Counting sort of the sequences by length. */
static inline void sort_rows(plan *p)
{
    const tp_view *lengths = &p->c->x[TP_RNN_LENGTHS];
    const int64_t B = p->z.B, N = p->z.N;
    if (!lengths->data) {
        for (int64_t i = 0; i < B; i++) p->order[i] = i;
        for (int64_t i = 0; i < B; i++) p->length[i] = N;
        for (int64_t s = 0; s <= N; s++) p->begin[s] = s * B;
        return;
    }
    /* [n]: sequences longer than n, later the first place of length n. */
    int64_t *longer = p->begin;
    memset(longer, 0, (size_t)(N + 2) * sizeof *longer);
    for (int64_t b = 0; b < B; b++) longer[tp__index(lengths, b)]++;
    for (int64_t n = N, sum = 0; n >= 0; n--) {
        const int64_t count = longer[n];
        longer[n] = sum;
        sum += count;
    }
    for (int64_t b = 0; b < B; b++) {
        const int64_t n = tp__index(lengths, b), i = longer[n]++;
        p->order[i] = b;
        p->length[i] = n;
    }
    for (int64_t s = 0, i = B, rows = 0; s <= N; s++) { /* i: sequences longer than s */
        p->begin[s] = rows;
        while (i > 0 && p->length[i - 1] <= s) i--;
        rows += i;
    }
}

static inline tp_code check_lengths(const tp_call *c)
{
    const tp_view *lengths = &c->x[TP_RNN_LENGTHS];
    const int64_t N = c->x[TP_RNN_X].dim[1];
    const int64_t bad = lengths->data ? tp__first_outside(lengths, 0, N + 1) : -1;
    if (bad < 0) return TP_OK;
    snprintf(c->why, TP_WHY, "length %lld of sequence %lld is outside [0, %lld], the steps of x",
             (long long)tp__index(lengths, bad), (long long)bad, (long long)N);
    return TP_E_VALUE;
}

/* ---- running through the steps ----
 *
 * Threads share the rows of the batch and run through a chunk without waiting for each other. For
 * smaller batches they share the units and meet after each step. Neither changes any bit. */

/* Least multiply-adds of a thread's share of a step, if threads share units. */
#define MIN_WORK 1.0e6

/* Rows first, first + stride, ... of steps [s, end), and panels [from, to). */
typedef struct part {
    const plan *p;
    int64_t s, end, base; /* base: the chunk's first packed row */
    int64_t first, stride, from, to;
} part;

typedef void (*step_body)(const part *q, int64_t s);

typedef struct sharing {
    part q;
    step_body body;
    bool backward;
} sharing;

static inline void run_rows(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const sharing *h = ctx;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        part q = h->q;
        q.first = k;
        for (int64_t s = q.s; s < q.end; s++) h->body(&q, h->backward ? q.end - 1 - (s - q.s) : s);
    }
}

static inline void run_panels(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const sharing *h = ctx;
    part q = h->q;
    (void)thread;
    q.from = begin;
    q.to = end;
    h->body(&q, q.s);
}

/* Runs a chunk of steps on all threads. */
static inline void run_steps(const plan *p, int64_t s, int64_t end, int64_t panels, bool backward,
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

/* The number of q's rows among the first n. */
static inline int64_t own_rows(const part *q, int64_t n)
{
    return q->first < n ? tp__ceil_div(n - q->first, q->stride) : 0;
}

/* ---- gathering ---- */

/* Rows of p->x for steps [s, end). */
typedef struct gathering {
    const plan *p;
    const real *from; /* [B*N,width]; NULL: h before each step */
    real *to;         /* scatter: receives the rows of p->x */
    int64_t s, width;
    bool add;
} gathering;

static inline void gather_steps(const void *ctx, int64_t begin, int64_t end, int thread)
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

static inline void gather(const plan *p, const real *from, int64_t width, int64_t s, int64_t end)
{
    const gathering g = { .p = p, .from = from, .s = s, .width = width };
    tp__parallel(p->c->dev, end - s, tp__ceil_div(end - s, 8), gather_steps, &g);
}

#endif
