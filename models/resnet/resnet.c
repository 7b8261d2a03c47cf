/* resnet.c - ResNet and ResNeXt: images to classes, or to four feature maps.
 *
 *     x      = max_pool(relu(bn1(conv1(images))))      a quarter of the image's sides
 *     x      = relu(branch(x) + shortcut(x))           for each block
 *     logits = fc(mean of x over the map)
 *
 * The branch is two 3x3 convolutions (basic) or 1x1, 3x3, 1x1 (bottleneck), each with batch norm
 * and, except the last, ReLU. The shortcut is x, or a 1x1 convolution with batch norm where shapes
 * change. No weight depends on the image size.
 *
 * A frozen norm is folded into the preceding convolution, whose weights are multiplied by s =
 * weight / sqrt(var + eps) and whose bias is bias - mean s. The norm's weight and bias get
 * gradients through this. Inference folds it once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/resnet.h>

#include "model_inner.h"
#include "parts.h"

enum { STAGES = TP_RESNET_STAGES };
enum { MAX_SIZE = 1 << 20, MAX_BASE = 1 << 12 }; /* so that products fit */

/* ---- presets ---- */

/* The image baselines of the papers, then a small one. */
/* clang-format off */
#define CFG(side, width, neck, g, w, ...) \
    .cfg = &(const tp_resnet_cfg){ .image = { side, side }, .classes = 1000, .base = width, \
                                   .blocks = { __VA_ARGS__ }, .bottleneck = neck, .groups = g, \
                                   .group_width = w }
/* clang-format on */
static const tp_model_row presets[] = {
    { "resnet-18", "ResNet", .also = "resnet18 ResNet-18", .params = 11.7e6, .flops = 1.8e9,
      CFG(224, 64, false, 1, 64, 2, 2, 2, 2) },
    { "resnet-50", "ResNet", .also = "resnet50 ResNet-50", .params = 25.6e6, .flops = 4.1e9,
      CFG(224, 64, true, 1, 64, 3, 4, 6, 3) },
    { "resnet-101", "ResNet", .also = "resnet101 ResNet-101", .params = 44.7e6, .flops = 7.9e9,
      CFG(224, 64, true, 1, 64, 3, 4, 23, 3) },
    { "resnet-152", "ResNet", .also = "resnet152 ResNet-152", .params = 60e6, .flops = 11e9,
      CFG(224, 64, true, 1, 64, 3, 8, 36, 3) },
    { "resnext-101-32x4d", "ResNeXt", .also = "resnext101_32x4d ResNeXt101-32x4d",
      CFG(224, 64, true, 32, 4, 3, 4, 23, 3) },
    { "resnext-101-64x4d", "ResNeXt", .also = "resnext101_64x4d ResNeXt101-64x4d", .params = 83.5e6,
      .flops = 15.6e9, CFG(224, 64, true, 64, 4, 3, 4, 23, 3) },
    { "resnet-mini", "ResNet", CFG(64, 32, false, 1, 64, 2, 2, 2, 1) },
    { 0 },
};

/* ResNet-34 is a detector backbone; the papers do not compare it as a classifier. */
static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    if (strcmp(name, "resnet-34") != 0) {
        snprintf(why, size, "no ResNet is called '%.80s'", name);
        return false;
    }
    *(tp_resnet_cfg *)cfg = (tp_resnet_cfg){ .image = { 224, 224 },
                                             .classes = 1000,
                                             .base = 64,
                                             .blocks = { 3, 4, 6, 3 },
                                             .groups = 1,
                                             .group_width = 64 };
    return true;
}

/* ---- members; lists have one value per stage ---- */

#define AT(member) offsetof(tp_resnet_cfg, member)
static const tp_model_member members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE, .least = 1,
      .most = MAX_SIZE },
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS, .least = 0,
      .most = MAX_SIZE },
    { "base", TP_MEMBER_INT64, .at = AT(base), .least = 1, .most = MAX_BASE },
    { "layers", TP_MEMBER_INTS, .at = AT(blocks), .count = STAGES, .least = 1,
      .most = TP_RESNET_MAX_BLOCKS },
    { "bottleneck", TP_MEMBER_FLAG, .at = AT(bottleneck) },
    { "groups", TP_MEMBER_INT64, .at = AT(groups), .least = 1, .most = MAX_BASE },
    { "width_per_group", TP_MEMBER_INT64, .at = AT(group_width), .least = 1, .most = MAX_BASE },
    { "frozen_norm", TP_MEMBER_FLAG, .at = AT(frozen_norm), .optional = true },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

/* Channels of a stage's result and inside its bottlenecks. */
static void widths(const tp_resnet_cfg *c, int stage, int64_t *inner, int64_t *out)
{
    const int64_t planes = c->base << stage;
    *inner = c->inner[stage] ? c->inner[stage] : planes * c->group_width / 64 * c->groups;
    *out = c->out[stage] ? c->out[stage] : c->bottleneck ? 4 * planes : planes;
}

