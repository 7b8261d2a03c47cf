/* rotary.c - rotates the pairs of each head by the angle of its position: one memory-bound pass
 * over x. The gradient rotates back.
 *
 * Angles are reduced in double to an eighth of a turn around the nearest quarter; for float the
 * rest is a short polynomial that vectorises. A position's cosines and sines are computed once for
 * all heads and, if the batch shares positions, for all its rows. */
#include "tensor/geometry/rotary.h"
#include "cpu/kit/real.h"
#include "tensor/kernel.h"

enum { GRAIN = 16384 }; /* elements worth a thread */

/* c->work: the frequencies [pairs] in double, then cosines and sines [2][pairs] of each thread. */
static size_t rotary_work(const tp_call *c)
{
    const tp_rotary_plan g = tp__rotary_plan(c->x, c->attr);
    const size_t pairs = (size_t)g.pairs;
    return pairs * sizeof(double) + (size_t)c->dev->threads * 2 * pairs * sizeof(real);
}

#if TP_REAL == 64
static double unit(void)
{
    return 1;
}

static void turn(int64_t n, double p, const double *freq, real *restrict cosine,
                 real *restrict sine)
{
    for (int64_t i = 0; i < n; i++) cosine[i] = cos(p * freq[i]);
    for (int64_t i = 0; i < n; i++) sine[i] = sin(p * freq[i]);
}
#else
static double unit(void)
{
    return 0.15915494309189534; /* 1 / (2 pi): frequencies are in turns */
}

/* Cephes's polynomials for |x| <= pi/4. */
static void turn(int64_t n, double p, const double *freq, real *restrict cosine,
                 real *restrict sine)
{
    for (int64_t i = 0; i < n; i++) {
        double t = p * freq[i];
        t = 4 * (t - rint(t)); /* quarters of a turn, at most two */
        const double q = rint(t);
        const float x = (float)(1.5707963267948966 * (t - q)), z = x * x, quarter = (float)q;
        const float s =
            x + x * z * (-1.6666654611e-1f + z * (8.3321608736e-3f - 1.9515295891e-4f * z));
        const float k =
            1 - 0.5f * z +
            z * z *
                (4.166664568298827e-2f + z * (-1.388731625493765e-3f + 2.443315711809948e-5f * z));
        const bool odd = quarter == 1 || quarter == -1;
        const float c1 = odd ? s : k, s1 = odd ? k : s;
        cosine[i] = quarter == 1 || quarter == 2 || quarter == -2 ? -c1 : c1;
        sine[i] = quarter == -1 || quarter == 2 || quarter == -2 ? -s1 : s1;
    }
}
#endif

/* The position of row r of the table. */
static double position(const tp_call *c, int64_t r)
{
    const double offset = (double)((const tp_rotary_cfg *)c->attr)->offset;
    const tp_view *p = &c->x[1];
    if (tp_absent(p)) return offset + (double)r;
    return offset + (p->dtype == TP_I32 ? ((const int32_t *)p->data)[r]
                                        : (double)((const int64_t *)p->data)[r]);
}

/* One head: pairs are its halves, or adjacent. */
static void rotate(const tp_rotary_plan *g, bool interleaved, const real *restrict cosine,
                   const real *restrict sine, const real *restrict x, real *restrict y)
{
    const int64_t n = g->pairs;
    if (interleaved)
        for (int64_t i = 0; i < n; i++) {
            const real a = x[2 * i], b = x[2 * i + 1];
            y[2 * i] = a * cosine[i] - b * sine[i];
            y[2 * i + 1] = b * cosine[i] + a * sine[i];
        }
    else
        for (int64_t i = 0; i < n; i++) {
            const real a = x[i], b = x[n + i];
            y[i] = a * cosine[i] - b * sine[i];
            y[n + i] = b * cosine[i] + a * sine[i];
        }
    memcpy(y + 2 * n, x + 2 * n, (size_t)(g->dim - 2 * n) * sizeof *y);
}

/* Tokens in the order in which they share a row of the table: the batch is the inner loop if it
 * shares positions. */
static void rotate_range(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp_rotary_plan g = tp__rotary_plan(c->x, c->attr);
    const bool interleaved = ((const tp_rotary_cfg *)c->attr)->interleaved;
    const bool back = tp_is_backward(c), shared = g.tables == g.queries;
    const double *freq = c->work;
    real *cosine = (real *)(freq + g.pairs) + thread * 2 * g.pairs, *sine = cosine + g.pairs;
    const real *x = back ? c->dy[0].data : c->x[0].data;
    real *y = back ? c->dx[0].data : c->y[0].data;
    int64_t now = -1;
    for (int64_t k = begin; k < end; k++) {
        const int64_t row = shared ? k / g.batch : k;
        const int64_t token = shared ? k % g.batch * g.queries + row : k;
        if (row != now) {
            now = row;
            turn(g.pairs, position(c, row), freq, cosine, sine);
            for (int64_t i = 0; back && i < g.pairs; i++) sine[i] = -sine[i];
        }
        for (int64_t h = 0; h < g.heads; h++) {
            const int64_t at = (token * g.heads + h) * g.dim;
            rotate(&g, interleaved, cosine, sine, x + at, y + at);
        }
    }
}

static tp_code run(const tp_call *c)
{
    const tp_rotary_plan g = tp__rotary_plan(c->x, c->attr);
    double *freq = c->work;
    if (g.dim == 0) return TP_OK;
    const tp_rotary_scaling s = tp__rotary_scaling(c->attr);
    for (int64_t i = 0; i < g.pairs; i++) {
        const double angle = pow(g.base, -(double)i / (double)g.pairs);
        freq[i] = unit() * angle * tp__rotary_slower(s, angle * 0.15915494309189534);
    }
    tp__for_threads(c, g.batch * g.queries, 1 + GRAIN / (g.heads * g.dim), rotate_range);
    return TP_OK;
}

static tp_code rotary_fwd(const tp_call *c)
{
    return run(c);
}

static tp_code rotary_bwd(const tp_call *c)
{
    return c->dx[0].data ? run(c) : TP_OK;
}

TP_CPU_WORK(rotary_work)
TP_CPU_KERNEL(rotary_fwd)
TP_CPU_KERNEL(rotary_bwd)
