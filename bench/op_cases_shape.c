/* op_cases_shape.c - cases of bench_ops: ops that move elements. */
#include "op_cases.h"

/* Elements are moved once each way. */
#define MOVES(mb) .mbyte = (mb), .mbyte_back = (mb)

/* clang-format off */
const op_case op_cases_shape[] = {
    { "embedding", "4096 of 208x512", op_named, .args = "scale=1", .mbyte = 4e-6 * 4096 * 512, .mbyte_back = 4e-6 * 4096 * 512,
      .in = { { { 2, { 208, 512 } }, 0 }, { { 1, { 4096 } }, 208 } } },
    { "permute", "8x512x8x64 to 0213", op_named, .args = "order=0,2,1,3", .mbyte = 8e-6 * 4096 * 512, .mbyte_back = 8e-6 * 4096 * 512,
      .in = { { { 4, { 8, 512, 8, 64 } }, 0 } } },
    { "flip", "2048x1024 last", op_named, .args = "axes=-1", MOVES(8e-6 * 2048 * 1024),
      .in = { { { 2, { 2048, 1024 } }, 0 } } },
    { "flip", "8x56x56x64 columns", op_named, .args = "axes=2", MOVES(8e-6 * 8 * 56 * 56 * 64),
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "pad_nd", "8x56x56x64 reflect 1", op_named, .args = "before=0,1,1 after=0,1,1 mode=reflect", MOVES(4e-6 * 8 * (56 * 56 + 58 * 58) * 64),
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "pad_nd", "8x64x56x56 reflect 3", op_named, .args = "before=0,0,3,3 after=0,0,3,3 mode=reflect", MOVES(4e-6 * 512 * (56 * 56 + 62 * 62)),
      .in = { { { 4, { 8, 64, 56, 56 } }, 0 } } },
    { "repeat", "1024x512 2x2", op_named, .args = "times=2,2", MOVES(20e-6 * 1024 * 512), .in = { { { 2, { 1024, 512 } }, 0 } } },
    { "repeat_interleave", "1024x512 x4", op_named, .args = "axis=1 times=4", MOVES(20e-6 * 1024 * 512),
      .in = { { { 2, { 1024, 512 } }, 0 } } },
    { "index_select", "64x512x64 middle", op_named, .args = "axis=1", MOVES(8e-6 * 64 * 512 * 64),
      .in = { { { 3, { 64, 512, 64 } }, 0 }, { { 1, { 512 } }, 512 } } },
    { "index_select", "2048x1024 last", op_named, .args = "axis=1", MOVES(8e-6 * 2048 * 1024),
      .in = { { { 2, { 2048, 1024 } }, 0 }, { { 1, { 1024 } }, 1024 } } },
    { "index_add", "64x512x64 middle", op_named, .args = "axis=1", .mbyte = 16e-6 * 64 * 512 * 64, .mbyte_back = 8e-6 * 64 * 512 * 64,
      .in = { { { 3, { 64, 512, 64 } }, 0 }, { { 1, { 512 } }, 512 }, { { 3, { 64, 512, 64 } }, 0 } } },
    { "index_add", "2048x1024 last", op_named, .args = "axis=1", .mbyte = 16e-6 * 2048 * 1024, .mbyte_back = 8e-6 * 2048 * 1024,
      .in = { { { 2, { 2048, 1024 } }, 0 }, { { 1, { 1024 } }, 1024 }, { { 2, { 2048, 1024 } }, 0 } } },
    { 0 },
};
/* clang-format on */
