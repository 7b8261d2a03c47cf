/* test_lsh_attention.c - LSH attention against plain loops: values and gradients, on every
 * instruction set, also with dropout; reference cases with buckets; equal bits on any number of
 * threads; drawn rotations; messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <tapegrad/op.h>

#include "support/device.h"
#include "support/fixtures.h"
#include "support/sanitized.h"
#include "support/trial.h"
#include "support/values.h"
#include "tensor/geometry/lsh.h"
#include "tensor/rng.h"

enum { SEED = 11 };

#define COUNT(a) (sizeof(a) / sizeof *(a))

extern const tp_op tp_op_lsh_attention;

typedef struct lsh_case {
    const char *name;
    int64_t batch, tokens, dim;
    tp_lsh_attn_cfg cfg;
    int64_t real; /* tokens of the batch's last row; -1: no mask */
} lsh_case;

static const lsh_case cases[] = {
    { "two rounds", 2, 24, 8, { 2, 4, 2, { 8 }, 0, 0 }, -1 },
    { "padding", 3, 24, 8, { 2, 4, 2, { 8 }, 0, 0 }, 7 },
    { "padding alone", 2, 24, 8, { 2, 4, 2, { 8 }, 0, 0 }, 0 },
    { "two factors", 2, 24, 5, { 3, 4, 2, { 2, 4 }, 0, 0 }, 11 },
    { "one round", 1, 32, 16, { 1, 8, 1, { 4 }, 0, 0 }, 20 },
    { "two chunks", 1, 8, 4, { 1, 4, 1, { 4 }, 0, 0 }, 3 },
    { "the rule", 2, 96, 16, { 2, 8, 3, { 0 }, 200, 0 }, 61 },
    { "the published sizes", 1, 256, 32, { 2, 0, 0, { 0 }, 0, 0 }, 150 },
    { "chunks of more than a tile", 1, 210, 12, { 1, 70, 2, { 4 }, 0, 0 }, 100 },
    { "wide heads", 1, 40, 100, { 1, 20, 2, { 4 }, 0, 0 }, 33 },
    { "one chunk", 2, 40, 8, { 2, 64, 2, { 0 }, 0, 0 }, 23 },
    { "one chunk of two tiles", 1, 100, 8, { 2, 100, 2, { 0 }, 0, 0 }, -1 },
    { "dropout", 2, 24, 8, { 2, 4, 2, { 8 }, 0, 0.3 }, -1 },
    { "dropout, padding, three rounds", 3, 96, 5, { 3, 8, 3, { 2, 4 }, 0, 0.5 }, 31 },
    { "dropout, one chunk of two tiles", 2, 100, 8, { 2, 100, 2, { 0 }, 0, 0.1 }, 87 },
    { "dropout, chunks of more than a tile", 1, 210, 12, { 1, 70, 2, { 4 }, 0, 0.2 }, -1 },
    { "one token", 2, 1, 3, { 1, 4, 2, { 0 }, 0, 0 }, -1 },
};

static bool is_real(const lsh_case *k, int64_t b, int64_t i)
{
    return k->real < 0 || b + 1 < k->batch || i < k->real;
}

static tp_lsh geometry(const lsh_case *k)
{
    const int64_t width = k->dim * k->cfg.heads;
    const tp_view x = { .ndim = 3, .dim = { k->batch, k->tokens, width } };
    return tp__lsh(&x, &k->cfg);
}

static tp_tensor mask_of(tp_tape *T, const lsh_case *k)
{
    if (k->real < 0) return TP_NONE;
    uint8_t *mask = malloc((size_t)(k->batch * k->tokens) + 1);
    for (int64_t e = 0; e < k->batch * k->tokens; e++)
        mask[e] = is_real(k, e / k->tokens, e % k->tokens);
    const tp_tensor t = tp_from(T, TP_U8, TP_SHAPE(k->batch, k->tokens), mask);
    free(mask);
    return t;
}

