/* broadcast.c - merges the axes of a broadcast and splits the sums over them into blocks. */
#include "tensor/geometry/broadcast.h"

#include "tensor/geometry/whole.h"
#include "tensor/shape.h"

enum {
    FOLD_ROW = 4096,        /* longest stretch summed at once */
    FOLD_COLUMNS = 1024,    /* columns that a task sums together */
    FOLD_SCRATCH = 1 << 16, /* most elements in all block sums */
    FOLD_BLOCK = 1 << 14,   /* fewest elements of a in a block */
    FOLD_TERMS = 1 << 8     /* most terms in a float sum; overrides FOLD_BLOCK */
};

/* Prepends an axis; the axes are visited from the last to the first. */
static void prepend(tp_axes *x, int64_t dim, int64_t stride)
{
    for (int k = x->n; k > 0; k--) {
        x->dim[k] = x->dim[k - 1];
        x->stride[k] = x->stride[k - 1];
    }
    x->dim[0] = dim;
    x->stride[0] = stride;
    x->n++;
    x->count *= dim;
}

tp_bcast tp__bcast(const tp_view *a, const tp_view *b)
{
    int64_t dim[TP_MAX_DIMS]; /* merged axes, last first */
    bool again[TP_MAX_DIMS];
    int n = 0;
    for (int i = 1; i <= a->ndim; i++) {
        const int64_t na = a->dim[a->ndim - i], nb = i <= b->ndim ? b->dim[b->ndim - i] : 1;
        if (na == 1) continue;
        if (n == 0 || again[n - 1] != (nb != na)) {
            dim[n] = 1;
            again[n++] = nb != na;
        }
        dim[n - 1] *= na;
    }
    tp_bcast p = { .n = n ? dim[0] : 1, .one = n && again[0] };
    p.rows.count = p.kept.count = p.again.count = 1;
    int64_t at_a = p.n, at_b = p.one ? 1 : p.n; /* strides of the next axis */
    for (int k = 1; k < n; k++) {
        prepend(&p.rows, dim[k], again[k] ? 0 : at_b);
        prepend(again[k] ? &p.again : &p.kept, dim[k], at_a);
        at_a *= dim[k];
        if (!again[k]) at_b *= dim[k];
    }
    return p;
}

tp_fold_split tp__fold(const tp_view *a, const tp_view *b)
{
    tp_fold_split f = { .p = tp__bcast(a, b) };
    f.width = tp__least(f.p.n, f.p.one ? FOLD_ROW : FOLD_COLUMNS);
    f.pieces = f.width ? (f.p.n + f.width - 1) / f.width : 0;
    f.spans = f.p.again.count * (f.p.one ? f.pieces : 1);
    f.nb = f.p.kept.count * (f.p.one ? 1 : f.p.n);
    const int64_t na = f.p.n * f.p.rows.count;
    f.blocks = tp__most(na / FOLD_BLOCK, f.p.one ? 1 : f.spans / FOLD_TERMS);
    f.blocks = tp__least(f.blocks, tp__least(f.spans, f.nb ? FOLD_SCRATCH / f.nb : 1));
    f.blocks = tp__most(f.blocks, 1);
    f.block = (f.spans + f.blocks - 1) / f.blocks;
    if (f.block > 0) f.blocks = (f.spans + f.block - 1) / f.block;
    return f;
}

size_t tp__fold_work(const tp_view *a, const tp_view *b, tp_dtype dt)
{
    const tp_fold_split f = tp__fold(a, b);
    return f.blocks > 1 ? (size_t)(f.blocks * f.nb) * tp_dtype_size(dt == TP_F64 ? TP_F64 : TP_F32)
                        : 0;
}
