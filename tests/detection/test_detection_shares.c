/* test_detection_shares.c - processes that share a batch normalise their losses by counts over all
 * of it: the mean over the processes is the loss of the batch. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/detectors.h"

enum { RANKS = 2, CALLS = 8 };

/* What both processes count. They run one after another, twice: the first time, their counts are
 * only noted. */
typedef struct counts {
    double of[RANKS][CALLS];
    int rank, calls;
    bool known;
} counts;

static void total(void *env, double *count)
{
    counts *c = env;
    cr_assert_lt(c->calls, CALLS);
    const int k = c->calls++;
    if (!c->known)
        c->of[c->rank][k] = *count;
    else
        *count = c->of[0][k] + c->of[1][k];
}

static tp_objects objects_of(int image)
{
    tp_objects o = detectors_scene;
    if (image == 1) o.n = 1;
    return o;
}

/* The losses of both images, or of image `rank` as a process's part. */
static void measure(const tp_detector_kind *kind, const void *cfg, counts *c,
                    double term[TP_DETECTION_LOSSES])
{
    static detectors_rig r;
    detectors_make(&r, kind, cfg, NULL);
    const int first = c ? c->rank : 0, n = c ? 1 : RANKS;
    for (int i = 0; i < n; i++) r.objects[i] = objects_of(first + i);
    r.in.sampling = TP_SAMPLE_EVEN;
    r.in.images = tp_slice(r.T, r.in.images, 0, first, n);
    r.in.size += first;
    if (c) r.in.share = (tp_detection_share){ RANKS, total, c };
    const tp_detection_losses l = tp_detector_losses(r.T, &r.m, &r.in);
    cr_assert(tp_ok(r.T), "%s", tp_why(r.T));
    for (int k = 0; k < l.n; k++) term[k] = tp_item(r.T, l.term[k]);
    detectors_release(&r);
}

static void expect_mean(const tp_detector_kind *kind, const void *cfg)
{
    counts c = { 0 };
    double whole[TP_DETECTION_LOSSES] = { 0 }, part[RANKS][TP_DETECTION_LOSSES] = { { 0 } };
    measure(kind, cfg, NULL, whole);
    for (int pass = 0; pass < 2; pass++)
        for (c.rank = 0; c.rank < RANKS; c.rank++) {
            c.known = pass == 1;
            c.calls = 0;
            measure(kind, cfg, &c, part[c.rank]);
        }
    for (int k = 0; k < TP_DETECTION_LOSSES && kind->terms[k]; k++) {
        const double mean = (part[0][k] + part[1][k]) / RANKS;
        cr_expect(whole[k] > 0);
        cr_expect_float_eq(mean, whole[k], 2e-5 * whole[k], "%s: %.9g, of the batch %.9g",
                           kind->terms[k], mean, whole[k]);
    }
    int differ = 0;
    for (int k = 0; k < c.calls; k++) differ += c.of[0][k] != c.of[1][k];
    cr_expect(differ > 0, "the processes count the same numbers");
}

Test(detection_shares, retinanet)
{
    for (int p = 0; p < 2; p++) {
        const tp_backbone_cfg b = detectors_small_backbone();
        tp_retinanet_cfg c = tp_retinanet_default(&b, 3, p ? TP_MMDETECTION : TP_DETECTRON2);
        c.dim = 8;
        c.convs = 1;
        expect_mean(&tp_detector_retinanet, &c);
    }
}

Test(detection_shares, mask_rcnn)
{
    for (int p = 0; p < 2; p++) {
        tp_mask_rcnn_cfg c =
            tp_mask_rcnn_config(detectors_small_backbone(), p ? TP_MMDETECTION : TP_DETECTRON2);
        c.box.hidden[0] = c.box.hidden[1] = 16;
        c.mask.dim = 8;
        c.rpn.most[0] = c.rpn.most[1] = 50;
        tp_mask_rcnn_sizes(&c, 8, 3);
        expect_mean(&tp_detector_mask_rcnn, &c);
    }
}
