/* fuse.c - multiplies frozen norms into the convolutions before them, on the host and in double.
 *
 *     bn(conv(x, w)) = conv(x, s w) + shift     s = weight / sqrt(var + eps)     shift = bias - s mean
 *
 * The norm becomes the identity plus the shift, which is rounded to itself when it is fused again. */
#include <math.h>
#include <stdlib.h>

#include <tapegrad/resnet.h>

/* Room for the values of one convolution and its norm. */
typedef struct room {
    double *conv, *weight, *bias, *mean, *var;
} room;

static size_t bytes_of(tp_tensor p)
{
    return (size_t)tp_numel(p) * sizeof(double);
}

static bool get(tp_params *P, tp_tensor p, double *to)
{
    return tp_param_get(P, p, TP_F64, to, bytes_of(p));
}

static bool set(tp_params *P, tp_tensor p, const double *from)
{
    return tp_param_set(P, p, TP_F64, from, bytes_of(p));
}

static void fold(const room *r, int64_t channels, int64_t each, double eps)
{
    for (int64_t c = 0; c < channels; c++) {
        const double scale = r->weight[c] / sqrt(r->var[c] + eps);
        for (int64_t i = 0; i < each; i++) r->conv[c * each + i] *= scale;
        r->bias[c] -= r->mean[c] * scale;
        r->weight[c] = 1.0;
        r->mean[c] = 0.0;
        r->var[c] = 1.0 - eps;
    }
}

static bool fuse(tp_params *P, const tp_conv2d_m *conv, const tp_batchnorm_m *bn)
{
    const int64_t n = tp_numel(conv->weight), channels = tp_numel(bn->weight);
    double *x = malloc((size_t)(n + 4 * channels) * sizeof *x);
    if (!x) {
        tp_params_raise(P, TP_E_MEMORY, "no memory to fuse '%s' with its norm", conv->path);
        return false;
    }
    const room r = { x, x + n, x + n + channels, x + n + 2 * channels, x + n + 3 * channels };
    bool done = get(P, conv->weight, r.conv) && get(P, bn->weight, r.weight) &&
                get(P, bn->bias, r.bias) && get(P, bn->mean, r.mean) && get(P, bn->var, r.var);
    if (done) fold(&r, channels, n / channels, bn->eps);
    done = done && set(P, conv->weight, r.conv) && set(P, bn->weight, r.weight) &&
           set(P, bn->bias, r.bias) && set(P, bn->mean, r.mean) && set(P, bn->var, r.var);
    if (!done) tp_params_raise(P, TP_E_STATE, "%s", tp_params_why(P));
    free(x);
    return done;
}

static bool fuse_block(tp_params *P, tp_resnet_block *m)
{
    bool done = true;
    for (int i = 0; i < m->convs && done; i++) done = fuse(P, &m->conv[i], &m->bn[i]);
    if (done && tp_given(m->down.weight)) done = fuse(P, &m->down, &m->down_bn);
    if (done) m->norm = TP_RESNET_FUSED;
    return done;
}

bool tp_resnet_fuse(tp_params *P, tp_resnet *m)
{
    if (!tp_params_want_module(P, m, "resnet") || !tp_params_ok(P)) return false;
    if (m->norm == TP_RESNET_BATCH_NORM) return true;
    int blocks = 0;
    for (int s = 0; s < TP_RESNET_STAGES; s++) blocks += m->cfg.blocks[s];
    bool done = fuse(P, &m->conv1, &m->bn1);
    for (int i = 0; i < blocks && done; i++) done = fuse_block(P, &m->block[i]);
    if (done) m->norm = TP_RESNET_FUSED;
    return done;
}
