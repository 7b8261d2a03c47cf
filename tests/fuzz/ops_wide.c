/* ops_wide.c - instructions of fuzz_ops with many arguments: convolution, pooling, attention. */
#define TP_NO_SITE
#include <string.h>

#include "ops_fuzzer.h"

static tp_tensor conv(ops_env *e, const ops_row *r)
{
    const int axes = strcmp(r->name, "depthwise_conv1d") == 0 ? 1 : 2;
    const ops_pick x = ops_map(e, axes + 2);
    const int64_t C = ops_dim(x.s, -1);
    const tp_tensor w = ops_input(e, axes == 1 ? TP_SHAPE(C, 1, ops_size(e))
                                               : TP_SHAPE(C, 1, ops_size(e), ops_size(e)));
    const tp_tensor b = ops_maybe(e, TP_SHAPE(C));
    const int64_t stride = ops_integer(e), pad = ops_integer(e), dilation = ops_integer(e);
    tp_conv_cfg cfg = { .stride = { stride }, .pad = { pad }, .dilation = { dilation } };
    if (axes == 2) cfg.stride[1] = stride, cfg.pad[1] = pad, cfg.dilation[1] = dilation;
    const op_value v[] = { { x.t }, { w }, { b }, { .of_conv_cfg = cfg } };
    return ops_call(e, r, v);
}

static void two(ops_env *e, int64_t to[2])
{
    to[0] = ops_integer(e);
    to[1] = ops_flag(e) ? to[0] : ops_integer(e);
}

static tp_tensor conv2d(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_conv_cfg cfg = { .groups = ops_integer(e) };
    const int64_t g = cfg.groups > 0 && cfg.groups < 16 ? cfg.groups : 1;
    const tp_shape map = TP_SHAPE(ops_size(e), ops_size(e), ops_size(e), ops_times(g, ops_size(e)));
    const ops_pick x = ops_take(e, map, OPS_FLOATS);
    const int64_t Co = ops_times(g, ops_size(e)), Ci = ops_dim(x.s, -1) / g;
    const tp_tensor w = ops_input(e, TP_SHAPE(Co, Ci, ops_size(e), ops_size(e)));
    const tp_tensor b = ops_maybe(e, TP_SHAPE(Co));
    two(e, cfg.stride);
    two(e, cfg.pad);
    two(e, cfg.dilation);
    return tp_conv2d(ops_tape(e), x.t, w, b, ops_flag(e) ? (tp_conv_cfg){ 0 } : cfg);
}

/* Often a 1x1 convolution, which keeps the residual's size. */
static tp_tensor conv2d_relu(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_conv_cfg cfg = { .groups = ops_integer(e) };
    const int64_t g = cfg.groups > 0 && cfg.groups < 16 ? cfg.groups : 1;
    const tp_shape map = TP_SHAPE(ops_size(e), ops_size(e), ops_size(e), ops_times(g, ops_size(e)));
    const ops_pick x = ops_take(e, map, OPS_FLOATS);
    const int64_t Co = ops_times(g, ops_size(e)), side = ops_flag(e) ? ops_size(e) : 1;
    const tp_tensor w = ops_input(e, TP_SHAPE(Co, ops_dim(x.s, -1) / g, side, side));
    const tp_tensor b = ops_maybe(e, TP_SHAPE(Co));
    const tp_tensor residual =
        ops_maybe(e, TP_SHAPE(ops_dim(x.s, 0), ops_dim(x.s, 1), ops_dim(x.s, 2), Co));
    if (ops_flag(e)) two(e, cfg.pad);
    return tp_conv2d_relu(ops_tape(e), x.t, w, b, residual, cfg);
}

