/* test_analyze.c - the numbers of `imagenet analyze` against plain arithmetic on the same models,
 * and its files as a user gets them. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tapegrad/image.h>

#include "analyze.h"
#include "image_settings.h"
#include "support_folder.h"
#include "support_values.h"

#define IMAGENET TP_BIN_DIR "/imagenet"
enum { PICTURES = 3, SIDE = 32 };

/* ---- a model with random weights in f64, and pictures of noise ---- */

static void begin_as(analysis *a, const char *preset, bool no_dual_ln)
{
    image_settings s = { .accumulation = 1 };
    char why[256] = "";
    const int64_t n = (int64_t)PICTURES * SIDE * SIDE * 3;
    double *noise = malloc((size_t)n * sizeof *noise);
    *a = (analysis){ .n = PICTURES, .batch = 2, .block = -1, .query = -1 };
    cr_assert(image_preset(&s, preset, -1, why, sizeof why), "%s", why);
    s.size = SIDE;
    cr_assert(image_model(&s, 4, &a->f.cfg, why, sizeof why), "%s", why);
    free(s.preset);
    a->f.cfg.cvt.no_dual_ln = no_dual_ln;
    a->f.D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    a->f.P = tp_params_new(a->f.D, &(tp_params_opts){ .seed = 5, .dtype = TP_F64 });
    a->f.T = tp_tape_new(a->f.D, &(tp_tape_opts){ .compute = TP_F64 });
    a->f.m = calloc(1, sizeof *a->f.m);
    classifier_init(a->f.P, a->f.m, &a->f.cfg);
    tp_record(a->f.T, false);
    a->x = malloc((size_t)n * sizeof *a->x);
    values_random(noise, n, 7);
    for (int64_t i = 0; i < n; i++) a->x[i] = (float)noise[i];
    free(noise);
}

static void begin(analysis *a, const char *preset)
{
    begin_as(a, preset, false);
}

static void end(analysis *a)
{
    free(a->x);
    image_file_close(&a->f);
}

static tp_tensor pictures(analysis *a)
{
    tp_tape *T = a->f.T;
    tp_reset(T);
    return tp_cast(T, tp_from(T, TP_F32, TP_SHAPE(a->n, SIDE, SIDE, 3), a->x), TP_F64);
}

/* ---- similarity ---- */

/* Mean cosine of all pairs, pair by pair, of x [B,front+N,D] or [B,H,W,D]. */
static double plain_cosine(tp_tape *T, tp_tensor x, int64_t front)
{
    host_array h = { 0 };
    cr_assert(host_read(&h, T, x), "%s", tp_why(T));
    const int64_t D = tp_dim(x, -1), B = tp_dim(x, 0), N = h.numel / (B * D);
    double sum = 0;
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = front; i < N; i++)
            for (int64_t j = front; j < N; j++) {
                const double *p = h.v + (b * N + i) * D, *q = h.v + (b * N + j) * D;
                double pq = 0, pp = 0, qq = 0;
                for (int64_t c = 0; c < D; c++) {
                    pq += p[c] * q[c];
                    pp += p[c] * p[c];
                    qq += q[c] * q[c];
                }
                if (i != j) sum += pq / sqrt(pp * qq);
            }
    host_free(&h);
    const double pairs = (double)(N - front) * (double)(N - front - 1);
    return pairs > 0 ? sum / (pairs * (double)B) : 0;
}

/* The similarity after each block by the models' own parts, NAN where these do not show it. */
static int of_lsla(analysis *a, double *want)
{
    const tp_vit_lsla *m = &a->f.m->lsla;
    tp_tape *T = a->f.T;
    tp_tensor x = tp_lsla_stem_forward(T, &m->stem, pictures(a));
    int n = 0;
    for (int i = 0; i < m->cfg.stages; i++) {
        for (int j = 0; j < m->cfg.depths[i]; j++, n++) {
            x = tp_lsla_block_forward(T, &m->block[n], x);
            want[n] = plain_cosine(T, x, 0);
        }
        if (i + 1 < m->cfg.stages) x = tp_lsla_merge_forward(T, &m->merge[i], x);
    }
    return n;
}

