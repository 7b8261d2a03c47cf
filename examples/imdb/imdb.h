/* imdb.h - what the commands share: the model, its vocabulary and classes, labelled texts and scores on them. */
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

#include "reports/documents.h"
#include "reports/models.h"

/* ---- the subcommands ---- */

int imdb_pretrain_main(int argc, char **argv);
int imdb_convert_main(int argc, char **argv);
int imdb_train_main(int argc, char **argv);
int imdb_eval_main(int argc, char **argv);
int imdb_predict_main(int argc, char **argv);

/* ---- the model: RoBERTa, Longformer or long-short RoBERTa ---- */

typedef struct text_model {
    tp_roberta_cfg cfg;
    tp_net *net;
} text_model;

/* What the flags say. A number of 0, and a rank or a dropout of -1, leave the value as it is. */
typedef struct model_choice {
    char *preset; /* "KIND-SIZE" of roberta.h; NULL: the model of the file, or roberta-mini */
    int64_t layers, dim, heads, hidden, length, window, rank;
    int dual_ln; /* DUAL_LN_... */
    double dropout, attention_dropout;
    char *set; /* changes of members; NULL: none */
} model_choice;

enum { DUAL_LN_AS_IT_IS, DUAL_LN_ON, DUAL_LN_OFF };
extern const model_choice model_as_it_is;
#define MODEL_DEFAULT "roberta-mini"

/* Name i of the presets of text models, without heads; NULL past the last. */
const char *model_preset_known(int i);

/* Rows of a table for settings S that hold a model_choice as member `at`. */
/* clang-format off */
#define OPTIONS_MODEL(S, at, tag) \
    TP_STRING_OF("preset", S, at.preset, "NAME", model_preset_known, tag, \
                 "The model, KIND-SIZE. KIND: roberta (full attention, 512 tokens), longformer (a window and " \
                 "global tokens, 4096) or roberta_ls (long-short attention, 4096). SIZE: base, large, or mini (4 " \
                 "layers of width 256). If not given: the model of the file that holds the weights or, without such " \
                 "a file, roberta-mini."), \
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
    TP_INT("hidden", S, at.hidden, 0, 1 << 20, tag, "Hidden width of the feed-forward layers; 0: the model's."), \
    OPTION_MEMBERS(S, at.set, tag, "Changes members of the model by their names in checkpoints, as " \
               "num_hidden_layers=6,pooler=0; no flag may contradict it"), \
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

void model_write(const tp_roberta_cfg *c, tp_writer *W); /* as metadata of a checkpoint */

/* Declares the parameters; a failure is P's error. Free the model before P. free ignores one that was never
 * declared. */
void model_init(tp_params *P, text_model *m, const tp_roberta_cfg *c);
void model_free(text_model *m);
const tp_roberta *model_of(const text_model *m);

/* ---- the vocabulary ---- */

/* clang-format off */
#define OPTION_TOKENIZER(S, at, tag) \
    TP_STRING("tokenizer", S, at, "FILE", tag, \
              "The vocabulary: tokenizer.json; vocab.json with merges.txt beside it; encoder.json with vocab.bpe and " \
              "dict.txt; or the folder that holds them. tp-bpe train makes one. If not given: the one in the " \
              "checkpoint, or the files beside it.")
/* clang-format on */

/* Opens the vocabulary at path or, if that is NULL, the one in F or beside it. It must have the ids that the models
 * expect: <s> 0, <pad> 1, </s> 2 and a <mask>. F may be NULL. NULL with the reason in why. */
tp_bpe *tokenizer_open(const char *path, const tp_file *F, char *why, size_t size);

/* Writes it as metadata of a checkpoint, so that nothing else is needed to use the model. */
void tokenizer_write(const tp_bpe *X, tp_writer *W);

/* ---- labelled texts and their classes ---- */

typedef struct text_data {
    char *path, *text, *label; /* text, label: columns of CSV, members of JSON */
    int64_t tail, hold_back;
    int64_t train, valid; /* examples; 0: all */
} text_data;

