/* parity_cvt.h - what the case kinds of CvT, CvT* and CvT*-LS share. */
#ifndef PARITY_CVT_H
#define PARITY_CVT_H

#include <tapegrad/cvt.h>

#include "parity.h"

typedef enum cvt_family { CVT, CVT_STAR, CVT_LS } cvt_family;

/* The options of the metadata, those of the family where it has none. */
tp_cvt_cfg cvt_options(parity *p, cvt_family family);
tp_tape *cvt_tape(parity *p);
void cvt_check_buffers(parity *p, tp_params *P);
tp_tensor cvt_channels_last(tp_tape *T, tp_tensor x); /* from [B,C,H,W] */

void cvt_run_embed(parity *p);
void cvt_run_projection(parity *p);
void cvt_run_sepconv(parity *p);
void cvt_run_attention(parity *p);
void cvt_run_ls_attention(parity *p);
void cvt_run_block(parity *p);

#endif
