/* row_loss.cu - losses and similarities of rows; formulas as in cpu/row_loss.c.
 *
 * A warp takes a row of cosine_similarity and triplet_margin, a thread a row of nll and giou, a
 * block of threads TP_BLOCK elements of a row of dice, which has few, long rows. Every input is
 * read once forward (twice by triplets with p other than 1 and 2) and once backward, with 6 to 20
 * operations per element: bound by memory. Partial sums are added in order. */
#include "cuda/kit/any.cuh"
#include "cuda/kit/loss.cuh"
#include "tensor/geometry/block.h"

enum { WARPS = TP_THREADS / 32 };

static const tp__row_loss_attr *attr_of(const tp_call *c)
{
    return static_cast<const tp__row_loss_attr *>(c->attr);
}

static int64_t rows_of(const tp_call *c)
{
    return c->ny > 1 ? c->y[1].dim[0] : c->x[1].numel;
}

/* Forward: a part per row. Backward: the reciprocal of the divisor. */
static size_t row_loss_work(const tp_call *c)
{
    return tp_is_backward(c) ? sizeof(float) : (size_t)rows_of(c) * sizeof(tp_loss_part);
}

/* The gradient of a row's loss: dy[r], or k dy[0], times *by if present. */
struct slopes {
    const float *dy;
    bool each;
    float k;
    const float *by;
    __device__ float operator[](int64_t r) const
    {
        return each ? dy[r] : k * *dy * (by ? *by : 1.0f);
    }
};

static slopes slopes_of(const tp_call *c, int64_t rows)
{
    const tp_reduction r = attr_of(c)->reduction;
    const bool mean = r == TP_MEAN || r == TP_MEAN_ALL;
    return { tp_in<float>(&c->dy[0]), r == TP_EACH,
             mean && rows > 0 ? (float)(1.0 / (double)rows) : 1.0f, nullptr };
}

/* Destination of row losses. */
struct row_losses {
    float *y;
    tp_loss_part *part;
    __device__ void put(int64_t r, float loss, float counted = 1.0f) const
    {
        if (y)
            y[r] = loss;
        else
            part[r] = { loss, counted };
    }
};

static row_losses row_losses_of(const tp_call *c)
{
    if (attr_of(c)->reduction == TP_EACH) return { tp_out<float>(&c->y[0]), nullptr };
    return { nullptr, static_cast<tp_loss_part *>(c->work) };
}

static tp_code add_up(const tp_call *c, int64_t rows, tp_code code)
{
    const tp_reduction r = attr_of(c)->reduction;
    if (code != TP_OK || r == TP_EACH) return code;
    return tp_finish_loss(c, rows, static_cast<tp_loss_part *>(c->work),
                          r == TP_MEAN                   ? 0.0
                          : r == TP_MEAN_ALL && rows > 0 ? (double)rows
                                                         : 1.0);
}

/* ---- negative log-likelihood ---- */

/* The weight of class k: 1 without weights, 0 if the row does not count. A label beyond the classes
 * counts, for its NaN. */
static __device__ inline float weight_of(const tp_reader &w, int64_t k, int64_t V)
{
    return k < 0 ? 0.0f : w.p && k < V ? w[k] : 1.0f;
}

__global__ void __launch_bounds__(TP_THREADS)
    nll_kernel(int64_t rows, int64_t V, tp_reader x, tp_ids t, tp_reader w, row_losses to)
{
    TP_EACH (r, rows) {
        const int64_t k = t[r];
        const float by = weight_of(w, k, V);
        to.put(r, k < 0 ? 0.0f : k < V ? -x[r * V + k] * by : NAN, by);
    }
}

static tp_code nll_fwd(const tp_call *c)
{
    const int64_t rows = c->x[1].numel, V = c->x[0].dim[c->x[0].ndim - 1];
    return add_up(c, rows,
                  tp_launch(c, nll_kernel, tp_grid(c, rows), TP_THREADS, 0, rows, V,
                            tp_reads(&c->x[0]), tp_ids_of(&c->x[1], 0), tp_reads(&c->x[2]),
                            row_losses_of(c)));
}

/* Runs as one block. */
__global__ void __launch_bounds__(1024)
    counted_kernel(int64_t rows, int64_t V, tp_ids t, tp_reader w, float *by)
{
    double n = 0.0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) n += (double)weight_of(w, t[r], V);
    n = tp_block<tp_sum_of>(n);
    if (threadIdx.x == 0) *by = n != 0.0 ? (float)(1.0 / n) : 1.0f;
}

