/* rotary.c - rotary positions: pair (a, b) number i of each head at position p becomes
 *
 *     (a cos t - b sin t, b cos t + a sin t)      t = p base^(-2i/size), perhaps slower
 *
 * Backward rotates by -t, so only the positions are saved. */
#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/rotary.h"

TP_KERNEL(rotary_fwd);
TP_KERNEL(rotary_bwd);
TP_WORK(rotary_work);

static tp_code check_positions(tp_infer *q)
{
    const tp_view *x = &q->x[0], *p = &q->x[1];
    if (tp_absent(p)) return TP_OK;
    if ((p->ndim == 1 && p->dim[0] == x->dim[1]) ||
        (p->ndim == 2 && p->dim[0] == x->dim[0] && p->dim[1] == x->dim[1]))
        return TP_OK;
    return tp_fail(q, TP_E_SHAPE, "positions must be [N] or [B,N] = [%lld,%lld]",
                   (long long)x->dim[0], (long long)x->dim[1]);
}

static tp_code check_scaling(tp_infer *q, const tp_rotary_cfg *c)
{
    if (!(c->factor >= 0 && isfinite(c->factor)))
        return tp_fail(q, TP_E_VALUE, "factor must be positive and finite, not %g", c->factor);
    if (c->original == 0 ||
        (c->original > 0 && c->low >= 0 && c->high > c->low && isfinite(c->high)))
        return TP_OK;
    return tp_fail(q, TP_E_VALUE,
                   "original must be positive and high above low, not %lld, %g and %g",
                   (long long)c->original, c->high, c->low);
}

static tp_code rotary_shape(tp_infer *q)
{
    const tp_rotary_cfg *cfg = q->attr;
    const tp_view *x = &q->x[0];
    if (x->ndim != 3) return tp_fail(q, TP_E_SHAPE, "x must be [B,N,H*D]");
    if (cfg->heads < 1) return tp_fail(q, TP_E_VALUE, "heads must be positive, not %d", cfg->heads);
    if (x->dim[2] % cfg->heads)
        return tp_fail(q, TP_E_SHAPE, "a width of %lld does not divide into %d heads",
                       (long long)x->dim[2], cfg->heads);
    const int64_t dim = x->dim[2] / cfg->heads, size = cfg->size != 0 ? cfg->size : dim;
    if (size < 0 || size > dim || size % 2)
        return tp_fail(q, TP_E_VALUE, "size must be even and at most the head's %lld, not %lld",
                       (long long)dim, (long long)size);
    if (!(cfg->base >= 0 && isfinite(cfg->base)))
        return tp_fail(q, TP_E_VALUE, "base must be positive and finite, not %g", cfg->base);
    q->y[0] = *x;
    return check_scaling(q, cfg) == TP_OK ? check_positions(q) : TP_E_VALUE;
}

#define CFG(...) TP_ATTR(tp_rotary_cfg, .heads = __VA_ARGS__)
static const tp_gradcase rotary_cases[] = {
    { "halves", .in = { TP_DIMS(2, 5, 12) }, .attr = CFG(2) },
    { "interleaved", .in = { TP_DIMS(2, 5, 12) }, .attr = CFG(3, .interleaved = true) },
    { "part of the head", .in = { TP_DIMS(2, 3, 14) }, .attr = CFG(2, .size = 4) },
    { "part, interleaved, odd head", .in = { TP_DIMS(1, 4, 15) },
      .attr = CFG(3, .size = 2, .interleaved = true) },
    { "positions of all", .in = { TP_DIMS(3, 4, 8), TP_DIMS(4) }, .below = { 0, 1000000 },
      .attr = CFG(1, .offset = 3) },
    { "positions of each", .in = { TP_DIMS(3, 4, 8), TP_DIMS(3, 4) }, .below = { 0, 50 },
      .attr = CFG(2, .base = 500.0, .interleaved = true) },
    { "slower", .in = { TP_DIMS(2, 5, 12) }, .attr = CFG(2, .factor = 4.0, .offset = 7) },
    { "slower, by turns", .in = { TP_DIMS(2, 5, 32) },
      .attr = CFG(1, .factor = 8.0, .low = 1.0, .high = 4.0, .original = 64, .offset = 9) },
    { "packs", .in = { TP_DIMS(2, 3, 96) }, .attr = CFG(2, .size = 32, .offset = 100000) },
    { "packs, interleaved", .in = { TP_DIMS(2, 9, 64) }, .attr = CFG(1, .interleaved = true) },
    { "several ranges", .in = { TP_DIMS(3, 21, 64) }, .attr = CFG(2) },
    { "no tokens", .in = { TP_DIMS(2, 0, 8) }, .attr = CFG(2) },
    { "no width", .in = { TP_DIMS(2, 3, 0) }, .attr = CFG(2) },
    { 0 },
};
#undef CFG

const tp_op tp_op_rotary = {
    .name = "rotary",
    .doc = "rotary positions: pairs of each head rotated by position * base^(-2i/size)",
    .nx = 2,
    .inputs = "x, positions",
    .takes = { [1] = TP_INDICES },
    .ny = 1,
    .attr_size = sizeof(tp_rotary_cfg),
    .saves = TP_SAVE_X(1),
    .optional = 1u << 1,
    .shape = rotary_shape,
    .forward = TP_KERNELS(rotary_fwd),
    .backward = TP_KERNELS(rotary_bwd),
    .work = TP_WORKS(rotary_work),
    .cases = rotary_cases,
};

tp_tensor tp_rotary(tp_tape *T, tp_tensor x, tp_tensor positions, tp_rotary_cfg cfg)
{
    return tp_apply(T, &tp_op_rotary, &cfg, x, positions);
}
