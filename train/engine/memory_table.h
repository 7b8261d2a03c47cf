/* memory_table.h - the table of --plan: where the memory of a training step goes. */
#ifndef TP_MEMORY_TABLE_H
#define TP_MEMORY_TABLE_H

enum { TP_MEMORY_WAYS = 3 }; /* --recompute none, attention, block: the values of tp_recompute */

typedef struct tp_memory_row {
    const char *name;
    double bytes[TP_MEMORY_WAYS];
} tp_memory_row;

/* Prints the rows, in MB, to stdout; the way that a run would take is marked. */
void tp__memory_table_print(const tp_memory_row *rows, int n, int way);

#endif