static int of_vil(analysis *a, double *want)
{
    const tp_vil *m = &a->f.m->vil;
    tp_vil_out out[TP_VIL_MAX_STAGES];
    int n = 0;
    tp_vil_trunk(a->f.T, m, pictures(a), out);
    for (int i = 0; i < m->cfg.stages; i++) {
        for (int j = 0; j < m->cfg.stage[i].blocks; j++) want[n++] = NAN;
        want[n - 1] = plain_cosine(a->f.T, out[i].map, 0);
    }
    return n;
}

static int of_cvt(analysis *a, double *want)
{
    const tp_cvt *m = &a->f.m->cvt;
    tp_tape *T = a->f.T;
    tp_tensor map = pictures(a);
    int n = 0;
    for (int i = 0; i < TP_CVT_STAGES; i++) {
        map = tp_cvt_embed_forward(T, &m->embed[i], map);
        const tp_shape s = tp_shape_of(map);
        const int64_t B = s.dim[0], N = s.dim[1] * s.dim[2], D = s.dim[3];
        const int64_t front = i == TP_CVT_STAGES - 1;
        const tp_tensor grid = tp_full(T, TP_F32, TP_SHAPE(s.dim[1], s.dim[2], 0), 0.0);
        tp_tensor x = tp_reshape(T, map, TP_SHAPE(B, N, D));
        if (front) x = tp_concat(T, 1, tp_expand(T, m->cls_token, TP_SHAPE(B, 1, D)), x);
        for (int j = 0; j < m->cfg.blocks[i]; j++, n++) {
            x = tp_cvt_block_forward(T, &m->block[n], x, grid);
            want[n] = plain_cosine(T, x, front);
        }
        if (!front) map = tp_reshape(T, x, s);
    }
    return n;
}

static int of_convnet(analysis *a, double *want)
{
    const convnet *m = &a->f.m->convnet;
    tp_tape *T = a->f.T;
    tp_tensor x = pictures(a);
    for (int i = 0; i < CONVNET_LAYERS; i++) {
        x = tp_batchnorm_forward(T, &m->norm[i], tp_conv2d_forward(T, &m->conv[i], x));
        x = tp_relu(T, x);
        want[i] = plain_cosine(T, x, 0);
    }
    return CONVNET_LAYERS;
}

Test(analyze, similarity)
{
    static const struct {
        const char *preset;
        int (*plain)(analysis *a, double *want);
    } cases[] = {
        { "lsla-small", of_lsla },    { "vil-small", of_vil }, { "vil-ls-small", of_vil },
        { "vil-full-small", of_vil }, { "cvt-small", of_cvt }, { "cvt-ls-small", of_cvt },
        { "tiny", of_convnet },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static depth got;
        double want[DEPTH_MAX];
        analysis a;
        begin(&a, cases[i].preset);
        cr_assert(similarity_measure(&a, &got), "%s: %s", cases[i].preset, a.why);
        const int n = cases[i].plain(&a, want);
        cr_expect(tp_ok(a.f.T), "%s: %s", cases[i].preset, tp_why(a.f.T));
        cr_expect_eq(got.blocks, n, "%s: %d blocks", cases[i].preset, (int)got.blocks);
        for (int k = 0; k < n; k++)
            cr_expect(isnan(want[k]) || fabs(got.cosine[k] - want[k]) < 1e-9,
                      "%s, block %d: %.12g, not %.12g", cases[i].preset, k, got.cosine[k], want[k]);
        end(&a);
    }
}

Test(analyze, cosine_of_known_rows)
{
    static const struct {
        const char *name;
        double x[8], mean, length;
        int64_t n;
    } cases[] = {
        { "the same direction", { 1, 2, 2, 4, 3, 6 }, 1, 2 * 2.2360679774997896, 3 },
        { "opposite", { 3, 4, -3, -4 }, -1, 5, 2 },
        { "orthogonal", { 0, 2, 5, 0 }, 0, 3.5, 2 },
        { "one of zeros", { 0, 0, 1, 0, 1, 0 }, 1.0 / 3, 2.0 / 3, 3 },
        { "one row", { 3, 4 }, 0, 5, 1 },
    };
    double work[2];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double mean = mean_cosine(cases[i].x, cases[i].n, 2, work);
        const double length = mean_norm(cases[i].x, cases[i].n, 2);
        cr_expect(fabs(mean - cases[i].mean) < 1e-12, "%s: %g", cases[i].name, mean);
        cr_expect(fabs(length - cases[i].length) < 1e-12, "%s: %g", cases[i].name, length);
    }
}

