/* rows_reduce.c - reductions. */
#define TP_NO_SITE
#include "rows.h"

const compare_row compare_reduce_rows[] = {
    AXIS(sum), AXIS(mean), AXIS(max), AXIS(argmax), AXIS(logsumexp), { 0 },
};
