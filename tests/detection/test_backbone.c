/* test_backbone.c - backbones of detectors and their feature pyramids: counts and costs of the
 * published tables, maps, refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tapegrad/detection.h>
#include <tapegrad/vil.h>
#include <tapegrad/vit.h>

#include "support/detectors.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- the published tables ---- */

/* Parameters of what follows a pyramid: RetinaNet's head; proposals, boxes, masks. */
enum { RETINA = 6463220, REGIONS = 593935 + 13895680 + 411025 + 2643280 };

typedef struct counts {
    int64_t all, trained, fpn;
} counts;

static counts count(const char *name, tp_detection_profile profile, tp_fpn_top top)
{
    static tp_backbone m;
    static tp_fpn f;
    const tp_backbone_cfg c = detectors_backbone(name, profile);
    counts n = { 0 };
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_backbone_init(P, &m, "backbone.bottom_up", &c);
    cr_assert(tp_params_ok(P), "%s: %s", name, tp_params_why(P));
    n.all = tp_params_count(P);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);)
        if (!it.buffer && !it.frozen && !it.alias_of) n.trained += tp_numel(it.tensor);
    tp_fpn_init(P, &f, "backbone", tp_fpn_of(&c, 256, top));
    n.fpn = tp_params_count(P) - n.all;
    tp_params_free(P);
    tp_device_close(D);
    return n;
}

/* Counts include the classifier's norm and head, as tables do; the models omit both. */
typedef struct row {
    const char *name;
    int64_t backbone, retinanet, mask_rcnn; /* 0: not in a table */
} row;

static const row rows[] = {
    { "vil-tiny", 6723058, 16604390, 26812642 },
    { "vil-tiny-ape", 6760840, 16642172, 26850424 },
    { "vil-small", 24664048, 35602148, 44937952 },
    { "vil-small-ape", 24743272, 35681372, 45017176 },
    { "vil-medium", 39789016, 50727116, 60062920 },
    { "vil-medium-ape", 39828712, 50766812, 60102616 },
    { "vil-base", 55808104, 66746204, 76082008 },
    { "vil-base-ape", 55803880, 66741980, 76077784 },
    { "vil-small-sra64", 0, 0, 73328728 },
    { "vil-small-sra32", 0, 0, 51505240 },
    { "vil-small-partial-sra32", 0, 0, 46786648 },
    { "vil-small-global", 0, 0, 45237016 },
    { "vil-small-performer", 0, 0, 45017176 },
    { "vil-small-partial-performer", 0, 0, 45017176 },
    { "vil-small-partial", 0, 0, 45017176 },
};

Test(backbone, parameters_of_vil)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        const counts r = count(rows[i].name, TP_DETECTRON2, TP_FPN_RELU),
                     m = count(rows[i].name, TP_DETECTRON2, TP_FPN_SUBSAMPLE);
        const bool tiny = strncmp(rows[i].name, "vil-tiny", 8) == 0;
        const int64_t unused = tiny ? 385000 + 2 * 384 : 769000 + 2 * 768;
        cr_expect_eq(r.fpn, tiny ? 3418112 : 4474880);
        cr_expect_eq(m.fpn, tiny ? 2545664 : 2729984);
        cr_expect_eq(r.trained, r.all, "nothing is frozen");
        if (rows[i].backbone) cr_expect_eq(r.all + unused, rows[i].backbone, "%s", rows[i].name);
        if (rows[i].retinanet)
            cr_expect_eq(r.all + unused + r.fpn + RETINA, rows[i].retinanet, "%s", rows[i].name);
        cr_expect_eq(m.all + unused + m.fpn + REGIONS, rows[i].mask_rcnn, "%s", rows[i].name);
    }
}

/* detectron2 counts all weights and no norms; mmdetection also counts the norms' weights and biases
 * and leaves the frozen stem and first stage out. */
Test(backbone, parameters_of_resnet)
{
    static const struct {
        const char *name;
        int64_t retinanet, mask_rcnn, norms, frozen;
    } all[] = {
        { "resnet18", 21400500, 31317936, 9600, 157504 },
        { "resnet50", 37915572, 44343216, 53120, 225344 },
        { "resnet101", 56855476, 63283120, 105344, 225344 },
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        const counts r = count(all[i].name, TP_DETECTRON2, TP_FPN_RELU),
                     m = count(all[i].name, TP_DETECTRON2, TP_FPN_SUBSAMPLE),
                     mm = count(all[i].name, TP_MMDETECTION, TP_FPN_SUBSAMPLE);
        cr_expect_eq(r.all + r.fpn + RETINA, all[i].retinanet);
        cr_expect_eq(m.all + m.fpn + REGIONS, all[i].mask_rcnn);
        cr_expect_eq(mm.all - m.all, all[i].norms);
        cr_expect_eq(mm.all - mm.trained, all[i].frozen);
    }
}

