/* keyed_sums.cuh - table[key(i)] = or += scale x[i], rows of C elements, for any keys.
 *
 * Sorts (key, i) by key with a stable radix sort, 8 bits per pass, then sums rows of x along the
 * sorted list in runs of 32, which depend only on the number of keys. Keys within one run are
 * finished there. A key that spans several runs gets a partial sum from each; one block adds these
 * in order, so a key's additions never vary.
 *
 * Reads x once and writes the rows in use; partial sums are at most 1/4 byte per element of x, and
 * a pass of the sort moves 24 bytes per key. Bound by memory. */
#ifndef TP_KEYED_SUMS_CUH
#define TP_KEYED_SUMS_CUH

#include "cuda/kit/move.cuh"

/* ---- sorting ---- */

struct alignas(8) tp_keyed {
    uint32_t key, row; /* the row of x, or TP_NOWHERE */
};

constexpr uint32_t TP_NOWHERE = 0xffffffffu;
enum {
    TP_SORT_TILE = 2048, /* keys that a block sorts by a digit */
    TP_SORT_DIGITS = 256,
    TP_SUM_RUN = 32 /* sorted keys whose rows one thread sums */
};

static inline int64_t tp_sort_tiles(int64_t keys)
{
    return (keys + TP_SORT_TILE - 1) / TP_SORT_TILE;
}

static inline int64_t tp_sum_runs_of(int64_t keys)
{
    return (keys + TP_SUM_RUN - 1) / TP_SUM_RUN;
}

/* Two rows of floats per run, two lists of 8 bytes per key, and the counts of each digit in a
 * tile. */
static inline size_t tp_keyed_sums_work(int64_t keys, int64_t columns)
{
    return (size_t)(2 * tp_sum_runs_of(keys) * columns) * sizeof(float) +
           (size_t)(2 * keys) * 2 * sizeof(uint32_t) +
           (size_t)(TP_SORT_DIGITS * tp_sort_tiles(keys)) * sizeof(uint32_t);
}

enum { TP_SORT_WARPS = TP_THREADS / 32, TP_SORT_STRIPS = TP_SORT_TILE / TP_THREADS };
static_assert((int)TP_SORT_DIGITS == (int)TP_THREADS, "a thread for each digit");

/* Entry i of the list; the first pass has no list and reads the keys. */
template <class K>
static __device__ inline tp_keyed tp_keyed_at(const K &keys, const tp_keyed *list, int64_t i)
{
    if (list) return list[i];
    const int64_t key = keys(i);
    if (key < 0) return { 0, TP_NOWHERE };
    return { (uint32_t)key, (uint32_t)i };
}

static __device__ inline unsigned tp_digit_of(tp_keyed e, int shift)
{
    return e.key >> shift & (TP_SORT_DIGITS - 1);
}

/* counts[digit][tile] */
template <class K>
__global__ void __launch_bounds__(TP_THREADS)
    tp_count_digits(K keys, const tp_keyed *list, int64_t n, int shift, int64_t tiles,
                    uint32_t *counts)
{
    TP_SHARED(uint32_t, count, [TP_SORT_DIGITS]);
    TP_EACH_BLOCK (tile, tiles) {
        const int64_t end = min(n, (tile + 1) * TP_SORT_TILE);
        count[threadIdx.x] = 0;
        __syncthreads();
        for (int64_t i = tile * TP_SORT_TILE + threadIdx.x; i < end; i += blockDim.x)
            atomicAdd(&count[tp_digit_of(tp_keyed_at(keys, list, i), shift)], 1u);
        __syncthreads();
        counts[threadIdx.x * tiles + tile] = count[threadIdx.x];
    }
}

/* Exclusive prefix sums of the counts, by one block. */
static __global__ void __launch_bounds__(1024) tp_sum_counts(int64_t n, uint32_t *counts)
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

/* The mask of valid lanes with this lane's digit. */
static __device__ inline unsigned tp_peers(unsigned digit, bool valid)
{
    unsigned same = __ballot_sync(0xffffffffu, valid);
    for (int bit = 0; bit < 8; bit++) {
        const unsigned set = __ballot_sync(0xffffffffu, digit >> bit & 1u);
        same &= digit >> bit & 1u ? set : ~set;
    }
    return same;
}

/* A warp takes consecutive strips of 32 entries of its tile, so that equal digits keep their order.
 * It ranks each entry within the warp, then adds the warp's offset. */
