/* test_cuda_map.c - attention over maps on the CUDA device in bf16, against the CPU in f64, on maps
 * too large for finite differences: heads for tensor cores, several tiles of queries and keys,
 * every kind of edge. The result and each gradient are compared, in several orders of threads. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/op.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/values.h"
#include "tensor/bf16.h"
#include "tensor/geometry/window.h"

extern const tp_op tp_op_window_attention, tp_op_lsla_attention;

enum { INPUTS = WIN_NX, ROOM = 16384 }; /* ROOM: largest tensor, in elements */

typedef struct problem {
    const char *name;
    const tp_op *op;
    const void *attr;
    tp_shape in[INPUTS];
    bool same; /* values are the keys */
} problem;

/* clang-format off */
/* q, k, v; low keys; table; bias of global keys. */
#define IN(B, N, C, r, rows, h, g)                                                                 \
    .in = { { 3, { B, N, C } }, { 3, { B, N, C } }, { 3, { B, N, C } },                            \
            { (r) ? 3 : 0, { B, r, C } }, { (r) ? 3 : 0, { B, r, C } },                            \
            { (rows) ? 2 : 0, { rows, h } }, { (g) ? 2 : 0, { h, g } } }
#define WINDOW(...)                                                                                \
    .op = &tp_op_window_attention,                                                                 \
    .attr = &(const tp_window_attn_cfg){ .heads = __VA_ARGS__ }
/* q, k, v [B,N,C]; scale and tables of window w and h heads. */
#define TABLES(B, N, C, w, h)                                                                      \
    .in = { { 3, { B, N, C } }, { 3, { B, N, C } }, { 3, { B, N, C } },                            \
            { 2, { (w) * (w), (w) * (w) } },                                                       \
            { 2, { (2 * (w) - 1) * (2 * (w) - 1), h } },                                           \
            { 2, { (2 * (w) - 1) * (2 * (w) - 1), h } } }
#define LSLA(...)                                                                                  \
    .op = &tp_op_lsla_attention, .attr = &(const tp_lsla_attn_cfg){ .heads = __VA_ARGS__ }
#define MAP(h, w) .height = h, .width = w
#define SQUARE(w, s) .window = { w, w }, .halo = { s, s }

static const problem problems[] = {
    { "heads of 32, a global token", WINDOW(2, MAP(9, 12), .global = 1, SQUARE(4, 4)),
      IN(1, 109, 64, 0, 225, 2, 1) },
    { "windows of 7", WINDOW(1, MAP(14, 15), SQUARE(7, 7)), IN(1, 210, 32, 0, 729, 1, 0) },
    { "heads of 64, exact",
      WINDOW(1, MAP(10, 13), .global = 1, SQUARE(4, 4), .edge = TP_EDGE_EXACT),
      IN(1, 131, 64, 0, 225, 1, 1) },
    { "exact, no table", WINDOW(2, MAP(7, 8), SQUARE(3, 3), .edge = TP_EDGE_EXACT),
      IN(2, 56, 32, 0, 0, 2, 0) },
    { "cyclic, parts of chunks",
      WINDOW(1, MAP(11, 10), .global = 2, SQUARE(4, 4), .edge = TP_EDGE_CYCLIC),
      IN(1, 112, 32, 0, 225, 1, 2) },
    { "cyclic, one chunk", WINDOW(1, MAP(5, 6), SQUARE(6, 6), .edge = TP_EDGE_CYCLIC),
      IN(2, 30, 32, 0, 529, 1, 0) },
    { "cyclic, two chunks", WINDOW(1, MAP(7, 8), SQUARE(4, 4), .edge = TP_EDGE_CYCLIC),
      IN(1, 56, 32, 0, 225, 1, 0) },
    { "cyclic, wrapped cells masked",
      WINDOW(1, MAP(11, 5), SQUARE(4, 4), .edge = TP_EDGE_CYCLIC, .mask_wrapped = true),
      IN(1, 55, 32, 0, 225, 1, 0) },
    { "own chunk, tiles of queries",
      WINDOW(1, MAP(13, 11), .global = 1, SQUARE(9, 9), .block = TP_BLOCK_OWN),
      IN(1, 144, 32, 0, 35 * 35, 1, 1) },
    { "shift 1", WINDOW(1, MAP(9, 9), .global = 1, SQUARE(4, 4), .block = 1),
      IN(2, 82, 32, 0, 225, 1, 1) },
    { "shift 5, cyclic", WINDOW(1, MAP(9, 9), SQUARE(4, 4), .block = 5, .edge = TP_EDGE_CYCLIC),
      IN(1, 81, 32, 0, 225, 1, 0) },
    { "shift 8", WINDOW(1, MAP(9, 9), SQUARE(4, 4), .block = 8), IN(1, 81, 32, 0, 0, 1, 0) },
    { "low keys", WINDOW(2, MAP(14, 8), .global = 1, SQUARE(7, 3)), IN(1, 113, 64, 8, 0, 2, 0) },
    { "low keys, a table that collides",
      WINDOW(1, MAP(8, 16), .global = 1, SQUARE(8, 4), .reach = { 11, 11 }, .stride = 16),
      IN(1, 129, 32, 4, 375, 1, 0) },
    { "many low keys", WINDOW(1, MAP(6, 6), SQUARE(3, 1)), IN(2, 36, 16, 70, 49, 1, 0) },
    { "no window", WINDOW(2, MAP(9, 10), .global = 3), IN(1, 93, 64, 4, 0, 2, 3) },
    { "tiles of queries and keys, a scale",
      WINDOW(1, .height = 13, .width = 11, .window = { 13, 11 }, .scale = 0.4),
      IN(1, 143, 24, 0, 25 * 21, 1, 0) },
    { "a window of two sizes",
      WINDOW(1, .height = 11, .width = 14, .window = { 5, 9 }, .halo = { 2, 7 }),
      IN(1, 154, 40, 0, 13 * 31, 1, 0) },
    { "just too large for tensor cores backward",
      WINDOW(1, .height = 13, .width = 20, .window = { 13, 20 }, .halo = { 13, 20 }),
      IN(1, 260, 40, 0, 51 * 79, 1, 0) },
    { "windows of 7, shifted", LSLA(2, MAP(14, 7), .window = 7, .shift = 3),
      TABLES(1, 98, 64, 7, 2) },
    { "windows of 8, shifted, masked",
      LSLA(1, MAP(8, 16), .window = 8, .shift = 4, .mask_outer = true), TABLES(1, 128, 64, 8, 1) },
    { "windows of 7, slices of two", LSLA(1, MAP(28, 14), .window = 7, .shift = 3),
      TABLES(1, 392, 32, 7, 1) },
    { "windows of 6, parts of heads of 64",
      LSLA(1, MAP(12, 6), .window = 6, .shift = 2, .mask_outer = true), TABLES(2, 72, 40, 6, 1) },
    { "values are the keys", LSLA(1, MAP(14, 14), .window = 7, .shift = 3),
      TABLES(1, 196, 32, 7, 1), .same = true },
    { "values are the keys, heads of 64", LSLA(1, MAP(8, 16), .window = 8),
      TABLES(1, 128, 64, 8, 1), .same = true },
    { "windows of 4", LSLA(2, MAP(8, 12), .window = 4), TABLES(1, 96, 32, 4, 2) },
    { "a fixed scale, no tables", LSLA(1, MAP(5, 10), .window = 5, .shift = 2),
      .in = { { 3, { 2, 50, 40 } }, { 3, { 2, 50, 40 } }, { 3, { 2, 50, 40 } } } },
    { "windows of 9", LSLA(1, MAP(9, 9), .window = 9), TABLES(1, 81, 32, 9, 1) },
};
/* clang-format on */
enum { PROBLEMS = sizeof problems / sizeof *problems };

