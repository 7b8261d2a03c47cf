/* test_ls_attention.c - long-short attention and the dynamic projection against plain ops
 * (ref_ls.c): values and all gradients, on every instruction set, in f32 and f64; equal bits on any
 * number of threads and in recorded steps; memory linear in the tokens; messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#ifdef TP_EMULATION
#include "cuda_emulation/ls_wide.h"
#endif
#include "ops/ref_ls.h"
#include "support/device.h"
#include "support/values.h"
#include "tensor/bf16.h"
#include "tensor/geometry/ls_attention.h"

static const tp_isa isas[] = { TP_ISA_BASE, TP_ISA_AVX2, TP_ISA_AVX512 };

typedef struct world {
    tp_device *D;
    tp_tape *T;
} world;

static world begin_on(tp_device *D, tp_dtype compute)
{
    return (world){ D, tp_tape_new(D, &(tp_tape_opts){ .compute = compute, .train = true }) };
}

static world begin(tp_isa isa, int threads, tp_dtype compute)
{
    return begin_on(tp_device_open("cpu", &(tp_device_opts){ .threads = threads, .isa = isa }),
                    compute);
}

static void end(world *s)
{
    tp_tape_free(s->T);
    tp_device_close(s->D);
}

/* ---- cases ---- */

/* N queries, Wc window rows and Cc chunks before them, heads of size D. */
typedef struct ls_case {
    const char *name;
    int64_t B, N, Wc, Cc, D;
    tp_ls_attn_cfg cfg;
    int64_t cache, valid;
} ls_case;

#define CFG(H, l, r, w) .cfg.heads = H, .cfg.chunk = l, .cfg.rank = r, .cfg.window = w

