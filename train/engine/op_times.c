/* op_times.c - see the header. */
#include "op_times.h"

#include <stdio.h>

enum { LINES = 256 };

static const char *direction(const tp_op_time *t)
{
    return t->backward ? "backward" : "forward";
}

void tp__op_times_print(tp_device *D, double seconds)
{
    tp_op_time line[LINES];
    const int all = tp_device_profile(D, line, LINES), n = all < LINES ? all : LINES;
    double sum = 0.0;
    printf("\n%-24s %-9s %10s %12s %10s %7s\n", "op", "direction", "calls", "seconds", "us a call",
           "share");
    for (int i = 0; i < n; i++) {
        const tp_op_time *t = &line[i];
        sum += t->seconds;
        printf("%-24s %-9s %10llu %12.4f %10.1f %6.1f%%\n", t->op, direction(t),
               (unsigned long long)t->calls, t->seconds, 1e6 * t->seconds / (double)t->calls,
               100.0 * t->seconds / seconds);
    }
    printf("%-24s %-9s %10s %12.4f %10s %6.1f%%\n", "all ops", "", "", sum, "",
           100.0 * sum / seconds);
}

json_t *tp__op_times_json(tp_device *D)
{
    tp_op_time line[LINES];
    const int all = tp_device_profile(D, line, LINES), n = all < LINES ? all : LINES;
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("[s,s,I,f]", line[i].op, direction(&line[i]),
                                              (json_int_t)line[i].calls, line[i].seconds));
    return list;
}
