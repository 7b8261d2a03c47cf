/* augment_recipe.c - the papers' pipelines by name. All papers train with DeiT's pipeline, which
 * sets colour jitter but uses RandAugment instead of it. */
#include <string.h>

#include <tapegrad/augment.h>

enum { SMALL = 32 };

static const tp_augment plain = {
    .crop = TP_CROP_NONE,
    .crop_ratio = 0.875,
    .area = { 0.08, 1 },
    .aspect = { 3.0 / 4, 4.0 / 3 },
    .filter = TP_BICUBIC,
    .op_probability = 0.5,
    .magnitude = 9,
    .spread = 0.5,
    .erase_area = { 0.02, 1.0 / 3 },
    .erase_aspect = { 0.3, 1 / 0.3 },
    .mean = { 0.485F, 0.456F, 0.406F },
    .std = { 0.229F, 0.224F, 0.225F },
    .fill = { 124, 116, 104 },
};

static void training(tp_augment *a)
{
    a->crop = a->size > SMALL ? TP_CROP_RESIZED : TP_CROP_PADDED;
    a->flip = 0.5;
    a->ops = 2;
    a->brightness = a->contrast = a->saturation = 0.4;
    a->erase = 0.25;
    a->mix = (tp_mix){ .probability = 1, .mixup = 0.8, .cutmix = 1, .cut = 0.5, .smoothing = 0.1 };
}

static void crops(tp_augment *a)
{
    a->crop = a->size > SMALL ? TP_CROP_RESIZED : TP_CROP_PADDED;
    a->flip = 0.5;
}

static void bilinear_crops(tp_augment *a)
{
    crops(a);
    a->filter = TP_BILINEAR;
}

/* For small sets: crops keep most of the image, and colours stay as they are. */
static void small(tp_augment *a)
{
    a->crop = a->size > SMALL ? TP_CROP_RESIZED : TP_CROP_PADDED;
    a->area[0] = 0.35;
    a->flip = 0.5;
    a->mix.smoothing = 0.1;
}

static void finetune(tp_augment *a)
{
    a->crop = a->size > SMALL ? TP_CROP_RANDOM : TP_CROP_PADDED;
    a->crop_ratio = 0.922;
    a->flip = 0.5;
    a->mix.smoothing = 0.1;
}

static void eval(tp_augment *a)
{
    if (a->size > SMALL) a->crop = TP_CROP_CENTRE;
}

static void none(tp_augment *a)
{
    (void)a;
}

bool tp_augment_recipe(tp_augment *a, const char *name, int64_t size)
{
    if (!a) return false;
    static const struct {
        const char *name;
        void (*set)(tp_augment *);
    } recipes[] = {
        { "vil", training }, { "vil-ls", training },
        { "cvt", training }, { "lsla", training },
        { "small", small },  { "finetune", finetune },
        { "eval", eval },    { "none", none },
        { "vit", crops },    { "resnet", bilinear_crops },
    };
    *a = plain;
    a->size = size;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (strcmp(name, recipes[i].name) == 0) {
            recipes[i].set(a);
            return true;
        }
    return false;
}
