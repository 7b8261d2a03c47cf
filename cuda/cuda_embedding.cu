/* cuda_embedding.cu - y[i] = scale table[id[i]], rows of C elements, and its gradient.
 *
 * Backward sorts (id, i) by id with a stable radix sort, 8 bits a pass, then sums rows of dy along
 * the sorted list, in runs of 32 that depend on nothing but the number of ids. A token whose rows
 * lie within a run is finished there; of one that crosses into other runs each run leaves a part,
 * and a block adds the parts in order. So the sums of one token are always the same sums.
 *
 * Forward moves 8 bytes an element (f32; half of that in bf16). Backward reads dy once, writes the
 * table once (zeros) and again the rows in use; parts are at most 1/4 byte an element, and a pass
 * of the sort moves 24 bytes an id. Bound by memory. Ids out of range give NaN and no gradient. */
#include "cuda/move.cuh"
#include "tensor/embedding.h"

struct id_list {
    const void *at;
    bool wide; /* i64 */
    int64_t V;
};

static __device__ inline int64_t id_of(const id_list &l, int64_t i)
{
    return l.wide ? static_cast<const int64_t *>(l.at)[i] : static_cast<const int32_t *>(l.at)[i];
}

/* ---- forward ---- */

template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    take_rows(id_list ids, int64_t n, tp_divisor columns, float scale, const S *table, S *y)
{
    TP_EACH (t, n * columns.d) {
        const int64_t i = tp_over(columns, t), j = t - i * columns.d, id = id_of(ids, i);
        const bool inside = id >= 0 && id < ids.V;
        tp_pack<S, N> v = {};
        if (inside) v = tp_load_n<S, N>(table + (id * columns.d + j) * N);
        for (int e = 0; e < N; e++) tp_put(&v.at[e], inside ? scale * tp_float(v.at[e]) : NAN);
        tp_store(y + t * N, v);
    }
}

/* ---- sorting ---- */

struct alignas(8) entry {
    uint32_t id, row; /* the row of dy, or NOWHERE */
};

constexpr uint32_t NOWHERE = 0xffffffffu;
enum { WARPS = TP_THREADS / 32, STRIPS = TP_SORT_TILE / TP_THREADS };
static_assert((int)TP_SORT_DIGITS == (int)TP_THREADS, "a thread for each digit");

/* The first pass has no list yet. */
static __device__ inline entry entry_at(const id_list &ids, const entry *list, int64_t i)
{
    if (list) return list[i];
    const int64_t id = id_of(ids, i);
    if (id < 0 || id >= ids.V) return { 0, NOWHERE };
    return { (uint32_t)id, (uint32_t)i };
}

static __device__ inline unsigned digit_of(entry e, int shift)
{
    return e.id >> shift & (TP_SORT_DIGITS - 1);
}

/* counts[digit][tile] */
static __global__ void __launch_bounds__(TP_THREADS)
    count_digits(id_list ids, const entry *list, int64_t n, int shift, int64_t tiles,
                 uint32_t *counts)
{
    TP_SHARED(uint32_t, count, [TP_SORT_DIGITS]);
    TP_EACH_BLOCK (tile, tiles) {
        const int64_t end = min(n, (tile + 1) * TP_SORT_TILE);
        count[threadIdx.x] = 0;
        __syncthreads();
        for (int64_t i = tile * TP_SORT_TILE + threadIdx.x; i < end; i += blockDim.x)
            atomicAdd(&count[digit_of(entry_at(ids, list, i), shift)], 1u);
        __syncthreads();
        counts[threadIdx.x * tiles + tile] = count[threadIdx.x];
    }
}

