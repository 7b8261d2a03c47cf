/* rows.h - the tables of rows, and the run functions that rows share. Files of rows define TP_NO_SITE
 * before they include anything, because they name functions, not macros. */
#ifndef COMPARE_ROWS_H
#define COMPARE_ROWS_H

#include "compare.h"

extern const compare_row compare_elementwise_rows[], compare_reduce_rows[], compare_shape_rows[],
    compare_layer_rows[], compare_loss_rows[], compare_optim_rows[], compare_sequence_rows[],
    compare_transformer_rows[], compare_expressed_rows[];

/* Input i, or the number k if it is absent. */
tp_tensor compare_operand(const compare_call *c, int i);

tp_tensor compare_one(compare_call *c);       /* f(x0)            */
tp_tensor compare_two(compare_call *c);       /* f(x0, x1), either may be the number k */
tp_tensor compare_axis(compare_call *c);      /* f(x0, axis)      */
tp_tensor compare_by_number(compare_call *c); /* f(x0, k)         */
tp_tensor compare_loss(compare_call *c);      /* f(x0, x1, reduction) */

/* clang-format off */
#define ONE(NAME)    { .op = #NAME, .run = compare_one, .one = tp_##NAME }
#define TWO(NAME)    { .op = #NAME, .run = compare_two, .two = tp_##NAME }
#define AXIS(NAME)   { .op = #NAME, .run = compare_axis, .axis = tp_##NAME }
#define NUMBER(NAME) { .op = #NAME, .run = compare_by_number, .number = tp_##NAME }
#define LOSS(NAME)   { .op = #NAME, .run = compare_loss, .loss = tp_##NAME }
#define OWN(NAME)    { .op = #NAME, .run = run_##NAME }
/* clang-format on */

#endif
