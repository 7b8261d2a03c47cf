/* imdb.h - shared by the commands: the model, its vocabulary and classes, labelled texts and their
 * scores. */
#ifndef IMDB_H
#define IMDB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <tapegrad/bpe.h>
#include <tapegrad/document_loader.h>
#include <tapegrad/file.h>
#include <tapegrad/labelled_texts.h>
#include <tapegrad/options.h>
#include <tapegrad/roberta.h>
#include <tapegrad/train.h>

#include "reports/adaptations.h"
#include "reports/documents.h"
#include "reports/models.h"
#include "reports/tokenizers.h"

/* ---- the subcommands ---- */

int imdb_pretrain_main(int argc, char **argv);
int imdb_convert_main(int argc, char **argv);
int imdb_train_main(int argc, char **argv);
int imdb_eval_main(int argc, char **argv);
int imdb_norms_main(int argc, char **argv);
int imdb_predict_main(int argc, char **argv);

/* ---- the model: RoBERTa, Longformer or long-short RoBERTa ---- */

typedef struct text_model {
    tp_roberta_cfg cfg;
    tp_net *net;
} text_model;

/* Model flags. Sizes of 0, and a rank or dropout of -1, leave the value as it is. */
typedef struct model_choice {
    char *preset; /* "KIND-SIZE" of roberta.h; NULL: the file's, or roberta-mini */
    int64_t layers, dim, heads, hidden, length, window, rank;
    int dual_ln; /* DUAL_LN_... */
    double dropout, attention_dropout;
    char *set; /* member changes; NULL: none */
} model_choice;

enum { DUAL_LN_AS_IT_IS, DUAL_LN_ON, DUAL_LN_OFF };
extern const model_choice model_as_it_is;
#define MODEL_DEFAULT "roberta-mini"

/* Preset i of the text models, without heads; NULL past the last. */
const char *model_preset_known(int i);
/* The model of one of them. False with a full sentence in why. */
bool model_preset(tp_roberta_cfg *c, const char *name, char *why, size_t size);

/* Option rows for settings S with a model_choice member `at`. */
#define OPTIONS_MODEL(S, at, tag)                                                                  \
    TP_STRING_OF("preset", S, at.preset, "NAME", model_preset_known, tag,                          \
                 "The model, KIND-SIZE. KIND: roberta (full attention, 512 tokens), longformer "   \
                 "(a window and global tokens, 4096) or roberta_ls (long-short attention, "        \
                 "4096). SIZE: base, large, or mini (4 layers of width 256). If not given: the "   \
                 "model of the file that holds the weights or, without such a file, "              \
                 "roberta-mini."),                                                                 \
        TP_INT("length", S, at.length, 0, 1 << 20, tag,                                            \
               "The most tokens of a text, <s> and </s> included; longer texts are cut. A model "  \
               "with more positions than its file repeats those of the file. 0: the model's."),    \
        TP_INT(                                                                                    \
            "window", S, at.window, 0, 1 << 20, tag,                                               \
            "longformer: tokens of the window, half of them on either side. roberta_ls: tokens "   \
            "of a segment, which see themselves and half as many to either side. "                 \
            "0: the model's."),                                                                    \
        TP_INT("rank", S, at.rank, -1, 1 << 20, tag,                                               \
               "roberta_ls: number of projections; -1: the model's."),                             \
        TP_CHOICE("dual-ln", S, at.dual_ln, "as-it-is|on|off", tag,                                \
                  "roberta_ls: one layer norm for keys and values of the window, another for the " \
                  "projected ones. off keeps a converted RoBERTa closer to what it was."),         \
        TP_INT("layers", S, at.layers, 0, TP_ROBERTA_MAX_LAYERS, tag, "Layers; 0: the model's."),  \
        TP_INT("dim", S, at.dim, 0, 65536, tag, "Width; 0: the model's."),                         \
        TP_INT(                                                                                    \
            "heads", S, at.heads, 0, 65536, tag,                                                   \
            "Attention heads; 0: the model's. Those of a published file are in the config.json "   \
            "beside it; without one, a head is taken to be 64 wide."),                             \
        TP_INT("hidden", S, at.hidden, 0, 1 << 20, tag,                                            \
               "Hidden width of the feed-forward layers; 0: the model's."),                        \
        OPTION_MEMBERS(S, at.set, tag,                                                             \
                       "Changes members of the model by their names in checkpoints, as "           \
                       "num_hidden_layers=6,pooler=0; no flag may contradict it"),                 \
        TP_NUM("dropout", S, at.dropout, -1, 0.99, tag,                                            \
               "Dropout of embeddings, layers and head; -1: the model's."),                        \
        TP_NUM("attention-dropout", S, at.attention_dropout, -1, 0.99, tag,                        \
               "Dropout of attention; -1: the model's.")

/* Reads a model's configuration from metadata or, for a published file, from its tensors' shapes
 * and the config.json beside it; its tensors get our names. False with a full sentence in why. */
