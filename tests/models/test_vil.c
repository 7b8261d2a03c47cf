/* test_vil.c - Vision Longformer through the public interface: counts and costs of every published
 * model, the notation of stages, impossible configurations, files, weights for another resolution,
 * random shifts, recomputation. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/lm.h>
#include <tapegrad/vil.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/models.h"

static int64_t count(const char *name)
{
    char why[256];
    tp_model_cfg c;
    cr_assert(tp_model_find(name) && tp_model_preset(&c, name, why, sizeof why), "%s", name);
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL);
    tp_net *N = tp_net_new(P, "", &c);
    cr_expect(tp_params_ok(P), "%s: %s", name, tp_params_why(P));
    const int64_t n = tp_params_count(P);
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
    return n;
}

static const char *const shapes[] = { "tiny-1-10-1",   "tiny-2-9-1",   "tiny-1-1-9-1",
                                      "tiny-1-2-8-1",  "small-1-10-1", "small-2-9-1",
                                      "small-1-1-9-1", "small-1-2-8-1" };

/* Parameters, GMACs by the paper's count, GMACs of the actual operations. */
/* clang-format off */
static const struct {
    const char *attention;
    int64_t params[8];
    double paper[8], real[8];
} table14[] = {
    { "full",
      { 7118440, 6785416, 6707080, 6374056, 27580648, 26251048, 25965352, 24635752 },
      { 1.3516, 1.4548, 2.2881, 2.3914, 4.8418, 5.0483, 6.7439, 6.9504 },
      { 1.358, 1.461, 2.295, 2.398, 4.864, 5.069, 6.765, 6.970 } },
    { "ape",
      { 7118440, 6785416, 6707080, 6374056, 27580648, 26251048, 25965352, 24635752 },
      { 1.2674, 1.2865, 1.3276, 1.3467, 4.6735, 4.7118, 4.8229, 4.8611 },
      { 1.306, 1.358, 1.432, 1.483, 4.760, 4.863, 5.039, 5.141 } },
    { "linformer",
      { 7836264, 7653768, 8177544, 7995048, 28298472, 27119400, 27435816, 26256744 },
      { 1.5659, 1.6044, 1.6887, 1.7272, 5.2705, 5.3475, 5.5450, 5.6221 },
      { 1.572, 1.611, 1.695, 1.733, 5.293, 5.368, 5.565, 5.641 } },
    { "partial-linformer",
      { 7319400, 7187336, 7711112, 7579048, 27781608, 26652968, 26969384, 25840744 },
      { 1.3106, 1.3729, 1.4572, 1.5196, 4.7599, 4.8846, 5.0821, 5.2067 },
      { 1.317, 1.379, 1.463, 1.525, 4.781, 4.904, 5.102, 5.225 } },
    { "sra64",
      { 14196328, 13863304, 13784968, 13451944, 55892200, 54562600, 54276904, 52947304 },
      { 0.9924, 0.9926, 1.0010, 1.0012, 3.9230, 3.9224, 3.9679, 3.9673 },
      { 0.998, 0.998, 1.006, 1.006, 3.943, 3.941, 3.987, 3.985 } },
    { "sra32",
      { 8740456, 8407432, 8329096, 7996072, 34068712, 32739112, 32453416, 31123816 },
      { 1.0878, 1.0888, 1.1027, 1.1037, 4.2295, 4.2260, 4.2814, 4.2779 },
      { 1.093, 1.094, 1.108, 1.109, 4.250, 4.245, 4.301, 4.296 } },
    { "partial-sra32",
      { 7265896, 7080328, 7001992, 6816424, 28170472, 27430696, 27145000, 26405224 },
      { 1.2346, 1.2209, 1.2348, 1.2211, 4.5953, 4.5552, 4.6106, 4.5706 },
      { 1.241, 1.227, 1.241, 1.227, 4.617, 4.575, 4.631, 4.589 } },
    { "global",
      { 7203880, 6870856, 6817000, 6483976, 27751528, 26421928, 26185192, 24855592 },
      { 1.6853, 1.6956, 1.7529, 1.7632, 6.6488, 6.6695, 6.7634, 6.7840 },
      { 1.627, 1.705, 1.762, 1.841, 6.072, 6.229, 6.329, 6.486 } },
    { "partial-global",
      { 7203880, 6870856, 6817000, 6483976, 27751528, 26421928, 26185192, 24855592 },
      { 1.6046, 1.6213, 1.6785, 1.6951, 6.0658, 6.1374, 6.2313, 6.3028 },
      { 1.776, 1.840, 1.897, 1.961, 6.371, 6.498, 6.598, 6.726 } },
    { "performer",
      { 7118440, 6785416, 6707080, 6374056, 27580648, 26251048, 25965352, 24635752 },
      { 1.8067, 1.8645, 1.9874, 2.0452, 5.7521, 5.8677, 6.1423, 6.2579 },
      { 1.577, 1.616, 1.700, 1.739, 5.300, 5.376, 5.577, 5.653 } },
    { "partial-performer",
      { 7118440, 6785416, 6707080, 6374056, 27580648, 26251048, 25965352, 24635752 },
      { 1.3492, 1.4500, 1.5728, 1.6737, 4.8370, 5.0387, 5.3133, 5.51498 },
      { 1.318, 1.381, 1.466, 1.529, 4.782, 4.907, 5.108, 5.232 } },
};
/* clang-format on */

