/* ops/attention.h - attention over sequences and over maps of tokens. See ops.h. */
#ifndef TAPEGRAD_OPS_ATTENTION_H
#define TAPEGRAD_OPS_ATTENTION_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- attention: tiled, so nothing of size N*S is stored. Heads are packed: [B,N,H*D] ---- */
typedef struct tp_attn_cfg {
    int heads;
    bool causal;    /* query i sees keys j <= i + S - N */
    double scale;   /* factor of q k; 0 means 1/sqrt(D) */
    double dropout; /* of the probabilities, in training */
    /* tp_rel_attention; > 0: each query sees at most that many keys, its own included
     * (Transformer-XL's same_length) */
    int64_t max_span;

    /* ---- tp_attention only ---- */

    /* of k and v, a divisor of heads; 0: heads. Query head h reads head h / (heads / kv_heads)
     * (grouped-query attention; 1: multi-query) */
    int kv_heads;
    /* subtracts slope[h] |i + S - N - j| from the logits, with the standard slopes 2^(-8 (h+1) / H)
     * if H is a power of two; otherwise those of the power p below, then every second one of 2p */
    bool alibi;
    /* > 0: only the first `keys` rows of k and v take part, as if k and v were cut there: the
     * filled part of a cache. S above is then `keys` */
    int64_t keys;
} tp_attn_cfg;

/* softmax(scale q k^T + bias) v: q [B,N,H*D], k, v [B,S,G*D], G = kv_heads; mask TP_U8 [B,S] (1 =
 * visible) or TP_NONE; bias [H,N,S] or [B,H,N,S], or [H], ALiBi's slopes as for cfg.alibi, or
 * TP_NONE. A query that sees no key gives zeros. Keys that a query does not see have the weight 0
 * for it: rows of k and v must be finite, for a NaN spreads to all queries, whether a mask,
 * causality or a span hides it; rows from cfg.keys on may hold anything. Saves inputs, output and
 * the log-sum-exp; heads that share keys and values read one copy. (Vaswani et al. 2017; tiling
 * after Dao et al. 2022; grouped heads: Ainslie et al. 2023; ALiBi: Press et al. 2022.) */
TP_API tp_tensor tp_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor mask,
                              tp_tensor bias, tp_attn_cfg cfg);

/* Rotary positions (Su et al. 2021). */
typedef struct tp_rotary_cfg {
    int heads;
    int64_t size;   /* elements of each head that are rotated, the first ones; even; 0: all */
    double base;    /* theta; 0: 10000 */
    int64_t offset; /* added to every position: tokens before these, in decoding */
    /* pairs (2i, 2i+1) as in GPT-J; otherwise (i, i + size/2) as in GPT-NeoX and Llama */
    bool interleaved;
    /* For texts longer than those of the training: angles are divided by `factor`. 0: they are
     * not. If `original` is given, tokens of the texts before, only those pairs are that turn at
     * most `low` times within them; pairs that turn at least `high` times stay, and the factors of
     * those between are mixed linearly by their turns (Llama 3.1). */
    double factor, low, high;
    int64_t original;
} tp_rotary_cfg;

/* Rotates pair i of each head of x [B,N,H*D] at position p by the angle p base^(-2i/size), times
 * what cfg.factor makes of it.
 * positions: i32 or i64, [N] or [B,N], or TP_NONE for 0 .. N-1. Angles are computed in double, so
 * they are accurate for any position; cosines and sines are computed once for all heads, and
 * nothing but the positions is saved: the gradient is the inverse rotation. */
TP_API tp_tensor tp_rotary(tp_tape *T, tp_tensor x, tp_tensor positions, tp_rotary_cfg cfg);

/* Attention of Transformer-XL: causal, S = memory + N, distance d = i + S - N - j >= 0, logit scale
 * ((q_i + r_w) k_j + (q_i + r_r) pos_d). pos [S,H*D] is ordered by increasing distance; r_w, r_r
 * are [H,D]. Hidden rows of k and v must be finite, as in tp_attention. (Dai et al. 2019, Appendix
 * B.) */
