/* lsla.c - light self-limited attention of one query of one window (Hechen et al. 2022, Figures 3
 * and 4): dynamic scale, biases, and weights before and after the outer bias, for each head and on
 * average. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"

typedef struct search {
    analysis *a;
    lsla_query *q;
    char why[200];
} search;

/* Reads the query's row of maps [windows,heads,n,n]. */
static void take_rows(const search *s, tp_tape *T, tp_tensor maps, double *to)
{
    const lsla_query *q = s->q;
    host_array h = { 0 };
    if (host_read(&h, T, maps))
        for (int64_t i = 0; i < q->heads * q->n; i++)
            to[i] = h.v[((s->a->window * q->heads + i / q->n) * q->n + q->query) * q->n + i % q->n];
    host_free(&h);
}

/* Reads the biases of the query's row from a table; leaves zeros if there is none. */
static void take_biases(const lsla_query *q, tp_tape *T, tp_tensor table, double *to)
{
    host_array h = { 0 };
    const int64_t w = q->side, a = q->query;
    if (host_read(&h, T, table))
        for (int64_t i = 0; i < q->heads * q->n && h.v; i++) {
            const int64_t b = i % q->n;
            const int64_t row = (a / w - b / w + w - 1) * (2 * w - 1) + a % w - b % w + w - 1;
            to[i] = h.v[row * q->heads + i / q->n];
        }
    host_free(&h);
}

/* Reads the dynamic scale, which all heads share, or the fixed one. */
static void take_scale(const lsla_query *q, tp_tape *T, tp_tensor scale, double *to)
{
    host_array h = { 0 };
    if (host_read(&h, T, scale))
        for (int64_t i = 0; i < q->heads * q->n; i++)
            to[i] = h.v ? h.v[q->query * q->n + i % q->n] : q->fixed;
    host_free(&h);
}

/* Finds the window's position in the image; the window's map is rolled by `shift`. */
static void place(search *s, const int64_t map[2], int64_t shift)
{
    lsla_query *q = s->q;
    const int64_t across = map[1] / q->side, stride = s->a->f.cfg.size / map[0];
    const int64_t first[2] = { s->a->window / across * q->side, s->a->window % across * q->side };
    for (int i = 0; i < 2; i++) q->pixel[i] = (first[i] + shift) % map[i] * stride;
    q->pixels = q->side * stride;
}

static bool choose(search *s, const tp_lsla_attn_m *m, const int64_t map[2])
{
    lsla_query *q = s->q;
    const int64_t w = m->window, n = w * w, windows = map[0] / w * (map[1] / w);
    const int64_t query = s->a->query >= 0 ? s->a->query : n > 7 ? 7 : n - 1;
    if (query >= n || s->a->window >= windows) {
        snprintf(s->why, sizeof s->why,
                 "lsla: block %lld has %lld windows of %lld tokens, numbered from 0",
                 (long long)s->a->at, (long long)windows, (long long)n);
        return false;
    }
    *q = (lsla_query){ .heads = m->heads, .side = w, .n = n, .query = query };
    for (int k = 0; k < LSLA_KINDS; k++) {
        q->v[k] = calloc((size_t)(q->heads * n), sizeof *q->v[k]);
        if (!q->v[k]) snprintf(s->why, sizeof s->why, "out of memory");
    }
    return !s->why[0];
}

/* x: the input of the block's attention. */
static void see_input(search *s, tp_tape *T, const tp_lsla_block *b, tp_tensor x)
{
    const tp_lsla_attn_m *m = &b->attn;
    const int64_t map[2] = { tp_dim(x, 1), tp_dim(x, 2) };
    const int64_t least = map[0] < map[1] ? map[0] : map[1],
                  shift = least > m->window ? b->shift : 0;
    lsla_query *q = s->q;
    if (!choose(s, m, map)) return;
    const tp_lsla_maps maps = tp_lsla_attn_maps(T, m, x, shift);
    place(s, map, shift);
    take_rows(s, T, maps.scores, q->v[LSLA_SCORE]);
    take_rows(s, T, maps.logits, q->v[LSLA_LOGIT]);
    take_rows(s, T, maps.before, q->v[LSLA_BEFORE]);
    take_rows(s, T, maps.after, q->v[LSLA_AFTER]);
    take_biases(q, T, m->inner, q->v[LSLA_INNER]);
    take_biases(q, T, m->outer, q->v[LSLA_OUTER]);
    q->fixed = sqrt((double)m->heads / (double)tp_dim(x, 3));
    take_scale(q, T, m->scale, q->v[LSLA_SCALE]);
    for (int64_t i = 0; i < q->heads * q->n && m->cfg.mask_outer; i++)
        if (q->v[LSLA_BEFORE][i] == q->v[LSLA_AFTER][i]) q->v[LSLA_OUTER][i] = 0; /* masked */
}

