/* cost.c - closed forms of the multiply-adds and activation memory of CvT, CvT* and CvT*-LS, for
 * one image. Like the paper, window scores count all (w + 2s)^2 keys, including those outside the
 * map. */
#include <tapegrad/cvt.h>

/* The sizes of one stage. */
typedef struct stage {
    double N, D, C;        /* tokens of the map, width, width of the input          */
    double taps;           /* of the token embedding                                */
    double rows, keys;     /* c + N, c + N'                                         */
    double M;              /* N', features as keys                                  */
    double dense, dense_k; /* rows that pass the linear parts of q, and of k and v  */
    double cls, blocks, r, near, heads;
    bool proj;
} stage;

static int64_t strided(int64_t n, int64_t stride)
{
    return (n - 1) / stride + 1;
}

/* The sizes of stage s. *H x *W is the map before the stage, and is set to the map after it. */
static stage stage_of(const tp_cvt_cfg *c, int s, int64_t *H, int64_t *W)
{
    const int64_t kernel = s == 0 ? 7 : 3, stride = s == 0 ? 4 : 2, pad = s == 0 ? 2 : 1;
    const int64_t w = c->window[s], reach = w > 1 ? w / 2 : 1, span = w + 2 * reach;
    *H = (*H + 2 * pad - kernel) / stride + 1;
    *W = (*W + 2 * pad - kernel) / stride + 1;
    stage z = {
        .N = (double)(*H * *W),
        .D = (double)c->dim[s],
        .C = s == 0 ? 3.0 : (double)c->dim[s - 1],
        .taps = (double)(kernel * kernel),
        .M = (double)(strided(*H, c->kv_stride) * strided(*W, c->kv_stride)),
        .cls = s == TP_CVT_STAGES - 1 && !c->mean_pool ? 1.0 : 0.0,
        .blocks = c->blocks[s],
        .r = c->long_short ? (double)c->rank[s] : 0.0,
        .near = c->long_short ? (double)(span * span) : 0.0,
        .heads = c->heads[s],
        .proj = c->heads[s] > 1 || c->single_proj,
    };
    z.rows = z.N + z.cls;
    z.keys = z.M + z.cls;
    z.dense = c->raw_class ? z.N : z.rows;
    z.dense_k = c->raw_class ? z.M : z.keys;
    return z;
}

/* Multiply-adds of one block. */
static double block_macs(const tp_cvt_cfg *c, const stage *z)
{
    const double N = z->N, D = z->D, DD = D * D;
    const double linear =
        (z->dense + 2.0 * z->dense_k) * DD + (z->proj ? z->rows * DD : 0.0) + 8.0 * z->rows * DD;
    const double depthwise = 9.0 * (N + 2.0 * z->M) * D;

    if (!c->long_short) return depthwise + linear + 2.0 * z->rows * z->keys * D;
    const double dynamic = 9.0 * N * D + N * D * z->heads * z->r + 2.0 * N * z->r * D;
    const double seen = 2.0 * N * (z->r + z->near) * D;
    return depthwise + linear + dynamic + seen + z->cls * (2.0 * N + 2.0 * (N + 1.0)) * D;
}

tp_flops tp_cvt_flops(const tp_cvt_cfg *cfg)
{
    if (!cfg) return (tp_flops){ 0 };
    const double D = (double)cfg->dim[TP_CVT_STAGES - 1];
    int64_t height = cfg->image[0], width = cfg->image[1];
    tp_flops f = { .macs = D * (double)cfg->classes };

    for (int s = 0; s < TP_CVT_STAGES; s++) {
        const stage z = stage_of(cfg, s, &height, &width);
        const bool dual = cfg->long_short && !cfg->raw_kv;
        const double normed = (dual ? 4.0 : 2.0) * z.rows + (dual ? 2.0 * z.r : 0.0);
        f.macs += z.N * z.D * z.C * z.taps + z.blocks * block_macs(cfg, &z);
        f.norm += z.N * z.D + z.blocks * normed * z.D;
        f.batchnorm += z.blocks * (z.N + 2.0 * z.M) * z.D;
        if (s == TP_CVT_STAGES - 1) f.norm += (cfg->mean_pool ? z.N : 1.0) * D;
    }
    f.paper = f.macs;
    return f;
}

/* ---- activations, in values ---- */

/* Values that full attention saves in addition to its input: the map; the output of each
 * convolution before and after its batch norm; queries, keys and values; its output and
 * log-sum-exp. */
static double full_values(const stage *z)
{
    const double inputs = z->N + 2.0 * z->M, linear = z->dense + 2.0 * z->dense_k;
    return (z->N + inputs + linear + z->rows + 2.0 * z->keys + z->rows) * z->D + z->rows * z->heads;
}

/* Long-short attention also saves keys and values before their norm, the scores of the dynamic
 * projection and their convolution, the projected keys and values, the keys and values of the class
 * token, and the joined output. What is projected is saved before its norm or, in front of the class token,
 * without one. */
static double long_short_values(const tp_cvt_cfg *c, const stage *z)
{
    const double norms = c->raw_kv ? 0.0 : 2.0, low = z->r + z->cls;
    const double features = (1.0 + 6.0 + 3.0 + norms + 1.0 + 1.0) * z->N * z->D;
    const double before = c->raw_kv ? 2.0 * z->cls : 2.0;
    const double projected = (2.0 * low + before * z->r) * z->D + norms * 2.0 * (z->N + z->r);
    const double joined = z->cls * (3.0 * (z->N + 1.0) + 8.0) * z->D;
    return features + z->N * z->heads * z->r + projected + joined + z->N * z->heads;
}

static double block_values(const tp_cvt_cfg *c, const stage *z)
{
    const double input = z->rows * z->D;
    if (c->recompute == TP_RECOMPUTE_BLOCK) return input;
    const double feed_forward = (2.0 + 8.0) * z->rows * z->D + 2.0 * z->rows;
    if (c->recompute == TP_RECOMPUTE_ATTENTION) return input + feed_forward;
    return input + feed_forward + 2.0 * z->rows +
           (c->long_short ? long_short_values(c, z) : full_values(z));
}

double tp_cvt_activations(const tp_cvt_cfg *cfg)
{
    if (!cfg) return 0;
    int64_t height = cfg->image[0], width = cfg->image[1];
    double n = (double)(3 * height * width + cfg->classes);

    for (int s = 0; s < TP_CVT_STAGES; s++) {
        const stage z = stage_of(cfg, s, &height, &width);
        n += z.N * z.D + 2.0 * z.N + z.blocks * block_values(cfg, &z); /* embedding, blocks */
        if (s < TP_CVT_STAGES - 1) n += z.N * z.D;                     /* the next one's input */
    }
    return 4.0 * n;
}
