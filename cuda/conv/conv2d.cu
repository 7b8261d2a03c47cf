/* conv2d.cu - convolutions of channels-last images and their gradients; products by cuBLAS.
 *
 *     Y = X' W' + b     dX = dY' W''     dW = dY^T X'     db = sum of the rows of dY
 *
 * Row i of X' (im2col) holds the inputs under the taps of output i; dY' is the same for each input
 * (conv2d.h). Both are gathered in chunks of rows that fit the scratch memory. 1 x 1 convolutions
 * multiply X itself; without overlapping patches X' is no larger than X. A transposed convolution
 * is dX of another. With ReLU and a residual R, Y = relu(X' W' + b + R), backward starts from dR =
 * dY if Y > 0, else 0; each is one pass over the map.
 *
 * With T taps an element of X is read from cache T times, and each copy is written once: 2 T bytes
 * per element in bf16. The product reads the same and takes 2 Co operations per copy. Bound by
 * memory below some hundred output channels, by the product above. */
#include "cuda/kit/dense.cuh"
#include "cuda/kit/fold.cuh"
#include "cuda/kit/map.cuh"
#include "cuda/kit/move.cuh"
#include "tensor/geometry/conv2d.h"

/* ---- scratch: a pass gathers the inputs of chunks of positions into rows of a matrix ---- */

/* A chunk's matrix stays in the L2 cache until the product has read it, unless this leaves the
 * product too few rows for all multiprocessors. One row may be larger. */
#define CONV_CHUNK_BYTES ((size_t)24 << 20)
#define CONV_MOST_BYTES  ((size_t)64 << 20)
enum { CONV_CHUNK_ROWS = 4096 };

/* Offsets in c->work, in bytes: a pass's weights, at 0; a chunk's matrix; sums in floats, of dW or
 * of a chunk stored position by position. */
struct conv_room {
    size_t matrix, sums, all;
};

static inline int64_t conv_positions(const tp__conv2d_pass *p)
{
    return p->batch * p->axis[0].count * p->axis[1].count;
}

/* Elements of a row of the matrix, of all groups. */
static inline int64_t conv_row(const tp__conv2d_pass *p)
{
    return p->groups * p->axis[0].taps * p->axis[1].taps * p->from;
}

/* Positions of a chunk: chunks are equal, up to the last. */
static inline int64_t conv_chunk(const tp__conv2d_pass *p, size_t size)
{
    const int64_t row = conv_row(p) * (int64_t)size, n = conv_positions(p);
    if (row < 1 || n < 2) return max(n, (int64_t)1);
    const int64_t most = min((int64_t)CONV_MOST_BYTES / row, (int64_t)CONV_CHUNK_ROWS);
    const int64_t fit = max(max((int64_t)CONV_CHUNK_BYTES / row, most), (int64_t)1);
    const int64_t chunks = (n + fit - 1) / fit;
    return (n + chunks - 1) / chunks;
}

