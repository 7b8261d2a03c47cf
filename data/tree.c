/* tree.c - visits files by name in a folder or a tar archive.
 *
 * An archive is read once from front to back, and nothing is written anywhere. Sizes in headers are
 * not trusted: memory grows with the bytes that arrive. */
#include "tree.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "files.h"
#include "kit.h"
#include "load.h"

enum { DEEPEST = 8, PIECE = 1 << 16 };
static const size_t largest_xz = (size_t)1 << 32;

bool tp__tail(const char *path, const char *tail)
{
    const size_t n = strlen(path), k = strlen(tail);
    return n >= k && strcmp(path + n - k, tail) == 0 && (n == k || path[n - k - 1] == '/');
}

/* ---- folders ---- */

typedef struct walk {
    const tp_tree *t;
    tp_blob file; /* reused memory */
    size_t root;  /* where names begin in a path */
    struct {      /* the current folder and those above it */
        dev_t device;
        ino_t number;
    } above[DEEPEST + 1];
    size_t most; /* bytes that an archive may unpack to */
    size_t read; /* bytes of files read from it, including holes of sparse ones */
    bool enough;
} walk;

#define fail(w, ...) tp__first_reason((w)->t->why, (w)->t->size, __VA_ARGS__)

static void visit_file(walk *w, const char *path)
{
    char why[256];
    const char *name = path + w->root;
    if (!w->t->wants(w->t->env, name)) return;
    if (w->t->open)
        w->enough = !w->t->open(w->t->env, name, path);
    else if (!tp__blob_read(&w->file, path, w->t->most, why, sizeof why))
        fail(w, "%.700s %s", path, why);
    else
        w->enough = !w->t->take(w->t->env, name, w->file.bytes, w->file.size);
}

/* Notes a folder at its level. False: a link made it lie above itself. */
static bool enter(walk *w, const struct stat *st, int depth)
{
    for (int i = 0; i < depth; i++)
        if (w->above[i].device == st->st_dev && w->above[i].number == st->st_ino) return false;
    w->above[depth].device = st->st_dev;
    w->above[depth].number = st->st_ino;
    return true;
}

/* NOLINTNEXTLINE(misc-no-recursion): DEEPEST levels at most */
static void visit_folder(walk *w, const char *path, const struct stat *folder, int depth)
{
    char full[PATH_MAX];
    char **names;
    if (!enter(w, folder, depth)) return;
    const int n = tp__names(path, NULL, NULL, &names);
    if (n < 0 && errno == ENOMEM)
        fail(w, "%.700s: out of memory for the list of files", path);
    else if (n < 0)
        fail(w, "%.700s: the folder cannot be read (%s)", path, strerror(errno));
    for (int i = 0; i < n && !w->enough && !w->t->why[0]; i++) {
        struct stat st;
        const int k = snprintf(full, sizeof full, "%s/%s", path, names[i]);
        if (k >= (int)sizeof full) continue;
        if (stat(full, &st) != 0) { /* a dangling link is no file of the set */
            if (errno != ENOENT && errno != ELOOP)
                fail(w, "%.700s cannot be read (%s)", full, strerror(errno));
            continue;
        }
        if (S_ISREG(st.st_mode)) visit_file(w, full);
        if (S_ISDIR(st.st_mode) && depth < DEEPEST &&
            (!w->t->enters || w->t->enters(w->t->env, full + w->root)))
            visit_folder(w, full, &st, depth + 1);
    }
    tp__names_free(names, n);
}

/* ---- archives ---- */

/* Has the archive unpacked to no more than its size allows? */
static bool is_short(walk *w, struct archive *a, const char *path)
{
    if ((uint64_t)archive_filter_bytes(a, 0) <= w->most && w->read <= w->most) return true;
    return fail(w,
                "%.400s unpacks to more than %d times its bytes; if that is right, unpack it and "
                "give the folder",
                path, TP_UNPACKED_TIMES);
}

/* Skips the entry. libarchive would do so too, but without limits. */
static void pass(walk *w, struct archive *a, const char *path)
{
    const void *piece;
    size_t n;
    la_int64_t at;
    if (archive_filter_code(a, 0) == ARCHIVE_FILTER_NONE) return;
    while (is_short(w, a, path) && archive_read_data_block(a, &piece, &n, &at) == ARCHIVE_OK) {
    }
}

