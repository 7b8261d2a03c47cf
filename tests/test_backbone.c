/* test_backbone.c - backbones and feature pyramids of detectors: counts and costs of the published tables, maps,
 * frozen parameters, folded norms, weights of classifiers. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tapegrad/detection.h>

#include "support_device.h"
#include "support_folder.h"
#include "support_models.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static tp_backbone_cfg preset(const char *name, tp_detection_profile profile)
{
    tp_backbone_cfg c;
    char why[256] = "";
    cr_assert(tp_backbone_preset(&c, name, profile, why, sizeof why), "%s: %s", name, why);
    cr_assert(tp_backbone_check(&c, why, sizeof why), "%s: %s", name, why);
    return c;
}

static tp_fpn_cfg pyramid(const tp_backbone_cfg *c, tp_fpn_top top)
{
    tp_fpn_cfg f = { .top = top };
    tp_backbone_channels(c, f.channels);
    return f;
}

/* ---- the published tables ---- */

/* Parameters of what stands on a pyramid: RetinaNet's head; proposals, boxes, masks. */
enum { RETINA = 6463220, REGIONS = 593935 + 13895680 + 411025 + 2643280 };

typedef struct counts {
    int64_t all, trained, fpn;
} counts;

static counts count(const char *name, tp_detection_profile profile, tp_fpn_top top)
{
    static tp_backbone m;
    static tp_fpn f;
    const tp_backbone_cfg c = preset(name, profile);
    counts n = { 0 };
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_backbone_init(P, &m, "backbone.bottom_up", &c);
    cr_assert(tp_params_ok(P), "%s: %s", name, tp_params_why(P));
    n.all = tp_params_count(P);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);)
        if (!it.buffer && !it.frozen && !it.alias_of) n.trained += tp_numel(it.tensor);
    tp_fpn_init(P, &f, "backbone", pyramid(&c, top));
    n.fpn = tp_params_count(P) - n.all;
    tp_params_free(P);
    tp_device_close(D);
    return n;
}

/* Counts with the classifier's norm and head, which tables include; here they are not declared. */
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

/* detectron2 counts all weights and no norms; mmdetection also counts the norms' weights and biases and leaves the
 * frozen stem and first stage out. */
Test(backbone, parameters_of_resnet)
{
    static const struct {
        const char *name;
        int64_t retinanet, mask_rcnn, norms, frozen;
    } all[] = {
        { "resnet18", 0, 31317936, 9600, 157504 },
        { "resnet50", 37915572, 44343216, 53120, 225344 },
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        const counts r = count(all[i].name, TP_DETECTRON2, TP_FPN_RELU),
                     m = count(all[i].name, TP_DETECTRON2, TP_FPN_SUBSAMPLE),
                     mm = count(all[i].name, TP_MMDETECTION, TP_FPN_SUBSAMPLE);
        if (all[i].retinanet) cr_expect_eq(r.all + r.fpn + RETINA, all[i].retinanet);
        cr_expect_eq(m.all + m.fpn + REGIONS, all[i].mask_rcnn);
        cr_expect_eq(mm.all - m.all, all[i].norms);
        cr_expect_eq(mm.all - mm.trained, all[i].frozen);
    }
}

/* Multiply-adds of the heads at 800 x 1344: those of RetinaNet, with ReLUs; proposals, and boxes of 1000 regions. */
static double head_macs(bool retinanet, bool relus)
{
    double locations = 0.0, all = 0.0;
    for (int level = retinanet ? 3 : 2; level <= (retinanet ? 7 : 6); level++)
        locations += ceil(800.0 / (1 << level)) * ceil(1344.0 / (1 << level));
    const double conv = 9.0 * 256.0 + 1.0;
    if (retinanet) all = conv * (8.0 * 256.0 + 720.0 + 36.0) + (relus ? 2048.0 : 0.0);
    if (!retinanet) all = conv * 256.0 + 257.0 * 15.0;
    return locations * all +
           (retinanet ? 0.0 : 1000.0 * (12544.0 * 1024.0 + 1024.0 * 1024.0 + 1024.0 * 401.0));
}

