/* ls_plan.c - see the header. */
#include "tensor/geometry/ls_plan.h"

#include "tensor/geometry/ls_attention.h"

#define SPLIT_BLOCKS 512 /* blocks that work on a table, about: enough for the largest GPUs */
#define SUM_ROWS     256

static int64_t tiles(int64_t n)
{
    return (n + LS_TILE - 1) / LS_TILE;
}

static int64_t splits(const tp__ls_dims *g, int64_t rows)
{
    const int64_t blocks = tp__ls_max(1, tiles(rows) * g->H);
    const int64_t want = (SPLIT_BLOCKS + blocks - 1) / blocks;
    return tp__ls_max(1, tp__ls_min(g->B * tiles(g->N), want));
}

static int small(int64_t n)
{
    return (int)tp__ls_min(n, INT32_MAX);
}

tp__ls_attr tp__ls_attr_of(tp_ls_in in, tp_ls_attn_cfg cfg)
{
    return (tp__ls_attr){
        .heads = cfg.heads,
        .chunk = cfg.chunk,
        .rank = cfg.rank,
        .window = cfg.window,
        .clamp = cfg.clamp,
        .chunk_clamp = cfg.chunk_clamp,
        .cache = in.cache,
        .valid = in.valid,
        .masked = cfg.masked,
        .segment = cfg.segment,
    };
}

tp__ls_plan tp__ls_plan_of(const tp_view *x, const tp__ls_attr *attr, bool backward)
{
    const tp__ls_dims g = tp__ls_geometry(x, attr);
    const int64_t rows = g.w ? g.Wc + g.N : 0, sw = splits(&g, g.span), sc = splits(&g, g.nc);
    tp__ls_plan p = {
        .B = (int)g.B,
        .N = (int)g.N,
        .H = (int)g.H,
        .D = (int)g.D,
        .width = (int)g.width,
        .w = (int)g.w,
        .l = small(g.l),
        .r = (int)g.r,
        .Wc = (int)g.Wc,
        .Cc = (int)g.Cc,
        .first = { (int)g.first, (int)g.first_vec },
        .clamp = { small(g.clamp), small(g.chunk_clamp) },
        .keys = { (int)rows, (int)g.nc },
        .distances = { (int)g.span, (int)g.nc },
        .splits = { (int)sw, (int)sc },
        .sum_rows = SUM_ROWS,
        .segment = g.segment,
    };
    const int64_t most = tp__ls_max(g.B * rows, sw * g.span);
    const struct {
        int64_t *at, n;
    } areas[] = {
        { &p.a, g.B * g.H * rows },
        { &p.b, g.H * g.span },
        { &p.delta, g.B * g.H * g.N },
        { &p.c, g.B * g.H * rows },
        { &p.e, sw * g.H * g.span },
        { &p.table[LS_WINDOW_PART], sw * g.span * g.width },
        { &p.table[LS_VECTOR_PART], sc * g.nc * g.width },
        { &p.sums, (most + SUM_ROWS - 1) / SUM_ROWS * g.width },
    };
    for (int i = 0; i < (backward ? 8 : 2); i++) {
        *areas[i].at = p.total;
        p.total += tp__ls_up(areas[i].n, LS_ALIGN);
    }
    return p;
}
