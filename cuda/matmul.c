/* matmul.c - Y = A B for every index of the leading axes, and its gradient, by cuBLAS; products as
 * in cpu/matmul.c. A sum over the batch (the gradient of a shared B with a transposed A) is
 * computed product by product, in order: columns of A do not continue in the next matrix, so no
 * leading dimension makes it one longer product. */
#include "cuda/device/inner.h"
#include "tensor/geometry/linalg.h"
#include "tensor/geometry/matmul_sizes.h"

/* C[m,n] = or += a b, where a has k columns. step: offset of the next C; 0: C is their sum. */
static tp_code product(const tp_call *c, int64_t batch, int64_t m, int64_t n, int64_t k,
                       tp_matmul_operand a, tp_matmul_operand b, const tp_view *to, int64_t step,
                       bool add)
{
    tp_cuda_gemm g = {
        .m = m,
        .n = n,
        .k = k,
        .batch = batch,
        .type = c->x[0].dtype,
        .type_c = to->dtype,
        .a = a.data,
        .ta = a.transposed,
        .lda = a.ld,
        .step_a = a.step,
        .b = b.data,
        .tb = b.transposed,
        .ldb = b.ld,
        .step_b = b.step,
        .c = to->data,
        .ldc = n,
        .step_c = step,
        .add = add,
    };
    if (!add && (k == 0 || (batch == 0 && step == 0)))
        return tp__cuda_zero(c, to->data, (size_t)to->numel * tp_dtype_size(to->dtype));
    if (step != 0 || batch <= 1 || k == 0) return k ? tp__cuda_gemm(c, &g) : TP_OK;
    tp_code code = TP_OK;
    g.batch = 1;
    const size_t size = tp_dtype_size(g.type);
    for (int64_t i = 0; i < batch && code == TP_OK; i++) {
        g.a = (const char *)a.data + (size_t)(i * a.step) * size;
        g.b = (const char *)b.data + (size_t)(i * b.step) * size;
        g.add = add || i > 0;
        code = tp__cuda_gemm(c, &g);
    }
    return code;
}

tp_code tp_cuda_matmul_fwd(const tp_call *c);
tp_code tp_cuda_matmul_fwd(const tp_call *c)
{
    const tp_matmul_sizes s = tp__matmul_sizes(c);
    return product(c, s.batch, s.m, s.n, s.k, s.a, s.b, &c->y[0], s.m * s.n, false);
}

tp_code tp_cuda_matmul_bwd(const tp_call *c);
tp_code tp_cuda_matmul_bwd(const tp_call *c)
{
    const tp_matmul_sizes s = tp__matmul_sizes(c);
    const tp_matmul_operand dy = { c->dy[0].data, false, s.n, s.m * s.n };
    const tp_view *da = &c->dx[0], *db = &c->dx[1];
    const bool add_a = c->add & 1u, add_b = c->add >> 1 & 1u;
    tp_code code = TP_OK;
    if (da->data && !s.a.transposed)
        code = product(c, s.batch, s.m, s.k, s.n, dy, tp__transposed(s.b), da, s.a.step, add_a);
    else if (da->data)
        code = product(c, s.batch, s.k, s.m, s.n, s.b, tp__transposed(dy), da, s.a.step, add_a);
    if (code != TP_OK || !db->data) return code;
    if (!s.b.transposed)
        return product(c, s.batch, s.k, s.n, s.m, tp__transposed(s.a), dy, db, s.b.step, add_b);
    return product(c, s.batch, s.n, s.k, s.m, tp__transposed(dy), s.a, db, s.b.step, add_b);
}
