/* image_presets.c - models by name, and recipes: those of the papers' code, and two for small sets
 * and short runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/nearest.h>

#include "image_settings.h"

/* ---- recipes ---- */

typedef struct recipe {
    image_recipe name;
    const char *presets; /* prefix of the presets it is for */
    const char *augment; /* name for tp_augment_recipe      */
    int64_t epochs, batch;
    double lr, warmup, warmup_factor, lr_end, weight_decay, drop_path, clip;
    image_schedule schedule;
    int optimizer; /* TP_BY_... */
    decay_groups decay;
    int64_t repeats;
} recipe;

/* Columns that the rows of a paper share. */
#define PLAIN    RATE_COSINE, TP_BY_ADAMW, DECAY_MATRICES
#define BY_VIL   RATE_VIL, TP_BY_ADAMW_VIL, DECAY_VIL
#define BY_CVT   RATE_CVT, TP_BY_ADAMW, DECAY_MATRICES
#define BY_LSLA  RATE_LSLA, TP_BY_ADAMW, DECAY_LSLA
#define FINETUNE RATE_VIL, TP_BY_QHM, DECAY_VIL
#define BY_DEIT  RATE_CVT, TP_BY_ADAMW, DECAY_DEIT
#define STEPS    RATE_RESNET, TP_BY_SGD, DECAY_ALL

/* The first row that fits recipe and preset applies, so exceptions for single models come before the
 * general rows. */
/* clang-format off */
static const recipe recipes[] = {
    { RECIPE_PLAIN, "", "finetune", 12, 64, 2e-3, 0.5, 0.01, 1e-5, 0.05, 0, 1, PLAIN, 1 },
    { RECIPE_SMALL, "", "small", 30, 32, 5e-4, 1, 0.01, 1e-5, 0.05, 0, 1, PLAIN, 1 },
    { RECIPE_VIL, "vil-medium-", "vil", 300, 1024, 8e-4, 5, 0.002, 1e-6, 0.1, 0.1, 0, BY_VIL, 3 },
    { RECIPE_VIL, "vil-base-", "vil", 150, 1024, 8e-4, 5, 0.002, 1e-6, 0.1, 0.1, 0, BY_VIL, 3 },
    { RECIPE_VIL, "", "vil", 300, 1024, 1e-3, 5, 0.002, 1e-6, 0.1, 0.1, 0, BY_VIL, 1 },
    { RECIPE_VIL_LS, "vil-medium-ls-384", "vil-ls", 300, 1024, 8e-4, 5, 0.002, 1e-6, 0.1, 0.2, 0, BY_VIL, 1 },
    { RECIPE_VIL_LS, "vil-base-", "vil-ls", 300, 1024, 8e-4, 5, 0.002, 1e-6, 0.1, 0.5, 0, BY_VIL, 1 },
    { RECIPE_VIL_LS, "", "vil-ls", 300, 1024, 8e-4, 5, 0.002, 1e-6, 0.1, 0.3, 0, BY_VIL, 1 },
    { RECIPE_VIL_21K, "", "vil", 90, 1024, 5e-4, 5, 0.002, 1e-6, 0.1, 0.1, 0, BY_VIL, 1 },
    { RECIPE_CVT, "cvt-13", "cvt", 300, 2048, 2e-3, 5, 0.002, 1e-5, 0.05, 0.1, 0, BY_CVT, 1 },
    { RECIPE_CVT, "cvt-21", "cvt", 300, 2048, 2e-3, 5, 0.002, 1e-5, 0.1, 0.1, 0, BY_CVT, 1 },
    { RECIPE_CVT, "cvt-w24", "cvt", 300, 2048, 2e-3, 5, 0.002, 1e-5, 0.1, 0.1, 0, BY_CVT, 1 },
    { RECIPE_CVT, "", "cvt", 300, 1024, 5e-4, 5, 0.002, 1e-5, 0.05, 0.1, 0, BY_CVT, 1 },
    { RECIPE_LSLA, "", "lsla", 300, 256, 2.5e-4, 20, 0.001, 2.5e-6, 0.05, 0.2, 5, BY_LSLA, 1 },
    { RECIPE_DEIT, "", "vil", 300, 1024, 1e-3, 5, 0.001, 1e-5, 0.05, 0.1, 0, BY_DEIT, 3 },
    { RECIPE_PVT, "pvt-medium", "vil", 300, 1024, 1e-3, 5, 0.001, 1e-5, 0.05, 0.3, 1, BY_CVT, 3 },
    { RECIPE_PVT, "pvt-large", "vil", 300, 1024, 1e-3, 5, 0.001, 1e-5, 0.05, 0.3, 1, BY_CVT, 3 },
    { RECIPE_PVT, "pvt2-b3", "vil", 300, 1024, 1e-3, 5, 0.001, 1e-5, 0.05, 0.3, 1, BY_CVT, 3 },
    { RECIPE_PVT, "pvt2-b4", "vil", 300, 1024, 1e-3, 5, 0.001, 1e-5, 0.05, 0.3, 1, BY_CVT, 3 },
    { RECIPE_PVT, "pvt2-b5", "vil", 300, 1024, 1e-3, 5, 0.001, 1e-5, 0.05, 0.3, 1, BY_CVT, 3 },
    { RECIPE_PVT, "", "vil", 300, 1024, 1e-3, 5, 0.001, 1e-5, 0.05, 0.1, 0, BY_CVT, 3 },
    { RECIPE_RESNET, "", "resnet", 90, 256, 0.1, 0, 0, 0, 1e-4, 0, 0, STEPS, 1 },
    { RECIPE_FINETUNE, "", "finetune", 10, 512, 3e-2, 0.25, 0.002, 1e-6, 0, 0.1, 0, FINETUNE, 1 },
};
/* clang-format on */

