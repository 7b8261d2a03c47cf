/* test_cuda_moves.c - ops that only move elements give the same values on the CUDA device as on the
 * CPU, in every dtype. Sizes are full packs, partial packs and other word widths. Also tests random
 * masks. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/values.h"
#include "tensor/rng.h"

#define ROOM 32768 /* elements of a result */

static tp_tensor slice_middle(tp_tape *T, tp_tensor x)
{
    return tp_slice(T, x, 1, 1, tp_shape_of(x).dim[1] - 2);
}
static tp_tensor slice_last(tp_tape *T, tp_tensor x)
{
    return tp_slice(T, x, 2, 3, tp_shape_of(x).dim[2] - 4);
}
static tp_tensor pad_middle(tp_tape *T, tp_tensor x)
{
    return tp_pad(T, x, 1, 2, 1, 3.0);
}
static tp_tensor pad_last(tp_tape *T, tp_tensor x)
{
    return tp_pad(T, x, 2, 1, 6, 200.0);
}
static tp_tensor roll_middle(tp_tape *T, tp_tensor x)
{
    return tp_roll(T, x, 1, -1);
}
static tp_tensor roll_last(tp_tape *T, tp_tensor x)
{
    return tp_roll(T, x, 2, 5);
}
static tp_tensor concat_last(tp_tape *T, tp_tensor x)
{
    return tp_concat(T, 2, x, tp_slice(T, x, 2, 1, 3), x);
}
static tp_tensor concat_first(tp_tape *T, tp_tensor x)
{
    return tp_concat(T, 0, tp_slice(T, x, 0, 1, 1), x);
}
static tp_tensor stack_last(tp_tape *T, tp_tensor x)
{
    return tp_stack(T, 3, x, tp_roll(T, x, 0, 1), x);
}
static tp_tensor split_middle(tp_tape *T, tp_tensor x)
{
    tp_tensor y[2];
    tp_split(T, x, 1, 2, y);
    return tp_concat(T, 2, y[1], y[0]);
}
static tp_tensor swap_last(tp_tape *T, tp_tensor x)
{
    return tp_permute(T, x, TP_SHAPE(0, 2, 1));
}
static tp_tensor swap_first(tp_tape *T, tp_tensor x)
{
    return tp_permute(T, x, TP_SHAPE(1, 0, 2));
}
static tp_tensor swap_ends(tp_tape *T, tp_tensor x)
{
    return tp_permute(T, x, TP_SHAPE(2, 1, 0));
}
static tp_tensor swap_piece(tp_tape *T, tp_tensor x) /* a misaligned piece */
{
    const tp_shape s = tp_shape_of(x);
    const int64_t n = tp_numel(x);
    const tp_tensor row = tp_slice(T, tp_reshape(T, x, TP_SHAPE(n)), 0, 3, n - s.dim[2]);
    return tp_permute(T, tp_reshape(T, row, TP_SHAPE(-1, s.dim[2])), TP_SHAPE(1, 0));
}
static tp_tensor expand_first(tp_tape *T, tp_tensor x)
{
    const tp_shape s = tp_shape_of(x);
    return tp_expand(T, x, TP_SHAPE(2, s.dim[0], s.dim[1], s.dim[2]));
}
static tp_tensor expand_middle(tp_tape *T, tp_tensor x)
{
    const tp_shape s = tp_shape_of(x);
    return tp_expand(T, tp_slice(T, x, 1, 1, 1), TP_SHAPE(s.dim[0], 3, s.dim[2]));
}
static tp_tensor expand_last(tp_tape *T, tp_tensor x)
{
    const tp_shape s = tp_shape_of(x);
    return tp_expand(T, tp_slice(T, x, 2, 1, 1), TP_SHAPE(s.dim[0], s.dim[1], 29));
}
static tp_tensor expand_piece(tp_tape *T, tp_tensor x) /* a misaligned piece */
{
    const tp_tensor row = tp_slice(T, tp_reshape(T, x, TP_SHAPE(tp_numel(x))), 0, 1, 32);
    return tp_expand(T, row, TP_SHAPE(5, 32));
}
static tp_tensor select_by_row(tp_tape *T, tp_tensor x)
{
    return tp_where(T, tp_le(T, tp_slice(T, x, 0, 1, 1), x), x, 7);
}
static tp_tensor select_whole(tp_tape *T, tp_tensor x)
{
    return tp_where(T, tp_ne(T, x, 3), x, tp_roll(T, x, 2, 1));
}

