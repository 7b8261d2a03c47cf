/* dlpack.c - tensors that share their memory with other libraries.
 *
 * An export owns a reference of the buffer and counts as an object on the device. An import is a
 * buffer that belongs to others; its last reference calls the producer's deleter. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/dlpack.h>

#include "autograd/nodes.h"
#include "autograd/tape.h"
#include "tensor/left.h"
#include "tensor/shape.h"

static const tp_dl_dtype dtypes[TP_NDTYPES] = {
    [TP_F32] = { TP_DL_FLOAT, 32, 1 },   [TP_F64] = { TP_DL_FLOAT, 64, 1 },
    [TP_BF16] = { TP_DL_BFLOAT, 16, 1 }, [TP_I32] = { TP_DL_INT, 32, 1 },
    [TP_I64] = { TP_DL_INT, 64, 1 },     [TP_U8] = { TP_DL_UINT, 8, 1 },
};

/* Where tensors of D are; the number of a GPU is in its name. */
static tp_dl_device place_of(const tp_device *D)
{
    const char *colon = strchr(D->name, ':');
    if (D->be->kind == TP_CPU) return (tp_dl_device){ TP_DL_CPU, 0 };
    return (tp_dl_device){ TP_DL_CUDA, colon ? (int32_t)strtol(colon + 1, NULL, 10) : 0 };
}

/* False with T failed: its device has no memory that could be shared now. */
static bool can_share(tp_tape *T, const char *what)
{
    if (tp__some(T)->err.code != TP_OK) return false;
    if (T->dev->dry)
        tp__fail(T, TP_E_STATE, "%s: a dry device has no values to share", what);
    else if (T->dev->capturing)
        tp__fail(T, TP_E_STATE,
                 "%s: not between tp_capture_begin and tp_capture_end: a recorded step would keep "
                 "the address",
                 what);
    return T->err.code == TP_OK;
}

/* ---- export ---- */

typedef struct lent {
    tp_dlpack m; /* first: the deleter gets its address */
    tp_buf *buf;
    int64_t shape[TP_MAX_DIMS], strides[TP_MAX_DIMS];
} lent;

static void drop_lent(tp_dlpack *m)
{
    lent *e = (lent *)(void *)m;
    tp_device *D = e->buf->dev;
    tp__buf_unref(e->buf);
    free(e);
    tp__device_leave(D);
}

tp_dlpack *tp_to_dlpack(tp_tape *T, tp_tensor x)
{
    const tp_node *n =
        can_share(T, "tp_to_dlpack") ? tp__node_with_values(T, x, "tp_to_dlpack") : NULL;
    if (!n) return NULL;
    lent *e = calloc(1, sizeof *e);
    if (!e) tp__no_host_memory(T);
    if (!e || !tp_device_sync(T->dev)) {
        if (e) tp__device_failed(T);
        free(e);
        return NULL;
    }
    const tp_view *v = &n->view;
    int64_t step = 1;
    for (int i = v->ndim - 1; i >= 0; i--) {
        e->shape[i] = v->dim[i];
        e->strides[i] = step;
        step *= v->dim[i];
    }
    e->buf = tp__buf_ref(n->buf);
    tp__device_enter(T->dev);
    e->m = (tp_dlpack){ .version = { TP_DL_MAJOR, 0 },
                        .deleter = drop_lent,
                        .flags = TP_DL_READ_ONLY,
                        .tensor = { .data = v->numel ? v->data : NULL,
                                    .device = place_of(T->dev),
                                    .ndim = v->ndim,
                                    .dtype = dtypes[v->dtype],
                                    .shape = e->shape,
                                    .strides = e->strides } };
    return &e->m;
}

/* ---- import ---- */

static void let_go(tp_dlpack *m)
{
    if (m && m->deleter) m->deleter(m);
}

/* The last reference of an imported buffer. */
static void give_back(tp_buf *b)
{
    if (b->dev->be->kind != TP_CPU) tp_device_sync(b->dev);
    let_go(b->owner);
}

static bool is_here(const tp_device *D, tp_dl_device d)
{
    const tp_dl_device ours = place_of(D);
    if (ours.type == TP_DL_CPU) return d.type == TP_DL_CPU || d.type == TP_DL_CUDA_HOST;
    return (d.type == TP_DL_CUDA || d.type == TP_DL_CUDA_MANAGED) && d.id == ours.id;
}

static bool find_dtype(tp_tape *T, tp_dl_dtype d, tp_dtype *dt)
{
    static const char *const kinds[] = { "int",    "uint",    "float", "opaque",
                                         "bfloat", "complex", "bool" };
    if (d.code == TP_DL_BOOL && d.bits == 8) d.code = TP_DL_UINT;
    for (int i = 0; i < TP_NDTYPES; i++)
        if (memcmp(&d, &dtypes[i], sizeof d) == 0) {
            *dt = (tp_dtype)i;
            return true;
        }
    const bool known = d.code < sizeof kinds / sizeof *kinds;
    tp__fail(T, TP_E_DTYPE,
             "tp_from_dlpack: there is no dtype %s%d%s here (f32, f64, bf16, i32, i64, u8 and bool "
             "are); convert the tensor first",
             known ? kinds[d.code] : "of another kind, ", d.bits,
             d.lanes == 1 ? "" : " of vectors");
    return false;
}

