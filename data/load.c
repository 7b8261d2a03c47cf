/* load.c - reading a whole file: memory-mapped if it is a regular file, read to its end if it is a
 * pipe, and unpacked with libarchive if its first bytes are those of a compressed format.
 *
 * The format is told by its first bytes, not by the name, so that a renamed file still opens; a
 * name that promises compression which the bytes do not show is an error, because training on the
 * packed bytes of a damaged file would otherwise go unnoticed. */
#include "data/load.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct packing {
    const char *name, *suffix;
    size_t length;
    uint8_t magic[6];
} packings[] = {
    { "gzip", ".gz", 2, { 0x1f, 0x8b } },      { "xz", ".xz", 6, { 0xfd, '7', 'z', 'X', 'Z', 0 } },
    { "zip", ".zip", 4, { 'P', 'K', 3, 4 } },  { "zstd", ".zst", 4, { 0x28, 0xb5, 0x2f, 0xfd } },
    { "bzip2", ".bz2", 3, { 'B', 'Z', 'h' } },
};
enum { PACKINGS = sizeof packings / sizeof packings[0] };

static const struct packing *packing_of(const tp_blob *b)
{
    for (int i = 0; i < PACKINGS; i++)
        if (b->size >= packings[i].length &&
            memcmp(b->bytes, packings[i].magic, packings[i].length) == 0)
            return &packings[i];
    return NULL;
}

static const struct packing *packing_promised(const char *path)
{
    const size_t n = strlen(path);
    for (int i = 0; i < PACKINGS; i++) {
        const size_t k = strlen(packings[i].suffix);
        if (n > k && strcasecmp(path + n - k, packings[i].suffix) == 0) return &packings[i];
    }
    return NULL;
}

void tp__blob_free(tp_blob *b)
{
    if (b->map) munmap(b->map, b->map_size);
    free(b->heap);
    *b = (tp_blob){ 0 };
}

/* A heap buffer that doubles. Room for at least one more byte, or false. */
static bool grow(uint8_t **buffer, size_t *capacity, size_t used)
{
    if (used < *capacity) return true;
    const size_t larger = *capacity ? 2 * *capacity : (size_t)1 << 16;
    uint8_t *p = larger > *capacity ? realloc(*buffer, larger) : NULL;
    if (!p) return false;
    *buffer = p;
    *capacity = larger;
    return true;
}

static bool read_all(tp_blob *b, int fd, char *why, size_t why_size)
{
    uint8_t *buffer = NULL;
    size_t capacity = 0, used = 0;
    ssize_t got = 1;
    while (got != 0) {
        if (!grow(&buffer, &capacity, used)) {
            snprintf(why, why_size, "no memory for more than %zu bytes", used);
            break;
        }
        got = read(fd, buffer + used, capacity - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            snprintf(why, why_size, "cannot be read: %s", strerror(errno));
            break;
        }
        used += (size_t)got;
    }
    *b = (tp_blob){ .bytes = buffer, .size = used, .heap = buffer };
    return got == 0;
}

static bool map_or_read(tp_blob *b, const char *path, char *why, size_t why_size)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(why, why_size, "cannot be opened: %s", strerror(errno));
        if (fd >= 0) close(fd);
        return false;
    }
    bool done = false;
    if (S_ISDIR(st.st_mode)) {
        snprintf(why, why_size, "is a folder; a file is wanted");
    } else if (S_ISREG(st.st_mode) && st.st_size > 0) {
        const size_t size = (size_t)st.st_size;
        void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        done = map != MAP_FAILED;
        if (done)
            *b = (tp_blob){ .bytes = map, .size = size, .map = map, .map_size = size };
        else
            snprintf(why, why_size, "cannot be mapped: %s", strerror(errno));
    } else {
        done = read_all(b, fd, why, why_size);
    }
    close(fd);
    return done;
}

/* The entry's content up to limit; a second entry is refused by the caller. */
static bool unpack_entry(tp_blob *out, struct archive *a, size_t limit, char *why, size_t why_size)
{
    uint8_t *buffer = NULL;
    size_t capacity = 0, used = 0;
    bool done = false;
    while (!done) {
        if (!grow(&buffer, &capacity, used)) {
            snprintf(why, why_size, "no memory for more than %zu unpacked bytes", used);
            break;
        }
        const size_t room = capacity - used < limit - used ? capacity - used : limit - used;
        const la_ssize_t got = room ? archive_read_data(a, buffer + used, room) : 0;
        if (got < 0) {
            snprintf(why, why_size, "is damaged or cut off after %zu unpacked bytes (%s)", used,
                     archive_error_string(a) ? archive_error_string(a) : "no reason given");
            break;
        }
        used += (size_t)got;
        done = got == 0;
    }
    *out = (tp_blob){ .bytes = buffer, .size = used, .heap = buffer };
    return done;
}

/* Steps to the next regular file of a zip, or to the only entry of the other formats. */
static int next_file(struct archive *a)
{
    struct archive_entry *e;
    int r;
    while ((r = archive_read_next_header(a, &e)) == ARCHIVE_OK || r == ARCHIVE_WARN)
        if (archive_entry_filetype(e) == AE_IFREG) return ARCHIVE_OK;
    return r;
}

static bool unpack(tp_blob *b, const struct packing *p, size_t limit, char *why, size_t why_size)
{
    struct archive *a = archive_read_new();
    tp_blob out = { 0 };
    bool done = false;
    if (!a) {
        snprintf(why, why_size, "no memory to unpack it");
        return false;
    }
    archive_read_support_filter_gzip(a);
    archive_read_support_filter_xz(a);
    archive_read_support_filter_zstd(a);
    archive_read_support_filter_bzip2(a);
    archive_read_support_format_zip(a);
    archive_read_support_format_raw(a);
    int r = archive_read_open_memory(a, b->bytes, b->size);
    if (r == ARCHIVE_OK) r = next_file(a);
    if (r == ARCHIVE_EOF)
        snprintf(why, why_size, "is a %s archive without a file in it", p->name);
    else if (r != ARCHIVE_OK)
        snprintf(why, why_size, "is a damaged or cut off %s file (%s)", p->name,
                 archive_error_string(a) ? archive_error_string(a) : "no reason given");
    else
        done = unpack_entry(&out, a, limit ? limit : SIZE_MAX, why, why_size);
    if (done && strcmp(p->name, "zip") == 0 && next_file(a) == ARCHIVE_OK) {
        snprintf(why, why_size, "holds several files; unpack the one that is meant");
        done = false;
    }
    archive_read_free(a);
    tp__blob_free(b);
    *b = out;
    return done;
}

bool tp__blob_load(tp_blob *b, const char *path, size_t limit, char *why, size_t why_size)
{
    *b = (tp_blob){ 0 };
    if (!map_or_read(b, path, why, why_size)) return false;
    const struct packing *packed = packing_of(b), *promised = packing_promised(path);
    if (packed) {
        if (!unpack(b, packed, limit, why, why_size)) return false;
    } else if (promised && b->size) {
        snprintf(why, why_size, "is named %s but is not a %s file", promised->suffix,
                 promised->name);
        return false;
    }
    if (limit && b->size > limit) b->size = limit;
    if (b->size == 0) snprintf(why, why_size, "is empty");
    return b->size > 0;
}
