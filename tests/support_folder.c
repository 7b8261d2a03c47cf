/* support_folder.c - a folder of its own for each test that writes files. */
#include "support_folder.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char folder[512];

void make_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tapegrad-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) {
        perror(folder);
        exit(1);
    }
}

/* Calls remove on each entry if `drop`; returns how many there are. */
static int each_entry(bool drop)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (drop) remove(in_folder(e->d_name));
        n++;
    }
    if (d) closedir(d);
    return n;
}

int files_in_folder(void)
{
    return each_entry(false);
}

void remove_folder(void)
{
    each_entry(true);
    remove(folder);
}

const char *in_folder(const char *name)
{
    static char paths[4][800];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}
