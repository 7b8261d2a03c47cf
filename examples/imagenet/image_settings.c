/* image_settings.c - the flags of `imagenet train`: one row each, which also is how the setting is
 * stored in checkpoints and config.json. */
#include "image_settings.h"

/* clang-format off */
#define AT(field)                             offsetof(image_settings, field)
#define HEADING(name)                         { name, OPT_HEADING, 0, 0, 0, 0, NULL, NULL }
#define FLAG(name, field, tag, help)          { name, OPT_BOOL, tag, AT(field), 0, 0, NULL, help }
#define INT(name, field, lo, hi, tag, help)   { name, OPT_INT, tag, AT(field), lo, hi, "N", help }
#define NUM(name, field, lo, hi, tag, help)   { name, OPT_NUM, tag, AT(field), lo, hi, "X", help }
#define TEXT(name, field, what, tag, help)    { name, OPT_TEXT, tag, AT(field), 0, 0, what, help }
#define CHOICE(name, field, which, tag, help) { name, OPT_CHOICE, tag, AT(field), 0, 0, which, help }
/* clang-format on */

const option image_options[] = {
    HEADING("DATA AND RUN"),
    OPTIONS_PICTURES(image_settings, IMAGE_FREE, IMAGE_SAVED),
    INT("shapes", shapes, 10, 10000000, IMAGE_SAVED,
        "Shapes drawn for training, and a quarter of them for validation, where there is no "
        "--data."),
    OPTION_RUN_DIR(image_settings, 0),
    FLAG("resume", c.resume, 0,
         "Continue the run of the folder from last.safetensors, bit for bit as if it had never "
         "stopped. Flags that would change its course are refused."),
    FLAG("overwrite", overwrite, 0, "Begin anew in a folder that holds a run already."),
    FLAG("plan", plan, 0,
         "Train nothing: print the parameters, the memory of a step with and without "
         "recomputation, its FLOPs and the time that a run would take here."),
    TEXT(
        "init", init, "FILE", 0,
        "Begin with the weights of this checkpoint of the same model; optimiser, schedule and data "
        "position start afresh."),
    CHOICE(
        "head", head, "keep|slice|new", 0,
        "What --init does where the numbers of classes differ. keep: nothing, that is an error. "
        "slice: the first rows of a larger head, as from ImageNet-21K to its first 1000 classes. "
        "new: a head with random weights."),
    FLAG("resize", resize, 0,
         "--init may be a checkpoint for pictures of another size: tables are resized."),
    FLAG("strict", strict, IMAGE_FREE,
         "A picture that cannot be read ends the run; else it is named, counted and replaced."),
    HEADING("PRESETS"),
    TEXT("preset", preset, "NAME", IMAGE_SAVED,
         "The model, its picture size and its recipe; see MODELS below."),
    CHOICE("recipe", recipe, "plain|small|vil|vil-ls|vil-21k|cvt|lsla|finetune", IMAGE_SAVED,
           "Everything under TRAINING and AUGMENTATION, as the paper of that name trains the "
           "preset; flags override. plain: small convolution nets. small: small models with "
           "attention. vil-21k: pretraining on ImageNet-21K. finetune: at a higher resolution "
           "after pretraining, as the ViL paper does."),
    INT("size", size, 8, 4096, IMAGE_SAVED, "Pictures are size x size pixels."),
    NUM("drop-path", drop_path, 0, 0.99, IMAGE_SAVED,
        "Stochastic depth of the last block; rises linearly from 0."),
    NUM("random-shift", random_shift, 0, 1, IMAGE_SAVED,
        "ViL: for that fraction of the epochs windows see, beside their own chunk, one neighbour "
        "drawn at random instead of all eight; 0.75 is usual."),
    INT("redraw", redraw, 0, OPT_BIG, IMAGE_SAVED,
        "Performer: random features are drawn anew once they have served more than redraw + "
        "redraw-growth x epoch batches, epochs counted from 0; 0: only before the first."),
    INT("redraw-growth", redraw_growth, 0, OPT_BIG, IMAGE_SAVED, "... what each epoch adds."),
    CHOICE("recompute", recompute, "none|attention|block", IMAGE_SAVED,
           "What backward computes again instead of keeping it: less memory, more time."),
    HEADING("TRAINING"),
    INT("epochs", epochs, 1, 1000000, IMAGE_SAVED, "Passes over the pictures."),
    INT("steps", c.steps, 0, OPT_BIG, 0, "Stop after that many updates in all; 0: at the end."),
    NUM("time", time, 0, OPT_BIG, 0, "Stop after so many seconds, with a checkpoint; 0: never."),
    INT("batch", c.batch, 2, 65536, IMAGE_SAVED, "Pictures that run at once."),
    INT("accumulation", accumulation, 1, 65536, IMAGE_SAVED, "Batches in one update."),
    NUM("lr", c.lr, 0, 1000, IMAGE_SAVED,
        "Learning rate; 0: the preset's, in proportion to batch x accumulation."),
    CHOICE(
        "schedule", schedule, "constant|cosine|vil|cvt|lsla", IMAGE_SAVED,
        "The rate after the warm-up. cosine: from there to the end. vil: a cosine over the whole "
        "run of which the warm-up takes the place. cvt: the same, constant in an epoch. lsla: as "
        "cosine, one update late."),
    NUM("warmup", warmup, 0, 1000000, IMAGE_SAVED, "Epochs over which the rate rises."),
    NUM("warmup-factor", warmup_factor, 0, 1, IMAGE_SAVED, "Fraction of the rate to begin with."),
    NUM("lr-end", lr_end, 0, 1000, IMAGE_SAVED, "The rate at the end."),
    CHOICE("optimizer", optimizer, "adamw|adamw-vil|adam|sgd|qhm", IMAGE_SAVED,
           "adamw-vil: eps is added to the uncorrected root, and decay follows the update. qhm: "
           "quasi-hyperbolic momentum, an average to which a gradient adds (1 - momentum) times "
           "itself."),
    NUM("weight-decay", weight_decay, 0, 1000, IMAGE_SAVED, "Weight decay."),
    CHOICE("decay", decay, "all|matrices|vil|lsla", IMAGE_SAVED,
           "What decays. matrices: no vectors, biases and class tokens. vil: biases of layers too, "
           "but no norms, tokens, tables of positions and the head's bias. lsla: as matrices, and "
           "no tables and dynamic scales."),
    NUM("beta1", beta1, 0, 0.999999, IMAGE_SAVED, "Decay of Adam's first moment."),
    NUM("beta2", beta2, 0, 0.9999999, IMAGE_SAVED, "Decay of Adam's second moment."),
    NUM("eps", eps, 0, 1, IMAGE_SAVED, "Adam's epsilon."),
    NUM("momentum", momentum, 0, 0.999999, IMAGE_SAVED, "Momentum of sgd and qhm."),
    NUM("nu", nu, 0, 1, IMAGE_SAVED,
        "qhm: the average's share of a step; the rest is the gradient itself."),
    NUM("clip", clip, 0, OPT_BIG, IMAGE_SAVED, "Largest norm of the gradient; 0: no limit."),
    NUM("ema", ema, 0, 0.9999999, IMAGE_SAVED,
        "Decay of averaged weights, which validation and best.safetensors then use; 0: none."),
    INT("seed", c.seed, 0, OPT_BIG, IMAGE_SAVED, "Of weights, order and augmentation."),
    HEADING("AUGMENTATION"),
    CHOICE("crop", crop, "none|centre|random|resized|padded", IMAGE_SAVED,
           "How a picture becomes size x size pixels in training. none: resized. centre, random: a "
           "place after resizing to size / crop-ratio. resized: a box of random area and shape. "
           "padded: a place after padding by 4."),
    NUM("crop-ratio", crop_ratio, 0.1, 1, IMAGE_SAVED, "Of --crop centre and random."),
    NUM("eval-crop-ratio", eval_crop_ratio, 0.1, 1, IMAGE_SAVED,
        "Evaluation takes the centre after resizing to size / this; 1 belongs to pictures that are "
        "trained on whole."),
    NUM("area", area, 0.001, 1, IMAGE_SAVED, "Least area of --crop resized."),
    NUM("flip", flip, 0, 1, IMAGE_SAVED, "Probability that left and right change places."),
    INT("ops", ops, 0, 15, IMAGE_SAVED, "RandAugment: operations a picture; 0: none."),
    NUM("op-probability", op_probability, 0, 1, IMAGE_SAVED, "... and of each of them."),
    NUM("magnitude", magnitude, 0, 10, IMAGE_SAVED, "... their strength,"),
    NUM("spread", spread, 0, 10, IMAGE_SAVED, "... and its deviation."),
    NUM("jitter", jitter, 0, 1, IMAGE_SAVED,
        "Without RandAugment (--ops 0): brightness, contrast and saturation each times 1 +- X."),
    NUM("erase", erase, 0, 1, IMAGE_SAVED, "Probability that a box becomes noise."),
    NUM("mix", mix, 0, 1, IMAGE_SAVED, "Probability that a batch is mixed."),
    NUM("mixup", mixup, 0, 100, IMAGE_SAVED, "Mixup's alpha; 0: none."),
    NUM("cutmix", cutmix, 0, 100, IMAGE_SAVED, "Cutmix's alpha; 0: none."),
    NUM("cut", cut, 0, 1, IMAGE_SAVED, "Probability of cutmix where both are on."),
    NUM("smoothing", smoothing, 0, 0.99, IMAGE_SAVED, "Smoothing of the labels."),
    INT("repeats", repeats, 1, 100, IMAGE_SAVED,
        "Repeated augmentation: each picture that often in a row, in epochs as long as without."),
    FLAG("shrink", shrink, IMAGE_SAVED,
         "Decode large JPEG files at 1/2 to 1/8: faster, slightly other pixels."),
    HEADING("REPORTS AND CHECKPOINTS"),
    INT("log-every", c.log_every, 1, OPT_BIG, IMAGE_FREE, "Updates between reports."),
    INT("eval-every", c.eval_every, 0, OPT_BIG, IMAGE_FREE,
        "Epochs between validations; 0: only at the end."),
    INT("checkpoint-every", c.checkpoint_every, 0, OPT_BIG, IMAGE_FREE,
        "Updates between checkpoints, beside those at the ends of epochs; 0: none."),
    HEADING("MACHINE"),
    OPTIONS_MACHINE(image_settings, IMAGE_SAVED),
    INT("workers", workers, 1, 256, 0, "Threads that prepare pictures."),
    FLAG("check-finite", check_finite, 0,
         "Look for NaN and infinity in every result and gradient, and name the op that made the "
         "first one. Slow; changes no result."),
    FLAG("profile", profile, 0, "At the end, print the time that each op took."),
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
