/* roi_align.cu - RoIAlign: a bin is a weighted sum of its pixels, each read once.
 *
 * A first kernel computes pixels and weights of all bins, one thread per axis and region. Forward,
 * a thread sums a pack of channels of a bin. Backward has one kernel per map: a block owns a tile
 * of 4 x 4 pixels, lists the regions that touch it in order, and its threads gather from their
 * bins, so sums have a fixed order without atomics. Both read (n + 1)^2 pixels or bins per one
 * written, from cache: bound by memory for small bins. */
#include "cuda/kit/kernel.cuh"
#include "tensor/geometry/roi_align.h"

enum { TILE = 4, WARPS = TP_THREADS / 32 };

/* A region's map (level * images + image; -1: none) and the pixels it may read. */
struct roi_region {
    int32_t map, rows[2], cols[2];
};

/* The pixels of a bin along an axis, and the offset of their weights among the region's. */
struct roi_span {
    int32_t first, end, at;
};

struct roi_plan {
    int64_t regions, images, channels, weights; /* weights: of a region, both axes */
    int32_t bins[2], levels;
    int32_t size[TP_ROI_LEVELS][2];
    roi_region *region; /* [regions]                                */
    roi_span *span;     /* [regions][bins of rows, then of columns] */
    float *weight;      /* [regions][weights]                       */
};

static roi_plan plan_of(const tp_call *c)
{
    const tp__roi_attr *at = static_cast<const tp__roi_attr *>(c->attr);
    roi_plan p = {};
    int64_t longest[2] = { 0, 0 };
    p.regions = c->x[TP_ROI_BOXES].dim[0];
    p.images = c->x[0].dim[0];
    p.channels = c->x[0].dim[3];
    p.levels = at->levels;
    for (int k = 0; k < 2; k++) {
        p.bins[k] = (int32_t)at->cfg.size[k];
        for (int l = 0; l < p.levels; l++) {
            p.size[l][k] = (int32_t)c->x[l].dim[1 + k];
            longest[k] = tp__most(longest[k], c->x[l].dim[1 + k]);
        }
    }
    p.weights = longest[0] + longest[1] + 2 * (p.bins[0] + p.bins[1]);
    p.weight = static_cast<float *>(c->work);
    p.span = reinterpret_cast<roi_span *>(p.weight + p.regions * p.weights);
    p.region = reinterpret_cast<roi_region *>(p.span + p.regions * (p.bins[0] + p.bins[1]));
    return p;
}

static size_t roi_align_work(const tp_call *c)
{
    const roi_plan p = plan_of(c);
    const size_t spans = (size_t)(p.bins[0] + p.bins[1]) * sizeof(roi_span);
    return (size_t)p.regions * ((size_t)p.weights * sizeof(float) + spans + sizeof(roi_region));
}

/* ---- pixels and weights ---- */

/* Computes the weights of a bin. */
static __device__ inline void weigh(const tp__roi_axis &a, int64_t bin, const roi_span &s,
                                    float *weight)
{
    const tp__range r = tp__roi_samples(&a, bin);
    const double share = 1.0 / (double)tp__most(a.samples, 1);
    for (int32_t e = s.first; e < s.end; e++) weight[e - s.first] = 0.0f;
    for (int64_t i = r.first; i < r.end; i++) {
        int64_t low;
        double t;
        if (!tp__roi_sample(&a, bin, i, &low, &t)) continue;
        weight[low - s.first] += (float)((1.0 - t) * share);
        if (t > 0.0) weight[low + 1 - s.first] += (float)(t * share);
    }
}

/* Axis k of each region. */
template <class B>
__global__ void __launch_bounds__(TP_THREADS)
    plan_kernel(roi_plan p, tp_roi_align_cfg cfg, const B *box, const void *place, bool wide)
{
    TP_EACH (t, 2 * p.regions) {
        const int64_t r = t / 2;
        const int k = (int)(t % 2);
        const int64_t *at64 = static_cast<const int64_t *>(place) + 2 * r;
        const int32_t *at32 = static_cast<const int32_t *>(place) + 2 * r;
        const int64_t image = wide ? at64[0] : at32[0], level = wide ? at64[1] : at32[1];
        roi_region *g = p.region + r;
        int32_t *reach = k == 0 ? g->rows : g->cols;
        const bool known = image >= 0 && image < p.images && level >= 0 && level < p.levels;
        if (k == 0) g->map = known ? (int32_t)(level * p.images + image) : -1;
        reach[0] = reach[1] = 0;
        if (!known) continue;
        double scale = 0.0;
        int32_t size = 0;
#pragma unroll
        for (int l = 0; l < TP_ROI_LEVELS; l++) {
            if (l != level) continue;
            scale = cfg.scale[l];
            size = k == 0 ? p.size[l][0] : p.size[l][1];
        }
        const tp__roi_axis a = tp__roi_axis_of(&cfg, scale, (double)tp_float(box[4 * r + 1 - k]),
                                               (double)tp_float(box[4 * r + 3 - k]),
                                               k == 0 ? p.bins[0] : p.bins[1], size);
        const tp__range all = tp__roi_reach(&a);
        reach[0] = (int32_t)all.first;
        reach[1] = (int32_t)all.end;
        roi_span *span = p.span + r * (p.bins[0] + p.bins[1]) + (k == 0 ? 0 : p.bins[0]);
        float *const weight = p.weight + r * p.weights;
        /* row weights from the front, column weights from the back */
        int64_t used = k == 0 ? 0 : p.weights;
        for (int32_t b = 0; b < a.bins; b++) {
            const tp__range s = tp__roi_span(&a, b);
            if (k == 1) used -= s.end - s.first;
            span[b] = { (int32_t)s.first, (int32_t)s.end, (int32_t)used };
            weigh(a, b, span[b], weight + used);
            if (k == 0) used += s.end - s.first;
        }
    }
}

