/* span.c - what a token attends to: each block's key weights, drawn as a row per block: the image,
 * the parts (means over heads), then each head. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"

/* ---- pictures ---- */

enum { SIDE = 120 }; /* side of a map in pixels */

static double total(const double *v, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += v[i];
    return sum;
}

/* Does a block also see the map through the dynamic projection? */
static bool has_long(const block_spans *s)
{
    for (int b = 0; b < s->blocks; b++)
        if (s->of[b].direct &&
            total(s->of[b].through, s->of[b].heads * s->of[b].rows * s->of[b].cols) > 0)
            return true;
    return false;
}

/* Fills a block's maps, in percent: direct, through, both (means over heads), then both per head: v
 * [3 + heads,rows cols]. */
static void fill(const span *s, double *v)
{
    const int64_t N = s->rows * s->cols, H = s->heads;
    for (int64_t i = 0; i < N; i++) {
        v[i] = 100 * analysis_mean(s->direct, H, N, i);
        v[N + i] = 100 * analysis_mean(s->through, H, N, i);
        v[2 * N + i] = v[i] + v[N + i];
    }
    for (int64_t i = 0; i < H * N; i++) v[3 * N + i] = 100 * (s->direct[i] + s->through[i]);
}

typedef struct block_row {
    int row, block, parts; /* parts: columns of means */
    const span *of;
    bool full;
    const double *v;
    panel_mark in_map, in_photo; /* the query */
} block_row;

/* The row shares one colour range. */
static void put_row(panels *p, const block_row *r, const tp_image *photo)
{
    static const char *const names[] = { "window", "long", "both" };
    const int64_t N = r->of->rows * r->of->cols;
    const int H = (int)r->of->heads, first = r->parts == 1 ? 2 : 0;
    double most = 0;
    char title[80], up[80];
    for (int64_t i = 0; i < (3 + H) * N; i++) most = fmax(most, r->v[i]);
    snprintf(up, sizeof up, "block %d", r->block);
    snprintf(title, sizeof title, "query, %lld \u00d7 %lld", (long long)r->of->rows,
             (long long)r->of->cols);
    panels_put(p, r->row, 0,
               (panel){ .kind = PANEL_IMAGE,
                        .width = SIDE,
                        .height = SIDE,
                        .marks = &r->in_photo,
                        .nmarks = 1,
                        .image = { photo } },
               title, up);
    for (int m = first; m < 3 + H; m++) {
        const char *part = m < 3 && r->parts > 1 ? names[m] : r->full ? "whole map" : "window";
        if (m < 3)
            snprintf(title, sizeof title, "%s: %.0f %%", part, total(r->v + m * N, N));
        else
            snprintf(title, sizeof title, "head %d: %.0f %%", m - 3, total(r->v + m * N, N));
        panels_put(p, r->row, 1 + m - first,
                   (panel){ .kind = PANEL_HEAT,
                            .width = SIDE,
                            .height = SIDE,
                            .marks = &r->in_map,
                            .nmarks = 1,
                            .heat = { .rows = r->of->rows,
                                      .cols = r->of->cols,
                                      .v = r->v + m * N,
                                      .most = most,
                                      .no_bar = m != 2,
                                      .unit = "weight, %" } },
                   title, "");
    }
}

/* Locates the query in the map and in the image of `side` pixels. */
static void mark(block_row *r, const analysis *a)
{
    const double row = floor(a->row * (double)r->of->rows), height = 1 / (double)r->of->rows;
    const double col = floor(a->col * (double)r->of->cols), width = 1 / (double)r->of->cols;
    const double side = (double)a->f.cfg.size;
    r->in_map = (panel_mark){ row, col, 1, 1 };
    r->in_photo =
        (panel_mark){ side * row * height, side * col * width, side * height, side * width };
}

static bool fill_rows(analysis *a, const block_spans *s, panels *p, const tp_image *photo,
                      block_row *row, double **v, int parts)
{
    int n = 0;
    for (int b = 0; b < s->blocks; b++) {
        const span *of = &s->of[b];
        if (!of->direct) continue;
        v[n] = calloc((size_t)((of->heads + 3) * of->rows * of->cols + 1), sizeof **v);
        if (!v[n]) return analysis_fail(a, "out of memory");
        fill(of, v[n]);
        row[n] = (block_row){
            .row = n, .block = b, .parts = parts, .of = of, .full = s->full[b], .v = v[n]
        };
        mark(&row[n], a);
        put_row(p, &row[n], photo);
        n++;
    }
    return true;
}

bool span_picture(analysis *a, const block_spans *s)
{
    static const char with_long[] =
        "Where the query in the orange frame looks, in percent of its attention. window: its "
        "neighbourhood; long: the whole map, through the dynamic projection; both: their sum. "
        "These are means over the heads. Each block has one range of colours. What is missing to "
        "100 % is on class and global tokens.";
    static const char without[] =
        "Where the query in the orange frame looks, in percent of its attention: the mean over "
        "the heads, then each head. Each block has one range of colours. What is missing to 100 % "
        "is on class and global tokens.";
    const int parts = has_long(s) ? 3 : 1;
    int heads = 0, down = 0;
    for (int b = 0; b < s->blocks; b++) {
        if (s->of[b].direct) down++;
        if (s->of[b].heads > heads) heads = (int)s->of[b].heads;
    }
    panels p;
    tp_image photo = { 0 };
    block_row *row = calloc((size_t)down + 1, sizeof *row);
    double **v = calloc((size_t)down + 1, sizeof *v);
    bool done = panels_new(&p, a, down, 1 + parts + heads) && analysis_photo(a, &photo);
    if (row && v)
        done = done && fill_rows(a, s, &p, &photo, row, v, parts);
    else
        done = analysis_fail(a, "out of memory");
    if (done)
        analysis_draw(a,
                      (picture){ "What a token attends to", parts > 1 ? with_long : without, p.down,
                                 p.across, p.at },
                      OF_ONE_IMAGE, "span");
    for (int i = 0; v && i < down; i++) free(v[i]);
    free(v);
    free(row);
    panels_free(&p);
    tp_image_free(&photo);
    return done;
}

