/* test_cuda.c - every op on the CUDA device in f32 and bf16, against the CPU in f64: results and
 * gradients in all its gradient cases. A second pass uses the op twice on misaligned inputs, so
 * that gradients accumulate. On the emulated device the order of threads must not change the bits.
 * Without a CUDA device the tests are skipped.
 *
 *     TAPEGRAD_OP=softmax build/emulate/bin/test_cuda --filter 'cuda/every*'     one op only */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/lm.h>
#include <tapegrad/op.h>
#include <tapegrad/tapegrad.h>

#include "autograd/gradcase.h"
#include "autograd/ops/op_inner.h"
#include "autograd/tape.h"
#include "support/device.h"
#include "support/sanitized.h"
#include "support/values.h"
#include "tensor/bf16.h"
#include "tensor/geometry/norms.h"
#include "tensor/geometry/reduced.h"
#include "tensor/geometry/shape_ops.h"
#include "tensor/rng.h"
#include "tensor/shape.h"

#ifdef TP_EMULATION
#include "cuda_emulation/emulation.h"
#endif

extern const tp_op *const tp_op_table[];

#define ROOM (1 << 20) /* elements of all results and gradients of a case */

/* The variant of a case: its dtype, whether f32 parameters meet bf16 data, whether the op is used
 * twice, on inputs that begin one element later, and the first other order of threads; 0: none. */
typedef struct trial {
    tp_dtype dt;
    bool mixed, train, twice;
    int order;
} trial;

/* The results of a case: all floating outputs and gradients concatenated, and the other outputs. */
typedef struct answer {
    double v[ROOM];
    int64_t n;
    int64_t integers[ROOM], ni;
    char why[2048];
} answer;

/* Input i in f64 (or as integers), exact in bf16, so that all devices see the same numbers. */
static tp_view host_input(const tp_gradcase *k, int i)
{
    tp_view v = tp__case_view(k, i, TP_F64);
    v.data = calloc((size_t)v.numel + 1, sizeof(double));
    tp__case_fill(k, i, &v);
    for (int64_t e = 0; v.dtype == TP_F64 && e < v.numel; e++)
        tp_st(&v, e, (double)tp__from_bf16(tp__to_bf16((float)tp_ld(&v, e))));
    return v;
}

/* The gradient of the result: magnitudes from 1/2 to 1, exact in bf16. */
static tp_tensor weights(tp_tape *T, tp_tensor y, int output)
{
    const int64_t n = tp_numel(y);
    double *w = calloc((size_t)n + 1, sizeof *w);
    for (int64_t e = 0; e < n; e++) {
        const uint32_t r = tp__word(8, (uint64_t)output, (uint64_t)e);
        w[e] = (r & 1 ? 1.0 : -1.0) * (double)(64 + (r >> 8) % 64) / 128.0;
    }
    const tp_tensor t = values_constant(T, tp_dtype_of(y), tp_shape_of(y), w);
    free(w);
    return t;
}

static void take(answer *a, tp_tape *T, tp_tensor x)
{
    const int64_t n = tp_numel(x);
    cr_assert(a->n + n <= ROOM && a->ni + n <= ROOM, "ROOM is too small");
    if (tp_is_float(tp_dtype_of(x))) {
        values_read(T, x, a->v + a->n);
        a->n += n;
    } else if (tp_dtype_of(x) == TP_I64) {
        tp_read(T, x, a->integers + a->ni, (size_t)n * sizeof *a->integers);
        a->ni += n;
    } else if (tp_dtype_of(x) == TP_U8) { /* as bytes, in whole integers */
        memset(a->integers + a->ni, 0, (size_t)(n + 7) / 8 * sizeof *a->integers);
        tp_read(T, x, a->integers + a->ni, (size_t)n);
        a->ni += (n + 7) / 8;
    }
}