static tp_code make_plan(const tp_call *c, const roi_plan &p)
{
    const tp__roi_attr *at = static_cast<const tp__roi_attr *>(c->attr);
    const tp_view *boxes = &c->x[TP_ROI_BOXES], *place = &c->x[TP_ROI_PLACE];
    return tp_with_type(c, boxes->dtype, [&](auto b) {
        typedef decltype(b) B;
        return tp_launch(c, plan_kernel<B>, tp_grid(c, 2 * p.regions), TP_THREADS, 0, p, at->cfg,
                         tp_in<B>(boxes), place->data, place->dtype == TP_I64);
    });
}

/* ---- forward ---- */

template <class S> struct roi_maps {
    const S *at[TP_ROI_LEVELS];
};

template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS) sum_bins(roi_plan p, roi_maps<S> maps, S *y)
{
    const int64_t packs = p.channels / N;
    TP_EACH (e, p.regions * p.bins[0] * p.bins[1] * packs) {
        const int64_t bin = tp_div(e, packs), c = e - bin * packs, line = tp_div(bin, p.bins[1]);
        const int64_t r = tp_div(line, p.bins[0]);
        const roi_region g = p.region[r];
        const roi_span *of = p.span + r * (p.bins[0] + p.bins[1]);
        const roi_span h = of[line - r * p.bins[0]], w = of[p.bins[0] + bin - line * p.bins[1]];
        const float *weight = p.weight + r * p.weights;
        float sum[N] = {};
        const S *map = NULL;
        int64_t width = 0;
#pragma unroll
        for (int l = 0; l < TP_ROI_LEVELS; l++) {
            const int64_t image = g.map - l * p.images;
            if (l >= p.levels || g.map < 0 || image < 0 || image >= p.images) continue;
            width = p.size[l][1];
            map = maps.at[l] + image * p.size[l][0] * width * p.channels;
        }
        for (int32_t i = h.first; map && i < h.end; i++)
            for (int32_t k = w.first; k < w.end; k++) {
                const float both = weight[h.at + i - h.first] * weight[w.at + k - w.first];
                const tp_pack<S, N> v = tp_load_n<S, N>(map + ((i * width + k) * packs + c) * N);
                for (int n = 0; n < N; n++) sum[n] += both * tp_float(v.at[n]);
            }
        tp_pack<S, N> result;
        for (int n = 0; n < N; n++) tp_put(&result.at[n], map ? sum[n] : NAN);
        tp_store(y + e * N, result);
    }
}

template <class S> static tp_code roi_align_fwd(const tp_call *c)
{
    constexpr int WIDE = (int)(16 / sizeof(S));
    const roi_plan p = plan_of(c);
    const tp_code code = make_plan(c, p);
    if (code != TP_OK) return code;
    roi_maps<S> maps = {};
    bool packs = p.channels % WIDE == 0 && tp_aligned(c->y[0].data);
    for (int l = 0; l < p.levels; l++) {
        maps.at[l] = tp_in<S>(&c->x[l]);
        packs = packs && tp_aligned(maps.at[l]);
    }
    const unsigned grid = tp_grid(c, packs ? c->y[0].numel / WIDE : c->y[0].numel);
    return packs
               ? tp_launch(c, sum_bins<S, WIDE>, grid, TP_THREADS, 0, p, maps, tp_out<S>(&c->y[0]))
               : tp_launch(c, sum_bins<S, 1>, grid, TP_THREADS, 0, p, maps, tp_out<S>(&c->y[0]));
}

/* ---- backward ---- */

/* Lists the regions of base ... base + 255 that touch the tile, in order, and returns their number.
 * All threads must call it. */