static tp_tensor conv1d(ops_env *e, const ops_row *r)
{
    (void)r;
    tp_conv_cfg cfg = { .groups = ops_integer(e) };
    const int64_t g = cfg.groups > 0 && cfg.groups < 16 ? cfg.groups : 1;
    const tp_shape line = TP_SHAPE(ops_size(e), ops_size(e), ops_times(g, ops_size(e)));
    const ops_pick x = ops_take(e, line, OPS_FLOATS);
    const int64_t Co = ops_times(g, ops_size(e)), Ci = ops_dim(x.s, -1) / g;
    const tp_tensor w = ops_input(e, TP_SHAPE(Co, Ci, ops_size(e)));
    const tp_tensor b = ops_maybe(e, TP_SHAPE(Co));
    cfg.stride[0] = ops_integer(e);
    cfg.pad[0] = ops_integer(e);
    cfg.dilation[0] = ops_integer(e);
    return tp_conv1d(ops_tape(e), x.t, w, b, cfg);
}

static tp_tensor conv_transpose(ops_env *e, const ops_row *r)
{
    const int axes = strcmp(r->name, "conv_transpose1d") == 0 ? 1 : 2;
    tp_conv_transpose_cfg cfg = { .groups = ops_integer(e) };
    const int64_t g = cfg.groups > 0 && cfg.groups < 16 ? cfg.groups : 1;
    const ops_pick x = ops_map(e, axes + 2);
    const int64_t Co = ops_size(e), Ci = ops_dim(x.s, -1);
    const tp_tensor w = ops_input(e, axes == 1 ? TP_SHAPE(Ci, Co, ops_size(e))
                                               : TP_SHAPE(Ci, Co, ops_size(e), ops_size(e)));
    const tp_tensor b = ops_maybe(e, TP_SHAPE(ops_times(g, Co)));
    int64_t *const to[] = { cfg.stride, cfg.pad, cfg.dilation, cfg.output_pad };
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < axes; k++) to[i][k] = ops_integer(e);
    const op_value v[] = { { x.t }, { w }, { b }, { .of_conv_transpose_cfg = cfg } };
    return ops_call(e, r, v);
}

static tp_tensor pool(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_map(e, 4);
    tp_pool_cfg o = { .ignore_pad = ops_flag(e) };
    two(e, o.kernel);
    two(e, o.stride);
    two(e, o.pad);
    o.ceil = ops_flag(e);
    const op_value v[] = { { x.t }, { .of_pool_cfg = o } };
    return ops_call(e, r, v);
}

static tp_tensor adaptive_pool(ops_env *e, const ops_row *r)
{
    const ops_pick x = ops_map(e, 4);
    const int64_t height = ops_flag(e) ? ops_integer(e) : ops_size(e), width = ops_size(e);
    const op_value v[] = { { x.t }, { .of_int64 = height }, { .of_int64 = width } };
    return ops_call(e, r, v);
}

static tp_unfold_cfg draw_windows(ops_env *e)
{
    tp_unfold_cfg cfg;
    two(e, cfg.kernel);
    two(e, cfg.stride);
    two(e, cfg.pad);
    two(e, cfg.dilation);
    return cfg;
}

static tp_tensor unfold(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_map(e, 4);
    return tp_unfold(ops_tape(e), x.t, draw_windows(e));
}

/* The number of windows of an axis of size n, if small. */
static int64_t windows(int64_t n, const tp_unfold_cfg *cfg, int i)
{
    const int64_t k = cfg->kernel[i], s = cfg->stride[i] ? cfg->stride[i] : 1, p = cfg->pad[i];
    const int64_t d = cfg->dilation[i] ? cfg->dilation[i] : 1, most = 1 << 20;
    if (k < 1 || k > most || s < 1 || p < 0 || p > most || d < 1 || d > most || n < 1 || n > most)
        return 1;
    const int64_t room = n + 2 * p - d * (k - 1) - 1;
    return room < 0 ? 0 : room / s + 1;
}

static tp_tensor fold(ops_env *e, const ops_row *r)
{
    (void)r;
    const tp_unfold_cfg cfg = draw_windows(e);
    const int64_t height = ops_size(e), width = ops_size(e);
    const int64_t taps = ops_times(cfg.kernel[0], cfg.kernel[1]);
    const tp_tensor x =
        ops_input(e, TP_SHAPE(ops_size(e), ops_near(e, windows(height, &cfg, 0)),
                              windows(width, &cfg, 1), ops_times(taps, ops_size(e))));
    return tp_fold(ops_tape(e), x, height, width, cfg);
}

