/* optim.h - the object behind tp_optim: its options, its states, and a count per parameter. */
#ifndef TP_OPTIM_H
#define TP_OPTIM_H

#include <tapegrad/optim_kind.h>

#include "train/blocks.h"
#include "train/peers/cuts.h"

typedef struct tp_weight { /* a parameter and its factors for rate and decay */
    const tp_entry *entry;
    tp_factors factors;
    int64_t updates;
    tp_view state[TP_OPTIM_STATES]; /* shape of each state, without data */
    bool placed;                    /* it has a place for its states */
    int part, parts;                /* its first part, and their number */
    bool taken;                     /* by the kind's rule for some matrices */
    bool planned;                   /* updated by the running step, or placed just now */
} tp_weight;

/* A stretch of a parameter whose states this process has: the whole of it, unless processes divide
 * the states. Stretches follow one another in the blocks of states. */
typedef struct tp_part {
    int64_t first, numel;        /* elements within the parameter */
    int64_t at[TP_OPTIM_STATES]; /* the first one in each state's block */
} tp_part;

/* What a GPU is given for a step, in one piece: the attributes and the segments behind them. */
typedef struct tp_step_table {
    tp_optim_attr attr;
    tp_segment at[];
} tp_step_table;

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
    tp_part *parts;       /* in the order of the weights, then of those placed later */
    int n, nparts, most;  /* most: the parts that there are once all weights are placed */
    tp_segments s;        /* of the current step; capacity `most` */
    tp_step_table *table; /* what s is in */
    tp_buf *there;        /* on a GPU: its copy, outside the memory of recordings; else NULL */
    tp_buf *state[TP_OPTIM_STATES];
    size_t bytes[TP_OPTIM_STATES];
    int64_t updates;
    double sum[TP_OPTIM_SUMS]; /* as of tp_optim_kind */
    tp_buf *kept;              /* the values of training while the averages are swapped in */
    double scale;              /* factor on the gradients of the next step */
    double rate;               /* of tp_next_rate; NaN: none */
    bool scaled_late;          /* tp_grad_scale was called within a step of tp_capture */
    struct tp__step *steps;    /* in recordings (optim_record.c) */
};

/* optim_kinds.c: the library's rows, up to NULL. */
extern const tp_optim_kind *const tp__optim_kinds[];

/* optim.c */
tp_optim *tp__optim_some(const tp_optim *O); /* O, or a failed optimiser in place of NULL */
/* False, with *e set, if P has failed or was freed. */
bool tp__optim_usable(const tp_optim *O, const char *what, tp_err *e);
int tp__optim_find(const tp_optim_kind *k, const char *name); /* index of an option, or -1 */
double tp__optim_value(const tp_optim *O, const char *name);  /* 0 if the option is absent */
/* False with *e set if a value or a combination is impossible. */
bool tp__optim_check(const tp_optim_kind *k, const double *option, tp_err *e);
/* Creates the states required by the options and drops the others. False with *e set. */
bool tp__optim_states(tp_optim *O, tp_err *e);
/* The block of state k with its first values; NULL with *e set. */
tp_buf *tp__optim_block(const tp_optim *O, int k, tp_err *e);

/* optim.c: what steps, swaps and recordings share. */
tp_optim_attr tp__optim_attr(const tp_optim *O); /* O->s, the scale, the constants */
/* Runs a kernel over the values and states. A recorded one finds the numbers on the GPU when it
 * runs. False with step_err set. */
bool tp__optim_run(tp_optim *O, const tp_block_kernel *kernel, tp_optim_attr *a);
size_t tp__step_bytes(int64_t segments);
/* Completes a table and queues its copy to the GPU. */
void tp__step_upload(const tp_optim *O, tp_step_table *t, const tp_optim_attr *a);
/* The numbers of the next step of a weight with that rate, in a segment of it. */
void tp__optim_numbers(const tp_optim *O, const tp_weight *w, double lr, tp_segment *g);
bool tp__optim_usable_rate(double rate);
/* Gathers the values from the processes that have changed them, if they divide the states; all: not
 * only what a step has changed. */
bool tp__optim_tell(tp_optim *O, bool all);
/* Counts a step of the weights that are planned, and forgets what was given for it. */
void tp__optim_count(tp_optim *O);

/* optim_record.c */
/* Records a step that is planned in O->s. False with step_err set. */
bool tp__optim_record(tp_optim *O, const tp_block_kernel *kernel, tp_optim_attr *a);
void tp__optim_record_free(tp_optim *O); /* its steps are no longer launched */

/* optim_swap.c: gives up swapped averages, which remain the values. */
void tp__optim_swap_free(tp_optim *O);

/* optim_parts.c */
/* Divides O's states as P's exchange divides the gradients, if it does. False with *e set. */
bool tp__optim_divide(tp_optim *O, tp_err *e);
/* Gives each weight the shapes of its states, and those that are not frozen a place. False with *e
 * set. */
bool tp__optim_lay_out(tp_optim *O, tp_err *e);
/* Gives states, with their first values, to the weights that have none and that `wants` names.
 * False with *e set, and nothing changed. */
typedef bool (*tp_weight_test)(const tp_optim *O, const tp_weight *w, const void *env);
bool tp__optim_place(tp_optim *O, tp_weight_test wants, const void *env, tp_err *e);
/* How many parts there are, and the bytes of their states. tp__optim_unplace undoes the last
 * tp__optim_place, but keeps the larger blocks. */
typedef struct tp_places {
    int parts;
    size_t bytes[TP_OPTIM_STATES];
} tp_places;
tp_places tp__optim_places(const tp_optim *O);
void tp__optim_unplace(tp_optim *O, const tp_places *before);
bool tp__optim_trains(const tp_optim *O, const tp_weight *w, const void *env); /* not frozen */
/* Are the states divided as the gradients are now? False with *e set. */
bool tp__optim_fits(const tp_optim *O, const char *what, tp_err *e);
void tp__optim_parts_free(tp_optim *O);

#endif
