/* inner.h - functions shared by the LRA encoders. x: [B,n,d] unless noted. */
#ifndef TP_LRA_INNER_H
#define TP_LRA_INNER_H

#include <tapegrad/lra.h>

/* Rows that layers see of a document: its tokens, plus one for a prepended CLS unless that replaces
 * the last token. */
int64_t tp__lra_rows(const tp_lra_cfg *c, int64_t tokens);

/* Is the CLS an embedding? */
static inline bool tp__lra_has_embedding(const tp_lra_cfg *c)
{
    return c->pooling == TP_LRA_CLS_LAST || c->pooling == TP_LRA_CLS_TOKEN;
}

/* ---- config.c: members of tp_model_lra, check of an attention ---- */

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

/* The part "attn". Mixtures already in m->mix are shared with another layer. */
void tp__lra_attn_init(tp_params *P, void *m, const char *name, const void *cfg);
tp_tensor tp__lra_attn(tp_tape *T, const void *m, void *with, tp_tensor x);

/* The CLS row of tp__lra_attn, [B,1,d]. */
tp_tensor tp__lra_attn_cls(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor cls,
                           tp_tensor mask);

/* Long-short attention. Packed sequences: cls [B,1,d], or with cls_from_seq the first B rows of x;
 * results of all CLS precede those of the tokens. */
tp_tensor tp__lra_long_short(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor cls,
                             tp__lra_batch rows, bool cls_only);

#endif
