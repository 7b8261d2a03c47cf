/* fault_calls.c - a preloaded library that makes a program's calls on files fail, as on a full or
 * broken disk:
 *
 *     FAULT="CALL N ERRNO PART"         fails the Nth and all later calls on paths that contain
 *                                       PART; $ marks the end of the path
 *     FAULT="CALL N ERRNO PART once"    fails the Nth call only
 *     FAULT_LOG=FILE                    logs the name and path of each counted call
 *
 * CALL is one function of the C library, locks (flock and fcntl), or any. Paths are made absolute.
 * Standard streams do not count. The first write that fails has written half of its bytes; a close
 * that fails still closes the file. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { PATH = 4400 };

static const char *path_of(int fd, char *path, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, size - 1);
    path[n > 0 ? n : 0] = '\0';
    return path;
}

static void note(const char *call, const char *path)
{
    char line[PATH + 100];
    const char *log = getenv("FAULT_LOG");
    const long fd =
        log ? syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT, 0666) : -1;
    if (fd < 0) return;
    const int n = snprintf(line, sizeof line, "%s %s\n", call, path);
    syscall(SYS_write, fd, line, n);
    syscall(SYS_close, fd);
}

static bool is_meant(const char *name, const char *call)
{
    const bool lock = strcmp(call, "flock") == 0 || strcmp(call, "fcntl") == 0;
    return strcmp(name, call) == 0 || strcmp(name, "any") == 0 ||
           (lock && strcmp(name, "locks") == 0);
}

/* Counts the call. True if it must fail; *first: it is the first failure. */
static bool due(const char *call, const char *path, bool *first)
{
    static atomic_int calls;
    char name[16], part[256], often[16] = "", here[PATH / 2] = "", whole[PATH + 8];
    int n, error;
    const char *fault = getenv("FAULT");
    if (!fault || sscanf(fault, "%15s %d %d %255s %15s", name, &n, &error, part, often) < 4)
        return false;
    if (path[0] != '/' && !getcwd(here, sizeof here)) return false;
    snprintf(whole, sizeof whole, "%s/%.2000s$", here, path + (path[0] == '/'));
    if (!is_meant(name, call) || !strstr(whole, part)) return false;
    const int now = atomic_fetch_add(&calls, 1) + 1;
    note(call, whole);
    if (now < n || (now > n && *often)) return false;
    *first = now == n;
    errno = error;
    return true;
}

static bool due_fd(const char *call, int fd, bool *first)
{
    char path[PATH];
    return fd > STDERR_FILENO && due(call, path_of(fd, path, sizeof path), first);
}

/* Assigns the C library's function as an object: ISO C has no cast to function pointers. */
#define REAL(name)                                                                                 \
    __typeof__(name) *real;                                                                        \
    bool first = false;                                                                            \
    (void)first;                                                                                   \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

#define FAIL_PATH(type, name, parameters, path, arguments, failed)                                 \
    type name parameters                                                                           \
    {                                                                                              \
        REAL(name);                                                                                \
        return due(#name, path, &first) ? (failed) : real arguments;                               \
    }

#define FAIL_FD(type, name, parameters, fd, arguments)                                             \
    type name parameters                                                                           \
    {                                                                                              \
        REAL(name);                                                                                \
        return due_fd(#name, fd, &first) ? -1 : real arguments;                                    \
    }

/* Opening for writing counts as "open", opening for reading as "look". */
int open(const char *path, int flags, ...)
{
    REAL(open);
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    const char *name = (flags & O_ACCMODE) != O_RDONLY ? "open" : "look";
    return due(name, path, &first) ? -1 : real(path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    REAL(write);
    if (!due_fd("write", fd, &first)) return real(fd, data, bytes);
    return first && bytes > 1 ? real(fd, data, bytes / 2) : -1;
}

int close(int fd)
{
    REAL(close);
    if (!due_fd("close", fd, &first)) return real(fd);
    const int error = errno;
    real(fd);
    errno = error;
    return -1;
}

struct dirent *readdir(DIR *folder)
{
    REAL(readdir);
    return due_fd("readdir", dirfd(folder), &first) ? NULL : real(folder);
}

int unlinkat(int at, const char *path, int flags)
{
    REAL(unlinkat);
    return due_fd("unlinkat", at, &first) ? -1 : real(at, path, flags);
}

FAIL_FD(ssize_t, read, (int fd, void *to, size_t n), fd, (fd, to, n))
FAIL_FD(ssize_t, pread, (int fd, void *to, size_t n, off_t at), fd, (fd, to, n, at))
FAIL_FD(off_t, lseek, (int fd, off_t at, int whence), fd, (fd, at, whence))
FAIL_FD(int, fstat, (int fd, struct stat *st), fd, (fd, st))
FAIL_FD(int, fsync, (int fd), fd, (fd))
FAIL_FD(int, flock, (int fd, int operation), fd, (fd, operation))
FAIL_PATH(DIR *, opendir, (const char *path), path, (path), NULL)
FAIL_PATH(FILE *, fopen, (const char *path, const char *mode), path, (path, mode), NULL)
FAIL_PATH(int, stat, (const char *path, struct stat *st), path, (path, st), -1)
FAIL_PATH(int, access, (const char *path, int mode), path, (path, mode), -1)
FAIL_PATH(int, mkdir, (const char *path, mode_t mode), path, (path, mode), -1)
FAIL_PATH(int, rmdir, (const char *path), path, (path), -1)
FAIL_PATH(int, unlink, (const char *path), path, (path), -1)
FAIL_PATH(int, rename, (const char *from, const char *to), to, (from, to), -1)

/* Only locks fail. */
int fcntl(int fd, int command, ...)
{
    REAL(fcntl);
    va_list ap;
    va_start(ap, command);
    void *argument = va_arg(ap, void *);
    va_end(ap);
    const bool lock = command == F_SETLK || command == F_GETLK;
    return lock && due_fd("fcntl", fd, &first) ? -1 : real(fd, command, argument);
}
