/* detector_cost.c - multiply-adds of RetinaNet and Mask R-CNN, as the papers' tables count them.
 *
 * A convolution counts one addition of a bias for each output, a linear layer one for each column in all. */
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
static double positions(const int64_t image[2], int64_t stride)
{
    return (double)((image[0] + stride - 1) / stride) * (double)((image[1] + stride - 1) / stride);
}

tp_retinanet_costs tp_retinanet_macs(const tp_retinanet_cfg *c, const int64_t image[2])
{
    if (!c) return (tp_retinanet_costs){ 0 };
    const double dim = (double)c->dim, A = (double)c->anchors.sizes * c->anchors.ratios;
    const tp_fpn_cfg fpn = tp_fpn_of(&c->backbone, c->dim, TP_FPN_RELU);
    double n = 0.0;
    for (int k = 0; k < c->anchors.levels; k++) n += positions(image, INT64_C(8) << k);
    const tp_cost backbone = tp_backbone_flops(&c->backbone, image);
    return (tp_retinanet_costs){ .backbone = backbone.macs,
                                 .table = backbone.paper,
                                 .fpn = tp_fpn_macs(&fpn, image),
                                 .head = 2.0 * c->convs * conv(n, 3.0, dim, dim) +
                                         conv(n, 3.0, dim, A * (double)(c->classes + 4)),
                                 .relu = 2.0 * c->convs * n * dim };
}

static double rpn_macs(const tp_rpn_cfg *c, const int64_t image[2])
{
    const double dim = (double)c->dim, A = (double)c->anchors.sizes * c->anchors.ratios;
    double n = 0.0;
    for (int k = 0; k < c->anchors.levels; k++) n += positions(image, INT64_C(4) << k);
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

tp_mask_rcnn_costs tp_mask_rcnn_macs(const tp_mask_rcnn_cfg *c, const int64_t image[2],
                                     int64_t regions, int64_t masks)
{
    if (!c) return (tp_mask_rcnn_costs){ 0 };
    const tp_fpn_cfg fpn = tp_fpn_of(&c->backbone, c->dim, TP_FPN_SUBSAMPLE);
    const tp_cost backbone = tp_backbone_flops(&c->backbone, image);
    return (tp_mask_rcnn_costs){ .backbone = backbone.macs,
                                 .table = backbone.paper,
                                 .fpn = tp_fpn_macs(&fpn, image),
                                 .rpn = rpn_macs(&c->rpn, image),
                                 .box = box_macs(&c->box, (double)regions),
                                 .mask = mask_macs(&c->mask, (double)masks) };
}
