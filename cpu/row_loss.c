/* row_loss.c - losses and similarities of rows of n elements.
 *
 *     nll      -w_t x_t, with the weights w of classes, if given
 *     cosine   c = a.b r_a r_b, r = 1 / max(norm, eps)       da = r_a r_b b - c r_a^2 a
 *     triplet  max(0, margin + d(x,p) - d(x,n))              d(a,b) = |u|_p, u = a - b + 1e-6,
 *                                                            dd/du = sign(u) (|u| / d)^(p-1)
 *     dice     1 - D, D = (2 sum x t + s) / w, w = sum x^2 + sum t^2 + s   dx = -2 (t - D x) / w
 *
 *     giou     1 - I / (U + eps) + (C - U) / (C + eps): intersection, union, box around both
 *
 * da has no second term if eps exceeds the norm: r_a is then stored negative. Rows are independent,
 * and their losses are added in f64 in order. Dice may have few long rows (images), so it adds
 * fixed blocks of them. */
#include <stdio.h>

#include "cpu/kit/real.h"
#include "cpu/kit/statistics.h"
#include "tensor/geometry/index.h"
#include "tensor/geometry/loss.h"
#include "tensor/kernel.h"

static const tp__row_loss_attr *attr_of(const tp_call *c)
{
    return c->attr;
}

static int64_t rows_of(const tp_call *c)
{
    return c->ny > 1 ? c->y[1].dim[0] : c->x[1].numel;
}

/* Forward: one loss per row. Backward: the reciprocal of the divisor. */
static size_t row_loss_work(const tp_call *c)
{
    return (size_t)(tp_is_backward(c) ? 1 : rows_of(c)) * sizeof(double);
}

static double divisor(const tp_call *c, int64_t rows)
{
    const tp_reduction r = attr_of(c)->reduction;
    return (r == TP_MEAN || r == TP_MEAN_ALL) && rows > 0 ? (double)rows : 1.0;
}

static void put_loss(const tp_call *c, int64_t row, real loss)
{
    if (attr_of(c)->reduction == TP_EACH)
        ((real *)c->y[0].data)[row] = loss;
    else
        ((double *)c->work)[row] = (double)loss;
}

static void add_up(const tp_call *c, int64_t rows, double by)
{
    const double *loss = c->work;
    double sum = 0.0;
    if (attr_of(c)->reduction == TP_EACH) return;
    for (int64_t r = 0; r < rows; r++) sum += loss[r];
    *(real *)c->y[0].data = (real)(sum / by);
}

/* The gradient of a row's loss. */
static real slope_of(const tp_call *c, int64_t row, double by)
{
    const real *dy = c->dy[0].data;
    return attr_of(c)->reduction == TP_EACH ? dy[row] : (real)((double)*dy / by);
}

static int64_t grain(int64_t n)
{
    return 1 + 2 * TP_BLOCK / (n > 0 ? n : 1);
}

/* ---- negative log-likelihood ---- */

static real weight_of(const tp_call *c, int64_t t)
{
    return tp_absent(&c->x[2]) ? RC(1.0) : ((const real *)c->x[2].data)[t];
}

static void nll_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t V = c->x[0].dim[c->x[0].ndim - 1];
    const real *x = c->x[0].data;
    for (int64_t r = begin; r < end; r++) {
        const int64_t t = tp__index(&c->x[1], r);
        put_loss(c, r, t < 0 ? 0 : -x[r * V + t] * weight_of(c, t));
    }
}

static double nll_divisor(const tp_call *c)
{
    double n = 0;
    if (attr_of(c)->reduction != TP_MEAN) return divisor(c, c->x[1].numel);
    for (int64_t r = 0; r < c->x[1].numel; r++) {
        const int64_t t = tp__index(&c->x[1], r);
        if (t >= 0) n += (double)weight_of(c, t);
    }
    return n != 0.0 ? n : 1.0;
}

static tp_code nll_fwd(const tp_call *c)
{
    const int64_t V = c->x[0].dim[c->x[0].ndim - 1], rows = c->x[1].numel;
    const int64_t bad = tp__first_outside(&c->x[1], INT64_MIN, V);
    if (bad >= 0) {
        snprintf(c->why, TP_WHY, "target %lld in row %lld, but there are %lld classes",
                 (long long)tp__index(&c->x[1], bad), (long long)bad, (long long)V);
        return TP_E_VALUE;
    }
    tp__for(c, rows, TP_BLOCK, nll_rows);
    add_up(c, rows, nll_divisor(c));
    return TP_OK;
}