static tp_tensor apply(tp_tape *T, const tp_tensor *x, const void *env)
{
    const lsh_case *k = env;
    tp_set_random_state(T, SEED, 0);
    return tp_lsh_attention(T, x[0], x[1], x[2], mask_of(T, k), k->cfg);
}

/* ---- plain loops ---- */

/* The first index of the largest among n products of row x and columns and their negatives. */
static int64_t bucket_of(const double *x, const double *rotations, int64_t dim, int64_t step,
                         int64_t n)
{
    double best = -INFINITY;
    int64_t at = 0;
    for (int64_t j = 0; j < 2 * n; j++) {
        double z = 0.0;
        for (int64_t d = 0; d < dim; d++) z += x[d] * rotations[d * step + j % n];
        if (j >= n) z = -z;
        if (z > best) at = j;
        if (z > best) best = z;
    }
    return at;
}

/* The order [R*N] of head h of row b. */
static void order_of(const lsh_case *k, const trial_result *r, int64_t b, int64_t h, int64_t *order)
{
    const tp_lsh g = geometry(k);
    int64_t n = 0, *bucket = malloc((size_t)g.tokens * sizeof *bucket);
    for (int64_t e = 0; g.chunks == 1 && e < g.entries; e++) order[e] = e;
    for (int64_t t = 0; g.chunks > 1 && t < g.rounds; t++) {
        for (int64_t i = 0; i < g.tokens; i++) {
            const double *x = r->x[0] + (b * g.tokens + i) * g.width + h * g.dim;
            const int64_t step = g.rounds * g.columns, half = g.factor[0] / 2;
            const double *of = r->x[2] + h * g.dim * step + t * g.columns;
            bucket[i] = bucket_of(x, of, g.dim, step, half);
            if (g.factor[1])
                bucket[i] += g.factor[0] * bucket_of(x, of + half, g.dim, step, g.factor[1] / 2);
            if (!is_real(k, b, i)) bucket[i] = g.buckets;
        }
        for (int64_t of = 0; of <= g.buckets; of++)
            for (int64_t i = 0; i < g.tokens; i++)
                if (bucket[i] == of) order[n++] = i;
    }
    free(bucket);
}

/* One head: token i sees token j seen[i][j] times; kept[i][j] is the sum of dropout factors. */
typedef struct head {
    const lsh_case *k;
    tp_lsh g;
    const trial_result *r;
    int64_t b, h;
    int *seen;
    double *kept, *key, *dkey;
} head;

static void count_seen(head *a)
{
    const tp_lsh *g = &a->g;
    int64_t *order = malloc((size_t)g->entries * sizeof *order);
    order_of(a->k, a->r, a->b, a->h, order);
    for (int64_t e = 0; e < g->entries; e++)
        for (int64_t j = 0; j < g->keys; j++) {
            const int64_t chunk = e / g->chunk, back = g->chunks > 1 ? g->chunk : 0;
            const int64_t at = (chunk * g->chunk - back + j + g->entries) % g->entries;
            const int64_t row = ((a->b * g->heads + a->h) * g->entries + e) * g->keys;
            const uint32_t word = tp__word(SEED, 0, (UINT64_C(1) << 48) + (uint64_t)(row + j));
            const double p = a->k->cfg.dropout;
            a->seen[order[e] * g->tokens + order[at]]++;
            a->kept[order[e] * g->tokens + order[at]] += word < tp__drop_below(p) ? 0 : 1 / (1 - p);
        }
    free(order);
}

/* The times token i sees j, times e^(s - top). */
static double weight(const head *a, int64_t i, int64_t j, double s, double top)
{
    const int times = a->seen[i * a->g.tokens + j];
    return times ? times * exp(s - top) : 0.0;
}

/* The same after dropout. */
static double kept(const head *a, int64_t i, int64_t j, double s, double top)
{
    const double times = a->kept[i * a->g.tokens + j];
    return times > 0 ? times * exp(s - top) : 0.0;
}

