/* test_op_macs.c - the multiply-adds that ops report, against small cases counted by hand. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <tapegrad/observe.h>
#include <tapegrad/vision.h>

static void add(void *env, tp_tape *tape, const tp_seen *s)
{
    (void)tape;
    *(double *)env += tp_seen_macs(s);
}

static tp_device *D;
static tp_tape *T;
static double macs;

static void begin(void)
{
    D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    T = tp_tape_new(D, NULL);
    tp_record(T, false);
    tp_observe(T, add, &macs);
}

static void end(void)
{
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- single ops ---- */

#define ZEROS(...) tp_full(T, TP_F32, TP_SHAPE(__VA_ARGS__), 0.0)

static void expect(const char *what, double want)
{
    cr_expect(tp_ok(T), "%s: %s", what, tp_why(T));
    cr_expect(macs == want, "%s: %.0f multiply-adds, not %.0f", what, macs, want);
    macs = 0.0;
    tp_reset(T);
}

Test(op_macs, products, .init = begin, .fini = end)
{
    tp_linear(T, ZEROS(2, 3, 5), ZEROS(4, 5), ZEROS(4), TP_ACT_GELU);
    expect("linear", 2 * 3 * 5 * 4);
    tp_matmul(T, ZEROS(2, 3, 5), ZEROS(2, 5, 7));
    expect("matmul", 2 * 3 * 5 * 7);
    tp_matmul_t(T, ZEROS(2, 5, 3), true, ZEROS(7, 5), true);
    expect("matmul, both transposed", 2 * 3 * 5 * 7);
    tp_add(T, ZEROS(4), tp_relu(T, ZEROS(4)));
    tp_mean(T, tp_softmax(T, ZEROS(3, 4)), 0);
    expect("elementwise ops, softmax, reductions", 0);
}

Test(op_macs, convolutions, .init = begin, .fini = end)
{
    const tp_conv_cfg groups = { .pad = { 1, 1 }, .groups = 2 };
    tp_conv2d(T, ZEROS(2, 5, 5, 4), ZEROS(6, 2, 3, 3), TP_NONE, groups);
    expect("conv2d, two groups", 2 * 5 * 5 * 6 * 2 * 9);
    tp_conv2d(T, ZEROS(1, 8, 6, 3), ZEROS(10, 3, 2, 2), ZEROS(10),
              (tp_conv_cfg){ .stride = { 2, 2 } });
    expect("conv2d, patches", 4 * 3 * 10 * 3 * 4);
    tp_conv2d_relu(T, ZEROS(2, 5, 5, 4), ZEROS(6, 2, 3, 3), ZEROS(6), ZEROS(2, 5, 5, 6), groups);
    expect("conv2d_relu, two groups", 2 * 5 * 5 * 6 * 2 * 9);
    tp_conv2d_relu(T, ZEROS(2, 5, 5, 2), ZEROS(2, 1, 3, 3), TP_NONE, ZEROS(2, 5, 5, 2), groups);
    expect("conv2d_relu, depthwise", 2 * 5 * 5 * 2 * 9);
    tp_depthwise_conv2d(T, ZEROS(2, 5, 5, 4), ZEROS(4, 1, 3, 3), TP_NONE,
                        (tp_conv_cfg){ .stride = { 2, 2 }, .pad = { 1, 1 } });
    expect("depthwise_conv2d", 2 * 3 * 3 * 4 * 9);
    tp_depthwise_conv1d(T, ZEROS(2, 7, 4), ZEROS(4, 1, 3), TP_NONE, (tp_conv_cfg){ .pad = { 1 } });
    expect("depthwise_conv1d", 2 * 7 * 4 * 3);
    tp_conv1d(T, ZEROS(2, 7, 4), ZEROS(6, 2, 3), TP_NONE,
              (tp_conv_cfg){ .stride = { 2 }, .pad = { 1 }, .groups = 2 });
    expect("conv1d", 2 * 4 * 6 * 2 * 3);
    tp_conv_transpose2d(T, ZEROS(2, 3, 5, 4), ZEROS(4, 6, 3, 2), TP_NONE,
                        (tp_conv_transpose_cfg){ .stride = { 2, 2 }, .groups = 2 });
    expect("conv_transpose2d", 2 * 3 * 5 * 4 * 6 * 3 * 2);
    tp_conv_transpose1d(T, ZEROS(2, 5, 4), ZEROS(4, 6, 3), TP_NONE, (tp_conv_transpose_cfg){ 0 });
    expect("conv_transpose1d", 2 * 5 * 4 * 6 * 3);
}

Test(op_macs, attention, .init = begin, .fini = end)
{
    const tp_tensor q = ZEROS(2, 3, 8), k = ZEROS(2, 5, 8);
    tp_attention(T, q, k, k, TP_NONE, TP_NONE, (tp_attn_cfg){ .heads = 2 });
    expect("attention", 2 * 2 * 3 * 5 * 8);
    const tp_tensor a = ZEROS(2, 3, 8), b = ZEROS(2, 5, 8);
    tp_attention(T, a, b, b, TP_NONE, TP_NONE, (tp_attn_cfg){ .heads = 2, .causal = true });
    expect("causal attention: 3, 4, 5 keys", 2 * 2 * (3 + 4 + 5) * 8);
    const tp_tensor c = ZEROS(2, 3, 8), d = ZEROS(2, 5, 8), u = ZEROS(2, 4), e = ZEROS(5, 8);
    tp_rel_attention(T, c, d, d, e, u, u, (tp_attn_cfg){ .heads = 2, .max_span = 4 });
    expect("rel_attention: 3, 4, 4 keys", 3 * 2 * (3 + 4 + 4) * 8);
}

