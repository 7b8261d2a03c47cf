/* optim.h - every form of every optimiser, and its step over one parameter as a plain loop in
 * double. */
#ifndef TP_SUPPORT_OPTIM_H
#define TP_SUPPORT_OPTIM_H

#include <tapegrad/tapegrad.h>

typedef struct optim_form {
    const char *name, *kind;   /* NULL ends the table */
    tp_optim_value options[8]; /* the options given */
    tp_factor_rule factors;
} optim_form;

extern const optim_form optim_forms[];
const optim_form *optim_form_of(const char *name); /* of the table */

tp_optim *optim_make(tp_params *P, const optim_form *f);

enum { OPTIM_LARGEST = 2 * 131 * 65, OPTIM_SIDE = 90 }; /* elements of a parameter; least side */

typedef struct optim_plain { /* one parameter: values, moments, updates made */
    const char *name;
    tp_shape shape;
    int64_t numel;
    double p[OPTIM_LARGEST], m[OPTIM_LARGEST], v[OPTIM_LARGEST], u[OPTIM_LARGEST];
    int updates, steps;         /* of this parameter; of the optimiser */
    double largest, weights, c; /* schedulefree: the rate so far, sums, the present weight */
} optim_plain;

/* A step of the optimiser that does not update this parameter. */
void optim_plain_skip(const optim_form *f, optim_plain *s, double lr);
void optim_plain_step(const optim_form *f, optim_plain *s, const double *grad, double lr);

#endif
