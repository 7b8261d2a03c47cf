/* op_times.h - the table of --profile: the time of a run, op by op. */
#ifndef TP_OP_TIMES_H
#define TP_OP_TIMES_H

#include <tapegrad/device.h>

/* Prints the profile of D, opened with `profile`, to stdout, slowest op first. Shares are fractions
 * of `seconds`, the time of the run. */
void tp__op_times_print(tp_device *D, double seconds);

#endif
