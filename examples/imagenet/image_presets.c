/* image_presets.c - models by name, and recipes: how the papers' codes train, and a plain one for
 * small sets and short runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_settings.h"

/* ---- recipes ---- */

typedef struct recipe {
    image_recipe name;
    const char *presets; /* those whose names begin so */
    const char *augment; /* of tp_augment_recipe       */
    int64_t epochs, batch;
    double lr, warmup, warmup_factor, lr_end, weight_decay, drop_path, clip;
    image_schedule schedule;
    int optimizer; /* TP_BY_... */
    decay_groups decay;
    int64_t repeats;
} recipe;

/* What rows of a paper have in common. */
#define PLAIN    RATE_COSINE, TP_BY_ADAMW, DECAY_MATRICES
#define BY_VIL   RATE_VIL, TP_BY_ADAMW_VIL, DECAY_VIL
#define BY_CVT   RATE_CVT, TP_BY_ADAMW, DECAY_MATRICES
#define BY_LSLA  RATE_LSLA, TP_BY_ADAMW, DECAY_LSLA
#define FINETUNE RATE_VIL, TP_BY_QHM, DECAY_VIL

/* The first row of a recipe that fits the preset: where the papers train some models otherwise,
 * these come before the others. */
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
    s->schedule = r->schedule;
    s->train.optimizer = r->optimizer;
    s->decay = r->decay;
    s->repeats = r->repeats;
    take_augmentation(s, r->augment);
}

double image_lr(const image_settings *s)
{
    const recipe *r = recipe_of((image_recipe)s->recipe, s->preset);
    return r->lr * (double)(s->train.batch * s->train.accumulation) / (double)r->batch;
}

/* ---- models ---- */

static void convnet_of(classifier_cfg *c, int width)
{
    c->kind = FAMILY_CONVNET;
    c->convnet.width = width;
}

static void paper_cvt(classifier_cfg *c, int name)
{
    c->kind = FAMILY_CVT;
    c->cvt = tp_cvt_preset((tp_cvt_name)name, c->size);
}

/* Three stages of 48 to 192 channels, with windows and ranks for maps of 16, 8 and 4 (64 x 64). */
static void small_cvt(classifier_cfg *c, int long_short)
{
    c->kind = FAMILY_CVT;
    c->cvt = (tp_cvt_cfg){ .image = { c->size, c->size },
                           .kv_stride = 1,
                           .dim = { 48, 96, 192 },
                           .heads = { 1, 2, 4 },
                           .blocks = { 1, 2, 4 },
                           .long_short = long_short,
                           .conv_bias = true,
                           .class_std = 0.02 };
    for (int i = 0; i < TP_CVT_STAGES && long_short; i++) {
        c->cvt.rank[i] = 16 >> i;
        c->cvt.window[i] = i > 0 ? 2 : 4;
    }
}

static void paper_lsla(classifier_cfg *c, int unused)
{
    (void)unused;
    c->kind = FAMILY_LSLA;
    c->lsla = tp_vit_lsla_paper(1);
}

enum { LSLA, LSLA_QKV, LSLA_INNER, LSLA_FULL };

/* full: one window as large as the map, softmax of queries and keys with a relative bias. */
static void small_lsla(classifier_cfg *c, int which)
{
    c->kind = FAMILY_LSLA;
    c->lsla = tp_vit_lsla_tiny(1);
    if (which == LSLA_QKV) c->lsla.attn.variant = TP_LSLA_QKV;
    if (which == LSLA_INNER) c->lsla.attn.no_outer = true;
    if (which != LSLA_FULL) return;
    c->lsla.window = c->size / 4;
    c->lsla.attn = (tp_lsla_opts){ .variant = TP_LSLA_QKV, .fixed_scale = true, .no_outer = true };
}

/* Three scales of 48 to 192 channels: maps of 16, 8 and 4 (64 x 64). */
static void small_vil(classifier_cfg *c, int kind)
{
    char why[256];
    c->kind = FAMILY_VIL;
    c->vil.kind = (tp_vil_kind)kind;
    tp_vil_parse(&c->vil,
                 "l1,h1,d48,n1,s1,g1,p4,f4,a0,r8_l2,h2,d96,n2,s1,g1,p2,f2,a0,r8_"
                 "l3,h4,d192,n4,s0,g0,p2,f2,a0",
                 why, sizeof why);
}

