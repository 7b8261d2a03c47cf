/* ctc_decode.c - greedy and prefix beam search over the log-probabilities of a network that was
 * trained with CTC.
 *
 * Prefixes are nodes of a tree: a label and the node before it. A beam is a node with two
 * log-probabilities, of alignments that end in a blank (b) and in its last label (l). From one row
 * to the next, with p the log-probabilities of the row:
 *
 *     same prefix          b' = L(b, l) + p[blank]
 *                          l' = l + p[last]
 *     extended by v        l' = L(b, l) + p[v], but b + p[v] if v repeats the last label
 *
 * An extension may be a prefix that is a beam of its own; both are summed then. Only
 * prefixes that were kept are nodes, so memory grows with rows times beams. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/nn.h>

typedef struct node {
    int64_t before; /* -1: the empty prefix */
    int32_t label;
    int64_t child, sibling; /* the first child, the next one of the same node; -1: none */
    int64_t beam;           /* its place among the candidates of the row; -1: none */
} node;

typedef struct beam {
    int64_t node, before; /* node -1: not made yet, `label` behind the node `before` */
    int32_t label;
    int64_t order; /* in which it was found */
    double b, l;   /* log-probabilities */
} beam;

/* The search in one text. */
typedef struct search {
    tp_ctc_decode_cfg cfg;
    int64_t V, symbols;
    node *nodes;
    size_t n, room;
    beam *beams, *next; /* [beams]; [candidates] */
    int64_t live, candidates;
    size_t next_room;
    int64_t *best; /* [symbols]: of the row */
} search;

/* log(exp(a) + exp(b)) */
static double log_sum(double a, double b)
{
    const double most = a > b ? a : b, least = a > b ? b : a;
    return least == -INFINITY ? most : most + log1p(exp(least - most));
}

static double total(const beam *x)
{
    return log_sum(x->b, x->l);
}

/* ---- greedy ---- */

static double greedy(const double *p, int64_t rows, int64_t V, int64_t blank, int32_t *labels,
                     int64_t *n)
{
    int64_t last = blank;
    double score = 0;
    *n = 0;
    for (int64_t t = 0; t < rows; t++, p += V) {
        int64_t best = 0;
        for (int64_t v = 1; v < V; v++)
            if (p[v] > p[best]) best = v;
        if (best != blank && best != last) labels[(*n)++] = (int32_t)best;
        score += p[best];
        last = best;
    }
    return score;
}

/* ---- beams ---- */

/* All labels, without the blank. */
static void all_symbols(search *s)
{
    for (int64_t v = 0, n = 0; v < s->V; v++)
        if (v != s->cfg.blank) s->best[n++] = v;
}

/* Notes the most probable labels of a row, without the blank. */
static void choose_symbols(search *s, const double *p)
{
    int64_t n = 0;
    if (s->symbols == s->V - 1) return; /* all_symbols, in any order */
    for (int64_t v = 0; v < s->V; v++) {
        if (v == s->cfg.blank) continue;
        if (n == s->symbols && !(p[v] > p[s->best[n - 1]])) continue;
        int64_t at = n < s->symbols ? n++ : n - 1;
        for (; at > 0 && p[v] > p[s->best[at - 1]]; at--) s->best[at] = s->best[at - 1];
        s->best[at] = v;
    }
}

/* Adds a candidate. NULL: out of memory. */
static beam *add(search *s, beam x)
{
    if (!tp_reserve(&s->next, &s->next_room, (size_t)s->candidates, 1, sizeof *s->next))
        return NULL;
    x.order = s->candidates;
    x.b = x.l = -INFINITY;
    s->next[s->candidates] = x;
    return &s->next[s->candidates++];
}

/* The candidate of a node. NULL: out of memory. */
static beam *candidate(search *s, int64_t at)
{
    node *x = &s->nodes[at];
    if (x->beam >= 0) return &s->next[x->beam];
    x->beam = s->candidates;
    return add(s, (beam){ .node = at });
}

/* The candidate of a prefix extended by a label. NULL: out of memory. */
static beam *extended(search *s, int64_t at, int32_t label)
{
    for (int64_t k = s->nodes[at].child; k >= 0; k = s->nodes[k].sibling)
        if (s->nodes[k].label == label) return candidate(s, k);
    return add(s, (beam){ .node = -1, .before = at, .label = label });
}

