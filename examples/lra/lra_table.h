/* lra_table.h - the table of attentions: its rows, and how they are printed and drawn. */
#ifndef LRA_TABLE_H
#define LRA_TABLE_H

#include <jansson.h>
#include <stdio.h>

#include "encoder.h"
#include "table_run.h"

enum { TABLE_SEEDS = 100 };

typedef struct table_row {
    const char *attention;
    int runs;
    table_run run[TABLE_SEEDS]; /* by seed, from 1 */
} table_row;

typedef struct lra_table {
    const char *task;
    char note[600]; /* the documents and further flags, for the picture */
    int rows;
    table_row row[ATTENTIONS];
} lra_table;

/* Mean and sample standard deviation (NaN for fewer than 2) of the runs' numbers at that offset. */
double table_mean(const table_row *r, size_t at);
double table_deviation(const table_row *r, size_t at);

void table_print(const lra_table *t, FILE *out);

/* A JSON object for each run, one a line; the caller frees the text. NULL without memory. */
char *table_lines(const lra_table *t);

/* Validation accuracy over the time of training, the mean over the seeds. */
bool table_draw(const lra_table *t, const char *path, char *why, size_t size);

#endif