static void nll_grad_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t V = c->x[0].dim[c->x[0].ndim - 1];
    real *dx = c->dx[0].data;
    for (int64_t r = begin; r < end; r++) {
        const int64_t t = tp__index(&c->x[1], r);
        memset(dx + r * V, 0, (size_t)V * sizeof(real));
        if (t >= 0) dx[r * V + t] = -slope_of(c, r, *(const double *)c->work) * weight_of(c, t);
    }
}

static tp_code nll_bwd(const tp_call *c)
{
    *(double *)c->work = nll_divisor(c);
    if (c->dx[0].data)
        tp__for(c, c->x[1].numel, grain(c->x[0].dim[c->x[0].ndim - 1]), nll_grad_rows);
    return TP_OK;
}

/* ---- cosine similarity ---- */

static real inverse(real norm, double eps)
{
    const real least = (real)eps;
    return norm < least ? -RC(1.0) / least : RC(1.0) / norm;
}

/* a.b / (|a| |b|) of rows whose squares leave the range: each scaled by its largest magnitude. */
static real scaled_cosine(const real *a, const real *b, int64_t n, double eps, real *ra, real *rb)
{
    const double ma = largest_magnitude(a, 1, n), mb = largest_magnitude(b, 1, n);
    const double sa = ma > 0 ? ma : 1, sb = mb > 0 ? mb : 1;
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        const double u = (double)a[i] / sa, v = (double)b[i] / sb;
        ab += u * v;
        aa += u * u;
        bb += v * v;
    }
    const double na = sqrt(aa) * sa, nb = sqrt(bb) * sb;
    *ra = inverse((real)na, eps);
    *rb = inverse((real)nb, eps);
    return (real)(ab * (sa / fmax(na, eps)) * (sb / fmax(nb, eps)));
}

static void cosine_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t n = c->x[0].dim[c->x[0].ndim - 1];
    const double eps = ((const tp__cosine_attr *)c->attr)->eps;
    real *y = c->y[0].data, *saved = c->y[1].data;
    for (int64_t r = begin; r < end; r++) {
        const real *restrict a = (const real *)c->x[0].data + r * n;
        const real *restrict b = (const real *)c->x[1].data + r * n;
        real ab = 0, aa = 0, bb = 0;
#pragma omp simd reduction(+ : ab, aa, bb)
        for (int64_t i = 0; i < n; i++) {
            ab += a[i] * b[i];
            aa += a[i] * a[i];
            bb += b[i] * b[i];
        }
        real ra = inverse(r_sqrt(aa), eps), rb = inverse(r_sqrt(bb), eps);
        if (are_squares_exact(aa) && are_squares_exact(bb))
            y[r] = ab * r_abs(ra) * r_abs(rb);
        else
            y[r] = scaled_cosine(a, b, n, eps, &ra, &rb);
        saved[2 * r] = ra;
        saved[2 * r + 1] = rb;
    }
}

static tp_code cosine_similarity_fwd(const tp_call *c)
{
    tp__for(c, c->y[1].dim[0], grain(c->x[0].dim[c->x[0].ndim - 1]), cosine_rows);
    return TP_OK;
}

static void cosine_grad(int64_t n, real g, real cos, real ra, real rb, const real *restrict a,
                        const real *restrict b, real *restrict da)
{
    const real of_b = g * r_abs(ra) * r_abs(rb), of_a = ra < 0 ? 0 : g * cos * ra * ra;
    for (int64_t i = 0; i < n; i++) da[i] = of_b * b[i] - of_a * a[i];
}

static void cosine_grad_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t n = c->x[0].dim[c->x[0].ndim - 1];
    const real *y = c->y[0].data, *saved = c->y[1].data, *dy = c->dy[0].data;
    const real *a = c->x[0].data, *b = c->x[1].data;
    real *da = c->dx[0].data, *db = c->dx[1].data;
    for (int64_t r = begin; r < end; r++) {
        const real ra = saved[2 * r], rb = saved[2 * r + 1];
        const int64_t at = r * n;
        if (da) cosine_grad(n, dy[r], y[r], ra, rb, a + at, b + at, da + at);
        if (db) cosine_grad(n, dy[r], y[r], rb, ra, b + at, a + at, db + at);
    }
}

