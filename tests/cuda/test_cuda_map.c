/* test_cuda_map.c - attention over maps on the CUDA device in bf16, against the CPU in f64, on maps
 * too large for finite differences: heads for tensor cores, several tiles of queries and keys,
 * every kind of edge, masks, dropout, packed documents. The result and each gradient are compared,
 * in several orders of threads. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/op.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/values.h"
#include "tensor/bf16.h"
#include "tensor/geometry/window.h"
#ifdef TP_EMULATION
#include "cuda_emulation/emulation.h"
#endif

extern const tp_op tp_op_window_attention, tp_op_lsla_attention;

enum { INPUTS = WIN_NX, ROOM = 16384, DOCUMENTS = 6 }; /* ROOM: largest tensor, in elements */

typedef struct problem {
    const char *name;
    const tp_op *op;
    const void *attr;
    tp_shape in[INPUTS];
    bool same;     /* values are the keys */
    bool hidden;   /* there are masks of tokens and of low keys */
    int documents; /* 0: not packed */
    int64_t rows[DOCUMENTS];
} problem;

/* clang-format off */
/* q, k, v; low keys; table; bias of global keys. */
#define IN(B, N, C, r, rows, h, g)                                                                 \
    .in = { { 3, { B, N, C } }, { 3, { B, N, C } }, { 3, { B, N, C } },                            \
            { (r) ? 3 : 0, { B, r, C } }, { (r) ? 3 : 0, { B, r, C } },                            \
            { (rows) ? 2 : 0, { rows, h } }, { (g) ? 2 : 0, { h, g } } }