static bool grow(search *s, const beam *x, const double *p)
{
    const int32_t last = s->nodes[x->node].label;
    const double all = total(x);
    beam *same = candidate(s, x->node);
    if (!same) return false;
    same->b = log_sum(same->b, all + p[s->cfg.blank]);
    if (last >= 0) same->l = log_sum(same->l, x->l + p[last]);
    for (int64_t k = 0; k < s->symbols; k++) {
        const int32_t v = (int32_t)s->best[k];
        const double more = (v == last ? x->b : all) + p[v];
        beam *longer = more == -INFINITY ? same : extended(s, x->node, v);
        if (!longer) return false;
        if (more > -INFINITY) longer->l = log_sum(longer->l, more);
    }
    return true;
}

/* Makes the nodes of the beams that were kept. False: out of memory. */
static bool make_nodes(search *s)
{
    for (int64_t i = 0; i < s->live; i++) {
        beam *x = &s->beams[i];
        if (x->node >= 0) continue;
        if (!tp_reserve(&s->nodes, &s->room, s->n, 1, sizeof *s->nodes)) return false;
        s->nodes[s->n] = (node){ x->before, x->label, -1, s->nodes[x->before].child, -1 };
        s->nodes[x->before].child = x->node = (int64_t)s->n++;
    }
    return true;
}

