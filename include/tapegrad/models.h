/* models.h - the models of the papers: configurations, parameters, forward passes (own library). */
#ifndef TAPEGRAD_MODELS_H
#define TAPEGRAD_MODELS_H

#include <tapegrad/tapegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TP_LM_MAX_LAYERS 128

/* What a training step recomputes instead of storing. */
typedef enum tp_recompute {
    TP_RECOMPUTE_NONE,
    TP_RECOMPUTE_ATTENTION,
    TP_RECOMPUTE_BLOCK
} tp_recompute;

/* ---- Transformer-LS language model (Zhu et al. 2021; official autoregressive code) ---- */
typedef struct tp_lm_cfg {
    int64_t vocab, dim, hidden; /* V, d, F */
    int layers;
    int64_t mem_len; /* cache rows, L */
    tp_ls_cfg ls;    /* heads, chunk, rank, window, options; ls.dropout = dropout */
    bool use_bias, pre_ln, gelu;
    double dropout, emb_dropout;
    tp_recompute recompute;
} tp_lm_cfg;

TP_API tp_lm_cfg tp_lm_tiny(int64_t vocab);  /* 4 layers, width 128: for a first run            */
TP_API tp_lm_cfg tp_lm_small(int64_t vocab); /* 12 layers, width 512: the paper's 44M            */
TP_API tp_lm_cfg tp_lm_large(int64_t vocab); /* 30 layers, width 512: the paper's 110M           */

typedef struct tp_ls_block {
    const char *path;
    bool pre_ln;
    double dropout;
    tp_recompute recompute;
    tp_ls_attn_m attn;
    tp_layernorm_m norm1, norm2;
    tp_mlp_m ff;
} tp_ls_block;
TP_API void tp_ls_block_init(tp_params *P, tp_ls_block *m, const char *name, const tp_lm_cfg *cfg);
/* h [B,M,d], cache [B,L,d]: raw layer inputs -> [B,M,d] */
TP_API tp_tensor tp_ls_block_forward(tp_tape *T, const tp_ls_block *m, tp_tensor h, tp_tensor cache,
                                     tp_ls_context ctx);

typedef struct tp_lm {
    const char *path;
    tp_lm_cfg cfg;
    tp_tensor in_emb, out_bias,
        inv_freq; /* in_emb.weight = out_emb.weight, out_emb.bias, pos_emb.inv_freq */
    tp_ls_block layer[TP_LM_MAX_LAYERS];
} tp_lm;

/* The carried caches of one group of streams: one slot a layer, plus the position tables of the
 * last geometry. Zero-initialise; `{ 0 }` starts the streams. Training and validation own separate
 * states. valid counts the real rows in the caches (used with ls.masked). */
typedef struct tp_lm_state {
    tp_tensor cache[TP_LM_MAX_LAYERS];
    tp_tensor pos_win, pos_cmp;
    int64_t valid, rows_cmp, batch;
} tp_lm_state;

TP_API void tp_lm_init(tp_params *P, tp_lm *m, const char *name, tp_lm_cfg cfg);

/* tokens [B,M] -> logits [B,M,V]; advances the caches. M that is not a multiple of the chunk is
 * padded inside as the official code does; the padding is cut off the result. */
TP_API tp_tensor tp_lm_forward(tp_tape *T, const tp_lm *m, tp_lm_state *s, tp_tensor tokens);

/* Empties all slots: the next forward starts new streams (of any batch size). */
TP_API void tp_lm_state_clear(tp_tape *T, tp_lm_state *s);

/* The caches under "state." in a training checkpoint; after reading, the state continues exactly.
 */
TP_API bool tp_lm_state_write(tp_tape *T, const tp_lm *m, const tp_lm_state *s, tp_writer *W);
TP_API bool tp_lm_state_read(tp_tape *T, const tp_lm *m, tp_lm_state *s, tp_file *F);

/* The configuration as checkpoint metadata ("model", "dim", ...) and back; false with *why filled
 * (up to size) if F holds no or another model's configuration. */
TP_API void tp_lm_cfg_write(const tp_lm_cfg *cfg, tp_writer *W);
TP_API bool tp_lm_cfg_read(tp_lm_cfg *cfg, tp_file *F, char *why, size_t size);
/* NULL if cfg is a legal model, else a static or buf-held sentence that says what is wrong. */
TP_API const char *tp_lm_cfg_check(const tp_lm_cfg *cfg, char *buf, size_t size);

/* Incremental decoding: one token costs one token's work, memory is constant. Equal, within
 * rounding, to running all tokens so far in segments of `segment` from a fresh state (specification
 * 4.5): chunk vectors are made as chunks complete, the cache is refreshed at segment ends. */
