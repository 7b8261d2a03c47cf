/* lsh_attention.c - LSH attention: hashing, a stable counting sort, and products of gathered
 * chunks.
 *
 * A round has each token once, so the chunks of a round write different rows of the result. Rounds
 * are joined in sequence by each token's maximum and sum. In backward a chunk adds to the gradients
 * of its own and the previous chunk's tokens: even chunks, odd chunks and the first, which sees a
 * chunk of another round, are three phases of a round without races or partial sums. A task gathers
 * a chunk's keys once and processes its queries by 64; nothing else grows with the chunk. */
#include "tensor/geometry/lsh.h"

#include "cpu/kit/philox_words.h"
#include "cpu/kit/real.h"
#include "cpu/kit/sums.h"
#include "cpu/kit/take.h"
#include "tensor/kernel.h"

enum { ROWS = 64 };

/* Offsets in a thread's scratch, in elements. m, n: queries of a tile, keys of a chunk. */
typedef struct pieces {
    int64_t ld;
    int64_t k, v, norm, place; /* [n][D] normalised keys, values; [n] key factors; [n] tokens */
    int64_t q, s, out;         /* [m][D], [m][ld], [m][D] */
    int64_t dy, p, dk, dv;     /* backward: [m][D], [m][ld], [n][D], [n][D] */
    int64_t keep;              /* [n]: dropout factors of a row, if any */
    int64_t z, count;          /* hashing: [m][rounds columns]; [buckets + 2] */
    int64_t total;
} pieces;

typedef struct lsh {
    tp_lsh g;
    pieces at;
    const real *x, *v, *dy;
    const uint8_t *mask;
    real *y, *stats, *dx, *dv;
    int32_t *order, *bucket; /* [B,H,R*N]; bucket [B,H,R,N] is in c->work */
    real *rotations, *work;
    tp_keeper drop;
    int64_t m, round, first, step, tasks; /* chunks first, first + step, ... of the round */
} lsh;

/* The entries of a chunk of one head. */
typedef struct chunk {
    int64_t b, h;
    const int32_t *order; /* of the head */
    int64_t own;          /* its first own entry */
    real *scratch;
} chunk;

/* Integers take the room of as many elements, which are no smaller. */
static pieces pieces_of(const tp_lsh *g, int64_t m, bool backward, bool dropped)
{
    const int64_t n = g->keys, D = g->dim;
    pieces w = { .ld = (n + 15) / 16 * 16 };
    if (w.ld / 16 % 2 == 0) w.ld += 16;
    w.k = tp__take(&w.total, n * D);
    w.v = tp__take(&w.total, n * D);
    w.norm = tp__take(&w.total, n);
    w.place = tp__take(&w.total, n);
    w.q = tp__take(&w.total, m * D);
    w.s = tp__take(&w.total, m * w.ld);
    w.out = tp__take(&w.total, m * D);
    w.keep = tp__take(&w.total, dropped ? n : 0);
    if (backward) {
        w.dy = tp__take(&w.total, m * D);
        w.p = tp__take(&w.total, m * w.ld);
        w.dk = tp__take(&w.total, n * D);
        w.dv = tp__take(&w.total, n * D);
    } else {
        w.z = tp__take(&w.total, m * g->rounds * g->columns);
        w.count = tp__take(&w.total, g->buckets + 2);
    }
    return w;
}

static int64_t rotations_of(const tp_lsh *g)
{
    return g->heads * g->dim * g->rounds * g->columns;
}

/* Whole groups of random words, for simple stores. */
static int64_t room_for_rotations(const tp_call *c, const tp_lsh *g)
{
    if (tp_is_backward(c) || !tp_absent(&c->x[LSH_ROTATIONS])) return 0;
    return (rotations_of(g) + TP_PHILOX_WORDS - 1) / TP_PHILOX_WORDS * TP_PHILOX_WORDS;
}

/* c->work: rotations if drawn, buckets if tokens are hashed, then the scratch of each thread. */
static int64_t room_for_buckets(const tp_call *c, const tp_lsh *g)
{
    if (tp_is_backward(c) || g->chunks < 2) return 0;
    return (g->batch * g->heads * g->entries + 15) / 16 * 16;
}

