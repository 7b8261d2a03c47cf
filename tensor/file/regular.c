/* regular.c - regular files: opens and reads them, and replaces them atomically, so that a reader
 * finds the complete old or new file. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tapegrad/file.h>

#include "tensor/file/inner.h"

/* ---- opening and reading ---- */

/* Opens only regular files, and reads them with pread, never with mmap.
 *
 * Opening a pipe would wait forever, and a device may have no end. Reading a mapping kills the
 * process with SIGBUS if the file was truncated or the disk fails; pread reports both. */
static const char *kind_of(mode_t mode)
{
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

int tp_open_regular(const char *path, int64_t *bytes, const char **kind)
{
    struct stat st;
    int64_t size;
    const char *other;
    if (!kind) kind = &other;
    if (!bytes) bytes = &size;
    *kind = NULL;
    *bytes = 0;
    if (!path) {
        errno = EINVAL;
        return -1;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* never waits */
    if (fd < 0 && errno == ENXIO) *kind = "a socket";
    if (fd < 0) return -1;
    const int error = fstat(fd, &st) == 0 ? 0 : errno;
    if (!error && S_ISREG(st.st_mode)) {
        *bytes = st.st_size;
        return fd;
    }
    if (!error) *kind = kind_of(st.st_mode);
    close(fd);
    errno = error ? error : EINVAL;
    return -1;
}

size_t tp_read_bytes(int fd, int64_t from, void *to, size_t n)
{
    size_t done = 0;
    while (done < n) {
        const ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(from + (int64_t)done));
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = 0;
        if (got <= 0) break;
        done += (size_t)got;
    }
    return done;
}

/* ---- replacing ---- */

/* Writes a file so that a reader always finds the complete old or new one. The data go to
 * PATH.tmp-PID-N, N counting the files of the process, which is synced and renamed over PATH, then
 * the folder is synced. */

const char *tp_file_advice(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT: return "make room on the disk";
    case EFBIG: return "raise the limit on file sizes (ulimit -f)";
    case EACCES:
    case EPERM:
    case EROFS: return "make the folder writable or choose another";
    case ENOENT: return "create the folder first";
    case ENOTDIR: return "choose a path without a file in place of a folder";
    case EISDIR: return "choose a path that is no folder";
    case ENAMETOOLONG: return "choose a shorter name";
    case EMFILE:
    case ENFILE: return "raise the limit on open files (ulimit -n)";
    case ENOMEM: return "free some memory";
    case ELOOP: return "choose a path without links to themselves";
    default: return "check the disk";
    }
}

static void failed(tp_err *e, const char *path, const char *step, const char *file)
{
    const int error = errno;
    tp__err(e, TP_E_IO,
            "%.1000s cannot be written: %s %.900s failed (%s); %s, the former file is untouched",
            path, step, file, strerror(error), tp_file_advice(error));
}

bool tp_write_bytes(int fd, const void *bytes, size_t n)
{
    for (const char *p = bytes; n > 0;) {
        const ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = EIO;
        if (done <= 0) return false;
        p += done;
        n -= (size_t)done;
    }
    return true;
}

/* Threads, and processes of several machines or containers with equal process numbers, may write
 * one file at the same time. */
int tp_open_temporary(const char *path, char *name, size_t size)
{
    static atomic_uint files;
    int fd;
    errno = EINVAL;
    if (!path || !name) return -1;
    do {
        const unsigned n = atomic_fetch_add(&files, 1);
        const int length = snprintf(name, size, "%s.tmp-%ld-%u", path, (long)getpid(), n);
        errno = ENAMETOOLONG;
        if (length < 0 || (size_t)length >= size) return -1;
        fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EEXIST);
    return fd;
}

/* Makes the rename itself durable. Some file systems cannot sync folders and need not. */
static bool sync_folder(const char *path, char *folder)
{
    strcpy(folder, path);
    char *slash = strrchr(folder, '/');
    if (!slash)
        strcpy(folder, ".");
    else
        slash[slash == folder] = '\0';
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno == EACCES;
    const bool ok = fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
    close(fd);
    return ok;
}

