/* zip.c - reads the directory of a ZIP archive with libarchive.
 *
 * libarchive returns an entry's bytes in order, but tensors are read in any order and in part.
 * PyTorch stores entries uncompressed. The file offset of such entries is kept, and libarchive
 * reads only the compressed ones. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tapegrad/file.h>

#include "tensor/file/open.h"
#include "tensor/file/zip.h"

#define DAMAGED "; the file is damaged or cut off: copy or download it again"

enum { MOST_ENTRIES = 1 << 20, NAME = 1024, LOCAL_HEADER = 30 };

static void say(tp_zip *z, struct archive *a)
{
    const char *reason = archive_error_string(a);
    tp__err(&z->err, archive_errno(a) == ENOMEM ? TP_E_MEMORY : TP_E_IO,
            "the ZIP archive cannot be read: %s" DAMAGED, reason ? reason : "no reason is known");
}

/* NULL with z failed. */
static struct archive *begin(tp_zip *z)
{
    struct archive *a = archive_read_new();
    if (!a) {
        tp__err(&z->err, TP_E_MEMORY, "out of memory for the ZIP archive");
        return NULL;
    }
    archive_read_support_format_zip_seekable(a);
    if (lseek(z->fd, 0, SEEK_SET) == 0 && archive_read_open_fd(a, z->fd, 1 << 14) == ARCHIVE_OK)
        return a;
    say(z, a);
    archive_read_free(a);
    return NULL;
}

/* The next regular file. False at the end, or with z failed. */
static bool next(tp_zip *z, struct archive *a, struct archive_entry **e)
{
    for (;;) {
        const int r = archive_read_next_header(a, e);
        if (r == ARCHIVE_EOF) return false;
        if (r != ARCHIVE_OK && r != ARCHIVE_WARN) {
            say(z, a);
            return false;
        }
        if (archive_entry_filetype(*e) == AE_IFREG) return true;
    }
}

static const char *name_of(struct archive_entry *e)
{
    const char *name = archive_entry_pathname_utf8(e);
    return name ? name : archive_entry_pathname(e);
}

static bool is_stored(struct archive *a)
{
    return strstr(archive_format_name(a), "(uncompressed)") != NULL; /* "ZIP 1.0 (uncompressed)" */
}

static bool add(tp_zip *z, const char *name, struct archive *a, struct archive_entry *e)
{
    if (z->n >= MOST_ENTRIES || !tp_reserve(&z->at, &z->room, z->n, 1, sizeof *z->at)) {
        tp__err(&z->err, TP_E_MEMORY, "out of memory for the %zu entries of the ZIP archive",
                z->n + 1);
        return false;
    }
    char *copy = strdup(name);
    if (!copy) {
        tp__err(&z->err, TP_E_MEMORY, "out of memory for the names of the ZIP archive");
        return false;
    }
    /* The number of bytes that libarchive has consumed, without the directory and skipped entries,
     * is the file offset of the entry's data. */
    z->at[z->n] = (tp_zip_entry){ .name = copy,
                                  .order = z->n,
                                  .size = (size_t)archive_entry_size(e),
                                  .from = is_stored(a) ? archive_filter_bytes(a, -1) : -1 };
    z->n++;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tp_zip_entry *)a)->name, ((const tp_zip_entry *)b)->name);
}

/* Checks that names are unique and each stored entry is in the file, after its local header. */
static void check(tp_zip *z)
{
    const off_t end = lseek(z->fd, 0, SEEK_END);
    for (size_t i = 0; i < z->n && z->err.code == TP_OK; i++) {
        const tp_zip_entry *e = &z->at[i];
        if (i > 0 && strcmp(z->at[i - 1].name, e->name) == 0)
            tp__err(&z->err, TP_E_IO, "the ZIP archive has two entries '%.200s'" DAMAGED, e->name);
        if (e->from >= 0 &&
            (e->from < LOCAL_HEADER || e->from > end || (int64_t)e->size > end - e->from))
            tp__err(&z->err, TP_E_IO,
                    "entry '%.200s' of the ZIP archive is not in the file" DAMAGED, e->name);
    }
}