static lsh prepare(const tp_call *c)
{
    const tp_lsh_attn_cfg *cfg = c->attr;
    const tp_lsh g = tp__lsh(c->x, cfg);
    const bool backward = tp_is_backward(c);
    const int64_t m = g.chunk < ROWS ? g.chunk : ROWS;
    real *work = c->work;
    lsh a = { .g = g,
              .at = pieces_of(&g, g.chunks > 1 && !backward ? ROWS : m, backward, cfg->dropout > 0),
              .x = c->x[LSH_QK].data,
              .v = c->x[LSH_V].data,
              .mask = c->x[LSH_MASK].data,
              .y = c->y[LSH_Y].data,
              .stats = c->y[LSH_STATS].data,
              .order = c->y[LSH_ORDER].data,
              .drop = tp__keeper(c, cfg->dropout),
              .m = m };
    if (!work) return a;
    a.rotations = room_for_rotations(c, &g) ? work : c->x[LSH_ROTATIONS].data;
    work += room_for_rotations(c, &g);
    a.bucket = (int32_t *)work;
    a.work = work + room_for_buckets(c, &g);
    return a;
}

/* ---- the order of the entries ---- */

static void draw_range(const tp_call *c, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        tp__normal_group(c->rng, i, (real *)c->work + i * TP_PHILOX_WORDS);
}

/* The first index of the largest of z[0..n) and -z[0..n). */
static int64_t place_of_largest(const real *z, int64_t n)
{
    real size = 0;
    for (int64_t i = 0; i < n; i++) size = r_abs(z[i]) > size ? r_abs(z[i]) : size;
    for (int64_t i = 0; i < n; i++)
        if (z[i] == size) return i;
    for (int64_t i = 0; i < n; i++)
        if (z[i] == -size) return n + i;
    return 0; /* NaN */
}

/* Hashes 64 tokens of a head in all rounds. */
static void hash_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const lsh *a = ctx;
    const tp_lsh *g = &a->g;
    const int64_t tiles = (g->tokens + ROWS - 1) / ROWS, half = g->factor[0] / 2;
    const int64_t columns = g->rounds * g->columns;
    real *z = a->work + thread * a->at.total + a->at.z;
    for (int64_t t = begin; t < end; t++) {
        const int64_t head = t / tiles, i = t % tiles * ROWS, b = head / g->heads;
        const int64_t h = head % g->heads, m = g->tokens - i < ROWS ? g->tokens - i : ROWS;
        tp__gemm(REAL, false, false, m, columns, g->dim, 1.0,
                 a->x + (b * g->tokens + i) * g->width + h * g->dim, g->width,
                 a->rotations + h * g->dim * columns, columns, 0.0, z, columns);
        for (int64_t r = 0; r < g->rounds; r++)
            for (int64_t k = 0; k < m; k++) {
                const real *of = z + k * columns + r * g->columns;
                int64_t bucket = place_of_largest(of, half);
                if (g->factor[1])
                    bucket += g->factor[0] * place_of_largest(of + half, g->columns - half);
                if (a->mask && !a->mask[b * g->tokens + i + k]) bucket = g->buckets;
                a->bucket[head * g->entries + r * g->tokens + i + k] = (int32_t)bucket;
            }
    }
}

/* Sorts one round of a head by counting. */
static void sort_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const lsh *a = ctx;
    const tp_lsh *g = &a->g;
    int32_t *count = (int32_t *)(a->work + thread * a->at.total + a->at.count);
    for (int64_t t = begin; t < end; t++) {
        const int32_t *bucket = a->bucket + t * g->tokens;
        int32_t *order = a->order + t * g->tokens;
        memset(count, 0, (size_t)(g->buckets + 2) * sizeof *count);
        for (int64_t i = 0; i < g->tokens; i++) count[bucket[i] + 1]++;
        for (int64_t k = 0; k < g->buckets; k++) count[k + 1] += count[k];
        for (int64_t i = 0; i < g->tokens; i++) order[count[bucket[i]]++] = (int32_t)i;
    }
}

static void keep_order(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t n = c->x[LSH_QK].dim[1];
    int32_t *order = c->y[LSH_ORDER].data;
    for (int64_t i = begin; i < end; i++) order[i] = (int32_t)(i % n);
}

static void find_order(const tp_call *c, const lsh *a)
{
    const tp_lsh *g = &a->g;
    const int64_t heads = g->batch * g->heads, tiles = (g->tokens + ROWS - 1) / ROWS;
    if (g->chunks < 2) {
        tp__for(c, heads * g->tokens, 1 << 14, keep_order);
        return;
    }
    if (room_for_rotations(c, g))
        tp__for(c, room_for_rotations(c, g) / TP_PHILOX_WORDS, 32, draw_range);
    tp__parallel(c->dev, heads * tiles, 1, hash_tasks, a);
    tp__parallel(c->dev, heads * g->rounds, 1, sort_tasks, a);
}

