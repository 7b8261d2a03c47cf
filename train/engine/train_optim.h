/* train_optim.h - the part of the flags that comes from the optimisers' rows. */
#ifndef TP_TRAIN_OPTIM_H
#define TP_TRAIN_OPTIM_H

#include <tapegrad/train.h>

/* --optimizer, and a flag for each option of an optimiser that has a help. */
const tp_option *tp__optimizer_rows(void);

/* Sets those options to the usual values of training programs. */
void tp__optimizer_defaults(tp_train_settings *o);

#endif
