/* ops_rows.c - one row for every function of tapegrad/ops/: fuzz_ops runs it, test_fuzz_corpus compares the
 * rows with the header. */
#define TP_NO_SITE /* the functions themselves are named here, not the macros */
#include <string.h>

#include "ops_fuzzer.h"

/* ---- signatures that many ops share ---- */

static tp_tensor one(ops_env *e, const ops_row *r)
{
    return r->one(ops_tape(e), ops_any(e).t);
}

/* One operand has the shape of the other, or lacks its first axis, or has size 1 on an axis, or both do on
 * different axes; or one is a number. */
static tp_tensor two(ops_env *e, const ops_row *r)
{
    ops_pick a = ops_any(e);
    const uint8_t b = ops_byte(e);
    tp_shape s = a.s;
    if (b & 1) s = ops_with(s, b >> 4 & 3, 1);
    if ((b & 6) == 2 && s.ndim > 0 && s.ndim <= TP_MAX_DIMS)
        memmove(s.dim, s.dim + 1, (size_t)--s.ndim * sizeof *s.dim);
    if ((b & 14) == 12) a.t = ops_input(e, ops_with(a.s, b >> 6, 1));
    tp_tensor other = (b & 14) == 14 ? tp_number(ops_number(e)) : ops_input(e, s);
    return b & 8 ? r->two(ops_tape(e), other, a.t) : r->two(ops_tape(e), a.t, other);
}

static tp_tensor along(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    return r->axis(ops_tape(e), x.t, ops_axis(e));
}

static tp_tensor number(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    return r->number(ops_tape(e), x.t, ops_number(e));
}

/* clang-format off */
#define ONE(NAME)    { .name = #NAME, .run = one, .one = tp_##NAME }
#define TWO(NAME)    { .name = #NAME, .run = two, .two = tp_##NAME }
#define ALONG(NAME)  { .name = #NAME, .run = along, .axis = tp_##NAME }
#define NUMBER(NAME) { .name = #NAME, .run = number, .number = tp_##NAME }
#define LOSS(NAME)   { .name = #NAME, .run = ops_loss, .loss = tp_##NAME }
#define OWN(NAME)    { .name = #NAME, .run = ops_##NAME }
/* clang-format on */

