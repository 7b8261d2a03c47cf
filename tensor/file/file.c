/* file.c - an open safetensors file: its bytes, its list of tensors, their checksums.
 *
 * The file stays open and its data are read on demand. A writer that renames a new file over the
 * path (as ours does) leaves the open one whole; reading fails if the file was cut off meanwhile.
 *
 * Checksums (checksum.h) are compared before anything is given out: the header's when the file is
 * opened, a tensor's when the first of its bytes are wanted. A file may have none. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/file/open.h"

#define AGAIN TP_FILE_AGAIN
#define GOOD  "; copy or download the file again, or take the last good checkpoint"

static tp_file no_memory = {
    .err = { TP_E_MEMORY, "file: out of memory for the file object itself", NULL },
};

void tp__file_fail(tp_file *F, tp_code code, const char *fmt, ...)
{
    if (F->err.code != TP_OK) return;
    char text[TP_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tp__err(&F->err, code, "%.1000s: %s", F->path, text);
}

#define bad(F, ...) tp__file_fail(F, TP_E_IO, __VA_ARGS__)

/* ---- the file as bytes ---- */

static void open_file(tp_file *F)
{
    const char *kind;
    int64_t bytes;
    F->fd = tp_file_regular(F->path, &bytes, &kind);
    F->size = (size_t)bytes;
    if (F->fd < 0 && kind)
        bad(F, "is %s; give the path of a safetensors file", kind);
    else if (F->fd < 0)
        bad(F, "cannot be opened (%s); check the path and its permissions", strerror(errno));
    else if (bytes < 8)
        bad(F, "has %lld bytes, too few for the 8 of the header length" AGAIN, (long long)bytes);
}

bool tp__file_at(tp_file *F, size_t from, void *to, size_t n)
{
    const size_t got = tp_file_bytes(F->fd, (int64_t)from, to, n);
    if (got == n) return true;
    if (errno)
        bad(F, "cannot be read at offset %zu (%s)", from + got, strerror(errno));
    else
        bad(F, "became shorter since it was opened: it ends at offset %zu of %zu" AGAIN, from + got,
            F->size);
    return false;
}

/* ---- the list of tensors ---- */

bool tp__file_reserve(tp_file *F, size_t n)
{
    F->at = calloc(n + 1, sizeof *F->at);
    F->by_name = calloc(n + 1, sizeof *F->by_name);
    F->bytes = calloc(n + 1, sizeof *F->bytes);
    if (F->at && F->by_name && F->bytes) return true;
    tp__file_fail(F, TP_E_MEMORY, "out of memory for the list of %zu tensors", n);
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tp_file_entry *)a)->name, ((const tp_file_entry *)b)->name);
}

void tp__file_index(tp_file *F)
{
    for (int i = 0; i < F->n; i++) F->by_name[i] = (tp_file_entry){ F->at[i].name, &F->at[i] };
    qsort(F->by_name, (size_t)F->n, sizeof *F->by_name, by_name);
}

/* ---- public ---- */

tp_file *tp_file_open(const char *path)
{
    tp_file *F = calloc(1, sizeof *F);
    char *copy = F ? strdup(path ? path : "") : NULL;
    if (!copy) {
        free(F);
        return &no_memory;
    }
    F->path = copy;
    open_file(F);
    if (tp_file_ok(F)) tp__file_header(F);
    if (!tp_file_ok(F)) { /* nothing of it may be used */
        F->n = 0;
        F->meta = NULL;
    }
    return F;
}

void tp_file_close(tp_file *F)
{
    if (!F || F == &no_memory) return;
    for (int i = 0; F->bytes && i < F->n; i++) free(F->bytes[i]);
    if (F->fd >= 0) close(F->fd);
    json_decref(F->root);
    free(F->at);
    free(F->by_name);
    free(F->bytes);
    free(F->sums);
    free(F->sound);
    tp__sum_free(F->sum);
    free(F->path);
    free(F);
}

bool tp_file_ok(const tp_file *F)
{
    return F->err.code == TP_OK;
}
const char *tp_file_why(const tp_file *F)
{
    return F->err.text;
}
const char *tp_file_path(const tp_file *F)
{
    return F->path ? F->path : "";
}
int tp_file_count(const tp_file *F)
{
    return F->n;
}

const tp_file_tensor *tp_file_at(const tp_file *F, int i)
{
    return i >= 0 && i < F->n ? &F->at[i] : NULL;
}

const tp_file_tensor *tp_file_find(const tp_file *F, const char *name)
{
    if (F->n == 0) return NULL;
    const tp_file_entry key = { name, NULL };
    const tp_file_entry *found = bsearch(&key, F->by_name, (size_t)F->n, sizeof key, by_name);
    return found ? found->tensor : NULL;
}

/* Reads all of a tensor and compares its checksum. Without a place for the bytes they go to a
 * buffer, piece by piece. Pieces are small: what is read is still in the cache when it is summed. */
static bool read_checked(tp_file *F, const tp_file_tensor *t, void *to)
{
    enum { PIECE = 1 << 16 };
    char buffer[PIECE];
    const ptrdiff_t i = t - F->at;
    tp__sum_begin(F->sum);
    for (size_t at = 0; at < t->bytes; at += PIECE) {
        const size_t n = t->bytes - at < PIECE ? t->bytes - at : PIECE;
        char *p = to ? (char *)to + at : buffer;
        if (!tp__file_at(F, F->data_from + t->offset + at, p, n)) return false;
        tp__sum_add(F->sum, p, n);
    }
    const uint64_t is = tp__sum_end(F->sum);
    F->sound[i] = is == F->sums[i];
    if (!F->sound[i])
        bad(F, "tensor '%.200s' is damaged: its checksum is %016llx, the file says %016llx" GOOD,
            t->name, (unsigned long long)is, (unsigned long long)F->sums[i]);
    return F->sound[i];
}

static bool unchecked(const tp_file *F, const tp_file_tensor *t)
{
    return F->sums && !F->sound[t - F->at];
}

bool tp__file_bytes(tp_file *F, const tp_file_tensor *t, size_t first, size_t n, void *to)
{
    if (!tp_file_ok(F)) return false;
    if (unchecked(F, t)) {
        if (n == t->bytes) return read_checked(F, t, to);
        if (!read_checked(F, t, NULL)) return false;
    }
    return tp__file_at(F, F->data_from + t->offset + first, to, n);
}

bool tp_file_has_checksums(const tp_file *F)
{
    return F->sums != NULL;
}

bool tp_file_verify(tp_file *F)
{
    for (int i = 0; i < F->n && tp_file_ok(F); i++)
        if (unchecked(F, &F->at[i])) read_checked(F, &F->at[i], NULL);
    return tp_file_ok(F);
}

const void *tp_file_data(tp_file *F, const tp_file_tensor *t)
{
    void **kept = &F->bytes[t - F->at];
    if (*kept || !tp_file_ok(F)) return *kept;
    void *bytes = malloc(t->bytes + (t->bytes == 0));
    if (!bytes)
        tp__file_fail(F, TP_E_MEMORY, "out of memory for the %zu bytes of tensor '%.200s'",
                      t->bytes, t->name);
    else if (tp__file_bytes(F, t, 0, t->bytes, bytes))
        return *kept = bytes;
    free(bytes);
    return NULL;
}
