/* mix.c - mixup and cutmix of images i and B-1-i of a batch, and of their targets.
 *
 *     mixup:   x_i = lambda x_i + (1 - lambda) x_{B-1-i}
 *     cutmix:  a box of x_i comes from x_{B-1-i}; lambda = 1 - the box's share of the image */
#include <math.h>
#include <string.h>

#include <tapegrad/augment.h>

#include "inner.h"

tp_mixing tp_mix_cut(double lambda, int64_t x, int64_t y, int64_t H, int64_t W)
{
    const double side = sqrt(1 - lambda);
    const int64_t height = (int64_t)((double)H * side), width = (int64_t)((double)W * side);
    const int64_t left = tp__clamp(x - width / 2, 0, W), right = tp__clamp(x + width / 2, 0, W);
    const int64_t top = tp__clamp(y - height / 2, 0, H), end = tp__clamp(y + height / 2, 0, H);
    const double area = (double)((right - left) * (end - top));
    return (tp_mixing){ .lambda = 1 - area / (double)(H * W),
                        .cut = true,
                        .box = { left, top, right - left, end - top } };
}

tp_mixing tp_mix_draw(const tp_mix *m, tp_example batch, int64_t H, int64_t W)
{
    if (!m) return (tp_mixing){ 0 };
    tp_random r = tp_random_stream(batch.seed, "mix", batch.index, batch.epoch);
    const bool mixes = tp_random_uniform(&r) < m->probability;
    const bool cut = m->cutmix > 0 && (m->mixup <= 0 || tp_random_uniform(&r) < m->cut);
    const double alpha = cut ? m->cutmix : m->mixup;
    if (!mixes || alpha <= 0) return (tp_mixing){ .lambda = 1 };
    const double lambda = tp_random_beta(&r, alpha, alpha);
    if (!cut) return (tp_mixing){ .lambda = lambda };
    const int64_t y = tp_random_below(&r, H), x = tp_random_below(&r, W);
    return tp_mix_cut(lambda, x, y, H, W);
}

static void blend(float *a, float *b, int64_t n, double lambda)
{
    const float own = (float)lambda, other = (float)(1 - lambda);
    for (int64_t i = 0; i < n; i++) {
        const float x = a[i], y = b[i];
        a[i] = x * own + y * other;
        b[i] = y * own + x * other;
    }
}

static void swap(float *a, float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = a[i];
        a[i] = b[i];
        b[i] = x;
    }
}

void tp_mix_apply(const tp_mixing *d, float *x, int64_t B, int64_t H, int64_t W, int64_t C)
{
    const int64_t n = H * W * C;
    for (int64_t i = 0; d && x && i < B / 2 && d->lambda != 1; i++) {
        float *a = x + i * n, *b = x + (B - 1 - i) * n;
        if (!d->cut) blend(a, b, n, d->lambda);
        for (int64_t y = d->box.y; d->cut && y < d->box.y + d->box.height; y++) {
            const int64_t at = (y * W + d->box.x) * C;
            swap(a + at, b + at, d->box.width * C);
        }
    }
}

void tp_mix_targets(const tp_mixing *d, double smoothing, const int32_t *label, int64_t B,
                    int64_t classes, float *targets)
{
    if (!d) return;
    const float off = (float)(smoothing / (double)classes);
    const float on = (float)(1 - smoothing + smoothing / (double)classes);
    const float own = (float)d->lambda, other = (float)(1 - d->lambda);
    for (int64_t i = 0; i < B; i++) {
        const int32_t mine = label[i], theirs = label[B - 1 - i];
        float *t = targets + i * classes;
        for (int64_t c = 0; c < classes; c++)
            t[c] = (c == mine ? on : off) * own + (c == theirs ? on : off) * other;
    }
}