typedef struct preset {
    const char *name;
    int64_t size;
    image_recipe recipe;
    void (*model)(classifier_cfg *c, int which);
    int which;
} preset;

static const preset presets[] = {
    { "tiny", 32, RECIPE_PLAIN, convnet_of, 16 },
    { "convnet", 64, RECIPE_PLAIN, convnet_of, 32 },
    { "cvt-small", 64, RECIPE_SMALL, small_cvt, false },
    { "cvt-ls-small", 64, RECIPE_SMALL, small_cvt, true },
    { "vil-small", 64, RECIPE_SMALL, small_vil, TP_VIL_WINDOW },
    { "vil-ls-small", 64, RECIPE_SMALL, small_vil, TP_VIL_LS },
    { "vil-full-small", 64, RECIPE_SMALL, small_vil, TP_VIL_FULL },
    { "lsla-small", 64, RECIPE_SMALL, small_lsla, LSLA },
    { "lsla-qkv-small", 64, RECIPE_SMALL, small_lsla, LSLA_QKV },
    { "lsla-inner-small", 64, RECIPE_SMALL, small_lsla, LSLA_INNER },
    { "lsla-full-small", 64, RECIPE_SMALL, small_lsla, LSLA_FULL },
    { "cvt-13", 224, RECIPE_CVT, paper_cvt, TP_CVT_13 },
    { "cvt-21", 224, RECIPE_CVT, paper_cvt, TP_CVT_21 },
    { "cvt-w24", 224, RECIPE_CVT, paper_cvt, TP_CVT_W24 },
    { "cvt-star-13", 224, RECIPE_CVT, paper_cvt, TP_CVT_STAR_13 },
    { "cvt-star-21", 224, RECIPE_CVT, paper_cvt, TP_CVT_STAR_21 },
    { "cvt-ls-13", 224, RECIPE_CVT, paper_cvt, TP_CVT_LS_13 },
    { "cvt-ls-17", 224, RECIPE_CVT, paper_cvt, TP_CVT_LS_17 },
    { "cvt-ls-21", 224, RECIPE_CVT, paper_cvt, TP_CVT_LS_21 },
    { "cvt-ls-21s", 224, RECIPE_CVT, paper_cvt, TP_CVT_LS_21S },
    { "vit-lsla", 224, RECIPE_LSLA, paper_lsla, 0 },
};
enum { PRESETS = sizeof presets / sizeof presets[0] };

const char *image_preset_name(int i)
{
    return i < PRESETS ? presets[i].name : NULL;
}

static const preset *find(const char *name)
{
    for (int i = 0; i < PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0) return &presets[i];
    return NULL;
}

static bool unknown(const char *name, char *why, size_t size)
{
    int n = snprintf(why, size, "--preset: '%s' is none of", name);
    for (int i = 0; i < PRESETS && n > 0 && (size_t)n < size; i++)
        n += snprintf(why + n, size - (size_t)n, "%s %s", i ? "," : "", presets[i].name);
    return false;
}

/* A published model of Vision Longformer, by the name that the library has for it. */
static bool published_vil(const char *name, tp_vil_cfg *vil)
{
    char why[256];
    return strncmp(name, "vil-", 4) == 0 && tp_vil_preset(vil, name, why, sizeof why);
}

bool image_preset(image_settings *s, const char *name, int which, char *why, size_t size)
{
    const preset *p = find(name);
    tp_vil_cfg vil;
    if (!p && !published_vil(name, &vil)) return unknown(name, why, size);
    char *copy = strdup(name);
    if (!copy) {
        snprintf(why, size, "out of memory");
        return false;
    }
    free(s->preset);
    s->preset = copy;
    s->size = p ? p->size : vil.image[0];
    const image_recipe own = p ? p->recipe : vil.kind == TP_VIL_LS ? RECIPE_VIL_LS : RECIPE_VIL;
    take_recipe(s, which < 0 ? own : (image_recipe)which);
    return true;
}

bool image_model(const image_settings *s, int64_t classes, classifier_cfg *c, char *why,
                 size_t size)
{
    const preset *p = find(s->preset);
    *c = (classifier_cfg){ .size = s->size };
    if (p) {
        p->model(c, p->which);
    } else {
        c->kind = FAMILY_VIL;
        if (!published_vil(s->preset, &c->vil)) return unknown(s->preset, why, size);
    }
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
    };
    s->train.seed = 0;
    return image_preset(s, name, which, why, size);
}