/* The result of token i and its gradients. */
static void attend(const head *a, int64_t i, double *y, double **dx)
{
    const tp_lsh *g = &a->g;
    const int64_t base = a->b * g->tokens * g->width + a->h * g->dim, own = base + i * g->width;
    double *s = calloc((size_t)g->tokens, sizeof *s), top = -INFINITY, sum = 0.0, delta = 0.0;
    for (int64_t j = 0; j < g->tokens; j++) {
        for (int64_t d = 0; d < g->dim; d++) s[j] += a->r->x[0][own + d] * a->key[j * g->dim + d];
        if (!is_real(a->k, a->b, j)) s[j] = -1e9;
        if (j == i) s[j] = -1e5;
        if (a->seen[i * g->tokens + j] && s[j] > top) top = s[j];
    }
    for (int64_t j = 0; j < g->tokens; j++) sum += weight(a, i, j, s[j], top);
    for (int64_t j = 0; j < g->tokens; j++) {
        const double p = kept(a, i, j, s[j], top) / sum;
        for (int64_t d = 0; d < g->dim; d++) y[own + d] += p * a->r->x[1][base + j * g->width + d];
    }
    for (int64_t d = 0; d < g->dim; d++) delta += y[own + d] * a->r->dy[own + d];
    for (int64_t j = 0; j < g->tokens; j++) {
        const double p = weight(a, i, j, s[j], top) / sum, q = kept(a, i, j, s[j], top) / sum;
        double ds = -p * delta;
        for (int64_t d = 0; d < g->dim; d++) {
            ds += q * a->r->dy[own + d] * a->r->x[1][base + j * g->width + d];
            dx[1][base + j * g->width + d] += q * a->r->dy[own + d];
        }
        if (j == i || !is_real(a->k, a->b, j)) continue;
        for (int64_t d = 0; d < g->dim; d++) {
            dx[0][own + d] += ds * a->key[j * g->dim + d];
            a->dkey[j * g->dim + d] += ds * a->r->x[0][own + d];
        }
    }
    free(s);
}

static void attend_head(head *a, double *y, double **dx)
{
    const tp_lsh *g = &a->g;
    const int64_t base = a->b * g->tokens * g->width + a->h * g->dim;
    double *norm = calloc((size_t)g->tokens, sizeof *norm);
    for (int64_t j = 0; j < g->tokens; j++) {
        const double *x = a->r->x[0] + base + j * g->width;
        for (int64_t d = 0; d < g->dim; d++) norm[j] += x[d] * x[d] / (double)g->dim;
        norm[j] = 1.0 / sqrt(norm[j] + 1e-6);
        for (int64_t d = 0; d < g->dim; d++)
            a->key[j * g->dim + d] = x[d] * norm[j] / sqrt((double)g->dim);
    }
    count_seen(a);
    for (int64_t i = 0; i < g->tokens; i++) attend(a, i, y, dx);
    for (int64_t j = 0; j < g->tokens; j++) {
        const double *x = a->r->x[0] + base + j * g->width, *dk = a->dkey + j * g->dim;
        double dot = 0.0;
        for (int64_t d = 0; d < g->dim; d++) dot += dk[d] * x[d] / (double)g->dim;
        for (int64_t d = 0; d < g->dim; d++)
            dx[0][base + j * g->width + d] +=
                norm[j] / sqrt((double)g->dim) * (dk[d] - x[d] * norm[j] * norm[j] * dot);
    }
    free(norm);
}

static void naive(const void *env, const trial_result *r, double *y, double **dx)
{
    head a = { .k = env, .g = geometry(env), .r = r };
    const size_t n = (size_t)a.g.tokens, d = (size_t)a.g.dim;
    for (a.b = 0; a.b < a.g.batch; a.b++)
        for (a.h = 0; a.h < a.g.heads; a.h++) {
            a.seen = calloc(n * n, sizeof *a.seen);
            a.kept = calloc(n * n, sizeof *a.kept);
            a.key = calloc(n * d, sizeof *a.key);
            a.dkey = calloc(n * d, sizeof *a.dkey);
            attend_head(&a, y, dx);
            free(a.seen);
            free(a.kept);
            free(a.key);
            free(a.dkey);
        }
}

