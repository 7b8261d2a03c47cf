/* lra_settings.c - the flags of `lra train`. Each row also defines how the setting is stored in checkpoints
 * and config.json. */
#include "lra_settings.h"

#define S lra_settings

const tp_option lra_options[] = {
    TP_HEADING("TASK AND MODEL"),
    TP_CHOICE(
        "task", S, d.task, TASK_NAMES, TP_WEIGHTS,
        "listops: answers of nested operators. text: is a review positive? retrieval: do two "
        "papers cite each other? image: classes of grey images. pathfinder: does a curve join "
        "two discs?"),
    TP_CHOICE("attention", S, attention, ATTENTION_NAMES, TP_WEIGHTS,
              "The attention, with the sizes of the paper's tables; see ATTENTIONS below."),
    TP_STRING_OF("preset", S, preset, "NAME", lra_preset_known, TP_SAVED,
                 "Task and attention in one word, lra-TASK-ATTENTION."),
    OPTION_DATA(S, d, TP_FREE),
    TP_INT(
        "length", S, d.length, 1, 1 << 20, TP_WEIGHTS,
        "Tokens to which documents are cut and padded. Smaller models are for small experiments."),
    TP_INT(
        "window", S, window, 0, 1 << 20, TP_WEIGHTS,
        "ls: tokens of a segment, which see themselves and half as many to either side; 0: none."),
    TP_INT("rank", S, rank, 0, 1 << 20, TP_WEIGHTS,
           "Projections (ls, linformer), landmarks (nystrom) or random features (performer)."),
    TP_INT("conv", S, conv, 0, 65535, TP_WEIGHTS,
           "Width of a convolution of the values, added to the result (ls, linformer, nystrom); 0: "
           "none."),
    TP_INT("layers", S, layers, 1, TP_LRA_MAX_LAYERS, TP_WEIGHTS, "Layers."),
    TP_INT("dim", S, dim, 1, 65536, TP_WEIGHTS, "Width."),
    TP_INT("heads", S, heads, 1, 65536, TP_WEIGHTS, "Attention heads."),
    TP_INT("hidden", S, hidden, 1, 1 << 20, TP_WEIGHTS,
           "Hidden width of the feed-forward layers and of the classifier."),
    TP_CHOICE(
        "pooling", S, pooling, "mean|cls-last|cls-token|cls-pool", TP_WEIGHTS,
        "What stands for the document: the mean of its tokens; an embedding that enters at the "
        "last layer, or at the first (ls); or a word before the document."),
    TP_STRING(
        "set", S, set, "KEY=VALUE,...", TP_WEIGHTS,
        "Changes members of the model that no flag sets, as dual_ln=0,cls_mode=values; tp-models --members "
        "NAME lists them."),
    TP_NUM("dropout", S, dropout, 0, 0.99, TP_SAVED,
           "Dropout of embeddings, layers and attention."),
    TP_ROWS(tp_recompute_options),
    TP_HEADING("DOCUMENTS"),
    OPTIONS_TASK_DATA(S, d),
    TP_CHOICE(
        "packed", S, packed, "no|yes", TP_SAVED,
        "Are the documents of a batch packed one after another, without padding? The default is yes "
        "on the CPU for softmax, ls, ls-best, dp and none on listops, text and retrieval, whose "
        "results do not depend on padding. Other attentions require no; so do --conv, and images "
        "whose black pixels count as padding."),
    TP_INT(
        "bucket", S, bucket, 0, 1000000, TP_SAVED,
        "Number of batches whose documents are sorted by length before they are divided into "
        "batches, each padded to its longest document; 0: not sorted, and all padded to --length. "
        "The default is 0 for packed batches, which need no sorting, and for attentions whose results "
        "depend on padding (all but softmax, ls, ls-best, dp and none). Fixed mixtures (linformer, "
        "ls-linformer) require 0."),
    TP_HEADING("RUN"),
    TP_ROWS(tp_run_options),
    TP_HEADING("TRAINING"),
    TP_CHOICE(
        "recipe", S, recipe, "code|paper", TP_SAVED,
        "Sets everything under TRAINING. code: the official code's, whose learning rate rises "
        "and falls in straight lines, and beta1 the other way. paper: the fixed learning rate "
        "that the paper names, and no weight decay."),
    TP_INT(
        "steps", S, train.steps, 1, TP_BIG, TP_FREE,
        "Updates of the whole run, over which the schedule extends. The recipe's warm-up keeps its "
        "share of them."),
    TP_NUM("time", S, train.time, 0, TP_BIG, 0,
           "Stop after this many seconds, with a validation and a checkpoint; 0: no limit."),
    TP_NUM("warmup", S, train.warmup, 0, TP_BIG, TP_SAVED,
           "Updates over which the learning rate rises."),
    TP_CHOICE("schedule", S, train.schedule, "constant|linear|cosine|step|onecycle|cycle", TP_SAVED,
              "Learning rate after the warm-up. cycle: from lr/25 to lr and down to lr/250000 in "
              "straight lines, with beta1 from 0.95 to 0.85 and back."),
    TP_FLAG("fixed-lr", S, fixed_lr, TP_SAVED,
            "cycle: learning rate and beta1 stay as they are after the warm-up."),
    TP_INT("batch", S, train.batch, 1, 65536, TP_SAVED, "Batch size, in examples."),
    TP_INT("accumulation", S, train.accumulation, 1, 65536, TP_SAVED,
           "Batches whose gradients are averaged for one update."),
    TP_INT("seed", S, train.seed, 0, TP_BIG, TP_SAVED,
           "Seed of initial weights, order of examples and dropout."),
    TP_ROWS(tp_rate_options),
    TP_ROWS(tp_optimizer_options),
    TP_HEADING("REPORTS AND CHECKPOINTS"),
    TP_INT("eval-every", S, train.eval_every, 0, TP_BIG, TP_FREE,
           "Updates between validations; 0: only at the end of the run."),
    TP_ROWS(tp_report_options),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_device_options),
    { 0 },
};
