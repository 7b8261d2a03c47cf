/* image_presets.c - models by name and their recipes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/nearest.h>

#include "image_settings.h"
#include "reports/models.h"

/* ---- models ---- */

enum { SMALL_SIDE = 64 }; /* largest side for models of a first run */

/* Lists all image models, then their other names, such as "cvt-ls-13". */
const char *image_preset_known(int i)
{
    static char other[64];
    const tp_model_row *row;
    for (int k = 0; (row = tp_model_at(k)); k++)
        if (tp_model_of(row)->input == TP_IMAGES && i-- == 0) return row->name;
    for (int k = 0; (row = tp_model_at(k)); k++) {
        if (tp_model_of(row)->input != TP_IMAGES) continue;
        for (const char *at = row->also; at && *at; at += strcspn(at, " "), at += *at == ' ')
            if (!memchr(at, '*', strcspn(at, " ")) && i-- == 0) { /* shells expand "CvT*" */
                snprintf(other, sizeof other, "%.*s", (int)strcspn(at, " "), at);
                return other;
            }
    }
    return NULL;
}

const char *image_preset_name(int i)
{
    const tp_model_row *row;
    tp_model_cfg c;
    char why[256];
    for (int k = 0; (row = tp_model_at(k)); k++)
        if (tp_model_of(row)->input == TP_IMAGES &&
            tp_model_preset(&c, row->name, why, sizeof why) &&
            tp_model_get(&c).image[0] <= SMALL_SIDE && i-- == 0)
            return row->name;
    return NULL;
}

/* ViT and DeiT are one model; the name selects the paper's recipe. */
static image_recipe vit_recipe(const char *name, int64_t size)
{
    if (strncmp(name, "vit", 3) == 0) return size >= 384 ? RECIPE_VIT_384 : RECIPE_VIT;
    return size >= 384 ? RECIPE_DEIT_384 : RECIPE_DEIT;
}

/* The recipe of the model's paper. */
static image_recipe paper_recipe(const char *name, const tp_model_cfg *c)
{
    static const struct {
        const tp_model *model;
        image_recipe recipe;
    } papers[] = {
        { &tp_model_cvt, RECIPE_CVT },       { &tp_model_pvt, RECIPE_PVT },
        { &tp_model_resnet, RECIPE_RESNET }, { &tp_model_vit_lsla, RECIPE_LSLA },
        { &tp_model_swin, RECIPE_SWIN },     { &tp_model_cswin, RECIPE_CSWIN },
        { &tp_model_coat, RECIPE_COAT },     { &tp_model_mpvit, RECIPE_MPVIT },
    };
    if (tp_ends_in(name, "-ip102")) return RECIPE_LSLA; /* compared in that paper */
    const tp_vil_cfg *vil = c->model == &tp_model_vil ? (const tp_vil_cfg *)&c->at : NULL;
    if (vil && vil->kind == TP_VIL_LS) return RECIPE_VIL_LS;
    if (vil) return tp_model_get(c).image[0] >= 384 ? RECIPE_FINETUNE : RECIPE_VIL;
    if (c->model == &tp_model_vit) return vit_recipe(name, tp_model_get(c).image[0]);
    for (size_t i = 0; i < sizeof papers / sizeof *papers; i++)
        if (c->model == papers[i].model) return papers[i].recipe;
    return RECIPE_PLAIN;
}

/* The model's row name, which recipes match. */
const char *image_preset_row(const char *name)
{
    const tp_model_row *row = tp_model_find(name);
    return row ? row->name : name;
}

/* The paper's recipe, except for small models, which no paper has. */
static image_recipe own_recipe(const char *name, const tp_model_cfg *c)
{
    const image_recipe paper = paper_recipe(image_preset_row(name), c);
    const bool small = tp_model_find(name) && tp_model_get(c).image[0] <= SMALL_SIDE;
    return small && paper != RECIPE_PLAIN ? RECIPE_SMALL : paper;
}

