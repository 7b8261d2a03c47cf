/* window_line.h - attention over sequences, maps of height 1, with small windows: many chunks at
 * once.
 *
 * The low keys, which all queries see, are multiplied by tiles of about 64 queries. The windows of
 * a few neighbouring chunks, a group of at least eight queries, are one product, in which `band`
 * hides keys that a chunk does not see. A row of logits is [low][window], each padded with hidden
 * keys.
 *
 * A task is a stripe: some tiles of one head. Backward stores the gradients of the stripe's own
 * keys; those of the halo on either side and of the low keys are summed per stripe and added in the
 * order of the stripes. The split depends only on shapes. */
#ifndef TP_WINDOW_LINE_H
#define TP_WINDOW_LINE_H

#include "cpu/attention/window_chunk.h"
#include "cpu/kit/sums.h"
#include "cpu/kit/transpose.h"

enum {
    LINE_ROWS = 64,   /* approximate queries of a tile */
    LINE_GROUP = 8,   /* fewest queries of a group */
    LINE_WIDEST = 32, /* of chunks and halos; wider ones are products that pay unaided */
    LINE_TASKS = 256, /* approximate stripes of all heads */
    LINE_LEAST = 4,   /* tiles */
    LINE_MOST = 16    /* of a stripe, at least and most: its heads' part of a cache line is in L2 */
};

/* The cut of the sequence and the parts of a thread's scratch, in elements. A final t means
 * transposed. Packed keys of a tile begin with those of the halo. */
typedef struct line_cut {
    int64_t w, halo, group, slots; /* queries of a chunk and of a group; columns of its window */
    int64_t tile, tiles, per, stripes;
    int64_t low, ld, pad, keys, ldk, ldl; /* low: columns of the low keys; keys: packed rows */
    int64_t band, low_hidden, hidden;     /* [group][slots], [low], [keys]: 1 for hidden keys */
    int64_t keep;                         /* [ld]: dropout factors of a query */
    int64_t q, s, out, kt, v, low_t, low_v;
    int64_t dp, dout, k, vt, dk, dv, low_k, low_vt, dlow_k, dlow_v; /* backward */
    int64_t total, partial; /* partial, per stripe: dlow_k, dlow_v, [side][k, v][halo][D] */
} line_cut;

/* A tile: m queries from i on, in a stripe of keys [first, stop). */
typedef struct line {
    const win *a;
    line_cut z;
    int64_t b, h, i, m, first, stop;
    real *scratch, *partial;
} line;

static inline bool line_suits(const win *a)
{
    const tp_window *g = &a->g;
    const bool small = g->chunk[1] <= LINE_WIDEST && g->halo[1] <= LINE_WIDEST;
    return g->size[0] == 1 && g->rows == 0 && g->global == 0 && !g->exact && tp__window_banded(g) &&
           (!g->local || small);
}

static line_cut cut_line(const win *a, bool backward)
{
    const tp_window *g = &a->g;
    const int64_t rows = LINE_ROWS + TP_WINDOW_SLACK, w = g->local ? g->chunk[1] : 0;
    line_cut z = { .w = w, .halo = g->local ? g->halo[1] : 0 };
    z.group = w ? tp__most(1, LINE_GROUP / w) * w : LINE_GROUP;
    z.slots = w ? tp__window_up(z.group + 2 * z.halo) : 0;
    z.tile = tp__most(1, LINE_ROWS / z.group) * z.group;
    z.tiles = tp__ceil_div(g->cells, z.tile);
    const int64_t all = a->maps * g->heads * tp__ceil_div(a->longest, z.tile);
    z.per = tp__least(LINE_MOST, tp__most(LINE_LEAST, all / LINE_TASKS));
    z.stripes = tp__ceil_div(z.tiles, z.per);
    z.low = tp__window_up(g->low);
    z.ld = z.low + z.slots;
    z.pad = tp__window_up(g->dim);
    z.keys = w ? tp__window_up(z.tile + z.slots) : 0;
    z.ldk = tp__window_ld(z.keys);
    z.ldl = tp__window_ld(z.low);
    const int64_t keys = (z.keys + TP_WINDOW_SLACK) * z.pad,
                  low = (z.low + TP_WINDOW_SLACK) * z.pad;
    int64_t *n = &z.total;
    z.band = tp__take(n, z.group * z.slots);
    z.low_hidden = tp__take(n, z.low);
    z.hidden = tp__take(n, z.keys);
    z.keep = tp__take(n, g->dropped ? z.ld : 0);
    z.q = tp__take(n, rows * z.pad);
    z.s = tp__take(n, rows * z.ld);
    z.out = tp__take(n, rows * z.pad);
    z.kt = tp__take(n, z.pad * z.ldk);
    z.v = tp__take(n, keys);
    z.low_t = tp__take(n, z.pad * z.ldl);
    z.low_v = tp__take(n, low);
    if (!backward) return z;
    z.dp = tp__take(n, rows * z.ld);
    z.dout = tp__take(n, rows * z.pad);
    z.k = tp__take(n, keys);
    z.vt = tp__take(n, z.pad * z.ldk);
    z.dk = tp__take(n, keys);
    z.dv = tp__take(n, keys);
    z.low_k = tp__take(n, low);
    z.low_vt = tp__take(n, z.pad * z.ldl);
    z.dlow_k = tp__take(n, low);
    z.dlow_v = tp__take(n, low);
    z.partial = (2 * g->low + 4 * z.halo) * g->dim;
    return z;
}

