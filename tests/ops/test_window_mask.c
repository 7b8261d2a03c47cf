/* test_window_mask.c - masks and dropout of attention over maps. Sequences (maps of height 1):
 * equal to the definition of long-short attention for encoders (Zhu et al. 2021, official code),
 * pair by pair in double, with padding, and with dropout by the same random words. Maps: equal to
 * plain ops. Hidden rows do not matter; bits do not depend on threads; messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "ops/ref_map.h"
#include "support/device.h"
#include "support/trial.h"
#include "support/values.h"
#include "tensor/rng.h"

enum { SEED = 7, TOKENS = 96 };

/* ---- sequences ---- */

/* Segments of w tokens see e = max(w / 2, 1) tokens on each side. Batch row b has real[b] tokens,
 * and `hidden` more are hidden among them; the low keys from `low_real` on are hidden. */
typedef struct sequence {
    const char *name;
    int64_t B, N, H, D, w, low;
    int64_t real[4], hidden, low_real;
    double dropout;
} sequence;

/* clang-format off */
static const sequence sequences[] = {
    { "even window", 2, 24, 2, 4, 4, 3, { 24, 17 }, 0, 3, 0 },
    { "odd window", 2, 25, 2, 8, 5, 2, { 25, 11 }, 2, 2, 0 },
    { "one token, three keys", 3, 13, 1, 8, 1, 4, { 13, 6, 1 }, 1, 4, 0 },
    { "windows of padding", 3, 40, 2, 4, 4, 1, { 40, 9, 3 }, 0, 1, 0 },
    { "no low keys", 3, 24, 2, 4, 6, 0, { 24, 7, 2 }, 1, 0, 0 },
    { "no window", 2, 17, 2, 4, 0, 5, { 17, 4 }, 2, 3, 0 },
    { "no key at all", 2, 9, 2, 4, 0, 2, { 9, 4 }, 0, 0, 0 },
    { "more queries than a piece", 1, 140, 1, 16, 70, 9, { 101 }, 3, 7, 0 },
    { "dropout", 2, 24, 2, 4, 4, 3, { 24, 24 }, 0, 3, 0.4 },
    { "dropout, one token", 2, 33, 2, 8, 1, 7, { 33, 20 }, 3, 6, 0.2 },
    { "dropout, many keys", 1, 192, 1, 8, 64, 70, { 130 }, 5, 69, 0.1 },
    { "dropout, no window", 2, 19, 3, 4, 0, 5, { 19, 3 }, 0, 5, 0.3 },
};
/* clang-format on */
enum { SEQUENCES = sizeof sequences / sizeof *sequences };

static bool token_shown(const sequence *s, int64_t b, int64_t i)
{
    return i < s->real[b] && !(i > 0 && i <= s->hidden);
}

static tp_tensor masked(tp_tape *T, const tp_tensor *x, const void *env)
{
    const sequence *s = env;
    uint8_t *mask = calloc((size_t)(s->B * s->N), 1), *low = calloc((size_t)(s->B * s->low) + 1, 1);
    for (int64_t i = 0; i < s->B * s->N; i++) mask[i] = token_shown(s, i / s->N, i % s->N);
    for (int64_t i = 0; i < s->B * s->low; i++) low[i] = i % s->low < s->low_real;
    const int64_t halo = s->w ? s->w / 2 > 1 ? s->w / 2 : 1 : 0;
    const tp_window_in in = { .q = x[0],
                              .k = x[1],
                              .v = x[2],
                              .low_k = x[3],
                              .low_v = x[4],
                              .mask = tp_from(T, TP_U8, TP_SHAPE(s->B, s->N), mask),
                              .low_mask = s->low ? tp_from(T, TP_U8, TP_SHAPE(s->B, s->low), low)
                                                 : TP_NONE };
    free(mask);
    free(low);
    tp_set_random_state(T, SEED, 0);
    return tp_window_attention_2d(T, in,
                                  (tp_window_attn_cfg){ .heads = (int)s->H,
                                                        .height = 1,
                                                        .width = s->N,
                                                        .window = { s->w > 0, s->w },
                                                        .halo = { 0, halo },
                                                        .dropout = s->dropout });
}

/* One query of the reference: its keys (index of low keys, then of tokens), probabilities,
 * factors. */
typedef struct query {
    const sequence *s;
    const trial_result *r;
    int64_t b, h, i, n;
    int64_t key[512];
    double p[512], keep[512];
} query;