bool model_describe(tp_roberta_cfg *c, tp_file *F, char *why, size_t size);

/* Chooses the preset's model or, without one, the file's, with this head and the changes of o.
 * Layers and widths are the file's in either case. from may be NULL. classes: for TP_ROBERTA_CLS.
 * False with the reason in why. */
typedef struct model_wish {
    tp_roberta_head head;
    int64_t vocab, classes;
} model_wish;
bool model_choose(tp_roberta_cfg *c, const model_choice *o, tp_file *from, model_wish wish,
                  char *why, size_t size);

/* "roberta_ls: 4 layers, width 256, 4 heads, at most 4096 tokens, window 256, rank 64". */
const char *model_text(const tp_roberta_cfg *c, char *buf, size_t size);

void model_write(const tp_roberta_cfg *c, tp_writer *W); /* as checkpoint metadata */

/* init declares the parameters; failures are P's errors. Free the model before P. free ignores an
 * undeclared model. */
void model_init(tp_params *P, text_model *m, const tp_roberta_cfg *c);
void model_free(text_model *m);
const tp_roberta *model_of(const text_model *m);

/* ---- the vocabulary ---- */

#define OPTION_TOKENIZER(S, at, tag)                                                               \
    TP_STRING("tokenizer", S, at, "FILE", tag,                                                     \
              "The vocabulary: tokenizer.json; vocab.json with merges.txt beside it; "             \
              "encoder.json with vocab.bpe and dict.txt; or the folder that holds them. tp-bpe "   \
              "train makes one. If not given: the one in the checkpoint, or the files beside it.")

/* Opens the vocabulary at path; if that is NULL, the one in F or beside it. It must have the
 * models' ids: <s> 0, <pad> 1, </s> 2 and a <mask>. F may be NULL. NULL with the reason in why. */
tp_bpe *tokenizer_open(const char *path, const tp_file *F, char *why, size_t size);

/* ---- labelled texts and their classes ---- */

typedef struct text_data {
    char *path, *text, *label; /* CSV columns or JSON members */
    int64_t tail, hold_back;
    int64_t train, valid; /* examples; 0: all */
} text_data;

/* Option rows for settings S with a text_data member `at`. */
#define OPTION_TEXTS(S, at, tag)                                                                   \
    TP_STRING("data", S, at.path, "FILE", tag,                                                     \
              "The texts and their classes: a folder PART/CLASS/NAME.txt or CLASS/NAME.txt, "      \
              "also in a tar file; a file .csv, .tsv or .jsonl, or a folder with train.csv and "   \
              "test.csv. PART: train, valid, test.")
#define OPTIONS_COLUMNS(S, at, tag)                                                                \
    TP_STRING("text-column", S, at.text, "NAME", tag,                                              \
              "CSV, JSON lines: the column or member that holds the text; not given: text."),      \
        TP_STRING("label-column", S, at.label, "NAME", tag,                                        \
                  "CSV, JSON lines: the column or member that holds the class; not given: label.")
#define OPTIONS_PARTS(S, at, tag)                                                                  \
    TP_INT("hold-back", S, at.hold_back, 0, 1000000, tag,                                          \
           "Validate on every N-th training text, which is then not trained on; 0: on the part "   \
           "'valid', or 'test' if there is none, as the published results on IMDb do; without "    \
           "parts, every tenth."),                                                                 \
        TP_INT("tail", S, at.tail, 0, 1 << 20, tag,                                                \
               "Of texts longer than --length, so many tokens come from the end.")

/* Names in label order, as stored in checkpoints. Initialise to { 0 }. */
typedef struct class_list {
    int n;
    char **name;
} class_list;

bool class_list_of(class_list *l, const tp_documents *X); /* false: out of memory */
/* Reads a checkpoint's names; there may be none. False with the reason in why. */
bool class_list_read(class_list *l, tp_file *F, char *why, size_t size);
void class_list_write(const class_list *l, tp_writer *W);
const char *class_list_at(const class_list *l, int64_t i,
                          char buf[32]); /* "class 3" if there is none */
void class_list_free(class_list *l);

/* A model's demands on its texts. */
typedef struct text_view {
    tp_part part;
    int64_t length;            /* tokens kept */
    int64_t limit;             /* examples; 0: all */
    const class_list *classes; /* NULL or empty: the training part's */
} text_view;

/* Never NULL; see tp_documents_why. */
tp_documents *texts_open(const text_data *d, const tp_bpe *vocab, text_view v);

/* ---- files of other programs ---- */

/* Sets the heads and Longformer's window from the config.json beside F, as transformers writes it.
 * Missing values stay; so does everything if there is no such file or it describes another model.
 * False with the reason in why if it cannot be read, contradicts c, or asks for an activation other
 * than GELU. */
bool published_config(tp_roberta_cfg *c, const tp_file *F, char *why, size_t size);

