/* ops.h - a device, a tape and the reading of values, for tests of ops against loops. */
#ifndef SUPPORT_OPS_H
#define SUPPORT_OPS_H

#include <tapegrad/tapegrad.h>

/* A CPU device of three threads and a tape on it, for tests of a suite with these two as .init and
 * .fini. */
extern tp_device *D;
extern tp_tape *T;
void cpu_tape_open(void);
void cpu_tape_close(void); /* expects no error, and that all memory is returned */

/* Reads n elements; NaN if x has another number of elements. */
void get_values(tp_tape *t, tp_tensor x, int64_t n, double *v);

/* The larger error, or NaN if a is NaN. */
double worse(double a, double b);

#endif
