/* load.c - reads a whole regular file, and unpacks it with libarchive if it is compressed.
 *
 * The magic bytes decide the format, not the name, so a renamed file still opens. A compressed
 * file's name without its magic bytes is an error: training on the packed bytes of a damaged file
 * would otherwise go unnoticed. */
#include "load.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "files.h"

typedef struct packing {
    const char *name, *suffix;
    size_t length;
    uint8_t magic[6];
    int filter; /* of libarchive; none: zip */
    int (*support)(struct archive *);
} packing;

#define FILTER(name)  ARCHIVE_FILTER_##name
#define SUPPORT(name) archive_read_support_##name
static const packing packings[] = {
    { "gzip", ".gz", 2, { 0x1f, 0x8b }, FILTER(GZIP), SUPPORT(filter_gzip) },
    { "xz", ".xz", 6, { 0xfd, '7', 'z', 'X', 'Z', 0 }, FILTER(XZ), SUPPORT(filter_xz) },
    { "zip", ".zip", 4, { 'P', 'K', 3, 4 }, FILTER(NONE), SUPPORT(format_zip) },
    { "zstd", ".zst", 4, { 0x28, 0xb5, 0x2f, 0xfd }, FILTER(ZSTD), SUPPORT(filter_zstd) },
    { "bzip2", ".bz2", 3, { 'B', 'Z', 'h' }, FILTER(BZIP2), SUPPORT(filter_bzip2) },
};
enum { PACKINGS = sizeof packings / sizeof packings[0] };

static const packing *packing_of(const tp_blob *b)
{
    for (int i = 0; i < PACKINGS; i++)
        if (b->size >= packings[i].length &&
            memcmp(b->bytes, packings[i].magic, packings[i].length) == 0)
            return &packings[i];
    return NULL;
}

static const packing *packing_promised(const char *path)
{
    const size_t n = strlen(path);
    for (int i = 0; i < PACKINGS; i++) {
        const size_t k = strlen(packings[i].suffix);
        if (n > k && strcasecmp(path + n - k, packings[i].suffix) == 0) return &packings[i];
    }
    return NULL;
}

bool tp__is_named(const char *name, const char *suffix)
{
    const packing *p = packing_promised(name);
    const size_t n = strlen(name) - (p ? strlen(p->suffix) : 0), k = strlen(suffix);
    return n > k && strncasecmp(name + n - k, suffix, k) == 0;
}

void tp__blob_free(tp_blob *b)
{
    free(b->bytes);
    *b = (tp_blob){ 0 };
}

static const char *open_advice(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR: return "; check the path";
    case EACCES: return "; check the permissions of the file and its folders";
    default: return "";
    }
}

int tp__open_file(const char *path, int64_t *bytes, char *why, size_t size)
{
    const char *kind;
    const int fd = tp_open_regular(path, bytes, &kind);
    const int error = errno;
    if (fd < 0 && kind)
        snprintf(why, size, "is %s; a regular file is wanted", kind);
    else if (fd < 0)
        snprintf(why, size, "cannot be opened: %s%s", strerror(error), open_advice(error));
    errno = error;
    return fd;
}

/* Reads the first n bytes. The file had them when it was opened, but may have shrunk since. */
static bool take(tp_blob *b, int fd, size_t n, char *why, size_t size)
{
    if (!b->bytes || n > b->room) {
        tp__blob_free(b);
        b->bytes = malloc(n + (n == 0));
        b->room = b->bytes ? n : 0;
    }
    b->error = ENOMEM;
    if (!b->bytes) {
        snprintf(why, size, "out of memory for %zu bytes", n);
        return false;
    }
    b->size = tp_read_bytes(fd, 0, b->bytes, n);
    b->error = b->size < n ? errno : 0;
    if (b->size == n) return true;
    if (b->error)
        snprintf(why, size, "cannot be read: %s", strerror(b->error));
    else
        snprintf(why, size, "became shorter while it was read: %zu of %zu bytes remain", b->size,
                 n);
    return false;
}