/* Multiply-adds of the official code that this library avoids: keys of padding and outside the map,
 * queries of padding; Performer's squared norms, which are elementwise ops here. */
static double upstream(const tp_vil_cfg *c)
{
    double more = 0.0;
    int64_t side = c->image[0];
    for (int k = 0; k < c->stages; k++) {
        const tp_vil_stage *s = &c->stage[k];
        const int64_t f = s->feature;
        side /= s->patch;
        const double N = (double)(side * side), T = N + (double)s->global, blocks = s->blocks;
        if (s->dense) continue;
        if (c->kind == TP_VIL_PERFORMER) more += blocks * s->heads * T * (double)f;
        if (c->kind != TP_VIL_WINDOW) continue;
        double seen = 0.0;
        for (int64_t y = 0; y < side; y++)
            for (int64_t u = 0; u < side; u++) seen += llabs(u / f - y / f) <= 1;
        const double padded = (double)(((side + f - 1) / f * f) * ((side + f - 1) / f * f)),
                     keys = 9.0 * (double)(f * f);
        const double all = padded * (keys + (double)s->global),
                     ours = seen * seen + N * (double)s->global;
        more += blocks * 2.0 * (all - ours) * (double)s->dim;
    }
    return more;
}

Test(vil, table_14)
{
    for (size_t i = 0; i < sizeof table14 / sizeof *table14; i++)
        for (int k = 0; k < 8; k++) {
            char name[64], why[128];
            tp_vil_cfg c;
            snprintf(name, sizeof name, "vil-%s-%s", shapes[k], table14[i].attention);
            cr_assert(tp_model_vil.preset(&c, name, why, sizeof why), "%s", why);
            cr_expect(count(name) == table14[i].params[k], "%s: %lld parameters", name,
                      (long long)count(name));
            const tp_model_cfg whole = tp_model_cfg_of(&tp_model_vil, &c);
            const tp_cost f = tp_model_cost(&whole, 0, 0);
            const double paper = f.paper / 1e9, real = (f.macs + upstream(&c)) / 1e9;
            cr_expect(fabs(paper - table14[i].paper[k]) < 6e-5, "%s: %g by the paper's rule", name,
                      paper);
            cr_expect(fabs(real - table14[i].real[k]) < 6e-4, "%s: %g", name, real);
        }
}

