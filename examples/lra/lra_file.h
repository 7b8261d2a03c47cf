/* lra_file.h - opens a trained encoder with what its checkpoint tells about its documents. */
#ifndef LRA_FILE_H
#define LRA_FILE_H

#include <tapegrad/train.h>

#include "encoder.h"
#include "task_data.h"

typedef struct lra_file {
    tp_trained t;
    tp_lra_cfg cfg;
    task_data d;
    bool sorted, packed; /* batches were padded to their longest document; not padded */
    char attention[32];
    encoder m;
} lra_file;

/* Reads the checkpoint's metadata, then its weights. f is zeroed; close it in either case. False with the reason in
 * f->t.why. data: the task's files, or NULL for the documents that the run drew. */
bool lra_file_open(lra_file *f, const tp_trained_settings *o, const char *data);
bool lra_file_load(lra_file *f, const tp_machine_settings *o);

/* Batches of that many examples, made as in training; packed: 0 no, 1 yes, PACKED_AS_TRAINED. False with the reason in
 * f->t.why if the model does not take packed documents. */
enum { PACKED_AS_TRAINED = 2 };
bool lra_file_batching(lra_file *f, int64_t batch, int packed, encoder_batching *how);

void lra_file_close(lra_file *f);

#endif
