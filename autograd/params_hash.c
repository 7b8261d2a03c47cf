/* params_hash.c - a hash of a parameter set, which tells whether two processes have the same. */
#include <stdlib.h>
#include <string.h>

#include "autograd/params.h"
#include "tensor/file/checksum.h"
#include "tensor/shape.h"

#define PIECE ((size_t)1 << 20) /* bytes of a device read at a time */

/* Adds a view's bytes; through `room`, of PIECE bytes, if they are not in host memory. */
static bool add_bytes(tp_sum *h, tp_device *D, const tp_view *v, void *room)
{
    const size_t bytes = tp__view_bytes(v);
    const bool host = D->be->kind == TP_CPU;
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        const char *from = (const char *)v->data + at;
        if (!host && !tp__device_read(D, room, from, n)) return false;
        tp__sum_add(h, host ? from : room, n);
    }
    return true;
}

static bool add_entry(tp_sum *h, tp_device *D, const tp_entry *e, void *room)
{
    const tp_view *v = &e->node->view;
    tp__sum_add(h, e->name, strlen(e->name) + 1);
    if (e->alias_of) return true;
    tp__sum_add(h, &v->dtype, sizeof v->dtype);
    tp__sum_add(h, v->dim, (size_t)v->ndim * sizeof *v->dim);
    return D->dry || add_bytes(h, D, v, room);
}

uint64_t tp_params_hash(tp_params *P)
{
    if (!P || !tp__params_complete(P)) return 0;
    tp_sum *h = tp__sum_new();
    void *room = h ? malloc(PIECE) : NULL;
    bool done = room != NULL;
    if (done) tp__sum_begin(h);
    for (int i = 0; done && i < P->n; i++) done = add_entry(h, P->dev, &P->entries[i], room);
    const uint64_t hash = done ? tp__sum_end(h) : 0;
    free(room);
    tp__sum_free(h);
    return hash;
}
