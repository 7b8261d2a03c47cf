/* peers.c - the processes of a run and their small exchanges.
 *
 * Every exchange is made of messages between two processes. Each process sends its part to every
 * other one and adds what it got in the order of the ranks: K - 1 messages each way, which is
 * faster than a tree for the few bytes and tens of processes that these are for. */
#include "train/peers/inner.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the object ---- */

static tp_peers no_memory = {
    .err = { TP_E_MEMORY, "peers: out of memory for the object itself", NULL },
    .t = { .name = "", .host = "", .ranks = 1, .local_ranks = 1 },
};

static tp_peers no_transport = {
    .err = { TP_E_STATE, "peers: NULL was given in place of a transport", NULL },
    .t = { .name = "", .host = "", .ranks = 1, .local_ranks = 1 },
};

static bool is_constant(const tp_peers *G)
{
    return !G || G == &no_memory || G == &no_transport;
}

tp_peers *tp__peers_blank(const tp_transport *t, const tp_peers_opts *o)
{
    if (!t) return &no_transport;
    tp_peers *G = malloc(sizeof *G);
    if (!G) return &no_memory;
    *G = (tp_peers){ .t = *t, .waiting = -1 };
    if (o) G->o = *o;
    if (G->o.timeout <= 0) G->o.timeout = 30;
    G->limit = G->o.timeout;
    snprintf(G->during[0], sizeof G->during[0], "the start");
    if (G->o.lost) {
        G->watch = tp__watchdog_new(G);
        if (!G->watch) tp__peers_fail(G, "the thread that watches over silent processes failed");
    }
    return G;
}

/* The first exchange. The watchdog counts its time, too: its sentence then lacks names. */
static void gather_hosts(tp_peers *G)
{
    tp_host mine = { 0 }, *all = calloc((size_t)G->t.ranks, sizeof *all);
    snprintf(mine.name, sizeof mine.name, "%s", G->t.host);
    if (all && tp_peers_gather(G, &mine, sizeof mine, all)) {
        G->host = all;
        return;
    }
    if (!all) tp__peers_fail(G, "out of memory for the names of hosts");
    free(all);
}

tp_peers *tp_peers_new(const tp_transport *t, const tp_peers_opts *o)
{
    tp_peers *G = tp__peers_blank(t, o);
    if (!is_constant(G)) gather_hosts(G);
    return G;
}

void tp_peers_close(tp_peers *G)
{
    if (is_constant(G)) return;
    G->waiting = G->t.ranks;
    if (G->t.close && G->err.code == TP_OK) G->t.close(G->t.env);
    tp__watchdog_free(G->watch);
    free(G->host);
    free(G);
}

bool tp_peers_ok(const tp_peers *G)
{
    return G && G->err.code == TP_OK;
}

const char *tp_peers_why(const tp_peers *G)
{
    return G ? G->err.text : "peers: NULL was given in place of the processes";
}

int tp_peers_rank(const tp_peers *G)
{
    return G ? G->t.rank : 0;
}

int tp_peers_count(const tp_peers *G)
{
    return G ? G->t.ranks : 1;
}

const tp_transport *tp_peers_transport(const tp_peers *G)
{
    return G ? &G->t : NULL;
}

const char *tp_peers_host(const tp_peers *G, int rank)
{
    const tp_host *host = G ? G->host : NULL;
    return host && rank >= 0 && rank < G->t.ranks ? host[rank].name : "";
}

bool tp__peers_fail(tp_peers *G, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tp__verr(&G->err, TP_E_IO, fmt, ap);
    va_end(ap);
    return false;
}

void tp_peers_during(tp_peers *G, const char *what, double times)
{
    if (is_constant(G)) return;
    const int next = !G->using;
    snprintf(G->during[next], sizeof G->during[next], "%s", what);
    G->using = next;
    G->limit = times * G->o.timeout;
}

void tp_peers_set_timeout(tp_peers *G, double timeout)
{
    if (is_constant(G) || timeout <= 0) return;
    G->limit = G->limit / G->o.timeout * timeout;
    G->o.timeout = timeout;
}

/* ---- messages ---- */

static bool fail_message(tp_peers *G, const tp_message *m, const char *what)
{
    const char *why = G->t.why ? G->t.why(G->t.env) : "";
    return tp__peers_fail(G, "%s: a message %s rank %d failed%s%s", G->t.name, what, m->peer,
                          why[0] ? ": " : "", why);
}

static bool begun(tp_peers *G, tp_message *m, const char *what)
{
    return m->request || fail_message(G, m, what);
}