static inline size_t conv_round(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* size: bytes of an element of x. */
static inline conv_room conv_room_of(const tp__conv2d *g, size_t size, bool backward)
{
    tp__conv2d_pass p = tp__conv2d_forward(g);
    const size_t weights = (size_t)tp__conv2d_weights(&p);
    size_t matrix = (size_t)(conv_chunk(&p, size) * conv_row(&p)) * size;
    size_t sums = backward ? weights * sizeof(float) : 0;
    conv_room r;
    r.matrix = r.sums = r.all = 0;
    if (tp__conv2d_is_product(g)) return r;
    for (int64_t k = 0; backward && k < tp__conv2d_phases(g); k++) {
        p = tp__conv2d_backward(g, k);
        const int64_t chunk = conv_chunk(&p, size);
        const size_t rows = (size_t)(chunk * conv_row(&p)) * size;
        const size_t made = (size_t)(chunk * p.groups * p.to) * sizeof(float);
        if (rows > matrix) matrix = rows;
        if (!tp__conv2d_dense(&p) && made > sums) sums = made;
    }
    r.matrix = conv_round(weights * size);
    r.sums = r.matrix + conv_round(matrix);
    r.all = r.sums + conv_round(sums);
    return r;
}

/* ---- kernels ---- */

/* to [groups][taps][from][to] = w [co][ci of a group][taps], in a pass's order. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    lay_kernel(tp__conv2d_pass p, int64_t taps, int64_t wide, const S *w, S *to)
{
    const int64_t n = p.from * p.to, of_pass = p.axis[0].taps * p.axis[1].taps;
    TP_EACH (e, p.groups * of_pass * n) {
        const int64_t row = tp_div(e, n), a = tp_div(e - row * n, p.to), b = e - row * n - a * p.to;
        const int64_t group = tp_div(row, of_pass), t = row - group * of_pass;
        const int64_t th = tp_div(t, p.axis[1].taps), tw = t - th * p.axis[1].taps;
        const int64_t k =
            (p.axis[0].tap + th * p.axis[0].next) * wide + p.axis[1].tap + tw * p.axis[1].next;
        const int64_t out = group * (p.back ? p.from : p.to) + (p.back ? a : b);
        to[e] = w[(out * (p.back ? p.to : p.from) + (p.back ? b : a)) * taps + k];
    }
}

/* Divisors of a pass's indices; packs: words of the channels of a group. */
struct gather_by {
    tp_divisor packs, wide, taps, groups, cols, rows;
};

/* Rows first .. first + rows of the matrix, [rows][groups][taps][from], in words. */
template <class W>
__global__ void __launch_bounds__(TP_THREADS)
    gather_kernel(tp__conv2d_pass p, gather_by by, int64_t first, int64_t words, const W *from,
                  W *to)
{
    const tp__conv2d_span &h = p.axis[0], &w = p.axis[1];
    TP_EACH (e, words) {
        int64_t at = tp_over(by.packs, e), rest;
        const int64_t k = e - at * by.packs.d;
        at = tp_over(by.taps, rest = at);
        const int64_t tap = rest - at * by.taps.d, th = tp_over(by.wide, tap);
        at = tp_over(by.groups, rest = at);
        const int64_t group = rest - at * by.groups.d;
        at = tp_over(by.cols, rest = at + first);
        const int64_t i = rest - at * by.cols.d;
        at = tp_over(by.rows, rest = at);
        const int64_t j = rest - at * by.rows.d;
        const int64_t row = h.from + j * h.move + th * h.hop;
        const int64_t col = w.from + i * w.move + (tap - th * by.wide.d) * w.hop;
        W v = W();
        if (row >= 0 && row < h.size && col >= 0 && col < w.size)
            v = from[(((at * h.size + row) * w.size + col) * by.groups.d + group) * by.packs.d + k];
        to[e] = v;
    }
}

/* Stores the channels of positions first .. first + rows, [rows][groups * to]. */
template <class Y>
__global__ void __launch_bounds__(TP_THREADS)
    put_kernel(tp__conv2d_pass p, int64_t first, int64_t n, bool add, const float *sums, Y *to)
{
    const int64_t C = p.groups * p.to;
    TP_EACH (e, n) {
        const int64_t row = tp_div(e, C), pos = row + first, line = tp_div(pos, p.axis[1].count);
        const int64_t image = tp_div(line, p.axis[0].count);
        const int64_t j = p.axis[0].at + (line - image * p.axis[0].count) * p.axis[0].step;
        const int64_t i = p.axis[1].at + (pos - line * p.axis[1].count) * p.axis[1].step;
        Y *const y = to + ((image * p.axis[0].to + j) * p.axis[1].to + i) * C + e - row * C;
        tp_put(y, add ? tp_float(*y) + sums[e] : sums[e]);
    }
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS) bias_kernel(int64_t n, int64_t C, const S *b, S *y)
{
    TP_EACH (i, n) tp_put(y + i, tp_float(y[i]) + tp_float(b[i - tp_div(i, C) * C]));
}

/* y = relu(y + b + r); b and r may be NULL. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    relu_kernel(int64_t n, int64_t C, const S *b, const S *r, S *y)
{
    TP_EACH (i, n) {
        float v = tp_float(y[i]);
        if (b) v += tp_float(b[i - tp_div(i, C) * C]);
        if (r) v += tp_float(r[i]);
        tp_put(y + i, relu_value(v));
    }
}

/* dz = dy where y > 0, else 0; dr = or += dz, unless it is NULL. */
template <class S, class R>
__global__ void __launch_bounds__(TP_THREADS)
    dz_kernel(int64_t n, const S *y, const S *dy, S *dz, bool add, R *dr)
{
    TP_EACH (i, n) {
        const float v = tp_float(dy[i]) * (tp_float(y[i]) > 0.0f ? 1.0f : 0.0f);
        tp_put(dz + i, v);
        if (dr) tp_put(dr + i, add ? tp_float(dr[i]) + v : v);
    }
}

/* dw [co][ci of a group][taps] = or += sums [co][taps][ci of a group]. */
template <class Out>
__global__ void __launch_bounds__(TP_THREADS)
    dw_kernel(int64_t n, int64_t taps, int64_t ci, bool add, const float *sums, Out *dw)
{
    TP_EACH (e, n) {
        const int64_t row = tp_div(e, taps), out = tp_div(row, ci);
        const float v = sums[(out * taps + e - row * taps) * ci + row - out * ci];
        tp_put(dw + e, add ? tp_float(dw[e]) + v : v);
    }
}

/* ---- passes ---- */

static conv_room room_of(const tp_call *c, const tp__conv2d &g)
{
    return conv_room_of(&g, tp_dtype_size(c->x[0].dtype), tp_is_backward(c));
}

static char *work_at(const tp_call *c, size_t at)
{
    return static_cast<char *>(c->work) + at;
}

/* Gathers `rows` rows of a pass's matrix. */
static tp_code gather(const tp_call *c, const tp__conv2d_pass &p, int64_t first, int64_t rows,
                      const void *from, void *to)
{
    const int64_t size = (int64_t)tp_dtype_size(c->x[0].dtype);
    const int bytes = tp_widest(p.from * size, reinterpret_cast<uintptr_t>(from));
    const int64_t packs = p.from * size / bytes;
    const gather_by by = {
        tp_by(packs),    tp_by(p.axis[1].taps),  tp_by(p.axis[0].taps * p.axis[1].taps),
        tp_by(p.groups), tp_by(p.axis[1].count), tp_by(p.axis[0].count)
    };
    const int64_t words = rows * conv_row(&p) * size / bytes;
    return tp_with_word(bytes, [&](auto w) {
        typedef decltype(w) W;
        return tp_launch(c, gather_kernel<W>, tp_grid(c, words), TP_THREADS, 0, p, by, first, words,
                         static_cast<const W *>(from), static_cast<W *>(to));
    });
}

/* Computes the positions of a pass, from `from` into `to`. */
template <class S>
static tp_code run_pass(const tp_call *c, const tp__conv2d &g, const tp__conv2d_pass &p,
                        const S *from, const tp_view *to, bool add)
{
    const conv_room room = room_of(c, g);
    const int64_t K = p.axis[0].taps * p.axis[1].taps * p.from, C = p.groups * p.to;
    const int64_t n = conv_positions(&p), chunk = conv_chunk(&p, sizeof(S));
    const bool dense = tp__conv2d_dense(&p);
    S *w = static_cast<S *>(c->work);
    float *sums = reinterpret_cast<float *>(work_at(c, room.sums));
    tp_code code =
        tp_launch(c, lay_kernel<S>, tp_grid(c, p.groups * K * p.to), TP_THREADS, 0, p,
                  g.axis[0].taps * g.axis[1].taps, g.axis[1].taps, tp_in<S>(&c->x[1]), w);
    for (int64_t first = 0; first < n && code == TP_OK; first += chunk) {
        const int64_t rows = min(chunk, n - first);
        void *const matrix = work_at(c, room.matrix);
        tp_cuda_gemm t = tp_dense(c->x[0].dtype, rows, p.to, K);
        t.batch = p.groups;
        t.a = matrix;
        t.lda = p.groups * K;
        t.step_a = K;
        t.b = w;
        t.ldb = p.to;
        t.step_b = K * p.to;
        t.c = dense ? static_cast<char *>(to->data) + (size_t)(first * C) * tp_dtype_size(to->dtype)
                    : reinterpret_cast<char *>(sums);
        t.type_c = dense ? to->dtype : TP_F32;
        t.ldc = C;
        t.step_c = p.to;
        t.add = dense && add;
        code = gather(c, p, first, rows, from, matrix);
        if (code == TP_OK) code = tp__cuda_gemm(c, &t);
        if (code != TP_OK || dense) continue;
        code = tp_with_type(c, to->dtype, [&](auto y) {
            typedef decltype(y) Y;
            return tp_launch(c, put_kernel<Y>, tp_grid(c, rows * C), TP_THREADS, 0, p, first,
                             rows * C, add, sums, tp_out<Y>(to));
        });
    }
    return code;
}

static tp_code zero(const tp_call *c, const tp_view *v)
{
    return tp__cuda_zero(c, v->data, (size_t)v->numel * tp_dtype_size(v->dtype));
}

/* Y = or += X' W' */
template <class S> static tp_code convolve(const tp_call *c, const tp__conv2d &g, bool add)
{
    const int64_t n = c->y[0].numel;
    if (n == 0) return TP_OK;
    if (c->x[1].numel == 0 || c->x[0].numel == 0) return add ? TP_OK : zero(c, &c->y[0]);
    if (tp__conv2d_is_product(&g)) {
        tp_cuda_gemm t = tp_dense(c->x[0].dtype, n / g.co, g.co, g.ci);
        t.a = c->x[0].data;
        t.lda = g.ci;
        t.b = c->x[1].data;
        t.ldb = g.ci;
        t.tb = true;
        t.c = c->y[0].data;
        t.type_c = c->y[0].dtype;
        t.add = add;
        return tp__cuda_gemm(c, &t);
    }
    return run_pass<S>(c, g, tp__conv2d_forward(&g), tp_in<S>(&c->x[0]), &c->y[0], add);
}

/* Y += b */
template <class S> static tp_code add_bias(const tp_call *c)
{
    const int64_t n = c->y[0].numel;
    if (n == 0 || tp_absent(&c->x[2])) return TP_OK;
    return tp_launch(c, bias_kernel<S>, tp_grid(c, n), TP_THREADS, 0, n, c->x[2].numel,
                     tp_in<S>(&c->x[2]), tp_out<S>(&c->y[0]));
}

template <class S> static tp_code conv2d_fwd(const tp_call *c)
{
    const tp_code code = convolve<S>(c, tp__conv2d_call(c), false);
    return code == TP_OK ? add_bias<S>(c) : code;
}

/* ---- backward ---- */

template <class S> static tp_code dx(const tp_call *c, const tp__conv2d &g)
{
    const bool add = c->add & 1u;
    bool bare = false; /* some position has no tap */
    for (int64_t k = 0; k < tp__conv2d_phases(&g); k++) {
        const tp__conv2d_pass p = tp__conv2d_backward(&g, k);
        bare |= tp__conv2d_weights(&p) == 0;
    }
    tp_code code = bare && !add ? zero(c, &c->dx[0]) : TP_OK;
    for (int64_t k = 0; k < tp__conv2d_phases(&g) && code == TP_OK; k++) {
        const tp__conv2d_pass p = tp__conv2d_backward(&g, k);
        if (tp__conv2d_weights(&p) > 0)
            code = run_pass<S>(c, g, p, tp_in<S>(&c->dy[0]), &c->dx[0], add);
    }
    return code;
}

template <class S> static tp_code dw(const tp_call *c, const tp__conv2d &g)
{
    const conv_room room = room_of(c, g);
    const tp__conv2d_pass p = tp__conv2d_forward(&g);
    const int64_t taps = p.axis[0].taps * p.axis[1].taps, K = taps * p.from;
    const int64_t n = conv_positions(&p), chunk = conv_chunk(&p, sizeof(S));
    const bool add = c->add >> 1 & 1u;
    float *sums = reinterpret_cast<float *>(work_at(c, room.sums));
    tp_code code = TP_OK;
    for (int64_t first = 0; first < n && code == TP_OK; first += chunk) {
        void *const matrix = work_at(c, room.matrix);
        tp_cuda_gemm t = tp_dense(c->x[0].dtype, p.to, K, min(chunk, n - first));
        t.batch = p.groups;
        t.a = tp_in<S>(&c->dy[0]) + first * g.co;
        t.ta = true;
        t.lda = g.co;
        t.step_a = p.to;
        t.b = matrix;
        t.ldb = p.groups * K;
        t.step_b = K;
        t.c = sums;
        t.type_c = TP_F32;
        t.step_c = p.to * K;
        t.add = first > 0;
        code = gather(c, p, first, t.k, c->x[0].data, matrix);
        if (code == TP_OK) code = tp__cuda_gemm(c, &t);
    }
    if (code != TP_OK) return code;
    return tp_with_type(c, c->dx[1].dtype, [&](auto o) {
        typedef decltype(o) Out;
        return tp_launch(c, dw_kernel<Out>, tp_grid(c, c->x[1].numel), TP_THREADS, 0, c->x[1].numel,
                         taps, p.from, add, sums, tp_out<Out>(&c->dx[1]));
    });
}

/* dX = dY W (to = 0) or dW = dY^T X (to = 1), of a 1 x 1 convolution. */
static tp_code grad_product(const tp_call *c, const tp__conv2d &g, int to)
{
    const int64_t rows = c->y[0].numel / g.co;
    tp_cuda_gemm t = tp_dense(c->x[0].dtype, to ? g.co : rows, g.ci, to ? rows : g.co);
    t.a = c->dy[0].data;
    t.lda = g.co;
    t.ta = to == 1;
    t.b = c->x[1 - to].data;
    t.ldb = g.ci;
    t.c = c->dx[to].data;
    t.type_c = c->dx[to].dtype;
    t.add = c->add >> to & 1u;
    return tp__cuda_gemm(c, &t);
}

/* Zeros (or keeps, if adding) a gradient without terms. */
static tp_code empty_sum(const tp_call *c, int to)
{
    return c->add >> to & 1u ? TP_OK : zero(c, &c->dx[to]);
}

template <class S> static tp_code image_gradient(const tp_call *c, const tp__conv2d &g)
{
    if (c->dx[0].numel == 0) return TP_OK;
    if (c->dy[0].numel == 0) return empty_sum(c, 0);
    return tp__conv2d_is_product(&g) ? grad_product(c, g, 0) : dx<S>(c, g);
}

template <class S> static tp_code weight_gradient(const tp_call *c, const tp__conv2d &g)
{
    if (c->dx[1].numel == 0) return TP_OK;
    if (c->dy[0].numel == 0 || c->x[0].numel == 0) return empty_sum(c, 1);
    return tp__conv2d_is_product(&g) ? grad_product(c, g, 1) : dw<S>(c, g);
}

/* at: offset of its scratch in c->work. */
template <class S> static tp_code bias_gradient(const tp_call *c, size_t at)
{
    return tp_with_type(c, c->dx[2].dtype, [&](auto b) {
        typedef decltype(b) B;
        const tp_add_to<B> finish = { tp_in<B>(&c->dx[2]), (c->add >> 2 & 1u) != 0 };
        return tp_fold_sum(c, &c->dy[0], &c->dx[2], tp_in<S>(&c->dy[0]), tp_out<B>(&c->dx[2]),
                           work_at(c, at), finish);
    });
}

static size_t bias_work(const tp_call *c)
{
    const bool sums = tp_is_backward(c) && !tp_absent(&c->x[2]);
    return sums ? tp__fold_work(&c->y[0], &c->x[2], c->y[0].dtype) : 0;
}

template <class S> static tp_code conv2d_bwd(const tp_call *c)
{
    const tp__conv2d g = tp__conv2d_call(c);
    tp_code code = c->dx[0].data ? image_gradient<S>(c, g) : TP_OK;
    if (code == TP_OK && c->dx[1].data) code = weight_gradient<S>(c, g);
    if (code == TP_OK && c->dx[2].data) code = bias_gradient<S>(c, room_of(c, g).all);
    return code;
}

/* Scratch of a pass, then of the sum for the bias. */
static size_t conv2d_work(const tp_call *c)
{
    return room_of(c, tp__conv2d_call(c)).all + bias_work(c);
}

/* ---- with ReLU and a residual ---- */

template <class S> static tp_code conv2d_relu_fwd(const tp_call *c)
{
    const tp__conv2d g = tp__conv2d_call(c);
    const int64_t n = c->y[0].numel;
    const tp_code code = convolve<S>(c, g, false);
    if (code != TP_OK || n == 0) return code;
    return tp_launch(c, relu_kernel<S>, tp_grid(c, n), TP_THREADS, 0, n, g.co, tp_in<S>(&c->x[2]),
                     tp_in<S>(&c->x[3]), tp_out<S>(&c->y[0]));
}

template <class S> static tp_code conv2d_relu_bwd(const tp_call *c)
{
    const int64_t n = c->y[0].numel;
    tp_view dz = c->dy[0];
    tp_call plain = *c;
    dz.data = work_at(c, conv_round(conv2d_work(c)));
    plain.nx = 3;
    plain.dy = &dz;
    const tp_code code = tp_with_type(c, c->dx[3].data ? c->dx[3].dtype : dz.dtype, [&](auto r) {
        typedef decltype(r) R;
        return tp_launch(c, dz_kernel<S, R>, tp_grid(c, n), TP_THREADS, 0, n, tp_in<S>(&c->y[0]),
                         tp_in<S>(&c->dy[0]), tp_out<S>(&dz), (c->add >> 3 & 1u) != 0,
                         tp_out<R>(&c->dx[3]));
    });
    return code == TP_OK ? conv2d_bwd<S>(&plain) : code;
}

/* Scratch of the convolution, then dZ. */
static size_t conv2d_relu_work(const tp_call *c)
{
    const size_t dz = (size_t)c->y[0].numel * tp_dtype_size(c->y[0].dtype);
    return tp_is_backward(c) ? conv_round(conv2d_work(c)) + dz : conv2d_work(c);
}

/* ---- transposed: see tp__conv2d_turn ---- */

template <class S> static tp_code conv_transpose2d_fwd(const tp_call *c)
{
    tp__conv2d_turned t;
    tp__conv2d_turn(c, &t);
    const tp_code code = image_gradient<S>(&t.c, tp__conv2d_call(&t.c));
    return code == TP_OK ? add_bias<S>(c) : code;
}

static size_t turned_work(const tp_call *c)
{
    tp__conv2d_turned t;
    tp__conv2d_turn(c, &t);
    return room_of(&t.c, tp__conv2d_call(&t.c)).all;
}

template <class S> static tp_code conv_transpose2d_bwd(const tp_call *c)
{
    tp__conv2d_turned t;
    tp__conv2d_turn(c, &t);
    const tp__conv2d g = tp__conv2d_call(&t.c);
    tp_code code = c->dx[0].data ? convolve<S>(&t.c, g, c->add & 1u) : TP_OK;
    if (code == TP_OK && c->dx[1].data) code = weight_gradient<S>(&t.c, g);
    if (code == TP_OK && c->dx[2].data) code = bias_gradient<S>(c, turned_work(c));
    return code;
}

static size_t conv_transpose2d_work(const tp_call *c)
{
    return turned_work(c) + bias_work(c);
}

TP_CUDA_WORK(conv2d_work)
TP_CUDA_KERNEL(conv2d_fwd)
TP_CUDA_KERNEL(conv2d_bwd)
TP_CUDA_WORK(conv2d_relu_work)
TP_CUDA_KERNEL(conv2d_relu_fwd)
TP_CUDA_KERNEL(conv2d_relu_bwd)
TP_CUDA_WORK(conv_transpose2d_work)
TP_CUDA_KERNEL(conv_transpose2d_fwd)
TP_CUDA_KERNEL(conv_transpose2d_bwd)
