/* detector_steps.c - training steps of a detector on noise with eight objects in each image. */
#include "detector_steps.h"

#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 8 };

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

bool detector_rig_new(detector_rig *r, tp_device *D, const tp_detector_cfg *c, tp_dtype compute,
                      int64_t side, int64_t batch)
{
    const size_t values = (size_t)(batch * side * side * 3);
    tp_random noise = tp_random_stream(1, "noise", 0, 0);
    *r = (detector_rig){ .D = D, .side = side, .batch = batch };
    r->P = tp_params_new(D, NULL);
    r->T = tp_tape_new(D, &(tp_tape_opts){ .compute = compute, .train = true });
    tp_detector_init(r->P, &r->m, "", c);
    r->O = tp_adamw_new(r->P, NULL);
    r->x = malloc(values * sizeof *r->x);
    r->size = malloc((size_t)batch * sizeof *r->size);
    r->objects = malloc((size_t)batch * sizeof *r->objects);
    if (!r->x || !r->size || !r->objects) return false;
    tp_random_normals(&noise, r->x, (int64_t)values);
    for (int64_t i = 0; i < batch; i++) {
        r->size[i][0] = r->size[i][1] = side;
        r->objects[i] = objects_of((double)side);
    }
    return true;
}

void detector_rig_free(detector_rig *r)
{
    tp_optim_free(r->O);
    tp_tape_free(r->T);
    tp_params_free(r->P);
    tp_device_close(r->D);
    free(r->x);
    free(r->size);
    free(r->objects);
}

tp_tensor detector_images(const detector_rig *r, int64_t n)
{
    return tp_from(r->T, TP_F32, TP_SHAPE(n, r->side, r->side, 3), r->x);
}

void detector_train_step(detector_rig *r)
{
    tp_random samples = tp_random_stream(1, "samples", 0, 0);
    tp_reset(r->T);
    const tp_detection_in in = { .images = detector_images(r, r->batch),
                                 .size = (const int64_t(*)[2])r->size,
                                 .objects = r->objects,
                                 .random = &samples };
    tp_backward(r->T, tp_detector_losses(r->T, &r->m, &in).total);
    tp_clip_grad_norm(r->P, 1);
    tp_step(r->O, 1e-5);
}

bool detector_sound(const detector_rig *r)
{
    return tp_params_ok(r->P) && tp_ok(r->T) && tp_optim_ok(r->O);
}

const char *detector_why(const detector_rig *r)
{
    return !tp_params_ok(r->P) ? tp_params_why(r->P)
           : !tp_ok(r->T)      ? tp_why(r->T)
                               : tp_optim_why(r->O);
}
