/* parity_exceptions_window.c - the exceptions of parity_exceptions.c for Swin, CSWin, CoaT and MPViT. */
#include "parity_exceptions.h"

static bool one_program(parity *p, const char *from, const char *to)
{
    (void)p;
    return are(from, to, "window_baselines.swin_attention", "window_baselines.swin_mask") ||
           are(from, to, "window_baselines.coat_factor_attention",
               "window_baselines.mpvit_factor_attention");
}

static bool no_batch_norm(parity *p, const char *from, const char *to)
{
    static const char *const kinds[] = { "patch_embed", "resblock", "stage", "model" };
    const char *kind = p->kind->kind + strlen("window_baselines."), *preset = par_text(p, "preset");
    (void)from, (void)to;
    if (strncmp(kind, "mpvit_", 6) != 0) return !preset || strncmp(preset, "mpvit", 5) != 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind + 6, kinds[i]) == 0) return false;
    return true;
}

static bool map_in_both_windows(parity *p, const char *from, const char *to)
{
    const int64_t side = smaller_side(p);
    return strtoll(from, NULL, 10) >= side && strtoll(to, NULL, 10) >= side;
}

static bool not_shifted(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return smaller_side(p) <= number(p, "window_argument");
}

static bool last_stage(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "last_stage", "1");
}

static bool whole_stripe(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return number(p, "split_size") == number(p, "resolution");
}

static bool stripe_is_map(parity *p, const char *from, const char *to)
{
    const int64_t side = number(p, "resolution");
    (void)from, (void)to;
    return number(p, "stripe_height") == side && number(p, "stripe_width") == side;
}

/* True if the lists differ in the last number only. */
static bool but_the_last(parity *p, const char *from, const char *to)
{
    const char *comma = strrchr(from, ',');
    (void)p;
    return comma && strncmp(from, to, (size_t)(comma - from) + 1) == 0 &&
           !strchr(to + (comma - from) + 1, ',');
}

/* clang-format off */
const par_exception par_window_exceptions[] = {
    { "window_baselines.*", "kind", "both kinds run the same code, and the other keys decide what it computes", one_program },
    { "window_baselines.*", "mode", "without batch norm nothing depends on it", no_batch_norm },
    { "window_baselines.*", "unused_params", "a parameter without a stored gradient need not be named", fewer_names },
    { "window_baselines.*", "momentum_bn", "evaluation leaves the running statistics", in_evaluation },
    { "window_baselines.*", "eps_*", "lost in rounding next to the variances", small_change },
    { "window_baselines.*", "image", "one number is the side of a square", one_side },
    { "window_baselines.swin_block", "window_argument", "the map is no larger than the windows", map_in_both_windows },
    { "window_baselines.swin_block", "shift_argument", "a map of one window is not shifted", not_shifted },
    { "window_baselines.cswin_block", "split_size", "the last stage has no stripes", last_stage },
    { "window_baselines.cswin_block", "last_stage", "the map is one stripe", whole_stripe },
    { "window_baselines.cswin_lepe_attention", "branch_index", "the map is one stripe", stripe_is_map },
    { "window_baselines.cswin_model", "split_size", "the last stage has no stripes", but_the_last },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
