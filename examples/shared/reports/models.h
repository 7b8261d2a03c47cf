/* models.h - models of any program: changes by --set, and weights of a trained one. */
#ifndef REPORTS_MODELS_H
#define REPORTS_MODELS_H

#include <tapegrad/model.h>
#include <tapegrad/train.h>

/* --set as a row for settings S with a text as member `at`. what: "Changes members of the model, as dual_ln=0". */
/* clang-format off */
#define OPTION_MEMBERS(S, at, tag, what) \
    TP_STRING("set", S, at, "KEY=VALUE,...", tag, what "; tp-models --members NAME lists them.")
/* clang-format on */

/* Changes members of c as tp_model_change does, to which set_by is passed on. False with a sentence that begins with
 * "--set" in why; c is then as before. */
bool model_set(tp_model_cfg *c, const char *set, const char *const set_by[TP_COMMON_KINDS],
               char *why, size_t size);

/* For flags that change the members that --set names, too. c: after --set; flags: after the flags were applied to it
 * once more. False with a sentence in why if they differ. */
bool model_set_agrees(const tp_model_cfg *c, const tp_model_cfg *flags, char *why, size_t size);

/* Opens device, parameters and tape of t, declares the model of c and loads the weights of t->path. False with the reason
 * in t->why, also if c is impossible. Free the net before t is closed; it is NULL if it was never declared. */
bool trained_load(tp_trained *t, const tp_machine_settings *o, const tp_model_cfg *c, tp_net **net);

/* Is a score of the trained model finite? If not, fails t. */
bool trained_finite(tp_trained *t, double loss);

#endif