/* True if input i is an f32 parameter; with bf16 data, batchnorm's statistics are. */
static bool is_parameter(const tp_op *op, const tp_gradcase *k, int i, tp_dtype dt, bool mixed)
{
    const bool statistics = strcmp(op->name, "batchnorm") == 0 && op->constant & tp__bit(i);
    return dt == TP_BF16 && k->below[tp__case_like(k, i)] == 0 &&
           (statistics || (mixed && i > 0 && tp__mixes(op, i)));
}

static tp_tensor parameter(tp_params *P, const tp_op *op, const tp_gradcase *k, int i)
{
    const tp_init zero = { TP_INIT_ZERO, 0.0, 0.0 };
    char name[16];
    snprintf(name, sizeof name, "p%d", i);
    return tp_param(P, name, k->in[i], zero, op->constant >> i & 1u ? TP_BUFFER : 0);
}

/* The data of v as a misaligned input: all but the first element of a longer tensor. */
static tp_tensor piece(tp_tape *T, const tp_view *v, tp_dtype dt, tp_shape shape)
{
    const size_t size = tp_dtype_size(v->dtype), bytes = (size_t)v->numel * size;
    const tp_shape longer = TP_SHAPE(v->numel + 1);
    char *data = calloc(1, bytes + size);
    memcpy(data + size, v->data, bytes);
    const tp_tensor whole = v->dtype == TP_F64 ? values_input(T, dt, longer, (double *)data)
                                               : tp_from(T, v->dtype, longer, data);
    const tp_tensor x = tp_reshape(T, tp_slice(T, whole, 0, 1, v->numel), shape);
    free(data);
    if (v->dtype == TP_F64) tp_keep(T, x);
    return x;
}

static tp_tensor input(tp_tape *T, const tp_op *op, const tp_gradcase *k, int i, trial t)
{
    tp_view v = host_input(k, i);
    const tp_shape shape = tp__view_shape(&v);
    const bool constant = op->constant & tp__bit(i);
    const tp_tensor x = t.twice && !constant ? piece(T, &v, t.dt, shape)
                        : v.dtype != TP_F64  ? tp_from(T, v.dtype, shape, v.data)
                        : constant           ? values_constant(T, t.dt, shape, v.data)
                                             : values_input(T, t.dt, shape, v.data);
    free(v.data);
    return x;
}

static void set_parameter(tp_params *P, const tp_gradcase *k, int i, tp_tensor p)
{
    tp_view v = host_input(k, i);
    cr_expect(tp_param_set(P, p, TP_F64, v.data, (size_t)v.numel * sizeof(double)));
    free(v.data);
}

/* Computes y = op(x) and appends it to a unless NULL. Returns the loss, or TP_NONE. */
static tp_tensor loss_of(tp_tape *T, const tp_op *op, const tp_gradcase *k, const tp_tensor *x,
                         answer *a)
{
    const int ny = k->ny > 0 ? k->ny : 1;
    tp_tensor y[TP_CASE_INPUTS], loss = TP_NONE;
    tp_apply_n(T, op, k->attr, tp__case_inputs(op, k), x, ny, y);
    for (int i = 0; a && i < ny && tp_ok(T); i++) take(a, T, y[i]);
    for (int i = 0; i < ny && tp_ok(T) && !(op->flags & TP_NOT_DIFFERENTIABLE); i++) {
        if (!tp_is_float(tp_dtype_of(y[i]))) continue;
        const tp_tensor part = tp_sum(T, tp_mul(T, y[i], weights(T, y[i], i)), TP_ALL);
        loss = tp_given(loss) ? tp_add(T, loss, part) : part;
    }
    return loss;
}

