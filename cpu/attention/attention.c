/* attention.c - full attention and relative-position attention: loops over tiles.
 *
 * Forward: a task is a few tiles of 128 queries of one head (one of 64 with positions); it loops
 * over the tiles of keys that they see. Backward: a task is a pair of stripes (attn_tiles.h); it
 * loops over the stripe's tiles of keys and, for each, over the tiles of queries. It recomputes the
 * probabilities and adds five products per tile to dq and to sums of dk and dv. Only inputs, output
 * and log-sum-exp are kept between the two. Tiles that no query sees are skipped. Products take all
 * but a tenth to a fifth of the time. */
#include "cpu/attention/attn_tiles.h"
#include "cpu/kit/packed.h"
#include "cpu/kit/philox_words.h"
#include "cpu/kit/real.h"
#include "tensor/kernel.h"

/* out = result / sum, lse = maximum + log(sum); zeros for a query that sees no key. */
static void store_queries(const attn *a, const tile *t)
{
    const tp_attn *g = &a->g;
    const real *tops = t->row, *sums = tops + a->cut.m;
    real *lse = a->lse + (t->b * g->heads + t->h) * g->queries + t->i;
    for (int64_t r = 0; r < t->m; r++) {
        const real *out = t->out + r * a->at.pad;
        real *y = a->out + query_at(a, t, r);
        const real k = sums[r] == 0 ? 0 : 1 / sums[r];
        for (int64_t x = 0; x < g->dim; x++) y[x] = k * out[x];
        lse[r] = sums[r] == 0 ? 0 : tops[r] + r_log(sums[r]);
    }
}

static void start_softmax(const attn *a, const tile *t)
{
    real *tops = t->row, *sums = tops + a->cut.m;
    memset(t->out, 0, (size_t)(t->m * a->at.pad) * sizeof(real));
    for (int64_t r = 0; r < t->m; r++) {
        tops[r] = -(real)INFINITY;
        sums[r] = 0;
    }
}

/* Sets tile `slot` of the queries from i to end; false if there is none. */
static bool next_queries(const attn *a, tile *t, int64_t i, int64_t end, int64_t slot)
{
    const int64_t from = i + slot * a->cut.m;
    if (from >= end) return false;
    set_queries(a, t, from, end - from < a->cut.m ? end - from : a->cut.m, slot);
    return true;
}

/* Queries from i to end; their tiles share packed keys. */
static void forward_queries(const attn *a, tile *t, int64_t i, int64_t end)
{
    const tp_attn *g = &a->g;
    const int64_t last = tp__end_key(g, end - 1);
    for (int64_t slot = 0; next_queries(a, t, i, end, slot); slot++) {
        begin_queries(a, t);
        start_softmax(a, t);
    }
    for (t->first = tp__first_key(g, i); t->first < last; t->first += a->cut.n) {
        t->count = last - t->first < a->cut.n ? last - t->first : a->cut.n;
        pack_keys(a, t, false);
        for (int64_t slot = 0; next_queries(a, t, i, end, slot); slot++) {
            if (!set_keys(a, t)) continue;
            logits(a, t);
            softmax_rows(a, t);
            add_values(a, t, a->v, t->out);
        }
    }
    for (int64_t slot = 0; next_queries(a, t, i, end, slot); slot++) store_queries(a, t);
}

/* Queries of a forward task. */
static int64_t task_queries(const attn *a)
{
    return a->cut.m * a->cut.group;
}

static int64_t head_tasks(const attn *a)
{
    const int64_t queries = task_queries(a);
    return queries ? (a->g.queries + queries - 1) / queries : 0;
}

static void forward_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const attn *a = ctx;
    const tp_attn *g = &a->g;
    const int64_t tasks = head_tasks(a), queries = task_queries(a);
    pairs_begin(a->pairs);
    for (int64_t x = begin; x < end; x++) {
        const int64_t head = x / tasks, i = (tasks - 1 - x % tasks) * queries; /* longest first */
        tile t = {
            .b = head / g->heads,
            .h = head % g->heads,
            .slope = slope_of(a, head % g->heads),
            .words = { .rng = a->rng, .group = -1 },
            .scratch = a->work + thread * a->at.total,
        };
        forward_queries(a, &t, i, g->queries - i < queries ? g->queries : i + queries);
    }
    pairs_end(a->pairs);
}

