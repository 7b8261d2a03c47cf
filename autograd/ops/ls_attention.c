/* ls_attention.c - the language model's long-short attention.
 *
 *     y[t] = dropout(softmax(window logits, chunk logits)) (window values, chunk values)
 *
 * One softmax covers the window's rows and the chunks' vectors. A second, hidden output [B,H,N]
 * holds each query's log-sum-exp, from which backward recomputes the probabilities tile by tile
 * instead of storing N (w + vectors) of them. */
#include "tensor/geometry/ls_attention.h"
#include "autograd/ops/op_inner.h"

TP_KERNEL(ls_attention_fwd);
TP_KERNEL(ls_attention_bwd);
TP_WORK(ls_attention_work);

/* Masks of the inputs for the window and for the chunk vectors. */
#define LS_WINDOW (1u << LS_K_WIN | 1u << LS_V_WIN | 1u << LS_POS_WIN | 1u << LS_R_W | 1u << LS_R_R)
#define LS_CHUNKS (1u << LS_K_CMP | 1u << LS_V_CMP | 1u << LS_POS_CMP)

/* Is x[i] [rows,width], or [B,rows,width] if batch, B and width as in q? */
static bool is_rows(const tp_infer *q, int i, int64_t rows, bool batch)
{
    const tp_view *v = &q->x[i], *x = &q->x[LS_Q];
    return v->ndim == (batch ? 3 : 2) && v->dim[v->ndim - 2] == rows &&
           v->dim[v->ndim - 1] == x->dim[2] && (!batch || v->dim[0] == x->dim[0]);
}

/* Is v [H,D], [1,H,1,D] or, as in checkpoints, [1,H,1,1,D]? */
static bool is_bias(const tp_view *v, int64_t width, int64_t heads)
{
    return v->numel == width && (v->ndim == 2 || v->ndim == 4 || v->ndim == 5) &&
           v->dim[v->ndim - 1] == width / heads;
}

static tp_code check_window(tp_infer *q, const tp__ls_attr *a)
{
    const tp_view *x = &q->x[LS_Q], *k = &q->x[LS_K_WIN];
    if (a->window == 0) {
        for (int i = 0; i < LS_NX; i++)
            if ((1u << i & LS_WINDOW) && !tp_absent(&q->x[i]))
                return tp_fail(
                    q, TP_E_VALUE,
                    "without a window k_win, v_win, pos_win, r_w and r_r must be absent");
        return TP_OK;
    }
    if (!is_bias(&q->x[LS_R_W], x->dim[2], a->heads) ||
        !is_bias(&q->x[LS_R_R], x->dim[2], a->heads))
        return tp_fail(q, TP_E_SHAPE, "r_w and r_r must be [H,D], [1,H,1,D] or [1,H,1,1,D]");
    const int64_t rows = k->ndim == 3 ? k->dim[1] : 0, Wc = rows - x->dim[1];
    if (!is_rows(q, LS_K_WIN, rows, true) || !is_rows(q, LS_V_WIN, rows, true))
        return tp_fail(q, TP_E_SHAPE, "k_win and v_win must both be [B,Wc+N,H*D]");
    if (Wc < 0 || Wc > a->window)
        return tp_fail(q, TP_E_SHAPE,
                       "k_win has %lld rows for %lld queries: "
                       "between 0 and %lld (the window) may come before them",
                       (long long)rows, (long long)x->dim[1], (long long)a->window);
    const int64_t least = a->segment ? a->window : a->window - 1;
    if (!a->masked && Wc < least)
        return tp_fail(q, TP_E_SHAPE,
                       "a window of %lld needs %lld rows before the queries, k_win has %lld; set "
                       "the option masked to allow fewer",
                       (long long)a->window, (long long)least, (long long)Wc);
    const int64_t span = a->segment ? 2 * a->window : a->window;
    if (!is_rows(q, LS_POS_WIN, span, false))
        return tp_fail(q, TP_E_SHAPE, "pos_win must be [%lld,H*D]", (long long)span);
    return TP_OK;
}

