/* corrupt_list.h - the flag --corrupt: corruptions and their severities (tapegrad/corrupt.h). */
#ifndef CORRUPT_LIST_H
#define CORRUPT_LIST_H

#include <tapegrad/corrupt.h>

typedef struct corrupt_list {
    bool at[TP_NCORRUPT][TP_CORRUPT_SEVERITIES]; /* at[c][s-1]: severity s */
    int cells;                                   /* how many are true */
} corrupt_list;

/* Parses "all", or a comma-separated list of NAME (all severities) and NAME:SEVERITY. False with
 * the reason in why. */
bool corrupt_list_read(corrupt_list *l, const char *text, char *why, size_t size);

/* "all" and the names, for shell completion; NULL past the last. */
const char *corrupt_list_word(int i);

#endif
