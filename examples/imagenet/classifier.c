/* classifier.c - checks, declares and runs the program's model. */
#include "classifier.h"

#include <stdio.h>
#include <stdlib.h>

const char *classifier_family(const classifier_cfg *c)
{
    return c->of.model->name;
}

const void *classifier_cfg_as(const classifier_cfg *c, const tp_model *model)
{
    return c->of.model == model ? &c->of.at : NULL;
}

const void *classifier_as(const classifier *m, const tp_model *model)
{
    return m->cfg.of.model == model ? tp_net_module(m->net) : NULL;
}

void classifier_fit(classifier_cfg *c, int64_t size, int64_t classes)
{
    tp_common_cfg o = tp_model_get(&c->of);
    c->size = o.image[0] = o.image[1] = size;
    c->classes = o.outputs = classes;
    tp_model_set(&c->of, &o);
}

void classifier_train_as(classifier_cfg *c, double dropout, double drop_path,
                         tp_recompute recompute)
{
    tp_common_cfg o = tp_model_get(&c->of);
    o.dropout = dropout;
    o.drop_path = drop_path;
    o.recompute = recompute;
    tp_model_set(&c->of, &o);
}

bool classifier_check(const classifier_cfg *c, char *why, size_t size)
{
    return tp_model_check(&c->of, why, size);
}

void classifier_write(const classifier_cfg *c, tp_writer *W)
{
    tp_model_write(&c->of, W);
}

bool classifier_read(classifier_cfg *c, tp_file *F, char *why, size_t size)
{
    *c = (classifier_cfg){ 0 };
    if (!tp_model_read(&c->of, F, why, size)) return false;
    const tp_common_cfg o = tp_model_get(&c->of);
    if (c->of.model->input != TP_IMAGES)
        snprintf(why, size, "%s holds a %s, not an image classifier", tp_file_path(F),
                 c->of.model->name);
    else if (o.image[0] != o.image[1] || o.image[0] > 1 << 14 || o.outputs > 1 << 20)
        snprintf(
            why, size,
            "%s: images of %lld x %lld pixels in %lld classes: imagenet takes square images of "
            "at most %d pixels a side and at most %d classes",
            tp_file_path(F), (long long)o.image[0], (long long)o.image[1], (long long)o.outputs,
            1 << 14, 1 << 20);
    else {
        c->size = o.image[0];
        c->classes = o.outputs;
        return true;
    }
    return false;
}

void classifier_init(tp_params *P, classifier *m, const classifier_cfg *c)
{
    m->cfg = *c;
    m->net = tp_net_new(P, "", &c->of);
}

void classifier_free(classifier *m)
{
    if (m) tp_net_free(m->net);
    free(m);
}

tp_tensor classifier_input(tp_tape *T, const classifier *m, const float *x, int64_t n)
{
    const int64_t side = m->cfg.size;
    const tp_tensor images = tp_from(T, TP_F32, TP_SHAPE(n, side, side, 3), x);
    return tp_compute_dtype(T) == TP_F64 ? tp_cast(T, images, TP_F64) : images;
}

tp_tensor classifier_forward(tp_tape *T, const classifier *m, tp_tensor images)
{
    return tp_net_forward(T, m->net, NULL, images);
}

double classifier_macs(const classifier_cfg *c)
{
    return tp_model_cost(&c->of, 0, 0).macs;
}

void classifier_random_shift(classifier *m, bool on)
{
    const tp_model *model = m->cfg.of.model;
    if (model->set_shift) model->set_shift(tp_net_module(m->net), on ? TP_VIL_SHIFT_RANDOM : 0);
}

bool classifier_redraw(tp_params *P, const classifier *m, uint64_t seed, uint64_t draw)
{
    const tp_model *model = m->cfg.of.model;
    return model->redraw ? model->redraw(P, tp_net_module(m->net), seed, draw) : tp_params_ok(P);
}

/* ---- weights ---- */

bool classifier_same(const classifier_cfg *a, const classifier_cfg *b)
{
    return tp_model_same(&a->of, &b->of);
}

bool classifier_adopt(classifier_cfg *c, tp_file *F)
{
    const bool done = tp_model_adopt(&c->of, F, NULL, 0);
    classifier_fit(c, c->size, tp_model_get(&c->of).outputs);
    return done;
}

bool classifier_weights(tp_params *P, const classifier *m, tp_file *F)
{
    return tp_net_load(P, m->net, F, false);
}

const char *classifier_resizing(const classifier_cfg *c)
{
    return c->of.model->resizes;
}

bool classifier_resizes_all(const classifier_cfg *c)
{
    const tp_model *model = c->of.model;
    return !model->all_resized || model->all_resized(&c->of.at);
}

bool classifier_load_resized(tp_params *P, const classifier *m, tp_file *F)
{
    return tp_net_load(P, m->net, F, true);
}
