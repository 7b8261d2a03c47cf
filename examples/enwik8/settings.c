/* settings.c - the flags of `enwik8 train`: one row each, which also is how the setting is stored
 * in checkpoints and config.json. */
#include "settings.h"

#define S settings

const tp_option train_options[] = {
    TP_HEADING("DATA AND RUN"),
    TP_STRING("data", S, data, "FILE", TP_FREE, TEXT_FILE),
    TP_STRING(
        "extra", S, extra, "FILE", TP_FREE,
        "More text for training, behind the training part of --data; validation and test stay as "
        "they are. The dictionary counts it too."),
    TP_CHOICE(
        "style", S, style, "auto|enwik8|text8|bytes", TP_SAVED,
        "How bytes become tokens. enwik8: newline ends a line, other bytes by frequency. text8: "
        "letters and blanks. bytes: token = byte. auto: text8 if the text has only a-z and "
        "blanks, else enwik8."),
    TP_STRING("init", S, train.init, "FILE", 0,
              "Begin with the weights and the dictionary of this checkpoint: how a phase starts "
              "from the one before. Optimiser, schedule and data position start afresh."),
    TP_ROWS(tp_run_options),
    TP_HEADING("PRESETS"),
    TP_CHOICE(
        "preset", S, preset, "tiny|mini|small|large", TP_SAVED,
        "Sets everything below; other flags override. small and large: the paper's 44M and 110M "
        "models. tiny: for a first run on any machine. mini: the best that a few megabytes of text "
        "and half an hour on two cores give."),
    TP_INT("phase", S, phase, 1, 3, TP_SAVED,
           "Phase of the paper's training: segments of 2048, 4096, 8192 tokens."),
    TP_CHOICE("model", S, model, "ls|txl", TP_WEIGHTS,
              "Transformer-LS, or the baseline Transformer-XL."),
    TP_HEADING("MODEL"),
    TP_INT("layers", S, layers, 1, 128, TP_WEIGHTS, "Layers."),
    TP_INT("dim", S, dim, 2, 65536, TP_WEIGHTS, "Width."),
    TP_INT("hidden", S, hidden, 1, 1048576, TP_WEIGHTS, "Width of the feed-forward part."),
    TP_INT("heads", S, heads, 1, 1024, TP_WEIGHTS, "Attention heads."),
    TP_INT("d-head", S, d_head, 1, 65536, TP_WEIGHTS,
           "Width of a head (txl; in ls it is dim / heads)."),
    TP_INT("chunk", S, chunk, 1, 65536, TP_WEIGHTS,
           "Tokens that a projected vector summarises (ls)."),
    TP_INT("rank", S, rank, 0, 1024, TP_WEIGHTS,
           "Projected vectors of a chunk; 0: none, the window alone (ls)."),
    TP_INT("window", S, window, 0, 1048576, TP_WEIGHTS,
           "Tokens that attention sees one by one; 0: none, only projected vectors of the chunks "
           "before a token's own (ls)."),
    TP_FLAG("dual-ln", S, dual_ln, TP_WEIGHTS,
            "Norms of their own for keys and values of the window and of the projections; off: "
            "neither (ls)."),
    TP_INT("mem-len", S, mem_len, 0, 16777216, TP_SAVED, "Rows of the cache of earlier segments."),
    TP_INT("clamp", S, clamp, 0, 16777216, TP_SAVED, "Largest distance told apart; 0: all are."),
    TP_INT("chunk-clamp", S, chunk_clamp, 0, 16777216, TP_SAVED,
           "The same for distances between chunks (ls)."),
    TP_FLAG("bias", S, bias, TP_WEIGHTS,
            "Biases in the projections of queries, keys and values (ls)."),
    TP_FLAG("pre-ln", S, pre_ln, TP_WEIGHTS,
            "Normalise before each part of a block, not after it."),
    TP_FLAG("gelu", S, gelu, TP_WEIGHTS, "GELU in the feed-forward part, not ReLU (ls)."),
    TP_FLAG("masked", S, masked, TP_WEIGHTS,
            "Empty rows of the cache are invisible; "
            "else they are zeros that take part, as in the official code (ls)."),
    TP_FLAG("segment-window", S, segment_window, TP_WEIGHTS,
            "The paper's segment-wise window, not the code's window of each token (ls)."),
    TP_FLAG("ln-local", S, ln_local, TP_WEIGHTS,
            "The local norm comes before the projection too (ls)."),
    TP_FLAG("project-first", S, project_first, TP_WEIGHTS,
            "Cached chunks are projected before they are compressed (ls)."),
    TP_FLAG("same-length", S, same_length, TP_SAVED,
            "Every query sees exactly mem-len tokens (txl)."),
    TP_HEADING("TRAINING"),
    TP_INT("steps", S, train.steps, 1, TP_BIG, TP_FREE, "Updates in all."),
    TP_NUM("time", S, train.time, 0, TP_BIG, 0,
           "Stop after so many seconds, with a validation and a checkpoint; 0: never."),
    TP_INT("batch", S, train.batch, 1, 65536, TP_SAVED,
           "Streams of text that advance side by side."),
    TP_INT("tokens", S, tokens, 2, 16777216, TP_SAVED, "Tokens of a segment."),
    TP_INT("accumulation", S, train.accumulation, 1, 65536, TP_SAVED,
           "Consecutive segments in one update."),
    TP_CHOICE("targets", S, targets, "all|official", TP_SAVED,
              "all: every token is predicted. official: "
              "the first of each segment is not, as in the official code."),
    TP_NUM("lr", S, train.lr, 0, 1000, TP_SAVED,
           "Learning rate; 0: the preset's, which for text8 is twice that for enwik8."),
    TP_ROWS(tp_rate_options),
    TP_ROWS(tp_optimizer_options),
    TP_NUM("dropout", S, dropout, 0, 0.99, TP_SAVED, "Dropout."),
    TP_NUM("emb-dropout", S, emb_dropout, 0, 0.99, TP_SAVED,
           "Dropout of embedding and output (ls)."),
    TP_NUM("att-dropout", S, att_dropout, 0, 0.99, TP_SAVED, "Dropout of attention weights (txl)."),
    TP_INT("seed", S, train.seed, 0, TP_BIG, TP_SAVED, "Of initial weights and dropout."),
    TP_ROWS(tp_recompute_options),
    TP_HEADING("REPORTS AND CHECKPOINTS"),
    TP_INT("eval-every", S, train.eval_every, 0, TP_BIG, TP_FREE,
           "Updates between validations; 0: only at the end."),
    TP_INT("eval-tokens", S, eval_tokens, 0, TP_BIG, TP_FREE,
           "Tokens of a validation; 0: the whole validation text."),
    TP_ROWS(tp_report_options),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_device_options),
    { 0 },
};
