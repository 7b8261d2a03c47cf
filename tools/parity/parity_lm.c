/* parity_lm.c - cases of the language models: whole models over segments, evaluation, full size.
 *
 * Transformer-LS and Transformer-XL cases have the same outputs under other names (cache, mems), so
 * one program serves both. */
#include "parity_lm.h"

#include <math.h>
#include <stdlib.h>

/* ---- models ---- */

tp_ls_cfg lm_ls_cfg(parity *p)
{
    return (tp_ls_cfg){
        .heads = (int)par_int(p, "n_head", 8),
        .chunk = (int)par_int(p, "chunk_size", 16),
        .rank = (int)par_int(p, "chunk_rank", 1),
        .window = (int)par_int(p, "window_len", 512),
        .clamp = (int)par_int(p, "clamp_len", -1),
        .chunk_clamp = (int)par_int(p, "cpos_clamp_len", -1),
        .dropout = par_num(p, "dropout", 0.0),
        .masked = par_is(p, "empty_cache", "masked"),
        .segment = par_is(p, "window", "segment"),
        .ln_local = par_is(p, "dproj_input", "ln_local"),
        .project_first = par_is(p, "cache_dproj", "project_first"),
    };
}

tp_lm_cfg lm_cfg(parity *p)
{
    return (tp_lm_cfg){
        .vocab = par_int(p, "vocab_size", 208),
        .dim = par_int(p, "d_model", 512),
        .hidden = par_int(p, "d_inner", 2048),
        .layers = (int)par_int(p, "n_layer", 12),
        .mem_len = par_int(p, "mem_len", par_int(p, "M", 2048)),
        .ls = lm_ls_cfg(p),
        .use_bias = par_int(p, "use_bias", 0) != 0,
        .pre_ln = par_int(p, "pre_ln", 1) != 0,
        .gelu = par_int(p, "use_gelu", 1) != 0,
        .dropout = par_num(p, "dropout", 0.0),
        .emb_dropout = par_num(p, "emb_dropout", par_num(p, "dropout", 0.0)),
    };
}

tp_txl_cfg lm_txl_cfg(parity *p)
{
    const int64_t dim = par_int(p, "d_model", 512), heads = par_int(p, "n_head", 8);
    return (tp_txl_cfg){
        .vocab = par_int(p, "vocab_size", 204),
        .dim = dim,
        .hidden = par_int(p, "d_inner", 2048),
        .d_head = par_int(p, "d_head", heads ? dim / heads : 0),
        .layers = (int)par_int(p, "n_layer", 12),
        .heads = (int)heads,
        .mem_len = par_int(p, "mem_len", 512),
        .clamp = par_int(p, "clamp_len", -1),
        .pre_ln = par_int(p, "pre_lnorm", 0) != 0,
        .same_length = par_int(p, "same_length", 0) != 0,
        .dropout = par_num(p, "dropout", 0.0),
        .att_dropout = par_num(p, "dropatt", 0.0),
    };
}

tp_tape *lm_tape(parity *p)
{
    return tp_tape_new(p->D, &(tp_tape_opts){ .compute = p->compute, .train = par_train(p) });
}

lm_case *lm_open(parity *p, bool xl)
{
    lm_case *c = calloc(1, sizeof *c);
    if (!c) {
        par_fail(p, "out of memory");
        return NULL;
    }
    c->xl = xl;
    c->P = par_params_new(p);
    c->T = lm_tape(p);
    if (xl)
        tp_txl_init(c->P, &c->txl, "", lm_txl_cfg(p));
    else
        tp_lm_init(c->P, &c->ls, "", lm_cfg(p));
    c->cache = xl ? c->txl_state.mem : c->ls_state.cache;
    c->ncache = xl ? c->txl.cfg.layers + 1 : c->ls.cfg.layers;
    if (par_ok(p, c->T, c->P)) par_load(p, c->P);

    const long long count = (long long)tp_params_count(c->P);
    if (par_int(p, "parameters", count) != count)
        par_fail(p, "the model has %lld parameters, the case %s", count,
                 tp_file_meta(p->F, "parameters"));
    return c;
}

