/* lra_table.h - the table of attentions: its trainings, what their folders tell, and how it is printed and drawn. */
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

/* What a finished run's folder tells. */
typedef struct table_run {
    double accuracy, official_accuracy; /* percent of the test part; of whole batches */
    double valid;                       /* the best validation's                      */
    double seconds, updates;            /* training alone                             */
    double memory, process;             /* peak bytes: of the device, of the process  */
    double parameters, gflops;
    int points;
    table_point *point; /* in the order of training */
} table_run;

/* Has the folder a finished run (test.json)? An unfinished one (last.safetensors)? */
bool table_run_finished(const char *folder);
bool table_run_begun(const char *folder);

/* Reads a finished run, or free it. False with the reason in why. */
bool table_run_read(table_run *r, const char *folder, char *why, size_t size);
void table_run_free(table_run *r);

/* Seconds that an update took in a run, without its first one. False with the reason in why. */
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
    char note[600]; /* the documents and further flags, for the picture */
    int rows;
    table_row row[ATTENTIONS];
} lra_table;

void table_print(const lra_table *t, FILE *out);

/* A JSON object for each run, one a line; the caller frees the text. NULL without memory. */
char *table_lines(const lra_table *t);

/* Validation accuracy over the time of training, the mean over the seeds. */
bool table_draw(const lra_table *t, const char *path, char *why, size_t size);

#endif
