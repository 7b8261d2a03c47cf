/* fuzz_numpy.c - the input is a .npy or a .npz of NumPy, to open, list and read, and to write again
 * if all of it can be read.
 *
 * Besides memory safety the following must hold: a tensor is found by its name and has the size of
 * its shape or a reason, a failed file exposes nothing, and what is written again reads as the
 * same elements. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

enum { MOST = 1 << 20 /* bytes */ };

static void walk(const tp_file *F)
{
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        int64_t numel = 1;
        for (int k = 0; t->code == TP_OK && k < t->shape.ndim; k++) numel *= t->shape.dim[k];
        fuzz_demand(t->code != TP_OK ? t->numel == 0 && t->why && *t->why : numel == t->numel,
                    "a tensor has as many elements as its shape, or a reason");
        fuzz_demand(tp_file_find(F, t->name) == t, "a tensor is found by its name");
    }
    fuzz_demand(!tp_file_at(F, tp_file_count(F)), "there is nothing after the last tensor");
}

/* Reads a tensor as a whole and in two pieces, which must agree. The caller frees it; NULL: it
 * cannot be read. */
static double *read_whole(tp_file *F, const tp_file_tensor *t)
{
    const bool floating = *t->stored == 'F';
    const tp_dtype dt = floating ? TP_F64 : TP_I64;
    const size_t size = sizeof(double);
    if (t->code != TP_OK || (size_t)t->numel > MOST / size) return NULL;
    char *all = malloc((size_t)t->numel * size + 1), *parts = malloc((size_t)t->numel * size + 1);
    const int64_t half = t->numel / 2;
    const bool read =
        all && parts && tp_file_read(F, t, dt, all) &&
        tp_file_read_part(F, t, 0, half, dt, parts) &&
        tp_file_read_part(F, t, half, t->numel - half, dt, parts + (size_t)half * size);
    fuzz_demand(!read || memcmp(all, parts, (size_t)t->numel * size) == 0, "pieces are the whole");
    free(parts);
    if (read) return (double *)(void *)all;
    free(all);
    return NULL;
}

/* Writes a tensor as an archive and reads it back. */
static void write_again(tp_file *F, const tp_file_tensor *t, const char *folder)
{
    double *x = read_whole(F, t);
    if (!x) return;
    const tp_dtype dt = *t->stored == 'F' ? TP_F64 : TP_I64;
    char path[128];
    snprintf(path, sizeof path, "%s", fuzz_in(folder, "again.npz"));
    tp_writer *W = tp_writer_numpy(path);
    tp_writer_add(W, t->name, dt, t->shape, x, false);
    const bool written = tp_writer_commit(W);
    fuzz_demand_reason(written, tp_writer_why(W));
    tp_writer_free(W);
    tp_file *again = written ? tp_file_open(path) : NULL;
    const tp_file_tensor *u = tp_file_at(again, 0);
    if (written) {
        fuzz_demand(tp_file_count(again) == 1 && u->code == TP_OK, "what is written can be read");
        fuzz_demand(u->numel == t->numel && u->shape.ndim == t->shape.ndim, "the shape is kept");
        double *y = read_whole(again, u);
        fuzz_demand(y && memcmp(x, y, (size_t)t->numel * sizeof *x) == 0, "elements are kept");
        free(y);
    }
    tp_file_close(again);
    free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static char folder[64];
    if (!*folder) fuzz_make_folder(folder);
    tp_file *F = tp_file_open(fuzz_path(input, size));
    const bool good = tp_file_ok(F);
    fuzz_demand_reason(good, tp_file_why(F));
    walk(F);
    fuzz_demand(good || tp_file_count(F) == 0, "a bad file is empty");
    for (int i = 0; i < tp_file_count(F) && i < 4 && tp_file_ok(F); i++)
        write_again(F, tp_file_at(F, i), folder);
    fuzz_demand_reason(tp_file_ok(F), tp_file_why(F));
    tp_file_close(F);
    return 0;
}
