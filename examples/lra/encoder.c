/* encoder.c - the model of lra: an encoder that reads a document loader's batches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lra.h"
#include "reports/models.h"

const char *attention_name(int i)
{
    static const char *const names[ATTENTIONS] = {
        "softmax", "linformer", "performer", "nystrom",      "nystrom-conv", "reformer",
        "linear",  "none",      "ls",        "ls-linformer", "ls-best",      "dp",
    };
    return i >= 0 && i < ATTENTIONS ? names[i] : NULL;
}

int attention_of(const char **list)
{
    const size_t n = strcspn(*list, ",");
    for (int k = 0; k < ATTENTIONS; k++)
        if (strlen(attention_name(k)) == n && strncmp(attention_name(k), *list, n) == 0) {
            *list += n + ((*list)[n] == ',');
            return k;
        }
    return -1;
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
    tp_document_loader_opts o = {
        .batch = how.batch, .bucket = bucket, .packed = how.packed, .share = how.share
    };
    if (how.packed) return o;
    o.length = sorted ? 0 : c->attn.length;
    o.multiple = sorted ? encoder_multiple(c) : 0;
    return o;
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
    if (c->attn.kind == TP_LRA_PERFORMER) tp_model_lra.redraw(P, lra_of(m), seed, 0);
}

void encoder_free(encoder *m)
{
    tp_net_free(m->net);
    m->net = NULL;
}

/* ---- forward ---- */

/* Represents the document that begins at slot `at`. The mean is over the full length, as if the
 * document were padded, so that results do not depend on the batching. */
static tp_tensor pooled(tp_tape *T, const encoder *m, const tp_tensor *at)
{
    const tp_lra *lra = lra_of(m);
    const int64_t all = m->cfg.attn.length;
    if (doc_slots(at) == 3) {
        const tp_lra_packed a = { at[0], at[1], { at[2], all }, all };
        return tp_lra_encode_packed(T, lra, a);
    }
    const tp_tensor x = tp_lra_pool(T, lra, tp_lra_encode(T, lra, at[0], at[1]));
    const int64_t n = tp_dim(at[0], 1);
    if (m->cfg.pooling != TP_LRA_MEAN || n == all) return x;
    return tp_scale(T, x, (double)n / (double)all);
}

tp_tensor encoder_logits(tp_tape *T, const encoder *m, const tp_tensor slot[DOC_SLOTS])
{
    const tp_tensor a = pooled(T, m, slot);
    const tp_tensor b = m->cfg.pair ? pooled(T, m, slot + doc_slots(slot)) : TP_NONE;
    const tp_tensor z = tp_lra_classify(T, lra_of(m), a, b);
    return tp_compute_dtype(T) == TP_BF16 ? tp_cast(T, z, TP_F32) : z;
}

tp_tensor encoder_loss(tp_tape *T, const encoder *m, const tp_tensor slot[DOC_SLOTS])
{
    const int label = doc_slots(slot) * (m->cfg.pair ? 2 : 1);
    return tp_cross_entropy(T, encoder_logits(T, m, slot), slot[label], TP_MEAN);
}

/* ---- scores ---- */

static tp_tensor logits_of(tp_tape *T, const void *m, const tp_tensor slot[DOC_SLOTS])
{
    return encoder_logits(T, m, slot);
}

bool encoder_score(doc_score *s, tp_tape *T, const encoder *m, const tp_documents *X,
                   encoder_batching how, doc_watch w)
{
    enum { ALL_BATCHES = INT32_MAX };
    const doc_model of = { m, logits_of, m->cfg.classes };
    how.bucket = how.bucket > 1 && !how.packed ? ALL_BATCHES : 0;
    const tp_document_loader_opts o = encoder_batches(&m->cfg, how);
    return doc_score_run(s, T, &of, X, &o, w);
}
