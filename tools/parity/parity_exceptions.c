/* parity_exceptions.c - changes of metadata that rightly make no difference, with their reasons.
 *
 * An exception is as narrow as its reason: if a value matters in only some cases of a kind, a function
 * decides which. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/vil.h>

#include "parity_exceptions.h"

/* ---- all areas ---- */

static bool one_program(parity *p, const char *from, const char *to)
{
    (void)p;
    return are(from, to, "lm.attention", "lm.attention_options") ||
           are(from, to, "vil.window_attention", "vil.global_attention") ||
           are(from, to, "vil.model", "vil.ls_model") || are(from, to, "vil.full", "vil.ls_full") ||
           are(from, to, "lra.attention", "lra.ls_attention") ||
           are(from, to, "lra.encoder", "lra.retrieval") ||
           are(from, to, "cvt.full", "cvt.ls_full");
}

/* A member of the JSON object in a text. */
static double member(const char *text, const char *name, double dflt)
{
    json_t *object = json_loads(text, 0, NULL), *x = json_object_get(object, name);
    const double value = x ? json_number_value(x) : dflt;
    json_decref(object);
    return value;
}

/* True without momentum, where QHM's nu does not matter, and with nu = 0, where momentum does
 * not. */
static bool no_momentum(parity *p, const char *from, const char *to)
{
    (void)p;
    return (member(from, "momentum", 0.9) == 0.0 && member(to, "momentum", 0.9) == 0.0) ||
           (member(from, "qhm_nu", 1.0) == 0.0 && member(to, "qhm_nu", 1.0) == 0.0);
}

/* True if a name was removed whose gradient is stored as zeros, or not at all. */
static bool stored_as_zeros(parity *p, const char *from, const char *to)
{
    const int n = (int)strcspn(from, " ");

    if (strlen(to) >= strlen(from)) return false;
    for (int i = 0; i < 2; i++) {
        const char *name = par_name(p, "%s.%.*s", i ? "gradnorm" : "grad", n, from);
        tp_shape s;
        const double *x = par_has(p, name) ? par_values(p, name, &s) : NULL;
        for (int64_t k = 0; x && k < par_numel(s); k++)
            if (x[k] != 0.0) return false;
    }
    return true;
}

/* True if both rows of the model table are for the same weights, at different image sizes. */
static bool same_weights(parity *p, const char *from, const char *to)
{
    tp_model_cfg a, b;
    char why[256];
    (void)p;
    return tp_model_preset(&a, from, why, sizeof why) && tp_model_preset(&b, to, why, sizeof why) &&
           tp_model_same(&a, &b);
}

/* ---- lm ---- */

/* The value of the key, or of `other` if the key is absent. */
static int64_t number_or(parity *p, const char *key, const char *other)
{
    return number(p, par_given(p, key) ? key : other);
}

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

/* ---- vil ---- */

static bool no_draws(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return !par_given(p, "drawn_modes");
}

/* True if the case has window attention. */
static bool has_windows(parity *p)
{
    const char *type = par_text(p, "attn_type");
    return (!type || strncmp(type, "longformer", 10) == 0) && !is(p, "only_glo", "1");
}

/* True if the case is a single attention on a map with sides of at most `side`. */
static bool map_within(parity *p, int64_t side)
{
    return par_given(p, "nx") && number(p, "nx") <= side && number(p, "ny") <= side;
}

/* True if the maps of all stages with windows of w are at most w + 1 wide. */
static bool maps_within_windows(parity *p)
{
    tp_vil_cfg c = { 0 };
    int64_t side = number(p, "image_size");
    char why[256];

    if (!par_given(p, "arch") || !tp_vil_parse(&c, par_text(p, "arch"), why, sizeof why))
        return false;
    for (int k = 0; k < c.stages; k++) {
        if (c.stage[k].patch > 0) side /= c.stage[k].patch;
        if (!c.stage[k].dense && side > c.stage[k].feature + 1) return false;
    }
    return true;
}

