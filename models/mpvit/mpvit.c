/* mpvit.c - MPViT: a stem, four stages of multi-path patches and encoders, the mean of the last
 * map.
 *
 *     p_0 = patches(map), p_n = patches(p_{n-1})            receptive fields of 3, 5, 7 pixels
 *     map = aggregate([residual(p_0), encoder_0(p_0), encoder_1(p_1), ...])
 *
 * All maps of a stage have one size, so paths differ only in receptive field. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/mpvit.h>

#include "coat/inner.h"
#include "model_inner.h"
#include "parts.h"
#include "vit_lsla/inner.h"

/* The image's sides after that many halvings, rounded up. */
static void map_after(const tp_mpvit_cfg *c, int halvings, int64_t map[2])
{
    for (int axis = 0; axis < 2; axis++) {
        map[axis] = c->image[axis];
        for (int i = 0; i < halvings; i++) map[axis] = (map[axis] + 1) / 2;
    }
}

/* Width after stage s: the next one's, or the last one's own. */
static int64_t width_after(const tp_mpvit_cfg *c, int s)
{
    return c->dim[s + 1 < TP_MPVIT_STAGES ? s + 1 : s];
}

/* MAX_WIDTH also limits classes, so that products fit. */
enum { MAX_SIDE = 1 << 16, MAX_WIDTH = 1 << 20, MAX_CLASSES = 1 << 24, MAX_RATIO = 64 };

/* Table 1 of the paper, Table 1 of ViT-LSLA for 102 classes, then a small one for images of 64 x
 * 64. */
/* clang-format off */
#define FOUR(a, b, c, d) { a, b, c, d }
#define CFG(side, widths, depths, r, rate) \
    .cfg = &(const tp_mpvit_cfg){ .image = { side, side }, .classes = 1000, .dim = widths, \
                                  .paths = { 2, 3, 3, 3 }, .layers = depths, \
                                  .mlp_ratio = { r, r, r, r }, .heads = 8, \
                                  .kernels = TP_COAT_PUBLISHED, .drop_path = rate }
/* clang-format on */
static const tp_model_row presets[] = {
    { "mpvit-t", "MPViT", .also = "mpvit-tiny mpvit_t MPViT-T", .params = 5.8e6, .flops = 1.6e9,
      .norm_cost = 5, CFG(224, FOUR(64, 96, 176, 216), FOUR(1, 2, 4, 1), 2, 0) },
    { "mpvit-xs", "MPViT", .also = "mpvit-xsmall mpvit_xs MPViT-XS", .params = 10.5e6,
      .flops = 2.9e9, .norm_cost = 5, CFG(224, FOUR(64, 128, 192, 256), FOUR(1, 2, 4, 1), 4, 0) },
    { "mpvit-s", "MPViT", .also = "mpvit-small mpvit_s MPViT-S", .params = 22.8e6, .flops = 4.7e9,
      .norm_cost = 5, CFG(224, FOUR(64, 128, 216, 288), FOUR(1, 3, 6, 3), 4, 0.05) },
    { "mpvit-b", "MPViT", .also = "mpvit-base mpvit_b MPViT-B", .params = 74.8e6, .flops = 16.4e9,
      .norm_cost = 5, CFG(224, FOUR(128, 224, 368, 480), FOUR(1, 3, 8, 3), 4, 0.3) },
    { "mpvit-s-ip102", "MPViT", .params = 22.6e6, .flops = 4.8e9, .norm_cost = 5 },
    { "mpvit-mini", "MPViT", .norm_cost = 5,
      CFG(64, FOUR(32, 64, 112, 160), FOUR(1, 2, 2, 1), 3, 0.05) },
    { 0 },
};

/* ---- members ---- */