/* Those of the rows, in millions with one decimal: of PVT all weights, of ResNets as mmdetection
 * counts. */
Test(backbone, figures_of_baselines)
{
    tp_detector_row known;
    int n = 0;
    for (int i = 0; tp_detector_at(i, &known); i++) {
        const bool pyramid = strcmp(known.kind->name, "retinanet") == 0;
        const char *name = known.name + strlen(known.kind->name) + 1;
        if (known.params == 0 || strncmp(name, "vil", 3) == 0) continue;
        const counts c = count(name, TP_MMDETECTION, pyramid ? TP_FPN_RELU : TP_FPN_SUBSAMPLE);
        const double all = (double)(c.trained + c.fpn + (pyramid ? RETINA : REGIONS));
        cr_expect_float_eq(all * 1e-6, known.params, 0.05001, "%s: %.0f", known.name, all);
        n++;
    }
    cr_expect_eq(n, 14);
}

/* Multiply-adds of the heads at 800 x 1344: RetinaNet's, with ReLUs; proposals and boxes of 1000
 * regions. */
static double head_macs(bool retinanet, bool relus)
{
    double locations = 0.0, all = 0.0;
    for (int level = retinanet ? 3 : 2; level <= (retinanet ? 7 : 6); level++)
        locations += ceil(800.0 / (1 << level)) * ceil(1344.0 / (1 << level));
    const double conv = 9.0 * 256.0 + 1.0;
    if (retinanet) all = conv * (8.0 * 256.0 + 720.0 + 36.0) + (relus ? 2048.0 : 0.0);
    if (!retinanet) all = conv * 256.0 + 257.0 * 15.0;
    return locations * all +
           (retinanet ? 0.0
                      : 1000.0 * 1024.0 * (12544.0 + 1024.0 + 401.0) + (1024.0 + 1024.0 + 401.0));
}

/* In billions: as the tables print them, and with products of full windows, biases and ViL's unused
 * classifier. 0: not in a table. */
static const struct {
    const char *name;
    double retinanet[2], mask_rcnn[2];
} costs[] = {
    { "vil-tiny", { 182.744, 193.36 }, { 145.607, 156.22 } },
    { "vil-small", { 254.839, 276.73 }, { 218.285, 240.17 } },
    { "vil-medium", { 330.393, 368.29 }, { 293.839, 331.73 } },
    { "vil-base", { 420.915, 480.45 }, { 384.361, 443.90 } },
    { "vil-small-global", { 0, 0 }, { 226.36, 0 } },
    { "vil-small-performer", { 0, 0 }, { 251.46, 0 } },
    { "vil-small-sra32", { 0, 0 }, { 268.34, 0 } },
    { "vil-small-sra64", { 0, 0 }, { 223.22, 0 } },
    { "vil-small-partial-sra32", { 0, 0 }, { 352.14, 0 } },
    { "vil-small-partial-performer", { 0, 0 }, { 343.71, 0 } },
    { "vil-small-partial", { 0, 0 }, { 326.83, 0 } },
    { "resnet18", { 0, 197.99 }, { 0, 161.1 } },
    { "resnet50", { 0, 250.56 }, { 0, 216.0 } },
    { "resnet101", { 0, 330.11 }, { 0, 295.6 } },
};

static void expect_cost(const char *name, double macs, double printed)
{
    const double digits = printed == round(10.0 * printed) / 10.0     ? 0.051
                          : printed == round(100.0 * printed) / 100.0 ? 0.0055
                                                                      : 0.00051;
    if (printed > 0.0)
        cr_expect_float_eq(macs * 1e-9, printed, digits, "%s: %.4f G, not %g", name, macs * 1e-9,
                           printed);
}

static tp_detector_plan planned(const tp_detector_cfg *c)
{
    tp_detector_plan p;
    char why[300];
    cr_assert(tp_detector_planned(&p, c, &(tp_detector_plan_opts){ .size = { 800, 1344 } }, why,
                                  sizeof why),
              "%s", why);
    return p;
}

static double all_of(const double x[TP_DETECTOR_PARTS])
{
    return x[0] + x[1] + x[2];
}

/* figures: of the row. The count omits biases and, in windows at the edges of maps, the keys
 * outside. */
