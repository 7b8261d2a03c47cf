/* image_recipes.c - the recipes of the papers' code, and two for small sets and short runs. */
#include <fnmatch.h>

#include "image_settings.h"

/* Values that only a few recipes set. */
typedef struct recipe_extras {
    double ema, dropout;
    int64_t warmup_steps, steps; /* updates instead of epochs; 0: use epochs */
    bool ema_aside;              /* the paper reports weights, not their average */
    bool end_scales;             /* lr_end scales with the batch, as lr does */
} recipe_extras;

typedef struct recipe {
    image_recipe name;
    const char *presets; /* pattern of its presets */
    const char *augment; /* name for tp_augment_recipe */
    int64_t epochs, batch;
    double lr, warmup, warmup_factor, lr_end, weight_decay, drop_path, clip;
    image_schedule schedule;
    const char *optimizer;
    decay_groups decay;
    int64_t repeats;
    recipe_extras more;
} recipe;

/* Columns shared by rows of a paper. LR_: warmup, warmup_factor, lr_end, weight_decay. */
/* clang-format off */
#define LR_VIL       5, 0.002, 1e-6, 0.1
#define LR_PVT       5, 0.001, 1e-5, 0.05
#define LR_SWIN      20, 0.001, 1e-5, 0.05
#define LR_CSWIN     20, 0.0005, 1e-5, 0.05
#define LR_LSLA(end) 20, 0.001, end, 0.05

#define PLAIN    RATE_COSINE, "adamw", DECAY_MATRICES
#define BY_VIL   RATE_VIL, "adamw-vil", DECAY_VIL
#define BY_CVT   RATE_CVT, "adamw", DECAY_MATRICES
#define BY_LSLA  RATE_LSLA, "adamw", DECAY_LSLA, 1, { .end_scales = true }
#define FINETUNE RATE_VIL, "qhm", DECAY_VIL, ONCE
#define BY_DEIT  RATE_CVT, "adamw", DECAY_DEIT
#define BY_VIT   RATE_COSINE, "adamw", DECAY_ALL
#define BY_SGD   RATE_COSINE, "sgd", DECAY_ALL
#define STEPS    RATE_RESNET, "sgd", DECAY_ALL

#define ONCE          1, { .ema = 0 }
#define THRICE        3, { .ema = 0 }
#define AVERAGED      1, { .ema = 0.99984 }
#define ASIDE         3, { .ema = 0.99996, .ema_aside = true }
#define ASIDE_384     3, { .ema = 0.99996, .ema_aside = true, .end_scales = true }
#define VIT_STEPS     1, { .dropout = 0.1, .warmup_steps = 10000 }
#define VIT_384_STEPS 1, { .warmup_steps = 500, .steps = 20000 }
/* clang-format on */

/* The first row that fits recipe and preset applies, so exceptions for single models precede
 * general rows. */