/* Packed documents: q, k, v [M,C]; low keys of n documents. */
#define PACKED(M, n, C, r, ...)                                                                    \
    .in = { { 2, { M, C } }, { 2, { M, C } }, { 2, { M, C } },                                     \
            { (r) ? 3 : 0, { n, r, C } }, { (r) ? 3 : 0, { n, r, C } } },                          \
    .documents = n, .rows = { __VA_ARGS__ }
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
#define LINE(n, w, s) .height = 1, .width = n, .window = { 1, w }, .halo = { 0, s }
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
    { "dropout, heads of 32, a global token",
      WINDOW(2, MAP(9, 12), .global = 1, SQUARE(4, 4), .dropout = 0.1),
      IN(1, 109, 64, 0, 225, 2, 1) },
    { "dropout, heads of 64, exact, masks",
      WINDOW(1, MAP(9, 13), .global = 1, SQUARE(4, 4), .edge = TP_EDGE_EXACT, .dropout = 0.3),
      IN(2, 118, 64, 0, 225, 1, 1), .hidden = true },
    { "dropout, cyclic, parts of chunks",
      WINDOW(1, MAP(11, 10), .global = 2, SQUARE(4, 4), .edge = TP_EDGE_CYCLIC, .dropout = 0.5),
      IN(1, 112, 32, 0, 225, 1, 2) },
    { "dropout, a narrow cyclic map",
      WINDOW(1, MAP(11, 5), SQUARE(4, 4), .edge = TP_EDGE_CYCLIC, .dropout = 0.2),
      IN(1, 55, 40, 3, 225, 1, 0), .hidden = true },
    { "dropout, shift 5",
      WINDOW(1, MAP(9, 9), .global = 1, SQUARE(4, 4), .block = 5, .dropout = 0.2),
      IN(2, 82, 32, 0, 225, 1, 1) },
    { "dropout, tiles of queries and keys",
      WINDOW(1, MAP(13, 11), .global = 1, SQUARE(9, 9), .block = TP_BLOCK_OWN, .dropout = 0.1),
      IN(1, 144, 56, 6, 35 * 35, 1, 1) },
    { "dropout, many low keys, masks", WINDOW(1, MAP(6, 6), SQUARE(3, 1), .dropout = 0.4),
      IN(2, 36, 16, 70, 49, 1, 0), .hidden = true },
    { "dropout, no window", WINDOW(2, MAP(9, 10), .global = 3, .dropout = 0.1),
      IN(1, 93, 64, 4, 0, 2, 3) },
    { "dropout, a line, low keys",
      WINDOW(1, LINE(150, 16, 8), .dropout = 0.1), IN(1, 150, 64, 9, 0, 1, 0) },
    { "dropout, an exact line, masks",
      WINDOW(2, LINE(173, 32, 32), .edge = TP_EDGE_EXACT, .dropout = 0.2),
      IN(1, 173, 64, 2, 0, 2, 0), .hidden = true },
    { "dropout, an exact line, tiles",
      WINDOW(1, LINE(200, 100, 100), .global = 1, .edge = TP_EDGE_EXACT, .dropout = 0.1),
      IN(1, 201, 64, 0, 0, 1, 1) },
    { "heads of 128, a global token", WINDOW(1, MAP(9, 12), .global = 1, SQUARE(4, 4)),
      IN(1, 109, 128, 0, 225, 1, 1) },
    { "heads of 104, tiles of queries and keys",
      WINDOW(1, .height = 13, .width = 11, .window = { 13, 11 }),
      IN(1, 143, 104, 0, 25 * 21, 1, 0) },
    { "dropout, heads of 72, exact, masks",
      WINDOW(1, MAP(8, 13), .global = 1, SQUARE(4, 4), .edge = TP_EDGE_EXACT, .dropout = 0.3),
      IN(2, 105, 72, 0, 225, 1, 1), .hidden = true },
    { "dropout, heads of 128, cyclic",
      WINDOW(1, MAP(7, 9), SQUARE(3, 3), .edge = TP_EDGE_CYCLIC, .dropout = 0.2),
      IN(1, 63, 128, 3, 121, 1, 0) },
    { "dropout, heads of 96, an exact line",
      WINDOW(1, LINE(150, 32, 32), .edge = TP_EDGE_EXACT, .dropout = 0.1),
      IN(1, 150, 96, 2, 0, 1, 0) },
    { "packed, one document", WINDOW(1, LINE(77, 8, 4)), PACKED(77, 1, 32, 0, 77) },
    { "dropout, packed, low keys, a looser bound", WINDOW(2, LINE(230, 16, 8), .dropout = 0.2),
      PACKED(242, 6, 64, 9, 70, 1, 0, 131, 3, 37) },
    { "dropout, packed, heads of 64, exact, masks",
      WINDOW(1, LINE(90, 32, 32), .edge = TP_EDGE_EXACT, .dropout = 0.1),
      PACKED(253, 5, 64, 2, 90, 1, 65, 33, 64), .hidden = true },
    { "dropout, packed, exact, windows of one token",
      WINDOW(3, LINE(70, 1, 1), .edge = TP_EDGE_EXACT, .dropout = 0.4),
      PACKED(138, 4, 72, 0, 66, 1, 1, 70) },
    { "dropout, packed, several spans", WINDOW(1, LINE(601, 70, 35), .dropout = 0.1),
      PACKED(1126, 4, 8, 3, 1, 523, 1, 601) },
    { "dropout, packed, no window, masks", WINDOW(2, MAP(1, 520), .dropout = 0.2),
      PACKED(587, 4, 16, 70, 520, 0, 1, 66), .hidden = true },
    { "dropout, packed, heads of 128",
      WINDOW(1, LINE(60, 16, 16), .edge = TP_EDGE_EXACT, .dropout = 0.1),
      PACKED(126, 4, 128, 2, 60, 1, 33, 32) },
    { "dropout, packed, heads of 80, masks", WINDOW(2, LINE(67, 9, 0), .dropout = 0.3),
      PACKED(99, 4, 160, 5, 67, 0, 3, 29), .hidden = true },
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
    { "windows of 7, dropout", LSLA(2, MAP(14, 21), .window = 7, .shift = 3, .dropout = 0.3),
      TABLES(1, 294, 48, 7, 2) },
    { "windows of 7, masked, dropout, heads of 64",
      LSLA(1, MAP(14, 7), .window = 7, .shift = 2, .mask_outer = true, .dropout = 0.1),
      TABLES(2, 98, 64, 7, 1) },
    { "windows of 8, dropout", LSLA(2, MAP(8, 16), .window = 8, .shift = 4, .dropout = 0.5),
      TABLES(1, 128, 64, 8, 2) },
    { "windows of 8, dropout, values are the keys, heads of 64",
      LSLA(1, MAP(8, 16), .window = 8, .dropout = 0.2), TABLES(1, 128, 56, 8, 1), .same = true },
    { "windows of 5, dropout, no tables", LSLA(3, MAP(5, 10), .window = 5, .dropout = 0.4),
      .in = { { 3, { 2, 50, 72 } }, { 3, { 2, 50, 72 } }, { 3, { 2, 50, 72 } } } },
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

