/* window_attention.c - attention over maps; window.h has the geometry.
 *
 * Forward: a task is a strip of chunks in a row of one head. It packs the keys and values that its
 * queries see (window_tiles.h) and takes up to 64 queries at a time: register kernels compute their
 * logits, which stay in cache for a plain softmax, and the result. Backward: a task is a stripe of
 * rows of chunks of one head; it recomputes the probabilities, adds four more products, and sums
 * the gradients of packed keys before adding them to the map's. Both go down the map strip by
 * strip: two thirds of the rows that a strip packs are in cache from the strip above. window_line.h
 * handles sequences with small windows. */
#include "cpu/attention/window_line.h"
#include "cpu/attention/window_tiles.h"
#include "cpu/kit/packed.h"
#include "cpu/kit/real.h"
#include "cpu/kit/sums.h"
#include "tensor/kernel.h"

/* ---- forward ---- */

/* Stores m queries' results: out / sum; zeros for queries that are hidden or see no key. */
static void store_rows(const win_chunk *t, int64_t i, int64_t m, const real *top, const real *sum)
{
    const win *a = t->a;
    const real *out = t->scratch + a->at.out;
    real *lse = (real *)a->c->y[1].data + (t->b * a->g.heads + t->h) * a->g.cells;
    for (int64_t r = 0; r < m; r++) {
        const int64_t cell = cell_of(t, i + r);
        real *y = slice(t, &a->c->y[0], a->g.cells, cell);
        if (query_shown(t, i + r) && sum[r] != 0) {
            lse[cell] = top[r] + r_log(sum[r]);
            scaled_row(y, out + r * a->at.pad, a->g.dim, 1 / sum[r]);
        } else {
            lse[cell] = 0;
            clear_row(y, a->g.dim);
        }
    }
}

static void forward_piece(const win_chunk *chunk, int64_t i, int64_t m)
{
    const win_chunk piece = piece_of(chunk, i, m), *t = &piece;
    const win *a = t->a;
    real *s = t->scratch + a->at.scores, top[TP_WINDOW_QUERIES], sum[TP_WINDOW_QUERIES];
    if (!piece_shown(t, i, m)) {
        memset(sum, 0, sizeof sum);
        store_rows(t, i, m, sum, sum);
        return;
    }
    logits(t, i, m);
    for (int64_t r = 0; r < m; r++) {
        real *row = s + r * a->at.ld;
        sum[r] = exponentials(row, t->padded, &top[r]);
        const real *keep = keep_row(t, i + r);
        for (int64_t j = 0; keep && j < t->padded; j++) row[j] *= keep[j];
        if (a->pairs) pairs_along(row, t->n, 1, row);
    }
    sum_keys(t, m, s, t->scratch + a->at.v, t->scratch + a->at.out);
    store_rows(t, i, m, top, sum);
}

static void forward_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const win *a = ctx;
    const tp_window *g = &a->g;
    pairs_begin(a->pairs);
    for (int64_t task = begin; task < end; task++) {
        const int64_t cy = task % g->chunks[0], strip = task / g->chunks[0];
        const int64_t head = strip / g->strips, first = strip % g->strips * g->strip;
        win_chunk t = { .a = a,
                        .b = head / g->heads,
                        .h = head % g->heads,
                        .scratch = (real *)a->c->work + thread * a->at.total };
        begin_strip(&t, cy, first);
        for (int64_t cx = first; cx < tp__least(g->chunks[1], first + g->strip); cx++) {
            set_chunk(&t, cy, cx);
            const int64_t queries = t.rows * t.cols;
            for (int64_t i = 0; i < queries; i += a->at.m)
                forward_piece(&t, i, tp__least(a->at.m, queries - i));
        }
    }
    pairs_end(a->pairs);
}

static win prepare(const tp_call *c)
{
    const tp_window_attn_cfg *cfg = c->attr;
    const tp_window g = tp__window(c->x, cfg);
    const double scale = cfg->scale != 0 ? cfg->scale : g.dim ? 1 / sqrt((double)g.dim) : 1;
    return (win){ .c = c,
                  .g = g,
                  .at = tp__window_layout(&g, tp_is_backward(c)),
                  .pairs = pairs_suit(c, g.dim),
                  .scale = (real)scale,
                  .drop = tp__keeper(c, cfg->dropout),
                  .maps = g.batch,
                  .longest = g.cells };
}

