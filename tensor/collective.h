/* collective.h - sums over the GPUs of several processes, by a library that needs no host
 * memory.
 *
 * A device takes part in one set of sums at a time. Of each function that may fail, why[TP_WHY]
 * gets the reason. */
#ifndef TP_COLLECTIVE_H
#define TP_COLLECTIVE_H

#include "tensor/backend.h"

enum { TP_COLLECTIVE_ID = 128, TP_COLLECTIVE_TEXT = 32 };

/* Device memory that is summed in place. */
typedef struct tp_addend {
    void *at;
    size_t n;  /* elements */
    int owner; /* the rank that gets the sum, while other memory stays; -1: all */
} tp_addend;

typedef struct tp_collective {
    /* Loads the library for D, if D takes part in no other sums. name: of the library, with its
     * version. gpu: which of the host's D is. */
    bool (*open)(tp_device *D, char name[TP_COLLECTIVE_TEXT], char gpu[TP_COLLECTIVE_TEXT],
                 char *why);
    /* By rank 0: by what the processes find each other. */
    bool (*meet)(tp_device *D, char id[TP_COLLECTIVE_ID], char *why);
    /* Waits for all of them. */
    bool (*join)(tp_device *D, const char id[TP_COLLECTIVE_ID], int rank, int ranks, char *why);
    /* Queues n sums, the same in all processes, behind D's work so far. D's later work
     * runs beside them. */
    bool (*sum)(tp_device *D, const tp_addend *s, int n, tp_dtype dtype, char *why);
    /* D's later work runs after the sums so far. */
    bool (*follow)(tp_device *D, char *why);
    /* Are the sums before the last follow done? 1: yes; 0: not yet; -1: failed. Does not wait. */
    int (*done)(tp_device *D, char *why);
    /* The end of what open began. failed: sums under way are broken off. */
    void (*close)(tp_device *D, bool failed);
} tp_collective;

/* NULL: D has none. */
const tp_collective *tp__collective(const tp_device *D);

extern const tp_collective tp__cuda_collective; /* cuda/device/nccl.c */

#endif
