/* paths.h - several paths in one flag, separated by commas. */
#ifndef REPORTS_PATHS_H
#define REPORTS_PATHS_H

#include <stdbool.h>

enum { MOST_PATHS = 256 };

typedef struct path_list {
    int n;
    char *at[MOST_PATHS];
    char *text; /* owns them */
} path_list;

/* Splits the text; NULL gives no path. False: too many paths or out of memory. */
bool path_list_of(path_list *l, const char *text);
void path_list_free(path_list *l);

/* Makes the paths of an allocated list absolute, to be valid in other folders. NULL stays NULL. */
void path_list_absolute(char **list);

#endif