__global__ void __launch_bounds__(TP_THREADS)
    nll_grad(int64_t rows, int64_t V, tp_ids t, tp_reader w, slopes g, tp_writer_of dx)
{
    TP_EACH (i, rows * V) {
        const int64_t r = tp_div(i, V), k = i - r * V;
        dx.put(i, t[r] == k ? -g[r] * weight_of(w, k, V) : 0.0f);
    }
}

static tp_code nll_bwd(const tp_call *c)
{
    const int64_t rows = c->x[1].numel, V = c->x[0].dim[c->x[0].ndim - 1];
    const tp_ids t = tp_ids_of(&c->x[1], 0);
    const tp_reader w = tp_reads(&c->x[2]);
    slopes g = slopes_of(c, rows);
    if (!c->dx[0].data) return TP_OK;
    if (attr_of(c)->reduction == TP_MEAN) {
        float *by = static_cast<float *>(c->work);
        const tp_code code = tp_launch(c, counted_kernel, 1, 1024, 0, rows, V, t, w, by);
        if (code != TP_OK) return code;
        g.k = 1.0f;
        g.by = by;
    }
    return tp_launch(c, nll_grad, tp_grid(c, rows * V), TP_THREADS, 0, rows, V, t, w, g,
                     tp_writes(&c->dx[0]));
}

/* ---- cosine similarity ---- */

static __device__ inline float inverse(float norm2, float eps)
{
    const float norm = sqrtf(norm2);
    if (norm2 == INFINITY) return NAN; /* rather than 0 */
    return norm < eps ? -1.0f / eps : 1.0f / norm;
}

__global__ void __launch_bounds__(TP_THREADS)
    cosine_kernel(int64_t rows, int64_t n, float eps, tp_reader a, tp_reader b, float *y,
                  float *saved)
{
    const int lane = threadIdx.x % 32;
    for (int64_t r = tp_warp_number(); r < rows; r += tp_warps()) {
        float ab = 0.0f, aa = 0.0f, bb = 0.0f;
        for (int64_t i = r * n + lane; i < (r + 1) * n; i += 32) {
            const float u = a[i], v = b[i];
            ab += u * v;
            aa += u * u;
            bb += v * v;
        }
        ab = tp_warp<tp_sum_of>(ab);
        const float ra = inverse(tp_warp<tp_sum_of>(aa), eps);
        const float rb = inverse(tp_warp<tp_sum_of>(bb), eps);
        if (lane == 0) {
            y[r] = ab * fabsf(ra) * fabsf(rb);
            saved[2 * r] = ra;
            saved[2 * r + 1] = rb;
        }
    }
}

static tp_code cosine_similarity_fwd(const tp_call *c)
{
    const int64_t rows = rows_of(c), n = c->x[0].dim[c->x[0].ndim - 1];
    const float eps = (float)static_cast<const tp__cosine_attr *>(c->attr)->eps;
    return tp_launch(c, cosine_kernel, tp_grid(c, rows, WARPS), TP_THREADS, 0, rows, n, eps,
                     tp_reads(&c->x[0]), tp_reads(&c->x[1]), tp_out<float>(&c->y[0]),
                     tp_out<float>(&c->y[1]));
}

/* The gradient of a; `at` is the index of r_a in the two saved numbers. */
__global__ void __launch_bounds__(TP_THREADS)
    cosine_grad(int64_t rows, int64_t n, int at, tp_reader a, tp_reader b, const float *y,
                const float *saved, const float *dy, tp_writer_of da)
{
    TP_EACH (i, rows * n) {
        const int64_t r = tp_div(i, n);
        const float ra = saved[2 * r + at], rb = saved[2 * r + 1 - at], g = dy[r];
        const float of_a = ra < 0.0f ? 0.0f : g * y[r] * ra * ra;
        da.put(i, g * fabsf(ra) * fabsf(rb) * b[i] - of_a * a[i]);
    }
}

static tp_code cosine_similarity_bwd(const tp_call *c)
{
    const int64_t rows = rows_of(c), n = c->x[0].dim[c->x[0].ndim - 1];
    tp_code code = TP_OK;
    for (int k = 0; k < 2 && code == TP_OK; k++)
        if (c->dx[k].data)
            code = tp_launch(c, cosine_grad, tp_grid(c, rows * n), TP_THREADS, 0, rows, n, k,
                             tp_reads(&c->x[k]), tp_reads(&c->x[1 - k]), tp_in<float>(&c->y[0]),
                             tp_in<float>(&c->y[1]), tp_in<float>(&c->dy[0]), tp_writes(&c->dx[k]));
    return code;
}

