/* parity_exceptions_lm.c - the exceptions of parity_exceptions.c for language models. */
#include "parity_exceptions.h"

/* True if both clamps leave distances 0 .. reach - 1 unchanged. 0 and -1 mean off. */
static bool both_beyond(const char *from, const char *to, int64_t reach)
{
    const int64_t a = strtoll(from, NULL, 10), b = strtoll(to, NULL, 10);
    return (a <= 0 || a >= reach - 1) && (b <= 0 || b >= reach - 1);
}

/* Rows of the cache that queries can see. */
static int64_t valid_rows(parity *p)
{
    const bool masked = is(p, "empty_cache", "masked");
    return masked && par_given(p, "valid_cache") ? number(p, "valid_cache")
                                                 : number_or(p, "L", "mem_len");
}

/* True if all distances in the window, or in Transformer-XL's segment and memory, are below both
 * clamps. */
static bool no_distance(parity *p, const char *from, const char *to)
{
    const int64_t window = number(p, "window_len") * (is(p, "window", "segment") ? 2 : 1);
    const int64_t all = number_or(p, "tgt_len", "T") + number_or(p, "mem_rows", "mem_len");
    const int64_t most = number(p, "mem_len");
    const int64_t rows = is(p, "same_length", "1") && most < all ? most : all;
    return both_beyond(from, to, par_given(p, "window_len") ? window : rows);
}

/* The longest segment of a case. */
static int64_t longest(parity *p)
{
    int64_t most = number_or(p, "M", "T");

    for (int64_t k = par_series(p, "input.tokens."); k-- > 0;) {
        const tp_shape s = par_shape(p, par_name(p, "input.tokens.%lld", (long long)k));
        if (s.ndim == 2 && s.dim[1] > most) most = s.dim[1];
    }
    return most;
}

/* The same for distances between chunks. A segment is padded to whole chunks and windows. */
static bool no_chunk_distance(parity *p, const char *from, const char *to)
{
    const int64_t l = number(p, "chunk_size"), M = longest(p);
    const int64_t padded = l > 0 && M % l == 0 ? M : M + l * number(p, "window_len");
    const int64_t rows = padded + valid_rows(p);
    const int64_t rank = par_given(p, "chunk_rank") ? number(p, "chunk_rank") : 1;
    return l > 0 && both_beyond(from, to, rows / l * rank);
}

/* Rows that Transformer-XL's queries can see, including their own segments; -1: unknown. */
static int64_t most_keys(parity *p)
{
    const int64_t T = number(p, "tgt_len"), n = par_series(p, "input.tokens.");
    int64_t axes;
    const int64_t *shape = par_sizes(p, "input_shape", 1, &axes);

    if (par_given(p, "mem_rows")) return number(p, "T") + number(p, "mem_rows");
    return axes == 2 ? shape[1] - 1 : n > 0 ? n * T : -1;
}

/* Filled streams do not store the memory after their last segment. */
static bool any_length(parity *p, const char *from, const char *to)
{
    const int64_t a = strtoll(from, NULL, 10), b = strtoll(to, NULL, 10), keys = most_keys(p);
    const int64_t rows = par_given(p, "input_shape") ? keys - number(p, "tgt_len") : keys;

    if (par_given(p, "mem_rows") && is(p, "same_length", "0")) return true;
    return keys >= 0 && a >= rows && b >= rows &&
           (is(p, "same_length", "0") || (a >= keys && b >= keys));
}

static bool no_longer(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return most_keys(p) >= 0 && number(p, "mem_len") >= most_keys(p);
}

static bool one_row(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "B", "1");
}

/* True if no vector of the cache is visible. */
static bool no_cache(parity *p)
{
    return number(p, "L") == 0 ||
           (is(p, "empty_cache", "masked") && valid_rows(p) < number(p, "chunk_size"));
}

/* With one head, and no norm in between, compressing and projecting commute. */
static bool any_order(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return no_cache(p) || (is(p, "n_head", "1") && !is(p, "dproj_input", "ln_local"));
}

/* A query's own chunk is never visible, so a single chunk has no visible vectors. */
static bool no_vector(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return number(p, "M") == number(p, "chunk_size") &&
           (no_cache(p) || !is(p, "cache_dproj", "project_first"));
}

static bool cache_full(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return !par_given(p, "valid_cache") || number(p, "valid_cache") == number(p, "L");
}

/* True if all gradient norms are below both limits. 0 means no limit. */
static bool not_clipped(parity *p, const char *from, const char *to)
{
    const double a = strtod(from, NULL), b = strtod(to, NULL);
    tp_shape s;
    const double *norm =
        par_has(p, "output.gradnorm") ? par_values(p, "output.gradnorm", &s) : NULL;

    for (int64_t i = 0; norm && i < par_numel(s); i++)
        if ((a > 0.0 && norm[i] >= a) || (b > 0.0 && norm[i] >= b)) return false;
    return norm != NULL;
}

static bool single_update(parity *p, const char *from, const char *to)
{
    (void)p;
    return are(from, to, "0", "1");
}

/* clang-format off */
const par_exception par_lm_exceptions[] = {
    { "lm.*trace", "zero_grads", "the names only matter in f32; the audit runs in f64", NULL },
    { "lm.*", "mode", "without dropout nothing depends on it", NULL },
    { "lm.*", "clamp_len", "no distance is clamped", no_distance },
    { "lm.*", "cpos_clamp_len", "no distance is clamped", no_chunk_distance },
    { "lm.attention_options", "cache_dproj", "no vector of the cache is visible, or the order does not matter with one head", any_order },
    { "lm.attention_options", "dproj_input", "no compressed vector is visible", no_vector },
    { "lm.*trace", "clip_norm", "no gradient norm reaches the limit", not_clipped },
    { "lm.attention_options", "empty_cache", "all rows of the cache are valid", cache_full },
    { "lm.txl_*", "mem_len", "the memory never reaches its limit", any_length },
    { "lm.txl_*", "same_length", "the memory never reaches its limit", no_longer },
    { "lm.*trace", "stream_bytes", "the distance between rows, and there is only one row", one_row },
    { "lm.*trace", "warmup_updates", "a warm-up of one update has no effect", single_update },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
