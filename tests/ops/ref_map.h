/* ref_map.h - attention over maps in plain ops, with key lists that follow the definition. */
#ifndef REF_MAP_H
#define REF_MAP_H

#include <tapegrad/tapegrad.h>

/* Window attention's inputs in x: queries, keys, values, keys and values that every query sees,
 * table, bias of global tokens. */
static inline tp_window_in window_inputs(const tp_tensor *x)
{
    return (tp_window_in){ .q = x[0],
                           .k = x[1],
                           .v = x[2],
                           .low_k = x[3],
                           .low_v = x[4],
                           .table = x[5],
                           .global_bias = x[6] };
}

tp_tensor ref_window_attention(tp_tape *T, tp_window_in in, tp_window_attn_cfg cfg);

tp_tensor ref_lsla_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor scale,
                             tp_tensor inner, tp_tensor outer, tp_lsla_attn_cfg cfg);

#endif
