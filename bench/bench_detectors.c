/* bench_detectors.c - the time and memory of a detector's training step and inference, as JSON
 * lines (--help). Its peer is bench/peers/detectors_torchvision.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tapegrad/detection/detector.h>
#include <tapegrad/options.h>
#include <tapegrad/train.h>

#include "timing.h"

enum { OBJECTS = 8, MOST_STEPS = 100 };

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

/* Objects on a diagonal, the same in each image. */
static tp_objects objects_of(double side)
{
    static tp_corners box[OBJECTS];
    static int category[OBJECTS];
    static int64_t part[OBJECTS + 1], point[OBJECTS + 1];
    static double xy[8 * OBJECTS];
    for (int k = 0; k < OBJECTS; k++) {
        const double at = side * k / (double)(OBJECTS + 2), wide = side / 5;
        box[k] = (tp_corners){ at, at, at + wide, at + wide };
        category[k] = k;
        part[k + 1] = k + 1;
        point[k + 1] = 4 * (k + 1);
        const double corner[8] = { at, at, at + wide, at, at + wide, at + wide, at, at + wide };
        memcpy(xy + 8 * k, corner, sizeof corner);
    }
    return (tp_objects){
        .n = OBJECTS, .box = box, .category = category, .part = part, .point = point, .xy = xy
    };
}

typedef struct bench {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_detector m;
    float *x;
    int64_t (*size)[2];
    tp_objects *objects;
    int64_t detections; /* of the last inference */
} bench;

static tp_tensor images_of(const bench *b, const settings *s, int64_t n)
{
    return tp_from(b->T, TP_F32, TP_SHAPE(n, s->size, s->size, 3), b->x);
}

static void train_step(bench *b, const settings *s)
{
    tp_random r = tp_random_stream(1, "samples", 0, 0);
    tp_reset(b->T);
    const tp_detection_in in = { .images = images_of(b, s, s->batch),
                                 .size = (const int64_t(*)[2])b->size,
                                 .objects = b->objects,
                                 .random = &r };
    tp_backward(b->T, tp_detector_losses(b->T, &b->m, &in).total);
    tp_clip_grad_norm(b->P, 1);
    tp_step(b->O, 1e-5);
}

static void infer(bench *b, const settings *s)
{
    tp_detected found = { 0 };
    tp_reset(b->T);
    const tp_detection_in in = { .images = images_of(b, s, 1),
                                 .size = (const int64_t(*)[2])b->size };
    if (tp_detector_detect(b->T, &b->m, &in, &found)) {
        b->detections = found.n;
        tp_detected_free(&found);
    }
}

/* Replaces a parameter, if the detector has it, by zeros but for its first element. */
static void set_first(bench *b, const char *name, double value)
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
static void detect_everywhere(bench *b, tp_detector_cfg c)
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

static bool sound(const bench *b)
{
    return tp_params_ok(b->P) && tp_ok(b->T) && tp_optim_ok(b->O);
}

/* Prints nothing if a step failed: its time would mean nothing. */
static void measure(bench *b, const settings *s, const char *pass,
                    void (*step)(bench *, const settings *))
{
    double seconds[MOST_STEPS];
    struct rusage u;
    step(b, s);
    tp_device_reset_peak(b->D);
    for (int k = 0; k < s->steps; k++) {
        const double begin = now();
        step(b, s);
        seconds[k] = now() - begin;
    }
    if (!sound(b)) return;
    getrusage(RUSAGE_SELF, &u);
    printf("{\"detector\":\"%s\",\"dtype\":\"%s\",\"pass\":\"%s\",\"seconds\":%.4f,"
           "\"peak_mb\":%.1f,\"process_mb\":%.1f,"
           "\"detections\":%lld}\n",
           s->preset, s->dtype ? "bf16" : "f32", pass, median(seconds, (int)s->steps),
           (double)tp_device_stats(b->D).peak_bytes * 1e-6, (double)u.ru_maxrss * 1024e-6,
           (long long)b->detections);
    fflush(stdout);
}

static bool run(void *given, char *why, size_t size)
{
    const settings *s = given;
    tp_detector_cfg c;
    bench b = { 0 };
    const size_t pixels = (size_t)(s->batch * s->size * s->size * 3);
    if (!tp_detector_preset(&c, s->preset, 90, TP_DETECTRON2, why, size)) return false;
    if (s->clock == 1) timer = CLOCK_PROCESS_CPUTIME_ID;
    b.D = tp_device_open("cpu", &(tp_device_opts){ .threads = (int)s->threads });
    b.P = tp_params_new(b.D, NULL);
    b.T =
        tp_tape_new(b.D, &(tp_tape_opts){ .compute = s->dtype ? TP_BF16 : TP_F32, .train = true });
    tp_detector_init(b.P, &b.m, "", &c);
    b.O = tp_adamw_new(b.P, NULL);
    b.x = malloc(pixels * sizeof *b.x);
    b.size = malloc((size_t)s->batch * sizeof *b.size);
    b.objects = malloc((size_t)s->batch * sizeof *b.objects);
    bool done = b.x && b.size && b.objects;
    if (done) {
        tp_random r = tp_random_stream(1, "noise", 0, 0);
        tp_random_normals(&r, b.x, (int64_t)pixels);
        for (int64_t i = 0; i < s->batch; i++) {
            b.size[i][0] = b.size[i][1] = s->size;
            b.objects[i] = objects_of((double)s->size);
        }
        measure(&b, s, "train", train_step);
        tp_record(b.T, false);
        tp_train(b.T, false);
        detect_everywhere(&b, c);
        tp_detector_fuse(b.P, &b.m);
        measure(&b, s, "infer", infer);
        done = sound(&b);
        snprintf(why, size, "%s",
                 !tp_params_ok(b.P) ? tp_params_why(b.P)
                 : !tp_ok(b.T)      ? tp_why(b.T)
                                    : tp_optim_why(b.O));
    } else {
        snprintf(why, size, "out of memory");
    }
    tp_optim_free(b.O);
    tp_tape_free(b.T);
    tp_params_free(b.P);
    tp_device_close(b.D);
    free(b.x);
    free(b.size);
    free(b.objects);
    return done;
}

int main(int argc, char **argv)
{
    settings s = {
        .preset = strdup("retinanet-resnet50"), .size = 320, .batch = 2, .steps = 3, .threads = 1
    };
    return tp_command_main(&manual, argc - 1, argv + 1, &s, run);
}