static tp_code run_packed(const tp_call *c);

static tp_code window_attention_fwd(const tp_call *c)
{
    const win a = prepare(c);
    if (a.g.packed) return run_packed(c);
    if (c->y[0].numel == 0) return TP_OK;
    const int64_t heads = a.g.batch * a.g.heads;
    if (line_suits(&a))
        tp__parallel(c->dev, heads * cut_line(&a, false).stripes, 1, line_forward_tasks, &a);
    else
        tp__parallel(c->dev, heads * a.g.strips * a.g.chunks[0], 1, forward_tasks, &a);
    return TP_OK;
}

/* ---- backward ---- */

/* From one query's logits s and gradients dp of the probabilities: s becomes the logits' gradient,
 * dp the probabilities after dropout. keep is NULL without dropout. */
static void gradient_row(int64_t n, real lse, real delta, const real *restrict keep,
                         real *restrict s, real *restrict dp)
{
    if (!keep)
        for (int64_t j = 0; j < n; j++) {
            const real p = r_exp_low(s[j] - lse);
            s[j] = p * (dp[j] - delta);
            dp[j] = p;
        }
    else
        for (int64_t j = 0; j < n; j++) {
            const real p = r_exp_low(s[j] - lse);
            s[j] = p * (keep[j] * dp[j] - delta);
            dp[j] = keep[j] * p;
        }
}

/* Adds the gradients s of query i's logits to those of the biases. */
static void bias_gradients(const win_chunk *t, int64_t i, const real *s)
{
    const tp_window *g = &t->a->g;
    const int64_t y = t->y + i / t->cols, x = t->x + i % t->cols;
    real *bias = t->partial + 2 * g->extra * g->dim + g->rows;
    for (int64_t j = 0; j < g->global; j++) bias[j] += s[g->low + j];
    s += t->a->at.map + t->lead;
    for (int r = 0; g->rows && r < t->nrect; r++) {
        const int64_t n = t->rect[r].rows * t->rect[r].cols;
        add_row(t->scratch + t->a->at.dtable + biases(t, r, y, x), s, n);
        s += n;
    }
}

/* Copies dO for a piece's rows, zeros for hidden queries; delta = rowsum(dO * O). */
static void load_dout(const win_chunk *t, int64_t i, int64_t m, real *dout, real *delta)
{
    const win *a = t->a;
    for (int64_t r = 0; r < m; r++) {
        const int64_t cell = cell_of(t, i + r), d = a->g.dim;
        const real *dy = slice(t, &a->c->dy[0], a->g.cells, cell);
        const real *y = slice(t, &a->c->y[0], a->g.cells, cell);
        real *to = dout + r * row_length(a);
        if (!query_shown(t, i + r)) {
            clear_row(to, row_terms(a));
            delta[r] = 0;
            continue;
        }
        put_row(a, dy, 1, to);
        delta[r] = dot_of(dy, y, d);
    }
}

/* Gradients of a piece's rows; copies its dO. */
static void gradient_rows(const win_chunk *t, int64_t i, int64_t m)
{
    const win *a = t->a;
    const int64_t ld = a->at.ld;
    const real *lse = (const real *)a->c->y[1].data + (t->b * a->g.heads + t->h) * a->g.cells;
    real *dout = t->scratch + a->at.dout, delta[TP_WINDOW_QUERIES];
    load_dout(t, i, m, dout, delta);
    times_keys(t, m, dout, t->scratch + a->at.vt, t->scratch + a->at.other);
    for (int64_t r = 0; r < m; r++) {
        real *s = t->scratch + a->at.scores + r * ld, *dp = t->scratch + a->at.other + r * ld;
        if (!query_shown(t, i + r)) {
            clear_row(s, t->padded);
            clear_row(dp, t->padded);
            continue;
        }
        clear_row(dp + t->n, t->padded - t->n);
        clear_row(dp + a->g.extra, a->at.map - a->g.extra + t->lead);
        gradient_row(t->padded, lse[cell_of(t, i + r)], delta[r], keep_row(t, i + r), s, dp);
        bias_gradients(t, i + r, s);
        if (!a->pairs) continue;
        pairs_along(s, t->n + PAIR_ROWS, a->scale, s);
        pairs_along(dp, t->n + PAIR_ROWS, 1, dp);
    }
}