/* ---- triplets ---- */

struct triplet {
    int64_t rows, n;
    float margin, p;
    bool swap;
    tp_reader x[3];
};

static triplet triplet_of(const tp_call *c)
{
    const tp__row_loss_attr *a = attr_of(c);
    return { rows_of(c),       c->x[0].dim[c->x[0].ndim - 1],
             (float)a->margin, (float)a->p,
             a->swap,          { tp_reads(&c->x[0]), tp_reads(&c->x[1]), tp_reads(&c->x[2]) } };
}

/* |a - b + eps|_p of row r, by a warp. */
static __device__ inline float distance(const triplet &k, const tp_reader &a, const tp_reader &b,
                                        int64_t r)
{
    const int64_t first = r * k.n + threadIdx.x % 32, end = (r + 1) * k.n;
    const float eps = (float)TP_TRIPLET_EPS;
    float sum = 0.0f, largest = 0.0f, powers = 0.0f;
    for (int64_t i = first; i < end; i += 32) {
        const float u = fabsf(a[i] - b[i] + eps);
        sum += k.p == 2.0f ? u * u : u;
        largest = fmaxf(largest, u);
    }
    sum = tp_warp<tp_sum_of>(sum);
    if (k.p == 2.0f && !(sum == INFINITY)) return sqrtf(sum);
    largest = tp_warp<tp_max_of>(largest);
    if (k.p == 1.0f || !(largest > 0.0f) || !(largest < INFINITY) || !(sum == sum)) return sum;
    for (int64_t i = first; i < end; i += 32)
        powers += powf(fabsf(a[i] - b[i] + eps) / largest, k.p);
    return largest * powf(tp_warp<tp_sum_of>(powers), 1.0f / k.p);
}

__global__ void __launch_bounds__(TP_THREADS) triplet_kernel(triplet k, float *saved, row_losses to)
{
    for (int64_t r = tp_warp_number(); r < k.rows; r += tp_warps()) {
        const float near = distance(k, k.x[0], k.x[1], r), an = distance(k, k.x[0], k.x[2], r);
        const float bn = k.swap ? distance(k, k.x[1], k.x[2], r) : an;
        const bool swapped = bn < an;
        const float loss = k.margin + near - (swapped ? bn : an);
        const float active = loss < 0.0f ? 0.0f : 1.0f;
        if (threadIdx.x % 32 == 0) {
            saved[3 * r] = near != 0.0f ? active / near : 0.0f;
            saved[3 * r + 1] = !swapped && an != 0.0f ? -active / an : 0.0f;
            saved[3 * r + 2] = swapped && bn != 0.0f ? -active / bn : 0.0f;
            to.put(r, loss < 0.0f ? 0.0f : loss);
        }
    }
}

static tp_code triplet_margin_fwd(const tp_call *c)
{
    const int64_t rows = rows_of(c);
    return add_up(c, rows,
                  tp_launch(c, triplet_kernel, tp_grid(c, rows, WARPS), TP_THREADS, 0,
                            triplet_of(c), tp_out<float>(&c->y[1]), row_losses_of(c)));
}

static __device__ inline float pull(float a, float b, float k, float p)
{
    const float v = (a - b + (float)TP_TRIPLET_EPS) * k;
    if (p == 2.0f) return v;
    const float sign = v > 0.0f ? 1.0f : v < 0.0f ? -1.0f : v; /* NaN stays */
    return p == 1.0f ? sign : sign * powf(fabsf(v), p - 1.0f);
}

struct triplet_slopes {
    tp_writer_of dx[3];
};

__global__ void __launch_bounds__(TP_THREADS)
    triplet_grad(triplet k, const float *saved, slopes slope, triplet_slopes to)
{
    TP_EACH (i, k.rows * k.n) {
        const int64_t r = tp_div(i, k.n);
        const float a = k.x[0][i], b = k.x[1][i], f = k.x[2][i], g = slope[r];
        const float ab = pull(a, b, saved[3 * r], k.p), af = pull(a, f, saved[3 * r + 1], k.p);
        const float bf = pull(b, f, saved[3 * r + 2], k.p);
        if (to.dx[0].p) to.dx[0].put(i, g * (ab + af));
        if (to.dx[1].p) to.dx[1].put(i, g * (bf - ab));
        if (to.dx[2].p) to.dx[2].put(i, -g * (af + bf));
    }
}