static void apply(tp_tape *T, tp_params *P, const tp_op *op, const tp_gradcase *k, trial t,
                  answer *a)
{
    const int nx = tp__case_inputs(op, k);
    tp_tensor x[TP_CASE_INPUTS] = { TP_NONE };
    for (int i = 0; i < nx; i++) /* declares all before the first use */
        x[i] = k->in[tp__case_like(k, i)].ndim > 0 && is_parameter(op, k, i, t.dt, t.mixed)
                   ? parameter(P, op, k, i)
                   : TP_NONE;
    for (int i = 0; i < nx; i++) {
        if (tp_given(x[i]))
            set_parameter(P, k, i, x[i]);
        else if (k->in[tp__case_like(k, i)].ndim > 0)
            x[i] = input(T, op, k, i, t);
    }
    tp_tensor loss = loss_of(T, op, k, x, a);
    if (t.twice) loss = tp_add(T, loss, loss_of(T, op, k, x, NULL));
    for (int i = 0; i < nx && tp_ok(T); i++) /* batchnorm updates its statistics */
        if (tp_given(x[i]) && op->constant & tp__bit(i)) take(a, T, x[i]);
    if (op->flags & TP_NOT_DIFFERENTIABLE) return;
    tp_backward(T, loss);
    for (int i = 0; i < nx && tp_ok(T); i++)
        if (tp_given(x[i]) && tp_is_float(tp_dtype_of(x[i])) && !(op->constant & tp__bit(i)))
            take(a, T, tp_grad(T, x[i]));
}

static void run(tp_device *D, const tp_op *op, const tp_gradcase *k, trial t, answer *a)
{
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = t.dt, .train = t.train, .seed = 7 });
    tp_params *P = tp_params_new(D, NULL);
    a->n = a->ni = 0;
    apply(T, P, op, k, t, a);
    snprintf(a->why, sizeof a->why, "%s%s", tp_why(T), tp_params_why(P));
    tp_tape_free(T);
    tp_params_free(P);
}

static bool has_kernels(const tp_op *op)
{
    return op->forward[TP_CUDA] || (!op->forward[TP_CPU] && !op->backward[TP_CPU]);
}

static void check_case(tp_device *cpu, tp_device *gpu, const tp_op *op, const tp_gradcase *k,
                       trial t)
{
    static answer exact, got, again;
    char name[200];
    snprintf(name, sizeof name, "%s %s%s, case '%s', %s%s", op->name, tp_dtype_name(t.dt),
             t.mixed ? " with f32 parameters" : "", k->name, t.train ? "training" : "eval",
             t.twice ? ", used twice" : "");
    run(cpu, op, k, (trial){ TP_F64, false, t.train, t.twice, 0 }, &exact);
    run(gpu, op, k, t, &got);
    cr_expect_str_empty(exact.why, "%s, on the CPU: %s", name, exact.why);
    cr_expect_str_empty(got.why, "%s: %s", name, got.why);
    if (*exact.why || *got.why) return;
    const double error = values_error(got.v, exact.v, exact.n, 1e-3);
    cr_expect(got.n == exact.n && error <= (t.dt == TP_BF16 ? 2e-2 : 1e-5), "%s: error %.3g", name,
              error);
    cr_expect(got.ni == exact.ni &&
                  memcmp(got.integers, exact.integers, (size_t)got.ni * sizeof(int64_t)) == 0,
              "%s: indices differ", name);
    for (int order = t.order; order > 0 && device_set_order(order); order++) {
        run(gpu, op, k, t, &again);
        cr_expect(memcmp(again.v, got.v, (size_t)got.n * sizeof(double)) == 0,
                  "%s: order %d of threads gives other bits", name, order);
    }
    device_set_order(0);
}

enum { EVALUATE, TRAIN, TRAIN_TWICE, WAYS }; /* to run a case */

/* The variant of case i for a way. Training covers other orders of evaluation, and an op used twice
 * needs only the most shuffled order. Sanitized builds change the order in one of these ways. */
static trial trial_of(tp_dtype dt, bool mixed, int way, int i)
{
    const int order = way == EVALUATE ? 0 : way == TRAIN ? device_other_order() : 2;
    const bool left_out = sanitized() && way == (i % 2 ? TRAIN : TRAIN_TWICE);
    return (trial){ dt, mixed, way != EVALUATE, way == TRAIN_TWICE, left_out ? 0 : order };
}

