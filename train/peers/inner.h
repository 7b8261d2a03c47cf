/* inner.h - the processes of a run: messages that are waited for, what the watchdog sees of them,
 * and cores. */
#ifndef TP_PEERS_INNER_H
#define TP_PEERS_INNER_H

#include <stdatomic.h>
#include <tapegrad/peers.h>

#include "tensor/error.h"

/* Small exchanges rotate through tags below TP_TAG_SMALL, messages of two processes have the next
 * tag, buckets those from TP_TAG_BUCKET on. */
enum { TP_TAG_SMALL = 8191, TP_TAG_PAIR = TP_TAG_SMALL, TP_TAG_BUCKET = 8192, TP_TAGS = 16384 };

typedef struct tp_watchdog tp_watchdog; /* watchdog.c */

typedef struct tp_host {
    char name[64];
} tp_host;

struct tp_peers {
    tp_transport t;
    tp_peers_opts o;
    tp_err err;
    uint64_t small;        /* exchanges so far */
    int exchanges;         /* of gradients, created so far */
    tp_watchdog *watch;    /* NULL: waiting has no limit */
    tp_host *_Atomic host; /* of each rank; NULL: not known yet */
    /* Read by the watchdog: */
    atomic_int waiting;             /* the rank that is waited for; -1: none; ranks: some */
    atomic_uint_least64_t progress; /* messages done, and parts of them */
    _Atomic double limit;           /* seconds */
    char during[2][120];            /* what the processes do now: the one in use */
    atomic_int using;
};

/* tp_peers_new without a message: host names stay unknown. */
tp_peers *tp__peers_blank(const tp_transport *t, const tp_peers_opts *o);

/* A message under way. */
typedef struct tp_message {
    void *request; /* NULL: none, or done */
    int peer;
} tp_message;

/* Begin a message. False, with the error on G: failed. */
bool tp__peers_send(tp_peers *G, tp_message *m, int to, int tag, const void *data, size_t n);
bool tp__peers_receive(tp_peers *G, tp_message *m, int from, int tag, void *data, size_t n);
/* Is the message done? True after an error. */
bool tp__peers_done(tp_peers *G, tp_message *m);
/* Waits for n messages. False: failed. */
bool tp__peers_wait(tp_peers *G, tp_message *m, int n);
/* The tag of the next small exchange, in which all processes take part. */
int tp__peers_tag(tp_peers *G);
bool tp__peers_fail(tp_peers *G, const char *fmt, ...) TP_PRINTF(2, 3);

/* binding.c: gives this process its part of the host's cores. launcher: a variable that the
 * launcher sets in the processes that it starts. by_default: it bound them unasked. */
void tp__peers_divide_cores(int local_rank, int local_ranks, const char *launcher, bool by_default);

/* watchdog.c: a thread that calls G->o.lost when G waits for too long. NULL: out of memory, or no
 * thread could be started. */
tp_watchdog *tp__watchdog_new(tp_peers *G);
void tp__watchdog_free(tp_watchdog *w);

#endif
