/* model.c - the constant of the LRA encoders. Keys of its members are those of the official code, whose
 * num_landmarks, linformer_k and rp_dim are one member here; max_seq_len does not count a CLS. */
#include "inner.h"

/* ---- members ---- */

static const char *const kinds[] = { "lsta",     "softmax", "linformer", "performer", "nystrom",
                                     "reformer", "linear",  "none",      NULL };
static const char *const poolings[] = { "MEAN", "cls_last_layer", "cls_token", "CLS", NULL };
static const char *const projections[] = { "dynamic", "linformer", NULL };
static const char *const modes[] = { "outputs", "values", NULL };
static const char *const kernels[] = { "softmax", "relu", NULL };

#define AT(member) offsetof(tp_lra_cfg, member)
static const tp_model_member members[] = {
    { "attn_type", TP_MEMBER_WORD, .at = AT(attn.kind), .words = kinds },
    { "max_seq_len", TP_MEMBER_INT64, .at = AT(attn.length), .common = TP_COMMON_LENGTH },
    { "vocab_size", TP_MEMBER_INT64, .at = AT(vocab), .common = TP_COMMON_VOCAB },
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "retrieval", TP_MEMBER_FLAG, .at = AT(pair), .common = TP_COMMON_PAIR },
    { "transformer_dim", TP_MEMBER_INT64, .at = AT(attn.dim) },
    { "num_head", TP_MEMBER_INT, .at = AT(attn.heads) },
    { "transformer_hidden_dim", TP_MEMBER_INT64, .at = AT(hidden) },
    { "num_layers", TP_MEMBER_INT, .at = AT(layers) },
    { "tied_weights", TP_MEMBER_FLAG, .at = AT(tied) },
    { "pooling_mode", TP_MEMBER_WORD, .at = AT(pooling), .words = poolings },
    { "num_landmarks", TP_MEMBER_INT64, .at = AT(attn.rank) },
    { "window_size", TP_MEMBER_INT64, .at = AT(attn.window) },
    { "conv_kernel_size", TP_MEMBER_INT64, .at = AT(attn.conv) },
    { "proj", TP_MEMBER_CHOICE, .at = AT(attn.fixed), .words = projections },
    { "cls_mode", TP_MEMBER_CHOICE, .at = AT(attn.cls_values), .words = modes },
    { "dual_ln", TP_MEMBER_NOT, .at = AT(attn.raw_kv) },
    { "performer_kernel", TP_MEMBER_CHOICE, .at = AT(attn.relu), .words = kernels },
    { "inv_per_head", TP_MEMBER_FLAG, .at = AT(attn.inverse_per_head) },
    { "num_hash", TP_MEMBER_INT, .at = AT(attn.rounds) },
    { "chunk_length", TP_MEMBER_INT64, .at = AT(attn.chunk) },
    { "bucket_factors", TP_MEMBER_INT64S, .at = AT(attn.buckets), .count = 2 },
    { "dropout_prob", TP_MEMBER_REAL, .at = AT(dropout) },
    { "attention_dropout", TP_MEMBER_REAL, .at = AT(attn.dropout) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- the model ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_lra_cfg_check(cfg, why, size);
}

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_lra_init(P, m, name, *(const tp_lra_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor ids)
{
    (void)state;
    return tp_lra_forward_ids(T, m, ids);
}

/* Landmarks have no weights; mixtures, projections and random features do. */
static bool model_same(const void *one, const void *other)
{
    const tp_lra_cfg *a = one, *b = other;
    const tp_lra_attn_cfg *x = &a->attn, *y = &b->attn;
    return x->kind == y->kind && x->dim == y->dim && x->heads == y->heads &&
           x->length == y->length && (x->rank == y->rank || x->kind == TP_LRA_NYSTROM) &&
           (x->window > 0) == (y->window > 0) && x->conv == y->conv && x->fixed == y->fixed &&
           x->raw_kv == y->raw_kv && a->layers == b->layers && a->hidden == b->hidden &&
           a->vocab == b->vocab && a->pooling == b->pooling && a->tied == b->tied &&
           a->pair == b->pair;
}

static bool model_redraw(tp_params *P, const void *m, uint64_t seed, uint64_t draw)
{
    return tp_lra_redraw(P, m, seed, draw);
}

/* Tables 1, 2, 7 and 9 of Transformer-LS: "lra-TASK-ATTENTION" with the multiply-adds that they print. */
/* clang-format off */
#define ROW(name, kind, cost) { "lra-" name, "LRA, " kind, .flops = cost, .norm_cost = 5 }
#define TASK(task, softmax, linformer, performer, nystrom, reformer, ls) \
    ROW(task "-softmax", "Transformer", softmax), \
    ROW(task "-linformer", "Linformer", linformer), \
    ROW(task "-performer", "Performer", performer), \
    ROW(task "-nystrom", "Nystroemformer", nystrom), \
    ROW(task "-nystrom-conv", "Nystroemformer", 0), \
    ROW(task "-reformer", "Reformer", reformer), \
    ROW(task "-linear", "linear attention", 0), \
    ROW(task "-none", "no attention", 0), \
    ROW(task "-ls", "Transformer-LS", ls), \
    ROW(task "-ls-linformer", "Transformer-LS", 0)
static const tp_model_row rows[] = {
    TASK("listops", 1.21e9, 0.41e9, 0.41e9, 0.61e9, 0.27e9, 0.2e9),
    ROW("listops-ls-best", "Transformer-LS", 0.16e9),
    ROW("listops-dp", "Transformer-LS", 0.15e9),
    TASK("text", 4.57e9, 0.81e9, 0.82e9, 1.02e9, 0.58e9, 0.4e9),
    ROW("text-ls-best", "Transformer-LS", 0.29e9),
    ROW("text-dp", "Transformer-LS", 0.69e9),
    TASK("retrieval", 9.14e9, 1.62e9, 1.63e9, 2.03e9, 1.15e9, 0.8e9),
    ROW("retrieval-ls-best", "Transformer-LS", 2.17e9),
    ROW("retrieval-dp", "Transformer-LS", 2.17e9),
    TASK("image", 0, 0, 0, 0, 0, 0),
    TASK("pathfinder", 0, 0, 0, 0, 0, 0),
    { 0 },
};
#undef TASK
#undef ROW
/* clang-format on */

const tp_model tp_model_lra = {
    .name = "lra-encoder",
    .input = TP_DOCUMENTS,
    .cfg_size = sizeof(tp_lra_cfg),
    .size = sizeof(tp_lra),
    .presets = rows,
    .preset = tp__lra_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .paper = tp__lra_paper,
    .same = model_same,
    .head = "seq_classifer.mlpblock.2.weight",
    .redraw = model_redraw,
};
