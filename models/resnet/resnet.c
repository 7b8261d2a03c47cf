/* resnet.c - ResNet and ResNeXt: images to classes, or to four feature maps.
 *
 *     x      = max_pool(relu(bn1(conv1(images))))      a quarter of the image's sides
 *     x      = relu(branch(x) + shortcut(x))           for each block
 *     logits = fc(mean of x over the map)
 *
 * The branch is two 3x3 convolutions (basic) or 1x1, 3x3, 1x1 (bottleneck), each with batch norm and all
 * but the last with ReLU. The shortcut is x, or where shapes change a 1x1 convolution with batch norm.
 * No weight depends on the image's size.
 *
 * A frozen norm is part of the convolution before it: its weights are multiplied by s = weight / sqrt(var + eps), and
 * its bias is bias - mean s. Gradients reach the norm's weight and bias through this. For inference tp_resnet_fuse does it
 * once. */
#include <stdio.h>

#include "inner.h"

/* ---- block ---- */

static tp_conv_cfg square(int64_t stride, int64_t pad, int64_t groups)
{
    return (tp_conv_cfg){ { stride, stride }, { pad, pad }, { 1, 1 }, groups };
}

/* A norm whose weight and bias are buffers, too. */
static void init_fixed(tp_params *P, tp_batchnorm_m *m, const char *name, int64_t dim)
{
    const tp_init zero = { .kind = TP_INIT_ZERO }, one = { TP_INIT_CONST, 1.0, 0.0 };
    const tp_shape s = TP_SHAPE(dim);
    m->path = tp_push(P, name);
    m->weight = tp_param(P, "weight", s, one, TP_BUFFER);
    m->bias = tp_param(P, "bias", s, zero, TP_BUFFER);
    m->mean = tp_param(P, "running_mean", s, zero, TP_BUFFER);
    m->var = tp_param(P, "running_var", s, one, TP_BUFFER);
    m->eps = 1e-5;
    tp_pop(P);
}

/* Declares a convolution without bias and its norm. */
static void init_normed(tp_params *P, tp_conv2d_m *conv, tp_batchnorm_m *bn,
                        const char *const *name, bool fixed, const int64_t size[3], tp_conv_cfg cfg)
{
    tp_conv2d_init(P, conv, name[0], size[0], size[1], (int)size[2], false, cfg);
    if (fixed)
        init_fixed(P, bn, name[1], size[1]);
    else
        tp_batchnorm_init(P, bn, name[1], size[1], 1e-5);
}

/* Names of convolutions and norms: those of the branch, the shortcut, the stem. */
enum { SHORTCUT = 3, STEM };
static const char *const names[2][5][2] = {
    { { "conv1", "bn1" },
      { "conv2", "bn2" },
      { "conv3", "bn3" },
      { "downsample.0", "downsample.1" },
      { "conv1", "bn1" } },
    { { "conv1", "conv1.norm" },
      { "conv2", "conv2.norm" },
      { "conv3", "conv3.norm" },
      { "shortcut", "shortcut.norm" },
      { "stem.conv1", "stem.conv1.norm" } },
};

typedef struct block_size {
    int64_t in, inner, out, stride;
} block_size;

static tp_resnet_norm norm_of(const tp_resnet_cfg *cfg)
{
    return cfg->frozen_norm || cfg->detectron ? TP_RESNET_FROZEN : TP_RESNET_BATCH_NORM;
}

static void init_block(tp_params *P, tp_resnet_block *m, const char *name, const tp_resnet_cfg *cfg,
                       block_size z)
{
    const int64_t wide[][3] = { { z.in, z.inner, 1 },
                                { z.inner, z.inner, 3 },
                                { z.inner, z.out, 1 } };
    const int64_t basic[3][3] = { { z.in, z.out, 3 }, { z.out, z.out, 3 } };
    const int convs = cfg->bottleneck ? 3 : 2;
    const int strided = cfg->bottleneck && !cfg->early_stride; /* the convolution with the stride */
    *m = (tp_resnet_block){
        .path = tp_push(P, name), .convs = convs, .norm = norm_of(cfg), .recompute = cfg->recompute
    };
    for (int i = 0; i < convs; i++) {
        const int64_t *size = cfg->bottleneck ? wide[i] : basic[i];
        const int64_t groups = cfg->bottleneck && i == 1 ? cfg->groups : 1;
        init_normed(P, &m->conv[i], &m->bn[i], names[cfg->detectron][i], cfg->detectron, size,
                    square(i == strided ? z.stride : 1, size[2] / 2, groups));
    }
    if (z.stride != 1 || z.in != z.out)
        init_normed(P, &m->down, &m->down_bn, names[cfg->detectron][SHORTCUT], cfg->detectron,
                    (int64_t[]){ z.in, z.out, 1 }, square(z.stride, 0, 1));
    tp_pop(P);
}

