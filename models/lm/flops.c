/* flops.c - closed forms of the multiply-adds and activation memory of the language models.
 *
 * They are for one forward pass of one row of the batch: M tokens after L rows of cache. Position
 * tables, which all rows of a batch share, count in full; only visible pairs of query and key
 * count. */
#include <tapegrad/models.h>

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* The sizes in the formulas. */
typedef struct ls_sizes {
    double M, L, d, F, H, V, N;
    double r;             /* vectors per chunk                   */
    double near;          /* cached rows of the window           */
    double rows;          /* rows projected to keys and values   */
    double keys;          /* visible rows of a window, on average */
    double old;           /* vectors of the cache                */
    double all;           /* vectors of cache and segment        */
    double seen;          /* visible vectors, on average         */
    double table;         /* rows of the window's position table */
    double local, global; /* rows and vectors that pass a norm, as keys and as values */
} ls_sizes;

static ls_sizes ls_sizes_of(const tp_ls_lm_cfg *c, int64_t tokens, int64_t cache)
{
    const double w = c->ls.attn.window, l = c->ls.attn.chunk;
    ls_sizes s = { .M = (double)tokens,
                   .L = (double)cache,
                   .d = (double)c->dim,
                   .F = (double)c->hidden,
                   .H = c->ls.attn.heads,
                   .V = (double)c->vocab,
                   .N = c->layers,
                   .r = c->ls.attn.rank };
    s.near = least(w, s.L);
    s.rows = s.M + (c->ls.project_first && s.r > 0.0 ? s.L : s.near);
    s.keys = c->ls.attn.segment ? w + (least(w, s.M) + 1.0) / 2.0 : w;
    s.old = s.L / l * s.r;
    s.all = (s.L + s.M) / l * s.r;
    s.seen = s.old + s.r * (s.M / l - 1.0) / 2.0;
    s.table = c->ls.attn.segment ? 2.0 * w : w;
    s.local = !c->ls.raw_kv && (w > 0.0 || c->ls.ln_local) ? s.rows : 0.0;
    s.global = c->ls.raw_kv ? 0.0 : s.all;
    return s;
}

tp_flops tp_ls_lm_flops(const tp_ls_lm_cfg *cfg, int64_t tokens, int64_t cache)
{
    if (!cfg) return (tp_flops){ 0 };
    const ls_sizes s = ls_sizes_of(cfg, tokens, cache);
    const double d = s.d, dd = d * d;
    const bool first = cfg->ls.project_first;

    const double projections =
        2.0 * s.M * dd + 2.0 * s.rows * dd + (first ? 0.0 : 2.0 * s.old * dd);
    const double compression =
        (s.M + s.L) * d * s.H * s.r + (2.0 * s.M + (first ? 2.0 : 1.0) * s.L) * s.r * d;
    const double attention = 3.0 * s.M * (s.keys + s.seen) * d;
    const double tables = (s.table + s.all) * dd;
    const double feed_forward = 2.0 * s.M * d * s.F;
    const double normed =
        (cfg->pre_ln ? 2.0 * s.M + s.L : 2.0 * s.M) + 2.0 * s.local + 2.0 * s.global;

    const double macs =
        s.N * (projections + compression + attention + tables + feed_forward) + s.M * d * s.V;
    return (tp_flops){ .macs = macs, .paper = macs, .norm = s.N * normed * d };
}

tp_flops tp_txl_flops(const tp_txl_cfg *cfg, int64_t tokens, int64_t memory)
{
    if (!cfg) return (tp_flops){ 0 };
    const double M = (double)tokens, S = (double)(tokens + memory), d = (double)cfg->dim;
    const double a = (double)(cfg->heads * cfg->d_head), F = (double)cfg->hidden;
    double pairs = 0.0; /* visible pairs of query and key */

    for (int64_t i = 1; i <= tokens; i++)
        pairs += cfg->same_length ? least((double)(memory + i), (double)cfg->mem_len)
                                  : (double)(memory + i);
    const double layer = (2.0 * M + 3.0 * S) * d * a + 3.0 * pairs * a + 2.0 * M * d * F;
    const double macs = cfg->layers * layer + M * d * (double)cfg->vocab;
    return (tp_flops){ .macs = macs,
                       .paper = macs,
                       .norm = cfg->layers * ((cfg->pre_ln ? S : M) + M) * d };
}

/* ---- activations, in values ---- */

/* Values that the attention's ops save: the normalised cache; rows joined, projected and
 * normalised; scores; vectors before and after their norm; queries, tables, output and
 * log-sum-exp. */
static double ls_attention_values(const tp_ls_lm_cfg *c, const ls_sizes *s)
{
    const bool first = c->ls.project_first;
    const double cache = c->pre_ln && !first && s->r > 0.0 ? s->L : 0.0;
    const double raw = first ? 2.0 * s->all : 2.0 * s->all + s->old;
    const double wide = cache + 3.0 * s->rows + 2.0 * s->local + raw + 2.0 * s->global +
                        2.0 * s->M + s->table + s->all;
    const double statistics =
        (c->pre_ln ? 2.0 * s->L : 0.0) + 4.0 * s->local + 4.0 * s->global + s->M * s->H;
    return wide * s->d + (s->M + s->L) * s->H * s->r + statistics;
}

/* Values that the activation between fc1 and fc2 saves: its input (for ReLU the sign, a byte) and
 * its output. */
static double feed_forward_values(double M, double F, bool gelu)
{
    return (gelu ? 2.0 : 1.25) * M * F;
}

double tp_ls_lm_activations(const tp_ls_lm_cfg *cfg, int64_t tokens, int64_t cache)
{
    if (!cfg) return 0;
    const ls_sizes s = ls_sizes_of(cfg, tokens, cache);
    const double ends = s.M * (s.d + s.V), input = s.M * s.d;
    double layer = input;

    if (cfg->recompute != TP_RECOMPUTE_BLOCK)
        layer += 3.0 * s.M * s.d + 4.0 * s.M + feed_forward_values(s.M, s.F, cfg->gelu);
    if (cfg->recompute == TP_RECOMPUTE_NONE) layer += ls_attention_values(cfg, &s);
    return 4.0 * (s.N * layer + ends);
}

double tp_txl_activations(const tp_txl_cfg *cfg, int64_t tokens, int64_t memory)
{
    if (!cfg) return 0;
    const double M = (double)tokens, S = (double)(tokens + memory), d = (double)cfg->dim;
    const double a = (double)(cfg->heads * cfg->d_head), ends = M * (d + (double)cfg->vocab);
    const double joined = cfg->pre_ln ? 2.0 * S * d + 2.0 * S : S * d;
    const double attention = joined + (2.0 * M + 3.0 * S) * a + M * cfg->heads;
    double layer = M * d;

    if (cfg->recompute != TP_RECOMPUTE_BLOCK)
        layer += (cfg->pre_ln ? 2.0 : 3.0) * M * d + 4.0 * M +
                 feed_forward_values(M, (double)cfg->hidden, false);
    if (cfg->recompute == TP_RECOMPUTE_NONE) layer += attention;
    return 4.0 * (cfg->layers * layer + ends);
}
