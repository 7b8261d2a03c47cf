/* costs.c - multiply-adds of backbones, feature pyramids, RetinaNet and Mask R-CNN, as the papers' tables count them.
 *
 * A convolution counts one addition of a bias for each output, a linear layer one for each column in all; norms,
 * activations, softmax and ResNet's convolutions, which have no biases, count none. */
#include <tapegrad/detection/mask_rcnn.h>
#include <tapegrad/detection/retinanet.h>

/* k x k convolution with biases at n positions. */
static double conv(double n, double k, double in, double out)
{
    return n * out * (k * k * in + 1.0);
}

static double linear(double n, double in, double out)
{
    return n * in * out + out;
}

/* Positions of a map with that stride. */
static double positions(int64_t height, int64_t width, int64_t stride)
{
    return (double)((height + stride - 1) / stride) * (double)((width + stride - 1) / stride);
}

/* The products of an attention of N local and g global tokens. table: N stands where the width d does, as the authors
 * counted, so that nearly nothing is counted for windows. */
static double window_products(const tp_vil_stage *s, double N, bool table)
{
    const double d = (double)s->dim, g = (double)s->global, w = (double)s->feature, T = N + g;
    if (s->dense) return 2.0 * T * T * d;
    return 2.0 * ((table ? d - g : N) * (9.0 * w * w + g) * d + g * T * d);
}

static double vil_macs(const tp_vil_cfg *c, int64_t height, int64_t width, bool table)
{
    double macs = 0.0, in = 3.0;
    for (int k = 0; k < c->stages; k++) {
        const tp_vil_stage *s = &c->stage[k];
        const double d = (double)s->dim, N = positions(height, width, INT64_C(4) << k);
        const double T = N + (double)s->global;
        macs += conv(N, (double)s->patch, in, d) +
                s->blocks * ((4.0 * d * d + 4.0 * d) * T + window_products(s, N, table) +
                             8.0 * d * d * T + 5.0 * d);
        in = d;
    }
    return macs + (table ? 1000.0 * in : 0.0);
}

double tp_backbone_macs(const tp_backbone_cfg *c, int64_t height, int64_t width, bool table)
{
    tp_backbone_cfg own = *c;
    switch (c->kind) {
    case TP_BACKBONE_VIL:
        if (c->of.vil.kind == TP_VIL_WINDOW) return vil_macs(&c->of.vil, height, width, table);
        own.of.vil.image[0] = height;
        own.of.vil.image[1] = width;
        return tp_vil_flops(&own.of.vil).macs;
    case TP_BACKBONE_RESNET:
        own.of.resnet.image[0] = height;
        own.of.resnet.image[1] = width;
        return tp_resnet_flops(&own.of.resnet).macs;
    case TP_BACKBONE_PVT:
        own.of.pvt.image[0] = height;
        own.of.pvt.image[1] = width;
        return tp_pvt_flops(&own.of.pvt).macs;
    }
    return 0.0;
}

double tp_fpn_macs(const tp_fpn_cfg *c, int64_t height, int64_t width)
{
    const bool retinanet = c->top != TP_FPN_SUBSAMPLE;
    const double dim = (double)c->dim;
    double macs = 0.0;
    for (int k = retinanet; k < TP_BACKBONE_STAGES; k++) {
        const double n = positions(height, width, INT64_C(4) << k);
        macs += conv(n, 1.0, (double)c->channels[k], dim) + conv(n, 3.0, dim, dim);
    }
    if (!retinanet) return macs;
    return macs +
           conv(positions(height, width, 64), 3.0, (double)c->channels[TP_BACKBONE_STAGES - 1],
                dim) +
           conv(positions(height, width, 128), 3.0, dim, dim);
}

tp_retinanet_costs tp_retinanet_macs(const tp_retinanet_cfg *c, int64_t height, int64_t width)
{
    const double dim = (double)c->dim, A = (double)c->anchors.sizes * c->anchors.ratios;
    tp_fpn_cfg fpn = { .dim = c->dim, .top = TP_FPN_RELU };
    double n = 0.0;
    tp_backbone_channels(&c->backbone, fpn.channels);
    for (int k = 0; k < c->anchors.levels; k++) n += positions(height, width, INT64_C(8) << k);
    return (tp_retinanet_costs){ .backbone = tp_backbone_macs(&c->backbone, height, width, false),
                                 .table = tp_backbone_macs(&c->backbone, height, width, true),
                                 .fpn = tp_fpn_macs(&fpn, height, width),
                                 .head = 2.0 * c->convs * conv(n, 3.0, dim, dim) +
                                         conv(n, 3.0, dim, A * (double)(c->classes + 4)),
                                 .relu = 2.0 * c->convs * n * dim };
}

static double rpn_macs(const tp_rpn_cfg *c, int64_t height, int64_t width)
{
    const double dim = (double)c->dim, A = (double)c->anchors.sizes * c->anchors.ratios;
    double n = 0.0;
    for (int k = 0; k < c->anchors.levels; k++) n += positions(height, width, INT64_C(4) << k);
    return conv(n, 3.0, dim, dim) + conv(n, 1.0, dim, 5.0 * A);
}

static double box_macs(const tp_box_head_cfg *c, double regions)
{
    const double K = (double)c->classes;
    double in = (double)(c->dim * c->side * c->side), macs = 0.0;
    for (int i = 0; i < c->layers; i++) {
        macs += linear(regions, in, (double)c->hidden[i]);
        in = (double)c->hidden[i];
    }
    return macs + linear(regions, in, K + 1.0) + linear(regions, in, c->one_box ? 4.0 : 4.0 * K);
}

static double mask_macs(const tp_mask_head_cfg *c, double masks)
{
    const double n = masks * (double)(c->side * c->side), dim = (double)c->dim;
    double in = (double)c->in, macs = 0.0;
    for (int i = 0; i < c->layers; i++, in = dim) macs += conv(n, 3.0, in, dim);
    return macs + conv(4.0 * n, 1.0, in, dim) + conv(4.0 * n, 1.0, dim, (double)c->classes);
}

tp_mask_rcnn_costs tp_mask_rcnn_macs(const tp_mask_rcnn_cfg *c, int64_t height, int64_t width,
                                     int64_t regions, int64_t masks)
{
    tp_fpn_cfg fpn = { .dim = c->dim, .top = TP_FPN_SUBSAMPLE };
    tp_backbone_channels(&c->backbone, fpn.channels);
    return (tp_mask_rcnn_costs){ .backbone = tp_backbone_macs(&c->backbone, height, width, false),
                                 .table = tp_backbone_macs(&c->backbone, height, width, true),
                                 .fpn = tp_fpn_macs(&fpn, height, width),
                                 .rpn = rpn_macs(&c->rpn, height, width),
                                 .box = box_macs(&c->box, (double)regions),
                                 .mask = mask_macs(&c->mask, (double)masks) };
}
