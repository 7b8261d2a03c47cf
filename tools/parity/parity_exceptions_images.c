/* parity_exceptions_images.c - exceptions for the kinds of image baselines; see parity_exceptions.c. */
#include "parity_exceptions.h"

static bool same_program(parity *p, const char *from, const char *to)
{
    (void)p;
    return are(from, to, "image_baselines.vit_model", "image_baselines.deit_model");
}

static bool is_hard(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return is(p, "distill_type", "hard");
}

static bool soft_targets(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return is(p, "soft_targets", "1");
}

/* True for a PVTv2 that pools its keys and values. */
static bool pooled(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return is(p, "linear", "1");
}

static bool not_pooled(parity *p, const char *from, const char *to)
{
    return !pooled(p, from, to);
}

/* True if sides in both lists, or a single side, hold as many patches of that size. */
static bool same_grid(const char *from, const char *to, int64_t patch)
{
    for (;;) {
        char *a, *b;
        if (strtoll(from, &a, 10) / patch != strtoll(to, &b, 10) / patch) return false;
        if (*a != ',' || *b != ',') return *a == *b;
        from = a + 1;
        to = b + 1;
    }
}

static bool same_patches(parity *p, const char *from, const char *to)
{
    return same_grid(from, to, number(p, "patch"));
}

/* PVT's stages have maps of 1/4 to 1/32 of the image's sides. */
static bool same_maps(parity *p, const char *from, const char *to)
{
    (void)p;
    for (int64_t part = 4; part <= 32; part *= 2)
        if (!same_grid(from, to, part)) return false;
    return true;
}

/* True if all planes get the same inner width. */
static bool same_width(parity *p, const char *from, const char *to)
{
    const int64_t a = strtoll(from, NULL, 10), b = strtoll(to, NULL, 10);
    const int64_t planes = number(p, par_given(p, "base") ? "base" : "planes");
    for (int64_t s = 0; s < (par_given(p, "base") ? 4 : 1); s++)
        if ((planes << s) * a / 64 != (planes << s) * b / 64) return false;
    return a > 0 && b > 0;
}

/* True for two names of one model, as "resnet50" and "resnet-50". */
static bool one_row(parity *p, const char *from, const char *to)
{
    (void)p;
    return tp_model_find(from) && tp_model_find(from) == tp_model_find(to);
}

/* Of the full models only ResNets have batch norms. */
static bool no_batchnorm(parity *p, const char *from, const char *to)
{
    const char *name = par_text(p, "preset");
    (void)from;
    (void)to;
    return name && strncmp(name, "resne", 5) != 0;
}

static bool not_reduced(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return is(p, "sr_ratio", "1") && !is(p, "linear", "1");
}

#define KIND "image_baselines."
/* clang-format off */
const par_exception par_image_exceptions[] = {
    { KIND "*", "kind", "both kinds run the same code, and the other keys decide what it computes", same_program },
    { KIND "vit*", "mode", "without batch norm nothing depends on it", NULL },
    { KIND "deit*", "mode", "without batch norm nothing depends on it", NULL },
    { KIND "pvt*", "mode", "without batch norm nothing depends on it", NULL },
    { KIND "distill_loss", "mode", "without batch norm nothing depends on it", NULL },
    { KIND "position_interpolation", "mode", "without batch norm nothing depends on it", NULL },
    { KIND "full", "preset", "both are names of the model", one_row },
    { KIND "full", "mode", "without batch norm nothing depends on it", no_batchnorm },
    { KIND "distill_loss", "tau", "hard distillation has no temperature", is_hard },
    { KIND "distill_loss", "label_smoothing", "the targets are given", soft_targets },
    { KIND "pvt2*", "sr_ratio*", "keys and values are pooled instead", pooled },
    { KIND "pvt2*", "pool_size", "nothing is pooled", not_pooled },
    { KIND "vit_model", "img", "the grid of patches is the same", same_patches },
    { KIND "deit_model", "img", "the grid of patches is the same", same_patches },
    { KIND "pvt_*", "img", "the maps of all stages are the same", same_maps },
    { KIND "resne*", "width_per_group", "the inner widths are rounded down", same_width },
    { KIND "resne*", "momentum_bn", "evaluation updates no statistics", in_evaluation },
    { KIND "pvt*", "eps_attn_norm", "nothing is reduced", not_reduced },
    { KIND "mixup_cutmix", "cutmix_lambda_drawn", "the box of cutmix does not change", same_box },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
