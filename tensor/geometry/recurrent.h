/* recurrent.h - inputs and outputs of tp_lstm and tp_gru, for the ops and their kernels. */
#ifndef TP_RECURRENT_H
#define TP_RECURRENT_H

#include <tapegrad/op.h>

typedef struct tp__rnn_attr {
    bool reverse;
} tp__rnn_attr;

/* Inputs: x [B,N,C], w_ih [G*H,C], w_hh [G*H,H], b_ih, b_hh [G*H], lengths [B], h0 [B,H], and, LSTM
 * only, c0 [B,H]. */
enum {
    TP_RNN_X,
    TP_RNN_W_IH,
    TP_RNN_W_HH,
    TP_RNN_B_IH,
    TP_RNN_B_HH,
    TP_RNN_LENGTHS,
    TP_RNN_H0,
    TP_RNN_C0,
    TP_RNN_INPUTS
};

/* Outputs: y [B,N,H], h [B,H] and, for the LSTM, c [B,H]; then hidden ones for backward: 4 H
 * numbers per step (LSTM: i, f, g, o; GRU: r, z, n, w_hn h + b_hn), and the LSTM's c at each step,
 * H. Each backend chooses the order of the steps. */
enum {
    TP_RNN_Y,
    TP_RNN_H,
    TP_RNN_C,
    TP_RNN_LSTM_GATES,
    TP_RNN_CELLS,
    TP_RNN_LSTM_OUTPUTS,
    TP_RNN_GRU_GATES = TP_RNN_C,
    TP_RNN_GRU_OUTPUTS
};

typedef struct tp_rnn_sizes {
    int64_t B, N, C, H, gates; /* gates: 4 or 3 */
    bool lstm, reverse;
} tp_rnn_sizes;

static inline tp_rnn_sizes tp__rnn_sizes(const tp_call *c)
{
    const bool lstm = c->nx == TP_RNN_INPUTS;
    const int64_t *x = c->x[TP_RNN_X].dim;
    return (tp_rnn_sizes){ x[0],
                           x[1],
                           x[2],
                           c->x[TP_RNN_W_HH].dim[1],
                           lstm ? 4 : 3,
                           lstm,
                           ((const tp__rnn_attr *)c->attr)->reverse };
}

#endif
