/* op_cases_loss.c - cases of bench_ops: losses, means where no reduction is named. */
#include "op_cases.h"

/* x and a target without a gradient. */
#define PAIR                                                                                       \
    .fixed = 2, .mbyte = 8e-6 * 4096 * 512, .mbyte_back = 12e-6 * 4096 * 512,                      \
    .in = { { { 2, { 4096, 512 } }, 0 }, { { 2, { 4096, 512 } }, 0 } }

/* clang-format off */
const op_case op_cases_loss[] = {
    { "cross_entropy", "2048x208", op_named, .mbyte = 4e-6 * 2048 * 208,
      .in = { { { 2, { 2048, 208 } }, 0 }, { { 1, { 2048 } }, 208 } } },
    { "nll", "8192x256", op_named, .mbyte = 12e-6 * 8192, .mbyte_back = 4e-6 * 8192 * 256,
      .in = { { { 2, { 8192, 256 } }, 0 }, { { 1, { 8192 } }, 256 } } },
    { "bce", "4096x512", op_named, .unit = 3, PAIR },
    { "bce_logits", "4096x512", op_named, .unit = 2, PAIR },
    { "mse", "4096x512", op_named, PAIR },
    { "smooth_l1", "4096x512", op_named, .args = "beta=1", PAIR },
    { "focal", "20000x80", op_named, .args = "alpha=0.25 gamma=2 reduction=sum", .mbyte = 4e-6 * 20000 * 80, .mbyte_back = 8e-6 * 20000 * 80,
      .in = { { { 2, { 20000, 80 } }, 0 }, { { 1, { 20000 } }, 81 } } },
    { "giou", "262144x4", op_named, .args = "eps=1e-7 reduction=sum", .fixed = 2, .unit = 3, .mbyte = 32e-6 * 262144, .mbyte_back = 48e-6 * 262144,
      .in = { { { 2, { 262144, 4 } }, 0 }, { { 2, { 262144, 4 } }, 0 } } },
    { "kl_div", "4096x512", op_named, .args = "reduction=sum", .unit = 2, PAIR },
    { "cosine_similarity", "4096x512", op_named, .args = "eps=1e-8", .mbyte = 8e-6 * 4096 * 512,
      .in = { { { 2, { 4096, 512 } }, 0 }, { { 2, { 4096, 512 } }, 0 } } },
    { "triplet_margin", "4096x512", op_named, .args = "margin=1", .mbyte = 12e-6 * 4096 * 512,
      .in = { { { 2, { 4096, 512 } }, 0 }, { { 2, { 4096, 512 } }, 0 }, { { 2, { 4096, 512 } }, 0 } } },
    { "ctc", "64x256x64, up to 50 labels", op_named, .absent = 1 << 2, .args = "blank=63", .mbyte = 4e-6 * 64 * 256 * 64,
      .in = { { { 3, { 64, 256, 64 } }, 0 }, { { 2, { 64, 50 } }, 63 }, { { 1, { 64 } }, 50 } } },
    { 0 },
};
/* clang-format on */