Test(vil, other_models)
{
    static const struct {
        const char *name;
        int64_t params;
        double gigaflops; /* as tp-models prints them */
    } rows[] = {
        { "vil-tiny-ape", 6707080, 1.3276 },         { "vil-tiny-rpb", 6719698, 1.3276 },
        { "vil-small-ape", 24635752, 4.8611 },       { "vil-small-rpb", 24657328, 4.8611 },
        { "vil-medium-ape", 39721192, 8.7008 },      { "vil-medium-rpb", 39782296, 8.7008 },
        { "vil-base-ape", 55696360, 13.3695 },       { "vil-base-rpb", 55801384, 13.3695 },
        { "vil-medium-wide-ape", 39776488, 0 },      { "vil-base-wide-ape", 78998760, 0 },
        { "vil-swin-tiny-ape", 28286536, 0 },        { "vil-swin-small-ape", 49580104, 0 },
        { "vil-medium-wide-rpb", 39801208, 0 },      { "vil-base-wide-rpb", 79041948, 0 },
        { "vil-swin-tiny-rpb", 28338352, 0 },        { "vil-swin-small-rpb", 49737328, 0 },
        { "vil-medium-ape-384", 39736552, 28.406 },  { "vil-medium-rpb-384", 39930880, 28.406 },
        { "vil-base-ape-384", 55711720, 43.698 },    { "vil-base-rpb-384", 56023792, 43.698 },
        { "vil-medium-ls", 39799423, 8.721 },        { "vil-base-ls", 55834363, 13.395 },
        { "vil-medium-ls-384", 39947653, 28.742 },   { "vil-tiny-flat-full", 5682856, 0 },
        { "vil-small-flat-full", 21981544, 4.574 },  { "vil-small-1-10-1-rpb", 27612088, 4.6735 },
        { "vil-small-2-9-1-rpb", 26280292, 4.7118 }, { "vil-small-1-1-9-1-rpb", 25989124, 4.8229 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[256];
        tp_model_cfg c;
        const tp_model_row *m = tp_model_find(rows[i].name);
        cr_assert(m && tp_model_preset(&c, rows[i].name, why, sizeof why), "%s", rows[i].name);
        const tp_cost f = tp_model_cost(&c, 0, 0);
        const double all = (f.paper + m->norm_cost * f.norm) / 1e9;
        cr_expect(count(rows[i].name) == rows[i].params, "%s: %lld parameters", rows[i].name,
                  (long long)count(rows[i].name));
        cr_expect(rows[i].gigaflops == 0.0 || fabs(all - rows[i].gigaflops) < 2e-4 * all, "%s: %g",
                  rows[i].name, all);
    }
}

/* ---- configurations ---- */

static const char flat[] = "l1,h6,d384,n12,s0,g1,p16,a1";

Test(vil, notation)
{
    char why[256], text[512];
    tp_vil_cfg c = { 0 };
    cr_assert(tp_model_vil.members->parse(&c, flat, why, sizeof why), "%s", why);
    cr_expect(c.stages == 1 && c.stage[0].dense && c.stage[0].feature == 7);
    cr_assert(tp_model_vil.members->parse(&c, "l1,s1_l2,s0,r8_l3,s1,a0", why, sizeof why), "%s",
              why);
    cr_expect(!c.stage[0].dense && c.stage[1].dense && c.stage[2].dense, "s0 holds on");
    tp_model_vil.members->print(&c, text, sizeof text);
    cr_expect_str_eq(text, "l1,h3,d192,n1,s1,g1,p2,f7,a1,r0_l2,h3,d192,n1,s0,g1,p2,f7,a1,r8_"
                           "l3,h3,d192,n1,s0,g1,p2,f7,a0,r0");
    static const char *const wrong[] = {
        "",    "l2,h3",  "l1,h",         "l1,z3",          "l1,s2",
        "l1_", "l1,h3;", "l1,d99999999", "l1_l2_l3_l4_l5", "l1,h-3"
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect(!tp_model_vil.members->parse(&c, wrong[i], why, sizeof why), "'%s'", wrong[i]);
    static const char *const nobody[] = { "vil",          "vil-tiny",         "vil-tiny-rpb-512",
                                          "vil-huge-rpb", "vil-tiny-1-2-8-1", "vil-tiny-rpbx" };
    for (size_t i = 0; i < sizeof nobody / sizeof *nobody; i++)
        cr_expect(!tp_model_vil.preset(&c, nobody[i], why, sizeof why), "'%s'", nobody[i]);
}

static tp_vil_cfg small(tp_vil_kind kind)
{
    return (tp_vil_cfg){
        .kind = kind,
        .stages = 2,
        .stage = { { .heads = 2, .blocks = 2, .dim = 8, .patch = 4, .global = 1, .feature = 3 },
                   { .heads = 2, .blocks = 1, .dim = 16, .patch = 2, .global = 1, .dense = true } },
        .image = { 48, 48 },
        .classes = 5,
    };
}

Test(vil, impossible_configurations)
{
    tp_vil_cfg rows[11];
    static const char *const why[] = {
        "0 stages",
        "does not divide into 3 heads",
        "leave nothing of",
        "0 blocks",
        "exact windows",
        "mode = 10 must be -1 to 9",
        "needs at least one",
        "leaves nothing of",
        "drop_path must be in [0,1), not 1",
        "num_classes = -1 must be 0 to 65536",
        "window of 1 has no table",
    };
    char buf[256];
    for (int i = 0; i < 11; i++) rows[i] = small(TP_VIL_WINDOW);
    rows[0].stages = 0;
    rows[1].stage[1].heads = 3;
    rows[2].stage[1].patch = 13;
    rows[3].stage[0].blocks = 0;
    rows[4].edge = TP_EDGE_EXACT;
    rows[4].shift = TP_VIL_SHIFT_RANDOM;
    rows[5].shift = 10;
    rows[6].kind = TP_VIL_GLOBAL;
    rows[6].stage[0].global = 0;
    rows[7].kind = TP_VIL_SRA;
    rows[7].stage[0].feature = 13;
    rows[8].drop_path = 1.0;
    rows[9].classes = -1;
    rows[10].kind = TP_VIL_LS;
    rows[10].stage[0].feature = 1;
    for (int i = 0; i < 11; i++) {
        cr_expect(!tp_model_vil.check(&rows[i], buf, sizeof buf), "row %d", i);
        cr_expect(strstr(buf, why[i]), "row %d says '%s'", i, buf);
    }
    const tp_vil_cfg good = small(TP_VIL_WINDOW);
    cr_expect(tp_model_vil.check(&good, buf, sizeof buf), "%s", buf);
}

Test(vil, configurations_in_files, .init = make_folder, .fini = remove_folder)
{
    char why[256];
    tp_vil_cfg c = small(TP_VIL_LS), back;
    c.edge = TP_EDGE_CYCLIC;
    c.shift = TP_BLOCK_OWN;
    c.avg_pool = c.separate_kv = c.raw_embed = c.distinct_bias = true;
    c.drop_path = 0.25;
    tp_writer *W = tp_writer_new(in_folder("cfg.safetensors"));
    tp_model_write_cfg(&tp_model_vil, &c, W);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(in_folder("cfg.safetensors"));
    cr_expect(tp_model_read_cfg(&tp_model_vil, &back, F, why, sizeof why), "%s", why);
    cr_expect(back.stages == 2 && back.stage[1].dense && back.stage[1].dim == 16);
    cr_expect(back.kind == c.kind && back.edge == c.edge && back.shift == c.shift &&
              back.avg_pool && back.separate_kv && !back.separate_global && back.raw_embed &&
              back.distinct_bias && !back.linear_qkv && back.drop_path == 0.25 &&
              back.classes == 5 && back.image[1] == 48 && back.stage[0].feature == 3);
    tp_ls_lm_cfg other;
    cr_expect(!tp_model_read_cfg(&tp_model_ls_lm, &other, F, why, sizeof why));
    tp_file_close(F);
}

/* ---- running ---- */

typedef struct rig {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_vil m;
} rig;

static void open_rig_in(rig *r, tp_vil_cfg c, bool train, tp_dtype compute)
{
    r->D = device_open(&(tp_device_opts){ .threads = 1 });
    r->P = tp_params_new(r->D, &(tp_params_opts){ .seed = 2 });
    r->T = tp_tape_new(r->D, &(tp_tape_opts){ .seed = 7, .train = train, .compute = compute });
    tp_model_vil.init(r->P, &r->m, "", &c);
    cr_assert(tp_params_ok(r->P), "%s", tp_params_why(r->P));
}

static void open_rig(rig *r, tp_vil_cfg c, bool train)
{
    open_rig_in(r, c, train, TP_F32);
}

static void close_rig(rig *r)
{
    tp_tape_free(r->T);
    tp_params_free(r->P);
    tp_device_close(r->D);
}

static tp_tensor images(tp_tape *T, int64_t B, int64_t side)
{
    const int64_t n = B * side * side * 3;
    float *x = malloc((size_t)n * sizeof *x);
    cr_assert(x);
    for (int64_t i = 0; i < n; i++) x[i] = sinf((float)(i % 977) * 0.37f + (float)(i / 977));
    const tp_tensor y = tp_from(T, TP_F32, TP_SHAPE(B, side, side, 3), x);
    free(x);
    return y;
}

static const tp_vil_kind kinds[] = { TP_VIL_WINDOW, TP_VIL_GLOBAL,    TP_VIL_FULL, TP_VIL_LINFORMER,
                                     TP_VIL_SRA,    TP_VIL_PERFORMER, TP_VIL_LS };

/* Loss and gradient norm of a step with drop path and random shifts. */
static void train_once(tp_vil_cfg c, tp_dtype compute, double out[2])
{
    static rig r;
    const int32_t y[2] = { 1, 3 };
    c.drop_path = 0.3;
    c.shift = TP_VIL_SHIFT_RANDOM;
    c.stage[0].rank = 2;
    open_rig_in(&r, c, true, compute);
    const tp_tensor logits = tp_model_vil.forward(r.T, &r.m, NULL, images(r.T, 2, 48));
    const tp_tensor loss =
        tp_cross_entropy(r.T, logits, tp_from(r.T, TP_I32, TP_SHAPE(2), y), TP_MEAN);
    tp_backward(r.T, loss);
    out[0] = tp_item(r.T, loss);
    out[1] = tp_item(r.T, tp_clip_grad_norm(r.P, 0.0));
    cr_expect(tp_ok(r.T), "%s", tp_why(r.T));
    close_rig(&r);
}

/* A recomputed block draws the same shifts and samples. */
Test(vil, recomputation_changes_nothing)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double whole[2], again[2];
        tp_vil_cfg c = small(kinds[i]);
        train_once(c, TP_F32, whole);
        cr_expect(isfinite(whole[1]) && whole[1] > 0.0, "kind %d", (int)kinds[i]);
        for (int k = TP_RECOMPUTE_ATTENTION; k <= TP_RECOMPUTE_BLOCK; k++) {
            c.recompute = (tp_recompute)k;
            train_once(c, TP_F32, again);
            cr_expect(whole[0] == again[0] && whole[1] == again[1], "kind %d, %d: %g %g, %g %g",
                      (int)kinds[i], k, whole[0], again[0], whole[1], again[1]);
        }
    }
}

