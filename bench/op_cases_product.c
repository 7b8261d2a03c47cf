/* op_cases_product.c - cases of bench_ops: products. */
#include "op_cases.h"

#include <stdio.h>
#include <string.h>

/* The case's name begins with the specification. */
static tp_tensor einsum(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    char spec[64];
    snprintf(spec, sizeof spec, "%.*s", (int)strcspn(k->shape, " "), k->shape);
    return tp_einsum_n(T, spec, op_inputs(k), x);
}

#define LINEAR_CASE(K, N)                                                                          \
    .mflop = 2e-6 * 2048.0 * K * N,                                                                \
    .in = { { { 2, { 2048, K } }, 0 }, { { 2, { N, K } }, 0 }, { { 1, { N } }, 0 } }

/* clang-format off */
const op_case op_cases_product[] = {
    { "linear", "2048x512->512", op_named, LINEAR_CASE(512, 512) },
    { "linear", "2048x2048->512", op_named, LINEAR_CASE(2048, 512) },
    { "linear_gelu", "2048x512->2048", op_named, .call = "linear", .args = "act=gelu", LINEAR_CASE(512, 2048) },
    { "glu_linear", "2048x512->1024 SwiGLU", op_named, .absent = 1 << 2, .args = "kind=silu", .mflop = 4e-6 * 2048 * 512 * 1024,
      .in = { { { 2, { 2048, 512 } }, 0 }, { { 2, { 1024, 512 } }, 0 }, { { 2, { 1024, 512 } }, 0 } } },
    { "einsum", "bij,bjk->bik 8x512x512x512", einsum, .mflop = 16e-6 * 512 * 512 * 512,
      .in = { { { 3, { 8, 512, 512 } }, 0 }, { { 3, { 8, 512, 512 } }, 0 } } },
    { "einsum", "bhqd,bhkd->bhqk 4x8x512x512x64", einsum, .mflop = 64e-6 * 512 * 512 * 64,
      .in = { { { 4, { 4, 8, 512, 64 } }, 0 }, { { 4, { 4, 8, 512, 64 } }, 0 } } },
    { "einsum", "bqhd,bkhd->bhqk 4x8x512x512x64", einsum, .mflop = 64e-6 * 512 * 512 * 64,
      .in = { { { 4, { 4, 512, 8, 64 } }, 0 }, { { 4, { 4, 512, 8, 64 } }, 0 } } },
    { "einsum", "bi,oij,bj->bo 256x128x128x128", einsum, .mflop = 2e-6 * 256 * 128 * 128 * 128,
      .in = { { { 2, { 256, 128 } }, 0 }, { { 3, { 128, 128, 128 } }, 0 }, { { 2, { 256, 128 } }, 0 } } },
    { "einsum", "bchw,oc->bohw 8x256x28x28 to 256", einsum, .mflop = 16e-6 * 256 * 256 * 784,
      .in = { { { 4, { 8, 256, 28, 28 } }, 0 }, { { 2, { 256, 256 } }, 0 } } },
    { "einsum", "bi,bi->b 4096x512", einsum, .mbyte = 8e-6 * 4096 * 512, .mbyte_back = 16e-6 * 4096 * 512,
      .in = { { { 2, { 4096, 512 } }, 0 }, { { 2, { 4096, 512 } }, 0 } } },
    { "einsum", "bii->bi 64x256x256", einsum, .mbyte = 8e-6 * 64 * 256, .mbyte_back = 4e-6 * 64 * 256 * 256,
      .in = { { { 3, { 64, 256, 256 } }, 0 } } },
    { 0 },
};
/* clang-format on */