#define AT(member) offsetof(tp_mpvit_cfg, member)
static const tp_model_member members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE, .least = 1,
      .most = MAX_SIDE },
    { "dims", TP_MEMBER_INT64S, .at = AT(dim), .count = TP_MPVIT_STAGES, .least = 1,
      .most = MAX_WIDTH },
    { "paths", TP_MEMBER_INTS, .at = AT(paths), .count = TP_MPVIT_STAGES, .least = 1,
      .most = TP_MPVIT_PATHS },
    { "layers", TP_MEMBER_INTS, .at = AT(layers), .count = TP_MPVIT_STAGES, .least = 1,
      .most = TP_MPVIT_MAX_LAYERS },
    { "mlp_ratios", TP_MEMBER_INTS, .at = AT(mlp_ratio), .count = TP_MPVIT_STAGES, .least = 1,
      .most = MAX_RATIO },
    { "heads", TP_MEMBER_INT, .at = AT(heads), .least = 1, .most = MAX_WIDTH },
    { "kernels", TP_MEMBER_INTS, .at = AT(kernels.kernel), .count = TP_COAT_KERNELS,
      .length = AT(kernels.n) },
    { "kernel_heads", TP_MEMBER_INTS, .at = AT(kernels.heads), .count = TP_COAT_KERNELS,
      .length = AT(kernels.n) },
    { "classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS, .least = 1,
      .most = MAX_CLASSES },
    { "drop_path", TP_MEMBER_RATE, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_mpvit_cfg *c = cfg;
    if (!tp__check_members(members, c, why, size)) return false;
    if (c->dim[0] % 2)
        snprintf(why, size, "the width %lld of stage 0 is odd: the stem needs half of it",
                 (long long)c->dim[0]);
    for (int s = 0; s < TP_MPVIT_STAGES && !why[0]; s++)
        if (c->dim[s] % c->heads)
            snprintf(why, size, "stage %d: the width %lld does not divide into %d heads", s,
                     (long long)c->dim[s], c->heads);
    return !why[0] && tp__coat_kernels(&c->kernels, c->heads, why, size);
}

/* ---- convolutions with batch norm ---- */

static void init_conv(tp_params *P, tp_mpvit_conv *m, const char *name, int64_t in, int64_t out,
                      bool plain)
{
    *m = (tp_mpvit_conv){ .path = tp_push(P, name), .plain = plain };
    tp_conv2d_init(P, &m->conv, "conv", in, out, 1, false, (tp_conv_cfg){ 0 });
    tp_batchnorm_init(P, &m->bn, "bn", out, 1e-5);
    tp_pop(P);
}

static tp_tensor run_conv(tp_tape *T, const tp_mpvit_conv *m, tp_tensor x)
{
    tp_enter(T, m->path);
    x = tp_batchnorm_forward(T, &m->bn, tp_conv2d_forward(T, &m->conv, x));
    return tp_leave(T, m->plain ? x : tp_hardswish(T, x));
}

static void init_depthwise(tp_params *P, tp_conv2d_m *m, int64_t dim, int64_t stride)
{
    tp_conv2d_init(P, m, "dwconv", dim, dim, 3, false,
                   (tp_conv_cfg){ .stride = { stride, stride }, .pad = { 1, 1 }, .groups = dim });
}

/* ---- patches ---- */

static void embed_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_mpvit_embed *m = module;
    const tp_mpvit_embed_cfg *c = cfg;
    const int64_t dim = c->dim, stride = c->stride;
    const int paths = c->paths;
    if (!tp__in_range(paths, 1, TP_MPVIT_PATHS) || dim < 1 || !tp__in_range(stride, 1, 2)) {
        tp_params_raise(P, TP_E_VALUE,
                        "patches %s: %d paths, not 1 to %d, of width %lld with stride %lld", name,
                        paths, TP_MPVIT_PATHS, (long long)dim, (long long)stride);
        return;
    }
    *m = (tp_mpvit_embed){ .paths = paths };
    tp_push(P, name);
    for (int i = 0; i < paths; i++) {
        tp_mpvit_patches *s = &m->step[i];
        char part[48];
        snprintf(part, sizeof part, "patch_embeds.%d.patch_conv", i);
        s->path = tp_push(P, part);
        init_depthwise(P, &s->dwconv, dim, i == 0 ? stride : 1);
        tp_conv2d_init(P, &s->pwconv, "pwconv", dim, dim, 1, false, (tp_conv_cfg){ 0 });
        tp_batchnorm_init(P, &s->bn, "bn", dim, 1e-5);
        tp_pop(P);
    }
    tp_pop(P);
}

static tp_tensor embed_forward(tp_tape *T, const void *module, void *with, tp_tensor map)
{
    const tp_mpvit_embed *m = module;
    tp_tensor *out = with;
    for (int i = 0; i < m->paths; i++) {
        const tp_mpvit_patches *s = &m->step[i];
        tp_enter(T, s->path);
        const tp_tensor y = tp_conv2d_forward(T, &s->dwconv, map);
        map = tp_batchnorm_forward(T, &s->bn, tp_conv2d_forward(T, &s->pwconv, y));
        out[i] = map = tp_leave(T, tp_hardswish(T, map));
    }
    return map;
}

/* ---- encoder ---- */