template <class K>
__global__ void __launch_bounds__(TP_THREADS)
    tp_sort_by_digit(K keys, const tp_keyed *list, int64_t n, int shift, int64_t tiles,
                     const uint32_t *counts, tp_keyed *sorted)
{
    TP_SHARED(uint32_t, place, [TP_SORT_WARPS][TP_SORT_DIGITS]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    TP_EACH_BLOCK (tile, tiles) {
        const int64_t first = tile * TP_SORT_TILE + warp * TP_SORT_STRIPS * 32 + lane;
        tp_keyed e[TP_SORT_STRIPS];
        uint32_t rank[TP_SORT_STRIPS];
        for (int w = 0; w < TP_SORT_WARPS; w++) place[w][threadIdx.x] = 0;
        __syncthreads();
#pragma unroll
        for (int s = 0; s < TP_SORT_STRIPS; s++) {
            const bool valid = first + s * 32 < n;
            e[s] = valid ? tp_keyed_at(keys, list, first + s * 32) : tp_keyed();
            const unsigned digit = tp_digit_of(e[s], shift), same = tp_peers(digit, valid);
            const unsigned before = same & ((1u << lane) - 1);
            rank[s] = place[warp][digit] + (uint32_t)__popc(before);
            __syncwarp();
            if (valid && before == 0) place[warp][digit] += (uint32_t)__popc(same);
            __syncwarp();
        }
        __syncthreads();
        uint32_t at = counts[threadIdx.x * tiles + tile];
        for (int w = 0; w < TP_SORT_WARPS; w++) {
            const uint32_t count = place[w][threadIdx.x];
            place[w][threadIdx.x] = at;
            at += count;
        }
        __syncthreads();
#pragma unroll
        for (int s = 0; s < TP_SORT_STRIPS; s++)
            if (first + s * 32 < n) sorted[place[warp][tp_digit_of(e[s], shift)] + rank[s]] = e[s];
        __syncthreads();
    }
}

/* ---- summing ---- */

/* head[run]: partial sums of the key continued from the previous run; tail[run]: of the key that
 * continues in the next run. */
struct tp_keyed_sums {
    int64_t n, runs, C;
    float scale;
    bool add;
    const tp_keyed *list;
    float *head, *tail;
};

/* Stores the sums of one key in its row of the table. */
template <class S, int N>
static __device__ inline void tp_put_row(const tp_keyed_sums &k, S *row, const float *sum)
{
    tp_pack<S, N> v = {};
    if (k.add) v = tp_load_n<S, N>(row);
    for (int e = 0; e < N; e++)
        tp_put(&v.at[e], (k.add ? tp_float(v.at[e]) : 0.0f) + k.scale * sum[e]);
    tp_store(row, v);
}

/* A thread sums N columns of one run, fetching four rows ahead. */
template <class X, class Y, int N>
__global__ void __launch_bounds__(TP_THREADS)
    tp_sum_runs(tp_keyed_sums k, tp_divisor columns, const X *x, Y *table)
{
    constexpr int AHEAD = 4;
    TP_EACH (t, k.runs * columns.d) {
        const int64_t run = tp_over(columns, t), j = (t - run * columns.d) * N;
        const int64_t first = run * TP_SUM_RUN, end = min(k.n, first + TP_SUM_RUN);
        bool open = first > 0 && k.list[first - 1].key == k.list[first].key;
        tp_pack<float, N> sum = {};
        for (int64_t i = first; i < end; i += AHEAD) {
            tp_keyed at[AHEAD + 1];
            tp_pack<X, N> g[AHEAD];
#pragma unroll
            for (int a = 0; a <= AHEAD; a++) at[a] = k.list[min(i + a, k.n - 1)];
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                g[a] = {};
                if (i + a < end && at[a].row != TP_NOWHERE)
                    g[a] = tp_load_n<X, N>(x + at[a].row * k.C + j);
            }
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                const bool ends = i + a + 1 == k.n || at[a + 1].key != at[a].key;
                if (i + a >= end) continue;
                for (int e = 0; e < N; e++) sum.at[e] += tp_float(g[a].at[e]);
                if (!ends && i + a + 1 < end) continue;
                if (open || !ends)
                    tp_store((open ? k.head : k.tail) + run * k.C + j, sum);
                else
                    tp_put_row<Y, N>(k, table + at[a].key * k.C + j, sum.at);
                sum = {};
                open = false;
            }
        }
    }
}

/* The first run after `run` that does not begin with this key; run + 1 does. */
static __device__ inline int64_t tp_end_of(const tp_keyed_sums &k, int64_t run, uint32_t key)
{
    int64_t in = run + 1, out = k.runs;
    while (out - in > 1) {
        const int64_t middle = (in + out) / 2;
        if (k.list[middle * TP_SUM_RUN].key == key)
            in = middle;
        else
            out = middle;
    }
    return out;
}

