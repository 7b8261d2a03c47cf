/* window_attention.c - attention over maps: each chunk of queries sees its own cells, the cells
 * around it, low-rank keys and global tokens, in one softmax.
 *
 *     y[i] = sum_j P[i,j] v[j]      P = dropout(softmax_j(scale q[i] k[j] + bias[i - j]))
 *
 * Masks hide keys, and tokens as queries, whose results are zero. Backward redraws dropout's random
 * words.
 *
 * A second, hidden output [B,H,N] holds each query's log-sum-exp, from which backward recomputes
 * the probabilities; for packed sequences, [H,N] of each in turn. */
#include <math.h>

#include "autograd/ops/packing.h"
#include "tensor/geometry/window.h"

TP_KERNEL(window_attention_fwd);
TP_KERNEL(window_attention_bwd);
TP_WORK(window_attention_work);

/* Limits that keep size products well within 64 bits. */
static const int64_t longest = INT64_C(1) << 20, largest = INT64_C(1) << 30;

static tp_code check_sizes(tp_infer *q, const tp_window_attn_cfg *c)
{
    if (c->heads < 1 || c->height < 0 || c->width < 0 || c->global < 0)
        return tp_fail(q, TP_E_VALUE,
                       "heads must be positive, height, width and global not negative: %d, %lld, "
                       "%lld, %lld",
                       c->heads, (long long)c->height, (long long)c->width, (long long)c->global);
    if (c->height > largest || c->width > largest || c->global > largest)
        return tp_fail(q, TP_E_VALUE,
                       "height, width and global must be at most 2^30: %lld, %lld, %lld",
                       (long long)c->height, (long long)c->width, (long long)c->global);
    for (int i = 0; i < 2; i++)
        if (c->window[i] > longest || c->reach[i] < 0 || c->reach[i] > 2 * longest)
            return tp_fail(q, TP_E_VALUE,
                           "window must be at most 2^20, reach between 0 and 2^21: %lld, %lld",
                           (long long)c->window[i], (long long)c->reach[i]);
    if (c->stride < 0 || c->stride > largest)
        return tp_fail(q, TP_E_VALUE, "stride must be between 0 and 2^30, not %lld",
                       (long long)c->stride);
    return TP_OK;
}

static tp_code check_window(tp_infer *q, const tp_window_attn_cfg *c)
{
    const bool exact_halo = c->halo[0] == c->window[0] && c->halo[1] == c->window[1];
    for (int i = 0; i < 2; i++) {
        if (c->window[i] < 0 || (c->window[0] > 0) != (c->window[1] > 0))
            return tp_fail(q, TP_E_VALUE, "window must be positive, or { 0, 0 }");
        if (c->halo[i] < 0 || c->halo[i] > c->window[i])
            return tp_fail(q, TP_E_VALUE, "halo must be between 0 and window, %lld, not %lld",
                           (long long)c->window[i], (long long)c->halo[i]);
    }
    if (c->block < TP_BLOCK_OWN || c->block > 8)
        return tp_fail(q, TP_E_VALUE, "block must be between -1 and 8, not %d", c->block);
    if (c->edge == TP_EDGE_EXACT && c->block != TP_BLOCK_ALL)
        return tp_fail(q, TP_E_VALUE, "TP_EDGE_EXACT is defined for TP_BLOCK_ALL only");
    if ((c->block > 0 || (c->edge == TP_EDGE_CYCLIC && c->block == 0)) && !exact_halo)
        return tp_fail(q, TP_E_VALUE,
                       "blocks and TP_EDGE_CYCLIC need a halo as large as the window");
    if (c->window[0] == 0 && c->global == 0 && tp_absent(&q->x[WIN_LOW_K]))
        return tp_fail(q, TP_E_VALUE,
                       "queries see no keys: give a window, low_k and low_v, or global tokens");
    return TP_OK;
}

