/* lsla.c - light self-limited attention of one query: numbers, maps beside the image and curves
 * over the keys. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"

/* ---- pictures ---- */

enum { MAPS = 5, SIDE = 120 };
static const struct {
    int kind;
    const char *name, *unit;
} drawn[MAPS] = {
    { LSLA_SCALE, "dynamic scale", "factor of q k" },
    { LSLA_INNER, "inner bias", "added to logits" },
    { LSLA_OUTER, "outer bias", "added to weights" },
    { LSLA_BEFORE, "before outer bias", "weight" },
    { LSLA_AFTER, "after outer bias", "weight" },
};

/* The darkest colour's magnitude: the largest distance from `zero` in a row of maps; for weights,
 * in both rows. */
static double limit_of(const lsla_query *q, int kind, double zero)
{
    const bool weights = kind == LSLA_BEFORE || kind == LSLA_AFTER;
    double most = 0;
    for (int64_t i = 0; i < q->heads * q->n; i++) {
        if (weights) most = fmax(most, fmax(q->v[LSLA_BEFORE][i], fabs(q->v[LSLA_AFTER][i])));
        most = fmax(most, fabs(q->v[kind][i] - zero));
    }
    return most;
}

/* A row of maps: mean over heads, then each head, on one scale. */
static void put_row(panels *p, const lsla_query *q, int row, const double *mean,
                    const panel_mark *query)
{
    const int kind = drawn[row].kind, heads = kind == LSLA_SCALE ? 0 : (int)q->heads;
    const double zero = kind == LSLA_SCALE ? q->fixed : 0, limit = limit_of(q, kind, zero);
    char title[80];
    for (int h = -1; h < heads; h++) {
        snprintf(title, sizeof title, "head %d", h);
        if (h < 0) snprintf(title, sizeof title, heads ? "mean of heads" : "all heads");
        panels_put(p, row, 2 + h,
                   (panel){ .kind = PANEL_HEAT,
                            .width = SIDE,
                            .height = SIDE,
                            .marks = query,
                            .nmarks = 1,
                            .heat = { .rows = q->side,
                                      .cols = q->side,
                                      .v = h < 0 ? mean + kind * q->n : q->v[kind] + h * q->n,
                                      .diverging = true,
                                      .least = zero - limit,
                                      .most = zero + limit,
                                      .no_bar = h >= 0,
                                      .unit = drawn[row].unit } },
                   title, h < 0 ? drawn[row].name : "");
    }
}

static void put_photo(panels *p, int row, const tp_image *photo, const panel_mark *m,
                      const char *title)
{
    panels_put(p, row, 0,
               (panel){ .kind = PANEL_IMAGE,
                        .width = SIDE,
                        .height = SIDE,
                        .marks = m,
                        .nmarks = 1,
                        .image = { photo } },
               title, "");
}

static void draw_maps(analysis *a, const lsla_query *q, const double *mean, const tp_image *photo,
                      const tp_image *window)
{
    static const char note[] =
        "One query of one window (orange frames) and the tokens of that window. White is the "
        "fixed scale 1/\u221aD for the dynamic one, 0 for the others; blue is more, red less. "
        "Each row has one range of colours, both kinds of weights the same.";
    const double token = (double)q->pixels / (double)q->side, pixels = (double)q->pixels;
    const double row = (double)(q->query / q->side), col = (double)(q->query % q->side);
    const panel_mark in_map = { row, col, 1, 1 };
    const panel_mark in_window = { row * token, col * token, token, token };
    const panel_mark in_photo = { (double)q->pixel[0], (double)q->pixel[1], pixels, pixels };
    char title[120];
    panels p;
    if (panels_new(&p, a, MAPS, 2 + (int)q->heads)) {
        put_photo(&p, 0, photo, &in_photo, "window");
        put_photo(&p, 1, window, &in_window, "query in it");
        for (int r = 0; r < MAPS; r++) put_row(&p, q, r, mean, &in_map);
        snprintf(title, sizeof title, "Light self-limited attention in block %lld, window %lld",
                 (long long)(a->block < 0 ? 0 : a->block), (long long)a->window);
        analysis_draw(a, (picture){ title, note, p.down, p.across, p.at }, OF_ONE_IMAGE, "lsla");
    }
    panels_free(&p);
}

static void draw_curves(analysis *a, const lsla_query *q, const double *mean, const double *key)
{
    const int n = (int)q->n;
    const curve biases[] = { { "dynamic scale", n, key, mean + LSLA_SCALE * q->n },
                             { "inner bias", n, key, mean + LSLA_INNER * q->n },
                             { "outer bias", n, key, mean + LSLA_OUTER * q->n } };
    const curve weights[] = { { "before the outer bias", n, key, mean + LSLA_BEFORE * q->n },
                              { "after it", n, key, mean + LSLA_AFTER * q->n } };
    panel p = { .kind = PANEL_CURVES,
                .across = "key: token of the window, row by row",
                .up = "mean over heads",
                .curves = { .n = 3, .at = biases, .whole = true } };
    char note[120];
    snprintf(note, sizeof note, "Block %lld, window %lld, query %lld.",
             (long long)(a->block < 0 ? 0 : a->block), (long long)a->window, (long long)q->query);
    analysis_draw(a, (picture){ "Scale and biases of the keys of a query", note, 1, 1, &p },
                  OF_ONE_IMAGE, "lsla-bias");
    p.up = "weight, mean over heads";
    p.curves.n = 2;
    p.curves.at = weights;
    analysis_draw(a, (picture){ "Weights of the keys of a query", note, 1, 1, &p }, OF_ONE_IMAGE,
                  "lsla-weights");
}

/* Draws the image and the part that the window sees. */
bool lsla_picture(analysis *a, const lsla_query *q, const double *mean, const double *key)
{
    tp_image photo = { 0 }, window = { 0 };
    const tp_box box = { q->pixel[1], q->pixel[0], q->pixels, q->pixels };
    bool done = analysis_photo(a, &photo);
    if (done && !tp_image_crop(&window, &photo, box, NULL))
        done = analysis_fail(a, "%s", window.why);
    if (done) {
        draw_maps(a, q, mean, &photo, &window);
        draw_curves(a, q, mean, key);
    }
    tp_image_free(&photo);
    tp_image_free(&window);
    return done;
}

/* ---- numbers ---- */

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

/* Reads the biases of the query's row from a table; zeros if there is none. */
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

/* Reads the dynamic scale, shared by all heads, or the fixed one. */
static void take_scale(const lsla_query *q, tp_tape *T, tp_tensor scale, double *to)
{
    host_array h = { 0 };
    if (host_read(&h, T, scale))
        for (int64_t i = 0; i < q->heads * q->n; i++)
            to[i] = h.v ? h.v[q->query * q->n + i % q->n] : q->fixed;
    host_free(&h);
}

/* Locates the window in the image; its map is rolled by `shift`. */
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

/* x: the attention's input. */
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
    if (!classifier_cfg_as(&a->f.cfg, &tp_model_vit_lsla)) {
        analysis_fail(a, "lsla: the model is not a ViT-LSLA%s%.300s", *a->model ? ": " : "",
                      a->model);
    } else if (analysis_run_one(a, see, &s)) {
        if (s.why[0])
            analysis_fail(a, "%s", s.why);
        else if (q->side == 0)
            analysis_fail(a, "lsla: there is no block %lld", (long long)a->block);
        else
            return true;
    }
    return false;
}

/* ---- files ---- */

/* The columns use the paper's terms; head -1 is the mean. */
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
