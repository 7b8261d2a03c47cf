/* parity_lsla.h - kinds of ViT-LSLA's training recipe. */
#ifndef PARITY_LSLA_H
#define PARITY_LSLA_H

#include "parity_case.h"

void lsla_run_schedule(parity *p);
void lsla_run_split(parity *p);
void lsla_run_mixing(parity *p);

#endif