/* Their cases produce f64 from other inputs or none: tests/ops/test_cast.c, test_cuda_moves.c and
 * test_create.c check these ops on CUDA. */
static bool makes_f64(const tp_op *op)
{
    static const char *const names[] = { "arange", "cast", "one_hot", "rand", "randn" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(op->name, names[i]) == 0) return true;
    return false;
}

/* mixed: checks only ops whose kernels read f32 parameters beside bf16 data, with such. */
static void check_all(tp_dtype dt, bool mixed)
{
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_device *gpu = device_cuda();
    const char *only = getenv("TAPEGRAD_OP");
    cr_assert(tp_device_ok(gpu), "%s", tp_device_why(gpu));
    for (const tp_op *const *op = tp_op_table; *op; op++) {
        if (only && strcmp((*op)->name, only) != 0) continue;
        if (makes_f64(*op)) continue;
        if (mixed && !((*op)->flags & TP_MIXES)) continue;
        cr_expect(has_kernels(*op), "%s has no CUDA kernels", (*op)->name);
        const int ways = (*op)->flags & TP_NOT_DIFFERENTIABLE ? TRAIN_TWICE : WAYS;
        const tp_gradcase *cases = (*op)->cases;
        for (int i = 0; cases && cases[i].name; i++)
            for (int way = sanitized() && i > 0 ? TRAIN : EVALUATE; way < ways; way++)
                check_case(cpu, gpu, *op, &cases[i], trial_of(dt, mixed, way, i));
    }
    cr_expect_eq(tp_device_stats(gpu).live_bytes, 0, "memory is returned");
    tp_device_close(gpu);
    tp_device_close(cpu);
}

Test(cuda, every_op_f32, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    check_all(TP_F32, false);
}

Test(cuda, every_op_bf16, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    check_all(TP_BF16, false);
}

Test(cuda, every_op_bf16_with_f32_parameters, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    check_all(TP_BF16, true);
}

/* ---- sizes that choose other kernels, too large for finite differences ---- */

/* Checks a case in both dtypes. used: how often the op is used; 2: also on misaligned inputs. */
static void check_uses(const char *name, const tp_gradcase *k, int used)
{
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_device *gpu = device_cuda();
    const tp_op *const *op = tp_op_table;
    while (*op && strcmp((*op)->name, name) != 0) op++;
    cr_assert(*op, "%s", name);
    for (int i = 0; i < 2 * used; i++)
        check_case(cpu, gpu, *op, k,
                   trial_of(i & 1 ? TP_BF16 : TP_F32, false, i & 2 ? TRAIN_TWICE : TRAIN, i));
    cr_expect_eq(tp_device_stats(gpu).live_bytes, 0, "memory is returned");
    tp_device_close(gpu);
    tp_device_close(cpu);
}

static void check_size(const char *name, const tp_gradcase *k)
{
    check_uses(name, k, 2);
}

/* Rows that just fill 8 threads, a warp's registers, or the default shared memory. */
Test(cuda, rows_of_softmax, .timeout = 600)
{
    static const int64_t sizes[][2] = {
        { 37, 1 },   { 67, 7 },   { 33, 8 },   { 32, 63 },   { 31, 64 },   { 19, 65 },
        { 9, 255 },  { 8, 256 },  { 7, 257 },  { 11, 1000 }, { 9, 1023 },  { 8, 1024 },
        { 3, 1025 }, { 1, 6144 }, { 1, 6145 }, { 1, 12288 }, { 1, 12289 },
    };
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d x %d", (int)sizes[i][0], (int)sizes[i][1]);
        const tp_gradcase k = { name, .in = { { 2, { sizes[i][0], sizes[i][1] } } } };
        check_size("softmax", &k);
        check_size("log_softmax", &k);
    }
}