/* Row-major without gaps? */
static bool is_packed(const tp_dl_tensor *t, int64_t numel)
{
    int64_t step = 1;
    for (int i = t->ndim - 1; t->strides && numel > 0 && i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != step) return false;
        step *= t->shape[i];
    }
    return true;
}

static bool check_layout(tp_tape *T, const tp_dl_tensor *t, const tp_shape *s, const tp_view *v)
{
    char shape[256] = "", strides[256] = "";
    if (v->numel > 0 && !t->data)
        tp__fail(T, TP_E_VALUE, "tp_from_dlpack: the tensor has no memory (data is NULL)");
    else if (!is_packed(t, v->numel)) {
        tp__print_shape(shape, sizeof shape, s->ndim, s->dim);
        tp__print_shape(strides, sizeof strides, s->ndim, t->strides);
        tp__fail(T, TP_E_VALUE,
                 "tp_from_dlpack: the tensor %s has strides %s, but must be row-major without "
                 "gaps: copy it first (numpy.ascontiguousarray, torch's contiguous())",
                 shape, strides);
    } else if ((uintptr_t)v->data % tp_dtype_size(v->dtype) != 0)
        tp__fail(T, TP_E_VALUE,
                 "tp_from_dlpack: the elements are not aligned to %zu bytes: copy the tensor first",
                 tp_dtype_size(v->dtype));
    return T->err.code == TP_OK;
}

/* Checks everything; *v becomes the view of the memory. False with T failed. */
static bool examine(tp_tape *T, const tp_dlpack *m, bool input, tp_view *v)
{
    const tp_dl_tensor *t = &m->tensor;
    tp_shape s = { .ndim = t->ndim };
    tp_dtype dt;
    int64_t numel;
    if (m->version.major != TP_DL_MAJOR) {
        tp__fail(T, TP_E_VALUE, "tp_from_dlpack: version %u.%u of DLPack, but only %d.x is known",
                 m->version.major, m->version.minor, TP_DL_MAJOR);
        return false;
    }
    if (!is_here(T->dev, t->device)) {
        tp__fail(T, TP_E_DEVICE,
                 "tp_from_dlpack: the tensor is on DLPack's device %d:%d, the tape on %s: move it "
                 "there first",
                 t->device.type, t->device.id, T->dev->name);
        return false;
    }
    if (!find_dtype(T, t->dtype, &dt)) return false;
    if (input && !tp_is_float(dt)) {
        tp__fail(T, TP_E_DTYPE, "tp_input_dlpack: %s tensors have no gradient; use tp_from_dlpack",
                 tp_dtype_name(dt));
        return false;
    }
    if (t->ndim < 0 || t->ndim > TP_MAX_DIMS || (t->ndim > 0 && !t->shape)) {
        tp__fail(T, TP_E_SHAPE, "tp_from_dlpack: the tensor has %d axes%s; at most %d are possible",
                 t->ndim, t->shape ? "" : " and no shape", TP_MAX_DIMS);
        return false;
    }
    for (int i = 0; i < s.ndim; i++) s.dim[i] = t->shape[i];
    if (!tp__numel(&s, &numel)) {
        tp__fail(T, TP_E_SHAPE,
                 "tp_from_dlpack: impossible sizes (negative, or too many elements)");
        return false;
    }
    *v = tp__view(dt, &s, t->data ? (char *)t->data + t->byte_offset : NULL);
    return check_layout(T, t, &s, v);
}

static tp_tensor take(tp_tape *T, tp_dlpack *m, bool input, const char *what)
{
    tp_view v;
    T = tp__some(T);
    if (can_share(T, what) && !m)
        tp__fail(T, TP_E_VALUE, "%s: NULL was given in place of a tensor", what);
    const bool fine = m && T->err.code == TP_OK && examine(T, m, input, &v);
    const bool shared = fine && v.numel > 0;
    tp_buf *b = NULL;
    if (shared)
        b = tp__buf_of_others(T->dev, v.data, tp__view_bytes(&v), give_back, m);
    else if (fine)
        b = tp__buf_new(T->dev, 0);
    if (fine && !b) tp__no_host_memory(T);
    if (!b || !shared) let_go(m);
    if (!b) return TP_FAILED;
    if (!shared) v.data = b->data;
    const tp_tensor x = tp__wrap(T, b, &v);
    if (input && x.node) x.node->input = x.node->wants_grad = true;
    return x;
}

tp_tensor tp_from_dlpack(tp_tape *T, tp_dlpack *m)
{
    return take(T, m, false, "tp_from_dlpack");
}

tp_tensor tp_input_dlpack(tp_tape *T, tp_dlpack *m)
{
    return take(T, m, true, "tp_input_dlpack");
}
