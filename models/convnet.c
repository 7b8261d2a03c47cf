/* convnet.c - the convolutional baseline: presets, checks, members, forward pass, costs. */
#include <tapegrad/convnet.h>

#include <stdio.h>

#include "model_inner.h"

enum { LAYERS = TP_CONVNET_LAYERS, MAX_SIDE = 1 << 16, MAX_WIDTH = 4096, MAX_CLASSES = 1 << 24 };

/* ---- configurations ---- */

/* Not from a paper. */
static const tp_model_row presets[] = {
    { "tiny", "convolutional",
      .cfg = &(const tp_convnet_cfg){ .image = { 32, 32 }, .classes = 1000, .width = 16 } },
    { "convnet", "convolutional",
      .cfg = &(const tp_convnet_cfg){ .image = { 64, 64 }, .classes = 1000, .width = 32 } },
    { 0 },
};

#define AT(member) offsetof(tp_convnet_cfg, member)
static const tp_model_member members[] = {
    { "convnet_width", TP_MEMBER_INT64, .at = AT(width), .least = 1, .most = MAX_WIDTH },
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE,
      .older = "classifier_size", .least = 1, .most = MAX_SIDE },
    { "classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS,
      .older = "classifier_classes", .least = 1, .most = MAX_CLASSES },
    { .kind = TP_MEMBER_END },
};

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp__check_members(members, cfg, why, size);
}

/* ---- the model ---- */

/* Output channels of layer i. */
static int64_t channels(const tp_convnet_cfg *c, int i)
{
    return c->width << (i < 3 ? i : 3);
}

static void model_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_convnet *m = module;
    const tp_convnet_cfg *c = cfg;
    char why[256];
    *m = (tp_convnet){ .params = P, .cfg = *c };
    if (!model_check(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "convolutional baseline: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    for (int i = 0; i < LAYERS; i++) {
        char layer[16];
        const int64_t in = i ? channels(c, i - 1) : 3, out = channels(c, i);
        const int64_t stride = i ? 2 : 1;
        snprintf(layer, sizeof layer, "conv.%d", i);
        tp_conv2d_init(P, &m->conv[i], layer, in, out, 3, false,
                       (tp_conv_cfg){ .stride = { stride, stride }, .pad = { 1, 1 } });
        snprintf(layer, sizeof layer, "norm.%d", i);
        tp_batchnorm_init(P, &m->norm[i], layer, out, 1e-5);
    }
    tp_linear_init(P, &m->head, "head", channels(c, LAYERS - 1), c->classes, true);
    tp_pop(P);
}

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor images)
{
    const tp_convnet *m = module;
    (void)state;
    if (!tp_params_ok(m->params)) return tp_raise(T, TP_E_STATE, "%s", tp_params_why(m->params));
    if (tp_ok(T) && (tp_ndim(images) != 4 || tp_dim(images, 3) != 3))
        return tp_raise(T, TP_E_SHAPE, "images must be [batch,height,width,3]");
    tp_enter(T, m->path);
    tp_tensor x = images;
    for (int i = 0; i < LAYERS; i++)
        x = tp_relu(T, tp_batchnorm_forward(T, &m->norm[i], tp_conv2d_forward(T, &m->conv[i], x)));
    x = tp_mean(T, tp_mean(T, x, 1), 1);
    return tp_leave(T, tp_linear_forward(T, &m->head, x));
}

const tp_model tp_model_convnet = {
    .name = "convnet",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_convnet_cfg),
    .size = sizeof(tp_convnet),
    .presets = presets,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .head = "head.weight",
};