/* ---- spans ---- */

typedef struct span_check {
    const char *preset;
    analysis *a;
    int seen, joined; /* attentions; those whose output needs the weights through projections */
    host_array scores;
    bool normed;
} span_check;

/* y [heads D] of the query made of a span: values times the weights `direct` (and `through`), and
 * what is in front. */
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

/* The softmax again, of one head, over keys in the order of the op, by plain arithmetic: what low
 * keys (with norms between: all of them) and the tokens in front add to the result. */
static void rest_of(const window_seen *in, const host_array *v, const host_array *low_v,
                    int64_t row, int64_t col, int64_t skip, double *rest)
{
    const tp_window_cfg *c = &in->cfg;
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
    if (strcmp(s->op->name, "chunk_project") == 0) host_read(&c->scores, T, s->x[1]);
    if (strcmp(s->op->name, "window_attention_2d") == 0) check_window(c, T, s);
    if (strcmp(s->op->name, "attention") != 0 || c->a->f.cfg.kind != FAMILY_CVT ||
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

/* What a query attends to, times the values, is what the op gave it. Without DualLN that holds for
 * the weights of tokens through the projection too. */
Test(analyze, spans_are_what_the_ops_compute)
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
        begin_as(&a, cases[i].preset, cases[i].plain);
        span_check c = { .preset = cases[i].preset, .a = &a, .normed = !cases[i].plain };
        cr_assert(analysis_run_one(&a, check_attention, &c), "%s: %s", c.preset, a.why);
        cr_expect(c.seen == cases[i].seen && c.joined == cases[i].joined, "%s: %d, %d", c.preset,
                  c.seen, c.joined);
        host_free(&c.scores);
        end(&a);
    }
}

/* ---- norms ---- */

/* Before any norm the first block of a model is that of the same one built without DualLN, whose
 * projections the op itself has made. With both norms, as they are initialised, vectors of D
 * elements are sqrt(D) long but for epsilon. */
Test(analyze, norm_ratios)
{
    static norm_ratios with, without, vil;
    analysis a;
    begin_as(&a, "cvt-ls-small", false);
    cr_assert(norms_measure(&a, &with), "%s", a.why);
    end(&a);
    begin_as(&a, "cvt-ls-small", true);
    cr_assert(norms_measure(&a, &without), "%s", a.why);
    end(&a);
    begin_as(&a, "vil-ls-small", false);
    cr_assert(norms_measure(&a, &vil), "%s", a.why);
    end(&a);
    cr_expect(with.blocks == 7 && without.blocks == 7 && vil.blocks == 3);
    for (int kv = 0; kv < 2; kv++)
        for (int k = 0; k < 2; k++) {
            const double x = with.without[0][kv][k], y = without.without[0][kv][k];
            cr_expect(x > 0 && fabs(x - y) < 1e-9 * y, "%d %d: %.12g, not %.12g", kv, k, x, y);
            for (int i = 0; i < 7; i++) {
                const double D = i < 1 ? 48 : i < 3 ? 96 : 192;
                cr_expect(with.dual[i] && fabs(with.with[i][kv][k] / sqrt(D) - 1) < 0.01,
                          "block %d: %g", i, with.with[i][kv][k]);
                cr_expect(without.has[i] && !without.dual[i], "block %d", i);
                if (i < 3)
                    cr_expect(vil.dual[i] && fabs(vil.with[i][kv][k] / sqrt(D) - 1) < 0.01,
                              "ViL-LS, block %d: %g", i, vil.with[i][kv][k]);
            }
        }
}

/* Three tokens, two heads of one element and two ranks, the scores such that the first head takes
 * token 1 and the mean, the second one token 2 and token 0. */