static tp_code check_biases(tp_infer *q, const tp_window_attn_cfg *c)
{
    const tp_view *table = &q->x[WIN_TABLE], *bias = &q->x[WIN_GLOBAL_BIAS];
    const tp_window g = tp__window(q->x, c);
    const int64_t rows = 2 * g.reach[0] * g.stride + 2 * g.reach[1] + 1;
    if (!tp_absent(table)) {
        if (!g.local) return tp_fail(q, TP_E_VALUE, "a table of biases needs a window");
        for (int i = 0; i < 2; i++)
            if (g.reach[i] < c->window[i] + g.halo[i] - 1)
                return tp_fail(q, TP_E_VALUE, "reach must be at least window + halo - 1 = %lld",
                               (long long)(c->window[i] + g.halo[i] - 1));
        if (table->ndim != 2 || table->dim[0] != rows || table->dim[1] != g.heads)
            return tp_fail(q, TP_E_SHAPE, "table must be [%lld,%lld]", (long long)rows,
                           (long long)g.heads);
    }
    if (!tp_absent(bias) &&
        (bias->ndim != 2 || bias->dim[0] != g.heads || bias->dim[1] != g.global))
        return tp_fail(q, TP_E_SHAPE, "global_bias must be [%lld,%lld]", (long long)g.heads,
                       (long long)g.global);
    return TP_OK;
}

static tp_code check_low(tp_infer *q)
{
    const tp_view *k = &q->x[WIN_LOW_K], *v = &q->x[WIN_LOW_V];
    if (tp_absent(k) && tp_absent(v)) return TP_OK;
    const tp_window g = tp__window(q->x, q->attr);
    if (k->ndim != 3 || !tp__same_shape(k, v) || k->dim[0] != g.batch || k->dim[2] != g.width)
        return tp_fail(q, TP_E_SHAPE, "low_k and low_v must both be [B,r,H*D], or both absent");
    return TP_OK;
}

static tp_code check_packed_mask(tp_infer *q)
{
    const tp_view *mask = &q->x[WIN_MASK];
    const int64_t rows = q->x[WIN_Q].dim[0];
    if (tp_absent(mask) || (mask->ndim == 1 && mask->dim[0] == rows)) return TP_OK;
    return tp_fail(q, TP_E_SHAPE, "mask of packed sequences must be u8[M] = u8[%lld]",
                   (long long)rows);
}

/* Checks a mask u8[B,n]; `what` describes n. */
static tp_code check_mask(tp_infer *q, int i, const char *name, int64_t n, const char *what)
{
    const tp_view *mask = &q->x[i];
    const int64_t batch = tp__window(q->x, q->attr).batch;
    if (tp_absent(mask) || (mask->ndim == 2 && mask->dim[0] == batch && mask->dim[1] == n))
        return TP_OK;
    return tp_fail(q, TP_E_SHAPE, "%s must be u8[B,%s] = u8[%lld,%lld]", name, what,
                   (long long)batch, (long long)n);
}

static tp_code check_masks(tp_infer *q)
{
    const tp_view *low = &q->x[WIN_LOW_K];
    if (tp_absent(low) && !tp_absent(&q->x[WIN_LOW_MASK]))
        return tp_fail(q, TP_E_VALUE, "low_mask needs low_k and low_v");
    const tp_code code = tp_absent(&q->x[WIN_OFFSET])
                             ? check_mask(q, WIN_MASK, "mask", q->x[WIN_Q].dim[1], "g+N")
                             : check_packed_mask(q);
    return code == TP_OK ? check_mask(q, WIN_LOW_MASK, "low_mask", low->dim[1], "r") : code;
}

/* Checks q and the options of packed sequences. */
static tp_code check_packed(tp_infer *q, const tp_window_attn_cfg *c)
{
    const tp_view *x = q->x;
    if (x[WIN_Q].ndim != 2) return tp_fail(q, TP_E_SHAPE, "q of packed sequences must be [M,H*D]");
    if (c->height != 1 || c->global != 0 || c->block != 0 || c->edge == TP_EDGE_CYCLIC ||
        !tp_absent(&x[WIN_TABLE]) || !tp_absent(&x[WIN_GLOBAL_BIAS]))
        return tp_fail(q, TP_E_VALUE,
                       "packed sequences are maps of height 1 without global tokens, biases and "
                       "blocks, whose edge is not cyclic");
    return tp__expect_packing(q, WIN_OFFSET, "offset", x[WIN_Q].dim[0], c->width);
}

