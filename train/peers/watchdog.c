/* watchdog.c - notices that a process stays silent.
 *
 * The thread counts its own ticks instead of reading a clock: a process that was stopped and
 * continues must not accuse the others of the time that it slept itself.
 *
 * The first process that gives up ends the run, so ranks give up one after the other: all but one
 * are ended by the launcher before they repeat its sentence. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "train/peers/inner.h"

struct tp_watchdog {
    tp_peers *G;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool end;
};

enum { TICKS_PER_SECOND = 10 };

/* Waits for a tick. False: the watch ends. */
static bool tick(tp_watchdog *w)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 1000000000L / TICKS_PER_SECOND;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    pthread_mutex_lock(&w->lock);
    if (!w->end) pthread_cond_timedwait(&w->ended, &w->lock, &until);
    const bool going = !w->end;
    pthread_mutex_unlock(&w->lock);
    return going;
}

static void tell(tp_peers *G, int rank, double seconds)
{
    char who[120] = "another rank", text[480];
    const char *host = tp_peers_host(G, rank);
    if (rank < G->t.ranks)
        snprintf(who, sizeof who, "rank %d%s%s", rank, host[0] ? " on host " : "", host);
    snprintf(text, sizeof text,
             "%s has not answered rank %d on host %s for %.0f s, in %s; if it only needs more "
             "time, raise --peer-timeout",
             who, G->t.rank, G->t.host, seconds, G->during[G->using]);
    G->o.lost(G->o.env, text);
}

/* The limit in ticks; Open MPI needs up to 3 s to end the others. */
static double patience(const tp_peers *G)
{
    const int turn = G->t.rank < 2 ? G->t.rank : 2;
    return G->limit * (1 + 0.1 * turn) * TICKS_PER_SECOND;
}

static void *watch(void *env)
{
    tp_watchdog *w = env;
    tp_peers *G = w->G;
    int64_t ticks = 0;
    uint64_t before = 0;
    while (tick(w)) {
        const int rank = G->waiting;
        const uint64_t now = G->progress;
        ticks = rank < 0 || now != before ? 0 : ticks + 1;
        before = now;
        if ((double)ticks <= patience(G)) continue;
        tell(G, rank, G->limit);
        ticks = 0;
    }
    return NULL;
}

tp_watchdog *tp__watchdog_new(tp_peers *G)
{
    tp_watchdog *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->G = G;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->ended, NULL);
    if (pthread_create(&w->thread, NULL, watch, w) == 0) return w;
    pthread_cond_destroy(&w->ended);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return NULL;
}

void tp__watchdog_free(tp_watchdog *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->end = true;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->ended);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
