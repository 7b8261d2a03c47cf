/* test_cuda_attention.c - tp_attention and tp_rel_attention on the CUDA device against the CPU in
 * f64, on the kernels' paths: tails of tiles, several tiles, head sizes, the causal edge,
 * parameters as inputs. Results and gradients, f32 and bf16, several orders of threads. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "ops/ref_attention.h"
#include "support/device.h"
#include "support/values.h"
#include "tensor/bf16.h"

typedef ref_attention_case problem;

static const problem table[] = {
    { "one tile", SIZES(1, 16, 16, 2, 16) },
    { "blocks of 128 queries", SIZES(1, 140, 40, 1, 64) },
    { "several heads, causal", SIZES(2, 50, 70, 2, 16), .cfg = { .causal = true } },
    { "one row more", SIZES(1, 17, 65, 1, 16) },
    { "tiles less one", SIZES(1, 63, 127, 1, 16) },
    { "heads of 32, tails", SIZES(1, 40, 100, 2, 32) },
    { "heads of 64", SIZES(1, 35, 70, 1, 64) },
    { "heads of 128", SIZES(1, 33, 70, 1, 128) },
    { "heads of 48", SIZES(1, 20, 40, 1, 48) },
    { "heads of 80", SIZES(1, 20, 40, 1, 80) },
    { "heads of 96", SIZES(1, 20, 40, 1, 96) },
    { "heads of 100", SIZES(1, 20, 70, 1, 100) },
    { "heads of 20", SIZES(1, 20, 70, 1, 20) },
    { "causal, tiles", SIZES(1, 130, 130, 1, 8), .cfg = { .causal = true } },
    { "causal, more keys", SIZES(1, 40, 150, 1, 16), .cfg = { .causal = true } },
    { "causal, blind queries", SIZES(1, 150, 70, 1, 16), .cfg = { .causal = true } },
    { "mask, tails, a scale", SIZES(2, 30, 100, 1, 16), .mask = BLIND, .cfg = { .scale = 0.3 } },
    { "bias of all, dropout", SIZES(2, 40, 70, 2, 16), .bias = 3, .cfg = { .dropout = 0.3 } },
    { "bias of each, causal", SIZES(2, 70, 75, 1, 16), .bias = 4, .cfg = { .causal = true } },
    { "dropout, odd rows", SIZES(2, 35, 67, 1, 16), .cfg = { .dropout = 0.5 } },
    { "dropout, whole blocks, heads of 64", SIZES(2, 70, 136, 2, 64), .cfg = { .dropout = 0.3 } },
    { "dropout, heads of 128", SIZES(1, 37, 70, 1, 128), .cfg = { .dropout = 0.2 } },
    { "dropout, causal, blocks of 128", SIZES(1, 140, 141, 1, 32),
      .cfg = { .causal = true, .dropout = 0.1 } },
    { "all options", SIZES(2, 66, 67, 1, 16), .mask = THIRDS, .bias = 3,
      .cfg = { .causal = true, .dropout = 0.4 } },
    { "parameters", SIZES(1, 18, 20, 1, 16), .bias = 3, .params = true },
    { "large logits", SIZES(1, 20, 140, 1, 16), .shift = 5.0 },
    { "relative, tails", SIZES(2, 30, 75, 1, 16), .relative = true },
    { "relative, tiles", SIZES(1, 70, 130, 1, 32), .relative = true },
    { "relative, heads of 64", SIZES(1, 33, 64, 1, 64), .relative = true },
    { "relative, heads of 72", SIZES(1, 20, 33, 1, 72), .relative = true },
    { "relative, heads of 40, memory", SIZES(2, 36, 167, 2, 40), .relative = true },
    { "relative, heads of 128", SIZES(1, 70, 150, 1, 128), .relative = true },
    { "relative, blocks of 128", SIZES(1, 140, 233, 1, 64), .relative = true },
    { "relative, no memory", SIZES(2, 97, 97, 1, 32), .relative = true },
    { "relative, blocks of 128, span", SIZES(1, 150, 210, 1, 32), .relative = true,
      .cfg = { .max_span = 50 } },
    { "relative, rows of the batch together", SIZES(3, 2, 5, 256, 8), .relative = true },
    { "relative, span", SIZES(2, 70, 140, 1, 16), .relative = true, .cfg = { .max_span = 65 } },
    { "relative, short span", SIZES(1, 70, 140, 1, 16), .relative = true,
      .cfg = { .max_span = 3 } },
    { "relative, dropout", SIZES(2, 35, 66, 1, 16), .relative = true, .cfg = { .dropout = 0.3 } },
    { "relative, dropout, memory", SIZES(1, 70, 131, 2, 64), .relative = true,
      .cfg = { .dropout = 0.2 } },
    { "relative, dropout, span, heads of 128", SIZES(1, 72, 100, 1, 128), .relative = true,
      .cfg = { .max_span = 50, .dropout = 0.4 } },
    { "relative, parameters", SIZES(1, 18, 20, 1, 16), .relative = true, .params = true },
    { "an odd place", SIZES(1, 20, 40, 2, 32), .odd_place = true },
    { "relative, odd place", SIZES(1, 20, 40, 1, 32), .odd_place = true, .relative = true },
    { "relative, large logits", SIZES(1, 20, 140, 1, 16), .relative = true, .shift = 5.0 },
};
enum { PROBLEMS = sizeof table / sizeof *table, INPUTS = REF_ATTENTION_INPUTS };

/* The result, then the gradients of the inputs. */
typedef struct answer {
    int64_t n[1 + INPUTS];
    double *v[1 + INPUTS];
} answer;

