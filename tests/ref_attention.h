/* ref_attention.h - tp_attention and tp_rel_attention written out in plain ops. They hold
 * everything of size N * S and draw the same dropout mask from the same place in the random stream.
 */
#ifndef REF_ATTENTION_H
#define REF_ATTENTION_H

#include <tapegrad/tapegrad.h>

/* As tp_attention; mask [B,S] in host memory, or NULL. */
tp_tensor ref_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, const uint8_t *mask,
                        tp_tensor bias, tp_attn_cfg cfg);

tp_tensor ref_rel_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor pos,
                            tp_tensor r_w, tp_tensor r_r, tp_attn_cfg cfg);

#endif
