/* test_chunk_project.c - the dynamic projection of one tensor, or of keys and values together, with
 * masks: equal to the definition in double; hidden tokens do not matter; bits do not depend on
 * threads; messages. test_ls_attention covers the case without masks. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "support/device.h"
#include "support/trial.h"
#include "support/values.h"

/* Batch row b has real[b] tokens; the first `hidden` after token 0 are hidden, too. */
typedef struct problem {
    const char *name;
    int64_t B, N, D;
    int heads, chunk, rank;
    int64_t real[4], hidden;
    bool one; /* k only */
} problem;

static const problem problems[] = {
    { "chunks", 2, 24, 4, 2, 4, 2, { 24, 13 }, 2, false },
    { "one tensor", 2, 24, 4, 2, 4, 2, { 24, 13 }, 2, true },
    { "packs", 2, 24, 16, 2, 8, 1, { 21, 9 }, 1, false },
    { "whole sequences", 3, 40, 8, 2, 40, 3, { 40, 17, 1 }, 0, false },
    { "few tokens, a row of padding", 3, 70, 8, 2, 70, 4, { 3, 0, 70 }, 0, false },
    { "products", 2, 130, 8, 4, 130, 8, { 130, 77 }, 5, false },
    { "products of one tensor", 1, 96, 5, 3, 96, 9, { 61 }, 3, true },
    { "spans", 1, 600, 4, 2, 600, 2, { 530 }, 9, false },
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

static bool shown(const problem *p, int64_t b, int64_t i)
{
    return i < p->real[b] && !(i > 0 && i <= p->hidden);
}

/* x: k, v, scores. Returns the results of k and v in turn. */
static tp_tensor project(tp_tape *T, const tp_tensor *x, const void *env)
{
    const problem *p = env;
    uint8_t *m = calloc((size_t)(p->B * p->N), 1);
    for (int64_t i = 0; i < p->B * p->N; i++) m[i] = shown(p, i / p->N, i % p->N);
    const tp_tensor mask = tp_from(T, TP_U8, TP_SHAPE(p->B, p->N), m);
    free(m);
    if (p->one) return tp_chunk_project(T, x[0], x[2], mask, p->heads, p->chunk, p->rank);
    const tp_kv y = tp_chunk_project_kv(T, x[0], x[1], x[2], mask, p->heads, p->chunk, p->rank);
    return tp_concat_n(T, 1, 2, (tp_tensor[]){ y.k, y.v });
}

/* The weights p[l] of a chunk whose scores begin at z; returns false if it has no visible token. */
static bool weigh(const problem *p, int64_t b, int64_t first, const double *z, double *weight)
{
    double top = -INFINITY, sum = 0;
    for (int64_t s = 0; s < p->chunk; s++)
        if (shown(p, b, first + s)) top = fmax(top, z[s * p->heads * p->rank]);
    for (int64_t s = 0; s < p->chunk; s++) {
        weight[s] = shown(p, b, first + s) ? exp(z[s * p->heads * p->rank] - top) : 0;
        sum += weight[s];
    }
    for (int64_t s = 0; s < p->chunk && sum > 0; s++) weight[s] /= sum;
    return sum > 0;
}

/* Adds the results and gradients of column j of head h of a chunk of batch row b. */
static void add_column(const problem *p, const trial_result *r, int64_t b, int64_t chunk, int64_t h,
                       int64_t j, double *y, double **dx)
{
    const int64_t C = p->heads * p->D, rows = p->N / p->chunk * p->rank, first = chunk * p->chunk;
    const int64_t columns = (int64_t)p->heads * p->rank;
    const int64_t z = (b * p->N + first) * columns + h * p->rank + j;
    const int parts = p->one ? 1 : 2;
    double weight[1024], grad[1024] = { 0 }, mean = 0;
    if (!weigh(p, b, first, r->x[2] + z, weight)) return;
    for (int part = 0; part < parts; part++) {
        const int64_t to = ((b * parts + part) * rows + chunk * p->rank + j) * C + h * p->D;
        for (int64_t s = 0; s < p->chunk; s++)
            for (int64_t d = 0; d < p->D; d++) {
                const int64_t at = (b * p->N + first + s) * C + h * p->D + d;
                y[to + d] += weight[s] * r->x[part][at];
                dx[part][at] += weight[s] * r->dy[to + d];
                grad[s] += r->x[part][at] * r->dy[to + d];
            }
    }
    for (int64_t s = 0; s < p->chunk; s++) mean += weight[s] * grad[s];
    for (int64_t s = 0; s < p->chunk; s++) dx[2][z + s * columns] += weight[s] * (grad[s] - mean);
}

static void naive(const void *env, const trial_result *r, double *y, double **dx)
{
    const problem *p = env;
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t chunk = 0; chunk < p->N / p->chunk; chunk++)
            for (int64_t h = 0; h < p->heads; h++)
                for (int64_t j = 0; j < p->rank; j++) add_column(p, r, b, chunk, h, j, y, dx);
}