static void block_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_resnet_block *m = module;
    const tp_resnet_block_cfg *b = cfg;
    const tp_resnet_cfg *c = b->model;
    const int64_t planes = b->planes;
    const int64_t inner = planes * c->group_width / 64 * c->groups;
    *m = (tp_resnet_block){ 0 };
    if (c->bottleneck && inner < 1)
        tp_params_raise(P, TP_E_VALUE, "ResNet: groups of width %lld are empty at %lld planes",
                        (long long)c->group_width, (long long)planes);
    else
        init_block(P, m, name, c,
                   (block_size){ b->in, inner, c->bottleneck ? 4 * planes : planes, b->stride });
}

/* A convolution that contains its frozen norm. */
typedef struct folded {
    tp_tensor weight, shift;
} folded;

static folded fold(tp_tape *T, const tp_conv2d_m *conv, const tp_batchnorm_m *bn)
{
    const tp_tensor scale =
        tp_mul(T, bn->weight, tp_rsqrt(T, tp_add(T, bn->var, tp_number(bn->eps))));
    const tp_tensor shift = tp_sub(T, bn->bias, tp_mul(T, bn->mean, scale));
    const tp_tensor rows = tp_reshape(T, scale, TP_SHAPE(tp_dim(scale, 0), 1, 1, 1));
    return (folded){ tp_transient(T, tp_mul(T, conv->weight, rows)), shift };
}

/* The same after tp_resnet_fuse. A product in bf16 reads the copy that a parameter has, but cannot read buffers; a view
 * of a buffer can be cast. Norms that count no batches consist of buffers (init_fixed). */
static folded folded_once(tp_tape *T, const tp_conv2d_m *conv, const tp_batchnorm_m *bn)
{
    const tp_tensor shift = bn->bias;
    const bool buffer = !tp_given(bn->batches);
    return (folded){ conv->weight, buffer ? tp_reshape(T, shift, tp_shape_of(shift)) : shift };
}

static folded of_norm(tp_tape *T, const tp_conv2d_m *conv, const tp_batchnorm_m *bn,
                      tp_resnet_norm norm)
{
    return norm == TP_RESNET_FUSED ? folded_once(T, conv, bn) : fold(T, conv, bn);
}

/* bn(conv(x)) */
static tp_tensor normed(tp_tape *T, const tp_conv2d_m *conv, const tp_batchnorm_m *bn,
                        tp_resnet_norm norm, tp_tensor x)
{
    if (norm == TP_RESNET_BATCH_NORM)
        return tp_batchnorm_forward(T, bn, tp_conv2d_forward(T, conv, x));
    tp_enter(T, conv->path);
    const folded f = of_norm(T, conv, bn, norm);
    return tp_leave(T, tp_conv2d(T, x, f.weight, f.shift, conv->cfg));
}

/* relu(bn(conv(x)) + residual); residual may be TP_NONE. */
static tp_tensor activated(tp_tape *T, const tp_conv2d_m *conv, const tp_batchnorm_m *bn,
                           tp_resnet_norm norm, tp_tensor x, tp_tensor residual)
{
    if (norm == TP_RESNET_BATCH_NORM) {
        const tp_tensor y = normed(T, conv, bn, norm, x);
        return tp_relu(T, tp_given(residual) ? tp_add(T, y, residual) : y);
    }
    tp_enter(T, conv->path);
    const folded f = of_norm(T, conv, bn, norm);
    return tp_leave(T, tp_conv2d_relu(T, x, f.weight, f.shift, residual, conv->cfg));
}

static tp_tensor run_block(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_resnet_block *m = self;
    const int last = m->convs - 1;
    tp_tensor y = x, shortcut = x;
    tp_enter(T, m->path);
    for (int i = 0; i < last; i++) y = activated(T, &m->conv[i], &m->bn[i], m->norm, y, TP_NONE);
    if (tp_given(m->down.weight)) shortcut = normed(T, &m->down, &m->down_bn, m->norm, x);
    return tp_leave(T, activated(T, &m->conv[last], &m->bn[last], m->norm, y, shortcut));
}

static tp_tensor block_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_resnet_block *m = module;
    (void)with;
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

