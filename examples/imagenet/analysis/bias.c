/* bias.c - draws the learned relative position biases as maps: one value per offset of a query from
 * a key, offset zero in the middle. Shared table entries (ViL-LS) appear once per offset. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"

typedef struct bias {
    int64_t block, heads, reach[2], map[2]; /* map: rows and columns of tokens */
    const char *kind;
    double *v; /* [heads,2 reach[0] + 1,2 reach[1] + 1] */
} bias;

enum { TABLES = 2 * DEPTH_MAX };

typedef struct tables {
    analysis *a;
    bias *at; /* [TABLES] */
    int n;
} tables;

static void take(tables *s, tp_tape *T, tp_tensor table, const char *kind, const int64_t reach[2],
                 int64_t stride, const int64_t map[2])
{
    host_array h = { 0 };
    const analysis *a = s->a;
    if (!tp_given(table) || s->n == TABLES || (a->block >= 0 && a->block != a->at)) return;
    if (!host_read(&h, T, table)) return;
    const int64_t H = h.dim[1], rows = 2 * reach[0] + 1, cols = 2 * reach[1] + 1;
    bias *b = &s->at[s->n];
    *b = (bias){ a->at, H, { reach[0], reach[1] }, { map[0], map[1] }, kind, NULL };
    b->v = malloc((size_t)(H * rows * cols) * sizeof *b->v);
    if (!b->v) tp_raise(T, TP_E_MEMORY, "out of host memory");
    for (int64_t i = 0; b->v && i < H * rows * cols; i++)
        b->v[i] = h.v[(i / cols % rows * stride + i % cols) * H + i / (rows * cols)];
    s->n += b->v != NULL;
    host_free(&h);
}

static void see(void *env, tp_tape *T, const tp_seen *seen)
{
    tables *s = env;
    int64_t reach[2];
    if (strcmp(seen->op->name, "window_attention_2d") == 0) {
        tp_window_attn_cfg c;
        memcpy(&c, seen->attr, sizeof c);
        for (int i = 0; i < 2; i++)
            reach[i] = c.reach[i] ? c.reach[i] : c.window[i] + c.halo[i] - 1;
        take(s, T, seen->x[5], "local", reach, c.stride ? c.stride : 2 * reach[1] + 1,
             (int64_t[2]){ c.height, c.width });
    } else if (strcmp(seen->op->name, "lsla_attention") == 0) {
        tp_lsla_attn_cfg c;
        memcpy(&c, seen->attr, sizeof c);
        reach[0] = reach[1] = c.window - 1;
        const int64_t map[2] = { tp_dim(seen->x[0], 1), tp_dim(seen->x[0], 2) };
        take(s, T, seen->x[4], "inner", reach, 2 * c.window - 1, map);
        take(s, T, seen->x[5], "outer", reach, 2 * c.window - 1, map);
    }
}

static bool report(analysis *a, const tables *s)
{
    tsv t;
    if (!tsv_begin(&t, a, "block\ttable\thead\tdown\tacross\tbias")) return false;
    for (int k = 0; k < s->n; k++) {
        const bias *b = &s->at[k];
        const int64_t rows = 2 * b->reach[0] + 1, cols = 2 * b->reach[1] + 1;
        for (int64_t i = 0; i < b->heads * rows * cols; i++)
            fprintf(t.f, "%lld\t%s\t%lld\t%lld\t%lld\t%.9g\n", (long long)b->block, b->kind,
                    (long long)(i / (rows * cols)), (long long)(i / cols % rows - b->reach[0]),
                    (long long)(i % cols - b->reach[1]), b->v[i]);
    }
    return tsv_end(&t, a, "bias.tsv");
}

/* ---- the picture: a row per table; the image with a key and the table's reach, then each head
 * ---- */

enum { SIDE = 150 };

