/* op_times.h - the table of --profile: the time of a run, op by op. */
#ifndef TP_OP_TIMES_H
#define TP_OP_TIMES_H

#include <jansson.h>
#include <tapegrad/device.h>

/* Prints the profile of D, opened with `profile`, to stdout, slowest op first. Shares are fractions
 * of `seconds`, the time of the run. */
void tp__op_times_print(tp_device *D, double seconds);

/* The same for the log: [[op, "forward" or "backward", calls, seconds], ...]. */
json_t *tp__op_times_json(tp_device *D);

#endif