/* True if exact and chunk-wise windows see the same tokens. Exact windows reach w cells. */
static bool no_other_chunk(parity *p, const char *from, const char *to)
{
    if (!has_windows(p) || is(p, "module_mode", "-1")) return true;
    if (!are(from, to, "0", "1")) return false;
    return is(p, "window_w", "1") || map_within(p, number(p, "window_w") + 1) ||
           maps_within_windows(p);
}

static bool not_drawn(parity *p, const char *from, const char *to)
{
    if (are(from, to, "0", "-1") && map_within(p, number(p, "window_w"))) return true;
    if (!has_windows(p) || (from[0] != '-' && to[0] != '-' && is(p, "mode", "eval"))) return true;
    return from[0] > '0' && to[0] > '0';
}

static bool no_windows(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return !has_windows(p) || is(p, "nglo", "0");
}

static bool not_linformer(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return !is(p, "attn_type", "linformer");
}

static bool no_table(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "rpb", "0");
}

static bool no_bias(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "attn_type", "linformer") || is(p, "attn_type", "srformer") ||
           is(p, "attn_type", "performer") || is(p, "window_w", "0");
}

static bool two_spellings(parity *p, const char *from, const char *to)
{
    (void)p;
    return are(from, to, "longformerhand", "longformerauto");
}

static bool pooled_anyway(parity *p, const char *from, const char *to)
{
    tp_vil_cfg c = { 0 };
    char why[256];
    (void)from, (void)to;
    return tp_vil_parse(&c, par_text(p, "arch"), why, sizeof why) &&
           c.stage[c.stages - 1].global == 0;
}

/* True if every window of w, with its halo, covers a whole side of the map. */
static bool reaches(int64_t w, int64_t side)
{
    const int64_t halo = w > 1 ? w / 2 : 1;
    return w > 0 && (side - 1) / w * w <= halo && w + halo >= side;
}

/* True if every token sees each token of a map of that side exactly once through windows of w. */
static bool sees_all(parity *p, int64_t w, int64_t side)
{
    if (is(p, "attn_type", "ls") || strncmp(p->kind->kind, "vil.ls", 6) == 0)
        return reaches(w, side);
    if (!has_windows(p) || is(p, "exact", "-1") || is(p, "module_mode", "-1") ||
        par_given(p, "drawn_modes"))
        return false;
    return side <= (is(p, "exact", "1") ? w + 1 : 2 * w);
}

/* A single attention without a bias table; the window would decide the size of one. */
static bool all_seen(parity *p, const char *from, const char *to)
{
    const int64_t a = strtoll(from, NULL, 10), b = strtoll(to, NULL, 10);
    const int64_t nx = number(p, "nx"), ny = number(p, "ny"), side = nx > ny ? nx : ny;
    return is(p, "rpb", "0") && sees_all(p, a, side) && sees_all(p, b, side);
}

/* Reads the next number of a list and advances *at. */
static int64_t next_number(const char **at)
{
    char *end;
    const int64_t x = strtoll(*at, &end, 10);
    *at = end + (*end == ',');
    return x;
}

/* True if the drawn shifts differ only in attentions whose map is one chunk without neighbours. */
static bool one_chunk(parity *p, const char *from, const char *to)
{
    tp_vil_cfg c = { 0 };
    int64_t side = number(p, "image_size");
    char why[256];

    if (!is(p, "exact", "0")) return false;
    if (!par_given(p, "arch")) return map_within(p, number(p, "window_w"));
    if (!tp_vil_parse(&c, par_text(p, "arch"), why, sizeof why)) return false;
    for (int k = 0; k < c.stages; k++) {
        if (c.stage[k].patch > 0) side /= c.stage[k].patch;
        for (int i = 0; i < c.stage[k].blocks && !c.stage[k].dense && *from && *to; i++)
            if (next_number(&from) != next_number(&to) && side > c.stage[k].feature) return false;
    }
    return !*from && !*to;
}

/* True if two stages are equal in all that matters. A single token attends to itself, so its number
 * of heads does not matter. */
