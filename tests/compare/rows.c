/* rows.c - the tables of rows, one for each family (rows_FAMILY.c). */
#include "rows.h"

const compare_row *const compare_tables[] = {
    compare_elementwise_rows, compare_reduce_rows,
    compare_shape_rows,       compare_layer_rows,
    compare_loss_rows,        compare_optim_rows,
    compare_sequence_rows,    compare_transformer_rows,
    compare_expressed_rows,   NULL,
};

tp_tensor compare_one(compare_call *c)
{
    return c->row->one(c->T, c->x[0]);
}

tp_tensor compare_operand(const compare_call *c, int i)
{
    const tp_tensor x = compare_input(c, i);
    return tp_given(x) ? x : tp_number(compare_number(c, "k", 0.0));
}

tp_tensor compare_two(compare_call *c)
{
    return c->row->two(c->T, compare_operand(c, 0), compare_operand(c, 1));
}

tp_tensor compare_axis(compare_call *c)
{
    return c->row->axis(c->T, c->x[0], (int)compare_int(c, "axis", TP_ALL));
}

tp_tensor compare_by_number(compare_call *c)
{
    return c->row->number(c->T, c->x[0], compare_number(c, "k", 0.0));
}

tp_tensor compare_loss(compare_call *c)
{
    return c->row->loss(c->T, c->x[0], c->x[1], compare_reduction(c));
}