/* Reads the class names of c: from the metadata of our checkpoints, or from "id2label" of the
 * config.json beside another file. None if either is missing or is another model's, if there are
 * not exactly c's number of distinct names, or if they are the placeholders "LABEL_0", "LABEL_1",
 * ... Free l in either case. False with the reason in why if they cannot be read, or out of
 * memory. */
bool model_classes(class_list *l, const tp_roberta_cfg *c, tp_file *F, char *why, size_t size);

/* ---- batches and scores ---- */

/* How texts are batched. */
typedef struct text_batching {
    int64_t batch;  /* texts */
    int64_t bucket; /* > 1: this many batches are sorted together by length */
    bool packed;    /* concatenated, without padding */
    tp_share share; /* of a training's process */
} text_batching;

/* The document loader's options; the caller sets seed and train. */
tp_document_loader_opts text_batches(const tp_roberta_cfg *c, text_batching how);

/* The labels of a batch (reports/documents.h). */
tp_tensor text_labels(const tp_tensor slot[DOC_SLOTS]);

/* Returns logits [B,classes], f32 or f64. */
tp_tensor text_logits(tp_tape *T, const text_model *m, const tp_tensor slot[DOC_SLOTS]);

/* Scores all texts of X, shortest first unless packed, whatever the bucket. */
bool text_score(doc_score *s, tp_tape *T, const text_model *m, const tp_documents *X,
                text_batching how, doc_watch w);

/* ---- a trained classifier ---- */

typedef struct text_file {
    tp_trained t;
    tp_roberta_cfg cfg;
    tp_bpe *vocab;
    class_list classes; /* none if the file has no names */
    bool published;     /* another program's */
    int64_t tail;
    text_model m;
} text_file;

/* open reads metadata and vocabulary, load the weights. f must be zeroed; close it in either case.
 * False with the reason in f->t.why. tokenizer: NULL: the checkpoint's. length: of texts; 0: the
 * model's. */
bool text_file_open(text_file *f, const tp_trained_settings *o, const char *tokenizer,
                    int64_t length);
bool text_file_load(text_file *f, const tp_machine_settings *o);
void text_file_close(text_file *f);

/* How many last tokens a text keeps if cut to `length`: as in training if they fit, otherwise 0. */
int64_t text_file_tail(const text_file *f, int64_t length);

/* ---- results by text length ---- */

/* One text; length: in tokens, before cutting. */
typedef struct text_result {
    int64_t length;
    double loss;
    bool right, scored; /* scored: false if a signal came first */
    bool positive;      /* of two classes, the text is of the second */
    double odds;        /* of two classes, the log odds of the second */
} text_result;

/* Texts of about the same length. */
typedef struct length_group {
    int64_t shortest, longest, count, right;
    double loss; /* sum */
} length_group;

enum { MOST_GROUPS = 100 };

/* Sorts n texts and divides them by length into equal groups. Returns their number: `groups`, or n
 * if smaller. */
int length_groups(text_result *r, int64_t n, int groups, length_group out[MOST_GROUPS]);

/* Standard error of an accuracy in percent. */
double accuracy_error(int64_t right, int64_t count);

/* ---- explanations ---- */

/* A piece of text: one token, or those that share a character. weight: its part of the class's log
 * odds relative to a text of <mask>; positive: for the class. */
typedef struct explained {
    char *text; /* UTF-8; any bytes in a damaged text */
    double weight;
} explained;

typedef struct explanation {
    int n;
    explained *at;
    double most; /* the largest |weight| of a piece */
} explanation;

/* mask: the id of <mask>. */
typedef struct explain_opts {
    tp_bpe_coder *coder;
    int32_t mask;
    int steps; /* 1: only the gradient at the text */
} explain_opts;

/* Explains class `label` of a text, ids [n], that begins with <s> and ends with </s>; these get no
 * pieces. With embeddings x, and m that of <mask>, a token's weight is (x - m) times the mean
 * gradient of the log odds at `steps` points between the text of only <mask> and the text, so that
 * the weights add up to the difference of their log odds. The gradient at the text itself nearly
 * vanishes where the model is sure.
 *
 * T does not record before and after; the word table is changed and restored; parameter gradients
 * are dropped. False with the reason in why; free e in either case. */
bool explain_text(explanation *e, tp_tape *T, tp_params *P, const text_model *m,
                  const explain_opts *o, const int32_t *ids, int64_t n, int64_t label, char *why,
                  size_t size);
void explanation_free(explanation *e);

/* Prints the text, blue behind pieces for the class, red behind those against it; without colours,
 * a list of the strongest of both. */
void explanation_print(FILE *out, const explanation *e, bool colours);
json_t *explanation_json(const explanation *e); /* [[TEXT, WEIGHT], ...]; NULL: out of memory */
/* Draws the pieces row by row. False with the reason in why. */
bool explanation_draw(const explanation *e, const char *title, const char *class_name,
                      const char *path, char *why, size_t size);

#endif
