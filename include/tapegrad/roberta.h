/* roberta.h - encoders of text (models library): RoBERTa (Liu et al. 2019), Longformer (Beltagy et
 * al. 2020) and RoBERTa with long-short attention (Zhu et al. 2021, section 4.1), with a
 * classification head or a head for masked language modelling (MLM). One stack of layers with three
 * attentions; parameters are named as in the package transformers.
 *
 *     x = LN(word[id] + position[p] + type[0])             p = 1 + real tokens so far; padding: 1
 *     x = LN(x + W_o attend(x)),  x = LN(x + W_2 gelu(W_1 x))       for each layer
 *     class  = W tanh(W_d x_0)          masked token = word LN(gelu(W_d x)) + b
 *
 * B: batch, n: tokens with padding, d: width. Ids: 0 <s>, 1 <pad>, 2 </s>, 3 <unk>, vocab - 1
 * <mask>. The first token of a text is <s>, its last one </s>. */
#ifndef TAPEGRAD_ROBERTA_H
#define TAPEGRAD_ROBERTA_H

#include <tapegrad/lra.h>
#include <tapegrad/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_ROBERTA_MAX_LAYERS = 64, TP_ROBERTA_PAD = 1 };

typedef enum tp_roberta_kind {
    TP_ROBERTA_FULL,       /* RoBERTa: full attention */
    TP_ROBERTA_LONGFORMER, /* a window around each token, and global tokens */
    TP_ROBERTA_LS          /* long-short attention (lra.h); the CLS is the first token */
} tp_roberta_kind;

typedef enum tp_roberta_head { TP_ROBERTA_CLS, TP_ROBERTA_MLM } tp_roberta_head;

typedef struct tp_roberta_cfg {
    tp_roberta_kind kind;
    tp_roberta_head head;
    int layers, heads;
    int64_t dim, hidden, vocab;
    int64_t length;  /* the most real tokens of a text; the position table has two rows more */
    int64_t classes; /* TP_ROBERTA_CLS */
    /* Longformer: W, half of it on either side of a token. LS: tokens of a segment; n is padded to
     * one more than a multiple */
    int64_t window;
    int64_t rank;   /* LS: number of projections */
    bool raw_kv;    /* LS: no DualLN, so that a converted RoBERTa changes less */
    bool no_pooler; /* without pooler.dense, which is published but unused, and so frozen */
    double dropout, attention_dropout; /* in training */
    tp_recompute recompute;
} tp_roberta_cfg;

/* ---- Longformer's attention ---- */

/* The global tokens of a batch: up to G for each sample, in differing numbers. Global tokens attend
 * to all real tokens, with separate projections, and all tokens attend to them. */
typedef struct tp_roberta_global {
    tp_tensor rows;  /* integer [B*G]: b * n + position; packed: the row; TP_NONE: there are none */
    tp_tensor used;  /* u8 [B,G]: 0 for unused entries of a sample */
    tp_tensor local; /* u8 [B,n], packed [M]: 1 for tokens that are real and not global */
} tp_roberta_global;

/* From codes in host memory, [B,n]: 0 padding, 1 local token, 2 global token. The tensors belong to
 * T. */
TP_API tp_roberta_global tp_roberta_global_tokens(tp_tape *T, const uint8_t *code, int64_t batch,
                                                  int64_t tokens);
/* The same for packed documents (ops/packed.h): codes [M], without padding, and offsets [documents
 * + 1]. */
TP_API tp_roberta_global tp_roberta_global_packed(tp_tape *T, const uint8_t *code,
                                                  const int32_t *offset, int64_t documents);

/* Part "longformer", x [B,n,d] -> [B,n,d], without an output projection; zeros at padding. A local
 * query attends, in one softmax, to all global tokens and to the local ones at most window / 2
 * away. cfg: a tp_roberta_cfg, of which dim, heads, window and attention_dropout are read. Packed
 * documents of any length are x [M,d] -> [M,d]. A text's global tokens, if no more than a head is
 * wide, need no global keys and values: their projections are folded into queries and results. */
typedef struct tp_longformer_m {
    const char *path;
    int heads;
    int64_t window;
    double dropout;
    tp_linear_m query, key, value, query_global, key_global, value_global; /* all [d,d] */
} tp_longformer_m;
/* Its `with`. */
typedef struct tp_longformer_in {
    tp_tensor mask; /* u8 [B,n] (1: real tokens) or TP_NONE */
    tp_packed of;   /* without offset: x is padded */
    tp_roberta_global global;
} tp_longformer_in;

/* ---- the encoder ---- */