/* Mixed precision changes a step by rounding only. */
Test(vil, mixed_precision)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double f32[2], bf16[2];
        const tp_vil_cfg c = small(kinds[i]);
        train_once(c, TP_F32, f32);
        train_once(c, TP_BF16, bf16);
        cr_expect(fabs(bf16[0] - f32[0]) < 0.01 * f32[0] && fabs(bf16[1] - f32[1]) < 0.05 * f32[1],
                  "kind %d: loss %g, %g in f32; norm %g, %g in f32", (int)kinds[i], bf16[0], f32[0],
                  bf16[1], f32[1]);
        cr_expect(bf16[0] != f32[0], "kind %d", (int)kinds[i]);
    }
}

/* Draws differ from call to call in training; evaluation and shift 0 draw nothing. */
Test(vil, random_shifts)
{
    static rig r;
    float y[4][10];
    tp_vil_cfg c = small(TP_VIL_WINDOW);
    c.shift = TP_VIL_SHIFT_RANDOM;
    c.stage[0].absolute = c.stage[1].absolute = true;
    open_rig(&r, c, true);
    for (int k = 0; k < 4; k++) {
        tp_reset(r.T);
        if (k == 2) tp_model_vil.set_shift(&r.m, TP_BLOCK_ALL);
        if (k == 3) tp_model_vil.set_shift(&r.m, TP_VIL_SHIFT_RANDOM);
        tp_train(r.T, k < 3);
        cr_assert(tp_read(r.T, tp_model_vil.forward(r.T, &r.m, NULL, images(r.T, 2, 48)), y[k],
                          sizeof y[k]),
                  "%s", tp_why(r.T));
    }
    cr_expect(memcmp(y[0], y[1], sizeof y[0]) != 0, "two draws are equal");
    cr_expect(memcmp(y[0], y[2], sizeof y[0]) != 0, "a draw sees everything");
    cr_expect(memcmp(y[2], y[3], sizeof y[0]) == 0, "evaluation draws");
    close_rig(&r);
}