static void expect_costs(const char *detector, const char *name, const double figures[2])
{
    tp_detector_cfg c;
    char full[80], why[300];
    snprintf(full, sizeof full, "%s-%s", detector, name);
    cr_assert(tp_detector_preset(&c, full, 80, TP_DETECTRON2, why, sizeof why), "%s", why);
    const tp_detector_plan p = planned(&c);
    const bool vil = strstr(name, "vil") != NULL, retinanet = strcmp(detector, "retinanet") == 0;
    const double heads = p.paper[TP_DETECTOR_HEADS], fpn = p.paper[TP_DETECTOR_PYRAMID],
                 head = head_macs(retinanet, retinanet);
    int64_t channels[TP_BACKBONE_STAGES];
    tp_backbone_channels(tp_detector_parts_of(&c).backbone, channels);
    expect_cost(full, all_of(p.paper), figures[0]);
    cr_expect_eq(heads, head, "%s: %.9g, not %.9g", full, heads, head);
    cr_expect(all_of(p.macs) < p.macs[TP_DETECTOR_BACKBONE] + fpn + heads, "%s", full);
    if (vil && retinanet)
        expect_cost("its pyramid", fpn, strstr(name, "tiny") ? 14.026 : 14.991);
    else if (vil)
        expect_cost("its pyramid", fpn, strstr(name, "tiny") ? 54.236 : 55.784);
    if (!vil) {
        expect_cost(full, p.macs[TP_DETECTOR_BACKBONE] + fpn + head_macs(retinanet, false),
                    figures[1]);
    } else if (figures[1] > 0.0) {
        const double whole = 1e9 * figures[1] - 1000.0 * (double)channels[3] - fpn - heads,
                     share = p.macs[TP_DETECTOR_BACKBONE] / whole;
        cr_expect(share > 0.95 && share < 1.0, "%s: %g", full, share);
    }
}

Test(backbone, costs)
{
    for (size_t i = 0; i < COUNT(costs); i++) {
        expect_costs("retinanet", costs[i].name, costs[i].retinanet);
        expect_costs("mask-rcnn", costs[i].name, costs[i].mask_rcnn);
    }
    expect_cost("RetinaNet's head", head_macs(true, true), 144.822);
    expect_cost("regions", head_macs(false, false), 53.171 + 14.304);
}

/* The published partial-global has a fourth stage of half the width. */
Test(backbone, published_partial_global)
{
    char why[300];
    tp_detector_cfg c;
    tp_mask_rcnn_cfg m;
    tp_vil_cfg v;
    cr_assert(tp_detector_preset(&c, "mask-rcnn-vil-small-partial-global", 80, TP_DETECTRON2, why,
                                 sizeof why));
    memcpy(&m, &c.at, sizeof m);
    memcpy(&v, &m.backbone.model.at, sizeof v);
    v.stage[3].dim = 384;
    v.stage[3].heads = 6;
    m.backbone.model = tp_model_cfg_of(&tp_model_vil, &v);
    memcpy(&c.at, &m, sizeof m);
    expect_cost("partial-global", all_of(planned(&c).paper), 326.48);
}

/* ---- maps ---- */

