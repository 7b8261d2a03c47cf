/* set_files.c - folders and lists of files, as the layouts of image sets read them. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "companions.h"
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
    const char *dot = strrchr(name, '.');
    return dot && strcasecmp(dot, ".tar") == 0;
}

bool tp__is_packed(const char *name)
{
    static const char *const ends[] = { ".tar.gz",  ".tgz", ".tar.xz", ".tar.bz2",
                                        ".tar.zst", ".zip", ".tar.Z" };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (tp_ends_in(name, ends[i])) return true;
    return false;
}

bool tp__is_same(const char *path, const char *other)
{
    struct stat a, b;
    return stat(path, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

bool tp__leads_back(const char *path)
{
    enum { DEEPEST = 128 };
    char above[PATH_MAX], before[PATH_MAX];
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (!slash || lstat(path, &st) != 0 || !S_ISLNK(st.st_mode)) return false;
    snprintf(above, sizeof above, "%.*s", (int)(slash - path), path);
    for (int i = 0; i < DEEPEST; i++) {
        if (tp__is_same(path, above[0] ? above : "/")) return true;
        const int n = snprintf(before, sizeof before, "%.3900s", above);
        snprintf(above, sizeof above, "%.3900s/..", before);
        if (n >= 3900 || tp__is_same(above, before)) return false; /* the root */
    }
    return false;
}

bool tp__has(tp_image_set *X, const char *folder, const char *name)
{
    char path[PATH_MAX];
    tp__join(path, sizeof path, folder, name);
    return tp__is_file(X, path) || tp__is_folder(X, path);
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
    if (e->d_name[0] == '.' || tp__companion(e->d_name)) return false;
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

bool tp__has_images(tp_image_set *X, const char *path)
{
    bool found = false;
    DIR *d = opendir(path);
    if (!d) cannot_list(X, path);
    if (!d) return false;
    errno = 0;
    for (struct dirent *e; !found && (e = readdir(d)); errno = 0)
        found = tp__is_image(e->d_name) && is_wanted(X, path, e, false);
    if (!found && errno) cannot_list(X, path);
    closedir(d);
    return found;
}

/* Copies the next line without its end to `line`; false at the end of the text. */
static bool next_line(const char **at, const char *end, char *line, size_t size, bool *long_line)
{
    if (*at >= end) return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    size_t n = (size_t)((stop ? stop : end) - *at);
    const char *from = *at;
    *at = stop ? stop + 1 : end;
    while (n && from[n - 1] == '\r') n--;
    *long_line = n >= size;
    if (*long_line) n = size - 1;
    memcpy(line, from, n);
    line[n] = '\0';
    return true;
}

bool tp__each_line(tp_image_set *X, const char *path,
                   bool (*f)(tp_image_set *X, char *line, void *env), void *env)
{
    char why[256], line[4096];
    tp_blob b = { 0 };
    bool too_long = false;
    int64_t number = 0;
    if (!tp__blob_load(&b, path, LARGEST_LIST, why, sizeof why))
        tp__image_set_fail(X, "%s %s", path, why);
    else if (b.size == LARGEST_LIST) /* a longer one was cut there */
        tp__image_set_fail(X, "%s has %d bytes or more, too many for a list", path, LARGEST_LIST);
    const char *at = b.bytes ? (const char *)b.bytes : "";
    size_t n = b.size;
    if (!X->why[0] && n && !tp_file_text(&at, &n, why, sizeof why))
        tp__image_set_fail(X, "%s %s", path, why);
    for (const char *end = at + n;
         !X->why[0] && next_line(&at, end, line, sizeof line, &too_long);) {
        number++;
        if (too_long)
            tp__image_set_fail(X, "%s: line %lld has more than %zu bytes", path, (long long)number,
                               sizeof line - 1);
        else if (line[0] && !f(X, line, env))
            break;
    }
    tp__blob_free(&b);
    return X->why[0] == '\0';
}
