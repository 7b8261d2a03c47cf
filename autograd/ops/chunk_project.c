/* chunk_project.c - dynamic projection: reduces each chunk of tokens to a few weighted means, of
 * one tensor or of two with shared weights.
 *
 *     y[b, c r + j, head i] = sum_s p[s] x[b, c l + s, head i],   p = softmax over s of
 *                                                                     scores[b, c l + s, i r + j]
 *
 * Packed documents are chunks of varying length. Hidden tokens have no weight. Backward recomputes
 * p, which is cheaper than loading it, and reads y: the sum over s of p times its gradient is y
 * times the gradient of y. */
#include "tensor/geometry/chunk_project.h"
#include "autograd/ops/packing.h"

TP_KERNEL(chunk_project_fwd);
TP_KERNEL(chunk_project_bwd);
TP_WORK(chunk_project_work);

static tp_code check_mask(tp_infer *q)
{
    const tp_view *x = &q->x[CHUNK_X], *mask = &q->x[CHUNK_MASK];
    if (mask->ndim == 2 && mask->dim[0] == x->dim[0] && mask->dim[1] == x->dim[1]) return TP_OK;
    return tp_fail(q, TP_E_SHAPE, "mask must be u8[B,N] = u8[%lld,%lld]", (long long)x->dim[0],
                   (long long)x->dim[1]);
}

static tp_code check_chunks(tp_infer *q)
{
    const tp_view *x = &q->x[CHUNK_X], *s = &q->x[CHUNK_SCORES];
    const tp__chunk_attr *a = q->attr;
    if (x->ndim != 3 || s->ndim != 3 || s->dim[0] != x->dim[0] || s->dim[1] != x->dim[1])
        return tp_fail(q, TP_E_SHAPE, "x must be [B,N,H*D] and scores [B,N,H*r]");
    if (x->dim[1] % a->chunk != 0)
        return tp_fail(q, TP_E_SHAPE, "%lld tokens are not a multiple of the chunk, %lld",
                       (long long)x->dim[1], (long long)a->chunk);
    return tp_absent(&q->x[CHUNK_MASK]) ? TP_OK : check_mask(q);
}

static tp_code check_documents(tp_infer *q)
{
    const tp_view *x = &q->x[CHUNK_X], *s = &q->x[CHUNK_SCORES];
    if (x->ndim != 2 || s->ndim != 2 || s->dim[0] != x->dim[0])
        return tp_fail(q, TP_E_SHAPE, "k and v must be [M,H*D] and scores [M,H*r]");
    return tp__expect_packing(q, CHUNK_OFFSET, "of.offset", x->dim[0],
                              ((const tp__chunk_attr *)q->attr)->chunk);
}

static tp_code chunk_shape(tp_infer *q)
{
    const bool packed = tp__chunk_packed(q->x, q->nx);
    tp_code code;
    const tp_view *x = &q->x[CHUNK_X], *s = &q->x[CHUNK_SCORES];
    const tp__chunk_attr *a = q->attr;
    if (a->heads < 1 || a->chunk < 1 || a->rank < 1)
        return tp_fail(q, TP_E_VALUE, "heads, chunk and rank must be positive: %lld, %lld, %lld",
                       (long long)a->heads, (long long)a->chunk, (long long)a->rank);
    code = packed ? check_documents(q) : check_chunks(q);
    if (code != TP_OK) return code;
    const int64_t width = x->dim[x->ndim - 1], columns = s->dim[x->ndim - 1];
    if (width % a->heads != 0)
        return tp_fail(q, TP_E_SHAPE, "width %lld is not a multiple of %lld heads",
                       (long long)width, (long long)a->heads);
    if (columns != a->heads * a->rank)
        return tp_fail(q, TP_E_SHAPE, "scores have width %lld, %lld heads of rank %lld need %lld",
                       (long long)columns, (long long)a->heads, (long long)a->rank,
                       (long long)(a->heads * a->rank));
    if (q->nx > CHUNK_V && (q->x[CHUNK_V].dtype != x->dtype || !tp__same_shape(x, &q->x[CHUNK_V])))
        return tp_fail(q, TP_E_SHAPE, "k and v must be of one shape and dtype");
    for (int i = 0; i < q->ny; i++) {
        q->y[i] = (tp_view){ .dtype = x->dtype,
                             .ndim = 3,
                             .dim = { x->dim[0], x->dim[1] / a->chunk * a->rank, x->dim[2] } };
        if (!packed) continue;
        q->y[i].dim[0] = q->x[CHUNK_OFFSET].dim[0] - 1;
        q->y[i].dim[1] = a->rank;
        q->y[i].dim[2] = width;
    }
    return TP_OK;
}

static double chunk_macs(const tp_infer *q)
{
    return (double)q->ny * (double)q->x[0].numel * (double)((const tp__chunk_attr *)q->attr)->rank;
}

