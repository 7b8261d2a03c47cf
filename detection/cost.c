/* cost.c - the multiply-adds of backbones and feature pyramids.
 *
 * The published figures of ViL's detectors count biases as multiply-adds, and one classifier that is not used. They
 * take the number of channels for the number of tokens where a window's products are counted, so nearly none of these
 * count. Both rules are here; they differ in attention alone. */
#include <tapegrad/observe.h>
#include <tapegrad/vil.h>

#include "inner.h"

enum { STAGES = TP_BACKBONE_STAGES, CLASSES = 1000 };

/* A convolution or linear layer with bias. */
static double conv(double kernel, double in, double out, double positions)
{
    return (kernel * kernel * in + 1.0) * out * positions;
}

/* ---- Vision Longformer ---- */

typedef struct stage {
    tp_vil_kind kind;
    double N, T, g, d, heads, f; /* tokens of the map, all tokens, global ones, width ... */
    double reduced;              /* tokens of SRA's map                                   */
} stage;

static stage stage_of(const tp_vil_cfg *c, int k, const int64_t image[2])
{
    const tp_vil_stage *s = &c->stage[k];
    const int64_t rows = image[0] / (4 << k), cols = image[1] / (4 << k), f = s->feature;
    const double g = (double)s->global, N = (double)(rows * cols);
    return (stage){ .kind = s->dense ? TP_VIL_FULL : c->kind,
                    .N = N,
                    .T = N + g,
                    .g = g,
                    .d = (double)s->dim,
                    .heads = (double)s->heads,
                    .f = (double)f,
                    .reduced = f > 0 ? (double)((rows / f) * (cols / f)) : 0.0 };
}

/* The products of queries, keys and values. */
static double products(const stage *z, bool published)
{
    const double queries = published ? z->d - z->g : z->N, rows = z->g * z->T * z->d;
    switch (z->kind) {
    case TP_VIL_WINDOW: return 2.0 * (queries * (9.0 * z->f * z->f + z->g) * z->d + rows);
    case TP_VIL_GLOBAL: return 2.0 * (queries * z->g * z->d + rows);
    case TP_VIL_SRA: return 2.0 * z->T * (z->reduced + z->g) * z->d;
    case TP_VIL_PERFORMER:
        return published ? z->T * z->f * (5.0 * z->d + 6.0 * z->heads)
                         : z->T * z->f * (4.0 * z->d + 2.0 * z->heads);
    default: return 2.0 * z->T * z->T * z->d;
    }
}

static double projections(const stage *z)
{
    if (z->kind != TP_VIL_SRA) return 4.0 * conv(1.0, z->d, z->d, z->T);
    return 2.0 * conv(1.0, z->d, z->d, z->T) + conv(z->f, z->d, z->d, z->reduced) +
           2.0 * conv(1.0, z->d, z->d, z->reduced + z->g);
}

static double vil_macs(const tp_vil_cfg *c, const int64_t image[2], bool published)
{
    double macs = 0.0, in = 3.0;
    for (int k = 0; k < STAGES; k++) {
        const stage z = stage_of(c, k, image);
        const double mlp = 8.0 * z.d * z.d * z.T + 5.0 * z.d;
        macs += conv((double)c->stage[k].patch, in, z.d, z.N) +
                c->stage[k].blocks * (projections(&z) + products(&z, published) + mlp);
        in = z.d;
    }
    return macs + (published ? (double)CLASSES * in : 0.0);
}

/* ---- any backbone ---- */

static void add(void *env, tp_tape *T, const tp_seen *s)
{
    (void)T;
    *(double *)env += tp_seen_macs(s);
}

/* Adds what the ops report in a pass on a dry device. */
static void backbone_macs(const tp_backbone_cfg *c, const int64_t image[2], double *macs)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1, .dry = true });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .blank = true });
    tp_tape *T = tp_tape_new(D, NULL);
    tp_backbone m;
    tp_tensor map[STAGES];
    tp_record(T, false);
    tp_observe(T, add, macs);
    tp_backbone_init(P, &m, "", c);
    tp_backbone_forward(T, &m, tp_full(T, TP_F32, TP_SHAPE(1, image[0], image[1], 3), 0.0), map);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

tp_cost tp_backbone_flops(const tp_backbone_cfg *c, const int64_t image[2])
{
    if (!c) return (tp_cost){ 0 };
    tp_cost f = { 0 };
    if (c->model.model == &tp_model_vil) {
        const tp_vil_cfg *v = (const tp_vil_cfg *)&c->model.at;
        f.macs = vil_macs(v, image, false);
        f.paper = vil_macs(v, image, true);
        return f;
    }
    backbone_macs(c, image, &f.macs);
    f.paper = f.macs;
    return f;
}

/* ---- pyramids ---- */

static double positions(const int64_t image[2], int level)
{
    double n = 1.0;
    for (int i = 0; i < 2; i++) n *= (double)((image[i] + (1 << level) - 1) >> level);
    return n;
}

double tp_fpn_macs(const tp_fpn_cfg *cfg, const int64_t image[2])
{
    if (!cfg) return 0;
    const tp_fpn_cfg c = tp__fpn_defaults(*cfg);
    const double dim = (double)c.dim;
    double macs = 0.0;
    for (int i = 0; i < c.maps; i++)
        macs += conv(1.0, (double)c.channels[i], dim, positions(image, c.first + i)) +
                conv(3.0, dim, dim, positions(image, c.first + i));
    if (c.top != TP_FPN_SUBSAMPLE)
        macs += conv(3.0, (double)c.channels[c.maps - 1], dim, positions(image, c.first + c.maps)) +
                conv(3.0, dim, dim, positions(image, c.first + c.maps + 1));
    return macs;
}