static tp_code check_map(tp_infer *q, const tp_window_attn_cfg *c)
{
    const tp_view *x = &q->x[WIN_Q];
    const int64_t tokens = c->global + c->height * c->width;
    if (x->ndim == 3 && x->dim[1] == tokens) return TP_OK;
    return tp_fail(
        q, TP_E_SHAPE, "q must be [B,g+N,H*D] with %lld tokens: %lld and a map of %lld x %lld",
        (long long)tokens, (long long)c->global, (long long)c->height, (long long)c->width);
}

/* The result, and the log-sum-exp. */
static void describe(tp_infer *q, const tp_window_attn_cfg *c)
{
    const tp_view *x = &q->x[WIN_Q];
    const tp_dtype sums = tp__sum_dtype(x->dtype);
    const int64_t cells = c->height * c->width;
    q->y[0] = *x;
    q->y[1] = (tp_view){ .dtype = sums, .ndim = 1, .dim = { c->heads * x->dim[0] } };
    if (!tp_absent(&q->x[WIN_OFFSET])) return;
    q->y[0].dim[1] = cells;
    q->y[1] = (tp_view){ .dtype = sums, .ndim = 3, .dim = { x->dim[0], c->heads, cells } };
}

static tp_code window_shape(tp_infer *q)
{
    const tp_window_attn_cfg *c = q->attr;
    const tp_view *x = &q->x[WIN_Q];
    const bool packed = !tp_absent(&q->x[WIN_OFFSET]);
    tp_code code = check_sizes(q, c);
    if (code != TP_OK) return code;
    if (!isfinite(c->scale)) return tp_fail(q, TP_E_VALUE, "scale must be finite");
    if (!(c->dropout >= 0.0 && c->dropout < 1.0))
        return tp_fail(q, TP_E_VALUE, "dropout must be in [0, 1), not %g", c->dropout);
    code = packed ? check_packed(q, c) : check_map(q, c);
    if (code != TP_OK) return code;
    if (!tp__same_shape(x, &q->x[WIN_K]) || !tp__same_shape(x, &q->x[WIN_V]))
        return tp_fail(q, TP_E_SHAPE, "q, k and v must be of one shape");
    const int64_t width = x->dim[x->ndim - 1];
    if (width % c->heads != 0)
        return tp_fail(q, TP_E_SHAPE, "a width of %lld does not divide into %d heads",
                       (long long)width, c->heads);
    code = check_low(q);
    if (code == TP_OK) code = check_window(q, c);
    if (code == TP_OK) code = check_biases(q, c);
    if (code == TP_OK) code = check_masks(q);
    describe(q, c);
    return code;
}

/* Counts pairs with exact edges: positions at most halo apart on an axis. */
static double pairs_of_axis(const tp_window *g, int axis)
{
    double pairs = 0.0;
    for (int64_t i = 0; i < g->size[axis]; i++)
        pairs += (double)(tp__least(i + g->halo[axis], g->size[axis] - 1) -
                          tp__most(i - g->halo[axis], 0) + 1);
    return pairs;
}

/* Counts pairs without exact edges: a chunk's queries see all its map keys. */
static double pairs_of_chunks(const tp_window *g)
{
    double pairs = 0.0;
    for (int64_t cy = 0; cy < g->chunks[0]; cy++)
        for (int64_t cx = 0; cx < g->chunks[1]; cx++) {
            const int64_t rows = tp__least(g->chunk[0], g->size[0] - cy * g->chunk[0]);
            const int64_t cols = tp__least(g->chunk[1], g->size[1] - cx * g->chunk[1]);
            tp_rect rect[TP_WINDOW_RECTS];
            const int n = tp__window_rects(g, cy, cx, rect);
            for (int i = 0; i < n; i++)
                pairs += (double)(rows * cols) * (double)(rect[i].rows * rect[i].cols);
        }
    return pairs;
}

/* q k^T and P v, with low-rank and global keys. Packed: as if sequences were of maximal length, but
 * with the actual number of rows. */
static double window_macs(const tp_infer *q)
{
    const tp_window g = tp__window(q->x, q->attr);
    const double maps = g.packed ? (double)q->x[WIN_Q].dim[0] / (double)g.cells : (double)g.batch;
    const double extra = (double)g.cells * (double)g.extra;
    const double map =
        g.exact && g.local ? pairs_of_axis(&g, 0) * pairs_of_axis(&g, 1) : pairs_of_chunks(&g);
    return g.cells > 0 ? 2.0 * (map + extra) * maps * (double)g.width : 0.0;
}

