/* schedule.c - learning rates as functions of u, the number of updates made so far. */
#include <math.h>
#include <tapegrad/optim.h>

static const double pi = 3.14159265358979323846;

/* From a (x = 0) to b (x >= 1) along half a cosine. */
static double half_cosine(double a, double b, double x)
{
    return x >= 1.0 ? b : b + 0.5 * (a - b) * (1.0 + cos(pi * x));
}

static double warm(int64_t u, int64_t warmup, double lr)
{
    return lr * (double)(u + 1) / (double)warmup;
}

double tp_lr_constant(int64_t u, int64_t warmup, double lr)
{
    return u < warmup ? warm(u, warmup, lr) : lr;
}

double tp_lr_linear(int64_t u, int64_t warmup, int64_t total, double lr, double end)
{
    if (u < warmup) return warm(u, warmup, lr);
    if (u >= total - 1) return end;
    return lr + (end - lr) * (double)(u - warmup) / (double)(total - 1 - warmup);
}

double tp_lr_cosine(int64_t u, int64_t warmup, int64_t total, double lr, double end)
{
    if (u < warmup) return warm(u, warmup, lr);
    if (u >= total) return end;
    return half_cosine(lr, end, (double)(u - warmup) / (double)(total - warmup));
}

double tp_lr_cosine_from(int64_t u, int64_t warmup, int64_t total, double start, double lr,
                         double end)
{
    const int64_t t = u > 0 ? u - 1 : 0;
    if (t < warmup) return start + (double)t * (lr - start) / (double)warmup;
    if (t >= total) return end;
    return half_cosine(lr, end, (double)(t - warmup) / (double)(total - warmup));
}

double tp_lr_cosine_whole(int64_t t, int64_t warmup, int64_t total, double start, double lr,
                          double end)
{
    if (t < warmup) return start + (double)t * (lr - start) / (double)warmup;
    return half_cosine(lr, end, total > 0 ? (double)t / (double)total : 1.0);
}

double tp_lr_step(int64_t u, int64_t warmup, int64_t every, double factor, double lr)
{
    if (u < warmup) return warm(u, warmup, lr);
    const int64_t drops = every < 1 ? 0 : (u - warmup) / every;
    return lr * pow(factor, (double)drops);
}

double tp_lr_milestones(int64_t u, int64_t warmup, double start, const int64_t *milestone, int n,
                        double factor, double lr)
{
    if (n > 0 && !milestone) return (double)NAN; /* which tp_step refuses */
    for (int i = 0; i < n; i++)
        if (u >= milestone[i]) lr *= factor;
    if (u >= warmup) return lr;
    const double risen = (double)u / (double)warmup;
    return lr * (start * (1 - risen) + risen);
}

double tp_lr_onecycle(int64_t u, int64_t total, double lr, double pct, double div, double final_div)
{
    const double start = lr / div, end = start / final_div;
    const double at = (double)u, peak = pct * (double)total - 1.0, last = (double)total - 1.0;
    if (at >= last) return pct < 1.0 ? end : lr;
    if (at <= peak) return peak > 0.0 ? half_cosine(start, lr, at / peak) : lr;
    return half_cosine(lr, end, (at - peak) / (last - peak));
}

double tp_cycle_linear(int64_t u, int64_t total, double pct, double start, double top, double end)
{
    const double at = (double)u, peak = pct * (double)total - 1.0, last = (double)total - 1.0;
    if (at >= last) return pct < 1.0 ? end : top;
    if (at <= peak) return peak > 0.0 ? start + (top - start) * at / peak : top;
    return top + (end - top) * (at - peak) / (last - peak);
}
