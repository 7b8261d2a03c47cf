/* detector_plan.c - a detector's parameters, multiply-adds and memory, counted on a dry device. */
#include <tapegrad/detection/detector.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/observe.h>
#include <tapegrad/optim.h>

#include "inner.h"

static int part_of(const char *path)
{
    if (strncmp(path, "backbone.bottom_up", 18) == 0) return TP_DETECTOR_BACKBONE;
    return strncmp(path, "backbone", 8) == 0 ? TP_DETECTOR_PYRAMID : TP_DETECTOR_HEADS;
}

/* A dry model. */
typedef struct world {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_detector m;
} world;

static bool open_world(world *w, const tp_detector_plan_opts *o, const tp_detector_cfg *c,
                       bool train, char *why, size_t size)
{
    const tp_dtype dtype = o->dtype;
    w->D = tp_device_open(o->device ? o->device : "cpu",
                          &(tp_device_opts){ .threads = o->threads, .dry = true });
    w->P = tp_params_new(w->D, &(tp_params_opts){ .dtype = dtype == TP_F64 ? TP_F64 : TP_F32 });
    w->T = tp_tape_new(w->D, &(tp_tape_opts){ .compute = dtype, .train = train });
    if (!train) tp_record(w->T, false);
    tp_detector_init(w->P, &w->m, "", c);
    if (tp_params_ok(w->P)) return true;
    return tp__refuse(why, size, "%s", tp_params_why(w->P));
}

static int64_t close_world(world *w)
{
    const int64_t peak = (int64_t)tp_device_stats(w->D).peak_bytes;
    tp_tape_free(w->T);
    tp_params_free(w->P);
    tp_device_close(w->D);
    return peak;
}

static tp_tensor images_of(world *w, const tp_detector_plan_opts *o, int64_t batch)
{
    return tp_full(w->T, tp_compute_dtype(w->T), TP_SHAPE(batch, o->size[0], o->size[1], 3), 0);
}

/* ---- counts ---- */

typedef struct counter {
    tp_detector_plan *plan;
    bool relus;
} counter;

/* The papers' tables count a bias addition for each output of a convolution, but for a linear layer
 * only for each column. */
static void count(void *env, tp_tape *T, const tp_seen *seen)
{
    const counter *c = env;
    const int part = part_of(seen->path);
    const double macs = tp_seen_macs(seen);
    double more = 0.0;
    (void)T;
    if (macs > 0.0 && seen->nx > 2 && tp_given(seen->x[2]))
        more = (double)tp_numel(strcmp(seen->op->name, "linear") == 0 ? seen->x[2] : seen->y[0]);
    if (c->relus && part == TP_DETECTOR_HEADS && strcmp(seen->op->name, "conv2d_relu") == 0)
        more += (double)tp_numel(seen->y[0]);
    c->plan->macs[part] += macs;
    c->plan->paper[part] += macs + (part == TP_DETECTOR_BACKBONE ? 0.0 : more);
}

static void count_params(tp_detector_plan *plan, tp_params *P)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);)
        if (!it.buffer && !it.alias_of)
            plan->params[part_of(it.name)] += (double)tp_numel(it.tensor);
}

static bool count_all(tp_detector_plan *plan, tp_detector_cfg c, const tp_detector_plan_opts *o,
                      char *why, size_t size)
{
    world w;
    bool done = open_world(&w, o, &c, false, why, size);
    if (done) {
        counter n = { plan, c.kind->relus };
        tp_observe(w.T, count, &n);
        c.kind->forward(w.T, w.m.module, images_of(&w, o, 1));
        done = tp_ok(w.T);
        if (!done) snprintf(why, size, "%s", tp_why(w.T));
        count_params(plan, w.P);
    }
    close_world(&w);
    const tp_model_cfg *backbone = &tp_detector_parts_of(&c).backbone->model;
    if (done && backbone->model->backbone->paper)
        plan->paper[TP_DETECTOR_BACKBONE] =
            backbone->model->backbone->paper(&backbone->at, o->size);
    return done;
}

