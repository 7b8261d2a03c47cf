/* nn/transformer.h - multi-head attention, gated feed-forward networks, encoder and decoder layers,
 * and decoding with cached keys and values. See nn.h, which includes this.
 *
 * Names are fairseq's. torch.nn.MultiheadAttention keeps q_proj, k_proj and v_proj as the rows
 * 0..E-1, E..2E-1 and 2E..3E-1 of in_proj_weight and in_proj_bias; split a checkpoint there. Its
 * layers call self_attn_layer_norm norm1, encoder_attn multihead_attn, encoder_attn_layer_norm
 * norm2, fc1 and fc2 linear1 and linear2, and final_layer_norm norm2 (in decoder layers norm3). */
#ifndef TAPEGRAD_NN_TRANSFORMER_H
#define TAPEGRAD_NN_TRANSFORMER_H

#include <tapegrad/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Keys and values of the tokens so far, for decoding; they are carried by the tape. Begin with {
 * .room = most tokens }; filled = 0 starts the next texts in the same buffers, with the same
 * batch. */
typedef struct tp_kv_cache {
    tp_tensor k, v; /* [B*room,G*D], made by the first call */
    int64_t room, filled;
    int64_t texts; /* set by the first call: B */
    tp_tensor of;  /* the source of k and v in cross-attention */
} tp_kv_cache;
/* Releases the memory at the next reset. */
TP_API TP_NO_LINE void tp_kv_cache_free(tp_tape *T, tp_kv_cache *c);
/* Text b continues text index[b] of before, as beam search chooses them: index integer [B'] in
 * [0, B), which may repeat and drop texts, so that B' beams can grow from one prompt. Copies all
 * room. Call it for every cache of a model, those of cross-attention included. Only while not
 * recording; a cache that holds nothing is an error. */
TP_API void tp_kv_cache_reorder(tp_tape *T, tp_kv_cache *c, tp_tensor index);

/* Multi-head attention: "q_proj", "k_proj", "v_proj", "out_proj", with or without bias. Keys and
 * values have kv_heads heads (tp_attn_cfg). */
typedef struct tp_mha_cfg {
    tp_attn_cfg attn;       /* heads and what the op reads; `keys` is the cache's */
    int64_t memory;         /* width of the source of keys and values; 0: dim */
    bool rotary;            /* rotary positions of queries and keys; not in cross-attention */
    tp_rotary_cfg position; /* of them; its heads and offset are set by the module */
    bool qk_norm;           /* RMS norm of each query and key head: "q_norm", "k_norm" weights */
} tp_mha_cfg;
typedef struct tp_mha_m {
    const char *path;
    tp_linear_m q, k, v, out;
    tp_tensor q_norm, k_norm; /* [D] */
    tp_mha_cfg cfg;
} tp_mha_m;
TP_API void tp_mha_init(tp_params *P, tp_mha_m *m, const char *name, int64_t dim, bool bias,
                        tp_mha_cfg cfg);

/* Self-attention: x [B,N,dim], mask u8 [B,N] (1 = visible) or TP_NONE -> [B,N,dim] */
TP_API tp_tensor tp_mha_forward(tp_tape *T, const tp_mha_m *m, tp_tensor x, tp_tensor mask);

/* Cross-attention: queries from x [B,N,dim], keys and values from memory [B,S,memory]; mask u8
 * [B,S] or TP_NONE -> [B,N,dim] */
TP_API tp_tensor tp_mha_cross(tp_tape *T, const tp_mha_m *m, tp_tensor x, tp_tensor memory,
                              tp_tensor mask);

/* Self-attention of the next n tokens x [B,n,dim]: adds their keys and values to the cache and
 * returns what tp_mha_forward gives for these tokens after all earlier ones. mask u8 [B,filled + n]
 * or TP_NONE. Only for a causal module, and while not recording. Fails if the cache has no room. */
TP_API tp_tensor tp_mha_decode(tp_tape *T, const tp_mha_m *m, tp_kv_cache *cache, tp_tensor x,
                               tp_tensor mask);

/* Cross-attention that keeps the projections of memory: they are computed for a cache with filled =
 * 0 and for a memory that is not the tensor of the call before. Later it may be TP_NONE, or that
 * same tensor, whose content must not change. Only while not recording. Sets the cache's room. */
TP_API tp_tensor tp_mha_cross_decode(tp_tape *T, const tp_mha_m *m, tp_kv_cache *cache, tp_tensor x,
                                     tp_tensor memory, tp_tensor mask);

/* Gated feed-forward network: dropout(down(dropout(act(gate x) * up x))), added to the residual
 * unless that is TP_NONE. names: of gate, up and down; NULL: Llama's, "gate_proj", "up_proj",
 * "down_proj". If names[1] is NULL, one weight [2 hidden,dim] holds gate and up. */