static void encoder_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_mpvit_encoder *m = module;
    const tp_mpvit_encoder_cfg *c = cfg;
    const tp_coat_shared_cfg encodings = {
        .cpe = "cpe", .crpe = "crpe", .dim = c->dim, .kernels = c->kernels
    };
    if (!tp__in_range(c->layers, 1, TP_MPVIT_MAX_LAYERS)) {
        tp_params_raise(P, TP_E_VALUE, "encoder %s: %d layers, not 1 to %d", name, c->layers,
                        TP_MPVIT_MAX_LAYERS);
        return;
    }
    m->path = tp_push(P, name);
    m->layers = c->layers;
    tp__coat_shared_init(P, &m->shared, "", &encodings);
    for (int j = 0; j < c->layers && tp_params_ok(P); j++) {
        const tp_coat_block_cfg b = { .dim = c->dim,
                                      .heads = c->heads,
                                      .mlp_ratio = c->mlp_ratio,
                                      .drop_path = c->drop_path ? c->drop_path[j] : 0.0,
                                      .recompute = c->recompute,
                                      .shared = &m->shared };
        char layer[32];
        snprintf(layer, sizeof layer, "MHCA_layers.%d", j);
        tp__coat_block_init(P, &m->block[j], layer, &b);
        tp_push(P, layer);
        tp__coat_tie(P, "cpe", "crpe", &m->shared);
        tp__coat_tie(P, NULL, "factoratt_crpe.crpe", &m->shared);
        tp_pop(P);
    }
    tp_pop(P);
}

static tp_tensor encoder_forward(tp_tape *T, const void *module, void *with, tp_tensor map)
{
    const tp_mpvit_encoder *m = module;
    (void)with;
    tp_enter(T, m->path);
    const tp_shape size = TP_SHAPE(tp_dim(map, 1), tp_dim(map, 2), 0);
    tp_tensor grid = tp_full(T, TP_F32, size, 0.0);
    tp_tensor x = tp__tokens(T, map);
    for (int j = 0; j < m->layers && tp_ok(T); j++) x = tp__coat_block(T, &m->block[j], &grid, x);
    return tp_leave(T, tp_reshape(T, x, tp_shape_of(map)));
}

/* ---- residual convolution ---- */

static void residual_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_mpvit_residual *m = module;
    const int64_t dim = *(const int64_t *)cfg;
    m->path = tp_push(P, name);
    init_conv(P, &m->conv1, "conv1", dim, dim, false);
    init_depthwise(P, &m->dwconv, dim, 1);
    tp_batchnorm_init(P, &m->norm, "norm", dim, 1e-5);
    init_conv(P, &m->conv2, "conv2", dim, dim, true);
    tp_pop(P);
}

static tp_tensor residual_forward(tp_tape *T, const void *module, void *with, tp_tensor map)
{
    const tp_mpvit_residual *m = module;
    (void)with;
    tp_enter(T, m->path);
    tp_tensor y = tp_conv2d_forward(T, &m->dwconv, run_conv(T, &m->conv1, map));
    y = tp_hardswish(T, tp_batchnorm_forward(T, &m->norm, y));
    return tp_leave(T, tp_add(T, map, run_conv(T, &m->conv2, y)));
}

/* ---- stage ---- */

static void stage_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_mpvit_stage *m = module;
    const tp_mpvit_stage_cfg *c = cfg;
    const int64_t dim = c->encoder.dim, out = c->out;
    const int paths = c->paths;
    if (!tp__in_range(paths, 1, TP_MPVIT_PATHS) || out < 1) {
        tp_params_raise(P, TP_E_VALUE, "stage %s: %d paths, not 1 to %d, to width %lld", name,
                        paths, TP_MPVIT_PATHS, (long long)out);
        return;
    }
    m->path = tp_push(P, name);
    m->paths = paths;
    for (int i = 0; i < paths; i++) {
        char part[32];
        snprintf(part, sizeof part, "mhca_blks.%d", i);
        encoder_init(P, &m->encoder[i], part, &c->encoder);
    }
    residual_init(P, &m->residual, "InvRes", &dim);
    init_conv(P, &m->aggregate, "aggregate", (paths + 1) * dim, out, false);
    tp_pop(P);
}

static tp_tensor stage_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_mpvit_stage *m = module;
    const tp_tensor *in = with;
    tp_tensor all[TP_MPVIT_PATHS + 1];
    tp_enter(T, m->path);
    all[0] = residual_forward(T, &m->residual, NULL, x);
    for (int i = 0; i < m->paths; i++) all[i + 1] = encoder_forward(T, &m->encoder[i], NULL, in[i]);
    return tp_leave(T, run_conv(T, &m->aggregate, tp_concat_n(T, 3, m->paths + 1, all)));
}

/* ---- the model ---- */

/* Convolutions with batch norm: normal by the number of outputs, k k out, which only the residual
 * convolution divides by its groups. Encodings and all others keep their modules' defaults. */
