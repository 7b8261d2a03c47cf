/* image_settings.c - the flags of `imagenet train`: one row each, which also is how the setting is
 * stored in checkpoints and config.json. */
#include "image_settings.h"

#define S image_settings

const tp_option image_options[] = {
    TP_HEADING("DATA AND RUN"),
    OPTIONS_IMAGES(S, data, TP_FREE, TP_SAVED),
    TP_INT("shapes", S, shapes, 10, 10000000, TP_SAVED,
           "Shapes drawn for training, "
           "and a quarter of them for validation, where there is no --data."),
    TP_ROWS(tp_run_options),
    TP_CHOICE(
        "head", S, head, "keep|slice|new", 0,
        "What --init does where the numbers of classes differ. keep: nothing, that is an error. "
        "slice: the first rows of a larger head, as from ImageNet-21K to its first 1000 classes. "
        "new: a head with random weights."),
    TP_FLAG("resize", S, resize, 0,
            "--init may be a checkpoint for images of another size: tables are resized."),
    TP_FLAG("strict", S, strict, TP_FREE,
            "An image that cannot be read ends the run; else it is named, counted and replaced."),
    TP_HEADING("PRESETS"),
    TP_STRING("preset", S, preset, "NAME", TP_SAVED,
              "The model, its image size and its recipe; see MODELS below."),
    TP_CHOICE("recipe", S, recipe, "plain|small|vil|vil-ls|vil-21k|cvt|lsla|finetune", TP_SAVED,
              "Everything under TRAINING and AUGMENTATION, as the paper of that name trains the "
              "preset; flags override. plain: small convolution nets. small: small models with "
              "attention. vil-21k: pretraining on ImageNet-21K. finetune: at a higher resolution "
              "after pretraining, as the ViL paper does."),
    TP_INT("size", S, size, 8, 4096, TP_SAVED, "Images are size x size pixels."),
    TP_NUM("drop-path", S, drop_path, 0, 0.99, TP_SAVED,
           "Stochastic depth of the last block; rises linearly from 0."),
    TP_NUM(
        "random-shift", S, random_shift, 0, 1, TP_SAVED,
        "ViL: for that fraction of the epochs windows see, beside their own chunk, one neighbour "
        "drawn at random instead of all eight; 0.75 is usual."),
    TP_INT("redraw", S, redraw, 0, TP_BIG, TP_SAVED,
           "Performer: random features are drawn anew once they have served more than redraw + "
           "redraw-growth x epoch batches, epochs counted from 0; 0: only before the first."),
    TP_INT("redraw-growth", S, redraw_growth, 0, TP_BIG, TP_SAVED, "... what each epoch adds."),
    TP_ROWS(tp_recompute_options),
    TP_HEADING("TRAINING"),
    TP_INT("epochs", S, train.epochs, 1, 1000000, TP_SAVED, "Passes over the images."),
    TP_INT("steps", S, train.steps, 0, TP_BIG, 0,
           "Stop after that many updates in all; 0: at the end."),
    TP_INT("batch", S, train.batch, 2, 65536, TP_SAVED, "Images that run at once."),
    TP_NUM("lr", S, train.lr, 0, 1000, TP_SAVED,
           "Learning rate; 0: the preset's, in proportion to batch x accumulation."),
    TP_NUM("warmup", S, train.warmup, 0, 1000000, TP_SAVED, "Epochs over which the rate rises."),
    TP_NUM("warmup-factor", S, warmup_factor, 0, 1, TP_SAVED,
           "Fraction of the rate to begin with."),
    TP_CHOICE("schedule", S, schedule, "constant|cosine|vil|cvt|lsla|linear|step|onecycle",
              TP_SAVED,
              "The rate after the warm-up. cosine: from there to the end. vil: a cosine over the "
              "whole run of which the warm-up takes the place. cvt: the same, constant in an "
              "epoch. lsla: as cosine, one update late. linear, step and onecycle warm up from 0."),
    TP_NUM("lr-end", S, train.lr_end, 0, 1000, TP_SAVED, "The rate at the end."),
    TP_ROWS(tp_length_options),
    TP_ROWS(tp_rate_options),
    TP_ROWS(tp_optimizer_options),
    TP_CHOICE("decay", S, decay, "all|matrices|vil|lsla", TP_SAVED,
              "What decays. matrices: no vectors, biases and class tokens. vil: biases of layers "
              "too, but no norms, tokens, tables of positions and the head's bias. lsla: as "
              "matrices, and no tables and dynamic scales."),
    TP_HEADING("AUGMENTATION"),
    TP_CHOICE(
        "crop", S, crop, "none|centre|random|resized|padded", TP_SAVED,
        "How an image becomes size x size pixels in training. none: resized. centre, random: a "
        "place after resizing to size / crop-ratio. resized: a box of random area and shape. "
        "padded: a place after padding by 4."),
    TP_NUM("crop-ratio", S, crop_ratio, 0.1, 1, TP_SAVED, "Of --crop centre and random."),
    TP_NUM("eval-crop-ratio", S, eval_crop_ratio, 0.1, 1, TP_SAVED,
           "Evaluation takes the centre after resizing to size / this; "
           "1 belongs to images that are trained on whole."),
    TP_NUM("area", S, area, 0.001, 1, TP_SAVED, "Least area of --crop resized."),
    TP_NUM("flip", S, flip, 0, 1, TP_SAVED, "Probability that left and right change places."),
    TP_INT("ops", S, ops, 0, 15, TP_SAVED, "RandAugment: operations an image; 0: none."),
    TP_NUM("op-probability", S, op_probability, 0, 1, TP_SAVED, "... and of each of them."),
    TP_NUM("magnitude", S, magnitude, 0, 10, TP_SAVED, "... their strength,"),
    TP_NUM("spread", S, spread, 0, 10, TP_SAVED, "... and its deviation."),
    TP_NUM("jitter", S, jitter, 0, 1, TP_SAVED,
           "Without RandAugment (--ops 0): brightness, contrast and saturation each times 1 +- X."),
    TP_NUM("erase", S, erase, 0, 1, TP_SAVED, "Probability that a box becomes noise."),
    TP_NUM("mix", S, mix, 0, 1, TP_SAVED, "Probability that a batch is mixed."),
    TP_NUM("mixup", S, mixup, 0, 100, TP_SAVED, "Mixup's alpha; 0: none."),
    TP_NUM("cutmix", S, cutmix, 0, 100, TP_SAVED, "Cutmix's alpha; 0: none."),
    TP_NUM("cut", S, cut, 0, 1, TP_SAVED, "Probability of cutmix where both are on."),
    TP_NUM("smoothing", S, smoothing, 0, 0.99, TP_SAVED, "Smoothing of the labels."),
    TP_INT("repeats", S, repeats, 1, 100, TP_SAVED,
           "Repeated augmentation: each image that often in a row, in epochs as long as without."),
    TP_FLAG("shrink", S, shrink, TP_SAVED,
            "Decode large JPEG files at 1/2 to 1/8: faster, slightly other pixels."),
    TP_HEADING("REPORTS AND CHECKPOINTS"),
    TP_INT("eval-every", S, train.eval_every, 0, TP_BIG, TP_FREE,
           "Epochs between validations; 0: only at the end."),
    TP_ROWS(tp_report_options),
    TP_HEADING("MACHINE"),
    TP_INT("workers", S, workers, 1, 256, 0, "Threads that prepare images."),
    TP_ROWS(tp_device_options),
    { 0 },
};

tp_augment image_augment(const image_settings *s)
{
    tp_augment a;
    tp_augment_recipe(&a, "none", s->size);
    a.crop = (tp_crop)s->crop;
    a.crop_ratio = s->crop_ratio;
    a.area[0] = s->area;
    a.flip = s->flip;
    a.ops = (int)s->ops;
    a.op_probability = s->op_probability;
    a.magnitude = s->magnitude;
    a.spread = s->spread;
    a.brightness = a.contrast = a.saturation = s->jitter;
    a.erase = s->erase;
    a.shrink = s->shrink;
    a.mix = (tp_mix){ .probability = s->mix,
                      .mixup = s->mixup,
                      .cutmix = s->cutmix,
                      .cut = s->cut,
                      .smoothing = s->smoothing };
    return a;
}

tp_augment image_eval_pipeline(int64_t size, double crop_ratio)
{
    tp_augment a;
    tp_augment_recipe(&a, "eval", size);
    a.crop_ratio = crop_ratio;
    return a;
}
