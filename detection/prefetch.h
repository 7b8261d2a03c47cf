/* prefetch.h - an ordered ring of batches that worker threads make ahead of their use. */
#ifndef TP_PREFETCH_H
#define TP_PREFETCH_H

#include <tapegrad/base.h>

/* Batch k goes into slot k % ahead. What a batch contains must depend on its number alone: which worker makes it, and
 * when, is not determined. */
typedef struct tp_prefetch_opts {
    int threads, ahead; /* at least 1, and at least 2 */
    int64_t last;       /* there are the batches 0 ... last - 1 */
    void (*make)(void *env, int slot, int64_t k, int worker);
    void *env;
} tp_prefetch_opts;

/* NULL: out of memory. Threads start with the first batch that is asked for. */
typedef struct tp_prefetch tp_prefetch;
tp_prefetch *tp__prefetch_new(const tp_prefetch_opts *o);
void tp__prefetch_free(tp_prefetch *p);
/* The next batch is k; drops those made so far unless it is the next one anyway. */
void tp__prefetch_seek(tp_prefetch *p, int64_t k);
/* Waits for the next batch. Returns its slot, which stays as it is until the next call, or -1 after the last one. */
int tp__prefetch_next(tp_prefetch *p);

#endif
