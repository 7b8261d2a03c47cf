/* nn.h - modules: structs of parameter handles and numbers.
 *
 * NAME_init declares the module's parameters under a name; errors are P's. NAME_forward runs in a
 * scope with the module's path; its result belongs to T. No function here synchronises. Modules own
 * nothing, are never freed and may be copied. Initial values are PyTorch's unless a rule
 * (tp_params_init_rule) overrides them. */
#ifndef TAPEGRAD_NN_H
#define TAPEGRAD_NN_H

#include <tapegrad/base.h>
#include <tapegrad/lora.h>
#include <tapegrad/nn/conv.h>
#include <tapegrad/nn/ctc.h>
#include <tapegrad/nn/norm.h>
#include <tapegrad/nn/recurrent.h>
#include <tapegrad/ops.h>
#include <tapegrad/params.h>
#include <tapegrad/tape.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For modules of your own: false, with P or T failed, if m is NULL ("NAME: NULL was given in place
 * of a module"). The modules here and all models begin with these. tp_want does so for anything
 * else that they need: "NAME: NULL was given in place of WHAT". */
TP_API bool tp_params_want_module(tp_params *P, const void *m, const char *name);
TP_API TP_NO_LINE bool tp_want_module(tp_tape *T, const void *m, const char *name);
TP_API TP_NO_LINE bool tp_want(tp_tape *T, const void *p, const char *name, const char *what);

/* y = x w^T + b, x [...,in]: "weight" [out,in], "bias" [out]. tp_linear_act also applies an
 * activation. */
typedef struct tp_linear_m {
    const char *path;
    tp_tensor weight, bias; /* bias TP_NONE: none */
    const tp_lora_m *lora; /* its adaptation (lora.h), which all functions here apply; NULL: none */
} tp_linear_m;
TP_API void tp_linear_init(tp_params *P, tp_linear_m *m, const char *name, int64_t in, int64_t out,
                           bool bias);
/* The same without a bias, over a weight [out,in] that something else declared, as a head over an
 * embedding does: its second name is "weight" below name. */
TP_API void tp_linear_tie(tp_params *P, tp_linear_m *m, const char *name, tp_tensor weight);
TP_API tp_tensor tp_linear_forward(tp_tape *T, const tp_linear_m *m, tp_tensor x);
TP_API tp_tensor tp_linear_act(tp_tape *T, const tp_linear_m *m, tp_tensor x, tp_act act);
/* For modules of your own that read the weight of a linear module: x w^T without the bias; the same
 * for rows part * out / parts ... of the weight, one of `parts` equal parts; and u w, whose product
 * with x is that of u with x w^T: u [n,out] -> [n,in]. The dropout of an adaptation drops what it
 * adds to u w. */
TP_API tp_tensor tp_linear_product(tp_tape *T, const tp_linear_m *m, tp_tensor x);
TP_API tp_tensor tp_linear_part(tp_tape *T, const tp_linear_m *m, tp_tensor x, int part, int parts);
TP_API tp_tensor tp_linear_transposed(tp_tape *T, const tp_linear_m *m, tp_tensor u);

/* scale * weight[ids]: a table "weight" [n,dim], initially N(0,1). */
typedef struct tp_embedding_m {
    const char *path;
    tp_tensor weight;
} tp_embedding_m;
TP_API void tp_embedding_init(tp_params *P, tp_embedding_m *m, const char *name, int64_t n,
                              int64_t dim);
TP_API tp_tensor tp_embedding_forward(tp_tape *T, const tp_embedding_m *m, tp_tensor ids,
                                      double scale);

/* DualLN of Transformer-LS: one norm for local keys and values and one for compressed ones, each
 * over all heads together and shared by keys and values. `local` and `global` are their names. */
typedef struct tp_dualln_m {
    tp_layernorm_m local, global;
} tp_dualln_m;
TP_API void tp_dualln_init(tp_params *P, tp_dualln_m *m, const char *local, const char *global,
                           int64_t dim, double eps);

/* Feed-forward network: dropout(fc2(dropout(act(fc1 x)))), added to the residual unless that is
 * TP_NONE. fc1 and fc2 are the names of the two layers below the enclosing prefix ("ff.fc1",
 * "CoreNet.0"). */
typedef struct tp_mlp_m {
    const char *path;
    tp_linear_m fc1, fc2;
    tp_act act;
    double dropout;
} tp_mlp_m;
TP_API void tp_mlp_init(tp_params *P, tp_mlp_m *m, const char *fc1, const char *fc2, int64_t dim,
                        int64_t hidden, tp_act act, double dropout);