static tp_code check_chunks(tp_infer *q, const tp__ls_attr *a)
{
    const bool absent = tp_absent(&q->x[LS_K_CMP]);
    const tp_view *k = &q->x[LS_K_CMP], *pos = &q->x[LS_POS_CMP];
    const int64_t nc = absent || k->ndim != 3 ? 0 : k->dim[1];
    if (absent != tp_absent(&q->x[LS_V_CMP]) ||
        (!absent && (!is_rows(q, LS_K_CMP, nc, true) || !is_rows(q, LS_V_CMP, nc, true))))
        return tp_fail(q, TP_E_SHAPE, "k_cmp and v_cmp must both be [B,nc,H*D], or both absent");
    if (a->rank == 0)
        return absent && tp_absent(pos)
                   ? TP_OK
                   : tp_fail(q, TP_E_VALUE, "with rank 0 k_cmp, v_cmp and pos_cmp must be absent");
    if (nc % a->rank != 0)
        return tp_fail(q, TP_E_SHAPE, "%lld chunk vectors are not a multiple of the rank, %lld",
                       (long long)nc, (long long)a->rank);
    const int64_t chunks = q->x[LS_Q].dim[1] / a->chunk;
    if (nc / a->rank < chunks)
        return tp_fail(q, TP_E_SHAPE,
                       "the queries' own %lld chunks have %.0f vectors, k_cmp has %lld",
                       (long long)chunks, (double)chunks * (double)a->rank, (long long)nc);
    const int64_t rows = tp_absent(pos) || pos->ndim != 2 ? 0 : pos->dim[0];
    if (rows < nc || (!tp_absent(pos) && !is_rows(q, LS_POS_CMP, rows, false)))
        return tp_fail(q, TP_E_SHAPE, "pos_cmp must be [n,H*D], n at least %lld", (long long)nc);
    if (!a->masked) return TP_OK;
    if (a->valid < 0 || a->valid > a->cache)
        return tp_fail(q, TP_E_VALUE, "valid, %lld, must be between 0 and cache, %lld",
                       (long long)a->valid, (long long)a->cache);
    const int64_t Wc = a->window ? q->x[LS_K_WIN].dim[1] - q->x[LS_Q].dim[1] : 0;
    if (Wc > a->cache)
        return tp_fail(q, TP_E_VALUE, "a cache of %lld rows cannot have %lld in the window",
                       (long long)a->cache, (long long)Wc);
    return TP_OK;
}

static tp_code ls_shape(tp_infer *q)
{
    const tp_view *x = &q->x[LS_Q];
    const tp__ls_attr *a = q->attr;
    if (a->heads < 1 || a->chunk < 1 || a->rank < 0 || a->window < 0)
        return tp_fail(q, TP_E_VALUE,
                       "heads and chunk must be positive, rank and window not negative: "
                       "%lld, %lld, %lld, %lld",
                       (long long)a->heads, (long long)a->chunk, (long long)a->rank,
                       (long long)a->window);
    const int64_t most = INT64_C(1) << 40; /* their sums fit in 64 bits */
    if (a->cache < 0 || a->cache > most || a->valid < 0 || a->valid > most)
        return tp_fail(q, TP_E_VALUE, "cache and valid must be between 0 and 2^40: %lld, %lld",
                       (long long)a->cache, (long long)a->valid);
    if (!(a->dropout >= 0.0 && a->dropout < 1.0))
        return tp_fail(q, TP_E_VALUE, "dropout must be in [0, 1), not %g", a->dropout);
    q->draws = a->dropout > 0.0;
    if (a->segment && a->window == 0)
        return tp_fail(q, TP_E_VALUE, "segment: a window of 0 has no segments");
    if (x->ndim != 3) return tp_fail(q, TP_E_SHAPE, "q must be [B,N,H*D]");
    if (x->dim[2] % a->heads != 0)
        return tp_fail(q, TP_E_SHAPE, "width %lld is not a multiple of %lld heads",
                       (long long)x->dim[2], (long long)a->heads);
    const tp_code code = check_window(q, a);
    if (code != TP_OK) return code;
    q->y[0] = *x;
    q->y[1] = (tp_view){ .dtype = tp__sum_dtype(x->dtype),
                         .ndim = 3,
                         .dim = { x->dim[0], a->heads, x->dim[1] } };
    return check_chunks(q, a);
}

/* Each query takes part in three products with the rows and vectors it sees: keys, positions and
 * values. */