static inline void add_product_t(const win_chunk *t, const ls_product *p)
{
    if (t->a->pairs)
        pairs_multiply(p, LS_ADD | LS_TRANSPOSED | t->a->pairs);
    else
        ls_add_t(p);
}

/* sums[key] += s^T x over the m queries of a piece. Pairs are zipped first, s in place. */
static void add_gradients(const win_chunk *t, int64_t m, real *s, real *x, real *sums)
{
    const win *a = t->a;
    const tp_window_scratch *at = &a->at;
    const int64_t each = a->pairs ? 2 : 1;
    if (a->pairs) {
        pairs_zip_rows(x, m, row_length(a), a->g.dim, zipped(a, x, m), at->pad);
        pairs_zip_rows(s, m, at->ld, t->n + PAIR_ROWS, s, 2 * at->ld);
    }
    ls_product p = { .rows = t->n - at->map,
                     .cols = at->pad,
                     .depth = tp__ceil_div(m, each),
                     .a = s + at->map,
                     .lda = each * at->ld,
                     .b = a->pairs ? zipped(a, x, m) : x,
                     .ldb = at->pad,
                     .c = sums + t->key * at->pad,
                     .ldc = at->pad };
    add_product_t(t, &p);
    p.rows = a->g.extra;
    p.a = s;
    p.c = sums;
    if (p.rows > 0) add_product_t(t, &p);
}

/* dq of a piece's m queries, from the gradients s of their logits. */
static void query_gradients(const win_chunk *t, int64_t i, int64_t m, const real *s)
{
    const win *a = t->a;
    real *dq = t->scratch + a->at.out;
    sum_keys(t, m, s, t->scratch + a->at.k, dq);
    for (int64_t r = 0; r < m; r++) {
        const int64_t token = a->g.global + cell_of(t, i + r);
        real *to = slice(t, &a->c->dx[WIN_Q], a->g.tokens, token);
        scaled_row(to, dq + r * a->at.pad, a->g.dim, a->pairs ? 1 : a->scale);
    }
}

static void backward_piece(const win_chunk *chunk, int64_t i, int64_t m)
{
    const win_chunk piece = piece_of(chunk, i, m), *t = &piece;
    const win *a = t->a;
    real *s = t->scratch + a->at.scores;
    if (!piece_shown(t, i, m)) return;
    logits(t, i, m);
    gradient_rows(t, i, m);
    if (a->c->dx[WIN_Q].data) query_gradients(t, i, m, s);
    add_gradients(t, m, t->scratch + a->at.other, t->scratch + a->at.dout, t->scratch + a->at.dv);
    add_gradients(t, m, s, t->scratch + a->at.q, t->scratch + a->at.dk);
}

/* Adds the packed cells' gradients to the map's. */
static void scatter(const win_chunk *t, const real *from, const tp_view *dx)
{
    const tp_window *g = &t->a->g;
    const int64_t pad = t->a->at.pad;
    if (!dx->data) return;
    from += t->a->at.front * pad;
    for (int r = 0; r < t->nrect; r++)
        for (int64_t j = 0; j < t->rect[r].cols; j++)
            for (int64_t i = 0; i < t->rect[r].rows; i++, from += pad) {
                const int64_t token = source(g, &t->rect[r], i, j);
                if (token >= 0) add_row(slice(t, dx, g->tokens, token), from, g->dim);
            }
}

/* Processes the strip from cx on, and the sums over its rectangles. */
static void backward_strip(win_chunk *t, int64_t cy, int64_t cx)
{
    const tp_window *g = &t->a->g;
    const tp_window_scratch *at = &t->a->at;
    const size_t bytes = (size_t)((at->packed - at->front) * at->pad) * sizeof(real);
    const int64_t stop = tp__least(g->chunks[1], cx + g->strip);
    if (!begin_strip(t, cy, cx)) return;
    const win_chunk strip = *t;
    memset(t->scratch + at->dk + at->front * at->pad, 0, bytes);
    memset(t->scratch + at->dv + at->front * at->pad, 0, bytes);
    memset(t->scratch + at->dtable, 0, (size_t)at->tables * sizeof(real));
    for (; cx < stop; cx++) {
        set_chunk(t, cy, cx);
        const int64_t queries = t->rows * t->cols;
        for (int64_t i = 0; i < queries; i += at->m)
            backward_piece(t, i, tp__least(at->m, queries - i));
    }
    scatter(&strip, t->scratch + at->dk, &t->a->c->dx[WIN_K]);
    scatter(&strip, t->scratch + at->dv, &t->a->c->dx[WIN_V]);
    for (int r = 0; g->rows && r < t->nrect; r++) fold_tables(t, &t->run[r]);
}

