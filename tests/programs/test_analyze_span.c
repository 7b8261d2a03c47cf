/* test_analyze_span.c - the spans of `imagenet analyze` against plain arithmetic on the inputs of
 * the models' ops. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/analysis.h"

typedef struct span_check {
    const char *preset;
    analysis *a;
    int seen, joined; /* attentions, and those with weights through projections */
    host_array scores;
    bool normed;
} span_check;

/* Compares the query's y [heads D] with the span's: values times the weights `direct` (and
 * `through`), plus `rest`. */
static void expect_output(const span_check *c, const span *s, const host_array *v,
                          const host_array *y, int64_t front, int64_t at, const double *rest)
{
    const int64_t C = v->dim[2], D = C / s->heads, N = s->rows * s->cols;
    double worst = 0;
    for (int64_t i = 0; i < C; i++) {
        double sum = rest[i];
        for (int64_t j = 0; j < N; j++) {
            const double w = s->direct[i / D * N + j] + (c->normed ? 0 : s->through[i / D * N + j]);
            sum += w * v->v[(front + j) * C + i];
        }
        worst = fmax(worst, fabs(sum - y->v[at * C + i]));
    }
    cr_expect(worst < 1e-9, "%s, block %d: %g away from the op's result", c->preset, (int)c->a->at,
              worst);
    for (int64_t h = 0; h < s->heads; h++) {
        double all = s->front[h];
        for (int64_t j = 0; j < N; j++) all += s->direct[h * N + j] + s->through[h * N + j];
        cr_expect(fabs(all - 1) < 1e-12, "%s: the weights of head %d sum to %g", c->preset, (int)h,
                  all);
    }
}

/* Recomputes the softmax of each head by plain arithmetic, over keys in the op's order. rest: the
 * contribution of low-rank keys from `skip` on and of the tokens in front. */
static void rest_of(const window_seen *in, const host_array *v, const host_array *low_v,
                    int64_t row, int64_t col, int64_t skip, double *rest)
{
    const tp_window_attn_cfg *c = &in->cfg;
    const int64_t C = v->dim[2], D = C / c->heads, g = c->global, w = c->window[0];
    const int64_t low = in->low_k.v ? in->low_k.dim[1] : 0, halo = c->halo[0];
    const double scale = c->scale != 0 ? c->scale : 1 / sqrt((double)D);
    const int64_t reach = c->reach[0] ? c->reach[0] : w + halo - 1;
    const int64_t stride = c->stride ? c->stride : 2 * reach + 1;
    for (int64_t h = 0; h < c->heads; h++) {
        double sum = 0;
        for (int64_t i = 0; i < D; i++) rest[h * D + i] = 0;
        for (int64_t j = -low - g; j < c->height * c->width; j++) {
            const double *key, *value = NULL;
            double z = 0;
            if (j < -g) {
                key = in->low_k.v + (j + low + g) * C;
                if (j + low + g >= skip) value = low_v->v + (j + low + g) * C;
            } else {
                const int64_t y = j / c->width, x = j % c->width;
                key = in->k.v + (g + j) * C;
                if (j < 0) value = v->v + (g + j) * C;
                if (j < 0 && in->global_bias.v) z = in->global_bias.v[h * g + g + j];
                if (j >= 0 && (labs(y / w - row / w) > 1 || labs(x / w - col / w) > 1 ||
                               y < row / w * w - halo || y >= row / w * w + w + halo ||
                               x < col / w * w - halo || x >= col / w * w + w + halo))
                    continue;
                if (j >= 0 && in->table.v)
                    z = in->table.v[((row - y + reach) * stride + col - x + reach) * c->heads + h];
            }
            const double *q = in->q.v + (g + row * c->width + col) * C;
            for (int64_t i = 0; i < D; i++) z += scale * q[h * D + i] * key[h * D + i];
            sum += exp(z);
            for (int64_t i = 0; i < D && value; i++) rest[h * D + i] += exp(z) * value[h * D + i];
        }
        for (int64_t i = 0; i < D; i++) rest[h * D + i] /= sum;
    }
}

