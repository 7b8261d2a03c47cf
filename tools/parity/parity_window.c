/* parity_window.c - helpers for the kinds of Swin, CSWin, CoaT and MPViT, and their full-size models. */
#include <math.h>

#include "parity_window.h"

/* ---- lists of stages ---- */

void window_int64s(parity *p, const char *key, int64_t least, int most, int64_t *x, int *n)
{
    int64_t count;
    const int64_t *given = par_sizes(p, key, least, &count);
    if (count < 1 || count > most)
        par_fail(p, "metadata %s: %lld numbers, not 1 to %d", key, (long long)count, most);
    else if (*n != 0 && count != *n)
        par_fail(p, "metadata %s: %lld numbers for %d stages", key, (long long)count, *n);
    for (int64_t i = 0; i < count && i < most; i++) x[i] = given[i];
    *n = (int)count;
}

void window_ints(parity *p, const char *key, int least, int most, int *x, int *n)
{
    int64_t *all = par_alloc(p, most, sizeof *all);
    if (!all) return;
    window_int64s(p, key, least, most, all, n);
    for (int i = 0; i < *n && i < most; i++) x[i] = (int)all[i];
}

bool window_is_ratio(double ratio, int64_t dim)
{
    const double hidden = ratio * (double)dim;
    return hidden >= 1.0 && hidden < 1e6 && hidden == floor(hidden);
}

double window_ratio(parity *p, int64_t dim)
{
    const double ratio = par_num(p, "mlp_ratio", 4.0);
    if (window_is_ratio(ratio, dim)) return ratio;
    par_fail(p, "metadata mlp_ratio: %g times %lld channels", ratio, (long long)dim);
    return 1.0;
}

/* ---- full-size models ---- */

typedef struct full {
    const tp_model *model;
    void *module;
} full;

static void declare_full(parity *p, void *self)
{
    full *f = self;
    tp_model_cfg c;
    int64_t size[2];
    par_image_size(p, "image", size);
    if (!par_model(p, NULL, NULL, size, &c)) return;
    tp_common_cfg o = tp_model_get(&c);
    o.outputs = par_size(p, "classes", o.outputs);
    tp_model_set(&c, &o);
    f->model = c.model;
    f->module = par_alloc(p, 1, c.model->size);
    if (f->module) f->model->init(p->P, f->module, "", &c.at);
    if (par_ok(p) && f->model == &tp_model_coat) coat_leave_out_norms(p, f->module);
}

static void run_full(parity *p, void *self)
{
    const full *f = self;
    const tp_tensor images = par_images(p, "image");
    if (par_ok(p)) par_classify(p, f->model->forward(p->T, f->module, NULL, images));
}

const par_kind par_window_kinds[] = {
    { PAR_MODULE("window_baselines.full", full, declare_full, run_full), .large = true },
    { .kind = NULL },
};
