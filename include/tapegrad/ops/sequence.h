/* ops/sequence.h - recurrent networks over whole sequences. See ops.h. */
#ifndef TAPEGRAD_OPS_SEQUENCE_H
#define TAPEGRAD_OPS_SEQUENCE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The weights of one layer and direction, in PyTorch's layout: w_ih [G*H,C], w_hh [G*H,H], b_ih and
 * b_hh [G*H] or TP_NONE, with G = 4 gates i, f, g, o for tp_lstm and G = 3 gates r, z, n for
 * tp_gru. Here H is the number of hidden units. */
typedef struct tp_rnn_weights {
    tp_tensor w_ih, w_hh, b_ih, b_hh;
} tp_rnn_weights;

/* The state of tp_lstm: h and c [B,H]. */
typedef struct tp_lstm_state {
    tp_tensor h, c;
} tp_lstm_state;

/* One layer of an LSTM (Hochreiter, Schmidhuber 1997; with forget gates, Gers et al. 2000) over all
 * steps of x [B,N,C] -> [B,N,H], in one op:
 *
 *     [i f g o] = w_ih x_t + b_ih + w_hh h_(t-1) + b_hh
 *     c_t = s(f) c_(t-1) + s(i) tanh(g)       h_t = s(o) tanh(c_t)       s(u) = 1 / (1 + e^-u)
 *
 * *state holds the first state, where TP_NONE means zeros, and receives the state after the last
 * step; NULL: zeros, and the last state is dropped. lengths, an integer [B] or TP_NONE, gives the
 * number of steps of each sequence: results beyond it are 0, the last state is that of the
 * sequence's own last step, and what x holds there has no influence and gets the gradient 0. With
 * reverse the steps run from the end of each sequence to its beginning; results stay at their
 * places. A length outside [0, N] is an error on the CPU and gives NaN on CUDA.
 *
 * Saves the inputs, y, the gates (4 H numbers per step) and c (H). */
TP_API tp_tensor tp_lstm(tp_tape *T, tp_tensor x, tp_rnn_weights w, tp_lstm_state *state,
                         tp_tensor lengths, bool reverse);

/* One layer of gated recurrent units (Cho et al. 2014), in the form of cuDNN and PyTorch, whose
 * reset gate acts after the product; otherwise as tp_lstm. *h [B,H] is the state.
 *
 *     r = s(w_ir x_t + b_ir + w_hr h_(t-1) + b_hr)
 *     z = s(w_iz x_t + b_iz + w_hz h_(t-1) + b_hz)
 *     n = tanh(w_in x_t + b_in + r (w_hn h_(t-1) + b_hn))       h_t = (1 - z) n + z h_(t-1)
 *
 * Saves the inputs, y, the gates and w_hn h + b_hn (4 H numbers per step together). */
TP_API tp_tensor tp_gru(tp_tape *T, tp_tensor x, tp_rnn_weights w, tp_tensor *h, tp_tensor lengths,
                        bool reverse);

#ifndef TP_NO_SITE
#include <tapegrad/sites/ops/sequence.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