static void model_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_resnet *m = module;
    const tp_resnet_cfg *c = cfg;
    char why[256];
    int64_t in = c->base;
    int i = 0;
    *m = (tp_resnet){ .params = P, .cfg = *c, .norm = norm_of(c) };
    if (!tp_resnet_cfg_check(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "ResNet: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, NULL);
    init_normed(P, &m->conv1, &m->bn1, names[c->detectron][STEM], c->detectron,
                (int64_t[]){ 3, c->base, 7 }, square(2, 3, 1));
    for (int s = 0; s < TP_RESNET_STAGES; s++)
        for (int b = 0; b < c->blocks[s]; b++, i++) {
            char block[32];
            snprintf(block, sizeof block, "%s%d.%d", c->detectron ? "res" : "layer",
                     s + (c->detectron ? 2 : 1), b);
            block_size z = { .in = in, .stride = s > 0 && b == 0 ? 2 : 1 };
            tp_resnet_widths(c, s, &z.inner, &z.out);
            init_block(P, &m->block[i], block, c, z);
            in = z.out;
        }
    if (c->classes > 0) tp_linear_init(P, &m->fc, "fc", in, c->classes, true);
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
        x = activated(T, &m->conv1, &m->bn1, m->norm, images, TP_NONE);
        x = tp_max_pool2d(T, x, pool);
    }
    for (int s = 0; s < TP_RESNET_STAGES; s++) {
        for (int b = 0; b < m->cfg.blocks[s]; b++) x = block_forward(T, block++, NULL, x);
        maps[s] = x;
    }
    tp_leave_n(T, TP_RESNET_STAGES, maps);
}

void tp_resnet_features(tp_tape *T, const tp_resnet *m, tp_tensor images,
                        tp_tensor maps[TP_RESNET_STAGES])
{
    if (!tp_want(T, maps, "resnet", "room for the maps")) return;
    for (int s = 0; s < TP_RESNET_STAGES; s++) maps[s] = TP_NONE;
    if (tp_want_module(T, m, "resnet")) run(T, m, images, maps);
}

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor images)
{
    const tp_resnet *m = module;
    (void)state;
    tp_tensor maps[TP_RESNET_STAGES];
    if (tp_params_ok(m->params) && !tp_given(m->fc.weight))
        return tp_raise(T, TP_E_STATE, "this ResNet is a backbone without a head");
    run(T, m, images, maps);
    const tp_tensor x = maps[TP_RESNET_STAGES - 1];
    tp_enter(T, m->path);
    return tp_leave(T, tp_linear_forward(T, &m->fc, tp_mean(T, tp_mean(T, x, 1), 1)));
}

/* torchvision's and timm's names are ours; these are those of detectron2 and of Hugging Face's transformers. */
static const tp_spelling spellings[] = {
    { "stem.conv1.norm.", "bn1." },
    { "stem.conv1.", "conv1." },
    { "res2.", "layer1." },
    { "res3.", "layer2." },
    { "res4.", "layer3." },
    { "res5.", "layer4." },
    { ".conv1.norm.", ".bn1." },
    { ".conv2.norm.", ".bn2." },
    { ".conv3.norm.", ".bn3." },
    { ".shortcut.norm.", ".downsample.1." },
    { "resnet.embedder.embedder.convolution.", "conv1." },
    { "resnet.embedder.embedder.normalization.", "bn1." },
    { "resnet.encoder.stages.0.layers.", "layer1." },
    { "resnet.encoder.stages.1.layers.", "layer2." },
    { "resnet.encoder.stages.2.layers.", "layer3." },
    { "resnet.encoder.stages.3.layers.", "layer4." },
    { ".shortcut.convolution.", ".downsample.0." },
    { ".shortcut.normalization.", ".downsample.1." },
    { ".shortcut.", ".downsample.0." },
    { ".layer.0.convolution.", ".conv1." },
    { ".layer.0.normalization.", ".bn1." },
    { ".layer.1.convolution.", ".conv2." },
    { ".layer.1.normalization.", ".bn2." },
    { ".layer.2.convolution.", ".conv3." },
    { ".layer.2.normalization.", ".bn3." },
    { "classifier.1.", "fc." },
    { 0 },
};

static const tp_model_part parts[] = {
    { "block", sizeof(tp_resnet_block), block_init, block_forward },
    { 0 },
};

const tp_model tp_model_resnet = {
    .name = "resnet",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_resnet_cfg),
    .size = sizeof(tp_resnet),
    .presets = tp__resnet_presets,
    .preset = tp__resnet_preset,
    .check = tp__resnet_check,
    .members = tp__resnet_members,
    .init = model_init,
    .forward = model_forward,
    .head = "fc.weight",
    .spellings = spellings,
    .parts = parts,
    .backbone = &tp__resnet_backbone,
};
