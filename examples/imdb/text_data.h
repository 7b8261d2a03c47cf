/* text_data.h - the labelled texts of `imdb train` and `imdb eval`. */
#ifndef TEXT_DATA_H
#define TEXT_DATA_H

#include <tapegrad/labelled_texts.h>
#include <tapegrad/options.h>

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

/* ---- the classes of a model ---- */

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

/* ---- opening ---- */

/* What a model requires of its texts. */
typedef struct text_view {
    tp_part part;
    int64_t length;            /* tokens that are kept                          */
    int64_t limit;             /* examples; 0: all                              */
    const class_list *classes; /* NULL or empty: those of the training part     */
} text_view;

/* Never NULL; see tp_documents_why. */
tp_documents *texts_open(const text_data *d, const tp_bpe *vocab, text_view v);

double texts_mean_length(const tp_documents *X, double *deviation); /* deviation may be NULL */

#endif
