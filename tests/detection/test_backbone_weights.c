/* test_backbone_weights.c - weights of classifiers in detection backbones: folded norms, frozen
 * stages, resized tables, refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tapegrad/detection.h>
#include <tapegrad/resnet.h>
#include <tapegrad/vil.h>

#include "support/detectors.h"
#include "support/device.h"
#include "support/folder.h"
#include "support/models.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

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
    tp_backbone_cfg c = detectors_backbone(bottleneck ? "resnet50" : "resnet18", profile);
    tp_resnet_cfg resnet;
    memcpy(&resnet, &c.model.at, sizeof resnet);
    resnet.base = 8;
    for (int k = 0; k < TP_BACKBONE_STAGES; k++) resnet.blocks[k] = 1;
    memcpy(&c.model.at, &resnet, sizeof resnet);
    return c;
}

/* Reads all values of the maps in order; returns their number. */
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

/* A backbone with norms in its convolutions gives the maps of the classifier it was loaded from, in
 * evaluation mode; frozen stages get no gradients, and mmdetection's other norms do. */
Test(backbone_weights, resnet_from_classifier, .init = make_folder, .fini = remove_folder)
{
    static tp_backbone m;
    static tp_resnet plain;
    static float x[1 << 16], y[1 << 16];
    tp_device *D = device_open(NULL);
    for (int i = 0; i < 4; i++) {
        const bool mm = i % 2;
        const tp_backbone_cfg c = small_resnet(i / 2, mm ? TP_MMDETECTION : TP_DETECTRON2);
        tp_resnet_cfg other;
        tp_params *P = tp_params_new(D, NULL), *Q = tp_params_new(D, NULL);
        tp_tape *T = tp_tape_new(D, NULL);
        tp_tensor map[TP_BACKBONE_STAGES];
        memcpy(&other, &c.model.at, sizeof other);
        other.frozen_norm = other.detectron = false;
        other.classes = 5;
        tp_model_resnet.init(Q, &plain, "", &other);
        fill(Q);
        cr_assert(tp_save(Q, in_folder("w.safetensors")), "%s", tp_params_why(Q));
        tp_backbone_init(P, &m, "backbone.bottom_up", &c);
        tp_file *F = tp_file_open(in_folder("w.safetensors"));
        cr_assert(tp_backbone_load(P, &m, F), "%s", tp_params_why(P));
        tp_file_close(F);
        tp_train(T, false);
        tp_model_resnet.backbone->features(T, &plain, models_images(T, 1, 64, 96), map);
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

/* A checkpoint with detectron2's names and prefix fits a backbone with other names. */
Test(backbone_weights, resnet_from_detectron, .init = make_folder, .fini = remove_folder)
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
    cr_assert(tp_model_vil.members->parse(&c, text, why, sizeof why), "%s", why);
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

/* Loads a classifier Q into a backbone of that configuration under "b" in P. */
static bool transfer(tp_params *Q, tp_params *P, const tp_vil_cfg *to)
{
    static tp_backbone m;
    tp_backbone_cfg c = { .model.model = &tp_model_vil };
    memcpy(&c.model.at, to, sizeof *to);
    cr_assert(tp_save(Q, in_folder("w.safetensors")), "%s", tp_params_why(Q));
    tp_backbone_init(P, &m, "b", &c);
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    const bool ok = tp_backbone_load(P, &m, F);
    tp_file_close(F);
    return ok;
}

Test(backbone_weights, vil_from_classifier, .init = make_folder, .fini = remove_folder)
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
        tp_model_vil.init(Q, &plain, "", &from);
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

Test(backbone_weights, other_classifiers_are_refused, .init = make_folder, .fini = remove_folder)
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
        tp_model_vil.init(Q, &plain, "", &from);
        cr_assert(tp_params_ok(Q), "%s", tp_params_why(Q));
        cr_expect(!transfer(Q, P, &to));
        cr_expect(strstr(tp_params_why(P), text), "'%s' instead of '%s'", tp_params_why(P), text);
        cr_expect(strstr(tp_params_why(P), "w.safetensors"), "%s", tp_params_why(P));
        tp_params_free(P);
        tp_params_free(Q);
    }
    tp_device_close(D);
}