/* Hides every third token; in later rows of the batch all but the first two, so that later chunks
 * have no visible token. */
static void fill_mask(int i, tp_view *x)
{
    if (i != CHUNK_MASK) return;
    for (int64_t e = 0; e < x->numel; e++)
        tp_st(x, e, e < x->dim[1] ? e % 3 != 1 : e % x->dim[1] < 2);
}

/* Packed cases have 17 rows in five documents, or 600 in two. */
static void fill_packed(int i, tp_view *x)
{
    if (i != CHUNK_OFFSET) return;
    tp__fill_offsets(x, x->dim[0] == 6 ? 17 : x->dim[0] == 3 ? 600 : 0);
}

#define SHAPES(B, N, HD, HR) TP_LIST(TP_DIMS(B, N, HD), TP_DIMS(B, N, HR))
#define MASKED(B, N, HD, HR) TP_LIST(TP_DIMS(B, N, HD), TP_DIMS(B, N, HR), TP_DIMS(B, N))
#define TWO(B, N, HD, HR)    TP_LIST(TP_DIMS(B, N, HD), TP_DIMS(B, N, HR), { 0 }, TP_DIMS(B, N, HD))
#define BOTH(B, N, HD, HR)                                                                         \
    TP_LIST(TP_DIMS(B, N, HD), TP_DIMS(B, N, HR), TP_DIMS(B, N), TP_DIMS(B, N, HD))
#define PACKED(M, n, HD, HR)                                                                       \
    TP_LIST(TP_DIMS(M, HD), TP_DIMS(M, HR), { 0 }, TP_DIMS(M, HD), TP_DIMS(n + 1))
#define FILL        .masks = 1 << CHUNK_MASK, .fill = fill_mask
#define FILL_PACKED .ny = 2, .below[CHUNK_OFFSET] = 1, .fill = fill_packed

static const tp_gradcase chunk_cases[] = {
    { "rank 1", .in = SHAPES(2, 8, 6, 2), .attr = &(tp__chunk_attr){ 2, 4, 1 } },
    { "rank 3, odd chunk", .in = SHAPES(1, 10, 6, 9), .attr = &(tp__chunk_attr){ 3, 5, 3 } },
    { "one token a chunk", .in = SHAPES(1, 3, 4, 2), .attr = &(tp__chunk_attr){ 1, 1, 2 } },
    { "wide head", .in = SHAPES(1, 6, 37, 1), .attr = &(tp__chunk_attr){ 1, 3, 1 } },
    { "packs", .in = SHAPES(1, 6, 32, 4), .attr = &(tp__chunk_attr){ 2, 3, 2 } },
    { "five tokens of 64", .in = SHAPES(2, 5, 64, 1), .attr = &(tp__chunk_attr){ 1, 5, 1 } },
    { "nine tokens of 128", .in = SHAPES(1, 9, 128, 3), .attr = &(tp__chunk_attr){ 1, 9, 3 } },
    { "long chunk", .in = SHAPES(1, 70, 4, 2), .attr = &(tp__chunk_attr){ 2, 70, 1 } },
    { "spans, a head of two rounds", .in = SHAPES(1, 521, 36, 3),
      .attr = &(tp__chunk_attr){ 1, 521, 3 } },
    { "many ranks", .in = SHAPES(2, 33, 6, 18), .attr = &(tp__chunk_attr){ 2, 33, 9 } },
    { "no tokens", .in = SHAPES(2, 0, 6, 2), .attr = &(tp__chunk_attr){ 2, 4, 1 } },
    { "mask", .in = MASKED(2, 10, 6, 9), .attr = &(tp__chunk_attr){ 3, 5, 3 }, FILL },
    { "mask, packs", .in = MASKED(2, 12, 32, 4), .attr = &(tp__chunk_attr){ 2, 4, 2 }, FILL },
    { "mask, spans", .in = MASKED(2, 521, 4, 2), .attr = &(tp__chunk_attr){ 1, 521, 2 }, FILL },
    { "mask, many ranks", .in = MASKED(2, 66, 6, 18), .attr = &(tp__chunk_attr){ 2, 33, 9 }, FILL },
    { 0 },
};

