/* ref_attention.h - tp_attention and tp_rel_attention written out in plain ops, and cases for the
 * tests of both. The plain versions store everything of size N * S and draw the same dropout mask
 * from the same position in the random stream. */
#ifndef REF_ATTENTION_H
#define REF_ATTENTION_H

#include <tapegrad/tapegrad.h>

/* As tp_attention; mask [B,S] is in host memory, or NULL. */
tp_tensor ref_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, const uint8_t *mask,
                        tp_tensor bias, tp_attn_cfg cfg);

tp_tensor ref_rel_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor pos,
                            tp_tensor r_w, tp_tensor r_r, tp_attn_cfg cfg);

/* ---- cases ---- */

typedef struct ref_attention_case {
    const char *name;
    int64_t B, N, S, H, D;
    tp_attn_cfg cfg; /* heads are set from H */
    bool relative;
    enum { NO_MASK, THIRDS, BLIND } mask; /* keys hidden: none, one in three, also a full row */
    int bias;                             /* its number of axes; 0: no bias                   */
    double size;                          /* scale of queries and keys; 0: 1                  */
    double shift;   /* added to the first elements of queries and keys to raise the logits    */
    bool params;    /* all inputs are f32 parameters                                          */
    bool odd_place; /* all inputs begin one element after the beginning of a buffer           */
} ref_attention_case;

#define SIZES(b, n, s, h, d) .B = b, .N = n, .S = s, .H = h, .D = d

/* Inputs: q, k, v; then bias, or pos, r_w, r_r. A shape without axes: absent input. */
enum { REF_ATTENTION_INPUTS = 6 };
tp_shape ref_attention_input(const ref_attention_case *p, int i);

/* The mask [B,S], freed by the caller, or NULL for no mask. */
uint8_t *ref_attention_mask(const ref_attention_case *p);

#endif
