/* region_heads.c - the heads of Mask R-CNN: classify regions, refine their boxes, predict their
 * masks.
 *
 *     h = relu(fc2(relu(fc1(region))));  logit = cls_score(h);  offset = bbox_pred(h)
 *     h = relu(conv3x3(... relu(conv3x3(region))));  f = relu(deconv2x2(h));  logit = conv1x1(f)
 *
 * Losses and detections need the mask of one category per region, so only that channel of the last
 * convolution is computed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "inner.h"

/* ---- boxes ---- */

void tp_box_head_init(tp_params *P, tp_box_head *m, const char *name, const tp_box_head_cfg *cfg)
{
    if (!tp_params_want_module(P, m, "box head")) return;
    int64_t width = cfg->dim * cfg->side * cfg->side;
    char fc[16];
    m->cfg = *cfg;
    m->path = tp_push(P, name);
    tp_push(P, "box_head");
    tp_params_init_rule(P, tp__init_weights, &(tp_init){ TP_INIT_KAIMING_UNIFORM, 1.0, 0.0 });
    for (int i = 0; i < cfg->layers; i++) {
        snprintf(fc, sizeof fc, "fc%d", i + 1);
        tp_linear_init(P, &m->fc[i], fc, width, cfg->hidden[i], true);
        width = cfg->hidden[i];
    }
    tp_pop(P);
    tp_push(P, "box_predictor");
    tp_params_init_rule(P, tp__init_weights, &(tp_init){ TP_INIT_NORMAL, 0.01, 0.0 });
    tp_linear_init(P, &m->cls_score, "cls_score", width, cfg->classes + 1, true);
    tp_params_init_rule(P, tp__init_weights, &(tp_init){ TP_INIT_NORMAL, 0.001, 0.0 });
    tp_linear_init(P, &m->bbox_pred, "bbox_pred", width, cfg->one_box ? 4 : 4 * cfg->classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
    tp_pop(P);
}

void tp_box_head_forward(tp_tape *T, const tp_box_head *m, tp_tensor x, tp_tensor *logit,
                         tp_tensor *offset)
{
    if (!tp_want(T, logit, "box head", "the logits") ||
        !tp_want(T, offset, "box head", "the offsets"))
        return;
    *logit = *offset = TP_NONE;
    if (!tp_want_module(T, m, "box head")) return;
    const int64_t R = tp_dim(x, 0), width = m->cfg.dim * m->cfg.side * m->cfg.side;
    tp_enter(T, m->path);
    x = tp_reshape(T, tp_transient(T, tp_permute(T, x, TP_SHAPE(0, 3, 1, 2))), TP_SHAPE(R, width));
    for (int i = 0; i < m->cfg.layers; i++) x = tp_linear_act(T, &m->fc[i], x, TP_ACT_RELU);
    *logit = tp__detection_precise(T, tp_linear_forward(T, &m->cls_score, x));
    *offset = tp__detection_precise(T, tp_linear_forward(T, &m->bbox_pred, x));
    const tp_tensor both[] = { *logit, *offset };
    tp_leave_n(T, 2, both);
}

void tp_box_head_losses(tp_tape *T, const tp_box_head *m, tp_tensor logit, tp_tensor offset,
                        const tp_corners *box, const tp_corners *target, const int *category,
                        tp_tensor loss[2])
{
    if (!tp_want(T, loss, "box head", "room for the losses")) return;
    loss[0] = loss[1] = TP_NONE;
    if (!tp_want_module(T, m, "box head") || !tp_ok(T)) return;
    const int64_t R = tp_dim(logit, 0), K = m->cfg.classes;
    int64_t *label = tp__detection_alloc(T, R, sizeof *label),
            *row = tp__detection_alloc(T, R, sizeof *row), n = 0;
    double *encoded = tp__detection_alloc(T, 4 * R, sizeof *encoded);
    for (int64_t i = 0; label && row && encoded && i < R; i++) {
        label[i] = category[i];
        if (category[i] >= K) continue;
        tp_box_encode(&m->cfg.coder, box[i], target[i], encoded + 4 * n);
        row[n++] = m->cfg.one_box ? i : i * K + category[i];
    }
    if (tp_ok(T)) {
        const double share = R > 0 ? 1.0 / (double)R : 0.0;
        const tp_tensor classes = tp_from(T, TP_I64, TP_SHAPE(R), label);
        const tp_tensor picked = tp__detection_rows(T, offset, 4, row, n);
        const tp_tensor wanted = tp__detection_constant(T, offset, TP_SHAPE(n, 4), encoded);
        loss[0] = tp_scale(T, tp_cross_entropy(T, logit, classes, TP_SUM), share);
        loss[1] = tp_scale(T, tp__detection_box_loss(T, picked, wanted, m->cfg.beta), share);
    }
    free(label);
    free(row);
    free(encoded);
}

/* ---- masks ---- */

static tp_init init_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    (void)name, (void)dflt, (void)env;
    if (s.ndim == 1) return (tp_init){ .kind = TP_INIT_ZERO };
    /* detectron2 takes the first axis as the fan out, even for the transposed convolution */
    const double fan = (double)(s.dim[0] * s.dim[2] * s.dim[3]);
    return (tp_init){ TP_INIT_NORMAL, sqrt(2.0 / fan), 0.0 };
}

