/* lra.h - encoders of long sequences (models library): the bidirectional Transformer-LS and the
 * attentions that it is compared with on the Long Range Arena (Zhu et al. 2021, sections 3 and 4.1;
 * Tay et al. 2020), computed as in the official code.
 *
 * B: batch, n: tokens of a sequence with its padding, d: width, h: heads. mask: TP_U8 [B,n] (1 =
 * token, 0 = padding) or TP_NONE, no padding. A sequence has at least one token: without any,
 * softmax attention and the dynamic projection have nothing to attend to (here: zeros; upstream: a
 * mean or NaN). */
#ifndef TAPEGRAD_LRA_H
#define TAPEGRAD_LRA_H

#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_LRA_MAX_LAYERS = 64, TP_LRA_MAX_SIZE = 1 << 20 }; /* sizes: lengths, widths, tables ... */

typedef enum tp_lra_kind {
    TP_LRA_LS,        /* window and projections: Transformer-LS */
    TP_LRA_SOFTMAX,   /* all tokens */
    TP_LRA_LINFORMER, /* `rank` fixed mixtures of all tokens (Wang et al. 2020) */
    TP_LRA_PERFORMER, /* `rank` random features (Choromanski et al. 2021) */
    TP_LRA_NYSTROM,   /* `rank` landmarks (Nystroemformer, Xiong et al. 2021) */
    TP_LRA_REFORMER,  /* tokens of nearby buckets (Kitaev et al. 2020) */
    TP_LRA_LINEAR,    /* elu + 1 as kernel, without a normaliser (as in Nystroemformer's code) */
    TP_LRA_NONE       /* values only */
} tp_lra_kind;

/* One attention. A kind ignores members marked for other kinds. */
typedef struct tp_lra_attn_cfg {
    tp_lra_kind kind;
    int64_t dim;
    int heads;
    int64_t length; /* n_max. Linformer's mixtures, also with `fixed`, need exactly this n */
    int64_t rank;   /* LS: projections, 0 for none; others: see tp_lra_kind */
    /* LS: tokens of a segment, a divisor of n; each query sees its segment and max(window / 2, 1)
     * tokens to either side. 0: no window */
    int64_t window;
    /* odd kernel of a depthwise convolution of the values, added to the result; 0: none. LS,
     * Linformer, Nystroem */
    int64_t conv;
    int64_t chunk, buckets[2]; /* Reformer: 0 means 64 and tp_lsh_buckets */
    int rounds;                /* Reformer: of hashing; 0 means 2 */
    double dropout;            /* of probabilities, in training: LS and softmax */
    /* variants; the official code has all of them false: */
    bool cls_from_seq; /* LS: the first token is the CLS */
    bool cls_values;   /* LS: the CLS attends to the tokens' keys and values, not results */
    bool raw_kv;       /* LS: no DualLN */
    bool fixed;        /* LS: Linformer's mixtures in place of dynamic projections */
    bool relu;         /* Performer: relu(c x) + 1e-3 in place of positive softmax features */
    /* Nystroem: the pseudo-inverse is scaled for each sample and head, not by one number per
     * batch */
    bool inverse_per_head;
} tp_lra_attn_cfg;

/* Part "attn", an attention with its projections, with the names of the official checkpoints.
 * Parameters that the configuration lacks are not created; those that are only unused are (W_k and
 * the biases of Reformer, the global norm without rank and CLS), to match names and counts. x
 * [B,n,d] -> [B,n,d]; with: a tp_tensor [2], the CLS and the mask, either of which may be TP_NONE.
 * With a CLS [B,1,d] (LS only: an embedding that is no token) the result is [B,1+n,d], the CLS
 * first. Results of padding: zeros before the last projection for LS without a convolution; the
 * attention's output there for the others.
 *
 * LS, for the tokens: one softmax over the CLS, the projections and the window. For the CLS: one
 * over itself and the tokens' results. Nothing of size n * keys is stored, even with dropout. */
typedef struct tp_lra_attn {
    const char *path;
    tp_lra_attn_cfg cfg;
    tp_linear_m q, k, v, out; /* W_q, W_k, W_v; W_o (LS) or ff: all [d,d] */
    /* LS: dual_ln_l, of keys and values, and dual_ln_s, of their compressed rows and the CLS: each
     * over all heads together */
    tp_dualln_m dual_ln;
    tp_linear_m dynamic; /* LS: dconv_fc [h*rank,d]; its bias has no effect */
    tp_tensor mix;       /* Linformer: attn.E, LS with `fixed`: E [h,rank,length] */
    tp_tensor conv;      /* conv.weight or attn.conv.weight [h,1,kernel,1] */
    tp_tensor features;  /* Performer: buffer attn.attn_fn.projection_matrix [rank,d/h] */
    /* Reformer: of tp_lsh_attention; TP_NONE (as after init): drawn in every call */
    tp_tensor rotations;
} tp_lra_attn;

/* ---- the encoder ---- */

