/* tensor.c - tensors from and to host memory, and their shapes. */
#include <math.h>

#include "autograd/nodes.h"
#include "autograd/tape.h"
#include "tensor/bf16.h"
#include "tensor/shape.h"

/* A new uninitialised tensor, or NULL with the tape failed. */
static tp_node *make(tp_tape *T, const char *what, tp_dtype dt, tp_shape s)
{
    if (tp__some(T)->err.code != TP_OK) return NULL;
    int64_t numel;
    if (tp_dtype_size(dt) == 0) {
        tp__fail(T, TP_E_DTYPE, "%s: unknown dtype %d", what, (int)dt);
        return NULL;
    }
    if (!tp__numel(&s, &numel)) {
        char text[256] = "";
        tp__print_shape(text, sizeof text, s.ndim > TP_MAX_DIMS ? TP_MAX_DIMS : s.ndim, s.dim);
        tp__fail(T, TP_E_SHAPE,
                 "%s: impossible shape %s of %d axes (at most %d axes, "
                 "no negative size, no overflow)",
                 what, text, s.ndim, TP_MAX_DIMS);
        return NULL;
    }
    tp_buf *b = tp__alloc(T, (size_t)numel * tp_dtype_size(dt), what);
    if (!b) return NULL;
    const tp_view v = tp__view(dt, &s, b->data);
    return tp__wrap(T, b, &v).node;
}

static tp_node *from_host(tp_tape *T, const char *what, tp_dtype dt, tp_shape s, const void *host)
{
    tp_node *n = make(T, what, dt, s);
    if (!n) return NULL;
    if (!host && n->view.numel > 0) {
        tp__fail(T, TP_E_VALUE, "%s: host data is NULL", what);
        return NULL;
    }
    T->dev->be->upload(T->dev, n->view.data, host, tp__view_bytes(&n->view));
    return n;
}

tp_tensor tp_from(tp_tape *T, tp_dtype dt, tp_shape s, const void *host)
{
    return tp__handle(from_host(T, "tp_from", dt, s, host));
}

tp_tensor tp_input(tp_tape *T, tp_dtype dt, tp_shape s, const void *host)
{
    if (tp__some(T)->err.code == TP_OK && !tp_is_float(dt))
        return tp__fail(T, TP_E_DTYPE, "tp_input: %s tensors have no gradient; use tp_from",
                        tp_dtype_name(dt));
    tp_node *n = from_host(T, "tp_input", dt, s, host);
    if (n) n->input = n->wants_grad = true;
    return tp__handle(n);
}

tp_tensor tp_full(tp_tape *T, tp_dtype dt, tp_shape s, double value)
{
    tp_node *n = make(T, "tp_full", dt, s);
    if (!n) return TP_FAILED;
    tp__fill(T->dev, &n->view, value);
    return tp__handle(n);
}

/* ---- reading ---- */

double tp_item(tp_tape *T, tp_tensor x)
{
    if (tp__is_number(x) && tp_ok(T)) return tp__number_of(x);
    const tp_node *n = tp__node_with_values(T, x, "tp_item");
    if (!n) return (double)NAN;
    if (n->view.numel != 1) {
        tp__fail(T, TP_E_SHAPE, "tp_item: needs one element, the tensor has %lld",
                 (long long)n->view.numel);
        return (double)NAN;
    }
    uint64_t raw[2];
    tp_view host = n->view;
    host.data = raw;
    if (!tp__download(T, raw, n->view.data, tp__view_bytes(&n->view))) return (double)NAN;
    return tp_ld(&host, 0);
}

bool tp_read(tp_tape *T, tp_tensor x, void *host, size_t bytes)
{
    const tp_node *n = tp__node_with_values(T, x, "tp_read");
    if (!n) return false;
    if (bytes != tp__view_bytes(&n->view)) {
        char text[256] = "";
        tp__print_view(text, sizeof text, &n->view);
        tp__fail(T, TP_E_SHAPE,
                 "tp_read: the tensor, %s, has %zu bytes, the buffer %zu; another dtype is read "
                 "through tp_cast",
                 text, tp__view_bytes(&n->view), bytes);
        return false;
    }
    if (!host && bytes) {
        tp__fail(T, TP_E_VALUE, "tp_read: NULL was given in place of a buffer");
        return false;
    }
    return tp__download(T, host, n->view.data, bytes);
}

static const tp_node *peek(tp_tensor x)
{
    return x.node && x.node->gen == x.gen && x.node->live ? x.node : NULL;
}

int tp_ndim(tp_tensor x)
{
    const tp_node *n = peek(x);
    return n ? n->view.ndim : 0;
}

int64_t tp_dim(tp_tensor x, int axis)
{
    const tp_node *n = peek(x);
    const int a = n ? tp__axis(n->view.ndim, axis) : -1;
    return a < 0 ? 1 : n->view.dim[a];
}

int64_t tp_numel(tp_tensor x)
{
    const tp_node *n = peek(x);
    return n ? n->view.numel : 1;
}

tp_dtype tp_dtype_of(tp_tensor x)
{
    const tp_node *n = peek(x);
    return n ? n->view.dtype : TP_F32;
}

tp_shape tp_shape_of(tp_tensor x)
{
    const tp_node *n = peek(x);
    return n ? tp__view_shape(&n->view) : TP_SCALAR;
}
