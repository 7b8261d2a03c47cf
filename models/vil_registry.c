/* vil_registry.c - the published Vision Longformers, with what the papers print for them: Tables 2,
 * 4, 5, 11, 12 and 14 of ViL, Table 5 of Transformer-LS. A variant is a line's number. */
#include "registry_inner.h"
#include "vil_inner.h"

static tp_vil_cfg cfg_of(int variant)
{
    tp_vil_cfg c = { 0 }; /* stays without stages, and fails what uses it, if the name is wrong */
    char why[128];
    tp_vil_preset(&c, tp__vil_models[variant].name, why, sizeof why);
    return c;
}

static void declare(tp_params *P, int variant)
{
    tp_vil m;
    tp_vil_init(P, &m, "", cfg_of(variant));
}

static tp_flops flops(int variant)
{
    const tp_vil_cfg c = cfg_of(variant);
    return tp_vil_flops(&c, c.kind != TP_VIL_LS);
}

static double activations(int variant, bool recompute)
{
    tp_vil_cfg c = cfg_of(variant);
    c.recompute = recompute ? TP_RECOMPUTE_BLOCK : TP_RECOMPUTE_NONE;
    return tp_vil_activations(&c);
}

#define LINE(i, name, family, input, p, f, norm)                                                   \
    {                                                                                              \
        name, family, input, p * 1e6, f * 1e9, norm, i, declare, flops, activations                \
    }
#define VIL(i, name, input, p, f) LINE(i, name, "ViL", input, p, f, 0)
#define LS(i, name, input, p, f)  LINE(i, name, "ViL-LS", input, p, f, 5)
#define TABLE14(i, a, p0, p1, p2, p3, p4, p5, p6, p7, f0, f1, f2, f3, f4, f5, f6, f7)              \
    VIL(i, "vil-tiny-1-10-1-" a, "224 x 224", p0, f0),                                             \
        VIL(i + 1, "vil-tiny-2-9-1-" a, "224 x 224", p1, f1),                                      \
        VIL(i + 2, "vil-tiny-1-1-9-1-" a, "224 x 224", p2, f2),                                    \
        VIL(i + 3, "vil-tiny-1-2-8-1-" a, "224 x 224", p3, f3),                                    \
        VIL(i + 4, "vil-small-1-10-1-" a, "224 x 224", p4, f4),                                    \
        VIL(i + 5, "vil-small-2-9-1-" a, "224 x 224", p5, f5),                                     \
        VIL(i + 6, "vil-small-1-1-9-1-" a, "224 x 224", p6, f6),                                   \
        VIL(i + 7, "vil-small-1-2-8-1-" a, "224 x 224", p7, f7)