static void check_groups(const tp_resnet_cfg *c, char *why, size_t size)
{
    if (!c->bottleneck && (c->groups != 1 || c->group_width != 64))
        snprintf(why, size, "only bottlenecks have groups (%lld) or another width than 64 (%lld)",
                 (long long)c->groups, (long long)c->group_width);
    else if (c->base * c->group_width < 64 && c->inner[0] == 0)
        snprintf(why, size, "groups of width %lld are empty at a base of %lld",
                 (long long)c->group_width, (long long)c->base);
}

/* Also for backbones, without classes. */
static bool check(const tp_resnet_cfg *c, char *why, size_t size)
{
    int64_t blocks = 0;
    if (!tp__check_members(members, c, why, size)) return false;
    for (int s = 0; s < STAGES; s++) {
        if (!why[0] &&
            (!tp__in_range(c->out[s], 0, MAX_SIZE) || !tp__in_range(c->inner[s], 0, MAX_SIZE)))
            snprintf(why, size, "stage %d has %lld and %lld channels, not 0 to %d", s,
                     (long long)c->out[s], (long long)c->inner[s], MAX_SIZE);
        blocks += c->blocks[s];
    }
    if (why[0]) return false;
    if (blocks > TP_RESNET_MAX_BLOCKS)
        snprintf(why, size, "the model has %lld blocks, not at most %d", (long long)blocks,
                 TP_RESNET_MAX_BLOCKS);
    else
        check_groups(c, why, size);
    return !why[0];
}

/* Models in the table are classifiers. */
static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_resnet_cfg *c = cfg;
    if (c->classes != 0) return check(c, why, size);
    snprintf(why, size, "there are no classes");
    return false;
}

/* ---- block ---- */

static tp_conv_cfg square(int64_t stride, int64_t pad, int64_t groups)
{
    return (tp_conv_cfg){ { stride, stride }, { pad, pad }, { 1, 1 }, groups };
}

/* A norm with weight and bias as buffers, too. */
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

/* A convolution including its frozen norm. */
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

