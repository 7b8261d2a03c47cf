/* settings.h - the settings of `enwik8 train`, and the presets that fill them. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <tapegrad/train.h>

typedef enum preset { PRESET_TINY, PRESET_MINI, PRESET_SMALL, PRESET_LARGE } preset;
typedef enum targets { TARGETS_ALL, TARGETS_OFFICIAL } targets;

typedef struct settings {
    tp_train_settings train; /* first: the engine's */
    char *data, *extra, *vocab;
    int style; /* tp_text_style */

    int preset, model; /* model: lm_kind_at */
    int64_t phase;

    int64_t layers, dim, hidden, heads, d_head, chunk, rank, window, mem_len;
    int64_t clamp, chunk_clamp;
    bool bias, pre_ln, gelu, masked, segment_window, ln_local, project_first, dual_ln, same_length;

    int64_t tokens;
    int targets;
    double dropout, emb_dropout, att_dropout;
    int64_t eval_tokens;
} settings;

/* The help of --data. */
#define TEXT_FILE                                                                                  \
    "The text: enwik8, text8 or any file, plain or compressed with gzip, xz, zip, zstd or bzip2."

extern const tp_option train_options[];

/* Sets the defaults that do not depend on a preset, then those of the given preset. False with the
 * reason in why. */
bool settings_start(settings *s, int model, int preset, int64_t phase, char *why, size_t size);

/* Sets everything that model, preset and phase determine. False with the reason in why if
 * there is no such phase. Leaves s->train.lr 0, because it depends on the text (preset_lr). */
bool settings_preset(settings *s, char *why, size_t size);
double preset_lr(const settings *s, bool text8);

#endif
