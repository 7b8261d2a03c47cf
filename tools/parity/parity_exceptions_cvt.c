/* parity_exceptions_cvt.c - the exceptions of parity_exceptions.c for CvT. */
#include "parity_exceptions.h"

/* True if both rows of the model table are for the same weights, at different image sizes. */
static bool same_weights(parity *p, const char *from, const char *to)
{
    tp_model_cfg a, b;
    char why[256];
    (void)p;
    return tp_model_preset(&a, from, why, sizeof why) && tp_model_preset(&b, to, why, sizeof why) &&
           tp_model_same(&a, &b);
}

static bool no_class(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "cls", "0");
}

static bool raw_kv(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "dual_ln", "0");
}

/* auto equals 0 if all stages have a single head, and 1 if none has. */
static bool same_projections(parity *p, const char *from, const char *to)
{
    const bool two = is(p, "model", "CvT*-LS-17") || is(p, "model", "CvT*-LS-21S");
    int64_t n, single = 0;
    const int64_t *heads = par_sizes(p, "heads", 1, &n);

    for (int64_t i = 0; i < n; i++) single += heads[i] == 1;
    return (n > 0 && single == n && are(from, to, "0", "auto")) ||
           ((n > 0 ? single == 0 : two) && are(from, to, "1", "auto"));
}

static bool one_head(parity *p, const char *from, const char *to)
{
    int64_t n;
    const int64_t *heads = par_sizes(p, "heads", 1, &n);
    (void)from, (void)to;
    for (int64_t i = 0; i < n; i++)
        if (heads[i] != 1) return false;
    return n > 0;
}

/* True if both windows cover the map. A stage's map has 1/4, 1/8 and 1/16 of the image's sides;
 * that of a single attention has the case's size. */
static bool same_windows(parity *p, const char *from, const char *to)
{
    const int64_t side[] = { number(p, "H"), number(p, "W") };

    for (int64_t part = strchr(from, ',') ? 4 : 1; *from && *to; part *= 2) {
        char *rest[2];
        const int64_t a = strtoll(from, &rest[0], 10), b = strtoll(to, &rest[1], 10);
        for (int i = 0; i < 2; i++)
            if (a < 1 || b < 1 ||
                (a != b && !(reaches(a, side[i] / part) && reaches(b, side[i] / part))))
                return false;
        from = rest[0] + (*rest[0] == ',');
        to = rest[1] + (*rest[1] == ',');
    }
    return !*from && !*to;
}

/* clang-format off */
const par_exception par_cvt_exceptions[] = {
    { "cvt.*full", "model", "the file has all that the image size decides", same_weights },
    { "cvt.conv_embed", "mode", "without batch norm nothing depends on it", NULL },
    { "cvt.ws_sepconv", "mode", "without batch norm nothing depends on it", NULL },
    { "cvt.ls_attention", "cls_proj", "there is no class token", no_class },
    { "cvt.ls_attention", "ln_eps", "the epsilon of DualLN, which is off", raw_kv },
    { "cvt.*", "out_proj", "the heads decide auto", same_projections },
    { "cvt.*", "scale", "a single head has the full width", one_head },
    { "cvt.ls_*", "w", "the window covers the whole map", same_windows },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