static void see(void *env, tp_tape *T, const tp_seen *seen)
{
    search *s = env;
    const int64_t block = s->a->block < 0 ? 0 : s->a->block;
    const tp_vit_lsla *m = classifier_as(s->a->f.m, &tp_model_vit_lsla);
    if (s->a->at == block && !s->q->n && !s->why[0] && strcmp(seen->op->name, "layernorm") == 0 &&
        tp_ends_in(seen->path, ".norm1"))
        see_input(s, T, &m->block[block], seen->y[0]);
}

void lsla_free(lsla_query *q)
{
    for (int k = 0; k < LSLA_KINDS; k++) free(q->v[k]);
    *q = (lsla_query){ 0 };
}

bool lsla_measure(analysis *a, lsla_query *q)
{
    search s = { .a = a, .q = q };
    *q = (lsla_query){ 0 };
    if (!classifier_cfg_as(&a->f.cfg, &tp_model_vit_lsla))
        return analysis_fail(a, "lsla: the model is not a ViT-LSLA");
    if (!analysis_run_one(a, see, &s)) return false;
    if (s.why[0]) return analysis_fail(a, "%s", s.why);
    return q->n > 0 || analysis_fail(a, "lsla: there is no block %lld", (long long)a->block);
}

/* ---- files ---- */

/* The columns have the paper's terms; head -1 is the mean over heads. */
static bool report(analysis *a, const lsla_query *q)
{
    const tp_vit_lsla_cfg *c = classifier_cfg_as(&a->f.cfg, &tp_model_vit_lsla);
    int64_t stage = 0, block = a->block < 0 ? 0 : a->block;
    tsv t;
    while (block >= c->depths[stage]) block -= c->depths[stage++];
    if (!tsv_begin(&t, a,
                   "layer\tblock\twindow\thead\tquery\tkey\tkey_row\tkey_col\tscale\tinner_bias\t"
                   "score\tlogit\tattn_before\touter_bias\tattn_after"))
        return false;
    for (int64_t h = -1; h < q->heads; h++)
        for (int64_t i = 0; i < q->n; i++) {
            fprintf(t.f, "%lld\t%lld\t%lld\t%lld\t%lld\t%lld\t%lld\t%lld", (long long)stage,
                    (long long)block, (long long)a->window, (long long)h, (long long)q->query,
                    (long long)i, (long long)(i / q->side), (long long)(i % q->side));
            for (int k = 0; k < LSLA_KINDS; k++)
                fprintf(t.f, "\t%.9g",
                        h < 0 ? analysis_mean(q->v[k], q->heads, q->n, i) : q->v[k][h * q->n + i]);
            fprintf(t.f, "\n");
        }
    printf("window %lld: pixels from row %lld, column %lld, %lld x %lld\n", (long long)a->window,
           (long long)q->pixel[0], (long long)q->pixel[1], (long long)q->pixels,
           (long long)q->pixels);
    return tsv_end(&t, a, "lsla.tsv");
}

bool lsla_draw(analysis *a)
{
    lsla_query q;
    if (!classifier_cfg_as(&a->f.cfg, &tp_model_vit_lsla) && !a->named) return true;
    if (!lsla_measure(a, &q)) return false;
    double *mean = malloc((size_t)(LSLA_KINDS * q.n + 1) * sizeof *mean);
    double *key = malloc((size_t)(q.n + 1) * sizeof *key);
    bool done = mean && key;
    if (!done) analysis_fail(a, "out of memory");
    for (int64_t i = 0; i < q.n && done; i++) {
        key[i] = (double)i;
        for (int k = 0; k < LSLA_KINDS; k++)
            mean[k * q.n + i] = analysis_mean(q.v[k], q.heads, q.n, i);
    }
    done = done && report(a, &q) && lsla_picture(a, &q, mean, key);
    free(mean);
    free(key);
    lsla_free(&q);
    return done;
}