/* clang-format off */
static const ls_case cases[] = {
    { "as the official model", 1, 128, 32, 8, 16, CFG(2, 16, 1, 32) },
    { "head 64, three tiles", 1, 150, 40, 5, 64, CFG(1, 16, 1, 40) },
    { "head 64, rank 3, chunks of 48", 2, 77, 21, 2, 64, CFG(1, 48, 3, 22) },
    { "head 64, segment, clamped", 1, 70, 30, 6, 64, CFG(1, 16, 1, 30), .cfg.segment = true,
      .cfg.clamp = 33, .cfg.chunk_clamp = 3 },
    { "head 64, no vectors, window of 64", 1, 66, 63, 0, 64, CFG(1, 5, 0, 64) },
    { "head 32, rank 4, no cache", 1, 150, 0, 0, 32, CFG(2, 16, 4, 70), .cfg.masked = true },
    { "head 32, part of a cache", 1, 135, 96, 8, 32, CFG(1, 16, 1, 97), .cfg.masked = true,
      .cache = 128, .valid = 50 },
    { "head 32, no window", 1, 140, 0, 3, 32, CFG(1, 32, 2, 0), .cfg.masked = true, .cache = 96,
      .valid = 0 },
    { "head 32, long chunks", 1, 130, 40, 1, 32, CFG(1, 112, 3, 40) },
    { "head 128", 1, 40, 20, 4, 128, CFG(1, 8, 1, 20) },
    { "head 80, in two column blocks", 1, 40, 20, 4, 80, CFG(2, 8, 1, 20) },
    { "head 4, batch 2, rank 3", 2, 70, 17, 6, 4, CFG(3, 5, 3, 17) },
    { "head 33, odd window and chunk", 1, 83, 21, 11, 33, CFG(3, 7, 2, 21) },
    { "head 1", 1, 20, 4, 2, 1, CFG(2, 4, 1, 4) },
    { "batch 9: no stripes", 9, 70, 9, 3, 8, CFG(1, 8, 1, 9) },
    { "stripes", 1, 400, 24, 10, 8, CFG(1, 16, 1, 24) },
    { "stripes, segment", 2, 300, 24, 10, 8, CFG(1, 16, 1, 24), .cfg.segment = true },
    { "stripes, masked", 1, 290, 24, 3, 8, CFG(1, 16, 2, 24), .cfg.masked = true, .cache = 50,
      .valid = 30 },
    { "fewer queries than the window", 2, 12, 30, 10, 16, CFG(2, 4, 1, 30) },
    { "window of one", 1, 70, 0, 2, 8, CFG(2, 4, 1, 1) },
    { "window of one chunk", 1, 64, 16, 4, 16, CFG(2, 16, 1, 16) },
    { "one row less than the window", 1, 37, 18, 3, 16, CFG(2, 4, 1, 19) },
    { "window shorter than a chunk", 1, 48, 5, 2, 8, CFG(2, 16, 2, 5) },
    { "chunks of one token", 1, 66, 7, 5, 8, CFG(2, 1, 1, 7) },
    { "part of a chunk at the end", 2, 75, 20, 3, 8, CFG(2, 16, 3, 20) },
    { "no vectors", 1, 15, 20, 0, 8, CFG(2, 16, 1, 20) },
    { "clamped", 1, 90, 30, 7, 8, CFG(2, 8, 2, 30), .cfg.clamp = 11, .cfg.chunk_clamp = 9 },
    { "clamped beyond the end", 1, 40, 30, 7, 8, CFG(2, 8, 2, 30), .cfg.clamp = 99,
      .cfg.chunk_clamp = 99 },
    { "clamped to one row", 1, 40, 30, 7, 8, CFG(2, 8, 2, 30), .cfg.clamp = 1,
      .cfg.chunk_clamp = 1 },
    { "no cache", 1, 96, 0, 0, 16, CFG(2, 8, 1, 40), .cfg.masked = true, .cache = 0, .valid = 0 },
    { "no cache, window longer than all", 1, 50, 0, 0, 16, CFG(2, 8, 1, 500), .cfg.masked = true,
      .cache = 0, .valid = 0 },
    { "short cache, all of it real", 1, 96, 16, 2, 16, CFG(2, 8, 2, 40), .cfg.masked = true,
      .cache = 16, .valid = 16 },
    { "part of a cache", 2, 70, 40, 8, 8, CFG(2, 8, 2, 40), .cfg.masked = true, .cache = 64,
      .valid = 21 },
    { "a cache with nothing real", 1, 70, 40, 8, 8, CFG(2, 8, 1, 40), .cfg.masked = true,
      .cache = 64, .valid = 0 },
    { "long cache, all of it real", 1, 30, 10, 20, 8, CFG(2, 4, 1, 10), .cfg.masked = true,
      .cache = 80, .valid = 80 },
    { "segment", 1, 130, 30, 9, 16, CFG(2, 10, 1, 30), .cfg.segment = true },
    { "segment, tiles across segments", 1, 150, 50, 2, 8, CFG(1, 50, 2, 50), .cfg.segment = true,
      .cfg.clamp = 60 },
    { "segment, masked", 2, 75, 20, 5, 8, CFG(2, 5, 1, 20), .cfg.segment = true, .cfg.masked = true,
      .cache = 25, .valid = 12 },
    { "rank 0", 2, 83, 21, 0, 33, CFG(3, 7, 0, 21) },
    { "rank 0, stripes", 1, 400, 24, 0, 8, CFG(1, 16, 0, 24) },
    { "rank 0, no cache, segment", 1, 70, 0, 0, 8, CFG(2, 8, 0, 20), .cfg.segment = true,
      .cfg.masked = true },
    { "no window", 2, 150, 0, 5, 16, CFG(2, 16, 1, 0) },
    { "no window, stripes", 1, 400, 0, 3, 8, CFG(1, 16, 2, 0), .cfg.chunk_clamp = 9 },
    { "no window, no cache: a chunk sees nothing", 2, 75, 0, 0, 33, CFG(2, 16, 3, 0),
      .cfg.masked = true },
    { "no window, part of a cache", 1, 40, 0, 8, 8, CFG(2, 8, 2, 0), .cfg.masked = true,
      .cache = 64, .valid = 21 },
    { "no window, nothing at all", 1, 7, 0, 0, 8, CFG(2, 8, 1, 0), .cfg.masked = true },
    { "no window, one query", 2, 1, 0, 9, 32, CFG(2, 16, 1, 0) },
    { "one query", 2, 1, 50, 9, 32, CFG(2, 16, 1, 50) },
    { "dropout", 2, 83, 21, 3, 16, CFG(2, 8, 2, 21), .cfg.dropout = 0.3 },
    { "dropout, head 64", 1, 150, 40, 5, 64, CFG(1, 16, 1, 40), .cfg.dropout = 0.1 },
    { "dropout, segment, part of a cache, head 32", 1, 135, 96, 8, 32, CFG(1, 16, 3, 97),
      .cfg.segment = true, .cfg.masked = true, .cfg.clamp = 40, .cache = 128, .valid = 50,
      .cfg.dropout = 0.4 },
    { "dropout, head 64, no vectors, odd rows", 2, 71, 10, 0, 64, CFG(2, 5, 0, 37),
      .cfg.masked = true, .cfg.clamp = 20, .cache = 10, .valid = 10, .cfg.dropout = 0.5 },
    { "dropout, head 64, rank 3, chunks of 48", 2, 77, 21, 2, 64, CFG(1, 48, 3, 22),
      .cfg.dropout = 0.3 },
    { "dropout, head 64, no window", 1, 131, 0, 3, 64, CFG(1, 32, 3, 0), .cfg.chunk_clamp = 11,
      .cfg.dropout = 0.2 },
    { "dropout, head 32, rank 5, odd window", 2, 141, 32, 4, 32, CFG(2, 32, 5, 33),
      .cfg.dropout = 0.6 },
    { "dropout, stripes", 1, 400, 24, 10, 33, CFG(1, 7, 1, 24), .cfg.dropout = 0.2 },
    { "dropout, no window", 2, 150, 0, 5, 16, CFG(2, 16, 1, 0), .cfg.dropout = 0.2 },
    { "dropout, rank 0", 2, 83, 21, 0, 33, CFG(3, 7, 0, 21), .cfg.dropout = 0.25 },
    { "one query, growing window", 1, 1, 13, 3, 64, CFG(2, 16, 2, 50), .cfg.masked = true,
      .cache = 13, .valid = 13 },
};
/* clang-format on */