/* Rows of a table for settings S that hold a text_data as member `at`. */
/* clang-format off */
#define OPTION_TEXTS(S, at, tag) \
    TP_STRING("data", S, at.path, "FILE", tag, \
              "The texts and their classes: a folder PART/CLASS/NAME.txt or CLASS/NAME.txt, also in a tar file; a " \
              "file .csv, .tsv or .jsonl, or a folder with train.csv and test.csv. PART: train, valid, test.")
#define OPTIONS_COLUMNS(S, at, tag) \
    TP_STRING("text-column", S, at.text, "NAME", tag, \
              "CSV, JSON lines: the column or member that holds the text; not given: text."), \
    TP_STRING("label-column", S, at.label, "NAME", tag, \
              "CSV, JSON lines: the column or member that holds the class; not given: label.")
#define OPTIONS_PARTS(S, at, tag) \
    TP_INT("hold-back", S, at.hold_back, 0, 1000000, tag, \
           "Validate on every N-th training text, which is then not trained on; 0: on the part 'valid', or 'test' " \
           "if there is none, as the published results on IMDb do; without parts, every tenth."), \
    TP_INT("tail", S, at.tail, 0, 1 << 20, tag, \
           "Of texts longer than --length, so many tokens come from the end.")
/* clang-format on */

/* Names in the order of the labels; they are metadata of checkpoints. Initialise it to { 0 }. */
typedef struct class_list {
    int n;
    char **name;
} class_list;

bool class_list_of(class_list *l, const tp_documents *X); /* false without memory */
/* Reads them from a checkpoint; none if it holds none. False with the reason in why. */
bool class_list_read(class_list *l, tp_file *F, char *why, size_t size);
void class_list_write(const class_list *l, tp_writer *W);
const char *class_list_at(const class_list *l, int64_t i,
                          char buf[32]); /* "class 3" if there is none */
void class_list_free(class_list *l);

/* What a model requires of its texts. */
typedef struct text_view {
    tp_part part;
    int64_t length;            /* tokens that are kept                          */
    int64_t limit;             /* examples; 0: all                              */
    const class_list *classes; /* NULL or empty: those of the training part     */
} text_view;

/* Never NULL; see tp_documents_why. */
tp_documents *texts_open(const text_data *d, const tp_bpe *vocab, text_view v);

/* ---- files of other programs ---- */

/* Sets heads and Longformer's window from the config.json in the folder of F, as the package transformers writes it.
 * What it lacks stays as it is, and so does everything if there is no such file or it is another model's. False with
 * the reason in why if it cannot be read, contradicts c, or asks for another activation than GELU. */
bool published_config(tp_roberta_cfg *c, const tp_file *F, char *why, size_t size);

/* The names of the classes of the model c in F: those in the metadata of a checkpoint of this program; those in
 * "id2label" of the config.json in the folder of another file. None if there are no such metadata or file, if it is
 * another model's, or if its names are not as many different ones as c has classes, or are the placeholders "LABEL_0",
 * "LABEL_1", ... Free l in either case. False with the reason in why if they cannot be read, or out of memory. */
bool model_classes(class_list *l, const tp_roberta_cfg *c, tp_file *F, char *why, size_t size);

/* ---- batches and scores ---- */

/* How texts become batches. */
typedef struct text_batching {
    int64_t batch;  /* texts                                                                 */
    int64_t bucket; /* > 1: so many batches at a time are sorted by length before they are made */
    bool packed;    /* one after another, without padding                                    */
} text_batching;

/* As options of the document loader; seed and train are the caller's. */
tp_document_loader_opts text_batches(const tp_roberta_cfg *c, text_batching how);

/* Labels among the slots of a batch (reports/documents.h). */
tp_tensor text_labels(const tp_tensor slot[DOC_SLOTS]);

