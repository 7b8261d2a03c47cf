/* norms.c - the ratio of mean l2 norms of the window's keys and values to those of the dynamic
 * projection, by block (Zhu et al. 2021, Figure 2).
 *
 * without: before DualLN, with projections of unnormalised keys and values. with: as the attention
 * reads them. A model without DualLN has only the former. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"

typedef struct norms {
    analysis *a;
    norm_ratios *r;
    host_array raw[2], scores; /* of a block: keys and values before DualLN; projection scores */
    int raws;
} norms;

/* Adds the norms of rows front .. of x [B,front+N,C] to to[0], and those of the first rank rows of
 * low [B,..,C] to to[1]. low NULL: projects x itself. */
static void add(norms *s, tp_tape *T, const host_array *x, const host_array *low, int64_t front,
                int64_t heads, double to[2])
{
    const int64_t B = x->dim[0], rows = x->dim[1], N = rows - front, C = x->dim[2];
    const int64_t rank = s->scores.dim[2] / heads;
    double *work = malloc((size_t)N * sizeof *work);
    double *made = malloc((size_t)(rank * C) * sizeof *made);
    if (!work || !made) tp_raise(T, TP_E_MEMORY, "out of host memory");
    for (int64_t b = 0; b < B && work && made; b++) {
        const double *local = x->v + (b * rows + front) * C;
        const double *projected = low ? low->v + b * low->dim[1] * C : made;
        if (!low)
            project_rows(local, s->scores.v + b * N * heads * rank, N, C, heads, rank, made, work);
        to[0] += mean_norm(local, N, C);
        to[1] += mean_norm(projected, rank, C);
    }
    free(work);
    free(made);
}

/* Adds the norms of the window attention's inputs. kv: 0 keys, 1 values. */
static void see_attention(norms *s, tp_tape *T, const tp_seen *seen)
{
    tp_window_attn_cfg cfg;
    norm_ratios *r = s->r;
    const int64_t i = s->a->at;
    memcpy(&cfg, seen->attr, sizeof cfg);
    for (int kv = 0; kv < 2; kv++) {
        host_array x = { 0 }, low = { 0 };
        if (host_read(&x, T, seen->x[1 + kv]) && host_read(&low, T, seen->x[3 + kv])) {
            if (s->raws == 2) {
                add(s, T, &s->raw[kv], NULL, cfg.global, cfg.heads, r->without[i][kv]);
                add(s, T, &x, &low, cfg.global, cfg.heads, r->with[i][kv]);
            } else {
                add(s, T, &x, &low, cfg.global, cfg.heads, r->without[i][kv]);
            }
        }
        host_free(&x);
        host_free(&low);
    }
    r->has[i] = true;
    r->dual[i] = s->raws == 2;
    r->blocks = i + 1;
}

static void forget(norms *s)
{
    host_free(&s->raw[0]);
    host_free(&s->raw[1]);
    host_free(&s->scores);
    s->raws = 0;
}

static void see(void *env, tp_tape *T, const tp_seen *seen)
{
    norms *s = env;
    const char *name = seen->op->name;
    if (analysis_ends_block(seen)) forget(s);
    if (s->a->at >= DEPTH_MAX) return;
    /* Only a block's first two; the class token's follow. */
    if (s->raws < 2 && strcmp(name, "layernorm") == 0 && tp_ends_in(seen->path, "dual_ln_full"))
        host_read(&s->raw[s->raws++], T, seen->x[0]);
    if (strcmp(name, "chunk_project_kv") == 0) host_read(&s->scores, T, seen->x[1]);
    if (strcmp(name, "window_attention_2d") == 0 && s->scores.v) see_attention(s, T, seen);
}

bool norms_measure(analysis *a, norm_ratios *r)
{
    norms s = { .a = a, .r = r };
    memset(r, 0, sizeof *r);
    const bool done = analysis_run(a, see, &s);
    forget(&s);
    for (int64_t i = 0; i < r->blocks; i++)
        for (int kv = 0; kv < 2; kv++)
            for (int k = 0; k < 2; k++) {
                r->without[i][kv][k] /= (double)a->n;
                r->with[i][kv][k] /= (double)a->n;
            }
    return done;
}

static void print(FILE *f, int64_t block, const char *state, double x[2][2])
{
    fprintf(f, "%lld\t%s\t%.9g\t%.9g\t%.9g\t%.9g\t%.9g\t%.9g\n", (long long)block, state, x[0][0],
            x[0][1], x[0][0] / x[0][1], x[1][0], x[1][1], x[1][0] / x[1][1]);
}

static void draw(analysis *a, norm_ratios *r)
{
    static double number[DEPTH_MAX], ratio[4][DEPTH_MAX];
    static const char *const names[4] = { "keys without DualLN", "values without DualLN",
                                          "keys with DualLN", "values with DualLN" };
    curve c[4];
    int n = 0;
    bool dual = false;
    for (int64_t i = 0; i < r->blocks; i++) {
        if (!r->has[i]) continue;
        number[n] = (double)i;
        for (int kv = 0; kv < 2; kv++) {
            ratio[kv][n] = r->without[i][kv][0] / r->without[i][kv][1];
            ratio[2 + kv][n] = r->dual[i] ? r->with[i][kv][0] / r->with[i][kv][1] : NAN;
        }
        dual |= r->dual[i];
        n++;
    }
    for (int k = 0; k < 4; k++) c[k] = (curve){ names[k], n, number, ratio[k] };
    const panel p = { .kind = PANEL_CURVES,
                      .across = "block",
                      .up = "norm in window / norm of projections",
                      .curves = { .n = dual ? 4 : 2, .at = c, .whole = true } };
    analysis_draw(a,
                  (picture){ "Norms of keys and values",
                             "Mean norm of the window's keys and values over that of the projected "
                             "ones. At 1 one softmax can weigh both fairly, which DualLN is for.",
                             1, 1, &p },
                  OF_ALL_IMAGES, "norms");
}

bool norms_draw(analysis *a)
{
    static norm_ratios r;
    tsv t;
    if (!norms_measure(a, &r)) return false;
    if (r.blocks == 0) return analysis_none(a, "norms", "long-short attention");
    if (!tsv_begin(&t, a,
                   "block\tdual_ln\tkeys\tprojected_keys\tkey_ratio\tvalues\t"
                   "projected_values\tvalue_ratio"))
        return false;
    for (int64_t i = 0; i < r.blocks; i++) {
        if (r.has[i]) print(t.f, i, "without", r.without[i]);
        if (r.dual[i]) print(t.f, i, "with", r.with[i]);
    }
    if (!tsv_end(&t, a, "norms.tsv")) return false;
    draw(a, &r);
    return true;
}