/* ---- packing ---- */

static inline real *line_row(const line *t, const tp_view *x, int64_t tokens, int64_t token)
{
    const tp_window *g = &t->a->g;
    return (real *)x->data + (t->b * tokens + token) * g->width + t->h * g->dim;
}

static inline bool line_shown(const line *t, int64_t token)
{
    const uint8_t *mask = t->a->c->x[WIN_MASK].data;
    return token >= 0 && token < t->a->g.cells && (!mask || mask[t->b * t->a->g.cells + token]);
}

static inline bool line_low_shown(const line *t, int64_t i)
{
    const uint8_t *mask = t->a->c->x[WIN_LOW_MASK].data;
    return i < t->a->g.low && (!mask || mask[t->b * t->a->g.low + i]);
}

/* Prefetches the next head's slice of a row. Its stripe follows; the cache lines of both are in
 * sequence, as hardware prefetching needs: 0.92 of a step's time with 2 heads of 32. */
static inline void line_fetch_next(const line *t, const real *row)
{
    const int64_t d = t->a->g.dim, lane = 64 / (int64_t)sizeof(real);
    if (t->h + 1 == t->a->g.heads) return;
    for (int64_t j = 0; j < d; j += lane) __builtin_prefetch(row + d + j, 0, 2);
}

/* to [n][pad]: scaled rows of x from token `from` on; zeros for hidden and outside tokens. */
static void line_gather(const line *t, const tp_view *x, int64_t from, int64_t n, real scale,
                        real *to)
{
    for (int64_t i = 0; i < n; i++, to += t->z.pad) {
        if (!line_shown(t, from + i)) {
            clear_row(to, t->a->g.dim);
            continue;
        }
        const real *row = line_row(t, x, t->a->g.cells, from + i);
        line_fetch_next(t, row);
        scaled_row(to, row, t->a->g.dim, scale);
    }
}

static void line_gather_low(const line *t, const tp_view *x, real *to)
{
    for (int64_t i = 0; i < t->z.low; i++, to += t->z.pad)
        if (line_low_shown(t, i))
            copy_row(to, line_row(t, x, t->a->g.low, i), t->a->g.dim);
        else
            clear_row(to, t->a->g.dim);
}

/* Packs the head's low keys and values, and computes the masks of a group and of the low keys. */
static void line_begin(const line *t)
{
    const line_cut *z = &t->z;
    const tp_view *x = t->a->c->x;
    real *s = t->scratch;
    for (int64_t r = 0; r < z->group && z->w; r++)
        for (int64_t j = 0; j < z->slots; j++) {
            const int64_t from = r / z->w * z->w;
            s[z->band + r * z->slots + j] = j < from || j >= from + z->w + 2 * z->halo;
        }
    for (int64_t i = 0; i < z->low; i++) s[z->low_hidden + i] = !line_low_shown(t, i);
    if (t->a->g.dropped) clear_row(s + z->keep, z->ld);
    if (z->low == 0) return;
    real *keys = s + (z->dlow_k ? z->low_k : z->low_v);
    line_gather_low(t, &x[WIN_LOW_K], keys);
    transpose(keys, z->pad, z->low, t->a->g.dim, s + z->low_t, z->ldl);
    line_gather_low(t, &x[WIN_LOW_V], s + z->low_v);
    if (z->dlow_k) transpose(s + z->low_v, z->pad, z->low, t->a->g.dim, s + z->low_vt, z->ldl);
}

