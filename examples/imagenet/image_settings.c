/* image_settings.c - the flags of `imagenet train`. Each row also defines how the setting is stored
 * in checkpoints and config.json. */
#include "image_settings.h"

#define S image_settings

const tp_option image_options[] = {
    TP_HEADING("DATA AND RUN"),
    OPTIONS_IMAGES(S, data, TP_FREE, TP_SAVED),
    TP_INT("shapes", S, shapes, 10, 10000000, TP_SAVED,
           "Number of shapes to draw for training if --data is not given; a quarter as many are "
           "drawn for validation."),
    TP_ROWS(tp_run_options),
    TP_CHOICE(
        "head", S, head, "keep|slice|new", 0,
        "What --init does if the number of classes differs. keep: fail. slice: take the first "
        "rows of a larger head, as from ImageNet-21K to its first 1000 classes. new: initialise "
        "a new head."),
    TP_FLAG("resize", S, resize, 0,
            "Allow --init from a checkpoint for another image size; position tables are resized."),
    TP_FLAG("strict", S, strict, TP_FREE,
            "Stop at an image that cannot be read; off: report, count and replace it."),
    OPTION_MAX_PIXELS(S, max_pixels, TP_FREE),
    TP_HEADING("PRESETS"),
    TP_STRING_OF("preset", S, preset, "NAME", image_preset_known, TP_SAVED,
                 "The model, its image size and its recipe; see MODELS below."),
    OPTION_SET(S, set, TP_SAVED),
    TP_CHOICE(
        "recipe", S, recipe,
        "plain|small|vil|vil-ls|vil-21k|cvt|lsla|finetune|deit|pvt|"
        "resnet|deit-384|vit|vit-384|swin|cswin|coat|mpvit",
        TP_SAVED,
        "Sets everything under TRAINING and AUGMENTATION as in the paper of that name; flags "
        "override it. plain: for small convolutional networks. small: for small models with "
        "attention. vil-21k: pretraining on ImageNet-21K. finetune: fine-tuning at a higher "
        "resolution, as in the ViL paper. deit-384, vit-384: the same in those papers. resnet: 90 "
        "epochs of SGD."),
    TP_INT("size", S, size, 8, 4096, TP_SAVED, "Size of the images, in pixels a side."),
    TP_NUM("dropout", S, dropout, 0, 0.99, TP_SAVED,
           "ViT and DeiT: dropout of embeddings, attention's outputs and feed-forward networks."),
    TP_NUM("drop-path", S, drop_path, 0, 0.99, TP_SAVED,
           "Stochastic depth: drop probability of the last block, rising linearly from 0 at the "
           "first."),
    TP_NUM("random-shift", S, random_shift, 0, 1, TP_SAVED,
           "ViL: for this fraction of the epochs, windows see their own chunk and one random "
           "neighbour instead of all eight; the paper uses 0.75."),
    TP_INT("redraw", S, redraw, 0, TP_BIG, TP_SAVED,
           "Performer: redraw the random features after more than redraw + redraw-growth x epoch "
           "batches, with epochs counted from 0; 0: draw them only once."),
    TP_INT("redraw-growth", S, redraw_growth, 0, TP_BIG, TP_SAVED,
           "Performer: batches that each epoch adds to --redraw."),
    TP_ROWS(tp_recompute_options),
    TP_HEADING("TRAINING"),
    TP_INT("epochs", S, train.epochs, 1, 1000000, TP_SAVED, "Passes over the images."),
    TP_INT("steps", S, train.steps, 0, TP_BIG, 0,
           "Stop after this many updates in total; 0: after --epochs."),
    TP_INT("batch", S, train.batch, 2, 65536, TP_SAVED, "Batch size, in images."),
    TP_FLAG("balance", S, balance, TP_SAVED,
            "Read equally many images of each class, whatever their frequencies: those of rare "
            "classes several times, of frequent ones a part in each epoch."),
    TP_NUM("lr", S, train.lr, 0, 1000, TP_SAVED,
           "Learning rate; 0: the preset's, scaled in proportion to batch x accumulation."),
    TP_NUM("warmup", S, train.warmup, 0, 1000000, TP_SAVED, "Epochs of linear warm-up."),
    TP_INT("warmup-steps", S, warmup_steps, 0, TP_BIG, TP_SAVED,
           "Updates of linear warm-up, in place of --warmup; 0: that counts."),
    TP_NUM("warmup-factor", S, warmup_factor, 0, 1, TP_SAVED,
           "Fraction of the learning rate at which the warm-up starts."),
    TP_CHOICE("schedule", S, schedule,
              "constant|cosine|vil|cvt|lsla|linear|step|onecycle|"
              "resnet|plateau",
              TP_SAVED,
              "Learning rate after the warm-up. cosine: from the end of the warm-up to the end of "
              "the run. vil: a cosine over the whole run, whose beginning the warm-up replaces. "
              "cvt: the same, constant within an epoch. lsla: like cosine, one update late. "
              "linear, step and onecycle warm up from 0. resnet: a tenth after each third of the "
              "epochs. plateau: drops where validations find nothing better."),
    TP_NUM("lr-end", S, train.lr_end, 0, 1000, TP_SAVED,
           "Final learning rate, the lowest of plateau."),
    TP_INT(
        "schedule-steps", S, schedule_steps, 0, TP_BIG, TP_SAVED,
        "Length of the run and of its schedule in updates, in place of --epochs; 0: these count."),
    TP_ROWS(tp_length_options),
    TP_ROWS(tp_rate_options),
    TP_ROWS(tp_optimizer_options),
    TP_NUM("layer-decay", S, layer_decay, 0.01, 1, TP_SAVED,
           "Factor of the learning rate for each block between a parameter and the head, usual in "
           "fine-tuning; 1: all have the same rate."),
    TP_CHOICE("decay", S, decay, "all|matrices|vil|lsla|deit", TP_SAVED,
              "Parameters with weight decay. matrices: all but vectors, biases and class tokens. "
              "vil: all but norms, class tokens, position tables and the bias of the head. lsla: "
              "as matrices, without position tables and dynamic scales. deit: as matrices, without "
              "position tables and the distillation token."),
    TP_HEADING("DISTILLATION"),
    TP_STRING("teacher", S, teacher, "FILE", TP_FREE,
              "A trained classifier of any model that teaches this one: the folder of its run, a "
              "checkpoint, or published weights. It sees the same augmented and mixed images, in "
              "evaluation mode, and needs the same classes and size of images."),
    TP_STRING_OF("teacher-preset", S, teacher_preset, "NAME", image_preset_known, TP_SAVED,
                 "The model of a teacher's published weights."),
    TP_CHOICE(
        "distill", S, distill, "none|hard|soft", TP_SAVED,
        "What is learnt from the teacher. hard, the default with --teacher: its most likely "
        "class. soft: its probabilities. The second head of a distilled DeiT learns this, its "
        "first one the labels; the only head of other models learns both."),
    TP_NUM("distill-alpha", S, distill_alpha, 0, 1, TP_SAVED,
           "Weight of the teacher's loss; that of the labels has 1 - alpha."),
    TP_NUM("distill-tau", S, distill_tau, 0.001, 1000, TP_SAVED, "Temperature of --distill soft."),
    TP_HEADING("AUGMENTATION"),
    TP_CHOICE(
        "crop", S, crop, "none|centre|random|resized|padded", TP_SAVED,
        "How training images get their size. none: resize. centre, random: resize to size / "
        "crop-ratio, then crop. resized: crop a box of random area and aspect ratio, then resize. "
        "padded: pad by 4 pixels, then crop."),
    TP_CHOICE("filter", S, filter, "bicubic|bilinear", TP_SAVED,
              "How images are resized, in training and in evaluation."),
    TP_NUM("crop-ratio", S, crop_ratio, 0.1, 1, TP_SAVED, "Ratio of --crop centre and random."),
    TP_NUM("eval-crop-ratio", S, eval_crop_ratio, 0.1, 1, TP_SAVED,
           "Evaluation resizes to size / this ratio, then crops the centre; use 1 if training "
           "sees whole images."),
    TP_NUM("area", S, area, 0.001, 1, TP_SAVED,
           "Smallest area of --crop resized, as a fraction of the image."),
    TP_NUM("flip", S, flip, 0, 1, TP_SAVED, "Probability of a horizontal flip."),
    TP_INT("ops", S, ops, 0, 15, TP_SAVED, "RandAugment: operations per image; 0: off."),
    TP_NUM("op-probability", S, op_probability, 0, 1, TP_SAVED,
           "RandAugment: probability of each operation."),
    TP_NUM("magnitude", S, magnitude, 0, 10, TP_SAVED, "RandAugment: mean strength."),
    TP_NUM("spread", S, spread, 0, 10, TP_SAVED,
           "RandAugment: standard deviation of the strength."),
    TP_NUM("jitter", S, jitter, 0, 1, TP_SAVED,
           "Without RandAugment (--ops 0): scale brightness, contrast and saturation by random "
           "factors from 1 - jitter to 1 + jitter."),
    TP_NUM("erase", S, erase, 0, 1, TP_SAVED,
           "Random erasing: probability that a box is replaced by noise."),
    TP_NUM("mix", S, mix, 0, 1, TP_SAVED,
           "Probability that mixup or cutmix is applied to a batch."),
    TP_NUM("mixup", S, mixup, 0, 100, TP_SAVED, "Alpha of mixup; 0: off."),
    TP_NUM("cutmix", S, cutmix, 0, 100, TP_SAVED, "Alpha of cutmix; 0: off."),
    TP_NUM("cut", S, cut, 0, 1, TP_SAVED, "Probability of cutmix if both are on."),
    TP_NUM("smoothing", S, smoothing, 0, 0.99, TP_SAVED, "Label smoothing."),
    TP_INT("repeats", S, repeats, 1, 100, TP_SAVED,
           "Repeated augmentation: each image occurs this often in a row; epochs keep their "
           "length."),
    TP_FLAG("shrink", S, shrink, TP_SAVED,
            "Decode large JPEG files at 1/2 to 1/8 of their size: faster, slightly different "
            "pixels."),
    TP_HEADING("REPORTS AND CHECKPOINTS"),
    TP_CHOICE("validate", S, validate, "valid|test", TP_SAVED,
              "The part of the images that the run validates on and chooses its best weights by. "
              "test: the curves of papers that measure the test part after every epoch; a set "
              "without a test part gives its validation images."),
    TP_INT("eval-every", S, train.eval_every, 0, TP_BIG, TP_FREE,
           "Epochs between validations; 0: only at the end of the run."),
    TP_ROWS(tp_report_options),
    TP_HEADING("MACHINE"),
    TP_INT("workers", S, workers, 1, 256, 0, "Threads that decode and augment images."),
    TP_ROWS(tp_device_options),
    { 0 },
};

tp_part image_validation(const image_settings *s)
{
    return s->validate ? TP_TEST : TP_VALID;
}

tp_augment image_augment(const image_settings *s)
{
    tp_augment a;
    tp_augment_recipe(&a, "none", s->size);
    a.crop = (tp_crop)s->crop;
    a.crop_ratio = s->crop_ratio;
    a.filter = (tp_filter)s->filter;
    a.area[0] = s->area;
    a.flip = s->flip;
    a.ops = (int)s->ops;
    a.op_probability = s->op_probability;
    a.magnitude = s->magnitude;
    a.spread = s->spread;
    a.brightness = a.contrast = a.saturation = s->jitter;
    a.erase = s->erase;
    a.shrink = s->shrink;
    a.decode.max_pixels = s->max_pixels;
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
