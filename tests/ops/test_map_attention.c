/* test_map_attention.c - attention over maps (windows, light self-limited) against plain ops:
 * results and all gradients, in f64 and on every instruction set in f32; full attention as a
 * special case; threads and their stripes; messages. */
#include <criterion/criterion.h>

#include "ops/ref_map.h"
#include "support/trial.h"
#include "support/values.h"
#include "tensor/geometry/window.h"

typedef struct problem {
    const char *name;
    tp_window_attn_cfg cfg;
    int64_t B, C, low;
    bool table, bias;
} problem;

/* clang-format off */
#define MAP(h, w) .height = h, .width = w
#define WINDOW(w, s) .window = { w, w }, .halo = { s, s }
static const problem problems[] = {
    { "one window", { .heads = 2, MAP(7, 7), WINDOW(7, 0) }, 2, 16, 0, true, false },
    { "halo", { .heads = 3, MAP(14, 21), WINDOW(7, 7), .global = 1 }, 2, 24, 0, true, true },
    { "halo, parts of chunks", { .heads = 1, MAP(9, 17), WINDOW(4, 4), .global = 2 }, 1, 8, 0, true,
      true },
    { "no table", { .heads = 2, MAP(12, 5), WINDOW(4, 4) }, 2, 8, 0, false, false },
    { "exact", { .heads = 2, MAP(10, 13), WINDOW(3, 3), .edge = TP_EDGE_EXACT, .global = 1 }, 2, 8,
      0, true, true },
    { "exact, parts of chunks of a sequence",
      { .heads = 1, MAP(1, 233), .window = { 1, 90 }, .halo = { 0, 81 }, .edge = TP_EDGE_EXACT }, 2,
      16, 3, false, false },
    { "exact, a table of a sequence",
      { .heads = 1, MAP(1, 171), .window = { 1, 67 }, .halo = { 0, 5 }, .edge = TP_EDGE_EXACT,
        .global = 2 }, 1, 8, 1, true, true },
    { "cyclic", { .heads = 2, MAP(12, 8), WINDOW(4, 4), .edge = TP_EDGE_CYCLIC, .global = 1 }, 2, 8,
      0, true, true },
    { "cyclic, part of a chunk", { .heads = 2, MAP(11, 7), WINDOW(3, 3), .edge = TP_EDGE_CYCLIC },
      1, 8, 0, true, false },
    { "cyclic, two chunks",
      { .heads = 1, MAP(5, 6), WINDOW(3, 3), .edge = TP_EDGE_CYCLIC, .global = 1 }, 1, 8, 0, true,
      true },
    { "cyclic, one chunk", { .heads = 1, MAP(2, 3), WINDOW(3, 3), .edge = TP_EDGE_CYCLIC }, 2, 8, 0,
      true, false },
    { "cyclic, masked",
      { .heads = 1, MAP(7, 5), WINDOW(3, 3), .edge = TP_EDGE_CYCLIC, .mask_wrapped = true }, 1, 8,
      0, true, false },
    { "cyclic, own",
      { .heads = 1, MAP(7, 5), WINDOW(3, 3), .edge = TP_EDGE_CYCLIC, .block = TP_BLOCK_OWN }, 1, 8,
      0, true, false },
    { "own", { .heads = 2, MAP(8, 9), WINDOW(4, 4), .block = TP_BLOCK_OWN, .global = 1 }, 2, 8, 0,
      true, true },
    { "shift 1", { .heads = 1, MAP(9, 9), WINDOW(4, 4), .block = 1, .global = 1 }, 2, 8, 0, true,
      true },
    { "shift 2", { .heads = 1, MAP(9, 9), WINDOW(4, 4), .block = 2 }, 1, 8, 0, true, false },
    { "shift 3", { .heads = 1, MAP(9, 9), WINDOW(4, 4), .block = 3 }, 1, 8, 0, true, false },
    { "shift 4", { .heads = 1, MAP(9, 9), WINDOW(4, 4), .block = 4 }, 1, 8, 0, true, false },
    { "shift 5", { .heads = 1, MAP(9, 9), WINDOW(4, 4), .block = 5 }, 1, 8, 0, true, false },
    { "shift 6, cyclic",
      { .heads = 1, MAP(9, 9), WINDOW(4, 4), .block = 6, .edge = TP_EDGE_CYCLIC }, 1, 8, 0, true,
      false },
    { "shift 7, cyclic",
      { .heads = 1, MAP(9, 9), WINDOW(4, 4), .block = 7, .edge = TP_EDGE_CYCLIC }, 1, 8, 0, true,
      false },
    { "shift 8", { .heads = 1, MAP(9, 9), WINDOW(4, 4), .block = 8 }, 1, 8, 0, true, false },
    { "low keys", { .heads = 2, MAP(14, 14), WINDOW(7, 3), .global = 1 }, 2, 16, 8, false, false },
    { "low keys, table that collides",
      { .heads = 2, MAP(8, 16), WINDOW(8, 4), .global = 1, .reach = { 11, 11 }, .stride = 16 }, 1,
      16, 4, true, false },
    { "odd window, small halo", { .heads = 1, MAP(10, 7), WINDOW(3, 1), .scale = 0.3 }, 2, 5, 2,
      true, false },
    { "no window", { .heads = 2, MAP(5, 6), .global = 3 }, 2, 8, 4, false, true },
    { "many queries", { .heads = 1, .height = 13, .width = 11, .window = { 13, 11 }, .global = 1 },
      2, 8, 0, true, true },
    { "strips of a row of chunks", { .heads = 1, MAP(2, 140), WINDOW(2, 1), .global = 1 }, 1, 256,
      2, true, true },
    { "stripes", { .heads = 1, MAP(23, 3), WINDOW(2, 1), .global = 1 }, 1, 4, 2, true, true },
    { "stripes, cyclic, an odd number",
      { .heads = 1, MAP(12, 4), WINDOW(2, 2), .edge = TP_EDGE_CYCLIC, .global = 1 }, 1, 4, 0, true,
      true },
    { "stripes, cyclic",
      { .heads = 1, MAP(14, 4), WINDOW(2, 2), .edge = TP_EDGE_CYCLIC, .global = 1 }, 1, 4, 0, true,
      true },
};