/* Packs the tile's queries and the keys and values of its windows. */
static void line_pack(const line *t)
{
    const line_cut *z = &t->z;
    const tp_view *x = t->a->c->x;
    const int64_t d = t->a->g.dim, from = t->i - z->halo, n = z->keys;
    real *s = t->scratch;
    line_gather(t, &x[WIN_Q], t->i, t->m, t->a->scale, s + z->q);
    if (n == 0) return;
    real *keys = s + (z->dk ? z->k : z->v);
    for (int64_t j = 0; j < n; j++) s[z->hidden + j] = !line_shown(t, from + j);
    line_gather(t, &x[WIN_K], from, n, 1, keys);
    transpose(keys, z->pad, n, d, s + z->kt, z->ldk);
    line_gather(t, &x[WIN_V], from, n, 1, s + z->v);
    if (z->dk) transpose(s + z->v, z->pad, n, d, s + z->vt, z->ldk);
}

static bool line_any_shown(const line *t)
{
    for (int64_t i = 0; i < t->m; i++)
        if (line_shown(t, t->i + i)) return true;
    return false;
}

/* ---- products ---- */

/* to [m][ld] = x [m][pad] times the low keys or values and those of the windows. */
static void line_times_keys(const line *t, const real *x, const real *low, const real *keys,
                            real *to)
{
    const line_cut *z = &t->z;
    ls_product p = { .rows = t->m,
                     .cols = t->a->g.low,
                     .depth = t->a->g.dim,
                     .a = x,
                     .lda = z->pad,
                     .b = low,
                     .ldb = z->ldl,
                     .c = to,
                     .ldc = z->ld };
    if (z->low) ls_set(&p);
    p.rows = z->group;
    p.cols = z->slots;
    p.ldb = z->ldk;
    for (int64_t i = 0; i < t->m && z->slots; i += z->group) {
        p.a = x + i * z->pad;
        p.b = keys + i;
        p.c = to + z->low + i * z->ld;
        ls_set_narrow(&p);
    }
}

/* to [m][pad] = s [m][ld] times the rows of low keys or values and those of the windows. */
static void line_sum_keys(const line *t, const real *s, const real *low, const real *rows, real *to)
{
    const line_cut *z = &t->z;
    ls_product p = { .rows = z->group,
                     .cols = z->pad,
                     .depth = z->group + 2 * z->halo,
                     .lda = z->ld,
                     .ldb = z->pad,
                     .ldc = z->pad };
    for (int64_t i = 0; i < t->m && z->slots; i += z->group) {
        p.a = s + z->low + i * z->ld;
        p.b = rows + i * z->pad;
        p.c = to + i * z->pad;
        ls_set_narrow(&p); /* and rows of the next group, computed next */
    }
    p.rows = t->m;
    p.depth = t->a->g.low;
    p.a = s;
    p.b = low;
    p.c = to;
    if (z->slots == 0)
        ls_set(&p);
    else if (z->low > 0)
        ls_add(&p);
}

/* low += s^T x over the tile's queries, and rows += s^T x over those of each group. */
static void line_add_gradients(const line *t, const real *s, const real *x, real *low, real *rows)
{
    const line_cut *z = &t->z;
    ls_product p = { .rows = t->a->g.low,
                     .cols = z->pad,
                     .depth = t->m,
                     .a = s,
                     .lda = z->ld,
                     .b = x,
                     .ldb = z->pad,
                     .c = low,
                     .ldc = z->pad };
    if (z->low) ls_add_t(&p);
    p.rows = z->group + 2 * z->halo;
    for (int64_t i = 0; i < t->m && z->slots; i += z->group) {
        p.depth = tp__least(z->group, t->m - i);
        p.a = s + z->low + i * z->ld;
        p.b = x + i * z->pad;
        p.c = rows + i * z->pad;
        ls_add_t_narrow(&p);
    }
}

static void line_hide_low(int64_t n, const real *restrict hidden, real *restrict s)
{
    for (int64_t j = 0; j < n; j++) s[j] = hidden[j] != 0 ? -(real)INFINITY : s[j];
}