/* Stores a task's sums for the extra keys, to be added over tasks. */
static void store_extra(const win_chunk *t, const real *from, real *to)
{
    const tp_window *g = &t->a->g;
    for (int64_t i = 0; i < g->extra; i++)
        copy_row(to + i * g->dim, from + i * t->a->at.pad, g->dim);
}

/* The sums of stripe `task` (of all heads). */
static real *partial(const win *a, int64_t task)
{
    return (real *)a->c->work + a->c->dev->threads * a->at.total +
           (a->first_task + task) * a->at.partial;
}

static void backward_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const win *a = ctx;
    const tp_window *g = &a->g;
    pairs_begin(a->pairs);
    for (int64_t task = begin; task < end; task++) {
        const int64_t head = task / g->stripes, stripe = task % g->stripes;
        if (tp__window_phase(g, stripe) != a->phase) continue;
        win_chunk t = { .a = a,
                        .b = head / g->heads,
                        .h = head % g->heads,
                        .scratch = (real *)a->c->work + thread * a->at.total,
                        .partial = partial(a, task) };
        const tp_window_scratch *at = &a->at;
        real *dk = t.scratch + at->dk, *dv = t.scratch + at->dv;
        memset(t.partial, 0, (size_t)at->partial * sizeof(real));
        memset(dk, 0, (size_t)(at->front * at->pad) * sizeof(real));
        memset(dv, 0, (size_t)(at->front * at->pad) * sizeof(real));
        const int64_t stop = tp__window_stripe(g, stripe + 1);
        for (int64_t cx = 0; cx < g->chunks[1]; cx += g->strip)
            for (int64_t cy = tp__window_stripe(g, stripe); cy < stop; cy++)
                backward_strip(&t, cy, cx);
        store_extra(&t, dk, t.partial);
        store_extra(&t, dv, t.partial + g->extra * g->dim);
    }
    pairs_end(a->pairs);
}

/* Adds the stripes' sums of low and global rows of one head of one batch row. */
static void sum_rows(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const win *a = ctx;
    const tp_window *g = &a->g;
    (void)thread;
    for (int64_t i = begin * g->stripes; i < end * g->stripes; i++) {
        const win_chunk t = { .a = a,
                              .b = i / g->stripes / g->heads,
                              .h = i / g->stripes % g->heads };
        const real *from = partial(a, i);
        for (int v = 0; v < 2; v++)
            for (int64_t j = 0; j < g->extra; j++, from += g->dim) {
                const tp_view *dx = &a->c->dx[j < g->low ? WIN_LOW_K + v : WIN_K + v];
                if (!dx->data) continue;
                real *to =
                    j < g->low ? slice(&t, dx, g->low, j) : slice(&t, dx, g->tokens, j - g->low);
                for (int64_t x = 0; x < g->dim; x++) to[x] += from[x];
            }
    }
}

/* Adds one head's bias sums over batch and stripes. */
static void sum_biases(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const win *a = ctx;
    const tp_window *g = &a->g;
    real *table = a->c->dx[WIN_TABLE].data, *bias = a->c->dx[WIN_GLOBAL_BIAS].data;
    (void)thread;
    for (int64_t h = begin; h < end; h++)
        for (int64_t i = 0; i < g->batch * g->stripes; i++) {
            const int64_t task = (i / g->stripes * g->heads + h) * g->stripes + i % g->stripes;
            const real *from = partial(a, task) + 2 * g->extra * g->dim;
            for (int64_t j = 0; table && j < g->rows; j++) table[j * g->heads + h] += from[j];
            from += g->rows;
            for (int64_t j = 0; bias && j < g->global; j++) bias[h * g->global + j] += from[j];
        }
}

