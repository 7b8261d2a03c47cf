/* ops_rows.c - one row for every function of ops.h: fuzz_ops runs it, test_fuzz_corpus compares the
 * rows with the header. */
#define TP_NO_SITE /* the functions themselves are named here, not the macros */
#include <string.h>

#include "ops_fuzzer.h"

/* ---- signatures of many ops ---- */

static tp_tensor one(ops_env *e, const ops_row *r)
{
    return r->one(ops_tape(e), ops_any(e).t);
}

/* The second operand has some of the first one's axes, the last ones. */
static tp_tensor two(ops_env *e, const ops_row *r)
{
    const ops_pick a = ops_any(e);
    const uint8_t b = ops_byte(e);
    tp_shape s = a.s;
    if (b & 1) s = ops_with(s, b >> 4 & 3, 1);
    if ((b & 6) == 2 && s.ndim > 0 && s.ndim <= TP_MAX_DIMS)
        memmove(s.dim, s.dim + 1, (size_t)--s.ndim * sizeof *s.dim);
    return r->two(ops_tape(e), a.t, ops_input(e, s));
}

static int draw_axis(ops_env *e)
{
    const uint8_t b = ops_byte(e);
    return b < 200 ? b % 9 - 4 : b < 224 ? TP_ALL : ops_int(e);
}

static tp_tensor along(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    return r->axis(ops_tape(e), x.t, draw_axis(e));
}

static tp_tensor chance(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    return r->chance(ops_tape(e), x.t, ops_number(e));
}

static tp_reduction draw_reduction(ops_env *e)
{
    const uint8_t b = ops_byte(e);
    return (tp_reduction)(b < 250 ? b % 4 : b);
}

static tp_tensor loss(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_any(e);
    const tp_tensor target = ops_input(e, x.s);
    return r->loss(ops_tape(e), x.t, target, draw_reduction(e));
}

/* ---- elementwise, shape ---- */

static tp_tensor scale(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    return tp_scale(ops_tape(e), x.t, ops_number(e));
}

static tp_tensor clamp(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const double lo = ops_number(e);
    return tp_clamp(ops_tape(e), x.t, lo, ops_number(e));
}

static tp_tensor cast(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    return tp_cast(ops_tape(e), x.t, ops_dtype(e));
}

static tp_tensor where(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick a = ops_any(e);
    const tp_tensor b = ops_input(e, a.s);
    return tp_where(ops_tape(e), ops_take(e, a.s, OPS_MASK).t, a.t, b);
}

static tp_tensor reshape(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const uint8_t b = ops_byte(e);
    tp_shape s = b < 64 ? TP_SHAPE(-1) : b < 128 ? TP_SHAPE(ops_dim(x.s, 0), -1) : ops_shape(e);
    if (b >= 240) s = ops_with(x.s, b & 3, -1);
    return tp_reshape(ops_tape(e), x.t, s);
}

static tp_tensor permute(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    tp_shape order = { .ndim = x.s.ndim };
    const uint8_t turn = ops_byte(e);
    for (int i = 0; i < order.ndim && i < TP_MAX_DIMS; i++)
        order.dim[i] = turn & 1 ? order.ndim - 1 - i : (i + turn / 2) % order.ndim;
    return tp_permute(ops_tape(e), x.t, turn < 240 ? order : ops_shape(e));
}

static tp_tensor slice(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = draw_axis(e);
    const int64_t start = ops_integer(e);
    return tp_slice(ops_tape(e), x.t, axis, start, ops_integer(e));
}

/* A number of tensors, of one shape but where a byte says otherwise. */
enum { MANY = TP_MAX_INPUTS + 4 };
static int many(ops_env *e, int axis, tp_tensor x[MANY])
{
    const uint8_t b = ops_byte(e);
    const int n = b < 240 ? b % 5 : b < 250 ? b - 240 + MANY - 10 : -1;
    const tp_shape s = ops_shape(e);
    for (int i = 0; i < MANY; i++) x[i] = TP_NONE;
    for (int i = 0; i < n; i++) {
        const int64_t other = ops_near(e, ops_dim(s, axis));
        x[i] = ops_input(e, axis > -9 && axis < 9 ? ops_with(s, axis, other) : s);
    }
    return n;
}

