/* inner.h - functions that the files of the LRA encoders share. x: [B,n,d] unless said otherwise. */
#ifndef TP_LRA_INNER_H
#define TP_LRA_INNER_H

#include <tapegrad/lra.h>

/* Rows that the layers see of a document of so many tokens: with a CLS that is put before it one more,
 * unless the last token is dropped for it. */
int64_t tp__lra_rows(const tp_lra_cfg *c, int64_t tokens);

/* Does the model have an embedding as CLS? */
static inline bool tp__lra_has_embedding(const tp_lra_cfg *c)
{
    return c->pooling == TP_LRA_CLS_LAST || c->pooling == TP_LRA_CLS_TOKEN;
}

/* The member `preset` of tp_model_lra; cfg is a tp_lra_cfg. */
bool tp__lra_preset(void *cfg, const char *name, char *why, size_t size);

/* The member `paper` of tp_model_lra; cfg is a tp_lra_cfg. */
void tp__lra_paper(const void *cfg, int64_t tokens, tp_cost *cost);

/* The sequences of a batch: [B,n,d] with a mask or TP_NONE, or, if packed.offset is given, [M,d]. */
typedef struct tp__lra_batch {
    tp_tensor mask;
    tp_packed packed;
} tp__lra_batch;

/* x with zeros at padding. */
tp_tensor tp__lra_hide(tp_tape *T, tp_tensor x, tp_tensor mask);

/* [B,n,h D] -> [B,h,n,D] and back. */
tp_tensor tp__lra_split(tp_tape *T, tp_tensor x, int heads);
tp_tensor tp__lra_merge(tp_tape *T, tp_tensor x);

/* Head slice i of row j is sum_t mix[i,j,t] x[t]: mix [h,k,n] -> [B,k,d]. */
tp_tensor tp__lra_mix(tp_tape *T, tp_tensor mix, tp_tensor x);

/* y plus the depthwise convolution of v along the tokens, one filter for each head; padding of v is 0. */
tp_tensor tp__lra_convolve(tp_tape *T, const tp_lra_attn *m, tp_tensor y, tp_tensor v,
                           tp_tensor mask);

/* The row of the CLS of tp_lra_attn_forward, [B,1,d]. */
tp_tensor tp__lra_attn_cls(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor cls,
                           tp_tensor mask);

/* The attentions: from the layer's input to the result of tp_lra_attn_forward (long_short), from
 * projected queries, keys and values to the input of the last projection (the others). Packed sequences:
 * cls [B,1,d] as otherwise, or with cls_from_seq the first B rows of x; results of all CLS come before those of
 * all tokens. */
tp_tensor tp__lra_long_short(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_tensor cls,
                             tp__lra_batch rows, bool cls_only);
tp_tensor tp__lra_nystrom(tp_tape *T, const tp_lra_attn *m, tp_tensor q, tp_tensor k, tp_tensor v,
                          tp_tensor mask);
/* Performer and linear attention. */
tp_tensor tp__lra_kernel(tp_tape *T, const tp_lra_attn *m, tp_tensor q, tp_tensor k, tp_tensor v,
                         tp_tensor mask);

#endif