/* Each count becomes the sum of those before it. One block. */
static __global__ void __launch_bounds__(1024) sum_counts(int64_t n, uint32_t *counts)
{
    TP_SHARED(uint32_t, of_warp, [32]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t span = (n + blockDim.x - 1) / blockDim.x;
    const int64_t first = min(n, threadIdx.x * span), end = min(n, first + span);
    uint32_t own = 0;
    for (int64_t i = first; i < end; i++) own += counts[i];
    uint32_t upto = own;
    for (int d = 1; d < 32; d *= 2) {
        const uint32_t before = __shfl_up_sync(0xffffffffu, upto, d);
        if (lane >= d) upto += before;
    }
    if (lane == 31) of_warp[warp] = upto;
    __syncthreads();
    uint32_t sum = upto - own;
    for (int w = 0; w < warp; w++) sum += of_warp[w];
    for (int64_t i = first; i < end; i++) {
        const uint32_t count = counts[i];
        counts[i] = sum;
        sum += count;
    }
}

/* The lanes that are valid and have this lane's digit. */
static __device__ inline unsigned peers(unsigned digit, bool valid)
{
    unsigned same = __ballot_sync(0xffffffffu, valid);
    for (int bit = 0; bit < 8; bit++) {
        const unsigned set = __ballot_sync(0xffffffffu, digit >> bit & 1u);
        same &= digit >> bit & 1u ? set : ~set;
    }
    return same;
}

/* A warp takes consecutive strips of 32 entries of its tile, so that equal digits keep their order:
 * first each entry's place among those of its warp, then where those of the warp begin. */
static __global__ void __launch_bounds__(TP_THREADS)
    sort_by_digit(id_list ids, const entry *list, int64_t n, int shift, int64_t tiles,
                  const uint32_t *counts, entry *sorted)
{
    TP_SHARED(uint32_t, place, [WARPS][TP_SORT_DIGITS]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    TP_EACH_BLOCK (tile, tiles) {
        const int64_t first = tile * TP_SORT_TILE + warp * STRIPS * 32 + lane;
        entry e[STRIPS];
        uint32_t rank[STRIPS];
        for (int w = 0; w < WARPS; w++) place[w][threadIdx.x] = 0;
        __syncthreads();
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            const bool valid = first + s * 32 < n;
            e[s] = valid ? entry_at(ids, list, first + s * 32) : entry();
            const unsigned digit = digit_of(e[s], shift), same = peers(digit, valid);
            const unsigned before = same & ((1u << lane) - 1);
            rank[s] = place[warp][digit] + (uint32_t)__popc(before);
            __syncwarp();
            if (valid && before == 0) place[warp][digit] += (uint32_t)__popc(same);
            __syncwarp();
        }
        __syncthreads();
        uint32_t at = counts[threadIdx.x * tiles + tile];
        for (int w = 0; w < WARPS; w++) {
            const uint32_t count = place[w][threadIdx.x];
            place[w][threadIdx.x] = at;
            at += count;
        }
        __syncthreads();
#pragma unroll
        for (int s = 0; s < STRIPS; s++)
            if (first + s * 32 < n) sorted[place[warp][digit_of(e[s], shift)] + rank[s]] = e[s];
        __syncthreads();
    }
}

/* ---- summing ---- */

/* head[run]: of the token that came from the run before; tail[run]: of one that goes on. */
struct sums {
    int64_t n, runs, C;
    float scale;
    bool add;
    const entry *list;
    float *head, *tail;
};

/* Sums of one token to its row of the table. */
template <class S, int N>
static __device__ inline void put_row(const sums &k, S *row, const float *sum)
{
    tp_pack<S, N> v = {};
    if (k.add) v = tp_load_n<S, N>(row);
    for (int e = 0; e < N; e++)
        tp_put(&v.at[e], (k.add ? tp_float(v.at[e]) : 0.0f) + k.scale * sum[e]);
    tp_store(row, v);
}

/* A thread sums N columns of one run, fetching four rows ahead. */
template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    sum_runs(sums k, tp_divisor columns, const S *dy, S *table)
{
    constexpr int AHEAD = 4;
    TP_EACH (t, k.runs * columns.d) {
        const int64_t run = tp_over(columns, t), j = (t - run * columns.d) * N;
        const int64_t first = run * TP_SUM_RUN, end = min(k.n, first + TP_SUM_RUN);
        bool open = first > 0 && k.list[first - 1].id == k.list[first].id;
        tp_pack<float, N> sum = {};
        for (int64_t i = first; i < end; i += AHEAD) {
            entry at[AHEAD + 1];
            tp_pack<S, N> g[AHEAD];
#pragma unroll
            for (int a = 0; a <= AHEAD; a++) at[a] = k.list[min(i + a, k.n - 1)];
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                g[a] = {};
                if (i + a < end && at[a].row != NOWHERE)
                    g[a] = tp_load_n<S, N>(dy + at[a].row * k.C + j);
            }
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                const bool ends = i + a + 1 == k.n || at[a + 1].id != at[a].id;
                if (i + a >= end) continue;
                for (int e = 0; e < N; e++) sum.at[e] += tp_float(g[a].at[e]);
                if (!ends && i + a + 1 < end) continue;
                if (open || !ends)
                    tp_store((open ? k.head : k.tail) + run * k.C + j, sum);
                else
                    put_row<S, N>(k, table + at[a].id * k.C + j, sum.at);
                sum = {};
                open = false;
            }
        }
    }
}

