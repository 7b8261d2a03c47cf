/* lra_table.h - the table of attentions: printing it beside the paper's figures. */
#ifndef LRA_TABLE_H
#define LRA_TABLE_H

#include <jansson.h>
#include <stdio.h>

#include "lra.h"
#include "trainings/trainings.h"

/* Figures of test.json. */
enum { TEST_ACCURACY, TEST_OFFICIAL };

typedef struct lra_table {
    const char *task;
    int rows;
    training_row row[ATTENTIONS]; /* named by their attentions */
} lra_table;

void table_print(const lra_table *t, FILE *out);

/* A training's JSON object. table: an lra_table. NULL: out of memory. */
json_t *table_json(void *table, int row, int run);

#endif