enum { CASES = sizeof cases / sizeof *cases, INPUTS = 9 };

static void shapes(const ls_case *k, tp_shape *s)
{
    const int64_t C = k->cfg.heads * k->D, S = k->cfg.window ? k->Wc + k->N : 0;
    const int64_t nc = (k->Cc + k->N / k->cfg.chunk) * k->cfg.rank;
    const int64_t span = k->cfg.segment ? 2 * k->cfg.window : k->cfg.window;
    const tp_shape all[INPUTS] = {
        TP_SHAPE(k->B, k->N, C),
        TP_SHAPE(k->B, S, C),
        TP_SHAPE(k->B, S, C),
        TP_SHAPE(k->B, nc, C),
        TP_SHAPE(k->B, nc, C),
        TP_SHAPE(span, C),
        TP_SHAPE(nc + k->N % 3, C),
        TP_SHAPE(k->cfg.window ? k->cfg.heads : 0, k->D),
        TP_SHAPE(1, k->cfg.window ? k->cfg.heads : 0, 1, k->D),
    };
    memcpy(s, all, sizeof all);
}

static int64_t count(tp_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    return n;
}

/* True if input i is present. 3, 4 and 6 belong to the chunk vectors, 0 is q, the rest to the
 * window. */
static bool given(const ls_case *k, int i)
{
    const bool vectors = i == 3 || i == 4 || i == 6;
    if (vectors) return (k->Cc + k->N / k->cfg.chunk) * k->cfg.rank > 0;
    return i == 0 || k->cfg.window > 0;
}

typedef tp_tensor (*attention)(tp_tape *T, tp_ls_in in, tp_ls_attn_cfg cfg);

static tp_tensor fused(tp_tape *T, tp_ls_in in, tp_ls_attn_cfg cfg)
{
    return tp_ls_attention(T, in, cfg);
}

/* Computes the result (out[INPUTS]) and each input's gradient of sum(result * probe). */
static bool run(world *s, attention f, const ls_case *k, tp_dtype dt, double *const *x,
                const double *probe, double *const *out)
{
    tp_shape shape[INPUTS];
    tp_tensor in[INPUTS];
    shapes(k, shape);
    tp_reset(s->T);
    tp_set_random_state(s->T, 7, 5);
    for (int i = 0; i < INPUTS; i++) in[i] = values_input(s->T, dt, shape[i], x[i]);
    for (int i = 0; i < INPUTS; i++)
        if (!given(k, i)) in[i] = TP_NONE;
    const tp_tensor y = f(s->T,
                          (tp_ls_in){ in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8],
                                      k->cache, k->valid },
                          k->cfg);
    values_read(s->T, y, out[INPUTS]);
    tp_backward(s->T,
                tp_sum(s->T, tp_mul(s->T, y, values_constant(s->T, dt, shape[0], probe)), TP_ALL));
    for (int i = 0; i < INPUTS; i++)
        if (given(k, i)) values_read(s->T, tp_grad(s->T, in[i]), out[i]);
    cr_expect(tp_ok(s->T), "%s: %s", k->name, tp_why(s->T));
    return tp_ok(s->T);
}