/* Columns in packs and single, of one matrix and of several, in blocks of many rows. */
Test(cuda, sums_of_columns, .timeout = 600)
{
    static const tp_reduce_attr first = { 0, 0 }, middle = { 1, 0 };
    static const tp_gradcase cases[] = {
        { "packs", .in = { { 2, { 700, 80 } } }, .attr = &first },
        { "packs of several tiles", .in = { { 2, { 300, 264 } } }, .attr = &first },
        { "single columns", .in = { { 2, { 700, 83 } } }, .attr = &first },
        { "two columns", .in = { { 2, { 20011, 2 } } }, .attr = &first },
        { "packs of matrices", .in = { { 3, { 2, 400, 72 } } }, .attr = &middle },
        { "columns of matrices", .in = { { 3, { 3, 300, 41 } } }, .attr = &middle },
        { "narrow matrices", .in = { { 3, { 40, 300, 5 } } }, .attr = &middle },
        { "few rows", .in = { { 2, { 31, 1000 } } }, .attr = &first },
    };
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_size("sum", &cases[i]);
}

/* Images in spans of positions: the last shorter, with groups of one, some and all channels. */
Test(cuda, groups_of_large_images, .timeout = 600)
{
    static const tp__groupnorm_attr groups = { 3, false, 1e-3 }, all = { 1, false, 1e-3 },
                                    each = { 0, true, 1e-3 };
    static const tp_gradcase cases[] = {
        { "one image", .in = { { 3, { 1, 1100, 24 } }, { 1, { 24 } }, { 1, { 24 } } }, &groups },
        { "three images", .in = { { 3, { 3, 771, 15 } }, { 1, { 15 } }, { 1, { 15 } } }, &groups },
        { "tiles", .in = { { 3, { 2, 513, 72 } }, { 1, { 72 } }, { 1, { 72 } } }, &all },
    };
    static const tp_gradcase channels = { "channels",
                                          .in = { { 3, { 2, 1030, 40 } }, { 1, { 40 } } }, &each };
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_size("groupnorm", &cases[i]);
    check_size("instancenorm", &channels);
}

/* 1 - 1/128 or 1 + 1/128, so that long products neither vanish nor grow. */
static void around_one(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++)
        tp_st(x, e, 1.0 + (tp__word(9, 5, (uint64_t)e) >> 31 ? 1.0 : -1.0) / 128.0);
}

/* Lanes of many tiles, which a thread, a warp, or a block in one or two rounds joins. */
Test(cuda, long_lanes, .timeout = 600)
{
    static const tp_axis_attr first = { 0 }, last = { 1 };
    static const tp_gradcase cases[] = {
        { "12 tiles", .in = { { 2, { 750, 3 } } }, &first, .fill = around_one },
        { "49 tiles", .in = { { 2, { 2, 100000 } } }, &last, .fill = around_one },
        { "257 tiles", .in = { { 2, { 16386, 2 } } }, &first, .fill = around_one },
        { "2055 tiles", .in = { { 2, { 131463, 2 } } }, &first, .fill = around_one },
    };
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_size("cumsum", &cases[i]);
        check_size("cumprod", &cases[i]);
    }
}

/* In f32, matrices of 29 MB: of the inputs under the taps, then of dY. */
Test(cuda, convolutions_in_chunks, .timeout = 600)
{
    static const tp_conv_cfg pad = {
        .stride = { 1, 1 }, .pad = { 1, 1 }, .dilation = { 1, 1 }, .groups = 1
    };
    static const tp_gradcase cases[] = {
        { "many inputs", .in = { { 4, { 1, 130, 130, 48 } }, { 4, { 8, 48, 3, 3 } } }, &pad },
        { "many outputs", .in = { { 4, { 1, 130, 130, 8 } }, { 4, { 48, 8, 3, 3 } } }, &pad },
    };
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_uses("conv2d", &cases[i], sanitized() ? 1 : 2);
}