/* ---- numbers ---- */

typedef struct spans {
    analysis *a;
    window_seen in; /* scores: of the block's projection */
    block_spans *found;
    bool failed;
} spans;

static bool wanted(const spans *s)
{
    const analysis *a = s->a;
    return (a->block < 0 || a->block == a->at) && a->at < DEPTH_MAX && !s->found->of[a->at].direct;
}

static void take(spans *s, bool done)
{
    s->found->blocks = (int)s->a->at + 1;
    if (!done) s->failed = true;
}

static void see_window(spans *s, tp_tape *T, const tp_seen *seen)
{
    host_array *const to[] = { &s->in.q,     &s->in.k,          NULL, &s->in.low_k, NULL,
                               &s->in.table, &s->in.global_bias };
    for (int i = 0; i < 7; i++)
        if (to[i] && !host_read(to[i], T, seen->x[i])) return;
    memcpy(&s->in.cfg, seen->attr, sizeof s->in.cfg);
    const int64_t row = (int64_t)(s->a->row * (double)s->in.cfg.height);
    const int64_t col = (int64_t)(s->a->col * (double)s->in.cfg.width);
    take(s, window_span(&s->found->of[s->a->at], &s->in, row, col));
}

/* Do the model's tp_attention ops cover the whole map? */
static bool is_full(const analysis *a)
{
    const tp_vil *vil = classifier_as(a->f.m, &tp_model_vil);
    const tp_cvt *cvt = classifier_as(a->f.m, &tp_model_cvt);
    if (vil) return vil->block[a->at].attn.kind == TP_VIL_FULL;
    return cvt && !cvt->cfg.long_short;
}

static void see_full(spans *s, tp_tape *T, const tp_seen *seen)
{
    const int64_t front = analysis_front(&s->a->f.cfg, s->a->at);
    const int64_t N = tp_dim(seen->x[0], 1) - front;
    int64_t side = 0;
    host_array bias = { 0 };
    tp_attn_cfg cfg;
    if (N < 1) return; /* only global tokens */
    while ((side + 1) * (side + 1) <= N) side++;
    memcpy(&cfg, seen->attr, sizeof cfg);
    if (host_read(&s->in.q, T, seen->x[0]) && host_read(&s->in.k, T, seen->x[1]) &&
        host_read(&bias, T, seen->x[4])) {
        const int64_t row = (int64_t)(s->a->row * (double)side);
        const int64_t col = (int64_t)(s->a->col * (double)side);
        s->found->full[s->a->at] = true;
        take(s, full_span(&s->found->of[s->a->at], &s->in.q, &s->in.k, &bias, &cfg, front,
                          front + row * side + col));
    }
    host_free(&bias);
}

static void see(void *env, tp_tape *T, const tp_seen *seen)
{
    spans *s = env;
    const char *name = seen->op->name;
    if (analysis_ends_block(seen)) host_free(&s->in.scores);
    if (!wanted(s)) return;
    if (strcmp(name, "chunk_project_kv") == 0) host_read(&s->in.scores, T, seen->x[1]);
    if (strcmp(name, "window_attention_2d") == 0) see_window(s, T, seen);
    if (strcmp(name, "attention") == 0 && is_full(s->a)) see_full(s, T, seen);
}

static void print_span(FILE *f, int block, const span *s)
{
    const int64_t N = s->rows * s->cols, H = s->heads;
    for (int64_t h = -1; h < H; h++) {
        const double front = h < 0 ? analysis_mean(s->front, H, 1, 0) : s->front[h];
        fprintf(f, "%d\t%lld\t-1\t-1\t%.9g\t0\t%.9g\n", block, (long long)h, front, front);
        for (int64_t i = 0; i < N; i++) {
            const double direct = h < 0 ? analysis_mean(s->direct, H, N, i) : s->direct[h * N + i];
            const double through =
                h < 0 ? analysis_mean(s->through, H, N, i) : s->through[h * N + i];
            fprintf(f, "%d\t%lld\t%lld\t%lld\t%.9g\t%.9g\t%.9g\n", block, (long long)h,
                    (long long)(i / s->cols), (long long)(i % s->cols), direct, through,
                    direct + through);
        }
    }
}

static bool report(analysis *a, const block_spans *s)
{
    tsv t;
    if (!tsv_begin(&t, a, "block\thead\trow\tcol\tdirect\tthrough\ttotal")) return false;
    for (int b = 0; b < s->blocks; b++)
        if (s->of[b].direct) print_span(t.f, b, &s->of[b]);
    return tsv_end(&t, a, "span.tsv") && span_picture(a, s);
}

bool span_draw(analysis *a)
{
    static block_spans found;
    spans s = { .a = a, .found = &found };
    bool done = analysis_run_one(a, see, &s);
    if (done && s.failed)
        done = analysis_fail(a, "span: out of memory, or a kind of window that has no map");
    if (done && found.blocks == 0)
        done = analysis_none(a, "span", "attention over windows or the whole map");
    if (done && found.blocks > 0) done = report(a, &found);
    for (int b = 0; b < DEPTH_MAX; b++) span_free(&found.of[b]);
    host_array *const used[] = { &s.in.q,     &s.in.k,           &s.in.low_k,
                                 &s.in.table, &s.in.global_bias, &s.in.scores };
    for (int i = 0; i < 6; i++) host_free(used[i]);
    return done;
}