/* Room for inputs, probe and two runs' results. Inputs are exact in bf16. */
typedef struct store {
    double *x[INPUTS], *probe, *a[INPUTS + 1], *b[INPUTS + 1];
    int64_t n[INPUTS + 1];
} store;

static store fill(const ls_case *k)
{
    tp_shape s[INPUTS];
    store d;
    shapes(k, s);
    for (int i = 0; i <= INPUTS; i++) {
        const int64_t n = d.n[i] = count(s[i < INPUTS ? i : 0]);
        d.a[i] = calloc((size_t)n + 1, sizeof(double));
        d.b[i] = calloc((size_t)n + 1, sizeof(double));
        double *x = calloc((size_t)n + 1, sizeof(double));
        values_random(x, n, 7u + (uint64_t)i);
        for (int64_t j = 0; j < n; j++) x[j] = (double)tp__from_bf16(tp__to_bf16((float)x[j]));
        if (i < INPUTS)
            d.x[i] = x;
        else
            d.probe = x;
    }
    return d;
}

static void empty(store *d)
{
    for (int i = 0; i <= INPUTS; i++) {
        free(d->a[i]);
        free(d->b[i]);
        if (i < INPUTS) free(d->x[i]);
    }
    free(d->probe);
}

static const char *const names[INPUTS + 1] = { "dq",       "dk_win",   "dv_win", "dk_cmp", "dv_cmp",
                                               "dpos_win", "dpos_cmp", "dr_w",   "dr_r",   "y" };

/* Compares with ref_ls; limits are relative to the largest value. D = 0: all cases; otherwise those
 * of that D. */
static void compare(world s, attention f, int64_t D, tp_dtype dt, double limit, double grad_limit)
{
    world ref = begin(TP_ISA_AUTO, 2, TP_F64);
    for (int c = 0; c < CASES; c++) {
        const ls_case *k = &cases[c];
        if (D != 0 && k->D != D) continue;
        store d = fill(k);
        if (run(&s, f, k, dt, d.x, d.probe, d.a) &&
            run(&ref, ref_ls_attention, k, TP_F64, d.x, d.probe, d.b))
            for (int i = 0; i <= INPUTS; i++) {
                const double e = values_error(d.a[i], d.b[i], d.n[i], 0.1);
                cr_expect(e < (i == INPUTS ? limit : grad_limit), "%s, %s, %s: %s is off by %.2g",
                          k->name, tp_device_stats(s.D).isa, tp_dtype_name(dt), names[i], e);
            }
        empty(&d);
    }
    end(&ref);
    end(&s);
}

static void compare_all(world s, tp_dtype dt, double limit, double grad_limit)
{
    compare(s, fused, 0, dt, limit, grad_limit);
}

Test(ls_attention, f64_equals_plain_ops)
{
    device_cpu_only();
    for (int i = 0; i < 3; i++)
        if (tp_isa_runs(isas[i])) compare_all(begin(isas[i], 2, TP_F64), TP_F64, 1e-12, 1e-12);
}

Test(ls_attention, f32_equals_plain_ops)
{
    device_cpu_only();
    for (int i = 0; i < 3; i++)
        if (tp_isa_runs(isas[i])) compare_all(begin(isas[i], 2, TP_F32), TP_F32, 5e-6, 5e-6);
}

Test(ls_attention, bf16_is_close_to_plain_ops)
{
    device_cpu_only();
    compare_all(begin(TP_ISA_AUTO, 2, TP_BF16), TP_BF16, 5e-3, 2e-2);
}

Test(ls_attention, cuda_f32_equals_plain_ops, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    compare_all(begin_on(device_cuda(), TP_F32), TP_F32, 5e-6, 5e-6);
}

