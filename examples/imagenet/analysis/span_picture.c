/* span_picture.c - the picture of what a token attends to: a row per block; the image, the parts (means
 * over the heads), then each head. */
#include <math.h>
#include <stdlib.h>

#include "analyze.h"

enum { SIDE = 120 }; /* of a map in the picture, in pixels */

static double total(const double *v, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += v[i];
    return sum;
}

/* True if a block sees the map through the dynamic projection as well. */
static bool has_long(const block_spans *s)
{
    for (int b = 0; b < s->blocks; b++)
        if (s->of[b].direct &&
            total(s->of[b].through, s->of[b].heads * s->of[b].rows * s->of[b].cols) > 0)
            return true;
    return false;
}

/* The maps of a block in percent: direct, through, both (means over the heads), then both for each head:
 * v [3 + heads,rows cols]. */
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

/* The row has one range of colours. */
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

/* The query's place in the map and in the image of `side` pixels. */
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
        "neighbourhood; long: the whole map, through the dynamic projection; both: their sum. These "
        "are means over the heads. Each block has one range of colours. What is missing to 100 % is "
        "on class and global tokens.";
    static const char without[] =
        "Where the query in the orange frame looks, in percent of its attention: the mean over the "
        "heads, then each head. Each block has one range of colours. What is missing to 100 % is on "
        "class and global tokens.";
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
    bool done = panels_new(&p, a, down, 1 + parts + heads) && analysis_photo(a, a->image, &photo);
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
