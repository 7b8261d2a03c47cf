/* carry.c - tensors that survive resets: recurrent memory and decoder buffers. */
#include <tapegrad/capture.h>

#include "autograd/nodes.h"
#include "autograd/tape.h"
#include "tensor/file/checksum.h"
#include "tensor/shape.h"

/* The carried node of a slot, or NULL if the slot is empty. */
static tp_node *slot_node(const tp_tape *T, const tp_tensor *slot)
{
    tp_node *n = slot->node;
    return n && n->gen == slot->gen && n->carried && n->tape == T ? n : NULL;
}

/* Moves a carried node to the list recycled at the next reset, unless out of memory. */
static bool retire(tp_tape *T, tp_node *n)
{
    if (!tp__nodes_push(&T->retired, n)) {
        tp__no_host_memory(T);
        return false;
    }
    for (size_t i = 0; i < T->carried.n; i++)
        if (T->carried.at[i] == n) {
            T->carried.at[i] = T->carried.at[--T->carried.n];
            break;
        }
    n->carried = false;
    return true;
}

/* Recycles the last node taken, which is in no list. */
static void give_back(tp_tape *T, tp_node *n)
{
    tp__buf_unref(n->buf);
    n->gen = 0;
    T->spare.n++;
}

/* A reference to n's buffer or, if that is memory of others (tp_from_dlpack), a copy: what is
 * carried may be written. NULL: T has failed. */
static tp_buf *own_buffer(tp_tape *T, const tp_node *n)
{
    if (!n->buf->give_back) return tp__buf_ref(n->buf);
    const size_t bytes = tp__view_bytes(&n->view);
    tp_buf *copy = tp__alloc(T, bytes, "tp_carry");
    if (copy) T->dev->be->copy(T->dev, copy->data, n->view.data, bytes);
    return copy;
}

tp_tensor tp_carry(tp_tape *T, tp_tensor *slot, tp_tensor x)
{
    T = tp__some(T);
    if (!slot) return tp__fail(T, TP_E_VALUE, "tp_carry: NULL was given in place of a slot");
    if (T->err.code != TP_OK || T->replaying) return *slot;
    tp_node *old = slot_node(T, slot);
    if (!old && slot->node) {
        tp__fail(T, TP_E_STATE,
                 "tp_carry: the slot holds no tensor carried by this tape; start "
                 "with an empty (zero) slot");
        return *slot;
    }
    if (!tp_given(x)) {
        if (old) tp__carry_note(T, old, NULL);
        if (!old || retire(T, old)) *slot = TP_NONE;
        return *slot;
    }
    const tp_node *n = tp__node(T, x, "tp_carry");
    if (!n) return *slot;
    if (n->params) {
        tp__fail(T, TP_E_VALUE, "tp_carry: a parameter cannot be carried");
        return *slot;
    }
    tp_buf *buf = own_buffer(T, n);
    tp_node *c = buf ? tp__node_take(T) : NULL;
    if (!c) {
        tp__buf_unref(buf);
        return *slot;
    }
    c->buf = buf;
    c->view = n->view;
    if (buf != n->buf) c->view.data = buf->data;
    c->carried = true;
    if (!tp__nodes_push(&T->carried, c)) {
        give_back(T, c);
        tp__no_host_memory(T);
        return *slot;
    }
    if (!tp__carry_note(T, old, c)) tp__no_host_memory(T);
    if (old && !retire(T, old)) {
        T->carried.n--;
        give_back(T, c);
        return *slot;
    }
    return *slot = tp__handle(c);
}

tp_tensor tp_feed(tp_tape *T, tp_tensor *slot, tp_dtype dt, tp_shape s, const void *host)
{
    T = tp__some(T);
    if (!slot) return tp__fail(T, TP_E_VALUE, "tp_feed: NULL was given in place of a slot");
    const tp_node *n = T->err.code == TP_OK ? slot_node(T, slot) : NULL;
    const tp_view v = tp__view(dt, &s, NULL);
    if (T->hashes_feeds && host)
        T->feeds_hash = tp__sum_of(T->feeds_hash, host, tp__view_bytes(&v));
    bool same = n && host && n->view.dtype == dt && n->view.ndim == s.ndim;
    for (int i = 0; same && i < s.ndim; i++) same = n->view.dim[i] == s.dim[i];
    if (!same) return tp_carry(T, slot, tp_from(T, dt, s, host));
    T->dev->be->upload(T->dev, n->view.data, host, tp__view_bytes(&v));
    if (T->dev->err.code != TP_OK) tp__device_failed(T);
    return *slot;
}

void tp_hash_feeds(tp_tape *T, bool on)
{
    if (tp__is_none(T)) return;
    T->hashes_feeds = on;
    if (on) T->feeds_hash = 0;
}

uint64_t tp_feeds_hash(const tp_tape *T)
{
    return tp__some(T)->feeds_hash;
}

static int64_t row_elements(const tp_view *v)
{
    int64_t n = 1;
    for (int i = 1; i < v->ndim; i++) n *= v->dim[i];
    return n;
}

void tp_write_rows(tp_tape *T, tp_tensor dst, int64_t row, tp_tensor src)
{
    tp_node *d = tp__node(T, dst, "tp_write_rows: destination");
    tp_node *s = d ? tp__node_with_values(T, src, "tp_write_rows: source") : NULL;
    if (!s) return;
    const tp_view *dv = &d->view, *sv = &s->view;
    if (!d->carried || T->recording) {
        tp__fail(T, TP_E_STATE,
                 "tp_write_rows: writes only carried tensors, "
                 "and only while recording is off");
        return;
    }
    bool fits = dv->dtype == sv->dtype && dv->ndim == sv->ndim && dv->ndim > 0;
    for (int i = 1; fits && i < dv->ndim; i++) fits = dv->dim[i] == sv->dim[i];
    if (!fits || row < 0 || sv->dim[0] > dv->dim[0] - row) {
        char text[256] = "";
        tp__print_view(text, sizeof text, sv);
        tp__append(text, sizeof text, " at row %lld of ", (long long)row);
        tp__print_view(text, sizeof text, dv);
        tp__fail(T, TP_E_SHAPE, "tp_write_rows: does not fit: %s", text);
        return;
    }
    const size_t one = (size_t)row_elements(dv) * tp_dtype_size(dv->dtype);
    T->dev->be->copy(T->dev, (char *)dv->data + (size_t)row * one, sv->data,
                     (size_t)sv->dim[0] * one);
}