static bool same_stage(parity *p, const tp_vil_stage *a, const tp_vil_stage *b, int64_t side)
{
    const int64_t tokens = a->global + side * side;
    const bool full = is(p, "attn_type", "full"), alone = tokens == 1 && a->absolute;

    if (a->blocks != b->blocks || a->dim != b->dim || a->patch != b->patch ||
        a->global != b->global || a->absolute != b->absolute)
        return false;
    if ((a->heads != b->heads && !alone) || (a->dense != b->dense && !full)) return false;
    if (a->dense || full) return true;
    if (is(p, "attn_type", "ls") && a->rank != b->rank) return false;
    if (a->absolute && sees_all(p, a->feature, side) && sees_all(p, b->feature, side)) return true;
    return a->feature == b->feature || (is(p, "only_glo", "1") && a->absolute);
}

static bool same_stages(parity *p, const char *from, const char *to)
{
    tp_vil_cfg a = { 0 }, b = { 0 };
    int64_t side = number(p, "image_size");
    char why[256];

    if (!tp_vil_parse(&a, from, why, sizeof why) || !tp_vil_parse(&b, to, why, sizeof why) ||
        a.stages != b.stages)
        return false;
    for (int k = 0; k < a.stages; k++) {
        if (a.stage[k].patch > 0) side /= a.stage[k].patch;
        if (!same_stage(p, &a.stage[k], &b.stage[k], side)) return false;
    }
    return true;
}

/* ---- cvt ---- */

static bool no_class(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "cls", "0");
}

static bool raw_kv(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "dual_ln", "0");
}

/* auto equals 0 if all stages have a single head, and 1 if none has. */
static bool same_projections(parity *p, const char *from, const char *to)
{
    const bool two = is(p, "model", "CvT*-LS-17") || is(p, "model", "CvT*-LS-21S");
    int64_t n, single = 0;
    const int64_t *heads = par_sizes(p, "heads", 1, &n);

    for (int64_t i = 0; i < n; i++) single += heads[i] == 1;
    return (n > 0 && single == n && are(from, to, "0", "auto")) ||
           ((n > 0 ? single == 0 : two) && are(from, to, "1", "auto"));
}

static bool one_head(parity *p, const char *from, const char *to)
{
    int64_t n;
    const int64_t *heads = par_sizes(p, "heads", 1, &n);
    (void)from, (void)to;
    for (int64_t i = 0; i < n; i++)
        if (heads[i] != 1) return false;
    return n > 0;
}

/* True if both windows cover the map. A stage's map has 1/4, 1/8 and 1/16 of the image's sides;
 * that of a single attention has the case's size. */
static bool same_windows(parity *p, const char *from, const char *to)
{
    const int64_t side[] = { number(p, "H"), number(p, "W") };

    for (int64_t part = strchr(from, ',') ? 4 : 1; *from && *to; part *= 2) {
        char *rest[2];
        const int64_t a = strtoll(from, &rest[0], 10), b = strtoll(to, &rest[1], 10);
        for (int i = 0; i < 2; i++)
            if (a < 1 || b < 1 ||
                (a != b && !(reaches(a, side[i] / part) && reaches(b, side[i] / part))))
                return false;
        from = rest[0] + (*rest[0] == ',');
        to = rest[1] + (*rest[1] == ',');
    }
    return !*from && !*to;
}

/* ---- lsla ---- */

static bool no_mask(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "outer", "0") || (par_given(p, "shift") && is(p, "shift", "0")) ||
           strcmp(p->kind->kind, "lsla.op") == 0 || smaller_side(p) <= number(p, "window");
}

static bool map_in_window(parity *p, const char *from, const char *to)
{
    (void)from;
    const int64_t w = strtoll(to, NULL, 10);
    return smaller_side(p) <= number(p, "window") && smaller_side(p) <= w && w > number(p, "shift");
}

static bool map_in_a_window(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return smaller_side(p) <= number(p, "window");
}

static bool same_updates(parity *p, const char *from, const char *to)
{
    const int64_t batch = number(p, "batch");
    return batch > 0 && strtoll(from, NULL, 10) / batch == strtoll(to, NULL, 10) / batch;
}

static bool no_warmup(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return number_or(p, "warmup_iters", "warmup_epochs") == 0;
}