static const struct move {
    const char *name;
    tp_tensor (*of)(tp_tape *T, tp_tensor x);
} moves[] = {
    { "slice of the middle axis", slice_middle },
    { "slice of the last axis", slice_last },
    { "pad of the middle axis", pad_middle },
    { "pad of the last axis", pad_last },
    { "roll of the middle axis", roll_middle },
    { "roll of the last axis", roll_last },
    { "concat of the last axis", concat_last },
    { "concat of the first axis, one part a view", concat_first },
    { "stack on a new last axis", stack_last },
    { "split of the middle axis", split_middle },
    { "the last two axes swapped", swap_last },
    { "the first two axes swapped", swap_first },
    { "the first and the last axis swapped", swap_ends },
    { "a transposed piece", swap_piece },
    { "expand by a leading axis", expand_first },
    { "expand of the middle axis", expand_middle },
    { "expand of the last axis", expand_last },
    { "an expanded piece", expand_piece },
    { "a selection by a repeated comparison", select_by_row },
    { "a selection of one shape", select_whole },
};

static const tp_shape shapes[] = {
    { 3, { 3, 4, 32 } },  { 3, { 2, 4, 18 } },   { 3, { 2, 6, 35 } },  { 3, { 2, 4, 5 } },
    { 3, { 2, 4, 67 } },  { 3, { 2, 68, 4 } },   { 3, { 3, 4, 130 } }, { 3, { 2, 132, 36 } },
    { 3, { 2, 70, 68 } }, { 3, { 11, 12, 10 } },
};

static const tp_dtype dtypes[] = { TP_U8, TP_I32, TP_I64, TP_BF16, TP_F32 };

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

/* The result on D for x = 0, 1, 2, ... mod 251, which every dtype represents exactly. */
static int64_t result(tp_device *D, const struct move *m, tp_dtype dt, tp_shape s, double *y)
{
    static double x[ROOM];
    tp_tape *T = tp_tape_new(D, NULL);
    for (int64_t i = 0; i < ROOM; i++) x[i] = (double)(i % 251);
    const tp_tensor r = m->of(T, values_constant(T, dt, s, x));
    const int64_t n = tp_numel(r);
    cr_assert(n <= ROOM, "ROOM is too small");
    values_read(T, r, y);
    cr_expect(tp_ok(T), "%s of %s: %s", m->name, tp_dtype_name(dt), tp_why(T));
    tp_tape_free(T);
    return n;
}

static void check(tp_device *cpu, tp_device *gpu, const struct move *m, tp_dtype dt, tp_shape s)
{
    static double expected[ROOM], got[ROOM];
    const int64_t n = result(cpu, m, dt, s, expected), size = n * (int64_t)sizeof *got;
    for (int order = 0; order == 0 || device_set_order(order); order++) {
        const int64_t count = result(gpu, m, dt, s, got);
        cr_expect(count == n && memcmp(got, expected, (size_t)size) == 0,
                  "%s, %s[%d,%d,%d], order %d of threads: values differ", m->name,
                  tp_dtype_name(dt), (int)s.dim[0], (int)s.dim[1], (int)s.dim[2], order);
    }
    device_set_order(0);
}

Test(cuda_moves, every_dtype, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 }), *gpu = device_cuda();
    for (int m = 0; m < COUNT(moves); m++)
        for (int s = 0; s < COUNT(shapes); s++)
            for (int d = 0; d < COUNT(dtypes); d++)
                check(cpu, gpu, &moves[m], dtypes[d], shapes[s]);
    tp_device_close(gpu);
    tp_device_close(cpu);
}