Test(op_macs, long_short_attention, .init = begin, .fini = end)
{
    enum { N = 6, CACHED = 4, W = 3, CHUNK = 2, RANK = 2, WIDTH = 4 };
    double pairs = 0.0;
    for (int t = 0; t < N; t++) pairs += W + (CACHED / CHUNK + t / CHUNK) * RANK;
    const tp_tensor rows = ZEROS(1, N + W, WIDTH), vectors = ZEROS(1, 10, WIDTH);
    const tp_ls_in in = { .q = ZEROS(1, N, WIDTH),
                          .k_win = rows,
                          .v_win = rows,
                          .k_cmp = vectors,
                          .v_cmp = vectors,
                          .pos_win = ZEROS(W, WIDTH),
                          .pos_cmp = ZEROS(10, WIDTH),
                          .r_w = ZEROS(2, 2),
                          .r_r = ZEROS(2, 2) };
    tp_ls_attention(T, in,
                    (tp_ls_attn_cfg){ .heads = 2, .chunk = CHUNK, .rank = RANK, .window = W });
    expect("ls_attention", 3 * pairs * WIDTH);
    tp_chunk_project(T, ZEROS(2, 6, 8), ZEROS(2, 6, 6), TP_NONE, 2, 3, 3);
    expect("chunk_project", 2 * 6 * 8 * 3);
    tp_chunk_project_kv(T, ZEROS(2, 6, 8), ZEROS(2, 6, 8), ZEROS(2, 6, 6), TP_NONE, 2, 3, 3);
    expect("chunk_project_kv", 2 * 2 * 6 * 8 * 3);
    const tp_packed of = { tp_full(T, TP_I32, TP_SHAPE(4), 0.0), 5 };
    tp_packed_project_kv(T, ZEROS(12, 8), ZEROS(12, 8), ZEROS(12, 6), of, 2, 3);
    expect("packed documents", 2 * 12 * 8 * 3);
}

/* The number of keys that the query at (y,x) sees in a map of 5 x 7 with chunks of 2 x 3: keys in
 * its own and adjacent chunks, or with exact edges at most 2 rows and 3 columns away. */
static double keys_around(int y, int x, bool exact)
{
    int n = 0;
    for (int u = 0; u < 5; u++)
        for (int v = 0; v < 7; v++)
            n += exact ? abs(u - y) <= 2 && abs(v - x) <= 3
                       : abs(u / 2 - y / 2) <= 1 && abs(v / 3 - x / 3) <= 1;
    return n;
}

Test(op_macs, windows, .init = begin, .fini = end)
{
    for (int exact = 0; exact < 2; exact++) {
        double pairs = 0.0;
        for (int i = 0; i < 35; i++) pairs += keys_around(i / 7, i % 7, exact) + 2 + 3;
        const tp_tensor x = ZEROS(2, 37, 8), low = ZEROS(2, 3, 8);
        tp_window_attention_2d(
            T, (tp_window_in){ .q = x, .k = x, .v = x, .low_k = low, .low_v = low },
            (tp_window_attn_cfg){ .heads = 2,
                                  .height = 5,
                                  .width = 7,
                                  .global = 2,
                                  .window = { 2, 3 },
                                  .halo = { 2, 3 },
                                  .edge = exact ? TP_EDGE_EXACT : TP_EDGE_MASK });
        expect(exact ? "window attention, exact" : "window attention", 2 * 2 * pairs * 8);
    }
    const tp_tensor rows = ZEROS(12, 8), ends = tp_full(T, TP_I32, TP_SHAPE(4), 0.0);
    tp_window_attention_2d(
        T, (tp_window_in){ .q = rows, .k = rows, .v = rows, .offset = ends },
        (tp_window_attn_cfg){
            .heads = 2, .height = 1, .width = 6, .window = { 1, 3 }, .halo = { 0, 1 } });
    expect("packed sequences", 2 * 2 * 6 * 4 * 8); /* as two of 6: 4 keys per token */
    const tp_packed of = { tp_full(T, TP_I32, TP_SHAPE(4), 0.0), 6 };
    tp_packed_attention(T, ZEROS(12, 8), ZEROS(12, 8), ZEROS(12, 8), of, of,
                        (tp_attn_cfg){ .heads = 2 });
    expect("packed attention", 2 * 12 * 4 * 8); /* as three of 4 */
    const tp_tensor x = ZEROS(2, 24, 8);
    tp_lsla_attention(T, x, x, x, TP_NONE, TP_NONE, TP_NONE,
                      (tp_lsla_attn_cfg){ .heads = 2, .height = 4, .width = 6, .window = 2 });
    expect("lsla_attention", 2 * 2 * 24 * 4 * 8);
}

extern const tp_op *const tp_op_table[];

Test(op_macs, ops_of_the_compute_dtype_count)
{
    for (int i = 0; tp_op_table[i]; i++)
        if (tp_op_table[i]->flags & TP_COMPUTES)
            cr_expect(tp_op_table[i]->macs, "%s does not count", tp_op_table[i]->name);
}