/* Billions, as the tables print them; true: correct attention. 0: not in a table. */
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

Test(backbone, costs)
{
    static const int64_t image[] = { 800, 1344 };
    for (size_t i = 0; i < COUNT(costs); i++) {
        const tp_backbone_cfg c = preset(costs[i].name, TP_DETECTRON2);
        const tp_flops f = tp_backbone_flops(&c, image);
        const tp_fpn_cfg relu = pyramid(&c, TP_FPN_RELU), half = pyramid(&c, TP_FPN_SUBSAMPLE);
        const double r = tp_fpn_macs(&relu, image), m = tp_fpn_macs(&half, image);
        const bool vil = c.kind == TP_BACKBONE_VIL; /* whose rows count ReLUs and the classifier */
        const double head = vil ? 1000.0 * (double)relu.channels[3] : 0.0;
        expect_cost(costs[i].name, f.paper + r + head_macs(true, true), costs[i].retinanet[0]);
        expect_cost(costs[i].name, f.macs + head + r + head_macs(true, vil), costs[i].retinanet[1]);
        expect_cost(costs[i].name, f.paper + m + head_macs(false, false), costs[i].mask_rcnn[0]);
        expect_cost(costs[i].name, f.macs + head + m + head_macs(false, false),
                    costs[i].mask_rcnn[1]);
        if (vil)
            expect_cost("FPN of RetinaNet", r, strstr(costs[i].name, "tiny") ? 14.026 : 14.991);
        if (vil)
            expect_cost("FPN of Mask R-CNN", m, strstr(costs[i].name, "tiny") ? 54.236 : 55.784);
    }
    expect_cost("RetinaNet's head", head_macs(true, true), 144.822);
    expect_cost("regions", head_macs(false, false), 53.171 + 14.304);
}

/* The published partial-global has a fourth stage of half the width. */
Test(backbone, published_partial_global)
{
    static const int64_t image[] = { 800, 1344 };
    tp_backbone_cfg c = preset("vil-small-partial-global", TP_DETECTRON2);
    c.of.vil.stage[3].dim = 384;
    c.of.vil.stage[3].heads = 6;
    const tp_fpn_cfg half = pyramid(&c, TP_FPN_SUBSAMPLE);
    expect_cost("partial-global",
                tp_backbone_flops(&c, image).paper + tp_fpn_macs(&half, image) +
                    head_macs(false, false),
                326.48);
}

/* ---- maps ---- */

/* Maps of full-size and of small images on a dry device, and the levels of both pyramids. */
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
        const tp_backbone_cfg c = preset(name, TP_DETECTRON2);
        const int64_t *size = sizes[i % 2];
        tp_tensor map[TP_BACKBONE_STAGES];
        int64_t channels[TP_BACKBONE_STAGES];
        tp_params *P = tp_params_new(D, NULL);
        tp_tape *T = tp_tape_new(D, NULL);
        if (strstr(name, "sra64") && i % 2)
            size = sizes[0]; /* a map is smaller than the reduction */
        tp_backbone_init(P, &m, "backbone.bottom_up", &c);
        tp_fpn_init(P, &f[0], "a", pyramid(&c, TP_FPN_RELU));
        tp_fpn_init(P, &f[1], "b", pyramid(&c, TP_FPN_SUBSAMPLE));
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
            const tp_pyramid y = tp_fpn_forward(T, &f[t], map);
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

