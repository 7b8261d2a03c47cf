/* encoder.c - see the header. */
#include "encoder.h"

#include <stdio.h>
#include <string.h>

const char *attention_name(int i)
{
    static const char *const names[ATTENTIONS] = {
        "softmax", "linformer", "performer", "nystrom",      "nystrom-conv", "reformer",
        "linear",  "none",      "ls",        "ls-linformer", "ls-best",      "dp",
    };
    return i >= 0 && i < ATTENTIONS ? names[i] : NULL;
}

/* ---- lengths ---- */

bool encoder_is_fixed(const tp_lra_cfg *c)
{
    return c->attn.kind == TP_LRA_LINFORMER || (c->attn.kind == TP_LRA_LS && c->attn.fixed);
}

bool encoder_ignores_padding(const tp_lra_cfg *c)
{
    const tp_lra_kind kind = c->attn.kind;
    return !encoder_is_fixed(c) &&
           (kind == TP_LRA_LS || kind == TP_LRA_SOFTMAX || kind == TP_LRA_NONE);
}

int64_t encoder_multiple(const tp_lra_cfg *c)
{
    if (encoder_is_fixed(c)) return c->attn.length;
    switch (c->attn.kind) {
    case TP_LRA_LS: return c->attn.window > 0 ? c->attn.window : 1;
    case TP_LRA_NYSTROM: return c->attn.rank;
    case TP_LRA_REFORMER: return c->attn.chunk ? c->attn.chunk : 64;
    default: return 1;
    }
}

tp_document_loader_opts encoder_batches(const tp_lra_cfg *c, encoder_batching how)
{
    const bool sorted = how.bucket > 1 && !encoder_is_fixed(c);
    const int64_t bucket = sorted ? how.bucket : 0;
    if (how.packed)
        return (tp_document_loader_opts){ .batch = how.batch, .bucket = bucket, .packed = true };
    return (tp_document_loader_opts){ .batch = how.batch,
                                      .bucket = bucket,
                                      .length = sorted ? 0 : c->attn.length,
                                      .multiple = sorted ? encoder_multiple(c) : 0 };
}

/* ---- configurations ---- */

void encoder_write(const tp_lra_cfg *c, tp_writer *W)
{
    const tp_model_cfg m = tp_model_cfg_of(&tp_model_lra, c);
    tp_model_write(&m, W);
}

bool encoder_read(tp_lra_cfg *c, tp_file *F, char *why, size_t size)
{
    tp_model_cfg m;
    if (!tp_model_read(&m, F, why, size)) return false;
    if (m.model == &tp_model_lra) {
        memcpy(c, &m.at, sizeof *c);
        return true;
    }
    snprintf(why, size, "%s holds a %s, not an encoder of documents", tp_file_path(F),
             m.model->name);
    return false;
}

static const tp_lra *lra_of(const encoder *m)
{
    return tp_net_module(m->net);
}

void encoder_init(tp_params *P, encoder *m, const tp_lra_cfg *c, uint64_t seed)
{
    const tp_model_cfg model = tp_model_cfg_of(&tp_model_lra, c);
    m->cfg = *c;
    m->net = tp_net_new(P, "", &model);
    if (c->attn.kind == TP_LRA_PERFORMER) tp_lra_redraw(P, lra_of(m), seed, 0);
}

void encoder_free(encoder *m)
{
    tp_net_free(m->net);
    m->net = NULL;
}

/* ---- forward ---- */

static void put(tp_tape *T, tp_tensor *slot, tp_dtype dtype, tp_shape s, const void *values,
                bool stay)
{
    if (stay)
        tp_feed(T, slot, dtype, s, values);
    else
        *slot = tp_from(T, dtype, s, values);
}

void encoder_put(tp_tape *T, const encoder *m, const tp_document_batch *b, bool stay,
                 tp_tensor slot[ENCODER_SLOTS])
{
    int c = 0;
    for (int k = 0; k < (m->cfg.pair ? 2 : 1); k++) {
        const tp_shape s = TP_SHAPE(b->n, b->length[k]);
        if (b->offset[k]) {
            put(T, &slot[c++], TP_I32, TP_SHAPE(b->length[k]), b->ids[k], stay);
            put(T, &slot[c++], TP_I32, TP_SHAPE(b->length[k]), b->position[k], stay);
            put(T, &slot[c++], TP_I32, TP_SHAPE(b->n + 1), b->offset[k], stay);
            continue;
        }
        put(T, &slot[c++], TP_I32, s, b->ids[k], stay);
        put(T, &slot[c++], TP_U8, s, b->mask[k], stay);
    }
    put(T, &slot[c], TP_I32, TP_SHAPE(b->n), b->label, stay);
}

/* Slots of a document: 3 if it is packed. */
static int slots_of(const tp_tensor slot[ENCODER_SLOTS])
{
    return tp_ndim(slot[0]) == 1 ? 3 : 2;
}

/* What stands for the document that begins at slot `at`. The mean is of the full length, as if the document were
 * padded to it: results do not depend on how documents are put into batches. */
static tp_tensor pooled(tp_tape *T, const encoder *m, const tp_tensor *at)
{
    const tp_lra *lra = lra_of(m);
    const int64_t all = m->cfg.attn.length;
    if (slots_of(at) == 3) {
        const tp_lra_packed a = { at[0], at[1], { at[2], all }, all };
        return tp_lra_encode_packed(T, lra, a);
    }
    const tp_tensor x = tp_lra_pool(T, lra, tp_lra_encode(T, lra, at[0], at[1]));
    const int64_t n = tp_dim(at[0], 1);
    if (m->cfg.pooling != TP_LRA_MEAN || n == all) return x;
    return tp_scale(T, x, (double)n / (double)all);
}

tp_tensor encoder_logits(tp_tape *T, const encoder *m, const tp_tensor slot[ENCODER_SLOTS])
{
    const tp_tensor a = pooled(T, m, slot);
    const tp_tensor b = m->cfg.pair ? pooled(T, m, slot + slots_of(slot)) : TP_NONE;
    const tp_tensor z = tp_lra_classify(T, lra_of(m), a, b);
    return tp_compute_dtype(T) == TP_BF16 ? tp_cast(T, z, TP_F32) : z;
}

tp_tensor encoder_loss(tp_tape *T, const encoder *m, const tp_tensor slot[ENCODER_SLOTS])
{
    const int label = slots_of(slot) * (m->cfg.pair ? 2 : 1);
    return tp_cross_entropy(T, encoder_logits(T, m, slot), slot[label], TP_MEAN);
}