/* ---- chunks ---- */

/* The head's offset for a token in [B,N,H*D]. */
static inline int64_t row_at(const lsh *a, const chunk *k, int64_t token)
{
    return (k->b * a->g.tokens + token) * a->g.width + k->h * a->g.dim;
}

static inline int64_t token_of(const chunk *k, int64_t row)
{
    return k->order[k->own + row];
}

/* Gathers a chunk's normalised keys, their values, tokens and factors. */
static void gather_keys(const lsh *a, const chunk *k, int64_t first)
{
    const tp_lsh *g = &a->g;
    real *key = k->scratch + a->at.k, *value = k->scratch + a->at.v;
    real *norm = k->scratch + a->at.norm;
    int32_t *place = (int32_t *)(k->scratch + a->at.place);
    for (int64_t j = 0; j < g->keys; j++, key += g->dim, value += g->dim) {
        place[j] = k->order[(first + j) % g->entries];
        const int64_t at = row_at(a, k, place[j]);
        const real *x = a->x + at;
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < g->dim; d++) sum += x[d] * x[d];
        norm[j] = 1 / (r_sqrt(sum / (real)g->dim + (real)TP_LSH_EPS) * r_sqrt((real)g->dim));
        /* 0 would make a key that all queries like equally. */
        if (sum == (real)INFINITY) norm[j] = (real)NAN;
        for (int64_t d = 0; d < g->dim; d++) key[d] = norm[j] * x[d];
        memcpy(value, a->v + at, (size_t)g->dim * sizeof *value);
    }
}

/* to [m][D] = rows of the tokens of queries row .. row + m. */
static void gather(const lsh *a, const chunk *k, const real *from, int64_t row, int64_t m, real *to)
{
    for (int64_t i = 0; i < m; i++, to += a->g.dim)
        memcpy(to, from + row_at(a, k, token_of(k, row + i)), (size_t)a->g.dim * sizeof *to);
}

/* Logits of queries row .. row + m. */
static void logits(const lsh *a, const chunk *k, int64_t row, int64_t m)
{
    const tp_lsh *g = &a->g;
    real *q = k->scratch + a->at.q, *s = k->scratch + a->at.s;
    const int32_t *place = (const int32_t *)(k->scratch + a->at.place);
    const uint8_t *mask = a->mask ? a->mask + k->b * g->tokens : NULL;
    gather(a, k, a->x, row, m, q);
    tp__gemm(REAL, false, true, m, g->keys, g->dim, 1.0, q, g->dim, k->scratch + a->at.k, g->dim,
             0.0, s, a->at.ld);
    for (int64_t j = 0; mask && j < g->keys; j++)
        for (int64_t i = 0; !mask[place[j]] && i < m; i++)
            s[i * a->at.ld + j] = (real)TP_LSH_PADDED;
    for (int64_t i = 0; i < m; i++) {
        const int32_t own = (int32_t)token_of(k, row + i);
        real *to = s + i * a->at.ld;
        for (int64_t j = 0; j < g->keys; j++) to[j] = place[j] == own ? (real)TP_LSH_OWN : to[j];
    }
}

/* Turns a row of logits into e^(s - maximum); returns the sum. */
static real exponentials(real *s, int64_t n, real *maximum)
{
    const real top = largest(s, n, s[0]);
    real sum = 0;
    for (int64_t j = 0; j < n; j++) s[j] = r_exp(s[j] - top);
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) sum += s[j];
    *maximum = top;
    return sum;
}

/* Joins a query's result of this round, out / sum, with that of earlier rounds. stats: the maximum
 * and the logarithm of the sum. */
static void join(const lsh *a, const real *out, real top, real sum, real *y, real *stats)
{
    real before = 0, scale = 1, total = sum, high = top;
    if (a->round > 0) {
        high = stats[0] > top ? stats[0] : top;
        before = r_exp(stats[0] - high + stats[1]);
        scale = r_exp(top - high);
        total = before + scale * sum;
    }
    before /= total;
    scale /= total;
    if (a->round > 0)
        for (int64_t d = 0; d < a->g.dim; d++) y[d] = before * y[d] + scale * out[d];
    else
        for (int64_t d = 0; d < a->g.dim; d++) y[d] = scale * out[d];
    stats[0] = high;
    stats[1] = r_log(total);
}

