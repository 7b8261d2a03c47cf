/* op_cases_update.c - cases of bench_ops: an update of one parameter by each optimiser. */
#include "op_cases.h"

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
