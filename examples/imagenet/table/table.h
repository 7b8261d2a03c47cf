/* table.h - `imagenet table`: the rows of a table of image models, and how it is shown. */
#ifndef IMAGE_TABLE_H
#define IMAGE_TABLE_H

#include <stdio.h>

#include "trainings/trainings.h"

enum { TABLE_ROWS = 128, TABLE_FLAGS = 700 };

/* Figures of test.json. */
enum { TEST_TOP1, TEST_TOP5, TEST_LOSS };

typedef struct image_row {
    char preset[64];
    char flags[TABLE_FLAGS]; /* further flags of `imagenet train`; "": none */
    char data[64];           /* a paper's --data; "": not of a paper */
    double paper;            /* top-1 in percent as printed; NaN: none */
} image_row;

typedef struct image_table {
    int rows;
    image_row of[TABLE_ROWS];
    training_row row[TABLE_ROWS]; /* each is named by its preset and further flags */
} image_table;

/* table_rows.c: fill an empty table, with presets separated by commas, or with the trainings of the
 * papers' rows that a text means, as "ViL Table 13"; only those on a data set that is one of its
 * words. Rows of other data, of no training or of one that begins from another are left out and
 * counted in *left_out. False with the reason in why. */
bool table_of_presets(image_table *t, const char *list, char *why, size_t size);
bool table_of_paper(image_table *t, const char *text, int *left_out, char *why, size_t size);

/* table_print.c */
void table_print_text(const image_table *t, FILE *out);
void table_print_markdown(const image_table *t, FILE *out);
/* A training's JSON object. table: an image_table. NULL: out of memory. */
json_t *table_json(void *table, int row, int run);

#endif
