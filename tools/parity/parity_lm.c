/* parity_lm.c - kinds of the language models: whole models over segments, full-size models, and the
 * table of kinds.
 *
 * Transformer-LS and Transformer-XL cases differ only in names (cache, mems), so they share
 * code. */
#include <math.h>
#include <stdlib.h>

#include "parity_lm.h"

/* ---- models ---- */

/* -1 and 0 mean off. */
static int clamp(parity *p, const char *key)
{
    return (int)par_int(p, key, -1, -1, INT32_MAX);
}

tp_ls_cfg lm_ls_cfg(parity *p)
{
    static const char *const caches[] = { "phantom", "masked", NULL };
    static const char *const windows[] = { "token", "segment", NULL };
    static const char *const inputs[] = { "raw", "ln_local", NULL };
    static const char *const orders[] = { "compress_first", "project_first", NULL };

    return (tp_ls_cfg){
        .attn = { .heads = (int)par_size(p, "n_head", 8),
                  .chunk = (int)par_size(p, "chunk_size", 16),
                  .rank = (int)par_count(p, "chunk_rank", 1),
                  .window = (int)par_count(p, "window_len", 512),
                  .clamp = clamp(p, "clamp_len"),
                  .chunk_clamp = clamp(p, "cpos_clamp_len"),
                  .masked = par_word(p, "empty_cache", 0, caches) == 1,
                  .segment = par_word(p, "window", 0, windows) == 1 },
        .ln_local = par_word(p, "dproj_input", 0, inputs) == 1,
        .project_first = par_word(p, "cache_dproj", 0, orders) == 1,
    };
}

tp_ls_lm_cfg lm_cfg(parity *p)
{
    return (tp_ls_lm_cfg){
        .vocab = par_size(p, "vocab_size", 208),
        .dim = par_size(p, "d_model", 512),
        .hidden = par_size(p, "d_inner", 2048),
        .layers = (int)par_size(p, "n_layer", 12),
        .mem_len = par_given(p, "mem_len") ? par_count(p, "mem_len", 0) : par_size(p, "M", 2048),
        .ls = lm_ls_cfg(p),
        .bias = par_flag(p, "use_bias", false),
        .pre_ln = par_flag(p, "pre_ln", true),
        .gelu = par_flag(p, "use_gelu", true),
    };
}

tp_txl_cfg lm_txl_cfg(parity *p)
{
    const int64_t dim = par_size(p, "d_model", 512), heads = par_size(p, "n_head", 8);

    par_fixed(p, "ext_len", 0.0);
    par_fixed(p, "attn_type", 0.0);
    par_fixed(p, "tie_weight", 1.0);
    if (par_flag(p, "same_length", false) && par_count(p, "mem_len", 512) == 0)
        par_illegal(p, "metadata same_length: with mem_len = 0 a query sees nothing");
    return (tp_txl_cfg){
        .vocab = par_size(p, "vocab_size", 204),
        .dim = dim,
        .hidden = par_size(p, "d_inner", 2048),
        .d_head = par_size(p, "d_head", dim >= heads ? dim / heads : 1),
        .layers = (int)par_size(p, "n_layer", 12),
        .heads = (int)heads,
        .mem_len = par_count(p, "mem_len", 512),
        .clamp = clamp(p, "clamp_len"),
        .pre_ln = par_flag(p, "pre_lnorm", false),
        .same_length = par_flag(p, "same_length", false),
    };
}

lm_case *lm_open(parity *p)
{
    lm_case *c = par_alloc(p, 1, sizeof *c);

    if (!c) return NULL;
    c->xl = p->kind->variant == LM_XL;
    par_begin(p);
    if (c->xl) {
        const tp_txl_cfg cfg = lm_txl_cfg(p);
        if (!p->failed) tp_model_txl.init(p->P, &c->txl, "", &cfg);
    } else {
        const tp_ls_lm_cfg cfg = lm_cfg(p);
        if (!p->failed) tp_ls_lm_init(p->P, &c->ls, "", cfg);
    }
    if (!par_ok(p)) return NULL;
    c->cache = c->xl ? c->txl_state.mem : c->ls_state.cache;
    c->ncache = c->xl ? c->txl.cfg.layers + 1 : c->ls.cfg.layers;
    return c;
}

tp_tensor lm_forward(parity *p, lm_case *c, tp_tensor tokens)
{
    return c->xl ? tp_model_txl.forward(p->T, &c->txl, &c->txl_state, tokens)
                 : tp_ls_lm_forward(p->T, &c->ls, &c->ls_state, tokens);
}

