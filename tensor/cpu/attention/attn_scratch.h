/* attn_scratch.h - how the CPU splits attention into tiles and stripes, and a thread's scratch.
 *
 * Tiles of 128 queries by 512 keys fit in a 512 KB L2 cache, two of them in backward in 1 MB, and are
 * large enough for matrix products at nearly full rate. With relative positions they have 64 queries:
 * with more, more of the product with the positions would be wasted. Without positions, keys are packed once for
 * several tiles of queries: a group of them in forward, a stripe in backward. Scratch does not grow with the number of
 * queries or keys.
 *
 * Backward is split into equally long stripes of queries and of keys. They are placed so that the
 * causal diagonal runs through their corners: keys are shifted by `pad`, query i is at i + S - N +
 * pad, and S - N + pad is a multiple of the stripe. The pairs (query stripe I, key stripe J) with I
 * + J equal to c modulo `phases` form phase c. No two pairs of a phase share a query or a key, so
 * they run in parallel and write dq, dk and dv without partial sums. With relative positions the
 * phases do not wrap around. Then the values of I - J in a phase differ by two or more, and no two
 * pairs share a distance either. The split depends on the shapes alone, so results do not depend on
 * the number of threads. */
#ifndef TP_ATTN_SCRATCH_H
#define TP_ATTN_SCRATCH_H

#include "tensor/cpu/kit/gemm.h"
#include "tensor/cpu/kit/take.h"
#include "tensor/geometry/attn.h"

enum {
    TP_ATTN_QUERIES = 128,
    TP_ATTN_REL_QUERIES = 64,
    TP_ATTN_KEYS = 512,
    TP_ATTN_GROUP = 4,  /* most tiles of queries that share packed keys           */
    TP_ATTN_SLACK = 16, /* rows and columns that products may touch after the last */
    TP_ATTN_STRIPE = 256,
    TP_ATTN_TASKS = 16
};

typedef struct tp_attn_cut {
    int64_t m, n;           /* queries and keys of a tile                         */
    int64_t group;          /* forward: tiles of queries of a task                */
    int64_t stripe, pad;    /* backward: rows of a stripe; shift of the keys      */
    int64_t nq, nk, phases; /* backward: stripes of queries and keys; forward: 0 */
} tp_attn_cut;

/* Chooses stripes that give a phase about TP_ATTN_TASKS pairs, with at least TP_ATTN_STRIPE keys
 * each. */
static inline tp_attn_cut tp__attn_cut(const tp_attn *a, bool backward)
{
    const int64_t groups = a->heads / a->group * (a->shared ? 1 : a->batch);
    const int64_t most = a->queries > a->keys ? a->queries : a->keys;
    const int64_t parts = groups > 0 && groups < TP_ATTN_TASKS ? TP_ATTN_TASKS / groups : 1;
    const int64_t part = TP_ATTN_STRIPE * parts;
    const int64_t rows = a->positions ? TP_ATTN_REL_QUERIES : TP_ATTN_QUERIES;
    tp_attn_cut c = { .m = a->queries < rows ? a->queries : rows,
                      .n = a->keys < TP_ATTN_KEYS ? a->keys : TP_ATTN_KEYS };
    const int64_t tiles = c.m > 0 ? (a->queries + c.m - 1) / c.m : 1;
    const int64_t share = groups * a->group * tiles / TP_ATTN_TASKS; /* leaves enough tasks */
    c.group = a->positions || share < 1 ? 1 : share < TP_ATTN_GROUP ? share : TP_ATTN_GROUP;
    if (!backward) return c;
    c.group = 1;
    c.stripe = TP_ATTN_STRIPE * (most > 0 ? (most + part - 1) / part : 1);
    c.pad = (c.stripe - a->ahead % c.stripe) % c.stripe;
    c.nq = (a->queries + c.stripe - 1) / c.stripe;
    c.nk = (a->keys + c.pad + c.stripe - 1) / c.stripe;
    c.phases = a->positions ? c.nq + c.nk - 1 : c.nq > c.nk ? c.nq : c.nk;
    return c;
}