static void zero(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const tp_view *x = ctx;
    (void)thread;
    memset((real *)x->data + begin, 0, (size_t)(end - begin) * sizeof(real));
}

static void zero_gradient(const tp_call *c, int i)
{
    if (c->dx[i].data) tp__parallel(c->dev, c->dx[i].numel, 1 << 18, zero, &c->dx[i]);
}

static tp_code line_bwd(const win *a)
{
    const tp_call *c = a->c;
    const int64_t heads = a->g.batch * a->g.heads;
    for (int i = WIN_K; i <= WIN_V && !a->g.local; i++) zero_gradient(c, i);
    tp__parallel(c->dev, heads * cut_line(a, true).stripes, 1, line_backward_tasks, a);
    tp__parallel(c->dev, heads, 1, line_sum_tasks, a);
    return TP_OK;
}

static tp_code window_attention_bwd(const tp_call *c)
{
    win a = prepare(c);
    const tp_window *g = &a.g;
    if (g->packed) return run_packed(c);
    if (c->y[0].numel > 0 && line_suits(&a)) return line_bwd(&a);
    for (int i = 0; i < c->nx; i++) zero_gradient(c, i);
    if (c->y[0].numel == 0) return TP_OK;
    for (a.phase = 0; a.phase < g->phases; a.phase++)
        tp__parallel(c->dev, g->batch * g->heads * g->stripes, 1, backward_tasks, &a);
    tp__parallel(c->dev, g->batch * g->heads, 1, sum_rows, &a);
    tp__parallel(c->dev, g->heads, 1, sum_biases, &a);
    return TP_OK;
}

/* ---- packed documents: each is a separate call on pieces of the tensors ---- */

typedef struct document {
    tp_call call;
    tp_window_attn_cfg cfg;
    tp_view x[WIN_NX], y[2], dy[2], dx[WIN_NX];
    win a;
} document;

typedef struct packed {
    const tp_call *c;
    tp_packing rows;
    bool line;                /* window_line.h */
    int64_t scratch, partial; /* per thread and per task, in elements */
    int64_t tasks, phases;    /* most of any document: strips; in backward, stripes of its heads */
    int64_t phase;            /* when past the end, sums of partial sums */
} packed;

/* Rows of a mask as those of one batch row. */
static tp_view mask_rows(const tp_view *x, tp_rows at)
{
    tp_view y = *x;
    if (x->data) y.data = (uint8_t *)x->data + at.first;
    y.dim[0] = y.numel = at.count;
    return y;
}

/* Part b of a tensor that has one per document. */
static tp_view part_of(const tp_view *x, int64_t b, int64_t n)
{
    tp_view y = *x;
    if (tp_absent(x)) return y;
    y.dim[0] = 1;
    y.numel = n > 0 ? x->numel / n : 0;
    if (x->data) y.data = (char *)x->data + (size_t)(b * y.numel) * tp_dtype_size(x->dtype);
    return y;
}

static void set_document(const packed *p, int64_t b, tp_rows at, document *d)
{
    const tp_call *c = p->c;
    const bool backward = tp_is_backward(c);
    d->call = *c;
    d->cfg = *(const tp_window_attn_cfg *)c->attr;
    d->cfg.width = at.count;
    for (int i = 0; i < WIN_NX; i++) {
        const bool rows = i <= WIN_V;
        d->x[i] = rows ? tp__rows_of(&c->x[i], at) : part_of(&c->x[i], b, p->rows.n);
        if (backward)
            d->dx[i] = rows ? tp__rows_of(&c->dx[i], at) : part_of(&c->dx[i], b, p->rows.n);
    }
    if (!tp_absent(&c->x[WIN_MASK])) d->x[WIN_MASK] = mask_rows(&c->x[WIN_MASK], at);
    d->x[WIN_OFFSET] = (tp_view){ .ndim = -1 };
    d->y[0] = tp__rows_of(&c->y[0], at);
    d->y[1] = (tp_view){ .data = (real *)c->y[1].data + at.first * d->cfg.heads };
    if (backward) d->dy[0] = tp__rows_of(&c->dy[0], at);
    d->call.attr = &d->cfg;
    d->call.x = d->x;
    d->call.y = d->y;
    d->call.dy = d->dy;
    d->call.dx = backward ? d->dx : NULL;
    d->a = prepare(&d->call);
    d->a.at.total = p->scratch;
    d->a.document = b;
    d->a.maps = p->rows.n;
    d->a.longest = p->rows.longest;
    d->a.first_task = b * p->tasks;
    d->a.phase = p->phase;
}

