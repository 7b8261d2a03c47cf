/* set_entry.c - one entry of a shard, found by the offset of its header. Reading starts there, so that libarchive
 * handles every dialect of tar. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "load.h"
#include "set.h"

/* The error of libarchive if memory or the disk failed; 0 if the archive itself is damaged. */
static int system_error(struct archive *a)
{
    const int error = archive_errno(a);
    return error == EIO || error == ESTALE || error == ENOMEM ? error : 0;
}

struct archive *tp__tar_open(const char *path, int64_t offset, int *fd, char *why, size_t size)
{
    int64_t bytes;
    *fd = tp__open_file(path, &bytes, why, size);
    if (*fd < 0) return NULL;
    struct archive *a = archive_read_new();
    if (a && lseek(*fd, (off_t)offset, SEEK_SET) == (off_t)offset &&
        archive_read_support_format_tar(a) == ARCHIVE_OK &&
        archive_read_open_fd(a, *fd, 1 << 16) == ARCHIVE_OK)
        return a;
    const int error = !a ? ENOMEM : archive_error_string(a) ? system_error(a) : errno;
    snprintf(why, size, "cannot be read: %s",
             a && archive_error_string(a) ? archive_error_string(a) : strerror(error));
    if (a) archive_read_free(a);
    close(*fd);
    errno = error;
    return NULL;
}

/* NULL on failure, with errno if memory or the disk failed and 0 if the entry is damaged. */
static void *read_entry(struct archive *a, int64_t most, size_t *n)
{
    struct archive_entry *e;
    const bool found = archive_read_next_header(a, &e) >= ARCHIVE_WARN;
    errno = found ? 0 : system_error(a);
    if (!found || archive_entry_size(e) <= 0 || archive_entry_size(e) >= most) return NULL;
    *n = (size_t)archive_entry_size(e);
    void *bytes = malloc(*n);
    if (bytes && archive_read_data(a, bytes, *n) == (la_ssize_t)*n) return bytes;
    errno = bytes ? system_error(a) : ENOMEM;
    free(bytes);
    return NULL;
}

void *tp__shard_entry(const char *path, int64_t offset, size_t *n, char *why, size_t size)
{
    int fd;
    struct stat st;
    struct archive *a = tp__tar_open(path, offset, &fd, why, size);
    *n = 0;
    if (!a) return NULL;
    void *bytes = fstat(fd, &st) == 0 ? read_entry(a, st.st_size - offset, n) : NULL;
    const int error = errno;
    if (!bytes && error == ENOMEM)
        snprintf(why, size, "out of memory for %zu bytes", *n);
    else if (!bytes && error)
        snprintf(why, size, "cannot be read: %s", strerror(error));
    else if (!bytes)
        snprintf(why, size, "cannot be read: %s was truncated or changed after it was opened",
                 path);
    archive_read_free(a);
    close(fd);
    errno = error;
    return bytes;
}
