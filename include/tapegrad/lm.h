/* lm.h - the language models of the papers: configurations, parameters, forward passes (models
 * library). */
#ifndef TAPEGRAD_LM_H
#define TAPEGRAD_LM_H

#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TP_LM_MAX_LAYERS 128
/* The largest vocabulary, width, memory, window, chunk ...: products fit. */
#define TP_LM_MAX_SIZE (1 << 24)

/* ---- Transformer-LS language model (Zhu et al. 2021; official autoregressive code) ---- */
typedef struct tp_ls_lm_cfg {
    int64_t vocab, dim, hidden; /* V, d, F */
    int layers;
    int64_t mem_len;         /* cache rows, L; below the window, or 0, only with ls.attn.masked */
    tp_ls_cfg ls;            /* the attention of each layer */
    bool bias, pre_ln, gelu; /* bias: of the four projections of an attention */
    double dropout, emb_dropout;
    tp_recompute recompute;
} tp_ls_lm_cfg;

TP_API tp_ls_lm_cfg tp_ls_lm_tiny(int64_t vocab);  /* 4 layers, width 128: for a first run */
TP_API tp_ls_lm_cfg tp_ls_lm_small(int64_t vocab); /* 12 layers, width 512: the paper's 44M */

/* Part "block", h [B,M,d] -> [B,M,d]; its configuration is that of the model. with: a tp_tensor
 * [3], the cache [B,L,d], all of whose rows are real, and the tables as in tp_ls_context. h and
 * cache are raw layer inputs. m must live until backward if the block recomputes. */
typedef struct tp_ls_block {
    const char *path;
    bool pre_ln;
    double dropout;
    tp_recompute recompute;
    tp_ls_attn_m attn;
    tp_layernorm_m norm1, norm2;
    tp_mlp_m ff;
} tp_ls_block;

typedef struct tp_ls_lm {
    const char *path;
    const tp_params *params;
    tp_ls_lm_cfg cfg;
    tp_tensor in_emb, out_bias; /* in_emb.weight = out_emb.weight, out_emb.bias */
    tp_tensor inv_freq;         /* pos_emb.inv_freq, f64 buffer [d/2] */
    tp_ls_block layer[TP_LM_MAX_LAYERS];
} tp_ls_lm;

/* The carried caches of one group of streams, one slot per layer, and the position tables of the
 * last geometry. `{ 0 }` starts the streams: with mem_len zero rows, as in the official code, or,
 * with ls.attn.masked, with none, growing to mem_len. Training and validation use separate states.
 * A forward that fails may have advanced only some layers: clear the state (tp_model.state_clear)
 * or read a saved one. */
typedef struct tp_ls_lm_state {
    tp_tensor cache[TP_LM_MAX_LAYERS];
    tp_tensor pos_win, pos_cmp;
} tp_ls_lm_state;

/* Declares the model, initialised by the official rule: matrices and position biases N(0, 0.02),
 * norm weights N(1, 0.02), everything else 0. An impossible cfg fails P. */
TP_API void tp_ls_lm_init(tp_params *P, tp_ls_lm *m, const char *name, tp_ls_lm_cfg cfg);

/* tokens [B,M] -> logits [B,M,V]; advances the caches. If M is not a multiple of the chunk length,
 * the segment is padded to a multiple of chunk and window, as in the official code; the padding is
 * removed from the result but stays in the caches. Otherwise an M above the window must be a
 * multiple of it. */
TP_API tp_tensor tp_ls_lm_forward(tp_tape *T, const tp_ls_lm *m, tp_ls_lm_state *s,
                                  tp_tensor tokens);

/* Incremental decoding of one stream: each token costs the work of one token, in constant memory.
 * The result equals, within rounding, that of running all tokens so far in segments of `segment`
 * from a fresh state. The vectors of a chunk are computed when it is complete; at the end of a
 * segment, those of the cache replace them. The decoder needs T for itself: each call resets it and
 * runs in evaluation mode without recording. The weights must not change meanwhile. */
typedef struct tp_ls_lm_decoder tp_ls_lm_decoder;
/* never NULL */
TP_API tp_ls_lm_decoder *tp_ls_lm_decoder_new(tp_tape *T, const tp_ls_lm *m, int64_t segment);
/* Feeds one token. logits receives the V logits of the next one and may be NULL. False: the tape
 * has failed. A token outside the vocabulary changes nothing; after tp_clear decoding may continue.
 * Synchronises if logits is given. */
TP_API bool tp_ls_lm_decode(tp_ls_lm_decoder *d, int64_t token, float *logits);
TP_API void tp_ls_lm_decoder_free(tp_ls_lm_decoder *d); /* before T */

/* ---- Transformer-XL (Dai et al. 2019), the baseline ---- */
typedef struct tp_txl_cfg {
    int64_t vocab, dim, hidden, d_head;
    int layers, heads;
    int64_t mem_len;
    int64_t clamp;            /* largest distance looked up; <= 0: no limit */
    bool pre_ln, same_length; /* same_length: each query sees mem_len keys */
    double dropout, att_dropout;
    tp_recompute recompute;
} tp_txl_cfg;

/* Part "attn", the attention sub-layer with residual and norm, w [B,N,d] -> [B,N,d]; its
 * configuration is that of the model, whose layers all share the biases [H,d_head]. with: a
 * tp_tensor [2], the memory [B,L,d], and the table [L+N,d] by increasing distance. m must live
 * until backward if it recomputes. */
typedef struct tp_txl_attn {
    const char *path;
    bool pre_ln;
    tp_recompute recompute;
    double dropout;
    tp_attn_cfg cfg;
    tp_tensor r_w_bias, r_r_bias;
    tp_linear_m qkv_net, o_net, r_net; /* qkv_net [3 H D,d] */
    tp_layernorm_m norm;
} tp_txl_attn;

typedef struct tp_txl_layer {
    const char *path;
    tp_txl_attn attn;
    tp_mlp_m ff;
    tp_layernorm_m ff_norm;
} tp_txl_layer;
/* tokens [B,N] -> logits [B,N,V]; advances the memory, which is initially empty. Initialised by the
 * official rule. */
typedef struct tp_txl {
    const char *path;
    const tp_params *params;
    tp_txl_cfg cfg;
    tp_tensor emb, out_bias, r_w_bias, r_r_bias, inv_freq;
    tp_txl_layer layer[TP_LM_MAX_LAYERS];
} tp_txl;
typedef struct tp_txl_state {
    tp_tensor mem[TP_LM_MAX_LAYERS + 1]; /* input of each layer, and the final output */
    tp_tensor pos;
} tp_txl_state;

/* Both models as constants for the table of models (model.h). */
extern TP_API const tp_model tp_model_ls_lm, tp_model_txl;

#ifndef TP_NO_SITE
#define tp_ls_lm_forward(T, ...) tp_ls_lm_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