static trial trial_of(const problem *p, tp_dtype dt)
{
    trial t = { .f = project, .env = p, .dtype = dt, .compute = dt };
    for (int i = 0; i < 3; i++) t.in[i] = TP_SHAPE(p->B, p->N, p->heads * (i < 2 ? p->D : p->rank));
    if (p->one) t.in[1].ndim = 0;
    return t;
}

Test(chunk_project, equals_the_definition)
{
    for (int i = 0; i < PROBLEMS; i++)
        for (int k = 0; k < 6; k++) {
            const tp_dtype dt = k < 3 ? TP_F64 : TP_F32;
            trial t = trial_of(&problems[i], dt);
            t.isa = (tp_isa)(TP_ISA_BASE + k % 3);
            if (trial_can(dt, t.isa))
                trial_compare(&t, naive, problems[i].name, dt == TP_F64 ? 1e-13 : 5e-6);
        }
}

Test(chunk_project, bits_do_not_depend_on_threads)
{
    for (int i = 0; i < PROBLEMS; i++) {
        const trial t = trial_of(&problems[i], TP_F32);
        cr_expect(trial_same_on_threads(&t), "%s", problems[i].name);
    }
}

/* Hidden tokens may hold anything and get no gradient. */
Test(chunk_project, hidden_tokens_do_not_matter)
{
    for (int k = 0; k < PROBLEMS; k++) {
        const problem *p = &problems[k];
        trial t = trial_of(p, TP_F32);
        trial_result a = trial_run(&t);
        double *x[3] = { NULL };
        for (int i = 0; i < 3; i++) {
            if (t.in[i].ndim == 0) continue;
            const int64_t width = t.in[i].dim[2];
            x[i] = calloc((size_t)(p->B * p->N * width), sizeof *x[i]);
            for (int64_t e = 0; e < p->B * p->N * width; e++)
                x[i][e] = shown(p, e / width / p->N, e / width % p->N) ? a.x[i][e] : NAN;
            t.x[i] = x[i];
        }
        trial_result b = trial_run(&t);
        cr_expect_str_empty(b.why, "%s: %s", p->name, b.why);
        cr_expect_eq(values_error(a.y, b.y, a.ny, 0), 0.0, "%s", p->name);
        for (int i = 0; i < 3; i++) {
            if (x[i])
                cr_expect_eq(values_error(a.dx[i], b.dx[i], trial_count(&t.in[i]), 0), 0.0,
                             "%s: gradient %d", p->name, i);
            free(x[i]);
        }
        trial_free(&a);
        trial_free(&b);
    }
}

static tp_tensor wrong(tp_tape *T, const tp_tensor *x, const void *env)
{
    const tp_tensor mask = tp_full(T, TP_U8, *(const tp_shape *)env, 1.0);
    return tp_chunk_project_kv(T, x[0], x[1], x[2], mask, 2, 4, 1).v;
}

Test(chunk_project, refuses)
{
    tp_shape mask = TP_SHAPE(2, 7);
    trial t = { .f = wrong, .env = &mask, .dtype = TP_F32, .compute = TP_F32 };
    for (int i = 0; i < 3; i++) t.in[i] = TP_SHAPE(2, 8, i < 2 ? 6 : 2);
    cr_expect(trial_fails(&t, "chunk_project_kv: mask must be u8[B,N] = u8[2,8]"));
    mask = TP_SHAPE(2, 8);
    t.in[1] = TP_SHAPE(2, 8, 4);
    cr_expect(trial_fails(&t, "chunk_project_kv: k and v must be of one shape and dtype"));
}