bool tp__begins_packed(int fd)
{
    uint8_t first[6];
    const tp_blob b = { .bytes = first, .size = tp_read_bytes(fd, 0, first, sizeof first) };
    return packing_of(&b) != NULL;
}

/* A file of more than `most` bytes is an error. Reads at most `cut` bytes of a plain file. 0: no
 * limit. */
static bool read_file(tp_blob *b, const char *path, size_t most, size_t cut, char *why, size_t size)
{
    int64_t bytes;
    bool done = false;
    const int fd = tp__open_file(path, &bytes, why, size);
    b->size = 0;
    b->error = fd < 0 ? errno : 0;
    if (fd < 0) return false;
    if (most && (uint64_t)bytes > most)
        snprintf(why, size, "has %lld bytes, more than the %zu allowed", (long long)bytes, most);
    else /* packed ones are read as a whole, whatever the limit */
        done = take(b, fd,
                    cut && (uint64_t)bytes > cut && !tp__begins_packed(fd) ? cut : (size_t)bytes,
                    why, size);
    close(fd);
    return done;
}

bool tp__blob_read(tp_blob *b, const char *path, size_t most, char *why, size_t size)
{
    return read_file(b, path, most, 0, why, size);
}

static const char *remedy(int error)
{
    switch (error) {
    case EMFILE:
    case ENFILE: return "close other files (ulimit -n)";
    case ENOMEM: return "give the process more memory";
    case EIO:
    case ESTALE: return "check the disk";
    default: return NULL;
    }
}

tp_code tp__shortage(int error, char *why, size_t size)
{
    const char *todo = remedy(error);
    const size_t n = strlen(why);
    if (todo) snprintf(why + n, size - n, "; this is not the fault of the image: %s", todo);
    return !todo ? TP_OK : error == ENOMEM ? TP_E_MEMORY : TP_E_IO;
}

static bool damaged(struct archive *a, size_t used, char *why, size_t size)
{
    const char *reason = archive_error_string(a);
    snprintf(why, size, "is damaged or cut off after %zu unpacked bytes (%s)", used,
             reason ? reason : "no reason given");
    return false;
}

size_t tp__most_unpacked(size_t packed)
{
    enum { FREE = 1 << 24 };
    return packed < SIZE_MAX / TP_UNPACKED_TIMES - FREE ? TP_UNPACKED_TIMES * packed + FREE
                                                        : SIZE_MAX;
}

static bool too_long(char *why, size_t size)
{
    snprintf(
        why, size,
        "unpacks to more than %d times its bytes; if that is right, unpack it and give the result",
        TP_UNPACKED_TIMES);
    return false;
}

/* Unpacks at most `limit` bytes of the current entry; more than `most` are an error. */
static bool unpack_entry(tp_blob *out, struct archive *a, size_t limit, size_t most, char *why,
                         size_t size)
{
    enum { PIECE = 1 << 16 };
    uint8_t *buffer = NULL;
    size_t capacity = 0, used = 0;
    la_ssize_t got = 1;
    while (got > 0) {
        if (!tp_reserve(&buffer, &capacity, used, PIECE, 1)) {
            snprintf(why, size, "out of memory for more than %zu unpacked bytes", used);
            break;
        }
        const size_t room = capacity - used < limit - used ? capacity - used : limit - used;
        got = room ? archive_read_data(a, buffer + used, room) : 0;
        if (got > 0) used += (size_t)got;
        if (used > most) break;
    }
    *out = (tp_blob){ .bytes = buffer, .size = used };
    if (used > most) return too_long(why, size);
    return got < 0 ? damaged(a, used, why, size) : got == 0;
}

static bool is_companion(const char *name)
{
    return name && tp__companion(name);
}

/* Advances to a zip's next regular file that is no companion, or to another format's only entry. */
static int next_file(struct archive *a)
{
    struct archive_entry *e;
    int r;
    while ((r = archive_read_next_header(a, &e)) == ARCHIVE_OK || r == ARCHIVE_WARN)
        if (archive_entry_filetype(e) == AE_IFREG && !is_companion(archive_entry_pathname(e)))
            return ARCHIVE_OK;
    return r;
}

