/* replace.c - small text files that are always whole: a kill or a full disk leaves the former one.
 */
#include "replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

const char *remedy(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return "make room on the disk";
    case EACCES:
    case EPERM:
    case EROFS: return "make the folder writable or choose another --run-dir";
    case ENOENT: return "the folder is gone";
    default: return "check the disk";
    }
}

bool write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        text += n;
        bytes -= (size_t)n;
    }
    return true;
}

bool replace_file(const char *path, const char *text, size_t bytes)
{
    char fresh[4300];
    const int length = snprintf(fresh, sizeof fresh, "%s.new", path);
    if (length < 0 || (size_t)length >= sizeof fresh) {
        errno = ENAMETOOLONG;
        return false;
    }
    const int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    const bool written = write_all(fd, text, bytes) && fsync(fd) == 0;
    int error = errno;
    const bool closed = close(fd) == 0;
    if (written && !closed) error = errno;
    if (written && closed && rename(fresh, path) == 0) return true;
    if (written && closed) error = errno;
    unlink(fresh);
    errno = error;
    return false;
}