/* clang-format off */
const tp_model_info tp__vil_models[] = {
    TABLE14(0, "full", 7.1, 6.8, 6.7, 6.4, 27.6, 26.3, 26.0, 24.6, 1.35, 1.45, 2.29, 2.39, 4.84, 5.05, 6.74, 6.95),
    TABLE14(8, "ape", 7.1, 6.8, 6.7, 6.4, 27.6, 26.3, 26.0, 24.6, 1.27, 1.29, 1.33, 1.35, 4.67, 4.71, 4.82, 4.86),
    TABLE14(16, "linformer", 7.8, 7.7, 8.2, 8.0, 28.3, 27.1, 27.4, 26.3, 1.57, 1.60, 1.69, 1.73, 5.27, 5.35, 5.55, 5.62),
    TABLE14(24, "partial-linformer", 7.3, 7.2, 7.7, 7.6, 27.8, 26.7, 27.0, 25.8, 1.31, 1.37, 1.46, 1.52, 4.76, 4.88, 5.08, 5.21),
    TABLE14(32, "sra64", 14.2, 13.9, 13.8, 13.5, 55.9, 54.6, 54.3, 52.9, 0.99, 0.99, 1.0, 1.0, 3.92, 3.92, 3.97, 3.97),
    TABLE14(40, "sra32", 8.7, 8.4, 8.3, 8.0, 34.1, 32.7, 32.5, 31.1, 1.09, 1.09, 1.1, 1.1, 4.23, 4.23, 4.28, 4.28),
    TABLE14(48, "partial-sra32", 7.3, 7.1, 7.0, 6.8, 28.2, 27.4, 27.1, 26.4, 1.23, 1.22, 1.24, 1.22, 4.60, 4.56, 4.61, 4.57),
    TABLE14(56, "global", 7.2, 6.9, 6.8, 6.5, 27.8, 26.4, 26.2, 24.9, 1.69, 1.70, 1.75, 1.76, 6.65, 6.67, 6.76, 6.78),
    TABLE14(64, "partial-global", 7.2, 6.9, 6.8, 6.5, 27.8, 26.4, 26.2, 24.9, 1.60, 1.62, 1.68, 1.70, 6.07, 6.14, 6.23, 6.30),
    TABLE14(72, "performer", 7.3, 7.0, 6.9, 6.6, 27.8, 26.5, 26.2, 24.8, 1.81, 1.86, 1.99, 2.05, 5.75, 5.87, 6.14, 6.26),
    TABLE14(80, "partial-performer", 7.1, 6.8, 6.7, 6.4, 27.6, 26.3, 26.0, 24.7, 1.35, 1.45, 1.57, 1.67, 4.84, 5.04, 5.31, 5.52),
    VIL(88, "vil-tiny-ape", "224 x 224", 6.7, 1.3),
    VIL(89, "vil-tiny-rpb", "224 x 224", 6.7, 1.3),
    VIL(90, "vil-small-ape", "224 x 224", 24.6, 4.86),
    VIL(91, "vil-small-rpb", "224 x 224", 24.6, 4.86),
    VIL(92, "vil-medium-ape", "224 x 224", 39.7, 8.7),
    VIL(93, "vil-medium-rpb", "224 x 224", 39.7, 8.7),
    VIL(94, "vil-base-ape", "224 x 224", 55.7, 13.4),
    VIL(95, "vil-base-rpb", "224 x 224", 55.7, 13.4),
    VIL(96, "vil-medium-wide-rpb", "224 x 224", 39.8, 0),
    VIL(97, "vil-base-wide-rpb", "224 x 224", 79, 0),
    VIL(98, "vil-swin-tiny-rpb", "224 x 224", 28, 0),
    VIL(99, "vil-swin-small-rpb", "224 x 224", 50, 0),
    VIL(100, "vil-medium-ape-384", "384 x 384", 39.7, 28.4),
    VIL(101, "vil-medium-rpb-384", "384 x 384", 39.7, 28.4),
    VIL(102, "vil-base-ape-384", "384 x 384", 55.7, 43.7),
    VIL(103, "vil-base-rpb-384", "384 x 384", 55.7, 43.7),
    LS(104, "vil-medium-ls", "224 x 224", 39.8, 8.7),
    LS(105, "vil-base-ls", "224 x 224", 55.8, 13.4),
    LS(106, "vil-medium-ls-384", "384 x 384", 39.9, 28.7),
    VIL(107, "vil-tiny-flat-full", "224 x 224", 0, 0),
    VIL(108, "vil-small-flat-full", "224 x 224", 0, 4.6),
    VIL(109, "vil-small-1-10-1-rpb", "224 x 224", 0, 0),
    VIL(110, "vil-small-2-9-1-rpb", "224 x 224", 0, 0),
    VIL(111, "vil-small-1-1-9-1-rpb", "224 x 224", 0, 0),
    VIL(112, "vil-tiny-1-9-2-ape", "224 x 224", 0, 0),
    VIL(113, "vil-tiny-2-8-2-ape", "224 x 224", 0, 0),
    VIL(114, "vil-tiny-1-1-8-2-ape", "224 x 224", 0, 0),
    VIL(115, "vil-small-1-9-2-ape", "224 x 224", 0, 0),
    VIL(116, "vil-small-2-8-2-ape", "224 x 224", 0, 0),
    VIL(117, "vil-small-1-1-8-2-ape", "224 x 224", 0, 0),
};
/* clang-format on */

const int tp__vil_model_count = sizeof tp__vil_models / sizeof tp__vil_models[0];
