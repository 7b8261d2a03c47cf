/* rows.c - finds the row of a call. */
#include "rows.h"

#include <string.h>

#include "tools/op_calls/op_calls.h"

static const compare_row *const tables[] = {
    compare_op_rows,          compare_optim_rows,     compare_sequence_rows,
    compare_transformer_rows, compare_expressed_rows, NULL,
};

bool compare_row_of(const char *op, compare_row *row)
{
    *row = (compare_row){ .op = op, .function = op };
    for (const compare_row *const *table = tables; *table; table++)
        for (const compare_row *r = *table; r->op; r++)
            if (strcmp(r->op, op) == 0) {
                *row = *r;
                return true;
            }
    return op_signature_of(op) != NULL;
}

static int numbers(const void *c, const char *name, int max, double *out)
{
    return compare_numbers(c, name, max, out);
}

static const char *text(const void *c, const char *name)
{
    return compare_text(c, name, NULL);
}

static const char *name(const void *c, int i)
{
    return compare_option(c, i);
}

tp_tensor compare_by_name(compare_call *c, const char *function)
{
    const op_options o = { c, numbers, text, name };
    c->ny = op_call(c->T, op_signature_of(function), c->nx, c->x, o, c->y);
    return c->y[0];
}
