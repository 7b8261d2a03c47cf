/* parity_exceptions_vil.c - the exceptions of parity_exceptions.c for Vision Longformer. */
#include <tapegrad/vil.h>

#include "parity_exceptions.h"

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

/* clang-format off */
const par_exception par_vil_exceptions[] = {
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
    { "detection.*", "arch", "the letter has no effect in this stage", same_stages },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
