/* rates.c - learning rates, weight decay and optimisers of the papers' code.
 *
 * The schedules warm up linearly from a fraction of the rate, then follow half a cosine to the
 * final rate. They differ in where the cosine starts and how they count updates: see
 * image_schedule. */
#include <math.h>
#include <string.h>

#include "image_settings.h"
#include "layer_decay.h"

double image_rate(const image_settings *s, int64_t u, int64_t U)
{
    const double lr = s->train.lr, start = s->warmup_factor * lr;
    const int64_t total = s->schedule_steps > 0 ? s->schedule_steps : s->train.epochs * U;
    const int64_t warm =
        s->warmup_steps > 0 ? s->warmup_steps : (int64_t)(s->train.warmup * (double)U);
    switch ((image_schedule)s->schedule) {
    case RATE_CONSTANT:
    case RATE_PLATEAU: return tp_lr_cosine_from(u + 1, warm, total, start, lr, lr);
    case RATE_VIL: return tp_lr_cosine_whole(u, warm, total, start, lr, s->train.lr_end);
    case RATE_CVT: return tp_lr_cosine_whole(u / U * U, warm, total, start, lr, s->train.lr_end);
    case RATE_LSLA: return tp_lr_cosine_from(u, warm, total, start, lr, s->train.lr_end);
    case RATE_LINEAR: return tp_lr_linear(u, warm, total, lr, s->train.lr_end);
    case RATE_STEP: return tp_lr_step(u, warm, s->train.lr_every, s->train.lr_factor, lr);
    case RATE_ONECYCLE: return tp_lr_onecycle(u, total, lr, 0.3, 25, 1e4);
    case RATE_RESNET: return lr * pow(0.1, (double)(3 * (u / U) / s->train.epochs));
    case RATE_COSINE: break;
    }
    return tp_lr_cosine_from(u + 1, warm, total, start, lr, s->train.lr_end);
}

static bool contains_any(const char *name, const char *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

tp_factors image_factors(const char *name, tp_shape shape, const image_settings *s)
{
    static const char *const vil[] = { "pos_embed",  "cls_token", "norm.weight",      "norm.bias",
                                       "norm_embed", "head.bias", "relative_position" };
    static const char *const lsla[] = { "relative_position_bias_table", "dynamic_scale",
                                        "absolute_pos_embed" };
    static const char *const deit[] = { "pos_embed", "cls_token", "dist_token" };
    const bool vector = shape.ndim <= 1 || tp_ends_in(name, "bias");
    bool spared = false;
    switch ((decay_groups)s->decay) {
    case DECAY_ALL: break;
    case DECAY_MATRICES: spared = vector || strstr(name, "cls_token"); break;
    case DECAY_VIL: spared = contains_any(name, vil, sizeof vil / sizeof vil[0]); break;
    case DECAY_DEIT: spared = vector || contains_any(name, deit, 3); break;
    case DECAY_LSLA: spared = vector || contains_any(name, lsla, 3); break;
    }
    return (tp_factors){ .lr = 1, .decay = spared ? 0 : 1 };
}

/* For factors_of, while the optimiser is created. */
typedef struct rules {
    const image_settings *s;
    levels levels;
} rules;

static tp_factors factors_of(const char *name, tp_shape shape, void *env)
{
    const rules *r = env;
    tp_factors f = image_factors(name, shape, r->s);
    /* 0: a measurement's settings, not set by recipe or option */
    if (r->s->layer_decay > 0) f.lr = level_factor(&r->levels, name, r->s->layer_decay);
    return f;
}

tp_optim *image_new_optimizer(tp_params *P, const image_settings *s)
{
    rules r = { .s = s, .levels = levels_of(P) };
    return tp_train_optimizer(P, &s->train, false, factors_of, &r);
}
