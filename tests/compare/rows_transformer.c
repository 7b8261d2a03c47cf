/* rows_transformer.c - transformer layers. */
#define TP_NO_SITE
#include <string.h>

#include "rows.h"

static tp_glu_kind kind_of(const compare_call *c)
{
    const char *kind = compare_text(c, "kind", "sigmoid");
    return strcmp(kind, "silu") == 0   ? TP_GLU_SILU
           : strcmp(kind, "gelu") == 0 ? TP_GLU_GELU
           : strcmp(kind, "relu") == 0 ? TP_GLU_RELU
                                       : TP_GLU_SIGMOID;
}

static tp_attn_cfg attn_cfg(const compare_call *c)
{
    return (tp_attn_cfg){ .heads = (int)compare_int(c, "heads", 1),
                          .kv_heads = (int)compare_int(c, "kv_heads", 0),
                          .causal = compare_flag(c, "causal"),
                          .alibi = compare_flag(c, "alibi"),
                          .keys = compare_int(c, "keys", 0) };
}

static tp_encoder_layer_cfg layer_cfg(const compare_call *c)
{
    return (tp_encoder_layer_cfg){
        .dim = compare_int(c, "dim", 1),
        .hidden = compare_int(c, "hidden", 1),
        .heads = (int)compare_int(c, "heads", 1),
        .act = strcmp(compare_text(c, "act", "relu"), "gelu") == 0 ? TP_ACT_GELU : TP_ACT_RELU,
        .norm_after = compare_flag(c, "norm_after"),
        .attention = { .attn = attn_cfg(c),
                       .rotary = compare_flag(c, "rotary"),
                       .qk_norm = compare_flag(c, "qk_norm") },
        .gated = compare_flag(c, "gated"),
        .kind = kind_of(c),
        .rms = compare_flag(c, "rms"),
        .bias_free = compare_flag(c, "bias_free"),
    };
}

static tp_tensor run_encoder_layer(compare_call *c)
{
    tp_encoder_layer_m m;
    tp_encoder_layer_init(c->P, &m, "m", layer_cfg(c));
    compare_load(c);
    return tp_encoder_layer_forward(c->T, &m, c->x[0], compare_input(c, 1));
}

static tp_tensor run_decoder_layer(compare_call *c)
{
    tp_decoder_layer_m m;
    tp_decoder_layer_init(c->P, &m, "m", layer_cfg(c));
    compare_load(c);
    return tp_decoder_layer_forward(c->T, &m, c->x[0], c->x[1], TP_NONE, compare_input(c, 2));
}

const compare_row compare_transformer_rows[] = { OWN(encoder_layer), OWN(decoder_layer), { 0 } };