static double ls_macs(const tp_infer *q)
{
    if (q->x[LS_Q].numel == 0) return 0.0; /* whatever its shape */
    const tp__ls_dims g = tp__ls_geometry(q->x, q->attr);
    double pairs = 0.0;
    for (int64_t t = 0; t < g.N; t++) {
        const int64_t rows = g.w ? g.Wc + t + 1 - tp__ls_first_row(&g, t) : 0;
        const int64_t vectors = g.r ? tp__ls_end_vec(&g, t) - g.first_vec : 0;
        pairs += (double)(rows + (vectors > 0 ? vectors : 0));
    }
    return 3.0 * pairs * (double)(g.B * g.width);
}

/* q; keys and values of window and chunks; tables; biases. nc = 0: no vectors, no table. */
#define INPUTS(B, N, Wc, nc, span, H, D)                                                           \
    TP_LIST(TP_DIMS(B, N, (H) * (D)), TP_DIMS(B, (Wc) + (N), (H) * (D)),                           \
            TP_DIMS(B, (Wc) + (N), (H) * (D)), { (nc) ? 3 : 0, { B, nc, (H) * (D) } },             \
            { (nc) ? 3 : 0, { B, nc, (H) * (D) } }, TP_DIMS(span, (H) * (D)),                      \
            { (nc) ? 2 : 0, { nc, (H) * (D) } }, TP_DIMS(H, D), TP_DIMS(H, D))
/* The same without a window. */
#define NO_WINDOW(B, N, nc, H, D)                                                                  \
    TP_LIST(TP_DIMS(B, N, (H) * (D)), { 0 }, { 0 }, { (nc) ? 3 : 0, { B, nc, (H) * (D) } },        \
            { (nc) ? 3 : 0, { B, nc, (H) * (D) } }, { 0 }, { (nc) ? 2 : 0, { nc, (H) * (D) } },    \
            { 0 }, { 0 })
#define LS(...) TP_ATTR(const tp__ls_attr, __VA_ARGS__)