static void drop(answer *a)
{
    for (int i = 0; i <= INPUTS; i++) free(a->v[i]);
}

static int64_t elements(tp_shape s)
{
    int64_t n = s.ndim > 0 ? 1 : 0;
    for (int a = 0; a < s.ndim; a++) n *= s.dim[a];
    return n;
}

/* Values of input i, exact in bf16 for equality on all devices. */
static double *values(const problem *p, int i)
{
    const int64_t n = elements(ref_attention_input(p, i));
    double *x = malloc((size_t)(n + 1) * sizeof *x);
    values_random(x, n, (uint64_t)i + 1);
    for (int64_t e = 0; e < n; e++) {
        if (i < 2 && e % p->D == 0) x[e] += p->shift;
        x[e] = (double)tp__from_bf16(tp__to_bf16((float)x[e]));
    }
    return x;
}

static tp_tensor mask(const problem *p, tp_tape *T)
{
    uint8_t *m = ref_attention_mask(p);
    const tp_tensor t = m ? tp_from(T, TP_U8, TP_SHAPE(p->B, p->S), m) : TP_NONE;
    free(m);
    return t;
}

/* An input; at an odd place it is a view of a longer tensor that begins with a NaN. */
static tp_tensor input(const problem *p, tp_tape *T, tp_dtype dt, tp_shape s, const double *v)
{
    const int64_t n = elements(s);
    if (!p->odd_place) return values_input(T, dt, s, v);
    double *longer = malloc((size_t)(n + 1) * sizeof *longer);
    longer[0] = NAN;
    memcpy(longer + 1, v, (size_t)n * sizeof *v);
    const tp_tensor all = values_input(T, dt, TP_SHAPE(n + 1), longer);
    free(longer);
    return tp_keep(T, tp_reshape(T, tp_slice(T, all, 0, 1, n), s));
}

/* The op's inputs in dt, or as parameters of P. */
static void inputs(const problem *p, tp_tape *T, tp_params *P, tp_dtype dt, tp_tensor x[INPUTS])
{
    static const char *const names[] = { "q", "k", "v", "pos", "r_w", "r_r" };
    const tp_init zero = { TP_INIT_ZERO, 0.0, 0.0 };
    for (int i = 0; i < INPUTS; i++) { /* declares all before the first use */
        const tp_shape s = ref_attention_input(p, i);
        x[i] = p->params && s.ndim > 0 ? tp_param(P, names[i], s, zero, 0) : TP_NONE;
    }
    for (int i = 0; i < INPUTS; i++) {
        const tp_shape s = ref_attention_input(p, i);
        double *v = values(p, i);
        if (tp_given(x[i]))
            cr_expect(tp_param_set(P, x[i], TP_F64, v, (size_t)elements(s) * sizeof *v));
        else if (s.ndim > 0)
            x[i] = input(p, T, dt, s, v);
        free(v);
    }
}