static const recipe recipes[] = {
    { RECIPE_PLAIN, "*", "finetune", 12, 64, 2e-3, 0.5, 0.01, 1e-5, 0.05, 0, 1, PLAIN, ONCE },
    { RECIPE_SMALL, "*", "small", 30, 32, 5e-4, 1, 0.01, 1e-5, 0.05, 0, 1, PLAIN, ONCE },
    { RECIPE_VIL, "vil-medium-*", "vil", 300, 1024, 8e-4, LR_VIL, 0.1, 0, BY_VIL, THRICE },
    { RECIPE_VIL, "vil-base-*", "vil", 150, 1024, 8e-4, LR_VIL, 0.1, 0, BY_VIL, THRICE },
    { RECIPE_VIL, "*", "vil", 300, 1024, 1e-3, LR_VIL, 0.1, 0, BY_VIL, ONCE },
    { RECIPE_VIL_LS, "vil-medium-ls-384*", "vil-ls", 300, 1024, 8e-4, LR_VIL, 0.2, 0, BY_VIL,
      ONCE },
    { RECIPE_VIL_LS, "vil-base-*", "vil-ls", 300, 1024, 8e-4, LR_VIL, 0.5, 0, BY_VIL, ONCE },
    { RECIPE_VIL_LS, "*", "vil-ls", 300, 1024, 8e-4, LR_VIL, 0.3, 0, BY_VIL, ONCE },
    { RECIPE_VIL_21K, "*", "vil", 90, 1024, 5e-4, LR_VIL, 0.1, 0, BY_VIL, ONCE },
    { RECIPE_CVT, "cvt-*-384", "cvt", 300, 2048, 2e-3, 5, 0.0005, 1e-5, 0.1, 0.1, 0, BY_CVT, ONCE },
    { RECIPE_CVT, "cvt-13*", "cvt", 300, 2048, 2e-3, 5, 0.0005, 1e-5, 0.05, 0.1, 0, BY_CVT, ONCE },
    { RECIPE_CVT, "cvt-21*", "cvt", 300, 2048, 2e-3, 5, 0.0005, 1e-5, 0.1, 0.1, 0, BY_CVT, ONCE },
    { RECIPE_CVT, "cvt-w24*", "cvt", 300, 2048, 2e-3, 5, 0.0005, 1e-5, 0.1, 0.1, 0, BY_CVT, ONCE },
    { RECIPE_CVT, "*", "cvt", 300, 1024, 5e-4, 5, 0.002, 1e-5, 0.05, 0.1, 0, BY_CVT, ONCE },
    { RECIPE_LSLA, "coat*", "lsla", 300, 256, 2.5e-4, LR_LSLA(2.5e-6), 0, 5, BY_LSLA },
    { RECIPE_LSLA, "mpvit-s*", "lsla", 300, 192, 1.875e-4, LR_LSLA(1.875e-6), 0.05, 5, BY_LSLA },
    { RECIPE_LSLA, "*", "lsla", 300, 256, 2.5e-4, LR_LSLA(2.5e-6), 0.2, 5, BY_LSLA },
    { RECIPE_DEIT, "*", "vil", 300, 1024, 1e-3, LR_PVT, 0.1, 0, BY_DEIT, ASIDE },
    { RECIPE_DEIT_384, "*", "vil", 30, 512, 5e-6, 5, 0.2, 5e-6, 1e-8, 0.1, 0, BY_DEIT, ASIDE_384 },
    { RECIPE_VIT, "*", "vit", 300, 4096, 3e-3, 0, 0, 0, 0.3, 0, 1, BY_VIT, VIT_STEPS },
    { RECIPE_VIT_384, "*", "vit", 8, 512, 3e-2, 0, 0, 0, 0, 0, 1, BY_SGD, VIT_384_STEPS },
    { RECIPE_PVT, "pvt-medium", "vil", 300, 1024, 1e-3, LR_PVT, 0.3, 1, BY_CVT, THRICE },
    { RECIPE_PVT, "pvt-large", "vil", 300, 1024, 1e-3, LR_PVT, 0.3, 1, BY_CVT, THRICE },
    { RECIPE_PVT, "pvt2-b[345]", "vil", 300, 1024, 1e-3, LR_PVT, 0.3, 1, BY_CVT, THRICE },
    { RECIPE_PVT, "*", "vil", 300, 1024, 1e-3, LR_PVT, 0.1, 0, BY_CVT, THRICE },
    { RECIPE_SWIN, "swin-s", "lsla", 300, 1024, 1e-3, LR_SWIN, 0.3, 5, BY_LSLA },
    { RECIPE_SWIN, "swin-b*", "lsla", 300, 1024, 1e-3, LR_SWIN, 0.5, 5, BY_LSLA },
    { RECIPE_SWIN, "*", "lsla", 300, 1024, 1e-3, LR_SWIN, 0.2, 5, BY_LSLA },
    { RECIPE_CSWIN, "cswin-s", "vil", 300, 2048, 2e-3, LR_CSWIN, 0.4, 0, BY_CVT, AVERAGED },
    { RECIPE_CSWIN, "cswin-b*", "vil", 300, 2048, 2e-3, LR_CSWIN, 0.5, 0, BY_CVT, AVERAGED },
    { RECIPE_CSWIN, "*", "vil", 300, 2048, 2e-3, LR_CSWIN, 0.2, 0, BY_CVT, AVERAGED },
    { RECIPE_COAT, "*", "vil", 300, 2048, 2e-3, 5, 0.0005, 1e-5, 0.05, 0, 0, BY_CVT, ASIDE },
    { RECIPE_MPVIT, "mpvit-s", "vil", 300, 1024, 1e-3, LR_PVT, 0.05, 0, BY_CVT, ASIDE },
    { RECIPE_MPVIT, "mpvit-b", "vil", 300, 1024, 1e-3, LR_PVT, 0.3, 0, BY_CVT, ASIDE },
    { RECIPE_MPVIT, "*", "vil", 300, 1024, 1e-3, LR_PVT, 0, 0, BY_CVT, ASIDE },
    { RECIPE_RESNET, "*", "resnet", 90, 256, 0.1, 0, 0, 0, 1e-4, 0, 0, STEPS, ONCE },
    { RECIPE_FINETUNE, "*", "finetune", 10, 512, 3e-2, 0.25, 0.002, 1e-6, 0, 0.1, 0, FINETUNE },
};

static const recipe *recipe_of(const image_settings *s)
{
    const char *name = image_preset_row(s->preset);
    const recipe *r = recipes;
    while ((int)r->name != s->recipe || fnmatch(r->presets, name, 0) != 0) r++;
    return r;
}

static void take_augmentation(image_settings *s, const char *name)
{
    tp_augment a;
    tp_augment_recipe(&a, name, s->size);
    s->crop = (int)a.crop;
    s->crop_ratio = a.crop_ratio;
    s->eval_crop_ratio = s->recipe == RECIPE_FINETUNE ? a.crop_ratio : 0.875;
    s->filter = (int)a.filter;
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

void image_take_recipe(image_settings *s, image_recipe name)
{
    s->recipe = (int)name;
    const recipe *r = recipe_of(s);
    s->train.epochs = r->epochs;
    s->train.batch = r->batch;
    s->train.lr = 0;
    s->train.warmup = r->warmup;
    s->warmup_steps = r->more.warmup_steps;
    s->warmup_factor = r->warmup_factor;
    s->train.lr_end = r->lr_end;
    tp_train_set(&s->train, "weight_decay", r->weight_decay);
    s->drop_path = r->drop_path;
    s->dropout = r->more.dropout;
    s->train.clip = r->clip;
    s->train.ema = r->more.ema;
    s->train.ema_aside = r->more.ema_aside;
    s->schedule = (int)r->schedule;
    s->schedule_steps = r->more.steps;
    tp_train_choose(&s->train, r->optimizer);
    s->decay = (int)r->decay;
    s->repeats = r->repeats;
    take_augmentation(s, r->augment);
}

/* Scales x from the recipe's batch to s's. */
static double scaled(const image_settings *s, double x)
{
    return x * (double)(s->train.batch * s->train.accumulation) / (double)recipe_of(s)->batch;
}

double image_lr(const image_settings *s)
{
    return scaled(s, recipe_of(s)->lr);
}

double image_lr_end(const image_settings *s)
{
    const recipe *r = recipe_of(s);
    return r->more.end_scales ? scaled(s, r->lr_end) : r->lr_end;
}
