/* test_analyze.c - the numbers of `imagenet analyze` against plain arithmetic on the same models:
 * similarity, norms, light self-limited attention. test_analyze_span.c tests spans. */
#include <criterion/criterion.h>
#include <math.h>

#include "support/analysis.h"
#include "support/values.h"

/* ---- similarity ---- */

/* Returns the mean cosine of all token pairs of x [B,front+N,D] or [B,H,W,D]. */
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

/* The similarity after each block, computed from the model's parts; NAN where they hide it. */
static int of_lsla(analysis *a, double *want)
{
    const tp_vit_lsla *m = classifier_as(a->f.m, &tp_model_vit_lsla);
    tp_tape *T = a->f.t.T;
    tp_tensor x =
        tp_part_forward(T, &tp_model_vit_lsla, "stem", &m->stem, NULL, analysis_images(a));
    int n = 0;
    for (int i = 0; i < m->cfg.stages; i++) {
        for (int j = 0; j < m->cfg.depths[i]; j++, n++) {
            x = tp_part_forward(T, &tp_model_vit_lsla, "block", &m->block[n], NULL, x);
            want[n] = plain_cosine(T, x, 0);
        }
        if (i + 1 < m->cfg.stages)
            x = tp_part_forward(T, &tp_model_vit_lsla, "merge", &m->merge[i], NULL, x);
    }
    return n;
}

static int of_vil(analysis *a, double *want)
{
    const tp_vil *m = classifier_as(a->f.m, &tp_model_vil);
    tp_vil_out out[TP_VIL_MAX_STAGES];
    int n = 0;
    tp_part_forward(a->f.t.T, &tp_model_vil, "trunk", m, out, analysis_images(a));
    for (int i = 0; i < m->cfg.stages; i++) {
        for (int j = 0; j < m->cfg.stage[i].blocks; j++) want[n++] = NAN;
        want[n - 1] = plain_cosine(a->f.t.T, out[i].map, 0);
    }
    return n;
}

static int of_cvt(analysis *a, double *want)
{
    const tp_cvt *m = classifier_as(a->f.m, &tp_model_cvt);
    tp_tape *T = a->f.t.T;
    tp_tensor map = analysis_images(a);
    int n = 0;
    for (int i = 0; i < TP_CVT_STAGES; i++) {
        map = tp_part_forward(T, &tp_model_cvt, "embed", &m->embed[i], NULL, map);
        const tp_shape s = tp_shape_of(map);
        const int64_t B = s.dim[0], N = s.dim[1] * s.dim[2], D = s.dim[3];
        const int64_t front = i == TP_CVT_STAGES - 1;
        tp_tensor grid = tp_full(T, TP_F32, TP_SHAPE(s.dim[1], s.dim[2], 0), 0.0);
        tp_tensor x = tp_reshape(T, map, TP_SHAPE(B, N, D));
        if (front) x = tp_concat(T, 1, tp_expand(T, m->cls_token, TP_SHAPE(B, 1, D)), x);
        for (int j = 0; j < m->cfg.blocks[i]; j++, n++) {
            x = tp_part_forward(T, &tp_model_cvt, "block", &m->block[n], &grid, x);
            want[n] = plain_cosine(T, x, front);
        }
        if (!front) map = tp_reshape(T, x, s);
    }
    return n;
}

static int of_convnet(analysis *a, double *want)
{
    const tp_convnet *m = classifier_as(a->f.m, &tp_model_convnet);
    tp_tape *T = a->f.t.T;
    tp_tensor x = analysis_images(a);
    for (int i = 0; i < TP_CONVNET_LAYERS; i++) {
        x = tp_batchnorm_forward(T, &m->norm[i], tp_conv2d_forward(T, &m->conv[i], x));
        x = tp_relu(T, x);
        want[i] = plain_cosine(T, x, 0);
    }
    return TP_CONVNET_LAYERS;
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
        analysis_begin(&a, cases[i].preset);
        cr_assert(similarity_measure(&a, &got), "%s: %s", cases[i].preset, a.why);
        const int n = cases[i].plain(&a, want);
        cr_expect(tp_ok(a.f.t.T), "%s: %s", cases[i].preset, tp_why(a.f.t.T));
        cr_expect_eq(got.blocks, n, "%s: %d blocks", cases[i].preset, (int)got.blocks);
        for (int k = 0; k < n; k++)
            cr_expect(isnan(want[k]) || fabs(got.cosine[k] - want[k]) < 1e-9,
                      "%s, block %d: %.12g, not %.12g", cases[i].preset, k, got.cosine[k], want[k]);
        analysis_end(&a);
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
        double length = 0;
        for (int k = 0; k < cases[i].n; k++)
            length += row_norm(cases[i].x + 2 * k, 2) / (double)cases[i].n;
        cr_expect(fabs(mean - cases[i].mean) < 1e-12, "%s: %g", cases[i].name, mean);
        cr_expect(fabs(length - cases[i].length) < 1e-12, "%s: %g", cases[i].name, length);
    }
}

/* ---- norms ---- */

/* Before any norm, the first block equals that of the same model without DualLN, whose projections
 * the op computed. After both initialised norms, vectors of D elements have length sqrt(D) up to
 * epsilon. */
Test(analyze, norm_ratios)
{
    static norm_ratios with, without, vil;
    analysis a;
    analysis_begin_as(&a, "cvt-ls-small", false);
    cr_assert(norms_measure(&a, &with), "%s", a.why);
    analysis_end(&a);
    analysis_begin_as(&a, "cvt-ls-small", true);
    cr_assert(norms_measure(&a, &without), "%s", a.why);
    analysis_end(&a);
    analysis_begin_as(&a, "vil-ls-small", false);
    cr_assert(norms_measure(&a, &vil), "%s", a.why);
    analysis_end(&a);
    cr_expect(with.layers == 7 && without.layers == 7 && vil.layers == 3);
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

/* ---- light self-limited attention ---- */

/* The logits follow from the scores, and the weights from a softmax of the logits. No pair of the
 * default window is masked. */
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
        analysis_begin(&a, cases[i].preset);
        a.block = cases[i].block;
        cr_assert(lsla_measure(&a, &q), "%s: %s", cases[i].preset, a.why);
        const tp_vit_lsla *lsla = classifier_as(a.f.m, &tp_model_vit_lsla);
        const tp_lsla_attn_m *m = &lsla->block[a.block].attn;
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
        analysis_end(&a);
    }
}

/* The scores of the first block, computed from its input. */
Test(analyze, score_of_self_limited_attention)
{
    analysis a;
    lsla_query q;
    host_array query = { 0 }, x = { 0 };
    analysis_begin(&a, "lsla-small");
    cr_assert(analysis_choose(&a, 1), "%s", a.why);
    a.window = 2;
    a.query = 5;
    cr_assert(lsla_measure(&a, &q), "%s", a.why);
    const tp_vit_lsla *m = classifier_as(a.f.m, &tp_model_vit_lsla);
    tp_tape *T = a.f.t.T;
    tp_tensor map =
        tp_part_forward(T, &tp_model_vit_lsla, "stem", &m->stem, NULL, analysis_images(&a));
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
    analysis_end(&a);
}