/* P6 is every second row and column of P5, and a mean of sums is half of a sum where outputs are linear. */
Test(backbone, pyramid_variants)
{
    static tp_fpn f;
    tp_device *D = device_open(NULL);
    double last[2][64];
    for (int average = 0; average < 2; average++) {
        tp_params *P = tp_params_new(D, NULL);
        tp_tape *T = tp_tape_new(D, NULL);
        tp_tensor map[TP_BACKBONE_STAGES];
        const tp_fpn_cfg c = { { 3, 3, 3, 3 }, 4, TP_FPN_SUBSAMPLE, average == 1 };
        float p5[2][4][4], p6[1][2][4], p4[4][8][4];
        tp_fpn_init(P, &f, "", c);
        for (int k = 0; k < TP_BACKBONE_STAGES; k++) map[k] = models_images(T, 1, 16 >> k, 32 >> k);
        map[2] = tp_scale(T, map[2], 0.0); /* what reaches P4 comes from C5 alone */
        const tp_pyramid y = tp_fpn_forward(T, &f, map);
        cr_assert(tp_read(T, y.map[3], p5, sizeof p5) && tp_read(T, y.map[4], p6, sizeof p6) &&
                      tp_read(T, y.map[2], p4, sizeof p4),
                  "%s", tp_why(T));
        for (int j = 0; j < 2; j++)
            for (int e = 0; e < 4; e++) cr_expect_eq(p6[0][j][e], p5[0][2 * j][e]);
        for (int e = 0; e < 64; e++) last[average][e] = p4[e / 32][e / 4 % 8][e % 4];
        tp_tape_free(T);
        tp_params_free(P);
    }
    for (int e = 0; e < 64; e++)
        cr_expect_float_eq(last[1][e], 0.5 * last[0][e], 1e-6, "%g, %g", last[1][e], last[0][e]);
    tp_device_close(D);
}

/* ---- weights of classifiers ---- */

/* Numbers that depend on name and place; variances are positive. */
static void fill(tp_params *P)
{
    static float x[1 << 18];
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const size_t n = (size_t)tp_numel(it.tensor);
        uint32_t seed = 7;
        if (it.dtype != TP_F32) continue;
        for (const char *c = it.name; *c; c++) seed = seed * 31 + (uint8_t)*c;
        cr_assert(n <= COUNT(x));
        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            x[i] = (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
            if (it.shape.ndim > 1) x[i] *= 0.3f;
            if (it.shape.ndim == 1 && !tp_ends_in(it.name, "bias")) x[i] += 1.0f;
        }
        cr_assert(tp_param_set(P, it.tensor, TP_F32, x, n * sizeof *x), "%s", tp_params_why(P));
    }
}

static tp_backbone_cfg small_resnet(bool bottleneck, tp_detection_profile profile)
{
    tp_backbone_cfg c = preset(bottleneck ? "resnet50" : "resnet18", profile);
    c.of.resnet.base = 8;
    for (int k = 0; k < TP_BACKBONE_STAGES; k++) c.of.resnet.blocks[k] = 1;
    return c;
}

/* All values of the maps, one after the other. Returns how many there are. */
static int64_t read_maps(tp_tape *T, const tp_tensor *map, float *to)
{
    int64_t n = 0;
    for (int k = 0; k < TP_BACKBONE_STAGES; k++) {
        const size_t bytes = (size_t)tp_numel(map[k]) * sizeof *to;
        cr_assert(tp_read(T, map[k], to + n, bytes), "%s", tp_why(T));
        n += tp_numel(map[k]);
    }
    return n;
}

/* A backbone with norms in its convolutions has the maps of the classifier in evaluation, from which it was loaded;
 * stages that are frozen get no gradients, and in mmdetection the norms of the others get some. */
