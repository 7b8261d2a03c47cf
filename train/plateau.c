/* plateau.c - the learning rate that falls when a score stops improving, with its state in
 * checkpoints. */
#include <math.h>
#include <tapegrad/optim.h>

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

void tp_plateau_write(const tp_plateau *S, tp_writer *W)
{
    tp_writer_meta_num(W, "plateau.lr", S->lr);
    if (!isnan(S->best)) tp_writer_meta_num(W, "plateau.best", S->best);
    tp_writer_meta_int(W, "plateau.bad", S->bad);
    tp_writer_meta_int(W, "plateau.resting", S->resting);
}

bool tp_plateau_read(tp_plateau *S, tp_file *F)
{
    tp_plateau now = *S;
    int64_t bad = -1, resting = -1;
    now.lr = -1.0;
    now.best = (double)NAN; /* metadata hold finite numbers only */
    if (!tp_file_num(F, "plateau.lr", &now.lr) || !tp_file_num(F, "plateau.best", &now.best) ||
        !tp_file_int(F, "plateau.bad", &bad) || !tp_file_int(F, "plateau.resting", &resting))
        return false;
    if (!(now.lr >= 0.0 && isfinite(now.lr)) || bad < 0 || resting < 0) return false;
    now.bad = bad;
    now.resting = resting;
    *S = now;
    return true;
}
