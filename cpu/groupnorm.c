/* groupnorm.c - normalises each group of channels of each image of X [B,positions,C] by its
 * statistics; instance norm is one group per channel.
 *
 *     h = (x - m) s     y = h w + b     s = (var + eps)^-1/2
 *     dx = s (w dy - mean(w dy) - h mean(w dy h))     dw = sum dy h     db = sum dy
 *
 * A part of an image is a block of positions. Each part is read once for the sums of its channels,
 * which are merged in order (Chan, Golub, LeVeque 1979), and once for the result. If there are as
 * many images as threads, a task is an image, which mostly stays in cache; otherwise it is some
 * parts. Hidden output: m and s of each channel's group, [B,2,C]. */
#include "cpu/kit/real.h"
#include "cpu/kit/statistics.h"
#include "tensor/geometry/norms.h"
#include "tensor/kernel.h"

enum { ROWS = 8, LEAST = 16, MOST = 512 }; /* positions summed together; of a part */

typedef struct plan {
    int64_t images, positions, C, group; /* channels of a group */
    int64_t rows, parts;                 /* positions of a part, parts of an image */
    real *sums;                          /* [images][parts][2][C] */
    real *terms;                         /* [images][3][C]: what the second reading needs */
} plan;

static plan plan_of(const tp_call *c)
{
    plan p = { .images = c->y[1].dim[0], .C = c->y[1].dim[2] };
    const int64_t n = p.images * p.C, fit = p.C > 0 ? 32768 / p.C : MOST;
    p.positions = n > 0 ? c->x[0].numel / n : 0;
    p.group = tp__group_size(c->attr, p.C);
    p.rows = fit < LEAST ? LEAST : fit > MOST ? MOST : fit;
    p.parts = (p.positions + p.rows - 1) / p.rows;
    p.sums = c->work;
    p.terms = p.sums + p.images * p.parts * 2 * p.C;
    return p;
}

static size_t groupnorm_work(const tp_call *c)
{
    const plan p = plan_of(c);
    return (size_t)(p.images * (p.parts * 2 + 3) * p.C) * sizeof(real);
}

/* Part k of all images: its first position, counted over all images, and its size. */
static int64_t part_at(const plan *p, int64_t k, int64_t *n)
{
    const int64_t first = k % p->parts * p->rows, left = p->positions - first;
    *n = left < p->rows ? left : p->rows;
    return k / p->parts * p->positions + first;
}

typedef void (*step_fn)(const tp_call *c, const plan *p, int64_t i);

/* first: for each part; second: for each image; third: for each part. */
typedef struct steps {
    const tp_call *c;
    plan p;
    step_fn first, second, third;
} steps;

static void all_steps(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const steps *s = ctx;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        for (int64_t k = 0; k < s->p.parts; k++) s->first(s->c, &s->p, b * s->p.parts + k);
        s->second(s->c, &s->p, b);
        for (int64_t k = 0; s->third && k < s->p.parts; k++)
            s->third(s->c, &s->p, b * s->p.parts + k);
    }
}

static void first_step(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const steps *s = ctx;
    (void)thread;
    for (int64_t k = begin; k < end; k++) s->first(s->c, &s->p, k);
}

static void second_step(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const steps *s = ctx;
    (void)thread;
    for (int64_t b = begin; b < end; b++) s->second(s->c, &s->p, b);
}

static void third_step(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const steps *s = ctx;
    (void)thread;
    for (int64_t k = begin; k < end; k++) s->third(s->c, &s->p, k);
}

static void run(const steps *s)
{
    const plan *p = &s->p;
    const tp_device *D = s->c->dev;
    const int64_t part = (p->positions < p->rows ? p->positions : p->rows) * p->C;
    if (p->images >= D->threads) {
        tp__parallel(D, p->images, 16384 / (p->positions * p->C + 1) + 1, all_steps, s);
        return;
    }
    tp__parallel(D, p->images * p->parts, 16384 / (part + 1) + 1, first_step, s);
    tp__parallel(D, p->images, 1, second_step, s);
    if (s->third) tp__parallel(D, p->images * p->parts, 16384 / (part + 1) + 1, third_step, s);
}

/* ---- forward ---- */

/* Merges rows of x, ROWS of them or one, into m and v, the mean and squared deviations of `before`
 * rows. */
