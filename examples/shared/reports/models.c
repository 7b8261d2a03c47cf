/* models.c - any program's models: changes by --set, and trained weights. */
#include "models.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "adaptations.h"

bool model_set(tp_model_cfg *c, const char *set, const char *const set_by[TP_COMMON_KINDS],
               char *why, size_t size)
{
    char reason[512];
    if (tp_model_change(c, set, set_by, reason, sizeof reason)) return true;
    snprintf(why, size, "--set: %s", reason);
    return false;
}

bool model_set_agrees(const tp_model_cfg *c, const tp_model_cfg *flags, char *why, size_t size)
{
    for (const tp_model_member *m = c->model->members; m->kind != TP_MEMBER_END; m++) {
        char ours[512], theirs[512];
        if (m->kind == TP_MEMBER_HIDDEN) continue;
        tp_model_member_get(m, &c->at, ours, sizeof ours);
        tp_model_member_get(m, &flags->at, theirs, sizeof theirs);
        if (strcmp(ours, theirs) == 0) continue;
        snprintf(
            why, size,
            "--set: %s=%s contradicts the rest of the command line, which asks for %s: leave one "
            "out",
            m->key, ours, theirs);
        return false;
    }
    return true;
}

bool trained_load(tp_trained *t, const tp_machine_settings *o, const tp_model_cfg *c, tp_net **net)
{
    char why[512];
    if (!tp_model_check(c, why, sizeof why))
        return tp_trained_fail(t, "%s: impossible model: %s", t->path, why);
    tp_trained_open(t, o, 0, true);
    tp_file *F = tp_file_open(t->path);
    const bool adapted = adaptation_read(t->P, F, why, sizeof why);
    *net = tp_net_new(t->P, "", c);
    if (!tp_file_ok(F))
        tp_trained_fail(t, "%s", tp_file_why(F));
    else if (!adapted)
        tp_trained_fail(t, "%s", why);
    else if (!tp_net_load(t->P, *net, F, false))
        tp_trained_fail(t, "%s", tp_params_why(t->P));
    tp_file_close(F);
    return tp_trained_ok(t);
}

bool trained_finite(tp_trained *t, double loss)
{
    return isfinite(loss) ||
           tp_trained_fail(
               t, "the loss is %g: the weights in %s are bad, or --dtype is too narrow for them",
               loss, t->path);
}