/* Offsets of the pieces of a thread's scratch, in elements. m, n: queries and keys of a tile. */
typedef struct tp_attn_scratch {
    int64_t ld;           /* row length of score tiles: an odd multiple of 16 spreads cache sets */
    int64_t pad, rows;    /* row length of tiles [rows][pad], of which [m][D] are used           */
    int64_t scores;       /* [rows][ld]: logits, probabilities; backward: their gradients        */
    int64_t other;        /* [rows][ld]: backward: gradients of the probabilities                */
    int64_t q, q_pos;     /* [rows][pad]: scaled queries, with r_w and r_r if there are positions */
    int64_t out, out_pos; /* [rows][pad]: result; backward: query gradient from keys, positions  */
    int64_t dout;         /* [rows][pad]: backward: gradient of the result                       */
    int64_t row;          /* [2][m]: running maximum and sum; backward: lse, rowsum(dO * O)      */
    int64_t keep;         /* [n]: dropout factors of a row                                       */
    int64_t gemm;         /* packed operands of a product                                        */
    int64_t kt, vt;       /* packed keys; backward: values (attn_keys.h)                         */
    int64_t x;            /* pairs only read: zipped values, backward: keys                      */
    int64_t dk, dv;       /* [n + slack][pad]: backward: gradients of the packed keys            */
    int64_t pos, dpos;    /* [n + m][D]: positions by decreasing distance, their gradients       */
    int64_t total;
} tp_attn_scratch;

static inline int64_t tp__attn_side(int64_t m, int64_t n, int64_t d)
{
    const int64_t most = m > n ? m : n;
    return most > d ? most : d;
}

static inline tp_attn_scratch tp__attn_scratch(const tp_attn *a, const tp_attn_cut *c,
                                               bool backward)
{
    const int64_t m = c->m, n = c->n, d = a->dim, pad = (d + 15) / 16 * 16;
    tp_attn_scratch w = { .ld = (n + (a->positions ? m : 0) + TP_ATTN_SLACK + 15) / 16 * 16 };
    if (w.ld / 16 % 2 == 0) w.ld += 16;
    w.pad = pad;
    w.rows = m + TP_ATTN_SLACK;
    const int64_t rows = c->group * w.rows * pad;
    const int64_t panels = tp__gemm_panels(TP_F32, d, n) + w.ld + TP_ATTN_SLACK;
    w.scores = tp__take(&w.total, w.rows * w.ld + TP_ATTN_SLACK);
    w.q = tp__take(&w.total, rows);
    w.out = tp__take(&w.total, rows);
    w.row = tp__take(&w.total, c->group * 2 * m);
    w.keep = tp__take(&w.total, n);
    w.gemm = tp__take(&w.total,
                      (int64_t)(tp__gemm_scratch(TP_F32, tp__attn_side(m, n, d)) / sizeof(float)));
    w.kt = tp__take(&w.total, panels);
    w.x = tp__take(&w.total, (n + TP_ATTN_SLACK) * pad);
    if (a->positions) {
        w.q_pos = tp__take(&w.total, rows);
        w.pos = tp__take(&w.total, (n + m) * d);
    }
    if (backward) {
        w.other = tp__take(&w.total, w.rows * w.ld + TP_ATTN_SLACK);
        w.dout = tp__take(&w.total, rows);
        w.vt = tp__take(&w.total, panels);
        w.dk = tp__take(&w.total, (n + TP_ATTN_SLACK) * pad);
        w.dv = tp__take(&w.total, (n + TP_ATTN_SLACK) * pad);
    }
    if (backward && a->positions) {
        w.out_pos = tp__take(&w.total, rows);
        w.dpos = tp__take(&w.total, (n + m) * d);
    }
    return w;
}

#endif