static trial trial_of(const lsh_case *k, tp_dtype dt, tp_isa isa)
{
    const tp_lsh g = geometry(k);
    const tp_shape x = TP_SHAPE(k->batch, k->tokens, g.width);
    const tp_shape rotations = TP_SHAPE(g.heads, g.dim, g.rounds, g.columns ? g.columns : 1);
    return (trial){ .f = apply,
                    .env = k,
                    .in = { x, x, rotations },
                    .constant = 1u << 2,
                    .dtype = dt,
                    .compute = dt,
                    .isa = isa };
}

Test(lsh_attention, values_and_gradients)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < COUNT(cases); i++) {
            const trial f32 = trial_of(&cases[i], TP_F32, isa);
            const trial f64 = trial_of(&cases[i], TP_F64, isa);
            if (trial_can(TP_F32, isa)) trial_compare(&f32, naive, cases[i].name, 2e-5);
            if (trial_can(TP_F64, isa)) trial_compare(&f64, naive, cases[i].name, 1e-12);
        }
}

Test(lsh_attention, threads_do_not_change_bits)
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (device_is_emulated() && !case_is_taken(i)) continue;
        const trial t = trial_of(&cases[i], TP_F32, TP_ISA_AUTO);
        cr_expect(trial_same_on_threads(&t), "%s", cases[i].name);
    }
}

/* ---- the number of buckets ---- */

Test(lsh_attention, rule_of_buckets)
{
    static const int64_t rule[][5] = {
        /* n, n_max, chunk, factors */
        { 2048, 2048, 64, 64, 0 }, { 4096, 4096, 64, 128, 0 }, { 8192, 8192, 64, 16, 16 },
        { 16, 16, 4, 8, 0 },       { 24, 24, 4, 8, 0 },        { 64, 64, 4, 4, 8 },
        { 24, 4096, 4, 8, 0 },     { 128, 25600, 4, 64, 0 },   { 64, 25600, 4, 32, 0 },
        { 8, 8, 8, 0, 0 },         { 5, 5, 8, 0, 0 },          { 12, 12, 0, 0, 0 },
        { 2, 2, 1, 2, 2 },
    };
    for (size_t i = 0; i < COUNT(rule); i++) {
        int64_t f[2] = { -1, -1 };
        tp_lsh_buckets(rule[i][0], rule[i][1], rule[i][2], f);
        cr_expect(f[0] == rule[i][3] && f[1] == rule[i][4], "n %lld chunk %lld: %lld, %lld",
                  (long long)rule[i][0], (long long)rule[i][2], (long long)f[0], (long long)f[1]);
    }
}

/* ---- drawn rotations, f32 rotations with bf16 data ---- */

typedef struct orders {
    tp_tensor y, order;
} orders;

static orders order_by_op(tp_tape *T, tp_tensor qk, tp_tensor rotations, tp_lsh_attn_cfg cfg)
{
    const tp_tensor x[LSH_NX] = { qk, qk, rotations, TP_NONE };
    tp_tensor y[2];
    tp_apply_n(T, &tp_op_lsh_attention, &cfg, LSH_NX, x, 2, y);
    return (orders){ y[0], y[1] };
}

static bool same_order(tp_tape *T, tp_tensor a, tp_tensor b)
{
    const int64_t n = tp_numel(a);
    int32_t *p = calloc((size_t)n, sizeof *p), *q = calloc((size_t)n, sizeof *q);
    tp_read(T, a, p, (size_t)n * sizeof *p);
    tp_read(T, b, q, (size_t)n * sizeof *q);
    const bool same = tp_ok(T) && memcmp(p, q, (size_t)n * sizeof *p) == 0;
    cr_expect(tp_ok(T), "%s", tp_why(T));
    free(p);
    free(q);
    return same;
}