void lm_clear(parity *p, lm_case *c)
{
    if (c->xl)
        tp_model_txl.state_clear(p->T, &c->txl_state);
    else
        tp_model_ls_lm.state_clear(p->T, &c->ls_state);
}

/* ---- models over segments ---- */

/* At the start of the streams, the official Transformer-LS has a full cache of zero rows. */
static void check_empty_cache(parity *p, const lm_case *c, const char *name)
{
    const bool zeros = !c->xl && !c->ls.cfg.ls.attn.masked;
    const tp_shape s = par_shape(p, name);
    const int64_t rows = zeros ? c->ls.cfg.mem_len : 0;

    if (!par_has(p, name)) return;
    if (s.ndim != 3 || s.dim[1] != rows) {
        par_fail(p, "%s: must have %lld rows at the start of the streams", name, (long long)rows);
        return;
    }
    const double *none = par_alloc(p, par_numel(s), sizeof *none);
    if (none) par_check(p, name, none, par_numel(s), par_limit(p, PAR_OUTPUT));
}

/* "output.cache_in.0" ..., for Transformer-XL "output.mems_in.0" ... */
static void check_caches(parity *p, lm_case *c, const char *when)
{
    for (int i = 0; i < c->ncache && !p->failed; i++) {
        const char *name = par_name(p, "output.%s_%s.%d", c->xl ? "mems" : "cache", when, i);
        if (tp_given(c->cache[i]))
            par_check_tensor(p, name, c->cache[i]);
        else
            check_empty_cache(p, c, name);
    }
}

/* Compares the losses of segment k if the case has targets; for the last segment also the caches
 * and probabilities. */
static void run_segment(parity *p, lm_case *c, int64_t k, bool last, bool differentiate)
{
    const char *targets = par_name(p, "targets.%lld", (long long)k);
    tp_tape *T = p->T;
    tp_reset(T);
    tp_record(T, differentiate);
    const tp_tensor x = par_tensor(p, par_name(p, "tokens.%lld", (long long)k));

    if (last) check_caches(p, c, "in");
    const tp_tensor logits = lm_forward(p, c, x);
    if (last) {
        check_caches(p, c, "out");
        par_check_tensor(p, "output.logprobs", tp_log_softmax(T, logits));
    }
    if (!par_has(p, par_name(p, "input.%s", targets)) || !par_ok(p)) return;
    const tp_tensor y = par_tensor(p, targets);
    par_check_tensor(p, par_name(p, "output.nll.%lld", (long long)k),
                     tp_cross_entropy(T, logits, y, TP_EACH));
    if (!differentiate || !par_ok(p)) return;
    par_loss(p, tp_cross_entropy(T, logits, y, TP_MEAN_ALL));
    par_differentiate(p);
}

/* Checks the sizes of each segment's tokens against the metadata. */
static void check_segments(parity *p, int64_t n)
{
    int64_t stated;
    const int64_t *length = par_sizes(p, "segment_lengths", 1, &stated);

    if (stated && stated != n)
        par_fail(p, "metadata segment_lengths: the case has %lld segments", (long long)n);
    for (int64_t k = 0; k < n && !p->failed; k++) {
        const tp_shape s = par_shape(p, par_name(p, "input.tokens.%lld", (long long)k));
        if (s.ndim != 2) {
            par_fail(p, "input.tokens.%lld must be [batch,length]", (long long)k);
            return;
        }
        par_same(p, "B", s.dim[0]);
        par_same(p, "tgt_len", s.dim[1]);
        if (stated && length[k] != s.dim[1])
            par_fail(p, "metadata segment_lengths: segment %lld has %lld tokens", (long long)k,
                     (long long)s.dim[1]);
    }
}

static void run_model(parity *p)
{
    lm_case *c = lm_open(p);
    const int64_t n = par_series(p, "input.tokens.");
    if (n == 0) par_fail(p, "the case has no input.tokens.0");
    if (p->failed) return;
    const int64_t at = par_int(p, "loss_segment", n - 1, 0, n - 1);
    check_segments(p, n);
    par_load(p);
    for (int64_t k = 0; k < n && !p->failed; k++) run_segment(p, c, k, k == n - 1, k == at);
}

/* ---- full size ---- */

/* B streams of tokens by the fill rule, [B,width]. */
typedef struct stream {
    int64_t B, width, M; /* M: tokens of a segment */
    double vocab;
    uint64_t hash;
} stream;

/* Columns first .. first+M-1. */
static tp_tensor columns(parity *p, const stream *s, int64_t first)
{
    int64_t *id = par_alloc(p, s->B * s->M, sizeof *id);

    if (!id) return tp_raise(p->T, TP_E_MEMORY, "out of memory");
    for (int64_t i = 0; i < s->B * s->M; i++) {
        const int64_t at = i / s->M * s->width + first + i % s->M;
        id[i] = (int64_t)floor(s->vocab * par_uniform(s->hash, at));
    }
    return tp_from(p->T, TP_I64, TP_SHAPE(s->B, s->M), id);
}