/* Would the new file replace a device, a pipe or a socket? */
static bool is_special(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

/* Writes path's temporary file. Returns its name, with room for path's folder; NULL with *e. */
static char *write_temporary(tp_err *e, const char *path, bool (*content)(int fd, void *env),
                             void *env)
{
    const size_t size = strlen(path) + TP_TEMPORARY;
    char *temporary = malloc(size);
    if (is_special(path))
        tp__err(e, TP_E_IO,
                "%.1000s cannot be written: it is a device, a pipe or a socket; give the path of a "
                "file",
                path);
    else if (!temporary)
        tp__err(e, TP_E_MEMORY, "%.1000s cannot be written: out of host memory", path);
    const int fd = temporary && e->code == TP_OK ? tp_open_temporary(path, temporary, size) : -1;
    if (fd < 0) {
        if (e->code == TP_OK) failed(e, path, "creating", temporary);
        free(temporary);
        return NULL;
    }
    if (!content(fd, env))
        failed(e, path, "writing", temporary);
    else if (fsync(fd) != 0)
        failed(e, path, "syncing", temporary);
    if (close(fd) != 0) failed(e, path, "closing", temporary);
    if (e->code == TP_OK) return temporary;
    unlink(temporary);
    free(temporary);
    return NULL;
}

/* Renames the temporary file to path, and frees its name. */
static void put_in_place(tp_err *e, const char *path, char *temporary)
{
    if (e->code == TP_OK && rename(temporary, path) != 0) failed(e, path, "renaming", temporary);
    if (e->code != TP_OK)
        unlink(temporary);
    else if (!sync_folder(path, temporary))
        tp__err(e, TP_E_IO,
                "%.1000s cannot be written: syncing folder %.900s failed (%s); %s, the new file is "
                "in place, but may not survive a power failure",
                path, temporary, strerror(errno), tp_file_advice(errno));
    free(temporary);
}

bool tp__file_replace(tp_err *e, const char *path, bool (*content)(int fd, void *env), void *env)
{
    char *temporary = write_temporary(e, path, content, env);
    if (temporary) put_in_place(e, path, temporary);
    return e->code == TP_OK;
}

static bool put_bytes(int fd, void *env)
{
    const tp_new_file *f = env;
    return tp_write_bytes(fd, f->bytes, f->n);
}

bool tp_file_replace(const char *path, const void *bytes, size_t n, char *why, size_t size)
{
    return tp_files_replace(&(tp_new_file){ path, bytes, n }, 1, why, size);
}

/* What is missing; NULL: nothing. */
static const char *missing(const tp_new_file *files, int n)
{
    for (int i = 0; i < n; i++) {
        if (!files || !files[i].path) return "a path";
        if (!files[i].bytes && files[i].n) return "bytes";
    }
    return NULL;
}

bool tp_files_replace(const tp_new_file *files, int n, char *why, size_t size)
{
    enum { MOST = 8 };
    char *temporary[MOST];
    tp_err e = { 0 };
    int written = 0;
    const char *lacking = missing(files, n);
    if (lacking) tp__err(&e, TP_E_VALUE, "file: NULL was given in place of %s", lacking);
    if (n > MOST) tp__err(&e, TP_E_VALUE, "%d files are more than can be replaced together", n);
    while (!lacking && e.code == TP_OK && written < n) {
        tp_new_file f = files[written];
        temporary[written] = write_temporary(&e, f.path, put_bytes, &f);
        written += temporary[written] != NULL;
    }
    for (int i = 0; i < written; i++) put_in_place(&e, files[i].path, temporary[i]);
    if (why) snprintf(why, size, "%s", e.text);
    return e.code == TP_OK;
}

/* ---- folders ---- */

/* Creates a folder and its parents; cuts path at each slash in turn and restores it. */
static bool make_parents(char *path)
{
    for (char *s = path + 1; *s; s++)
        if (*s == '/') {
            *s = '\0';
            const bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
            *s = '/';
            if (!made) return false;
        }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

bool tp_make_folders(const char *path, char *why, size_t size)
{
    if (!path) path = "";
    char *copy = strdup(path);
    errno = copy ? ENOENT : ENOMEM;
    const bool ok = copy && *copy && make_parents(copy);
    const int error = errno;
    free(copy);
    if (!ok && why)
        snprintf(why, size, "%.1000s: cannot be made: %s; %s", path, strerror(error),
                 tp_file_advice(error));
    return ok;
}