/* Masks for the cases. Batch row 0 hides tokens 1, 4, 7, .. and every second low key. Other rows
 * hide all but three tokens, and all low keys. */
static void fill_masks(int i, tp_view *x)
{
    if (i != WIN_MASK && i != WIN_LOW_MASK) return;
    for (int64_t e = 0; e < x->numel; e++) {
        const int64_t j = e % x->dim[1];
        const bool first = e < x->dim[1] ? (i == WIN_MASK ? j % 3 != 1 : j % 2 == 0) : false;
        tp_st(x, e, first || (i == WIN_MASK && e != j && j >= 1 && j < 4));
    }
}

/* Packed cases have 17 rows in five sequences; their masks hide tokens 1, 4, 7, .. */
static void fill_packed(int i, tp_view *x)
{
    if (i != WIN_MASK) fill_masks(i, x);
    for (int64_t e = 0; i == WIN_MASK && e < x->numel; e++) tp_st(x, e, e % 3 != 1);
    if (i == WIN_OFFSET) tp__fill_offsets(x, x->dim[0] == 6 ? 17 : 0);
}

/* q, k, v; low keys; table; global bias. MASKED: with two masks. HIDING: packed, tokens masked. */
#define IN(...) TP_LIST(INPUTS(__VA_ARGS__))
#define MASKED(B, N, C, r, rows, h, g)                                                             \
    TP_LIST(INPUTS(B, N, C, r, rows, h, g), TP_DIMS(B, N), { (r) ? 2 : 0, { B, r } })
#define PACKED(M, n, C, r, low) PACKED_OF(M, n, C, r, low, 0)
#define HIDING(M, n, C, r, low) PACKED_OF(M, n, C, r, low, 1)
#define PACKED_OF(M, n, C, r, low, mask)                                                           \
    TP_LIST(TP_DIMS(M, C), TP_DIMS(M, C), TP_DIMS(M, C), { (r) ? 3 : 0, { n, r, C } },             \
            { (r) ? 3 : 0, { n, r, C } }, { 0 }, { 0 }, { mask, { M } },                           \
            { (low) ? 2 : 0, { n, r } }, TP_DIMS(n + 1))
#define INPUTS(B, N, C, r, rows, h, g)                                                             \
    TP_DIMS(B, N, C), TP_DIMS(B, N, C), TP_DIMS(B, N, C), TP_LIST((r) ? 3 : 0, { B, r, C }),       \
        TP_LIST((r) ? 3 : 0, { B, r, C }), TP_LIST((rows) ? 2 : 0, { rows, h }),                   \
        TP_LIST((g) ? 2 : 0, { h, g })
#define FILL .masks = 1 << WIN_MASK | 1 << WIN_LOW_MASK, .fill = fill_masks
#define FILL_PACKED                                                                                \
    .masks = 1 << WIN_MASK | 1 << WIN_LOW_MASK, .below[WIN_OFFSET] = 1, .fill = fill_packed
#define CFG(...) TP_ATTR(const tp_window_attn_cfg, __VA_ARGS__)