/* A stream has whole segments and one more token, the last target. */
static stream read_stream(parity *p, const lm_case *c)
{
    const char *name = par_text(p, "input_fill");
    int64_t axes;
    const int64_t *shape = par_sizes(p, "input_shape", 1, &axes);
    stream s = { .M = par_size(p, c->xl ? "tgt_len" : "M", PAR_NEEDED),
                 .vocab = (double)(c->xl ? c->txl.cfg.vocab : c->ls.cfg.vocab),
                 .hash = par_hash(name ? name : "input") };

    if (axes == 2) {
        s.B = shape[0];
        s.width = shape[1];
    }
    if (s.width < 2 || s.B > 1 << 20 || s.M > 1 << 24 || (s.width - 1) % s.M)
        par_fail(p, "metadata input_shape: rows must have segments of %lld tokens and one target",
                 (long long)s.M);
    par_same(p, "B", s.B);
    return s;
}

/* Compares one norm per layer. */
static void check_cache_norms(parity *p, lm_case *c)
{
    double *norm = par_alloc(p, c->ncache, sizeof *norm);

    for (int i = 0; norm && i < c->ncache; i++)
        if (tp_given(c->cache[i])) norm[i] = tp_item(p->T, par_norm(p->T, c->cache[i]));
    if (norm)
        par_check(p, c->xl ? "output.mems_norm" : "output.cache_norm", norm, c->ncache,
                  par_limit(p, PAR_OUTPUT));
}

/* Compares logits [B,M,V] at the positions of the case, or all of them. */
static void check_positions(parity *p, tp_tensor logits)
{
    tp_shape s;
    tp_tensor picked = TP_NONE;

    if (!par_has(p, "input.positions")) {
        par_check_tensor(p, "output.logits", logits);
        return;
    }
    const int64_t *at = par_integers(p, "input.positions", &s);
    for (int64_t i = 0; at && i < par_numel(s); i++) {
        const tp_tensor row = tp_slice(p->T, logits, 1, at[i], 1);
        picked = i ? tp_concat(p->T, 1, picked, row) : row;
    }
    if (at) par_check_tensor(p, "output.logits", picked);
}

static void run_full(parity *p)
{
    lm_case *c = lm_open(p);
    if (!c) return;
    const stream s = read_stream(p, c);
    const int64_t n = (s.width - 1) / s.M;
    par_load(p);
    for (int64_t k = 0; k < n && par_ok(p); k++) {
        const bool last = k == n - 1;
        tp_reset(p->T);
        tp_record(p->T, last);
        if (last) check_cache_norms(p, c);
        const tp_tensor logits = lm_forward(p, c, columns(p, &s, k * s.M));
        const tp_tensor y = columns(p, &s, k * s.M + 1);
        par_check_tensor(p, par_name(p, "output.nll.%lld", (long long)k),
                         tp_cross_entropy(p->T, logits, y, TP_EACH));
        if (!last || p->failed) continue;

        par_check_tensor(p, "output.logits_norm", par_norm(p->T, logits));
        check_positions(p, logits);
        par_loss(p, tp_cross_entropy(p->T, logits, y, TP_MEAN_ALL));
        par_differentiate(p);
    }
}

const par_kind par_lm_kinds[] = {
    { PAR_MODULE("lm.attention", lm_attention, lm_declare_attention, lm_attend) },
    { PAR_MODULE("lm.attention_options", lm_attention, lm_declare_attention, lm_attend) },
    { PAR_MODULE("lm.block", lm_block, lm_declare_block, lm_run_block) },
    { PAR_MODULE("lm.txl_attention", lm_txl_attention, lm_declare_txl_attention, lm_attend_txl) },
    { .kind = "lm.model", .run = run_model, .variant = LM_LS },
    { .kind = "lm.txl_model", .run = run_model, .variant = LM_XL },
    { .kind = "lm.full", .run = run_full, .variant = LM_LS, .large = true },
    { .kind = "lm.txl_full", .run = run_full, .variant = LM_XL, .large = true },
    { .kind = "lm.trace", .run = lm_run_trace, .variant = LM_LS, .no_bf16 = true },
    { .kind = "lm.txl_trace", .run = lm_run_trace, .variant = LM_XL, .no_bf16 = true },
    { .kind = "lm.evaluation", .run = lm_run_evaluation, .variant = LM_LS },
    { .kind = "lm.data", .run = lm_run_data },
    { .kind = NULL },
};