/* The dropout factors of a query's keys; NULL without dropout. */
static const real *keep_row(const lsh *a, const chunk *k, int64_t row)
{
    const int64_t e = tp__lsh_row(&a->g, k->b * a->g.heads + k->h, k->own + row);
    real *keep = k->scratch + a->at.keep;
    if (a->drop.below == 0) return NULL;
    tp__draw_keep(&a->drop, e, a->g.keys, 1, keep);
    return keep;
}

static void drop_row(int64_t n, const real *restrict keep, real *restrict x)
{
    for (int64_t j = 0; keep && j < n; j++) x[j] *= keep[j];
}

static void forward_chunk(const lsh *a, const chunk *k)
{
    const tp_lsh *g = &a->g;
    real *s = k->scratch + a->at.s, *out = k->scratch + a->at.out;
    real top[ROWS], sum[ROWS];
    for (int64_t row = 0; row < g->chunk; row += a->m) {
        const int64_t m = g->chunk - row < a->m ? g->chunk - row : a->m;
        logits(a, k, row, m);
        for (int64_t i = 0; i < m; i++) {
            sum[i] = exponentials(s + i * a->at.ld, g->keys, &top[i]);
            drop_row(g->keys, keep_row(a, k, row + i), s + i * a->at.ld);
        }
        tp__gemm(REAL, false, false, m, g->dim, g->keys, 1.0, s, a->at.ld, k->scratch + a->at.v,
                 g->dim, 0.0, out, g->dim);
        for (int64_t i = 0; i < m; i++) {
            const int64_t token = token_of(k, row + i);
            join(a, out + i * g->dim, top[i], sum[i], a->y + row_at(a, k, token),
                 a->stats + 2 * ((k->b * g->heads + k->h) * g->tokens + token));
        }
    }
}

/* s = probabilities after dropout, p = gradients of the logits, of queries row .. row + m. */
static void gradients_of_logits(const lsh *a, const chunk *k, int64_t row, int64_t m)
{
    const tp_lsh *g = &a->g;
    real *s = k->scratch + a->at.s, *p = k->scratch + a->at.p, *dy = k->scratch + a->at.dy;
    logits(a, k, row, m);
    gather(a, k, a->dy, row, m, dy);
    tp__gemm(REAL, false, true, m, g->keys, g->dim, 1.0, dy, g->dim, k->scratch + a->at.v, g->dim,
             0.0, p, a->at.ld);
    for (int64_t i = 0; i < m; i++, s += a->at.ld, p += a->at.ld, dy += g->dim) {
        const int64_t token = token_of(k, row + i);
        const real *y = a->y + row_at(a, k, token);
        const real *stats = a->stats + 2 * ((k->b * g->heads + k->h) * g->tokens + token);
        const real top = stats[0], log_sum = stats[1], *keep = keep_row(a, k, row + i);
        real delta = 0;
#pragma omp simd reduction(+ : delta)
        for (int64_t d = 0; d < g->dim; d++) delta += dy[d] * y[d];
        drop_row(g->keys, keep, p);
        for (int64_t j = 0; j < g->keys; j++) {
            const real each = r_exp(s[j] - top - log_sum);
            const bool replaced = s[j] == (real)TP_LSH_PADDED || s[j] == (real)TP_LSH_OWN;
            p[j] = replaced ? RC(0.0) : each * (p[j] - delta);
            s[j] = each;
        }
        drop_row(g->keys, keep, s);
    }
}

/* Adds the gradients of a chunk's keys to its tokens'; dk is that of the normalised keys. */
static void scatter_keys(const lsh *a, const chunk *k)
{
    const tp_lsh *g = &a->g;
    const real *key = k->scratch + a->at.k, *norm = k->scratch + a->at.norm;
    const real *dk = k->scratch + a->at.dk, *dv = k->scratch + a->at.dv;
    const int32_t *place = (const int32_t *)(k->scratch + a->at.place);
    for (int64_t j = 0; j < g->keys; j++, key += g->dim, dk += g->dim, dv += g->dim) {
        const int64_t at = row_at(a, k, place[j]);
        if (a->dv)
            for (int64_t d = 0; d < g->dim; d++) a->dv[at + d] += dv[d];
        if (!a->dx) continue;
        real dot = 0; /* of dk and key: x / sqrt(mean x^2 + eps) is key sqrt(D) */
#pragma omp simd reduction(+ : dot)
        for (int64_t d = 0; d < g->dim; d++) dot += dk[d] * key[d];
        for (int64_t d = 0; d < g->dim; d++) a->dx[at + d] += norm[j] * (dk[d] - dot * key[d]);
    }
}

