/* adafactor.cu - Adafactor's update over the flat blocks of a parameter set; the formula is in
 * tensor/geometry/segments.h.
 *
 * Five kernels. The first updates averages of rows, with a warp each, and of columns, with a thread
 * each, slab by slab (factored.h; 4 bytes per element, and 4 from cache). The second adds columns
 * over slabs and divides rows by their mean. The third stores two sums of squares per block (8
 * bytes), the fourth computes each parameter's rate from them, and the fifth recomputes and applies
 * the update (12 bytes). Bound by memory. Sums are in double. */
#include "cuda/kit/segments.cuh"
#include "tensor/geometry/factored.h"

struct adafactor {
    const tp_optim_attr *a; /* on the device, as for all optimisers */
    float *p, *row, *col, *v;
    tp_factored_work w;
};

struct constants {
    double squares; /* factor on the squares of gradients */
    float scale, eps1;
};

static __device__ inline constants constants_of(const adafactor &f)
{
    return { f.a->scale * f.a->scale, (float)f.a->scale, (float)f.a->k[TP_ADAFACTOR_EPS1] };
}

static __device__ inline void move(float *average, double weight, double mean)
{
    *average += (float)(weight * (mean - (double)*average));
}

static __device__ inline double square_of(float x)
{
    return (double)x * (double)x;
}

/* ---- averages of rows and columns ---- */

static __device__ void sum_slab(const adafactor &f, const tp_segment &s, int64_t matrix,
                                int64_t slab)
{
    const int64_t R = s.rows, C = s.cols, slabs = tp__slabs(&s), first = slab * tp__slab_rows(&s);
    const int64_t rows = slab == slabs - 1 ? R - first : tp__slab_rows(&s);
    const float *g = static_cast<const float *>(s.grad) + (matrix * R + first) * C;
    float *row = f.row + s.own[0] + matrix * R + first, *col = f.col + s.own[1] + matrix * C;
    double *sums = slabs > 1 ? f.w.col + tp__slab_sums(&s, matrix, slab) : NULL;
    const double by = constants_of(f).squares;
    const int lane = threadIdx.x % 32;

    for (int64_t i = threadIdx.x / 32; i < rows; i += blockDim.x / 32) {
        double sum = 0.0;
        for (int64_t j = lane; j < C; j += 32) sum += square_of(g[i * C + j]);
        sum = tp_warp<tp_sum_of>(sum);
        if (lane == 0) move(row + i, s.root, by * sum / (double)C);
    }
    for (int64_t j = threadIdx.x; j < C; j += blockDim.x) {
        double sum = 0.0;
        for (int64_t i = 0; i < rows; i++) sum += square_of(g[i * C + j]);
        if (slabs > 1)
            sums[j] = sum;
        else
            move(col + j, s.root, by * sum / (double)R);
    }
}

__global__ void __launch_bounds__(TP_THREADS) sums_kernel(tp_segments all, adafactor f)
{
    TP_EACH_BLOCK (b, all.blocks) {
        const tp_segment &s = *tp__segment(&all, b);
        if (!tp__is_factored(&s)) continue;
        const int64_t slabs = tp__slabs(&s), n = tp__matrices(&s) * slabs, part = b - s.block;
        const int64_t end = tp__share(&s, n, part + 1);
        for (int64_t t = tp__share(&s, n, part); t < end; t++) sum_slab(f, s, t / slabs, t % slabs);
    }
}

/* Adds column i, counted over all matrices, over the slabs. */
static __device__ inline void finish_column(const adafactor &f, const tp_segment &s, int64_t i)
{
    const int64_t slabs = tp__slabs(&s);
    const double *at = f.w.col + tp__slab_sums(&s, i / s.cols, 0) + i % s.cols;
    double sum = 0.0;
    for (int64_t k = 0; k < slabs; k++) sum += at[k * s.cols];
    move(f.col + s.own[1] + i, s.root, constants_of(f).squares * sum / (double)s.rows);
}

/* All threads of the block must call it. */
static __device__ inline void finish_rows(const adafactor &f, const tp_segment &s, int64_t matrix)
{
    const int64_t at = s.own[0] + matrix * s.rows;
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < s.rows; i += blockDim.x) sum += (double)f.row[at + i];
    const double mean = tp_block<tp_sum_of>(sum) / (double)s.rows;
    const double least = f.a->k[TP_ADAFACTOR_EPS1];
    const double by = 1.0 / (mean < least ? least : mean);
    for (int64_t i = threadIdx.x; i < s.rows; i += blockDim.x)
        f.w.row[at + i] = by * (double)f.row[at + i];
}

