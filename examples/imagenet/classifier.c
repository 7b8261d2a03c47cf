/* classifier.c - one switch for each question that the program asks a model. */
#include "classifier.h"

#include <stdio.h>
#include <string.h>

static const char *const families[] = { "convnet" };
enum { FAMILIES = sizeof families / sizeof families[0] };

const char *classifier_family(const classifier_cfg *c)
{
    return families[c->kind];
}

void classifier_fit(classifier_cfg *c, int64_t size, int64_t classes)
{
    c->size = size;
    c->classes = classes;
    c->convnet.classes = classes;
}

bool classifier_check(const classifier_cfg *c, char *why, size_t size)
{
    switch (c->kind) {
    case FAMILY_CONVNET: break;
    }
    if (c->convnet.width > 0 && c->convnet.width <= 4096) return true;
    snprintf(why, size, "a width of %lld", (long long)c->convnet.width);
    return false;
}

void classifier_write(const classifier_cfg *c, tp_writer *W)
{
    tp_writer_meta(W, "classifier", families[c->kind]);
    tp_writer_meta_int(W, "picture_size", c->size);
    tp_writer_meta_int(W, "classes", c->classes);
    switch (c->kind) {
    case FAMILY_CONVNET: tp_writer_meta_int(W, "convnet_width", c->convnet.width); break;
    }
}

static bool read_kind(classifier_cfg *c, tp_file *F, char *why, size_t size)
{
    const char *name = tp_file_meta(F, "classifier");
    for (int i = 0; name && i < FAMILIES; i++)
        if (strcmp(name, families[i]) == 0) {
            c->kind = (family)i;
            return true;
        }
    if (tp_file_ok(F))
        snprintf(why, size, "%s is no checkpoint of imagenet: %s%s", tp_file_path(F),
                 name ? "it holds a model called " : "it lacks 'classifier'", name ? name : "");
    else
        snprintf(why, size, "%s", tp_file_why(F));
    return false;
}

bool classifier_read(classifier_cfg *c, tp_file *F, char *why, size_t size)
{
    int64_t side = 0, classes = 0;
    *c = (classifier_cfg){ 0 };
    if (!read_kind(c, F, why, size)) return false;
    bool done = tp_file_int(F, "picture_size", &side) && tp_file_int(F, "classes", &classes);
    switch (c->kind) {
    case FAMILY_CONVNET: done = done && tp_file_int(F, "convnet_width", &c->convnet.width); break;
    }
    if (!done) {
        snprintf(why, size, "%s", tp_file_why(F));
        return false;
    }
    if (side < 1 || side > 1 << 14 || classes < 1 || classes > 1 << 20) {
        snprintf(why, size, "%s: pictures of %lld pixels in %lld classes", tp_file_path(F),
                 (long long)side, (long long)classes);
        return false;
    }
    classifier_fit(c, side, classes);
    return classifier_check(c, why, size);
}

void classifier_init(tp_params *P, classifier *m, const classifier_cfg *c)
{
    m->cfg = *c;
    switch (c->kind) {
    case FAMILY_CONVNET: convnet_init(P, &m->convnet, "", c->convnet); break;
    }
}

tp_tensor classifier_forward(tp_tape *T, const classifier *m, tp_tensor images)
{
    switch (m->cfg.kind) {
    case FAMILY_CONVNET: break;
    }
    return convnet_forward(T, &m->convnet, images);
}

static const char *skip_training_state(const char *name, void *env)
{
    (void)env;
    return strncmp(name, "optim.", 6) == 0 || strncmp(name, "ema.", 4) == 0 ? NULL : name;
}

bool classifier_weights(tp_params *P, tp_file *F)
{
    return tp_params_read(P, F, "",
                          &(tp_load_opts){ .convert = true, .rename = skip_training_state });
}

const char *classifier_resizing(const classifier_cfg *c)
{
    switch (c->kind) {
    case FAMILY_CONVNET: break;
    }
    return NULL;
}

bool classifier_load_resized(tp_params *P, const classifier_cfg *c, tp_file *F)
{
    switch (c->kind) {
    case FAMILY_CONVNET: break;
    }
    return classifier_weights(P, F);
}
