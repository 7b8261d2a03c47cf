/* parity_detection_train.c - kinds of training detectors: the input pipeline, the schedule, clipped updates. */
#include <string.h>

#include "parity_detection.h"
#include "parity_images.h"
#include "parity_scene.h"

/* ---- the input pipeline ---- */

/* The network's input with channels first, as stored. */
static void check_floats(parity *p, const tp_image *image, const tp_pixel_scale *scale)
{
    const int64_t unit = par_padding(p), h = tp_padded_side(image->height, unit),
                  w = tp_padded_side(image->width, unit);
    float *x = par_alloc(p, h * w * 3, sizeof *x);
    double *y = par_alloc(p, h * w * 3, sizeof *y);
    if (!x || !y) return;
    tp_view_floats(image, scale, h, w, x);
    for (int64_t i = 0; i < h * w * 3; i++) y[i % 3 * h * w + i / 3] = x[i];
    par_check(p, "output.normalised_padded", y, h * w * 3, 1e-6);
}

static void check_objects(parity *p, const tp_object_view *v)
{
    int64_t n;
    const tp_corners *box = par_corners(p, "input.boxes_xywh", &n);
    tp_corners *seen = par_alloc(p, n, sizeof *seen);
    for (int64_t i = 0; box && seen && i < n; i++) {
        double xywh[4]; /* read as corners */
        memcpy(xywh, &box[i], sizeof xywh);
        seen[i] = tp_view_box(v, xywh);
    }
    if (seen) par_check_corners(p, "output.boxes_xyxy", seen, n);
    for (int64_t k = 0; k < par_series(p, "input.poly") && !p->failed; k++) {
        tp_shape s = { 0 };
        const double *xy = par_values(p, par_name(p, "input.poly%lld", (long long)k), &s);
        const char *name = par_name(p, "output.poly%lld", (long long)k);
        double *to = par_alloc(p, par_numel(s), sizeof *to);
        if (!xy || !to) return;
        tp_view_outline(v, xy, par_numel(s), to);
        par_check(p, name, to, par_numel(s), par_exact(p, name));
    }
}

void par_run_preprocess(parity *p)
{
    tp_image in = { 0 }, plain = { 0 }, seen = { 0 };
    tp_object_view v = { .mirror = par_flag(p, "flip", false) };
    tp_pixel_scale scale;
    par_three(p, "mean", 0.0, 1e6, scale.mean);
    par_three(p, "std", 1e-9, 1e6, scale.std);
    const int64_t size = par_size(p, "short_edge", PAR_NEEDED),
                  most = par_size(p, "max_size", PAR_NEEDED);
    par_read_image(p, "input.image", &in);
    if (!p->failed) {
        tp_shortest_side(TP_DETECTRON2, in.height, in.width, size, most, v.to);
        v.from[0] = in.height;
        v.from[1] = in.width;
        tp_object_view straight = v;
        straight.mirror = false;
        if (!tp_view_image(&straight, &in, &plain) || !tp_view_image(&v, &in, &seen))
            par_fail(p, "%s%s", plain.why, seen.why);
        par_check_image(p, "output.resized", &plain);
        par_check_image(p, "output.final_uint8", &seen);
        check_floats(p, &seen, &scale);
        check_objects(p, &v);
    }
    tp_image_free(&in);
    tp_image_free(&plain);
    tp_image_free(&seen);
}

/* ---- the schedule ---- */

void par_run_milestones(parity *p)
{
    tp_shape s = { 0 };
    int64_t milestones;
    const int64_t *at = par_integers(p, "input.iteration", &s);
    const int64_t n = par_numel(s), warmup = par_count(p, "warmup_iters", PAR_NEEDED),
                  last = par_size(p, "max_iter", PAR_NEEDED),
                  *milestone = par_sizes(p, "steps", 1, &milestones);
    const double lr = par_num(p, "base_lr", PAR_NEEDED), factor = par_num(p, "gamma", PAR_NEEDED),
                 start = par_num(p, "warmup_factor", PAR_NEEDED);
    double *rate = par_alloc(p, n, sizeof *rate);
    for (int64_t i = 0; at && i < n; i++)
        if (at[i] < 0 || at[i] > last)
            par_illegal(p, "metadata max_iter: there is no iteration %lld", (long long)at[i]);
    for (int64_t i = 0; at && rate && i < n; i++)
        rate[i] = tp_lr_milestones(at[i], warmup, start, milestone, (int)milestones, factor, lr);
    if (rate) par_check(p, "output.lr", rate, n, par_exact(p, "output.lr"));
}

/* ---- clipped updates ---- */

static void clipped_update(parity *p, const tp_tensor *w, int64_t tensors, tp_optim *O,
                           int64_t step, double lr, double clip)
{
    for (int64_t i = 0; i < tensors && par_ok(p); i++) {
        const double *g =
            par_values(p, par_name(p, "input.g%lld_%lld", (long long)i, (long long)step), NULL);
        if (g)
            par_params(
                p, tp_param_set_grad(p->P, w[i], TP_F64, g, (size_t)tp_numel(w[i]) * sizeof *g));
    }
    const double norm = tp_item(p->T, tp_clip_grad_norm(p->P, clip));
    par_check_one(p, par_name(p, "output.norm_%lld", (long long)step), norm,
                  par_limit(p, PAR_OUTPUT));
    tp_step(O, lr);
    if (!tp_optim_ok(O)) par_fail(p, "%s", tp_optim_why(O));
    for (int64_t i = 0; i < tensors && par_ok(p); i++) {
        const int64_t n = tp_numel(w[i]);
        double *x = par_alloc(p, n, sizeof *x);
        if (x && tp_param_get(p->P, w[i], TP_F64, x, (size_t)n * sizeof *x))
            par_check(p, par_name(p, "output.p%lld_%lld", (long long)i, (long long)step), x, n,
                      par_limit(p, PAR_OUTPUT));
    }
}

void par_run_clipped(parity *p)
{
    int64_t steps;
    const double *lr = par_list(p, "lrs", &steps), clip = par_num(p, "clip", PAR_NEEDED);
    const tp_adamw_opts o = { .beta1 = par_nonzero(par_num(p, "beta1", 0.9)),
                              .beta2 = par_nonzero(par_num(p, "beta2", 0.999)),
                              .eps = par_nonzero(par_num(p, "eps", 1e-8)),
                              .weight_decay = par_num(p, "weight_decay", PAR_NEEDED) };
    const int64_t tensors = par_series(p, "input.p");
    par_fixed(p, "clip_eps", 1e-6);
    par_begin(p);
    tp_tensor *w = par_alloc(p, tensors, sizeof *w);
    if (steps < 1 || steps > 100) par_illegal(p, "metadata lrs: there is no update");
    for (int64_t i = 0; w && i < tensors; i++)
        w[i] = tp_param(p->P, par_name(p, "p%lld", (long long)i),
                        par_shape(p, par_name(p, "input.p%lld", (long long)i)),
                        (tp_init){ .kind = TP_INIT_ZERO }, 0);
    for (int64_t i = 0; w && i < tensors && par_ok(p); i++) {
        const double *x = par_values(p, par_name(p, "input.p%lld", (long long)i), NULL);
        if (x)
            par_params(p, tp_param_set(p->P, w[i], TP_F64, x, (size_t)tp_numel(w[i]) * sizeof *x));
    }
    if (p->failed || !w) return;
    tp_optim *O = tp_adamw_new(p->P, &o);
    for (int64_t k = 0; k < steps && !p->failed; k++)
        clipped_update(p, w, tensors, O, k, lr[k], clip);
    tp_optim_free(O);
}
