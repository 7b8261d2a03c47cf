/* task_data.h - which documents a model is trained and tested on: a task's files, or documents that the
 * program draws. */
#ifndef TASK_DATA_H
#define TASK_DATA_H

#include <tapegrad/documents.h>
#include <tapegrad/options.h>

typedef struct task_data {
    char *path;         /* NULL: the documents are drawn                                  */
    int task, brackets; /* tp_task_at, tp_brackets                                        */
    char *level;        /* Pathfinder                                                     */
    int64_t length;     /* of the model's documents; longer ones are cut                  */
    int64_t pixel_offset;
    int64_t train, valid, test; /* examples of each part; 0: all, or the usual number drawn */
    int64_t shortest, longest, depth, args, seed; /* of drawn documents                    */
    int64_t table; /* task_table_of the training examples, if one table was divided; 0: none */
} task_data;

/* The values of --task, in the order of tp_task_at, and of --brackets. */
#define TASK_NAMES    "listops|text|retrieval|image|pathfinder"
#define BRACKET_NAMES "drop|keep"

/* Rows of a table for settings S that hold a task_data as member `at`. */
/* clang-format off */
#define OPTION_DATA(S, at, tag) \
    TP_STRING("data", S, at.path, "PATH", tag, \
              "The task's files: a folder, or a tar file, plain or packed; of listops and retrieval " \
              "also one .tsv file. If not given, expressions of listops or images of pathfinder are " \
              "drawn.")
#define OPTIONS_TASK_DATA(S, at) \
    TP_CHOICE("brackets", S, at.brackets, BRACKET_NAMES, TP_WEIGHTS, \
              "listops: does the model see closing brackets? The published figures are of drop, " \
              "which makes most expressions ambiguous."), \
    TP_STRING("level", S, at.level, "NAME", TP_SAVED, \
              "pathfinder: the folder of a level; not given: curv_contour_length_14."), \
    TP_INT("pixel-offset", S, at.pixel_offset, 0, 1, TP_WEIGHTS, \
           "image, pathfinder: added to each pixel. 0: black pixels count as padding, as published."), \
    TP_INT("examples", S, at.train, 0, 10000000, TP_SAVED, \
           "Examples for training; 0: all of --data; drawn: 96000 expressions, 20000 images."), \
    TP_INT("valid-examples", S, at.valid, 0, 10000000, TP_SAVED, \
           "Examples for validation; 0: all of --data; drawn: 2000."), \
    TP_INT("test-examples", S, at.test, 0, 10000000, TP_SAVED, \
           "Examples for the test; 0: all of --data; drawn: 2000."), \
    TP_INT("shortest", S, at.shortest, 1, 1 << 20, TP_SAVED, \
           "Drawn expressions: the fewest tokens, with closing brackets."), \
    TP_INT("longest", S, at.longest, 1, 1 << 20, TP_SAVED, "Drawn expressions: the most tokens."), \
    TP_INT("depth", S, at.depth, 1, 64, TP_SAVED, "Drawn expressions: the deepest nesting."), \
    TP_INT("args", S, at.args, 2, 1000, TP_SAVED, \
           "Drawn expressions: the most arguments of an operator."), \
    TP_INT("data-seed", S, at.seed, 0, TP_BIG, TP_SAVED, \
           "Seed of drawn documents and of pathfinder's division into parts.")
/* clang-format on */

void task_data_defaults(task_data *d); /* of a task_data of zeros but for its task */

const tp_task *task_of(const task_data *d);

/* How the documents of a part are read: damage is of those that are not for training; limit: examples,
 * 0: as d says. Never NULL; see tp_documents_why. */
typedef struct task_view {
    tp_part part;
    tp_damage damage;
    bool whole;
    int64_t limit;
} task_view;
tp_documents *task_open(const task_data *d, task_view v);

/* Is the path one table instead of a folder with one for each part? task_open reads all of it
 * whatever the part, but of the table that the model was trained on the examples of the part. */
bool task_is_one_table(const task_data *d);
/* What tells the training examples of such a table from others; not 0. */
int64_t task_table_of(const tp_documents *training);

/* Opens the parts for training, X[TP_TRAIN] and X[TP_VALID]. Expressions are drawn only once, and one table is read only
 * once, of which validation and test get every tenth example and training the others: X[TP_TEST] is then there, too,
 * otherwise NULL; if that fails, X[TP_TRAIN] is the failed set and the others NULL. */
void task_open_training(const task_data *d, tp_documents *X[3]);

/* False with the reason in why if no such documents can be drawn or read. */
bool task_data_check(const task_data *d, char *why, size_t size);

/* "listops drawn by the program", or the path. */
const char *task_source(const task_data *d, char *buf, size_t size);

/* As metadata of a checkpoint, without the path. read: false with a full sentence in why; d then owns no
 * texts. A checkpoint of drawn documents is read with the path NULL, another with the path "". */
void task_data_write(const task_data *d, tp_writer *W);
bool task_data_read(task_data *d, tp_file *F, char *why, size_t size);
void task_data_free(task_data *d);

#endif