static void line_hide_window(int64_t n, const real *restrict band, const real *restrict hidden,
                             real *restrict s)
{
    for (int64_t j = 0; j < n; j++) s[j] = band[j] + hidden[j] != 0 ? -(real)INFINITY : s[j];
}

/* Masks the hidden keys of query r of the tile. */
static void line_hide(const line *t, int64_t r, real *row)
{
    const line_cut *z = &t->z;
    const real *hidden = t->scratch + z->hidden + r / z->group * z->group;
    line_hide_low(z->low, t->scratch + z->low_hidden, row);
    line_hide_window(z->slots, t->scratch + z->band + r % z->group * z->slots, hidden,
                     row + z->low);
}

/* Dropout factors of query r of the tile, in the order of its logits; NULL without dropout. Keys it
 * does not see have arbitrary finite ones. */
static const real *line_keep(const line *t, int64_t r)
{
    const win *a = t->a;
    const line_cut *z = &t->z;
    const int64_t cells = a->g.cells, low = a->g.low, group = r - r % z->group;
    const int64_t head = (a->document + t->b) * a->g.heads + t->h;
    const int64_t row = (head * a->longest + t->i + r) * (low + a->longest);
    real *keep = t->scratch + z->keep;
    if (a->drop.below == 0) return NULL;
    tp__draw_keep(&a->drop, row, low, 1, keep);
    if (z->w == 0) return keep;
    const int64_t first = t->i + group - z->halo, from = first + (r - group) / z->w * z->w;
    const int64_t begin = tp__most(from, 0), end = tp__least(from + z->w + 2 * z->halo, cells);
    tp__draw_keep(&a->drop, row + low + begin, end - begin, 1, keep + z->low + begin - first);
    return keep;
}

static void line_logits(const line *t)
{
    const line_cut *z = &t->z;
    real *s = t->scratch;
    line_pack(t);
    line_times_keys(t, s + z->q, s + z->low_t, s + z->kt, s + z->s);
    for (int64_t r = 0; r < t->m; r++) line_hide(t, r, s + z->s + r * z->ld);
}

/* ---- forward ---- */

/* s[n] becomes exp(s - maximum); returns the sum, *top the maximum. Without any key both are 0. */
static real exponentials(real *s, int64_t n, real *top)
{
    const real seen = largest(s, n, s[0]), most = seen == -(real)INFINITY ? 0 : seen;
    for (int64_t j = 0; j < n; j++) s[j] = r_exp_low(s[j] - most);
    *top = most;
    return sum_of(s, n);
}

static inline real *line_lse(const line *t)
{
    const tp_window *g = &t->a->g;
    return (real *)t->a->c->y[1].data + (t->b * g->heads + t->h) * g->cells + t->i;
}

static void line_forward(const line *t)
{
    const line_cut *z = &t->z;
    const bool any = line_any_shown(t);
    real *s = t->scratch, *lse = line_lse(t), sum[LINE_ROWS], top[LINE_ROWS];
    if (any) line_logits(t);
    for (int64_t r = 0; r < t->m && any; r++) {
        real *row = s + z->s + r * z->ld;
        sum[r] = exponentials(row, z->ld, &top[r]);
        const real *keep = line_keep(t, r);
        for (int64_t j = 0; keep && j < z->ld; j++) row[j] *= keep[j];
    }
    if (any) line_sum_keys(t, s + z->s, s + z->low_v, s + z->v, s + z->out);
    for (int64_t r = 0; r < t->m; r++) {
        real *y = line_row(t, &t->a->c->y[0], t->a->g.cells, t->i + r);
        if (any && line_shown(t, t->i + r) && sum[r] != 0) {
            lse[r] = top[r] + r_log(sum[r]);
            scaled_row(y, s + z->out + r * z->pad, t->a->g.dim, 1 / sum[r]);
        } else {
            lse[r] = 0;
            clear_row(y, t->a->g.dim);
        }
    }
}

/* ---- backward ---- */

/* Turns a query's logits p into probabilities after dropout, and their gradients into the logits'.
 * Keys without probability have no gradient, whatever their rows hold. keep is NULL without
 * dropout. */
