/* lra.h - shared by the commands: the model, its documents, scores, and trained models. */
#ifndef LRA_H
#define LRA_H

#include <jansson.h>
#include <stdio.h>
#include <tapegrad/document_loader.h>
#include <tapegrad/documents.h>
#include <tapegrad/lra.h>
#include <tapegrad/options.h>
#include <tapegrad/train.h>

#include "reports/documents.h"

/* ---- the subcommands ---- */

int lra_train_main(int argc, char **argv);
int lra_eval_main(int argc, char **argv);
int lra_perturb_main(int argc, char **argv);
int lra_table_main(int argc, char **argv);
int lra_scale_main(int argc, char **argv);
int lra_norms_main(int argc, char **argv);

/* ---- the model: an encoder that reads a document loader's batches ---- */

typedef struct encoder {
    tp_lra_cfg cfg;
    tp_net *net;
} encoder;

/* The values of --attention, in the order of its choices. */
#define ATTENTION_NAMES                                                                            \
    "softmax|linformer|performer|nystrom|nystrom-conv|reformer|linear|none|ls|ls-linformer|"       \
    "ls-best|dp"
enum { ATTENTIONS = 12, ATTENTION_LS = 8 };
const char *attention_name(int i); /* NULL past the last */
/* Parses the first name of a comma-separated list and moves the list past it. Returns -1 and moves
 * nothing if it is unknown. */
int attention_of(const char **list);

/* Are all documents padded to the full length? Fixed mixtures need it. */
bool encoder_is_fixed(const tp_lra_cfg *c);
/* Do results not depend on padding? As published, padding enters Performer's denominators,
 * Nystroem's landmarks, Reformer's chunks, and the scale of linear attention. */
bool encoder_ignores_padding(const tp_lra_cfg *c);

/* How documents become batches. */
typedef struct encoder_batching {
    int64_t batch;  /* examples */
    int64_t bucket; /* > 1: batches sorted together by length, padded to the longest text
                     * unless packed; otherwise unsorted, padded to the full length */
    bool packed;    /* concatenated, without padding: for models that tp_lra_packs */
    tp_share share; /* of several processes */
} encoder_batching;

/* A reason for refusing packed batches. */
#define UNPACKABLE                                                                                 \
    "only softmax, none, and ls, ls-best and dp without a convolution take packed documents"

/* The token count of an unpacked batch must be a multiple of this. */
int64_t encoder_multiple(const tp_lra_cfg *c);

/* The loader's options; the caller sets seed, train and whole. */
tp_document_loader_opts encoder_batches(const tp_lra_cfg *c, encoder_batching how);

/* A configuration as checkpoint metadata. read: false with a full sentence in why. */
void encoder_write(const tp_lra_cfg *c, tp_writer *W);
bool encoder_read(tp_lra_cfg *c, tp_file *F, char *why, size_t size);

/* init declares the parameters and draws Performer's features by the seed; failures are P's errors.
 * Free the model before P. free ignores an undeclared model. */
void encoder_init(tp_params *P, encoder *m, const tp_lra_cfg *c, uint64_t seed);
void encoder_free(encoder *m);

/* Returns logits [B,classes], f32 or f64. */
tp_tensor encoder_logits(tp_tape *T, const encoder *m, const tp_tensor slot[DOC_SLOTS]);
/* Scores all examples of X, or this process's part. A bucket in `how` sorts all of them unless
 * packed. */
bool encoder_score(doc_score *s, tp_tape *T, const encoder *m, const tp_documents *X,
                   encoder_batching how, doc_watch w);
tp_tensor encoder_loss(tp_tape *T, const encoder *m, const tp_tensor slot[DOC_SLOTS]);

/* ---- the documents of a task ---- */

typedef struct task_data {
    char *path;         /* NULL: the documents are drawn */
    int task, brackets; /* tp_task_at, tp_brackets */
    char *level;        /* Pathfinder */
    int64_t length;     /* of documents; longer ones are cut */
    int64_t pixel_offset;
    int64_t train, valid, test; /* examples per part; 0: all, or the default number */
    int64_t shortest, longest, depth, args, seed; /* of drawn documents */
    int64_t table; /* task_table_of the training examples, if one table was split; 0: none */
} task_data;