static const tp_gradcase window_cases[] = {
    { "one chunk, no halo", .in = IN(2, 6, 4, 0, 15, 2, 0),
      .attr = CFG(.heads = 2, .height = 2, .width = 3, .window = { 2, 3 }) },
    { "nine blocks, global tokens", .in = IN(1, 27, 4, 0, 49, 2, 2),
      .attr = CFG(.heads = 2, .height = 5, .width = 5, .global = 2, .window = { 2, 2 },
                  .halo = { 2, 2 }) },
    { "exact", .in = IN(1, 21, 3, 0, 49, 1, 1),
      .attr = CFG(.heads = 1, .height = 4, .width = 5, .global = 1, .window = { 2, 2 },
                  .halo = { 2, 2 }, .edge = TP_EDGE_EXACT) },
    { "cyclic, part of a chunk", .in = IN(1, 36, 2, 0, 49, 1, 1),
      .attr = CFG(.heads = 1, .height = 5, .width = 7, .global = 1, .window = { 2, 2 },
                  .halo = { 2, 2 }, .edge = TP_EDGE_CYCLIC) },
    { "cyclic, one chunk", .in = IN(2, 4, 2, 0, 121, 1, 0),
      .attr = CFG(.heads = 1, .height = 2, .width = 2, .window = { 3, 3 }, .halo = { 3, 3 },
                  .edge = TP_EDGE_CYCLIC) },
    { "cyclic, wrapped cells masked", .in = IN(1, 15, 2, 0, 49, 1, 0),
      .attr = CFG(.heads = 1, .height = 3, .width = 5, .window = { 2, 2 }, .halo = { 2, 2 },
                  .edge = TP_EDGE_CYCLIC, .mask_wrapped = true) },
    { "own block", .in = IN(1, 13, 4, 0, 49, 2, 1),
      .attr = CFG(.heads = 2, .height = 3, .width = 4, .global = 1, .window = { 2, 2 },
                  .halo = { 2, 2 }, .block = TP_BLOCK_OWN, .reach = { 3, 3 }) },
    { "shift up left", .in = IN(1, 25, 2, 0, 49, 1, 0),
      .attr = CFG(.heads = 1, .height = 5, .width = 5, .window = { 2, 2 }, .halo = { 2, 2 },
                  .block = 1) },
    { "shift right", .in = IN(1, 16, 2, 0, 49, 1, 1),
      .attr = CFG(.heads = 1, .height = 3, .width = 5, .global = 1, .window = { 2, 2 },
                  .halo = { 2, 2 }, .block = 5) },
    { "shift down, cyclic", .in = IN(1, 20, 2, 0, 49, 1, 0),
      .attr = CFG(.heads = 1, .height = 5, .width = 4, .window = { 2, 2 }, .halo = { 2, 2 },
                  .edge = TP_EDGE_CYCLIC, .block = 7) },
    { "low keys, small halo", .in = IN(2, 17, 4, 3, 0, 2, 0),
      .attr = CFG(.heads = 2, .height = 4, .width = 4, .global = 1, .window = { 2, 2 },
                  .halo = { 1, 1 }) },
    { "a table that collides", .in = IN(1, 26, 4, 2, 37, 2, 0),
      .attr = CFG(.heads = 2, .height = 5, .width = 5, .global = 1, .window = { 3, 3 },
                  .halo = { 1, 1 }, .reach = { 3, 3 }, .stride = 5, .scale = 0.4) },
    { "window and halo of two sizes", .in = IN(1, 28, 3, 0, 35, 1, 0),
      .attr = CFG(.heads = 1, .height = 4, .width = 7, .window = { 2, 3 }, .halo = { 1, 1 }) },
    { "low and global keys only", .in = IN(2, 7, 4, 2, 0, 2, 1),
      .attr = CFG(.heads = 2, .height = 2, .width = 3, .global = 1) },
    { "stripes", .in = IN(1, 31, 2, 1, 9, 1, 1),
      .attr = CFG(.heads = 1, .height = 10, .width = 3, .global = 1, .window = { 1, 1 },
                  .halo = { 1, 1 }) },
    { "stripes, cyclic", .in = IN(1, 20, 2, 0, 9, 1, 0),
      .attr = CFG(.heads = 1, .height = 10, .width = 2, .window = { 1, 1 }, .halo = { 1, 1 },
                  .edge = TP_EDGE_CYCLIC) },
    { "more queries than a piece", .in = IN(1, 70, 2, 0, 19 * 13, 1, 0),
      .attr = CFG(.heads = 1, .height = 10, .width = 7, .window = { 10, 7 }) },
    { "heads of 8, two tiles of queries and of keys", .in = IN(1, 73, 8, 0, 17 * 15, 1, 1),
      .attr = CFG(.heads = 1, .height = 9, .width = 8, .global = 1, .window = { 9, 8 }) },
    { "heads of 8, keys of all kinds", .in = IN(2, 26, 16, 3, 121, 2, 2),
      .attr = CFG(.heads = 2, .height = 4, .width = 6, .global = 2, .window = { 3, 3 },
                  .halo = { 2, 2 }, .reach = { 5, 5 }) },
    { "heads of 8, exact", .in = IN(1, 30, 8, 0, 0, 1, 0),
      .attr = CFG(.heads = 1, .height = 5, .width = 6, .window = { 2, 3 }, .halo = { 2, 2 },
                  .edge = TP_EDGE_EXACT) },
    { "heads of 8, cyclic", .in = IN(1, 36, 8, 0, 49, 1, 1),
      .attr = CFG(.heads = 1, .height = 5, .width = 7, .global = 1, .window = { 2, 2 },
                  .halo = { 2, 2 }, .edge = TP_EDGE_CYCLIC) },
    { "heads of 40, low and global keys only", .in = IN(1, 8, 40, 2, 0, 1, 2),
      .attr = CFG(.heads = 1, .height = 2, .width = 3, .global = 2) },
    { "mask", .in = MASKED(2, 13, 4, 0, 49, 2, 1), FILL,
      .attr = CFG(.heads = 2, .height = 3, .width = 4, .global = 1, .window = { 2, 2 },
                  .halo = { 2, 2 }) },
    { "masks of a sequence", .in = MASKED(3, 12, 4, 2, 0, 2, 0), FILL,
      .attr = CFG(.heads = 2, .height = 1, .width = 12, .window = { 1, 4 }, .halo = { 0, 2 }) },
    { "masks, windows of one token", .in = MASKED(2, 8, 8, 3, 0, 1, 1), FILL,
      .attr = CFG(.heads = 1, .height = 1, .width = 7, .global = 1, .window = { 1, 1 },
                  .halo = { 0, 1 }) },
    { "masks, no window, a row without keys", .in = MASKED(2, 7, 4, 3, 0, 2, 0), FILL,
      .attr = CFG(.heads = 2, .height = 1, .width = 7) },
    { "mask, exact", .in = MASKED(2, 20, 2, 0, 49, 1, 0), FILL,
      .attr = CFG(.heads = 1, .height = 4, .width = 5, .window = { 2, 2 }, .halo = { 1, 1 },
                  .edge = TP_EDGE_EXACT, .reach = { 3, 3 }) },
    { "masks, cyclic", .in = MASKED(2, 16, 2, 2, 49, 1, 1), FILL,
      .attr = CFG(.heads = 1, .height = 3, .width = 5, .global = 1, .window = { 2, 2 },
                  .halo = { 2, 2 }, .edge = TP_EDGE_CYCLIC) },
    { "masks, heads of 8, keys of all kinds", .in = MASKED(2, 26, 16, 3, 121, 2, 2), FILL,
      .attr = CFG(.heads = 2, .height = 4, .width = 6, .global = 2, .window = { 3, 3 },
                  .halo = { 2, 2 }, .reach = { 5, 5 }) },
    { "masks, heads of 8, cyclic", .in = MASKED(2, 36, 8, 2, 49, 1, 1), FILL,
      .attr = CFG(.heads = 1, .height = 5, .width = 7, .global = 1, .window = { 2, 2 },
                  .halo = { 2, 2 }, .edge = TP_EDGE_CYCLIC) },
    { "mask, heads of 8, exact", .in = MASKED(2, 30, 8, 0, 0, 1, 0), FILL,
      .attr = CFG(.heads = 1, .height = 5, .width = 6, .window = { 2, 3 }, .halo = { 2, 2 },
                  .edge = TP_EDGE_EXACT) },
    { "masks, heads of 8, tiles of hidden queries", .in = MASKED(2, 70, 8, 3, 0, 1, 0), FILL,
      .attr = CFG(.heads = 1, .height = 1, .width = 70, .window = { 1, 70 }) },
    { "masks, heads of 40, a row without keys", .in = MASKED(2, 7, 40, 3, 0, 1, 0), FILL,
      .attr = CFG(.heads = 1, .height = 1, .width = 7) },
    { "dropout", .in = IN(2, 17, 4, 3, 0, 2, 0),
      .attr = CFG(.heads = 2, .height = 4, .width = 4, .global = 1, .window = { 2, 2 },
                  .halo = { 1, 1 }, .dropout = 0.4) },
    { "dropout, cyclic", .in = IN(1, 15, 2, 0, 49, 1, 0),
      .attr = CFG(.heads = 1, .height = 3, .width = 5, .window = { 2, 2 }, .halo = { 2, 2 },
                  .edge = TP_EDGE_CYCLIC, .dropout = 0.3) },
    { "masks, dropout, biases", .in = MASKED(2, 14, 16, 3, 121, 2, 2), FILL,
      .attr = CFG(.heads = 2, .height = 2, .width = 6, .global = 2, .window = { 3, 3 },
                  .halo = { 2, 2 }, .reach = { 5, 5 }, .dropout = 0.3) },
    { "packed", .in = PACKED(17, 5, 4, 2, false), FILL_PACKED,
      .attr = CFG(.heads = 2, .height = 1, .width = 7, .window = { 1, 4 }, .halo = { 0, 2 }) },
    { "packed, a looser bound, mask, dropout", .in = PACKED(17, 5, 8, 3, true), FILL_PACKED,
      .attr = CFG(.heads = 1, .height = 1, .width = 19, .window = { 1, 2 }, .halo = { 0, 2 },
                  .dropout = 0.3) },
    { "packed, mask", .in = PACKED(17, 5, 4, 2, true), FILL_PACKED,
      .attr = CFG(.heads = 2, .height = 1, .width = 7, .window = { 1, 1 }, .halo = { 0, 1 }) },
    { "packed, exact", .in = PACKED(17, 5, 2, 0, false), FILL_PACKED,
      .attr = CFG(.heads = 1, .height = 1, .width = 7, .window = { 1, 2 }, .halo = { 0, 2 },
                  .edge = TP_EDGE_EXACT) },
    { "packed, hidden tokens", .in = HIDING(17, 5, 4, 2, true), FILL_PACKED,
      .attr = CFG(.heads = 2, .height = 1, .width = 7, .window = { 1, 4 }, .halo = { 0, 2 }) },
    { "packed, exact, hidden tokens, dropout", .in = HIDING(17, 5, 8, 2, true), FILL_PACKED,
      .attr = CFG(.heads = 1, .height = 1, .width = 7, .window = { 1, 3 }, .halo = { 0, 3 },
                  .edge = TP_EDGE_EXACT, .dropout = 0.3) },
    { "packed, low keys only", .in = PACKED(17, 5, 4, 2, false), FILL_PACKED,
      .attr = CFG(.heads = 2, .height = 1, .width = 8) },
    { "no documents", .in = PACKED(0, 0, 4, 2, false), FILL_PACKED,
      .attr = CFG(.heads = 2, .height = 1, .width = 8, .window = { 1, 4 }, .halo = { 0, 2 }) },
    { "no batch", .in = IN(0, 4, 2, 0, 9, 1, 0),
      .attr = CFG(.heads = 1, .height = 2, .width = 2, .window = { 2, 2 }) },
    { "no map", .in = IN(1, 1, 2, 0, 9, 1, 1),
      .attr = CFG(.heads = 1, .height = 0, .width = 2, .global = 1, .window = { 2, 2 }) },
    { 0 },
};