/* Copies dO and sets delta = rowsum(dO * O); clears the gradients of the queries. */
static void begin_backward(const attn *a, const tile *t)
{
    const tp_attn *g = &a->g;
    const size_t bytes = (size_t)(t->m * a->at.pad) * sizeof(real);
    real *dout = t->scratch + a->at.dout, *delta = t->row;
    begin_queries(a, t);
    for (int64_t r = 0; r < t->m; r++) {
        const real *dy = a->dout + query_at(a, t, r), *y = a->out + query_at(a, t, r);
        double sum = 0.0; /* an error in delta affects every gradient of the row */
#pragma omp simd reduction(+ : sum)
        for (int64_t x = 0; x < g->dim; x++) sum += (double)dy[x] * (double)y[x];
        if (a->pairs)
            pairs_along(dy, g->dim, 1, dout + r * row_length(a));
        else
            memcpy(dout + r * row_length(a), dy, (size_t)g->dim * sizeof(real));
        delta[r] = (real)sum;
    }
    memset(t->out, 0, bytes);
    if (g->positions) memset(t->scratch + a->at.out_pos, 0, bytes);
}

/* Position gradients of a tile, from ds with zeros in the corners that match no key. */
static void position_gradients(const attn *a, const tile *t)
{
    const tp_attn *g = &a->g;
    const int64_t d = g->dim, pad = a->at.pad, n = t->n + t->m - 1, top = top_distance(a, t);
    real *s = t->scratch + a->at.scores, *pos = t->scratch + a->at.pos;
    real *dpos = t->scratch + a->at.dpos;
    for (int64_t r = 0; r < t->m; r++) {
        real *row = s + r * t->ld;
        memset(row, 0, (size_t)(t->m - 1 - r) * sizeof(real));
        memset(row + t->m - 1 - r + t->n, 0, (size_t)r * sizeof(real));
    }
    tp__gemm(REAL, false, false, t->m, d, n, 1.0, s, t->ld, pos, d, 1.0, t->scratch + a->at.out_pos,
             pad);
    if (!a->dpos) return;
    tp__gemm(REAL, true, false, n, d, t->m, 1.0, s, t->ld, t->scratch + a->at.q_pos, pad, 0.0, dpos,
             d);
    for (int64_t x = 0; x < n && x <= top; x++) {
        real *to = a->dpos + (top - x) * g->width + t->h * d;
        for (int64_t y = 0; y < d; y++) to[y] += dpos[x * d + y];
    }
}

static void backward_tile(const attn *a, tile *t)
{
    real *dout = t->scratch + a->at.dout, *p = t->scratch + a->at.other;
    logits(a, t);
    times_keys(a, t, dout, a->v, t->scratch + a->at.vt, false, p, t->ld);
    gradient_rows(a, t);
    if (a->dq || a->dr) add_values(a, t, a->k, t->out);
    if (a->dv) add_gradients(a, t, p, t->ld, dout, t->scratch + a->at.dv);
    if (a->dk) add_gradients(a, t, t->s, t->ld_s, t->q, t->scratch + a->at.dk);
    if (a->g.positions) position_gradients(a, t);
}

/* Adds the gradients of the queries to dq, and their sums over queries to dr [2][D]. */
static void end_backward(const attn *a, const tile *t, real *dr)
{
    const tp_attn *g = &a->g;
    const int64_t d = g->dim;
    const real scale = a->pairs ? 1 : a->scale;
    for (int part = 0; part < (g->positions ? 2 : 1); part++) {
        const real *from = part ? t->scratch + a->at.out_pos : t->out;
        for (int64_t r = 0; r < t->m; r++, from += a->at.pad) {
            real *dq = a->dq ? a->dq + query_at(a, t, r) : NULL;
            for (int64_t x = 0; dq && x < d; x++) dq[x] += scale * from[x];
            for (int64_t x = 0; dr && x < d; x++) dr[part * d + x] += scale * from[x];
        }
    }
}

/* Queries from i to end against the packed keys. */
static void backward_keys(const attn *a, tile *t, int64_t i, int64_t end, real *dr)
{
    const size_t bytes = (size_t)(t->count * a->at.pad) * sizeof(real);
    memset(t->scratch + a->at.dk, 0, bytes);
    memset(t->scratch + a->at.dv, 0, bytes);
    pack_keys(a, t, true);
    for (; i < end; i += a->cut.m) {
        next_queries(a, t, i, end, 0);
        if (!set_keys(a, t)) continue;
        begin_backward(a, t);
        backward_tile(a, t);
        end_backward(a, t, dr);
    }
    flush_gradients(a, t, t->scratch + a->at.dk, a->dk);
    flush_gradients(a, t, t->scratch + a->at.dv, a->dv);
}