Test(backbone, resnet_from_classifier, .init = make_folder, .fini = remove_folder)
{
    static tp_backbone m;
    static tp_resnet plain;
    static float x[1 << 16], y[1 << 16];
    tp_device *D = device_open(NULL);
    for (int i = 0; i < 4; i++) {
        const bool mm = i % 2;
        const tp_backbone_cfg c = small_resnet(i / 2, mm ? TP_MMDETECTION : TP_DETECTRON2);
        tp_resnet_cfg other = c.of.resnet;
        tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL);
        tp_tape *T = tp_tape_new(D, NULL);
        tp_tensor map[TP_BACKBONE_STAGES];
        other.frozen_norm = other.detectron = false;
        other.classes = 5;
        tp_resnet_init(Q, &plain, "", other);
        fill(Q);
        cr_assert(tp_save(Q, in_folder("w.safetensors")), "%s", tp_params_why(Q));
        tp_backbone_init(P, &m, "backbone.bottom_up", &c);
        tp_file *F = tp_file_open(in_folder("w.safetensors"));
        cr_assert(tp_backbone_load(P, &m, F), "%s", tp_params_why(P));
        tp_file_close(F);
        tp_train(T, false);
        tp_resnet_features(T, &plain, models_images(T, 1, 64, 96), map);
        const int64_t n = read_maps(T, map, x);
        tp_reset(T);
        tp_train(T, true);
        tp_backbone_forward(T, &m, models_images(T, 1, 64, 96), map);
        cr_assert_eq(read_maps(T, map, y), n);
        for (int64_t e = 0; e < n; e++)
            cr_assert(fabsf(x[e] - y[e]) <= 1e-4f * (1.0f + fabsf(x[e])), "%d: %g, %g at %lld", i,
                      x[e], y[e], (long long)e);
        tp_backward(T, tp_sum(T, tp_mul(T, map[3], map[3]), TP_ALL));
        cr_assert(tp_ok(T), "%s", tp_why(T));
        for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
            const bool early = strstr(it.name, "stem") || strstr(it.name, "res2") ||
                               strstr(it.name, "layer1") || strstr(it.name, "bottom_up.conv1") ||
                               strstr(it.name, "bottom_up.bn1");
            if (!it.buffer) cr_expect(it.has_grad == !early, "%d: %s", i, it.name);
            if (!mm && strstr(it.name, "norm")) cr_expect(it.buffer, "%s", it.name);
        }
        tp_tape_free(T);
        tp_params_free(P);
        tp_params_free(Q);
    }
    tp_device_close(D);
}

/* A checkpoint with detectron2's names and its prefix, into a backbone with other names. */
Test(backbone, resnet_from_detectron, .init = make_folder, .fini = remove_folder)
{
    static tp_backbone m, other;
    tp_device *D = device_open(NULL);
    const tp_backbone_cfg c = small_resnet(true, TP_DETECTRON2),
                          to = small_resnet(true, TP_MMDETECTION);
    static const char *const names[][2] = {
        { "backbone.bottom_up.stem.conv1.norm.running_var", "bn1.running_var" },
        { "backbone.bottom_up.stem.conv1.weight", "conv1.weight" },
        { "backbone.bottom_up.res3.0.shortcut.weight", "layer2.0.downsample.0.weight" },
        { "backbone.bottom_up.res5.0.shortcut.norm.bias", "layer4.0.downsample.1.bias" },
        { "backbone.bottom_up.res4.0.conv3.norm.weight", "layer3.0.bn3.weight" },
    };
    tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL);
    tp_backbone_init(P, &m, "backbone.bottom_up", &c);
    tp_backbone_init(Q, &other, "", &to);
    fill(P);
    cr_assert(tp_save(P, in_folder("w.safetensors")), "%s", tp_params_why(P));
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    cr_assert(tp_backbone_load(Q, &other, F), "%s", tp_params_why(Q));
    tp_file_close(F);
    for (size_t i = 0; i < COUNT(names); i++) {
        static float a[1 << 16], b[1 << 16];
        const tp_tensor x = tp_find(P, names[i][0]), y = tp_find(Q, names[i][1]);
        const size_t bytes = (size_t)tp_numel(x) * sizeof *a;
        cr_assert(tp_given(x) && tp_given(y) && tp_numel(x) == tp_numel(y), "%s", names[i][1]);
        cr_assert(bytes <= sizeof a && tp_param_get(P, x, TP_F32, a, bytes) &&
                  tp_param_get(Q, y, TP_F32, b, bytes));
        cr_expect(memcmp(a, b, bytes) == 0, "%s", names[i][1]);
    }
    tp_params_free(P);
    tp_params_free(Q);
    tp_device_close(D);
}

