/* folder.c - a separate folder for each test that writes files. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "support/folder.h"

#include <dirent.h>
#include <ftw.h>
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

int files_in_folder(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d) closedir(d);
    return n;
}

static int drop(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

void remove_folder(void)
{
    nftw(folder, drop, 16, FTW_DEPTH | FTW_PHYS);
}

const char *in_folder(const char *name)
{
    static char paths[4][800];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *write_in_folder(const char *name, const void *bytes, size_t n)
{
    const char *path = in_folder(name);
    FILE *f = fopen(path, "wb");
    if (f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0) return path;
    perror(path);
    exit(1);
}

const char *write_text(const char *name, const char *text)
{
    return write_in_folder(name, text, strlen(text));
}
