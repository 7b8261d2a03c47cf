/* paths.h - several paths in one flag, separated by commas. */
#ifndef PATHS_H
#define PATHS_H

#include <stdbool.h>

enum { MOST_PATHS = 256 };

typedef struct path_list {
    int n;
    char *at[MOST_PATHS];
    char *text; /* owns them */
} path_list;

/* Splits the text; NULL gives no path. False if there are too many paths or no memory. */
bool path_list_of(path_list *l, const char *text);
void path_list_free(path_list *l);

/* Makes each path of an allocated list absolute, so that it is valid in other folders. NULL stays NULL. */
void absolute_paths(char **list);

#endif
