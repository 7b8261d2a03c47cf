/* memory_table.h - the table of --plan: where the memory of a training step goes. */
#ifndef MEMORY_TABLE_H
#define MEMORY_TABLE_H

enum { MEMORY_WAYS = 3 }; /* --recompute none, attention, block: the values of tp_recompute */

typedef struct memory_row {
    const char *name;
    double bytes[MEMORY_WAYS];
} memory_row;

/* Prints the rows, in MB, to stdout; the way that a run would take is marked. */
void memory_table_print(const memory_row *rows, int n, int way);

#endif