/* Accepts the zip methods that need bounded memory; others allocate as much as the file declares,
 * up to 4 GiB. */
static bool modest(struct archive *a, char *why, size_t size)
{
    static const char *const methods[] = { "(uncompressed)", "(deflation)", "(bzip)" };
    const char *name = archive_format_name(a); /* "ZIP 2.0 (deflation)" */
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (name && strstr(name, methods[i])) return true;
    snprintf(why, size, "is compressed as %s; use deflate, gzip, xz, zstd or bzip2",
             name ? name : "an unknown kind of zip");
    return false;
}

/* Opens an archive, from fd unless its bytes are in memory, and advances to its file; *empty: it
 * has none. The filter must match the magic bytes, or a damaged header could pass as raw text. */
static bool open_packed(struct archive *a, const tp_blob *packed, int fd, const packing *p,
                        bool *empty, char *why, size_t size)
{
    if (p->filter == ARCHIVE_FILTER_XZ && tp__immodest_xz(packed->bytes, packed->size)) {
        snprintf(why, size,
                 "needs a dictionary of more than 256 MiB; compress it again with xz -9");
        return false;
    }
    p->support(a);
    if (p->filter != ARCHIVE_FILTER_NONE) {
        archive_read_support_format_raw(a);
        archive_read_support_format_empty(a);
    }
    int r = packed->bytes ? archive_read_open_memory(a, packed->bytes, packed->size)
                          : archive_read_open_fd(a, fd, 1 << 16);
    if (r == ARCHIVE_OK) r = next_file(a);
    *empty = r == ARCHIVE_EOF && archive_filter_code(a, 0) == p->filter;
    if (*empty) return true;
    if (r != ARCHIVE_OK || archive_filter_code(a, 0) != p->filter) return damaged(a, 0, why, size);
    return p->filter != ARCHIVE_FILTER_NONE || modest(a, why, size);
}

static bool is_last(struct archive *a, char *why, size_t size)
{
    if (next_file(a) != ARCHIVE_OK) return true;
    snprintf(why, size, "contains several files; unpack the one to read");
    return false;
}

/* Leaves *out empty if the archive is empty. */
static bool unpack_all(tp_blob *out, struct archive *a, const tp_blob *packed, const packing *p,
                       size_t limit, char *why, size_t size)
{
    bool empty;
    if (!open_packed(a, packed, -1, p, &empty, why, size)) return false;
    return empty || (unpack_entry(out, a, limit ? limit : SIZE_MAX, tp__most_unpacked(packed->size),
                                  why, size) &&
                     is_last(a, why, size));
}

static bool unpack(tp_blob *b, const packing *p, size_t limit, char *why, size_t size)
{
    struct archive *a = archive_read_new();
    tp_blob out = { 0 };
    if (!a) {
        snprintf(why, size, "out of memory to unpack it");
        return false;
    }
    const bool done = unpack_all(&out, a, b, p, limit, why, size);
    archive_read_free(a);
    tp__blob_free(b);
    *b = out;
    return done;
}

bool tp__blob_load(tp_blob *b, const char *path, size_t limit, char *why, size_t size)
{
    *b = (tp_blob){ 0 };
    if (!read_file(b, path, 0, limit, why, size)) return false;
    const packing *packed = packing_of(b), *promised = packing_promised(path);
    if (packed) {
        if (!unpack(b, packed, limit, why, size)) return false;
    } else if (promised && b->size) {
        snprintf(why, size, "is named %s but is not a %s file", promised->suffix, promised->name);
        return false;
    }
    if (limit && b->size > limit) b->size = limit;
    if (b->size == 0) snprintf(why, size, "is empty");
    return b->size > 0;
}

/* ---- piece by piece ---- */

enum { PIECE = 1 << 18 };

