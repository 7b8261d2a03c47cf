/* test_ablations.c - the ablations that rows of docs/papers reach by --set build what they mean:
 * the member reads back, parameters differ by what the ablation adds or removes, and where it adds
 * none, the same weights give other results. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/detection/detector.h>

#include "support/models.h"

#define STAGES(a1, g1, f, s3, g4, r)                                                               \
    "l1,h3,d96,n1,s1,g" g1 ",p4,f" f ",a" a1 ",r0_l2,h3,d192,n2,s1,g" g1 ",p2,f" f ",a" a1         \
    ",r0_l3,h6,d384,n8,s" s3 ",g" g1 ",p2,f" f ",a" a1 ",r0_l4,h12,d768,n1,s" r ",g" g4 ",p2,f" f  \
    ",a" a1 ",r0"
/* ViL-Small of windows of 2 f + 1 and g global tokens, as a classifier and in detectors. */
#define SMALL(f, g)    STAGES("0", g, f, "0", "0", "0")
#define DETECTOR(f, g) STAGES("0", g, f, "1", "0", "1")
/* ViL-1,2,8,1-APE with a class token in the last stage. */
#define CLS STAGES("1", "1", "7", "0", "1", "0")

/* Heads times blocks of the stages with windows (ALL: in detectors), and with global tokens. */
enum { WINDOWED = 3 + 2 * 3, TOKENED = WINDOWED + 8 * 6, ALL = TOKENED + 12 };
/* Entries of a head's table of distances in windows of f and their neighbours. */
#define TABLE(f) ((4 * (f)-1) * (4 * (f)-1))
/* What g global tokens take: themselves, and biases to, from and among them. */
#define TOKENS(g) ((g) * (96 + 192 + 384) + TOKENED * (2 * (g) + (g) * (g)))
/* Four projections of width d with biases. */
#define FOUR(d) (4 * ((d) * (d) + (d)))

static const struct {
    const char *row, *name, *set, *key, *value;
    int64_t more; /* parameters than without --set */
} rows[] = {
    { "no DualLN", "cvt-ls-13", "no_dual_ln=1", "no_dual_ln", "1", -4 * (64 + 2 * 192 + 10 * 384) },
    { "no DualLN, language model", "ls_lm-small", "dual_ln=off", "dual_ln", "off", -12 * 4 * 512 },
    { "separate heads", "ls_lm-small", "window_heads=4", "window_heads", "4",
      -12 * (2 * 256 * 512 + 3 * 256) },
    { "E-ViT, mean", "vil-small-flat-full", "avg_pool=1", "avg_pool", "1", 0 },
    { "DeiT, LayerNorm", "deit-t", "patch_norm=1", "patch_norm", "1", 2 * 192 },
    { "DeiT, LayerNorm, mean", "deit-s", "patch_norm=1,avg_pool=1", "avg_pool", "1", 2 * 384 },
    { "DeiT, mean", "deit-t", "avg_pool=1", "avg_pool", "1", 0 },
    { "CLS", "vil-small-1-2-8-1-ape", "arch=" CLS, "arch", CLS, 2 * 768 },
    { "windows of 9", "vil-small-rpb", "arch=" SMALL("4", "1"), "arch", SMALL("4", "1"),
      (TABLE(4) - TABLE(7)) * WINDOWED },
    { "windows of 21", "vil-small-rpb", "arch=" SMALL("10", "1"), "arch", SMALL("10", "1"),
      (TABLE(10) - TABLE(7)) * WINDOWED },
    { "no global token", "vil-small-rpb", "arch=" SMALL("7", "0"), "arch", SMALL("7", "0"),
      -TOKENS(1) },
    { "2 global tokens", "vil-small-rpb", "arch=" SMALL("7", "2"), "arch", SMALL("7", "2"),
      TOKENS(2) - TOKENS(1) },
    { "4 global tokens", "vil-small-rpb", "arch=" SMALL("7", "4"), "arch", SMALL("7", "4"),
      TOKENS(4) - TOKENS(1) },
    { "8 global tokens", "vil-small-rpb", "arch=" SMALL("7", "8"), "arch", SMALL("7", "8"),
      TOKENS(8) - TOKENS(1) },
    { "exact window", "vil-small-rpb", "edge=exact", "edge", "exact", 0 },
    { "cyclic", "vil-small-rpb", "edge=cyclic", "edge", "cyclic", 0 },
    { "separate weights for global tokens", "vil-small-rpb", "share_w=0", "share_w", "0",
      FOUR(96) + 2 * FOUR(192) },
    { "own chunk only", "vil-small-rpb", "mode=-1", "mode", "-1", 0 },
    { "own chunk and one neighbour", "vil-small-rpb", "mode=1", "mode", "1", 0 },
    { "detector: windows of 9", "mask-rcnn-vil-small", "backbone.arch=" DETECTOR("4", "1"),
      "backbone.arch", DETECTOR("4", "1"), (TABLE(4) - TABLE(7)) * ALL },
    { "detector: windows of 21", "mask-rcnn-vil-small", "backbone.arch=" DETECTOR("10", "1"),
      "backbone.arch", DETECTOR("10", "1"), (TABLE(10) - TABLE(7)) * ALL },
    { "detector: no global token", "mask-rcnn-vil-small", "backbone.arch=" DETECTOR("7", "0"),
      "backbone.arch", DETECTOR("7", "0"), -TOKENS(1) },
    { "detector: 8 global tokens", "mask-rcnn-vil-small", "backbone.arch=" DETECTOR("7", "8"),
      "backbone.arch", DETECTOR("7", "8"), TOKENS(8) - TOKENS(1) },
    { "detector: exact window", "mask-rcnn-vil-small", "backbone.edge=exact", "backbone.edge",
      "exact", 0 },
};

