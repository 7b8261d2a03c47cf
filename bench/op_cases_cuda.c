/* op_cases_cuda.c - the tables of cases for a GPU, and their small versions. */
#include "op_cases.h"

#define SHRINK 1
static const op_case cuda[] = {
#include "op_cases_cuda.h"
};

#undef SHRINK
#define SHRINK 64
static const op_case smoke[] = {
#include "op_cases_cuda.h"
};

const op_case *const op_tables_cuda[] = { cuda, NULL }, *const op_tables_smoke[] = { smoke, NULL };