static bool unknown(const char *name, char *why, size_t size)
{
    const tp_model_row *row;
    tp_nearest near = tp_nearest_to(name);
    for (int i = 0; (row = tp_model_at(i)); i++)
        if (tp_model_of(row)->input == TP_IMAGES) {
            tp_nearest_try(&near, row->name);
            tp_nearest_try(&near, row->also);
        }
    const char *small;
    int n = snprintf(why, size, "--preset: '%s' is not one of", name);
    for (int i = 0; (small = image_preset_name(i)) && n > 0 && (size_t)n < size; i++)
        n += snprintf(why + n, size - (size_t)n, "%s %s", i ? "," : "", small);
    if (n > 0 && (size_t)n < size)
        snprintf(why + n, size - (size_t)n, ", nor an image model listed by tp-models%s%s%s",
                 near.name[0] ? "; did you mean '" : "", near.name, near.name[0] ? "'?" : "");
    return false;
}

static bool find_model(tp_model_cfg *c, const char *name, char *why, size_t size)
{
    return (tp_model_preset(c, name, why, size) && c->model->input == TP_IMAGES) ||
           unknown(name, why, size);
}

bool image_preset(image_settings *s, const char *name, int which, char *why, size_t size)
{
    tp_model_cfg c;
    if (!find_model(&c, name, why, size)) return false;
    char *copy = strdup(name);
    if (!copy) {
        snprintf(why, size, "out of memory");
        return false;
    }
    free(s->preset);
    s->preset = copy;
    s->size = tp_model_get(&c).image[0];
    image_take_recipe(s, which < 0 ? own_recipe(name, &c) : (image_recipe)which);
    return true;
}

/* Replaces c by the same model for another size, if there is one: names with an image size, such as
 * "cvt_ls-13-224", imply ranks and windows that depend on it. */
static void take_sized(tp_model_cfg *c, const char *name, int64_t size)
{
    const tp_model_row *row = tp_model_find(name);
    tp_model_cfg sized;
    char own[128], end[32], why[256];
    const int n = snprintf(own, sizeof own, "%s", row ? row->name : name);
    const int m = snprintf(end, sizeof end, "-%lld", (long long)tp_model_get(c).image[0]);
    if (n <= m || n >= (int)sizeof own - m || strcmp(own + n - m, end) != 0) return;
    snprintf(own + n - m, sizeof own - (size_t)(n - m), "-%lld", (long long)size);
    if (tp_model_preset(&sized, own, why, sizeof why)) *c = sized;
}

/* Changes members that have no flag. */
static bool change(classifier_cfg *c, const char *set, char *why, size_t size)
{
    static const char *const set_by[TP_COMMON_KINDS] = {
        [TP_COMMON_IMAGE] = "--size",
        [TP_COMMON_OUTPUTS] = "the classes of the images",
        [TP_COMMON_DROPOUT] = "--dropout of imagenet train",
        [TP_COMMON_DROP_PATH] = "--drop-path of imagenet train",
    };
    return model_set(&c->of, set, set_by, why, size);
}

bool image_model(const image_settings *s, int64_t classes, classifier_cfg *c, char *why,
                 size_t size)
{
    *c = (classifier_cfg){ 0 };
    if (!find_model(&c->of, s->preset, why, size)) return false;
    if (tp_model_get(&c->of).image[0] != s->size) take_sized(&c->of, s->preset, s->size);
    classifier_fit(c, s->size, classes);
    classifier_train_as(c, s->dropout, s->drop_path, (tp_recompute)s->train.recompute);
    return s->set ? change(c, s->set, why, size) : classifier_check(c, why, size);
}

bool image_start(image_settings *s, const char *name, int which, char *why, size_t size)
{
    *s = (image_settings){
        .train = tp_train_defaults("runs/imagenet"),
        .shapes = 2000,
        .redraw = 1,
        .redraw_growth = 5,
        .workers = 2,
        .layer_decay = 1,
        .distill_alpha = 0.5,
        .distill_tau = 1,
    };
    s->train.seed = 0;
    return image_preset(s, name, which, why, size);
}