static const struct {
    const char *name;
    tp_lsla_attn_cfg cfg;
    int64_t B, C;
    bool scale, inner, outer;
} windows[] = {
    { "all", { .heads = 2, MAP(14, 7), .window = 7 }, 2, 16, true, true, true },
    { "shifted", { .heads = 2, MAP(14, 21), .window = 7, .shift = 3 }, 1, 8, true, true, true },
    { "shifted, masked", { .heads = 1, MAP(8, 12), .window = 4, .shift = 2, .mask_outer = true }, 2,
      8, true, true, true },
    { "odd window", { .heads = 3, MAP(10, 5), .window = 5, .shift = 2 }, 2, 12, true, true, true },
    { "fixed scale", { .heads = 2, MAP(8, 8), .window = 4, .shift = 2 }, 2, 8, false, true, false },
    { "a scale", { .heads = 1, MAP(4, 8), .window = 4, .scale = 0.2 }, 2, 8, false, false, true },
    { "no bias", { .heads = 2, MAP(4, 8), .window = 4 }, 2, 8, true, false, false },
    { "dropout", { .heads = 2, MAP(14, 21), .window = 7, .shift = 3, .dropout = 0.3 }, 2, 16, true,
      true, true },
    { "dropout, masked",
      { .heads = 3, MAP(8, 12), .window = 4, .shift = 2, .mask_outer = true, .dropout = 0.5 }, 2,
      24, false, true, true },
    { "dropout, no bias", { .heads = 1, MAP(6, 3), .window = 3, .dropout = 0.1 }, 2, 32, true,
      false, false },
    { "slices", { .heads = 1, MAP(36, 4), .window = 2, .shift = 1 }, 1, 4, true, true, true },
};
/* clang-format on */
enum { PROBLEMS = sizeof problems / sizeof *problems, WINDOWS = sizeof windows / sizeof *windows };

