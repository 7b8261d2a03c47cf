/* set_files.c - folders and lists of files, for the layouts of image sets. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "files.h"
#include "load.h"
#include "set.h"

enum { LARGEST_LIST = 1 << 28 }; /* unpacked bytes; ImageNet's list has 50 MB */

const char *tp__join(char *buf, size_t size, const char *folder, const char *name)
{
    snprintf(buf, size, "%s/%s", folder, name);
    return buf;
}

/* Returns the mode of a file or folder, 0 if there is none. Any other error fails X: treating it as
 * a missing file would select another layout or shrink the set. */
static mode_t mode_of(tp_image_set *X, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0) return st.st_mode;
    if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != ENAMETOOLONG)
        tp__fail(X, "%s: cannot be accessed (%s)", path, strerror(errno));
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

bool tp__leads_back(const char *path)
{
    enum { DEEPEST = 128 };
    char above[PATH_MAX], before[PATH_MAX];
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (!slash || lstat(path, &st) != 0 || !S_ISLNK(st.st_mode)) return false;
    snprintf(above, sizeof above, "%.*s", (int)(slash - path), path);
    for (int i = 0; i < DEEPEST; i++) {
        if (tp__same_file(path, above[0] ? above : "/")) return true;
        const int n = snprintf(before, sizeof before, "%.3900s", above);
        snprintf(above, sizeof above, "%.3900s/..", before);
        if (n >= 3900 || tp__same_file(above, before)) return false; /* the root */
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

/* Which entries of which folder to list. */
typedef struct wanted {
    tp_image_set *X;
    const char *path;
    bool folders;
} wanted;

/* Many file systems return an entry's kind with its name, which saves a call of stat. */
static bool is_wanted(void *env, const struct dirent *e)
{
    const wanted *w = env;
    char full[PATH_MAX];
#ifdef DT_DIR
    if (e->d_type == DT_DIR) return w->folders;
    if (e->d_type == DT_REG) return !w->folders;
#endif
    tp__join(full, sizeof full, w->path, e->d_name);
    return w->folders ? tp__is_folder(w->X, full) : tp__is_file(w->X, full);
}

static void cannot_list(tp_image_set *X, const char *folder)
{
    if (errno != ENOENT && errno != ENOTDIR)
        tp__fail(X, "%s: the folder cannot be read (%s)", folder, strerror(errno));
}

int tp__entries(tp_image_set *X, const char *path, bool folders, char ***names)
{
    wanted w = { X, path, folders };
    const int n = tp__names(path, is_wanted, &w, names);
    if (n < 0) cannot_list(X, path);
    if (n < 0 || !X->why[0]) return n;
    tp__names_free(*names, n);
    return -1;
}

bool tp__has_images(tp_image_set *X, const char *path)
{
    bool found = false;
    DIR *d = opendir(path);
    if (!d) cannot_list(X, path);
    if (!d) return false;
    errno = 0;
    for (struct dirent *e; !found && (e = readdir(d)); errno = 0)
        found = tp__is_image(e->d_name) && e->d_name[0] != '.' && !tp__companion(e->d_name) &&
                is_wanted(&(wanted){ X, path, false }, e);
    if (!found && errno) cannot_list(X, path);
    closedir(d);
    return found;
}

/* Copies the next line, without its end, to `line`; false at the end of the text. */
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
        tp__fail(X, "%s %s", path, why);
    else if (b.size == LARGEST_LIST) /* a longer one was cut */
        tp__fail(X, "%s has %d bytes or more, too many for a list", path, LARGEST_LIST);
    const char *at = b.bytes ? (const char *)b.bytes : "";
    size_t n = b.size;
    if (!X->why[0] && n && !tp_skip_bom(&at, &n, why, sizeof why)) tp__fail(X, "%s %s", path, why);
    for (const char *end = at + n;
         !X->why[0] && next_line(&at, end, line, sizeof line, &too_long);) {
        number++;
        if (too_long)
            tp__fail(X, "%s: line %lld has more than %zu bytes", path, (long long)number,
                     sizeof line - 1);
        else if (line[0] && !f(X, line, env))
            break;
    }
    tp__blob_free(&b);
    return X->why[0] == '\0';
}

bool tp__class_line(tp_image_set *X, char *line, void *env)
{
    (void)env;
    return tp__image_set_class(X, line);
}

bool tp__image_set_shared(tp_image_set *X, const char *a, const char *b, const char *what)
{
    return tp__fail(X, "%s and %s are the same %s: training and validation may not share images", a,
                    b, what);
}