/* The values of --task, in the order of tp_task_at, and of --brackets. */
#define TASK_NAMES    "listops|text|retrieval|image|pathfinder"
#define BRACKET_NAMES "drop|keep"

/* Option rows for settings S with a task_data member `at`. */
#define OPTION_DATA(S, at, tag)                                                                    \
    TP_STRING("data", S, at.path, "PATH", tag,                                                     \
              "The task's files: a folder, or a tar file, plain or packed; of listops and "        \
              "retrieval also one .tsv file. If not given, expressions of listops or images of "   \
              "pathfinder are drawn.")
#define OPTIONS_TASK_DATA(S, at)                                                                   \
    TP_CHOICE("brackets", S, at.brackets, BRACKET_NAMES, TP_WEIGHTS,                               \
              "listops: does the model see closing brackets? The published figures are of drop, "  \
              "which makes most expressions ambiguous."),                                          \
        TP_STRING("level", S, at.level, "NAME", TP_SAVED,                                          \
                  "pathfinder: the folder of a level; not given: curv_contour_length_14."),        \
        TP_INT("pixel-offset", S, at.pixel_offset, 0, 1, TP_WEIGHTS,                               \
               "image, pathfinder: added to each pixel. 0: black pixels count as padding, as "     \
               "published."),                                                                      \
        TP_INT(                                                                                    \
            "examples", S, at.train, 0, 10000000, TP_SAVED,                                        \
            "Examples for training; 0: all of --data; drawn: 96000 expressions, 20000 images."),   \
        TP_INT("valid-examples", S, at.valid, 0, 10000000, TP_SAVED,                               \
               "Examples for validation; 0: all of --data; drawn: 2000."),                         \
        TP_INT("test-examples", S, at.test, 0, 10000000, TP_SAVED,                                 \
               "Examples for the test; 0: all of --data; drawn: 2000."),                           \
        TP_INT("shortest", S, at.shortest, 1, 1 << 20, TP_SAVED,                                   \
               "Drawn expressions: the fewest tokens, with closing brackets."),                    \
        TP_INT("longest", S, at.longest, 1, 1 << 20, TP_SAVED,                                     \
               "Drawn expressions: the most tokens."),                                             \
        TP_INT("depth", S, at.depth, 1, 64, TP_SAVED, "Drawn expressions: the deepest nesting."),  \
        TP_INT("args", S, at.args, 2, 1000, TP_SAVED,                                              \
               "Drawn expressions: the most arguments of an operator."),                           \
        TP_INT("data-seed", S, at.seed, 0, TP_BIG, TP_SAVED,                                       \
               "Seed of drawn documents and of pathfinder's division into parts.")

void task_data_defaults(task_data *d); /* d is zeroed except for its task */

const tp_task *task_of(const task_data *d);

/* How a part's documents are read. damage does not apply to training; limit: examples, 0: as d
 * says. Never returns NULL; see tp_documents_why. */
typedef struct task_view {
    tp_part part;
    tp_damage damage;
    bool whole;
    int64_t limit;
} task_view;
tp_documents *task_open(const task_data *d, task_view v);

/* Is the path one table instead of a folder with a table per part? task_open then ignores the part,
 * except on the model's training table. */
bool task_is_one_table(const task_data *d);
/* Identifies the training examples of such a table; not 0. */
int64_t task_table_of(const tp_documents *training);

/* Opens X[TP_TRAIN] and X[TP_VALID]. Draws expressions, or reads a single table, only once; of a
 * table, validation and test get every tenth example and training the rest. In both cases also sets
 * X[TP_TEST], otherwise NULL. If that one set fails, it is X[TP_TRAIN], and the others are NULL. */
void task_open_training(const task_data *d, tp_documents *X[3]);