static tp_tensor block(tp_tape *T, const void *cfg, tp_tensor x)
{
    return tp_lsh_attention(T, x, x, TP_NONE, TP_NONE, *(const tp_lsh_attn_cfg *)cfg);
}

Test(lsh_attention, drawn_rotations)
{
    enum { N = 64, C = 16 };
    const tp_lsh_attn_cfg cfg = { .heads = 2, .chunk = 8 };
    double x[N * C], plain[N * C], again[N * C];
    values_random(x, N * C, 3);
    tp_device *D = device_open(0);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor t = values_constant(T, TP_F32, TP_SHAPE(1, N, C), x);
    const orders a = order_by_op(T, t, TP_NONE, cfg), b = order_by_op(T, t, TP_NONE, cfg);
    cr_expect(!same_order(T, a.order, b.order), "each call draws");
    for (int k = 0; k < 2; k++) {
        tp_tape *U = tp_tape_new(D, &(tp_tape_opts){ .seed = 5 });
        const tp_tensor in = values_input(U, TP_F32, TP_SHAPE(1, N, C), x);
        const tp_tensor y = k ? tp_checkpoint(U, block, &cfg, in) : block(U, &cfg, in);
        tp_backward(U, tp_sum(U, tp_mul(U, y, y), TP_ALL));
        values_read(U, tp_grad(U, in), k ? again : plain);
        cr_expect(tp_ok(U), "%s", tp_why(U));
        tp_tape_free(U);
    }
    cr_expect_eq(values_error(again, plain, N * C, 0.0), 0.0, "a recomputed call draws the same");
    tp_tape_free(T);
    tp_device_close(D);
}

Test(lsh_attention, f32_rotations_beside_bf16)
{
    enum { N = 256, C = 16, COLUMNS = 16 };
    const tp_lsh_attn_cfg cfg = { .heads = 1, .chunk = 8, .buckets = { 32 } };
    double x[N * C], rotations[C * 2 * COLUMNS];
    values_random(x, N * C, 3);
    values_random(rotations, C * 2 * COLUMNS, 4);
    tp_device *D = device_open(0);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = TP_BF16 });
    tp_tape *U = tp_tape_new(D, NULL);
    const tp_shape s = TP_SHAPE(1, N, C), r = TP_SHAPE(1, C, 2, COLUMNS);
    const tp_tensor half = values_constant(T, TP_BF16, s, x);
    double rounded[N * C];
    values_read(T, half, rounded);
    const orders a = order_by_op(T, half, values_constant(T, TP_F32, r, rotations), cfg);
    const orders b = order_by_op(U, values_constant(U, TP_F32, s, rounded),
                                 values_constant(U, TP_F32, r, rotations), cfg);
    int32_t p[2 * N], q[2 * N];
    tp_read(T, a.order, p, sizeof p);
    tp_read(U, b.order, q, sizeof q);
    cr_expect(tp_ok(T) && tp_ok(U), "%s%s", tp_why(T), tp_why(U));
    cr_expect_arr_eq(p, q, sizeof p);
    cr_expect_eq(tp_dtype_of(a.y), TP_BF16);
    tp_tape_free(T);
    tp_tape_free(U);
    tp_device_close(D);
}

/* ---- reference cases ---- */

static tp_tensor of_file(tp_tape *T, tp_file *F, const char *name, bool wanted)
{
    const tp_file_tensor *t = tp_file_find(F, name);
    cr_assert(t, "%s has no %s", tp_file_path(F), name);
    int64_t n = 1;
    for (int i = 0; i < t->shape.ndim; i++) n *= t->shape.dim[i];
    double *x = malloc((size_t)n * sizeof *x + 1);
    cr_assert(tp_file_read(F, t, TP_F64, x), "%s", tp_file_why(F));
    const tp_tensor y = (wanted ? values_input : values_constant)(T, device_real(), t->shape, x);
    free(x);
    return y;
}

