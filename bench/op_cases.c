/* op_cases.c - the tables of cases of bench_ops, one for each family (op_cases_FAMILY.c). */
#define TP_NO_SITE
#include "op_cases.h"

#include <stdlib.h>

int64_t op_numel(tp_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    return n;
}

int op_inputs(const op_case *k)
{
    int n = 0;
    while (n < OP_MAX_IN && k->in[n].shape.ndim > 0) n++;
    return n;
}

void *op_numbers(const op_case *k, int i, uint32_t *seed)
{
    const int64_t n = op_numel(k->in[i].shape), below = k->in[i].below;
    void *host = malloc((size_t)n * (below > 0 ? sizeof(int64_t) : sizeof(float)));
    if (!host) exit(1);
    for (int64_t j = 0; j < n; j++) {
        *seed = *seed * 1664525u + 1013904223u;
        if (below > 0)
            ((int64_t *)host)[j] = (int64_t)(*seed >> 8) % below;
        else
            ((float *)host)[j] = (float)(*seed >> 8) * (k->unit >> i & 1u ? 0x1p-24f : 0x1p-23f) -
                                 (k->unit >> i & 1u ? 0.0f : 1.0f);
    }
    return host;
}

tp_tensor op_one(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return k->one(T, x[0]);
}

tp_tensor op_two(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return k->two(T, x[0], x[1]);
}

tp_tensor op_copy(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_scale(T, x[0], 2.0);
}

/* A product and a copy: the rates of the machine. */
static const op_case machine[] = {
    { "matmul", "1024x1024x1024", op_two, .two = tp_matmul,
      .mflop = 2e-6 * 1024.0 * 1024.0 * 1024.0,
      .in = { { { 2, { 1024, 1024 } }, 0 }, { { 2, { 1024, 1024 } }, 0 } } },
    { "copy", "y = 2x, 64 MB", op_copy, .mbyte = 8e-6 * 16777216.0,
      .in = { { { 1, { 16777216 } }, 0 } } },
    { 0 },
};

const op_case *const op_tables_cpu[] = {
    machine,
    op_cases_product,
    op_cases_norm,
    op_cases_loss,
    op_cases_attention,
    op_cases_image,
    op_cases_recurrent,
    op_cases_elementwise,
    op_cases_reduce,
    op_cases_shape,
    op_cases_create,
    op_cases_update,
    NULL,
};
