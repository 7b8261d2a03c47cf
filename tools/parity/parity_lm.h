/* parity_lm.h - shared by the kinds of the language models: a model under test of either family. */
#ifndef PARITY_LM_H
#define PARITY_LM_H

#include <tapegrad/lm.h>

#include "parity_case.h"

typedef enum lm_family { LM_LS, LM_XL } lm_family; /* par_kind.variant */

typedef struct lm_case {
    bool xl;          /* Transformer-XL, else Transformer-LS */
    tp_tensor *cache; /* slots of the carried state          */
    int ncache;
    tp_ls_lm ls;
    tp_ls_lm_state ls_state;
    tp_txl txl;
    tp_txl_state txl_state;
} lm_case;

/* Creates p->T, and p->P with the model of the metadata, ready for par_load. NULL: failed. */
lm_case *lm_open(parity *p);
/* One segment: tokens [B,M] -> logits [B,M,V]; advances the caches. */
tp_tensor lm_forward(parity *p, lm_case *c, tp_tensor tokens);
void lm_clear(parity *p, lm_case *c); /* back to the start of the streams */

tp_ls_cfg lm_ls_cfg(parity *p);
tp_ls_lm_cfg lm_cfg(parity *p);
tp_txl_cfg lm_txl_cfg(parity *p);

/* parity_lm_parts.c */
typedef struct lm_attention {
    tp_ls_cfg cfg;
    int64_t dim;
    tp_ls_attn_m m;
} lm_attention;
typedef struct lm_block {
    tp_ls_lm_cfg cfg;
    tp_ls_block m;
} lm_block;
typedef struct lm_txl_attention {
    tp_txl_cfg cfg;
    tp_txl_attn m;
} lm_txl_attention;
void lm_declare_attention(parity *p, void *self);
void lm_attend(parity *p, void *self);
void lm_declare_block(parity *p, void *self);
void lm_run_block(parity *p, void *self);
void lm_declare_txl_attention(parity *p, void *self);
void lm_attend_txl(parity *p, void *self);

void lm_run_trace(parity *p); /* parity_lm_train.c */
/* parity_lm_data.c */
void lm_run_data(parity *p);
void lm_run_evaluation(parity *p);

#endif