static void merge_rows(const real *restrict x, int64_t C, int64_t before, real *restrict m,
                       real *restrict v)
{
    const real share = (real)ROWS / (real)(before + ROWS), weight = share * (real)before;
    for (int64_t i = 0; i < C; i++) {
        real sum = 0, squares = 0;
        for (int k = 0; k < ROWS; k++) sum += x[k * C + i];
        const real mean = sum / (real)ROWS, d = mean - m[i];
        for (int k = 0; k < ROWS; k++) squares += (x[k * C + i] - mean) * (x[k * C + i] - mean);
        m[i] += d * share;
        v[i] += squares + d * d * weight;
    }
}

static void merge_row(const real *restrict x, int64_t C, int64_t before, real *restrict m,
                      real *restrict v)
{
    const real share = 1 / (real)(before + 1), weight = share * (real)before;
    for (int64_t i = 0; i < C; i++) {
        const real d = x[i] - m[i];
        m[i] += d * share;
        v[i] += d * d * weight;
    }
}

/* Mean and squared deviations of each channel of a part. */
static void part_moments(const tp_call *c, const plan *p, int64_t k)
{
    int64_t n, r = 0;
    const real *x = (const real *)c->x[0].data + part_at(p, k, &n) * p->C;
    real *m = p->sums + k * 2 * p->C, *v = m + p->C;
    memset(m, 0, (size_t)(2 * p->C) * sizeof *m);
    for (; r + ROWS <= n; r += ROWS) merge_rows(x + r * p->C, p->C, r, m, v);
    for (; r < n; r++) merge_row(x + r * p->C, p->C, r, m, v);
}

/* Merges an image's parts into m and v, its mean and squared deviations by channel. */
static void join_parts(const plan *p, int64_t image, real *restrict m, real *restrict v)
{
    int64_t before = 0, n;
    memset(m, 0, (size_t)p->C * sizeof *m);
    memset(v, 0, (size_t)p->C * sizeof *v);
    for (int64_t k = 0; k < p->parts; k++, before += n) {
        const real *from = p->sums + (image * p->parts + k) * 2 * p->C;
        part_at(p, k, &n);
        const real share = (real)n / (real)(before + n), weight = share * (real)before;
        for (int64_t i = 0; i < p->C; i++) {
            const real d = from[i] - m[i];
            m[i] += d * share;
            v[i] += from[p->C + i] + d * d * weight;
        }
    }
}

/* y[1]: mean and scale of the groups; terms: w s and b of each channel. */
static void image_stats(const tp_call *c, const plan *p, int64_t image)
{
    const real eps = (real)((const tp__groupnorm_attr *)c->attr)->eps, rows = (real)p->positions;
    const real *w = c->x[1].data, *b = c->x[2].data;
    real *m = (real *)c->y[1].data + image * 2 * p->C, *s = m + p->C;
    real *scale = p->terms + image * 3 * p->C, *shift = scale + p->C;
    join_parts(p, image, m, s);
    for (int64_t g = 0; g < p->C; g += p->group) {
        real sum = 0, squares = 0;
        for (int64_t i = g; i < g + p->group; i++) sum += m[i];
        const real mean = sum / (real)p->group;
        for (int64_t i = g; i < g + p->group; i++)
            squares += s[i] + rows * (m[i] - mean) * (m[i] - mean);
        const real inverse = inverse_root(squares / (rows * (real)p->group) + eps);
        for (int64_t i = g; i < g + p->group; i++) {
            m[i] = mean;
            s[i] = inverse;
        }
    }
    for (int64_t i = 0; i < p->C; i++) {
        scale[i] = w ? s[i] * w[i] : s[i];
        shift[i] = b ? b[i] : 0;
    }
}

static void norm_part(const tp_call *c, const plan *p, int64_t k)
{
    int64_t n;
    const int64_t at = part_at(p, k, &n) * p->C, image = k / p->parts;
    const real *restrict m = (const real *)c->y[1].data + image * 2 * p->C;
    const real *restrict scale = p->terms + image * 3 * p->C, *restrict shift = scale + p->C;
    for (int64_t r = 0; r < n; r++) {
        const real *x = (const real *)c->x[0].data + at + r * p->C;
        real *restrict y = (real *)c->y[0].data + at + r * p->C;
        for (int64_t i = 0; i < p->C; i++) y[i] = (x[i] - m[i]) * scale[i] + shift[i];
    }
}

static tp_code groupnorm_fwd(const tp_call *c)
{
    const steps s = { c, plan_of(c), part_moments, image_stats, norm_part };
    if (c->x[0].numel == 0)
        memset(c->y[1].data, 0, (size_t)c->y[1].numel * sizeof(real));
    else
        run(&s);
    return TP_OK;
}

/* ---- backward ---- */