TP_API tp_tensor tp_rel_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor pos,
                                  tp_tensor r_w, tp_tensor r_r, tp_attn_cfg cfg);

/* Dynamic projection: head slice i of output row c*r+j is sum_s p[s] x[c*l+s], with p = softmax
 * over the l tokens of chunk c of scores[., i*r+j]. mask TP_U8 [B,N] (1 = visible) or TP_NONE:
 * hidden tokens have no weight whatever they hold, and a chunk without visible ones gives zeros. x
 * [B,N,H*D], scores [B,N,H*r], N a multiple of l -> [B,(N/l)*r,H*D]. (Zhu et al. 2021,
 * Transformer-LS, equation 3.) */
TP_API tp_tensor tp_chunk_project(tp_tape *T, tp_tensor x, tp_tensor scores, tp_tensor mask,
                                  int heads, int chunk, int rank);

/* Keys and values. */
typedef struct tp_kv {
    tp_tensor k, v;
} tp_kv;

/* tp_chunk_project of k and of v [B,N,H*D], with one softmax of the scores. */
TP_API tp_kv tp_chunk_project_kv(tp_tape *T, tp_tensor k, tp_tensor v, tp_tensor scores,
                                 tp_tensor mask, int heads, int chunk, int rank);

/* tp_layernorm of k [...,C] and of v [...,C], of one dtype, with the same w and b [C] or TP_NONE;
 * the numbers of rows may differ. On a GPU one launch in each direction takes both, and the
 * gradients of w and b are one sum over the rows of both. */
TP_API tp_kv tp_layernorm_kv(tp_tape *T, tp_tensor k, tp_tensor v, tp_tensor w, tp_tensor b,
                             double eps);

/* Long-short attention of the language model (Zhu et al. 2021, equation 6; official computation). N
 * queries follow a cache. Its last Wc <= window rows are in k_win, v_win, and the vectors of its Cc
 * = nc/r - floor(N/l) whole chunks are in k_cmp, v_cmp; the cache itself may be longer. */
typedef struct tp_ls_attn_cfg {
    int heads, chunk;
    int rank;               /* 0: only the window; k_cmp, v_cmp, pos_cmp are absent */
    int window;             /* 0: only the vectors; k_win, v_win, pos_win, r_w, r_r are absent */
    int clamp, chunk_clamp; /* largest distances looked up in pos_win, pos_cmp; <= 0: no limit */
    double dropout;         /* of the probabilities, in training; 0 draws nothing */
    /* variants; the official code has all of them false: */
    bool masked;  /* empty cache rows are invisible; otherwise they act as zero tokens */
    bool segment; /* a query also sees the window before its own segment of w tokens */
} tp_ls_attn_cfg;

typedef struct tp_ls_in {
    tp_tensor q;            /* [B,N,H*D] unscaled; the op scales by 1/sqrt(D) */
    tp_tensor k_win, v_win; /* [B,Wc+N,H*D] normalised, oldest first */
    tp_tensor k_cmp, v_cmp; /* [B,nc,H*D] normalised, oldest first, or TP_NONE if nc is 0 */
    tp_tensor pos_win;      /* [w,H*D], indexed by distance (segment: [2w,H*D]) */
    tp_tensor pos_cmp;      /* [>=nc,H*D], row 0 for the nearest vector; TP_NONE if nc is 0 */
    tp_tensor r_w, r_r;     /* [1,H,1,1,D], [1,H,1,D] or [H,D]: H*D elements */
    int64_t cache, valid;   /* masked: rows of the cache; the last `valid` of them are real */
} tp_ls_in;

