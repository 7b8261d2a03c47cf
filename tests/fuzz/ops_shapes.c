/* ops_shapes.c - instructions of fuzz_ops that move elements: shape and index ops. */
#define TP_NO_SITE /* errors name the instruction (run in fuzz_ops.c), not a line here */
#include "ops_fuzzer.h"

/* ---- shape ---- */

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

/* Draws several tensors of one shape, unless a byte changes the size of `axis`. */
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
    const int axis = ops_axis(e), n = many(e, axis, x);
    return tp_concat_n(ops_tape(e), axis, n, x);
}

static tp_tensor stack(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_tensor x[MANY];
    const int axis = ops_axis(e), n = many(e, axis, x);
    return tp_stack_n(ops_tape(e), axis, n, x);
}

static tp_tensor split(ops_env *e, const ops_row *r)
{
    (void)r;
    enum { PARTS = 64 };
    tp_tensor y[PARTS] = { TP_NONE };
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e), n = ops_int(e);
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

/* Mostly an axis that can be dropped. */
static tp_tensor squeeze(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const tp_shape s = axis > -9 && axis < 9 ? ops_with(x.s, axis, 1) : x.s;
    return tp_squeeze(ops_tape(e), ops_flag(e) ? x.t : ops_input(e, s), axis);
}

static tp_tensor split_sizes(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_tensor y[4] = { TP_NONE };
    int64_t sizes[4];
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e), n = 1 + ops_byte(e) % 4;
    int64_t left = axis > -9 && axis < 9 ? ops_dim(x.s, axis) : 0;
    for (int i = 0; i < n; i++) { /* the last mostly takes the rest */
        sizes[i] = i < n - 1 ? ops_byte(e) % 4 : ops_near(e, left);
        left = (int64_t)((uint64_t)left - (uint64_t)sizes[i]);
    }
    tp_split_sizes(ops_tape(e), x.t, axis, n, sizes, y);
    return y[n - 1];
}

static tp_tensor chunk(ops_env *e, const ops_row *r)
{
    (void)r;
    enum { PARTS = 64 };
    tp_tensor y[PARTS] = { TP_NONE };
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e), n = ops_int(e);
    const int parts = tp_chunk(ops_tape(e), x.t, axis, n > PARTS ? PARTS : n, y);
    return y[parts > 0 ? parts - 1 : 0];
}

static tp_tensor pad_nd(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const uint8_t mode = ops_byte(e);
    tp_pad_cfg cfg = { .mode = (tp_pad_mode)(mode < 250 ? mode % 4 : mode),
                       .value = ops_number(e) };
    for (int i = 0; i < x.s.ndim && i < TP_MAX_DIMS; i++) {
        cfg.before[i] = ops_near(e, ops_byte(e) % 4);
        cfg.after[i] = ops_near(e, ops_byte(e) % 4);
    }
    return tp_pad_nd(ops_tape(e), x.t, cfg);
}

static tp_tensor repeat(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    tp_shape times = x.s;
    for (int i = 0; i < times.ndim && i < TP_MAX_DIMS; i++)
        times.dim[i] = ops_near(e, 1 + ops_byte(e) % 3);
    return tp_repeat(ops_tape(e), x.t, ops_byte(e) < 200 ? times : ops_shape(e));
}

/* ---- index ---- */

static tp_tensor embedding(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick table = ops_map(e, 2);
    const tp_tensor ids = ops_ids(e, ops_shape(e));
    return tp_embedding(ops_tape(e), table.t, ids, ops_number(e));
}

static tp_tensor embedding_pad(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick table = ops_map(e, 2);
    const tp_tensor ids = ops_ids(e, ops_shape(e));
    const double scale = ops_number(e);
    const int64_t row = ops_near(e, 1);
    return tp_embedding_pad(ops_tape(e), table.t, ids, scale, row > INT64_MIN ? row - 1 : row);
}

static tp_tensor index_select(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const tp_tensor index = ops_ids(e, TP_SHAPE(ops_size(e)));
    return tp_index_select(ops_tape(e), x.t, axis, index);
}

static tp_tensor index_add(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const int64_t n = ops_size(e);
    const tp_tensor index = ops_ids(e, TP_SHAPE(n));
    const tp_shape s = ops_with(x.s, axis < -9 ? 0 : axis, n);
    return tp_index_add(ops_tape(e), x.t, axis, index, ops_input(e, s));
}

static tp_tensor gather(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const tp_tensor index = ops_ids(e, ops_with(x.s, axis < -9 ? 0 : axis, ops_size(e)));
    return tp_gather(ops_tape(e), x.t, axis, index);
}

static tp_tensor scatter_add(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
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

static tp_tensor topk(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const int64_t k = ops_near(e, ops_dim(x.s, axis) / 2);
    tp_tensor indices;
    const tp_tensor y = tp_topk(ops_tape(e), x.t, k, axis, ops_flag(e), &indices);
    return ops_flag(e) ? indices : y;
}

const ops_row ops_shapes[] = {
    { .name = "topk", .run = topk },
    { .name = "reshape", .run = reshape },
    { .name = "permute", .run = permute },
    { .name = "concat_n", .run = concat },
    { .name = "stack_n", .run = stack },
    { .name = "split", .run = split },
    { .name = "expand", .run = expand },
    { .name = "squeeze", .run = squeeze },
    { .name = "split_sizes", .run = split_sizes },
    { .name = "chunk", .run = chunk },
    { .name = "pad_nd", .run = pad_nd },
    { .name = "repeat", .run = repeat },
    { .name = "embedding", .run = embedding },
    { .name = "embedding_pad", .run = embedding_pad },
    { .name = "index_select", .run = index_select },
    { .name = "index_add", .run = index_add },
    { .name = "gather", .run = gather },
    { .name = "scatter_add", .run = scatter_add },
    { .name = "one_hot", .run = one_hot },
    { .name = NULL },
};