/* Queries of stripe I against keys of stripe J, one head. */
static void backward_pair(const attn *a, tile *t, int64_t I, int64_t J)
{
    const tp_attn *g = &a->g;
    const int64_t stripe = a->cut.stripe, begin = J * stripe - a->cut.pad, i = I * stripe;
    const int64_t stop = i + stripe < g->queries ? i + stripe : g->queries;
    const int64_t first = tp__first_key(g, i), last = tp__end_key(g, stop - 1);
    const int64_t end = begin + stripe < last ? begin + stripe : last;
    real *dr = a->dr ? a->dr + (t->h * a->cut.nq + I) * 2 * g->dim : NULL;
    for (t->first = begin > first ? begin : first; t->first < end; t->first += a->cut.n) {
        t->count = end - t->first < a->cut.n ? end - t->first : a->cut.n;
        backward_keys(a, t, i, stop, dr);
    }
}

/* A task has all query heads of a head of k and v, and in this phase sole use of its gradients. */
static void backward_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const attn *a = ctx;
    const tp_attn *g = &a->g;
    const int64_t kv_heads = g->heads / g->group;
    pairs_begin(a->pairs);
    for (int64_t x = begin; x < end; x++) {
        const int64_t group = x / a->cut.nk, J = x % a->cut.nk;
        const int64_t I = (a->phase - J + a->cut.phases) % a->cut.phases;
        const int64_t first = g->shared ? 0 : group / kv_heads;
        const int64_t last = g->shared ? g->batch : first + 1;
        if (I >= a->cut.nq) continue;
        for (int64_t k = 0; k < g->group; k++) {
            const int64_t h = group % kv_heads * g->group + k;
            tile t = { .h = h,
                       .slope = slope_of(a, h),
                       .words = { .rng = a->rng, .group = -1 },
                       .scratch = a->work + thread * a->at.total };
            for (t.b = first; t.b < last; t.b++) backward_pair(a, &t, I, J);
            if (a->dslopes) a->dslopes[(first * g->heads + h) * a->cut.nk + J] += t.dslope;
        }
    }
    pairs_end(a->pairs);
}

/* The setup shared by both ops. */
static attn prepare(const tp_call *c, bool positions)
{
    const tp_attn_cfg *cfg = c->attr;
    const tp_attn g = tp__attn(c->x, cfg, positions);
    const tp_attn_cut cut = tp__attn_cut(&g, tp_is_backward(c));
    const bool drop = c->train && cfg->dropout > 0;
    const int pairs = positions ? 0 : pairs_suit(c, g.dim);
    attn a = {
        .g = g,
        .cut = cut,
        .at = tp__attn_scratch(&g, &cut, tp_is_backward(c)),
        .rng = c->rng,
        .drop_below = drop ? tp__drop_below(cfg->dropout) : 0,
        .pairs = pairs,
        .step = keys_step(&g, pairs),
        .scale = (real)(cfg->scale != 0 ? cfg->scale
                        : g.dim         ? 1 / sqrt((double)g.dim)
                                        : 1),
        .keep_scale = (real)(1 / (1 - cfg->dropout)),
        .q = c->x[0].data,
        .k = c->x[1].data,
        .v = c->x[2].data,
        .out = c->y[0].data,
        .lse = c->y[1].data,
        .work = c->work,
        .drop_queries = g.queries,
        .drop_keys = g.keys,
    };
    if (positions) {
        a.pos = c->x[3].data;
        a.r_w = c->x[4].data;
        a.r_r = c->x[5].data;
    } else {
        a.mask = c->x[3].data;
        a.alibi = cfg->alibi;
        if (c->x[4].ndim == 1)
            a.slopes = c->x[4].data;
        else
            a.bias = c->x[4].data;
        a.bias_batch = a.bias && !g.shared ? g.heads * g.queries * g.keys : 0;
    }
    return a;
}

/* Elements of a.dr. */
static int64_t elements_of_parts(const attn *a)
{
    return a->g.positions ? a->g.heads * a->cut.nq * 2 * a->g.dim : 0;
}

/* Elements of a.dslopes, counted in reals. */
static int64_t elements_of_slopes(const tp_call *c, const attn *a)
{
    if (a->g.positions || c->x[4].ndim != 1 || !tp_is_backward(c)) return 0;
    return a->g.batch * a->g.heads * a->cut.nk * (int64_t)(sizeof(double) / sizeof(real));
}

/* c->work: the scratch of each thread, then a.dr or a.dslopes. */
static size_t work_of(const tp_call *c, bool positions)
{
    const attn a = prepare(c, positions);
    const int64_t parts = elements_of_parts(&a) + elements_of_slopes(c, &a);
    return (size_t)(c->dev->threads * a.at.total + parts) * sizeof(real);
}

