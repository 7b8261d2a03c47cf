/* settings.c - the flags of `enwik8 train`: one row each, which also is how the setting is stored
 * in checkpoints and config.json. */
#include "settings.h"

/* clang-format off */
#define AT(field)                             offsetof(settings, field)
#define HEADING(name)                         { name, OPT_HEADING, 0, 0, 0, 0, NULL, NULL }
#define FLAG(name, field, tag, help)          { name, OPT_BOOL, tag, AT(field), 0, 0, NULL, help }
#define INT(name, field, lo, hi, tag, help)   { name, OPT_INT, tag, AT(field), lo, hi, "N", help }
#define NUM(name, field, lo, hi, tag, help)   { name, OPT_NUM, tag, AT(field), lo, hi, "X", help }
#define TEXT(name, field, what, tag, help)    { name, OPT_TEXT, tag, AT(field), 0, 0, what, help }
#define CHOICE(name, field, which, tag, help) { name, OPT_CHOICE, tag, AT(field), 0, 0, which, help }
/* clang-format on */

const option train_options[] = {
    HEADING("DATA AND RUN"),
    OPTION_DATA(settings, TAG_FREE),
    TEXT("extra", extra, "FILE", TAG_FREE,
         "More text for training, behind the training part of --data; validation and test stay as "
         "they are. The dictionary counts it too."),
    CHOICE("style", style, "auto|enwik8|text8|bytes", TAG_SAVED,
           "How bytes become tokens. enwik8: newline ends a line, other bytes by frequency. text8: "
           "letters and blanks. bytes: token = byte. auto: text8 if the text has only a-z and "
           "blanks, else enwik8."),
    OPTION_RUN_DIR(settings, 0),
    FLAG("resume", c.resume, 0,
         "Continue the run of the folder from last.safetensors, bit for bit as if it had never "
         "stopped. Flags that would change its course are refused."),
    FLAG("overwrite", overwrite, 0, "Begin anew in a folder that holds a run already."),
    FLAG(
        "plan", plan, 0,
        "Train nothing: print the parameters, the memory of a step with and without recomputation, "
        "its FLOPs and the time that a run would take here."),
    TEXT(
        "init", init, "FILE", 0,
        "Begin with the weights and the dictionary of this checkpoint: how a phase starts from the "
        "one before. Optimiser, schedule and data position start afresh."),
    HEADING("PRESETS"),
    CHOICE(
        "preset", preset, "tiny|mini|small|large", TAG_SAVED,
        "Sets everything below; other flags override. small and large: the paper's 44M and 110M "
        "models. tiny: for a first run on any machine. mini: the best that a few megabytes of text "
        "and half an hour on two cores give."),
    INT("phase", phase, 1, 3, TAG_SAVED,
        "Phase of the paper's training: segments of 2048, 4096, 8192 tokens."),
    CHOICE("model", model, "ls|txl", TAG_MODEL, "Transformer-LS, or the baseline Transformer-XL."),
    HEADING("MODEL"),
    INT("layers", layers, 1, 128, TAG_MODEL, "Layers."),
    INT("dim", dim, 2, 65536, TAG_MODEL, "Width."),
    INT("hidden", hidden, 1, 1048576, TAG_MODEL, "Width of the feed-forward part."),
    INT("heads", heads, 1, 1024, TAG_MODEL, "Attention heads."),
    INT("d-head", d_head, 1, 65536, TAG_MODEL, "Width of a head (txl; in ls it is dim / heads)."),
    INT("chunk", chunk, 1, 65536, TAG_MODEL, "Tokens that a projected vector summarises (ls)."),
    INT("rank", rank, 0, 1024, TAG_MODEL,
        "Projected vectors of a chunk; 0: none, the window alone (ls)."),
    INT("window", window, 0, 1048576, TAG_MODEL,
        "Tokens that attention sees one by one; 0: none, only projected vectors of the chunks "
        "before a token's own (ls)."),
    FLAG("dual-ln", dual_ln, TAG_MODEL,
         "Norms of their own for keys and values of the window and of the projections; off: "
         "neither (ls)."),
    INT("mem-len", mem_len, 0, 16777216, TAG_SAVED, "Rows of the cache of earlier segments."),
    INT("clamp", clamp, 0, 16777216, TAG_SAVED, "Largest distance told apart; 0: all are."),
    INT("chunk-clamp", chunk_clamp, 0, 16777216, TAG_SAVED,
        "The same for distances between chunks (ls)."),
    FLAG("bias", bias, TAG_MODEL, "Biases in the projections of queries, keys and values (ls)."),
    FLAG("pre-ln", pre_ln, TAG_MODEL, "Normalise before each part of a block, not after it."),
    FLAG("gelu", gelu, TAG_MODEL, "GELU in the feed-forward part, not ReLU (ls)."),
    FLAG("masked", masked, TAG_MODEL,
         "Empty rows of the cache are invisible; else they are zeros that take part, as in the "
         "official code (ls)."),
    FLAG("segment-window", segment_window, TAG_MODEL,
         "The paper's segment-wise window, not the code's window of each token (ls)."),
    FLAG("ln-local", ln_local, TAG_MODEL, "The local norm comes before the projection too (ls)."),
    FLAG("project-first", project_first, TAG_MODEL,
         "Cached chunks are projected before they are compressed (ls)."),
    FLAG("same-length", same_length, TAG_SAVED, "Every query sees exactly mem-len tokens (txl)."),
    HEADING("TRAINING"),
    INT("steps", c.steps, 1, OPT_BIG, TAG_FREE, "Updates in all."),
    NUM("time", time, 0, OPT_BIG, 0, "Stop after so many seconds, with a checkpoint; 0: never."),
    INT("batch", c.batch, 1, 65536, TAG_SAVED, "Streams of text that advance side by side."),
    INT("tokens", tokens, 2, 16777216, TAG_SAVED, "Tokens of a segment."),
    INT("accumulation", accumulation, 1, 65536, TAG_SAVED, "Consecutive segments in one update."),
    CHOICE("targets", targets, "all|official", TAG_SAVED,
           "all: every token is predicted. official: the first of each segment is not, as in the "
           "official code."),
    NUM("lr", c.lr, 0, 1000, TAG_SAVED,
        "Learning rate; 0: the preset's, which for text8 is twice that for enwik8."),
    INT("warmup", warmup, 0, OPT_BIG, TAG_SAVED, "Updates over which the rate rises from 0."),
    CHOICE("schedule", schedule, "constant|linear|cosine|step|onecycle", TAG_SAVED,
           "The rate after the warm-up; linear and cosine reach lr-end at the last step."),
    NUM("lr-end", lr_end, 0, 1000, TAG_SAVED, "Last rate of linear and cosine."),
    INT("lr-every", lr_every, 1, OPT_BIG, TAG_SAVED, "Updates between the drops of step."),
    NUM("lr-factor", lr_factor, 0, 1, TAG_SAVED, "What a drop of step multiplies the rate with."),
    CHOICE("optimizer", optimizer, "adamw|adam|sgd", TAG_SAVED, "Update rule."),
    NUM("weight-decay", weight_decay, 0, 1000, TAG_SAVED, "Of all parameters."),
    NUM("beta1", beta1, 0, 0.999999, TAG_SAVED, "Decay of Adam's first moment."),
    NUM("beta2", beta2, 0, 0.9999999, TAG_SAVED, "Decay of Adam's second moment."),
    NUM("eps", eps, 0, 1, TAG_SAVED, "Adam's epsilon."),
    NUM("momentum", momentum, 0, 0.999999, TAG_SAVED, "Momentum of sgd."),
    FLAG("nesterov", nesterov, TAG_SAVED, "Nesterov's form of it."),
    NUM("clip", clip, 0, OPT_BIG, TAG_SAVED, "Largest norm of the gradient; 0: no limit."),
    NUM("ema", ema, 0, 0.9999999, TAG_SAVED,
        "Decay of averaged weights, which validation and best.safetensors then use; 0: none."),
    NUM("dropout", dropout, 0, 0.99, TAG_SAVED, "Dropout."),
    NUM("emb-dropout", emb_dropout, 0, 0.99, TAG_SAVED, "Dropout of embedding and output (ls)."),
    NUM("att-dropout", att_dropout, 0, 0.99, TAG_SAVED, "Dropout of attention weights (txl)."),
    INT("seed", c.seed, 0, OPT_BIG, TAG_SAVED, "Of initial weights and dropout."),
    CHOICE("recompute", recompute, "none|attention|block", TAG_SAVED,
           "What backward computes again instead of keeping it: less memory, more time."),
    HEADING("REPORTS AND CHECKPOINTS"),
    INT("log-every", c.log_every, 1, OPT_BIG, TAG_FREE, "Updates between reports."),
    INT("eval-every", c.eval_every, 0, OPT_BIG, TAG_FREE,
        "Updates between validations; 0: only at the end."),
    INT("eval-tokens", eval_tokens, 0, OPT_BIG, TAG_FREE,
        "Tokens of a validation; 0: the whole validation text."),
    INT("checkpoint-every", c.checkpoint_every, 0, OPT_BIG, TAG_FREE,
        "Updates between checkpoints; 0: only at the end."),
    HEADING("MACHINE"),
    OPTIONS_MACHINE(settings, TAG_SAVED),
    FLAG("check-finite", check_finite, 0,
         "Look for NaN and infinity in every result and gradient, and name the op that made the "
         "first one. Slow; changes no result."),
    FLAG("graph", graph, 0,
         "CUDA: launch forward and backward as one recorded graph: small models gain, results stay "
         "the same. No effect with --accumulation."),
    FLAG("profile", profile, 0, "At the end, print the time that each op took."),
    { 0 },
};