/* The gradients of two overlapping slices of x accumulate. */
static void slices_of(tp_device *D, tp_dtype dt, int64_t width, int64_t start, double *gradient)
{
    double v[3 * 64];
    tp_tape *T = tp_tape_new(D, NULL);
    values_random(v, 3 * 64, 4);
    const tp_tensor x = values_input(T, dt, TP_SHAPE(3, 64), v);
    const tp_tensor a = tp_slice(T, x, 1, start, width), b = tp_slice(T, x, 1, 64 - width, width);
    tp_backward(T, tp_sum(T, tp_mul(T, a, b), TP_ALL));
    values_read(T, tp_grad(T, x), gradient);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
}

Test(cuda_moves, slices_add_to_a_gradient)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    static const struct {
        int64_t width, start;
    } cases[] = { { 48, 8 }, { 41, 16 }, { 64, 0 }, { 48, 3 } };
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 }), *gpu = device_cuda();
    for (int i = 0; i < COUNT(cases); i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            double expected[3 * 64], got[3 * 64];
            const tp_dtype dt = bf16 ? TP_BF16 : TP_F32;
            slices_of(cpu, dt, cases[i].width, cases[i].start, expected);
            slices_of(gpu, dt, cases[i].width, cases[i].start, got);
            cr_expect(memcmp(got, expected, sizeof got) == 0, "%s, %d from %d on: gradients differ",
                      tp_dtype_name(dt), (int)cases[i].width, (int)cases[i].start);
        }
    tp_device_close(gpu);
    tp_device_close(cpu);
}

/* Views need no kernel and no memory, forward and backward, and give the same bits. */
Test(cuda_moves, slices_of_everything_cost_nothing)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    enum { ROWS = 8, N = 4096 };
    static double x[ROWS * N], g[2][ROWS * N];
    tp_stats s[2];
    values_random(x, ROWS * N, 1);
    for (int sliced = 0; sliced < 2; sliced++) {
        tp_device *gpu = device_cuda();
        tp_tape *T = tp_tape_new(gpu, NULL);
        const tp_tensor in = values_input(T, TP_BF16, TP_SHAPE(ROWS, N), x);
        const tp_tensor y = sliced ? tp_slice(T, in, 1, 0, N) : in;
        tp_backward(T, tp_sum(T, tp_mul(T, y, y), TP_ALL));
        s[sliced] = tp_device_stats(gpu);
        values_read(T, tp_grad(T, in), g[sliced]);
        cr_expect(tp_ok(T), "%s", tp_why(T));
        tp_tape_free(T);
        tp_device_close(gpu);
    }
    cr_expect_eq(s[1].launches, s[0].launches, "%d launches more",
                 (int)(s[1].launches - s[0].launches));
    cr_expect_eq(s[1].peak_bytes, s[0].peak_bytes, "%d bytes more",
                 (int)(s[1].peak_bytes - s[0].peak_bytes));
    cr_expect(memcmp(g[1], g[0], sizeof g[0]) == 0, "gradients differ");
}

/* The result of scatter_add along the last axis and the gradient of a gather, both with one index
 * that contains each position many times. */
enum { LINES = 3, SIZE = 70, LENGTH = 501 };

static void sums_on(tp_device *D, tp_dtype dt, bool wide, double *out)
{
    static double x[LINES * SIZE], src[LINES * LENGTH], places[LINES * LENGTH];
    tp_tape *T = tp_tape_new(D, NULL);
    values_random(x, LINES * SIZE, 1);
    values_random(src, LINES * LENGTH, 2);
    for (int i = 0; i < LINES * LENGTH; i++) places[i] = i * i % 1009 % SIZE;
    const tp_tensor index =
        values_constant(T, wide ? TP_I64 : TP_I32, TP_SHAPE(LINES, LENGTH), places);
    const tp_tensor a = values_input(T, dt, TP_SHAPE(LINES, SIZE), x);
    const tp_tensor b = values_constant(T, dt, TP_SHAPE(LINES, LENGTH), src);
    values_read(T, tp_scatter_add(T, tp_detach(T, a), 1, index, b), out);
    tp_backward(T, tp_sum(T, tp_mul(T, tp_gather(T, a, 1, index), b), TP_ALL));
    values_read(T, tp_grad(T, a), out + LINES * SIZE);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
}

