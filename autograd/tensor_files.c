/* tensor_files.c - tensors of a tape from and to files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/nodes.h"
#include "autograd/tape.h"
#include "tensor/file/npy.h"
#include "tensor/file/open.h"
#include "tensor/shape.h"

/* The dtype that holds all values of a stored one. Where there is none, reading says so. */
static tp_dtype held_by(const char *stored)
{
    const tp_stored *s = tp__stored(stored);
    if (!s || s->kind == TP_STORED_OTHER) return TP_F32;
    if (s->dt != TP_NDTYPES) return s->dt;
    if (s->kind == TP_STORED_FLOAT) return TP_F32;
    return *stored == 'B' ? TP_U8 : s->size < 4 ? TP_I32 : TP_I64;
}

/* NULL with F failed. */
static const tp_file_tensor *choose(tp_file *F, const char *name)
{
    const tp_file_tensor *t = name ? tp_file_find(F, name) : tp_file_at(F, 0);
    if (tp_file_ok(F) && !name && tp_file_count(F) != 1)
        tp__file_fail(F, TP_E_VALUE, "has %d tensors; give the name of one", tp_file_count(F));
    else if (tp_file_ok(F) && !t)
        tp__file_fail(F, TP_E_VALUE, "has no tensor '%.200s'; tp-inspect lists what it has", name);
    return tp_file_ok(F) ? t : NULL;
}

tp_tensor tp_from_file(tp_tape *T, const char *path, const char *name)
{
    tp_tensor x = TP_FAILED;
    if (!tp_ok(T)) return x;
    tp_file *F = tp_file_open(path);
    const tp_file_tensor *t = choose(F, name);
    const tp_dtype dt = t ? held_by(t->stored) : TP_F32;
    size_t bytes = 0;
    void *host = NULL;
    if (t && tp__file_readable(F, t)) {
        if (tp__size_mul((size_t)t->numel, tp_dtype_size(dt), &bytes)) host = malloc(bytes + 1);
        if (!host)
            tp__file_fail(F, TP_E_MEMORY, "out of memory for tensor '%.200s'", t->name);
        else if (tp_file_read(F, t, dt, host))
            x = tp_from(T, dt, t->shape, host);
    }
    if (!tp_file_ok(F)) tp__fail(T, F->err.code, "tp_from_file: %s", tp_file_why(F));
    free(host);
    tp_file_close(F);
    return x;
}

void tp_add_to_file(tp_tape *T, tp_tensor x, tp_writer *W, const char *name)
{
    if (!tp_writer_ok(W)) return;
    const tp_node *n = tp__node_with_values(T, x, "tp_add_to_file");
    const size_t bytes = n ? tp__view_bytes(&n->view) : 0;
    void *host = n ? malloc(bytes + 1) : NULL;
    if (n && !host) tp__no_host_memory(T);
    if (host && tp__download(T, host, n->view.data, bytes))
        tp_writer_add(W, name, n->view.dtype, tp__view_shape(&n->view), host, true);
    else
        tp__writer_fail(W, &tp__some(T)->err);
    free(host);
}

bool tp_to_npy(tp_tape *T, tp_tensor x, const char *path, char *why, size_t size)
{
    const bool npy = path && tp_ends_in(path, ".npy");
    tp_writer *W = tp_writer_numpy(path);
    if (!why) size = 0;
    if (size) *why = '\0';
    if (path && !npy && size) {
        char plain[512];
        snprintf(why, size, "%s does not end in .npy; write a .npz with tp_writer_numpy",
                 tp_plain(path, plain, sizeof plain));
    }
    if (!path || npy) {
        const tp_node *n = tp_writer_ok(W) ? tp__node_with_values(T, x, "tp_to_npy") : NULL;
        if (n)
            tp__writer_add_device(W, TP_NPY_NAME, T->dev, &n->view);
        else if (tp_writer_ok(W))
            tp__writer_fail(W, &tp__some(T)->err);
        if (!tp_writer_commit(W) && size) snprintf(why, size, "%s", tp_writer_why(W));
    }
    const bool ok = npy && tp_writer_ok(W);
    tp_writer_free(W);
    return ok;
}
