/* rows_transformer.c - gated linear units, rotary positions, grouped and sloped attention, layers. */
#define TP_NO_SITE
#include <string.h>

#include "rows.h"

static tp_tensor run_glu(compare_call *c)
{
    return tp_glu(c->T, c->x[0], (int)compare_int(c, "axis", -1));
}

static tp_glu_kind kind_of(const compare_call *c)
{
    const char *kind = compare_text(c, "kind", "sigmoid");
    return strcmp(kind, "silu") == 0   ? TP_GLU_SILU
           : strcmp(kind, "gelu") == 0 ? TP_GLU_GELU
           : strcmp(kind, "relu") == 0 ? TP_GLU_RELU
                                       : TP_GLU_SIGMOID;
}

static tp_tensor run_glu_linear(compare_call *c)
{
    return tp_glu_linear(c->T, c->x[0], c->x[1], compare_input(c, 2), compare_input(c, 3),
                         compare_input(c, 4), kind_of(c));
}

static tp_rotary_cfg rotary_cfg(const compare_call *c)
{
    return (tp_rotary_cfg){ .heads = (int)compare_int(c, "heads", 1),
                            .size = compare_int(c, "size", 0),
                            .base = compare_number(c, "base", 0.0),
                            .offset = compare_int(c, "offset", 0),
                            .interleaved = compare_flag(c, "interleaved") };
}

static tp_tensor run_rotary(compare_call *c)
{
    return tp_rotary(c->T, c->x[0], compare_input(c, 1), rotary_cfg(c));
}

static tp_attn_cfg attn_cfg(const compare_call *c)
{
    return (tp_attn_cfg){ .heads = (int)compare_int(c, "heads", 1),
                          .kv_heads = (int)compare_int(c, "kv_heads", 0),
                          .causal = compare_flag(c, "causal"),
                          .alibi = compare_flag(c, "alibi"),
                          .keys = compare_int(c, "keys", 0) };
}

static tp_tensor run_grouped_attention(compare_call *c)
{
    return tp_attention(c->T, c->x[0], c->x[1], c->x[2], compare_input(c, 3), compare_input(c, 4),
                        attn_cfg(c));
}

static tp_tensor run_lsh_attention(compare_call *c)
{
    tp_lsh_attn_cfg cfg = { .heads = (int)compare_int(c, "heads", 1),
                            .chunk = compare_int(c, "chunk", 0),
                            .rounds = (int)compare_int(c, "rounds", 0),
                            .longest = compare_int(c, "longest", 0) };
    compare_list(c, "buckets", 2, cfg.buckets);
    return tp_lsh_attention(c->T, c->x[0], c->x[1], compare_input(c, 2), compare_input(c, 3), cfg);
}

static tp_tensor run_linear_attention(compare_call *c)
{
    const char *kind = compare_text(c, "features", "elu");
    const tp_linear_attn_cfg cfg = { .heads = (int)compare_int(c, "heads", 1),
                                     .features = strcmp(kind, "elu") == 0    ? TP_FEATURES_ELU
                                                 : strcmp(kind, "relu") == 0 ? TP_FEATURES_RELU
                                                                             : TP_FEATURES_POSITIVE,
                                     .normalise = compare_flag(c, "normalise"),
                                     .scale = compare_number(c, "scale", 0.0),
                                     .eps = compare_number(c, "eps", 0.0) };
    return tp_linear_attention(c->T, c->x[0], c->x[1], c->x[2], compare_input(c, 3),
                               compare_input(c, 4), cfg);
}

static tp_tensor run_chunk_project_kv(compare_call *c)
{
    const tp_kv y = tp_chunk_project_kv(
        c->T, c->x[0], c->x[1], c->x[2], compare_input(c, 3), (int)compare_int(c, "heads", 1),
        (int)compare_int(c, "chunk", 1), (int)compare_int(c, "rank", 1));
    c->y[1] = y.v;
    c->ny = 2;
    return y.k;
}

/* The documents that input i divides; none is longer than all rows. */
static tp_packed documents(const compare_call *c, int i)
{
    return (tp_packed){ c->x[i], compare_int(c, "longest", 0) };
}

static tp_tensor run_packed_attention(compare_call *c)
{
    return tp_packed_attention(c->T, c->x[0], c->x[1], c->x[2], documents(c, 3), documents(c, 4),
                               attn_cfg(c));
}

static tp_tensor run_packed_project_kv(compare_call *c)
{
    const tp_kv y =
        tp_packed_project_kv(c->T, c->x[0], c->x[1], c->x[2], documents(c, 3),
                             (int)compare_int(c, "heads", 1), (int)compare_int(c, "rank", 1));
    c->y[1] = y.v;
    c->ny = 2;
    return y.k;
}

static tp_tensor run_packed_window_attention(compare_call *c)
{
    const int64_t window = compare_int(c, "window", 0);
    const tp_packed of = documents(c, 5);
    const tp_window_in in = { .q = c->x[0],
                              .k = c->x[1],
                              .v = c->x[2],
                              .low_k = compare_input(c, 3),
                              .low_v = compare_input(c, 4),
                              .offset = of.offset };
    return tp_window_attention_2d(c->T, in,
                                  (tp_window_attn_cfg){ .heads = (int)compare_int(c, "heads", 1),
                                                        .height = 1,
                                                        .width = of.longest,
                                                        .window = { window > 0, window },
                                                        .halo = { 0, compare_int(c, "halo", 0) } });
}

static tp_tensor run_packed_sum(compare_call *c)
{
    return tp_packed_sum(c->T, c->x[0], documents(c, 1));
}

static tp_tensor run_packed_prepend(compare_call *c)
{
    return tp_packed_prepend(c->T, c->x[0], c->x[1], documents(c, 2), NULL);
}

/* A sequence: a map of height 1. */
static tp_tensor run_window_attention_2d(compare_call *c)
{
    const int64_t window = compare_int(c, "window", 0);
    const tp_window_in in = { .q = c->x[0],
                              .k = c->x[1],
                              .v = c->x[2],
                              .low_k = compare_input(c, 3),
                              .low_v = compare_input(c, 4),
                              .mask = compare_input(c, 5),
                              .low_mask = compare_input(c, 6) };
    return tp_window_attention_2d(c->T, in,
                                  (tp_window_attn_cfg){ .heads = (int)compare_int(c, "heads", 1),
                                                        .height = 1,
                                                        .width = tp_dim(c->x[0], 1),
                                                        .window = { window > 0, window },
                                                        .halo = { 0, compare_int(c, "halo", 0) } });
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

const compare_row compare_transformer_rows[] = {
    OWN(glu),
    OWN(glu_linear),
    OWN(rotary),
    OWN(grouped_attention),
    OWN(lsh_attention),
    OWN(linear_attention),
    OWN(chunk_project_kv),
    OWN(window_attention_2d),
    OWN(packed_attention),
    OWN(packed_project_kv),
    OWN(packed_window_attention),
    OWN(packed_sum),
    OWN(packed_prepend),
    OWN(encoder_layer),
    OWN(decoder_layer),
    { 0 },
};
