/* parity_cvt.h - shared by the kinds of CvT, CvT* and CvT*-LS. */
#ifndef PARITY_CVT_H
#define PARITY_CVT_H

#include <tapegrad/cvt.h>

#include "parity_case.h"

typedef enum cvt_family { CVT, CVT_STAR, CVT_LS } cvt_family;

/* The smallest model of a cvt_family. */
tp_cvt_cfg cvt_like(int family);
/* Reads the options that attentions and models share into c. */
void cvt_options(parity *p, tp_cvt_cfg *c);
/* Sets what the configuration lacks in a declared module. */
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