static void expect_values(tp_tape *T, tp_file *F, const char *name, tp_tensor x, double tol)
{
    const tp_tensor want = of_file(T, F, name, false);
    const int64_t n = tp_numel(want);
    double *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * sizeof *b);
    cr_assert_eq(tp_numel(x), n, "%s: %s", name, tp_why(T));
    values_read(T, x, a);
    values_read(T, want, b);
    cr_expect_lt(values_error(a, b, n, 1.0), tol, "%s: %s: %g", tp_file_path(F), name,
                 values_error(a, b, n, 1.0));
    free(a);
    free(b);
}

/* Expects a stable sort of the case's buckets, whose numbers continue from round to round. */
static void expect_order(tp_tape *T, tp_file *F, tp_tensor order)
{
    const tp_file_tensor *t = tp_file_find(F, "output.buckets");
    if (!t) return;
    const int64_t n = t->shape.dim[2] * t->shape.dim[3], heads = t->shape.dim[0] * t->shape.dim[1];
    int32_t *bucket = malloc((size_t)(heads * n) * sizeof *bucket);
    int32_t *got = malloc((size_t)(heads * n) * sizeof *got);
    cr_assert(tp_file_read(F, t, TP_I32, bucket), "%s", tp_file_why(F));
    cr_assert_eq(tp_numel(order), heads * n);
    tp_read(T, order, got, (size_t)(heads * n) * sizeof *got);
    for (int64_t h = 0; h < heads; h++) {
        int64_t at = 0;
        for (int32_t of = 0; at < n; of++) {
            cr_assert_lt(of, 1 << 20);
            for (int64_t e = 0; e < n; e++)
                if (bucket[h * n + e] == of)
                    cr_expect_eq(got[h * n + at++], e % t->shape.dim[3],
                                 "%s: head %lld, entry %lld", tp_file_path(F), (long long)h,
                                 (long long)at);
        }
    }
    free(bucket);
    free(got);
}

static tp_lsh_attn_cfg cfg_of(tp_file *F)
{
    int64_t heads = 0, chunk = 0, rounds = 0;
    tp_file_int(F, "num_head", &heads);
    tp_file_int(F, "chunk_length", &chunk);
    tp_file_int(F, "num_hash", &rounds);
    tp_lsh_attn_cfg cfg = { .heads = (int)heads, .chunk = chunk, .rounds = (int)rounds };
    const char *factors = tp_file_meta(F, "bucket_factors"), *comma = strchr(factors, ',');
    cfg.buckets[0] = atoll(factors);
    cfg.buckets[1] = comma ? atoll(comma + 1) : 0;
    return cfg;
}

static tp_tensor mask_of_file(tp_tape *T, tp_file *F)
{
    const tp_file_tensor *t = tp_file_find(F, "input.mask");
    const int64_t n = t->shape.dim[0] * t->shape.dim[1];
    double *x = malloc((size_t)n * sizeof *x);
    uint8_t *mask = malloc((size_t)n);
    cr_assert(tp_file_read(F, t, TP_F64, x), "%s", tp_file_why(F));
    for (int64_t i = 0; i < n; i++) mask[i] = x[i] != 0.0;
    const tp_tensor m = tp_from(T, TP_U8, t->shape, mask);
    free(x);
    free(mask);
    return m;
}

