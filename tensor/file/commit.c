/* commit.c - writes the file of a writer, for one process or for several together.
 *
 * Data go to the file in its order, from the caller's memory, through one bounded buffer where they
 * lie on a device or in another process. The header, which holds their checksums, is written last.
 * All processes walk the same list of pieces: rank 0 writes them, their owners send them. Whoever
 * fails walks on to the end, so that none waits for it; an agreement follows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>
#include <unistd.h>

#include "tensor/backend.h"
#include "tensor/file/checksum.h"
#include "tensor/file/npy.h"
#include "tensor/file/npy_write.h"
#include "tensor/file/writer.h"

#define CHUNK ((size_t)1 << 20)

typedef struct commit {
    tp_writer *writer;
    const tp_join *join;
    char *frame; /* the length and the JSON text, padded */
    size_t length;
    void *buffer;
    tp_sum *sum;
    /* The next piece: its tensor, stretch, and bytes before it in each of the two. */
    int item, stretch;
    size_t at, in;
    tp_npy_file *npy;     /* takes the place of frame and sum */
    bool asked, supplied; /* whether all could supply their data, and the answer */
} commit;

/* ---- agreement ---- */

static bool any(const commit *c, bool here)
{
    return c->join->ranks > 1 ? c->join->any(c->join->env, here) : here;
}

/* Has no process failed? Otherwise all fail alike. */
static bool all_fine(commit *c)
{
    tp_writer *W = c->writer;
    if (!any(c, !tp_writer_ok(W))) return true;
    tp__writer_failf(W, TP_E_STATE, "another process of this run failed");
    return false;
}

/* The same after all data were supplied. */
static bool all_supplied(commit *c)
{
    c->asked = true;
    return c->supplied = all_fine(c);
}

static bool move(commit *c, int owner, void *data, size_t n)
{
    const tp_join *j = c->join;
    if (j->move(j->env, owner, data, n)) return true;
    tp__writer_failf(c->writer, TP_E_IO, "a message between processes %d and 0 failed", owner);
    return false;
}

/* ---- pieces ---- */

typedef struct piece {
    const tp_item *item;
    const tp_owned *from;
    const char *data; /* where this process is the owner */
    size_t at, n;     /* bytes before it in the tensor, and its own */
} piece;

/* The next piece of tensor c->item. False, and goes on to the next tensor: there is none. */
static bool next_piece(commit *c, piece *p)
{
    const tp_item *t = &c->writer->items[c->item];
    const tp_owned *list = t->parts ? t->parts : &t->whole;
    const int n = t->parts ? t->n : 1;
    while (c->stretch < n && c->in == list[c->stretch].bytes) {
        c->stretch++;
        c->in = 0;
    }
    if (c->stretch == n) {
        c->item++;
        c->stretch = 0;
        c->at = 0;
        return false;
    }
    const tp_owned *from = &list[c->stretch];
    const size_t left = from->bytes - c->in;
    *p = (piece){ t, from, NULL, c->at, left < CHUNK ? left : CHUNK };
    if (from->owner == c->join->rank) p->data = (const char *)from->data + c->in;
    c->in += p->n;
    c->at += p->n;
    return true;
}

/* The bytes of a piece of this process. NULL, with the writer failed: they cannot be read. */
static const void *own_bytes(const commit *c, const piece *p)
{
    tp_device *D = p->from->dev;
    if (!D) return p->data;
    if (tp__device_read(D, c->buffer, p->data, p->n)) return c->buffer;
    tp__writer_failf(c->writer, D->err.code, "tensor '%.200s': %s; the former file is untouched",
                     p->item->name, D->err.text);
    return NULL;
}

/* Sends a piece of this process, even if it could not be read, and receives one that rank 0 no
 * longer needs. False: no more messages arrive. */
static bool pass_piece(commit *c, const piece *p)
{
    const int owner = p->from->owner;
    if (c->join->rank == 0) return owner == 0 || move(c, owner, c->buffer, p->n);
    if (owner != c->join->rank) return true;
    const void *bytes = own_bytes(c, p);
    return move(c, owner, bytes ? (void *)(uintptr_t)bytes : c->buffer, p->n);
}

/* What rank 0 does after an error, and the others always do. */
static void pass_rest(commit *c)
{
    piece p;
    bool arriving = true;
    while (arriving && c->item < c->writer->n)
        if (next_piece(c, &p)) arriving = pass_piece(c, &p);
}

