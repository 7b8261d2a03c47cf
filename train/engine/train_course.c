/* train_course.c - what the scores of validations decide: when --patience ends the run, and when
 * --schedule plateau drops its learning rate.
 *
 * The state is a part of last.safetensors. best.safetensors does not serve: after a kill it may
 * hold the score of a later update than the one from which the run resumes. Validations that only
 * the end of a run asked for (--steps, --time) do not count, since one that never stopped has none
 * there. The factor of a plateau multiplies the rate of every program, also where the program has a
 * schedule of its own. */
#include <math.h>
#include <stdio.h>

#include "trainer.h"

bool tp__is_better(const tp_training *t, double a, double b)
{
    return isfinite(a) && (isnan(b) || (t->higher ? a > b : a < b));
}

static bool has_plateau(const tp_trainer *r)
{
    return r->o->schedule == TP_RATE_PLATEAU;
}

bool tp__course_begin(tp_trainer *r)
{
    const tp_train_settings *o = r->o;
    tp_plateau p = tp_plateau_usual(o->lr);
    p.factor = o->lr_factor;
    p.min_lr = o->lr_end;
    p.patience = o->lr_patience - 1; /* tolerated ones */
    p.threshold = 0;                 /* as for --patience */
    p.higher = r->t->higher;
    r->course = (tp_course){ .best = (double)NAN, .plateau = p };
    if (o->eval_every > 0 || !(o->patience > 0 || has_plateau(r))) return true;
    return tp__run_fail(
        r, "--%s needs validations during the run, which --eval-every does not ask for",
        o->patience > 0 ? "patience" : "schedule plateau");
}

double tp__course_factor(const tp_trainer *r)
{
    return has_plateau(r) && !r->run.trial && r->o->lr > 0 ? r->course.plateau.lr / r->o->lr : 1;
}

static void say_stale(tp_trainer *r, int64_t n, const char *so)
{
    if (n == 1)
        tp_run_say(&r->run, "a validation found no better %s: %s", r->t->score, so);
    else
        tp_run_say(&r->run, "%lld validations in a row found no better %s: %s", (long long)n,
                   r->t->score, so);
}

static void take_rate(tp_trainer *r, double score)
{
    const double before = r->course.plateau.lr, now = tp_plateau_step(&r->course.plateau, score);
    char so[60];
    snprintf(so, sizeof so, "the learning rate drops to %.4g", now);
    if (now < before) say_stale(r, r->o->lr_patience, so);
}

void tp__course_take(tp_trainer *r, double score)
{
    tp_course *c = &r->course;
    const bool better = tp__is_better(r->t, score, c->best);
    if (better) c->best = score;
    c->stale = better ? 0 : c->stale + 1;
    if (has_plateau(r)) take_rate(r, score);
    if (!tp__course_over(r)) return;
    say_stale(r, c->stale, "--patience ends the run");
    tp_run_note_text(&r->run, "ended", "patience");
}

bool tp__course_over(const tp_trainer *r)
{
    return r->o->patience > 0 && r->course.stale >= r->o->patience;
}

void tp__course_write(const tp_trainer *r, tp_writer *W)
{
    const tp_course *c = &r->course;
    if (!isnan(c->best)) tp_writer_meta_num(W, "course.best", c->best);
    tp_writer_meta_int(W, "course.stale", c->stale);
    if (has_plateau(r)) tp_plateau_write(&c->plateau, W, "course.");
}

/* Older checkpoints have no course. */
bool tp__course_read(tp_trainer *r, tp_file *F)
{
    tp_course *c = &r->course;
    if (!tp_file_num(F, "course.best", &c->best) || !tp_file_int(F, "course.stale", &c->stale))
        return tp__run_fail(r, "%s", tp_file_why(F));
    if (has_plateau(r) && !tp_plateau_read(&c->plateau, F, "course."))
        return tp__run_fail(r, "%s: %s", r->folder.last,
                            tp_file_ok(F) ? "the state of --schedule plateau is missing or wrong"
                                          : tp_file_why(F));
    return c->stale >= 0 || tp__run_fail(r, "%s: 'course.stale' is negative", r->folder.last);
}