/* Reads the entry; false if it is too long or damaged, or memory runs out. */
static bool read_entry(walk *w, struct archive *a, const char *path, const char *name)
{
    tp_blob *b = &w->file;
    for (b->size = 0;;) {
        if (!tp_reserve(&b->bytes, &b->room, b->size, PIECE, 1))
            return fail(w, "%.500s: out of memory", path);
        const la_ssize_t got = archive_read_data(a, b->bytes + b->size, b->room - b->size);
        if (got == 0) return true;
        if (got < 0)
            return fail(w, "%.400s: %.400s is damaged or cut off (%.100s)", path, name,
                        archive_error_string(a));
        b->size += (size_t)got;
        w->read += (size_t)got;
        if (!is_short(w, a, path)) return false;
        if (b->size > w->t->most)
            return fail(w, "%.400s: %.400s has more than the %zu bytes allowed", path, name,
                        w->t->most);
    }
}

static void visit_entries(walk *w, struct archive *a, const char *path)
{
    struct archive_entry *e;
    int r = ARCHIVE_OK;
    while (!w->enough && !w->t->why[0] && (r = archive_read_next_header(a, &e)) != ARCHIVE_EOF) {
        if (r < ARCHIVE_WARN) {
            fail(w, "%.500s is damaged, cut off, or neither a folder nor a tar file (%.100s)", path,
                 archive_error_string(a));
            return;
        }
        const char *name = archive_entry_pathname(e);
        while (name && name[0] == '.' && name[1] == '/') name += 2;
        if (!name || archive_entry_filetype(e) != AE_IFREG || tp__companion(name) ||
            !w->t->wants(w->t->env, name)) {
            pass(w, a, path);
            continue;
        }
        if (read_entry(w, a, path, name))
            w->enough = !w->t->take(w->t->env, name, w->file.bytes, w->file.size);
    }
}

/* Opens a file for libarchive to read piece by piece; reads an .xz file whole, to check its
 * dictionaries before liblzma allocates them. */
static int open_archive(walk *w, struct archive *a, int fd, const char *path, tp_blob *whole)
{
    static const uint8_t xz[] = { 0xfd, '7', 'z', 'X', 'Z', 0 };
    uint8_t first[sizeof xz];
    char why[256];
    archive_read_support_filter_gzip(a);
    archive_read_support_filter_bzip2(a);
    archive_read_support_filter_zstd(a);
    archive_read_support_format_tar(a);
    if (tp_read_bytes(fd, 0, first, sizeof first) < sizeof first ||
        memcmp(first, xz, sizeof xz) != 0)
        return archive_read_open_fd(a, fd, 1 << 16);
    archive_read_support_filter_xz(a);
    if (!tp__blob_read(whole, path, largest_xz, why, sizeof why))
        fail(w, "%.500s %s", path, why);
    else if (tp__immodest_xz(whole->bytes, whole->size))
        fail(w,
             "%.500s needs a dictionary of more than 256 MiB; compress it again with "
             "xz -9",
             path);
    return w->t->why[0] ? ARCHIVE_OK : archive_read_open_memory(a, whole->bytes, whole->size);
}

static void visit_archive(walk *w, const char *path)
{
    int64_t bytes;
    char why[256];
    tp_blob whole = { 0 };
    const int fd = tp__open_file(path, &bytes, why, sizeof why);
    struct archive *a = fd < 0 ? NULL : archive_read_new();
    w->most = tp__most_unpacked((size_t)bytes);
    if (fd < 0)
        fail(w, "%.700s %s", path, why);
    else if (!a)
        fail(w, "%.700s: out of memory", path);
    else if (open_archive(w, a, fd, path, &whole) != ARCHIVE_OK)
        fail(w, "%.500s is neither a folder nor a tar file (%.100s)", path,
             archive_error_string(a));
    else
        visit_entries(w, a, path);
    if (a) archive_read_free(a);
    if (fd >= 0) close(fd);
    tp__blob_free(&whole);
}

bool tp__tree_visit(const char *path, const tp_tree *t)
{
    struct stat st;
    walk w = { .t = t, .root = strlen(path) + 1 };
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        visit_folder(&w, path, &st, 0);
    else
        visit_archive(&w, path);
    tp__blob_free(&w.file);
    return !t->why[0];
}
