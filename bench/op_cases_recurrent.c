/* op_cases_recurrent.c - cases of bench_ops: recurrent layers. */
#include "op_cases.h"

static tp_tensor lstm(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_lstm(T, x[0], (tp_rnn_weights){ x[1], x[2], x[3], x[4] }, NULL, TP_NONE, false);
}

static tp_tensor gru(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_gru(T, x[0], (tp_rnn_weights){ x[1], x[2], x[3], x[4] }, NULL, TP_NONE, false);
}

/* 500 steps of x [B,500,C], G gates of H units. */
#define RNN_CASE(G, B, C, H)                                                                       \
    .mflop = 2e-6 * B * 500 * G * H * (C + H), .in = { { { 3, { B, 500, C } }, 0 },                \
                                                       { { 2, { G * H, C } }, 0 },                 \
                                                       { { 2, { G * H, H } }, 0 },                 \
                                                       { { 1, { G * H } }, 0 },                    \
                                                       { { 1, { G * H } }, 0 } }

/* clang-format off */
const op_case op_cases_recurrent[] = {
    { "lstm", "32x500x128 to 256", lstm, RNN_CASE(4, 32, 128, 256) },
    { "lstm", "8x500x512 to 512", lstm, RNN_CASE(4, 8, 512, 512) },
    { "lstm", "64x500x128 to 128", lstm, RNN_CASE(4, 64, 128, 128) },
    { "gru", "32x500x128 to 256", gru, RNN_CASE(3, 32, 128, 256) },
    { "gru", "8x500x512 to 512", gru, RNN_CASE(3, 8, 512, 512) },
    { "gru", "64x500x128 to 128", gru, RNN_CASE(3, 64, 128, 128) },
    { 0 },
};
/* clang-format on */