static tp_init init_rule(const char *name, tp_shape s, tp_init dflt, void *last)
{
    const bool embedded = strstr(name, ".patch_conv.") != NULL;
    const bool normed =
        embedded || tp_ends_in(name, ".conv.weight") || tp_ends_in(name, ".dwconv.weight");
    if (s.ndim != 4 || !normed) return tp__usual_init(name, s, dflt, last);
    const bool depthwise = tp_ends_in(name, ".dwconv.weight") && !embedded;
    const double out = depthwise ? 1.0 : (double)s.dim[0];
    const double fan = (double)(s.dim[2] * s.dim[3]) * out;
    return (tp_init){ TP_INIT_NORMAL, sqrt(2.0 / fan), 0.0 };
}

/* Declares stage s from layer `first` of `all`; returns the next stage's first. */
static int init_stage(tp_params *P, tp_mpvit *m, int s, int first, int all)
{
    const tp_mpvit_cfg *c = &m->cfg;
    double rates[TP_MPVIT_MAX_LAYERS];
    char name[48];
    for (int j = 0; j < c->layers[s]; j++) rates[j] = tp__drop_rate(c->drop_path, first + j, all);
    const tp_mpvit_embed_cfg embed = { .dim = c->dim[s],
                                       .stride = s == 0 ? 1 : 2,
                                       .paths = c->paths[s] };
    const tp_mpvit_encoder_cfg e = { .dim = c->dim[s],
                                     .layers = c->layers[s],
                                     .heads = c->heads,
                                     .mlp_ratio = c->mlp_ratio[s],
                                     .drop_path = rates,
                                     .kernels = c->kernels,
                                     .recompute = c->recompute };
    const tp_mpvit_stage_cfg stage = { c->paths[s], width_after(c, s), e };
    snprintf(name, sizeof name, "patch_embed_stages.%d", s);
    embed_init(P, &m->embed[s], name, &embed);
    snprintf(name, sizeof name, "mhca_stages.%d", s);
    stage_init(P, &m->stage[s], name, &stage);
    return first + c->layers[s];
}

static void model_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_mpvit *m = module;
    const tp_mpvit_cfg *c = cfg;
    char why[256];
    bool convolution = false;
    int layers = 0;
    *m = (tp_mpvit){ .params = P, .cfg = *c };
    if (!model_check(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "MPViT: %s", why);
        return;
    }
    for (int s = 0; s < TP_MPVIT_STAGES; s++) layers += c->layers[s];
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, &convolution);
    tp__lsla_stem_init(P, &m->stem, "stem", &c->dim[0]);
    for (int s = 0, first = 0; s < TP_MPVIT_STAGES; s++) first = init_stage(P, m, s, first, layers);
    tp_linear_init(P, &m->head, "cls_head.cls", c->dim[TP_MPVIT_STAGES - 1], c->classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor images)
{
    const tp_mpvit *m = module;
    (void)state;
    tp_tensor paths[TP_MPVIT_PATHS] = { TP_NONE };
    tp_enter(T, m->path);
    tp__check_images(T, m->params, images);
    tp_tensor x = tp__lsla_stem(T, &m->stem, NULL, images);
    for (int s = 0; s < TP_MPVIT_STAGES && tp_ok(T); s++) {
        embed_forward(T, &m->embed[s], paths, x);
        x = stage_forward(T, &m->stage[s], paths, paths[0]);
    }
    x = tp_mean(T, tp__tokens(T, x), 1);
    return tp_leave(T, tp_linear_forward(T, &m->head, x));
}

/* The paper's counter also counts the last map once, for its mean. */
static void model_paper(const void *cfg, int64_t tokens, tp_cost *cost)
{
    const tp_mpvit_cfg *c = cfg;
    int64_t map[2];
    (void)tokens;
    map_after(c, TP_MPVIT_STAGES + 1, map);
    cost->paper += (double)(map[0] * map[1] * c->dim[TP_MPVIT_STAGES - 1]);
}

static const tp_model_part parts[] = {
    { "embed", sizeof(tp_mpvit_embed), embed_init, embed_forward },
    { "encoder", sizeof(tp_mpvit_encoder), encoder_init, encoder_forward },
    { "residual", sizeof(tp_mpvit_residual), residual_init, residual_forward },
    { "stage", sizeof(tp_mpvit_stage), stage_init, stage_forward },
    { 0 },
};

const tp_model tp_model_mpvit = {
    .name = "mpvit",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_mpvit_cfg),
    .size = sizeof(tp_mpvit),
    .presets = presets,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .paper = model_paper,
    .head = "cls_head.cls.weight",
    .parts = parts,
};
