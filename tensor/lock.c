/* lock.c - the list of locks, and their handling in fork(). A forking thread holds no lock, and no
 * thread holds two, so taking all of them cannot deadlock. */
#include "tensor/lock.h"

#include <stdatomic.h>

#include "tensor/backend.h"

static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;
static tp_lock *first;
static atomic_uint forks;

static void before_fork(void)
{
    pthread_mutex_lock(&listing);
    for (tp_lock *l = first; l; l = l->after) tp__lock(l);
    tp__blas_hold();
}

static void release_all(bool in_child)
{
    tp__blas_release(in_child);
    for (tp_lock *l = first; l; l = l->after) tp__unlock(l);
    pthread_mutex_unlock(&listing);
}

static void in_parent(void)
{
    release_all(false);
}

static void in_child(void)
{
    atomic_fetch_add(&forks, 1);
    release_all(true);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

unsigned tp__forks(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

void tp__lock_init(tp_lock *l)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_init(&l->mutex, NULL);
    pthread_mutex_lock(&listing);
    l->before = NULL;
    l->after = first;
    if (first) first->before = l;
    first = l;
    pthread_mutex_unlock(&listing);
}

void tp__lock_free(tp_lock *l)
{
    pthread_mutex_lock(&listing);
    if (l->after) l->after->before = l->before;
    if (l->before)
        l->before->after = l->after;
    else
        first = l->after;
    pthread_mutex_unlock(&listing);
    pthread_mutex_destroy(&l->mutex);
}
