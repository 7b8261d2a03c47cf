/* epochs.h - where a reader of batches is: epoch, and number of the next batch in it. */
#ifndef TP_EPOCHS_H
#define TP_EPOCHS_H

#include <stdbool.h>
#include <stdint.h>

#define TP_LAST_EPOCH INT64_C(0x7fffffff)

typedef struct tp_epochs {
    bool endless;        /* another epoch follows the last batch of one */
    int64_t steps;       /* batches per epoch */
    int64_t epoch, step; /* of the batch that comes next */
} tp_epochs;

/* Begins the next epoch if this one has no batch left. False: there is no further batch. */
static inline bool tp__epochs_more(tp_epochs *e)
{
    if (e->step < e->steps) return true;
    if (!e->endless || e->epoch == TP_LAST_EPOCH) return false;
    e->step = 0;
    e->epoch++;
    return true;
}

/* Continues with that batch of that epoch, each moved to the nearest that exists. */
static inline void tp__epochs_seek(tp_epochs *e, int64_t epoch, int64_t step)
{
    e->epoch = epoch < 0 ? 0 : epoch > TP_LAST_EPOCH ? TP_LAST_EPOCH : epoch;
    e->step = step < 0 ? 0 : step > e->steps ? e->steps : step;
}

#endif
