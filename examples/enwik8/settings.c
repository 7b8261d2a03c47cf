/* settings.c - the flags of `enwik8 train` and its presets, which combine a row of the model table
 * with a recipe. A row of the flags also defines how the setting is stored in checkpoints and
 * config.json. */
#include <stdio.h>

#include "enwik8.h"
#include "reports/models.h"

#define S settings

const tp_option train_options[] = {
    TP_HEADING("DATA AND RUN"),
    TP_STRING("data", S, data, "FILE", TP_FREE, TEXT_FILE),
    TP_STRING(
        "extra", S, extra, "FILE", TP_FREE,
        "More text for training, appended to the training part of --data. Validation and test "
        "text do not change; the dictionary covers both files."),
    TP_CHOICE(
        "style", S, style, "auto|enwik8|text8|bytes|txl", TP_SAVED,
        "How bytes map to tokens. enwik8: an end-of-line token, then bytes by frequency. text8: "
        "letters and spaces. bytes: token = byte. txl: as in Transformer-XL's code, bytes by "
        "frequency without newlines. auto: text8 if the text has only a-z and spaces, else "
        "enwik8."),
    TP_STRING(
        "init", S, train.init, "FILE", 0,
        "Start from the weights and the dictionary of this checkpoint, as each phase does "
        "from the previous one. Optimiser, schedule and data position start from the "
        "beginning. FILE may also be a publisher's: safetensors, PyTorch's .pth, .pt or .bin."),
    TP_STRING(
        "vocab", S, vocab, "FILE", 0,
        "The dictionary of a publisher's weights (--init), as fairseq writes it (dict.txt). If "
        "not given, it is built from --data by the rule of the official code."),
    TP_ROWS(tp_run_options),
    TP_HEADING("PRESETS"),
    TP_CHOICE(
        "preset", S, preset, PRESET_NAMES, TP_SAVED,
        "Sets everything below; other flags override it. small and large: the paper's 44M and "
        "110M models. tiny: a first run on any machine. mini: for a few megabytes of text and "
        "half an hour on two cores."),
    TP_INT("phase", S, phase, 1, 3, TP_SAVED,
           "Phase of the paper's training: segments of 2048, 4096 or 8192 tokens."),
    TP_CHOICE("model", S, model, "ls|txl", TP_WEIGHTS,
              "Transformer-LS, or the baseline Transformer-XL."),
    TP_HEADING("MODEL"),
    TP_INT("layers", S, layers, 1, 128, TP_WEIGHTS, "Layers."),
    TP_INT("dim", S, dim, 2, 65536, TP_WEIGHTS, "Width."),
    TP_INT("hidden", S, hidden, 1, 1048576, TP_WEIGHTS, "Hidden width of the feed-forward layer."),
    TP_INT("heads", S, heads, 1, 1024, TP_WEIGHTS, "Attention heads."),
    TP_INT("d-head", S, d_head, 1, 65536, TP_WEIGHTS,
           "Width of a head (txl; ls uses dim / heads)."),
    TP_INT("chunk", S, chunk, 1, 65536, TP_WEIGHTS,
           "Tokens of a chunk, which the dynamic projection compresses to --rank vectors (ls)."),
    TP_INT("rank", S, rank, 0, 1024, TP_WEIGHTS,
           "Projected vectors per chunk; 0: none, attention sees only the window (ls)."),
    TP_INT("window", S, window, 0, 1048576, TP_WEIGHTS,
           "Tokens that attention sees individually; 0: none, only the projected vectors of the "
           "chunks before a token's own (ls)."),
    TP_INT("window-heads", S, window_heads, 0, 1024, TP_WEIGHTS,
           "This many of the --heads see only the window, the others only the projected vectors; "
           "0: every head sees both (ls)."),
    TP_FLAG("dual-ln", S, dual_ln, TP_WEIGHTS,
            "DualLN: one layer norm for keys and values of the window, another for those of the "
            "projections; off: neither (ls)."),
    TP_INT("mem-len", S, mem_len, 0, 16777216, TP_SAVED,
           "Tokens of earlier segments in the cache."),
    TP_INT("clamp", S, clamp, 0, 16777216, TP_SAVED,
           "Larger distances share one position embedding; 0: no limit."),
    TP_INT("chunk-clamp", S, chunk_clamp, 0, 16777216, TP_SAVED,
           "The same for distances between chunks (ls)."),
    TP_FLAG("bias", S, bias, TP_WEIGHTS,
            "Biases in the projections of queries, keys and values (ls)."),
    TP_FLAG("pre-ln", S, pre_ln, TP_WEIGHTS,
            "Layer norm before each sublayer instead of after it."),
    TP_FLAG("gelu", S, gelu, TP_WEIGHTS, "GELU instead of ReLU in the feed-forward layer (ls)."),
    TP_FLAG("masked", S, masked, TP_WEIGHTS,
            "Mask empty rows of the cache; off: attention sees them as zeros, as in the official "
            "code (ls)."),
    TP_FLAG("segment-window", S, segment_window, TP_WEIGHTS,
            "The paper's segment-wise window instead of the official code's sliding window (ls)."),
    TP_FLAG("ln-local", S, ln_local, TP_WEIGHTS,
            "Apply the local layer norm before the dynamic projection too (ls)."),
    TP_FLAG("project-first", S, project_first, TP_WEIGHTS,
            "Project cached chunks to keys and values before compressing them (ls)."),
    TP_FLAG("same-length", S, same_length, TP_SAVED,
            "Every query sees exactly --mem-len tokens (txl)."),
    OPTION_MEMBERS(
        S, set, TP_WEIGHTS,
        "Changes members of the model by their names in checkpoints, as n_layer=6,dual_ln=off; "
        "no flag may contradict it"),
    TP_HEADING("TRAINING"),
    TP_INT("steps", S, train.steps, 1, TP_BIG, TP_FREE, "Total updates."),
    TP_NUM("time", S, train.time, 0, TP_BIG, 0,
           "Stop after this many seconds, with a validation and a checkpoint; 0: no limit."),
    TP_INT("batch", S, train.batch, 1, 65536, TP_SAVED,
           "Streams of text that are processed in parallel."),
    TP_INT("tokens", S, tokens, 2, 16777216, TP_SAVED, "Tokens of a segment."),
    TP_INT("accumulation", S, train.accumulation, 1, 65536, TP_SAVED,
           "Consecutive segments of a stream in one update."),
    TP_CHOICE("targets", S, targets, "all|official", TP_SAVED,
              "all: predict every token. official: all but the first token of each segment, as in "
              "the official code."),
    TP_NUM("lr", S, train.lr, 0, 1000, TP_SAVED,
           "Learning rate; 0: the preset's, which depends on whether the text is text8."),
    TP_ROWS(tp_rate_options),
    TP_ROWS(tp_optimizer_options),
    TP_NUM("dropout", S, dropout, 0, 0.99, TP_SAVED, "Dropout."),
    TP_NUM("emb-dropout", S, emb_dropout, 0, 0.99, TP_SAVED,
           "Dropout on the embeddings and on the output (ls)."),
    TP_NUM("att-dropout", S, att_dropout, 0, 0.99, TP_SAVED, "Dropout on the attention weights."),
    TP_INT("seed", S, train.seed, 0, TP_BIG, TP_SAVED, "Seed of initial weights and dropout."),
    TP_ROWS(tp_recompute_options),
    TP_HEADING("REPORTS AND CHECKPOINTS"),
    TP_INT("eval-every", S, train.eval_every, 0, TP_BIG, TP_FREE,
           "Updates between validations; 0: only at the end of the run."),
    TP_INT("eval-tokens", S, eval_tokens, 0, TP_BIG, TP_FREE,
           "Tokens scored by a validation; 0: the whole validation text."),
    TP_ROWS(tp_report_options),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_device_options),
    { 0 },
};

