/* set_files.c - folders and lists of files, as the layouts of image sets read them. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "load.h"
#include "set.h"

enum { LARGEST_LIST = 1 << 28 }; /* unpacked bytes; ImageNet's list has 50 MB */

const char *tp__join(char *buf, size_t size, const char *folder, const char *name)
{
    snprintf(buf, size, "%s/%s", folder, name);
    return buf;
}

/* The mode of a file or folder, 0 if there is none. Any other error fails X: treating it as a
 * missing file would select another layout or shrink the set. */
static mode_t mode_of(tp_image_set *X, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0) return st.st_mode;
    if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != ENAMETOOLONG)
        tp__image_set_fail(X, "%s: cannot be accessed (%s)", path, strerror(errno));
    return 0;
}

bool tp__is_folder(tp_image_set *X, const char *path)
{
    return S_ISDIR(mode_of(X, path));
}

bool tp__is_file(tp_image_set *X, const char *path)
{
    return S_ISREG(mode_of(X, path));
}

bool tp__is_shard(const char *name)
{
    return tp_ends_in(name, ".tar");
}

bool tp__is_image(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 ||
                   strcasecmp(dot, ".png") == 0);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void tp__entries_free(char **names, int n)
{
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
}

/* Many file systems return the kind of an entry with its name, which saves a call of stat. */
static bool is_wanted(tp_image_set *X, const char *path, const struct dirent *e, bool folders)
{
    char full[PATH_MAX];
    if (e->d_name[0] == '.') return false;
#ifdef DT_DIR
    if (e->d_type == DT_DIR) return folders;
    if (e->d_type == DT_REG) return !folders;
#endif
    tp__join(full, sizeof full, path, e->d_name);
    return folders ? tp__is_folder(X, full) : tp__is_file(X, full);
}

static void cannot_list(tp_image_set *X, const char *folder)
{
    if (errno != ENOENT && errno != ENOTDIR)
        tp__image_set_fail(X, "%s: the folder cannot be read (%s)", folder, strerror(errno));
}

int tp__entries(tp_image_set *X, const char *path, bool folders, char ***names)
{
    char **list = NULL;
    int n = 0, room = 0;
    DIR *d = opendir(path);
    *names = NULL;
    if (!d) cannot_list(X, path);
    if (!d) return -1;
    bool whole = true;
    errno = 0;
    for (struct dirent *e; whole && (e = readdir(d)); errno = 0) {
        if (!is_wanted(X, path, e, folders)) continue;
        if (n == room) {
            room = room ? 2 * room : 64;
            char **more = realloc(list, (size_t)room * sizeof *more);
            whole = more != NULL;
            if (more) list = more;
        }
        if (whole) whole = (list[n] = strdup(e->d_name)) != NULL;
        n += whole;
    }
    whole = whole && errno == 0; /* a failed readdir returns NULL too */
    if (!whole) cannot_list(X, path);
    whole = whole && !X->why[0];
    closedir(d);
    if (!whole) {
        tp__entries_free(list, n);
        return -1;
    }
    if (n) qsort(list, (size_t)n, sizeof *list, by_bytes);
    *names = list;
    return n;
}

bool tp__each_line(tp_image_set *X, const char *path,
                   bool (*f)(tp_image_set *X, char *line, void *env), void *env)
{
    char why[256], line[4096];
    tp_blob b = { 0 };
    bool ok = tp__blob_load(&b, path, LARGEST_LIST, why, sizeof why);
    if (!ok) tp__image_set_fail(X, "%s %s", path, why);
    if (ok && b.size == LARGEST_LIST) /* a longer one was cut there */
        ok = tp__image_set_fail(X, "%s has %d bytes or more, too many for a list", path,
                                LARGEST_LIST);
    if (!ok) {
        tp__blob_free(&b);
        return false;
    }
    size_t n = 0;
    for (size_t i = 0; i <= b.size; i++) {
        const char c = i < b.size ? (char)b.bytes[i] : '\n';
        if (c != '\n') {
            if (n < sizeof line - 1 && c != '\r') line[n++] = c;
            continue;
        }
        line[n] = '\0';
        if (n && !f(X, line, env)) break;
        n = 0;
    }
    tp__blob_free(&b);
    return X->why[0] == '\0';
}