/* ---- the file ---- */

/* Builds the header, whose checksums are filled in later; frees the text. */
static void frame(commit *c, char *text)
{
    const size_t length = text ? strlen(text) : 0;
    const uint64_t padded = (length + 7) / 8 * 8;
    c->length = sizeof padded + (size_t)padded;
    c->frame = text ? malloc(c->length) : NULL;
    if (c->frame) {
        memcpy(c->frame, &padded, sizeof padded);
        memcpy(c->frame + 8, text, length);
        memset(c->frame + 8 + length, ' ', (size_t)padded - length);
    }
    free(text);
}

/* Fails the writer if a piece, whose bytes are data, has a value that it refuses. */
static bool accept(tp_writer *W, const piece *p, const void *data)
{
    const size_t size = tp_dtype_size(p->item->view.dtype);
    const tp_view part = { .dtype = p->item->view.dtype,
                           .data = (void *)(uintptr_t)data,
                           .numel = (int64_t)(p->n / size) };
    if (!(W->finite || W->no_nan) || !tp_is_float(part.dtype)) return true;
    for (int64_t i = 0; i < part.numel; i++) {
        const double x = tp_ld(&part, i);
        if (isfinite(x) || (isinf(x) && !W->finite)) continue;
        tp__writer_failf(W, TP_E_NONFINITE,
                         "element %lld of tensor '%.200s' is %s; the former file is untouched",
                         (long long)(p->at / size) + (long long)i, p->item->name,
                         isnan(x) ? "NaN" : "infinite");
        return false;
    }
    return true;
}

/* Writes pieces that are still in the cache after they are summed. */
static bool put_piece(commit *c, int fd, const piece *p)
{
    const void *data = c->buffer;
    if (p->from->owner == 0)
        data = own_bytes(c, p);
    else if (!move(c, p->from->owner, c->buffer, p->n))
        data = NULL;
    if (!data || !accept(c->writer, p, data)) return false;
    if (c->npy) return tp__npy_put(c->npy, fd, p->item->view.dtype, data, p->n);
    tp__sum_add(c->sum, data, p->n);
    return tp_write_bytes(fd, data, p->n);
}

/* Writes the data first, since the header holds their checksums. */
static bool put_content(int fd, void *env)
{
    commit *c = env;
    char *const json = c->frame + 8;
    piece p;
    bool ok = lseek(fd, (off_t)c->length, SEEK_SET) >= 0;
    for (int i = 0; ok && i < c->writer->n; i++) {
        tp__sum_begin(c->sum);
        while (ok && next_piece(c, &p)) ok = put_piece(c, fd, &p);
        tp__sum_print(tp__sum_end(c->sum), json + TP_SUMS_AT + TP_SUM_DIGITS * i);
    }
    tp__sum_print(tp__sum_header(c->sum, json, c->length - 8), json + TP_SUM_AT);
    return ok && lseek(fd, 0, SEEK_SET) == 0 && tp_write_bytes(fd, c->frame, c->length) &&
           all_supplied(c);
}

/* The same for NumPy's files. */
static bool put_arrays(int fd, void *env)
{
    commit *c = env;
    const bool single = tp_ends_in(c->writer->path, ".npy");
    piece p;
    bool ok = true;
    for (int i = 0; ok && i < c->writer->n; i++) {
        const tp_item *t = &c->writer->items[i];
        ok = tp__npy_begin(c->npy, fd, single ? TP_NPY_NAME : t->name, &t->view);
        while (ok && next_piece(c, &p)) ok = put_piece(c, fd, &p);
        ok = ok && tp__npy_end(c->npy, fd);
    }
    return ok && tp__npy_finish(c->npy, fd) && all_supplied(c);
}

/* Its folder may still fail to take the file after all data were supplied. */
static void put_file(commit *c)
{
    tp_writer *W = c->writer;
    if (c->join->rank == 0)
        tp__file_replace(&W->err, W->path, W->numpy ? put_arrays : put_content, c);
    if (!c->asked) {
        pass_rest(c);
        (void)all_supplied(c);
    }
    if (c->supplied) (void)all_fine(c);
}

/* ---- several processes ---- */