/* New rows go at the end, because the inputs of the corpus refer to rows by index. */
const ops_row ops_rows[] = {
    TWO(add),
    TWO(sub),
    TWO(mul),
    TWO(div),
    NUMBER(scale),
    ONE(neg),
    ONE(exp),
    ONE(log),
    ONE(sqrt),
    ONE(square),
    ONE(abs),
    ONE(relu),
    ONE(gelu),
    ONE(gelu_tanh),
    ONE(quick_gelu),
    ONE(hardswish),
    ONE(silu),
    ONE(sigmoid),
    ONE(tanh),
    OWN(clamp),
    OWN(cast),
    OWN(where),
    ALONG(sum),
    ALONG(mean),
    ALONG(max),
    ALONG(argmax),
    ALONG(logsumexp),
    OWN(reshape),
    OWN(permute),
    OWN(slice),
    { .name = "concat_n", .run = ops_concat },
    OWN(split),
    { .name = "stack_n", .run = ops_stack },
    OWN(expand),
    OWN(pad),
    OWN(roll),
    OWN(embedding),
    OWN(gather),
    OWN(scatter_add),
    OWN(one_hot),
    OWN(matmul),
    OWN(matmul_t),
    OWN(linear),
    OWN(layernorm),
    OWN(rmsnorm),
    OWN(batchnorm),
    OWN(instancenorm),
    OWN(weight_standardize),
    ONE(softmax),
    ONE(log_softmax),
    NUMBER(dropout),
    NUMBER(drop_path),
    OWN(dropout_add),
    { .name = "depthwise_conv1d", .run = ops_conv, .depthwise = tp_depthwise_conv1d },
    { .name = "depthwise_conv2d", .run = ops_conv, .depthwise = tp_depthwise_conv2d },
    { .name = "conv2d", .run = ops_conv2d },
    { .name = "max_pool2d", .run = ops_pool, .pool = tp_max_pool2d },
    { .name = "avg_pool2d", .run = ops_pool, .pool = tp_avg_pool2d },
    { .name = "interpolate", .run = ops_interpolate },
    { .name = "attention", .run = ops_attention },
    { .name = "rel_attention", .run = ops_rel_attention },
    { .name = "chunk_project", .run = ops_chunk_project },
    { .name = "ls_attention", .run = ops_ls_attention },
    { .name = "window_attention_2d", .run = ops_window },
    { .name = "lsla_attention", .run = ops_lsla },
    OWN(cross_entropy),
    OWN(cross_entropy_smooth),
    LOSS(bce_logits),
    OWN(focal),
    OWN(smooth_l1),
    LOSS(mse),
    ONE(mish),
    ONE(softplus),
    ONE(expm1),
    ONE(log1p),
    ONE(reciprocal),
    ONE(rsqrt),
    ONE(floor),
    ONE(round),
    ONE(sign),
    NUMBER(leaky_relu),
    NUMBER(elu),
    OWN(lstm),
    OWN(gru),
    TWO(pow),
    TWO(maximum),
    TWO(minimum),
    OWN(glu),
    OWN(glu_linear),
    OWN(rotary),
    ALONG(prod),
    ALONG(min),
    ALONG(argmin),
    { .name = "var", .run = ops_spread, .spread = tp_var },
    { .name = "std", .run = ops_spread, .spread = tp_std },
    OWN(norm),
    ALONG(any),
    ALONG(all),
    LOSS(bce),
    LOSS(soft_margin),
    OWN(kl_div),
    OWN(poisson_nll),
    { .name = "hinge", .run = ops_margin_loss, .margin = tp_hinge },
    { .name = "hinge_embedding", .run = ops_margin_loss, .margin = tp_hinge_embedding },
    OWN(margin_ranking),
    OWN(nll),
    OWN(cosine_similarity),
    OWN(cosine_embedding),
    OWN(triplet_margin),
    OWN(dice),
    OWN(ctc),
    ALONG(cumsum),
    ALONG(cumprod),
    OWN(groupnorm),
    TWO(eq),
    TWO(ne),
    TWO(lt),
    TWO(le),
    TWO(gt),
    TWO(ge),
    TWO(logical_and),
    TWO(logical_or),
    TWO(logical_xor),
    ONE(logical_not),
    ONE(isnan),
    ONE(isfinite),
    ONE(isinf),
    OWN(masked_fill),
    { .name = "einsum_n", .run = ops_einsum },
    OWN(conv1d),
    { .name = "conv_transpose1d", .run = ops_conv_transpose, .transpose = tp_conv_transpose1d },
    { .name = "conv_transpose2d", .run = ops_conv_transpose, .transpose = tp_conv_transpose2d },
    ONE(sin),
    ONE(cos),
    OWN(sort),
    OWN(argsort),
    OWN(topk),
    OWN(unsqueeze),
    OWN(squeeze),
    OWN(flatten),
    OWN(transpose),
    OWN(split_sizes),
    OWN(chunk),
    OWN(pad_nd),
    ALONG(flip),
    OWN(repeat),
    OWN(repeat_interleave),
    OWN(arange),
    OWN(linspace),
    { .name = "tril", .run = ops_triangle, .diagonal = tp_tril },
    { .name = "triu", .run = ops_triangle, .diagonal = tp_triu },
    { .name = "rand", .run = ops_random, .random = tp_rand },
    { .name = "randn", .run = ops_random, .random = tp_randn },
    { .name = "adaptive_max_pool2d", .run = ops_adaptive_pool, .adaptive = tp_adaptive_max_pool2d },
    { .name = "adaptive_avg_pool2d", .run = ops_adaptive_pool, .adaptive = tp_adaptive_avg_pool2d },
    OWN(index_select),
    OWN(index_add),
    OWN(unfold),
    OWN(fold),
    OWN(lsh_attention),
    OWN(linear_attention),
    OWN(chunk_project_kv),
    OWN(packed_attention),
    OWN(packed_project_kv),
    OWN(packed_sum),
    OWN(packed_prepend),
    OWN(embedding_pad),
    OWN(roi_align),
    OWN(giou),
    OWN(conv2d_relu),
    { .name = NULL },
};