static tp_code triplet_margin_bwd(const tp_call *c)
{
    const triplet k = triplet_of(c);
    const triplet_slopes to = { { tp_writes(&c->dx[0]), tp_writes(&c->dx[1]),
                                  tp_writes(&c->dx[2]) } };
    return tp_launch(c, triplet_grad, tp_grid(c, k.rows * k.n), TP_THREADS, 0, k,
                     tp_in<float>(&c->y[1]), slopes_of(c, k.rows), to);
}

/* ---- generalised intersection over union ---- */

static __device__ inline float above(float a, float b)
{
    return a > b ? 1.0f : a == b ? 0.5f : 0.0f;
}

/* One axis: a box from a to b, its target from s to t. */
struct side {
    float len, target, inner, outer;
    float di[2], dc[2];
};

static __device__ inline side side_of(float a, float b, float s, float t)
{
    const float first = a > s ? s : a, last = b < t ? t : b;
    return { b - a,
             t - s,
             (b < t ? b : t) - (a > s ? a : s),
             last - first,
             { -above(a, s), above(t, b) },
             { -above(s, a), above(b, t) } };
}

struct giou {
    float loss, d[4];
};

static __device__ inline giou giou_of(const tp_reader &x, const tp_reader &t, int64_t r, float eps)
{
    const int64_t i = 4 * r;
    const side u = side_of(x[i], x[i + 2], t[i], t[i + 2]);
    const side v = side_of(x[i + 1], x[i + 3], t[i + 1], t[i + 3]);
    const bool meet = u.inner > 0.0f && v.inner > 0.0f;
    const float I = meet ? u.inner * v.inner : 0.0f, C = u.outer * v.outer;
    const float U = u.len * v.len + u.target * v.target - I, w = U + eps, c = C + eps;
    const float du = I / (w * w) - 1.0f / c, di = meet ? -1.0f / w - du : 0.0f, dc = w / (c * c);
    giou g = { 1.0f - I / w + (C - U) / c, {} };
    for (int k = 0; k < 2; k++) {
        const float sign = k ? 1.0f : -1.0f;
        g.d[2 * k] = di * u.di[k] * v.inner + du * sign * v.len + dc * u.dc[k] * v.outer;
        g.d[2 * k + 1] = di * v.di[k] * u.inner + du * sign * u.len + dc * v.dc[k] * u.outer;
    }
    return g;
}

static size_t giou_work(const tp_call *c)
{
    return tp_is_backward(c) ? 0 : (size_t)(c->x[0].numel / 4) * sizeof(tp_loss_part);
}

__global__ void __launch_bounds__(TP_THREADS)
    giou_kernel(int64_t rows, float eps, tp_reader x, tp_reader t, row_losses to)
{
    TP_EACH (r, rows) to.put(r, giou_of(x, t, r, eps).loss);
}

static tp_code giou_fwd(const tp_call *c)
{
    const int64_t rows = c->x[0].numel / 4;
    return add_up(c, rows,
                  tp_launch(c, giou_kernel, tp_grid(c, rows), TP_THREADS, 0, rows,
                            (float)attr_of(c)->eps, tp_reads(&c->x[0]), tp_reads(&c->x[1]),
                            row_losses_of(c)));
}

__global__ void __launch_bounds__(TP_THREADS)
    giou_grad(int64_t rows, float eps, tp_reader x, tp_reader t, slopes slope, tp_writer_of dx)
{
    TP_EACH (r, rows) {
        const giou g = giou_of(x, t, r, eps);
        const float by = slope[r];
        for (int k = 0; k < 4; k++) dx.put(4 * r + k, by * g.d[k]);
    }
}

static tp_code giou_bwd(const tp_call *c)
{
    const int64_t rows = c->x[0].numel / 4;
    if (!c->dx[0].data) return TP_OK;
    return tp_launch(c, giou_grad, tp_grid(c, rows), TP_THREADS, 0, rows, (float)attr_of(c)->eps,
                     tp_reads(&c->x[0]), tp_reads(&c->x[1]), slopes_of(c, rows),
                     tp_writes(&c->dx[0]));
}

/* ---- Dice ---- */

struct dice {
    int64_t rows, n, blocks; /* blocks of TP_BLOCK elements in a row */
    tp_reader x, t;
};

static dice dice_of(const tp_call *c)
{
    const int64_t rows = rows_of(c), n = rows > 0 ? c->x[0].numel / rows : 0;
    return { rows, n, (n + TP_BLOCK - 1) / TP_BLOCK, tp_reads(&c->x[0]), tp_reads(&c->x[1]) };
}

