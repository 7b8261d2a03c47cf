/* parity_audit.h - changes of metadata that make no difference although the values are read. */
#ifndef PARITY_AUDIT_H
#define PARITY_AUDIT_H

#include "parity_case.h"

typedef struct par_exception {
    const char *kind; /* '*' stands for any characters; NULL ends the table */
    const char *key;
    const char *reason;
    /* Does the case mean the same with the other value? NULL: whatever the value. */
    bool (*same)(parity *p, const char *from, const char *to);
} par_exception;
extern const par_exception par_exceptions[];

#endif