static const tp_gradcase kv_cases[] = {
    { "rank 3", .in = TWO(2, 10, 6, 9), .attr = &(tp__chunk_attr){ 3, 5, 3 }, .ny = 2 },
    { "packs", .in = TWO(1, 6, 32, 4), .attr = &(tp__chunk_attr){ 2, 3, 2 }, .ny = 2 },
    { "one chunk, many ranks", .in = TWO(1, 70, 8, 20), .attr = &(tp__chunk_attr){ 4, 70, 5 },
      .ny = 2 },
    { "mask", .in = BOTH(2, 12, 6, 6), .attr = &(tp__chunk_attr){ 3, 4, 2 }, .ny = 2, FILL },
    { "mask, packs", .in = BOTH(2, 12, 32, 4), .attr = &(tp__chunk_attr){ 2, 4, 2 }, .ny = 2,
      FILL },
    { "mask, spans", .in = BOTH(2, 70, 36, 3), .attr = &(tp__chunk_attr){ 1, 70, 3 }, .ny = 2,
      FILL },
    { "mask, many ranks", .in = BOTH(2, 66, 6, 18), .attr = &(tp__chunk_attr){ 2, 33, 9 }, .ny = 2,
      FILL },
    { "no tokens", .in = TWO(2, 0, 6, 2), .attr = &(tp__chunk_attr){ 2, 4, 1 }, .ny = 2 },
    { "packed", .in = PACKED(17, 5, 6, 9), .attr = &(tp__chunk_attr){ 3, 7, 3 }, FILL_PACKED },
    { "packed, packs", .in = PACKED(17, 5, 32, 4), .attr = &(tp__chunk_attr){ 2, 7, 2 },
      FILL_PACKED },
    { "packed, spans", .in = PACKED(600, 2, 4, 3), .attr = &(tp__chunk_attr){ 1, 600, 3 },
      FILL_PACKED },
    { "packed, many ranks", .in = PACKED(17, 5, 6, 18), .attr = &(tp__chunk_attr){ 2, 40, 9 },
      FILL_PACKED },
    { "no documents", .in = PACKED(0, 0, 6, 2), .attr = &(tp__chunk_attr){ 2, 4, 1 }, FILL_PACKED },
    { 0 },
};

const tp_op tp_op_chunk_project = {
    .name = "chunk_project",
    .doc = "head i of row c*r+j = sum_s softmax_s(scores[c*l+s, i*r+j]) x[c*l+s], chunks of l rows",
    .nx = 3,
    .inputs = "x, scores, mask",
    .takes = { [CHUNK_MASK] = TP_MASKS },
    .ny = 1,
    .attr_size = sizeof(tp__chunk_attr),
    .saves = TP_SAVE_X(CHUNK_X) | TP_SAVE_X(CHUNK_SCORES) | TP_SAVE_X(CHUNK_MASK) | TP_SAVE_Y(0),
    .optional = 1u << CHUNK_MASK,
    .flags = TP_COMPUTES,
    .shape = chunk_shape,
    .macs = chunk_macs,
    .forward = TP_KERNELS(chunk_project_fwd),
    .backward = TP_KERNELS(chunk_project_bwd),
    .work = TP_WORKS(chunk_project_work),
    .cases = chunk_cases,
};

const tp_op tp_op_chunk_project_kv = {
    .name = "chunk_project_kv",
    .doc = "chunk_project of two tensors with the same weights",
    .nx = CHUNK_NX,
    .inputs = "k, scores, mask, v, of.offset",
    .takes = { [CHUNK_MASK] = TP_MASKS, [CHUNK_OFFSET] = TP_INDICES },
    .ny = 2,
    .attr_size = sizeof(tp__chunk_attr),
    .saves = ((1u << CHUNK_NX) - 1) | TP_SAVE_Y(0) | TP_SAVE_Y(1),
    .optional = 1u << CHUNK_MASK | 1u << CHUNK_OFFSET,
    .flags = TP_COMPUTES,
    .shape = chunk_shape,
    .macs = chunk_macs,
    .forward = TP_KERNELS(chunk_project_fwd),
    .backward = TP_KERNELS(chunk_project_bwd),
    .work = TP_WORKS(chunk_project_work),
    .cases = kv_cases,
};

tp_tensor tp_chunk_project(tp_tape *T, tp_tensor x, tp_tensor scores, tp_tensor mask, int heads,
                           int chunk, int rank)
{
    const tp__chunk_attr a = { heads, chunk, rank };
    return tp_apply(T, &tp_op_chunk_project, &a, x, scores, mask);
}

static tp_kv project_kv(tp_tape *T, tp__chunk_attr a, const tp_tensor x[CHUNK_NX])
{
    tp_tensor y[2];
    tp_apply_n(T, &tp_op_chunk_project_kv, &a, CHUNK_NX, x, 2, y);
    return (tp_kv){ y[0], y[1] };
}

tp_kv tp_chunk_project_kv(tp_tape *T, tp_tensor k, tp_tensor v, tp_tensor scores, tp_tensor mask,
                          int heads, int chunk, int rank)
{
    return project_kv(T, (tp__chunk_attr){ heads, chunk, rank },
                      (tp_tensor[]){ k, scores, mask, v, TP_NONE });
}

tp_kv tp_packed_project_kv(tp_tape *T, tp_tensor k, tp_tensor v, tp_tensor scores, tp_packed of,
                           int heads, int rank)
{
    const int64_t longest = of.longest == 0 ? 1 : of.longest; /* all are empty */
    return project_kv(T, (tp__chunk_attr){ heads, longest, rank },
                      (tp_tensor[]){ k, scores, TP_NONE, v, of.offset });
}
