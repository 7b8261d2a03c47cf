/* parity_pvt.h - kinds of PVT and PVTv2. */
#ifndef PARITY_PVT_H
#define PARITY_PVT_H

#include "parity_case.h"

enum { PVT_SECOND = 1, PVT_HEADLESS = 2 }; /* bits of a kind's variant */

void pvt_declare_attention(parity *p, void *self);
void pvt_attend(parity *p, void *self);
void pvt_declare_block(parity *p, void *self);
void pvt_run_block(parity *p, void *self);
void pvt_declare(parity *p, void *self);
void pvt_run(parity *p, void *self);
void pvt_run_features(parity *p, void *self);

#endif