void tp_mask_head_init(tp_params *P, tp_mask_head *m, const char *name, const tp_mask_head_cfg *cfg)
{
    if (!tp_params_want_module(P, m, "mask head")) return;
    int64_t width = cfg->in;
    char fcn[24];
    m->cfg = *cfg;
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, NULL);
    for (int i = 0; i < cfg->layers; i++) {
        snprintf(fcn, sizeof fcn, "mask_fcn%d", i + 1);
        tp_conv2d_init(P, &m->conv[i], fcn, width, cfg->dim, 3, true,
                       (tp_conv_cfg){ .pad = { 1, 1 } });
        width = cfg->dim;
    }
    tp_conv_transpose2d_init(P, &m->deconv, "deconv", width, cfg->dim, 2, true,
                             (tp_conv_transpose_cfg){ .stride = { 2, 2 } });
    tp_params_init_rule(P, tp__init_weights, &(tp_init){ TP_INIT_NORMAL, 0.001, 0.0 });
    tp_conv2d_init(P, &m->predictor, "predictor", cfg->dim, cfg->classes, 1, true,
                   (tp_conv_cfg){ 0 });
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

tp_tensor tp_mask_head_features(tp_tape *T, const tp_mask_head *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "mask head")) return TP_NONE;
    tp_enter(T, m->path);
    for (int i = 0; i < m->cfg.layers; i++) x = tp_conv2d_forward_relu(T, &m->conv[i], x, TP_NONE);
    return tp_leave(T, tp_relu(T, tp_conv_transpose2d_forward(T, &m->deconv, x)));
}

tp_tensor tp_mask_head_logits(tp_tape *T, const tp_mask_head *m, tp_tensor features)
{
    if (!tp_want_module(T, m, "mask head")) return TP_NONE;
    tp_enter(T, m->path);
    return tp_leave(T, tp__detection_precise(T, tp_conv2d_forward(T, &m->predictor, features)));
}

tp_tensor tp_mask_head_select(tp_tape *T, const tp_mask_head *m, tp_tensor features,
                              const int *category)
{
    if (!tp_want_module(T, m, "mask head") || !tp_ok(T)) return TP_NONE;
    const int64_t R = tp_dim(features, 0), s = tp_dim(features, 1), D = m->cfg.dim;
    int64_t *index = tp__detection_alloc(T, R, sizeof *index);
    if (!index) return TP_NONE;
    for (int64_t i = 0; i < R; i++) index[i] = category[i];
    tp_enter(T, m->path);
    const tp_tensor weight = tp__detection_rows(T, m->predictor.weight, D, index, R);
    const tp_tensor bias = tp__detection_rows(T, m->predictor.bias, 1, index, R);
    const tp_tensor pixels = tp_reshape(T, features, TP_SHAPE(R, s * s, D));
    tp_tensor y = tp_matmul(T, pixels, tp_reshape(T, weight, TP_SHAPE(R, D, 1)));
    y = tp_add(T, tp__detection_precise(T, y), tp_reshape(T, bias, TP_SHAPE(R, 1, 1)));
    free(index);
    return tp_leave(T, tp_reshape(T, y, TP_SHAPE(R, s, s)));
}

tp_tensor tp_mask_head_loss(tp_tape *T, tp_tensor logit, const uint8_t *target)
{
    if (!tp_ok(T)) return TP_NONE;
    const int64_t n = tp_numel(logit);
    if (n > 0 && !tp_want(T, target, "mask_head_loss", "targets")) return TP_NONE;
    double *x = tp__detection_alloc(T, n, sizeof *x);
    for (int64_t i = 0; x && i < n; i++) x[i] = target[i];
    const tp_tensor wanted = x ? tp__detection_constant(T, logit, tp_shape_of(logit), x) : TP_NONE;
    free(x);
    return tp_scale(T, tp_bce_logits(T, logit, wanted, TP_SUM), n > 0 ? 1.0 / (double)n : 0.0);
}