/* Slots -> logits [B,classes], in f32 or f64. */
tp_tensor text_logits(tp_tape *T, const text_model *m, const tp_tensor slot[DOC_SLOTS]);

/* Scores all texts of X; unless they are packed, the shortest first, whatever the bucket. */
bool text_score(doc_score *s, tp_tape *T, const text_model *m, const tp_documents *X,
                text_batching how, doc_watch w);

/* ---- a trained classifier ---- */

typedef struct text_file {
    tp_trained t;
    tp_roberta_cfg cfg;
    tp_bpe *vocab;
    class_list classes; /* none if the file does not name them */
    bool published;     /* a file of another program */
    int64_t tail;
    text_model m;
} text_file;

/* Reads the checkpoint's metadata and vocabulary, then its weights. f is zeroed; close it in either case. False with
 * the reason in f->t.why. tokenizer: NULL for the vocabulary of the checkpoint. length: of texts; 0: the model's. */
bool text_file_open(text_file *f, const tp_trained_settings *o, const char *tokenizer,
                    int64_t length);
bool text_file_load(text_file *f, const tp_machine_settings *o);
void text_file_close(text_file *f);

/* The tokens of a text's end that remain if it is cut to `length`: as in training if they fit, otherwise none. */
int64_t text_file_tail(const text_file *f, int64_t length);

/* ---- results by length of the texts ---- */

/* One text: its length in tokens before it was cut. */
typedef struct text_result {
    int64_t length;
    double loss;
    bool right, scored; /* scored: false if a signal came before */
} text_result;

/* Texts of about the same length. */
typedef struct length_group {
    int64_t shortest, longest, count, right;
    double loss; /* sum */
} length_group;

enum { MOST_GROUPS = 100 };

/* Divides n texts, which it sorts, into groups of equally many by length. Returns how many there are: `groups`, or
 * fewer if there are fewer texts. */
int length_groups(text_result *r, int64_t n, int groups, length_group out[MOST_GROUPS]);

/* Standard error of an accuracy in percent. */
double accuracy_error(int64_t right, int64_t count);

/* ---- explanations ---- */

/* A piece of the text: one token, or the tokens of a character that several share. weight: its share of the log odds of
 * the class, compared with the same text of <mask> alone; positive: it speaks for the class. */
typedef struct explained {
    char *text; /* UTF-8 or, in a damaged text, any bytes */
    double weight;
} explained;

typedef struct explanation {
    int n;
    explained *at;
    double most; /* the largest |weight| of a piece */
} explanation;

/* How a text is explained. mask: the id of <mask>. */
typedef struct explain_opts {
    tp_bpe_coder *coder;
    int32_t mask;
    int steps; /* 1: the gradient at the text itself                                       */
} explain_opts;

/* Explains the class `label` of the text with ids [n], which begins with <s> and ends with </s>: these are not among
 * the pieces. With embeddings x, and m that of <mask>, the weight of a token is (x - m) times the mean gradient of the
 * log odds at `steps` points between the text of <mask> alone and the text, so that all weights add up to the
 * difference of their log odds. The gradient at the text alone nearly vanishes where the model is sure.
 *
 * T does not record before and after; the word table is changed and restored; gradients of parameters are dropped.
 * False with the reason in why; free e in either case. */
bool explain_text(explanation *e, tp_tape *T, tp_params *P, const text_model *m,
                  const explain_opts *o, const int32_t *ids, int64_t n, int64_t label, char *why,
                  size_t size);
void explanation_free(explanation *e);

/* The text, with blue behind pieces in favour and red behind those against; without colours, a list of the strongest
 * pieces of both kinds. */
void explanation_print(FILE *out, const explanation *e, bool colours);
json_t *explanation_json(const explanation *e); /* [[TEXT, WEIGHT], ...]; NULL without memory */
/* Draws the pieces row by row. False with the reason in why. */
bool explanation_draw(const explanation *e, const char *title, const char *class_name,
                      const char *path, char *why, size_t size);

#endif
