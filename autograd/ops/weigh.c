/* weigh.c - weights of examples for the results of any loss, made of other ops. */
#include "autograd/nodes.h"
#include "autograd/ops/op_inner.h"
#include "autograd/tape.h"

/* The view of an input; NULL with T failed. */
static const tp_view *view_of(tp_tape *T, tp_tensor x, const char *what)
{
    const tp_node *n = tp_ok(T) ? tp__node(T, x, what) : NULL;
    return n ? &n->view : NULL;
}

static bool leads(const tp_view *w, const tp_view *x)
{
    bool ok = w->ndim <= x->ndim;
    for (int i = 0; ok && i < w->ndim; i++) ok = w->dim[i] == x->dim[i];
    return ok;
}

static void refuse_weights(tp_tape *T, const tp_view *x, const tp_view *w)
{
    char a[80] = "", b[80] = "";
    tp__print_shape(a, sizeof a, x->ndim, x->dim);
    tp__print_shape(b, sizeof b, w->ndim, w->dim);
    tp__fail(
        T, TP_E_SHAPE,
        "weigh: weights %s must have the leading axes of the losses %s, which a loss gives with "
        "TP_EACH",
        b, a);
}

static bool check(tp_tape *T, const tp_view *x, const tp_view *w, const tp_view *t)
{
    char a[80] = "", b[80] = "";
    if (t) tp__print_shape(a, sizeof a, t->ndim, t->dim);
    tp__print_shape(b, sizeof b, w->ndim, w->dim);
    if (!tp_is_float(x->dtype))
        tp__fail(T, TP_E_DTYPE, "weigh: losses are floats, not %s", tp_dtype_name(x->dtype));
    else if (!leads(w, x))
        refuse_weights(T, x, w);
    else if (t && tp_is_float(t->dtype))
        tp__fail(T, TP_E_DTYPE, "weigh: the target is of integers or TP_NONE, not %s",
                 tp_dtype_name(t->dtype));
    else if (t && (t->ndim != w->ndim || !leads(t, w)))
        tp__fail(T, TP_E_SHAPE, "weigh: the target %s and the weights %s differ in shape", a, b);
    return tp_ok(T);
}

/* The weights as constants in the losses' dtype, 0 for what was not counted, with as many axes. */
static tp_tensor own_weights(tp_tape *T, const tp_view *x, const tp_view *w, tp_tensor weights,
                             tp_tensor target)
{
    tp_shape s = tp__view_shape(w);
    while (s.ndim < x->ndim) s.dim[s.ndim++] = 1;
    tp_tensor own = tp_cast(T, tp_detach(T, weights), x->dtype);
    if (target.node) own = tp_where(T, tp_ge(T, target, tp_number(0)), own, tp_number(0));
    return tp_reshape(T, own, s);
}

tp_tensor tp_weigh(tp_tape *T, tp_tensor losses, tp_tensor weights, tp_tensor target,
                   tp_reduction reduction)
{
    const tp_view *x = view_of(T, losses, "weigh: input 0");
    const tp_view *w = x ? view_of(T, weights, "weigh: input 1") : NULL;
    const tp_view *t = w && target.node ? view_of(T, target, "weigh: input 2") : NULL;
    if (!tp_ok(T) || !x || !w || !check(T, x, w, t)) return TP_FAILED;
    const int64_t times = w->numel > 0 ? x->numel / w->numel : 0, all = x->numel;
    const tp_tensor own = own_weights(T, x, w, weights, target);
    const tp_tensor used = tp_ne(T, own, tp_number(0));
    const tp_tensor each = tp_where(T, used, tp_mul(T, losses, own), tp_number(0));
    if (reduction == TP_EACH) return each;
    const tp_tensor sum = tp_sum(T, each, TP_ALL);
    if (reduction == TP_SUM) return sum;
    if (reduction == TP_MEAN_ALL) return tp_scale(T, sum, all > 0 ? 1.0 / (double)all : 0.0);
    const tp_tensor total = tp_scale(T, tp_sum(T, own, TP_ALL), (double)times);
    const tp_tensor none = tp_eq(T, total, tp_number(0));
    return tp_where(T, none, tp_number(0), tp_div(T, sum, tp_where(T, none, tp_number(1), total)));
}