Test(analyze, projection_of_known_tokens)
{
    const double x[6] = { 1, 10, 2, 20, 6, 60 }, no = -1000;
    const double scores[12] = { no, 0.5, no, 0, 0, 0.5, no, no, no, 0.5, 0, no };
    const double want[4] = { 2, 60, 3, 10 };
    double out[4], work[3];
    project_rows(x, scores, 3, 2, 2, 2, out, work);
    cr_expect_lt(values_error(out, want, 4, 1), 1e-12);
}

/* ---- light self-limited attention ---- */

/* Scores by the queries and keys themselves, weights by a softmax of the logits. The window's first
 * row and column, of which no pair is masked. */
Test(analyze, self_limited_attention)
{
    static const struct {
        const char *preset;
        int64_t block;
    } cases[] = { { "lsla-small", 0 },
                  { "lsla-small", 1 },
                  { "lsla-inner-small", 0 },
                  { "lsla-full-small", 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        analysis a;
        lsla_query q;
        begin(&a, cases[i].preset);
        a.block = cases[i].block;
        cr_assert(lsla_measure(&a, &q), "%s: %s", cases[i].preset, a.why);
        const tp_lsla_attn_m *m = &a.f.m->lsla.block[a.block].attn;
        cr_expect(q.query == 7 && q.pixel[0] == (a.block == 1 ? 8 : 0), "%s: %d", cases[i].preset,
                  (int)q.pixel[0]);
        for (int64_t h = 0; h < q.heads; h++) {
            double sum = 0, weights = 0;
            for (int64_t k = 0; k < q.n; k++) sum += exp(q.v[LSLA_LOGIT][h * q.n + k]);
            for (int64_t k = 0; k < q.n; k++) {
                double v[LSLA_KINDS];
                for (int kind = 0; kind < LSLA_KINDS; kind++) v[kind] = q.v[kind][h * q.n + k];
                const double logit = v[LSLA_SCALE] * v[LSLA_SCORE] + v[LSLA_INNER];
                const double before = exp(v[LSLA_LOGIT]) / sum;
                weights += v[LSLA_BEFORE];
                cr_expect(
                    fabs(v[LSLA_LOGIT] - logit) < 1e-9 && fabs(v[LSLA_BEFORE] - before) < 1e-9 &&
                        fabs(v[LSLA_AFTER] - v[LSLA_BEFORE] - v[LSLA_OUTER]) < 1e-9,
                    "%s, block %d, head %d, key %d", cases[i].preset, (int)a.block, (int)h, (int)k);
                cr_expect_eq(v[LSLA_OUTER] != 0, tp_given(m->outer));
            }
            cr_expect(fabs(weights - 1) < 1e-9, "%s: %g", cases[i].preset, weights);
        }
        lsla_free(&q);
        end(&a);
    }
}

/* The score of a pair: the first block's, from its input made by the model's parts. */
Test(analyze, score_of_self_limited_attention)
{
    analysis a;
    lsla_query q;
    host_array query = { 0 }, x = { 0 };
    begin(&a, "lsla-small");
    a.picture = 1;
    a.window = 2;
    a.query = 5;
    cr_assert(lsla_measure(&a, &q), "%s", a.why);
    const tp_vit_lsla *m = &a.f.m->lsla;
    tp_tape *T = a.f.T;
    tp_tensor map = tp_lsla_stem_forward(T, &m->stem, pictures(&a));
    map = tp_layernorm_forward(T, &m->block[0].norm1, map);
    cr_assert(host_read(&query, T, tp_linear_forward(T, &m->block[0].attn.q, map)) &&
              host_read(&x, T, map));
    const int64_t cols = x.dim[2], C = x.dim[3], D = C / q.heads, w = q.side, across = cols / w;
    for (int64_t i = 0; i < q.heads * q.n; i++) {
        const int64_t h = i / q.n, key = i % q.n, y0 = 2 / across * w, x0 = 2 % across * w;
        const int64_t from = x.dim[1] * cols + (y0 + 5 / w) * cols + x0 + 5 % w;
        const int64_t to = x.dim[1] * cols + (y0 + key / w) * cols + x0 + key % w;
        double score = 0;
        for (int64_t c = h * D; c < (h + 1) * D; c++)
            score += query.v[from * C + c] * x.v[to * C + c];
        cr_expect(fabs(q.v[LSLA_SCORE][i] - score) < 1e-9, "head %d, key %d: %g, not %g", (int)h,
                  (int)key, q.v[LSLA_SCORE][i], score);
    }
    host_free(&query);
    host_free(&x);
    lsla_free(&q);
    end(&a);
}

/* ---- the program ---- */

static char said[20000];

static int run(const char *args)
{
    char command[1024];
    snprintf(command, sizeof command, "OMP_WAIT_POLICY=passive %s %s >said 2>&1", IMAGENET, args);
    const int status = system(command);
    FILE *f = fopen("said", "r");
    said[f ? fread(said, 1, sizeof said - 1, f) : 0] = '\0';
    if (f) fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void succeed(const char *args)
{
    const int status = run(args);
    cr_assert(status == 0, "imagenet %s: status %d\n%s", args, status, said);
}

/* Lines of a file below its first, which must be the names. */
static int lines_of(const char *name, const char *columns)
{
    char line[512] = "";
    int n = 0;
    FILE *f = fopen(name, "r");
    cr_assert(f && fgets(line, sizeof line, f), "%s", name);
    line[strcspn(line, "\n")] = '\0';
    cr_expect_str_eq(line, columns, "%s", name);
    while (fgets(line, sizeof line, f)) n++;
    fclose(f);
    return n;
}

static void expect_picture(const char *name, int64_t width, int64_t height)
{
    tp_image p = { 0 };
    cr_expect(tp_image_read(&p, name, &(tp_image_opts){ .strict = true }), "%s: %s", name, p.why);
    cr_expect(p.width == width && p.height == height, "%s: %d x %d", name, (int)p.width,
              (int)p.height);
    tp_image_free(&p);
}

static void begin_folder(void)
{
    make_folder();
    cr_assert(chdir(folder) == 0);
}

static void end_folder(void)
{
    cr_assert(chdir("/") == 0);
    remove_folder();
}

TestSuite(program, .init = begin_folder, .fini = end_folder, .timeout = 300);

#define SMALL "--threads 1 --shapes 20 --size 32 --batch 10 --epochs 1 "

/* The biases of block 0 are those of the checkpoint's table, at the specification's places: with a
 * window of w and half = w/2 row (down + half + w - 1)(2 half + w) + across + half + w - 1. */
static void expect_biases(const char *name, const char *checkpoint)
{
    enum { REACH = 5, STRIDE = 8, ROWS = 91 }; /* w = 4 */
    char line[256], kind[16];
    int n = 0, block, head, down, across;
    double value;
    float table[ROWS];
    tp_file *F = tp_file_open(checkpoint);
    const tp_file_tensor *t = tp_file_find(F, "layer1.1.attn.local_relative_position_bias_table");
    cr_assert(t && t->shape.dim[0] == ROWS && tp_file_read(F, t, TP_F32, table), "%s",
              tp_file_why(F));
    tp_file_close(F);
    FILE *f = fopen(name, "r");
    cr_assert(f, "%s", name);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%d %15s %d %d %d %lf", &block, kind, &head, &down, &across, &value) < 6 ||
            block > 0)
            continue;
        const int row = (down + REACH) * STRIDE + across + REACH;
        cr_expect(fabs(value - (double)table[row]) < 1e-8 * fabs(value), "%s", line);
        n++;
    }
    fclose(f);
    cr_expect_eq(n, (2 * REACH + 1) * (2 * REACH + 1), "%d", n);
}

