/* parity_cvt.h - what the kinds of CvT, CvT* and CvT*-LS share. */
#ifndef PARITY_CVT_H
#define PARITY_CVT_H

#include <tapegrad/cvt.h>

#include "parity_case.h"

typedef enum cvt_family { CVT, CVT_STAR, CVT_LS } cvt_family;

/* The options that attentions and models have in common, changed where the metadata have them. */
void cvt_options(parity *p, tp_cvt_cfg *c);
/* The same for a module that is declared: what the configuration does not hold. */
void cvt_adjust(parity *p, tp_cvt_attn *m);
/* The one-stage configuration of a single attention or block of p->kind->variant. */
tp_cvt_cfg cvt_one_stage(parity *p);

void cvt_declare_embed(parity *p, void *self);
void cvt_embed(parity *p, void *self);
typedef struct cvt_projection {
    tp_conv2d_m conv;
    tp_batchnorm_m bn;
} cvt_projection;
void cvt_declare_projection(parity *p, void *self);
void cvt_project(parity *p, void *self);
typedef struct cvt_sepconv {
    tp_conv2d_m conv;
    tp_linear_m linear;
} cvt_sepconv;
void cvt_declare_sepconv(parity *p, void *self);
void cvt_separate(parity *p, void *self);
void cvt_declare_attention(parity *p, void *self);
void cvt_attend(parity *p, void *self);
void cvt_declare_block(parity *p, void *self);
void cvt_block(parity *p, void *self);

#endif