static tp_tensor window_op(tp_tape *T, const tp_tensor *x, const void *env)
{
    return tp_window_attention_2d(T, window_inputs(x), ((const problem *)env)->cfg);
}

static tp_tensor window_ref(tp_tape *T, const tp_tensor *x, const void *env)
{
    return ref_window_attention(T, window_inputs(x), ((const problem *)env)->cfg);
}

static tp_tensor lsla_op(tp_tape *T, const tp_tensor *x, const void *env)
{
    return tp_lsla_attention(T, x[0], x[1], x[2], x[3], x[4], x[5], *(const tp_lsla_attn_cfg *)env);
}

static tp_tensor lsla_ref(tp_tape *T, const tp_tensor *x, const void *env)
{
    return ref_lsla_attention(T, x[0], x[1], x[2], x[3], x[4], x[5],
                              *(const tp_lsla_attn_cfg *)env);
}

static trial window_trial(const problem *p)
{
    const tp_window_attn_cfg *c = &p->cfg;
    trial t = { .f = window_op, .env = p };
    int64_t reach[2];
    for (int i = 0; i < 2; i++)
        reach[i] = c->reach[i] ? c->reach[i] : c->window[i] + c->halo[i] - 1;
    const int64_t stride = c->stride ? c->stride : 2 * reach[1] + 1;
    for (int i = 0; i < 3; i++) t.in[i] = TP_SHAPE(p->B, c->global + c->height * c->width, p->C);
    for (int i = 3; i < 5 && p->low; i++) t.in[i] = TP_SHAPE(p->B, p->low, p->C);
    if (p->table) t.in[5] = TP_SHAPE(2 * reach[0] * stride + 2 * reach[1] + 1, c->heads);
    if (p->bias) t.in[6] = TP_SHAPE(c->heads, c->global);
    return t;
}

static trial lsla_trial(int i)
{
    const tp_lsla_attn_cfg *c = &windows[i].cfg;
    const int64_t w = c->window, rows = (2 * w - 1) * (2 * w - 1);
    trial t = { .f = lsla_op, .env = c };
    for (int k = 0; k < 3; k++)
        t.in[k] = TP_SHAPE(windows[i].B, c->height * c->width, windows[i].C);
    if (windows[i].scale) t.in[3] = TP_SHAPE(w * w, w * w);
    if (windows[i].inner) t.in[4] = TP_SHAPE(rows, c->heads);
    if (windows[i].outer) t.in[5] = TP_SHAPE(rows, c->heads);
    return t;
}

/* Compares a run of t with b, the plain ops' result on the same inputs. */
static void compare(const char *name, trial t, const trial_result *b)
{
    const double tol = t.dtype == TP_F64 ? 1e-12 : 2e-5;
    trial_result a = trial_run(&t);
    cr_expect_str_empty(a.why, "%s: %s", name, a.why);
    cr_assert_eq(a.ny, b->ny, "%s", name);
    cr_expect_lt(values_error(a.y, b->y, b->ny, 0), tol, "%s, %s, isa %d", name,
                 tp_dtype_name(t.dtype), (int)t.isa);
    for (int k = 0; k < TRIAL_INPUTS; k++) {
        int64_t n = t.in[k].ndim ? 1 : 0;
        for (int j = 0; j < t.in[k].ndim; j++) n *= t.in[k].dim[j];
        if (n)
            cr_expect_lt(values_error(a.dx[k], b->dx[k], n, 1e-3), tol,
                         "%s, %s, isa %d: gradient %d", name, tp_dtype_name(t.dtype), (int)t.isa,
                         k);
    }
    trial_free(&a);
}

/* Compares in f64, and in f32 on every instruction set. */
static void compare_all(const char *name, trial t, trial_fn ref)
{
    trial plain = t;
    plain.f = ref;
    plain.dtype = plain.compute = t.dtype = t.compute = TP_F64;
    trial_result b = trial_run(&plain);
    cr_assert_str_empty(b.why, "%s, in plain ops: %s", name, b.why);
    compare(name, t, &b);
    t.dtype = t.compute = TP_F32;
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++) {
        t.isa = isa;
        if (tp_isa_runs(isa)) compare(name, t, &b);
    }
    trial_free(&b);
}