/* A model without fixed map sizes accepts other images; others report an error. */
Test(vil, other_image_sizes)
{
    static rig r;
    tp_vil_cfg c = small(TP_VIL_WINDOW);
    tp_vil_out out[TP_VIL_MAX_STAGES];
    c.stage[1].dense = false;
    c.stage[1].feature = 3;
    open_rig(&r, c, false);
    tp_part_forward(r.T, &tp_model_vil, "trunk", &r.m, out, images(r.T, 1, 72));
    cr_expect(tp_ok(r.T), "%s", tp_why(r.T));
    cr_expect(tp_dim(out[0].map, 1) == 18 && tp_dim(out[1].map, 2) == 9 &&
              tp_dim(out[1].tokens, 1) == 82);
    close_rig(&r);

    open_rig(&r, small(TP_VIL_WINDOW), false);
    tp_model_vil.forward(r.T, &r.m, NULL, images(r.T, 1, 72));
    cr_expect(strstr(tp_why(r.T), "is for 6 x 6"), "%s", tp_why(r.T));
    close_rig(&r);
}

/* ---- weights ---- */

Test(vil, weights_for_another_resolution, .init = make_folder, .fini = remove_folder)
{
    static rig a, b;
    tp_vil_cfg c = small(TP_VIL_WINDOW), wide = c;
    double table[361 * 2], was[121 * 2], head[5 * 16], fresh[3 * 16];
    c.stage[0].absolute = wide.stage[0].absolute = true;
    wide.image[0] = wide.image[1] = 80;
    wide.classes = 3;
    open_rig(&a, c, false);
    open_rig(&b, wide, false);
    const char *file = in_folder("small.safetensors");
    cr_assert(tp_save(a.P, file), "%s", tp_params_why(a.P));
    cr_assert(models_load(&tp_model_vil, b.P, &b.m, file), "%s", tp_params_why(b.P));

    const tp_tensor from = a.m.block[2].attn.table, to = b.m.block[2].attn.table;
    cr_assert(tp_param_get(a.P, from, TP_F64, was, sizeof was));
    cr_assert(tp_param_get(b.P, to, TP_F64, table, sizeof table));
    for (int k = 0; k < 2; k++) /* resizing keeps the centre and the corners */
        cr_expect(fabs(table[180 * 2 + k] - was[60 * 2 + k]) < 1e-7 && table[k] == was[k]);
    cr_assert(tp_param_get(a.P, a.m.head.weight, TP_F64, head, sizeof head));
    cr_assert(tp_param_get(b.P, b.m.head.weight, TP_F64, fresh, sizeof fresh));
    cr_expect(memcmp(head, fresh, sizeof fresh) == 0, "first rows of the head");
    cr_expect_eq(tp_dim(b.m.embed[0].row_pos, 1), 20);
    close_rig(&b);

    wide.stage[1].blocks = 2;
    open_rig(&b, wide, false);
    cr_expect(!models_load(&tp_model_vil, b.P, &b.m, file) &&
                  strstr(tp_params_why(b.P), "layer2.3.norm.weight"),
              "%s", tp_params_why(b.P));
    close_rig(&b);
    close_rig(&a);
}