/* Offset of the head's row of key j in the inputs of low keys or of tokens. */
static int64_t key_at(const query *q, int64_t j)
{
    const sequence *s = q->s;
    const int64_t row = j < s->low ? q->b * s->low + j : q->b * s->N + j - s->low;
    return (row * s->H + q->h) * s->D;
}

static int64_t query_at(const query *q)
{
    return ((q->b * q->s->N + q->i) * q->s->H + q->h) * q->s->D;
}

static double product(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t x = 0; x < n; x++) sum += a[x] * b[x];
    return sum;
}

/* Lists the keys that the query sees; computes their probabilities and dropout factors. */
static void weigh(query *q)
{
    const sequence *s = q->s;
    const int64_t first = s->w ? q->i / s->w * s->w : 0, e = s->w / 2 > 1 ? s->w / 2 : 1;
    const int64_t row = ((q->b * s->H + q->h) * s->N + q->i) * (s->low + s->N);
    double top = -INFINITY, sum = 0;
    q->n = 0;
    for (int64_t j = 0; j < s->low_real; j++) q->key[q->n++] = j;
    for (int64_t j = first - e; s->w && j < first + s->w + e; j++)
        if (j >= 0 && j < s->N && token_shown(s, q->b, j)) q->key[q->n++] = s->low + j;
    for (int64_t a = 0; a < q->n; a++) {
        const int64_t j = q->key[a];
        q->p[a] =
            product(q->r->x[0] + query_at(q), q->r->x[j < s->low ? 3 : 1] + key_at(q, j), s->D) /
            sqrt((double)s->D);
        top = fmax(top, q->p[a]);
    }
    for (int64_t a = 0; a < q->n; a++) sum += q->p[a] = exp(q->p[a] - top);
    for (int64_t a = 0; a < q->n; a++) {
        const uint32_t word = tp__word(SEED, 0, (uint64_t)(row + q->key[a]));
        q->p[a] /= sum;
        q->keep[a] = word < tp__drop_below(s->dropout) ? 0 : 1 / (1 - s->dropout);
    }
}

/* Adds the query's result to y and its gradients to dx. */
static void add_query(query *q, double *y, double **dx)
{
    const sequence *s = q->s;
    const int64_t at = query_at(q), D = s->D;
    const double *dy = q->r->dy + at, scale = 1 / sqrt((double)D);
    double dp[512], delta = 0;
    for (int64_t a = 0; a < q->n; a++) {
        const int64_t j = q->key[a], low = j < s->low ? 2 : 0;
        const double *v = q->r->x[2 + low] + key_at(q, j);
        dp[a] = q->keep[a] * product(dy, v, D);
        delta += q->p[a] * dp[a];
        for (int64_t x = 0; x < D; x++) {
            y[at + x] += q->p[a] * q->keep[a] * v[x];
            dx[2 + low][key_at(q, j) + x] += q->p[a] * q->keep[a] * dy[x];
        }
    }
    for (int64_t a = 0; a < q->n; a++) {
        const int64_t j = q->key[a], low = j < s->low ? 2 : 0;
        const double *k = q->r->x[1 + low] + key_at(q, j), ds = scale * q->p[a] * (dp[a] - delta);
        for (int64_t x = 0; x < D; x++) {
            dx[0][at + x] += ds * k[x];
            dx[1 + low][key_at(q, j) + x] += ds * q->r->x[0][at + x];
        }
    }
}

static void naive(const void *env, const trial_result *r, double *y, double **dx)
{
    const sequence *s = env;
    query *q = calloc(1, sizeof *q);
    q->s = s;
    q->r = r;
    for (q->b = 0; q->b < s->B; q->b++)
        for (q->h = 0; q->h < s->H; q->h++)
            for (q->i = 0; q->i < s->N; q->i++) {
                if (!token_shown(s, q->b, q->i)) continue;
                weigh(q);
                add_query(q, y, dx);
            }
    free(q);
}

static trial sequence_trial(const sequence *s, tp_dtype dt)
{
    trial t = { .f = masked, .env = s, .dtype = dt, .compute = dt };
    for (int i = 0; i < 3; i++) t.in[i] = TP_SHAPE(s->B, s->N, s->H * s->D);
    for (int i = 3; i < 5 && s->low; i++) t.in[i] = TP_SHAPE(s->B, s->low, s->H * s->D);
    return t;
}

Test(window_mask, sequences_equal_the_definition)
{
    for (int i = 0; i < SEQUENCES; i++)
        for (int k = 0; k < 6; k++) {
            const tp_dtype dt = k < 3 ? TP_F64 : TP_F32;
            trial t = sequence_trial(&sequences[i], dt);
            t.isa = (tp_isa)(TP_ISA_BASE + k % 3);
            if (trial_can(dt, t.isa))
                trial_compare(&t, naive, sequences[i].name, dt == TP_F64 ? 1e-13 : 5e-6);
        }
}

