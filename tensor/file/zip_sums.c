/* zip_sums.c - the CRC-32 of stored entries, which libarchive compares only where it reads the
 * bytes itself.
 *
 *     local headers and entries ... | central directory | its end, as ZIP64 and as before that
 *
 * A record of the directory gives the sum and the place of the local header, behind which the entry
 * begins: by that place it is found among those that libarchive has listed. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tapegrad/file.h>

#include "tensor/file/zip.h"

enum { END = 22, LOCATOR = 20, END64 = 56, CENTRAL = 46, LOCAL = 30, TAIL = END + 65535 };

static uint64_t number(const unsigned char *p, int n)
{
    uint64_t x = 0;
    for (int i = n - 1; i >= 0; i--) x = x << 8 | p[i];
    return x;
}

/* The central directory. */
typedef struct directory {
    uint64_t from, size;
} directory;

/* Does the directory end at `end`? */
static bool lies(directory *d, uint64_t end, uint64_t from, uint64_t size)
{
    *d = (directory){ from, size };
    return from <= end && size == end - from;
}

/* Reads the ZIP64 record in front of the end of the directory, at `end`. */
static bool find64(int fd, uint64_t end, directory *d)
{
    unsigned char b[END64 + LOCATOR];
    if (end < sizeof b) return false;
    const uint64_t at = end - sizeof b;
    return tp_read_bytes(fd, (int64_t)at, b, sizeof b) == sizeof b && number(b, 4) == 0x06064b50 &&
           number(b + END64, 4) == 0x07064b50 && lies(d, at, number(b + 48, 8), number(b + 40, 8));
}

static bool find(int fd, directory *d)
{
    const off_t size = lseek(fd, 0, SEEK_END);
    const size_t n = size < TAIL ? (size_t)(size > 0 ? size : 0) : (size_t)TAIL;
    unsigned char *b = malloc(n + 1);
    bool found = false;
    const bool read = b && tp_read_bytes(fd, (int64_t)size - (int64_t)n, b, n) == n;
    for (size_t at = !read || n < END ? 0 : n - END + 1; at-- > 0 && !found;) {
        const unsigned char *p = b + at;
        if (number(p, 4) != 0x06054b50) continue;
        const uint64_t end = (uint64_t)size - n + at;
        found = find64(fd, end, d) || lies(d, end, number(p + 16, 4), number(p + 12, 4));
    }
    free(b);
    return found;
}

/* ---- its records ---- */

/* The offset of the local header, from the ZIP64 field if it is too large for its own. */
static uint64_t offset_of(const unsigned char *p, const unsigned char *extra, size_t n)
{
    const uint64_t offset = number(p + 42, 4);
    if (offset != UINT32_MAX) return offset;
    for (size_t k; n >= 4; extra += k, n -= k) {
        k = 4 + (size_t)number(extra + 2, 2);
        if (k > n) break;
        const size_t at = 4 + (number(p + 24, 4) == UINT32_MAX ? 8u : 0u) +
                          (number(p + 20, 4) == UINT32_MAX ? 8u : 0u);
        if (number(extra, 2) == 1 && at + 8 <= k) return number(extra + at, 8);
    }
    return offset;
}

static int by_place(const void *a, const void *b)
{
    const int64_t x = (*(tp_zip_entry *const *)a)->from, y = (*(tp_zip_entry *const *)b)->from;
    return (x > y) - (x < y);
}

/* Gives the entry whose local header is at `at` its sum. */
static void note(int fd, uint64_t at, uint32_t sum, tp_zip_entry **entries, size_t n)
{
    unsigned char b[LOCAL];
    tp_zip_entry key, *pkey = &key;
    if (at > INT64_MAX / 2 || tp_read_bytes(fd, (int64_t)at, b, LOCAL) != LOCAL) return;
    key.from = (int64_t)(at + LOCAL + number(b + 26, 2) + number(b + 28, 2));
    tp_zip_entry **e = bsearch(&pkey, entries, n, sizeof *entries, by_place);
    if (!e) return;
    (*e)->sum = sum;
    (*e)->has_sum = true;
}

static void read_records(int fd, const directory *d, tp_zip_entry **entries, size_t n)
{
    unsigned char *b = malloc(d->size + 1);
    const bool read = b && tp_read_bytes(fd, (int64_t)d->from, b, d->size) == d->size;
    size_t left = read ? d->size : 0;
    for (unsigned char *p = b; left >= CENTRAL && number(p, 4) == 0x02014b50;) {
        const size_t name = (size_t)number(p + 28, 2), extra = (size_t)number(p + 30, 2);
        const size_t all = CENTRAL + name + extra + (size_t)number(p + 32, 2);
        if (all > left) break;
        const uint64_t offset = offset_of(p, p + CENTRAL + name, extra);
        if (number(p + 10, 2) == 0) note(fd, offset, (uint32_t)number(p + 16, 4), entries, n);
        p += all;
        left -= all;
    }
    free(b);
}

void tp__zip_sums(tp_zip *z)
{
    directory d;
    tp_zip_entry **entries = malloc((z->n + 1) * sizeof *entries);
    size_t n = 0;
    if (!entries) {
        tp__err(&z->err, TP_E_MEMORY, "out of memory for the sums of the ZIP archive");
        return;
    }
    for (size_t i = 0; i < z->n; i++)
        if (z->at[i].from >= 0 && !z->at[i].unpacked) entries[n++] = &z->at[i];
    qsort(entries, n, sizeof *entries, by_place);
    if (n && find(z->fd, &d)) read_records(z->fd, &d, entries, n);
    free(entries);
}