static void backward_chunk(const lsh *a, const chunk *k)
{
    const tp_lsh *g = &a->g;
    const int64_t D = g->dim, n = g->keys, ld = a->at.ld;
    real *s = k->scratch + a->at.s, *p = k->scratch + a->at.p, *dq = k->scratch + a->at.out;
    real *dk = k->scratch + a->at.dk, *dv = k->scratch + a->at.dv;
    memset(dk, 0, (size_t)(n * D) * sizeof *dk);
    memset(dv, 0, (size_t)(n * D) * sizeof *dv);
    for (int64_t row = 0; row < g->chunk; row += a->m) {
        const int64_t m = g->chunk - row < a->m ? g->chunk - row : a->m;
        gradients_of_logits(a, k, row, m);
        if (a->dv)
            tp__gemm(REAL, true, false, n, D, m, 1.0, s, ld, k->scratch + a->at.dy, D, 1.0, dv, D);
        if (!a->dx) continue;
        tp__gemm(REAL, true, false, n, D, m, 1.0, p, ld, k->scratch + a->at.q, D, 1.0, dk, D);
        tp__gemm(REAL, false, false, m, D, n, 1.0, p, ld, k->scratch + a->at.k, D, 0.0, dq, D);
        for (int64_t i = 0; i < m; i++) {
            real *to = a->dx + row_at(a, k, token_of(k, row + i));
            for (int64_t d = 0; d < D; d++) to[d] += dq[i * D + d];
        }
    }
    scatter_keys(a, k);
}

static void chunk_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const lsh *a = ctx;
    const tp_lsh *g = &a->g;
    for (int64_t t = begin; t < end; t++) {
        const int64_t head = t / a->tasks, at = a->first + t % a->tasks * a->step;
        const chunk k = { .b = head / g->heads,
                          .h = head % g->heads,
                          .order = a->order + head * g->entries,
                          .own = (a->round * g->chunks + at) * g->chunk,
                          .scratch = a->work + thread * a->at.total };
        gather_keys(a, &k, tp__lsh_first(g, a->round, at));
        if (a->dy)
            backward_chunk(a, &k);
        else
            forward_chunk(a, &k);
    }
}

/* Chunks first, first + step, ... of the round, of all heads. */
static void run_chunks(const tp_call *c, lsh *a, int64_t first, int64_t step)
{
    a->first = first;
    a->step = step;
    a->tasks = first < a->g.chunks ? (a->g.chunks - first + step - 1) / step : 0;
    tp__parallel(c->dev, a->g.batch * a->g.heads * a->tasks, 1, chunk_tasks, a);
}

static tp_code lsh_attention_fwd(const tp_call *c)
{
    lsh a = prepare(c);
    if (c->y[LSH_Y].numel == 0) return TP_OK;
    find_order(c, &a);
    for (a.round = 0; a.round < a.g.rounds; a.round++) run_chunks(c, &a, 0, 1);
    return TP_OK;
}

static void zero(const void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    memset((real *)((const tp_view *)ctx)->data + begin, 0, (size_t)(end - begin) * sizeof(real));
}

static tp_code lsh_attention_bwd(const tp_call *c)
{
    lsh a = prepare(c);
    if (c->y[LSH_Y].numel == 0) return TP_OK;
    a.dy = c->dy[LSH_Y].data;
    a.dx = c->dx[LSH_QK].data;
    a.dv = c->dx[LSH_V].data;
    for (int i = LSH_QK; i <= LSH_V; i++)
        if (c->dx[i].data) tp__parallel(c->dev, c->dx[i].numel, 1 << 18, zero, &c->dx[i]);
    for (a.round = 0; a.round < a.g.rounds; a.round++) {
        run_chunks(c, &a, 0, a.g.chunks);
        run_chunks(c, &a, 1, 2);
        run_chunks(c, &a, 2, 2);
    }
    return TP_OK;
}

static size_t lsh_attention_work(const tp_call *c)
{
    const lsh a = prepare(c);
    const int64_t common = room_for_rotations(c, &a.g) + room_for_buckets(c, &a.g);
    return (size_t)(common + c->dev->threads * a.at.total) * sizeof(real);
}

TP_CPU_WORK(lsh_attention_work)
TP_CPU_KERNEL(lsh_attention_fwd)
TP_CPU_KERNEL(lsh_attention_bwd)