/* Kernels whose sizes ask for more threads than one per column, row or image. */
#ifdef TP_EMULATION
static tp_tensor sum_columns(tp_tape *T, tp_tensor x)
{
    return tp_sum(T, x, 0);
}

static tp_tensor normalise_groups(tp_tape *T, tp_tensor x)
{
    return tp_groupnorm(T, tp_reshape(T, x, TP_SHAPE(2, 1024, 256)), 32, TP_NONE, TP_NONE, 1e-5);
}

static const struct {
    const char *name;
    tp_tensor (*op)(tp_tape *T, tp_tensor x);
    int64_t rows, columns;
    uint64_t blocks; /* of 256 threads: least */
} wide_kernels[] = {
    { "short rows of softmax", tp_softmax, 32768, 16, 1024 },
    { "sums of columns", sum_columns, 2048, 256, 256 },
    { "groups of two images", normalise_groups, 2048, 256, 512 + 64 },
};

Test(cuda, blocks_fill_the_gpu)
{
    emulation.processors = 132;
    tp_device *D = device_cuda();
    tp_tape *T = tp_tape_new(D, NULL);
    for (size_t i = 0; i < sizeof wide_kernels / sizeof *wide_kernels; i++) {
        tp_reset(T);
        const tp_shape s = TP_SHAPE(wide_kernels[i].rows, wide_kernels[i].columns);
        const tp_tensor x = tp_full(T, TP_F32, s, 0.5);
        const uint64_t before = emulation_threads();
        wide_kernels[i].op(T, x);
        const uint64_t used = (emulation_threads() - before) / 256;
        cr_expect(tp_ok(T) && used >= wide_kernels[i].blocks, "%s: %d blocks; %s",
                  wide_kernels[i].name, (int)used, tp_why(T));
    }
    tp_tape_free(T);
    tp_device_close(D);
    emulation.processors = 2;
}
#endif

/* ---- embedding: enough rows for sorting ids by three digits ---- */

enum { VOCABULARY = 70000, WIDTH = 4, TOKENS = 3000 };

/* Two thirds of a list alternate between two tokens that differ only in the last digit. The second
 * list adds to the first's gradient, except in its padding row. */
static void embed(tp_device *D, tp_dtype dt, double *grad)
{
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = dt, .train = true });
    double *table = calloc((size_t)VOCABULARY * WIDTH, sizeof *table);
    const tp_tensor w = values_input(T, dt, TP_SHAPE(VOCABULARY, WIDTH), table);
    tp_tensor loss = TP_NONE;
    for (int k = 0; k < 2; k++) {
        int32_t ids[TOKENS];
        for (int i = 0; i < TOKENS; i++)
            ids[i] = i % 3 == 0   ? 1
                     : i % 3 == 1 ? 65537
                                  : (int32_t)(tp__word(9, (uint64_t)k, (uint64_t)i) % VOCABULARY);
        const tp_tensor list = tp_from(T, TP_I32, TP_SHAPE(TOKENS), ids);
        const tp_tensor y = tp_embedding_pad(T, w, list, 0.5, k == 1 ? 65537 : -1);
        const tp_tensor part = tp_sum(T, tp_mul(T, y, weights(T, y, k)), TP_ALL);
        loss = k > 0 ? tp_add(T, loss, part) : part;
    }
    tp_backward(T, loss);
    values_read(T, tp_grad(T, w), grad);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    free(table);
    tp_tape_free(T);
}

Test(cuda, an_embedding_of_many_rows, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    static double exact[VOCABULARY * WIDTH], got[VOCABULARY * WIDTH];
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_device *gpu = device_cuda();
    embed(cpu, TP_F64, exact);
    embed(gpu, TP_F32, got);
    const double error = values_error(got, exact, VOCABULARY * WIDTH, 1e-3);
    cr_expect(error <= 1e-5, "f32: error %.3g", error);
    tp_device_close(gpu);
    tp_device_close(cpu);
}

