/* norms.c - observes the ops of long-short attention: of images and documents
 * (window_attention_2d), and of language models (ls_attention).
 *
 * Language models project unnormalised keys, so what enters DualLN's second norm is `without`. The
 * others project normalised ones; the projection is repeated here with what entered the first
 * norm. */
#include "norms.h"

#include <math.h>
#include <string.h>
#include <tapegrad/ops.h>

#include "host_array.h"

enum { WINDOW, PROJECTION };

/* Rows first .. first + n - 1 of x [B,R,C], or of x [R,C]; n < 0: all of them. */
typedef struct rows {
    tp_tensor x;
    int64_t first, n;
    tp_tensor mask; /* [B,R] or TP_NONE */
} rows;

/* Adds their norms and their number. */
static void add(double *sum, double *count, tp_tape *T, rows of)
{
    host_array h = { 0 }, seen = { 0 };
    if (host_read(&h, T, of.x) && host_read(&seen, T, of.mask)) {
        const bool packed = tp_ndim(of.x) == 2;
        const int64_t R = h.dim[packed ? 0 : 1], C = h.dim[packed ? 1 : 2];
        const int64_t B = packed ? 1 : h.dim[0], end = of.n < 0 ? R : of.first + of.n;
        for (int64_t b = 0; b < B; b++)
            for (int64_t i = of.first; i < end; i++) {
                if (seen.v && seen.v[b * R + i] == 0) continue;
                *sum += row_norm(h.v + (b * R + i) * C, C);
                ++*count;
            }
    }
    host_free(&h);
    host_free(&seen);
}

static rows all_of(tp_tensor x)
{
    return (rows){ x, 0, -1, TP_NONE };
}

static void add_to(norms *s, bool with, int kv, int part, tp_tape *T, rows of)
{
    norm_ratios *r = s->r;
    double *sum = with ? &r->with[s->layer][kv][part] : &r->without[s->layer][kv][part];
    add(sum, &s->rows[s->layer][with][kv][part], T, of);
}

/* Adds the projections before DualLN that were seen. */
static void add_projected(norms *s, int kv)
{
    s->r->without[s->layer][kv][PROJECTION] += s->projected[kv];
    s->rows[s->layer][0][kv][PROJECTION] += s->vectors[kv];
}

static void forget(norms *s)
{
    s->raws = s->calls = 0;
    s->rank = 0;
    memset(s->projected, 0, sizeof s->projected);
    memset(s->vectors, 0, sizeof s->vectors);
}

static void end_layer(norms *s, bool has, bool dual)
{
    if (has) {
        s->r->has[s->layer] = true;
        s->r->dual[s->layer] = dual;
        if (s->r->layers <= s->layer) s->r->layers = s->layer + 1;
    }
    s->layer++;
    if (s->layer == s->layers) s->layer = 0;
    forget(s);
}

/* x: q, k, v, low_k, low_v, ..., x[7] the mask. low: the projections and a class token. */
static void see_windows(norms *s, tp_tape *T, const tp_seen *seen)
{
    tp_window_attn_cfg cfg;
    memcpy(&cfg, seen->attr, sizeof cfg);
    const bool has = s->rank > 0 && cfg.window[0] > 0, dual = s->raws == 2;
    const tp_tensor mask = seen->x[7];
    for (int kv = 0; kv < 2 && has; kv++) {
        const tp_tensor x = seen->x[1 + kv], low = seen->x[3 + kv];
        const int64_t g = cfg.global, n = tp_dim(x, tp_ndim(x) - 2) - g;
        const int64_t first = s->class_first ? tp_dim(low, 1) - s->rank : 0;
        add_to(s, dual, kv, WINDOW, T, (rows){ x, g, n, mask });
        add_to(s, dual, kv, PROJECTION, T, (rows){ low, first, s->rank, TP_NONE });
        if (!dual) continue;
        add_to(s, false, kv, WINDOW, T, (rows){ s->raw[kv], g, n, mask });
        add_projected(s, kv);
    }
    end_layer(s, has, dual);
}

/* x: q, k and v of the window, k and v of the projections. The window's rows are the last ones that
 * were normalised. */
static void see_language(norms *s, tp_tape *T, const tp_seen *seen)
{
    const bool has = tp_given(seen->x[1]) && tp_given(seen->x[3]), dual = s->raws == 2;
    for (int kv = 0; kv < 2 && has; kv++) {
        add_to(s, dual, kv, WINDOW, T, all_of(seen->x[1 + kv]));
        add_to(s, dual, kv, PROJECTION, T, all_of(seen->x[3 + kv]));
        if (!dual) continue;
        const int64_t n = tp_dim(seen->x[1], 1), all = tp_dim(s->raw[kv], 1);
        add_to(s, false, kv, WINDOW, T, (rows){ s->raw[kv], all - n, n, TP_NONE });
        add_projected(s, kv);
    }
    end_layer(s, has, dual);
}

