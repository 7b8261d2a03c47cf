/* regular.c - opens only regular files, and reads them with pread, never with mmap.
 *
 * Opening a pipe would wait forever, and a device may have no end. Reading a mapping kills the
 * process with SIGBUS if the file was truncated or the disk fails; pread reports both. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tapegrad/file.h>

static const char *kind_of(mode_t mode)
{
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

int tp_file_regular(const char *path, int64_t *bytes, const char **kind)
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

size_t tp_file_bytes(int fd, int64_t from, void *to, size_t n)
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