Test(cuda_moves, sums_over_places)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 }), *gpu = device_cuda();
    for (int i = 0; i < 4; i++) {
        static double expected[2 * LINES * SIZE], got[2 * LINES * SIZE];
        const tp_dtype dt = i & 1 ? TP_BF16 : TP_F32;
        sums_on(cpu, TP_F64, i & 2, expected);
        sums_on(gpu, dt, i & 2, got);
        const double error = values_error(got, expected, 2 * LINES * SIZE, 0.0);
        cr_expect(error <= (i & 1 ? 1e-2 : 1e-6), "%s, %s index: error %.3g", tp_dtype_name(dt),
                  i & 2 ? "i64" : "i32", error);
    }
    tp_device_close(gpu);
    tp_device_close(cpu);
}

/* The device's dropout keeps the same elements as the words of tensor/rng.h, even for seeds and
 * offsets beyond 32 bits, in full packs and a remainder. */
Test(cuda_moves, masks_are_the_words_of_the_cpu)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    enum { N = 1003 };
    static const struct {
        uint64_t seed, offset;
    } streams[] = { { 42, 0 }, { 0x123456789abcdef0u, 0xfedcba9876543210u }, { 7, UINT32_MAX } };
    tp_device *gpu = device_cuda();
    for (int i = 0; i < 2 * COUNT(streams); i++) {
        const uint64_t seed = streams[i / 2].seed, offset = streams[i / 2].offset;
        const tp_dtype dt = i & 1 ? TP_BF16 : TP_F32;
        double y[N];
        tp_tape *T = tp_tape_new(gpu, &(tp_tape_opts){ .train = true });
        tp_set_random_state(T, seed, offset);
        values_read(T, tp_dropout(T, tp_full(T, dt, TP_SHAPE(N), 1.0), 0.5), y);
        cr_expect(tp_ok(T), "%s", tp_why(T));
        for (uint64_t e = 0; e < N; e++)
            cr_assert_eq(y[e], tp__word(seed, offset, e) >= tp__drop_below(0.5) ? 2.0 : 0.0,
                         "%s, stream %d: element %d", tp_dtype_name(dt), i / 2, (int)e);
        tp_tape_free(T);
    }
    tp_device_close(gpu);
}

/* Rows are full packs, end in a partial pack, or are shorter. */
Test(cuda_moves, one_hot)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    static const int64_t widths[] = { 16, 11, 3 };
    tp_device *gpu = device_cuda();
    for (int i = 0; i < 4 * COUNT(widths); i++) {
        const tp_dtype dt = i & 1 ? TP_BF16 : TP_F32, index = i & 2 ? TP_I64 : TP_I32;
        const int64_t n = widths[i / 4];
        double ids[7], y[7 * 16];
        tp_tape *T = tp_tape_new(gpu, NULL);
        for (int k = 0; k < 7; k++) ids[k] = (double)(k * k % n);
        values_read(T, tp_one_hot(T, values_constant(T, index, TP_SHAPE(7), ids), n, dt), y);
        cr_expect(tp_ok(T), "%s", tp_why(T));
        for (int64_t e = 0; e < 7 * n; e++)
            cr_expect(y[e] == (e % n == (int64_t)ids[e / n]),
                      "%s, ids in %s, n %d: element %d is %g", tp_dtype_name(dt),
                      tp_dtype_name(index), (int)n, (int)e, y[e]);
        tp_tape_free(T);
    }
    tp_device_close(gpu);
}
