/* config.c - LRA encoder configurations: presets, checks, members, and multiply-adds as the paper
 * counts them. */
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

int64_t tp__lra_rows(const tp_lra_cfg *c, int64_t tokens)
{
    const bool keeps = c->attn.kind != TP_LRA_NYSTROM && c->attn.kind != TP_LRA_REFORMER;
    return c->pooling == TP_LRA_CLS_POOL && keeps ? tokens + 1 : tokens;
}

/* ---- presets: the encoders of the paper's tables by name, "lra-TASK-ATTENTION" ---- */

/* Tables 7 to 10 of Transformer-LS: the best windows and ranks for each task; 0, 0: unpublished. */
static const struct {
    const char *name;
    int64_t length, classes, best_window, best_rank, dp_rank;
    double dropout;
    bool pair;
} tasks[] = {
    { "listops", 2048, 10, 16, 2, 4, 0.0, false },    { "text", 4096, 2, 1, 1, 128, 0.0, false },
    { "retrieval", 4096, 2, 1, 254, 256, 0.1, true }, { "image", 1024, 10, 0, 0, 0, 0.1, false },
    { "pathfinder", 1024, 2, 0, 0, 0, 0.1, false },
};

enum { BEST = -1, DP = -2 }; /* rank of the task */

static const struct {
    const char *name;
    tp_lra_kind kind;
    int64_t rank, window, conv;
    bool fixed;
} attentions[] = {
    { "softmax", TP_LRA_SOFTMAX, 0, 0, 0, false },
    { "linformer", TP_LRA_LINFORMER, 256, 0, 0, false },
    { "performer", TP_LRA_PERFORMER, 256, 0, 0, false },
    { "nystrom", TP_LRA_NYSTROM, 128, 0, 0, false },
    { "nystrom-conv", TP_LRA_NYSTROM, 128, 0, 35, false },
    { "reformer", TP_LRA_REFORMER, 0, 0, 0, false },
    { "linear", TP_LRA_LINEAR, 0, 0, 0, false },
    { "none", TP_LRA_NONE, 0, 0, 0, false },
    { "ls", TP_LRA_LS, 32, 8, 0, false },
    { "ls-linformer", TP_LRA_LS, 32, 8, 0, true },
    { "ls-best", TP_LRA_LS, BEST, 0, 0, false },
    { "dp", TP_LRA_LS, DP, 0, 0, false },
};

enum { TASKS = sizeof tasks / sizeof *tasks, ATTENTIONS = sizeof attentions / sizeof *attentions };

/* Finds both table indices; false unless name is "lra-TASK-ATTENTION". */
static bool parse(const char *name, int *task, int *attention)
{
    if (strncmp(name, "lra-", 4) != 0) return false;
    const size_t n = strcspn(name + 4, "-");
    const char *rest = name + 4 + n;
    *task = *attention = -1;
    for (int i = 0; i < TASKS; i++)
        if (strlen(tasks[i].name) == n && strncmp(tasks[i].name, name + 4, n) == 0) *task = i;
    for (int i = 0; i < ATTENTIONS; i++)
        if (*rest && strcmp(attentions[i].name, rest + 1) == 0) *attention = i;
    return *task >= 0 && *attention >= 0 &&
           (attentions[*attention].rank >= 0 || tasks[*task].dp_rank > 0);
}

bool tp__lra_preset(void *cfg, const char *name, char *why, size_t size)
{
    int t, a;
    if (!parse(name, &t, &a)) {
        snprintf(why, size, "no LRA encoder is called '%.80s'", name);
        return false;
    }
    int64_t rank = attentions[a].rank, window = attentions[a].window;
    if (rank == BEST) {
        rank = tasks[t].best_rank;
        window = tasks[t].best_window;
    }
    if (rank == DP) rank = tasks[t].dp_rank;
    *(tp_lra_cfg *)cfg =
        (tp_lra_cfg){ .attn = { .kind = attentions[a].kind,
                                .dim = 64,
                                .heads = 2,
                                .length = tasks[t].length,
                                .rank = rank,
                                .window = window,
                                .conv = attentions[a].conv,
                                .fixed = attentions[a].fixed,
                                .dropout = tasks[t].dropout },
                      .layers = 2,
                      .hidden = 128,
                      .vocab = 512,
                      .classes = tasks[t].classes,
                      .pooling = attentions[a].kind == TP_LRA_LS ? TP_LRA_CLS_LAST : TP_LRA_MEAN,
                      .dropout = tasks[t].dropout,
                      .pair = tasks[t].pair };
    return true;
}

