/* text_index.h - where the rows of a text file begin, and their bytes: in memory if the file is
 * small, otherwise read again from the file or, if that is packed, from a temporary copy. */
#ifndef TP_TEXT_INDEX_H
#define TP_TEXT_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TP_ROW_BYTES = 1 << 24 /* at most, of a row */ };

/* How rows are cut: a row ends with a line, unless that is in quotes. */
typedef struct tp_text_cut {
    char separator, quote, comment; /* quote 0: lines; comment 0: none */
    bool blank;                     /* lines of white space are passed over, not only empty ones */
} tp_text_cut;

/* Nothing changes it, so that threads may share it. */
typedef struct tp_text_index tp_text_index;

/* memory: most bytes of the text to hold; 0: 64 MiB. NULL with the reason, which follows the name
 * of the file (": cannot ..."), in why; *starved: because memory ran out. A file without rows is no
 * failure. */
tp_text_index *tp__text_index_open(const char *path, const tp_text_cut *cut, size_t memory,
                                   char *why, size_t size, bool *starved);
void tp__text_index_free(tp_text_index *X);
int64_t tp__text_index_rows(const tp_text_index *X);
/* The line, from 1, on which a row begins. */
int64_t tp__text_index_line(const tp_text_index *X, int64_t row);
/* Copies the bytes of a row, without its line end and with a zero behind them, to *buffer, which
 * grows as needed and belongs to the caller. Returns how many there are; -1: they cannot be read,
 * with errno 0 if the file has become shorter. */
int64_t tp__text_index_row(const tp_text_index *X, int64_t row, char **buffer, size_t *room);

#endif
