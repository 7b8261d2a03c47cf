/* prefetch.c - see the header. */
#include "prefetch.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct worker {
    tp_prefetch *of;
    int number;
    pthread_t thread;
} worker;

struct tp_prefetch {
    tp_prefetch_opts o;
    int64_t given; /* the batch that a worker takes next */
    int64_t next;  /* the batch that is returned next */
    bool holds;    /* the caller reads batch next - 1 */
    int64_t *made; /* [ahead] the number of the complete batch in each slot; -1: none */
    worker *at;
    int running;
    bool stop;
    pthread_mutex_t lock;
    pthread_cond_t work, ready;
};

tp_prefetch *tp__prefetch_new(const tp_prefetch_opts *o)
{
    tp_prefetch *p = calloc(1, sizeof *p);
    int64_t *made = malloc((size_t)o->ahead * sizeof *made);
    worker *at = calloc((size_t)o->threads, sizeof *at);
    if (!p || !made || !at) {
        free(p);
        free(made);
        free(at);
        return NULL;
    }
    p->o = *o;
    p->made = made;
    p->at = at;
    for (int i = 0; i < o->ahead; i++) made[i] = -1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->ready, NULL);
    return p;
}

/* The slot of the batch that the caller reads is not free. */
static bool may_take(const tp_prefetch *p)
{
    return p->given < p->o.last && p->given < p->next - (p->holds ? 1 : 0) + p->o.ahead;
}

static void *run(void *env)
{
    const worker *w = env;
    tp_prefetch *p = w->of;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        if (!may_take(p)) {
            pthread_cond_wait(&p->work, &p->lock);
            continue;
        }
        const int64_t k = p->given++;
        const int slot = (int)(k % p->o.ahead);
        pthread_mutex_unlock(&p->lock);
        p->o.make(p->o.env, slot, k, w->number);
        pthread_mutex_lock(&p->lock);
        p->made[slot] = k;
        pthread_cond_broadcast(&p->ready);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void start(tp_prefetch *p)
{
    for (int i = 0; i < p->o.threads; i++) {
        p->at[p->running] = (worker){ .of = p, .number = p->running };
        if (pthread_create(&p->at[p->running].thread, NULL, run, &p->at[p->running]) == 0)
            p->running++;
    }
}

static void join(tp_prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->running; i++) pthread_join(p->at[i].thread, NULL);
    p->running = 0;
    p->stop = false;
}

void tp__prefetch_free(tp_prefetch *p)
{
    if (!p) return;
    join(p);
    pthread_cond_destroy(&p->ready);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p->made);
    free(p->at);
    free(p);
}

void tp__prefetch_seek(tp_prefetch *p, int64_t k)
{
    if (k == p->next) return;
    join(p);
    for (int i = 0; i < p->o.ahead; i++) p->made[i] = -1;
    p->given = p->next = k;
    p->holds = false;
}

int tp__prefetch_next(tp_prefetch *p)
{
    if (p->next >= p->o.last) return -1;
    if (p->running == 0) start(p);
    const int slot = (int)(p->next % p->o.ahead);
    if (p->running == 0) { /* no thread could be started; a later call tries again */
        p->o.make(p->o.env, slot, p->next++, 0);
        p->given = p->next;
        p->holds = true;
        return slot;
    }
    pthread_mutex_lock(&p->lock);
    p->holds = false;
    pthread_cond_broadcast(&p->work);
    while (p->made[slot] != p->next) pthread_cond_wait(&p->ready, &p->lock);
    p->next++;
    p->holds = true;
    pthread_mutex_unlock(&p->lock);
    return slot;
}