static tp_code cosine_similarity_bwd(const tp_call *c)
{
    tp__for(c, c->y[1].dim[0], grain(c->x[0].dim[c->x[0].ndim - 1]), cosine_grad_rows);
    return TP_OK;
}

/* ---- triplets ---- */

/* |a - b + eps|_p. Factoring out the largest element keeps the sum of powers from overflowing. */
static real distance(const real *restrict a, const real *restrict b, int64_t n, real p)
{
    const real eps = (real)TP_TRIPLET_EPS;
    real sum = 0, most = 0;
    if (p == RC(2.0)) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += (a[i] - b[i] + eps) * (a[i] - b[i] + eps);
        if (sum < (real)INFINITY || sum != sum) return r_sqrt(sum);
        sum = 0;
    }
#pragma omp simd reduction(+ : sum) reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        const real u = r_abs(a[i] - b[i] + eps);
        sum += u;
        most = u > most ? u : most;
    }
    if (p == RC(1.0) || !(most > 0) || !(sum < (real)INFINITY)) return sum;
    sum = 0;
    const real by = RC(1.0) / most;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += r_exp(p * r_log(r_abs(a[i] - b[i] + eps) * by));
    return most * r_exp(r_log(sum) / p);
}

/* factor / d; 0 for d = 0, where the norm has no slope. NaN stays. */
static real over(real factor, real d)
{
    return d == 0 ? 0 : factor / d;
}

static void triplet_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const tp__row_loss_attr *o = attr_of(c);
    const int64_t n = c->x[0].dim[c->x[0].ndim - 1];
    const real p = (real)o->p;
    for (int64_t r = begin; r < end; r++) {
        const real *a = (const real *)c->x[0].data + r * n, *b = (const real *)c->x[1].data + r * n;
        const real *far = (const real *)c->x[2].data + r * n;
        const real near = distance(a, b, n, p), an = distance(a, far, n, p);
        const real bn = o->swap ? distance(b, far, n, p) : an;
        const bool swapped = bn < an;
        const real loss = (real)o->margin + near - (swapped ? bn : an);
        const real active = loss < 0 ? RC(0.0) : RC(1.0);
        real *k = (real *)c->y[1].data + 3 * r;
        k[0] = over(active, near);
        k[1] = swapped ? 0 : over(-active, an);
        k[2] = swapped ? over(-active, bn) : 0;
        put_loss(c, r, loss < 0 ? 0 : loss);
    }
}

static tp_code triplet_margin_fwd(const tp_call *c)
{
    const int64_t rows = rows_of(c);
    tp__for(c, rows, grain(c->x[0].dim[c->x[0].ndim - 1]), triplet_rows);
    add_up(c, rows, divisor(c, rows));
    return TP_OK;
}

/* The slope in u = a - b + eps, times sign(k): |u k|^(p-1), with the sign of u. */
TP_INLINE real pull(real a, real b, real k, real p)
{
    const real u = a - b + (real)TP_TRIPLET_EPS;
    if (p == RC(2.0)) return u * k;
    const real sign = u * k > 0 ? RC(1.0) : u * k < 0 ? RC(-1.0) : u * k; /* NaN stays */
    if (p == RC(1.0)) return sign;
    return sign == 0 ? 0 : sign * r_exp((p - RC(1.0)) * r_log(r_abs(u * k)));
}

TP_INLINE void triplet_grad(const tp_call *c, int64_t r, int64_t n, real p)
{
    const real *restrict a = (const real *)c->x[0].data + r * n;
    const real *restrict b = (const real *)c->x[1].data + r * n;
    const real *restrict f = (const real *)c->x[2].data + r * n;
    const real *k = (const real *)c->y[1].data + 3 * r;
    const real g = slope_of(c, r, divisor(c, rows_of(c))), k0 = k[0], k1 = k[1], k2 = k[2];
    real *restrict da = c->dx[0].data, *restrict db = c->dx[1].data, *restrict df = c->dx[2].data;
    if (da)
        for (int64_t i = 0; i < n; i++)
            da[r * n + i] = g * (pull(a[i], b[i], k0, p) + pull(a[i], f[i], k1, p));
    if (db)
        for (int64_t i = 0; i < n; i++)
            db[r * n + i] = g * (pull(b[i], f[i], k2, p) - pull(a[i], b[i], k0, p));
    if (df)
        for (int64_t i = 0; i < n; i++)
            df[r * n + i] = -g * (pull(a[i], f[i], k1, p) + pull(b[i], f[i], k2, p));
}

