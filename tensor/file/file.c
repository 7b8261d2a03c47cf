/* file.c - an open file of tensors in any format: opening, closing, its list of tensors, its error.
 *
 * The file stays open and its data are read on demand. A writer that renames a new file over the
 * path (as ours does) leaves the open file intact; reading fails if the file was truncated
 * meanwhile. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/file/open.h"
#include "tensor/file/zip.h"

static tp_file no_file = {
    .err = { TP_E_STATE, "file: NULL was given in place of a file; open one with tp_file_open",
             NULL },
};

tp_file *tp__file_some(const tp_file *F)
{
    return F ? (tp_file *)(uintptr_t)F : &no_file;
}

void tp__file_fail(tp_file *F, tp_code code, const char *fmt, ...)
{
    if (F->err.code != TP_OK) return;
    char text[TP_TEXT], path[1000], plain[TP_TEXT]; /* names in files are untrusted */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tp__err(&F->err, code, "%s: %s", tp_plain(F->path, path, sizeof path),
            tp_plain(text, plain, sizeof plain));
}

#define bad(F, ...) tp__file_fail(F, TP_E_IO, __VA_ARGS__)

/* ---- the list of tensors ---- */

static bool grow(tp_file *F)
{
    if (F->n < INT_MAX / 2 && tp_reserve(&F->at, &F->room, (size_t)F->n, 1, sizeof *F->at))
        return true;
    tp__file_fail(F, TP_E_MEMORY, "out of memory for the list of %d tensors", F->n + 1);
    return false;
}

/* Whether the elements are in row-major order. Axes of size 1 may have any stride. */
static bool is_row_major(const tp_shape *s, const int64_t *stride)
{
    int64_t step = 1;
    for (int i = s->ndim - 1; i >= 0; i--) {
        if (s->dim[i] != 1 && stride[i] != step) return false;
        step *= s->dim[i];
    }
    return true;
}

static void no_memory(tp_file *F)
{
    tp__file_fail(F, TP_E_MEMORY, "out of memory for the names of tensors");
}

tp_file_slot *tp__file_append(tp_file *F, const char *name, bool copy)
{
    if (!tp_file_ok(F) || !grow(F)) return NULL;
    tp_file_slot *t = &F->at[F->n];
    *t = (tp_file_slot){ .tensor = { .name = name, .stored = "?" }, .fd = F->fd };
    if (copy) t->tensor.name = t->name = strdup(name);
    if (!t->tensor.name) {
        no_memory(F);
        return NULL;
    }
    F->n++;
    return t;
}

void tp__file_place(tp_file *F, tp_file_slot *t, const tp_stored *s, const tp_shape *shape,
                    const int64_t *stride, int fd, size_t from)
{
    tp_file_tensor *is = &t->tensor;
    is->stored = s->name;
    is->shape = *shape;
    is->offset = t->from = from;
    t->fd = fd;
    if (!tp__numel(shape, &is->numel) || !tp__size_mul((size_t)is->numel, s->size, &is->bytes)) {
        tp__file_spoil(F, t, TP_E_IO, "has more elements than can be counted" TP_FILE_AGAIN);
        return;
    }
    t->scattered = is->numel > 0 && !is_row_major(shape, stride);
    memcpy(t->stride, stride, (size_t)shape->ndim * sizeof *stride);
}

void tp__file_count(tp_file *F, const tp_file_slot *t, const char *how)
{
    enum { TIMES = 256 };
    F->counted += t->tensor.bytes;
    if (F->counted / TIMES > F->size)
        bad(F, "has tensors of more than %d times its own bytes, %s", TIMES, how);
}

void tp__file_spoil(tp_file *F, tp_file_slot *t, tp_code code, const char *fmt, ...)
{
    char text[TP_TEXT], plain[TP_TEXT];
    va_list ap;
    if (t->tensor.code != TP_OK) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    t->why = strdup(tp_plain(text, plain, sizeof plain));
    if (!t->why) no_memory(F);
    t->tensor.code = code;
    t->tensor.why = t->why;
    t->tensor.numel = 0;
}