void lm_close(lm_case *c)
{
    if (!c) return;
    tp_tape_free(c->T);
    tp_params_free(c->P);
    free(c);
}

tp_tensor lm_forward(lm_case *c, tp_tensor tokens)
{
    return c->xl ? tp_txl_forward(c->T, &c->txl, &c->txl_state, tokens)
                 : tp_lm_forward(c->T, &c->ls, &c->ls_state, tokens);
}

void lm_clear(lm_case *c)
{
    if (c->xl)
        tp_txl_state_clear(c->T, &c->txl_state);
    else
        tp_lm_state_clear(c->T, &c->ls_state);
}

/* ---- models over segments ---- */

/* A cache that nothing has been put in is compared with zeros. */
static void check_caches(parity *p, lm_case *c, const char *ls, const char *xl)
{
    for (int i = 0; i < c->ncache && !p->failed; i++) {
        const char *name = par_name(c->xl ? xl : ls, i);
        if (tp_given(c->cache[i]))
            par_check_tensor(p, c->T, name, c->cache[i]);
        else if (par_has(p, name))
            par_check_zeros(p, name);
    }
}

/* Losses and, of the last segment, everything else. */
static void run_segment(parity *p, lm_case *c, int64_t k, bool last, bool differentiate)
{
    tp_tape *T = c->T;
    tp_reset(T);
    tp_record(T, differentiate);
    const tp_tensor x = par_tensor(p, T, par_name("input.tokens.", k));
    const tp_tensor y = par_tensor(p, T, par_name("input.targets.", k));

    if (last) check_caches(p, c, "output.cache_in.", "output.mems_in.");
    const tp_tensor logits = lm_forward(c, x);
    par_check_tensor(p, T, par_name("output.nll.", k), tp_cross_entropy(T, logits, y, TP_EACH));
    if (last) {
        check_caches(p, c, "output.cache_out.", "output.mems_out.");
        if (par_has(p, "output.logprobs"))
            par_check_tensor(p, T, "output.logprobs", tp_log_softmax(T, logits));
    }
    if (differentiate && !p->failed) {
        const tp_tensor loss = tp_cross_entropy(T, logits, y, TP_MEAN_ALL);
        par_check_tensor(p, T, "output.loss", loss);
        tp_backward(T, loss);
        if (par_ok(p, T, NULL)) par_check_grads(p, c->P);
    }
}

static void run_model(parity *p, bool xl)
{
    lm_case *c = lm_open(p, xl);
    int64_t n = 0;
    while (par_has(p, par_name("input.tokens.", n))) n++;
    const int64_t at = par_int(p, "loss_segment", n - 1);
    for (int64_t k = 0; k < n && !p->failed; k++) run_segment(p, c, k, k == n - 1, k == at);
    lm_close(c);
}

static void run_ls_model(parity *p)
{
    run_model(p, false);
}

static void run_txl_model(parity *p)
{
    run_model(p, true);
}

/* ---- evaluation protocols ---- */

typedef struct stream {
    parity *p;
    lm_case *c;
    const int64_t *id; /* [n] */
    int64_t n, T;      /* tokens, segment length */
} stream;

/* Runs tokens begin .. end-1 in segments from fresh caches; nll[i - begin] is the loss of
 * predicting id[i+1] at position i, where there is one. */
static void run_stream(const stream *s, int64_t begin, int64_t end, double *nll)
{
    tp_tape *T = s->c->T;
    lm_clear(s->c);
    for (int64_t i = begin; i < end && !s->p->failed; i += s->T) {
        const int64_t len = end - i < s->T ? end - i : s->T;
        const int64_t targets = i + len < s->n ? len : len - 1;
        tp_reset(T);
        tp_tensor y = lm_forward(s->c, tp_from(T, TP_I64, TP_SHAPE(1, len), s->id + i));
        y = tp_slice(T, y, 1, 0, targets);
        const tp_tensor next = tp_from(T, TP_I64, TP_SHAPE(1, targets), s->id + i + 1);
        const tp_tensor each = tp_cross_entropy(T, y, next, TP_EACH);
        for (int64_t j = 0; j < targets; j++)
            nll[i - begin + j] = tp_item(T, tp_slice(T, each, 1, j, 1));
        par_ok(s->p, T, NULL);
    }
}

