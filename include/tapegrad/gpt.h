/* gpt.h - decoder-only transformers: GPT-2 and the form of Llama (models library).
 *
 *     x = x + attn(norm1(x)),  x = x + mlp(norm2(x))   for each layer, attn causal
 *     logits = head(norm(x))                           [B,N,V]
 *
 *     gpt2    x starts as wte(ids) + wpe(0 .. N-1); LayerNorm; MLP of two layers with the tanh
 *             approximation of GELU; all layers have biases; the head is wte
 *     llama   x starts as embed_tokens(ids); queries and keys are rotated (RoPE), and heads may
 *             share keys and values; RMS norm; SwiGLU; no biases; the head is its own or, if tied,
 *             embed_tokens
 *
 * Sources: Radford et al., Language Models are Unsupervised Multitask Learners (2019), and its
 * code; Touvron et al., LLaMA and Llama 2 (2023); parameter names and initial values are those of
 * Hugging Face's GPT2LMHeadModel and LlamaForCausalLM. Their files load (tp_net_load); where those
 * of GPT-2 hold one transposed matrix for queries, keys and values (attn.c_attn), this model has
 * attn.q_proj, attn.k_proj and attn.v_proj. A file with a head that differs from the embedding of a
 * tied model is refused; a head of its own that the file lacks starts as the embedding. With
 * long-short attention there are no published weights.
 *
 * Not built, and not to be seen from a file's names: sliding windows (Mistral), norms of 1 + w and
 * scaled embeddings (Gemma), rotary positions scaled by other rules than Llama 3.1's, GPT-2 with
 * attention scaled by layer or another activation. A config.json beside the file says whether it
 * has them. */
#ifndef TAPEGRAD_GPT_H
#define TAPEGRAD_GPT_H

#include <tapegrad/lm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_gpt_cfg {
    int64_t vocab, dim, hidden; /* V, d, width of the MLP */
    int layers, heads;
    int kv_heads;      /* llama: heads of keys and values, which divide heads; 0: heads */
    int64_t positions; /* most tokens of a text; gpt2: rows of wpe */
    double base;       /* llama: theta of the rotary positions */
    /* llama: slower rotations for longer texts, 0: none; as in tp_rotary_cfg */
    double rope_factor, rope_low, rope_high;
    int64_t rope_original;
    double eps; /* of the norms */
    bool tied;  /* llama: the head is the embedding; gpt2's always is */
    /* Long-short attention in place of full attention, if ls_chunk is not 0: chunks of that many
     * tokens, at least 2, vectors of each, tokens of the window (tp_ls_attn_cfg). Its positions are
     * relative; Llama's are then not rotated, and its heads share no keys. */
    int ls_chunk, ls_rank, ls_window;
    double dropout, emb_dropout, att_dropout; /* of residual branches, embeddings, probabilities */
    tp_recompute recompute;
} tp_gpt_cfg;

/* Sinusoids of distances in the window and between chunks: buffers [ls_window,d], [.,d]. */
typedef struct tp_gpt_tables {
    tp_tensor near, far;
} tp_gpt_tables;

typedef struct tp_gpt_layer {
    const char *path;
    double dropout;
    tp_mha_m attn;
    tp_ls_attn_m ls;             /* in place of attn, if it has a path */
    const tp_gpt_tables *tables; /* of ls */
    tp_layernorm_m norm1, norm2; /* without bias in llama */
    tp_mlp_m mlp;                /* gpt2 */
    tp_glu_mlp_m glu;            /* llama */
} tp_gpt_layer;

typedef struct tp_gpt {
    const char *path;
    const tp_params *params;
    tp_gpt_cfg cfg;
    tp_tensor tokens, positions; /* [V,d]; [positions,d], gpt2 only */
    tp_linear_m head;            /* [V,d] */
    tp_layernorm_m norm;
    tp_gpt_tables tables; /* of long-short attention */
    tp_gpt_layer layer[TP_LM_MAX_LAYERS];
} tp_gpt;

/* ids [B,N] -> logits [B,N,V], as tp_net_forward, of whose net m is the module (tp_net_module). All
 * texts have N tokens. Fails if N exceeds cfg.positions. m must live
 * until backward if it recomputes. */
TP_API tp_tensor tp_gpt_forward(tp_tape *T, const tp_gpt *m, tp_tensor ids);

/* Of a layer with long-short attention: keys and values of all tokens [B*room,d], vectors of whole
 * chunks, rows of the unfinished one [B*chunk,d], projected tables of positions. */
typedef struct tp_gpt_ls_cache {
    tp_kv win, cmp, rows;
    tp_tensor chunk, near, far;
} tp_gpt_ls_cache;

/* Keys and values of the texts so far. Begin with { .room = most tokens }; filled = 0 starts the
 * next texts in the same buffers, with the same batch. */
typedef struct tp_gpt_cache {
    int64_t room, filled;
    tp_kv_cache layer[TP_LM_MAX_LAYERS];
    tp_gpt_ls_cache ls[TP_LM_MAX_LAYERS];
} tp_gpt_cache;
/* The next n ids [B,n] of B texts -> logits [B,n,V], those that tp_gpt_forward gives for these
 * tokens after all earlier ones; the first call takes the prompts. Only while not recording
 * (tp_record) and in evaluation (tp_train). Fails if the cache has no room or cfg.positions is
 * exceeded. */
TP_API tp_tensor tp_gpt_decode(tp_tape *T, const tp_gpt *m, tp_gpt_cache *cache, tp_tensor ids);
/* Releases the memory at the next reset. */
TP_API TP_NO_LINE void tp_gpt_cache_free(tp_tape *T, tp_gpt_cache *cache);

/* Both forms as constants for the table of models (model.h); their module is a tp_gpt. */
extern TP_API const tp_model tp_model_gpt2, tp_model_llama;

#ifndef TP_NO_SITE
#define tp_gpt_forward(T, ...) tp_gpt_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_gpt_decode(T, ...)  tp_gpt_decode(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