Test(map_attention, windows_equal_plain_ops)
{
    for (int i = 0; i < PROBLEMS; i++)
        compare_all(problems[i].name, window_trial(&problems[i]), window_ref);
}

Test(map_attention, lsla_equals_plain_ops)
{
    for (int i = 0; i < WINDOWS; i++) compare_all(windows[i].name, lsla_trial(i), lsla_ref);
}

Test(map_attention, bits_do_not_depend_on_threads)
{
    for (int i = 0; i < PROBLEMS; i++) {
        trial t = window_trial(&problems[i]);
        t.dtype = t.compute = TP_F32;
        cr_expect(trial_same_on_threads(&t), "%s", problems[i].name);
    }
    for (int i = 0; i < WINDOWS; i++) {
        trial t = lsla_trial(i);
        t.dtype = t.compute = TP_F32;
        cr_expect(trial_same_on_threads(&t), "%s", windows[i].name);
    }
}

/* Sets bit i if the stripe adds to the gradients of map row i. */
static uint64_t rows_of(const tp_window *g, int64_t stripe)
{
    uint64_t rows = 0;
    for (int64_t cy = tp__window_stripe(g, stripe); cy < tp__window_stripe(g, stripe + 1); cy++) {
        tp_rect rect[TP_WINDOW_RECTS];
        const int n = tp__window_rects(g, cy, 0, rect);
        for (int k = 0; k < n; k++)
            for (int64_t i = 0; i < rect[k].rows; i++)
                rows |= (uint64_t)1 << (rect[k].y + rect[k].dy + i);
    }
    return rows;
}

/* With one cell per chunk, a row of chunks is a row of the map. */
Test(map_attention, concurrent_stripes_share_no_row)
{
    for (int64_t height = 1; height < 40; height++)
        for (int64_t batch = 1; batch < 9; batch += 3)
            for (int edge = 0; edge < 2; edge++) {
                const tp_window_attn_cfg cfg = { .heads = 1,
                                                 MAP(height, 1),
                                                 WINDOW(1, 1),
                                                 .edge = edge ? TP_EDGE_CYCLIC : TP_EDGE_EXACT };
                const tp_view x[WIN_NX] = { { .ndim = 3, .dim = { batch, height, 1 } } };
                const tp_window g = tp__window(x, &cfg);
                uint64_t seen[3] = { 0 };
                for (int64_t i = 0; i < g.stripes; i++) {
                    const uint64_t rows = rows_of(&g, i);
                    cr_expect_eq(seen[tp__window_phase(&g, i)] & rows, 0,
                                 "%d rows, batch %d, edge %d, stripe %d of %d", (int)height,
                                 (int)batch, edge, (int)i, (int)g.stripes);
                    seen[tp__window_phase(&g, i)] |= rows;
                }
            }
}

/* Each chunk sees the entire map: full attention. */
static tp_tensor full(tp_tape *T, const tp_tensor *x, const void *env)
{
    const tp_window_attn_cfg *c = &((const problem *)env)->cfg;
    const tp_tensor q = tp_slice(T, x[0], 1, c->global, c->height * c->width);
    return tp_attention(T, q, x[1], x[2], TP_NONE, TP_NONE, (tp_attn_cfg){ .heads = c->heads });
}

Test(map_attention, is_full_attention_where_windows_see_all)
{
    const problem p = { "two chunks a side",
                        { .heads = 2, MAP(9, 7), WINDOW(5, 5), .global = 2 },
                        2,
                        16,
                        0,
                        false,
                        false };
    compare_all(p.name, window_trial(&p), full);
}

