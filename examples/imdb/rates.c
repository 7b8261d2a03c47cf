/* rates.c - see the header. */
#include "rates.h"

#include <math.h>
#include <stdlib.h>

int64_t text_warmup(const tp_train_settings *o, int64_t total)
{
    const double w = o->warmup;
    return (int64_t)(w < 1 ? round(w * (double)total) : w);
}

/* As in fairseq: (T - u) / (T - warm-up) to the power, and `end` from update T on. */
static double polynomial(const tp_train_settings *o, double power, int64_t u, int64_t warm,
                         int64_t total)
{
    if (u < warm) return o->lr * (double)(u + 1) / (double)warm;
    if (u >= total) return o->lr_end;
    const double left = (double)(total - u) / (double)(total - warm);
    return o->lr_end + (o->lr - o->lr_end) * pow(left, power);
}

double text_rate(const tp_train_settings *o, const rate_choice *r, int64_t u, int64_t total)
{
    tp_train_settings whole = *o;
    const int64_t warm = text_warmup(o, total);
    if (o->schedule == RATE_POLYNOMIAL) return polynomial(o, r->power, u, warm, total);
    whole.warmup = (double)warm;
    return tp_train_rate(&whole, u, total);
}

void text_keep_end(tp_run *R, const tp_file *from)
{
    const tp_train_settings *o = R->settings;
    const char *former = tp_file_meta(from, "train.steps");
    const bool shaped = o->schedule != TP_RATE_CONSTANT && o->schedule != TP_RATE_STEP;
    if (former && shaped && strtoll(former, NULL, 10) != o->steps)
        tp_run_fail(R, "%s: its schedule ends at update %.20s, which --steps cannot change",
                    tp_file_path(from), former);
}

void text_take_adamw(tp_train_settings *o)
{
    tp_train_choose(o, "adamw");
    tp_train_set(o, "beta1", 0.9);
    tp_train_set(o, "beta2", 0.98);
    tp_train_set(o, "eps", 1e-6);
}

static tp_factors spare_vectors(const char *name, tp_shape shape, void *env)
{
    (void)name;
    (void)env;
    return (tp_factors){ .lr = 1, .decay = shape.ndim > 1 };
}

tp_optim *text_optimizer(tp_params *P, const tp_train_settings *o, const rate_choice *r)
{
    return tp_train_optimizer(P, o, true, r->decay == DECAY_MATRICES ? spare_vectors : NULL, NULL);
}