/* ---- training: parameters, bf16 copies, clipping, AdamW, SGD, mean ---- */

enum { STEPS = 5, IN = 7, HIDDEN = 9, OUT = 5, ROWS = 6, PARAMS = 4 };

typedef struct net {
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_ema *E;
    tp_tensor p[PARAMS]; /* w1 [HIDDEN,IN], b1, w2 [OUT,HIDDEN], b2 */
} net;

static net make_net(tp_device *D, tp_dtype params, tp_dtype compute, bool sgd)
{
    net m = { .P = tp_params_new(D, &(tp_params_opts){ .seed = 3, .dtype = params }) };
    const tp_init draw = { TP_INIT_NORMAL, 0.5, 0.0 };
    m.p[0] = tp_param(m.P, "w1", TP_SHAPE(HIDDEN, IN), draw, 0);
    m.p[1] = tp_param(m.P, "b1", TP_SHAPE(HIDDEN), draw, 0);
    m.p[2] = tp_param(m.P, "w2", TP_SHAPE(OUT, HIDDEN), draw, 0);
    m.p[3] = tp_param(m.P, "b2", TP_SHAPE(OUT), draw, 0);
    m.T = tp_tape_new(D, &(tp_tape_opts){ .compute = compute, .train = true });
    m.O = sgd ? tp_sgd_new(m.P, &(tp_sgd_opts){ .momentum = 0.9, .weight_decay = 0.01 })
              : tp_adamw_new(m.P, &(tp_adamw_opts){ .weight_decay = 0.01 });
    m.E = tp_ema_new(m.P, 0.9);
    return m;
}

static void free_net(net *m)
{
    tp_ema_free(m->E);
    tp_optim_free(m->O);
    tp_tape_free(m->T);
    tp_params_free(m->P);
}

static tp_tensor step(net *m, tp_dtype dt, uint64_t seed)
{
    double x[ROWS * IN];
    tp_reset(m->T);
    values_random(x, ROWS * IN, seed);
    tp_tensor h = values_constant(m->T, dt, TP_SHAPE(ROWS, IN), x);
    h = tp_linear(m->T, h, m->p[0], m->p[1], TP_ACT_GELU);
    h = tp_log_softmax(m->T, tp_linear(m->T, h, m->p[2], m->p[3], TP_ACT_NONE));
    const tp_tensor loss = tp_mean(m->T, tp_square(m->T, h), TP_ALL);
    tp_backward(m->T, loss);
    tp_clip_grad_norm(m->P, 0.1);
    tp_step(m->O, 0.01);
    tp_ema_update(m->E);
    return loss;
}

/* All parameters after some steps, then their averages. */
static void train(tp_device *D, tp_dtype params, tp_dtype compute, bool sgd, answer *a)
{
    net m = make_net(D, params, compute, sgd);
    for (int i = 0; i < STEPS; i++) step(&m, compute, 50 + (uint64_t)i);
    a->n = a->ni = 0;
    for (int swapped = 0; swapped < 2; swapped++) {
        for (int k = 0; k < PARAMS; k++) {
            const int64_t n = tp_numel(m.p[k]);
            cr_expect(tp_param_get(m.P, m.p[k], TP_F64, a->v + a->n, (size_t)n * sizeof(double)));
            a->n += n;
        }
        tp_ema_swap(m.E);
    }
    cr_expect(tp_ok(m.T) && tp_optim_ok(m.O) && tp_ema_ok(m.E), "%s %s %s", tp_why(m.T),
              tp_optim_why(m.O), tp_ema_why(m.E));
    free_net(&m);
}