/* The same after fuse. Products in bf16 read a parameter's copy but cannot read buffers; a view of
 * a buffer can be cast. Norms that count no batches are buffers (init_fixed). */
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
    if (!check(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "ResNet: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, NULL);
    init_normed(P, &m->conv1, &m->bn1, names[c->detectron][STEM], c->detectron,
                (int64_t[]){ 3, c->base, 7 }, square(2, 3, 1));
    for (int s = 0; s < STAGES; s++)
        for (int b = 0; b < c->blocks[s]; b++, i++) {
            char block[32];
            snprintf(block, sizeof block, "%s%d.%d", c->detectron ? "res" : "layer",
                     s + (c->detectron ? 2 : 1), b);
            block_size z = { .in = in, .stride = s > 0 && b == 0 ? 2 : 1 };
            widths(c, s, &z.inner, &z.out);
            init_block(P, &m->block[i], block, c, z);
            in = z.out;
        }
    if (c->classes > 0) tp_linear_init(P, &m->fc, "fc", in, c->classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* Results of the four stages, at 1/4, 1/8, 1/16 and 1/32 of the image's sides, rounded up. */
static void features(tp_tape *T, const void *module, tp_tensor images, tp_tensor maps[STAGES])
{
    const tp_resnet *m = module;
    const tp_pool_cfg pool = { { 3, 3 }, { 2, 2 }, { 1, 1 }, false, false };
    const tp_resnet_block *block = m->block;
    tp_tensor x = images;
    tp_enter(T, m->path);
    if (tp__check_images(T, m->params, images)) {
        x = activated(T, &m->conv1, &m->bn1, m->norm, images, TP_NONE);
        x = tp_max_pool2d(T, x, pool);
    }
    for (int s = 0; s < STAGES; s++) {
        for (int b = 0; b < m->cfg.blocks[s]; b++) x = block_forward(T, block++, NULL, x);
        maps[s] = x;
    }
    tp_leave_n(T, STAGES, maps);
}

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor images)
{
    const tp_resnet *m = module;
    (void)state;
    tp_tensor maps[STAGES];
    if (tp_params_ok(m->params) && !tp_given(m->fc.weight))
        return tp_raise(T, TP_E_STATE, "this ResNet is a backbone without a head");
    features(T, m, images, maps);
    const tp_tensor x = maps[STAGES - 1];
    tp_enter(T, m->path);
    return tp_leave(T, tp_linear_forward(T, &m->fc, tp_mean(T, tp_mean(T, x, 1), 1)));
}

/* We use torchvision's and timm's names; these are detectron2's and Hugging Face transformers'. */
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

/* ---- fusing ----
 *
 *     bn(conv(x, w)) = conv(x, s w) + shift   s = weight / sqrt(var + eps)   shift = bias - s mean
 *
 * The norm becomes identity plus shift; fusing it again rounds the shift to itself. */

/* Buffers for one convolution and its norm. */
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

static void fold_values(const room *r, int64_t channels, int64_t each, double eps)
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

static bool fuse_one(tp_params *P, const tp_conv2d_m *conv, const tp_batchnorm_m *bn)
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
    if (done) fold_values(&r, channels, n / channels, bn->eps);
    done = done && set(P, conv->weight, r.conv) && set(P, bn->weight, r.weight) &&
           set(P, bn->bias, r.bias) && set(P, bn->mean, r.mean) && set(P, bn->var, r.var);
    if (!done) tp_params_raise(P, TP_E_STATE, "%s", tp_params_why(P));
    free(x);
    return done;
}

static bool fuse_block(tp_params *P, tp_resnet_block *m)
{
    bool done = true;
    for (int i = 0; i < m->convs && done; i++) done = fuse_one(P, &m->conv[i], &m->bn[i]);
    if (done && tp_given(m->down.weight)) done = fuse_one(P, &m->down, &m->down_bn);
    if (done) m->norm = TP_RESNET_FUSED;
    return done;
}

static bool fuse(tp_params *P, void *module)
{
    tp_resnet *m = module;
    if (!tp_params_ok(P)) return false;
    if (m->norm == TP_RESNET_BATCH_NORM) return true;
    int blocks = 0;
    for (int s = 0; s < STAGES; s++) blocks += m->cfg.blocks[s];
    bool done = fuse_one(P, &m->conv1, &m->bn1);
    for (int i = 0; i < blocks && done; i++) done = fuse_block(P, &m->block[i]);
    if (done) m->norm = TP_RESNET_FUSED;
    return done;
}

/* ---- detector backbones ---- */

static const char *const backbones[] = { "resnet-mini", "resnet18",  "resnet34",
                                         "resnet50",    "resnet101", NULL };

/* "resnet50" is "resnet-50" in the model table. The small model is trained entirely, with batches
 * large enough for batch normalisation. */
static bool backbone_preset(void *cfg, int *frozen, const char *name, tp_detection_profile profile)
{
    tp_resnet_cfg *c = cfg;
    tp_model_cfg model;
    char full[64], why[256];
    if (strncmp(name, "resnet", 6) != 0) return false;
    const char *rest = name[6] == '-' ? name + 7 : name + 6;
    snprintf(full, sizeof full, "resnet-%.40s", rest);
    if (!tp_model_preset(&model, full, why, sizeof why) || model.model != &tp_model_resnet)
        return false;
    memcpy(c, &model.at, sizeof *c);
    if (strcmp(rest, "mini") == 0) return true;
    c->frozen_norm = profile == TP_MMDETECTION;
    c->detectron = profile == TP_DETECTRON2;
    *frozen = 2;
    return true;
}

static bool maps(const void *cfg, int64_t channels[STAGES], char *why, size_t size)
{
    int64_t inner;
    if (!check(cfg, why, size)) return false;
    for (int k = 0; k < STAGES; k++) widths(cfg, k, &inner, &channels[k]);
    return true;
}

static void freeze_part(tp_params *P, const char *path, const char *part)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s%s", path, *path ? "." : "", part);
    tp_freeze(P, name, true);
}

static void freeze(tp_params *P, const void *module, int stages)
{
    const tp_resnet *m = module;
    const bool detectron = m->cfg.detectron;
    freeze_part(P, m->path, detectron ? "stem" : "conv1");
    if (!detectron) freeze_part(P, m->path, "bn1");
    for (int s = 1; s < stages; s++) {
        char part[32];
        snprintf(part, sizeof part, "%s%d", detectron ? "res" : "layer", s + detectron);
        freeze_part(P, m->path, part);
    }
}

static void classifier(void *cfg)
{
    ((tp_resnet_cfg *)cfg)->detectron = false;
}

static const tp_backbone_kind backbone = {
    .names = backbones,
    .preset = backbone_preset,
    .maps = maps,
    .features = features,
    .freeze = freeze,
    .fuse = fuse,
    .classifier = classifier,
};

/* ---- the model ---- */

static const tp_model_part parts[] = {
    { "block", sizeof(tp_resnet_block), block_init, block_forward },
    { 0 },
};

const tp_model tp_model_resnet = {
    .name = "resnet",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_resnet_cfg),
    .size = sizeof(tp_resnet),
    .presets = presets,
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .head = "fc.weight",
    .spellings = spellings,
    .parts = parts,
    .backbone = &backbone,
};
