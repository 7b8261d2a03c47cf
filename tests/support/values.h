/* values.h - test data as doubles: random values, conversion to and from tensors of any
 * dtype, and the error of results. */
#ifndef SUPPORT_VALUES_H
#define SUPPORT_VALUES_H

#include <tapegrad/tapegrad.h>

/* Uniform in [-1,1), a function of seed and index. */
void values_random(double *x, int64_t n, uint64_t seed);

/* A tensor of these values in dt: a constant, or an input that needs a gradient. */
tp_tensor values_constant(tp_tape *T, tp_dtype dt, tp_shape s, const double *x);
tp_tensor values_input(tp_tape *T, tp_dtype dt, tp_shape s, const double *x);

/* Reads all elements of x, of any dtype; NaN if the tape has failed. */
void values_read(tp_tape *T, tp_tensor x, double *out);

/* The largest |a[i] - b[i]|, relative to the larger of scale and all |b[i]|. Infinite if unequal
 * values include a NaN or infinity. */
double values_error(const double *a, const double *b, int64_t n, double scale);

#endif