typedef struct tp_lm_decoder tp_lm_decoder;
TP_API tp_lm_decoder *tp_lm_decoder_new(tp_tape *T, const tp_lm *m,
                                        int64_t segment); /* never NULL */
/* Feeds one token; host logits [V] of the next one. False: the tape has failed. */
TP_API bool tp_lm_decode(tp_lm_decoder *d, int64_t token, float *logits);
TP_API void tp_lm_decoder_free(tp_lm_decoder *d);

/* ---- Transformer-XL (Dai et al. 2019), the baseline ---- */
typedef struct tp_txl_cfg {
    int64_t vocab, dim, hidden, d_head;
    int layers, heads;
    int64_t mem_len;
    int64_t clamp; /* largest distance looked up; <= 0: off */
    bool pre_ln, same_length;
    double dropout, att_dropout;
    tp_recompute recompute;
} tp_txl_cfg;
TP_API tp_txl_cfg tp_txl_base(int64_t vocab);  /* 12 layers, 512: 41M   */
TP_API tp_txl_cfg tp_txl_large(int64_t vocab); /* 24 layers, 1024: 277M */

typedef struct tp_txl_layer {
    const char *path;
    tp_linear_m qkv_net, o_net, r_net;
    tp_layernorm_m attn_norm, ff_norm;
    tp_mlp_m ff;
} tp_txl_layer;
typedef struct tp_txl {
    const char *path;
    tp_txl_cfg cfg;
    tp_tensor emb, out_bias, r_w_bias, r_r_bias, inv_freq;
    tp_txl_layer layer[TP_LM_MAX_LAYERS];
} tp_txl;
typedef struct tp_txl_state {
    tp_tensor mem[TP_LM_MAX_LAYERS + 1]; /* input of each layer, and the final output */
    tp_tensor pos;
    int64_t rows_pos;
} tp_txl_state;
TP_API void tp_txl_init(tp_params *P, tp_txl *m, const char *name, tp_txl_cfg cfg);
/* tokens [B,N] -> logits [B,N,V]; advances the memory, which is empty at the start. */
TP_API tp_tensor tp_txl_forward(tp_tape *T, const tp_txl *m, tp_txl_state *s, tp_tensor tokens);
TP_API void tp_txl_state_clear(tp_tape *T, tp_txl_state *s);
TP_API bool tp_txl_state_write(tp_tape *T, const tp_txl *m, const tp_txl_state *s, tp_writer *W);
TP_API bool tp_txl_state_read(tp_tape *T, const tp_txl *m, tp_txl_state *s, tp_file *F);
TP_API void tp_txl_cfg_write(const tp_txl_cfg *cfg, tp_writer *W);
TP_API bool tp_txl_cfg_read(tp_txl_cfg *cfg, tp_file *F, char *why, size_t size);
TP_API const char *tp_txl_cfg_check(const tp_txl_cfg *cfg, char *buf, size_t size);
/* One attention sub-layer, residual and norm included: w [B,N,d], mem [B,L,d] or TP_NONE,
 * pos [L+N,d] by increasing distance. */
TP_API tp_tensor tp_txl_attn_forward(tp_tape *T, const tp_txl *m, const tp_txl_layer *layer,
                                     tp_tensor w, tp_tensor mem, tp_tensor pos);

/* ---- every model of the library, for tp-models, tp-parity and benchmarks ---- */
typedef struct tp_flops {
    double macs;      /* multiply-adds of the convolutions and products        */
    double norm;      /* elements that pass a LayerNorm                        */
    double batchnorm; /* elements that pass a BatchNorm                        */
} tp_flops;
typedef struct tp_model_info {
    const char *name, *family,
        *input; /* "ls_lm-small-enwik8", "Transformer-LS LM", "2048 tokens, cache 2048" */
    double paper_params, paper_flops;      /* as the paper prints them; 0: not stated   */
    int norm_cost;                         /* FLOPs counted an element of LayerNorm     */
    void (*declare)(tp_params *P);         /* declares its parameters                   */
    tp_flops (*flops)(void);               /* forward, one sample of `input`            */
    double (*activations)(bool recompute); /* bytes kept for backward, one sample, f32 */
} tp_model_info;
TP_API const tp_model_info *tp_model_at(int i); /* NULL past the last */

/* Closed form of the specification (section 9): multiply-adds of one forward pass of one segment.
 */
TP_API tp_flops tp_lm_flops(const tp_lm_cfg *cfg, int64_t tokens, int64_t cache);
TP_API tp_flops tp_txl_flops(const tp_txl_cfg *cfg, int64_t tokens, int64_t memory);

#ifndef TP_NO_SITE
/* clang-format off */
#define tp_ls_block_forward(T, ...) tp_ls_block_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_lm_forward(T, ...)       tp_lm_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_txl_forward(T, ...)      tp_txl_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_txl_attn_forward(T, ...) tp_txl_attn_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
