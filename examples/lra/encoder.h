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
enum { ATTENTIONS = 12, ATTENTION_LS = 8, ENCODER_SLOTS = 7 };
const char *attention_name(int i); /* NULL past the last */

/* ---- lengths ---- */

/* Are all documents padded to the full length? Mixtures of fixed positions need it. */
bool encoder_is_fixed(const tp_lra_cfg *c);
/* Does padding leave all results as they are? As published, it enters Performer's denominators, Nystroem's
 * landmarks and Reformer's chunks, and the scale of linear attention depends on the padded length. */
bool encoder_ignores_padding(const tp_lra_cfg *c);

/* How documents become batches. */
typedef struct encoder_batching {
    int64_t batch; /* examples */
    int64_t
        bucket; /* > 1: sorted by length, so many batches at a time, and unless packed, padded to the longest
                       of a batch; otherwise unsorted, and unless packed, padded to the full length */
    bool packed; /* one after another, without padding: of models that tp_lra_packs */
} encoder_batching;

/* A reason for refusing packed batches. */
#define UNPACKABLE                                                                                 \
    "only softmax, none, and ls, ls-best and dp without a convolution take packed documents"

/* The tokens that the model takes of an unpacked batch are a multiple of this. */
int64_t encoder_multiple(const tp_lra_cfg *c);

/* As options of the document_loader; seed, train and whole are the caller's. */
tp_document_loader_opts encoder_batches(const tp_lra_cfg *c, encoder_batching how);

/* ---- the model ---- */

/* The configuration as metadata of a checkpoint. read: false with a full sentence in why. */
void encoder_write(const tp_lra_cfg *c, tp_writer *W);
bool encoder_read(tp_lra_cfg *c, tp_file *F, char *why, size_t size);

/* Declares the parameters, Performer's features drawn by the seed; a failure is P's error. Free the model before
 * P. free ignores one that was never declared. */
void encoder_init(tp_params *P, encoder *m, const tp_lra_cfg *c, uint64_t seed);
void encoder_free(encoder *m);

/* Puts a batch on the tape: ids and mask of each document, of packed ones ids, positions and offsets, then the
 * labels. stay: into slots that outlive the step (tp_feed). Of b only n, length, ids, label, and mask or position and
 * offset are read. */
void encoder_put(tp_tape *T, const encoder *m, const tp_document_batch *b, bool stay,
                 tp_tensor slot[ENCODER_SLOTS]);

/* -> logits [B,classes], in f32 or f64. */
tp_tensor encoder_logits(tp_tape *T, const encoder *m, const tp_tensor slot[ENCODER_SLOTS]);
tp_tensor encoder_loss(tp_tape *T, const encoder *m, const tp_tensor slot[ENCODER_SLOTS]);

#endif