static double bits(const double *nll, const int64_t *counted, int64_t n)
{
    double sum = 0.0, count = 0.0;
    for (int64_t i = 0; i < n; i++)
        if (!counted || counted[i]) {
            sum += nll[i];
            count += 1.0;
        }
    return sum / count / log(2.0);
}

/* The official script's stream, with and without the last position of each segment. */
static void check_streaming(const stream *s, double *nll, int64_t *counted)
{
    parity *p = s->p;
    const double limit = par_limit(p, PAR_OUTPUT);
    run_stream(s, 0, s->n, nll);
    for (int64_t i = 0; i < s->n - 1; i++) counted[i] = i % s->T != s->T - 1;
    par_check(p, "output.nll_stream", nll, s->n - 1, limit);
    par_check_integers(p, "output.counted_official", counted, s->n - 1);
    par_check_one(p, "output.bpc_official", bits(nll, counted, s->n - 1), limit);
    par_check_one(p, "output.bpc_all", bits(nll, NULL, s->n - 1), limit);
}

/* The paper's overlapping windows: the last `step` predictions of each. */
static void check_windows(const stream *s, double *nll, double *scored)
{
    parity *p = s->p;
    const double limit = par_limit(p, PAR_OUTPUT);
    const int64_t window = par_int(p, "window_tokens", 32768),
                  step = par_int(p, "window_step", 512);
    int64_t n = 0;
    if (step < 1 || step > window) par_fail(p, "window_step must be from 1 to window_tokens");
    for (int64_t end = step; end < s->n && !p->failed; end += step) {
        const int64_t begin = end > window ? end - window : 0;
        run_stream(s, begin, end, nll);
        for (int64_t i = end - step; i < end; i++) scored[n++] = nll[i - begin];
    }
    par_check(p, "output.nll_windows", scored, n, limit);
    par_check_one(p, "output.bpc_windows", bits(scored, NULL, n), limit);
}

static void run_evaluation(parity *p)
{
    tp_shape shape = TP_SHAPE(0);
    lm_case *c = lm_open(p, false);
    int64_t *id = par_integers(p, "input.stream", &shape);
    const stream s = { p, c, id, shape.dim[0], par_int(p, "T", 256) };
    double *nll = calloc((size_t)s.n + 1, sizeof *nll);
    double *scored = calloc((size_t)s.n + 1, sizeof *scored);
    int64_t *counted = calloc((size_t)s.n + 1, sizeof *counted);

    if (!nll || !scored || !counted) {
        par_fail(p, "out of memory");
    } else if (s.T < 1) {
        par_fail(p, "T must be positive");
    } else if (!p->failed) {
        tp_record(c->T, false);
        check_streaming(&s, nll, counted);
        check_windows(&s, nll, scored);
    }
    free(counted);
    free(scored);
    free(nll);
    free(id);
    lm_close(c);
}

/* ---- full size ---- */

/* Columns first .. first+n-1 of the case's token matrix [B,width]. */
static tp_tensor filled_tokens(parity *p, tp_tape *T, int64_t first, int64_t n)
{
    double shape[2] = { (double)par_int(p, "B", 1), (double)(first + n) };
    const char *name = tp_file_meta(p->F, "input_fill");
    const uint64_t hash = par_hash(name ? name : "input");
    const double V = (double)par_int(p, "vocab_size", 208);
    par_list(p, "input_shape", 2, shape);
    if (n < 1 || !(shape[0] >= 1.0 && shape[0] < 1e6 && shape[1] < 1e9) ||
        shape[1] < (double)(first + n))
        return tp_raise(T, TP_E_VALUE, "input_shape or the segment's length cannot be");
    const int64_t B = (int64_t)shape[0], width = (int64_t)shape[1];
    int64_t *id = malloc((size_t)(B * n) * sizeof *id);
    if (!id) return tp_raise(T, TP_E_MEMORY, "out of memory");
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0; i < n; i++)
            id[b * n + i] = (int64_t)floor(V * par_uniform(hash, b * width + first + i));
    const tp_tensor x = tp_from(T, TP_I64, TP_SHAPE(B, n), id);
    free(id);
    return x;
}

