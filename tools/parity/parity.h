/* parity.h - running and auditing reference cases: what tp-parity and the fixture test call.
 *
 * A case is a safetensors file: metadata that says what to run, parameters, inputs, and the outputs
 * and gradients that a reference implementation found. */
#ifndef PARITY_H
#define PARITY_H

#include <stdio.h>

#include <tapegrad/tapegrad.h>

/* One changed value of the metadata: the case is read as if its file said so. value NULL removes
 * the key; a key that the file does not have is added. */
typedef struct parity_change {
    const char *key, *value;
} parity_change;

typedef struct parity_opts {
    tp_device *D;
    tp_dtype compute;            /* TP_F64, TP_F32 or TP_BF16                       */
    bool large;                  /* runs models of full size too                    */
    FILE *log;                   /* every comparison is printed there; NULL: silent */
    const parity_change *change; /* NULL: as the file is                 */
} parity_opts;

typedef struct parity_result {
    double worst;         /* largest relative error of the tensors compared so */
    char worst_name[128]; /* and whose it is                                   */
    char why[1024];       /* the first failure                                 */
} parity_result;

/* Runs one file in one precision. 0: it agrees; 1: it does not, see r->why; -1: not run, because it
 * is large and o->large is not set, or is not for bf16. Besides values that differ, these are
 * failures: a tensor of the file that nothing was compared with, and a key of its metadata that
 * configures something and that nobody read. */
int parity_run(parity_result *r, const char *path, const parity_opts *o);

typedef struct parity_audit {
    int changes;   /* tried                                                             */
    int excepted;  /* not noticed, for a reason that stands in the table of exceptions  */
    int unnoticed; /* not noticed otherwise                                             */
    char why[1024];
} parity_audit;

/* Changes every configuring value of a case in turn. Each change must be refused or make the case
 * disagree; out receives a line for each that does neither (with all: for excepted ones too). The
 * precision is f64, for models of full size and on devices without f64 it is f32. False: the case
 * cannot be audited, because it does not agree as it is; see why. */
bool parity_audit_run(parity_audit *a, const char *path, tp_device *D, bool all, FILE *out);

#endif