bool tp__zip_open(tp_zip *z, int fd)
{
    struct archive_entry *e;
    *z = (tp_zip){ .fd = fd };
    struct archive *a = begin(z);
    while (a && z->err.code == TP_OK && next(z, a, &e)) {
        const char *name = name_of(e);
        if (!name || strlen(name) >= NAME || archive_entry_size(e) < 0)
            tp__err(&z->err, TP_E_IO, "an entry of the ZIP archive has no name or size" DAMAGED);
        else
            add(z, name, a, e);
    }
    if (a) archive_read_free(a);
    if (z->n) qsort(z->at, z->n, sizeof *z->at, by_name);
    check(z);
    return z->err.code == TP_OK;
}

void tp__zip_free(tp_zip *z)
{
    for (size_t i = 0; i < z->n; i++) free(z->at[i].name);
    free(z->at);
}

tp_zip_entry *tp__zip_find(const tp_zip *z, const char *name)
{
    const tp_zip_entry key = { .name = (char *)name };
    return z->n ? bsearch(&key, z->at, z->n, sizeof key, by_name) : NULL;
}

static int by_order(const void *a, const void *b)
{
    const size_t x = ((const tp_zip_entry *)a)->order, y = ((const tp_zip_entry *)b)->order;
    return (x > y) - (x < y);
}

void tp__zip_in_order(tp_zip *z)
{
    if (z->n) qsort(z->at, z->n, sizeof *z->at, by_order);
}

/* Unpacks exactly the size given in the directory: an entry cannot unpack to more. */
static void unpack(tp_zip *z, struct archive *a, tp_zip_entry *e, FILE *to)
{
    char buffer[1 << 14];
    size_t done = 0;
    la_ssize_t got;
    e->from = ftell(to);
    while ((got = archive_read_data(a, buffer, sizeof buffer)) > 0) {
        done += (size_t)got;
        if (done > e->size || fwrite(buffer, 1, (size_t)got, to) != (size_t)got) break;
    }
    e->unpacked = true;
    if (got < 0)
        say(z, a);
    else if (e->from < 0 || ferror(to))
        tp__err(&z->err, TP_E_IO,
                "entry '%.200s' of the ZIP archive is compressed and cannot be unpacked into a "
                "temporary file (%s); make room in its folder",
                e->name, strerror(errno));
    else if (done != e->size)
        tp__err(&z->err, TP_E_IO,
                "entry '%.200s' of the ZIP archive does not unpack to its %zu bytes" DAMAGED,
                e->name, e->size);
}

bool tp__zip_unpack(tp_zip *z, FILE *to)
{
    struct archive_entry *x;
    struct archive *a = begin(z);
    while (a && z->err.code == TP_OK && next(z, a, &x)) {
        const char *name = name_of(x);
        tp_zip_entry *e = name ? tp__zip_find(z, name) : NULL;
        if (e && e->wanted && e->from < 0) unpack(z, a, e, to);
    }
    if (a) archive_read_free(a);
    if (z->err.code == TP_OK && fflush(to) != 0)
        tp__err(&z->err, TP_E_IO,
                "the temporary file for the ZIP archive cannot be written (%s); make room in "
                "its folder",
                strerror(errno));
    return z->err.code == TP_OK;
}

bool tp__zip_place(tp_file *F, tp_zip *z, int *unpacked)
{
    enum { TIMES = 1100 }; /* deflate shrinks no more */
    bool compressed = false;
    size_t bytes = 0;
    for (size_t i = 0; i < z->n; i++) {
        if (!z->at[i].wanted || z->at[i].from >= 0) continue;
        compressed = true;
        bytes += z->at[i].size < SIZE_MAX / 2 - bytes ? z->at[i].size : 0;
        if (z->at[i].size / TIMES <= F->size && bytes / TIMES <= F->size) continue;
        tp__file_fail(F, TP_E_IO, "unpacks to more than %d times its size: the file is refused",
                      TIMES);
        return false;
    }
    *unpacked = -1;
    if (!compressed) return true;
    FILE *to = tmpfile();
    if (!to) {
        tp__file_fail(F, TP_E_IO,
                      "is compressed, and no temporary file can be made to unpack it; make room in "
                      "the folder of temporary files");
        return false;
    }
    if (!tp__zip_unpack(z, to)) tp__file_fail(F, z->err.code, "%s", z->err.text);
    *unpacked = tp__file_keep(F, dup(fileno(to)));
    fclose(to);
    return tp_file_ok(F);
}
