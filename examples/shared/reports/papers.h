/* papers.h - the rows of the papers' tables and figures with their commands, from docs/papers. */
#ifndef REPORTS_PAPERS_H
#define REPORTS_PAPERS_H

#include <stddef.h>

/* A part of a string. */
typedef struct text_part {
    const char *at;
    int n;
} text_part;

enum {
    PAPER_PLACE, /* "Table 2" */
    PAPER_ROW,
    PAPER_STATE,
    PAPER_COMMAND, /* commands with "; " between them; " && " before one that needs the last */
    PAPER_PRINTED, /* the paper's figures */
    PAPER_REMARK,
    PAPER_COLUMNS
};

typedef struct paper_row {
    const char *paper;
    text_part column[PAPER_COLUMNS];
} paper_row;

const char *paper_name_at(int i); /* NULL past the last */

/* Calls take with each row that has all words of the text in its place, name or command, as "ViL
 * Table 2", and returns how many these are. A first word that names a paper means that paper. */
int papers_each(const char *text, void (*take)(void *env, const paper_row *r), void *env);

/* The sentence on a text that means no row, with the nearest place. */
void papers_complain(const char *text, char *why, size_t size);

#endif
