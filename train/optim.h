/* optim.h - the object behind tp_optim: its options, its states, and a count per parameter. */
#ifndef TP_OPTIM_H
#define TP_OPTIM_H

#include <tapegrad/optim_kind.h>

#include "train/peers/cuts.h"

typedef struct tp_weight { /* a parameter and its factors for rate and decay */
    const tp_entry *entry;
    tp_factors factors;
    int64_t updates;
    tp_view state[TP_OPTIM_STATES]; /* shape of each state, without data */
    int part, parts;                /* its first part, and their number */
    bool planned;                   /* updated by the running step */
} tp_weight;

/* A stretch of a parameter whose states this process has: the whole of it, unless processes divide
 * the states. */
typedef struct tp_part {
    int64_t first, numel;        /* elements within the parameter */
    int64_t at[TP_OPTIM_STATES]; /* the first one in each state's block */
} tp_part;

struct tp_optim {
    tp_err err;      /* of construction and reading: permanent */
    tp_err step_err; /* of the last step: the next step clears it */
    tp_err refusal;  /* of the last refused file */
    tp_params *P;
    uint64_t id; /* of P */
    tp_device *dev;
    const tp_optim_kind *kind;
    double option[TP_OPTIM_OPTIONS];
    tp_cuts cuts; /* the stretches of all processes; at NULL: this one has all states */
    tp_weight *weights;
    tp_part *parts; /* in the order of the weights */
    int n, nparts;
    tp_segments s; /* of the current step; capacity nparts */
    tp_buf *state[TP_OPTIM_STATES];
    size_t bytes[TP_OPTIM_STATES];
    int64_t updates;
    double scale; /* factor on the gradients of the next step */
};

/* optim_kinds.c: the library's rows, up to NULL. */
extern const tp_optim_kind *const tp__optim_kinds[];

/* optim.c */
tp_optim *tp__optim_some(const tp_optim *O); /* O, or a failed optimiser in place of NULL */
/* False, with *e set, if P has failed or was freed. */
bool tp__optim_usable(const tp_optim *O, const char *what, tp_err *e);

/* optim.c */
int tp__optim_find(const tp_optim_kind *k, const char *name); /* index of an option, or -1 */
double tp__optim_value(const tp_optim *O, const char *name);  /* 0 if the option is absent */
/* False with *e set if a value or a combination is impossible. */
bool tp__optim_check(const tp_optim_kind *k, const double *option, tp_err *e);
/* Creates the states required by the options and drops the others. False with *e set. */
bool tp__optim_states(tp_optim *O, tp_err *e);

/* optim_parts.c */
/* Divides O's states as P's exchange divides the gradients, if it does. False with *e set. */
bool tp__optim_divide(tp_optim *O, tp_err *e);
/* Gives each weight the shapes of its states and its parts their places. False with *e set. */
bool tp__optim_lay_out(tp_optim *O, tp_err *e);
/* Are the states divided as the gradients are now? False with *e set. */
bool tp__optim_fits(const tp_optim *O, const char *what, tp_err *e);
void tp__optim_parts_free(tp_optim *O);

#endif