/* The result, then the gradients of the inputs. */
typedef struct answer {
    int64_t n[1 + INPUTS];
    double v[1 + INPUTS][ROOM];
} answer;

/* Values exact in bf16, for equality on all devices. */
static void values(tp_shape s, uint64_t seed, double x[ROOM])
{
    int64_t n = 1;
    for (int a = 0; a < s.ndim; a++) n *= s.dim[a];
    cr_assert_leq(n, ROOM);
    values_random(x, n, seed);
    for (int64_t e = 0; e < n; e++) x[e] = (double)tp__from_bf16(tp__to_bf16((float)x[e]));
}

static void take(tp_tape *T, tp_tensor x, int i, answer *a)
{
    a->n[i] = tp_numel(x);
    values_read(T, x, a->v[i]);
}

static void run(tp_device *D, const problem *p, tp_dtype dt, answer *a)
{
    static double v[ROOM];
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = dt, .train = true });
    tp_tensor x[INPUTS] = { TP_NONE };
    memset(a, 0, sizeof *a);
    for (int i = 0; i < p->op->nx; i++) {
        if (p->in[i].ndim == 0) continue;
        values(p->in[i], (uint64_t)i + 1, v);
        x[i] = p->same && i == 2 ? x[1] : values_input(T, dt, p->in[i], v);
    }
    const tp_tensor y = tp_apply_n(T, p->op, p->attr, p->op->nx, x, 1, NULL);
    take(T, y, 0, a);
    values(tp_shape_of(y), 99, v);
    tp_backward(T, tp_sum(T, tp_mul(T, y, values_constant(T, dt, tp_shape_of(y), v)), TP_ALL));
    for (int i = 0; i < p->op->nx; i++)
        if (tp_given(x[i])) take(T, tp_grad(T, x[i]), 1 + i, a);
    cr_expect(tp_ok(T), "%s, %s: %s", p->name, tp_dtype_name(dt), tp_why(T));
    tp_tape_free(T);
}

static void check(tp_device *cpu, tp_device *gpu, const problem *p)
{
    static answer exact, got, again;
    run(cpu, p, TP_F64, &exact);
    run(gpu, p, TP_BF16, &got);
    for (int i = 0; i <= p->op->nx; i++) {
        if (exact.n[i] == 0) continue;
        const double error = values_error(got.v[i], exact.v[i], exact.n[i], 1e-3);
        cr_expect(error <= 2e-2, "%s %s, part %d (0: result): error %.3g", p->op->name, p->name, i,
                  error);
    }
    for (int order = 1; device_set_order(order); order++) {
        run(gpu, p, TP_BF16, &again);
        cr_expect(memcmp(&again, &got, sizeof got) == 0,
                  "%s %s: order %d of threads gives other bits", p->op->name, p->name, order);
    }
    device_set_order(0);
}

Test(cuda_map, bf16, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_device *gpu = device_cuda();
    for (int k = 0; k < PROBLEMS; k++) check(cpu, gpu, &problems[k]);
    cr_expect_eq(tp_device_stats(gpu).live_bytes, 0, "memory is returned");
    tp_device_close(gpu);
    tp_device_close(cpu);
}