static void triplet_grad_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t n = c->x[0].dim[c->x[0].ndim - 1];
    const real p = (real)attr_of(c)->p;
    for (int64_t r = begin; r < end; r++)
        if (p == RC(2.0))
            triplet_grad(c, r, n, RC(2.0));
        else if (p == RC(1.0))
            triplet_grad(c, r, n, RC(1.0));
        else
            triplet_grad(c, r, n, p);
}

static tp_code triplet_margin_bwd(const tp_call *c)
{
    tp__for(c, rows_of(c), grain(c->x[0].dim[c->x[0].ndim - 1]), triplet_grad_rows);
    return TP_OK;
}

/* ---- generalised intersection over union ---- */

static size_t giou_work(const tp_call *c)
{
    return tp_is_backward(c) ? 0 : (size_t)(c->x[0].numel / 4) * sizeof(double);
}

/* 1 if a > b, half if equal. */
TP_INLINE real above(real a, real b)
{
    return a > b ? RC(1.0) : a == b ? RC(0.5) : RC(0.0);
}

/* Along one axis: a box from a to b, its target from s to t. */
typedef struct side {
    real len, target, inner, outer; /* both; the intersection; the box around both */
    real di[2], dc[2];              /* slopes of inner and outer by a and b */
} side;

TP_INLINE side side_of(real a, real b, real s, real t)
{
    const real first = a > s ? s : a, last = b < t ? t : b;
    return (side){ b - a,
                   t - s,
                   (b < t ? b : t) - (a > s ? a : s),
                   last - first,
                   { -above(a, s), above(t, b) },
                   { -above(s, a), above(b, t) } };
}

/* The loss, and its slopes in the corners unless d is NULL. */
TP_INLINE real giou(const real *x, const real *t, real eps, real *d)
{
    const side u = side_of(x[0], x[2], t[0], t[2]), v = side_of(x[1], x[3], t[1], t[3]);
    const bool meet = u.inner > 0 && v.inner > 0;
    const real I = meet ? u.inner * v.inner : RC(0.0), C = u.outer * v.outer;
    const real U = u.len * v.len + u.target * v.target - I, w = U + eps, c = C + eps;
    const real du = I / (w * w) - RC(1.0) / c, di = meet ? -RC(1.0) / w - du : RC(0.0);
    const real dc = w / (c * c);
    for (int k = 0; d && k < 2; k++) {
        const real sign = k ? RC(1.0) : RC(-1.0);
        d[2 * k] = di * u.di[k] * v.inner + du * sign * v.len + dc * u.dc[k] * v.outer;
        d[2 * k + 1] = di * v.di[k] * u.inner + du * sign * u.len + dc * v.dc[k] * u.outer;
    }
    return RC(1.0) - I / w + (C - U) / c;
}

static void giou_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const real *x = c->x[0].data, *t = c->x[1].data, eps = (real)attr_of(c)->eps;
    for (int64_t r = begin; r < end; r++) put_loss(c, r, giou(x + 4 * r, t + 4 * r, eps, NULL));
}

static tp_code giou_fwd(const tp_call *c)
{
    const int64_t rows = c->x[0].numel / 4;
    tp__for(c, rows, TP_BLOCK / 4, giou_rows);
    add_up(c, rows, divisor(c, rows));
    return TP_OK;
}

static void giou_grad_rows(const tp_call *c, int64_t begin, int64_t end)
{
    const real *x = c->x[0].data, *t = c->x[1].data, eps = (real)attr_of(c)->eps;
    const double by = divisor(c, c->x[0].numel / 4);
    real *dx = c->dx[0].data;
    for (int64_t r = begin; r < end; r++) {
        const real g = slope_of(c, r, by);
        real d[4];
        giou(x + 4 * r, t + 4 * r, eps, d);
        for (int k = 0; k < 4; k++) dx[4 * r + k] = g * d[k];
    }
}

static tp_code giou_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->x[0].numel / 4, TP_BLOCK / 4, giou_grad_rows);
    return TP_OK;
}

/* ---- Dice ---- */