/* Strips of all heads; in backward, stripes. */
static int64_t tasks_of(const packed *p, const win *a)
{
    const tp_window *g = &a->g;
    const bool backward = tp_is_backward(a->c);
    if (p->line) return g->heads * cut_line(a, backward).stripes;
    return g->heads * (backward ? g->stripes : g->strips * g->chunks[0]);
}

/* Depends only on shapes. The longest document has the most tasks. */
static packed prepare_packed(const tp_call *c)
{
    const tp_window_attn_cfg *cfg = c->attr;
    document longest;
    packed p = { .c = c, .rows = tp__packing(&c->x[WIN_OFFSET], c->x[WIN_Q].dim[0], cfg->width) };
    set_document(&p, 0, (tp_rows){ 0, cfg->width }, &longest);
    const win *a = &longest.a;
    const line_cut z = cut_line(a, tp_is_backward(c));
    const tp_window_scratch at = tp__window_layout(&a->g, tp_is_backward(c));
    p.line = line_suits(a);
    p.scratch = p.line ? z.total : at.total;
    p.partial = p.line ? z.partial : at.partial;
    p.tasks = tasks_of(&p, a);
    p.phases = tp_is_backward(c) && !p.line ? a->g.phases : 1;
    return p;
}

static size_t packed_work(const tp_call *c)
{
    const packed p = prepare_packed(c);
    return (size_t)(c->dev->threads * p.scratch + p.rows.n * p.tasks * p.partial) * sizeof(real);
}

static void packed_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const packed *p = ctx;
    const bool backward = tp_is_backward(p->c), sums = p->phase == p->phases;
    const int64_t tasks = sums ? ((const tp_window_attn_cfg *)p->c->attr)->heads : p->tasks;
    document d;
    for (int64_t i = begin; i < end; i++) {
        const int64_t b = i / tasks, task = i % tasks;
        if (i == begin || task == 0) set_document(p, b, tp__document(&p->rows, b), &d);
        if (sums)
            (p->line ? line_sum_tasks : sum_rows)(&d.a, task, task + 1, thread);
        else if (task >= tasks_of(p, &d.a))
            continue;
        else if (p->line)
            (backward ? line_backward_tasks : line_forward_tasks)(&d.a, task, task + 1, thread);
        else
            (backward ? backward_tasks : forward_tasks)(&d.a, task, task + 1, thread);
    }
}

/* Number of inputs whose gradients tasks write whole; others are added to zeros. */
static int whole_gradients(const packed *p)
{
    const tp_window_attn_cfg *cfg = p->c->attr;
    if (!p->line) return 0;
    return cfg->window[0] > 0 ? WIN_LOW_K : WIN_K;
}

static tp_code run_packed(const tp_call *c)
{
    packed p = prepare_packed(c);
    const tp_code code = tp__check_packing(c, &p.rows);
    if (code != TP_OK) return code;
    for (int i = whole_gradients(&p); i < c->nx && tp_is_backward(c); i++) zero_gradient(c, i);
    for (; p.phase < p.phases; p.phase++)
        tp__parallel(c->dev, p.rows.n * p.tasks, 1, packed_tasks, &p);
    const int64_t heads = ((const tp_window_attn_cfg *)c->attr)->heads;
    if (tp_is_backward(c)) tp__parallel(c->dev, p.rows.n * heads, 1, packed_tasks, &p);
    return TP_OK;
}

/* c->work: the scratch of each thread, then the partial sums of the stripes of all heads. */
static size_t window_attention_work(const tp_call *c)
{
    if (!tp_absent(&c->x[WIN_OFFSET])) return packed_work(c);
    const win a = prepare(c);
    const int64_t tasks = a.g.batch * a.g.heads * a.g.stripes;
    if (line_suits(&a)) return line_work(&a, tp_is_backward(c));
    return (size_t)(c->dev->threads * a.at.total + tasks * a.at.partial) * sizeof(real);
}

TP_CPU_WORK(window_attention_work)
TP_CPU_KERNEL(window_attention_fwd)
TP_CPU_KERNEL(window_attention_bwd)