/* False with the reason in why if such documents are unavailable. */
bool task_data_check(const task_data *d, char *why, size_t size);

/* "listops drawn by the program", or the path. */
const char *task_source(const task_data *d, char *buf, size_t size);

/* Store d as checkpoint metadata, without the path. read: false with a full sentence in why; d then
 * owns no text. After reading, path is NULL for drawn documents and "" for others. */
void task_data_write(const task_data *d, tp_writer *W);
bool task_data_read(task_data *d, tp_file *F, char *why, size_t size);
void task_data_free(task_data *d);

/* ---- scores as text, JSON and a file ---- */

typedef struct lra_report {
    const doc_score *v;
    const char *part; /* "test" */
    double seconds;
    bool stopped; /* by a signal, before the last example */
} lra_report;

json_t *lra_report_json(const lra_report *r); /* NULL without memory */

/* Prints text or a line of JSON. False if memory or the stream fails. */
bool lra_report_print(FILE *out, bool json, const lra_report *r);

/* Replaces the file atomically. False with the reason in why. */
bool lra_report_write(const lra_report *r, const char *path, char *why, size_t size);

/* ---- a trained encoder ---- */

typedef struct lra_file {
    tp_trained t;
    tp_lra_cfg cfg;
    task_data d;
    bool sorted, packed; /* padded to the batch's longest document; not padded */
    char attention[32];
    encoder m;
} lra_file;

/* open reads the metadata, load the weights. f must be zeroed; close it in either case. False with
 * the reason in f->t.why. data: the task's files; NULL: the documents that the run drew. */
bool lra_file_open(lra_file *f, const tp_trained_settings *o, const char *data);
bool lra_file_load(lra_file *f, const tp_machine_settings *o);

/* Makes batches of this many examples as in training; packed: 0 no, 1 yes, PACKED_AS_TRAINED. False
 * with the reason in f->t.why if the model cannot take packed documents. */
enum { PACKED_AS_TRAINED = 2 };
bool lra_file_batching(lra_file *f, int64_t batch, int packed, encoder_batching *how);

void lra_file_close(lra_file *f);

/* ---- settings of `lra train`, and the presets and recipes that fill them ---- */

typedef enum lra_recipe { RECIPE_CODE, RECIPE_PAPER } lra_recipe;
enum { RATE_CYCLE = TP_RATE_PLATEAU + 1 }; /* a --schedule: the official code's */

typedef struct lra_settings {
    tp_train_settings train; /* first: the engine's */
    task_data d;
    char *preset; /* "lra-TASK-ATTENTION"; NULL: not given */
    char *set;    /* member changes; NULL: none */
    int attention, recipe;
    bool fixed_lr;
    int64_t bucket;
    int packed; /* 0 or 1 */
    int64_t layers, dim, heads, hidden, rank, window, conv;
    int pooling; /* tp_lra_pooling */
    double dropout;
} lra_settings;

extern const tp_option lra_options[];

/* Every preset's name; NULL past the last. */
const char *lra_preset_known(int i);

/* Fills the settings for a task, an attention and a recipe. steps: updates; 0: the recipe's. False
 * with the reason in why. */
bool lra_start(lra_settings *s, int task, int attention, lra_recipe recipe, int64_t steps,
               char *why, size_t size);

/* A tp_training's settings_of. */
bool lra_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                     size_t size);

/* Builds the preset's model with s's changes. */
bool lra_model(const lra_settings *s, tp_lra_cfg *c, char *why, size_t size);

/* The batching of s. */
encoder_batching lra_batching(const lra_settings *s);

/* Learning rate and beta1 of the update after u completed ones. */
double lra_rate(const lra_settings *s, int64_t u);
double lra_beta1(const lra_settings *s, int64_t u);

/* ---- memory of a step ---- */

/* Plots the memory of a step, batch 1, for 1024 to 65536 tokens. */
bool scale_draw_memory(int task, int n, const char *const *attention, const tp_machine_settings *m,
                       const char *path, char *why, size_t size);

#endif
