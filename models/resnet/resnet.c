/* resnet.c - ResNet and ResNeXt: images to classes, or to four feature maps.
 *
 *     x      = max_pool(relu(bn1(conv1(images))))      a quarter of the image's sides
 *     x      = relu(branch(x) + shortcut(x))           for each block
 *     logits = fc(mean of x over the map)
 *
 * The branch is two 3x3 convolutions (basic) or 1x1, 3x3, 1x1 (bottleneck), each with batch norm and all
 * but the last with ReLU. The shortcut is x, or where shapes change a 1x1 convolution with batch norm.
 * No weight depends on the image's size. */
#include <stdio.h>

#include <tapegrad/resnet.h>

#include "parts.h"

/* ---- block ---- */

static tp_conv_cfg square(int64_t stride, int64_t pad, int64_t groups)
{
    return (tp_conv_cfg){ { stride, stride }, { pad, pad }, { 1, 1 }, groups };
}

/* Declares convolution i and its norm; a kernel of 3 keeps the size at stride 1. */
static void init_conv(tp_params *P, tp_resnet_block *m, int i, int64_t in, int64_t out,
                      int64_t kernel, tp_conv_cfg cfg)
{
    char name[16];
    snprintf(name, sizeof name, "conv%d", i + 1);
    tp_conv2d_init(P, &m->conv[i], name, in, out, kernel, false, cfg);
    snprintf(name, sizeof name, "bn%d", i + 1);
    tp_batchnorm_init(P, &m->bn[i], name, out, 1e-5);
}

void tp_resnet_block_init(tp_params *P, tp_resnet_block *m, const char *name,
                          const tp_resnet_cfg *cfg, int64_t in, int64_t planes, int64_t stride)
{
    if (!tp_params_want_module(P, m, "resnet_block")) return;
    const int64_t out = cfg->bottleneck ? 4 * planes : planes;
    const int64_t inner = planes * cfg->group_width / 64 * cfg->groups;
    *m = (tp_resnet_block){ .convs = cfg->bottleneck ? 3 : 2,
                            .frozen_norm = cfg->frozen_norm,
                            .recompute = cfg->recompute };
    if (cfg->bottleneck && inner < 1) {
        tp_params_raise(P, TP_E_VALUE, "ResNet: groups of width %lld are empty at %lld planes",
                        (long long)cfg->group_width, (long long)planes);
        return;
    }
    m->path = tp_push(P, name);
    if (cfg->bottleneck) {
        init_conv(P, m, 0, in, inner, 1, square(1, 0, 1));
        init_conv(P, m, 1, inner, inner, 3, square(stride, 1, cfg->groups));
        init_conv(P, m, 2, inner, out, 1, square(1, 0, 1));
    } else {
        init_conv(P, m, 0, in, planes, 3, square(stride, 1, 1));
        init_conv(P, m, 1, planes, planes, 3, square(1, 1, 1));
    }
    if (stride != 1 || in != out) {
        tp_conv2d_init(P, &m->down, "downsample.0", in, out, 1, false, square(stride, 0, 1));
        tp_batchnorm_init(P, &m->down_bn, "downsample.1", out, 1e-5);
    }
    tp_pop(P);
}

/* bn(conv(x)); a frozen norm uses its running statistics in training, too. */
static tp_tensor normed(tp_tape *T, const tp_conv2d_m *conv, const tp_batchnorm_m *bn, bool frozen,
                        tp_tensor x)
{
    const bool training = tp_is_training(T);
    const tp_tensor y = tp_conv2d_forward(T, conv, x);
    if (frozen) tp_train(T, false);
    const tp_tensor z = tp_batchnorm_forward(T, bn, y);
    tp_train(T, training);
    return z;
}