static tp_code run_forward(const tp_call *c, bool positions)
{
    const attn a = prepare(c, positions);
    tp__parallel(c->dev, a.g.batch * a.g.heads * head_tasks(&a), 1, forward_tasks, &a);
    return TP_OK;
}

/* Adds the parts of the gradient of r_w (which = 0) or r_r (1), in the order of stripes. */
static void sum_parts(const attn *a, int which, real *to)
{
    const int64_t d = a->g.dim, nq = a->cut.nq;
    for (int64_t p = 0; to && p < a->g.heads * nq; p++)
        for (int64_t x = 0; x < d; x++) to[p / nq * d + x] += a->dr[(2 * p + which) * d + x];
}

/* Sums the parts of the slopes' gradient in the order of the batch and of stripes. */
static void sum_slopes(const attn *a, real *to)
{
    const int64_t heads = a->g.heads, nk = a->cut.nk;
    for (int64_t h = 0; h < heads; h++) {
        double sum = 0;
        for (int64_t b = 0; b < a->g.batch; b++)
            for (int64_t J = 0; J < nk; J++) sum += a->dslopes[(b * heads + h) * nk + J];
        to[h] = (real)sum;
    }
}

static void zero(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const tp_view *x = ctx;
    (void)thread;
    memset((real *)x->data + begin, 0, (size_t)(end - begin) * sizeof(real));
}

static tp_code run_backward(const tp_call *c, bool positions)
{
    attn a = prepare(c, positions);
    const tp_attn *g = &a.g;
    const int64_t groups = g->heads / g->group * (g->shared ? 1 : g->batch);
    const int64_t parts = elements_of_parts(&a), slopes = elements_of_slopes(c, &a);
    a.dout = c->dy[0].data;
    a.dq = c->dx[0].data;
    a.dk = c->dx[1].data;
    a.dv = c->dx[2].data;
    a.dpos = positions ? c->dx[3].data : NULL;
    a.dbias = positions || slopes ? NULL : c->dx[4].data;
    for (int i = 0; i < c->nx; i++)
        if (c->dx[i].data) tp__parallel(c->dev, c->dx[i].numel, 1 << 18, zero, &c->dx[i]);
    if (parts > 0 && (c->dx[4].data || c->dx[5].data)) {
        a.dr = a.work + c->dev->threads * a.at.total;
        memset(a.dr, 0, (size_t)parts * sizeof(real));
    }
    if (slopes > 0 && c->dx[4].data) {
        a.dslopes = (double *)(a.work + c->dev->threads * a.at.total);
        memset(a.dslopes, 0, (size_t)slopes * sizeof(real));
    }
    for (a.phase = 0; a.phase < a.cut.phases; a.phase++)
        tp__parallel(c->dev, groups * a.cut.nk, 1, backward_tasks, &a);
    if (a.dr) {
        sum_parts(&a, 0, c->dx[4].data);
        sum_parts(&a, 1, c->dx[5].data);
    }
    if (a.dslopes) sum_slopes(&a, c->dx[4].data);
    return TP_OK;
}

/* ---- packed documents: each is a separate call on pieces of the tensors ---- */

typedef struct document {
    tp_call call;
    tp_view x[5], y[2], dy[2], dx[5];
    attn a;
} document;

typedef struct packed {
    const tp_call *c;
    tp_packing q, k;
    int64_t scratch;       /* per thread, in elements */
    int64_t tasks, phases; /* the most per document */
    int64_t phase;
} packed;

/* Tasks of a document, over all heads: groups of query tiles; in backward, stripes of keys. */
static int64_t tasks_of(const attn *a, bool backward)
{
    const tp_attn *g = &a->g;
    if (backward) return g->heads / g->group * a->cut.nk;
    return g->heads * head_tasks(a);
}

static void set_document(const packed *p, tp_rows q, tp_rows k, document *d)
{
    const tp_call *c = p->c;
    const bool backward = tp_is_backward(c);
    const int64_t heads = ((const tp_packed_attn *)c->attr)->cfg.heads;
    d->call = *c;
    for (int i = 0; i < 5; i++) d->x[i] = d->dx[i] = (tp_view){ .ndim = -1 };
    for (int i = 0; i < 3; i++) d->x[i] = tp__rows_of(&c->x[i], i == 0 ? q : k);
    for (int i = 0; backward && i < 3; i++) d->dx[i] = tp__rows_of(&c->dx[i], i == 0 ? q : k);
    d->y[0] = tp__rows_of(&c->y[0], q);
    d->y[1] = (tp_view){ .data = (real *)c->y[1].data + q.first * heads };
    d->call.x = d->x;
    d->call.y = d->y;
    d->a = prepare(&d->call, false);
    d->a.g.batch = p->q.n; /* for the cut: few documents need stripes */
    d->a.cut = tp__attn_cut(&d->a.g, backward);
    d->a.at = tp__attn_scratch(&d->a.g, &d->a.cut, backward);
    if (!backward) return;
    d->a.dout = tp__rows_of(&c->dy[0], q).data;
    d->a.dq = d->dx[0].data;
    d->a.dk = d->dx[1].data;
    d->a.dv = d->dx[2].data;
}

