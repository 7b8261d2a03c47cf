/* rows_sequence.c - recurrent networks. Inputs: x, lengths, h, and c of the LSTM; all but x may be
 * absent. */
#define TP_NO_SITE
#include "rows.h"

static tp_rnn_cfg rnn_cfg(const compare_call *c)
{
    return (tp_rnn_cfg){ .in = compare_int(c, "in", 1),
                         .hidden = compare_int(c, "hidden", 1),
                         .layers = (int)compare_int(c, "layers", 0),
                         .bidirectional = compare_flag(c, "bidirectional"),
                         .bias_free = compare_flag(c, "bias_free") };
}

static tp_tensor run_lstm(compare_call *c)
{
    tp_lstm_m m;
    tp_lstm_init(c->P, &m, "", rnn_cfg(c));
    compare_load(c);
    tp_lstm_state s = { compare_input(c, 2), compare_input(c, 3) };
    c->y[0] = tp_lstm_forward(c->T, &m, c->x[0], &s, compare_input(c, 1));
    c->y[1] = s.h;
    c->y[2] = s.c;
    c->ny = 3;
    return c->y[0];
}

static tp_tensor run_gru(compare_call *c)
{
    tp_gru_m m;
    tp_gru_init(c->P, &m, "", rnn_cfg(c));
    compare_load(c);
    tp_tensor h = compare_input(c, 2);
    c->y[0] = tp_gru_forward(c->T, &m, c->x[0], &h, compare_input(c, 1));
    c->y[1] = h;
    c->ny = 2;
    return c->y[0];
}

const compare_row compare_sequence_rows[] = { OWN(lstm), OWN(gru), { 0 } };