static int64_t grid(int64_t maps)
{
    return maps * (HEAT_TILE + HEAT_GAP) + HEAT_GAP;
}

Test(program, files)
{
    const bool gnuplot = system("command -v gnuplot >/dev/null") == 0;
    succeed("train " SMALL "--preset vil-ls-small --run-dir run");
    succeed("train " SMALL "--preset lsla-small --run-dir other");
    succeed("analyze other --run-dir run --pictures 5 --batch 2 --threads 1");
    /* maps of 8, 4, 4, 2 ... tokens a side with 1, 2 and 4 heads; head -1; a line for what is in
     * front */
    const int spans = 2 * (64 + 1) + 2 * 3 * (16 + 1) + 4 * 5 * (4 + 1);
    cr_expect_eq(lines_of("run/analysis/similarity.tsv", "block\ttokens\tcosine"), 7);
    cr_expect_eq(lines_of("run/analysis/norms.tsv",
                          "block\tdual_ln\tkeys\tprojected_keys\tkey_ratio\tvalues\t"
                          "projected_values\tvalue_ratio"),
                 6);
    cr_expect_eq(lines_of("run/analysis/span.tsv", "block\thead\trow\tcol\tdirect\tthrough\ttotal"),
                 spans);
    lines_of("run/analysis/bias.tsv", "block\ttable\thead\tdown\tacross\tbias");
    expect_biases("run/analysis/bias.tsv", "run/best.safetensors");
    expect_picture("run/analysis/span.png", grid(7), grid(7));
    expect_picture("run/analysis/bias.png", grid(4), grid(7));
    succeed("analyze --run-dir other --what lsla --block 2 --threads 1 --out lsla");
    cr_expect_eq(lines_of("lsla/lsla.tsv",
                          "layer\tblock\twindow\thead\tquery\tkey\tkey_row\tkey_col\tscale\t"
                          "inner_bias\tscore\tlogit\tattn_before\touter_bias\tattn_after"),
                 5 * 16);
    expect_picture("lsla/lsla.png", grid(5), grid(5));
    succeed("analyze --what resolution --preset tiny,convnet --sizes 8,16 --seconds 0.01 "
            "--batch 2 --threads 1 --out sizes");
    cr_expect_eq(lines_of("sizes/resolution.tsv", "preset\tsize\tbatch\tforward_ms\tforward_mb\t"
                                                  "step_ms\tstep_mb"),
                 4);
    succeed(
        "analyze --fresh --preset cvt-ls-small --what norms --pictures 4 --threads 1 --out new");
    if (!gnuplot) return;
    static const char *const drawn[] = {
        "run/analysis/similarity.png",
        "run/analysis/norms.png",
        "lsla/lsla-bias.png",
        "lsla/lsla-weights.png",
        "new/norms.png",
        "sizes/resolution-forward.png",
        "sizes/resolution-step.png",
        "sizes/resolution-memory.png",
    };
    for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++)
        expect_picture(drawn[i], CURVES_WIDTH, CURVES_HEIGHT);
}

