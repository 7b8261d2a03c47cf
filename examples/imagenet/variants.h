/* variants.h - the models that `imagenet throughput` compares: one preset with several changes of
 * its members. */
#ifndef IMAGE_VARIANTS_H
#define IMAGE_VARIANTS_H

#include <stdbool.h>
#include <stddef.h>

enum { VARIANTS = 16, VARIANT_SET = 1200 };

typedef struct variant {
    char set[VARIANT_SET]; /* for --set; "": none */
    char name[160];        /* what differs from the others; "": nothing, as there are none */
} variant;

/* Splits a list of changes at its slashes, "edge=exact/edge=mask", and adds them to `set`, which
 * may be NULL as the list may. Names are the changes, or the parts in which they differ: "f4" and
 * "f7" of two long values of arch. Returns how many there are, at least one; 0 with the reason in
 * why. */
int variants_read(variant v[VARIANTS], const char *list, const char *set, char *why, size_t size);

#endif