Test(ls_attention, cuda_bf16_is_close_to_plain_ops, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    compare_all(begin_on(device_cuda(), TP_BF16), TP_BF16, 5e-3, 2e-2);
}

#ifdef TP_EMULATION
extern const tp_op tp_op_ls_attention;

static tp_tensor fused_with(tp_tape *T, tp_ls_in in, tp_ls_attn_cfg cfg, tp_kernel forward,
                            tp_kernel backward)
{
    static tp_op op;
    const tp__ls_attr attr = tp__ls_attr_of(in, cfg);
    op = tp_op_ls_attention;
    op.forward[TP_CUDA] = forward;
    op.backward[TP_CUDA] = backward;
    return tp_apply(T, &op, &attr, in.q, in.k_win, in.v_win, in.k_cmp, in.v_cmp, in.pos_win,
                    in.pos_cmp, in.r_w, in.r_r);
}

/* Uses the kernel for many queries. */
static tp_tensor fused_wide(tp_tape *T, tp_ls_in in, tp_ls_attn_cfg cfg)
{
    return fused_with(T, in, cfg, ls_wide_forward, tp_op_ls_attention.backward[TP_CUDA]);
}

/* Fails unless both directions run on tensor cores. */
static tp_tensor fused_mma(tp_tape *T, tp_ls_in in, tp_ls_attn_cfg cfg)
{
    return fused_with(T, in, cfg, ls_mma_only_forward, ls_mma_only_backward);
}

Test(ls_attention, cuda_bf16_runs_on_tensor_cores, .timeout = 600)
{
    compare(begin_on(device_cuda(), TP_BF16), fused_mma, 64, TP_BF16, 5e-3, 2e-2);
    compare(begin_on(device_cuda(), TP_BF16), fused_mma, 32, TP_BF16, 5e-3, 2e-2);
}

Test(ls_attention, cuda_blocks_of_128_queries, .timeout = 600)
{
    for (int order = 0; device_set_order(order); order++)
        compare(begin_on(device_cuda(), TP_BF16), fused_wide, 64, TP_BF16, 5e-3, 2e-2);
    device_set_order(0);
}
#endif

Test(ls_attention, bits_do_not_depend_on_threads)
{
    device_cpu_only();
    for (int c = 0; c < CASES; c++) {
        store d = fill(&cases[c]);
        world one = begin(TP_ISA_AUTO, 1, TP_F32), many = begin(TP_ISA_AUTO, 5, TP_F32);
        if (run(&one, fused, &cases[c], TP_F32, d.x, d.probe, d.a) &&
            run(&many, fused, &cases[c], TP_F32, d.x, d.probe, d.b))
            for (int i = 0; i <= INPUTS; i++)
                cr_expect(memcmp(d.a[i], d.b[i], (size_t)d.n[i] * sizeof(double)) == 0,
                          "%s: %s differs between 1 and 5 threads", cases[c].name, names[i]);
        end(&many);
        end(&one);
        empty(&d);
    }
}

/* The tensor core kernels. */
Test(ls_attention, cuda_bits_do_not_depend_on_the_order_of_threads, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    for (int c = 0; c < CASES; c++) {
        if (cases[c].D != 32 && cases[c].D != 64) continue;
        store d = fill(&cases[c]);
        world s = begin_on(device_cuda(), TP_BF16);
        bool ok = run(&s, fused, &cases[c], TP_BF16, d.x, d.probe, d.a);
        for (int order = device_other_order(); ok && device_set_order(order); order++) {
            ok = run(&s, fused, &cases[c], TP_BF16, d.x, d.probe, d.b);
            for (int i = 0; i <= INPUTS; i++)
                cr_expect(memcmp(d.a[i], d.b[i], (size_t)d.n[i] * sizeof(double)) == 0,
                          "%s: %s differs in order %d", cases[c].name, names[i], order);
        }
        device_set_order(0);
        end(&s);
        empty(&d);
    }
}

