/* matmul.c - Y = A B for every index of the leading axes, and its gradient.
 *
 *     dA = dY B^T,  dB = A^T dY;   stored transposed:  dA^T = B dY^T,  dB^T = dY^T A
 *
 * All rows of A form one product if B has no leading axes and A is not stored transposed; if it is,
 * dB is a sum over the batch. tp__gemm_parallel does the work, so one object serves both types and
 * all instruction sets. */
#include "tensor/kernel.h"

#ifdef TP_ISA_DISPATCH

#include "tensor/geometry/matmul_sizes.h"

/* C[m,n] = or += a b, where a has k columns. step: from one C to the next; 0: C is their sum. */
static void product(const tp_call *c, int64_t batch, int64_t m, int64_t n, int64_t k,
                    tp_matmul_operand a, tp_matmul_operand b, const tp_view *to, int64_t step,
                    bool add)
{
    tp__gemm_parallel(c->dev, &(tp_gemm){ .dtype = c->real,
                                          .c_dtype = to->dtype,
                                          .m = m,
                                          .n = n,
                                          .k = k,
                                          .batch = batch,
                                          .add = add,
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
                                          .work = c->work });
}

tp_code tp_cpu_matmul_fwd(const tp_call *c);
tp_code tp_cpu_matmul_fwd(const tp_call *c)
{
    const tp_matmul_sizes s = tp__matmul_sizes(c);
    product(c, s.batch, s.m, s.n, s.k, s.a, s.b, &c->y[0], s.m * s.n, false);
    return TP_OK;
}

tp_code tp_cpu_matmul_bwd(const tp_call *c);
tp_code tp_cpu_matmul_bwd(const tp_call *c)
{
    const tp_matmul_sizes s = tp__matmul_sizes(c);
    const tp_matmul_operand dy = { c->dy[0].data, false, s.n, s.m * s.n };
    const tp_view *da = &c->dx[0], *db = &c->dx[1];
    const bool add_a = c->add & 1u, add_b = c->add >> 1 & 1u;
    if (da->data && !s.a.transposed)
        product(c, s.batch, s.m, s.k, s.n, dy, tp__transposed(s.b), da, s.a.step, add_a);
    else if (da->data)
        product(c, s.batch, s.k, s.m, s.n, s.b, tp__transposed(dy), da, s.a.step, add_a);
    if (db->data && !s.b.transposed)
        product(c, s.batch, s.k, s.n, s.m, tp__transposed(s.a), dy, db, s.b.step, add_b);
    else if (db->data)
        product(c, s.batch, s.n, s.k, s.m, tp__transposed(dy), s.a, db, s.b.step, add_b);
    return TP_OK;
}

size_t tp_cpu_matmul_work(const tp_call *c);
size_t tp_cpu_matmul_work(const tp_call *c)
{
    const tp_dtype stored = c->x[0].dtype; /* before the call, c->real is f32 for bf16 */
    return tp__product_work(c->dev, stored, &c->x[0], &c->x[1]);
}

#endif