/* The first run after `run` that does not begin with this id; run + 1 does. */
static __device__ inline int64_t end_of(const sums &k, int64_t run, uint32_t id)
{
    int64_t in = run + 1, out = k.runs;
    while (out - in > 1) {
        const int64_t middle = (in + out) / 2;
        if (k.list[middle * TP_SUM_RUN].id == id)
            in = middle;
        else
            out = middle;
    }
    return out;
}

/* A block adds N columns a lane of the token that begins in its run and goes on, if one does. */
template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS) add_parts(sums k, int64_t tiles, S *table)
{
    TP_SHARED(double, part, [WARPS][N][32]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    TP_EACH_BLOCK (u, (k.runs - 1) * tiles) {
        const int64_t run = tp_div(u, tiles), first = run * TP_SUM_RUN, next = first + TP_SUM_RUN;
        const int64_t j = ((u - run * tiles) * 32 + lane) * N;
        const uint32_t id = k.list[next - 1].id;
        if (k.list[next].id != id || (first > 0 && k.list[first - 1].id == id)) continue;
        const int64_t end = end_of(k, run, id);
        double sum[N] = {};
        if (j < k.C) {
            for (int64_t r = run + warp; r < end; r += WARPS) {
                const float *from = (r == run ? k.tail : k.head) + r * k.C + j;
                const tp_pack<float, N> v = tp_load_n<float, N>(from);
                for (int e = 0; e < N; e++) sum[e] += (double)v.at[e];
            }
        }
        for (int e = 0; e < N; e++) part[warp][e][lane] = sum[e];
        __syncthreads();
        if (warp == 0 && j < k.C) {
            float all[N];
            for (int e = 0; e < N; e++) {
                for (int w = 1; w < WARPS; w++) sum[e] += part[w][e][lane];
                all[e] = (float)sum[e];
            }
            put_row<S, N>(k, table + id * k.C + j, all);
        }
        __syncthreads();
    }
}

/* ---- launchers ---- */

static float scale_of(const tp_call *c)
{
    return (float)*static_cast<const double *>(c->attr);
}

static id_list ids_of(const tp_call *c)
{
    return { c->x[1].data, c->x[1].dtype == TP_I64, c->x[0].dim[0] };
}

/* f(N) for the elements that move together: a pack of up to MOST if rows are made of them, else 1.
 */
template <int MOST, class F> static tp_code in_packs(bool aligned, int64_t C, F f)
{
    if (aligned && C % MOST == 0) return f(std::integral_constant<int, MOST>());
    return f(std::integral_constant<int, 1>());
}

template <class S> static tp_code embedding_fwd(const tp_call *c)
{
    const int64_t n = c->x[1].numel, C = c->x[0].dim[1];
    const S *table = tp_in<S>(&c->x[0]);
    S *y = tp_out<S>(&c->y[0]);
    return in_packs<(int)(16 / sizeof(S))>(tp_aligned(table, y), C, [&](auto size) {
        constexpr int N = decltype(size)::value;
        return tp_launch(c, take_rows<S, N>, tp_grid(c, n * (C / N)), TP_THREADS, 0, ids_of(c), n,
                         tp_by(C / N), scale_of(c), table, y);
    });
}

/* The list of n entries in order of their ids; lists: room for two, counts: as embedding.h says. */
static tp_code sort(const tp_call *c, entry *lists, uint32_t *counts, const entry **sorted)
{
    const id_list ids = ids_of(c);
    const int64_t n = c->x[1].numel, tiles = tp__sort_tiles(n);
    const entry *from = NULL;
    entry *to = lists;
    tp_code code = TP_OK;
    for (int shift = 0; code == TP_OK && (shift == 0 || (ids.V - 1) >> shift > 0); shift += 8) {
        code = tp_launch(c, count_digits, tp_grid(c, tiles, 1), TP_THREADS, 0, ids, from, n, shift,
                         tiles, counts);
        if (code == TP_OK)
            code = tp_launch(c, sum_counts, 1, 1024, 0, TP_SORT_DIGITS * tiles, counts);
        if (code == TP_OK)
            code = tp_launch(c, sort_by_digit, tp_grid(c, tiles, 1), TP_THREADS, 0, ids, from, n,
                             shift, tiles, counts, to);
        from = to;
        to = to == lists ? lists + n : lists;
    }
    *sorted = from;
    return code;
}

template <class S> static tp_code sum_rows(const tp_call *c, const sums &k)
{
    const S *dy = tp_in<S>(&c->dy[0]);
    S *table = tp_out<S>(&c->dx[0]);
    const bool aligned = tp_aligned(dy, table);
    tp_code code = in_packs<(int)(16 / sizeof(S))>(aligned, k.C, [&](auto size) {
        constexpr int N = decltype(size)::value;
        return tp_launch(c, sum_runs<S, N>, tp_grid(c, k.runs * (k.C / N)), TP_THREADS, 0, k,
                         tp_by(k.C / N), dy, table);
    });
    if (code != TP_OK || k.runs < 2) return code;
    return in_packs<4>(aligned, k.C, [&](auto size) {
        constexpr int N = decltype(size)::value;
        const int64_t tiles = (k.C + 32 * N - 1) / (32 * N);
        return tp_launch(c, add_parts<S, N>, tp_grid(c, (k.runs - 1) * tiles, 1), TP_THREADS, 0, k,
                         tiles, table);
    });
}

/* c->work: parts, lists and counts, as embedding.h says. */
template <class S> static tp_code embedding_bwd(const tp_call *c)
{
    const tp_view *to = &c->dx[0];
    const int64_t n = c->x[1].numel, V = c->x[0].dim[0], C = c->x[0].dim[1];
    sums k = { n, tp__sum_runs(n), C, scale_of(c), (c->add & 1u) != 0, NULL, NULL, NULL };
    if (!to->data || to->numel == 0) return TP_OK;
    if (n >= NOWHERE || V > NOWHERE)
        return tp__cuda_fail(c, TP_E_VALUE, "at most 2^32 - 2 ids and rows; use fewer at a time");
    if (!k.add) {
        const tp_code code = tp__cuda_zero(c, to->data, (size_t)to->numel * sizeof(S));
        if (code != TP_OK) return code;
    }
    if (n == 0) return TP_OK;
    k.head = static_cast<float *>(c->work);
    k.tail = k.head + k.runs * C;
    entry *lists = reinterpret_cast<entry *>(k.tail + k.runs * C);
    const tp_code code = sort(c, lists, reinterpret_cast<uint32_t *>(lists + 2 * n), &k.list);
    return code == TP_OK ? sum_rows<S>(c, k) : code;
}

TP_CUDA_KERNEL(embedding_fwd)
TP_CUDA_KERNEL(embedding_bwd)
