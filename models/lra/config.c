/* config.c - checks of configurations of the LRA encoders. */
#include <stdio.h>

#include "inner.h"
#include "model_inner.h"

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
    const int64_t chunk = c->chunk > 0 ? c->chunk : 64;

    if (ls && (!is_size_or_0(c->rank) || !is_size_or_0(c->window)))
        snprintf(why, size,
                 "a window of %lld and %lld projections: neither may be below 0 or above %d",
                 (long long)c->window, rank, TP_LRA_MAX_SIZE);
    else if (ranked && !is_size(c->rank))
        snprintf(why, size, "the rank (mixtures, landmarks or features) is %lld, not 1 to %d", rank,
                 TP_LRA_MAX_SIZE);
    else if ((ls || c->kind == TP_LRA_LINFORMER) && rank * c->heads > TP_LRA_MAX_SIZE)
        snprintf(why, size, "%d heads of rank %lld: the product may not be above %d", c->heads,
                 rank, TP_LRA_MAX_SIZE);
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
    else if (hashes && c->length > chunk && c->length % chunk)
        snprintf(why, size, "%lld tokens are no multiple of a chunk of %lld", (long long)c->length,
                 (long long)chunk);
    else if (hashes && !are_buckets(c->buckets))
        snprintf(why, size, "buckets must be one even factor or two, not %lld and %lld",
                 (long long)c->buckets[0], (long long)c->buckets[1]);
}

bool tp_lra_attn_cfg_check(const tp_lra_attn_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why)
            snprintf(why, size, "lra_attn_cfg_check: NULL was given in place of a configuration");
        return false;
    }
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
    const bool ls = c->attn.kind == TP_LRA_LS, put = c->pooling == TP_LRA_CLS_POOL;
    const bool everywhere = c->pooling == TP_LRA_CLS_TOKEN || put;
    const bool alone = c->pooling == TP_LRA_CLS_LAST && c->layers == 1;

    if (!tp__in_range(c->layers, 1, TP_LRA_MAX_LAYERS))
        snprintf(why, size, "the model has %d layers, not 1 to %d", c->layers, TP_LRA_MAX_LAYERS);
    else if (!is_size(c->hidden) || !is_size(c->vocab) || !is_size(c->classes))
        snprintf(why, size, "%lld hidden units, %lld words and %lld classes: each must be 1 to %d",
                 (long long)c->hidden, (long long)c->vocab, (long long)c->classes, TP_LRA_MAX_SIZE);
    else if (!tp__in_range((int64_t)c->pooling, TP_LRA_MEAN, TP_LRA_CLS_POOL))
        snprintf(why, size, "there is no pooling number %d", (int)c->pooling);
    else if (!tp__in_range((int64_t)c->recompute, TP_RECOMPUTE_NONE, TP_RECOMPUTE_BLOCK))
        snprintf(why, size, "there is no recomputation number %d", (int)c->recompute);
    else if (!tp__is_rate(c->dropout))
        snprintf(why, size, "the dropout must be in [0,1), not %g", c->dropout);
    else if (tp__lra_has_embedding(c) && !ls)
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

bool tp_lra_cfg_check(const tp_lra_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "lra_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    if (!tp_lra_attn_cfg_check(&c->attn, why, size)) return false;
    check_model(c, why, size);
    return !why[0];
}