/* Tables 1, 2, 7 and 9 of Transformer-LS: "lra-TASK-ATTENTION" with printed multiply-adds. */
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
/* clang-format on */
const tp_model_row tp__lra_presets[] = {
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

/* ---- members ----
 *
 * Keys follow the official code, but num_landmarks, linformer_k and rp_dim are one member;
 * max_seq_len excludes the CLS. */

static const char *const kinds[] = { "lsta",     "softmax", "linformer", "performer", "nystrom",
                                     "reformer", "linear",  "none",      NULL };
static const char *const poolings[] = { "MEAN", "cls_last_layer", "cls_token", "CLS", NULL };
static const char *const projections[] = { "dynamic", "linformer", NULL };
static const char *const modes[] = { "outputs", "values", NULL };
static const char *const kernels[] = { "softmax", "relu", NULL };

#define AT(member) offsetof(tp_lra_cfg, member)
const tp_model_member tp__lra_members[] = {
    { "attn_type", TP_MEMBER_WORD, .at = AT(attn.kind), .words = kinds },
    { "max_seq_len", TP_MEMBER_INT64, .at = AT(attn.length), .common = TP_COMMON_LENGTH, .least = 1,
      .most = TP_LRA_MAX_SIZE },
    { "vocab_size", TP_MEMBER_INT64, .at = AT(vocab), .common = TP_COMMON_VOCAB, .least = 1,
      .most = TP_LRA_MAX_SIZE },
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS, .least = 1,
      .most = TP_LRA_MAX_SIZE },
    { "retrieval", TP_MEMBER_FLAG, .at = AT(pair), .common = TP_COMMON_PAIR },
    { "transformer_dim", TP_MEMBER_INT64, .at = AT(attn.dim), .least = 1, .most = TP_LRA_MAX_SIZE },
    { "num_head", TP_MEMBER_INT, .at = AT(attn.heads), .least = 1, .most = TP_LRA_MAX_SIZE },
    { "transformer_hidden_dim", TP_MEMBER_INT64, .at = AT(hidden), .least = 1,
      .most = TP_LRA_MAX_SIZE },
    { "num_layers", TP_MEMBER_INT, .at = AT(layers), .least = 1, .most = TP_LRA_MAX_LAYERS },
    { "tied_weights", TP_MEMBER_FLAG, .at = AT(tied) },
    { "pooling_mode", TP_MEMBER_WORD, .at = AT(pooling), .words = poolings },
    { "num_landmarks", TP_MEMBER_INT64, .at = AT(attn.rank), .least = 0, .most = TP_LRA_MAX_SIZE },
    { "window_size", TP_MEMBER_INT64, .at = AT(attn.window), .least = 0, .most = TP_LRA_MAX_SIZE },
    { "conv_kernel_size", TP_MEMBER_INT64, .at = AT(attn.conv), .least = 0,
      .most = TP_LRA_MAX_SIZE },
    { "proj", TP_MEMBER_CHOICE, .at = AT(attn.fixed), .words = projections },
    { "cls_mode", TP_MEMBER_CHOICE, .at = AT(attn.cls_values), .words = modes },
    { "dual_ln", TP_MEMBER_NOT, .at = AT(attn.raw_kv) },
    { "performer_kernel", TP_MEMBER_CHOICE, .at = AT(attn.relu), .words = kernels },
    { "inv_per_head", TP_MEMBER_FLAG, .at = AT(attn.inverse_per_head) },
    { "num_hash", TP_MEMBER_INT, .at = AT(attn.rounds), .least = 0, .most = 1024 },
    { "chunk_length", TP_MEMBER_INT64, .at = AT(attn.chunk), .least = 0, .most = TP_LRA_MAX_SIZE },
    { "bucket_factors", TP_MEMBER_INT64S, .at = AT(attn.buckets), .count = 2, .least = 0,
      .most = TP_LRA_MAX_SIZE },
    { "dropout_prob", TP_MEMBER_RATE, .at = AT(dropout) },
    { "attention_dropout", TP_MEMBER_RATE, .at = AT(attn.dropout) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

/* Bucket factors: none, one or two, all even. */
static bool are_buckets(const int64_t b[2])
{
    for (int i = 0; i < 2; i++)
        if (b[i] % 2) return false;
    return b[0] > 0 || b[1] == 0;
}

/* Checks the members this kind uses. */
static void check_kind(const tp_lra_attn_cfg *c, char *why, size_t size)
{
    const bool ls = c->kind == TP_LRA_LS, nystrom = c->kind == TP_LRA_NYSTROM;
    const bool ranked = nystrom || c->kind == TP_LRA_LINFORMER || c->kind == TP_LRA_PERFORMER;
    const bool convolves = ls || nystrom || c->kind == TP_LRA_LINFORMER;
    const bool hashes = c->kind == TP_LRA_REFORMER;
    const long long rank = (long long)c->rank;
    const int64_t chunk = c->chunk > 0 ? c->chunk : 64;

    if (ranked && c->rank == 0)
        snprintf(why, size, "the rank (mixtures, landmarks or features) is 0");
    else if ((ls || c->kind == TP_LRA_LINFORMER) && rank * c->heads > TP_LRA_MAX_SIZE)
        snprintf(why, size, "%d heads of rank %lld: the product may not be above %d", c->heads,
                 rank, TP_LRA_MAX_SIZE);
    else if (nystrom && c->length % c->rank)
        snprintf(why, size, "%lld tokens are no multiple of %lld landmarks", (long long)c->length,
                 rank);
    else if (ls && c->cls_from_seq && c->length < 2)
        snprintf(why, size, "a sequence whose first token is the CLS has at least 2 tokens");
    else if (convolves && c->conv > 0 && c->conv % 2 == 0)
        snprintf(why, size, "the kernel of the convolution is %lld, neither odd nor 0",
                 (long long)c->conv);
    else if (hashes && c->length > chunk && c->length % chunk)
        snprintf(why, size, "%lld tokens are no multiple of a chunk of %lld", (long long)c->length,
                 (long long)chunk);
    else if (hashes && !are_buckets(c->buckets))
        snprintf(why, size, "buckets must be one even factor or two, not %lld and %lld",
                 (long long)c->buckets[0], (long long)c->buckets[1]);
}

static void check_attn(const tp_lra_attn_cfg *c, char *why, size_t size)
{
    if (c->dim % c->heads)
        snprintf(why, size, "the width %lld does not divide into %d heads", (long long)c->dim,
                 c->heads);
    else
        check_kind(c, why, size);
}

/* Checks the members as part of a model. */
bool tp__lra_check_attn(const tp_lra_attn_cfg *c, char *why, size_t size)
{
    const tp_lra_cfg alone = { .attn = *c, .layers = 1, .hidden = 1, .vocab = 1, .classes = 1 };
    if (tp__check_members(tp__lra_members, &alone, why, size)) check_attn(c, why, size);
    return !why[0];
}

static void check_model(const tp_lra_cfg *c, char *why, size_t size)
{
    const bool ls = c->attn.kind == TP_LRA_LS, put = c->pooling == TP_LRA_CLS_POOL;
    const bool everywhere = c->pooling == TP_LRA_CLS_TOKEN || put;
    const bool alone = c->pooling == TP_LRA_CLS_LAST && c->layers == 1;

    if (tp__lra_has_embedding(c) && !ls)
        snprintf(why, size, "only long-short attention takes an embedding as CLS");
    else if (c->attn.cls_from_seq)
        snprintf(why, size, "cls_from_seq of an encoder's attention follows from its pooling");
    else if (put && tp__lra_rows(c, c->attn.length) < 2)
        snprintf(why, size, "a CLS in place of the last token needs a length of at least 2");
    else if (ls && c->attn.window == 0 && c->attn.rank == 0 && !everywhere && !alone)
        snprintf(why, size, "without a window and projections every layer needs a CLS");
    else if (ls && c->attn.window > 0 && c->attn.length % c->attn.window)
        snprintf(why, size, "%lld tokens are no multiple of the window %lld",
                 (long long)c->attn.length, (long long)c->attn.window);
}

bool tp__lra_check(const void *cfg, char *why, size_t size)
{
    const tp_lra_cfg *c = cfg;
    if (tp__check_members(tp__lra_members, c, why, size)) check_attn(&c->attn, why, size);
    if (!why[0]) check_model(c, why, size);
    return !why[0];
}

/* ---- costs ----
 *
 * Multiply-adds by the rule of Table 1 of Transformer-LS: those of the official code, and 5 per
 * layer-norm element. Softmax, activations and additions are free. */

/* Extra cost of a layer of n tokens by that rule. */
static double more(const tp_lra_cfg *c, double n)
{
    const double d = (double)c->attn.dim, r = (double)c->attn.rank, h = c->attn.heads;
    switch (c->attn.kind) {
    case TP_LRA_NYSTROM: /* F (Z (G v)); the rule: (F Z) (G v) */
        return n == r ? 0.0 : h * n * r * r - r * r * d;
    case TP_LRA_PERFORMER: return n * r * h;  /* denominators                */
    case TP_LRA_NONE: return 2.0 * n * d * d; /* queries and keys            */
    default: return 0.0;
    }
}

/* Number of layers that a separate CLS passes. */
static double cls_layers(const tp_lra_cfg *c)
{
    switch (c->pooling) {
    case TP_LRA_CLS_LAST: return 1.0;
    case TP_LRA_CLS_TOKEN: return c->layers;
    case TP_LRA_CLS_POOL: return c->attn.kind == TP_LRA_LS ? c->layers : 0.0;
    default: return 0.0;
    }
}

void tp__lra_paper(const void *cfg, int64_t tokens, tp_cost *cost)
{
    const tp_lra_cfg *c = cfg;
    const double N = (double)tp__lra_rows(c, tokens > 0 ? tokens : c->attn.length);
    const double d = (double)c->attn.dim, documents = c->pair ? 2.0 : 1.0;
    const double rest = d * d + 2.0 * d * (double)c->hidden + (double)c->attn.conv * d;
    double other = c->layers * more(c, N) - cls_layers(c) * d;
    if (tp__lra_has_embedding(c)) { /* the official last layer also computes the tokens' results */
        other += N * rest;
        cost->norm += documents * N * d;
    }
    cost->paper += cost->beyond + documents * other;
}