/* Adds dy (x - m) to a and dy to b, over n rows. */
static void add_rows(const real *restrict x, const real *restrict dy, const real *restrict m,
                     int64_t n, int64_t C, real *restrict a, real *restrict b)
{
    int64_t r = 0;
    for (; r + ROWS <= n; r += ROWS, x += ROWS * C, dy += ROWS * C)
        for (int64_t i = 0; i < C; i++) {
            real sum_a = 0, sum_b = 0;
            for (int k = 0; k < ROWS; k++) {
                sum_a += dy[k * C + i] * (x[k * C + i] - m[i]);
                sum_b += dy[k * C + i];
            }
            a[i] += sum_a;
            b[i] += sum_b;
        }
    for (; r < n; r++, x += C, dy += C)
        for (int64_t i = 0; i < C; i++) {
            a[i] += dy[i] * (x[i] - m[i]);
            b[i] += dy[i];
        }
}

static void part_sums(const tp_call *c, const plan *p, int64_t k)
{
    int64_t n;
    const int64_t at = part_at(p, k, &n) * p->C;
    const real *m = (const real *)c->y[1].data + k / p->parts * 2 * p->C;
    real *a = p->sums + k * 2 * p->C;
    memset(a, 0, (size_t)(2 * p->C) * sizeof *a);
    add_rows((const real *)c->x[0].data + at, (const real *)c->dy[0].data + at, m, n, p->C, a,
             a + p->C);
}

/* Adds an image's parts into its first, which becomes its sums of dy h and dy. terms: those of
 * dx = scale dy - flat - (x - m) slope. */
static void image_terms(const tp_call *c, const plan *p, int64_t image)
{
    const int64_t C = p->C, width = p->group;
    const real *s = (const real *)c->y[1].data + (image * 2 + 1) * C, *w = c->x[1].data;
    real *restrict dyh = p->sums + image * p->parts * 2 * C, *restrict dy = dyh + C;
    real *scale = p->terms + image * 3 * C, *flat = scale + C, *slope = flat + C;
    for (int64_t k = 1; k < p->parts; k++)
        for (int64_t i = 0; i < 2 * C; i++) dyh[i] += dyh[k * 2 * C + i];
    for (int64_t i = 0; i < C; i++) {
        dyh[i] *= s[i];
        scale[i] = w ? s[i] * w[i] : s[i];
    }
    for (int64_t g = 0; g < C; g += width) {
        real sum_dyh = 0, sum_dy = 0;
        for (int64_t i = g; i < g + width; i++) {
            sum_dyh += w ? w[i] * dyh[i] : dyh[i];
            sum_dy += w ? w[i] * dy[i] : dy[i];
        }
        for (int64_t i = g; i < g + width; i++) {
            flat[i] = s[i] * sum_dy / (real)(p->positions * width);
            slope[i] = s[i] * s[i] * sum_dyh / (real)(p->positions * width);
        }
    }
}

static void grad_part(const tp_call *c, const plan *p, int64_t k)
{
    int64_t n;
    const int64_t at = part_at(p, k, &n) * p->C, image = k / p->parts;
    const real *restrict m = (const real *)c->y[1].data + image * 2 * p->C;
    const real *restrict scale = p->terms + image * 3 * p->C;
    const real *restrict flat = scale + p->C, *restrict slope = flat + p->C;
    for (int64_t r = 0; r < n; r++) {
        const real *x = (const real *)c->x[0].data + at + r * p->C;
        const real *dy = (const real *)c->dy[0].data + at + r * p->C;
        real *restrict dx = (real *)c->dx[0].data + at + r * p->C;
        for (int64_t i = 0; i < p->C; i++)
            dx[i] = scale[i] * dy[i] - flat[i] - (x[i] - m[i]) * slope[i];
    }
}

static tp_code groupnorm_bwd(const tp_call *c)
{
    const plan p = plan_of(c);
    const steps s = { c, p, part_sums, image_terms, c->dx[0].data ? grad_part : NULL };
    if (c->x[0].numel > 0) run(&s);
    for (int k = 0; k < 2; k++) {
        real *to = c->dx[1 + k].data;
        if (!to) continue;
        memset(to, 0, (size_t)p.C * sizeof *to);
        for (int64_t b = 0; b < p.images && c->x[0].numel > 0; b++)
            for (int64_t i = 0; i < p.C; i++) to[i] += p.sums[(b * p.parts * 2 + k) * p.C + i];
    }
    return TP_OK;
}

TP_CPU_WORK(groupnorm_work)
TP_CPU_KERNEL(groupnorm_fwd)
TP_CPU_KERNEL(groupnorm_bwd)