/* The receiver of a file's pieces. */
typedef struct sink {
    bool (*f)(void *env, const char *bytes, size_t n);
    void *env;
    char *buffer; /* [PIECE] */
    char *why;
    size_t size;
    size_t most; /* unpacked bytes */
} sink;

static bool plain_pieces(const sink *s, int fd)
{
    for (int64_t at = 0;;) {
        errno = 0;
        const size_t n = tp_read_bytes(fd, at, s->buffer, PIECE);
        if (n < PIECE && errno) {
            snprintf(s->why, s->size, "cannot be read: %s", strerror(errno));
            return false;
        }
        if (n == 0 || !s->f(s->env, s->buffer, n)) return true;
        at += (int64_t)n;
    }
}

static bool entry_pieces(const sink *s, struct archive *a)
{
    size_t used = 0;
    for (;;) {
        size_t n = 0;
        la_ssize_t got = 1;
        while (got > 0 && n < PIECE) {
            got = archive_read_data(a, s->buffer + n, PIECE - n);
            if (got > 0) n += (size_t)got;
        }
        used += n;
        if (got < 0) return damaged(a, used, s->why, s->size);
        if (used > s->most) return too_long(s->why, s->size);
        if (n > 0 && !s->f(s->env, s->buffer, n)) return true;
        if (got == 0) return is_last(a, s->why, s->size);
    }
}

static bool packed_pieces(const sink *s, const char *path, int fd, const packing *p)
{
    bool empty, done;
    tp_blob whole = { 0 };
    if (p->filter == ARCHIVE_FILTER_XZ && !tp__blob_read(&whole, path, 0, s->why, s->size)) {
        tp__blob_free(&whole);
        return false;
    }
    struct archive *a = archive_read_new();
    if (!a) snprintf(s->why, s->size, "out of memory to unpack it");
    done = a && open_packed(a, &whole, fd, p, &empty, s->why, s->size) &&
           (empty || entry_pieces(s, a));
    if (a) archive_read_free(a);
    tp__blob_free(&whole);
    return done;
}

bool tp__load_pieces(const char *path, bool (*f)(void *env, const char *bytes, size_t n), void *env,
                     char *why, size_t size)
{
    uint8_t first[6];
    int64_t bytes;
    const int fd = tp__open_file(path, &bytes, why, size);
    if (fd < 0) return false;
    const tp_blob head = { .bytes = first, .size = tp_read_bytes(fd, 0, first, sizeof first) };
    const packing *p = packing_of(&head), *promised = packing_promised(path);
    const sink s = { f, env, malloc(PIECE), why, size, tp__most_unpacked((size_t)bytes) };
    bool done = false;
    if (!s.buffer)
        snprintf(why, size, "out of memory for a piece of it");
    else if (p)
        done = packed_pieces(&s, path, fd, p);
    else if (promised && head.size)
        snprintf(why, size, "is named %s but is not a %s file", promised->suffix, promised->name);
    else
        done = plain_pieces(&s, fd);
    free(s.buffer);
    close(fd);
    return done;
}

bool tp__blob_text(tp_blob *b, const char *path, size_t most, char **text, size_t *n, char *why,
                   size_t size)
{
    char reason[512];
    uint8_t *ended = NULL;
    const bool loaded = tp__blob_load(b, path, most ? most + 1 : 0, reason, sizeof reason);
    const bool fits = !most || b->size <= most;
    if (loaded && fits) ended = realloc(b->bytes, b->size + 1);
    if (!loaded)
        snprintf(why, size, ": %s", reason);
    else if (!fits)
        snprintf(why, size, ": it has more than %zu bytes", most);
    else if (!ended)
        snprintf(why, size, ": out of memory for %zu bytes", b->size);
    if (!ended) return false;
    b->bytes = ended;
    ended[b->size] = '\0';
    const char *begin = (const char *)ended;
    *n = b->size;
    const bool is_text = tp_skip_bom(&begin, n, reason, sizeof reason);
    if (!is_text) snprintf(why, size, " %s", reason);
    *text = (char *)ended + (begin - (const char *)ended);
    return is_text;
}
