/* lsla_runs.c - the attention weights of one query in several ViT-LSLA models, as of one trained
 * with and one without the outer bias, in one picture. */
#include <stdlib.h>
#include <string.h>

#include "analyze.h"

bool lsla_weigh(analysis *a, lsla_weights *w)
{
    lsla_query q;
    *w = (lsla_weights){ 0 };
    bool done = lsla_measure(a, &q);
    if (done) {
        const size_t all = (size_t)(q.heads * q.n);
        *w = (lsla_weights){ .heads = q.heads, .side = q.side, .n = q.n, .query = q.query };
        snprintf(w->name, sizeof w->name, "%s", a->model);
        w->mean = calloc((size_t)(q.heads + 2) * (size_t)q.n, sizeof *w->mean);
        if (w->mean) {
            w->key = w->mean + q.n;
            w->head = w->key + q.n;
            memcpy(w->head, q.v[LSLA_AFTER], all * sizeof *w->head);
            for (int64_t i = 0; i < q.n; i++) {
                w->mean[i] = analysis_mean(w->head, q.heads, q.n, i);
                w->key[i] = (double)i;
            }
        }
        done = w->mean || analysis_fail(a, "out of memory");
    }
    lsla_free(&q);
    return done;
}

/* head -1 is the mean. */
static bool report(analysis *a, const lsla_weights w[], int n)
{
    tsv t;
    if (!tsv_begin(&t, a, "model\thead\tquery\tkey\tkey_row\tkey_col\tweight")) return false;
    for (int r = 0; r < n; r++)
        for (int64_t h = -1; h < w[r].heads; h++)
            for (int64_t i = 0; i < w[r].n; i++)
                fprintf(t.f, "%s\t%lld\t%lld\t%lld\t%lld\t%lld\t%.9g\n", w[r].name, (long long)h,
                        (long long)w[r].query, (long long)i, (long long)(i / w[r].side),
                        (long long)(i % w[r].side),
                        h < 0 ? w[r].mean[i] : w[r].head[h * w[r].n + i]);
    return tsv_end(&t, a, "lsla-runs.tsv");
}

bool lsla_draw_runs(analysis *a, const lsla_weights w[], int n)
{
    curve c[ANALYSIS_RUNS];
    char note[160];
    for (int r = 0; r < n; r++) {
        if (w[r].side != w[0].side)
            return analysis_fail(a, "lsla: the windows of %s have %lld tokens, those of %s %lld",
                                 w[r].name, (long long)w[r].n, w[0].name, (long long)w[0].n);
        c[r] = (curve){ w[r].name, (int)w[r].n, w[r].key, w[r].mean };
    }
    if (!report(a, w, n)) return false;
    const panel p = { .kind = PANEL_CURVES,
                      .across = "key: token of the window, row by row",
                      .up = "weight, mean over heads",
                      .curves = { .n = n, .at = c, .whole = true } };
    snprintf(note, sizeof note,
             "Block %lld, window %lld, query %lld. The weights that multiply the values: after the "
             "outer bias, if there is one.",
             (long long)(a->block < 0 ? 0 : a->block), (long long)a->window, (long long)w[0].query);
    a->model[0] = '\0'; /* the legend names them */
    analysis_draw(a,
                  (picture){ "Weights of the keys of a query in several models", note, 1, 1, &p },
                  OF_ONE_IMAGE, "lsla-runs");
    return true;
}
