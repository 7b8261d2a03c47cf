/* encoder.h - the program's model: an encoder of the Long Range Arena that reads the batches of a document
 * loader. */
#ifndef ENCODER_H
#define ENCODER_H

#include <tapegrad/document_loader.h>
#include <tapegrad/lra.h>

typedef struct encoder {
    tp_lra_cfg cfg;
    tp_net *net;
} encoder;

/* The values of --attention, in the order of its choices. */
#define ATTENTION_NAMES                                                                            \
    "softmax|linformer|performer|nystrom|nystrom-conv|reformer|linear|none|ls|ls-linformer|"       \
    "ls-best|dp"
enum { ATTENTIONS = 12, ATTENTION_LS = 8, ENCODER_SLOTS = 5 };
const char *attention_name(int i); /* NULL past the last */

/* ---- lengths ---- */

/* Are all documents padded to the full length? Mixtures of fixed positions need it. */
bool encoder_is_fixed(const tp_lra_cfg *c);
/* Does padding leave all results as they are? As published, it enters Performer's denominators, Nystroem's
 * landmarks and Reformer's chunks, and the scale of linear attention depends on the padded length. */
bool encoder_ignores_padding(const tp_lra_cfg *c);

/* How batches are padded: bucket > 1 sorts by length and pads to the longest of a batch (of the document_loader's
 * options; seed, train and whole are the caller's). Otherwise to the full length. */
tp_document_loader_opts encoder_batches(const tp_lra_cfg *c, int64_t batch, int64_t bucket);

/* ---- the model ---- */

/* The configuration as metadata of a checkpoint. read: false with a full sentence in why. */
void encoder_write(const tp_lra_cfg *c, tp_writer *W);
bool encoder_read(tp_lra_cfg *c, tp_file *F, char *why, size_t size);

/* Declares the parameters, Performer's features drawn by the seed; a failure is P's error. Free the model before
 * P. free ignores one that was never declared. */
void encoder_init(tp_params *P, encoder *m, const tp_lra_cfg *c, uint64_t seed);
void encoder_free(encoder *m);

/* Puts a batch on the tape: ids and mask of each document, then the labels. stay: into slots that outlive the step
 * (tp_feed). Of b only n, length, ids, mask and label are read. */
void encoder_put(tp_tape *T, const encoder *m, const tp_document_batch *b, bool stay,
                 tp_tensor slot[ENCODER_SLOTS]);

/* -> logits [B,classes], in f32 or f64. */
tp_tensor encoder_logits(tp_tape *T, const encoder *m, const tp_tensor slot[ENCODER_SLOTS]);
tp_tensor encoder_loss(tp_tape *T, const encoder *m, const tp_tensor slot[ENCODER_SLOTS]);

#endif