static tp_tensor interpolate(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_map(e, 4);
    const int64_t height = ops_size(e), width = ops_size(e);
    const uint8_t b = ops_byte(e);
    return tp_interpolate(ops_tape(e), x.t, height, width, (tp_interpolation)(b < 250 ? b & 3 : b),
                          ops_flag(e));
}

static tp_tensor roi_align(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick first = ops_map(e, 4);
    const int levels = 1 + ops_byte(e) % 4;
    tp_tensor map[4] = { first.t };
    tp_roi_align_cfg cfg = { .samples = ops_flag(e) ? ops_int(e) : 0, .aligned = ops_flag(e) };
    for (int l = 1; l < levels; l++)
        map[l] = ops_input(e, TP_SHAPE(ops_near(e, ops_dim(first.s, 0)), ops_size(e), ops_size(e),
                                       ops_near(e, ops_dim(first.s, 3))));
    for (int l = 0; l < levels; l++) cfg.scale[l] = ops_flag(e) ? ops_number(e) : 0.0;
    for (int k = 0; k < 2; k++) cfg.size[k] = ops_size(e);
    const int64_t n = ops_size(e);
    const tp_tensor boxes = ops_input(e, TP_SHAPE(n, 4)), place = ops_ids(e, TP_SHAPE(n, 2));
    return tp_roi_align(ops_tape(e),
                        ops_flag(e)   ? levels
                        : ops_byte(e) ? levels
                                      : 0,
                        map, boxes, place, cfg);
}

/* ---- attention ---- */

/* Sizes that most attentions share, and the number of heads passed to the op. */
typedef struct sizes {
    int64_t B, N, S, H, D, C;
    int heads;
} sizes;

static sizes draw_sizes(ops_env *e)
{
    sizes z = { ops_size(e), ops_size(e), ops_size(e), ops_size(e), ops_size(e), 0, 0 };
    z.C = ops_times(z.H, z.D);
    const int64_t heads = ops_near(e, z.H);
    z.heads = heads < INT32_MIN || heads > INT32_MAX ? -1 : (int)heads;
    return z;
}

static tp_attn_cfg draw_cfg(ops_env *e, int heads)
{
    return (tp_attn_cfg){ .heads = heads,
                          .causal = ops_flag(e),
                          .scale = ops_flag(e) ? ops_number(e) : 0.0,
                          .dropout = ops_flag(e) ? ops_number(e) : 0.0,
                          .max_span = ops_flag(e) ? ops_integer(e) : 0 };
}

static tp_tensor attention(ops_env *e, const ops_row *r)
{
    (void)r;
    const sizes z = draw_sizes(e);
    const uint8_t how = ops_byte(e);
    const int64_t kv_heads = how & 1 ? ops_size(e) : 0;
    const int64_t kv = kv_heads ? ops_times(kv_heads, z.D) : z.C;
    const tp_tensor q = ops_input(e, TP_SHAPE(z.B, z.N, z.C));
    const tp_tensor k = ops_input(e, TP_SHAPE(z.B, z.S, kv));
    const tp_tensor v = ops_input(e, TP_SHAPE(z.B, z.S, kv));
    const int64_t keys = how & 2 ? ops_near(e, z.S / 2) : 0, S = keys > 0 ? keys : z.S;
    const tp_tensor mask = ops_flag(e) ? ops_take(e, TP_SHAPE(z.B, S), OPS_MASK).t : TP_NONE;
    const tp_tensor bias = how & 4       ? ops_input(e, TP_SHAPE(z.H))
                           : ops_flag(e) ? ops_maybe(e, TP_SHAPE(z.H, z.N, S))
                                         : ops_maybe(e, TP_SHAPE(z.B, z.H, z.N, S));
    tp_attn_cfg cfg = draw_cfg(e, z.heads);
    cfg.kv_heads = kv_heads > INT32_MAX ? -1 : (int)kv_heads;
    cfg.alibi = how & 8;
    cfg.keys = keys;
    return tp_attention(ops_tape(e), q, k, v, mask, bias, cfg);
}

