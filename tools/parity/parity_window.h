/* parity_window.h - what the kinds of Swin, CSWin, CoaT and MPViT share. */
#ifndef PARITY_WINDOW_H
#define PARITY_WINDOW_H

#include "parity_case.h"

/* Lists of one number for each stage. *n: how many stages there are, 0 if this list decides it. The list
 * must be there, with at most `most` numbers of at least `least`. */
void window_int64s(parity *p, const char *key, int64_t least, int most, int64_t *x, int *n);
void window_ints(parity *p, const char *key, int least, int most, int *x, int *n);

/* The metadata's mlp_ratio; a failure unless it gives a whole hidden width for `dim` channels. */
double window_ratio(parity *p, int64_t dim);
bool window_is_ratio(double ratio, int64_t dim);

#endif