const tp_op tp_op_window_attention = {
    .name = "window_attention_2d",
    .doc =
        "one softmax over the keys around a chunk of a map, low-rank keys and global tokens; tiled",
    .nx = WIN_NX,
    .inputs = "q, k, v, low_k, low_v, table, global_bias, mask, low_mask, offset",
    .takes = { [WIN_MASK] = TP_MASKS, [WIN_LOW_MASK] = TP_MASKS, [WIN_OFFSET] = TP_INDICES },
    .ny = 2, /* y, and the log-sum-exp for backward */
    .attr_size = sizeof(tp_window_attn_cfg),
    .saves = ((1u << WIN_NX) - 1) | TP_SAVE_Y(0) | TP_SAVE_Y(1),
    .optional = ((1u << WIN_NX) - 1) & ~((1u << WIN_LOW_K) - 1),
    .flags = TP_RANDOM | TP_COMPUTES,
    .shape = window_shape,
    .macs = window_macs,
    .forward = TP_KERNELS(window_attention_fwd),
    .backward = TP_KERNELS(window_attention_bwd),
    .work = TP_WORKS(window_attention_work),
    .cases = window_cases,
};

tp_tensor tp_window_attention_2d(tp_tape *T, tp_window_in in, tp_window_attn_cfg cfg)
{
    return tp_apply(T, &tp_op_window_attention, &cfg, in.q, in.k, in.v, in.low_k, in.low_v,
                    in.table, in.global_bias, in.mask, in.low_mask, in.offset);
}