enum { ROWS = sizeof rows / sizeof *rows };

static bool is_detector(const char *name)
{
    return tp_detector_kind_of(name) != NULL;
}

/* The text of the member with that key, without the prefix of backbones. */
static void read_back(const tp_model_cfg *c, const char *key, char *value, size_t size)
{
    const size_t prefix = strlen(TP_BACKBONE_PREFIX);
    if (strncmp(key, TP_BACKBONE_PREFIX, prefix) == 0) key += prefix;
    for (const tp_model_member *m = c->model->members; m->kind != TP_MEMBER_END; m++)
        if (m->kind != TP_MEMBER_HIDDEN && strcmp(m->key, key) == 0) {
            tp_model_member_get(m, &c->at, value, size);
            return;
        }
    cr_assert_fail("%s has no member %s", c->model->name, key);
}

/* The model of a row, or the detector's backbone, and its number of parameters. */
static int64_t build(int i, bool changed, tp_model_cfg *c)
{
    static tp_detector m;
    tp_detector_cfg d;
    char why[512] = "";
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    if (is_detector(rows[i].name)) {
        cr_assert(tp_detector_preset(&d, rows[i].name, 80, TP_DETECTRON2, why, sizeof why) &&
                      (!changed || tp_detector_change(&d, rows[i].set, NULL, why, sizeof why)),
                  "%s: %s", rows[i].row, why);
        *c = tp_detector_parts_of(&d).backbone->model;
        tp_detector_init(P, &m, "", &d);
    } else {
        *c = models_preset(rows[i].name);
        cr_assert(!changed || tp_model_change(c, rows[i].set, NULL, why, sizeof why), "%s: %s",
                  rows[i].row, why);
        tp_net_free(tp_net_new(P, "", c));
    }
    cr_assert(tp_params_ok(P), "%s: %s", rows[i].row, tp_params_why(P));
    const int64_t n = tp_params_count(P);
    tp_params_free(P);
    tp_device_close(D);
    return n;
}

Test(ablations, members_and_parameters)
{
    for (int i = 0; i < ROWS; i++) {
        tp_model_cfg before, after;
        char value[512], old[512];
        const int64_t n = build(i, false, &before), m = build(i, true, &after);
        read_back(&before, rows[i].key, old, sizeof old);
        read_back(&after, rows[i].key, value, sizeof value);
        cr_expect_str_eq(value, rows[i].value, "%s: %s", rows[i].row, value);
        cr_expect_str_neq(value, old, "%s", rows[i].row);
        cr_expect_eq(m - n, rows[i].more, "%s: %lld more parameters, not %lld", rows[i].row,
                     (long long)(m - n), (long long)rows[i].more);
    }
}

/* ---- results ---- */

/* The smaller model of the same kind. */
static tp_model_cfg smaller(const char *name)
{
    char tiny[64];
    const char *at = strstr(name, "small");
    snprintf(tiny, sizeof tiny, "%.*s%s%s", at ? (int)(at - name) : 0, name, at ? "tiny" : "",
             at ? at + 5 : name);
    return models_preset(tiny);
}

/* Logits of an image of 64 x 64 pixels. Weights depend on the seed alone. */
static void logits_of(tp_model_cfg c, const char *set, float *out, size_t bytes)
{
    char why[512];
    cr_assert(!set || tp_model_change(&c, set, NULL, why, sizeof why), "%s", why);
    tp_common_cfg o = tp_model_get(&c);
    o.image[0] = o.image[1] = 64;
    tp_model_set(&c, &o);
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true }); /* where modes differ */
    tp_net *N = tp_net_new(P, "", &c);
    tp_record(T, false);
    cr_assert(tp_read(T, tp_net_forward(T, N, NULL, models_images(T, 1, 64, 64)), out, bytes), "%s",
              tp_why(T));
    tp_net_free(N);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

Test(ablations, results_differ)
{
    int n = 0;
    for (int i = 0; i < ROWS; i++) {
        static float a[1000], b[1000];
        double apart = 0.0, most = 0.0;
        if (rows[i].more != 0 || is_detector(rows[i].name)) continue;
        logits_of(smaller(rows[i].name), NULL, a, sizeof a);
        logits_of(smaller(rows[i].name), rows[i].set, b, sizeof b);
        for (int k = 0; k < 1000; k++) {
            apart = fmax(apart, fabs((double)a[k] - (double)b[k]));
            most = fmax(most, fabs((double)a[k]));
        }
        cr_expect(apart > 1e-4 * most && isfinite(apart), "%s: logits up to %g differ by %g",
                  rows[i].row, most, apart);
        n++;
    }
    cr_expect_eq(n, 6);
}