/* One softmax over window rows and chunk vectors -> [B,N,H*D]. Query t sees the window rows at
 * distances 0..w-1 and the vectors of chunks c < Cc + t/l. Saves inputs, output and log-sum-exp. N
 * need not be a multiple of l: the last, partial chunk has no vector, and no query could see it. A
 * query that sees nothing (no window and no real chunk before its own) gives zeros. Dropout takes
 * the random word of element [B,H,N,nc+Wc+N], the keys being vectors, then window rows. There is no
 * mask of keys: a padded batch would also shift the chunks, which all rows share; `valid` hides an
 * empty cache. Hidden rows and vectors must be finite, as in tp_attention. */
TP_API tp_tensor tp_ls_attention(tp_tape *T, tp_ls_in in, tp_ls_attn_cfg cfg);

/* ---- attention over maps of tokens ---- */
typedef enum tp_edge {
    TP_EDGE_MASK,  /* keys outside the map are invisible */
    TP_EDGE_EXACT, /* so are keys more than halo rows or columns away from the query */
    /* chunks wrap around. The last chunks are padded with zero keys and values, visible where
     * wrapping reaches them unless mask_wrapped is set */
    TP_EDGE_CYCLIC
} tp_edge;

/* tp_window_attn_cfg.block; 1..8: the query's own chunk and one neighbour */
enum { TP_BLOCK_OWN = -1, TP_BLOCK_ALL = 0 };

typedef struct tp_window_attn_cfg {
    int heads;
    int64_t height, width; /* of the map of tokens */
    int64_t global;        /* number of global tokens, which precede those of the map */
    int64_t window[2]; /* rows and columns of a chunk of queries; { 0, 0 }: no keys of the map */
    int64_t halo[2];   /* rows and columns visible around a query's chunk, <= window */
    tp_edge edge;
    int block;        /* 1..8: the only visible one of the eight chunks around a query's, by rows */
    int64_t reach[2]; /* largest position differences in the table; 0: window + halo - 1 */
    int64_t stride;   /* table rows per difference of one map row; 0: 2 reach[1] + 1 */
    bool mask_wrapped; /* TP_EDGE_CYCLIC */
    double scale;      /* factor of q k; 0 means 1/sqrt(D) */
    double dropout;    /* of the probabilities, in training */
} tp_window_attn_cfg;

typedef struct tp_window_in {
    tp_tensor q, k, v; /* [B,g+N,H*D], N = height * width row by row; global rows of q are unused */
    tp_tensor low_k, low_v; /* [B,r,H*D] keys and values that every query sees, or TP_NONE */
    /* [2 reach[0] stride + 2 reach[1] + 1,H] or TP_NONE: row (y - u + reach[0]) stride + x - v +
     * reach[1] is added to the logit of query (y,x) and key (u,v) */
    tp_tensor table;
    tp_tensor global_bias; /* [H,g] or TP_NONE: added to the logits of the global keys */
    /* TP_U8 [B,g+N], packed [M] (1 = visible), or TP_NONE: hidden tokens are no keys, and as
     * queries they give zeros and have no gradient */
    tp_tensor mask;
    tp_tensor low_mask; /* TP_U8 [B,r] or TP_NONE: hidden low keys */
    tp_tensor offset;   /* integer [B+1] or TP_NONE: the map is B packed sequences */
} tp_window_in;

