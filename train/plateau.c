/* plateau.c - the learning rate that falls when a score stops improving, with its state in
 * checkpoints. */
#include <math.h>
#include <stdio.h>
#include <tapegrad/optim.h>

#include "tensor/file/inner.h"

tp_plateau tp_plateau_usual(double lr)
{
    return (tp_plateau){
        .lr = lr, .factor = 0.1, .patience = 10, .threshold = 1e-4, .eps = 1e-8, .best = (double)NAN
    };
}

static bool is_better(const tp_plateau *S, double score)
{
    const double sign = S->higher ? 1.0 : -1.0, worst = -sign * HUGE_VAL;
    const double best = isnan(S->best) ? worst : S->best;
    const double bar =
        S->absolute ? best + sign * S->threshold : best * (1.0 + sign * S->threshold);
    return isfinite(score) && (S->higher ? score > bar : score < bar);
}

double tp_plateau_step(tp_plateau *S, double score)
{
    if (!S) return (double)NAN;
    if (is_better(S, score)) {
        S->best = score;
        S->bad = 0;
    } else {
        S->bad++;
    }
    if (S->resting > 0) {
        S->resting--;
        S->bad = 0;
    }
    if (S->bad > S->patience) {
        const double next = fmax(S->lr * S->factor, S->min_lr);
        if (S->lr - next > S->eps) S->lr = next;
        S->resting = S->cooldown;
        S->bad = 0;
    }
    return S->lr;
}

/* The metadata key of a member. */
static const char *key(char text[256], const char *prefix, const char *member)
{
    snprintf(text, 256, "%splateau.%s", prefix ? prefix : "", member);
    return text;
}

void tp_plateau_write(const tp_plateau *S, tp_writer *W, const char *prefix)
{
    char k[256];
    if (!S) {
        tp__writer_fail(W, &(tp_err){ TP_E_STATE, "NULL was given in place of a plateau", NULL });
        return;
    }
    tp_writer_meta_num(W, key(k, prefix, "lr"), S->lr);
    if (!isnan(S->best)) tp_writer_meta_num(W, key(k, prefix, "best"), S->best);
    tp_writer_meta_int(W, key(k, prefix, "bad"), S->bad);
    tp_writer_meta_int(W, key(k, prefix, "resting"), S->resting);
}

bool tp_plateau_read(tp_plateau *S, tp_file *F, const char *prefix)
{
    char k[256];
    if (!S) return false;
    tp_plateau now = *S;
    int64_t bad = -1, resting = -1;
    now.lr = -1.0;
    now.best = (double)NAN; /* metadata hold finite numbers only */
    if (!tp_file_num(F, key(k, prefix, "lr"), &now.lr) ||
        !tp_file_num(F, key(k, prefix, "best"), &now.best) ||
        !tp_file_int(F, key(k, prefix, "bad"), &bad) ||
        !tp_file_int(F, key(k, prefix, "resting"), &resting))
        return false;
    if (!(now.lr >= 0.0 && isfinite(now.lr)) || bad < 0 || resting < 0) return false;
    now.bad = bad;
    now.resting = resting;
    *S = now;
    return true;
}