/* Repeats the projection x: k, scores, mask, v, ... with unnormalised rows; leading ones of global
 * tokens are not projected. */
static void project_raw(norms *s, tp_tape *T, const tp_seen *seen)
{
    tp_tensor x[8], y[2];
    if (seen->nx > 8) return;
    memcpy(x, seen->x, (size_t)seen->nx * sizeof *x);
    for (int kv = 0; kv < 2; kv++) {
        tp_tensor *to = &x[kv ? 3 : 0];
        const int axis = tp_ndim(*to) - 2;
        const int64_t n = tp_dim(*to, axis), all = tp_dim(s->raw[kv], axis);
        *to = n < all ? tp_slice(T, s->raw[kv], axis, all - n, n) : s->raw[kv];
    }
    tp_apply_n(T, seen->op, seen->attr, seen->nx, x, 2, y);
    for (int kv = 0; kv < 2; kv++) add(&s->projected[kv], &s->vectors[kv], T, all_of(y[kv]));
}

static bool is_first_norm(const char *path)
{
    return tp_ends_in(path, "dual_ln_full") || tp_ends_in(path, "dual_ln_l") ||
           tp_ends_in(path, "dual_ln_win");
}

/* x: an input of a norm. */
static void see_norm(norms *s, tp_tape *T, const tp_seen *seen, tp_tensor x)
{
    if (is_first_norm(seen->path)) {
        if (s->path != seen->path) forget(s); /* of a layer whose attention did not run */
        s->path = seen->path;
        s->language = tp_ends_in(seen->path, "dual_ln_win");
        if (s->raws < 2) s->raw[s->raws++] = x; /* class tokens follow */
    } else if (tp_ends_in(seen->path, "dual_ln_dproj")) {
        const int kv = s->calls++ % 2; /* of the cache, then of the segment */
        add(&s->projected[kv], &s->vectors[kv], T, all_of(x));
    }
}

void norms_see(void *env, tp_tape *T, const tp_seen *seen)
{
    norms *s = env;
    const char *name = seen->op->name;
    if (s->layer >= NORM_LAYERS) return;
    if (strcmp(name, "layernorm") == 0) see_norm(s, T, seen, seen->x[0]);
    for (int i = 0; i < 4 && strcmp(name, "layernorm_kv") == 0; i += 3) /* k, w, b, v */
        see_norm(s, T, seen, seen->x[i]);
    if (strcmp(name, "ls_attention") == 0) see_language(s, T, seen);
    if (strcmp(name, "window_attention_2d") == 0) see_windows(s, T, seen);
    if (strcmp(name, "chunk_project_kv") == 0) {
        s->rank = tp_dim(seen->y[0], 1);
        if (s->raws == 2 && !s->language) project_raw(s, T, seen);
    }
}

bool norms_end(norms *s)
{
    norm_ratios *r = s->r;
    for (int64_t i = 0; i < r->layers; i++)
        for (int kv = 0; kv < 2; kv++)
            for (int part = 0; part < 2; part++) {
                if (!r->has[i]) continue;
                r->without[i][kv][part] /= s->rows[i][0][kv][part];
                if (r->dual[i]) r->with[i][kv][part] /= s->rows[i][1][kv][part];
            }
    return r->layers > 0;
}

/* ---- results ---- */

static void print_row(FILE *f, int64_t layer, const char *state, const double x[2][2])
{
    fprintf(f, "%lld\t%s\t%.9g\t%.9g\t%.9g\t%.9g\t%.9g\t%.9g\n", (long long)layer, state, x[0][0],
            x[0][1], x[0][0] / x[0][1], x[1][0], x[1][1], x[1][0] / x[1][1]);
}

void norms_table(const norm_ratios *r, FILE *f)
{
    for (int64_t i = 0; i < r->layers; i++) {
        if (r->has[i]) print_row(f, i, "without", r->without[i]);
        if (r->dual[i]) print_row(f, i, "with", r->with[i]);
    }
}

int norms_curves(const norm_ratios *r, norm_curves *c)
{
    static const char *const names[NORM_CURVES] = { "keys without DualLN", "values without DualLN",
                                                    "keys with DualLN", "values with DualLN" };
    int n = 0;
    bool dual = false;
    for (int64_t i = 0; i < r->layers; i++) {
        if (!r->has[i]) continue;
        c->number[n] = (double)i;
        for (int kv = 0; kv < 2; kv++) {
            c->y[kv][n] = r->without[i][kv][0] / r->without[i][kv][1];
            c->y[2 + kv][n] = r->dual[i] ? r->with[i][kv][0] / r->with[i][kv][1] : NAN;
        }
        dual |= r->dual[i];
        n++;
    }
    for (int k = 0; k < NORM_CURVES; k++) c->at[k] = (curve){ names[k], n, c->number, c->y[k] };
    return dual ? 4 : 2;
}
