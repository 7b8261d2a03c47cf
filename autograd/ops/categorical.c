/* categorical.c - choices among classes by logits, made of other ops. */
#include "autograd/nodes.h"
#include "autograd/ops/op_inner.h"
#include "autograd/tape.h"

/* What the log of a probability is raised to, so that p log p of an excluded class is 0: e^least is
 * 0. */
static const double least = -1e30;

/* f32, or f64 for f64; false with T failed. */
static bool dtype_of(tp_tape *T, tp_tensor logits, const char *what, tp_dtype *dt, tp_shape *s)
{
    const tp_node *n = tp_ok(T) ? tp__node(T, logits, what) : NULL;
    if (!n) return false;
    *s = tp__view_shape(&n->view);
    *dt = n->view.dtype == TP_F64 ? TP_F64 : TP_F32;
    if (tp_is_float(n->view.dtype)) return true;
    tp__fail(T, TP_E_DTYPE, "%s: logits are floats, not %s", what, tp_dtype_name(n->view.dtype));
    return false;
}

tp_tensor tp_categorical(tp_tape *T, tp_tensor logits)
{
    tp_dtype dt;
    tp_shape s;
    if (!dtype_of(T, logits, "categorical", &dt, &s)) return TP_FAILED;
    const tp_tensor x = tp_cast(T, tp_detach(T, logits), dt);
    const tp_tensor noise = tp_log(T, tp_neg(T, tp_log(T, tp_rand(T, dt, s)))); /* negative */
    return tp_argmax(T, tp_sub(T, x, noise), -1);
}

tp_tensor tp_categorical_log_prob(tp_tape *T, tp_tensor logits, tp_tensor index)
{
    return tp_neg(T, tp_cross_entropy(T, logits, index, TP_EACH));
}

tp_tensor tp_categorical_entropy(tp_tape *T, tp_tensor logits)
{
    tp_dtype dt;
    tp_shape s;
    if (!dtype_of(T, logits, "categorical_entropy", &dt, &s)) return TP_FAILED;
    const tp_tensor lp = tp_clamp(T, tp_log_softmax(T, tp_cast(T, logits, dt)), least, 0.0);
    return tp_neg(T, tp_sum(T, tp_mul(T, tp_exp(T, lp), lp), -1));
}