void tp__file_stored(tp_file *F, tp_file_slot *t, const char *name)
{
    char plain[64];
    t->stored = strdup(tp_plain(name, plain, sizeof plain));
    if (!t->stored) no_memory(F);
    if (t->stored) t->tensor.stored = t->stored;
}

bool tp__file_readable(tp_file *F, const tp_file_tensor *t)
{
    if (t->code != TP_OK) tp__file_fail(F, t->code, "tensor '%.200s' %s", t->name, t->why);
    return tp_file_ok(F);
}

void tp__file_drop(tp_file_slot *t)
{
    free(t->bytes);
    free(t->name);
    free(t->kept);
    free(t->stored);
    free(t->why);
}

static int by_name(const void *a, const void *b)
{
    const tp_file_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static void fail_twice(tp_file *F, const tp_file_tensor *a, const tp_file_tensor *b)
{
    const tp_file_slot *s = (const tp_file_slot *)a, *t = (const tp_file_slot *)b;
    if (s->first || t->first)
        bad(F,
            "has two tensors '%.200s': so '%.200s' and '%.200s' are called without prefixes, "
            "wrappers and the spellings of other programs; save one of them in a separate file",
            a->name, s->first ? s->first : a->name, t->first ? t->first : b->name);
    else
        bad(F, "has two tensors '%.200s'" TP_FILE_AGAIN, a->name);
}

void tp__file_index(tp_file *F)
{
    const tp_file_tensor **index = realloc(F->by_name, ((size_t)F->n + 1) * sizeof *index);
    if (!index) {
        tp__file_fail(F, TP_E_MEMORY, "out of memory for the index of %d tensors", F->n);
        return;
    }
    F->by_name = index;
    for (int i = 0; i < F->n; i++) F->by_name[i] = &F->at[i].tensor;
    qsort(F->by_name, (size_t)F->n, sizeof *F->by_name, by_name);
    for (int i = 1; i < F->n; i++)
        if (strcmp(F->by_name[i - 1]->name, F->by_name[i]->name) == 0)
            fail_twice(F, F->by_name[i - 1], F->by_name[i]);
}

int tp__file_keep(tp_file *F, int fd)
{
    if (fd < 0)
        bad(F, "cannot keep a temporary file open (%s)", strerror(errno));
    else
        F->unpacked[F->nunpacked++] = fd;
    return fd;
}

/* Renames a tensor to a copy of `name`, which may be a part of the old name. */
static void set_name(tp_file *F, tp_file_slot *s, const char *name)
{
    if (name == s->tensor.name) return;
    char *copy = strdup(name);
    if (!copy) {
        no_memory(F);
        return;
    }
    if (s->first) {
        free(s->name);
    } else {
        s->first = s->tensor.name;
        s->kept = s->name;
    }
    s->tensor.name = s->name = copy;
}

/* Whether F has failed, as it does if NULL was given in place of `what`. */
static bool lacks(tp_file *F, bool given, const char *what)
{
    if (!given) tp__file_fail(F, TP_E_VALUE, "NULL was given in place of %s", what);
    return !tp_file_ok(F);
}

bool tp_file_rename(tp_file *F, const char *(*rename)(const tp_file_tensor *t, void *env),
                    void *env)
{
    int n = 0;
    F = tp__file_some(F);
    if (lacks(F, rename, "a function that renames")) return false;
    for (int i = 0; i < F->n; i++) {
        tp_file_slot *s = &F->at[i];
        const char *name = rename(&s->tensor, env);
        if (name) {
            set_name(F, s, name);
            F->at[n++] = *s;
        } else {
            tp__file_drop(s);
        }
    }
    F->n = n;
    tp__file_index(F);
    return tp_file_ok(F);
}

static const char *without(const tp_file_tensor *t, void *prefix)
{
    const size_t length = strlen(prefix);
    return strncmp(t->name, prefix, length) == 0 && t->name[length] ? t->name + length : NULL;
}

bool tp_file_enter(tp_file *F, const char *prefix)
{
    F = tp__file_some(F);
    if (lacks(F, prefix, "a prefix") || !tp_file_rename(F, without, (void *)(uintptr_t)prefix))
        return false;
    if (F->n == 0) bad(F, "has no tensor whose name begins with '%.200s'", prefix);
    return F->n > 0;
}

/* The bytes in the file from the first row of a tensor to row `row`; at: where its elements are. */
static size_t to_row(const tp_file_slot *at, int64_t row, size_t row_bytes)
{
    if (!at->scattered) return (size_t)row * row_bytes;
    return (size_t)(row * at->stride[0]) * tp__stored(at->tensor.stored)->size;
}

/* The slot that knows where a tensor's elements are: in a shard or its own. */
static const tp_file_slot *place_of(const tp_file_slot *s)
{
    return s->shard ? (const tp_file_slot *)s->there : s;
}

/* Keeps the rows of one process. In a shard, `from` is the whole tensor's and `before` skips. */
static void take_rows(tp_file *F, tp_file_slot *s, tp_share share)
{
    tp_file_tensor *t = &s->tensor;
    const int64_t ranks = share.ranks;
    if (t->code != TP_OK) return;
    if (t->shape.ndim == 0 || t->shape.dim[0] % ranks != 0) {
        bad(F,
            "the %lld rows of tensor '%.200s' cannot be divided evenly among %d processes; start "
            "as many as divide them",
            (long long)(t->shape.ndim ? t->shape.dim[0] : 1), t->name, share.ranks);
        return;
    }
    const size_t bytes = t->bytes / (size_t)ranks, skipped = bytes * (size_t)share.rank;
    const int64_t rows = t->shape.dim[0] /= ranks;
    const size_t moved = rows ? to_row(place_of(s), rows * share.rank, bytes / (size_t)rows) : 0;
    t->numel /= ranks;
    s->before += skipped;
    s->after += t->bytes - skipped - bytes;
    t->bytes = bytes;
    t->offset += moved;
    s->from += moved;
    free(s->bytes);
    s->bytes = NULL;
}

bool tp_file_share(tp_file *F, const char *prefix, tp_share share)
{
    F = tp__file_some(F);
    if (lacks(F, prefix, "a prefix") || share.ranks <= 1) return tp_file_ok(F);
    if (share.rank < 0 || share.rank >= share.ranks)
        tp__file_fail(F, TP_E_VALUE, "there is no part %d of %d", share.rank, share.ranks);
    for (int i = 0; tp_file_ok(F) && i < F->n; i++)
        if (strncmp(F->at[i].tensor.name, prefix, strlen(prefix)) == 0)
            take_rows(F, &F->at[i], share);
    return tp_file_ok(F);
}

/* ---- parts ---- */

/* Adds a part of the tensor at s, whose elements may be in a shard. */
static void add_part(tp_file *F, const tp_file_slot *s, const tp_file_part *p)
{
    const tp_file_slot *at = place_of(s);
    const size_t size = tp__stored(s->tensor.stored)->size;
    tp_shape shape = s->tensor.shape;
    int64_t stride[TP_MAX_DIMS], step = 1;
    for (int i = shape.ndim - 1; i >= 0; step *= shape.dim[i--])
        stride[i] = at->scattered ? at->stride[i] : step;
    if (p->transposed)
        for (int i = 0; i < 2; i++) {
            shape.dim[i] = s->tensor.shape.dim[1 - i];
            stride[i] = at->scattered ? at->stride[1 - i] : i == 0 ? 1 : shape.dim[0];
        }
    if (p->first < 0 || p->rows < 0 || p->rows > shape.dim[0] - p->first) {
        tp__file_fail(F, TP_E_SHAPE,
                      "tensor '%.200s' has %lld %s; %lld of them from number %lld on do not exist",
                      s->tensor.name, (long long)shape.dim[0], p->transposed ? "columns" : "rows",
                      (long long)p->rows, (long long)p->first);
        return;
    }
    shape.dim[0] = p->rows;
    tp_file_slot *part = tp__file_append(F, p->name, true);
    if (!part) return;
    const size_t skipped = (size_t)(p->first * stride[0]) * size;
    tp__file_place(F, part, tp__stored(s->tensor.stored), &shape, stride, at->fd,
                   (s->shard ? at->from : 0) + s->from + skipped);
    part->tensor.offset = s->tensor.offset + skipped;
    part->swapped = at->swapped;
    part->is_checked = true;
}

/* Can the tensor be divided? Else F fails. */
static bool may_split(tp_file *F, const tp_file_tensor *t, const char *name,
                      const tp_file_part *parts, int n)
{
    if (!t) {
        tp__file_fail(F, TP_E_VALUE, "has no tensor '%.200s' to be divided",
                      name ? name : "(NULL)");
        return false;
    }
    if (n <= 0 || !parts)
        tp__file_fail(F, TP_E_VALUE, "tensor '%.200s' cannot be divided into %d parts%s", t->name,
                      n, n > 0 ? ": their list is NULL" : "; give at least one");
    for (int i = 0; tp_file_ok(F) && i < n; i++)
        if (!parts[i].name)
            tp__file_fail(F, TP_E_VALUE, "part %d of tensor '%.200s' has no name", i, t->name);
    if (!tp__file_readable(F, t) || !tp__file_check(F, t)) return false;
    for (int i = 0; i < n; i++)
        if (t->shape.ndim < 1 || !tp__stored(t->stored) ||
            (parts[i].transposed && t->shape.ndim != 2))
            tp__file_fail(F, TP_E_SHAPE, "tensor '%.200s' has %d axes and cannot be %s", t->name,
                          t->shape.ndim, parts[i].transposed ? "transposed" : "divided");
    return tp_file_ok(F);
}

bool tp_file_split(tp_file *F, const char *name, const tp_file_part *parts, int n)
{
    F = tp__file_some(F);
    if (!tp_file_ok(F)) return false;
    const tp_file_tensor *t = tp_file_find(F, name);
    if (!may_split(F, t, name, parts, n)) return false;
    const int place = (int)((const tp_file_slot *)t - F->at);
    tp_file_slot whole = F->at[place]; /* adding moves the list */
    for (int i = 0; i < n; i++) add_part(F, &whole, &parts[i]);
    memmove(&F->at[place], &F->at[place + 1], (size_t)(F->n - place - 1) * sizeof *F->at);
    F->n--;
    tp__file_drop(&whole);
    tp__file_index(F);
    return tp_file_ok(F);
}

/* ---- state and lookup ---- */

bool tp_file_ok(const tp_file *F)
{
    return tp__file_some(F)->err.code == TP_OK;
}
const char *tp_file_why(const tp_file *F)
{
    return tp__file_some(F)->err.text;
}
const char *tp_file_path(const tp_file *F)
{
    return F && F->path ? F->path : "";
}
int tp_file_count(const tp_file *F)
{
    return tp__file_some(F)->n;
}

const tp_file_tensor *tp_file_at(const tp_file *F, int i)
{
    return i >= 0 && i < tp__file_some(F)->n ? &F->at[i].tensor : NULL;
}

const tp_file_tensor *tp_file_find(const tp_file *F, const char *name)
{
    if (!name || tp__file_some(F)->n == 0) return NULL;
    const tp_file_tensor wanted = { .name = name }, *key = &wanted;
    const tp_file_tensor **found = bsearch(&key, F->by_name, (size_t)F->n, sizeof key, by_name);
    return found ? *found : NULL;
}

/* ---- opening and closing ---- */

static tp_file starved = {
    .err = { TP_E_MEMORY, "file: out of memory for the file object itself", NULL },
};

static void open_file(tp_file *F)
{
    const char *kind;
    int64_t bytes;
    F->fd = tp_open_regular(F->path, &bytes, &kind);
    F->size = (size_t)bytes;
    if (F->fd < 0 && kind)
        bad(F, "is %s; give the path of a file with weights", kind);
    else if (F->fd < 0)
        bad(F, "cannot be opened (%s); check the path and its permissions", strerror(errno));
    else if (bytes < 8)
        bad(F, "has %lld bytes, too few for the 8 of the header length" TP_FILE_AGAIN,
            (long long)bytes);
}

/* With or without a byte order mark; the reader reports an index in UTF-16 as such. */
static bool begins_json(const unsigned char *first)
{
    const bool wide = memcmp(first, "\xff\xfe", 2) == 0 || memcmp(first, "\xfe\xff", 2) == 0;
    return first[0] == '{' || wide || memcmp(first, "\xef\xbb\xbf{", 4) == 0 ||
           memcmp(first, "\0{\0", 3) == 0;
}

/* NumPy's archive of no arrays, which libarchive does not recognise: the end of a directory. */
static bool is_empty_archive(tp_file *F)
{
    static const char end[22] = "PK\5\6";
    char bytes[sizeof end];
    return F->size == sizeof end && tp__file_at(F, 0, bytes, sizeof end) &&
           memcmp(bytes, end, sizeof end) == 0;
}

static void read_archive(tp_file *F)
{
    tp_zip z;
    if (is_empty_archive(F) || !tp_file_ok(F)) return;
    if (!tp__zip_open(&z, F->fd))
        tp__file_fail(F, z.err.code, "%s", z.err.text);
    else if (tp__file_is_npz(&z))
        tp__file_npz(F, &z);
    else
        tp__file_torch_zip(F, &z);
    tp__zip_free(&z);
}

/* Detects the format from the first bytes. An unknown format is read as safetensors, whose reader
 * reports what is wrong. */
static void read_format(tp_file *F, bool may_index)
{
    unsigned char first[9] = { 0 };
    uint64_t header;
    if (!tp__file_at(F, 0, first, F->size < 9 ? 8 : 9)) return;
    memcpy(&header, first, sizeof header);
    const bool other = first[8] != '{' || header > F->size - 8;
    if (other && (memcmp(first, "PK\3\4", 4) == 0 || memcmp(first, "PK\5\6", 4) == 0))
        read_archive(F);
    else if (memcmp(first, "\x93NUMPY", 6) == 0)
        tp__file_npy(F);
    else if (other && first[0] == 0x80 && first[1] >= 2 && first[1] <= 5)
        tp__file_torch_legacy(F);
    else if (other && may_index && begins_json(first))
        tp__file_shards(F);
    else
        tp__file_header(F);
}

tp_file *tp__file_open(const char *path, bool may_index)
{
    tp_file *F = calloc(1, sizeof *F);
    char *copy = F ? strdup(path && *path ? path : "file") : NULL;
    if (!copy) {
        free(F);
        return &starved;
    }
    F->path = copy;
    F->fd = -1;
    if (path && *path)
        open_file(F);
    else
        bad(F, "%s was given in place of a path", path ? "an empty text" : "NULL");
    if (tp_file_ok(F)) read_format(F, may_index);
    if (tp_file_ok(F)) tp__file_index(F);
    if (!tp_file_ok(F)) { /* its content must not be used */
        for (int i = 0; i < F->n; i++) tp__file_drop(&F->at[i]);
        F->n = 0;
        F->meta = NULL;
    }
    return F;
}

tp_file *tp_file_open(const char *path)
{
    return tp__file_open(path, true);
}

void tp_file_close(tp_file *F)
{
    if (!F || F == &starved) return;
    for (int i = 0; i < F->n; i++) tp__file_drop(&F->at[i]);
    for (int i = 0; i < F->nshards; i++) tp_file_close(F->shards[i]);
    for (int i = 0; i < F->nunpacked; i++) close(F->unpacked[i]);
    if (F->fd >= 0) close(F->fd);
    json_decref(F->root);
    free(F->at);
    free(F->by_name);
    free(F->shards);
    tp__sum_free(F->sum);
    for (tp_entry_sum *e = F->entries, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    free(F->path);
    free(F);
}