/* Rows are cut into blocks of TP_BLOCK elements. */
static int64_t row_length(const tp_call *c)
{
    return c->y[1].dim[0] > 0 ? c->x[0].numel / c->y[1].dim[0] : 0;
}

static int64_t row_blocks(const tp_call *c)
{
    return (row_length(c) + TP_BLOCK - 1) / TP_BLOCK;
}

/* Forward: one loss per row, then three sums per block. */
static size_t dice_work(const tp_call *c)
{
    const int64_t rows = c->y[1].dim[0];
    return (size_t)(tp_is_backward(c) ? 1 : rows * (1 + 3 * row_blocks(c))) * sizeof(double);
}

typedef struct stretch {
    int64_t row, from, to;
} stretch;

static stretch block_at(const tp_call *c, int64_t block)
{
    const int64_t n = row_length(c), blocks = row_blocks(c), row = block / blocks;
    const int64_t from = row * n + block % blocks * TP_BLOCK, end = (row + 1) * n;
    return (stretch){ row, from, from + TP_BLOCK < end ? from + TP_BLOCK : end };
}

static void dice_blocks(const tp_call *c, int64_t begin, int64_t end)
{
    const real *restrict x = c->x[0].data, *restrict t = c->x[1].data;
    for (int64_t k = begin; k < end; k++) {
        const stretch s = block_at(c, k);
        double *part = (double *)c->work + c->y[1].dim[0] + 3 * k;
        real xt = 0, xx = 0, tt = 0;
#pragma omp simd reduction(+ : xt, xx, tt)
        for (int64_t i = s.from; i < s.to; i++) {
            xt += x[i] * t[i];
            xx += x[i] * x[i];
            tt += t[i] * t[i];
        }
        part[0] = (double)xt;
        part[1] = (double)xx;
        part[2] = (double)tt;
    }
}

static tp_code dice_fwd(const tp_call *c)
{
    const int64_t rows = c->y[1].dim[0], blocks = row_blocks(c);
    const double smooth = attr_of(c)->smooth, *part = (const double *)c->work + rows;
    real *saved = c->y[1].data;

    tp__for(c, rows * blocks, 2, dice_blocks);
    for (int64_t r = 0; r < rows; r++) {
        double xt = 0.0, sum = smooth;
        for (int64_t k = 0; k < blocks; k++, part += 3) {
            xt += part[0];
            sum += part[1] + part[2];
        }
        const double d = sum == 0.0 ? 1.0 : (2.0 * xt + smooth) / sum;
        saved[2 * r] = (real)d;
        saved[2 * r + 1] = sum == 0.0 ? 0 : (real)(1.0 / sum);
        put_loss(c, r, (real)(1.0 - d));
    }
    add_up(c, rows, divisor(c, rows));
    return TP_OK;
}

static void dice_grad_blocks(const tp_call *c, int64_t begin, int64_t end)
{
    const real *restrict x = c->x[0].data, *restrict t = c->x[1].data;
    real *restrict dx = c->dx[0].data;
    for (int64_t k = begin; k < end; k++) {
        const stretch s = block_at(c, k);
        const real *saved = (const real *)c->y[1].data + 2 * s.row;
        const real g = slope_of(c, s.row, divisor(c, c->y[1].dim[0]));
        const real of_t = RC(-2.0) * g * saved[1], of_x = of_t * -saved[0];
        for (int64_t i = s.from; i < s.to; i++) dx[i] = of_t * t[i] + of_x * x[i];
    }
}

static tp_code dice_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->y[1].dim[0] * row_blocks(c), 2, dice_grad_blocks);
    return TP_OK;
}

TP_CPU_KERNEL(nll_fwd)
TP_CPU_KERNEL(nll_bwd)
TP_CPU_KERNEL(cosine_similarity_fwd)
TP_CPU_KERNEL(cosine_similarity_bwd)
TP_CPU_KERNEL(triplet_margin_fwd)
TP_CPU_KERNEL(triplet_margin_bwd)
TP_CPU_KERNEL(giou_fwd)
TP_CPU_KERNEL(giou_bwd)
TP_CPU_KERNEL(dice_fwd)
TP_CPU_KERNEL(dice_bwd)
TP_CPU_WORK(row_loss_work)
TP_CPU_WORK(giou_work)
TP_CPU_WORK(dice_work)