static tp_tensor rel_attention(ops_env *e, const ops_row *r)
{
    (void)r;
    const sizes z = draw_sizes(e);
    const int64_t S = ops_plus(z.S, z.N);
    const tp_tensor q = ops_input(e, TP_SHAPE(z.B, z.N, z.C));
    const tp_tensor k = ops_input(e, TP_SHAPE(z.B, S, z.C));
    const tp_tensor v = ops_input(e, TP_SHAPE(z.B, S, z.C));
    const tp_tensor pos = ops_input(e, TP_SHAPE(S, z.C));
    const tp_tensor r_w = ops_input(e, TP_SHAPE(z.H, z.D));
    const tp_tensor r_r = ops_input(e, TP_SHAPE(z.H, z.D));
    return tp_rel_attention(ops_tape(e), q, k, v, pos, r_w, r_r, draw_cfg(e, z.heads));
}

static tp_tensor chunk_project(ops_env *e, const ops_row *r)
{
    (void)r;
    const sizes z = draw_sizes(e);
    const int chunk = ops_int(e), rank = ops_int(e);
    const int64_t N = ops_times(z.N, chunk);
    const tp_tensor x = ops_input(e, TP_SHAPE(z.B, N, z.C));
    const tp_tensor scores = ops_input(e, TP_SHAPE(z.B, N, ops_times(z.H, rank)));
    const tp_tensor mask = ops_flag(e) ? ops_take(e, TP_SHAPE(z.B, N), OPS_MASK).t : TP_NONE;
    return tp_chunk_project(ops_tape(e), x, scores, mask, z.heads, chunk, rank);
}

static tp_tensor chunk_project_kv(ops_env *e, const ops_row *r)
{
    (void)r;
    const sizes z = draw_sizes(e);
    const int chunk = ops_int(e), rank = ops_int(e);
    const int64_t N = ops_times(z.N, chunk);
    const tp_tensor k = ops_input(e, TP_SHAPE(z.B, N, z.C));
    const tp_tensor v = ops_input(e, TP_SHAPE(z.B, N, z.C));
    const tp_tensor scores = ops_input(e, TP_SHAPE(z.B, N, ops_times(z.H, rank)));
    const tp_tensor mask = ops_flag(e) ? ops_take(e, TP_SHAPE(z.B, N), OPS_MASK).t : TP_NONE;
    const bool first = ops_flag(e);
    const tp_kv y = tp_chunk_project_kv(ops_tape(e), k, v, scores, mask, z.heads, chunk, rank);
    return first ? y.k : y.v;
}

static tp_tensor ls_attention(ops_env *e, const ops_row *r)
{
    (void)r;
    const sizes z = draw_sizes(e);
    const int64_t cached = ops_size(e), vectors = ops_size(e);
    tp_ls_attn_cfg cfg = { .heads = z.heads,
                           .chunk = ops_int(e),
                           .rank = ops_int(e),
                           .window = ops_int(e),
                           .clamp = ops_int(e),
                           .chunk_clamp = ops_int(e),
                           .masked = ops_flag(e),
                           .segment = ops_flag(e) };
    const int64_t rows = ops_plus(cached, z.N);
    tp_ls_in in = { .q = ops_input(e, TP_SHAPE(z.B, z.N, z.C)) };
    if (ops_near(e, cfg.window > 0)) {
        in.k_win = ops_input(e, TP_SHAPE(z.B, rows, z.C));
        in.v_win = ops_input(e, TP_SHAPE(z.B, rows, z.C));
        in.pos_win = ops_input(e, TP_SHAPE((cfg.segment ? 2 : 1) * (int64_t)cfg.window, z.C));
        in.r_w = ops_input(e, TP_SHAPE(z.H, z.D));
        in.r_r = ops_input(e, TP_SHAPE(1, z.H, 1, z.D));
    }
    if (ops_near(e, cfg.rank > 0)) {
        in.k_cmp = ops_input(e, TP_SHAPE(z.B, vectors, z.C));
        in.v_cmp = ops_input(e, TP_SHAPE(z.B, vectors, z.C));
        in.pos_cmp = ops_input(e, TP_SHAPE(vectors, z.C));
    }
    in.cache = ops_near(e, cached);
    in.valid = ops_integer(e);
    if (ops_flag(e)) cfg.dropout = ops_number(e);
    return tp_ls_attention(ops_tape(e), in, cfg);
}