static void line_gradient_row(int64_t n, real lse, real delta, const real *restrict keep,
                              real *restrict p, real *restrict ds)
{
    for (int64_t j = 0; j < n; j++) p[j] = r_exp_low(p[j] - lse);
    for (int64_t j = 0; keep && j < n; j++) ds[j] *= keep[j];
    for (int64_t j = 0; j < n; j++) ds[j] = p[j] * (ds[j] - delta);
    for (int64_t j = 0; j < n; j++) ds[j] = p[j] == 0 ? 0 : ds[j];
    for (int64_t j = 0; keep && j < n; j++) p[j] *= keep[j];
}

static void line_gradient_rows(const line *t, const real *delta)
{
    const line_cut *z = &t->z;
    const real *lse = line_lse(t);
    for (int64_t r = 0; r < t->m; r++) {
        real *p = t->scratch + z->s + r * z->ld, *ds = t->scratch + z->dp + r * z->ld;
        if (!line_shown(t, t->i + r)) {
            clear_row(p, z->ld);
            clear_row(ds, z->ld);
            continue;
        }
        line_gradient_row(z->ld, lse[r], delta[r], line_keep(t, r), p, ds);
    }
}

static void line_backward(const line *t)
{
    const line_cut *z = &t->z;
    const tp_call *c = t->a->c;
    const int64_t d = t->a->g.dim, cells = t->a->g.cells;
    real *s = t->scratch, delta[LINE_ROWS];
    const bool any = line_any_shown(t);
    if (any) {
        line_logits(t);
        line_gather(t, &c->dy[0], t->i, t->m, 1, s + z->dout);
        for (int64_t r = 0; r < t->m; r++) {
            const real *y = line_row(t, &c->y[0], cells, t->i + r);
            delta[r] = dot_of(s + z->dout + r * z->pad, y, d);
        }
        line_times_keys(t, s + z->dout, s + z->low_vt, s + z->vt, s + z->dp);
        line_gradient_rows(t, delta);
        line_add_gradients(t, s + z->s, s + z->dout, s + z->dlow_v, s + z->dv);
        line_add_gradients(t, s + z->dp, s + z->q, s + z->dlow_k, s + z->dk);
    }
    if (!c->dx[WIN_Q].data) return;
    if (any) line_sum_keys(t, s + z->dp, s + z->low_k, s + z->k, s + z->out);
    for (int64_t r = 0; r < t->m; r++) {
        real *dq = line_row(t, &c->dx[WIN_Q], cells, t->i + r);
        if (any)
            scaled_row(dq, s + z->out + r * z->pad, d, t->a->scale);
        else
            clear_row(dq, d);
    }
}

/* Returns where the gradient of a key goes: dx, the stripe's sums of a halo, or NULL. */
static real *line_target(const line *t, const tp_view *dx, int which, int64_t token)
{
    const int64_t d = t->a->g.dim, halo = t->z.halo;
    real *left = t->partial + 2 * t->a->g.low * d + which * halo * d;
    if (token < 0 || token >= t->a->g.cells || !dx->data) return NULL;
    if (token < t->first) return left + (token - (t->first - halo)) * d;
    if (token >= t->stop) return left + (2 * halo + token - t->stop) * d;
    return line_row(t, dx, t->a->g.cells, token);
}

/* Stores the first n gradients of the packed keys. */
static void line_flush(const line *t, int64_t n)
{
    const line_cut *z = &t->z;
    for (int v = 0; v < 2 && z->slots; v++) {
        real *rows = t->scratch + (v ? z->dv : z->dk);
        for (int64_t j = 0; j < n; j++) {
            real *to = line_target(t, &t->a->c->dx[WIN_K + v], v, t->i - z->halo + j);
            if (to) copy_row(to, rows + j * z->pad, t->a->g.dim);
        }
    }
}

/* Moves up the gradients of keys that the next tile also sees. */
static void line_advance(const line *t)
{
    const line_cut *z = &t->z;
    const int64_t kept = 2 * z->halo * z->pad, rest = (z->keys + TP_WINDOW_SLACK) * z->pad - kept;
    for (int v = 0; v < 2 && z->slots; v++) {
        real *rows = t->scratch + (v ? z->dv : z->dk);
        memmove(rows, rows + z->tile * z->pad, (size_t)kept * sizeof *rows);
        memset(rows + kept, 0, (size_t)rest * sizeof *rows);
    }
}

/* ---- tasks ---- */