__global__ void __launch_bounds__(TP_THREADS) finish_kernel(tp_segments all, adafactor f)
{
    TP_EACH_BLOCK (b, all.blocks) {
        const tp_segment &s = *tp__segment(&all, b);
        if (!tp__is_factored(&s)) continue;
        const int64_t part = b - s.block, n = tp__matrices(&s);
        const int64_t columns = tp__slabs(&s) > 1 ? n * s.cols : 0;
        const int64_t last = tp__share(&s, columns, part + 1), end = tp__share(&s, n, part + 1);
        for (int64_t i = tp__share(&s, columns, part) + threadIdx.x; i < last; i += blockDim.x)
            finish_column(f, s, i);
        for (int64_t m = tp__share(&s, n, part); m < end; m++) finish_rows(f, s, m);
    }
}

/* ---- the update ---- */

/* The update of element i of the segment for gradient g; keeps NaN. */
static __device__ inline float update_of(const adafactor &f, constants k, const tp_segment &s,
                                         int64_t i, float g)
{
    float square;
    if (tp__is_factored(&s)) {
        const int64_t row = tp_div(i, s.cols), matrix = tp_div(row, s.rows);
        const float col = f.col[s.own[1] + matrix * s.cols + i - row * s.cols];
        square = (float)f.w.row[s.own[0] + row] * col;
    } else {
        square = f.v[s.own[2] + i];
    }
    const float root = sqrtf(square);
    return k.scale * g / (root < k.eps1 ? k.eps1 : root);
}

__global__ void __launch_bounds__(TP_THREADS) norms_kernel(tp_segments all, adafactor f)
{
    const constants k = constants_of(f);
    TP_EACH_BLOCK (b, all.blocks) {
        const tp_stretch t = tp_stretch_of(all, b);
        const tp_segment &s = *t.s;
        double pp = 0.0, uu = 0.0;
        for (int64_t j = threadIdx.x; j < t.n; j += blockDim.x) {
            const int64_t own = t.at - s.at + j;
            if (!tp__is_factored(&s))
                move(f.v + s.own[2] + own, s.root, k.squares * square_of(t.g[j]));
            pp += square_of(f.p[t.at + j]);
            uu += square_of(update_of(f, k, s, own, t.g[j]));
        }
        pp = tp_block<tp_sum_of>(pp);
        uu = tp_block<tp_sum_of>(uu);
        if (threadIdx.x == 0) {
            f.w.part[2 * b] = pp;
            f.w.part[2 * b + 1] = uu;
        }
    }
}

/* One block of threads per segment. */
__global__ void __launch_bounds__(TP_THREADS) rate_kernel(tp_segments all, adafactor f)
{
    TP_EACH_BLOCK (i, all.n) {
        const tp_block_sums sum = tp_sums_of_blocks(all, f.w.part, i);
        if (threadIdx.x == 0) f.w.factor[i] = tp__adafactor_rate(f.a->k, &all.at[i], sum.a, sum.b);
    }
}

__global__ void __launch_bounds__(TP_THREADS) adafactor_kernel(tp_segments all, adafactor f)
{
    const constants k = constants_of(f);
    TP_EACH_BLOCK (b, all.blocks) {
        const tp_stretch t = tp_stretch_of(all, b);
        const float rate = (float)f.w.factor[t.s - all.at], before = (float)t.s->before;
        for (int64_t j = threadIdx.x; j < t.n; j += blockDim.x) {
            const int64_t i = t.at + j;
            const float u = update_of(f, k, *t.s, i - t.s->at, t.g[j]);
            f.p[i] = f.p[i] - before * f.p[i] - rate * u;
        }
    }
}

typedef void (*tp_pass)(tp_segments, adafactor);

static tp_code adafactor_step(const tp_call *c)
{
    const tp_optim_attr *a = tp_options(c);
    const tp_pass passes[] = { sums_kernel, finish_kernel, norms_kernel, rate_kernel,
                               adafactor_kernel };
    const tp_segments s = tp_table_of(a);
    const adafactor f = { a->there,
                          tp_out<float>(&c->y[0]),
                          tp_out<float>(&c->y[1]),
                          tp_out<float>(&c->y[2]),
                          tp_out<float>(&c->y[3]),
                          tp__factored_work(c->work, &s, c->y[1].numel) };
    tp_code code = TP_OK;
    for (int i = 0; code == TP_OK && i < 5; i++)
        code = tp_launch(c, passes[i], tp_grid(c, passes[i] == rate_kernel ? s.n : s.blocks, 1),
                         TP_THREADS, 0, s, f);
    return code;
}

TP_CUDA_KERNEL_UNTYPED(adafactor_step)