/* Forward: a part per row, then three sums per block. */
static size_t dice_work(const tp_call *c)
{
    const dice k = dice_of(c);
    if (tp_is_backward(c)) return 0;
    return (size_t)k.rows * (sizeof(tp_loss_part) + (size_t)k.blocks * 3 * sizeof(float));
}

__global__ void __launch_bounds__(TP_THREADS) dice_sums(dice k, float *part)
{
    TP_EACH_BLOCK (b, k.rows * k.blocks) {
        const int64_t r = b / k.blocks, from = r * k.n + b % k.blocks * TP_BLOCK;
        const int64_t end = min(from + TP_BLOCK, (r + 1) * k.n);
        float xt = 0.0f, xx = 0.0f, tt = 0.0f;
        for (int64_t i = from + threadIdx.x; i < end; i += blockDim.x) {
            const float u = k.x[i], v = k.t[i];
            xt += u * v;
            xx += u * u;
            tt += v * v;
        }
        xt = tp_block<tp_sum_of>(xt);
        xx = tp_block<tp_sum_of>(xx);
        tt = tp_block<tp_sum_of>(tt);
        if (threadIdx.x == 0) {
            part[3 * b] = xt;
            part[3 * b + 1] = xx;
            part[3 * b + 2] = tt;
        }
    }
}

__global__ void __launch_bounds__(TP_THREADS)
    dice_rows(dice k, double smooth, const float *part, float *saved, row_losses to)
{
    for (int64_t r = tp_warp_number(); r < k.rows; r += tp_warps()) {
        double xt = 0.0, sum = 0.0;
        for (int64_t b = r * k.blocks + threadIdx.x % 32; b < (r + 1) * k.blocks; b += 32) {
            xt += (double)part[3 * b];
            sum += (double)part[3 * b + 1] + (double)part[3 * b + 2];
        }
        xt = tp_warp<tp_sum_of>(xt);
        sum = tp_warp<tp_sum_of>(sum) + smooth;
        const double d = sum == 0.0 ? 1.0 : (2.0 * xt + smooth) / sum;
        if (threadIdx.x % 32 == 0) {
            saved[2 * r] = (float)d;
            saved[2 * r + 1] = sum == 0.0 ? 0.0f : (float)(1.0 / sum);
            to.put(r, (float)(1.0 - d));
        }
    }
}

static tp_code dice_fwd(const tp_call *c)
{
    const dice k = dice_of(c);
    float *part = reinterpret_cast<float *>(static_cast<tp_loss_part *>(c->work) + k.rows);
    tp_code code =
        tp_launch(c, dice_sums, tp_grid(c, k.rows * k.blocks, 1), TP_THREADS, 0, k, part);
    if (code == TP_OK)
        code = tp_launch(c, dice_rows, tp_grid(c, k.rows, WARPS), TP_THREADS, 0, k,
                         attr_of(c)->smooth, part, tp_out<float>(&c->y[1]), row_losses_of(c));
    return add_up(c, k.rows, code);
}

__global__ void __launch_bounds__(TP_THREADS)
    dice_grad(dice k, const float *saved, slopes slope, tp_writer_of dx)
{
    TP_EACH (i, k.rows * k.n) {
        const int64_t r = tp_div(i, k.n);
        dx.put(i, -2.0f * slope[r] * saved[2 * r + 1] * (k.t[i] - saved[2 * r] * k.x[i]));
    }
}

static tp_code dice_bwd(const tp_call *c)
{
    const dice k = dice_of(c);
    if (!c->dx[0].data) return TP_OK;
    return tp_launch(c, dice_grad, tp_grid(c, k.rows * k.n), TP_THREADS, 0, k,
                     tp_in<float>(&c->y[1]), slopes_of(c, k.rows), tp_writes(&c->dx[0]));
}

TP_CUDA_KERNEL_UNTYPED(nll_fwd)
TP_CUDA_KERNEL_UNTYPED(nll_bwd)
TP_CUDA_KERNEL_UNTYPED(cosine_similarity_fwd)
TP_CUDA_KERNEL_UNTYPED(cosine_similarity_bwd)
TP_CUDA_KERNEL_UNTYPED(triplet_margin_fwd)
TP_CUDA_KERNEL_UNTYPED(triplet_margin_bwd)
TP_CUDA_KERNEL_UNTYPED(giou_fwd)
TP_CUDA_KERNEL_UNTYPED(giou_bwd)
TP_CUDA_KERNEL_UNTYPED(dice_fwd)
TP_CUDA_KERNEL_UNTYPED(dice_bwd)
TP_CUDA_WORK(row_loss_work)
TP_CUDA_WORK(giou_work)
TP_CUDA_WORK(dice_work)
