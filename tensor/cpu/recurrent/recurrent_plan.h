/* recurrent_plan.h - the order in which tp_lstm and tp_gru store steps, and their workspace.
 *
 * Sequences are sorted by length, longest first, so the rows that take part in a step are the first
 * active(s) ones. The rows of all steps are packed one after another, step by step: there is no padding in
 * any product. Steps are worked on in chunks of about 1024 packed rows. Products with w_ih, which need no
 * earlier step, and those for the gradients of the weights take a whole chunk at a time, while it is in
 * cache, so nothing but the saved gates has the size of all steps. */
#ifndef TP_RECURRENT_PLAN_H
#define TP_RECURRENT_PLAN_H

#include <stdio.h>

#include "tensor/cpu/kit/gemm.h"
#include "tensor/cpu/recurrent/recurrent_tile.h"
#include "tensor/geometry/index.h"
#include "tensor/geometry/recurrent.h"
#include "tensor/kernel.h"

enum { CHUNK_ROWS = 1024 };

typedef struct plan {
    const tp_call *c;
    tp_rnn_sizes z;
    int64_t wide;                    /* 4 H: a row of saved gates or of their gradients */
    int64_t rows;                    /* most packed rows of a chunk                     */
    int64_t ld;                      /* of h                                            */
    int64_t *order, *length, *begin; /* [B], [B], [N+1]: of sorted row i; first row of step s */
    real *zeros;                     /* [H] */
    real *panels;                    /* w_hh */
    real *x;                         /* [rows,max(C,H)] gathered rows of x, h or dx */
    void *products;                  /* scratch of tp__gemm_parallel */
    real *bias;                      /* forward: [4,H], or zeros */
    real *h[2];                      /* forward: [B,ld], of the last step and of this one */
    real *dg;                        /* backward: [rows+B,wide] gradients of gates */
    real *carry; /* backward: [B,H] sorted: of c (LSTM), of h past the gates (GRU) */
    real *db;    /* backward: [wide] and [wide] of a chunk */
    size_t bytes;
} plan;

static inline void *take_room(plan *p, int64_t n, size_t size)
{
    void *at = p->c->work ? (char *)p->c->work + p->bytes : NULL;
    p->bytes += ((size_t)n * size + 63) / 64 * 64;
    return at;
}

/* The workspace of a call, whose memory need not exist yet. */
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

/* The row of [B,N] at which step s of sorted row i reads and writes. */
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

/* The last step, exclusive, of the chunk that begins with step s. */
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

/* Sorts the sequences by length, by counting. */
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
    int64_t *longer =
        p->begin; /* [n]: sequences longer than n, later the first place of length n */
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

#endif
