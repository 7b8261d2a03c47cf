/* nn/recurrent.h - LSTM and gated recurrent units of several layers. See nn.h. */
#ifndef TAPEGRAD_NN_RECURRENT_H
#define TAPEGRAD_NN_RECURRENT_H

#include <tapegrad/base.h>
#include <tapegrad/ops/sequence.h>
#include <tapegrad/params.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_RNN_LAYERS = 8 }; /* the most layers of a module */

typedef struct tp_rnn_cfg {
    int64_t in, hidden;
    int layers;         /* 0 means 1 */
    bool bidirectional; /* a second direction reads each sequence from its end */
    bool bias_free;     /* no "bias_ih_lk", "bias_hh_lk" */
    double dropout;     /* of the results of all layers but the last, in training */
} tp_rnn_cfg;

/* torch.nn.LSTM and torch.nn.GRU with batch_first, without proj_size. Layer k: "weight_ih_lk"
 * [G*hidden,in], "weight_hh_lk" [G*hidden,hidden], "bias_ih_lk", "bias_hh_lk" [G*hidden], G = 4 and
 * 3; those of the second direction end with "_reverse". A later layer reads the results of both
 * directions side by side. Initial values are uniform in +-1/sqrt(hidden). */
typedef struct tp_lstm_m {
    const char *path;
    tp_rnn_cfg cfg;
    tp_rnn_weights w[TP_RNN_LAYERS][2]; /* of each layer: forward, reverse */
} tp_lstm_m;
typedef struct tp_gru_m {
    const char *path;
    tp_rnn_cfg cfg;
    tp_rnn_weights w[TP_RNN_LAYERS][2];
} tp_gru_m;
TP_API void tp_lstm_init(tp_params *P, tp_lstm_m *m, const char *name, tp_rnn_cfg cfg);
TP_API void tp_gru_init(tp_params *P, tp_gru_m *m, const char *name, tp_rnn_cfg cfg);

/* x [B,N,in] -> [B,N,hidden], or [B,N,2*hidden] of both directions. *state holds the first states
 * [layers,B,hidden], with both directions [2*layers,B,hidden], forward before reverse in each
 * layer, and receives the last ones; TP_NONE and NULL as in tp_lstm. lengths, an integer [B] or
 * TP_NONE, acts as packed sequences do in PyTorch, but may be 0 and unsorted. */
TP_API tp_tensor tp_lstm_forward(tp_tape *T, const tp_lstm_m *m, tp_tensor x, tp_lstm_state *state,
                                 tp_tensor lengths);
TP_API tp_tensor tp_gru_forward(tp_tape *T, const tp_gru_m *m, tp_tensor x, tp_tensor *h,
                                tp_tensor lengths);

#ifndef TP_NO_SITE
#include <tapegrad/sites/nn/recurrent.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
