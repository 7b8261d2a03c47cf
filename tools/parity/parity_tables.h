/* parity_tables.h - reference cases that are tables (.tsv): expressions of ListOps, damaged texts. */
#ifndef PARITY_TABLES_H
#define PARITY_TABLES_H

#include "parity.h"

bool par_is_table(const char *path);

/* As parity_run. The heading tells the kind; every row is compared, exactly. */
int par_run_rows(parity_result *r, const char *path, const parity_opts *o);

#endif
