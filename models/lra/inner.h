/* inner.h - functions that the files of the LRA encoders share. x: [B,n,d] unless said
 * otherwise. */
#ifndef TP_LRA_INNER_H
#define TP_LRA_INNER_H

#include <tapegrad/lra.h>

/* Rows that the layers see of a document of so many tokens: with a CLS that is put before it one
 * more, unless the last token is dropped for it. */
int64_t tp__lra_rows(const tp_lra_cfg *c, int64_t tokens);

/* Does the model have an embedding as CLS? */
static inline bool tp__lra_has_embedding(const tp_lra_cfg *c)
{
    return c->pooling == TP_LRA_CLS_LAST || c->pooling == TP_LRA_CLS_TOKEN;
}

/* ---- config.c: members of tp_model_lra, and the check of an attention alone ---- */

extern const tp_model_row tp__lra_presets[];
extern const tp_model_member tp__lra_members[];
bool tp__lra_preset(void *cfg, const char *name, char *why, size_t size);
bool tp__lra_check(const void *cfg, char *why, size_t size);
bool tp__lra_check_attn(const tp_lra_attn_cfg *cfg, char *why, size_t size);
void tp__lra_paper(const void *cfg, int64_t tokens, tp_cost *cost);

/* ---- attention.c ---- */

/* The sequences of a batch: [B,n,d] with a mask or TP_NONE, or, if packed.offset is given,
 * [M,d]. */
typedef struct tp__lra_batch {
    tp_tensor mask;
    tp_packed packed;
} tp__lra_batch;

/* x with zeros at padding. */
tp_tensor tp__lra_hide(tp_tape *T, tp_tensor x, tp_tensor mask);

/* The part "attn". Mixtures in m->mix are another layer's, which this one shares. */
void tp__lra_attn_init(tp_params *P, void *m, const char *name, const void *cfg);
tp_tensor tp__lra_attn(tp_tape *T, const void *m, void *with, tp_tensor x);

/* The row of the CLS of tp__lra_attn, [B,1,d]. */
tp_tensor tp__lra_attn_cls(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor cls,
                           tp_tensor mask);

/* Long-short attention. Packed sequences: cls [B,1,d] as otherwise, or with cls_from_seq the first
 * B rows of x; results of all CLS come before those of all tokens. */
tp_tensor tp__lra_long_short(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor cls,
                             tp__lra_batch rows, bool cls_only);

#endif