/* Stages of windows, then of full attention; g global tokens in the first three. */
static tp_vil_cfg small_vil(bool dense, int64_t window, int64_t global, bool absolute,
                            int64_t image)
{
    static const char *const marks[] = { "s1", "s1", "s0", "s0" };
    tp_vil_cfg c = { .kind = TP_VIL_WINDOW, .image = { image, image } };
    char text[256], why[256];
    int used = 0;
    for (int k = 0; k < 4; k++)
        used +=
            snprintf(text + used, sizeof text - (size_t)used, "%sl%d,h2,d%d,n1,%s,g%d,p%d,f%d,a%d",
                     k ? "_" : "", k + 1, 8 << (k / 2), dense ? marks[k] : "s1",
                     (int)(k < 3 || dense ? global : 0), k ? 2 : 4, (int)window, absolute);
    cr_assert(tp_vil_parse(&c, text, why, sizeof why), "%s", why);
    return c;
}

static double *read_param(tp_params *P, const char *name, int64_t *n)
{
    static double room[4][1 << 14];
    static int next;
    double *x = room[next++ % 4];
    const tp_tensor p = tp_find(P, name);
    cr_assert(tp_given(p), "%s", name);
    *n = tp_numel(p);
    cr_assert(*n <= (1 << 14) && tp_param_get(P, p, TP_F64, x, (size_t)*n * sizeof *x), "%s", name);
    return x;
}

static void expect_same(tp_params *P, const char *name, const double *want, int64_t first)
{
    int64_t n;
    const double *x = read_param(P, name, &n);
    for (int64_t i = 0; i < n; i++)
        cr_assert_float_eq(x[i], want[first + i], 1e-6, "%s [%lld]: %g, not %g", name, (long long)i,
                           x[i], want[first + i]);
}

/* Loads a classifier Q into a backbone of that configuration below "b" in P. */
static bool transfer(tp_params *Q, tp_params *P, const tp_vil_cfg *to)
{
    static tp_backbone m;
    tp_backbone_cfg c = { .kind = TP_BACKBONE_VIL, .of = { .vil = *to } };
    cr_assert(tp_save(Q, in_folder("w.safetensors")), "%s", tp_params_why(Q));
    tp_backbone_init(P, &m, "b", &c);
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    const bool ok = tp_backbone_load(P, &m, F);
    tp_file_close(F);
    return ok;
}

Test(backbone, vil_from_classifier, .init = make_folder, .fini = remove_folder)
{
    static tp_vil plain;
    tp_device *D = device_open(NULL);
    for (int absolute = 0; absolute < 2; absolute++) {
        tp_vil_cfg from = small_vil(true, 3, 1, absolute, 64),
                   to = small_vil(false, 4, 2, absolute, 96);
        tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL);
        int64_t n;
        double y[4096];
        from.classes = 5;
        tp_vil_init(Q, &plain, "", from);
        fill(Q);
        cr_assert(transfer(Q, P, &to), "%s", tp_params_why(P));
        const double *qkv = read_param(Q, "layer4.1.attn.qkv.weight", &n);
        expect_same(P, "b.layer4.1.attn.query.weight", qkv, 0);
        expect_same(P, "b.layer4.1.attn.kv.weight", qkv, 16 * 16);
        qkv = read_param(Q, "layer3.1.attn.qkv.bias", &n);
        expect_same(P, "b.layer3.1.attn.query.bias", qkv, 0);
        expect_same(P, "b.layer3.1.attn.kv.bias", qkv, 16);
        expect_same(P, "b.layer1.1.attn.kv.weight", read_param(Q, "layer1.1.attn.kv.weight", &n),
                    0);
        expect_same(P, "b.layer2.2.mlp.fc1.weight", read_param(Q, "layer2.2.mlp.fc1.weight", &n),
                    0);
        const double *token = read_param(Q, "layer2.0.cls_token", &n);
        memcpy(y, token, (size_t)n * sizeof *y);
        memcpy(y + n, token, (size_t)n * sizeof *y);
        expect_same(P, "b.layer2.0.cls_token", y, 0);
        if (absolute) {
            tp_vil_resize(read_param(Q, "layer3.0.y_pos_embed", &n), (int64_t[]){ 4, 1 }, y,
                          (int64_t[]){ 6, 1 }, 8);
            expect_same(P, "b.layer3.0.y_pos_embed", y, 0);
        } else { /* offsets of full attention on 2 x 2 pixels, and of windows of 3 */
            tp_vil_resize(read_param(Q, "layer4.1.attn.local_relative_position_bias_table", &n),
                          (int64_t[]){ 3, 3 }, y, (int64_t[]){ 15, 15 }, 2);
            expect_same(P, "b.layer4.1.attn.local_relative_position_bias_table", y, 0);
            tp_vil_resize(read_param(Q, "layer1.1.attn.local_relative_position_bias_table", &n),
                          (int64_t[]){ 11, 11 }, y, (int64_t[]){ 15, 15 }, 2);
            expect_same(P, "b.layer1.1.attn.local_relative_position_bias_table", y, 0);
        }
        tp_params_free(P);
        tp_params_free(Q);
    }
    tp_device_close(D);
}