Test(window_mask, bits_do_not_depend_on_threads)
{
    for (int i = 0; i < SEQUENCES; i++) {
        const trial t = sequence_trial(&sequences[i], TP_F32);
        cr_expect(trial_same_on_threads(&t), "%s", sequences[i].name);
    }
}

/* Evaluation drops nothing. */
Test(window_mask, evaluation_drops_nothing)
{
    sequence s = sequences[8];
    trial t = sequence_trial(&s, TP_F32);
    t.eval = true;
    trial_result a = trial_run(&t);
    s.dropout = 0;
    trial_result b = trial_run(&t);
    cr_expect_str_empty(a.why, "%s", a.why);
    cr_expect_eq(values_error(a.y, b.y, b.ny, 0), 0.0);
    trial_free(&a);
    trial_free(&b);
}

/* Hidden tokens and low keys may hold anything and get no gradient. */
Test(window_mask, hidden_rows_do_not_matter)
{
    const sequence *s = &sequences[9];
    trial t = sequence_trial(s, TP_F32);
    trial_result a = trial_run(&t);
    double *x[5];
    for (int i = 0; i < 5; i++) {
        const int64_t rows = i < 3 ? s->N : s->low, width = s->H * s->D;
        x[i] = calloc((size_t)(s->B * rows * width), sizeof *x[i]);
        for (int64_t e = 0; e < s->B * rows * width; e++) {
            const int64_t row = e / width % rows;
            const bool shown = i < 3 ? token_shown(s, e / width / rows, row) : row < s->low_real;
            x[i][e] = shown ? a.x[i][e] : NAN;
        }
        t.x[i] = x[i];
    }
    trial_result b = trial_run(&t);
    cr_expect_str_empty(b.why, "%s", b.why);
    cr_expect_eq(values_error(a.y, b.y, a.ny, 0), 0.0);
    for (int i = 0; i < 5; i++) {
        cr_expect_eq(values_error(a.dx[i], b.dx[i], trial_count(&t.in[i]), 0), 0.0, "gradient %d",
                     i);
        free(x[i]);
    }
    trial_free(&a);
    trial_free(&b);
}

/* ---- maps ---- */

typedef struct map {
    const char *name;
    tp_window_attn_cfg cfg;
    int64_t B, C, low;
} map;

/* clang-format off */
static const map maps[] = {
    { "halo, parts of chunks",
      { .heads = 2, .height = 9, .width = 13, .global = 2, .window = { 4, 4 }, .halo = { 4, 4 } },
      2, 8, 0 },
    { "low keys", { .heads = 2, .height = 8, .width = 10, .global = 1, .window = { 4, 5 },
                    .halo = { 2, 1 } }, 3, 16, 5 },
    { "exact", { .heads = 1, .height = 7, .width = 9, .window = { 3, 3 }, .halo = { 3, 3 },
                 .edge = TP_EDGE_EXACT }, 2, 8, 0 },
    { "cyclic", { .heads = 1, .height = 7, .width = 8, .global = 1, .window = { 3, 3 },
                  .halo = { 3, 3 }, .edge = TP_EDGE_CYCLIC }, 2, 8, 2 },
    { "own block",
      { .heads = 2, .height = 9, .width = 8, .window = { 4, 4 }, .halo = { 4, 4 },
        .block = TP_BLOCK_OWN }, 2, 8, 3 },
    { "a neighbour",
      { .heads = 1, .height = 9, .width = 9, .global = 1, .window = { 4, 4 }, .halo = { 4, 4 },
        .block = 3 }, 2, 8, 0 },
    { "stripes", { .heads = 1, .height = 23, .width = 3, .window = { 2, 2 }, .halo = { 1, 1 } }, 1,
      4, 2 },
};
/* clang-format on */
enum { MAPS = sizeof maps / sizeof *maps };

/* Hides every third token, and in later batch rows those after the twentieth. */
static tp_window_in map_inputs(tp_tape *T, const map *m, const tp_tensor *x)
{
    const int64_t n = m->cfg.global + m->cfg.height * m->cfg.width;
    uint8_t *mask = calloc((size_t)(m->B * n), 1), low[TOKENS];
    for (int64_t i = 0; i < m->B * n; i++) mask[i] = i % n % 3 != 1 && (i < n || i % n < 20);
    for (int64_t i = 0; i < m->B * m->low; i++) low[i] = i % 2 == 0;
    const tp_window_in in = {
        .q = x[0],
        .k = x[1],
        .v = x[2],
        .low_k = x[3],
        .low_v = x[4],
        .mask = tp_from(T, TP_U8, TP_SHAPE(m->B, n), mask),
        .low_mask = m->low ? tp_from(T, TP_U8, TP_SHAPE(m->B, m->low), low) : TP_NONE,
    };
    free(mask);
    return in;
}