static tp_tensor window(ops_env *e, const ops_row *r)
{
    (void)r;
    const sizes z = draw_sizes(e);
    const uint8_t b = ops_byte(e);
    tp_window_attn_cfg cfg = { .heads = z.heads,
                               .height = ops_near(e, z.N),
                               .width = ops_near(e, z.S),
                               .global = ops_integer(e),
                               .edge = (tp_edge)(b < 250 ? b % 3 : b),
                               .block = ops_int(e),
                               .mask_wrapped = ops_flag(e) };
    two(e, cfg.window);
    two(e, cfg.halo);
    if (ops_flag(e)) {
        two(e, cfg.reach);
        cfg.stride = ops_integer(e);
        cfg.scale = ops_number(e);
    }
    const tp_shape s = TP_SHAPE(z.B, ops_plus(cfg.global, ops_times(z.N, z.S)), z.C);
    tp_window_in in = { .q = ops_input(e, s), .k = ops_input(e, s), .v = ops_input(e, s) };
    const bool low = ops_flag(e);
    const int64_t rank = low ? ops_size(e) : 0;
    if (low) {
        in.low_k = ops_input(e, TP_SHAPE(z.B, rank, z.C));
        in.low_v = ops_input(e, TP_SHAPE(z.B, rank, z.C));
    }
    if (ops_flag(e)) {
        const int64_t h =
            cfg.reach[0] > 0 ? cfg.reach[0] : ops_plus(ops_times(2, cfg.window[0]), -1);
        const int64_t rows = ops_plus(ops_times(2, h), 1);
        in.table = ops_input(e, TP_SHAPE(ops_near(e, ops_times(rows, rows)), z.H));
    }
    in.global_bias = ops_maybe(e, TP_SHAPE(z.H, cfg.global));
    if (ops_flag(e)) in.mask = ops_take(e, TP_SHAPE(z.B, s.dim[1]), OPS_MASK).t;
    if (ops_flag(e)) in.low_mask = ops_take(e, TP_SHAPE(z.B, rank), OPS_MASK).t;
    if (ops_flag(e)) cfg.dropout = ops_number(e);
    if (ops_flag(e)) return ops_packed_window(e, cfg);
    return tp_window_attention_2d(ops_tape(e), in, cfg);
}

static tp_tensor lsla(ops_env *e, const ops_row *r)
{
    (void)r;
    const sizes z = draw_sizes(e);
    const int64_t w = ops_integer(e), side = ops_plus(ops_times(2, w), -1);
    tp_lsla_attn_cfg cfg = { .heads = z.heads,
                             .height = ops_near(e, ops_times(z.N, w)),
                             .width = ops_near(e, ops_times(z.S, w)),
                             .window = w,
                             .shift = ops_integer(e),
                             .mask_outer = ops_flag(e),
                             .scale = ops_flag(e) ? ops_number(e) : 0.0 };
    const tp_shape s = TP_SHAPE(z.B, ops_times(ops_times(z.N, w), ops_times(z.S, w)), z.C);
    const tp_shape table = TP_SHAPE(ops_times(side, side), z.H);
    const int64_t area = ops_times(w, w);
    const tp_tensor q = ops_input(e, s), k = ops_input(e, s), v = ops_input(e, s);
    const tp_tensor scale = ops_maybe(e, TP_SHAPE(area, area));
    const tp_tensor inner = ops_maybe(e, table), outer = ops_maybe(e, table);
    if (ops_flag(e)) cfg.dropout = ops_number(e);
    return tp_lsla_attention(ops_tape(e), q, k, v, scale, inner, outer, cfg);
}