/* ---- presets ---- */

static const char *const words[LM_PRESETS] = { "tiny", "mini", "small", "large" };

const char *lm_preset_name(int which)
{
    return words[which];
}

bool lm_preset(tp_model_cfg *c, int model, int which, char *why, size_t size)
{
    char name[64];
    snprintf(name, sizeof name, "%s-%s-enwik8", lm_kind_at(model)->rows, words[which]);
    return tp_model_preset(c, name, why, size);
}

double preset_lr(const settings *s, bool text8)
{
    const lm_recipe *r = lm_recipe_of(s);
    return text8 ? r->lr_text8 : r->lr;
}

static void take_recipe(settings *s, const lm_recipe *r)
{
    s->tokens = r->tokens;
    s->mem_len = r->cache;
    s->dropout = s->emb_dropout = r->dropout;
    s->eval_tokens = r->eval_tokens;
    s->train.steps = r->steps;
    s->train.warmup = (double)r->warmup;
    s->train.batch = r->batch;
    s->train.lr = 0; /* preset_lr */
    s->train.lr_end = r->lr_end;
    s->train.schedule = r->schedule;
    tp_train_set(&s->train, "weight_decay", r->weight_decay);
    s->train.clip = r->clip;
    s->train.log_every = r->log_every;
    s->train.eval_every = r->eval_every;
    s->train.checkpoint_every = r->checkpoint_every;
}