/* The stripe of a task, before its first tile. The heads of a stripe are consecutive. */
static line line_stripe(const win *a, const line_cut *z, int64_t task, int thread)
{
    const int64_t heads = a->g.heads, stripe = task / heads, span = z->per * z->tile;
    const int64_t first = stripe % z->stripes * span;
    real *work = a->c->work;
    return (line){ .a = a,
                   .z = *z,
                   .b = stripe / z->stripes,
                   .h = task % heads,
                   .first = first,
                   .stop = tp__least(first + span, a->g.cells),
                   .scratch = work + thread * z->total,
                   .partial =
                       work + a->c->dev->threads * z->total + (a->first_task + task) * z->partial };
}

static void line_forward_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const win *a = ctx;
    const line_cut z = cut_line(a, false);
    for (int64_t task = begin; task < end; task++) {
        line t = line_stripe(a, &z, task, thread);
        line_begin(&t);
        for (t.i = t.first; t.i < t.stop; t.i += z.tile) {
            t.m = tp__least(z.tile, t.stop - t.i);
            line_forward(&t);
        }
    }
}

static void line_backward_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const win *a = ctx;
    const tp_window *g = &a->g;
    const line_cut z = cut_line(a, true);
    const size_t low = (size_t)((z.low + TP_WINDOW_SLACK) * z.pad) * sizeof(real);
    const size_t keys = (size_t)((z.keys + TP_WINDOW_SLACK) * z.pad) * sizeof(real);
    for (int64_t task = begin; task < end; task++) {
        line t = line_stripe(a, &z, task, thread);
        line_begin(&t);
        memset(t.scratch + z.dlow_k, 0, low);
        memset(t.scratch + z.dlow_v, 0, low);
        memset(t.scratch + z.dk, 0, keys);
        memset(t.scratch + z.dv, 0, keys);
        memset(t.partial, 0, (size_t)z.partial * sizeof(real));
        for (t.i = t.first; t.i < t.stop; t.i += z.tile) {
            t.m = tp__least(z.tile, t.stop - t.i);
            line_backward(&t);
            const bool last = t.i + t.m == t.stop;
            line_flush(&t, last ? t.m + 2 * z.halo : t.m);
            if (!last) line_advance(&t);
        }
        for (int64_t i = 0; i < g->low; i++) {
            copy_row(t.partial + i * g->dim, t.scratch + z.dlow_k + i * z.pad, g->dim);
            copy_row(t.partial + (g->low + i) * g->dim, t.scratch + z.dlow_v + i * z.pad, g->dim);
        }
    }
}

/* Adds a stripe's sums to the gradients. */
static void line_add_stripe(const line *t)
{
    const tp_window *g = &t->a->g;
    const int64_t halo = t->z.halo;
    const real *from = t->partial;
    for (int v = 0; v < 2; v++)
        for (int64_t i = 0; i < g->low; i++, from += g->dim) {
            const tp_view *dx = &t->a->c->dx[WIN_LOW_K + v];
            if (!dx->data) continue;
            real *to = line_row(t, dx, g->low, i);
            if (t->first > 0)
                add_row(to, from, g->dim);
            else
                copy_row(to, from, g->dim);
        }
    for (int side = 0; side < 4; side++) /* left k, v, right k, v */
        for (int64_t i = 0; i < halo; i++, from += g->dim) {
            const tp_view *dx = &t->a->c->dx[side % 2 ? WIN_V : WIN_K];
            const int64_t token = side < 2 ? t->first - halo + i : t->stop + i;
            if (dx->data && token >= 0 && token < g->cells)
                add_row(line_row(t, dx, g->cells, token), from, g->dim);
        }
}

/* Sums the stripes of a head of a batch row. */
static void line_sum_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const win *a = ctx;
    const int64_t heads = a->g.heads;
    const line_cut z = cut_line(a, true);
    for (int64_t head = begin; head < end; head++)
        for (int64_t i = 0; i < z.stripes; i++) {
            const int64_t stripe = head / heads * z.stripes + i;
            const line t = line_stripe(a, &z, stripe * heads + head % heads, thread);
            line_add_stripe(&t);
        }
}

static size_t line_work(const win *a, bool backward)
{
    const line_cut z = cut_line(a, backward);
    const int64_t tasks = a->g.batch * a->g.heads * z.stripes;
    return (size_t)(a->c->dev->threads * z.total + tasks * z.partial) * sizeof(real);
}

#endif