static tp_tensor map_op(tp_tape *T, const tp_tensor *x, const void *env)
{
    return tp_window_attention_2d(T, map_inputs(T, env, x), ((const map *)env)->cfg);
}

static tp_tensor map_ref(tp_tape *T, const tp_tensor *x, const void *env)
{
    return ref_window_attention(T, map_inputs(T, env, x), ((const map *)env)->cfg);
}

static void compare_map(const map *m, tp_dtype dt, double tol)
{
    trial t = { .f = map_op, .env = m, .dtype = dt, .compute = dt };
    for (int i = 0; i < 3; i++)
        t.in[i] = TP_SHAPE(m->B, m->cfg.global + m->cfg.height * m->cfg.width, m->C);
    for (int i = 3; i < 5 && m->low; i++) t.in[i] = TP_SHAPE(m->B, m->low, m->C);
    trial_result a = trial_run(&t);
    t.f = map_ref;
    trial_result b = trial_run(&t);
    cr_assert_str_empty(a.why, "%s: %s", m->name, a.why);
    cr_assert_str_empty(b.why, "%s, plain ops: %s", m->name, b.why);
    cr_expect_lt(values_error(a.y, b.y, b.ny, 0), tol, "%s", m->name);
    for (int i = 0; i < 5; i++)
        if (t.in[i].ndim)
            cr_expect_lt(values_error(a.dx[i], b.dx[i], trial_count(&t.in[i]), 1e-3), tol,
                         "%s: gradient %d", m->name, i);
    trial_free(&a);
    trial_free(&b);
}

Test(window_mask, maps_equal_plain_ops)
{
    for (int i = 0; i < MAPS; i++) {
        if (trial_can(TP_F64, TP_ISA_AUTO)) compare_map(&maps[i], TP_F64, 1e-12);
        compare_map(&maps[i], TP_F32, 2e-5);
    }
}

/* ---- messages ---- */

typedef struct wrong {
    tp_dtype dtype;
    tp_shape mask, low_mask;
    double dropout;
} wrong;

static tp_tensor wrong_op(tp_tape *T, const tp_tensor *x, const void *env)
{
    const wrong *w = env;
    const tp_window_in in = {
        .q = x[0],
        .k = x[1],
        .v = x[2],
        .low_k = x[3],
        .low_v = x[4],
        .mask = w->mask.ndim ? tp_full(T, w->dtype, w->mask, 1.0) : TP_NONE,
        .low_mask = w->low_mask.ndim ? tp_full(T, w->dtype, w->low_mask, 1.0) : TP_NONE,
    };
    return tp_window_attention_2d(
        T, in,
        (tp_window_attn_cfg){
            .heads = 1, .height = 1, .width = 4, .window = { 1, 2 }, .dropout = w->dropout });
}

Test(window_mask, refuses)
{
    wrong w = { TP_U8, TP_SHAPE(2, 3), { 0 }, 0 };
    trial t = { .f = wrong_op, .env = &w, .dtype = TP_F32, .compute = TP_F32 };
    for (int i = 0; i < 3; i++) t.in[i] = TP_SHAPE(2, 4, 2);
    cr_expect(trial_fails(&t, "window_attention_2d: mask must be u8[B,g+N] = u8[2,4]"));
    w = (wrong){ TP_F32, TP_SHAPE(2, 4), { 0 }, 0 };
    cr_expect(trial_fails(&t, "window_attention_2d: mask must be u8, not f32"));
    w = (wrong){ TP_U8, { 0 }, TP_SHAPE(2, 3), 0 };
    cr_expect(trial_fails(&t, "window_attention_2d: low_mask needs low_k and low_v"));
    for (int i = 3; i < 5; i++) t.in[i] = TP_SHAPE(2, 5, 2);
    cr_expect(trial_fails(&t, "window_attention_2d: low_mask must be u8[B,r] = u8[2,5]"));
    w = (wrong){ TP_U8, { 0 }, { 0 }, 1.0 };
    cr_expect(trial_fails(&t, "window_attention_2d: dropout must be in [0, 1), not 1"));
}
