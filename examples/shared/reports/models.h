/* models.h - any program's models: changes by --set, and trained weights. */
#ifndef REPORTS_MODELS_H
#define REPORTS_MODELS_H

#include <tapegrad/model.h>
#include <tapegrad/train.h>

/* Row --set for settings S with a text member `at`. what: "Changes members of the model, as
 * dual_ln=0". */
#define OPTION_MEMBERS(S, at, tag, what)                                                           \
    TP_STRING("set", S, at, "KEY=VALUE,...", tag, what "; tp-models --members NAME lists them.")

/* Changes members of c with tp_model_change, which gets set_by. False with a sentence beginning
 * with "--set" in why; c is then unchanged. */
bool model_set(tp_model_cfg *c, const char *set, const char *const set_by[TP_COMMON_KINDS],
               char *why, size_t size);

/* Compares c after --set with the same after applying the flags again, since flags may change the
 * same members. False with a sentence in why if they differ. */
bool model_set_agrees(const tp_model_cfg *c, const tp_model_cfg *flags, char *why, size_t size);

/* Opens device, parameters and tape of t, declares the model of c, with the adaptations that the
 * file has (adaptations.h), and loads t->path. False with the
 * reason in t->why, also if c is impossible. Free the net before closing t; it is NULL if
 * undeclared. */
bool trained_load(tp_trained *t, const tp_machine_settings *o, const tp_model_cfg *c, tp_net **net);

/* Fails t unless the trained model's score is finite. */
bool trained_finite(tp_trained *t, double loss);

#endif