static int by_probability(const void *a, const void *b)
{
    const beam *x = a, *y = b;
    const double p = total(x), q = total(y);
    if (p != q) return p > q ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* Takes a row. False: out of memory. */
static bool step(search *s, const double *p)
{
    s->candidates = 0;
    choose_symbols(s, p);
    for (int64_t i = 0; i < s->live; i++)
        if (!grow(s, &s->beams[i], p)) return false;
    for (int64_t i = 0; i < s->candidates; i++)
        if (s->next[i].node >= 0) s->nodes[s->next[i].node].beam = -1;
    qsort(s->next, (size_t)s->candidates, sizeof *s->next, by_probability);
    s->live = s->candidates < s->cfg.beams ? s->candidates : s->cfg.beams;
    memcpy(s->beams, s->next, (size_t)s->live * sizeof *s->beams);
    return make_nodes(s);
}

/* Begins with the empty prefix. False: out of memory. */
static bool begin(search *s)
{
    s->n = 0;
    if (!tp_reserve(&s->nodes, &s->room, 0, 1, sizeof *s->nodes)) return false;
    s->nodes[s->n++] = (node){ -1, -1, -1, -1, -1 };
    s->beams[0] = (beam){ .l = -INFINITY };
    s->live = 1;
    return true;
}

static bool search_text(search *s, const double *p, int64_t rows, int32_t *labels, int64_t *n,
                        double *score)
{
    if (!begin(s)) return false;
    for (int64_t t = 0; t < rows; t++)
        if (!step(s, p + t * s->V)) return false;
    *n = 0;
    *score = total(&s->beams[0]);
    for (int64_t k = s->beams[0].node; s->nodes[k].before >= 0; k = s->nodes[k].before) ++*n;
    int64_t at = *n;
    for (int64_t k = s->beams[0].node; s->nodes[k].before >= 0; k = s->nodes[k].before)
        labels[--at] = s->nodes[k].label;
    return true;
}

/* ---- all texts ---- */

/* Reads a tensor. NULL with T failed; the caller frees it. */
static void *read_all(tp_tape *T, tp_tensor x)
{
    const size_t bytes = (size_t)tp_numel(x) * tp_dtype_size(tp_dtype_of(x));
    void *host = malloc(bytes + 1);
    if (!host) tp_raise_here(T, TP_E_MEMORY, "ctc_decode: out of memory for %zu bytes", bytes);
    if (host && tp_read(T, x, host, bytes)) return host;
    free(host);
    return NULL;
}

/* The log-probabilities. A GPU has no f64, so they are widened here. */
static double *read_numbers(tp_tape *T, tp_tensor x)
{
    const bool records = tp_record(T, false);
    void *all = read_all(T, tp_dtype_of(x) == TP_BF16 ? tp_cast(T, x, TP_F32) : x);
    tp_record(T, records);
    if (!all || tp_dtype_of(x) == TP_F64) return all;
    const int64_t n = tp_numel(x);
    double *p = calloc((size_t)n + 1, sizeof *p);
    if (!p)
        tp_raise_here(T, TP_E_MEMORY, "ctc_decode: out of memory for %lld numbers", (long long)n);
    for (int64_t i = 0; p && i < n; i++) p[i] = (double)((const float *)all)[i];
    free(all);
    return p;
}

static bool check(tp_tape *T, tp_tensor x, tp_tensor x_lengths, tp_ctc_decode_cfg cfg)
{
    const tp_shape s = tp_shape_of(x), l = tp_given(x_lengths) ? tp_shape_of(x_lengths) : s;
    if (!tp_ok(T)) return false;
    if (s.ndim != 3 || !tp_is_float(tp_dtype_of(x)) || s.dim[2] > INT32_MAX)
        tp_raise_here(T, TP_E_SHAPE,
                      "ctc_decode: x must be floating point [B,N,V], of at most 2^31 - 1 symbols");
    else if (tp_given(x_lengths) &&
             (l.ndim != 1 || l.dim[0] != s.dim[0] ||
              (tp_dtype_of(x_lengths) != TP_I32 && tp_dtype_of(x_lengths) != TP_I64)))
        tp_raise_here(T, TP_E_SHAPE, "ctc_decode: x_lengths must be i32 or i64 [B]");
    else if (cfg.blank < 0 || cfg.blank >= s.dim[2])
        tp_raise_here(T, TP_E_VALUE, "ctc_decode: the blank is %lld, not 0 to %lld",
                      (long long)cfg.blank, (long long)s.dim[2] - 1);
    else if (cfg.beams < 0 || cfg.symbols < 0 || cfg.beams > 1 << 20)
        tp_raise_here(T, TP_E_VALUE, "ctc_decode: %lld beams and %lld symbols are out of range",
                      (long long)cfg.beams, (long long)cfg.symbols);
    return tp_ok(T);
}

/* Prefixes have no order with others. False, with T failed. */
static bool check_rows(tp_tape *T, const double *p, int64_t text, int64_t rows, int64_t V)
{
    for (int64_t i = 0; i < rows * V; i++)
        if (!(p[i] < INFINITY)) {
            tp_raise_here(T, TP_E_VALUE,
                          "ctc_decode: text %lld, row %lld, symbol %lld is %g, which is no "
                          "logarithm of a probability",
                          (long long)text, (long long)(i / V), (long long)(i % V), p[i]);
            return false;
        }
    return true;
}

static bool decode(tp_tape *T, search *s, const double *p, int64_t N, int64_t B, const void *rows,
                   bool wide, int32_t *labels, int64_t *lengths, double *score)
{
    for (int64_t b = 0; b < B; b++) {
        const int64_t n = !rows  ? N
                          : wide ? ((const int64_t *)rows)[b]
                                 : ((const int32_t *)rows)[b];
        double own = 0;
        if (n < 0 || n > N) {
            tp_raise_here(T, TP_E_VALUE, "ctc_decode: text %lld has length %lld, not 0 to %lld",
                          (long long)b, (long long)n, (long long)N);
            return false;
        }
        if (!check_rows(T, p + b * N * s->V, b, n, s->V)) return false;
        if (s->cfg.beams < 2)
            own = greedy(p + b * N * s->V, n, s->V, s->cfg.blank, labels + b * N, &lengths[b]);
        else if (!search_text(s, p + b * N * s->V, n, labels + b * N, &lengths[b], &own)) {
            tp_raise_here(T, TP_E_MEMORY, "ctc_decode: out of memory; take fewer beams");
            return false;
        }
        if (score) score[b] = own;
    }
    return true;
}

bool tp_ctc_decode(tp_tape *T, tp_tensor x, tp_tensor x_lengths, tp_ctc_decode_cfg cfg,
                   int32_t *labels, int64_t *lengths, double *score)
{
    if (!tp_want(T, labels, "ctc_decode", "labels") ||
        !tp_want(T, lengths, "ctc_decode", "lengths") || !check(T, x, x_lengths, cfg))
        return false;
    const tp_shape shape = tp_shape_of(x);
    search s = { .cfg = cfg, .V = shape.dim[2] };
    s.symbols = cfg.symbols && cfg.symbols < s.V - 1 ? cfg.symbols : s.V - 1;
    double *p = read_numbers(T, x);
    void *rows = tp_given(x_lengths) && p ? read_all(T, x_lengths) : NULL;
    const bool wide = rows && tp_dtype_of(x_lengths) == TP_I64;
    s.beams = malloc(((size_t)cfg.beams + 1) * sizeof *s.beams);
    s.best = malloc(((size_t)s.symbols + 1) * sizeof *s.best);
    if (!s.beams || !s.best) tp_raise_here(T, TP_E_MEMORY, "ctc_decode: out of memory for beams");
    if (s.best && s.symbols == s.V - 1) all_symbols(&s);
    const bool done = tp_ok(T) && decode(T, &s, p, shape.dim[1], shape.dim[0], rows, wide, labels,
                                         lengths, score);
    free(s.best);
    free(s.beams);
    free(s.next);
    free(s.nodes);
    free(rows);
    free(p);
    return done;
}
