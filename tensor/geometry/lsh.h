/* lsh.h - the geometry of LSH attention: chunks, hashing rounds, factors of bucket numbers. */
#ifndef TP_LSH_H
#define TP_LSH_H

#include <string.h>
#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/host_device.h"

enum { LSH_QK, LSH_V, LSH_ROTATIONS, LSH_MASK, LSH_NX };
enum { LSH_Y, LSH_ORDER, LSH_STATS, LSH_NY };

#define TP_LSH_PADDED (-1e9)             /* the logit of a padded key */
#define TP_LSH_OWN    (-1e5)             /* a token's logit with itself */
#define TP_LSH_EPS    1e-6               /* added to the mean square of a key */
#define TP_LSH_WORDS  (INT64_C(1) << 48) /* dropout's first word; rotations use those before */

/* Entry e of a head is a token in a hashing round, sorted by bucket: order [B,H,R*N]. Chunk k of
 * round r starts at entry (r chunks + k) chunk. A sequence of one chunk is not hashed: it has one
 * round, in which tokens keep their order and see each other. */
typedef struct tp_lsh {
    int64_t batch, heads, tokens, dim, width; /* B, H, N, D, H * D */
    int64_t chunk, chunks, rounds;            /* chunks of a round; 1: no hashing */
    int64_t entries;                          /* rounds * tokens */
    int64_t keys;                             /* entries that a chunk sees */
    int64_t factor[2], columns;               /* columns of z per round: half the sum of factors */
    int64_t buckets; /* product of the factors; padding is in the next bucket */
} tp_lsh;

static inline tp_lsh tp__lsh(const tp_view *x, const tp_lsh_attn_cfg *cfg)
{
    const tp_view *qk = &x[LSH_QK];
    tp_lsh g;
    memset(&g, 0, sizeof g);
    g.batch = qk->dim[0];
    g.heads = cfg->heads;
    g.tokens = qk->dim[1];
    g.dim = qk->dim[2] / cfg->heads;
    g.width = qk->dim[2];
    g.chunk = cfg->chunk > 0 ? cfg->chunk : 64;
    g.chunks = g.rounds = 1;
    if (g.tokens > g.chunk) {
        g.rounds = cfg->rounds > 0 ? cfg->rounds : 2;
        g.chunks = g.tokens / g.chunk;
        g.keys = 2 * g.chunk;
        g.factor[0] = cfg->buckets[0];
        g.factor[1] = cfg->buckets[1];
        if (!g.factor[0])
            tp_lsh_buckets(g.tokens, cfg->longest > 0 ? cfg->longest : g.tokens, g.chunk, g.factor);
        g.buckets = g.factor[0] * (g.factor[1] ? g.factor[1] : 1);
        g.columns = (g.factor[0] + g.factor[1]) / 2;
    } else {
        g.chunk = g.keys = g.tokens;
    }
    g.entries = g.rounds * g.tokens;
    return g;
}

/* Entry e of the head, key 0, of the probabilities [B,H,rounds*N,keys], as a random word. */
TP_HD static inline int64_t tp__lsh_row(const tp_lsh *g, int64_t head, int64_t e)
{
    return TP_LSH_WORDS + (head * g->entries + e) * g->keys;
}

/* The first of the g.keys entries that chunk k of round r sees; entries wrap around. */
static inline int64_t tp__lsh_first(const tp_lsh *g, int64_t r, int64_t k)
{
    const int64_t own = (r * g->chunks + k) * g->chunk;
    return g->chunks == 1 ? own : (own + g->entries - g->chunk) % g->entries;
}

#endif