/* Document b, for the tasks of a thread. */
static void begin_document(const packed *p, int64_t b, document *d)
{
    set_document(p, tp__document(&p->q, b), tp__document(&p->k, b), d);
    d->a.at.total = p->scratch;
    d->a.drop_first = b;
    d->a.drop_queries = p->q.longest;
    d->a.drop_keys = p->k.longest;
    d->a.phase = p->phase;
}

static void packed_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const packed *p = ctx;
    const bool backward = tp_is_backward(p->c);
    document d;
    for (int64_t x = begin, at = -1; x < end; x++) {
        const int64_t b = x / p->tasks, task = x % p->tasks;
        if (x == begin || b != at) begin_document(p, at = b, &d);
        if (task >= tasks_of(&d.a, backward) || (backward && p->phase >= d.a.cut.phases)) continue;
        (backward ? backward_tasks : forward_tasks)(&d.a, task, task + 1, thread);
    }
}

/* The scratch depends only on shapes. */
static packed prepare_packed(const tp_call *c)
{
    const tp_packed_attn *a = c->attr;
    document d;
    packed p = { .c = c,
                 .q = tp__packing(&c->x[PACKED_OF_Q], c->x[0].dim[0], a->queries),
                 .k = tp__packing(&c->x[PACKED_OF_K], c->x[1].dim[0], a->keys) };
    set_document(&p, (tp_rows){ 0, p.q.longest }, (tp_rows){ 0, p.k.longest }, &d);
    p.scratch = d.a.at.total;
    return p;
}

static tp_code run_packed(const tp_call *c)
{
    const bool backward = tp_is_backward(c);
    packed p = prepare_packed(c);
    document d;
    tp_code code = tp__check_packing(c, &p.q);
    if (code == TP_OK) code = tp__check_packing(c, &p.k);
    if (code != TP_OK) return code;
    for (int64_t b = 0; b < p.q.n; b++) {
        begin_document(&p, b, &d);
        const int64_t tasks = tasks_of(&d.a, backward), phases = backward ? d.a.cut.phases : 1;
        p.tasks = tasks > p.tasks ? tasks : p.tasks;
        p.phases = phases > p.phases ? phases : p.phases;
    }
    for (int i = 0; backward && i < 3; i++)
        if (c->dx[i].data) tp__parallel(c->dev, c->dx[i].numel, 1 << 18, zero, &c->dx[i]);
    for (; p.phase < p.phases; p.phase++)
        tp__parallel(c->dev, p.q.n * p.tasks, 1, packed_tasks, &p);
    return TP_OK;
}

static size_t packed_attention_work(const tp_call *c)
{
    return (size_t)(c->dev->threads * prepare_packed(c).scratch) * sizeof(real);
}

static tp_code packed_attention_fwd(const tp_call *c)
{
    return run_packed(c);
}

static tp_code packed_attention_bwd(const tp_call *c)
{
    return run_packed(c);
}

static size_t attention_work(const tp_call *c)
{
    return work_of(c, false);
}

static size_t rel_attention_work(const tp_call *c)
{
    return work_of(c, true);
}

static tp_code attention_fwd(const tp_call *c)
{
    return run_forward(c, false);
}

static tp_code attention_bwd(const tp_call *c)
{
    return run_backward(c, false);
}

static tp_code rel_attention_fwd(const tp_call *c)
{
    return run_forward(c, true);
}

static tp_code rel_attention_bwd(const tp_call *c)
{
    return run_backward(c, true);
}

TP_CPU_WORK(attention_work)
TP_CPU_WORK(packed_attention_work)
TP_CPU_WORK(rel_attention_work)
TP_CPU_KERNEL(attention_fwd)
TP_CPU_KERNEL(attention_bwd)
TP_CPU_KERNEL(packed_attention_fwd)
TP_CPU_KERNEL(packed_attention_bwd)
TP_CPU_KERNEL(rel_attention_fwd)
TP_CPU_KERNEL(rel_attention_bwd)
