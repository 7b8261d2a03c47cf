/* memory_table.c - the table of --plan. */
#include "memory_table.h"

#include <stdio.h>

void tp__memory_table_print(const tp_memory_row *rows, int n, int way)
{
    static const char *const names[TP_MEMORY_WAYS] = { "none", "attention", "block" };
    char head[32];
    printf("%-24s", "memory, MB; --recompute");
    for (int k = 0; k < TP_MEMORY_WAYS; k++) {
        snprintf(head, sizeof head, "%s%s", k == way ? "*" : "", names[k]);
        printf("%12s", head);
    }
    printf("\n");
    for (int i = 0; i < n; i++) {
        printf("%-24s", rows[i].name);
        for (int k = 0; k < TP_MEMORY_WAYS; k++) printf("%12.1f", rows[i].bytes[k] / 1e6);
        printf("\n");
    }
}
