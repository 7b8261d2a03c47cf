/* map_numbers.h - the numbers of the papers' figures, from tokens and attention inputs on the host.
 */
#ifndef MAP_NUMBERS_H
#define MAP_NUMBERS_H

#include <stdint.h>

/* The mean cosine of rows i and j over all ordered pairs i != j of x [n,d]; a row of zeros is
 * orthogonal to all. One row: 0. work [d]. */
double mean_cosine(const double *x, int64_t n, int64_t d, double *work);

/* The mean length of the rows of x [n,d]. */
double mean_norm(const double *x, int64_t n, int64_t d);

#endif
