/* text_file.h - opens a trained classifier with its vocabulary and classes. */
#ifndef TEXT_FILE_H
#define TEXT_FILE_H

#include <tapegrad/train.h>

#include "text_data.h"
#include "text_score.h"

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

#endif
