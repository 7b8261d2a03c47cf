/* enwik8.h - shared by the commands: training settings, kinds of language models, trained
 * models. */
#ifndef ENWIK8_H
#define ENWIK8_H

#include <tapegrad/data.h>
#include <tapegrad/lm.h>
#include <tapegrad/train.h>

/* ---- the subcommands ---- */

int train_main(int argc, char **argv);
int eval_main(int argc, char **argv);
int generate_main(int argc, char **argv);
int scale_main(int argc, char **argv);
int norms_main(int argc, char **argv);

/* ---- settings of `enwik8 train`, and the presets that fill them ---- */

/* The values of --preset, and their names. */
typedef enum preset { PRESET_TINY, PRESET_MINI, PRESET_SMALL, PRESET_LARGE } preset;
#define PRESET_NAMES "tiny|mini|small|large"
typedef enum targets { TARGETS_ALL, TARGETS_OFFICIAL } targets;

typedef struct settings {
    tp_train_settings train; /* first: the engine's */
    char *data, *extra, *vocab;
    char *set; /* member changes; NULL: none */
    int style; /* tp_text_style */

    int preset, model; /* model: lm_kind_at */
    int64_t phase;

    int64_t layers, dim, hidden, heads, window_heads, d_head, chunk, rank, window, mem_len;
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

/* Sets the defaults common to all presets, then those of the given one. False with the reason in
 * why if there is no such phase. Leaves s->train.lr 0, since it depends on the text (preset_lr). */
bool settings_start(settings *s, int model, int preset, int64_t phase, char *why, size_t size);

/* The model of a preset, for enwik8's vocabulary. False with the reason in why. */
bool lm_preset(tp_model_cfg *c, int model, int which, char *why, size_t size);
const char *lm_preset_name(int which);

bool settings_preset(settings *s, char *why,
                     size_t size); /* what model, preset and phase determine */
/* Applies asked->set along with the given flags. False with the reason in why, also if a given flag
 * contradicts it. */
bool settings_set(settings *s, const settings *asked, const tp_given_flags *given, char *why,
                  size_t size);
double preset_lr(const settings *s, bool text8);

/* ---- what a language model adds to tapegrad/model.h ---- */

/* One phase of training. */
typedef struct lm_recipe {
    int64_t tokens, cache; /* tokens of a segment, and cached before it */
    int64_t steps, warmup, batch;
    double lr, lr_text8, lr_end;
    int schedule;
    double dropout, weight_decay, clip;
    int64_t log_every, eval_every, eval_tokens, checkpoint_every;
} lm_recipe;

enum { LM_PRESETS = 4, LM_PHASES = 3 }; /* tiny, mini, small, large */

typedef struct lm_kind {
    const tp_model *model;
    const char *name;                        /* "Transformer-LS" */
    const char *rows;                        /* "ls_lm": prefix of ls_lm-tiny-enwik8 ... */
    const char *optimizer;                   /* --optimizer */
    bool raw_eps;                            /* of tp_train_optimizer */
    tp_text_style style;                     /* of the official dictionaries */
    lm_recipe recipe[LM_PRESETS][LM_PHASES]; /* [preset][phase - 1]; steps 0: no such phase */

    /* Convert the flags of MODEL to a configuration, and back. */
    void (*from)(const settings *s, int64_t vocab, void *cfg);
    void (*into)(const void *cfg, settings *s);
    /* False, with the reason in why, if a segment cannot have `tokens` tokens; the message names
     * `flag`, which sets them. NULL: any number is possible. */
    bool (*segment)(const void *cfg, const char *flag, int64_t tokens, char *why, size_t size);
    /* The shortest possible segment of at least `tokens` tokens, and a possible cache. NULL:
     * tokens. */
    int64_t (*round)(const void *cfg, int64_t tokens);
    /* True if the cache starts empty and grows; otherwise it starts as rows of zeros. */
    bool (*grows)(const settings *s);
    /* Applies flags of `eval`: maximum distances (negative: as trained), Transformer-XL's
     * window. */
    void (*limit)(void *cfg, int64_t clamp, int64_t chunk_clamp, bool same_length);
} lm_kind;

const lm_kind *lm_kind_at(int model);             /* by --model */
const lm_kind *lm_kind_of(const tp_model *model); /* NULL: none */
const lm_recipe *lm_recipe_of(const settings *s); /* NULL: no such phase */

/* Convert --model and the flags of MODEL to a configuration, and back; the number of tokens is not
 * included. */
tp_model_cfg lm_cfg_of(const settings *s, int64_t vocab);
void lm_cfg_into(const tp_model_cfg *c, settings *s);

/* Reads the configuration of a checkpoint. False with a full sentence in why. */
bool lm_cfg_read(tp_model_cfg *c, tp_file *F, char *why, size_t size);

bool lm_segment_check(const tp_model_cfg *c, const char *flag, int64_t tokens, char *why,
                      size_t size);

/* The tokens that a flag asks for, reduced to what `enough` tokens of text need, so that memory
 * follows the text and not the flag. */
int64_t lm_at_most(const tp_model_cfg *c, int64_t asked, int64_t enough);

/* Sets the rows of the cache; the weights do not depend on them. */
void lm_set_cache(tp_model_cfg *c, int64_t rows);

/* ---- a trained language model ---- */

/* First member of the settings of every command that runs a trained model: a checkpoint, or
 * published weights with their model and dictionary. */
typedef struct lm_source {
    tp_trained_settings t;
    char *weights, *preset; /* NULL: a checkpoint */
    char *data, *vocab;     /* the text; a dictionary for --weights */
} lm_source;

/* The names of the language models' presets; NULL past the last. */
const char *lm_preset_known(int i);
/* The model of one of them. False with a full sentence in why. */
bool lm_find_model(tp_model_cfg *cfg, const char *name, char *why, size_t size);

/* Option rows for such a command with settings type S. */
#define OPTIONS_PUBLISHED(S)                                                                       \
    TP_STRING("weights", S, c.weights, "FILE", 0,                                                  \
              "Published weights in place of a checkpoint: safetensors, PyTorch's .pth, .pt or "   \
              ".bin, or the index of several files. They need --preset and a dictionary."),        \
        TP_STRING_OF(                                                                              \
            "preset", S, c.preset, "NAME", lm_preset_known, 0,                                     \
            "The model of --weights: ls_lm-small, txl-base or another one that tp-models "         \
            "lists."),                                                                             \
        TP_STRING(                                                                                 \
            "vocab", S, c.vocab, "FILE", 0,                                                        \
            "The dictionary of --weights, as fairseq writes it (dict.txt). If not given, it is "   \
            "built from --data by the rule of the official code.")

typedef struct lm_file {
    tp_trained t;
    tp_vocab vocab;
    tp_model_cfg cfg;
    int64_t segment; /* tokens of a training segment */
    tp_net *m;
} lm_file;

/* Reads the dictionary of a checkpoint. False with a full sentence in why. */
bool lm_vocab_read(tp_vocab *v, const tp_file *F, char *why, size_t size);

/* Prepares published weights for the model of cfg and finds their dictionary: the file `vocab` or,
 * if that is NULL, the one the model's official code builds from the text `data`. False with a full
 * sentence in why. */
bool lm_published(tp_model_cfg *cfg, tp_file *F, const char *vocab, const char *data, tp_vocab *v,
                  char *why, size_t size);

/* Finds the checkpoint or published weights and reads configuration and dictionary. False with the
 * reason in t.why; close in either case. */
bool lm_file_open(lm_file *f, const lm_source *c);

/* Loads the weights into a model of f->cfg. The caller may first change members that the weights do
 * not depend on (cache, clamps). */
bool lm_file_load(lm_file *f, const tp_machine_settings *o);
void lm_file_close(lm_file *f);

/* ---- the cost of bytes missing from the dictionary ---- */

/* A dictionary with <unk> maps all missing bytes to one easily predicted token; Transformer-XL's
 * drops them. Both would flatter the score. So a token <unk> also costs log2 K bits, the choice
 * among the K missing bytes, and a dropped byte costs 8 bits. Every byte is then paid for: a text
 * of missing bytes costs about 8 bits each. */
typedef struct unknown_bytes {
    int32_t id;   /* the token <unk>; -2: none */
    int bytes;    /* K, the number of missing byte values */
    double nats;  /* log K */
    double share; /* dropped bytes per token of the part */
} unknown_bytes;

unknown_bytes unknown_of(const tp_text *X, tp_part part);

/* Counts the <unk> in n tokens. */
int64_t unknown_in(const unknown_bytes *u, const int32_t *tokens, int64_t n);

/* Bits per scored token, from the sum of nats; `unknown` of the `tokens` are <unk>. */
double unknown_bpc(const unknown_bytes *u, double nats, int64_t tokens, int64_t unknown);

/* Writes a sentence, if there are any, on how the score counts missing bytes of `what`. */
void unknown_say(const unknown_bytes *u, int64_t count, const char *what, char *buf, size_t size);

#endif
