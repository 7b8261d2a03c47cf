/* ref_map.h - attention over maps in plain ops, with key lists that follow the definition. */
#ifndef REF_MAP_H
#define REF_MAP_H

#include <tapegrad/tapegrad.h>

tp_tensor ref_window_attention(tp_tape *T, tp_window_in in, tp_window_attn_cfg cfg);

tp_tensor ref_lsla_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor scale,
                             tp_tensor inner, tp_tensor outer, tp_lsla_attn_cfg cfg);

#endif