/* The softmax subtracts the largest logit of window and vectors together. */
Test(ls_attention, large_logits)
{
    device_cpu_only();
    const ls_case *k = &cases[0];
    world s = begin(TP_ISA_AUTO, 2, TP_F32), ref = begin(TP_ISA_AUTO, 2, TP_F64);
    store d = fill(k);
    for (int64_t j = 0; j < d.n[0]; j++) d.x[0][j] *= 1024.0;
    if (run(&s, fused, k, TP_F32, d.x, d.probe, d.a) &&
        run(&ref, ref_ls_attention, k, TP_F64, d.x, d.probe, d.b)) {
        const double e = values_error(d.a[INPUTS], d.b[INPUTS], d.n[INPUTS], 0.0);
        cr_expect(e < 1e-3, "y is off by %.2g", e);
    }
    empty(&d);
    end(&ref);
    end(&s);
}

/* ---- recorded steps ---- */

enum { ROWS = 70, WIDTH = 64, STEPS = 6 };

/* Trains one head for some steps, with dropout, by which each step differs. */
static void train(bool record, double loss[STEPS], float grown[ROWS * WIDTH])
{
    world s = begin_on(device_cuda(), TP_BF16);
    tp_params *P = tp_params_new(s.D, &(tp_params_opts){ .seed = 3 });
    const tp_init draw = { TP_INIT_NORMAL, 0.5, 0.0 };
    const tp_tensor x = tp_param(P, "x", TP_SHAPE(1, ROWS, WIDTH), draw, 0);
    const tp_tensor table = tp_param(P, "table", TP_SHAPE(33, WIDTH), draw, 0);
    const tp_tensor bias = tp_param(P, "bias", TP_SHAPE(1, WIDTH), draw, 0);
    tp_optim *O = tp_adamw_new(P, NULL);
    tp_capture *C = record ? tp_capture_new(s.T) : NULL;
    const tp_ls_in in = {
        .q = x, .k_win = x, .v_win = x, .pos_win = table, .r_w = bias, .r_r = bias
    };
    const tp_ls_attn_cfg cfg = {
        .heads = 1, .chunk = 16, .window = 33, .masked = true, .dropout = 0.3
    };
    tp_tensor sum = TP_NONE;
    for (int i = 0; i < STEPS; i++) {
        if (!C) tp_reset(s.T);
        if (!C || tp_capture_begin(C)) {
            const tp_tensor y = tp_ls_attention(s.T, in, cfg);
            sum = tp_mean(s.T, tp_square(s.T, y), TP_ALL);
            tp_backward(s.T, sum);
            if (C) tp_capture_end(C);
        }
        loss[i] = tp_item(s.T, sum);
        tp_step(O, 0.05);
    }
    cr_expect(tp_ok(s.T) && tp_optim_ok(O), "%s%s", tp_why(s.T), tp_optim_why(O));
    cr_expect(!C || tp_capture_launches(C) > 0, "steps are recorded");
    cr_expect(tp_param_get(P, x, TP_F32, grown, sizeof(float) * ROWS * WIDTH));
    tp_capture_free(C);
    tp_optim_free(O);
    tp_tape_free(s.T);
    tp_params_free(P);
    tp_device_close(s.D);
}

/* A recording draws other words in each step. */
Test(ls_attention, cuda_dropout_in_recorded_steps, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    double a[STEPS], b[STEPS];
    static float x[2][ROWS * WIDTH];
    train(false, a, x[0]);
    train(true, b, x[1]);
    for (int i = 0; i < STEPS; i++)
        cr_expect(a[i] == b[i], "step %d: %.9g, recorded %.9g", i, a[i], b[i]);
    cr_expect(memcmp(x[0], x[1], sizeof x[0]) == 0, "other bits");
}

/* ---- memory ---- */

/* Peak bytes per token of forward and backward. */
static double bytes_per_token(int64_t N)
{
    const ls_case k = { "memory", 1, N, 32, N / 16, 8, CFG(2, 16, 1, 32) };
    world s = begin(TP_ISA_AUTO, 2, TP_F32);
    store d = fill(&k);
    run(&s, fused, &k, TP_F32, d.x, d.probe, d.a);
    const double bytes = (double)tp_device_stats(s.D).peak_bytes;
    empty(&d);
    end(&s);
    return bytes / (double)N;
}

/* A queries x keys matrix would take 8 KB and 64 KB per token. The allocator rounds large blocks
 * up, so the figures differ slightly. */
