/* bias.c - the learned relative position bias tables as maps: the bias for each offset of a query
 * from a key, with offset zero in the middle. A table entry that several offsets share (ViL-LS)
 * appears once for each of them. */
#include <stdlib.h>
#include <string.h>

#include "analyze.h"

typedef struct bias {
    int64_t block, heads, reach[2];
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
                 int64_t stride)
{
    host_array h = { 0 };
    const analysis *a = s->a;
    if (!tp_given(table) || s->n == TABLES || (a->block >= 0 && a->block != a->at)) return;
    if (!host_read(&h, T, table)) return;
    const int64_t H = h.dim[1], rows = 2 * reach[0] + 1, cols = 2 * reach[1] + 1;
    bias *b = &s->at[s->n];
    *b = (bias){ a->at, H, { reach[0], reach[1] }, kind, NULL };
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
        take(s, T, seen->x[5], "local", reach, c.stride ? c.stride : 2 * reach[1] + 1);
    } else if (strcmp(seen->op->name, "lsla_attention") == 0) {
        tp_lsla_attn_cfg c;
        memcpy(&c, seen->attr, sizeof c);
        reach[0] = reach[1] = c.window - 1;
        take(s, T, seen->x[4], "inner", reach, 2 * c.window - 1);
        take(s, T, seen->x[5], "outer", reach, 2 * c.window - 1);
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

/* One row per table, one column per head. */
static bool draw(analysis *a, const tables *s)
{
    int across = 1;
    for (int k = 0; k < s->n; k++)
        if (s->at[k].heads > across) across = (int)s->at[k].heads;
    heat_map *at = calloc((size_t)s->n * (size_t)across, sizeof *at);
    if (!at) return analysis_fail(a, "out of memory");
    for (int k = 0; k < s->n; k++) {
        const bias *b = &s->at[k];
        const int64_t rows = 2 * b->reach[0] + 1, cols = 2 * b->reach[1] + 1;
        for (int64_t h = 0; h < b->heads; h++)
            at[k * across + h] = (heat_map){ rows, cols, b->v + h * rows * cols, 0, 0, -1 };
    }
    const bool done = analysis_heat(a, at, s->n, across, "bias.png");
    free(at);
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
