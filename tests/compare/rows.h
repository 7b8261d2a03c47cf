/* rows.h - the tables of rows for calls that op_calls.h cannot make from a function's prototype.
 * Files of rows define TP_NO_SITE before they include anything. */
#ifndef COMPARE_ROWS_H
#define COMPARE_ROWS_H

#include "compare.h"

extern const compare_row compare_op_rows[], compare_optim_rows[], compare_sequence_rows[],
    compare_transformer_rows[], compare_expressed_rows[];

/* clang-format off */
#define OWN(NAME)    { .op = #NAME, .run = run_##NAME }
/* clang-format on */

#endif
