/* text_model.h - the program's model: RoBERTa, Longformer or long-short RoBERTa, chosen by a preset, a checkpoint of
 * this program or a published file, with changes by flags. */
#ifndef TEXT_MODEL_H
#define TEXT_MODEL_H

#include <tapegrad/options.h>
#include <tapegrad/roberta.h>

typedef struct text_model {
    tp_roberta_cfg cfg;
    tp_net *net;
} text_model;

/* ---- choosing ---- */

/* What the flags say. A number of 0, and a rank or a dropout of -1, leave the value as it is. */
typedef struct model_choice {
    char *preset; /* "KIND-SIZE" of roberta.h; NULL: the model of the file, or roberta-mini */
    int64_t layers, dim, heads, hidden, length, window, rank;
    int dual_ln; /* DUAL_LN_... */
    double dropout, attention_dropout;
} model_choice;

enum { DUAL_LN_AS_IT_IS, DUAL_LN_ON, DUAL_LN_OFF };
extern const model_choice model_as_it_is;
#define MODEL_DEFAULT "roberta-mini"

/* Name i of the presets of text models, without heads; NULL past the last. */
const char *model_preset_known(int i);

/* Rows of a table for settings S that hold a model_choice as member `at`. */
/* clang-format off */
#define OPTION_MODEL(S, at, tag) \
    TP_STRING_OF("preset", S, at.preset, "NAME", model_preset_known, tag, \
                 "The model, KIND-SIZE. KIND: roberta (full attention, 512 tokens), longformer (a window and " \
                 "global tokens, 4096) or roberta_ls (long-short attention, 4096). SIZE: base, large, or mini (4 " \
                 "layers of width 256). If not given: the model of the file that holds the weights or, without such " \
                 "a file, roberta-mini.")
#define OPTIONS_MODEL(S, at, tag) \
    TP_INT("length", S, at.length, 0, 1 << 20, tag, \
           "The most tokens of a text, <s> and </s> included; longer texts are cut. A model with more positions " \
           "than its file repeats those of the file. 0: the model's."), \
    TP_INT("window", S, at.window, 0, 1 << 20, tag, \
           "longformer: tokens of the window, half of them on either side. roberta_ls: tokens of a segment, which " \
           "see themselves and half as many to either side. 0: the model's."), \
    TP_INT("rank", S, at.rank, -1, 1 << 20, tag, "roberta_ls: number of projections; -1: the model's."), \
    TP_CHOICE("dual-ln", S, at.dual_ln, "as-it-is|on|off", tag, \
              "roberta_ls: one layer norm for keys and values of the window, another for the projected ones. off " \
              "keeps a converted RoBERTa closer to what it was."), \
    TP_INT("layers", S, at.layers, 0, TP_ROBERTA_MAX_LAYERS, tag, "Layers; 0: the model's."), \
    TP_INT("dim", S, at.dim, 0, 65536, tag, "Width; 0: the model's."), \
    TP_INT("heads", S, at.heads, 0, 65536, tag, \
           "Attention heads; 0: the model's. Those of a published file are in the config.json beside it; without " \
           "one, a head is taken to be 64 wide."), \
    TP_INT("hidden", S, at.hidden, 0, 1 << 20, tag, "Hidden width of the feed-forward layers; 0: the model's.")
#define OPTIONS_DROPOUT(S, at, tag) \
    TP_NUM("dropout", S, at.dropout, -1, 0.99, tag, "Dropout of embeddings, layers and head; -1: the model's."), \
    TP_NUM("attention-dropout", S, at.attention_dropout, -1, 0.99, tag, \
           "Dropout of attention; -1: the model's.")
/* clang-format on */

/* The configuration of the model in a file: its metadata, or for a published file, whose tensors get our names, what
 * the shapes of its tensors and the config.json beside it tell. False with a full sentence in why. */
bool model_describe(tp_roberta_cfg *c, tp_file *F, char *why, size_t size);

/* The model of the preset or, without one, of the file, with the changes of the choice, for that head. Layers and
 * widths are the file's in either case. from may be NULL. classes: of TP_ROBERTA_CLS. False with the reason in why. */
typedef struct model_wish {
    tp_roberta_head head;
    int64_t vocab, classes;
} model_wish;
bool model_choose(tp_roberta_cfg *c, const model_choice *o, tp_file *from, model_wish wish,
                  char *why, size_t size);

/* "roberta_ls: 4 layers, width 256, 4 heads, at most 4096 tokens, window 256, rank 64". */
const char *model_text(const tp_roberta_cfg *c, char *buf, size_t size);

/* ---- using ---- */

void model_write(const tp_roberta_cfg *c, tp_writer *W); /* as metadata of a checkpoint */

/* Declares the parameters; a failure is P's error. Free the model before P. free ignores one that was never
 * declared. */
void model_init(tp_params *P, text_model *m, const tp_roberta_cfg *c);
void model_free(text_model *m);
const tp_roberta *model_of(const text_model *m);

/* Loads the weights of a file. converted: of a model that may have another attention, length or head (tp_roberta_load);
 * otherwise everything must be there. False: see tp_params_why. */
TP_CHECKED bool model_load(tp_params *P, const text_model *m, tp_file *F, bool converted);

#endif