typedef struct tp_glu_mlp_m {
    const char *path;
    tp_linear_m gate, up, down;
    tp_glu_kind kind;
    double dropout;
} tp_glu_mlp_m;
TP_API void tp_glu_mlp_init(tp_params *P, tp_glu_mlp_m *m, const char *const *names, int64_t dim,
                            int64_t hidden, bool bias, tp_glu_kind kind, double dropout);
TP_API tp_tensor tp_glu_mlp_forward(tp_tape *T, const tp_glu_mlp_m *m, tp_tensor x,
                                    tp_tensor residual);

/* A layer of a transformer (Vaswani et al. 2017): attention, then a feed-forward network, each
 * added to its input. The norms are applied before them, as in ViT, Llama and fairseq's
 * normalize_before, or after the sums, as in BERT and RoBERTa. "self_attn", "self_attn_layer_norm",
 * "fc1", "fc2" (or "gate_proj", "up_proj", "down_proj"), "final_layer_norm". */
typedef struct tp_encoder_layer_cfg {
    int64_t dim, hidden;
    int heads;
    tp_act act;
    /* dropout: of both results and the hidden layer; attn_dropout: of the probabilities */
    double dropout, attn_dropout;
    bool norm_after; /* norms after the sums */
    /* of self-attention: causal, kv_heads, alibi, rotary, ...; its heads and dropout are those
     * above */
    tp_mha_cfg attention;
    bool gated; /* a gated feed-forward network of this kind; act is not used */
    tp_glu_kind kind;
    bool rms;       /* RMS norms, which have no bias */
    double eps;     /* of the norms; 0: 1e-5 */
    bool bias_free; /* neither the attention's projections nor a gated network have biases */
    int64_t memory; /* decoder layers: width of memory; 0: dim */
} tp_encoder_layer_cfg;
typedef struct tp_encoder_layer_m {
    const char *path;
    tp_encoder_layer_cfg cfg;
    tp_mha_m attention;
    tp_mlp_m mlp;                /* unless gated */
    tp_glu_mlp_m glu;            /* if gated */
    tp_layernorm_m norm1, norm2; /* without bias if rms */
} tp_encoder_layer_m;
TP_API void tp_encoder_layer_init(tp_params *P, tp_encoder_layer_m *m, const char *name,
                                  tp_encoder_layer_cfg cfg);
/* x [B,N,dim], mask u8 [B,N] (1 = visible) or TP_NONE -> [B,N,dim] */
TP_API tp_tensor tp_encoder_layer_forward(tp_tape *T, const tp_encoder_layer_m *m, tp_tensor x,
                                          tp_tensor mask);
/* The next n tokens of a causal layer, as tp_mha_decode. */
TP_API tp_tensor tp_encoder_layer_decode(tp_tape *T, const tp_encoder_layer_m *m,
                                         tp_kv_cache *cache, tp_tensor x, tp_tensor mask);

/* A decoder layer: causal self-attention, cross-attention over an encoder's result, feed-forward
 * network, as torch.nn.TransformerDecoderLayer. The encoder layer's names, and "encoder_attn",
 * "encoder_attn_layer_norm". */
typedef tp_encoder_layer_cfg tp_decoder_layer_cfg;
typedef struct tp_decoder_layer_m {
    tp_encoder_layer_m layer; /* its parts around the cross-attention */
    tp_mha_m cross;
    tp_layernorm_m norm;
} tp_decoder_layer_m;
typedef struct tp_decoder_cache {
    tp_kv_cache own, memory;
} tp_decoder_cache;
TP_API void tp_decoder_layer_init(tp_params *P, tp_decoder_layer_m *m, const char *name,
                                  tp_decoder_layer_cfg cfg);
/* x [B,N,dim], memory [B,S,memory]; mask u8 [B,N], memory_mask u8 [B,S], or TP_NONE -> [B,N,dim] */
TP_API tp_tensor tp_decoder_layer_forward(tp_tape *T, const tp_decoder_layer_m *m, tp_tensor x,
                                          tp_tensor memory, tp_tensor mask, tp_tensor memory_mask);
/* The next n tokens, as tp_mha_decode and tp_mha_cross_decode. Begin with { .own = { .room = ... }
 * }; own.filled = 0 starts the next texts, whose memory must be given. */
TP_API tp_tensor tp_decoder_layer_decode(tp_tape *T, const tp_decoder_layer_m *m,
                                         tp_decoder_cache *cache, tp_tensor x, tp_tensor memory,
                                         tp_tensor memory_mask);

#ifndef TP_NO_SITE
#include <tapegrad/sites/nn/transformer.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