/* Maps of full-size and small images on a dry device, and the levels of both pyramids. */
Test(backbone, maps)
{
    static const char *const names[] = { "vil-tiny",
                                         "vil-base-ape",
                                         "vil-small-sra64",
                                         "vil-mini",
                                         "resnet34",
                                         "resnet101",
                                         "resnet-mini",
                                         "pvt-small",
                                         "pvt2-b2",
                                         "pvt-mini",
                                         "vil-small-partial-performer" };
    static const int64_t sizes[][2] = { { 800, 1344 }, { 64, 32 } };
    static tp_backbone m;
    static tp_fpn f[2];
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    for (size_t i = 0; i < 2 * COUNT(names); i++) {
        const char *name = names[i / 2];
        const tp_backbone_cfg c = detectors_backbone(name, TP_DETECTRON2);
        const int64_t *size = sizes[i % 2];
        tp_tensor map[TP_BACKBONE_STAGES];
        int64_t channels[TP_BACKBONE_STAGES];
        tp_params *P = tp_params_new(D, NULL);
        tp_tape *T = tp_tape_new(D, NULL);
        if (strstr(name, "sra64") && i % 2)
            size = sizes[0]; /* a map is smaller than the reduction */
        tp_backbone_init(P, &m, "backbone.bottom_up", &c);
        tp_fpn_init(P, &f[0], "a", tp_fpn_of(&c, 256, TP_FPN_RELU));
        tp_fpn_init(P, &f[1], "b", tp_fpn_of(&c, 256, TP_FPN_SUBSAMPLE));
        tp_backbone_forward(T, &m, tp_full(T, TP_F32, TP_SHAPE(2, size[0], size[1], 3), 0.0), map);
        cr_assert(tp_ok(T), "%s: %s", name, tp_why(T));
        tp_backbone_channels(&c, channels);
        for (int k = 0; k < TP_BACKBONE_STAGES; k++) {
            cr_expect(tp_dim(map[k], 1) == size[0] / (4 << k) &&
                          tp_dim(map[k], 2) == size[1] / (4 << k),
                      "%s, stage %d", name, k);
            cr_expect_eq(tp_dim(map[k], 3), channels[k], "%s, stage %d", name, k);
        }
        for (int t = 0; t < 2; t++) {
            const tp_pyramid y = tp_fpn_forward(T, &f[t], map + f[t].cfg.first - 2);
            cr_assert(tp_ok(T), "%s: %s", name, tp_why(T));
            cr_expect_eq(y.levels, 5);
            for (int l = 0; l < y.levels; l++) {
                const int64_t stride = (t ? 4 : 8) << l;
                cr_expect(tp_dim(y.map[l], 1) == (size[0] + stride - 1) / stride &&
                              tp_dim(y.map[l], 2) == (size[1] + stride - 1) / stride &&
                              tp_dim(y.map[l], 3) == 256,
                          "%s, level %d", name, l);
            }
        }
        tp_tape_free(T);
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* ---- names ---- */

/* Every name is a preset; the names of all models are listed, each once. */
Test(backbone, known_names)
{
    int n = 0, mini = 0;
    const char *name;
    for (; (name = tp_backbone_known(n)); n++) {
        detectors_backbone(name, TP_MMDETECTION);
        mini += tp_ends_in(name, "-mini");
        for (int k = 0; k < n; k++) cr_expect_str_neq(tp_backbone_known(k), name);
    }
    cr_expect(n == 58 && mini == 3, "%d, %d", n, mini);
    cr_expect_null(tp_backbone_known(-1));
}

/* ---- refusals ---- */

Test(backbone, names_and_configurations_are_refused)
{
    static const char *const names[] = {
        "",           "vil",       "vil-huge",          "vil-tiny-rpb",
        "resnet",     "resnet51",  "resnext-101-32x4d", "pvt",
        "pvt-small-", "swin-tiny", "vil-tiny-ape-384"
    };
    tp_backbone_cfg c, good = detectors_backbone("vil-tiny", TP_DETECTRON2);
    tp_vil_cfg v, vil;
    memcpy(&vil, &good.model.at, sizeof vil);
    char why[256];
    for (size_t i = 0; i < COUNT(names); i++) {
        cr_expect(!tp_backbone_preset(&c, names[i], TP_DETECTRON2, why, sizeof why), "%s",
                  names[i]);
        cr_expect(strstr(why, "no backbone of detectors is called"), "%s", why);
    }
    c = good;
    v = vil;
    v.classes = 10;
    memcpy(&c.model.at, &v, sizeof v);
    cr_expect(!tp_backbone_check(&c, why, sizeof why) && strstr(why, "no classes, not 10"), "%s",
              why);
    v = vil;
    v.stages = 3;
    memcpy(&c.model.at, &v, sizeof v);
    cr_expect(!tp_backbone_check(&c, why, sizeof why) && strstr(why, "four stages"), "%s", why);
    c = good;
    c.frozen = 1;
    cr_expect(!tp_backbone_check(&c, why, sizeof why) && strstr(why, "1 frozen stages: 0 to 0"),
              "%s", why);
    c.model.model = &tp_model_vit;
    cr_expect(!tp_backbone_check(&c, why, sizeof why) && strstr(why, "vit cannot be a backbone"),
              "%s", why);
    c.model.model = NULL;
    cr_expect(!tp_backbone_check(&c, why, sizeof why) && strstr(why, "no model"), "%s", why);
}

Test(backbone, images_of_other_sizes_are_refused)
{
    static tp_backbone m;
    const tp_backbone_cfg c = detectors_backbone("vil-mini", TP_DETECTRON2);
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor map[TP_BACKBONE_STAGES];
    tp_backbone_init(P, &m, "", &c);
    tp_backbone_forward(T, &m, tp_full(T, TP_F32, TP_SHAPE(1, 64, 40, 3), 0.0), map);
    cr_expect(strstr(tp_why(T), "multiples of 32"), "%s", tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}
