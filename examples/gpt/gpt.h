/* gpt.h - shared by the commands: settings of training, models and vocabularies of files,
 * scores. */
#ifndef GPT_PROGRAM_H
#define GPT_PROGRAM_H

#include <tapegrad/clm.h>
#include <tapegrad/gpt.h>
#include <tapegrad/train.h>

#include "gpt_commands.h"
#include "reports/adaptations.h"
#include "reports/models.h"
#include "reports/tokenizers.h"

/* ---- the model ---- */

#define MODEL_DEFAULT "gpt2-mini"

/* The names of the models of these forms; NULL past the last. */
const char *gpt_model_known(int i);

/* The model that a file holds: one of our checkpoints, or published weights, described by the
 * config.json beside them or by `name`, which may be NULL. F gets our names. False with a full
 * sentence in why. */
bool gpt_model_of_file(tp_model_cfg *c, const char *name, tp_file *F, char *why, size_t size);

/* The model of that name; NULL: MODEL_DEFAULT. False with a full sentence in why. */
bool gpt_model_of_name(tp_model_cfg *c, const char *name, char *why, size_t size);

const tp_gpt_cfg *gpt_cfg(const tp_model_cfg *c);

/* "gpt2: 4 layers, width 128, 4 heads, at most 512 tokens". Returns buf. */
const char *gpt_model_text(const tp_model_cfg *c, char *buf, size_t size);

/* ---- the vocabulary ---- */

#define OPTION_TOKENIZER(S, at, tag)                                                               \
    TP_STRING("tokenizer", S, at, "FILE", tag,                                                     \
              "The vocabulary: tokenizer.json; vocab.json with merges.txt beside it; "             \
              "encoder.json with vocab.bpe; or the folder that holds them. If not given: the one " \
              "in the file of the weights or beside it; for a new model, bytes.")

/* Opens the vocabulary at path; without one that in F or beside it; without F, bytes. NULL with the
 * reason in why. */
tp_bpe *gpt_tokenizer(const char *path, const tp_file *F, char *why, size_t size);

/* The token that ends documents: TP_BPE_END_OF_TEXT, else </s>, else "": none. */
const char *gpt_separator(const tp_bpe *X);

/* ---- texts ---- */

typedef struct text_source {
    char *paths;   /* separated by commas */
    int documents; /* tp_document_end */
    char *cache;
    int64_t limit;
    double held_out; /* below 0: none */
    int threads;
} text_source;

/* Never NULL, see tp_corpus_why, unless why says that there are too many paths. */
tp_corpus *gpt_texts(const text_source *x, const tp_bpe *X, char *why, size_t size);

/* ---- scores ---- */

typedef struct text_sum {
    double nats, targets, bytes; /* sums over the targets; `bytes` that they stand for */
} text_sum;

/* Adds what the model thinks of a batch. Resets T. */
void gpt_score(text_sum *sum, tp_tape *T, const tp_net *m, const tp_bpe *X, const tp_clm_batch *b);
double gpt_bits_per_byte(const text_sum *s);
double gpt_perplexity(const text_sum *s); /* per token */

/* ---- trained models ---- */

typedef struct gpt_source {
    tp_trained_settings t; /* first */
    char *model, *tokenizer, *adapter;
} gpt_source;

/* Option rows for settings S that begin with a gpt_source c. */
#define OPTIONS_TRAINED(S)                                                                         \
    TP_ROWS(tp_trained_options),                                                                   \
        TP_STRING_OF("model", S, c.model, "NAME", gpt_model_known, 0,                              \
                     "The model of published weights (--checkpoint model.safetensors), as gpt2, "  \
                     "where no config.json lies beside them; tp-models lists them."),              \
        OPTION_TOKENIZER(S, c.tokenizer, 0),                                                       \
        TP_STRING("adapter", S, c.adapter, "FILE", 0,                                              \
                  "Low-rank adaptations that are added to the weights: adapter.safetensors of "    \
                  "'gpt train --lora', or a file of the package peft, whose "                      \
                  "adapter_config.json must lie beside it.")

typedef struct gpt_file {
    tp_trained t;
    tp_bpe *vocab;
    tp_model_cfg cfg;
    int64_t window; /* tokens that it was trained on at a time */
    char *adapter;  /* the settings' */
    tp_net *m;
} gpt_file;

/* Reads what the file says of the model and its vocabulary; then loads the weights. False with the
 * reason in t.why; close in either case. */
bool gpt_file_open(gpt_file *f, const gpt_source *c);
bool gpt_file_load(gpt_file *f, const tp_machine_settings *o);
void gpt_file_close(gpt_file *f);

/* ---- settings of `gpt train` ---- */

enum { ATTENTION_AS_IT_IS, ATTENTION_FULL, ATTENTION_LS };

typedef struct gpt_settings {
    tp_train_settings train; /* first */
    text_source x;
    char *tokenizer, *model, *set;
    adaptation lora;
    int recipe, attention; /* attention: ATTENTION_... */
    int64_t tokens, eval_windows;
    double dropout;
} gpt_settings;

extern const tp_option gpt_options[];

/* A tp_training's settings_of. */
bool gpt_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                     size_t size);

/* Changes c as the flags ask. False with the reason in why. */
bool gpt_change(tp_model_cfg *c, const gpt_settings *s, char *why, size_t size);

#endif
