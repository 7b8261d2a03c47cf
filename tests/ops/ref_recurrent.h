/* ref_recurrent.h - tp_lstm and tp_gru written out in plain ops, step by step. */
#ifndef REF_RECURRENT_H
#define REF_RECURRENT_H

#include <tapegrad/tapegrad.h>

/* The op's arguments. Result: y [B,N,H], then the last h and the LSTM's c, each as one more step:
 * [B,N+2,H] or [B,N+1,H]. lengths, on the host, may be NULL. */
typedef struct ref_recurrent_cfg {
    const int64_t *lengths;
    bool lstm, reverse;
} ref_recurrent_cfg;

tp_tensor ref_recurrent(tp_tape *T, tp_tensor x, tp_rnn_weights w, tp_lstm_state s,
                        const ref_recurrent_cfg *cfg);

#endif