/* Hides every third row, and from batch row 1 on those after the twentieth. */
static tp_tensor mask_of(tp_tape *T, int64_t batch, int64_t rows)
{
    static uint8_t shown[ROOM];
    cr_assert_leq(batch * rows, ROOM);
    for (int64_t i = 0; i < batch * rows; i++)
        shown[i] = i % rows % 3 != 1 && (i < rows || i % rows < 20);
    return tp_from(T, TP_U8, TP_SHAPE(batch, rows), shown);
}

/* Masks of tokens and of low keys. */
static void hide(tp_tape *T, const problem *p, tp_tensor x[INPUTS])
{
    const int64_t *tokens = p->in[WIN_Q].dim, *low = p->in[WIN_LOW_K].dim;
    x[WIN_MASK] = p->documents ? tp_reshape(T, mask_of(T, 1, tokens[0]), TP_SHAPE(tokens[0]))
                               : mask_of(T, tokens[0], tokens[1]);
    if (tp_given(x[WIN_LOW_K])) x[WIN_LOW_MASK] = mask_of(T, low[0], low[1]);
}

/* The first rows of packed documents, in one of both types. */
static tp_tensor offsets(tp_tape *T, const problem *p)
{
    int64_t wide[DOCUMENTS + 1] = { 0 };
    int32_t narrow[DOCUMENTS + 1] = { 0 };
    for (int i = 0; i < p->documents; i++) {
        wide[i + 1] = wide[i] + p->rows[i];
        narrow[i + 1] = (int32_t)wide[i + 1];
    }
    cr_assert_eq(wide[p->documents], p->in[WIN_Q].dim[0], "%s", p->name);
    const tp_shape s = TP_SHAPE(p->documents + 1);
    return p->documents % 2 ? tp_from(T, TP_I64, s, wide) : tp_from(T, TP_I32, s, narrow);
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
    if (p->hidden) hide(T, p, x);
    if (p->documents) x[WIN_OFFSET] = offsets(T, p);
    const tp_tensor y = tp_apply_n(T, p->op, p->attr, p->op->nx, x, 1, NULL);
    take(T, y, 0, a);
    values(tp_shape_of(y), 99, v);
    tp_backward(T, tp_sum(T, tp_mul(T, y, values_constant(T, dt, tp_shape_of(y), v)), TP_ALL));
    for (int i = 0; i < p->op->nx; i++)
        if (p->in[i].ndim > 0) take(T, tp_grad(T, x[i]), 1 + i, a);
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
    for (int order = device_other_order(); device_set_order(order); order++) {
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

#ifdef TP_EMULATION
/* The threads that a call and its gradients start. */
static uint64_t threads_of(tp_device *D, const problem *p, double dropout, double scale)
{
    static answer unused;
    tp_window_attn_cfg cfg = *(const tp_window_attn_cfg *)p->attr;
    problem changed = *p;
    cfg.dropout = dropout;
    cfg.scale = scale;
    changed.attr = &cfg;
    const uint64_t before = emulation_threads();
    run(D, &changed, TP_BF16, &unused);
    return emulation_threads() - before;
}

/* The tensor cores do not serve tiny scales, and their grids are their own. */
Test(cuda_map, dropout_stays_on_tensor_cores, .timeout = 600)
{
    tp_device *gpu = device_cuda();
    for (int k = 0; k < PROBLEMS; k++) {
        const problem *p = &problems[k];
        if (strncmp(p->name, "dropout", 7) != 0) continue;
        const uint64_t without = threads_of(gpu, p, 0.0, 0.3), with = threads_of(gpu, p, 0.1, 0.3);
        cr_expect_eq(with, without, "%s", p->name);
        cr_expect_neq(threads_of(gpu, p, 0.1, 1e-7), with, "%s", p->name);
    }
    tp_device_close(gpu);
}
#endif