typedef struct tp_roberta_layer {
    const char *path;
    tp_roberta_kind kind;
    int heads;
    int64_t length; /* of the model */
    double dropout, attention_dropout;
    tp_recompute recompute;
    tp_linear_m query, key, value; /* RoBERTa */
    tp_longformer_m window;        /* Longformer */
    tp_lra_attn ls;                /* LS; its last projection is attention.output.dense */
    tp_linear_m out, fc1, fc2;
    tp_layernorm_m attention_norm, norm;
} tp_roberta_layer;

/* Initially weights are N(0, 0.02^2), biases 0, norms 1 and 0. */
typedef struct tp_roberta {
    const char *path;
    const tp_params *params;
    tp_roberta_cfg cfg;
    tp_embedding_m words, positions, types;
    tp_layernorm_m norm;
    tp_roberta_layer layer[TP_ROBERTA_MAX_LAYERS];
    tp_linear_m dense, out;   /* of the classifier; MLM: only dense */
    tp_layernorm_m head_norm; /* MLM */
    tp_tensor bias;           /* MLM: lm_head.bias; the decoder shares the word embedding */
} tp_roberta;

typedef struct tp_roberta_in {
    /* integer [B,n]. A text has at most cfg.length real tokens; if padding makes n longer, which
     * whole windows may need, the ids are read to check that: it synchronises */
    tp_tensor ids;
    tp_tensor mask; /* u8 [B,n], 1 for real tokens; TP_NONE: the ids that are not <pad> */
    /* Longformer. All TP_NONE: the first token is global for classification, none for MLM. */
    tp_roberta_global global;
} tp_roberta_in;

/* Packed documents (ops/packed.h), as the loader gives them: integer ids, none of which is <pad>,
 * and the place of each token in its document, from 0, both [M]. No document is empty. */
typedef struct tp_roberta_packed {
    tp_tensor ids, position;
    tp_packed of;
    /* Longformer: of tp_roberta_global_packed; TP_NONE as in tp_roberta_in */
    tp_roberta_global global;
} tp_roberta_packed;

/* The output of the last layer, [B,n,d]. If the model recomputes, m must live until backward has
 * run. */
TP_API tp_tensor tp_roberta_encode(tp_tape *T, const tp_roberta *m, tp_roberta_in in);
/* The same rows of packed documents, [M,d]: padding is not computed, and lengths need not suit the
 * window. All three attentions take them. Layers that are recomputed use cfg.length in place of
 * of.longest. */
TP_API tp_tensor tp_roberta_encode_packed(tp_tape *T, const tp_roberta *m, tp_roberta_packed a);
/* The output of tp_roberta_encode, or only the first tokens of texts, [B,d] -> logits
 * [B,classes]. */
TP_API tp_tensor tp_roberta_classify(tp_tape *T, const tp_roberta *m, tp_tensor x);
/* The output of tp_roberta_encode -> logits [B,n,vocab]. With rows (integer [R], numbers b * n +
 * position), logits of these R tokens only, [R,vocab]: 15 % of the positions need 15 % of the
 * memory. Packed: [M,d] -> [M,vocab], and rows are those of x. */
TP_API tp_tensor tp_roberta_predict(tp_tape *T, const tp_roberta *m, tp_tensor x, tp_tensor rows);
/* Encodes packed documents and applies the head of cfg: logits [documents,classes] or [M,vocab]. */
TP_API tp_tensor tp_roberta_forward_packed(tp_tape *T, const tp_roberta *m, tp_roberta_packed a);

/* ---- weights ---- */

/* tp_net_load with `resized` loads a file, under any of the published names, into a model that may
 * differ in attention, length and head. The papers initialise their models in this way:
 *
 *     more positions           rows 0 and 1 are copied; row 2 + i is the file's row
 *                              2 + i mod (its rows - 2)
 *     query_global, ...        copies of query, key, value, if the file has none of them; having
 *                              only some is an error
 *     dconv_fc, dual_ln_*      keep their initial values if absent; so do heads and the pooler
 *     token_type_embeddings    zeros if the file lacks it (fairseq)
 *
 * Everything else must be in the file, with the right shape, and the file has no more layers.
 * Without `resized` it loads files of the same model only, whatever their names and whether they
 * have the pooler, the decoder's second names and types of tokens: an evaluation must not use a
 * head that a file lacks. */

/* Longformer: copies query, key and value to the global projections, for a model that was trained
 * without global tokens. */
TP_API bool tp_roberta_copy_global(tp_params *P, const tp_roberta *m);

/* Inputs are TP_DOCUMENTS without a mask, whose padding is id 1; the head of cfg is applied. The
 * presets are "KIND-SIZE", classifiers of two classes, and "KIND-SIZE-mlm". KIND: roberta,
 * longformer, roberta_ls. SIZE: base and large, as published, and mini, 4 layers of width 256 with
 * 8000 ids. */
extern TP_API const tp_model tp_model_roberta;

#ifndef TP_NO_SITE
#include <tapegrad/sites/roberta.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