static answer run(tp_device *D, const problem *p, tp_dtype dt)
{
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .dtype = dt == TP_F64 ? TP_F64 : TP_F32 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = dt, .train = true, .seed = 7 });
    tp_attn_cfg cfg = p->cfg;
    tp_tensor x[INPUTS], y;
    answer a = { 0 };
    cfg.heads = (int)p->H;
    inputs(p, T, P, dt, x);
    y = p->relative ? tp_rel_attention(T, x[0], x[1], x[2], x[3], x[4], x[5], cfg)
                    : tp_attention(T, x[0], x[1], x[2], mask(p, T), x[3], cfg);
    a.n[0] = elements(ref_attention_input(p, 0));
    a.v[0] = malloc((size_t)a.n[0] * sizeof(double));
    values_read(T, y, a.v[0]);
    double *w = malloc((size_t)a.n[0] * sizeof(double));
    values_random(w, a.n[0], 99);
    for (int64_t e = 0; e < a.n[0]; e++) w[e] = (double)tp__from_bf16(tp__to_bf16((float)w[e]));
    tp_backward(
        T, tp_sum(T, tp_mul(T, y, values_constant(T, dt, ref_attention_input(p, 0), w)), TP_ALL));
    free(w);
    for (int i = 0; i < INPUTS; i++) {
        if (!tp_given(x[i])) continue;
        a.n[1 + i] = elements(ref_attention_input(p, i));
        a.v[1 + i] = malloc((size_t)a.n[1 + i] * sizeof(double));
        if (p->params)
            cr_expect(tp_param_get_grad(P, x[i], TP_F64, a.v[1 + i],
                                        (size_t)a.n[1 + i] * sizeof(double)));
        else
            values_read(T, tp_grad(T, x[i]), a.v[1 + i]);
    }
    cr_expect(tp_ok(T), "%s, %s: %s", p->name, tp_dtype_name(dt), tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    return a;
}

static void compare(const problem *p, tp_dtype dt, const answer *got, const answer *exact)
{
    static const char *const parts[] = { "y", "dq", "dk", "dv", "dpos or dbias", "dr_w", "dr_r" };
    for (int i = 0; i <= INPUTS; i++) {
        if (got->n[i] == 0) continue;
        const double error = values_error(got->v[i], exact->v[i], got->n[i], 1e-3);
        cr_expect(error <= (dt == TP_BF16 ? 2e-2 : 1e-5), "%s, %s, %s: error %.3g", p->name,
                  tp_dtype_name(dt), parts[i], error);
    }
}

static void check(tp_device *cpu, tp_device *gpu, const problem *p, tp_dtype dt)
{
    answer exact = run(cpu, p, TP_F64), got = run(gpu, p, dt);
    compare(p, dt, &got, &exact);
    for (int order = device_other_order(); dt == TP_BF16 && device_set_order(order); order++) {
        answer again = run(gpu, p, dt);
        for (int i = 0; i <= INPUTS; i++)
            cr_expect(got.n[i] == 0 ||
                          memcmp(again.v[i], got.v[i], (size_t)got.n[i] * sizeof(double)) == 0,
                      "%s, %s, part %d: order %d of threads gives other bits", p->name,
                      tp_dtype_name(dt), i, order);
        drop(&again);
    }
    device_set_order(0);
    drop(&exact);
    drop(&got);
}

static void check_all(tp_dtype dt)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_device *gpu = device_cuda();
    for (int k = 0; k < PROBLEMS; k++) check(cpu, gpu, &table[k], dt);
    cr_expect_eq(tp_device_stats(gpu).live_bytes, 0, "memory is returned");
    tp_device_close(gpu);
    tp_device_close(cpu);
}

Test(cuda_attention, f32, .timeout = 600)
{
    check_all(TP_F32);
}

Test(cuda_attention, bf16, .timeout = 600)
{
    check_all(TP_BF16);
}