static bool default_threshold(parity *p, const char *from, const char *to)
{
    const char *comma = strchr(from, ',');
    (void)p;
    return comma && strcmp(comma, ",128") == 0 && strncmp(from, to, (size_t)(comma - from)) == 0 &&
           !to[comma - from];
}

/* ---- LRA encoders ---- */

/* True if the case's attention has that name before its dash. */
static bool attends(parity *p, const char *name)
{
    const char *text = par_text(p, "attention"), *type = text ? text : par_text(p, "attn_type");
    const size_t n = strlen(name);
    return type && strncmp(type, name, n) == 0 && (!type[n] || type[n] == '-');
}

static bool same_name(parity *p, const char *from, const char *to)
{
    const size_t n = strcspn(from, "-");
    (void)p;
    return from[n] && strncmp(from, to, n + 1) == 0;
}

static bool fewer_names(parity *p, const char *from, const char *to)
{
    (void)p;
    return strlen(to) < strlen(from);
}

static bool no_window(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return is(p, "uses_window", "0");
}

static bool not_linformer_rank(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "linformer");
}

static bool not_performer(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "performer");
}

/* Only Reformer hashes, and only sequences of several chunks. */
static bool not_hashed(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "reformer") || is(p, "bucket_factors", "0");
}

static bool no_landmarks(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "lsta") && !attends(p, "nystrom");
}

/* With as many landmarks as tokens nothing is inverted. */
static bool not_inverted(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "nystrom") || number(p, "num_landmarks") == number(p, "seq_len");
}

static bool no_convolution(parity *p, const char *from, const char *to)
{
    if (strtoll(from, NULL, 10) <= 0 && strtoll(to, NULL, 10) <= 0) return true;
    return !attends(p, "lsta") && !attends(p, "linformer") && !attends(p, "nystrom");
}

static bool no_cls(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "lsta") ||
           !(is(p, "use_cls", "1") || is(p, "cls_token", "1") || is(p, "cls_last_layer", "1"));
}

static bool not_projected(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return !attends(p, "lsta") || number(p, "num_landmarks") == 0;
}

static bool constant_rate(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return is(p, "schedule", "constant");
}

static bool flat_cycle(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return is(p, "div_factor", "1") && is(p, "final_div_factor", "1");
}

static bool no_dual_ln(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return !is(p, "attention_type", "ls");
}

static bool not_a_classifier(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "head", "mlm");
}

/* A document that fills the columns of its ids may count the CLS before them or not. */
static bool cls_counts(parity *p, const char *from, const char *to)
{
    (void)from;
    (void)to;
    return is(p, "pooling_mode", "CLS");
}