/* Marks the key, and the queries within the table's reach. */
static void mark(const analysis *a, const bias *b, panel_mark in_photo[2])
{
    const double at[2] = { a->row, a->col };
    double from[2][2], length[2][2];
    for (int k = 0; k < 2; k++) {
        const double n = (double)b->map[k], token = (double)a->f.cfg.size / n;
        const double key = floor(at[k] * n), reach = (double)b->reach[k];
        const double low = fmax(key - reach, 0), high = fmin(key + reach + 1, n);
        from[0][k] = key * token;
        length[0][k] = token;
        from[1][k] = low * token;
        length[1][k] = (high - low) * token;
    }
    for (int i = 0; i < 2; i++)
        in_photo[i] = (panel_mark){ from[i][0], from[i][1], length[i][0], length[i][1] };
}

static void put_row(panels *p, const bias *b, int row, const tp_image *photo,
                    const panel_mark *marks)
{
    const int64_t rows = 2 * b->reach[0] + 1, cols = 2 * b->reach[1] + 1;
    double most = 0;
    char up[80], title[80];
    for (int64_t i = 0; i < b->heads * rows * cols; i++) most = fmax(most, fabs(b->v[i]));
    snprintf(up, sizeof up, "block %lld, %s", (long long)b->block, b->kind);
    panels_put(p, row, 0,
               (panel){ .kind = PANEL_IMAGE,
                        .width = SIDE,
                        .height = SIDE,
                        .marks = marks,
                        .nmarks = 2,
                        .image = { photo } },
               "key and reach", up);
    for (int h = 0; h < b->heads; h++) {
        snprintf(title, sizeof title, "head %d", h);
        panels_put(p, row, 1 + h,
                   (panel){ .kind = PANEL_HEAT,
                            .across = row + 1 == p->down ? "columns" : NULL,
                            .width = SIDE,
                            .height = SIDE,
                            .heat = { .rows = rows,
                                      .cols = cols,
                                      .v = b->v + h * rows * cols,
                                      .diverging = true,
                                      .least = -most,
                                      .most = most,
                                      .no_bar = h > 0,
                                      .unit = strcmp(b->kind, "outer") ? "added to logits"
                                                                       : "added to weights",
                                      .numbered = true,
                                      .first_row = -(double)b->reach[0],
                                      .first_col = -(double)b->reach[1] } },
                   title, h ? "" : "rows");
    }
}

static bool draw(analysis *a, const tables *s)
{
    static const char note[] =
        "Each cell is the bias of a query that many rows and columns from its key: blue favours "
        "it, red avoids it. One range of colours per table. In the image: a key, and the queries "
        "within reach of the table.";
    int heads = 1;
    for (int k = 0; k < s->n; k++)
        if (s->at[k].heads > heads) heads = (int)s->at[k].heads;
    panels p;
    tp_image photo = { 0 };
    panel_mark(*marks)[2] = calloc((size_t)s->n, sizeof *marks);
    const bool done = panels_new(&p, a, s->n, 1 + heads) && analysis_photo(a, &photo) &&
                      (marks || analysis_fail(a, "out of memory"));
    for (int k = 0; marks && k < s->n && done; k++) {
        mark(a, &s->at[k], marks[k]);
        put_row(&p, &s->at[k], k, &photo, marks[k]);
    }
    if (done)
        analysis_draw(a, (picture){ "Relative position biases", note, p.down, p.across, p.at },
                      OF_ONE_IMAGE, "bias");
    free(marks);
    panels_free(&p);
    tp_image_free(&photo);
    return done;
}

bool bias_draw(analysis *a)
{
    tables s = { .a = a, .at = calloc(TABLES, sizeof *s.at) };
    bool done = s.at ? analysis_run_one(a, see, &s) : analysis_fail(a, "out of memory");
    if (done && s.n == 0) done = analysis_none(a, "bias", "relative position bias tables");
    if (done && s.n > 0) done = report(a, &s) && draw(a, &s);
    for (int k = 0; k < s.n; k++) free(s.at[k].v);
    free(s.at);
    return done;
}