static const recipe *recipe_of(image_recipe name, const char *preset)
{
    const recipe *r = recipes;
    while (r->name != name || strncmp(preset, r->presets, strlen(r->presets)) != 0) r++;
    return r;
}

static void take_augmentation(image_settings *s, const char *name)
{
    tp_augment a;
    tp_augment_recipe(&a, name, s->size);
    s->crop = (int)a.crop;
    s->crop_ratio = a.crop_ratio;
    s->eval_crop_ratio = s->recipe == RECIPE_FINETUNE ? a.crop_ratio : 0.875;
    s->area = a.area[0];
    s->flip = a.flip;
    s->ops = a.ops;
    s->op_probability = a.op_probability;
    s->magnitude = a.magnitude;
    s->spread = a.spread;
    s->jitter = a.brightness;
    s->erase = a.erase;
    s->mix = a.mix.probability;
    s->mixup = a.mix.mixup;
    s->cutmix = a.mix.cutmix;
    s->cut = a.mix.cut;
    s->smoothing = a.mix.smoothing;
}

static void take_recipe(image_settings *s, image_recipe name)
{
    const recipe *r = recipe_of(name, s->preset);
    s->recipe = (int)name;
    s->train.epochs = r->epochs;
    s->train.batch = r->batch;
    s->train.lr = 0;
    s->train.warmup = r->warmup;
    s->warmup_factor = r->warmup_factor;
    s->train.lr_end = r->lr_end;
    s->train.weight_decay = r->weight_decay;
    s->drop_path = r->drop_path;
    s->train.clip = r->clip;
    s->schedule = (int)r->schedule;
    s->train.optimizer = r->optimizer;
    s->decay = (int)r->decay;
    s->repeats = r->repeats;
    take_augmentation(s, r->augment);
}

double image_lr(const image_settings *s)
{
    const recipe *r = recipe_of((image_recipe)s->recipe, s->preset);
    return r->lr * (double)(s->train.batch * s->train.accumulation) / (double)r->batch;
}

/* ---- models ---- */

