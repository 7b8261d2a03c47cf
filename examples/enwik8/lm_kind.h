/* lm_kind.h - what enwik8 adds to tapegrad/model.h for a language model: the flags of its
 * configuration, and its recipes. One constant per model: lm_ls.c, lm_txl.c. */
#ifndef LM_KIND_H
#define LM_KIND_H

#include <tapegrad/data.h>
#include <tapegrad/models.h>

#include "settings.h"

/* One phase of training. */
typedef struct lm_recipe {
    int64_t tokens, cache; /* tokens of a segment, and cached tokens before it          */
    int64_t steps, warmup, batch;
    double lr, lr_text8, lr_end;
    int schedule;
    double dropout, weight_decay, clip;
    int64_t log_every, eval_every, eval_tokens, checkpoint_every;
} lm_recipe;

enum { LM_PRESETS = 4, LM_PHASES = 3 }; /* tiny, mini, small, large */

typedef struct lm_kind {
    const tp_model *model;
    const char *name;                        /* "Transformer-LS"                               */
    const char *rows;                        /* "ls_lm": prefix of ls_lm-tiny-enwik8 ...       */
    const char *optimizer;                   /* --optimizer                                    */
    bool raw_eps;                            /* of tp_train_optimizer                          */
    tp_text_style style;                     /* of the official code's dictionaries            */
    lm_recipe recipe[LM_PRESETS][LM_PHASES]; /* [preset][phase - 1]; steps 0: no such phase    */

    /* Converts the flags of MODEL to a configuration, and back. */
    void (*from)(const settings *s, int64_t vocab, void *cfg);
    void (*into)(const void *cfg, settings *s);
    /* False, with the reason in why, if a segment cannot have `tokens` tokens; the message names
     * `flag`, which sets them. NULL: any segment is possible. */
    bool (*segment)(const void *cfg, const char *flag, int64_t tokens, char *why, size_t size);
    /* The shortest segment of at least `tokens` tokens that is possible, and a possible cache. NULL: tokens. */
    int64_t (*round)(const void *cfg, int64_t tokens);
    /* True if the cache starts empty and grows, instead of starting with rows of zeros. */
    bool (*grows)(const settings *s);
    /* Applies flags of `eval`: largest distances (negative: as trained), Transformer-XL's window. */
    void (*limit)(void *cfg, int64_t clamp, int64_t chunk_clamp, bool same_length);
} lm_kind;

extern const lm_kind lm_kind_ls, lm_kind_txl;

const lm_kind *lm_kind_at(int model);             /* by --model      */
const lm_kind *lm_kind_of(const tp_model *model); /* NULL: none      */
const lm_recipe *lm_recipe_of(const settings *s); /* NULL: no such phase */

/* Convert --model and the flags of MODEL to a configuration, and back. */
tp_model_cfg lm_cfg_of(const settings *s, int64_t vocab);
void lm_cfg_into(const tp_model_cfg *c, settings *s);

/* Reads the configuration of a checkpoint. False with a full sentence in why. */
bool lm_cfg_read(tp_model_cfg *c, tp_file *F, char *why, size_t size);

bool lm_segment_check(const tp_model_cfg *c, const char *flag, int64_t tokens, char *why,
                      size_t size);

/* What a flag asks for in tokens, or what suffices for `enough` tokens if that is less, so that memory follows the text
 * and not the flag. */
int64_t lm_at_most(const tp_model_cfg *c, int64_t asked, int64_t enough);

/* Sets the rows of the cache, on which the weights do not depend. */
void lm_set_cache(tp_model_cfg *c, int64_t rows);

#endif