/* One softmax over the low keys, the global tokens and the keys around the query's chunk ->
 * [B,N,H*D]. Chunks start at row and column 0; the last ones may be smaller. For the attention of
 * the global rows use tp_attention. Nothing of size N * keys is stored; saves inputs, output and
 * log-sum-exp.
 *
 * A query that sees no key gives zeros, and what hidden rows hold does not matter. Chunks whose
 * queries are all hidden cost next to nothing. The zero keys of TP_EDGE_CYCLIC are not tokens: no
 * mask hides them. Dropout takes the random word of element [B,H,N,r+g+N], the keys being low ones,
 * global tokens, cells.
 *
 * A sequence is a map of height 1: with segments of w tokens and e keys to either side, height 1,
 * width N, window { 1, w } and halo { 0, e }, e <= w. Long-short attention of encoders (Zhu et al.
 * 2021, equation 6; official code: e = max(w / 2, 1)) has low keys from tp_chunk_project_kv over
 * the whole sequence, possibly preceded by a global token. With TP_EDGE_EXACT and e = w each token
 * sees e tokens to either side (Longformer, Beltagy et al. 2020). Sequences of different lengths
 * may be packed (ops/packed.h): with offset, q, k, v and the result are [M,H*D], and width is the
 * longest length. Segments restart in each sequence, whose last one may be smaller. Then there are
 * no global tokens, biases or blocks, and the edge is not cyclic.
 *
 * Vision Longformer (Zhang et al. 2021): halo = window, and block is the random shift. Its full
 * attention with relative bias is one window of the map's size with halo 0. Long-short attention of
 * images (Zhu et al. 2021, section 4.3): halo = half the window, low keys from the dynamic
 * projection. */
TP_API tp_tensor tp_window_attention_2d(tp_tape *T, tp_window_in in, tp_window_attn_cfg cfg);

typedef struct tp_lsla_attn_cfg {
    int heads;
    int64_t height, width; /* of the map of tokens, both multiples of window */
    int64_t window, shift; /* the map is rolled up and left by shift before it is partitioned */
    bool mask_outer;       /* shifted windows: no outer bias between different border regions */
    double scale;          /* used without a learned scale; 0 means 1/sqrt(D) */
    double dropout;        /* of the softmax, in training, before the outer bias; 0 draws nothing */
} tp_lsla_attn_cfg;

/* Light self-limited attention in each window of w x w tokens and each head: (dropout(softmax(E (q
 * k^T) + inner + mask)) + outer) v, where E multiplies elementwise and the mask is -100 between
 * tokens of different border regions of the rolled map. q, k, v [B,N,H*D], N = height * width; the
 * layer's input itself may be k and v. E [w*w,w*w] is shared by the heads, or TP_NONE. inner and
 * outer [(2w-1)^2,H] or TP_NONE: row (dy + w - 1)(2w - 1) + dx + w - 1 holds the bias for a query's
 * position minus a key's. Saves inputs and log-sum-exp. Dropout takes the random word of element
 * [B,H,N,w*w] of a query of the map and a key of its window. Windows cover the map, so there is no
 * mask of tokens. (ViT-LSLA, Hechen et al. 2022, equations 15-18 and Algorithm 1.) */
TP_API tp_tensor tp_lsla_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v,
                                   tp_tensor scale, tp_tensor inner, tp_tensor outer,
                                   tp_lsla_attn_cfg cfg);

/* LSH attention (Reformer). Zeros are the published choices. */
typedef struct tp_lsh_attn_cfg {
    int heads;
    int64_t chunk; /* tokens of a chunk; 0: 64. More tokens must be a multiple of it */
    int rounds;    /* of hashing; 0: 2 */
    /* number of a round's buckets, as one even factor or two; 0: by tp_lsh_buckets */
    int64_t buckets[2];
    int64_t longest; /* n_max of tp_lsh_buckets; 0: N */
    double dropout;  /* of the probabilities, in training */
} tp_lsh_attn_cfg;

