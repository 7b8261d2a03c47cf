/* instancenorm.c - normalises each channel of each image of X [B,positions,C] by its own statistics.
 *
 *     h = (x - m) s     y = h w + b     s = (var + eps)^-1/2
 *     dx = w s (dy - mean dy - h mean(dy h))     dw = sum dy h     db = sum dy
 *
 * A task is a block of channels of an image: its positions are read three times, mostly from cache.
 * Hidden output: m and s, [B,2,C]. */
#include "tensor/cpu/kit/real.h"
#include "tensor/geometry/norms.h"
#include "tensor/kernel.h"

#define WIDE 32 /* channels of a task                          */
#define RUN  64 /* positions that are summed before their sum is added */

/* Channels [first, first + n) of an image, whose first element is `at`. */
#define strip strip
typedef struct strip {
    int64_t image, first, n, at, positions, C;
} strip;

static strip strip_of(const tp_call *c, int64_t task)
{
    const int64_t B = c->y[1].dim[0], C = c->y[1].dim[2], strips = (C + WIDE - 1) / WIDE;
    strip s = { .image = task / strips, .first = task % strips * WIDE, .C = C };
    s.n = C - s.first < WIDE ? C - s.first : WIDE;
    s.positions = c->x[0].numel / (B * C);
    s.at = s.image * s.positions * C + s.first;
    return s;
}

static int64_t strips(const tp_call *c)
{
    return c->y[1].dim[0] * ((c->y[1].dim[2] + WIDE - 1) / WIDE);
}

/* m and sum of squared deviations v of each channel. */
static void strip_moments(const strip *s, const real *x, real *m, real *v)
{
    for (int64_t i = 0; i < s->n; i++) m[i] = v[i] = 0;
    for (int64_t p = 0; p < s->positions; p += RUN) {
        const int64_t end = p + RUN < s->positions ? p + RUN : s->positions;
        real sum[WIDE] = { 0 };
        for (int64_t r = p; r < end; r++)
            for (int64_t i = 0; i < s->n; i++) sum[i] += x[r * s->C + i];
        for (int64_t i = 0; i < s->n; i++) m[i] += sum[i];
    }
    for (int64_t i = 0; i < s->n; i++) m[i] /= (real)s->positions;
    for (int64_t p = 0; p < s->positions; p += RUN) {
        const int64_t end = p + RUN < s->positions ? p + RUN : s->positions;
        real sum[WIDE] = { 0 };
        for (int64_t r = p; r < end; r++)
            for (int64_t i = 0; i < s->n; i++)
                sum[i] += (x[r * s->C + i] - m[i]) * (x[r * s->C + i] - m[i]);
        for (int64_t i = 0; i < s->n; i++) v[i] += sum[i];
    }
}

static void norm_strips(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const real eps = (real)((const tp__instancenorm_attr *)c->attr)->eps;
    const real *w = c->x[1].data, *b = c->x[2].data;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const strip k = strip_of(c, t);
        const real *x = (const real *)c->x[0].data + k.at;
        real *y = (real *)c->y[0].data + k.at, scale[WIDE], shift[WIDE];
        real *m = (real *)c->y[1].data + k.image * 2 * k.C + k.first, *s = m + k.C;
        strip_moments(&k, x, m, s);
        for (int64_t i = 0; i < k.n; i++) {
            s[i] = 1 / r_sqrt(s[i] / (real)k.positions + eps);
            scale[i] = w ? s[i] * w[k.first + i] : s[i];
            shift[i] = b ? b[k.first + i] : 0;
        }
        for (int64_t r = 0; r < k.positions; r++)
            for (int64_t i = 0; i < k.n; i++)
                y[r * k.C + i] = (x[r * k.C + i] - m[i]) * scale[i] + shift[i];
    }
}

static tp_code instancenorm_fwd(const tp_call *c)
{
    if (c->x[0].numel == 0)
        memset(c->y[1].data, 0, (size_t)c->y[1].numel * sizeof(real));
    else
        tp__for(c, strips(c), 1, norm_strips);
    return TP_OK;
}

/* Sums of dy h and of dy of each channel. */
static void strip_sums(const strip *s, const real *x, const real *dy, const real *m,
                       const real *scale, real *sum_dyh, real *sum_dy)
{
    for (int64_t i = 0; i < s->n; i++) sum_dyh[i] = sum_dy[i] = 0;
    for (int64_t p = 0; p < s->positions; p += RUN) {
        const int64_t end = p + RUN < s->positions ? p + RUN : s->positions;
        real a[WIDE] = { 0 }, b[WIDE] = { 0 };
        for (int64_t r = p; r < end; r++)
            for (int64_t i = 0; i < s->n; i++) {
                const real d = dy[r * s->C + i];
                a[i] += d * (x[r * s->C + i] - m[i]);
                b[i] += d;
            }
        for (int64_t i = 0; i < s->n; i++) {
            sum_dyh[i] += a[i] * scale[i];
            sum_dy[i] += b[i];
        }
    }
}

/* c->work: the sums of dy h and of dy of each image, [B,2,C]. */
static void grad_strips(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const real *w = c->x[1].data;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const strip k = strip_of(c, t);
        const int64_t stats = k.image * 2 * k.C + k.first;
        const real *x = (const real *)c->x[0].data + k.at, *dy = (const real *)c->dy[0].data + k.at;
        const real *m = (const real *)c->y[1].data + stats, *s = m + k.C;
        real *sum_dyh = (real *)c->work + stats, *sum_dy = sum_dyh + k.C;
        real scale[WIDE], term_dyh[WIDE], term_dy[WIDE];
        strip_sums(&k, x, dy, m, s, sum_dyh, sum_dy);
        if (!c->dx[0].data) continue;
        real *dx = (real *)c->dx[0].data + k.at;
        for (int64_t i = 0; i < k.n; i++) { /* dx = scale dy - term_dy - (x - m) term_dyh */
            scale[i] = w ? s[i] * w[k.first + i] : s[i];
            term_dyh[i] = scale[i] * s[i] * sum_dyh[i] / (real)k.positions;
            term_dy[i] = scale[i] * sum_dy[i] / (real)k.positions;
        }
        for (int64_t r = 0; r < k.positions; r++)
            for (int64_t i = 0; i < k.n; i++)
                dx[r * k.C + i] =
                    scale[i] * dy[r * k.C + i] - term_dy[i] - (x[r * k.C + i] - m[i]) * term_dyh[i];
    }
}

static tp_code instancenorm_bwd(const tp_call *c)
{
    const int64_t B = c->y[1].dim[0], C = c->y[1].dim[2];
    const real *sums = c->work;
    if (c->x[0].numel > 0) tp__for(c, strips(c), 1, grad_strips);
    for (int k = 0; k < 2; k++) {
        real *to = c->dx[1 + k].data;
        if (!to) continue;
        memset(to, 0, (size_t)C * sizeof *to);
        for (int64_t b = 0; b < B && c->x[0].numel > 0; b++)
            for (int64_t i = 0; i < C; i++) to[i] += sums[(2 * b + k) * C + i];
    }
    return TP_OK;
}

#undef strip

TP_CPU_KERNEL(instancenorm_fwd)
TP_CPU_KERNEL(instancenorm_bwd)
