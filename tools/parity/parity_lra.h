/* parity_lra.h - what the kinds of the LRA encoders share. */
#ifndef PARITY_LRA_H
#define PARITY_LRA_H

#include <tapegrad/lra.h>

#include "parity_case.h"

/* The configuration of the attention that the key names. */
tp_lra_attn_cfg lra_attention(parity *p, const char *key, int64_t dim, int64_t length);

/* Declares the model of the metadata, a tp_lra. */
void lra_declare(parity *p, void *self);

void lra_run_trace(parity *p);

#endif