static tp_tensor concat(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_tensor x[MANY];
    const int axis = draw_axis(e), n = many(e, axis, x);
    return tp_concat_n(ops_tape(e), axis, n, x);
}

static tp_tensor stack(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_tensor x[MANY];
    const int axis = draw_axis(e), n = many(e, axis, x);
    return tp_stack_n(ops_tape(e), axis, n, x);
}

static tp_tensor split(ops_env *e, const ops_row *r)
{
    (void)r;
    enum { PARTS = 64 };
    tp_tensor y[PARTS] = { TP_NONE };
    const ops_pick x = ops_any(e);
    const int axis = draw_axis(e), n = ops_int(e);
    tp_split(ops_tape(e), x.t, axis, n > PARTS ? PARTS : n, y);
    return y[n > 1 && n <= PARTS ? n - 1 : 0];
}

static tp_tensor expand(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    tp_shape s = x.s;
    for (int i = 0; i < s.ndim && i < TP_MAX_DIMS; i++)
        if (s.dim[i] == 1) s.dim[i] = ops_size(e);
    return tp_expand(ops_tape(e), x.t, ops_flag(e) ? s : ops_shape(e));
}

static tp_tensor pad(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = draw_axis(e);
    const int64_t before = ops_integer(e), after = ops_integer(e);
    return tp_pad(ops_tape(e), x.t, axis, before, after, ops_number(e));
}

static tp_tensor roll(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = draw_axis(e);
    return tp_roll(ops_tape(e), x.t, axis, ops_integer(e));
}

/* ---- index ---- */

static tp_tensor embedding(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick table = ops_map(e, 2);
    const tp_tensor ids = ops_ids(e, ops_shape(e));
    return tp_embedding(ops_tape(e), table.t, ids, ops_number(e));
}

static tp_tensor gather(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = draw_axis(e);
    const tp_tensor index = ops_ids(e, ops_with(x.s, axis < -9 ? 0 : axis, ops_size(e)));
    return tp_gather(ops_tape(e), x.t, axis, index);
}

static tp_tensor scatter_add(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = draw_axis(e);
    const tp_shape s = ops_with(x.s, axis < -9 ? 0 : axis, ops_size(e));
    const tp_tensor index = ops_ids(e, s);
    return tp_scatter_add(ops_tape(e), x.t, axis, index, ops_input(e, s));
}

static tp_tensor one_hot(ops_env *e, const ops_row *r)
{
    (void)r;
    const tp_tensor ids = ops_ids(e, ops_shape(e));
    const int64_t n = ops_size(e);
    return tp_one_hot(ops_tape(e), ids, n, ops_dtype(e));
}

/* ---- linear algebra, norms ---- */

static tp_tensor product(ops_env *e, bool ta, bool tb, bool plain)
{
    const ops_pick a = ops_any(e);
    const int64_t k = ops_dim(a.s, ta ? -2 : -1), n = ops_size(e);
    tp_shape s = ops_flag(e) ? a.s : TP_SHAPE(1, 1);
    s = ops_with(ops_with(s, -2, tb ? n : k), -1, tb ? k : n);
    const tp_tensor b = ops_input(e, s);
    return plain ? tp_matmul(ops_tape(e), a.t, b) : tp_matmul_t(ops_tape(e), a.t, ta, b, tb);
}

static tp_tensor matmul(ops_env *e, const ops_row *r)
{
    (void)r;
    return product(e, false, false, true);
}

static tp_tensor matmul_t(ops_env *e, const ops_row *r)
{
    (void)r;
    const uint8_t b = ops_byte(e);
    return product(e, b & 1, b & 2, false);
}

static tp_tensor linear(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int64_t n = ops_size(e);
    const tp_tensor w = ops_input(e, TP_SHAPE(n, ops_dim(x.s, -1)));
    const tp_tensor b = ops_maybe(e, TP_SHAPE(n));
    const uint8_t act = ops_byte(e);
    return tp_linear(ops_tape(e), x.t, w, b, (tp_act)(act < 250 ? act % 4 : act));
}

/* x, and a weight and a bias of its last axis. */
typedef struct normed {
    ops_pick x;
    tp_shape c;
    tp_tensor w, b;
} normed;

static normed draw_normed(ops_env *e)
{
    normed n = { .x = ops_any(e) };
    n.c = TP_SHAPE(ops_dim(n.x.s, -1));
    n.w = ops_maybe(e, n.c);
    n.b = ops_maybe(e, n.c);
    return n;
}

