/* test_fpn.c - feature pyramids: levels on other maps than a published detector's, means,
 * refusals. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <tapegrad/detection.h>

#include "support/device.h"
#include "support/models.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* P6 is every second row and column of P5; a mean of sums is half of a sum where outputs are
 * linear. */
Test(fpn, variants)
{
    static tp_fpn f;
    tp_device *D = device_open(NULL);
    double last[2][64];
    for (int average = 0; average < 2; average++) {
        tp_params *P = tp_params_new(D, NULL);
        tp_tape *T = tp_tape_new(D, NULL);
        tp_tensor map[TP_BACKBONE_STAGES];
        const tp_fpn_cfg c = { .channels = { 3, 3, 3, 3 }, .dim = 4, .average = average == 1 };
        float p5[2][4][4], p6[1][2][4], p4[4][8][4];
        tp_fpn_init(P, &f, "", c);
        for (int k = 0; k < TP_BACKBONE_STAGES; k++) map[k] = models_images(T, 1, 16 >> k, 32 >> k);
        map[2] = tp_scale(T, map[2], 0.0); /* P4 receives C5 only */
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

/* The levels of C3 to C5 equal those of C2 to C5: the parameters have the same names and so the
 * same values. */
Test(fpn, other_maps)
{
    static const tp_fpn_top tops[] = { TP_FPN_SUBSAMPLE, TP_FPN_RELU, TP_FPN_PLAIN };
    enum { SIDE = 32, DIM = 4, MAPS = 4, CELLS = SIDE * SIDE * DIM };
    static tp_fpn f;
    static float level[2][TP_PYRAMID_LEVELS][CELLS];
    tp_device *D = device_open(NULL);
    for (size_t t = 0; t < COUNT(tops); t++) {
        for (int skipped = 0; skipped < 2; skipped++) {
            tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 5 });
            tp_tape *T = tp_tape_new(D, NULL);
            tp_tensor map[MAPS];
            tp_fpn_init(P, &f, "",
                        (tp_fpn_cfg){ .first = 2 + skipped,
                                      .maps = MAPS - skipped,
                                      .channels = { 3, 3, 3, 3 },
                                      .dim = DIM,
                                      .top = tops[t] });
            for (int k = 0; k < MAPS; k++) map[k] = models_images(T, 1, SIDE >> k, SIDE >> k);
            const tp_pyramid y = tp_fpn_forward(T, &f, map + skipped);
            cr_assert_eq(y.levels, MAPS - skipped + (t ? 2 : 1), "%s", tp_why(T));
            for (int k = 0; k < y.levels; k++)
                cr_assert(tp_read(T, y.map[k], level[skipped][k],
                                  (size_t)tp_numel(y.map[k]) * sizeof(float)),
                          "%s", tp_why(T));
            for (int k = 0; k < y.levels && skipped; k++)
                cr_expect(memcmp(level[1][k], level[0][k + 1],
                                 (size_t)tp_numel(y.map[k]) * sizeof(float)) == 0,
                          "top %zu, level %d", t, k);
            tp_tape_free(T);
            tp_params_free(P);
        }
    }
    tp_device_close(D);
}

/* One map to the maximum, any stride. */
Test(fpn, numbers_of_maps)
{
    static tp_fpn f;
    tp_device *D = device_open(NULL);
    for (int maps = 1; maps <= TP_FPN_MAPS; maps++) {
        tp_params *P = tp_params_new(D, NULL);
        tp_tape *T = tp_tape_new(D, NULL);
        tp_tensor map[TP_FPN_MAPS];
        tp_fpn_cfg c = { .first = 1, .maps = maps, .dim = 2, .top = TP_FPN_PLAIN };
        for (int k = 0; k < maps; k++) {
            c.channels[k] = 3;
            map[k] = models_images(T, 1, 64 >> k, 64 >> k);
        }
        tp_fpn_init(P, &f, "", c);
        const tp_pyramid y = tp_fpn_forward(T, &f, map);
        cr_assert(tp_ok(T) && y.levels == maps + 2, "%s", tp_why(T));
        for (int k = 0; k < y.levels; k++) cr_expect_eq(tp_dim(y.map[k], 1), (63 >> k) + 1);
        cr_expect(tp_given(tp_find(P, "fpn_lateral1.weight")));
        tp_tape_free(T);
        tp_params_free(P);
    }
    tp_device_close(D);
}

Test(fpn, impossible)
{
    static tp_fpn f;
    char why[200];
    tp_device *D = tp_device_open("cpu", NULL);
    for (int i = 0;; i++) {
        tp_fpn_cfg c = { .channels = { 3, 3, 3, 3 } };
        const char *text = NULL;
        cr_assert(tp_fpn_check(&c, why, sizeof why), "%s", why);
        switch (i) {
        case 0: c.maps = TP_FPN_MAPS + 1, text = "1 to 6 maps"; break;
        case 1: c.maps = -1, text = "1 to 6 maps"; break;
        case 2: c.first = 21, text = "the first of stride"; break;
        case 3: c.channels[3] = 0, text = "channels"; break;
        case 4: c.dim = -1, text = "channels"; break;
        default: tp_device_close(D); return;
        }
        tp_params *P = tp_params_new(D, NULL);
        cr_expect(!tp_fpn_check(&c, why, sizeof why) && strstr(why, text), "%d: %s", i, why);
        tp_fpn_init(P, &f, "", c);
        cr_expect(!tp_params_ok(P) && strstr(tp_params_why(P), why), "%s", tp_params_why(P));
        tp_params_free(P);
    }
}