/* Presets that only this program names. Any other image model of the table is a preset too. */
static const struct preset {
    const char *name;
    image_recipe recipe;
} presets[] = {
    { "tiny", RECIPE_PLAIN },
    { "convnet", RECIPE_PLAIN },
    { "cvt-small", RECIPE_SMALL },
    { "cvt-ls-small", RECIPE_SMALL },
    { "vil-small", RECIPE_SMALL },
    { "vil-ls-small", RECIPE_SMALL },
    { "vil-full-small", RECIPE_SMALL },
    { "lsla-small", RECIPE_SMALL },
    { "lsla-qkv-small", RECIPE_SMALL },
    { "lsla-inner-small", RECIPE_SMALL },
    { "lsla-full-small", RECIPE_SMALL },
    { "deit-mini", RECIPE_SMALL },
    { "deit-mini-distilled", RECIPE_SMALL },
    { "resnet-mini", RECIPE_SMALL },
    { "pvt-mini", RECIPE_SMALL },
    { "pvt2-mini", RECIPE_SMALL },
    { "swin-mini", RECIPE_SMALL },
    { "cswin-mini", RECIPE_SMALL },
    { "coat-mini", RECIPE_SMALL },
    { "mpvit-mini", RECIPE_SMALL },
    { "cvt-13", RECIPE_CVT },
    { "cvt-21", RECIPE_CVT },
    { "cvt-w24", RECIPE_CVT },
    { "cvt-star-13", RECIPE_CVT },
    { "cvt-star-21", RECIPE_CVT },
    { "cvt-ls-13", RECIPE_CVT },
    { "cvt-ls-17", RECIPE_CVT },
    { "cvt-ls-21", RECIPE_CVT },
    { "cvt-ls-21s", RECIPE_CVT },
    { "vit-lsla", RECIPE_LSLA },
};
enum { PRESETS = sizeof presets / sizeof presets[0] };

static const struct preset *own_preset(const char *name)
{
    for (int i = 0; i < PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0) return &presets[i];
    return NULL;
}

const char *image_preset_known(int i)
{
    const tp_model_row *row;
    if (i < PRESETS) return presets[i].name;
    i -= PRESETS;
    for (int k = 0; (row = tp_model_at(k)); k++)
        if (row->model->input == TP_IMAGES && !own_preset(row->name) && i-- == 0) return row->name;
    return NULL;
}

const char *image_preset_name(int i)
{
    return i < PRESETS ? presets[i].name : NULL;
}

/* The recipe of the model's paper. */
static image_recipe paper_recipe(const tp_model_cfg *c)
{
    const tp_vil_cfg *vil = c->model == &tp_model_vil ? (const tp_vil_cfg *)&c->at : NULL;
    if (vil) return vil->kind == TP_VIL_LS ? RECIPE_VIL_LS : RECIPE_VIL;
    if (c->model == &tp_model_cvt) return RECIPE_CVT;
    if (c->model == &tp_model_vit) return RECIPE_DEIT;
    if (c->model == &tp_model_pvt) return RECIPE_PVT;
    if (c->model == &tp_model_resnet) return RECIPE_RESNET;
    return c->model == &tp_model_vit_lsla ? RECIPE_LSLA : RECIPE_PLAIN;
}

static image_recipe own_recipe(const char *name, const tp_model_cfg *c)
{
    const struct preset *own = own_preset(name);
    return own ? own->recipe : paper_recipe(c);
}

static bool unknown(const char *name, char *why, size_t size)
{
    const tp_model_row *row;
    tp_nearest near = tp_nearest_to(name);
    for (int i = 0; (row = tp_model_at(i)); i++)
        if (row->model->input == TP_IMAGES) {
            tp_nearest_try(&near, row->name);
            tp_nearest_try(&near, row->also);
        }
    int n = snprintf(why, size, "--preset: '%s' is not one of", name);
    for (int i = 0; i < PRESETS && n > 0 && (size_t)n < size; i++)
        n += snprintf(why + n, size - (size_t)n, "%s %s", i ? "," : "", presets[i].name);
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
    take_recipe(s, which < 0 ? own_recipe(name, &c) : (image_recipe)which);
    return true;
}

/* Models named by their image size, such as "cvt_ls-13-224", have ranks and windows that depend on
 * it. Replaces c by the model of that name for another size, if there is one. */
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

bool image_model(const image_settings *s, int64_t classes, classifier_cfg *c, char *why,
                 size_t size)
{
    *c = (classifier_cfg){ 0 };
    if (!find_model(&c->of, s->preset, why, size)) return false;
    if (tp_model_get(&c->of).image[0] != s->size) take_sized(&c->of, s->preset, s->size);
    classifier_fit(c, s->size, classes);
    classifier_train_as(c, s->drop_path, (tp_recompute)s->train.recompute);
    return classifier_check(c, why, size);
}

bool image_start(image_settings *s, const char *name, int which, char *why, size_t size)
{
    *s = (image_settings){
        .train = tp_train_defaults("runs/imagenet"),
        .shapes = 2000,
        .redraw = 1,
        .redraw_growth = 5,
        .workers = 2,
        .distill_alpha = 0.5,
        .distill_tau = 1,
    };
    s->train.seed = 0;
    return image_preset(s, name, which, why, size);
}