bool tp__peers_send(tp_peers *G, tp_message *m, int to, int tag, const void *data, size_t n)
{
    *m = (tp_message){ .peer = to };
    if (G->err.code != TP_OK) return false;
    m->request = G->t.send(G->t.env, to, tag, data, n);
    return begun(G, m, "to");
}

bool tp__peers_receive(tp_peers *G, tp_message *m, int from, int tag, void *data, size_t n)
{
    *m = (tp_message){ .peer = from };
    if (G->err.code != TP_OK) return false;
    m->request = G->t.receive(G->t.env, from, tag, data, n);
    return begun(G, m, "from");
}

bool tp__peers_done(tp_peers *G, tp_message *m)
{
    if (!m->request || G->err.code != TP_OK) return true;
    const int done = G->t.test(G->t.env, m->request);
    if (done == 0) return false;
    G->progress++;
    if (done == 2) return false;
    m->request = NULL;
    if (done < 0) fail_message(G, m, "with");
    return true;
}

bool tp__peers_wait(tp_peers *G, tp_message *m, int n)
{
    enum { SPINS = 1000 };
    for (int i = 0; i < n; i++) {
        int spins = 0;
        while (!tp__peers_done(G, &m[i])) {
            G->waiting = m[i].peer;
            if (++spins % SPINS == 0) sched_yield();
        }
    }
    G->waiting = -1;
    return G->err.code == TP_OK;
}

/* ---- small exchanges ---- */

int tp__peers_tag(tp_peers *G)
{
    return (int)(G->small++ % TP_TAG_SMALL);
}

/* NULL after an error. */
static tp_message *messages(tp_peers *G, int n)
{
    tp_message *m = G->err.code == TP_OK ? calloc((size_t)n, sizeof *m) : NULL;
    if (!m && G->err.code == TP_OK) tp__peers_fail(G, "out of memory for %d messages", n);
    return m;
}

bool tp_peers_gather(tp_peers *G, const void *mine, size_t n, void *all)
{
    const int ranks = tp_peers_count(G), rank = tp_peers_rank(G);
    if (!all || !mine) return n == 0 && (!G || G->err.code == TP_OK);
    memcpy((char *)all + (size_t)rank * n, mine, n);
    if (ranks == 1) return !G || G->err.code == TP_OK;
    tp_message *m = messages(G, 2 * ranks);
    const int tag = tp__peers_tag(G);
    bool done = m != NULL;
    for (int k = 0; done && k < ranks; k++)
        if (k != rank)
            done = tp__peers_receive(G, &m[k], k, tag, (char *)all + (size_t)k * n, n) &&
                   tp__peers_send(G, &m[ranks + k], k, tag, mine, n);
    done = done && tp__peers_wait(G, m, 2 * ranks);
    free(m);
    return done;
}

bool tp_peers_sum(tp_peers *G, double *x, int n)
{
    const int ranks = tp_peers_count(G);
    if (ranks == 1) return !G || G->err.code == TP_OK;
    double *all = malloc((size_t)ranks * (size_t)n * sizeof *all);
    if (!all) return tp__peers_fail(G, "out of memory for sums");
    const bool done = tp_peers_gather(G, x, (size_t)n * sizeof *x, all);
    for (int i = 0; done && i < n; i++) {
        x[i] = 0;
        for (int k = 0; k < ranks; k++) x[i] += all[(size_t)k * (size_t)n + (size_t)i];
    }
    free(all);
    return done;
}

bool tp_peers_any(tp_peers *G, bool here)
{
    double count = here ? 1 : 0;
    return !tp_peers_sum(G, &count, 1) || count > 0;
}

bool tp_peers_broadcast(tp_peers *G, void *data, size_t n)
{
    const int ranks = tp_peers_count(G);
    if (ranks == 1) return !G || G->err.code == TP_OK;
    tp_message *m = messages(G, ranks);
    const int tag = tp__peers_tag(G);
    bool done = m != NULL;
    if (tp_peers_rank(G) > 0)
        done = done && tp__peers_receive(G, &m[0], 0, tag, data, n);
    else
        for (int k = 1; done && k < ranks; k++) done = tp__peers_send(G, &m[k], k, tag, data, n);
    done = done && tp__peers_wait(G, m, ranks);
    free(m);
    return done;
}

bool tp_peers_send(tp_peers *G, int to, const void *data, size_t n)
{
    tp_message m;
    return G && tp__peers_send(G, &m, to, TP_TAG_PAIR, data, n) && tp__peers_wait(G, &m, 1);
}

bool tp_peers_receive(tp_peers *G, int from, void *data, size_t n)
{
    tp_message m;
    return G && tp__peers_receive(G, &m, from, TP_TAG_PAIR, data, n) && tp__peers_wait(G, &m, 1);
}