/* A block finishes the key, if any, that begins in its run and continues: N columns per lane. */
template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS) tp_add_runs(tp_keyed_sums k, int64_t tiles, S *table)
{
    TP_SHARED(double, part, [TP_SORT_WARPS][N][32]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    TP_EACH_BLOCK (u, (k.runs - 1) * tiles) {
        const int64_t run = tp_div(u, tiles), first = run * TP_SUM_RUN, next = first + TP_SUM_RUN;
        const int64_t j = ((u - run * tiles) * 32 + lane) * N;
        const uint32_t key = k.list[next - 1].key;
        if (k.list[next].key != key || (first > 0 && k.list[first - 1].key == key)) continue;
        const int64_t end = tp_end_of(k, run, key);
        double sum[N] = {};
        if (j < k.C) {
            for (int64_t r = run + warp; r < end; r += TP_SORT_WARPS) {
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
                for (int w = 1; w < TP_SORT_WARPS; w++) sum[e] += part[w][e][lane];
                all[e] = (float)sum[e];
            }
            tp_put_row<S, N>(k, table + key * k.C + j, all);
        }
        __syncthreads();
    }
}

/* ---- launchers ---- */

/* Calls f(N) with the number of elements moved together: MOST if rows are whole packs, else 1. */
template <int MOST, class F> static tp_code tp_in_packs(bool aligned, int64_t C, F f)
{
    if (aligned && C % MOST == 0) return f(std::integral_constant<int, MOST>());
    return f(std::integral_constant<int, 1>());
}

/* Sorts n keys below V. lists holds two lists, counts TP_SORT_DIGITS per tile. */
template <class K>
static tp_code tp_sort_keys(const tp_call *c, const K &keys, int64_t n, int64_t V, tp_keyed *lists,
                            uint32_t *counts, const tp_keyed **sorted)
{
    const int64_t tiles = tp_sort_tiles(n);
    const tp_keyed *from = NULL;
    tp_keyed *to = lists;
    tp_code code = TP_OK;
    for (int shift = 0; code == TP_OK && (shift == 0 || (V - 1) >> shift > 0); shift += 8) {
        code = tp_launch(c, tp_count_digits<K>, tp_grid(c, tiles, 1), TP_THREADS, 0, keys, from, n,
                         shift, tiles, counts);
        if (code == TP_OK)
            code = tp_launch(c, tp_sum_counts, 1, 1024, 0, TP_SORT_DIGITS * tiles, counts);
        if (code == TP_OK)
            code = tp_launch(c, tp_sort_by_digit<K>, tp_grid(c, tiles, 1), TP_THREADS, 0, keys,
                             from, n, shift, tiles, counts, to);
        from = to;
        to = to == lists ? lists + n : lists;
    }
    *sorted = from;
    return code;
}

template <class X, class Y>
static tp_code tp_sum_keyed(const tp_call *c, const tp_keyed_sums &k, const X *x, Y *table)
{
    constexpr int WIDE = (int)(16 / (sizeof(X) < sizeof(Y) ? sizeof(X) : sizeof(Y)));
    const bool aligned = tp_aligned(x, static_cast<const void *>(table));
    tp_code code = tp_in_packs<WIDE>(aligned, k.C, [&](auto size) {
        constexpr int N = decltype(size)::value;
        return tp_launch(c, tp_sum_runs<X, Y, N>, tp_grid(c, k.runs * (k.C / N)), TP_THREADS, 0, k,
                         tp_by(k.C / N), x, table);
    });
    if (code != TP_OK || k.runs < 2) return code;
    return tp_in_packs<4>(aligned, k.C, [&](auto size) {
        constexpr int N = decltype(size)::value;
        const int64_t tiles = (k.C + 32 * N - 1) / (32 * N);
        return tp_launch(c, tp_add_runs<Y, N>, tp_grid(c, (k.runs - 1) * tiles, 1), TP_THREADS, 0,
                         k, tiles, table);
    });
}

/* Adds scale x[i] to row keys(i) of table [V,C] for i < n; skips negative keys. Without `add` the
 * table must be zero. c->work: tp_keyed_sums_work(n, C) bytes. */
template <class K, class X, class Y>
static tp_code tp_add_by_key(const tp_call *c, const K &keys, int64_t n, int64_t V, int64_t C,
                             float scale, bool add, const X *x, Y *table)
{
    tp_keyed_sums k = { n, tp_sum_runs_of(n), C, scale, add, NULL, NULL, NULL };
    if (n >= TP_NOWHERE || V > TP_NOWHERE)
        return tp__cuda_fail(c, TP_E_VALUE,
                             "at most 2^32 - 2 indices into as many places; "
                             "use fewer at a time");
    if (n == 0 || V * C == 0) return TP_OK;
    k.head = static_cast<float *>(c->work);
    k.tail = k.head + k.runs * C;
    tp_keyed *lists = reinterpret_cast<tp_keyed *>(k.tail + k.runs * C);
    const tp_code code =
        tp_sort_keys(c, keys, n, V, lists, reinterpret_cast<uint32_t *>(lists + 2 * n), &k.list);
    return code == TP_OK ? tp_sum_keyed(c, k, x, table) : code;
}

#endif
