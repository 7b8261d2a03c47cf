/* config.c - presets and checks of the LRA encoders. */
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

/* ---- presets ---- */

/* Tables 7 to 10 of Transformer-LS: the windows and ranks that were best for each task, 0, 0: not
 * published. */
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

enum { BEST = -1, DP = -2 }; /* of a rank: the task's */

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

/* Their numbers in the tables; false: the name is no "lra-TASK-ATTENTION". */
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

bool tp_lra_preset(tp_lra_cfg *cfg, const char *name, char *why, size_t size)
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
    *cfg = (tp_lra_cfg){ .attn = { .kind = attentions[a].kind,
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

/* ---- checks ---- */

static bool is_size(int64_t x)
{
    return tp__in_range(x, 1, TP_LRA_MAX_SIZE);
}

static bool is_size_or_0(int64_t x)
{
    return x == 0 || is_size(x);
}

/* Factors of buckets: none, one or two, each even. */
static bool are_buckets(const int64_t b[2])
{
    for (int i = 0; i < 2; i++)
        if (!is_size_or_0(b[i]) || b[i] % 2) return false;
    return b[0] > 0 || b[1] == 0;
}

/* Checks the members that the kind reads. */
static void check_kind(const tp_lra_attn_cfg *c, char *why, size_t size)
{
    const bool ls = c->kind == TP_LRA_LS, nystrom = c->kind == TP_LRA_NYSTROM;
    const bool ranked = nystrom || c->kind == TP_LRA_LINFORMER || c->kind == TP_LRA_PERFORMER;
    const bool convolves = ls || nystrom || c->kind == TP_LRA_LINFORMER;
    const bool hashes = c->kind == TP_LRA_REFORMER;
    const long long rank = (long long)c->rank;

    if (ls && (!is_size_or_0(c->rank) || !is_size_or_0(c->window)))
        snprintf(why, size,
                 "a window of %lld and %lld projections: neither may be below 0 or above %d",
                 (long long)c->window, rank, TP_LRA_MAX_SIZE);
    else if (ranked && !is_size(c->rank))
        snprintf(why, size, "the rank (mixtures, landmarks or features) is %lld, not 1 to %d", rank,
                 TP_LRA_MAX_SIZE);
    else if (nystrom && c->length % c->rank)
        snprintf(why, size, "%lld tokens are no multiple of %lld landmarks", (long long)c->length,
                 rank);
    else if (ls && c->cls_from_seq && c->length < 2)
        snprintf(why, size, "a sequence whose first token is the CLS has at least 2 tokens");
    else if (convolves && (!is_size_or_0(c->conv) || (c->conv > 0 && c->conv % 2 == 0)))
        snprintf(why, size, "the kernel of the convolution is %lld, neither odd nor 0",
                 (long long)c->conv);
    else if (hashes && (!is_size_or_0(c->chunk) || !tp__in_range(c->rounds, 0, 1024)))
        snprintf(why, size, "chunks of %lld tokens and %d rounds of hashing are impossible",
                 (long long)c->chunk, c->rounds);
    else if (hashes && !are_buckets(c->buckets))
        snprintf(why, size, "buckets must be one even factor or two, not %lld and %lld",
                 (long long)c->buckets[0], (long long)c->buckets[1]);
}

bool tp_lra_attn_cfg_check(const tp_lra_attn_cfg *c, char *why, size_t size)
{
    why[0] = '\0';
    if (!tp__in_range((int64_t)c->kind, TP_LRA_LS, TP_LRA_NONE))
        snprintf(why, size, "there is no attention number %d", (int)c->kind);
    else if (!is_size(c->dim) || c->heads < 1 || c->dim % c->heads)
        snprintf(why, size, "the width %lld does not divide into %d heads", (long long)c->dim,
                 c->heads);
    else if (!is_size(c->length))
        snprintf(why, size, "sequences have %lld tokens, not 1 to %d", (long long)c->length,
                 TP_LRA_MAX_SIZE);
    else if (!tp__is_rate(c->dropout))
        snprintf(why, size, "the dropout of attention must be in [0,1), not %g", c->dropout);
    else
        check_kind(c, why, size);
    return !why[0];
}

static void check_model(const tp_lra_cfg *c, char *why, size_t size)
{
    const bool embedded = c->pooling == TP_LRA_CLS_LAST || c->pooling == TP_LRA_CLS_TOKEN;
    const bool ls = c->attn.kind == TP_LRA_LS;
    const bool everywhere = c->pooling == TP_LRA_CLS_TOKEN || c->pooling == TP_LRA_CLS_POOL;
    const bool alone = c->pooling == TP_LRA_CLS_LAST && c->layers == 1;

    if (!tp__in_range(c->layers, 1, TP_LRA_MAX_LAYERS))
        snprintf(why, size, "the model has %d layers, not 1 to %d", c->layers, TP_LRA_MAX_LAYERS);
    else if (!is_size(c->hidden) || !is_size(c->vocab) || !is_size(c->classes))
        snprintf(why, size, "%lld hidden units, %lld words and %lld classes: each must be 1 to %d",
                 (long long)c->hidden, (long long)c->vocab, (long long)c->classes, TP_LRA_MAX_SIZE);
    else if (!tp__in_range((int64_t)c->pooling, TP_LRA_MEAN, TP_LRA_CLS_POOL))
        snprintf(why, size, "there is no pooling number %d", (int)c->pooling);
    else if (!tp__is_rate(c->dropout))
        snprintf(why, size, "the dropout must be in [0,1), not %g", c->dropout);
    else if (embedded && !ls)
        snprintf(why, size, "only long-short attention takes an embedding as CLS");
    else if (c->attn.cls_from_seq)
        snprintf(why, size, "cls_from_seq of an encoder's attention follows from its pooling");
    else if (c->pooling == TP_LRA_CLS_POOL && c->attn.length < 2)
        snprintf(why, size, "a CLS before a sequence needs a length of at least 2");
    else if (ls && c->attn.window == 0 && c->attn.rank == 0 && !everywhere && !alone)
        snprintf(why, size, "without a window and projections every layer needs a CLS");
    else if (ls && c->attn.window > 0 &&
             (c->attn.length - (c->pooling == TP_LRA_CLS_POOL ? 1 : 0)) % c->attn.window)
        snprintf(why, size, "%lld tokens are no multiple of the window %lld",
                 (long long)c->attn.length - (c->pooling == TP_LRA_CLS_POOL ? 1 : 0),
                 (long long)c->attn.window);
}

bool tp_lra_cfg_check(const tp_lra_cfg *c, char *why, size_t size)
{
    if (!tp_lra_attn_cfg_check(&c->attn, why, size)) return false;
    check_model(c, why, size);
    return !why[0];
}
