/* parity.h - runs and audits reference cases, for tp-parity and the fixture test.
 *
 * A case is a safetensors file: metadata that say what to run, parameters, inputs, and the outputs
 * and gradients of a reference implementation. */
#ifndef PARITY_H
#define PARITY_H

#include <stdio.h>

#include <tapegrad/tapegrad.h>

/* A change of metadata: value NULL removes the key; a missing key is added. */
typedef struct parity_change {
    const char *key, *value;
} parity_change;

typedef struct parity_opts {
    tp_device *D;
    tp_dtype compute;            /* TP_F64, TP_F32 or TP_BF16                       */
    bool large;                  /* runs full-size models too                       */
    FILE *log;                   /* every comparison is printed there; NULL: silent */
    const parity_change *change; /* NULL: unchanged                                 */
    const char *vocab;           /* of texts with ids: a folder or file; NULL: where the case is */
} parity_opts;

typedef struct parity_result {
    double worst;         /* largest relative error                 */
    char worst_name[128]; /* the tensor that has it                 */
    char why[1024];       /* the first failure                      */
    bool illegal;         /* it is an impossible value of a key     */
} parity_result;

/* Runs one file in one precision. 0: it agrees; 1: it does not, see r->why; -1: skipped, because it
 * is large and o->large is not set, or because it is not for bf16. A tensor of the file that was
 * not compared and a configuration key that was not read are failures too. */
int parity_run(parity_result *r, const char *path, const parity_opts *o);

typedef struct parity_audit {
    int changes; /* tried                                                                       */
    int inert;   /* keys without effect: a change agrees, and none makes a difference           */
    int wrong;   /* keys that are inert but not listed, or the reverse; 0 if there is no list   */
    char why[1024];
} parity_audit;

/* Changes every configuring key of a case to find those without effect: values of such a key agree,
 * and none makes a difference. They must be those that the key `inert` of the metadata lists, with
 * blanks between; if it is absent, any may be. Impossible values do not count; a key without others
 * may be listed or not. A line is printed to out for each key that is wrong or, without a list, has
 * no effect; verbose: and for each change that makes no difference. The precision is f64, or f32
 * for full-size models and devices without f64. False if the unchanged case does not agree or
 * `inert` names something that is not a setting of the case; see why. */
bool parity_audit_run(parity_audit *a, const char *path, tp_device *D, bool verbose, FILE *out);

#endif