static tp_tensor layernorm(ops_env *e, const ops_row *r)
{
    (void)r;
    const normed n = draw_normed(e);
    return tp_layernorm(ops_tape(e), n.x.t, n.w, n.b, ops_number(e));
}

static tp_tensor instancenorm(ops_env *e, const ops_row *r)
{
    (void)r;
    const normed n = draw_normed(e);
    return tp_instancenorm(ops_tape(e), n.x.t, n.w, n.b, ops_number(e));
}

static tp_tensor rmsnorm(ops_env *e, const ops_row *r)
{
    (void)r;
    const normed n = draw_normed(e);
    return tp_rmsnorm(ops_tape(e), n.x.t, n.w, ops_number(e));
}

/* The last parameters are buffers of four numbers and a counter. */
static tp_tensor batchnorm(ops_env *e, const ops_row *r)
{
    (void)r;
    const normed n = draw_normed(e);
    const tp_tensor *p = e->w[e->world].param;
    const bool buffers = ops_near(e, 1) == 1;
    const tp_tensor mean = buffers ? p[3] : ops_input(e, n.c);
    const tp_tensor var = buffers ? p[4] : ops_input(e, n.c);
    const tp_tensor batches = ops_flag(e) ? p[5] : ops_maybe(e, TP_SHAPE(1));
    const double momentum = ops_number(e);
    return tp_batchnorm(ops_tape(e), n.x.t, n.w, n.b, mean, var, batches, momentum, ops_number(e));
}

static tp_tensor weight_standardize(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick w = ops_any(e);
    const double eps = ops_number(e);
    return tp_weight_standardize(ops_tape(e), w.t, eps, ops_flag(e));
}

static tp_tensor dropout_add(ops_env *e, const ops_row *r)
{
    (void)r;
    const normed n = draw_normed(e);
    const tp_tensor residual = ops_input(e, n.x.s);
    return tp_dropout_add(ops_tape(e), n.x.t, n.b, residual, ops_number(e));
}

/* ---- losses ---- */

static tp_tensor target_of(ops_env *e, tp_shape s)
{
    if (ops_flag(e)) return ops_input(e, s);
    if (s.ndim > 0 && s.ndim <= TP_MAX_DIMS) s.ndim--;
    return ops_ids(e, s);
}

static tp_tensor cross_entropy(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = target_of(e, x.s);
    return tp_cross_entropy(ops_tape(e), x.t, target, draw_reduction(e));
}

static tp_tensor cross_entropy_smooth(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = target_of(e, x.s);
    const double smoothing = ops_number(e);
    return tp_cross_entropy_smooth(ops_tape(e), x.t, target, smoothing, draw_reduction(e));
}

static tp_tensor focal(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = ops_input(e, x.s);
    const double alpha = ops_number(e), gamma = ops_number(e);
    return tp_focal(ops_tape(e), x.t, target, alpha, gamma, draw_reduction(e));
}

static tp_tensor smooth_l1(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const tp_tensor target = ops_input(e, x.s);
    const double beta = ops_number(e);
    return tp_smooth_l1(ops_tape(e), x.t, target, beta, draw_reduction(e));
}

/* clang-format off */
#define ONE(NAME)    { .name = #NAME, .run = one, .one = tp_##NAME }
#define TWO(NAME)    { .name = #NAME, .run = two, .two = tp_##NAME }
#define ALONG(NAME)  { .name = #NAME, .run = along, .axis = tp_##NAME }
#define CHANCE(NAME) { .name = #NAME, .run = chance, .chance = tp_##NAME }
#define LOSS(NAME)   { .name = #NAME, .run = loss, .loss = tp_##NAME }
#define OWN(NAME)    { .name = #NAME, .run = NAME }
/* clang-format on */

/* New rows go to the end: the inputs of the corpus name rows by their places. */
const ops_row ops_rows[] = {
    TWO(add),
    TWO(sub),
    TWO(mul),
    TWO(div),
    OWN(scale),
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
    { .name = "concat_n", .run = concat },
    OWN(split),
    { .name = "stack_n", .run = stack },
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
    CHANCE(dropout),
    CHANCE(drop_path),
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
    { .name = NULL },
};
