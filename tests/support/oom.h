/* oom.h - repeats an attempt while memory runs out at its n-th allocation, for many n. The shortage
 * is temporary or lasts until the end of the attempt. For programs that link with MALLOC_WRAPS
 * (support/malloc.h). */
#ifndef TP_SUPPORT_OOM_H
#define TP_SUPPORT_OOM_H

#include <stdbool.h>
#include <stddef.h>

typedef struct attempt {
    size_t n, count; /* allocations n .. n + count - 1 fail */
    size_t calls;    /* number of allocations made          */
    bool ok;
    char why[4096];
} attempt;

/* Ends the shortage and records its result. */
void end_attempt(attempt *t, bool ok, const char *why);

/* f makes one attempt, calling malloc_fail(t->n, t->count) and end_attempt. Expects that each
 * attempt reports a shortage or succeeds, nothing leaks, and at least `least` fail. */
void for_every_n(const char *name, void (*f)(void *env, attempt *t), void *env, int least);

#endif
