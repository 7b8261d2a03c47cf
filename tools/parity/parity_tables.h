/* parity_tables.h - reference cases that are tables (.tsv): expressions of ListOps, damaged texts, texts with
 * the ids of a vocabulary, classes of characters. */
#ifndef PARITY_TABLES_H
#define PARITY_TABLES_H

#include <tapegrad/bpe.h>
#include <tapegrad/data.h>

#include "parity.h"

bool par_is_table(const char *path);

/* As parity_run. The heading tells the kind; every row is compared, exactly. */
int par_run_rows(parity_result *r, const char *path, const parity_opts *o);

/* A table while it runs. */
typedef struct par_rows {
    parity_result *r;
    const char *path, *vocab;
    tp_table *X;
    int64_t row;
    bool failed;
    tp_bpe *words; /* texts: the vocabulary, opened for the first row */
    tp_bpe_coder *coder;
    uint8_t *classes; /* by character */
} par_rows;

/* Notes why a row fails; only the first reason counts. */
void par_row_fails(par_rows *t, const char *fmt, ...) TP_PRINTF(2, 3);

/* The bytes of a hexadecimal cell, to be freed, with room for ten more; NULL: t has failed. */
uint8_t *par_row_bytes(par_rows *t, int column, size_t *n);

/* ---- parity_bpe.c ---- */

/* Texts: hexadecimal, number of ids, ids, JSON. Encodes, compares, and decodes. */
void par_run_text(par_rows *t);
/* Classes: L, N or S, first and last character. The last row compares all characters. */
void par_run_class(par_rows *t);
void par_end_texts(par_rows *t);

#endif