static void check_window(span_check *c, tp_tape *T, const tp_seen *s)
{
    window_seen in = { .scores = c->scores };
    host_array *const to[] = { &in.q, &in.k, NULL, &in.low_k, NULL, &in.table, &in.global_bias };
    host_array v = { 0 }, low_v = { 0 }, y = { 0 };
    double rest[1024];
    span of;
    for (int i = 0; i < 7; i++)
        if (to[i]) cr_assert(host_read(to[i], T, s->x[i]), "%s", tp_why(T));
    cr_assert(host_read(&v, T, s->x[2]) && host_read(&low_v, T, s->x[4]) &&
              host_read(&y, T, s->y[0]));
    memcpy(&in.cfg, s->attr, sizeof in.cfg);
    const int64_t row = in.cfg.height / 2, col = in.cfg.width - 1, H = in.cfg.heads;
    const int64_t rank = in.scores.v ? in.scores.dim[2] / H : 0;
    cr_assert(window_span(&of, &in, row, col), "%s", c->preset);
    rest_of(&in, &v, &low_v, row, col, c->normed ? 0 : rank, rest);
    expect_output(c, &of, &v, &y, in.cfg.global, row * in.cfg.width + col, rest);
    c->seen++;
    c->joined += rank > 0;
    in.scores = (host_array){ 0 };
    for (int i = 0; i < 7; i++)
        if (to[i]) host_free(to[i]);
    host_free(&v);
    host_free(&low_v);
    host_free(&y);
    span_free(&of);
}

static void check_attention(void *env, tp_tape *T, const tp_seen *s)
{
    span_check *c = env;
    if (analysis_ends_block(s)) host_free(&c->scores);
    if (strcmp(s->op->name, "chunk_project_kv") == 0) host_read(&c->scores, T, s->x[1]);
    if (strcmp(s->op->name, "window_attention_2d") == 0) check_window(c, T, s);
    if (strcmp(s->op->name, "attention") != 0 || !classifier_cfg_as(&c->a->f.cfg, &tp_model_cvt) ||
        tp_dim(s->x[0], 1) < 2)
        return;
    host_array q = { 0 }, k = { 0 }, v = { 0 }, y = { 0 }, none = { 0 };
    double rest[1024];
    span of;
    tp_attn_cfg cfg;
    memcpy(&cfg, s->attr, sizeof cfg);
    cr_assert(host_read(&q, T, s->x[0]) && host_read(&k, T, s->x[1]) && host_read(&v, T, s->x[2]) &&
              host_read(&y, T, s->y[0]));
    const int64_t front = analysis_front(&c->a->f.cfg, c->a->at), at = q.dim[1] - 1, C = v.dim[2];
    cr_assert(full_span(&of, &q, &k, &none, &cfg, front, at), "%s", c->preset);
    for (int64_t i = 0; i < C; i++) rest[i] = front ? of.front[i / (C / of.heads)] * v.v[i] : 0;
    expect_output(c, &of, &v, &y, front, at, rest);
    c->seen++;
    host_array *const all[] = { &q, &k, &v, &y };
    for (int i = 0; i < 4; i++) host_free(all[i]);
    span_free(&of);
}

/* A query's weights times the values equal the op's result. Without DualLN this includes weights of
 * tokens through the projection. */
Test(analyze, spans_equal_the_ops_results)
{
    static const struct {
        const char *preset;
        bool plain; /* without DualLN */
        int seen, joined;
    } cases[] = {
        { "vil-small", false, 7, 0 },    { "vil-ls-small", false, 7, 3 },
        { "cvt-ls-small", false, 7, 7 }, { "cvt-ls-small", true, 7, 7 },
        { "cvt-small", false, 7, 0 },    { "vil-full-small", false, 7, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        analysis a;
        analysis_begin_as(&a, cases[i].preset, cases[i].plain);
        span_check c = { .preset = cases[i].preset, .a = &a, .normed = !cases[i].plain };
        cr_assert(analysis_run_one(&a, check_attention, &c), "%s: %s", c.preset, a.why);
        cr_expect(c.seen == cases[i].seen && c.joined == cases[i].joined, "%s: %d, %d", c.preset,
                  c.seen, c.joined);
        host_free(&c.scores);
        analysis_end(&a);
    }
}
