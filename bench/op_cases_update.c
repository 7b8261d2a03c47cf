/* op_cases_update.c - cases of bench_ops: an update of one parameter by each optimiser. */
#include <string.h>

#include "op_cases.h"

tp_optim *op_optimiser(tp_params *P, const op_case *k)
{
    return strcmp(k->op, "rmsprop") == 0     ? tp_rmsprop_new(P, NULL)
           : strcmp(k->op, "adagrad") == 0   ? tp_adagrad_new(P, NULL)
           : strcmp(k->op, "lion") == 0      ? tp_lion_new(P, NULL)
           : strcmp(k->op, "adafactor") == 0 ? tp_adafactor_new(P, NULL)
           : strcmp(k->op, "lamb") == 0      ? tp_lamb_new(P, NULL)
                                             : tp_adamw_new(P, NULL);
}

/* BYTES moved for each element. */
#define MANY          4194304
#define SQUARE        2048
#define UPDATE(BYTES) .mbyte = (BYTES)*1e-6 * MANY, .in = { { { 1, { MANY } }, 0 } }
#define MATRIX(BYTES)                                                                              \
    .mbyte = (BYTES)*1e-6 * SQUARE * SQUARE, .in = { { { 2, { SQUARE, SQUARE } }, 0 } }

/* clang-format off */
const op_case op_cases_update[] = {
    { "adamw", "4M elements", NULL, UPDATE(28) },
    { "rmsprop", "4M elements", NULL, UPDATE(20) },
    { "adagrad", "4M elements", NULL, UPDATE(20) },
    { "lion", "4M elements", NULL, UPDATE(20) },
    { "lamb", "4M elements", NULL, UPDATE(40) },
    { "adafactor", "2048x2048", NULL, MATRIX(24) },
    { 0 },
};
