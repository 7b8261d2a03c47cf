/* settings.h - everything that `enwik8 train` can be told, and the recipes that fill it. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <options.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum model_kind { MODEL_LS, MODEL_TXL } model_kind;
typedef enum preset { PRESET_TINY, PRESET_MINI, PRESET_SMALL, PRESET_LARGE } preset;
typedef enum targets { TARGETS_ALL, TARGETS_OFFICIAL } targets;
typedef enum optimizer { OPTIMIZER_ADAMW, OPTIMIZER_ADAM, OPTIMIZER_SGD } optimizer;
typedef enum schedule {
    SCHEDULE_CONSTANT,
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_STEP,
    SCHEDULE_ONECYCLE
} schedule;

typedef struct settings {
    common_settings c;
    bool overwrite, plan, check_finite, profile, graph;
    char *init, *extra;
    int style; /* tp_text_style */

    int preset, model;
    int64_t phase;

    int64_t layers, dim, hidden, heads, d_head, chunk, rank, window, mem_len;
    int64_t clamp, chunk_clamp;
    bool bias, pre_ln, gelu, masked, segment_window, ln_local, project_first, dual_ln, same_length;

    int64_t tokens, accumulation, warmup, lr_every;
    int targets, schedule, optimizer, recompute;
    double lr_end, lr_factor, weight_decay, beta1, beta2, eps, momentum, clip, ema;
    double dropout, emb_dropout, att_dropout;
    bool nesterov;

    int64_t eval_tokens;
    double time;
} settings;

/* What a row of the table means for checkpoints. */
enum {
    TAG_SAVED = 1, /* part of last.safetensors: a resumed run keeps it            */
    TAG_FREE = 2,  /* saved, but a resumed run may change it                      */
    TAG_MODEL = 4  /* saved, and --init wants it equal: it decides what weights mean */
};

extern const option train_options[];

/* The preset's recipe: model, preset, phase -> all the rest. False with the reason in why if there
 * is no such phase. s->c.lr is left 0: it depends on the text (preset_lr). */
bool settings_preset(settings *s, char *why, size_t size);
double preset_lr(const settings *s, bool text8);

#endif
