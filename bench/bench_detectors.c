/* bench_detectors.c - the time and memory of a detector's training step and inference, as JSON
 * lines (--help). Its peer is bench/peers/detectors_torchvision.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tapegrad/options.h>

#include "detector_steps.h"
#include "timing.h"

enum { MOST_STEPS = 100 };

typedef struct settings {
    char *preset;
    int64_t size, batch, steps, threads;
    int clock, dtype;
} settings;

#define S settings

static const tp_option table[] = {
    TP_STRING_OF("preset", S, preset, "NAME", tp_detector_known, 0, "The detector."),
    TP_INT("size", S, size, 32, 4096, 0, "Side of the images, a multiple of 32."),
    TP_INT("batch", S, batch, 1, 64, 0, "Images of a training step; inference takes one."),
    TP_INT("steps", S, steps, 1, MOST_STEPS, 0, "Steps, after one that does not count."),
    TP_INT("threads", S, threads, 0, 1024, 0, "CPU threads; 0: all cores."),
    TP_CHOICE("dtype", S, dtype, "f32|bf16", 0, "The dtype of products."),
    TP_CHOICE("clock", S, clock, "wall|cpu", 0, "Elapsed time, or CPU time of all threads."),
    { 0 },
};

static const tp_command manual = {
    .name = "bench_detectors",
    .summary = "measures a detector's training step and inference",
    .about =
        "Trains on noise with eight objects in each image, their boxes and outlines, and then "
        "detects in one image, with "
        "frozen norms fused; Mask R-CNN with scores and thresholds that leave 1000 regions and "
        "100 detections. Prints the "
        "median of the steps.",
    .table = table,
};

typedef struct bench {
    detector_rig r;
    int64_t detections; /* of the last inference */
} bench;

static void train_step(bench *b)
{
    detector_train_step(&b->r);
}

static void infer(bench *b)
{
    tp_detected found = { 0 };
    tp_reset(b->r.T);
    const tp_detection_in in = { .images = detector_images(&b->r, 1),
                                 .size = (const int64_t(*)[2])b->r.size };
    if (tp_detector_detect(b->r.T, &b->r.m, &in, &found)) {
        b->detections = found.n;
        tp_detected_free(&found);
    }
}

/* Replaces a parameter, if the detector has it, by zeros but for its first element. */
static void set_first(detector_rig *b, const char *name, double value)
{
    const tp_tensor p = tp_find(b->P, name);
    const size_t bytes = (size_t)tp_numel(p) * sizeof(double);
    double *x = tp_given(p) ? calloc(1, bytes) : NULL;
    if (x) {
        x[0] = value;
        if (!tp_param_set(b->P, p, TP_F64, x, bytes))
            tp_params_raise(b->P, TP_E_VALUE, "%s", tp_params_why(b->P));
    }
    free(x);
}

/* Replaces a detector with masks by another one for inference, whose regions are the anchors, all
 * of the first category; none suppresses another. With weights that have not learnt anything, the
 * number of detections, and so the time of the mask head, would depend on chance. */
static void detect_everywhere(detector_rig *b, tp_detector_cfg c)
{
    char why[256];
    if (!tp_detector_has_masks(&c)) return;
    tp_reset(b->T);
    tp_optim_free(b->O);
    tp_params_free(b->P);
    b->P = tp_params_new(b->D, NULL);
    if (!tp_detector_change(&c, "rpn.overlap=1,overlap=1", NULL, why, sizeof why))
        tp_params_refuse(b->P, TP_E_VALUE, "%s", why);
    tp_detector_init(b->P, &b->m, "", &c);
    b->O = tp_adamw_new(b->P, NULL);
    set_first(b, "proposal_generator.rpn_head.anchor_deltas.weight", 0.0);
    set_first(b, "roi_heads.box_predictor.bbox_pred.weight", 0.0);
    set_first(b, "roi_heads.box_predictor.cls_score.weight", 0.0);
    set_first(b, "roi_heads.box_predictor.cls_score.bias", 10.0);
}

/* Prints nothing if a step failed: its time would mean nothing. */
static void measure(bench *b, const settings *s, const char *pass, void (*step)(bench *))
{
    double seconds[MOST_STEPS];
    struct rusage u;
    step(b);
    tp_device_reset_peak(b->r.D);
    for (int k = 0; k < s->steps; k++) {
        const double begin = now();
        step(b);
        seconds[k] = now() - begin;
    }
    if (!detector_sound(&b->r)) return;
    getrusage(RUSAGE_SELF, &u);
    printf("{\"detector\":\"%s\",\"dtype\":\"%s\",\"pass\":\"%s\",\"seconds\":%.4f,"
           "\"peak_mb\":%.1f,\"process_mb\":%.1f,"
           "\"detections\":%lld}\n",
           s->preset, s->dtype ? "bf16" : "f32", pass, median(seconds, (int)s->steps),
           (double)tp_device_stats(b->r.D).peak_bytes * 1e-6, (double)u.ru_maxrss * 1024e-6,
           (long long)b->detections);
    fflush(stdout);
}

static bool run(void *given, char *why, size_t size)
{
    const settings *s = given;
    tp_detector_cfg c;
    bench b = { 0 };
    if (!tp_detector_preset(&c, s->preset, 90, TP_DETECTRON2, why, size)) return false;
    if (s->clock == 1) timer = CLOCK_PROCESS_CPUTIME_ID;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = (int)s->threads });
    bool done = detector_rig_new(&b.r, D, &c, s->dtype ? TP_BF16 : TP_F32, s->size, s->batch);
    if (done) {
        measure(&b, s, "train", train_step);
        tp_record(b.r.T, false);
        tp_train(b.r.T, false);
        detect_everywhere(&b.r, c);
        tp_detector_fuse(b.r.P, &b.r.m);
        measure(&b, s, "infer", infer);
        done = detector_sound(&b.r);
        snprintf(why, size, "%s", detector_why(&b.r));
    } else {
        snprintf(why, size, "out of memory");
    }
    detector_rig_free(&b.r);
    return done;
}

int main(int argc, char **argv)
{
    settings s = {
        .preset = strdup("retinanet-resnet50"), .size = 320, .batch = 2, .steps = 3, .threads = 1
    };
    return tp_command_main(&manual, argc - 1, argv + 1, &s, run);
}
