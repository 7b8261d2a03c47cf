/* thread_transport.c - a transport between threads: each message is copied into a list when it is
 * sent, and out of it when it is received, in the order of sending. */
#include "support/thread_transport.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/device.h"

typedef struct letter {
    struct letter *next;
    int from, to, tag;
    size_t n;
    char data[];
} letter;

typedef struct post {
    pthread_mutex_t lock;
    letter *first, **last;
    int ranks;
} post;

typedef struct box { /* of one rank */
    post *all;
    int rank;
} box;

typedef struct want { /* a request: of a receiver; a sender's is done at once */
    bool sent;
    int from, tag;
    void *data;
    size_t n;
} want;

/* Held by the rank that runs, while it waits for nothing: the emulation of a GPU has one thread. */
static pthread_mutex_t one_rank = PTHREAD_MUTEX_INITIALIZER;

static void let_others_run(void)
{
    if (!device_is_emulated()) return;
    pthread_mutex_unlock(&one_rank);
    nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
    pthread_mutex_lock(&one_rank);
}

static void *send_copy(void *env, int to, int tag, const void *data, size_t n)
{
    box *b = env;
    letter *l = malloc(sizeof *l + n);
    want *w = calloc(1, sizeof *w);
    *l = (letter){ .from = b->rank, .to = to, .tag = tag, .n = n };
    memcpy(l->data, data, n);
    pthread_mutex_lock(&b->all->lock);
    *b->all->last = l;
    b->all->last = &l->next;
    pthread_mutex_unlock(&b->all->lock);
    w->sent = true;
    return w;
}

static void *receive(void *env, int from, int tag, void *data, size_t n)
{
    (void)env;
    want *w = malloc(sizeof *w);
    *w = (want){ .from = from, .tag = tag, .data = data, .n = n };
    return w;
}

/* Takes the first letter of a sender and tag out of the list; NULL: none. Call with the lock. */
static letter *take(const box *b, const want *w)
{
    for (letter **at = &b->all->first; *at; at = &(*at)->next) {
        letter *l = *at;
        if (l->to != b->rank || l->from != w->from || l->tag != w->tag) continue;
        *at = l->next;
        if (!l->next) b->all->last = at;
        return l;
    }
    return NULL;
}

static int test(void *env, void *request)
{
    box *b = env;
    want *w = request;
    letter *l = NULL;
    if (!w->sent) {
        pthread_mutex_lock(&b->all->lock);
        l = take(b, w);
        pthread_mutex_unlock(&b->all->lock);
        if (!l) {
            let_others_run();
            return 0;
        }
        cr_assert_eq(l->n, w->n, "rank %d: a message of %zu bytes, not %zu, from rank %d, tag %d",
                     b->rank, l->n, w->n, l->from, l->tag);
        memcpy(w->data, l->data, l->n);
        free(l);
    }
    free(w);
    return 1;
}

typedef struct thread {
    box at;
    const tp_peers_opts *o;
    void (*body)(void *env, tp_peers *G);
    void *env;
    pthread_t id;
} thread;

static void *run_rank(void *env)
{
    thread *t = env;
    const int ranks = t->at.all->ranks;
    const tp_transport transport = { .name = "threads",
                                     .host = "here",
                                     .rank = t->at.rank,
                                     .ranks = ranks,
                                     .local_rank = t->at.rank,
                                     .local_ranks = ranks,
                                     .env = &t->at,
                                     .send = send_copy,
                                     .receive = receive,
                                     .test = test };
    if (device_is_emulated()) pthread_mutex_lock(&one_rank);
    tp_peers *G = tp_peers_new(&transport, t->o);
    t->body(t->env, G);
    if (device_is_emulated()) pthread_mutex_unlock(&one_rank);
    tp_peers_close(G);
    return NULL;
}

void run_ranks_with(int ranks, const tp_peers_opts *o, void (*body)(void *env, tp_peers *G),
                    void *env)
{
    post all = { .ranks = ranks };
    thread t[THREAD_RANKS];
    all.last = &all.first;
    pthread_mutex_init(&all.lock, NULL);
    cr_assert_leq(ranks, THREAD_RANKS);
    for (int k = 0; k < ranks; k++) {
        t[k] = (thread){ .at = { &all, k }, .o = o, .body = body, .env = env };
        cr_assert_eq(pthread_create(&t[k].id, NULL, run_rank, &t[k]), 0);
    }
    for (int k = 0; k < ranks; k++) pthread_join(t[k].id, NULL);
    while (all.first) { /* of a failed rank */
        letter *l = all.first;
        all.first = l->next;
        free(l);
    }
    pthread_mutex_destroy(&all.lock);
}

void run_ranks(int ranks, void (*body)(void *env, tp_peers *G), void *env)
{
    run_ranks_with(ranks, NULL, body, env);
}
