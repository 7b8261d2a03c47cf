/* parity_lm.h - what the language model's case kinds share: a model under test of either family. */
#ifndef PARITY_LM_H
#define PARITY_LM_H

#include <tapegrad/models.h>

#include "parity.h"

typedef struct lm_case {
    bool xl; /* Transformer-XL, else Transformer-LS */
    tp_params *P;
    tp_tape *T;
    tp_tensor *cache; /* slots of the running state */
    int ncache;
    tp_lm ls;
    tp_lm_state ls_state;
    tp_txl txl;
    tp_txl_state txl_state;
} lm_case;

/* The model that the metadata describes, with the file's weights or the fill rule's, and a tape.
 * Never NULL: on failure p says why. */
lm_case *lm_open(parity *p, bool xl);
void lm_close(lm_case *c);
/* One segment: tokens [B,M] -> logits [B,M,V]; the caches advance. */
tp_tensor lm_forward(lm_case *c, tp_tensor tokens);
void lm_clear(lm_case *c); /* back to the start of the streams */

tp_ls_cfg lm_ls_cfg(parity *p);
tp_lm_cfg lm_cfg(parity *p);
tp_txl_cfg lm_txl_cfg(parity *p);
tp_tape *lm_tape(parity *p);

void lm_run_attention(parity *p);
void lm_run_block(parity *p);
void lm_run_txl_attention(parity *p);
void lm_run_trace(parity *p);
void lm_run_txl_trace(parity *p);
void lm_run_data(parity *p);

#endif
