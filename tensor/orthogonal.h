/* orthogonal.h - orthonormal rows, for initial values. */
#ifndef TP_ORTHOGONAL_H
#define TP_ORTHOGONAL_H

#include <stdint.h>

#define TP_ORTHO_PANEL 32 /* rows that are made orthogonal together */

/* Makes the rows of q[rows, n], rows <= n and linearly independent, orthonormal. work: TP_ORTHO_PANEL *
 * rows numbers. */
void tp__orthonormal_rows(int64_t rows, int64_t n, double *q, double *work);

#endif
