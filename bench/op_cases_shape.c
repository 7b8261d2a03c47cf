/* op_cases_shape.c - cases of bench_ops: ops that move elements. */
#include "op_cases.h"

tp_tensor op_embedding(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_embedding(T, x[0], x[1], 1.0);
}

tp_tensor op_swap_middle(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_permute(T, x[0], TP_SHAPE(0, 2, 1, 3));
}

static tp_tensor flip_along(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_flip(T, x[0], k->axis);
}

static tp_tensor pad_reflect(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_pad_nd(T, x[0], (tp_pad_cfg){ { 0, 1, 1 }, { 0, 1, 1 }, TP_PAD_REFLECT, 0 });
}

static tp_tensor pad_planes(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_pad_nd(T, x[0], (tp_pad_cfg){ { 0, 0, 3, 3 }, { 0, 0, 3, 3 }, TP_PAD_REFLECT, 0 });
}

static tp_tensor repeat(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_repeat(T, x[0], TP_SHAPE(2, 2));
}

static tp_tensor interleave(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_repeat_interleave(T, x[0], 1, 4);
}

static tp_tensor select_along(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_index_select(T, x[0], k->axis, x[1]);
}

static tp_tensor add_along(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_index_add(T, x[0], k->axis, x[1], x[2]);
}

/* Elements are moved once each way. */
#define MOVES(mb) .mbyte = (mb), .mbyte_back = (mb)

/* clang-format off */
const op_case op_cases_shape[] = {
    { "embedding", "4096 of 208x512", op_embedding, .mbyte = 4e-6 * 4096 * 512, .mbyte_back = 4e-6 * 4096 * 512,
      .in = { { { 2, { 208, 512 } }, 0 }, { { 1, { 4096 } }, 208 } } },
    { "permute", "8x512x8x64 to 0213", op_swap_middle, .mbyte = 8e-6 * 4096 * 512, .mbyte_back = 8e-6 * 4096 * 512,
      .in = { { { 4, { 8, 512, 8, 64 } }, 0 } } },
    { "flip", "2048x1024 last", flip_along, .axis = -1, MOVES(8e-6 * 2048 * 1024),
      .in = { { { 2, { 2048, 1024 } }, 0 } } },
    { "flip", "8x56x56x64 columns", flip_along, .axis = 2, MOVES(8e-6 * 8 * 56 * 56 * 64),
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "pad_nd", "8x56x56x64 reflect 1", pad_reflect, MOVES(4e-6 * 8 * (56 * 56 + 58 * 58) * 64),
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "pad_nd", "8x64x56x56 reflect 3", pad_planes, MOVES(4e-6 * 512 * (56 * 56 + 62 * 62)),
      .in = { { { 4, { 8, 64, 56, 56 } }, 0 } } },
    { "repeat", "1024x512 2x2", repeat, MOVES(20e-6 * 1024 * 512), .in = { { { 2, { 1024, 512 } }, 0 } } },
    { "repeat_interleave", "1024x512 x4", interleave, MOVES(20e-6 * 1024 * 512),
      .in = { { { 2, { 1024, 512 } }, 0 } } },
    { "index_select", "64x512x64 middle", select_along, .axis = 1, MOVES(8e-6 * 64 * 512 * 64),
      .in = { { { 3, { 64, 512, 64 } }, 0 }, { { 1, { 512 } }, 512 } } },
    { "index_select", "2048x1024 last", select_along, .axis = 1, MOVES(8e-6 * 2048 * 1024),
      .in = { { { 2, { 2048, 1024 } }, 0 }, { { 1, { 1024 } }, 1024 } } },
    { "index_add", "64x512x64 middle", add_along, .axis = 1, .mbyte = 16e-6 * 64 * 512 * 64, .mbyte_back = 8e-6 * 64 * 512 * 64,
      .in = { { { 3, { 64, 512, 64 } }, 0 }, { { 1, { 512 } }, 512 }, { { 3, { 64, 512, 64 } }, 0 } } },
    { "index_add", "2048x1024 last", add_along, .axis = 1, .mbyte = 16e-6 * 2048 * 1024, .mbyte_back = 8e-6 * 2048 * 1024,
      .in = { { { 2, { 2048, 1024 } }, 0 }, { { 1, { 1024 } }, 1024 }, { { 2, { 2048, 1024 } }, 0 } } },
    { 0 },
};
/* clang-format on */
