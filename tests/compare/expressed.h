/* expressed.h - functions of PyTorch without an op here because other ops express them.
 * EXPRESSED(F) is a list of F(NAME, PyTorch's name, expression in x, y and z on the tape T):
 * op_docs prints it in docs/ops.md, and run_calls computes it for the comparison with PyTorch. */
#ifndef EXPRESSED_H
#define EXPRESSED_H

/* clang-format off */
#define EXPRESSED(F) \
    F(ceil,        "torch.ceil(x)",            tp_neg(T, tp_floor(T, tp_neg(T, x)))) \
    F(trunc,       "torch.trunc(x)", \
        tp_mul(T, tp_sign(T, x), tp_floor(T, tp_abs(T, x)))) \
    F(log2,        "torch.log2(x)",            tp_scale(T, tp_log(T, x), 1 / log(2.0))) \
    F(log10,       "torch.log10(x)",           tp_scale(T, tp_log(T, x), 1 / log(10.0))) \
    F(exp2,        "torch.exp2(x)",            tp_exp(T, tp_scale(T, x, log(2.0)))) \
    F(tan,         "torch.tan(x)",             tp_div(T, tp_sin(T, x), tp_cos(T, x))) \
    F(sinh,        "torch.sinh(x)", \
        tp_scale(T, tp_sub(T, tp_expm1(T, x), tp_expm1(T, tp_neg(T, x))), 0.5)) \
    F(cosh,        "torch.cosh(x)", \
        tp_scale(T, tp_add(T, tp_exp(T, x), tp_exp(T, tp_neg(T, x))), 0.5)) \
    F(remainder,   "torch.remainder(x, y)", \
        tp_sub(T, x, tp_mul(T, y, tp_floor(T, tp_div(T, x, y))))) \
    F(hypot,       "torch.hypot(x, y)", \
        tp_sqrt(T, tp_add(T, tp_square(T, x), tp_square(T, y)))) \
    F(logaddexp,   "torch.logaddexp(x, y)", \
        tp_add(T, tp_maximum(T, x, y), tp_log1p(T, \
            tp_exp(T, tp_neg(T, tp_abs(T, tp_sub(T, x, y))))))) \
    F(lerp,        "torch.lerp(x, y, z)",      tp_add(T, x, tp_mul(T, z, tp_sub(T, y, x)))) \
    F(addcmul,     "torch.addcmul(x, y, z)",   tp_add(T, x, tp_mul(T, y, z))) \
    F(addcdiv,     "torch.addcdiv(x, y, z)",   tp_add(T, x, tp_div(T, y, z))) \
    F(relu6,       "F.relu6(x)",               tp_clamp(T, x, 0, 6)) \
    F(hardtanh,    "F.hardtanh(x)",            tp_clamp(T, x, -1, 1)) \
    F(hardsigmoid, "F.hardsigmoid(x)", \
        tp_clamp(T, tp_add(T, tp_scale(T, x, 1.0 / 6), 0.5), 0, 1)) \
    F(logsigmoid,  "F.logsigmoid(x)",          tp_neg(T, tp_softplus(T, tp_neg(T, x)))) \
    F(prelu,       "F.prelu(x, y)", \
        tp_add(T, tp_relu(T, x), tp_mul(T, y, tp_minimum(T, x, 0)))) \
    F(selu,        "F.selu(x)", \
        tp_scale(T, tp_elu(T, x, 1.6732632423543772), 1.0507009873554805)) \
    F(celu,        "F.celu(x, 2)", \
        tp_scale(T, tp_elu(T, tp_scale(T, x, 1.0 / 2), 1), 2)) \
    F(softsign,    "F.softsign(x)",            tp_div(T, x, tp_add(T, 1, tp_abs(T, x)))) \
    F(tanhshrink,  "F.tanhshrink(x)",          tp_sub(T, x, tp_tanh(T, x))) \
    F(softshrink,  "F.softshrink(x, 0.5)", \
        tp_mul(T, tp_sign(T, x), tp_relu(T, tp_sub(T, tp_abs(T, x), 0.5)))) \
    F(hardshrink,  "F.hardshrink(x, 0.5)",     tp_where(T, tp_gt(T, tp_abs(T, x), 0.5), x, 0)) \
    F(threshold,   "F.threshold(x, 0.1, 20)",  tp_where(T, tp_gt(T, x, 0.1), x, 20)) \
    F(softmin,     "F.softmin(x, -1)",         tp_softmax(T, tp_neg(T, x))) \
    F(normalize,   "F.normalize(x, dim=-1)", \
        tp_div(T, x, tp_maximum(T, tp_norm(T, x, 2, TP_KEEP(-1)), 1e-12))) \
    F(pairwise,    "F.pairwise_distance(x, y)", \
        tp_norm(T, tp_add(T, tp_sub(T, x, y), 1e-6), 2, -1)) \
    F(huber,       "F.huber_loss(x, y, delta=0.5)", \
        tp_scale(T, tp_smooth_l1(T, x, y, 0.5, TP_MEAN), 0.5)) \
    F(l1,          "F.l1_loss(x, y)",          tp_smooth_l1(T, x, y, 0, TP_MEAN)) \
    F(gaussian_nll, "F.gaussian_nll_loss(x, y, z)", \
        tp_scale(T, tp_mean(T, tp_add(T, tp_log(T, z), \
            tp_div(T, tp_square(T, tp_sub(T, x, y)), z)), TP_ALL), 0.5)) \
    F(eye,         "torch.eye(5)", \
        tp_one_hot(T, tp_arange(T, TP_I64, 0, 5, 1), 5, TP_F32)) \
    F(dot,         "torch.dot(x, y)",          tp_sum(T, tp_mul(T, x, y), TP_ALL)) \
    F(addmm,       "torch.addmm(z, x, y)",     tp_add(T, z, tp_matmul(T, x, y))) \
    F(bilinear,    "F.bilinear(x, y, z)",      tp_einsum(T, "bi,oij,bj->bo", x, z, y)) \
    F(cdist,       "torch.cdist(x, y)", \
        tp_norm(T, tp_sub(T, tp_unsqueeze(T, x, 1), y), 2, -1)) \
    F(median,      "torch.median(x, -1)", \
        tp_slice(T, tp_topk(T, x, (tp_dim(x, -1) + 1) / 2, -1, false, NULL), -1, \
            (tp_dim(x, -1) - 1) / 2, 1)) \
    F(bincount,    "torch.bincount(x, minlength=9)", tp_sum(T, tp_one_hot(T, x, 9, TP_F32), 0)) \
    F(embeddingbag, "nn.EmbeddingBag(x)(y)",   tp_sum(T, tp_embedding(T, x, y, 1), -2)) \
    F(pixel_shuffle, "F.pixel_shuffle(x, 2)", \
        tp_reshape(T, tp_permute(T, tp_reshape(T, x, \
            TP_SHAPE(tp_dim(x, 0), tp_dim(x, 1), tp_dim(x, 2), -1, 2, 2)), \
            TP_SHAPE(0, 1, 4, 2, 5, 3)), TP_SHAPE(tp_dim(x, 0), tp_dim(x, 1) * 2, \
            tp_dim(x, 2) * 2, -1))) \
    F(unfold_axis, "x.unfold(-1, 3, 2)", \
        tp_unfold(T, tp_unsqueeze(T, x, -1), \
            (tp_unfold_cfg){ .kernel = { 1, 3 }, .stride = { 1, 2 } })) \
    F(count_nonzero, "torch.count_nonzero(x)", tp_norm(T, x, 0, TP_ALL))
/* clang-format on */

#endif