Test(vil, initial_values)
{
    static rig r;
    static double x[4 * 384 * 384];
    char why[256];
    tp_vil_cfg c = { .kind = TP_VIL_FULL, .image = { 64, 64 }, .classes = 10 };
    cr_assert(tp_model_vil.members->parse(&c, "l1,h6,d384,n1,s0,g1,p16,a1", why, sizeof why), "%s",
              why);
    static const struct {
        const char *name;
        double deviation;
    } rows[] = {
        { "layer1.1.attn.qkv.weight", 0.02 }, { "layer1.1.attn.qkv.bias", 0.0 },
        { "layer1.2.mlp.fc1.weight", 0.02 },  { "layer1.0.cls_token", 0.02 },
        { "layer1.0.x_pos_embed", 0.02 },     { "layer1.0.proj.weight", 0.020833 },
        { "layer1.0.proj.bias", 0.020833 },   { "head.bias", 0.0 },
    };
    open_rig(&r, c, false);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tp_tensor p = tp_find(r.P, rows[i].name);
        const int64_t n = tp_numel(p);
        double sum = 0.0;
        cr_assert(n * 8 <= (int64_t)sizeof x, "%s", rows[i].name);
        cr_assert(tp_param_get(r.P, p, TP_F64, x, (size_t)n * sizeof *x), "%s", rows[i].name);
        for (int64_t k = 0; k < n; k++) sum += x[k] * x[k];
        const double d = sqrt(sum / (double)n), want = rows[i].deviation;
        cr_expect(fabs(d - want) <= 0.15 * want, "%s: %g", rows[i].name, d);
    }
    close_rig(&r);
}