TP_API tp_tensor tp_mlp_forward(tp_tape *T, const tp_mlp_m *m, tp_tensor x, tp_tensor residual);

/* Long-short attention of the language model (Zhu et al. 2021), with the names of the official
 * checkpoints. Parameters that a configuration does not use (rank 0, window 0, raw_kv) are not
 * created. */
typedef struct tp_ls_cfg {
    tp_ls_attn_cfg attn; /* what the op reads */
    /* variants; the official code has all of them false: */
    bool ln_local;      /* DualLN's local norm comes before the dynamic projection */
    bool project_first; /* cached rows are projected before they are compressed */
    bool raw_kv;        /* keys and values are used as projected, without DualLN */
    /* the first window_heads heads see only the window, the others only the projections, which the
     * paper's section 3.4 tried first; 0: every head sees both. Norms always span all heads. */
    int window_heads;
} tp_ls_cfg;
typedef struct tp_ls_attn_m {
    const char *path;
    tp_ls_cfg cfg;
    tp_linear_m proj_query, proj_key, proj_val, proj_out, dconv_1, r_net, r_net_chunk;
    tp_dualln_m dual_ln; /* dual_ln_win, dual_ln_dproj; either may be absent */
    tp_tensor r_w_bias, r_r_bias;
} tp_ls_attn_m;

/* True if cfg is possible at width dim; else why receives a sentence that says what is wrong. */
TP_API bool tp_ls_cfg_check(const tp_ls_cfg *cfg, int64_t dim, char *why, size_t size);

/* bias: whether proj_query, proj_key, proj_val and proj_out have one. An impossible cfg fails P. */
TP_API void tp_ls_attn_init(tp_params *P, tp_ls_attn_m *m, const char *name, int64_t dim, bool bias,
                            tp_ls_cfg cfg);

/* Sinusoid tables by increasing distance, already clamped: pos_win [w,dim] (segment: [2w,dim]) and
 * pos_cmp [(L+M)/l*r,dim]. valid (masked only): the last `valid` rows of the cache are real. */
typedef struct tp_ls_context {
    tp_tensor pos_win, pos_cmp;
    int64_t valid;
} tp_ls_context;

/* h [B,M,dim], cache [B,L,dim], both already normalised -> [B,M,dim], before dropout and residual.
 * M and L must be multiples of the chunk length, M at most the window or a multiple of it, and L at
 * least the window unless cfg.attn.masked. */
TP_API tp_tensor tp_ls_attn_forward(tp_tape *T, const tp_ls_attn_m *m, tp_tensor h, tp_tensor cache,
                                    tp_ls_context ctx);

/* The two halves of tp_ls_attn_forward, for decoders. tp_ls_attn_rows projects x [B,N,dim] to keys
 * and values: *window receives them normalised, as the window sees them, and the result is what
 * compressing the running segment reads. tp_ls_attn_compress gives the normalised keys and values
 * [B,(N/l)*r,dim] of the chunks of x, computed from those rows or, if rows is NULL, from x itself,
 * as for a cache. */
TP_API tp_kv tp_ls_attn_rows(tp_tape *T, const tp_ls_attn_m *m, tp_tensor x, tp_kv *window);
TP_API tp_kv tp_ls_attn_compress(tp_tape *T, const tp_ls_attn_m *m, tp_tensor x, const tp_kv *rows);

/* tp_ls_attention with the heads and biases of m -> [B,N,dim], before proj_out; with window_heads
 * one op for each group of heads. in has queries, keys and values of all heads, and tables as r_net
 * and r_net_chunk give them; in.r_w, in.r_r and op.heads are not read. */
TP_API tp_tensor tp_ls_attn_attend(tp_tape *T, const tp_ls_attn_m *m, tp_ls_in in,
                                   tp_ls_attn_cfg op);

/* Sinusoidal relative positions, pe(p) = [sin(p w_0) .. sin(p w_{n-1}), cos(p w_0) ..], with angles
 * in double. Row i of out [rows,2n] is position i, or clamp if clamp > 0 and i exceeds it.
 * tp_frequencies gives the usual w_k = 10000^(-k/n). */
TP_API void tp_frequencies(int64_t n, double *inv_freq);
TP_API void tp_sinusoid(int64_t rows, int64_t n, const double *inv_freq, int64_t clamp,
                        double *out);

#ifndef TP_NO_SITE
#include <tapegrad/sites/nn.h>
#endif

#ifdef __cplusplus
}
#endif
#include <tapegrad/nn/transformer.h>

#endif