static tp_tensor lsh_attention(ops_env *e, const ops_row *r)
{
    (void)r;
    const sizes z = draw_sizes(e);
    const int64_t chunk = ops_integer(e), N = ops_times(z.N, ops_near(e, chunk));
    tp_lsh_attn_cfg cfg = { .heads = z.heads, .chunk = chunk, .rounds = ops_int(e) };
    if (ops_flag(e)) two(e, cfg.buckets);
    if (ops_flag(e)) cfg.longest = ops_integer(e);
    const int64_t columns = ops_plus(cfg.buckets[0], cfg.buckets[1]) / 2;
    const tp_tensor qk = ops_input(e, TP_SHAPE(z.B, N, z.C));
    const tp_tensor v = ops_input(e, TP_SHAPE(z.B, N, z.C));
    const tp_tensor rotations =
        ops_maybe(e, TP_SHAPE(z.H, z.D, cfg.rounds ? cfg.rounds : 2, columns));
    const tp_tensor mask = ops_flag(e) ? ops_take(e, TP_SHAPE(z.B, N), OPS_MASK).t : TP_NONE;
    if (ops_flag(e)) cfg.dropout = ops_number(e);
    return tp_lsh_attention(ops_tape(e), qk, v, rotations, mask, cfg);
}

static tp_tensor linear_attention(ops_env *e, const ops_row *r)
{
    (void)r;
    const sizes z = draw_sizes(e);
    const uint8_t b = ops_byte(e);
    const tp_linear_attn_cfg cfg = { .heads = z.heads,
                                     .features = (tp_features)(b < 250 ? b % 3 : b),
                                     .normalise = ops_flag(e),
                                     .scale = ops_flag(e) ? ops_number(e) : 0.0,
                                     .eps = ops_flag(e) ? ops_number(e) : 0.0 };
    const tp_tensor q = ops_input(e, TP_SHAPE(z.B, z.N, z.C));
    const tp_tensor k = ops_input(e, TP_SHAPE(z.B, z.S, z.C));
    const tp_tensor v = ops_input(e, TP_SHAPE(z.B, z.S, z.C));
    const tp_tensor w = ops_near(e, cfg.features != TP_FEATURES_ELU)
                            ? ops_input(e, TP_SHAPE(ops_size(e), z.D))
                            : TP_NONE;
    const tp_tensor mask = ops_flag(e) ? ops_take(e, TP_SHAPE(z.B, z.S), OPS_MASK).t : TP_NONE;
    return tp_linear_attention(ops_tape(e), q, k, v, w, mask, cfg);
}

const ops_row ops_wide[] = {
    { .name = "depthwise_conv1d", .run = conv },
    { .name = "depthwise_conv2d", .run = conv },
    { .name = "conv2d", .run = conv2d },
    { .name = "conv2d_relu", .run = conv2d_relu },
    { .name = "conv1d", .run = conv1d },
    { .name = "conv_transpose1d", .run = conv_transpose },
    { .name = "conv_transpose2d", .run = conv_transpose },
    { .name = "max_pool2d", .run = pool },
    { .name = "avg_pool2d", .run = pool },
    { .name = "adaptive_max_pool2d", .run = adaptive_pool },
    { .name = "adaptive_avg_pool2d", .run = adaptive_pool },
    { .name = "unfold", .run = unfold },
    { .name = "fold", .run = fold },
    { .name = "interpolate", .run = interpolate },
    { .name = "roi_align", .run = roi_align },
    { .name = "attention", .run = attention },
    { .name = "rel_attention", .run = rel_attention },
    { .name = "chunk_project", .run = chunk_project },
    { .name = "chunk_project_kv", .run = chunk_project_kv },
    { .name = "ls_attention", .run = ls_attention },
    { .name = "window_attention_2d", .run = window },
    { .name = "lsla_attention", .run = lsla },
    { .name = "lsh_attention", .run = lsh_attention },
    { .name = "linear_attention", .run = linear_attention },
    { .name = NULL },
};