/* Blocks have orthogonal rows with the width as mean squared norm; draws differ. */
Test(vil, performer_features)
{
    enum { M = 200, D = 16 };
    static rig r;
    static double x[M * D], other[M * D];
    tp_vil_cfg c = small(TP_VIL_PERFORMER);
    double squares = 0.0, worst = 0.0;
    c.stage[0].dim = 2 * D;
    c.stage[0].feature = M;
    open_rig(&r, c, true);
    const tp_tensor w = r.m.block[1].attn.features;
    cr_assert(tp_model_vil.redraw(r.P, &r.m, 3, 1), "%s", tp_params_why(r.P));
    cr_assert(tp_param_get(r.P, w, TP_F64, other, sizeof other));
    cr_assert(tp_model_vil.redraw(r.P, &r.m, 3, 0), "%s", tp_params_why(r.P));
    cr_assert(tp_param_get(r.P, w, TP_F64, x, sizeof x));
    cr_expect(memcmp(x, other, sizeof x) != 0);
    for (int i = 0; i < M; i++)
        for (int k = i / D * D; k <= i; k++) {
            double dot = 0.0;
            for (int d = 0; d < D; d++) dot += x[i * D + d] * x[k * D + d];
            if (k == i) squares += dot;
            if (k < i) worst = fmax(worst, fabs(dot));
        }
    cr_expect(worst < 1e-5 * D, "not orthogonal: %g", worst);
    cr_expect(fabs(squares / M - D) < 0.1 * D, "mean square %g", squares / M);
    close_rig(&r);
}

/* ---- memory ---- */

Test(vil, activation_memory)
{
    static rig r;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int k = TP_RECOMPUTE_NONE; k <= TP_RECOMPUTE_BLOCK; k++) {
            tp_vil_cfg c = small(kinds[i]);
            c.recompute = (tp_recompute)k;
            c.stage[0].rank = 2;
            c.stage[0].dim = 32;
            c.stage[1].dim = 64;
            c.image[0] = c.image[1] = 96;
            open_rig(&r, c, true);
            double bytes = 0.0;
            for (int step = 0; step < 2; step++) {
                tp_reset(r.T);
                const size_t before = tp_device_stats(r.D).live_bytes;
                tp_model_vil.forward(r.T, &r.m, NULL, images(r.T, 1, 96));
                bytes = (double)(tp_device_stats(r.D).live_bytes - before);
            }
            cr_expect(tp_ok(r.T), "%s", tp_why(r.T));
            const tp_model_cfg of = tp_model_cfg_of(&tp_model_vil, &c);
            const double want = tp_model_cost(&of, 0, 0).saved;
            const double room = kinds[i] == TP_VIL_PERFORMER ? 0.25 : 0.1;
            cr_expect(fabs(bytes - want) < room * bytes, "kind %d, recompute %d: %.0f, said %.0f",
                      (int)kinds[i], k, bytes, want);
            close_rig(&r);
        }
}