Test(program, refusals)
{
    static const struct {
        const char *args;
        int status;
        const char *message;
    } cases[] = {
        { "--run-dir gone", 1, "gone: there is no such run" },
        { "--what resolution --sizes 64,x --out o", 1, "--sizes: 'x' is no size from 8 to 4096" },
        { "--what resolution --preset none --out o", 1, "--preset: 'none' is none of tiny," },
        { "--what resolution --preset lsla-small --sizes 40 --out o", 1,
          "lsla-small at 40 pixels: " },
        { "--what nothing", 2, "--what: " },
        { "--fresh --out o", 1, "--fresh: name the model by --preset" },
        { "--fresh --preset tiny --what lsla --out o", 1, "lsla: the model is no ViT-LSLA" },
        { "--fresh --preset tiny --what span --out o", 1,
          "span: no block of the model has attention over windows" },
        { "--fresh --preset lsla-small --what lsla --block 9 --out o", 1,
          "lsla: there is no block 9" },
        { "--fresh --preset tiny --what bias --block 1 --out o", 1,
          "bias: block 1 of the model has no tables" },
        { "--fresh --preset lsla-small --what lsla --window 16 --out o", 1,
          "lsla: block 0 has 16 windows of 16 tokens" },
        { "--fresh --preset tiny --picture 70 --out o", 1, "--picture: there are 64 pictures" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char args[256];
        snprintf(args, sizeof args, "analyze %s", cases[i].args);
        const int status = run(args);
        cr_expect_eq(status, cases[i].status, "%s: status %d", args, status);
        cr_expect(strstr(said, cases[i].message), "%s:\n%s", args, said);
    }
}