static void check_file(tp_tape *T, tp_file *F)
{
    const char *const names[] = { "input.x", "param.W_q.weight", "param.W_v.weight",
                                  "param.ff.weight", "param.ff.bias" };
    const char *const grads[] = { "grad.input.x", "grad.W_q.weight", "grad.W_v.weight",
                                  "grad.ff.weight", "grad.ff.bias" };
    tp_tensor p[COUNT(names)], y[2];
    for (size_t i = 0; i < COUNT(names); i++) p[i] = of_file(T, F, names[i], true);
    const bool hashed = tp_file_find(F, "input.random_rotations");
    const tp_tensor x[LSH_NX] = { tp_linear(T, p[0], p[1], TP_NONE, TP_ACT_NONE),
                                  tp_linear(T, p[0], p[2], TP_NONE, TP_ACT_NONE),
                                  hashed ? of_file(T, F, "input.random_rotations", false) : TP_NONE,
                                  mask_of_file(T, F) };
    const tp_lsh_attn_cfg cfg = cfg_of(F);
    tp_apply_n(T, &tp_op_lsh_attention, &cfg, LSH_NX, x, 2, y);
    const tp_tensor out = tp_linear(T, y[0], p[3], p[4], TP_ACT_NONE);
    expect_values(T, F, "output.y", out, device_limit(2e-7, 2e-5));
    expect_order(T, F, y[1]);
    tp_backward(T, tp_sum(T, tp_mul(T, out, of_file(T, F, "input.probe", false)), TP_ALL));
    for (size_t i = 0; i < COUNT(names); i++)
        expect_values(T, F, grads[i], tp_grad(T, p[i]), device_limit(2e-7, 1e-4));
    cr_expect(tp_ok(T), "%s", tp_why(T));
}

Test(lsh_attention, reference_cases)
{
    static const char *const files[] = { "c4_h1", "c4_h2", "c4_h2_nopad", "factored", "short" };
    for (size_t i = 0; i < COUNT(files); i++) {
        char name[64];
        snprintf(name, sizeof name, "lra/attn_reformer_%s.safetensors", files[i]);
        tp_file *F = fixture_open(name);
        tp_device *D = device_open(0);
        tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
        check_file(T, F);
        tp_tape_free(T);
        tp_device_close(D);
        tp_file_close(F);
    }
}

/* ---- messages ---- */

Test(lsh_attention, messages)
{
    static const struct {
        tp_lsh_attn_cfg cfg;
        tp_shape in[3];
        const char *text;
    } wrong[] = {
        { { .heads = 0 },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "lsh_attention: heads must be positive, not 0\n" },
        { { .heads = 3 },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "lsh_attention: a width of 4 does not divide into 3 heads\n" },
        { { .heads = 1 },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 7, 4 } } },
          "lsh_attention: qk and v must both be [B,N,H*D]\n" },
        { { .heads = 1, .chunk = 3 },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "lsh_attention: 8 tokens are not a multiple of chunk = 3: pad them, with a mask\n" },
        { { .heads = 1, .chunk = -1 },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "lsh_attention: chunk must be from 0 to 2^31 - 1, longest not negative: -1, 0\n" },
        { { .heads = 1, .rounds = 1025 },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "lsh_attention: rounds must be from 0 to 1024, not 1025\n" },
        { { .heads = 1, .dropout = 1.0 },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "lsh_attention: dropout must be in [0, 1), not 1\n" },
        { { .heads = 1, .buckets = { 3 } },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "lsh_attention: factors of buckets must be even and at most 2^20, not 3\n" },
        { { .heads = 1, .buckets = { 0, 2 } },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } } },
          "lsh_attention: buckets must be { n, 0 } or { n, m } with n m <= 2^20, not { 0, 2 }\n" },
        { { .heads = 2, .chunk = 4, .buckets = { 4 } },
          { { 3, { 1, 8, 4 } }, { 3, { 1, 8, 4 } }, { 4, { 2, 2, 2, 4 } } },
          "lsh_attention: rotations must be [H,D,rounds,sum of buckets / 2] = [2,2,2,2]\n" },
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const lsh_case k = { .cfg = wrong[i].cfg, .real = -1 };
        const trial t = { .f = apply,
                          .env = &k,
                          .in = { wrong[i].in[0], wrong[i].in[1], wrong[i].in[2] } };
        cr_expect(trial_fails(&t, wrong[i].text), "case %zu", i);
    }
}
