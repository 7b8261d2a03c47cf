/* ctc.c - connectionist temporal classification (Graves et al. 2006).
 *
 * The target l of S labels is read with blanks around each label: z = _ l_0 _ l_1 _ ... _, 2S+1
 * symbols. Backward reads the logarithms of the forward variables a[t,s], the probability of all
 * paths through rows 0..t of x that end in z_s. They are stored relative to their row's largest, to
 * keep precision; that is stored beside them as a sum of two numbers. */
#include "autograd/ops/loss.h"

TP_KERNEL(ctc_fwd);
TP_KERNEL(ctc_bwd);
TP_WORK(ctc_work);

static tp_code check_lengths(tp_infer *q, int i, const char *name, int64_t B)
{
    const tp_view *v = &q->x[i];
    if (v->ndim != 1 || v->dim[0] != B)
        return tp_fail(q, TP_E_SHAPE, "%s must be [%lld], one for each row of the batch", name,
                       (long long)B);
    return TP_OK;
}

static tp_code ctc_shape(tp_infer *q)
{
    const tp__ctc_attr *a = q->attr;
    const tp_view *x = &q->x[0], *target = &q->x[1];
    const int64_t most = INT64_C(1) << 30;
    tp_code code;
    if (x->ndim != 3 || x->dim[2] == 0)
        return tp_fail(q, TP_E_SHAPE, "x must be [B,N,V], V > 0: batch, time, classes");
    if (target->ndim != 2 || target->dim[0] != x->dim[0])
        return tp_fail(q, TP_E_SHAPE, "target must be [%lld,S], padded", (long long)x->dim[0]);
    if (x->dim[1] > most || target->dim[1] > most)
        return tp_fail(q, TP_E_SHAPE, "x and target may have at most 2^30 rows and labels");
    if (!tp_absent(&q->x[2]) && (code = check_lengths(q, 2, "x_lengths", x->dim[0])) != TP_OK)
        return code;
    if ((code = check_lengths(q, 3, "target_lengths", x->dim[0])) != TP_OK) return code;
    if (a->blank < 0 || a->blank >= x->dim[2])
        return tp_fail(q, TP_E_VALUE, "blank must be in [0,%lld), not %lld", (long long)x->dim[2],
                       (long long)a->blank);
    const tp_dtype dt = tp__sum_dtype(x->dtype);
    q->y[1] = (tp_view){ .dtype = dt,
                         .ndim = 3,
                         .dim = { x->dim[0], x->dim[1], 2 * target->dim[1] + 1 } };
    q->y[2] = (tp_view){ .dtype = dt, .ndim = 3, .dim = { x->dim[0], x->dim[1] + 1, 2 } };
    if (a->reduction == TP_EACH) q->y[0] = (tp_view){ .ndim = 1, .dim = { x->dim[0] } };
    q->y[0].dtype = dt;
    return tp__check_reduction(q, a->reduction);
}

/* Log-probabilities; targets 1, 2, 2, 1, ... with repeats; lengths that leave padding. */
static void fill(int i, tp_view *v)
{
    const int64_t n = v->ndim > 1 ? v->dim[1] : 1;
    for (int64_t e = 0; e < v->numel; e++)
        if (i == 0)
            tp_st(v, e, -0.3 - (double)(e * 7 % 11) / 5.0);
        else if (i == 1)
            tp_st(v, e, 1.0 + (double)((e % n + 1) / 2 % 2));
        else if (i == 2)
            tp_st(v, e, 9.0 - (double)(e % 3));
        else
            tp_st(v, e, (double)(3 - e % 4));
}

#define ATTR(...) .attr = TP_ATTR(tp__ctc_attr, __VA_ARGS__)

static const tp_gradcase ctc_cases[] = {
    { "mean", .in = { TP_DIMS(5, 9, 4), TP_DIMS(5, 3), TP_DIMS(5), TP_DIMS(5) },
      .below = { 0, 4, 10, 4 }, .fill = fill, ATTR(.reduction = TP_MEAN) },
    { "each, last class blank", .in = { TP_DIMS(4, 9, 4), TP_DIMS(4, 3), { 0 }, TP_DIMS(4) },
      .below = { 0, 4, 0, 4 }, .fill = fill, ATTR(.blank = 3, .reduction = TP_EACH) },
    { "sum, some impossible", .in = { TP_DIMS(4, 3, 4), TP_DIMS(4, 3), { 0 }, TP_DIMS(4) },
      .below = { 0, 4, 0, 4 }, .fill = fill, ATTR(.reduction = TP_SUM, .zero_infinity = true) },
    { "wide", .in = { TP_DIMS(2, 150, 5), TP_DIMS(2, 70), { 0 }, TP_DIMS(2) },
      .below = { 0, 4, 0, 4 }, .fill = fill, ATTR(.reduction = TP_MEAN_ALL) },
    { "no rows of x", .in = { TP_DIMS(2, 0, 3), TP_DIMS(2, 0), { 0 }, TP_DIMS(2) },
      .below = { 0, 2, 0, 1 }, ATTR(.reduction = TP_SUM) },
    { "no batch", .in = { TP_DIMS(0, 4, 3), TP_DIMS(0, 2), { 0 }, TP_DIMS(0) },
      .below = { 0, 2, 0, 1 }, ATTR(.reduction = TP_MEAN) },
    { 0 },
};

const tp_op tp_op_ctc = {
    .name = "ctc",
    .doc = "-log of the probability of all alignments of a target with log-probabilities, reduced",
    .nx = 4,
    .inputs = "x, target, x_lengths, target_lengths",
    .takes = { [1] = TP_INDICES, TP_INDICES, TP_INDICES },
    .ny = 3, /* loss, forward variables, their offsets and the log-likelihood */
    .attr_size = sizeof(tp__ctc_attr),
    .saves =
        TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_X(2) | TP_SAVE_X(3) | TP_SAVE_Y(1) | TP_SAVE_Y(2),
    .optional = 1u << 2,
    .constant = 1u << 1 | 1u << 2 | 1u << 3,
    .shape = ctc_shape,
    .forward = TP_KERNELS(ctc_fwd),
    .backward = TP_KERNELS(ctc_bwd),
    .work = TP_WORKS(ctc_work),
    .cases = ctc_cases,
};

tp_tensor tp_ctc(tp_tape *T, tp_tensor x, tp_tensor target, tp_tensor x_lengths,
                 tp_tensor target_lengths, tp_ctc_cfg cfg, tp_reduction r)
{
    const tp__ctc_attr a = { cfg.blank, r, cfg.zero_infinity };
    return tp_apply(T, &tp_op_ctc, &a, x, target, x_lengths, target_lengths);
}