Test(ls_attention, memory_is_linear)
{
    device_cpu_only();
    const double few = bytes_per_token(1024), many = bytes_per_token(8192);
    cr_expect(many < 1.25 * few, "%.0f bytes a token at 1024 tokens, %.0f at 8192", few, many);
}

/* ---- dynamic projection ---- */

typedef struct chunk_case {
    int64_t B, N, D;
    int heads, chunk, rank;
} chunk_case;

static const chunk_case chunk_cases[] = {
    { 1, 64, 16, 2, 16, 1 }, { 2, 35, 5, 3, 7, 3 },    { 3, 12, 1, 4, 1, 2 },
    { 1, 40, 64, 1, 40, 4 }, { 2, 18, 33, 3, 9, 1 },   { 2, 0, 4, 2, 4, 1 },
    { 2, 98, 9, 3, 98, 5 },  { 1, 64, 16, 2, 32, 70 },
};

typedef tp_tensor (*projection)(tp_tape *T, tp_tensor x, tp_tensor z, int heads, int chunk,
                                int rank);

static tp_tensor fused_project(tp_tape *T, tp_tensor x, tp_tensor z, int heads, int chunk, int rank)
{
    return tp_chunk_project(T, x, z, TP_NONE, heads, chunk, rank);
}

/* Writes y, dx and dz of sum(y * y) in order. */
static void run_chunk(world *s, projection f, const chunk_case *k, tp_dtype dt, double *out)
{
    const tp_shape sx = TP_SHAPE(k->B, k->N, k->heads * k->D);
    const tp_shape sz = TP_SHAPE(k->B, k->N, (int64_t)k->heads * k->rank);
    double *x = calloc((size_t)count(sx) + 1, sizeof *x),
           *z = calloc((size_t)count(sz) + 1, sizeof *z);
    values_random(x, count(sx), 1);
    values_random(z, count(sz), 2);
    for (int64_t i = 0; i < count(sz); i++) z[i] *= 4.0;
    tp_reset(s->T);
    const tp_tensor tx = values_input(s->T, dt, sx, x), tz = values_input(s->T, dt, sz, z);
    const tp_tensor y = f(s->T, tx, tz, k->heads, k->chunk, k->rank);
    values_read(s->T, y, out);
    tp_backward(s->T, tp_sum(s->T, tp_square(s->T, y), TP_ALL));
    values_read(s->T, tp_grad(s->T, tx), out + tp_numel(y));
    values_read(s->T, tp_grad(s->T, tz), out + tp_numel(y) + count(sx));
    cr_expect(tp_ok(s->T), "%s", tp_why(s->T));
    free(x);
    free(z);
}

Test(chunk_project, equals_plain_ops)
{
    device_cpu_only();
    for (int c = 0; c < (int)(sizeof chunk_cases / sizeof *chunk_cases); c++)
        for (int i = 0; i < 6; i++) {
            const chunk_case *k = &chunk_cases[c];
            const tp_dtype dt = i < 3 ? TP_F64 : TP_F32;
            if (!tp_isa_runs(isas[i % 3])) continue;
            const int64_t C = k->heads * k->D, rows = k->N / k->chunk * k->rank;
            const int64_t n = k->B * (rows * C + k->N * (C + k->heads * k->rank));
            double *a = calloc((size_t)n + 1, sizeof *a), *b = calloc((size_t)n + 1, sizeof *b);
            world s = begin(isas[i % 3], 2, dt), ref = begin(isas[i % 3], 2, TP_F64);
            run_chunk(&s, fused_project, k, dt, a);
            run_chunk(&ref, ref_chunk_project, k, TP_F64, b);
            const double e = values_error(a, b, n, 0.1);
            cr_expect(e < (dt == TP_F64 ? 1e-13 : 2e-6), "case %d, %s, %s: off by %.2g", c,
                      tp_device_stats(s.D).isa, tp_dtype_name(dt), e);
            end(&ref);
            end(&s);
            free(a);
            free(b);
        }
}

/* ---- messages ---- */

/* A case with one wrong size, and its message. */
typedef struct mistake {
    int input, axis; /* -1: none */
    int64_t size;
    ls_case k;
    const char *text;
} mistake;

#define GOOD 1, 8, 6, 2, 4

