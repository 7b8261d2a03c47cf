/* op_cases_norm.c - cases of bench_ops: normalisation. */
#include "op_cases.h"

#define BATCHNORM_CASE(B, N, C)                                                                    \
    .mbyte = 12e-6 * B * N * N * C, .mbyte_back = 20e-6 * B * N * N * C,                           \
    .in = { { { 4, { B, N, N, C } }, 0 },                                                          \
            { { 1, { C } }, 0 },                                                                   \
            { { 1, { C } }, 0 },                                                                   \
            { { 1, { C } }, 0 },                                                                   \
            { { 1, { C } }, 0 } }

/* clang-format off */
const op_case op_cases_norm[] = {
    { "layernorm", "2048x512", op_named, .args = "eps=1e-5", .mbyte = 8e-6 * 2048 * 512,
      .in = { { { 2, { 2048, 512 } }, 0 }, { { 1, { 512 } }, 0 }, { { 1, { 512 } }, 0 } } },
    { "batchnorm", "8x56x56x64", op_named, .args = "momentum=0.1 eps=1e-5", BATCHNORM_CASE(8, 56, 64) },
    { "batchnorm", "8x14x14x384", op_named, .args = "momentum=0.1 eps=1e-5", BATCHNORM_CASE(8, 14, 384) },
    { "layernorm", "8x3137x48", op_named, .args = "eps=1e-5", .mbyte = 8e-6 * 8 * 3137 * 48,
      .in = { { { 3, { 8, 3137, 48 } }, 0 }, { { 1, { 48 } }, 0 }, { { 1, { 48 } }, 0 } } },
    { "layernorm", "8x3137x96", op_named, .args = "eps=1e-5", .mbyte = 8e-6 * 8 * 3137 * 96,
      .in = { { { 3, { 8, 3137, 96 } }, 0 }, { { 1, { 96 } }, 0 }, { { 1, { 96 } }, 0 } } },
    { "layernorm", "8x785x192", op_named, .args = "eps=1e-5", .mbyte = 8e-6 * 8 * 785 * 192,
      .in = { { { 3, { 8, 785, 192 } }, 0 }, { { 1, { 192 } }, 0 }, { { 1, { 192 } }, 0 } } },
    { "layernorm", "8x196x384", op_named, .args = "eps=1e-5", .mbyte = 8e-6 * 8 * 196 * 384,
      .in = { { { 3, { 8, 196, 384 } }, 0 }, { { 1, { 384 } }, 0 }, { { 1, { 384 } }, 0 } } },
    { "instancenorm", "8x14x14x384", op_named, .args = "eps=1e-5", .mbyte = 8e-6 * 8 * 14 * 14 * 384,
      .in = { { { 4, { 8, 14, 14, 384 } }, 0 }, { { 1, { 384 } }, 0 }, { { 1, { 384 } }, 0 } } },
    { "instancenorm", "8x56x56x64", op_named, .args = "eps=1e-5", .mbyte = 8e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 }, { { 1, { 64 } }, 0 }, { { 1, { 64 } }, 0 } } },
    { "groupnorm", "8x56x56x64 g32", op_named, .args = "groups=32 eps=1e-5", .mbyte = 8e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 }, { { 1, { 64 } }, 0 }, { { 1, { 64 } }, 0 } } },
    { "groupnorm", "8x14x14x512 g32", op_named, .args = "groups=32 eps=1e-5", .mbyte = 8e-6 * 8 * 14 * 14 * 512,
      .in = { { { 4, { 8, 14, 14, 512 } }, 0 }, { { 1, { 512 } }, 0 }, { { 1, { 512 } }, 0 } } },
    { "weight_standardize", "256x256x3x3", op_named, .args = "eps=1e-5", .mbyte = 8e-6 * 256 * 256 * 9,
      .in = { { { 4, { 256, 256, 3, 3 } }, 0 } } },
    { 0 },
};
/* clang-format on */