/* clang-format off */
const par_exception par_exceptions[] = {
    { "*", "kind", "both kinds run the same code, and the other keys decide what it computes", one_program },
    { "*", "zero_grads", "a gradient that is stored as zeros need not be named", stored_as_zeros },
    { "lm.*trace", "zero_grads", "the names only matter in f32; the audit runs in f64", NULL },

    { "cvt.*full", "model", "the file has all that the image size decides", same_weights },
    { "lsla.full", "model", "the other keys give the whole configuration", NULL },
    { "lsla.model", "model", "the other keys give the whole configuration", NULL },
    { "*", "*eps", "lost in rounding next to the variances", small_change },

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

    { "vil.*", "mode", "without random shifts nothing depends on it", no_draws },
    { "vil.*", "module_mode", "no window has a neighbour, or evaluation draws none; any positive number draws one", not_drawn },
    { "vil.*", "exact", "no window reaches past the map or its own chunk", no_other_chunk },
    { "vil.*", "window_w", "all tokens see the whole map", all_seen },
    { "vil.*", "drawn_modes", "the map is one chunk, without neighbours", one_chunk },
    { "vil.qhm_trace", "options", "there is no momentum, or it is not used", no_momentum },
    { "vil.lr_schedule", "warmup_factor", "there is no warm-up", no_warmup },
    { "vil.*", "attn_type", "two implementations of one function", two_spellings },
    { "vil.*", "share_global_weights", "only window attention has global rows", no_windows },
    { "vil.*", "only_glo", "only window attention can leave out its windows", no_windows },
    { "vil.*", "share_kv", "an option of Linformer", not_linformer },
    { "vil.*", "rpb", "this attention has no bias table", no_bias },
    { "vil.global_attention", "window_w", "the size of a table that does not exist", no_table },
    { "vil.*", "avg_pool_flag", "without a global token the head takes the mean", pooled_anyway },
    { "vil.*", "arch", "the letter has no effect in this stage", same_stages },

    { "cvt.conv_embed", "mode", "without batch norm nothing depends on it", NULL },
    { "cvt.ws_sepconv", "mode", "without batch norm nothing depends on it", NULL },
    { "cvt.ls_attention", "cls_proj", "there is no class token", no_class },
    { "cvt.ls_attention", "ln_eps", "the epsilon of DualLN, which is off", raw_kv },
    { "cvt.*", "out_proj", "the heads decide auto", same_projections },
    { "cvt.*", "scale", "a single head has the full width", one_head },
    { "cvt.ls_*", "w", "the window covers the whole map", same_windows },

    { "lsla.op", "mode", "without batch norm nothing depends on it", NULL },
    { "lsla.window_op", "mode", "without batch norm nothing depends on it", NULL },
    { "lsla.block", "mode", "without batch norm nothing depends on it", NULL },
    { "lsla.merge", "mode", "without batch norm nothing depends on it", NULL },
    { "lsla.*", "mask_outer", "there is no outer bias, or no shifted window", no_mask },
    { "lsla.*", "window", "the map is no larger than the window", map_in_window },
    { "lsla.*", "shift", "a map of one window is not shifted", map_in_a_window },
    { "lsla.model", "image", "one number is the side of a square", one_side },
    { "lsla.lr_schedule", "train_images", "the number of updates in an epoch is rounded", same_updates },
    { "lsla.lr_schedule", "warmup_lr_per_512", "there is no warm-up", no_warmup },
    { "lsla.mixup_loss", "cutmix_lambda_drawn", "the box of cutmix does not change", same_box },
    { "lsla.image_ops", "arg.solarize_add*", "the threshold is 128 by default", default_threshold },

    { "lra.*", "mode", "without dropout nothing depends on it", NULL },
    { "lra.*", "attention", "the number after the dash configures nothing", same_name },
    { "lra.*", "attn_type", "the number after the dash configures nothing", same_name },
    { "lra.*", "unused_params", "a parameter without a stored gradient need not be named", fewer_names },
    { "lra.*", "window_size", "there is no window", no_window },
    { "lra.*", "num_landmarks", "this attention has no landmarks", no_landmarks },
    { "lra.*", "linformer_k", "an option of Linformer", not_linformer_rank },
    { "lra.*", "rp_dim", "an option of Performer", not_performer },
    { "lra.*", "num_hash", "nothing is hashed", not_hashed },
    { "lra.*", "chunk_length", "nothing is hashed", not_hashed },
    { "lra.*", "inv_per_head", "nothing is inverted", not_inverted },
    { "lra.*", "conv_kernel_size", "there is no convolution", no_convolution },
    { "lra.*", "cls_mode", "long-short attention has no CLS here", no_cls },
    { "lra.*", "proj", "nothing is projected", not_projected },
    { "lra.trace", "beta1_max", "the rate is constant", constant_rate },
    { "lra.trace", "pct_start", "the rate is constant", constant_rate },
    { "lra.trace", "div_factor", "the rate is constant", constant_rate },
    { "lra.trace", "final_div_factor", "the rate is constant", constant_rate },
    { "lra.trace", "schedule", "the cycle is flat", flat_cycle },
    { "lra.*", "lengths", "a full document may count the CLS before it", cls_counts },

    { "roberta.*", "mode", "without dropout nothing depends on it", NULL },
    { "roberta.*", "dual_ln", "only long-short attention has norms of its keys", no_dual_ln },
    { "roberta.*", "num_labels", "only a classifier has classes", not_a_classifier },
    { "roberta.*", "unused_params", "a parameter without a stored gradient need not be named", fewer_names },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