Test(cuda, training, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    static answer exact, got;
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_device *gpu = device_cuda();
    for (int sgd = 0; sgd < 2; sgd++) {
        train(cpu, TP_F64, TP_F64, sgd, &exact);
        train(gpu, TP_F32, TP_F32, sgd, &got);
        double error = values_error(got.v, exact.v, exact.n, 0.0);
        cr_expect(error <= 1e-5, "f32, %s: error %.3g", sgd ? "sgd" : "adamw", error);
        train(gpu, TP_F32, TP_BF16, sgd, &got);
        error = values_error(got.v, exact.v, exact.n, 0.0);
        cr_expect(error <= 2e-2, "bf16, %s: error %.3g", sgd ? "sgd" : "adamw", error);
    }
    cr_expect_eq(tp_device_stats(gpu).live_bytes, 0, "memory is returned");
    tp_device_close(gpu);
    tp_device_close(cpu);
}

Test(cuda, a_steady_step_does_not_wait)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    tp_device *D = tp_device_open("cuda", NULL);
    net m = make_net(D, TP_F32, TP_BF16, false);
    for (int i = 0; i < 2; i++) step(&m, TP_BF16, 1);
    const tp_stats before = tp_device_stats(D);
    const tp_tensor loss = step(&m, TP_BF16, 2);
    const tp_stats after = tp_device_stats(D);
    cr_expect_eq(after.syncs, before.syncs, "waits: %d", (int)(after.syncs - before.syncs));
    cr_expect(after.launches > before.launches);
    cr_expect(isfinite(tp_item(m.T, loss)), "%s", tp_why(m.T));
    cr_expect_eq(tp_device_stats(D).syncs, after.syncs + 1, "tp_item waits");
    free_net(&m);
    tp_device_close(D);
}

enum { LETTERS = 19, SEGMENT = 32, WARM = 4, CHECKED = 2 };

/* One update of a Transformer-LS as in enwik8. Returns the loss. */
static tp_tensor lm_step(tp_tape *T, tp_params *P, tp_optim *O, const tp_ls_lm *lm,
                         tp_ls_lm_state *s, int k)
{
    int32_t ids[SEGMENT + 1];
    for (int i = 0; i <= SEGMENT; i++) ids[i] = (k * SEGMENT + i) * i % LETTERS;
    tp_reset(T);
    const tp_tensor x = tp_from(T, TP_I32, TP_SHAPE(1, SEGMENT), ids);
    const tp_tensor y = tp_from(T, TP_I32, TP_SHAPE(1, SEGMENT), ids + 1);
    const tp_tensor loss = tp_cross_entropy(T, tp_ls_lm_forward(T, lm, s, x), y, TP_MEAN);
    tp_backward(T, loss);
    tp_clip_grad_norm(P, 0.25);
    tp_step(O, 1e-3);
    return loss;
}

Test(cuda, a_step_of_a_language_model_does_not_wait)
{
    static tp_ls_lm lm;
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    tp_device *D = tp_device_open("cuda", NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = TP_BF16, .train = true });
    tp_ls_lm_cfg c = tp_ls_lm_tiny(LETTERS);
    tp_ls_lm_state s = { 0 };
    tp_tensor loss = TP_NONE;
    uint64_t before = 0;
    c.layers = 2;
    c.dim = 24;
    c.hidden = 40;
    c.mem_len = SEGMENT;
    c.ls = (tp_ls_cfg){ .attn = { .heads = 3, .chunk = 8, .rank = 1, .window = 16 } };
    c.dropout = c.emb_dropout = 0.1;
    c.recompute = TP_RECOMPUTE_BLOCK;
    tp_ls_lm_init(P, &lm, "", c);
    tp_optim *O = tp_adamw_new(P, NULL);
    for (int k = 0; k < WARM + CHECKED; k++) {
        if (k == WARM) before = tp_device_stats(D).syncs;
        loss = lm_step(T, P, O, &lm, &s, k);
    }
    cr_expect_eq(tp_device_stats(D).syncs, before, "waits: %d",
                 (int)(tp_device_stats(D).syncs - before));
    cr_expect(isfinite(tp_item(T, loss)), "%s %s", tp_why(T), tp_optim_why(O));
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}