/* Replaces a tensor of this process's rows by that of all rows, whose others are elsewhere. */
static void join_rows(tp_writer *W, tp_item *t, const tp_join *j)
{
    const size_t ranks = (size_t)j->ranks;
    size_t bytes;
    if (t->view.ndim == 0) {
        tp__writer_failf(W, TP_E_SHAPE, "tensor '%.200s' should hold rows, but has no axis",
                         t->name);
        return;
    }
    if (!tp__size_mul(t->bytes, ranks, &bytes) || bytes > INT64_MAX) {
        tp__writer_failf(W, TP_E_SHAPE, "the rows of tensor '%.200s' are too many", t->name);
        return;
    }
    t->parts = malloc(ranks * sizeof *t->parts);
    if (!t->parts) {
        tp__writer_no_memory(W);
        return;
    }
    t->n = j->ranks;
    for (int k = 0; k < j->ranks; k++) {
        t->parts[k] = (tp_owned){ .owner = k, .bytes = t->bytes };
        if (k == j->rank) t->parts[k] = t->whole;
        t->parts[k].owner = k;
    }
    t->bytes = bytes;
    t->view.dim[0] *= j->ranks;
}

static void join_all_rows(tp_writer *W, const tp_join *j, const char *rows)
{
    for (int i = 0; i < W->n; i++) {
        tp_item *t = &W->items[i];
        const bool joined = rows && !t->parts && strncmp(t->name, rows, strlen(rows)) == 0;
        if (joined && j->ranks > 1) join_rows(W, t, j);
        for (int k = 0; k < t->n; k++)
            if (t->parts && t->parts[k].owner >= j->ranks)
                tp__writer_failf(W, TP_E_VALUE,
                                 "process %d owns a part of tensor '%.200s', but "
                                 "there are only %d",
                                 t->parts[k].owner, t->name, j->ranks);
    }
}

/* A hash of the tensors that come from several processes, in the order of the file. */
static uint64_t hash_of(const tp_writer *W)
{
    uint64_t h = TP_HASH;
    for (int i = 0; i < W->n; i++) {
        const tp_item *t = &W->items[i];
        if (!t->parts) continue;
        h = tp_hash(tp_hash_text(h, t->name), (uint64_t)t->view.dtype);
        for (int k = 0; k < t->view.ndim; k++) h = tp_hash(h, (uint64_t)t->view.dim[k]);
        for (int k = 0; k < t->n; k++)
            h = tp_hash(tp_hash(h, (uint64_t)t->parts[k].owner), t->parts[k].bytes);
    }
    return h;
}

/* Do all processes walk the same list? A difference would make them wait for each other. */
static bool same_tensors(commit *c)
{
    const tp_join *j = c->join;
    uint64_t mine = hash_of(c->writer), other;
    if (j->rank > 0) (void)move(c, j->rank, &mine, sizeof mine);
    for (int k = 1; j->rank == 0 && k < j->ranks; k++)
        if (move(c, k, &other, sizeof other) && other != mine)
            tp__writer_failf(c->writer, TP_E_SHAPE,
                             "process %d has other tensors, or other numbers of rows, than process "
                             "0",
                             k);
    return all_fine(c);
}

static void prepare(commit *c, const char *rows)
{
    tp_writer *W = c->writer;
    if (!tp_writer_ok(W)) return;
    if (W->committed) {
        tp__writer_failf(W, TP_E_STATE, "this writer was committed before; make a new one");
        return;
    }
    W->committed = true;
    if (W->numpy && c->join->ranks > 1)
        tp__writer_failf(W, TP_E_STATE,
                         "NumPy's files are written by one process; let one call "
                         "tp_writer_commit");
    join_all_rows(W, c->join, rows);
    c->buffer = malloc(CHUNK);
    if (W->numpy) {
        if (tp__writer_arrays(W)) c->npy = tp__npy_file_new(W->path, W->n);
    } else {
        tp__writer_place(W);
        c->sum = tp__sum_new();
        frame(c, tp__writer_header(W));
    }
    if (!c->buffer || (W->numpy ? !c->npy : !c->sum || !c->frame)) tp__writer_no_memory(W);
}

bool tp__writer_join(tp_writer *W, const tp_join *j, const char *rows)
{
    commit c = { .writer = tp__writer_some(W), .join = j };
    prepare(&c, rows);
    if (all_fine(&c) && same_tensors(&c)) put_file(&c);
    if (c.sum) tp__sum_free(c.sum);
    tp__npy_file_free(c.npy);
    free(c.buffer);
    free(c.frame);
    return tp_writer_ok(W);
}

bool tp_writer_commit(tp_writer *W)
{
    return tp__writer_join(W, &(tp_join){ .ranks = 1 }, NULL);
}
