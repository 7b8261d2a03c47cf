/* convnet.c - the convolutional baseline: presets, checks, members, forward pass, costs. */
#include <tapegrad/convnet.h>

#include <stdio.h>
#include <string.h>

#include "model_inner.h"

enum { LAYERS = TP_CONVNET_LAYERS, MAX_SIDE = 1 << 16, MAX_WIDTH = 4096, MAX_CLASSES = 1 << 24 };

/* ---- configurations ---- */

static const struct {
    const char *name;
    int64_t side, width;
} presets[] = {
    { "tiny", 32, 16 },
    { "convnet", 64, 32 },
};

static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const int64_t side = presets[i].side;
        if (strcmp(presets[i].name, name) != 0) continue;
        *(tp_convnet_cfg *)cfg = (tp_convnet_cfg){ { side, side }, 1000, presets[i].width };
        return true;
    }
    snprintf(why, size, "no convolutional baseline is called '%.80s'", name);
    return false;
}

bool tp_convnet_cfg_check(const tp_convnet_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why)
            snprintf(why, size, "convnet_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    why[0] = '\0';
    if (!tp__in_range(c->width, 1, MAX_WIDTH))
        snprintf(why, size, "the width is %lld, not 1 to %d", (long long)c->width, MAX_WIDTH);
    else if (!tp__in_range(c->classes, 1, MAX_CLASSES))
        snprintf(why, size, "there are %lld classes, not 1 to %d", (long long)c->classes,
                 MAX_CLASSES);
    else if (!tp__in_range(c->image[0], 1, MAX_SIDE) || !tp__in_range(c->image[1], 1, MAX_SIDE))
        snprintf(why, size, "images are %lld x %lld pixels: sides must be 1 to %d",
                 (long long)c->image[0], (long long)c->image[1], MAX_SIDE);
    return !why[0];
}

#define AT(member) offsetof(tp_convnet_cfg, member)
static const tp_model_member members[] = {
    { "convnet_width", TP_MEMBER_INT64, .at = AT(width) },
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE,
      .older = "classifier_size" },
    { "classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS,
      .older = "classifier_classes" },
    { .kind = TP_MEMBER_END },
};

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_convnet_cfg_check(cfg, why, size);
}

/* ---- the model ---- */

/* Output channels of layer i. */
static int64_t channels(const tp_convnet_cfg *c, int i)
{
    return c->width << (i < 3 ? i : 3);
}

void tp_convnet_init(tp_params *P, tp_convnet *m, const char *name, tp_convnet_cfg cfg)
{
    if (!tp_params_want_module(P, m, "convnet")) return;
    char why[256];
    memset(m, 0, sizeof *m);
    m->params = P;
    m->cfg = cfg;
    if (!tp_convnet_cfg_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "convolutional baseline: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    for (int i = 0; i < LAYERS; i++) {
        char layer[16];
        const int64_t in = i ? channels(&cfg, i - 1) : 3, out = channels(&cfg, i);
        const int64_t stride = i ? 2 : 1;
        snprintf(layer, sizeof layer, "conv.%d", i);
        tp_conv2d_init(P, &m->conv[i], layer, in, out, 3, false,
                       (tp_conv_cfg){ .stride = { stride, stride }, .pad = { 1, 1 } });
        snprintf(layer, sizeof layer, "norm.%d", i);
        tp_batchnorm_init(P, &m->norm[i], layer, out, 1e-5);
    }
    tp_linear_init(P, &m->head, "head", channels(&cfg, LAYERS - 1), cfg.classes, true);
    tp_pop(P);
}

tp_tensor tp_convnet_forward(tp_tape *T, const tp_convnet *m, tp_tensor images)
{
    if (!tp_want_module(T, m, "convnet")) return TP_NONE;
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

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_convnet_init(P, m, name, *(const tp_convnet_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    (void)state;
    return tp_convnet_forward(T, m, x);
}

const tp_model tp_model_convnet = {
    .name = "convnet",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_convnet_cfg),
    .size = sizeof(tp_convnet),
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .head = "head.weight",
};