static tp_tensor run_block(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_resnet_block *m = self;
    tp_tensor y = x, shortcut = x;
    tp_enter(T, m->path);
    for (int i = 0; i < m->convs; i++) {
        y = normed(T, &m->conv[i], &m->bn[i], m->frozen_norm, y);
        if (i + 1 < m->convs) y = tp_relu(T, y);
    }
    if (tp_given(m->down.weight)) shortcut = normed(T, &m->down, &m->down_bn, m->frozen_norm, x);
    return tp_leave(T, tp_relu(T, tp_add(T, y, shortcut)));
}

tp_tensor tp_resnet_block_forward(tp_tape *T, const tp_resnet_block *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "resnet_block")) return TP_NONE;
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint(T, run_block, m, x)
                                              : run_block(T, m, x);
}

/* ---- model ---- */

static tp_init init_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    (void)name;
    (void)env;
    return s.ndim == 4 ? (tp_init){ TP_INIT_KAIMING_NORMAL, 0.0, 1.0 } : dflt;
}

void tp_resnet_init(tp_params *P, tp_resnet *m, const char *name, tp_resnet_cfg cfg)
{
    if (!tp_params_want_module(P, m, "resnet")) return;
    char why[256];
    int64_t in = cfg.base;
    int i = 0;
    *m = (tp_resnet){ .params = P, .cfg = cfg };
    if (!tp_resnet_cfg_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "ResNet: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, NULL);
    tp_conv2d_init(P, &m->conv1, "conv1", 3, cfg.base, 7, false, square(2, 3, 1));
    tp_batchnorm_init(P, &m->bn1, "bn1", cfg.base, 1e-5);
    for (int s = 0; s < TP_RESNET_STAGES; s++)
        for (int b = 0; b < cfg.blocks[s]; b++, i++) {
            char block[32];
            snprintf(block, sizeof block, "layer%d.%d", s + 1, b);
            tp_resnet_block_init(P, &m->block[i], block, &cfg, in, cfg.base << s,
                                 s > 0 && b == 0 ? 2 : 1);
            in = (cfg.bottleneck ? 4 : 1) * (cfg.base << s);
        }
    if (cfg.classes > 0) tp_linear_init(P, &m->fc, "fc", in, cfg.classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

static void run(tp_tape *T, const tp_resnet *m, tp_tensor images, tp_tensor maps[TP_RESNET_STAGES])
{
    const tp_pool_cfg pool = { { 3, 3 }, { 2, 2 }, { 1, 1 }, false, false };
    const tp_resnet_block *block = m->block;
    tp_tensor x = images;
    tp_enter(T, m->path);
    if (tp__check_images(T, m->params, images)) {
        x = tp_relu(T, normed(T, &m->conv1, &m->bn1, m->cfg.frozen_norm, images));
        x = tp_max_pool2d(T, x, pool);
    }
    for (int s = 0; s < TP_RESNET_STAGES; s++) {
        for (int b = 0; b < m->cfg.blocks[s]; b++) x = tp_resnet_block_forward(T, block++, x);
        maps[s] = x;
    }
    tp_leave_n(T, TP_RESNET_STAGES, maps);
}

void tp_resnet_features(tp_tape *T, const tp_resnet *m, tp_tensor images,
                        tp_tensor maps[TP_RESNET_STAGES])
{
    for (int s = 0; s < TP_RESNET_STAGES; s++) maps[s] = TP_NONE;
    if (tp_want_module(T, m, "resnet")) run(T, m, images, maps);
}

tp_tensor tp_resnet_forward(tp_tape *T, const tp_resnet *m, tp_tensor images)
{
    if (!tp_want_module(T, m, "resnet")) return TP_NONE;
    tp_tensor maps[TP_RESNET_STAGES];
    if (tp_params_ok(m->params) && !tp_given(m->fc.weight))
        return tp_raise(T, TP_E_STATE, "this ResNet is a backbone without a head");
    run(T, m, images, maps);
    const tp_tensor x = maps[TP_RESNET_STAGES - 1];
    tp_enter(T, m->path);
    return tp_leave(T, tp_linear_forward(T, &m->fc, tp_mean(T, tp_mean(T, x, 1), 1)));
}
