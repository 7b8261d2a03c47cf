/* paths.c - several paths in one flag, separated by commas. */
#include "paths.h"

#include <stdlib.h>
#include <string.h>
#include <tapegrad/train.h>

void path_list_free(path_list *l)
{
    free(l->text);
    *l = (path_list){ 0 };
}

bool path_list_of(path_list *l, const char *text)
{
    char *rest = NULL;
    *l = (path_list){ .text = text ? strdup(text) : NULL };
    for (char *at = l->text ? strtok_r(l->text, ",", &rest) : NULL; at;
         at = strtok_r(NULL, ",", &rest)) {
        if (l->n == MOST_PATHS) {
            path_list_free(l);
            return false;
        }
        l->at[l->n++] = at;
    }
    return l->text || !text;
}

/* Appends a path to *text and reallocates it. False, with *text unchanged: out of memory. */
static bool append(char **text, const char *path)
{
    const size_t n = *text ? strlen(*text) : 0, more = strlen(path);
    char *all = realloc(*text, n + more + 2);
    if (!all) return false;
    if (n > 0) all[n] = ',';
    strcpy(all + n + (n > 0), path);
    *text = all;
    return true;
}

void path_list_absolute(char **list)
{
    path_list l;
    char *all = NULL;
    bool done = *list && path_list_of(&l, *list);
    if (!done) return;
    for (int i = 0; i < l.n && done; i++) {
        char *path = strdup(l.at[i]);
        if (path) tp_absolute_path(&path);
        done = path && append(&all, path);
        free(path);
    }
    path_list_free(&l);
    if (!done || !all) {
        free(all);
        return;
    }
    free(*list);
    *list = all;
}
