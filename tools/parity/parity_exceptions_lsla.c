/* parity_exceptions_lsla.c - the exceptions of parity_exceptions.c for ViT-LSLA. */
#include "parity_exceptions.h"

static bool no_mask(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "outer", "0") || (par_given(p, "shift") && is(p, "shift", "0")) ||
           strcmp(p->kind->kind, "lsla.op") == 0 || smaller_side(p) <= number(p, "window");
}

static bool map_in_window(parity *p, const char *from, const char *to)
{
    (void)from;
    const int64_t w = strtoll(to, NULL, 10);
    return smaller_side(p) <= number(p, "window") && smaller_side(p) <= w && w > number(p, "shift");
}

static bool map_in_a_window(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return smaller_side(p) <= number(p, "window");
}

static bool same_updates(parity *p, const char *from, const char *to)
{
    const int64_t batch = number(p, "batch");
    return batch > 0 && strtoll(from, NULL, 10) / batch == strtoll(to, NULL, 10) / batch;
}

static bool default_threshold(parity *p, const char *from, const char *to)
{
    const char *comma = strchr(from, ',');
    (void)p;
    return comma && strcmp(comma, ",128") == 0 && strncmp(from, to, (size_t)(comma - from)) == 0 &&
           !to[comma - from];
}

/* clang-format off */
const par_exception par_lsla_exceptions[] = {
    { "lsla.full", "model", "the other keys give the whole configuration", NULL },
    { "lsla.model", "model", "the other keys give the whole configuration", NULL },
    { "lsla.op", "mode", "without batch norm nothing depends on it", NULL },
    { "lsla.window_op", "mode", "without batch norm nothing depends on it", NULL },
    { "lsla.block", "mode", "without batch norm nothing depends on it", NULL },
    { "lsla.merge", "mode", "without batch norm nothing depends on it", NULL },
    { "lsla.*", "mask_outer", "there is no outer bias, or no shifted window", no_mask },
    { "lsla.*", "window", "the map is no larger than the window", map_in_window },
    { "lsla.*", "shift", "a map of one window is not shifted", map_in_a_window },
    { "lsla.model", "image", "one number is the side of a square", one_side },
    { "lsla.lr_schedule", "train_images", "the number of updates in an epoch is rounded", same_updates },
    { "lsla.lr_schedule", "warmup_lr_per_512", "there is no warm-up", no_warmup },
    { "lsla.mixup_loss", "cutmix_lambda_drawn", "the box of cutmix does not change", same_box },
    { "lsla.image_ops", "arg.solarize_add*", "the threshold is 128 by default", default_threshold },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