static tp_tensor norm_of(tp_tape *T, tp_tensor x)
{
    return tp_sqrt(T, tp_sum(T, tp_square(T, x), TP_ALL));
}

static void check_cache_norms(parity *p, lm_case *c)
{
    double norm[TP_LM_MAX_LAYERS + 1];
    for (int i = 0; i < c->ncache; i++) norm[i] = tp_item(c->T, norm_of(c->T, c->cache[i]));
    par_check(p, c->xl ? "output.mems_norm" : "output.cache_norm", norm, c->ncache,
              par_limit(p, PAR_OUTPUT));
}

/* logits [B,M,V] at the positions that the case stores. */
static void check_positions(parity *p, tp_tape *T, tp_tensor logits)
{
    tp_shape s = TP_SHAPE(0);
    int64_t *at = par_integers(p, "input.positions", &s);
    tp_tensor picked = TP_NONE;
    for (int64_t i = 0; at && i < s.dim[0]; i++) {
        const tp_tensor row = tp_slice(T, logits, 1, at[i], 1);
        picked = i ? tp_concat(T, 1, picked, row) : row;
    }
    if (at) par_check_tensor(p, T, "output.logits", picked);
    free(at);
}

static void run_full(parity *p, bool xl)
{
    lm_case *c = lm_open(p, xl);
    const int64_t M = par_int(p, xl ? "tgt_len" : "M", 0);
    int64_t n = 0;
    while (par_has(p, par_name("output.nll.", n))) n++;
    for (int64_t k = 0; k < n && !p->failed; k++) {
        tp_tape *T = c->T;
        tp_reset(T);
        tp_record(T, k == n - 1);
        if (k == n - 1) check_cache_norms(p, c);
        const tp_tensor logits = lm_forward(c, filled_tokens(p, T, k * M, M));
        const tp_tensor y = filled_tokens(p, T, k * M + 1, M);
        par_check_tensor(p, T, par_name("output.nll.", k), tp_cross_entropy(T, logits, y, TP_EACH));
        if (k < n - 1 || p->failed) continue;

        const tp_tensor loss = tp_cross_entropy(T, logits, y, TP_MEAN_ALL);
        par_check_tensor(p, T, "output.loss", loss);
        par_check_tensor(p, T, "output.logits_norm", norm_of(T, logits));
        check_positions(p, T, logits);
        tp_backward(T, loss);
        if (par_ok(p, T, NULL)) par_check_grads(p, c->P);
    }
    lm_close(c);
}

static void run_ls_full(parity *p)
{
    run_full(p, false);
}

static void run_txl_full(parity *p)
{
    run_full(p, true);
}

const parity_kind parity_lm_kinds[] = {
    { .kind = "lm.attention", .run = lm_run_attention },
    { .kind = "lm.attention_options", .run = lm_run_attention },
    { .kind = "lm.block", .run = lm_run_block },
    { .kind = "lm.model", .run = run_ls_model },
    { .kind = "lm.evaluation", .run = run_evaluation },
    { .kind = "lm.full", .run = run_ls_full, .large = true },
    { .kind = "lm.trace", .run = lm_run_trace, .no_bf16 = true },
    { .kind = "lm.data", .run = lm_run_data },
    { .kind = "lm.txl_attention", .run = lm_run_txl_attention },
    { .kind = "lm.txl_model", .run = run_txl_model },
    { .kind = "lm.txl_full", .run = run_txl_full, .large = true },
    { .kind = "lm.txl_trace", .run = lm_run_txl_trace, .no_bf16 = true },
    { .kind = NULL },
};
