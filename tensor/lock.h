/* lock.h - the library's locks. fork() takes them all first, so that in the child none is held by a
 * thread that does not exist there, and guarded data are consistent. */
#ifndef TP_LOCK_H
#define TP_LOCK_H

#include <pthread.h>

typedef struct tp_lock {
    pthread_mutex_t mutex;
    struct tp_lock *before, *after; /* list of locks */
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

/* The number of forks of this process and its ancestors since the first lock was made. */
unsigned tp__forks(void);

#endif