Test(map_attention, refuses)
{
    problem p = { "", { .heads = 2, MAP(4, 4), WINDOW(2, 2) }, 1, 4, 0, true, false };
    trial t = window_trial(&p);
    t.dtype = t.compute = TP_F32;
    p.cfg.halo[1] = 3;
    cr_expect(trial_fails(&t, "window_attention_2d: halo must be between 0 and window, 2, not 3"));
    p.cfg.halo[1] = 1;
    p.cfg.edge = TP_EDGE_CYCLIC;
    cr_expect(trial_fails(&t, "window_attention_2d: blocks and TP_EDGE_CYCLIC need a halo"));
    p.cfg.edge = TP_EDGE_EXACT;
    p.cfg.block = 3;
    cr_expect(trial_fails(&t, "window_attention_2d: TP_EDGE_EXACT is defined for TP_BLOCK_ALL"));
    p.cfg = (tp_window_attn_cfg){ .heads = 2, MAP(4, 4), WINDOW(2, 2), .reach = { 2, 2 } };
    cr_expect(trial_fails(&t, "window_attention_2d: reach must be at least window + halo - 1 = 3"));
    p.cfg = (tp_window_attn_cfg){ .heads = 2, MAP(4, 4) };
    cr_expect(trial_fails(&t, "window_attention_2d: queries see no keys"));
    p.cfg = (tp_window_attn_cfg){ .heads = 2, MAP(4, 5), WINDOW(2, 2) };
    cr_expect(trial_fails(&t, "window_attention_2d: q must be [B,g+N,H*D] with 20 tokens"));
    p.cfg = (tp_window_attn_cfg){ .heads = 2, MAP(4, 4), WINDOW(3, 2) };
    cr_expect(trial_fails(&t, "window_attention_2d: table must be [81,2]"));
    const int64_t huge = INT64_C(1) << 32;
    p.cfg = (tp_window_attn_cfg){ .heads = 2, MAP(4, 4), WINDOW(huge, huge) };
    cr_expect(trial_fails(&t, "window_attention_2d: window must be at most 2^20"));
    p.cfg = (tp_window_attn_cfg){ .heads = 2, MAP(huge, huge), WINDOW(2, 2) };
    cr_expect(trial_fails(&t, "window_attention_2d: height, width and global must be at most"));
    p.cfg = (tp_window_attn_cfg){ .heads = 2, MAP(4, 4), WINDOW(2, 2), .reach = { INT64_MAX, 2 } };
    cr_expect(trial_fails(&t, "window_attention_2d: window must be at most 2^20, reach between"));
    p.cfg = (tp_window_attn_cfg){ .heads = 2, MAP(4, 4), WINDOW(2, 2), .stride = INT64_MAX };
    cr_expect(trial_fails(&t, "window_attention_2d: stride must be between 0 and 2^30"));

    tp_lsla_attn_cfg c = { .heads = 1, MAP(4, 6), .window = 4 };
    trial u = { .f = lsla_op, .env = &c, .dtype = TP_F32, .compute = TP_F32 };
    for (int i = 0; i < 3; i++) u.in[i] = TP_SHAPE(1, 24, 2);
    cr_expect(trial_fails(&u, "lsla_attention: a map of 4 x 6 does not divide into windows of 4"));
    c = (tp_lsla_attn_cfg){ .heads = 1, MAP(4, 6), .window = 2, .shift = 2 };
    cr_expect(trial_fails(&u, "lsla_attention: shift must be between 0 and the window, 2, not 2"));
    c.shift = 0;
    c.dropout = 1.0;
    cr_expect(trial_fails(&u, "lsla_attention: dropout must be in [0, 1), not 1"));
    c.dropout = 0.0;
    u.in[4] = TP_SHAPE(8, 1);
    cr_expect(trial_fails(&u, "lsla_attention: inner must be [9,1]"));
    c = (tp_lsla_attn_cfg){ .heads = 1, MAP(0, huge), .window = huge };
    cr_expect(trial_fails(&u, "lsla_attention: heads must be at most 2^16, window 2^10"));
    c = (tp_lsla_attn_cfg){ .heads = 1, MAP(huge, huge), .window = 2 };
    cr_expect(trial_fails(&u, "lsla_attention: heads must be at most 2^16, window 2^10"));
}