static const tp_gradcase ls_cases[] = {
    { "basic", .in = INPUTS(1, 8, 4, 3, 4, 2, 3),
      .attr = LS(.heads = 2, .chunk = 4, .rank = 1, .window = 4) },
    { "rank 3, odd window, part of a chunk", .in = INPUTS(2, 7, 5, 12, 5, 3, 4),
      .attr = LS(.heads = 3, .chunk = 3, .rank = 3, .window = 5) },
    { "clamped", .in = INPUTS(1, 8, 6, 10, 6, 1, 5),
      .attr = LS(.heads = 1, .chunk = 4, .rank = 2, .window = 6, .clamp = 3, .chunk_clamp = 2) },
    { "one row less than the window", .in = INPUTS(1, 6, 2, 6, 3, 1, 4),
      .attr = LS(.heads = 1, .chunk = 1, .rank = 1, .window = 3) },
    { "no cache", .in = INPUTS(1, 6, 0, 2, 5, 1, 4),
      .attr = LS(.heads = 1, .chunk = 3, .rank = 1, .window = 5, .masked = true) },
    { "part of a cache", .in = INPUTS(2, 6, 4, 8, 5, 1, 4),
      .attr = LS(.heads = 1, .chunk = 3, .rank = 2, .window = 5, .masked = true, .cache = 7,
                 .valid = 3) },
    { "segment", .in = INPUTS(1, 10, 4, 4, 8, 2, 2),
      .attr = LS(.heads = 2, .chunk = 3, .rank = 1, .window = 4, .segment = true) },
    { "segment, part of a cache", .in = INPUTS(1, 7, 4, 5, 8, 1, 4),
      .attr = LS(.heads = 1, .chunk = 2, .rank = 1, .window = 4, .segment = true, .clamp = 5,
                 .masked = true, .cache = 5, .valid = 2) },
    { "no vectors", .in = INPUTS(1, 3, 2, 0, 3, 1, 4),
      .attr = LS(.heads = 1, .chunk = 4, .rank = 1, .window = 3) },
    { "one query", .in = INPUTS(2, 1, 3, 4, 3, 1, 4),
      .attr = LS(.heads = 1, .chunk = 4, .rank = 2, .window = 3) },
    { "no queries", .in = INPUTS(1, 0, 3, 2, 3, 1, 4),
      .attr = LS(.heads = 1, .chunk = 4, .rank = 1, .window = 3) },
    { "rank 0", .in = INPUTS(2, 9, 4, 0, 5, 2, 3),
      .attr = LS(.heads = 2, .chunk = 3, .window = 5) },
    { "rank 0, no cache", .in = INPUTS(1, 5, 0, 0, 3, 1, 4),
      .attr = LS(.heads = 1, .chunk = 2, .window = 3, .masked = true) },
    { "no window", .in = NO_WINDOW(2, 8, 6, 2, 3),
      .attr = LS(.heads = 2, .chunk = 4, .rank = 2, .masked = true, .cache = 4, .valid = 4) },
    { "no window, some see nothing", .in = NO_WINDOW(1, 9, 3, 2, 3),
      .attr = LS(.heads = 2, .chunk = 3, .rank = 1, .masked = true) },
    { "no window, nobody sees anything", .in = NO_WINDOW(1, 3, 0, 1, 4),
      .attr = LS(.heads = 1, .chunk = 4, .rank = 1, .masked = true) },
    { "two stripes, three tiles", .in = INPUTS(1, 150, 9, 20, 9, 1, 2),
      .attr = LS(.heads = 1, .chunk = 16, .rank = 2, .window = 9) },
    { "rank 3, two tiles, no cache", .in = INPUTS(1, 70, 0, 12, 21, 1, 4),
      .attr = LS(.heads = 1, .chunk = 16, .rank = 3, .window = 21, .masked = true) },
    { "more vectors than queries", .in = INPUTS(1, 67, 3, 204, 3, 1, 2),
      .attr = LS(.heads = 1, .chunk = 4, .rank = 12, .window = 3) },
    { "dropout", .in = INPUTS(2, 9, 4, 6, 4, 2, 3),
      .attr = LS(.heads = 2, .chunk = 4, .rank = 2, .window = 4, .dropout = 0.3) },
    { "dropout, part of a cache", .in = INPUTS(2, 7, 4, 8, 8, 1, 4),
      .attr = LS(.heads = 1, .chunk = 3, .rank = 2, .window = 4, .segment = true, .masked = true,
                 .cache = 7, .valid = 3, .dropout = 0.4) },
    { "dropout, no window", .in = NO_WINDOW(2, 8, 6, 2, 3),
      .attr = LS(.heads = 2, .chunk = 4, .rank = 2, .dropout = 0.5) },
    { "dropout, two stripes, heads of 32", .in = INPUTS(1, 130, 17, 16, 17, 1, 32),
      .attr = LS(.heads = 1, .chunk = 16, .rank = 1, .window = 17, .dropout = 0.1) },
    { "head 66", .in = INPUTS(1, 5, 3, 3, 3, 1, 66),
      .attr = LS(.heads = 1, .chunk = 3, .rank = 1, .window = 3) },
    { 0 },
};

const tp_op tp_op_ls_attention = {
    .name = "ls_attention",
    .doc = "one softmax over a sliding window and the vectors of earlier chunks, with positions; "
           "dropout",
    .nx = LS_NX,
    .inputs = "q, k_win, v_win, k_cmp, v_cmp, pos_win, pos_cmp, r_w, r_r",
    .ny = 2, /* y, and the log-sum-exp for backward */
    .attr_size = sizeof(tp__ls_attr),
    .saves = ((1u << LS_NX) - 1) | TP_SAVE_Y(0) | TP_SAVE_Y(1),
    .optional = LS_WINDOW | LS_CHUNKS,
    .flags = TP_COMPUTES,
    .shape = ls_shape,
    .macs = ls_macs,
    .forward = TP_KERNELS(ls_attention_fwd),
    .backward = TP_KERNELS(ls_attention_bwd),
    .work = TP_WORKS(ls_attention_work),
    .cases = ls_cases,
};

tp_tensor tp_ls_attention(tp_tape *T, tp_ls_in in, tp_ls_attn_cfg cfg)
{
    const tp__ls_attr attr = tp__ls_attr_of(in, cfg);
    return tp_apply(T, &tp_op_ls_attention, &attr, in.q, in.k_win, in.v_win, in.k_cmp, in.v_cmp,
                    in.pos_win, in.pos_cmp, in.r_w, in.r_r);
}