/* ---- detection ---- */

/* A dry device reads zeros: in RetinaNet, all would be candidates, which the host would sort. */
static bool detect(tp_detector_plan *plan, tp_detector_cfg c, const tp_detector_plan_opts *o,
                   char *why, size_t size)
{
    world w;
    tp_detected found = { 0 };
    tp_detector_limit(&c, 1.0, 1);
    bool done = open_world(&w, o, &c, false, why, size);
    if (done) {
        const tp_detection_in in = { .images = images_of(&w, o, 1), .size = &o->size };
        done = tp_detector_detect(w.T, &w.m, &in, &found);
        if (!done) snprintf(why, size, "%s", tp_why(w.T));
        tp_detected_free(&found);
    }
    plan->detect_bytes = close_world(&w);
    return done;
}

/* ---- training ---- */

/* Runs two updates with one object in each image; the first allocates the optimiser's memory. */
static bool learn(world *w, const tp_detector_plan_opts *o, const tp_detector_cfg *c, char *why,
                  size_t size)
{
    const double side = 0.25 * (double)(o->size[0] < o->size[1] ? o->size[0] : o->size[1]);
    const tp_corners box = { 0, 0, side, side };
    const int category = 0;
    const int64_t part[2] = { 0, 1 }, point[2] = { 0, 4 };
    const double xy[8] = { 0, 0, side, 0, side, side, 0, side };
    const bool masks = tp_detector_has_masks(c);
    const tp_objects one = { .n = 1,
                             .box = &box,
                             .category = &category,
                             .part = masks ? part : NULL,
                             .point = masks ? point : NULL,
                             .xy = masks ? xy : NULL };
    tp_objects *objects = malloc((size_t)o->batch * sizeof *objects);
    int64_t(*sides)[2] = malloc((size_t)o->batch * sizeof *sides);
    tp_optim *O = tp_adamw_new(w->P, NULL);
    tp_random r = tp_random_stream(1, "plan", 0, 0);
    for (int64_t i = 0; objects && sides && i < o->batch; i++) {
        objects[i] = one;
        sides[i][0] = o->size[0];
        sides[i][1] = o->size[1];
    }
    for (int k = 0; objects && sides && k < 2; k++) {
        tp_reset(w->T);
        const tp_detection_in in = { .images = images_of(w, o, o->batch),
                                     .size = (const int64_t(*)[2])sides,
                                     .objects = objects,
                                     .random = &r };
        tp_backward(w->T, tp_detector_losses(w->T, &w->m, &in).total);
        tp_clip_grad_norm(w->P, 1);
        tp_step(O, 1e-4);
    }
    const bool done = objects && sides && tp_ok(w->T) && tp_optim_ok(O);
    if (!done)
        snprintf(why, size, "%s",
                 !objects || !sides ? "out of memory"
                 : !tp_ok(w->T)     ? tp_why(w->T)
                                    : tp_optim_why(O));
    tp_optim_free(O);
    free(objects);
    free(sides);
    return done;
}

static bool train(tp_detector_plan *plan, const tp_detector_cfg *c, const tp_detector_plan_opts *o,
                  char *why, size_t size)
{
    world w;
    const bool done = open_world(&w, o, c, true, why, size) && learn(&w, o, c, why, size);
    plan->train_bytes = close_world(&w);
    return done;
}

/* ---- the plan ---- */

bool tp_detector_planned(tp_detector_plan *plan, const tp_detector_cfg *c,
                         const tp_detector_plan_opts *opts, char *why, size_t size)
{
    if (!plan)
        return tp__refuse(why, size,
                          "detector_planned: NULL was given in place of a detector plan");
    *plan = (tp_detector_plan){ 0 };
    if (!tp_detector_check(c, why, size)) return false;
    return count_all(plan, *c, opts, why, size) &&
           (opts->batch == 0 ||
            (detect(plan, *c, opts, why, size) && train(plan, c, opts, why, size)));
}