/* The sequence's vector for the classifier. */
typedef enum tp_lra_pooling {
    TP_LRA_MEAN,      /* the sum of the tokens, divided by n (padding counts as zeros) */
    TP_LRA_CLS_LAST,  /* an embedding that enters at the last layer: all published LS models */
    TP_LRA_CLS_TOKEN, /* an embedding that enters at the first layer */
    /* the token vocab - 1 is put before the sequence. For Nystroem and Reformer the last token is
     * dropped, so that n does not change */
    TP_LRA_CLS_POOL
} tp_lra_pooling;

typedef struct tp_lra_cfg {
    /* its length: most tokens of a document. The table of positions has as many rows, or, if a CLS
     * goes before the document and nothing is dropped (TP_LRA_CLS_POOL), one more */
    tp_lra_attn_cfg attn;
    int layers;
    int64_t hidden, vocab, classes; /* hidden: of the MLPs and of the classifier */
    tp_lra_pooling pooling;
    double dropout; /* of embeddings, attentions' results and MLPs, in training */
    bool tied;      /* all layers share weights */
    bool pair;      /* two documents: the classifier reads a, b, a b and a - b */
    tp_recompute recompute;
} tp_lra_cfg;

/* x + attn(norm1(x)), then x + mlp(norm2(x)). */
typedef struct tp_lra_layer {
    const char *path;
    tp_layernorm_m norm1, norm2;
    tp_lra_attn attn;
    tp_mlp_m mlp;
    double dropout;
    tp_recompute recompute;
    bool ends; /* the last one, if the CLS is an embedding: tokens' results are not computed */
} tp_lra_layer;

/* Initialised by the official rule: tables and mixtures N(0, 0.02), linear layers PyTorch's
 * default, the CLS and LS's convolutions 0, norms 1 and 0; Performer's features N(0, 1) until
 * tp_model.redraw draws orthogonal ones, which the official code does once. */
typedef struct tp_lra {
    const char *path;
    const tp_params *params;
    tp_lra_cfg cfg;
    tp_embedding_m words, positions;       /* [vocab,d], [length,d] */
    tp_tensor cls;                         /* cls_embed [1,1,d] */
    tp_lra_layer layer[TP_LRA_MAX_LAYERS]; /* tied: with the same parameters */
    tp_layernorm_m norm;
    tp_linear_m head[2];
} tp_lra;

/* ids: integers [B,n] -> the normed tokens [B,n,d], padding 0, or, where an embedding is the CLS,
 * only that, [B,1,d]. With TP_LRA_CLS_POOL the first row is the CLS. m must live until backward if
 * the model recomputes. */
TP_API tp_tensor tp_lra_encode(tp_tape *T, const tp_lra *m, tp_tensor ids, tp_tensor mask);

/* The result of tp_lra_encode -> the sequence's vector, [B,d]. */
TP_API tp_tensor tp_lra_pool(tp_tape *T, const tp_lra *m, tp_tensor encoded);

/* The classifier: a [B,d], b [B,d] or, for one document, TP_NONE -> logits [B,classes]. */
TP_API tp_tensor tp_lra_classify(tp_tape *T, const tp_lra *m, tp_tensor a, tp_tensor b);

/* Packed documents (ops/packed.h), as the loader gives them: integer ids and positions in their
 * document, both [M]. length: the padded length by which TP_LRA_MEAN divides; 0: of.longest. */
typedef struct tp_lra_packed {
    tp_tensor ids, position;
    tp_packed of;
    int64_t length;
} tp_lra_packed;

/* True if the model takes packed documents: TP_LRA_LS without `fixed` and convolution,
 * TP_LRA_SOFTMAX and TP_LRA_NONE. Other attentions depend on the padded length. */
TP_API bool tp_lra_packs(const tp_lra_cfg *cfg);

/* The vector of each document, [documents,d]: equal to tp_lra_encode and tp_lra_pool of the
 * documents padded to `length` tokens, but skips padding. Lengths need not be multiples of the
 * window. Layers that are recomputed use cfg.attn.length in place of of.longest. TP_E_VALUE if the
 * model does not take packed documents. */
TP_API tp_tensor tp_lra_encode_packed(tp_tape *T, const tp_lra *m, tp_lra_packed a);

/* Inputs are TP_DOCUMENTS: ids [B,n], or [B,2,n] if cfg.pair; id 0 is padding. The presets are
 * "lra-TASK-ATTENTION". TASK: listops, text, retrieval (pairs), image, pathfinder. ATTENTION:
 * softmax, linformer, performer, nystrom, nystrom-conv (Nystroemformer's own kernel of 35),
 * reformer, linear, none; ls (window 8, rank 32), ls-linformer (the same with fixed projections,
 * Table 2), and for the first three tasks ls-best and dp (projections only), of Table 7. Retrieval
 * and the image tasks have the dropout of the published scripts, 0.1. Performer's features are to
 * be drawn once (redraw). */
extern TP_API const tp_model tp_model_lra;

#ifndef TP_NO_SITE
#include <tapegrad/sites/lra.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
