/* op_cases_loss.c - cases of bench_ops: losses. */
#define TP_NO_SITE
#include "op_cases.h"

/* Mean losses of x[0] and x[1]. */
static tp_tensor mean(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return k->loss(T, x[0], x[1], TP_MEAN);
}

static tp_tensor smooth_l1(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_smooth_l1(T, x[0], x[1], 1.0, TP_MEAN);
}

static tp_tensor focal(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_focal(T, x[0], x[1], 0.25, 2.0, TP_SUM);
}

static tp_tensor giou(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_giou(T, x[0], x[1], 1e-7, TP_SUM);
}

static tp_tensor kl_div(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_kl_div(T, x[0], x[1], false, TP_SUM);
}

static tp_tensor cosine_similarity(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_cosine_similarity(T, x[0], x[1], 1e-8);
}

static tp_tensor triplet_margin(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_triplet_margin(T, x[0], x[1], x[2], (tp_triplet_cfg){ .margin = 1.0 }, TP_MEAN);
}

static tp_tensor ctc(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_ctc(T, x[0], x[1], TP_NONE, x[2], (tp_ctc_cfg){ .blank = 63 }, TP_MEAN);
}

tp_tensor op_cross_entropy(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_cross_entropy(T, x[0], x[1], TP_MEAN);
}

/* x and a target without a gradient. */
#define PAIR                                                                                       \
    .fixed = 2, .mbyte = 8e-6 * 4096 * 512, .mbyte_back = 12e-6 * 4096 * 512,                      \
    .in = { { { 2, { 4096, 512 } }, 0 }, { { 2, { 4096, 512 } }, 0 } }

/* clang-format off */
const op_case op_cases_loss[] = {
    { "cross_entropy", "2048x208", op_cross_entropy, .mbyte = 4e-6 * 2048 * 208,
      .in = { { { 2, { 2048, 208 } }, 0 }, { { 1, { 2048 } }, 208 } } },
    { "nll", "8192x256", mean, .loss = tp_nll, .mbyte = 12e-6 * 8192, .mbyte_back = 4e-6 * 8192 * 256,
      .in = { { { 2, { 8192, 256 } }, 0 }, { { 1, { 8192 } }, 256 } } },
    { "bce", "4096x512", mean, .loss = tp_bce, .unit = 3, PAIR },
    { "bce_logits", "4096x512", mean, .loss = tp_bce_logits, .unit = 2, PAIR },
    { "mse", "4096x512", mean, .loss = tp_mse, PAIR },
    { "smooth_l1", "4096x512", smooth_l1, PAIR },
    { "focal", "20000x80", focal, .mbyte = 4e-6 * 20000 * 80, .mbyte_back = 8e-6 * 20000 * 80,
      .in = { { { 2, { 20000, 80 } }, 0 }, { { 1, { 20000 } }, 81 } } },
    { "giou", "262144x4", giou, .fixed = 2, .unit = 3, .mbyte = 32e-6 * 262144, .mbyte_back = 48e-6 * 262144,
      .in = { { { 2, { 262144, 4 } }, 0 }, { { 2, { 262144, 4 } }, 0 } } },
    { "kl_div", "4096x512", kl_div, .unit = 2, PAIR },
    { "cosine_similarity", "4096x512", cosine_similarity, .mbyte = 8e-6 * 4096 * 512,
      .in = { { { 2, { 4096, 512 } }, 0 }, { { 2, { 4096, 512 } }, 0 } } },
    { "triplet_margin", "4096x512", triplet_margin, .mbyte = 12e-6 * 4096 * 512,
      .in = { { { 2, { 4096, 512 } }, 0 }, { { 2, { 4096, 512 } }, 0 }, { { 2, { 4096, 512 } }, 0 } } },
    { "ctc", "64x256x64, up to 50 labels", ctc, .mbyte = 4e-6 * 64 * 256 * 64,
      .in = { { { 3, { 64, 256, 64 } }, 0 }, { { 2, { 64, 50 } }, 63 }, { { 1, { 64 } }, 50 } } },
    { 0 },
};
/* clang-format on */