static __device__ inline int list_regions(const roi_plan &p, int64_t base, int32_t map, int32_t top,
                                          int32_t left, int32_t *list, int *count)
{
    const int64_t r = base + threadIdx.x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool in = r < p.regions;
    if (in) {
        const roi_region g = p.region[r];
        in = g.map == map && g.rows[0] < top + TILE && g.rows[1] > top && g.cols[0] < left + TILE &&
             g.cols[1] > left;
    }
    const unsigned votes = __ballot_sync(0xffffffffu, in);
    if (lane == 0) count[warp] = __popc(votes);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? count[w] : 0;
        all += count[w];
    }
    if (in) list[before + __popc(votes & ((1u << lane) - 1))] = (int32_t)r;
    __syncthreads();
    return all;
}

/* Adds region r's gradient of pixel (i, k) to sum. */
template <class S, int N>
static __device__ inline void add_region(const roi_plan &p, int64_t r, int32_t i, int32_t k,
                                         int64_t c, const S *dy, float *sum)
{
    const roi_span *rows = p.span + r * (p.bins[0] + p.bins[1]), *cols = rows + p.bins[0];
    const float *weight = p.weight + r * p.weights;
    const int64_t packs = p.channels / N;
    for (int32_t h = 0; h < p.bins[0]; h++) {
        const roi_span a = rows[h];
        if (i < a.first || i >= a.end) continue;
        for (int32_t w = 0; w < p.bins[1]; w++) {
            const roi_span b = cols[w];
            if (k < b.first || k >= b.end) continue;
            const float both = weight[a.at + i - a.first] * weight[b.at + k - b.first];
            const int64_t bin = (r * p.bins[0] + h) * p.bins[1] + w;
            const tp_pack<S, N> g = tp_load_n<S, N>(dy + (bin * packs + c) * N);
            for (int n = 0; n < N; n++) sum[n] += both * tp_float(g.at[n]);
        }
    }
}

template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    gather_bins(roi_plan p, int level, int32_t height, int32_t width, bool add, const S *dy, S *dx)
{
    TP_SHARED(int32_t, list, [TP_THREADS]);
    TP_SHARED(int, count, [WARPS]);
    const int64_t packs = p.channels / N, down = (height + TILE - 1) / TILE,
                  across = (width + TILE - 1) / TILE;
    TP_EACH_BLOCK (tile, p.images * down * across) {
        const int64_t row = tp_div(tile, across), image = tp_div(row, down);
        const int32_t top = (int32_t)(row - image * down) * TILE;
        const int32_t left = (int32_t)(tile - row * across) * TILE;
        const int32_t map = (int32_t)(level * p.images + image);
        for (int64_t first = 0; first < TILE * TILE * packs; first += TP_THREADS) {
            const int64_t e = first + threadIdx.x, pixel = tp_div(e, packs), c = e - pixel * packs;
            const int32_t i = top + (int32_t)pixel / TILE, k = left + (int32_t)pixel % TILE;
            const bool mine = pixel < TILE * TILE && i < height && k < width;
            float sum[N] = {};
            for (int64_t base = 0; base < p.regions; base += TP_THREADS) {
                const int n = list_regions(p, base, map, top, left, list, count);
                for (int m = 0; mine && m < n; m++) add_region<S, N>(p, list[m], i, k, c, dy, sum);
                __syncthreads();
            }
            if (!mine) continue;
            S *to = dx + (((image * height + i) * width + k) * packs + c) * N;
            tp_pack<S, N> v = {};
            if (add) v = tp_load_n<S, N>(to);
            for (int n = 0; n < N; n++) tp_put(&v.at[n], (add ? tp_float(v.at[n]) : 0.0f) + sum[n]);
            tp_store(to, v);
        }
    }
}

template <class S, int N> static tp_code grad_of_map(const tp_call *c, const roi_plan &p, int level)
{
    const int32_t height = p.size[level][0], width = p.size[level][1];
    const int64_t tiles =
        p.images * ((height + TILE - 1) / TILE) * (int64_t)((width + TILE - 1) / TILE);
    return tp_launch(c, gather_bins<S, N>, tp_grid(c, tiles, 1), TP_THREADS, 0, p, level, height,
                     width, (c->add >> level & 1u) != 0, tp_in<S>(&c->dy[0]),
                     tp_out<S>(&c->dx[level]));
}

template <class S> static tp_code roi_align_bwd(const tp_call *c)
{
    constexpr int WIDE = (int)(16 / sizeof(S));
    const roi_plan p = plan_of(c);
    tp_code code = make_plan(c, p);
    for (int l = 0; l < p.levels && code == TP_OK; l++) {
        if (!c->dx[l].data) continue;
        const bool packs = p.channels % WIDE == 0 && tp_aligned(c->dy[0].data, c->dx[l].data);
        code = packs ? grad_of_map<S, WIDE>(c, p, l) : grad_of_map<S, 1>(c, p, l);
    }
    return code;
}

TP_CUDA_WORK(roi_align_work)
TP_CUDA_KERNEL(roi_align_fwd)
TP_CUDA_KERNEL(roi_align_bwd)
