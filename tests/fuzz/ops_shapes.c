/* ops_shapes.c - instructions of fuzz_ops that move elements: shape and index ops. */
#define TP_NO_SITE /* errors name the instruction (run in fuzz_ops.c), not a line here */
#include "ops_fuzzer.h"

/* ---- shape ---- */

tp_tensor ops_reshape(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const uint8_t b = ops_byte(e);
    tp_shape s = b < 64 ? TP_SHAPE(-1) : b < 128 ? TP_SHAPE(ops_dim(x.s, 0), -1) : ops_shape(e);
    if (b >= 240) s = ops_with(x.s, b & 3, -1);
    return tp_reshape(ops_tape(e), x.t, s);
}

tp_tensor ops_permute(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    tp_shape order = { .ndim = x.s.ndim };
    const uint8_t turn = ops_byte(e);
    for (int i = 0; i < order.ndim && i < TP_MAX_DIMS; i++)
        order.dim[i] = turn & 1 ? order.ndim - 1 - i : (i + turn / 2) % order.ndim;
    return tp_permute(ops_tape(e), x.t, turn < 240 ? order : ops_shape(e));
}

tp_tensor ops_slice(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const int64_t start = ops_integer(e);
    return tp_slice(ops_tape(e), x.t, axis, start, ops_integer(e));
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

tp_tensor ops_concat(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_tensor x[MANY];
    const int axis = ops_axis(e), n = many(e, axis, x);
    return tp_concat_n(ops_tape(e), axis, n, x);
}

tp_tensor ops_stack(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_tensor x[MANY];
    const int axis = ops_axis(e), n = many(e, axis, x);
    return tp_stack_n(ops_tape(e), axis, n, x);
}

tp_tensor ops_split(ops_env *e, const ops_row *r)
{
    (void)r;
    enum { PARTS = 64 };
    tp_tensor y[PARTS] = { TP_NONE };
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e), n = ops_int(e);
    tp_split(ops_tape(e), x.t, axis, n > PARTS ? PARTS : n, y);
    return y[n > 1 && n <= PARTS ? n - 1 : 0];
}

tp_tensor ops_expand(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    tp_shape s = x.s;
    for (int i = 0; i < s.ndim && i < TP_MAX_DIMS; i++)
        if (s.dim[i] == 1) s.dim[i] = ops_size(e);
    return tp_expand(ops_tape(e), x.t, ops_flag(e) ? s : ops_shape(e));
}

tp_tensor ops_pad(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const int64_t before = ops_integer(e), after = ops_integer(e);
    return tp_pad(ops_tape(e), x.t, axis, before, after, ops_number(e));
}

tp_tensor ops_roll(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    return tp_roll(ops_tape(e), x.t, axis, ops_integer(e));
}

tp_tensor ops_unsqueeze(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    return tp_unsqueeze(ops_tape(e), x.t, ops_axis(e));
}

/* An axis that can be dropped, mostly. */
tp_tensor ops_squeeze(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const tp_shape s = axis > -9 && axis < 9 ? ops_with(x.s, axis, 1) : x.s;
    return tp_squeeze(ops_tape(e), ops_flag(e) ? x.t : ops_input(e, s), axis);
}

tp_tensor ops_flatten(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int first = ops_axis(e);
    return tp_flatten(ops_tape(e), x.t, first, ops_axis(e));
}

tp_tensor ops_transpose(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int a = ops_axis(e);
    return tp_transpose(ops_tape(e), x.t, a, ops_axis(e));
}

tp_tensor ops_split_sizes(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_tensor y[4] = { TP_NONE };
    int64_t sizes[4];
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e), n = 1 + ops_byte(e) % 4;
    int64_t left = axis > -9 && axis < 9 ? ops_dim(x.s, axis) : 0;
    for (int i = 0; i < n; i++) { /* the last one takes what is left, mostly */
        sizes[i] = i < n - 1 ? ops_byte(e) % 4 : ops_near(e, left);
        left = (int64_t)((uint64_t)left - (uint64_t)sizes[i]);
    }
    tp_split_sizes(ops_tape(e), x.t, axis, n, sizes, y);
    return y[n - 1];
}

tp_tensor ops_chunk(ops_env *e, const ops_row *r)
{
    (void)r;
    enum { PARTS = 64 };
    tp_tensor y[PARTS] = { TP_NONE };
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e), n = ops_int(e);
    const int parts = tp_chunk(ops_tape(e), x.t, axis, n > PARTS ? PARTS : n, y);
    return y[parts > 0 ? parts - 1 : 0];
}

tp_tensor ops_pad_nd(ops_env *e, const ops_row *r)
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

tp_tensor ops_repeat(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    tp_shape times = x.s;
    for (int i = 0; i < times.ndim && i < TP_MAX_DIMS; i++)
        times.dim[i] = ops_near(e, 1 + ops_byte(e) % 3);
    return tp_repeat(ops_tape(e), x.t, ops_byte(e) < 200 ? times : ops_shape(e));
}

tp_tensor ops_repeat_interleave(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    return tp_repeat_interleave(ops_tape(e), x.t, axis, ops_integer(e));
}

/* ---- index ---- */

tp_tensor ops_embedding(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick table = ops_map(e, 2);
    const tp_tensor ids = ops_ids(e, ops_shape(e));
    return tp_embedding(ops_tape(e), table.t, ids, ops_number(e));
}

tp_tensor ops_embedding_pad(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick table = ops_map(e, 2);
    const tp_tensor ids = ops_ids(e, ops_shape(e));
    const double scale = ops_number(e);
    const int64_t row = ops_near(e, 1);
    return tp_embedding_pad(ops_tape(e), table.t, ids, scale, row > INT64_MIN ? row - 1 : row);
}

tp_tensor ops_index_select(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const tp_tensor index = ops_ids(e, TP_SHAPE(ops_size(e)));
    return tp_index_select(ops_tape(e), x.t, axis, index);
}

tp_tensor ops_index_add(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const int64_t n = ops_size(e);
    const tp_tensor index = ops_ids(e, TP_SHAPE(n));
    const tp_shape s = ops_with(x.s, axis < -9 ? 0 : axis, n);
    return tp_index_add(ops_tape(e), x.t, axis, index, ops_input(e, s));
}

tp_tensor ops_gather(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const tp_tensor index = ops_ids(e, ops_with(x.s, axis < -9 ? 0 : axis, ops_size(e)));
    return tp_gather(ops_tape(e), x.t, axis, index);
}

tp_tensor ops_scatter_add(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int axis = ops_axis(e);
    const tp_shape s = ops_with(x.s, axis < -9 ? 0 : axis, ops_size(e));
    const tp_tensor index = ops_ids(e, s);
    return tp_scatter_add(ops_tape(e), x.t, axis, index, ops_input(e, s));
}

tp_tensor ops_one_hot(ops_env *e, const ops_row *r)
{
    (void)r;
    const tp_tensor ids = ops_ids(e, ops_shape(e));
    const int64_t n = ops_size(e);
    return tp_one_hot(ops_tape(e), ids, n, ops_dtype(e));
}
