/* ops_sequence.c - draws the arguments of recurrent networks. */
#define TP_NO_SITE
#include "ops_fuzzer.h"

/* Sizes, x and the weights of one layer with `gates` gates. */
typedef struct layer {
    int64_t B, N, H;
    tp_tensor x, lengths;
    tp_rnn_weights w;
} layer;

static layer draw_layer(ops_env *e, int64_t gates)
{
    layer l = { .B = ops_size(e), .N = ops_size(e) };
    const int64_t C = ops_size(e);
    l.H = ops_size(e);
    const int64_t rows = ops_near(e, ops_times(gates, l.H));
    l.x = ops_input(e, TP_SHAPE(l.B, l.N, C));
    l.w.w_ih = ops_input(e, TP_SHAPE(rows, C));
    l.w.w_hh = ops_input(e, TP_SHAPE(rows, l.H));
    l.w.b_ih = ops_maybe(e, TP_SHAPE(rows));
    l.w.b_hh = ops_maybe(e, TP_SHAPE(rows));
    l.lengths = ops_flag(e) ? ops_ids(e, TP_SHAPE(l.B)) : TP_NONE;
    return l;
}

static tp_tensor lstm(ops_env *e, const ops_row *r)
{
    (void)r;
    const layer l = draw_layer(e, 4);
    tp_lstm_state s = { ops_maybe(e, TP_SHAPE(l.B, l.H)), ops_maybe(e, TP_SHAPE(l.B, l.H)) };
    const uint8_t how = ops_byte(e);
    const tp_tensor y = tp_lstm(ops_tape(e), l.x, l.w, how & 1 ? NULL : &s, l.lengths, how & 2);
    return how & 4 && !(how & 1) ? how & 8 ? s.h : s.c : y;
}

static tp_tensor gru(ops_env *e, const ops_row *r)
{
    (void)r;
    const layer l = draw_layer(e, 3);
    tp_tensor h = ops_maybe(e, TP_SHAPE(l.B, l.H));
    const uint8_t how = ops_byte(e);
    const tp_tensor y = tp_gru(ops_tape(e), l.x, l.w, how & 1 ? NULL : &h, l.lengths, how & 2);
    return how & 4 && !(how & 1) ? h : y;
}

const ops_row ops_sequence[] = {
    { .name = "lstm", .run = lstm },
    { .name = "gru", .run = gru },
    { .name = NULL },
};
