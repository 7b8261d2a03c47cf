/* lock.h - the locks of the library, which a fork of the process takes first, so that in the child none is
 * held by a thread that does not exist there, and what they guard is whole. */
#ifndef TP_LOCK_H
#define TP_LOCK_H

#include <pthread.h>

typedef struct tp_lock {
    pthread_mutex_t mutex;
    struct tp_lock *before, *after; /* the list of all */
} tp_lock;

void tp__lock_init(tp_lock *l);
void tp__lock_free(tp_lock *l);

static inline void tp__lock(tp_lock *l)
{
    pthread_mutex_lock(&l->mutex);
}

static inline void tp__unlock(tp_lock *l)
{
    pthread_mutex_unlock(&l->mutex);
}

/* How often this process and those that it descends from have forked, since the first lock was made. */
unsigned tp__forks(void);

#endif