Test(backbone, other_classifiers_are_refused, .init = make_folder, .fini = remove_folder)
{
    static const struct {
        const char *text;
        int stage, blocks, dim;
    } all[] = {
        { "layer3.3.norm.weight has no place in the backbone", 2, 2, 16 },
        { "the tensor has another shape for layer4.0.proj.weight of the backbone", 3, 1, 32 },
    };
    static tp_vil plain;
    tp_device *D = device_open(NULL);
    const tp_vil_cfg to = small_vil(false, 3, 1, false, 64);
    for (size_t i = 0; i <= COUNT(all); i++) {
        tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL);
        tp_vil_cfg from = small_vil(true, 3, 1, false, 64);
        const char *text = "there is no tensor for layer1.0.cls_token of the backbone";
        from.classes = 5;
        if (i < COUNT(all)) {
            from.stage[all[i].stage].blocks = all[i].blocks;
            from.stage[all[i].stage].dim = all[i].dim;
            text = all[i].text;
        } else {
            from.stage[0].global = 0;
        }
        tp_vil_init(Q, &plain, "", from);
        cr_assert(tp_params_ok(Q), "%s", tp_params_why(Q));
        cr_expect(!transfer(Q, P, &to));
        cr_expect(strstr(tp_params_why(P), text), "'%s' instead of '%s'", tp_params_why(P), text);
        cr_expect(strstr(tp_params_why(P), "w.safetensors"), "%s", tp_params_why(P));
        tp_params_free(P);
        tp_params_free(Q);
    }
    tp_device_close(D);
}

/* ---- refusals ---- */

Test(backbone, names_and_configurations_are_refused)
{
    static const char *const names[] = {
        "",           "vil",       "vil-huge",          "vil-tiny-rpb",
        "resnet",     "resnet51",  "resnext-101-32x4d", "pvt",
        "pvt-small-", "swin-tiny", "vil-tiny-ape-384"
    };
    tp_backbone_cfg c, good = preset("vil-tiny", TP_DETECTRON2);
    char why[256];
    for (size_t i = 0; i < COUNT(names); i++) {
        cr_expect(!tp_backbone_preset(&c, names[i], TP_DETECTRON2, why, sizeof why), "%s",
                  names[i]);
        cr_expect(strstr(why, "no backbone of detectors is called"), "%s", why);
    }
    c = good;
    c.of.vil.classes = 10;
    cr_expect(!tp_backbone_check(&c, why, sizeof why) && strstr(why, "no classes, not 10"), "%s",
              why);
    c = good;
    c.of.vil.stages = 3;
    cr_expect(!tp_backbone_check(&c, why, sizeof why) && strstr(why, "four stages"), "%s", why);
    c = good;
    c.frozen = 1;
    cr_expect(!tp_backbone_check(&c, why, sizeof why) && strstr(why, "1 frozen stages: 0 to 0"),
              "%s", why);
    c.kind = (tp_backbone_kind)7;
    cr_expect(!tp_backbone_check(&c, why, sizeof why) && strstr(why, "no kind 7"), "%s", why);
}

Test(backbone, images_of_other_sizes_are_refused)
{
    static tp_backbone m;
    const tp_backbone_cfg c = preset("vil-mini", TP_DETECTRON2);
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
