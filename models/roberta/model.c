/* model.c - the text models as a constant for the table of models: members, names in published files. */
#include "inner.h"

static const char *const kinds[] = { "full", "longformer", "ls", NULL };
static const char *const heads[] = { "cls", "mlm", NULL };

#define AT(member) offsetof(tp_roberta_cfg, member)
static const tp_model_member members[] = {
    { "attention_type", TP_MEMBER_WORD, .at = AT(kind), .words = kinds },
    { "head", TP_MEMBER_WORD, .at = AT(head), .words = heads },
    { "num_hidden_layers", TP_MEMBER_INT, .at = AT(layers) },
    { "num_attention_heads", TP_MEMBER_INT, .at = AT(heads) },
    { "hidden_size", TP_MEMBER_INT64, .at = AT(dim) },
    { "intermediate_size", TP_MEMBER_INT64, .at = AT(hidden) },
    { "vocab_size", TP_MEMBER_INT64, .at = AT(vocab), .common = TP_COMMON_VOCAB },
    { "max_tokens", TP_MEMBER_INT64, .at = AT(length), .common = TP_COMMON_LENGTH },
    { "num_labels", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "window", TP_MEMBER_INT64, .at = AT(window) },
    { "num_landmarks", TP_MEMBER_INT64, .at = AT(rank) },
    { "dual_ln", TP_MEMBER_NOT, .at = AT(raw_kv) },
    { "pooler", TP_MEMBER_NOT, .at = AT(no_pooler) },
    { "hidden_dropout_prob", TP_MEMBER_REAL, .at = AT(dropout) },
    { "attention_probs_dropout_prob", TP_MEMBER_REAL, .at = AT(attention_dropout) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* Files of Longformer, of an encoder alone ("embeddings.") and of fairseq; the latter have no prefix of ours. */
static const tp_spelling spellings[] = {
    { "longformer.", "roberta." },
    { "decoder.sentence_encoder.", "roberta." },
    { "encoder.sentence_encoder.", "roberta." },
    { "embed_tokens.", "embeddings.word_embeddings." },
    { "embed_positions.", "embeddings.position_embeddings." },
    { "layernorm_embedding.", "embeddings.LayerNorm." },
    { "emb_layer_norm.", "embeddings.LayerNorm." },
    { "roberta.layers.", "roberta.encoder.layer." },
    { ".self_attn.q_proj.", ".attention.self.query." },
    { ".self_attn.k_proj.", ".attention.self.key." },
    { ".self_attn.v_proj.", ".attention.self.value." },
    { ".self_attn.out_proj.", ".attention.output.dense." },
    { ".self_attn_layer_norm.", ".attention.output.LayerNorm." },
    { ".fc1.", ".intermediate.dense." },
    { ".fc2.", ".output.dense." },
    { ".final_layer_norm.", ".output.LayerNorm." },
    { "decoder.lm_head.", "lm_head." },
    { "encoder.lm_head.", "lm_head." },
    { "lm_head.weight", "lm_head.decoder.weight" },
    { "LayerNorm.gamma", "LayerNorm.weight" },
    { "LayerNorm.beta", "LayerNorm.bias" },
    { "position_ids", NULL },
    { 0 },
};

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_roberta_cfg_check(cfg, why, size);
}

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_roberta_init(P, m, name, *(const tp_roberta_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor ids)
{
    (void)state;
    return tp_roberta_forward(T, m, ids);
}

static bool model_load(tp_params *P, const void *m, tp_file *F)
{
    return tp_roberta_load(P, m, F);
}

static bool model_resizes(const char *name, const tp_shape *here, const tp_shape *there)
{
    return strstr(name, "position_embeddings.") && here->ndim == 2 && there->ndim == 2 &&
           here->dim[1] == there->dim[1] && there->dim[0] > 2;
}

/* RoBERTa, Longformer and long-short RoBERTa, as classifiers. */
/* clang-format off */
static const tp_model_row rows[] = {
    { "roberta-base",     "RoBERTa",            .also = "roberta RoBERTa-base" },
    { "roberta-large",    "RoBERTa",            .also = "RoBERTa-large" },
    { "longformer-base",  "Longformer",         .also = "longformer Longformer-base" },
    { "longformer-large", "Longformer",         .also = "Longformer-large" },
    { "roberta_ls-base",  "long-short RoBERTa", .also = "roberta_ls roberta-ls-base" },
    { "roberta_ls-large", "long-short RoBERTa", .also = "roberta-ls-large" },
    { "roberta-mini",     "RoBERTa", .also = NULL },
    { "longformer-mini",  "Longformer", .also = NULL },
    { "roberta_ls-mini",  "long-short RoBERTa", .also = NULL },
    { 0 },
};
/* clang-format on */

const tp_model tp_model_roberta = {
    .name = "roberta",
    .input = TP_DOCUMENTS,
    .cfg_size = sizeof(tp_roberta_cfg),
    .size = sizeof(tp_roberta),
    .presets = rows,
    .preset = tp__roberta_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .load = model_load,
    .resizes = "the table of positions",
    .resizes_to = model_resizes,
    .head = "classifier.out_proj.weight",
    .spellings = spellings,
    .may_lack = tp__roberta_may_lack,
    .fill = tp__roberta_fill,
};
