/* bf16.c - widens bf16 arrays to f32 and rounds f32 arrays to bf16: around the kernels of bf16
 * tensors (autograd/run_kernel.c), in one pass over each array of a call, and row by row for
 * kernels that accept bf16. */
#include "tensor/bf16.h"

#include "tensor/kernel.h"

#define GRAIN (1 << 16)

static void widen(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = tp__from_bf16(x[i]);
}

static void round_to(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = tp__to_bf16(x[i]);
}

/* ---- arrays ---- */

static void widen_range(const tp_call *c, int64_t begin, int64_t end)
{
    widen((const uint16_t *)c->x[0].data + begin, (float *)c->y[0].data + begin, end - begin);
}

/* f32 y = bf16 x */
static tp_code bf16_widen(const tp_call *c)
{
    tp__for(c, c->x[0].numel, GRAIN, widen_range);
    return TP_OK;
}

static void round_range(const tp_call *c, int64_t begin, int64_t end)
{
    round_to((const float *)c->x[0].data + begin, (uint16_t *)c->y[0].data + begin, end - begin);
}

/* bf16 y = f32 x, rounded to nearest even */
static tp_code bf16_round(const tp_call *c)
{
    tp__for(c, c->x[0].numel, GRAIN, round_range);
    return TP_OK;
}

TP_CPU_KERNEL_UNTYPED(bf16_widen)
TP_CPU_KERNEL_UNTYPED(bf16_round)

/* ---- rows ---- */

typedef struct rows {
    const void *from;
    void *to;
    int64_t ld, ldt, m, n;
} rows;

void TP_KERNEL_FN(widen_rows)(const rows *r);
void TP_KERNEL_FN(widen_rows)(const rows *r)
{
    for (int64_t i = 0; i < r->m; i++)
        widen((const uint16_t *)r->from + i * r->ld, (float *)r->to + i * r->ldt, r->n);
}

void TP_KERNEL_FN(round_rows)(const rows *r);
void TP_KERNEL_FN(round_rows)(const rows *r)
{
    for (int64_t i = 0; i < r->m; i++)
        round_to((const float *)r->from + i * r->ld, (uint16_t *)r->to + i * r->ldt, r->n);
}

#ifdef TP_ISA_DISPATCH
#if defined(__x86_64__)
void tp_cpu_widen_rows_base_f32(const rows *r);
void tp_cpu_widen_rows_avx2_f32(const rows *r);
void tp_cpu_widen_rows_avx512_f32(const rows *r);
void tp_cpu_round_rows_base_f32(const rows *r);
void tp_cpu_round_rows_avx2_f32(const rows *r);
void tp_cpu_round_rows_avx512_f32(const rows *r);
#define ROWS_OF(D, name, r)                                                                        \
    (TP_HAS_ISA(TP_ISA_AVX512) && (D)->isa == TP_ISA_AVX512 ? tp_cpu_##name##_avx512_f32(r)        \
     : TP_HAS_ISA(TP_ISA_AVX2) && (D)->isa == TP_ISA_AVX2   ? tp_cpu_##name##_avx2_f32(r)          \
     : TP_HAS_ISA(TP_ISA_BASE)                              ? tp_cpu_##name##_base_f32(r)          \
                                                            : (void)(r))
#else
#define ROWS_OF(D, name, r) ((void)(D), tp_cpu_##name##_base_f32(r))
#endif

void tp__widen_rows(const tp_device *D, const uint16_t *from, int64_t ld, float *to, int64_t ldt,
                    int64_t m, int64_t n)
{
    ROWS_OF(D, widen_rows, (&(rows){ from, to, ld, ldt, m, n }));
}

void tp__round_rows(const tp_device *D, const float *from, int64_t ld, uint16_t *to, int64_t ldt,
                    int64_t m, int64_t n)
{
    ROWS_OF(D, round_rows, (&(rows){ from, to, ld, ldt, m, n }));
}
#endif
