/* parity_window.c - helpers for the kinds of Swin, CSWin, CoaT and MPViT, and their full-size models. */
#include <math.h>

#include "parity_window.h"

bool window_is_ratio(double ratio, int64_t dim)
{
    const double hidden = ratio * (double)dim;
    return hidden >= 1.0 && hidden < 1e6 && hidden == floor(hidden);
}

double window_ratio(parity *p, int64_t dim)
{
    const double ratio = par_num(p, "mlp_ratio", 4.0);
    if (window_is_ratio(ratio, dim)) return ratio;
    par_illegal(p, "metadata mlp_ratio: %g times %lld channels", ratio, (long long)dim);
    return 1.0;
}

/* ---- full-size models ---- */

static void declare_full(parity *p, void *self)
{
    par_full *f = self;
    tp_model_cfg c;
    int64_t size[2];
    par_image_size(p, "image", size);
    if (!par_model(p, NULL, NULL, size, &c)) return;
    tp_common_cfg o = tp_model_get(&c);
    o.outputs = par_size(p, "classes", o.outputs);
    tp_model_set(&c, &o);
    par_declare_full(p, f, &c);
    if (par_ok(p) && f->model == &tp_model_coat) coat_leave_out_norms(p, f->module);
}

static void run_full(parity *p, void *self)
{
    par_run_full(p, self, par_images(p, "image"));
}

const par_kind par_window_kinds[] = {
    { PAR_MODULE("window_baselines.full", par_full, declare_full, run_full), .large = true },
    { .kind = NULL },
};
