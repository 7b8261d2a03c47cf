/* lra_table.h - the table of attentions: its trainings, their results, printing and drawing. */
#ifndef LRA_TABLE_H
#define LRA_TABLE_H

#include <jansson.h>
#include <stdio.h>

#include "lra.h"

/* ---- one training ---- */

enum { TABLE_PATH = 4400 };

/* A validation. */
typedef struct table_point {
    double seconds, accuracy;
} table_point;

/* Results of a finished run. */
typedef struct table_run {
    double accuracy, official_accuracy; /* test, in percent; of whole batches */
    double valid;                       /* best validation's */
    double seconds, updates;            /* training only */
    double memory, process;             /* peak bytes of device and process */
    double parameters, gflops;
    int points;
    table_point *point; /* in training order */
} table_run;

/* Does the folder hold a finished run (test.json)? A started one (last.safetensors)? */
bool table_run_finished(const char *folder);
bool table_run_begun(const char *folder);

/* Reads or frees a finished run. False with the reason in why. */
bool table_run_read(table_run *r, const char *folder, char *why, size_t size);
void table_run_free(table_run *r);

/* Seconds per update of a run, without the first. False with the reason in why. */
bool table_run_speed(const char *folder, double *seconds, char *why, size_t size);

/* ---- the table ---- */

enum { TABLE_SEEDS = 100 };

typedef struct table_row {
    const char *attention;
    int runs;
    table_run run[TABLE_SEEDS]; /* by seed, from 1 */
} table_row;

typedef struct lra_table {
    const char *task;
    char note[600]; /* documents and further flags, for the picture */
    int rows;
    table_row row[ATTENTIONS];
} lra_table;

void table_print(const lra_table *t, FILE *out);

/* One JSON object per run and line; the caller frees the text. NULL: out of memory. */
char *table_lines(const lra_table *t);

/* Plots validation accuracy over training time, averaged over the seeds. */
bool table_draw(const lra_table *t, const char *path, char *why, size_t size);

#endif