/* clang-format off */
static const mistake mistakes[] = {
    { 1, 1, 7, { "", GOOD, CFG(2, 4, 1, 6) }, "k_win and v_win must both be [B,Wc+N,H*D]" },
    { -1, 0, 0, { "", 1, 8, 7, 2, 4, CFG(2, 4, 1, 6) },
      "k_win has 15 rows for 8 queries: between 0 and 6 (the window) may come before them" },
    { -1, 0, 0, { "", 1, 8, 3, 2, 4, CFG(2, 4, 1, 6) },
      "a window of 6 needs 5 rows before the queries, k_win has 3; "
      "set the option masked to allow fewer" },
    { -1, 0, 0, { "", 1, 8, 5, 2, 4, CFG(2, 4, 1, 6), .cfg.segment = true },
      "a window of 6 needs 6 rows before the queries" },
    { 5, 0, 5, { "", GOOD, CFG(2, 4, 1, 6) }, "pos_win must be [6,H*D]" },
    { 6, 0, 3, { "", GOOD, CFG(2, 4, 1, 6) }, "pos_cmp must be [n,H*D], n at least 4" },
    { 4, 1, 3, { "", GOOD, CFG(2, 4, 1, 6) },
      "k_cmp and v_cmp must both be [B,nc,H*D], or both absent" },
    { -1, 0, 0, { "", 1, 8, 6, -1, 4, CFG(2, 4, 1, 6) },
      "the queries' own 2 chunks have 2 vectors, k_cmp has 1" },
    { 7, 1, 3, { "", GOOD, CFG(2, 4, 1, 6) },
      "r_w and r_r must be [H,D], [1,H,1,D] or [1,H,1,1,D]" },
    { -1, 0, 0, { "", GOOD, CFG(2, 4, 1, 6), .cfg.masked = true, .cache = 8, .valid = 9 },
      "valid, 9, must be between 0 and cache, 8" },
    { -1, 0, 0, { "", GOOD, CFG(2, 4, 0, 6) },
      "with rank 0 k_cmp, v_cmp and pos_cmp must be absent" },
    { 5, 0, 6, { "", GOOD, CFG(2, 4, 1, 0) },
      "without a window k_win, v_win, pos_win, r_w and r_r must be absent" },
    { -1, 0, 0, { "", GOOD, CFG(2, 4, 1, 0), .cfg.segment = true },
      "segment: a window of 0 has no segments" },
    { -1, 0, 0, { "", GOOD, CFG(2, 4, 1, 6), .cfg.masked = true, .cache = 5, .valid = 5 },
      "a cache of 5 rows cannot have 6 in the window" },
    { -1, 0, 0, { "", GOOD, CFG(2, 4, 1, 6), .cfg.masked = true, .cache = INT64_MAX },
      "cache and valid must be between 0 and 2^40" },
    { -1, 0, 0, { "", GOOD, CFG(2, 4, 0, 6), .cfg.masked = true, .valid = INT64_MIN },
      "cache and valid must be between 0 and 2^40" },
    { -1, 0, 0, { "", GOOD, CFG(2, 4, 1, 6), .cfg.dropout = 1 },
      "dropout must be in [0, 1), not 1" },
    { -1, 0, 0, { "", GOOD, CFG(2, 4, 1, 6), .cfg.dropout = NAN }, "dropout must be in [0, 1)" },
};
/* clang-format on */

Test(ls_attention, messages)
{
    device_cpu_only();
    world s = begin(TP_ISA_AUTO, 1, TP_F32);
    for (int m = 0; m < (int)(sizeof mistakes / sizeof *mistakes); m++) {
        const mistake *e = &mistakes[m];
        tp_shape shape[INPUTS];
        tp_tensor x[INPUTS];
        shapes(&e->k, shape);
        if (e->input >= 0) shape[e->input].dim[e->axis] = e->size;
        tp_reset(s.T);
        for (int i = 0; i < INPUTS; i++)
            x[i] = count(shape[i]) ? tp_full(s.T, TP_F32, shape[i], 0.5) : TP_NONE;
        tp_ls_attention(s.T,
                        (tp_ls_in){ x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8],
                                    e->k.cache, e->k.valid },
                        e->k.cfg);
        cr_expect(strstr(tp_why(s.T), e->text), "mistake %d: %s", m, tp_why(s.T));
        tp_clear(s.T);
    }
    end(&s);
}
