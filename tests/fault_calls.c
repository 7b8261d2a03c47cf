/* fault_calls.c - preloaded into a program, makes one kind of system call on one file fail, as a
 * disk does that is full or breaks:
 *
 *     FAULT="CALL N ERRNO PART"    the Nth call and all later ones on paths that contain PART,
 *                                  where $ is the end of the path
 *
 * The first write that fails gets half of its bytes out before. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static const char *path_of(int fd, char *path, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, size - 1);
    path[n > 0 ? n : 0] = '\0';
    return path;
}

/* Is this call to fail? Counts; *first: it is the first one. */
static bool due(const char *call, const char *path, bool *first)
{
    static int calls;
    char name[16], part[256], whole[4400];
    int n, error;
    const char *fault = getenv("FAULT");
    if (!fault || sscanf(fault, "%15s %d %d %255s", name, &n, &error, part) != 4) return false;
    snprintf(whole, sizeof whole, "%s$", path);
    if (strcmp(name, call) != 0 || !strstr(whole, part) || ++calls < n) return false;
    *first = calls == n;
    errno = error;
    return true;
}

static bool due_fd(const char *call, int fd, bool *first)
{
    char path[4200];
    return due(call, path_of(fd, path, sizeof path), first);
}

/* The C library's own function; ISO C has no cast from object to function pointers. */
#define REAL(name)                                                                                 \
    __typeof__(name) *real;                                                                        \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

int open(const char *path, int flags, ...)
{
    REAL(open);
    bool first;
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return (flags & O_ACCMODE) != O_RDONLY && due("open", path, &first) ? -1
                                                                        : real(path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    REAL(write);
    bool first;
    if (!due_fd("write", fd, &first)) return real(fd, data, bytes);
    return first && bytes > 1 ? real(fd, data, bytes / 2) : -1;
}

int fsync(int fd)
{
    REAL(fsync);
    bool first;
    return due_fd("fsync", fd, &first) ? -1 : real(fd);
}

int close(int fd)
{
    REAL(close);
    bool first;
    if (!due_fd("close", fd, &first)) return real(fd);
    const int error = errno;
    real(fd);
    errno = error;
    return -1;
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    bool first;
    return due("rename", to, &first) ? -1 : real(from, to);
}