/* Attention of tokens that hash to near buckets. qk [B,N,H*D] are the queries, and normalised in
 * the op, for each head, the keys: x / sqrt(mean x^2 + 1e-6) / sqrt(D). In each round tokens are
 * sorted by bucket and cut into chunks; a chunk sees itself and the one before it, the first chunk
 * of the first round the last chunk of the last. A key counts in the softmax as often as it is
 * seen: the rounds' results are weighted by the softmax of their log-sum-exp. A token sees itself
 * only where it sees nothing else: with the logit -1e5. If N <= chunk, nothing is hashed and all
 * see each other.
 *
 * mask: TP_U8 [B,N] (1 = real token) or TP_NONE. Padding has its own bucket and, as a key, the
 * logit -1e9; as a query it sees itself; it must be finite, as in tp_attention. rotations: f32
 * [H,D,rounds,sum of buckets / 2], also beside bf16 data, without a gradient, or TP_NONE: normal
 * numbers from the tape's random stream, new in every call and the same where tp_checkpoint repeats
 * one. The bucket of a factor f is the largest of z = x rotations and -z, f in all; buckets are
 * computed in f32 for bf16 data. Dropout takes the random word 2^48 + e, after those of the
 * rotations, of element e of [B,H,rounds*N,keys]: an entry, in sorted order, and a key that its
 * chunk sees. Saves inputs, output, the order of the rounds * N entries and two numbers per token:
 * memory is linear in N. (Kitaev et al. 2020.) */
TP_API tp_tensor tp_lsh_attention(tp_tape *T, tp_tensor qk, tp_tensor v, tp_tensor rotations,
                                  tp_tensor mask, tp_lsh_attn_cfg cfg);

/* The published number of buckets for n tokens, of at most n_max: the smallest power of two above n
 * / chunk, as one factor, buckets[1] = 0, or, if it exceeds 2 max(sqrt(n_max / chunk), chunk), as
 * two. Quotients and the root are rounded down. Both are 0 if n <= chunk, where nothing is
 * hashed. */
TP_API void tp_lsh_buckets(int64_t n, int64_t n_max, int64_t chunk, int64_t buckets[2]);

/* Features phi of a query or key x of D numbers, for attention by sums. W: the projection. */
typedef enum tp_features {
    TP_FEATURES_ELU, /* elu(x) + 1; D features, without a projection */
    /* exp(W x - |x|^2 / 2 - c) + eps, of the softmax kernel (Performer's FAVOR+); c: the largest of
     * W x, for queries of the row, for keys of all rows of a sample and head */
    TP_FEATURES_POSITIVE,
    TP_FEATURES_RELU /* relu(W x) + eps */
} tp_features;

typedef struct tp_linear_attn_cfg {
    int heads;
    tp_features features;
    bool normalise; /* TP_FEATURES_ELU: divide by phi(q_i) sum_j phi(k_j); the others always do */
    /* with a projection: of queries and keys before the features; 0: D^(-1/4). Otherwise of a
     * result that is not normalised; 0: 1/sqrt(S) */
    double scale;
    double eps; /* 0: 1e-4, with TP_FEATURES_RELU 1e-3 */
} tp_linear_attn_cfg;

/* Attention whose softmax is replaced by a product of features: y_i = phi(q_i) sum_j phi(k_j)
 * v_j^T, divided by phi(q_i) sum_j phi(k_j) if normalised (0 where that is 0). q [B,N,H*D], k, v
 * [B,S,H*D] -> [B,N,H*D]. projection [M,D], all heads', f32 also beside bf16 data and without a
 * gradient, or TP_NONE for TP_FEATURES_ELU. mask: TP_U8 [B,S] (1 = real token) or TP_NONE. Padded
 * values are zeros, whatever k and v hold there. Padded keys are left out of TP_FEATURES_ELU; in
 * the others they are zero vectors, whose features count in the denominator, as in Performer's use
 * on Long Range Arena. The largest numbers c are constants to the gradient. Features exist in tiles
 * only: beside inputs and output, memory is M (D + 1) numbers for each sample and head, and three
 * for each token and head. There are no probabilities, so there is no dropout of them.
 * (Katharopoulos et al. 2020; Choromanski et al. 2021.) */
TP_API tp_tensor tp_linear_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v,
                                     tp_tensor projection, tp_tensor mask, tp_linear_attn_cfg cfg);

#ifndef TP_NO_SITE
#include <tapegrad/sites/ops/attention.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
