/* tables.h - tables, rows of text, in a folder or in a tar archive, for readers of documents. */
#ifndef TP_TABLES_H
#define TP_TABLES_H

#include "documents.h"
#include "tree.h"

/* Reads one file: `path` itself if it is named like a table (.tsv, also packed), else the first file below
 * it whose name ends in /NAME or is NAME. f gets the path for messages. False: X has failed, also if there
 * is no such file. */
bool tp__table_visit(tp_documents *X, const char *path, const char *name,
                     void (*f)(tp_documents *X, const char *where, const char *bytes, size_t n,
                               void *env),
                     void *env);

/* The lines of a text that are not empty, without their ends (LF or CRLF). */
typedef struct tp_lines {
    const char *next, *end; /* what has not been read yet  */
    const char *at;         /* the line                    */
    size_t n;               /* its bytes                   */
    int64_t number;         /* its number, from 1          */
} tp_lines;
bool tp__next_line(tp_lines *L);

/* The next cell of a line, up to a tab or the end; begin with *at = L->at. False: there is none. */
bool tp__next_cell(const tp_lines *L, const char **at, const char **cell, size_t *n);

#endif