bool settings_preset(settings *s, char *why, size_t size)
{
    const lm_recipe *r = lm_recipe_of(s);
    const lm_kind *k = lm_kind_at(s->model);
    tp_model_cfg c;
    if (!r) {
        snprintf(why, size, "--phase %lld: this preset has only one phase", (long long)s->phase);
        return false;
    }
    if (!lm_preset(&c, s->model, s->preset, why, size)) return false;
    lm_cfg_into(&c, s);
    s->d_head = s->dim / s->heads;
    tp_train_choose(&s->train, k->optimizer);
    take_recipe(s, r);
    return true;
}

bool settings_start(settings *s, int model, int which, int64_t phase, char *why, size_t size)
{
    *s = (settings){
        .train = tp_train_defaults("runs/enwik8"),
        .model = model,
        .preset = which,
        .phase = phase,
        .chunk = 16,
        .rank = 1,
        .window = 64,
        .dual_ln = true,
    };
    s->train.seed = 2;
    return settings_preset(s, why, size);
}

/* ---- --set ---- */

/* Applies the given flags except texts, which do not describe the model. */
static bool take_given(settings *s, const settings *asked, const tp_given_flags *given, char *why,
                       size_t size)
{
    for (int i = 0; i < given->n; i++) {
        const tp_option *o = tp_option_find(train_options, given->name[i]);
        char value[256];
        if (!o || o->kind == TP_OPTION_TEXT) continue;
        tp_option_get(o, asked, value, sizeof value);
        if (!tp_option_set(o, s, value, why, size)) return false;
    }
    return true;
}

/* Do all values fit the ranges of their flags, as a resumed run requires? --set may exceed them. */
static bool fit_flags(settings *s, char *why, size_t size)
{
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(train_options, row);
    for (int i = 0; i < n; i++) {
        char value[256], reason[256];
        if (row[i]->kind == TP_OPTION_TEXT) continue;
        tp_option_get(row[i], s, value, sizeof value);
        if (tp_option_set(row[i], s, value, reason, sizeof reason)) continue;
        snprintf(why, size, "--set: --%s: %s", row[i]->name, reason);
        return false;
    }
    return true;
}

bool settings_set(settings *s, const settings *asked, const tp_given_flags *given, char *why,
                  size_t size)
{
    enum { ANY = 8 }; /* tokens; the text's number is not known yet */
    static const char *const set_by[TP_COMMON_KINDS] = { [TP_COMMON_OUTPUTS] =
                                                             "the dictionary of the text" };
    settings all = *s;
    if (!take_given(&all, asked, given, why, size)) return false;
    tp_model_cfg c = lm_cfg_of(&all, ANY);
    if (!model_set(&c, asked->set, set_by, why, size)) return false;
    lm_cfg_into(&c, s);
    if (!fit_flags(s, why, size)) return false;
    all = *s;
    if (!take_given(&all, asked, given, why, size)) return false;
    const tp_model_cfg flags = lm_cfg_of(&all, ANY);
    return model_set_agrees(&c, &flags, why, size);
}
